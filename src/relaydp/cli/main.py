"""The `relaydp` command. Parse, call one function, print; whatever is slow to import waits inside the commands."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from relaydp import __version__
from relaydp.cli import agent, attack, audit, compare, consortium, data, ledger, paper, plan, rehearsal, run
from relaydp.errors import RelayError

HELP = """Train convex models together, without a server and without leaking anybody's records.

A baton walks over a graph of agents; each improves the model on its own records, privately, and passes it on.
"""
EPILOG = """\b
[bold]Examples[/bold]
  relaydp demo                            a private model over 8 agents
  relaydp run --epsilon 1 --out first     train with a budget, keep the result
  relaydp run examples/run.toml           the same from a file
  relaydp compare --epsilon 1             which algorithm is best for a budget
  relaydp plan --epsilon 1                what a budget will buy, before any record is used
  relaydp audit --epsilon 1               attack a privacy claim
  relaydp attack                          what a transcript gives away
  relaydp show first                      look at it again
  relaydp rerun first                     repeat it, bit for bit
  relaydp ledger verify first             check what it has cost, release by release
  relaydp paper list                      the paper's experiments, made anew
  relaydp consortium demo                 8 parties, 8 processes, mutual TLS, no server
  relaydp agent serve --help              one party's side of a consortium
  relaydp data list                       what there is to train on
"""


class Front(TyperGroup):
    """The outermost group: errors that users can put right become one paragraph and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except RelayError as error:
            complain(str(error))
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            typer.echo("interrupted.", err=True)
            raise typer.Exit(130) from None


def complain(text: str) -> None:
    """One paragraph on stderr, wrapped where somebody reads it."""
    if not sys.stderr.isatty():
        typer.echo(f"error: {text}", err=True)
        return
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True).print(Text.assemble(("error: ", "bold red"), text))


app = typer.Typer(
    name="relaydp",
    cls=Front,
    help=HELP,
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,  # theirs may print local variables, and those hold records
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"relaydp {__version__}")
        raise typer.Exit()


@app.callback()
def front(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass  # the help text is the app's own


@app.command()
def demo(
    figure: Annotated[Path | None, typer.Option(help="Draw the comparison into this file (.png, .svg, .pdf).")] = None,
    seed: Annotated[int, typer.Option(help="Of the walk and the noise.")] = 0,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Train a private model over 8 agents in a ring, and compare it with no privacy and with training alone."""
    from relaydp.cli.demo import demo as show

    show(figure, seed, json_, quiet)


app.command()(run.run)
app.command()(compare.compare)
app.command()(plan.plan)
app.command()(audit.audit)
app.command()(attack.attack)
app.command()(run.show)
app.command()(run.rerun)
app.add_typer(data.app, name="data")
app.add_typer(ledger.app, name="ledger")
app.add_typer(paper.app, name="paper")
consortium.app.command()(rehearsal.demo)
app.add_typer(consortium.app, name="consortium")
app.add_typer(agent.app, name="agent")


def main() -> None:
    """The entry point. A reader that closes the pipe early (`relaydp data list | head -1`) is no error."""
    try:
        app(prog_name="relaydp")
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
