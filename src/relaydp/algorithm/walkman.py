"""Walkman: a walk carries one vector, and its holder minimises or linearises its own part.

The token is t = mean_i( y_i - z_i / beta ). The holder i does

    (1)  x    = prox_{r/beta}( t )
    (2)  y_i+ = prox_{f_i/beta}( x + z_i/beta )               walkman
         y_i+ = x + ( z_i - grad f_i(y_i) ) / beta            walkman-gradient
    (3)  z_i+ = z_i + beta (x - y_i+)
    (4)  t+   = t + ( 2 y_i+ - y_i - x ) / n                  the change of y_i - z_i/beta, by (3)

At rest y_i = x and z_i = grad f_i(x), so (1) says that x minimises mean_i f_i + r. The prox form takes any beta > 0.
The gradient form has beta >= 2L + 2 in theory and works down to about 2L: an agent of curvature L that acts again and
again, alone, settles iff beta > L (2n - 1)/(n + 1), and no walk was seen to do with less.
Source: Mao, Yuan, Hu, Gu, Sayed and Yin 2020, Walkman: a communication-efficient random-walk algorithm for
decentralized optimization.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm.base import MESSAGES, Algorithm, Everyone, Setting, Turn, Vector, put
from relaydp.algorithm.consensus import spread
from relaydp.algorithm.menu import CONDITION, Menu
from relaydp.errors import InputError
from relaydp.graph import Graph
from relaydp.problem import Facts


class WalkmanSteps(NamedTuple):
    beta: Float[Array, ""]


class Token(NamedTuple):
    t: Vector  # the mean of y_i - z_i/beta (plus noise, if published)


class WalkmanState(NamedTuple):
    y: Everyone  # each agent's own estimate; never leaves it
    z: Everyone  # its price, grad f_i at rest; never leaves it
    token: Token  # the only thing that travels
    x: Vector  # prox_{r/beta}(t): whoever has the token can compute it


def init(setting: Setting, steps: WalkmanSteps, x0: Float[Array, " dim"]) -> WalkmanState:
    """Every price 0 and every estimate at the public start, so t = x0."""
    y = spread(x0, setting.agents)
    return WalkmanState(y, jnp.zeros_like(y), Token(x0), setting.prox(x0, 1.0 / steps.beta))


def step(setting: Setting, steps: WalkmanSteps, state: WalkmanState, turn: Turn) -> tuple[WalkmanState, Token]:
    """Let the holder minimise its own part exactly and pass the token on; or, when it does not act, only pass it on.

    Leaves agent i: the new t, once, to one neighbour. Never y_i or z_i. Private where the argmin is: z_i and t are made
    of earlier y_i+ and of what was received. The published mechanism's noise and bias are those of `step_gradient`.
    """

    def solve(y: Array, z: Array, x: Array) -> Array:
        return setting.argmin(-z, steps.beta, x, False)  # (2)

    return _pass_on(setting, steps, state, turn, solve)


def step_gradient(setting: Setting, steps: WalkmanSteps, state: WalkmanState, turn: Turn) -> tuple[WalkmanState, Token]:
    """Let the holder take one gradient step and pass the token on; or, when its plan is spent, only pass it on.

    Leaves agent i: the new t, once, to one neighbour. Never y_i or z_i.
    Private when `setting.gradient` is: everything else is post-processing of it. The published mechanism adds noise to
    t instead. Nobody has the clean t, so the noise stays in the token for good: with e the sum of all noise so far, the
    method settles where mean_i f_i(x) + r(x) - beta <e, x> is least, up to beta ||e|| / mu away from the minimiser.
    """

    def descend(y: Array, z: Array, x: Array) -> Array:
        slope = setting.gradient(y)
        return x + (z - slope) / steps.beta  # (2)

    return _pass_on(setting, steps, state, turn, descend)


def _pass_on(
    setting: Setting, steps: WalkmanSteps, state: WalkmanState, turn: Turn, estimate: Callable[..., Array]
) -> tuple[WalkmanState, Token]:
    i, t, x = turn.holder, state.token.t, state.x  # x by (1)
    y, z = state.y[i], state.z[i]

    # New rows are made in here and only written outside: XLA then updates y and z in place, however many agents.
    def act() -> tuple[Array, Array, Array, Array]:
        new_y = estimate(y, z, x)  # (2)
        new_z = z + steps.beta * (x - new_y)  # (3)
        new_t = t + (2.0 * new_y - y - x) / setting.agents  # (4)
        if setting.variant == MESSAGES:
            new_t = new_t + turn.scale * jax.random.normal(turn.key, t.shape, t.dtype)
        return new_y, new_z, new_t, setting.prox(new_t, 1.0 / steps.beta)  # (1), for the next holder

    new_y, new_z, new_t, new_x = setting.when(turn.acts, act, lambda: (y, z, t, x))
    new = WalkmanState(put(state.y, i, new_y), put(state.z, i, new_z), Token(new_t), new_x)
    return new, new.token


def receive(setting: Setting, steps: WalkmanSteps, state: WalkmanState, token: Token) -> WalkmanState:
    return state._replace(token=token, x=setting.prox(token.t, 1.0 / steps.beta))  # (1)


def answer(state: WalkmanState) -> Float[Array, " dim"]:
    return state.x


def paper_steps(facts: Facts, graph: Graph) -> WalkmanSteps:
    """2L + 2, for both forms."""
    return WalkmanSteps(2.0 * float(facts.smoothness.max()) + 2.0)  # type: ignore[arg-type]


def grid(facts: Facts, graph: Graph) -> list[WalkmanSteps]:
    """Around sqrt(mu L), likely ones first: planning takes the first of equals."""
    L = float(facts.smoothness.max())
    likely = 1.1 * math.sqrt(max(facts.modulus, CONDITION * L) * L)
    shares = sorted(np.geomspace(0.05, 20.0, 49), key=lambda share: abs(math.log(share)))
    return [WalkmanSteps(share * likely) for share in shares]  # type: ignore[arg-type]


def _least(facts: Facts) -> float:
    n = facts.agents
    return float(facts.smoothness.max()) * (2.0 * n - 1.0) / (n + 1.0)


def grid_gradient(facts: Facts, graph: Graph) -> list[WalkmanSteps]:
    # not at the edge: the simulation has no r, and with one the method settles only some way above it
    shares = np.geomspace(1.2, 30.0, 48)
    return [WalkmanSteps(share * _least(facts)) for share in shares]  # type: ignore[arg-type]


def check_gradient(steps: WalkmanSteps, facts: Facts, graph: Graph) -> None:
    beta, least = float(steps.beta), _least(facts)
    if not beta > least:
        raise InputError(
            f"step beta={beta:.4g} is not above {least:.4g} (L (2n - 1)/(n + 1)); raise it, or use steps='tuned'."
        )


def curvature(steps: WalkmanSteps, graph: Graph, activations: int) -> np.ndarray:
    """kappa = beta."""
    return np.full((activations, graph.agents), float(steps.beta))


def claim(facts: Facts, steps: WalkmanSteps, graph: Graph) -> np.ndarray:
    """2 D / (n (mu + beta)), D = 2 clip: y_i+ moves by D / (mu + beta), t by 2/n times that; state held equal."""
    return np.full(facts.agents, 4.0 * facts.clip / (facts.agents * (facts.modulus + float(steps.beta))))


WALKMAN = Algorithm(
    name="walkman",
    title="Walkman",
    kind="relay",
    init=init,
    step=step,
    answer=answer,
    menu=Menu(WalkmanSteps, paper_steps, grid, check=lambda *_: None),
    mechanisms=("objective", "published"),
    links="hop",
    data="argmin",
    instead="walkman-gradient",
    claim=claim,
    curvature=curvature,
    receive=receive,
)

WALKMAN_GRADIENT = replace(
    WALKMAN,
    name="walkman-gradient",
    title="Walkman, gradient form",
    step=step_gradient,
    menu=Menu(WalkmanSteps, paper_steps, grid_gradient, check_gradient),
    mechanisms=("gradient", "published"),
    data="gradient",
    instead="",
    claim=lambda facts, steps, graph: claim(replace(facts, modulus=0.0), steps, graph),  # y_i+ moves by D / beta
)
