"""What releases cost, against known numbers, against dp-accounting, and against the laws they must obey."""

import ast
import json
import math
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import relaydp.privacy as privacy
from relaydp.errors import InputError, PrivacyError
from relaydp.privacy import (
    Budget,
    Ledger,
    Release,
    delta_exact,
    epsilon_exact,
    epsilon_paper,
    gaussian_rho,
    gaussian_scale,
    geometric,
    optimal,
    published_first_scale,
    published_rho,
    published_scales,
    rho_for,
)
from relaydp.privacy.mechanism import clip_factor, release, scaled

jax.config.update("jax_enable_x64", True)

rhos = st.floats(-12, 4).map(lambda x: 10.0**x)
deltas = st.one_of(st.floats(-300, -1).map(lambda x: 10.0**x), st.floats(0.1, 0.999))


# --- the package itself


def test_public_names_are_all_there_and_sorted():
    assert privacy.__all__ == sorted(privacy.__all__)
    assert all(hasattr(privacy, name) for name in privacy.__all__)


def test_only_what_adds_noise_imports_jax_and_nothing_imports_our_other_packages():
    for path in Path(str(privacy.__file__)).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                noisy = path.name in ("mechanism.py", "secret.py")
                assert not name.startswith("jax") or noisy
                if name == "relaydp._jax":  # JAX's settings
                    assert noisy
                    continue
                assert not name.startswith("relaydp") or name.startswith(("relaydp.errors", "relaydp.privacy"))


# --- accountant


def test_known_numbers():
    # Section 8 of our notes on the paper; the paper's experiments run at epsilon 12, delta 1e-3.
    assert rho_for(12, 1e-3, "paper") == pytest.approx(2.9586, abs=5e-5)
    assert epsilon_exact(2.9586, 1e-3) == pytest.approx(9.835, abs=1e-3)
    assert epsilon_exact(rho_for(1, 1e-3, "paper"), 1e-3) == pytest.approx(0.62, abs=5e-3)
    less_noise = 1 - math.sqrt(rho_for(1, 1e-3, "paper") / rho_for(1, 1e-3))
    assert less_noise == pytest.approx(0.33, abs=5e-3)


@pytest.mark.parametrize(
    ("rho", "delta", "epsilon"),
    [  # equation (2) solved with mpmath at 400 digits
        (1e-12, 1e-300, 5.1737268308004962e-5),
        (0.5, 1e-05, 4.3771780956812246),
        (1e4, 0.999, 9561.9640863964696),
    ],
)
def test_extremes_match_many_digits(rho, delta, epsilon):
    assert epsilon_exact(rho, delta) == pytest.approx(epsilon, rel=1e-13)


