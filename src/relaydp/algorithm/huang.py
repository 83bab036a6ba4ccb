"""DP-ADMM of Huang et al.: linearised ADMM with a step that decays, with a coordinator or on a graph.

    (1)  eta_k = eta / sqrt(1 + decay k)                                                  k = 0, 1, ...

Star, with a coordinator that keeps w and a price g_i for each agent:

    (2)  w_i+ = ( rho w + w_i / eta_k - grad f_i(w_i) + g_i ) / (rho + 1/eta_k)
    (3)  w+   = prox_{r / rho}( mean_i (w_i+ - g_i / rho) )
    (4)  g_i+ = g_i - rho (w_i+ - w+)

Ring, or any graph, where neighbours hold each other: IC-ADMM's round, the curvature in it taken from the step,

    (5)  p_i+ = p_i + c sum_j (x_i - x_j)                                                 j the neighbours of i
    (6)  x_i+ = prox_{t_i r}( x_i - t_i [ grad f_i(x_i) + p_i+ + c sum_j (x_i - x_j) ] )   1/t_i = 1/eta_k + 2 c d_i

A step that does not decay converges linearly for eta < 2/L; the paper's falls like 1/sqrt(k) and may start higher.
Source: Huang, Hu, Guo, Chan-Tin and Gong 2020, DP-ADMM: ADMM-based distributed learning with differential privacy,
arXiv 1808.10101, for (1) to (4) with subgradients of r instead of the prox.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm import ic_admm
from relaydp.algorithm.base import Algorithm, Setting, Turn
from relaydp.algorithm.consensus import Copies, Everyone, masked, spread
from relaydp.algorithm.d_admm import NEEDS, balanced_penalty, outward
from relaydp.algorithm.ic_admm import InexactSteps
from relaydp.algorithm.menu import CONDITION, Menu, product, refuse
from relaydp.algorithm.pg_admm import AdmmState, answer, init
from relaydp.graph import Graph
from relaydp.problem import Facts

STEADY = 1e-6  # a decay that amounts to none
SETTLED = 20  # rounds by which a decaying step has to be below 2/L


class HuangSteps(NamedTuple):
    penalty: Float[Array, ""]  # rho or c
    stepsize: Float[Array, ""]  # eta
    decay: Float[Array, ""]  # 1: the step falls like 1/sqrt(k) at once; 1/K: after K rounds; 1e-6: never


class StarState(NamedTuple):
    x: Everyone  # w_i as sent
    price: Everyone  # g_i; the coordinator can tell it from what was sent
    centre: Float[Array, " dim"]  # w; the coordinator's, told to all


def steepness(steps: HuangSteps, turn: Turn) -> Float[Array, ""]:
    """1/eta_k, (1)."""
    k = jnp.asarray(turn.hop).astype(jnp.result_type(steps.stepsize))
    return jnp.sqrt(1.0 + steps.decay * k) / steps.stepsize


def star_init(setting: Setting, steps: HuangSteps, x0: Float[Array, " dim"]) -> StarState:
    x = spread(x0, setting.agents)
    return StarState(x, jnp.zeros_like(x), x0)


def star_step(setting: Setting, steps: HuangSteps, state: StarState, turn: Turn) -> tuple[StarState, Copies]:
    """Let every agent take one step and the coordinator average.

    Leaves agent i: w_i, to the coordinator; w comes back, made of what was sent. Private when `setting.gradients` is.
    """

    def act() -> StarState:
        rho, hold = steps.penalty, steepness(steps, turn)
        slope = setting.gradients(state.x)
        new = (rho * state.centre[None, :] + hold * state.x - slope + state.price) / (rho + hold)  # (2)
        sent = masked(setting, turn, new)
        centre = setting.prox(jnp.mean(sent - state.price / rho, axis=0), 1.0 / rho)  # (3)
        return StarState(sent, state.price - rho * (sent - centre[None, :]), centre)  # (4)

    new = setting.when(jnp.any(turn.acts), act, lambda: state)
    return new, Copies(new.x)


def star_answer(state: StarState) -> Float[Array, " dim"]:
    return state.centre


def ring_step(setting: Setting, steps: HuangSteps, state: AdmmState, turn: Turn) -> tuple[AdmmState, Copies]:
    """Let every agent exchange copies with its neighbours and take one step.

    Leaves agent i: x_i, to all its neighbours. Private when `setting.gradients` is.
    """
    return ic_admm.step(setting, InexactSteps(steps.penalty, steepness(steps, turn)), state, turn)  # (5), (6)


def _limit(facts: Facts, decay: float) -> float:
    return 2.0 / float(facts.smoothness.max()) * math.sqrt(1.0 + SETTLED * decay)


def check(steps: HuangSteps, facts: Facts, graph: Graph) -> None:
    limit = _limit(facts, float(steps.decay))
    refuse("stepsize", float(steps.stepsize), limit, f"so that it is below 2/L by round {SETTLED}")


def star_penalty(facts: Facts, graph: Graph) -> float:
    """sqrt(mu L): D-ADMM's choice where no graph comes in."""
    L = float(facts.smoothness.max())
    return math.sqrt(L * max(facts.modulus, CONDITION * L))


