"""What the messages give away: every inference against what the oracle really gave, for every algorithm."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import relaydp as rd
from relaydp.algorithm import ALGORITHMS
from relaydp.attack import INFERENCES, View, infer, relative_errors
from relaydp.attack.inference import unpack
from relaydp.engine.loop import Outcome, turns_of, world_of
from relaydp.engine.solver import _transcript
from relaydp.planning.planner import make_plan

SIZES = [7, 5, 9, 6]
RING = rd.ring(4)
BUDGET = rd.Budget(2.0, 1e-4)
SOUND = sorted(n for n, method in ALGORITHMS.items() if "gradient" in method.mechanisms and method.data == "gradient")
# who sends in the very round that asks: everybody else's last gradient stays unseen
SAME_ROUND = ("nids", "huang-star", "tripd-dist", "r-admm", "mr-admm")


def walk_of(name):
    """A random walk where the algorithm can follow one."""
    return "random" if ALGORITHMS[name].walks is None else "tour"


def make_problem(loss="least_squares", l2=0.3, **options):
    draw = np.random.default_rng(0)
    X = draw.normal(size=(sum(SIZES), 3))
    y = X @ draw.normal(size=3) + 0.3 * draw.normal(size=len(X))
    data = rd.Records(X, np.sign(y) if loss == "logistic" else y)
    return getattr(rd, loss)(data, agents=SIZES, l2=l2, record_norm=3.0, **options)


def run(problem, name="recal", **options):
    """The quickest of runs: nothing tuned, nothing measured."""
    return rd.solve(problem, RING, name, **{"steps": "paper", "trace": False, "reference": False, **options})


def loss_gradient(problem, clip=None):
    """The truth, for the scorer only."""
    bound = None if clip is None else jnp.asarray(clip)
    agent_records = problem.working_records
    gradient = jax.jit(lambda i, y: agent_records.gradient(i, y, bound))
    return lambda agent, point: gradient(jnp.int32(agent), jnp.asarray(point))


def spied(problem, graph, algorithm, seed=0, x0=None, scale=None, **options):
    """Run with a spy at the oracle, who notes every answer: (transcript and facts, [(agent, point, loss part)]).

    With a `scale` gradients are clipped to 1 and get noise of that scale, as under the sound mechanism but unplanned.
    """
    asked = {
        "mechanism": None, "budget": None, "activations": 4, "walk": "cyclic", "steps": "paper", "start": 0,
        "ratio": None, "variant": None, "noise": None, **options,
    }  # fmt: skip
    walk_key, noise_key = jax.random.split(jax.random.key(seed))
    plan = make_plan(problem, graph, algorithm=algorithm, key=walk_key, **asked)
    if scale is not None:
        facts, scales = replace(plan.facts, clip=1.0), np.full_like(plan.scales, scale)
        plan = replace(plan, mechanism="gradient", facts=facts, scales=scales)
    world = jax.tree.map(jnp.asarray, world_of(problem, graph, plan))
    oracle = world.oracle(plan.variant, batched=True)
    start = jnp.zeros(problem.dim) if x0 is None else jnp.asarray(x0)

    def hop(state, turn):
        turn = turn._replace(key=jax.random.fold_in(noise_key, turn.hop))
        setting, notes = oracle(turn), []

        def gradient(y):
            notes.append((y, setting.gradient(y)))
            return notes[0][1]

        def gradients(ys):
            notes.append((ys, setting.gradients(ys)))
            return notes[0][1]

        spying = setting._replace(gradient=gradient, gradients=gradients)
        state, payload = plan.algorithm.step(spying, plan.steps, state, turn)
        (heard,) = notes  # an algorithm asks once
        return state, (payload, heard)

    turns = jax.tree.map(jnp.asarray, turns_of(plan, len(plan.route)))
    state = plan.algorithm.init(oracle(None), plan.steps, start)
    _, (sent, (points, answers)) = jax.jit(lambda state: jax.lax.scan(hop, state, turns))(state)
    sent = jax.tree.map(np.asarray, sent)
    outcome = Outcome(np.zeros(problem.dim), len(plan.route), np.empty(0), np.empty((0, 0)), sent, "finished")
    view = View(
        transcript=_transcript(graph, plan, outcome),
        algorithm=algorithm,
        steps=plan.steps,
        graph=graph,
        x0=np.asarray(start),
        l2=problem.l2,
        regulariser=problem.regulariser,
        intercepts=int(problem.intercept),
        noisy=plan.mechanism == "published" and plan.variant != "objective",
        walk=plan.walk,
    )
    ridge = problem.l2 * np.asarray(points)
    if problem.intercept:
        ridge[..., -1] = 0.0
    points, losses, acts = np.asarray(points), np.asarray(answers) - ridge, plan.route.acts
    if acts.ndim == 1:
        return view, [(int(plan.route.holder[k]), points[k], losses[k]) for k in np.flatnonzero(acts)]
    return view, [(int(i), points[k, i], losses[k, i]) for k, i in zip(*np.nonzero(acts), strict=True)]


def compare(found, notes, tolerance=1e-8):
    """Each inferred row, on its exact coordinates, is what the oracle gave that agent at that activation."""
    heard = {}
    for agent, point, answer in notes:
        heard.setdefault(agent, []).append((point, answer))
    for k in range(len(found)):
        point, answer = heard[int(found.agent[k])][found.activation[k] - 1]
        size = np.linalg.norm(answer)
        assert np.abs(found.gradient[k] - answer)[found.exact[k]].max(initial=0.0) <= tolerance * size
        seen = found.point_exact[k]
        assert np.abs(found.point[k] - point)[seen].max(initial=0.0) <= tolerance * (1 + np.linalg.norm(point))
    return heard


def test_every_algorithm_has_an_inference():
    assert INFERENCES.keys() == ALGORITHMS.keys()


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", sorted(INFERENCES))
def test_without_noise_every_gradient_that_reached_the_wire_is_recovered(name):
    """Nothing but the transcript and public facts; the records go to the scorer. For an argmin: its stationarity."""
    problem = make_problem()
    x0 = [0.5, -1.0, 0.2]
    result = run(problem, name, activations=5, walk=walk_of(name), x0=x0)
    found = infer(View.of(result))
    assert found.exact.all()
    assert (relative_errors(found, loss_gradient(problem)) < 1e-8).all()
    asked = result.hops * (1 if ALGORITHMS[name].kind == "relay" else len(SIZES))
    unseen = 0 if ALGORITHMS[name].kind == "relay" or name in SAME_ROUND else len(SIZES)
    assert len(found) == asked - unseen


@pytest.mark.parametrize("name", ["d-admm", "walkman"])
def test_an_argmin_found_by_iteration_gives_its_gradient_away_too(name):
    problem = make_problem("logistic")
    result = run(problem, name, activations=5, walk="tour")
    errors = relative_errors(infer(View.of(result)), loss_gradient(problem))
    assert len(errors) >= 4 * len(SIZES) and (errors < 1e-8).all()


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", SOUND)
def test_under_the_sound_mechanism_what_is_recovered_is_the_noisy_gradient_and_no_more(name):
    """The inferred gradient is the oracle's noisy answer to 1e-8; from the records' own it is as far as the noise."""
    problem = make_problem(clip=1.0)
    view, notes = spied(problem, rd.path(4), name, scale=0.5, walk=walk_of(name), activations=8)
    found = infer(view)
    assert found.exact.all() and len(found) >= 12
    compare(found, notes)
    clean = loss_gradient(problem, clip=1.0)
    residual = [found.gradient[k] - clean(i, found.point[k]) for k, i in enumerate(found.agent)]
    assert 0.7 < np.std(residual) / 0.5 < 1.3


def test_noise_in_the_objective_is_read_with_the_gradient_at_the_minimiser():
    """What stationarity gives is grad f_i(x+) + e; the length of e is Gamma(q, s), its mean q s."""
    problem = make_problem("logistic")
    result = run(problem, "d-admm", budget=rd.Budget(20.0, 1e-4), activations=9, seed=0)
    found = infer(View.of(result))
    clean = loss_gradient(problem)
    scale = {(r.agent, r.activation): r.scale for r in result.ledger}
    lengths = [
        np.linalg.norm(found.gradient[k] - clean(i, found.point[k])) / scale[int(i), int(found.activation[k])]
        for k, i in enumerate(found.agent)
    ]
    assert len(lengths) == 8 * len(SIZES) and 2.0 < np.mean(lengths) < 4.0  # 3, give or take 0.3


REGULARISERS = {
    "l1": rd.prox.l1(0.2),
    "elastic net": rd.prox.elastic_net(0.05, 0.1),
    "group lasso": rd.prox.group_lasso(0.08, [0, 0, 1]),
    "box": rd.prox.box(-0.4, 0.4),
    "l2 ball": rd.prox.l2_ball(0.5),
}
BEHIND_A_PROX = ("dgd", "pg-extra", "pg-admm", "rw-admm-linearised", "tripd-dist")  # ic-admm and huang-ring: as pg-admm


KINKS = [("recal", r) for r in REGULARISERS] + [(name, "l1") for name in BEHIND_A_PROX]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("name", "r"), KINKS)
def test_a_nonsmooth_r_hides_the_coordinates_at_its_kinks_and_no_other(name, r):
    problem = make_problem(regulariser=REGULARISERS[r], clip=1.0)
    options = {"mechanism": "published", "noise": 0.02, "variant": "carried"} if name == "recal" else {}
    view, notes = spied(problem, RING, name, x0=[0.1, 0.0, -0.1], activations=6, **options)
    found = infer(view)
    assert 0 < found.exact.mean() < 1
    compare(found, notes)
    if name != "recal" and ALGORITHMS[name].links == "neighbours":  # a copy that is not 0 hides nothing
        copies = unpack(view)[1]["x"][1:].reshape(-1, problem.dim)
        assert np.array_equal(found.exact, np.asarray(copies) != 0)


def test_relay_gradients_kinks_hide_the_gradient_of_the_laps_last_agent_alone():
    """Everybody else's is a difference of two S, exact behind any r; on a tour from the middle the last is another."""
    problem = make_problem(regulariser=rd.prox.l1(0.6))
    for graph, walk, start, last in ((RING, "cyclic", 0, 3), (rd.path(4), "tour", 1, 0), (rd.star(4), "tour", 2, 1)):
        view, notes = spied(problem, graph, "relay-gradient", activations=6, walk=walk, start=start, x0=[0.1, 0, -0.1])
        found = infer(view)
        assert len(found) == 6 * len(SIZES)
        compare(found, notes)
        closing = found.agent == last
        models = unpack(view)[1]["x"][np.flatnonzero((np.asarray(view.transcript.payload["total"]) == 0).all(axis=1))]
        assert found.exact[~closing].all() and found.point_exact.all()
        assert 0 < found.exact[closing].mean() < 1
        assert {tuple(row) for row in np.asarray(models) != 0} == {tuple(row) for row in found.exact[closing]}


