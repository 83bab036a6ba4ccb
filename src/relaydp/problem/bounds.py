"""Public bounds: what is known of the records without looking at them, and what follows from it.

A private run may use nothing else to decide steps, clipping or noise. Two kinds:

    ranges        (low, high) of each feature; features are clipped to it and scaled into [-1, 1]
    record_norm   the largest norm of a feature vector; longer ones are shrunk to it, record by record

Both change one record at a time and by public numbers alone, so they cost no privacy. Ranges fitted to the records
would: "fit" does that for runs without privacy, and "fit-public" where the records themselves are public.

How a column is scaled follows from its bounds alone (`scale_between`), the same for every loss, command and estimator:

    low <= 0 <= high     value / max(|low|, |high|): 0 stays 0, so sparse and one-hot columns stay sparse and short
    0 outside            (value - middle) / half the width: no record is 0 there, so nothing sparse is lost

A record's norm is what noise pays for. A column that is 0 in most records should add nothing to it, and a column that
never is 0, such as a year of birth, adds most where its constant part is left in: that part belongs in the intercept.
With q columns a record's norm is at most sqrt(q). `one_hot` declares groups of columns of which a record has at most
one that is not 0: a columns outside groups and b groups make it sqrt(a + b). A record that breaks its declaration is
shrunk to that norm like any other that is too long, so the promise does not rest on the declaration. Without groups,
`typical_norm` is a public guess at what most records stay within, for which the same holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from relaydp.data.records import LARGEST, frozen
from relaydp.errors import InputError, choose, short

FITTED = ("fit", "fit-public")
TYPICAL = "typical"  # record_norm: `typical_norm`
UNSHRUNK = 4  # columns whose records `typical_norm` leaves alone: of few, a record's length says too much
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
    bound: float | None = None  # G: the most that a record's gradient can be, whatever `clip` is; None where unknown
    clip_given: bool = False  # whether the user gave `clip`, so that no plan chooses another
    classifies: bool = False  # whether users look at accuracy
    squares: tuple[float, float] | None = None  # (R, Y) of least squares: public bounds on a record's norm and a label


@dataclass(frozen=True, eq=False)
class Scale:
    """Public bounds of the columns, and the line that carries each of them into [-1, 1]."""

    low: np.ndarray
    high: np.ndarray
    centre: np.ndarray
    half: np.ndarray

    @property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """What the lowest and the highest value of each column become."""
        return (self.low - self.centre) / self.half, (self.high - self.centre) / self.half

    @property
    def longest(self) -> np.ndarray:
        """A record, as stored, in which every feature is as far from 0 as it can be."""
        least, most = self.ends
        return np.where(np.abs(least) > np.abs(most), self.low, self.high)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return (np.clip(values, self.low, self.high) - self.centre) / self.half

    def undo(self, features: np.ndarray) -> np.ndarray:
        """Features in the units that they were stored in."""
        return self.centre + np.asarray(features) * self.half


@dataclass(frozen=True)
class Scaling:
    """How stored values become features: X * scale, then * shrink_j. float64 ones are features already."""

    X: np.ndarray
    scale: np.ndarray
    shrink: np.ndarray
    norm: np.ndarray  # of each feature vector after scaling, without an intercept


def as_ranges(ranges: Any, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Check (low, high), scalars or one per feature, and spread them over the features."""
    try:
        low, high = (frozen(np.broadcast_to(np.asarray(bound, np.float64), (features,))) for bound in ranges)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"ranges={ranges!r}; it must be (low, high), two numbers or two lists of {features}, or 'fit' / "
            "'fit-public'."
        ) from error
    wrong = ~((low >= -LARGEST) & (low <= high) & (high <= LARGEST))
    if not (low < high).any():  # one constant column among others tells nothing, and harms nothing
        wrong |= low == high
    if wrong.any():
        worst = int(np.argmax(wrong))
        raise InputError(
            f"ranges give feature {worst} the interval [{low[worst]}, {high[worst]}]; low must be less than high, both "
            f"finite and {LARGEST:g} at most. Pass ranges=(low, high), the smaller first."
        )
    return low, high


def scale_between(low: np.ndarray, high: np.ndarray) -> Scale:
    """The scale that public bounds ask for: 0 stays 0 where it lies within them; other columns are centred.

    >>> scale = scale_between(np.array([0.0, -8.0, 20.0]), np.array([1.0, 2.0, 60.0]))
    >>> scale(np.array([[0.0, 0.0, 20.0], [1.0, -4.0, 99.0]])).tolist()
    [[0.0, 0.0, -1.0], [1.0, -0.5, 1.0]]
    """
    has_zero = (low <= 0) & (high >= 0)
    centre = np.where(has_zero, 0.0, low / 2 + high / 2)
    half = np.where(has_zero, np.maximum(-low, high), high / 2 - low / 2)
    return _scale(low, high, centre, half)


