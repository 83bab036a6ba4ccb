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

Sums. Parties that add up their noise on one lattice (`common_lattice`) have scales s_1, ..., s_k of their own, in
steps, none below 2^K. Their sum Z has almost the distribution of one discrete Gaussian Z' of scale (s_1^2 + ... +
s_k^2)^(1/2) (Kairouz, Liu and Steinke 2021, arXiv 2102.06387), in each coordinate:

    (9)  |ln P[Z = z]/P[Z' = z]| <= t = 5 (k - 1) e^(-pi^2 4^K)

Two of them, X and Y of scales s and s': let 1/rho^2 = 1/s^2 + 1/s'^2 and a = z s^2/(s^2 + s'^2). As x^2/s^2 +
(z - x)^2/s'^2 = z^2/(s^2 + s'^2) + (x - a)^2/rho^2, P[X + Y = z] is e^(-z^2 / (2 (s^2 + s'^2))) times the sum over x of
e^(-(x - a)^2 / (2 rho^2)). By Poisson's formula that sum is a constant times 1 + 2 sum_m w^(m^2) cos(2 pi m a), m = 1,
2, ..., w = e^(-2 pi^2 rho^2): from 1 - b to 1 + b, b < 2.001 w. So P[X + Y = z]/P[Z' = z], with a mean of 1 over
Z', is between (1 - b)/(1 + b) and (1 + b)/(1 - b) < e^(5 w). And rho^2 >= 4^K/2. More of them: adding an independent Y
to both sides of (9) leaves the factor e^t, by convolution, and replacing Z' + Y by one discrete Gaussian costs e^(5 w)
again.

So (8) holds for sums. (2) to (5) hold for any scale s >= 2^K in place of 2^K, because all errors decrease with s; (9)
adds t q to (4) and a factor e^(t q) to (5). (5) has room for it: 0.35 q is rounded up from 0.347 q. So has (6): it is
rounded up from T (2.4 q + 6400) / (23 * 4^K), which leaves T q / (150 * 4^K), and t is smaller than 1/(150 * 4^K) for
any k up to e^(4^K). Of parties who collude, the noise is known; k counts the others. What is said of zCDP is said of
one discrete Gaussian, not of sums: these are promised (8) alone.

The least delta. (8) allows 1e-30. The limit is not set by the tails, which are not cut off, but by the generator: its
words are uniform only to those who cannot break ChaCha20, so a smaller probability cannot be guaranteed.

Not covered: an opponent who reads this process's memory; the time of a draw, which depends slightly on the noise and
never on the value.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike, NDArray

import relaydp._jax  # noqa: F401 (JAX's settings)
from relaydp.errors import InputError, PrivacyError, short
from relaydp.privacy.budget import DELTA_FLOOR as DELTA_FLOOR  # the smallest delta that (8) admits
from relaydp.privacy.mechanism import release
from relaydp.privacy.proven import EPSILON_CEILING as EPSILON_CEILING
from relaydp.privacy.proven import SPARE, K
from relaydp.privacy.proven import check_promise as check_promise
from relaydp.privacy.proven import slack as slack

EDGE = 2.0**62  # steps: larger values are cut off to it. Noise is smaller, so no sum overflows an int64
SMALLEST, LARGEST = 1e-200, 1e200  # of scales: 2^K / s and h are normal numbers

WORDS = 1.9  # per sample, on average; where r > 1 it may be 4.4, and the rest is read as it is missed
READ = 2**13  # words read at once, at most: 64 KiB
R_LEAST, R_MOST = 2**12, 2**22  # of `common_lattice`: scales are rounded up by less than 2^-12, and differ up to 1,024
S_MOST = 2**50  # steps, of a scale: see `lattice`


def draw_lattice(count: int) -> NDArray[np.int64]:
    """`count` independent samples of the discrete Gaussian of scale 2^K, exact, and different at every call.

    The words come from `os.urandom`. Each is used for one sample, unused ones are dropped, and nothing is stored
    between calls: threads and forked processes share nothing. Other threads can run meanwhile. A sample takes about 0.2
    microseconds.
    """
    return draw_lattice_at(count, 1, K)


def draw_lattice_at(count: int, r: int, L: int) -> NDArray[np.int64]:
    """`draw_lattice` at another scale, of r 2^L steps: 2^K at least, so that the proof holds, and 2^50 at most."""
    if not _is_whole(count) or count < 0:
        raise InputError(f"count={count!r}; it must be a whole number, 0 or more: one draw per coordinate.")
    whole = _is_whole(r) and _is_whole(L)
    if not (whole and 1 <= r <= R_MOST and 0 <= L <= 50 and 2**K <= int(r) << int(L) <= S_MOST):
        raise PrivacyError(
            f"r={short(r)} and L={short(L)}; they must be whole numbers, r from 1 to {R_MOST:,}, and the scale r 2^L "
            f"from 2^{K} to 2^50 steps, or nothing is proven. Take them from common_lattice."
        )
    r, L = int(r), int(L)
    while r % 2 == 0:  # the same scale; with r = 1 a sample takes the fewest words
        r, L = r // 2, L + 1
    return _draw(int(count), r, L, os.urandom, READ)


def _is_whole(number: object) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


class CommonLattice(NamedTuple):
    """What `common_lattice` finds: scale i is r[i] 2^L steps."""

    step: float
    r: NDArray[np.int64]
    L: int


def common_lattice(scales: ArrayLike) -> CommonLattice:
    """One lattice for noises of different scales that are added up, each scale rounded up to a multiple of 2^L steps:

        (10)  scales[i] <= r_i 2^L step < (1 + 2^-12) scales[i],     2^12 <= r_i <= 2^22,     r_i 2^L >= 2^K

    The smallest scale is 2^12 2^L = 2^K steps, so the step is that scale over a power of two: exact. r_i is the
    quotient scales[i] / (2^L step) rounded up, in fractions: no float is rounded, so (10) holds for the floats as they
    are. Rounding up adds less than 1 to a quotient that is 2^12 or more.

    The scales are public, and include `stretch`, as a party's own does. A value becomes a lattice point by
    rint(v / step). Draw the noise with `draw_lattice_at(count, r[i], L)`.

    >>> common_lattice([0.5, 0.75, 8.0]).r.tolist()
    [4096, 6144, 65536]
    """
    wanted = np.asarray(scales, np.float64)
    if wanted.ndim != 1 or wanted.size == 0 or not ((wanted >= SMALLEST) & (wanted <= LARGEST)).all():
        raise PrivacyError(
            f"scales={short(scales)}; they must be numbers from {SMALLEST:g} to {LARGEST:g}, one for each party. Take "
            "them from the plan."
        )
    least, largest = float(wanted.min()), float(wanted.max())
    if largest > least * (R_MOST // R_LEAST):
        raise PrivacyError(
            f"the largest noise scale is {largest / least:g} times the smallest; on one lattice it can be "
            f"{R_MOST // R_LEAST:,} times as large at most. Give the parties budgets or weights that are closer."
        )
    unit = Fraction(least) / R_LEAST
    r = [math.ceil(Fraction(scale) / unit) for scale in wanted.tolist()]
    return CommonLattice(least * 2.0**-K, np.array(r, np.int64), K - R_LEAST.bit_length() + 1)


def _draw(count: int, r: int, L: int, read: Callable[[int], bytes], most: int) -> NDArray[np.int64]:
    """`count` samples of scale r 2^L from the words that `read` returns, `most` at a time."""
    from relaydp.privacy.lattice import fill  # imports Numba

    found = np.empty(count, np.int64)
    done, words = 0, np.empty(0, np.int64)
    while done < count:
        missing = count - done
        need = min(most, int(WORDS * missing + 6 * math.sqrt(missing)) + 16)
        # words of an unfinished sample come first, so that it continues: see `lattice`
        words = np.concatenate([words, np.frombuffer(read(8 * need), np.int64)])
        more, used = fill(words, found[done:], r, L)
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


def share_secret_traced(
    value: Float[Array, " *any"], unit: Float[Array, ""], draws: Int[Array, " *any"], parties: int
) -> Int[Array, " *any"]:
    """What one party adds to a sum, in whole numbers modulo 2^64: rint(value / unit) + its share of the noise.

    Values are cut off so that the sum of all parties' stays in an int64; the plan sees to it that no gradient reaches
    that (`planning.calibration`). A NaN counts as 0. Without a unit above 0 there are no records in it.

    Formal guarantee: that of the sum, by `privacy.trust` and docs/proof.md, if `draws` are fresh from the operating
    system, used here and nowhere else, and nobody sees this addend without a mask.
    """
    if value.dtype != jnp.float64 or draws.dtype != jnp.int64 or value.shape != draws.shape:
        raise PrivacyError(
            f"the value has type {value.dtype} and shape {value.shape}, and the draws type {draws.dtype} and shape "
            f"{draws.shape}; they must be float64 and as many int64, one draw for each coordinate."
        )
    return _steps(value, unit, parties) + draws


def share_simulated(
    value: Float[Array, " *any"], unit: Float[Array, ""], scale: Float[Array, " *any"], key: Array, parties: int
) -> Int[Array, " *any"]:
    """The same in a simulation, with noise from a key."""
    return _steps(release(value, scale, key), unit, parties)


def _steps(value: Array, unit: Array, parties: int) -> Array:
    # The barrier keeps the compiler from rewriting the quotient: (2) relies on one rounding.
    per_unit = jax.lax.optimization_barrier(1.0 / jnp.where(unit > 0, unit, jnp.inf))
    steps = value * per_unit
    edge = sum_edge(parties)
    return jnp.rint(jnp.clip(jnp.where(jnp.isnan(steps), 0.0, steps), -edge, edge)).astype(jnp.int64)


def sum_edge(parties: int) -> float:
    """The most steps that one party's value has in a sum: with all of them and their noise it stays in an int64."""
    return EDGE / parties


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
