"""The data-free terms, inverted: from the output of a prox to its input.

    x = prox_{t r}(v)   means   v = x + t s,   s in dr(x)

Where r is smooth around x there is one s and the prox can be undone; at a kink (a coefficient that l1 sets to 0, one on
the edge of a box) any s of an interval is possible, and the input's coordinate is hidden.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from relaydp.errors import InputError
from relaydp.prox import Regulariser
from relaydp.prox.regulariser import L1, Box, ElasticNet, GroupLasso, L2Ball, Nothing

EDGE = 1e-9  # a point this close to the sphere, relative to its radius, may have been projected onto it

Vector = Float[Array, " dim"]


class Penalty(NamedTuple):
    """The public facts about ridge and r."""

    regulariser: Regulariser
    l2: float
    intercepts: int  # trailing coefficients that neither applies to

    def prox(self, v: Vector, t: Any) -> Vector:
        """prox_{t r}(v)."""
        at = v.shape[-1] - self.intercepts
        return jnp.concatenate([self.regulariser.prox(v[:at], t), v[at:]])

    def ridge(self, x: Float[Array, "*rows dim"]) -> Float[Array, "*rows dim"]:
        """The gradient of the ridge."""
        at = x.shape[-1] - self.intercepts
        return jnp.concatenate([self.l2 * x[..., :at], jnp.zeros_like(x[..., at:])], axis=-1)

    def slope(self, x: Float[Array, "*rows dim"]) -> tuple[Float[Array, "*rows dim"], Bool[Array, "*rows dim"]]:
        """s of dr(x), and the coordinates where it is the only one."""
        at = x.shape[-1] - self.intercepts
        undo = jnp.vectorize(lambda row: _slope(self.regulariser, row), signature="(d)->(d),(d)")
        s, smooth = undo(x[..., :at])
        free = x[..., at:]
        pairs = ((s, jnp.zeros_like(free)), (smooth, jnp.ones_like(free, bool)))
        return tuple(jnp.concatenate(pair, axis=-1) for pair in pairs)  # type: ignore[return-value]


def _slope(r: Regulariser, x: Vector) -> tuple[Vector, Bool[Array, " dim"]]:
    match r:
        case Nothing():
            return jnp.zeros_like(x), jnp.ones_like(x, bool)
        case L1():
            return r.l1 * jnp.sign(x), x != 0.0
        case ElasticNet():
            return r.l1 * jnp.sign(x) + r.l2 * x, x != 0.0
        case GroupLasso():
            norm = jnp.sqrt(jnp.zeros_like(r.sizes).at[r.groups].add(x * x))
            pull = r.weight * jnp.sqrt(r.sizes) / jnp.where(norm > 0.0, norm, 1.0)
            return x * pull[r.groups], (norm > 0.0)[r.groups]
        case Box():
            return jnp.zeros_like(x), (x > r.low) & (x < r.high)
        case L2Ball():
            inside = jnp.sqrt(jnp.sum(x * x)) < r.radius * (1.0 - EDGE)
            return jnp.zeros_like(x), jnp.broadcast_to(inside, x.shape)
        case _:
            raise InputError(
                f"the prox of a {r.kind!r} regulariser cannot be undone: its kinks are not known. Attack a run with "
                "one of relaydp.prox, or an algorithm whose messages are not behind the prox (nids, walkman-gradient)."
            )
