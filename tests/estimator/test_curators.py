"""The curators' baselines: AdaSSP and DP gradient descent against answers found some other way."""

import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import relaydp as rd

PATH = Path(__file__).parents[2] / "benchmarks" / "curators.py"
SPEC = importlib.util.spec_from_file_location("curators", PATH)
assert SPEC is not None and SPEC.loader is not None
curators = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(curators)

HUGE = rd.Budget(1e9, 1e-5)
L2 = 0.01


def records(count=400, features=5):
    draw = np.random.default_rng(0)
    X = draw.normal(size=(count, features))
    y = np.where(X @ draw.normal(size=features) + 0.3 * draw.normal(size=count) > 0, 1, -1)
    return rd.Records(X, y, classes=(-1, 1))


@pytest.fixture(scope="module")
def squares():
    return rd.least_squares(records(), agents=4, l2=L2, record_norm=1.0, label_bound=1.0)


@pytest.fixture(scope="module")
def classes():
    return rd.logistic(records(), agents=4, l2=L2, record_norm=1.0)


def test_the_curator_has_everybodys_records_and_the_same_objective(classes):
    curator = curators.gathered(classes)
    A, y = curators.all_records(curator)
    assert A.shape == (400, 5) and np.linalg.norm(A, axis=1).max() <= 1 + 1e-12
    assert np.array_equal(np.sort(y), np.sort(classes.data.y))
    x = np.linspace(-1, 1, 5)
    assert curator.objective(x) == pytest.approx(classes.objective(x), rel=1e-13)


def test_adassp_without_noise_is_ridge_regression(squares):
    A, b = curators.all_records(squares)
    ridge = Ridge(alpha=len(A) * L2, fit_intercept=False, tol=1e-14).fit(A, b).coef_
    (x,) = curators.adassp(curators.gathered(squares), HUGE, [0])
    assert np.abs(x - ridge).max() < 1e-3
    assert np.abs(x - rd.minimise(squares).x).max() < 1e-3


def test_adassp_noise_has_the_scale_of_its_formula():
    budget, B, Y, q, runs = rd.Budget(0.5, 1e-5), 2.0, 3.0, 4, 4000
    scales = curators.moment_scales(B, Y, budget)
    assert np.allclose(scales, np.array([B**2, math.sqrt(2) * B**2, 2 * B * Y]) / math.sqrt(2 * budget.rho / 3))
    nothing = curators.Moments(0.0, np.zeros((q, q)), np.zeros(q))
    draw = np.random.default_rng(0)
    found = [curators.release_moments(nothing, scales, draw) for _ in range(runs)]
    for part, scale in zip(zip(*found, strict=True), scales, strict=True):
        spread = np.std(np.asarray(part), axis=0) / scale
        assert np.abs(spread - 1).max() < 0.06  # five deviations: 1/sqrt(2 runs) each
    gram = found[0].gram
    assert np.array_equal(gram, gram.T) and len(np.unique(gram)) == q * (q + 1) // 2


def test_no_replacement_moves_the_moments_further_than_charged():
    draw = np.random.default_rng(0)
    B, Y = 2.0, 3.0
    bounds = curators.moment_scales(B, Y, HUGE) * math.sqrt(2 * HUGE.rho / 3)

    def extreme(count):
        """Records at their bounds, along the axes or anywhere: replacing e_1 by e_2 is the worst for A'A."""
        rows = draw.normal(size=(count, 3)) if draw.random() < 0.5 else np.eye(3)[draw.integers(3, size=count)]
        return B * rows / np.linalg.norm(rows, axis=1, keepdims=True), Y * draw.choice([-1.0, 1.0], count)

    most = np.zeros(3)
    for _ in range(2000):
        A, b = extreme(4)
        C, d = extreme(1)
        first = curators.exact_moments(A, b, Y)
        second = curators.exact_moments(np.vstack([A[1:], C]), np.append(b[1:], d), Y)
        above = np.triu_indices(3)
        moved = [
            abs(first.smallest - second.smallest),
            np.linalg.norm((first.gram - second.gram)[above]),
            np.linalg.norm(first.cross - second.cross),
        ]
        most = np.maximum(most, moved)
    assert (most <= bounds * (1 + 1e-9)).all()
    assert (most[1:] >= bounds[1:] * (1 - 1e-9)).all()  # and no smaller number would do


def test_adassp_regularises_by_as_much_as_the_noise_may_take_away():
    q, delta, scales = 4, 1e-5, np.array([2.0, 3.0, 5.0])
    cross, needed = np.arange(1.0, q + 1), 3.0 * math.sqrt(q * math.log(2 * q**2 / 0.05))
    margin = 2.0 * math.sqrt(math.log(6 / delta))  # what is taken off lambda_min to be sure of the rest
    cases = [(0.0, 0.0, needed), (0.0, 4.0, needed), (margin + 5.0, 4.0, needed - 5.0), (margin + needed, 4.0, 4.0)]
    for smallest, ridge, expected in cases:
        noisy = curators.Moments(smallest, np.zeros((q, q)), cross)
        assert np.allclose(curators.solve_moments(noisy, scales, ridge, delta), cross / expected)


def test_gradient_descent_without_noise_reaches_the_optimum(classes):
    x, T = curators.descend(curators.gathered(classes), HUGE, [0, 1], activations=400)
    assert T == 400 and np.abs(x - rd.minimise(classes).x).max() < 1e-4
    assert not np.array_equal(x[0], x[1])  # each seed has noise of its own


def test_rows_say_what_they_promise(squares, classes, monkeypatch, tmp_path):
    monkeypatch.delenv(curators.VARIABLE, raising=False)
    monkeypatch.setattr(curators, "ROOT", tmp_path)  # no diffprivlib here
    budget = rd.Budget(1.0, 1e-5)
    for problem, extra in ((classes, []), (squares, [curators.ADASSP])):
        rows = curators.curator_rows(problem, budget, range(3), best_of=(2, 5))
        expected = [curators.OPTIMUM, curators.NOTHING, curators.PROPOSED, curators.ORACLE, *extra, curators.ALONE]
        assert [row["method"] for row in rows] == expected
        assert {row["epsilon"] for row in rows[:2]} == {None} and {row["epsilon"] for row in rows[2:]} == {1.0}
        # the optimum's own excess is a difference of two equal numbers, each rounded in its way
        assert all(row["excess"] >= -1e-13 and 0 <= row["accuracy"] <= 1 for row in rows)
        assert "leaks" in rows[3]["guarantee"]
        table = curators.markdown(rows)
        assert all(table.count(f"| {method} |") == 2 for method in expected)
    relay = curators.relay_row(squares, budget, range(2))
    assert relay.keys() == rows[2].keys() and relay["runs"] == 2


@pytest.mark.slow
def test_diffprivlib_without_noise_finds_the_same_optimum():
    python = curators.peer_python(make=True)
    if python is None:
        pytest.skip("diffprivlib needs a package registry")
    for norm in (1.0, 2.0):
        problem = rd.logistic(records(), agents=4, l2=L2, record_norm=norm)
        x, versions = curators.perturb_objective(curators.gathered(problem), 1e9, [0], python)
        assert np.abs(x[0] - rd.minimise(problem).x).max() < 1e-6
        assert f"diffprivlib=={versions['diffprivlib']}" in curators.PINS
