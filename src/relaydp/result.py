"""What a run leaves behind, and the folder it is kept in.

    config.json      the problem (names, weights, bounds, a checksum of the data), the graph, every argument of solve
    summary.json     what `relaydp run --json` prints
    trace.csv        the run's history
    model.npz        x, and the steps
    plan.json        what was planned: steps, noise of every activation, what to expect
    ledger.json      every release
    certificate.json what is promised, to whom, on what grounds, and what is not protected
    transcript.npz   what was sent
    versions.json    Python, packages, device

No file holds a record. `load_result(folder)` reads it back; `rerun(folder)` repeats the run to the same bits.
"""

from __future__ import annotations

import csv
import json
import math
import os
import platform
from collections import namedtuple
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from relaydp.certificate import make_certificate, plain
from relaydp.errors import InputError
from relaydp.folders import new_folder
from relaydp.privacy import SOUND, Budget, Ledger
from relaydp.problem import Reference


@dataclass(frozen=True, eq=False)
class Transcript:
    """Exactly what an eavesdropper sees, one row a message: `sender`, `receiver`, and the vectors sent.

    A relay's are `u` and `x`, as attributes.
    """

    sender: np.ndarray
    receiver: np.ndarray
    payload: Mapping[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.sender)

    def __getattr__(self, name: str) -> np.ndarray:
        if name == "payload" or name.startswith("__"):
            raise AttributeError(name)
        try:
            return self.payload[name]
        except KeyError:
            raise AttributeError(f"this transcript has {', '.join(self.payload)}; no {name!r}.") from None


@dataclass(frozen=True, eq=False)
class Trace:
    """One row a noted point; the first row is the start."""

    hop: np.ndarray
    activations: np.ndarray  # the most that any agent has made: the PLF so far
    messages: np.ndarray  # link uses
    vectors: np.ndarray  # vectors of length q sent
    rho: np.ndarray  # the most that any agent has spent, by the mechanism's own account
    objective: np.ndarray
    relative_error: np.ndarray  # ||x - x*|| / ||x*||; NaN where x* = 0 or no reference was computed
    accuracy: np.ndarray  # on held-out records; NaN where the loss does not classify

    def __len__(self) -> int:
        return len(self.hop)

    def to_csv(self, path: Path) -> None:
        columns = [field.name for field in fields(self)]
        with path.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(columns)
            rows.writerows(zip(*(getattr(self, name).tolist() for name in columns), strict=True))

    @classmethod
    def from_csv(cls, path: Path) -> Trace:
        whole = ("hop", "activations", "messages", "vectors")
        with path.open(newline="") as file:
            header, *rows = list(csv.reader(file))
        values = {name: [row[k] for row in rows] for k, name in enumerate(header)}
        return cls(**{n: np.array(v, np.int64 if n in whole else np.float64) for n, v in values.items()})


