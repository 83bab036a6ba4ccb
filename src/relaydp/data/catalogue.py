"""The data sets relaydp knows by name, and load_data, which reads them and files of your own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from relaydp.data import fetch, loaders
from relaydp.data.formats import KINDS, check_width, file_kind, nearest_file, read_table
from relaydp.data.records import Records
from relaydp.errors import InputError, choose

Ranges = tuple[float, float] | tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class Entry:
    """One data set: all that is public about it and known without opening a file.

    records  (training, test)
    ranges   public bounds of the features: (low, high), or two tuples with one entry per feature
    classes  the meaning of the labels; with two classes the first is -1 and the second +1, else they count from 0
    files    the original files; empty for data that come with an installed package
    """

    name: str
    title: str
    classes: tuple[str, ...]
    licence: str
    records: tuple[int, int]
    features: int
    dtype: str
    ranges: Ranges
    loader: Callable[[], loaders.Parts]
    files: tuple[fetch.Original, ...] = ()
    home: str = ""
    aliases: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    note: str = ""

    @property
    def labels(self) -> tuple[int, ...]:
        """The classes as the records have them."""
        return (-1, 1) if len(self.classes) == 2 else tuple(range(len(self.classes)))


PIXELS = (0, 255)

# ijcnn1: 10 indicators (the place in a cycle of ten), then 12 signals that the challenge's winner scaled to
# about [-1, 1]. A few test values reach 1.32; a problem clips them.
IJCNN1_RANGES = ((0.0,) * 10 + (-1.0,) * 12, (1.0,) * 22)

# The min/max table in the data set's published description, rounded outwards to two digits. By rows: the
# mean, the standard error and the worst of each measure below, in that order.
CELL_MEASURES = ("radius", "texture", "perimeter", "area", "smoothness", "compactness")
CELL_MEASURES += ("concavity", "concave points", "symmetry", "fractal dimension")
BREAST_CANCER_LOW = (
    *(6.9, 9.7, 43.0, 140.0, 0.052, 0.018, 0.0, 0.0, 0.1, 0.049),
    *(0.11, 0.35, 0.75, 6.8, 0.0015, 0.0015, 0.0, 0.0, 0.0075, 0.0005),
    *(7.9, 12.0, 50.0, 180.0, 0.07, 0.026, 0.0, 0.0, 0.15, 0.054),
)
BREAST_CANCER_HIGH = (
    *(29.0, 40.0, 190.0, 2600.0, 0.17, 0.35, 0.43, 0.21, 0.31, 0.098),
    *(2.9, 4.9, 22.0, 550.0, 0.032, 0.14, 0.4, 0.054, 0.08, 0.031),
    *(37.0, 50.0, 260.0, 4300.0, 0.23, 1.1, 1.3, 0.3, 0.67, 0.21),
)

_ENTRIES = (
    Entry(
        name="fashion-small",
        title="Fashion-MNIST, T-shirts and trousers, 14 x 14 pixels",
        classes=("T-shirt/top", "trouser"),
        licence="MIT, Copyright 2017 Zalando SE",
        records=(12_000, 2_000),
        features=196,
        dtype="uint8",
        ranges=PIXELS,
        loader=loaders.fashion_small,
        home="embedded",
        note="Each pixel is the mean of 2 x 2 of the original's. Comes with relaydp; needs no download.",
    ),
    Entry(
        name="breast-cancer",
        title="Breast Cancer Wisconsin (diagnostic)",
        classes=("malignant", "benign"),
        licence="CC BY 4.0 (UCI Machine Learning Repository), as shipped with scikit-learn",
        records=(456, 113),
        features=30,
        dtype="float64",
        ranges=(BREAST_CANCER_LOW, BREAST_CANCER_HIGH),
        loader=loaders.breast_cancer,
        home="scikit-learn",
        aliases=("cancer", "wdbc", "breast-cancer-wisconsin"),
        columns=tuple(shape.format(name) for shape in ("mean {}", "{} error", "worst {}") for name in CELL_MEASURES),
        note="No official test part: a fixed fifth of each class is kept for testing.",
    ),
    Entry(
        name="digits",
        title="Handwritten digits, 8 x 8 pixels, ten classes",
        classes=tuple("0123456789"),
        licence="CC BY 4.0 (UCI Machine Learning Repository), as shipped with scikit-learn",
        records=(1_438, 359),
        features=64,
        dtype="uint8",
        ranges=(0, 16),
        loader=loaders.digits,
        home="scikit-learn",
        aliases=("optdigits",),
        note="Labels are 0 to 9. A fixed fifth of each class is kept for testing.",
    ),
    Entry(
        name="ijcnn1",
        title="IJCNN 2001 neural network challenge",
        classes=("-1", "+1"),
        licence="none stated by the LIBSVM collection",
        records=(49_990, 91_701),
        features=22,
        dtype="float64",
        ranges=IJCNN1_RANGES,
        loader=loaders.ijcnn1,
        files=fetch.IJCNN1,
        aliases=("ijcnn",),
        note="Rows are consecutive time steps, in the file's order: not shuffled. A tenth are positive.",
    ),
    Entry(
        name="mnist",
        title="MNIST, digits 0 and 1",
        classes=("0", "1"),
        licence="CC BY-SA 3.0 as commonly given; Yann LeCun and Corinna Cortes",
        records=(12_665, 2_115),
        features=784,
        dtype="uint8",
        ranges=PIXELS,
        loader=loaders.mnist,
        files=fetch.MNIST,
        aliases=("mnist-01", "mnist01", "mnist-0-1", "mnist-pair"),
        note="28 x 28 pixels, in the file's order.",
    ),
    Entry(
        name="fashion",
        title="Fashion-MNIST, T-shirts and trousers",
        classes=("T-shirt/top", "trouser"),
        licence="MIT, Copyright 2017 Zalando SE",
        records=(12_000, 2_000),
        features=784,
        dtype="uint8",
        ranges=PIXELS,
        loader=loaders.fashion,
        files=fetch.FASHION,
        aliases=("fashion-mnist", "fashionmnist", "fashion-pair", "fmnist"),
        note="28 x 28 pixels, in the file's order.",
    ),
    Entry(
        name="cifar10",
        title="CIFAR-10, cats and dogs",
        classes=("cat", "dog"),
        licence="none stated; the author asks to cite A. Krizhevsky, 2009 (Tiny Images)",
        records=(10_000, 2_000),
        features=3_072,
        dtype="uint8",
        ranges=PIXELS,
        loader=loaders.cifar10,
        files=fetch.CIFAR10,
        aliases=("cifar", "cifar-10", "cifar10-cat-dog", "cifar-10-cat-dog", "cifar10-pair"),
        note="32 x 32 pixels: all red values, then green, then blue, in the archive's order.",
    ),
)
CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}
_ALIASES = {alias: entry.name for entry in _ENTRIES for alias in (entry.name, *entry.aliases)}


def catalogue_names() -> tuple[str, ...]:
    """The names that load_data knows; first those that need no download.

    >>> catalogue_names()[0]
    'fashion-small'
    """
    return tuple(CATALOGUE)


def load_data(
    source: str | os.PathLike[str],
    *,
    label: str | None = None,
    groups: str | Iterable[str] = (),
    drop: str | Iterable[str] = (),
    features: int | None = None,
) -> Records:
    """Load a data set by its catalogue name, or a file of your own by its path.

    Args:
        source: A name as in `relaydp data list`, or the path of a CSV, Parquet, LIBSVM or NPZ file. A name takes
            precedence over a file of the same name: write ./digits for the file.
        label: The file's column to predict. Default: the one called label, target, y or class, or else the last.
        groups: Columns that are not features, such as "hospital": `agents="hospital"` splits the records by one.
            Default: none.
        drop: Columns to leave out, such as a number that names a patient. Default: none.
        features: How many features a record has. A LIBSVM file does not say, and a private run on one needs it.
            Default: None, as many as are found.

    Returns:
        Records. A data set of the catalogue brings its public ranges and classes, and test records.

    Raises:
        InputError: There is no such name or file, a column is missing, a feature is not a number, the number of
            features is another, or a data set's file is not here and cannot be fetched.

    Example:
        >>> import relaydp as rd
        >>> rd.load_data("fashion-small")
        Records('fashion-small', records=12000, features=196, uint8, test=2000)
    """
    groups, drop = ((names,) if isinstance(names, str) else tuple(names) for names in (groups, drop))
    if not _is_name(source):
        records = read_table(Path(source), label=label, groups=groups, drop=drop, features=features)
        columns = {"label": label, "groups": list(groups), "drop": list(drop), "features": features}
        return replace(records, source={"source": str(Path(source).absolute()), **columns})
    entry = _entry(source)
    if label is not None or groups or drop:
        raise InputError(
            f"label=, groups= and drop= name columns of a file, and {entry.name!r} is a data set of the catalogue. "
            "Leave them out."
        )
    X, y, X_test, y_test = entry.loader()
    about: dict[str, Any] = {"ranges": entry.ranges, "columns": entry.columns, "classes": entry.labels}
    test = Records(X_test, y_test, name=f"{entry.name} (test)", **about)
    records = Records(X, y, test=test, name=entry.name, source={"source": entry.name}, **about)
    check_width(records, features)
    return records


def describe(name: str) -> dict[str, Any]:
    """The public facts of a data set of the catalogue, without loading it, as plain JSON values.

    `available` says where the data come from: embedded, scikit-learn, local file, or needs download.

    >>> describe("digits")["train_records"], describe("digits")["available"]
    (1438, 'scikit-learn')
    """
    entry = _entry(name)
    here = all(fetch.located(original.path) for original in entry.files)
    low, high = entry.ranges
    return {
        "name": entry.name,
        "title": entry.title,
        "train_records": entry.records[0],
        "test_records": entry.records[1],
        "features": entry.features,
        "dtype": entry.dtype,
        "classes": list(entry.classes),
        "ranges": [list(bound) if isinstance(bound, tuple) else bound for bound in (low, high)],
        "licence": entry.licence,
        "available": entry.home or ("local file" if here else "needs download"),
        "files": [original.path for original in entry.files],
        "aliases": list(entry.aliases),
        "note": entry.note,
    }


def _plain(name: object) -> str:
    return str(name).strip().lower().replace("_", "-").replace(" ", "-")


def _is_name(source: object) -> bool:
    """Names have no separator and no suffix of a file; an existing file is a path if its name is free."""
    if not isinstance(source, str):
        if isinstance(source, os.PathLike):
            return False
        raise InputError(
            f"the data source is a {type(source).__name__}; it must be a name of the catalogue or a path. For arrays "
            "use Records(X, y)."
        )
    if _plain(source) in _ALIASES:
        return True
    separated = "/" in source or os.sep in source
    return not (separated or file_kind(Path(source)) or Path(source).is_file())


def _entry(name: object) -> Entry:
    plain = _plain(name)
    if plain in _ALIASES:
        return CATALOGUE[_ALIASES[plain]]
    try:
        choose("data set", name, CATALOGUE)
    except InputError as error:
        suffixes = ", ".join(KINDS)
        if Path(str(name)).is_dir():
            raise InputError(f"{name!r} is a folder, and no data set has this name; pass a file in it.") from None
        if near := nearest_file(Path(f"{name}.csv"), alike=1.0):  # a suffix was forgotten
            raise InputError(f"{name!r} is neither a data set of the catalogue nor a file here. {near}") from None
        raise InputError(f"{error} Pass a file of your own by its path, which must end in one of {suffixes}.") from None
    raise AssertionError("every catalogue name is its own alias")
