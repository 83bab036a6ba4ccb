"""Tables with named columns (CSV, TSV, Parquet) made into Records: the use of each column, and whether its values can
be used."""

from __future__ import annotations

import bz2
import gzip
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from relaydp.data.records import Records, whole_labels
from relaydp.errors import InputError, choose

if TYPE_CHECKING:
    import pyarrow as pa

PACKED = {".gz": gzip.open, ".bz2": bz2.open}
LABEL_NAMES = ("label", "target", "y", "class")


def unpacked(path: Path) -> bytes:
    opener = PACKED.get(path.suffix.lower(), open)
    with opener(path, "rb") as file:
        return file.read()


def read_delimited(path: Path, delimiter: str) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv

    text = unpacked(path)
    _check_quotes(text, path, delimiter)
    # One block and one thread: then a column's type is inferred from all its rows, and errors name the row.
    block = min(max(len(text), 1), 2**31 - 1)

    def read(types: dict[str, pa.DataType]) -> pa.Table:
        return csv.read_csv(
            pa.BufferReader(text),
            read_options=csv.ReadOptions(use_threads=False, block_size=block),
            parse_options=csv.ParseOptions(delimiter=delimiter),
            convert_options=csv.ConvertOptions(column_types=types),
        )

    try:
        table = read({})
        times = {part.name: pa.string() for part in table.schema if pa.types.is_temporal(part.type)}
        table = read(times) if times else table  # dates and times as they were written: "12:00" is not "12:00:00"
    except pa.ArrowInvalid as error:
        ragged = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", str(error))
        if ragged is None:
            raise
        # first: a comma for the decimal point makes the rows longer than a header with semicolons
        header = re.split(rb"[\r\n]", text.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n"), maxsplit=1)[0].decode()
        _check_separator(header.split(delimiter), path, delimiter)
        line, columns, values = map(int, ragged.groups())
        raise InputError(
            f"{path.name} could not be read as CSV: row {line - 1} (line {line}) has {values} values, and the header "
            f"has {columns} columns; all rows must have as many. Correct that line; a text with a comma needs quotes."
        ) from None
    _check_separator(table.column_names, path, delimiter)
    # A record has at least one number: this detects a record in the place of the header.
    number = next(filter(_is_number, table.column_names), None)
    if number is not None:
        raise InputError(
            f"{path.name} starts with {number!r} instead of a column name. Add a header row above the first record, "
            "with names that are not numbers, such as c1."
        )
    return table


def _check_quotes(text: bytes, path: Path, delimiter: str) -> None:
    """Refuse a quote that is not closed in its line: all records up to the next quote would silently become part of its
    value."""
    if b'"' not in text:
        return
    value = b'(?:"(?:[^"]|"")*+"[^D]*+|(?!")[^D]*+)'  # quotes count at the start of a value, as for the parser
    closed = re.compile(b"VALUE(?:DVALUE)*+".replace(b"VALUE", value).replace(b"D", delimiter.encode()))
    row = -1  # the header is row 0; empty lines do not count
    for number, line in enumerate(text.removeprefix(b"\xef\xbb\xbf").splitlines(), start=1):
        row += bool(line)
        if b'"' in line and closed.fullmatch(line) is None:
            where = f"row {row} (line {number})" if row else "the header"
            shown = line[:60].decode("utf-8", "backslashreplace")
            raise InputError(
                f"{path.name} has a quote that is not closed in {where}: {shown!r}; a value must end in the line it "
                "starts in. Close the quote, or write line breaks within values as something else, such as a space."
            )


def _check_separator(names: list[str], path: Path, delimiter: str) -> None:
    """Refuse a header that is one long name with another separator in it."""
    kinds = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
    other = next((sign for sign in kinds if len(names) == 1 and sign in names[0] and sign != delimiter), None)
    if other is not None:
        cure = {"\t": "Rename it to end in .tsv.", ",": "Rename it to end in .csv."}
        raise InputError(
            f"{path.name} has {kinds[other]} between its columns ({names[0][:60]!r}); there must be "
            f"{kinds[delimiter]}. "
            + cure.get(other, "Save it again with commas between the columns and points in the numbers.")
        )


def read_parquet(path: Path) -> pa.Table:
    from pyarrow import parquet

    # Not read_table, which would add columns guessed from folder names such as "year=2020".
    with parquet.ParquetFile(path) as file:
        return file.read()


def to_records(
    table: pa.Table,
    path: Path,
    label: str | None,
    groups: tuple[str, ...],
    drop: tuple[str, ...],
    ranges: Any,
) -> Records:
    _check_table(table, path)
    names = table.column_names
    for name in (*groups, *drop, *(() if label is None else (label,))):
        choose(f"column in {path.name}", name, names)
    label = _label_column([name for name in names if name not in (*groups, *drop)], path) if label is None else label
    _check_uses(label, groups, drop)
    features = [name for name in names if name not in (label, *groups, *drop)]
    if not features:
        raise InputError(
            f"{path.name} has no features left beside label {label!r}, groups and drop; it must have at least one. "
            "Drop fewer columns."
        )
    columns = [_numbers(table.column(name), name) for name in features]
    # In a text file types are inferred from every row, and one record could turn a column of "true" and "0" into bytes.
    # So all features become numbers of eight bytes, which are computed with alike.
    least = () if path.suffix.lower() == ".parquet" else (np.int64,)
    # Filled column by column, so that a wide integer file is never in memory twice in a larger type.
    X = np.empty((table.num_rows, len(features)), np.result_type(*columns, *least))
    for place, column in enumerate(columns):
        X[:, place] = column
    y = whole_labels(_values(table.column(label), label))
    kept = {name: whole_labels(_values(table.column(name), name)) for name in groups}
    return Records(X, y, ranges=ranges, groups=kept, columns=tuple(features), name=path.stem)


def _check_table(table: pa.Table, path: Path) -> None:
    names = table.column_names
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise InputError(
            f"{path.name} has more than one column {min(twice)!r}; every column needs its own name. Rename one."
        )
    if table.num_rows == 0:
        raise InputError(f"{path.name} has columns but no rows; it must have at least one record. Check its source.")


def _check_uses(label: str, groups: tuple[str, ...], drop: tuple[str, ...]) -> None:
    for name in {label, *groups, *drop}:
        uses = [use for use, chosen in (("label", (label,)), ("groups", groups), ("drop", drop)) if name in chosen]
        if len(uses) > 1:
            raise InputError(
                f"column {name!r} is used as {' and as '.join(uses)}; a column has one use. Leave one out."
            )


def _label_column(names: list[str], path: Path) -> str:
    usual = [name for name in names if name.lower() in LABEL_NAMES]
    if len(usual) > 1:
        raise InputError(
            f"{path.name} has several columns that could be the label: {', '.join(map(repr, usual))}. "
            "Pass label= to choose one, and drop= for the others unless they are features."
        )
    if not names:
        raise InputError(f"{path.name} has no column left for the label. Take a name out of groups= or drop=.")
    return usual[0] if usual else names[-1]


def _values(column: pa.ChunkedArray, name: str) -> np.ndarray:
    """A column as numbers, booleans or text, or an error that names the first gap."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        raise InputError(
            f"column {name!r} has bytes that are not UTF-8 text; it must have numbers or text. Save the file as UTF-8, "
            f"or pass drop={name!r}."
        )
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if column.null_count:
        gap(name, int(np.argmax(column.is_null().to_numpy())))
    values = column.to_numpy()
    if values.dtype.kind in "buif":
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            gap(name, int(bad[0]), str(values[bad[0]]))
        return values
    texts = np.array([str(value) for value in column.to_pylist()])
    empty = np.flatnonzero(texts == "")
    if len(empty):
        gap(name, int(empty[0]))
    return texts


def _numbers(column: pa.ChunkedArray, name: str) -> np.ndarray:
    values = _values(column, name)
    if values.dtype.kind == "U":
        row, value = next(((i, v) for i, v in enumerate(values) if not _is_number(v)), (0, values[0]))
        if 2 * sum(map(_is_number, values)) > len(values):  # mostly numbers: some are missing or mistyped
            gap(name, row, repr(str(value)))
        raise InputError(
            f"column {name!r} holds {str(value)!r} in row {row + 1}; a feature must be a number. Pass groups={name!r} "
            f"and agents={name!r} if it says who owns a record, drop={name!r} to leave it out, label={name!r} if it is "
            "the label, or encode it as numbers."
        )
    return values


def gap(name: str, row: int, value: str = "nothing") -> NoReturn:
    raise InputError(
        f"column {name!r} holds {value} in row {row + 1}; every row must have a finite value. Fill it, remove that "
        f"row, or pass drop={name!r}."
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
