"""`relaydp attack`: what a transcript reveals, compared with the truth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaydp import defaults
from relaydp.cli import choices
from relaydp.cli.choices import among
from relaydp.cli.compare import check_saved
from relaydp.cli.options import (
    DATA,
    L2,
    OUTPUT,
    PRIVACY,
    RUN,
    AsJson,
    Overwrite,
    Quiet,
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
SOLVED = {"closed-form", "pooled"}  # methods that do not search
OF_ANY_RUN = ("data", "method", "iterations", "restarts", "seed")  # settings that a saved run takes, too


def attack(
    target: Annotated[
        Path | None,
        typer.Argument(
            metavar="FOLDER|CONFIG.toml",
            help="A folder written by `relaydp run --out`, or settings (examples/attack.toml lists all; options "
            "override them). Without it, fresh runs.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        flag(DATA, f"Whose records; default {defaults.DATA}. With a folder: the data, if it has moved.", "NAME|PATH"),
    ] = None,
    records: Annotated[int | None, flag(DATA, f"How many agents with one record each; default {RECORDS}.", "N")] = None,
    l2: L2 = None,
    mechanism: Annotated[
        str | None, flag(PRIVACY, "Which runs: none, published, gradient; commas between; default all.", "NAMES")
    ] = None,
    epsilon: Annotated[
        list[float] | None, flag(PRIVACY, "Budgets of the sound runs, repeatable; default 12 and 1.", "NUMBER")
    ] = None,
    method: Annotated[
        str | None,
        flag(
            ATTACK,
            "closed-form, pooled, dlg, inverting, gradinversion; commas between; default closed-form.",
            "NAMES",
            complete=among(choices.METHODS, commas=True),
        ),
    ] = None,
    seed: Annotated[int | None, flag(RUN, "Of walk, noise and searches; default 0.")] = None,
    figure: Annotated[
        Path | None,
        flag(
            OUTPUT,
            "Draw the images, row by row, into this file (.png, .svg, .pdf); for records that are not images, the "
            "error of a search.",
            "FILE",
        ),
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
    relaydp attack results/first
    relaydp attack examples/attack.toml --figure search.png
    relaydp attack --out attacked

    Fresh runs: RECAL without noise; the published DP-RECAL at the smallest epsilon, read through u and through x; the
    sound DP-RECAL at each epsilon. The attacks see messages and public facts; records only score them.
    """
    check_saved(out, overwrite, "attack.json")
    if figure is not None:
        from relaydp.report.figures import check_figure

        check_figure(figure)
    given = {
        "data": data,
        "records": records,
        "l2": l2,
        "mechanism": None if mechanism is None else _listed("mechanism", mechanism),
        "epsilon": epsilon or None,
        "method": None if method is None else _listed("method", method),
        "seed": seed,
    }
    folder, asked = _asked(target, {name: value for name, value in given.items() if value is not None})
    methods = _names("method", asked.get("method", ["closed-form"]), _methods())
    drawn: int = asked.get("seed", 0)
    searching = {name: asked[name] for name in ("iterations", "restarts") if name in asked}
    for name, value in searching.items():
        if not set(methods) - SOLVED:
            raise InputError(f"{name} = {value} is for a search, and {', '.join(methods)} does not search; add dlg.")

    from relaydp.auditing import campaign, saved_run
    from relaydp.report import draw_attack, draw_search

    with step_bar(quiet or json_) as report:
        if folder is None:
            targets = _fresh(asked.get("data"), drawn, asked, report)
        else:
            targets = [saved_run(folder, asked.get("data"), asks="--data")]
        images = targets[0].about.is_image
        if figure is not None and not images and not set(methods) - SOLVED:
            raise InputError(
                f"--figure {figure} draws images, and these records are not; with --method dlg it draws how the error "
                "of the search falls."
            )
        found = campaign(targets, methods, seed=drawn, report=report, **searching)
    if figure is not None and images:
        draw_attack(figure, found.images())
    elif figure is not None:
        if not (curves := found.curves()):
            raise InputError(f"--figure {figure} needs the true records to compare with; pass --data.")
        draw_search(figure, curves)
    if out is not None:
        found.save(out, overwrite=overwrite)
    if json_:
        print_json(found.summary())
    elif not quiet:
        print_rows(found, figure, out)


# ---------------------------------------------------------------- what was asked


def _asked(target: Path | None, given: dict[str, Any]) -> tuple[Path | None, dict[str, Any]]:
    """The folder of a saved run, if any, and what was asked for: the file's settings with options put over them."""
    if target is None or target.suffix != ".toml":
        folder, asked = target, given
    else:
        from relaydp.settings.config import read_attack

        known = read_attack(target)
        folder = None if known.run is None else Path(known.run)
        asked = {name: value for name, value in known if value is not None and name != "run"} | given
    if folder is not None and (other := [name for name in asked if name not in OF_ANY_RUN]):
        name = "--" + other[0] if other[0] in given else other[0]
        raise InputError(f"{name} does not apply to the saved run in {folder}. Leave it out, or the folder.")
    return folder, asked


def _listed(kind: str, text: str) -> list[str]:
    if names := [name.strip() for name in text.split(",") if name.strip()]:
        return names
    from relaydp.auditing.campaigns import MECHANISMS

    allowed = _methods() if kind == "method" else MECHANISMS
    raise InputError(f"--{kind} {text!r} names nothing; needed one or more of: {', '.join(allowed)}.")


def _names(kind: str, names: list[str], allowed: Any) -> list[str]:
    return [choose(kind, name, allowed) for name in dict.fromkeys(names)]


def _methods() -> tuple[str, ...]:
    from relaydp.attack.exposure import METHODS

    return METHODS


def _fresh(data: str | None, seed: int, given: dict[str, Any], report: Any) -> list[Target]:
    from relaydp.auditing import fresh_runs
    from relaydp.auditing.campaigns import MECHANISMS
    from relaydp.privacy import Budget

    mechanisms = _names("mechanism", given.get("mechanism", list(MECHANISMS)), MECHANISMS)
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


def print_rows(found: Campaign, figure: Path | None, out: Path | None = None) -> None:
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
    if figure is not None:
        console.print(f"Figure: {figure}")
    if out is not None:
        console.print(f"Saved in: {out}")
        if found.rows[0].target.about.is_image:
            console.print(Text(CONTAINS))


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
