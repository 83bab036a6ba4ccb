"""The network's noise: its distribution, its lattice, what it costs, and that the seeded kind is the simulator's.

Draws of `Sampler` cannot be seeded, so each statistical law is held to a level that chance breaks once in a million.
"""

import inspect
import math
import os
import random
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
from scipy import stats

import relaydp as rd
from relaydp.engine.door import open_door
from relaydp.errors import InputError, PrivacyError
from relaydp.privacy import delta_exact
from relaydp.privacy.mechanism import release
from relaydp.runtime import noise
from relaydp.runtime.noise import Sampler, Seeded, granularity

LEVEL = 1e-6
DRAWS = 20_000
SENSITIVITY = 2.0 / 1500


@pytest.fixture(scope="module")
def drawn():
    """One long vector of noise for each scale."""
    value = np.linspace(-3.0, 3.0, DRAWS)
    return {scale: Sampler()(value, scale, SENSITIVITY, 0) - value for scale in (1e-3, 0.37, 250.0)}


# --- the distribution


def test_it_is_gaussian_at_its_scale_and_at_no_other(drawn):
    for scale, sample in drawn.items():
        levels = [stats.kstest(sample, "norm", (0.0, factor * scale)).pvalue for factor in (1.0, 2 / 3, 3 / 2)]
        assert levels[0] > LEVEL and max(levels[1:]) < LEVEL


def test_mean_and_variance_are_right_to_what_the_draws_can_tell(drawn):
    z = -stats.norm.ppf(LEVEL / 2)
    for scale, sample in drawn.items():
        assert abs(sample.mean()) < z * scale / math.sqrt(DRAWS)
        assert abs(np.mean(sample**2) / scale**2 - 1) < z * math.sqrt(2 / DRAWS)


def test_coordinates_and_calls_are_independent(drawn):
    sample = drawn[0.37]
    again = Sampler()(np.zeros(DRAWS), 0.37, SENSITIVITY, 0)
    z = -stats.norm.ppf(LEVEL / 2) / math.sqrt(DRAWS)
    assert abs(np.corrcoef(sample[1:], sample[:-1])[0, 1]) < z
    assert abs(np.corrcoef(sample, again)[0, 1]) < z


def test_the_library_draws_each_probability_exactly():
    """On the integers, where each can be counted. OpenDP 0.14.1, whose divisions went wrong, fails this by far."""
    Sampler()  # opens what OpenDP asks to be opened
    scale, draws = 2.0, 50_000
    space = vector_domain(atom_domain(T=float, nan=False), size=draws), l2_distance(T=float)
    sample = np.array(make_gaussian(*space, scale=scale, k=0)(np.zeros(draws)))
    z = np.arange(-40, 41)
    chance = np.exp(-(z**2) / (2 * scale**2))
    expected = draws * chance / chance.sum()
    seen = (sample[:, None] == z).sum(0)
    usual = expected > 20
    seen, expected = [np.append(each[usual], each[~usual].sum()) for each in (seen, expected)]
    assert stats.chisquare(seen, expected).pvalue > LEVEL


def test_a_value_is_kept_whatever_its_size():
    value = np.array([0.0, 1e-9, -1.0, 1e6, -1e12, 1e300])
    sample = Sampler()(value, 1e-3, SENSITIVITY, 0)
    assert np.all(np.abs(sample - value) <= 1e-2 + 2 * np.spacing(np.abs(value)))


# --- the lattice


@pytest.mark.parametrize(("scale", "sensitivity"), [(1e-3, 1e-3), (0.3, 1e-2), (1e-6, 10.0), (7.0, 7.0)])
def test_outputs_lie_on_a_lattice_that_the_value_has_no_part_in(scale, sensitivity):
    dim = 500
    step = 2.0 ** granularity(dim, scale, sensitivity)
    values = [np.full(dim, math.pi * scale), np.linspace(-scale, scale, dim) / 3]
    assert any(np.any(value / step % 1 != 0) for value in values)  # they do not lie on it themselves
    for value in values:
        multiples = Sampler()(value, scale, sensitivity, 0) / step  # exact: a power of two
        assert np.max(np.abs(multiples)) < 2**53  # beyond, float64 has no odd numbers
        assert np.all(multiples % 1 == 0) and np.any(multiples % 2 == 1)


scales = st.floats(-8, 8).map(lambda x: 10.0**x)


@settings(max_examples=60, deadline=None)
@given(dim=st.integers(1, 5000), scale=scales, sensitivity=scales)
def test_the_library_s_own_map_charges_no_more_than_was_planned(dim, scale, sensitivity):
    Sampler()  # opens what OpenDP asks to be opened
    charged = noise._measurement(dim, scale, sensitivity).map(sensitivity)
    planned = (Fraction(sensitivity) / Fraction(scale)) ** 2 / 2
    assert planned * (1 - Fraction(1, 10**9)) < Fraction(charged) <= planned  # and not much less: nothing is wasted


