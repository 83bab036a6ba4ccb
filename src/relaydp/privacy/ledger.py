"""Who has released what: an append-only record that checks first and writes afterwards.

Each agent pays for its own releases only. rho adds up over one agent's activations; and since neighbouring
data sets differ in one record of ONE agent, the whole run costs the most that any agent has spent.
"""

import math
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relaydp.errors import PrivacyError
from relaydp.privacy.accountant import epsilon_exact, epsilon_paper, gaussian_rho

# How far rounding may carry an agent past its limit, relative to it. Adding T positive floats one by one errs
# by at most T * 1.1e-16, so a plan that adds up to its limit is never refused for rounding below some nine
# million releases of one agent; and 1e-9 of rho moves epsilon by less than 1e-9 (epsilon + rho + 1).
TOLERANCE = 1e-9

_INTEGERS, _FLOATS = ("agent", "hop", "activation"), ("sensitivity", "scale", "rho")
_ROW = np.dtype([(name, np.int64) for name in _INTEGERS] + [(name, np.float64) for name in _FLOATS])


@dataclass(frozen=True)
class Release:
    """One Gaussian release: at this hop `agent` queried its data, for the `activation`-th time (from 1)."""

    agent: int
    hop: int
    activation: int
    sensitivity: float
    scale: float
    rho: float


