"""Runs whose agents are seen in sums only: the masked relay, and a curator."""

from dataclasses import replace
from itertools import combinations

import jax
import numpy as np
import pytest
from test_preparation import BUDGET, UNMEASURED, toy
from typer.testing import CliRunner

import relaydp as rd
from relaydp.algorithm import ALGORITHMS
from relaydp.arrays import placed
from relaydp.auditing.coalition import addition, honest_laps, honest_of, lap_units
from relaydp.auditing.noise import clipped_means
from relaydp.cli.main import app
from relaydp.engine import loop
from relaydp.engine.preparation import paced, start_of
from relaydp.errors import InputError, PrivacyError
from relaydp.oracle.randomness import Secret, Simulated
from relaydp.privacy.proven import SPARE
from relaydp.privacy.trust import hidden, trust_of

LARGE = rd.Budget(900.0, 1e-5)  # hardly any noise


def planned(problem, graph, **whom):
    return rd.plan(problem, graph, BUDGET, seed=0, **whom)


def test_with_all_others_colluding_it_is_trust_in_nobody_bit_for_bit():
    problem = toy()
    nobody = rd.solve(problem, rd.ring(3), budget=BUDGET, seed=0, **UNMEASURED)
    most = rd.solve(problem, rd.ring(3), budget=BUDGET, seed=0, collusion=2, **UNMEASURED)
    assert (most.x == nobody.x).all() and most.plan == nobody.plan and most.guarantee == nobody.guarantee


def test_the_order_of_a_lap_changes_no_bit():
    problem = toy()

    def model(graph, **options):
        return rd.solve(problem, graph, budget=BUDGET, seed=3, collusion=1, **UNMEASURED, **options).x

    first = model(rd.ring(3))
    assert (model(rd.ring(3), start=2) == first).all()
    assert (model(rd.path(3), start=1) == first).all()
    assert (model(rd.complete(3), walk="cyclic") == first).all()


