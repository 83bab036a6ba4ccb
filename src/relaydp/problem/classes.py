"""The classes of a problem's labels: declared without the records, or found in them (no private run then)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaydp.data import Records
from relaydp.data.records import check_exact, sorted_classes
from relaydp.errors import InputError


def declared_classes(records: Records, wanted: int | None, given: Sequence[Any] | None) -> Sequence[Any] | None:
    """The classes that were said to be: as given, or as the records bring them where the loss can have so many."""
    brought = records.classes
    return brought if given is None and brought is not None and wanted in (None, len(brought)) else given


def find_classes(y: np.ndarray, loss: str, wanted: int | None, declared: Sequence[Any] | None) -> np.ndarray:
    """The classes in sorted order: as declared, or as found in the labels."""
    if declared is not None:
        return _given_classes(y, loss, wanted, declared)
    check_exact("label", y)
    found = np.unique(y)
    if len(found) < 2:
        raise InputError(
            f"every label is {found.tolist()[0]!r}: one class, and the {loss} loss needs two or more. Name the "
            "right column by label=, or use data that has records of both classes."
        )
    if wanted is not None and len(found) != wanted:
        raise InputError(
            f"there are {len(found)} different labels ({', '.join(map(repr, found[:5].tolist()))}, ...); the {loss} "
            f"loss needs {wanted}. Use softmax for classes, least_squares or huber for numbers."
        )
    return found


def _given_classes(y: np.ndarray, loss: str, wanted: int | None, given: Sequence[Any]) -> np.ndarray:
    classes = sorted_classes(given)
    if classes is None or wanted not in (None, len(classes)):
        raise InputError(
            f"classes={given!r}; the {loss} loss needs {'two' if wanted else 'two or more'} different labels, all "
            "numbers or all texts."
        )
    countable = [values.dtype.kind in "buif" for values in (classes, y)]
    if all(countable) and np.result_type(classes, y).kind == "f":  # as which they are compared; so are int64 and uint64
        for what, values in (("label", y), ("class", classes)):
            check_exact(what, values.astype(np.float64))
    odd = y if countable[0] != countable[1] else y[~np.isin(y, classes)]
    if odd.size:
        raise InputError(
            f"label {odd.tolist()[0]!r} is not one of the classes {classes.tolist()}; every label must be one. List it "
            "in classes=, or correct the label column."
        )
    return classes
