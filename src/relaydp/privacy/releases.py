"""How callers of the accountants give releases and numbers, checked.

A release is given by its noise multiplier z = scale / sensitivity, where `sensitivity` is the most that REPLACING one
record changes, as everywhere in this package. One release of multiplier z costs rho = 1 / (2 z^2).
"""

import math
import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relaydp.errors import PrivacyError


def grouped(
    noise_multiplier: ArrayLike, sampling: ArrayLike, count: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """The different pairs (multiplier, sampling), and the number of each.

    Multipliers that agree to 1e-12 are merged into the smaller, as those of agents of different sizes may.
    """
    z, p = numbers("noise_multiplier", noise_multiplier), numbers("sampling", sampling)
    if (p > 1).any():
        raise PrivacyError(f"sampling={p.max()}; it must be a probability above 0, at most 1. 1 takes all records.")
    k = np.atleast_1d(np.asarray(count))
    if k.dtype.kind not in "iu" or (k < 1).any():
        raise PrivacyError(f"count={count!r}; it must be whole numbers, 1 or more: how many releases of each.")
    try:
        z, p, k = np.broadcast_arrays(z, p, k)
    except ValueError:
        raise PrivacyError(
            f"the arrays have lengths {z.size}, {p.size} and {k.size}; all must have the same length."
        ) from None
    rows = np.stack([np.floor(np.log(z) * 1e12), p], axis=1)
    kinds, place = np.unique(rows, axis=0, return_inverse=True)
    many = np.bincount(place.ravel(), k, len(kinds)).astype(np.int64)
    return np.exp(kinds[:, 0] / 1e12), kinds[:, 1], many


def total_rho(z: NDArray[np.float64], k: NDArray[np.int64], further: NDArray[np.float64], times: Any) -> float:
    """rho of all: sum k / (2 z^2) + sum epsilon_0^2 / 2."""
    with np.errstate(over="ignore"):
        return float(k @ z**-2.0 + times @ further**2) / 2


def numbers(name: str, value: ArrayLike, above: bool = True) -> NDArray[np.float64]:
    """`value` as finite float64 numbers above 0 (or from 0 on): an array of one axis, or the number itself."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise PrivacyError(f"{name}={value!r}; it must hold numbers. Pass {name} as floats.") from None
    bad = ~((array > 0 if above else array >= 0) & np.isfinite(array))
    if bad.any() or array.ndim > 1:
        shown = array[bad].flat[0] if bad.any() else f"an array of shape {array.shape}"
        needed = "a finite number above 0" if above else "a finite number, 0 or more"
        raise PrivacyError(f"{name}={shown}; it must be {needed}, or an array of such numbers along one axis.")
    return np.atleast_1d(array) if above else array


def at_least(name: str, value: float, least: float, above: bool = False) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (number > least if above else number >= least):
        raise PrivacyError(f"{name}={value!r}; it must be a number {'above' if above else 'of at least'} {least}.")
    return number


def whole_number(name: str, value: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise PrivacyError(f"{name}={value!r}; it must be a whole number, 1 or more.")
    return number
