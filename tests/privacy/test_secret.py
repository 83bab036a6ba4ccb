"""Secret noise: that its distribution is exact, its words are used once, and what is promised of it follows.

Where a test hands over the words they are fixed, and so is its outcome. What is drawn from the operating system, here
or by OpenDP, is held to a level that chance breaks once in a thousand million.
"""

import functools
import hashlib
import importlib.util
import math
import os
import subprocess
import sys
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian
from opendp.metrics import l2_distance
from opendp.mod import enable_features
from scipy import special, stats

from relaydp.errors import InputError, PrivacyError
from relaydp.privacy import delta_exact, lattice, secret
from relaydp.privacy.secret import (
    DELTA_FLOOR,
    EDGE,
    SPARE,
    K,
    check_promise,
    common_lattice,
    draw_lattice,
    draw_lattice_at,
    release_secret,
    release_secret_traced,
    slack,
    stretch,
)
from relaydp.privacy.sensitivity import rounding, sensitivity

LEVEL = 1e-6  # of what has fixed words
RARE = 1e-9  # of what has not
DRAWS = 40_000


def words_of(seed, count):
    return np.random.default_rng(seed).integers(-(2**63), 2**63, count, np.int64)


def samples(bits, count=DRAWS, seed=0, r=1):
    """Of scale r 2^bits, from fixed words."""
    found = np.empty(count, np.int64)
    done, _ = lattice.fill(words_of(seed, 8 * count), found, r, bits)
    assert done == count
    return found


def chances(scale):
    """The exact distribution at this scale, as far as it matters."""
    z = np.arange(-math.ceil(9 * scale) - 2, math.ceil(9 * scale) + 3)
    mass = np.exp(-(z**2) / (2 * scale**2))
    return z, mass / mass.sum()


def drawn_at(scale, count=DRAWS):
    """Right samples for a wrong scale, by NumPy."""
    return np.random.default_rng(7).choice(*chances(scale)[:1], size=count, p=chances(scale)[1])


def fits(sample, scale):
    """How well the sample agrees with the exact distribution: a p-value, chi-squared."""
    z, mass = chances(scale)
    expected = len(sample) * mass
    seen = np.bincount(np.clip(sample - z[0], 0, len(z) - 1), minlength=len(z))
    usual = expected > 20
    seen, expected = [np.append(each[usual], each[~usual].sum()) for each in (seen, expected)]
    return stats.chisquare(seen, expected).pvalue


# --- the distribution


@pytest.mark.parametrize("bits", range(7))
def test_each_integer_has_its_exact_probability(bits):
    assert fits(samples(bits), 2.0**bits) > 1e-3  # the words are fixed: this holds once and for all


@pytest.mark.parametrize("bits", range(7))
@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_that_test_tells_a_scale_that_is_a_little_off(bits, factor):
    assert fits(drawn_at(factor * 2.0**bits), 2.0**bits) < LEVEL
    assert fits(drawn_at(2.0**bits), 2.0**bits) > 1e-3


ODD = [(3, 0), (5, 0), (3, 1), (3, 2), (7, 3), (100, 0)]  # r and L of scales that are no powers of two


@pytest.mark.parametrize(("r", "bits"), ODD)
def test_so_it_has_at_other_scales(r, bits):
    assert fits(samples(bits, r=r), r * 2.0**bits) > 1e-3
    assert fits(samples(bits, r=r), 1.05 * r * 2.0**bits) < LEVEL


def agree(first, second, scale):
    """A two-sample p-value, in bins of a quarter scale or one integer."""
    edges = np.unique(np.round(np.linspace(-3, 3, 25) * scale)) + 0.5
    table = np.array([np.bincount(np.digitize(each, edges), minlength=len(edges) + 1) for each in (first, second)])
    return stats.chi2_contingency(table[:, table.sum(0) > 20]).pvalue


@pytest.mark.sample(2)
@pytest.mark.parametrize("bits", [1, 4, 12])
def test_it_agrees_with_opendp(bits):
    enable_features("contrib")
    scale, count = 2.0**bits, 150_000  # so many that five per cent are six deviations beyond the level
    space = vector_domain(atom_domain(T=float, nan=False), size=count), l2_distance(T=float)
    theirs = np.array(make_gaussian(*space, scale=scale, k=0)(np.zeros(count))).astype(np.int64)
    assert agree(samples(bits, count), theirs, scale) > RARE
    for factor in (0.95, 1.05):
        assert agree(drawn_at(factor * scale, count), theirs, scale) < RARE


