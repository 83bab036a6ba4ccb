"""One fused pass over the records gives what two matrix products give, keeps its promise when clipped, and steps aside
where it cannot serve."""

import hashlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from effort import size
from hypothesis import given, settings
from hypothesis import strategies as st

import relaydp as rd
from relaydp.problem.agent_records import AgentRecords
from relaydp.problem.kernels import dispatch

pytest.importorskip("numba")

SIZES = [21, 8, 1]  # two blocks of rows and a rest, one block, a single record; the last two are read past their end
FEATURES = 11

LOSSES: dict[str, Callable[..., rd.Problem]] = {
    "logistic": rd.logistic,
    "least-squares": rd.least_squares,
    "huber": lambda *args, **options: rd.huber(*args, threshold=0.8, **options),
}
STORED = {
    "bytes": ("uint8", dict(ranges=(0, 255))),
    "clipped bytes": ("uint8", dict(ranges=(-3, 200), record_norm=0.9)),
    "single": ("float32", dict(record_norm=0.9)),
    "double": ("float64", dict(record_norm=0.9)),
    "dense": ("float64", {}),
}


def draw_problem(loss: str, stored: str, intercept: bool, sizes: list[int], features: int, seed: int = 0) -> rd.Problem:
    rng = np.random.default_rng(seed)
    m, dtype = sum(sizes), STORED[stored][0]
    X = rng.integers(0, 256, (m, features)) if dtype == "uint8" else rng.standard_normal((m, features))
    y = np.where(np.arange(m) % 2, 1.0, -1.0) if loss == "logistic" else 2.0 * rng.standard_normal(m)
    return LOSSES[loss](rd.Records(X.astype(dtype), y), sizes, intercept=intercept, **STORED[stored][1])


def draw_x(problem: rd.Problem, seed: int = 1) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(problem.dim))


def by_hand(problem: rd.Problem, agent: int, x: Any, clip: float | None) -> np.ndarray:
    """Record by record, in NumPy, from the documented features."""
    agent_records, first = problem.agent_records, int(problem.split.sizes[:agent].sum())
    own = slice(first, first + int(problem.split.sizes[agent]))
    A, y = np.asarray(agent_records.dense().X)[own], np.asarray(agent_records.y)[own]
    A = np.column_stack([A, np.ones(len(A))]) if problem.intercept else A
    z = A @ np.asarray(x)
    if problem.loss.name == "logistic":
        slope = -y / (1.0 + np.exp(y * z))
    else:
        slope = np.clip(z - y, -0.8, 0.8) if problem.loss.name == "huber" else z - y
    each = slope[:, None] * A
    norms = np.linalg.norm(each, axis=1, keepdims=True)
    return (each if clip is None else each * np.minimum(1.0, clip / np.maximum(norms, 1e-300))).mean(axis=0)


fast, plain = jax.jit(AgentRecords.gradient), jax.jit(AgentRecords.plain_gradient)


def assert_same(found: Any, expected: Any, tolerance: float = 1e-13) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * max(np.abs(expected).max(), 1e-3))


@pytest.fixture(params=LOSSES)
def loss(request):
    return request.param


@pytest.fixture(params=STORED)
def stored(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["", "intercept"])
def intercept(request):
    return request.param


# ---------------------------------------------------------------- the same numbers


def test_the_exponential_is_right_to_the_last_bits_and_keeps_nan():
    from relaydp.problem.kernels.native import LARGEST, exponential

    ends = np.linspace(-LARGEST, LARGEST, 20_001)
    near = np.concatenate([np.linspace(-2.0, 2.0, 20_001), [0.0, -0.0, 5e-324, 1e-17]])
    for x in (*ends, *near):
        assert exponential(x) == pytest.approx(np.exp(x), rel=5e-16, abs=0.0)
    assert exponential(0.0) == 1.0 and np.isnan(exponential(np.nan))
    assert exponential(1e300) == exponential(np.inf) == pytest.approx(np.exp(LARGEST), rel=5e-16)
    assert 0.0 < exponential(-np.inf) < 1e-300


