"""The rule that plans private classifiers for accuracy, and what 'auto' means."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import relaydp as rd
from relaydp.algorithm.relay_gradient import MOST
from relaydp.errors import InputError
from relaydp.planning.accuracy import (
    CLIP,
    FALL,
    FIRST,
    LAPS,
    REACH,
    STRETCH,
    TRAVEL,
    Expectation,
    expectation,
    noise_of,
    rule_alone,
    rule_for,
)
from relaydp.planning.accuracy import LEAST as LEAST_NOISE
from relaydp.planning.planner import resolve_algorithm
from relaydp.planning.quadratic import LARGE
from relaydp.privacy import rho_for

DELTA = 1e-5
BUDGET = rd.Budget(1.0, DELTA)
SIZES = [300, 400, 350, 5000]
FACTS = rd.public_facts(SIZES, features=20, record_norm=1.0)
LARGER = rd.public_facts([10 * size for size in SIZES], features=20, record_norm=1.0)
UNMEASURED = {"trace": False, "reference": False}


def rule_at(epsilon, facts=FACTS, **options):
    return rule_for(facts, np.full(facts.agents, rho_for(epsilon, DELTA)), **options)


def toy(loss="logistic", seed=0, sizes=(60, 80, 100), unit=1.0, **options):
    draw = np.random.default_rng(seed)
    X = draw.uniform(-0.5, 0.5, size=(sum(sizes), 6))
    score = X @ np.arange(6.0)
    y = {"logistic": np.sign(score), "softmax": np.digitize(score, (-0.5, 0.5))}.get(loss, score / 15)
    classes = {"logistic": (-1, 1), "softmax": (0, 1, 2)}.get(loss)
    data = rd.Records(unit * X, y, classes=classes, test=rd.Records(unit * X[::3], y[::3], classes=classes))
    return getattr(rd, loss)(data, agents=list(sizes), **options)


# -- the rule


def test_the_noise_is_that_of_the_mean_gradient_in_one_lap():
    """(1) against the plan's own scales: a lap adds up the agents' noise, and has its share of the budget."""
    plan = rd.plan(FACTS, rd.ring(4), BUDGET)
    lap = np.sqrt((plan.scales**2).sum(axis=1)) / 4
    rho = np.full(4, rho_for(1.0, DELTA))
    shares = np.array([FIRST, *[(1 - FIRST) / LAPS] * LAPS])
    assert plan.preparing == 4 and plan.activations == LAPS + 1
    assert lap == pytest.approx(plan.clip * noise_of(FACTS.sizes, rho) / np.sqrt(shares), rel=1e-9)


def test_the_usual_problem_has_the_usual_plan():
    """By hand, from the equations of the docstring."""
    sizes = np.full(8, 1500)
    mu = 2 / (math.sqrt(8) * 1500 * 2.0**-9.5)  # so that (1) is 2^-9.5
    facts = rd.public_facts(sizes, features=784, record_norm=2.0)
    rule = rule_for(facts, np.full(8, mu**2 / 2))
    assert facts.bound == 2.0 and rule.laps == 101 and rule.first == 0.05
    assert rule.facts.clip == pytest.approx(2.0 * CLIP, rel=1e-12)
    noise = 2.0**-9.5 / math.sqrt(0.95)  # of what the first lap leaves
    assert float(rule.steps.stretch) == STRETCH and float(rule.steps.settled) == 100
    assert STRETCH * float(rule.steps.stepsize) == pytest.approx(REACH / (noise * 2.0**2), rel=1e-12)
    much = rule_for(facts, np.full(8, mu**2 / 8))  # half the budget's mu, and twice the noise
    assert float(much.steps.stepsize) == pytest.approx(float(rule.steps.stepsize) / 2.0 ** (1.0 + FALL), rel=1e-12)


def test_more_budget_means_longer_steps_and_nothing_jumps():
    """Neighbouring budgets, 2 % apart, have neighbouring plans, from nearly nothing learnt to nearly nothing lost; but
    for one budget, from which on the first lap prepares."""
    epsilons = np.geomspace(0.01, 60.0, 450)
    rules = [rule_at(epsilon, LARGER) for epsilon in epsilons]
    assert {rule.laps for rule in rules} <= {LAPS, LAPS + 1} and len({rule.facts.clip for rule in rules}) == 1
    assert (np.diff([rule.laps for rule in rules]) >= 0).all()
    steps = np.array([float(rule.steps.stepsize) for rule in rules])
    assert (np.diff(steps) >= -0.03 * steps[1:]).all() and (np.diff(steps) < 0).sum() <= 1
    assert np.diff(np.log(steps)).max() < 0.03 and np.isfinite(steps).all()
    noise = np.array([noise_of(LARGER.sizes, np.full(4, rho_for(epsilon, DELTA))) for epsilon in epsilons])
    assert (noise < LEAST_NOISE).any() and np.ptp(steps[noise <= LEAST_NOISE / 1.03]) == 0  # no longer than this


def test_more_records_are_as_good_as_more_budget():
    """Only their product counts, so that the plan of ten times the records is that of a tenth of the noise."""
    rho = np.full(4, 0.02)
    one, two = rule_for(FACTS, 100 * rho), rule_for(replace(FACTS, sizes=10 * FACTS.sizes), rho)
    assert one.laps == two.laps and one.expected == pytest.approx(two.expected)
    assert one.facts.clip == pytest.approx(two.facts.clip, rel=1e-12)
    assert float(one.steps.stepsize) == pytest.approx(float(two.steps.stepsize), rel=1e-12)


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_other_units_give_the_same_classifier(loss):
    """Features and their bound times ten: the model is a tenth, and every prediction the same."""
    one, ten = (
        rd.solve(toy(loss, unit=unit, record_norm=unit), rd.ring(3), budget=BUDGET, seed=1, trace=2)
        for unit in (1.0, 10.0)
    )
    assert one.algorithm == ten.algorithm == "relay-gradient" and one.activations == ten.activations
    assert ten.plan["clip"] == pytest.approx(10 * one.plan["clip"], rel=1e-12)
    assert np.abs(ten.x - one.x / 10).max() <= 1e-9 * np.abs(one.x).max()
    assert one.accuracy == ten.accuracy and one.x.any()


def test_a_clip_that_the_user_gave_stays():
    problem = toy(record_norm=1.0, clip=0.3)
    plan = rd.plan(problem, rd.ring(3), BUDGET)
    assert plan.for_accuracy and plan.clip == 0.3 and problem.public_facts().clip_given
    assert rd.solve(problem, rd.ring(3), budget=BUDGET, **UNMEASURED).plan["clip"] == 0.3
    assert rd.plan(replace(FACTS, clip=0.7, clip_given=True), rd.ring(4), BUDGET).clip == 0.7


def test_the_step_follows_the_clip_that_the_user_gave():
    """(5): half the clip, twice the step, so that a release moves the model as far."""
    one, half = (rule_at(1.0, replace(FACTS, clip=clip, clip_given=True)) for clip in (0.2, 0.1))
    assert one.laps == half.laps and (one.facts.clip, half.facts.clip) == (0.2, 0.1)
    assert float(half.steps.stepsize) == pytest.approx(2 * float(one.steps.stepsize), rel=1e-12)


def test_a_ridge_caps_the_step_and_a_small_one_leaves_it_alone():
    free = float(rule_at(1.0).steps.stepsize)
    for l2 in (1e-4, 0.01, 1.0, 100.0):
        facts = rd.public_facts(SIZES, features=20, record_norm=1.0, l2=l2)
        step = float(rule_at(1.0, facts).steps.stepsize)
        assert step <= 1.03 * free and STRETCH * step * l2 < MOST
        assert (l2 <= 0.01) == (0.9 * free < step)  # without a lap that prepares there is a little less noise
    result = rd.solve(toy(record_norm=1.0, l2=100.0), rd.ring(3), budget=rd.Budget(20.0, DELTA), seed=0, trace=False)
    assert result.status == "finished" and np.abs(result.x).max() < 0.1


def test_laps_by_hand_are_made_and_the_step_goes_with_them():
    plan = rd.plan(LARGER, rd.ring(4), BUDGET, activations=20)
    free = rd.plan(LARGER, rd.ring(4), BUDGET)
    assert plan.activations == 20 != free.activations and plan.clip == free.clip
    ratio = float(plan.steps.stepsize) / float(free.steps.stepsize)
    assert ratio == pytest.approx((LAPS / 25) ** TRAVEL, rel=1e-12)  # fewer laps than 25: no longer step
    some = rd.plan(LARGER, rd.ring(4), BUDGET, activations=49)
    longer = float(some.steps.stepsize) / float(free.steps.stepsize)
    assert longer == pytest.approx((LAPS / 48) ** TRAVEL, rel=1e-12) and float(some.steps.settled) == 48
    for count in (1, 2, 3):
        steps = rd.plan(LARGER, rd.ring(4), BUDGET, activations=count).steps
        assert float(steps.settled) == count


@pytest.mark.parametrize("activations", range(1, 9))
def test_no_number_of_activations_sends_a_model_astray(activations):
    """Steps are long where laps are few, up to a point: a run of a few laps learns something, too."""
    problem = toy(sizes=(900, 1000, 1100), record_norm=1.0)
    found = rd.sweep(problem, rd.ring(3), range(3), [BUDGET], activations=activations, progress=False)
    assert np.median(found.accuracy) > 0.8


# -- what it costs


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_agents_of_unequal_size_spend_exactly_the_budget(epsilon):
    budget = rd.Budget(epsilon, DELTA)
    plan = rd.plan(FACTS, rd.star(4), budget)
    assert plan.algorithm.name == "relay-gradient"
    assert epsilon * (1 - 1e-6) < plan.epsilon <= epsilon
    assert plan.ledger.spent() == pytest.approx(np.full(4, budget.rho), rel=1e-9)
    assert (plan.ledger.counts == plan.activations).all()
    for lap in range(0, plan.activations, 20):
        assert plan.scales[lap] * FACTS.sizes == pytest.approx(np.full(4, plan.scales[lap, 0] * 300))
    assert plan.sensitivity == pytest.approx(2 * plan.clip / FACTS.sizes)
    private = rd.solve(toy(record_norm=1.0, sizes=(40, 80, 160)), rd.path(3), budget=budget, **UNMEASURED)
    assert private.private and epsilon * (1 - 1e-6) < private.epsilon <= epsilon


def test_agents_that_allow_less_have_more_noise_and_are_planned_for():
    free, less = (rd.plan(LARGER, rd.ring(4), BUDGET, limits=limits) for limits in (None, {3: 0.01}))
    assert less.ledger.epsilon_of(3, DELTA) == pytest.approx(0.01, rel=1e-4)
    assert [less.ledger.epsilon_of(i, DELTA) for i in range(3)] == pytest.approx([1.0] * 3, rel=1e-6)
    assert float(less.steps.stepsize) < float(free.steps.stepsize) and less.expected.middle <= free.expected.middle


def test_a_plan_does_not_depend_on_the_records():
    one, two = (rd.plan(toy(seed=seed, record_norm=1.0), rd.ring(3), BUDGET) for seed in (0, 1))
    assert one.summary() == two.summary() and one.ledger == two.ledger and one.expected == two.expected
    facts = rd.public_facts([60, 80, 100], features=6, record_norm=1.0)
    assert rd.plan(facts, rd.ring(3), BUDGET).summary() == one.summary()


def test_a_plan_is_made_for_more_agents_than_can_be_simulated():
    n = LARGE + 88
    plan = rd.plan(rd.public_facts([50] * n, features=5, record_norm=1.0), rd.ring(n), BUDGET)
    assert plan.algorithm.name == "relay-gradient" and plan.expected is not None
    assert 1.0 - 1e-6 < plan.epsilon <= 1.0


# -- what to expect


def test_expectations_are_shares_in_order_and_fall_with_the_noise():
    rows = np.array([expectation(2.0**at) for at in np.linspace(-20, 3, 200)])
    assert (rows[:, 1:] >= 0).all() and (rows <= 1).all()  # the low end may be below the most frequent class
    assert (rows[:, 0] >= -3).all() and (np.diff(rows, axis=1) >= 0).all() and (np.diff(rows, axis=0) <= 1e-12).all()
    assert np.abs(np.diff(rows, axis=0)).max() < 0.12  # 0.12 doublings apart


def test_an_expectation_is_an_accuracy_where_the_ends_are_known():
    low, middle, high = Expectation(0.0, 0.5, 1.0).accuracy(0.6, 0.8)
    assert (low, middle, high) == pytest.approx((0.6, 0.7, 0.8))
    assert expectation(1.0).accuracy(0.5, 1.0) == pytest.approx((0.0, 0.5, 0.6))  # not below 0: -120 % would be
    assert Expectation(-1.0, 0.0, 1.0).accuracy(0.7, 0.7) == (0.7, 0.7, 0.7)


@pytest.mark.parametrize(
    ("majority", "without_privacy"), [(0.9, 0.8), (-0.1, 0.8), (0.5, 1.1), (math.nan, 0.8), (0.5, math.nan), (60, 84)]
)
def test_there_is_no_share_of_a_gain_that_is_none(majority, without_privacy):
    with pytest.raises(InputError, match="the second not below the first"):
        Expectation(0.0, 0.5, 1.0).accuracy(majority, without_privacy)


def test_a_plan_says_what_to_expect():
    plan = rd.plan(FACTS, rd.ring(4), BUDGET)
    found = json.loads(json.dumps(plan.summary(), allow_nan=False))["expected_gain"]
    assert found == plan.expected._asdict() and -1 <= found["low"] <= found["middle"] <= found["high"] <= 1
    assert "of the gain without privacy" in repr(plan) and plan.outlook is None and plan.predicted is None
    for_loss = rd.plan(FACTS, rd.ring(4), BUDGET, objective="loss", activations=4, steps="paper")
    assert for_loss.expected is None and for_loss.summary()["expected_gain"] is None and for_loss.predicted > 0


# -- each agent alone


def test_alone_the_rule_is_that_of_one_agent():
    facts = rd.public_facts([500], features=20, record_norm=1.0)
    rho = rho_for(1.0, DELTA)
    assert rule_alone(facts, rho) == [rule_for(facts, np.array([rho]))]
    for size, rule in zip(SIZES, rule_alone(FACTS, rho), strict=True):  # among others, too
        one = rule_for(rd.public_facts([size], features=20, record_norm=1.0), np.array([rho]))
        assert (rule.laps, rule.facts.clip, rule.steps) == (one.laps, one.facts.clip, one.steps)


# -- which algorithm, and which objective


SOFTMAX = rd.public_facts(SIZES, features=20, classes=3, loss="softmax", record_norm=1.0)
LEAST = rd.public_facts(SIZES, features=20, loss="least-squares", record_norm=1.0, label_bound=1.0, clip=1.0)
HUBER = rd.public_facts(SIZES, features=20, loss="huber", record_norm=1.0)
AUTO = {
    "classifier": (FACTS, {}, "relay-gradient"),
    "classes": (SOFTMAX, {}, "relay-gradient"),
    "cyclic": (FACTS, {"walk": "cyclic"}, "relay-gradient"),
    "gradient": (FACTS, {"mechanism": "gradient"}, "relay-gradient"),
    "accuracy": (FACTS, {"objective": "accuracy"}, "relay-gradient"),
    "no budget": (FACTS, {"budget": None}, "recal"),
    "loss": (FACTS, {"objective": "loss"}, "recal"),
    "least squares": (LEAST, {}, "recal"),
    "huber": (HUBER, {}, "recal"),
    "random": (FACTS, {"walk": "random"}, "recal"),
    "lazy": (FACTS, {"walk": "lazy"}, "recal"),
    "nonbacktracking": (FACTS, {"walk": "nonbacktracking"}, "recal"),
    "paper": (FACTS, {"steps": "paper"}, "recal"),
    "steps": (FACTS, {"steps": {"alpha": 1.0, "beta": 0.01, "gamma": 0.1}}, "recal"),
    "relay-gradient's steps": (FACTS, {"steps": {"stepsize": 0.1}}, "relay-gradient"),
    "its steps, no budget": (LEAST, {"steps": {"stepsize": 0.1}, "budget": None}, "relay-gradient"),
    "other steps": (FACTS, {"steps": {"stepsize": 0.1, "mixing": 0.5}}, "recal"),
    "prior": (FACTS, {"prior": object()}, "recal"),
    "ratio": (FACTS, {"ratio": 1.5}, "recal"),
    "published": (FACTS, {"mechanism": "published"}, "recal"),
    "none": (FACTS, {"mechanism": None, "budget": None}, "recal"),
}


@pytest.mark.parametrize(("facts", "options", "expected"), AUTO.values(), ids=AUTO.keys())
def test_auto_is_relay_gradient_for_private_classifiers_and_recal_for_all_else(facts, options, expected):
    assert resolve_algorithm("auto", facts, **{"budget": BUDGET, **options}) == expected
    assert resolve_algorithm("nids", facts, **{"budget": BUDGET, **options}) == "nids"


def test_every_entrance_resolves_auto_alike():
    problem, graph = toy(record_norm=1.0, l2=1e-3), rd.ring(3)  # with a minimiser, for the prior
    options = {"budget": BUDGET, "activations": 3}
    assert rd.solve(problem, graph, **options, **UNMEASURED).algorithm == "relay-gradient"
    assert rd.plan(problem, graph, BUDGET, activations=3).algorithm.name == "relay-gradient"
    assert rd.solve(problem, graph, activations=3, **UNMEASURED).algorithm == "recal"
    assert rd.solve(problem, graph, walk="random", steps="paper", **options, **UNMEASURED).algorithm == "recal"
    public = toy(seed=5, record_norm=1.0, l2=1e-3)
    assert rd.plan(problem, graph, BUDGET, activations=3, prior=public).algorithm.name == "recal"
    runs = rd.sweep(problem, graph, range(2), [BUDGET], activations=3, progress=False)
    alone = [rd.solve(problem, graph, seed=seed, **options, **UNMEASURED).x for seed in range(2)]
    assert runs.x == pytest.approx(np.array(alone), rel=1e-9) and np.isnan(runs.excess).all()


def test_a_sweep_over_budgets_clips_each_as_its_own_plan_says():
    """With this ridge the rule plans the smaller budget only, and the other is clipped at the bound."""
    problem, budgets = toy(record_norm=1.0, l2=4e-3), [BUDGET, rd.Budget(30.0, DELTA)]
    options = {"activations": 3, "algorithm": "relay-gradient"}
    clips = [rd.plan(problem, rd.ring(3), budget, **options).clip for budget in budgets]
    assert clips == pytest.approx([problem.gradient_bound() / 5, problem.gradient_bound()])
    runs = rd.sweep(problem, rd.ring(3), [4], budgets, progress=False, **options)
    alone = [rd.solve(problem, rd.ring(3), budget=budget, seed=4, **options, **UNMEASURED).x for budget in budgets]
    assert runs.x == pytest.approx(np.array(alone), rel=1e-9)


def test_a_classifier_planned_for_accuracy_has_no_reference_unless_asked():
    problem = toy(record_norm=1.0, l2=1e-3)
    options = {"budget": BUDGET, "activations": 3, "seed": 0}
    assert rd.solve(problem, rd.ring(3), **options).reference is None
    assert rd.solve(problem, rd.ring(3), **options, reference=True).reference is not None
    assert rd.solve(problem, rd.ring(3), **options, objective="loss").reference is not None


@pytest.mark.parametrize("loss", ["logistic", "least_squares"])
def test_relay_gradient_is_planned_for_the_loss_too(loss):
    bounds = {"label_bound": 1.0, "clip": 1.0} if loss == "least_squares" else {}
    problem = toy(loss, record_norm=1.0, l2=0.1, **bounds)
    plan = rd.plan(problem, rd.star(3), BUDGET, algorithm="relay-gradient", objective="loss", activations=4)
    assert plan.expected is None and plan.predicted > 0 and plan.clip == problem.gradient_bound()
    assert float(plan.steps.stretch) == 1.0 and (float(plan.steps.lap), float(plan.steps.closing)) == (4, 4)
    assert 1.0 - 1e-6 < plan.epsilon <= 1.0


WAYS = {
    "another algorithm": ({"algorithm": "recal"}, "the algorithm is 'recal'"),
    "random walk": ({"walk": "random"}, "walk='random' is random"),
    "paper steps": ({"steps": "paper"}, "steps were given"),
    "own steps": ({"algorithm": "relay-gradient", "steps": {"stepsize": 0.1}}, "steps were given"),
    "auto's steps": ({"steps": {"stepsize": 0.1}}, "steps were given"),
    "published": ({"mechanism": "published"}, "the mechanism is 'published'"),
    "ratio": ({"algorithm": "relay-gradient", "ratio": 1.5}, "ratio was given"),
    "no budget": ({"budget": None}, "there is no budget"),
}


@pytest.mark.parametrize(("options", "why"), WAYS.values(), ids=WAYS.keys())
def test_accuracy_that_cannot_be_planned_for_is_refused_and_not_ignored(options, why):
    problem = toy(record_norm=1.0, l2=0.1, clip=1.0)
    asked = {"budget": BUDGET, "seed": 0, "activations": 3, **UNMEASURED, **options}
    with pytest.raises(rd.errors.InputError, match=f"objective='accuracy': {why}"):
        rd.solve(problem, rd.ring(3), objective="accuracy", **asked)
    assert rd.solve(problem, rd.ring(3), **asked).status == "finished"  # where nothing was asked, as ever


def test_accuracy_with_a_prior_is_refused():
    problem, public = toy(record_norm=1.0, l2=0.1), toy(seed=5, record_norm=1.0, l2=0.1)
    with pytest.raises(rd.errors.InputError, match="a prior was given"):
        rd.plan(problem, rd.ring(3), BUDGET, objective="accuracy", prior=public)
    with pytest.raises(rd.errors.InputError, match="a prior was given"):
        rd.solve_alone(problem, BUDGET, objective="accuracy", prior=public)


def test_what_to_use_instead_keeps_the_budget():
    with pytest.raises(rd.errors.InputError, match="pass walk='tour'.*or use 'recal'"):
        rd.plan(FACTS, rd.ring(4), BUDGET, algorithm="relay-gradient", walk="random")
    problem = toy(record_norm=1.0, l2=0.1)
    with pytest.raises(rd.errors.PrivacyError, match="not defined for the default algorithm;.*Name one.*d-admm"):
        rd.solve(problem, rd.ring(3), mechanism="objective", budget=BUDGET, seed=0)


def test_objectives_that_make_no_sense_are_refused():
    with pytest.raises(rd.errors.InputError, match="has no accuracy"):
        rd.plan(HUBER, rd.ring(4), BUDGET, objective="accuracy")
    with pytest.raises(rd.errors.InputError, match="Did you mean 'accuracy'"):
        rd.plan(FACTS, rd.ring(4), BUDGET, objective="acuracy")
    with pytest.raises(rd.errors.InputError, match="has no accuracy"):
        rd.solve(toy("huber", record_norm=1.0), rd.ring(3), objective="accuracy")
