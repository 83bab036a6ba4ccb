"""Laws that every algorithm keeps, and RECAL against an independent transcription of its equations."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import relaydp as rd
from relaydp.algorithm import (
    ALGORITHMS,
    d_admm,
    huang,
    ic_admm,
    nids,
    pg_admm,
    pg_extra,
    recal_steps,
    rw_admm,
    tripd,
    walkman,
)


@dataclass(frozen=True)
class Case:
    """What a new algorithm adds to inherit every law below."""

    activations: int  # enough to reach `tolerance` on the problem below
    tolerance: float
    options: dict[str, Any] = field(default_factory=dict)
    follows_edges: bool = True  # False for methods with a coordinator
    exact: bool = True  # False for methods that only come near
    settles: bool = True  # under decaying published noise: False where noise stays in the token for good
    losses: tuple[str, ...] = ("least_squares", "logistic")


CASES = {
    "recal": Case(activations=400, tolerance=1e-9, options={"walk": "random"}),
    "afbs": Case(activations=400, tolerance=1e-9, follows_edges=False),
    "pg-extra": Case(activations=400, tolerance=1e-9),
    "nids": Case(activations=400, tolerance=1e-9),
    "d-admm": Case(activations=400, tolerance=1e-9),
    "m-admm": Case(activations=400, tolerance=1e-9),
    "r-admm": Case(activations=400, tolerance=1e-9),
    "mr-admm": Case(activations=400, tolerance=1e-9),
    "huang-star": Case(activations=400, tolerance=1e-9, follows_edges=False),
    "huang-ring": Case(activations=400, tolerance=1e-9),
    "rw-admm": Case(activations=400, tolerance=1e-9, options={"walk": "random"}),
    "rw-admm-linearised": Case(activations=400, tolerance=1e-9, options={"walk": "random"}),
    "tripd-dist": Case(activations=400, tolerance=1e-9),
    "ic-admm": Case(activations=400, tolerance=1e-9),
    "pg-admm": Case(activations=400, tolerance=1e-9),
    "walkman": Case(activations=400, tolerance=1e-9, options={"walk": "random"}, settles=False),
    "walkman-gradient": Case(activations=400, tolerance=1e-9, options={"walk": "random"}, settles=False),
    "i-admm": Case(activations=400, tolerance=1e-9, options={"walk": "cyclic"}, settles=False),
    "dgd": Case(activations=400, tolerance=0.05, exact=False, settles=False),
    "gradient-tracking": Case(activations=400, tolerance=1e-9),
    "relay-gradient": Case(activations=400, tolerance=1e-9),
    "sufficient-statistics": Case(activations=1, tolerance=1e-9, losses=("least_squares",)),
}
GRAPHS = {
    "ring": rd.ring(6),
    "star": rd.star(6),
    "path": rd.path(6),
    "complete": rd.complete(6),
    "grid": rd.grid(2, 3),
    "erdos-renyi": rd.erdos_renyi(6, 0.5, seed=1),
}
THREE = {name: GRAPHS[name] for name in ("ring", "star", "erdos-renyi")}  # a cycle, a hub, neither
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
        data = rd.Records(data.X, np.sign(data.y), classes=(-1, 1))
    return getattr(rd, loss)(data, agents=SIZES, l2=0.3, l1=l1, **options)


@pytest.fixture(params=[(n, c) for n, c in CASES.items() if "gradient" in ALGORITHMS[n].mechanisms], ids=lambda p: p[0])
def sound(request):
    return request.param


def test_each_algorithm_has_a_case():
    assert CASES.keys() == ALGORITHMS.keys() == set(rd.algorithms())


@pytest.mark.sample(2)
@pytest.mark.parametrize("loss", ["least_squares", "logistic"])
@pytest.mark.parametrize("l1", [0.0, 0.05])
def test_without_noise_it_reaches_the_optimum_found_by_cvxpy(case, loss, l1):
    import cvxpy as cp

    name, params = case
    problem = make_problem(loss, l1)
    if loss not in params.losses:
        with pytest.raises(rd.errors.InputError, match=ALGORITHMS[name].instead):
            rd.solve(problem, rd.ring(6), name, **params.options)
        return
    if l1 and not ALGORITHMS[name].takes_r:
        with pytest.raises(rd.errors.InputError, match=ALGORITHMS[name].instead):
            rd.solve(problem, rd.ring(6), name, activations=5, **params.options)
        return
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
    if not params.exact:
        assert result.relative_error < params.tolerance
        return
    assert result.objective <= F.value * (1 + params.tolerance) + params.tolerance
    assert np.linalg.norm(result.x - x.value) <= 2e-5 * np.linalg.norm(x.value)  # cvxpy's own accuracy in x
    assert result.relative_error < params.tolerance


@pytest.mark.sample(2)
@pytest.mark.parametrize("graph", THREE.values(), ids=THREE.keys())
def test_one_seed_is_one_run(sound, graph):
    """To the last bit: the same compiled program twice, on one machine."""
    name, params = sound
    problem = make_problem(l1=0.0, record_norm=3.0, clip=2.0, label_bound=4.0)
    budget = rd.Budget(epsilon=3.0, delta=1e-4)
    one, two, other = (
        rd.solve(problem, graph, name, budget=budget, activations=12, seed=s, **params.options) for s in (5, 5, 6)
    )
    assert one.x.tobytes() == two.x.tobytes()
    assert not np.array_equal(one.x, other.x)
    assert one.simulation and not one.private and one.epsilon == np.inf and one.epsilon_planned <= budget.epsilon


@pytest.mark.sample(2)
def test_without_a_seed_no_two_runs_are_alike(sound):
    name, params = sound
    problem = make_problem(l1=0.0, record_norm=3.0, clip=2.0, label_bound=4.0)
    options = {"budget": rd.Budget(epsilon=3.0, delta=1e-4), "activations": 4, "reference": False, "trace": False}
    one, two = (rd.solve(problem, rd.ring(6), name, walk="cyclic", **options) for _ in range(2))
    assert one.private and two.private and not np.isclose(one.x, two.x, rtol=1e-9).any()


@pytest.mark.sample(1)
def test_one_seed_is_one_run_in_pieces_and_without_compilation(sound):
    """Whether hops are compiled in chunks or run one by one does not change what is sent beyond rounding."""
    import jax

    name, params = sound
    problem = make_problem(l1=0.0, record_norm=3.0, clip=2.0, label_bound=4.0)
    options = {"budget": rd.Budget(epsilon=3.0, delta=1e-4), "activations": 4, "reference": False, "trace": False}
    fast = rd.solve(problem, GRAPHS["ring"], name, seed=0, **options, **params.options)
    with jax.disable_jit():
        slow = rd.solve(problem, GRAPHS["ring"], name, seed=0, **options, **params.options)
    assert np.allclose(fast.x, slow.x, rtol=1e-12, atol=1e-14)


@pytest.mark.sample(2)
@pytest.mark.parametrize("graph", THREE.values(), ids=THREE.keys())
def test_messages_follow_edges_and_are_counted_once(case, graph):
    name, params = case
    if params.options.get("walk") == "cyclic" and graph is not GRAPHS["ring"]:
        params = Case(params.activations, params.tolerance, {"walk": "tour"})
    result = rd.solve(make_problem(l1=0.0), graph, name, activations=15, **params.options)
    sent = result.transcript
    if params.follows_edges:
        assert all(graph.has_edge(int(i), int(j)) for i, j in zip(sent.sender, sent.receiver, strict=True))
        assert result.messages == len(sent) * ALGORITHMS[name].exchanges
        assert result.vectors == result.messages * ALGORITHMS[name].vectors_of(5)
    assert result.trace.messages[-1] == result.messages
    assert result.trace.vectors[-1] == result.vectors


@pytest.mark.sample(2)
@pytest.mark.parametrize("graph", THREE.values(), ids=THREE.keys())
def test_the_ledger_charges_every_activation_once_and_adds_up_to_the_claim(sound, graph):
    name, params = sound
    budget = rd.Budget(epsilon=0.7, delta=1e-5)
    problem = make_problem(l1=0.0, record_norm=3.0, clip=2.0, label_bound=4.0)
    result = rd.solve(problem, graph, name, budget=budget, activations=7, **params.options)
    ledger = result.ledger
    assert (ledger.counts == 7).all() and ledger.plf == result.plf == 7
    for i in range(6):
        spent = sum(release.sensitivity**2 / (2 * release.scale**2) for release in ledger.events(i))
        assert np.isclose(spent, budget.rho, rtol=1e-9)
        assert all(np.isclose(release.sensitivity, 2 * 2.0 / SIZES[i]) for release in ledger.events(i))
    assert budget.epsilon - 1e-8 < result.epsilon <= budget.epsilon
    assert np.isclose(result.trace.rho[-1], ledger.rho)


def test_an_argmin_has_no_gradient_mechanism_and_least_squares_no_bounded_slope(case):
    """Refused with the reason and with the algorithm to use instead."""
    name, params = case
    if "gradient" in ALGORITHMS[name].mechanisms:
        assert ALGORITHMS[name].data in ("gradient", "statistics")
        return
    problem = make_problem(l1=0.0, record_norm=3.0, clip=2.0, label_bound=4.0)
    options = {"budget": rd.Budget(1.0, 1e-5), "activations": 3, **params.options}
    with pytest.raises(rd.errors.PrivacyError, match=f"argmin.*{ALGORITHMS[name].instead}"):
        rd.solve(problem, rd.ring(6), name, "gradient", **options)
    with pytest.raises(rd.errors.PrivacyError, match=f"logistic.*{ALGORITHMS[name].instead}"):
        rd.solve(problem, rd.ring(6), name, seed=0, **options)
    assert "gradient" in ALGORITHMS[ALGORITHMS[name].instead].mechanisms


@pytest.mark.sample(2)
def test_published_noise_that_decays_leaves_no_bias(case):
    """The bookkeeping law: noise enters through neighbour differences with the agent's own noisy value."""
    name, params = case
    if "published" not in ALGORITHMS[name].mechanisms or not params.settles:
        return
    problem = make_problem(l1=0.0, clip=2.0)
    options = {"mechanism": "published", "noise": 1e-2, "ratio": 1.1, "activations": 400}
    result = rd.solve(problem, rd.ring(6), name, **options, **params.options)
    assert result.relative_error < 1e-5, "noise of 1e-2 that has shrunk to 1e-10 must not leave a trace"
    assert result.epsilon == np.inf


