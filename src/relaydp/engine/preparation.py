"""The first lap of a run that prepares: every agent releases the sums and shares of its classes and the mean square of
its records' norms, and all go on in new coordinates.

`problem.coordinates` says which, and why. The release is one question to the records with noise of its own, entered in
the ledger like any other. What follows from it is public.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from relaydp.arrays import placed
from relaydp.graph import Route
from relaydp.oracle.moments import mean_of_shares, release_moments, share_moments
from relaydp.oracle.randomness import draw_gradient_noise, draw_shares
from relaydp.planning.run_plan import Plan
from relaydp.problem import AgentRecords, Problem
from relaydp.problem.coordinates import Coordinates, classes_of, find_coordinates

KEY = 2**31 - 1  # of a simulation's noise in this release: hops have smaller numbers


class First(NamedTuple):
    """What the first lap needs, from public facts."""

    bound: Float[Array, ""]  # on the norm of a record's features
    clip: Float[Array, ""]  # releases are in units in which one record moves them as it moves a gradient
    scale: Float[Array, " agents"]
    unit: Float[Array, ""] | None = None  # the step of the lattice, where parties are seen in sums only


class Prepared(NamedTuple):
    """What came of it. Only the norms are private."""

    coordinates: Coordinates
    norm: Float[Array, " records"]  # of every record in these coordinates
    released: Float[Array, "agents numbers"]  # with sums only, their mean alone: (1, numbers)
    added: Int[Array, "agents numbers"] | None = None  # with sums only, by each agent; nobody sees it but an audit

    def of(self, agent_records: AgentRecords) -> AgentRecords:
        """The records in these coordinates."""
        return agent_records.with_norm(self.norm, self.coordinates)


def sent_first(plan: Plan, problem: Problem, released: np.ndarray) -> dict[str, np.ndarray]:
    """The batons of the first lap: no model, and as `first` the sums so far of what the agents released."""
    way = plan.route
    assert isinstance(way, Route)
    acts, holder = way.acts[: plan.preparing], way.holder[: plan.preparing]
    if plan.sums:  # nobody sees a sum before the lap is closed
        sums = np.where((np.arange(plan.preparing) == np.flatnonzero(acts)[-1])[:, None], released, 0.0)
    else:
        sums = np.cumsum(np.where(acts[:, None], released[holder], 0.0), axis=0) / len(released)
    nothing = np.zeros((plan.preparing, problem.dim))
    return {"x": nothing, "total": nothing, "first": sums}


def with_first(first: dict[str, np.ndarray] | None, payload: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All that was sent, the first lap's batons before the others."""
    if first is None:
        return payload
    later = {**payload, "first": np.zeros((len(payload["x"]), first["first"].shape[1]))}
    return {name: np.concatenate([first[name], later[name]]) for name in first}


def start_of(plan: Plan, coordinates: Coordinates, x0: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """Where the laps of gradients start, in the new coordinates: at x0, and with none at what the classes' shares say.

    Gradients are asked for at a multiple of the model.
    """
    found = jnp.where(jnp.any(x0 != 0.0), x0, coordinates.start / plan.steps.stretch)
    return coordinates.undo(found)


def paced(steps: Any, coordinates: Coordinates | None) -> Any:
    """The steps that are taken in these coordinates."""
    return steps if coordinates is None else steps._replace(stepsize=steps.stepsize * coordinates.pace)


def first_of(problem: Problem, plan: Plan, secret: bool = False) -> First:
    """`secret` for noise from the lattice, whose scales are a hair larger."""
    scales = plan.lattice_scales() if secret else plan.scales
    unit = placed(plan.lattices[0].step) if plan.sums else None
    return First(placed(problem.features_bound(), np.float64), placed(plan.facts.clip), placed(scales[0]), unit)


def draws_for_first(plan: Plan, problem: Problem) -> np.ndarray:
    """Secret noise for the first lap's releases."""
    everyone = np.ones(plan.facts.agents, bool)
    if plan.sums:
        lattice = plan.lattices[0]
        return draw_shares(everyone, lattice.r, lattice.L, numbers_of(problem))
    return draw_gradient_noise(everyone, numbers_of(problem))


def numbers_of(problem: Problem) -> int:
    """How many numbers a release of the first lap has."""
    return classes_of(problem.loss.outputs) * (problem.data.features + 1) + 1  # type: ignore[union-attr]


@partial(jax.jit, static_argnums=4)
def prepare(
    agent_records: AgentRecords, first: First, key: Array | None, draws: Array | None, alone: bool = False
) -> Prepared:
    """Ask every agent once, and find the coordinates of the mean of all; or each its own, `alone`."""
    bound, clip, scale, step = first
    if key is not None:
        key = jax.random.fold_in(key, KEY)
    added = None
    if step is None:
        released = release_moments(agent_records, bound, clip / bound, scale, key, draws)
    else:
        added = share_moments(agent_records, bound, clip / bound, scale, step, key, draws)
        released = mean_of_shares(added, step)[None]
    unit = bound / clip

    def find(mean: Array, variance: Array) -> Coordinates:
        return find_coordinates(mean, variance, bound, agent_records.intercept, agent_records.loss.outputs)  # type: ignore[union-attr]

    if alone:
        coordinates = jax.vmap(find)(unit * released, (unit * scale) ** 2)
    else:
        coordinates = find(unit * jnp.mean(released, axis=0), jnp.sum((unit * scale / len(scale)) ** 2))
    return Prepared(coordinates, agent_records.in_coordinates(coordinates).norm, released, added)
