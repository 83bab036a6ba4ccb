"""The problems that the rule of `relaydp.planning.accuracy` was made on: 93 of two classes, in ten kinds.

The data sets that docs/planner.md reports are not among them, save bank in its table of small data sets: MNIST 0/1,
Fashion-MNIST 0/1, CIFAR-10 and ijcnn1. Some problems have one class in common with a reported pair; their records, the
held-out ones too, are all from the training files.

    pairs                  other pairs of classes, 9,000 records
    few records            the same with 1,500
    low contrast           the same as pale shapes over the mean image of all classes, 3,136 pixels, as photographs are
    wrong labels           the same with 15 to 35 % of the labels turned over
    one against the rest   a class against the nine others, 49 or 196 means of pixels, 45,000 records
    bank                   five columns of Bank Marketing, each from the others, with 36,000 and with 4,000 records
    generated              tables of 22 columns whose variances fall or do not, with equal and unequal classes
    uncertain labels       tables of 10 columns that tell little of the label, 5 to 50 % of which are positive
    unbalanced             tables of 20 columns, one of which tells the classes apart; 3 to 35 % are positive
    sparse                 300 columns that are 0 in 99 of 100 records

Images come from the original files (`RELAYDP_DATA`, or a download). Every record has norm 1 at most; labels are -1 and
+1.
"""

from __future__ import annotations

import csv
import functools
import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from relaydp.data import fetch, loaders

BANK = "bank-full.csv.gz"
# Public bounds of bank's numbers. `duration` is left out: it is known only after the call that y is about.
NUMBERS = {
    "age": (18, 95),
    "balance": (-2000, 10000),
    "day": (1, 31),
    "campaign": (1, 20),
    "pdays": (-1, 400),
    "previous": (0, 10),
}
CATEGORIES = ("job", "marital", "education", "default", "housing", "loan", "contact", "month", "poutcome")
PAIRS = {
    "mnist": ((2, 3), (4, 9), (3, 5), (7, 9), (5, 8), (1, 7), (2, 7), (0, 6), (3, 8)),
    "fashion": ((2, 4), (0, 6), (2, 6), (3, 4), (7, 9), (5, 7), (0, 3), (1, 3), (8, 9), (4, 6), (0, 2), (1, 6)),
}
# Generated: the power by which variances fall, and how far the classes are from equally frequent.
# Uncertain labels: the share of positives, and the standard deviation of their log-odds.
UNCERTAIN = ((0.05, 2.0), (0.1, 2.0), (0.2, 0.7), (0.2, 1.0), (0.2, 2.0), (0.35, 0.6), (0.35, 1.5), (0.5, 0.6))
# Unbalanced: the share of positives, how far apart the classes are, and the number of records.
UNBALANCED = (
    (0.03, 1.2, 16000),
    (0.1, 1.0, 16000),
    (0.2, 0.7, 16000),
    (0.03, 1.2, 1600),
    (0.1, 1.0, 1600),
    (0.35, 0.5, 1600),
)
TABLES = ((1.0, 0.0), (1.0, 1.5), (2.0, 0.0), (2.0, 1.5), (0.0, 0.0), (0.0, 1.5))


# Nobody looked at these while the rule's constants were chosen: its regret is that of a new problem there. LAPS and
# STRETCH are older than this list, and come from all 85 problems that there were then.
HELD_BACK = frozenset(
    (
        "mnist58-pale mnist17-pale mnist35-wrong mnist3-rest7 mnist8-rest7 mnist5-rest14 fashion26 fashion34 "
        "fashion79 fashion03 fashion46 fashion16 fashion26-few fashion34-few fashion79-few fashion06-pale "
        "fashion26-pale fashion34-pale fashion79-pale fashion57-pale fashion06-wrong fashion26-wrong "
        "fashion6-rest7 fashion2-rest14 fashion5-rest14 bank-loan-few bank-age table2 table4"
    ).split()
)


