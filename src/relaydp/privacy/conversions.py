"""What a cost in rho is in other currencies: Gaussian and Renyi privacy, pure privacy, groups of records."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relaydp.privacy.accountant import check_epsilon, epsilon_exact
from relaydp.privacy.releases import at_least, numbers, whole_number


def gdp_mu(rho: float) -> float:
    """mu of the Gaussian releases that cost `rho` in all: sqrt(2 rho), the shift in units of the noise.

    >>> gdp_mu(0.5)
    1.0
    """
    return math.sqrt(2 * at_least("rho", rho, 0))


def gdp_rho(mu: float) -> float:
    """rho of a mu-GDP Gaussian release: mu^2 / 2. For other mu-GDP mechanisms it holds too (Dong, Roth and Su 2019).

    >>> gdp_rho(1.0)
    0.5
    """
    return at_least("mu", mu, 0) ** 2 / 2


def renyi(rho: float, alpha: float) -> float:
    """The Renyi divergence of order alpha > 1 that rho-zCDP allows: rho alpha, its definition.

    >>> renyi(0.25, 8.0)
    2.0
    """
    return at_least("rho", rho, 0) * at_least("alpha", alpha, 1, above=True)


def pure_rho(epsilon: ArrayLike) -> NDArray[np.float64]:
    """rho of an epsilon-DP release, for numbers or arrays: epsilon^2 / 2 (Bun and Steinke 2016, proposition 1.4).

    >>> float(pure_rho(0.5))
    0.125
    """
    return (numbers("epsilon", epsilon, above=False) ** 2 / 2)[()]


def epsilon_group(rho: float, delta: float, records: int) -> float:
    """epsilon when `records` records of one agent are replaced, and its Gaussian releases cost `rho` in all.

    Each answer moves by up to `records` times the sensitivity: mu becomes k mu and rho k^2 rho, exactly.

    >>> epsilon_group(0.02, 1e-5, 1) == epsilon_exact(0.02, 1e-5)
    True
    >>> round(epsilon_group(0.02, 1e-5, 5), 4)
    4.3772
    """
    return epsilon_exact(at_least("rho", rho, 0) * whole_number("records", records) ** 2, delta)


def group_privacy(epsilon: float, delta: float, records: int) -> tuple[float, float]:
    """(epsilon, delta) for k records from that for one: (k epsilon, delta (e^(k epsilon) - 1)/(e^epsilon - 1)).

    For any mechanism, also pure (delta = 0) and sampled ones; for Gaussians `epsilon_group` gives a smaller epsilon.

    >>> group_privacy(0.5, 0.0, 3)
    (1.5, 0.0)
    """
    epsilon, delta, k = check_epsilon(epsilon), at_least("delta", delta, 0), whole_number("records", records)
    # The triangle inequality over k - 1 intermediate data sets gives a geometric series; infinite means no guarantee.
    with np.errstate(over="ignore"):
        grown = float(delta * (np.expm1(k * epsilon) / np.expm1(epsilon))) if delta else 0.0
    return k * epsilon, min(1.0, grown)