@pytest.mark.sample(7)
@pytest.mark.parametrize("clip", [None, 0.3], ids=["", "clipped"])
def test_fused_plain_and_by_hand_agree(loss, stored, intercept, clip):
    problem = draw_problem(loss, stored, intercept, SIZES, FEATURES)
    agent_records, x = problem.records_for(5, clipped=True), draw_x(problem)
    assert agent_records.by_passes
    assert (agent_records.X.dtype, agent_records.is_dense) == (STORED[stored][0], STORED[stored][0] == "float64")
    for agent in range(len(SIZES)):
        found = fast(agent_records, agent, x, clip)
        assert_same(found, plain(agent_records, agent, x, clip))
        assert_same(found, by_hand(problem, agent, x, clip))


@given(
    st.sampled_from(sorted(LOSSES)),
    st.sampled_from(sorted(STORED)),
    st.booleans(),
    st.lists(st.sampled_from([1, 2, 7, 8, 9, 31]), min_size=1, max_size=3),
    st.sampled_from([1, 2, 8, 17]),
    st.sampled_from([None, 0.1]),
    st.integers(0, 9),
)
@settings(max_examples=size(15, 5), deadline=None, derandomize=True)
def test_any_shape(loss, stored, intercept, sizes, features, clip, seed):
    sizes = [max(2, sizes[0]), *sizes[1:]]  # two classes need two records
    problem = draw_problem(loss, stored, intercept, sizes, features, seed)
    agent, x = seed % len(sizes), draw_x(problem, seed)
    found = dispatch.gradient(problem.agent_records, jnp.asarray(agent), x, clip)
    assert_same(found, by_hand(problem, agent, x, clip))


@pytest.mark.parametrize("stored", ["bytes", "dense"])
def test_many_parts_on_many_threads_agree_and_repeat_to_the_last_bit(stored):
    problem = draw_problem("logistic", stored, True, [3001, 1999], 97)
    x, clip = draw_x(problem) / 10.0, jnp.asarray(0.5)
    one = jax.jit(lambda agent_records, x: agent_records.gradient(jnp.asarray(0), x, clip))
    first = one(problem.agent_records, x)
    assert_same(first, by_hand(problem, 0, x, 0.5))
    for _ in range(20):
        np.testing.assert_array_equal(one(problem.agent_records, x), first)
    np.testing.assert_array_equal(problem.agent_records.gradient(jnp.asarray(0), x, clip), first)  # jitted or not


def far_points(problem: rd.Problem) -> list[jax.Array]:
    """Where scores overflow, or are no numbers."""
    x = draw_x(problem)
    return [x.at[3].set(jnp.nan), x.at[3].set(jnp.inf), 1e300 * x, 1.7e308 * jnp.sign(x)]


def at_eight_points(agent_records: AgentRecords, i: Any, x: Any, clip: float | None) -> Any:
    return dispatch.gradient(agent_records, i, jnp.tile(x, (8, 1)), clip)[5]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "way", [dispatch.gradient, at_eight_points, AgentRecords.plain_gradient], ids=["one", "many", "plain"]
)
def test_what_is_not_a_number_stays_so_and_no_record_moves_more_than_the_clip(loss, intercept, way):
    """One record that overflows must not show in what its agent publishes: NaN outlives any noise."""
    problem = draw_problem(loss, "dense", intercept, SIZES, FEATURES)
    x = draw_x(problem).at[3].set(jnp.nan)
    agent = jnp.asarray(0)
    assert np.isnan(way(problem.agent_records, agent, x, None)).all()
    for odd in far_points(problem):
        assert np.linalg.norm(way(problem.agent_records, agent, odd, 0.3)) <= 0.3 * (1 + 1e-12)


# ---------------------------------------------------------------- the promise


