"""The certificate: what a run promises, to whom, on what grounds, and what it does not protect. Plain JSON, no records.

It is written for somebody who was not there: a data-protection officer, a reviewer, another accountant. Everything in
it is public. `relaydp ledger verify` recomputes its epsilon from the releases.
"""

from __future__ import annotations

import math
from typing import Any

from relaydp.privacy import SOUND

VERSION = 1

ADJACENCY = "replace one record of one agent by any other record within the public bounds"
THREATS = {
    "nobody": {
        "adversary": "an eavesdropper on every link, any one agent, or all other agents together",
        "sees": "every message with sender, receiver and order; graph, algorithm and all constants; m_i; the result",
        "does_not_see": "the attacked agent's records, state (y_i, l_i) and noise",
    },
    "masked": {
        "adversary": "an eavesdropper on every link together with agents that collude: as many as `collusion` says, "
        "and no more. What they do in a run may be anything. Between agents on a network the promise is computational: "
        "it holds for everybody who cannot break the masks (X25519, HKDF and the stream cipher)",
        "sees": "every model, the sum of every lap, and of the colluding agents everything, their noise included; "
        "graph, algorithm and all constants; m_i; the result",
        "does_not_see": "the other agents' records and noise, and what one of them alone adds to a lap",
    },
    "curator": {
        "adversary": "everybody who sees what is published: every model, the sum of every lap, the result",
        "sees": "what is published; graph, algorithm and all constants; m_i",
        "does_not_see": "the records, the noise, and what one agent alone adds to a lap",
    },
}
SUMMED = {
    "masked": "a share of Gaussian noise, added to the agent's part of the lap's sum, in whole numbers modulo 2^64. If "
    "as many agents collude as `collusion` says, the rest of a lap of `quorum` agents leaves at least `noise_behind`",
    "curator": "a share of Gaussian noise, added to the agent's part of the lap's sum, in whole numbers modulo 2^64. "
    "The sum has the noise of a curator, `noise_behind`",
}
NOISE = {
    "gradient": "Gaussian, N(0, scale^2 I), added to the mean of the agent's clipped gradients at each activation",
    "objective": "density proportional to exp(-|e|/scale), added as <e, x> to the objective that is minimised exactly",
    "published": "Gaussian or objective noise where the algorithm's own paper puts it, priced as the paper claims",
}
ON_STATISTICS = (
    "Gaussian, N(0, scale^2 I), added to the means of the agent's a a' and y a over its records (a, y), once a lap, in "
    "units in which their sensitivity is that of a clipped gradient"
)
FIRST_RELEASE = (
    "of each class the agent's share and the sum of its records, and the mean square of all records' norms, with noise "
    "of the schedule's first scale, in units in which its sensitivity is that of a gradient; the others are gradients "
    "in coordinates that follow from it"
)
SECRET = {
    "gradient": "the operating system's randomness, drawn for one release each and kept nowhere: a discrete Gaussian "
    "on a lattice of 2^40 steps a scale or more, exact to the last bit, with scales a hair above the schedule's",
}
SEEDED = {
    "simulation": "a seeded generator: whoever knows or guesses the seed can take the noise off",
    "published": "a seeded generator",
    "open": "none",
}
TRUSTED = {
    "masked": "At most `collusion` of the agents colluded, and the others kept their noise and their keys secret.",
    "curator": "Whoever trained had all records, and published nothing else that depends on them.",
}
ONE_PROCESS = (
    "This run was made in one process, in which masks cancel by construction and none were made. Its process had all "
    "records and all noise for as long as it ran, and kept no noise."
)
ASSUMED = [
    "m_i, the columns, the classes, who takes part and all bounds below are public and were known without the records.",
    "Records outside the bounds were clipped or shrunk to them, each by itself.",
    "The agents ran this software unchanged, and drew their noise independently and in secret.",
]
IN_SECRET = "A private run of this plan draws its noise in secret; this one did not."
REAL_NUMBERS = (
    "Real numbers: a run computes noise in the objective, and the minimiser that it moves, in float64, which the proof "
    "does not cover. There are no private runs of this plan."
)
KEPT = [
    "keep/ of a result folder: objective, relative error, accuracy, trace and reference are measured on raw records "
    "without noise, and a checksum of the records confirms a guess.",
    "How long the run took, to whoever could time it.",
]
NOT_PROTECTED = [
    "Choices made by looking at several results: each run costs its own epsilon, and they add up.",
    "Facts that hold whether or not a record is in the data, such as what the model says about people in general.",
    "Other uses of the same records outside this run.",
    "Groups: k records of one agent have up to k times the mean shift (`relaydp.privacy.epsilon_group`).",
]

