"""A party's result: the model, its own ledger, its certificate, and the hashes of all messages it sent and received.

model.npz          x, the same bytes at every party
ledger.json        this party's releases, for `relaydp ledger verify`
certificate.json   the guarantee for this party's records, its assumptions, and what is not protected
summary.json       the run in one object;  config.json  what was agreed, as far as the ledger's check needs it
transcript.json    every message by place and hash: parties can compare theirs
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from relaydp._version import __version__
from relaydp.certificate import ADJACENCY, ASSUMED, NOISE, NOT_PROTECTED, THREATS, plain
from relaydp.network.consortium.agreement import Consortium
from relaydp.network.messages.wire import pack
from relaydp.network.operations.paths import RESULT
from relaydp.network.records.public_plan import JournalSummary
from relaydp.party.noise import Sampler, Seeded
from relaydp.planning.run_plan import Plan
from relaydp.privacy import Ledger

VERSION = 1
# A deployed agent measures nothing on raw records, so what other certificates say about measurements does not apply.
NOT_PROTECTED_HERE = [line for line in NOT_PROTECTED if not line.startswith(("Objective, ", "config.json"))]


def model_hash(x: np.ndarray) -> str:
    """SHA-256 of the coefficients as little-endian float64: what the parties compare."""
    return hashlib.sha256(pack(x)).hexdigest()


def ledger_of(ending: JournalSummary, limit_rho: float) -> Ledger:
    """This party's releases as a ledger of one agent."""
    ledger = Ledger(1, limit_rho)
    if ending.releases:
        hops, sensitivities, scales = zip(*ending.releases, strict=True)
        ledger.charge_many([0] * len(hops), hops, sensitivities, scales)
    return ledger


def write_result(
    consortium: Consortium, plan: Plan, party: int, draw: Sampler | Seeded, x: np.ndarray, ending: JournalSummary
) -> str:
    """Write the result folder next to the journal atomically, and return the model's hash."""
    digest, name = model_hash(x), consortium.parties[party].name
    planned = Ledger(1, np.inf)
    planned.charge_many([0] * plan.activations, range(plan.activations), plan.sensitivity[party], plan.scales[:, party])
    ledger = ledger_of(ending, planned.rho)
    epsilon = planned.epsilon(consortium.delta)
    status = "finished" if all(count >= plan.activations for count in ending.made) else "incomplete"
    summary = {
        "party": name,
        "consortium": consortium.name,
        "identity": consortium.identity.hex(),
        "algorithm": plan.algorithm.name,
        "mechanism": "gradient",
        "status": status,
        "activations": ending.activations,
        "made": list(ending.made),
        "epsilon": plain(epsilon) if draw.private else None,
        "delta": consortium.delta,
        "rho": ledger.rho,
        "model_sha256": digest,
    }
    files: dict[str, Any] = {
        # by itself it could be mistaken for a guarantee
        "ledger.json": {"run": "private" if draw.private else "simulation", **ledger.to_json()},
        "certificate.json": _certificate(consortium, plan, party, draw, ending, ledger, summary),
        "summary.json": summary,
        "config.json": {"solve": {"budget": {"epsilon": consortium.epsilon, "delta": consortium.delta}}},
        "transcript.json": ending.transcript,
    }
    target = ending.folder / RESULT
    work = Path(tempfile.mkdtemp(prefix=".result-", dir=target.parent))
    try:
        for name, content in files.items():
            (work / name).write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")
        np.savez(work / "model.npz", allow_pickle=False, x=x)
        shutil.rmtree(target, ignore_errors=True)  # left by an interrupted end
        os.replace(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return digest


def _certificate(
    consortium: Consortium,
    plan: Plan,
    party: int,
    draw: Sampler | Seeded,
    ending: JournalSummary,
    ledger: Ledger,
    summary: dict[str, Any],
) -> dict[str, Any]:
    """Like `relaydp.certificate` for a simulation, but for one party of a real run."""
    delta, private = consortium.delta, draw.private
    promise = (
        f"({summary['epsilon']:.6g}, {delta:g})-differential privacy for every record of {summary['party']} (replace "
        "one record), against everybody who sees all messages, the other parties included."
        if private
        else "none: not private. The noise came from a seed, for development."
    )
    spent = ledger.epsilon(delta) if private and len(ledger) else None
    return {
        "certificate": "relaydp",
        "version": VERSION,
        "private": private,
        "promise": promise,
        **{name: summary[name] for name in ("party", "epsilon", "delta", "rho", "status", "activations")},
        "epsilon_spent": plain(spent),
        "account": ledger.account(delta) if spent is not None else None,
        "releases": len(ledger),
        "adjacency": ADJACENCY,
        "threat_model": THREATS["nobody"],
        "mechanism": {
            "name": "gradient",
            "noise": NOISE["gradient"],
            "source": draw.describe(),
            "sensitivity": float(plan.sensitivity[party]),
            "schedule": plan.scales[:, party].tolist(),
        },
        "consortium": {
            "name": consortium.name,
            "identity": summary["identity"],
            "parties": [{"name": each.name, "fingerprint": each.fingerprint} for each in consortium.parties],
            "epoch": ending.epoch,
            "lost": list(ending.lost),
        },
        "algorithm": plan.algorithm.name,
        "assumed": ASSUMED,
        "not_protected": NOT_PROTECTED_HERE,
        "model_sha256": summary["model_sha256"],
        "ledger_sha256": ledger.to_json()["digest"],
        "versions": {"relaydp": __version__},
    }
