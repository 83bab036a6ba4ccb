"""What a first, private release tells of the records: coordinates in which they are short, a start, and a pace.

Records often have much in common: images a background, tables columns that are rarely 0. What is common tells no two
records apart, but noise along it moves all scores alike, and it makes records long, so that they are clipped early.
Where one class is rare, a model spends its first laps on learning that. And where classes are far apart, a few short
steps find a model that more and longer ones would bury in noise. A first release of every agent,

    (1)  (1/m_i) sum_j ( e(b_j) x a_j,  |a_j|^2 / (2 B),  B e(b_j) )  +  noise

with B the public bound on the features' |a_j|, and e(b) the unit vector of class b, gives estimates of each class's sum
w_c and share p_c, of the mean record w = sum_c w_c, and of the mean square of what is left of records without it, r^2.
The rest is public arithmetic. With the direction u = w/|w|,

    (2)  P = b (I - (1 - k) u u'),                              b = B / sqrt(r^2 + k^2 |w|^2)
    (3)  pace = min(1, NEAR / d)^0.7 / v^0.3 x min(1, SEEN / s)^(0.7 L^2 / (L^2 + 0.3^2)),
                                                                d = 2 sum_c |P (w_c - p_c w)|^2 / (v B)^2

P takes most of what is common out of a record, and brings what is left to the length that a plan is made for: the
P a_j have a mean square of about B^2. A model z in these coordinates is x = P z in the records' own. d is how far apart
the classes are, and v, the mean of 4 p_c (1 - p_c) over the classes, how evenly they are mixed: 1 for two of the same
size. s is the noise of a share, and L the log-odds of the most frequent class beside those of equal classes. Where one
class is frequent, answering it is right for most records, and long steps under much noise would answer others. Steps
are multiplied by the pace. The start is the x along u for which the mean record has the classes' log-odds.

Replacing one record moves (1) by at most 2B/m_i: with |a| = s and |a'| = t, the square of what changes is, in one class
and in two,

    |a - a'|^2 + (s^2 - t^2)^2/(4 B^2)  <=  (s + t)^2 (1 + (s - t)^2/(4 B^2))      <=  4 B^2
    s^2 + t^2 + (s^2 - t^2)^2/(4 B^2) + 2 B^2                                       <=  4 B^2

both of which grow with s and t up to B.

A noisy mean of many columns is mostly noise. Its part along the diagonal, where the mean of features from 0 to 1 mostly
lies, is kept, and the rest is shrunk by the share of its length that noise explains (James and Stein 1961). So is what
the shares of the classes differ from equal ones, and a pace that noise would decide is 1.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

KEPT = 0.2  # k
LEAST = 0.05  # of r beside B, and of |w| where classes are told along it
RAREST = 0.01  # the least share of a class that is believed
NEAR, FARTHEST = 0.05, 16.0  # the d from which on steps are shorter; and the largest d / NEAR that makes them so
SHORTER, LONGER = 0.7, 0.3  # the powers of (3)
SEEN, UNEVEN = 2.0**-6, 0.3  # the noise of a share from which on, and the L by which, a frequent class shortens steps


class Coordinates(NamedTuple):
    """P of (2), the start and the pace. Public."""

    direction: Float[Array, " width"]  # u; the intercept's 1 counts as a feature
    length: Float[Array, ""]  # b
    start: Float[Array, " dim"]  # in the records' own coordinates
    pace: Float[Array, ""]

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """P x, for every output of the loss."""
        return self.length * self._along(x, KEPT - 1.0)

    def undo(self, x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The z with P z = x."""
        return self._along(x, 1.0 / KEPT - 1.0) / self.length

    def _along(self, x: Array, more: float) -> Array:
        rows = x.reshape(self.direction.size, -1)
        return (rows + more * self.direction[:, None] * (self.direction @ rows)[None, :]).reshape(-1)


def classes_of(outputs: int) -> int:
    """Two classes have one score, several have one each."""
    return max(outputs, 2)


