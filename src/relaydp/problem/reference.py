"""A reference minimiser: the answer every algorithm is measured against, with a certificate.

Accelerated proximal gradient with restarts (O'Donoghue and Candes 2015, arXiv:1204.3982) finds the region; semismooth
Newton on the fixed-point equation finishes. Without a ridge gradients can be slow: after `SLOW` steps a smooth F
is minimised by Newton's method with a line search. The certificate is the residual of that equation,

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
from relaydp.errors import RelayError, check_kind
from relaydp.problem.agent_records import AgentRecords
from relaydp.problem.problem import Problem, Terms

TOLERANCE = 1e-12
BLOCK = 50  # accelerated steps between looks at the residual
MAX_BLOCKS = 4000
NEWTON_DIM = 4096  # dense Newton systems up to this size
NEWTON_STEPS = 30
SLOW = 500  # accelerated steps after which Newton's method is tried from where they stand
SEARCH_STEPS, HALVINGS = 25, 30  # of Newton's method with a line search; where there is a minimiser, it takes fewer
SEARCH_WORK = 2**34  # multiplications: a Hessian that takes more is not made for a search
WORK = 2**36  # multiplications that accelerated steps may take where there is no ridge, some minutes on one core
FAR = 2.0**20  # how far along a ray F is looked at
DAMPING = 1e-12  # far below any curvature that matters, far above rounding
NEWTON_FROM = 1e-2  # relative residual below which Newton is worth a try
NONE = "the problem has no minimiser (separable classes without l2): F falls without end. Raise l2."

Carry = tuple[Array, Array, Array]  # the point, the extrapolated point, the momentum


class Reference(NamedTuple):
    x: np.ndarray  # the minimiser
    value: float  # F at it
    residual: float  # the certificate
    steps: int  # accelerated steps taken


def minimise(problem: Problem, tolerance: float = TOLERANCE) -> Reference:
    """Minimise F centrally, to a fixed-point residual of `tolerance` relative to max(1, ||grad f(0)||).

    Looks at all records without noise: for measuring, never for publishing.

    Args:
        problem: What to minimise. The answer is computed once for each problem and kept with it.
        tolerance: The residual to reach. Default: 1e-12.

    Returns:
        A Reference: the minimiser `x`, F at it (`value`), the `residual` that was reached, and the number of `steps`.

    Raises:
        RelayError: The problem has no minimiser (separable classes without l2), or none was found.

    Example:
        >>> import relaydp as rd
        >>> rd.minimise(rd.logistic(rd.load_data("breast-cancer"), agents=2, l2=0.1)).residual < 1e-12
        True
    """
    check_kind("problem", problem, Problem, "a Problem, such as rd.logistic(data, agents=8)")
    found = problem.remembered(_look_for_minimiser, tolerance)
    if isinstance(found, str):
        raise RelayError(found)
    return found


def find_minimiser(problem: Problem) -> Reference | None:
    """The same, or None where the problem has no minimiser or none was found."""
    try:
        return minimise(problem)
    except RelayError:
        return None


def _look_for_minimiser(problem: Problem, tolerance: float) -> Reference | str:
    """The minimiser, or why there is none: looked for once, since it can take many steps to find that out."""
    try:
        return _minimise(problem, tolerance)
    except RelayError as error:
        return str(error)


def _minimise(problem: Problem, tolerance: float) -> Reference:
    agent_records = problem.working_records
    t = 1.0 / (float(problem.measured_facts().smoothness.mean()) or 1.0)  # every record 0: any step will do
    terms = problem.terms
    x, slope = _start(terms, agent_records, placed(np.zeros(problem.dim)))
    scale = max(1.0, float(slope))
    goal, best, steps = tolerance * scale, (np.inf, x), 0
    newton_at = NEWTON_FROM * scale
    smooth = problem.regulariser.kind == "none"
    carry = (x, x, placed(1.0))
    a_step = len(problem.data) * problem.dim  # multiplications, about
    blocks = MAX_BLOCKS if problem.l2 > 0.0 else min(MAX_BLOCKS, max(SLOW, WORK // a_step) // BLOCK)
    for _ in range(blocks):
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
        if steps == SLOW:
            if _falls(problem, carry[0]):
                raise RelayError(NONE)
            if smooth and problem.dim <= NEWTON_DIM and a_step * problem.dim <= SEARCH_WORK:
                best = min(best, _search(problem, carry[0], t, agent_records, goal), key=lambda found: found[0])
                break  # what Newton's method does not find in many steps, gradients do not find at all
    reached, x = best
    if not reached <= max(goal, 1e-9 * scale):
        raise RelayError(
            f"no minimiser was found: the residual is {reached:.1e} after {steps} steps. There may be none "
            "(separable classes without l2), or the problem is very ill-conditioned. Raise l2."
        )
    x = np.asarray(x)
    value, beyond = problem.objectives(np.stack([x, 2.0 * x]))
    if value > 0.0 and beyond < 0.5 * value:  # F falls along the ray through x: the residual fades, no minimiser nears
        raise RelayError(NONE)
    return Reference(x, float(value), reached, steps)


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


def _falls(problem: Problem, x: Array) -> bool:
    """Whether F falls without end along the ray through x, as it does where x separates the classes.

    F is convex: what does not rise from FAR to FAR^2 times x has no least value that float64 could find on the ray.
    """
    here, far, farther = problem.objectives(np.stack([np.asarray(x) * scale for scale in (1.0, FAR, FAR * FAR)]))
    return bool(here > 0.0 and far < 0.5 * here and farther <= far)


def _search(problem: Problem, x: Array, t: float, agent_records: AgentRecords, goal: float) -> tuple[float, Array]:
    """Newton's method with a line search on a smooth F: the residual where it ends, and the point."""
    terms = problem.terms
    value, now = problem.objective(x), float(_residual(terms, agent_records, x, t))
    shares = 0.5 ** np.arange(HALVINGS)
    for _ in range(SEARCH_STEPS):
        if now <= goal:
            break
        if _falls(problem, x):
            raise RelayError(NONE)
        gap, matrix = (np.asarray(part) for part in _system(terms, agent_records, x, t))
        try:
            step = np.linalg.solve(matrix, gap)
        except np.linalg.LinAlgError:
            break
        points = np.asarray(x) - shares[:, None] * step
        values = problem.objectives(points)
        at = int(np.argmin(np.where(np.isfinite(values), values, np.inf)))
        lower = bool(values[at] < value)
        new = placed(points[at if lower else 0])
        then = float(_residual(terms, agent_records, new, t))
        if not (lower or then < now):  # near the end F no longer tells points apart, and the residual does
            break
        x, value, now = new, float(values[at if lower else 0]), then
    return now, x


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