def test_at_its_own_scale_it_is_gaussian_down_to_its_lowest_bits():
    count = 400_000  # so many that a scale five per cent off is ten deviations beyond the level
    z = draw_lattice(count)
    x, bound = z / 2.0**K, -stats.norm.ppf(RARE / 2)
    assert z.dtype == np.int64 and len(np.unique(z)) > count - 5
    for power, mean, variance in ((1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)):
        assert abs(np.mean(x**power) - mean) < bound * math.sqrt(variance / count)
    assert stats.kstest(x, "norm").pvalue > RARE > stats.kstest(1.05 * x, "norm").pvalue
    assert stats.chisquare(np.bincount(z & 255, minlength=256)).pvalue > RARE
    assert stats.chisquare(np.bincount((z >> 30) & 255, minlength=256)).pvalue > RARE
    assert abs(np.corrcoef(x[1:], x[:-1])[0, 1]) < bound / math.sqrt(count)


# --- every way the bits can fall, counted


@pytest.fixture(scope="module")
def plain():
    """The same file without Numba: functions in Python, whose `take` can be replaced."""
    spec = importlib.util.spec_from_file_location("relaydp_plain_lattice", lattice.__file__)
    module = importlib.util.module_from_spec(spec)
    kept = sys.modules.get("numba")
    sys.modules["numba"] = None  # an import of it then fails
    try:
        spec.loader.exec_module(module)
    finally:
        sys.modules["numba"] = kept
    return module


class More(Exception):
    """The function wants a draw, one of so many, that the script does not have."""


def walk(plain, function, least, dice=False):
    """The exact probability of each answer of `function`, as far as branches of probability `least` tell; the rest.

    It is run with every script of bits: where a script ends, it is continued in all ways, unless it is too unlikely.
    With `dice` a script has throws of fair dice as well. Without, they are made of bits and may have to be made again
    and again, which takes many scripts.
    """
    found, rest, open_ = {}, Fraction(0), [((), Fraction(1))]
    original = plain.take, plain.die
    try:
        while open_:
            script, chance = open_.pop()
            if chance < least:
                rest += chance
                continue
            answers = iter(script)

            def die(words, at, sides, answers=answers):
                if sides == 1:
                    return 0, at
                try:
                    return next(answers), at
                except StopIteration:
                    raise More(sides) from None

            plain.take = lambda words, at, count, die=die: die(words, at, 2**count)
            if dice:
                plain.die = die
            try:
                answer = function()
            except More as more:
                (sides,) = more.args
                open_ += [(script + (value,), chance / sides) for value in range(sides)]
            else:
                found[answer] = found.get(answer, Fraction(0)) + chance
    finally:
        plain.take, plain.die = original
    assert sum(found.values()) + rest == 1
    return found, rest


def exponential(g):
    """e^-g between two fractions 1e-30 apart."""
    total, term, n = Fraction(0), Fraction(1), 0
    while abs(term) > Fraction(1, 10**31):
        total, n = total + term, n + 1
        term = -term * g / n
    return total - Fraction(1, 10**30), total + Fraction(1, 10**30)


NO_WORDS = np.zeros(1, np.int64)


@pytest.mark.parametrize(("power", "divisor"), [(0, 2), (1, 1), (2, 2)])
@pytest.mark.parametrize(("bits", "x"), [(1, 1), (2, 1), (2, 3), (3, 5), (0, 0), (2, 0)])
def test_a_coin_s_probability_is_exact(plain, bits, x, power, divisor):
    """Heads that are certain so far, and heads that are still possible, have e^-g between them, in fractions."""
    least = Fraction(1, 2**16)
    found, rest = walk(plain, lambda: plain.coin(NO_WORDS, 0, x, 1, bits, power, divisor)[0], least)
    heads = found.get(True, Fraction(0))
    low, high = exponential((Fraction(x, 2**bits) ** power if power else 1) / divisor)
    assert heads <= high and low <= heads + rest
    assert rest < Fraction(1, 40)  # so that the two are a statement


