"""The baseline DECOR: its accounting against simulated messages, and its runs against answers found otherwise."""

import itertools
import math
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import relaydp as rd
from relaydp.errors import InputError, PrivacyError
from relaydp.graph.network import metropolis
from relaydp.privacy import delta_exact

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import decor  # noqa: E402

pytestmark = pytest.mark.shipped  # a benchmark measures what users have

NOISE = decor.Noise(0.7, 1.9)
SAMPLES = 200_000  # coordinates of one message: as many independent rounds
BUDGET = rd.Budget(1.0, 1e-5)
HUGE = rd.Budget(1e9, 1e-5)


def sent(graph, noise=NOISE, seed=0):
    """(parties, SAMPLES) messages of parties at x = 0 without gradients and with step 1, and the draws behind them."""
    nothing = np.zeros((graph.agents, SAMPLES))
    draws = decor.draw(jax.random.key(seed), graph.agents, len(graph.edges), SAMPLES)
    y = decor.messages(nothing, nothing, draws, decor.incidence(graph), 1.0, noise)
    return np.asarray(y), [np.asarray(each) for each in draws]


def problem_of(agents=4, records=240, features=5, l2=0.0):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(records, features)) / 3.0
    y = np.where(X @ rng.normal(size=features) + 0.2 * rng.normal(size=records) > 0, 1, -1)
    kept = rd.Records(X[:200], y[:200], classes=(-1, 1), test=rd.Records(X[200:], y[200:], classes=(-1, 1)))
    return rd.logistic(kept, agents=agents, l2=l2, record_norm=1.0)


@pytest.fixture(scope="module")
def problem():
    return problem_of(l2=0.05)


@pytest.mark.parametrize("graph", [rd.path(3), rd.complete(3)], ids=["path", "complete"])
def test_messages_have_the_covariance_that_is_accounted_for(graph):
    y, _ = sent(graph)
    expected = decor.covariance(graph, NOISE)
    assert np.abs(np.cov(y) - expected).max() < 0.02 * expected.max()
    degrees = graph.degree * NOISE.shared**2 + NOISE.own**2  # a message's own noise and one number an edge
    assert np.diag(expected) == pytest.approx(degrees)


@pytest.mark.parametrize("coalition", [(), (1,), (0, 3)], ids=str)
def test_a_coalition_finds_out_as_much_as_is_charged(coalition):
    """Least squares of a message on all else that C sees leaves what hides a gradient: 1 / [Sigma_H^-1]_ii of it."""
    graph = rd.Graph("kite", 5, [[0, 1], [1, 2], [2, 3], [3, 0], [0, 2], [3, 4]])
    y, (own, shared) = sent(graph)
    honest = [i for i in range(5) if i not in coalition]
    opened = [e for e, edge in enumerate(graph.edges) if set(edge) & set(coalition)]
    hides = []
    for place, i in enumerate(honest):
        seen = np.vstack([np.delete(y, i, axis=0), own[list(coalition)], shared[opened]])
        weights = np.linalg.lstsq(seen.T, y[i], rcond=None)[0]
        hides.append(np.var(y[i] - weights @ seen))
        charged = np.linalg.inv(decor.covariance(graph, NOISE, coalition))[place, place]
        assert 1.0 / hides[-1] == pytest.approx(charged, rel=0.02)
    moved = np.array([0.1, 0.2, 0.3, 0.6, 0.5])  # the parties have different numbers of records
    costs = []
    for other in itertools.combinations(range(5), len(coalition)):
        inverse = np.linalg.inv(decor.covariance(graph, NOISE, other))
        costs.append((np.delete(moved, other) ** 2 * np.diag(inverse)).max())
    assert decor.round_cost(graph, NOISE, len(coalition), moved) == pytest.approx(max(costs))


@pytest.mark.parametrize("collusion", [0, 1, 2, 3])
def test_the_limits_are_local_and_curators_noise(collusion):
    moved, own = np.full(8, 0.25), 0.5
    for graph in (rd.ring(8), rd.complete(8)):
        assert decor.round_cost(graph, decor.Noise(own, 0.0), collusion, moved) == pytest.approx(0.25)
    hidden = decor.Noise(own, 1e4 * own)
    cost = decor.round_cost(rd.complete(8), hidden, collusion, moved)
    assert cost == pytest.approx(0.25 / (8 - collusion), rel=1e-6)
    reached = {0: 8, 1: 7}.get(collusion, 1)  # two members of a coalition may cut one party off a ring
    assert decor.round_cost(rd.ring(8), hidden, collusion, moved) == pytest.approx(0.25 / reached, rel=1e-6)


def test_more_colluders_and_smaller_parties_cost_more():
    graph, moved = rd.grid(2, 4), np.full(8, 0.1)
    costs = [decor.round_cost(graph, NOISE, t, moved) for t in range(8)]
    assert (np.diff(costs) >= -1e-15).all() and costs[0] < costs[-1] == pytest.approx(0.01 / NOISE.own**2)
    moved[3] = 0.4
    assert decor.round_cost(graph, NOISE, 1, moved) > 3 * costs[1]


