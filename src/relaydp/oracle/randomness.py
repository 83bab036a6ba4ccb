"""Where a run's randomness comes from: the two kinds of run.

    Simulated   a seed that somebody chose. The run can be repeated to the same bits, and whoever knows the seed knows
                the noise: it carries no promise, whatever its plan would cost.
    Secret      noise from the operating system (`privacy.secret`), drawn for one use and kept nowhere. Only such a run
                carries a promise. The walk is public and has a seed of its own, which tells nothing about the noise.

A run without noise has nothing to keep secret, and is Simulated too. Noise in the objective is never Secret: its proof
is about real numbers, and nothing keeps it for the float64 minimisers that a computer finds.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Array

from relaydp.algorithm import Algorithm
from relaydp.arrays import placed
from relaydp.errors import InputError, PrivacyError, short
from relaydp.privacy import PRICED, SOUND, secret

GENERATOR = "threefry2x32"  # by name: JAX's default can be changed from outside
WALK, NOISE, ALONE = 0, 1, 2  # purposes: each has a key of its own under one seed
SEED_BITS = 63  # what a JAX key takes from one whole number


@dataclass(frozen=True)
class Simulated:
    """Everything from one seed."""

    seed: int

    @property
    def walk_key(self) -> Array:
        return key_for(self.seed, WALK)


@dataclass(frozen=True)
class Secret:
    """Noise that nobody can know, and a public walk."""

    walk_seed: int

    @property
    def walk_key(self) -> Array:
        return key_for(self.walk_seed, WALK)


Source = Simulated | Secret


def choose_source(seed: int | None, mechanism: str | None, method: Algorithm | None = None) -> Source:
    """Secret noise for a sound mechanism and no seed; else a simulation, from seed 0 where none was asked for.

    Noise in the objective without a seed is refused: it would be a private run, and no promise could be kept. `method`
    is what the error names another algorithm for.
    """
    if seed is not None:
        check_seed(seed)
        return Simulated(int(seed))
    if mechanism in SOUND:
        return Secret(secrets.randbits(SEED_BITS))
    if mechanism in PRICED:
        raise PrivacyError(_no_promise(method))
    return Simulated(0)


def _no_promise(method: Algorithm | None) -> str:
    name = "an algorithm" if method is None else method.name
    use = "'recal'" if method is None or not method.instead else f"{method.instead!r} or 'recal'"
    return (
        f"{name} has a budget, noise in the objective and no seed, and this noise keeps no promise. The "
        "proof of noise in the objective is about real numbers: a minimiser in float64 would need noise on a lattice, "
        "and has none. Pass seed= (random_state= of an estimator) for a simulation, which promises nothing, or use an "
        f"algorithm with noise on gradients: {use}."
    )


def check_seed(seed: object) -> None:
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
        raise InputError(f"seed={seed!r}; needed a whole number, 0 or more.")


def as_seeds(seeds: Iterable[int]) -> list[int]:
    """Seeds that a user gave for many runs.

    >>> as_seeds(range(3))
    [0, 1, 2]
    """
    if isinstance(seeds, str | bytes) or not isinstance(seeds, Iterable):
        raise InputError(f"seeds={short(seeds)}; needed whole numbers, such as range(16).")
    found = list(seeds)
    for seed in found:
        check_seed(seed)
    return [int(seed) for seed in found]


def key_for(seed: int, purpose: int) -> Array:
    """A simulation's key for one purpose. Made of the seed's bits alone: `jax.random.key` adds what the environment
    says to it."""
    words = np.array([int(seed) >> 32 & 0xFFFFFFFF, int(seed) & 0xFFFFFFFF], np.uint32)
    return jax.random.fold_in(jax.random.wrap_key_data(placed(words), impl=GENERATOR), purpose)


def draw_shares(acts: np.ndarray, r: np.ndarray, L: int, numbers: int) -> np.ndarray:
    """Shares of the noise of sums, of scales r 2^L in steps of a common lattice: acts.shape + (numbers,), int64, and 0
    where nobody acts. `r` has a number for each of `acts`."""
    shares = np.zeros((*acts.shape, numbers), np.int64)
    for kind in np.unique(r[acts]).tolist():
        alike = acts & (r == kind)
        shares[alike] = secret.draw_lattice_at(int(alike.sum()) * numbers, kind, L).reshape(-1, numbers)
    return shares


def draw_gradient_noise(acts: np.ndarray, dim: int) -> np.ndarray:
    """Lattice noise for every release: acts.shape + (dim,), int64, and 0 where nobody acts."""
    draws = np.zeros((*acts.shape, dim), np.int64)
    draws[acts] = secret.draw_lattice(int(acts.sum()) * dim).reshape(-1, dim)
    return draws
