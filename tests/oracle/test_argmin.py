"""The exact argmin: minimisers to rounding, whatever the conditioning, in as many passes as was promised at most."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import relaydp as rd
from relaydp.oracle import argmin, oracle
from relaydp.oracle.argmin import MEMORY, _fit, _products, find_minimiser
from relaydp.prox.functions import soft_threshold


def quadratics(rows, dim, condition, seed=0):
    """Hessians with eigenvalues from 1 to `condition`, and the right sides of H x = b."""
    rng = np.random.default_rng(seed)
    turns = np.linalg.qr(rng.normal(size=(rows, dim, dim)))[0]
    curvatures = np.geomspace(1.0, condition, dim)
    return jnp.asarray(turns * curvatures @ turns.transpose(0, 2, 1)), jnp.asarray(rng.normal(size=(rows, dim)))


@pytest.mark.parametrize("condition", [1.0, 10.0, 1e3], ids="condition {:g}".format)
def test_a_quadratic_is_solved(condition):
    H, b = quadratics(3, 20, condition)
    ones = jnp.ones(3)
    found = find_minimiser(
        lambda x: jnp.einsum("ijk,ik->ij", H, x) - b, None, jnp.zeros((3, 20)), condition * ones, ones
    )
    np.testing.assert_allclose(found, np.linalg.solve(H, b[..., None])[..., 0], rtol=0, atol=1e-13 * condition)


@pytest.mark.parametrize("condition", [2.0, 300.0], ids="condition {:g}".format)
def test_with_r_the_subgradient_condition_holds(condition):
    H, b = quadratics(1, 30, condition, seed=1)
    H, b, weight = H[0], 3.0 * b[0], 1.0

    def prox(v, t):
        return soft_threshold(v, t, weight)

    x = np.asarray(find_minimiser(lambda x: H @ x - b, prox, jnp.ones(30), jnp.asarray(condition), jnp.asarray(1.0)))
    slope = np.asarray(H @ x - b)
    assert 0 < (x == 0).sum() < 30
    np.testing.assert_allclose(slope[x != 0], -weight * np.sign(x[x != 0]), atol=1e-12 * condition)
    assert (np.abs(slope[x == 0]) <= weight + 1e-12 * condition).all()


@pytest.mark.parametrize("far", [1.0, 300.0], ids=["nearby", "on the flat part"])
def test_a_logistic_sum_is_minimised(far):
    """Far out its curvature is next to nothing; promised was a quarter."""
    rng = np.random.default_rng(2)
    A, p = jnp.asarray(rng.normal(size=(40, 8))), far * jnp.asarray(rng.normal(size=8))
    L = float(np.linalg.norm(np.asarray(A), 2) ** 2 / 4) + 1.0

    def slope(x):
        return -jax.nn.sigmoid(-(A @ x)) @ A + p + x

    x = find_minimiser(slope, None, jnp.zeros(8), jnp.asarray(L), jnp.asarray(1.0))
    assert float(jnp.abs(slope(x)).max()) <= 1e-12 * far


def counted(monkeypatch, condition, dim, forgetful):
    """Passes over a quadratic of this condition, with what Anderson's rule advises or with advice that leads astray."""
    if forgetful:
        bad = jnp.asarray(-50.0)
        monkeypatch.setattr(argmin, "_fit", lambda inner, right: [bad] * len(right))
    H, b = quadratics(1, dim, condition, seed=3)
    passes = []

    def slope(x):
        jax.debug.callback(lambda: passes.append(1))
        return H[0] @ x - b[0]

    x = find_minimiser(slope, None, jnp.zeros(dim), jnp.asarray(condition), jnp.asarray(1.0))
    jax.effects_barrier()
    np.testing.assert_allclose(x, np.linalg.solve(H[0], b[0]), rtol=0, atol=1e-12 * condition)
    return len(passes)


def test_it_takes_fewer_passes_than_momentum_would(monkeypatch):
    few = counted(monkeypatch, 100.0, 4, forgetful=False)
    assert few < 30 < 36 * np.sqrt(100.0)


@pytest.mark.parametrize("condition", [5.0, 1e3], ids="condition {:g}".format)
def test_bad_advice_costs_time_and_nothing_else(monkeypatch, condition):
    """The bound that objective perturbation is planned with, beside the passes it took to lose patience."""
    passes = counted(monkeypatch, condition, 12, forgetful=True)
    assert passes <= argmin.PATIENCE + 36 * np.sqrt(condition)


def test_where_passes_are_cheap_momentum_does_it_all(monkeypatch):
    monkeypatch.setattr(argmin, "_fit", None)
    H, b = quadratics(2, 6, 50.0)
    ones = jnp.ones(2)
    found = find_minimiser(lambda x: jnp.einsum("ijk,ik->ij", H, x) - b, None, b, 50.0 * ones, ones, dear=False)
    np.testing.assert_allclose(found, np.linalg.solve(H, b[..., None])[..., 0], rtol=0, atol=1e-12)


@pytest.mark.sample(2)
@pytest.mark.parametrize("many", [False, True], ids=["few numbers", "many"])
@pytest.mark.parametrize("algorithm", ["d-admm", "rw-admm", "walkman"])
def test_either_way_algorithms_get_the_same_minimisers(monkeypatch, algorithm, many):
    problem = rd.logistic(rd.load_data("breast-cancer"), agents=3, l2=0.1, record_norm=1.0)
    options = dict(algorithm=algorithm, activations=6, steps="paper", trace=False, reference=False)
    one = rd.solve(problem, rd.ring(3), **options)
    monkeypatch.setattr(oracle, "DEAR", 0 if many else 2**40)
    jax.clear_caches()
    other = rd.solve(problem, rd.ring(3), **options)
    jax.clear_caches()
    np.testing.assert_allclose(other.x, one.x, rtol=0, atol=1e-12)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, MEMORY), st.booleans())
def test_weights_fit_as_least_squares_do(seed, known, repeated):
    rng = np.random.default_rng(seed)
    differences, target = rng.normal(size=(MEMORY, 2, 9)), rng.normal(size=(2, 9))
    differences[known:] = 0.0
    if repeated and known > 1:
        differences[known - 1] = differences[0]
    products = np.einsum("kij,lij->kli", differences, differences), np.einsum("kij,ij->ki", differences, target)
    weights = np.stack(_fit(*map(jnp.asarray, products)))
    for row in range(2):
        ours = target[row] - weights[:, row] @ differences[:, row]
        best = np.linalg.lstsq(differences[:, row].T, target[row], rcond=None)[0]
        np.testing.assert_allclose(ours, target[row] - best @ differences[:, row], atol=1e-6)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12))
def test_products_are_of_what_has_not_been_forgotten(seed, kept):
    """Two rows, which keep and forget on their own."""
    rng = np.random.default_rng(seed)
    residuals, there = np.zeros((MEMORY, 2, 4)), np.zeros((MEMORY, 2), bool)
    inner = jnp.zeros((MEMORY, MEMORY, 2))
    for number, both in enumerate(kept):
        at = number % MEMORY
        residuals[at] = newest = rng.normal(size=(2, 4))
        there[at] = True
        there &= np.array(both)
        inner = _products(inner, jnp.asarray(residuals), jnp.asarray(newest), jnp.asarray(at), jnp.asarray(both))
        real = residuals * there[..., None]
        np.testing.assert_allclose(inner, np.einsum("kij,lij->kli", real, real), atol=1e-12)
