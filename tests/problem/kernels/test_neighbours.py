"""Neighbours: one record moves a clipped gradient by its sensitivity at most, on every path and wherever the point is,
and moves nothing else: not the type that records are stored in, nor the program that reads them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_kernels import FEATURES, LOSSES, STORED, draw_x

import relaydp as rd
from relaydp.privacy import mechanism
from relaydp.privacy.mechanism import clip_factor
from relaydp.privacy.sensitivity import sensitivity
from relaydp.problem.agent_records import AgentRecords
from relaydp.problem.bounds import SMALLEST, as_ranges, scale_between, storage
from relaydp.problem.coordinates import KEPT, Coordinates
from relaydp.problem.kernels import dispatch, int8_products

M, CLIP, ROW = 64, 0.05, 7
NOBODY = jnp.asarray(0, jnp.int32)


# ---------------------------------------------------------------- paths


@jax.jit
def by_kernel(agent_records: AgentRecords, xs: jax.Array) -> jax.Array:
    return jax.lax.map(lambda x: dispatch.gradient(agent_records, NOBODY, x, jnp.asarray(CLIP)), xs)


@jax.jit
def by_panels(agent_records: AgentRecords, xs: jax.Array) -> jax.Array:
    return dispatch.gradient(agent_records, NOBODY, xs, jnp.asarray(CLIP))


@jax.jit
def by_products(agent_records: AgentRecords, xs: jax.Array) -> jax.Array:
    return jax.vmap(lambda x: agent_records.plain_gradient(NOBODY, x, jnp.asarray(CLIP)))(xs)


@jax.jit
def by_products_of_dense(agent_records: AgentRecords, xs: jax.Array) -> jax.Array:
    return by_products(agent_records.dense(), xs)


@jax.jit
def by_sums_along_rows(agent_records: AgentRecords, xs: jax.Array) -> jax.Array:
    turned = agent_records.with_turned()
    return jax.lax.map(lambda x: turned._reduced_gradient(NOBODY, x, jnp.asarray(CLIP)), xs)


@jax.jit
def by_digits(agent_records: AgentRecords, xs: jax.Array) -> jax.Array:
    return agent_records.with_bytes()._digit_gradients(NOBODY, xs, jnp.asarray(CLIP))


PATHS: dict[str, Callable[[AgentRecords, jax.Array], jax.Array]] = {
    "kernel": by_kernel,
    "panels": by_panels,
    "products": by_products,
    "dense": by_products_of_dense,
    "rows": by_sums_along_rows,
    "digits": by_digits,
}


def suits(path: str, stored: str) -> bool:
    dtype = STORED[stored][0]
    return {"rows": dtype != "float64", "digits": dtype == "uint8", "dense": dtype != "float64"}.get(path, True)


# ---------------------------------------------------------------- records


def draw(loss: str, stored: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    dtype = STORED[stored][0]
    X = rng.integers(60, 256, (M, FEATURES)) if dtype == "uint8" else 1.0 + rng.random((M, FEATURES))
    y = np.where(np.arange(M) % 8, 1.0, -1.0) if loss == "logistic" else 2.0 + rng.random(M)
    return X.astype(dtype), y


def worst(loss: str, stored: str) -> dict[str, tuple[np.ndarray, float]]:
    """Records that would take others' digits along, or hide their own length."""
    dtype = STORED[stored][0]
    one = np.zeros(FEATURES)
    one[2] = 1.0
    tiny = {"uint8": 1.0, "float32": 1e-30}.get(dtype, 10 * SMALLEST)
    features = {
        "zeros": np.zeros(FEATURES),
        "tiny": tiny * one,
        "all tiny": np.full(FEATURES, tiny),
        "largest": np.full(FEATURES, {"uint8": 255.0, "float32": 1e30}.get(dtype, 1e60)),
    }
    if dtype == "float64":
        features["below the smallest"] = 0.1 * SMALLEST * one
        features["beyond squares"] = np.full(FEATURES, 1e-170)
    labels = (1.0, -1.0) if loss == "logistic" else (1e20, -1e60)
    return {f"{name}, {y:g}": (a.astype(dtype), y) for name, a in features.items() for y in labels}


