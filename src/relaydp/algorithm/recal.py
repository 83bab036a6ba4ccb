"""RECAL: agents relay one baton (u, x); only its holder computes.

For sum_i f_i(x) + n r(x) with the 1/n put into f_i and r, the holder i does

    (1)  l_half = l_i + beta (x - y_i)
    (2)  x+     = prox_{gamma n r}( x - gamma (u + l_half - l_i) )
    (3)  y_i+   = y_i - alpha_i ( grad f_i(y_i) - l_half )
    (4)  l_i+   = l_i + beta (x+ - y_i+)
    (5)  u+     = u + l_i+ - l_i                                   so u = sum_i l_i, always

Source: "Differentially Private Decentralized Optimization with Relay Communication", with a free primal step gamma
(docs/notation.md gives the names).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm.base import Algorithm, Baton, Setting, Turn, put
from relaydp.algorithm.recal_steps import RECAL_MENU, RecalSteps
from relaydp.graph import Graph
from relaydp.problem import Facts


class RecalState(NamedTuple):
    y: Float[Array, "agents dim"]  # each agent's own estimate; never leaves it
    price: Float[Array, "agents dim"]  # l_i; never leaves it
    baton: Baton  # (u, x): the only thing that travels
    hidden: Any  # what the published mechanism keeps: the clean u, or each agent's last noise; else ()


def init(setting: Setting, steps: RecalSteps, x0: Float[Array, " dim"]) -> RecalState:
    """Every price 0, so u = 0; every estimate and the baton's x at the public start x0."""
    everyone = jnp.broadcast_to(x0, (setting.agents, x0.size))
    zeros = jnp.zeros_like(everyone)
    hidden = {"memoryless": zeros[0], "replace": zeros}.get(setting.variant or "", ())
    return RecalState(everyone, zeros, Baton(zeros[0], x0), hidden)


def step(setting: Setting, steps: RecalSteps, state: RecalState, turn: Turn) -> tuple[RecalState, Baton]:
    """Let the holder act alone and pass the baton on; or, when its plan is spent, only pass it on.

    Leaves agent i: the new (u, x), once, to one neighbour. Never y_i or l_i.
    Private when `setting.gradient` is: everything else is post-processing of it. The published mechanism instead
    subtracts noise from u alone, which leaves x bare (docs/privacy.md, "What the published mechanism leaks").
    """
    i, (u, x) = turn.holder, state.baton
    y, price = state.y[i], state.price[i]

    # New rows are made in here and only written outside: XLA then updates y and l in place, however many agents.
    def act() -> tuple[Array, Array]:
        pull = steps.beta * (x - y)  # (1), l_half - l_i
        new_x = setting.prox(x - steps.gamma * (u + pull), steps.gamma)  # (2)
        slope = setting.gradient(y) / setting.agents - (price + pull)  # f_i / n
        return new_x, y - steps.alpha[i] * slope  # (3)

    new_x, new_y = setting.when(turn.acts, act, lambda: (x, y))
    change = jnp.where(turn.acts, steps.beta * (new_x - new_y), 0.0)  # (4), l_i+ - l_i
    new_u, hidden = _pass_on(setting, state, turn, change)  # (5)
    new = RecalState(put(state.y, i, new_y), put(state.price, i, price + change), Baton(new_u, new_x), hidden)
    return new, new.baton


def _pass_on(setting: Setting, state: RecalState, turn: Turn, change: Array) -> tuple[Array, Any]:
    """(5) u+ = u + l_i+ - l_i, and what the published mechanism makes of it: u~ = u+ - e."""
    u, hidden = state.baton.u, state.hidden
    if setting.variant is None:
        return u + change, hidden
    noise = turn.scale * jax.random.normal(turn.key, u.shape, u.dtype)
    match setting.variant:
        case "memoryless":  # as printed: a clean u that no agent has; only a simulator can
            clean = hidden + change  # a relay's change is 0
            sent = clean - noise
            hidden = clean
        case "replace":  # the agent takes its own previous noise back out
            mine = hidden[turn.holder]
            sent = u + mine + change - noise
            hidden = put(hidden, turn.holder, jnp.where(turn.acts, noise, mine))
        case _:  # "carried": what a network can do; noise stays in the baton for good
            sent = u + change - noise
    return jnp.where(turn.acts, sent, u), hidden


def receive(setting: Setting, steps: RecalSteps, state: RecalState, baton: Baton) -> RecalState:
    return state._replace(baton=baton)


def claimed_sensitivity(facts: Facts, steps: RecalSteps, graph: Graph) -> np.ndarray:
    """The paper's 4 alpha beta c, with alpha = max_i alpha_i and c of f_i/n: one step, all state held equal."""
    return np.full(facts.agents, 4.0 * float(np.max(steps.alpha)) * float(steps.beta) * facts.clip / facts.agents)


def answer(state: RecalState) -> Float[Array, " dim"]:
    return state.baton.x


RECAL = Algorithm(
    name="recal",
    title="RECAL (relay)",
    kind="relay",
    init=init,
    step=step,
    answer=answer,
    menu=RECAL_MENU,
    mechanisms=("gradient", "published"),
    links="hop",
    vectors=2,
    claim=claimed_sensitivity,
    variants=("memoryless", "carried", "replace"),
    receive=receive,
)
