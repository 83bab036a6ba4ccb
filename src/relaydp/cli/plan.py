"""`relaydp plan`: what a budget will buy, before anybody touches a record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaydp.cli import choices
from relaydp.cli.choices import among
from relaydp.cli.options import DATA, GRAPH, OUTPUT, PRIVACY, PROBLEM, RUN, AsJson, Quiet, flag, print_json
from relaydp.cli.progress import step_bar
from relaydp.errors import InputError

if TYPE_CHECKING:
    from relaydp.planning.forecast import Forecast
    from relaydp.planning.run_plan import Plan
    from relaydp.settings.config import RunSection

COLUMNS = ("label", "groups", "drop")  # flags that name columns of a file
AROUND = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1, 5 / 4, 3 / 2, 2, 4, 8)  # rows of the curve, in multiples of the choice
ROWS = 8  # of them, those next to the choice


def plan(
    ctx: typer.Context,
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG.toml", help="Settings as for `relaydp run`; flags override them."),
    ] = None,
    sizes: Annotated[
        str | None, flag(DATA, "Records of each agent, to plan without any data: 8x1500, or 900,1200.", "SIZES")
    ] = None,
    features: Annotated[
        int | None, flag(DATA, "How many features a record has: with --sizes, or of a LIBSVM file.", "N")
    ] = None,
    data: Annotated[
        str | None,
        flag(DATA, "Catalogue name or file; default fashion-small.", "NAME|PATH", complete=among(choices.DATA_SETS)),
    ] = None,
    label: Annotated[str | None, flag(DATA, "A file's label column.", "COLUMN")] = None,
    groups: Annotated[list[str] | None, flag(DATA, "A column that is no feature; repeatable.", "COLUMN")] = None,
    drop: Annotated[list[str] | None, flag(DATA, "A column to leave out; repeatable.", "COLUMN")] = None,
    prior: Annotated[
        str | None,
        flag(
            DATA,
            "PUBLIC records of the same columns: planned for instead of a guess, and plans are tried on them.",
            "NAME|PATH",
            complete=among(choices.DATA_SETS),
        ),
    ] = None,
    loss: Annotated[
        str | None,
        flag(
            PROBLEM,
            "As for run; with --sizes, default: by --classes, or logistic.",
            "NAME",
            complete=among(choices.LOSSES),
        ),
    ] = None,
    classes: Annotated[
        str | None, flag(PROBLEM, "Every label there may be; as for run. With --sizes their number counts.", "A,B")
    ] = None,
    agents: Annotated[str | None, flag(PROBLEM, "As for run; default 8.", "N|SIZES|COLUMN")] = None,
    l1: Annotated[float | None, flag(PROBLEM, "Weight of the 1-norm; default 0.")] = None,
    l2: Annotated[float | None, flag(PROBLEM, "Weight of the ridge; default 0.01.")] = None,
    intercept: Annotated[
        bool | None, flag(PROBLEM, "Add an unpenalised constant.", None, "--intercept/--no-intercept")
    ] = None,
    record_norm: Annotated[
        float | None,
        flag(PROBLEM, "Public bound on a record's norm; with --sizes, default: that of features in [0, 1]."),
    ] = None,
    ranges: Annotated[
        str | None,
        flag(PROBLEM, "Public range of the features; as for run.", "LOW,HIGH|fit", complete=among(choices.RANGES)),
    ] = None,
    clip: Annotated[float | None, flag(PROBLEM, "Bound on one record's gradient.")] = None,
    label_bound: Annotated[float | None, flag(PROBLEM, "Public bound on labels (least-squares).")] = None,
    threshold: Annotated[float | None, flag(PROBLEM, "Where huber turns into a line; default 1.")] = None,
    graph: Annotated[
        str | None, flag(GRAPH, "As for run; default ring.", "NAME|PATH", complete=among(choices.GRAPHS))
    ] = None,
    walk: Annotated[
        str | None, flag(GRAPH, "As for run; default random.", "NAME", complete=among(choices.WALKS))
    ] = None,
    start: Annotated[int | None, flag(GRAPH, "The agent that holds the first baton; default 0.")] = None,
    epsilon: Annotated[
        float | None, flag(PRIVACY, "How much may leak about any record, over the whole run; needed.")
    ] = None,
    delta: Annotated[float | None, flag(PRIVACY, "The chance that the promise fails; default 1e-5.")] = None,
    allow_large_delta: Annotated[
        bool | None, flag(PRIVACY, "Plan for a delta of 1/m or more all the same.", None, "--allow-large-delta")
    ] = None,
    limits: Annotated[
        list[str] | None, flag(PRIVACY, "An agent that allows less; repeatable.", "AGENT=EPSILON", "--limit")
    ] = None,
    ratio: Annotated[
        float | None,
        flag(PRIVACY, "Each activation's share of the budget over the one before; default: the best spread."),
    ] = None,
    algorithm: Annotated[
        str | None, flag(RUN, "recal, nids, ...; default recal.", "NAME", complete=among(choices.ALGORITHMS))
    ] = None,
    activations: Annotated[int | None, flag(RUN, "How often an agent acts; default: chosen.")] = None,
    steps: Annotated[
        str | None,
        flag(
            RUN,
            "tuned, paper, or alpha=..,beta=..,gamma=..; default tuned.",
            "NAME|NUMBERS",
            complete=among(choices.STEPS),
        ),
    ] = None,
    seed: Annotated[int | None, flag(RUN, "Of the walk; default 0.")] = None,
    figure: Annotated[Path | None, flag(OUTPUT, "Draw the plan into this file (.png, .svg, .pdf).", "FILE")] = None,
    json_: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Say what a budget will buy: activations, noise, messages, and the error to expect. No record is used.

    \b
    relaydp plan --epsilon 1 --walk cyclic
    relaydp plan --sizes 8x1500 --features 784 --record-norm 1 --epsilon 1 --graph ring
    relaydp plan --epsilon 1 --limit 2=0.5 --figure plan.png

    `relaydp run` with the same settings makes the same plan and follows it.
    """
    from relaydp.settings.config import FLAGS, build, build_unseen, read_config
    from relaydp.settings.values import as_sizes

    given = {name: value for name, value in ctx.params.items() if name in FLAGS and value not in (None, [], ())}
    with step_bar(quiet or json_, "reading the settings") as report:
        settings = read_config(config, given)
        _check_plannable(settings.run)
        if sizes is None:
            problem, network, asked = build(settings)
        else:
            replaced = ("data", "agents", *(() if settings.run.prior else COLUMNS))  # a prior has columns too
            if clash := [name for name in replaced if name in given]:
                raise InputError(
                    f"--{clash[0]} arrived with --sizes, which plans without any data; leave one of them out."
                )
            if settings.data.features is None:
                raise InputError("--sizes arrived without --features; needed how many features a record has.")
            problem, network, asked = build_unseen(settings, as_sizes(sizes), settings.data.features)
        asked.pop("mechanism", None)

        from relaydp.planning import plan as draw_up

        report(f"planning {asked['algorithm']} on {network.name}")
        made = draw_up(problem, network, **asked)
    if figure is not None:
        from relaydp.report import draw_plan

        draw_plan(figure, made)
    if json_:
        print_json(made.summary())
    elif not quiet:
        print_plan(made, network.name, figure)


