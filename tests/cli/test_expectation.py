"""What a user is told of accuracy before and after a run, and of ranges that do not fit."""

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

import relaydp as rd
from relaydp.cli.main import app
from relaydp.data.fit_of_ranges import check_ranges
from relaydp.errors import InputError
from relaydp.planning.accuracy import noise_of
from relaydp.report.expectation import LOW_GAIN, left_of_zero, tell_baselines, tell_expected, warn_of
from relaydp.result import Baselines

BUDGET = rd.Budget(1.0, 1e-5)
SMALL = ["--data", "breast-cancer", "--agents", "4"]


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def planned(sizes, budget=BUDGET, **whom):
    return rd.plan(rd.public_facts(sizes, features=20), rd.ring(len(sizes)), budget, **whom)


def test_a_plan_says_what_accuracy_to_expect_and_so_does_its_json():
    shown = call("plan", "--sizes", "8x1500", "--features", "20", "--epsilon", "1")
    assert shown.exit_code == 0 and "warning" not in shown.stderr
    said = " ".join(shown.stdout.split())
    assert tell_expected(planned([1500] * 8).expected) in said
    done = call("plan", "--sizes", "8x30", "--features", "20", "--epsilon", "1", "--json")
    assert set(json.loads(done.stdout)["expected_gain"]) == {"low", "middle", "high"}
    assert done.stderr.startswith("warning: This budget is too small")


def test_a_plan_for_the_objective_says_nothing_of_accuracy():
    facts = rd.public_facts([100] * 3, features=4)
    plan = rd.plan(facts, rd.ring(3), BUDGET, objective="loss")
    assert plan.expected is None and tell_expected(plan.expected) == "" and warn_of(plan) == []


@pytest.mark.parametrize("loss", ["least-squares", "huber"])
def test_a_regression_that_can_expect_little_is_told_so(loss):
    def made(records, **options):
        facts = rd.public_facts([records] * 4, features=10, loss=loss, label_bound=1.0, record_norm=1.0)
        return rd.plan(facts, rd.ring(4), BUDGET, **options)

    [text] = warn_of(made(60))
    assert "model of zeros" in text and "More records" in text
    assert ("collusion=" in text) and "collusion=" not in warn_of(made(30, collusion=1))[0]
    assert warn_of(made(60, activations=2)) == []  # which is the user's word
    assert warn_of(made(20_000)) == []
    assert left_of_zero(made(60)) > left_of_zero(made(600)) > left_of_zero(made(20_000)) > 0


@pytest.mark.parametrize("whom", [{}, {"collusion": 1}, {"trust": "curator"}])
def test_what_the_warning_advises_is_enough(whom):
    """With as many records, or the epsilon, that it names, the same forecast is not low any more."""
    few = planned([12] * 8, **whom)
    [text] = warn_of(few)
    assert ("collusion=" in text) == (not whom)
    times, epsilon = (float(re.search(pattern, text)[1]) for pattern in (r"([\d.]+) times", r"epsilon of ([\d.]+)"))
    for plan in (planned([round(12 * times)] * 8, **whom), planned([12] * 8, rd.Budget(epsilon, 1e-5), **whom)):
        assert plan.expected.middle == pytest.approx(LOW_GAIN, abs=0.02)


def test_a_party_that_does_better_alone_is_named():
    plan = planned([20, 5000, 5000])
    assert any(text.startswith("Agent 1 alone, with 5,000 records") for text in warn_of(plan))
    assert noise_of(plan.facts.sizes, plan.ledger.limit) > 2.0 / (5000 * np.sqrt(2.0 * BUDGET.rho))
    assert not any("alone" in text for text in warn_of(planned([2000, 5000, 5000])))


def test_a_run_says_it_before_anything_is_spent(tmp_path):
    done = call("run", *SMALL, "--epsilon", "0.3", "--out", tmp_path / "kept")
    assert done.exit_code == 0, done.stderr
    assert done.stderr.startswith("expected: Of what a model without privacy gains")
    assert "warning: This budget is too small for these records" in done.stderr
    assert done.stdout.count("Of what a model without privacy gains") == 1 and "\n relative error" not in done.stdout
    for flag in ("--quiet", "--json"):
        told = call("run", *SMALL, "--epsilon", "0.3", flag).stderr.splitlines()
        assert told and all(line.startswith("warning: ") for line in told)
        assert call("run", *SMALL, "--epsilon", "40", flag).stderr == ""


def test_a_forecast_without_a_warning_is_told_once():
    done = call("run", "--data", "breast-cancer", "--agents", "3", "--epsilon", "40")
    assert done.exit_code == 0 and done.stderr == "", done.stderr
    assert done.stdout.count("Of what a model without privacy gains") == 1


