"""Problems: losses, clipping, public bounds, splits and predictions, each against NumPy written out by hand."""

import importlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_softmax, softmax
from sklearn.linear_model import LogisticRegression

import relaydp as rd
from relaydp import partition, prox
from relaydp.errors import InputError, PrivacyError
from relaydp.problem.agent_records import AgentRecords
from relaydp.problem.loss import softplus

SIZES = [1, 7, 3]
FEATURES = 4
CLASSES = 3
BEND = 0.6  # Huber's threshold in these tests: some residuals on either side


def custom_loss(x, a, b):
    """Smooth, convex, not of the form phi(a'x): log cosh of the residual and a quartic in x."""
    gap = a @ x - b
    return jnp.logaddexp(gap, -gap) + 0.1 * jnp.sum(a * a) * jnp.sum(x**4)


@dataclass(frozen=True)
class Case:
    """One loss, as the package builds it, as NumPy computes it from scores z and as JAX differentiates it."""

    make: Callable[..., rd.Problem]
    labels: Callable[[np.random.Generator, int], np.ndarray]
    value: Callable[[np.ndarray, np.ndarray], np.ndarray]  # (z (m, outputs), y) -> (m,)
    slope: Callable[[np.ndarray, np.ndarray], np.ndarray]  # -> (m, outputs)
    weight: Callable[[np.ndarray, np.ndarray], np.ndarray]  # d2phi/dz2 -> (m, outputs, outputs)
    one: Callable[[Any, Any, Any], Any]  # jax loss of one record's scores (outputs,)
    curvature: float
    outputs: int = 1


def two_classes(draw: np.random.Generator, m: int) -> np.ndarray:
    return draw.permutation(np.arange(m) % 2)


def three_classes(draw: np.random.Generator, m: int) -> np.ndarray:
    return draw.permutation(np.arange(m) % CLASSES)


def numbers(draw: np.random.Generator, m: int) -> np.ndarray:
    return draw.normal(size=m)


def residual(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    return z[:, 0] - y


def sign(y: np.ndarray) -> np.ndarray:
    return 2.0 * y - 1.0


def softmax_hessians(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    p = softmax(z, axis=1)
    return p[:, :, None] * np.eye(CLASSES) - p[:, :, None] * p[:, None, :]


LINEAR = {
    "least_squares": Case(
        rd.least_squares,
        numbers,
        value=lambda z, y: residual(z, y) ** 2 / 2,
        slope=lambda z, y: residual(z, y)[:, None],
        weight=lambda z, y: np.ones((len(y), 1, 1)),
        one=lambda z, b: 0.5 * (z[0] - b) ** 2,
        curvature=1.0,
    ),
    "logistic": Case(
        rd.logistic,
        two_classes,
        value=lambda z, y: np.log1p(np.exp(-sign(y) * z[:, 0])),
        slope=lambda z, y: (-sign(y) * expit(-sign(y) * z[:, 0]))[:, None],
        weight=lambda z, y: (expit(z) * expit(-z))[:, :, None],
        one=lambda z, b: jnp.log1p(jnp.exp(-(2.0 * b - 1.0) * z[0])),
        curvature=0.25,
    ),
    "softmax": Case(
        rd.softmax,
        three_classes,
        value=lambda z, y: -log_softmax(z, axis=1)[np.arange(len(y)), y],
        slope=lambda z, y: softmax(z, axis=1) - np.eye(CLASSES)[y],
        weight=softmax_hessians,
        one=lambda z, b: -jax.nn.log_softmax(z)[b],
        curvature=0.5,
        outputs=CLASSES,
    ),
    "huber": Case(
        lambda *args, **kwargs: rd.huber(*args, threshold=BEND, **kwargs),
        numbers,
        value=lambda z, y: np.where(
            abs(residual(z, y)) <= BEND, residual(z, y) ** 2 / 2, BEND * (abs(residual(z, y)) - BEND / 2)
        ),
        slope=lambda z, y: np.clip(residual(z, y), -BEND, BEND)[:, None],
        weight=lambda z, y: (abs(residual(z, y)) < BEND).astype(float)[:, None, None],
        one=lambda z, b: jnp.where(
            jnp.abs(z[0] - b) <= BEND, 0.5 * (z[0] - b) ** 2, BEND * jnp.abs(z[0] - b) - 0.5 * BEND**2
        ),
        curvature=1.0,
    ),
}
INTERCEPT = pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])


@pytest.fixture(scope="module", params=LINEAR.values(), ids=list(LINEAR))
def case(request):
    return request.param


def draw_records(case: Case, seed: int = 0, m: int = sum(SIZES)) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    return draw.normal(size=(m, FEATURES)), case.labels(draw, m)


def draw_x(case: Case, intercept: bool, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(FEATURES + intercept) * case.outputs)


def widened(A: np.ndarray, intercept: bool) -> np.ndarray:
    return np.column_stack([A, np.ones(len(A))]) if intercept else A


def rows_of(agent: int) -> slice:
    first = sum(SIZES[:agent])
    return slice(first, first + SIZES[agent])


def numpy_gradients(case: Case, x: np.ndarray, A: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Every record's gradient (m, dim), A widened already."""
    slope = case.slope(A @ x.reshape(-1, case.outputs), y)
    return np.einsum("jf,jk->jfk", A, slope).reshape(len(A), -1)


def jax_gradients(case: Case, x: np.ndarray, A: np.ndarray, y: np.ndarray) -> np.ndarray:
    def loss(x, a, b):
        return case.one(a @ x.reshape(-1, case.outputs), b)

    labels = y if case.outputs > 1 else y.astype(float)
    each = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0, 0)))
    return np.asarray(each(jnp.asarray(x), jnp.asarray(A), jnp.asarray(labels)))


def clipped_mean(each: np.ndarray, clip: float) -> np.ndarray:
    return np.mean([g * min(1.0, clip / np.linalg.norm(g)) if g.any() else g for g in each], axis=0)


def gradient(problem: rd.Problem, agent: int, x: np.ndarray, clip: float | None) -> np.ndarray:
    return np.asarray(at_once(problem.agent_records, jnp.asarray(agent), jnp.asarray(x), clip))


at_once = jax.jit(AgentRecords.gradient)  # one program instead of one an operation


# Losses


