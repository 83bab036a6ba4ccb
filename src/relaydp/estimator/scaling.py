"""From public bounds to numbers in [-1, 1], one record at a time.

    scaled = (clip(value, low, high) - centre) / half

With an intercept the centre is the middle of the bounds. Features in [0, 1] have norms up to sqrt(q); centred and of
the same width, up to sqrt(q)/2: one record moves a gradient less, the constant's part aside, and the same promise takes
less noise. Their width is 2 here instead of 1, which changes units only. Without an intercept the centre is 0, so that
a model through the origin stays one. Nothing here looks at more than one record, and the bounds are public, so that it
costs no privacy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from relaydp.errors import InputError, short


@dataclass(frozen=True, eq=False)
class Scale:
    """Bounds of some columns and the line that carries each of them into [-1, 1]."""

    low: np.ndarray
    high: np.ndarray
    centre: np.ndarray
    half: np.ndarray

    @property
    def bounded(self) -> bool:
        """Whether there are bounds at all; without them values stay as they are."""
        return bool(np.isfinite(self.low).all())

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return (np.clip(values, self.low, self.high) - self.centre) / self.half


def scale_for(name: str, bounds: Any, columns: int, intercept: bool) -> Scale:
    """The scale that `bounds`, (low, high) as numbers or one a column, ask for; None leaves values as they are.

    >>> scale = scale_for("bounds", (0, [10, 4]), columns=2, intercept=True)
    >>> scale(np.array([[0.0, 4.0], [5.0, 99.0]])).tolist()
    [[-1.0, 1.0], [0.0, 1.0]]
    """
    if bounds is None:
        zero = np.zeros(columns)
        return Scale(zero - np.inf, zero + np.inf, zero, zero + 1.0)
    each = f"two numbers, or two lists with one number for each of the {columns} columns" if columns > 1 else "numbers"
    try:
        low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (columns,)).copy() for end in bounds)
    except (TypeError, ValueError):
        raise InputError(f"{name}={short(bounds)} arrived; needed (low, high): {each}.") from None
    wrong = ~(np.isfinite(low) & np.isfinite(high) & (low <= high))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(
            f"{name} give column {at} the interval [{low[at]:g}, {high[at]:g}]; needed finite numbers, low <= high."
        )
    centre = low / 2 + high / 2 if intercept else np.zeros(columns)
    half = high / 2 - low / 2 if intercept else np.maximum(np.abs(low), np.abs(high))
    return Scale(low, high, centre, np.where(half > 0, half, 1.0))  # a constant column tells nothing: it becomes 0
