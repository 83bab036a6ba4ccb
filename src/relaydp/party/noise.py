"""The noise of a real run: secret, on a lattice, for one release each. The noise and its proof are in `privacy.secret`.

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

    A draw takes about 0.2 microseconds per coordinate and lets other threads run. The constructor makes one unused
    draw: this loads the machine code, which takes a second or more in a new process, before a release waits for it.
    """

    private = True

    def __init__(self) -> None:
        draw_lattice(1)

    def __call__(self, value: np.ndarray, scale: float, sensitivity: float, hop: int) -> np.ndarray:
        """`value` with noise of that scale, on a lattice; each call gives another answer.

        Formal guarantee. Let `value` move by at most `sensitivity` in the Euclidean norm when one record is replaced,
        rounding included. The result is rho-zCDP with rho = sensitivity^2/(2 scale^2), and T of them have the exact
        curve of Gaussian noise if `check_promise` passes (the agreed plan calls it), provided that scale and
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

    A relay draws one vector at each hop. A round draws all agents' vectors at once: `row` gives a party its part of
    them.
    """

    private = False

    def __init__(self, seed: int, *, row: tuple[int, int] | None = None) -> None:
        self.seed, self._row = int(seed), row
        self._key = key_for(self.seed, NOISE)

    def row(self, party: int, agents: int) -> Seeded:
        """The part of the same noise that party `party` of `agents` uses in a round."""
        if not 0 <= party < agents:
            raise InputError(f"party={party} of {agents}; it must be 0 to {agents - 1}. Count parties from 0.")
        return Seeded(self.seed, row=(party, agents))

    def __call__(self, value: np.ndarray, scale: float, sensitivity: float, hop: int) -> np.ndarray:
        """`value` with the noise that the simulator adds to it at this hop; the same arguments give the same answer."""
        value = _checked(value, scale, sensitivity)
        key = jax.random.fold_in(self._key, hop)  # as in engine.loop
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
    """`value`, after checking that noise can hide it. Errors do not quote its numbers."""
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
