"""campaign: attack runs, and compare the results with the true records.

    fresh_runs(problem)  or  saved_run(folder)   ->  targets: runs, and the channels through which each is read
    campaign(targets, methods)                   ->  rows: one per run, channel and method, with its scores
    Campaign.save(folder), load_attack(folder)       the rows and the images, which are records: protect them as such

Attacks get messages and public facts. The records are the target's `truth`: they go to the scorer only, after an attack
has finished.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from relaydp._atomic import new_folder
from relaydp.attack import METHODS, About, Exposure, Inferred, View, expose, infer, score
from relaydp.certificate import plain
from relaydp.data import Records
from relaydp.engine import solve
from relaydp.engine.reruns import find_records
from relaydp.errors import InputError, RelayError, choose
from relaydp.graph import ring
from relaydp.privacy import Budget
from relaydp.problem import Problem, build_again
from relaydp.result import Result, load_result, versions

ACTIVATIONS = 5
BUDGETS = (Budget(12.0, 1e-5), Budget(1.0, 1e-5))
MECHANISMS = ("none", "published", "gradient")
RECOVERED = 1e-6  # a gradient with a smaller relative error counts as recovered
SATURATED = 1e-200  # at extreme scores a slope vanishes; an error relative to a smaller gradient is meaningless
# The layout of the catalogue's images: (height, width, channels), and whether the channels are stored one after the
# other.
IMAGES = {
    "fashion-small": ((14, 14, 1), False),
    "digits": ((8, 8, 1), False),
    "mnist": ((28, 28, 1), False),
    "fashion": ((28, 28, 1), False),
    "cifar10": ((32, 32, 3), True),
}

FILE, PICTURES, WARNING = "attack.json", "images.npz", "CONTAINS-RECORDS.txt"
VERSION = 1
CONTAINS = (
    "This folder holds training records, or what an attack made out of them. Keep it as you keep the records: no "
    "epsilon covers it."
)
NO_RECORDS = "This folder holds an attack's scores and no records. The scores were measured against the records."

Report = Callable[[str, int, int], None]  # (what is being done, done, in all)


# ---------------------------------------------------------------- what is attacked


class Reading(NamedTuple):
    """The gradients that one channel of a run reveals, and the error of each."""

    channel: str | None
    found: Inferred
    errors: np.ndarray | None  # None without the truth


@dataclass(frozen=True, eq=False)
class Target:
    """One run and the channels through which it is read. `truth` has the records, for the scorer and never for an
    attack."""

    label: str
    result: Result
    about: About
    channels: tuple[str | None, ...]
    truth: Problem | None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, label: str, result: Result, truth: Problem | None, notes: tuple[str, ...] = ()) -> Target:
        """A run with the public facts about its records, read through both of recal's channels if noise makes them
        differ."""
        shape, planes = IMAGES.get(result.config["problem"]["data"], (None, False))
        two = result.algorithm == "recal" and result.mechanism == "published"
        about = About.of(result, shape=shape, planes=planes)
        return cls(label, result, about, ("u", "x") if two else (None,), truth, notes)

    @cached_property
    def view(self) -> View:
        """All that an attack sees."""
        return View.of(self.result, intercepts=self.about.outputs if self.about.intercept else 0)

    @cached_property
    def readings(self) -> tuple[Reading, ...]:
        """Every channel read, once for all methods."""
        inferred = [(channel, infer(self.view, channel)) for channel in self.channels]
        truth, result = self.truth, self.result
        return tuple(
            Reading(channel, found, None if truth is None else gradient_errors(found, truth, result))
            for channel, found in inferred
        )


def fresh_runs(
    problem: Problem,
    *,
    mechanisms: Sequence[str] = MECHANISMS,
    budgets: Sequence[Budget] = BUDGETS,
    variant: str | None = None,
    activations: int = ACTIVATIONS,
    seed: int = 0,
    report: Report | None = None,
) -> list[Target]:
    """The runs that the paper's claim concerns, on a ring: RECAL without noise ("none"), the published DP-RECAL at the
    smallest budget ("published"), the sound DP-RECAL at each ("gradient")."""
    for name in mechanisms:
        choose("mechanism", name, MECHANISMS)
    if variant is not None and "published" not in mechanisms:
        raise InputError(f"variant={variant!r} belongs to mechanism published; add it, or leave it out.")
    asked: list[tuple[str, dict[str, Any]]] = []
    if "none" in mechanisms:
        asked.append(("RECAL", {}))
    if "published" in mechanisms:
        least = min(budgets, key=lambda budget: budget.epsilon)
        options = {"mechanism": "published", "budget": least, "variant": variant}
        asked.append((f"published, epsilon {least.epsilon:g}", options))
    if "gradient" in mechanisms:
        asked += [(f"sound, epsilon {b.epsilon:g}", {"mechanism": "gradient", "budget": b}) for b in budgets]
    targets = []
    for k, (label, options) in enumerate(asked):
        if report is not None:
            report(f"run: {label}", k, len(asked))
        result = solve(
            problem,
            ring(problem.agents),
            walk="cyclic",
            activations=activations,
            seed=seed,
            trace=False,
            reference=False,
            progress=False,
            **options,
        )
        targets.append(Target.of(label, result, problem))
    return targets


def saved_run(
    folder: str | os.PathLike[str],
    data: Records | str | os.PathLike[str] | None = None,
    *,
    asks: str = "data=",
) -> Target:
    """The run in a result folder. Without its data it can still be attacked; then a note says why it is not scored.

    asks   the name of the `data` argument in messages
    """
    result = load_result(folder)
    spec = result.config["problem"]
    truth, notes = None, ()
    try:
        truth = build_again(spec, find_records(spec, data, cure=f"pass {asks}"))
    except RelayError as error:
        if data is not None:  # requested, so a missing one is an error
            raise
        notes = (f"Not scored: {error}",)
    # The checksum is in keep/: for a publish/ alone the given records cannot be checked.
    if truth is not None and "data_sha256" in spec and truth.data.digest() != spec["data_sha256"]:
        raise InputError(f"the data is not what this result was made from (its checksum differs). Pass {asks}.")
    label = f"{result.algorithm}, {result.mechanism or 'no'} mechanism"
    if result.budget is not None:
        label += f", epsilon {result.budget.epsilon:g}"
    return Target.of(label, result, truth, notes)


def few(data: Records, count: int) -> Records:
    """The first `count` records (or all there are), from the classes in turn if there are classes."""
    labels, codes = np.unique(data.y, return_inverse=True)
    turn = np.empty(len(data), np.int64)  # the number of earlier records of the same class
    for code in range(len(labels)):
        mine = np.flatnonzero(codes == code)
        turn[mine] = np.arange(len(mine))
    rows = np.lexsort((codes, turn))[:count]
    return Records(data.X[rows], data.y[rows], ranges=data.ranges, columns=data.columns, name=data.name)


# ---------------------------------------------------------------- attack, then score


@dataclass(frozen=True, eq=False)
class CampaignRow:
    """One run through one channel by one method: the result, and its error if the true records are known."""

    label: str
    target: Target
    exposure: Exposure
    gradients: int  # activations that messages reveal
    recovered: int | None = None  # gradients with a relative error below RECOVERED
    median_error: float = math.nan
    mse: list[float] = field(default_factory=list)  # one per agent
    psnr: list[float] = field(default_factory=list)
    ssim: list[float] = field(default_factory=list)
    curve: list[float] = field(default_factory=list)  # median MSE after each of a search's snapshots

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.target.notes, *self.exposure.notes)

    @property
    def images(self) -> np.ndarray:
        """The reconstructed images, (n, height, width, channels) in [0, 1]."""
        return self.target.about.images(self.exposure.records) / self.target.about.high

    def summary(self) -> dict[str, Any]:
        """The row in one JSON object: medians over agents."""
        result, exposure = self.target.result, self.exposure
        middle = {name: plain(_median(getattr(self, name))) for name in ("mse", "psnr", "ssim")}
        return {
            "run": self.label,
            "algorithm": result.algorithm,
            "mechanism": result.mechanism,
            "epsilon": None if result.budget is None else result.budget.epsilon,
            "delta": result.delta,
            "channel": exposure.channel,
            "method": exposure.method,
            "agents": len(exposure),
            "gradients": self.gradients,
            "recovered": self.recovered,
            "share": None if self.recovered is None else self.recovered / self.gradients,
            "median_error": plain(self.median_error),
            **middle,
            "ssim_best": plain(max(self.ssim, default=math.nan)),
            "iterations": exposure.at.tolist() if self.curve else None,
            "mse_curve": self.curve or None,
            "notes": list(self.notes),
        }


def _median(values: list[float]) -> float:
    return float(np.median(values)) if values else math.nan


@dataclass(frozen=True, eq=False)
class Campaign:
    """All rows, run by run. All runs are of one problem, so data and records are described by the first."""

    rows: tuple[CampaignRow, ...]

    @property
    def title(self) -> str:
        result = self.rows[0].target.result
        problem = result.config["problem"]
        return f"{problem['data']}, {problem['loss']}, {result.agents} agents"

    def summary(self) -> dict[str, Any]:
        """The campaign in one JSON object."""
        first = self.rows[0].target
        problem = first.result.config["problem"]
        return {
            "data": problem["data"],
            "agents": first.result.agents,
            "loss": problem["loss"],
            "shape": list(first.about.shape),
            "rows": [row.summary() for row in self.rows],
        }

    @property
    def original(self) -> np.ndarray | None:
        """The true images, in [0, 1]; None if they are unknown, or an agent has several records."""
        about, truth, agents = self.rows[0].target.about, self.rows[0].target.truth, self.rows[0].exposure.agent
        if truth is None or not _alone(truth, agents):
            return None
        return about.images(true_records(truth, agents)) / about.high

    def images(self) -> list[tuple[str, np.ndarray]]:
        """Label and images of each row, the original first if there is one, as `draw_attack` takes them."""
        many = len({row.exposure.method for row in self.rows}) > 1
        original = self.original
        shown = [] if original is None else [("original", original)]
        for row in self.rows:
            label = row.label.replace(", through", "\nthrough") + (f"\n{row.exposure.method}" if many else "")
            shown.append((label, row.images))
        return shown

    def curves(self) -> dict[str, tuple[list[int], list[float]]]:
        """Label -> (iterations, MSE) of each search that could be scored: as `draw_search` takes them."""
        return {
            f"{row.label}, {row.exposure.method}": (row.exposure.at.tolist(), row.curve)
            for row in self.rows
            if row.curve
        }

    def save(self, folder: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Write the folder that `load_attack` reads, atomically. Images are records, and a file says so."""
        shown = self.images() if self.rows[0].target.about.is_image else []
        contains = CONTAINS if shown else NO_RECORDS
        head = {"attack": "relaydp", "version": VERSION, "contains": contains}
        content = {**head, "title": self.title, **self.summary(), "versions": versions()}
        with new_folder(Path(folder), FILE, overwrite) as work:
            (work / FILE).write_text(json.dumps(content, allow_nan=False) + "\n")
            if shown:
                arrays: dict[str, Any] = {f"images_{k}": images for k, (_, images) in enumerate(shown)}
                arrays["labels"] = np.array([label for label, _ in shown])
                np.savez(work / PICTURES, allow_pickle=False, **arrays)
                (work / WARNING).write_text(CONTAINS + "\n")
        return Path(folder)


