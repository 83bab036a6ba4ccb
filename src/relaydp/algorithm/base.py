"""What an algorithm is: pure `init` and `step`, and the few facts the engine needs to run, count and charge it.

    init(setting, steps, x0)          -> State
    step(setting, steps, state, turn) -> (State, payload)

`Setting` holds all an algorithm may touch. Data is behind oracles: `gradient` and `gradients` are already private when
the run is; `argmin` and `argmins` have their noise in simulations of objective perturbation, and stay shut under noise
on gradients. `statistics` is for algorithms that ask for least squares' sums instead, and shut for all others.
A setting is made for one turn, and its oracles answer once: whose records are asked, how much noise is added and where
it comes from are the turn's, not the algorithm's. `Turn` is public: who acts, who is next, how much noise. The payload
is what leaves the agents, and the only thing that the network carries and an attacker sees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
from jaxtyping import Array, Bool, Float, Int

from relaydp.algorithm.menu import Menu
from relaydp.errors import PrivacyError
from relaydp.graph import Network

# Where a mechanism puts its noise, in `Setting.variant`: on what is sent, or into the objective. RECAL's three readings
# of its paper are its own.
MESSAGES, OBJECTIVE = "messages", "objective"

Vector = Float[Array, " dim"]
Everyone = Float[Array, "agents dim"]


class Turn(NamedTuple):
    """One hop of a relay, or one round of a synchronous method, drawn up before the run from public facts."""

    hop: Int[Array, ""]
    holder: Int[Array, ""]  # i, who has the baton; a round ignores it
    receiver: Int[Array, ""]  # who gets it next; a round ignores it
    acts: Bool[Array, " ..."]  # whether the holder touches data; in a round, which agents do (agents,)
    scale: Float[Array, " ..."]  # noise of this activation; in a round, one per agent
    key: Any  # of a simulation's noise; a step sees it only where the published mechanism draws with it, and else None
    draws: Array | None = None  # a private run's noise, in units of its lattice; no step sees it
    kappa: Float[Array, " ..."] | None = None  # what a noisy minimiser was priced with; the oracle answers for no less
    unit: Float[Array, ""] | None = None  # the step of the lattice that this lap's sums are on, where there are sums
    release: Int[Array, ""] | None = None  # a number of the holder's release that the order of a lap does not change


class Baton(NamedTuple):
    """The pair (u, x) that RECAL passes on; `u` is the sum of the agents' prices l_i (plus noise, if published)."""

    u: Vector
    x: Vector


class Statistics(NamedTuple):
    """All that least squares needs of one agent's records: f_i(x) = 1/2 x'H_i x - b_i'x + a constant."""

    hessian: Float[Array, "dim dim"]  # H_i, the ridge included
    moment: Vector  # b_i
    spread: Float[Array, " 2"]  # public: the noise of H_i's diagonal (root 2 times that of its others), and of b_i's


def put(rows: Everyone, i: Int[Array, ""], row: Vector) -> Everyone:
    """All rows, agent i's replaced. Holders are real agents: a check would read the old row of every run of a batch."""
    return jax.lax.dynamic_update_index_in_dim(rows, row, i, 0, allow_negative_indices=False)


def _all_of_it(sent: Everyone) -> Everyone:
    return sent


class Sums(NamedTuple):
    """Where parties are seen in sums only: what the holder adds to one, as whole numbers modulo 2^64, and what a whole
    lap's sum says. In such a run the oracle of gradients is closed."""

    share: Callable[[Vector], Int[Array, " dim"]]
    """y -> round(grad f_i(y) / unit) and a share of the noise; the ridge is left out. Masks, which cancel in the sum of
    a lap, are for whoever sends it."""
    opened: Callable[[Int[Array, " dim"], Vector], Vector]
    """(the sum of a lap, y) -> the mean of all parties' gradients with its noise, and the ridge's at y."""


def _no_statistics() -> Statistics:
    raise PrivacyError(
        "an algorithm asked for an agent's sufficient statistics, and this oracle has none: it answers for gradients "
        "or minimisers. An algorithm that asks for them says so (`data='statistics'`)."
    )


