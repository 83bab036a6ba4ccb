"""What a run leaves behind, and the folder it is kept in, in two halves.

publish/ holds what the promise covers, and what was known without the records. It may be passed on:

    model.npz        x, and the steps; of a run that prepares, its coordinates
    certificate.json what is promised, to whom, on what grounds, and what is not protected
    ledger.json      every release
    plan.json        what was planned: steps, noise of every activation, what to expect
    config.json      the problem (names, weights, bounds), the graph, every argument of solve
    summary.json     what `relaydp run --json` prints, but for what was measured
    transcript.npz   what was sent
    versions.json    Python, packages, device

keep/ holds what was measured on the records without noise, and what would confirm a guess at them. It may not:

    trace.csv        the run's history
    reference.npz    the minimiser
    summary.json     objective, relative error, accuracy and what it is compared with, seconds
    config.json      checksums of the records, where they are; the seed, of a run that has one

A model or a transcript without a promise (a simulation's, or one without noise) is in keep/ too. A run whose steps were
tuned to the records, which is any without a sound mechanism, has no publish/ at all. No fact is in both halves, and no
file holds a record. `load_result(folder)` reads a folder back, or its publish/ alone; `rerun(folder)` repeats a run
that has a seed to the same bits.
"""

from __future__ import annotations

import csv
import json
import math
import os
import platform
import textwrap
from collections import namedtuple
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from relaydp._atomic import KEEP, PUBLISH, RESULT, find_saved, halves, new_folder
from relaydp.certificate import make_certificate, plain
from relaydp.errors import InputError, check_kind
from relaydp.privacy import PRICED, SOUND, Budget, Ledger
from relaydp.privacy.trust import Trust, trust_from, trust_nobody
from relaydp.problem import Reference
from relaydp.problem.coordinates import Coordinates

# What of a summary and of a configuration may not be passed on; all the rest may, where there is a promise.
# seconds: computing on records took them
MEASURED = ("objective", "relative_error", "accuracy", "baselines", "seconds")
HOUSE = {"problem": ("source", "data_sha256", "order_sha256"), "solve": ("seed",)}
README = {
    "private": "publish/ may be passed on: all in it is covered by the promise in certificate.json, or was known "
    "without the records. keep/ may not: what is in it was measured on the records without noise, or confirms a guess "
    "at them.",
    "simulation": "This is a simulation: no promise. Its noise came from a seed, and whoever knows or guesses the seed "
    "can subtract the noise. publish/ says what was planned, and may be passed on. keep/, with the model, may not, "
    "unless the records are public.",
    "published": "This run carries no promise: its noise has no proof. Nothing here may be passed on, unless the "
    "records are public.",
    "open": "This run carries no promise: it had no noise. Nothing here may be passed on, unless the records are "
    "public.",
}