@pytest.mark.sample(3)
@INTERCEPT
@pytest.mark.parametrize("agent", range(len(SIZES)))
def test_each_agents_gradient_is_the_mean_over_its_own_rows(case, intercept, agent):
    X, y = draw_records(case)
    x, own = draw_x(case, intercept), rows_of(agent)
    problem = case.make(rd.Records(X, y), SIZES, intercept=intercept)
    A = widened(X[own], intercept)
    found = gradient(problem, agent, x, None)
    np.testing.assert_allclose(found, numpy_gradients(case, x, A, y[own]).mean(axis=0), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found, jax_gradients(case, x, A, y[own]).mean(axis=0), rtol=1e-12, atol=1e-14)
    value = case.value(A @ x.reshape(-1, case.outputs), y[own]).mean()
    np.testing.assert_allclose(problem.agent_records.value(jnp.asarray(agent), jnp.asarray(x)), value, rtol=1e-12)


@INTERCEPT
def test_objective_is_the_formula_and_spares_the_intercept(case, intercept):
    X, y = draw_records(case)
    x = draw_x(case, intercept)
    problem = case.make(rd.Records(X, y), SIZES, l2=0.3, l1=0.2, intercept=intercept)
    losses = case.value(widened(X, intercept) @ x.reshape(-1, case.outputs), y)
    data = np.mean([losses[rows_of(agent)].mean() for agent in range(len(SIZES))])
    kept = x[: FEATURES * case.outputs]
    expected = data + 0.3 / 2 * (kept @ kept) + 0.2 * np.abs(kept).sum()
    np.testing.assert_allclose(problem.objective(x), expected, rtol=1e-13)
    np.testing.assert_allclose(problem.objectives(np.stack([0 * x, x]))[1], expected, rtol=1e-13)


@pytest.mark.sample(2)
@INTERCEPT
def test_smooth_gradient_is_the_derivative_of_the_objective_without_r(case, intercept):
    X, y = draw_records(case)
    problem = case.make(rd.Records(X, y), SIZES, l2=0.3, intercept=intercept)
    x = jnp.asarray(draw_x(case, intercept))
    terms, agent_records = problem.terms, problem.working_records
    each = numpy_gradients(case, np.asarray(x), widened(X, intercept), y)
    by_hand = np.mean([each[rows_of(agent)].mean(axis=0) for agent in range(len(SIZES))], axis=0)
    by_hand[: FEATURES * case.outputs] += 0.3 * np.asarray(x)[: FEATURES * case.outputs]
    np.testing.assert_allclose(terms.smooth_gradient(x, agent_records), by_hand, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(
        jax.grad(lambda x: terms.objectives(x[None], agent_records)[0])(x), by_hand, rtol=1e-12, atol=1e-14
    )


@INTERCEPT
def test_prox_spares_the_intercept(case, intercept):
    X, y = draw_records(case)
    problem = case.make(rd.Records(X, y), SIZES, l1=0.2, intercept=intercept)
    x = draw_x(case, intercept)
    kept = x[: FEATURES * case.outputs]
    soft = np.sign(kept) * np.maximum(np.abs(kept) - 0.5 * 0.2, 0)
    expected = np.concatenate([soft, x[FEATURES * case.outputs :]])
    # |x| - t w may be rounded once or twice, by the processor: a last bit of x, however small the difference is
    np.testing.assert_allclose(problem.terms.prox(jnp.asarray(x), 0.5), expected, rtol=1e-14, atol=1e-15)


@pytest.mark.sample(6)
@pytest.mark.parametrize("clip", [None, 0.5])
@INTERCEPT
def test_no_other_agents_records_reach_an_agents_gradient(case, intercept, clip):
    X, y = draw_records(case)
    garbage, labels = draw_records(case, seed=9, m=30)
    x, own = draw_x(case, intercept), rows_of(1)
    before = gradient(case.make(rd.Records(X, y), SIZES, intercept=intercept), 1, x, clip)
    crowded = rd.Records(
        np.concatenate([1e6 * garbage[:5], X[own], -1e6 * garbage[5:]]),
        np.concatenate([labels[:5], y[own], labels[5:]]),
    )
    after = gradient(case.make(crowded, [5, SIZES[1], 25], intercept=intercept), 1, x, clip)
    # the same seven records in an array of another shape, which may be added up in another order
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-13 * max(1, np.abs(before).max()))


@pytest.mark.parametrize("score", [-800.0, 800.0])
def test_far_scores_neither_overflow_nor_lose_the_loss(case, score):
    X, y = draw_records(case)
    problem = case.make(rd.Records(np.sign(X), y), SIZES)
    x = np.full(FEATURES * case.outputs, score) * np.arange(1, 1 + FEATURES * case.outputs)
    assert np.isfinite(problem.objective(x))
    assert np.isfinite(gradient(problem, 1, x, None)).all()


@pytest.mark.parametrize("agent", range(len(SIZES)))
def test_a_custom_loss_is_differentiated_record_by_record(agent):
    X, y = draw_records(LINEAR["least_squares"])
    x, own = draw_x(LINEAR["least_squares"], False), rows_of(agent)
    problem = rd.custom(custom_loss, rd.Records(X, y), SIZES)
    gap = X[own] @ x - y[own]
    each = np.tanh(gap)[:, None] * X[own] + 0.4 * (X[own] ** 2).sum(axis=1)[:, None] * x**3
    np.testing.assert_allclose(gradient(problem, agent, x, None), each.mean(axis=0), rtol=1e-12)
    clip = float(np.median(np.linalg.norm(each, axis=1))) if len(each) > 1 else 0.25
    assert (np.linalg.norm(each, axis=1) > clip).any()
    np.testing.assert_allclose(gradient(problem, agent, x, clip), clipped_mean(each, clip), rtol=1e-12)
    losses = np.log(2 * np.cosh(gap)) + 0.1 * (X[own] ** 2).sum(axis=1) * (x**4).sum()
    np.testing.assert_allclose(
        problem.agent_records.value(jnp.asarray(agent), jnp.asarray(x)), losses.mean(), rtol=1e-12
    )