class Setting(NamedTuple):
    """All that a step may use besides its own state, in one turn. f_i is agent i's mean loss plus the ridge, and
    F = mean_i f_i + r. The five oracles together answer once a turn, and 0 where the turn's agent does not act."""

    agents: int
    gradient: Callable[[Vector], Vector]
    """y -> grad f_i(y) of the turn's holder i, privatised: the oracle to agent i's records."""
    gradients: Callable[[Everyone], Everyone]
    """ys -> every agent's grad f_i(y_i), each privatised: the same oracle for all at once."""
    argmin: Callable[[Vector, Float[Array, ""], Vector, bool], Vector]
    """(p, kappa, v, with_r) -> argmin f_i(x) + [r(x)] + <p + e, x> + kappa/2 ||x - v||^2, exactly; e is the turn's
    noise where objectives are perturbed, and 0 elsewhere."""
    argmins: Callable[[Everyone, Float[Array, " agents"], Everyone, bool], Everyone]
    """The same for every agent at once."""
    prox: Callable[[Vector, Any], Vector]
    """(v, t) -> prox_{t r}(v)."""
    when: Callable[[Bool[Array, ""], Callable[[], Any], Callable[[], Any]], Any]
    """(acts, act, relay) -> one or the other. A single run never evaluates `act` where it does not act; a batch of runs
    that differ in it evaluates both and keeps one."""
    network: Network = Network()
    variant: str | None = None  # where a mechanism puts its noise: one of `Algorithm.variants`; None for the gradient
    exchange: Callable[[Everyone], Everyone] = _all_of_it
    """What everybody sent in a round -> what is heard of it. In one process that is all of it; a party in a network has
    its own row and its neighbours' messages, and nothing in the other rows."""
    sums: Sums | None = None  # where parties are seen in sums only: then a step asks these, and not `gradient`
    statistics: Callable[[], Statistics] = _no_statistics
    """() -> H_i and b_i of the turn's holder i, privatised: for least squares, where data="statistics"."""


Oracle = Callable[["Turn | None"], Setting]
"""A turn -> the setting for it. None is before the first turn, where `init` may ask nothing."""


@dataclass(frozen=True)
class Algorithm:
    """A method the engine can run. Static: equal algorithms share compiled code."""

    name: str
    title: str
    kind: Literal["relay", "rounds"]
    init: Callable[..., Any]
    step: Callable[..., tuple[Any, Any]]
    answer: Callable[[Any], Vector]  # state -> the model
    menu: Menu  # the steps it offers
    mechanisms: tuple[str, ...]
    links: Literal["hop", "pushes", "neighbours", "slots", "star"]
    """Who gets a payload: the next holder; the holder's neighbours, one slot each; all neighbours of each agent, the
    same vector or one a slot; a coordinator."""
    vectors: int = 1  # vectors of length dim in one message
    exchanges: int = 1  # times the links are used in one step
    paper_factor: int = 1  # what the paper's own table multiplies link uses by
    needs: tuple[str, ...] = ()  # parts of Network
    steady: bool = True  # whether every activation is alike; not where steps change along the run
    walks: tuple[str, ...] | None = None  # the walks that a relay can follow; None for all of them
    takes_r: bool = True  # whether a nonsmooth r is covered
    takes_sums: bool = False
    """Whether it can go by `Setting.sums`: all agents of a lap are asked at one point. Its step sees shares before a
    lap is closed and must not send them; so private runs of sums are for relaydp's own alone."""
    data: Literal["gradient", "argmin", "statistics"] = "gradient"  # how data enters
    variants: tuple[str, ...] = (MESSAGES,)  # readings of the published mechanism, the usual one first
    curvature: Callable[..., Any] | None = None
    """(steps, graph, activations) -> kappa of each argmin, (activations, agents): objective perturbation needs it."""
    instead: str = ""  # which algorithm to use where this one cannot (a nonsmooth r, the sound mechanism)
    claim: Callable[..., Any] | None = None
    """(facts, steps, graph) -> the one-step sensitivity that the `published` account charges, (agents,)."""
    heard: tuple[str, ...] = ()  # of rounds: parts of the state that hold what was heard, neighbours' rows included
    receive: Callable[..., Any] | None = None
    """Of a relay, (setting, steps, state, payload) -> the state: it rebuilds the shared state from the payload, which
    is what the next holder knows from the baton alone. Without it a relay runs in one process only."""
    numbers: Callable[[int], int] | None = None  # dim -> numbers in one message, where those are not whole vectors

    def vectors_of(self, dim: int) -> int:
        """Vectors of length dim in one message, rounded up."""
        return self.vectors if self.numbers is None else -(-self.numbers(dim) // dim)
