"""Simulation: try steps on quadratics, with the algorithm's own `init` and `step`, before any record is touched.

On quadratics h_i/2 (y - b_i)^2 every method here is a linear recursion in one number per agent and direction, so a
few hundred candidate steps can be run at once, on the real graph and a walk of the same law, in about a second. Nothing
sees a record. One rule for every algorithm: without noise the candidate wins that has the least worst-case error over
curvatures in [mu, L] (here); with noise, the one with the least predicted excess objective (`forecast.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm import Algorithm, Oracle, Setting, Turn
from relaydp.algorithm.menu import CONDITION
from relaydp.errors import PrivacyError
from relaydp.graph import RANDOM_WALKS, Graph, Network, network_of, rounds, route
from relaydp.oracle.oracle import check_points, one_question
from relaydp.problem import Facts

HOPS = 40_000  # hops simulated at most: about a second
DEFAULT_ACTIVATIONS = 300  # without a budget and without activations=: the paper's table
FLOOR = 1e-13  # errors below this are rounding
EARLY = 1e-2  # weight of the first quarter beside the later half: a tie-break
LARGE = 512  # agents past which no simulation is tried


class Columns(NamedTuple):
    """One quadratic a column; each (agents, columns)."""

    curvature: Any  # h_i
    target: Any  # b_i


class Frozen:
    """Candidates as a dictionary key: by value."""

    def __init__(self, candidates: Any) -> None:
        self.value = jax.tree.map(lambda part: np.asarray(part, dtype=np.float64), candidates)
        self.bytes = b"".join(part.tobytes() for part in jax.tree.leaves(self.value))

    def __hash__(self) -> int:
        return hash(self.bytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frozen) and self.bytes == other.bytes


# -- the recursion


def make_turns(
    method: Algorithm,
    candidates: Frozen,
    graph: Graph,
    walk: str,
    activations: int,
    rule: str,
    seed: int,
    stretches: int,
    hops: int = 0,
) -> Turn:
    """A walk of the law asked for, or rounds, cut into `stretches` of equal length; rests at the end fill it up."""
    if method.kind == "rounds":
        # agents that skip rounds do so here too; the probability is asked for, not tuned, so all rows share it
        asked = getattr(candidates.value, "probability", None)
        probability = 1.0 if asked is None else asked[0]
        acts = rounds(graph.agents, activations, probability=probability, key=jax.random.key(seed)).acts
        holder = np.zeros(len(acts), np.int32)
    else:
        way = route(graph, walk, activations, key=jax.random.key(seed), rule=rule)
        acts, holder = way.acts, way.holder
    hops = max(hops, -(-len(acts) // stretches))
    fill = stretches * hops - len(acts)

    def cut(part: np.ndarray) -> np.ndarray:
        full = np.concatenate([part, np.zeros((fill, *part.shape[1:]), part.dtype)])
        return full.reshape(stretches, hops, *part.shape[1:])

    acts, holder = cut(acts), cut(holder)
    number = np.arange(stretches * hops, dtype=np.int32).reshape(stretches, hops)
    scale = np.zeros(acts.shape)
    parts: dict[str, Any] = dict(hop=number, holder=holder, receiver=holder, acts=acts, scale=scale, key=None)
    return Turn(**parts)


def quadratic_oracle(agents: int, network: Network, columns: Columns) -> Oracle:
    """The oracles of a problem made of quadratics, one a column, with r = 0.

    No noise is drawn. A turn's `scale` is added to the gradient as it is, a number a column: the derivative with
    respect to it is how a run answers to noise.
    """
    h, b = columns

    def oracle(turn: Turn | None) -> Setting:
        once = one_question(turn)
        now: Any = turn

        def asked(single: bool, *points: Array) -> tuple[Array, Array]:
            # as strict as the oracle of a run: what a run would refuse is refused before it, by the same words
            once.ask()
            if (jnp.ndim(now.acts) == 0) != single:
                here, other = ("one holder", "all agents") if single else ("all agents", "one holder")
                raise PrivacyError(
                    f"an algorithm asked the oracle of {here} in a turn of {other}, whose noise is for {other}. "
                    "Ask `gradient` or `argmin` in a relay, `gradients` or `argmins` in rounds."
                )
            check_points(agents, single, None, *points)
            return now.holder, now.scale

        def gradient(y: Array) -> Array:
            i, scale = asked(True, y)
            return h[i] * (y - b[i]) + scale

        def gradients(ys: Array) -> Array:
            return h * (ys - b) + asked(False, ys)[1].reshape(len(ys), -1)

        def argmin(p: Array, kappa: Array, v: Array, with_r: bool) -> Array:
            i, scale = asked(True, p, v)
            return (h[i] * b[i] - p - scale + kappa * v) / (h[i] + kappa)

        def argmins(p: Array, kappa: Array, v: Array, with_r: bool) -> Array:
            scale = asked(False, p, v)[1].reshape(len(p), -1)
            return (h * b - p - scale + kappa[:, None] * v) / (h + kappa[:, None])

        def prox(v: Array, t: Any) -> Array:
            return v

        def when(acts: Array, act: Callable[[], Any], relay: Callable[[], Any]) -> Any:
            return jax.lax.cond(acts, once.within(act), relay)

        return Setting(agents, gradient, gradients, argmin, argmins, prox, when, network)

    return oracle


@partial(jax.jit, static_argnums=0)
def _simulate(
    method: Algorithm, network: Network, candidates: Any, columns: Columns, turns: Turn
) -> Float[Array, "candidates stretches columns"]:
    """The model after every stretch, for every candidate."""
    agents, width = columns.curvature.shape
    oracle = quadratic_oracle(agents, network, columns)

    def one(steps: Any) -> Array:
        def hop(state: Any, turn: Turn) -> tuple[Any, None]:
            return method.step(oracle(turn), steps, state, turn)[0], None

        def stretch(state: Any, turns: Turn) -> tuple[Any, Array]:
            state, _ = jax.lax.scan(hop, state, turns)
            return state, method.answer(state)

        return jax.lax.scan(stretch, method.init(oracle(None), steps, jnp.zeros(width)), turns)[1]

    return jax.vmap(one)(candidates)


# -- the choice


def _profiles(agents: int, condition: float) -> tuple[np.ndarray, np.ndarray]:
    """Curvatures (agents, columns) from all alike to one agent unlike the rest, and targets b_i."""
    draw = np.random.default_rng(0)
    low, everyone = condition, np.arange(agents)
    middle = everyone == agents // 2
    curvature = np.stack(
        [
            np.ones(agents),
            np.full(agents, low),
            np.full(agents, math.sqrt(low)),
            np.exp(draw.uniform(math.log(low), 0.0, agents)),
            np.where(middle, 1.0, low),
            np.where(middle, low, 1.0),
            np.where(everyone % 2 == 0, 1.0, low),
            np.where(everyone < agents // 2, 1.0, low),
        ],
        axis=1,
    )
    return curvature, draw.normal(size=curvature.shape)


def condition_of(facts: Facts) -> float:
    """mu/L, or the least share of L that counts."""
    L = float(facts.smoothness.max())
    return max(facts.modulus / L, CONDITION) if L > 0 else 1.0


def find_steps(method: Algorithm, candidates: Any, facts: Facts, graph: Graph, walk: str, activations: int) -> int:
    """Which of `candidates` (steps stacked along a first axis) leaves the least worst-case error."""
    L = float(facts.smoothness.max())
    return _least_error(method, Frozen(candidates), graph, walk, activations, L, round(condition_of(facts), 12))


@lru_cache(maxsize=64)
def _least_error(
    method: Algorithm, candidates: Frozen, graph: Graph, walk: str, activations: int, L: float, condition: float
) -> int:
    curvature, target = _profiles(graph.agents, condition)
    optimum = (curvature * target).sum(axis=0) / curvature.sum(axis=0)
    span = np.sqrt(np.mean((target - optimum) ** 2, axis=0))
    columns, network = Columns(L * curvature, target), network_of(graph, method.needs)
    per_round = graph.agents if method.kind == "relay" else 1
    horizon = max(2, min(activations, HOPS // per_round))
    # two walks of a random law, the worse one counts
    seeds = (0, 1) if method.kind == "relay" and walk in RANDOM_WALKS else (0,)
    scores = []
    for seed in seeds:
        turns = make_turns(method, candidates, graph, walk, horizon, "plf", seed, horizon)
        error = np.abs(np.asarray(_simulate(method, network, candidates.value, columns, turns)) - optimum) / span
        # the worst from each mark on: a candidate that dips and grows again must not win
        marks = (horizon - max(1, horizon // 20), horizon // 2, horizon // 4, horizon // 8)
        checks = [np.nan_to_num(error[:, at:].max(axis=1), nan=np.inf).max(axis=1) for at in marks]
        scores.append(np.log10(np.maximum(checks, FLOOR)))
    end, half, quarter, eighth = np.max(scores, axis=0)
    # the later half decides; where several are done by then, the earlier marks do
    return int(np.argmin(end + half + EARLY * (quarter + eighth)))