NOTHING_KEPT = {
    "simulation": "Every record: model, messages and trace. What its plan would cost protects nobody here.",
    "published": "Every record: model, messages and trace. The noise has no proof.",
    "open": "Every record: model, messages and trace. There was no noise.",
}


def assumed(result: Any) -> list[str]:
    """What the promise rests on; of a simulation, what its plan rests on."""
    if result.private:
        kind = result.trust.kind
        return [*ASSUMED, *((TRUSTED[kind], ONE_PROCESS) if kind in TRUSTED else ())]
    if result.simulation:
        return [*ASSUMED[:2], IN_SECRET if result.mechanism in SOUND else REAL_NUMBERS]
    return ["Nothing: there is no promise."]


def not_protected(result: Any) -> list[str]:
    return [*KEPT, *NOT_PROTECTED] if result.private else [NOTHING_KEPT[result.kind]]


def make_certificate(result: Any) -> dict[str, Any]:
    """The certificate of a result; a run without a guarantee gets one that says so."""
    budget, ledger, plan, trust = result.budget, result.ledger, result.plan, result.trust
    delta = None if budget is None else budget.delta
    spending = []
    if ledger is not None and delta is not None:
        for agent, (cost, _) in enumerate(ledger.by_agent(delta)):
            epsilon = plain(cost) if result.private else None
            releases, rho = int(ledger.counts[agent]), float(ledger.spent(agent))
            spending.append({"agent": agent, "releases": releases, "rho": rho, "epsilon": epsilon})
    return {
        "certificate": "relaydp",
        "version": VERSION,
        "private": result.private,
        "simulation": result.simulation,
        "promise": result.guarantee,
        "epsilon": plain(result.epsilon),
        "epsilon_planned": plain(result.epsilon_planned),
        "epsilon_paper": plain(result.epsilon_paper),
        "delta": delta,
        "rho": plain(result.rho),
        "account": ledger.account(delta) if result.private and ledger is not None else None,
        "status": result.status,
        "agents": spending,
        "adjacency": ADJACENCY,
        "trust": trust.to_json(),
        "threat_model": THREATS["curator" if trust.parties == 1 else trust.kind],
        "mechanism": {
            "name": result.mechanism,
            "variant": result.variant,
            "noise": SUMMED.get(trust.kind) or _noise_of(result),
            "first_release": FIRST_RELEASE if plan.get("prepares") else None,
            "source": SECRET[result.mechanism] if result.private else SEEDED[result.kind],
            "sensitivity": plan["sensitivity"],
            "schedule": plan["noise_scales"],
            "noise_behind": plan.get("noise_behind"),
        },
        # measured on the records where no sound mechanism forbade it: "public" says so
        "public_constants": {**result.config["facts"], "steps": plan["steps"], "activations": plan["activations"]},
        "algorithm": result.algorithm,
        "graph": result.config["graph"],
        "walk": result.walk,
        "assumed": assumed(result),
        "not_protected": not_protected(result),
        "ledger_sha256": ledger.to_json()["digest"] if ledger is not None else None,
        "versions": result.versions,
    }


def _noise_of(result: Any) -> str:
    if result.mechanism == "gradient" and result.algorithm == "sufficient-statistics":
        return ON_STATISTICS
    return NOISE.get(result.mechanism or "", "none")


def plain(value: float | None) -> float | None:
    """A number JSON can hold: NaN and infinity become null."""
    return None if value is None or not math.isfinite(value) else float(value)
