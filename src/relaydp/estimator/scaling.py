"""Bounds as an estimator takes them, and the targets' scale. Features are scaled by `relaydp.problem.bounds`.

Targets are scaled to [-1, 1]: with an intercept their centre is the middle of the bounds, so that what the intercept
can give is taken off beforehand; without one it is 0, so that a model through the origin stays one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relaydp.errors import InputError, short
from relaydp.problem.bounds import Scale


def ends_of(name: str, bounds: Any, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """The bounds (low, high) as two arrays with one number per column.

    >>> low, high = ends_of("bounds", (0, [10, 4]), columns=2)
    >>> low.tolist(), high.tolist()
    ([0.0, 0.0], [10.0, 4.0])
    """
    each = f"two numbers, or two lists with one number for each of the {columns} columns" if columns > 1 else "numbers"
    try:
        low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (columns,)).copy() for end in bounds)
    except (TypeError, ValueError):
        raise InputError(f"{name}={short(bounds)}; it must be (low, high): {each}.") from None
    wrong = ~(np.isfinite(low) & np.isfinite(high) & (low <= high))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(
            f"{name} give column {at} the interval [{low[at]:g}, {high[at]:g}]; needed finite numbers, low <= high."
        )
    return low, high


def target_scale(bounds: Any, intercept: bool) -> Scale | None:
    """The scale that the targets' bounds ask for; None leaves them as they are.

    >>> scale = target_scale((0, 10), intercept=True)
    >>> scale(np.array([0.0, 5.0, 99.0])).tolist()
    [-1.0, 0.0, 1.0]
    """
    if bounds is None:
        return None
    low, high = ends_of("target_bound", bounds, 1)
    centre = low / 2 + high / 2 if intercept else np.zeros(1)
    half = high / 2 - low / 2 if intercept else np.maximum(np.abs(low), np.abs(high))
    return Scale(low, high, centre, np.where(half > 0, half, 1.0))
