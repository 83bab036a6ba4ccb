"""The reference minimiser against cvxpy and scikit-learn, its certificate recomputed in NumPy."""

import itertools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import pytest
from scipy.special import expit, log_softmax, softmax
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, Ridge

import relaydp as rd
from relaydp import prox
from relaydp.errors import RelayError
from relaydp.problem import minimise
from relaydp.problem.reference import find_minimiser

SIZES = [4, 20, 9]
RECORDS, FEATURES, CLASSES = sum(SIZES), 5, 3
BEND = 0.5
L2 = 0.05
SHARE = np.repeat([1 / (len(SIZES) * size) for size in SIZES], SIZES)  # 1/(n m_i), record by record


class Loss(NamedTuple):
    make: Callable[..., rd.Problem]
    outputs: int
    curvature: float
    values: Callable[[np.ndarray, np.ndarray], np.ndarray]
    slopes: Callable[[np.ndarray, np.ndarray], np.ndarray]
    model: Callable[[Any, np.ndarray], Any]  # cvxpy: the weighted sum of losses


def signs(y: np.ndarray) -> np.ndarray:
    return 2.0 * y - 1.0


def gaps(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    return z[:, 0] - y


LOSSES = {
    "least_squares": Loss(
        rd.least_squares,
        1,
        1.0,
        values=lambda z, y: gaps(z, y) ** 2 / 2,
        slopes=lambda z, y: gaps(z, y)[:, None],
        model=lambda z, y: 0.5 * cp.sum(cp.multiply(SHARE, cp.square(z[:, 0] - y))),
    ),
    "logistic": Loss(
        rd.logistic,
        1,
        0.25,
        values=lambda z, y: np.logaddexp(0, -signs(y) * z[:, 0]),
        slopes=lambda z, y: (-signs(y) * expit(-signs(y) * z[:, 0]))[:, None],
        model=lambda z, y: cp.sum(cp.multiply(SHARE, cp.logistic(cp.multiply(-signs(y), z[:, 0])))),
    ),
    "huber": Loss(
        lambda *args, **kwargs: rd.huber(*args, threshold=BEND, **kwargs),
        1,
        1.0,
        values=lambda z, y: np.where(
            abs(gaps(z, y)) <= BEND, gaps(z, y) ** 2 / 2, BEND * abs(gaps(z, y)) - BEND**2 / 2
        ),
        slopes=lambda z, y: np.clip(gaps(z, y), -BEND, BEND)[:, None],
        model=lambda z, y: 0.5 * cp.sum(cp.multiply(SHARE, cp.huber(z[:, 0] - y, BEND))),
    ),
    "softmax": Loss(
        rd.softmax,
        CLASSES,
        0.5,
        values=lambda z, y: -log_softmax(z, axis=1)[np.arange(len(y)), y],
        slopes=lambda z, y: softmax(z, axis=1) - np.eye(CLASSES)[y],
        model=lambda z, y: (
            cp.sum(cp.multiply(SHARE, cp.log_sum_exp(z, axis=1)))
            - cp.sum(cp.multiply(SHARE[:, None] * np.eye(CLASSES)[y], z))
        ),
    ),
}


class Penalty(NamedTuple):
    make: Callable[[int], Any]  # from the number of penalised coefficients
    value: Callable[[np.ndarray], float]
    prox: Callable[[np.ndarray, float], np.ndarray]
    model: Callable[[Any], tuple[Any, list[Any]]]


def groups(dim: int) -> np.ndarray:
    return np.arange(dim) // 2


def parts(dim: int) -> list[np.ndarray]:
    return [np.flatnonzero(groups(dim) == group) for group in range(groups(dim)[-1] + 1)]


def soft(v: np.ndarray, by: float) -> np.ndarray:
    return np.sign(v) * np.maximum(np.abs(v) - by, 0)


def group_soft(v: np.ndarray, t: float) -> np.ndarray:
    x = np.zeros_like(v)
    for part in parts(v.size):
        norm, by = np.linalg.norm(v[part]), t * 0.04 * np.sqrt(part.size)
        x[part] = v[part] * (1 - by / norm) if norm > by else 0
    return x


PENALTIES = {
    "none": Penalty(lambda dim: prox.none(), lambda x: 0.0, lambda v, t: v, lambda x: (0.0, [])),
    "l1": Penalty(
        lambda dim: prox.l1(0.05),
        lambda x: 0.05 * np.abs(x).sum(),
        lambda v, t: soft(v, 0.05 * t),
        lambda x: (0.05 * cp.norm1(x), []),
    ),
    "group_lasso": Penalty(
        lambda dim: prox.group_lasso(0.04, groups(dim)),
        lambda x: sum(0.04 * np.sqrt(part.size) * np.linalg.norm(x[part]) for part in parts(x.size)),
        group_soft,
        lambda x: (sum(0.04 * np.sqrt(part.size) * cp.norm2(x[part]) for part in parts(x.size)), []),
    ),
    "box": Penalty(
        lambda dim: prox.box(-0.1, 0.2),
        lambda x: 0.0,
        lambda v, t: np.clip(v, -0.1, 0.2),
        lambda x: (0.0, [x >= -0.1, x <= 0.2]),
    ),
    "box away from 0": Penalty(
        lambda dim: prox.box(0.1, 0.6),
        lambda x: 0.0,
        lambda v, t: np.clip(v, 0.1, 0.6),
        lambda x: (0.0, [x >= 0.1, x <= 0.6]),
    ),
    "l2_ball": Penalty(
        lambda dim: prox.l2_ball(0.5),
        lambda x: 0.0,
        lambda v, t: v * 0.5 / max(0.5, np.linalg.norm(v)),
        lambda x: (0.0, [cp.sum_squares(x) <= 0.5**2]),
    ),
    "elastic_net": Penalty(
        lambda dim: prox.elastic_net(0.03, 0.1),
        lambda x: 0.03 * np.abs(x).sum() + 0.05 * (x @ x),
        lambda v, t: soft(v, 0.03 * t) / (1 + 0.1 * t),
        lambda x: (0.03 * cp.norm1(x) + 0.05 * cp.sum_squares(x), []),
    ),
}


def draw_records(loss: str) -> tuple[np.ndarray, np.ndarray]:
    """Labels that depend on the features, with noise enough that no classes are separable."""
    draw = np.random.default_rng(11)
    X = draw.normal(size=(RECORDS, FEATURES))
    score = X @ draw.normal(size=(FEATURES, CLASSES)) + 1.5 * draw.normal(size=(RECORDS, CLASSES))
    if loss == "softmax":
        return X, score.argmax(axis=1)
    return X, (score[:, 0] > 0).astype(int) if loss == "logistic" else score[:, 0]


class Solved(NamedTuple):
    """A problem, our answer to it, and F, grad f and prox in NumPy."""

    reference: Any
    value: Callable[[np.ndarray], float]
    gradient: Callable[[np.ndarray], np.ndarray]
    prox: Callable[[np.ndarray, float], np.ndarray]
    smoothness: float
    rival: np.ndarray  # what cvxpy found
    loss: str
    penalised: int  # the coefficients before the intercepts


def solve_both(name: str, penalty_name: str, intercept: bool) -> Solved:
    loss, penalty = LOSSES[name], PENALTIES[penalty_name]
    X, y = draw_records(name)
    penalised = FEATURES * loss.outputs
    regulariser = penalty.make(penalised)
    problem = loss.make(rd.Records(X, y), SIZES, l2=L2, regulariser=regulariser, intercept=intercept)
    A = np.column_stack([X, np.ones(RECORDS)]) if intercept else X

    def scores(x: np.ndarray) -> np.ndarray:
        return A @ x.reshape(-1, loss.outputs)

    def value(x: np.ndarray) -> float:
        kept = x[:penalised]
        return float(SHARE @ loss.values(scores(x), y) + L2 / 2 * (kept @ kept) + penalty.value(kept))

    def gradient(x: np.ndarray) -> np.ndarray:
        data = (A.T @ (SHARE[:, None] * loss.slopes(scores(x), y))).ravel()
        return data + L2 * np.where(np.arange(x.size) < penalised, x, 0)

    def whole_prox(v: np.ndarray, t: float) -> np.ndarray:
        return np.concatenate([penalty.prox(v[:penalised], t), v[penalised:]])

    agents = np.split(A, np.cumsum(SIZES)[:-1])
    tops = [loss.curvature * np.linalg.eigvalsh(part.T @ part / len(part))[-1] + L2 for part in agents]

    x = cp.Variable(A.shape[1] * loss.outputs)
    r, constraints = penalty.model(x[:penalised])
    fit = loss.model(A @ cp.reshape(x, (A.shape[1], loss.outputs), order="C"), y)
    rival = cp.Problem(cp.Minimize(fit + L2 / 2 * cp.sum_squares(x[:penalised]) + r), constraints)
    with warnings.catch_warnings():
        # asked for more digits than it always has, it may say so; the comparison decides whether they suffice
        warnings.filterwarnings("ignore", "Solution may be inaccurate")
        rival.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    found = minimise(problem)
    return Solved(found, value, gradient, whole_prox, float(np.mean(tops)), np.asarray(x.value), name, penalised)


CASES = [(*pair, False) for pair in itertools.product(LOSSES, PENALTIES)]
CASES += [("logistic", "l1", True), ("huber", "group_lasso", True), ("softmax", "box", True)]


@pytest.fixture(scope="module", params=CASES, ids=["-".join(map(str, case[: 2 + case[2]])) for case in CASES])
def solved(request):
    return solve_both(*request.param)


def centred(x: np.ndarray, loss: str) -> np.ndarray:
    """Softmax is indifferent to a constant added to every class; the others are not."""
    return x - x.mean(axis=-1, keepdims=True) if loss == "softmax" else x


@pytest.mark.sample(5)
def test_the_minimiser_is_cvxpys(solved):
    x, rival, at = solved.reference.x, solved.rival, solved.penalised
    np.testing.assert_allclose(solved.reference.value, solved.value(x), rtol=1e-13)
    np.testing.assert_allclose(solved.value(x), solved.value(rival), rtol=1e-8)
    np.testing.assert_allclose(x[:at], rival[:at], atol=2e-6)
    if at < x.size:
        np.testing.assert_allclose(centred(x[at:], solved.loss), centred(rival[at:], solved.loss), atol=2e-6)


@pytest.mark.sample(5)
def test_the_certificate_can_be_recomputed(solved):
    x, t = solved.reference.x, 1 / solved.smoothness
    start = solved.prox(np.zeros_like(x), 1.0)
    scale = max(1.0, float(np.linalg.norm(solved.gradient(start))))
    residual = np.linalg.norm(x - solved.prox(x - t * solved.gradient(x), t)) / t
    assert solved.reference.residual <= 1e-12 * scale
    assert residual <= 1e-12 * scale + 1e-14
    nearby = x + 1e-6 * np.random.default_rng(0).normal(size=x.size)
    assert np.linalg.norm(nearby - solved.prox(nearby - t * solved.gradient(nearby), t)) / t > 1e-9


# scikit-learn sums over records; weights that add up to their number make it average over agents as we do
AGENT_WEIGHTS = SHARE * RECORDS


def build(loss: str, **options) -> tuple[rd.Problem, np.ndarray, np.ndarray]:
    X, y = draw_records(loss)
    return LOSSES[loss].make(rd.Records(X, y), SIZES, **options), X, y


@pytest.mark.sample(2)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_logistic_regression_agrees_with_scikit_learn(loss, intercept):
    problem, X, y = build(loss, l2=0.1, intercept=intercept)
    model = LogisticRegression(
        C=1 / (RECORDS * 0.1), fit_intercept=intercept, solver="newton-cholesky", tol=1e-12, max_iter=200
    ).fit(X, y, AGENT_WEIGHTS)
    x = minimise(problem).x
    np.testing.assert_allclose(x[: model.coef_.size], model.coef_.T.ravel(), atol=1e-6)
    if intercept:
        np.testing.assert_allclose(centred(x[model.coef_.size :], loss), centred(model.intercept_, loss), atol=1e-6)


EXACT = {"tol": 1e-12, "max_iter": 100_000}


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("options", "model", "intercept"),
    [
        ({"l2": 0.1}, Ridge(alpha=0.1 * RECORDS), False),
        ({"l2": 0.1}, Ridge(alpha=0.1 * RECORDS), True),
        ({"l1": 0.2}, Lasso(alpha=0.2, **EXACT), False),
        ({"l1": 0.2}, Lasso(alpha=0.2, **EXACT), True),
        ({"regulariser": prox.elastic_net(0.12, 0.18)}, ElasticNet(alpha=0.3, l1_ratio=0.4, **EXACT), False),
        ({"regulariser": prox.nonnegative()}, Lasso(alpha=1e-12, positive=True, **EXACT), False),
    ],
    ids=["ridge", "ridge-intercept", "lasso", "lasso-intercept", "elastic net", "nonnegative"],
)
def test_linear_regression_agrees_with_scikit_learn(options, model, intercept):
    problem, X, y = build("least_squares", intercept=intercept, **options)
    theirs = model.set_params(fit_intercept=intercept).fit(X, y, AGENT_WEIGHTS)
    x = minimise(problem).x
    np.testing.assert_allclose(x[:FEATURES], theirs.coef_, atol=1e-6)
    if intercept:
        np.testing.assert_allclose(x[FEATURES], theirs.intercept_, atol=1e-6)


