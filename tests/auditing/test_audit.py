"""Audits: bounds that hold, a sound claim that stands, a broken one that falls, and every sabotage that is caught."""

import json
import math
from dataclasses import replace

import jax
import numpy as np
import pytest
import typer
from effort import size
from scipy.stats import binom, kstest, norm
from typer.testing import CliRunner

import relaydp as rd
from relaydp.algorithm import ALGORITHMS
from relaydp.auditing import CANARIES, audit
from relaydp.auditing.bounds import epsilon_limit, lower_limit, mu_limit, upper_limit
from relaydp.auditing.canary import built_in, neighbours
from relaydp.auditing.noise import Seen, _as_normal, check_noise, clipped_means
from relaydp.auditing.scores import bound_epsilon, score_runs
from relaydp.auditing.trials import Evidence, collect
from relaydp.oracle.randomness import Simulated
from relaydp.planning.planner import make_plan
from relaydp.privacy import epsilon_exact

SOUND = sorted(n for n, method in ALGORITHMS.items() if "gradient" in method.mechanisms and method.data == "gradient")
ONE = rd.Budget(1.0, 1e-5)
SURE = 1 - 1e-8  # the confidence of audits of secret noise here: so rarely do sound ones fail


def quick(*args, **options):
    """Steps from the paper, equal shares: what planning finds is not what is tested here.

    Of a simulation: one audit of secret noise in a thousand is a false alarm, at the usual confidence.
    """
    usual = {"budget": ONE, "runs": 6000, "steps": "paper", "ratio": 1.0, "progress": False, "seed": 0}
    return audit(*args, **usual | options)


