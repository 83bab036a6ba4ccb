"""The lab: try steps on quadratics, with the algorithm's own `init` and `step`, before any record is touched.

On quadratics h_i/2 (y - b_i)^2 every method here is a linear recursion in one number per agent and direction, so a
few hundred candidate steps can be run at once, on the real graph and a walk of the same law, in about a second. Nothing
sees a record: the inputs are n, m_i, q, L, mu, c, the budget and the graph. One rule for every algorithm:

  - without noise the candidate wins that has the least worst-case error over curvatures in [mu, L];
  - with noise, the one with the least predicted excess objective, squared bias plus variance, over a public model of
    the directions; the number of activations is chosen along with it: few mean less noise each, many less bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm.base import Setting, Turn
from relaydp.graph import RANDOM_WALKS, Graph, Network, network_of, rounds, route
from relaydp.problem import Facts

ACTIVATIONS = (1, 2, 3, 5, 7, 10, 14, 20, 28, 40, 57, 80)  # what a private run chooses its PLF from
SPARSE_ACTIVATIONS = (3, 7, 14, 28, 57)  # the same for random walks, where each choice needs a walk of its own
CONDITION = 1e-3  # curvature below this share of L is left out: no budget of activations would reach it
HOPS = 40_000  # hops simulated at most: about a second
DEFAULT_ACTIVATIONS = 300  # without a budget and without activations=: the paper's table
FLOOR = 1e-13  # errors below this are rounding
EARLY = 1e-2  # weight of the first quarter beside the later half: a tie-break
LARGE = 512  # agents past which no simulation is tried


class Noise(NamedTuple):
    """What of the budget matters to steps: each agent's total zCDP."""

    rho: float


class Kernel(NamedTuple):
    """The part of an algorithm that the lab runs."""

    kind: Literal["relay", "rounds"]
    init: Callable[..., Any]
    step: Callable[..., tuple[Any, Any]]
    answer: Callable[[Any], Array]
    needs: tuple[str, ...] = ()


class Found(NamedTuple):
    at: int  # which candidate
    activations: int
    predicted: float  # excess objective (with noise) or worst relative error (without), by the simulation


class Columns(NamedTuple):
    """One quadratic a column; each (agents, columns)."""

    curvature: Any  # h_i
    target: Any  # b_i
    loudness: Any  # standard deviation of the noise on the gradient


def find_steps(
    kernel: Kernel, candidates: Any, facts: Facts, graph: Graph, walk: str, activations: int | None, noise: Noise | None
) -> Found:
    """Choose among `candidates` (steps stacked along a first axis), and the activations where none are given."""
    L = float(facts.smoothness.max())
    condition = max(facts.modulus / L, CONDITION) if L > 0 else 1.0
    key = _Frozen(candidates)
    if noise is None:
        count = activations if activations is not None else DEFAULT_ACTIVATIONS
        at, score = _without_noise(kernel, key, graph, walk, count, L, round(condition, 12))
        return Found(at, count, score)
    options = (activations,) if activations is not None else ACTIVATIONS
    return _with_noise(kernel, key, graph, walk, options, facts, L, condition, noise.rho)


class _Frozen:
    """Candidates as a dictionary key: by value."""

    def __init__(self, candidates: Any) -> None:
        self.value = jax.tree.map(lambda part: np.asarray(part, dtype=np.float64), candidates)
        self.bytes = b"".join(part.tobytes() for part in jax.tree.leaves(self.value))

    def __hash__(self) -> int:
        return hash(self.bytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Frozen) and self.bytes == other.bytes


# -- the recursion


def _turns(
    kernel: Kernel,
    candidates: _Frozen,
    graph: Graph,
    walk: str,
    activations: int,
    rule: str,
    seed: int,
    stretches: int,
    hops: int = 0,
) -> Turn:
    """A walk of the law asked for, or rounds, cut into `stretches` of equal length; rests at the end fill it up."""
    if kernel.kind == "rounds":
        # agents that skip rounds do so in the lab too; the probability is asked for, not tuned, so all rows share it
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
    parts: dict[str, Any] = dict(
        hop=number, holder=holder, receiver=holder, acts=acts, scale=acts.astype(float), key=None
    )
    return Turn(**parts)