class Baselines(NamedTuple):
    """What an accuracy is compared with. Measured on the held-out records without noise, so that it stays in keep/."""

    majority: float  # accuracy of always answering the most frequent class
    without_privacy: float | None  # that of the minimiser; None where it was not computed
    answers: str | None  # the class that the model answers for every record; None where it answers more than one


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
    """What one run found, cost and sent.

    `solve`, `rerun` and `load_result` make it; a user need not. `save` writes it to a folder, and `load_result` reads
    it back. The arguments are the attributes that are not properties, by name.

    Attributes:
        x: The model. NaN where the run diverged.
        status: "finished", "interrupted" or "diverged".
        message: One or two sentences that go with the status.
        algorithm: The algorithm's name.
        mechanism: "gradient", "objective", "published", or None without noise.
        variant: Where the mechanism adds its noise, where it has variants; else None.
        agents: The number of agents.
        graph: The graph's name.
        walk: How the baton went; None for synchronous methods.
        budget: The Budget asked for, or None.
        secret: Whether the noise came from the operating system; a seeded run is a simulation and promises nothing.
        rho: zCDP of the whole plan; inf without a guarantee. A run that stopped early has still cost its plan. Where
            agents are seen in sums only it is what `epsilon` is computed from, and no promise of its own.
        epsilon: What was spent, at the budget's delta; inf when no guarantee stands behind the run.
        epsilon_planned: What the proof gives this plan; inf where no proof covers the mechanism.
        epsilon_paper: By the paper's own account. For the published mechanism it is what the paper claims, and F1
            refutes.
        delta: The budget's delta, or None.
        plf: The privacy leakage frequency: the most activations that any agent made.
        activations: The activations planned per agent.
        hops: The hops, or rounds, made.
        messages: Link uses.
        vectors: Vectors of the model's length sent.
        messages_paper: Messages as the paper's own table counts them.
        ledger: The Ledger with every release made; None where nothing is noised.
        steps: The algorithm's step sizes.
        plan: What was planned, as a dict; public where the mechanism is sound.
        coordinates: Those that the first lap of a run that prepares has found; None elsewhere.
        trace: The run's history, one row per noted point; None if it was not asked for.
        transcript: What an eavesdropper sees, one row per message; None if it was not kept. Models in it are in
            `coordinates`, where there are some.
        reference: The minimiser; None if it was not computed.
        objective: F at the end, from the trace; NaN without one. Measured without noise.
        relative_error: ||x - x*|| / ||x*|| at the end; NaN without a trace or reference. Measured without noise.
        accuracy: On the held-out records at the end; NaN where there is none. Measured without noise.
        baselines: What accuracy is compared with: that of the most frequent class, that of the minimiser where it was
            computed (`relaydp run` else trains a model without privacy), and whether the model answers one class only.
            None without a trace. Measured without noise.
        seconds: How long the run took.
        config: The problem (names, weights, bounds), the graph, the facts and every argument of `solve`, as a dict.
        versions: Python, packages and device.
        private: Whether a guarantee stands behind this run.
        simulation: Whether the plan has a price with a proof, and the run no promise.
        kind: "private", "simulation", "published" (noise without a proof) or "open" (no noise).
        guarantee: One sentence: what is promised, to whom, about what.
        trust: Whom the promise is against.

    Raises:
        InputError: By `save`, if the folder exists already and may not be overwritten.

    Example:
        >>> import relaydp as rd
        >>> problem = rd.logistic(rd.load_data("breast-cancer"), agents=4, l2=1e-2)
        >>> budget = rd.Budget(epsilon=2.0, delta=1e-4)
        >>> result = rd.solve(problem, rd.ring(4), "recal", budget=budget, activations=10, seed=0)
        >>> result
        Result(recal, finished, simulation, plf=10, messages=40)
        >>> result.private, result.epsilon, round(result.epsilon_planned, 6)
        (False, inf, 2.0)
        >>> result.x.shape, len(result.transcript), len(result.ledger)
        ((30,), 40, 40)
    """

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
    epsilon_planned: float  # what the proof gives this plan; inf where none covers the mechanism
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
    baselines: Baselines | None = None
    coordinates: Coordinates | None = None

    @property
    def private(self) -> bool:
        """Whether a guarantee stands behind this run: a sound mechanism, secret noise and a finite epsilon."""
        return self.secret and self.mechanism in SOUND and math.isfinite(self.epsilon)

    @property
    def simulation(self) -> bool:
        """Whether this was planned from public facts with a price that has a proof, and still has no promise: its noise
        is from a seed, or in the objective."""
        return not self.private and self.mechanism in PRICED

    @property
    def kind(self) -> str:
        """What kind of run this is: "private", "simulation", "published" (noise without a proof) or "open" (none)."""
        return "private" if self.private else "simulation" if self.simulation else self.mechanism or "open"

    @property
    def delta(self) -> float | None:
        """The budget's delta; None without a budget."""
        return None if self.budget is None else self.budget.delta

    @property
    def trust(self) -> Trust:
        """Whom the plan is against: all other agents together, a number of them, or readers of what a curator
        publishes."""
        saved = self.plan.get("trust")
        return trust_nobody(self.agents) if saved is None else trust_from(saved)

    def last(self, column: str) -> float:
        """The trace's last value of a column; NaN without a trace, or where there is no answer."""
        if self.trace is None or self.status == "diverged":
            return math.nan
        return float(getattr(self.trace, column)[-1])

    @property
    def relative_error(self) -> float:
        """||x - x*|| / ||x*|| at the end, without noise; NaN without a trace or a reference, or where x* = 0."""
        return self.last("relative_error")

    @property
    def objective(self) -> float:
        """F at the end, measured without noise; NaN without a trace."""
        return self.last("objective")

    @property
    def accuracy(self) -> float:
        """The accuracy on held-out records at the end; NaN without a trace, or where the loss does not classify."""
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
            "trust": self.trust.to_json(),
            "expected_gain": self.plan.get("expected_gain"),
            "objective": plain(self.objective),
            "relative_error": plain(self.relative_error),
            "accuracy": plain(self.accuracy),
            "baselines": None if self.baselines is None else self.baselines._asdict(),
            "status": self.status,
            "message": self.message,
            "seconds": plain(round(self.seconds, 4)),
        }

    @property
    def guarantee(self) -> str:
        """One sentence: what is promised, to whom, about what."""
        if self.private and self.budget is not None:
            return (
                f"({self.epsilon:.6g}, {self.budget.delta:g})-differential privacy for every record of every agent "
                f"(replace one record), against {self.trust.against}. Objective, relative error and accuracy are "
                "measured without noise and not covered."
            )
        if self.simulation and self.mechanism not in SOUND and self.budget is not None:
            return (
                "simulation: no promise. The proof of noise in the objective is about real numbers, in which this plan "
                f"costs epsilon {self.epsilon_planned:.6g} at delta {self.budget.delta:g}; it does not cover the "
                "float64 numbers of a run."
            )
        if self.simulation and self.budget is not None:
            return (
                "simulation: no promise. The noise comes from a seed, and whoever knows it can take the noise off. A "
                f"private run of this plan costs epsilon {self.epsilon_planned:.6g} at delta {self.budget.delta:g}: "
                "leave the seed out."
            )
        if self.mechanism == "published" and self.variant == "objective":
            return "none: the published price counts a record removed, and the promise is about one replaced."
        if self.mechanism == "published" and self.algorithm == "recal":
            return "none: the published mechanism leaves x bare, and exact gradients follow from the batons."
        if self.mechanism == "published":
            return "none: the published account of this noise looks at one step and not at the state it leaves behind."
        return "none: no noise was added."

    def certificate(self) -> dict[str, Any]:
        """What is promised, to whom, on what grounds, and what is not protected, in one JSON object."""
        return make_certificate(self)

    def save(self, folder: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Write the result folder, all of it or nothing.

        Args:
            folder: Where to write. publish/ in it holds what may be passed on, keep/ what may not.
            overwrite: Whether to replace a result folder that is there. Default: False.

        Returns:
            The folder's path.

        Raises:
            InputError: The folder exists already and `overwrite` is False, or it is not a result folder.
        """
        with new_folder(Path(folder), RESULT, overwrite) as work:
            self._write(work)
        return Path(folder)

    def _write(self, folder: Path) -> None:
        keep = folder / KEEP
        # Without a sound mechanism the facts were measured on the records, and went from there into plan and steps.
        public = folder / PUBLISH if self.config["facts"]["public"] else keep
        covered = folder / PUBLISH if self.private else keep
        for place in {keep, public, covered}:
            place.mkdir()
        (folder / "README.txt").write_text(textwrap.fill(README[self.kind], 100) + "\n")
        summary = self.summary()
        measured = {name: summary.pop(name) for name in MEASURED}
        config, house = _split_config(self.config)
        for name, shown, kept in (("summary.json", summary, measured), ("config.json", config, house)):
            if public == keep:
                _dump(keep / name, _merged(shown, kept))
            else:
                _dump(public / name, shown)
                _dump(keep / name, kept)
        _dump(public / "plan.json", self.plan)
        _dump(public / "certificate.json", self.certificate())
        _dump(public / "versions.json", self.versions)
        if self.ledger is not None:  # which says what kind of run it is of: alone, it could be taken for a promise
            _dump(public / "ledger.json", {"run": self.kind, **self.ledger.to_json()})
        steps = {f"step_{name}": np.asarray(value) for name, value in self.steps._asdict().items()}
        others = {} if self.coordinates is None else self.coordinates._asdict()
        _save_arrays(
            covered / "model.npz", {"x": self.x, **steps, **{f"to_{name}": part for name, part in others.items()}}
        )
        if self.transcript is not None:
            sent = {f"payload_{name}": part for name, part in self.transcript.payload.items()}
            ends = {"sender": self.transcript.sender, "receiver": self.transcript.receiver}
            _save_arrays(covered / "transcript.npz", {**ends, **sent})
        if self.trace is not None:
            self.trace.to_csv(keep / "trace.csv")
        if self.reference is not None:
            _save_arrays(keep / "reference.npz", self.reference._asdict())

    def __repr__(self) -> str:
        cost = f"epsilon={self.epsilon:.4g}" if self.private else "simulation" if self.simulation else "no guarantee"
        return f"Result({self.algorithm}, {self.status}, {cost}, plf={self.plf}, messages={self.messages})"


def _number(value: float | None) -> float:
    """What `plain` wrote: null is infinity here, the cost of a run without a guarantee."""
    return math.inf if value is None else float(value)


def _split_config(config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what may be passed on, what may not)."""
    shown = {part: {k: v for k, v in config[part].items() if k not in HOUSE.get(part, ())} for part in config}
    kept = {part: {name: config[part][name] for name in names if name in config[part]} for part, names in HOUSE.items()}
    return shown, kept


def _merged(first: dict[str, Any], *others: dict[str, Any]) -> dict[str, Any]:
    """Several halves of one object, down to objects in it."""
    whole = dict(first)
    for other in others:
        for name, value in other.items():
            both = isinstance(value, dict) and isinstance(whole.get(name), dict)
            whole[name] = _merged(whole[name], value) if both else value
    return whole


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
    """Read a result folder back.

    A private run's publish/ can be read alone: such a result has no trace, no reference and no measurements. Folders of
    earlier versions, which had no halves, are read as well; their noise came from a seed, so that they are simulations.
    So is every run with noise in the objective, whatever its folder says: its promise could not be kept.

    Args:
        folder: A folder that `Result.save` or `relaydp run --out` wrote, or the publish/ of a private run.

    Returns:
        The Result, with what the folder holds of it.

    Raises:
        InputError: The folder is not a result folder, is not complete, or its ledger was changed.

    Example:
        >>> import tempfile
        >>> import relaydp as rd
        >>> problem = rd.logistic(rd.load_data("breast-cancer"), agents=4, l2=1e-2)
        >>> result = rd.solve(problem, rd.ring(4), algorithm="recal", walk="cyclic", activations=20)
        >>> with tempfile.TemporaryDirectory() as home:
        ...     again = rd.load_result(result.save(f"{home}/run"))
        >>> again
        Result(recal, finished, no guarantee, plf=20, messages=80)
    """
    check_kind("folder", folder, str | os.PathLike, "the path of a result folder")
    path = Path(folder)
    try:
        config, summary = _read_json(path, "config.json"), _read_json(path, "summary.json")
        model = _read_arrays(path, "model.npz")
        if model is None:
            raise OSError("it has no model.npz; of a run without a promise that is in keep/")
        steps = {name.removeprefix("step_"): part for name, part in model.items() if name.startswith("step_")}
        others = {name.removeprefix("to_"): part for name, part in model.items() if name.startswith("to_")}
        sent, best = _read_arrays(path, "transcript.npz"), _read_arrays(path, "reference.npz")
        ledger, trace = find_saved(path, "ledger.json"), find_saved(path, "trace.csv")
        plan = _read_json(path, "plan.json")
        _check_tables(config, summary, plan)
        asked = config["solve"]["budget"]
        secret = bool(summary["private"]) and "walk_seed" in config["solve"]
        kept = secret and summary["mechanism"] in SOUND
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
            secret=secret,
            rho=_number(summary["rho"]) if kept else math.inf,
            epsilon=_number(summary["epsilon"]) if kept else math.inf,
            epsilon_planned=_number(summary.get("epsilon_planned", summary["epsilon"])),
            epsilon_paper=_number(summary["epsilon_paper"]),
            plf=summary["plf"],
            activations=summary["activations"],
            hops=summary["hops"],
            messages=summary["messages"],
            vectors=summary["vectors"],
            messages_paper=summary["messages_paper"],
            ledger=None if ledger is None else Ledger.from_json(json.loads(ledger.read_text())),
            steps=namedtuple("Steps", steps)(**steps),
            plan=plan,
            trace=None if trace is None else Trace.from_csv(trace),
            transcript=None if sent is None else _read_transcript(sent),
            reference=None
            if best is None
            else Reference(best["x"], float(best["value"]), float(best["residual"]), int(best["steps"])),
            seconds=math.nan if summary.get("seconds") is None else float(summary["seconds"]),
            config=config,
            versions=_read_json(path, "versions.json"),
            baselines=None if summary.get("baselines") is None else Baselines(**summary["baselines"]),
            coordinates=Coordinates(**{name: jnp.asarray(part) for name, part in others.items()}) if others else None,
        )
    except (OSError, KeyError, TypeError, json.JSONDecodeError, ValueError) as error:
        raise InputError(
            f"{path} is not a result folder we can read ({error}); needed one written by Result.save or "
            "`relaydp run --out`."
        ) from error


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    """What both halves of a folder say."""
    found = [json.loads((part / name).read_text()) for part in halves(folder) if (part / name).is_file()]
    if not found:
        raise OSError(f"it has no {name}")
    if not all(isinstance(part, dict) for part in found):
        raise TypeError(f"{name} is not a table of names and values")
    return _merged(*found)


def _check_tables(config: dict[str, Any], summary: dict[str, Any], plan: dict[str, Any]) -> None:
    """Refuse a folder in which somebody has changed what everything else relies on."""
    tables = {f"{name} in config.json": config[name] for name in ("problem", "graph", "solve")}
    if plan.get("expected_gain") is not None:
        tables["expected_gain in plan.json"] = plan["expected_gain"]
    for name, value in tables.items():
        if not isinstance(value, dict):
            raise TypeError(f"{name} is not a table of names and values")
    texts = {f"{name} in summary.json": summary[name] for name in ("status", "message", "algorithm", "graph")}
    texts |= {"mechanism in summary.json": summary["mechanism"] or "", "loss in config.json": config["problem"]["loss"]}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise TypeError(f"{name} is not a text")


def _read_arrays(folder: Path, name: str) -> dict[str, np.ndarray] | None:
    path = find_saved(folder, name)
    if path is None:
        return None
    with np.load(path) as file:
        return dict(file)


def _read_transcript(sent: dict[str, np.ndarray]) -> Transcript:
    payload = {name.removeprefix("payload_"): part for name, part in sent.items() if name.startswith("payload_")}
    return Transcript(sent["sender"], sent["receiver"], payload)
