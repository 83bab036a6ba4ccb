"""What commands share: panels of their help, and flags that have one name, one meaning and one text everywhere.

    --json        stdout is one JSON document; stderr has errors only
    --quiet, -q   no progress and no table; errors still go to stderr
    --out         where files go; what is there already is refused unless --overwrite is given
    --seed        the same seed, the same result; where there is a budget, a simulation without a promise

An error is an error under all of them: one paragraph on stderr and exit code 2.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

import typer

DATA, PROBLEM, GRAPH, PRIVACY, RUN, OUTPUT = "Data", "Problem", "Graph and walk", "Privacy", "Run", "Output"

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document and nothing else.", rich_help_panel=OUTPUT)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no table.", rich_help_panel=OUTPUT)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.", rich_help_panel=OUTPUT)]


def flag(
    panel: str,
    text: str,
    metavar: str | None = None,
    *names: str,
    complete: Callable[[str], list[str]] | None = None,
) -> Any:
    """An option whose default is said in its text; `complete` lists what a shell may offer for it."""
    return typer.Option(
        *names, help=text, metavar=metavar, rich_help_panel=panel, show_default=False, autocompletion=complete
    )


def print_json(content: dict[str, Any] | list[Any]) -> None:
    """One line, strict: no NaN, no infinity."""
    typer.echo(json.dumps(content, allow_nan=False))


def example(*lines: str) -> str:
    """The epilog of a group of commands: lines a user can copy."""
    return "\n".join(["\b", *lines])
