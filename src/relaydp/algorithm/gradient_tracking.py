"""Gradient tracking: every agent carries an estimate of the mean gradient beside its copy, and descends along it.

    (1)  x_(k+1) = prox_{a r}( W (x_k - a s_k) )
    (2)  s_(k+1) = W s_k + grad f(x_(k+1)) - grad f(x_k)

stacked over the agents' copies; W the Metropolis weights. With s_0 = 0 and a zero slope the first round takes no step:
it asks for the first gradient. The mean of the s_i is that of the last gradients, so a point where nothing moves has
equal copies and is the optimum, at a constant step.

How long a step is stable depends on graph and data; a < 2/L is necessary, and the proofs ask for the order of
(1 - sigma)^2 / L, sigma the second largest |eigenvalue| of W. Planning finds what the graph allows. The proofs are for
r = 0; with the prox in (1) the fixed points are still the right ones, and runs with the l1 norm reach them.
Source: Qu and Li 2018, Harnessing smoothness to accelerate distributed optimization, arXiv 1605.07112; Nedic, Olshevsky
and Shi 2017, arXiv 1607.03218.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm.base import Algorithm, Setting, Turn
from relaydp.algorithm.consensus import Everyone, apart, masked, spread
from relaydp.algorithm.menu import Menu, refuse
from relaydp.graph import Graph, metropolis
from relaydp.problem import Facts


class TrackingSteps(NamedTuple):
    stepsize: Float[Array, ""]  # a


class TrackingState(NamedTuple):
    x: Everyone  # x_k; what is sent
    tracker: Everyone  # s_k; what is sent too
    slope: Everyone  # the privatised grad f(x_k); never leaves its agent


class Tracked(NamedTuple):
    """Each agent's copy and its estimate of the mean gradient, sent to all its neighbours."""

    x: Everyone
    s: Everyone


def init(setting: Setting, steps: TrackingSteps, x0: Float[Array, " dim"]) -> TrackingState:
    x = spread(x0, setting.agents)
    return TrackingState(x, jnp.zeros_like(x), jnp.zeros_like(x))


def step(setting: Setting, steps: TrackingSteps, state: TrackingState, turn: Turn) -> tuple[TrackingState, Tracked]:
    """Let every agent exchange copies and trackers with its neighbours, take one step and look at its records.

    Leaves agent i: x_i and s_i, to all its neighbours. Private when `setting.gradients` is: both are made of gradients
    that went through it, each asked for once.
    """
    both = masked(setting, turn, jnp.concatenate([state.x, state.tracker], axis=1))  # two draws of the noise, not one
    sent = Tracked(*jnp.split(both, 2, axis=1))

    def act() -> TrackingState:
        ahead = state.x - steps.stepsize * state.tracker - apart(setting, sent.x - steps.stepsize * sent.s)
        x = jax.vmap(setting.prox, in_axes=(0, None))(ahead, steps.stepsize)  # (1)
        slope = setting.gradients(x)
        tracker = state.tracker - apart(setting, sent.s) + slope - state.slope  # (2)
        return TrackingState(x, tracker, slope)

    return setting.when(jnp.any(turn.acts), act, lambda: state), sent


def answer(state: TrackingState) -> Float[Array, " dim"]:
    return jnp.mean(state.x, axis=0)


def paper_steps(facts: Facts, graph: Graph) -> TrackingSteps:
    """(1 - sigma)^2 / L: the order that the proofs ask for, without their constants."""
    sigma = float(np.sort(np.abs(np.linalg.eigvalsh(metropolis(graph))))[-2])
    return TrackingSteps((1.0 - sigma) ** 2 / float(facts.smoothness.max()))  # type: ignore[arg-type]


def grid(facts: Facts, graph: Graph) -> list[TrackingSteps]:
    return [TrackingSteps(share / float(facts.smoothness.max())) for share in np.geomspace(1e-3, 1.9, 80)]  # type: ignore[arg-type]


def check(steps: TrackingSteps, facts: Facts, graph: Graph) -> None:
    refuse("stepsize", float(steps.stepsize), 2.0 / float(facts.smoothness.max()), "2/L")


def claim(facts: Facts, steps: TrackingSteps, graph: Graph) -> np.ndarray:
    """2 D with D = 2c: both gradients in (2) count, x_(k+1) has neither; state held equal."""
    return np.full(facts.agents, 4.0 * facts.clip)


GRADIENT_TRACKING = Algorithm(
    name="gradient-tracking",
    title="Gradient tracking",
    kind="rounds",
    init=init,
    step=step,
    answer=answer,
    menu=Menu(TrackingSteps, paper_steps, grid, check),
    mechanisms=("gradient", "published"),
    links="neighbours",
    vectors=2,
    needs=("mixing",),
    claim=claim,
)
