"""Composition: against dp-accounting, against integrals and coins counted by hand, and against the laws."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.optimize import brentq

from relaydp.errors import PrivacyError
from relaydp.privacy import (
    epsilon_exact,
    epsilon_group,
    epsilon_paper,
    epsilon_pld,
    epsilon_rdp,
    epsilon_sampled,
    gdp_mu,
    gdp_rho,
    group_privacy,
    noise_for_sampled,
    pure_rho,
    renyi,
    rho_for,
)
from relaydp.privacy.composition import _compose, _Pure, _Sampled

small = settings(max_examples=25, deadline=None, derandomize=True)
multipliers = st.floats(-1, 2).map(lambda x: 10.0**x)
shares = st.floats(-3, -0.01).map(lambda x: 10.0**x)
deltas = st.floats(-8, -1).map(lambda x: 10.0**x)


def test_accounting_does_not_wait_for_dp_accounting():
    code = "import sys, relaydp.privacy; print('dp_accounting' in sys.modules, 'jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False False"


# --- conversions


@given(st.floats(0, 1e6), st.floats(1.01, 100))
def test_conversions_there_and_back(rho, alpha):
    assert gdp_rho(gdp_mu(rho)) == pytest.approx(rho)
    assert renyi(rho, alpha) == rho * alpha


def test_renyi_of_two_gaussians_is_what_rho_allows():
    mu, alpha = 0.7, 3.5
    p, q = stats.norm(mu), stats.norm(0)
    moment = integrate.quad(lambda x: math.exp(alpha * p.logpdf(x) + (1 - alpha) * q.logpdf(x)), -10, 15)[0]
    assert math.log(moment) / (alpha - 1) == pytest.approx(renyi(gdp_rho(mu), alpha), rel=1e-9)


@given(st.floats(0.01, 5), st.floats(1.01, 50))
def test_coins_stay_below_the_rho_of_a_pure_release(epsilon, alpha):
    truth = 1 / (1 + math.exp(-epsilon))
    moments = truth**alpha * (1 - truth) ** (1 - alpha) + (1 - truth) ** alpha * truth ** (1 - alpha)
    assert math.log(moments) / (alpha - 1) <= float(pure_rho(epsilon)) * alpha * (1 + 1e-12)
    assert pure_rho([epsilon, 0.0]) == pytest.approx([epsilon**2 / 2, 0.0])


@given(st.floats(1e-4, 1), deltas, st.integers(1, 12))
def test_groups(rho, delta, records):
    whole = epsilon_group(rho, delta, records)
    assert whole == epsilon_exact(rho * records**2, delta)
    assert epsilon_group(rho, delta, 1) == epsilon_exact(rho, delta) <= whole
    # The general rule, one detour at a time: delta_k = delta_(k-1) + e^((k-1) epsilon) delta.
    epsilon, by_hand = epsilon_exact(rho, delta), 0.0
    if epsilon == 0:
        return
    for k in range(records):
        by_hand += math.exp(k * epsilon) * delta
    total, failing = group_privacy(epsilon, delta, records)
    assert total == records * epsilon and failing == pytest.approx(min(1.0, by_hand))
    if failing < 1:
        assert epsilon_group(rho, failing, records) <= total * (1 + 1e-9)
    assert group_privacy(epsilon, 0.0, records) == (total, 0.0)
    assert group_privacy(400.0, 1e-5, 3) == (1200.0, 1.0)


# --- second opinions


def schedule(epsilon, delta, shape, counts):
    """Noise multipliers of releases that cost epsilon in all, in the proportions `shape`, `counts` of each."""
    shape, counts = np.array(shape), np.array(counts)
    return 1 / np.sqrt(2 * rho_for(epsilon, delta) * shape / (shape @ counts)), counts


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.data(), st.floats(-2, math.log10(50)).map(lambda x: 10.0**x), st.floats(-8, -3).map(lambda x: 10.0**x))
def test_exact_agrees_with_dp_accounting_on_any_schedule(data, epsilon, delta):
    shape = data.draw(st.lists(st.floats(-3, 0).map(lambda x: 10.0**x), min_size=1, max_size=25))
    most = 2000 // len(shape)
    counts = data.draw(st.lists(st.integers(1, most), min_size=len(shape), max_size=len(shape)))
    z, k = schedule(epsilon, delta, shape, counts)
    ours = epsilon_exact(float(k @ z**-2.0) / 2, delta)
    assert ours == pytest.approx(epsilon, rel=1e-9)
    pld = epsilon_pld(z, k, delta)
    assert ours * (1 - 1e-9) <= pld <= ours * 1.001
    assert pld <= epsilon_rdp(z, k, delta) * 1.001


@pytest.mark.sample(1)
@pytest.mark.parametrize(("epsilon", "ratio"), [(0.01, 1.001), (50.0, 1.01)])
def test_two_thousand_different_releases(epsilon, ratio):
    z, k = schedule(epsilon, 1e-6, ratio ** np.arange(2000), np.ones(2000, dtype=np.int64))
    assert np.unique(z).size == 2000
    assert epsilon * (1 - 1e-9) <= epsilon_pld(z, k, 1e-6) <= epsilon * 1.001
    assert epsilon <= epsilon_rdp(z, k, 1e-6) <= epsilon_paper(rho_for(epsilon, 1e-6), 1e-6)


@small
@given(multipliers, st.integers(1, 50), deltas)
def test_k_releases_cost_k_single_ones(z, times, delta):
    for price in (epsilon_pld, epsilon_rdp):
        assert price(z, times, delta) == pytest.approx(price([z] * times, 1, delta), rel=1e-12)
    half = epsilon_rdp([z, 2 * z], [times, 1], delta)
    assert half == pytest.approx(epsilon_rdp([2 * z] + [z] * times, 1, delta), rel=1e-12)
    assert epsilon_rdp([], 1, delta, pure=[0.1] * times) == pytest.approx(
        epsilon_rdp(10 / math.sqrt(times), 1, delta), rel=1e-9
    )


def test_the_ends_of_the_scale():
    for price in (epsilon_pld, epsilon_rdp):
        assert price([], 1, 1e-5) == 0 and price(1e-200, 1, 1e-5) == math.inf
    assert epsilon_sampled([], 1.0, 1, 1e-5) == 0 and epsilon_sampled(1e-200, 0.5, 1, 1e-5) == math.inf
    assert epsilon_sampled(1.0, 1e-300, 1, 1e-5) == 0 and epsilon_sampled(1e15, 1e-6, 1, 1e-30) < 1e-9
    assert epsilon_sampled(1e-3, 1e-6, 3, 1e-5) == 0  # bare, but so seldom that delta covers it
    assert epsilon_sampled(1.0, 0.5, 10**9, 1e-5) == epsilon_exact(5e8, 1e-5)  # too many for the grid: as if whole


# --- sampled records


def hockey_stick(epsilon, shift, sampling):
    """integral of (P - e^epsilon Q)+ for the pair (1), by quadrature between the points where it bends."""

    def gap(x):
        p = (1 - sampling) * stats.norm.pdf(x) + sampling * stats.norm.pdf(x - shift)
        q = (1 - sampling) * stats.norm.pdf(x) + sampling * stats.norm.pdf(x + shift)
        return p - math.exp(epsilon) * q

    x = np.linspace(-12, 12 + shift, 4001)
    above = np.flatnonzero(gap(x) > 0)
    if above.size == 0:
        return 0.0
    bend = x[above[0]] if above[0] == 0 else brentq(gap, x[above[0] - 1], x[above[0]], xtol=1e-14)
    ends = [bend, *(point for point in (0.0, shift, shift + 4) if point > bend), shift + 14]
    return sum(integrate.quad(gap, a, b, epsabs=1e-16)[0] for a, b in zip(ends, ends[1:], strict=False))


@small
@given(st.floats(-0.5, 1.3).map(lambda x: 10.0**x), shares, st.floats(-6, -2).map(lambda x: 10.0**x))
def test_one_sampled_release_against_an_integral(z, p, delta):
    found = epsilon_sampled(z, p, 1, delta)
    shift = 1 / (2 * z)
    if found > 0:
        assert hockey_stick(found, shift, p) <= delta * (1 + 1e-6)
        assert hockey_stick(found * 0.999, shift, p) >= delta * (1 - 1e-6)
    else:
        assert hockey_stick(0.0, shift, p) <= delta * (1 + 1e-6)


@pytest.mark.parametrize(
    ("z", "p", "delta", "epsilon"),
    [  # the tail integral solved with mpmath at 60 digits
        (1.0, 0.1, 1e-30, 3.4507229936180429),
        (0.5, 1e-3, 1e-5, 0.010084201790868024),
        (5.0, 0.5, 1e-12, 0.64621697104348738),
        (0.1, 0.9, 1e-3, 29.214501381509448),
        (20.0, 0.01, 1e-9, 0.0021436314357276103),
    ],
)
def test_one_sampled_release_matches_many_digits_and_rounds_up(z, p, delta, epsilon):
    assert epsilon <= epsilon_sampled(z, p, 1, delta) <= epsilon * (1 + 1e-4)


@pytest.mark.parametrize("epsilon", [-1.0, -0.1, 0.0, 0.3, 1.5])
def test_no_pair_of_neighbours_is_worse_than_the_opposite_ones(epsilon):
    """Equation (2): on a plane, any a and b within the circle, for every epsilon, also below 0."""
    shift, p, rng = 1.2, 0.3, np.random.default_rng(5)
    axis = np.linspace(-8, 8, 401)
    x, y = np.meshgrid(axis, axis)

    def density(a):
        return np.exp(-((x - a[0]) ** 2 + (y - a[1]) ** 2) / 2) / (2 * math.pi)

    def delta(a, b):
        gap = (1 - p) * (1 - math.exp(epsilon)) * density((0, 0)) + p * (density(a) - math.exp(epsilon) * density(b))
        return np.maximum(gap, 0).sum() * (axis[1] - axis[0]) ** 2

    worst = delta((shift, 0), (-shift, 0))
    for _ in range(30):
        angles, lengths = rng.uniform(0, 2 * math.pi, 2), shift * np.sqrt(rng.uniform(0, 1, 2))
        a, b = ((r * math.cos(t), r * math.sin(t)) for r, t in zip(lengths, angles, strict=True))
        assert delta(a, b) <= worst + 1e-6
    if epsilon >= 0:
        assert worst == pytest.approx(hockey_stick(epsilon, shift, p), abs=3e-5)


@small
@given(multipliers, st.integers(1, 500), deltas)
def test_when_all_take_part_it_is_the_exact_gaussian(z, count, delta):
    exact = epsilon_exact(count / (2 * z * z), delta)
    assert epsilon_sampled(z, 1.0, count, delta) == pytest.approx(exact, rel=1e-9, abs=1e-12)
    composed = _compose([_Sampled(1 / (2 * z), 1.0, count)], delta)  # through the grid, as if it were sampled
    assert exact * (1 - 1e-9) <= composed <= exact * (1 + 2e-4) + 2e-5 / z


def both_bounds(z, p, count, delta, step):
    """dp-accounting's lower and upper estimate for replacing one record; its multiplier is per record, hence 2 z."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution

    for sure in (False, True):
        one = privacy_loss_distribution.from_gaussian_mechanism(
            2 * z,
            pessimistic_estimate=sure,
            use_connect_dots=sure,
            value_discretization_interval=step,
            sampling_prob=p,
            neighboring_relation=NeighboringRelation.REPLACE_ONE,
        )
        yield one.self_compose(count).get_epsilon_for_delta(delta)


