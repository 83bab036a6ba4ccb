"""Laws of the oracle: it answers once a turn, to whoever acts, with noise that no step sees and no two turns share."""

import math
import threading
import time
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import relaydp as rd
from relaydp.algorithm import ALGORITHMS, Algorithm, Menu
from relaydp.auditing.noise import clipped_means
from relaydp.engine.loop import BLOCKS, POINTS, turns_of, world_of
from relaydp.engine.solving_alone import _choose
from relaydp.oracle.oracle import Once
from relaydp.oracle.randomness import ALONE, NOISE, WALK, key_for
from relaydp.planning import planner
from relaydp.planning.accuracy import rule_alone
from relaydp.planning.planner import make_plan
from relaydp.planning.tuning import Choice, choose_steps
from relaydp.privacy import gaussian_scale

BUDGET = rd.Budget(4.0, 1e-4)
QUICK = {"budget": BUDGET, "activations": 3, "reference": False, "trace": False}
KINDS = {"private": None, "simulation": 0}  # the two kinds of run, by their seed


def toy(agents: int = 4, records: int = 11, features: int = 5, **options: Any) -> rd.Problem:
    draw = np.random.default_rng(0)
    X = draw.normal(size=(agents * records, features))
    return rd.logistic(rd.Records(X, np.sign(X[:, 0]), classes=(-1, 1)), agents, l2=1e-2, record_norm=2.0, **options)


@pytest.fixture(scope="module")
def problem() -> rd.Problem:
    return toy()


# -- algorithms from outside


class Steps(NamedTuple):
    stepsize: Any


class Payload(NamedTuple):
    x: Any


class State(NamedTuple):
    x: Any


def everyone(setting, steps, x0):
    return State(jnp.broadcast_to(x0, (setting.agents, x0.size)))


def paper(facts, graph):
    return Steps(0.1)


@pytest.fixture(autouse=True)
def straight_to_the_records(monkeypatch):
    """Planning simulates every algorithm, and refuses there what is refused below: here it is the records' turn."""

    def choose(method, asked, facts, graph, walk, activations, noise, start):
        if method.name != "outside":
            return choose_steps(method, asked, facts, graph, walk, activations, noise, start)
        return Choice(Steps(jnp.asarray(0.1)), activations or 50, outlook=None)

    monkeypatch.setattr(planner, "choose_steps", choose)


MENU = Menu(Steps, paper, lambda *public: [paper(*public)], check=lambda *_: None)


def outside(step, init=everyone, kind="rounds", answer=lambda state: state.x[0]) -> Algorithm:
    return Algorithm(
        name="outside", title="From outside", kind=kind, init=init, step=step, answer=answer, menu=MENU,
        mechanisms=("gradient",), links="neighbours" if kind == "rounds" else "hop",
    )  # fmt: skip


KAPPA = 3.0
RELAY = {"kind": "relay", "init": lambda setting, steps, x0: State(x0), "answer": lambda state: state.x}


def exactly(step, declared: float = KAPPA, **how) -> Algorithm:
    """The same for exact minimisers, with what it says their kappa is."""

    def curvature(steps, graph, activations):
        return np.full((activations, graph.agents), declared)

    return replace(outside(step, **how), mechanisms=("objective",), data="argmin", curvature=curvature)


@pytest.fixture
def solved(monkeypatch, problem):
    """Run an algorithm that somebody registered."""

    def solve(algorithm, seed=None, data=problem, **options):
        monkeypatch.setitem(ALGORITHMS, "outside", algorithm)
        return rd.solve(data, rd.ring(data.agents), "outside", seed=seed, **QUICK | options)

    return solve


def told(x):
    return State(x), Payload(x)


def twice(setting, steps, state, turn):
    one = setting.gradients(state.x)
    return told(state.x - one + setting.gradients(state.x + 1.0))


def in_a_loop(setting, steps, state, turn):
    return told(jax.lax.fori_loop(0, 2, lambda k, x: x - 0.1 * setting.gradients(x), state.x))