@pytest.mark.sample(7)
def test_one_record_moves_a_clipped_gradient_by_at_most_its_sensitivity(loss, stored):
    clip, agent, intercept = 0.05, 0, True
    rng = np.random.default_rng(3)
    problem = draw_problem(loss, stored, intercept, SIZES, FEATURES)
    for row in (0, 20):  # in a block, and in the rest
        X, y = problem.data.X.copy(), problem.data.y.copy()
        X[row] = 255 * rng.integers(0, 2, FEATURES) if X.dtype == np.uint8 else 1e3 * rng.standard_normal(FEATURES)
        y[row] = -y[row] if loss == "logistic" else 1e3
        other = LOSSES[loss](rd.Records(X, y), SIZES, intercept=intercept, **STORED[stored][1])
        for scale in (0.1, 10.0):
            x = scale * draw_x(problem)
            before, after = (fast(p.agent_records, agent, x, clip) for p in (problem, other))
            assert np.linalg.norm(after - before) <= 2 * clip / SIZES[agent] * (1 + 1e-12)


# ---------------------------------------------------------------- inside compiled code


def test_in_a_scan_with_a_condition():
    problem = draw_problem("logistic", "bytes", True, SIZES, FEATURES)

    def hops(gradient):
        def hop(x, turn):
            i, acts = turn
            return jax.lax.cond(acts, lambda: x - 0.5 * gradient(i, x, 0.3), lambda: x), None

        turns = jnp.asarray([0, 1, 2, 1, 0, 2], jnp.int32), jnp.asarray([True, True, False, True, True, True])
        return jax.jit(lambda x: jax.lax.scan(hop, x, turns)[0])(draw_x(problem))

    agent_records = problem.records_for(5, clipped=True)
    assert_same(hops(agent_records.gradient), hops(agent_records.plain_gradient))


def calls_out(function: Callable[..., Any], *args: Any, target: str = dispatch.ONE) -> bool:
    return f"@{target}(" in jax.jit(function).lower(*args).as_text()


@pytest.mark.sample(2)
@pytest.mark.parametrize("many", [2, 9], ids="{} runs".format)
@pytest.mark.parametrize("axes", [(None, 0), (0, None), (0, 0)], ids=["points", "agents", "both"])
def test_a_batch_is_matrix_products_or_one_pass(axes, many):
    problem = draw_problem("huber", "bytes", False, SIZES, FEATURES)
    agent_records, x = problem.records_for(5, clipped=True), draw_x(problem)
    i = jnp.asarray(1) if axes[0] is None else jnp.arange(many) % 3
    xs = x if axes[1] is None else jnp.stack([x * (k - 2.0) for k in range(many)])

    def batch(gradient):
        return jax.vmap(lambda i, x: gradient(i, x, 0.3), in_axes=axes)

    assert calls_out(lambda x: agent_records.gradient(jnp.asarray(1), x, None), x)
    assert not calls_out(batch(agent_records.gradient), i, xs)
    assert calls_out(batch(agent_records.gradient), i, xs, target=dispatch.AT_MANY) == (many == 9 and axes == (None, 0))
    assert_same(batch(agent_records.gradient)(i, xs), batch(agent_records.plain_gradient)(i, xs))


# ---------------------------------------------------------------- all agents at once


@pytest.mark.sample(2)
@pytest.mark.parametrize("clip", [None, 0.3], ids=["", "clipped"])
@pytest.mark.parametrize("loss", LOSSES)
def test_in_rounds_over_many_records_each_agent_takes_a_pass(monkeypatch, loss, clip):
    problem = draw_problem(loss, "bytes", True, SIZES, FEATURES)
    assert problem.records_for(5, clipped=True, rounds=True) is problem.working_records
    monkeypatch.setattr(dispatch, "MANY", problem.data.X.size)
    agent_records = problem.records_for(5, clipped=True, rounds=True)
    xs = jnp.stack([draw_x(problem) * (1.0 + i) for i in range(len(SIZES))])
    assert calls_out(lambda xs: agent_records.gradients(xs, clip), xs)
    for agent, row in enumerate(jax.jit(AgentRecords.gradients)(agent_records, xs, clip)):
        assert_same(row, by_hand(problem, agent, xs[agent], clip))
    few, many = jnp.stack([xs, -xs]), jnp.stack([xs, -xs, *[xs / k for k in range(1, 8)]])
    batch = jax.vmap(lambda xs: agent_records.gradients(xs, clip))
    assert not calls_out(batch, few) and not calls_out(batch, few, target=dispatch.AT_MANY)
    assert calls_out(batch, many, target=dispatch.AT_MANY)
    for runs in (few, many):
        assert_same(jax.jit(batch)(runs)[1], jax.jit(AgentRecords.plain_gradients)(agent_records, -xs, clip))


