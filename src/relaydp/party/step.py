"""One step at one party, compiled: its part of the state, its oracle, and the simulator's own loop.

A party has only its own part of the state; the rest is NaN here, so a step that used it would give NaN. Noise of real
releases is not drawn by compiled code, so one activation has four parts:

    (1)  y  = the point at which the step asks            `question`: the step, with an oracle that records y
    (2)  g  = (1/m) sum_j clip( grad loss_j(y) )          `mean_gradient`: the only part that sees the records
    (3)  g~ = draw(g)                                     in Python (`party`); from here on nothing but g~ is used
    (4)  the step, its oracle answering g~ + l2 y         `advance`: `scan_turns`, the simulator's loop

Inside one organisation, where the noise comes from the run's key or is absent, `activation` makes all four in one call
of the same loop, with an oracle that has the party's records.

In a relay (4) takes the received baton and makes the next one. In a round it is run twice: for this party's message,
and for its new rows once it has its neighbours' messages. Both times the oracle answers with the same g~.

Why the simulator's loop is used for one step. The same formula, compiled in another context, may differ in its last
bit: a product and a sum are rounded once or twice, depending on whether the compiler fuses them. So (4) has the
simulator's context: its oracle, with `Answered` in place of the records and noise of scale 0, which does not change g~;
its loop; and a second turn, in which no agent acts, without which XLA would unroll the loop. A network then computes
what the simulator does, to the last bit, for the same route and the same draws on the same kind of machine.

The exceptions are in (2), in rounds, where the simulator multiplies a batch of agents' records and a party has a batch
of one: XLA uses another routine for several outputs (softmax), and adds up the intercept in another order: from some
thousand records on, and without clipping for any number. There the last bit of g may differ.
"""

from __future__ import annotations

from functools import cache, partial
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from relaydp.algorithm import ALGORITHMS, Algorithm, Oracle, Setting, Turn
from relaydp.arrays import placed
from relaydp.engine.loop import scan_turns
from relaydp.errors import InputError, PrivacyError
from relaydp.graph import Graph, Network, network_of, path
from relaydp.oracle.oracle import Once, make_oracle
from relaydp.planning.tuning import choose_steps
from relaydp.problem import AgentRecords, Facts
from relaydp.problem.problem import Terms
from relaydp.prox import none

Rows = tuple[Array | np.ndarray, ...]  # a party's rows of each part of the state, (rows, dim)


class Answered(NamedTuple):
    """Replaces the records in the simulator's oracle: the answer is already known, with its noise."""

    size: Array  # (agents,)
    parts: tuple[Array, ...]  # of g~, in a round with one row per agent; two if the simulator joins two

    def gradient(self, i: Array, y: Array, clip: Array) -> Array:
        return jnp.concatenate(self.parts).reshape(-1)

    def gradients(self, ys: Array, clip: Array) -> Array:
        return jax.vmap(lambda *parts: jnp.concatenate(parts).reshape(-1))(*self.parts)


class PartyRecords(NamedTuple):
    """Replaces all agents' records in the simulator's oracle by one party's, whatever its number."""

    size: Array  # (agents,)
    agent_records: AgentRecords

    def gradient(self, i: Array, y: Array, clip: Array | None) -> Array:
        return self.agent_records.gradient(jnp.zeros((), jnp.int32), y, clip)


