"""What `steps=` means, for every algorithm alike: "tuned" in the lab, "paper" (its theory's point), or numbers.

An algorithm brings a `Menu`: its steps' type, the point its paper recommends, a grid of candidates for the lab, and the
check that refuses what its theory (or sense) forbids.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from relaydp.algorithm.lab import DEFAULT_ACTIVATIONS, LARGE, Kernel, find_steps
from relaydp.algorithm.outlook import Noise, Outlook, look_ahead
from relaydp.arrays import placed
from relaydp.errors import InputError, choose
from relaydp.graph import Graph
from relaydp.problem import Facts

MANY_AGENTS_ACTIVATIONS = 20  # of a private run on a network too large for the lab


class Menu(NamedTuple):
    steps: type  # a NamedTuple of numbers; fields may be one number or one an agent
    paper: Callable[[Facts, Graph], Any]
    grid: Callable[[Facts, Graph], list[Any]]  # candidates, each inside `check`
    check: Callable[[Any, Facts, Graph], None]  # raises InputError
    per_agent: tuple[str, ...] = ()  # fields with one number an agent
    fixed: tuple[str, ...] = ()  # fields that are asked for, never tuned; they have defaults
    cautious: Callable[[Facts, Graph], Any] | None = None  # for networks too large for the lab; default: `paper`


def as_arrays(menu: Menu, steps: Any, agents: int) -> Any:
    """Steps as float64 arrays of NumPy, per-agent fields spread over the agents."""

    def part(name: str, value: Any) -> np.ndarray:
        array = np.asarray(value, dtype=np.float64)
        return np.broadcast_to(array, (agents,)) if name in menu.per_agent else array

    return menu.steps(**{name: part(name, value) for name, value in steps._asdict().items()})


def product(**ranges: Any) -> list[dict[str, Any]]:
    """All combinations: product(a=(1, 2), b=(3,)) is [{a: 1, b: 3}, {a: 2, b: 3}]."""
    return [dict(zip(ranges, values, strict=True)) for values in itertools.product(*ranges.values())]


class Choice(NamedTuple):
    """What an algorithm will run with."""

    steps: Any
    activations: int
    outlook: Outlook | None  # what to expect under a budget; None without one, or on networks too large for the lab


def chooser(kernel: Kernel, menu: Menu) -> Callable[..., Choice]:
    """The algorithm's `choose_steps`: (asked, facts, graph, walk, activations, noise) -> Choice."""

    def choose_steps(
        asked: Any, facts: Facts, graph: Graph, walk: str, activations: int | None, noise: Noise | None
    ) -> Choice:
        if isinstance(asked, str):
            choose("steps", asked, ("paper", "tuned"))
        given = _given(asked)
        fixed = {name: value for name, value in given.items() if name in menu.fixed}
        tuned = asked == "tuned" or (bool(given) and given.keys() == fixed.keys())
        if tuned and graph.agents <= LARGE:
            rows = menu.grid(facts, graph)
        elif tuned:
            rows = [(menu.cautious or menu.paper)(facts, graph)]
        else:
            rows = [menu.paper(facts, graph) if asked == "paper" else given_steps(menu, asked, facts.agents)]
        grid = [as_arrays(menu, row._replace(**fixed), facts.agents) for row in rows]
        if not tuned:
            _accept(menu, grid[0], facts, graph)
        at, T, outlook = 0, activations or DEFAULT_ACTIVATIONS, None
        if noise is not None and graph.agents <= LARGE:
            at, outlook = look_ahead(kernel, _stack(menu, grid), facts, graph, walk, activations, noise)
            T = int(outlook.activations[outlook.chosen])
        elif noise is not None:
            T = activations or MANY_AGENTS_ACTIVATIONS
        elif len(grid) > 1:
            at = find_steps(kernel, _stack(menu, grid), facts, graph, walk, T)
        _accept(menu, grid[at], facts, graph)
        return Choice(menu.steps(*map(placed, grid[at])), T, outlook)

    return choose_steps


def _stack(menu: Menu, grid: list[Any]) -> Any:
    return menu.steps(*map(np.stack, zip(*grid, strict=True)))


def _accept(menu: Menu, steps: Any, facts: Facts, graph: Graph) -> None:
    """Raise unless the steps are positive and inside what the theory allows."""
    for name, value in steps._asdict().items():
        array = np.asarray(value)
        if not (np.isfinite(array).all() and (array > 0).all()):
            raise InputError(f"steps have {name}={array.tolist()}; needed finite numbers > 0.")
    menu.check(steps, facts, graph)


def _given(asked: Any) -> dict[str, Any]:
    if isinstance(asked, str):
        return {}
    return dict(asked._asdict()) if hasattr(asked, "_asdict") else dict(asked) if isinstance(asked, Mapping) else {}


def given_steps(menu: Menu, asked: Any, agents: int) -> Any:
    """Steps by hand: a mapping or a NamedTuple with a number (or one an agent) for every field."""
    fields = menu.steps._fields
    parts = _given(asked)
    if not parts:
        raise InputError(f"steps={asked!r}; needed 'tuned', 'paper', or numbers {{{', '.join(fields)}}}.")
    for name in parts:
        choose("step", name, fields)
    defaults = menu.steps._field_defaults
    missing = [name for name in fields if name not in parts and name not in defaults]
    if missing:
        raise InputError(f"steps lack {', '.join(missing)}; needed {', '.join(fields)}, or steps='tuned'.")
    try:
        return as_arrays(menu, menu.steps(**parts), agents)
    except (TypeError, ValueError) as error:
        raise InputError(f"steps={asked!r}; needed a number for each of {', '.join(fields)}.") from error


def refuse(name: str, value: float, limit: float, why: str) -> None:
    """Raise where a step is not below its limit."""
    if not value < limit:
        raise InputError(f"step {name}={value:.4g} is not below {limit:.4g} ({why}); lower it, or use steps='tuned'.")