@pytest.mark.parametrize("whom", [{"collusion": 1}, {"collusion": 1, "quorum": 3}, {"trust": "curator"}])
def test_a_seed_gives_the_same_run_alone_and_in_a_sweep(whom):
    problem = toy()
    found = rd.sweep(problem, rd.star(3), [3, 4], [BUDGET], progress=False, **whom)
    for row, seed in enumerate((3, 4)):
        alone = rd.solve(problem, rd.star(3), budget=BUDGET, seed=seed, **UNMEASURED, **whom)
        assert found.x[row] == pytest.approx(alone.x, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("collusion", [1, 2, 3])
def test_a_plan_charges_for_the_noise_that_any_coalition_leaves(collusion):
    """Also where agents differ in size: then the smaller add more, and nobody less than it needs."""
    data = rd.load_data("breast-cancer")
    problem = rd.logistic(data, agents=[60, 100, 140, 156], record_norm=2.0)
    plan = rd.plan(problem, rd.ring(4), rd.Budget(1.0, 1e-4), collusion=collusion)
    nobody = rd.plan(problem, rd.ring(4), rd.Budget(1.0, 1e-4))
    assert plan.epsilon == pytest.approx(1.0, rel=1e-6) and plan.epsilon <= 1.0
    total, most = (plan.scales[1] ** 2).sum(), (nobody.scales[1] ** 2).sum()
    if collusion == 3:
        assert (plan.scales == nobody.scales).all()
        return
    assert total < most
    left = hidden(plan.scales, 4 - collusion)
    assert left == pytest.approx(plan.behind, rel=1e-12)
    charged = np.array([[plan.ledger.events(i)[t].scale for i in range(4)] for t in (0, 1, 50)])
    assert charged == pytest.approx(left[[0, 1, 50]], rel=1e-12)
    spent = ((plan.sensitivity / left) ** 2 / 2).sum(axis=0)
    assert (spent <= rd.Budget(1.0, 1e-4).rho).all()
    assert spent.max() == pytest.approx(rd.Budget(1.0, 1e-4).rho, rel=1e-6)


def test_fewer_in_a_lap_take_more_noise():
    problem, graph = rd.logistic(rd.load_data("breast-cancer"), agents=6, record_norm=2.0), rd.ring(6)
    every = [rd.plan(problem, graph, BUDGET, collusion=1, quorum=h).scales[1, 0] for h in (6, 5, 4, 3)]
    ratio = np.array(every) / every[0]
    assert ratio == pytest.approx(np.sqrt([1.0, 5 / 4, 5 / 3, 5 / 2]), rel=1e-9)


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_messages_tell_whole_laps_and_nothing_of_one_agent(loss):
    """Nobody sees a part of a sum: what is kept of a run has the mean of each lap, and else zeros."""
    problem, graph = toy(loss), rd.path(3)  # whose laps pass agents that do not act again
    result = rd.solve(problem, graph, budget=BUDGET, seed=1, collusion=1, **UNMEASURED)
    sent, plan = result.transcript, planned(problem, graph, collusion=1)
    lap = int(plan.steps.lap)
    closes = np.arange(len(sent.x)) % lap == int(plan.steps.closing) - 1
    assert plan.preparing == lap and len(sent.x) == len(plan.route)
    assert sent.first[closes][0].any() and not sent.first[~closes].any()
    assert not sent.total[~closes].any() and sent.total[closes][1:].any(axis=1).all()
    assert (np.diff(sent.x[lap:], axis=0)[~closes[lap + 1 :]] == 0).all()  # the model moves where a lap ends


def test_what_a_lap_says_is_the_mean_of_clipped_gradients_and_the_noise_of_all():
    """In secret runs too, whose additions only their own agents and this test see."""
    problem, graph = toy(), rd.ring(3)
    plan, everybody = planned(problem, graph, collusion=1), np.ones(3, bool)
    for source in (Simulated(5), Secret(0)):
        outcome = loop.run(problem, graph, plan, np.zeros(problem.dim), source, True, None, addition)
        change = outcome.coordinates
        first = outcome.added.sum(axis=0) * plan.lattices[0].step / 3
        assert outcome.released == pytest.approx(first[None], rel=1e-12, abs=1e-15)
        start = start_of(plan, change, placed(np.zeros(problem.dim)))
        steps = jax.tree.map(placed, paced(plan.steps, change))
        sent = jax.tree.map(placed, outcome.sent)
        laps = honest_laps(plan, problem.terms, steps, start, sent, placed(outcome.inside), everybody)
        said = outcome.inside.reshape(100, 3, -1).sum(axis=1) * lap_units(plan)[:, None]
        assert np.asarray(laps.total) == pytest.approx(said, rel=1e-12, abs=1e-15)
        points = np.repeat(np.asarray(laps.point), 3, axis=0)
        means = clipped_means(problem, np.tile(np.arange(3), 100), points, plan.clip, change)
        noise = np.asarray(laps.total) - means.reshape(100, 3, -1).sum(axis=1)
        z = noise / np.sqrt((plan.scales[1:] ** 2).sum(axis=1))[:, None]
        assert 0.85 < z.std() < 1.15 and abs(z.mean()) < 0.2


@pytest.mark.parametrize("whom", [{"collusion": 1}, {"collusion": 1, "quorum": 3}, {"trust": "curator"}])
def test_rounding_to_the_lattice_is_paid_for_whoever_colludes(whom):
    """In steps, how far one record moves a lap's sum, rounding included, over the noise that any coalition leaves: less
    than what is charged for, as the proof in `privacy.secret` needs."""
    data = rd.load_data("breast-cancer")
    problem = rd.logistic(data, agents=[60, 100, 140, 156], record_norm=2.0)
    plan = rd.plan(problem, rd.ring(4), BUDGET, limits={1: 0.4}, **whom)
    t, h = plan.trust.collusion, plan.trust.quorum
    for lap in (0, 1, plan.activations - 1):
        step, r, L = plan.lattices[lap]
        added, charged = r * 2.0**L, plan.sensitivity / plan.behind[lap]
        moved = plan.sensitivity / step * (1 + 2.0**-51) + np.sqrt(plan.released)
        for size in range(h, 5):
            for members in combinations(range(4), size):
                for honest in map(list, combinations(members, size - t)):
                    noise = np.sqrt((added[honest] ** 2).sum())
                    assert (moved[honest] / noise <= charged[honest] / (1 + SPARE)).all()


@pytest.mark.parametrize("case", ["least squares", "l1", "softmax", "intercept", "ridge"])
def test_with_hardly_any_noise_it_minimises_f(case):
    data, graph = rd.load_data("breast-cancer"), rd.ring(4)
    problem = {
        "least squares": lambda: rd.least_squares(data, 4, l2=0.1, record_norm=1.0, label_bound=1.0, clip=4.0),
        "l1": lambda: rd.least_squares(data, 4, l1=0.02, l2=0.1, record_norm=1.0, label_bound=1.0, clip=4.0),
        "softmax": lambda: rd.softmax(data, 4, l2=0.1, record_norm=1.0),
        "intercept": lambda: rd.logistic(data, 4, l2=0.1, record_norm=1.0, intercept=True),
        "ridge": lambda: rd.logistic(data, 4, l2=0.1, record_norm=1.0),
    }[case]()
    found = rd.solve(problem, graph, budget=LARGE, seed=0, collusion=1, activations=150, objective="loss", trace=False)
    best = rd.minimise(problem)
    start = float(problem.objectives(np.zeros((1, problem.dim)))[0])
    excess = float(problem.objectives(found.x[None])[0]) - best.value
    assert excess < 2e-3 * (start - best.value)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"walk": "random"}, InputError, "every connected graph has\\.$"),
        ({"algorithm": "recal"}, InputError, "asked at one point"),
        ({"mechanism": "published"}, PrivacyError, "not defined for"),
        ({"budget": None}, PrivacyError, "needed a budget"),
        ({"budget": rd.Budget(1.0, 0.5), "seed": None}, PrivacyError, "less than 1/"),
    ],
)
def test_what_has_no_sums_is_refused(options, error, words):
    asked = {"budget": BUDGET, "seed": 0, "collusion": 1} | options
    with pytest.raises(error, match=words):
        rd.solve(toy(), rd.ring(3), **asked, **UNMEASURED)