def _check_plannable(run: RunSection) -> None:
    if run.mechanism not in (None, "gradient"):
        raise InputError(f"mechanism {run.mechanism!r} arrived; a plan is made for 'gradient'. Leave it out.")
    if run.epsilon is None:
        raise InputError("no epsilon arrived; a plan says what a budget buys. Add --epsilon.")


def print_plan(made: Plan, graph: str, figure: Path | None) -> None:
    """What was chosen, what it costs, what to expect, and how that would change with other choices."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    table = Table(title="relaydp plan", title_justify="left", title_style="bold", show_header=False, box=None)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for name, value in _rows(made, graph):
        table.add_row(name, Text(value))
    console.print(table)
    if made.outlook is not None and len(made.outlook.activations) > 1:
        console.print(_curve(made.outlook))
    if figure is not None:
        console.print(f"Figure: {figure}")


def _rows(made: Plan, graph: str) -> list[tuple[str, str]]:
    facts, budget, look, ledger = made.facts, made.budget, made.outlook, made.ledger
    assert budget is not None and ledger is not None
    walk, at = f", {made.walk} walk" if made.walk else "", f" at delta {budget.delta:g}"
    rows = [
        ("planned", f"{made.algorithm.name} on {graph}{walk}"),
        ("for", f"{facts.agents} agents with {_span(facts.sizes, 'd')} records each, {facts.dim} coefficients"),
        ("activations", f"{made.activations} an agent (the PLF)"),
        ("hops", f"{len(made.route)}, {int(made.tally.messages[-1])} messages"),
        ("epsilon", f"{made.epsilon:.6g} exact, {made.epsilon_paper:.6g} by the paper's formula{at}"),
    ]
    own = ledger.limit < budget.rho * (1 - 1e-9)
    if own.any():
        each = [f"{ledger.epsilon_of(int(i), budget.delta):.6g} for agent {i}" for i in own.nonzero()[0]]
        rows.append(("limits", ", ".join(each)))
    if look is not None:
        parts = f"{look.bias[look.chosen]:.3g} bias and {look.noise[look.chosen]:.3g} noise"
        rows.append(("excess", f"{look.predicted:.3g} predicted: {parts}"))
    first, last = (_span(made.scales[t], ".3g") for t in (0, -1))
    steps = ", ".join(f"{name} {_span(value, '.4g')}" for name, value in made.steps._asdict().items())
    noise = f"{first} in the first activation, {last} in the last"
    return [*rows, ("noise", noise), ("steps", steps), ("grounds", _grounds(made))]


def _grounds(made: Plan) -> str:
    if made.outlook is None:
        return "Nothing was predicted: there are too many agents to simulate. The privacy promise needs no prediction."
    if made.prior is not None:
        return "The prediction rests on the prior; the privacy promise only on its being public."
    return "The prediction rests on a guess from public bounds (--prior replaces it); the privacy promise does not."


def _span(values: Any, form: str) -> str:
    """One number, or the least and the most of them."""
    import numpy as np

    low, high = (format(end, form) for end in (np.min(values), np.max(values)))
    return low if low == high else f"{low} to {high}"


def _curve(look: Forecast) -> Any:
    """Predicted error against PLF, some rows around the choice."""
    import numpy as np
    from rich.table import Table

    usable = np.flatnonzero(np.isfinite(look.total))
    wanted = [factor * look.activations[look.chosen] for factor in AROUND]
    rows = sorted({int(usable[np.argmin(np.abs(look.activations[usable] - T))]) for T in wanted})
    first = max(0, min(rows.index(look.chosen) - ROWS // 2, len(rows) - ROWS))
    table = Table(title="predicted error", title_justify="left", title_style="bold", box=None, header_style="bold")
    for name in ("PLF", "bias", "noise", "excess", ""):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    for k in rows[first : first + ROWS]:
        cells = (f"{part[k]:.3g}" for part in (look.bias, look.noise, look.total))
        table.add_row(str(look.activations[k]), *cells, "chosen" if k == look.chosen else "")
    return table
