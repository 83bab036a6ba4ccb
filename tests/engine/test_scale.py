"""Large networks: memory and work in proportion to the agents, and the same laws as for eight."""

import importlib.util
import re
import subprocess
import sys

import jax
import numpy as np
import pytest

import relaydp as rd
from relaydp.algorithm import ALGORITHMS
from relaydp.engine import loop, prefetch
from relaydp.engine.loop import advance, begin, stride_for, turns_of, world_of
from relaydp.engine.trace import in_blocks
from relaydp.errors import PrivacyError
from relaydp.graph import network_of, route
from relaydp.graph.random_graphs import MANY_AGENTS
from relaydp.planning.planner import make_plan
from relaydp.privacy import Ledger, epsilon_exact

MANY = 20_000
BUDGET = rd.Budget(1.0, 1e-5)


def network(n, records=4, seed=0):
    """n agents with 1 to `records` records of 6 features each."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(1, records + 1, size=n)
    X = draw.random((int(sizes.sum()), 6))
    y = np.where(X @ draw.normal(size=6) > 0, 1.0, -1.0)
    return rd.logistic(rd.Records(X, y), agents=sizes, l2=1e-2, record_norm=1.0, classes=[-1, 1])


def plan_of(problem, graph, T, walk="cyclic", budget=None):
    return make_plan(
        problem,
        graph,
        algorithm="recal",
        mechanism="auto",
        budget=budget,
        activations=T,
        walk=walk,
        steps="tuned",
        key=jax.random.key(0),
        start=0,
        ratio=None,
        variant=None,
        noise=None,
    )


@pytest.fixture(scope="module")
def problem():
    return network(MANY)


def test_a_private_run_of_many_agents_end_to_end(problem):
    result = rd.solve(problem, rd.ring(MANY), budget=BUDGET, activations=2, walk="cyclic", transcript=False)
    assert result.status == "finished"
    assert result.epsilon <= BUDGET.epsilon and result.epsilon == pytest.approx(BUDGET.epsilon, rel=1e-9)
    assert result.messages == result.hops == 2 * MANY
    assert result.trace is not None and np.isfinite(result.trace.objective).all()
    ledger = result.ledger
    assert ledger is not None and len(ledger) == 2 * MANY
    assert (ledger.counts == 2).all()
    assert (ledger.spent() <= ledger.limit).all()
    assert ledger.spent() == pytest.approx(ledger.limit, rel=1e-9)


def test_u_is_the_sum_of_prices_however_many_agents(problem):
    graph = rd.ring(MANY)
    plan = plan_of(problem, graph, 1)
    world = world_of(problem, graph, plan)
    state = begin(plan.algorithm, None, world, plan.steps, np.zeros(problem.dim))
    turns = jax.tree.map(lambda part: part[None], turns_of(plan, len(plan.route)))
    state, _ = advance(plan.algorithm, None, False, world, plan.steps, jax.random.key(0), state, turns)
    u, price = np.asarray(state.baton.u), np.asarray(state.price)
    assert u == pytest.approx(price.sum(axis=0), rel=1e-9, abs=1e-12 * np.abs(price).sum())
    assert (np.abs(price).max(axis=1) > 0).all()  # everybody has acted


@pytest.mark.parametrize("walk", ["cyclic", "random"])
def test_what_a_plan_charges_is_what_its_route_does(problem, walk):
    graph = rd.ring(MANY) if walk == "cyclic" else rd.random_regular(MANY, 4)
    plan = plan_of(problem, graph, 1, walk, BUDGET)
    assert plan.ledger is not None
    assert (plan.route.counts(MANY) == 1).all()
    assert (plan.ledger.counts == 1).all()
    assert len(plan.ledger) == int(plan.route.acts.sum())
    assert plan.tally.messages[-1] == plan.route.messages
    assert plan.tally.rho[-1] == pytest.approx(plan.ledger.rho, rel=1e-12)
    assert graph.has_edges(plan.route.holder, plan.route.receiver).all()


RELAYS = [name for name, algorithm in ALGORITHMS.items() if algorithm.kind == "relay" and algorithm.walks is None]


@pytest.mark.sample(2)
@pytest.mark.parametrize("private", [False, True], ids=["", "private"])
@pytest.mark.parametrize("algorithm", RELAYS)
def test_fetching_ahead_changes_no_bit(monkeypatch, algorithm, private):
    pytest.importorskip("numba")
    if private and "gradient" not in ALGORITHMS[algorithm].mechanisms:
        pytest.skip("no noise on gradients")
    problem, graph = network(12), rd.random_regular(12, 4)
    options = dict(algorithm=algorithm, activations=6, walk="random", budget=BUDGET if private else None, seed=0)
    options |= dict(transcript=False, reference=False, trace=False)
    monkeypatch.setattr(loop, "POINTS", 4)  # stretches of 18 hops: a group, and two left over
    before = rd.solve(problem, graph, **options)
    monkeypatch.setattr(prefetch, "FAR", 0)
    asked = []
    fetch = prefetch._fetch
    monkeypatch.setattr(prefetch, "_fetch", lambda *args: asked.append(1) or fetch(*args))
    np.testing.assert_array_equal(rd.solve(problem, graph, **options).x, before.x)
    assert asked


def test_fetching_ahead_is_for_random_walks_over_much_state(problem):
    assert MANY * problem.dim < prefetch.FAR
    graph = rd.random_regular(MANY, 4)
    walk, ring = plan_of(problem, graph, 1, "random"), plan_of(problem, rd.ring(MANY), 1)
    assert not prefetch.pays(walk, problem.dim) and not prefetch.pays(ring, 10**6)
    assert prefetch.pays(walk, 10**6) == (importlib.util.find_spec("numba") is not None)


def test_fetching_ahead_copies_no_state(problem):
    """The call is given all rows; a copy of them at every hop would cost what it saves, a thousand times over."""
    pytest.importorskip("numba")
    graph = rd.random_regular(MANY, 4)
    plan = plan_of(problem, graph, 1, "random")
    assert prefetch.pays(plan, 10**6)
    world = world_of(problem, graph, plan)
    state = begin(plan.algorithm, None, world, plan.steps, np.zeros(problem.dim))
    turns = jax.tree.map(lambda part: np.resize(part, (2, 2 * prefetch.GROUP + 1)), turns_of(plan, len(plan.route)))

    def copies(scattered):
        args = (plan.algorithm, None, False, world, plan.steps, jax.random.key(0), state, turns, False, 1, scattered)
        program = advance.lower(*args).compile().as_text()
        assert (prefetch.TARGET in program) == scattered
        return len(re.findall(rf"f64\[{MANY},{problem.dim}\]\S* copy\(", program))

    assert copies(True) == copies(False)


def graph_bytes(graph):
    return sum(part.nbytes for part in (graph.edges, graph.degree, graph.first, graph.flat))


@pytest.mark.parametrize("make", [rd.ring, rd.random_regular, lambda n: rd.watts_strogatz(n, 4, 0.1)])
def test_memory_of_a_graph_is_linear_in_its_agents(make):
    small, large = make(1_000), make(100_000)
    assert graph_bytes(large) <= 100.5 * graph_bytes(small)
    assert "mixing" not in {
        name for name, part in network_of(large, ("neighbours",))._asdict().items() if part is not None
    }


@pytest.mark.parametrize("degree", [3, 4, 7])
def test_large_regular_graphs_are_regular_and_repeat(degree):
    n = MANY_AGENTS + 2
    graph = rd.random_regular(n, degree, seed=3)
    assert (graph.degree == degree).all()
    assert graph == rd.random_regular(n, degree, seed=3)
    assert graph != rd.random_regular(n, degree, seed=4)


def test_large_small_worlds_keep_most_of_their_lattice():
    n = MANY_AGENTS + 1
    graph = rd.watts_strogatz(n, 6, 0.2, seed=1)
    assert len(graph.edges) == 3 * n
    gap = np.abs(graph.edges[:, 0] - graph.edges[:, 1])
    near = np.minimum(gap, n - gap) <= 3
    assert near.mean() == pytest.approx(0.8, abs=0.01)
    assert rd.watts_strogatz(n, 6, 0.0) == rd.from_edges(
        np.concatenate([np.stack([np.arange(n), (np.arange(n) + k) % n], axis=1) for k in (1, 2, 3)])
    )


def test_large_random_graphs_need_no_networkx():
    code = (
        "import sys, relaydp as rd; rd.random_regular(30000); rd.watts_strogatz(30000); rd.ring(30000);"
        "print('networkx' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


@pytest.mark.parametrize("graph", [rd.star(9), rd.erdos_renyi(40, 0.2), rd.grid(4, 5), rd.watts_strogatz(30)], ids=str)
def test_each_slot_knows_its_way_back(graph):
    parts = network_of(graph, ("neighbours", "real", "back"))
    for i in range(graph.agents):
        assert parts.neighbours[i][parts.real[i]].tolist() == graph.neighbours(i).tolist()
        for slot in np.flatnonzero(parts.real[i]):
            j = parts.neighbours[i, slot]
            assert parts.neighbours[j, parts.back[i, slot]] == i
    assert not parts.back[~parts.real].any()


def test_a_walk_that_sees_little_of_a_network_is_not_filled_up_to_its_size():
    problem, graph = network(5_000), rd.ring(5_000)
    plan = plan_of(problem, graph, 10, "random")
    assert len(plan.route) < 2_000
    assert 25 * stride_for(plan) <= 4 * len(plan.route) + 25
    result = rd.solve(problem, graph, activations=10, walk="random", reference=False)
    assert result.status == "finished" and result.trace is not None
    assert len(result.trace.hop) == result.hops + 1  # as fine as it gets


def test_routes_begin_alike_whatever_is_counted_on_the_way():
    """Blocks of a drawn route count what was done before: many blocks, one plan."""
    graph = rd.random_regular(600, 3)
    way = route(graph, "random", 80, key=jax.random.key(1), rule="plan")
    assert len(way) > 65536  # several blocks
    assert (way.counts(600) == 80).all()
    assert way.acts[-1] and way.activation[-1] == 79


# -- the ledger's short cuts


def ledgers():
    draw = np.random.default_rng(0)
    plain = Ledger(30, 10.0)
    who = draw.integers(30, size=200)
    plain.charge_many(who, np.arange(200), 1.0, draw.choice([3.0, 4.0, 5.0], size=200))
    mixed = Ledger(30, 10.0)
    mixed.charge_many(who, np.arange(200), 1.0, 5.0)
    mixed.charge(7, 200, 1.0, 5.0, kind="pure", epsilon=0.1)
    return {"gaussian": plain, "mixed": mixed}


@pytest.mark.parametrize("name", ["gaussian", "mixed"])
def test_all_agents_at_once_are_worth_what_each_is(name):
    ledger = ledgers()[name]
    worth = ledger.by_agent(1e-5)
    assert [epsilon for epsilon, _ in worth] == [ledger.epsilon_of(agent, 1e-5) for agent in range(30)]
    assert max(worth)[0] == ledger.epsilon(1e-5)


@pytest.mark.parametrize("name", ["gaussian", "mixed"])
def test_the_first_overspender_is_found(name):
    ledger = ledgers()[name]
    worth = np.array([epsilon for epsilon, _ in ledger.by_agent(1e-5)])
    assert ledger.overspender(worth, 1e-5) is None
    assert ledger.overspender(10.0, 1e-5) is None
    for agent in (0, 13, 29):
        allowed = worth.copy()
        allowed[agent] *= 0.99
        assert ledger.overspender(allowed, 1e-5) == (agent, worth[agent])
    assert ledger.overspender(0.0, 1e-5) == (0, worth[0])


def test_limits_of_their_own_reach_every_agent(problem):
    limits = {3: 0.25, 7: 0.5, MANY - 1: 0.25}
    result = rd.solve(
        problem, rd.ring(MANY), budget=BUDGET, activations=1, walk="cyclic", limits=limits, trace=False, reference=False
    )
    assert result.ledger is not None
    spent = result.ledger.spent()
    for agent, epsilon in [*limits.items(), (0, 1.0)]:
        assert epsilon_exact(spent[agent], BUDGET.delta) == pytest.approx(epsilon, rel=1e-8)
    with pytest.raises(PrivacyError, match="agents are numbered"):
        plan = {MANY: 0.5}
        rd.solve(problem, rd.ring(MANY), budget=BUDGET, activations=1, walk="cyclic", limits=plan)


# -- traces and start-up


@pytest.mark.parametrize("rows", [0, 1, 31, 32, 33, 65])
def test_blocks_measure_every_row_once(rows):
    sizes = []

    def measure(part):
        sizes.append(len(part))
        return part.sum(axis=1)

    xs = np.random.default_rng(0).integers(100, size=(rows, 3)).astype(float)  # no sum of these is rounded
    assert np.array_equal(in_blocks(measure, xs, 32), xs.sum(axis=1))
    assert set(sizes) <= {32}


SOLVE = """
import relaydp as rd, jax
problem = rd.logistic(rd.load_data("breast-cancer"), agents=2, l2=1e-2)
result = rd.solve(problem, rd.ring(2), activations=3, steps="paper", reference=False, progress=False)
print(result.x.tobytes().hex(), jax.config.jax_compilation_cache_dir)
"""


def solve_apart(environment):
    import os

    kept = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("JAX_COMPILATION", "JAX_PERSISTENT", "RELAYDP_COMP", "XLA_FLAGS"))
    }
    done = subprocess.run([sys.executable, "-c", SOLVE], capture_output=True, text=True, env={**kept, **environment})
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.split()


@pytest.mark.shipped
def test_kept_programs_change_no_bit_and_may_be_refused(tmp_path):
    model, folder = solve_apart({"RELAYDP_COMPILED": "0"})
    assert folder == "None"
    for _ in range(2):  # compiled, then read back
        assert solve_apart({"RELAYDP_COMPILED": str(tmp_path / "kept")})[0] == model
    held = list((tmp_path / "kept").rglob("*-cache"))
    assert held
    for file in held:
        file.write_bytes(file.read_bytes()[:100])  # as a crash would leave it
    assert solve_apart({"RELAYDP_COMPILED": str(tmp_path / "kept")})[0] == model
    (tmp_path / "file").write_text("no folder")
    assert solve_apart({"RELAYDP_COMPILED": str(tmp_path / "file")}) == [model, "None"]
    shared = next((tmp_path / "kept").iterdir())
    shared.chmod(0o777)  # others could put programs there
    assert solve_apart({"RELAYDP_COMPILED": str(tmp_path / "kept")}) == [model, "None"]
