"""The benchmark of the rule for accuracy, on tiny sizes; nothing here asserts how good the rule is."""

import json
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import relaydp as rd
from relaydp.arrays import placed
from relaydp.auditing.noise import mean_moments
from relaydp.planning.accuracy import MOMENTUM
from relaydp.problem.coordinates import find_coordinates

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import accuracy  # noqa: E402
import accuracy_problems as problems  # noqa: E402

TINY = accuracy.Grid((1.0, 4.0), (2,), (25, 26), (0.05, 0.2), (2.0**-6, 2.0**-4), (0.0, 0.5), seeds=2, again=2, fresh=2)


def tiny(name):
    return problems.Development(name, "generated", lambda: problems.generated(name, 1.0, 0.5, 160, 80, features=5))


@pytest.fixture(scope="module")
def found():
    return accuracy.search([tiny("a"), tiny("b")], TINY)


def test_there_are_as_many_problems_as_the_rule_says_and_none_is_reported():
    names = [each.name for each in problems.development()]
    assert len(names) == len(set(names)) == 85
    assert not set(names) & {"mnist01", "fashion01", *accuracy.TABLES.split(",")}
    assert set(accuracy.QUICK_PROBLEMS) <= set(names)


def test_a_search_measures_every_cell_and_is_kept(found, tmp_path):
    assert found.grid.shape == (2, 2, 2, 2, 2, 2)
    assert ((found.grid >= 0.0) & (found.grid <= 1.0)).all() and (found.noise > 0.0).all()
    found.save(tmp_path / "search.npz")
    again = accuracy.Search.load(tmp_path / "search.npz")
    assert all((getattr(again, name) == value).all() for name, value in vars(found).items())
    text = accuracy.search_tables(again)
    assert "| generated | 4 |" in text and "| all | 4 |" in text


def test_the_grid_of_an_earlier_search_is_taken_and_the_rule_run_anew(found):
    marked = accuracy.Search(**{**vars(found), "grid": found.grid + 1.0, "best": found.best + 1.0})
    again = accuracy.search([tiny("b")], TINY, earlier=marked)
    assert (again.best == found.best[1:] + 1.0).all() and (again.grid == found.grid[1:] + 1.0).all()
    assert (again.rule == found.rule[1:]).all()


def test_what_is_best_elsewhere_is_chosen_without_the_problem_itself(found):
    grid = np.zeros(found.grid.shape)
    grid[0, :, 0, 0, 0, 0], grid[1, :, 1, 1, 1, 1] = 1.0, 1.0
    noise = np.full(found.noise.shape, 0.01)
    both = accuracy.Search(**{**vars(found), "grid": grid, "noise": noise, "best": np.ones((2, 2))})
    assert (accuracy.regret_elsewhere(both) == 1.0).all()


def test_shares_are_of_the_gain_without_privacy(found):
    rule = np.array([[0.5, 0.75], [0.9, 0.9]])
    some = accuracy.Search(
        **{**vars(found), "rule": rule, "majority": np.array([0.5, 0.9]), "without": np.array([1.0, 0.905])}
    )
    assert accuracy.shares(some) == pytest.approx(np.array([[0.0, 0.5], [np.nan, np.nan]]), nan_ok=True)


@pytest.mark.parametrize("first", [0.0, 0.05])
def test_the_search_runs_the_method_that_relaydp_runs(first):
    """Without noise, with gradients that are clipped, before and after a lap that prepares."""
    records = problems.generated("same", 1.0, 0.5, 160, 80, features=5)
    clip, step, laps = 0.2, 2.0, 9
    settings = accuracy.Settings(np.zeros(1), np.full(1, clip), np.full(1, step), np.full(1, first))
    mine = np.asarray(accuracy.train(records, laps, settings, 0))[:, 0]
    data = rd.Records(records.X.astype(np.float64), records.y, classes=[-1, 1])
    problem = rd.logistic(data, agents=2, record_norm=1.0)
    held = problem.working_records
    change = None
    if first:
        told = placed(mean_moments(problem).mean(axis=0))
        change = find_coordinates(told, placed(0.0), placed(1.0), False, 1)
        held, step = held.in_coordinates(change), step * float(change.pace)
    x = last = np.zeros(6) if change is None else np.asarray(change.undo(change.start))
    for k in range(laps):
        v = x + min((k - 1) / (k + 2), MOMENTUM) * (x - last)
        each = np.asarray(held.gradients(placed(np.tile(v, (2, 1))), placed(clip)))
        last, x = x, v - step * (1 - k / laps) * each.mean(axis=0)
    assert mine == pytest.approx(x if change is None else np.asarray(change(x)), abs=1e-5)


def test_the_quick_search_prints_its_tables_and_its_machine(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(problems, "development", lambda: [tiny(name) for name in ("table0", "another")])
    monkeypatch.setattr(accuracy, "QUICK", TINY)
    file = tmp_path / "search.npz"
    accuracy.main(["search", "--quick", "--out", str(file)])
    printed = capsys.readouterr().out
    assert f"jax {jax.__version__}" in printed and "table0: regret" in printed
    assert accuracy.Search.load(file).names.tolist() == ["table0"]
    accuracy.main(["search", "--read", str(file)])
    assert capsys.readouterr().out.split("\n\n", 1)[1].strip() in printed
    with pytest.raises(SystemExit, match="matches no problem; the names are table0, another"):
        accuracy.main(["search", "--only", "none"])


def test_the_quick_bars_are_medians_with_ranges(tmp_path, capsys):
    file = tmp_path / "bars.json"
    accuracy.main(["bars", "--quick", "--data", "", "--out", str(file)])
    (row,) = json.loads(file.read_text())["rows"]
    assert (row["data"], row["agents"], row["epsilon"]) == ("breast-cancer", 2, 1.0)
    middle, low, high = row["default"]
    assert low <= middle <= high
    assert row["within"] == (row["forecast"][0] <= middle <= row["forecast"][2])
    printed = capsys.readouterr().out
    assert f"| breast-cancer | 2 | 1 | {row['majority']:.4f} |" in printed
