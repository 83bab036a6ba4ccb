"""What `steps=` means, for every algorithm alike: "tuned" in the lab, "paper" (its theory's point), or numbers.

An algorithm brings a `Menu`: its steps' type, the point its paper recommends, a grid of candidates for the lab, and the
check that refuses what its theory (or sense) forbids.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from relaydp.algorithm.lab import DEFAULT_ACTIVATIONS, LARGE, Kernel, Noise, find_steps
from relaydp.errors import InputError, choose
from relaydp.graph import Graph
from relaydp.problem import Facts


class Menu(NamedTuple):
    steps: type  # a NamedTuple of numbers; fields may be one number or one an agent
    paper: Callable[[Facts, Graph], Any]
    grid: Callable[[Facts, Graph], list[Any]]  # candidates, each inside `check`
    check: Callable[[Any, Facts, Graph], None]  # raises InputError
    per_agent: tuple[str, ...] = ()  # fields with one number an agent
    fixed: tuple[str, ...] = ()  # fields that are asked for, never tuned; they have defaults
    cautious: Callable[[Facts, Graph], Any] | None = None  # for networks too large for the lab; default: `paper`


def as_arrays(menu: Menu, steps: Any, agents: int) -> Any:
    """Steps as float64 arrays, per-agent fields spread over the agents."""

    def part(name: str, value: Any) -> Any:
        array = np.asarray(value, dtype=np.float64)
        return jnp.asarray(np.broadcast_to(array, (agents,)) if name in menu.per_agent else array)

    return menu.steps(**{name: part(name, value) for name, value in steps._asdict().items()})


def product(**ranges: Any) -> list[dict[str, Any]]:
    """All combinations: product(a=(1, 2), b=(3,)) is [{a: 1, b: 3}, {a: 2, b: 3}]."""
    return [dict(zip(ranges, values, strict=True)) for values in itertools.product(*ranges.values())]


def chooser(kernel: Kernel, menu: Menu) -> Callable[..., tuple[Any, int]]:
    """The algorithm's `choose_steps`: (asked, facts, graph, walk, activations, noise) -> (steps, activations)."""

    def choose_steps(
        asked: Any, facts: Facts, graph: Graph, walk: str, activations: int | None, noise: Noise | None
    ) -> tuple[Any, int]:
        if isinstance(asked, str):
            choose("steps", asked, ("paper", "tuned"))
        given = _given(asked)
        fixed = {name: value for name, value in given.items() if name in menu.fixed}
        wants_tuning = asked == "tuned" or (bool(given) and given.keys() == fixed.keys())
        steps, T = menu.paper(facts, graph), activations or DEFAULT_ACTIVATIONS
        if wants_tuning or activations is None:
            if graph.agents > LARGE:
                steps = (menu.cautious or menu.paper)(facts, graph)
                T = activations or (DEFAULT_ACTIVATIONS if noise is None else 20)
            else:
                grid = [as_arrays(menu, row._replace(**fixed), facts.agents) for row in menu.grid(facts, graph)]
                stacked = menu.steps(*(np.stack([np.asarray(p) for p in parts]) for parts in zip(*grid, strict=True)))
                found = find_steps(kernel, stacked, facts, graph, walk, activations, noise)
                steps, T = grid[found.at], found.activations
        if not wants_tuning:
            steps = menu.paper(facts, graph) if asked == "paper" else given_steps(menu, asked, facts.agents)
        steps = as_arrays(menu, steps._replace(**fixed), facts.agents)
        _check_positive(steps)
        menu.check(steps, facts, graph)
        return steps, T

    return choose_steps


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


def _check_positive(steps: Any) -> None:
    for name, value in steps._asdict().items():
        array = np.asarray(value)
        if not (np.isfinite(array).all() and (array > 0).all()):
            raise InputError(f"steps have {name}={array.tolist()}; needed finite numbers > 0.")


def refuse(name: str, value: float, limit: float, why: str) -> None:
    """Raise where a step is not below its limit."""
    if not value < limit:
        raise InputError(f"step {name}={value:.4g} is not below {limit:.4g} ({why}); lower it, or use steps='tuned'.")