def test_baselines_stay_in_keep(tmp_path):
    problem = rd.logistic(rd.load_data("breast-cancer"), agents=3, l2=0.1)
    result = rd.solve(problem, rd.ring(3), budget=BUDGET, activations=3, reference=True)
    held_out = problem.held_out.y
    assert result.baselines.majority == pytest.approx(np.unique(held_out, return_counts=True)[1].max() / len(held_out))
    assert result.baselines.without_privacy == pytest.approx(problem.accuracy(result.reference.x))
    folder = result.save(tmp_path / "kept")
    assert "baselines" in json.loads((folder / "keep" / "summary.json").read_text())
    assert all("baselines" not in path.read_text() for path in (folder / "publish").glob("*.json"))
    assert rd.load_result(folder).baselines == result.baselines
    assert rd.load_result(folder / "publish").baselines is None


def test_a_model_with_one_answer_says_so():
    records = rd.Records(np.eye(4)[np.arange(40) % 4] * 1e-3, [0, 0, 0, 1] * 10, classes=[0, 1])
    problem = rd.logistic(records, agents=2, intercept=True, ranges=(0.0, 1.0))
    result = rd.solve(problem, rd.ring(2), activations=2)
    assert result.accuracy == result.baselines.majority == 0.75 and result.baselines.answers == "0"
    assert "answers 0 for every record" in tell_baselines(result.baselines)
    assert tell_baselines(Baselines(0.75, 0.9, None)).endswith("a model without privacy one of 90.0 %.")


def write_ages(folder):
    path = folder / "ages.csv"
    draw = np.random.default_rng(0)
    ages, heights = draw.integers(18, 96, 60), draw.normal(1.7, 0.1, 60)
    rows = [f"{age},{height:.2f},{int(age > 60)}" for age, height in zip(ages, heights, strict=True)]
    path.write_text("\n".join(["age,height,ill", *rows]) + "\n")
    return path


def test_ranges_that_do_not_fit_are_found_on_the_owners_machine(tmp_path):
    path = write_ages(tmp_path)
    checked = call("data", "check", path, "--label", "ill", "--ranges", "0,1", "--json")
    assert checked.exit_code == 1
    assert [fit["verdict"] for fit in json.loads(checked.stdout)] == ["mostly clipped", "mostly clipped"]
    settings = tmp_path / "run.toml"
    settings.write_text(f'[data]\nsource = "{path.name}"\nlabel = "ill"\n[problem]\nranges = [[18, 1], [100, 2.2]]\n')
    assert call("data", "check", settings).exit_code == 0
    assert call("data", "check", path, "--label", "ill").exit_code == 2
    words = ["--data", path, "--label", "ill", "--agents", "3", "--classes", "0,1", "--epsilon", "1"]
    done = call("run", *words, "--ranges", "0,1", "--out", tmp_path / "kept")
    assert "mostly clipped: age, height" in done.stderr and "stays on this machine" in done.stderr
    kept = [file.read_text() for file in (tmp_path / "kept").rglob("*.json")]
    assert kept and not any("clipped:" in text for text in kept)


def test_a_range_of_which_little_is_used_is_found():
    X = np.linspace(30.0, 31.0, 50)[:, None]
    [fit] = check_ranges(X, np.zeros(1), np.full(1, 1000.0))
    assert (fit.outside, fit.verdict) == (0.0, "hardly used") and fit.used == pytest.approx(0.001)
    [constant] = check_ranges(np.zeros((5, 1)), np.zeros(1), np.ones(1))
    assert constant.verdict == ""


@pytest.mark.parametrize("trouble", [KeyboardInterrupt, MemoryError, InputError("no")])
def test_a_paid_result_is_not_lost_for_what_is_measured_beside_it(monkeypatch, tmp_path, trouble):
    """The model without privacy is trained after a private run, whose budget is spent by then."""
    from relaydp import engine

    real, asked = engine.solve, []

    def once(*arguments, **options):
        asked.append(options.get("budget"))
        if len(asked) == 2:
            raise trouble
        return real(*arguments, **options)

    monkeypatch.setattr(engine, "solve", once)
    done = call("run", *SMALL, "--epsilon", "2", "--out", tmp_path / "kept", "--json")
    assert done.exit_code == 0 and len(asked) == 2 and asked[1] is None, done.output
    assert json.loads(done.stdout)["private"] and rd.load_result(tmp_path / "kept").baselines.without_privacy is None


@pytest.mark.parametrize("loss", ["logistic", "least-squares"])
def test_what_trust_buys_is_told_for_the_whole_budget_and_for_this_plan(loss):
    """Noise beside a curator's is sqrt(n/(n - t)), however many laps each plan takes; and this plan has a row."""
    bound = ["--label-bound", "1"] if loss == "least-squares" else []
    words = ["--sizes", "12x400", "--features", "6", "--epsilon", "1", "--loss", loss, *bound, "--collusion", "5"]
    rows = json.loads(call("plan", *words, "--json").stdout)["by_trust"]
    assert [row["collusion"] for row in rows] == [0, 1, 2, 5, 11]
    assert [row["noise"] for row in rows] == pytest.approx([1.0, *(np.sqrt(12 / (12 - t)) for t in (1, 2, 5, 11))])
    assert "this plan" in call("plan", *words).stdout