def make(loss: str, stored: str, X: np.ndarray, y: np.ndarray, intercept: bool = False) -> rd.Problem:
    return LOSSES[loss](rd.Records(X, y), [len(y)], intercept=intercept, clip=CLIP, **STORED[stored][1])


def points(problem: rd.Problem) -> jax.Array:
    """Ordinary ones, 0, far ones, and such as nobody sends by accident: anybody may choose x."""
    x = draw_x(problem)
    odd = [x.at[3].set(jnp.inf), x.at[3].set(jnp.nan), 1.7e308 * jnp.sign(x), 1e295 * x]
    return jnp.stack([0.1 * x, 0.0 * x, 10.0 * x, 1e12 * x, 1e-300 * x, *odd])


CASES = [(loss, stored, path, False) for loss in LOSSES for stored in STORED for path in PATHS if suits(path, stored)]
CASES += [(loss, "clipped bytes", path, True) for loss in LOSSES for path in PATHS]  # no record is short there


@pytest.mark.sample(24)
@pytest.mark.parametrize(("loss", "stored", "path", "intercept"), CASES)
def test_the_worst_record_moves_a_gradient_by_at_most_its_sensitivity(loss, stored, path, intercept):
    if path in ("kernel", "panels"):
        pytest.importorskip("numba")
    X, y = draw(loss, stored)
    problem = make(loss, stored, X, y, intercept)
    xs, most = points(problem), sensitivity(CLIP, M, problem.dim)
    before = np.asarray(PATHS[path](problem.agent_records, xs))
    assert np.isfinite(before).all() and np.linalg.norm(before[0]) > 0.1 * CLIP
    for name, (row, label) in worst(loss, stored).items():
        other, labels = X.copy(), y.copy()
        other[ROW], labels[ROW] = row, label
        after = np.asarray(PATHS[path](make(loss, stored, other, labels, intercept).agent_records, xs))
        moved = np.linalg.norm(after - before, axis=1)
        assert moved.max() <= most, f"{name}: {moved / most}"


@pytest.mark.sample(12)
@pytest.mark.parametrize(("stored", "path", "intercept"), [case[1:] for case in CASES if case[0] == "logistic"])
def test_the_worst_record_moves_no_more_in_other_coordinates(stored, path, intercept):
    """Whose direction is that of most records, so that their lengths there are differences of nearly equal numbers."""
    if path in ("kernel", "panels"):
        pytest.importorskip("numba")
    X, y = draw("logistic", stored)
    problem = make("logistic", stored, X, y, intercept)
    common = problem.agent_records.dense().X[:M].mean(axis=0)
    u = jnp.append(common, 1.0) if intercept else common
    change = Coordinates(u / jnp.linalg.norm(u), jnp.asarray(1.0 / KEPT), jnp.zeros(problem.dim), jnp.ones(()))

    def released(records: AgentRecords) -> np.ndarray:
        there = replace(jax.jit(AgentRecords.in_coordinates)(records, change), coordinates=None)
        return np.asarray(jax.vmap(change)(PATHS[path](there, jax.vmap(change)(xs))))

    xs, most = points(problem), sensitivity(CLIP, M, problem.dim, KEPT)
    before = released(problem.agent_records)
    assert np.isfinite(before).all() and np.linalg.norm(before[0]) > 0.01 * CLIP
    for name, (row, label) in worst("logistic", stored).items():
        other, labels = X.copy(), y.copy()
        other[ROW], labels[ROW] = row, label
        moved = np.linalg.norm(
            released(make("logistic", stored, other, labels, intercept).agent_records) - before, axis=1
        )
        assert moved.max() <= most, f"{name}: {moved / most}"


def test_a_custom_loss_and_several_classes_keep_to_their_sensitivity_too():
    X, y = draw("least-squares", "double")

    def custom(X: np.ndarray, y: np.ndarray) -> rd.Problem:
        return rd.custom(lambda x, a, b: (a @ x - b) ** 2 / 2, rd.Records(X, y), [M], clip=CLIP)

    def softmax(X: np.ndarray, y: np.ndarray) -> rd.Problem:
        return rd.softmax(rd.Records(X, (np.abs(y) > 2.5).astype(int)), [M], clip=CLIP, classes=[0, 1])

    for build in (custom, softmax):
        problem = build(X, y)
        xs = points(problem)
        before = np.asarray(by_products(problem.agent_records, xs))
        for row, label in worst("least-squares", "double").values():
            other, labels = X.copy(), y.copy()
            other[ROW], labels[ROW] = row, label
            after = np.asarray(by_products(build(other, labels).agent_records, xs))
            assert np.linalg.norm(after - before, axis=1).max() <= sensitivity(CLIP, M, problem.dim)