@pytest.mark.sample(2)
def test_relabelling_agents_relabels_the_answer(case):
    """The same records and graph under other names give the same model (cyclic: the route is relabelled too)."""
    name, _ = case
    data = records()
    parts = np.split(np.arange(len(data)), np.cumsum(SIZES)[:-1])
    order = [2, 0, 5, 3, 1, 4]  # new agent k holds what agent order[k] held
    rows = np.concatenate([parts[i] for i in order])
    first = rd.least_squares(data, agents=SIZES, l2=0.3)
    second = rd.least_squares(rd.Records(data.X[rows], data.y[rows]), agents=[SIZES[i] for i in order], l2=0.3)
    new_name = np.argsort(order)  # agent i is now called new_name[i]
    options = {"walk": "cyclic", "activations": 9, "steps": "paper"}
    a = rd.solve(first, rd.ring(6), name, **options)
    b = rd.solve(second, rd.ring(6).relabel(new_name), name, **options, start=int(new_name[0]))
    if ALGORITHMS[name].links == "hop":
        assert np.array_equal(new_name[a.transcript.sender], b.transcript.sender)
    assert np.allclose(a.x, b.x, rtol=1e-9, atol=1e-12)


@pytest.mark.sample(2)
def test_zero_data_leaves_only_prox_work(case):
    name, params = case
    empty = rd.Records(np.zeros((60, 5)), np.zeros(60))
    problem = rd.least_squares(empty, agents=6, l2=0.3, l1=0.05 if ALGORITHMS[name].takes_r else 0.0)
    result = rd.solve(problem, rd.ring(6), name, activations=200, x0=np.full(5, 2.0), reference=False, **params.options)
    assert np.abs(result.x).max() < 1e-6  # ridge and l1 alone pull any start to 0


