"""The data of the plots. The page and `files.py` draw them.

A chart has columns to choose from for either axis, and series with values in those columns. A missing value is None; a
series without a chosen column (epsilon, for a run without a guarantee) is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from relaydp.auditing.campaigns import SavedAttack
from relaydp.engine.saved_comparison import SavedComparison
from relaydp.report.sources import Run, Spending
from relaydp.result import Trace

FEW = 12  # agents drawn one by one; of more, the minimum, the median and the maximum
POINTS = 150  # of one agent's curve on the page
SHOWN = 6  # lines of a comparison drawn at first; the others can be shown by the legend

Values = list[float | None]


class Axis(NamedTuple):
    key: str
    label: str
    log: bool = False


class RuleLine(NamedTuple):
    """A horizontal line across the plot, wherever `measure` is the vertical axis."""

    y: float
    label: str
    measure: str | None = None  # a column; None for a chart with one


@dataclass(frozen=True)
class Series:
    label: str
    columns: dict[str, Values]
    shown: bool = True
    end: bool = False  # whether the last point is marked as the result


@dataclass(frozen=True)
class Chart:
    key: str
    title: str
    about: str
    x: list[Axis]
    y: list[Axis]
    series: list[Series]
    rules: list[RuleLine] = field(default_factory=list)
    step: bool = False  # values hold until the next point
    notes: list[str] = field(default_factory=list)

    def drawn(self, x: Axis, y: Axis) -> Iterable[tuple[Series, Values, Values]]:
        """The series that have both columns."""
        for series in self.series:
            if x.key in series.columns and y.key in series.columns:
                yield series, series.columns[x.key], series.columns[y.key]

    def rules_of(self, y: Axis) -> list[RuleLine]:
        """The rules that belong to this vertical axis."""
        return [rule for rule in self.rules if rule.measure in (None, y.key)]

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "title": self.title,
            "x": [axis._asdict() for axis in self.x],
            "y": [axis._asdict() for axis in self.y],
            "series": [
                {
                    "label": one.label,
                    "columns": {name: [short(value) for value in values] for name, values in one.columns.items()},
                    "shown": one.shown,
                    "end": one.end,
                }
                for one in self.series
            ],
            "rules": [{"y": short(rule.y), "label": rule.label, "measure": rule.measure} for rule in self.rules],
            "step": self.step,
        }


def short(value: float | None) -> float | int | None:
    """Six digits are enough for a plot, and they keep the page small.

    >>> short(0.123456789), short(2400.0), short(float("nan"))
    (0.123457, 2400, None)
    """
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded == int(rounded) and abs(rounded) < 1e15 else rounded


def _values(column: Iterable[float]) -> Values:
    return [float(value) if math.isfinite(value) else None for value in column]


GAP, ERROR, ACCURACY = (
    Axis("gap", "objective gap, F(x) - F(x*)", log=True),
    Axis("relative_error", "relative error", log=True),
    Axis("accuracy", "accuracy"),
)
OBJECTIVE = Axis("objective", "objective, F(x)")
PLF, MESSAGES, EPSILON = (
    Axis("plf", "activations per agent (PLF)"),
    Axis("messages", "messages (link uses)"),
    Axis("epsilon", "epsilon spent"),
)
PLANNED = Axis("epsilon", "epsilon planned")  # for simulations, which spend nothing


def _history(trace: Trace, best: float | None, spent: Sequence[float] | None) -> dict[str, Values]:
    """A trace as columns of a chart."""
    columns = {
        "plf": _values(trace.activations),
        "messages": _values(trace.messages),
        "objective": _values(trace.objective),
        "relative_error": _values(trace.relative_error),
        "accuracy": _values(trace.accuracy),
    }
    if best is not None and math.isfinite(best):
        # A gap below rounding is unknown, and a logarithmic axis has no 0.
        columns["gap"] = _values(np.maximum(trace.objective - best, math.ulp(best)))
    if spent is not None:
        columns["epsilon"] = _values(spent)
    return {name: values for name, values in columns.items() if any(value is not None for value in values)}


def _having(axes: Sequence[Axis], series: Sequence[Series]) -> list[Axis]:
    return [axis for axis in axes if any(axis.key in one.columns for one in series)]


def _baseline_rules(runs: Sequence[Run]) -> list[RuleLine]:
    """What accuracies are compared with, where it was measured: lines that several runs share are drawn once."""
    found = {}
    for run in runs:
        if run.trace is None or (beside := run.result.baselines) is None:
            continue
        name = run.result.config["problem"]["data"]
        found[name, beside.majority] = RuleLine(beside.majority, f"most frequent class of {name}", "accuracy")
        if beside.without_privacy is not None:
            found[name, beside.without_privacy] = RuleLine(beside.without_privacy, f"no privacy, {name}", "accuracy")
    return list(found.values())


def convergence(runs: Sequence[Run]) -> Chart | None:
    """The runs' distance from the best model; None if no run has measurements."""
    series = []
    for run in runs:
        if run.trace is None:
            continue
        best = None if run.result.reference is None else run.result.reference.value
        series.append(Series(run.label, _history(run.trace, best, run.spent)))
    if not series:
        return None
    y = _having((GAP, ERROR, ACCURACY), series)
    if not all(GAP.key in one.columns for one in series):  # without a reference there is no gap: the objective itself
        y = [OBJECTIVE, *y]
    notes = [f"{one.label} has no epsilon to be drawn against." for one in series if "epsilon" not in one.columns]
    return Chart(
        "convergence",
        "Convergence",
        "How far the model was from the best possible one as the run went on.",
        _having((PLF, MESSAGES, EPSILON), series),
        y,
        series,
        _baseline_rules(runs),
        notes=notes if len(notes) < len(series) else [],
    )


