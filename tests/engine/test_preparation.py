"""Runs whose first lap prepares: what it releases, what it costs, and what follows from it."""

import jax
import numpy as np
import pytest

import relaydp as rd
from relaydp.arrays import placed
from relaydp.attack import View, infer
from relaydp.auditing.campaigns import gradient_errors
from relaydp.auditing.noise import mean_moments
from relaydp.engine import loop, solver, solving_alone
from relaydp.errors import PrivacyError
from relaydp.oracle.moments import release_moments
from relaydp.oracle.randomness import draw_gradient_noise
from relaydp.privacy.sensitivity import sensitivity
from relaydp.problem.coordinates import KEPT, Coordinates, find_coordinates

BUDGET = rd.Budget(2.0, 1e-5)
UNMEASURED = {"trace": False, "reference": False}
SIZES = (150, 200, 250)
KINDS = {"logistic": (-1, 1), "softmax": (0, 1, 2)}


def toy(loss="logistic", seed=0, **options):
    draw = np.random.default_rng(seed)
    X = 0.3 + 0.4 * draw.uniform(-1.0, 1.0, (sum(SIZES), 5))
    score = (X - 0.3) @ np.arange(5.0)
    y = np.sign(score) if loss == "logistic" else np.digitize(score, (-0.5, 0.5))
    data = rd.Records(X, y, classes=KINDS[loss], test=rd.Records(X[::2], y[::2], classes=KINDS[loss]))
    return getattr(rd, loss)(data, agents=list(SIZES), record_norm=1.5, **options)


