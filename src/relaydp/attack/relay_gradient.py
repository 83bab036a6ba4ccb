"""Relay gradient's gradients, from a baton that collects them in the open:

    (1)  v  = x + min((k - 1)/(k + 2), b) (x - x_i)         x_i: the model that agent i saw a lap ago
    (2)  S+ = S + grad f_i(a v) / n
    (4)  x+ = prox_{t r}( v - t S+ ),   S+ = 0              the last agent of a lap alone; t is that lap's

Both x and S are on the wire. Each agent's gradient is the difference of the S that it received and the S that it sent;
the last agent of a lap sends no S, and its S+ is x+ with the prox undone. Nothing is integrated, so no error adds up.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array

from relaydp.algorithm.relay_gradient import momentum_of, step_of
from relaydp.attack.threat import Guess, Known, Sent, by_visit


def relay_gradient(known: Known, sent: Sent) -> Guess:
    """Every activation's gradient. Kinks of r hide coordinates only of the last agent's in each lap."""
    steps = known.steps
    x, new_x = known.visits(sent["x"], known.x0)
    total, new_total = known.visits(sent["total"], jnp.zeros_like(known.x0))
    seen = _a_lap_ago(known, x)
    hop = jnp.asarray(known.hops, x.dtype)
    k = jnp.floor(hop / steps.lap)
    closes = (hop - k * steps.lap == steps.closing - 1.0)[:, None]
    v = x + momentum_of(steps, k)[:, None] * (x - seen)  # (1)
    slope, smooth = known.penalty.slope(new_x)
    t = step_of(steps, k)[:, None]
    moves = t > 0.0  # a step of nothing shows nothing of what was collected
    collected = jnp.where(closes & moves, (v - new_x) / jnp.where(moves, t, 1.0) - slope, new_total)  # (4)
    gradient = known.agents * (collected - total)  # (2)
    return by_visit(known, steps.stretch * v, gradient, known.trusted((smooth & moves) | ~closes))


def _a_lap_ago(known: Known, x: Array) -> Array:
    """x_i of each visit: the model that this agent received at its visit before."""

    def visit(last: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        i, x = row
        return last.at[i].set(x), last[i]

    return jax.lax.scan(visit, known.everyone(), (jnp.asarray(known.who), x))[1]
