"""`relaydp attack`: what a transcript gives away, beside the truth."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaydp.cli.run import DATA, OUTPUT, PRIVACY, PROBLEM, RUN, AsJson, Quiet, flag, print_json
from relaydp.errors import InputError, RelayError, choose

if TYPE_CHECKING:
    import numpy as np

    from relaydp.attack import Inferred
    from relaydp.attack.expose import About, Exposure
    from relaydp.data import Records
    from relaydp.problem import Problem
    from relaydp.result import Result

ATTACK = "Attack"
RECORDS, ACTIVATIONS, EPSILONS, DELTA, L2 = 8, 5, (12.0, 1.0), 1e-5, 1e-2
RECOVERED = 1e-6  # a gradient with a smaller relative error counts as recovered
SATURATED = 1e-200  # far out a slope vanishes; relative to a smaller gradient than this no error has a meaning
MECHANISMS = ("none", "published", "gradient")
# The layout of the catalogue's images: (height, width, channels), and whether channels lie one after the other.
IMAGES = {
    "fashion-small": ((14, 14, 1), False),
    "digits": ((8, 8, 1), False),
    "mnist": ((28, 28, 1), False),
    "fashion": ((28, 28, 1), False),
    "cifar10": ((32, 32, 3), True),
}


def attack(
    folder: Annotated[
        Path | None, typer.Argument(help="A folder written by `relaydp run --out`; without it, fresh runs.")
    ] = None,
    data: Annotated[
        str | None,
        flag(DATA, "Whose records; default fashion-small. With a folder: the data, if it has moved.", "NAME|PATH"),
    ] = None,
    records: Annotated[int | None, flag(DATA, f"How many agents with one record each; default {RECORDS}.", "N")] = None,
    intercept: Annotated[
        bool | None, flag(PROBLEM, "Add an unpenalised constant.", None, "--intercept/--no-intercept")
    ] = None,
    l1: Annotated[float | None, flag(PROBLEM, "Weight of the 1-norm; default 0.")] = None,
    l2: Annotated[float | None, flag(PROBLEM, f"Weight of the ridge; default {L2}.")] = None,
    record_norm: Annotated[float | None, flag(PROBLEM, "Public bound on a record's norm; default none.")] = None,
    mechanism: Annotated[
        str | None, flag(PRIVACY, "Which runs: none, published, gradient; commas between; default all.", "NAMES")
    ] = None,
    epsilon: Annotated[
        list[float] | None, flag(PRIVACY, "Budgets of the sound runs, repeatable; default 12 and 1.", "NUMBER")
    ] = None,
    delta: Annotated[float | None, flag(PRIVACY, "The chance that the promise fails; default 1e-5.")] = None,
    variant: Annotated[str | None, flag(PRIVACY, "Of published: memoryless, carried or replace.", "NAME")] = None,
    activations: Annotated[int | None, flag(RUN, f"How often an agent acts; default {ACTIVATIONS}.")] = None,
    method: Annotated[
        str,
        typer.Option(
            help="closed-form, pooled, dlg, inverting, gradinversion; commas between.",
            metavar="NAMES",
            rich_help_panel=ATTACK,
        ),
    ] = "closed-form",
    iterations: Annotated[int | None, flag(ATTACK, "Of a search; default: its own.")] = None,
    restarts: Annotated[int | None, flag(ATTACK, "Of a search; default: its own.")] = None,
    seed: Annotated[int, typer.Option(help="Of walk, noise and searches.", rich_help_panel=RUN)] = 0,
    figure: Annotated[
        Path | None, flag(OUTPUT, "Draw the images, row by row, into this file (.png, .svg, .pdf).", "FILE")
    ] = None,
    curve: Annotated[
        Path | None, flag(OUTPUT, "Draw a search's error over its iterations into this file.", "FILE")
    ] = None,
    json_: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Listen to a run, work out the agents' records from what was sent, and compare with the truth.

    \b
    relaydp attack --figure grid.png
    relaydp attack --data digits --records 10 --method closed-form,dlg
    relaydp attack --data ijcnn1 --intercept --method dlg --curve ijcnn1.png
    relaydp attack results/first

    Fresh runs: RECAL without noise; the published DP-RECAL at the smallest epsilon, read through u and through x; the
    sound DP-RECAL at each epsilon. The attacks see messages and public facts; records only score them.
    """
    fresh = {
        "records": records, "intercept": intercept, "l1": l1, "l2": l2, "record_norm": record_norm,
        "mechanism": mechanism, "epsilon": epsilon or None, "delta": delta, "variant": variant,
        "activations": activations,
    }  # fmt: skip
    given = {name: value for name, value in fresh.items() if value is not None}
    if folder is not None and given:
        first = "--" + next(iter(given)).replace("_", "-")
        raise InputError(f"{first} arrived with the folder {folder}, whose run is over; leave it out, or the folder.")
    methods = _names("method", method, _methods())
    for file in (figure, curve):
        _check_figure(file)
    searching = {"--curve": curve, "--iterations": iterations, "--restarts": restarts}
    for name, value in searching.items():
        if value is not None and not set(methods) - {"closed-form", "pooled"}:
            raise InputError(f"{name} {value} arrived with --method {method}, which does not search; add dlg.")

    from relaydp.cli.compare import step_bar

    with step_bar(quiet or json_) as report:
        runs = _saved(folder, data) if folder is not None else _fresh(data, seed, given, report)
        about, shown = runs[0].about, runs[0].truth
        if figure is not None and not about.is_image:
            raise InputError(f"--figure {figure} arrived for records that are no images; use --curve and --method dlg.")
        rows = list(_attacks(runs, methods, seed, iterations, restarts, report))
    if figure is not None:
        _draw_images(figure, about, rows, shown)
    if curve is not None:
        _draw_curve(curve, rows)
    problem = runs[0].result.config["problem"]
    if json_:
        facts = {"data": problem["data"], "agents": runs[0].result.agents, "loss": problem["loss"]}
        print_json({**facts, "shape": list(about.shape), "rows": [row.summary() for row in rows]})
    elif not quiet:
        print_rows(rows, f"{problem['data']}, {problem['loss']}, {runs[0].result.agents} agents", figure, curve)


