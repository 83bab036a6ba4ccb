"""Regularisers: every prox meets its subgradient condition, and every r is what its docstring says."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaydp import prox
from relaydp.errors import InputError
from relaydp.prox.regulariser import EDGE

Params = dict[str, Any]


def l1_gap(x: np.ndarray, pull: np.ndarray, weight: float) -> float:
    """How far `pull` is from weight * d||x||_1: weight sign(x_k) where x_k != 0, anything in [-weight, weight] at 0."""
    off = np.where(x != 0, np.abs(pull - weight * np.sign(x)), np.maximum(np.abs(pull) - weight, 0.0))
    return float(off.max())


def group_gap(x: np.ndarray, pull: np.ndarray, weight: float, groups: np.ndarray) -> float:
    gaps = []
    for group in np.unique(groups):
        own, mine = x[groups == group], pull[groups == group]
        bound = weight * np.sqrt(own.size)
        if (own == 0).all():
            gaps.append(max(np.linalg.norm(mine) - bound, 0.0))
        else:
            gaps.append(np.linalg.norm(mine - bound * own / np.linalg.norm(own)))
    return float(max(gaps))


def box_gap(x: np.ndarray, pull: np.ndarray, low: float, high: float) -> float:
    """The normal cone: a pull upwards only at `high`, downwards only at `low`; and x inside."""
    outside = max(np.max(low - x), np.max(x - high), 0.0)
    inward = np.where(x == high, 0.0, np.maximum(pull, 0.0)) + np.where(x == low, 0.0, np.maximum(-pull, 0.0))
    return float(outside + inward.max())


def ball_gap(x: np.ndarray, pull: np.ndarray, radius: float) -> float:
    """The normal cone: 0 inside; on the sphere, multiples >= 0 of x."""
    length, strength = np.linalg.norm(x), np.linalg.norm(pull)
    outside = max(length - radius, 0.0)
    if strength == 0:
        return float(outside)
    return float(outside + abs(radius - length) + np.linalg.norm(pull - strength * x / radius))


@dataclass(frozen=True)
class Case:
    """A regulariser, and what it is in plain NumPy and in cvxpy."""

    draw: Callable[[Callable[..., Any], int], Params]  # (draw, dim) -> parameters
    make: Callable[[Params], Any]
    value: Callable[[Params, np.ndarray], float]
    gap: Callable[[Params, np.ndarray, np.ndarray, float], float]  # distance of v - x from t dr(x)
    model: Callable[[Params, Any], tuple[Any, list[Any]]]  # cvxpy value and constraints
    outside: Callable[[Params, int], np.ndarray] | None = None  # a point where r is infinite


def numbers(low: float, high: float) -> st.SearchStrategy[float]:
    """Numbers to six decimals: ties and zeros stay likely, and nothing falls within a set's rounding slack."""
    return st.floats(low, high).map(lambda value: round(value, 6))


WEIGHT = numbers(0.0, 3.0)


def group_norms(p: Params, norm: Callable[[Any], Any], x: Any) -> Any:
    index = p["groups"]
    parts = [np.flatnonzero(index == group) for group in np.unique(index)]
    return sum(p["weight"] * np.sqrt(part.size) * norm(x[part]) for part in parts)


def nudged(at: float, dim: int) -> np.ndarray:
    """Every coordinate 0 save the last: one coefficient outside is enough."""
    return np.append(np.zeros(dim - 1), at)


