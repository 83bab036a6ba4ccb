"""The loop: one compiled scan, run in chunks so that progress shows and an interrupt keeps what is done.

A chunk is BLOCKS stretches of `stride` hops. The model is noted at the end of every stretch (the trace), what was sent
at every hop (the transcript, if kept). Chunks of one size serve every seed, budget and walk: the last one is filled up
with turns in which nobody acts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from relaydp.algorithm import Algorithm, Oracle, Turn
from relaydp.arrays import placed
from relaydp.engine import prefetch
from relaydp.engine.preparation import draws_for_first, first_of, paced, prepare, sent_first, start_of
from relaydp.engine.progress import Progress
from relaydp.graph import Graph, Network, Route, network_of
from relaydp.oracle.oracle import Exact, Spectra, make_oracle, seen_by_step
from relaydp.oracle.randomness import NOISE, Simulated, Source, draw_gradient_noise, draw_shares, key_for
from relaydp.oracle.statistics import PlacedUnits, placed_units
from relaydp.planning.run_plan import Plan
from relaydp.problem import AgentRecords, Problem
from relaydp.problem.coordinates import Coordinates
from relaydp.problem.loss import LEAST_SQUARES
from relaydp.problem.problem import Terms

BLOCKS = 25  # stretches a chunk
POINTS = 200  # stretches a run of average length: the trace's resolution
UNROLL = 8  # hops that an accelerator is given at once: launching them is most of what a short one costs
GROWTH = 1e6  # a baton this many times longer than the public radius is no longer an answer


class Outcome(NamedTuple):
    x: np.ndarray  # the model at the end
    hops: int  # hops completed
    at: np.ndarray  # (points,) hops after which `points` were noted
    points: np.ndarray  # (points, dim)
    sent: Any  # payloads, one row a hop, or None; models are in the run's coordinates
    status: str
    first: dict[str, np.ndarray] | None = None  # of a run that prepares, what was sent in the first lap
    released: np.ndarray | None = None  # by each agent, there
    coordinates: Coordinates | None = None  # and what came of it
    inside: Any = None  # what an audit noted of the state, one row a hop
    added: np.ndarray | None = None  # in the first lap with sums only, by each agent


class World(NamedTuple):
    """What compiled code is given of a problem and a graph, as arrays."""

    agent_records: AgentRecords
    terms: Terms
    clip: Array | None
    network: Network
    exact: Exact | None
    parties: Array | None = None  # their number, where they are seen in sums only
    units: PlacedUnits | None = None

    def oracle(self, variant: str | None, batched: bool = False) -> Oracle:
        agent_records, terms, clip, network, exact, parties, units = self
        return make_oracle(agent_records, terms, clip, network, variant, batched, exact, units, parties)


def world_of(
    problem: Problem, graph: Graph, plan: Plan, batched: bool = False, shared: int = 1, own: bool = False
) -> World:
    """`batched`: for many runs that share each read of the records; so many of them ask the same agent at each hop, and
    with `own` each in coordinates of its own."""
    needed = plan.algorithm.data == "argmin" and plan.mechanism != "gradient"
    rounds = plan.algorithm.kind == "rounds"
    return World(
        agent_records=problem.records_for(
            plan.activations, plan.clip is not None, batched, 1 if own else shared, rounds
        ),
        terms=problem.terms,
        clip=None if plan.clip is None else placed(plan.clip),
        network=network_of(graph, plan.algorithm.needs),
        exact=Exact(placed(plan.facts.smoothness), spectra_of(problem)) if needed else None,
        parties=placed(float(graph.agents)) if plan.sums else None,
        units=placed_units(plan.facts) if plan.algorithm.data == "statistics" and plan.clip is not None else None,
    )


SPECTRA_DIM = 1024  # least squares up to this size are diagonalised once instead of iterated on
NO_CURVATURE = 1e-13  # an eigenvalue this much smaller than the largest is rounding


def spectra_of(problem: Problem) -> Spectra | None:
    """For least squares without r: every agent's Hessian, diagonalised, whole or on the span of its records."""
    if problem.loss is not LEAST_SQUARES or problem.regulariser.kind != "none":
        return None
    thin = problem.dim > SPECTRA_DIM
    if thin and (problem.terms.free or int(problem.split.sizes.max()) >= problem.dim):
        return None  # a free intercept bends the ridge, and many records leave nothing to save
    return problem.remembered(_diagonalise, thin)


def _diagonalise(problem: Problem, thin: bool) -> Spectra:
    values, vectors, moments = _thin_spectra(problem) if thin else _full_spectra(problem)
    return Spectra(placed(values), placed(vectors), moments, placed(problem.l2))