# ---------------------------------------------------------------- what is attacked


@dataclass(frozen=True, eq=False)
class Target:
    """One run and the channels it is read through. `truth` holds the records: the scorer's, never an attack's."""

    label: str
    result: Result
    about: About
    channels: tuple[str | None, ...]
    truth: Problem | None
    notes: tuple[str, ...] = ()


def _names(kind: str, text: str, allowed: Any) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError(f"--{kind} {text!r} arrived; needed one or more of: {', '.join(allowed)}.")
    return [choose(kind, name, allowed) for name in dict.fromkeys(names)]


def _methods() -> tuple[str, ...]:
    from relaydp.attack.expose import METHODS

    return METHODS


def _check_figure(file: Path | None) -> None:
    """A name that cannot be drawn is told before anything runs."""
    from relaydp.report.figures import KINDS

    if file is not None and file.suffix.lower() not in KINDS:
        raise InputError(f"a figure {file.name!r} was asked for; needed a name that ends in {', '.join(KINDS)}.")


def _channels(result: Result) -> tuple[str | None, ...]:
    """Both of recal's channels where noise makes them differ."""
    return ("u", "x") if result.algorithm == "recal" and result.mechanism == "published" else (None,)


def _about(result: Result, name: str) -> About:
    from relaydp.attack.expose import About

    shape, planes = IMAGES.get(name, (None, False))
    return About.of(result, shape=shape, planes=planes)


def _saved(folder: Path, data: str | None) -> list[Target]:
    from relaydp.data import load_data
    from relaydp.problem import build_again
    from relaydp.result import load_result

    result = load_result(folder)
    spec = result.config["problem"]
    found = spec["source"] or {}
    truth, notes = None, ()
    try:
        if data is None and not found:
            raise InputError(f"the records ({spec['data']}) were made in memory and are in no file; pass --data.")
        columns = {name: found[name] for name in ("label", "groups", "drop") if name in found}
        truth = build_again(spec, load_data(data or found["source"], **columns))
    except RelayError as error:
        if data is not None:  # asked for, so its absence is an error
            raise
        notes = (f"Not scored: {error}",)
    if truth is not None and truth.data.digest() != spec["data_sha256"]:
        raise InputError("the data is not what this result was made from (its checksum differs). Pass --data.")
    label = f"{result.algorithm}, {result.mechanism or 'no'} mechanism"
    if result.budget is not None:
        label += f", epsilon {result.budget.epsilon:g}"
    return [Target(label, result, _about(result, spec["data"]), _channels(result), truth, notes)]


