"""What `steps=` means, for every algorithm alike: "tuned" by simulation, "paper" (its theory's point), or numbers.

An algorithm offers a `Menu` of steps (`algorithm.menu`). This module chooses from it: without noise by the least
worst-case error on quadratics (`quadratic.find_steps`), with noise by the least forecast (`forecast.look_ahead`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from relaydp.algorithm import Algorithm
from relaydp.algorithm.menu import Menu
from relaydp.arrays import placed
from relaydp.errors import InputError, choose
from relaydp.graph import Graph, lap_shape
from relaydp.planning.forecast import Forecast, Noise, look_ahead
from relaydp.planning.quadratic import DEFAULT_ACTIVATIONS, LARGE, find_steps
from relaydp.problem import Facts

MANY_AGENTS_ACTIVATIONS = 20  # of a private run on a network too large to simulate


class Choice(NamedTuple):
    """What an algorithm will run with."""

    steps: Any
    activations: int
    outlook: Forecast | None  # what to expect under a budget; None without one, or on networks too large to simulate


def choose_steps(
    method: Algorithm,
    asked: Any,
    facts: Facts,
    graph: Graph,
    walk: str,
    activations: int | None,
    noise: Noise | None,
    start: int = 0,
) -> Choice:
    """The steps to run with, and how many activations.

    Args:
        method: Whose menu to choose from.
        asked: "tuned", "paper", or numbers by name; numbers for fields that are never tuned leave the others tuned.
        facts: All that may be looked at. In a private run they are public.
        graph: Who can talk to whom.
        walk: The law of the walk; "all" for synchronous methods.
        activations: The number of activations, or None to choose it as well.
        noise: What the budget allows; None without privacy.
        start: The agent that holds the first baton.
    """
    menu = method.menu
    grid, tuned = _candidates(menu, asked, facts, graph)
    if menu.laps:
        grid = [with_laps(row, graph, walk, start) for row in grid]
    if not tuned:
        _accept(menu, grid[0], facts, graph)
    at, T, outlook = 0, activations or DEFAULT_ACTIVATIONS, None
    if noise is not None and graph.agents <= LARGE:
        at, outlook = look_ahead(method, _stack(menu, grid), facts, graph, walk, activations, noise)
        T = int(outlook.activations[outlook.chosen])
    elif noise is not None:
        T = activations or MANY_AGENTS_ACTIVATIONS
    elif len(grid) > 1:
        at = find_steps(method, _stack(menu, grid), facts, graph, walk, T)
    _accept(menu, grid[at], facts, graph)
    return Choice(placed_steps(grid[at]), T, outlook)


def placed_steps(steps: Any) -> Any:
    """Steps as arrays for compiled code."""
    return type(steps)(*map(placed, steps))


def with_laps(steps: Any, graph: Graph, walk: str, start: int) -> Any:
    """The steps of an algorithm that works in laps, told how long a lap of this walk is."""
    lap, closing = (np.asarray(hops, np.float64) for hops in lap_shape(graph, walk, start))
    return steps._replace(lap=lap, closing=closing)


def _candidates(menu: Menu, asked: Any, facts: Facts, graph: Graph) -> tuple[list[Any], bool]:
    """The steps to choose from, and whether there is anything to tune."""
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
    return [as_arrays(menu, row._replace(**fixed), facts.agents) for row in rows], tuned


def as_arrays(menu: Menu, steps: Any, agents: int) -> Any:
    """Steps as float64 NumPy arrays, per-agent fields spread over the agents."""

    def part(name: str, value: Any) -> np.ndarray:
        array = np.asarray(value, dtype=np.float64)
        return np.broadcast_to(array, (agents,)) if name in menu.per_agent else array

    return menu.steps(**{name: part(name, value) for name, value in steps._asdict().items()})


def given_steps(menu: Menu, asked: Any, agents: int) -> Any:
    """Steps by hand: a mapping or a NamedTuple with a number, or one per agent, for every field."""
    fields = menu.names if isinstance(asked, Mapping) else menu.steps._fields
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


def _given(asked: Any) -> dict[str, Any]:
    if isinstance(asked, str):
        return {}
    return dict(asked._asdict()) if hasattr(asked, "_asdict") else dict(asked) if isinstance(asked, Mapping) else {}


def _stack(menu: Menu, grid: list[Any]) -> Any:
    return menu.steps(*map(np.stack, zip(*grid, strict=True)))


def _accept(menu: Menu, steps: Any, facts: Facts, graph: Graph) -> None:
    """Raise unless the steps are positive and inside what the theory allows."""
    for name, value in steps._asdict().items():
        array = np.asarray(value)
        if not (np.isfinite(array).all() and (array > 0).all()):
            raise InputError(f"steps have {name}={array.tolist()}; needed finite numbers > 0.")
    menu.check(steps, facts, graph)