@partial(jax.jit, static_argnums=(3, 4))
def find_coordinates(
    release: Float[Array, " numbers"],
    variance: Float[Array, ""],
    bound: Float[Array, ""],
    intercept: bool,
    outputs: int,
) -> Coordinates:
    """(2), (3) and the start, from the agents' mean of (1), whose noise has this variance in each coordinate.

    An intercept's 1 is the same in all records, and is known without a release.
    """
    classes = classes_of(outputs)
    sums, half = release[: -1 - classes].reshape(classes, -1), release[-1 - classes]
    even = 1.0 / classes
    shares = even + _shrunk(release[-classes:] / bound - even, variance / bound**2)
    shares = jnp.clip(shares, RAREST, 1.0 - RAREST)
    mean, spread = jnp.sum(sums, axis=0), jnp.sqrt(variance) / bound
    level = jnp.mean(mean)
    common = level + _shrunk(mean - level, classes * variance)
    apart = sums - shares[:, None] * mean[None, :]
    square = jnp.clip(2.0 * bound * half, (LEAST * bound) ** 2, bound**2)
    if intercept:
        common, apart = jnp.append(common, 1.0), jnp.concatenate([apart, jnp.zeros((classes, 1))], axis=1)
        square, bound = square + 1.0, jnp.sqrt(bound**2 + 1.0)
    size = jnp.sqrt(jnp.sum(common * common))
    left = jnp.maximum(square - size**2, (LEAST * bound) ** 2)
    direction, length = common / _or_1(size), bound / jnp.sqrt(left + (KEPT * size) ** 2)
    start = direction[:, None] * _log_odds(shares, outputs)[None, :] / jnp.maximum(size, LEAST * bound)
    found = Coordinates(direction, length, start.reshape(-1), jnp.ones(()))
    careful = _careful(shares, spread)
    return found._replace(pace=careful * _pace(found, apart, shares, variance, bound, mean.size))


def _log_odds(shares: Float[Array, " classes"], outputs: int) -> Float[Array, " outputs"]:
    """What all scores have in common: the log-odds of two classes, or the logarithms of several classes' shares."""
    logs = jnp.log(shares)
    return logs[1:] - logs[:1] if outputs == 1 else logs - jnp.mean(logs)


def _pace(
    change: Coordinates,
    apart: Float[Array, "classes width"],
    shares: Array,
    variance: Array,
    bound: Array,
    features: int,
) -> Float[Array, ""]:
    """The first two factors of (3), by as much as noise leaves of d."""
    mixed = jnp.mean(4.0 * shares * (1.0 - shares))
    unit = 2.0 * (change.length / (mixed * bound)) ** 2
    moved = change(apart.T.reshape(-1)) / change.length
    noise = unit * features * variance * (shares.size - 2.0 + shares.size * jnp.sum(shares**2))
    d = unit * jnp.sum(moved * moved) - noise
    doubt = noise * jnp.sqrt(2.0 / features)
    trust = 1.0 / (1.0 + (doubt / NEAR) ** 2)
    return (jnp.clip(d / NEAR, 1.0, FARTHEST) ** SHORTER * mixed**LONGER) ** -trust


def _careful(shares: Float[Array, " classes"], spread: Float[Array, ""]) -> Float[Array, ""]:
    """The last factor of (3). From L^2 is taken what noise may have brought: twice the variance of equal classes' L."""
    most, even = jnp.max(shares), 1.0 / shares.size
    odds = jnp.log(most * (shares.size - 1.0) / (1.0 - most))
    square = jnp.maximum(odds**2 - 2.0 * (spread / (even * (1.0 - even))) ** 2, 0.0)
    power = SHORTER * square / (square + UNEVEN**2)
    return jnp.minimum(1.0, SEEN / jnp.maximum(spread, SEEN)) ** power


def _shrunk(values: Array, variance: Array) -> Array:
    """`values` times the share of their square that noise of this variance does not explain."""
    square = jnp.sum(values * values)
    return values * jnp.maximum(1.0 - values.size * variance / _or_1(square), 0.0)


def _or_1(size: Array) -> Array:
    """1 for 0, by which nothing can be divided."""
    return jnp.where(size > 0.0, size, 1.0)
