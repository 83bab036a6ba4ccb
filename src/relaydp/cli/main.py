"""The `relaydp` command. Parse, call one function, print. Slow imports are inside the commands."""

from __future__ import annotations

import difflib
import errno
import inspect
import os
import re
import shlex
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from relaydp._version import __version__
from relaydp.cli import (
    account,
    agent,
    attack,
    audit,
    compare,
    consortium,
    data,
    demo,
    doctor,
    ledger,
    paper,
    plan,
    rehearsal,
    report,
    run,
    show,
    sweep,
)
from relaydp.cli.moved import COMMANDS, moved, moved_from, settings_of
from relaydp.errors import RelayError

HELP = "Train convex models together, without a server, with differential privacy."

START, TRAIN, CHECK, DEPLOY, FILES = "Start", "Train", "Check", "Deploy", "Data"
# The map: panels in the order of a user's journey, and what each command is for in one line of 80 columns.
MAP: tuple[tuple[str, str, str, Any], ...] = (
    ("demo", START, "See it work: a private model over 8 agents, in a minute.", demo.demo),
    ("doctor", START, "Find out whether this machine is fit, and what to do if not.", doctor.doctor),
    ("run", TRAIN, "Train one model, with a privacy budget or without.", run.run),
    ("plan", TRAIN, "See what a budget will buy, before any record is used.", plan.plan),
    ("account", TRAIN, "Hold many runs on the same records to one budget.", account.app),
    ("compare", TRAIN, "Find the best algorithm for a problem, graph and budget.", compare.compare),
    ("sweep", TRAIN, "Run a study of many runs, here or on a Ray cluster.", sweep.sweep),
    ("report", TRAIN, "Make one page of charts and tables from saved results.", report.report),
    ("show", CHECK, "Look at a saved result, ledger, account or consortium.", show.show),
    ("rerun", CHECK, "Repeat a saved run and compare, bit for bit.", run.rerun),
    ("ledger", CHECK, "Check what was released, by whom, and what it cost.", ledger.app),
    ("audit", CHECK, "Test a privacy claim: bound epsilon from below.", audit.audit),
    ("attack", CHECK, "See what a transcript reveals about the records.", attack.attack),
    ("paper", CHECK, "Reproduce the paper's tables and figures.", paper.app),
    ("consortium", DEPLOY, "Agree with other parties on one run; rehearse it.", consortium.app),
    ("agent", DEPLOY, "Run your party's side of a consortium.", agent.app),
    ("data", FILES, "Look at data sets and files; download the paper's.", data.app),
)
# Shorter than Typer's own texts, which take three lines more of the map.
OPTIONS = {
    "help": "Flags, examples: relaydp plan --help",
    "install_completion": "Let this shell complete by Tab.",
    "show_completion": "Print the script that does so.",
}


