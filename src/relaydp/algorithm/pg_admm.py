"""PG-ADMM: linearised consensus ADMM, one proximal gradient step instead of an exact argmin.

    (1)  p_i <- p_i + c (Lap x)_i                                         (Lap x)_i = sum over neighbours of x_i - x_j
    (2)  x_i <- prox_{t_i r}( x_i - t_i ( grad f_i(x_i) + p_i + c (Lap x)_i ) )

The prices p_i start at zero and their sum stays there. It is the primal-dual method of Condat and Vu with dual step c
for the constraint Lap^(1/2) x = 0, so 1/t_i > L_i/2 + c lambda_max(Lap) is sufficient.
Source: Aybat, Wang, Lin and Ma 2018, Distributed linearized alternating direction method of multipliers for composite
convex consensus optimization, arXiv 1512.08122.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm.base import Algorithm, Setting, Turn
from relaydp.algorithm.consensus import Copies, Everyone, masked, spread
from relaydp.algorithm.menu import Menu, product, refuse
from relaydp.graph import Graph
from relaydp.problem import Facts

PENALTIES = np.geomspace(0.01, 10.0, 16)  # c as a share of L/lambda_max(Lap)
CURVATURES = np.geomspace(0.51, 50.0, 12)  # what 1/t_i has beyond c lambda_max(Lap), as a share of L


class AdmmSteps(NamedTuple):
    penalty: Float[Array, ""]  # c
    stepsize: Float[Array, " agents"]  # t_i


class AdmmState(NamedTuple):
    x: Everyone  # what is sent
    price: Everyone  # p; never leaves its agent


def init(setting: Setting, steps: AdmmSteps, x0: Float[Array, " dim"]) -> AdmmState:
    x = spread(x0, setting.agents)
    return AdmmState(x, jnp.zeros_like(x))


def step(setting: Setting, steps: AdmmSteps, state: AdmmState, turn: Turn) -> tuple[AdmmState, Copies]:
    """Let every agent exchange copies with its neighbours, raise its prices and take one step.

    Leaves agent i: x_i, to all its neighbours. Private when `setting.gradients` is: every x_i is made of gradients that
    went through it, each asked for once.
    """
    sent = masked(setting, turn, state.x)

    def act() -> AdmmState:
        slope = setting.gradients(state.x)
        pull = steps.penalty * (setting.network.laplacian @ sent)
        price = state.price + pull  # (1)
        ahead = state.x - steps.stepsize[:, None] * (slope + price + pull)
        return AdmmState(jax.vmap(setting.prox)(ahead, steps.stepsize), price)  # (2)

    return setting.when(jnp.any(turn.acts), act, lambda: state), Copies(sent)


def answer(state: AdmmState) -> Float[Array, " dim"]:
    return jnp.mean(state.x, axis=0)


def largest_eigenvalue(graph: Graph) -> float:
    """lambda_max(Lap) of the graph; public."""
    return float(np.linalg.eigvalsh(graph.laplacian().toarray())[-1])


def paper_steps(facts: Facts, graph: Graph) -> AdmmSteps:
    """c = L/lambda_max(Lap) and 1/t_i = L_i + c lambda_max(Lap): twice the curvature that is sufficient."""
    L = float(facts.smoothness.max())
    return AdmmSteps(L / largest_eigenvalue(graph), 1.0 / (facts.smoothness + L))  # type: ignore[arg-type]


def grid(facts: Facts, graph: Graph) -> list[AdmmSteps]:
    """c = share L/lambda_max(Lap), 1/t = curvature L + c lambda_max(Lap), for the largest L."""
    L, top = float(facts.smoothness.max()), largest_eigenvalue(graph)
    return [
        AdmmSteps(row["c"] * L / top, 1.0 / (L * (row["curvature"] + row["c"])))  # type: ignore[arg-type]
        for row in product(c=PENALTIES, curvature=CURVATURES)
    ]


def check(steps: AdmmSteps, facts: Facts, graph: Graph) -> None:
    limit = 1.0 / (facts.smoothness / 2.0 + float(steps.penalty) * largest_eigenvalue(graph))
    stepsize = np.asarray(steps.stepsize)
    i = int(np.argmax(stepsize / limit))
    refuse(f"stepsize[{i}]", float(stepsize[i]), float(limit[i]), "1/(L_i/2 + c lambda_max(Lap))")


def claim(facts: Facts, steps: AdmmSteps, graph: Graph) -> np.ndarray:
    """t_i D with D = 2c: the gradient in (2); state held equal."""
    return 2.0 * np.asarray(steps.stepsize) * facts.clip


PG_ADMM = Algorithm(
    name="pg-admm",
    title="PG-ADMM",
    kind="rounds",
    init=init,
    step=step,
    answer=answer,
    menu=Menu(AdmmSteps, paper_steps, grid, check, per_agent=("stepsize",)),
    mechanisms=("gradient", "published"),
    links="neighbours",
    paper_factor=1,
    needs=("laplacian",),
    claim=claim,
)
