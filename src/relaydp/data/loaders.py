"""One loader for each data set of the catalogue: from the file's bytes to (X, y, X_test, y_test).

The image loaders keep uint8 pixels and the file's order. Two classes become labels -1 (the first) and +1.
"""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path
from typing import NamedTuple

import numpy as np

from relaydp.data import fetch
from relaydp.data.formats import read_libsvm

FASHION_SMALL = Path(__file__).parent / "embedded" / "fashion-small.npz"


class Parts(NamedTuple):
    """What a loader returns: a training part and a test part."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def _pair(X: np.ndarray, classes: np.ndarray, first: int, second: int) -> tuple[np.ndarray, np.ndarray]:
    """The records of two classes, in their order, labelled -1 and +1."""
    kept = np.isin(classes, (first, second))
    return X[kept], np.where(classes[kept] == first, -1, 1).astype(np.int8)


def read_idx(path: Path) -> np.ndarray:
    """An IDX file: two zero bytes, the type (8: uint8), the number of axes, their lengths, the values."""
    with gzip.open(path) as file:
        data = file.read()
    axes = data[3]
    shape = np.frombuffer(data, ">u4", count=axes, offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _read_idx_pair(originals: tuple[fetch.Original, ...]) -> Parts:
    images, classes, test_images, test_classes = map(read_idx, fetch.find(originals))
    train = _pair(images.reshape(len(images), -1), classes, 0, 1)
    return Parts(*train, *_pair(test_images.reshape(len(test_images), -1), test_classes, 0, 1))


def mnist() -> Parts:
    return _read_idx_pair(fetch.MNIST)


def fashion() -> Parts:
    return _read_idx_pair(fetch.FASHION)


def fashion_small() -> Parts:
    """Made by scripts/make_fashion_small.py; stored column by column, which compresses 10 % better."""
    with np.load(FASHION_SMALL, allow_pickle=False) as stored:
        by_column, y = stored["images_by_column"], stored["y"]
        train = int(stored["train"])
    X = by_column.swapaxes(1, 2).reshape(len(y), -1)
    return Parts(X[:train], y[:train], X[train:], y[train:])


def cifar10() -> Parts:
    """Each record: 1 class byte, then 1,024 red, 1,024 green and 1,024 blue bytes, row by row."""
    parts: list[np.ndarray] = []
    for path in fetch.find(fetch.CIFAR10):
        with gzip.open(path) as file:
            records = np.frombuffer(file.read(), np.uint8).reshape(-1, fetch.CIFAR_RECORD)
        parts.extend(_pair(records[:, 1:], records[:, 0], fetch.CAT, fetch.DOG))
    return Parts(*parts)


def ijcnn1() -> Parts:
    (X, y), (X_test, y_test) = (read_libsvm(path, features=22) for path in fetch.find(fetch.IJCNN1))
    return Parts(X, y.astype(np.int8), X_test, y_test.astype(np.int8))


def _split(X: np.ndarray, y: np.ndarray, seed: int = 0) -> Parts:
    """Keep a fifth of each class for testing, always the same records, both parts in the original order.

    RandomState because NumPy promises that its stream never changes; newer generators may.
    """
    draw = np.random.RandomState(seed)
    tested = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        members = np.flatnonzero(y == label)
        tested[draw.permutation(members)[: round(len(members) / 5)]] = True
    return Parts(X[~tested], y[~tested], X[tested], y[tested])


def _shipped(name: str) -> np.ndarray | None:
    """A table inside the scikit-learn package; None if it has moved. Importing scikit-learn would take a second."""
    spec = importlib.util.find_spec("sklearn")
    for folder in (spec and spec.submodule_search_locations) or ():
        file = Path(folder) / "datasets" / "data" / name
        if file.is_file():
            header = 0 if name.endswith(".gz") else 1
            return np.loadtxt(file, delimiter=",", skiprows=header)
    return None


def breast_cancer() -> Parts:
    table = _shipped("breast_cancer.csv")
    if table is None:
        from sklearn.datasets import load_breast_cancer

        X, classes = load_breast_cancer(return_X_y=True)
        table = np.column_stack([np.asarray(X), np.asarray(classes)])
    return _split(*_pair(table[:, :-1], table[:, -1], 0, 1))


def digits() -> Parts:
    table = _shipped("digits.csv.gz")
    if table is None:
        from sklearn.datasets import load_digits

        X, classes = load_digits(return_X_y=True)
        table = np.column_stack([np.asarray(X), np.asarray(classes)])
    return _split(table[:, :-1].astype(np.uint8), table[:, -1].astype(np.int8))
