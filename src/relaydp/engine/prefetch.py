"""The next holders' rows are fetched while this one computes.

On a random walk among a million agents every hop meets an agent whose rows lie anywhere: its state, its steps, its
records and their labels, in memory that nobody has touched for long. To wait for them takes longer than to compute.
But who comes next is known, since a route is drawn beforehand; so every GROUP hops the processor is asked to bring near
the rows of the GROUP holders after these (`fetch`, a foreign function), and does their work in the meantime. No number
changes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from relaydp.algorithm import Turn
from relaydp.planning.run_plan import Plan
from relaydp.problem import AgentRecords
from relaydp.problem.kernels.dispatch import register

TARGET = "relaydp_fetch"
GROUP = 16  # hops, and holders whose rows are asked for together
FAR = 2**20  # numbers of state: 8 MB, more than a core keeps near


def pays(plan: Plan, dim: int) -> bool:
    """Whether a run along this plan waits for scattered memory, and can be helped here."""
    return plan.walk == "random" and plan.facts.agents * dim >= FAR and jax.default_backend() == "cpu" and _is_ready()


@cache
def _is_ready() -> bool:
    try:
        from relaydp.engine.prefetch_native import handler

        register(TARGET, handler())
    except (ImportError, RuntimeError):  # no Numba, or an XLA that speaks another version
        return False
    return True


def scan(
    agent_records: AgentRecords,
    steps: Any,
    route: Array,
    first: Array,
    hop: Callable[..., Any],
    state: Any,
    turns: Turn,
) -> Any:
    """`jax.lax.scan(hop, state, turns)`, for some turns of a route whose first hop has this number.

    GROUP hops at a time, because a call takes time of its own; what is left over runs unaided.
    """

    def group(state: Any, turns: Turn) -> tuple[Any, Any]:
        return jax.lax.scan(hop, state, _fetch(agent_records, steps, state, route, first, turns))

    whole = len(turns.hop) // GROUP * GROUP
    grouped = jax.tree.map(lambda a: a[:whole].reshape(-1, GROUP, *a.shape[1:]), turns)
    state, payloads = jax.lax.scan(group, state, grouped)
    payloads = jax.tree.map(lambda a: a.reshape(whole, *a.shape[2:]), payloads)
    if whole < len(turns.hop):
        state, rest = jax.lax.scan(hop, state, jax.tree.map(lambda a: a[whole:], turns))
        payloads = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), payloads, rest)
    return state, payloads


def _fetch(agent_records: AgentRecords, steps: Any, state: Any, route: Array, first: Array, turns: Turn) -> Turn:
    """The same GROUP turns.

    All that the hops do depends on their holders, so they come after this call, and XLA need not copy the state for it.
    """
    agents = agent_records.size.shape[0]
    every = jax.tree.leaves((state, steps))
    rows = [leaf for leaf in every if leaf.ndim in (1, 2) and len(leaf) == agents and leaf.dtype == jnp.float64]
    records = [agent_records.X, agent_records.y, agent_records.shrink, agent_records.norm]
    call = jax.ffi.ffi_call(TARGET, jax.ShapeDtypeStruct((GROUP,), jnp.int32))
    place = turns.hop[0] - first
    return turns._replace(
        holder=call(turns.holder, place, route, agent_records.start, agent_records.size, *records, *rows)
    )
