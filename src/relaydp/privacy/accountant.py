"""The cost of a sequence of Gaussian releases, and the noise that a budget needs.

Adding N(0, scale^2 I) to a query whose answer moves by at most `sensitivity` when one record is replaced is

    (1)  rho = sensitivity^2 / (2 scale^2)          zCDP, and rho adds up over releases (Bun and Steinke 2016)

Gaussians compose into a Gaussian, so the total is equivalent to exactly one release with mean shift mu = sqrt(2 rho)
("mu-GDP": Dong, Roth and Su 2019, arXiv 1905.02383; Balle and Wang 2018, arXiv 1805.06530):

    (2)  delta(epsilon) = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2)            "exact"
    (3)  epsilon        = rho + 2 sqrt(rho ln(1/delta))                                          "paper"

(3) is an upper bound on (2). Calibrate with (2), print both. (2) is exact for Gaussian releases, also when
each query is chosen after seeing the answers before it; for other mechanisms only (3) follows from rho.

How (2) is computed. Put p = epsilon/mu - mu/2 and q = p + mu, so that (q^2 - p^2)/2 = epsilon and therefore
phi(p) = e^epsilon phi(q). With Mills' ratio M(s) = Phi(-s)/phi(s), equation (2) becomes

    (4)  delta = phi(p) (M(p) - M(q)) = Phi(-p) (1 - M(q)/M(p))

with no e^epsilon left to overflow. Both inverses below look for p, between two ends known in closed form.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import erfcx, erfinv, log_ndtr

from relaydp.errors import PrivacyError, choose

# Gauss-Legendre on [0, 1]. M is entire and the interval is at most 1 long: 20 nodes leave only rounding.
_GAUSS = np.polynomial.legendre.leggauss(20)
_NODES, _WEIGHTS = (_GAUSS[0] + 1) / 2, _GAUSS[1] / 2

# Phi(-40) is below the smallest float64: beyond it delta is zero in float64.
_UNDERFLOW = 40.0


def delta_exact(epsilon: float, rho: float) -> float:
    """The smallest delta at which Gaussian releases that cost `rho` in all are (epsilon, delta)-DP.

    Equation (2). At epsilon = 0 it is the total variation distance: the advantage of the best guess at a record.

    Args:
        epsilon: 0 or more; it may be infinite.
        rho: The cost of all releases together, 0 or more.

    Returns:
        delta, from 0 to 1.

    Raises:
        PrivacyError: epsilon or rho is not a number of 0 or more.

    Example:
        >>> import relaydp as rd
        >>> round(rd.privacy.delta_exact(1.0, 0.0359257), 8)
        1e-05
    """
    epsilon, rho = _number("epsilon", epsilon), _check_rho(rho)
    if not epsilon >= 0:
        raise PrivacyError(f"epsilon={epsilon}; it must be 0 or more. Pass the one whose delta you want.")
    if rho == math.inf:
        return 1.0
    if rho == 0 or epsilon == math.inf:
        return 0.0
    mu = math.sqrt(2 * rho)
    p = epsilon / mu - mu / 2
    return math.exp(_log_delta(p, mu)) if p < _UNDERFLOW else 0.0


def epsilon_exact(rho: float, delta: float) -> float:
    """The smallest epsilon at which Gaussian releases that cost `rho` in all are (epsilon, delta)-DP.

    It is correct to about 1e-14 of epsilon + rho.

    Args:
        rho: The cost of all releases together, 0 or more.
        delta: Between 0 and 1.

    Returns:
        epsilon; 0 where delta alone covers the cost.

    Raises:
        PrivacyError: rho is not a number of 0 or more, or delta is not between 0 and 1.

    Example:
        >>> import relaydp as rd
        >>> round(rd.privacy.epsilon_exact(2.9586, 1e-3), 3)
        9.835
    """
    rho, delta = _check_rho(rho), check_delta(delta)
    if rho in (0.0, math.inf):
        return rho
    mu = math.sqrt(2 * rho)
    if -mu / 2 >= _lowest_p(delta):
        return 0.0
    p = _find_p(lambda p: _log_delta(p, mu), delta)
    return max(0.0, mu * (p + mu / 2))


def epsilon_paper(rho: float, delta: float) -> float:
    """The paper's epsilon, equation (3): an upper bound that holds for any rho-zCDP mechanism.

    Args:
        rho: The cost of all releases together, 0 or more.
        delta: Between 0 and 1.

    Returns:
        epsilon, larger than that of `epsilon_exact`.

    Raises:
        PrivacyError: rho is not a number of 0 or more, or delta is not between 0 and 1.

    Example:
        >>> import relaydp as rd
        >>> round(rd.privacy.epsilon_paper(2.9586, 1e-3), 3)
        12.0
    """
    rho, delta = _check_rho(rho), check_delta(delta)
    return rho + 2 * math.sqrt(rho * -math.log(delta))


def rho_for(epsilon: float, delta: float, conversion: str = "exact") -> float:
    """The rho that a budget of (epsilon, delta) allows in all: the inverse of `epsilon_exact` or `epsilon_paper`.

    Args:
        epsilon: A finite number above 0.
        delta: Between 0 and 1.
        conversion: "exact" (the default), or "paper". "exact" allows more, hence less noise for the same promise.

    Returns:
        rho.

    Raises:
        PrivacyError: epsilon or delta is out of range.
        InputError: The conversion is neither "exact" nor "paper".

    Example:
        >>> import relaydp as rd
        >>> round(rd.privacy.rho_for(12, 1e-3, "paper"), 4), round(rd.privacy.rho_for(12, 1e-3), 4)
        (2.9586, 3.9663)
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    if choose("conversion", conversion, ("exact", "paper")) == "paper":
        # (sqrt(L + epsilon) - sqrt(L))^2 with L = ln(1/delta), written so that nothing cancels.
        log = -math.log(delta)
        return (epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))) ** 2

    def shift(p: float) -> float:
        """mu from p at this epsilon: q = sqrt(p^2 + 2 epsilon), and mu = q - p = 2 epsilon / (q + p)."""
        q = math.hypot(p, math.sqrt(2 * epsilon))
        return q - p if p < 0 else 2 * epsilon / (q + p)

    mu = shift(_find_p(lambda p: _log_delta(p, shift(p)), delta))
    return mu * (mu / 2)