@given(dim=st.integers(1, 10**6), scale=scales, sensitivity=scales)
def test_the_lattice_is_the_coarsest_that_is_fine_enough(dim, scale, sensitivity):
    added = math.sqrt(dim) * 2.0 ** granularity(dim, scale, sensitivity)
    least = 1e-10 * min(scale, sensitivity)
    assert added <= least * (1 + 1e-12) < 2 * added * (1 + 1e-11)


def test_a_charge_above_the_plan_releases_nothing(monkeypatch):
    monkeypatch.setattr(noise, "STRETCH", 0.0)  # then nothing pays for the rounding
    noise._measurement.cache_clear()
    with pytest.raises(PrivacyError, match="OpenDP charges rho=.*needed at most the planned.*Nothing was released"):
        Sampler()(np.zeros(3), 1.0, 1.0, 0)
    noise._measurement.cache_clear()


# --- what the docstring argues


def discrete(scale, reach):
    z = np.arange(-reach, reach + 1)
    mass = np.exp(-(z**2) / (2 * scale**2))
    return z, mass / mass.sum()


@pytest.mark.parametrize("scale", [2, 5, 10, 40])
def test_equation_4_in_one_and_two_dimensions(scale):
    """The distance to a rounded Gaussian, summed up. It shrinks with the square of the step, as the bound does."""
    z, mass = discrete(scale, 12 * scale)
    rounded = stats.norm.cdf((z + 0.5) / scale) - stats.norm.cdf((z - 0.5) / scale)
    for dim, p, r in ((1, mass, rounded), (2, np.outer(mass, mass), np.outer(rounded, rounded))):
        distance = np.abs(p - r).sum() / 2
        assert math.sqrt(dim) / (100 * scale**2) < distance < math.sqrt(dim) / (4 * scale**2)


@pytest.mark.parametrize("shift", [(10, 0), (6, 8), (1, 3), (20, 15)])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_equation_5_for_one_release(shift, epsilon):
    """The exact delta of two discrete Gaussians against that of continuous ones, along the axes and across them."""
    scale, reach = 10, 150
    z, mass = discrete(scale, reach)
    first = np.outer(mass, mass)
    moved = [np.exp(-((z - each) ** 2) / (2 * scale**2)) for each in shift]
    second = np.outer(*(each / each.sum() for each in moved))
    delta = np.maximum(first - math.exp(epsilon) * second, 0.0).sum()
    continuous = delta_exact(epsilon, (shift[0] ** 2 + shift[1] ** 2) / (2 * scale**2))
    assert delta <= continuous + (1 + math.exp(epsilon)) * math.sqrt(2) / (4 * scale**2)
    assert delta == pytest.approx(continuous, abs=1e-3)


# --- no seed


def test_no_seed_is_taken_and_none_makes_it_repeat():
    assert not inspect.signature(Sampler).parameters
    samples = []
    for _ in range(3):
        random.seed(0)
        np.random.seed(0)
        jax.random.key(0)
        samples.append(Sampler()(np.zeros(50), 1.0, 0.1, hop=3))
    assert len(np.unique(samples)) == 150


def test_two_processes_of_one_birth_draw_different_noise():
    """A fork copies a generator's state; the library has to notice."""
    code = (
        "import os, numpy as np; from relaydp.runtime.noise import Sampler\n"
        "draw = lambda: Sampler()(np.zeros(4), 1.0, 1.0, 0).tolist()\n"
        "draw(); child = os.fork(); mine = draw()\n"
        "if child: os.waitpid(child, 0)\n"
        "print(*mine, flush=True); os._exit(0)"
    )
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert len(set(ended.stdout.split())) == 8


def test_it_stays_small():
    """An idle agent has 300 MB: what would take half of that alone must not come in by the way."""
    heavy = "('opendp.prelude', 'polars', 'sklearn', 'scipy.stats', 'matplotlib', 'numba', 'pandas')"
    code = f"import sys; from relaydp.runtime import noise; print([m for m in {heavy} if m in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert ended.stdout.strip() == "[]", ended.stderr


# --- the seeded kind is the simulator's


@pytest.mark.parametrize("seed", [0, 7, 2**31])
def test_a_relay_s_noise_is_the_simulator_s_bit_for_bit(seed):
    """As `engine.solve` and `engine.loop` draw it."""
    _, key = jax.random.split(jax.random.key(seed))
    value = np.random.default_rng(seed).normal(size=30)
    for hop, scale in ((0, 1e-3), (1, 2.5), (1239, 0.7)):
        sample = Seeded(seed)(value, scale, SENSITIVITY, hop)
        for how in (release, jax.jit(release)):
            expected = how(jnp.asarray(value), jnp.asarray(scale), jax.random.fold_in(key, jnp.int32(hop)))
            assert sample.tobytes() == np.asarray(expected).tobytes()