class StepInputs(NamedTuple):
    """The plan and the network as compiled code needs them, as arrays; public."""

    sizes: Array  # (agents,)
    terms: Terms
    network: Network
    steps: Any
    start: Array  # (dim,), the common starting point
    clip: Array | None  # 1: the answer is noisy already; None: no clipping, as without a mechanism
    party: Array
    near: Array  # the party, and its neighbours if an algorithm keeps received messages

    @property
    def agents(self) -> int:
        return self.sizes.shape[0]

    def alone(self, row: Array) -> Array:
        """One row per agent: this party's, and NaN for the others."""
        return jnp.full((self.agents, *row.shape), jnp.nan).at[self.party].set(row)

    def oracle(self, parts: tuple[Array, ...] = (), heard: Array | None = None) -> Oracle:
        """The simulator's oracle with the answer g~, and in a round with the received messages in the rows of
        others."""
        answered = cast(Any, Answered(self.sizes, parts))
        oracle = make_oracle(answered, self.terms, self.clip, self.network)
        if heard is None:
            return oracle
        mine = (jnp.arange(self.agents, dtype=self.party.dtype) == self.party)[:, None]

        def exchange(sent: Array) -> Array:
            # This condition is always true. It gives the message a place in memory, as in the simulator; otherwise XLA
            # could recompute it at each use, perhaps with another last bit.
            return jax.lax.cond(self.party >= 0, lambda: jnp.where(mine, sent, heard), lambda: sent)

        return lambda turn: oracle(turn)._replace(exchange=exchange)

    def noting(self, heard: Array | None = None) -> tuple[Setting, list[Array], list[Array]]:
        """A setting whose oracle answers 0, once; the points where this party's gradient is asked for; the arguments of
        `exchange`.

        It refuses what the simulator's oracle refuses: a second question, and a question inside a loop of the step.
        """
        asked, sent, setting, once = [], [], self.oracle((), heard)(None), Once()

        def gradient(y: Array) -> Array:
            once.ask()
            asked.append(y)
            return jnp.zeros_like(y)

        def gradients(ys: Array) -> Array:
            once.ask()
            asked.append(ys[self.party])
            return self.alone(jnp.zeros_like(ys[0]))

        def exchange(everyone: Array) -> Array:
            sent.append(everyone)
            return setting.exchange(everyone) if heard is None or everyone.shape == heard.shape else everyone

        return setting._replace(gradient=gradient, gradients=gradients, exchange=exchange), asked, sent


def step_inputs(
    algorithm: Algorithm,
    graph: Graph,
    party: int,
    sizes: np.ndarray,
    steps: Any,
    terms: Terms,
    dim: int,
    bare: bool = False,
) -> StepInputs:
    near = np.append(graph.neighbours(party), party) if algorithm.heard else np.array([party])
    return StepInputs(
        sizes=placed(sizes),
        terms=terms,
        network=network_of(graph, algorithm.needs),
        steps=steps,
        start=placed(np.zeros(dim)),
        clip=None if bare else placed(1.0),
        party=placed(party, np.int32),
        near=placed(near, np.int32),
    )


# -- the state, and a party's part of it


def _turns(algorithm: Algorithm, inputs: StepInputs, hop: Array, acts: Array, scale: ArrayLike = 0.0) -> Turn:
    """Turns of this party; in a round all agents act alike."""
    everyone = (inputs.agents,) if algorithm.kind == "rounds" else ()
    holder = jnp.broadcast_to(inputs.party, hop.shape)
    acts = jnp.broadcast_to(acts.reshape(*hop.shape, *(1 for _ in everyone)), hop.shape + everyone)
    return Turn(hop, holder, holder, acts, jnp.broadcast_to(jnp.asarray(scale, float), acts.shape), cast(Any, None))


