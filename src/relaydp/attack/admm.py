"""Gradients of the ADMM family, from the copies or edge vectors that are sent.

The dual prices are sums of differences of copies, so they are public. A linearised method reveals its gradient by its
step; an exact argmin by its stationarity condition, which holds at the new point:

    (a)  x+ = prox_{t r}( x - t (grad f(x) + p) )                         grad f(x)  = (x - x+)/t - s - p
    (b)  x+ = argmin f + r + <p, x> + kappa/2 ||x - v||^2                 grad f(x+) = kappa (v - x+) - s - p

with s the slope of r at x+ (`relaydp.attack.penalty`).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from relaydp.attack.threat import Guess, Known, Sent, by_round, by_visit


def _disagreement(known: Known, x: Array) -> Array:
    """Lap x: the sum of each agent's differences to its neighbours."""
    return jnp.einsum("ij,...jd->...id", known.network.laplacian, x)


def _rounds(x: Array) -> Array:
    return jnp.arange(len(x), dtype=x.dtype)


def _linearised(known: Known, x: Array, inverse: Array) -> Guess:
    """(a), with 1/t = `inverse` (rounds, agents), for the methods that exchange plain copies."""
    now, after = x[:-1], x[1:]
    pull = known.steps.penalty * _disagreement(known, now)
    price = jnp.cumsum(pull, axis=0) + pull
    slope, smooth = known.penalty.slope(after)
    gradient = inverse[:, :, None] * (now - after) - slope - price  # (a)
    return by_round(known, now, gradient, known.trusted(smooth))


def pg_admm(known: Known, sent: Sent) -> Guess:
    x = sent["x"]
    return _linearised(known, x, jnp.broadcast_to(1.0 / known.steps.stepsize, (len(x) - 1, known.agents)))


def ic_admm(known: Known, sent: Sent) -> Guess:
    x = sent["x"]
    inverse = known.steps.curvature + 2.0 * known.steps.penalty * known.network.degree
    return _linearised(known, x, jnp.broadcast_to(inverse, (len(x) - 1, known.agents)))


def huang_ring(known: Known, sent: Sent) -> Guess:
    x, steps = sent["x"], known.steps
    hold = jnp.sqrt(1.0 + steps.decay * _rounds(x[:-1])) / steps.stepsize
    return _linearised(known, x, hold[:, None] + (2.0 * steps.penalty * known.network.degree)[None, :])


def huang_star(known: Known, sent: Sent) -> Guess:
    """Every round, including the last: w_i+ is sent in the round that computes it, and w and g_i follow from it."""
    rho, steps = known.steps.penalty, known.steps
    sent_x = sent["x"]
    hold = jnp.sqrt(1.0 + steps.decay * _rounds(sent_x)) / steps.stepsize

    def round_(carry: Any, row: Any) -> tuple[Any, Any]:
        x, price, centre = carry
        hold, new = row
        gradient = rho * centre[None, :] + hold * x + price - (rho + hold) * new
        new_centre = known.penalty.prox(jnp.mean(new - price / rho, axis=0), 1.0 / rho)
        return (new, price - rho * (new - new_centre[None, :]), new_centre), (x, gradient)

    everyone = known.everyone()
    _, (x, gradient) = jax.lax.scan(round_, (everyone, jnp.zeros_like(everyone), known.x0), (hold, sent_x))
    return by_round(known, x, gradient, known.trusted(jnp.ones_like(x, bool)))


def _exact(known: Known, x: Array, penalties: Array) -> Guess:
    """(b), with kappa = 2 penalty d_i and v half-way to the neighbours; the dual step is the steps' penalty."""
    now, after = x[:-1], x[1:]
    apart, degree = _disagreement(known, now), jnp.asarray(known.network.degree)[None, :, None]
    price = known.steps.penalty * jnp.cumsum(apart, axis=0)
    kappa = 2.0 * penalties[:, None, None] * degree
    slope, smooth = known.penalty.slope(after)
    gradient = kappa * (now - apart / (2.0 * degree) - after) - slope - price  # (b)
    return by_round(known, after, gradient, known.trusted(smooth))


def d_admm(known: Known, sent: Sent) -> Guess:
    x = sent["x"]
    return _exact(known, x, jnp.full(len(x) - 1, known.steps.penalty))


def _growing(known: Known, x: Array) -> Array:
    steps = known.steps
    return steps.penalty * jnp.minimum(steps.growth ** _rounds(x), steps.limit)


