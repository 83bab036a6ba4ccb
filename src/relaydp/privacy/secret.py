"""Secret noise: a discrete Gaussian on a lattice, exact to the last bit, from the operating system's randomness.

A float64 draw of a continuous Gaussian leaves traces of the value in an output's last bits (Mironov 2012), and a seed
is a secret that must be kept for ever. This module avoids both. A value v becomes a point of a lattice, in units of a
step h, and moves by whole steps, which are drawn exactly (see `lattice`) and never stored:

    (1)  M(v) = h (rint(v/h) + Z),      P[Z_j = z] proportional to exp(-z^2 / (2 * 4^K)),      h = s / 2^K,  j = 1..q

Everything that is public is a function of the integers rint(v/h) + Z; converting them to float64 is post-processing. s
is the planned scale, times a factor (`stretch`) that follows below. Write mu = sensitivity / scale for the plan.

The lattice. v/h is computed as fl(v * fl(2^K / s)), cut off at +-2^62 and rounded. Cutting off does not increase
distances, and rounding moves each coordinate by 1/2 at most. Two values at most `sensitivity` apart, the product's
rounding included (`privacy.sensitivity` has it), become lattice points at most D apart, in steps:

    (2)  D <= sensitivity 2^K/s (1 + 2^-51) + sqrt(q) <= 2^K mu / (1 + SPARE)        by the choice of `stretch`

zCDP. On the integers a discrete Gaussian has the zCDP of the continuous one, D^2 / (2 * 4^K) for points at most D apart
(Canonne, Kamath and Steinke 2020, arXiv 2004.00010, theorem 14). By (2) that is below mu^2/2, which is the planned
rho, sensitivity^2 / (2 scale^2), and it adds up over adaptive releases.

The exact epsilon. `accountant.epsilon_exact` is for continuous Gaussians. It carries over because Z is almost R, a
Gaussian G of scale 2^K rounded to integers:

    (3)  rint(v/h) + R = rint(rint(v/h) + G)         post-processing of Gaussian noise on points at most D apart: it
                                                     has the exact curve of mu / (1 + SPARE)
    (4)  |ln P[R = z]/P[Z = z]| <= (q + |z|^2/4^K) / (23 * 4^K)                 for vectors z of q coordinates
    (5)  |Z|^2, |R|^2 <= (1.4 q + 6400) 4^K          but for a probability of e^-1600

(4), one coordinate: let s = 2^K. By Poisson's summation formula P[R = z] / P[Z = z] = (1 + eta) times the integral of
cosh(z u/s^2) exp(-u^2/(2 s^2)) over |u| <= 1/2, where 0 < eta < 3 e^(-19 s^2). As cosh >= 1 that is 1 - 1/(24 s^2) or
more, and as sinh(y)/y <= e^(y^2/6) it is (1 + eta) exp(z^2/(24 s^4)) or less. (5): E exp(Z_j^2/(4 s^2)) <= sqrt 2, a
quotient of two such sums, so that P[|Z|^2 >= b s^2] <= 2^(q/2) e^(-b/4). The same holds for G, and R is within 1/2 of
it, for which 2^(q/2) < e^(0.347 q) leaves room.

So over T releases, also adaptively chosen ones, where given the records a transcript determines the noise, the two
transcripts' probabilities agree up to a factor of e^tau, but for T e^-1600 of them:

    (6)  tau = T (q + 2700) / (9 * 4^K)
    (7)  delta_Z(epsilon) <= e^tau (delta_exact(epsilon - 2 tau, mu / (1 + SPARE)) + e^epsilon T e^-1600) + T e^-1600

SPARE covers that: delta_Z(epsilon) <= delta_exact(epsilon, mu), what was planned, where

    (8)  tau <= SPARE/12 min(1, epsilon),   epsilon <= 1000,   1e-30 <= delta <= 1/2

Half of SPARE covers 2 tau: delta_exact does not grow when epsilon and mu are both multiplied by an r < 1, because its
derivative in ln r is e^epsilon phi(b) (mu - epsilon M(b)), with b = epsilon/mu + mu/2 and Mills' ratio M(b) < 1/b, and
epsilon/b < mu. The other half covers e^tau and the tails: d ln delta / d ln mu = mu / (M(a) - M(b)) with a = b - mu.
M falls at a rate of at most 1 beyond 0, and of at most 2.6 from -0.675 on, where a is while delta <= 1/2. So half of
SPARE reduces delta by SPARE/5.3 of it, and tau increases it by at most SPARE/12. The tails are below 1e-200 by (8).

The least delta. (8) allows 1e-30. The limit is not set by the tails, which are not cut off, but by the generator: its
words are uniform only to those who cannot break ChaCha20, so a smaller probability cannot be guaranteed.

Not covered: an opponent who reads this process's memory; the time of a draw, which depends slightly on the noise and
never on the value.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike, NDArray

import relaydp._jax  # noqa: F401 (JAX's settings)
from relaydp.errors import InputError, PrivacyError
from relaydp.privacy.budget import DELTA_FLOOR as DELTA_FLOOR  # the smallest delta that (8) admits
from relaydp.privacy.proven import EPSILON_CEILING as EPSILON_CEILING
from relaydp.privacy.proven import SPARE, K
from relaydp.privacy.proven import check_promise as check_promise
from relaydp.privacy.proven import slack as slack

EDGE = 2.0**62  # steps: larger values are cut off to it. Noise is smaller, so no sum overflows an int64
SMALLEST, LARGEST = 1e-200, 1e200  # of scales: 2^K / s and h are normal numbers

WORDS = 1.9  # per sample, on average
READ = 2**13  # words read at once, at most: 64 KiB


def draw_lattice(count: int) -> NDArray[np.int64]:
    """`count` independent samples of the discrete Gaussian of scale 2^K, exact, and different at every call.

    The words come from `os.urandom`. Each is used for one sample, unused ones are dropped, and nothing is stored
    between calls: threads and forked processes share nothing. Other threads can run meanwhile. A sample takes about 0.2
    microseconds.
    """
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
        raise InputError(f"count={count!r}; it must be a whole number, 0 or more: one draw per coordinate.")
    return _draw(int(count), K, os.urandom, READ)


def _draw(count: int, K: int, read: Callable[[int], bytes], most: int) -> NDArray[np.int64]:
    """`count` samples of scale 2^K from the words that `read` returns, `most` at a time."""
    from relaydp.privacy.lattice import fill  # imports Numba

    found = np.empty(count, np.int64)
    done, words = 0, np.empty(0, np.int64)
    while done < count:
        missing = count - done
        need = min(most, int(WORDS * missing + 6 * math.sqrt(missing)) + 16)
        # words of an unfinished sample come first, so that it continues: see `lattice`
        words = np.concatenate([words, np.frombuffer(read(8 * need), np.int64)])
        more, used = fill(words, found[done:], K)
        done, words = done + more, words[used:]
    return found


def stretch(dim: int, ratio: ArrayLike) -> Any:
    """The factor of a planned scale with which (2) holds: slightly above 1. For a number or an array.

        ratio   sensitivity / scale, as planned: mu

    With t = sqrt(dim) / (2^K ratio), the part of a distance that comes from rounding to the lattice, and w = 1 + SPARE,
    (2) needs w (1 + 2^-51) / (1 - t w); 2^-48 more covers the rounding here.

    >>> float(stretch(3072, 0.01)) - 1 < 1e-8
    True
    """
    ratio = np.asarray(ratio, np.float64)
    share = math.sqrt(dim) / (2.0**K * np.where(ratio > 0, ratio, np.nan)) * (1.0 + SPARE)
    if not (share <= 0.5).all():
        raise PrivacyError(
            f"the sensitivity is {np.min(ratio):g} scales in {dim} dimensions; it must be "
            f"{2 * math.sqrt(dim) / 2.0**K:.3g} or more for the lattice to be fine enough. Plan for less noise in a "
            "release, or for fewer releases."
        )
    return ((1.0 + SPARE) / (1.0 - share) * (1.0 + 2.0**-48))[()]


def release_secret(value: NDArray[np.float64], scale: float, draws: NDArray[np.int64]) -> NDArray[np.float64]:
    """(1): `value` as it may be shown to others. `draws` are fresh from `draw_lattice`, used here and nowhere else.

    `scale` is s, the planned scale times `stretch`. Values beyond 2^22 scales (+-2^62 steps) are cut off to that.

    Formal guarantee. Let `value` move by at most `sensitivity` when one record is replaced, with that number from
    `privacy.sensitivity.sensitivity`, which includes rounding. The result is rho-zCDP, rho = sensitivity^2 / (2 planned
    scale^2), and releases have the exact curve of Gaussian ones by (8), provided that scale and sensitivity do not
    depend on the records (they may depend on earlier releases).
    """
    value, draws = np.asarray(value), np.asarray(draws)
    if not SMALLEST <= scale <= LARGEST:
        raise PrivacyError(
            f"scale={scale!r}; it must be a number from {SMALLEST:g} to {LARGEST:g}, or nothing can be promised. Take "
            "it from the plan."
        )
    if value.dtype != np.float64 or draws.dtype != np.int64 or value.shape != draws.shape:
        raise PrivacyError(
            f"the value has type {value.dtype} and shape {value.shape}, and the draws type {draws.dtype} and shape "
            f"{draws.shape}; they must be float64 and as many int64. Draw one for each coordinate with draw_lattice."
        )
    if not np.isfinite(value).all():
        raise PrivacyError(
            "the value has an infinite or undefined coordinate, which no noise hides; nothing was released. Look for "
            "such numbers, or for ones beyond the agreed bounds, in the records."
        )
    with np.errstate(over="ignore"):  # overflow is beyond the edge, too
        steps = np.clip(value * (2.0**K / float(scale)), -EDGE, EDGE)
    return (np.rint(steps).astype(np.int64) + draws).astype(np.float64) * (float(scale) * 2.0**-K)


def release_secret_traced(
    value: Float[Array, " *any"], scale: Float[Array, " *any"], draws: Int[Array, " *any"]
) -> Float[Array, " *any"]:
    """`release_secret`, the same bits, inside compiled code, which cannot raise.

    A NaN coordinate counts as 0 and gets noise like any other; without a scale above 0 the whole answer is NaN. A scale
    may be one for all, or broadcast against `value`.
    """
    if value.dtype != jnp.float64 or draws.dtype != jnp.int64 or value.shape != draws.shape:
        raise PrivacyError(
            f"the value has type {value.dtype} and shape {value.shape}, and the draws type {draws.dtype} and shape "
            f"{draws.shape}; they must be float64 and as many int64. Draw one for each coordinate with draw_lattice, "
            'and where a program has switched off float64 in JAX call jax.config.update("jax_enable_x64", True).'
        )
    spread = jnp.asarray(scale, jnp.float64)
    # The barrier keeps the compiler from splitting the quotient: (2) relies on one rounding of the product.
    per_unit, step = jax.lax.optimization_barrier((2.0**K / spread, spread * 2.0**-K))
    steps = value * per_unit
    steps = jnp.clip(jnp.where(jnp.isnan(steps), 0.0, steps), -EDGE, EDGE)
    noisy = (jnp.rint(steps).astype(jnp.int64) + draws).astype(jnp.float64) * step
    return jnp.where(spread > 0, noisy, jnp.nan)