def _grid(facts: Facts, middle: float) -> list[HuangSteps]:
    shares = (0.8, 0.6, 0.95, 0.4, 0.2, 0.1, 0.05, 0.02, 0.005)  # of the limit; the small ones are for noise
    rows = product(decay=(STEADY, 1.0), penalty=outward(0.8 * middle, 10.0, 15), stepsize=shares)
    return [HuangSteps(**row | {"stepsize": row["stepsize"] * _limit(facts, row["decay"])}) for row in rows]


def star_grid(facts: Facts, graph: Graph) -> list[HuangSteps]:
    return _grid(facts, star_penalty(facts, graph))


def ring_grid(facts: Facts, graph: Graph) -> list[HuangSteps]:
    return _grid(facts, balanced_penalty(facts, graph))


def _paper(middle: Callable[[Facts, Graph], float]) -> Callable[[Facts, Graph], HuangSteps]:
    """The paper's 1/sqrt(k), from 2/L down."""
    return lambda facts, graph: HuangSteps(middle(facts, graph), _limit(facts, 0.0), 1.0)  # type: ignore[arg-type]


STAR_MENU = Menu(HuangSteps, _paper(star_penalty), star_grid, check)
RING_MENU = Menu(HuangSteps, _paper(balanced_penalty), ring_grid, check)


def star_claim(facts: Facts, steps: HuangSteps, graph: Graph) -> np.ndarray:
    """D / (rho + 1/eta) with D = 2 clip, at the first and largest step; state held equal."""
    return np.full(facts.agents, 2.0 * facts.clip / (float(steps.penalty) + 1.0 / float(steps.stepsize)))


def ring_claim(facts: Facts, steps: HuangSteps, graph: Graph) -> np.ndarray:
    """IC-ADMM's, t_i D, at the first and largest step."""
    return ic_admm.claim(facts, InexactSteps(steps.penalty, 1.0 / steps.stepsize), graph)


HUANG_STAR = Algorithm(
    name="huang-star",
    title="DP-ADMM (Huang), with a coordinator",
    kind="rounds",
    init=star_init,
    step=star_step,
    answer=star_answer,
    menu=STAR_MENU,
    steady=False,
    mechanisms=("gradient", "published"),
    links="star",
    claim=star_claim,
)

HUANG_RING = Algorithm(
    name="huang-ring",
    title="DP-ADMM (Huang), on a graph",
    kind="rounds",
    init=init,
    step=ring_step,
    answer=answer,
    menu=RING_MENU,
    steady=False,
    mechanisms=("gradient", "published"),
    links="neighbours",
    paper_factor=2,
    needs=NEEDS,
    claim=ring_claim,
)
