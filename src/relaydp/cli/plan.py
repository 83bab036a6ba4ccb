"""`relaydp plan`: what a budget will buy, before any record is used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from relaydp.cli.options import (
    MAIN,
    OUTPUT,
    AgentOptions,
    AsJson,
    BudgetOptions,
    ColumnOptions,
    ConfigFile,
    DataOptions,
    GraphOptions,
    LossOptions,
    Quiet,
    RunOptions,
    TrustOptions,
    flag,
    passed,
    print_json,
    spread,
)
from relaydp.cli.progress import step_bar
from relaydp.errors import InputError

if TYPE_CHECKING:
    from relaydp.planning.forecast import Forecast
    from relaydp.planning.run_plan import Plan
    from relaydp.settings.config import RunSection

PREPARES = ", the first for the classes' means"
COLUMNS = ("label", "groups", "drop")  # options that name columns of a file
AROUND = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1, 5 / 4, 3 / 2, 2, 4, 8)  # rows of the curve, in multiples of the choice
ROWS = 8  # of them, those next to the choice


@spread
def plan(
    budget: BudgetOptions,
    whom: TrustOptions,
    data: DataOptions,
    columns: ColumnOptions,
    agents: AgentOptions,
    loss: LossOptions,
    graph: GraphOptions,
    how: RunOptions,
    config: ConfigFile = None,
    sizes: Annotated[
        str | None, flag(MAIN, "Records of each agent, to plan without any data: 8x1500, or 900,1200.", "SIZES")
    ] = None,
    figure: Annotated[Path | None, flag(OUTPUT, "Draw the plan into this file (.png, .svg, .pdf).", "FILE")] = None,
    json_: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Say what a budget will buy: activations, noise, messages, and the error to expect. No record is used.

    \b
    relaydp plan --epsilon 1
    relaydp plan --sizes 8x1500 --features 784 --record-norm 1 --epsilon 1 --graph ring
    relaydp plan visits.toml --epsilon 0.5 --figure plan.png

    `relaydp run` with the same settings makes the same plan and follows it.
    """
    if figure is not None:
        from relaydp.report.figures import check_figure

        check_figure(figure)
    from relaydp.settings.config import build, build_unseen, read_config
    from relaydp.settings.values import as_sizes

    given = passed(data, columns, agents, loss, graph, budget, whom, how)
    with step_bar(quiet or json_, "reading the settings") as report:
        settings = read_config(config, given)
        _check_plannable(settings.run)
        if sizes is None:
            found, network, asked = build(settings)
        else:
            replaced = ("data", "agents", *(() if settings.run.prior else COLUMNS))  # a prior has columns too
            if clash := [name for name in replaced if name in given]:
                raise InputError(
                    f"--{clash[0]} and --sizes exclude each other: --sizes plans without any data. Leave one out."
                )
            if settings.data.features is None:
                raise InputError("--sizes needs --features, how many features a record has. Add --features N.")
            found, network, asked = build_unseen(settings, as_sizes(sizes), settings.data.features)
        asked.pop("mechanism", None)

        from relaydp.planning import plan as draw_up

        report(f"planning {asked['algorithm']} on {network.name}")
        made = draw_up(found, network, **asked)
        others = _for_all_trust(made, found, network, asked) if made.sums else []
    if figure is not None:
        from relaydp.report import draw_plan

        draw_plan(figure, made)
    if json_:
        print_json(made.summary() | ({"by_trust": [row._asdict() for row in others]} if others else {}))
    elif not quiet:
        print_plan(made, network.name, figure, others)
    if not quiet:
        warn_before(made)


def warn_before(made: Plan) -> None:
    """On stderr: a budget that is likely to buy little, and what would help."""
    from relaydp.report.expectation import warn_of

    for text in warn_of(made):
        typer.echo(f"warning: {text}", err=True)


def _check_plannable(run: RunSection) -> None:
    if run.mechanism not in (None, "gradient"):
        raise InputError(f"mechanism {run.mechanism!r}: a plan is made for 'gradient' only. Leave the mechanism out.")
    if run.epsilon is None:
        raise InputError("no epsilon: a plan says what a privacy budget buys. Add --epsilon.")


class TrustRow(NamedTuple):
    """What one choice of whom to trust would give."""

    trust: str
    collusion: int
    noise: float  # of the mean gradient, in units of a curator's
    expected_gain: dict[str, float] | None