def _start(algorithm: Algorithm, inputs: StepInputs) -> tuple[Any, Any]:
    """The state before the first hop, and its payload. No agent is charged: `init` may not ask."""
    state = algorithm.init(inputs.oracle()(None), inputs.steps, inputs.start)
    setting = inputs.noting()[0]._replace(when=lambda acts, act, relay: relay())
    turn = _turns(algorithm, inputs, jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    return state, algorithm.step(setting, inputs.steps, state, turn)[1]


def _field(where: Any) -> str:
    return getattr(where[0], "name", "")


def fields(algorithm: Algorithm, inputs: StepInputs) -> list[str]:
    """Which part of the state each of a party's rows belongs to."""
    leaves = jax.tree_util.tree_leaves_with_path(jax.eval_shape(partial(_start, algorithm), inputs)[0])
    return [_field(where) for where, leaf in leaves if leaf.ndim == 2]


def _own(algorithm: Algorithm, inputs: StepInputs, state: Any) -> Rows:
    """The party's own row of every part of the state, and its neighbours' rows of parts that store received
    messages."""

    def places(where: Any) -> Array:
        return inputs.near if _field(where) in algorithm.heard else inputs.party[None]

    return tuple(leaf[places(at)] for at, leaf in jax.tree_util.tree_leaves_with_path(state) if leaf.ndim == 2)


def _known(algorithm: Algorithm, inputs: StepInputs, rows: Rows, baton: Array | None) -> Any:
    """The state as the party knows it, from its rows and a relay's baton."""
    state, payload = _start(algorithm, inputs)
    left = list(rows)

    def known(where: Any, leaf: Array) -> Array:
        if leaf.ndim == 1:
            return jnp.full_like(leaf, jnp.nan)  # it is on the baton
        mine = left.pop(0)
        return (
            jnp.zeros_like(leaf).at[inputs.near].set(mine)
            if _field(where) in algorithm.heard
            else inputs.alone(mine[0])
        )

    state = jax.tree_util.tree_map_with_path(known, state)
    if baton is None:
        return state
    assert algorithm.receive is not None
    came = jax.tree.unflatten(jax.tree.structure(payload), list(baton))
    return algorithm.receive(inputs.oracle()(None), inputs.steps, state, came)


def _message(inputs: StepInputs, payload: Any) -> Array:
    """(vectors, dim): the baton, or this party's row of what a round sends."""
    return jnp.stack([part if part.ndim == 1 else part[inputs.party] for part in jax.tree.leaves(payload)])


# -- compiled


class StepTrial(NamedTuple):
    """What a step did with an oracle that recorded its questions and answered 0."""

    asked: list[Array]  # where it asked for this party's gradient
    sent: list[Array]  # what it gave to `exchange`
    state: Any
    message: Array


def _try(
    algorithm: Algorithm, inputs: StepInputs, rows: Rows, baton: Array | None, heard: Array | None, hop: Array
) -> StepTrial:
    setting, asked, sent = inputs.noting(heard)
    setting = setting._replace(when=lambda acts, act, relay: act())
    turn = _turns(algorithm, inputs, hop, jnp.ones((), bool))
    state, payload = algorithm.step(setting, inputs.steps, _known(algorithm, inputs, rows, baton), turn)
    return StepTrial(asked, sent, state, _message(inputs, payload))


@partial(jax.jit, static_argnums=0)
def first(algorithm: Algorithm, inputs: StepInputs) -> tuple[Rows, Array]:
    state, payload = _start(algorithm, inputs)
    return _own(algorithm, inputs, state), _message(inputs, payload)


@partial(jax.jit, static_argnums=0)
def question(algorithm: Algorithm, inputs: StepInputs, rows: Rows, baton: Array | None, hop: Array) -> Array:
    """(1)."""
    silence = jnp.full((inputs.agents, inputs.start.size), jnp.nan) if baton is None else None
    (y,) = _try(algorithm, inputs, rows, baton, silence, hop).asked
    return y


@partial(jax.jit, static_argnums=0)
def mean_gradient(in_rounds: bool, agent_records: AgentRecords, y: Array, clip: Array | None) -> Array:
    """(2), the way the simulator computes it: for one agent in a relay, for a batch of agents in a round."""
    if in_rounds:
        return agent_records.gradients(y[None, :], clip)[0]
    return agent_records.gradient(jnp.zeros((), jnp.int32), y, clip)


def _two_turns(
    algorithm: Algorithm, inputs: StepInputs, oracle: Oracle, key: Array, state: Any, hop: Array, scale: ArrayLike
) -> tuple[Rows, Array]:
    """The simulator's loop over a turn of this party, and over one in which no agent acts."""
    world = cast(Any, SimpleNamespace(oracle=lambda variant, batched: oracle))
    two = jnp.arange(2, dtype=hop.dtype)[:, None]
    turns = _turns(algorithm, inputs, hop + two, two == 0, scale)
    state, (_, payloads) = scan_turns(algorithm, None, True, world, inputs.steps, key, state, turns)
    return _own(algorithm, inputs, state), _message(inputs, jax.tree.map(lambda part: part[0, 0], payloads))


@partial(jax.jit, static_argnums=0)
def advance(
    algorithm: Algorithm, inputs: StepInputs, rows: Rows, outside: Array, parts: tuple[Array, ...], hop: Array
) -> tuple[Rows, Array]:
    """(4): the new rows, and what is sent. `outside` is the baton, or in a round the received messages."""
    relay = algorithm.kind == "relay"
    oracle = inputs.oracle(parts) if relay else inputs.oracle(tuple(map(inputs.alone, parts)), outside)
    state = _known(algorithm, inputs, rows, outside if relay else None)
    key = jax.random.key(0)  # of noise that is multiplied by 0
    return _two_turns(algorithm, inputs, oracle, key, state, hop, 0.0)


@partial(jax.jit, static_argnums=0)
def activation(
    algorithm: Algorithm,
    inputs: StepInputs,
    agent_records: AgentRecords,
    clip: Array | None,
    key: Array,
    rows: Rows,
    baton: Array,
    scale: Array,
    hop: Array,
) -> tuple[Rows, Array]:
    """(1) to (4) of a relay, noise from the simulator's key: the new rows, and the baton to pass on."""
    oracle = make_oracle(cast(Any, PartyRecords(inputs.sizes, agent_records)), inputs.terms, clip, inputs.network)
    return _two_turns(algorithm, inputs, oracle, key, _known(algorithm, inputs, rows, baton), hop, scale)


@partial(jax.jit, static_argnums=0)
def model(algorithm: Algorithm, inputs: StepInputs, parts: Array) -> Array:
    """The answer, from the last baton, or in rounds from all agents' x."""
    if algorithm.kind == "relay":
        return algorithm.answer(_known(algorithm, inputs, _own(algorithm, inputs, _start(algorithm, inputs)[0]), parts))
    state = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), _start(algorithm, inputs)[0])
    return algorithm.answer(state._replace(x=parts))