@pytest.mark.parametrize("sides", [*range(1, 9), 12])
def test_a_die_is_fair(plain, sides):
    found, rest = walk(plain, lambda: plain.die(NO_WORDS, 0, sides)[0], Fraction(1, 2**12))
    assert set(found) == set(range(sides)) and len(set(found.values())) == 1 and rest < Fraction(1, 8)


@pytest.mark.parametrize(("r", "bits"), [(3, 0), (5, 0), (3, 1), (3, 2)])
@pytest.mark.parametrize(("power", "divisor"), [(1, 1), (2, 2)])
def test_so_it_is_where_a_die_comes_first(plain, r, bits, power, divisor):
    for x in (0, 1, (r << bits) // 2, (r << bits) - 1):
        toss = functools.partial(plain.coin, NO_WORDS, 0, x, r, bits, power, divisor)
        found, rest = walk(plain, lambda toss=toss: toss()[0], Fraction(1, 2**16), dice=True)
        heads = found.get(True, Fraction(0))
        low, high = exponential(Fraction(x, r << bits) ** power / divisor)
        assert heads <= high and low <= heads + rest and rest < Fraction(1, 40)


@pytest.mark.parametrize(("r", "bits"), [(1, 0), (1, 1), (1, 2), (3, 0), (3, 1), (5, 0)])
def test_an_attempt_gives_every_integer_in_proportion(plain, r, bits):
    """By fractions again; the constant is the same for all integers, zero among them."""
    found, rest = walk(plain, lambda: plain.attempt(NO_WORDS, 0, r, bits)[:2], Fraction(1, 2**15), dice=True)
    assert rest < Fraction(3, 10)
    s = r << bits
    for z in range(-2 * s, 2 * s + 1):
        (low, high), (low_half, high_half) = (exponential(Fraction(z**2, 2 * s**2) + g) for g in (0, Fraction(1, 2)))
        chance = found.get((True, z), 0)
        assert low - high_half <= 2 * s * (chance + rest) and 2 * s * chance <= high - low_half
        assert chance > 0 and (z == 0 or chance == found[True, -z])


@pytest.mark.parametrize("bits", [1, 3, 8, 9, 11])
def test_a_comparison_is_right_for_as_many_words_as_it_should_be(bits):
    """All 2^bits numbers that can be drawn, against every x or some: x of them are below x."""
    draws = np.arange(2**bits, dtype=np.int64)
    for x in {0, 1, 2 ** (bits - 1), 2**bits - 1, 2**bits // 3}:
        assert sum(lattice.below(draws[n : n + 1], 0, x, 1, bits)[0] for n in range(2**bits)) == x


@pytest.mark.parametrize(("r", "bits"), [(1, 3), (3, 0), (5, 1), (6, 0), (7, 2), (12, 0), (3, 9)])
def test_a_comparison_has_its_exact_probability(plain, r, bits):
    """x in s, in fractions and with nothing left over."""
    s = r << bits
    for x in range(s) if s < 100 else (0, 1, s // 2, s - 1):
        found, rest = walk(plain, lambda x=x: plain.below(NO_WORDS, 0, x, r, bits)[0], Fraction(0), dice=True)
        assert found.get(True, 0) == Fraction(x, s) and rest == 0


@pytest.mark.parametrize(("r", "bits"), [(1, 0), (1, 3), (1, K), (3, 0), (4097, 28), (2**22 - 1, 28)])
def test_python_and_machine_code_make_the_same_of_the_same_words(plain, r, bits):
    words, here, there = words_of(bits, 700), np.empty(100, np.int64), np.empty(100, np.int64)
    done, used = plain.fill(words, here, r, bits)
    assert (done, used) == lattice.fill(words, there, r, bits) and done == 100
    assert here.tolist() == there.tolist()


FROZEN = [  # found before scales had an r
    *(549546190477, -100877767859, -1198407225733, -1392966299951, 1696695482821, 145059293930, -184357690702),
    *(1402112448893, 1327292025282, 412027425088, -69599466508, -56034060698, -500688476394, -1378611492144),
    *(1367335474076, 1058047210954, 1027343272542, -1766872815759, -974643395344, 1207901950580),
]


def test_of_the_same_words_it_makes_what_it_always_made():
    """Scale 2^K; the words are SHA-256's."""
    words = np.frombuffer(b"".join(hashlib.sha256(bytes([n])).digest() for n in range(12)), "<i8").astype(np.int64)
    found = np.empty(20, np.int64)
    assert lattice.fill(words, found, 1, K) == (20, 35)  # samples, words
    assert found.tolist() == FROZEN


# --- words


def reader(seed):
    """Reads on in one endless sequence of words, and counts."""
    generator, asked = np.random.default_rng(seed), []

    def read(count):
        asked.append(count // 8)
        return generator.bytes(count)

    return read, asked


@pytest.mark.parametrize("most", [1, 2, 3, 7, 64])
@pytest.mark.parametrize(("r", "bits"), [(1, 2), (1, K), (5, 0), (4097, 28), (2**22 - 1, 28)])
def test_where_the_words_are_cut_makes_no_difference(most, r, bits):
    read, asked = reader(3)
    whole, all_at_once = reader(3)
    found = secret._draw(500, r, bits, read, most)
    assert found.tolist() == secret._draw(500, r, bits, whole, 10**6).tolist()
    assert len(asked) > 500 / most and max(asked) == most and len(all_at_once) <= (1 if r == 1 else 10)


def test_to_give_a_cut_sample_up_would_show():
    """What the boundaries guard against: samples that had to do with one word are smaller."""
    words, found = words_of(5, DRAWS).reshape(-1, 1), np.empty(1, np.int64)
    cut = [found[0] / 2.0**K for each in words if lattice.fill(each, found, 1, K)[0] == 1]
    assert (
        len(cut) > DRAWS / 8
        and stats.kstest(cut, "norm").pvalue < LEVEL < stats.kstest(samples(K) / 2.0**K, "norm").pvalue
    )


def test_no_word_serves_two_samples():
    words, found = words_of(9, 4000), np.empty(1, np.int64)
    begins, seen = [0], []
    for _ in range(1000):
        done, used = lattice.fill(words[begins[-1] :], found, 1, K)
        assert done == 1 and used >= 1
        begins.append(begins[-1] + used)
        seen.append(found[0])
    together = np.empty(1000, np.int64)
    assert lattice.fill(words, together, 1, K) == (1000, begins[-1])
    assert together.tolist() == seen
    for n in (0, 17, 500):  # its own words decide a sample, and no other
        others = words.copy()
        others[begins[n] : begins[n + 1]] ^= words_of(10, begins[n + 1] - begins[n])
        lattice.fill(others[begins[n + 1] :], together[n + 1 :], 1, K)
        assert together[n + 1 :].tolist() == seen[n + 1 :]


def test_words_come_from_the_system_and_none_is_kept(monkeypatch):
    asked = []

    def urandom(count):
        asked.append(count)
        return real(count)

    real = os.urandom
    monkeypatch.setattr(os, "urandom", urandom)
    draw_lattice(10)
    before = {module: dict(vars(module)) for module in (secret, lattice)}
    first, second = draw_lattice(3072), draw_lattice(3072)
    assert len(asked) >= 3 and min(asked[1], asked[2]) > 8 * 3072  # each call asks for its own
    assert np.isin(first, second).sum() <= 1  # one number may be drawn twice, once in 400,000 times
    assert all(vars(module) == kept for module, kept in before.items())


FORKED = """
import os
from relaydp.privacy.secret import draw_lattice
draw_lattice(1)
receive, send = os.pipe()
pid = os.fork()
drawn = draw_lattice(4)
if pid == 0:
    os.write(send, drawn.tobytes())
    os._exit(0)
import numpy
print(*drawn, *numpy.frombuffer(os.read(receive, 32), numpy.int64))
os.waitpid(pid, 0)
"""


def test_two_processes_of_one_birth_draw_different_noise():
    # in a process of its own: this one has JAX's threads, and must not be forked
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, text=True)
    assert len(set(done.stdout.split())) == 8, done.stderr


@pytest.mark.parametrize("count", [-1, 1.0, True, None, "3"])
def test_a_count_is_a_whole_number(count):
    with pytest.raises(InputError, match="count="):
        draw_lattice(count)


def test_no_draws_are_no_draws():
    assert draw_lattice(0).shape == (0,)


# --- scales on one lattice


@pytest.mark.parametrize(("r", "L"), [(2**12, 28), (2**12 + 1, 28), (2**22 - 1, 28), (2**22, 28), (1, 50), (3, 40)])
def test_other_scales_are_gaussian_down_to_the_lowest_bits(r, L):
    count = 100_000
    z = draw_lattice_at(count, r, L)
    x, bound = z / (r * 2.0**L), -stats.norm.ppf(RARE / 2)
    for power, mean, variance in ((1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)):
        assert abs(np.mean(x**power) - mean) < bound * math.sqrt(variance / count)
    assert stats.kstest(x, "norm").pvalue > RARE > stats.kstest(1.1 * x, "norm").pvalue
    for low in (0, 20, 30):
        assert stats.chisquare(np.bincount((z >> low) & 255, minlength=256)).pvalue > RARE


@pytest.mark.parametrize(
    ("r", "L"),
    [(0, 40), (-1, 41), (2**22 + 1, 28), (1, 39), (2**11, 28), (1, 51), (2**22, 29), (1.0, 40), (1, 40.0), (True, 40)]
    + [(2**12, -1), (None, 40), ("1", 40), (2**70, 0), (1, 2**70)],
)
def test_a_scale_for_which_nothing_is_proven_is_refused(r, L):
    with pytest.raises(PrivacyError, match="nothing is proven"):
        draw_lattice_at(3, r, L)


@settings(max_examples=100, deadline=None)
@given(
    least=st.floats(1e-190, 1e190),
    factors=st.lists(st.floats(1.0, 1024.0), min_size=0, max_size=6),
)
def test_scales_are_rounded_up_and_by_a_hair(least, factors):
    """(10), by fractions, of the floats that are used."""
    scales = np.array([least, *np.minimum(least * np.array(factors), 1024 * least)])
    found = common_lattice(scales)
    assert found.r.dtype == np.int64 and found.r.min() == 2**12 and found.r.max() <= 2**22
    for wanted, r in zip(scales.tolist(), found.r.tolist(), strict=True):
        got = r * 2**found.L * Fraction(found.step)
        assert Fraction(wanted) <= got < Fraction(wanted) * (1 + Fraction(1, 2**12))
        assert r * 2**found.L >= 2**K


def test_equal_scales_are_drawn_like_one_partys():
    """Their r is a power of two, so that they cost what a scale of 2^K costs, and are on its lattice exactly."""
    found = common_lattice([0.7, 0.7])
    assert found.r.tolist() == [2**12] * 2 and found.step * 2.0**K == 0.7 and 2**12 << found.L == 2**K


@pytest.mark.parametrize("scales", [[], [0.0], [1.0, -1.0], [math.nan], [math.inf, 1.0], [1e-250], [[1.0]], 1.0])
def test_scales_are_numbers_above_0(scales):
    with pytest.raises(PrivacyError, match="one for each party"):
        common_lattice(scales)


def test_scales_too_far_apart_are_refused():
    with pytest.raises(PrivacyError, match="1,024 times"):
        common_lattice([1.0, np.nextafter(1024.0, 2000)])
    assert common_lattice([1.0, 1024.0]).r.tolist() == [2**12, 2**22]


# --- sums


def discrete(scale, to=60):
    z = np.arange(-to, to + 1)
    mass = np.exp(-(z**2) / (2 * scale**2))
    return mass / mass.sum()


def apart(scales, to=5):
    """Logarithms of P[Z = z]/P[Z' = z] of (9), by convolution, for |z| <= `to`."""
    total = discrete(scales[0])
    for scale in scales[1:]:
        total = np.convolve(total, discrete(scale))
    one = discrete(math.hypot(*scales), len(total) // 2)
    middle = len(total) // 2 + np.arange(-to, to + 1)
    return np.log(total[middle] / one[middle])


@pytest.mark.parametrize("scales", [(1.0, 1.0), (1.0, 1.2), (1.1, 1.0), (1.0, 1.5), (1.0,) * 3, (1.0, 1.2, 1.1, 1.0)])
def test_a_sum_is_one_discrete_gaussian_as_exactly_as_is_proven(scales):
    """(9) at scales so small that there is something to see: 2^K is 1, the least of them."""
    bound = 5 * (len(scales) - 1) * math.exp(-(math.pi**2))
    assert 0 < np.abs(apart(scales)).max() < bound


@pytest.mark.parametrize(("first", "second"), [(1.0, 1.0), (1.0, 1.2), (1.1, 1.1), (1.2, 1.3)])
def test_the_bound_for_two_is_nearly_reached(first, second):
    """The ratios of (9) vary by up to ((1 + b)/(1 - b)), the proof's own number: b = 2 w, nearly."""
    w = math.exp(-2 * math.pi**2 / (first**-2 + second**-2))
    found = apart((first, second))
    assert 0.9 * 4 * w < np.ptp(found) < 4.01 * w and np.abs(found).max() < 5 * w


def test_what_6_is_rounded_up_by_covers_sums():
    """T q / (150 * 4^K) for any q, and t of (9) below 1/(150 * 4^K) for e^(4^K) parties; in logarithms."""
    assert Fraction(1, 9) - Fraction(24, 230) >= Fraction(1, 150) and Fraction(2700, 9) >= Fraction(6400, 23)
    assert slack(10, 3) * 4.0**K == pytest.approx(3 * (10 + 2700) / 9)
    assert math.log(5) + 4.0**K - math.pi**2 * 4.0**K < -math.log(150 * 4.0**K)


def test_noise_of_many_parties_adds_up_as_planned():
    scales = [1.0, 1.7, 3.3]
    step, r, L = common_lattice(scales)
    total = sum(draw_lattice_at(50_000, int(each), L) for each in r) * step
    wanted = math.hypot(*scales)
    assert stats.kstest(total / wanted, "norm").pvalue > RARE > stats.kstest(total / wanted * 1.15, "norm").pvalue


# --- the release


def test_it_is_the_lattice_point_and_the_draw():
    """By fractions, from the formula."""
    value, scale = np.array([0.3, -1e-9, 12.5, 0.0]), 0.37
    draws = np.array([5, -(2**41), 2**42 + 1, -1])
    step = Fraction(scale) / 2**K
    for v, z, found in zip(value, draws, release_secret(value, scale, draws), strict=True):
        exact = step * (round(Fraction(v) / step) + int(z))
        assert abs(Fraction(found) - exact) <= abs(exact) * Fraction(1, 2**52) + abs(Fraction(v)) * Fraction(1, 2**52)


values = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=60, deadline=None)
@given(
    value=st.lists(values, min_size=4, max_size=4),
    scale=st.floats(1e-190, 1e190),
    draws=st.lists(st.integers(-(2**46), 2**46), min_size=4, max_size=4),
)
def test_compiled_code_gives_the_same_bits(value, scale, draws):
    value, draws = np.array(value), np.array(draws)
    with np.errstate(over="ignore"):  # of a scale of 1e190
        here = release_secret(value, scale, draws)
    for traced in (release_secret_traced, jax.jit(release_secret_traced)):
        found = traced(jnp.asarray(value), jnp.asarray(scale), jnp.asarray(draws))
        assert np.asarray(found).tobytes() == here.tobytes()


def test_rows_may_have_scales_of_their_own():
    value, draws = np.random.default_rng(0).normal(size=(3, 5)), draw_lattice(15).reshape(3, 5)
    scales = np.array([0.1, 1.0, 7.3])
    found = jax.jit(release_secret_traced)(jnp.asarray(value), jnp.asarray(scales)[:, None], jnp.asarray(draws))
    for i in range(3):
        assert np.asarray(found[i]).tobytes() == release_secret(value[i], float(scales[i]), draws[i]).tobytes()


@pytest.mark.parametrize("way", ["numpy", "jax"])
def test_far_values_are_cut_off_alike_on_both_sides_and_never_wrap(way):
    release = release_secret if way == "numpy" else jax.jit(release_secret_traced)
    edge = EDGE * 2.0**-K  # in scales
    value = np.array([edge * 0.75, edge, edge * 1.5, 1e300, -edge, -1e300])
    for z in (0, 2**62 - 1, -(2**62 - 1)):
        found = np.asarray(release(value, np.float64(1.0), np.full(6, z)))
        assert np.all(found[1:4] == (2**62 + z) * 2.0**-K) and np.all(found[4:] == (-(2**62) + z) * 2.0**-K)
        assert found[0] == (2**62 * 3 // 4 + z) * 2.0**-K
    moved = np.asarray(release(value + 1.0, np.float64(1.0), np.zeros(6, np.int64)))
    assert np.all(np.abs(moved - np.asarray(release(value, np.float64(1.0), np.zeros(6, np.int64)))) <= 1.0)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"scale": 0.0}, "scale=0.0"),
        ({"scale": -1.0}, "scale=-1.0"),
        ({"scale": math.nan}, "scale=nan"),
        ({"scale": math.inf}, "scale=inf"),
        ({"value": np.array([0.123456, math.nan, 0.0])}, "undefined coordinate"),
        ({"value": np.array([0.123456, -math.inf, 0.0])}, "infinite or undefined"),
        ({"value": np.full(3, 0.123456, np.float32)}, "float32"),
        ({"value": np.full(4, 0.123456)}, r"shape \(4,\)"),
        ({"draws": np.zeros(3)}, "draws type float64"),
    ],
)
def test_what_cannot_be_hidden_is_refused(changes, says):
    arguments = {"value": np.zeros(3), "scale": 1.0, "draws": np.zeros(3, np.int64)}
    release_secret(**arguments)
    with pytest.raises(PrivacyError, match=says) as caught:
        release_secret(**arguments | changes)
    assert "0.123" not in str(caught.value)  # a message may be logged: it tells nothing of the value