@pytest.mark.sample(1)
@pytest.mark.parametrize("algorithm", ["nids", "d-admm", "dgd"])
def test_rounds_of_passes_are_the_rounds_of_products(monkeypatch, algorithm):
    problem = replace(draw_problem("logistic", "bytes", False, [40, 30, 30], FEATURES), l2=0.1)
    by_products = rd.solve(problem, rd.ring(3), algorithm=algorithm, activations=9, steps="paper")
    monkeypatch.setattr(dispatch, "MANY", 1)
    by_passes = rd.solve(problem, rd.ring(3), algorithm=algorithm, activations=9, steps="paper")
    assert_same(by_passes.x, by_products.x, 1e-12)


# ---------------------------------------------------------------- many points at once


def many_points(problem: rd.Problem, points: int) -> jax.Array:
    return jnp.stack([draw_x(problem, seed) * (0.1 + seed / points) for seed in range(points)])


@pytest.mark.sample(20)
@pytest.mark.parametrize("clip", [None, 0.3], ids=["", "clipped"])
def test_a_pass_for_many_points_is_each_of_theirs(loss, stored, intercept, clip):
    problem = draw_problem(loss, stored, intercept, SIZES, FEATURES)
    xs = many_points(problem, 19)  # a panel, and a few of the next
    for agent in range(len(SIZES)):
        found = dispatch.gradient(problem.agent_records, jnp.asarray(agent), xs, clip)
        for row, x in zip(found, xs, strict=True):
            assert_same(row, by_hand(problem, agent, x, clip))


@given(
    st.sampled_from(sorted(STORED)),
    st.sampled_from([2, 5, 6, 7, 13, 150]),
    st.sampled_from([1, 7, 8, 9, 17]),
    st.sampled_from([1, 15, 16, 33]),
    st.floats(0.0, 1.0),
    st.integers(0, 9),
)
@settings(max_examples=size(25, 6), deadline=None, derandomize=True)
def test_any_shape_and_any_number_of_zeros(stored, m, features, points, zeros, seed):
    problem = draw_problem("least-squares", stored, True, [m], features, seed)
    X = problem.data.X * (np.random.default_rng(seed).random(problem.data.X.shape) >= zeros).astype(
        problem.data.X.dtype
    )
    problem = rd.least_squares(rd.Records(X, problem.data.y), [m], intercept=True, **STORED[stored][1])
    xs = many_points(problem, points)
    for row, x in zip(dispatch.gradient(problem.agent_records, jnp.asarray(0), xs, 0.5), xs, strict=True):
        assert_same(row, by_hand(problem, 0, x, 0.5))


@pytest.mark.parametrize("features, points", [(97, 70), (2100, 40)], ids=["panels together", "panels apart"])
def test_panels_on_many_threads_agree_and_repeat_to_the_last_bit(features, points):
    problem = draw_problem("logistic", "bytes", True, [701, 299], features)
    xs, clip = many_points(problem, points) / 30.0, jnp.asarray(0.5)
    call = jax.jit(lambda agent_records, xs: dispatch.gradient(agent_records, jnp.asarray(0), xs, clip))
    first = call(problem.agent_records, xs)
    for k in (0, 16, points - 1):
        assert_same(first[k], by_hand(problem, 0, xs[k], 0.5))
    for _ in range(20):
        np.testing.assert_array_equal(call(problem.agent_records, xs), first)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_a_point_that_is_not_finite_spoils_itself_alone(loss, odd):
    problem = draw_problem(loss, "single", False, SIZES, FEATURES)
    xs = many_points(problem, 9)
    spoilt = dispatch.gradient(problem.agent_records, jnp.asarray(0), xs.at[4, 2].set(odd), None)
    if np.isnan(odd):
        assert np.isnan(spoilt[4]).all()
    elif loss == "least-squares":  # others have bounded slopes
        assert not np.isfinite(spoilt[4]).any()
    for k in (3, 5):
        assert_same(spoilt[k], by_hand(problem, 0, xs[k], None))