def in_a_while(setting, steps, state, turn):
    def body(carry):
        return carry[0] + 1, carry[1] - setting.gradients(carry[1])

    return told(jax.lax.while_loop(lambda carry: carry[0] < 2, body, (0, state.x))[1])


def in_a_scan(setting, steps, state, turn):
    return told(jax.lax.scan(lambda x, _: (x - setting.gradients(x), None), state.x, None, length=2)[0])


def in_a_map(setting, steps, state, turn):
    return told(jax.lax.map(lambda d: setting.gradients(state.x + d), jnp.arange(2.0))[0])


def in_vmap(setting, steps, state, turn):
    return told(jax.vmap(lambda d: setting.gradients(state.x + d))(jnp.arange(2.0))[0])


def in_jit(setting, steps, state, turn):
    ask = jax.jit(lambda x: setting.gradients(x))
    return told(ask(state.x) - ask(state.x + 1.0))


def in_a_derivative(setting, steps, state, turn):
    return told(jax.jvp(setting.gradients, (state.x,), (jnp.ones_like(state.x),))[1])


def in_when_inside_a_loop(setting, steps, state, turn):
    def body(k, x):
        return setting.when(turn.acts[0], lambda: x - 0.1 * setting.gradients(x), lambda: x)

    return told(jax.lax.fori_loop(0, 2, body, state.x))


def in_a_loop_inside_when(setting, steps, state, turn):
    def act():
        return jax.lax.fori_loop(0, 2, lambda k, x: x - 0.1 * setting.gradients(x), state.x)

    return told(setting.when(turn.acts[0], act, lambda: state.x))


def in_both_branches(setting, steps, state, turn):
    return told(setting.when(turn.acts[0], lambda: setting.gradients(state.x), lambda: setting.gradients(-state.x)))


def through_two_oracles(setting, steps, state, turn):
    return told(state.x + setting.gradients(state.x) + setting.gradient(state.x[0])[None, :])


EVIL = [
    twice, in_a_loop, in_a_while, in_a_scan, in_a_map, in_vmap, in_jit, in_a_derivative, in_when_inside_a_loop,
    in_a_loop_inside_when, in_both_branches, through_two_oracles,
]  # fmt: skip


