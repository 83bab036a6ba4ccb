"""verify: check a saved ledger from its raw columns, with dp-accounting and not with our accountant."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaydp.errors import PrivacyError
from relaydp.privacy.accountant import check_delta
from relaydp.privacy.ledger import (
    PURE,
    TOLERANCE,
    Ledger,
    as_release,
    fingerprint,
    losses_of,
    read_saved,
    row_faults,
    rows_by_agent,
    too_little_behind,
)
from relaydp.privacy.other_accountants import epsilon_pld, epsilon_rdp


@dataclass(frozen=True)
class AgentCheck:
    """What one agent's releases cost, by the ledger and by dp-accounting.

    Attributes:
        agent: The agent's number.
        releases: How many releases it made.
        rho: Their cost.
        limit_rho: The most that they may cost.
        epsilon: The ledger's; None if relaydp cannot have written the file.
        account: How the ledger found it.
        epsilon_pld: dp-accounting's, by privacy loss distributions.
        epsilon_rdp: dp-accounting's by RDP: an upper bound, without amplification by sampling.
    """

    agent: int
    releases: int
    rho: float
    limit_rho: float
    epsilon: float | None  # the ledger's; None if relaydp cannot have written the file
    account: str | None  # how it was found
    epsilon_pld: float
    epsilon_rdp: float  # an upper bound, without amplification by sampling


@dataclass(frozen=True)
class Verification:
    """Whether a saved ledger is correct, as `verify` found.

    Attributes:
        delta: The delta of every epsilon here.
        agents: One AgentCheck per agent.
        reasons: Why the ledger is not correct, in sentences. Empty if it is.
        holds: Whether the ledger is correct.
        epsilon: The run's, by the ledger; None if relaydp cannot have written the file.
    """

    delta: float
    agents: tuple[AgentCheck, ...]
    reasons: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the ledger is correct: there is no reason against it."""
        return not self.reasons

    @property
    def epsilon(self) -> float | None:
        """The run's, by the ledger."""
        known = [row.epsilon for row in self.agents if row.epsilon is not None]
        return max(known) if len(known) == len(self.agents) > 0 else None

    def to_json(self) -> dict[str, Any]:
        """A plain dict, with None for infinities."""
        rows = [{key: None if x == math.inf else x for key, x in asdict(row).items()} for row in self.agents]
        return {
            "holds": self.holds,
            "reasons": list(self.reasons),
            "delta": self.delta,
            "epsilon": None if self.epsilon == math.inf else self.epsilon,
            "agents": rows,
        }


# Agreement with dp-accounting, which rounds up by up to 3e-4 of epsilon.
_AGREE, _AGREE_NEAR_ZERO = 1e-3, 1e-6
# The number of different releases that dp-accounting composes one by one: for the agent that spent most, for any other,
# and of sampled ones. More are first put into groups: this is exact for Gaussians, which compose into Gaussians; for
# sampled ones the error is the square of the differences of noise within a group.
_PIECES_OF_WORST, _PIECES, _PIECES_SAMPLED = 2000, 8, 64


def verify(saved: Mapping[str, Any], delta: float) -> Verification:
    """Check a saved ledger from its raw columns alone, with dp-accounting and not with our accountant.

    Every agent's activations are numbered 1, 2, 3, ...; releases come in the order of hops; each rho follows from
    its release; no agent spent more than its limit; where agents are seen in sums only, no release is charged for more
    noise than the shares of its lap leave; the digest fits; and each agent's epsilon agrees with
    dp-accounting's privacy loss distributions to 0.1 % (or is at least theirs, if the ledger's is an upper bound by
    design).

    It shows that the file is complete and its sums are right. It cannot show that the releases took place as charged,
    nor that there were no others.

    Args:
        saved: What `Ledger.to_json` returns, or json.load gives for a `ledger.json`.
        delta: At which every epsilon is computed, 1e-10 or more.

    Returns:
        A Verification. `holds` says whether the ledger is correct, and `reasons` why not.

    Raises:
        PrivacyError: delta is out of range, or `saved` is not a ledger at all.

    Example:
        >>> import relaydp as rd
        >>> ledger = rd.Ledger(agents=2, limit_rho=0.3)
        >>> ledger.charge_many([0, 1, 0], [0, 1, 2], 1.0, 2.0)
        >>> saved = ledger.to_json()
        >>> rd.privacy.verify(saved, 1e-5).holds
        True
        >>> saved["releases"]["scale"][1] = 4.0
        >>> print(rd.privacy.verify(saved, 1e-5).reasons[0])
        the digest does not fit: the file was cut, reordered or edited.
    """
    delta = check_delta(delta)
    if delta < 1e-10:
        raise PrivacyError(f"delta={delta}; it must be at least 1e-10, the least that dp-accounting resolves.")
    ledger, rows, intact = read_saved(saved)
    reasons = [] if intact else ["the digest does not fit: the file was cut, reordered or edited."]
    reasons += [
        f"row {np.flatnonzero(bad)[0]} is not a release; it must have {needed}: {as_release(rows[bad][0])}."
        for bad, needed in row_faults(rows, ledger.agents, ledger.trust)
    ]
    if len(reasons) > (not intact):  # such rows cannot be used for computing
        return Verification(delta, (), tuple(reasons))
    agents = rows_by_agent(rows, ledger.agents)
    reasons += _disorder(rows, agents)
    if (short := too_little_behind(rows, ledger.trust)) is not None:
        reasons.append(short)
    rho = [math.fsum(_raw_rho(mine)) for mine in agents]
    for agent, (spent, limit) in enumerate(zip(rho, ledger.limit.tolist(), strict=True)):
        if spent > limit * (1 + TOLERANCE):
            reasons.append(f"agent {agent} spent rho={spent:.6g}, more than its limit of {limit:.6g}.")
    ours: list[tuple[float, str]] | None = None
    if not reasons:
        ours = Ledger.from_json(saved).by_agent(delta)
    worst = int(np.argmax(rho))
    known: dict[bytes, tuple[float, float]] = {}
    checks = []
    for agent in sorted(range(ledger.agents), key=lambda agent: agent != worst):  # first, so that equals reuse it
        mine = agents[agent]
        same = fingerprint(mine)
        if same not in known:
            known[same] = _elsewhere(mine, delta, _PIECES_OF_WORST if agent == worst else _PIECES)
        epsilon, account = (None, None) if ours is None else ours[agent]
        limit = float(ledger.limit[agent])
        checks.append(AgentCheck(agent, len(mine), rho[agent], limit, epsilon, account, *known[same]))
    checks.sort(key=lambda check: check.agent)
    reasons += [text for check in checks for text in _disagreement(check)]
    return Verification(delta, tuple(checks), tuple(reasons))