@pytest.mark.parametrize(
    ("z", "p", "count", "delta", "step"),
    [
        (0.5, 0.01, 1000, 1e-6, 2e-4),
        (1.0, 0.1, 100, 1e-8, 1e-3),
        (2.0, 0.02, 2000, 1e-5, 1e-4),
        (0.3, 0.5, 10, 1e-3, 5e-3),
        (50.0, 0.5, 2000, 1e-6, 1e-4),
        (0.16, 1e-3, 50, 1e-6, 1e-3),
    ],
)
def test_sampled_releases_lie_between_dp_accounting_s_bounds(z, p, count, delta, step):
    low, high = both_bounds(z, p, count, delta, step)
    ours = epsilon_sampled(z, p, count, delta)
    assert low <= ours <= high * 1.0005
    assert ours == pytest.approx(epsilon_pld(z, count, delta, sampling=p), rel=1e-3)


@small
@given(multipliers, shares, st.integers(1, 300), deltas)
def test_sampling_never_hurts_and_replacing_is_at_most_removing_and_adding(z, p, count, delta):
    from dp_accounting import PoissonSampledDpEvent
    from dp_accounting.dp_event import GaussianDpEvent
    from dp_accounting.rdp import RdpAccountant

    ours = epsilon_sampled(z, p, count, delta)
    assert ours <= epsilon_exact(count / (2 * z * z), delta) * (1 + 1e-9)
    # One record removed, one added: (e, d)-DP for each makes (2 e, (1 + e^e) d)-DP for both. Its multiplier is s / c.
    accountant = RdpAccountant().compose(PoissonSampledDpEvent(p, GaussianDpEvent(2 * z)), count)
    once = accountant.get_epsilon(delta)
    twice, failing = group_privacy(once, delta, 2) if once > 0 else (0.0, 2 * delta)
    if failing < 0.5:
        assert epsilon_sampled(z, p, count, failing) <= twice * (1 + 1e-3) + 1e-12


