"""The noise of a real run: secret, on a lattice, for one release each. `privacy.secret` has it, and the proof.

`Seeded` draws what the simulator would, for development and tests: whoever knows its seed knows the noise.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from relaydp.errors import InputError, PrivacyError
from relaydp.oracle.randomness import NOISE, key_for
from relaydp.privacy.mechanism import release
from relaydp.privacy.secret import LARGEST, SMALLEST, draw_lattice, release_secret, stretch

Draw = Callable[[np.ndarray, float, float, int], np.ndarray]
"""(value, scale, sensitivity, hop) -> value + N(0, scale^2 I), as it may be shown to others."""

_release = jax.jit(release)


class Sampler:
    """Private noise: an exact discrete Gaussian, fresh from the operating system at every call. It takes no seed.

    A draw costs some 0.2 microseconds a coordinate and lets other threads run. Making one draws once, for nobody: that
    brings the machine code, a second or more in a new process, before anybody waits for a release.
    """

    private = True

    def __init__(self) -> None:
        draw_lattice(1)

    def __call__(self, value: np.ndarray, scale: float, sensitivity: float, hop: int) -> np.ndarray:
        """`value` and noise of that scale, on a lattice; the same arguments give another answer each time.

        Formal guarantee. Let `value` move by at most `sensitivity` in the Euclidean norm when one record is replaced,
        rounding included. The result is rho-zCDP with rho = sensitivity^2/(2 scale^2), and T of them have the exact
        curve of Gaussian noise where `check_promise` agrees (the agreement asks it), provided that scale and
        sensitivity do not depend on the records (they may depend on earlier releases).
        """
        value = _checked(value, scale, sensitivity)
        wider = float(scale) * float(stretch(value.size, float(sensitivity) / float(scale)))
        return release_secret(value, wider, draw_lattice(value.size))

    def describe(self) -> str:
        """One sentence for a certificate."""
        return (
            "Discrete Gaussian noise on a lattice (Canonne, Kamath and Steinke 2020), drawn exactly (Karney 2016) from "
            "randomness of the operating system and kept nowhere; the noise covers rounding."
        )


class Seeded:
    """The simulator's noise, bit for bit, from the same seed. NOT PRIVATE: for development and tests.

    A relay draws one vector at each hop. A round draws all agents' vectors at once: a party takes its part of them by
    `row`.
    """

    private = False

    def __init__(self, seed: int, *, row: tuple[int, int] | None = None) -> None:
        self.seed, self._row = int(seed), row
        self._key = key_for(self.seed, NOISE)

    def row(self, party: int, agents: int) -> Seeded:
        """The same noise as party `party` of `agents` gets of it in a round."""
        if not 0 <= party < agents:
            raise InputError(f"party={party} of {agents}; it must be 0 to {agents - 1}. Count parties from 0.")
        return Seeded(self.seed, row=(party, agents))

    def __call__(self, value: np.ndarray, scale: float, sensitivity: float, hop: int) -> np.ndarray:
        """`value` and the noise that the simulator adds to it at this hop; the same arguments give the same answer."""
        value = _checked(value, scale, sensitivity)
        key = jax.random.fold_in(self._key, hop)  # as engine.loop
        if self._row is None:
            return np.array(_release(jnp.asarray(value), jnp.asarray(float(scale)), key))
        party, agents = self._row
        everyone = np.zeros((agents, value.size))
        everyone[party] = value
        return np.array(_release(jnp.asarray(everyone), jnp.full((agents, 1), float(scale)), key)[party])

    def describe(self) -> str:
        """One sentence for a certificate."""
        return (
            f"NOT PRIVATE: Gaussian noise from a generator seeded with {self.seed}, for development; whoever knows the "
            "seed can take it off."
        )


def _checked(value: np.ndarray, scale: float, sensitivity: float) -> np.ndarray:
    """`value`, if noise can hide it. What is wrong with it is said without any of its numbers."""
    for name, number in (("scale", scale), ("sensitivity", sensitivity)):
        if not SMALLEST <= number <= LARGEST:
            raise PrivacyError(
                f"{name}={number!r}; it must be a number from {SMALLEST:g} to {LARGEST:g}, or nothing can be promised. "
                "Take it from the agreed plan."
            )
    value = np.asarray(value)
    if value.dtype != np.float64 or value.ndim != 1 or not value.size:
        raise PrivacyError(
            f"the value has type {value.dtype} and shape {value.shape}; it must be one float64 vector. Release each "
            "vector by itself."
        )
    if not np.isfinite(value).all():
        raise PrivacyError(
            "the value has an infinite or undefined coordinate, which no noise hides; nothing was released. Look for "
            "such numbers, or for ones beyond the agreed bounds, in the records."
        )
    return value