def test_compiled_code_lets_nothing_out_that_it_cannot_hide():
    release, draws = jax.jit(release_secret_traced), jnp.arange(2)
    value = jnp.array([jnp.nan, 1.0])
    assert np.asarray(release(value, jnp.asarray(1.0), draws)).tolist() == [0.0, 1.0 + 2.0**-K]
    for scale in (0.0, -1.0, math.nan):
        assert np.isnan(np.asarray(release(value, jnp.asarray(scale), draws))).all()
    with pytest.raises(PrivacyError, match="float32"):
        release(value.astype(jnp.float32), jnp.asarray(1.0), draws)


# --- what the docstring argues


@settings(deadline=None)
@given(dim=st.integers(1, 10**7), scale=st.floats(1e-9, 1e9), ratio=st.floats(1e-7, 1e3))
def test_equation_2_in_fractions(dim, scale, ratio):
    """With the numbers that `release_secret` computes with. Rounding to the lattice is paid for, and not twice."""
    moved = scale * ratio
    s = scale * float(stretch(dim, moved / scale))
    planned = Fraction(moved) / Fraction(scale) * 2**K / (1 + Fraction(SPARE))
    root = Fraction(math.isqrt(dim * 10**40) + 1, 10**20)  # of dim, rounded up
    assert Fraction(moved) * Fraction(2.0**K / s) + root <= planned
    assert s / scale - 1 < 2 * (SPARE + math.sqrt(dim) / (2.0**K * ratio))


