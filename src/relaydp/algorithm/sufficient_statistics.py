"""Sufficient statistics: the baton collects all that least squares needs, and the last agent solves for the model.

At its activation agent i tells H_i = A_i'A_i/m_i + l2 I (no ridge on an intercept) and b_i = A_i'y_i/m_i, with noise:

    (1)  S+ = S + (H~_i, b~_i) / n

and the last agent of lap k = 1, 2, ... closes it with

    (2)  (H, b) = S+ / k,   H = Q diag(h) Q',   h = max(h, 0)
    (3)  x = argmin 1/2 x'Q diag(h + e/h) Q'x - b'x + r(x)

One lap is enough: F is 1/2 x'Hx - b'x + r and a constant, so that without noise, where e = 0, (3) is its minimiser.
More laps repeat the question, with a part of the budget each, and average what was answered: the same noise at the same
price. Everything after (1) is post-processing, which everybody who saw the last baton can do.

The noise is in H and b, and a small h that noise has made would let it through without limit. So every direction is
shrunk by h^2/(h^2 + e), as is best for a coefficient of variance v that is seen as h x plus noise of variance e v. Both
are found in what was released, by the likelihood of Q'b for each v:

    (4)  e v = a^2 ( s_b^2 + s_H^2 (q + 1) v / 2 ),      v = argmax_v  prod_k  N( (Q'b)_k;  0,  h_k^2 v + e v )

s_H and s_b are the public scales of the noise in (2): on H's diagonal, where it is root 2 times that of the others, and
on b. (q + 1) v/2 s_H^2 is what the noise in H times an x of variance v adds. `caution` is a, 1 unless the user says so:
more shrinks more. AdaSSP (Wang 2018) adds a constant ridge instead, of the size that noise could have taken from the
least h; on generated problems (4) lost less, most of all where noise is large.

With r, (3) is solved by accelerated proximal gradient steps on q numbers, and directions that (4) shrinks to nothing
have a curvature of CAP times the least, so that these settle.

Source: Vu and Slavkovic 2009; Wang 2018, Revisiting differentially private linear regression, arXiv 1803.02596.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm.base import Algorithm, Setting, Turn, Vector
from relaydp.algorithm.menu import Menu
from relaydp.graph import Graph
from relaydp.problem import Facts

MOST_COEFFICIENTS = 256  # a baton of 33,000 numbers; with more of them gradients tell as much, with fewer numbers
VARIANCES = np.geomspace(1e-4, 1e10, 113)  # the v that (4) looks through, beside that of noise in the best direction
NOTHING = 1e-13  # an eigenvalue this much smaller than the largest is rounding
CAP = 1e4
STEPS, SETTLED = 100_000, 1e-13  # of (3) with r: at most so many, and fewer where they move x by less


class SufficientStatisticsSteps(NamedTuple):
    caution: Float[Array, ""] = 1.0  # type: ignore[assignment]  # a
    lap: Float[Array, ""] = 1.0  # type: ignore[assignment]  # hops in a lap; planning counts them
    closing: Float[Array, ""] = 1.0  # type: ignore[assignment]  # which hop of a lap, from 1, is the last that acts


class StatisticsSums(NamedTuple):
    """The baton."""

    x: Vector  # the model, once a lap is closed; until then the start
    total: Float[Array, " numbers"]  # S: H's entries on and above the diagonal, row by row, and b


class SufficientStatisticsState(NamedTuple):
    baton: StatisticsSums
    variance: Float[Array, " 2"]  # public: of the noise in S


def numbers_in_baton(dim: int) -> int:
    """x and S."""
    return dim + dim * (dim + 3) // 2


def pack(hessian: Float[Array, "dim dim"], moment: Vector) -> Float[Array, " numbers"]:
    """S of one agent."""
    return jnp.concatenate([hessian[np.triu_indices(moment.shape[0])], moment])


def unpack(total: Float[Array, " numbers"], dim: int) -> tuple[Float[Array, "dim dim"], Vector]:
    """H and b of S."""
    rows, columns = np.triu_indices(dim)
    part = total[: len(rows)]
    hessian = jnp.zeros((dim, dim), total.dtype).at[rows, columns].set(part).at[columns, rows].set(part)
    return hessian, total[len(rows) :]


def init(setting: Setting, steps: SufficientStatisticsSteps, x0: Float[Array, " dim"]) -> SufficientStatisticsState:
    numbers = x0.size * (x0.size + 3) // 2
    return SufficientStatisticsState(StatisticsSums(x0, jnp.zeros(numbers, x0.dtype)), jnp.zeros(2, x0.dtype))


def step(
    setting: Setting, steps: SufficientStatisticsSteps, state: SufficientStatisticsState, turn: Turn
) -> tuple[SufficientStatisticsState, StatisticsSums]:
    """Let the holder add its statistics to the baton; the last of a lap solves for the model.

    Leaves agent i: (x, S), once a lap, to one neighbour. Private when `setting.statistics` is: S is a sum of what went
    through it, each asked for once, and x is made of S and public numbers.
    """
    x, total = state.baton
    hop = turn.hop.astype(steps.lap.dtype)
    k = jnp.floor(hop / steps.lap)
    closes = hop - k * steps.lap == steps.closing - 1.0

    def act() -> tuple[Array, Array, Array]:
        told = setting.statistics()
        collected = total + pack(told.hessian, told.moment) / setting.agents  # (1)
        variance = state.variance + (told.spread / setting.agents) ** 2

        def solve() -> Array:
            laps = k + 1.0
            return solve_sums(*unpack(collected / laps, x.size), steps.caution**2 * variance / laps**2, setting.prox)

        return setting.when(closes, solve, lambda: x), collected, variance

    new_x, new_total, variance = setting.when(turn.acts, act, lambda: (x, total, state.variance))
    baton = StatisticsSums(new_x, new_total)
    return SufficientStatisticsState(baton, variance), baton


def solve_sums(
    hessian: Float[Array, "dim dim"],
    moment: Vector,
    variance: Float[Array, " 2"],
    prox: Callable[[Vector, Any], Vector],
) -> Vector:
    """(2) to (4): the model of released means, whose noise has these variances on H's diagonal and on b."""
    values, Q = jnp.linalg.eigh(hessian)
    h = jnp.maximum(values, 0.0)  # (2)
    seen = Q.T @ moment
    e = noise_share(h, seen, variance)
    real = h > NOTHING * h[-1]
    bent = jnp.where(real, h + e / jnp.where(real, h, 1.0), jnp.inf)
    plain = Q @ (seen / bent)  # (3) without r
    least = jnp.min(bent)
    # without noise, what has no curvature has no slope either, and r alone decides there
    bent = jnp.where(e > 0.0, jnp.minimum(bent, CAP * least), jnp.where(real, bent, 0.0))
    return _descend(lambda x: Q @ (bent * (Q.T @ x)) - moment, jnp.max(bent), prox, plain)