class Records(NamedTuple):
    """Rows of norm 1 at most, float32, and labels -1 and +1."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


class Development(NamedTuple):
    """A problem to choose constants on."""

    name: str
    kind: str
    load: Callable[[], Records]


def development() -> Iterator[Development]:
    """All of them; records are read when `load` is called."""
    for data, pairs in PAIRS.items():
        for pair in pairs:
            yield _pair("pairs", data, pair, "", 9000, 2000)
        for pair in pairs[:5]:
            yield _pair("few records", data, pair, "-few", 1500, 4000)
        for pair, share in zip(pairs[:6], (0.15, 0.25, 0.35) * 2, strict=True):
            yield _pair("low contrast", data, pair, "-pale", 9000, 2000, contrast=share)
        for pair, share in zip(pairs[:3], (0.15, 0.25, 0.35), strict=True):
            yield _pair("wrong labels", data, pair, "-wrong", 9000, 2000, wrong=share)
        for one in (1, 3, 6, 8):
            yield _against_the_rest(data, one, 7)
        for one in (2, 5):
            yield _against_the_rest(data, one, 14)
    for label in ("y", "housing", "loan", "contact", "age"):
        yield Development(f"bank-{label}", "bank", lambda label=label: _bank_problem(label, "", 36000, 9000))
        yield Development(f"bank-{label}-few", "bank", lambda label=label: _bank_problem(label, "-few", 4000, 20000))
    for number, (decay, shift) in enumerate(TABLES):
        yield Development(
            f"table{number}", "generated", lambda n=number, d=decay, s=shift: generated(f"table{n}", d, s, 45000, 10000)
        )
    for number, (positive, spread) in enumerate(UNCERTAIN):
        name = f"uncertain{number}"
        yield Development(
            name, "uncertain labels", lambda n=name, p=positive, s=spread: uncertain(n, p, s, 16000, 20000)
        )

    for number, (share, distance, records) in enumerate(UNBALANCED):
        name = f"unbalanced{number}"
        yield Development(
            name, "unbalanced", lambda n=name, s=share, d=distance, m=records: unbalanced(n, s, d, m, 8000)
        )
    for number, records in enumerate((16000, 1600)):
        name = f"sparse{number}"
        yield Development(name, "sparse", lambda n=name, m=records: sparse(n, m, 8000))


def at_most_one(X: np.ndarray) -> np.ndarray:
    """Rows longer than 1 are shrunk to 1, as `record_norm=1.0` does."""
    return (X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)).astype(np.float32)


def _draw(name: str) -> np.random.Generator:
    """Every problem has its own, so that one of them alone has the same records as among all."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def _split(X: np.ndarray, y: np.ndarray, train: int, test: int, draw: np.random.Generator) -> Records:
    order = draw.permutation(len(X))
    assert len(order) >= train + test, f"{len(order)} records; needed {train} + {test}"
    a, b = order[:train], order[train : train + test]
    return Records(at_most_one(X[a]), y[a], at_most_one(X[b]), y[b])


# -- images


@functools.cache
def _images(data: str) -> tuple[np.ndarray, np.ndarray]:
    """All ten classes of the training part, pixels from 0 to 1."""
    files = {"mnist": fetch.MNIST, "fashion": fetch.FASHION}[data]
    images, classes = map(loaders.read_idx, fetch.find(files[:2]))
    return images.reshape(len(images), -1) / np.float32(255.0), classes.astype(int)


def _pair(
    kind: str,
    data: str,
    pair: tuple[int, int],
    ending: str,
    train: int,
    test: int,
    *,
    contrast: float | None = None,
    wrong: float | None = None,
) -> Development:
    name = f"{data}{pair[0]}{pair[1]}{ending}"

    def load() -> Records:
        images, classes = _images(data)
        draw, kept = _draw(name), np.isin(classes, pair)
        X, y = images[kept], np.where(classes[kept] == pair[1], 1, -1)
        if contrast is not None:
            background = images.mean(0) + 0.3
            X = _enlarged(background + contrast * (X - background))
        if wrong is not None:
            y = np.where(draw.random(len(y)) < wrong, -y, y)
        return _split(X, y, train, test, draw)

    return Development(name, kind, load)


def _enlarged(X: np.ndarray) -> np.ndarray:
    """Each of the 28 x 28 pixels as 2 x 2."""
    return X.reshape(-1, 28, 28).repeat(2, 1).repeat(2, 2).reshape(len(X), 3136)


def _pooled(X: np.ndarray, side: int) -> np.ndarray:
    """The means of side x side squares."""
    size = 28 // side
    return X.reshape(len(X), side, size, side, size).mean((2, 4)).reshape(len(X), side * side)


def _against_the_rest(data: str, one: int, side: int) -> Development:
    name = f"{data}{one}-rest{side}"

    def load() -> Records:
        images, classes = _images(data)
        X = _pooled(images, side)
        if side == 7:  # as a table: values from -1 to 1, and a constant
            X = np.column_stack([2.0 * X - 1.0, np.ones(len(X))])
        return _split(X, np.where(classes == one, 1, -1), 45000, 10000, _draw(name))

    return Development(name, "one against the rest", load)


