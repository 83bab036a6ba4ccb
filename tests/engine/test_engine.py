"""solve, sweep, solve_alone, results: what is promised about a run, its noise, its cost and its folder."""

import math
import os
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from effort import size

import relaydp as rd
from relaydp.engine import loop, trace
from relaydp.planning.planner import make_plan

BUDGET = rd.Budget(epsilon=1.0, delta=1e-5)


@pytest.fixture(scope="module")
def cancer():
    return rd.logistic(rd.load_data("breast-cancer"), agents=6, l2=1e-2, record_norm=2.0)


def noisy_gradients(result, n, dim):
    """What an eavesdropper works out (r = 0): each activation's gradient, from the batons and the steps alone."""
    alpha, beta, gamma = (np.asarray(part) for part in result.steps)
    y, lam = np.zeros((n, dim)), np.zeros((n, dim))
    u, x, found = np.zeros(dim), np.zeros(dim), []
    for i, u_new, x_new in zip(result.transcript.sender, result.transcript.u, result.transcript.x, strict=True):
        half = lam[i] + beta * (x - y[i])
        change = u_new - u
        y_new = x_new - change / beta
        found.append((int(i), y[i].copy(), n * ((y[i] - y_new) / alpha[i] + half)))
        y[i], lam[i], u, x = y_new, lam[i] + change, u_new, x_new
    return found


def test_the_noise_on_the_gradient_has_the_scale_the_ledger_says(cancer):
    """Attack the sound mechanism through the batons: what comes out is the clipped gradient plus exactly that noise."""
    result = rd.solve(cancer, rd.ring(6), "recal", budget=BUDGET, walk="cyclic", activations=60, seed=1)
    scales = {(r.agent, r.activation): r.scale for r in result.ledger}
    counts, residuals, exact = np.zeros(6, int), [], jax.jit(cancer.agent_records.gradient)
    for i, y, gradient in noisy_gradients(result, 6, cancer.dim):
        counts[i] += 1
        clean = np.asarray(exact(np.int32(i), y, np.float64(2.0))) + cancer.l2 * y
        residuals.append((gradient - clean) / scales[i, counts[i]])
    z = np.concatenate(residuals)
    assert abs(z.std() - 1) < 0.03 and abs(z.mean()) < 0.03  # 10,800 draws: one standard error is 0.007
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 0.05


def test_a_private_plan_depends_on_public_facts_only(cancer):
    """Other records under the same bounds: the same steps, activations, route, noise and ledger."""
    draw = np.random.default_rng(0)
    other = rd.Records(draw.uniform(0, 4000, cancer.data.X.shape), cancer.data.y, ranges=cancer.data.ranges)
    stranger = rd.logistic(other, agents=6, l2=1e-2, record_norm=2.0)
    for walk in ("random", "tour"):
        for graph in size((rd.ring(6), rd.star(6)), (rd.star(6),)):
            options = {
                "algorithm": "recal", "mechanism": "gradient", "budget": BUDGET, "activations": None, "walk": walk,
                "steps": "tuned", "key": jax.random.key(0), "start": 0, "ratio": None, "variant": None,
                "noise": None,
            }  # fmt: skip
            one, two = (make_plan(problem, graph, **options) for problem in (cancer, stranger))
            assert one.activations == two.activations
            assert all(np.array_equal(a, b) for a, b in zip(one.steps, two.steps, strict=True))
            assert np.array_equal(one.route.holder, two.route.holder)
            assert np.array_equal(one.scales, two.scales)
            assert one.ledger == two.ledger


def test_an_agent_whose_plan_is_spent_relays_and_never_touches_its_data_again(cancer):
    result = rd.solve(cancer, rd.star(6), budget=BUDGET, walk="random", activations=5)
    sent = result.transcript
    before = np.vstack([np.zeros(cancer.dim), sent.u[:-1]])
    changed = (sent.u != before).any(axis=1)
    assert [int(changed[sent.sender == i].sum()) for i in range(6)] == [5] * 6
    hub = np.flatnonzero(sent.sender == 0)
    assert len(hub) > 5, "the hub is visited far more often than it may act"
    assert np.array_equal(sent.u[~changed], before[~changed])
    assert np.array_equal(np.flatnonzero(changed), [release.hop for release in result.ledger])

    # whatever stands in the hub's records, from its last activation on it changes nothing it sends by itself
    last = max(release.hop for release in result.ledger.events(0))
    assert not changed[(np.arange(len(sent)) > last) & (sent.sender == 0)].any()


