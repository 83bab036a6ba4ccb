"""Proximal operators: prox_{t r}(v) = argmin_x  t r(x) + 1/2 ||x - v||^2, one small pure function each.

Every function takes the point `v`, the step `t` and its own weights, works under jit and vmap, and meets the
subgradient condition (v - x)/t in dr(x), which is how the tests check it.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Vector = Float[Array, " dim"]
Scalar = Float[Array, ""] | float


def soft_threshold(v: Vector, t: Scalar, weight: Scalar) -> Vector:
    """r = weight ||x||_1: every coordinate moves towards 0 by t * weight, but not past 0."""
    return jnp.sign(v) * jnp.maximum(jnp.abs(v) - t * weight, 0.0)


def shrink(v: Vector, t: Scalar, weight: Scalar) -> Vector:
    """r = weight/2 ||x||^2: every coordinate is divided by 1 + t * weight."""
    return v / (1.0 + t * weight)


def group_soft_threshold(
    v: Vector, t: Scalar, weight: Scalar, groups: Int[Array, " dim"], sizes: Float[Array, " groups"]
) -> Vector:
    """r = weight sum_g sqrt(|g|) ||x_g||_2: each group shrinks as a whole, to exactly 0 if its norm is small.

    `groups[k]` is the group of coordinate k, `sizes[g]` the number of coordinates in group g.
    """
    squares = jnp.zeros_like(sizes).at[groups].add(v * v)
    norms = jnp.sqrt(squares)
    threshold = t * weight * jnp.sqrt(sizes)
    keep = jnp.where(norms > threshold, 1.0 - threshold / jnp.where(norms > 0.0, norms, 1.0), 0.0)
    return v * keep[groups]


def clip_box(v: Vector, low: Scalar, high: Scalar) -> Vector:
    """r = 0 inside [low, high] and infinite outside: each coordinate goes to the nearest point of the box."""
    return jnp.clip(v, low, high)


def clip_ball(v: Vector, radius: Scalar) -> Vector:
    """r = 0 where ||x||_2 <= radius and infinite outside: the point is scaled back to the ball."""
    norm = jnp.sqrt(jnp.sum(v * v))
    return v * jnp.where(norm > radius, radius / jnp.where(norm > 0.0, norm, 1.0), 1.0)