def test_a_custom_loss_may_be_undefined_on_padding():
    """Padding rows are zeros, where this loss is 0/0; neither values nor gradients may notice."""
    X, y = draw_records(LINEAR["least_squares"])
    sizes = [7, 3, 1]  # the last agents are short, so rows past the end of the data are read
    x = draw_x(LINEAR["least_squares"], False)
    problem = rd.custom(lambda x, a, b: 0.5 * (a @ x - b) ** 2 / (a @ a), rd.Records(X, y), sizes)
    losses = (X @ x - y) ** 2 / 2 / (X**2).sum(axis=1)
    expected = np.mean([part.mean() for part in np.split(losses, [7, 10])])
    np.testing.assert_allclose(problem.objective(x), expected, rtol=1e-12)
    np.testing.assert_allclose(problem.agent_records.value(jnp.asarray(2), jnp.asarray(x)), losses[10], rtol=1e-12)
    for clip in (None, 0.1):
        assert np.isfinite(gradient(problem, 2, x, clip)).all()
    assert np.isfinite(problem.agent_records.mean_gradient(jnp.asarray(x))).all()


# Clipping


@pytest.mark.sample(10)
@INTERCEPT
@pytest.mark.parametrize("agent", range(len(SIZES)))
def test_closed_form_clipping_is_clipping_record_by_record(case, intercept, agent):
    X, y = draw_records(case)
    x, own = draw_x(case, intercept), rows_of(agent)
    problem = case.make(rd.Records(X, y), SIZES, intercept=intercept)
    each = jax_gradients(case, x, widened(X[own], intercept), y[own])
    norms = np.linalg.norm(each, axis=1)
    clip = float(norms.mean()) if len(norms) > 1 else float(norms[0]) / 2
    assert (norms > clip).any()
    np.testing.assert_allclose(gradient(problem, agent, x, clip), clipped_mean(each, clip), rtol=0, atol=1e-12)


@INTERCEPT
def test_clipping_counts_the_scaling_to_public_bounds(case, intercept):
    """The norm that decides about clipping is that of the features used, not of the values stored."""
    X, y = draw_records(case)
    x, own = draw_x(case, intercept), rows_of(1)
    problem = case.make(rd.Records(X, y), SIZES, intercept=intercept, ranges=(-1, 2), record_norm=0.7)
    A = np.clip(X[own], -1, 2) / 2
    A = A * np.minimum(1, 0.7 / np.linalg.norm(A, axis=1))[:, None]
    each = jax_gradients(case, x, widened(A, intercept), y[own])
    clip = float(np.median(np.linalg.norm(each, axis=1)))
    for agent_records in (problem.agent_records, problem.working_records):
        found = agent_records.gradient(jnp.asarray(1), jnp.asarray(x), clip)
        np.testing.assert_allclose(found, clipped_mean(each, clip), rtol=0, atol=1e-12)


coordinate = st.floats(-1e4, 1e4)


@pytest.mark.sample(4)
@INTERCEPT
@given(
    record=st.lists(coordinate, min_size=FEATURES, max_size=FEATURES),
    label=st.integers(0, 1),
    clip=st.floats(1e-3, 1e3),
    scale=st.floats(0, 1e3),
    agent=st.integers(0, len(SIZES) - 1),
    which=st.integers(0, 100),
)
@settings(deadline=None, max_examples=15)
def test_replacing_a_record_moves_the_clipped_gradient_by_at_most_2c_over_m(
    case, intercept, record, label, clip, scale, agent, which
):
    X, y = draw_records(case)
    own = rows_of(agent)
    at = own.start + which % SIZES[agent]
    others, labels = X.copy(), y.copy()
    others[at] = record
    # another label of the same kind; the classes of the problem stay what they were
    labels[at] = label if set(np.delete(y, at)) >= set(y.tolist()) else labels[at]
    x = scale * draw_x(case, intercept)
    moved = [
        gradient(case.make(rd.Records(A, b), SIZES, intercept=intercept), agent, x, clip)
        for A, b in ((X, y), (others, labels))
    ]
    assert np.linalg.norm(moved[0] - moved[1]) <= 2 * clip / SIZES[agent] * (1 + 1e-12)


@given(record=st.lists(coordinate, min_size=FEATURES, max_size=FEATURES), clip=st.floats(1e-3, 1e3))
@settings(deadline=None, max_examples=15)
def test_replacing_a_record_of_a_custom_loss_moves_it_by_at_most_2c_over_m(record, clip):
    X, y = draw_records(LINEAR["least_squares"])
    others = X.copy()
    others[4] = record
    x = draw_x(LINEAR["least_squares"], False)
    moved = [gradient(rd.custom(custom_loss, rd.Records(A, y), SIZES), 1, x, clip) for A in (X, others)]
    assert np.linalg.norm(moved[0] - moved[1]) <= 2 * clip / SIZES[1] * (1 + 1e-12)


def test_a_record_without_a_gradient_moves_a_clipped_mean_by_no_more_than_another():
    X, y = draw_records(LINEAR["least_squares"])
    x = draw_x(LINEAR["least_squares"], False)
    for slope in (jnp.nan, jnp.inf, 1e200):
        odd = rd.custom(
            lambda x, a, b, by=slope: custom_loss(x, a, b) * jnp.where(b == y[4], by, 1.0), rd.Records(X, y), SIZES
        )
        usual = gradient(rd.custom(custom_loss, rd.Records(X, y), SIZES), 1, x, 0.5)
        assert np.linalg.norm(gradient(odd, 1, x, 0.5) - usual) <= 2 * 0.5 / SIZES[1] * (1 + 1e-12)
        assert not np.isfinite(gradient(odd, 1, x, None)).all() or slope == 1e200


def test_the_sensitivity_bound_is_attained():
    """Two opposite records, both longer than the clip: no smaller bound than 2c/m would be true."""
    x, m = np.zeros(2), 4
    X, y = np.zeros((m, 2)), np.ones(m)
    moved = []
    for end in (100.0, -100.0):
        X[0] = [end, 0.0]
        moved.append(gradient(rd.least_squares(rd.Records(X, y), 1), 0, x, 0.5))
    np.testing.assert_allclose(np.linalg.norm(moved[0] - moved[1]), 2 * 0.5 / m)