@dataclass(frozen=True, eq=False)
class SavedAttack:
    """A saved campaign: the values of `Campaign.summary` and `Campaign.images`."""

    title: str
    contains: str  # one sentence: whether it contains records
    summary: dict[str, Any]
    images: list[tuple[str, np.ndarray]]
    versions: dict[str, str]


def load_attack(folder: str | os.PathLike[str]) -> SavedAttack:
    """Read back what `relaydp attack --out` or `Campaign.save` wrote."""
    path = Path(folder)
    try:
        saved = json.loads((path / FILE).read_text())
        if saved["attack"] != "relaydp" or saved["version"] != VERSION:
            raise ValueError(f"version {saved['version']!r} of {saved['attack']!r}, not {VERSION} of 'relaydp'")
        images: list[tuple[str, np.ndarray]] = []
        if (path / PICTURES).exists():
            with np.load(path / PICTURES) as arrays:
                images = [(str(label), arrays[f"images_{k}"]) for k, label in enumerate(arrays["labels"])]
        head = ("attack", "version", "contains", "title", "versions")
        summary = {name: value for name, value in saved.items() if name not in head}
        summary["rows"] = [dict(row) for row in summary["rows"]]
        return SavedAttack(saved["title"], saved["contains"], summary, images, dict(saved["versions"]))
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} is not an attack that can be read ({error}); it must be a folder written by `relaydp attack "
            "--out`."
        ) from error