def test_a_prox_that_is_not_in_the_way_hides_nothing():
    problem = make_problem(l1=0.2)
    for name in ("nids", "walkman-gradient", "huang-star", "afbs"):
        view, notes = spied(problem, RING, name)
        found = infer(view)
        assert found.exact.all() and len(found) > 0
        compare(found, notes)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("variant", "scale"), [("memoryless", 1.0), ("replace", 1.0), ("carried", 0.0), ("carried", 1e3)]
)
def test_noise_on_u_cancels_out_of_what_x_tells(variant, scale):
    """F1: whatever the noise, every activation that is followed by another gives its exact gradient."""
    problem = make_problem(clip=1.0)
    options = {"mechanism": "published", "noise": scale, "variant": variant, "walk": "random", "activations": 9}
    view, notes = spied(problem, RING, "recal", **options)
    found = infer(view)
    again = found.read  # every activation but each agent's last
    assert (found.exact.all(axis=1) == again).all() and again.sum() == len(notes) - len(SIZES)
    compare(found, notes, tolerance=1e-8 * max(1.0, scale))
    errors = relative_errors(found, loss_gradient(problem))
    assert (errors[again] < 1e-8 * max(1.0, scale)).all() and np.isnan(errors[~again]).all()


def test_both_channels_agree_where_there_is_no_noise_and_u_fails_where_there_is():
    problem = make_problem(clip=1.0)
    quiet = View.of(run(problem, activations=6, walk="cyclic"))
    by_u, by_x = infer(quiet, "u"), infer(quiet, "x")
    again = by_x.exact.all(axis=1)
    assert np.allclose(by_u.gradient[again], by_x.gradient[again], rtol=1e-8, atol=1e-10)
    assert np.allclose(by_u.point, by_x.point, rtol=1e-8, atol=1e-10)
    assert np.allclose(by_u.price, by_x.price, rtol=1e-8, atol=1e-10)
    noisy = run(problem, mechanism="published", noise=1.0, activations=6, walk="cyclic")
    assert not infer(View.of(noisy), "u").exact.any()