# ALGORITHMS.md section 5: 8 agents on a ring, 300 activations each, by the paper's own rule
PRINTED = {"nids": 4800, "pg-extra": 9600, "d-admm": 9600, "rw-admm": 9600, "recal": 2400, "mr-admm": 19200}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", sorted(PRINTED.keys() & ALGORITHMS.keys()))
def test_messages_by_the_papers_rule_are_the_papers(name):
    data = records(sizes=[10] * 8)
    problem = rd.least_squares(data, agents=8, l2=0.3)
    result = rd.solve(problem, rd.ring(8), name, walk="cyclic", activations=300, steps="paper", transcript=False)
    assert result.messages_paper == PRINTED[name]


def test_agents_that_skip_rounds_act_with_their_probability_and_still_agree():
    """TriPD-Dist with p_i = 1/2: PLF = max_i of the draws, only acting agents are charged, the optimum is reached."""
    problem = make_problem(l1=0.05, record_norm=3.0, clip=2.0)
    result = rd.solve(problem, rd.ring(6), "tripd-dist", activations=400, steps={"probability": 0.5})
    assert result.plf == 400 and 700 < result.hops < 900
    assert result.relative_error < 1e-9
    private = rd.solve(
        problem, rd.ring(6), "tripd-dist", budget=rd.Budget(1.0, 1e-5), activations=10, steps={"probability": 0.5}
    )
    assert private.ledger.plf == 10 and private.ledger.counts.min() < 10
    assert private.messages == 2 * private.ledger.counts.sum()  # two neighbours each