def test_a_seed_gives_the_same_run_alone_and_in_a_sweep():
    problem = toy()
    budgets = [BUDGET, rd.Budget(8.0, 1e-5)]
    found = rd.sweep(problem, rd.star(3), [3, 4], budgets, progress=False)
    for row, (budget, seed) in enumerate((budget, seed) for budget in budgets for seed in (3, 4)):
        alone = rd.solve(problem, rd.star(3), budget=budget, seed=seed, **UNMEASURED)
        assert alone.plan["prepares"] and alone.coordinates is not None
        assert found.x[row] == pytest.approx(alone.x, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", KINDS)
def test_the_first_lap_sends_what_the_coordinates_follow_from(loss, intercept):
    """A tour of a path, on which a lap passes agents that do not act again."""
    problem, graph = toy(loss, intercept=intercept), rd.path(3)
    plan = rd.plan(problem, graph, BUDGET)
    result = rd.solve(problem, graph, budget=BUDGET, seed=1, **UNMEASURED)
    sent, lap = result.transcript, plan.preparing
    assert lap == int(plan.steps.lap) == 4 and plan.preparing + plan.training == len(plan.route)
    assert not sent.x[:lap].any() and not sent.total[:lap].any() and not sent.first[lap:].any()
    released = sent.first[lap - 1]
    bound, clip = problem.features_bound(), plan.facts.clip
    noise = released - clip / bound * mean_moments(problem).mean(axis=0)
    scale = np.sqrt((plan.scales[0] ** 2).sum()) / 3
    assert 0 < np.abs(noise).max() < 6 * scale
    variance = (bound / clip * scale) ** 2
    told = placed(bound / clip * released)
    again = find_coordinates(told, placed(variance), placed(bound), intercept, problem.loss.outputs)
    for mine, theirs in zip(again, result.coordinates, strict=True):
        assert np.asarray(mine) == pytest.approx(np.asarray(theirs), rel=1e-9, abs=1e-12)


def test_it_is_charged_like_a_gradient_and_first():
    problem = toy()
    plan = rd.plan(problem, rd.ring(3), BUDGET)
    private = rd.solve(problem, rd.ring(3), budget=BUDGET, **UNMEASURED)
    assert private.private and private.plf == plan.activations == int(plan.ledger.counts[0])
    assert private.epsilon == pytest.approx(BUDGET.epsilon, rel=1e-6)
    rho = (plan.sensitivity / plan.scales) ** 2 / 2
    assert np.array_equal(plan.sensitivity, sensitivity(plan.facts.clip, np.array(SIZES), 5, KEPT))
    assert rho[0] / rho.sum(axis=0) == pytest.approx(np.full(3, 0.05), rel=1e-6)
    assert [release.hop for release in private.ledger.events(1)][:2] == [1, 4]
    # half-way through the first lap, who has been asked is charged, and nobody else
    assert plan.charged(2).counts.tolist() == [1, 1, 0]


def test_without_much_to_see_nothing_is_prepared():
    def prepares(**options):
        return rd.plan(toy(), rd.ring(3), **{"budget": BUDGET, **options}).preparing > 0

    assert prepares() and prepares(activations=10)
    assert not prepares(activations=9) and not prepares(budget=rd.Budget(1e-3, 1e-5))
    assert rd.plan(toy(l2=1e-6), rd.ring(3), BUDGET).preparing == 0  # a ridge says which coordinates are meant
    assert rd.plan(toy(), rd.ring(3), BUDGET, objective="loss", algorithm="relay-gradient").preparing == 0
    data = toy().data
    unbounded = rd.logistic(data, agents=3, clip=0.5, record_norm=None)
    assert unbounded.features_bound() is None


def test_a_start_of_the_users_is_kept():
    problem, x0 = toy(), np.array([3.0, -1.0, 0.5, 2.0, 1.0])
    options = {"budget": BUDGET, "seed": 0, "activations": 12, **UNMEASURED}
    near = rd.solve(problem, rd.ring(3), x0=1e6 * x0, **options)
    assert np.dot(near.x, x0) / np.linalg.norm(near.x) / np.linalg.norm(x0) > 0.999
    sent = near.transcript
    assert near.coordinates(sent.x[3]) == pytest.approx(1e6 * x0, rel=1e-9)


def test_an_eavesdropper_reads_gradients_in_the_records_own_coordinates():
    """With next to no noise each is the agent's clipped mean gradient at the point where it was taken."""
    problem = toy()
    result = rd.solve(problem, rd.ring(3), budget=rd.Budget(900.0, 0.4), seed=0, activations=12, **UNMEASURED)
    found = infer(View.of(result))
    assert len(found) == 33 and found.activation.min() == 2 and found.activation.max() == 12
    assert np.median(gradient_errors(found, problem, result)[:12]) < 0.2
    wrong = rd.solve(toy(seed=1), rd.ring(3), budget=BUDGET, seed=0, activations=12, **UNMEASURED)
    assert np.median(gradient_errors(found, toy(seed=1), wrong)[:12]) > 0.2


def test_a_saved_run_keeps_its_coordinates(tmp_path):
    result = rd.solve(toy(), rd.ring(3), budget=BUDGET, activations=12, **UNMEASURED)
    again = rd.load_result(result.save(tmp_path / "run"))
    assert np.array_equal(again.coordinates.direction, result.coordinates.direction)
    assert isinstance(again.coordinates, Coordinates) and np.array_equal(
        again.transcript.first, result.transcript.first
    )
    assert rd.load_result(tmp_path / "run" / "publish").coordinates is not None
    plain = rd.solve(toy(), rd.ring(3), activations=3, trace=False)
    assert rd.load_result(plain.save(tmp_path / "plain")).coordinates is None


@pytest.mark.parametrize("loss", KINDS)
def test_each_agent_alone_prepares_for_itself(loss):
    problem = toy(loss)
    alone = rd.solve_alone(problem, BUDGET, seed=0)
    assert alone.plf == rd.plan(problem, rd.ring(3), BUDGET).activations
    assert alone.epsilon_planned == pytest.approx(BUDGET.epsilon, rel=1e-6)
    private = rd.solve_alone(problem, BUDGET)
    assert private.private and np.isfinite(private.x).all() and private.ledger.plf == alone.plf


@pytest.mark.parametrize("secret", [False, True])
def test_a_first_release_has_the_noise_that_is_asked_for_and_none_without(secret):
    records, bound, unit = toy().working_records, placed(1.5), placed(1.0)
    scale = placed(np.array([0.01, 1.0, 10.0]))
    exact, drawn = np.asarray(records.moments(bound)), []
    released = jax.jit(lambda key, draws: release_moments(records, bound, unit, scale, key, draws))
    for seed in range(300):
        key = None if secret else jax.random.key(seed)
        draws = draw_gradient_noise(np.ones(3, bool), exact.shape[1]) if secret else None
        drawn.append(np.asarray(released(key, draws)) - exact)
    spread, centre = np.stack(drawn).std(axis=(0, 2)), np.stack(drawn).mean(axis=0)
    assert spread == pytest.approx(np.asarray(scale), rel=0.1)  # 2,100 numbers each: six deviations
    assert np.abs(centre / np.asarray(scale)[:, None]).max() < 6 / np.sqrt(300)
    for key, draws in ((None, None), (jax.random.key(0), placed(np.zeros(exact.shape, np.int64)))):
        with pytest.raises(PrivacyError, match="needs noise"):
            release_moments(records, bound, unit, scale, key, draws)


def spied(monkeypatch, module, name):
    """What a module's function was given and returned, in every call."""
    seen, real = [], getattr(module, name)

    def spy(*given, **named):
        answer = real(*given, **named)
        seen.append((given, answer))
        return answer

    monkeypatch.setattr(module, name, spy)
    return seen


@pytest.mark.parametrize("where", ["relay", "alone"])
@pytest.mark.parametrize("loss", KINDS)
def test_a_private_first_release_is_what_was_priced_and_all_that_coordinates_are_made_of(monkeypatch, loss, where):
    """Its noise has the priced scale, is new in every run, and is in what the coordinates and the norms follow from."""
    module = loop if where == "relay" else solving_alone
    problem = toy(loss)
    prepared = spied(monkeypatch, module, "prepare")
    descents = spied(monkeypatch, solving_alone, "_descend")
    promised = spied(monkeypatch, solver if where == "relay" else solving_alone, "check_promise")
    runs = 12
    for _ in range(runs):
        if where == "relay":
            rd.solve(problem, rd.ring(3), budget=BUDGET, activations=10, **UNMEASURED)
        else:
            rd.solve_alone(problem, BUDGET, activations=10)
    plan = rd.plan(problem, rd.ring(3), BUDGET, activations=10)
    bound, clip, outputs = problem.features_bound(), plan.facts.clip, problem.loss.outputs
    exact = clip / bound * mean_moments(problem)
    numbers = exact.shape[1]
    z = []
    for (records, asked, key, draws, *_), found in prepared:
        assert key is None and draws.shape == exact.shape
        assert (float(asked.bound), float(asked.clip)) == (bound, clip)
        # what the lattice needs is a hair more than the plan's scale, never less
        priced = plan.scales[0]
        assert (np.asarray(asked.scale) > priced).all() and asked.scale == pytest.approx(priced, rel=1e-3)
        z.append((np.asarray(found.released) - exact) / priced[:, None])
        told, variance = bound / clip * np.asarray(found.released), (bound / clip * np.asarray(asked.scale)) ** 2
        for agent in range(3) if where == "alone" else (None,):
            mean = told.mean(axis=0) if agent is None else told[agent]
            its = variance.sum() / 9 if agent is None else variance[agent]
            again = find_coordinates(placed(mean), placed(its), placed(bound), False, outputs)
            kept = found.coordinates
            kept = kept if agent is None else jax.tree.map(lambda part, i=agent: part[i], kept)
            for mine, theirs in zip(again, kept, strict=True):
                assert np.asarray(mine) == pytest.approx(np.asarray(theirs), rel=1e-9, abs=1e-12)
            rows = slice(None) if agent is None else slice(sum(SIZES[:agent]), sum(SIZES[: agent + 1]))
            A = np.asarray(problem.agent_records.dense().X)[: sum(SIZES)][rows]
            u = np.asarray(kept.direction)
            P = float(kept.length) * (np.eye(5) - (1 - KEPT) * np.outer(u, u))
            true, norm = np.linalg.norm(A @ P, axis=1), np.asarray(found.of(records).norm)[: sum(SIZES)][rows]
            assert (norm >= true * (1 - 1e-12)).all() and norm == pytest.approx(true, rel=1e-9)
    z = np.stack(z)
    assert z.std() == pytest.approx(1.0, abs=6 / np.sqrt(2 * z.size))
    assert np.abs(np.corrcoef(z.reshape(runs, -1)) - np.eye(runs)).max() < 6 / np.sqrt(z[0].size)
    for (_, found), (given, _) in zip(prepared, descents if where == "alone" else [], strict=False):
        assert np.array_equal(given[0].norm, found.norm)  # what the gradients are clipped by
    assert len(descents) == (runs if where == "alone" else 0)
    # the promise is checked for as many numbers as the longest release has
    for given, _ in promised:
        counted = given[0].released if where == "relay" else given[2]
        assert counted >= numbers


def test_short_records_beside_an_intercept_are_counted_as_they_are():
    """Their norm with the intercept's 1 would lose them: by half of it at a bound of 1e-8."""
    for bound in (1e-8, 1.8e-8, 1e-7, 1e-3):
        one, two = (
            rd.logistic(
                rd.Records(np.array([[sign * bound, 0.0]]), [sign], classes=[-1, 1]),
                agents=1,
                intercept=True,
                record_norm=bound,
            )
            for sign in (1, -1)
        )
        told = [np.asarray(problem.agent_records.moments(placed(bound)))[0] for problem in (one, two)]
        assert told[0][4] == pytest.approx(bound / 2, rel=1e-12)
        assert np.linalg.norm(told[0] - told[1]) <= 2 * bound * (1 + 1e-12)