@pytest.mark.parametrize("seed", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("step", EVIL, ids=lambda step: step.__name__)
def test_whoever_asks_more_than_once_a_turn_is_refused(solved, step, seed):
    with pytest.raises(rd.errors.PrivacyError, match="one release per agent and activation is charged"):
        solved(outside(step), seed)


@pytest.mark.parametrize("seed", KINDS.values(), ids=KINDS.keys())
def test_init_may_not_ask(solved, seed):
    def init(setting, steps, x0):
        return State(setting.gradients(jnp.broadcast_to(x0, (setting.agents, x0.size))))

    with pytest.raises(rd.errors.PrivacyError, match="init asked the records"):
        solved(outside(lambda setting, steps, state, turn: told(state.x), init), seed)


def test_the_exact_oracle_is_shut_under_noise_on_gradients(solved):
    def step(setting, steps, state, turn):
        return told(setting.argmins(state.x, jnp.ones(setting.agents), state.x, False))

    with pytest.raises(rd.errors.PrivacyError, match="exact oracle is closed"):
        solved(outside(step))


@pytest.mark.parametrize("oracle", ["gradient", "gradients"])
def test_the_gradient_oracles_are_shut_under_noise_in_the_objective(solved, oracle):
    """There is no clip and no noise behind them."""

    def step(setting, steps, state, turn):
        if oracle == "gradients":
            return told(setting.gradients(state.x))
        return told(setting.gradient(state.x))

    algorithm = exactly(step, **(RELAY if oracle == "gradient" else {}))
    with pytest.raises(rd.errors.PrivacyError, match="noise is in the objective"):
        solved(algorithm, 0, walk="cyclic")


@pytest.mark.parametrize(("mechanism", "seed"), [("gradient", None), ("gradient", 0), ("objective", 0)])
def test_a_round_may_not_ask_through_the_oracle_of_one_holder(solved, mechanism, seed):
    """A round has noise for every agent. Laid on one agent's answer, copy by copy, for one charge, the mean of
    the copies would have a fraction of it: refused by name, and not by luck with shapes."""

    def step(setting, steps, state, turn):
        x = state.x[0]
        if mechanism == "objective":
            return told(state.x + setting.argmin(x, jnp.asarray(KAPPA), x, False))
        return told(state.x + setting.gradient(x))

    with pytest.raises(rd.errors.PrivacyError, match="one holder"):
        solved((exactly if mechanism == "objective" else outside)(step), seed, toy(agents=5, features=5))


def test_a_relay_may_not_ask_through_the_oracle_of_everybody(solved):
    def step(setting, steps, state, turn):
        return told(setting.gradients(jnp.stack([state.x] * setting.agents))[0])

    with pytest.raises(rd.errors.PrivacyError, match="all agents"):
        solved(outside(step, lambda s, st, x0: State(x0), "relay", lambda state: state.x), walk="cyclic")


@pytest.mark.parametrize("seed", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("shape", [(), (4, 5), (1, 5), (5, 1), (2, 4, 5)], ids=str)
def test_a_relay_asks_at_one_point(solved, shape, seed):
    def step(setting, steps, state, turn):
        return told(state.x + setting.gradient(jnp.zeros(shape)))

    with pytest.raises(rd.errors.PrivacyError, match=r"shape .*; one release is at one point per agent.*\(dim,\)"):
        solved(outside(step, lambda s, st, x0: State(x0), "relay", lambda state: state.x), seed, walk="cyclic")


@pytest.mark.parametrize("seed", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("shape", [(), (5,), (4,), (1, 5), (5, 4), (2, 4, 5)], ids=str)
def test_a_round_asks_at_one_point_an_agent(solved, shape, seed):
    def step(setting, steps, state, turn):
        return told(state.x + setting.gradients(jnp.zeros(shape)))

    with pytest.raises(rd.errors.PrivacyError, match=r"shape .*; one release is at one point per agent.*\(4, dim\)"):
        solved(outside(step), seed)


@pytest.mark.parametrize("relay", [True, False], ids=["relay", "rounds"])
def test_a_private_run_asks_at_points_as_long_as_its_noise(solved, relay):
    def step(setting, steps, state, turn):
        longer = jnp.concatenate([state.x, state.x], axis=-1)
        return told((setting.gradient if relay else setting.gradients)(longer))

    method = outside(step, lambda s, st, x0: State(x0), "relay", lambda state: state.x) if relay else outside(step)
    with pytest.raises(rd.errors.PrivacyError, match=r"shape .*10.*dim the length of x"):
        solved(method, walk="cyclic")


@pytest.mark.parametrize("oracle", ["argmin", "argmins"])
def test_minimisers_are_asked_at_one_point_too(solved, oracle):
    """Noise has the shape of p: one number for all coordinates would be the noise of one."""

    def step(setting, steps, state, turn):
        x = state.x
        ask, kappa = (setting.argmin, jnp.asarray(KAPPA)) if x.ndim == 1 else (setting.argmins, jnp.full(4, KAPPA))
        return told(ask(x[..., 0], kappa, x, False))

    method = exactly(step, **(RELAY if oracle == "argmin" else {}))
    with pytest.raises(rd.errors.PrivacyError, match="one release is at one point per agent"):
        solved(method, 0, walk="cyclic")


def test_of_many_threads_one_is_answered(monkeypatch):
    """Each would be past the first check before any of them is counted."""
    once, answers, together = Once(), [], threading.Barrier(8)

    def slow(self):
        time.sleep(0.05)  # without a lock the others would come here in the meantime; more of it does no harm
        return True

    def ask():
        together.wait()
        try:
            once.ask()
            answers.append("answered")
        except rd.errors.PrivacyError as error:
            answers.append(str(error))

    monkeypatch.setattr(Once, "_here", slow)
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers.count("answered") == 1 and sum("twice in one turn" in answer for answer in answers) == 7


def test_whoever_asks_once_is_answered_also_in_when(solved):
    def plain(setting, steps, state, turn):
        return told(state.x - steps.stepsize * setting.gradients(state.x))

    def branch(setting, steps, state, turn):
        i = turn.holder
        x = setting.when(turn.acts, lambda: state.x - steps.stepsize * setting.gradient(state.x), lambda: state.x)
        del i
        return told(x)

    for algorithm in (outside(plain), outside(branch, lambda s, st, x0: State(x0), "relay", lambda state: state.x)):
        result = solved(algorithm, walk="cyclic")
        assert result.private and np.isfinite(result.x).all() and result.ledger.plf == 3


# -- our own


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_asks_exactly_once_a_turn(name):
    """Traced with a counter at all five oracles. Fewer than once would be charged for nothing; more is refused."""
    method, graph = ALGORITHMS[name], rd.ring(4)
    problem = toy()
    if method.data == "statistics":
        problem = rd.least_squares(problem.data, agents=4, record_norm=1.0, label_bound=1.0)
    sound = "gradient" if "gradient" in method.mechanisms else "objective"
    plan = make_plan(
        problem, graph, algorithm=name, mechanism=sound if sound in method.mechanisms else None,
        budget=rd.Budget(50.0, 1e-4) if sound in method.mechanisms else None, activations=2, walk="cyclic",
        steps="paper", key=jax.random.key(0), start=0, ratio=None, variant=None, noise=None,
    )  # fmt: skip
    world = jax.tree.map(jnp.asarray, world_of(problem, graph, plan))
    turns = jax.tree.map(jnp.asarray, turns_of(plan, len(plan.route)))
    turn = jax.tree.map(lambda part: part[0], turns)._replace(key=jax.random.key(0))
    start = world.oracle(plan.variant)(None)
    state = jax.eval_shape(lambda x0: method.init(start, plan.steps, x0), jnp.zeros(problem.dim))
    asked, names = [], ("gradient", "gradients", "argmin", "argmins", "statistics")

    def step(state, turn):
        setting = world.oracle(plan.variant)(turn)

        def counted(oracle, *question):
            asked.append(oracle)
            return getattr(setting, oracle)(*question)

        oracles = {oracle: partial(counted, oracle) for oracle in names}
        return method.step(setting._replace(**oracles), plan.steps, state, turn._replace(key=None))

    jax.eval_shape(step, state, turn)
    assert len(asked) == 1


@pytest.mark.parametrize("seed", KINDS.values(), ids=KINDS.keys())
def test_a_step_sees_no_noise(solved, seed):
    seen = []

    def step(setting, steps, state, turn):
        seen.append((turn.key, turn.draws))
        return told(state.x - steps.stepsize * setting.gradients(state.x))

    solved(outside(step), seed)
    assert seen and all(noise == (None, None) for noise in seen)


# -- what is answered


def oracles(problem, algorithm, mechanism, draws):
    """For each turn of a plan, the setting; and its turns, in which nobody acts at times."""
    graph = rd.ring(problem.agents)
    plan = make_plan(
        problem, graph, algorithm=algorithm, mechanism=mechanism, budget=rd.Budget(50.0, 1e-4), activations=2,
        walk="cyclic", steps="paper", key=jax.random.key(0), start=0, ratio=None, variant=None, noise=None,
    )  # fmt: skip
    world = jax.tree.map(jnp.asarray, world_of(problem, graph, plan))
    turns = jax.tree.map(jnp.asarray, turns_of(plan, len(plan.route), draws))
    turn = jax.tree.map(lambda part: part[0], turns)
    shape = (*turn.acts.shape, problem.dim)
    if draws:
        turn = turn._replace(draws=jnp.full(shape, 3, jnp.int64))
    else:
        turn = turn._replace(key=jax.random.key(1))
    return world.oracle(plan.variant), turn


@pytest.mark.parametrize("draws", [True, False], ids=["secret", "key"])
def test_where_nobody_acts_the_answer_is_0(problem, draws):
    """Nobody is charged there. In a round this holds agent by agent."""
    y = jnp.ones(problem.dim)
    oracle, turn = oracles(problem, "recal", "gradient", draws)
    assert np.any(oracle(turn).gradient(y)) and not np.any(oracle(turn._replace(acts=jnp.asarray(False))).gradient(y))
    oracle, turn = oracles(problem, "nids", "gradient", draws)
    some = turn._replace(acts=jnp.asarray([True, False, True, False]))
    answer = np.asarray(oracle(some).gradients(jnp.ones((4, problem.dim))))
    assert (answer != 0).all(axis=1).tolist() == [True, False, True, False] and not answer[[1, 3]].any()
    if draws:  # which no objective has
        return
    oracle, turn = oracles(problem, "d-admm", "objective", draws)
    some = turn._replace(acts=jnp.asarray([False, True, False, False]))
    everywhere = jnp.ones((4, problem.dim))
    answer = np.asarray(oracle(some).argmins(everywhere, turn.kappa, everywhere, False))
    assert answer[1].all() and not answer[[0, 2, 3]].any()


def test_a_minimiser_with_less_kappa_than_was_priced_is_no_number(problem):
    """With less curvature a record bends more than is paid for; more is fine, and so is the last bit. Compiled code
    cannot raise. Agent by agent in a round."""
    zeros, everywhere = jnp.zeros(problem.dim), jnp.zeros((4, problem.dim))
    oracle, turn = oracles(problem, "d-admm", "objective", False)
    shares = jnp.asarray([1.0, 0.99, 2.0, 1.0 - 1e-15])
    answer = np.asarray(oracle(turn).argmins(everywhere, shares * turn.kappa, everywhere, False))
    assert np.isfinite(answer).all(axis=1).tolist() == [True, False, True, True] and np.isnan(answer[1]).all()
    oracle, turn = oracles(problem, "walkman", "objective", False)
    for share, fine in ((1.0, True), (1.5, True), (0.999, False), (0.0, False), (-1.0, False), (math.nan, False)):
        answer = np.asarray(oracle(turn).argmin(zeros, share * turn.kappa, zeros, False))
        assert np.isfinite(answer).all() == fine and (fine or np.isnan(answer).all()), share


def test_secret_noise_goes_into_no_objective(problem):
    """Only simulations have noise there: a turn without their key is refused."""
    oracle, turn = oracles(problem, "walkman", "objective", False)
    zeros = jnp.zeros(problem.dim)
    hidden = turn._replace(key=None, draws=jnp.full(problem.dim, 3, jnp.int64))
    with pytest.raises(rd.errors.PrivacyError, match="key=None for noise in the objective"):
        oracle(hidden).argmin(zeros, turn.kappa, zeros, False)


def asks_with(kappa):
    def step(setting, steps, state, turn):
        return told(setting.argmins(jnp.zeros_like(state.x), jnp.full(setting.agents, kappa), state.x, False))

    return step


def test_a_run_that_asks_with_less_kappa_than_it_declared_has_no_model(solved):
    fine = solved(exactly(asks_with(KAPPA)), 0)
    assert fine.simulation and fine.status == "finished" and np.isfinite(fine.x).all()
    lying = solved(exactly(asks_with(1e-5)), 0)
    assert lying.status == "diverged" and np.isnan(lying.x).all()
    assert np.isnan(lying.transcript.payload["x"]).all(), "something of a minimiser that was not paid for was sent"


@pytest.mark.parametrize("declared", [math.inf, math.nan, 0.0, -1.0])
def test_a_curvature_that_is_no_positive_number_is_refused(solved, declared):
    with pytest.raises(rd.errors.PrivacyError, match="needed .* finite numbers > 0"):
        solved(exactly(asks_with(KAPPA), declared), 0)


def test_an_exact_algorithm_from_outside_has_no_private_runs(solved):
    """It says nothing of what to use instead: the error does."""
    with pytest.raises(rd.errors.PrivacyError, match="outside has a budget.* no seed.*seed=.*'recal'"):
        solved(exactly(asks_with(KAPPA)))


def released(solved, seed, **options):
    """Releases of agents whose records are all 0: nothing but noise, in units of its scale, (rounds, agents, dim)."""

    def step(setting, steps, state, turn):
        return told(setting.gradients(jnp.zeros_like(state.x)))

    data = rd.Records(np.zeros((12, 40)), np.tile([1.0, -1.0], 6), classes=(-1, 1))
    nothing = rd.logistic(data, agents=3, l2=1e-2, record_norm=1.0)
    result = solved(outside(step), seed, nothing, activations=30, **options)
    sent = result.transcript.payload["x"].reshape(30, 3, 2, 40)[:, :, 0]  # to both neighbours the same
    scales = np.array([[event.scale for event in result.ledger.events(i)] for i in range(3)]).T
    return result, sent / scales[:, :, None]


@pytest.mark.parametrize("seed", KINDS.values(), ids=KINDS.keys())
def test_every_release_has_the_noise_it_is_charged_for_and_noise_of_its_own(solved, seed):
    result, z = released(solved, seed)
    assert result.private == (seed is None)
    vectors = z.reshape(90, 40)
    # secret noise may not fail by chance: of 3600 draws 0.08 is seven deviations, and of 40 so are 0.35 and 2
    assert abs(z.std() - 1.0) < 0.08 and (0.35 < vectors.std(axis=1)).all() and (vectors.std(axis=1) < 2.0).all()
    between = np.abs(np.corrcoef(vectors) - np.eye(90)).max()
    assert between < 0.9, "two turns, or two agents, with one noise"


@pytest.mark.parametrize("seed", KINDS.values(), ids=KINDS.keys())
def test_a_long_relay_has_the_noise_it_is_charged_for_to_its_last_chunk(solved, seed):
    """A run is made chunk by chunk, and a chunk in stretches: enough of both, with a scale of its own at every hop."""
    agents, activations, dim = 3, 150, 40
    stride = -(-agents * activations // POINTS)
    chunk = BLOCKS * stride
    assert stride >= 2 and agents * activations >= 6 * chunk

    def step(setting, steps, state, turn):
        return told(setting.when(turn.acts, lambda: setting.gradient(jnp.zeros(dim)), lambda: jnp.full(dim, jnp.nan)))

    relay = outside(step, lambda s, st, x0: State(x0), "relay", lambda state: state.x)
    data = rd.Records(np.zeros((12, dim)), np.tile([1.0, -1.0], 6), classes=(-1, 1))
    nothing = rd.logistic(data, agents, l2=1e-2, record_norm=1.0)
    result = solved(relay, seed, nothing, activations=activations, walk="cyclic", ratio=1.01)
    events = sorted((event for i in range(agents) for event in result.ledger.events(i)), key=lambda event: event.hop)
    z = result.transcript.payload["x"] / np.array([event.scale for event in events])[:, None]
    assert result.private == (seed is None) and z.shape == (agents * activations, dim)
    for c in range(0, len(z), chunk):
        assert abs(z[c : c + chunk].std() - 1.0) < 0.09, f"from hop {c} on"
    each = z.std(axis=1)
    assert (0.4 < each).all() and (each < 1.9).all()
    assert np.abs(np.corrcoef(z) - np.eye(len(z))).max() < 0.9, "two turns with one noise"


@pytest.mark.parametrize("name", ["recal", "nids"])
def test_secret_turns_have_the_scales_of_the_lattice(problem, name):
    """A hair more than planned: without it the lattice's rounding is not paid for. And 0 in the turns that fill up."""
    plan = make_plan(
        problem, rd.ring(4), algorithm=name, mechanism="gradient", budget=BUDGET, activations=5, walk="random",
        steps="paper", key=jax.random.key(0), start=0, ratio=1.1, variant=None, noise=None,
    )  # fmt: skip
    way, lattice, n = plan.route, plan.lattice_scales(), len(plan.route)
    assert (lattice > plan.scales).all()
    acts = np.asarray(way.acts) if name == "nids" else np.asarray(way.acts)[:, None] & (way.holder[:, None] == range(4))
    expected, count = np.zeros((n, 4)), np.zeros(4, int)
    for hop, i in np.argwhere(acts):
        expected[hop, i] = lattice[count[i], i]
        count[i] += 1
    if name == "recal":
        expected = expected.sum(axis=1)
    found = turns_of(plan, n + 7, secret=True).scale
    assert np.array_equal(found[:n], expected) and not found[n:].any()
    assert np.array_equal(turns_of(plan, n).scale, plan.hop_scales())


def test_secret_noise_of_two_runs_differs_even_with_one_walk(solved, monkeypatch):
    """The walk's seed is public: the noise must not follow from it."""
    import secrets

    monkeypatch.setattr(secrets, "randbits", lambda bits: 7)
    (one, a), (two, b) = released(solved, None), released(solved, None)
    assert one.config["solve"]["walk_seed"] == two.config["solve"]["walk_seed"] == 7
    assert not np.isclose(a, b, rtol=1e-12, atol=0).any() and abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.2


def test_a_seed_repeats_a_simulation_and_each_purpose_has_a_key_of_its_own(solved):
    (_, a), (_, b), (_, c) = (released(solved, seed) for seed in (5, 5, 6))
    assert (a == b).all() and (a != c).any()
    keys = [jax.random.key_data(key_for(0, purpose)).tolist() for purpose in (WALK, NOISE, ALONE)]
    assert len({tuple(key) for key in keys}) == 3


# -- training alone


@pytest.mark.parametrize("objective", ["loss", "accuracy"])
@pytest.mark.parametrize("seed", KINDS.values(), ids=KINDS.keys())
def test_alone_an_agent_releases_a_clipped_mean_with_the_noise_that_is_charged(seed, objective):
    """One step from 0 shows the release: x = -t (g + noise). Every record's gradient is beyond the clip, which is the
    user's or the rule's."""
    agents, features = 40, 30
    problem = toy(agents, 3, features, clip=0.01 if objective == "loss" else None)
    alone = rd.solve_alone(problem, BUDGET, activations=1, seed=seed, objective=objective)
    facts = problem.public_facts()
    stepsize, clip = _choose(facts, BUDGET.rho, 1, None)[0] / float(facts.smoothness.max()), 0.01
    if objective == "accuracy":
        rules = rule_alone(facts, BUDGET.rho, 1)
        stepsize, clip = float(rules[0].steps.stepsize), rules[0].facts.clip
        assert len({float(rule.steps.stepsize) for rule in rules}) == 1 and clip < 0.5 * problem.gradient_bound()
    zeros = np.zeros((agents, features))
    means = clipped_means(problem, np.arange(agents), zeros, clip)
    scale = float(gaussian_scale(2.0 * clip / 3, BUDGET.rho))
    z = (-alone.x / stepsize - means) / scale
    assert abs(z.std() - 1.0) < 0.13 and abs(z.mean()) < 6 / math.sqrt(z.size)  # six deviations of 1200 draws
    assert abs((z * means).sum() / np.linalg.norm(means)) < 6.0, "the records' part is not the clipped mean"
    events = alone.ledger.events(0)
    assert len(events) == 1 and events[0].scale == pytest.approx(scale, rel=1e-6)
