"""Sufficient statistics: what one record can move, what is released, with what noise, and who may ask."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import relaydp as rd
from relaydp.algorithm import ALGORITHMS, sufficient_statistics
from relaydp.arrays import placed
from relaydp.engine.loop import begin, turns_of, world_of
from relaydp.errors import InputError, PrivacyError
from relaydp.oracle.statistics import PlacedUnits, as_numbers, from_numbers, units_from
from relaydp.planning.planner import make_plan
from relaydp.privacy.statistics import largest_change, numbers_of, rounding, sensitivity, units_of

NAME = "sufficient-statistics"
SIZES = [20, 31, 17]
RING = rd.ring(3)
BUDGET = rd.Budget(2.0, 1e-4)
R, Y = 2.0, 1.5
QUICK = {"trace": False, "reference": False, "walk": "cyclic"}


def records(seed=0, q=4):
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(sum(SIZES), q))
    return X, X @ draw.normal(size=q) + 0.3 * draw.normal(size=len(X))


def make_problem(X=None, y=None, **options):
    if X is None:
        X, y = records()
    usual = {"agents": SIZES, "l2": 0.1, "record_norm": R, "label_bound": Y}
    return rd.least_squares(rd.Records(X, y), **usual | options)


def plan_of(problem, **options):
    usual = dict(
        algorithm=NAME, mechanism="gradient", budget=BUDGET, activations=None, walk="cyclic", steps="tuned",
        key=jax.random.key(0), start=0, ratio=None, variant=None, noise=None,
    )  # fmt: skip
    return make_plan(problem, RING, **usual | options)


# -- what one record can move


def numbers_of_record(a, y, t):
    """S(a a') and t y a by definition: entries above the diagonal count twice in the Frobenius norm."""
    q = len(a)
    outer = np.outer(a, a)
    entries = [outer[j, k] * (1.0 if j == k else math.sqrt(2.0)) for j in range(q) for k in range(j, q)]
    return np.concatenate([entries, t * y * a])


directions = st.lists(st.floats(-1, 1), min_size=3, max_size=3)


@given(directions, directions, st.floats(0, 1), st.floats(0, 1), st.floats(-1, 1), st.floats(-1, 1), st.floats(0, 3))
def test_replacing_a_record_moves_the_sums_by_no_more_than_the_theorem_says(a, b, long, far, y, z, t):
    def shaped(direction, length):
        size = np.linalg.norm(direction)
        return np.zeros(3) if size < 1e-6 else np.array(direction) / size * length * R

    one, two = numbers_of_record(shaped(a, long), y * Y, t), numbers_of_record(shaped(b, far), z * Y, t)
    assert np.linalg.norm(one - two) <= largest_change(R, Y, t) * (1 + 1e-12)


@pytest.mark.parametrize("t", [0.1, 1.0, R / Y, 1.8])
def test_some_pair_of_records_reaches_the_theorem(t):
    """|a| = |b| = R, a'b = c/2, labels Y and -Y."""
    cosine = (t * Y / R) ** 2 / 2
    a, b = np.array([R, 0.0]), R * np.array([cosine, math.sqrt(1 - cosine**2)])
    moved = np.linalg.norm(numbers_of_record(a, Y, t) - numbers_of_record(b, -Y, t))
    assert moved == pytest.approx(largest_change(R, Y, t), rel=1e-12)


@pytest.mark.parametrize("intercept", [False, True])
def test_one_record_moves_an_agents_release_by_no_more_than_is_charged_and_nearly_so_much(intercept):
    """Through the engine, with records and labels far outside the bounds; the worst pair reaches 0.99 of the charge."""
    plan = plan_of(make_problem(intercept=intercept))
    bound = math.sqrt(R * R + intercept)
    k = bound**2 / 2 - intercept  # a'b of the worst pair, an intercept's 1 apart
    side = math.sqrt(R**4 - k**2) / R
    worst = [(np.array([R, 0, 0, 0]), Y), (np.array([k / R, side, 0, 0]), -Y)]
    draw = np.random.default_rng(1)
    wild = [(draw.normal(size=4) * 10.0 ** draw.uniform(-2, 3), draw.normal() * 100.0) for _ in range(12)]
    found = []
    for a, y in [*worst, *wild, (np.zeros(4), 1e9)]:
        X, labels = records()
        X[25], labels[25] = a, y  # agent 1's
        found.append(released_without_noise(make_problem(X, labels, intercept=intercept), plan, 1))
    apart = [np.linalg.norm(one - two) for k, one in enumerate(found) for two in found[:k]]
    assert max(apart) <= plan.sensitivity[1]
    assert np.linalg.norm(found[0] - found[1]) >= 0.99 * plan.sensitivity[1]
    assert plan.sensitivity[1] == pytest.approx(2 * plan.facts.clip / SIZES[1], rel=1e-9)


def released_without_noise(problem, plan, agent):
    """v_i as the engine computes it."""
    world = world_of(problem, RING, plan)
    units = world.units
    return np.asarray(as_numbers(*world.agent_records.squares(jnp.int32(agent), units.label), units))


def test_rounding_is_within_what_is_charged_for_it():
    """float64 sums against exact ones, of records whose products have no short binary form."""
    from fractions import Fraction

    draw = np.random.default_rng(2)
    X, y = draw.uniform(-1, 1, size=(300, 2)), draw.uniform(-1, 1, 300)
    problem = make_problem(X, y, agents=1, record_norm=2.0, label_bound=1.0)
    hessian, moment = problem.agent_records.squares(jnp.int32(0), placed(1.0))
    rows = [[Fraction(v) for v in row] for row in X]
    exact = [[sum(r[j] * r[k] for r in rows) / 300 for k in range(2)] for j in range(2)]
    off = max(abs(float(Fraction(float(hessian[j, k])) - exact[j][k])) for j in range(2) for k in range(2))
    assert 0.0 < off <= rounding(300, 2) * 2.0 * 4.0 / 300
    assert float(moment[0]) == pytest.approx(float(sum(r[0] * Fraction(b) for r, b in zip(rows, y, strict=True)) / 300))


def test_rounding_grows_with_the_square_of_records_and_has_a_limit():
    assert rounding(10**6, 10) == pytest.approx(1.01 * 2**-53 * 4 / 3 * 1e12, rel=1e-3)
    assert sensitivity(3.0, 50, 4) > 2 * 3.0 / 50
    with pytest.raises(PrivacyError, match="nothing is proven"):
        rounding(2**41, 10)


# -- what is released


def test_numbers_are_taken_apart_as_they_were_put_together():
    units = PlacedUnits(*map(placed, units_of(R, Y, 3.0)))
    M = np.random.default_rng(0).normal(size=(4, 4))
    M, b = placed(M + M.T), placed(np.arange(4.0))
    numbers = as_numbers(M, b, units)
    assert numbers.shape == (numbers_of(4),)
    length = (float(units.matrix) * np.linalg.norm(M)) ** 2 + (float(units.vector) * np.linalg.norm(b)) ** 2
    assert float(jnp.sum(numbers**2)) == pytest.approx(length, rel=1e-12)  # the Frobenius norm, weighted
    again = from_numbers(numbers, units, 4)
    assert np.allclose(again[0], M, rtol=1e-14) and np.allclose(again[1], b, rtol=1e-14)


def test_statistics_are_means_over_each_agents_records_shrunk_and_cut_off():
    X, y = records()
    problem = make_problem(X, y, intercept=True)
    at = 0
    for agent, m in enumerate(SIZES):
        A, b = X[at : at + m], np.clip(y[at : at + m], -Y, Y)
        A = A * np.minimum(1.0, R / np.linalg.norm(A, axis=1))[:, None]
        A = np.column_stack([A, np.ones(m)])
        hessian, moment = problem.working_records.squares(jnp.int32(agent), placed(Y))
        assert np.allclose(hessian, A.T @ A / m, rtol=1e-12, atol=1e-14)
        assert np.allclose(moment, A.T @ b / m, rtol=1e-12, atol=1e-14)
        at += m


def noise_of(problem, plan, result):
    """Each agent's noise over its planned scale, read from the batons by somebody who knows the records."""
    totals = np.concatenate([np.zeros((1, result.transcript.total.shape[1])), result.transcript.total])
    units = PlacedUnits(*map(placed, units_from(plan.facts)))
    dim, found = problem.dim, []
    for k, agent in enumerate(result.transcript.sender):
        told = sufficient_statistics.unpack(placed((totals[k + 1] - totals[k]) * problem.agents), dim)
        own = problem.working_records.squares(jnp.int32(int(agent)), units.label)
        ridge = problem.l2 * np.diag([1.0] * (dim - problem.intercept) + [0.0] * problem.intercept)
        noise = as_numbers(told[0] - own[0] - ridge, told[1] - own[1], units)
        found.append(np.asarray(noise) / plan.scales[0, int(agent)])
    return np.array(found)


@pytest.mark.parametrize("seed", [None, 0], ids=["secret", "simulated"])
def test_every_number_has_the_noise_that_is_charged_and_no_two_runs_the_same(seed):
    """Both parts, every entry: 24 runs of 3 agents and 14 numbers."""
    problem = make_problem()
    plan, found = plan_of(problem), []
    for k in range(24):
        own = None if seed is None else k
        found.append(noise_of(problem, plan, rd.solve(problem, RING, NAME, budget=BUDGET, seed=own, **QUICK)))
    z = np.array(found)  # (runs, agents, numbers)
    assert z.shape == (24, 3, 14)
    size = (z**2).mean(axis=(0, 1))  # of each number, over 72 releases: a standard error of 1/6
    assert (size > 0.3).all() and (size < 2.2).all()
    parts = [np.mean(z[:, :, at] ** 2) for at in (slice(0, 10), slice(10, 14))]
    assert 0.8 < min(parts) and max(parts) < 1.25  # 288 draws or more: a standard error of 0.08
    flat = z.reshape(72, -1)
    assert np.abs(np.corrcoef(flat)[np.triu_indices(72, 1)]).max() < 0.97


def test_the_corner_of_an_intercept_is_public_and_has_no_noise():
    problem = make_problem(intercept=True)
    result = rd.solve(problem, RING, NAME, budget=BUDGET, seed=0, **QUICK)
    hessian, _ = sufficient_statistics.unpack(placed(result.transcript.total[-1]), problem.dim)
    assert float(hessian[-1, -1]) == pytest.approx(1.0, rel=1e-12)


def test_the_ledger_has_one_release_an_agent_and_the_certificate_says_of_what():
    result = rd.solve(make_problem(), RING, NAME, budget=BUDGET, **QUICK)
    assert result.private and BUDGET.epsilon - 1e-6 < result.epsilon <= BUDGET.epsilon
    assert (result.ledger.counts == 1).all() and result.plf == 1 and result.messages == 3
    assert "a a'" in result.certificate()["mechanism"]["noise"]


def test_laps_average_their_noise_and_cost_the_same():
    problem = make_problem()
    one, four = plan_of(problem), plan_of(problem, activations=4)
    assert four.scales == pytest.approx(np.tile(2.0 * one.scales, (4, 1)), rel=1e-9)
    assert four.epsilon == pytest.approx(one.epsilon) and four.predicted == pytest.approx(one.predicted)
    without = [rd.solve(problem, RING, NAME, activations=laps, **QUICK).x for laps in (1, 4)]
    assert np.allclose(*without, rtol=1e-9)


# -- the model


def test_the_model_is_that_of_the_released_sums():
    """(2) and (3) in NumPy, with the e that makes the released vector most likely among a fine grid of v."""
    problem = make_problem(l2=0.0)
    plan = plan_of(problem)
    result = rd.solve(problem, RING, NAME, budget=BUDGET, seed=3, **QUICK)
    H, b = map(np.asarray, sufficient_statistics.unpack(placed(result.transcript.total[-1]), 4))
    units = units_from(plan.facts)
    mean = np.sqrt((plan.scales[0] ** 2).sum()) / 3
    s_h, s_b = mean / units.matrix, mean / units.vector
    h, Q = np.linalg.eigh(H)
    h, c = np.maximum(h, 0), Q.T @ b
    v = np.geomspace(1e-5, 1e9, 20_000) * (s_b / h[-1]) ** 2
    noise = s_b**2 + s_h**2 * 5 * v / 2
    spread = h[:, None] ** 2 * v + noise
    likelihood = -0.5 * (np.log(spread) + c[:, None] ** 2 / spread).sum(axis=0)
    e = (noise / v)[np.argmax(likelihood)]
    x = Q @ (h * c / (h**2 + e))
    assert np.linalg.norm(result.x - x) <= 0.05 * np.linalg.norm(x)  # its grid has 8 values a decade


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_an_indefinite_matrix_gives_a_model_that_is_finite_and_scales_with_the_labels(scale):
    draw = np.random.default_rng(4)
    H = draw.normal(size=(6, 6))
    H, b = H + H.T, draw.normal(size=6)
    variance = np.array([1.0, scale**2])
    x = sufficient_statistics.solve_sums(placed(H), placed(scale * b), placed(variance), lambda v, t: v)
    assert np.isfinite(x).all() and np.linalg.norm(x) <= 100 * scale


def test_with_much_noise_the_model_is_near_0():
    problem = make_problem(label_bound=1.0)
    x = rd.sweep(problem, RING, range(16), [rd.Budget(0.01, 1e-4)], algorithm=NAME, walk="cyclic", progress=False).x
    best = rd.minimise(problem)
    assert np.median(problem.objectives(x)) <= 1.02 * problem.objective(np.zeros(4))
    assert best.value < 0.9 * problem.objective(np.zeros(4))


def test_an_l1_penalty_is_that_of_the_problem():
    """Where it is large, nothing but 0 is a minimiser, with noise as without; an intercept stays free."""
    for options in ({}, {"budget": rd.Budget(50.0, 1e-4), "seed": 0}):
        result = rd.solve(make_problem(l1=10.0, intercept=True), RING, NAME, **options, **QUICK)
        assert (result.x[:-1] == 0).all() and result.x[-1] != 0


# -- who may ask, and of what


def test_what_has_no_statistics_is_refused():
    X, y = records()
    with pytest.raises(InputError, match="least squares.*logistic"):
        rd.solve(rd.logistic(rd.Records(X, np.sign(y)), agents=SIZES), RING, NAME)
    wide = rd.least_squares(rd.Records(np.zeros((60, 257)), np.zeros(60)), agents=3)
    with pytest.raises(InputError, match="256 coefficients at most.*'recal'"):
        rd.solve(wide, RING, NAME)
    with pytest.raises(PrivacyError, match="label_bound="):
        rd.solve(make_problem(label_bound=None, clip=1.0), RING, NAME, budget=BUDGET)
    with pytest.raises(InputError, match="fixed order"):
        rd.solve(make_problem(), RING, NAME, walk="random")
    with pytest.raises(InputError, match="audit"):
        rd.audit(NAME, budget=BUDGET)


def asking(step, data="gradient"):
    return replace(ALGORITHMS[NAME], name="outside", step=step, data=data)


def test_only_a_run_whose_noise_is_for_statistics_answers_with_them(monkeypatch):
    """And such a run answers nothing else."""

    def for_gradients(setting, steps, state, turn):
        setting.statistics()
        return state, state.baton

    def for_statistics(setting, steps, state, turn):
        setting.gradient(state.baton.x)
        return state, state.baton

    for step, data, words in [
        (for_gradients, "gradient", "noise is for something else"),
        (for_statistics, "statistics", "noise is for sufficient statistics"),
    ]:
        monkeypatch.setitem(ALGORITHMS, "outside", asking(step, data))
        monkeypatch.setattr("relaydp.planning.planner.choose_steps", chosen)
        for seed in (None, 0):
            with pytest.raises(PrivacyError, match=words):
                rd.solve(make_problem(), RING, "outside", budget=BUDGET, seed=seed, **QUICK)


def chosen(method, asked, facts, graph, walk, activations, noise, start):
    from relaydp.planning.tuning import Choice, placed_steps, with_laps

    return Choice(placed_steps(with_laps(method.menu.paper(facts, graph), graph, walk, start)), activations or 1, None)


def test_asking_twice_a_turn_is_refused(monkeypatch):
    def twice(setting, steps, state, turn):
        setting.statistics()
        setting.statistics()
        return state, state.baton

    monkeypatch.setitem(ALGORITHMS, "outside", asking(twice, "statistics"))
    for options in ({}, {"budget": BUDGET}, {"budget": BUDGET, "seed": 0}):
        with pytest.raises(PrivacyError, match="asked the records twice"):
            rd.solve(make_problem(), RING, "outside", **options, **QUICK)


def test_where_nobody_acts_nothing_is_told():
    problem = make_problem()
    plan = plan_of(problem)
    world = world_of(problem, RING, plan)
    turn = jax.tree.map(lambda part: jnp.asarray(part)[0], turns_of(plan, len(plan.route)))
    turn = turn._replace(acts=jnp.asarray(False), key=jax.random.key(0))
    told = jax.jit(lambda now: world.oracle(None)(now).statistics())(turn)
    assert all(not np.asarray(part).any() for part in told)
    begin(plan.algorithm, None, world, plan.steps, jnp.zeros(4))  # which asks nothing


# -- what plans say


def test_a_plan_from_facts_is_that_of_the_problem():
    problem = make_problem(intercept=True)
    facts = rd.public_facts(
        SIZES, features=4, loss="least-squares", record_norm=R, label_bound=Y, l2=0.1, intercept=True
    )
    assert facts.squares == problem.public_facts().squares == (math.sqrt(R * R + 1), Y)
    one, two = (rd.plan(what, RING, BUDGET, algorithm=NAME) for what in (problem, facts))
    assert np.array_equal(one.scales, two.scales) and one.predicted == two.predicted
    assert one.activations == 1 and one.epsilon <= BUDGET.epsilon


def test_more_budget_predicts_less():
    problem = make_problem()
    curve = [rd.plan(problem, RING, rd.Budget(epsilon, 1e-4), algorithm=NAME).predicted for epsilon in (0.1, 1, 10, 99)]
    assert (np.diff(curve) < 0).all() and min(curve) > 0


FIRM = rd.Budget(2.0, 1e-7)  # of delta, less than one over so many records
MANY = dict(features=4, loss="least-squares", record_norm=1.0, label_bound=1.0)


@pytest.mark.parametrize(
    ("told", "asked", "name"),
    [
        ({}, {}, NAME),
        ({}, {"objective": "loss", "walk": "cyclic"}, NAME),
        ({}, {"walk": "random"}, "recal"),
        ({}, {"ratio": 1.1}, "recal"),
        ({}, {"steps": "paper"}, "recal"),
        ({}, {"steps": {"caution": 2.0}}, NAME),
        ({"clip": 0.5}, {}, "recal"),
        ({"loss": "huber"}, {}, "recal"),
        ({"features": 257}, {}, "recal"),
    ],
    ids=str,
)
def test_auto_takes_statistics_of_many_records_where_nothing_else_was_asked_for(told, asked, name):
    facts = rd.public_facts([200_000] * 3, **MANY | told)
    assert rd.plan(facts, RING, FIRM, **({"activations": 1} if name != NAME else {}) | asked).algorithm.name == name


def test_auto_takes_gradients_where_the_noise_on_the_matrix_is_large():
    from relaydp.planning.statistics import LITTLE, noise_on_matrix

    for m in (300, 3000, 30_000, 300_000):
        facts = rd.public_facts([m] * 3, **MANY)
        little = noise_on_matrix(facts, np.full(3, FIRM.rho)) <= LITTLE
        assert little == (m > 10_000)
        assert rd.plan(facts, RING, FIRM, activations=1).algorithm.name == (NAME if little else "recal")


def test_the_noise_on_the_matrix_is_the_largest_eigenvalue_of_what_is_added():
    from relaydp.planning.statistics import noise_on_matrix

    q, m = 60, 1000
    facts = rd.public_facts([m] * 3, **MANY | {"features": q})
    units, draw = units_from(facts), np.random.default_rng(0)
    scale = rd.plan(facts, RING, FIRM, algorithm=NAME).scales[0]
    noise = [
        from_numbers(placed(s * draw.normal(size=numbers_of(q))), PlacedUnits(*map(placed, units)), q)[0] for s in scale
    ]
    largest = np.linalg.eigvalsh(np.mean(noise, axis=0))[-1]
    assert largest == pytest.approx(noise_on_matrix(facts, np.full(3, FIRM.rho)), rel=0.15)  # as q grows


def test_a_run_by_auto_is_saved_and_made_again(tmp_path):
    draw = np.random.default_rng(0)
    X = draw.uniform(-1, 1, size=(60_000, 2))
    y = np.clip(X @ [0.5, -0.2] + 0.1 * draw.normal(size=len(X)), -1, 1)
    problem = rd.least_squares(rd.Records(X, y), agents=3, record_norm=1.5, label_bound=1.0, ranges=(-1, 1))
    result = rd.solve(problem, RING, budget=rd.Budget(5.0, 1e-6), seed=0, walk="cyclic")
    assert result.algorithm == NAME and result.plf == 1
    assert np.linalg.norm(result.x - [0.5, -0.2]) < 0.02
    runs = rd.sweep(problem, RING, [0], [rd.Budget(5.0, 1e-6)], walk="cyclic", progress=False)
    assert np.allclose(runs.x[0], result.x, rtol=1e-6)
    result.save(tmp_path / "kept")
    again = rd.load_result(tmp_path / "kept")
    assert again.x.tobytes() == result.x.tobytes() and again.plan["clip"] is None
