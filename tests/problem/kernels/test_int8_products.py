"""Products of digits: float64's answer, checked in exact integers."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaydp.problem.kernels.int8_products import DIGITS, FRACTION, LONGEST, _digits, make_bytes, product

product_ = jax.jit(product)
digits_ = jax.jit(_digits)
plain = st.floats(-1e6, 1e6)
any_size = st.floats(allow_nan=False, allow_infinity=False)
TINY = Fraction(float(np.finfo(float).tiny))  # what is below it, XLA may take for 0


@settings(deadline=None)
@given(st.lists(any_size, min_size=5, max_size=5))
def test_digits_are_the_number(row):
    """To half a unit, which is 2^-54 of a power of two above the row's largest entry."""
    digits, unit = digits_(jnp.asarray([row]))
    assert digits.shape == (DIGITS, 1, 5) and digits.dtype == jnp.int8
    unit = Fraction(float(unit[0, 0]))
    largest = max(Fraction(abs(v)) for v in row)
    assert unit * 2 ** (FRACTION - 1) <= largest or unit == TINY
    for k, v in enumerate(row):
        total = sum(int(digits[d, 0, k]) * 256**d for d in range(DIGITS))
        assert abs(total * unit - Fraction(v)) <= (unit / 2 if abs(v) >= TINY else TINY)


@settings(deadline=None)
@given(st.lists(plain, min_size=6, max_size=6), st.integers(0, 2**32 - 1))
def test_products_are_exact_to_float64(row, seed):
    X = np.random.default_rng(seed).integers(0, 256, (9, 6), dtype=np.uint8)
    stored = make_bytes(jnp.asarray(X), jnp.zeros(1, jnp.int32), 9)
    for values, kept, matrix in ((row, stored.by_record[0], X), ([*row, *row[:3]], stored.by_feature[0], X.T)):
        found = np.asarray(product_(jnp.asarray([values]), kept))[0, : len(matrix)]
        exact = [sum(Fraction(v) * int(a) for v, a in zip(values, line, strict=True)) for line in matrix]
        size = sum(Fraction(abs(v)) for v in values) * 255
        lost = TINY * 255 * (len(values) + 1)  # entries below it, and the sum itself
        for ours, theirs in zip(found, exact, strict=True):
            assert abs(Fraction(float(ours)) - theirs) <= size * Fraction(4, 2**53) + lost


def test_a_long_row_of_the_largest_digits_does_not_overflow():
    """The longest sum there may be, of -128 times -128."""
    whole = 64 * 256**6 - sum(128 * 256**k for k in range(6))
    values = jnp.full((1, LONGEST), whole * 2.0**-FRACTION)
    digits, _ = digits_(values)
    assert (np.asarray(digits)[:-1] == -128).all()
    stored = jnp.full((1, LONGEST), -128, jnp.int8)
    assert float(jnp.abs(product_(values, stored))[0, 0]) <= 1e-12 * LONGEST * 128  # X = 0


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_spoils_itself_alone(odd):
    X = jnp.asarray(np.full((4, 3), 7, np.uint8))
    stored = make_bytes(X, jnp.zeros(1, jnp.int32), 4).by_record[0]
    found = np.asarray(product_(jnp.asarray([[1.0, odd, 2.0], [1.0, 2.0, 3.0]]), stored))
    assert np.isnan(found[0, :4]).all()
    np.testing.assert_allclose(found[1, :4], 42.0)
