"""The record of all releases: append-only, and checked before it is written.

Each agent is charged for its own releases only. rho adds up over one agent's activations; and since neighbouring data
sets differ in one record of ONE agent, the run costs the maximum over agents.

There are three kinds of release, and rho adds up over all of them:

    gaussian   N(0, scale^2 I) on a query of this sensitivity     rho = sensitivity^2 / (2 scale^2)
    sampled    the same, each record in it with probability p      the same rho, as an upper bound
    pure       an epsilon_0-DP release with any noise              rho = epsilon_0^2 / 2

A sampled release's sensitivity is the change by replacing a record that takes part: 2 c / (p m) for a sum over p m.
rho decides what a limit allows. The (epsilon, delta) of an agent's releases depends on their kinds:

    exact Gaussian   gaussian only: `epsilon_exact`
    zCDP             with pure ones: `epsilon_paper`. The exact formula would promise too much: two coins that are
                     epsilon_0 apart differ by epsilon_0/2 in total variation (to first order), two Gaussians of
                     the same rho, mu = epsilon_0 apart, by 0.4 epsilon_0
    basic            pure only: the sum of epsilon_0, where that is less
    PLD              with sampled ones: `epsilon_sampled`

Where agents are seen in sums only (`privacy.trust`), a release is what its agent adds to the sum of a lap. `share` is
the noise that it adds, and `scale` at most the noise that is left of the sum when as many collude as the ledger's trust
says: it follows from the shares of the lap.
"""

import hashlib
import math
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relaydp.errors import PrivacyError, RelayError, choose
from relaydp.privacy.accountant import epsilon_exact, epsilon_paper, gaussian_rho
from relaydp.privacy.composition import epsilon_sampled
from relaydp.privacy.releases import grouped
from relaydp.privacy.trust import Trust, hidden, trust_from

# How far rounding may take an agent above its limit, relative to it. Adding T positive floats one by one errs
# by at most T * 1.1e-16, so a plan that adds up to its limit is never refused for rounding below some nine
# million releases of one agent; and 1e-9 of rho moves epsilon by less than 1e-9 (epsilon + rho + 1).
TOLERANCE = 1e-9

KINDS = ("gaussian", "pure", "sampled")
_GAUSSIAN, PURE, _SAMPLED = range(len(KINDS))
VERSION = 2  # of saved ledgers; the first version had no number, and Gaussian releases only
SUMS_VERSION = 3  # of those of runs with sums, which have trust and shares

_INTEGERS = ("agent", "hop", "activation")
_ROW = np.dtype(
    [(name, np.int64) for name in _INTEGERS]
    + [(name, np.float64) for name in ("sensitivity", "scale", "rho")]
    + [("kind", np.int8)]  # index in KINDS
    + [(name, np.float64) for name in ("epsilon", "sampling", "share")]
)
_COLUMNS = tuple(_ROW.names or ())


@dataclass(frozen=True)
class Release:
    """One release: at a hop an agent queried its records.

    Attributes:
        agent: The agent.
        hop: The hop of the run, from 0.
        activation: The number of this release among the agent's own, from 1.
        sensitivity: The most that the answer moves when one record is replaced.
        scale: The standard deviation of the noise.
        rho: What the release costs.
        kind: "gaussian", "pure" or "sampled".
        epsilon: epsilon_0 of a pure release, else 0.
        sampling: The probability of a sampled release, else 1.
        share: The standard deviation of the agent's own noise in a sum of several agents, else 0.
    """

    agent: int
    hop: int
    activation: int
    sensitivity: float
    scale: float
    rho: float
    kind: str = "gaussian"
    epsilon: float = 0.0  # epsilon_0 of a pure release
    sampling: float = 1.0  # p of a sampled one
    share: float = 0.0  # of the noise of a sum


