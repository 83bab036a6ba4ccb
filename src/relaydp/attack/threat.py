"""What an eavesdropper knows, and what it infers.

It sees every message on every link, with sender, receiver and order. It knows the graph, the algorithm and all its
steps, the start x0, the weights of ridge and r, and the sizes m_i. It does not see records, estimates, prices or noise.
`View` is exactly this knowledge: an attack gets a `View`, and the true records go to the scorer only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from relaydp.algorithm.base import OBJECTIVE
from relaydp.attack.penalty import Penalty
from relaydp.errors import InputError
from relaydp.graph import Graph, Network, from_edges
from relaydp.problem.coordinates import Coordinates
from relaydp.prox import Regulariser, from_spec, none
from relaydp.result import Result, Transcript

Sent = Mapping[str, Any]  # payload arrays by name: (hops, ...) of a relay, (rounds, agents, ...) of rounds


@dataclass(frozen=True, eq=False)
class View:
    """All that an eavesdropper sees and knows about one run.

    `View.of(result)` makes it from a result that kept its transcript. It is the whole input of `infer`.

    Args:
        transcript: Every message, with sender, receiver and order.
        algorithm: The algorithm's name.
        steps: The algorithm's steps.
        graph: Who may send to whom.
        x0: The model that the run started from.
        l2: The weight of the ridge in every f_i. Default: 0.
        regulariser: The nonsmooth term r. Default: none.
        intercepts: How many trailing coefficients neither ridge nor r applies to. Default: 0.
        noisy: Whether the messages carry noise of their own, other than noise on gradients or in objectives. Default:
            False.
        walk: The walk's name. Default: None, not known.
        sizes: How many records each agent has. Default: None, one record each.
    """

    transcript: Transcript
    algorithm: str
    steps: Any
    graph: Graph
    x0: np.ndarray
    l2: float = 0.0  # weight of the ridge inside every f_i
    regulariser: Regulariser = field(default_factory=none)
    intercepts: int = 0  # trailing coefficients that neither ridge nor r applies to
    noisy: bool = False  # whether messages carry their own noise, other than noise on gradients or in objectives
    walk: str | None = None
    sizes: np.ndarray | None = None  # m_i
    coordinates: Coordinates | None = None  # of the models in the transcript, where a first lap has found some

    @property
    def agents(self) -> int:
        return self.graph.agents

    @property
    def penalty(self) -> Penalty:
        return Penalty(self.regulariser, self.l2, self.intercepts)

    @classmethod
    def of(cls, result: Result, *, regulariser: Regulariser | None = None, intercepts: int | None = None) -> View:
        """The view of a run: its transcript and the public part of its configuration, nothing else.

        Args:
            result: A result with a transcript.
            regulariser: The regulariser, if it is a custom one: the configuration does not have it. Default: the
                result's.
            intercepts: How many intercepts the model has. Softmax with an intercept needs it: one per class. Default:
                the result's.

        Returns:
            The View.

        Raises:
            InputError: The result has no transcript, its agents are seen in sums only, or `intercepts` is needed.

        Example:
            >>> import relaydp as rd
            >>> problem = rd.logistic(rd.load_data("breast-cancer"), agents=4, l2=1e-2)
            >>> view = rd.attack.View.of(rd.solve(problem, rd.ring(4), walk="cyclic", activations=5))
            >>> view.algorithm, len(view.transcript)
            ('recal', 20)
        """
        if result.transcript is None:
            raise InputError("this result kept no transcript, so there is nothing to attack; run with transcript=True.")
        if result.trust.sums:
            raise InputError(
                "this run shows sums over all agents alone, and no message has a gradient of one agent to be read off; "
                "needed a run without collusion= or trust='curator'. `relaydp audit` attacks such sums."
            )
        known, asked = result.config["problem"], result.config["solve"]
        if intercepts is None:
            if known["intercept"] and known["loss"] == "softmax":
                raise InputError("softmax with an intercept has one a class; pass intercepts=(number of classes).")
            intercepts = int(known["intercept"])
        edges = result.config["graph"]["edges"]
        return cls(
            transcript=result.transcript,
            algorithm=result.algorithm,
            steps=result.steps,
            graph=from_edges(np.asarray(edges), agents=result.agents, name=result.graph),
            x0=np.zeros(result.x.shape) if asked["x0"] is None else np.asarray(asked["x0"], dtype=np.float64),
            l2=known["l2"],
            regulariser=from_spec(known["regulariser"]) if regulariser is None else regulariser,
            intercepts=intercepts,
            noisy=result.mechanism == "published" and result.variant != OBJECTIVE,
            walk=result.walk,
            sizes=np.asarray(known["sizes"]),
            coordinates=result.coordinates,
        )

    @property
    def laps(self) -> Transcript:
        """The transcript without a first lap that prepares, whose batons carry no gradients."""
        if self.coordinates is None:
            return self.transcript
        sent, first = self.transcript, int(self.steps.lap)
        payload = {name: part[first:] for name, part in sent.payload.items() if name != "first"}
        return Transcript(sent.sender[first:], sent.receiver[first:], payload)


class Known(NamedTuple):
    """The public part of a view as the inference functions use it; the messages are separate arrays.

    Everything here is fixed by a plan, so that one inference can be mapped over the messages of many runs.
    """

    agents: int
    steps: Any
    x0: Float[Array, " dim"]
    penalty: Penalty
    network: Network
    holder: np.ndarray  # (hops,) who sent; unused in rounds
    acts: np.ndarray  # (hops,) or (rounds, agents): who used its records
    noisy: bool

    def everyone(self) -> Float[Array, "agents dim"]:
        """All agents at the public start."""
        return jnp.broadcast_to(self.x0, (self.agents, self.x0.size))

    @property
    def hops(self) -> np.ndarray:
        """The hops of a relay at which the holder acted."""
        return np.flatnonzero(self.acts)

    @property
    def who(self) -> np.ndarray:
        """Who acted at each of `hops`."""
        return self.holder[self.hops]

    def visits(self, sent: Array, start: Array) -> tuple[Array, Array]:
        """What each acting holder of a relay received, and what it sent."""
        before = jnp.concatenate([start[None], sent[:-1]])
        return before[self.hops], sent[self.hops]

    def trusted(self, smooth: Array) -> Array:
        """With noise on the messages no coordinate is exact, unless a function can cancel it."""
        return smooth & (not self.noisy)


class Guess(NamedTuple):
    """What an inference function finds, one row per activation. The first three are public and the same for all
    runs."""

    hop: np.ndarray  # (rows,) hop or round
    agent: np.ndarray  # (rows,)
    read: np.ndarray  # (rows,) whether there is a gradient; it may be missing for a run's last activations
    point: Float[Array, "rows dim"]  # where the gradient was taken
    gradient: Float[Array, "rows dim"]  # of f_i there, as the oracle returned it
    exact: Bool[Array, "rows dim"]  # coordinates of the gradient that are exact up to rounding
    point_exact: Bool[Array, "rows dim"]
    price: Float[Array, "rows dim"] | None = None  # RECAL's l_i before the activation


def by_visit(known: Known, point: Array, gradient: Array, exact: Array, price: Array | None = None) -> Guess:
    """A relay's rows: one per activation, in order. Points are not hidden by a prox, only by noise."""
    seen = known.trusted(jnp.ones_like(exact))
    return Guess(known.hops, known.who, np.ones(len(known.hops), bool), point, gradient, exact, seen, price)