def _fresh(data: str | None, seed: int, given: dict[str, Any], report: Any) -> list[Target]:
    from relaydp.cli.config import Config, loss_for
    from relaydp.cli.values import loss_functions
    from relaydp.data import load_data
    from relaydp.engine import solve
    from relaydp.graph import ring
    from relaydp.privacy import Budget

    wanted = _names("mechanism", given.get("mechanism", ",".join(MECHANISMS)), MECHANISMS)
    if "variant" in given and "published" not in wanted:
        raise InputError(f"variant={given['variant']!r} belongs to mechanism published; add it, or leave it out.")
    epsilons = list(dict.fromkeys(given.get("epsilon", EPSILONS)))
    budgets = [Budget(epsilon, given.get("delta", DELTA)) for epsilon in epsilons]
    chosen = few(load_data(data or "fashion-small"), given.get("records", RECORDS))
    options = {name: given[name] for name in ("intercept", "l1", "record_norm") if name in given}
    loss = loss_for(Config().problem, chosen)
    if loss == "least-squares":
        options["clip"] = 1.0  # nothing else bounds its gradients
    problem = loss_functions()[loss](chosen, agents=len(chosen), l2=given.get("l2", L2), **options)
    runs: list[tuple[str, dict[str, Any]]] = []
    if "none" in wanted:
        runs.append(("RECAL", {}))
    if "published" in wanted:
        least = min(budgets, key=lambda budget: budget.epsilon)
        asked = {"mechanism": "published", "budget": least, "variant": given.get("variant")}
        runs.append((f"published, epsilon {least.epsilon:g}", asked))
    if "gradient" in wanted:
        runs += [(f"sound, epsilon {b.epsilon:g}", {"mechanism": "gradient", "budget": b}) for b in budgets]
    targets = []
    for k, (label, asked) in enumerate(runs):
        report(f"run: {label}", k, len(runs))
        result = solve(
            problem,
            ring(len(chosen)),
            walk="cyclic",
            activations=given.get("activations", ACTIVATIONS),
            seed=seed,
            trace=False,
            reference=False,
            progress=False,
            **asked,
        )
        targets.append(Target(label, result, _about(result, chosen.name), _channels(result), problem))
    return targets


def few(data: Records, count: int) -> Records:
    """The first `count` records, taking the classes in turn where there are classes."""
    import numpy as np

    from relaydp.data import Records

    if not 2 <= count <= len(data):
        raise InputError(f"--records {count} arrived; needed 2 to {len(data)}, as many as {data.name} has.")
    labels, codes = np.unique(data.y, return_inverse=True)
    turn = np.empty(len(data), np.int64)  # how many of its class come before a record
    for code in range(len(labels)):
        mine = np.flatnonzero(codes == code)
        turn[mine] = np.arange(len(mine))
    rows = np.lexsort((codes, turn))[:count]
    return Records(data.X[rows], data.y[rows], ranges=data.ranges, columns=data.columns, name=data.name)


# ---------------------------------------------------------------- attack, then score


@dataclass(frozen=True, eq=False)
class Row:
    """One run through one channel by one method: what was got, and how near it came where the truth is at hand."""

    label: str
    target: Target
    exposure: Exposure
    gradients: int  # activations that left a trace
    recovered: int | None = None  # gradients with a relative error below RECOVERED
    median_error: float = math.nan
    mse: list[float] = field(default_factory=list)  # one an agent
    psnr: list[float] = field(default_factory=list)
    ssim: list[float] = field(default_factory=list)
    curve: list[float] = field(default_factory=list)  # median MSE after each of a search's snapshots

    def summary(self) -> dict[str, Any]:
        from relaydp.certificate import plain

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

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.target.notes, *self.exposure.notes)


def _median(values: list[float]) -> float:
    import numpy as np

    return float(np.median(values)) if values else math.nan


def _attacks(
    targets: list[Target], methods: list[str], seed: int, steps: int | None, restarts: int | None, report: Any
) -> Iterator[Row]:
    import jax

    from relaydp.attack import View, infer
    from relaydp.attack.expose import expose

    for target in targets:
        about = target.about
        view = View.of(target.result, intercepts=about.outputs if about.intercept else 0)
        for channel in target.channels:
            label = target.label if channel is None else f"{target.label}, through {channel}"
            found = infer(view, channel)
            for method in methods:

                def tell(done: int, total: int, name: str = f"{method}: {label}") -> None:
                    report(name, done, total)

                got = expose(
                    view,
                    about,
                    channel=channel,
                    method=method,
                    key=jax.random.key(seed),
                    steps=steps,
                    restarts=restarts,
                    progress=tell,
                )
                row = Row(label, target, got, len(found))
                yield row if target.truth is None else scored(row, found, target.truth)


