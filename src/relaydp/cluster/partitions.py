"""Partitions: where each agent's records are, and what is public about them.

A part is one agent's records: a file that the agent's process reads where it lives, or a Ray object that holds (X, y).
What is minimised is described without any record (`ProblemSpec`), so planning a run needs none:

    make_task    loss, columns, classes, weights, bounds as the user gave them, checked: public
    PartReport   an agent's report on its part: how many records and features, their number type, a fingerprint

The number type is that of the values as they are kept (bytes, float32, float64). All agents use the same one, as one
process would, because it determines how sums are rounded. The fingerprint is a keyed hash. An agent that starts again
compares its records with it: the same noise on other records would reveal both.
"""

from __future__ import annotations

import glob
import hashlib
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from relaydp.data import Records, read_table
from relaydp.data.formats import file_kind, read_libsvm
from relaydp.data.tables import read_delimited, read_parquet, to_records
from relaydp.errors import InputError, RelayError, choose, short
from relaydp.problem import ProblemSpec
from relaydp.problem.build import LOSSES
from relaydp.problem.loss import CLASSIFIERS

NAMED = ("CSV", "TSV", "Parquet")  # kinds of file whose columns have names
WILD = "*?["  # characters that make a path a pattern


class PartReport(NamedTuple):
    """What an agent reports about its part: all that leaves it before the run."""

    records: int
    features: int
    raw: str  # number type of the features as read
    kept: str  # and as kept
    fingerprint: str


@dataclass(frozen=True)
class Part:
    """One agent's records: a path as its own process sees it, or a Ray object reference."""

    agent: int
    name: str
    at: Any

    @property
    def is_file(self) -> bool:
        return isinstance(self.at, str)

    def __str__(self) -> str:
        return f"{self.name} ({self.at if self.is_file else 'a Ray object'})"


def list_parts(parts: Any, agents: int, names: Sequence[str] | None = None) -> tuple[Part, ...]:
    """One part per agent, in order: a pattern such as "parts/*.csv", taken in sorted order, or a list of paths and
    references. A pattern is looked up here; a path in a list need not exist on this machine."""
    if isinstance(parts, str | os.PathLike):
        pattern = os.path.expanduser(os.fspath(parts))
        found: list[Any] = sorted(glob.glob(pattern)) if any(sign in pattern for sign in WILD) else [pattern]
        if not found:
            raise InputError(
                f"no file matches {pattern!r} here; there must be one for each agent. List the paths instead."
            )
    else:
        found = list(parts)
    if len(found) != agents:
        raise InputError(
            f"there are {len(found)} parts for {agents} agents; every agent needs one file or object reference. Use a "
            f"graph of {len(found)}, or give the other parts too."
        )
    called = [f"agent {i}" for i in range(agents)] if names is None else [str(name) for name in names]
    if len(called) != agents or len(set(called)) != agents:
        raise InputError(f"there are {len(set(called))} different names for {agents} agents; each agent needs its own.")
    return tuple(_part(i, name, at) for i, (name, at) in enumerate(zip(called, found, strict=True)))


def _part(agent: int, name: str, at: Any) -> Part:
    if isinstance(at, str | os.PathLike):
        path = os.path.abspath(os.path.expanduser(os.fspath(at)))  # other processes may have other working folders
        if file_kind(Path(path)) is None:
            raise InputError(
                f"the part of {name} is {path}, whose suffix relaydp does not read; it must be CSV, TSV, Parquet, "
                "LIBSVM or NPZ."
            )
        return Part(agent, name, path)
    if isinstance(at, tuple | list | np.ndarray | Records):
        raise InputError(
            f"the part of {name} is a {type(at).__name__} in this process; it must be a path, or an object reference "
            "made where the records are (ray.put((X, y)) in a task there). For records that fit into this process use "
            "relaydp.solve."
        )
    return Part(agent, name, at)


def make_task(
    loss: str | Callable[..., Any],
    *,
    columns: Sequence[str] | None,
    features: int | None,
    label: str | None,
    classes: Sequence[Any] | None,
    ranges: Any,
    **options: Any,
) -> ProblemSpec:
    """Check the arguments, and refuse missing ones: they may not be taken from the records."""
    if isinstance(loss, str):
        loss = choose("loss", loss.replace("_", "-"), LOSSES)
    elif not callable(loss):
        raise InputError(f"loss={short(loss)}; it must be a name ({', '.join(LOSSES)}) or a function of (x, a, b).")
    _check_features(columns, features, label)
    _check_classes(loss, classes)
    if isinstance(ranges, str):
        raise InputError(
            f"ranges={ranges!r} would look at the records of all agents together; pass (low, high), known without the "
            "records."
        )
    names = None if columns is None else tuple(map(str, columns))
    listed = None if classes is None else tuple(classes)
    width = None if features is None else int(features)
    return ProblemSpec(loss, names, width, label, listed, ranges=ranges, **options)


