"""Who holds which records: even, by sizes, by a column, or skewed by label.

A split is a function Records -> (order, sizes, names): a permutation of the rows and how many each agent holds. The
sizes are public (adjacency replaces a record, it never adds one); which record lies where is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from relaydp.data import Records
from relaydp.errors import InputError, choose


class Split(NamedTuple):
    order: np.ndarray  # (records,) row numbers, agent after agent
    sizes: np.ndarray  # (agents,) how many each holds
    names: tuple[str, ...]  # what each agent is called


Splitter = Callable[[Records], Split]


def splitter_spec(agents: object) -> object:
    """What a saved result remembers of `agents=`; None where it cannot be written down."""
    if isinstance(agents, int | str | np.integer):
        return agents if isinstance(agents, str) else int(agents)
    if callable(agents):
        return getattr(agents, "spec", None)
    return np.asarray(agents).tolist()


def splitter_from_spec(spec: object) -> object:
    """The `agents=` that `splitter_spec` wrote down."""
    return dirichlet(**spec["dirichlet"]) if isinstance(spec, dict) else spec


def _numbered(agents: int) -> tuple[str, ...]:
    return tuple(f"agent {i}" for i in range(agents))


def _check_sizes(sizes: np.ndarray, names: tuple[str, ...]) -> None:
    empty = np.flatnonzero(sizes == 0)
    if empty.size:
        raise InputError(
            f"{names[empty[0]]} would hold no record ({empty.size} such of {len(sizes)}); every agent needs at least "
            "one. Use fewer agents, or other sizes."
        )


def even(agents: int) -> Splitter:
    """Rows in order, as equal as can be: the first agents hold one more where it does not divide."""
    if agents < 1:
        raise InputError(f"agents={agents}; needed at least 1.")

    def split(data: Records) -> Split:
        if agents > len(data):
            raise InputError(
                f"{agents} agents arrived for {len(data)} records, so that some would hold no record; every agent "
                "needs at least one. Use fewer agents."
            )
        sizes = np.full(agents, len(data) // agents) + (np.arange(agents) < len(data) % agents)
        return Split(np.arange(len(data)), sizes, _numbered(agents))

    return split


def by_sizes(sizes: Sequence[int]) -> Splitter:
    """Rows in order: the first sizes[0] to agent 0, the next sizes[1] to agent 1, and so on."""
    given = np.asarray(sizes)
    if given.ndim != 1 or given.dtype.kind not in "iu" or (given < 0).any():
        raise InputError(f"agents={sizes!r}; needed a list of whole numbers of records, one an agent.")

    def split(data: Records) -> Split:
        names = _numbered(len(given))
        _check_sizes(given, names)
        if given.sum() != len(data):
            raise InputError(
                f"the sizes in agents= add up to {given.sum()}; the data holds {len(data)} records. Make them agree."
            )
        return Split(np.arange(len(data)), given.astype(np.int64), names)

    return split


def by_column(name: str) -> Splitter:
    """One agent for each value of a group column, in sorted order."""

    def split(data: Records) -> Split:
        if not data.groups:
            raise InputError(
                f"agents={name!r} names a column, and this data has none to split by. Load it with groups={name!r}, "
                "or pass a count of agents."
            )
        choose("column to split by", name, data.groups)
        values, codes = np.unique(data.groups[name], return_inverse=True)
        order = np.argsort(codes, kind="stable")
        return Split(order, np.bincount(codes), tuple(str(value) for value in values))

    return split


def dirichlet(agents: int, concentration: float, seed: int = 0) -> Splitter:
    """Label skew: each class is dealt to the agents in shares drawn from Dirichlet(concentration).

    Small concentrations give agents that see almost one class only; large ones an even mix. It simulates who holds
    what, so it may look at the labels; a real consortium does not split, it already is.
    """
    if agents < 1:
        raise InputError(f"agents={agents}; needed at least 1.")
    if not concentration > 0:
        raise InputError(f"concentration={concentration!r}; needed a number > 0 (0.1: strong skew, 100: none).")

    def split(data: Records) -> Split:
        draw = np.random.default_rng(seed)
        owner = np.empty(len(data), dtype=np.int64)
        for label in np.unique(data.y):
            rows = draw.permutation(np.flatnonzero(data.y == label))
            cuts = np.cumsum(draw.dirichlet(np.full(agents, concentration)))[:-1]
            for agent, part in enumerate(np.split(rows, np.round(cuts * len(rows)).astype(int))):
                owner[part] = agent
        sizes = np.bincount(owner, minlength=agents)
        _check_sizes(sizes, _numbered(agents))
        return Split(np.argsort(owner, kind="stable"), sizes, _numbered(agents))

    split.spec = {"dirichlet": {"agents": agents, "concentration": concentration, "seed": seed}}  # type: ignore[attr-defined]
    return split


def splitter(agents: int | str | Sequence[int] | Splitter) -> Splitter:
    """What `agents=` means: a count, a list of sizes, a group column's name, or one of the functions above."""
    if callable(agents):
        return agents
    if isinstance(agents, str):
        return by_column(agents)
    if isinstance(agents, int | np.integer) and not isinstance(agents, bool):
        return even(int(agents))
    if isinstance(agents, Sequence | np.ndarray):
        return by_sizes(agents)
    raise InputError(f"agents={agents!r}; needed a count, a list of sizes, or the name of a group column.")
