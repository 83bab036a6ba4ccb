"""NIDS: exact first-order consensus with a prox, and steps that do not depend on the network.

    (1)  v_k     = 2 x_k - x_(k-1) - a ( grad f(x_k) - grad f(x_(k-1)) )
    (2)  z_(k+1) = z_k - x_k + v_k - c a (I - W) v_k          first round: z_1 = x_0 - a grad f(x_0)
    (3)  x_(k+1) = prox_{a r}( z_(k+1) )

stacked over the agents' copies; W the Metropolis weights; a = diag(a_i), each agent its own a_i < 2/L_i;
c <= 1 / ((1 - lambda_min(W)) max_i a_i).
Source: Li, Shi and Yan 2019, A decentralized proximal-gradient method with network independent step-sizes and separated
convergence rates, arXiv 1704.07807.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm.base import Algorithm, Setting, Turn
from relaydp.algorithm.consensus import Everyone, apart, masked, smallest_eigenvalue, spread
from relaydp.algorithm.menu import Menu, product, refuse
from relaydp.graph import Graph
from relaydp.problem import Facts

ROUNDING = 1e-9  # c may stand at its limit, so the check forgives the last digits


class NidsSteps(NamedTuple):
    stepsize: Float[Array, " agents"]  # a_i, each agent's own
    mixing: Float[Array, ""]  # c


class NidsState(NamedTuple):
    x: Everyone  # x_k; never leaves its agent
    z: Everyone  # z_k; never leaves its agent
    x_before: Everyone  # x_(k-1)
    slope: Everyone  # the privatised grad f(x_(k-1))


class Forecasts(NamedTuple):
    """Each agent's v_i, sent to all its neighbours."""

    v: Everyone


def init(setting: Setting, steps: NidsSteps, x0: Float[Array, " dim"]) -> NidsState:
    """With x_(-1) = z_0 = x_0 and a zero slope, (1) and (2) without mixing give the first round."""
    x = spread(x0, setting.agents)
    return NidsState(x, x, x, jnp.zeros_like(x))


def step(setting: Setting, steps: NidsSteps, state: NidsState, turn: Turn) -> tuple[NidsState, Forecasts]:
    """Let every agent take a gradient step ahead, exchange the outcome with its neighbours and correct itself.

    Leaves agent i: v_i, to all its neighbours (the first one changes nothing there). Private when `setting.gradients`
    is: every v_i is made of gradients that went through it, each asked for once.
    """
    a = steps.stepsize[:, None]

    def act() -> tuple[NidsState, Everyone]:
        slope = setting.gradients(state.x)
        v = 2.0 * state.x - state.x_before - a * (slope - state.slope)  # (1)
        sent = masked(setting, turn, v)
        mixing = jnp.where(turn.hop == 0, 0.0, steps.mixing)
        z = state.z - state.x + v - mixing * a * apart(setting, sent)  # (2)
        x = jax.vmap(setting.prox)(z, steps.stepsize)  # (3)
        return NidsState(x, z, state.x, slope), sent

    state, sent = setting.when(jnp.any(turn.acts), act, lambda: (state, jnp.zeros_like(state.x)))
    return state, Forecasts(sent)


def answer(state: NidsState) -> Float[Array, " dim"]:
    return jnp.mean(state.x, axis=0)


def _most_mixing(stepsize: np.ndarray, graph: Graph) -> float:
    return 1.0 / ((1.0 - smallest_eigenvalue(graph)) * float(np.max(stepsize)))


def paper_steps(facts: Facts, graph: Graph) -> NidsSteps:
    """a_i = 1/L_i, c at its limit."""
    stepsize = 1.0 / facts.smoothness
    return NidsSteps(stepsize, _most_mixing(stepsize, graph))  # type: ignore[arg-type]


def grid(facts: Facts, graph: Graph) -> list[NidsSteps]:
    """Shares of 2/L for the largest L, and of each agent's own 2/L_i; c at its limit and below."""
    common = np.full(facts.agents, 2.0 / facts.smoothness.max())
    found = []
    shares = np.geomspace(0.01, 0.99, 32)
    for row in product(share=shares, bounds=(common, 2.0 / facts.smoothness), c=(1.0, 0.5)):
        stepsize = row["share"] * row["bounds"]
        found.append(NidsSteps(stepsize, row["c"] * _most_mixing(stepsize, graph)))  # type: ignore[arg-type]
    return found


def check(steps: NidsSteps, facts: Facts, graph: Graph) -> None:
    stepsize = np.asarray(steps.stepsize)
    i = int(np.argmax(stepsize * facts.smoothness))
    refuse(f"stepsize[{i}]", float(stepsize[i]), float(2.0 / facts.smoothness[i]), "2/L_i")
    limit = _most_mixing(stepsize, graph) * (1.0 + ROUNDING)
    refuse("mixing", float(steps.mixing), limit, "1/((1 - lambda_min(W)) max a_i)")


def claim(facts: Facts, steps: NidsSteps, graph: Graph) -> np.ndarray:
    """2 a_i D with D = 2c: both gradients in (1) count; state held equal."""
    return 4.0 * np.asarray(steps.stepsize) * facts.clip


NIDS = Algorithm(
    name="nids",
    title="NIDS",
    kind="rounds",
    init=init,
    step=step,
    answer=answer,
    menu=Menu(NidsSteps, paper_steps, grid, check, per_agent=("stepsize",)),
    mechanisms=("gradient", "published"),
    links="neighbours",
    paper_factor=1,
    needs=("mixing",),
    claim=claim,
)