@pytest.mark.sample(2)
@pytest.mark.parametrize("algorithm", ["recal", "nids", "d-admm", "rw-admm", "huang-ring"])
def test_a_sweep_by_panels_is_the_sweep_by_products(monkeypatch, algorithm):
    problem = replace(draw_problem("logistic", "bytes", False, [40, 30, 30], FEATURES), l2=0.1)
    options = dict(algorithm=algorithm, seeds=range(9), activations=7, walk="cyclic", steps="paper", reference=False)
    by_products = rd.sweep(problem, rd.ring(3), **options)
    assert not problem.records_for(7, False, batched=True, shared=9).by_passes
    monkeypatch.setattr(dispatch, "SOME", 1)
    agent_records = problem.records_for(7, False, batched=True, shared=9)
    assert agent_records.by_passes and agent_records.X.dtype == np.uint8
    assert_same(rd.sweep(problem, rd.ring(3), **options).x, by_products.x, 1e-12)


def mean_loss(problem: rd.Problem, x: Any) -> float:
    """The mean over agents of their records' mean loss, in NumPy."""
    agent_records, total = problem.agent_records, problem.split.sizes.sum()
    A, y = np.asarray(agent_records.dense().X)[:total], np.asarray(agent_records.y)[:total]
    z = A @ np.asarray(x)[: A.shape[1]] + (x[-1] if problem.intercept else 0.0)
    if problem.loss.name == "logistic":
        each = np.logaddexp(0.0, -y * z)
    elif problem.loss.name == "huber":
        each = np.where(abs(z - y) <= 0.8, 0.5 * (z - y) ** 2, 0.8 * (abs(z - y) - 0.4))
    else:
        each = 0.5 * (z - y) ** 2
    return float(np.mean([own.mean() for own in np.split(each, np.cumsum(problem.split.sizes)[:-1])]))


@pytest.mark.sample(2)
def test_losses_at_many_points_are_each_of_theirs(loss, stored, intercept):
    problem = draw_problem(loss, stored, intercept, [1100, 8, 1], FEATURES)  # products of many factors are folded
    xs = many_points(problem, 19)
    assert_same(dispatch.values(problem.agent_records, xs), [mean_loss(problem, x) for x in xs])


def test_losses_far_out_and_of_what_is_not_a_number(loss):
    problem = draw_problem(loss, "dense", False, SIZES, FEATURES)
    xs = many_points(problem, 9)
    odd = xs.at[2].multiply(1e5).at[4, 2].set(jnp.nan)
    found = np.asarray(dispatch.values(problem.agent_records, odd))
    assert np.isnan(found[4])
    assert found[2] == pytest.approx(mean_loss(problem, odd[2]), rel=1e-13)
    assert_same(np.delete(found, [2, 4]), [mean_loss(problem, x) for k, x in enumerate(odd) if k not in (2, 4)])


@pytest.mark.parametrize("stored", ["clipped bytes", "double"])
def test_objectives_and_accuracies_are_the_same_by_passes(monkeypatch, stored, intercept):
    problem, again = (draw_problem("logistic", stored, intercept, [40, 30, 30], FEATURES) for _ in range(2))
    xs = np.asarray(many_points(problem, 21)) * (np.arange(21) > 0)[:, None]  # 0 too: no score is above 0
    by_products = problem.objectives(xs), problem.accuracies(xs)
    assert not dispatch.measures(again.agent_records, 21, again.data.X.size)
    monkeypatch.setattr(dispatch, "SOME", 1)
    assert not dispatch.measures(again.agent_records, 21, again.data.X.size)  # agents have few records
    monkeypatch.setattr(dispatch, "WORTH", 1)
    assert dispatch.measures(again.agent_records, 21, again.data.X.size)
    assert_same(again.objectives(xs), by_products[0])
    np.testing.assert_array_equal(again.accuracies(xs), by_products[1])
    assert "working_records" not in again.__dict__ and "_held_out" not in again.__dict__


