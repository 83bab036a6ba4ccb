"""Synchronous rounds on a cluster: one call per agent and round, with references to its neighbours' messages.

    round k:   (1)  rows_i, g~_i, message_i  <-  agent i takes its neighbours' messages of round k - 1, then sends in k

All of them are references: this process passes them on unread, and Ray moves the values from agent to agent (below 100
kB it sends a value with the call). Calls are pure, as in `relay`, so Ray may repeat one whose process has died, and may
recompute an object that was lost with its node.

Every few rounds all messages are received, and the rows are fetched, checked and, when due, written to a checkpoint.
The next round starts from values again: no chain of lost objects is longer than that, and what Ray cannot recompute is
recomputed from there, with the same noise. It is then the same release, and charged once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relaydp.cluster.checkpoint import Keeper, Standing
from relaydp.cluster.relay import Agents, Lost, Model, RelayEnd, Watch
from relaydp.engine.progress import Progress
from relaydp.errors import InputError
from relaydp.graph import Graph
from relaydp.planning.run_plan import Plan

STRETCH = 8  # rounds between two checks: so many calls per agent are open at once
ATTEMPTS = 5  # at one stretch


async def go_round(
    plan: Plan,
    graph: Graph,
    crew: Agents,
    setup: list[Any],
    standing: Standing,
    keeper: Keeper,
    watch: Watch,
    model: Model,
    report: Progress | None = None,
) -> RelayEnd:
    """Make all rounds, from the current one to the end, or until the model has grown without bound."""
    total = len(plan.route)
    while standing.position < total:
        first = standing.position
        # also checks at the ends of chunks, as the simulator does
        chunk_end = -(-(first + 1) // watch.chunk) * watch.chunk
        last = min(first + min(STRETCH, keeper.every or STRETCH), total, chunk_end)
        rows, shares = await _attempt(graph, crew, setup, standing.rows, first, last)
        for k in range(first, last):
            for i in range(graph.agents):
                standing.charge(i, k)
        standing.rows, standing.baton, standing.position = rows, shares, last
        if not np.isfinite(shares).all():
            return RelayEnd("diverged", watch.overflowed(last))
        stopped = watch.until(last, last, lambda shares=shares: model(shares))
        if stopped is not None:
            return RelayEnd("diverged", stopped)
        if keeper.due(last - first):
            keeper.save(standing)
        if report is not None:
            report(last, total)
    return RelayEnd("finished", total)


async def _attempt(
    graph: Graph, crew: Agents, setup: list[Any], rows: list[bytes], first: int, last: int
) -> tuple[list[bytes], np.ndarray]:
    """Rounds `first` to `last` - 1: all agents' rows and shares of the model. Repeated if an object was lost."""
    for _ in range(ATTEMPTS):
        try:
            pulled = await crew.pull(_send(graph, crew, setup, rows, first, last), f"rounds {first} to {last - 1}")
        except Lost:
            continue
        return pulled[: graph.agents], np.stack(pulled[graph.agents :])
    raise InputError(
        f"rounds {first} to {last - 1} were started {ATTEMPTS} times, and each time a node was lost with its data. "
        "Look at the cluster with `ray status`, and run again: the run continues from its checkpoint."
    )


def _send(graph: Graph, crew: Agents, setup: list[Any], begin: list[bytes], first: int, last: int) -> list[Any]:
    """All calls of a stretch, without waiting for any: references to the new rows, and to the shares."""
    agents = range(graph.agents)
    around = [tuple(graph.neighbours(i).tolist()) for i in agents]
    rows: list[Any] = list(begin)
    told: list[Any] = [None] * graph.agents  # g~, for the agent itself
    said: list[Any] = [None] * graph.agents  # what its neighbours receive
    for k in range(first, last + 1):
        heard = [() if k == first else around[i] for i in agents]
        answers = [
            crew.send(
                i, "turn", setup, k, k < last, rows[i], told[i], heard[i], *(said[j] for j in heard[i]), returns=3
            )
            for i in agents
        ]  # (1)
        rows, told, said = (list(column) for column in zip(*answers, strict=True))
    return [*rows, *told]  # the last call only receives: it returns the agent's share of the model