CASES = {
    "none": Case(
        draw=lambda draw, dim: {},
        make=lambda p: prox.none(),
        value=lambda p, x: 0.0,
        gap=lambda p, x, pull, t: float(np.abs(pull).max()),
        model=lambda p, x: (0.0, []),
    ),
    "l1": Case(
        draw=lambda draw, dim: {"weight": draw(WEIGHT)},
        make=lambda p: prox.l1(p["weight"]),
        value=lambda p, x: p["weight"] * np.abs(x).sum(),
        gap=lambda p, x, pull, t: l1_gap(x, pull, t * p["weight"]),
        model=lambda p, x: (p["weight"] * cp.norm1(x), []),
    ),
    "elastic_net": Case(
        draw=lambda draw, dim: {"l1": draw(WEIGHT), "l2": draw(WEIGHT)},
        make=lambda p: prox.elastic_net(p["l1"], p["l2"]),
        value=lambda p, x: p["l1"] * np.abs(x).sum() + p["l2"] / 2 * (x @ x),
        gap=lambda p, x, pull, t: l1_gap(x, pull - t * p["l2"] * x, t * p["l1"]),
        model=lambda p, x: (p["l1"] * cp.norm1(x) + p["l2"] / 2 * cp.sum_squares(x), []),
    ),
    "group_lasso": Case(
        draw=lambda draw, dim: {
            "weight": draw(WEIGHT),
            "groups": np.unique(draw(st.lists(st.integers(0, 2), min_size=dim, max_size=dim)), return_inverse=True)[1],
        },
        make=lambda p: prox.group_lasso(p["weight"], p["groups"]),
        value=lambda p, x: group_norms(p, np.linalg.norm, x),
        gap=lambda p, x, pull, t: group_gap(x, pull, t * p["weight"], p["groups"]),
        model=lambda p, x: (group_norms(p, cp.norm2, x), []),
    ),
    "box": Case(
        draw=lambda draw, dim: dict(
            zip(("low", "high"), sorted((draw(numbers(-3, 3)), draw(numbers(-3, 3)))), strict=True)
        ),
        make=lambda p: prox.box(p["low"], p["high"]),
        value=lambda p, x: 0.0 if ((x >= p["low"]) & (x <= p["high"])).all() else np.inf,
        gap=lambda p, x, pull, t: box_gap(x, pull, p["low"], p["high"]),
        model=lambda p, x: (0.0, [x >= p["low"], x <= p["high"]]),
        outside=lambda p, dim: np.append(np.full(dim - 1, p["low"]), p["high"] + 1e-3),
    ),
    "nonnegative": Case(
        draw=lambda draw, dim: {},
        make=lambda p: prox.nonnegative(),
        value=lambda p, x: 0.0 if (x >= 0).all() else np.inf,
        gap=lambda p, x, pull, t: box_gap(x, pull, 0.0, np.inf),
        model=lambda p, x: (0.0, [x >= 0]),
        outside=lambda p, dim: nudged(-1e-3, dim),
    ),
    "l2_ball": Case(
        draw=lambda draw, dim: {"radius": draw(numbers(0.1, 5.0))},
        make=lambda p: prox.l2_ball(p["radius"]),
        value=lambda p, x: 0.0 if np.linalg.norm(x) <= p["radius"] * (1 + EDGE) else np.inf,  # rounding is inside
        gap=lambda p, x, pull, t: ball_gap(x, pull, p["radius"]),
        model=lambda p, x: (0.0, [cp.norm2(x) <= p["radius"]]),
        outside=lambda p, dim: nudged(p["radius"] + 1e-3, dim),
    ),
    "custom": Case(  # r = weight/2 ||x - 1||^2
        draw=lambda draw, dim: {"weight": draw(WEIGHT)},
        make=lambda p: prox.custom(
            lambda x: 0.5 * p["weight"] * jnp.sum((x - 1.0) ** 2),
            lambda v, t: (v + t * p["weight"]) / (1.0 + t * p["weight"]),
        ),
        value=lambda p, x: p["weight"] / 2 * ((x - 1) @ (x - 1)),
        gap=lambda p, x, pull, t: float(np.abs(pull - t * p["weight"] * (x - 1)).max()),
        model=lambda p, x: (p["weight"] / 2 * cp.sum_squares(x - 1), []),
    ),
}
SETS = {name: case for name, case in CASES.items() if case.outside is not None}
# one drawing of each, for the laws that need no search
FIXED: dict[str, Params] = {
    "none": {},
    "l1": {"weight": 0.4},
    "elastic_net": {"l1": 0.3, "l2": 0.7},
    "group_lasso": {"weight": 0.5, "groups": np.array([0, 1, 0, 2, 1])},
    "box": {"low": -0.5, "high": 0.25},
    "nonnegative": {},
    "l2_ball": {"radius": 0.8},
    "custom": {"weight": 0.9},
}


