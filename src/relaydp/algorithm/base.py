"""What an algorithm is: pure `init` and `step`, and the few facts the engine needs to run and charge it.

    init(setting, steps, x0)          -> State
    step(setting, steps, state, turn) -> (State, Sent)

`Setting` holds all an algorithm may touch. Data is behind one door, `setting.gradient`; what comes out of it is already
private when the run is. `Turn` is public: who acts, who is next, how much noise. `Sent` is what leaves the agent, and
the only thing that the accountant charges for, the network carries and an attacker sees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray


class Turn(NamedTuple):
    """One hop of the relay (or one round of a synchronous method), drawn up before the run from public facts."""

    hop: Int[Array, ""]
    holder: Int[Array, ""]  # i, who has the baton; a round ignores it
    receiver: Int[Array, ""]  # who gets it next
    acts: Bool[Array, ""]  # False: pass the baton on without touching data
    scale: Float[Array, " ..."]  # noise of this activation; a round has one an agent
    key: PRNGKeyArray


class Sent(NamedTuple):
    """What leaves an agent in one step."""

    sender: Int[Array, " ..."]
    receiver: Int[Array, " ..."]
    payload: Any


class Baton(NamedTuple):
    """The pair (u, x) that a relay passes on; `u` is the sum of the agents' prices l_i (plus noise, if published)."""

    u: Float[Array, " dim"]
    x: Float[Array, " dim"]


class Setting(NamedTuple):
    """All that a step may use besides its own state."""

    agents: int
    gradient: Callable[[Int[Array, ""], Float[Array, " dim"], Float[Array, ""], PRNGKeyArray], Float[Array, " dim"]]
    """(i, y, scale, key) -> grad (f_i / n)(y), privatised with noise of that scale: the door to agent i's records."""
    prox: Callable[[Float[Array, " dim"], Float[Array, ""]], Float[Array, " dim"]]
    """(v, t) -> prox_{t r}(v)."""
    when: Callable[[Bool[Array, ""], Callable[[], Any], Callable[[], Any]], Any]
    """(acts, act, relay) -> one or the other. A single run never evaluates `act` where it does not act; a batch of runs
    that differ in it evaluates both and keeps one."""
    variant: str | None = None  # of the published mechanism; None when noise, if any, is on the gradient


@dataclass(frozen=True)
class Algorithm:
    """A method the engine can run. Static: equal algorithms share compiled code."""

    name: str
    title: str
    kind: Literal["relay", "rounds"]
    init: Callable[..., Any]
    step: Callable[..., tuple[Any, Sent]]
    answer: Callable[[Any], Float[Array, " dim"]]  # state -> the model
    choose_steps: Callable[..., Any]  # (asked, facts, ...) -> the steps, checked
    mechanisms: tuple[str, ...]
    vectors: int  # vectors of length dim in one message