@pytest.mark.parametrize("graph", [rd.ring(8), rd.complete(8), rd.star(5)], ids=["ring", "complete", "star"])
def test_the_pair_spends_the_budget_and_leaves_less_noise_than_others(graph):
    moved, rounds, W = np.linspace(0.01, 0.02, graph.agents), 30, metropolis(graph)
    noise = decor.choose_noise(graph, rounds, BUDGET, 1, moved)
    assert decor.epsilon_of(graph, noise, rounds, 1, moved, 1e-5) == pytest.approx(1.0, rel=1e-9)
    rho = rounds * decor.round_cost(graph, noise, 1, moved) / 2
    assert delta_exact(1.0, rho) <= 1e-5 < delta_exact(1.0, rho * 1.0001)
    left = sum(decor.accumulated(W, decor.covariance(graph, noise), rounds))
    for ratio in (0.0, 0.1, 1.0, 10.0, 1000.0):
        other = decor.choose_noise(graph, rounds, BUDGET, 1, moved, ratios=[ratio])
        assert sum(decor.accumulated(W, decor.covariance(graph, other), rounds)) >= left * (1 - 1e-9)


def test_a_run_on_empty_records_is_the_noise_that_was_forecast():
    """Gradients are 0 where features are: what is left in the models is `accumulated`."""
    graph, rounds, step, l2, q = rd.ring(4), 12, 0.8, 0.1, 20_000
    labels = np.array([1, -1] * 2)
    problem = rd.logistic(rd.Records(np.zeros((4, q)), labels, classes=(-1, 1)), agents=4, l2=l2, record_norm=1.0)
    last, _ = decor.train(problem, graph, rounds, [decor.Job(0, 1.0, step, NOISE)])
    expected = decor.accumulated(metropolis(graph), decor.covariance(graph, NOISE), rounds, 1 - step * l2)
    mean = last[0].mean(axis=0)
    assert np.var(mean) / step**2 == pytest.approx(expected[0], rel=0.05)
    assert np.mean((last[0] - mean) ** 2) / step**2 == pytest.approx(expected[1], rel=0.05)


@pytest.mark.parametrize("graph", [rd.complete(4), rd.ring(4)], ids=["complete", "ring"])
def test_shared_noise_cancels_in_the_mean_and_without_noise_the_optimum_is_reached(problem, graph):
    setting = decor.Setting(400, 1.0, 2000.0, False)
    models = decor.decor_models(problem, graph, HUGE, 1, [0], setting=setting)
    best = rd.minimise(problem)
    gap = problem.objectives(models.mean(axis=1))[0] - best.value
    assert -1e-12 < gap < (1e-7 if graph.name.startswith("complete") else 1e-3)  # gossip at a constant step is biased


def test_clipped_gradients_are_the_librarys():
    problem = problem_of()
    A, sizes = decor.party_records(problem)
    x = np.random.default_rng(1).normal(size=(4, 2, 5))
    clips = np.array([0.05, 10.0])
    found = decor._clipped_gradients(A, np.linalg.norm(A, axis=2), sizes.astype(np.float32), x, clips)
    for i, run in itertools.product(range(4), range(2)):
        expected = problem.agent_records.dense().gradient(i, x[i, run], clips[run])
        assert np.allclose(found[i, run], expected, atol=1e-6)


def test_what_is_reported_is_accuracy_one_a_seed_and_repeatable(problem):
    setting = decor.Setting(20, 0.5, 50.0, True)
    found = decor.decor_accuracy(problem, rd.ring(4), BUDGET, 1, [3, 4, 5], setting=setting)
    assert found.shape == (3,) and ((found >= 0) & (found <= 1)).all()
    alone = decor.decor_models(problem, rd.ring(4), BUDGET, 1, [4], setting=setting)
    together = decor.decor_models(problem, rd.ring(4), BUDGET, 1, [3, 4, 5], setting=setting)
    assert np.allclose(alone[0], together[1], rtol=1e-4, atol=1e-6)


def test_settings_are_looked_up_by_noise(problem):
    noise = decor.noise_of(problem, rd.complete(4), BUDGET, 1)
    assert noise == pytest.approx(2 / 50 / math.sqrt(2 * BUDGET.rho) / math.sqrt(3 * 4), rel=1e-5)  # 3 honest, 4 in all
    for graph in (rd.ring(4), rd.complete(4)):
        known = decor.CHOSEN[decor.family(graph)]
        assert decor.chosen_setting(problem, graph, BUDGET, 1) == known[max(known)]
        assert decor.chosen_setting(problem, graph, HUGE, 1) == known[min(known)]


def test_the_table_has_every_method_and_what_it_spent(problem):
    rows = decor.rows_of(problem, rd.ring(4), rd.Budget(4.0, 1e-5), [0, 1])
    assert [row["method"] for row in rows] == ["DECOR", "DECOR, a party's own model", "no shared noise"]
    assert all(row["spent"] == pytest.approx(4.0, rel=1e-9) and row["spent"] <= 4.0 for row in rows)
    assert [row["shared"] > 0 for row in rows] == [True, True, False]
    assert all(row["messages"] == 8 * row["rounds"] and len(row["accuracies"]) == 2 for row in rows)
    assert decor.markdown(rows).count("\n") == 4


def test_what_has_no_proof_is_refused(problem):
    moved = np.full(60, 0.1)
    with pytest.raises(PrivacyError, match="coalitions"):
        decor.round_cost(rd.ring(60), NOISE, 10, moved)
    with pytest.raises(PrivacyError, match="collusion=4"):
        decor.choose_noise(rd.ring(4), 10, BUDGET, 4, moved[:4])
    with pytest.raises(PrivacyError, match="own noise"):
        decor.round_cost(rd.ring(4), decor.Noise(0.0, 1.0), 1, moved[:4])
    with pytest.raises(InputError, match="intercept=True"):
        decor.party_records(rd.logistic(problem.data, agents=4, intercept=True, record_norm=1.0))
    with pytest.raises(InputError, match="ring"):
        decor.decor_accuracy(problem, rd.ring(5), BUDGET, 1, [0])