def noise_share(h: Vector, seen: Vector, variance: Float[Array, " 2"]) -> Float[Array, ""]:
    """e of (4); 0 without noise."""
    on_matrix, on_vector = variance
    noisy, top = on_vector > 0.0, jnp.where(h[-1] > 0.0, h[-1], 1.0)
    v = jnp.where(noisy, on_vector, 1.0) / top**2 * VARIANCES
    noise = on_vector + on_matrix * (h.shape[0] + 1.0) / 2.0 * v  # e v
    spread = h[:, None] ** 2 * v[None, :] + jnp.where(noisy, noise, 1.0)[None, :]
    likelihood = -0.5 * jnp.sum(jnp.log(spread) + seen[:, None] ** 2 / spread, axis=0)
    best = jnp.argmax(likelihood)
    return jnp.where(noisy, noise[best] / v[best], 0.0)


def _descend(
    slope: Callable[[Vector], Vector], L: Float[Array, ""], prox: Callable[[Vector, Any], Vector], start: Vector
) -> Vector:
    """(3): accelerated proximal gradient steps with restarts (O'Donoghue and Candes 2015). Without r it starts at its
    end."""
    t = 1.0 / jnp.where(L > 0.0, L, 1.0)

    def move(state: tuple[Array, ...]) -> tuple[Array, ...]:
        x, y, speed, count, _ = state
        new = prox(y - t * slope(y), t)
        turned = jnp.sum((y - new) * (new - x)) > 0.0
        faster = jnp.where(turned, 1.0, (1.0 + jnp.sqrt(1.0 + 4.0 * speed**2)) / 2.0)
        ahead = new + jnp.where(turned, 0.0, (speed - 1.0) / faster) * (new - x)
        moved = jnp.maximum(jnp.max(jnp.abs(new - y)), jnp.max(jnp.abs(new - x)))
        return new, ahead, faster, count + 1, moved > SETTLED * jnp.max(jnp.abs(new))

    first = (start, start, jnp.ones(()), jnp.zeros((), jnp.int32), jnp.ones((), bool))
    found = jax.lax.while_loop(lambda state: state[4] & (state[3] < STEPS), move, first)
    return found[0]


def answer(state: SufficientStatisticsState) -> Float[Array, " dim"]:
    return state.baton.x


def paper_steps(facts: Facts, graph: Graph) -> SufficientStatisticsSteps:
    return SufficientStatisticsSteps()


def grid(facts: Facts, graph: Graph) -> list[SufficientStatisticsSteps]:
    """There is nothing to tune: what depends on the problem follows from what is released."""
    return [paper_steps(facts, graph)]


def check(steps: SufficientStatisticsSteps, facts: Facts, graph: Graph) -> None:
    """Every `caution` above 0 gives a model."""


SUFFICIENT_STATISTICS = Algorithm(
    name="sufficient-statistics",
    title="Sufficient statistics",
    kind="relay",
    init=init,
    step=step,
    answer=answer,
    menu=Menu(SufficientStatisticsSteps, paper_steps, grid, check, fixed=("caution",), laps=True),
    steady=False,
    walks=("cyclic", "tour"),
    mechanisms=("gradient",),
    links="hop",
    data="statistics",
    instead="recal",
    numbers=numbers_in_baton,
)
