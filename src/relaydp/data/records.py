"""Records: features and labels, checked once when they are made, and immutable afterwards."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from relaydp.errors import InputError, check_kind, short

LARGEST = 1e60  # of a feature or a label: its square, and products of squares, do not overflow
EXACT = 2.0**53  # below it a float64 has every digit of a whole number; above it, neighbouring whole numbers coincide


def frozen(array: np.ndarray) -> np.ndarray:
    """A read-only copy, so that the records cannot change during a private run."""
    copy = np.array(array, order="C")
    copy.flags.writeable = False
    return copy


def whole_labels(y: np.ndarray) -> np.ndarray:
    """Labels such as 1.0 and -1.0 as integers; anything else as it is."""
    if y.dtype.kind == "f" and np.all(np.abs(y) < EXACT) and np.all(y == np.rint(y)):
        return y.astype(np.int64)
    return y


def check_exact(what: str, values: np.ndarray) -> None:
    """Refuse floats so large that neighbouring whole numbers coincide: one value with a point turns a whole column into
    floats."""
    large = values[np.abs(values) >= EXACT] if values.dtype.kind == "f" else values[:0]
    if large.size:
        raise InputError(
            f"{what} {large.tolist()[0]!r} is a float of 2^53 or more, which has too few digits to differ from its "
            "neighbours; it must be a whole number without a point, or a text. Write all of them as texts, such as "
            "id-1."
        )


def _as_features(X: Any) -> np.ndarray:
    """The features as an array. Undeclared types become float64: by NumPy's own rules one record's type would decide
    how all are stored."""
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise InputError(f"X cannot be made an array ({error}); all rows must have the same length.") from None
    declared = hasattr(X, "dtype") or array.dtype.kind not in "buif"  # anything but numbers is refused later, unchanged
    return array if declared else array.astype(np.float64)


def _check_features(X: np.ndarray) -> None:
    if X.ndim != 2:
        raise InputError(f"X has shape {X.shape}; it must have two axes, (records, features). Reshape it.")
    if X.shape[0] == 0 or X.shape[1] == 0:
        raise InputError(f"X has shape {X.shape}: no records or no features. Pass at least one of each.")
    if X.dtype.kind not in "buif":
        raise InputError(
            f"X has type {X.dtype}; it must hold numbers. Encode text as numbers, or drop those columns, before making "
            "Records."
        )
    if X.dtype.kind == "f" and not _holds_numbers(X):
        row, column = np.argwhere(~(np.abs(X.astype(np.float64)) <= LARGEST))[0]
        raise InputError(
            f"X[{row}, {column}] is {X[row, column]}; all numbers must be finite, {LARGEST:g} at most. Remove or fill "
            "that record first."
        )


def _check_labels(y: np.ndarray, records: int) -> None:
    if y.shape != (records,):
        raise InputError(f"y has shape {y.shape}; it must be ({records},), one label per record of X.")
    if y.dtype.kind == "f" and not _holds_numbers(y):
        row = int(np.argwhere(~(np.abs(y.astype(np.float64)) <= LARGEST))[0, 0])
        raise InputError(
            f"y[{row}] is {y[row]}; a label must be finite, {LARGEST:g} at most. Remove or fill that record first."
        )


def _holds_numbers(values: np.ndarray) -> bool:
    """Whether all are finite and can be squared. A NaN becomes an extreme and fails both comparisons."""
    return values.size == 0 or (float(values.min()) >= -LARGEST and float(values.max()) <= LARGEST)


def sorted_classes(given: Any) -> np.ndarray | None:
    """The classes in sorted order; None if they are not two or more different labels, all numbers or all texts."""
    listed = list(given) if np.iterable(given) and not isinstance(given, str) else []
    texts = [isinstance(label, str) for label in listed]
    numbers = [isinstance(label, bool | int | float | np.bool_ | np.number) for label in listed]
    classes = np.unique(np.asarray(listed)) if all(texts) or all(numbers) else np.empty(0)
    usable = classes.dtype.kind in "buiU" or (classes.dtype.kind == "f" and bool(np.isfinite(classes).all()))
    return classes if usable and len(classes) == len(listed) and len(classes) >= 2 else None


def _kept_classes(given: Any) -> tuple[Any, ...]:
    listed = tuple(given) if np.iterable(given) and not isinstance(given, str) else ()
    if sorted_classes(listed) is None:
        raise InputError(
            f"classes={short(given)}; it must be two or more different labels, all numbers or all texts: every label "
            "there may be. Leave it out if they are unknown."
        )
    return listed


def _kept_ranges(given: Any) -> Any:
    """A copy of the ranges, which the caller cannot change; the problem checks them."""

    def kept(bound: Any) -> Any:
        if isinstance(bound, list | tuple):
            return tuple(bound)
        return frozen(np.asarray(bound)) if np.ndim(bound) or isinstance(bound, np.ndarray) else bound

    return given if isinstance(given, str) or not np.iterable(given) else tuple(kept(bound) for bound in given)


@dataclass(frozen=True, eq=False)
class Records:
    """Features X (records, features) and labels y (records,), stored as they are and never changed.

    No scaling and no intercept is added. X keeps its dtype, which is public: uint8 pixels stay uint8 until a gradient
    needs them, and float64 stays float64 even if bytes would be enough. Lists, which have no dtype, become float64.

    Args:
        X: The features, (records, features), all finite numbers.
        y: The labels, one per record: numbers or texts.
        ranges: PUBLIC (low, high), scalars or one per feature, known without looking at the records (pixels: (0, 255)).
            A problem scales features from them. Default: None.
        groups: Named columns that are not features, such as {"hospital": array}; `agents="hospital"` splits by one. The
            owner of a record counts as PUBLIC. Default: none.
        columns: The features' names. Default: None.
        test: Records kept apart for measuring accuracy; public, never trained on. Default: None.
        name: What results and accounts call them. Default: "records".
        source: Where `load_data` found them; it sets this. Default: None, for arrays made in memory.
        classes: PUBLIC list of the labels there may be, known without looking at the records. Private runs of losses
            with classes need them, here or as the problem's `classes`. Default: None.
        width_found: Whether the number of features was found in the records; `load_data` sets it. Default: False.

    Raises:
        InputError: Shapes do not match, a feature is not a finite number, or the classes are not two or more different
            labels.

    Example:
        >>> import numpy as np
        >>> import relaydp as rd
        >>> data = rd.Records(np.eye(4), np.array([0, 1, 0, 1]))
        >>> len(data), data.features
        (4, 4)
    """

    X: np.ndarray
    y: np.ndarray
    ranges: Any = None
    groups: Mapping[str, np.ndarray] = field(default_factory=dict)
    columns: tuple[str, ...] | None = None
    test: Records | None = None
    name: str = "records"
    source: Mapping[str, Any] | None = None  # where load_data found it; None for arrays made in memory
    classes: tuple[Any, ...] | None = None
    width_found: bool = False  # the number of features was found in the records, not declared

    def __post_init__(self) -> None:
        X, y = _as_features(self.X), np.asarray(self.y)
        _check_features(X)
        _check_labels(y, X.shape[0])
        check_kind("groups", self.groups, Mapping, "a mapping from names to columns, such as {'hospital': [...]}")
        groups = {name: np.asarray(column) for name, column in self.groups.items()}
        for name, column in groups.items():
            if column.shape != y.shape:
                raise InputError(f"group column {name!r} has shape {column.shape}; it must be {y.shape}, as y has.")
            check_exact(f"group column {name!r}: value", column)
        columns = tuple(self.columns) if self.columns is not None else None
        if columns is not None and len(columns) != X.shape[1]:
            raise InputError(f"there are {len(columns)} column names for {X.shape[1]} features; pass one per feature.")
        if self.test is not None and self.test.features != X.shape[1]:
            raise InputError(f"test records have {self.test.features} features; they must have {X.shape[1]}, as X has.")
        put = object.__setattr__
        put(self, "X", frozen(X))
        put(self, "y", frozen(y))
        put(self, "groups", MappingProxyType({name: frozen(column) for name, column in groups.items()}))
        put(self, "columns", columns)
        put(self, "ranges", _kept_ranges(self.ranges))
        put(self, "classes", None if self.classes is None else _kept_classes(self.classes))

    def __len__(self) -> int:
        return self.X.shape[0]

    @property
    def features(self) -> int:
        return self.X.shape[1]

    def with_group(self, name: str) -> Records:
        """The same records with feature column `name` turned into a group column, which names the owner of each
        record."""
        if name in self.groups or self.columns is None or name not in self.columns:
            return self
        at = self.columns.index(name)
        ranges = self.ranges
        if ranges is not None and not isinstance(ranges, str):
            ranges = tuple(np.delete(np.broadcast_to(bound, (self.features,)), at) for bound in ranges)
        return replace(
            self,
            X=np.delete(self.X, at, axis=1),
            ranges=ranges,
            groups={**self.groups, name: whole_labels(self.X[:, at])},
            columns=self.columns[:at] + self.columns[at + 1 :],
            test=self.test.with_group(name) if self.test is not None else None,
        )

    def same_as(self, other: Records) -> bool:
        """Whether both come from one file or have the same features, whatever the labels are."""
        here, there = (None if one.source is None else os.path.realpath(one.source["source"]) for one in (self, other))
        if self is other or (here is not None and here == there) or np.array_equal(self.X, other.X):
            return True
        # one of them may have turned a column into a group column
        mine, theirs = self.columns or (), other.columns or ()
        shared = [name for name in mine if name in theirs]
        left, right = (
            one.X[:, [names.index(name) for name in shared]] for one, names in ((self, mine), (other, theirs))
        )
        return bool(shared) and np.array_equal(left, right)

    def digest(self) -> str:
        """sha256 of the training records as stored: stored in a saved result to identify its data."""
        sha = hashlib.sha256()
        for array in (self.X, self.y, *(self.groups[name] for name in sorted(self.groups))):
            sha.update(f"{array.dtype.str}{array.shape}".encode())
            sha.update(array.tobytes() if array.dtype.kind != "O" else repr(array.tolist()).encode())
        return sha.hexdigest()

    def __repr__(self) -> str:
        held = f", test={len(self.test)}" if self.test is not None else ""
        return f"Records({self.name!r}, records={len(self)}, features={self.features}, {self.X.dtype}{held})"
