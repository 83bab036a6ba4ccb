"""`relaydp sweep`: a study of many runs, over this machine's cores or a Ray cluster, into one Parquet table."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaydp.cli.options import OUTPUT, RUN, AsJson, On, Overwrite, Quiet, flag, parse_place, print_json
from relaydp.cli.progress import step_bar
from relaydp.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from relaydp.cli.progress import Report
    from relaydp.cluster.scheduler import Pace
    from relaydp.cluster.study import Study

FAILED, INTERRUPTED = 1, 130  # exit codes
MOST_LINES = 40  # cases that the table on the screen shows; the file has all
SIMULATION = (
    "simulation: no promise. Noise comes from seeds; planned is the epsilon that the proof gives the same plan."
)
COORDINATES = ("data", "agents_asked", "graph", "algorithm", "walk", "activations_asked", "epsilon_asked")


def sweep(
    study: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="What to run. See examples/study.toml.")],
    on: On = "local",
    jobs: Annotated[
        int | None, flag(RUN, "How many workers; default: as many as cores, or the cluster, allow.", "N")
    ] = None,
    out: Annotated[
        Path | None, flag(OUTPUT, "Keep the results in this folder; default: one with the name of the study.", "FOLDER")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Run what is missing or failed in --out.", rich_help_panel=OUTPUT)
    ] = False,
    overwrite: Overwrite = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be run, and stop.", rich_help_panel=RUN)
    ] = False,
    json_: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run a study: data sets x graphs x walks x algorithms x budgets x seeds.

    \b
    relaydp sweep examples/study.toml --out results
    relaydp sweep examples/study.toml --out results --resume
    relaydp sweep examples/study.toml --on ray:head:6379

    Runs with a budget are simulations without a promise: their noise comes from seeds, and epsilon is what a private
    run of the plan costs.

    Results stream into FOLDER/parts and end in FOLDER/results.parquet, one row per run. The table is the same here
    and on a cluster.

    \b
    Exit codes:
      0    all runs were made
      1    some failed: their rows say why, and --resume tries them again
      2    an error to correct: nothing ran
      130  interrupted: what was done is kept, and --resume goes on
    """
    place, address = parse_place(on)
    if resume and overwrite:
        raise InputError(
            "--resume and --overwrite exclude each other: one continues what is there, one replaces it. Leave one out."
        )
    if jobs is not None and jobs < 1:
        raise InputError(f"--jobs {jobs} is too few; needed 1 or more.")
    with step_bar(quiet or json_, "reading the study") as report:
        from relaydp.cluster.study import read_study

        asked = read_study(study)
        folder = out or Path(re.sub(r"[^\w.-]+", "-", asked.name).strip(".-") or "study")
        if dry_run:
            _show_plan(asked, folder, json_, quiet)
            return
        began = time.perf_counter()
        places = {"folder": folder, "jobs": jobs, "address": address, "resume": resume, "overwrite": overwrite}
        table = _run(asked, place, report, _again(study, folder, on), places)
    summary = _summary(asked, table, folder, time.perf_counter() - began)
    if json_:
        print_json(summary)
    elif not quiet:
        _print_table(table)
        if summary["guarantee"] is not None:
            typer.echo(summary["guarantee"])
        typer.echo(f"{summary['runs']:,} runs in {summary['seconds']:.1f} s: {folder / 'results.parquet'}")
    if summary["failed"]:
        _say_failed(summary, _again(study, folder, on))
        raise typer.Exit(FAILED)


def _run(study: Study, on: str, report: Report, again: str, places: dict[str, Any]) -> pa.Table:
    from relaydp.cluster.scheduler import Interrupted, run_study

    def tell(pace: Pace) -> None:
        bad = f", {pace.failed} failed" if pace.failed else ""
        report(f"{pace.runs:,} of {pace.runs_in_all:,} runs{bad}; tasks", pace.tasks, pace.tasks_in_all)

    try:
        return run_study(study, on, progress=tell, **places)
    except Interrupted as stop:
        pace = stop.pace
        typer.echo(
            f"interrupted: {pace.tasks} of {pace.tasks_in_all} tasks ({pace.runs:,} of {pace.runs_in_all:,} runs) are "
            f"kept in {places['folder']}. Go on with: {again}",
            err=True,
        )
        raise typer.Exit(INTERRUPTED) from None


