"""The baton's next holder, chosen hop by hop by the present one, from public facts alone.

While every neighbour answers, the baton follows the route that the simulator computes for the same walk and seed. If
one does not answer, the baton goes to another neighbour: which agents are up does not depend on any record.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np

from relaydp.graph import Graph
from relaydp.graph.routes import BLOCK, FIRST_BLOCK, lap_from, uniforms
from relaydp.graph.walks import stepper
from relaydp.network.records.public_plan import Pace, Way
from relaydp.oracle.randomness import WALK, key_for


class NextHop:
    """The walk of one consortium; `pace` says who acts and when it ends."""

    def __init__(self, graph: Graph, walk: str, seed: int, start: int, activations: int, patience: int) -> None:
        self.graph = graph
        order = lap_from(graph, walk, start)
        self._order = None if order is None else order.tolist()
        self._go = stepper(graph, walk) if order is None else None
        self._uniforms = lru_cache(maxsize=2)(partial(uniforms, key_for(seed, WALK)))
        self.pace = Pace(graph.agents if order is None else len(order), activations, patience)

    @property
    def lap(self) -> tuple[int, ...] | None:
        return None if self._order is None else tuple(self._order)

    def choices(
        self, hop: int, at: int, came_from: int, made: tuple[int, ...], lost: frozenset[int] = frozenset()
    ) -> list[int]:
        """The neighbours to ask, in order: the walk's own choice, then the others, those that acted least first."""
        way = Way(at, self.graph.agents, tuple(self.graph.neighbours(at).tolist()), self.lap)
        first, on_track = (self._drawn(hop, at, came_from), True) if self._go else way.on_lap(hop, came_from)
        return way.choices(first, on_track, came_from, made, lost)

    def _drawn(self, hop: int, at: int, came_from: int) -> int:
        assert self._go is not None
        return self._go([self._uniform(hop)], at, came_from)[0]

    def _uniform(self, hop: int) -> float:
        past = hop - FIRST_BLOCK
        block, place = (0, hop) if past < 0 else (1 + past // BLOCK, past % BLOCK)
        return self._uniforms(block)[place]


def route_of(hops: list[tuple[int, int, bool]], agents: int) -> tuple[np.ndarray, ...]:
    """(holder, receiver, acts, activation) of the route that was taken: (holder, receiver, acted) hop by hop."""
    holder, receiver, acts = (np.array(column) for column in zip(*hops, strict=True))
    made, activation = [0] * agents, []
    for i, acted in zip(holder.tolist(), acts.tolist(), strict=True):
        activation.append(made[i])
        made[i] += acted
    return holder.astype(np.int32), receiver.astype(np.int32), acts.astype(bool), np.array(activation, np.int32)
