"""Deep leakage from gradients (Zhu et al. 2019, arXiv 1906.08935): search for a batch whose gradient is the shared one.

    (1)  min over images X and label scores v:   ||grad(X, relaxed(v)) - g||^2 / ||g||^2

by L-BFGS, images and relaxed labels together. The authors call torch's L-BFGS 300 times, with up to 20 iterations per
call; `steps` counts single iterations. Theirs starts from standard normal images; here the search starts inside the
public range of values: on CIFAR-10, 1,500 iterations are then as good as 5,000 from theirs.

With a gradient of few numbers (1) has many exact minima: a linear model without intercept reveals a record only up to
its scale if its label is free. `relaydp.attack.closed_form` explains what such a gradient identifies.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, PRNGKeyArray

from relaydp.attack import shared as common
from relaydp.attack.shared import Progress, Reconstruction, Shared

MEMORY = 100  # pairs kept, as in torch's L-BFGS; with 20, the loss on CIFAR-10 after 1,500 steps is ten times as high
ARMIJO = 1e-4  # share of the predicted decrease that a step must reach
HALVINGS = 30  # of the step before a direction is abandoned: 2^-30 of it has no effect


def reconstruct(
    shared: Shared,
    key: PRNGKeyArray,
    *,
    batch: int = 1,
    steps: int = 1500,
    restarts: int = 4,
    progress: Progress | None = None,
    labels: Any = None,
) -> Reconstruction:
    """Search for `batch` images and labels from `restarts` random starts at once; the best fit is returned.

    labels   those the attacker already knows; with them the search is over images alone (iDLG, Zhao et al. 2020)
    """
    common.check(shared, batch, steps, restarts)
    image_key, label_key = jax.random.split(key)
    X = common.first_images(shared, image_key, restarts, batch)
    fixed = None if labels is None else common.known_or_restored(shared, labels, batch, label_key)
    v = jax.random.normal(label_key, (restarts, batch, shared.params["W"].shape[1] if fixed is None else 0), X.dtype)
    state = _begin(shared, fixed, X, v, steps)

    def images(state: _Search) -> Array:
        return state.point[:, : X[0].size].reshape(X.shape)

    def advance(state: _Search, start: int, stop: int) -> _Search:
        return _advance(shared, fixed, batch, state, start, stop)

    state, at, path = common.descend(advance, state, images, steps, progress)
    relaxed = jax.vmap(lambda z: _unpack(shared, fixed, batch, z)[1])(state.point)
    return common.finish(shared, state.value, jax.vmap(shared.model.hardened)(relaxed), state.losses, at, path)


def _unpack(shared: Shared, fixed: Array | None, batch: int, z: Float[Array, " dim"]) -> tuple[Array, Array]:
    """Images and relaxed labels from the vector that L-BFGS optimises."""
    pixels = batch * math.prod(shared.shape)
    labels = shared.model.relaxed(z[pixels:].reshape(batch, -1)) if fixed is None else fixed
    return z[:pixels].reshape(batch, *shared.shape), labels


def _mismatch(shared: Shared, fixed: Array | None, batch: int, z: Float[Array, " dim"]) -> Float[Array, ""]:
    images, labels = _unpack(shared, fixed, batch, z)
    return common.squared_distance(shared.model.gradient(shared.params, images, labels), shared.gradient)  # (1)


# -- L-BFGS with an Armijo line search (Nocedal and Wright, Numerical Optimization, 2nd ed., chapter 7)


class _Memory(NamedTuple):
    """The last MEMORY steps s and changes of slope y, oldest first, and their products; unused rows are 0."""

    S: Float[Array, "memory dim"]
    Y: Float[Array, "memory dim"]
    SY: Float[Array, "memory memory"]
    YY: Float[Array, "memory memory"]


class _Search(NamedTuple):
    point: Array
    value: Array
    slope: Array
    memory: _Memory
    stuck: Array  # no step along the steepest descent lowers f any more, because of rounding
    losses: Array  # (restarts, steps), filled during the search


@partial(jax.jit, static_argnames="steps")
def _begin(shared: Shared, fixed: Array | None, X: Array, v: Array, steps: int) -> _Search:
    def one(X: Array, v: Array) -> _Search:
        z, _ = ravel_pytree((X, v))
        value, slope = jax.value_and_grad(partial(_mismatch, shared, fixed, X.shape[0]))(z)
        rows, products = jnp.zeros((MEMORY, z.size), z.dtype), jnp.zeros((MEMORY, MEMORY), z.dtype)
        memory = _Memory(rows, rows, products, products)
        return _Search(z, value, slope, memory, jnp.array(False), jnp.zeros(steps, z.dtype))

    return jax.vmap(one)(X, v)


@partial(jax.jit, static_argnames="batch")
def _advance(shared: Shared, fixed: Array | None, batch: int, state: _Search, start: int, stop: int) -> _Search:
    def iteration(k: Array, state: _Search) -> _Search:
        return jax.vmap(partial(_iterate, partial(_mismatch, shared, fixed, batch), k))(state)

    return jax.lax.fori_loop(start, stop, iteration, state)


def _iterate(f: Any, k: Array, state: _Search) -> _Search:
    """One L-BFGS iteration: a direction, the longest of 1, 1/2, 1/4 ... of it that lowers f enough, a new pair."""
    z, value, slope, memory = state.point, state.value, state.slope, state.memory
    direction = _direction(memory, slope)
    descent = direction @ slope

    def refused(trial: tuple[Array, Array, Array, Array]) -> Array:
        tries, step, found, _ = trial
        enough = found <= value + ARMIJO * step * descent
        return ~enough & (tries < HALVINGS) & ~state.stuck

    def halve(trial: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        tries, step, _, _ = trial
        step = jnp.where(tries == 0, step, 0.5 * step)
        return tries + 1, step, *jax.value_and_grad(f)(z + step * direction)

    first = (jnp.array(0), jnp.ones_like(value), jnp.full_like(value, jnp.inf), slope)
    _, step, found, new_slope = jax.lax.while_loop(refused, halve, first)

    moved = found < value
    s, y = jnp.where(moved, step * direction, 0.0), jnp.where(moved, new_slope - slope, 0.0)
    # a direction that fails is caused by the memory: clear it, and continue with the steepest descent
    forgotten = jax.tree.map(jnp.zeros_like, memory)
    new_memory = jax.tree.map(partial(jnp.where, moved), _remember(memory, s, y), forgotten)
    return _Search(
        z + s,
        jnp.where(moved, found, value),
        slope + y,
        new_memory,
        ~moved & (memory.SY[-1, -1] == 0.0),
        state.losses.at[k].set(value),
    )


def _direction(memory: _Memory, slope: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """-H slope with H the L-BFGS inverse Hessian in its compact form (Byrd, Nocedal and Schnabel 1994, theorem 2.2):

        H = c I + [S' cY'] [ R^-T (D + c Y Y') R^-1   -R^-T ] [ S  ]      R = upper triangle of S Y', D = its diagonal
                           [ -R^-1                      0   ] [ cY ]

    Two passes over the memory and two triangular solves, where the usual two-loop recursion takes 2 MEMORY in turn.
    """
    diagonal = jnp.diag(memory.SY)
    used = diagonal > 0.0
    R = jnp.triu(memory.SY) + jnp.diag(jnp.where(used, 0.0, 1.0))  # unused rows: an identity that multiplies zeros
    newest = jnp.where(used[-1], memory.YY[-1, -1], 1.0)
    c = jnp.where(
        used[-1], diagonal[-1] / newest, 1.0 / jnp.maximum(jnp.linalg.norm(slope), jnp.finfo(slope.dtype).tiny)
    )
    a = solve_triangular(R, memory.S @ slope)
    b = solve_triangular(R, diagonal * a + c * (memory.YY @ a - memory.Y @ slope), trans=1)
    return -(c * slope + b @ memory.S - c * (a @ memory.Y))


def _remember(memory: _Memory, s: Float[Array, " dim"], y: Float[Array, " dim"]) -> _Memory:
    """Drop the oldest pair for (s, y); a pair without positive curvature would spoil H and is left out."""
    S, Y = jnp.concatenate([memory.S[1:], s[None]]), jnp.concatenate([memory.Y[1:], y[None]])

    def shifted(products: Array, row: Array, column: Array) -> Array:
        moved = jnp.pad(products[1:, 1:], ((0, 1), (0, 1)))
        return moved.at[-1, :].set(row).at[:, -1].set(column)

    new = _Memory(S, Y, shifted(memory.SY, Y @ s, S @ y), shifted(memory.YY, Y @ y, Y @ y))
    curved = s @ y > 1e-12 * jnp.linalg.norm(s) * jnp.linalg.norm(y)
    return jax.tree.map(partial(jnp.where, curved), new, memory)