def test_a_label_that_is_no_sign_is_never_right(monkeypatch):
    X, y = np.ones((30, 3)), np.resize([1.0, -1.0, 1.0], 30)
    problem = rd.least_squares(rd.Records(X, y, test=rd.Records(X, np.resize([1.0, -1.0, 2.0], 30))), 2)
    xs = np.ones((9, 3)) * np.array([1.0, -1.0, 0.0])[np.arange(9) % 3][:, None]
    expected = problem.accuracies(xs)
    np.testing.assert_allclose(expected[:3], 1 / 3)
    monkeypatch.setattr(dispatch, "SOME", 1)
    monkeypatch.setattr(dispatch, "WORTH", 1)
    np.testing.assert_array_equal(problem.accuracies(xs), expected)
    assert "_held_out_records" in problem.__dict__


def test_panels_are_for_neither_few_points_nor_a_crowd_over_wide_records():
    assert dispatch.pays_at_many(64, 2**22, 3072) and dispatch.pays_at_many(1024, 2**22, 784)
    assert not dispatch.pays_at_many(1024, 2**22, 3072)
    assert not dispatch.pays_at_many(7, 2**22, 784) and not dispatch.pays_at_many(64, 2**19, 22)


@pytest.mark.parametrize(
    ("name", "made_of"),
    [
        ("problem/kernels/gradient.py", ["native.py"]),
        ("problem/kernels/gradient_batch.py", ["native.py"]),
        ("problem/kernels/losses.py", ["native.py", "gradient_batch.py"]),
        ("engine/prefetch_native.py", ["native.py"]),
    ],
)
def test_kept_machine_code_is_of_the_present_machine(name, made_of):
    """Numba keeps it until the file that asks for it changes, and does not see that a file it imports has."""
    package = Path(rd.__file__).parent
    content = b"".join((package / "problem" / "kernels" / part).read_bytes() for part in made_of)
    digest = hashlib.sha256(content).hexdigest()[:12]
    assert f'DIGEST = "{digest}"' in (package / name).read_text(), f"{name} should say {digest}"


# ---------------------------------------------------------------- where it does not serve


def test_without_numba_xla_does_the_same(monkeypatch):
    problem = draw_problem("logistic", "bytes", False, SIZES, FEATURES)
    x = draw_x(problem)
    before = problem.records_for(10, clipped=True).gradient(jnp.asarray(0), x, 0.3)
    dispatch._is_ready.cache_clear()
    monkeypatch.setitem(sys.modules, "relaydp.problem.kernels.gradient", None)  # as if importing Numba had failed
    monkeypatch.delattr("relaydp.problem.kernels.gradient", raising=False)
    try:
        assert not dispatch.serves(problem.agent_records)
        agent_records = problem.records_for(10, clipped=True)
        assert agent_records is problem.working_records
        assert not calls_out(lambda x: agent_records.gradient(jnp.asarray(0), x, 0.3), x)
        assert_same(agent_records.gradient(jnp.asarray(0), x, 0.3), before)
    finally:
        dispatch._is_ready.cache_clear()


def test_several_outputs_and_other_dtypes_are_left_to_xla():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 3)), np.arange(12) % 3
    assert not dispatch.serves(rd.softmax(rd.Records(X, y), 2).agent_records)
    assert not dispatch.serves(
        rd.custom(lambda x, a, b: (a @ x - b) ** 2, rd.Records(X, y.astype(float)), 2).agent_records
    )
    halves = replace(
        draw_problem("logistic", "bytes", False, SIZES, FEATURES).agent_records, X=jnp.zeros((51, 3), jnp.int16)
    )
    assert not dispatch.serves(halves)


