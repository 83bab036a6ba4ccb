"""The benchmark of the parts of the rule, on tiny sizes; nothing here asserts what a part is worth."""

import json
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import relaydp as rd

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import accuracy  # noqa: E402
import accuracy_parts as parts  # noqa: E402
import accuracy_problems  # noqa: E402

pytestmark = pytest.mark.shipped  # a benchmark measures what users have

BUDGET = rd.Budget(20.0, 1e-5)  # enough to see that the classes are of different sizes
SMALL = rd.Budget(0.01, 1e-5)  # nothing is to be seen, and no lap prepares
SEEDS = (0, 1)


def tiny():
    """Classes of different sizes, so that start and pace have something to say."""
    X, y, X_test, y_test = accuracy_problems.generated("tiny", 1.0, 1.5, 160, 80, features=5)
    known = {"classes": (-1, 1)}
    return rd.Records(X, y, name="tiny", test=rd.Records(X_test, y_test, **known), **known)


@pytest.fixture(scope="module")
def problem():
    return accuracy.make_problem(tiny(), parts.AGENTS)


@pytest.fixture(scope="module")
def graph():
    return rd.ring(parts.AGENTS)


def models(name, problem, graph):
    return parts.models_of(parts.PARTS[name], problem, graph, [BUDGET], SEEDS)[0]


def changed_steps(plan, other):
    return {name for name, value in plan.steps._asdict().items() if value != getattr(other.steps, name)}


def test_the_default_is_what_a_sweep_runs(problem, graph):
    runs = rd.sweep(problem, graph, SEEDS, [BUDGET], reference=False, progress=False)
    assert models("default", problem, graph) == pytest.approx(runs.x, rel=1e-9)


def test_every_plan_differs_from_the_default_in_its_part_alone(problem, graph):
    facts = problem.public_facts()
    plans = {name: part.plan(facts, graph, BUDGET) for name, part in parts.PARTS.items()}
    base = plans["default"]
    assert base.preparing > 0 and base.steps.settled == 100.0
    gradients = {name: plan.activations - (plan.preparing > 0) for name, plan in plans.items()}
    assert gradients == dict.fromkeys(plans, 100) | {"25 laps": 25, "400 laps": 400}
    assert {name for name, plan in plans.items() if not plan.preparing} == {"no lap that prepares"}
    assert {name for name, plan in plans.items() if plan.clip != base.clip} == {"clip at the bound"}
    assert plans["clip at the bound"].clip == facts.bound
    changes = {name: changed_steps(plan, base) for name, plan in plans.items()}
    follows, laps = {"stepsize"}, {"stepsize", "settled"}
    assert changes == dict.fromkeys(plans, set()) | {
        "no lap that prepares": follows,  # all of the budget is for gradients
        "clip at the bound": follows,
        "steps that stay": {"settled"},
        "Nesterov's momentum": {"momentum"},
        "no momentum": {"momentum"},
        "25 laps": laps,
        "400 laps": laps,
    }
    for plan in plans.values():
        assert plan.epsilon == pytest.approx(BUDGET.epsilon, rel=1e-6)


def test_where_none_prepares_there_is_nothing_to_leave_out(problem, graph):
    facts = problem.public_facts()
    assert parts.default(facts, graph, SMALL).preparing == 0
    assert parts.with_laps(25)(facts, graph, SMALL).activations == 25


@pytest.mark.parametrize("name", ["prepares, starts at 0", "prepares, without a pace"])
def test_start_and_pace_are_left_out_of_the_run_and_only_there(problem, graph, name):
    before = models("default", problem, graph)
    assert np.abs(models(name, problem, graph) - before).max() > 1e-6
    assert np.array_equal(models("default", problem, graph), before)


def test_without_a_start_and_without_steps_the_model_stays_at_0(problem, graph):
    still = parts.Part(parts.with_steps(stepsize=0.0), parts.start_at_0)
    assert (parts.models_of(still, problem, graph, [BUDGET], SEEDS) == 0.0).all()
    started = parts.Part(parts.with_steps(stepsize=0.0))
    assert np.abs(parts.models_of(started, problem, graph, [BUDGET], SEEDS)).max() > 0.0


def test_the_table_has_a_row_for_every_part(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(accuracy, "load", lambda name: tiny())
    monkeypatch.setattr(accuracy, "EPSILONS", (SMALL.epsilon, BUDGET.epsilon))
    file = tmp_path / "parts.json"
    parts.main(["--data", "tiny", "--seeds", "2", "--out", str(file)])
    rows = json.loads(file.read_text())["rows"]
    printed = capsys.readouterr().out
    assert f"jax {jax.__version__}" in printed and "| part | tiny, 0.01 | tiny, 20 | mean |" in printed
    titles = [*parts.PARTS, parts.RECAL]
    assert [(row["part"], row["epsilon"]) for row in rows] == [(title, e) for title in titles for e in (0.01, 20.0)]
    unchanged = {row["part"] for row in rows if row["accuracy"] is None}
    assert unchanged == {name for name, part in parts.PARTS.items() if part.of_preparing}
    held = {(row["part"], row["epsilon"]): row["accuracy"] for row in rows}
    base = held["default", 20.0]
    assert f"| default | {held['default', 0.01]:.4f} | {base:.4f} |" in printed
    assert f"| no lap that prepares | - | {100 * (held['no lap that prepares', 20.0] - base):+.2f} |" in printed
    assert all(f"\n| {title} |" in printed for title in titles)


def test_data_that_is_not_there_is_an_error_of_one_line(capsys):
    with pytest.raises(SystemExit) as stop:
        parts.main(["--data", "nowhere"])
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