def test_the_tour_acts_once_a_lap(cancer):
    result = rd.solve(cancer, rd.path(6), walk="tour", activations=4)
    assert result.plf == 4 and result.messages == 4 * 10 and result.hops == 40


def test_theorem_4_by_hand(cancer):
    """epsilon 12, delta 1e-3: rho = 2.9586 by the paper; its exact epsilon is 9.835. No guarantee is claimed."""
    result = rd.solve(cancer, rd.ring(6), mechanism="published", budget=rd.Budget(12, 1e-3), activations=30, ratio=1.05)
    alpha, beta, c = float(result.steps.alpha.max()), float(result.steps.beta), 2.0 / 6
    first = next(iter(result.ledger)).scale
    total = sum(8 * (alpha * beta * c) ** 2 / (first**2 / 1.05**t) for t in range(30))
    assert np.isclose(total, 2.9586, atol=5e-5)
    assert np.isclose(result.ledger.rho, total, rtol=1e-9)
    assert np.isclose(result.epsilon_paper, 12.0, rtol=1e-9)
    assert np.isclose(rd.privacy.epsilon_exact(result.ledger.rho, 1e-3), 9.835, atol=5e-4)
    assert result.epsilon == math.inf and not result.private
    assert result.summary()["epsilon"] is None and "none" in result.guarantee


def test_x_leaks_exact_gradients_under_the_published_mechanism():
    """RECAL.md F1: x+ gives y_i, two visits give the gradient, noise or not (r = 0)."""
    draw = np.random.default_rng(0)
    data = rd.Records(draw.normal(size=(120, 5)), draw.normal(size=120))
    problem = rd.least_squares(data, agents=6, l2=0.3, clip=1.0)
    for scale in (0.0, 1.0, 1000.0):
        result = rd.solve(
            problem, rd.ring(6), mechanism="published", noise=scale, activations=60, steps="paper", variant="carried"
        )
        alpha, beta, gamma = (np.asarray(part) for part in result.steps)
        u, x, lam, open_, errors = np.zeros(5), np.zeros(5), np.zeros((6, 5)), {}, []
        for i, u_new, x_new in zip(result.transcript.sender, result.transcript.u, result.transcript.x, strict=True):
            y = x + ((x_new - x) / gamma + u) / beta  # line (2) solved for y_i
            if i in open_:
                y_before, half_before, lam_before, x_then = open_[i]
                lam[i] = lam_before + beta * (x_then - y)
                gradient = (y_before - y) / alpha[i] + half_before
                rows = slice(20 * i, 20 * i + 20)
                truth = data.X[rows].T @ (data.X[rows] @ y_before - data.y[rows]) / 20 + 0.3 * y_before
                errors.append(np.linalg.norm(6 * gradient - truth) / np.linalg.norm(truth))
            open_[i] = (y, lam[i] + beta * (x - y), lam[i], x_new)
            u, x = u_new, x_new
        assert np.mean(np.array(errors) < 1e-6) > 0.99


@pytest.mark.sample(1)
@pytest.mark.parametrize("walk", ["cyclic", "tour", "random"])
def test_a_sweep_is_its_runs(cancer, walk):
    budgets = [rd.Budget(epsilon=e, delta=1e-5) for e in (0.5, 4.0)]
    runs = rd.sweep(cancer, rd.ring(6), seeds=[3, 8], budgets=budgets, walk=walk)
    assert len(runs) == 4 and list(runs.seed) == [3, 8, 3, 8]
    for k in range(4):
        one = rd.solve(cancer, rd.ring(6), budget=runs.budget[k], seed=int(runs.seed[k]), walk=walk)
        assert np.allclose(one.x, runs.x[k], rtol=1e-9, atol=1e-12)
        assert one.plf == runs.plf[k] and one.messages == runs.messages[k]
        assert one.epsilon_planned == runs.epsilon_planned[k] and np.isclose(one.accuracy, runs.accuracy[k])
    medians = runs.medians()
    assert [row["epsilon_planned"] for row in medians] == [0.5, 4.0]
    assert not any("epsilon" in row for row in medians)  # simulations: no promise