def gentle():
    """Records whose gradients are within the clip, and change with the model."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(6, 2))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    data = rd.Records(X, draw.uniform(-1.0, 1.0, 6))
    return rd.huber(data, 3, l2=0.1, record_norm=1.0, clip=1.0, threshold=10.0)


# -- bounds


@pytest.mark.parametrize(("trials", "p"), [(50, 0.02), (400, 0.3), (3000, 0.5), (3000, 0.999)])
def test_limits_hold_as_often_as_they_say(trials, p):
    """Exactly: the probability of all counts whose limit misses p is at most the doubt."""
    counts = np.arange(trials + 1)
    chance = binom.pmf(counts, trials, p)
    for doubt in (0.1, 0.001):
        assert chance[upper_limit(counts, trials, doubt) < p].sum() <= doubt
        assert chance[lower_limit(counts, trials, doubt) > p].sum() <= doubt


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("shift", [0.0, 0.7])
def test_the_gaussian_limit_holds_for_two_gaussians_at_any_threshold(mu, shift):
    """Two binomials with different rates, counted out: a refuted mu exceeds the true one no oftener than the doubt."""
    runs, doubt = 150, 0.01
    a, b = norm.cdf(mu / 2 - shift), norm.cdf(mu / 2 + shift)  # right under D, right under D'
    both = np.convolve(binom.pmf(np.arange(runs + 1), runs, a), binom.pmf(np.arange(runs + 1), runs, b))
    beyond = [mu_limit(k, 2 * runs, doubt) > mu for k in range(2 * runs + 1)]
    assert both[beyond].sum() <= doubt


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_the_epsilon_limit_holds_for_randomised_response(epsilon):
    """The mechanism that attains epsilon exactly: errors of 1/(1 + e^epsilon) on both sides."""
    error, runs, doubt = 1 / (1 + math.exp(epsilon)), 300, 0.05
    alarms, misses = np.random.default_rng(0).binomial(runs, error, (2, 5000))
    limits = epsilon_limit(alarms, runs, misses, runs, 0.0, doubt)
    assert np.mean(limits > epsilon) <= doubt
    assert limits.max() > 0.5 * epsilon


def test_perfect_separation_proves_what_the_number_of_runs_allows():
    assert math.isclose(epsilon_limit(0, 7500, 0, 7500, 0.0, 0.00025), math.log(7500 / math.log(8000)), rel_tol=2e-3)


# -- canaries


@pytest.mark.parametrize("canary", CANARIES)
def test_neighbours_differ_in_one_record_of_one_agent(canary):
    first, second, agent = neighbours(built_in(4, "gradient", 0), canary, agent=2, place=3)
    differ = (first.data.X != second.data.X).any(axis=1) | (first.data.y != second.data.y)
    assert differ.sum() == 1 and agent == 2 and differ[first.split.order[int(first.split.sizes[:2].sum()) + 3]]
    assert first.public_facts().clip == second.public_facts().clip


@pytest.mark.parametrize(("mechanism", "records"), [("gradient", 21), ("published", 1)])
def test_the_worst_canary_moves_the_mean_gradient_by_the_whole_sensitivity_wherever_the_run_goes(mechanism, records):
    first, second, _ = neighbours(built_in(3, mechanism, 0), "worst")
    clip = jax.numpy.asarray(1.0) if mechanism == "gradient" else None  # the published one has a slope to match
    for x in np.random.default_rng(0).normal(size=(20, 3)) * 100:
        a, b = (
            np.asarray(p.agent_records.gradient(jax.numpy.int32(0), jax.numpy.asarray(x), clip))
            for p in (first, second)
        )
        assert math.isclose(np.linalg.norm(a - b), 2.0 / records, rel_tol=1e-12)


def test_a_pair_of_ones_own_is_checked():
    D = built_in(3, "gradient", 0)
    with pytest.raises(rd.errors.InputError, match="differ in 0 records"):
        quick(problem=(D, D))
    with pytest.raises(rd.errors.InputError, match="same loss"):
        quick(problem=(D, built_in(3, "published", 0)))
    twice = replace(D, data=replace(D.data, y=-D.data.y))
    with pytest.raises(rd.errors.InputError, match="exactly one"):
        quick(problem=(D, twice))
    y = D.data.y.copy()
    y[3] = -y[3]
    report = quick(problem=(D, replace(D, data=replace(D.data, y=y))))
    assert report.canary == "given" and report.verdict == "consistent"


# -- claims


# a baton, copies, pushes, edges; the slow test below has all algorithms
@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["recal", "dgd", "rw-admm-linearised", "tripd-dist", "relay-gradient"])
def test_the_sound_mechanism_stands(name):
    report = quick(name, budget=rd.Budget(4.0, 1e-5))
    assert report.verdict == "consistent" and not report.refuted
    assert 0.5 * report.claimed < report.epsilon < report.claimed <= 4.0
    assert 0.75 * report.claimed < report.reach <= report.claimed * (1 + 1e-9)  # some keep their last round unsent


def test_a_true_claim_is_refuted_no_oftener_than_the_confidence_allows():
    """One experiment cut into 100 audits of 800 runs each, at 95 %: five false alarms at most, to be expected."""
    pair, graph = neighbours(built_in(3, "gradient", 0), "worst"), rd.ring(3)
    plan = make_plan(
        pair.first, graph, algorithm="recal", mechanism="gradient", budget=ONE, activations=3, walk="cyclic",
        steps="paper", key=jax.random.key(0), start=0, ratio=1.0, variant=None, noise=None,
    )  # fmt: skip
    sides = collect(pair, graph, plan, Simulated(1), 40_000)
    alarms = 0
    for k in range(100):
        part = slice(400 * k, 400 * (k + 1))
        scores, held_out = score_runs(*(Evidence(*(column[part] for column in side)) for side in sides), 100)
        bounds = [b for name in scores for b in bound_epsilon(name, *scores[name], held_out[name], 1e-5, 0.05 / 4)]
        alarms += max(bound.epsilon for bound in bounds) > 1.0
    assert alarms <= 5


@pytest.mark.sample(1)
@pytest.mark.parametrize("variant", ["memoryless", "carried", "replace"])
def test_the_published_mechanism_falls(variant):
    report = quick(mechanism="published", variant=variant, runs=20_000)
    assert report.refuted and math.isclose(report.claimed, 1.0, rel_tol=1e-9)
    assert report.epsilon > 5.0 and report.best("any").epsilon == report.epsilon
    assert report.best("any").false_alarms == report.best("any").misses == 0


def test_an_ordinary_record_shows_less_than_the_worst():
    for canary in size(("mislabelled", "stranger", "turned"), ("stranger",)):
        report = quick(problem=gentle(), canary=canary, budget=rd.Budget(4.0, 1e-5), seed=0, activations=6)
        assert report.verdict == "consistent" and report.reach < 0.8 * report.claimed


def test_noise_in_the_objective_stands():
    """Its claim is no claim of mu-GDP, so only the bound for any mechanism counts."""
    report = quick("d-admm", "objective", budget=rd.Budget(4.0, 1e-5), ratio=None, activations=3)
    assert report.verdict == "consistent" and report.reach is None
    assert 0.0 < report.epsilon == report.best("any").epsilon < report.claimed
    assert report.sentence.count("A simulation was audited: no other runs have noise in the objective") == 1


def test_an_audit_of_noise_in_the_objective_has_another_seed_each_time():
    options = {"seed": None, "ratio": None, "activations": 2, "runs": 400, "first_layer": False}
    one, two = (quick("d-admm", "objective", **options) for _ in range(2))
    assert one.noise == two.noise == "seed" and one.scores["ratio"][0][0] != two.scores["ratio"][0][0]


def test_a_users_problem_is_audited_with_its_own_loss():
    draw = np.random.default_rng(0)
    X = draw.normal(size=(12, 3))
    data = rd.Records(X, np.sign(X[:, 0]))
    report = quick(problem=rd.logistic(data, agents=3, l2=0.1, record_norm=1.0), budget=rd.Budget(4.0, 1e-5))
    assert report.verdict == "consistent" and report.agents == 3
    # opposite labels of a logistic loss differ by ||a||, half of what clipping allows
    assert math.isclose(report.reach, epsilon_exact(rd.Budget(4.0, 1e-5).rho / 4, 1e-5), rel_tol=1e-6)


def test_the_rules_clip_is_enforced_and_charged():
    """Of a classifier, far below the bound: nearly everywhere opposite labels then differ by 2c, and not by ||a||. The
    first release, of mean records, is looked at as well."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(30, 3))
    problem = rd.logistic(rd.Records(X, np.sign(X[:, 0])), agents=3, record_norm=1.0)
    plan = rd.plan(problem, rd.ring(3), ONE, activations=20, seed=0)
    assert plan.for_accuracy and plan.preparing == 3 and plan.clip < 0.5 * problem.gradient_bound()
    options = {"problem": problem, "budget": ONE, "steps": "tuned", "ratio": None, "activations": 20}
    report = quick("relay-gradient", **options)
    assert report.verdict == "consistent" and all(check.passed for check in report.checks)
    assert [check.name for check in report.checks][:2] == ["price", "values"] and len(report.checks) == 12
    assert 0.8 * report.claimed < report.reach <= report.claimed and report.epsilon < report.claimed


