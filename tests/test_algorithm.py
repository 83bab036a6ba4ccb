"""Laws that every algorithm keeps, and RECAL against an independent transcription of its equations."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import relaydp as rd
from relaydp.algorithm import ALGORITHMS


@dataclass(frozen=True)
class Case:
    """What a new algorithm adds to inherit every law below."""

    activations: int  # enough to reach `tolerance` on the problem below
    tolerance: float
    options: dict[str, Any] = field(default_factory=dict)
    follows_edges: bool = True  # False for methods with a coordinator


CASES = {
    "recal": Case(activations=400, tolerance=1e-9, options={"walk": "random"}),
    "afbs": Case(activations=400, tolerance=1e-9, follows_edges=False),
    "pg-extra": Case(activations=400, tolerance=1e-9),
}
GRAPHS = {
    "ring": rd.ring(6),
    "star": rd.star(6),
    "path": rd.path(6),
    "complete": rd.complete(6),
    "grid": rd.grid(2, 3),
    "erdos-renyi": rd.erdos_renyi(6, 0.5, seed=1),
}
SIZES = [20, 31, 17, 40, 25, 22]


@pytest.fixture(params=CASES.items(), ids=CASES.keys())
def case(request):
    return request.param


def records(seed=0, sizes=SIZES, q=5):
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(sum(sizes), q))
    y = X @ draw.normal(size=q) + 0.3 * draw.normal(size=len(X))
    return rd.Records(X, y)


def make_problem(loss="least_squares", l1=0.05, seed=0, **options):
    data = records(seed)
    if loss == "logistic":
        data = rd.Records(data.X, np.sign(data.y))
    return getattr(rd, loss)(data, agents=SIZES, l2=0.3, l1=l1, **options)


def test_each_algorithm_has_a_case():
    assert CASES.keys() == ALGORITHMS.keys() == set(rd.algorithms())


@pytest.mark.parametrize("loss", ["least_squares", "logistic"])
@pytest.mark.parametrize("l1", [0.0, 0.05])
def test_without_noise_it_reaches_the_optimum_found_by_cvxpy(case, loss, l1):
    import cvxpy as cp

    name, params = case
    problem = make_problem(loss, l1)
    x = cp.Variable(5)
    X, y, starts = problem.data.X, problem.data.y, np.concatenate([[0], np.cumsum(SIZES)])
    terms = []
    for a, b in zip(starts[:-1], starts[1:], strict=True):
        margin = X[a:b] @ x
        each = cp.sum_squares(margin - y[a:b]) / 2 if loss == "least_squares" else None
        if loss == "logistic":
            each = cp.sum(cp.logistic(-cp.multiply(y[a:b], margin)))
        terms.append(each / (b - a))
    F = sum(terms) / len(SIZES) + 0.15 * cp.sum_squares(x) + l1 * cp.norm1(x)
    exact = {"tol_gap_abs": 1e-13, "tol_gap_rel": 1e-13, "tol_feas": 1e-13}
    cp.Problem(cp.Minimize(F)).solve(solver="CLARABEL", **exact)
    result = rd.solve(problem, rd.ring(6), name, activations=params.activations, **params.options)
    assert result.status == "finished"
    assert result.objective <= F.value * (1 + params.tolerance) + params.tolerance
    assert np.linalg.norm(result.x - x.value) <= 2e-5 * np.linalg.norm(x.value)  # cvxpy's own accuracy in x
    assert result.relative_error < params.tolerance


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS.keys())
def test_one_seed_is_one_run(case, graph):
    name, params = case
    problem = make_problem(record_norm=3.0, clip=2.0)
    budget = rd.Budget(epsilon=3.0, delta=1e-4)
    one, two, other = (
        rd.solve(problem, graph, name, budget=budget, activations=12, seed=s, **params.options) for s in (5, 5, 6)
    )
    assert one.x.tobytes() == two.x.tobytes()
    assert not np.array_equal(one.x, other.x)


def test_one_seed_is_one_run_in_pieces_and_without_compilation(case):
    """Whether hops are compiled in chunks or run one by one does not change what is sent beyond rounding."""
    import jax

    name, params = case
    problem = make_problem(record_norm=3.0, clip=2.0)
    options = {"budget": rd.Budget(epsilon=3.0, delta=1e-4), "activations": 4, "reference": False, "trace": False}
    fast = rd.solve(problem, GRAPHS["ring"], name, **options, **params.options)
    with jax.disable_jit():
        slow = rd.solve(problem, GRAPHS["ring"], name, **options, **params.options)
    assert np.allclose(fast.x, slow.x, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS.keys())
def test_messages_follow_edges_and_are_counted_once(case, graph):
    name, params = case
    result = rd.solve(make_problem(), graph, name, activations=15, **params.options)
    sent = result.transcript
    if params.follows_edges:
        assert all(graph.has_edge(int(i), int(j)) for i, j in zip(sent.sender, sent.receiver, strict=True))
        assert result.messages == len(sent)
        assert result.vectors == result.messages * ALGORITHMS[name].vectors
    assert result.trace.messages[-1] == result.messages
    assert result.trace.vectors[-1] == result.vectors


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS.keys())
def test_the_ledger_charges_every_activation_once_and_adds_up_to_the_claim(case, graph):
    name, params = case
    budget = rd.Budget(epsilon=0.7, delta=1e-5)
    result = rd.solve(
        make_problem(record_norm=3.0, clip=2.0), graph, name, budget=budget, activations=7, **params.options
    )
    ledger = result.ledger
    assert (ledger.counts == 7).all() and ledger.plf == result.plf == 7
    for i in range(6):
        spent = sum(release.sensitivity**2 / (2 * release.scale**2) for release in ledger.events(i))
        assert np.isclose(spent, budget.rho, rtol=1e-9)
        assert all(np.isclose(release.sensitivity, 2 * 2.0 / SIZES[i]) for release in ledger.events(i))
    assert budget.epsilon - 1e-8 < result.epsilon <= budget.epsilon
    assert np.isclose(result.trace.rho[-1], ledger.rho)


def test_relabelling_agents_relabels_the_answer(case):
    """The same records and graph under other names give the same model (cyclic: the route is relabelled too)."""
    name, _ = case
    data = records()
    parts = np.split(np.arange(len(data)), np.cumsum(SIZES)[:-1])
    order = [2, 0, 5, 3, 1, 4]  # new agent k holds what agent order[k] held
    rows = np.concatenate([parts[i] for i in order])
    first = rd.least_squares(data, agents=SIZES, l2=0.3, l1=0.05)
    second = rd.least_squares(rd.Records(data.X[rows], data.y[rows]), agents=[SIZES[i] for i in order], l2=0.3, l1=0.05)
    new_name = np.argsort(order)  # agent i is now called new_name[i]
    a = rd.solve(first, rd.ring(6), name, walk="cyclic", activations=9, steps="paper")
    b = rd.solve(
        second, rd.ring(6).relabel(new_name), name, walk="cyclic", activations=9, steps="paper", start=int(new_name[0])
    )
    if ALGORITHMS[name].kind == "relay":
        assert np.array_equal(new_name[a.transcript.sender], b.transcript.sender)
    assert np.allclose(a.x, b.x, rtol=1e-10, atol=1e-13)


def test_zero_data_leaves_only_prox_work(case):
    name, params = case
    empty = rd.Records(np.zeros((60, 5)), np.zeros(60))
    problem = rd.least_squares(empty, agents=6, l2=0.3, l1=0.05)
    result = rd.solve(problem, rd.ring(6), name, activations=200, x0=np.full(5, 2.0), reference=False, **params.options)
    assert np.abs(result.x).max() < 1e-6  # ridge and l1 alone pull any start to 0


# -- RECAL itself


def transcribe(problem, steps, senders, gradients, prox):
    """RECAL.md section 2, line by line, in plain NumPy: one row (u, x) a hop."""
    n, q = problem.agents, problem.dim
    y, lam = np.zeros((n, q)), np.zeros((n, q))
    u, x = np.zeros(q), np.zeros(q)
    alpha, beta, gamma = (np.asarray(part) for part in steps)
    rows = []
    for i in senders:
        half = lam[i] + beta * (x - y[i])  # (1)
        x_new = prox(x - gamma * (u + half - lam[i]), gamma)  # (2)
        y_new = y[i] - alpha[i] * (gradients[i](y[i]) / n - half)  # (3), f_i / n
        lam_new = half + beta * ((x_new - x) - (y_new - y[i]))  # (4)
        u = u + lam_new - lam[i]  # (5)
        y[i], lam[i], x = y_new, lam_new, x_new
        rows.append((u, x))
    return [np.array(column) for column in zip(*rows, strict=True)]


def soft(v, t):
    return np.sign(v) * np.maximum(np.abs(v) - t, 0)


def group_soft(v, t, groups):
    out = v.copy()
    for g in np.unique(groups):
        part = groups == g
        norm, cut = np.linalg.norm(v[part]), t * np.sqrt(part.sum())
        out[part] = 0 if norm <= cut else v[part] * (1 - cut / norm)
    return out


PENALTIES = {
    "none": ({}, lambda v, t: v),
    "l1": ({"l1": 0.02}, lambda v, t: soft(v, t * 0.02)),
    "group lasso": (
        {"regulariser": rd.prox.group_lasso(0.03, [0, 0, 1, 1, 1])},
        lambda v, t: group_soft(v, t * 0.03, np.array([0, 0, 1, 1, 1])),
    ),
}


@pytest.mark.parametrize("graph", ["ring", "star", "erdos-renyi"])
@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES.keys())
def test_recal_with_the_papers_steps_equals_an_independent_transcription(graph, penalty):
    options, prox = penalty
    data = records()
    problem = rd.least_squares(data, agents=SIZES, l2=0.3, **options)
    result = rd.solve(problem, GRAPHS[graph], steps="paper", walk="random", activations=260, seed=3)
    starts = np.concatenate([[0], np.cumsum(SIZES)])
    gradients = []
    for a, b in zip(starts[:-1], starts[1:], strict=True):
        A, c = data.X[a:b], data.y[a:b]
        gradients.append(lambda v, A=A, c=c: A.T @ (A @ v - c) / len(c) + 0.3 * v)
    L = np.array(
        [
            np.linalg.eigvalsh(data.X[a:b].T @ data.X[a:b] / (b - a))[-1]
            for a, b in zip(starts, starts[1:], strict=False)
        ]
    )
    assert np.allclose(result.steps.alpha, 1.9 / ((L + 0.3) / 6 + 1), rtol=1e-4)
    assert float(result.steps.beta) == 1 / 14 and float(result.steps.gamma) == 1.0
    sent = result.transcript
    assert len(sent) >= 500
    u, x = transcribe(problem, result.steps, sent.sender, gradients, prox)
    scale = np.abs(x).max()
    assert np.abs(sent.x - x).max() <= 1e-12 * scale
    assert np.abs(sent.u - u).max() <= 1e-12 * scale


def least_squares_table(n, seed=0):
    """The problem of RECAL.md section 3's table: n x 200 x 10 least squares + 1/2 ||x||^2."""
    draw = np.random.default_rng(seed)
    X = draw.uniform(size=(n * 200, 10))
    return rd.least_squares(rd.Records(X, X @ draw.normal(size=10) + 0.1 * draw.normal(size=n * 200)), agents=n, l2=1.0)


