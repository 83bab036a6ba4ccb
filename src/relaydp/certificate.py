"""The certificate: what a run promises, to whom, on what grounds, and what it does not protect. Plain JSON, no records.

It is written for somebody who was not there: a data-protection officer, a reviewer, another accountant. Everything in
it is public. `relaydp ledger verify` recomputes its epsilon from the releases.
"""

from __future__ import annotations

import math
from typing import Any

VERSION = 1

ADJACENCY = "replace one record of one agent by any other record within the public bounds"
THREAT = {
    "adversary": "an eavesdropper on every link, any one agent, or all other agents together",
    "sees": "every message with sender, receiver and order; graph, algorithm and all constants; m_i; the result",
    "does_not_see": "the attacked agent's records, state (y_i, l_i) and noise",
}
NOISE = {
    "gradient": "Gaussian, N(0, scale^2 I), added to the mean of the agent's clipped gradients at each activation",
    "objective": "density proportional to exp(-|e|/scale), added as <e, x> to the objective that is minimised exactly",
    "published": "Gaussian or objective noise where the algorithm's own paper puts it, priced as the paper claims",
}
SOURCES = {
    True: "the operating system's randomness, drawn for one release each, and kept nowhere; on a lattice, exactly",
    False: "a seeded generator: this run is a simulation, and whoever knows the seed knows the noise",
}
ASSUMED = [
    "m_i, the columns, the classes, who takes part and all bounds below are public and were known without the records.",
    "Records outside the bounds were clipped or shrunk to them, each by itself.",
    "The agents ran this software unchanged, and drew their noise independently and in secret.",
]
NOT_PROTECTED = [
    "Objective, relative error, accuracy, trace and reference of the result: measured on raw records, without noise.",
    "config.json of a result folder: a checksum of the records, which confirms a guess, and a simulation's seed.",
    "Choices made by looking at several results: each run costs its own epsilon, and they add up.",
    "Facts that hold whether or not a record is in the data, such as what the model says about people in general.",
    "Other uses of the same records outside this run.",
    "Groups: k records of one agent have up to k times the mean shift (`relaydp.privacy.epsilon_group`).",
]


def make_certificate(result: Any) -> dict[str, Any]:
    """The certificate of a result; a run without a guarantee gets one that says so."""
    budget, ledger, plan = result.budget, result.ledger, result.plan
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
        "threat_model": THREAT,
        "mechanism": {
            "name": result.mechanism,
            "variant": result.variant,
            "noise": NOISE.get(result.mechanism or "", "none"),
            "source": SOURCES[result.secret] if result.mechanism is not None else "none",
            "sensitivity": plan["sensitivity"],
            "schedule": plan["noise_scales"],
        },
        "public_constants": {**result.config["facts"], "steps": plan["steps"], "activations": plan["activations"]},
        "algorithm": result.algorithm,
        "graph": result.config["graph"],
        "walk": result.walk,
        "assumed": ASSUMED,
        "not_protected": NOT_PROTECTED,
        "ledger_sha256": ledger.to_json()["digest"] if ledger is not None else None,
        "versions": result.versions,
    }


def plain(value: float | None) -> float | None:
    """A number JSON can hold: NaN and infinity become null."""
    return None if value is None or not math.isfinite(value) else float(value)
