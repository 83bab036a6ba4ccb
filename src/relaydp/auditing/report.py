"""What an audit reports: the claim, what the experiment proves, and the verdict in a sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaydp.auditing.noise import Check
from relaydp.auditing.scores import Bound
from relaydp.certificate import plain
from relaydp.privacy import SOUND


@dataclass(frozen=True, eq=False)
class AuditReport:
    """The claim, what the experiment proves, and the verdict."""

    algorithm: str
    mechanism: str
    variant: str | None
    agents: int
    graph: str
    walk: str | None
    activations: int
    canary: str
    trust: dict[str, Any] | None  # whom the claim is against
    claimed: float  # epsilon, by the mechanism's own account (published: its paper's)
    delta: float
    epsilon: float  # the best lower bound that applies to the claim
    confidence: float
    runs: int  # in all: half under D, half under D'; 0 if the first layer refuted the claim
    reach: float | None  # about the largest epsilon that this canary can show; None if the noise is not Gaussian
    bounds: tuple[Bound, ...]
    checks: tuple[Check, ...]  # of the first layer; empty for the published mechanism, whose noise is elsewhere
    noise: str  # the source of the noise of the runs: "secret", as in a private run, or "seed"
    agent: int  # whose record differs
    verdict: str  # "consistent" or "refuted"
    sentence: str
    seconds: float
    scores: dict[str, tuple[np.ndarray, np.ndarray]] = field(repr=False)  # (under D, under D'), of the counted runs

    @property
    def refuted(self) -> bool:
        """Whether the verdict is "refuted"."""
        return self.verdict == "refuted"

    def best(self, kind: str) -> Bound | None:
        """The largest bound of a kind, or None if no run was counted."""
        return max((bound for bound in self.bounds if bound.kind == kind), key=lambda b: b.epsilon, default=None)

    def summary(self) -> dict[str, Any]:
        """The report in one JSON object. An infinite bound is null; its sentence says why."""
        names = (
            "algorithm",
            "mechanism",
            "variant",
            "agents",
            "graph",
            "walk",
            "activations",
            "canary",
            "trust",
            "agent",
            "noise",
        )
        return {
            **{name: getattr(self, name) for name in names},
            "claimed_epsilon": self.claimed,
            "delta": self.delta,
            "epsilon_lower_bound": plain(self.epsilon),
            "confidence": self.confidence,
            "runs": self.runs,
            "reach": plain(self.reach),
            "checks": [vars(check) for check in self.checks],
            "bounds": [vars(bound) for bound in self.bounds],
            "verdict": self.verdict,
            "sentence": self.sentence,
            "seconds": round(self.seconds, 3),
        }

    def __str__(self) -> str:
        return self.sentence


def refuted_by_its_plan(facts: dict[str, Any], leaks: list[str], seconds: float) -> AuditReport:
    sentence = (
        f"refuted: the plan itself depends on the record. {', '.join(leaks)} differ between two neighbouring data "
        f"sets, and a plan is public; no epsilon covers that, so nothing was run.{_what(facts)}"
    )
    return _refuted(facts, (), sentence, seconds)


def refuted_by_its_noise(
    facts: dict[str, Any], checks: list[Check], failed: list[Check], seconds: float
) -> AuditReport:
    worst = "; ".join(f"{check.name}: {check.finding}" for check in failed)
    sentence = (
        f"refuted: the {facts['mechanism']} mechanism of {facts['algorithm']} claims epsilon {facts['claimed']:.4g} at "
        f"delta {facts['delta']:g}, and its noise, or what it is added to, is not what that charges for. {worst}. No "
        f"epsilon covers that.{_what(facts)}"
    )
    return _refuted(facts, tuple(checks), sentence, seconds)


def _refuted(facts: dict[str, Any], checks: tuple[Check, ...], sentence: str, seconds: float) -> AuditReport:
    """The report of a claim that was refuted before the second layer."""
    return AuditReport(
        **facts,
        epsilon=math.inf,
        runs=0,
        reach=None,
        bounds=(),
        checks=checks,
        verdict="refuted",
        sentence=sentence,
        seconds=seconds,
        scores={},
    )


def sentence_of(facts: dict[str, Any], best: Bound, verdict: str, runs: int) -> str:
    claim = f"epsilon {facts['claimed']:.4g} at delta {facts['delta']:g}"
    sure = f"{100 * facts['confidence']:.12g} % confidence"  # never rounded up to 100
    basis = "a bound for any mechanism" if best.kind == "any" else "a bound against claims of mu-GDP, such as this"
    who = f"{facts['mechanism']} mechanism of {facts['algorithm']}{_whom(facts)}"
    if verdict == "refuted":
        return (
            f"refuted: the {who} claims {claim}, and {runs} runs show at least {best.epsilon:.4g} ({basis}), at {sure}."
            f"{_what(facts)}"
        )
    return (
        f"consistent: the {who} claims {claim}; {runs} runs with the {facts['canary']} canary show at least "
        f"{best.epsilon:.4g} ({basis}), at {sure}.{_what(facts)}"
    )


def _whom(facts: dict[str, Any]) -> str:
    """Whom the claim is against, where it is not everybody else."""
    trust = facts["trust"]
    if trust is None or trust["kind"] == "nobody":
        return ""
    if trust["kind"] == "curator":
        return " with a trusted curator"
    return f" against any {trust['collusion']} of {trust['parties']} agents"


def _what(facts: dict[str, Any]) -> str:
    """A note if the audited noise is not that of a private run."""
    if facts["mechanism"] == "objective":
        return (
            " A simulation was audited: no other runs have noise in the objective, whose claim is about real numbers."
        )
    return " A simulation was audited." if facts["mechanism"] in SOUND and facts["noise"] == "seed" else ""