def test_coordinates_that_a_prox_hides_are_left_out():
    """Behind an l1 prox the models that are sent have zeros; there is less to see, and nothing is made up."""
    l1 = replace(built_in(3, "gradient", 0), regulariser=rd.prox.l1(0.2))
    report = quick("pg-admm", problem=l1, budget=rd.Budget(4.0, 1e-5))
    assert report.verdict == "consistent" and 0 < report.reach < report.claimed


def test_a_random_walk_with_relays_is_audited_as_well():
    report = quick(graph=rd.star(4), walk="random", budget=rd.Budget(4.0, 1e-5))
    assert report.verdict == "consistent" and report.epsilon > 0.5 * report.claimed
    assert math.isclose(report.reach, report.claimed, rel_tol=1e-6)


def test_scores_and_bounds_agree_with_another_auditor():
    """jax-privacy's CanaryScoreAuditor on the same scores: the same bound for any mechanism, and its limits for mu."""
    auditing = pytest.importorskip("jax_privacy.auditing")
    report = quick(budget=rd.Budget(4.0, 1e-5), runs=40_000)
    doubt = 0.9 * (1 - report.confidence) / 4  # the first layer has a tenth
    for score in ("ratio", "learnt"):
        inside, outside = report.scores[score]
        other = auditing.CanaryScoreAuditor(inside, outside)
        ours = {bound.kind: bound for bound in report.bounds if bound.score == score}
        theirs = other.epsilon_clopper_pearson(
            doubt, report.delta, one_sided=False, threshold_strategy=auditing.Explicit(ours["any"].threshold)
        )
        assert math.isclose(ours["any"].epsilon, theirs, rel_tol=1e-9)
        # Their epsilon_from_gdp (2.0.0) takes |mu| where upper limits allow the signed one only, and reports 3 for two
        # equal distributions. Its own limits, signed, pay for two rates; ours for their mean.
        alarms, misses, runs = ours["gaussian"].false_alarms, ours["gaussian"].misses, ours["gaussian"].runs
        fpr, fnr = (auditing._clopper_pearson_upper(k, runs, doubt / 2) for k in (alarms, misses))
        mu = norm.isf(fpr) - norm.ppf(fnr)
        assert 0.9 * ours["gaussian"].mu < mu < ours["gaussian"].mu < math.sqrt(2 * rd.Budget(4.0, 1e-5).rho)


