"""What a cost in rho is in other currencies: Gaussian and Renyi privacy, pure privacy, groups of records."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relaydp.privacy.accountant import check_epsilon, epsilon_exact
from relaydp.privacy.releases import at_least, numbers, whole_number


def gdp_mu(rho: float) -> float:
    """mu of Gaussian releases that cost `rho` in all: sqrt(2 rho), the shift in units of the noise.

    Args:
        rho: 0 or more.

    Returns:
        mu: neighbouring data sets are as hard to tell apart as two unit Gaussians mu apart.

    Raises:
        PrivacyError: rho is not a number of 0 or more.

    Example:
        >>> import relaydp as rd
        >>> rd.privacy.gdp_mu(0.5)
        1.0
    """
    return math.sqrt(2 * at_least("rho", rho, 0))


def gdp_rho(mu: float) -> float:
    """rho of a mu-GDP release: mu^2 / 2. It holds for every mu-GDP mechanism (Dong, Roth and Su 2019).

    Args:
        mu: 0 or more.

    Returns:
        rho.

    Raises:
        PrivacyError: mu is not a number of 0 or more.

    Example:
        >>> import relaydp as rd
        >>> rd.privacy.gdp_rho(1.0)
        0.5
    """
    return at_least("mu", mu, 0) ** 2 / 2


def renyi(rho: float, alpha: float) -> float:
    """The Renyi divergence that rho-zCDP allows at one order: rho alpha, which is its definition.

    Args:
        rho: 0 or more.
        alpha: The order, above 1.

    Returns:
        The divergence.

    Raises:
        PrivacyError: rho or alpha is out of range.

    Example:
        >>> import relaydp as rd
        >>> rd.privacy.renyi(0.25, 8.0)
        2.0
    """
    return at_least("rho", rho, 0) * at_least("alpha", alpha, 1, above=True)


def pure_rho(epsilon: ArrayLike) -> NDArray[np.float64]:
    """rho of an epsilon-DP release, for numbers or arrays: epsilon^2 / 2 (Bun and Steinke 2016, proposition 1.4).

    Args:
        epsilon: 0 or more.

    Returns:
        rho.

    Raises:
        PrivacyError: A number is out of range.

    Example:
        >>> import relaydp as rd
        >>> float(rd.privacy.pure_rho(0.5))
        0.125
    """
    return (numbers("epsilon", epsilon, above=False) ** 2 / 2)[()]


def epsilon_group(rho: float, delta: float, records: int) -> float:
    """epsilon for several records of one agent together, from the rho of its Gaussian releases.

    Each answer moves by up to `records` times the sensitivity: mu becomes k mu, and rho becomes k^2 rho, exactly.

    Args:
        rho: The cost of all releases for one record.
        delta: Between 0 and 1.
        records: k, how many records are replaced at once: the records of one person, for example.

    Returns:
        epsilon for k records, at the same delta.

    Raises:
        PrivacyError: A number is out of range.

    Example:
        >>> import relaydp as rd
        >>> round(rd.privacy.epsilon_group(0.02, 1e-5, 5), 4)
        4.3772
        >>> rd.privacy.epsilon_group(0.02, 1e-5, 1) == rd.privacy.epsilon_exact(0.02, 1e-5)
        True
    """
    return epsilon_exact(at_least("rho", rho, 0) * whole_number("records", records) ** 2, delta)


def group_privacy(epsilon: float, delta: float, records: int) -> tuple[float, float]:
    """(epsilon, delta) for k records from that for one: (k epsilon, delta (e^(k epsilon) - 1)/(e^epsilon - 1)).

    It holds for every mechanism. For Gaussian releases `epsilon_group` gives a smaller epsilon.

    Args:
        epsilon: That of one record.
        delta: That of one record; 0 for a pure release.
        records: k, how many records are replaced at once.

    Returns:
        The pair (epsilon, delta) for k records.

    Raises:
        PrivacyError: A number is out of range.

    Example:
        >>> import relaydp as rd
        >>> rd.privacy.group_privacy(0.5, 0.0, 3)
        (1.5, 0.0)
    """
    epsilon, delta, k = check_epsilon(epsilon), at_least("delta", delta, 0), whole_number("records", records)
    # The triangle inequality over k - 1 intermediate data sets gives a geometric series; infinite means no guarantee.
    with np.errstate(over="ignore"):
        grown = float(delta * (np.expm1(k * epsilon) / np.expm1(epsilon))) if delta else 0.0
    return k * epsilon, min(1.0, grown)