# -- tables


def bank_file() -> Path:
    file = fetch.located(BANK)
    if file is None:
        raise SystemExit(f"{BANK} was not found. Put UCI's Bank Marketing, comma-separated, in ${fetch.VARIABLE}.")
    return file


@functools.cache
def _bank() -> dict[str, np.ndarray]:
    """Column -> (records, width): numbers from 0 to 1, categories as zeros and a one; and `y`."""
    with gzip.open(bank_file(), "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {}
    for name, (low, high) in NUMBERS.items():
        values = np.clip([float(row[name]) for row in rows], low, high)
        columns[name] = ((values - low) / (high - low))[:, None]
    for name in CATEGORIES:
        values = np.array([row[name] for row in rows])
        columns[name] = (values[:, None] == np.unique(values)).astype(float)
    columns["y"] = np.array([row["y"] == "yes" for row in rows], float)[:, None]
    return columns


def bank(label: str = "y") -> tuple[np.ndarray, np.ndarray]:
    """Everything but the label's column and y, with a constant; and a yes or no made of the label's column."""
    columns = _bank()
    parts = [values for name, values in columns.items() if name not in (label, "y")]
    X = np.column_stack([*parts, np.ones(len(parts[0]))])
    which = {"y": 0, "age": 0, "contact": 0, "housing": 1, "loan": 1}[label]
    return X, np.where(columns[label][:, which] > (0.3 if label == "age" else 0.5), 1, -1)


def _bank_problem(label: str, ending: str, train: int, test: int) -> Records:
    return _split(*bank(label), train, test, _draw(f"bank-{label}{ending}"))


def generated(name: str, decay: float, shift: float, train: int, test: int, features: int = 22) -> Records:
    """Normal columns with variances k^-decay, a logistic label with weights of length 3 in the scale of the columns."""
    draw = _draw(name)
    spread = np.arange(1.0, features + 1.0) ** (-decay / 2.0)
    X = draw.normal(size=(train + test, features)) * spread
    weights = draw.normal(size=features) / spread
    weights *= 3.0 / np.linalg.norm(weights * spread)
    y = np.where(draw.random(len(X)) < 1.0 / (1.0 + np.exp(1.5 * shift - X @ weights)), 1, -1)
    X = np.column_stack([X / np.linalg.norm(spread), np.ones(len(X))]) / np.sqrt(2.0)
    return _split(X, y, train, test, draw)


def uncertain(name: str, positive: float, spread: float, train: int, test: int, features: int = 10) -> Records:
    """Uniform columns and a logistic label whose log-odds have standard deviation `spread` around a constant."""
    draw = _draw(name)
    X = draw.uniform(-1.0, 1.0, size=(train + test, features))
    weights = draw.normal(size=features)
    odds = spread * np.sqrt(3.0) / np.linalg.norm(weights) * (X @ weights)
    constant = brentq(lambda c: float(expit(odds + c).mean()) - positive, -30.0, 30.0)
    y = np.where(draw.random(len(X)) < expit(odds + constant), 1, -1)
    return _split(np.column_stack([X, np.ones(len(X))]) / np.sqrt(features + 1.0), y, train, test, draw)


def unbalanced(name: str, share: float, distance: float, train: int, test: int, features: int = 20) -> Records:
    """Normal columns of deviation 1/2; the first is larger by `distance` in the positives."""
    draw = _draw(name)
    positive = draw.random(train + test) < share
    X = 0.5 * draw.normal(size=(train + test, features))
    X[:, 0] += distance * positive
    X = np.column_stack([X, np.ones(len(X))]) / np.sqrt(features / 4.0 + 1.0)
    return _split(X, np.where(positive, 1, -1), train, test, draw)


def sparse(name: str, train: int, test: int, features: int = 300) -> Records:
    """Columns of zeros and few ones, normal weights, and a label that is positive beyond 1/2."""
    draw = _draw(name)
    X = (draw.random((train + test, features)) < 0.01).astype(float)
    y = np.where(X @ draw.normal(size=features) + 0.3 * draw.logistic(size=len(X)) > 0.5, 1, -1)
    return _split(np.column_stack([X, np.ones(len(X))]) / 2.0, y, train, test, draw)
