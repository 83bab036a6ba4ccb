"""From a party's own file to the problem that the consortium agreed on: the columns, classes and bounds of the file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from relaydp.data import Records, read_table
from relaydp.data.formats import file_kind, read_libsvm
from relaydp.data.tables import read_delimited, read_parquet, to_records
from relaydp.errors import InputError, RelayError, choose, short
from relaydp.network.consortium.agreement import Consortium
from relaydp.problem import Problem

if TYPE_CHECKING:
    import pyarrow as pa


def local_problem(consortium: Consortium, party: int, records: Records) -> Problem:
    """The problem over one party's own records, with everything else as agreed; refuses records that do not fit."""
    _check_records(consortium, party, records)
    return consortium.problem.spec.build_as_agreed(records, [len(records)])


def whole_problem(consortium: Consortium, everyone: Sequence[Records]) -> Problem:
    """The problem over the records of all parties, one Records per party in order: for simulators and tests."""
    if len(everyone) != len(consortium.parties):
        raise InputError(
            f"records of {len(everyone)} parties were given; the consortium has {len(consortium.parties)}."
        )
    for party, records in enumerate(everyone):
        local_problem(consortium, party, records)
    X, y = (np.concatenate([getattr(records, part) for records in everyone]) for part in ("X", "y"))
    joined = Records(X, y, columns=consortium.problem.columns, name=consortium.name)
    return consortium.problem.spec.build_as_agreed(joined, [len(records) for records in everyone])


def _check_records(consortium: Consortium, party: int, records: Records) -> None:
    who, task = consortium.parties[party], consortium.problem
    if len(records) != who.records:
        raise InputError(
            f"{records.name} holds {len(records)} records, and {consortium.name} agreed on {who.records} for "
            f"{who.name}. The noise depends on this number: use the records that were counted, or agree again."
        )
    if records.features != task.width:
        raise InputError(f"{records.name} has {records.features} features; {task.width} were agreed on. Use those.")
    if task.columns is not None and records.columns not in (None, task.columns):
        assert records.columns is not None
        k = next(k for k in range(task.width) if records.columns[k] != task.columns[k])
        raise InputError(
            f"{records.name} has {short(records.columns[k])} where {short(task.columns[k])} was agreed on (feature "
            f"{k + 1}). Use the agreed columns in their order; read_own_records puts them in order."
        )


def read_own_records(consortium: Consortium, path: str | Path) -> Records:
    """Read a party's records: CSV, TSV, Parquet, LIBSVM or NPZ, recognised by suffix.

    If columns were agreed on by name, they are selected and put in order, and all others are ignored. Files without
    names (LIBSVM, NPZ) can be read only if the number of features was agreed on.
    """
    file, task = Path(path).expanduser(), consortium.problem
    kind = file_kind(file)
    if task.columns is not None and task.label is not None:
        table = _read_named(file)
        for name in (*task.columns, task.label):
            choose(f"column in {file.name}", name, table.column_names)
            if table.column_names.count(name) > 1:
                raise InputError(f"{file.name} has more than one column {name!r}. Rename the others.")
        return to_records(table.select([*task.columns, task.label]), file, task.label, (), (), None)
    if kind == "LIBSVM":
        X, y = read_libsvm(file, task.width)
        return Records(X, y, name=file.stem)
    records = read_table(file, label=None if kind == "NPZ" else task.label)
    if records.features != task.width:
        raise InputError(f"{file.name} has {records.features} features; {task.width} were agreed on. Use those.")
    return records


def column_names(path: str | Path) -> list[str]:
    """The names in a table's header. Its rows are not kept."""
    return _read_named(Path(path).expanduser()).column_names


def _read_named(path: Path) -> pa.Table:
    kind = file_kind(path)
    if kind not in ("CSV", "TSV", "Parquet") or not path.is_file():
        found = "has no column names" if path.is_file() else "does not exist"
        raise InputError(
            f"{path} {found}; the records must be a CSV, TSV or Parquet file with the agreed columns. Check the path."
        )
    try:
        return read_parquet(path) if kind == "Parquet" else read_delimited(path, "\t" if kind == "TSV" else ",")
    except RelayError:
        raise
    except Exception as error:  # broad, because damaged files raise many kinds of error
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise InputError(
            f"{path.name} could not be read as {kind}: {reason}. Use a file that is not damaged."
        ) from error
