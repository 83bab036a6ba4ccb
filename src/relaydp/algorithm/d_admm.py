"""D-ADMM: decentralised ADMM. Every agent minimises exactly, and prices hold the copies together.

    (1)  p_i+ = p_i + c sum_j (x_i - x_j)                                                j the neighbours of i
    (2)  x_i+ = argmin_x  f_i(x) + r(x) + <p_i+, x> + c sum_j || x - (x_i + x_j)/2 ||^2

for any penalty c > 0. The sum in (2) is kappa/2 ||x - v_i||^2 with kappa = 2 c d_i and v_i half-way between x_i and
the mean of its neighbours.

Source: Shi, Ling, Yuan, Wu and Yin 2014, On the linear convergence of the ADMM in decentralized consensus optimization.
`published`: Zhang and Zhu 2017, Dynamic differential privacy for ADMM-based distributed classification learning. Their
primal perturbation (variant "messages"): V_i = x_i + noise is sent and stands for x_i, an agent's own too, in (1) and
(2). Their dual perturbation (variant "objective"): noise is added to p_i in (2); the mechanism `objective` is the same,
soundly priced.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm.base import MESSAGES, OBJECTIVE, Algorithm, Setting, Turn
from relaydp.algorithm.consensus import Copies, Everyone, masked
from relaydp.algorithm.menu import CONDITION, Menu
from relaydp.algorithm.pg_admm import AdmmState, answer, init
from relaydp.graph import Graph
from relaydp.problem import Facts


class PenaltySteps(NamedTuple):
    penalty: Float[Array, ""]  # c


def midpoints(setting: Setting, sent: Everyone) -> Everyone:
    """v_i = (x_i + mean_j x_j)/2."""
    return sent - setting.network.laplacian @ sent / (2.0 * setting.network.degree[:, None])


def exchange(
    setting: Setting, penalty: Float[Array, ""], dual: Float[Array, ""], state: AdmmState, sent: Everyone, turn: Turn
) -> AdmmState:
    """(1) with the dual step, (2) with the penalty; they are one number in D-ADMM only."""
    price = state.price + dual * (setting.network.laplacian @ sent)  # (1)
    kappa = 2.0 * penalty * setting.network.degree
    x = setting.argmins(price, kappa, midpoints(setting, sent), True)  # (2)
    return AdmmState(x, price)


def step(setting: Setting, steps: PenaltySteps, state: AdmmState, turn: Turn) -> tuple[AdmmState, Copies]:
    """Let every agent exchange copies with its neighbours and minimise.

    Leaves agent i: x_i, to all its neighbours; private where the argmin is: p_i and v_i are made of what was sent.
    """
    sent = masked(setting, turn, state.x)

    def act() -> AdmmState:
        return exchange(setting, steps.penalty, steps.penalty, state, sent, turn)

    return setting.when(jnp.any(turn.acts), act, lambda: state), Copies(sent)


def balanced_penalty(facts: Facts, graph: Graph) -> float:
    """sqrt(mu L / (lambda_2 lambda_max)) with the Laplacian's eigenvalues: objective and graph pull alike."""
    eigenvalues = np.linalg.eigvalsh(graph.laplacian().toarray())
    L = float(facts.smoothness.max())
    mu = max(facts.modulus, CONDITION * L)
    return float(np.sqrt(mu * L / (eigenvalues[1] * eigenvalues[-1])))


def outward(middle: float, reach: float, count: int) -> list[float]:
    """Numbers from middle/reach to middle*reach, nearest first: among steps that all reach rounding the first wins."""
    return sorted((middle * np.geomspace(1.0 / reach, reach, count)).tolist(), key=lambda c: abs(np.log(c / middle)))


def paper_steps(facts: Facts, graph: Graph) -> PenaltySteps:
    """The penalty that balances the two terms of Shi's rate, up to its constants."""
    return PenaltySteps(balanced_penalty(facts, graph))  # type: ignore[arg-type]


def grid(facts: Facts, graph: Graph) -> list[PenaltySteps]:
    return [PenaltySteps(c) for c in outward(0.8 * balanced_penalty(facts, graph), 20.0, 61)]  # type: ignore[arg-type]


def check(steps: PenaltySteps, facts: Facts, graph: Graph) -> None:
    """Any penalty > 0 converges."""


def claim(facts: Facts, steps: PenaltySteps, graph: Graph) -> np.ndarray:
    """D / (mu + 2 c d_i) with D = 2 clip: (2) is as strongly convex as that; state held equal."""
    return 2.0 * facts.clip / (facts.modulus + 2.0 * float(steps.penalty) * graph.degree)


def curvature(steps: PenaltySteps, graph: Graph, activations: int) -> np.ndarray:
    """kappa = 2 c d_i."""
    return np.tile(2.0 * float(steps.penalty) * graph.degree, (activations, 1))


NEEDS = ("laplacian", "degree")

D_ADMM = Algorithm(
    name="d-admm",
    title="D-ADMM",
    kind="rounds",
    init=init,
    step=step,
    answer=answer,
    menu=Menu(PenaltySteps, paper_steps, grid, check),
    mechanisms=("objective", "published"),
    links="neighbours",
    paper_factor=2,
    needs=NEEDS,
    data="argmin",
    instead="ic-admm",
    claim=claim,
    variants=(MESSAGES, OBJECTIVE),
    curvature=curvature,
)