# -- relay gradient itself


def nesterov(gradients, prox, t, a, b, settled, x0, laps):
    """Accelerated gradient descent on the mean of the agents' functions, asked at a times the model; plain NumPy.
    One row a lap: (the model before it, every agent's gradient in it, the model after it)."""
    x = last = np.asarray(x0, float)
    rows = []
    for k in range(laps):
        v = x + min((k - 1) / (k + 2), b) * (x - last)
        each = np.array([gradient(a * v) for gradient in gradients])
        now = t * max(1 - k / settled, 0)
        last, x = x, prox(v - now * each.mean(axis=0), now)
        rows.append((last, each, x))
    return rows


@pytest.mark.parametrize("penalty", [("none", 1.0, 1.0, math.inf), ("l1", 2.0, 0.7, 20)], ids=lambda p: p[0])
@pytest.mark.parametrize(
    ("graph", "walk", "start"), [("ring", "cyclic", 2), ("star", "tour", 3), ("star", "tour", 0), ("path", "tour", 2)]
)
def test_relay_gradient_is_nesterovs_method_on_the_mean_gradient(graph, walk, start, penalty):
    """Whatever the walk, also where a tour comes by an agent again: all that is sent, hop by hop, and the answer."""
    (name, a, b, settled), laps, n = penalty, 30, 6
    options, prox = PENALTIES[name]
    data, x0 = records(), np.array([0.3, -0.2, 0.0, 0.1, 1.0])
    problem = rd.least_squares(data, agents=SIZES, l2=0.3, **options)
    steps = {"stepsize": 0.1, "stretch": a, **({} if b == 1.0 else {"momentum": b, "settled": settled})}
    asked = {"steps": steps, "walk": walk, "start": start, "x0": x0, "activations": laps}
    result = rd.solve(problem, GRAPHS[graph], "relay-gradient", **asked)
    gradients, at = [], 0
    for size in SIZES:
        A, c = data.X[at : at + size], data.y[at : at + size]
        gradients.append(lambda v, A=A, c=c: A.T @ (A @ v - c) / len(c) + 0.3 * v)
        at += size
    expected = nesterov(gradients, prox, 0.1, a, b, settled, x0, laps)
    sent, hops = result.transcript, len(result.transcript) // laps
    assert sent.sender[0] == start and len(sent) == laps * hops and (hops > n) == (graph != "ring")
    for k, (before, each, after) in enumerate(expected):
        acted, S = set(), np.zeros(5)
        for row in range(k * hops, (k + 1) * hops):
            i = int(sent.sender[row])
            if i not in acted:
                S = S + each[i] / n
                acted.add(i)
            done = len(acted) == n  # from the lap's last agent on, the new model travels with an empty sum
            assert np.abs(sent.x[row] - (after if done else before)).max() <= 1e-10
            assert np.abs(sent.total[row] - (0 if done else S)).max() <= 1e-10
    assert np.abs(result.x - expected[-1][2]).max() <= 1e-10
    assert (result.plf, result.hops) == (laps, laps * hops)


