"""What a plan supposes of the problem: its directions by curvature, guessed from public bounds or measured on public
records."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.arrays import placed
from relaydp.planning.quadratic import CONDITION, condition_of
from relaydp.problem import Facts, Problem, minimise
from relaydp.problem.agent_records import AgentRecords, record_losses
from relaydp.problem.loss import Loss
from relaydp.problem.problem import Terms

BINS = 12  # curvatures simulated; every direction counts with the nearest one
SIGNAL, SIGNAL_DECAY = 0.25, 1.6  # the guessed gradient: its norm over c, and its squares against curvature's share
ROWS = 256  # records whose gradients are looked at together


class Directions(NamedTuple):
    """What is supposed of the q directions of the problem, binned by curvature. Public, whether guessed or measured."""

    curvature: np.ndarray  # h
    number: np.ndarray  # of directions with that curvature
    distance: np.ndarray  # their squared distances from the start to the minimiser, in all
    tried: np.ndarray | None = None  # (trials, 3): candidate, activations, and the last factor of (5)

    def as_lists(self) -> dict[str, Any]:
        return {name: part.tolist() for name, part in self._asdict().items() if part is not None}


def guess(facts: Facts) -> Directions:
    """What to suppose where nothing is known but the bounds.

    The k-th curvature of the loss falls like k^-2 with the trace that the record norm allows (tr H <= L); the squared
    gradient at the start has norm c/4 and falls like k^-3.2. This decides how well a budget is used, never what it is.
    """
    L, low = float(facts.smoothness.max()), condition_of(facts)
    k = np.arange(1, facts.dim + 1, dtype=np.float64)
    share = k**-2.0 / (k**-2.0).sum()
    h = L * (low + (1.0 - low) * share)
    gradient = share**SIGNAL_DECAY
    gradient *= (SIGNAL * facts.clip) ** 2 / gradient.sum()
    return binned(h, gradient / h**2)


def binned(h: np.ndarray, distance: np.ndarray) -> Directions:
    """Directions one by one, sorted into bins of similar curvature."""
    edges = np.geomspace(h.min(), h.max() * (1 + 1e-9), BINS + 1)
    at = np.clip(np.searchsorted(edges, h, side="right") - 1, 0, BINS - 1)
    number = np.bincount(at, minlength=BINS)
    centre = np.where(number > 0, np.bincount(at, weights=h, minlength=BINS) / np.maximum(number, 1), edges[:-1])
    return Directions(centre, number, np.bincount(at, weights=distance, minlength=BINS))


def directions_of(problem: Problem, records: int | None = None) -> Directions:
    """The directions of a problem over PUBLIC records, to plan for private ones like them.

    Curvatures half-way from the start to the minimiser, and distances between the two; measured without noise. A few
    records have a minimiser that is farther away by chance than that of many. For a private problem with `records`
    records, what chance is expected to add here and not there is taken off.
    """
    h, distance, chance, count = problem.remembered(_measure)
    if records is None:
        return binned(h, distance)
    found = binned(h, distance - max(0.0, 1.0 - count / records) * chance)
    # what bins have below 0 is taken from the others, so that the gain in all, 1/2 sum_k h_k d_k, stays as estimated
    above = np.maximum(found.distance, 0.0)
    gain, most = float(found.curvature @ found.distance), float(found.curvature @ above)
    return found._replace(distance=above * (max(gain, 0.0) / most if most else 0.0))


def _measure(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Of each direction: curvature, squared distance, and what of it chance adds on average. And how many records.

    To first order the minimiser moves by H^-1 (g - E g) with the mean gradient g, whose variance the records show.
    """
    x = minimise(problem).x
    hessian = np.asarray(_hessian(problem.terms, problem.working_records, placed(x / 2.0)))
    h, vectors = np.linalg.eigh((hessian + hessian.T) / 2.0)
    h = np.maximum(h, max(problem.l2, CONDITION * h[-1]))
    spread, count = _spread(problem, x, vectors)
    return h, (vectors.T @ x) ** 2, spread / h**2, count


@jax.jit
def _hessian(terms: Terms, agent_records: AgentRecords, x: Float[Array, " dim"]) -> Float[Array, "dim dim"]:
    """Of F without r, at x."""

    def slope(y: Array) -> Array:
        return jnp.mean(
            agent_records.gradients(jnp.broadcast_to(y, (agent_records.size.shape[0], y.size)), None), axis=0
        )

    def column(e: Array) -> Array:
        return jax.jvp(slope, (x,), (e,))[1] + terms.ridge_gradient(e)

    return jax.lax.map(column, jnp.eye(x.size, dtype=x.dtype), batch_size=64)


@partial(jax.jit, static_argnums=(0, 1))
def _record_gradients(loss: Loss, intercept: bool, x: Array, A: Array, y: Array) -> Float[Array, "records dim"]:
    def one(x: Array, a: Array, b: Array) -> Array:
        return record_losses(loss, intercept, x, a[None], b[None])[0]

    return jax.vmap(jax.grad(one), in_axes=(None, 0, 0))(x, A, y)


def _spread(problem: Problem, x: np.ndarray, vectors: np.ndarray) -> tuple[np.ndarray, float]:
    """The variance of the mean gradient along each of `vectors`, as the records show it; and how many records count."""
    agent_records = problem.agent_records.dense()
    weights = np.asarray(agent_records.record_weights())
    real = np.flatnonzero(weights)

    X, y = np.asarray(agent_records.X), np.asarray(agent_records.y)
    sums = np.zeros((2, len(x)))
    first = np.zeros(len(x))
    for at in range(0, len(real), ROWS):
        rows = real[at : at + ROWS]
        each = np.asarray(_record_gradients(agent_records.loss, agent_records.intercept, x, X[rows], y[rows]))
        along, w = each @ vectors, weights[rows]
        first += w @ along
        sums += [w**2 @ along, w**2 @ along**2]
    size = float((weights**2).sum())
    return sums[1] - 2.0 * first * sums[0] + first**2 * size, 1.0 / size
