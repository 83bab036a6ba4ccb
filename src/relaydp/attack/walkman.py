"""Walkman's gradients from its token. Everything else follows from y_i = x0 and z_i = 0 at the start:

    (1)  x    = prox_{r/beta}( t )
    (4)  t+   = t + ( 2 y_i+ - y_i - x ) / n           solved for y_i+
    (3)  z_i+ = z_i + beta (x - y_i+)

and by (2), z_i+ IS the gradient: at y_i in the gradient form, at y_i+ in the exact one. No prox has to be inverted.
Noise on t is also on y_i+, and remains there.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from relaydp.attack.threat import Guess, Known, Sent, by_visit


def walkman_gradient(known: Known, sent: Sent) -> Guess:
    before, _, gradient = _follow(known, sent)
    return by_visit(known, before, gradient, known.trusted(jnp.ones_like(before, bool)))


def walkman(known: Known, sent: Sent) -> Guess:
    """The exact form, and I-ADMM."""
    _, after, gradient = _follow(known, sent)
    return by_visit(known, after, gradient, known.trusted(jnp.ones_like(after, bool)))


def _follow(known: Known, sent: Sent) -> tuple[Array, Array, Array]:
    beta = known.steps.beta
    t, new_t = known.visits(sent["t"], known.x0)

    def visit(carry: Any, row: Any) -> tuple[Any, Any]:
        y, z = carry
        i, t, new_t = row
        x = known.penalty.prox(t, 1.0 / beta)  # (1)
        new_y = (known.agents * (new_t - t) + y[i] + x) / 2.0  # (4)
        new_z = z[i] + beta * (x - new_y)  # (3)
        return (y.at[i].set(new_y), z.at[i].set(new_z)), (y[i], new_y, new_z)

    start = (known.everyone(), jnp.zeros_like(known.everyone()))
    return jax.lax.scan(visit, start, (known.who, t, new_t))[1]