def _again(study: Path, folder: Path, on: str) -> str:
    place = "" if on == "local" else f" --on {on}"
    return f"relaydp sweep {study}{place} --out {folder} --resume"


def _say_failed(summary: dict[str, Any], again: str) -> None:
    typer.echo(f"{summary['failed']:,} of {summary['runs']:,} runs failed:", err=True)
    for failure in summary["failures"][:10]:
        typer.echo(f"  {failure['runs']} x {failure['error']}", err=True)
    if len(summary["failures"]) > 10:
        typer.echo(f"  and {len(summary['failures']) - 10} other reasons; the column error has them.", err=True)
    typer.echo(f"Try them again with: {again}", err=True)


def _summary(study: Study, table: pa.Table, folder: Path, seconds: float) -> dict[str, Any]:
    status = Counter(table["status"].to_pylist())
    reasons = Counter(error for error in table["error"].to_pylist() if error is not None)
    return {
        "name": study.name,
        "folder": str(folder),
        "results": str(folder / "results.parquet"),
        "cases": len(study.cases),
        "runs": table.num_rows,
        "finished": status["finished"],
        "diverged": status["diverged"],
        "failed": status["failed"],
        "private": False,
        "guarantee": SIMULATION if any(table["epsilon_asked"].is_valid().to_pylist()) else None,
        "seconds": round(seconds, 3),
        "failures": [{"error": error, "runs": runs} for error, runs in reasons.most_common()],
    }


def _show_plan(study: Study, folder: Path, json_: bool, quiet: bool) -> None:
    blocks = study.blocks()
    facts = {
        "name": study.name,
        "folder": str(folder),
        "cases": len(study.cases),
        "seeds": len(study.seeds),
        "runs": study.runs,
        "tasks": len(study.cases) * len(blocks),
        "block": max(map(len, blocks)),
    }
    if json_:
        print_json({**facts, "coordinates": [dict(case.coordinates) for case in study.cases]})
    elif not quiet:
        typer.echo(
            f"{facts['cases']} cases x {facts['seeds']} seeds = {facts['runs']:,} runs in {facts['tasks']:,} tasks of "
            f"up to {facts['block']} seeds; results would go to {folder}."
        )
        for case in study.cases[:MOST_LINES]:
            named = {name: case.coordinates[name] for name in COORDINATES if case.coordinates[name] is not None}
            typer.echo("  " + ", ".join(f"{name.removesuffix('_asked')} {value}" for name, value in named.items()))
        if len(study.cases) > MOST_LINES:
            typer.echo(f"  and {len(study.cases) - MOST_LINES} more; --json lists all.")


def _print_table(table: pa.Table) -> None:
    """Medians, one line a case."""
    from statistics import median

    from rich.console import Console
    from rich.table import Table

    cases: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in table.select([*COORDINATES, "status", "epsilon_planned", "excess", "accuracy", "plf"]).to_pylist():
        cases.setdefault(tuple(row[name] for name in COORDINATES), []).append(row)
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=120)
    shown = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("data", "agents", "graph", "algorithm", "walk", "planned", "runs", "PLF", "excess F", "accuracy"):
        shown.add_column(name, justify="left" if name in ("data", "graph", "algorithm", "walk") else "right")

    def middle(rows: list[dict[str, Any]], name: str, form: str) -> str:
        known = [row[name] for row in rows if row[name] is not None]
        return format(median(known), form) if known else "-"

    for (data, agents, graph, algorithm, walk, _, _), rows in list(cases.items())[:MOST_LINES]:
        good = sum(row["status"] == "finished" for row in rows)
        count = str(good) if good == len(rows) else f"{good} of {len(rows)}"
        source = data if "/" not in data else Path(data).name
        cells = [source, agents, graph, algorithm, walk or "-", middle(rows, "epsilon_planned", ".3f"), count]
        shown.add_row(
            *cells, middle(rows, "plf", ".0f"), middle(rows, "excess", ".2e"), middle(rows, "accuracy", ".4f")
        )
    console.print(shown)
    if len(cases) > MOST_LINES:
        console.print(f"and {len(cases) - MOST_LINES} more cases; medians over seeds.")