def unit_scale(low: np.ndarray, high: np.ndarray) -> Scale:
    """Of public bounds, too, but each column goes from 0 to 1, as the paper's experiments have it.

    >>> unit_scale(np.array([-1.0]), np.array([3.0]))(np.array([[-1.0], [0.0], [3.0]])).ravel().tolist()
    [0.0, 0.25, 1.0]
    """
    return _scale(low, high, low, high - low)


def fit_scale(X: np.ndarray) -> Scale:
    """From each feature's own minimum, which becomes 0, to its maximum, which becomes 1. Looks at the records."""
    low, high = X.min(axis=0).astype(np.float64), X.max(axis=0).astype(np.float64)
    high = np.where(high > low, high, low + 1.0)
    return _scale(low, high, low, high - low)


def _scale(low: np.ndarray, high: np.ndarray, centre: np.ndarray, half: np.ndarray) -> Scale:
    half = np.where(half > 0, half, 1.0)  # a constant column tells nothing: it becomes 0
    return Scale(frozen(low), frozen(high), frozen(centre), frozen(half))


def as_groups(one_hot: Any, features: int, columns: Sequence[str] | None) -> tuple[tuple[int, ...], ...]:
    """Groups of columns of which at most one is not 0, as positions.

    A group is a list of names or of positions, or a text: "job" stands for all columns called job_..., as
    pandas.get_dummies and scikit-learn's OneHotEncoder call them.

    >>> as_groups(["job", [0, 1]], 4, ["north", "south", "job_nurse", "job_baker"])
    ((2, 3), (0, 1))
    """
    if not isinstance(one_hot, list | tuple):
        raise InputError(f"one_hot={short(one_hot)}; it must be a list of groups, each a list of columns.")
    groups = tuple(_group(group, features, columns) for group in one_hot)
    seen: set[int] = set()
    for group in groups:
        for at in group:
            if at in seen:
                name = columns[at] if columns is not None else at
                raise InputError(f"column {name!r} is twice in one_hot; needed every column in one group at most.")
            seen.add(at)
    return groups


def _group(group: Any, features: int, columns: Sequence[str] | None) -> tuple[int, ...]:
    if isinstance(group, str):
        found = tuple(k for k, name in enumerate(columns or ()) if name.startswith(f"{group}_"))
        if not found:
            raise InputError(
                f"one_hot has {group!r}, and no column is called {group}_...; needed the first part of some columns' "
                "names, or a list of columns."
            )
        return found
    if not isinstance(group, list | tuple) or not group:
        raise InputError(f"one_hot has the group {short(group)}; needed a list of columns, by name or by position.")
    return tuple(_column(column, features, columns) for column in group)


def _column(column: Any, features: int, columns: Sequence[str] | None) -> int:
    if isinstance(column, str) and columns is not None:
        return list(columns).index(choose("column in one_hot", column, columns))
    if isinstance(column, int | np.integer) and not isinstance(column, bool) and 0 <= column < features:
        return int(column)
    named = "; the columns have no names here" if columns is None else ", or a name"
    raise InputError(f"one_hot has the column {column!r}; needed a position from 0 to {features - 1}{named}.")


def norm_bound(features: int, groups: Sequence[Sequence[int]], scale: Scale | None) -> float:
    """The largest norm of a record within public bounds, of whose declared groups at most one column is not 0.

    >>> round(norm_bound(5, [(0, 1), (2, 3)], scale_between(np.zeros(5), np.ones(5))) ** 2, 6)
    3.0
    """
    if scale is None:
        raise InputError(
            "one_hot was given without ranges, and needs them: groups bound a record's norm only where each column has "
            "public bounds. Pass ranges=(low, high), or record_norm= instead of one_hot."
        )
    least, most = scale.ends
    for at in (column for group in groups for column in group):
        if not least[at] <= 0 <= most[at] or scale.centre[at] != 0:
            raise InputError(
                f"one_hot has column {at} with the bounds [{scale.low[at]:g}, {scale.high[at]:g}], which leave out 0; "
                "needed columns that are 0 in most records, with bounds such as (0, 1)."
            )
    return math.sqrt(features - sum(map(len, groups)) + len(groups))


def typical_norm(scale: Scale | None) -> float:
    """A norm that most records stay near, guessed from public bounds alone: a third for the square of an ordinary
    column, an eighth for one with 0 at an end, which is 0 for most.

    A third is the mean square of values spread evenly over [-1, 1]; an eighth, that of an indicator which holds for one
    record in eight. A wrong guess costs no privacy, since longer records are shrunk to it. It costs their lengths, one
    number of a record's many: hence no less than UNSHRUNK columns allow.

    >>> round(typical_norm(scale_between(np.zeros(80), np.ones(80))) ** 2, 6)  # 80 times an eighth
    10.0
    """
    if scale is None:
        raise InputError(
            "record_norm='typical' was given without ranges, and needs them: it is guessed from the bounds. Pass "
            "ranges=(low, high), or a number as record_norm."
        )
    least, most = scale.ends
    guess = float(np.where((least == 0) | (most == 0), 1 / 8, 1 / 3).sum())
    return math.sqrt(max(guess, min(len(least), UNSHRUNK)))


