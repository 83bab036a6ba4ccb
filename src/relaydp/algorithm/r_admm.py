"""R-ADMM and MR-ADMM: ADMM that touches data in every other iteration and recycles the gradient in between.

One `step` is a pair, an odd iteration (1), (2) with data and an even one (3) to (5) without:

    (1)  p_i' = p_i + c sum_j (x_i - x_j)                                               j the neighbours of i
    (2)  x_i' = argmin_x  f_i(x) + <p_i', x> + eta d_i || x - v_i ||^2                   v_i = (x_i + mean_j x_j)/2
    (3)  G_i  = -p_i' - 2 eta d_i (x_i' - v_i)                                           = grad f_i(x_i'), from (2)
    (4)  p_i+ = p_i' + c sum_j (x_i' - x_j')
    (5)  x_i+ = x_i' - [ G_i + p_i+ + eta sum_j (x_i' - x_j') ] / (2 eta d_i + gamma)

(5) minimises (2)'s function about x' with f_i replaced by <G_i, x> + gamma/2 ||x - x_i'||^2; gamma >= L/4 has always
been stable. R-ADMM has eta = c, MR-ADMM the growing penalty of M-ADMM, one per pair. No theory for a nonsmooth r.

Source: Zhang, Khalili and Liu 2018, Recycled ADMM: improve privacy and accuracy with less computation in distributed
algorithms, arXiv 1810.03197. They add noise to p_i' in (2) (`published`, with their price; `objective` is the same,
soundly priced); (3) takes it along.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from relaydp.algorithm.base import OBJECTIVE, Algorithm, Setting, Turn
from relaydp.algorithm.consensus import Everyone
from relaydp.algorithm.d_admm import NEEDS, balanced_penalty, curvature, exchange, midpoints, outward
from relaydp.algorithm.m_admm import GROWTH, LIMIT, penalty_now
from relaydp.algorithm.m_admm import check as check_growth
from relaydp.algorithm.m_admm import curvature as growing_curvature
from relaydp.algorithm.menu import Menu, product
from relaydp.algorithm.pg_admm import AdmmState, answer, init
from relaydp.errors import InputError
from relaydp.graph import Graph
from relaydp.problem import Facts

STABLE = 0.25  # gamma as a share of L: the least that has always been stable


class RecycledSteps(NamedTuple):
    penalty: Float[Array, ""]  # c
    damping: Float[Array, ""]  # gamma


class GrowingRecycledSteps(NamedTuple):
    penalty: Float[Array, ""]  # c: the dual step, and the penalty at first
    damping: Float[Array, ""]  # gamma
    growth: Float[Array, ""] = GROWTH  # type: ignore[assignment]  # of the penalty, a pair
    limit: Float[Array, ""] = LIMIT  # type: ignore[assignment]  # of eta / c


class Pair(NamedTuple):
    """Each agent's two vectors, sent to all its neighbours one after the other."""

    x: Everyone  # before the odd iteration
    between: Everyone  # x', before the even one


def _pair(
    setting: Setting, eta: Float[Array, ""], steps: RecycledSteps | GrowingRecycledSteps, state: AdmmState, turn: Turn
) -> tuple[AdmmState, Pair]:
    laplacian, degree = setting.network.laplacian, setting.network.degree[:, None]

    def act() -> tuple[AdmmState, Pair]:
        x, price = exchange(setting, eta, steps.penalty, state, state.x, turn)  # (1), (2)
        slope = -price - 2.0 * eta * degree * (x - midpoints(setting, state.x))  # (3)
        apart = laplacian @ x
        new_price = price + steps.penalty * apart  # (4)
        new_x = x - (slope + new_price + eta * apart) / (2.0 * eta * degree + steps.damping)  # (5)
        return AdmmState(new_x, new_price), Pair(state.x, x)

    return setting.when(jnp.any(turn.acts), act, lambda: (state, Pair(state.x, state.x)))


def step(setting: Setting, steps: RecycledSteps, state: AdmmState, turn: Turn) -> tuple[AdmmState, Pair]:
    """Let every agent minimise once and move twice.

    Leaves agent i: x_i and x_i', each to all its neighbours. x_i' is private where the argmin is; x_i+ and G_i are made
    of x_i' and of what was sent before, and cost nothing.
    """
    return _pair(setting, steps.penalty, steps, state, turn)


def growing_step(setting: Setting, steps: GrowingRecycledSteps, state: AdmmState, turn: Turn) -> tuple[AdmmState, Pair]:
    """The same with a penalty that grows from pair to pair. Leaves agent i: as in `step`."""
    return _pair(setting, penalty_now(steps, turn), steps, state, turn)


def paper_steps(facts: Facts, graph: Graph) -> RecycledSteps:
    """D-ADMM's penalty, and gamma = L."""
    return RecycledSteps(balanced_penalty(facts, graph), float(facts.smoothness.max()))  # type: ignore[arg-type]


def grid(facts: Facts, graph: Graph) -> list[RecycledSteps]:
    middle, L = 0.8 * balanced_penalty(facts, graph), float(facts.smoothness.max())
    shares = (0.5, 0.35, 0.7, STABLE, 1.0, 2.0)  # of L
    return [RecycledSteps(**row) for row in product(penalty=outward(middle, 20.0, 35), damping=[L * s for s in shares])]


def check(steps: RecycledSteps | GrowingRecycledSteps, facts: Facts, graph: Graph) -> None:
    least = STABLE * float(facts.smoothness.max()) * (1.0 - 1e-12)
    if not float(steps.damping) >= least:
        raise InputError(
            f"step damping={float(steps.damping):.4g} is below {least:.4g} (L/4); raise it, or use steps='tuned'."
        )


def growing_paper_steps(facts: Facts, graph: Graph) -> GrowingRecycledSteps:
    return GrowingRecycledSteps(*paper_steps(facts, graph))


def growing_grid(facts: Facts, graph: Graph) -> list[GrowingRecycledSteps]:
    return [GrowingRecycledSteps(*row) for row in grid(facts, graph)]


def growing_check(steps: GrowingRecycledSteps, facts: Facts, graph: Graph) -> None:
    check(steps, facts, graph)
    check_growth(steps, facts, graph)


R_ADMM = Algorithm(
    name="r-admm",
    title="R-ADMM",
    kind="rounds",
    init=init,
    step=step,
    answer=answer,
    menu=Menu(RecycledSteps, paper_steps, grid, check),
    mechanisms=("objective", "published"),
    links="neighbours",
    exchanges=2,
    paper_factor=2,
    needs=NEEDS,
    takes_r=False,
    data="argmin",
    instead="ic-admm",
    variants=(OBJECTIVE,),
    curvature=curvature,
)

MR_ADMM = Algorithm(
    name="mr-admm",
    title="MR-ADMM",
    kind="rounds",
    init=init,
    step=growing_step,
    answer=answer,
    menu=Menu(GrowingRecycledSteps, growing_paper_steps, growing_grid, growing_check, fixed=("growth", "limit")),
    steady=False,
    mechanisms=("objective", "published"),
    links="neighbours",
    exchanges=2,
    paper_factor=2,
    needs=NEEDS,
    takes_r=False,
    data="argmin",
    instead="ic-admm",
    variants=(OBJECTIVE,),
    curvature=growing_curvature,
)
