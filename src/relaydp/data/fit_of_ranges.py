"""Whether public ranges fit the records: a check for their owner, on the owner's machine.

It looks at the records without noise. What it finds is printed and goes nowhere else: not into a plan, not into a
result folder, not to other agents (docs/privacy.md, "What is not covered").
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

OUTSIDE = 0.5  # a column with more of its values than this outside its range is mostly clipped
USED = 0.02  # a column whose values span less than this share of its range says little after scaling
BLOCK = 2**20  # numbers looked at together


class Fit(NamedTuple):
    """One column beside its range."""

    column: int
    low: float  # of the range
    high: float
    outside: float  # share of the values beyond the range
    used: float  # share of the range that the values within it span

    @property
    def verdict(self) -> str:
        """What is wrong with the range: "mostly clipped", "hardly used", or "" for nothing."""
        return "mostly clipped" if self.outside > OUTSIDE else "hardly used" if 0.0 < self.used < USED else ""


def check_ranges(X: np.ndarray, low: np.ndarray, high: np.ndarray) -> list[Fit]:
    """Every column beside its range. A constant column, or one whose range is a point, uses none of it.

    >>> fits = check_ranges(np.array([[30.0, 0.1], [80.0, 0.9]]), np.zeros(2), np.ones(2))
    >>> [(fit.verdict, fit.outside) for fit in fits]
    [('mostly clipped', 1.0), ('', 0.0)]
    """
    beyond = np.zeros(X.shape[1], np.int64)
    least, most = np.full(X.shape[1], np.inf), np.full(X.shape[1], -np.inf)
    rows = max(1, BLOCK // X.shape[1])
    for at in range(0, len(X), rows):
        part = X[at : at + rows].astype(np.float64)
        beyond += ((part < low) | (part > high)).sum(axis=0)
        kept = np.clip(part, low, high)
        least, most = np.minimum(least, kept.min(axis=0)), np.maximum(most, kept.max(axis=0))
    used = (most - least) / np.where(high > low, high - low, 1.0)
    return [Fit(k, float(low[k]), float(high[k]), float(beyond[k] / len(X)), float(used[k])) for k in range(X.shape[1])]