def test_a_factor_too_small_to_be_exact_clips_to_nothing():
    """c/norm below 1e-308 has few digits left, and would be up to twice what it should. Called as they are: XLA takes
    such numbers for 0, and its threads may not."""
    pytest.importorskip("numba")
    from relaydp.problem.kernels.gradient import clip_slopes
    from relaydp.problem.kernels.gradient_batch import clip_row
    from relaydp.problem.kernels.native import FAR

    steep, clip = np.linspace(1e307, 1.7e308, 40), 1e-15
    one, many = steep.copy(), steep.copy()
    clip_slopes(one, np.ones(40), 0, 40, clip)
    clip_row(many, 40, 1.0, clip)
    by_xla = steep * np.asarray(clip_factor(jnp.asarray(steep), clip))
    assert max(np.abs(found).max() for found in (one, many, by_xla)) <= clip * (1 + 1e-15)
    assert FAR == mechanism.FAR


@pytest.mark.parametrize("path", ["panels", "products", "digits"])
def test_what_a_record_adds_does_not_depend_on_those_beside_it(path):
    """Panels leave out features that are 0 in six records together: a point that is infinite there must not tell."""
    if path == "panels":
        pytest.importorskip("numba")
    X, y = draw("huber", "bytes")
    X[:, 3] = 0
    problem = make("huber", "bytes", X, y)
    xs = points(problem)
    beside = X.copy()
    beside[ROW, 3] = 1
    other = make("huber", "bytes", beside, y)
    moved = np.asarray(PATHS[path](other.agent_records, xs)) - np.asarray(PATHS[path](problem.agent_records, xs))
    assert np.linalg.norm(moved, axis=1).max() <= sensitivity(CLIP, M, problem.dim)


# ---------------------------------------------------------------- programs


def program(problem: rd.Problem, **options: Any) -> tuple[Any, ...]:
    """All that decides how long a gradient takes: the records' structure, types and shapes, and what is compiled."""
    agent_records = problem.records_for(50, clipped=True, **options)
    leaves, tree = jax.tree.flatten(agent_records)
    x = jax.ShapeDtypeStruct((problem.dim,), jnp.float64)
    clip = jax.ShapeDtypeStruct((), jnp.float64)
    text = (
        jax.jit(lambda agent_records, x, clip: agent_records.gradient(NOBODY, x, clip))
        .lower(agent_records, x, clip)
        .as_text()
    )
    return tree, [(leaf.shape, leaf.dtype) for leaf in leaves], text


ODD = {
    "a fraction among whole numbers": 0.1,
    "a row of zeros": 0.0,
    "a large value": 1e50,
    "one that float32 cannot hold": 1e-60,
    "a negative one": -3.0,
}


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    "options", [dict(record_norm=1.0), dict(ranges=(0, 255)), dict(ranges=(0, 1), record_norm=0.5)]
)
@pytest.mark.parametrize("odd", ODD)
def test_no_record_chooses_how_it_is_stored_or_read(odd, options):
    X = np.random.default_rng(0).integers(0, 256, (40, 5)).astype(np.float64)
    y = np.arange(40) % 2

    def build(X: np.ndarray) -> rd.Problem:
        return rd.logistic(rd.Records(X, y), 4, classes=[0, 1], **options)

    other = X.copy()
    other[11] = ODD[odd]
    budget = rd.Budget(2.0, 1e-5)
    for way in (dict(), dict(rounds=True)):
        assert program(build(X), **way) == program(build(other), **way)
    plans = [rd.plan(build(data), rd.ring(4), budget, activations=5) for data in (X, other)]
    assert plans[0].scales.tolist() == plans[1].scales.tolist()


@pytest.mark.parametrize("ranges", [(0, 255), (3, 200)])
def test_bytes_are_bytes_whatever_they_hold(ranges):
    X = np.random.default_rng(0).integers(0, 256, (40, 5), dtype=np.uint8)
    other = X.copy()
    other[11] = 0
    a, b = (program(rd.logistic(rd.Records(data, np.arange(40) % 2), 4, ranges=ranges)) for data in (X, other))
    assert a == b and a[1][0][1] == (np.uint8 if ranges[0] == 0 else np.float32)


