"""What was run, in one paragraph of plain English, and the numbers that a reader asks for first."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from relaydp.algorithm import ALGORITHMS
from relaydp.auditing.campaigns import RECOVERED, SavedAttack
from relaydp.engine.saved_comparison import SavedComparison
from relaydp.privacy import SOUND
from relaydp.report import expectation
from relaydp.report.sources import Run

LOSSES = {
    "logistic": "logistic regression",
    "least-squares": "linear regression",
    "softmax": "softmax regression",
    "huber": "Huber regression",
}


class Tile(NamedTuple):
    """One number with its name, and a few words below it."""

    name: str
    value: str
    note: str


def whole(value: float) -> str:
    """
    >>> whole(12000)
    '12,000'
    """
    return f"{int(value):,}"


def number(value: float | None, digits: int = 4) -> str:
    """A number as people read it; "not measured" where there is none.

    >>> number(0.93900001), number(None), number(0.000947), number(1.0)
    ('0.939', 'not measured', '9.47e-4', '1')
    """
    if value is None or not math.isfinite(value):
        return "not measured"
    if 0 < abs(value) < 1e-3:
        digits_of, _, power = f"{value:.{digits - 1}e}".partition("e")
        return f"{float(digits_of):g}e{int(power)}"
    return f"{value:.{digits}g}"


def small(value: float) -> str:
    """A delta without the zero that Python puts into its power of ten.

    >>> small(1e-05), small(0.001)
    ('1e-5', '0.001')
    """
    return f"{value:g}".replace("e-0", "e-")


def reason(guarantee: str) -> str:
    """Why there is no guarantee, as a sentence.

    >>> reason("none: no noise was added.")
    'No noise was added.'
    """
    text = guarantee.removeprefix("none: ")
    return text[:1].upper() + text[1:]


def _model(loss: str) -> str:
    return LOSSES.get(loss.replace("_", "-"), loss)


def tell_run(run: Run) -> str:
    """The paragraph about one run."""
    expected = expectation.tell_expected(run.result.plan.get("expected_gain"))
    if expected:
        expected = f"What was expected before the run, from public facts: {expected[:1].lower()}{expected[1:]}"
    return " ".join(filter(None, [_who(run), _how(run), _promise(run), expected, _outcome(run)]))


def _who(run: Run) -> str:
    result, problem = run.result, run.result.config["problem"]
    sizes = problem["sizes"]
    each = f"{whole(sizes[0])} each" if min(sizes) == max(sizes) else f"{whole(min(sizes))} to {whole(max(sizes))} each"
    method = ALGORITHMS.get(result.algorithm)
    alone = "with a coordinator" if method is not None and method.links == "star" else "without a server"
    return (
        f"{whole(result.agents)} agents on the graph {result.graph} trained one {_model(problem['loss'])} model "
        f"together, {alone}, over {whole(sum(sizes))} records of {problem['data']} ({each})."
    )


def _how(run: Run) -> str:
    result = run.result
    method = ALGORITHMS.get(result.algorithm)
    title = result.algorithm if method is None else method.title
    if result.walk is not None:
        way = f"a baton made {whole(result.hops)} hops along a {result.walk} walk, and only its holder computed"
    else:
        way = f"in {whole(result.hops)} rounds agents computed and sent to "
        way += "the coordinator" if method is not None and method.links == "star" else "their neighbours"
    times = "once" if result.plf == 1 else f"{whole(result.plf)} times"
    return f"The method was {title}: {way}. No agent used its records more than {times}."


def _promise(run: Run) -> str:
    result = run.result
    if result.private and result.budget is not None:
        asked = result.budget
        return (
            f"Every single record is protected by differential privacy: the budget was epsilon {asked.epsilon:g} at "
            f"delta {small(asked.delta)}, and the run cost epsilon {result.epsilon:.6g} ({run.certificate['account']} "
            f"accounting), against {result.trust.against}."
        )
    if result.simulation:
        return f"S{result.guarantee[1:]}"
    return f"No epsilon stands behind this run. {reason(result.guarantee)}"


def _outcome(run: Run) -> str:
    result = run.result
    if result.status == "diverged":
        return result.message
    if run.trace is None:  # nothing was measured, or it is not for this page
        return "" if result.status == "finished" else result.message
    parts = []
    if math.isfinite(result.accuracy):
        parts.append(f"an accuracy of {100 * result.accuracy:.1f} %")
    above = "" if result.reference is None else f", {number(gap_of(run), 3)} above the best possible"
    parts.append(f"an objective of {number(result.objective)}{above}")
    text = f"The model reached {' and '.join(parts)}."
    text += f" {compared}" if (compared := expectation.tell_baselines(result.baselines)) else ""
    return text if result.status == "finished" else f"{text} {result.message}"


def gap_of(run: Run) -> float | None:
    """How far the last objective is above the best one, where that is known."""
    result = run.result
    if result.reference is None or not math.isfinite(result.objective):
        return None
    return max(result.objective - result.reference.value, 0.0)


def tiles(run: Run) -> list[Tile]:
    """The numbers that a reader asks for first."""
    result = run.result
    if result.private and result.budget is not None:
        first = Tile("Epsilon", f"{result.epsilon:.4g}", f"delta {small(result.budget.delta)}, exact")
    elif result.simulation and result.budget is not None:
        first = Tile("Simulation", "no promise", "the noise comes from a seed")
    else:
        first = Tile("Epsilon", "none", reason(result.guarantee))
    found = [first]
    if result.simulation and result.budget is not None:
        of = "of a private run of this plan" if result.mechanism in SOUND else "of this plan in real numbers"
        note = f"{of}, delta {small(result.budget.delta)}"
        found.append(Tile("Epsilon planned", f"{result.epsilon_planned:.4g}", note))
    if math.isfinite(result.accuracy):
        note = "of the model at the end"
        if (beside := result.baselines) is not None:
            note = f"most frequent class {100 * beside.majority:.1f} %"
            if beside.without_privacy is not None:
                note += f", no privacy {100 * beside.without_privacy:.1f} %"
        found.append(Tile("Accuracy", f"{100 * result.accuracy:.1f} %", note))
    if result.plan.get("expected_gain") is not None:
        middle = result.plan["expected_gain"]["middle"]
        found.append(Tile("Expected gain", f"{100 * middle:.0f} %", "of what a model without privacy gains"))
    if (gap := gap_of(run)) is not None:
        found.append(Tile("Objective gap", number(gap, 3), "above the best possible"))
    elif run.trace is not None:
        found.append(Tile("Objective", number(result.objective), "of the model at the end"))
    return [
        *found,
        Tile("PLF", whole(result.plf), "uses of its records by the busiest agent"),
        Tile("Messages", whole(result.messages), f"{whole(result.vectors)} vectors"),
        Tile("Agents", whole(result.agents), f"{whole(sum(result.config['problem']['sizes']))} records in all"),
    ]


def tell_comparison(found: SavedComparison) -> str:
    """The paragraph about one comparison."""
    about, ran = found.about, [row for row in found.rows if row["status"] != "refused"]
    if found.budget is None:
        budget = "without privacy"
    else:
        budget = f"each with a budget of epsilon {found.budget.epsilon:g} at delta {small(found.budget.delta)}, as "
        budget += "simulations without a promise"
    seeds = len(about["seeds"])
    text = (
        f"{len(found.rows)} algorithms were asked to fit one {_model(about['loss'])} model "
        f"over {whole(about['records'])} records of {about['data']}, held by {whole(about['agents'])} agents on "
        f"the graph {about['graph']}, {budget}. Numbers are medians over {seeds} seed{'s' if seeds > 1 else ''}."
    )
    if found.budget is not None:
        text += " All of them are simulations: no promise. An epsilon is what the proof gives the same plan."
    best = next((row for row in ran if row["excess"] is not None), None)
    if found.ranked_by == "accuracy" and ran and ran[0]["accuracy"] is not None:
        text += f" The highest accuracy, {100 * ran[0]['accuracy']:.1f} %, is that of {ran[0]['title']}."
    elif best is not None:
        text += f" The least excess objective, {number(best['excess'], 3)}, is that of {best['title']}"
        text += "." if best["accuracy"] is None else f", with an accuracy of {100 * best['accuracy']:.1f} %."
    if len(ran) < len(found.rows):
        text += f" {len(found.rows) - len(ran)} could not run as asked; the notes below the table say why."
    return text


def tell_attack(attack: SavedAttack) -> str:
    """The paragraph about one attack."""
    facts = attack.summary
    scored: list[dict[str, Any]] = [row for row in facts["rows"] if row["recovered"] is not None]
    text = (
        f"{len(facts['rows'])} attempts were made to work the records of {whole(facts['agents'])} agents "
        f"({facts['data']}, {_model(facts['loss'])}) out of what was sent. The "
        "attacks saw messages and public facts; the records only scored them."
    )
    whole_runs = [row["run"] for row in scored if row["recovered"] == row["gradients"]]
    none = [row["run"] for row in scored if row["recovered"] == 0]
    if whole_runs:
        text += f" Every gradient was recovered (to {RECOVERED:g}) from: {'; '.join(dict.fromkeys(whole_runs))}."
    if none:
        text += f" Not one from: {'; '.join(dict.fromkeys(none))}."
    return text