@INTERCEPT
def test_the_default_clip_touches_no_record_that_keeps_the_bounds(intercept):
    """slope * B really is the most a record's gradient can be, and nearly reached."""
    for name in ("logistic", "softmax", "huber"):
        case = LINEAR[name]
        X, y = draw_records(case)
        problem = case.make(rd.Records(X, y), SIZES, intercept=intercept, record_norm=0.9)
        clip = problem.gradient_bound()
        A = widened(X * np.minimum(1, 0.9 / np.linalg.norm(X, axis=1))[:, None], intercept)
        far = 1e3 * draw_x(case, intercept)
        norms = np.concatenate([np.linalg.norm(numpy_gradients(case, x, A, y), axis=1) for x in (far, -far)])
        assert norms.max() <= clip * (1 + 1e-12)
        assert norms.max() >= 0.99 * clip


# Public bounds


def features(problem: rd.Problem) -> np.ndarray:
    return np.asarray(problem.agent_records.dense().X)[: int(problem.split.sizes.sum())]


@given(seed=st.integers(0, 50), bound=st.floats(0.1, 5.0))
@settings(deadline=None, max_examples=15)
def test_record_norm_shrinks_longer_records_only(seed, bound):
    X, y = draw_records(LINEAR["least_squares"], seed)
    found = features(rd.least_squares(rd.Records(X, y), SIZES, record_norm=bound))
    long = np.linalg.norm(X, axis=1) > bound
    np.testing.assert_array_equal(found[~long], X[~long])
    np.testing.assert_allclose(found[long], bound * X[long] / np.linalg.norm(X[long], axis=1)[:, None], rtol=1e-14)


RANGES = [(0, 255), (0, 1000), (-40, 0), (-50, 100), (-100, 50)]  # with 0
RANGES += [(10, 200), (11, 200), (0.5, 9.75), (0.2, 0.8), (-20, -10), (300, 301)]  # without
DTYPES = [np.uint8, np.int8, np.int16, np.uint32, np.int64, np.float32, np.float64, np.bool_]


def scaled_by_hand(stored: np.ndarray, low: float, high: float) -> np.ndarray:
    """0 stays 0 where the bounds allow it; elsewhere the middle becomes 0."""
    values = np.clip(stored.astype(float), low, high)
    if low <= 0 <= high:
        return values / max(-low, high)
    return (2 * values - low - high) / (high - low)