def _raw_rho(rows: np.ndarray) -> NDArray[np.float64]:
    """The cost of each release, from its other columns."""
    with np.errstate(over="ignore", under="ignore"):
        return np.where(rows["kind"] == PURE, rows["epsilon"] ** 2, (rows["sensitivity"] / rows["scale"]) ** 2) / 2


def _disorder(rows: np.ndarray, agents: list[np.ndarray]) -> list[str]:
    """The signs that a file was cut, reordered or edited."""
    found = []
    back = np.flatnonzero(np.diff(rows["hop"]) < 0)
    if back.size:
        k = int(back[0])
        found.append(f"row {k + 1} is of hop {rows['hop'][k + 1]}, after hop {rows['hop'][k]}: not in order.")
    for agent, mine in enumerate(agents):
        gap = np.flatnonzero(mine["activation"] != np.arange(1, len(mine) + 1))
        if gap.size:
            k = int(gap[0])
            found.append(
                f"agent {agent}: activation {mine['activation'][k]} is in the place of activation {k + 1}; a release "
                "is missing, doubled or out of order."
            )
    off = np.flatnonzero(~np.isclose(rows["rho"], _raw_rho(rows), rtol=1e-12, atol=0))
    if off.size:
        k = int(off[0])
        found.append(
            f"agent {rows['agent'][k]}, activation {rows['activation'][k]}: rho is {rows['rho'][k]:.6g}, but its "
            f"columns make it {_raw_rho(rows[k : k + 1])[0]:.6g} ({off.size} such rows)."
        )
    return found


def _elsewhere(mine: np.ndarray, delta: float, pieces: int) -> tuple[float, float]:
    """(PLD, RDP) epsilon of one agent's releases, by dp-accounting."""
    z, p, epsilons = losses_of(mine)
    groups = [np.empty((0, 3))]
    for share in np.unique(p).tolist():
        own, many = np.unique(z[p == share], return_counts=True)
        most = pieces if share == 1 else _PIECES_SAMPLED
        starts = np.arange(own.size) if own.size <= most else np.arange(most) * own.size // most
        # 1/z^2 adds up, so each release of a group is replaced by the group's mean.
        count = np.add.reduceat(many, starts)
        mean = np.add.reduceat(many * own**-2.0, starts) / count
        groups.append(np.stack([mean**-0.5, np.full(count.size, share), count], axis=1))
    multipliers, shares, counts = np.concatenate(groups).T
    counts = counts.astype(np.int64)
    pld = epsilon_pld(multipliers, counts, delta, sampling=shares, pure=epsilons)
    return pld, epsilon_rdp(multipliers, counts, delta, pure=epsilons)


def _disagreement(check: AgentCheck) -> list[str]:
    """The reasons against the ledger's epsilon of one agent."""
    if check.epsilon is None:
        return []
    least, most = check.epsilon_pld, math.inf
    if check.account in ("exact Gaussian", "PLD"):
        most = min(check.epsilon_pld, check.epsilon_rdp)
    slack = _AGREE * check.epsilon + _AGREE_NEAR_ZERO
    if least - slack <= check.epsilon <= most + slack:
        return []
    return [
        f"agent {check.agent}: the ledger's epsilon is {check.epsilon:.6g} ({check.account}), dp-accounting's "
        f"{check.epsilon_pld:.6g} by PLD and {check.epsilon_rdp:.6g} by RDP."
    ]