def accuracy_by_epsilon(runs: Sequence[Run]) -> Chart | None:
    """Accuracy against epsilon: a line over each run, a dot at its end. A run without noise is a horizontal line."""
    private = [run for run in runs if run.spent is not None]
    if not private:
        return None
    best = {run.label: None if run.result.reference is None else run.result.reference.value for run in private}
    measure = _best_measure(private, best)
    series, rules, notes = [], [], []
    for run in runs:
        if run.trace is None:
            continue
        if run.spent is not None:
            columns = _history(run.trace, best[run.label], run.spent)
            if measure.key in columns:
                series.append(Series(run.label, {key: columns[key] for key in ("epsilon", measure.key)}, end=True))
        elif run.result.mechanism is None and measure is ACCURACY and math.isfinite(run.result.accuracy):
            rules.append(RuleLine(run.result.accuracy, f"{run.label}, no privacy"))
        else:
            notes.append(f"{run.label} is not shown: it has no epsilon.")
    if not series:
        return None
    rules += _baseline_rules(runs) if measure is ACCURACY else []
    return Chart(
        "budget-bought",
        f"{'Accuracy' if measure is ACCURACY else 'Objective'} against epsilon",
        "The model after each part of the budget was spent. The dot is the end of the run, for which the noise was "
        "planned.",
        [EPSILON],
        [measure],
        series,
        rules,
        notes=notes,
    )


def _best_measure(private: Sequence[Run], best: Mapping[str, float | None]) -> Axis:
    """Accuracy where there are classes; else the gap to the minimum, or the objective where a minimum is unknown."""
    if any(math.isfinite(run.result.accuracy) for run in private):
        return ACCURACY
    return GAP if all(value is not None for value in best.values()) else OBJECTIVE


def spending(run: Run) -> Chart | None:
    """The epsilon each agent had spent after each hop, and its limit."""
    if run.spending is None:
        return None
    limits = agent_limits(run)
    notes = []
    if run.result.status != "finished":
        notes.append("The run stopped early. It has still cost what was planned: that is the epsilon it is charged.")
    series = _spent_by_agents(run.spending, run.result.hops)
    if len(run.spending) > FEW:
        notes.append(f"{len(run.spending)} agents are too many to draw one by one.")
    elif _alike(run, limits):
        notes.append(f"The {len(series)} agents spend alike, so their lines nearly coincide.")
    return Chart(
        "spending",
        "Budget spent by each agent",
        "The epsilon of each agent's own releases so far. No agent may cross its limit.",
        [Axis("hop", "hop" if run.result.walk is not None else "round")],
        [EPSILON],
        series,
        _limit_rules(limits),
        step=True,
        notes=notes,
    )


