"""The loop: one compiled scan, run in chunks so that progress shows and an interrupt keeps what is done.

A chunk is BLOCKS stretches of `stride` hops. The model is noted at the end of every stretch (the trace), what was sent
at every hop (the transcript, if kept). Chunks of one size serve every seed, budget and walk: the last one is filled up
with turns in which nobody acts.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from relaydp.algorithm import Algorithm, Turn
from relaydp.engine.door import open_door
from relaydp.engine.plan import Plan
from relaydp.engine.progress import Progress
from relaydp.problem import Problem, Silos
from relaydp.problem.problem import Terms

BLOCKS = 25  # stretches a chunk
POINTS = 200  # stretches a run of average length: the trace's resolution
GROWTH = 1e6  # a baton this many times longer than the public radius is no longer an answer


class Outcome(NamedTuple):
    x: np.ndarray  # the model at the end
    hops: int  # hops completed
    at: np.ndarray  # (points,) hops after which `points` were noted
    points: np.ndarray  # (points, dim)
    sent: Any  # payloads, one row a hop, or None
    status: str


def scan_turns(
    algorithm: Algorithm,
    variant: str | None,
    keep: bool,
    silos: Silos,
    terms: Terms,
    clip: Array | None,
    steps: Any,
    key: Array,
    state: Any,
    turns: Turn,  # every leaf (stretches, stride, ...); key is None: it is made here, hop by hop
    batched: bool = False,
) -> tuple[Any, tuple[Array, Any]]:
    setting = open_door(silos, terms, clip, variant, batched)

    def hop(state: Any, turn: Turn) -> tuple[Any, Any]:
        turn = turn._replace(key=jax.random.fold_in(key, turn.hop))
        state, sent = algorithm.step(setting, steps, state, turn)
        return state, sent.payload if keep else None

    def stretch(state: Any, turns: Turn) -> tuple[Any, tuple[Array, Any]]:
        state, payloads = jax.lax.scan(hop, state, turns)
        return state, (algorithm.answer(state), payloads)

    return jax.lax.scan(stretch, state, turns)


STATIC = (0, 1, 2)
advance = partial(jax.jit, static_argnums=STATIC, donate_argnums=(8,))(scan_turns)


@partial(jax.jit, static_argnums=(0, 1))
def begin(algorithm: Algorithm, variant: str | None, silos: Silos, terms: Terms, steps: Any, x0: Array) -> Any:
    """The state before the first hop. It sees the number of agents and no record."""
    return algorithm.init(open_door(silos, terms, None, variant), steps, x0)


def stride_for(plan: Plan) -> int:
    """Hops a stretch: from the nominal length, not the walk's, so that all seeds share one compiled chunk."""
    nominal = plan.activations * (plan.facts.agents if plan.algorithm.kind == "relay" else 1)
    return -(-nominal // POINTS)


def turns_of(plan: Plan, hops: int) -> Turn:
    """The plan's turns as arrays over hops, filled up to `hops` with turns in which nobody acts."""
    fill = hops - len(plan.route)
    scales = plan.hop_scales()
    way = plan.route
    parts: dict[str, Any] = dict(
        hop=np.arange(hops, dtype=np.int32),
        holder=np.concatenate([np.maximum(way.holder, 0), np.zeros(fill, np.int32)]),
        receiver=np.concatenate([np.maximum(way.receiver, 0), np.zeros(fill, np.int32)]),
        acts=np.concatenate([way.acts, np.zeros(fill, bool)]),
        scale=np.concatenate([scales, np.zeros((fill, *scales.shape[1:]))]),
        key=None,
    )
    return Turn(**parts)


def public_radius(problem: Problem) -> float:
    """A length no useful model exceeds: sqrt(2 F(0) / l2) for losses of order one; 1/L-sized without a ridge."""
    return float(np.sqrt(2.0 / problem.l2)) if problem.l2 > 0 else 1e3


def run(
    problem: Problem, plan: Plan, x0: np.ndarray, key: Array, keep: bool, progress: Progress | None = None
) -> Outcome:
    """Follow the plan to its end, to an interrupt, or until the baton grows without bound."""
    silos, terms = problem.working_silos, problem.terms
    clip = None if plan.clip is None else jnp.asarray(plan.clip)
    stride, total = stride_for(plan), len(plan.route)
    chunk = BLOCKS * stride
    chunks = -(-total // chunk)
    turns = jax.tree.map(lambda a: a.reshape(chunks, BLOCKS, stride, *a.shape[1:]), turns_of(plan, chunks * chunk))
    state = begin(plan.algorithm, plan.variant, silos, terms, plan.steps, jnp.asarray(x0))
    limit = GROWTH * (public_radius(problem) + float(np.linalg.norm(x0)))
    points, sent, status = [], [], "finished"
    done = 0
    try:
        for c in range(chunks):
            part = jax.tree.map(lambda a, c=c: a[c], turns)
            state, (xs, payloads) = advance(
                plan.algorithm, plan.variant, keep, silos, terms, clip, plan.steps, key, state, part
            )
            points.append(np.asarray(xs))
            sent.append(jax.tree.map(lambda a: np.asarray(a).reshape(chunk, *a.shape[2:]), payloads))
            done += 1
            if progress is not None:
                progress(min(done * chunk, total), total)
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
    x = xs[-1] if kept else x0
    return Outcome(np.asarray(x), hops, at, xs, payload, status)
