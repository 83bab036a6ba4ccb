"""Relay gradient: a baton collects everybody's gradient at one point, and each lap ends in one accelerated step.

In lap k every agent i that the baton visits does

    (1)  v  = x + min((k - 1)/(k + 2), b) (x - x_i)         where to ask; v = x in the first lap
    (2)  S+ = S + grad f_i(a v) / n
    (3)  x_i+ = x                                           for the next lap: the model of this one

and the last agent of the lap closes it:

    (4)  x+ = prox_{t_k r}( v - t_k S+ ),   S+ = 0,   t_k = t max(1 - k/K, 0)          k counted from 0 here

Every agent sees every lap's x, so that all of them know v without being told. The result is Nesterov's accelerated
proximal gradient method on F, computed by a relay. Agents need none of RECAL's memory (l_i, y_i); in return the model
moves once a lap.

`momentum` is b: 1 (the default) is Nesterov's method, 0 gradient descent. Momentum carries noise along, too. `settled`
is K: with K beyond the last lap (the default) steps stay as long as they are; else they shrink to nothing until lap K,
and with them the noise that is still in the model. `stretch` is a: gradients are asked for at a times the model. With a
= 1 the method minimises F. Clipping below the largest gradient makes a classifier longer than it should be, by a factor
that differs little between problems of many kinds (benchmarks/accuracy.py); asking at that multiple of the model gives
one of the right length, with probabilities to believe in.

**Sums only** (`Setting.sums`; docs/masked-relay.md). Where parties share the noise, S is a vector of whole
numbers modulo 2^64. Nobody sees it before the lap is closed, because pairwise masks hide it, and what leaves an agent
is x, and at the end of a lap the sum. As everybody of a lap is asked at the same v, nothing else changes.

Source: Nesterov 1983; Beck and Teboulle 2009, A fast iterative shrinkage-thresholding algorithm.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm.base import Algorithm, Everyone, Setting, Turn, Vector, put
from relaydp.algorithm.menu import Menu, refuse
from relaydp.graph import Graph
from relaydp.problem import Facts

NEVER = 1e15  # laps
NEVER_TUNED = ("stretch", "momentum", "settled", "lap", "closing")
MOST = 4.0 / 3.0  # of t L: at every curvature up to there, accelerated gradient descent settles, however long it runs


class RelayGradientSteps(NamedTuple):
    stepsize: Float[Array, ""]  # t
    stretch: Float[Array, ""] = 1.0  # type: ignore[assignment]  # a
    momentum: Float[Array, ""] = 1.0  # type: ignore[assignment]  # b
    settled: Float[Array, ""] = NEVER  # type: ignore[assignment]  # K
    lap: Float[Array, ""] = 1.0  # type: ignore[assignment]  # hops in a lap; planning counts them
    closing: Float[Array, ""] = 1.0  # type: ignore[assignment]  # which hop of a lap, from 1, is the last that acts


class Collection(NamedTuple):
    """The baton."""

    x: Vector  # the model
    total: Vector  # S: whole numbers where parties are seen in sums only


class RelayGradientState(NamedTuple):
    last: Everyone  # x_i, the model that agent i saw in its last lap
    baton: Collection
    added: Vector | None = None  # with sums only, what the holder has added: it knows its own, and nobody else does


def init(setting: Setting, steps: RelayGradientSteps, x0: Float[Array, " dim"]) -> RelayGradientState:
    """Everybody knows the public start x0."""
    everyone = jnp.broadcast_to(x0, (setting.agents, x0.size))
    if setting.sums is None:
        return RelayGradientState(everyone, Collection(x0, jnp.zeros_like(x0)))
    nothing = jnp.zeros(x0.shape, jnp.int64)
    return RelayGradientState(everyone, Collection(x0, nothing), nothing)


def step(
    setting: Setting, steps: RelayGradientSteps, state: RelayGradientState, turn: Turn
) -> tuple[RelayGradientState, Collection]:
    """Let the holder add its gradient to the baton; the last of a lap takes the step.

    Leaves agent i: (x, S), once, to one neighbour. Private when `setting.gradient` is: x and S are made of gradients
    that went through it, each asked for once, and x_i is a model that was on the baton. With sums only, what leaves is
    x, and the mean gradient where the lap ends.
    """
    i, (x, total), sums = turn.holder, state.baton, setting.sums
    hop = turn.hop.astype(steps.lap.dtype)
    k = jnp.floor(hop / steps.lap)
    closes = hop - k * steps.lap == steps.closing - 1.0

    def act() -> tuple[Array, Array, Array, Array, Array]:
        v = x + momentum_of(steps, k) * (x - state.last[i])  # (1); x_i = x where k is 0
        asked = steps.stretch * v
        added = setting.gradient(asked) / setting.agents if sums is None else sums.share(asked)
        collected = total + added  # (2)
        mean = collected if sums is None else sums.opened(collected, asked)
        t = step_of(steps, k)
        ahead = setting.prox(v - t * mean, t)  # (4)
        left = jnp.where(closes, jnp.zeros_like(collected), collected)
        return x, jnp.where(closes, ahead, x), left, added, jnp.where(closes, mean, 0.0)

    def relay() -> tuple[Array, Array, Array, Array, Array]:
        return state.last[i], x, total, jnp.zeros_like(total), jnp.zeros_like(x)

    seen, new_x, new_total, added, mean = setting.when(turn.acts, act, relay)
    last, baton = put(state.last, i, seen), Collection(new_x, new_total)  # (3)
    if sums is None:
        return RelayGradientState(last, baton), baton
    return RelayGradientState(last, baton, added), Collection(new_x, mean)


def momentum_of(steps: RelayGradientSteps, k: Array) -> Array:
    """How far ahead lap k asks, from 0."""
    return jnp.minimum((k - 1.0) / (k + 2.0), steps.momentum)


def step_of(steps: RelayGradientSteps, k: Array) -> Array:
    """t_k of lap k, from 0."""
    return steps.stepsize * jnp.maximum(1.0 - k / steps.settled, 0.0)


def answer(state: RelayGradientState) -> Float[Array, " dim"]:
    return state.baton.x


def _limit(facts: Facts) -> float:
    """Above it steps do not settle: 4/3 over the curvature of F, which is at most the agents' mean L_i."""
    return MOST / float(facts.smoothness.mean())


