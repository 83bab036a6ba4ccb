"""One party in a run: its records, its noise and its rows of the state, with six methods.

    relay    begin, first_baton, then at each activation: relay(rows, baton) -> rows, baton;     answer(baton)
    rounds   begin, then in each round: speak(rows) -> g~, message; listen(..., heard) -> rows;  share, answer(shares)

A party sends messages, which are computed from noisy gradients g~ and from others' messages; it keeps its rows. `step`
explains how a call is computed, and why a network gives the same bits as the simulator.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from relaydp.errors import InputError, PrivacyError
from relaydp.graph import Graph
from relaydp.party import step as compiled
from relaydp.party.step import Rows, on_network, step_inputs
from relaydp.planning.run_plan import Plan
from relaydp.privacy.sensitivity import sensitivity as clipped_sensitivity
from relaydp.problem import AgentRecords, Problem

Draw = Callable[[np.ndarray, float, float, int], np.ndarray]  # (value, scale, sensitivity, hop) -> value + noise


class Keyed(NamedTuple):
    """The simulator's noise, from its key, drawn in compiled code together with the step. Whoever has the key can
    subtract it: for relays inside one organisation."""

    key: Array


def _padded(agent_records: AgentRecords, rows: int) -> AgentRecords:
    """As many rows as the largest party has, as in the simulator: the order of XLA's sums depends on the number of
    rows."""
    if len(agent_records.y) == rows:
        return agent_records

    def pad(column: Array) -> Array:
        return jnp.concatenate([column, jnp.zeros((rows - len(column), *column.shape[1:]), column.dtype)])

    columns = {name: pad(getattr(agent_records, name)) for name in ("X", "y", "shrink", "norm")}
    return replace(agent_records, **columns, rows=rows)


class LocalParty:
    """One party's part of a run; nothing is kept between calls.

        problem     over this party's own records
        draw        its noise. On a network it is always a function that draws secret noise. Inside one organisation
                    it may also be the simulator's key (`Keyed`), or None: no clipping, no noise, and only plans
                    that promise nothing are accepted
        rows        the party's part of the state, as bytes: for its own journal only
        hop         hops or rounds before this one;  activation: activations that this party has made before

    A message is (vectors, dim), float64. In a run that grows without bound it may be infinite: check it before sending.
    """

    def __init__(self, plan: Plan, graph: Graph, party: int, problem: Problem, draw: Draw | Keyed | None) -> None:
        on_network(plan.algorithm)
        _check(plan, graph, party, problem)
        if draw is None:
            _check_bare(plan)
        else:
            _check_paid(plan, party)
        self.plan, self.party, self.algorithm = plan, party, plan.algorithm
        self.dim, self.vectors = problem.dim, plan.algorithm.vectors
        self._relays = plan.algorithm.kind == "relay"
        self._key = _key(draw, self._relays)
        self.draw = None if self._key is not None else cast(Draw | None, draw)
        self._neighbours = set(graph.neighbours(party).tolist())
        self._clip = None if draw is None else jnp.asarray(plan.facts.clip)
        sizes, terms, bare = plan.facts.sizes, problem.terms, draw is None
        self._inputs = step_inputs(plan.algorithm, graph, party, sizes, plan.steps, terms, problem.dim, bare)
        self._agent_records, self._intercepts = self._records(problem)
        rows, message = compiled.first(self.algorithm, self._inputs)
        self._places = np.cumsum([0, *(len(part) for part in rows)]).tolist()
        self._begin, self._baton = self._pack(rows), np.asarray(message)

    def _records(self, problem: Problem) -> tuple[AgentRecords, int]:
        """The records in the simulator's form, and the number of intercepts that it joins to the rest of a gradient."""
        sizes, clipped = self.plan.facts.sizes, self._clip is not None
        agent_records = problem.records_for(self.plan.activations, clipped, rounds=not self._relays, sizes=sizes)
        if agent_records.by_passes or agent_records.gram is not None:
            return agent_records, 0
        return _padded(agent_records, int(sizes.max())), problem.terms.free

    # -- a relay

    def begin(self) -> bytes:
        """The rows before the first hop or round."""
        return self._begin

    def first_baton(self) -> np.ndarray:
        """The baton before the first activation, (vectors, dim)."""
        self._must("relay")
        return self._baton.copy()

    def relay(self, rows: bytes, baton: np.ndarray, hop: int, activation: int) -> tuple[bytes, np.ndarray]:
        """One activation: the new rows, and the baton to pass on. Uses the records once and draws noise once."""
        self._must("relay")
        mine, came = self._unpack(rows), self._vectors("a baton", baton, self.vectors)
        scale, sensitivity = self._paid(activation)
        if self._key is not None:
            at_once = (self._agent_records, self._clip, self._key, mine, came, scale, np.int32(hop))
            new, message = compiled.activation(self.algorithm, self._inputs, *at_once)  # (1) to (4)
            return self._pack(new), np.array(message)
        released = self._release(mine, came, hop, scale, sensitivity)
        return self._finish(mine, came, released, hop)

    # -- rounds

    def speak(self, rows: bytes, hop: int, activation: int) -> tuple[np.ndarray, np.ndarray]:
        """First half of a round: g~ for `listen`, and the message to all neighbours. Uses the records once and draws
        noise once."""
        self._must("rounds")
        mine = self._unpack(rows)
        released = self._release(mine, None, hop, *self._paid(activation))
        nothing_yet = np.full((self._inputs.agents, self.dim), np.nan)
        return released, self._finish(mine, nothing_yet, released, hop)[1]

    def listen(
        self, rows: bytes, hop: int, activation: int, released: np.ndarray, heard: dict[int, np.ndarray]
    ) -> bytes:
        """Second half: the new rows, from g~ and all neighbours' messages. Uses neither records nor noise."""
        self._must("rounds")
        if heard.keys() != self._neighbours:
            raise InputError(
                f"round {hop} has messages of {sorted(heard)}; party {self.party} needs one of each neighbour, "
                f"{sorted(self._neighbours)}. Wait until all have come."
            )
        others = np.zeros((self._inputs.agents, self.dim))
        for neighbour, message in heard.items():
            others[neighbour] = self._vectors(f"a message of party {neighbour}", message, 1)[0]
        answered = self._vectors("a released gradient", np.asarray(released)[None], 1)[0]
        return self._finish(self._unpack(rows), others, answered, hop)[0]

    def share(self, rows: bytes) -> np.ndarray:
        """This party's part of the answer, (dim,): its copy x."""
        self._must("rounds")
        at = compiled.fields(self.algorithm, self._inputs).index("x")
        return np.array(self._unpack(rows)[at]).reshape(self.dim)

    # -- both

    def answer(self, parts: np.ndarray) -> np.ndarray:
        """The model, (dim,): from the last baton, or in rounds from all parties' shares, (parties, dim), in order."""
        count = self.vectors if self._relays else self._inputs.agents
        return np.array(compiled.model(self.algorithm, self._inputs, self._vectors("an ending", parts, count)))

    def _must(self, kind: str) -> None:
        if kind != self.algorithm.kind:
            calls = {"relay": "first_baton and relay", "rounds": "speak, listen and share"}
            own = self.algorithm.kind
            raise InputError(f"{self.algorithm.name} has kind {own!r}, not {kind!r}; call {calls[own]}.")

    def _paid(self, activation: int) -> tuple[np.float64, np.float64]:
        """The planned noise of an activation, and the sensitivity it is calibrated for."""
        if not 0 <= activation < self.plan.activations:
            raise PrivacyError(
                f"activation {activation}, counted from 0, is one too many: the plan has noise for "
                f"{self.plan.activations}. Relay without asking, or agree on another plan."
            )
        return self.plan.scales[activation, self.party], self.plan.sensitivity[self.party]

    def _release(
        self, rows: Rows, baton: np.ndarray | None, hop: int, scale: np.float64, sensitivity: np.float64
    ) -> np.ndarray:
        """(1) to (3)."""
        y = compiled.question(self.algorithm, self._inputs, rows, baton, np.int32(hop))
        value = np.asarray(compiled.mean_gradient(not self._relays, self._agent_records, y, self._clip))
        if self._clip is None:
            return self._vectors("a gradient", value[None], 1)[0]
        assert self.draw is not None
        drawn = np.asarray(self.draw(value, float(scale), float(sensitivity), int(hop)))
        return self._vectors("a draw", drawn[None], 1)[0]

    def _finish(self, rows: Rows, outside: np.ndarray, released: np.ndarray, hop: int) -> tuple[bytes, np.ndarray]:
        """(4)."""
        parts = (released,)
        if self._intercepts:
            table = released.reshape(-1, self._intercepts)
            parts = table[:-1], table[-1:]
        new, message = compiled.advance(self.algorithm, self._inputs, rows, outside, parts, np.int32(hop))
        return self._pack(new), np.array(message)

    def _pack(self, rows: Rows) -> bytes:
        return b"".join(np.asarray(part, "<f8").tobytes() for part in rows)

    def _unpack(self, rows: bytes) -> Rows:
        needed = 8 * self._places[-1] * self.dim
        if len(rows) != needed:
            raise InputError(
                f"the rows have {len(rows)} bytes; they must have {needed}: {self._places[-1]} vectors of {self.dim} "
                f"numbers, as party {self.party} of this plan keeps them. They belong to another run."
            )
        table = np.asarray(np.frombuffer(rows, "<f8"), np.float64).reshape(-1, self.dim)
        return tuple(table[first:end] for first, end in itertools.pairwise(self._places))

    def _vectors(self, what: str, given: np.ndarray, count: int) -> np.ndarray:
        vectors = np.asarray(given)
        if vectors.shape != (count, self.dim) or vectors.dtype != np.float64 or not np.isfinite(vectors).all():
            raise InputError(
                f"{what} has shape {vectors.shape} and type {vectors.dtype}; it must have shape ({count}, {self.dim}) "
                "and finite float64 numbers. It belongs to another plan, or was damaged."
            )
        return vectors


