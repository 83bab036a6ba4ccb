"""RW-ADMM: ADMM over the edges, one agent at a time, where a random walk goes.

Each directed edge has v_ij = c z_ij - l_ij (copy and price), made by j and held by both ends; v_ij = c x0 at first. The
holder i, with d_i neighbours j, does

    (1)  p_i   = c d_i x_i - sum_j v_ij
    (2)  x_i+  = argmin f_i(x) + r(x) + <p_i, x> + (c d_i / 2) ||x - x_i||^2        rw-admm
         x_i+  = prox_{a_i r}( x_i - a_i ( grad f_i(x_i) + p_i ) )                  rw-admm-linearised
    (3)  v_ji+ = c x_i+ + (v_ji - v_ij) / 2                                         to every j

(2) is argmin f_i + r + (c d_i / 2) ||x - sum_j v_ij / (c d_i)||^2, written around x_i. At rest (3) says that c x_i =
(v_ij + v_ji)/2 = c x_j and (2), summed, that x minimises mean_i f_i + r. Nothing else is conserved on the way, so noise
that fades leaves no bias. Any c > 0; 1/a_i >= c d_i + L_i/2.
Source: after Shah and Avrachenkov 2018, Linearly convergent asynchronous distributed ADMM via Markov sampling, read as
random-block Douglas-Rachford splitting.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm.base import MESSAGES, Algorithm, Everyone, Setting, Turn, put
from relaydp.algorithm.consensus import spread
from relaydp.algorithm.menu import CONDITION, Menu
from relaydp.errors import InputError
from relaydp.graph import Graph
from relaydp.problem import Facts


class RwAdmmSteps(NamedTuple):
    penalty: Float[Array, ""]  # c


class LinearisedSteps(NamedTuple):
    penalty: Float[Array, ""]  # c
    stepsize: Float[Array, " agents"]  # a_i


class Pushes(NamedTuple):
    v: Float[Array, "slots dim"]  # v_ji for each neighbour j of the holder i


class RwAdmmState(NamedTuple):
    x: Everyone  # x_i as last sent, noise included
    v: Float[Array, "agents slots dim"]  # v_ij, in agent i's slot for j; 0 where there is no neighbour


def init(setting: Setting, steps: RwAdmmSteps | LinearisedSteps, x0: Float[Array, " dim"]) -> RwAdmmState:
    """Copies at the public start, prices 0."""
    v = jnp.where(jnp.asarray(setting.network.real)[:, :, None], (steps.penalty * x0)[None, None, :], 0.0)
    return RwAdmmState(spread(x0, setting.agents), v)


def step(setting: Setting, steps: RwAdmmSteps, state: RwAdmmState, turn: Turn) -> tuple[RwAdmmState, Pushes]:
    """Let the holder solve its own part exactly and push what changed; when it does not act, nothing is pushed.

    Leaves agent i: v_ji, to each neighbour j; given what was sent before, all of them tell x_i+ and no more. Private
    where the argmin is. The published mechanism adds noise to x_i+, once for all neighbours, and agent i goes on with
    the noisy x_i+ and v_ji itself: with clean ones the limit would be biased for good.
    """

    def solve(x: Array, p: Array) -> Array:
        kappa = steps.penalty * setting.network.degree[turn.holder]
        return setting.argmin(p, kappa, x, True)  # (2)

    return _push(setting, steps, state, turn, solve)


def step_linearised(
    setting: Setting, steps: LinearisedSteps, state: RwAdmmState, turn: Turn
) -> tuple[RwAdmmState, Pushes]:
    """Let the holder take one gradient step and push what changed; when its plan is spent, nothing is pushed.

    Leaves agent i: v_ji, to each neighbour j. Private when `setting.gradient` is: the rest is post-processing of it.
    """

    def descend(x: Array, p: Array) -> Array:
        a = steps.stepsize[turn.holder]
        slope = setting.gradient(x)
        return setting.prox(x - a * (slope + p), a)  # (2)

    return _push(setting, steps, state, turn, descend)


def _push(
    setting: Setting, steps: RwAdmmSteps | LinearisedSteps, state: RwAdmmState, turn: Turn, model: Callable[..., Array]
) -> tuple[RwAdmmState, Pushes]:
    i, network = turn.holder, setting.network
    neighbours, back, real = (jnp.asarray(part)[i] for part in (network.neighbours, network.back, network.real))
    x, ours, theirs = state.x[i], state.v[i], state.v[neighbours, back]  # x_i, v_ij, v_ji

    # New rows are made in here and only written outside: XLA then updates x and v in place, however many agents.
    def act() -> tuple[Array, Array]:
        p = steps.penalty * network.degree[i] * x - jnp.sum(ours, axis=0)  # (1)
        new_x = model(x, p)  # (2)
        if setting.variant == MESSAGES:
            new_x = new_x + turn.scale * jax.random.normal(turn.key, x.shape, x.dtype)
        pushed = steps.penalty * new_x[None, :] + (theirs - ours) / 2.0  # (3)
        return new_x, jnp.where(real[:, None], pushed, theirs)  # an empty slot points at v[i, 0]: left as it is

    new_x, pushed = setting.when(turn.acts, act, lambda: (x, theirs))
    return RwAdmmState(put(state.x, i, new_x), state.v.at[neighbours, back].set(pushed)), Pushes(pushed)


def answer(state: RwAdmmState) -> Float[Array, " dim"]:
    """The mean of the agents' models: each tends to the minimiser, and the mean is the least noisy."""
    return jnp.mean(state.x, axis=0)


