"""Budgets, what releases cost, how to spread a budget, and the ledger that holds a run to it and can be verified.

Float64 NumPy and SciPy, to be read beside a proof. The mechanism itself is JAX and is imported by name, from
`relaydp.privacy.mechanism`, so that accounting needs no JAX.
"""

from relaydp.privacy.account import Charge, PrivacyAccount
from relaydp.privacy.accountant import (
    delta_exact,
    epsilon_exact,
    epsilon_paper,
    gaussian_rho,
    gaussian_scale,
    rho_for,
)
from relaydp.privacy.budget import MARGIN, PRICED, SOUND, Budget
from relaydp.privacy.composition import epsilon_sampled, noise_for_sampled
from relaydp.privacy.conversions import epsilon_group, gdp_mu, gdp_rho, group_privacy, pure_rho, renyi
from relaydp.privacy.ledger import Ledger, Release
from relaydp.privacy.other_accountants import epsilon_pld, epsilon_rdp
from relaydp.privacy.schedule import (
    geometric,
    optimal,
    published_first_scale,
    published_rho,
    published_scales,
)
from relaydp.privacy.verification import Verification, verify

__all__ = [
    "Budget",
    "Charge",
    "Ledger",
    "MARGIN",
    "PRICED",
    "PrivacyAccount",
    "Release",
    "SOUND",
    "Verification",
    "delta_exact",
    "epsilon_exact",
    "epsilon_group",
    "epsilon_paper",
    "epsilon_pld",
    "epsilon_rdp",
    "epsilon_sampled",
    "gaussian_rho",
    "gaussian_scale",
    "gdp_mu",
    "gdp_rho",
    "geometric",
    "group_privacy",
    "noise_for_sampled",
    "optimal",
    "published_first_scale",
    "published_rho",
    "published_scales",
    "pure_rho",
    "renyi",
    "rho_for",
    "verify",
]
