"""The benchmark of the rule for accuracy, on tiny sizes; nothing here asserts how good the rule is."""

import json
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import r2_score

import relaydp as rd
from relaydp.arrays import placed
from relaydp.auditing.noise import mean_moments
from relaydp.planning.accuracy import MOMENTUM
from relaydp.problem.coordinates import find_coordinates

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import accuracy  # noqa: E402
import accuracy_problems as problems  # noqa: E402
import curators  # noqa: E402

pytestmark = pytest.mark.shipped  # a benchmark measures what users have

TINY = accuracy.Grid((1.0, 4.0), (2,), (25, 26), (0.05, 0.2), (2.0**-6, 2.0**-4), (0.0, 0.5), seeds=2, again=2, fresh=2)


def tiny(name):
    return problems.Development(name, "generated", lambda: problems.generated(name, 1.0, 0.5, 160, 80, features=5))


@pytest.fixture(scope="module")
def found():
    return accuracy.search([tiny("a"), tiny("b")], TINY)


def test_there_are_as_many_problems_as_the_rule_says_and_none_is_reported():
    names = [each.name for each in problems.development()]
    assert len(names) == len(set(names)) == 93
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


def test_the_quick_bars_are_medians_with_ranges(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(accuracy, "peer_python", lambda make: pytest.fail("it was made") if make else None)
    file = tmp_path / "bars.json"
    accuracy.main(["bars", "--quick", "--data", "", "--out", str(file)])
    (row,) = json.loads(file.read_text())["rows"]
    assert (row["data"], row["agents"], row["epsilon"], row["score"]) == ("breast-cancer", 2, 1.0, "accuracy")
    middle, low, high = row["default"]
    assert low <= middle <= high
    assert row["within"] == (row["forecast"][0] <= middle <= row["forecast"][2])
    printed = capsys.readouterr().out
    assert f"| breast-cancer | 2 | 1 | {row['majority']:.4f} |" in printed
    assert " | - |\n" in printed and "- where no environment for it could be made" in printed


def test_a_regression_is_measured_by_the_part_of_the_variance_that_it_explains():
    records = accuracy.load("diabetes")
    assert (len(records), len(records.test), records.features) == (354, 88, 10)
    assert np.abs(records.y).max() <= 1.0 and np.abs(records.test.y).max() <= 1.0
    problem = accuracy.make_problem(records, 2)
    mean = np.zeros((1, 11))
    mean[0, -1] = records.test.y.mean()
    nothing, broken = accuracy.scores(problem, np.concatenate([mean, np.full((1, 11), np.nan)]))
    assert nothing == pytest.approx(0.0, abs=1e-12) and np.isnan(broken)
    x = np.linspace(-1.0, 1.0, 11)
    (mine,) = accuracy.scores(problem, x[None])
    assert mine == pytest.approx(r2_score(records.test.y, problem.predict(x, records.test.X)))


NOISELESS = """
from sklearn import linear_model


def LogisticRegression(*, epsilon, data_norm, random_state, **more):
    assert epsilon == 2.0 and data_norm == 1.0
    return linear_model.LogisticRegression(**more)


def LinearRegression(*, epsilon, bounds_X, bounds_y, random_state):
    assert epsilon == 2.0 and bounds_X == bounds_y == (-1.0, 1.0)
    return linear_model.LinearRegression()
"""


@pytest.fixture
def noiseless(tmp_path, monkeypatch):
    """diffprivlib with the noise left out."""
    for name, text in (
        ("diffprivlib/__init__.py", ""),
        ("diffprivlib/models.py", NOISELESS),
        ("diffprivlib-0.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: diffprivlib\nVersion: 0.0\n"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_a_curator_without_noise_is_scikit_learn_on_the_features_of_the_loss(noiseless):
    held = accuracy.load("breast-cancer")
    problem = accuracy.make_problem(held, 2)
    found, about = accuracy.by_a_curator(held, (2.0,), (0, 1), Path(sys.executable))
    X, y = accuracy.all_records(accuracy.make_problem(held, 1))
    model = LogisticRegression(tol=1e-10, max_iter=10_000).fit(X, y)
    scaled = problem.scale(held.test.X)
    shrunk = scaled / np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1.0)
    assert found == {2.0: accuracy.range_of(np.full(2, model.score(shrunk, problem.encode_labels(held.test.y))))}
    assert about["diffprivlib"] == "0.0"


def test_of_a_regression_it_is_least_squares_which_is_no_privacy_too(noiseless):
    records = accuracy.load("diabetes")
    found, _ = accuracy.by_a_curator(records, (2.0,), (0,), Path(sys.executable))
    assert found[2.0] == pytest.approx([accuracy.no_privacy(records)] * 3, abs=1e-6)
    assert 0.3 < found[2.0].middle < 0.7


def test_the_curators_of_the_other_benchmark_get_their_coefficients(noiseless):
    curator = rd.logistic("breast-cancer", agents=1, l2=0.01, record_norm=1.0)
    x, about = curators.perturb_objective(curator, 2.0, [0], Path(sys.executable))
    assert x[0] == pytest.approx(rd.minimise(curator).x, abs=1e-5) and about["diffprivlib"] == "0.0"


def test_the_last_line_names_where_the_relay_is_below_each_alone():
    def row(data, median):
        spread = {"default": accuracy.Range(median, 0.0, 1.0), "alone": accuracy.Range(0.7, 0.6, 0.8)}
        return {"data": data, "agents": 2, "epsilon": 1.0, **spread}

    said = accuracy.bar_counts([row("far", 0.59), row("near", 0.65), row("above", 0.7)])
    assert "In 1 of 3 rows" in said and "over the seeds: far with 2 at epsilon 1." in said
    assert "In 1 more" in said and "within the spread: near with 2 at epsilon 1." in said and "above" not in said


def test_data_that_is_not_there_is_an_error_of_one_line(capsys):
    with pytest.raises(SystemExit) as stop:
        accuracy.main(["bars", "--data", "nowhere"])
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
