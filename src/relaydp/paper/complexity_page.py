"""The page of the complexity tables: counts and their growth, measured beside printed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from relaydp.algorithm import ALGORITHMS
from relaydp.paper.complexity import (
    ACCURACIES,
    DEGREE,
    DIM,
    GRAPHS,
    KINDS,
    METHODS,
    MOST_TUNED,
    RECORDS,
    RIDGE,
    TUNED_FOR,
    Method,
    cell_of,
    cells_of,
    key_of,
    problem_of,
    quantile,
)
from relaydp.paper.complexity import measure as measure_cell
from relaydp.paper.experiment import MISSING, Block, Effort, Experiment, Found, Picture, ResultTable
from relaydp.paper.powers_of_n import CONFIDENCE, FASTER, LEVEL, SAME, SLOWER, PowerFit, fit_power, form_value, verdict
from relaydp.paper.printed import CIRCULAR, COMPLETE, GENERAL
from relaydp.planning.quadratic import HOPS as LAB_HOPS
from relaydp.report.curves import Line, Panel, draw_panels

TABLES = {"complete": "Table I", "ring": "Table II", "general": "Table III"}
MEASURES = {"iterations": "computation", "plf": "plf", "messages": "communication"}  # ours -> printed


def _all(outcome: dict[str, Any], measure: str, accuracy: float = ACCURACIES[-1]) -> list[int | None]:
    return outcome.get("counts", {}).get(key_of(accuracy), {}).get(measure, [])


def _median(outcome: dict[str, Any], measure: str, accuracy: float = ACCURACIES[-1]) -> float | None:
    return quantile(_all(outcome, measure, accuracy), 0.5)


def _why_none(outcome: dict[str, Any], rounds: bool) -> str:
    if "error" in outcome:
        return "-" if outcome["error"] == MISSING else "refused"
    if 2 * outcome["diverged"] >= len(_all(outcome, "plf")):
        return "diverged"
    return f"not in {outcome['watched']:,} {'rounds' if rounds else 'hops'}{_badly_tuned(outcome, math.inf)}"


def _count_text(outcome: dict[str, Any], rounds: bool) -> str:
    """PLF / link uses, or why they are missing."""
    plf, uses = _median(outcome, "plf"), _median(outcome, "messages")
    if plf is None or uses is None:
        return _why_none(outcome, rounds)
    missed = sum(value is None for value in _all(outcome, "plf"))
    text = f"{plf:,.0f} / {uses:,.0f}{_badly_tuned(outcome, plf)}"
    return f"{text} ({missed} walks did not reach it)" if missed else text


def _badly_tuned(outcome: dict[str, Any], plf: float) -> str:
    """A mark if the run took more activations than its steps were tried for."""
    ahead = outcome["tuned_for"]
    return "*" if ahead is not None and ahead < plf else ""


Outcomes = dict[Method, dict[int, dict[str, Any]]]  # of one graph


def _outcomes(found: Found, graph: str) -> Outcomes:
    return {
        method: {n: found.of(cell_of(graph, n, method, found.effort)) for n in found.effort.sizes} for method in METHODS
    }


def _counts_table(graph: str, outcomes: Outcomes, effort: Effort) -> ResultTable:
    rows = [
        (method.title, *(_count_text(outcome, not method.walk) for outcome in mine.values()))
        for method, mine in outcomes.items()
    ]
    columns = ("PLF / link uses", *(f"n = {n}" for n in effort.sizes))
    factors = [m.title for m in METHODS if m.steps == "tuned" and ALGORITHMS[m.algorithm].paper_factor == 2]
    note = (
        f"Until the relative error stays below {ACCURACIES[-1]:g}. Medians of {effort.walks} walks, where there is a "
        f"walk to draw. Iterations are the PLF of {', '.join(m.title for m in METHODS if not m.walk)} and RECAL's link "
        f"uses. The paper's own rule counts every link use of {', '.join(factors)} twice."
    )
    return ResultTable(f"{GRAPHS[graph].capitalize()}: PLF and link uses to reach the error", columns, rows, note)


def _printed(graph: str, method: Method, measure: str) -> str | int:
    rows = {"complete": COMPLETE, "ring": CIRCULAR, "general": GENERAL}[graph]
    return rows[method.printed][MEASURES[measure]]


class ComplexityRow(NamedTuple):
    """One method and measure: the printed and the measured growth."""

    method: Method
    measure: str
    form: str  # as printed
    fit: PowerFit | None  # against n
    late: PowerFit | None  # against n, the larger half of the sizes
    against: PowerFit | None  # against the printed form, if that is not a power of n
    verdict: str


def _rows(graph: str, outcomes: Outcomes) -> list[ComplexityRow]:
    out = []
    for method, mine in outcomes.items():
        for measure in MEASURES:
            counts = {n: _median(outcome, measure) for n, outcome in mine.items()}
            form = _printed(graph, method, measure)
            late = list(counts)[len(counts) // 2 :]
            fit = fit_power(list(counts), list(counts.values()))
            later = fit_power(late, [counts[n] for n in late])
            against, power = None, {"1": 0, "n": 1}.get(str(form), form) if isinstance(form, str) else form
            if isinstance(power, str):  # a formula: its power should be 1
                known = {n: outcome for n, outcome in mine.items() if "error" not in outcome}
                sizes = [form_value(form, n, outcome["edges"], outcome["chi"]) for n, outcome in known.items()]
                against = fit_power(sizes, [counts[n] for n in known])
            words = verdict(fit, power) if isinstance(power, int) else verdict(against, 1)
            shown = f"n^{form}" if isinstance(form, int) else form
            out.append(ComplexityRow(method, measure, shown, fit, later, against, words))
    return out


def _orders_table(graph: str, rows: list[ComplexityRow], effort: Effort) -> ResultTable:
    sizes = effort.sizes
    columns = ["", "", "printed, times ln 1/epsilon", "measured power of n", f"from n = {sizes[len(sizes) // 2]}"]
    general = graph == "general"
    columns += (["power of the printed form"] if general else []) + ["verdict"]

    def text(fit: PowerFit | None) -> str:
        return "-" if fit is None else str(fit)

    lines = []
    for row in rows:
        cells = [row.method.title, _word(row.measure), row.form, text(row.fit), text(row.late)]
        lines.append((*cells, *([text(row.against)] if general else []), row.verdict))
    note = (
        f"Least squares of log(count) on log(n); {CONFIDENCE:.0%} intervals by Student's t over the sizes that reach "
        f"the error. Powers within {LEVEL:g} of each other are called the same. Computation is iterations, as the "
        "paper counts: rounds of all agents for D-ADMM, EXTRA and NIDS, hops for the relays. A round is n evaluations "
        "and a hop is one: in evaluations, add 1 to the first three."
    )
    if general:
        note += f" Erdos-Renyi graphs of mean degree {DEGREE}; chi is the spectral gap of P; 1 is as printed."
    return ResultTable(f"{TABLES[graph]}, measured: {GRAPHS[graph]}", tuple(columns), lines, note)


def _differences(graph: str, rows: list[ComplexityRow], outcomes: Outcomes) -> str:
    """The differences between the paper and the runs, in a few sentences."""
    return " ".join([*_claims(graph, rows), *_divergences(outcomes), *_other_growth(rows), *_leaders(outcomes)])


def _claims(graph: str, rows: list[ComplexityRow]) -> list[str]:
    """What the runs say of the paper's claim, that RECAL's PLF does not depend on n."""
    recal = [row for row in rows if row.measure == "plf" and row.method.printed == "recal"]
    growing = [f"{row.method.title} (n^{row.fit})" for row in recal if row.verdict == FASTER]
    flat = [row.method.title for row in recal if row.verdict in (SAME, SLOWER)]
    unclear = [row.method.title for row in recal if row.verdict not in (SAME, SLOWER, FASTER)]
    claim = f"On the {GRAPHS[graph]}, a PLF independent of n is"
    parts = [f"{claim} not observed for {'; '.join(growing)}."] if growing else []
    parts += [f"{claim} observed for {'; '.join(flat)}."] if flat else []
    parts += [f"{claim} neither observed nor excluded by these sizes for {'; '.join(unclear)}."] if unclear else []
    return parts


def _divergences(outcomes: Outcomes) -> list[str]:
    said = []
    for method, mine in outcomes.items():
        sizes = [str(n) for n, outcome in mine.items() if _median(outcome, "plf") is None and outcome.get("diverged")]
        if sizes:
            said.append(f"{method.title} diverges at n = {', '.join(sizes)}.")
    return said


def _other_growth(rows: list[ComplexityRow]) -> list[str]:
    """Which other methods grow otherwise than printed, and in which measures."""
    said = []
    for words in (FASTER, SLOWER):
        others: dict[str, list[str]] = {}
        for row in rows:
            if row.verdict == words and row.method.printed != "recal":
                others.setdefault(row.method.title, []).append(_word(row.measure))
        if others:
            named = "; ".join(f"{title} ({', '.join(measures)})" for title, measures in others.items())
            said.append(f"{words.capitalize()}: {named}.")
    return said


def _word(measure: str) -> str:
    return MEASURES[measure].replace("plf", "PLF")


def _leaders(outcomes: Outcomes) -> list[str]:
    """The best methods at the largest size."""
    n = max((n for mine in outcomes.values() for n, o in mine.items() if _median(o, "plf") is not None), default=None)
    if n is None:
        return []
    said = []
    for measure, title in (("plf", "PLF"), ("messages", "link uses"), ("evaluations", "evaluations")):
        known = {m.title: value for m, mine in outcomes.items() if (value := _median(mine[n], measure)) is not None}
        first, second = sorted(known, key=lambda name: known[name])[:2] if len(known) > 1 else (*known, *known)[:2]
        said.append(f"least {title}: {first} ({known[first]:,.0f}), then {second} ({known[second]:,.0f})")
    return [f"At n = {n}, {'; '.join(said)}."]


def _lines(outcomes: Outcomes, measure: str) -> list[Line]:
    out = []
    for method, mine in outcomes.items():
        bands = [[quantile(_all(o, measure), share) for o in mine.values()] for share in (0.25, 0.5, 0.75)]
        if any(value is not None for value in bands[1]):
            out.append(Line(method.label, list(mine), *bands))
    return out


def _accuracy_note(all_outcomes: dict[str, Outcomes]) -> str:
    """Whether counts are proportional to ln 1/epsilon: from the ratio of PLFs at the two accuracies."""
    ratios = []
    for outcomes in all_outcomes.values():
        for mine in outcomes.values():
            pairs = [(_median(o, "plf", ACCURACIES[0]), _median(o, "plf")) for o in mine.values()]
            ratios += [late / early for early, late in pairs if early and late]
    if not ratios:
        return ""
    low, middle, high = np.quantile(ratios, [0.1, 0.5, 0.9])
    wanted = math.log(ACCURACIES[-1]) / math.log(ACCURACIES[0])
    return (
        f"Going from {ACCURACIES[0]:g} to {ACCURACIES[-1]:g} multiplies the PLF by {middle:.2f} (median over methods, "
        f"graphs and sizes; eight in ten between {low:.2f} and {high:.2f}); ln 1/epsilon grows by {wanted:.2f}."
    )


def _tuning_note(sizes: Sequence[int]) -> str:
    """The rule for tuning steps, and its limit."""
    ends = {n: LAB_HOPS // n for n in sizes if LAB_HOPS // n < TUNED_FOR}
    words = (
        f"Tuned steps leave the least worst-case error after {TUNED_FOR:,} activations per agent (more where the run "
        f"takes more, to {MOST_TUNED:,}), on quadratics with curvature in [mu, L], L/mu about {_condition():.0f}, on "
        "the same graph and walk law."
    )
    if ends:
        named = ", ".join(f"{ahead} at n = {n}" for n, ahead in ends.items())
        words += (
            f" The rule changes for large relays: the planner simulates {LAB_HOPS:,} hops, which is {named}. Counts "
            "beyond what their steps were tuned for are marked *: better steps may exist."
        )
    return words


def _condition() -> float:
    return float(problem_of(KINDS).measured_facts().smoothness.max()) / RIDGE


def _show(found: Found, folder: Path) -> list[Block]:
    everything = {graph: _outcomes(found, graph) for graph in GRAPHS}
    intro = (
        f"Least squares, {DIM} coefficients, {RECORDS} records per agent, the same curvatures at every n, no noise. "
        "The error is that of D-ADMM, EXTRA, NIDS and RW-ADMM over all agents' copies, and of RECAL at the baton. "
    )
    blocks: list[Block] = [intro + _tuning_note(found.effort.sizes)]
    panels = []
    for measure, title in (("plf", "PLF"), ("messages", "link uses")):
        panels.append(
            [Panel(GRAPHS[g], "agents", title, _lines(o, measure), measure, log_x=True) for g, o in everything.items()]
        )
    if any(panel.lines for row in panels for panel in row):
        draw_panels(folder / "figures" / "complexity", panels)
        caption = f"What a relative error of {ACCURACIES[-1]:g} takes as the network grows: medians, quartiles shaded. "
        caption += '"Laps" is round-robin; "paper" is RECAL with the paper\'s steps.'
        blocks.append(Picture("complexity", caption))
    for graph, outcomes in everything.items():
        rows = _rows(graph, outcomes)
        blocks += [_orders_table(graph, rows, found.effort), _differences(graph, rows, outcomes)]
        blocks.append(_counts_table(graph, outcomes, found.effort))
    blocks.append(_accuracy_note(everything))
    each = [outcome for graph in everything.values() for mine in graph.values() for outcome in mine.values()]
    refused = dict.fromkeys(outcome["error"] for outcome in each if outcome.get("error", MISSING) != MISSING)
    if refused:
        blocks.append("Refused: " + " ".join(refused))
    return [block for block in blocks if block != ""]


COMPLEXITY = Experiment(
    name="complexity",
    title="Computation, PLF and communication against the number of agents",
    printed="Tables I to III",
    cells=cells_of,
    measure=measure_cell,
    show=_show,
)