def test_a_run_is_the_same_run_without_the_fused_pass(monkeypatch):
    problem = draw_problem("logistic", "bytes", False, [40, 30, 30], FEATURES)
    budget = rd.Budget(epsilon=2.0, delta=1e-4)
    with_it = rd.solve(problem, rd.ring(3), budget=budget, seed=4, activations=9)
    monkeypatch.setattr(dispatch, "serves", lambda agent_records: False)
    without = rd.solve(problem, rd.ring(3), budget=budget, seed=4, activations=9)  # on dense records: another program
    assert_same(with_it.x, without.x, 1e-12)


def test_a_problem_can_do_without_kernels(monkeypatch):
    """As the demo does: nothing is compiled for it, and the numbers are the same."""
    monkeypatch.setattr(dispatch, "SOME", 1)
    monkeypatch.setattr(dispatch, "WORTH", 1)
    problem = draw_problem("logistic", "bytes", True, [40, 30], FEATURES)
    bare, xs = replace(problem, kernels=False), np.asarray(many_points(problem, 16))
    values, shares = problem.objectives(xs), problem.accuracies(xs)
    ways = [dict(), dict(rounds=True), dict(batched=True, shared=16)]
    assert problem.records_for(9, True).by_passes and problem.records_for(9, True, **ways[2]).by_passes

    def refuse(*_: Any) -> bool:
        raise AssertionError("asked for a kernel")

    monkeypatch.setattr(dispatch, "_is_ready", refuse)
    assert not any(bare.records_for(9, True, **way).by_passes for way in ways)
    assert_same(bare.objectives(xs), values)
    assert_same(bare.accuracies(xs), shares)
    assert not bare.alone(1).kernels


# ---------------------------------------------------------------- what is stored


def test_one_run_reads_compact_records_and_makes_no_copy():
    problem = draw_problem("logistic", "bytes", False, SIZES, FEATURES)
    assert problem.records_for(10, clipped=True).X is problem.agent_records.X
    assert "working_records" not in problem.__dict__
    assert problem.records_for(10, clipped=True, batched=True) is problem.working_records


# ---------------------------------------------------------------- Gram form


def gram_problem(intercept: bool) -> rd.Problem:
    return draw_problem("least-squares", "double", intercept, [300, 200, 100], 5)


def test_least_squares_by_gram_form_is_least_squares(intercept):
    problem = gram_problem(intercept)
    agent_records, x = problem.records_for(100, clipped=False), draw_x(problem)
    assert agent_records.gram is not None
    for agent in range(3):
        assert_same(agent_records.gradient(jnp.asarray(agent), x, None), by_hand(problem, agent, x, None))
    xs = jnp.stack([x, -x, 2.0 * x])
    every = jax.jit(AgentRecords.gradients)
    assert_same(every(agent_records, xs, None), every(problem.agent_records, xs, None))


def test_a_clip_always_reads_the_records():
    problem = gram_problem(True)
    x = draw_x(problem)
    assert problem.records_for(10**6, clipped=True).gram is None
    agent_records = problem.records_for(100, clipped=False)
    assert_same(agent_records.gradient(jnp.asarray(0), x, 0.01), by_hand(problem, 0, x, 0.01))
    assert_same(
        jax.jit(AgentRecords.gradients)(agent_records, jnp.stack([x] * 3), 0.01)[0], by_hand(problem, 0, x, 0.01)
    )


def test_gram_form_only_where_it_saves():
    def uses(sizes: list[int], activations: int) -> bool:
        problem = draw_problem("least-squares", "double", False, sizes, 30)
        return problem.records_for(activations, clipped=False).gram is not None

    assert uses([100, 100], 50)
    assert not uses([100, 100], 2)  # too few activations to pay for making it
    assert not uses([20, 20], 50)  # H_i is larger than the records
    assert draw_problem("logistic", "double", False, [99, 99], 3).records_for(99, clipped=False).gram is None


def test_gram_runs_are_the_runs_on_records(monkeypatch):
    problem = gram_problem(False)
    by_gram = rd.solve(problem, rd.ring(3), activations=40)
    assert "gram" in problem.__dict__
    monkeypatch.setattr("relaydp.problem.problem.PRODUCT_SPEED", 1e-9)
    by_records = rd.solve(replace(problem), rd.ring(3), activations=40)
    assert_same(by_gram.x, by_records.x, 1e-11)