def m_admm(known: Known, sent: Sent) -> Guess:
    return _exact(known, sent["x"], _growing(known, sent["x"][:-1]))


def r_admm(known: Known, sent: Sent) -> Guess:
    """R-ADMM and MR-ADMM: (b) between the two vectors of each pair; the second of them needs no data."""
    x, between, steps = sent["x"], sent["between"], known.steps
    eta = _growing(known, x) if hasattr(steps, "growth") else jnp.full(len(x), steps.penalty)
    first, second = _disagreement(known, x), _disagreement(known, between)
    price = steps.penalty * (jnp.cumsum(first, axis=0) + jnp.cumsum(second, axis=0) - second)
    degree = jnp.asarray(known.network.degree)[None, :, None]
    kappa = 2.0 * eta[:, None, None] * degree
    gradient = kappa * (x - first / (2.0 * degree) - between) - price  # (b)
    return by_round(known, between, gradient, known.trusted(jnp.ones_like(x, bool)))


def rw_admm(known: Known, sent: Sent) -> Guess:
    """RW-ADMM: v_ji+ = c x_i+ + (v_ji - v_ij)/2 has x_i+ in it, then (b)."""
    _, after, gradient, smooth = _follow_pushes(known, sent, None)
    return by_visit(known, after, gradient, known.trusted(smooth))


def rw_admm_linearised(known: Known, sent: Sent) -> Guess:
    """RW-ADMM, linearised: the same, then (a)."""
    before, _, gradient, smooth = _follow_pushes(known, sent, known.steps.stepsize)
    return by_visit(known, before, gradient, known.trusted(smooth))


def _follow_pushes(known: Known, sent: Sent, stepsize: Array | None) -> tuple[Array, Array, Array, Array]:
    network, c = known.network, known.steps.penalty
    neighbours, back, real, degree = (
        jnp.asarray(part) for part in (network.neighbours, network.back, network.real, network.degree)
    )

    def visit(carry: Any, row: Any) -> tuple[Any, Any]:
        xs, v = carry
        i, pushed = row
        at = (neighbours[i], back[i])
        x, ours, theirs = xs[i], v[i], v[at]
        new_x = (pushed[0] - (theirs[0] - ours[0]) / 2.0) / c  # slot 0 is always a neighbour
        p = c * degree[i] * x - jnp.sum(ours, axis=0)
        stiffness = c * degree[i] if stepsize is None else 1.0 / stepsize[i]
        slope, smooth = known.penalty.slope(new_x)
        gradient = stiffness * (x - new_x) - slope - p  # (a) and (b), where v of (b) is x
        return (xs.at[i].set(new_x), v.at[at].set(jnp.where(real[i][:, None], pushed, theirs))), (
            x,
            new_x,
            gradient,
            smooth,
        )

    everyone = known.everyone()
    edges = jnp.where(real[:, :, None], (c * known.x0)[None, None, :], 0.0)
    return jax.lax.scan(visit, (everyone, edges), (known.who, sent["v"][known.hops]))[1]


def tripd(known: Known, sent: Sent) -> Guess:
    """TriPD-Dist: m_ij = wb_ij + k s_ij (2 x_i+ - x_i) has x_i+ in it, then (a) with p the sum of the s_ij wb_ij."""
    network, k, a = known.network, known.steps.penalty, known.steps.stepsize
    neighbours, back, real = (jnp.asarray(part) for part in (network.neighbours, network.back, network.real))
    upward = neighbours > jnp.arange(known.agents, dtype=neighbours.dtype)[:, None]
    signs = jnp.where(real, jnp.where(upward, 1.0, -1.0), 0.0)[:, :, None]

    def round_(carry: Any, row: Any) -> tuple[Any, Any]:
        x, held = carry
        acts, m = row
        middle = jnp.where(real[:, :, None], (held + held[neighbours, back]) / 2.0, 0.0)
        new_x = ((m - middle)[:, 0] / (k * signs[:, 0]) + x) / 2.0
        slope, smooth = known.penalty.slope(new_x)
        gradient = (x - new_x) / a[:, None] - slope - jnp.sum(signs * middle, axis=1)  # (a)
        new = (jnp.where(acts[:, None], new_x, x), jnp.where(acts[:, None, None], m, held))
        return new, (x, gradient, smooth)

    everyone = known.everyone()
    start = (everyone, k * signs * everyone[:, None, :])
    _, (x, gradient, smooth) = jax.lax.scan(round_, start, (known.acts, sent["m"]))
    return by_round(known, x, gradient, known.trusted(smooth))