def campaign(
    targets: Sequence[Target],
    methods: Sequence[str] = ("closed-form",),
    *,
    seed: int = 0,
    iterations: int | None = None,
    restarts: int | None = None,
    report: Report | None = None,
) -> Campaign:
    """Attack every run through each of its channels by every method, and score the results.

        iterations, restarts   of a search; default: its own

    >>> import relaydp as rd
    >>> problem = rd.logistic(few(rd.load_data("fashion-small"), 2), agents=2, l2=1e-2)
    >>> found = campaign(fresh_runs(problem, mechanisms=["published", "gradient"], budgets=[rd.Budget(1.0, 1e-5)]))
    >>> [(row.label, bool(min(row.ssim) > 0.95)) for row in found.rows]  # doctest: +NORMALIZE_WHITESPACE
    [('published, epsilon 1, through u', False), ('published, epsilon 1, through x', True),
     ('sound, epsilon 1', False)]
    """
    for method in methods:
        choose("method", method, METHODS)
    if not targets or not methods:
        raise InputError(
            f"there are {len(targets)} runs and {len(methods)} methods; there must be at least one of each."
        )
    return Campaign(tuple(_attacks(targets, methods, seed, iterations, restarts, report)))


def _attacks(
    targets: Sequence[Target],
    methods: Sequence[str],
    seed: int,
    iterations: int | None,
    restarts: int | None,
    report: Report | None,
) -> Iterator[CampaignRow]:
    for target in targets:
        for reading in target.readings:
            channel = reading.channel
            label = target.label if channel is None else f"{target.label}, through {channel}"
            for method in methods:

                def tell(done: int, total: int, name: str = f"{method}: {label}") -> None:
                    if report is not None:
                        report(name, done, total)

                got = expose(
                    target.view,
                    target.about,
                    channel=channel,
                    method=method,
                    key=jax.random.key(seed),
                    steps=iterations,
                    restarts=restarts,
                    progress=tell,
                )
                yield _scored(CampaignRow(label, target, got, len(reading.found)), reading)


