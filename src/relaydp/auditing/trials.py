"""Thousands of runs under D and under D', and an auditor's evidence from each transcript: the second layer of an audit.

The auditor is the adversary of the definition: it knows D and D', everything public, and every message. It infers the
gradients g~ from the messages (`relaydp.attack`) with the points y where they were taken, and stores for every run

    ratio      sum_t <g~_t - (g_D(y_t) + g_D'(y_t))/2,  g_D(y_t) - g_D'(y_t)> / s_t^2         noise on gradients
               sum_t ( ||g~_t - g_D'(y_t)|| - ||g~_t - g_D(y_t)|| ) / s_t                     noise in the objective
    residuals  <g~ - (g_D + g_D')/2, v>  for every release of every agent, v the direction of the canary

Where agents are seen in sums only, the adversary is the worst coalition (`auditing.coalition`), and a release is the
sum over the agents outside it.

Where a run prepares, its first release counts like a gradient, and the others are in the coordinates that came of it.

The ratio is the logarithm of the likelihood ratio if the mechanism is what it claims to be (for noise in the objective
without its Jacobian). The residuals are the releases minus all that is known: independent noise, if the claim holds;
repeated noise, or noise that depends on the record, is visible in their joint distribution even if it is not visible in
the ratio.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm.base import OBJECTIVE
from relaydp.arrays import placed
from relaydp.attack.inference import inference_for, read_messages
from relaydp.attack.penalty import Penalty
from relaydp.attack.threat import Guess, Known
from relaydp.auditing.canary import Neighbours
from relaydp.auditing.coalition import Laps, addition, honest_first, honest_laps, honest_of, left_behind
from relaydp.engine.loop import World, begin, scan_turns, turns_of, world_of
from relaydp.engine.preparation import First, Prepared, draws_for_first, first_of, paced, prepare, start_of
from relaydp.engine.progress import Progress
from relaydp.errors import InputError
from relaydp.graph import Graph, Network, Rounds, network_of
from relaydp.oracle.randomness import NOISE, Secret, Source, draw_gradient_noise, draw_shares, key_for
from relaydp.planning.run_plan import Plan
from relaydp.problem import Problem

BATCH = 4096  # runs in one compiled call, at most
NUMBERS = 2**25  # sent in one compiled call, at most: 256 MiB of them
MOST_BYTES = 2**31  # residuals stored for all runs


class Evidence(NamedTuple):
    """One row per run; JAX arrays during the runs, NumPy at the end."""

    ratio: Any  # (runs,)
    residuals: Any  # (runs, releases)
    reach: Any  # (runs,) sum_t ||g_D(y_t) - g_D'(y_t)||^2 / s_t^2: with Gaussian noise, the squared mu to be seen


def collect(
    pair: Neighbours, graph: Graph, plan: Plan, source: Source, runs: int, progress: Progress | None = None
) -> tuple[Evidence, Evidence]:
    """`runs` runs under D and as many under D': one plan, one start, fresh noise for each, secret or from the seed."""
    x0 = placed(np.zeros(pair.first.dim))
    known = public_part(plan, pair.first, graph, x0)
    worlds = [world_of(problem, graph, plan, batched=True) for problem in (pair.first, pair.second)]
    direction = _canary_direction(pair, worlds, x0)
    hidden = isinstance(source, Secret)
    honest = honest_of(plan, pair.agent) if plan.sums else None
    turns = jax.tree.map(lambda part: placed(part[None]), turns_of(plan, plan.training, hidden))
    asked = first_of(pair.first, plan, hidden) if plan.preparing else None

    @jax.jit
    def batch(
        world: World, suspects: list[World], keys: Array | None, draws: Array | None, first_draws: Array | None
    ) -> Evidence:
        def one(key: Array | None, drawn: Array | None, first_drawn: Array | None) -> Evidence:
            now = turns if drawn is None else turns._replace(draws=drawn[None])
            here, them, x, early, steps = world, suspects, x0, None, plan.steps
            if asked is not None:
                prepared = prepare(world.agent_records, asked, key, first_drawn)
                early = _weigh_first(plan, asked, prepared, suspects, honest)
                x, steps = start_of(plan, prepared.coordinates, x0), paced(plan.steps, prepared.coordinates)
                here, *them = (
                    each._replace(agent_records=each.agent_records.in_coordinates(prepared.coordinates))
                    for each in (world, *suspects)
                )
            start = begin(plan.algorithm, plan.variant, here, steps, x)
            if honest is not None:
                noted = scan_turns(
                    plan.algorithm, plan.variant, True, here, steps, key, start, now, True, inside=addition
                )[1][1]
                sent, added = jax.tree.map(lambda part: part[0], noted)
                laps = honest_laps(plan, here.terms, jax.tree.map(jnp.asarray, steps), x, sent, added, honest)
                return _weigh_sums(plan, laps, them, direction, honest, pair.agent, early)
            _, (_, payload) = scan_turns(plan.algorithm, plan.variant, True, here, steps, key, start, now, True)
            guess = read_messages(
                known._replace(x0=x, steps=jax.tree.map(jnp.asarray, steps)),
                {name: part[0] for name, part in payload._asdict().items()},
                inference_for(plan.algorithm.name, known.noisy),
            )
            return _weigh(plan, known, guess, them, direction, early)

        return jax.vmap(one)(keys, draws, first_draws)

    size = _batch_size(plan, pair.first.dim, runs)
    batches, found = -(-runs // size), []
    route_acts = plan.route.acts[plan.preparing :]
    acts = np.broadcast_to(route_acts, (size, *route_acts.shape))
    # one split for all runs of a side: every run has its own key, and no two keys are equal
    sides = [None, None] if isinstance(source, Secret) else jax.random.split(key_for(source.seed, NOISE))
    for side, (world, side_key) in enumerate(zip(worlds, sides, strict=True)):
        keys = None if side_key is None else jax.random.split(side_key, batches * size)
        parts = []
        for b in range(batches):
            mine = None if keys is None else keys[b * size : (b + 1) * size]
            draws, early = _draw(plan, pair.first, acts) if hidden else (None, None)
            parts.append(jax.tree.map(np.asarray, batch(world, worlds, mine, draws, early)))
            if progress is not None:
                progress((side * batches + b + 1) * size * len(plan.route), 2 * batches * size * len(plan.route))
        found.append(Evidence(*(np.concatenate(column)[:runs] for column in zip(*parts, strict=True))))
    return found[0], found[1]


def check_memory(plan: Plan, runs: int) -> None:
    """Refuse too many runs for memory, before anything is run."""
    kept = 2 * runs * int(plan.route.acts.sum()) * 8
    if kept > MOST_BYTES:
        raise InputError(
            f"{2 * runs} runs of {int(plan.route.acts.sum())} releases would keep {kept / 2**30:.1f} GiB; the limit is "
            f"{MOST_BYTES / 2**30:.0f}. Ask for fewer runs, activations or agents."
        )


def _batch_size(plan: Plan, dim: int, runs: int) -> int:
    """The number of runs that fit in one call."""
    way, agents = plan.route, plan.facts.agents
    sent = len(way) * dim * plan.algorithm.vectors * (agents if isinstance(way, Rounds) else 1)
    return max(1, min(BATCH, runs, NUMBERS // sent))


def public_part(plan: Plan, problem: Problem, graph: Graph, x0: Array) -> Known:
    """The public part of the plan."""
    way, network = plan.route, network_of(graph, plan.algorithm.needs)
    return Known(
        agents=graph.agents,
        steps=jax.tree.map(placed, plan.steps),
        x0=x0,
        penalty=Penalty(problem.regulariser, problem.l2, problem.terms.free),
        network=Network(*(None if part is None else placed(part) for part in network)),
        holder=np.zeros(len(way), np.int32) if isinstance(way, Rounds) else way.holder[plan.preparing :],
        acts=way.acts[plan.preparing :],
        noisy=plan.mechanism == "published" and plan.variant != OBJECTIVE,
    )


def _draw(plan: Plan, problem: Problem, acts: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Secret noise of a batch of runs: of the gradients, and of the first lap where that prepares."""
    early = np.stack([draws_for_first(plan, problem) for _ in range(len(acts))]) if plan.preparing else None
    if not plan.sums:
        return draw_gradient_noise(acts, plan.facts.dim), early
    _, r, L = plan.hop_lattices()
    return draw_shares(acts, np.broadcast_to(r[plan.preparing :], acts.shape), L, plan.facts.dim), early


def _weigh_first(
    plan: Plan, asked: First, prepared: Prepared, suspects: list[World], honest: np.ndarray | None
) -> Evidence:
    """The same of the first release of a run that prepares. Where the two mean records agree it says nothing."""
    unit = asked.clip / asked.bound
    means = [unit * each.agent_records.moments(asked.bound) for each in suspects]
    if honest is None:
        first, second = (prepared.released - mean for mean in means)
        s = asked.scale
    else:
        assert prepared.added is not None
        summed = honest_first(plan, prepared.released[0], prepared.added, honest)
        first, second = ((summed - jnp.sum(mean[honest], axis=0))[None] for mean in means)
        s = jnp.asarray(left_behind(plan, honest)[:1])
    residual, apart = (first + second) / 2.0, second - first
    size = jnp.sqrt(jnp.sum(apart * apart))
    along = jnp.sum(apart, axis=0) / jnp.where(size > 0.0, size, 1.0)
    ratio = jnp.sum(jnp.sum(residual * apart, axis=1) / s**2)
    return Evidence(ratio, residual @ along, jnp.sum((_length(apart) / s) ** 2))


def _weigh(
    plan: Plan, known: Known, guess: Guess, suspects: list[World], direction: Array, early: Evidence | None = None
) -> Evidence:
    """One run's ratio and residuals, from the inferred gradients and what came before them."""
    rows = np.flatnonzero(guess.read)
    hop, agent = guess.hop[rows], guess.agent[rows]
    point, gradient = guess.point[rows], guess.gradient[rows]
    parts = [gradient - _mean_gradients(world, agent, point) for world in suspects]
    if not known.noisy or plan.algorithm.name == "recal":  # with other noise no coordinate is exact, but all are useful
        parts = [jnp.where(guess.exact[rows], part, 0.0) for part in parts]
    first, second = parts
    residual, apart = (first + second) / 2.0, second - first
    scales = plan.hop_scales()[plan.preparing :]
    s = jnp.asarray(scales[hop] if scales.ndim == 1 else scales[hop, agent])
    if plan.variant == OBJECTIVE:
        each = (_length(second) - _length(first)) / s
    else:
        # if the noise is neither on gradients nor in objectives, s is not its scale: all releases have equal weight
        each = jnp.sum(residual * apart, axis=1) / (s**2 if plan.mechanism == "gradient" else jnp.ones_like(s))
    found = Evidence(jnp.sum(each), residual @ direction, jnp.sum((_length(apart) / s) ** 2))
    return found if early is None else _both(early, found)


def _weigh_sums(
    plan: Plan,
    laps: Laps,
    suspects: list[World],
    direction: Array,
    honest: np.ndarray,
    victim: int,
    early: Evidence | None,
) -> Evidence:
    """One run's ratio and residuals where agents are seen in sums only: as the worst coalition computes them."""
    others = np.flatnonzero(honest & (np.arange(len(honest)) != victim))
    laps_, left = len(laps.point), laps.total
    for i in others.tolist():  # their records are the same under D and under D'
        left = left - _mean_gradients(suspects[0], np.full(laps_, i), laps.point)
    first, second = (left - _mean_gradients(world, np.full(laps_, victim), laps.point) for world in suspects)
    residual, apart = (first + second) / 2.0, second - first
    s = jnp.asarray(left_behind(plan, honest)[int(plan.preparing > 0) :])
    ratio = jnp.sum(jnp.sum(residual * apart, axis=1) / s**2)
    found = Evidence(ratio, residual @ direction, jnp.sum((_length(apart) / s) ** 2))
    return found if early is None else _both(early, found)


def _both(early: Evidence, later: Evidence) -> Evidence:
    residuals = jnp.concatenate([early.residuals, later.residuals])
    return Evidence(early.ratio + later.ratio, residuals, early.reach + later.reach)


def _length(rows: Float[Array, "rows dim"]) -> Float[Array, " rows"]:
    return jnp.sqrt(jnp.sum(rows * rows, axis=1))


def _mean_gradients(world: World, agent: np.ndarray, point: Float[Array, "rows dim"]) -> Float[Array, "rows dim"]:
    """(1/m_i) sum_j clip_c(grad loss_ij(y)), for each row's agent and point: the value to which the oracle adds
    noise."""
    return jax.vmap(lambda i, y: world.agent_records.gradient(i, y, world.clip))(jnp.asarray(agent, jnp.int32), point)


def _canary_direction(pair: Neighbours, worlds: list[World], x0: Array) -> Float[Array, " dim"]:
    """The unit vector along which D and D' differ at the start."""
    first, second = (_mean_gradients(world, np.array([pair.agent]), x0[None])[0] for world in worlds)
    apart = first - second
    size = float(jnp.sqrt(jnp.sum(apart * apart)))
    if size == 0.0:
        raise InputError(
            "the two records have the same gradient at the start, so that this canary shows nothing; use "
            "canary='worst', or other records."
        )
    return apart / size