def _setting(agents: int, network: Network, columns: Columns) -> Setting:
    """The doors of a problem made of quadratics, one a column, with r = 0."""
    h, b, loud = columns

    def gradient(i: Array, y: Array, scale: Array, key: Array) -> Array:
        return h[i] * (y - b[i]) + loud[i] * jax.random.normal(key, y.shape, y.dtype)

    def gradients(ys: Array, scales: Array, key: Array) -> Array:
        return h * (ys - b) + loud * jax.random.normal(key, ys.shape, ys.dtype)

    def argmin(i: Array, p: Array, kappa: Array, v: Array, with_r: bool) -> Array:
        return (h[i] * b[i] - p + kappa * v) / (h[i] + kappa)

    def argmins(p: Array, kappa: Array, v: Array, with_r: bool) -> Array:
        return (h * b - p + kappa[:, None] * v) / (h + kappa[:, None])

    def prox(v: Array, t: Any) -> Array:
        return v

    return Setting(agents, gradient, gradients, argmin, argmins, prox, jax.lax.cond, network)


@partial(jax.jit, static_argnums=0)
def _simulate(
    kernel: Kernel, network: Network, candidates: Any, columns: Columns, turns: Turn, key: Array
) -> Float[Array, "candidates stretches columns"]:
    """The model after every stretch, for every candidate."""
    agents, width = columns.curvature.shape
    setting = _setting(agents, network, columns)

    def one(steps: Any) -> Array:
        def hop(state: Any, turn: Turn) -> tuple[Any, None]:
            turn = turn._replace(key=jax.random.fold_in(key, turn.hop))
            return kernel.step(setting, steps, state, turn)[0], None

        def stretch(state: Any, turns: Turn) -> tuple[Any, Array]:
            state, _ = jax.lax.scan(hop, state, turns)
            return state, kernel.answer(state)

        return jax.lax.scan(stretch, kernel.init(setting, steps, jnp.zeros(width)), turns)[1]

    return jax.vmap(one)(candidates)


def _run(kernel: Kernel, graph: Graph, candidates: _Frozen, columns: Columns, turns: Turn, seed: int) -> np.ndarray:
    network = network_of(graph, kernel.needs)
    return np.asarray(_simulate(kernel, network, candidates.value, columns, turns, jax.random.key(seed + 1)))


# -- without noise


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