def test_who_only_relays_is_told_from_the_baton():
    """Under the plan a star's hub is visited far more often than it acts; its relays are not taken for gradients."""
    problem = make_problem(clip=1.0)
    view, notes = spied(problem, rd.star(4), "recal", mechanism="gradient", budget=BUDGET, walk="random")
    found = infer(view)
    assert len(view.transcript) > len(found) == len(notes)
    compare(found, notes)


def test_a_view_of_a_saved_result_is_the_same_view(tmp_path):
    problem = make_problem(clip=1.0, intercept=True)
    result = run(problem, budget=BUDGET, walk="cyclic", activations=3)
    again = rd.load_result(result.save(tmp_path / "run"))
    assert np.array_equal(infer(View.of(result)).gradient, infer(View.of(again)).gradient)


def test_an_intercept_is_not_penalised_in_the_attack_either():
    problem = make_problem("logistic", l1=0.05, intercept=True)
    view, notes = spied(problem, RING, "dgd")
    compare(infer(view), notes)


def test_what_cannot_be_attacked_is_named_with_its_cure():
    problem = make_problem()
    with pytest.raises(rd.errors.InputError, match="transcript=True"):
        View.of(run(problem, activations=2, transcript=False))
    lazy = run(problem, activations=3, walk="lazy")
    with pytest.raises(rd.errors.InputError, match="another walk"):
        infer(View.of(lazy))
    plain = View.of(run(problem, "dgd", activations=3))
    with pytest.raises(rd.errors.InputError, match="is for recal"):
        infer(plain, channel="x")
    skipping = run(problem, "tripd-dist", activations=5, steps={"probability": 0.5})
    with pytest.raises(rd.errors.InputError, match="where a round ends"):
        infer(View.of(skipping))
    own = rd.prox.custom(lambda x: jnp.sum(jnp.abs(x)), lambda v, t: jnp.sign(v) * jnp.maximum(jnp.abs(v) - t, 0.0))
    odd = run(make_problem(regulariser=own), "dgd", activations=3)
    with pytest.raises(rd.errors.InputError, match="cannot be undone"):
        infer(View.of(odd, regulariser=own))
    for whom in ({"collusion": 1}, {"trust": "curator"}):
        classes = rd.logistic(rd.load_data("breast-cancer"), agents=4, record_norm=1.0)
        summed = rd.solve(classes, rd.ring(4), activations=3, budget=rd.Budget(1.0, 1e-5), **whom)
        with pytest.raises(rd.errors.InputError, match="no message has a gradient of one agent"):
            View.of(summed)
