"""Experiments: cells to compute, each stored in its own file, and the tables and figures made of them.

    cells(effort)            -> the cells: frozen dataclasses with everything that determines their outcome
    measure(cell, progress)  -> the outcome, as JSON
    show(found, folder)      -> blocks of a page: text, tables, figures

A cell's name is made of its content, so an interrupted run continues where it stopped, and two experiments with the
same runs share them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

DATA = ("ijcnn1", "mnist", "fashion", "cifar10")
TITLES = {"ijcnn1": "ijcnn1", "mnist": "MNIST", "fashion": "Fashion-MNIST", "cifar10": "CIFAR-10"}
LOSSES = {"linear": "linear regression", "logistic": "logistic regression"}
AS_PRINTED, USEFUL = "as-printed", "useful"

Progress = Callable[[int, int], None]


class Effort(NamedTuple):
    """How much of the paper to compute."""

    name: str
    data: tuple[str, ...] = DATA
    every: bool = True  # rank all algorithms, not only the paper's
    seeds: int = 16
    slow_seeds: int = 1  # of RW-ADMM as printed, which minimises exactly at every hop of its walk
    fixed: int = 300  # PLF of the tables' fixed steps
    decaying: int = 2000  # PLF of the tables' decaying steps
    figure: int = 500  # PLF of the figures
    sizes: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256)  # agents, in the complexity tables
    walks: int = 8  # repeats of each size there
    images: int = 8  # attacked, per data set
    search: int = 0  # steps of an attack's search, from one start; 0: each method's own numbers


FULL = Effort("full")
QUICK = Effort(
    "quick",
    data=DATA[:3],  # CIFAR-10 takes as long as the other three together
    every=False,
    seeds=3,
    fixed=30,
    decaying=60,
    figure=30,
    sizes=(4, 8, 16, 32),
    walks=3,
    images=2,
    search=150,
)


class ResultTable(NamedTuple):
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    note: str = ""


class Picture(NamedTuple):
    """A figure, drawn as folder/figures/NAME.png and .svg."""

    name: str
    caption: str


Block = str | ResultTable | Picture


def seeds_of(algorithm: str, effort: Effort) -> int:
    return min(effort.slow_seeds, effort.seeds) if algorithm == "rw-admm" else effort.seeds


def title_of(data: str) -> str:
    return TITLES.get(data, data)


@dataclass(frozen=True)
class Cell:
    """The base of all cells: a file name made of its content."""

    alone: ClassVar[bool] = False  # whether no other cell may run at the same time, because it measures time

    @property
    def long(self) -> int:
        """0, or roughly how much longer than most it takes: the longest are started first, each in its own lot."""
        return 0

    @property
    def key(self) -> str:
        content = json.dumps({"kind": type(self).__name__, **asdict(self)}, sort_keys=True)
        words = [str(value) for value in asdict(self).values() if isinstance(value, str) and value]
        return f"{'-'.join(words)[:80]}-{hashlib.sha256(content.encode()).hexdigest()[:10]}"


REFUSED, MISSING = "refused", "missing"


def absent(outcome: dict[str, Any]) -> str:
    """The text in a table if a cell has no number."""
    return MISSING if outcome.get("error") == MISSING else REFUSED


class Found(NamedTuple):
    """The outcomes of the cells of one experiment."""

    effort: Effort
    cells: dict[str, Any]  # key -> outcome; {"error": text} if a cell could not be computed

    def of(self, cell: Cell) -> dict[str, Any]:
        return self.cells.get(cell.key, {"error": MISSING})


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    printed: str  # its place in the paper
    cells: Callable[[Effort], Iterable[Cell]]
    measure: Callable[[Any, Progress | None], dict[str, Any]]
    show: Callable[[Found, Path], list[Block]]
