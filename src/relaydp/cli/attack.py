"""`relaydp attack`: what a transcript reveals, compared with the truth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaydp import defaults
from relaydp.cli.compare import check_saved
from relaydp.cli.options import (
    DATA,
    DELTA_TEXT,
    L1,
    L2,
    OUTPUT,
    PRIVACY,
    RUN,
    AsJson,
    Intercept,
    Overwrite,
    Quiet,
    RecordNorm,
    Variant,
    flag,
    print_json,
)
from relaydp.cli.progress import step_bar
from relaydp.errors import InputError, choose

if TYPE_CHECKING:
    from relaydp.auditing import Campaign, Target
    from relaydp.problem import Problem

ATTACK = "Attack"
# Activations and budgets are those of `fresh_runs` once more: help may not wait for JAX. A test holds them equal.
RECORDS, ACTIVATIONS, EPSILONS = 8, 5, (12.0, 1.0)


def attack(
    folder: Annotated[
        Path | None, typer.Argument(help="A folder written by `relaydp run --out`; without it, fresh runs.")
    ] = None,
    data: Annotated[
        str | None,
        flag(DATA, f"Whose records; default {defaults.DATA}. With a folder: the data, if it has moved.", "NAME|PATH"),
    ] = None,
    records: Annotated[int | None, flag(DATA, f"How many agents with one record each; default {RECORDS}.", "N")] = None,
    intercept: Intercept = None,
    l1: L1 = None,
    l2: L2 = None,
    record_norm: RecordNorm = None,
    mechanism: Annotated[
        str | None, flag(PRIVACY, "Which runs: none, published, gradient; commas between; default all.", "NAMES")
    ] = None,
    epsilon: Annotated[
        list[float] | None, flag(PRIVACY, "Budgets of the sound runs, repeatable; default 12 and 1.", "NUMBER")
    ] = None,
    delta: Annotated[float | None, flag(PRIVACY, DELTA_TEXT)] = None,
    variant: Variant = None,
    activations: Annotated[int | None, flag(RUN, f"How often each agent acts; default {ACTIVATIONS}.")] = None,
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
    out: Annotated[
        Path | None,
        flag(OUTPUT, "Keep scores and images, which are training records, in this new folder.", "FOLDER"),
    ] = None,
    overwrite: Overwrite = False,
    json_: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Listen to a run, work out the agents' records from what was sent, and compare with the truth.

    \b
    relaydp attack --figure grid.png
    relaydp attack --data digits --records 10 --method closed-form,dlg
    relaydp attack --data ijcnn1 --intercept --method dlg --curve ijcnn1.png
    relaydp attack results/first
    relaydp attack --out attacked

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
        raise InputError(f"{first} does not apply to the saved run in {folder}. Leave it out, or the folder.")
    check_saved(out, overwrite, "attack.json")
    methods = _names("method", method, _methods())
    for file in (figure, curve):
        _check_figure(file)
    searching = {"--curve": curve, "--iterations": iterations, "--restarts": restarts}
    for name, value in searching.items():
        if value is not None and not set(methods) - {"closed-form", "pooled"}:
            raise InputError(f"{name} {value} is for a search, and --method {method} does not search; add dlg.")

    from relaydp.auditing import campaign, saved_run
    from relaydp.report import draw_attack, draw_search

    with step_bar(quiet or json_) as report:
        targets = _fresh(data, seed, given, report) if folder is None else [saved_run(folder, data, asks="--data")]
        if figure is not None and not targets[0].about.is_image:
            raise InputError(
                f"--figure {figure} draws images, and these records are not; use --curve and --method dlg."
            )
        found = campaign(targets, methods, seed=seed, iterations=iterations, restarts=restarts, report=report)
    if figure is not None:
        draw_attack(figure, found.images())
    if curve is not None:
        if not (curves := found.curves()):
            raise InputError(f"--curve {curve} needs the true records to compare with; pass --data.")
        draw_search(curve, curves)
    if out is not None:
        found.save(out, overwrite=overwrite)
    if json_:
        print_json(found.summary())
    elif not quiet:
        print_rows(found, figure, curve, out)


# ---------------------------------------------------------------- what was asked


def _names(kind: str, text: str, allowed: Any) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError(f"--{kind} {text!r} names nothing; needed one or more of: {', '.join(allowed)}.")
    return [choose(kind, name, allowed) for name in dict.fromkeys(names)]


def _methods() -> tuple[str, ...]:
    from relaydp.attack.exposure import METHODS

    return METHODS


def _check_figure(file: Path | None) -> None:
    """Refuse a file name that cannot be drawn, before anything runs."""
    from relaydp.report.figures import KINDS

    if file is not None and file.suffix.lower() not in KINDS:
        raise InputError(f"the figure {file.name!r} has no known kind; needed a name that ends in {', '.join(KINDS)}.")


def _fresh(data: str | None, seed: int, given: dict[str, Any], report: Any) -> list[Target]:
    from relaydp.auditing import fresh_runs
    from relaydp.auditing.campaigns import MECHANISMS
    from relaydp.privacy import Budget

    mechanisms = _names("mechanism", given.get("mechanism", ",".join(MECHANISMS)), MECHANISMS)
    epsilons = dict.fromkeys(given.get("epsilon", EPSILONS))
    budgets = [Budget(epsilon, given.get("delta", defaults.DELTA)) for epsilon in epsilons]
    options = {name: given[name] for name in ("variant", "activations") if name in given}
    problem = _problem(data or defaults.DATA, given)
    return fresh_runs(problem, mechanisms=mechanisms, budgets=budgets, seed=seed, report=report, **options)


def _problem(data: str, given: dict[str, Any]) -> Problem:
    """A few records of the data set, one per agent."""
    from relaydp.auditing import few
    from relaydp.data import load_data
    from relaydp.settings.config import Config, loss_for
    from relaydp.settings.values import loss_functions

    everything, count = load_data(data), given.get("records", RECORDS)
    if not 2 <= count <= len(everything):
        raise InputError(f"--records {count}; needed 2 to {len(everything)}, the records that {everything.name} has.")
    chosen = few(everything, count)
    options = {name: given[name] for name in ("intercept", "l1", "record_norm") if name in given}
    loss = loss_for(Config().problem, chosen)
    if loss == "least-squares":
        options["clip"] = 1.0  # nothing else bounds its gradients
    return loss_functions()[loss](chosen, agents=len(chosen), l2=given.get("l2", defaults.L2), **options)


# ---------------------------------------------------------------- shown


def print_rows(found: Campaign, figure: Path | None, curve: Path | None, out: Path | None = None) -> None:
    """The table, then what the attacks themselves could tell."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from relaydp.auditing.campaigns import CONTAINS, RECOVERED

    rows = found.rows
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=120)  # a file or a pipe has room for every column
    look: dict[str, Any] = {"title_justify": "left", "title_style": "bold", "header_style": "bold", "pad_edge": False}
    table = Table(title=found.title, box=None, **look)
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
    if out is not None:
        console.print(f"Saved in: {out}")
        if found.rows[0].target.about.is_image:
            console.print(Text(CONTAINS))


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
