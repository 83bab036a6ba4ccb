"""compare: every algorithm is a row with numbers or with the reason why not."""

import json

import numpy as np
import pytest
from effort import size
from typer.testing import CliRunner

import relaydp as rd
from relaydp.cli.compare import print_comparison
from relaydp.cli.main import app

NUMBERS = ("plf", "messages", "vectors", "messages_paper", "excess", "relative_error", "accuracy", "seconds")


@pytest.fixture(scope="module")
def problem():
    return rd.logistic(rd.load_data("breast-cancer"), agents=4, l2=1e-2, record_norm=2.0)


@pytest.mark.sample(1)
@pytest.mark.parametrize("budget", [None, rd.Budget(4.0, 1e-4)], ids=["open", "private"])
def test_every_algorithm_is_a_row_with_numbers_or_a_reason(problem, budget):
    # a relay, one that minimises exactly, and two that a ring of four or a budget does not suit
    some = ["recal", "d-admm", "afbs", "m-admm"]
    table = rd.compare(problem, rd.ring(4), size("all", some), budget, seeds=range(2), activations=10)
    assert sorted(row["algorithm"] for row in table.rows) == size(rd.algorithms(), sorted(some))
    for row in table.rows:
        empty = [key for key in NUMBERS if row[key] is None]
        assert not empty or row["note"], f"{row['algorithm']} leaves {empty} empty without a reason"
        if budget is not None and row["status"] == "finished":
            assert row["epsilon_planned"] <= 4.0
    by, last_first = ("excess", False) if budget is None else ("accuracy", True)
    ranked = [row[by] for row in table.rows if row[by] is not None]
    assert table.ranked_by == by and ranked == sorted(ranked, reverse=last_first)
    json.dumps(table.summary(), allow_nan=False)


def test_a_row_is_the_median_of_its_runs(problem):
    budget = rd.Budget(4.0, 1e-4)
    table = rd.compare(problem, rd.ring(4), ["recal"], budget, seeds=range(3), activations=10)
    runs = [
        rd.solve(problem, rd.ring(4), "recal", budget=budget, seed=s, activations=10, walk="tour") for s in range(3)
    ]
    assert np.isclose(table.row("recal")["accuracy"], np.median([run.accuracy for run in runs]))
    assert np.isclose(
        table.row("recal")["excess"], np.median([run.objective - run.reference.value for run in runs]), rtol=1e-6
    )


def test_a_classifier_planned_for_accuracy_is_measured_as_the_others_and_ranked_by_it(capsys):
    problem = rd.logistic(rd.load_data("breast-cancer"), agents=4, l2=1e-3, record_norm=2.0)
    asked = {"budget": rd.Budget(4.0, 1e-4), "seeds": range(2), "activations": 5}
    table = rd.compare(problem, rd.ring(4), ["recal", "auto", "relay-gradient"], **asked)
    assert sorted(row["algorithm"] for row in table.rows) == ["recal", "relay-gradient"]  # auto is one of them
    for row in table.rows:
        assert row["excess"] > 0 and row["relative_error"] > 0 and row["note"] == ""
    assert table.rows[0]["accuracy"] >= table.rows[1]["accuracy"] and table.ranked_by == "accuracy"
    assert {result.reference.value for result in table.results.values()} == {table.best_value}
    print_comparison(table, None)
    assert "ranked by accuracy, highest first" in capsys.readouterr().out

    loss = rd.compare(problem, rd.ring(4), ["recal", "auto", "relay-gradient"], objective="loss", **asked)
    assert loss.ranked_by == "excess" and loss.rows[0]["excess"] <= loss.rows[1]["excess"]
    for objective in (None, "loss"):  # what is asked for is what is planned for
        options = {"budget": asked["budget"], "seed": 0, "activations": 5, "objective": objective}
        found = rd.solve(problem, rd.ring(4), "relay-gradient", **options)
        assert np.array_equal(found.x, (table if objective is None else loss).results["relay-gradient"].x)
    aimed = rd.compare(problem, rd.ring(4), ["recal", "relay-gradient"], objective="accuracy", **asked)
    assert [row["accuracy"] for row in aimed.rows] == [row["accuracy"] for row in table.rows]


def test_accuracy_without_a_budget_or_classes_is_refused(problem):
    with pytest.raises(rd.errors.InputError, match="what a budget is planned for, and there is none"):
        rd.compare(problem, rd.ring(4), ["recal"], objective="accuracy")
    least = rd.least_squares(rd.load_data("breast-cancer"), agents=4, label_bound=1.0, record_norm=2.0, clip=1.0)
    with pytest.raises(rd.errors.InputError, match="has no accuracy"):
        rd.compare(least, rd.ring(4), ["recal"], rd.Budget(4.0, 1e-4), objective="accuracy")
    plain = rd.compare(problem, rd.ring(4), ["auto"], seeds=range(1), activations=5)
    assert [row["algorithm"] for row in plain.rows] == ["recal"] and plain.ranked_by == "excess"


def test_only_a_minimiser_that_is_zero_is_said_to_be():
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (40, 2))
    zero = rd.logistic(rd.Records(X, (X[:, 0] > 0).astype(int)), agents=4, l1=10.0)
    found = rd.compare(zero, rd.ring(4), ["recal"], seeds=range(2), activations=10)
    assert "x* = 0" in found.rows[0]["note"] and found.rows[0]["relative_error"] is None


def test_the_command_prints_json_a_table_and_a_figure(tmp_path):
    call = CliRunner().invoke
    options = ["compare", "--data", "breast-cancer", "--agents", "4", "--algorithms", "recal,pg-extra", "--seeds", "2"]
    done = call(app, [*options, "--activations", "8", "--epsilon", "3", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert {row["algorithm"] for row in found["rows"]} == {"recal", "pg-extra"}
    figure = tmp_path / "curves.svg"
    done = call(app, [*options, "--activations", "8", "--figure", str(figure)])
    assert done.exit_code == 0 and "pg-extra" in done.stdout and figure.stat().st_size > 10_000


def test_without_a_minimiser_they_are_ranked_by_the_objective(capsys):
    X = np.linspace(-1.0, 1.0, 24)[:, None]
    problem = rd.logistic(rd.Records(X, (X[:, 0] > 0).astype(int)), agents=3)
    found = rd.compare(problem, rd.ring(3), ["recal", "pg-extra"], seeds=range(2), activations=10)
    assert np.isnan(found.best_value)
    values = [row["objective"] for row in found.rows]
    assert values == sorted(values) and all(row["excess"] is None for row in found.rows)
    assert all("no minimiser" in row["note"] and row["status"] == "finished" for row in found.rows)
    runs = rd.sweep(problem, rd.ring(3), range(2), activations=3, progress=False)
    assert np.isnan(runs.excess).all() and np.isfinite(runs.objective).all()
    print_comparison(found, None)
    assert "excess F" not in capsys.readouterr().out


def test_unknown_names_are_refused_with_the_nearest():
    done = CliRunner().invoke(app, ["compare", "--algorithms", "recal,pg-extr", "--data", "breast-cancer"])
    assert done.exit_code == 2 and "Did you mean 'pg-extra'" in done.stderr
