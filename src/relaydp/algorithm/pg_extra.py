"""PG-EXTRA: exact first-order consensus with a prox.

    (1)  z_1     = W x_0 - a grad f(x_0)
    (2)  z_(k+1) = z_k + W x_k - W~ x_(k-1) - a ( grad f(x_k) - grad f(x_(k-1)) )        W~ = (I + W)/2
    (3)  x_(k+1) = prox_{a r}( z_(k+1) )

stacked over the agents' copies; W the Metropolis weights; a < (1 + lambda_min(W)) / L.
Source: Shi, Ling, Wu and Yin 2015, A proximal gradient algorithm for decentralized composite
optimization.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm.base import Algorithm, Setting, Turn
from relaydp.algorithm.consensus import Copies, Everyone, apart, masked, smallest_eigenvalue, spread
from relaydp.algorithm.menu import Menu, refuse
from relaydp.graph import Graph
from relaydp.problem import Facts


class ExtraSteps(NamedTuple):
    stepsize: Float[Array, ""]  # a


class ExtraState(NamedTuple):
    x: Everyone  # x_k; what is sent
    z: Everyone  # z_k; never leaves its agent
    sent: Everyone  # what was sent of x_(k-1)
    x_before: Everyone  # x_(k-1)
    slope: Everyone  # the privatised grad f(x_(k-1))


def init(setting: Setting, steps: ExtraSteps, x0: Float[Array, " dim"]) -> ExtraState:
    """With x_(-1) = z_0 = x_0 and a zero slope, (2) gives (1): W~ leaves a common x_0 as it is."""
    x = spread(x0, setting.agents)
    return ExtraState(x, x, x, x, jnp.zeros_like(x))


def step(setting: Setting, steps: ExtraSteps, state: ExtraState, turn: Turn) -> tuple[ExtraState, Copies]:
    """Let every agent exchange copies with its neighbours and take one step.

    Leaves agent i: x_i, to all its neighbours. Private when `setting.gradients` is: every x_i is made of gradients that
    went through it, each asked for once.
    """
    sent = masked(setting, turn, state.x)

    def act() -> ExtraState:
        slope = setting.gradients(state.x)
        mixed = state.x - apart(setting, sent)  # W x_k
        mixed_before = state.x_before - 0.5 * apart(setting, state.sent)  # W~ x_(k-1)
        z = state.z + mixed - mixed_before - steps.stepsize * (slope - state.slope)  # (2)
        x = jax.vmap(setting.prox, in_axes=(0, None))(z, steps.stepsize)  # (3)
        return ExtraState(x, z, sent, state.x, slope)

    return setting.when(jnp.any(turn.acts), act, lambda: state), Copies(sent)


def answer(state: ExtraState) -> Float[Array, " dim"]:
    return jnp.mean(state.x, axis=0)


def _limit(facts: Facts, graph: Graph) -> float:
    return (1.0 + smallest_eigenvalue(graph)) / float(facts.smoothness.max())


def paper_steps(facts: Facts, graph: Graph) -> ExtraSteps:
    """Half the limit."""
    return ExtraSteps(0.5 * _limit(facts, graph))  # type: ignore[arg-type]


def grid(facts: Facts, graph: Graph) -> list[ExtraSteps]:
    return [ExtraSteps(share * _limit(facts, graph)) for share in np.geomspace(0.02, 0.999, 40)]  # type: ignore[arg-type]


def check(steps: ExtraSteps, facts: Facts, graph: Graph) -> None:
    refuse("stepsize", float(steps.stepsize), _limit(facts, graph), "(1 + lambda_min(W))/L")


def claim(facts: Facts, steps: ExtraSteps, graph: Graph) -> np.ndarray:
    """2 a D with D = 2c: both gradients in (2) count; state held equal."""
    return np.full(facts.agents, 4.0 * float(steps.stepsize) * facts.clip)


PG_EXTRA = Algorithm(
    name="pg-extra",
    title="PG-EXTRA",
    kind="rounds",
    init=init,
    step=step,
    answer=answer,
    menu=Menu(ExtraSteps, paper_steps, grid, check),
    mechanisms=("gradient", "published"),
    links="neighbours",
    paper_factor=2,
    needs=("mixing",),
    heard=("sent",),
    claim=claim,
)