def test_a_fraction_in_a_file_changes_no_program(tmp_path):
    """Reading a text guesses whole numbers or fractions by looking at all rows."""
    rng = np.random.default_rng(0)
    rows = [f"{a},{b},{c},{k % 2}" for k, (a, b, c) in enumerate(rng.integers(0, 2, (40, 3)))]
    programs = []
    for name, first in (("whole", "1,0,1,0"), ("fraction", "1,0.1,1,0"), ("word", "true,false,true,0")):
        file = tmp_path / f"{name}.csv"
        file.write_text("\n".join(["a,b,c,label", first, *rows[1:]]) + "\n")
        problem = rd.logistic(rd.load_data(file), 4, ranges=(0, 1))
        programs.append(program(problem))
    assert programs[0] == programs[1] == programs[2]
    assert programs[0][1][0][1] == np.float64


# ---------------------------------------------------------------- what is stored


@pytest.mark.parametrize(
    ("dtype", "ranges", "stored"),
    [
        ("uint8", None, "uint8"),
        ("bool", None, "uint8"),
        ("bool", (0, 1), "uint8"),
        ("uint8", (0, 255), "uint8"),
        ("uint8", (10, 20), "float32"),
        ("uint8", (-50, 100), "uint8"),
        ("uint8", (300, 301), "float32"),
        ("uint8", (0, 1000), "uint8"),
        ("uint8", (-50, 300), "uint8"),
        ("uint8", (-300, 300), "uint8"),
        ("uint8", (0.5, 9.0), "float64"),
        ("int8", (-128, 127), "float32"),
        ("int8", (0, 127), "uint8"),
        ("int8", None, "float32"),
        ("int16", (0, 255), "uint8"),
        ("int16", (0, 4095), "float32"),
        ("int16", None, "float32"),
        ("int32", (0, 255), "uint8"),
        ("int32", (2**24, 2**24 + 7), "float32"),
        ("int32", (0, 2**30), "float64"),
        ("int32", None, "float64"),
        ("int64", (0, 255), "float64"),
        ("float32", None, "float32"),
        ("float32", (0, 1), "float64"),
        ("float64", (0, 1), "float64"),
        ("float64", None, "float64"),
    ],
)
def test_the_declared_type_and_the_ranges_say_what_is_stored(dtype, ranges, stored):
    scale = None if ranges is None else scale_between(*as_ranges(ranges, 2))
    assert storage(np.dtype(dtype), scale)[0] == stored
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2 if dtype == "bool" else 128, (30, 2)).astype(dtype)
    problem = rd.least_squares(rd.Records(X, rng.random(30)), 2, ranges=ranges)
    assert problem.agent_records.X.dtype == stored
    expected = X.astype(float) if scale is None else scale(X.astype(float))
    np.testing.assert_allclose(problem.agent_records.dense().X, expected, rtol=1e-15)


def test_features_that_cannot_be_squared_are_zero():
    X = np.array([[1e-170, 1.0], [0.1 * SMALLEST, 0.0], [2 * SMALLEST, 0.0]])
    agent_records = rd.least_squares(rd.Records(X, np.ones(3)), 1, record_norm=1.0).agent_records
    np.testing.assert_array_equal(agent_records.X, [[0.0, 1.0], [0.0, 0.0], [2 * SMALLEST, 0.0]])
    np.testing.assert_allclose(agent_records.norm, [1.0, 0.0, 2 * SMALLEST], rtol=1e-15)


def test_digits_keep_a_unit_that_no_value_decides():
    values = jnp.asarray([[1e-9, 3e-9, 0.0], [1e-3, 2e-3, 0.0]])
    found, unit = jax.jit(int8_products._digits)(values, jnp.asarray(0.5))
    np.testing.assert_array_equal(unit[:, 0], 2.0**-54)
    whole = sum(np.asarray(found[k], np.int64) * 256**k for k in range(int8_products.DIGITS))
    np.testing.assert_allclose(whole * 2.0**-54, values, rtol=0, atol=2.0**-55)
