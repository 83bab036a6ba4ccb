"""What a coalition sees of a run whose agents are seen in sums only, and what it makes of it.

The coalition is the worst that the plan's trust allows: of all agents but the one whose record differs, the t that add
most noise, so that what is left is least. It knows D and D', every model, the sum of every lap, and what its own
members added, noise included. It takes that off the sum of each lap as it was sent, and the others' clipped means:

    sum over the honest of ( round(g_i / unit) + Z_i ) unit  -  sum over the honest of g_i(y)          noise, under D

An engine adds masks where agents send over a network. They cancel in what is seen here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from relaydp.algorithm.relay_gradient import Collection, RelayGradientState, momentum_of
from relaydp.graph import Route
from relaydp.planning.run_plan import Plan
from relaydp.problem.problem import Terms


class Laps(NamedTuple):
    """One row per lap of gradients."""

    point: Float[Array, "laps dim"]  # where everybody was asked
    total: Float[Array, "laps dim"]  # the sum over the honest, with noise


def addition(state: RelayGradientState) -> Int[Array, " dim"]:
    """What the holder of this hop added: an agent knows its own."""
    assert state.added is not None
    return state.added


def honest_of(plan: Plan, victim: int) -> np.ndarray:
    """Which agents are outside the worst coalition, (agents,): the victim, and those that add least."""
    assert plan.trust is not None
    added = (plan.scales**2).sum(axis=0)
    added[victim] = -np.inf
    honest = np.zeros(len(added), bool)
    honest[np.argsort(added, kind="stable")[: len(added) - plan.trust.collusion]] = True
    return honest


def left_behind(plan: Plan, honest: np.ndarray) -> np.ndarray:
    """The noise of a sum over the honest, for each release of a plan: (activations,)."""
    return np.sqrt((plan.scales[:, honest] ** 2).sum(axis=1))


def closing_hops(plan: Plan) -> np.ndarray:
    """The hop that ends each lap of gradients, counted from the first of them."""
    assert isinstance(plan.route, Route)
    acts = np.flatnonzero(plan.route.acts[plan.preparing :])
    return acts[plan.facts.agents - 1 :: plan.facts.agents]


def lap_units(plan: Plan) -> np.ndarray:
    """The step of the lattice of each lap of gradients."""
    return np.array([lattice.step for lattice in plan.lattices])[int(plan.preparing > 0) :]


def honest_laps(
    plan: Plan,
    terms: Terms,
    steps: Any,
    start: Float[Array, " dim"],
    sent: Collection,
    added: Int[Array, "hops dim"],
    honest: np.ndarray,
) -> Laps:
    """The laps of one run, from what was sent and what the coalition's members added, in the run's coordinates."""
    assert isinstance(plan.route, Route)
    holder, acts = plan.route.holder[plan.preparing :], plan.route.acts[plan.preparing :]
    ends = closing_hops(plan)
    lap = np.searchsorted(ends, np.arange(len(acts)))
    own = jnp.where((acts & ~honest[holder])[:, None], added[: len(acts)], 0)
    own = jax.ops.segment_sum(own, lap, num_segments=len(ends) + 1)[: len(ends)]
    models = jnp.concatenate([start[None], sent.x[ends[:-1]]])
    before = jnp.concatenate([start[None], models[:-1]])
    k = jnp.arange(len(ends), dtype=models.dtype)
    point = steps.stretch * (models + momentum_of(steps, k)[:, None] * (models - before))
    mean = sent.total[ends] - jax.vmap(terms.ridge_gradient)(point)
    return Laps(point, plan.facts.agents * mean - own.astype(mean.dtype) * lap_units(plan)[:, None])


def honest_first(plan: Plan, released: Any, added: Any, honest: np.ndarray) -> Any:
    """The same of a first lap that prepares, from the mean that was sent: the sum over the honest, with noise."""
    return plan.facts.agents * released - added[~honest].sum(axis=0) * plan.lattices[0].step
