"""The noise of a real run: a discrete Gaussian on a lattice, drawn by OpenDP with the operating system's randomness.

A float64 draw of a continuous Gaussian leaves traces of the value in an output's last bits (Mironov 2012), and a seed
is a secret that must be kept for good. `Sampler` has neither weakness. It rounds the value to multiples of h = 2^k,
adds integers times h whose distribution OpenDP draws exactly, and forgets them:

    (1)  M(x) = round_h(x) + Z,        P[Z_j = h z] proportional to exp(-h^2 z^2 / (2 s^2)),    z an integer, j = 1..q

`Seeded` draws what the simulator would, for development and tests: whoever knows its seed knows the noise.

What is proven. On a lattice, a discrete Gaussian has the zCDP of the continuous one: D^2/(2 s^2) for lattice points at
most D apart (Canonne, Kamath and Steinke 2020, arXiv 2004.00010, theorem 14). Each rounding moves a coordinate by h/2
at most, so that two values `sensitivity` apart become lattice points at most D = sensitivity + sqrt(q) h apart, which
is what OpenDP's own privacy map charges. Here

    (2)  sqrt(q) h <= 1e-10 min(sensitivity, scale)      and      s = (1 + 2e-10) scale

pay for it: the map's answer is at most sensitivity^2/(2 scale^2), the rho that was planned, and is checked to be, for
every measurement. What comes out is rounded to float64 afterwards, at no cost.

The exact epsilon. `accountant.epsilon_exact` is for continuous Gaussians, and rho-zCDP alone would give the larger
`epsilon_paper`. It carries over because Z is almost a Gaussian G of scale s that was rounded to the lattice, R:

    (3)  round_h(x) + R = round_h(round_h(x) + G)          post-processing of Gaussian noise on values at most D apart,
                                                           so that it has the exact curve of the planned rho
    (4)  TV(Z, R) <= sqrt(q) h^2 / (4 s^2) < 3e-21         by (2)
    (5)  delta(T releases) <= delta_exact(epsilon, rho) + (1 + e^epsilon) T 3e-21

(5) replaces Z by R in T releases in turn, adaptively chosen ones too, on both of two neighbouring data sets. At epsilon
10 and 1,000 releases the last term is below 1e-13; a delta is 1e-5 or so. For (4), in one coordinate and units of h (s
is at least 1e10 then), Poisson's summation formula gives

    P[R = z] / P[Z = z] = (1 + eta) integral_(-1/2)^(1/2) cosh(z u/s^2) exp(-u^2/(2 s^2)) du,   0 < eta < 3 e^(-19 s^2)

which lies between 1 - 1/(24 s^2) and (1 + eta) exp(z^2/(8 s^4)). Squared and averaged over Z, its distance from 1 (the
chi-squared divergence) is below 0.05/s^4. Over q independent coordinates that makes at most e^(0.05 q/s^4) - 1, and a
total variation of at most half the root of it.

Not covered: that the value was itself computed in float64, so that its sensitivity holds up to rounding; and how long a
draw takes, which depends a little on the noise and not on the value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian
from opendp.metrics import l2_distance
from opendp.mod import Measurement, enable_features

from relaydp.errors import InputError, PrivacyError
from relaydp.privacy.accountant import gaussian_rho
from relaydp.privacy.mechanism import release

Draw = Callable[[np.ndarray, float, float, int], np.ndarray]
"""(value, scale, sensitivity, hop) -> value + N(0, scale^2 I), as it may be shown to others."""

ROUNDING = 1e-10  # of sensitivity and scale: what rounding to the lattice may add to a distance
STRETCH = 2e-10  # of the scale: noise that pays for the rounding, with as much again to spare
SMALLEST, LARGEST = 1e-200, 1e200  # of scales and sensitivities: 2^k and the noise stay within float64's range
KEPT = 64  # measurements kept; a plan whose scales change makes a new one (0.3 ms) for each

_release = jax.jit(release)


class Sampler:
    """Private noise: OpenDP's discrete Gaussian, fresh from the operating system at every call. It takes no seed.

    A draw costs some 13 microseconds a coordinate, nearly all of it OpenDP's exact sampling. It lets other threads run.
    """

    private = True

    def __init__(self) -> None:
        enable_features("contrib")  # OpenDP asks for it once a process: its proofs are public, their review goes on

    def __call__(self, value: np.ndarray, scale: float, sensitivity: float, hop: int) -> np.ndarray:
        """`value` and noise of that scale, on a lattice; the same arguments give another answer each time.

        Formal guarantee. Let `value` move by at most `sensitivity` in the Euclidean norm when one record is replaced.
        The result is rho-zCDP with rho = sensitivity^2/(2 scale^2), and (5) holds over T of them, provided that scale
        and sensitivity do not depend on the records (they may depend on earlier releases).
        """
        value = _checked(value, scale, sensitivity)
        measurement = _measurement(value.size, float(scale), float(sensitivity))
        # a copy: OpenDP takes no read-only array, and those that come from JAX are
        return np.array(measurement(value.copy()), dtype=np.float64)

    def describe(self) -> str:
        """One sentence for a certificate."""
        return (
            "Discrete Gaussian noise on a lattice (Canonne, Kamath and Steinke 2020), drawn by OpenDP "
            f"{version('opendp')} with randomness of the operating system and kept nowhere; the noise covers rounding."
        )


class Seeded:
    """The simulator's noise, bit for bit, from the same seed. NOT PRIVATE: for development and tests.

    A relay draws one vector at each hop. A round draws all agents' vectors at once: a party takes its part of them by
    `row`.
    """

    private = False

    def __init__(self, seed: int, *, row: tuple[int, int] | None = None) -> None:
        self.seed, self._row = int(seed), row
        _, self._key = jax.random.split(jax.random.key(self.seed))  # as engine.solve: walk, noise

    def row(self, party: int, agents: int) -> Seeded:
        """The same noise as party `party` of `agents` gets of it in a round."""
        if not 0 <= party < agents:
            raise InputError(f"party={party} of {agents} arrived; needed 0 to {agents - 1}. Count parties from 0.")
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


def granularity(dim: int, scale: float, sensitivity: float) -> int:
    """k of the coarsest lattice that obeys (2), the cheapest to draw on.

    >>> granularity(3072, 0.01, 0.001)
    -49
    """
    return math.floor(math.log2(ROUNDING * min(scale, sensitivity) / math.sqrt(dim)))


@lru_cache(maxsize=KEPT)
def _measurement(dim: int, scale: float, sensitivity: float) -> Measurement:
    """OpenDP's measurement for vectors of one length, after its own map has agreed to the rho that was planned."""
    space = vector_domain(atom_domain(T=float, nan=False), size=dim), l2_distance(T=float)
    measurement = make_gaussian(*space, scale=scale * (1.0 + STRETCH), k=granularity(dim, scale, sensitivity))
    planned, charged = float(gaussian_rho(sensitivity, scale)), float(measurement.map(sensitivity))
    if not charged <= planned:
        raise PrivacyError(
            f"OpenDP charges rho={charged!r} for noise of scale {scale!r} at sensitivity {sensitivity!r}; needed at "
            f"most the planned {planned!r}. Nothing was released; install the opendp that constraints.txt names."
        )
    return measurement


def _checked(value: np.ndarray, scale: float, sensitivity: float) -> np.ndarray:
    """`value`, if noise can hide it. What is wrong with it is said without any of its numbers."""
    for name, number in (("scale", scale), ("sensitivity", sensitivity)):
        if not SMALLEST <= number <= LARGEST:
            raise PrivacyError(
                f"{name}={number!r} arrived; needed a number from {SMALLEST:g} to {LARGEST:g}, or nothing can be "
                "promised. Take it from the agreed plan."
            )
    value = np.asarray(value)
    if value.dtype != np.float64 or value.ndim != 1 or not value.size:
        raise PrivacyError(
            f"a value of type {value.dtype} and shape {value.shape} arrived; needed one float64 vector. Release each "
            "vector by itself."
        )
    if not np.isfinite(value).all():
        raise PrivacyError(
            "a value with an infinite or undefined coordinate arrived, which no noise hides; nothing was released. "
            "Look for such numbers, or for ones beyond the agreed bounds, in the records."
        )
    return value
