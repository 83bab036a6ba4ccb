"""IC-ADMM: inexact consensus ADMM, PG-ADMM's map with each agent's step from its degree and a curvature.

    (1)  t_i = 1 / ( b_i + 2 c d_i )                                      d_i the number of neighbours
    (2)  p_i <- p_i + c (Lap x)_i
    (3)  x_i <- prox_{t_i r}( x_i - t_i ( grad f_i(x_i) + p_i + c (Lap x)_i ) )

(2) and (3) are PG-ADMM's (1) and (2). Since Lap <= 2 diag(d), b_i > L_i/2 is sufficient, whatever c > 0.
Source: Chang, Hong and Wang 2015, Multi-agent distributed optimization via inexact consensus ADMM, arXiv 1402.6065.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm import pg_admm
from relaydp.algorithm.base import Algorithm, Setting, Turn
from relaydp.algorithm.consensus import Copies
from relaydp.algorithm.menu import Menu, product
from relaydp.algorithm.pg_admm import AdmmState, AdmmSteps, answer
from relaydp.errors import InputError
from relaydp.graph import Graph
from relaydp.problem import Facts


class InexactSteps(NamedTuple):
    penalty: Float[Array, ""]  # c
    curvature: Float[Array, " agents"]  # b_i


def _inner(steps: InexactSteps, degree: Float[Array, " agents"]) -> AdmmSteps:
    return AdmmSteps(steps.penalty, 1.0 / (steps.curvature + 2.0 * steps.penalty * degree))  # (1)


def init(setting: Setting, steps: InexactSteps, x0: Float[Array, " dim"]) -> AdmmState:
    return pg_admm.init(setting, _inner(steps, jnp.asarray(setting.network.degree)), x0)


def step(setting: Setting, steps: InexactSteps, state: AdmmState, turn: Turn) -> tuple[AdmmState, Copies]:
    """Let every agent exchange copies with its neighbours, raise its prices and take one step.

    Leaves agent i: x_i, to all its neighbours. Private when `setting.gradients` is: every x_i is made of gradients that
    went through it, each asked for once.
    """
    return pg_admm.step(setting, _inner(steps, jnp.asarray(setting.network.degree)), state, turn)  # (2), (3)


def paper_steps(facts: Facts, graph: Graph) -> InexactSteps:
    """c = L/(2 max d_i), b_i = L_i: twice the curvature that is sufficient."""
    return InexactSteps(float(facts.smoothness.max()) / (2.0 * float(graph.degree.max())), facts.smoothness)  # type: ignore[arg-type]


def grid(facts: Facts, graph: Graph) -> list[InexactSteps]:
    """c = share L/(2 mean d_i), b = curvature L, for the largest L."""
    L, unit = float(facts.smoothness.max()), 2.0 * float(graph.degree.mean())
    return [
        InexactSteps(row["c"] * L / unit, row["curvature"] * L)  # type: ignore[arg-type]
        for row in product(c=pg_admm.PENALTIES, curvature=pg_admm.CURVATURES)
    ]


def check(steps: InexactSteps, facts: Facts, graph: Graph) -> None:
    curvature, least = np.asarray(steps.curvature), facts.smoothness / 2.0
    i = int(np.argmin(curvature / least))
    if not curvature[i] > least[i]:
        raise InputError(
            f"step curvature={curvature[i]:.4g} for agent {i} is not above L_i/2={least[i]:.4g}; raise it, or use "
            "steps='tuned'."
        )


def claim(facts: Facts, steps: InexactSteps, graph: Graph) -> np.ndarray:
    """t_i D with D = 2c: the gradient in (3); state held equal."""
    inner = _inner(steps, jnp.asarray(graph.degree, jnp.float64))
    return pg_admm.claim(facts, inner, graph)


IC_ADMM = Algorithm(
    name="ic-admm",
    title="IC-ADMM",
    kind="rounds",
    init=init,
    step=step,
    answer=answer,
    menu=Menu(InexactSteps, paper_steps, grid, check, per_agent=("curvature",)),
    mechanisms=("gradient", "published"),
    links="neighbours",
    paper_factor=1,
    needs=("laplacian", "degree"),
    claim=claim,
)
