"""What an accelerator does otherwise gives the same numbers. No accelerator is needed: the same programs run here."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_kernels import FEATURES, LOSSES, SIZES, assert_same, by_hand, draw_problem, draw_x, far_points, fast

import relaydp as rd
from relaydp.problem.agent_records import AgentRecords
from relaydp.problem.kernels import int8_products


@pytest.fixture
def accelerator(monkeypatch):
    """relaydp believes that it has one."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    jax.clear_caches()
    yield
    jax.clear_caches()


def here_and_there(monkeypatch, run, runs=int8_products.RUNS):
    """What `run` gives on this processor, and what relaydp makes of it for an accelerator."""
    here = run()
    with monkeypatch.context() as patch:
        patch.setattr(jax, "default_backend", lambda: "gpu")
        patch.setattr(int8_products, "RUNS", runs)
        jax.clear_caches()
        there = run()
    jax.clear_caches()
    return here, there


@pytest.mark.sample(3)
@pytest.mark.parametrize("clip", [None, 0.3], ids=["", "clipped"])
@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("stored", ["bytes", "clipped bytes", "single"])
@pytest.mark.parametrize("loss", LOSSES)
def test_sums_along_rows_give_the_gradient(accelerator, loss, stored, intercept, clip):
    problem = draw_problem(loss, stored, intercept, SIZES, FEATURES)
    agent_records, x = problem.records_for(5, clipped=True), draw_x(problem)
    assert agent_records.turned is not None and agent_records.turned.shape == (len(SIZES), FEATURES, max(SIZES))
    for agent in range(len(SIZES)):
        assert_same(jax.jit(AgentRecords.gradient)(agent_records, agent, x, clip), by_hand(problem, agent, x, clip))


@pytest.mark.sample(2)
@pytest.mark.parametrize("clip", [None, 0.3], ids=["", "clipped"])
@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("loss", LOSSES)
def test_bytes_give_a_batch_its_gradients(accelerator, loss, intercept, clip):
    problem = draw_problem(loss, "bytes", intercept, SIZES, FEATURES)
    agent_records = problem.records_for(5, clipped=True, batched=True, shared=int8_products.RUNS)
    assert agent_records.bytes is not None and agent_records.bytes.by_record.dtype == jnp.int8
    xs = jnp.stack([draw_x(problem) * size for size in (1.0, 0.0, 1e-9, 30.0)])
    batch = jax.jit(jax.vmap(AgentRecords.gradient, in_axes=(None, None, 0, None)))
    for agent in range(len(SIZES)):
        program = str(jax.make_jaxpr(batch)(agent_records, agent, xs, clip))
        assert "int32[28," in program.replace("i32[", "int32["), "seven digits of four points"
        for row, x in zip(batch(agent_records, agent, xs, clip), xs, strict=True):
            expected = by_hand(problem, agent, x, clip)
            size = max(np.abs(expected).max(), 1e-3 if clip is None else clip)  # a clip is what digits count from
            np.testing.assert_allclose(row, expected, rtol=0, atol=1e-13 * size)


@pytest.mark.sample(2)
@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("loss", LOSSES)
def test_no_record_moves_more_than_the_clip_wherever_the_point_is(accelerator, loss, intercept):
    problem = draw_problem(loss, "bytes", intercept, SIZES, FEATURES)
    alone = problem.records_for(5, clipped=True)
    batched = problem.records_for(5, clipped=True, batched=True, shared=int8_products.RUNS)
    assert alone.turned is not None and batched.bytes is not None
    xs = jnp.stack(far_points(problem))
    rows = [jax.jit(AgentRecords.gradient)(alone, 0, x, 0.3) for x in xs]
    rows += list(jax.jit(jax.vmap(AgentRecords.gradient, in_axes=(None, None, 0, None)))(batched, 0, xs, 0.3))
    assert np.linalg.norm(rows, axis=1).max() <= 0.3 * (1 + 1e-12)