def test_a_lattice_too_coarse_for_so_small_a_share_is_refused():
    with pytest.raises(PrivacyError, match="for the lattice to be fine enough"):
        stretch(10**6, 1e-10)
    with pytest.raises(PrivacyError, match="sensitivity is 0 scales"):
        stretch(10, np.array([1.0, 0.0]))


@pytest.mark.parametrize("scale", [2, 4, 16, 64])
def test_equation_4_in_one_dimension(scale):
    z = np.arange(0, 12 * scale + 1)
    mass = np.exp(-(z**2) / (2 * scale**2)) / (2 * np.exp(-(z[1:] ** 2) / (2 * scale**2)).sum() + 1)
    low, high = special.ndtr(-(z + 0.5) / scale), special.ndtr(-(z - 0.5) / scale)
    ratio = np.abs(np.log((high - low) / mass))
    bound = (1 + z**2 / scale**2) / (23 * scale**2)
    assert np.all(ratio <= bound) and np.max(ratio / bound) > 0.5


def test_equation_5_where_it_can_be_summed():
    for scale in (1, 2, 8):
        z = np.arange(-60 * scale, 60 * scale + 1)
        sums = [np.exp(-(z**2) / (each * scale**2)).sum() for each in (4, 2)]
        assert 1 < sums[0] / sums[1] <= math.sqrt(2) * (1 + 1e-12)
    q = np.array([1, 10, 3072, 10**6])
    assert np.all(q / 2 * math.log(2) - (1.4 * q + 6400) / 4 <= -1600)
    assert np.all((q + 1.4 * q + 6400) / 23 <= (q + 2700) / 9)  # (4) and (5) make (6)


