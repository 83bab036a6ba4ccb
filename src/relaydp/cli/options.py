"""Options that commands share: one name, one meaning, one text and one default everywhere.

    --json        stdout is one JSON document; stderr has errors only
    --quiet, -q   no progress and no table; errors still go to stderr
    --out         where files go; an existing folder is refused unless --overwrite is given
    --seed        the same seed gives the same result; with a budget, the run is a simulation without a promise

An error is always one paragraph on stderr and exit code 2.

Options that belong together are a dataclass, a group. `@spread` shows Typer one parameter per option, and calls the
command with its groups. Help shows the panel `MAIN` first: what a first run on one's own data needs. Settings that only
researchers need have no option; `IN_A_FILE` says where they are in a TOML file.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from relaydp import defaults
from relaydp.cli import choices
from relaydp.cli.choices import among
from relaydp.errors import InputError

MAIN = "Most used"
DATA, PROBLEM, GRAPH, PRIVACY, RUN, OUTPUT = "Data", "Problem", "Graph and walk", "Privacy", "Run", "Output"
RESEARCH = "For researchers"


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


# ---------------------------------------------------------------- single options

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document and nothing else.", rich_help_panel=OUTPUT)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no table.", rich_help_panel=OUTPUT)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.", rich_help_panel=OUTPUT)]
ConfigFile = Annotated[
    Path | None,
    typer.Argument(metavar="CONFIG.toml", help="Settings; options override them. examples/run.toml lists all."),
]

L1_TEXT = f"Weight of the 1-norm; default {defaults.L1:g}."
L2_TEXT = f"Weight of the ridge; default {defaults.L2:g}."
DELTA_TEXT = f"The chance that the promise fails; default {defaults.DELTA:g}."
L1 = Annotated[float | None, flag(PROBLEM, L1_TEXT)]
L2 = Annotated[float | None, flag(PROBLEM, L2_TEXT)]
Intercept = Annotated[
    bool | None,
    flag(PROBLEM, "Add an unpenalised constant; default: no.", None, "--intercept/--no-intercept"),
]
RecordNorm = Annotated[
    float | None,
    flag(
        PROBLEM,
        "Public bound on a record's norm; longer records are shrunk to it. Default: none; with plan --sizes, that of "
        "features in [0, 1].",
    ),
]
Mechanism = Annotated[
    str | None,
    flag(
        PRIVACY,
        "gradient (sound), objective (for methods that minimise exactly; simulations only), published (the paper's; no "
        "guarantee) or none. Default with --epsilon: the algorithm's own, gradient or objective.",
        "NAME",
        complete=among(choices.MECHANISMS),
    ),
]
Objective = Annotated[
    str | None,
    flag(
        RESEARCH,
        "What a budget is planned for: accuracy (relay-gradient alone can) or loss, the least F. Default: accuracy "
        "where it can be planned for, else loss.",
        "accuracy|loss",
        complete=among(choices.OBJECTIVES),
    ),
]
Variant = Annotated[
    str | None,
    flag(
        PRIVACY,
        "Of --mechanism published: for recal memoryless, carried or replace; default: the first.",
        "NAME",
        complete=among(choices.VARIANTS),
    ),
]
Activations = Annotated[
    int | None, flag(RUN, "How often each agent acts (the PLF); default: chosen from public facts.")
]
On = Annotated[
    str,
    flag(
        RUN,
        "local (this machine), ray (a Ray cluster started here), or ray:ADDRESS to join one: ray:HOST:6379, "
        "ray:ray://HOST:10001, ray:auto. Default local.",
        "PLACE",
        complete=among(choices.PLACES),
    ),
]


# ---------------------------------------------------------------- groups


@dataclass(frozen=True)
class DataOptions:
    """Whose records, and which columns of a file."""

    data: Annotated[
        str | None,
        flag(
            MAIN,
            f"A data set's name (`relaydp data list`) or a file; default {defaults.DATA}.",
            "NAME|PATH",
            complete=among(choices.DATA_SETS),
        ),
    ] = None
    label: Annotated[str | None, flag(MAIN, "A file's label column.", "COLUMN")] = None
    groups: Annotated[list[str] | None, flag(DATA, "A column that is not a feature; repeatable.", "COLUMN")] = None
    drop: Annotated[list[str] | None, flag(DATA, "A column to leave out; repeatable.", "COLUMN")] = None
    features: Annotated[
        int | None,
        flag(DATA, "How many features a record has: with plan --sizes, and for private runs on a LIBSVM file.", "N"),
    ] = None


@dataclass(frozen=True)
class ProblemOptions:
    """What is minimised, over how many agents, and the public bounds."""

    agents: Annotated[
        str | None,
        flag(
            MAIN,
            f"How many, their sizes such as 120,80,256, or the column that names a record's agent; default "
            f"{defaults.AGENTS}.",
            "N|SIZES|COLUMN",
        ),
    ] = None
    classes: Annotated[
        str | None,
        flag(
            MAIN,
            "Every label there may be; a private run on a file needs it. Two mean logistic, more softmax.",
            "A,B",
        ),
    ] = None
    ranges: Annotated[
        str | None,
        flag(
            MAIN,
            "Public range of the features, or fit (computed from the records), or fit-public (the records are "
            "public). Default: that of a known data set, else none.",
            "LOW,HIGH|fit",
            complete=among(choices.RANGES),
        ),
    ] = None
    loss: Annotated[
        str | None,
        flag(
            PROBLEM,
            "logistic, least-squares, softmax or huber. Default: by --classes; without privacy by the labels; for "
            "plan --sizes logistic.",
            "NAME",
            complete=among(choices.LOSSES),
        ),
    ] = None
    record_norm: RecordNorm = None
    clip: Annotated[
        float | None,
        flag(
            PROBLEM, "Bound on one record's gradient; default: chosen by the plan, at most what the bounds above allow."
        ),
    ] = None
    label_bound: Annotated[float | None, flag(PROBLEM, "Public bound on labels (least-squares).")] = None
    intercept: Intercept = None
    l1: L1 = None
    l2: L2 = None


@dataclass(frozen=True)
class GraphOptions:
    """Who may send to whom, and how the baton travels."""

    graph: Annotated[
        str | None,
        flag(
            MAIN,
            "ring, path, star, complete, grid:4x8, torus, hypercube, erdos-renyi:0.3, watts-strogatz:4,0.1, "
            f"random-regular:4, or a .graphml, .txt, .csv or .edges file; default {defaults.GRAPH}.",
            "NAME|PATH",
            complete=among(choices.GRAPHS),
        ),
    ] = None
    walk: Annotated[
        str | None,
        flag(
            GRAPH,
            f"How the baton travels: tour, cyclic, random, lazy or nonbacktracking; default {defaults.WALK}.",
            "NAME",
            complete=among(choices.WALKS),
        ),
    ] = None


@dataclass(frozen=True)
class BudgetOptions:
    """The privacy budget."""

    epsilon: Annotated[
        float | None,
        flag(MAIN, "Privacy budget: how much the whole run may leak about any record. Without it, no privacy."),
    ] = None
    delta: Annotated[float | None, flag(PRIVACY, DELTA_TEXT[:-1] + "; below 1/m for agents with m records.")] = None


@dataclass(frozen=True)
class PlanOptions:
    """What a budget is planned by."""

    limits: Annotated[
        list[str] | None,
        flag(PRIVACY, "An agent that allows less than --epsilon; repeatable.", "AGENT=EPSILON", "--limit"),
    ] = None
    prior: Annotated[
        str | None,
        flag(
            PRIVACY,
            "PUBLIC records with the same columns: the budget is planned for them, and plans are tried on them.",
            "NAME|PATH",
            complete=among(choices.DATA_SETS),
        ),
    ] = None


@dataclass(frozen=True)
class RunOptions:
    """How to run."""

    algorithm: Annotated[
        str | None,
        flag(
            MAIN,
            f"auto, relay-gradient, recal, nids, ...: docs/algorithms.md; default {defaults.ALGORITHM}: by the loss.",
            "NAME",
            complete=among(choices.ALGORITHMS),
        ),
    ] = None
    seed: Annotated[
        int | None,
        flag(
            MAIN,
            "Of walk and noise: makes the run a simulation without a promise, the same again for the same seed. "
            "Default: none, and secret noise.",
        ),
    ] = None
    activations: Activations = None
    steps: Annotated[
        str | None,
        flag(
            RUN,
            "tuned, paper, or the algorithm's own numbers, such as alpha=1,beta=0.05,gamma=0.1 for recal; default "
            f"{defaults.STEPS}.",
            "NAME|NUMBERS",
            complete=among(choices.STEPS),
        ),
    ] = None
    objective: Objective = None


def spread(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command as Typer reads it: every parameter that is a group becomes one parameter per option of the group."""
    hints = get_type_hints(command, include_extras=True)
    flat: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if not is_dataclass(kind):
            flat.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[name] = kind
        inner = get_type_hints(kind, include_extras=True)
        flat += [
            inspect.Parameter(
                each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=inner[each.name]
            )
            for each in fields(kind)
        ]

    @wraps(command)
    def gathered(**given: Any) -> Any:
        for name, kind in groups.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
        return command(**given)

    gathered.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    gathered.__annotations__ = {each.name: each.annotation for each in flat}
    return gathered