def test_relay_gradients_steps_have_a_limit_unless_gradients_are_clipped():
    problem = make_problem()
    with pytest.raises(rd.errors.InputError, match=r"stepsize=.*is not below.*4/\(3 L\)"):
        rd.solve(problem, rd.ring(6), "relay-gradient", steps={"stepsize": 10.0})
    with pytest.raises(rd.errors.InputError, match="stepsize"):
        rd.solve(problem, rd.ring(6), "relay-gradient", steps={"stepsize": 0.4, "stretch": 100.0})
    with pytest.raises(rd.errors.InputError, match="fixed order.*tour"):
        rd.solve(problem, rd.ring(6), "relay-gradient", walk="random")


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


@pytest.mark.sample(3)
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


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(5))
def test_tuned_ring_walk_of_8_within_150_activations(seed):
    result = rd.solve(least_squares_table(8, seed), rd.ring(8), walk="random", activations=150, seed=seed)
    assert result.plf == 150 and result.relative_error < 1e-10


@pytest.mark.sample(1)
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


@pytest.mark.sample(5)
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


@pytest.mark.sample(2)
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


# -- ALGORITHMS.md section 7: activations to a relative error of 1e-10 on a ring of 8, best steps of a grid per column
COLUMNS = {
    "lin nu=.5": ("least_squares", 0.5),
    "log nu=.02": ("logistic", 0.02),
    "lin r=0": ("least_squares", 0.0),
    "log r=0": ("logistic", 0.0),
}
TABLE = {
    "pg-extra": (130, 96, 175, 95),
    "nids": (104, 69, 129, 68),
    "d-admm": (114, 87, 155, 87),
    "m-admm": (None, None, 234, 115),
    "r-admm": (None, None, 83, 42),
    "mr-admm": (None, None, 97, 54),
    "huang-star": (96, 55, 102, 55),
    "huang-ring": (160, 89, 175, 89),
    "ic-admm": (143, 85, 172, 86),
    "pg-admm": (160, 92, 178, 92),
    "tripd-dist": (161, 89, 172, 90),
    "rw-admm": (186, 104, 179, 104),
    "rw-admm-linearised": (189, 120, 182, 116),
    "i-admm": (None, None, 59, 37),
    "walkman": (98, 73, 106, 73),
    "walkman-gradient": (374, 148, 362, 148),
    "afbs": (247, 131, 256, 132),
    "recal": (130, 96, 122, 96),
}