@pytest.mark.parametrize("seed", [0, 7])
def test_a_party_s_row_is_the_simulator_s_bit_for_bit(seed):
    _, key = jax.random.split(jax.random.key(seed))
    generator = np.random.default_rng(seed)
    values, each = generator.normal(size=(5, 9)), generator.uniform(0.1, 3.0, size=5)
    for hop in (0, 1, 88):
        for how in (release, jax.jit(release)):
            expected = how(jnp.asarray(values), jnp.asarray(each)[:, None], jax.random.fold_in(key, hop))
            for party in range(5):
                sample = Seeded(seed).row(party, 5)(values[party], each[party], SENSITIVITY, hop)
                assert sample.tobytes() == np.asarray(expected[party]).tobytes()


def test_it_opens_the_simulator_s_own_door():
    """The very door of the simulator: its clipped gradients, its noise and its ridge, for one agent and for all."""
    records = rd.load_data("breast-cancer")
    problem = rd.logistic(records, agents=4, l2=1e-2, record_norm=2.0)
    clip, scale = jnp.asarray(problem.gradient_bound()), 0.05
    setting = open_door(problem.silos, problem.terms, clip)
    seeded, key = Seeded(3), jax.random.split(jax.random.key(3))[1]
    ys = jnp.asarray(np.random.default_rng(1).normal(size=(4, problem.dim)))
    scales = scale * jnp.arange(1.0, 5.0)
    for hop in (0, 11):
        turn = jax.random.fold_in(key, hop)
        everyone = setting.gradients(ys, scales, turn)
        clean = np.asarray(problem.silos.gradients(ys, clip))
        for i in range(4):
            ridge = np.asarray(problem.terms.ridge_gradient(ys[i]))
            drawn = seeded.row(i, 4)(clean[i], float(scales[i]), SENSITIVITY, hop)
            assert (drawn + ridge).tobytes() == np.asarray(everyone[i]).tobytes()
            alone = seeded(np.asarray(problem.silos.gradient(i, ys[i], clip)), scale, SENSITIVITY, hop)
            expected = setting.gradient(jnp.asarray(i), ys[i], jnp.asarray(scale), turn)
            assert (alone + ridge).tobytes() == np.asarray(expected).tobytes()


def test_rows_and_hops_and_seeds_differ():
    value = np.zeros(6)
    draws = [Seeded(seed).row(party, 3) for seed in (0, 1) for party in range(3)]
    samples = [draw(value, 1.0, 1.0, hop) for draw in draws for hop in (0, 1)]
    assert len(np.unique(samples)) == len(samples) * 6


def test_only_the_sampler_calls_itself_private():
    assert Sampler().private and not Seeded(7).private and not Seeded(7).row(1, 2).private
    assert "OpenDP 0." in Sampler().describe() and "NOT PRIVATE" not in Sampler().describe()
    for seeded in (Seeded(7), Seeded(7).row(1, 2)):
        assert seeded.describe().startswith("NOT PRIVATE") and "7" in seeded.describe()


@pytest.mark.parametrize("party", [-1, 3])
def test_a_party_that_is_not_there_has_no_row(party):
    with pytest.raises(InputError, match=f"party={party} of 3"):
        Seeded(0).row(party, 3)


# --- refusals


@pytest.mark.parametrize("draw", [Sampler(), Seeded(0), Seeded(0).row(0, 2)], ids=["sampler", "seeded", "row"])
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"scale": 0.0}, "scale=0.0 arrived"),
        ({"scale": -1.0}, "scale=-1.0 arrived"),
        ({"scale": math.nan}, "scale=nan arrived"),
        ({"scale": math.inf}, "scale=inf arrived"),
        ({"sensitivity": 0.0}, "sensitivity=0.0 arrived"),
        ({"sensitivity": math.nan}, "sensitivity=nan arrived"),
        ({"value": np.array([0.123456, math.nan])}, "undefined coordinate"),
        ({"value": np.array([0.123456, -math.inf])}, "infinite or undefined"),
        ({"value": np.ones(3, np.float32)}, "float32"),
        ({"value": np.ones((2, 3))}, r"shape \(2, 3\)"),
        ({"value": np.ones(0)}, r"shape \(0,\)"),
    ],
)
def test_what_cannot_be_hidden_is_refused(draw, changes, says):
    arguments = {"value": np.zeros(3), "scale": 1.0, "sensitivity": 1.0, "hop": 0}
    draw(**arguments)
    with pytest.raises(PrivacyError, match=says) as caught:
        draw(**arguments | changes)
    assert "0.123" not in str(caught.value)  # a message may be logged: it tells nothing of the value


def test_answers_are_new_arrays():
    for draw in (Sampler(), Seeded(0), Seeded(0).row(1, 2)):
        value = np.zeros(4)
        sample = draw(value, 1.0, 1.0, 0)
        assert sample.dtype == np.float64 and sample.shape == (4,) and sample.flags.writeable
        assert not value.any()