def test_a_sweep_compiles_once_for_other_seeds_and_budgets(cancer):
    from relaydp.engine.sweeps import _advance_all

    options = {"walk": "cyclic", "activations": 9}
    rd.sweep(cancer, rd.ring(6), seeds=range(4), budgets=[rd.Budget(1, 1e-5)], **options)
    before = _advance_all._cache_size()
    rd.sweep(cancer, rd.ring(6), seeds=range(4, 8), budgets=[rd.Budget(2, 1e-6)], **options)
    assert _advance_all._cache_size() == before


def test_seeds_budgets_and_walks_share_compiled_code(cancer):
    from relaydp.engine.loop import advance

    rd.solve(cancer, rd.ring(6), budget=rd.Budget(1, 1e-5), activations=11, seed=0)
    before = advance._cache_size()
    for seed in (1, 2):
        rd.solve(cancer, rd.star(6), budget=rd.Budget(2, 1e-6), activations=11, seed=seed)
    assert advance._cache_size() == before


def test_an_interrupt_keeps_what_is_done_and_still_claims_the_whole_plan(cancer):
    def stop(done, total):
        if done >= total // 2:
            raise KeyboardInterrupt

    options = {"budget": BUDGET, "walk": "cyclic", "activations": 50}
    whole = rd.solve(cancer, rd.ring(6), **options, seed=0)
    part = rd.solve(cancer, rd.ring(6), **options, seed=0, progress=stop)
    assert part.status == "interrupted" and 0 < part.hops < whole.hops
    assert np.array_equal(part.transcript.x, whole.transcript.x[: part.hops])
    assert np.array_equal(part.x, whole.transcript.x[part.hops - 1])
    assert len(part.ledger) == part.hops and part.ledger.rho < whole.ledger.rho
    private = rd.solve(cancer, rd.ring(6), **options, progress=stop)
    assert private.status == "interrupted" and private.ledger == part.ledger
    assert private.epsilon == whole.epsilon_planned  # stopping may have depended on what was released