def test_a_batch_along_many_routes_takes_products(accelerator):
    """Asked all the same, bytes answer runs at different agents, and one run alone, by products of features."""
    problem = draw_problem("logistic", "bytes", True, SIZES, FEATURES)
    assert problem.records_for(5, clipped=True, batched=True).bytes is None
    agent_records, x = problem.records_for(5, clipped=True, batched=True, shared=int8_products.RUNS), draw_x(problem)
    agents = jnp.arange(len(SIZES))
    rows = jax.jit(jax.vmap(AgentRecords.gradient, in_axes=(None, 0, None, None)))(agent_records, agents, x, 0.3)
    for agent, row in enumerate(rows):
        assert_same(row, by_hand(problem, agent, x, 0.3))
        assert_same(fast(agent_records, agents[agent], x, 0.3), by_hand(problem, agent, x, 0.3))


@pytest.mark.parametrize("stored", ["single", "double", "dense"])
def test_records_that_are_no_plain_bytes_have_no_digits(accelerator, stored):
    problem = draw_problem("logistic", stored, False, SIZES, FEATURES)
    assert problem.records_for(5, clipped=True, batched=True, shared=int8_products.RUNS) is problem.working_records


@pytest.mark.parametrize("stored", ["double", "dense"])
def test_records_that_do_not_suit_take_matrix_products(accelerator, stored):
    problem = draw_problem("logistic", stored, False, SIZES, FEATURES)
    assert problem.records_for(5, clipped=True).turned is None
    assert_same(
        fast(problem.records_for(5, True), jnp.asarray(0), draw_x(problem), 0.3),
        by_hand(problem, 0, draw_x(problem), 0.3),
    )


def test_features_on_scales_of_their_own_take_matrix_products(accelerator):
    high = np.where(np.arange(FEATURES) % 2, 255.0, 100.0)
    X = np.random.default_rng(0).integers(0, 256, (sum(SIZES), FEATURES), dtype=np.uint8)
    problem = rd.huber(rd.Records(X, np.arange(len(X)) * 0.1), SIZES, threshold=0.8, ranges=(np.zeros(FEATURES), high))
    agent_records = problem.records_for(5, clipped=True)
    assert agent_records.turned is None
    assert problem.records_for(5, clipped=True, batched=True, shared=int8_products.RUNS).bytes is None
    assert_same(fast(agent_records, jnp.asarray(0), draw_x(problem), 0.3), by_hand(problem, 0, draw_x(problem), 0.3))


def test_one_large_agent_among_many_small_ones_is_not_padded_to_its_size(accelerator):
    problem = draw_problem("logistic", "bytes", False, [40, 1, 1, 1, 1, 1], FEATURES)
    assert problem.records_for(5, clipped=True).turned is None


def test_a_processor_keeps_its_records_once():
    problem = draw_problem("logistic", "bytes", False, SIZES, FEATURES)
    assert problem.records_for(5, clipped=True).turned is None
    assert problem.records_for(5, clipped=True, batched=True, shared=int8_products.RUNS).bytes is None


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("algorithm", "walk", "private"),
    [("recal", "cyclic", True), ("recal", "cyclic", False), ("recal", "random", False), ("nids", "cyclic", False)],
)
def test_whole_batches_agree(monkeypatch, algorithm, walk, private):
    """A sweep whose runs share a route multiplies bytes; all others what they always did. The models are the same."""
    budgets = [rd.Budget(2.0, 1e-5), rd.Budget(4.0, 1e-5)] if private else None
    options = dict(algorithm=algorithm, activations=7, walk=walk, seeds=range(3), progress=False, steps="paper")

    def run():
        problem = replace(draw_problem("logistic", "bytes", False, [20, 20, 20], FEATURES), l2=0.1)
        return rd.sweep(problem, rd.ring(3), budgets=budgets, **options)

    here, there = here_and_there(monkeypatch, run, runs=3)
    assert_same(there.x, here.x, 1e-12)
    np.testing.assert_allclose(there.excess, here.excess, rtol=1e-9)


@pytest.mark.sample(1)
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

    here, there = here_and_there(monkeypatch, run)
    assert_same(there.x, here.x, 1e-12)
    np.testing.assert_allclose(there.trace.objective, here.trace.objective, rtol=1e-12)
    for name, sent in here.transcript.payload.items():
        assert_same(there.transcript.payload[name], sent, 1e-11)
