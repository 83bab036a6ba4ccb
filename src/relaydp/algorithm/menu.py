"""The steps that an algorithm offers, as data: what they are, which are recommended, which may be tried, which refused.

An algorithm brings a `Menu` and decides nothing itself. `planning.tuning` reads the menu and chooses.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from relaydp.errors import InputError
from relaydp.graph import Graph
from relaydp.problem import Facts

LAPS = ("lap", "closing")
CONDITION = 1e-3  # curvature below this share of L is left out: no number of activations would reach it


class Menu(NamedTuple):
    """All functions take public facts: in a private run nothing else decides steps."""

    steps: type  # a NamedTuple of numbers; a field is one number, or one per agent
    paper: Callable[[Facts, Graph], Any]  # what the method's paper recommends
    grid: Callable[[Facts, Graph], list[Any]]  # candidates to choose from, each of which passes `check`
    check: Callable[[Any, Facts, Graph], None]  # raises InputError for steps that the theory forbids
    per_agent: tuple[str, ...] = ()  # fields with one number per agent
    fixed: tuple[str, ...] = ()  # fields that a user may set and that are never tuned; they have defaults
    cautious: Callable[[Facts, Graph], Any] | None = None  # for networks too large to simulate; default: `paper`
    laps: bool = False  # whether `lap` and `closing` are fields, which planning fills in for the walk, and nobody else

    @property
    def names(self) -> tuple[str, ...]:
        """The steps that a user may give."""
        return tuple(name for name in self.steps._fields if not (self.laps and name in LAPS))  # type: ignore[attr-defined]


def product(**ranges: Any) -> list[dict[str, Any]]:
    """All combinations: product(a=(1, 2), b=(3,)) is [{a: 1, b: 3}, {a: 2, b: 3}]."""
    return [dict(zip(ranges, values, strict=True)) for values in itertools.product(*ranges.values())]


def refuse(name: str, value: float, limit: float, why: str) -> None:
    """Raise unless a step is below its limit."""
    if not value < limit:
        raise InputError(f"step {name}={value:.4g} is not below {limit:.4g} ({why}); lower it, or use steps='tuned'.")