@pytest.mark.parametrize("ranges", RANGES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_ranges_clip_and_scale_to_one_whatever_the_dtype(ranges, dtype):
    stored = np.random.default_rng(0).integers(0, 256, size=(sum(SIZES), FEATURES)).astype(dtype)
    y = np.arange(len(stored)) % 2
    found = features(rd.logistic(rd.Records(stored, y), SIZES, ranges=ranges))
    np.testing.assert_allclose(found, scaled_by_hand(stored, *ranges), rtol=1e-14, atol=1e-16)
    assert np.abs(found).max() <= 1


def test_ranges_may_differ_by_feature():
    X = np.array([[0.0, 50.0], [1.0, 100.0], [2.0, 400.0]])
    found = features(rd.least_squares(rd.Records(X, np.ones(3)), 1, ranges=([0, 0], [2, 200])))
    np.testing.assert_allclose(found, [[0, 0.25], [0.5, 0.5], [1, 1]])


@pytest.mark.parametrize("ranges", [None, (0, 255), "fit"])
def test_bytes_stay_bytes_in_the_records(ranges):
    stored = np.random.default_rng(0).integers(0, 256, size=(11, FEATURES), dtype=np.uint8)
    problem = rd.logistic(rd.Records(stored, np.arange(11) % 2), SIZES, ranges=ranges)
    assert problem.agent_records.X.dtype == np.uint8
    np.testing.assert_array_equal(problem.agent_records.X[:11], stored - (stored.min(axis=0) if ranges == "fit" else 0))
    assert problem.working_records.X.dtype == np.float64


def test_fitted_ranges_are_the_minimum_and_maximum_of_each_feature():
    X = np.array([[3.0, 7.0], [5.0, 7.0], [4.0, 7.0]])
    found = features(rd.least_squares(rd.Records(X, np.ones(3)), 1, ranges="fit"))
    np.testing.assert_allclose(found, [[0, 0], [1, 0], [0.5, 0]])


def test_the_records_own_ranges_are_used_unless_others_are_given():
    X = np.array([[1.0], [2.0], [3.0]])
    data = rd.Records(X, np.ones(3), ranges=(0, 4))
    np.testing.assert_allclose(features(rd.least_squares(data, 1)), X / 4)
    np.testing.assert_allclose(features(rd.least_squares(data, 1, ranges=(0, 10))), X / 10)


REFUSED = {
    "no bounds": (rd.logistic, {}, "record_norm=.*ranges="),
    "fitted ranges": (rd.logistic, {"ranges": "fit"}, "fit-public"),
    "fitted ranges, with a norm": (rd.logistic, {"ranges": "fit", "record_norm": 1.0}, "fit-public"),
    "least squares without a gradient bound": (rd.least_squares, {"record_norm": 1.0}, "clip=.*label_bound="),
    "custom without smoothness": (lambda *a, **k: rd.custom(custom_loss, *a, **k), {"clip": 1.0}, "smoothness="),
    "custom without clip": (lambda *a, **k: rd.custom(custom_loss, *a, **k), {"smoothness": 1.0}, "clip="),
}


@pytest.mark.parametrize(("make", "options", "named"), REFUSED.values(), ids=list(REFUSED))
def test_public_facts_are_refused_where_a_bound_is_missing(make, options, named):
    X, y = draw_records(LINEAR["logistic"])
    with pytest.raises(PrivacyError, match=named):
        make(rd.Records(X, y), SIZES, **options).public_facts()


BOUNDED = {
    "record norm": {"record_norm": 0.8},
    "ranges": {"ranges": (-1.5, 1.5)},
    "both": {"record_norm": 0.8, "ranges": (-1.5, 1.5)},
    "declared public": {"ranges": "fit-public"},
}


@INTERCEPT
@pytest.mark.parametrize("options", BOUNDED.values(), ids=list(BOUNDED))
def test_public_facts_do_not_depend_on_the_records(case, options, intercept):
    facts, known = [], {"label_bound": 2.0} if case is LINEAR["least_squares"] else {}
    for seed, size in ((0, 1.0), (5, 300.0)):
        X, y = draw_records(case, seed)
        problem = case.make(rd.Records(size * X, y), SIZES, l2=0.1, intercept=intercept, **known, **options)
        facts.append(problem.public_facts())
    one, other = facts
    assert one.public and other.public
    assert (one.agents, one.dim, one.modulus, one.clip) == (other.agents, other.dim, other.modulus, other.clip)
    np.testing.assert_array_equal(one.sizes, SIZES)
    np.testing.assert_array_equal(one.smoothness, other.smoothness)
    assert one.dim == (FEATURES + intercept) * case.outputs
    assert one.modulus == 0.1


def test_the_clip_of_public_facts_comes_from_the_bounds():
    X, y = draw_records(LINEAR["logistic"])
    data = rd.Records(X, y)
    assert rd.logistic(data, 2, record_norm=3).public_facts().clip == 3
    assert rd.logistic(data, 2, ranges=(0, 1)).public_facts().clip == np.sqrt(FEATURES)
    assert rd.logistic(data, 2, record_norm=3, clip=0.25).public_facts().clip == 0.25
    np.testing.assert_allclose(rd.logistic(data, 2, record_norm=3, intercept=True).public_facts().clip, np.sqrt(10))
    np.testing.assert_allclose(rd.softmax(data, 2, record_norm=3).public_facts().clip, 3 * np.sqrt(2))
    assert rd.huber(data, 2, record_norm=3, threshold=0.5).public_facts().clip == 1.5
    assert rd.least_squares(data, 2, record_norm=3, label_bound=2).public_facts().clip == 6


def hessian(case: Case, x: np.ndarray, A: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Mean Hessian of the loss: (1/m) sum_j (a a') kron phi''."""
    weight = case.weight(A @ x.reshape(-1, case.outputs), y)
    dim = A.shape[1] * case.outputs
    return np.einsum("ja,jb,jkl->akbl", A, A, weight).reshape(dim, dim) / len(A)


@INTERCEPT
@pytest.mark.parametrize("options", list(BOUNDED.values())[:3], ids=list(BOUNDED)[:3])
@pytest.mark.parametrize("seed", range(3))
def test_public_smoothness_bounds_every_hessian(case, options, intercept, seed):
    X, y = draw_records(case, seed)
    problem = case.make(rd.Records(5 * X, y), SIZES, l2=0.1, intercept=intercept, clip=1.0, **options)
    A, bound = widened(features(problem), intercept), problem.public_facts().smoothness
    for size in (0.0, 0.1, 1.0):
        x = size * draw_x(case, intercept, seed)
        for agent in range(len(SIZES)):
            own = rows_of(agent)
            top = np.linalg.eigvalsh(hessian(case, x, A[own], y[own]))[-1] + 0.1
            assert top <= bound[agent] * (1 + 1e-12)


@INTERCEPT
@pytest.mark.parametrize("name", ["least_squares", "logistic", "huber"])
def test_public_smoothness_is_reached_by_the_worst_records(name, intercept):
    """All records equal and as long as allowed, at x = 0: any smaller L would be wrong."""
    case = LINEAR[name]
    X = np.tile([3.0, 0.0, -4.0, 0.0], (sum(SIZES), 1))
    y = np.arange(len(X)) % 2 * 0.5
    problem = case.make(rd.Records(X, y), SIZES, l2=0.1, intercept=intercept, clip=1.0, record_norm=5.0)
    H = hessian(case, np.zeros(FEATURES + intercept), widened(X, intercept), y)  # |y| stays below Huber's bend
    np.testing.assert_allclose(problem.public_facts().smoothness, np.linalg.eigvalsh(H)[-1] + 0.1, rtol=1e-12)


@INTERCEPT
@pytest.mark.parametrize("shape", [(40, 6), (12, 30)], ids=["tall", "wide"])
def test_measured_smoothness_is_the_largest_eigenvalue(case, intercept, shape):
    draw = np.random.default_rng(2)
    X, y = draw.normal(size=shape) * np.linspace(0.1, 2, shape[1]), case.labels(draw, shape[0])
    sizes = [shape[0] // 4, shape[0] - shape[0] // 4]
    problem = case.make(rd.Records(X, y), sizes, l2=0.2, intercept=intercept)
    found = problem.measured_facts()
    parts = np.split(widened(X, intercept), np.cumsum(sizes)[:-1])
    expected = [case.curvature * np.linalg.eigvalsh(A.T @ A / len(A))[-1] + 0.2 for A in parts]
    np.testing.assert_allclose(found.smoothness, expected, rtol=1e-10)
    assert not found.public


@INTERCEPT
def test_measured_smoothness_of_large_matrices_is_a_hair_above_the_truth(intercept):
    draw = np.random.default_rng(2)
    X = draw.normal(size=(600, 300)) * np.linspace(0.1, 2, 300)
    found = rd.least_squares(rd.Records(X, np.zeros(600)), 1, l2=0.2, intercept=intercept).measured_facts().smoothness
    A = widened(X, intercept)
    top = np.linalg.eigvalsh(A.T @ A / 600)[-1] + 0.2  # rounded itself, to either side: the exact law is below
    assert top * (1 - 1e-13) <= found[0] <= top * (1 + 1e-9)


@pytest.mark.parametrize("many", [2000, 1], ids=["by eigenvalue", "by the longest record"])
@pytest.mark.parametrize("copies", [3, 50], ids=["wide", "tall"])
@pytest.mark.parametrize("l2", [0.0, 0.3, 1e6])
def test_measured_smoothness_is_never_below_the_exact_one(monkeypatch, l2, copies, many):
    """Equal records a: A'A/m = aa', whose largest eigenvalue |a|^2 is a fraction that nothing rounds."""
    monkeypatch.setattr(importlib.import_module("relaydp.problem.curvature"), "MANY_AGENTS", many)
    rows = np.random.default_rng(3).normal(size=(30, 20))
    data = rd.Records(np.repeat(rows, copies, axis=0), np.zeros(30 * copies))
    found = rd.least_squares(data, [copies] * 30, l2=l2).measured_facts().smoothness
    for a, L in zip(rows, found, strict=True):
        exact = sum(Fraction(value) ** 2 for value in a.tolist()) + Fraction(l2)
        assert exact <= Fraction(float(L)) <= exact * (1 + Fraction(1, 10**12))


def test_measured_smoothness_of_very_many_agents_is_an_upper_bound(monkeypatch):
    X, y = draw_records(LINEAR["logistic"])
    exact = rd.logistic(rd.Records(X, y), SIZES, intercept=True).measured_facts().smoothness
    monkeypatch.setattr(importlib.import_module("relaydp.problem.curvature"), "MANY_AGENTS", 1)
    quick = rd.logistic(rd.Records(X, y), SIZES, intercept=True).measured_facts().smoothness
    assert (quick >= exact * (1 - 1e-12)).all()
    longest = [0.25 * (1 + (X[rows_of(i)] ** 2).sum(axis=1).max()) for i in range(len(SIZES))]
    np.testing.assert_allclose(quick, longest)


def test_a_custom_loss_brings_its_own_smoothness():
    X, y = draw_records(LINEAR["least_squares"])
    problem = rd.custom(custom_loss, rd.Records(X, y), SIZES, l2=0.5, smoothness=3.0, clip=2.0)
    np.testing.assert_array_equal(problem.measured_facts().smoothness, [3.5] * 3)
    np.testing.assert_array_equal(problem.public_facts().smoothness, [3.5] * 3)
    with pytest.raises(InputError, match="smoothness="):
        rd.custom(custom_loss, rd.Records(X, y), SIZES).measured_facts()


BAD_OPTIONS = {
    "l2": ({"l2": -1}, "l2=-1"),
    "l2 nan": ({"l2": float("nan")}, "l2=nan"),
    "l1": ({"l1": -0.5}, r"l1=-0\.5"),
    "clip": ({"clip": 0}, "clip=0"),
    "record norm": ({"record_norm": -2}, "record_norm=-2"),
    "record norm inf": ({"record_norm": float("inf")}, "record_norm=inf"),
    "record norm without a square": (
        {"record_norm": 1e200},
        "record_norm=1e.200; it must be a number from 1e-60 to 1e.60",
    ),
    "clip without a square": ({"clip": 1e-200}, "clip=1e-200"),
    "ranges without a square": ({"ranges": (-1e300, 1e300)}, r"\[-1e.300, 1e.300\]"),
    "ranges word": ({"ranges": "fit-pubic"}, "fit-pubic.*fit-public"),
    "ranges one number": ({"ranges": 7}, "ranges=7"),
    "ranges length": ({"ranges": ([0, 0], [1, 1])}, "two lists of 4"),
    "ranges empty": ({"ranges": (1, 1)}, r"\[1\.0, 1\.0\]"),
    "ranges infinite": ({"ranges": (0, float("inf"))}, "inf"),
    "two regularisers": ({"l1": 0.1, "regulariser": prox.nonnegative()}, "elastic_net"),
    "groups do not fit": ({"regulariser": prox.group_lasso(1, [0, 1])}, "4 penalised"),
    "a custom prox that does not fit": (
        {"regulariser": prox.custom(lambda x: jnp.sum(x), lambda v, t: v[:2])},
        "4 penalised",
    ),
}


@pytest.mark.parametrize(("options", "named"), BAD_OPTIONS.values(), ids=list(BAD_OPTIONS))
def test_bad_options_are_named(options, named):
    X, y = draw_records(LINEAR["logistic"])
    with pytest.raises(InputError, match=named):
        rd.logistic(rd.Records(X, y), SIZES, **options)


@pytest.mark.parametrize("threshold", [0, -1, float("nan")])
def test_a_bad_huber_threshold_is_named(threshold):
    X, y = draw_records(LINEAR["huber"])
    with pytest.raises(InputError, match=f"threshold={threshold}"):
        rd.huber(rd.Records(X, y), SIZES, threshold=threshold)


@INTERCEPT
def test_group_lasso_counts_penalised_coefficients_only(intercept):
    X, y = draw_records(LINEAR["logistic"])
    group_lasso = prox.group_lasso(0.5, [0, 0, 1, 1])
    problem = rd.logistic(rd.Records(X, y), SIZES, regulariser=group_lasso, intercept=intercept)
    x = draw_x(LINEAR["logistic"], intercept)
    r = 0.5 * np.sqrt(2) * (np.linalg.norm(x[:2]) + np.linalg.norm(x[2:4]))
    plain = rd.logistic(rd.Records(X, y), SIZES, intercept=intercept)
    np.testing.assert_allclose(problem.objective(x), plain.objective(x) + r, rtol=1e-13)


# Labels


@pytest.mark.parametrize(
    "pair", [(0, 1), (-1, 1), (-1.0, 1.0), (7, 9), ("cat", "dog"), (False, True)], ids=lambda pair: str(pair[1])
)
def test_any_two_labels_make_two_classes_in_sorted_order(pair):
    X, code = draw_records(LINEAR["logistic"])
    y = np.array(pair)[code]
    problem = rd.logistic(rd.Records(X, y), SIZES)
    x = draw_x(LINEAR["logistic"], False)
    losses = np.log1p(np.exp(-(2 * code - 1) * (X @ x)))
    assert problem.classes.tolist() == list(pair)
    np.testing.assert_allclose(problem.objective(x), np.mean([losses[rows_of(i)].mean() for i in range(3)]), rtol=1e-13)
    assert problem.predict(x, X).tolist() == [pair[int(score > 0)] for score in X @ x]


WRONG_LABELS = {
    "one class, logistic": (rd.logistic, np.zeros(11, int), "one class"),
    "one class, softmax": (rd.softmax, np.array(["only"] * 11), "only.*one class"),
    "three classes, logistic": (rd.logistic, np.arange(11) % 3, "3 different labels.*softmax"),
    "text, least squares": (rd.least_squares, np.array(["a", "b"])[np.arange(11) % 2], "not numbers"),
    "text, huber": (rd.huber, np.array(["a", "b"])[np.arange(11) % 2], "not numbers"),
    "text, custom": (lambda data, n: rd.custom(custom_loss, data, n), np.array(["a"] * 11), "not numbers"),
}


@pytest.mark.parametrize(("make", "y", "named"), WRONG_LABELS.values(), ids=list(WRONG_LABELS))
def test_labels_that_do_not_fit_the_loss_are_refused(make, y, named):
    with pytest.raises(InputError, match=named):
        make(rd.Records(np.ones((11, 2)), y), SIZES)


def test_a_test_label_of_no_class_is_refused():
    X, y = draw_records(LINEAR["logistic"])
    problem = rd.logistic(rd.Records(X, y, test=rd.Records(X[:2], np.array([0, 5]))), SIZES)
    with pytest.raises(InputError, match="5"):
        problem.accuracy(np.zeros(FEATURES))


# Agents


def numbered(m: int, **kwargs) -> rd.Records:
    """Records whose only feature is their row number."""
    return rd.Records(np.arange(m, dtype=float)[:, None], np.arange(m) % 2, **kwargs)


def holdings(problem: rd.Problem) -> list[list[int]]:
    """Which rows each agent holds, read off the agent_records themselves."""
    agent_records = problem.agent_records
    return [
        np.asarray(agent_records.X)[first : first + size, 0].astype(int).tolist()
        for first, size in zip(agent_records.start.tolist(), agent_records.size.tolist(), strict=True)
    ]


def test_a_count_splits_evenly_in_row_order():
    assert holdings(rd.logistic(numbered(11), 3)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]


def test_sizes_split_in_row_order():
    assert holdings(rd.logistic(numbered(6), [1, 3, 2])) == [[0], [1, 2, 3], [4, 5]]
    assert holdings(rd.logistic(numbered(6), np.array([1, 3, 2]))) == [[0], [1, 2, 3], [4, 5]]


def test_a_group_column_splits_by_its_values():
    problem = rd.logistic(numbered(6, groups={"ward": np.array(["b", "a", "b", "c", "a", "b"])}), "ward")
    assert problem.split.names == ("a", "b", "c")
    assert holdings(problem) == [[1, 4], [0, 2, 5], [3]]


def test_a_feature_column_can_say_whose_a_record_is():
    site = np.array([5.0, 2.0, 5.0, 2.0])
    X = np.column_stack([np.arange(4.0), site])
    data = rd.Records(X, np.arange(4) % 2, columns=("row", "site"), ranges=([0, 0], [4, 9]))
    problem = rd.logistic(data, "site")
    assert problem.dim == 1
    assert holdings(rd.logistic(rd.Records(X, np.arange(4) % 2, columns=("row", "site")), "site")) == [[1, 3], [0, 2]]
    np.testing.assert_allclose(features(problem)[:, 0], np.array([1, 3, 0, 2]) / 4)


SPLITS = {
    "count": lambda m, n, seed: n,
    "sizes": lambda m, n, seed: [m - n + 1] + [1] * (n - 1),
    "column": lambda m, n, seed: "who",
    "dirichlet": lambda m, n, seed: partition.dirichlet(n, 50.0, seed),
}


@pytest.mark.parametrize("agents", SPLITS.values(), ids=list(SPLITS))
@given(m=st.integers(2, 60), n=st.integers(1, 6), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_every_record_has_exactly_one_holder(agents, m, n, seed):
    n = min(n, m)
    who = np.random.default_rng(seed).integers(0, n, size=m)
    try:
        problem = rd.logistic(numbered(m, groups={"who": who}), agents(m, n, seed))
    except InputError as error:  # a random deal may leave somebody with nothing; that must be the reason
        assert agents is SPLITS["dirichlet"] and "would hold no record" in str(error)
        return
    held = holdings(problem)
    assert sorted(row for rows in held for row in rows) == list(range(m))
    assert [len(rows) for rows in held] == problem.split.sizes.tolist()
    assert len(problem.split.names) == problem.agents


def test_dirichlet_is_skewed_when_asked_and_the_same_for_one_seed():
    data = numbered(2000)
    shares = {}
    for concentration in (0.3, 1000.0):
        problem = rd.logistic(data, partition.dirichlet(4, concentration, seed=3))
        assert holdings(problem) == holdings(rd.logistic(data, partition.dirichlet(4, concentration, seed=3)))
        assert holdings(problem) != holdings(rd.logistic(data, partition.dirichlet(4, concentration, seed=4)))
        shares[concentration] = [np.mean(np.array(rows) % 2) for rows in holdings(problem)]
    assert np.ptp(shares[1000.0]) < 0.1
    assert np.ptp(shares[0.3]) > 0.3


WRONG_AGENTS = {
    "none": (0, "agents=0"),
    "negative": (-2, "agents=-2"),
    "more than records": (7, "agents=7 for 6 records"),
    "an empty agent": ([3, 0, 3], "agent 1 would hold no record"),
    "sizes that do not add up": ([3, 4], "add up to 7.*6 records"),
    "negative sizes": ([7, -1], "-1"),
    "fractional sizes": ([2.5, 3.5], r"2\.5"),
    "no sizes": ([], r"\[\]"),
    "unknown column": ("wards", "'wards'.*Did you mean 'ward'"),
    "a fraction": (2.0, r"agents=2\.0"),
    "a truth value": (True, "agents=True"),
}


@pytest.mark.parametrize(("agents", "named"), WRONG_AGENTS.values(), ids=list(WRONG_AGENTS))
def test_agents_that_cannot_be_are_refused(agents, named):
    data = numbered(6, groups={"ward": np.arange(6) % 2})
    with pytest.raises(InputError, match=named):
        rd.logistic(data, agents)


def test_a_column_is_refused_where_there_is_none():
    with pytest.raises(InputError, match="'ward'"):
        rd.logistic(numbered(6), "ward")


@pytest.mark.parametrize("make", [lambda: partition.dirichlet(0, 1.0), lambda: partition.dirichlet(2, 0.0)])
def test_dirichlet_arguments_are_checked(make):
    with pytest.raises(InputError, match="=0"):
        make()


# Predictions


@INTERCEPT
@pytest.mark.parametrize("bounds", [{}, {"ranges": (-2, 2)}, {"record_norm": 1.0}], ids=["raw", "ranges", "norm"])
@pytest.mark.parametrize("classes", [2, 3])
def test_predictions_agree_with_scikit_learn(classes, bounds, intercept):
    draw = np.random.default_rng(4)
    X, new = draw.normal(size=(80, FEATURES)), draw.normal(size=(200, FEATURES))
    centres = draw.normal(size=(FEATURES, 3))
    names = np.array(["ash", "beech", "cedar"])

    def label(A: np.ndarray) -> np.ndarray:
        return names[(A @ centres + draw.normal(size=(len(A), 3)))[:, :classes].argmax(axis=1)]

    def scaled(A: np.ndarray) -> np.ndarray:
        if "ranges" in bounds:
            return np.clip(A, -2, 2) / 2
        if "record_norm" in bounds:
            return A * np.minimum(1, 1 / np.linalg.norm(A, axis=1))[:, None]
        return A

    y, held = label(X), label(new)
    theirs = LogisticRegression(fit_intercept=intercept, max_iter=1000).fit(scaled(X), y)
    x = np.concatenate([theirs.coef_.T.ravel(), theirs.intercept_ if intercept else []])
    make = rd.logistic if classes == 2 else rd.softmax
    problem = make(rd.Records(X, y, test=rd.Records(new, held)), 4, intercept=intercept, **bounds)
    np.testing.assert_array_equal(problem.predict(x, new), theirs.predict(scaled(new)))
    accuracy = theirs.score(scaled(new), held)
    assert 0.4 < accuracy < 1
    assert problem.accuracy(x) == pytest.approx(accuracy, abs=1e-12)
    np.testing.assert_allclose(problem.accuracies(np.stack([x, -x]))[0], accuracy, atol=1e-12)


@INTERCEPT
def test_numbers_are_predicted_by_the_linear_model(intercept):
    X, y = draw_records(LINEAR["least_squares"])
    x = draw_x(LINEAR["least_squares"], intercept)
    for make in (rd.least_squares, rd.huber):
        problem = make(rd.Records(X, y), SIZES, intercept=intercept)
        np.testing.assert_allclose(problem.predict(x, X), widened(X, intercept) @ x, rtol=1e-13)
        assert not problem.classifies


def test_whole_number_coefficients_predict_too():
    X, y = draw_records(LINEAR["logistic"])
    problem = rd.logistic(rd.Records(X, y), SIZES)
    assert problem.predict([1, 0, 0, 0], X).tolist() == (X[:, 0] > 0).astype(int).tolist()


def test_without_test_records_accuracy_is_that_of_training():
    X, y = draw_records(LINEAR["logistic"])
    x = draw_x(LINEAR["logistic"], False)
    assert rd.logistic(rd.Records(X, y), SIZES).accuracy(x) == pytest.approx(np.mean((X @ x > 0) == (y == 1)))


def test_least_squares_on_signs_classifies():
    X, y = draw_records(LINEAR["logistic"])
    x = draw_x(LINEAR["logistic"], True)
    assert not rd.least_squares(rd.Records(X, 2 * y - 1), SIZES).classifies  # nobody said that they are signs
    problem = rd.least_squares(rd.Records(X, 2 * y - 1, classes=(-1, 1)), SIZES, intercept=True)
    assert problem.classifies
    assert problem.accuracy(x) == pytest.approx(np.mean((widened(X, True) @ x > 0) == (y == 1)))


def test_a_custom_loss_predicts_nothing():
    X, y = draw_records(LINEAR["least_squares"])
    with pytest.raises(InputError, match=r"result\.x"):
        rd.custom(custom_loss, rd.Records(X, y), SIZES).predict(np.zeros(FEATURES), X)


# Alone


@pytest.mark.sample(8)
@INTERCEPT
@pytest.mark.parametrize("agent", range(len(SIZES)))
def test_alone_an_agent_has_its_own_records_only(case, intercept, agent):
    X, y = draw_records(case)
    x, own = draw_x(case, intercept), rows_of(agent)
    problem = case.make(rd.Records(X, y), SIZES, l2=0.3, intercept=intercept).alone(agent)
    assert problem.agents == 1
    assert problem.split.sizes.tolist() == [SIZES[agent]]
    np.testing.assert_array_equal(problem.agent_records.X, X[own])
    kept = x[: FEATURES * case.outputs]
    losses = case.value(widened(X[own], intercept) @ x.reshape(-1, case.outputs), y[own])
    np.testing.assert_allclose(problem.objective(x), losses.mean() + 0.15 * (kept @ kept), rtol=1e-13)


@pytest.mark.parametrize("agent", [-1, 3])
def test_alone_refuses_an_agent_that_does_not_exist(agent):
    X, y = draw_records(LINEAR["logistic"])
    with pytest.raises(InputError, match=f"agent {agent} "):
        rd.logistic(rd.Records(X, y), SIZES).alone(agent)


@pytest.mark.parametrize("a", [0.0, -0.0, 1e-9, -3.0, 40.0, -800.0, 800.0, np.inf, -np.inf])
def test_the_logistic_loss_and_two_derivatives_are_right_everywhere(a):
    once, twice = jax.grad(softplus), jax.grad(jax.grad(softplus))
    p = 1.0 / (1.0 + np.exp(-a)) if a > -700 else 0.0
    assert float(softplus(jnp.asarray(a))) == pytest.approx(float(np.logaddexp(0.0, a)), rel=1e-14)
    assert float(once(a)) == pytest.approx(p, rel=1e-14, abs=1e-300)
    if np.isfinite(a):
        assert float(twice(a)) == pytest.approx(p * (1.0 - p), rel=1e-12, abs=1e-15)
    assert np.isnan(float(softplus(jnp.asarray(np.nan))))


# ---------------------------------------------------------------- what is computed once


def test_what_is_remembered_is_computed_once_for_one_problem():
    asked = []

    def count(problem, factor=1):
        asked.append(factor)
        return [factor * problem.agents]

    problem = rd.logistic("breast-cancer", agents=3)
    assert problem.remembered(count) == [3] and problem.remembered(count) is problem.remembered(count)
    assert problem.remembered(count, 2) == [6] and problem.remembered(count, factor=2) == [6]
    assert asked == [1, 2, 2]
    assert replace(problem).remembered(count) == [3]  # another problem, of which nothing is known yet
    assert asked == [1, 2, 2, 1]


def test_threads_get_the_same_answer():
    gate = threading.Barrier(4)

    def make(problem):
        gate.wait(timeout=60)  # all are computing it
        return object()

    problem = rd.logistic("breast-cancer", agents=2)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: problem.remembered(make), range(4)))
    assert len(set(map(id, answers))) == 1


def test_records_and_smoothness_can_come_from_elsewhere():
    problem = rd.logistic("breast-cancer", agents=2, l2=0.1)
    own = problem.agent_records
    wider = replace(own, X=own.X.astype(np.float64))
    other = problem.with_agent_records(wider)
    assert other.agent_records is wider and problem.agent_records is own
    assert other.alone(1).agent_records.X.shape[0] < len(problem.data)  # laid out anew, from the records
    told = problem.with_measured_smoothness(np.array([3.0, 4.0]))
    assert told.measured_facts().smoothness.tolist() == [3.0, 4.0] != problem.measured_facts().smoothness.tolist()