def test_a_custom_loss_is_minimised_like_the_same_loss_built_in():
    X, y = draw_records("least_squares")
    own = rd.custom(lambda x, a, b: 0.5 * (a @ x - b) ** 2, rd.Records(X, y), SIZES, L2, 0.05, smoothness=20.0)
    weights = SHARE[:, None] * X
    x = minimise(own).x
    slope = weights.T @ (X @ x - y) + L2 * x
    assert np.abs(np.where(x != 0, slope + 0.05 * np.sign(x), np.maximum(np.abs(slope) - 0.05, 0))).max() < 1e-11


def test_least_squares_with_many_minimisers_finds_one():
    X, y = draw_records("least_squares")
    X[:, -1] = X[:, 0] - 2 * X[:, 1]
    found = minimise(rd.least_squares(rd.Records(X, y), SIZES))
    assert np.linalg.norm(X.T @ (SHARE * (X @ found.x - y))) < 1e-11
    root = np.sqrt(SHARE)
    best = np.linalg.lstsq(root[:, None] * X, root * y)[0]
    np.testing.assert_allclose(found.value, SHARE @ (X @ best - y) ** 2 / 2, rtol=1e-12)


def test_softmax_without_a_ridge_stays_near_the_minimisers():
    """A constant added to all classes' coefficients changes nothing; the answer must not drift along it."""
    problem, X, y = build("softmax")
    model = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10, max_iter=1000).fit(X, y, AGENT_WEIGHTS)
    W = minimise(problem).x.reshape(FEATURES, CLASSES)
    np.testing.assert_allclose(centred(W, "softmax"), centred(model.coef_.T, "softmax"), atol=1e-4)
    assert np.abs(W.mean(axis=1)).max() < 1e-3