@small
@given(multipliers, shares, st.integers(1, 300), deltas)
def test_more_noise_less_sampling_fewer_releases_and_more_delta_cost_less(z, p, count, delta):
    once = epsilon_sampled(z, p, count, delta)
    slack = once * 2e-4 + 1e-9
    assert epsilon_sampled(z * 1.1, p, count, delta) <= once + slack
    assert epsilon_sampled(z, p * 0.9, count, delta) <= once + slack
    assert epsilon_sampled(z, p, count, min(0.9, 2 * delta)) <= once + slack
    assert epsilon_sampled(z, p, 2 * count, delta) >= once - slack
    assert epsilon_sampled([z, z], [p, 1.0], count, delta) >= once - slack


@small
@given(multipliers, shares, st.integers(1, 40), deltas)
def test_k_sampled_releases_cost_k_single_ones(z, p, count, delta):
    whole = epsilon_sampled(z, p, count, delta)
    assert epsilon_sampled([z] * count, p, 1, delta) == whole
    assert epsilon_sampled([z, z], [p, p], [count, 1], delta) == epsilon_sampled(z, p, count + 1, delta)
    # In other units the last bits of z differ; such releases are still taken together.
    assert epsilon_sampled([z * 1.1 / 1.1] * count, p, 1, delta) == pytest.approx(whole, rel=1e-4, abs=1e-9)
    mixed = epsilon_sampled([z, 2 * z], [p, p / 2], [count, 3], delta)
    assert mixed == pytest.approx(epsilon_sampled([2 * z] * 3 + [z] * count, [p / 2] * 3 + [p] * count, 1, delta))