@pytest.fixture(scope="module", params=CASES.values(), ids=list(CASES))
def case(request):
    return request.param


@pytest.fixture(params=FIXED, ids=list(FIXED))
def fixed(request):
    """(case, parameters, regulariser on five coefficients)."""
    case = CASES[request.param]
    return case, FIXED[request.param], case.make(FIXED[request.param])


@st.composite
def points(draw, dim):
    return np.array(draw(st.lists(numbers(-10, 10), min_size=dim, max_size=dim)))


def apply(regulariser, v: np.ndarray, t: float) -> np.ndarray:
    return np.asarray(regulariser.prox(jnp.asarray(v), t))


def test_each_regulariser_has_a_case():
    assert set(prox.__all__) - {"Regulariser", "from_spec"} == CASES.keys() == FIXED.keys()


@pytest.mark.sample(4)
@given(data=st.data(), dim=st.integers(1, 5), t=numbers(1e-3, 10.0))
@settings(deadline=None, max_examples=40)
def test_prox_meets_the_subgradient_condition(case, data, dim, t):
    p, v = case.draw(data.draw, dim), data.draw(points(dim))
    x = apply(case.make(p), v, t)
    assert case.gap(p, x, v - x, t) <= 1e-13 * (1 + np.abs(v).max()) * (1 + t)


@pytest.mark.sample(4)
@given(data=st.data(), dim=st.integers(1, 5), t=numbers(1e-3, 10.0))
@settings(deadline=None, max_examples=25)
def test_prox_is_firmly_nonexpansive(case, data, dim, t):
    regulariser = case.make(case.draw(data.draw, dim))
    v, w = data.draw(points(dim)), data.draw(points(dim))
    moved = apply(regulariser, v, t) - apply(regulariser, w, t)
    assert moved @ moved <= moved @ (v - w) + 1e-12


@pytest.mark.sample(4)
@given(data=st.data(), dim=st.integers(1, 5))
@settings(deadline=None, max_examples=25)
def test_value_is_the_formula(case, data, dim):
    p, x = case.draw(data.draw, dim), data.draw(points(dim))
    np.testing.assert_allclose(float(case.make(p).value(jnp.asarray(x))), case.value(p, x), rtol=1e-13)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("t", [0.1, 2.0])
def test_prox_is_the_minimiser_cvxpy_finds(fixed, seed, t):
    case, p, regulariser = fixed
    v = np.random.default_rng(seed).normal(size=5)
    x = cp.Variable(5)
    value, constraints = case.model(p, x)
    cp.Problem(cp.Minimize(t * value + 0.5 * cp.sum_squares(x - v)), constraints).solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(apply(regulariser, v, t), x.value, atol=1e-5)


def test_prox_works_under_jit_and_vmap(fixed):
    _, _, regulariser = fixed
    batch = np.random.default_rng(3).normal(size=(4, 5))
    together = jax.jit(jax.vmap(lambda v: regulariser.prox(v, 0.7)))(jnp.asarray(batch))
    np.testing.assert_allclose(together, [apply(regulariser, v, 0.7) for v in batch], rtol=1e-14, atol=1e-15)


@pytest.mark.sample(4)
def test_prox_has_a_finite_jacobian_at_zero(fixed):
    """Newton steps differentiate the prox, often at coefficients that are exactly 0."""
    _, _, regulariser = fixed
    slope = jax.jacfwd(lambda v: regulariser.prox(v, 0.7))(jnp.zeros(5))
    assert np.isfinite(slope).all()


