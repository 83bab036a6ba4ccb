"""`relaydp doctor`: is this machine fit for relaydp, and what to do where it is not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from relaydp.cli.options import AsJson, Quiet, print_json
from relaydp.cli.progress import step_bar

if TYPE_CHECKING:
    from relaydp.cli.checks import Finding

BROKEN = 1  # exit code
STYLES = {"ok": "green", "note": "yellow", "problem": "bold red"}


def doctor(json_: AsJson = False, quiet: Quiet = False) -> None:
    """Look at versions, devices, folders and data, and train two tiny models that are checked by other means.

    \b
    relaydp doctor
    relaydp doctor --json

    \b
    Every line is ok, a note (works, but something is missing) or a problem, with what to do about it.
    Exit codes:
      0    nothing is broken
      1    something is; under --quiet the problems are on stderr
    """
    from relaydp.cli.checks import CHECKS, OK, PROBLEM, findings

    began = time.perf_counter()
    found: list[tuple[str, Finding]] = []
    with step_bar(quiet or json_, "looking around") as report:
        for done, (panel, check) in enumerate(CHECKS):
            report(panel.lower(), done, len(CHECKS))
            found += [(panel, finding) for finding in findings(check)]
    problems = [finding for _, finding in found if finding.state == PROBLEM]
    seconds = round(time.perf_counter() - began, 1)
    if json_:
        rows = [{"panel": panel, **finding._asdict()} for panel, finding in found]
        print_json({"healthy": not problems, "seconds": seconds, "checks": rows})
    elif quiet:
        for finding in problems:
            typer.echo(f"problem: {finding.name}: {finding.found}. {finding.do}", err=True)
    else:
        _print(found)
        notes = sum(finding.state not in (OK, PROBLEM) for _, finding in found)
        verdict = f"{len(problems)} to put right" if problems else "nothing is broken"
        typer.echo(f"{verdict}; {notes} note{'' if notes == 1 else 's'}, {seconds:g} s.")
    if problems:
        raise typer.Exit(BROKEN)


def _print(found: list[tuple[str, Finding]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    last = ""
    for panel, (name, state, words, do) in found:
        text = Text(words)
        if do:
            text.append(f"\n{do}", style=STYLES[state])
        table.add_row("" if panel == last else panel, Text(state, style=STYLES[state]), name, text)
        last = panel
    Console(highlight=False).print(table)