def _check_features(columns: Sequence[str] | None, features: int | None, label: str | None) -> None:
    if (columns is None) == (features is None):
        raise InputError(
            "exactly one of columns= and features= must be given. Pass the features' names in order (columns=[...], "
            "with label=), or their number (features=N) for files without names."
        )
    if columns is not None:
        names = tuple(map(str, columns))
        if not names or len(set(names)) != len(names) or label is None or label in names:
            raise InputError(f"columns={short(columns)} and label={label!r}; all these names must be different.")
    elif not isinstance(features, int | np.integer) or isinstance(features, bool) or features < 1:
        raise InputError(f"features={features!r}; it must be a whole number, 1 or more.")


def _check_classes(loss: str | Callable[..., Any], classes: Sequence[Any] | None) -> None:
    if loss in CLASSIFIERS and classes is None:
        raise InputError(
            f"the {loss} loss needs classes=. Pass every label there may be, such as classes=[0, 1]: they are not "
            "taken from the records."
        )
    if loss not in CLASSIFIERS and classes is not None:
        raise InputError(f"classes= is for classification, and the {loss} loss predicts numbers; leave it out.")


# -- at the agent


def read_part(
    part: Part, task: ProblemSpec, fetch: Callable[[Any], Any], look: Callable[[Records], None] = lambda records: None
) -> Records:
    """The records of a part, checked against the task; called where they are. Errors name agent, path and machine.

    look   a function that is called with them before the check, which computes
    """
    try:
        records = _read_file(Path(part.at), task) if part.is_file else _read_object(part, fetch)
        if records.features != task.width:
            raise InputError(f"it has {records.features} features; all agents must have {task.width}.")
        look(records)
        task.build_as_agreed(records, [len(records)])  # refuses labels that are not classes, among others
        return records
    except MemoryError:
        text = "its records do not fit in memory there. Give it a node with more memory."
        raise InputError(_said(part, text)) from None
    except RelayError as error:
        raise type(error)(_said(part, str(error))) from None


def _said(part: Part, text: str) -> str:
    return f"{part} on {socket.gethostname()}: {text}"


def _read_file(path: Path, task: ProblemSpec) -> Records:
    kind = file_kind(path)
    if not path.is_file():
        raise InputError(
            f"{path} does not exist on this machine. Put it on a shared disk, or place the agent where its file is "
            "(placement=)."
        )
    if task.columns is not None and task.label is not None:
        if kind not in NAMED:
            raise InputError(f"a {kind} file has no column names; pass features= instead of columns=.")
        wanted = [*task.columns, task.label]
        # checked first: the error for a file with other columns is about the columns, not about their contents
        table = _read_named(path, kind)
        lacking = [name for name in wanted if name not in table.column_names]
        if lacking:
            has = ", ".join(map(repr, table.column_names[:8]))
            raise InputError(
                f"it has no column {lacking[0]!r} (it has {has}); it must have the columns that all agents have."
            )
        twice = [name for name in wanted if table.column_names.count(name) > 1]
        if twice:
            raise InputError(f"it has more than one column {twice[0]!r}. Rename the others.")
        return to_records(table.select(wanted), path, task.label, (), (), None)
    if kind == "LIBSVM":
        X, y = read_libsvm(path, task.width)
        return Records(X, y, name=path.stem)
    return read_table(path, label=None if kind == "NPZ" else task.label)


def _read_named(path: Path, kind: str | None) -> Any:
    try:
        return read_parquet(path) if kind == "Parquet" else read_delimited(path, "\t" if kind == "TSV" else ",")
    except (RelayError, MemoryError):
        raise
    except Exception as error:  # broad, because damaged files raise many kinds of error
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise InputError(f"it could not be read as {kind}: {reason}. Use a file that is not damaged.") from None


def _read_object(part: Part, fetch: Callable[[Any], Any]) -> Records:
    value = fetch(part.at)
    if isinstance(value, Records):
        return value
    if not (isinstance(value, tuple | list) and len(value) == 2):
        raise InputError(f"the object holds a {type(value).__name__}; it must hold (X, y).")
    return Records(*value, name=part.name)


def fingerprint(records: Records, key: str) -> str:
    """A keyed hash of features and labels as read: equal records have equal fingerprints, in one run only."""
    sha = hashlib.blake2b(key=hashlib.sha256(key.encode()).digest(), digest_size=16)
    for array in (records.X, records.y):
        sha.update(f"{array.dtype.str}{array.shape}".encode())
        plain = array.dtype.kind != "O"
        sha.update(np.ascontiguousarray(array).view(np.uint8).data if plain else repr(array.tolist()).encode())
    return sha.hexdigest()