def gaussian_rho(sensitivity: ArrayLike, scale: ArrayLike) -> NDArray[np.float64]:
    """rho of one release with Gaussian noise, equation (1), for numbers or arrays.

    Args:
        sensitivity: The most that the answer moves when one record is replaced.
        scale: The standard deviation of the noise on each coordinate.

    Returns:
        rho; infinite where there is no noise to hide a change.

    Raises:
        PrivacyError: A number is negative or not a number, or the sensitivity is infinite.

    Example:
        >>> import relaydp as rd
        >>> float(rd.privacy.gaussian_rho(2.0, 4.0))
        0.125
    """
    moved, noise = _array("sensitivity", sensitivity), _array("scale", scale, finite=False)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        rho = (moved / noise) ** 2 / 2
    return np.where(moved == 0, 0.0, rho)[()]


def gaussian_scale(sensitivity: ArrayLike, rho: ArrayLike) -> NDArray[np.float64]:
    """The standard deviation at which one release costs `rho`: sensitivity / sqrt(2 rho), for numbers or arrays.

    Args:
        sensitivity: The most that the answer moves when one record is replaced.
        rho: What the release may cost.

    Returns:
        The standard deviation of the noise on each coordinate.

    Raises:
        PrivacyError: A number is negative or not a number, or the sensitivity is infinite.

    Example:
        >>> import relaydp as rd
        >>> float(rd.privacy.gaussian_scale(2.0, 0.125))
        4.0
    """
    moved, cost = _array("sensitivity", sensitivity), _array("rho", rho, finite=False)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        scale = moved / np.sqrt(2 * cost)
    return np.where(moved == 0, 0.0, scale)[()]


