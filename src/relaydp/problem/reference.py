"""A reference minimiser: the answer every algorithm is measured against, with a certificate.

Accelerated proximal gradient with restarts (O'Donoghue and Candes 2015, arXiv:1204.3982) finds the region; semismooth
Newton on the fixed-point equation finishes. The certificate is that equation's residual,

    || x - prox_{t r}(x - t grad f(x)) || / t          t = 1/L,

which is 0 exactly at a minimiser: a distance from optimality in the gradient's units that anyone can recompute.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from relaydp.arrays import placed
from relaydp.errors import RelayError
from relaydp.problem.agent_records import AgentRecords
from relaydp.problem.problem import Problem, Terms

TOLERANCE = 1e-12
BLOCK = 50  # accelerated steps between looks at the residual
MAX_BLOCKS = 4000
NEWTON_DIM = 4096  # dense Newton systems up to this size
NEWTON_STEPS = 30
DAMPING = 1e-12  # far below any curvature that matters, far above rounding
NEWTON_FROM = 1e-2  # relative residual below which Newton is worth a try


Carry = tuple[Array, Array, Array]  # the point, the extrapolated point, the momentum


class Reference(NamedTuple):
    x: np.ndarray  # the minimiser
    value: float  # F at it
    residual: float  # the certificate
    steps: int  # accelerated steps taken


def minimise(problem: Problem, tolerance: float = TOLERANCE) -> Reference:
    """Minimise F centrally, to a fixed-point residual of `tolerance` relative to max(1, ||grad f(0)||).

    Looks at all records without noise: for measuring, never for publishing.

    >>> import relaydp as rd
    >>> from relaydp.problem import minimise
    >>> minimise(rd.logistic(rd.load_data("breast-cancer"), agents=2, l2=0.1)).residual < 1e-12
    True
    """
    known = problem.__dict__.setdefault("_references", {})
    if tolerance in known:
        return known[tolerance]
    agent_records = problem.working_records
    t = 1.0 / (float(problem.measured_facts().smoothness.mean()) or 1.0)  # every record 0: any step will do
    terms = problem.terms
    x, slope = _start(terms, agent_records, placed(np.zeros(problem.dim)))
    scale = max(1.0, float(slope))
    goal, best, steps = tolerance * scale, (np.inf, x), 0
    newton_at = NEWTON_FROM * scale
    carry = (x, x, placed(1.0))
    for _ in range(MAX_BLOCKS):
        carry, residual = _block(terms, agent_records, carry, t)
        steps += BLOCK
        now = float(residual)
        if now < best[0]:
            best = (now, carry[0])
        if now <= goal:
            break
        if now <= newton_at and problem.dim <= NEWTON_DIM:
            polished, now = _newton(problem, carry[0], now, t, agent_records, goal)
            if now < best[0]:
                best = (now, polished)
            if best[0] <= goal:
                break
            newton_at = 0.01 * newton_at  # the active set is not right yet: come closer first
    reached, x = best
    if not reached <= max(goal, 1e-9 * scale):
        raise RelayError(
            f"the reference minimiser stopped at a residual of {reached:.1e} after {steps} steps; the problem may have "
            "no minimiser (separable classes without l2) or be very ill-conditioned. Raise l2."
        )
    x = np.asarray(x)
    value, beyond = problem.objectives(np.stack([x, 2.0 * x]))
    if value > 0.0 and beyond < 0.5 * value:  # F falls along the ray through x: the residual fades, no minimiser nears
        raise RelayError("the problem has no minimiser (separable classes without l2): F falls without end. Raise l2.")
    known[tolerance] = Reference(x, float(value), reached, steps)
    return known[tolerance]


def _forward(terms: Terms, agent_records: AgentRecords, x: Array, t: Array) -> Array:
    return terms.prox(x - t * terms.smooth_gradient(x, agent_records), t)


@jax.jit
def _start(terms: Terms, agent_records: AgentRecords, zeros: Array) -> tuple[Array, Array]:
    """The point next to 0 where r is finite, and || grad f || there.

    Compiled like the rest, few programs in all: a small problem's minimiser takes less time than one of them.
    """
    x = terms.prox(zeros, 1.0)
    return x, jnp.sqrt(jnp.sum(terms.smooth_gradient(x, agent_records) ** 2))


@jax.jit
def _residual(terms: Terms, agent_records: AgentRecords, x: Array, t: Array) -> Array:
    gap = x - _forward(terms, agent_records, x, t)
    return jnp.sqrt(jnp.sum(gap * gap)) / t


@jax.jit
def _block(terms: Terms, agent_records: AgentRecords, carry: Carry, t: Array) -> tuple[Carry, Array]:
    """BLOCK accelerated steps, and the residual after them."""

    def body(_: int, carry: Carry) -> Carry:
        x, z, momentum = carry
        new = _forward(terms, agent_records, z, t)
        restart = jnp.sum((z - new) * (new - x)) > 0.0  # going uphill: forget the momentum
        momentum = jnp.where(restart, 1.0, momentum)
        following = 0.5 * (1.0 + jnp.sqrt(1.0 + 4.0 * momentum**2))
        weight = jnp.where(restart, 0.0, (momentum - 1.0) / following)
        return new, new + weight * (new - x), following

    last = jax.lax.fori_loop(0, BLOCK, body, carry)
    return last, _residual(terms, agent_records, last[0], t)


@jax.jit
def _system(terms: Terms, agent_records: AgentRecords, x: Array, t: Array) -> tuple[Array, Array]:
    """The fixed-point gap and its (generalised) Jacobian."""
    gap = x - _forward(terms, agent_records, x, t)
    # DAMPING keeps steps short along directions that F ignores, where the Jacobian is singular
    return gap, (1.0 + DAMPING) * jnp.eye(x.size, dtype=x.dtype) - jax.jacfwd(_forward, argnums=2)(
        terms, agent_records, x, t
    )


def _newton(
    problem: Problem, x: Array, now: float, t: float, agent_records: AgentRecords, goal: float
) -> tuple[Array, float]:
    """Solve x = forward(x) by semismooth Newton from a good start, whose residual is `now`; gives up as soon as it does
    not help."""
    terms = problem.terms
    for _ in range(NEWTON_STEPS):
        gap, matrix = _system(terms, agent_records, x, t)
        try:
            step = np.linalg.solve(np.asarray(matrix), np.asarray(gap))
        except np.linalg.LinAlgError:
            return x, now
        new = placed(np.asarray(x) - step)
        then = float(_residual(terms, agent_records, new, t))
        if not then < 0.5 * now:
            return (new, then) if then < now else (x, now)
        x, now = new, then
        if now <= 0.01 * goal:
            break
    return x, now