# -- the first layer


@pytest.mark.sample(2)
@pytest.mark.parametrize(("name", "mechanism"), [("recal", "gradient"), ("nids", "gradient"), ("d-admm", "objective")])
@pytest.mark.parametrize("seed", [None, 3], ids=["secret", "seed"])
def test_sound_noise_passes_every_check(name, mechanism, seed):
    sure = SURE if seed is None else 0.999
    report = quick(name, mechanism, seed=seed, ratio=None, runs=400, confidence=sure)
    assert [check.name for check in report.checks] == [
        "price", "values", "size", "centre", "releases", "runs", "shape",
    ]  # fmt: skip
    assert all(check.passed for check in report.checks) and report.verdict == "consistent"
    private = seed is None and mechanism == "gradient"
    assert report.activations * report.agents >= 60 and report.noise == ("secret" if private else "seed")
    assert ("A simulation was audited" in report.sentence) == (not private)


def test_a_sound_mechanism_fails_no_oftener_than_its_doubt():
    """500 audits of normal noise at 10 %: what fails is 10 % at most, and not nothing, or the checks would be idle."""
    draw = np.random.default_rng(0)
    agent, hop = np.arange(12) % 3, np.arange(12)
    fails = 0
    for _ in range(500):
        seen = Seen(draw.normal(size=(24, 12, 3)), np.arange(24) % 4, agent, hop)
        fails += not all(check.passed for check in check_noise(seen, 0.1))
    assert 0 < fails <= 70  # 50 expected at most, and three deviations


def with_noise(change):
    """The checks of `check_noise` that fail on normal noise after this change to it."""
    draw = np.random.default_rng(1)
    z = draw.normal(size=(224, 60, 3))
    seen = Seen(change(z), np.arange(224) % 7, np.arange(60) % 3, np.arange(60))
    return {check.name for check in check_noise(seen, 1e-4) if not check.passed}


def bare(z):
    z[:, 49] = 0.0
    return z


def repeated(z):
    z[:, 12:] = z[:, :-12]
    return z


def once_more(z):
    z[100, 30] = z[5, 7]
    return z


def shifted(z):
    z[np.arange(224) % 7 == 3, :, 0] += 0.3
    return z


def heavy(z):
    draw = np.random.default_rng(2)
    return draw.laplace(size=z.shape) / math.sqrt(2)


def shared(z):
    z[:, :, 1] = 0.7 * z[:, :, 1] + math.sqrt(0.51) * z[:, :, 0]
    return z


WRONG = {
    "0.95": (lambda z: 0.95 * z, {"size"}),
    "one hop in fifty": (bare, {"size"}),
    "every twelve hops": (repeated, {"releases", "runs"}),
    "one vector twice": (once_more, {"runs"}),
    "one data set": (shifted, {"centre"}),
    "another law": (heavy, {"shape"}),
    "between coordinates": (shared, {"shape"}),
    "no number": (lambda z: np.where(z > 4.0, np.nan, z), {"size", "centre", "releases", "runs", "shape"}),
}


@pytest.mark.parametrize(("change", "expected"), WRONG.values(), ids=WRONG.keys())
def test_each_check_sees_what_it_is_for(change, expected):
    assert with_noise(change) >= expected