# -- which algorithms can run on a network

TRIED = 3, 2  # agents and dim of the problem that an algorithm is tried on


@cache
def _obstacle(algorithm: Algorithm) -> str | None:
    """Why a network cannot run this algorithm; None if it can: by what it declares, by the shapes of its state and
    messages, and by a trial with the middle one of three agents on a path."""
    if said := _declared_obstacle(algorithm):
        return said
    agents, dim = TRIED
    graph, facts = path(agents), Facts(agents, np.full(agents, 9), dim, np.ones(agents), 0.1, 1.0, True)
    walk = "tour" if algorithm.kind == "relay" else "all"
    steps = choose_steps(algorithm, "paper", facts, graph, walk, 1, None)[0]
    inputs = step_inputs(algorithm, graph, 1, facts.sizes, steps, Terms(none(), 0.1, 0), dim)
    try:
        return _shape_obstacle(algorithm, inputs) or _trial_obstacle(algorithm, inputs)
    except PrivacyError as refusal:  # the oracle's own: asked twice, or in a loop
        return str(refusal)[:-1]


def _declared_obstacle(algorithm: Algorithm) -> str | None:
    relay = algorithm.kind == "relay"
    if "gradient" not in algorithm.mechanisms:
        return "it does not ask its records for gradients, and a network supports noise on gradients only"
    if (algorithm.links, algorithm.exchanges) != ("hop" if relay else "neighbours", 1):
        return "it sends something other than a baton to one party, or one message to all neighbours"
    if algorithm.menu.laps:
        return "it needs every agent in every lap, and a party may be lost"
    if relay and algorithm.receive is None:
        return "it does not define what the next holder knows from the baton alone (Algorithm.receive)"
    return None


