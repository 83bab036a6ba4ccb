"""Everything that is decided before the first activation, from public facts: steps, route, noise, and what it costs.

A private plan is made from `Problem.public_facts()` alone and checked against the budget by charging a ledger with all
of its releases; a run can then only follow it or stop early.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from relaydp.algorithm import Algorithm
from relaydp.certificate import plain
from relaydp.graph import Rounds, Route
from relaydp.planning.accuracy import Expectation
from relaydp.planning.directions import Directions
from relaydp.planning.forecast import Forecast
from relaydp.privacy import PRICED, Budget, Ledger
from relaydp.privacy.secret import CommonLattice, common_lattice, stretch
from relaydp.privacy.statistics import numbers_of
from relaydp.privacy.trust import Trust
from relaydp.problem import Facts

Limits = Sequence[float] | Mapping[int, float] | None  # epsilon of agents that allow less than the budget
MECHANISMS = ("gradient", "objective", "published")
AUTO = "auto"


class Tally(NamedTuple):
    """Index k: after k hops."""

    plf: np.ndarray
    messages: np.ndarray  # link uses
    rho: np.ndarray  # the most that any agent has spent, by the mechanism's own account


@dataclass(frozen=True, eq=False)
class Plan:
    """A run, drawn up and paid for."""

    algorithm: Algorithm
    mechanism: str | None
    variant: str | None
    budget: Budget | None
    walk: str | None  # None for synchronous methods
    facts: Facts
    steps: Any
    activations: int
    route: Route | Rounds
    degree: np.ndarray  # (agents,) number of neighbours
    scales: np.ndarray  # (activations, agents): noise of each agent's t-th release, on the mean gradient (or on u)
    sensitivity: np.ndarray  # (agents,) what one record can move of what is noised, by this mechanism's own account
    start: int
    ratio: float | None  # of the schedule; None where it follows the outlook
    ledger: Ledger | None  # with every planned release charged; None where nothing is noised
    outlook: Forecast | None  # what to expect; None without the sound mechanism
    prior: Directions | None  # what it was planned for; None for the guess from public bounds
    expected: Expectation | None = None  # of accuracy; None where it was planned for F, or as the user said
    for_accuracy: bool = False  # whether it was planned for accuracy: F and its minimiser then say little about it
    pure: np.ndarray | None = None  # (activations, agents): epsilon_0 of each release, where noise is in the objective
    kappa: np.ndarray | None = None  # (activations, agents): what each minimiser was priced with, where noise is there
    preparing: int = 0  # hops of the first lap, where it releases the mean record and not gradients; else 0
    trust: Trust | None = None  # whom the promise is against; None without the sound mechanism
    behind: np.ndarray | None = None  # (activations, agents): the noise that is left of a lap's sum, whoever colludes

    @property
    def private(self) -> bool:
        """Whether it was made from public facts, and has a price. What a run of it promises, its result says."""
        return self.mechanism in PRICED

    @property
    def epsilon(self) -> float:
        """The exact epsilon of the whole plan at the budget's delta, for noise in the objective that of real numbers;
        inf when no proof stands behind it."""
        sound = self.private and self.ledger is not None and self.budget is not None
        return self.ledger.epsilon(self.budget.delta) if sound else math.inf  # type: ignore[union-attr]

    @property
    def epsilon_paper(self) -> float:
        """By the paper's conversion; for noise in the objective, which is pure, the sum over activations."""
        if self.ledger is None or self.budget is None:
            return math.inf
        if self.pure is not None:
            return float(self.pure.sum(axis=0).max())
        return self.ledger.epsilon_paper(self.budget.delta)

    @property
    def predicted(self) -> float | None:
        """The excess objective F(x) - F(x*) to expect; None where nothing was simulated."""
        return None if self.outlook is None else self.outlook.predicted

    def summary(self) -> dict[str, Any]:
        """The plan in one JSON object: all of it public."""
        budget, look = self.budget, self.outlook
        curve = (
            None
            if look is None
            else [
                {"activations": int(T), "bias": float(b), "noise": float(e), "total": float(b + e)}
                for T, b, e in zip(look.activations, look.bias, look.noise, strict=True)
                if math.isfinite(b + e)
            ]
        )
        return {
            "algorithm": self.algorithm.name,
            "mechanism": self.mechanism,
            "budget": None if budget is None else {"epsilon": budget.epsilon, "delta": budget.delta},
            "epsilon": plain(self.epsilon),
            "epsilon_paper": plain(self.epsilon_paper),
            "activations": self.activations,
            "hops": len(self.route),
            "messages": int(self.tally.messages[-1]),
            "walk": self.walk,
            "steps": {name: np.asarray(value).tolist() for name, value in self.steps._asdict().items()},
            "noise_scales": _rows(self.scales),
            "sensitivity": self.sensitivity.tolist(),
            "trust": None if self.trust is None else self.trust.to_json(),
            "noise_behind": None if self.behind is None else self.behind.tolist(),
            "clip": None if self.algorithm.data == "statistics" else self.clip,
            "prepares": self.preparing > 0,
            "predicted_excess": self.predicted,
            "expected_gain": None if self.expected is None else self.expected._asdict(),
            "planned_for": "guess from public bounds" if self.prior is None else "prior",
            "curve": curve,
        }

    def __repr__(self) -> str:
        expected = "" if self.predicted is None else f", predicted excess {self.predicted:.3g}"
        if self.expected is not None:
            expected = f", {self.expected} of the gain without privacy"
        return f"Plan({self.algorithm.name}, {self.activations} activations, {len(self.route)} hops{expected})"

    @property
    def clip(self) -> float | None:
        """What gradients are clipped to. The published mechanism assumes its bound instead of enforcing it, and a
        minimiser cannot be clipped: there the records' norm bounds the gradient."""
        return self.facts.clip if self.mechanism == "gradient" else None

    def hop_scales(self, scales: np.ndarray | None = None) -> np.ndarray:
        """The noise of every hop: (hops,) for a relay, (rounds, agents) for rounds."""
        each = self.scales if scales is None else scales
        t = np.minimum(self.route.activation, self.activations - 1)
        if isinstance(self.route, Rounds):
            return np.where(self.route.acts, np.take_along_axis(each, t, axis=0), 0.0)
        return np.where(self.route.acts, each[t, self.route.holder], 0.0)

    @property
    def training(self) -> int:
        """The hops or rounds of gradients and the like: all but those that prepare."""
        return len(self.route) - self.preparing

    @property
    def released(self) -> int:
        """How many numbers a release has at most: a first lap that prepares tells a few more than a gradient."""
        if self.algorithm.data == "statistics":
            return self.drawn
        return 2 * self.facts.dim + 3 if self.preparing else self.facts.dim

    @property
    def sums(self) -> bool:
        """Whether agents are seen in sums only, to which each adds a share of the noise."""
        return self.behind is not None

    @property
    def priced(self) -> np.ndarray:
        """The noise that each release is charged for, (activations, agents): its own, or what is left of its lap's."""
        return self.scales if self.behind is None else self.behind

    @property
    def drawn(self) -> int:
        """How many numbers a release has after a lap that prepares: as many as a gradient, or as the statistics."""
        return numbers_of(self.facts.dim) if self.algorithm.data == "statistics" else self.facts.dim

    def lattice_scales(self) -> np.ndarray:
        """The scales of secret noise, (activations, agents): as planned, and a hair more for its lattice."""
        more = stretch(self.released, self.sensitivity / self.priced)
        return self.scales * (more if self.behind is None else more.max(axis=1, keepdims=True))

    @cached_property
    def lattices(self) -> list[CommonLattice]:
        """Where there are sums: the lattice of each lap, and the agents' noise on it."""
        rows = self.lattice_scales()
        known = {row.tobytes(): row for row in rows}  # most laps are alike
        found = {name: common_lattice(row) for name, row in known.items()}
        return [found[row.tobytes()] for row in rows]

    def hop_lattices(self) -> tuple[np.ndarray, np.ndarray, int]:
        """At every hop of a relay the step of the lattice, r, and L: the holder's noise has the scale r 2^L steps."""
        assert isinstance(self.route, Route)
        t = np.minimum(self.route.activation, self.activations - 1)
        steps = np.array([lattice.step for lattice in self.lattices])
        r = np.array([lattice.r for lattice in self.lattices])
        return steps[t], r[t, self.route.holder], self.lattices[0].L

    def releases(self, hops: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(agent, hop, sensitivity, scale) of the releases in the first `hops` hops."""
        until = len(self.route) if hops is None else min(hops, len(self.route))
        scales = self.hop_scales(self.priced)
        if isinstance(self.route, Rounds):
            when, who = np.nonzero(self.route.acts[:until])
            return who, when, self.sensitivity[who], scales[when, who]
        when = np.flatnonzero(self.route.acts[:until])
        who = self.route.holder[when]
        return who, when, self.sensitivity[who], scales[when]

    @cached_property
    def tally(self) -> Tally:
        """What had happened after each number of hops."""
        way, kind = self.route, self.algorithm
        if isinstance(way, Rounds):
            plf = np.cumsum(way.acts, axis=0).max(axis=1)
            weight = np.full(len(self.degree), 2) if kind.links == "star" else self.degree  # up and down; each edge
            uses = way.acts @ weight * kind.exchanges
        else:
            plf = np.maximum.accumulate(np.where(way.acts, way.activation + 1, 0))
            moves = (way.holder != way.receiver).astype(np.int64)
            uses = np.where(way.acts, self.degree[way.holder], moves) if kind.links == "pushes" else moves
        plf, uses = (np.concatenate([[0], column]) for column in (plf, np.cumsum(uses)))
        if self.ledger is None:
            return Tally(plf, uses, np.where(plf > 0, np.inf, 0.0))
        each = (self.pure if self.pure is not None else self.sensitivity / self.priced) ** 2 / 2.0
        spent = np.concatenate([[0.0], np.cumsum(each, axis=0).max(axis=1)])
        return Tally(plf, uses, spent[plf])

    def charged(self, hops: int) -> Ledger | None:
        """The ledger after the first `hops` hops."""
        if self.ledger is None:
            return None
        ledger = Ledger(self.facts.agents, self.ledger.limit, trust=self.ledger.trust)
        self.charge(ledger, hops)
        return ledger

    def charge(self, ledger: Ledger, hops: int | None = None) -> None:
        """Enter the releases of the first `hops` hops."""
        releases = self.releases(hops)
        if self.behind is not None:
            assert isinstance(self.route, Route)
            ledger.charge_many(*releases, share=self.hop_scales()[releases[1]])
            return
        if self.pure is None:
            ledger.charge_many(*releases)
            return
        who, when = releases[:2]
        t = self.route.activation[when, who] if isinstance(self.route, Rounds) else self.route.activation[when]
        ledger.charge_many(*releases, kind="pure", epsilon=self.pure[t, who])


def _rows(scales: np.ndarray) -> list[list[float]]:
    """As lists; where nothing is noised one row serves every activation, however many agents there are."""
    return scales.tolist() if scales.any() else [[0.0] * scales.shape[1]] * len(scales)