@pytest.mark.parametrize("seed", range(5))
def test_tuned_ring_walk_of_8_within_150_activations(seed):
    result = rd.solve(least_squares_table(8, seed), rd.ring(8), walk="random", activations=150, seed=seed)
    assert result.plf == 150 and result.relative_error < 1e-10


@pytest.mark.parametrize(("n", "walk"), [(32, "cyclic"), (64, "cyclic"), (128, "cyclic"), (32, "random")])
def test_tuned_large_rings_within_600_activations(n, walk):
    result = rd.solve(least_squares_table(n), rd.ring(n), walk=walk, activations=600, transcript=False)
    assert result.plf == 600 and result.relative_error < 1e-10


def test_the_papers_steps_diverge_on_a_long_cycle_and_the_result_says_so():
    result = rd.solve(
        least_squares_table(64), rd.ring(64), walk="cyclic", steps="paper", activations=600, transcript=False
    )
    assert result.status == "diverged" and np.isnan(result.x).all() and "tuned" in result.message


SUPPORTED = {
    "ring": rd.ring,
    "path": rd.path,
    "star": rd.star,
    "complete": rd.complete,
    "grid": lambda n: rd.grid(4, n // 4),
    "torus": lambda n: rd.torus(4, n // 4),
    "hypercube": lambda n: rd.hypercube(int(np.log2(n))),
    "erdos-renyi": lambda n: rd.erdos_renyi(n, 0.3),
    "watts-strogatz": rd.watts_strogatz,
    "random-regular": rd.random_regular,
}


@pytest.mark.parametrize("walk", ["random", "lazy", "nonbacktracking", "tour"])
@pytest.mark.parametrize("make", SUPPORTED.values(), ids=SUPPORTED.keys())
@pytest.mark.parametrize("n", [16, pytest.param(64, marks=pytest.mark.slow), pytest.param(128, marks=pytest.mark.slow)])
def test_tuned_steps_never_diverge(n, make, walk):
    result = rd.solve(least_squares_table(n), make(n), walk=walk, activations=60, transcript=False)
    assert result.status == "finished"
    assert result.trace.objective[-1] < result.trace.objective[0]


def test_steps_outside_the_stable_set_are_refused_with_the_agent_and_the_cure():
    problem = make_problem()
    with pytest.raises(rd.errors.InputError, match=r"2/L_i.*agent|agent 0 is not below 2/L_i"):
        rd.solve(problem, rd.ring(6), steps={"alpha": 1e3, "beta": 0.01, "gamma": 0.1})
    with pytest.raises(rd.errors.InputError, match="stable set"):
        rd.solve(problem, rd.ring(6), steps={"alpha": 0.1, "beta": 5.0, "gamma": 1.0})
    with pytest.raises(rd.errors.InputError, match="gamma"):
        rd.solve(problem, rd.ring(6), steps={"alpha": 0.1, "beta": 5.0})


@pytest.mark.parametrize("variant", ["memoryless", "carried", "replace"])
def test_the_published_variants_follow_their_equations(variant):
    """Replay the transcript in NumPy with the noise read off it: u~ = u+ - e, u+ as each variant has it."""
    problem = make_problem(l1=0.0, clip=2.0)
    result = rd.solve(
        problem,
        rd.ring(6),
        mechanism="published",
        variant=variant,
        noise=0.05,
        ratio=1.02,
        activations=40,
        steps="paper",
    )
    sent, n = result.transcript, problem.agents
    alpha, beta, gamma = (np.asarray(part) for part in result.steps)
    starts = np.concatenate([[0], np.cumsum(SIZES)])
    y, lam, last = np.zeros((n, 5)), np.zeros((n, 5)), np.zeros((n, 5))
    u, x, clean, draws, counts = np.zeros(5), np.zeros(5), np.zeros(5), [], np.zeros(n, int)
    for i, u_sent, x_sent in zip(sent.sender, sent.u, sent.x, strict=True):
        A, c = problem.data.X[starts[i] : starts[i + 1]], problem.data.y[starts[i] : starts[i + 1]]
        half = lam[i] + beta * (x - y[i])
        x_new = x - gamma * (u + half - lam[i])
        assert np.allclose(x_new, x_sent, atol=1e-10)
        gradient = (A.T @ (A @ y[i] - c) / len(c) + 0.3 * y[i]) / n
        y_new = y[i] - alpha[i] * (gradient - half)
        change = beta * (x_new - y_new)
        clean = clean + change
        before = {"memoryless": clean, "carried": u + change, "replace": u + last[i] + change}[variant]
        noise = before - u_sent
        draws.append(noise / (0.05 * 1.02 ** (-counts[i] / 2)))
        last[i], y[i], lam[i], u, x = noise, y_new, lam[i] + change, u_sent, x_sent
        counts[i] += 1
    deviation = np.std(draws)
    assert 0.9 < deviation < 1.1  # 5 x ~200 draws: one standard error is 0.02