class Ledger:
    """A record of every agent's releases, which refuses a release that would overspend.

    A release that would overspend raises PrivacyError and leaves the ledger unchanged: charge first, then add noise and
    send. Activations number themselves, so none can be skipped or repeated. `charge` and `charge_many` enter releases;
    `spent`, `epsilon`, `epsilon_of` and `by_agent` say what they cost; `to_json` and `from_json` save and read a
    ledger. Its length is the number of releases, and iteration goes over them in order.

    Formal guarantee. The run is (epsilon(delta), delta)-DP for every delta if each release is what its kind says (for
    sampled ones: under the conditions of `epsilon_sampled`), of the sensitivity charged (replace one record of its
    agent), agents touch their data in no other way, and scales and activations were planned without looking at
    releases. Where they were chosen along the way, what holds is the limit, not the smaller sum spent.

    Args:
        agents: The number of agents, 1 or more.
        limit_rho: The most rho that each agent may spend: one number, or one number per agent. math.inf records without
            a limit; `Budget.rho` is the limit of a budget.
        trust: Where agents are seen in sums only, whom the promise is against. Default: None, every release is seen.

    Attributes:
        agents: The number of agents.
        limit: The most rho each agent may spend, as an array.
        counts: tau_i: how many releases each agent has made, as an array.
        rho: What the run costs: the most that any agent has spent.
        plf: The privacy leakage frequency: the most releases of any agent.
        trust: As given.

    Raises:
        PrivacyError: `agents` or `limit_rho` is out of range. `charge` raises it for a release that would overspend or
            is out of range, and `from_json` for a file that was changed.
        InputError: By `charge` and `charge_many`, if the kind is not "gaussian", "pure" or "sampled".

    Example:
        >>> import relaydp as rd
        >>> ledger = rd.Ledger(agents=2, limit_rho=0.3)
        >>> release = ledger.charge(agent=1, hop=0, sensitivity=1.0, scale=2.0)
        >>> release.activation, release.rho
        (1, 0.125)
        >>> ledger.charge(agent=1, hop=1, sensitivity=1.0, scale=2.0, kind="sampled", sampling=0.1).rho
        0.125
        >>> ledger.spent().tolist(), ledger.plf, ledger.account(1e-5)
        ([0.0, 0.25], 2, 'PLD')
    """

    def __init__(self, agents: int, limit_rho: ArrayLike, *, trust: Trust | None = None) -> None:
        if not isinstance(agents, int | np.integer) or agents < 1:
            raise PrivacyError(f"agents={agents!r}; it must be a whole number, 1 or more.")
        limit = np.asarray(limit_rho, dtype=np.float64)
        if limit.shape not in ((), (agents,)):
            raise PrivacyError(f"limit_rho has shape {limit.shape}; it must be one number, or {agents} numbers.")
        if not (limit >= 0).all():
            raise PrivacyError(
                f"limit_rho={limit_rho!r}; it must be 0 or more. Take it from Budget(epsilon, delta).rho, or pass "
                "math.inf to record without a limit."
            )
        self.agents = int(agents)
        self.trust = trust if trust is not None and trust.sums else None
        if self.trust is not None and self.trust.parties != self.agents:
            raise PrivacyError(f"trust among {self.trust.parties} parties for {agents} agents; needed as many of both.")
        self._limit = np.broadcast_to(limit, self.agents).copy()
        # It doubles when full, so that a charge takes constant time. Zeros, and not memory that was used before: a
        # pickle has the whole array, and what was there may have been noise.
        self._rows = np.zeros(16, dtype=_ROW)
        self._length = 0
        self._spent = np.zeros(self.agents)
        self._counts = np.zeros(self.agents, dtype=np.int64)

    def charge(
        self,
        agent: int,
        hop: int,
        sensitivity: float,
        scale: float,
        *,
        kind: str = "gaussian",
        epsilon: float = 0.0,
        sampling: float = 1.0,
        share: float = 0.0,
    ) -> Release:
        """Record one release, or refuse it and change nothing.

        Args:
            agent: Whose release it is.
            hop: The hop of the run, 0 or more.
            sensitivity: The most that the answer moves when one record of this agent is replaced.
            scale: The standard deviation of the noise.
            kind: "gaussian" (the default), "pure" or "sampled".
            epsilon: epsilon_0, for a pure release only.
            sampling: The probability with which each record takes part, for a sampled release only.
            share: The agent's own noise, where the release is a part of a sum.

        Returns:
            The Release as it was recorded, with its rho.

        Raises:
            PrivacyError: The release would overspend, or a number is out of range.
            InputError: The kind is unknown.
        """
        plain = self.trust is None and share == 0.0
        row = self._plain_row(agent, hop, sensitivity, scale, kind, epsilon, sampling) if plain else None
        if row is None:  # a part of a sum, or something is wrong with it: the general method raises the error
            further = {"kind": kind, "epsilon": epsilon, "sampling": sampling, "share": share}
            self.charge_many([agent], [hop], [sensitivity], [scale], **further)
            return self._release(self._length - 1)
        who, rho, end = row[0], row[5], self._length + 1
        self._make_room(end)
        self._rows[self._length] = (*row, 0.0)
        self._spent[who] += rho
        self._counts[who] += 1
        self._length = end
        return Release(*row[:6], kind, *row[7:])

    def _plain_row(
        self, agent: Any, hop: Any, sensitivity: Any, scale: Any, kind: Any, epsilon: Any, sampling: Any
    ) -> tuple[int, int, int, float, float, float, int, float, float] | None:
        """The row of one release that may be charged, else None: a fast `charge_many` for one release, without
        arrays."""
        try:
            who, when, code = operator.index(agent), operator.index(hop), KINDS.index(kind)
            moved, noise, e, p = float(sensitivity), float(scale), float(epsilon), float(sampling)
            rho = e * e / 2 if code == PURE else (moved / noise) * (moved / noise) / 2
        except (TypeError, ValueError, ZeroDivisionError):
            return None
        known = 0 <= who < self.agents and when >= 0 and 0 <= moved < math.inf and 0 < noise < math.inf
        typed = (e > 0 if code == PURE else e == 0) and (0 < p <= 1 if code == _SAMPLED else p == 1)
        if not (known and typed and rho < math.inf):
            return None
        if self._spent[who] + rho > self._limit[who] * (1 + TOLERANCE):
            return None
        return who, when, int(self._counts[who]) + 1, moved, noise, rho, code, e, p

    def charge_many(
        self,
        agent: ArrayLike,
        hop: ArrayLike,
        sensitivity: ArrayLike,
        scale: ArrayLike,
        *,
        kind: ArrayLike = "gaussian",
        epsilon: ArrayLike = 0.0,
        sampling: ArrayLike = 1.0,
        share: ArrayLike = 0.0,
    ) -> None:
        """Record many releases in the order given, or refuse them all and change nothing.

        The same as charging one by one, to the last bit. A single number applies to all releases of the call.

        Args:
            agent: Whose release each is.
            hop: The hop of each.
            sensitivity: The sensitivity of each.
            scale: The standard deviation of each one's noise.
            kind: The kind of each. Default: "gaussian".
            epsilon: epsilon_0 of each, for pure releases only.
            sampling: The probability of each, for sampled releases only.
            share: Each agent's own noise, where releases are parts of sums.

        Raises:
            PrivacyError: A release would overspend, or a number is out of range.
            InputError: A kind is unknown.
        """
        who, when, what = _whole("agent", agent), _whole("hop", hop), _codes(kind)
        rho = gaussian_rho(sensitivity, scale)  # refuses negative numbers and NaN
        given = (who, when, sensitivity, scale, what, epsilon, sampling, share)
        sizes = [np.shape(column) for column in given]
        try:
            (size,) = np.broadcast_shapes(*sizes, (1,))
        except ValueError:
            raise PrivacyError(f"the columns have shapes {sizes}; all must have the same length.") from None
        rows = np.empty(size, dtype=_ROW)
        names = ("agent", "hop", "sensitivity", "scale", "kind", "epsilon", "sampling", "share")
        for name, column in zip(names, given, strict=True):
            try:
                rows[name] = column
            except (TypeError, ValueError):
                raise PrivacyError(f"{name}={column!r}; it must hold numbers. Pass {name} as floats.") from None
        with np.errstate(over="ignore"):  # infinite is refused below
            rows["rho"] = np.where(rows["kind"] == PURE, rows["epsilon"] ** 2 / 2, rho)
        self._check(rows)

        # Who is charged (each once), what they will have spent, and which activation of theirs each is.
        agents, place = np.unique(rows["agent"], return_inverse=True)
        spent = self._spent[agents]
        np.add.at(spent, place, rows["rho"])  # one by one and in order, like single charges
        self._check_limit(rows, agents, spent)
        extra = np.bincount(place, minlength=agents.size)
        by_agent = np.argsort(place, kind="stable")
        rank = np.arange(size) - np.repeat(np.cumsum(extra) - extra, extra)
        rows["activation"][by_agent] = np.repeat(self._counts[agents], extra) + rank + 1

        # All checks passed: write.
        end = self._length + size
        self._make_room(end)
        self._rows[self._length : end] = rows
        self._spent[agents] = spent
        self._counts[agents] += extra
        self._length = end

    def _make_room(self, end: int) -> None:
        if end > self._rows.size:
            grown = np.zeros(max(end, 2 * self._rows.size), dtype=_ROW)
            grown[: self._length] = self._rows[: self._length]
            self._rows = grown

    def _check(self, rows: np.ndarray) -> None:
        for bad, needed in row_faults(rows, self.agents, self.trust):
            first = as_release(rows[bad][0])
            raise PrivacyError(
                f"{first.kind} release by agent {first.agent} at hop {first.hop} (sensitivity {first.sensitivity}, "
                f"scale {first.scale}, epsilon {first.epsilon}, sampling {first.sampling}) is refused; it must have "
                f"{needed}. Nothing was recorded; do not send it."
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
        """The cost of the run: the most that any agent has spent."""
        return float(self._spent.max())

    @property
    def plf(self) -> int:
        """The privacy leakage frequency: the most releases of any agent."""
        return int(self._counts.max())

    def epsilon(self, delta: float) -> float:
        """The run's epsilon at this delta: the largest of any agent's releases."""
        return self._worst(delta)[0]

    def epsilon_of(self, agent: int, delta: float) -> float:
        """One agent's epsilon at this delta."""
        number = self._agent(agent)
        return _worth(self._rows[: self._length][self._mine(number)], float(self._spent[number]), delta, {})[0]

    def account(self, delta: float) -> str:
        """How `epsilon` was found: "exact Gaussian", "zCDP", "basic" or "PLD" (privacy loss distributions)."""
        return self._worst(delta)[1]

    def by_agent(self, delta: float) -> list[tuple[float, str]]:
        """(epsilon, how it was found) of every agent, in order."""
        if self._all_gaussian():  # then rho decides, and agents with equal releases have spent the same
            kinds, of = np.unique(self._spent, return_inverse=True)
            worth = [(epsilon_exact(spent, delta), "exact Gaussian") for spent in kinds.tolist()]
            return [worth[k] for k in of.tolist()]
        known: dict[bytes, float] = {}
        agents = rows_by_agent(self._rows[: self._length], self.agents)
        return [_worth(mine, spent, delta, known) for mine, spent in zip(agents, self._spent.tolist(), strict=True)]

    def overspender(self, allowed: ArrayLike, delta: float) -> tuple[int, float] | None:
        """The first agent whose releases cost more epsilon than it is allowed (one number per agent), with that
        epsilon; None if no agent exceeds its own."""
        most = np.broadcast_to(np.asarray(allowed, dtype=np.float64), self.agents)
        if self._all_gaussian():  # epsilon grows with rho: of equal allowances, the largest rho decides
            order = np.lexsort((self._spent, most))
            last = np.flatnonzero(np.append(most[order][1:] != most[order][:-1], True))
            kept = [epsilon_exact(float(self._spent[i]), delta) <= most[i] for i in order[last]]
            if all(kept):
                return None
        worth = self.by_agent(delta)
        return next(((i, worth[i][0]) for i in range(self.agents) if not worth[i][0] <= most[i]), None)

    def _all_gaussian(self) -> bool:
        return not (self._rows["kind"][: self._length] != _GAUSSIAN).any()

    def _worst(self, delta: float) -> tuple[float, str]:
        if self._all_gaussian():
            return epsilon_exact(self.rho, delta), "exact Gaussian"
        return max(self.by_agent(delta))

    def epsilon_paper(self, delta: float) -> float:
        """The run's epsilon by the paper's conversion of rho, which holds for all kinds and is larger."""
        return epsilon_paper(self.rho, delta)

    def events(self, agent: int) -> list[Release]:
        """One agent's releases, in order."""
        return [self._release(k) for k in np.flatnonzero(self._mine(self._agent(agent))).tolist()]

    def _mine(self, agent: int) -> NDArray[np.bool_]:
        return self._rows["agent"][: self._length] == agent

    def _agent(self, agent: int) -> int:
        number = operator.index(agent)
        if not 0 <= number < self.agents:
            raise PrivacyError(f"agent {agent} is not in this ledger; it must be 0 to {self.agents - 1}.")
        return number

    def _release(self, k: int) -> Release:
        return as_release(self._rows[k])

    def __iter__(self) -> Iterator[Release]:
        return (self._release(k) for k in range(self._length))

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ledger):
            return NotImplemented
        mine, theirs = self._rows[: self._length], other._rows[: other._length]
        same = self.trust == other.trust and np.array_equal(self._limit, other._limit)
        return same and np.array_equal(mine, theirs)

    def __repr__(self) -> str:
        return f"Ledger(agents={self.agents}, releases={len(self)}, plf={self.plf}, rho={self.rho:.6g})"

    def to_json(self) -> dict[str, Any]:
        """A plain dict for json.dump: limits (None for no limit), one list per column, and a digest of both."""
        rows = self._rows[: self._length]
        columns = {name: rows[name].tolist() for name in _COLUMNS}
        columns["kind"] = np.array(KINDS)[rows["kind"]].tolist()
        told: dict[str, Any] = {"version": VERSION}
        if self.trust is None:
            del columns["share"]
        else:
            told = {"version": SUMS_VERSION, "trust": self.trust.to_json()}
        return {
            **told,
            "agents": self.agents,
            "limit_rho": [x if math.isfinite(x) else None for x in self._limit.tolist()],
            "releases": columns,
            "digest": _digest(self._limit, rows, self.trust),
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> "Ledger":
        """Charge the saved releases again; refuses a file with other sums."""
        ledger, rows, intact = read_saved(saved)
        names = ("agent", "hop", "sensitivity", "scale")
        further = {name: rows[name] for name in ("epsilon", "sampling", "share")}
        further["kind"] = np.array(KINDS)[rows["kind"]]
        ledger.charge_many(*(rows[name] for name in names), **further)
        as_charged = ledger._rows[: ledger._length]
        same = intact and np.array_equal(as_charged["activation"], rows["activation"])
        # 1e-12: another machine may round the last bit of rho differently.
        if not (same and np.allclose(as_charged["rho"], rows["rho"], rtol=1e-12, atol=0)):
            raise PrivacyError(
                "the saved ledger's activations, rho or digest differ from those computed from its releases: it was "
                "cut, reordered or edited. Use the file as the run wrote it."
            )
        if (short := too_little_behind(rows, ledger.trust)) is not None:
            raise PrivacyError(f"the saved ledger is charged for noise that is not there: {short}")
        return ledger


def as_release(row: Any) -> Release:
    values = dict(zip(_COLUMNS, row.item(), strict=True))
    return Release(**{**values, "kind": KINDS[values["kind"]]})


def row_faults(rows: np.ndarray, agents: int, trust: Trust | None) -> Iterator[tuple[NDArray[np.bool_], str]]:
    """(which rows are not releases, what they must have), for each rule that some row breaks."""
    pure, sampled = rows["kind"] == PURE, rows["kind"] == _SAMPLED
    moved, scale, epsilon, sampling = (rows[name] for name in ("sensitivity", "scale", "epsilon", "sampling"))
    share, summed = rows["share"], trust is not None
    for bad, needed in (
        ((rows["agent"] < 0) | (rows["agent"] >= agents), f"an agent from 0 to {agents - 1}"),
        (rows["hop"] < 0, "a hop of 0 or more"),
        (~((moved >= 0) & (moved < math.inf)), "a finite sensitivity, 0 or more"),
        (~((scale > 0) & (scale < math.inf)), "a finite scale above 0, the noise"),
        (pure & ~((epsilon > 0) & (epsilon < math.inf)), "epsilon= above 0, which is what a pure release costs"),
        (~pure & (epsilon != 0), "epsilon= with kind='pure' only"),
        (sampled & ~((sampling > 0) & (sampling <= 1)), "sampling= above 0 and at most 1, a probability"),
        (~sampled & (sampling != 1), "sampling= with kind='sampled' only"),
        (~np.isfinite(rows["rho"]), "a finite rho: raise the scale"),
        (summed & (pure | sampled), "kind='gaussian', where agents are seen in sums only"),
        (summed & ~((share > 0) & (share < math.inf)), "share= above 0, the agent's own noise in the sum"),
        (share != 0 if not summed else np.zeros(len(rows), bool), "share= in a ledger with trust only"),
    ):
        if bad.any():
            yield bad, needed


def rows_by_agent(rows: np.ndarray, agents: int) -> list[np.ndarray]:
    """Each agent's rows, in their order."""
    order = np.argsort(rows["agent"], kind="stable")
    return np.split(rows[order], np.searchsorted(rows["agent"][order], np.arange(1, agents)))


def losses_of(mine: np.ndarray) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """(noise multipliers, sampling) of Gaussian and sampled releases with a sensitivity above 0, and epsilon_0 of pure
    ones."""
    pure = mine["kind"] == PURE
    noisy = mine[~pure & (mine["sensitivity"] > 0)]
    return noisy["scale"] / noisy["sensitivity"], noisy["sampling"], mine["epsilon"][pure]


def fingerprint(mine: np.ndarray) -> bytes:
    """Equal for agents whose releases cost the same, in whatever order and units."""
    z, p, epsilons = losses_of(mine)
    return b"|".join(column.tobytes() for column in (*grouped(z, p, 1), np.sort(epsilons)))


def _worth(mine: np.ndarray, spent: float, delta: float, known: dict[bytes, float]) -> tuple[float, str]:
    """(epsilon, how it was found) of one agent's releases, which cost rho = `spent`."""
    pure, sampled = mine["kind"] == PURE, (mine["kind"] == _SAMPLED) & (mine["sampling"] < 1)
    if sampled.any():
        same = fingerprint(mine)  # a PLD is slow, and agents often have the same releases
        if same not in known:
            z, p, epsilons = losses_of(mine)
            known[same] = epsilon_sampled(z, p, 1, delta, pure=epsilons)
        return known[same], "PLD"
    if not pure.any():
        return epsilon_exact(spent, delta), "exact Gaussian"
    choices = [(epsilon_paper(spent, delta), "zCDP")]
    if pure.all():
        choices.append((math.fsum(mine["epsilon"]), "basic"))
    return min(choices)


def _whole(name: str, column: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(column)
    if array.dtype.kind not in "iu" and array.size:
        raise PrivacyError(f"{name} has type {array.dtype}; it must hold whole numbers. Pass {name} as integers.")
    return array.astype(np.int64)


def _codes(kind: ArrayLike) -> NDArray[np.int8]:
    """Kinds by name as their indices in KINDS."""
    names = np.asarray(kind)
    codes = np.full(names.shape, -1, dtype=np.int8)
    for code, name in enumerate(KINDS):
        codes[names == name] = code
    if (codes < 0).any():
        choose("kind of release", names[codes < 0].flat[0].item(), KINDS)
    return codes


def too_little_behind(rows: np.ndarray, trust: Trust | None) -> str | None:
    """Which release is charged for more noise than is left of its lap's sum; None if there is none.

    A sum of fewer parties than the quorum was never opened: nobody has seen it.
    """
    if trust is None:
        return None
    laps, count = np.unique(rows["activation"], return_counts=True)
    for lap in laps[count >= trust.quorum].tolist():
        mine = rows[rows["activation"] == lap]
        mine = mine[np.argsort(mine["agent"])]
        left = hidden(mine["share"], trust.honest)
        over = np.flatnonzero(mine["scale"] > left * (1.0 + 1e-12))
        if over.size:
            i, agent = int(over[0]), int(mine["agent"][over[0]])
            return (
                f"agent {agent}'s release {lap} has the scale {mine['scale'][i]:.6g}, and of the noise of its lap "
                f"{left[i]:.6g} is left if {trust.collusion} of {trust.quorum} parties collude."
            )
    return None


# --- saved ledgers


def _digest(limit: NDArray[np.float64], rows: np.ndarray, trust: Trust | None) -> str:
    """SHA-256 of limits, columns and trust, to detect accidental edits. It is not a signature: an editor can write a
    new digest."""
    seen = hashlib.sha256(limit.astype("<f8").tobytes())
    if trust is not None:
        seen.update(repr(sorted(trust.to_json().items())).encode())
    for name in _COLUMNS if trust is not None else _COLUMNS[:-1]:
        column = rows[name]
        seen.update(name.encode() + column.astype(column.dtype.newbyteorder("<")).tobytes())
    return seen.hexdigest()


def read_saved(saved: Mapping[str, Any]) -> tuple[Ledger, np.ndarray, bool]:
    """An empty ledger with the saved limits, the rows of the file, and whether the digest fits them."""
    try:
        version = saved.get("version", 1)
        if version not in (1, VERSION, SUMS_VERSION):
            raise PrivacyError(
                f"the ledger has version {version!r}; it must be 1, {VERSION} or {SUMS_VERSION}. Update relaydp."
            )
        trust = trust_from(saved["trust"]) if version == SUMS_VERSION else None
        ledger = Ledger(saved["agents"], [math.inf if x is None else x for x in saved["limit_rho"]], trust=trust)
        columns, size = dict(saved["releases"]), len(saved["releases"]["agent"])
        if version == 1:
            columns.update(kind=["gaussian"] * size, epsilon=[0.0] * size, sampling=[1.0] * size)
        if trust is None:
            columns["share"] = [0.0] * size
        columns["kind"] = _codes(columns["kind"])
        rows = np.empty(size, dtype=_ROW)
        for name in _COLUMNS:
            column = _whole(name, columns[name]) if name in _INTEGERS else np.asarray(columns[name])
            if column.shape != (size,) or column.dtype.kind not in "iuf":
                raise PrivacyError(f"column {name} does not hold {size} numbers; it must have one for each release.")
            rows[name] = column
        intact = version == 1 or saved["digest"] == _digest(ledger.limit, rows, ledger.trust)
    except RelayError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise PrivacyError(f"not a saved ledger ({error!r}); it must be what to_json() returns.") from error
    return ledger, rows, intact