def other_accountants(rho, delta, releases):
    """(PLD, RDP) epsilon by dp-accounting for `releases` equal Gaussian releases costing rho in all."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import dp_accounting
        from dp_accounting.pld import PLDAccountant
        from dp_accounting.rdp import RdpAccountant
    one = dp_accounting.GaussianDpEvent(math.sqrt(releases / (2 * rho)))
    answers = []
    for accountant in (PLDAccountant(value_discretization_interval=1e-3), RdpAccountant()):
        accountant.compose(dp_accounting.SelfComposedDpEvent(one, releases))
        answers.append(accountant.get_epsilon(delta))
    return answers


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.floats(-3, 1).map(lambda x: 10.0**x), st.floats(-8, -2).map(lambda x: 10.0**x), st.integers(1, 300))
def test_exact_agrees_with_dp_accounting(rho, delta, releases):
    ours = epsilon_exact(rho, delta)
    pld, rdp = other_accountants(rho, delta, releases)
    assert ours == pytest.approx(pld, rel=1e-3, abs=1e-4)  # 1e-4: a tenth of PLD's own grid
    assert ours <= pld + 1e-9  # PLD rounds up
    assert ours <= rdp
    assert ours <= epsilon_paper(rho, delta)


@settings(deadline=None)
@given(rhos, deltas)
def test_there_and_back(rho, delta):
    epsilon = epsilon_exact(rho, delta)
    assert 0 <= epsilon <= epsilon_paper(rho, delta)
    assert rho_for(epsilon_paper(rho, delta), delta, "paper") == pytest.approx(rho, rel=1e-10)
    if epsilon > 0:
        assert rho_for(epsilon, delta) == pytest.approx(rho, rel=1e-10)
        assert delta_exact(epsilon, rho) == pytest.approx(delta, rel=1e-9)
    else:
        assert delta_exact(0, rho) <= delta * (1 + 1e-12)


@settings(deadline=None)
@given(rhos, deltas, st.floats(1.001, 3))
def test_more_rho_costs_more_and_more_delta_costs_less(rho, delta, factor):
    epsilon = epsilon_exact(rho, delta)
    assert epsilon_exact(rho * factor, delta) >= epsilon
    assert epsilon_exact(rho, min(delta * factor, 0.9999)) <= epsilon
    if epsilon > 0:
        assert epsilon_exact(rho * factor, delta) > epsilon
        assert rho_for(epsilon * factor, delta) > rho
        assert delta_exact(epsilon * factor, rho) < delta


@settings(deadline=None)
@given(st.floats(0.01, 100), st.floats(0.01, 100), st.integers(1, 50))
def test_seven_releases_cost_seven_times_one(sensitivity, scale, times):
    one = gaussian_rho(sensitivity, scale)
    assert one == pytest.approx(sensitivity**2 / (2 * scale**2))
    assert gaussian_rho(sensitivity * math.sqrt(times), scale) == pytest.approx(times * one)
    assert gaussian_scale(sensitivity, one) == pytest.approx(scale)
    ledger = Ledger(1, math.inf)
    ledger.charge_many(0, np.arange(times), sensitivity, scale)
    assert ledger.rho == pytest.approx(times * one)
    assert ledger.epsilon(1e-5) == pytest.approx(epsilon_exact(float(times * one), 1e-5))


def test_the_ends_of_the_scale():
    assert epsilon_exact(0, 1e-5) == 0 and epsilon_exact(math.inf, 1e-5) == math.inf
    assert epsilon_exact(1e-3, 0.9) == 0
    assert delta_exact(1, 0) == 0 and delta_exact(1, math.inf) == 1 and delta_exact(1e9, 1e-3) == 0
    assert delta_exact(0, 0.5) == pytest.approx(2 * stats.norm.cdf(0.5) - 1)
    assert gaussian_rho([0, 1, 1], [0, 0, 2]).tolist() == [0, math.inf, 0.125]
    assert gaussian_scale([0, 1, 1], [0, 0, 0.125]).tolist() == [0, math.inf, 2]


@pytest.mark.parametrize("delta", [0, 1, -0.1, 2, math.nan, None, "a"])
def test_a_bad_delta_is_refused_with_the_usual_choice(delta):
    for call in (lambda: epsilon_exact(1, delta), lambda: rho_for(1, delta), lambda: Budget(1, delta)):
        with pytest.raises(PrivacyError, match=r"delta=.*(number of records|as a float)"):
            call()


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, None])
def test_a_bad_epsilon_is_refused(epsilon):
    for call in (lambda: rho_for(epsilon, 1e-5), lambda: Budget(epsilon, 1e-5)):
        with pytest.raises(PrivacyError, match="epsilon="):
            call()


@pytest.mark.parametrize("bad", [-1.0, math.nan])
def test_bad_rho_sensitivity_and_scale_are_refused(bad):
    for call in (
        lambda: epsilon_exact(bad, 1e-5),
        lambda: epsilon_paper(bad, 1e-5),
        lambda: delta_exact(1, bad),
        lambda: delta_exact(bad, 1),
        lambda: gaussian_rho([1, bad], 1),
        lambda: gaussian_rho(1, bad),
        lambda: gaussian_scale(1, bad),
        lambda: geometric(bad, 3),
        lambda: Ledger(1, bad),
    ):
        with pytest.raises(PrivacyError, match=str(bad)):
            call()
    with pytest.raises(PrivacyError, match="inf"):
        gaussian_rho(math.inf, 1)
    with pytest.raises(InputError, match="exact"):
        rho_for(1, 1e-5, "exakt")


def test_budget():
    budget = Budget(epsilon=12, delta=1e-3)
    assert budget == Budget(12.0, 0.001) == eval(repr(budget))
    assert isinstance(budget.epsilon, float)
    assert budget.rho_paper == pytest.approx(2.9586, abs=5e-5)
    assert epsilon_exact(budget.rho, budget.delta) == pytest.approx(12, rel=1e-12)
    assert "(12, 0.001)-DP" in str(budget)
    with pytest.raises(AttributeError):
        budget.epsilon = 13  # pyright: ignore[reportAttributeAccessIssue]


# --- schedules


@settings(deadline=None)
@given(rhos, st.integers(1, 3000), st.floats(0.5, 3))
def test_geometric_adds_up_to_the_last_bit(rho, activations, ratio):
    parts = geometric(rho, activations, ratio)
    assert math.fsum(parts) == rho
    assert len(parts) == activations and (parts > 0).all()
    if ratio > 1 + 1e-9:
        assert (np.diff(parts) >= 0).all()
    normal = parts[:-1] > 1e-290
    assert parts[1:][normal] / parts[:-1][normal] == pytest.approx(ratio, rel=1e-9)


def test_geometric_at_ratio_one_is_even_and_no_budget_is_no_budget():
    assert geometric(1.0, 4).tolist() == [0.25] * 4
    assert geometric(0.0, 3, 1.05).tolist() == [0.0] * 3


@settings(deadline=None)
@given(st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=20), st.randoms(use_true_random=False))
def test_no_other_split_beats_the_optimal_one(response, random):
    w, best = np.array(response), optimal(2.0, response)
    assert math.fsum(best) == 2.0
    other = np.array([random.uniform(0.1, 1) for _ in response]) * best
    assert (w / best).sum() <= (w / (2.0 * other / other.sum())).sum() * (1 + 1e-12)


def test_a_contraction_makes_the_optimal_split_geometric():
    theta, rounds = 0.8, 30
    response = theta ** np.arange(rounds, 0, -1)  # noise at t still counts theta^(T-t+1) at the end
    assert optimal(1.0, response) == pytest.approx(geometric(1.0, rounds, theta**-0.5), rel=1e-12)


@pytest.mark.parametrize("response", [[1.0, 0.0], [1.0, math.nan], [], [[1.0]]])
def test_a_useless_response_is_refused(response):
    with pytest.raises(InputError, match="response"):
        optimal(1.0, response)


@pytest.mark.parametrize("activations", [0, -1, 2.5])
def test_activations_are_whole_and_positive(activations):
    with pytest.raises(InputError, match="activations="):
        geometric(1.0, activations)


@pytest.mark.parametrize(("ratio", "rounds"), [(1.05, 300), (1.0, 300), (1.01, 2000), (1 + 1e-13, 50)])
def test_theorem_4_by_hand(ratio, rounds):
    alpha, beta, c, first = 0.3, 1 / 18, 2.0, 7.0
    # Lemma 6 and theorem 4, a release at a time: rho_t = 8 alpha^2 beta^2 c^2 / s_t^2, s_t^2 falling by R.
    total, variance = 0.0, first**2
    for _ in range(rounds):
        total += 8 * alpha**2 * beta**2 * c**2 / variance
        variance /= ratio
    claimed = published_rho(first, rounds, ratio, alpha=alpha, beta=beta, c=c)
    assert claimed == pytest.approx(total, rel=1e-11)
    back = published_first_scale(claimed, rounds, ratio, alpha=alpha, beta=beta, c=c)
    assert back == pytest.approx(first, rel=1e-12)
    scales = published_scales(first, rounds, ratio)
    assert scales[0] == first and scales[-1] ** 2 == pytest.approx(variance * ratio, rel=1e-11)
    assert gaussian_rho(4 * alpha * beta * c, scales).sum() == pytest.approx(total, rel=1e-11)


def test_theorem_4_with_the_paper_s_growth():
    # (1.05^300 - 1)/0.05 with exact decimals; rho_1 = 1 here, so the run costs 4.5e7 first releases.
    claimed = published_rho(math.sqrt(8), 300, 1.05, alpha=1.0, beta=1.0, c=1.0)
    assert claimed == pytest.approx(45479902.57204787, rel=1e-12)
    assert published_rho(1.0, 10**6, 2.0, alpha=1.0, beta=1.0, c=1.0) == math.inf
    with pytest.raises(PrivacyError, match="Lower the ratio"):
        published_scales(1.0, 10**4, 2.0)
    with pytest.raises(InputError, match="Lower the ratio"):
        published_first_scale(1.0, 10**6, 2.0, alpha=1.0, beta=1.0, c=1.0)
    with pytest.raises(PrivacyError, match="c=0"):
        published_rho(1.0, 3, 2.0, alpha=1.0, beta=1.0, c=0)


# --- ledger


def a_ledger():
    ledger = Ledger(3, [0.5, 0.25, math.inf])
    ledger.charge_many([0, 1, 0, 2], [0, 1, 2, 3], 1.0, [2.0, 2.0, 2.0, 0.5])
    return ledger


def test_a_ledger_knows_who_spent_what():
    ledger = a_ledger()
    assert ledger.spent().tolist() == [0.25, 0.125, 2.0] and ledger.spent(1) == 0.125
    assert ledger.counts.tolist() == [2, 1, 1] and ledger.plf == 2 and ledger.rho == 2.0 and len(ledger) == 4
    assert ledger.epsilon(1e-5) == epsilon_exact(2.0, 1e-5)
    assert ledger.epsilon_paper(1e-5) == epsilon_paper(2.0, 1e-5)
    assert ledger.events(0) == [Release(0, 0, 1, 1.0, 2.0, 0.125), Release(0, 2, 2, 1.0, 2.0, 0.125)]
    assert [event.agent for event in ledger] == [0, 1, 0, 2]
    assert "plf=2" in repr(ledger)


@pytest.mark.parametrize(
    ("agent", "hop", "sensitivity", "scale"),
    [
        (1, 9, 1.0, 1.0),  # overspends
        (1, 9, 1.0, 0.0),
        (2, 9, 1.0, 0.0),  # without a limit, still no release without noise
        (2, 9, 0.0, 0.0),
        (2, 9, 1.0, math.inf),
        (2, 9, 1.0, -1.0),
        (2, 9, math.nan, 1.0),
        (2, 9, 1e300, 1e-300),  # rho overflows
        (3, 9, 1.0, 9.0),
        (-1, 9, 1.0, 9.0),
        (0.0, 9, 1.0, 9.0),
        (0, -1, 1.0, 9.0),
    ],
)
def test_a_refused_release_leaves_the_ledger_whole(agent, hop, sensitivity, scale):
    ledger = a_ledger()
    before = json.dumps(ledger.to_json()), ledger.spent().tolist(), ledger.counts.tolist()
    with pytest.raises(PrivacyError):
        ledger.charge(agent, hop, sensitivity, scale)
    with pytest.raises(PrivacyError):  # among good ones: all or nothing
        ledger.charge_many([0, agent, 0], [7, hop, 9], [0.1, sensitivity, 0.1], [2.0, scale, 2.0])
    assert before == (json.dumps(ledger.to_json()), ledger.spent().tolist(), ledger.counts.tolist())
    ledger.charge(0, 9, 1.0, 2.0)  # and it goes on
    assert ledger.counts.tolist() == [3, 1, 1]


def test_the_refusal_says_what_to_do():
    with pytest.raises(PrivacyError, match=r"agent 1 has spent rho=0.125 of 0.25.*pass the baton on"):
        a_ledger().charge(1, 9, 1.0, 1.0)


@pytest.mark.parametrize("ratio", [1.0, 1.05, 0.9])
def test_a_plan_that_adds_up_to_the_limit_is_never_refused(ratio):
    budget, rounds = Budget(1, 1e-5), 1000
    ledger = Ledger(1, budget.rho)
    scales = gaussian_scale(0.02, geometric(budget.rho, rounds, ratio))
    for hop, scale in enumerate(scales):
        ledger.charge(0, hop, 0.02, scale)
    assert ledger.epsilon(1e-5) == pytest.approx(1, rel=1e-9)
    with pytest.raises(PrivacyError):
        ledger.charge(0, rounds, 0.02, scales.min())


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0, 10), st.floats(0.1, 10)), max_size=40))
def test_many_at_once_is_one_by_one(releases):
    single, many, halves = (Ledger(5, math.inf) for _ in range(3))
    columns = [
        [r[0] for r in releases],
        list(range(len(releases))),
        *([r[k] for r in releases] for k in (1, 2)),
    ]
    for row in zip(*columns, strict=True):
        single.charge(*row)
    many.charge_many(*columns)
    middle = len(releases) // 2
    halves.charge_many(*(column[:middle] for column in columns))
    halves.charge_many(*(column[middle:] for column in columns))
    assert single == many == halves
    assert single.spent().tolist() == many.spent().tolist() == halves.spent().tolist()
    for agent in range(5):
        events = many.events(agent)
        assert [event.activation for event in events] == list(range(1, len(events) + 1))
        assert many.spent(agent) == pytest.approx(math.fsum(event.rho for event in events))


def test_json_round_trip():
    ledger = a_ledger()
    again = Ledger.from_json(json.loads(json.dumps(ledger.to_json(), allow_nan=False)))
    assert again == ledger and again.spent().tolist() == ledger.spent().tolist()
    again.charge(0, 9, 1.0, 2.0)
    assert again != ledger and ledger != "a ledger"
    assert Ledger.from_json(Ledger(2, 1.0).to_json()) == Ledger(2, 1.0)


def tampered(change):
    saved = a_ledger().to_json()
    change(saved)
    return saved


@pytest.mark.parametrize(
    "change",
    [
        lambda saved: saved["releases"]["activation"].reverse(),  # out of order
        lambda saved: [column.pop(0) for column in saved["releases"].values()],  # the first release cut
        lambda saved: saved["releases"]["rho"].__setitem__(0, 0.1),
        lambda saved: saved["releases"]["agent"].pop(),
        lambda saved: saved["limit_rho"].__setitem__(0, 0.2),  # now overspent
        lambda saved: saved.pop("releases"),
        lambda saved: saved["releases"]["scale"].__setitem__(0, "two"),
    ],
)
def test_a_tampered_ledger_is_refused(change):
    with pytest.raises(PrivacyError):
        Ledger.from_json(tampered(change))


def test_a_million_releases():
    agents, releases = 100, 1_000_000
    ledger = Ledger(agents, math.inf)
    who = np.random.default_rng(0).integers(0, agents, releases)
    ledger.charge_many(who, np.arange(releases), 0.1, 1.0)
    assert len(ledger) == releases and ledger.counts.tolist() == np.bincount(who).tolist()
    assert ledger.spent() == pytest.approx(ledger.counts * 0.005, rel=1e-11)


@pytest.mark.parametrize(("agents", "limit"), [(0, 1.0), (2.5, 1.0), (2, [1.0] * 3), (2, [1.0, -1.0])])
def test_a_bad_ledger_is_refused(agents, limit):
    with pytest.raises(PrivacyError):
        Ledger(agents, limit)
    with pytest.raises(PrivacyError, match="same length"):
        Ledger(2, 1.0).charge_many([0, 1], [0, 1, 2], 1.0, 9.0)
    with pytest.raises(PrivacyError, match="not in this ledger"):
        Ledger(2, 1.0).spent(2)


# --- mechanism


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_the_noise_has_its_scale_and_no_other(scale):
    value = jnp.linspace(-3.0, 3.0, 5000)
    noise = np.asarray(release(value, scale, jax.random.key(20240)) - value)
    assert stats.kstest(noise, stats.norm(0, scale).cdf).pvalue > 0.01
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(noise, stats.norm(0, wrong * scale).cdf).pvalue < 1e-6


def bits(array):
    return np.asarray(array).view(np.int64).tolist()


def test_scale_zero_is_the_value_bit_for_bit():
    value, key = jnp.array([0.0, -0.0, 1 / 3, -1e-310, 1e308, math.inf]), jax.random.key(0)
    assert bits(release(value, 0.0, key)) == bits(value)
    assert bits(jax.jit(release)(value, 0.0, key)) == bits(value)
    assert bits(jax.jit(lambda v, k: release(v, 0, k))(value, key)) == bits(value)


def test_one_key_gives_one_release_jitted_scanned_or_not():
    value, keys = jnp.linspace(-1, 1, 1001), jax.random.split(jax.random.key(3), 4)
    plain = jnp.stack([release(value, 1 / 3, key) for key in keys])
    assert bits(plain[0]) == bits(value + jax.random.normal(keys[0], value.shape, value.dtype) * (1 / 3))
    assert bits(jax.jit(release)(value, 1 / 3, keys[0])) == bits(plain[0])
    assert bits(jax.jit(lambda v, k: release(v, 1 / 3, k))(value, keys[0])) == bits(plain[0])
    assert bits(jax.jit(jax.vmap(release, (None, None, 0)))(value, 1 / 3, keys)) == bits(plain)
    scanned = jax.lax.scan(lambda carry, key: (carry, release(carry, 1 / 3, key)), value, keys)[1]
    assert bits(scanned) == bits(plain)
    assert len({float(x) for x in plain[:, 0]}) == 4


def test_nothing_leaves_by_mistake():
    value, key = jnp.ones(3), jax.random.key(0)
    assert jnp.isnan(release(value, math.nan, key)).all()
    with pytest.raises(PrivacyError, match="float32"):
        release(value.astype(jnp.float32), 1.0, key)
    with pytest.raises(PrivacyError, match="key=None"):
        release(value, 1.0, None)  # pyright: ignore[reportArgumentType]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(0, 1e300) | st.sampled_from([math.inf, math.nan]), min_size=1, max_size=5), st.floats(0, 1e6))
def test_clipped_norms_are_within_the_bound(norms, bound):
    norms = jnp.array(norms)
    factor = clip_factor(norms, bound)
    assert (factor <= 1).all() and (factor >= 0).all() and (factor[~jnp.isfinite(norms)] == 0).all()
    assert (scaled(factor, norms) <= bound * (1 + 1e-15) + 5e-324).all()
    assert (factor[norms <= bound] == 1).all()


def test_clipping_bounds_what_one_record_moves():
    rng, m, bound = np.random.default_rng(1), 20, 0.7
    gradients = jnp.asarray(rng.normal(size=(m, 5)) * rng.exponential(3, size=(m, 1)))

    def mean(rows):
        return (rows * clip_factor(jnp.linalg.norm(rows, axis=1), bound)[:, None]).mean(axis=0)

    other = gradients.at[3].set(-1e9 * gradients[3])
    assert jnp.linalg.norm(mean(gradients) - mean(other)) == pytest.approx(2 * bound / m, rel=1e-12)
    slopes = jax.grad(lambda norms: clip_factor(norms, bound).sum())(jnp.array([0.0, 0.1, 7.0]))
    assert slopes.tolist() == pytest.approx([0, 0, -bound / 49])
