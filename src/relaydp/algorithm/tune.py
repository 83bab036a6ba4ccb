"""Steps and number of activations, chosen from public facts by simulating the recursion itself.

RECAL on quadratics is a linear recursion in one number per agent and direction, so a few hundred candidate steps can be
tried at once, on the real graph and a walk of the same law, in about a second. Nothing here sees a record: the inputs
are n, m_i, q, L, mu, c, the budget and the graph.

Scaled to L = 1, candidates are fractions (a, b, g) in (0, 2) x (0, 1) x (0, 1) of the proof's stable set:

    alpha = a / L          beta = b L (1 - a/2) / a          gamma = g (1 - b) / (beta n)

(then beta (gamma n + alpha/(1 - alpha L/2)) = g (1 - b) + b < 1). Without noise the candidate with the least
worst-case error over curvatures in [mu, L] wins. With noise it is the least predicted excess objective, squared bias
plus variance, over a public model of the directions, and the number of activations is chosen along with it: few mean
less noise each, many mean less bias.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.graph import RANDOM_WALKS, Graph, route
from relaydp.problem import Facts

ALPHAS = (0.3, 0.5, 0.75, 1.0, 1.2, 1.4, 1.6, 1.8)
BETAS = (0.2, 0.35, 0.5, 0.65, 0.8, 0.9)
GAMMAS = (0.98, 0.5, 0.25, 0.1, 0.05, 0.025, 0.01, 0.003)
ACTIVATIONS = (1, 2, 3, 5, 7, 10, 14, 20, 28, 40, 57, 80)  # what a private run chooses its PLF from
SPARSE_ACTIVATIONS = (3, 7, 14, 28, 57)  # the same for random walks, where each choice needs a walk of its own
CONDITION = 1e-3  # curvature below this share of L is left out: no budget of activations would reach it
HOPS = 40_000  # hops simulated at most: about a second
DEFAULT_ACTIVATIONS = 300  # without a budget and without activations=: the paper's table
FLOOR = 1e-13  # errors below this are rounding
LARGE = 512  # agents past which no simulation is tried; see _large


class Noise(NamedTuple):
    """What of the budget matters to steps: each agent's total zCDP."""

    rho: float


class Tuned(NamedTuple):
    alpha: float
    beta: float
    gamma: float
    activations: int
    predicted: float  # excess objective (with noise) or worst relative error (without), by the simulation


def candidates() -> np.ndarray:
    """(candidates, 3) rows (a, b, g)."""
    return np.array(list(itertools.product(ALPHAS, BETAS, GAMMAS)))


def tune(facts: Facts, graph: Graph, walk: str, activations: int | None, noise: Noise | None) -> Tuned:
    """Choose steps, and the number of activations an agent where none is given.

    `walk` is a walk's name, or "all" for methods in which every agent acts in every round.
    """
    L = float(facts.smoothness.max())
    condition = max(facts.modulus / L, CONDITION) if L > 0 else 1.0
    if noise is None:
        rounds = activations if activations is not None else DEFAULT_ACTIVATIONS
        best, score = _without_noise(graph, walk, rounds, round(condition, 12))
        chosen = rounds
    else:
        options = (activations,) if activations is not None else ACTIVATIONS
        sizes = facts.sizes / facts.sizes.min()
        sensitivity = 2.0 * facts.clip / facts.sizes.min()  # the smallest agent's: the most noise
        best, chosen, score = _with_noise(
            graph, walk, options, condition, facts.dim, sizes, sensitivity**2 / (2.0 * noise.rho), facts.clip, L
        )
    a, b, g = best
    scaled = L / facts.agents  # of f_i / n
    alpha, beta = a / scaled, b * scaled * (1.0 - a / 2.0) / a
    return Tuned(alpha, beta, g * (1.0 - b) / (beta * facts.agents), int(chosen), float(score))


# -- the recursion


class _Plan(NamedTuple):
    holder: np.ndarray  # (rounds, hops)
    acts: np.ndarray  # (rounds, hops)