def _log_delta(p: float, mu: float) -> float:
    """ln of equation (4), for p below about 40."""
    return float(log_ndtr(-p)) + math.log(_gap(p, mu))


def _gap(p: float, mu: float) -> float:
    """1 - M(q)/M(p). A small mu makes them nearly agree: integrate -M'(s) = 1 - s M(s) > 0 from p to q."""
    if mu > 1:
        return 1 - _mills(p + mu) / _mills(p)  # for p < -37, M(p) = inf and the quotient is 0, as it should be
    s = p + mu * _NODES
    return mu * float(_WEIGHTS @ (1 - s * _mills(s))) / _mills(p)


def _mills(s):
    """M(s) = Phi(-s)/phi(s), for a number or an array."""
    return math.sqrt(math.pi / 2) * erfcx(s / math.sqrt(2))


def _lowest_p(delta: float) -> float:
    """The p at which epsilon = 0: there q = -p, so (4) reads delta = 1 - 2 Phi(p)."""
    return -math.sqrt(2) * float(erfinv(delta))


def _find_p(log_delta: Callable[[float], float], delta: float) -> float:
    """Solve log_delta(p) = ln(delta), log_delta falling in p.

    The ends: epsilon >= 0 means p >= `_lowest_p`; and (3), being an upper bound, means
    p <= sqrt(2 ln(1/delta)).
    """
    target = math.log(delta)
    low, high = _lowest_p(delta), math.sqrt(-2 * target)
    if log_delta(low) <= target:  # epsilon is zero to rounding: the root is the end itself
        return low
    # Stop at neighbouring floats (4 eps is the least brentq takes), not at a fixed distance: p can be tiny.
    tight, tiny = 4 * np.finfo(np.float64).eps, np.finfo(np.float64).tiny
    root = brentq(lambda p: log_delta(p) - target, low, high, xtol=float(tiny), rtol=np.float64(tight), maxiter=500)
    return float(root)  # pyright: ignore[reportArgumentType]


def check_epsilon(epsilon: float) -> float:
    """epsilon as a float, after checking that it can be a budget."""
    number = _number("epsilon", epsilon)
    if not 0 < number < math.inf:
        raise PrivacyError(
            f"epsilon={epsilon!r}; it must be a finite number above 0. Usual values run from 0.1 (strong) to 10 "
            "(weak); for a run without privacy pass no budget."
        )
    return number


def check_delta(delta: float) -> float:
    """delta as a float, after checking it."""
    number = _number("delta", delta)
    if not 0 < number < 1:
        raise PrivacyError(
            f"delta={delta!r}; it must be strictly between 0 and 1. Choose it well below 1/(number of records): 1e-5 "
            "is usual up to some ten thousand."
        )
    return number


def _check_rho(rho: float) -> float:
    number = _number("rho", rho)
    if not number >= 0:
        raise PrivacyError(f"rho={rho!r}; it must be 0 or more. Add up gaussian_rho(sensitivity, scale) over releases.")
    return number


def _number(name: str, value: object) -> float:
    try:
        return float(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        raise PrivacyError(f"{name}={value!r}; it must be one number. Pass {name} as a float.") from None


def _array(name: str, value: ArrayLike, finite: bool = True) -> NDArray[np.float64]:
    """`value` as float64, after checking that it is not negative, NaN or, if `finite`, infinite."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise PrivacyError(f"{name}={value!r}; it must hold numbers. Pass {name} as floats.") from None
    bad = ~(array >= 0) | (finite & np.isinf(array))
    if bad.any():
        needed = "a finite number, 0 or more" if finite else "0 or more"
        raise PrivacyError(
            f"{name}={array[bad].flat[0]}; it must be {needed}. Without a known sensitivity and noise nothing can be "
            "promised: derive them from public bounds."
        )
    return array