def test_equation_8_spare_noise_pays_for_what_is_not_gaussian():
    promised = 0
    for epsilon in (1e-3, 0.1, 1.0, 5.0, 20.0, 200.0):
        for rho in (1e-8, 1e-4, 0.05, 0.5, 5.0, 100.0):
            planned, tau = delta_exact(epsilon, rho), SPARE / 12 * min(1.0, epsilon)
            if DELTA_FLOOR <= planned <= 0.5:
                promised += 1
                allowed = epsilon - 2 * tau
                assert math.exp(tau) * delta_exact(allowed, rho / (1 + SPARE) ** 2) < planned * (1 - SPARE / 15)
                assert math.exp(tau) * delta_exact(allowed, rho) > planned
    assert promised > 10


def test_what_can_be_promised():
    check_promise(1.0, 1e-5, 3072, 1000)
    check_promise(0.1, DELTA_FLOOR, 10**6, 10**5)
    assert slack(10**6, 10**6) < 1e-12
    for epsilon, delta, releases, says in (
        (1.0, 1e-300, 10, "delta=1e-300"),
        (1.0, 0.9, 10, "delta=0.9"),
        (1e4, 1e-5, 10, "epsilon=10000.0"),
        (math.nan, 1e-5, 10, "epsilon=nan"),
        (1e-9, 1e-5, 10**9, "exact enough for"),
    ):
        with pytest.raises(PrivacyError, match=says):
            check_promise(epsilon, delta, 3072, releases)


