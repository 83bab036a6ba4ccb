"""A relay on a cluster: one loop that holds the baton and asks its holder's process to act.

    for each hop of the route at which the holder acts:
        (1)  rows_i, baton <- agent i acts on (rows_i, baton, hop)      the only call; pure, so it may be repeated
        (2)  record the release (i, hop);  write a checkpoint when due

The route is computed beforehand from public facts, so hops at which the holder only relays need no call: the baton does
not change there. An agent's process keeps nothing between two calls but its records. The call carries the state that it
needs, so a process that died is restarted and called again, and gives the same answer, to the last bit: noise is drawn
from a generator keyed by (seed, hop). If it kept state, a crash would lose it, and there would be two batons with
different noise.

The rows are sent by value, through this process: for RECAL 2 vectors besides the 2 of the baton, each way. As objects
that stay on their agent's node they would save half of the bytes of a hop, cost a put and a look-up (docs/cluster.md
weighs the two), and be lost with their node, and with them the run since the last checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from relaydp.cluster.checkpoint import Keeper, Standing
from relaydp.engine.loop import BLOCKS, stride_for
from relaydp.engine.progress import Progress
from relaydp.graph import Route
from relaydp.planning.run_plan import Plan

HUGE = 1e100  # a larger baton has diverged, whatever the limit; a smaller one cannot overflow within one step

Model = Callable[[np.ndarray], np.ndarray]  # a baton, or everybody's shares -> the model


class Lost(Exception):
    """An answer was lost with its node; the call has to be repeated."""


class Agents(Protocol):
    """The agents' processes, as the loops see them. `setup` is each one's part of the plan."""

    async def ask(self, agent: int, method: str, *arguments: Any) -> Any:
        """Call an agent, wait, and return its answer."""
        ...

    def send(self, agent: int, method: str, *arguments: Any, returns: int = 1) -> Any:
        """Call an agent and do not wait: references to its answers, which may be arguments of other calls."""
        ...

    async def pull(self, references: list[Any], what: str) -> list[Any]:
        """Wait for the answers behind references; raises Lost if one is lost."""
        ...

    def put(self, value: Any) -> Any:
        """A reference to a value."""
        ...


class RelayEnd(NamedTuple):
    status: str  # finished or diverged
    hops: int


class Watch:
    """Checks whether the model grows without bound, at the same hops as the simulator: it records the model after each
    stretch of hops, and compares the largest coefficient with the limit after each chunk of stretches."""

    def __init__(self, plan: Plan, standing: Standing, limit: float) -> None:
        self.standing, self.limit = standing, limit
        self.stride, self.total = stride_for(plan), len(plan.route)
        self.chunk = BLOCKS * self.stride

    def until(self, first: int, last: int, model: Callable[[], np.ndarray]) -> int | None:
        """For hops `first` to `last`, on which nothing changes: the hop at which divergence is detected, or None."""
        stop = last if last < self.total else -(-self.total // self.chunk) * self.chunk  # chunks are filled up
        if stop // self.stride > (first - 1) // self.stride:
            self.standing.peak = max(self.standing.peak, _size(model()))
        if stop // self.chunk > (first - 1) // self.chunk:
            if not self.standing.peak <= self.limit:
                return min(-(-first // self.chunk) * self.chunk, self.total)
            self.standing.peak = _size(model()) if stop % self.chunk >= self.stride else 0.0
        return None

    def overflowed(self, position: int) -> int:
        """The hop at which the simulator would have stopped, if the model is beyond HUGE after `position` hops."""
        return min(-(-position // self.chunk) * self.chunk, self.total)


def _size(x: np.ndarray) -> float:
    size = float(np.abs(x).max())
    return size if np.isfinite(size) else np.inf


async def walk(
    plan: Plan,
    crew: Agents,
    setup: list[Any],
    standing: Standing,
    keeper: Keeper,
    watch: Watch,
    model: Model,
    report: Progress | None = None,
) -> RelayEnd:
    """Follow the route from its current position to its end, or until the baton has grown without bound."""
    way = plan.route
    assert isinstance(way, Route)
    total = len(way)
    acting = np.flatnonzero(way.acts).tolist()
    begin = int(np.searchsorted(acting, standing.position))
    for k in range(begin, len(acting)):
        hop = acting[k]
        holder, activation = int(way.holder[hop]), int(way.activation[hop])
        mine = standing.rows[holder]
        rows, baton = await crew.ask(holder, "act", setup, mine, standing.baton, hop, activation)  # (1)
        standing.charge(holder, hop)  # (2)
        standing.rows[holder], standing.baton = rows, baton
        standing.position = hop + 1
        if not _size(baton) <= HUGE:
            return RelayEnd("diverged", watch.overflowed(hop + 1))
        after = acting[k + 1] if k + 1 < len(acting) else total
        stopped = watch.until(hop + 1, after, lambda baton=baton: model(baton))
        if stopped is not None:
            return RelayEnd("diverged", stopped)
        if keeper.due():
            keeper.save(standing)
        if report is not None:
            report(after, total)
    standing.position = total
    return RelayEnd("finished", total)