def passed(*groups: Any, **single: Any) -> dict[str, Any]:
    """What the user passed, by the names that `read_config` knows; the rest is left to the file and the defaults."""
    given = {each.name: getattr(group, each.name) for group in groups for each in fields(group)} | single
    return {name: value for name, value in given.items() if value not in (None, [], ())}


# ---------------------------------------------------------------- options that have moved

# option: what stands in a TOML file instead
IN_A_FILE = {
    "--variant": '[run] variant = "NAME"',
    "--ratio": "[run] ratio = NUMBER",
    "--start": "[run] start = AGENT",
    "--allow-large-delta": "[run] allow_large_delta = true",
    "--threshold": "[problem] threshold = NUMBER",
}
IN_ON = "--address is part of --on now: --on ray:ADDRESS, such as --on ray:HOST:6379."


def moved(command: str, option: str) -> str | None:
    """Where an option has gone that a command does not have any more; None if it never had it.

    >>> moved("relaydp run", "--ratio")
    '--ratio is set in a TOML file: [run] ratio = NUMBER. Pass the file: relaydp run CONFIG.toml.'
    >>> moved("relaydp show", "--ratio") is None
    True
    """
    if option == "--address" and command in ("relaydp run", "relaydp sweep"):
        return IN_ON
    if option in IN_A_FILE and command in ("relaydp run", "relaydp plan"):
        return f"{option} is set in a TOML file: {IN_A_FILE[option]}. Pass the file: {command} CONFIG.toml."
    return None


def moved_from(command: str) -> list[str]:
    """The options that a command had once.

    >>> moved_from("relaydp sweep"), moved_from("relaydp show")
    (['--address'], [])
    """
    return [option for option in ("--address", *IN_A_FILE) if moved(command, option)]


def parse_place(on: str) -> tuple[str, str | None]:
    """Where to run, and the address of the Ray cluster to join, if any.

    >>> parse_place("local"), parse_place("ray"), parse_place("ray:head:6379")
    (('local', None), ('ray', None), ('ray', 'head:6379'))
    """
    place, colon, address = on.partition(":")
    if place not in choices.PLACES or (colon and (place != "ray" or not address)):
        raise InputError(f"--on {on!r} is not a place; needed local, ray or ray:ADDRESS, such as ray:HOST:6379.")
    return place, address or None


def print_json(content: dict[str, Any] | list[Any]) -> None:
    """One line, strict: no NaN, no infinity."""
    typer.echo(json.dumps(content, allow_nan=False))


def example(*lines: str) -> str:
    """The epilog of a group of commands: lines a user can copy."""
    return "\n".join(["\b", *lines])