def test_noise_in_the_objective_is_mapped_to_normal_noise():
    draw = np.random.default_rng(0)
    direction = draw.normal(size=(40_000, 5))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    e = direction * draw.gamma(5.0, size=(40_000, 1))
    assert kstest(_as_normal(e).ravel(), "norm").pvalue > 1e-3
    assert kstest(_as_normal(0.9 * e).ravel(), "norm").pvalue < 1e-6


@pytest.mark.sample(2)
@pytest.mark.parametrize("loss", ["logistic", "huber", "softmax", "custom"])
def test_the_auditors_clipped_mean_is_the_engines(loss):
    """Two ways to one number: record by record in NumPy, and the package's own."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(17, 4))
    options = {"l2": 0.1, "record_norm": 2.0, "clip": 0.3}
    y = {"softmax": np.arange(17) % 3, "logistic": np.sign(X[:, 0])}.get(loss, 3 * X[:, 1])
    if loss == "custom":
        options = {"l2": 0.1, "clip": 0.3, "smoothness": 5.0}
        problem = rd.custom(lambda x, a, b: 0.5 * (a @ x - b) ** 2, rd.Records(X, y), [5, 9, 3], **options)
    else:
        problem = getattr(rd, loss)(rd.Records(X, y), [5, 9, 3], intercept=True, **options)
    agents, points = np.array([2, 0, 1, 1]), draw.normal(size=(4, problem.dim))
    ours = clipped_means(problem, agents, points, 0.3)
    for i, point, row in zip(agents, points, ours, strict=True):
        engine = problem.agent_records.gradient(jax.numpy.int32(i), jax.numpy.asarray(point), jax.numpy.asarray(0.3))
        assert np.allclose(engine, row, rtol=0, atol=1e-14)


def test_a_prox_that_hides_coordinates_leaves_the_noise_unlooked_at():
    l1 = replace(built_in(3, "gradient", 0), regulariser=rd.prox.l1(0.2))
    report = quick("pg-admm", problem=l1, runs=400)
    assert [check.name for check in report.checks] == ["price", "values"]


# -- sabotage: what the second layer catches by itself (`mutants.py` has the first's, and many more)


@pytest.fixture
def fresh_programs():
    """A step that was compiled before would not notice that something is planted, nor forget it afterwards."""
    jax.clear_caches()
    yield
    jax.clear_caches()


def blind(*args, **options):
    return quick(*args, first_layer=False, seed=0, **options)


def test_audit_catches_halved_noise(monkeypatch, fresh_programs):
    from relaydp.oracle import oracle

    release = oracle.release
    monkeypatch.setattr(oracle, "release", lambda value, scale, key: release(value, 0.5 * scale, key))
    report = blind()
    assert report.refuted and report.best("gaussian").epsilon > report.claimed
    assert report.best("gaussian").mu > math.sqrt(2 * ONE.rho)
    looked = quick(seed=0)
    assert looked.refuted and looked.runs == 0 and not next(c for c in looked.checks if c.name == "size").passed
    assert "0.5 of its scale" in looked.sentence or "all have 0.5" in looked.sentence or "0.49" in looked.sentence


def test_audit_catches_noise_used_twice_between_agents(monkeypatch):
    """One key for all activations of a run: the other agents' releases give the noise away, and it is subtracted."""
    monkeypatch.setattr(jax.random, "fold_in", lambda key, data: key)
    report = blind()
    assert report.refuted and report.best("any").score == "learnt" and report.epsilon > 4.0
    ratio = next(bound for bound in report.bounds if (bound.score, bound.kind) == ("ratio", "any"))
    assert ratio.epsilon < report.claimed, "the likelihood ratio of the claimed mechanism does not see it"


def test_audit_catches_noise_used_twice_by_one_agent(monkeypatch):
    """In rounds each agent has its own noise, here the same in every round: differences between rounds are bare."""
    monkeypatch.setattr(jax.random, "fold_in", lambda key, data: key)
    report = blind("nids", problem=gentle(), canary="stranger", activations=6)
    assert report.refuted and report.best("any").score == "learnt" and report.epsilon > 4.0


