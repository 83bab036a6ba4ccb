"""Read a file into Records: CSV, Parquet, LIBSVM text or NPZ, recognised by suffix.

    .csv .tsv (also .gz, .bz2)                 a header row, then one record per row
    .parquet                                   one record per row
    .libsvm .svm .svmlight (also .gz, .bz2)    "label index:value ..." per line, indices from 1; a bare .bz2 is read so
                                               too, because the LIBSVM collection names its files that way
    .npz                                       arrays X and y, and X_test and y_test if there is a test part

Every error of a parser becomes one InputError: rows are counted from 1, without the header.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from relaydp.data.records import Records, whole_labels
from relaydp.data.tables import PACKED, gap, read_delimited, read_parquet, to_records, unpacked
from relaydp.errors import InputError, RelayError

KINDS = {
    ".csv": "CSV",
    ".tsv": "TSV",
    ".parquet": "Parquet",
    ".libsvm": "LIBSVM",
    ".svm": "LIBSVM",
    ".svmlight": "LIBSVM",
    ".npz": "NPZ",
}
UTF_8 = "Save it again as UTF-8; a spreadsheet calls that 'CSV UTF-8'."
EXCEL = "Open it in the spreadsheet and save the sheet as CSV."
# What to do with files whose format is not supported.
CURES = {
    **dict.fromkeys((".xlsx", ".xls", ".xlsm", ".ods"), EXCEL),
    ".pdf": "Ask for the table that the PDF was made from, as CSV.",
    ".json": "Convert it to CSV, one record per row.",
}
# First bytes of other files that may have the suffix of a text file; no table's header begins so.
BEGINNINGS = {
    b"%PDF-": ("a PDF", CURES[".pdf"]),
    b"PK\x03\x04": ("a zip archive or an Excel workbook", f"Unpack it. {EXCEL}"),
    b"\xd0\xcf\x11\xe0": ("an old Excel workbook", EXCEL),
    b"\xff\xfe": ("text in UTF-16", UTF_8),
    b"\xfe\xff": ("text in UTF-16", UTF_8),
}
# LIBSVM text is sparse and Records are dense: beyond 4 GiB of float64 another tool is needed.
DENSE_LIMIT = 2**32
LARGEST_INDEX = 2**31 - 1  # the largest that the LIBSVM reader accepts


def file_kind(path: Path) -> str | None:
    """The format by the suffix of a file name, or None for an unknown suffix.

    >>> file_kind(Path("a.csv.gz")), file_kind(Path("ijcnn1.t.bz2")), file_kind(Path("mnist"))
    ('CSV', 'LIBSVM', None)
    """
    name = path.name.lower()
    packing = Path(name).suffix
    inner = Path(name).stem if packing in PACKED else name
    kind = KINDS.get(Path(inner).suffix)
    if packing in PACKED and kind in ("Parquet", "NPZ"):
        return None  # both are compressed inside; their readers do not open a second compression
    return kind or ("LIBSVM" if packing == ".bz2" else None)


def read_table(
    path: str | Path,
    *,
    label: str | None = None,
    groups: str | Iterable[str] = (),
    drop: str | Iterable[str] = (),
    ranges: Any = None,
    features: int | None = None,
) -> Records:
    """Read records from a file of your own.

        label     the label's column; default: the one column called label, target, y or class, else the last
        groups    columns kept as Records.groups, such as "hospital": not features, but agents can be split by them
        drop      columns left out
        ranges    public (low, high) of the features, scalars or one per feature; never taken from the file
        features  PUBLIC number of features, checked against the file. A LIBSVM file does not say how many there are:
                  by default it is the largest index in any record, which private runs refuse

    Every other column is a feature and must be numeric, without gaps. Number types stay as in a file that declares them
    (Parquet, NPZ).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "visits.csv")
    ...     _ = file.write_text("age,ward,label\\n41,north,1\\n67,south,0\\n")
    ...     data = read_table(file, groups="ward")
    >>> data.columns, data.y.tolist(), data.groups["ward"].tolist()
    (('age',), [1, 0], ['north', 'south'])
    """
    path = Path(path).expanduser()
    kind = _readable_kind(path)
    groups, drop = _names(groups), _names(drop)
    if kind in ("LIBSVM", "NPZ") and (label is not None or groups or drop):
        raise InputError(
            f"label=, groups= and drop= name columns, and {kind} files such as {path.name} have no named columns. "
            "Leave them out, or convert the file to CSV or Parquet."
        )
    if features is not None and (not isinstance(features, int | np.integer) or features is True or features < 1):
        raise InputError(f"features={features!r}; it must be a whole number, 1 or more.")
    with _reading(path, kind):
        if path.stat().st_size == 0:
            raise InputError(
                f"{path.name} is empty (0 bytes); it must be a {kind} file with records. Check its source."
            )
        if kind == "LIBSVM":
            X, y = read_libsvm(path, features)
            return Records(X, y, ranges=ranges, name=path.stem, width_found=features is None)
        if kind == "NPZ":
            records = _read_npz(path, ranges)
        else:
            if kind != "Parquet":
                _check_text(path, kind)
            table = read_parquet(path) if kind == "Parquet" else read_delimited(path, "\t" if kind == "TSV" else ",")
            records = to_records(table, path, label, groups, drop, ranges)
    check_width(records, features)
    return records


def _readable_kind(path: Path) -> str:
    """The kind of a file that is there and that relaydp reads."""
    kind = file_kind(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder; it must be a {kind or 'CSV or other'} file. Pass a file in it.")
    if kind is None:
        cure = CURES.get(
            path.suffix.lower(), "Rename it if it holds one of these (commas: .csv, tabs: .tsv), or convert it."
        )
        raise InputError(
            f"{path.name!r} has a suffix that relaydp does not read; it must be one of {', '.join(KINDS)} (CSV, TSV "
            f"and LIBSVM also as .gz or .bz2). {cure}"
        )
    if not path.is_file():
        raise InputError(f"{path} does not exist; it must be a {kind} file. {nearest_file(path) or 'Check the path.'}")
    return kind


def check_width(records: Records, features: int | None) -> None:
    """Refuse records of another number of features than was declared."""
    if features not in (None, records.features):
        raise InputError(
            f"{records.name} has {records.features} features, and features={features}. Leave features= out, or use the "
            "records that were meant."
        )


def nearest_file(path: Path, alike: float = 0.75) -> str:
    """'Did you mean ...?' if the folder has a data file with a similar name, apart from the suffix; else ''."""
    try:
        files = {file.stem: file for file in path.parent.iterdir() if file_kind(file) and file.is_file()}
    except OSError:
        return ""
    near = difflib.get_close_matches(path.stem, files, n=1, cutoff=alike)
    return f"Did you mean {str(path.with_name(files[near[0]].name))!r}?" if near else ""


def _check_text(path: Path, kind: str) -> None:
    with path.open("rb") as file:
        start = file.read(8)
    for beginning, (inside, cure) in BEGINNINGS.items():
        if start.startswith(beginning):
            raise InputError(f"{path.name} is {inside}, whatever its name says; it must be {kind} text. {cure}")


@contextmanager
def _reading(path: Path, kind: str) -> Iterator[None]:
    """Turn every exception of a parser into an InputError; damaged files raise many kinds."""
    try:
        yield
    except RelayError:
        raise
    except UnicodeDecodeError as error:
        shown = error.object[max(error.start - 20, 0) : error.end + 20].decode("utf-8", "backslashreplace")
        raise InputError(f"{path.name} is not text in UTF-8: it has the bytes {shown!r}. {UTF_8}") from error
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise InputError(
            f"{path.name} could not be read as {kind}: {reason}. Correct that place, download the file again, or give "
            "it the suffix of its real format."
        ) from error


def _names(names: str | Iterable[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def read_libsvm(path: Path, features: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Dense (X, y) of a LIBSVM text file, compressed or not. Without `features` their number is the largest index."""
    from sklearn.datasets import load_svmlight_file

    with _reading(path, "LIBSVM"):
        try:
            # Not zero_based="auto", with which one record with an index 0 would shift the columns of all others.
            sparse, y = load_svmlight_file(str(path), n_features=features, zero_based=False)[:2]  # type: ignore[arg-type]
        except (ValueError, OverflowError):
            _blame_line(path, features)
            raise
        records, width = sparse.shape
        if records == 0 or width == 0:
            raise InputError(f"{path.name} has no records; its lines must look like '1 3:0.5 7:1'. Check its source.")
        if records * width * 8 > DENSE_LIMIT:
            raise InputError(
                f"{path.name} has {records} records of {width} features, {records * width * 8 / 2**30:.0f} GiB once "
                "dense; the limit is 4 GiB. Keep fewer features or records."
            )
        X = np.asarray(sparse.toarray()) + 0.0  # + 0.0 turns -0.0 into 0.0, like a missing entry
    bad = np.argwhere(~np.isfinite(X))
    if len(bad):
        gap(f"feature {bad[0, 1] + 1}", int(bad[0, 0]), str(X[bad[0, 0], bad[0, 1]]))
    return X, whole_labels(np.asarray(y))