def _scored(row: CampaignRow, reading: Reading) -> CampaignRow:
    """The row with its scores. The records are used only here, after the attack has finished."""
    problem, got, about = row.target.truth, row.exposure, row.target.about
    if problem is None or reading.errors is None:
        return row
    errors = reading.errors[reading.found.read]
    marks: dict[str, Any] = {"recovered": int((errors < RECOVERED).sum()), "median_error": float(np.median(errors))}
    if _alone(problem, got.agent):
        truth = true_records(problem, got.agent)
        found_images, images = about.images(got.records), about.images(truth)
        marks["mse"] = [score.mse(a, b) for a, b in zip(got.records, truth, strict=True)]
        span = (about.low, about.high)
        marks["psnr"] = [score.psnr(a, b, *span) for a, b in zip(got.records, truth, strict=True)]
        if about.is_image:
            marks["ssim"] = [score.ssim(a, b, *span) for a, b in zip(found_images, images, strict=True)]
        if len(got.at) > 1:
            marks["curve"] = np.median(np.mean((got.path - truth[:, None]) ** 2, axis=2), axis=0).tolist()
    return replace(row, **marks)


def _alone(problem: Problem, agents: np.ndarray) -> bool:
    """Whether these agents have one record each: a mean of records is not a record and cannot be compared."""
    return bool((problem.split.sizes[agents] == 1).all())


def true_records(problem: Problem, agents: np.ndarray) -> np.ndarray:
    """The one record of each of these agents, as the model sees it."""
    agent_records = jax.jit(type(problem.agent_records).dense)(problem.agent_records)
    return np.asarray(agent_records.X)[np.asarray(agent_records.start)[agents]]


def gradient_errors(found: Inferred, problem: Problem, result: Result) -> np.ndarray:
    """||found - true|| / ||true|| of each inferred gradient, at the inferred point."""
    agent_records, change = problem.working_records, result.coordinates
    if change is not None:
        agent_records = agent_records.in_coordinates(jax.tree.map(jnp.asarray, change))
    clip = result.config["facts"]["clip"] if result.mechanism == "gradient" else None  # the plan's, not the bound
    bound = None if clip is None else jnp.asarray(clip)

    def true_gradient(i: Any, x: Any) -> Any:
        if change is None:
            return agent_records.gradient(i, x, bound)
        return change.undo(agent_records.gradient(i, change.undo(x), bound))

    each = jax.jit(lambda who, at: jax.lax.map(lambda one: true_gradient(*one), (who, at)))
    true = np.asarray(each(jnp.asarray(found.agent, jnp.int32), jnp.asarray(found.point)))
    sizes = np.linalg.norm(true, axis=1)
    errors = np.linalg.norm(found.gradient - true, axis=1) / np.maximum(sizes, SATURATED)
    return np.where(sizes < SATURATED, np.inf, errors)
