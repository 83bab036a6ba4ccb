"""The next holders' rows are fetched while this one computes.

On a random walk among a million agents every hop meets an agent whose rows lie anywhere: its state, its steps, its
records and their labels, in memory that nobody has touched for long. To wait for them takes longer than to compute.
But who comes next is known, since a route is drawn beforehand; so each hop first asks the processor to bring the rows
of a later holder near (`fetch`, a foreign function), and does its own work in the meantime. No number changes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from relaydp.algorithm import Turn
from relaydp.engine.plan import Plan
from relaydp.problem import Silos
from relaydp.problem.fused import register

TARGET = "relaydp_fetch"
FAR = 2**20  # numbers of state: 8 MB, more than a core keeps near


def pays(plan: Plan, dim: int) -> bool:
    """Whether a run along this plan waits for scattered memory, and can be helped here."""
    return plan.walk == "random" and plan.facts.agents * dim >= FAR and jax.default_backend() == "cpu" and _is_ready()


@cache
def _is_ready() -> bool:
    try:
        from relaydp.engine.fetch import handler

        register(TARGET, handler())
    except (ImportError, RuntimeError):  # no Numba, or an XLA that speaks another version
        return False
    return True


def fetch_next(silos: Silos, steps: Any, state: Any, route: Array, first: Array, turn: Turn) -> Turn:
    """The same turn, of a route whose first hop has this number.

    All that the hop does depends on its holder, so it comes after this call, and XLA need not copy the state for it.
    """
    agents = silos.size.shape[0]
    every = jax.tree.leaves((state, steps))
    rows = [leaf for leaf in every if leaf.ndim in (1, 2) and len(leaf) == agents and leaf.dtype == jnp.float64]
    records = [silos.X, silos.y, silos.shrink, silos.norm]
    call = jax.ffi.ffi_call(TARGET, jax.ShapeDtypeStruct((), jnp.int32))
    place = turn.hop - first
    return turn._replace(holder=call(turn.holder, place, route, silos.start, silos.size, *records, *rows))