def _spent_by_agents(spending: Sequence[Spending], hops: int) -> list[Series]:
    """A line per agent; of many agents the most, the median and the least."""
    if len(spending) <= FEW:
        series = []
        for agent, mine in enumerate(spending):
            # It starts at 0, and its last value holds to the end of the run.
            keep = _thinned(len(mine.hop))
            at = np.concatenate([[0], mine.hop[keep] + 1, [hops]])
            worth = np.concatenate([[0.0], mine.epsilon[keep], mine.epsilon[-1:] if len(mine.epsilon) else [0.0]])
            series.append(Series(f"agent {agent}", {"hop": _values(at), "epsilon": _values(worth)}))
        return series
    at = np.unique(np.linspace(0, hops, POINTS).round())
    table = np.array([np.append(0.0, m.epsilon)[np.searchsorted(m.hop, at, side="left")] for m in spending])
    return [
        Series(label, {"hop": _values(at), "epsilon": _values(row)})
        for label, row in (
            ("most of any agent", table.max(axis=0)),
            ("median agent", np.median(table, axis=0)),
            ("least of any agent", table.min(axis=0)),
        )
    ]


def _limit_rules(limits: list[float]) -> list[RuleLine]:
    """A horizontal line per limit; of many limits the largest alone."""
    distinct = sorted(set(limits))
    rules = [RuleLine(distinct[0], f"limit of every agent, {distinct[0]:g}")] if len(distinct) == 1 else []
    if 1 < len(distinct) <= 4:
        for limit in distinct:
            who = [agent for agent, mine in enumerate(limits) if mine == limit]
            rules.append(RuleLine(limit, f"limit {limit:g}, {named(who)}"))
    elif len(distinct) > 4:
        rules = [RuleLine(distinct[-1], f"largest limit, {distinct[-1]:g}")]
    return rules


def agent_limits(run: Run) -> list[float]:
    """Each agent's own limit on epsilon."""
    budget, own = run.result.budget, run.result.config["solve"].get("limits")
    assert budget is not None
    return [budget.epsilon] * run.result.agents if own is None else [float(limit) for limit in own]


def named(agents: Sequence[int]) -> str:
    """
    >>> named([3]), named([1, 2]), named([0, 1, 2, 3, 4])
    ('agent 3', 'agents 1, 2', '5 agents')
    """
    if len(agents) > 4:
        return f"{len(agents)} agents"
    return f"agent{'s' if len(agents) > 1 else ''} {', '.join(map(str, agents))}"


def _alike(run: Run, limits: Sequence[float]) -> bool:
    """Whether the agents' curves differ by less than a line's width, a hundredth of the limit."""
    assert run.spending is not None
    at = np.linspace(0, run.result.hops, 60)
    rows = [np.append(0.0, m.epsilon)[np.searchsorted(m.hop, at, side="left")] for m in run.spending]
    return bool(np.ptp(np.array(rows), axis=0).max() < 0.02 * max(limits)) and len(rows) > 1


def _thinned(length: int) -> np.ndarray:
    """The indices of the points to draw; the last point is always included."""
    return np.linspace(0, length - 1, min(length, POINTS)).round().astype(int)


def comparison_curves(label: str, found: SavedComparison) -> Chart | None:
    """One traced run of each algorithm, best first; the legend shows the others."""
    ranked = [row for row in found.rows if row["algorithm"] in found.traces]
    if not ranked:
        return None
    series = [
        Series(
            row["algorithm"],
            _history(found.traces[row["algorithm"]], found.best_value, found.spent[row["algorithm"]]),
            shown=place < SHOWN,
        )
        for place, row in enumerate(ranked)
    ]
    left = [one.label for one in series if "epsilon" not in one.columns]
    private = len(left) < len(series)
    return Chart(
        "comparison",
        f"How the algorithms got there ({label})",
        "One run of each, with the first seed.",
        _having((PLF, MESSAGES, PLANNED), series),
        _having((GAP, ERROR, ACCURACY), series),
        series,
        notes=[f"No epsilon could be planned for: {', '.join(left)}."] if left and private else [],
    )


def search_curves(label: str, attack: SavedAttack) -> Chart | None:
    """The error of a search, by iteration."""
    series = [
        Series(
            f"{row['run']}, {row['method']}",
            # a logarithmic axis has no 0
            {"iteration": _values(row["iterations"]), "mse": [max(v, 1e-30) for v in row["mse_curve"]]},
        )
        for row in attack.summary["rows"]
        if row["mse_curve"]
    ]
    if not series:
        return None
    return Chart(
        "search",
        f"What the search gets ({label})",
        "Median squared distance between what the attack has and the true records. Lower is worse for the records.",
        [Axis("iteration", "iteration")],
        [Axis("mse", "mean squared error", log=True)],
        series,
    )