def _blame_line(path: Path, features: int | None) -> None:
    """The parser reports what it could not read but not where; find the line."""
    for number, line in enumerate(unpacked(path).splitlines(), start=1):
        indices = _indices_of(line)
        if indices is None:
            text = line[:60].decode("ascii", "backslashreplace")
            raise InputError(
                f"{path.name} has {text!r} in row {number}; it must be 'label index:value ...' with rising indices. "
                "Correct that line."
            )
        outside = [index for index in indices if not 1 <= index <= (features or LARGEST_INDEX)]
        if outside:
            most = LARGEST_INDEX if features is None else f"{features}, the number of features that was declared"
            more = ", or declare more features" if features is not None and outside[0] > features else ""
            raise InputError(
                f"{path.name} has index {outside[0]} in line {number}; indices must be from 1 to {most}. Correct that "
                f"line{more}."
            )


def _indices_of(line: bytes) -> list[int] | None:
    """The indices in a line 'label index:value ...'; None if it is not one, or they do not rise."""
    words = line.split(b"#")[0].split()
    pairs = words[1:]
    try:
        for word in words[:1] + [pair.split(b":", 1)[-1] for pair in pairs]:
            float(word)
        indices = [int(pair.split(b":", 1)[0]) for pair in pairs if not pair.startswith(b"qid:")]
    except ValueError:
        return None
    rising = sorted(set(indices)) == indices
    return indices if rising and all(pair.count(b":") == 1 for pair in pairs) else None


def _read_npz(path: Path, ranges: Any) -> Records:
    with path.open("rb") as file:  # opened here, because numpy does not close a damaged file
        arrays = np.load(file, allow_pickle=False)
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise InputError(f"{path.name} has a single array; it must have arrays X and y. Use numpy.savez.")
        names = arrays.files
        lacking = [name for name in ("X", "y") if name not in names]
        if ("X_test" in names) != ("y_test" in names):
            lacking.append("y_test" if "X_test" in names else "X_test")
        if lacking:
            raise InputError(
                f"{path.name} holds {', '.join(names) or 'nothing'} but not {' and '.join(lacking)}; it must have X "
                "and y, and X_test and y_test together or not at all. Write it with numpy.savez(path, X=..., y=...)."
            )
        test = None
        if "X_test" in names:
            test = Records(arrays["X_test"], arrays["y_test"], ranges=ranges, name=f"{path.stem} (test)")
        return Records(arrays["X"], arrays["y"], ranges=ranges, test=test, name=path.stem)
