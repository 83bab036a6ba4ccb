"""How an agent spreads its rho over its activations t = 1, ..., T.

`geometric` and `optimal` divide a total that is sound for the Gaussian releases of
`relaydp.privacy.mechanism`. The `published_*` functions compute theorem 4 of the paper, to reproduce its numbers: a
claim about noise on u, which does not protect x, and so not a guarantee.
"""

import math
import operator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relaydp.errors import InputError, PrivacyError

# The least share a release gets. With a ratio so large that early shares underflow, the noise would otherwise be
# infinite.
_LEAST = float(np.finfo(np.float64).tiny)


def geometric(rho: float, activations: int, ratio: float = 1.0) -> NDArray[np.float64]:
    """Divide `rho` so that rho_t is proportional to ratio^t.

    A method that contracts by theta per activation forgets early noise; `optimal` then gives ratio = theta^(-1/2).

    Args:
        rho: What all activations together may cost, 0 or more.
        activations: Their number, 1 or more.
        ratio: rho_(t+1) / rho_t, above 0. The default, 1, spends evenly; a larger one saves for the end.

    Returns:
        rho_t of every activation. They add up to `rho`.

    Raises:
        PrivacyError: rho or ratio is out of range.
        InputError: `activations` is not a whole number of 1 or more.

    Example:
        >>> import relaydp as rd
        >>> rd.privacy.geometric(7.0, 3, ratio=2.0)
        array([1., 2., 4.])
    """
    rho, rounds = _check_rho(rho), _check_activations(activations)
    ratio = _positive("ratio", ratio, "1 spends evenly, 1.05 saves for later activations")
    # Every weight relative to the largest, so that a large ratio^T underflows early and never
    # overflows late.
    past_best = np.arange(rounds) - (rounds - 1 if ratio > 1 else 0)
    with np.errstate(under="ignore"):
        return _share(rho, np.power(ratio, past_best.astype(np.float64)))


def optimal(rho: float, response: ArrayLike) -> NDArray[np.float64]:
    """Divide `rho` so that the final error is least, given what the noise of each activation does to it.

    Noise variance is proportional to 1/rho_t. With w_t the effect of activation t:

        minimise  sum w_t / rho_t   subject to  sum rho_t = rho.
        Lagrange: -w_t / rho_t^2 + l = 0 for every t, hence rho_t = sqrt(w_t / l), proportional to sqrt(w_t).

    Args:
        rho: What all activations together may cost, 0 or more.
        response: w_t, one number above 0 per activation: the expected squared final error per unit of noise variance.
            It must not depend on the records; it can be simulated from public constants.

    Returns:
        rho_t of every activation. They add up to `rho`.

    Raises:
        PrivacyError: rho is out of range.
        InputError: `response` is not a list of finite numbers above 0.

    Example:
        >>> import relaydp as rd
        >>> rd.privacy.optimal(6.0, [1.0, 4.0, 9.0])
        array([1., 2., 3.])
    """
    rho, weights = _check_rho(rho), np.asarray(response, dtype=np.float64)
    if weights.ndim != 1 or weights.size == 0:
        raise InputError(f"response has shape {weights.shape}; it must have one axis, one number per activation.")
    bad = np.flatnonzero(~((weights > 0) & np.isfinite(weights)))
    if bad.size:
        raise InputError(
            f"response[{bad[0]}]={weights[bad[0]]}; it must be a finite number above 0. An activation whose noise does "
            "not matter needs no release: leave it out of the plan."
        )
    return _share(rho, np.sqrt(weights / weights.max()))


