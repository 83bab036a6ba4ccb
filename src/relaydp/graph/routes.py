"""The route of a whole run: the holder of the baton at each hop, the receiver, and whether the holder acts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import relaydp._jax  # noqa: F401 (JAX's settings)
from relaydp.errors import InputError, choose
from relaydp.graph.graph import Graph, whole
from relaydp.graph.walks import RANDOM_WALKS, WALKS, cycle, stepper, tour

RULES = ("plf", "plan")
MOST_HOPS = 50_000_000
# Uniforms are drawn in blocks of these fixed sizes, so that a route depends on its key only and a longer one begins
# with the shorter one. There are only two sizes, because JAX compiles one sampler per size.
FIRST_BLOCK, BLOCK = 4096, 65536
# How far an agent may act ahead of an even distribution over the hops under rule="plan". Means over 40 random walks:
# hops / (agents x activations), then the mean distance between an activation's place in its agent's plan and
# in the whole run (0 is perfectly even; "any" lets agents act as early as they like).
#
#       slack                       0             1             2            any
#       ring(8),              5  2.09, 0.156   1.95, 0.181   1.94, 0.198   1.94, 0.204
#       ring(8),             20  1.54, 0.082   1.52, 0.087   1.49, 0.094   1.44, 0.119
#       star(16),             5  3.57, 0.161   3.55, 0.174   3.55, 0.179   3.55, 0.182
#       star(16),            20  2.67, 0.103   2.66, 0.106   2.66, 0.108   2.66, 0.121
#       erdos-renyi(32, 0.2), 5  3.45, 0.156   3.42, 0.179   3.42, 0.195   3.42, 0.200
#       erdos-renyi(32, .2), 20  2.66, 0.105   2.66, 0.112   2.65, 0.120   2.65, 0.147
#
# Zero is the most even in all cases, for at most 8 % more hops; a relaying hop costs a message but no privacy.
SLACK = 0


@dataclass(frozen=True, eq=False)
class Route:
    """The holder of the baton at each hop. Public: drawn from a key and the graph, before any data are used.

    holder      (hops,)  who holds the baton at hop k
    receiver    (hops,)  the next holder; the same agent where a lazy walk stays
    acts        (hops,)  whether the holder uses its data at hop k, or only relays
    activation  (hops,)  how many activations the holder has made before hop k: t, if it acts
    """

    holder: np.ndarray
    receiver: np.ndarray
    acts: np.ndarray
    activation: np.ndarray

    def __post_init__(self) -> None:
        for array in (self.holder, self.receiver, self.acts, self.activation):
            array.flags.writeable = False

    @property
    def plf(self) -> int:
        """Privacy leakage frequency: the most activations any agent makes, max_i tau_i."""
        return int(self.activation[self.acts].max(initial=-1)) + 1

    @property
    def messages(self) -> int:
        """The number of batons sent: the hops that leave their holder."""
        return int((self.holder != self.receiver).sum())

    def counts(self, agents: int) -> np.ndarray:
        """tau_i, each agent's number of activations."""
        return np.bincount(self.holder[self.acts], minlength=agents)

    def __len__(self) -> int:
        return len(self.holder)


def _route(visits: np.ndarray, acts: np.ndarray, activation: np.ndarray) -> Route:
    """A route from its hops + 1 visits: each hop goes from one to the next."""
    at = visits.astype(np.int32)
    return Route(at[:-1].copy(), at[1:].copy(), acts.astype(bool), activation.astype(np.int32))


def lap_from(graph: Graph, walk: str, start: int) -> np.ndarray | None:
    """One lap of a closed walk, from `start`; None for walks that are drawn hop by hop."""
    if walk in RANDOM_WALKS:
        return None
    if graph.agents == 1:
        return np.zeros(1, np.int64)  # it hands the baton to itself
    order = cycle(graph) if walk == "cyclic" else tour(graph)
    return np.roll(order, -int(np.argmax(order == start)))


