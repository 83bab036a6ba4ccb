"""The power of n with which a count grows, its interval, and whether that is the printed power."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

LEVEL = 0.15  # powers of n closer than this count as equal: constants and logarithms change a slope by that much
CONFIDENCE = 0.95


class PowerFit(NamedTuple):
    """count = a size^power, by least squares of logarithms; the ends are NaN if two sizes give no interval."""

    power: float
    low: float
    high: float
    sizes: int

    def __str__(self) -> str:
        ends = "" if math.isnan(self.low) else f" ({self.low:.2f} to {self.high:.2f})"
        return f"{self.power:.2f}{ends}"


def fit_power(sizes: Sequence[float], counts: Sequence[float | None]) -> PowerFit | None:
    """The power of size with which counts grow, and its interval by Student's t; None without two different sizes.

    >>> print(fit_power([4, 8, 16, 32], [3 * 4**2, 3 * 8**2, 3 * 16**2, None]))
    2.00 (2.00 to 2.00)
    """
    known = [(size, count) for size, count in zip(sizes, counts, strict=True) if count is not None]
    if len({size for size, _ in known}) < 2:
        return None
    x, y = np.log(np.array(known, dtype=float)).T
    wide = x - x.mean()
    power = float(wide @ y / (wide @ wide))
    left, freedom = y - y.mean() - power * wide, len(x) - 2
    if not freedom:
        return PowerFit(power, math.nan, math.nan, len(x))
    spread = math.sqrt(float(left @ left) / freedom / float(wide @ wide))
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * spread
    return PowerFit(power, power - reach, power + reach, len(x))


def form_value(form: str | int, agents: int, edges: int, chi: float) -> float:
    """A printed order at one graph: a power of n, or a formula of the general table."""
    if isinstance(form, int):
        return float(agents**form)
    return {
        "1": 1.0,
        "n": float(agents),
        "1/chi": 1.0 / chi,
        "m/chi": edges / chi,
        "m^2/(n^2 chi)": edges**2 / (agents**2 * chi),
        "m^2/(n chi)": edges**2 / (agents * chi),
    }[form]


SAME, FASTER, SLOWER = "as printed", "grows faster than printed", "grows more slowly than printed"


def verdict(fit: PowerFit | None, printed: float) -> str:
    """The comparison of a measured power with the printed one."""
    if fit is None:
        return "too few sizes reach the error"
    if abs(fit.power - printed) <= LEVEL:
        return SAME
    if math.isnan(fit.low) or fit.low <= printed <= fit.high:
        return "not decided by these sizes"
    return FASTER if fit.power > printed else SLOWER
