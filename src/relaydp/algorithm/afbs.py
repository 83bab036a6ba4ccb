"""AFBS: RECAL's five lines for every agent at once, the centralised reference.

    (1)  l_half_i = l_i + beta (x - y_i)                            every i
    (2)  x+       = prox_{gamma n r}( x - gamma sum_i l_half_i )
    (3)  y_i+     = y_i - alpha_i ( grad f_i(y_i) - l_half_i )      every i
    (4)  l_i+     = l_i + beta (x+ - y_i+)                          every i

Somebody must add up the l_half_i, so it needs a coordinator: agent -1 in the transcript. It shows what the relay gives
up for having none. Source: equation (6) of the paper, AFBS with a_k = 1.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from relaydp.algorithm.base import Algorithm, Setting, Turn
from relaydp.algorithm.recal_steps import RECAL_MENU, RecalSteps


class AfbsState(NamedTuple):
    y: Float[Array, "agents dim"]  # never leaves its agent
    price: Float[Array, "agents dim"]  # l_i; never leaves its agent
    x: Float[Array, " dim"]  # the coordinator's


def init(setting: Setting, steps: RecalSteps, x0: Float[Array, " dim"]) -> AfbsState:
    everyone = jnp.broadcast_to(x0, (setting.agents, x0.size))
    return AfbsState(everyone, jnp.zeros_like(everyone), x0)


class Half(NamedTuple):
    half: Float[Array, "agents dim"]


def step(setting: Setting, steps: RecalSteps, state: AfbsState, turn: Turn) -> tuple[AfbsState, Half]:
    """Let all agents act once.

    Leaves agent i: l_half_i, to the coordinator. Private when `setting.gradients` is: l_half_i is made of earlier
    gradients that went through it, and of x.
    """
    half = state.price + steps.beta * (state.x[None, :] - state.y)  # (1)

    def act() -> AfbsState:
        new_x = setting.prox(state.x - steps.gamma * jnp.sum(half, axis=0), steps.gamma)  # (2)
        slopes = setting.gradients(state.y) / setting.agents - half  # f_i / n
        new_y = state.y - steps.alpha[:, None] * slopes  # (3)
        return AfbsState(new_y, state.price + steps.beta * (new_x[None, :] - new_y), new_x)  # (4)

    return setting.when(jnp.any(turn.acts), act, lambda: state), Half(half)


def answer(state: AfbsState) -> Float[Array, " dim"]:
    return state.x


AFBS = Algorithm(
    name="afbs",
    title="AFBS (all agents at once, with a coordinator)",
    kind="rounds",
    init=init,
    step=step,
    answer=answer,
    menu=RECAL_MENU,
    mechanisms=("gradient",),
    links="star",
)