def _shape_obstacle(algorithm: Algorithm, inputs: StepInputs) -> str | None:
    """A party keeps its own rows of the state, and sends a baton or one vector: everything must have these shapes."""
    relay, (agents, dim) = algorithm.kind == "relay", TRIED
    state, payload = jax.eval_shape(partial(_start, algorithm), inputs)
    each, baton = {(agents, dim)}, {(dim,)}
    shapes = [{leaf.shape for leaf in jax.tree.leaves(part)} for part in (state, payload)]
    if not (shapes[0] <= each | baton and shapes[1] == baton if relay else shapes == [each, each]):
        return "its state and messages are not one vector per agent, apart from a relay's baton"
    sent = len(jax.tree.leaves(payload))
    if sent != algorithm.vectors or not (relay or sent == 1):
        return f"it sends {sent} vectors at a time; it must send one in a round, and as many as it declares in a relay"
    if not relay and not hasattr(state, "x"):
        return "its agents have no copies x to make an answer of"
    return None


def _trial_obstacle(algorithm: Algorithm, inputs: StepInputs) -> str | None:
    """Let one agent act with NaN in place of all that it does not know: what it makes must be free of NaN."""
    relay = algorithm.kind == "relay"
    did, new, others = _attempt(algorithm, inputs)
    if len(did.asked) != 1:
        return "it asks for no gradient in a step; it must ask for one"
    if not relay and [sent.shape for sent in did.sent] != [TRIED]:
        return "its agents exchange messages otherwise than by one call of `Setting.exchange`"
    if not _is_finite(did.asked, did.message):
        missing = "a baton with all that its holder needs" if relay else "its neighbours' messages"
        return f"an agent needs {missing}, or the private state of others, before it can ask its records and send"
    if not _is_finite(new):
        return "an agent needs the private state of others for its next step"
    if relay and not _same(others, did.state):
        return "its baton does not have all that the next holder needs"
    if not relay and not _is_finite(others):
        return "its answer is not made of the agents' copies x alone"
    return None


@partial(jax.jit, static_argnums=0)
def _attempt(algorithm: Algorithm, inputs: StepInputs) -> tuple[StepTrial, Rows, Any]:
    """The question and message before any message is received; the new rows afterwards; and what others compute from
    it."""
    relay, (agents, dim) = algorithm.kind == "relay", TRIED
    rows, message = first(algorithm, inputs)
    came, hop = (message if relay else None), jnp.ones((), jnp.int32)
    alone = _try(algorithm, inputs, rows, came, None if relay else jnp.full((agents, dim), jnp.nan), hop)
    told = alone if relay else _try(algorithm, inputs, rows, None, jnp.zeros((agents, dim)), hop)
    new = _own(algorithm, inputs, told.state)
    if relay:
        return alone, new, _known(algorithm, inputs, new, told.message)
    return alone, new, model(algorithm, inputs, jnp.zeros((agents, dim)))


def _is_finite(*parts: Any) -> bool:
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(parts))


def _same(state: Any, other: Any) -> bool:
    """Whether the shared parts of the states agree."""
    pairs = zip(jax.tree.leaves(state), jax.tree.leaves(other), strict=True)
    return all(np.allclose(a, b, rtol=1e-12) for a, b in pairs if a.ndim == 1)


def on_network(algorithm: Algorithm) -> None:
    """Raise unless parties on a network can run this algorithm. The error names those that can."""
    obstacle = _obstacle(algorithm)
    if obstacle is not None:
        able = ", ".join(sorted(name for name, each in ALGORITHMS.items() if _obstacle(each) is None))
        raise InputError(f"{algorithm.name} cannot run on a network: {obstacle}. Use one of: {able}.")
