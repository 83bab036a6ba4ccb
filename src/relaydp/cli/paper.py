"""`relaydp paper`: the paper's experiments on the paper's data, beside the numbers it prints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from relaydp.cli import choices
from relaydp.cli.choices import among
from relaydp.cli.options import OUTPUT, AsJson, Quiet, print_json
from relaydp.cli.progress import Report, step_bar
from relaydp.errors import InputError

app = typer.Typer(
    help="Reproduce the paper's tables and figures, beside the numbers it prints.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    epilog="""\b
[bold]Examples[/bold]
  relaydp paper list                         what there is
  relaydp paper run table-linear --quick     one table, small
  relaydp paper run --quick                  everything, small: minutes
  relaydp paper run --out paper              everything, as in the docs: use a GPU
""",
)

Out = Annotated[
    Path,
    typer.Option(
        help="Keep cells, figures and the page in this folder, and continue from what is there.",
        metavar="FOLDER",
        rich_help_panel=OUTPUT,
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer repeats, smaller PLF, no CIFAR-10 unless --data names it.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Compute again what is already there.")]
Seeds = Annotated[int | None, typer.Option(help="Repeats of each cell; default 16, with --quick 3.")]
Jobs = Annotated[
    int | None,
    typer.Option(help="Processes that share the work, at most 4 by default; timings are taken one by one."),
]
Data = Annotated[
    str | None,
    typer.Option(
        help="Data sets with commas between; default all.",
        metavar="NAMES",
        autocompletion=among(choices.PAPER_DATA, commas=True),
    ),
]


@app.command("list")
def list_(json_: AsJson = False) -> None:
    """List the experiments: their names, where the paper has them, how many cells each has.

    \b
    relaydp paper list
    """
    from relaydp.paper import EXPERIMENTS, FULL

    rows = [
        {"name": name, "title": each.title, "printed": each.printed, "cells": len(set(each.cells(FULL)))}
        for name, each in EXPERIMENTS.items()
    ]
    if json_:
        print_json({"experiments": rows})
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("name", "in the paper", "what", "cells"):
        table.add_column(column, justify="right" if column == "cells" else "left")
    for row in rows:
        table.add_row(row["name"], row["printed"], row["title"], str(row["cells"]))
    Console(highlight=False).print(table)


@app.command()
def run(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="As `relaydp paper list` has them; default: all.",
            autocompletion=among(choices.EXPERIMENTS),
        ),
    ] = None,
    out: Out = Path("paper"),
    quick: Quick = False,
    seeds: Seeds = None,
    data: Data = None,
    jobs: Jobs = None,
    fresh: Fresh = False,
    json_: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run experiments, all or those named, and write OUT/paper.md and OUT/paper.html.

    \b
    relaydp paper run --quick
    relaydp paper run --out paper
    relaydp paper run table-linear --quick
    relaydp paper run table-linear methods-linear --data mnist,cifar10 --seeds 4

    Every cell is kept in OUT/cells: an interrupted run goes on where it stopped.
    """
    with step_bar(quiet or json_, "getting ready") as report:
        page, found = _experiments(names or ["all"], out, quick, seeds, data, jobs, fresh, report)
    if json_:
        print_json({"page": str(page), "experiments": found})
    elif not quiet:
        typer.echo(f"{page}\n{page.with_suffix('.html')}")


def _experiments(
    names: list[str],
    out: Path,
    quick: bool,
    seeds: int | None,
    data: str | None,
    jobs: int | None,
    fresh: bool,
    report: Report,
) -> tuple[Path, list[str]]:
    """The page, and the names of what is on it."""
    from relaydp.errors import choose
    from relaydp.paper import FULL, QUICK, find_experiments, run_experiments
    from relaydp.paper.experiment import DATA

    effort = QUICK if quick else FULL
    if seeds is not None:
        if seeds < 1:
            raise InputError(f"--seeds {seeds}; needed 1 or more.")
        effort = effort._replace(seeds=seeds)
    jobs = min(4, os.cpu_count() or 1) if jobs is None else jobs
    if jobs < 1:
        raise InputError(f"--jobs {jobs}; needed 1 or more.")
    if data is not None:
        asked = tuple(name.strip() for name in data.split(",") if name.strip())
        effort = effort._replace(data=tuple(choose("data set of the paper", name, DATA) for name in asked) or DATA)
    experiments = find_experiments(names)

    def tell(name: str, cell: str, done: int, total: int) -> None:
        report(cell, done, total)

    page = run_experiments(experiments, out, effort, tell, fresh=fresh, jobs=jobs)
    return page, [each.name for each in experiments]
