"""How far one record can move the sums that least squares needs: the proof, and the bound for computed numbers.

With records |a_j| <= R (an intercept's 1 included) and labels |y_j| <= Y, an agent releases the vector

    v = (1/m) sum_j w ( S(a_j a_j'),  t y_j a_j )

S(M) lists a symmetric matrix's entries on and above the diagonal, those above it times sqrt 2, so that its Euclidean
length is the Frobenius norm of M. t is public and sets the two parts against each other, w sets the unit.

**Theorem.** Replacing one record moves v by at most w sqrt(2) (R^2 + t^2 Y^2 / 2) / m.

Proof. Replace (a, y) by (b, z), and let p = |a|, r = |b|, g = a'b. The square of what changes, over (w/m)^2, is

    p^4 + r^4 - 2 g^2  +  t^2 (y^2 p^2 + z^2 r^2 - 2 y z g)

The second part is a convex function of y, and of z, so it is largest where both are Y or -Y, and there it is at most
c (p^2 + r^2 + 2 |g|) with c = t^2 Y^2. As -2 g^2 + 2 c |g| = c^2/2 - 2 (|g| - c/2)^2 <= c^2/2, the whole is at most

    (p^2 + c/2)^2 + (r^2 + c/2)^2  <=  2 (R^2 + c/2)^2

It is reached where p = r = R, |g| = c/2 and y z g < 0, which exists while c <= 2 R^2. Each part alone can move by
sqrt(2) R^2 and by 2 t R Y, but not both at once: charged apart they would cost sqrt(2 R^4 + 4 c R^2), which is more
while c < 4 R^2.

**The split.** With c = k R^2 the noise of a given budget is proportional to (1 + k/2) R^2 on the matrix, and to (1 +
k/2) R Y / sqrt(k) on the vector. An x of length f Y/R feels q (1/k + f^2/2) (1 + k/2)^2 (R Y)^2 of it: least at k = 2
for f = 0, at k = 1 for f = 1, at 0.59 for f = 2. We take k = 1, t = R/Y: a model whose predictions are about as long as
labels may be. From f = 0 to f = 4 its noise is at most 1.4 times that of the best k. Then v moves by 1.5 sqrt(2) w R^2
/ m, and we take w = 2 c' / (1.5 sqrt(2) R^2), in which units it moves by 2 c'/m like the mean of gradients that are
clipped to c'.

**Computed numbers.** Let u = 2^-53. A record's features have |a_j| <= R (1 + (q + 16) u), and a label is cut off
exactly. A term of v is at most w R^2 sqrt(1 + k) = (4/3) c' long. Its numbers are products of two features, or of a
feature and a label, and of the weight 1/m: the length of a term is off by less than (2 q + 40) u of it, by a function
of record j alone. Each coordinate may be added in an order of its own, of which no number is rounded more than m times;
so the mean is off by at most m u (4/3) c', and by 8 u (4/3) c' more for w, t, sqrt 2 and the lattice's step. On two
neighbouring data sets together, with 2c'/m the unit:

        sensitivity = 2c'/m (1 + rounding),      rounding = 1.01 u ( (4/3) (m^2 + 8 m) + 4 q + 80 )

where 1.01 pays for products of these small numbers while m + q < 2^40. The sum has q (q + 3)/2 coordinates, and that
does not matter: relative rounding of every coordinate is relative rounding of the length.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from relaydp.errors import PrivacyError
from relaydp.privacy.sensitivity import MOST, ROUND


class Units(NamedTuple):
    """How a record's outer product and its label times itself become numbers of a release."""

    label: float  # Y: labels are cut off to it
    matrix: float  # w
    vector: float  # w t


def units_of(record: float, label: float, clip: float) -> Units:
    """w and w t, for which one of m records moves the mean by at most 2 clip / m. All three numbers are public.

    >>> units = units_of(record=2.0, label=1.0, clip=2.0)
    >>> round(units.matrix * 1.5 * 2**0.5 * 2.0**2, 12), units.vector / units.matrix
    (4.0, 2.0)
    """
    ratio = record / label
    matrix = 2.0 * clip / (largest_change(record, label, ratio))
    return Units(label, matrix, matrix * ratio)


def largest_change(record: float, label: float, ratio: float) -> float:
    """The theorem: what replacing a record can move of sum_j ( S(a_j a_j'), ratio y_j a_j ).

    >>> round(largest_change(record=1.0, label=1.0, ratio=1.0), 6)
    2.12132
    """
    return math.sqrt(2.0) * (record**2 + (ratio * label) ** 2 / 2.0)


def numbers_of(dim: int) -> int:
    """How many numbers a release has: a symmetric matrix and a vector.

    >>> numbers_of(10)
    65
    """
    return dim * (dim + 3) // 2


def rounding(records: ArrayLike, dim: int) -> Any:
    """The relative excess over 2c/m by which one of so many records can move these sums. Number or array.

    >>> print(f"{rounding(1000, 10):.1e}")
    1.5e-10
    """
    m = np.asarray(records, np.float64)
    if not ((m >= 1).all() and dim >= 1 and (m + dim < MOST).all()):
        raise PrivacyError(
            f"records={records!r}, dim={dim!r}; each must be 1 or more and below {MOST:g}, because nothing is proven "
            "for more."
        )
    return (1.01 * ROUND * (4.0 / 3.0 * (m**2 + 8.0 * m) + 4.0 * dim + 80.0))[()]


def sensitivity(clip: ArrayLike, sizes: ArrayLike, dim: int) -> Any:
    """2c/m with `rounding`, for each agent's number of records: for which noise is calibrated.

    >>> print(f"{sensitivity(1.0, 1000, 10):.14f}")
    0.00200000000030
    """
    bound = 2.0 * np.asarray(clip, np.float64) / np.asarray(sizes, np.float64)
    return np.nextafter(bound * (1.0 + rounding(sizes, dim)), np.inf)[()]