def grid(facts: Facts, graph: Graph, count: int = 49) -> list[RwAdmmSteps]:
    """c d around 1.5 sqrt(mu L) at the mean degree. Likely ones first: planning takes the first of equals."""
    L = float(facts.smoothness.max())
    likely = 1.5 * math.sqrt(max(facts.modulus, CONDITION * L) * L) / float(np.mean(graph.degree))
    shares = sorted(np.geomspace(0.05, 20.0, count), key=lambda share: abs(math.log(share)))
    return [RwAdmmSteps(share * likely) for share in shares]  # type: ignore[arg-type]


def grid_linear(facts: Facts, graph: Graph) -> list[LinearisedSteps]:
    """1/a_i = c d_i + share L_i."""
    rows = itertools.product((0.5, 0.6, 0.8, 1.2, 2.0, 4.0), grid(facts, graph, 25))
    return [LinearisedSteps(c, 1.0 / (c * graph.degree + share * facts.smoothness)) for share, (c,) in rows]  # type: ignore[arg-type]


def check_linear(steps: LinearisedSteps, facts: Facts, graph: Graph) -> None:
    a, limit = np.asarray(steps.stepsize), 1.0 / (float(steps.penalty) * graph.degree + facts.smoothness / 2.0)
    i = int(np.argmax(a / limit))
    if not a[i] <= limit[i] * (1.0 + 1e-9):  # equality is allowed, up to rounding
        why = f"is above {limit[i]:.4g} (1/(penalty d_i + L_i/2)); lower it, or use steps='tuned'."
        raise InputError(f"step stepsize={a[i]:.4g} for agent {i} {why}")


def curvature(steps: RwAdmmSteps, graph: Graph, activations: int) -> np.ndarray:
    """kappa = c d_i."""
    return np.tile(float(steps.penalty) * graph.degree, (activations, 1))


def claim(facts: Facts, steps: RwAdmmSteps, graph: Graph) -> np.ndarray:
    """D / (mu + c d_i), D = 2 clip: (2) has that modulus. State held equal, and all of it was sent."""
    return 2.0 * facts.clip / (facts.modulus + float(steps.penalty) * graph.degree)


RW_ADMM = Algorithm(
    name="rw-admm",
    title="RW-ADMM",
    kind="relay",
    init=init,
    step=step,
    answer=answer,
    menu=Menu(RwAdmmSteps, paper=lambda *known: grid(*known)[0], grid=grid, check=lambda *_: None),  # c is free
    mechanisms=("objective", "published"),
    links="pushes",
    paper_factor=2,  # neighbours are polled as well
    needs=("degree", "neighbours", "real", "back"),
    data="argmin",
    instead="rw-admm-linearised",
    claim=claim,
    curvature=curvature,
)

RW_ADMM_LINEARISED = replace(
    RW_ADMM,
    name="rw-admm-linearised",
    title="RW-ADMM, linearised",
    step=step_linearised,
    menu=Menu(LinearisedSteps, lambda *known: grid_linear(*known)[0], grid_linear, check_linear, ("stepsize",)),
    mechanisms=("gradient", "published"),
    data="gradient",
    instead="",
    claim=lambda facts, steps, graph: 2.0 * facts.clip * np.asarray(steps.stepsize),  # a_i D
)