def test_a_gradient_alone_is_not_answered_where_only_sums_are_seen(monkeypatch):
    """A step that asks for it would release it with a share of the noise."""

    def greedy(setting, steps, state, turn):
        setting.gradient(state.baton.x)
        raise AssertionError("it was answered")

    method = ALGORITHMS["relay-gradient"]
    plan = replace(planned(toy(), rd.ring(3), collusion=1), algorithm=replace(method, step=greedy))
    with pytest.raises(PrivacyError, match="seen in sums only"):
        loop.run(toy(), rd.ring(3), plan, np.zeros(5), Simulated(0), False)


def test_an_algorithm_of_ones_own_has_no_promise_about_sums(monkeypatch):
    """Its step could send what one agent adds, with a share of the noise."""
    method = ALGORITHMS["relay-gradient"]

    def telling(setting, steps, state, turn):
        after, sent = method.step(setting, steps, state, turn)
        told = sent if setting.sums is None else sent._replace(total=setting.sums.opened(after.added, sent.x))
        return after, told

    monkeypatch.setitem(ALGORITHMS, "telling", replace(method, name="telling", step=telling))
    with pytest.raises(PrivacyError, match="an algorithm of your own"):
        rd.solve(toy(), rd.ring(3), "telling", budget=BUDGET, collusion=1, **UNMEASURED)
    simulated = rd.solve(toy(), rd.ring(3), "telling", budget=BUDGET, collusion=1, seed=0, **UNMEASURED)
    assert not simulated.private


def test_a_curator_needs_the_least_noise_and_is_compared_with_all_records():
    problem = toy()
    curator = rd.plan(problem, rd.ring(3), BUDGET, trust="curator")
    one = rd.logistic(problem.data, agents=1, record_norm=1.5)
    alone = rd.plan(one, rd.complete(1), BUDGET)
    noise = np.sqrt((curator.scales[1] ** 2).sum()) / 3
    assert noise >= alone.scales[1, 0]  # of agents of different sizes the smallest decides
    result = rd.solve(problem, rd.ring(3), budget=BUDGET, trust="curator", **UNMEASURED)
    assert result.private and "published" in result.guarantee
    with pytest.raises(PrivacyError, match="600 records"):
        rd.solve(problem, rd.ring(3), budget=rd.Budget(1.0, 0.004), trust="curator", **UNMEASURED)