class Front(TyperGroup):
    """The outermost group: errors that users can correct become one paragraph and exit code 2."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name, *_ in MAP]  # Typer would put groups after all other commands

    def get_params(self, ctx: Any) -> list[Any]:
        found = super().get_params(ctx)
        for param in found:
            param.help = OPTIONS.get(str(param.name), getattr(param, "help", None))  # type: ignore[attr-defined]
        return found

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().make_context(*args, **kwargs)
        except Exception as error:
            name_the_nearest(error)
            raise

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except RelayError as error:
            name = ctx.invoked_subcommand
            complain(in_flags(str(error), flags_of(self.commands.get(name)), settings_of(f"relaydp {name}")))
            raise typer.Exit(2) from None
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader has gone, which is not an error
                raise
            complain(of_the_system(error))
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            typer.echo("interrupted.", err=True)
            raise typer.Exit(130) from None
        except Exception as error:
            name_the_nearest(error)
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """A command of a group is found from outside it, too: `relaydp verify` means `relaydp ledger verify`."""
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            inner = [
                f"{name} {args[0]}"
                for name, group in self.commands.items()
                if args[0] in getattr(group, "commands", {})
            ]
            message = getattr(error, "message", "")
            if inner and "Did you mean" not in message:
                error.message = f"{message} Did you mean {' or '.join(map(repr, inner))}?"  # type: ignore[attr-defined]
            raise


def of_the_system(error: OSError) -> str:
    """What the operating system refused, and of which file.

    >>> of_the_system(FileNotFoundError(2, "No such file or directory", "a/b.csv"))
    'a/b.csv: no such file or directory. Check the path, the rights and the space on the disk, and try again.'
    """
    what = error.strerror or str(error) or type(error).__name__
    what = what[:1].lower() + what[1:]
    return (
        f"{'' if error.filename is None else f'{error.filename}: '}{what}. Check the path, the rights and the space on "
        "the disk, and try again."
    )


def name_the_nearest(error: Exception) -> None:
    """An unknown option: say where it has gone, or the one that was meant instead of all that look a little like it."""
    context = getattr(error, "ctx", None)
    path = "" if context is None else context.command_path
    if gone := moved(path, str(getattr(error, "option_name", ""))):
        error.message, error.possibilities = gone, None  # type: ignore[attr-defined]
        return
    for (group, name), gone in COMMANDS.items():
        if path == group and f"'{name}'" in getattr(error, "message", ""):
            error.message = gone  # type: ignore[attr-defined]
            return
    meant = str(getattr(error, "option_name", ""))
    once = difflib.get_close_matches(meant, moved_from(path), n=1)
    near = [*(getattr(error, "possibilities", None) or []), *once]
    if near:
        best = difflib.get_close_matches(meant, near, n=1, cutoff=0.0)[0]
        there = f" {moved(path, best)}" if best in once else ""
        error.message = f"{getattr(error, 'message', '')}. Did you mean {best}?{there}"  # type: ignore[attr-defined]
        error.possibilities = None  # type: ignore[attr-defined]


def flags_of(command: Any) -> dict[str, tuple[str, str]]:
    """(flag, what it takes) of a command, or of all commands of a group, by the name that Python knows each by."""
    found: dict[str, tuple[str, str]] = {}
    for each in getattr(command, "commands", {}).values():
        found |= flags_of(each)
    for param in getattr(command, "params", ()):
        flag = "--" + str(param.name).replace("_", "-")
        if flag in param.opts and not getattr(param, "is_flag", False):
            found[param.name] = (flag, param.metavar or "NUMBER")
    return found


def in_flags(text: str, flags: dict[str, tuple[str, str]], settings: dict[str, str] | None = None) -> str:
    """An error in the words of the command line: what Python calls record_norm=2 is --record-norm=2 here.

    `settings` says the same of what is set in a TOML file alone, where no value is named.

    >>> flags = {"record_norm": ("--record-norm", "NUMBER"), "ranges": ("--ranges", "LOW,HIGH|fit")}
    >>> in_flags("Pass record_norm= or ranges=(low, high).", flags)
    'Pass --record-norm=NUMBER or --ranges=LOW,HIGH.'
    >>> in_flags("--ranges: ranges='a b'; needed", flags)
    "--ranges='a b'; needed"
    >>> in_flags("record_norm=/tmp/a.b is not a number.", flags)  # whole, and nothing glued to it
    '--record-norm=/tmp/a.b is not a number.'
    >>> in_flags("Pass clip= or ranges=.", flags, {"clip": "clip in [problem] of a TOML file"})
    'Pass clip in [problem] of a TOML file or --ranges=LOW,HIGH|fit.'
    """

    def spelled(found: re.Match[str]) -> str:
        name, quoted, plain, pair = found.groups()
        flag, metavar = flags[name]
        return f"{flag}={shlex.quote(quoted) if quoted is not None else plain or ('LOW,HIGH' if pair else metavar)}"

    if settings:
        bare = "|".join(map(re.escape, settings))
        text = re.sub(rf"(?<![\w.-])({bare})=(?=[\s,;.)]|$)", lambda found: settings[found[1]], text)
    if not flags:
        return text
    names = "|".join(map(re.escape, flags))
    value = r"'([^']*)'|([\w+/~-](?:[\w./+~-]*\w)?)|(\(low, high\))|(?![\[{(\"=])"
    said = re.sub(rf"(?<![\w.-])({names})=(?:{value})", spelled, text)
    return re.sub(r"^(--[\w-]+): (?=\1=)", "", said)


def complain(text: str) -> None:
    """One paragraph on stderr, wrapped where somebody reads it."""
    if not sys.stderr.isatty():
        typer.echo(f"error: {text}", err=True)
        return
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True).print(Text.assemble(("error: ", "bold red"), text))


def unwrapped(text: str) -> str:
    r"""A help text with every paragraph on one line, so that a terminal breaks it where it needs to.

    >>> unwrapped("Train one\nmodel.\n\n\b\nrelaydp run\nrelaydp show")
    'Train one model.\n\n\x08\nrelaydp run\nrelaydp show'
    """
    return "\n\n".join(
        part if part.startswith("\b") else " ".join(part.split()) for part in text.strip("\n").split("\n\n")
    )


def unwrap(group: typer.Typer) -> None:
    """The same for every command of a group, whose help is a docstring."""
    for command in group.registered_commands:
        command.help = unwrapped(inspect.getdoc(command.callback) or "")
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            unwrap(inner.typer_instance)


app = typer.Typer(
    name="relaydp",
    cls=Front,
    help=HELP,
    no_args_is_help=True,
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


consortium.app.command()(rehearsal.demo)
for name, panel, line, command in MAP:
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name, short_help=line, rich_help_panel=panel)
    else:
        app.command(name, short_help=line, rich_help_panel=panel)(command)
unwrap(app)


def main() -> None:
    """The entry point. A reader that closes the pipe early (`relaydp data list | head -1`) is not an error."""
    try:
        app(prog_name="relaydp")
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