def paper_steps(facts: Facts, graph: Graph) -> RelayGradientSteps:
    """1/L, as in the papers."""
    return RelayGradientSteps(0.75 * _limit(facts))  # type: ignore[arg-type]


def grid(facts: Facts, graph: Graph) -> list[RelayGradientSteps]:
    return [RelayGradientSteps(share * _limit(facts)) for share in np.geomspace(0.001, 0.999, 28)]  # type: ignore[arg-type]


def check(steps: RelayGradientSteps, facts: Facts, graph: Graph) -> None:
    """Without clipping steps have a limit. A private run clips: its gradient is at most c long, whatever the step."""
    if not facts.public:
        refuse("stepsize", float(steps.stepsize) * float(steps.stretch), _limit(facts), "4/(3 L)")


def claim(facts: Facts, steps: RelayGradientSteps, graph: Graph) -> np.ndarray:
    """D = 2c/n: what one record can move of S."""
    return np.full(facts.agents, 2.0 * facts.clip / facts.agents)


RELAY_GRADIENT = Algorithm(
    name="relay-gradient",
    title="Relay gradient",
    kind="relay",
    init=init,
    step=step,
    answer=answer,
    menu=Menu(RelayGradientSteps, paper_steps, grid, check, fixed=NEVER_TUNED, laps=True),
    steady=False,
    walks=("cyclic", "tour"),
    mechanisms=("gradient",),
    links="hop",
    vectors=2,
    takes_sums=True,
    claim=claim,
)
