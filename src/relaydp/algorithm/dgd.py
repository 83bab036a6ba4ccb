"""DGD: decentralised (proximal) gradient descent, the simplest of all, and inexact.

    (1)  a_k     = a / sqrt(1 + k/h)
    (2)  x_(k+1) = prox_{a_k r}( W x_k - a_k grad f(x_k) )

stacked over the agents' copies; W the Metropolis weights; a < (1 + lambda_min(W)) / L. With a constant step (h far
beyond the run) it settles quickly, at a distance of order a from the optimum: the agents' gradients do not vanish
there, and keep their copies apart. A shrinking step closes that distance, like a_k and no faster. The exact methods
cost the same messages: PG-EXTRA, NIDS.
Source: Nedic and Ozdaglar 2009; Yuan, Ling and Yin 2016, On the convergence of decentralized gradient descent, arXiv
1310.7063; with a prox: Zeng and Yin 2018, On nonconvex decentralized gradient descent, arXiv 1608.05766.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm.base import Algorithm, Setting, Turn
from relaydp.algorithm.consensus import Copies, Everyone, apart, masked, smallest_eigenvalue, spread
from relaydp.algorithm.menu import Menu, product, refuse
from relaydp.graph import Graph
from relaydp.problem import Facts

CONSTANT = 1e9  # a horizon no run reaches: the step is constant


class DgdSteps(NamedTuple):
    stepsize: Float[Array, ""]  # a, the first step
    horizon: Float[Array, ""]  # h, rounds after which the step begins to shrink


class DgdState(NamedTuple):
    x: Everyone  # x_k; what is sent


def init(setting: Setting, steps: DgdSteps, x0: Float[Array, " dim"]) -> DgdState:
    return DgdState(spread(x0, setting.agents))


def step(setting: Setting, steps: DgdSteps, state: DgdState, turn: Turn) -> tuple[DgdState, Copies]:
    """Let every agent average its neighbours' copies and take one step.

    Leaves agent i: x_i, to all its neighbours. Private when `setting.gradients` is: every x_i is made of gradients that
    went through it, each asked for once.
    """
    sent = masked(setting, turn, state.x)

    def act() -> DgdState:
        slope = setting.gradients(state.x)
        stepsize = steps.stepsize / jnp.sqrt(1.0 + turn.hop.astype(steps.horizon.dtype) / steps.horizon)  # (1)
        ahead = state.x - apart(setting, sent) - stepsize * slope
        return DgdState(jax.vmap(setting.prox, in_axes=(0, None))(ahead, stepsize))  # (2)

    return setting.when(jnp.any(turn.acts), act, lambda: state), Copies(sent)


def answer(state: DgdState) -> Float[Array, " dim"]:
    return jnp.mean(state.x, axis=0)


def _limit(facts: Facts, graph: Graph) -> float:
    return (1.0 + smallest_eigenvalue(graph)) / float(facts.smoothness.max())


def paper_steps(facts: Facts, graph: Graph) -> DgdSteps:
    """Half the limit, shrinking from the first round on: the one that tends to the optimum."""
    return DgdSteps(0.5 * _limit(facts, graph), 1.0)  # type: ignore[arg-type]


def grid(facts: Facts, graph: Graph) -> list[DgdSteps]:
    rows = product(share=np.geomspace(0.001, 0.999, 28), horizon=(1.0, 4.0, 16.0, 64.0, CONSTANT))
    return [DgdSteps(row["share"] * _limit(facts, graph), row["horizon"]) for row in rows]  # type: ignore[arg-type]


def check(steps: DgdSteps, facts: Facts, graph: Graph) -> None:
    refuse("stepsize", float(steps.stepsize), _limit(facts, graph), "(1 + lambda_min(W))/L")


def claim(facts: Facts, steps: DgdSteps, graph: Graph) -> np.ndarray:
    """a D with D = 2c: the gradient in (2) at the longest step; state held equal."""
    return np.full(facts.agents, 2.0 * float(steps.stepsize) * facts.clip)


DGD = Algorithm(
    name="dgd",
    title="DGD",
    kind="rounds",
    init=init,
    step=step,
    answer=answer,
    menu=Menu(DgdSteps, paper_steps, grid, check),
    steady=False,
    mechanisms=("gradient", "published"),
    links="neighbours",
    needs=("mixing",),
    claim=claim,
)