@lru_cache(maxsize=64)
def _without_noise(
    kernel: Kernel, candidates: _Frozen, graph: Graph, walk: str, activations: int, L: float, condition: float
) -> tuple[int, float]:
    curvature, target = _profiles(graph.agents, condition)
    optimum = (curvature * target).sum(axis=0) / curvature.sum(axis=0)
    span = np.sqrt(np.mean((target - optimum) ** 2, axis=0))
    columns = Columns(L * curvature, target, np.zeros_like(curvature))
    per_round = graph.agents if kernel.kind == "relay" else 1
    horizon = max(2, min(activations, HOPS // per_round))
    # two walks of a random law, the worse one counts
    seeds = (0, 1) if kernel.kind == "relay" and walk in RANDOM_WALKS else (0,)
    scores = []
    for seed in seeds:
        turns = _turns(kernel, candidates, graph, walk, horizon, "plf", seed, horizon)
        error = np.abs(_run(kernel, graph, candidates, columns, turns, seed) - optimum) / span
        # the worst from each mark on: a candidate that dips and grows again must not win
        marks = (horizon - max(1, horizon // 20), horizon // 2, horizon // 4, horizon // 8)
        checks = [np.nan_to_num(error[:, at:].max(axis=1), nan=np.inf).max(axis=1) for at in marks]
        scores.append(np.log10(np.maximum(checks, FLOOR)))
    end, half, quarter, eighth = np.max(scores, axis=0)
    # the later half decides; where several are done by then, the earlier marks do
    score = end + half + EARLY * (quarter + eighth)
    best = int(np.argmin(score))
    return best, float(10.0 ** end[best])


# -- with noise

BINS = 8  # curvatures simulated; every direction counts with the nearest one
DRAWS = 12  # noise runs a curvature; the response is linear, so more only smooth it
SPREAD = 0.5  # how far agents' own optima lie from the common one, relative to it


def directions(dim: int, condition: float, clip: float, L: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A public model of q directions: curvatures (shares of L), how many have each, squared distances to go.

    Curvature k of the loss falls like k^-2 with the trace that the record norm allows (tr H <= L); the gradient at the
    start has norm c/4, spread in proportion to the curvature. A model only: it decides how well a budget is used,
    never what is promised.
    """
    k = np.arange(1, dim + 1)
    h = condition + (1.0 - condition) * (6.0 / math.pi**2) / k**2
    gradient = (h - condition) ** 2
    gradient *= (clip / 4.0) ** 2 / gradient.sum()
    distance = gradient / (L * h) ** 2
    edges = np.geomspace(h.min(), h.max() * (1 + 1e-9), BINS + 1)
    at = np.clip(np.searchsorted(edges, h, side="right") - 1, 0, BINS - 1)
    count = np.bincount(at, minlength=BINS)
    centre = np.where(count > 0, np.bincount(at, weights=h, minlength=BINS) / np.maximum(count, 1), edges[:-1])
    return centre, count, np.bincount(at, weights=distance, minlength=BINS)


def _with_noise(
    kernel: Kernel,
    candidates: _Frozen,
    graph: Graph,
    walk: str,
    options: tuple[int, ...],
    facts: Facts,
    L: float,
    condition: float,
    rho: float,
) -> Found:
    h, count, distance = directions(facts.dim, condition, facts.clip, L)
    if len(options) > 1 and kernel.kind == "relay" and walk in RANDOM_WALKS:
        options = SPARSE_ACTIVATIONS
    per_round = graph.agents if kernel.kind == "relay" else 1
    fitting = tuple(T for T in options if T * per_round <= HOPS) or (max(1, HOPS // per_round),)
    sizes = facts.sizes / facts.sizes.min()
    response = _responses(
        kernel, candidates, graph, walk, fitting, L, tuple(h.tolist()), tuple(np.round(sizes, 12).tolist())
    )
    # the noise of one release if the whole budget went into it; T releases have T times as much
    variance = (2.0 * facts.clip / facts.sizes.min()) ** 2 / (2.0 * rho)
    best = (np.inf, 0, fitting[0])
    for T, (bias, noise) in zip(fitting, response, strict=True):
        excess = 0.5 * L * (bias * (h * distance) + noise * (h * count * variance * T / L**2)).sum(axis=1)
        excess = np.nan_to_num(excess, nan=np.inf)
        k = int(np.argmin(excess))
        best = min(best, (float(excess[k]), k, T))
    score, k, T = best
    return Found(k, options[0] if len(options) == 1 else T, score)


@lru_cache(maxsize=64)
def _responses(
    kernel: Kernel,
    candidates: _Frozen,
    graph: Graph,
    walk: str,
    options: tuple[int, ...],
    L: float,
    h: tuple[float, ...],
    sizes: tuple[float, ...],
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each number of activations: squared bias (per unit distance) and variance (per unit noise) at the end.

    Each (candidates, bins). On laps and in rounds the end of a short run is a point of the long one; a random walk with
    a plan for every agent ends in a tail of its own, so each number of activations gets its own walk.
    """
    agents, bins, longest = graph.agents, len(h), max(options)
    draw = np.random.default_rng(0)
    drift = draw.normal(size=(agents, 1))
    target = 1.0 + SPREAD * (drift - drift.mean())
    quiet, loud = np.zeros((agents, bins)), np.full((agents, bins * DRAWS), L) / np.asarray(sizes)[:, None]
    columns = Columns(
        L * np.tile(np.asarray(h), (agents, 1 + DRAWS)),
        np.concatenate([np.tile(target, (1, bins)), np.zeros_like(loud)], axis=1),
        np.concatenate([quiet, loud], axis=1),
    )
    if kernel.kind == "relay" and walk in RANDOM_WALKS:
        hops = _turns(kernel, candidates, graph, walk, longest, "plan", 0, longest).acts.shape[1]
        plans = [_turns(kernel, candidates, graph, walk, T, "plan", 0, longest, hops) for T in options]
        ends = [_run(kernel, graph, candidates, columns, turns, 0)[:, -1] for turns in plans]
    else:
        turns = _turns(kernel, candidates, graph, walk, longest, "plan", 0, longest)
        x = _run(kernel, graph, candidates, columns, turns, 0)
        ends = [x[:, T - 1] for T in options]
    return [((x[:, :bins] - 1.0) ** 2, (x[:, bins:] ** 2).reshape(len(x), DRAWS, bins).mean(axis=1)) for x in ends]
