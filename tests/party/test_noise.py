"""The network's noise: secret noise at the planned scale, and that the seeded kind is the simulator's.

`test_secret` has the laws of secret noise itself. Draws of `Sampler` cannot be seeded, so each statistical law is held
to a level that chance breaks once in a thousand million.
"""

import inspect
import math
import os
import random
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import relaydp as rd
from relaydp.algorithm import Turn
from relaydp.errors import InputError, PrivacyError
from relaydp.oracle.oracle import make_oracle
from relaydp.party import noise
from relaydp.party.noise import Sampler, Seeded
from relaydp.privacy.mechanism import release
from relaydp.privacy.secret import K, release_secret, stretch

LEVEL = 1e-9
DRAWS = 200_000
SENSITIVITY = 2.0 / 1500


@pytest.fixture(scope="module")
def drawn():
    """One long vector of noise for each scale."""
    value = np.linspace(-3.0, 3.0, DRAWS)
    return {scale: Sampler()(value, scale, SENSITIVITY, 0) - value for scale in (1e-3, 0.37, 250.0)}


# --- the distribution


def test_it_is_gaussian_at_its_scale_and_at_no_other(drawn):
    for scale, sample in drawn.items():
        levels = [stats.kstest(sample, "norm", (0.0, factor * scale)).pvalue for factor in (1.0, 0.9, 1.1)]
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


# --- the lattice


@pytest.mark.parametrize(("scale", "sensitivity"), [(1e-3, 1e-3), (0.3, 1e-2), (1e-6, 10.0), (7.0, 7.0)])
def test_outputs_lie_on_a_lattice_that_the_value_has_no_part_in(scale, sensitivity):
    """Whole multiples of a step that follows from dimension, scale and sensitivity alone."""
    dim = 500
    step = scale * float(stretch(dim, sensitivity / scale)) * 2.0**-K
    values = [np.full(dim, math.pi * scale), np.linspace(-scale, scale, dim) / 3]
    assert all(np.any(value / step % 1 != 0) for value in values)  # they do not lie on it themselves
    for value in values:
        sample = Sampler()(value, scale, sensitivity, 0)
        multiples = np.rint(sample / step)
        assert np.max(np.abs(multiples)) < 2**53  # beyond, float64 has no odd numbers
        assert np.array_equal(multiples * step, sample) and np.any(multiples % 2 == 1)


def test_a_release_has_the_planned_scale_stretched_and_every_coordinate_a_draw_of_its_own(monkeypatch):
    draws = np.arange(-3, 4) << 35
    monkeypatch.setattr(noise, "draw_lattice", lambda count: draws[:count])
    value, scale, sensitivity = np.linspace(-1.0, 1.0, 7), 0.25, 0.01
    sample = Sampler()(value, scale, sensitivity, 5)
    wider = scale * float(stretch(7, sensitivity / scale))
    assert wider > scale and np.array_equal(sample, release_secret(value, wider, draws))


def test_noise_beside_which_a_record_is_nothing_is_refused():
    """The lattice is as fine as the noise, not as what it hides: a record that moves less than a step would be free."""
    with pytest.raises(PrivacyError, match="Plan for less noise"):
        Sampler()(np.zeros(3), 1.0, 1e-12, 0)


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


# --- when it is paid for


def test_the_first_release_waits_for_no_compiler():
    """Machine code comes when the sampler is made, with the party's start, and neither with the module nor later."""
    code = (
        "import sys, numpy as np; from relaydp.party.noise import Sampler\n"
        "heavy = lambda: [m for m in ('numba', 'polars', 'sklearn', 'scipy.stats', 'matplotlib') if m in sys.modules]\n"
        "print(heavy()); sampler = Sampler(); print(heavy())\n"
        "from relaydp.privacy.lattice import fill; made = list(fill.signatures)\n"
        "sampler(np.zeros(3072), 1.0, 0.1, 0); print(len(made), fill.signatures == made)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert ended.stdout.splitlines() == ["[]", "['numba']", "1 True"], ended.stderr


# --- the seeded kind is the simulator's


@pytest.mark.parametrize("seed", [0, 7, 2**31])
def test_a_relay_s_noise_is_the_simulator_s_bit_for_bit(seed):
    """As `engine.solver` and `engine.loop` draw it."""
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


def test_it_opens_the_simulator_s_own_oracle():
    """The very oracle of the simulator: its clipped gradients, its noise and its ridge, for one agent and for all."""
    records = rd.load_data("breast-cancer")
    problem = rd.logistic(records, agents=4, l2=1e-2, record_norm=2.0)
    clip, scale = jnp.asarray(problem.gradient_bound()), 0.05
    oracle = make_oracle(problem.agent_records, problem.terms, clip)
    seeded, key = Seeded(3), jax.random.split(jax.random.key(3))[1]
    ys = jnp.asarray(np.random.default_rng(1).normal(size=(4, problem.dim)))
    scales = scale * jnp.arange(1.0, 5.0)
    for hop in (0, 11):
        turn = Turn(hop, 0, 0, jnp.ones(4, bool), scales, jax.random.fold_in(key, hop))
        everyone = oracle(turn).gradients(ys)
        clean = np.asarray(problem.agent_records.gradients(ys, clip))
        for i in range(4):
            ridge = np.asarray(problem.terms.ridge_gradient(ys[i]))
            drawn = seeded.row(i, 4)(clean[i], float(scales[i]), SENSITIVITY, hop)
            assert (drawn + ridge).tobytes() == np.asarray(everyone[i]).tobytes()
            alone = seeded(np.asarray(problem.agent_records.gradient(i, ys[i], clip)), scale, SENSITIVITY, hop)
            own = turn._replace(holder=jnp.asarray(i), acts=jnp.asarray(True), scale=jnp.asarray(scale))
            expected = oracle(own).gradient(ys[i])
            assert (alone + ridge).tobytes() == np.asarray(expected).tobytes()


def test_rows_and_hops_and_seeds_differ():
    value = np.zeros(6)
    draws = [Seeded(seed).row(party, 3) for seed in (0, 1) for party in range(3)]
    samples = [draw(value, 1.0, 1.0, hop) for draw in draws for hop in (0, 1)]
    assert len(np.unique(samples)) == len(samples) * 6


def test_only_the_sampler_calls_itself_private():
    assert Sampler().private and not Seeded(7).private and not Seeded(7).row(1, 2).private
    assert "randomness of the operating system" in Sampler().describe() and "NOT PRIVATE" not in Sampler().describe()
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
        ({"scale": 0.0}, "scale=0.0;"),
        ({"scale": -1.0}, "scale=-1.0;"),
        ({"scale": math.nan}, "scale=nan;"),
        ({"scale": math.inf}, "scale=inf;"),
        ({"sensitivity": 0.0}, "sensitivity=0.0;"),
        ({"sensitivity": math.nan}, "sensitivity=nan;"),
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
