"""Float64 matrices times byte records, to float64's last digit, by the integer matrix units of a GPU.

Those multiply bytes many times as fast as others float64 numbers. A row v of a float64 matrix, in units of 2^-54 of
a power of two above its largest entry, is a row of integers of seven digits to the base 256, each from -128 to 127:

    (1)  v = unit * sum_k 256^k d_k            (2)  v'B = unit * sum_k 256^k (d_k'B)

A sum of fewer than 2^17 products of two such bytes fits in 32 bits, so every d_k'B is exact; what is lost are v's bits
below the unit, and two roundings of (2). Records are kept as X - 128, which has no bit too many, both ways round: the
units want the index that is summed over to be the last. The 128 is given back to whole numbers, where nothing cancels.

The row's largest entry is one record's, and with it the digits that all others keep. Where that must not be, the caller
says what no entry exceeds, and digits count from there.

Source: Ozaki, Ogita, Oishi and Rump 2012, Error-free transformations of matrix multiplication by using fast routines of
matrix multiplication; on integer units Ootomo, Ozaki and Yokota 2024, DGEMM on integer matrix multiplication unit.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Int8

DIGITS = 7
FRACTION = 54  # bits of |v| below twice its row's largest power of two
BALANCE = 0x0080_8080_8080_8080  # 128 in every byte: digits from 0 to 255 become -128 to 127
MIDDLE = 128
SIDE = 64  # what both sides are filled up to a multiple of: the units work in tiles
LONGEST = 2**17 - SIDE  # sum
RUNS = 256  # of a batch; a smaller one keeps the program that compiles sooner


class Bytes(NamedTuple):
    """Every agent's byte records less 128, filled up with zeros."""

    by_record: Int8[Array, "agents rows features"]
    by_feature: Int8[Array, "agents features rows"]


def make_bytes(X: Array, start: Int[Array, " agents"], rows: int) -> Bytes:
    """From uint8 records of which each agent has `rows`, from its start on."""

    def one(first: Array) -> Array:
        mine = jax.lax.dynamic_slice_in_dim(X, first, rows)
        less = (mine.astype(jnp.int16) - MIDDLE).astype(jnp.int8)
        return jnp.pad(less, [(0, -side % SIDE) for side in less.shape])

    by_record = jax.vmap(one)(start)
    return Bytes(by_record, jnp.swapaxes(by_record, 1, 2))


def product(
    values: Float[Array, "runs inner"], stored: Int8[Array, "outer whole"], most: Float[Array, ""] | None = None
) -> Float[Array, "runs outer"]:
    """values @ (stored + 128).T, where `stored` may be longer by what fills it up. A row that is not finite is NaN.

    `most` is what no |value| exceeds; by default each row's largest.
    """
    runs, inner = values.shape
    digits, unit = _digits(jnp.pad(values, [(0, 0), (0, stored.shape[1] - inner)]), most)
    last = (((1,), (1,)), ((), ()))
    parts = jax.lax.dot_general(digits.reshape(DIGITS * runs, -1), stored, last, preferred_element_type=jnp.int32)
    level = jnp.sum(digits, axis=2, keepdims=True, dtype=jnp.int32).astype(jnp.int64)
    parts = parts.reshape(DIGITS, runs, -1).astype(jnp.int64) + MIDDLE * level
    # (2): three digits' sums below 2^49, four digits' below 2^57, and only then is anything rounded
    high, low = _joined(parts[4:]).astype(values.dtype), _joined(parts[:4]).astype(values.dtype)
    return unit * (high * 2.0**32 + low)


def _joined(parts: Int[Array, "digits runs outer"]) -> Int[Array, "runs outer"]:
    total = parts[-1]
    for part in parts[-2::-1]:
        total = 256 * total + part
    return total


def _digits(
    values: Float[Array, "runs inner"], most: Float[Array, ""] | None = None
) -> tuple[Int8[Array, "digits runs inner"], Float[Array, "runs 1"]]:
    """(1) for every row: the digits, lowest first, and the unit."""
    largest = jnp.max(jnp.abs(values), axis=1, keepdims=True)
    above = largest if most is None else jnp.where(jnp.isfinite(largest), most, largest)
    power = jax.lax.bitcast_convert_type(above, jnp.int64) >> 52  # biased: above < 2^(power - 1022)
    power = jnp.clip(power, FRACTION, 2046)  # rows below 1e-291 lose their last bits, subnormal numbers all
    # multiplying by a power of two is exact; these are made of their exponents
    up = jax.lax.bitcast_convert_type((FRACTION + 1022 + 1023 - power) << 52, values.dtype)
    unit = jax.lax.bitcast_convert_type((power - FRACTION - 1022 + 1023) << 52, values.dtype)
    whole = jnp.round(values * up).astype(jnp.int64) + BALANCE
    parts = [((whole >> (8 * k)) - MIDDLE).astype(jnp.int8) for k in range(DIGITS)]
    return jnp.stack(parts), jnp.where(jnp.isfinite(largest), unit, jnp.nan)