def _share(rho: float, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """`rho` in proportion to `weights`; math.fsum of the parts is `rho` to the last bit."""
    if rho == 0:
        return np.zeros_like(weights)
    with np.errstate(under="ignore"):
        parts = np.maximum(rho * (weights / math.fsum(weights)), _LEAST)
    # Rounding leaves a difference in the last digits; the largest part (the latest of equals) absorbs it.
    largest = parts.size - 1 - int(np.argmax(parts[::-1]))
    parts[largest] += math.fsum([rho, *(-parts)])
    if math.fsum(parts) != rho:  # half of its last digit is left: a smaller part can absorb it
        left = math.fsum([rho, *(-parts)])
        finer = np.flatnonzero((np.spacing(parts) <= abs(left)) & (parts > 2 * abs(left)))
        if finer.size:
            parts[finer[np.argmax(parts[finer])]] += left
    return parts


def published_scales(first_scale: float, activations: int, ratio: float) -> NDArray[np.float64]:
    """The paper's noise: s_t^2 = s_1^2 / R^(t-1), t = 1, ..., T.

    Args:
        first_scale: s_1, the standard deviation at the first activation.
        activations: T, 1 or more.
        ratio: R, above 0.

    Returns:
        s_t of every activation.

    Raises:
        PrivacyError: `first_scale` or `ratio` is out of range, or a scale would be 0 or infinite.
        InputError: `activations` is not a whole number of 1 or more.

    Example:
        >>> import relaydp as rd
        >>> rd.privacy.published_scales(8.0, 3, 4.0)
        array([8., 4., 2.])
    """
    first = _positive("first_scale", first_scale, "s_1 is the noise of the first activation")
    rounds, ratio = _check_activations(activations), _check_ratio(ratio)
    with np.errstate(under="ignore", over="ignore"):
        scales = first * np.power(ratio, -np.arange(rounds) / 2)
    if not (np.isfinite(scales) & (scales > 0)).all():
        raise PrivacyError(
            f"ratio={ratio} over {rounds} activations takes the noise from {first} to {scales[-1]}; every scale must "
            "be finite and above 0. Lower the ratio or the number of activations."
        )
    return scales


def published_rho(first_scale: float, activations: int, ratio: float, *, alpha: float, beta: float, c: float) -> float:
    """What the paper's theorem 4 claims that all activations cost: rho_1 (R^T - 1)/(R - 1).

    Here rho_1 = 8 alpha^2 beta^2 c^2 / s_1^2. At R = 1 it is the limit, T rho_1. It is a claim about noise on u, which
    does not protect x: no promise follows from it.

    Args:
        first_scale: s_1, the standard deviation at the first activation.
        activations: T, the PLF.
        ratio: R, above 0.
        alpha: The largest primal step.
        beta: The dual step.
        c: The bound on the norm of a gradient.

    Returns:
        rho; infinite where it exceeds a float.

    Raises:
        PrivacyError: A number is out of range.
        InputError: `activations` is not a whole number of 1 or more.

    Example:
        >>> import relaydp as rd
        >>> round(rd.privacy.published_rho(4.0, 3, 2.0, alpha=1.0, beta=1.0, c=1.0), 12)
        3.5
    """
    first = _positive("first_scale", first_scale, "s_1 is the noise of the first activation")
    shift = _claimed_reach(alpha, beta, c) / first
    return 8 * shift * shift * _growth(_check_activations(activations), _check_ratio(ratio))


def published_first_scale(rho: float, activations: int, ratio: float, *, alpha: float, beta: float, c: float) -> float:
    """The first standard deviation with which theorem 4 claims a cost of `rho`: the inverse of `published_rho`.

    Args:
        rho: What all activations together are claimed to cost, above 0.
        activations: T, the PLF.
        ratio: R, above 0.
        alpha: The largest primal step.
        beta: The dual step.
        c: The bound on the norm of a gradient.

    Returns:
        s_1.

    Raises:
        PrivacyError: A number is out of range.
        InputError: `activations` is not a whole number of 1 or more, or s_1 would be 0 or infinite.

    Example:
        >>> import relaydp as rd
        >>> round(rd.privacy.published_first_scale(3.5, 3, 2.0, alpha=1.0, beta=1.0, c=1.0), 12)
        4.0
    """
    rho = _positive("rho", rho, "rho_for(epsilon, delta, 'paper') gives the paper's")
    growth = _growth(_check_activations(activations), _check_ratio(ratio))
    first = _claimed_reach(alpha, beta, c) * math.sqrt(8 / rho) * math.sqrt(growth)
    if not 0 < first < math.inf:
        raise InputError(
            f"rho={rho}, ratio={ratio} and {activations} activations give first_scale={first}; it must be a finite "
            "number above 0. Lower the ratio or the number of activations."
        )
    return first


def _growth(rounds: int, ratio: float) -> float:
    """(R^T - 1)/(R - 1), its limit T at R = 1, without cancellation near it."""
    if ratio == 1:
        return float(rounds)
    try:
        return math.expm1(rounds * math.log1p(ratio - 1)) / (ratio - 1)
    except OverflowError:
        return math.inf


def _claimed_reach(alpha: float, beta: float, c: float) -> float:
    """alpha beta c: the paper claims a sensitivity of four times this, although one step gives only twice."""
    given = {"alpha": alpha, "beta": beta, "c": c}
    return math.prod(_positive(name, value, "theorem 4 needs all three") for name, value in given.items())


def _positive(name: str, value: float, hint: str) -> float:
    if not 0 < value < math.inf:
        raise PrivacyError(f"{name}={value!r}; it must be a finite number above 0 ({hint}).")
    return float(value)


def _check_ratio(ratio: float) -> float:
    return _positive("ratio", ratio, "the paper takes R slightly above 1, such as 1.05")


def _check_rho(rho: float) -> float:
    if not 0 <= rho < math.inf:
        raise PrivacyError(f"rho={rho!r}; it must be a finite number, 0 or more. Use Budget(epsilon, delta).rho.")
    return float(rho)


def _check_activations(activations: int) -> int:
    try:
        rounds = operator.index(activations)
    except TypeError:
        rounds = 0
    if rounds < 1:
        raise InputError(f"activations={activations!r}; it must be a whole number, 1 or more.")
    return rounds
