"""Gradients of the methods with one copy of x per agent, from the copies that neighbours exchange.

Each solves its method's own equation (numbered as in `relaydp.algorithm`) for the gradient. A copy is sent at the
beginning of a round, so the last round's gradient remains unknown, except where the round itself sends it (NIDS).
Noise on the copies enters every equation: then nothing is exact, and an agent's own copy is assumed to be the one it
sent.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from relaydp.attack.threat import Guess, Known, Sent, by_round


def _apart(known: Known, value: Array) -> Array:
    """(I - W) value, over the agents' axis (the last but one)."""
    return value - jnp.einsum("ij,...jd->...id", known.network.mixing, value)


def dgd(known: Known, sent: Sent) -> Guess:
    """(2)  x_(k+1) = prox_{a_k r}( W x_k - a_k grad f(x_k) ),   (1)  a_k = a / sqrt(1 + k/h)."""
    now, after = sent["x"][:-1], sent["x"][1:]
    k = jnp.arange(len(now), dtype=now.dtype)
    a = (known.steps.stepsize / jnp.sqrt(1.0 + k / known.steps.horizon))[:, None, None]  # (1)
    slope, smooth = known.penalty.slope(after)
    gradient = (now - _apart(known, now) - after) / a - slope  # (2)
    return by_round(known, now, gradient, known.trusted(smooth))


def pg_extra(known: Known, sent: Sent) -> Guess:
    """(2) summed over the rounds:  a grad f(x_k) = z_0 - z_(k+1) + sum_j ( W x_j - W~ x_(j-1) ),  z by (3)."""
    now, after = sent["x"][:-1], sent["x"][1:]
    start = known.everyone()[None]
    before = jnp.concatenate([start, now[:-1]])
    mixed = (now - _apart(known, now)) - (before - 0.5 * _apart(known, before))
    a = known.steps.stepsize
    slope, smooth = known.penalty.slope(after)
    z = after + a * slope  # (3), the prox undone
    gradient = (start - z + jnp.cumsum(mixed, axis=0)) / a  # (2)
    return by_round(known, now, gradient, known.trusted(smooth))


def nids(known: Known, sent: Sent) -> Guess:
    """(1) summed over the rounds:  a_i grad f(x_k) = sum_j ( 2 x_j - x_(j-1) - v_j ).

    x follows from the v's by (2) and (3), including the prox: nothing has to be inverted, and no coordinate is hidden.
    """
    a = known.steps.stepsize

    def round_(carry: Any, row: Any) -> tuple[Any, Any]:
        z, x, before, total = carry
        mixing, v = row
        total = total + 2.0 * x - before - v  # (1)
        z = z - x + v - mixing * a[:, None] * _apart(known, v)  # (2)
        return (z, jax.vmap(known.penalty.prox)(z, a), x, total), (x, total / a[:, None])  # (3)

    v, x0 = sent["v"], known.everyone()
    mixing = jnp.full(len(v), known.steps.mixing).at[0].set(0.0)  # the first round does not mix
    _, (x, gradient) = jax.lax.scan(round_, (x0, x0, x0, jnp.zeros_like(x0)), (mixing, v))
    return by_round(known, x, gradient, known.trusted(jnp.ones_like(x, bool)))


def gradient_tracking(known: Known, sent: Sent) -> Guess:
    """(2) summed over the rounds:  grad f(x_(k+1)) = sum_j ( s_(j+1) - W s_j ); both x and s are sent as they are."""
    now, after = sent["s"][:-1], sent["s"][1:]
    gradient = jnp.cumsum(after - now + _apart(known, now), axis=0)
    point = sent["x"][1:]
    return by_round(known, point, gradient, known.trusted(jnp.ones_like(point, bool)))