def test_records_that_are_all_zero_have_the_answer_zero():
    found = minimise(rd.least_squares(rd.Records(np.zeros((RECORDS, FEATURES)), np.ones(RECORDS)), SIZES))
    np.testing.assert_array_equal(found.x, 0)
    assert found.value == pytest.approx(0.5, abs=1e-14)


SEPARABLE = {
    "logistic": (rd.logistic, lambda score: score > 0, {}),
    "logistic, intercept": (rd.logistic, lambda score: score > 0.5, {"intercept": True}),
    "logistic, non-negative": (rd.logistic, lambda score: score > 0, {"regulariser": prox.nonnegative()}),
    "softmax, intercept": (rd.softmax, lambda score: np.digitize(score, [-0.5, 0.5]), {"intercept": True}),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize(("make", "label", "options"), SEPARABLE.values(), ids=list(SEPARABLE))
def test_separable_classes_without_a_ridge_have_no_minimiser(make, label, options):
    X = np.random.default_rng(2).normal(size=(RECORDS, FEATURES))
    score = X.sum(axis=1)
    X += 0.05 * np.sign(score)[:, None]  # a margin
    data = rd.Records(X, label(X.sum(axis=1)).astype(int))
    with pytest.raises(RelayError, match="Raise l2"):
        minimise(make(data, SIZES, **options))
    assert minimise(make(data, SIZES, l2=0.01, **options)).residual < 1e-11


def test_classes_that_separate_slowly_are_recognised_by_newtons_method():
    """A margin a thousandth of the spread: gradients would take millions of steps to see it."""
    X = np.random.default_rng(3).normal(size=(RECORDS, FEATURES))
    score = X.sum(axis=1)
    X += 1e-3 * np.sign(score)[:, None]
    problem = rd.logistic(rd.Records(X, (score > 0).astype(int)), SIZES)
    for _ in range(2):  # said again without looking again
        with pytest.raises(RelayError, match="no minimiser .separable classes without l2.*Raise l2"):
            minimise(problem)
    assert find_minimiser(problem) is None


def test_an_ill_conditioned_minimiser_is_found_without_a_ridge():
    """Features on scales that differ by a factor of a thousand, labels with noise: few accelerated steps are made."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(RECORDS, FEATURES)) * np.logspace(0, -3, FEATURES)
    y = (X @ np.logspace(0, 3, FEATURES) + 2 * rng.logistic(size=RECORDS) > 0).astype(int)
    found = minimise(rd.logistic(rd.Records(X, y), SIZES))
    assert found.residual <= 1e-9 and found.steps <= 1000


def test_an_answer_is_remembered():
    problem, _, _ = build("logistic", l2=0.1)
    assert minimise(problem) is minimise(problem)
    assert minimise(problem, tolerance=1e-6).residual >= minimise(problem).residual