def by_round(known: Known, point: Array, gradient: Array, exact: Array, price: Array | None = None) -> Guess:
    """A synchronous method's rows, from arrays (rounds, agents, dim): those of the agents that acted."""
    hop, agent = np.nonzero(known.acts[: len(point)])
    point, gradient, exact = (part[hop, agent] for part in (point, gradient, exact))
    price = None if price is None else price[hop, agent]
    seen = known.trusted(jnp.ones_like(exact))
    return Guess(hop, agent, np.ones(len(hop), bool), point, gradient, exact, seen, price)


@dataclass(frozen=True, eq=False)
class Inferred:
    """The gradients that an eavesdropper has inferred, one row per activation that the messages reveal.

    `gradient` is the mean gradient of the agent's losses, without the ridge: what the oracle released. In a private run
    that is the noisy one (with noise in the objective: the gradient at the minimiser plus that noise), and nothing more
    can be inferred.

    Attributes:
        agent: Whose gradient each row is, (rows,).
        activation: The agent's activation, from 1, (rows,).
        read: False where only the point is known: the last activations, read through x, (rows,).
        point: Where the gradient was taken, (rows, dim).
        gradient: The gradient, (rows, dim).
        exact: Which coordinates of the gradient are exact, (rows, dim).
        point_exact: The same for the point, (rows, dim).
        price: RECAL's l_i before the activation, (rows, dim); None for other algorithms.
    """

    agent: np.ndarray  # (rows,)
    activation: np.ndarray  # (rows,) t of that agent, from 1
    read: np.ndarray  # (rows,) False where only the point is known: the last activations, read through x
    point: np.ndarray  # (rows, dim) y_i, where the gradient was taken
    gradient: np.ndarray  # (rows, dim)
    exact: np.ndarray  # (rows, dim) which coordinates of `gradient` are exact
    point_exact: np.ndarray  # (rows, dim) the same for `point`
    price: np.ndarray | None  # (rows, dim) RECAL's l_i before the activation

    def __len__(self) -> int:
        return len(self.agent)

    def of(self, agent: int) -> np.ndarray:
        """The rows of one agent, in order."""
        return np.flatnonzero(self.agent == agent)