def _first_visits(order: np.ndarray) -> np.ndarray:
    """Which hops of a lap are an agent's first: there it acts."""
    acts = np.zeros(len(order), bool)
    acts[np.unique(order, return_index=True)[1]] = True
    return acts


def lap_shape(graph: Graph, walk: str, start: int = 0) -> tuple[int, int]:
    """How many hops a lap of a closed walk has, and which of them, counted from 1, is the last at which an agent acts.

    >>> from relaydp.graph import path, ring
    >>> lap_shape(ring(4), "cyclic"), lap_shape(path(3), "tour", start=1)
    ((4, 4), (4, 4))
    """
    order = lap_from(graph, walk, start)
    if order is None:
        raise InputError(f"walk={walk!r} has no laps; it must be 'cyclic' or 'tour'.")
    return len(order), int(np.flatnonzero(_first_visits(order))[-1]) + 1


def _laps(order: np.ndarray, laps: int, start: int) -> Route:
    """`laps` laps of a closed walk from `start`; each agent acts at its first visit in each lap."""
    acts = _first_visits(order)
    made = np.arange(laps)[:, None] + ~acts  # l activations are made before lap l, and one more after acting in it
    return _route(np.append(np.tile(order, laps), start), np.tile(acts, laps), made.ravel())


def uniforms(key: jax.Array, block: int) -> list[float]:
    """Block number `block` of a walk's numbers in [0, 1), one per hop."""
    with jax.enable_x64(True):  # the same draws for any default precision of the caller
        size = FIRST_BLOCK if block == 0 else BLOCK
        return np.asarray(jax.random.uniform(jax.random.fold_in(key, block), (size,), "float64")).tolist()


Marks = tuple[list[bool], list[int], bool]  # who acts, its earlier activations, and whether the run is complete


def _mark_plf(holders: list[int], hop: int, made: list[int], acted: int, activations: int) -> Marks:
    """All agents act at every visit, until one has made all its activations."""
    before = []
    for i in holders:
        before.append(made[i])
        made[i] += 1
        if made[i] == activations:
            return [True] * len(before), before, True
    return [True] * len(before), before, False


def _mark_plan(holders: list[int], hop: int, made: list[int], acted: int, activations: int) -> Marks:
    """Each agent acts while its plan and the public hop counter allow, until all plans are complete."""
    acts, before, agents = [], [], len(made)
    missing = agents * activations - acted
    for k, i in enumerate(holders, start=hop):
        t = made[i]
        before.append(t)
        acting = t < activations and t <= SLACK + k // agents
        acts.append(acting)
        if acting:
            made[i] = t + 1
            missing -= 1
            if missing == 0:
                return acts, before, True
    return acts, before, False


def _drawn(graph: Graph, walk: str, activations: int, key: jax.Array, start: int, rule: str) -> Route:
    """Hop by hop along a random walk, block by block, until the rule says stop."""
    go, mark = stepper(graph, walk), {"plf": _mark_plf, "plan": _mark_plan}[rule]
    made = [0] * graph.agents
    visits, acts, activation = [np.array([start])], [], []
    at, came_from, hops, acted, block, done = start, -1, 0, 0, 0, False
    while not done:
        steps = go(uniforms(key, block), at, came_from)
        holders = [at, *steps[:-1]]
        acting, before, done = mark(holders, hops, made, acted, activations)
        visits.append(np.array(steps[: len(before)], np.int32))
        acts.append(np.array(acting, bool))
        acted += int(acts[-1].sum())
        activation.append(np.array(before, np.int32))
        at, came_from, hops, block = steps[-1], holders[-1], hops + len(before), block + 1
        if hops > MOST_HOPS:
            raise InputError(
                f"walk={walk!r} on {graph.name} takes over {MOST_HOPS} hops for {activations} activations, which is "
                "too many. Use walk='tour', which takes at most 2 (agents - 1) hops per activation."
            )
    return _route(np.concatenate(visits), np.concatenate(acts), np.concatenate(activation))


