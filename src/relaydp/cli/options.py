"""Options that commands share: one name, one meaning, one text and one default everywhere.

    --json        stdout is one JSON document; stderr has errors only
    --quiet, -q   no progress and no table; errors still go to stderr
    --out         where files go; an existing folder is refused unless --overwrite is given
    --seed        the same seed gives the same result; with a budget, the run is a simulation without a promise

An error is always one paragraph on stderr and exit code 2.

Options that belong together are a dataclass, a group. `@spread` shows Typer one parameter per option, and calls the
command with its groups. Help shows the panel `MAIN` first: what a first run on one's own data needs. A setting that is
not needed in a first week has no option and is set in a TOML file; `moved` says where, to whoever types an old option.
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

L2_TEXT = f"Weight of the ridge; default {defaults.L2:g}."
DELTA_TEXT = f"The chance that the promise fails; default {defaults.DELTA:g}."
L2 = Annotated[float | None, flag(PROBLEM, L2_TEXT)]
Graph = Annotated[
    str | None,
    flag(
        MAIN,
        "ring, path, star, complete, grid:4x8, torus, hypercube, erdos-renyi:0.3, watts-strogatz:4,0.1, "
        f"random-regular:4, or a .graphml, .txt, .csv or .edges file; default {defaults.GRAPH}.",
        "NAME|PATH",
        complete=among(choices.GRAPHS),
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


Collusion = Annotated[
    int | None,
    flag(
        PRIVACY,
        "The most agents that collude: they are seen in sums only, and share the noise. Default: all others, and each "
        "hides its records by its own noise.",
        "N",
    ),
]


@dataclass(frozen=True)
class DataOptions:
    """Whose records."""

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


@dataclass(frozen=True)
class ColumnOptions:
    """Which columns of a file are features."""

    groups: Annotated[list[str] | None, flag(DATA, "A column that is not a feature; repeatable.", "COLUMN")] = None
    drop: Annotated[list[str] | None, flag(DATA, "A column to leave out; repeatable.", "COLUMN")] = None
    features: Annotated[
        int | None,
        flag(DATA, "How many features a record has: with plan --sizes, and for private runs on a LIBSVM file.", "N"),
    ] = None


@dataclass(frozen=True)
class AgentOptions:
    """Over how many agents, and what is public about their records."""

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
            "Public range of all features (a TOML file can have one per column), or fit (computed from the records), "
            "or fit-public (the records are public). Default: that of a known data set, else none.",
            "LOW,HIGH|fit",
            complete=among(choices.RANGES),
        ),
    ] = None
    record_norm: Annotated[
        float | None,
        flag(
            PROBLEM,
            "Public bound on a record's norm; longer records are shrunk to it. Default: with a budget and --ranges a "
            "guess from them, else none; with plan --sizes, that of features in [0, 1].",
        ),
    ] = None


@dataclass(frozen=True)
class LossOptions:
    """What is minimised."""

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
    label_bound: Annotated[
        float | None, flag(PROBLEM, "Public bound on labels; a private run with least-squares needs it.")
    ] = None
    intercept: Annotated[
        bool | None,
        flag(PROBLEM, "Add an unpenalised constant; default: no.", None, "--intercept/--no-intercept"),
    ] = None
    l2: L2 = None


@dataclass(frozen=True)
class GraphOptions:
    """Who may send to whom, and how the baton travels."""

    graph: Graph = None
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
class TrustOptions:
    """Whom the budget's promise is against."""

    collusion: Collusion = None


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