def scored(row: Row, found: Inferred, problem: Problem) -> Row:
    """The row with its marks. The records come in here, after the attack has answered."""
    from dataclasses import replace

    import numpy as np

    from relaydp.attack import score

    errors = gradient_errors(found, problem, row.target.result)
    marks: dict[str, Any] = {
        "recovered": int((errors[found.read] < RECOVERED).sum()),
        "median_error": float(np.median(errors[found.read])),
    }
    got, about = row.exposure, row.target.about
    if (problem.split.sizes[got.agent] == 1).all():  # a mean of records is no record: nothing to compare with
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


def true_records(problem: Problem, agents: np.ndarray) -> np.ndarray:
    """The one record of each of these agents, as the model sees it."""
    import jax
    import numpy as np

    silos = jax.jit(type(problem.silos).dense)(problem.silos)
    return np.asarray(silos.X)[np.asarray(silos.start)[agents]]


def gradient_errors(found: Inferred, problem: Problem, result: Result) -> np.ndarray:
    """||found - true|| / ||true|| of each inferred gradient, at the point that was inferred with it."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    silos = problem.working_silos
    clip = problem.gradient_bound() if result.mechanism == "gradient" else None
    bound = None if clip is None else jnp.asarray(clip)
    each = jax.jit(lambda who, at: jax.lax.map(lambda one: silos.gradient(one[0], one[1], bound), (who, at)))
    true = np.asarray(each(jnp.asarray(found.agent, jnp.int32), jnp.asarray(found.point)))
    sizes = np.linalg.norm(true, axis=1)
    errors = np.linalg.norm(found.gradient - true, axis=1) / np.maximum(sizes, SATURATED)
    return np.where(sizes < SATURATED, np.inf, errors)


# ---------------------------------------------------------------- shown


def _draw_images(file: Path, about: About, rows: list[Row], truth: Problem | None) -> None:
    from relaydp.report import draw_attack

    images = []
    many = len({row.exposure.method for row in rows}) > 1
    if truth is not None and (truth.split.sizes[rows[0].exposure.agent] == 1).all():
        images.append(("original", about.images(true_records(truth, rows[0].exposure.agent)) / about.high))
    for row in rows:
        label = row.label.replace(", through", "\nthrough") + (f"\n{row.exposure.method}" if many else "")
        images.append((label, about.images(row.exposure.records) / about.high))
    draw_attack(file, images)


def _draw_curve(file: Path, rows: list[Row]) -> None:
    from relaydp.report import draw_search

    curves = {f"{row.label}, {row.exposure.method}": (row.exposure.at.tolist(), row.curve) for row in rows if row.curve}
    if not curves:
        raise InputError(f"--curve {file} needs the true records to compare with; pass --data.")
    draw_search(file, curves)


def print_rows(rows: list[Row], title: str, figure: Path | None, curve: Path | None) -> None:
    """The table, then what the attacks themselves could tell."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=120)  # a file or a pipe has room for every column
    table = Table(title=title, title_justify="left", title_style="bold", box=None, header_style="bold", pad_edge=False)
    words = ("run", "method")
    columns = (*words, "gradients", "rel. error", "MSE", "PSNR dB", "SSIM", "best")
    for name in columns:
        table.add_column(name, justify="left" if name in words else "right", no_wrap=name != "run")
    for row in rows:
        facts = row.summary()
        count = f"{row.gradients}" if row.recovered is None else f"{row.recovered}/{row.gradients}"
        cells = [_cell(facts[name], form) for name, form in (("median_error", ".1e"), ("mse", ".1e"))]
        cells += [_cell(facts[name], form) for name, form in (("psnr", ".1f"), ("ssim", ".3f"), ("ssim_best", ".3f"))]
        table.add_row(row.label, row.exposure.method, count, *cells)
    console.print(table)
    console.print(
        Text(f"gradients: recovered to {RECOVERED:g} of all that were asked for. Others: medians over agents.")
    )
    said: dict[str, list[str]] = {}
    for row in rows:
        for note in row.notes:
            said.setdefault(note, []).append(row.label)
    for note, labels in said.items():
        console.print(Text(f"{'; '.join(dict.fromkeys(labels))}: {note}" if len(rows) > 1 else note))
    for file in (figure, curve):
        if file is not None:
            console.print(f"Figure: {file}")


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