def _full_spectra(problem: Problem) -> tuple[np.ndarray, np.ndarray, Array]:
    ridge = np.full(problem.dim, problem.l2)
    ridge[problem.dim - problem.terms.free :] = 0.0
    values, vectors = np.linalg.eigh(np.asarray(problem.gram.hessian) + np.diag(ridge))
    return values, vectors, problem.gram.moment


def _thin_spectra(problem: Problem) -> tuple[np.ndarray, np.ndarray, Array]:
    """From A_i A_i' / m_i = U diag(s) U', small where records are few: h = s + l2, Q = A_i' U / sqrt(m_i s)."""
    agent_records = problem.working_records.dense()
    A, start, size = (np.asarray(part) for part in (agent_records.X, agent_records.start, agent_records.size))
    rank = int(size.max())
    values = np.full((len(size), rank), problem.l2)
    vectors = np.zeros((len(size), problem.dim, rank))
    for i, (first, m) in enumerate(zip(start, size, strict=True)):
        mine = A[first : first + m]
        s, U = np.linalg.eigh(mine @ mine.T / m)
        real = s > NO_CURVATURE * s[-1]
        values[i, :m] += np.where(real, s, 0.0)
        vectors[i, :, :m] = mine.T @ (U * np.where(real, 1.0 / np.sqrt(m * np.where(real, s, 1.0)), 0.0))
    return values, vectors, -problem.working_records.gradients(placed(np.zeros((problem.agents, problem.dim))), None)


def scan_turns(
    algorithm: Algorithm,
    variant: str | None,
    keep: bool,
    world: World,
    steps: Any,
    key: Array | None,  # of a simulation; None where the turns bring their draws
    state: Any,
    turns: Turn,  # every leaf (stretches, stride, ...); key is None: it is made here, hop by hop
    batched: bool = False,
    unroll: int = 1,
    scattered: bool = False,
    inside: Callable[[Any], Any] | None = None,  # what to note of the state at each hop, for audits
) -> tuple[Any, tuple[Array, Any]]:
    oracle = world.oracle(variant, batched)

    def hop(state: Any, turn: Turn) -> tuple[Any, Any]:
        if key is not None:
            own = turn.hop if turn.release is None else turn.release
            turn = turn._replace(key=jax.random.fold_in(key, own))
        state, payload = algorithm.step(oracle(turn), steps, state, seen_by_step(turn, variant))
        noted = payload if inside is None else (payload, inside(state))
        return state, noted if keep else None

    if scattered:
        scan = partial(prefetch.scan, world.agent_records, steps, turns.holder.reshape(-1), turns.hop[0, 0])
    else:
        scan = partial(jax.lax.scan, unroll=unroll)

    def stretch(state: Any, turns: Turn) -> tuple[Any, tuple[Array, Any]]:
        state, payloads = scan(hop, state, turns)
        return state, (algorithm.answer(state), payloads)

    return jax.lax.scan(stretch, state, turns)


advance = partial(jax.jit, static_argnums=(0, 1, 2, 8, 9, 10, 11), donate_argnums=(6,))(scan_turns)


def unrolled() -> int:
    """Hops to compile as one, where that is worth the longer compilation: on an accelerator."""
    return 1 if jax.default_backend() == "cpu" else UNROLL


@partial(jax.jit, static_argnums=(0, 1))
def begin(algorithm: Algorithm, variant: str | None, world: World, steps: Any, x0: Array) -> Any:
    """The state before the first hop. An algorithm's init asks the oracles nothing, so that nothing is uncharged."""
    return algorithm.init(world.oracle(variant)(None), steps, x0)


