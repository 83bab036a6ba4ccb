"""The minimiser of a strongly convex function, to rounding: what the exact oracle (`oracle`) answers with.

The minimiser is the fixed point of one proximal gradient step, which brings any point nearer by a factor 1 - mu/L:

    (1)  T(x) = prox_{t r}( x - t slope(x) ),  t = 1/L          f = T(x) - x, the residual

Anderson's rule extrapolates from the last few points. With df and dT the differences of f and T between one point and
the next,

    (2)  x+ = T(x) - sum_k a_k dT_k,  a minimising || f - sum_k a_k df_k ||

It adapts to the curvature it meets, where momentum is bound to the L and mu that were promised: on the paper's noisy
problems it needs far fewer passes over the records. It may also lead astray; so a point whose residual has not shrunk
by 1 - mu/2L is dropped, with what was remembered, and the plain step (1) taken, which always shrinks it so. What is not
at rounding after PATIENCE passes is left to momentum, whose number of passes is known beforehand
(`planning.calibration` counts on that: objective perturbation covers exact minimisers only):

    (3)  x+ = T(z)        (4)  z+ = x+ + w (x+ - x),  w = (1 - s)/(1 + s),  s = sqrt(mu/L)

Source: Anderson 1965, Iterative procedures for nonlinear integral equations; guarded after Zhang, O'Donoghue and Boyd
2020, Globally convergent type-I Anderson acceleration for nonsmooth fixed-point iterations. (3), (4): Nesterov 2004,
Introductory lectures on convex optimization.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

import relaydp._jax  # noqa: F401 (JAX's settings)

MEMORY = 5  # differences kept
PATIENCE = 100  # passes over the records before momentum takes over
INNER_STEPS = 2000  # passes with momentum; it stops long before, at rounding
TOLERANCE = 1e-15  # of the residual, against the largest entry
ROUNDING = 1e-13  # a residual above this is not stuck at rounding, whatever a plain step did; below, momentum ends it
SINGULAR = 1e-14  # a pivot this small: the difference says nothing that others have not said


class _Search(NamedTuple):
    """One row a problem (a leading axis, or none). `x` has not been looked at yet; the rest belongs to the last point
    that was kept.
    """

    x: Float[Array, "*rows dim"]
    image: Float[Array, "*rows dim"]  # T
    residual: Float[Array, "*rows dim"]  # f
    size: Float[Array, "*rows"]  # |f|
    plain: Bool[Array, "*rows"]  # whether x is a plain step
    images: Float[Array, "memory *rows dim"]  # dT
    residuals: Float[Array, "memory *rows dim"]  # df
    inner: Float[Array, "memory memory *rows"]  # products of the df; 0 where one is not there, or is forgotten
    far: Float[Array, "*rows"]  # the largest entry of f, against the largest of all T
    done: Bool[Array, "*rows"]  # at rounding, and left alone from then on
    passes: Int[Array, ""]


def find_minimiser(
    slope: Callable[[Array], Array], prox: Any, start: Array, L: Array, mu: Array, dear: bool = True
) -> Array:
    """argmin of a function with this slope, plus r where there is a prox. One row a problem; L and mu one a row.

    Needs curvature between mu > 0 and L everywhere. Every pass asks for the slope once; where that is cheap,
    momentum alone is faster than to extrapolate.
    """
    t = 1.0 / L
    enough = 1.0 - mu / (2.0 * L)

    def step(x: Array) -> Array:
        down = x - t[..., None] * slope(x)
        return down if prox is None else prox(down, t)  # (1)

    root = jnp.sqrt(mu / L)
    if not dear:
        return _with_momentum(step, start, root, jnp.asarray(jnp.inf, start.dtype))

    def body(was: _Search) -> _Search:
        image = step(was.x)
        residual = image - was.x
        size = jnp.sqrt(jnp.sum(residual * residual, axis=-1))
        shrunk = size <= enough * was.size
        far = jnp.max(jnp.abs(residual), axis=-1) / jnp.maximum(jnp.max(jnp.abs(image)), 1e-300)
        stuck = was.plain & ~shrunk & (far <= ROUNDING)  # as near as rounding lets it come
        kept = ((was.plain | shrunk) & ~was.done)[..., None]
        at = jnp.mod(was.passes, MEMORY)

        def remember(differences: Array, new: Array, old: Array) -> Array:
            return jax.lax.dynamic_update_index_in_dim(differences, new - old, at, 0)

        images = remember(was.images, image, was.image)
        residuals = remember(was.residuals, residual, was.residual)
        inner = _products(was.inner, residuals, residual - was.residual, at, kept[..., 0])
        weights = _fit(inner, jnp.sum(residuals * residual[None], axis=-1))
        ahead = image - sum(weight[..., None] * images[k] for k, weight in enumerate(weights))  # (2)
        return _Search(
            x=jnp.where(kept, ahead, was.image),
            image=jnp.where(kept, image, was.image),
            residual=jnp.where(kept, residual, was.residual),
            size=jnp.where(kept[..., 0], size, was.size),
            plain=~kept[..., 0],
            images=images,
            residuals=residuals,
            inner=inner,
            far=jnp.where(was.done, was.far, far),
            done=was.done | (far <= TOLERANCE) | stuck,
            passes=was.passes + 1,
        )

    image = step(start)
    residual = image - start
    nothing = jnp.zeros((MEMORY, *start.shape), start.dtype)
    size = jnp.sqrt(jnp.sum(residual * residual, axis=-1))
    every = jnp.ones(size.shape, bool)
    far, passes = jnp.full(size.shape, jnp.inf), jnp.ones((), jnp.int32)
    inner = jnp.zeros((MEMORY, MEMORY, *size.shape), start.dtype)
    first = _Search(image, image, residual, size, every, nothing, nothing, inner, far, ~every, passes)
    last = jax.lax.while_loop(lambda now: ~jnp.all(now.done) & (now.passes < PATIENCE), body, first)
    return _with_momentum(step, last.image, root, jnp.max(last.far))


def _with_momentum(step: Callable[[Array], Array], start: Array, root: Array, far: Array) -> Array:
    """(3) and (4) until nothing moves: not a single pass where `far` is within the tolerance already."""
    weight = ((1.0 - root) / (1.0 + root))[..., None]

    def going(carry: tuple[Array, Array, Array, Array]) -> Array:
        _, _, change, passes = carry
        return (change > TOLERANCE) & (passes < INNER_STEPS)

    def body(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        x, z, _, passes = carry
        new = step(z)  # (3)
        change = jnp.max(jnp.abs(new - x)) / jnp.maximum(jnp.max(jnp.abs(new)), 1e-300)
        return new, new + weight * (new - x), change, passes + 1  # (4)

    return jax.lax.while_loop(going, body, (start, start, far, jnp.zeros((), jnp.int32)))[0]


def _products(inner: Array, residuals: Array, newest: Array, at: Array, kept: Array) -> Array:
    """The inner products with the newest difference at its place; without any, where the point was not kept."""
    places = jnp.arange(MEMORY, dtype=at.dtype).reshape(-1, *[1] * kept.ndim)
    there = jnp.diagonal(inner).transpose(-1, *range(kept.ndim)) > 0.0  # what was forgotten stays so
    row = jnp.where(there | (places == at), jnp.sum(residuals * newest[None], axis=-1), 0.0)
    entered = jnp.where(places[:, None] == at, row[None], jnp.where(places[None] == at, row[:, None], inner))
    return jnp.where(kept, entered, 0.0)


def _fit(
    inner: Float[Array, "memory memory *rows"], right: Float[Array, " memory *rows"]
) -> list[Float[Array, "*rows"]]:
    """a minimising || f - sum_k a_k df_k || for every row, from the products of all df with each other and with f, by
    LDL' of the normal equations; 0 for a difference whose products are.

    Written out, since a batch of 5 x 5 systems is little work and a library call is a launch. Normal equations lose
    half the digits of a, and a is only a guess.
    """
    many = range(MEMORY)
    lower: list[list[Array]] = []  # L D
    inverse: list[Array] = []  # of D, and 0 for a difference to be left out: one that is 0, or that others imply
    for i in many:
        row: list[Array] = []
        for k in range(i):
            row.append(inner[i, k] - sum(row[j] * lower[k][j] * inverse[j] for j in range(k)))
        square = inner[i, i]
        pivot = square - sum(row[j] ** 2 * inverse[j] for j in range(i))
        told = pivot > SINGULAR * square
        inverse.append(jnp.where(told, 1.0 / jnp.where(told, pivot, 1.0), 0.0))
        lower.append(row)
    found: list[Array] = []
    for i in many:
        found.append(right[i] - sum(lower[i][k] * inverse[k] * found[k] for k in range(i)))
    for i in reversed(many):
        found[i] = inverse[i] * (found[i] - sum(lower[k][i] * found[k] for k in range(i + 1, MEMORY)))
    return found