def table_problem(loss, l1):
    """8 x 200 records, q = 10, features in [0, 1], 12 % positives. The table's own draw is not recorded; features are
    skewed so that L is about what its steps imply (5.5), and the labels follow a noisy score, so that x* is not 0."""
    draw = np.random.default_rng(0)
    X = np.sqrt(draw.uniform(size=(1600, 10)))
    score = X @ draw.normal(size=10) + 0.3 * draw.normal(size=1600)
    y = np.where(score > np.quantile(score, 0.88), 1.0, -1.0)
    return getattr(rd, loss)(rd.Records(X, y), agents=8, l2=1.0, l1=l1)


START = np.random.default_rng(1).normal(size=10)
# The table tuned every cell on the run it counts. Ours come from public facts, for any walk and any r, and are held to
# the same figures; where they miss one (1.51 times as many), the steps are tuned as the table's were.
TUNED_ON_THE_RUN = {("rw-admm-linearised", 0): rw_admm.grid_linear}


def activations_to_1e_10(problem, name, seed, one, most):
    options = {"walk": CASES[name].options.get("walk", "random"), "x0": START, "seed": seed, "transcript": False}
    trace = rd.solve(problem, rd.ring(8), name, activations=most, steps=one, **options).trace
    best = rd.minimise(problem).x
    below = trace.relative_error * np.linalg.norm(best) / np.linalg.norm(START - best) < 1e-10
    return int(trace.activations[np.argmax(below)]) if below.any() else np.inf


@pytest.mark.slow
@pytest.mark.parametrize("column", range(4), ids=COLUMNS.keys())
@pytest.mark.parametrize("name", TABLE)
def test_activations_to_1e_10_are_within_one_and_a_half_of_the_table(name, column):
    printed = TABLE[name][column]
    if printed is None:
        assert not ALGORITHMS[name].takes_r
        return
    problem = table_problem(*list(COLUMNS.values())[column])
    grid = TUNED_ON_THE_RUN.get((name, column))
    tried = ["tuned"] if grid is None else grid(problem.measured_facts(), rd.ring(8))
    most = max(300, 2 * printed)
    counts = [min(activations_to_1e_10(problem, name, seed, one, most) for one in tried) for seed in range(3)]
    assert np.median(counts) <= 1.5 * printed, counts


# the fifth column, logistic with nu = .5, where x* = 0: what counts is how soon a prox hits 0, and only steps tuned on
# the run itself can know that. So all candidates are tried, as the table did.
AT_ZERO = {
    "pg-extra": (4, pg_extra.grid),
    "nids": (2, nids.grid),
    "d-admm": (2, d_admm.grid),
    "huang-star": (31, huang.star_grid),
    "huang-ring": (3, huang.ring_grid),
    "ic-admm": (2, ic_admm.grid),
    "pg-admm": (3, pg_admm.grid),
    "tripd-dist": (3, tripd.grid),
    "rw-admm": (41, rw_admm.grid),
    "rw-admm-linearised": (45, rw_admm.grid_linear),
    "walkman": (1, walkman.grid),
    # down to its limit, which the tuner's own grid keeps away from
    "walkman-gradient": (9, lambda facts, _: [{"beta": b * facts.smoothness.max()} for b in np.linspace(1.7, 2.0, 31)]),
    "afbs": (9, recal_steps.candidates),
    "recal": (2, recal_steps.candidates),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", AT_ZERO)
def test_where_the_minimiser_is_0_it_is_hit_as_soon_as_in_the_table(name):
    printed, grid = AT_ZERO[name]
    problem = table_problem("logistic", 0.5)
    assert not rd.minimise(problem).x.any()
    options = {"walk": CASES[name].options.get("walk", "random"), "x0": START, "transcript": False, "trace": False}

    def hits(one, count):
        x = rd.solve(problem, rd.ring(8), name, activations=count, steps=one, reference=False, **options).x
        return np.linalg.norm(x) < 1e-10 * np.linalg.norm(START)

    candidates = grid(problem.measured_facts(), rd.ring(8))
    assert any(hits(one, count) for count in (printed, int(1.5 * printed)) for one in candidates)
