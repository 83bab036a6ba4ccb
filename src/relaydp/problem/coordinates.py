"""What a first, private release tells of the records: coordinates in which they are short, and a model to start from.

Records often have much in common: images a background, tables columns that are rarely 0. What is common tells no two
records apart, but noise along it moves all scores alike, and it makes records long, so that they are clipped early.
And where one class is rare, a model spends its first laps on learning that. A first release of every agent,

    (1)  (1/m_i) sum_j ( a_j,  |a_j|^2 / (2 B),  (B/4) h(b_j) ) / ROOM  +  noise

with B the public bound on the features' |a_j|, and h the label itself (-1 or 1) or sqrt(2) times its class's unit
vector, gives estimates of the mean record w, of the mean square of what is left of records without it, r^2, and of the
classes' shares. The rest is public arithmetic. With the direction u = w/|w|,

    (2)  P = b (I - (1 - k) u u'),                              b = B / sqrt(r^2 + k^2 |w|^2)

P takes most of what is common out of a record, and brings what is left to the length that a plan is made for: the
P a_j have a mean square of about B^2. A model z in these coordinates is x = P z in the records' own. The start is the x
along u for which the mean record has the classes' log-odds.

Replacing one record moves (1) by at most 2B/m_i: with |a| = s and |a'| = t,

    |a - a'|^2 + (s^2 - t^2)^2/(4 B^2)  <=  (s + t)^2 (1 + (s - t)^2/(4 B^2)),     which grows with s and t up to B,

and is 4 B^2 there; labels add B^2/4 at most; and ROOM^2 = 17/16.

A noisy mean of many columns is mostly noise. Its part along the diagonal, where the mean of features from 0 to 1 mostly
lies, is kept, and the rest is shrunk by the share of its length that noise explains (James and Stein 1961). So is what
the shares of the classes differ from equal ones.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

KEPT = 0.2  # k
LEAST = 0.05  # of r beside B, and of |w| where classes are told along it
RAREST = 0.01  # the least share of a class that is believed
ROOM = (17.0 / 16.0) ** 0.5


class Coordinates(NamedTuple):
    """P of (2), and the start. Public."""

    direction: Float[Array, " width"]  # u; the intercept's 1 counts as a feature
    length: Float[Array, ""]  # b
    start: Float[Array, " dim"]  # in the records' own coordinates

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """P x, for every output of the loss."""
        return self.length * self._along(x, KEPT - 1.0)

    def undo(self, x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The z with P z = x."""
        return self._along(x, 1.0 / KEPT - 1.0) / self.length

    def _along(self, x: Array, more: float) -> Array:
        rows = x.reshape(self.direction.size, -1)
        return (rows + more * self.direction[:, None] * (self.direction @ rows)[None, :]).reshape(-1)


def find_coordinates(
    release: Float[Array, " numbers"],
    variance: Float[Array, ""],
    bound: Float[Array, ""],
    intercept: bool,
    outputs: int,
) -> Coordinates:
    """(2) and the start, from the agents' mean of (1), whose noise has this variance in each coordinate.

    An intercept's 1 is the same in all records, and is known without a release.
    """
    told = ROOM * release
    labels = 1 if outputs == 1 else outputs
    mean, half, classes = told[: -1 - labels], told[-1 - labels], told[-labels:] / (bound / 4.0)
    spread = ROOM**2 * variance
    level = jnp.mean(mean)
    common = level + _shrunk(mean - level, spread)
    square = jnp.clip(2.0 * bound * half, (LEAST * bound) ** 2, bound**2)
    if intercept:
        common, square, bound = jnp.append(common, 1.0), square + 1.0, jnp.sqrt(bound**2 + 1.0)
    size = jnp.sqrt(jnp.sum(common * common))
    left = jnp.maximum(square - size**2, (LEAST * bound) ** 2)
    direction = common / _or_1(size)
    odds = _log_odds(classes, spread / (bound / 4.0) ** 2, outputs)
    start = direction[:, None] * odds[None, :] / jnp.maximum(size, LEAST * bound)
    return Coordinates(direction, bound / jnp.sqrt(left + (KEPT * size) ** 2), start.reshape(-1))


def _log_odds(classes: Array, variance: Array, outputs: int) -> Float[Array, " outputs"]:
    """What all scores have in common: the log-odds of two classes, or the logarithms of several classes' shares."""
    if outputs == 1:
        share = 0.5 + 0.5 * _shrunk(classes, variance)
        share = jnp.clip(share, RAREST, 1.0 - RAREST)
        return jnp.log(share / (1.0 - share))
    even = 1.0 / outputs
    logs = jnp.log(jnp.maximum(even + _shrunk(classes / jnp.sqrt(2.0) - even, variance / 2.0), RAREST))
    return logs - jnp.mean(logs)


def _shrunk(values: Array, variance: Array) -> Array:
    """`values` times the share of their square that noise of this variance does not explain."""
    square = jnp.sum(values * values)
    return values * jnp.maximum(1.0 - values.size * variance / _or_1(square), 0.0)


def _or_1(size: Array) -> Array:
    """1 for 0, by which nothing can be divided."""
    return jnp.where(size > 0.0, size, 1.0)