class Ledger:
    """The releases of `agents` agents, none to spend more than `limit_rho` (one number, or one an agent).

    A release that would overspend raises PrivacyError and leaves the ledger as it was: charge, then add noise
    and send. Activations number themselves, so none can be skipped or repeated.

    Formal guarantee. The run is (epsilon(delta), delta)-DP for every delta if each release adds
    N(0, scale^2 I) to a query of the sensitivity charged (replace one record of its agent), agents touch
    their data in no other way, and scales and activations were planned without looking at releases. Where
    they were chosen along the way, what holds is the limit, not the smaller sum spent.

    >>> ledger = Ledger(agents=2, limit_rho=0.3)
    >>> ledger.charge(agent=1, hop=0, sensitivity=1.0, scale=2.0)
    Release(agent=1, hop=0, activation=1, sensitivity=1.0, scale=2.0, rho=0.125)
    >>> ledger.spent().tolist(), ledger.plf
    ([0.0, 0.125], 1)
    """

    def __init__(self, agents: int, limit_rho: ArrayLike) -> None:
        if not isinstance(agents, int | np.integer) or agents < 1:
            raise PrivacyError(f"agents={agents!r} arrived; needed a whole number, 1 or more.")
        limit = np.asarray(limit_rho, dtype=np.float64)
        if limit.shape not in ((), (agents,)):
            raise PrivacyError(f"limit_rho has shape {limit.shape}; needed one number, or {agents}.")
        if not (limit >= 0).all():
            raise PrivacyError(
                f"limit_rho={limit_rho!r} arrived; needed 0 or more. "
                "Take it from Budget(epsilon, delta).rho, or pass math.inf to record without a limit."
            )
        self.agents = int(agents)
        self._limit = np.broadcast_to(limit, self.agents).copy()
        self._rows = np.empty(16, dtype=_ROW)  # doubles when full: a charge costs the same however long the run
        self._length = 0
        self._spent = np.zeros(self.agents)
        self._counts = np.zeros(self.agents, dtype=np.int64)

    def charge(self, agent: int, hop: int, sensitivity: float, scale: float) -> Release:
        """Record one release, or refuse it and change nothing."""
        self.charge_many([agent], [hop], [sensitivity], [scale])
        return self._release(self._length - 1)

    def charge_many(self, agent: ArrayLike, hop: ArrayLike, sensitivity: ArrayLike, scale: ArrayLike) -> None:
        """Record many releases in the order given, or refuse them all and change nothing.

        The same as charging one by one, to the last bit. Numbers stand for all releases of the call.
        """
        who, when = _whole("agent", agent), _whole("hop", hop)
        rho = gaussian_rho(sensitivity, scale)  # refuses negative numbers and NaN
        sizes = [np.asarray(column).shape for column in (who, when, sensitivity, scale)]
        try:
            (size,) = np.broadcast_shapes(*sizes, (1,))
        except ValueError:
            raise PrivacyError(f"columns of shapes {sizes} arrived; needed one length for all.") from None
        rows = np.empty(size, dtype=_ROW)
        rows["agent"], rows["hop"] = who, when
        rows["sensitivity"], rows["scale"], rows["rho"] = sensitivity, scale, rho
        self._check(rows)

        # Who is charged (each once), what they will have spent, and which activation of theirs each is.
        agents, place = np.unique(rows["agent"], return_inverse=True)
        spent = self._spent[agents]
        np.add.at(spent, place, rows["rho"])  # one by one and in order, as single charges would
        self._check_limit(rows, agents, spent)
        extra = np.bincount(place, minlength=agents.size)
        by_agent = np.argsort(place, kind="stable")
        rank = np.arange(size) - np.repeat(np.cumsum(extra) - extra, extra)
        rows["activation"][by_agent] = np.repeat(self._counts[agents], extra) + rank + 1

        # Checked. Now write.
        end = self._length + size
        if end > self._rows.size:
            grown = np.empty(max(end, 2 * self._rows.size), dtype=_ROW)
            grown[: self._length] = self._rows[: self._length]
            self._rows = grown
        self._rows[self._length : end] = rows
        self._spent[agents] = spent
        self._counts[agents] += extra
        self._length = end

    def _check(self, rows: np.ndarray) -> None:
        for bad, needed in (
            ((rows["agent"] < 0) | (rows["agent"] >= self.agents), f"an agent from 0 to {self.agents - 1}"),
            (rows["hop"] < 0, "a hop of 0 or more"),
            (~((rows["scale"] > 0) & (rows["scale"] < math.inf)), "a finite scale above 0, the noise"),
            (~np.isfinite(rows["rho"]), "a finite rho: raise the scale"),
        ):
            if bad.any():
                agent, hop, _, sensitivity, scale, _ = rows[bad][0].item()
                raise PrivacyError(
                    f"release by agent {agent} at hop {hop} (sensitivity {sensitivity}, scale {scale}) "
                    f"refused; needed {needed}. Nothing was recorded; do not send it."
                )

    def _check_limit(self, rows: np.ndarray, agents: np.ndarray, spent: np.ndarray) -> None:
        over = np.flatnonzero(spent > self._limit[agents] * (1 + TOLERANCE))
        if over.size:
            agent, total = int(agents[over[0]]), float(spent[over[0]])
            asked = int((rows["agent"] == agent).sum())
            raise PrivacyError(
                f"agent {agent} has spent rho={self._spent[agent]:.6g} of {self._limit[agent]:.6g}; {asked} "
                f"more release(s) would make it {total:.6g}. Nothing was recorded. Let it pass the baton on "
                "without its data, or start over with more noise, fewer activations or a larger budget."
            )

    def spent(self, agent: int | None = None) -> Any:
        """rho spent so far: an array over agents, or one agent's number."""
        return self._spent.copy() if agent is None else float(self._spent[self._agent(agent)])

    @property
    def limit(self) -> NDArray[np.float64]:
        """The most rho each agent may spend."""
        return self._limit.copy()

    @property
    def counts(self) -> NDArray[np.int64]:
        """tau_i: how many releases each agent has made."""
        return self._counts.copy()

    @property
    def rho(self) -> float:
        """What the run costs: the most any agent has spent."""
        return float(self._spent.max())

    @property
    def plf(self) -> int:
        """The privacy leakage frequency: the most releases of any agent."""
        return int(self._counts.max())

    def epsilon(self, delta: float) -> float:
        """The run's exact epsilon at this delta."""
        return epsilon_exact(self.rho, delta)

    def epsilon_paper(self, delta: float) -> float:
        """The run's epsilon by the paper's conversion, which is larger."""
        return epsilon_paper(self.rho, delta)

    def events(self, agent: int) -> list[Release]:
        """One agent's releases, in order."""
        mine = self._rows["agent"][: self._length] == self._agent(agent)
        return [self._release(k) for k in np.flatnonzero(mine).tolist()]

    def _agent(self, agent: int) -> int:
        number = operator.index(agent)
        if not 0 <= number < self.agents:
            raise PrivacyError(f"agent {agent} is not in this ledger; needed 0 to {self.agents - 1}.")
        return number

    def _release(self, k: int) -> Release:
        return Release(*self._rows[k].item())

    def __iter__(self) -> Iterator[Release]:
        return (self._release(k) for k in range(self._length))

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ledger):
            return NotImplemented
        mine, theirs = self._rows[: self._length], other._rows[: other._length]
        return np.array_equal(self._limit, other._limit) and np.array_equal(mine, theirs)

    def __repr__(self) -> str:
        return f"Ledger(agents={self.agents}, releases={len(self)}, plf={self.plf}, rho={self.rho:.6g})"

    def to_json(self) -> dict[str, Any]:
        """A plain dict for json.dump: limits (None for no limit) and one list a column."""
        limit = [x if math.isfinite(x) else None for x in self._limit.tolist()]
        columns = {name: self._rows[name][: self._length].tolist() for name in (*_INTEGERS, *_FLOATS)}
        return {"agents": self.agents, "limit_rho": limit, "releases": columns}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> "Ledger":
        """Charge the saved releases anew; a file that does not add up is refused."""
        try:
            limit = [math.inf if x is None else x for x in saved["limit_rho"]]
            ledger, columns = cls(saved["agents"], limit), saved["releases"]
            ledger.charge_many(*(columns[name] for name in ("agent", "hop", "sensitivity", "scale")))
            as_charged = ledger._rows[: ledger._length]
            same = np.array_equal(as_charged["activation"], columns["activation"])
            # 1e-12: another machine may round the last bit of rho differently.
            same = same and np.allclose(as_charged["rho"], columns["rho"], rtol=1e-12, atol=0)
        except PrivacyError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise PrivacyError(f"not a saved ledger ({error!r}); needed what to_json() gives.") from error
        if not same:
            raise PrivacyError(
                "the saved ledger's activations or rho differ from its releases charged anew: it was "
                "cut, reordered or edited. Use the file as the run wrote it."
            )
        return ledger


def _whole(name: str, column: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(column)
    if array.dtype.kind not in "iu" and array.size:
        raise PrivacyError(f"{name} holds {array.dtype}; needed whole numbers. Pass {name} as integers.")
    return array.astype(np.int64)