# --- what rounding adds to a sensitivity


def moved_by(first, second, add):
    """How far apart two sums of float64 terms are, as a share of 2, exactly."""
    return (Fraction(add(first)) - Fraction(add(second))) / 2


def lingering(m, first):
    """Terms of at most 1 whose sums stay about a power of two: above it they round to twice as coarse numbers."""
    half = m // 2
    unit = 2.0 ** (half.bit_length() - 53)
    terms = np.ones(m)
    terms[0] = first
    rest = terms[half + 1 :]
    rest[0::2], rest[1::2] = -(0.5 + 0.49 * unit), 0.5 - 0.49 * unit
    return terms


ORDERS = {
    "one after the other": lambda terms: np.cumsum(terms)[-1],
    "backwards": lambda terms: np.cumsum(terms[::-1])[-1],
    "in pairs": lambda terms: terms.sum(),
    "in eight lanes": lambda terms: np.cumsum(terms.reshape(-1, 8), axis=0)[-1].sum(),
    "in sixteen parts": lambda terms: np.cumsum(np.cumsum(terms.reshape(16, -1), axis=1)[:, -1])[-1],
}


@pytest.mark.parametrize("m", [2**8, 2**14, 2**18])
@pytest.mark.parametrize("order", ORDERS)
def test_sums_in_any_order_move_by_no_more_than_the_bound(m, order):
    generator = np.random.default_rng(m)
    around = generator.uniform(0.5, 1.0, m)
    for first, second in (
        (lingering(m, 1.0), lingering(m, -1.0)),
        (np.append(1.0, around[1:]), np.append(-1.0, around[1:])),
        (np.sort(around), np.append(-1.0, np.sort(around)[1:])),
    ):
        assert max(np.abs(first).max(), np.abs(second).max()) <= 1 and np.sum(first != second) == 1
        assert moved_by(first, second, ORDERS[order]) <= 1 + rounding(m, 1)


def test_the_square_of_the_records_is_no_oversight():
    for m in (2**12, 2**16, 2**20):
        excess = moved_by(lingering(m, 1.0), lingering(m, -1.0), ORDERS["one after the other"]) - 1
        assert rounding(m, 1) / 10 < excess <= rounding(m, 1)


def test_a_sensitivity_is_never_below_the_textbook_s_and_rarely_above():
    sizes = np.array([1, 10, 1500, 60_000])
    found = sensitivity(0.3, sizes, 784)
    assert np.all(found > 2 * 0.3 / sizes) and np.all(found < 2 * 0.3 / sizes * (1 + 1e-6))
    for wrong in ((0, 1), (10, 0), (2**41, 1), (math.nan, 1)):
        with pytest.raises(PrivacyError, match="nothing is proven for more"):
            rounding(*wrong)
