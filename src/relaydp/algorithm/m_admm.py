"""M-ADMM: D-ADMM whose penalty grows apart from its dual step, so that later minimisers move less with a record.

    (1)  eta_t = theta min(growth^t, limit)                                              t = 0, 1, ...
    (2)  p_i+  = p_i + theta sum_j (x_i - x_j)                                           j the neighbours of i
    (3)  x_i+  = argmin_x  f_i(x) + <p_i+, x> + eta_t sum_j || x - (x_i + x_j)/2 ||^2

The theory wants eta_t non-decreasing, bounded and no less than theta, which (1) is for growth, limit >= 1; agents could
each have their own. p is the paper's 2 lambda. No theory for a nonsmooth r.

Source: Zhang, Khalili and Liu 2018, Improving the privacy and accuracy of ADMM-based distributed algorithms. They add
noise to p_i+ in (3) (`published`, with their price; `objective` is the same, soundly priced).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm.base import OBJECTIVE, Algorithm, Setting, Turn
from relaydp.algorithm.consensus import Copies
from relaydp.algorithm.d_admm import NEEDS, balanced_penalty, exchange, outward
from relaydp.algorithm.menu import Menu
from relaydp.algorithm.pg_admm import AdmmState, answer, init
from relaydp.errors import InputError
from relaydp.graph import Graph
from relaydp.problem import Facts

# Growth serves privacy, never speed: a tuner would always stop it. So these two are asked for, not tuned.
GROWTH = 1.01
LIMIT = 10.0


class GrowingSteps(NamedTuple):
    penalty: Float[Array, ""]  # theta: the dual step, and the penalty at first
    growth: Float[Array, ""] = GROWTH  # type: ignore[assignment]  # of the penalty, a round
    limit: Float[Array, ""] = LIMIT  # type: ignore[assignment]  # of eta_t / theta


class Growing(Protocol):
    @property
    def penalty(self) -> Float[Array, ""]: ...
    @property
    def growth(self) -> Float[Array, ""]: ...
    @property
    def limit(self) -> Float[Array, ""]: ...


def penalty_now(steps: Growing, turn: Turn) -> Float[Array, ""]:
    """(1)."""
    t = jnp.asarray(turn.hop).astype(jnp.result_type(steps.penalty))
    return steps.penalty * jnp.minimum(steps.growth**t, steps.limit)


def step(setting: Setting, steps: GrowingSteps, state: AdmmState, turn: Turn) -> tuple[AdmmState, Copies]:
    """Let every agent exchange copies with its neighbours and minimise, a little more cautiously each time.

    Leaves agent i: x_i, to all its neighbours; private where the argmin is: p_i and v_i are made of what was sent.
    """

    def act() -> AdmmState:
        return exchange(setting, penalty_now(steps, turn), steps.penalty, state, state.x, turn)  # (2), (3)

    return setting.when(jnp.any(turn.acts), act, lambda: state), Copies(state.x)


def paper_steps(facts: Facts, graph: Graph) -> GrowingSteps:
    """D-ADMM's penalty to begin with."""
    return GrowingSteps(balanced_penalty(facts, graph))  # type: ignore[arg-type]


def grid(facts: Facts, graph: Graph) -> list[GrowingSteps]:
    return [GrowingSteps(c) for c in outward(0.5 * balanced_penalty(facts, graph), 20.0, 61)]  # type: ignore[arg-type]


def check(steps: Growing, facts: Facts, graph: Graph) -> None:
    for name, value in (("growth", float(steps.growth)), ("limit", float(steps.limit))):
        if not value >= 1.0:
            raise InputError(f"step {name}={value:.4g} would shrink the penalty; needed 1 (constant) or more.")


def curvature(steps: Growing, graph: Graph, activations: int) -> np.ndarray:
    """kappa = 2 eta_t d_i."""
    growth = np.minimum(float(steps.growth) ** np.arange(activations), float(steps.limit))
    return 2.0 * float(steps.penalty) * growth[:, None] * graph.degree[None, :]


M_ADMM = Algorithm(
    name="m-admm",
    title="M-ADMM",
    kind="rounds",
    init=init,
    step=step,
    answer=answer,
    menu=Menu(GrowingSteps, paper_steps, grid, check, fixed=("growth", "limit")),
    steady=False,
    mechanisms=("objective", "published"),
    links="neighbours",
    paper_factor=2,
    needs=NEEDS,
    takes_r=False,
    data="argmin",
    instead="ic-admm",
    variants=(OBJECTIVE,),
    curvature=curvature,
)
