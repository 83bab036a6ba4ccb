"""What is known of a problem without its records, and the same for all who build one from a file or from arguments.

A consortium's [problem] table (`network`), the arguments of `solve_apart` (`cluster`), and the settings of a run
(`settings`) each check what users give them, in their own words. What they then hold is a `ProblemSpec`:

    build           the problem over records
    build_as_agreed the same, whatever those records say of themselves
    facts           the public facts of that problem, for sizes only
    outline         a problem without records: for plans, not for computing

Which option belongs to which loss, and what ranges look like in a file, is here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relaydp import defaults
from relaydp.data import Records
from relaydp.errors import InputError, short
from relaydp.problem.bounds import Facts
from relaydp.problem.build import LOSSES, Agents, custom
from relaydp.problem.facts import public_facts
from relaydp.problem.partition import Split
from relaydp.problem.problem import Problem
from relaydp.prox import Regulariser

OPTIONS_OF = {"label_bound": "least-squares", "threshold": "huber"}  # what belongs to one loss only
# Ends of ranges beyond these are typing errors, and their squares would keep too few digits.
LEAST, MOST = 1e-12, 1e12


@dataclass(frozen=True)
class ProblemSpec:
    """What is minimised, described without any record. Everything in it is public."""

    loss: str | Callable[..., Any]  # a name of LOSSES, or a function of (x, a, b)
    columns: tuple[str, ...] | None = None  # the features' names in order, or
    features: int | None = None  # their number
    label: str | None = None
    classes: Sequence[Any] | None = None
    l1: float = defaults.L1
    l2: float = defaults.L2
    regulariser: Regulariser | None = None
    intercept: bool = defaults.INTERCEPT
    record_norm: float | str | None = None  # a number, or "typical", which the ranges decide
    ranges: Any = None  # (lows, highs), numbers or one for each feature
    one_hot: Any = None  # groups of columns of which at most one is not 0
    clip: float | None = None
    label_bound: float | None = None
    threshold: float | None = None
    smoothness: float | None = None  # of a function, as is
    dim: int | None = None

    @property
    def name(self) -> str:
        """The name of the loss; a function's own name."""
        return self.loss if isinstance(self.loss, str) else getattr(self.loss, "__qualname__", "custom")

    @property
    def width(self) -> int:
        """How many features a record has."""
        return int(self.features or 0) if self.columns is None else len(self.columns)

    def _given(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def build(self, records: Records, agents: Agents) -> Problem:
        """The problem over these records; where ranges or classes are not given, those that the records bring."""
        options = self._given("l1", "l2", "regulariser", "record_norm", "ranges", "one_hot", "clip")
        if not isinstance(self.loss, str):
            return custom(self.loss, records, agents, **options, **self._given("smoothness", "dim"))
        return LOSSES[self.loss](records, agents, **options, **self._given("intercept", "classes", *OPTIONS_OF))

    def build_as_agreed(self, records: Records, sizes: Sequence[int]) -> Problem:
        """The same, with everything as it was agreed: what the records bring besides themselves was not."""
        return self.build(replace(records, ranges=None, classes=None, test=None, groups={}), sizes)

    def facts(self, sizes: Sequence[int]) -> Facts:
        """The public facts that decide steps, noise and plan, for agents with so many records; no record is needed."""
        assert isinstance(self.loss, str)
        options = self._given("record_norm", "l2", "clip", "intercept", *OPTIONS_OF)
        if self.classes is not None:
            options["classes"] = len(self.classes)
        return public_facts(sizes, self.width, loss=self.loss, **options)

    def outline(self, sizes: Sequence[int], names: Sequence[str] = ()) -> Problem:
        """The problem without records: two blank ones give the shape.

        It checks every option as `relaydp.logistic` and the others do, and has the public facts of the real one.
        Methods that use records (agent_records, objective, accuracy) have no meaning here.

        >>> spec = ProblemSpec("logistic", features=3, classes=(0, 1), record_norm=1.0)
        >>> spec.outline([20, 30]).public_facts().sizes.tolist(), spec.facts([20, 30]).dim
        ([20, 30], 3)
        """
        labels = np.asarray(self.classes)[[0, -1]] if self.classes is not None else np.zeros(2)
        blank = Records(np.zeros((2, self.width)), labels, columns=self.columns, name=f"{len(sizes)} parts")
        shape = self.build_as_agreed(blank, [2])
        called = tuple(names) or tuple(f"agent {i}" for i in range(len(sizes)))
        split = Split(np.empty(0, np.int64), np.asarray(sizes, np.int64), called)
        return replace(shape, split=split, spec={**shape.spec, "agents": split.sizes.tolist()})


def misplaced(loss: object, given: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first given option that belongs to another loss, and that loss.

    >>> misplaced("logistic", {"threshold": 1.0, "label_bound": None})
    ('threshold', 'huber')
    """
    for name, owner in OPTIONS_OF.items():
        if given.get(name) is not None and loss != owner:
            return name, owner
    return None


# -- ranges in files


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def ranges_by_end(value: object) -> tuple[Any, Any]:
    """[low, high] of all features, or [[low, ...], [high, ...]]: a run's file.

    >>> ranges_by_end([[0, 0], [1, 255]])
    ([0, 0], [1, 255])
    """
    if isinstance(value, list | tuple) and len(value) == 2:
        low, high = value
        if all(_is_number(end) or (isinstance(end, list) and end and all(map(_is_number, end))) for end in value):
            return low, high
    raise InputError(f"ranges={value!r}; needed [low, high], numbers or a list of each, 'fit' or 'fit-public'.")


def ranges_by_feature(value: object) -> tuple[Any, ...]:
    """[low, high] of all features, or [[low, high], ...] with one for each: a consortium's file.

    >>> ranges_by_feature([[0, 1], [0, 255]])
    ((0.0, 1.0), (0.0, 255.0))
    """

    def bounded(end: Any) -> bool:
        return _is_number(end) and abs(end) <= MOST

    rows: list[Any] = list(value) if isinstance(value, list | tuple) else []
    single = len(rows) == 2 and all(map(bounded, rows))
    pairs = [rows] if single else rows
    for pair in pairs:
        good = isinstance(pair, list | tuple) and len(pair) == 2 and all(map(bounded, pair))
        if not good or not LEAST <= pair[1] - pair[0]:
            raise InputError(f"a range is {short(pair)}; it must be [low, high] with low < high, both finite.")
    if not pairs:
        raise InputError(f"ranges = {short(value)}; they must be [low, high], or a list of such pairs, one per column.")
    made = tuple((float(low), float(high)) for low, high in pairs)
    return made[0] if single else made


def by_end(ranges: tuple[Any, ...] | None) -> tuple[Any, Any] | None:
    """What `ranges_by_feature` read, as a problem takes it.

    >>> by_end(((0.0, 1.0), (0.0, 255.0)))
    ([0.0, 0.0], [1.0, 255.0])
    """
    if ranges is None or not isinstance(ranges[0], tuple):
        return ranges  # type: ignore[return-value]
    low, high = zip(*ranges, strict=True)
    return list(low), list(high)