@pytest.mark.parametrize("algorithm", ["auto", "recal"])
def test_a_result_folder_reloads_and_reruns_to_the_same_bits(cancer, tmp_path, algorithm):
    """On the machine that saved it: `relaydp rerun` says of another that its bits may be others."""
    result = rd.solve(cancer, rd.erdos_renyi(6, 0.6), algorithm, budget=BUDGET, activations=9, seed=4)
    folder = result.save(tmp_path / "run")
    loaded = rd.load_result(folder)
    assert loaded.summary() == result.summary() and loaded.config == result.config
    assert np.array_equal(loaded.x, result.x) and loaded.ledger == result.ledger
    assert np.array_equal(loaded.trace.objective, result.trace.objective)
    again = rd.rerun(folder)
    assert again.x.tobytes() == result.x.tobytes()
    assert again.transcript.payload.keys() == result.transcript.payload.keys()
    for name, part in result.transcript.payload.items():
        assert again.transcript.payload[name].tobytes() == part.tobytes()
    assert again.ledger == result.ledger
    with pytest.raises(rd.errors.InputError, match="exists already"):
        result.save(folder)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(rd.errors.InputError, match="has no keep/config.json"):
        result.save(tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"


def test_a_trace_that_would_take_long_is_measured_at_fewer_points(cancer, tmp_path, monkeypatch):
    options = {"budget": BUDGET, "walk": "cyclic", "activations": 60, "transcript": False, "seed": 0}
    whole = rd.solve(cancer, rd.ring(6), **options).trace
    monkeypatch.setattr(trace, "LITTLE", 0)
    for few, points in [
        (rd.solve(cancer, rd.ring(6), **options), 16),  # 60 passes over records do not pay for a block
        (rd.solve(cancer, rd.ring(6), **options, trace=np.True_), 16),
        (rd.solve(cancer, rd.ring(6), **options, trace=7), 7),
        (rd.solve(cancer, rd.ring(6), **options, trace=10**6), len(whole)),
    ]:
        assert len(few.trace) == points
        at = np.searchsorted(whole.hop, few.trace.hop)
        assert (at[0], at[-1]) == (0, len(whole) - 1) and np.ptp(np.diff(at)) <= 1
        for name in ("hop", "activations", "messages", "rho", "objective", "relative_error", "accuracy"):
            np.testing.assert_allclose(getattr(few.trace, name), getattr(whole, name)[at], rtol=1e-12)
        again = rd.rerun(few.save(tmp_path / str(points), overwrite=True))
        np.testing.assert_array_equal(again.trace.hop, few.trace.hop)


@pytest.mark.parametrize(("passes", "points"), [(300, 32), (410, 64), (10, 16), (10**5, 201)])
def test_a_trace_has_whole_blocks_of_points_that_the_run_pays_for(cancer, monkeypatch, passes, points):
    monkeypatch.setattr(trace, "LITTLE", 0)
    plan = SimpleNamespace(activations=passes)
    assert cancer.held_out.X.size < 0.25 * cancer.data.X.size  # a fifth of the passes, less a fifth
    assert trace.affordable(cancer, plan, 201) == points
    monkeypatch.setattr(trace, "LITTLE", 10**9)
    assert trace.affordable(cancer, plan, 201) == 201


@pytest.mark.parametrize("odd", [0, 1, -3, 2.5, "yes", None])
def test_a_trace_of_no_such_number_of_points_is_refused(cancer, odd):
    with pytest.raises(rd.errors.InputError, match="trace=.*2 or more"):
        rd.solve(cancer, rd.ring(6), activations=2, trace=odd)


def test_a_rerun_on_other_data_is_refused(tmp_path):
    draw = np.random.default_rng(0)
    data = rd.Records(draw.normal(size=(40, 3)), draw.normal(size=40))
    result = rd.solve(rd.least_squares(data, agents=4, l2=0.1), rd.ring(4), activations=5)
    folder = result.save(tmp_path / "run")
    with pytest.raises(rd.errors.InputError, match="in memory"):
        rd.rerun(folder)
    assert rd.rerun(folder, data).x.tobytes() == result.x.tobytes()
    with pytest.raises(rd.errors.InputError, match="data_sha256"):
        rd.rerun(folder, rd.Records(data.X + 1, data.y))


def test_no_record_is_written_to_a_result_folder(tmp_path):
    """A value that occurs in the records only must not occur in any file."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(40, 3))
    X[7, 1] = 0.123456789012345
    result = rd.solve(rd.least_squares(rd.Records(X, X[:, 0]), agents=4, l2=0.1), rd.ring(4), activations=5)
    folder = result.save(tmp_path / "run")
    needle = np.float64(0.123456789012345).tobytes()
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert len(files) > 6
    for file in files:
        content = file.read_bytes()
        assert needle not in content and b"0.123456789012345" not in content


def test_the_papers_printed_weights_have_the_minimiser_zero_and_the_result_says_so():
    data = rd.load_data("breast-cancer")
    problem = rd.logistic(data, agents=4, l2=1.0, l1=0.5)
    result = rd.solve(problem, rd.ring(4), activations=20)
    assert np.isnan(result.relative_error) and "x* = 0" in result.message
    assert result.summary()["relative_error"] is None


def test_alone_spends_the_same_budget_and_learns_from_its_own_records(cancer):
    alone = rd.solve_alone(cancer, BUDGET)
    assert np.isclose(alone.epsilon, 1.0) and alone.epsilon <= 1.0
    assert (alone.ledger.counts == alone.plf).all()
    open_ = rd.solve_alone(cancer, activations=20_000)
    best = rd.minimise(cancer.alone(2))
    assert np.allclose(open_.x[2], best.x, atol=1e-4)


def test_alone_takes_a_custom_loss_with_its_own_number_of_coefficients():
    draw = np.random.default_rng(0)
    data = rd.Records(draw.normal(size=(40, 3)), draw.normal(size=40))
    problem = rd.custom(
        lambda x, a, b: 0.5 * (a @ x[:3] + x[3] - b) ** 2, data, agents=4, l2=0.1, dim=4, smoothness=20.0, clip=1.0
    )
    assert rd.solve_alone(problem, BUDGET, activations=3).x.shape == (4, 4)
    assert rd.solve(problem, rd.ring(4), budget=BUDGET, activations=3).x.shape == (4,)


def test_gradients_without_a_mechanism_are_not_clipped():
    draw = np.random.default_rng(0)
    data = rd.Records(draw.normal(size=(60, 3)), 5 * draw.normal(size=60))
    clipped = rd.least_squares(data, agents=4, l2=0.1, clip=1e-3)
    assert rd.solve(clipped, rd.ring(4), walk="cyclic", activations=300).relative_error < 1e-8


BAD = {
    "agents": (dict(graph=rd.ring(5)), "6 agents and the graph 5"),
    "algorithm": (dict(algorithm="recall"), "Did you mean 'recal'"),
    "walk": (dict(walk="cyclical"), "Did you mean 'cyclic'"),
    "mechanism": (dict(mechanism="gradients", budget=BUDGET), "Did you mean 'gradient'"),
    "no budget": (dict(mechanism="gradient"), "needs budget=Budget"),
    "budget without mechanism": (dict(mechanism=None, budget=BUDGET), "no noise to keep a budget with"),
    "published afbs": (dict(algorithm="afbs", mechanism="published", budget=BUDGET), "not defined for afbs"),
    "activations": (dict(activations=0), "activations=0"),
    "seed": (dict(seed=-1), "seed=-1"),
    "x0": (dict(x0=[1.0, 2.0]), "x0 has shape"),
    "ratio": (dict(budget=BUDGET, ratio=-1.0), "ratio=-1.0"),
    "start": (dict(start=17), "start=17"),
    "budget type": (dict(budget=1.0), "needed Budget"),
    "steps": (dict(steps="tune"), "Did you mean 'tuned'"),
}


@pytest.mark.parametrize(("options", "message"), BAD.values(), ids=BAD.keys())
def test_bad_arguments_are_named_with_their_cure(cancer, options, message):
    graph = options.pop("graph", rd.ring(6)) if "graph" in options else rd.ring(6)
    with pytest.raises(rd.errors.RelayError, match=message):
        rd.solve(cancer, graph, **options)


def test_a_private_run_without_bounds_is_refused():
    draw = np.random.default_rng(0)
    data = rd.Records(draw.normal(size=(40, 3)), np.sign(draw.normal(size=40)), classes=(-1, 1))
    with pytest.raises(rd.errors.PrivacyError, match="record_norm="):
        rd.solve(rd.logistic(data, agents=4, l2=0.1), rd.ring(4), budget=BUDGET)
    with pytest.raises(rd.errors.PrivacyError, match="fit-public"):
        rd.solve(rd.logistic(data, agents=4, l2=0.1, ranges="fit"), rd.ring(4), budget=BUDGET)
    rd.solve(rd.logistic(data, agents=4, l2=0.1, ranges="fit-public"), rd.ring(4), budget=BUDGET, activations=2)
    with pytest.raises(rd.errors.PrivacyError, match="clip="):
        rd.solve(rd.least_squares(data, agents=4, l2=0.1, record_norm=1.0), rd.ring(4), budget=BUDGET)


def test_mnist_at_epsilon_one_half():
    """Real MNIST 0/1, 8 agents on a ring, public bounds only: median accuracy of 16 seeds at least 0.99."""
    if "RELAYDP_DATA" not in os.environ:
        pytest.skip("MNIST is read from $RELAYDP_DATA, which is not set")
    budget = rd.Budget(epsilon=0.5, delta=1e-5)
    problem = rd.logistic(rd.load_data("mnist"), agents=8, l2=1e-2, record_norm=1.0)
    for walk in size(("cyclic", "random"), ("cyclic",)):
        runs = rd.sweep(problem, rd.ring(8), seeds=range(16), budgets=[budget], walk=walk, reference=False)
        assert np.median(runs.accuracy) >= 0.99
        assert (runs.epsilon_planned <= 0.5).all()


@pytest.mark.sample(1)
@pytest.mark.parametrize("sizes", [[7, 7, 7], [9, 4, 8]], ids=["even", "uneven"])
def test_least_squares_of_few_records_are_solved_on_their_span(sizes, monkeypatch):
    """Fewer records than coefficients: the thin form gives the full one's minimisers, duplicates and all."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(21, 30))
    X[1] = X[0]
    problem = rd.least_squares(rd.Records(X, rng.normal(size=21)), agents=sizes, l2=0.1)
    again = rd.least_squares(rd.Records(X, problem.data.y), agents=sizes, l2=0.1)
    full = loop.spectra_of(problem)
    monkeypatch.setattr(loop, "SPECTRA_DIM", 10)
    thin = loop.spectra_of(again)
    assert full.vectors.shape == (3, 30, 30) and thin.vectors.shape == (3, 30, max(sizes))
    p, v, kappa = rng.normal(size=(3, 30)), rng.normal(size=(3, 30)), np.array([0.3, 2.0, 50.0])
    np.testing.assert_allclose(thin.solve(slice(None), p, kappa, v), full.solve(slice(None), p, kappa, v), rtol=1e-10)
    np.testing.assert_allclose(thin.solve(1, p[1], kappa[1], v[1]), full.solve(1, p[1], kappa[1], v[1]), rtol=1e-10)