def storage(dtype: np.dtype, scale: Scale | None) -> tuple[np.dtype, bool]:
    """What records of this type are stored as, and whether as whole numbers, to be scaled on use.

    Decided by declared facts, the type and the ranges, never by values: one record would else choose how long a
    gradient takes. Whole numbers of up to four bytes stay whole and exact, counted from the column's centre (in halves
    where that is not a whole number): bytes where the ranges leave 0 to 255, float32 up to 2^24. Those of eight bytes
    do not, since that is what reading a text guesses by looking at it.

    >>> pixels = scale_between(np.zeros(1), np.full(1, 255.0))
    >>> storage(np.dtype("uint8"), pixels), storage(np.dtype("float64"), pixels)
    ((dtype('uint8'), True), (dtype('float64'), False))
    """
    declared = np.dtype(np.uint8) if dtype.kind == "b" else dtype
    whole = declared.kind in "ui" and declared.itemsize < 8
    if scale is None:
        if declared == np.uint8:
            return declared, False
        exact = declared.kind == "f" or whole
        return np.dtype(np.float32 if exact and np.can_cast(declared, np.float32) else np.float64), False
    if whole:
        ends = (np.clip(float(end), scale.low, scale.high) for end in (np.iinfo(declared).min, np.iinfo(declared).max))
        least, most = ((end - scale.centre) * _parts(scale) for end in ends)
        if all((end == np.rint(end)).all() for end in (least, most, scale.centre * _parts(scale))):
            if max(float(np.abs(least).max()), float(np.abs(most).max())) < 2**24:
                return np.dtype(np.uint8 if least.min() >= 0 and most.max() <= 255 else np.float32), True
    return np.dtype(np.float64), False


def _parts(scale: Scale) -> np.ndarray:
    """In which parts of 1 a column of whole numbers is counted from its centre: halves where that is k + 1/2."""
    return np.where(scale.centre == np.rint(scale.centre), 1.0, 2.0)


def scale_records(X: np.ndarray, scale: Scale | None, record_norm: float | None) -> Scaling:
    """Clip to the ranges, scale, shrink to the record norm; each record by itself and by public numbers."""
    dtype, whole = storage(X.dtype, scale)
    parts = _parts(scale) if scale is not None else np.ones(X.shape[1])
    on_use = 1.0 / (scale.half * parts) if whole and scale is not None else np.ones(X.shape[1])
    kept = X.dtype == dtype == np.uint8 and (
        scale is None or bool((scale.centre == 0).all() and (scale.low <= 0).all() and (scale.high >= 255).all())
    )
    stored, norm, shrink = X if kept else np.empty(X.shape, dtype), np.empty(X.shape[0]), np.ones(X.shape[0])
    block = max(1, 2**18 // X.shape[1])  # 2 MiB of float64 at a time: in cache
    for at in range(0, X.shape[0], block):
        rows = slice(at, at + block)
        part = X[rows].astype(np.float64)
        if scale is not None and not kept:
            part = (np.clip(part, scale.low, scale.high) - scale.centre) * parts if whole else scale(part)
        if dtype == np.float64:
            part[np.abs(part) < SMALLEST] = 0.0
        if not kept:
            stored[rows] = part
        part *= on_use
        norm[rows] = np.sqrt(np.einsum("ij,ij->i", part, part))
        if record_norm is not None:
            shrink[rows] = np.minimum(1.0, record_norm / np.maximum(norm[rows], record_norm))
        if dtype == np.float64 and record_norm is not None:
            stored[rows] *= shrink[rows, None]
    applied = np.ones_like(shrink) if dtype == np.float64 else shrink
    return Scaling(stored, on_use, applied, norm * shrink)


def check_weight(name: str, value: float) -> float:
    if not (isinstance(value, Real) and 0 <= value <= LARGEST):
        raise InputError(f"{name}={value!r}; it must be a number from 0 to {LARGEST:g}. Pass 0 to leave the term out.")
    return float(value)


def check_bound(name: str, value: float | None) -> float | None:
    if value is None:
        return None
    if not (isinstance(value, Real) and 1 / LARGEST <= value <= LARGEST):
        raise InputError(
            f"{name}={value!r}; it must be a number from {1 / LARGEST:g} to {LARGEST:g}, known without the records."
        )
    return float(value)