@dataclass(frozen=True, eq=False)
class Result:
    """What one run found, cost and sent."""

    x: np.ndarray
    status: str  # finished, interrupted or diverged
    message: str
    algorithm: str
    mechanism: str | None
    variant: str | None
    agents: int
    graph: str
    walk: str | None
    budget: Budget | None
    secret: bool  # whether the noise came from the operating system; a seeded run is a simulation and promises nothing
    rho: float  # zCDP of the whole plan: inf without a guarantee. A run that stopped early has still cost its plan
    epsilon: float  # at the budget's delta; inf when no guarantee stands behind the run
    epsilon_planned: float  # what a private run of this plan costs; inf where no proof covers the mechanism
    epsilon_paper: float  # by the paper's own account. For the published mechanism: what it claims, and F1 refutes
    plf: int
    activations: int
    hops: int
    messages: int
    vectors: int
    messages_paper: int  # as the paper's own table counts
    ledger: Ledger | None
    steps: Any
    plan: dict[str, Any]  # what was planned, all of it public
    trace: Trace | None
    transcript: Transcript | None
    reference: Reference | None
    seconds: float
    config: dict[str, Any]
    versions: dict[str, str]

    @property
    def private(self) -> bool:
        """Whether a guarantee stands behind this run: a sound mechanism, with noise that nobody can know."""
        return self.secret and self.mechanism in SOUND

    @property
    def simulation(self) -> bool:
        """Whether this is a sound mechanism with noise from a seed: what a private run would do, without a promise."""
        return not self.secret and self.mechanism in SOUND

    @property
    def delta(self) -> float | None:
        return None if self.budget is None else self.budget.delta

    def last(self, column: str) -> float:
        """The trace's last value of a column; NaN without a trace, or where there is no answer."""
        if self.trace is None or self.status == "diverged":
            return math.nan
        return float(getattr(self.trace, column)[-1])

    @property
    def relative_error(self) -> float:
        return self.last("relative_error")

    @property
    def objective(self) -> float:
        return self.last("objective")

    @property
    def accuracy(self) -> float:
        return self.last("accuracy")

    def summary(self) -> dict[str, Any]:
        """The run in one JSON object. Numbers that do not exist are null, an absent guarantee is a null epsilon."""
        return {
            "algorithm": self.algorithm,
            "mechanism": self.mechanism,
            "variant": self.variant,
            "agents": self.agents,
            "graph": self.graph,
            "walk": self.walk,
            "plf": self.plf,
            "activations": self.activations,
            "hops": self.hops,
            "messages": self.messages,
            "vectors": self.vectors,
            "messages_paper": self.messages_paper,
            "private": self.private,
            "simulation": self.simulation,
            "epsilon": plain(self.epsilon),
            "epsilon_planned": plain(self.epsilon_planned),
            "epsilon_paper": plain(self.epsilon_paper),
            "delta": plain(self.delta),
            "rho": plain(self.rho),
            "guarantee": self.guarantee,
            "objective": plain(self.objective),
            "relative_error": plain(self.relative_error),
            "accuracy": plain(self.accuracy),
            "status": self.status,
            "message": self.message,
            "seconds": round(self.seconds, 4),
        }

    @property
    def guarantee(self) -> str:
        """One sentence: what is promised, to whom, about what."""
        if self.private and self.budget is not None:
            return (
                f"({self.epsilon:.6g}, {self.budget.delta:g})-differential privacy for every record of every agent "
                "(replace one record), against everybody who sees all batons, the other agents included. Objective, "
                "relative error and accuracy are measured without noise and not covered."
            )
        if self.simulation and self.budget is not None:
            return (
                "simulation: no promise. The noise comes from a seed, and whoever knows it can take the noise off. A "
                f"private run of this plan costs epsilon {self.epsilon_planned:.6g} at delta {self.budget.delta:g}: "
                "leave the seed out."
            )
        if self.mechanism == "published" and self.variant == "objective":
            return "none: the published price counts a record removed, not replaced; mechanism='objective' is sound."
        if self.mechanism == "published" and self.algorithm == "recal":
            return "none: the published mechanism leaves x bare, and exact gradients follow from the batons."
        if self.mechanism == "published":
            return "none: the published account of this noise looks at one step and not at the state it leaves behind."
        return "none: no noise was added."

    def certificate(self) -> dict[str, Any]:
        """What is promised, to whom, on what grounds, and what is not protected, in one JSON object."""
        return make_certificate(self)

    def save(self, folder: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Write the result folder; all of it or nothing."""
        with new_folder(Path(folder), "config.json", overwrite) as work:
            self._write(work)
        return Path(folder)

    def _write(self, folder: Path) -> None:
        _dump(folder / "config.json", self.config)
        _dump(folder / "summary.json", self.summary())
        _dump(folder / "plan.json", self.plan)
        _dump(folder / "certificate.json", self.certificate())
        _dump(folder / "versions.json", self.versions)
        steps = {f"step_{name}": np.asarray(value) for name, value in self.steps._asdict().items()}
        _save_arrays(folder / "model.npz", {"x": self.x, "seconds": self.seconds, **steps})
        if self.trace is not None:
            self.trace.to_csv(folder / "trace.csv")
        if self.ledger is not None:
            _dump(folder / "ledger.json", self.ledger.to_json())
        if self.transcript is not None:
            sent = {f"payload_{name}": part for name, part in self.transcript.payload.items()}
            ends = {"sender": self.transcript.sender, "receiver": self.transcript.receiver}
            _save_arrays(folder / "transcript.npz", {**ends, **sent})
        if self.reference is not None:
            _save_arrays(folder / "reference.npz", self.reference._asdict())

    def __repr__(self) -> str:
        cost = f"epsilon={self.epsilon:.4g}" if self.private else "simulation" if self.simulation else "no guarantee"
        return f"Result({self.algorithm}, {self.status}, {cost}, plf={self.plf}, messages={self.messages})"


def _number(value: float | None) -> float:
    """What `plain` wrote: null is infinity here, the cost of a run without a guarantee."""
    return math.inf if value is None else float(value)


def _dump(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")


def _save_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    np.savez(path, allow_pickle=False, **{name: np.asarray(value) for name, value in arrays.items()})


def versions() -> dict[str, str]:
    """What the run depended on besides its arguments."""
    return dict(_versions())


@cache
def _versions() -> dict[str, str]:
    names = ("relaydp", "jax", "jaxlib", "numpy", "scipy", "networkx", "scikit-learn")
    found = {"python": platform.python_version(), "machine": platform.machine(), "device": str(jax.devices()[0])}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def load_result(folder: str | os.PathLike[str]) -> Result:
    """Read a result folder back."""
    path = Path(folder)
    try:
        config, summary = (json.loads((path / f"{name}.json").read_text()) for name in ("config", "summary"))
        model = np.load(path / "model.npz")
        names = [name.removeprefix("step_") for name in model.files if name.startswith("step_")]
        steps = namedtuple("Steps", names)(*(model[f"step_{name}"] for name in names))
        sent = dict(np.load(path / "transcript.npz")) if (path / "transcript.npz").exists() else None
        best = dict(np.load(path / "reference.npz")) if (path / "reference.npz").exists() else None
        ledger = path / "ledger.json"
        asked = config["solve"]["budget"]
        return Result(
            x=model["x"],
            status=summary["status"],
            message=summary["message"],
            algorithm=summary["algorithm"],
            mechanism=summary["mechanism"],
            variant=summary["variant"],
            agents=summary["agents"],
            graph=summary["graph"],
            walk=summary["walk"],
            budget=None if asked is None else Budget(**asked),
            secret=summary["private"],
            **{name: _number(summary[name]) for name in ("rho", "epsilon", "epsilon_planned", "epsilon_paper")},
            plf=summary["plf"],
            activations=summary["activations"],
            hops=summary["hops"],
            messages=summary["messages"],
            vectors=summary["vectors"],
            messages_paper=summary["messages_paper"],
            ledger=Ledger.from_json(json.loads(ledger.read_text())) if ledger.exists() else None,
            steps=steps,
            plan=json.loads((path / "plan.json").read_text()),
            trace=Trace.from_csv(path / "trace.csv") if (path / "trace.csv").exists() else None,
            transcript=None if sent is None else _read_transcript(sent),
            reference=None
            if best is None
            else Reference(best["x"], float(best["value"]), float(best["residual"]), int(best["steps"])),
            seconds=float(model["seconds"]),
            config=config,
            versions=json.loads((path / "versions.json").read_text()),
        )
    except (OSError, KeyError, TypeError, json.JSONDecodeError, ValueError) as error:
        raise InputError(
            f"{path} is not a result folder we can read ({error}); needed one written by Result.save or "
            "`relaydp run --out`."
        ) from error


def _read_transcript(sent: dict[str, np.ndarray]) -> Transcript:
    payload = {name.removeprefix("payload_"): part for name, part in sent.items() if name.startswith("payload_")}
    return Transcript(sent["sender"], sent["receiver"], payload)