def test_composed_losses_against_draws():
    """The losses of five releases of two kinds, drawn: delta(epsilon) is the mean of (1 - e^(epsilon - loss))+."""
    rng, draws = np.random.default_rng(11), 400_000
    loss = np.zeros(draws)
    for shift, p, count in ((0.8, 0.3, 3), (0.5, 0.6, 2)):
        for _ in range(count):
            x = rng.normal(size=draws) + shift * (rng.uniform(size=draws) < p)
            up, down = (1 - p + p * np.exp(way * shift * x - shift**2 / 2) for way in (1, -1))
            loss += np.log(up / down)
    for delta in (0.01, 0.05):
        epsilon = epsilon_sampled([1 / 1.6, 1 / 1.0], [0.3, 0.6], [3, 2], delta)
        gains = np.maximum(-np.expm1(epsilon - loss), 0)
        assert abs(gains.mean() - delta) <= 5 * gains.std() / math.sqrt(draws)


@small
@given(st.floats(0.01, 3), st.integers(1, 60), deltas)
def test_pure_releases_against_counted_coins(epsilon, count, delta):
    """k coins, heads h times: the loss is (2 h - k) epsilon."""
    heads = np.arange(count + 1)
    chance, loss = stats.binom.pmf(heads, count, 1 / (1 + math.exp(-epsilon))), (2 * heads - count) * epsilon

    def failing(e):
        return float(chance @ np.maximum(-np.expm1(e - loss), 0))

    found = _compose([_Pure(epsilon, count)], delta)
    assert failing(found) <= delta * (1 + 1e-9)
    assert found == 0 or failing(found * 0.999 - 1e-6) >= delta
    assert epsilon_sampled([], 1.0, 1, delta, pure=[epsilon] * count) <= found
    assert epsilon_pld([], 1, delta, pure=[epsilon] * count) == pytest.approx(found, rel=2e-3, abs=1e-4)