def route(graph: Graph, walk: str, activations: int, *, key: jax.Array, start: int = 0, rule: str = "plf") -> Route:
    """The route of a whole run: from `start`, along `walk`, until the activations are made.

        rule="plf"   the holder acts at every visit; ends with the hop at which some agent makes its
                     `activations`-th activation, so that plf == activations
        rule="plan"  every agent makes exactly `activations`, and only relays afterwards. So that no hub finishes
                     before others begin, agent i acts at hop k only if it has acted fewer than
                     min(activations, 1 + k // agents) times, which it knows from the hop counter

    cyclic and tour make `activations` laps and each agent acts once per lap, under either rule. Neither the walk nor
    the rules use data: a route is public, and the same for the same key. Under "plf" a route for more activations
    begins with the route for fewer.

    >>> import jax
    >>> from relaydp.graph import ring
    >>> laps = route(ring(4), "cyclic", 3, key=jax.random.key(0))
    >>> len(laps), laps.plf, laps.holder[:5].tolist()
    (12, 3, [0, 1, 2, 3, 0])
    """
    choose("walk", walk, WALKS)
    choose("rule", rule, RULES)
    activations, start = whole("activations", activations, 1), whole("start", start, 0)
    if start >= graph.agents:
        raise InputError(f"start={start} is not in {graph.name}; it must be an agent in 0..{graph.agents - 1}.")
    order = lap_from(graph, walk, start)
    lap = len(order) if order is not None else graph.agents if rule == "plan" else 0
    least = activations * lap
    if least > MOST_HOPS:
        raise InputError(
            f"{activations} activations of {graph.agents} agents take at least {least} hops; the limit is {MOST_HOPS}. "
            "Ask for fewer activations."
        )
    if order is not None:
        return _laps(order, activations, start)
    return _drawn(graph, walk, activations, key, start, rule)


@dataclass(frozen=True, eq=False)
class Rounds:
    """The rounds of a synchronous run: which agents act in each round. Public, like a route.

    acts        (rounds, agents)  whether an agent uses its data in that round
    activation  (rounds, agents)  how many activations it has made before
    """

    acts: np.ndarray
    activation: np.ndarray

    @property
    def plf(self) -> int:
        """Privacy leakage frequency: the most activations any agent makes."""
        return int(self.acts.sum(axis=0).max())

    def counts(self, agents: int) -> np.ndarray:
        """tau_i, each agent's number of activations."""
        return self.acts.sum(axis=0)

    def __len__(self) -> int:
        return len(self.acts)


def rounds(agents: int, activations: int, *, probability: Any = 1.0, key: jax.Array | None = None) -> Rounds:
    """Rounds until some agent has acted `activations` times, each acting with its own probability p_i.

    With probability 1 all agents act in every round. The draws are public and do not use data.

    >>> rounds(3, 5).acts.shape, rounds(3, 5).plf
    ((5, 3), 5)
    """
    activations = whole("activations", activations, 1)
    p = np.broadcast_to(np.asarray(probability, dtype=np.float64), (agents,))
    if not ((p > 0) & (p <= 1)).all():
        raise InputError(f"the activation probabilities run from {p.min():g} to {p.max():g}; they must be in (0, 1].")
    if (p == 1).all():
        acts = np.ones((activations, agents), bool)
    else:
        assert key is not None
        acts, block = np.zeros((0, agents), bool), 0
        while acts.sum(axis=0).max(initial=0) < activations:
            with jax.enable_x64(True):
                draw = np.asarray(jax.random.uniform(jax.random.fold_in(key, block), (activations, agents), "float64"))
            acts, block = np.concatenate([acts, draw < p]), block + 1
        acts = acts[: int(np.argmax(acts.cumsum(axis=0).max(axis=1) >= activations)) + 1]
    before = np.cumsum(acts, axis=0) - acts
    return Rounds(acts, before.astype(np.int32))