def _plan(graph: Graph, walk: str, activations: int, rule: str, seed: int, rounds: int, hops: int = 0) -> _Plan:
    """A walk of the law asked for, cut into `rounds` stretches of equal length, filled up with rests at the end."""
    way = route(graph, walk, activations, key=jax.random.key(seed), rule=rule)
    hops = max(hops, -(-len(way) // rounds))
    fill = rounds * hops - len(way)
    holder = np.concatenate([way.holder, np.zeros(fill, np.int32)])
    acts = np.concatenate([way.acts, np.zeros(fill, bool)])
    return _Plan(holder.reshape(rounds, hops), acts.reshape(rounds, hops))


@jax.jit
def _simulate(
    plan: _Plan,
    abg: Float[Array, "candidates 3"],
    curvature: Float[Array, "agents columns"],
    target: Float[Array, "agents columns"],
    loudness: Float[Array, "agents columns"],
    key: Array,
) -> Float[Array, "rounds candidates columns"]:
    """x after every round, for every candidate: each column a quadratic h_i/2 (y - b_i)^2 with its own noise."""
    agents, columns = curvature.shape
    a, b, g = (abg[:, k, None] for k in range(3))
    beta = b * (1.0 - a / 2.0) / a
    gamma = g * (1.0 - b) / (beta * agents)

    def hop(state, inputs):  # noqa: ANN001, ANN202 - a scan body over the plan
        everyones_y, everyones_price, u, x = state
        i, acts, hop_key = inputs
        y, price = everyones_y[i], everyones_price[i]

        def act():  # noqa: ANN202
            noise = loudness[i] * jax.random.normal(hop_key, (columns,), jnp.float64)
            pull = beta * (x - y)
            new_x = x - gamma * (u + pull)
            slope = curvature[i][None, :] * (y - target[i][None, :]) + noise[None, :] - (price + pull)
            new_y = y - a * slope
            change = beta * (new_x - new_y)
            return new_y, price + change, u + change, new_x

        y, price, u, x = jax.lax.cond(acts, act, lambda: (y, price, u, x))
        return (everyones_y.at[i].set(y), everyones_price.at[i].set(price), u, x), None

    def stretch(state, inputs):  # noqa: ANN001, ANN202
        holder, acts, number = inputs
        keys = jax.random.split(jax.random.fold_in(key, number), holder.shape[0])
        state, _ = jax.lax.scan(hop, state, (holder, acts, keys))
        return state, state[3]

    zeros = jnp.zeros((agents, abg.shape[0], columns))
    start = (zeros, zeros, zeros[0], zeros[0])
    numbers = jnp.arange(plan.holder.shape[0])
    return jax.lax.scan(stretch, start, (plan.holder, plan.acts, numbers))[1]


@jax.jit
def _simulate_all(
    numbers: Array,
    abg: Float[Array, "candidates 3"],
    curvature: Float[Array, "agents columns"],
    target: Float[Array, "agents columns"],
    loudness: Float[Array, "agents columns"],
    key: Array,
) -> Float[Array, "rounds candidates columns"]:
    """The same with every agent acting in every round."""
    agents, columns = curvature.shape
    a, b, g = (abg[None, :, k, None] for k in range(3))
    beta = b * (1.0 - a / 2.0) / a
    gamma = g * (1.0 - b) / (beta * agents)

    def one(state, number):  # noqa: ANN001, ANN202
        y, price, x = state
        noise = loudness * jax.random.normal(jax.random.fold_in(key, number), (agents, columns), jnp.float64)
        half = price + beta * (x - y)
        new_x = x - gamma * jnp.sum(half, axis=0, keepdims=True)
        new_y = y - a * (curvature[:, None] * (y - target[:, None]) + noise[:, None] - half)
        return (new_y, price + beta * (new_x - new_y), new_x), new_x[0]

    zeros = jnp.zeros((agents, abg.shape[0], columns))
    return jax.lax.scan(one, (zeros, zeros, zeros[:1]), numbers)[1]


Columns = tuple[np.ndarray, np.ndarray, np.ndarray]  # curvature, target, loudness, each (agents, columns)


def _run(plan: _Plan | int, columns: Columns, seed: int) -> np.ndarray:
    """Simulate a relay's plan, or a number of rounds in which all act."""
    parts = (jnp.asarray(candidates()), *(jnp.asarray(column) for column in columns), jax.random.key(seed + 1))
    return np.asarray(_simulate_all(jnp.arange(plan), *parts) if isinstance(plan, int) else _simulate(plan, *parts))


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
def _without_noise(graph: Graph, walk: str, rounds: int, condition: float) -> tuple[np.ndarray, float]:
    agents = graph.agents
    if agents > LARGE:
        return _large(agents), math.nan
    curvature, target = _profiles(agents, condition)
    optimum = (curvature * target).sum(axis=0) / curvature.sum(axis=0)
    span = np.sqrt(np.mean((target - optimum) ** 2, axis=0))
    horizon = max(2, min(rounds, HOPS // agents))
    seeds = (0, 1) if walk in RANDOM_WALKS else (0,)  # two walks of a random law, the worse one counts
    scores = []
    for seed in seeds:
        plan = horizon if walk == "all" else _plan(graph, walk, horizon, "plf", seed, horizon)
        x = _run(plan, (curvature, target, np.zeros_like(curvature)), seed)
        error = np.abs(x - optimum) / span
        # the later half of the way: a candidate that dips and grows again must not win
        checks = [error[at:].max(axis=0) for at in (horizon // 2, horizon - max(1, horizon // 20))]
        worst = [np.nan_to_num(check, nan=np.inf).max(axis=1) for check in checks]
        scores.append(sum(np.log10(np.maximum(w, FLOOR)) for w in worst))
    score = np.max(scores, axis=0)
    best = int(np.argmin(score))
    return candidates()[best], 10.0 ** (score[best] / 2.0)


def _large(agents: int) -> np.ndarray:
    """Cautious fractions for networks too large to simulate: the stable gamma shrinks like 1/n on a cycle."""
    return np.array([0.5, 0.8, min(0.05, 4.0 / agents)])


# -- with noise

BINS = 8  # curvatures simulated; every direction counts with the nearest one
DRAWS = 6  # noise runs a curvature; the response is linear, so more only smooth it
SPREAD = 0.5  # how far agents' own optima lie from the common one, relative to it


def directions(dim: int, condition: float, clip: float, L: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A public model of q directions: curvatures, how many share each, and their squared distances to go.

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
    graph: Graph,
    walk: str,
    options: tuple[int, ...],
    condition: float,
    dim: int,
    sizes: np.ndarray,
    variance: float,
    clip: float,
    L: float,
) -> tuple[np.ndarray, int, float]:
    """`variance` is the noise of one release if the whole budget went into it; T releases have T times as much."""
    agents = graph.agents
    if agents > LARGE:
        return _large(agents), options[0] if len(options) == 1 else 20, math.nan
    h, count, distance = directions(dim, condition, clip, L)
    if len(options) > 1 and walk in RANDOM_WALKS:
        options = SPARSE_ACTIVATIONS
    fitting = tuple(T for T in options if T * agents <= HOPS) or (max(1, HOPS // agents),)
    response = _responses(graph, walk, fitting, tuple(h.tolist()), tuple(np.round(sizes, 12).tolist()))
    best = (np.inf, 0, fitting[0])
    for T, (bias, noise) in zip(fitting, response, strict=True):
        excess = 0.5 * L * (bias * (h * distance) + noise * (h * count * variance * T / L**2)).sum(axis=1)
        excess = np.nan_to_num(excess, nan=np.inf)
        k = int(np.argmin(excess))
        best = min(best, (float(excess[k]), k, T))
    score, k, T = best
    return candidates()[k], options[0] if len(options) == 1 else T, score


@lru_cache(maxsize=32)
def _responses(
    graph: Graph, walk: str, options: tuple[int, ...], h: tuple[float, ...], sizes: tuple[float, ...]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each number of activations: squared bias (per unit distance) and variance (per unit noise) at the end.

    Each (candidates, bins). On laps the end of a short run is a point of the long one; a random walk with a plan for
    every agent ends in a tail of its own, so each number of activations gets its own walk.
    """
    agents, bins, longest = graph.agents, len(h), max(options)
    draw = np.random.default_rng(0)
    drift = draw.normal(size=(agents, 1))
    target = 1.0 + SPREAD * (drift - drift.mean())
    quiet, loud = np.zeros((agents, bins)), np.ones((agents, bins * DRAWS)) / np.asarray(sizes)[:, None]
    columns = (
        np.tile(np.asarray(h), (agents, 1 + DRAWS)),
        np.concatenate([np.tile(target, (1, bins)), np.zeros_like(loud)], axis=1),
        np.concatenate([quiet, loud], axis=1),
    )
    if walk in RANDOM_WALKS:
        hops = _plan(graph, walk, longest, "plan", 0, longest).holder.shape[1]
        ends = [_run(_plan(graph, walk, T, "plan", 0, longest, hops), columns, 0)[-1] for T in options]
    else:
        x = _run(longest if walk == "all" else _plan(graph, walk, longest, "plan", 0, longest), columns, 0)
        ends = [x[T - 1] for T in options]
    return [((x[:, :bins] - 1.0) ** 2, (x[:, bins:] ** 2).reshape(len(x), DRAWS, bins).mean(axis=1)) for x in ends]