def test_all_kinds_together():
    mixed = dict(sampling=[0.1, 1.0], pure=[0.1, 0.1, 0.2])
    ours = epsilon_sampled([5.0, 3.0], [0.1, 1.0], [100, 2], 1e-5, pure=mixed["pure"])
    assert ours == pytest.approx(epsilon_pld([5.0, 3.0], [100, 2], 1e-5, **mixed), rel=1e-3)
    assert ours > epsilon_sampled([5.0, 3.0], [0.1, 1.0], [100, 2], 1e-5)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.floats(-1, 1).map(lambda x: 10.0**x), st.floats(-7, -3).map(lambda x: 10.0**x), shares, st.integers(1, 1000))
def test_noise_for_sampled_is_the_inverse_and_never_too_little(epsilon, delta, p, count):
    if -math.expm1(count * math.log1p(-p)) <= delta:
        return
    z = noise_for_sampled(epsilon, delta, p, count)
    assert epsilon * 0.995 <= epsilon_sampled(z, p, count, delta) <= epsilon
    assert z <= math.sqrt(count / (2 * rho_for(epsilon, delta))) * (1 + 1e-9)


def test_noise_for_whole_batches_is_the_gaussian_s():
    z = noise_for_sampled(1.0, 1e-5, 1.0, 100)
    assert z == pytest.approx(math.sqrt(100 / (2 * rho_for(1.0, 1e-5))), rel=1e-9)
    assert epsilon_sampled(z, 1.0, 100, 1e-5) <= 1.0
    with pytest.raises(PrivacyError, match="without noise"):
        noise_for_sampled(1.0, 1e-3, 1e-5, 10)


@pytest.mark.parametrize(
    "call",
    [
        lambda: epsilon_sampled(0.0, 0.1, 1, 1e-5),
        lambda: epsilon_sampled(math.inf, 0.1, 1, 1e-5),
        lambda: epsilon_sampled("a", 0.1, 1, 1e-5),
        lambda: epsilon_sampled([[1.0]], 0.1, 1, 1e-5),
        lambda: epsilon_sampled(1.0, 0.0, 1, 1e-5),
        lambda: epsilon_sampled(1.0, 1.1, 1, 1e-5),
        lambda: epsilon_sampled(1.0, 0.1, 0, 1e-5),
        lambda: epsilon_sampled(1.0, 0.1, 1.5, 1e-5),
        lambda: epsilon_sampled([1.0, 2.0], 0.1, [1, 2, 3], 1e-5),
        lambda: epsilon_sampled(1.0, 0.1, 1, 0.0),
        lambda: epsilon_sampled(1.0, 0.1, 1, 1e-5, pure=[-1.0]),
        lambda: epsilon_pld(math.nan, 1, 1e-5),
        lambda: epsilon_rdp(1.0, -1, 1e-5),
        lambda: noise_for_sampled(0.0, 1e-5, 0.1, 1),
        lambda: noise_for_sampled(1.0, 1e-5, -0.1, 1),
        lambda: noise_for_sampled(1.0, 1e-5, 0.1, 0),
        lambda: epsilon_group(1.0, 1e-5, 0),
        lambda: epsilon_group(-1.0, 1e-5, 1),
        lambda: group_privacy(0.0, 1e-5, 1),
        lambda: renyi(1.0, 1.0),
        lambda: gdp_mu(math.nan),
        lambda: gdp_rho("a"),
        lambda: pure_rho([-0.1]),
    ],
)
def test_nonsense_is_refused(call):
    with pytest.raises(PrivacyError, match="must"):
        call()