@pytest.mark.parametrize("case", SETS.values(), ids=list(SETS))
@given(data=st.data(), dim=st.integers(1, 5))
@settings(deadline=None, max_examples=25)
def test_projections_land_inside_and_value_is_inf_outside(case, data, dim):
    p, v = case.draw(data.draw, dim), data.draw(points(dim))
    regulariser = case.make(p)
    assert float(regulariser.value(regulariser.prox(jnp.asarray(v), 1.0))) == 0.0
    assert float(regulariser.value(jnp.asarray(case.outside(p, dim)))) == np.inf


@pytest.mark.parametrize("large", [1e3, 1e9, 1e12])
def test_one_large_coefficient_excuses_no_other(large):
    assert float(prox.nonnegative().value(jnp.array([large, -0.5]))) == np.inf


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (prox.l1(0.1), prox.l1(0.2)),
        (prox.elastic_net(0.1, 0.2), prox.elastic_net(0.3, 0.4)),
        (prox.group_lasso(0.1, [0, 1, 1]), prox.group_lasso(0.2, [1, 0, 0])),
        (prox.box(-1, 1), prox.nonnegative()),
        (prox.l2_ball(1), prox.l2_ball(2)),
    ],
    ids=lambda regulariser: regulariser.kind,
)
def test_new_weights_reuse_compiled_code(one, other):
    traces = []

    @jax.jit
    def compiled(regulariser, v):
        traces.append(1)
        return regulariser.prox(v, 0.5)

    v = jnp.array([2.0, -3.0, 0.4])
    results = [compiled(regulariser, v) for regulariser in (one, other)]
    assert len(traces) == 1
    assert not np.array_equal(*results)


def test_no_two_kinds_share_a_structure():
    """Compiled programs are found by it: JAX compares what dataclasses hold, not which class they are."""
    made = [prox.none(), prox.l1(0.1), prox.elastic_net(0.1, 0.2), prox.box(-1, 1), prox.l2_ball(1)]
    made += [prox.group_lasso(0.1, [0, 1, 1])]
    structures = [jax.tree.structure(regulariser) for regulariser in made]
    for k, one in enumerate(structures):
        assert all(one != other for other in structures[:k])


def test_spec_survives_json_and_builds_the_same_regulariser(fixed):
    _, _, regulariser = fixed
    spec = json.loads(json.dumps(regulariser.spec()))
    if regulariser.kind == "custom":
        with pytest.raises(InputError, match="custom"):
            prox.from_spec(spec)
        return
    again = prox.from_spec(spec)
    assert type(again) is type(regulariser)
    assert again.spec() == regulariser.spec()
    for v in np.random.default_rng(5).normal(size=(3, 5)):
        np.testing.assert_array_equal(apply(again, v, 0.6), apply(regulariser, v, 0.6))
        assert float(again.value(jnp.asarray(v))) == float(regulariser.value(jnp.asarray(v)))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: prox.l1(-0.25), r"l1=-0\.25"),
        (lambda: prox.l1(float("nan")), "l1=nan"),
        (lambda: prox.elastic_net(float("inf"), 0), "l1=inf"),
        (lambda: prox.elastic_net(0.1, -2), "l2=-2"),
        (lambda: prox.group_lasso(-1.5, [0, 1]), r"weight=-1\.5"),
        (lambda: prox.group_lasso(1, [0, 2]), "group 1 has no coefficient"),
        (lambda: prox.group_lasso(1, [[0, 1]]), r"shape \(1, 2\)"),
        (lambda: prox.group_lasso(1, [0.5, 1.5]), "float64"),
        (lambda: prox.group_lasso(1, []), r"shape \(0,\)"),
        (lambda: prox.group_lasso(1, [0, -3]), "-3"),
        (lambda: prox.box(2, 1), "low=2, high=1"),
        (lambda: prox.box(float("nan"), 1), "low=nan"),
        (lambda: prox.l2_ball(0), "radius=0"),
        (lambda: prox.l2_ball(-4.5), r"radius=-4\.5"),
        (lambda: prox.l2_ball(float("inf")), "radius=inf"),
        (lambda: prox.from_spec({"kind": "ridgeless"}), "ridgeless"),
    ],
)
def test_bad_arguments_are_named(make, named):
    with pytest.raises(InputError, match=named):
        make()