def _for_all_trust(made: Plan, found: Any, network: Any, asked: dict[str, Any]) -> list[TrustRow]:
    """The same plan for a curator and for every number of parties that may collude, or some of many."""
    from relaydp.planning import plan as draw_up
    from relaydp.planning.accuracy import noise_of
    from relaydp.planning.calibration import with_shares
    from relaydp.settings.config import TRUSTING

    quorum = asked.get("quorum")
    rest = {name: value for name, value in asked.items() if name not in TRUSTING}
    most = (network.agents if quorum is None else quorum) - 1
    counts = {*range(1, most + 1)} if most < ROWS else {1, 2, most // 8, most // 4, most // 2, most}
    counts |= {asked["collusion"]} if "collusion" in asked else set()
    wanted: list[dict[str, Any]] = [{"trust": "curator"}]
    wanted += [{"collusion": t, "quorum": quorum} for t in sorted(counts - {0})]
    rows, noise = [], []
    for whom in wanted:
        other = draw_up(found, network, **rest, **whom)
        assert other.trust is not None and other.ledger is not None
        # of the whole budget in one release: plans for F may spread it over different numbers of laps
        noise.append(noise_of(made.facts.sizes, with_shares(other.ledger.limit, made.facts, other.trust)))
        expected = None if other.expected is None else other.expected._asdict()
        rows.append(TrustRow(other.trust.kind, other.trust.collusion, noise[-1] / noise[0], expected))
    return rows


def print_plan(made: Plan, graph: str, figure: Path | None, others: Sequence[TrustRow] = ()) -> None:
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
    if others:
        console.print(_trust_table(others, made))
    if figure is not None:
        console.print(f"Figure: {figure}")


def _rows(made: Plan, graph: str) -> list[tuple[str, str]]:
    facts, budget, look, ledger = made.facts, made.budget, made.outlook, made.ledger
    assert budget is not None and ledger is not None
    from relaydp.report.expectation import left_of_zero

    walk, at = f", {made.walk} walk" if made.walk else "", f" at delta {budget.delta:g}"
    rows = [
        ("planned", f"{made.algorithm.name} on {graph}{walk}"),
        ("for", f"{facts.agents} agents with {_span(facts.sizes, 'd')} records each, {facts.dim} coefficients"),
        ("activations", f"{made.activations} per agent (the PLF)" + (PREPARES if made.preparing else "")),
        ("hops", f"{len(made.route)}, {int(made.tally.messages[-1])} messages"),
        ("epsilon", f"{made.epsilon:.6g} exact, {made.epsilon_paper:.6g} by the paper's formula{at}"),
    ]
    if made.trust is not None:
        rows.append(("against", made.trust.against))
    own = ledger.limit < budget.rho * (1 - 1e-9)
    if own.any():
        each = [f"{ledger.epsilon_of(int(i), budget.delta):.6g} for agent {i}" for i in own.nonzero()[0]]
        rows.append(("limits", ", ".join(each)))
    if made.expected is not None:
        from relaydp.report.expectation import tell_expected

        rows.append(("accuracy", tell_expected(made.expected)))
    if look is not None:
        parts = f"{look.bias[look.chosen]:.3g} bias and {look.noise[look.chosen]:.3g} noise"
        rows.append(("excess", f"{look.predicted:.3g} predicted: {parts}"))
    if (left := left_of_zero(made)) is not None:
        rows.append(("beside 0", f"{100 * left:.0f} % of the excess of a model of zeros"))
    first, last = (_span(made.scales[t], ".3g") for t in (0, -1))
    steps = ", ".join(f"{name} {_span(value, '.4g')}" for name, value in made.steps._asdict().items())
    noise = f"{first} in the first activation, {last} in the last"
    return [*rows, ("noise", noise), ("steps", steps), ("grounds", _grounds(made))]


def _trust_table(rows: Sequence[TrustRow], made: Plan) -> Any:
    """What trust buys."""
    from rich.table import Table

    from relaydp.planning.accuracy import Expectation

    title = "what trust buys (noise beside a curator's; gain as above)"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, header_style="bold")
    for name, side in (("against", "left"), ("noise", "right"), ("gain", "left"), ("", "left")):
        table.add_column(name, justify=side, no_wrap=True)  # type: ignore[arg-type]
    names = {"curator": "readers of what a curator publishes", "nobody": "all others"}
    for row in rows:
        here = made.trust is not None and (row.trust, row.collusion) == (made.trust.kind, made.trust.collusion)
        expected = "-" if row.expected_gain is None else str(Expectation(**row.expected_gain))
        whom = names.get(row.trust, f"any {row.collusion}")
        table.add_row(whom, f"{row.noise:.2f}", expected, "this plan" if here else "")
    return table


def _grounds(made: Plan) -> str:
    if made.expected is not None:
        return "Public facts alone: sizes, budget, bounds. The forecast is from other problems; the promise is not."
    if made.outlook is None:
        return "Nothing was predicted: there are too many agents to simulate. The privacy promise needs no prediction."
    if made.prior is not None:
        return "The prediction rests on the prior; the privacy promise only on its being public."
    return "The prediction rests on a guess from public bounds (a prior replaces it); the privacy promise does not."


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
