"""Budgets, what releases cost, how to spread a budget, and the ledger that holds a run to it.

Float64 NumPy and SciPy, to be read beside a proof. The mechanism itself is JAX and is imported by name, from
`relaydp.privacy.mechanism`, so that accounting needs no JAX.
"""

from relaydp.privacy.accountant import (
    delta_exact,
    epsilon_exact,
    epsilon_paper,
    gaussian_rho,
    gaussian_scale,
    rho_for,
)
from relaydp.privacy.budget import Budget
from relaydp.privacy.ledger import Ledger, Release
from relaydp.privacy.schedule import (
    geometric,
    optimal,
    published_first_scale,
    published_rho,
    published_scales,
)

__all__ = [
    "Budget",
    "Ledger",
    "Release",
    "delta_exact",
    "epsilon_exact",
    "epsilon_paper",
    "gaussian_rho",
    "gaussian_scale",
    "geometric",
    "optimal",
    "published_first_scale",
    "published_rho",
    "published_scales",
    "rho_for",
]
