"""Trials: the most promising plans, run on public records before a private one is touched.

The planner's quadratic cannot follow a curvature that changes along the way. Where public records like the private ones
are at hand (`prior=`), its best few plans are run on them with the noise that the private run would have. Every agent
has all of the public records, which is what agents with many records of one kind look like. `forecast.look_ahead` then
corrects its predictions by what it got wrong here. All of it is public: records, noise and outcome.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm import Algorithm, Turn
from relaydp.arrays import placed
from relaydp.graph import Graph, Network, network_of
from relaydp.oracle.oracle import make_oracle
from relaydp.planning.quadratic import Frozen, make_turns
from relaydp.problem import AgentRecords, Problem, minimise
from relaydp.problem.problem import Terms

GROUPS = (10, 40)  # runs of up to so many activations go together: one compiled program each, as long as its longest
DRAWS, MOST_DRAWS = 4096, 16  # draws of a trial: so many over q, for in many coefficients chance averages itself out


class Everybody(NamedTuple):
    """Stands where the agents' records stand: each agent has all of the public ones."""

    size: Array  # (agents,)
    agent_records: AgentRecords

    def gradient(self, i: Array, y: Array, clip: Array | None) -> Array:
        return jnp.mean(
            self.agent_records.gradients(jnp.broadcast_to(y, (self.agent_records.size.shape[0], y.size)), clip), axis=0
        )

    def gradients(self, ys: Array, clip: Array | None) -> Array:
        return jax.vmap(lambda y: self.gradient(jnp.zeros((), jnp.int32), y, clip))(ys)


def try_out(
    problem: Problem,
    clip: float,
    method: Algorithm,
    graph: Graph,
    walk: str,
    steps: Any,
    scales: list[np.ndarray],
) -> np.ndarray:
    """The mean excess objective on a problem over PUBLIC records, for each row of `steps`; inf where a run diverged.

    scales   for each row, the noise on every agent's mean gradient: (activations, agents)
    """
    keys = jax.random.split(jax.random.key(0), int(np.clip(DRAWS // problem.dim, 2, MOST_DRAWS)))
    oracles = (Everybody(placed(np.zeros(graph.agents)), problem.working_records), problem.terms, placed(clip))
    network, origin = network_of(graph, method.needs), placed(np.zeros(problem.dim))
    lengths = np.array([len(row) for row in scales])
    found = np.full(len(scales), np.inf)
    for low, high in itertools.pairwise((0, *GROUPS, np.inf)):
        rows = np.flatnonzero((lengths > low) & (lengths <= high))
        if not rows.size:
            continue
        each = [type(steps)(*(np.asarray(part)[k : k + 1] for part in steps)) for k in rows]
        turns = [_turns(method, Frozen(one), graph, walk, scales[k]) for k, one in zip(rows, each, strict=True)]
        longest = max(len(turn.hop) for turn in turns)
        together = jax.tree.map(lambda *parts: np.stack([_filled(part, longest) for part in parts]), *turns)  # noqa: B023
        some = jax.tree.map(lambda *parts: np.concatenate(parts), *each)
        x = np.asarray(_run(method, *oracles, network, origin, some, together, keys))
        found[rows] = _excess(problem, x.reshape(-1, problem.dim)).reshape(len(rows), -1).mean(axis=1)
    return found


def _excess(problem: Problem, x: np.ndarray) -> np.ndarray:
    fine = np.isfinite(x).all(axis=1)
    excess = np.full(len(x), np.inf)
    if fine.any():
        excess[fine] = np.nan_to_num(problem.objectives(x[fine]) - minimise(problem).value, nan=np.inf)
    return excess


def _turns(method: Algorithm, steps: Frozen, graph: Graph, walk: str, scales: np.ndarray) -> Turn:
    """A run of the plan, hop by hop, noise included."""
    turns = make_turns(method, steps, graph, walk, len(scales), "plan", 0, 1)
    hop, holder, receiver, acts = (np.asarray(part)[0] for part in turns[:4])
    if acts.ndim == 2:  # rounds
        at = np.maximum(np.cumsum(acts, axis=0) - 1, 0)
        scale = np.where(acts, np.take_along_axis(scales, at, axis=0), 0.0)
    else:
        count = np.zeros(graph.agents, int)
        at = np.zeros(len(acts), int)
        for k in np.flatnonzero(acts):
            at[k] = count[holder[k]]
            count[holder[k]] += 1
        scale = np.where(acts, scales[at, holder], 0.0)
    parts: Any = (hop, holder, receiver, acts, scale, None)  # keys are made hop by hop
    return Turn(*parts)


def _filled(part: np.ndarray, length: int) -> np.ndarray:
    """With turns at the end in which nobody acts."""
    return np.concatenate([part, np.zeros((length - len(part), *part.shape[1:]), part.dtype)])


@partial(jax.jit, static_argnums=0)
def _run(
    method: Algorithm,
    records: Everybody,
    terms: Terms,
    clip: Float[Array, ""],
    network: Network,
    origin: Float[Array, " dim"],
    steps: Any,
    turns: Turn,
    keys: Array,
) -> Float[Array, "rows draws dim"]:
    oracle = make_oracle(cast(Any, records), terms, clip, network, batched=True)

    def one(steps: Any, turns: Turn, key: Array) -> Array:
        def hop(state: Any, turn: Turn) -> tuple[Any, None]:
            setting = oracle(turn._replace(key=jax.random.fold_in(key, turn.hop)))
            return method.step(setting, steps, state, turn)[0], None

        return method.answer(jax.lax.scan(hop, method.init(oracle(None), steps, origin), turns)[0])

    return jax.vmap(jax.vmap(one, (None, None, 0)), (0, 0, None))(steps, turns, keys)
