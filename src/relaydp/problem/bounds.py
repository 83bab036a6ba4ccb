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

from relaydp.data.records import LARGEST
from relaydp.errors import InputError

FITTED = ("fit", "fit-public")


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


@dataclass(frozen=True)
class Scaling:
    """How stored values become features: (X - offset) * scale, then * shrink_j."""

    X: np.ndarray
    offset: np.ndarray
    scale: np.ndarray
    shrink: np.ndarray
    norm: np.ndarray  # of each feature vector after scaling, without an intercept


def as_ranges(ranges: Any, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Check (low, high), scalars or one a feature, and spread them over the features."""
    try:
        low, high = (np.broadcast_to(np.asarray(bound, dtype=np.float64), (features,)) for bound in ranges)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"ranges={ranges!r}; needed (low, high), two numbers or two lists of {features}, or 'fit' / 'fit-public'."
        ) from error
    wrong = ~((low >= -LARGEST) & (low < high) & (high <= LARGEST))
    if wrong.any():
        worst = int(np.argmax(wrong))
        raise InputError(
            f"ranges give feature {worst} the interval [{low[worst]}, {high[worst]}]; needed low < high, both finite "
            f"and {LARGEST:g} at most. Pass ranges=(low, high), the smaller first."
        )
    return low, high


def fit_ranges(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each feature's own minimum and maximum (a constant feature becomes 0). Looks at the records."""
    low = X.min(axis=0).astype(np.float64)
    high = X.max(axis=0).astype(np.float64)
    return low, np.where(high > low, high, low + 1.0)


def _clips_to_integers(low: np.ndarray, high: np.ndarray, info: np.iinfo) -> bool:
    """Whether clipping integers to [low, high] gives integers of their own type, so that they may stay as they are."""
    exact_low = (low <= info.min) | ((low == np.round(low)) & (low <= info.max))
    exact_high = (high >= info.max) | ((high == np.round(high)) & (high >= info.min))
    return bool((exact_low & exact_high).all())


def scale_records(X: np.ndarray, ranges: tuple[np.ndarray, np.ndarray] | None, record_norm: float | None) -> Scaling:
    """Clip to the ranges, scale to [0, 1], shrink to the record norm. Integers stay integers, scaled on use."""
    features = X.shape[1]
    offset, scale = np.zeros(features), np.ones(features)
    if ranges is not None:
        low, high = ranges
        if X.dtype.kind == "b":
            X = X.astype(np.uint8)
        if X.dtype.kind in "ui" and X.dtype.itemsize < 8 and _clips_to_integers(low, high, np.iinfo(X.dtype)):
            # np.clip in the integer type would wrap; bounds outside the type change nothing
            info = np.iinfo(X.dtype)
            X = np.clip(X, *(np.clip(bound, info.min, info.max).astype(info.dtype) for bound in (low, high)))
            offset, scale = low, 1.0 / (high - low)
        else:
            X = (np.clip(X.astype(np.float64), low, high) - low) / (high - low)
    elif X.dtype.kind == "b":
        X = X.astype(np.uint8)
    norm = np.empty(X.shape[0])
    block = max(1, 2**24 // max(1, features))  # 128 MiB of float64 at a time
    for at in range(0, X.shape[0], block):
        part = (X[at : at + block].astype(np.float64) - offset) * scale
        norm[at : at + block] = np.sqrt(np.einsum("ij,ij->i", part, part))
    shrink = np.ones(X.shape[0])
    if record_norm is not None:
        shrink = np.minimum(1.0, record_norm / np.maximum(norm, np.finfo(float).tiny))
    return Scaling(X, offset, scale, shrink, norm * shrink)


def check_bound(name: str, value: float | None) -> float | None:
    if value is None:
        return None
    if not (isinstance(value, Real) and 1 / LARGEST <= value <= LARGEST):
        raise InputError(
            f"{name}={value!r}; needed a number from {1 / LARGEST:g} to {LARGEST:g}, known without the records."
        )
    return float(value)