def stride_for(plan: Plan) -> int:
    """Hops a stretch: from the nominal length, not the walk's, so that all seeds share one compiled chunk."""
    nominal = (plan.activations - (plan.preparing > 0)) * (plan.facts.agents if plan.algorithm.kind == "relay" else 1)
    if plan.training < nominal // 64:  # a walk that ends before it has seen much of a large network
        nominal = 1 << (plan.training - 1).bit_length()
    return -(-nominal // POINTS)


def turns_of(plan: Plan, hops: int, secret: bool = False) -> Turn:
    """The plan's turns as arrays over hops, filled up to `hops` with turns in which nobody acts.

    Where the first lap prepares, the turns are those after it.

    secret   for noise from the lattice, whose scales are a hair larger
    """
    way, before = plan.route, plan.preparing
    fill = hops - plan.training
    on_lattice = secret and plan.mechanism == "gradient"
    nobody = np.zeros(len(way), np.int32)
    holder, receiver = (way.holder, way.receiver) if isinstance(way, Route) else (nobody, nobody)

    def padded(part: np.ndarray) -> np.ndarray:
        return np.concatenate([part[before:], np.zeros((fill, *part.shape[1:]), part.dtype)])

    parts: dict[str, Any] = dict(
        hop=np.arange(hops, dtype=np.int32),
        holder=padded(holder),
        receiver=padded(receiver),
        acts=padded(way.acts),
        scale=padded(plan.hop_scales(plan.lattice_scales() if on_lattice else plan.scales)),
        key=None,
        kappa=None if plan.kappa is None else padded(plan.hop_scales(plan.kappa)),
        unit=padded(plan.hop_lattices()[0]) if plan.sums else None,
        release=padded((way.activation * plan.facts.agents + holder).astype(np.int32)) if plan.sums else None,
    )
    return Turn(**parts)


def _secret_noise(plan: Plan, acts: np.ndarray, begin: int) -> np.ndarray:
    """Draws for the turns of one chunk, of which `begin` come before it."""
    if not plan.sums:
        return draw_gradient_noise(acts, plan.drawn)
    _, r, L = plan.hop_lattices()
    own = np.zeros(acts.size, np.int64)  # the turns that fill up the last chunk are nobody's
    mine = r[plan.preparing + begin :][: acts.size]
    own[: len(mine)] = mine
    return draw_shares(acts, own.reshape(acts.shape), L, plan.drawn)


def public_radius(problem: Problem) -> float:
    """A length no useful model exceeds: sqrt(2 F(0) / l2) for losses of order one, and 1000 without a ridge."""
    if problem.l2 > 0:
        return float(np.sqrt(2.0 / problem.l2))
    return 1e3 / min(problem.record_norm or 1.0, 1.0)


def run(
    problem: Problem,
    graph: Graph,
    plan: Plan,
    x0: np.ndarray,
    source: Source,
    keep: bool,
    progress: Progress | None = None,
    inside: Callable[[Any], Any] | None = None,
) -> Outcome:
    """Follow the plan to its end, to an interrupt, or until the baton grows without bound.

    `inside` says what to note of the state at each hop: audits look at what agents know, and nobody else may.
    """
    world = world_of(problem, graph, plan)
    key = key_for(source.seed, NOISE) if isinstance(source, Simulated) else None
    before, first, released, coordinates, added = plan.preparing, None, None, None, None
    if before:
        draws = None if key is not None else draws_for_first(plan, problem)
        prepared = prepare(world.agent_records, first_of(problem, plan, key is None), key, draws)
        world = world._replace(agent_records=prepared.of(world.agent_records))
        released, coordinates = np.asarray(prepared.released), jax.tree.map(np.asarray, prepared.coordinates)
        first = sent_first(plan, problem, released) if keep else None
        added = None if inside is None else np.asarray(prepared.added)
        x0 = np.asarray(start_of(plan, prepared.coordinates, placed(x0)))
    stride, total = stride_for(plan), plan.training
    chunk = BLOCKS * stride
    chunks = -(-total // chunk)
    every = turns_of(plan, chunks * chunk, key is None)
    turns = jax.tree.map(lambda a: a.reshape(chunks, BLOCKS, stride, *a.shape[1:]), every)
    steps = paced(plan.steps, coordinates)
    state = begin(plan.algorithm, plan.variant, world, steps, placed(x0))
    limit = GROWTH * (public_radius(problem) + float(np.linalg.norm(x0)))
    points, sent, status = [], [], "finished"
    done, coming = 0, None
    unroll, scattered = unrolled(), prefetch.pays(plan, problem.dim)
    try:
        for c in range(chunks + 1):
            noted, coming = coming, None
            if c < chunks:  # the next chunk runs while the last one is looked at
                part = jax.tree.map(lambda a, c=c: a[c], turns)
                if key is None:
                    part = part._replace(draws=_secret_noise(plan, np.asarray(part.acts), c * chunk))
                state, coming = advance(
                    plan.algorithm, plan.variant, keep, world, steps, key, state, part, False, unroll, scattered, inside
                )
            if noted is None:
                continue
            points.append(np.asarray(noted[0]))
            sent.append(jax.tree.map(lambda a: np.asarray(a).reshape(chunk, *a.shape[2:]), noted[1]))
            done += 1
            if progress is not None:
                progress(before + min(done * chunk, total), before + total)
            # the baton is public, so a private run may look at it too
            size = float(np.abs(points[-1]).max())
            if not size <= limit:
                status = "diverged"
                break
    except KeyboardInterrupt:
        status = "interrupted"
    hops = min(done * chunk, total)
    kept = -(-hops // stride)
    xs = np.concatenate(points)[:kept] if points else np.empty((0, problem.dim))
    at = np.minimum(np.arange(1, kept + 1) * stride, hops)
    payload = jax.tree.map(lambda *parts: np.concatenate(parts)[:hops], *sent) if keep and sent else None
    ends = np.concatenate([x0[None], xs])
    if coordinates is not None:
        ends = np.asarray(jax.vmap(coordinates)(ends))
    payload, noted = (payload, None) if inside is None or payload is None else payload
    return Outcome(
        ends[-1], before + hops, before + at, ends[1:], payload, status, first, released, coordinates, noted, added
    )