def test_a_private_run_says_whom_it_is_against_everywhere(tmp_path):
    result = rd.solve(toy(), rd.ring(3), budget=BUDGET, collusion=1, **UNMEASURED)
    assert result.private and "any one of the 3 agents" in result.guarantee
    told = rd.load_result(result.save(tmp_path / "run"))
    assert told.trust == result.trust == trust_of(None, 1, None, 3) and told.guarantee == result.guarantee
    certificate = result.certificate()
    assert certificate["trust"]["collusion"] == 1 and "computational" in certificate["threat_model"]["adversary"]
    assert any("colluded" in text for text in certificate["assumed"])
    assert rd.privacy.verify(result.ledger.to_json(), 1e-5).holds
    assert result.ledger.trust == result.trust


def test_ledger_verify_says_whom_it_is_against(tmp_path):
    result = rd.solve(toy(), rd.ring(3), budget=BUDGET, collusion=1, **UNMEASURED)
    said = CliRunner().invoke(app, ["ledger", "verify", str(result.save(tmp_path / "run"))])
    assert said.exit_code == 0 and f"against {result.trust.against}" in said.stdout


def test_an_account_says_whom_its_runs_are_against():
    account = rd.PrivacyAccount(4.0, 1e-5)
    for whom in ({}, {"collusion": 1}, {"trust": "curator"}):
        rd.solve(toy(), rd.ring(3), budget=BUDGET, account=account, **UNMEASURED, **whom)
    plain, masked, curator = (fit.what for fit in account.fits)
    assert masked == f"{plain}, at most 1 collude" and curator == f"{plain}, trusted curator"


def test_an_accounts_delta_is_compared_with_all_that_a_curator_has():
    problem = toy()
    most, least = int(problem.split.sizes.sum()), int(problem.split.sizes.max())
    account = rd.PrivacyAccount(4.0, 0.5 / most + 0.5 / least)
    rd.solve(problem, rd.ring(3), budget=BUDGET, account=account, **UNMEASURED)
    with pytest.raises(PrivacyError, match=f"agent with {most} records"):
        rd.solve(problem, rd.ring(3), budget=BUDGET, account=account, trust="curator", **UNMEASURED)


def test_a_saved_simulation_is_repeated_with_its_trust(tmp_path):
    result = rd.solve(toy(), rd.ring(3), budget=BUDGET, collusion=1, seed=2, **UNMEASURED)
    again = rd.rerun(result.save(tmp_path / "run"), problem=toy())
    assert (again.x == result.x).all() and again.trust == result.trust


def test_noise_too_small_for_64_bits_is_refused():
    facts = rd.public_facts([10**7] * 4, features=3, loss="logistic", record_norm=1.0)
    with pytest.raises(PrivacyError, match="64 bits"):
        rd.plan(facts, rd.ring(4), rd.Budget(500.0, 1e-20), collusion=1)


def test_a_thousand_parties():
    draw = np.random.default_rng(0)
    X = draw.normal(size=(4000, 3)) / 2
    data = rd.Records(X, np.sign(X[:, 0]), classes=(-1, 1))
    problem = rd.logistic(data, agents=1000, record_norm=1.0)
    result = rd.solve(
        problem, rd.ring(1000), budget=rd.Budget(2.0, 1e-5), collusion=10, activations=12, transcript=False, trace=False
    )
    assert result.private and problem.accuracies(result.x[None])[0] > 0.9


def test_the_worst_coalition_is_that_of_those_who_add_most():
    data = rd.load_data("breast-cancer")
    problem = rd.logistic(data, agents=[60, 100, 140, 156], record_norm=2.0)
    plan = planned(problem, rd.ring(4), collusion=2)
    for victim in range(4):
        honest = honest_of(plan, victim)
        left = np.sqrt((plan.scales[:, honest] ** 2).sum(axis=1))
        assert honest[victim] and honest.sum() == 2
        assert left == pytest.approx(plan.behind[:, victim], rel=1e-12)