def _check(plan: Plan, graph: Graph, party: int, problem: Problem) -> None:
    """Refuse a plan, a graph and records that do not belong together."""
    facts, sizes = plan.facts, problem.split.sizes
    if not 0 <= party < facts.agents or not np.array_equal(graph.degree, plan.degree):
        raise InputError(
            f"party {party} of {graph.name} does not fit a plan of {facts.agents} parties; it must be one of 0 to "
            f"{facts.agents - 1}, on the graph that was planned for."
        )
    if sizes.tolist() != [facts.sizes[party]] or problem.dim != facts.dim:
        raise InputError(
            f"the problem has records of sizes {sizes.tolist()} and {problem.dim} coefficients; the plan is for "
            f"{facts.sizes[party]} records and {facts.dim} coefficients. Pass all of party {party}'s own records and "
            "no others."
        )


def _check_paid(plan: Plan, party: int) -> None:
    """Refuse a plan whose sensitivity is too small: it must be 2 clip / m, with rounding."""
    facts = plan.facts
    least = float(clipped_sensitivity(facts.clip, facts.sizes[party], facts.dim))
    if plan.mechanism != "gradient" or not plan.sensitivity[party] >= least:
        raise PrivacyError(
            f"the plan has mechanism {plan.mechanism!r} and sensitivity {float(plan.sensitivity[party])!r}; a network "
            f"needs 'gradient' and {least!r} or more: 2 clip / m, with rounding. Plan with a budget."
        )
    if not (plan.scales[:, party] > 0).all():
        raise PrivacyError(
            f"the plan has releases of party {party} without noise; all scales must be above 0. Plan again."
        )


def _key(draw: Draw | Keyed | None, relays: bool) -> Array | None:
    """The key of the noise that compiled code draws together with the step; None if it is drawn elsewhere."""
    if isinstance(draw, Keyed):
        if not relays:
            raise PrivacyError(
                "the noise for rounds is a key; it must be a function that draws. Pass `noise.Seeded`'s row."
            )
        return draw.key
    return jax.random.key(0) if draw is None and relays else None  # an oracle without noise does not use it


def _check_bare(plan: Plan) -> None:
    if plan.mechanism is not None:
        raise PrivacyError(
            f"a plan with mechanism {plan.mechanism!r} needs noise, and this party was given none. Pass one, or plan "
            "without a budget."
        )