def test_audit_catches_a_plan_that_looked_at_the_records(monkeypatch):
    """Steps from measured curvatures: the plans for D and D' differ, and a plan is public."""
    from relaydp.problem import Problem

    monkeypatch.setattr(Problem, "public_facts", Problem.measured_facts)
    report = quick()
    assert report.refuted and report.epsilon == math.inf and report.runs == 0
    assert "steps.alpha" in report.sentence and report.summary()["epsilon_lower_bound"] is None


def test_audit_catches_a_dropped_clip(monkeypatch):
    from relaydp.problem import AgentRecords

    gradient = AgentRecords.gradient
    monkeypatch.setattr(AgentRecords, "gradient", lambda self, i, x, clip: gradient(self, i, x, None))
    report = blind()
    assert report.refuted and report.epsilon > 2.0 and report.reach > 5.0


# -- report and command


def test_a_report_is_plain_json_and_one_sentence():
    report = quick(runs=2000, activations=2, seed=None, confidence=SURE)
    assert json.loads(json.dumps(report.summary(), allow_nan=False))["verdict"] == report.verdict
    assert str(report) == report.sentence and "99.999999 % confidence" in report.sentence
    assert len(report.bounds) == 4 and {bound.kind for bound in report.bounds} == {"any", "gaussian"}
    one, two = (quick(runs=2000, activations=2, seed=7) for _ in range(2))
    assert one.bounds == two.bounds and one.checks == two.checks and one.noise == "seed" != report.noise
    assert "99.9 % confidence" in one.sentence


BAD = {
    "mechanism": (dict(mechanism="gradients"), "Did you mean 'gradient'"),
    "algorithm": (dict(algorithm="recall"), "Did you mean 'recal'"),
    "canary": (dict(canary="worse"), "Did you mean 'worst'"),
    "runs": (dict(runs=10), "runs=10"),
    "confidence": (dict(confidence=99.9), "confidence=99.9"),
    "budget": (dict(budget=1.0), "it must be Budget"),
    "seed": (dict(seed=-1), "seed=-1"),
    "walk": (dict(walk="lazy"), "another walk"),
    "memory": (dict(runs=10_000_000, activations=100), "fewer runs"),
    "exact argmin": (dict(algorithm="d-admm"), "use 'ic-admm'"),
}


@pytest.mark.parametrize(("options", "message"), BAD.values(), ids=BAD.keys())
def test_bad_arguments_are_named_with_their_cure(options, message):
    with pytest.raises(rd.errors.RelayError, match=message):
        quick(**options)


def test_the_command_says_its_verdict_in_its_exit_code():
    from relaydp.cli.audit import audit as command
    from relaydp.cli.main import Front

    app = typer.Typer(cls=Front)
    app.command("audit")(command)
    app.command("other")(lambda: None)
    call = lambda *words: CliRunner().invoke(app, ["audit", "--runs", "2000", "--activations", "2", *words])  # noqa: E731
    fine = call("--epsilon", "4", "--seed", "0")
    assert fine.exit_code == 0 and fine.stdout.startswith("consistent")
    refuted = call("--mechanism", "published", "--json")
    assert refuted.exit_code == 1 and json.loads(refuted.stdout)["verdict"] == "refuted"
    wrong = call("--canary", "budgie")
    assert wrong.exit_code == 2 and "must be one of" in wrong.stderr
    assert call("--help").exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dgd", "ic-admm"])
def test_published_claims_that_hold_the_state_equal_fall_in_longer_runs(name):
    """Each round's copy carries all earlier gradients, and the account charges for one."""
    assert quick(name, "published", runs=60_000, activations=30, steps="tuned").refuted


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_the_bound_is_close_to_a_sound_claim(epsilon):
    """100,000 runs, 99.9 %: never above the claim, and at least 0.7 of it for the worst canary."""
    for seed in range(3):
        report = audit(budget=rd.Budget(epsilon, 1e-5), progress=False, seed=seed)
        assert 0.7 * report.claimed < report.epsilon < report.claimed


@pytest.mark.slow
@pytest.mark.parametrize("name", SOUND)
def test_the_bound_is_close_to_a_sound_claim_for_every_algorithm(name):
    report = audit(name, budget=ONE, progress=False, seed=0)
    assert 0.7 * report.claimed < report.epsilon < report.claimed
