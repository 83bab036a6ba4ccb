"""What an accelerator does otherwise gives the same numbers. No accelerator is needed: the same programs run here."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_fused import FEATURES, LOSSES, SIZES, assert_same, by_hand, draw_problem, draw_x

import relaydp as rd
from relaydp.problem.silos import Silos


@pytest.fixture
def accelerator(monkeypatch):
    """relaydp believes that it has one."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.mark.parametrize("clip", [None, 0.3], ids=["", "clipped"])
@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("stored", ["bytes", "single"])
@pytest.mark.parametrize("loss", LOSSES)
def test_sums_along_rows_give_the_gradient(accelerator, loss, stored, intercept, clip):
    problem = draw_problem(loss, stored, intercept, SIZES, FEATURES)
    silos, x = problem.silos_for(5, clipped=True), draw_x(problem)
    assert silos.turned is not None and silos.turned.shape == (len(SIZES), FEATURES, max(SIZES))
    for agent in range(len(SIZES)):
        assert_same(jax.jit(Silos.gradient)(silos, agent, x, clip), by_hand(problem, agent, x, clip))


@pytest.mark.parametrize("stored", ["shifted bytes", "double", "dense"])
def test_records_that_do_not_suit_take_matrix_products(accelerator, stored):
    problem = draw_problem("logistic", stored, False, SIZES, FEATURES)
    assert problem.silos_for(5, clipped=True).turned is None
    assert_same(
        problem.silos_for(5, True).gradient(jnp.asarray(0), draw_x(problem), 0.3),
        by_hand(problem, 0, draw_x(problem), 0.3),
    )


def test_one_large_agent_among_many_small_ones_is_not_padded_to_its_size(accelerator):
    problem = draw_problem("logistic", "bytes", False, [40, 1, 1, 1, 1, 1], FEATURES)
    assert problem.silos_for(5, clipped=True).turned is None


def test_a_processor_keeps_its_records_once():
    problem = draw_problem("logistic", "bytes", False, SIZES, FEATURES)
    assert problem.silos_for(5, clipped=True).turned is None


@pytest.mark.parametrize("walk", ["cyclic", "random"])
@pytest.mark.parametrize("algorithm", ["recal", "walkman"])
@pytest.mark.parametrize("private", [True, False], ids=["private", "open"])
def test_whole_runs_agree(monkeypatch, private, algorithm, walk):
    """The loop unrolled, both branches taken, records both ways round: the same model, trace and messages."""
    budget = rd.Budget(2.0, 1e-5) if private else None
    options = dict(
        algorithm=algorithm, activations=7, walk=walk, seed=3, transcript=True, progress=False, steps="paper"
    )

    def run():
        problem = replace(draw_problem("logistic", "bytes", False, [20, 20, 20], FEATURES), l2=0.1)
        return rd.solve(problem, rd.ring(3), budget=budget, **options)

    here = run()
    with monkeypatch.context() as patch:
        patch.setattr(jax, "default_backend", lambda: "gpu")
        jax.clear_caches()
        there = run()
    jax.clear_caches()
    assert_same(there.x, here.x, 1e-12)
    np.testing.assert_allclose(there.trace.objective, here.trace.objective, rtol=1e-12)
    for name, sent in here.transcript.payload.items():
        assert_same(there.transcript.payload[name], sent, 1e-11)
