"""Who holds which records: even, by sizes, by a column, or skewed by label.

A split is a function Records -> (order, sizes, names): a permutation of the rows and how many each agent holds. Sizes,
and a column to split by, are public: adjacency replaces a record by another of the same agent, it neither adds nor
moves one. So a private run takes a split that is known without the records, and no function that may look at them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from relaydp.data import Records
from relaydp.data.records import frozen
from relaydp.errors import InputError, check_kind, choose, short

__all__ = ["Split", "by_column", "by_sizes", "dirichlet", "even", "splitter"]


class Split(NamedTuple):
    """Who holds what: rows `order[:sizes[0]]` are the first agent's, the next `sizes[1]` the second's, and so on."""

    order: np.ndarray  # (records,) row numbers, agent after agent
    sizes: np.ndarray  # (agents,) how many each holds
    names: tuple[str, ...]  # what each agent is called


Splitter = Callable[[Records], Split]


@final
@dataclass(frozen=True)
class _Ours:
    """A split that we know. A type, since a mark on a function is copied by what wraps it."""

    deal: Splitter
    spec: Any  # what a saved result remembers of it
    looks: bool = False  # at the records

    def __call__(self, data: Records) -> Split:
        return self.deal(data)


def is_declared(agents: object) -> bool:
    """Whether `agents=` is known without the records: a count, sizes, a column, or a split of one of these."""
    return not callable(agents) or (isinstance(agents, _Ours) and not agents.looks)


def check_split(split: Any, records: int) -> Split:
    """The split in arrays that nobody can change, if every record is with one agent, once.

    Sensitivity rests on that: a record that an agent holds k times moves its mean k times as far, and one that k agents
    hold is paid for once and released k times.
    """
    try:
        order, sizes, names = split
        order, sizes, names = np.asarray(order), np.asarray(sizes), tuple(names)
    except (TypeError, ValueError):
        raise InputError(
            f"the function in agents= returned {short(split)}; it must return partition.Split(order, sizes, names)."
        ) from None
    wrong = _wrong_order(order, records) or _wrong_sizes(sizes, len(names), records)
    if wrong:
        raise InputError(
            f"the split that agents= returned has {wrong}; every record must be with exactly one agent. Return an "
            f"`order` that has each row number from 0 to {records - 1} once, and as many `names` as `sizes`, whole "
            f"numbers of 1 or more that add up to {records}."
        )
    return Split(frozen(order.astype(np.int64)), frozen(sizes.astype(np.int64)), names)


def _wrong_order(order: np.ndarray, records: int) -> str | None:
    if order.ndim != 1 or order.dtype.kind not in "iu":
        return f"an order of type {order.dtype} and shape {order.shape}"
    if len(order) != records:
        return f"an order of {len(order)} rows for {records} records"
    outside = order[(order < 0) | (order >= records)]
    if outside.size:
        return f"row {outside[0]} in its order, where the last is {records - 1}"
    times = np.bincount(order, minlength=records)
    return f"row {times.argmax()} {times.max()} times in its order" if times.max() > 1 else None


def _wrong_sizes(sizes: np.ndarray, names: int, records: int) -> str | None:
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu":
        return f"sizes of type {sizes.dtype} and shape {sizes.shape}"
    if sizes.size == 0 or (sizes < 1).any():
        return "no agents" if sizes.size == 0 else f"an agent of size {sizes.min()}"
    if len(sizes) != names:
        return f"{names} names for {len(sizes)} agents"
    total = sum(sizes.tolist())  # of Python's numbers, which do not run over
    return f"sizes that add up to {total}" if total != records else None


def splitter_spec(agents: object) -> object:
    """What a saved result remembers of `agents=`; None where it cannot be written down."""
    if isinstance(agents, int | str | np.integer):
        return agents if isinstance(agents, str) else int(agents)
    if callable(agents):
        return agents.spec if isinstance(agents, _Ours) else None
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
    """Split the rows in order, as equally as can be: the first agents hold one more where it does not divide.

    Args:
        agents: The number of agents, 1 or more.

    Returns:
        A split to pass as `agents=` of a problem: a function from `Records` to `Split(order, sizes, names)`. Private
        runs accept it.

    Raises:
        InputError: If `agents` is less than 1, or, when records are split, larger than their number.

    >>> import numpy as np
    >>> import relaydp as rd
    >>> data = rd.Records(np.eye(10), np.arange(10))
    >>> rd.partition.even(3)(data).sizes.tolist()
    [4, 3, 3]
    """
    if isinstance(agents, bool) or not isinstance(agents, int | np.integer) or agents < 1:
        raise InputError(f"agents={short(agents)}; it must be a whole number, at least 1.")

    def split(data: Records) -> Split:
        if agents > len(data):
            raise InputError(
                f"agents={agents} for {len(data)} records, so some would hold no record; every agent needs at least "
                "one. Use fewer agents."
            )
        sizes = np.full(agents, len(data) // agents) + (np.arange(agents) < len(data) % agents)
        return Split(np.arange(len(data)), sizes, _numbered(agents))

    return _Ours(split, agents)


def by_sizes(sizes: Sequence[int]) -> Splitter:
    """Split the rows in order: the first sizes[0] to agent 0, the next sizes[1] to agent 1, and so on.

    Args:
        sizes: The number of records of each agent, 1 or more each. They add up to the number of records.

    Returns:
        A split to pass as `agents=` of a problem: a function from `Records` to `Split(order, sizes, names)`. Private
        runs accept it.

    Raises:
        InputError: If `sizes` is not a list of whole numbers, or, when records are split, an agent would hold none or
            the sizes do not add up to the number of records.

    >>> import numpy as np
    >>> import relaydp as rd
    >>> data = rd.Records(np.eye(10), np.arange(10))
    >>> rd.partition.by_sizes([6, 4])(data).sizes.tolist()
    [6, 4]
    """
    given = np.array(sizes)  # a copy: the caller's may change before records are split
    if given.ndim != 1 or given.dtype.kind not in "iu" or (given < 0).any():
        raise InputError(f"agents={sizes!r}; it must be a list of whole numbers of records, one per agent.")

    def split(data: Records) -> Split:
        names = _numbered(len(given))
        _check_sizes(given, names)
        if given.sum() != len(data):
            raise InputError(
                f"the sizes in agents= add up to {given.sum()}; the data holds {len(data)} records. Make them agree."
            )
        return Split(np.arange(len(data)), given.astype(np.int64), names)

    return _Ours(split, given.tolist())


def by_column(name: str) -> Splitter:
    """Split by a group column: one agent for each of its values, in sorted order. The column is public.

    Args:
        name: The name of a column in `Records.groups`.

    Returns:
        A split to pass as `agents=` of a problem: a function from `Records` to `Split(order, sizes, names)`, with the
        column's values for names. Private runs accept it.

    Raises:
        InputError: If `name` is no text, or, when records are split, if they do not have this group column.

    >>> import numpy as np
    >>> import relaydp as rd
    >>> data = rd.Records(np.eye(4), [0, 1, 0, 1], groups={"hospital": ["north", "south", "north", "south"]})
    >>> split = rd.partition.by_column("hospital")(data)
    >>> split.names, split.order.tolist(), split.sizes.tolist()
    (('north', 'south'), [0, 2, 1, 3], [2, 2])
    """

    check_kind("name", name, str, 'the name of a column, such as "hospital"')

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

    return _Ours(split, name)


def dirichlet(agents: int, concentration: float, seed: int = 0) -> Splitter:
    """Split with label skew: each class is dealt to the agents in shares drawn from Dirichlet(concentration).

    Small concentrations give agents that see almost one class only; large ones an even mix. It simulates who holds
    what, so it may look at the labels, and private runs refuse it; in a real consortium the records are already split.

    Args:
        agents: The number of agents, 1 or more.
        concentration: The Dirichlet parameter, greater than 0 (0.1: strong skew, 100: almost none).
        seed: Whole number of 0 or more that decides the draw. Default 0.

    Returns:
        A split to pass as `agents=` of a problem: a function from `Records` to `Split(order, sizes, names)`.

    Raises:
        InputError: If `agents` is less than 1 or `concentration` is not greater than 0, or, when records are split, an
            agent would hold none.

    >>> import numpy as np
    >>> import relaydp as rd
    >>> data = rd.Records(np.zeros((60, 1)), np.arange(60) % 2)
    >>> rd.partition.dirichlet(3, concentration=0.5, seed=0)(data).sizes.tolist()
    [38, 6, 16]
    """
    if agents < 1:
        raise InputError(f"agents={agents}; it must be at least 1.")
    if not concentration > 0:
        raise InputError(f"concentration={concentration!r}; it must be a number > 0 (0.1: strong skew, 100: none).")

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

    spec = {"dirichlet": {"agents": agents, "concentration": concentration, "seed": seed}}
    return _Ours(split, spec, looks=True)


def splitter(agents: int | str | Sequence[int] | Splitter) -> Splitter:
    """Turn what `agents=` of a problem may be into a split.

    Args:
        agents: A count (`even`), a list of sizes (`by_sizes`), a group column's name (`by_column`), or a split, which
            is returned as it is.

    Returns:
        A function from `Records` to `Split(order, sizes, names)`.

    Raises:
        InputError: If `agents` is none of these, or a count or list that cannot be used.

    >>> import numpy as np
    >>> import relaydp as rd
    >>> data = rd.Records(np.eye(4), [0, 1, 0, 1])
    >>> rd.partition.splitter([1, 3])(data).sizes.tolist()
    [1, 3]
    """
    if callable(agents):
        return agents
    if isinstance(agents, str):
        return by_column(agents)
    if isinstance(agents, int | np.integer) and not isinstance(agents, bool):
        return even(int(agents))
    if isinstance(agents, Sequence | np.ndarray):
        return by_sizes(agents)
    raise InputError(f"agents={agents!r}; it must be a count, a list of sizes, or the name of a group column.")
