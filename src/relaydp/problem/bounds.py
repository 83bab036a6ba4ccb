"""Public bounds: what is known of the records without looking at them, and what follows from it.

A private run may use nothing else to decide steps, clipping or noise. Two kinds:

    ranges        (low, high) of each feature; features are clipped to it and scaled to [0, 1]
    record_norm   the largest norm of a feature vector; longer ones are shrunk to it, record by record

Both change one record at a time and by public numbers alone, so they cost no privacy. Ranges fitted to the records
would: "fit" does that for runs without privacy, and "fit-public" where the records themselves are public.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from relaydp.data.records import LARGEST, frozen
from relaydp.errors import InputError

FITTED = ("fit", "fit-public")
SMALLEST = 1e-100  # of a feature that is not 0: its square is a number, so that a norm of 0 means a record of zeros


@dataclass(frozen=True)
class Facts:
    """All that steps, plans and noise may depend on. `public` says whether they were known without the records."""

    agents: int
    sizes: np.ndarray  # (agents,) m_i
    dim: int
    smoothness: np.ndarray  # (agents,) L_i of f_i, ridge included
    modulus: float  # mu: strong convexity that the ridge guarantees
    clip: float  # c: bound on a record's gradient; inf where none is known
    public: bool
    bound: float | None = None  # the most that a record's gradient can be, where `clip` was not given by the user
    classifies: bool = False  # whether users look at accuracy


@dataclass(frozen=True)
class Scaling:
    """How stored values become features: X * scale, then * shrink_j. float64 ones are features already."""

    X: np.ndarray
    scale: np.ndarray
    shrink: np.ndarray
    norm: np.ndarray  # of each feature vector after scaling, without an intercept


def as_ranges(ranges: Any, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Check (low, high), scalars or one a feature, and spread them over the features."""
    try:
        low, high = (frozen(np.broadcast_to(np.asarray(bound, np.float64), (features,))) for bound in ranges)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"ranges={ranges!r}; it must be (low, high), two numbers or two lists of {features}, or 'fit' / "
            "'fit-public'."
        ) from error
    wrong = ~((low >= -LARGEST) & (low < high) & (high <= LARGEST))
    if wrong.any():
        worst = int(np.argmax(wrong))
        raise InputError(
            f"ranges give feature {worst} the interval [{low[worst]}, {high[worst]}]; low must be less than high, both "
            f"finite and {LARGEST:g} at most. Pass ranges=(low, high), the smaller first."
        )
    return low, high


def fit_ranges(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each feature's own minimum and maximum (a constant feature becomes 0). Looks at the records."""
    low = X.min(axis=0).astype(np.float64)
    high = X.max(axis=0).astype(np.float64)
    return frozen(low), frozen(np.where(high > low, high, low + 1.0))


def storage(dtype: np.dtype, ranges: tuple[np.ndarray, np.ndarray] | None) -> tuple[np.dtype, bool]:
    """What records of this type are stored as, and whether as whole numbers above `low`, to be scaled on use.

    Decided by declared facts, the type and the ranges, never by values: one record would else choose how long a
    gradient takes. Whole numbers of up to four bytes stay whole and exact: bytes where the ranges leave 256 of them,
    float32 up to 2^24. Those of eight bytes do not, since that is what reading a text guesses by looking at it.

    >>> pixels = np.zeros(1), np.full(1, 255.0)
    >>> storage(np.dtype("uint8"), pixels), storage(np.dtype("float64"), pixels)
    ((dtype('uint8'), True), (dtype('float64'), False))
    """
    declared = np.dtype(np.uint8) if dtype.kind == "b" else dtype
    whole = declared.kind in "ui" and declared.itemsize < 8
    if ranges is None:
        if declared == np.uint8:
            return declared, False
        exact = declared.kind == "f" or whole
        return np.dtype(np.float32 if exact and np.can_cast(declared, np.float32) else np.float64), False
    if whole:
        low, high = ranges
        least, most = (np.clip(float(end), low, high) for end in (np.iinfo(declared).min, np.iinfo(declared).max))
        if all((end == np.rint(end)).all() for end in (low, least, most)):
            span = float((most - low).max())
            if span < 2**24:
                return np.dtype(np.uint8 if span <= 255 else np.float32), True
    return np.dtype(np.float64), False


def scale_records(X: np.ndarray, ranges: tuple[np.ndarray, np.ndarray] | None, record_norm: float | None) -> Scaling:
    """Clip to the ranges, scale to [0, 1], shrink to the record norm; each record by itself and by public numbers."""
    dtype, whole = storage(X.dtype, ranges)
    low, high = ranges if ranges is not None else (np.zeros(X.shape[1]), np.ones(X.shape[1]))
    scale = 1.0 / (high - low) if whole else np.ones(X.shape[1])
    kept = X.dtype == dtype == np.uint8 and (ranges is None or bool((low == 0).all() and (high >= 255).all()))
    stored, norm, shrink = X if kept else np.empty(X.shape, dtype), np.empty(X.shape[0]), np.ones(X.shape[0])
    block = max(1, 2**18 // X.shape[1])  # 2 MiB of float64 at a time: in cache
    for at in range(0, X.shape[0], block):
        rows = slice(at, at + block)
        part = X[rows].astype(np.float64)
        if ranges is not None and not kept:
            part = np.clip(part, low, high) - low
            part = part if whole else part / (high - low)
        if dtype == np.float64:
            part[np.abs(part) < SMALLEST] = 0.0
        if not kept:
            stored[rows] = part
        part *= scale
        norm[rows] = np.sqrt(np.einsum("ij,ij->i", part, part))
        if record_norm is not None:
            shrink[rows] = np.minimum(1.0, record_norm / np.maximum(norm[rows], np.finfo(float).tiny))
        if dtype == np.float64 and record_norm is not None:
            stored[rows] *= shrink[rows, None]
    applied = np.ones_like(shrink) if dtype == np.float64 else shrink
    return Scaling(stored, scale, applied, norm * shrink)


def check_bound(name: str, value: float | None) -> float | None:
    if value is None:
        return None
    if not (isinstance(value, Real) and 1 / LARGEST <= value <= LARGEST):
        raise InputError(
            f"{name}={value!r}; it must be a number from {1 / LARGEST:g} to {LARGEST:g}, known without the records."
        )
    return float(value)
