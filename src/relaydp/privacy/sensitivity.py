"""How far one record can move a clipped mean that was computed in float64.

    v = (1/m) sum_j t_j,       |t_j| <= c        for real numbers: replacing one record moves v by at most 2c/m

Float64 rounding increases it. Let u = 2^-53, m records, q coordinates, and let v be computed by any of the paths of
`problem` (XLA's products and sums on any device, `kernels.gradient`, `kernels.gradient_batch`), which sum in float64 in
different orders.

    1.  Clipping. A record's norm, its factor min(1, c/norm) and its products are each rounded a few times, sums of q
        squares q times: the t_j that is added has |t_j| <= c (1 + (q + 16) u). It is a function of record j and its
        place alone, so for the m - 1 others this rounding is the same on two neighbouring data sets.
    2.  The sum. Any order is a binary tree with m leaves. Adding two nodes is off by at most u times the sum's norm,
        which is at most c times the leaves under it, and over a tree the leaves under all nodes number at most
        m (m + 1)/2, one after the other being the worst. Multiplying and adding in one instruction rounds a leaf once
        more. Hence the sum is off by at most u c m (m + 3)/2.
    3.  What follows, the mean's weight 1/m, a feature's scale, the lattice's step (`secret`), rounds v four times at
        most, each time by u c at most: with 2c/m the unit, 4 u m on both data sets together.

        sensitivity = 2c/m (1 + rounding),      rounding = 1.01 u ( m (m + 3)/2 + 4 m + q + 255 sqrt(q) + 16 )

where 1.01 pays for products of these small numbers while m + q < 2^40, and 255 sqrt(q) is for `kernels.int8_products`
(below). The square of m is intended: a sum of m terms is up to m times as long as one, and is rounded accordingly, m
times, while one record moves it by only 2c. The worst case has sums near a power of two: two on different sides of it
round differently. A test constructs this, and reaches an eighth of the bound. For 60,000 records the rounding is 2e-7,
for four millions it is 1e-3.

**Labels need no bound.** A record's slope s_j may be as large as its label (1e60), or as the point x makes it, and
step 2 still counts on every number that is added being as short as c. This is true on every path, for every record and
point:

    a.  A norm is 0 for records of zeros only: features below 1e-100 are 0 (`problem.bounds`), so no square of one that
        counts underflows. Such a record has p_j = 0. Any other has p_j = s_j min(1, c/(norm_j |s_j|)), hence |p_j|
        norm_j <= c: the slope is cut off first, and only p_j is ever multiplied or added.
    b.  No norm_j |s_j| from 1e200 on counts, nor what is not a number: p_j = 0. Below, c/(norm_j |s_j|) > 1e-60/1e200
        is a normal number, rounded once. Later underflows are below 1e-300 and negligible compared with u c.
    c.  XLA's products add p_j a_jk, at most c over k. `kernels.gradient` and `gradient_batch`, and XLA's sums along
        rows, add p_j shrink_j X_jk, which is p_j a_jk over the coordinate's scale: one factor for all records, which
        changes no relative rounding. Nothing is added and later subtracted: stored records have no offset (X is counted
        from its column's centre, which is 0 for bytes). With an intercept norm_j >= 1, so |p_j| <= c as well.
    d.  `kernels.int8_products`, which is not used in other coordinates, adds whole numbers, exactly; two roundings
        follow (step 3). It rounds p_j shrink_j, which is below c/m as bytes that are not all 0 have norm 1 at least, to
        a unit of at most 2 u c/m. That is fixed by c and m, so a record's rounding is its own, as in step 1; and it is
        off by u c/m times |X_j| <= 255 sqrt(q).
    e.  In `kernels.gradient_batch` a record's score leaves out products that are 0, and which are left out depends on
        the records beside it. No score changes with that: 0 times a number is 0, and a point that is not finite has no
        scores at all.
    f.  Custom losses are clipped by the norm of the very gradient that is added. Where its squares underflow, it is
        shorter than 1e-150 and no clip (1e-60 or more) touches it; where they overflow, it counts as 0.

**In other coordinates** (`problem.coordinates`) a gradient is asked for at P z, clipped by its length under P, and
returned as P v, where P = b (I - (1 - k) u u') makes a vector b times longer at most and k b times at least. A term t_j
with |P t_j| <= c has |t_j| <= c/(k b), so that steps 1 to 3 hold with c/(k b) for c, and P brings their errors to 1/k
times what they were beside c. P itself rounds a v of length c/(k b) at most by (q + 8) u c/k, on both data sets. The
first release of such a run has terms of 1.5 times its bound (the root of 1 + 1/4 + 1), which is less than 1/k times:

        rounding = 1.01 u/k ( m (m + 3)/2 + 4 m + q + 255 sqrt(q) + 16 + m (q + 8) )

`tests/problem/kernels/test_neighbours.py` tests the worst known records on every path.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from relaydp.errors import PrivacyError

ROUND = 2.0**-53
MOST = 2.0**40  # records and dimensions together


def rounding(records: ArrayLike, dim: int, kept: float | None = None) -> Any:
    """The relative excess over 2c/m by which one of so many records can move their mean. Number or array.

    `kept` is k, in other coordinates.

    >>> print(f"{rounding(1000, 30):.1e} {rounding(60_000, 784):.1e}")
    5.7e-11 2.0e-07
    """
    m = np.asarray(records, np.float64)
    if not ((m >= 1).all() and dim >= 1 and (m + dim < MOST).all()):
        raise PrivacyError(
            f"records={records!r}, dim={dim!r}; each must be 1 or more and below {MOST:g}, because nothing is proven "
            "for more."
        )
    units = m * (m + 3) / 2 + 4 * m + dim + 255 * np.sqrt(dim) + 16
    if kept is not None:
        units = (units + m * (dim + 8)) / kept
    return (1.01 * ROUND * units)[()]


def sensitivity(clip: ArrayLike, sizes: ArrayLike, dim: int, kept: float | None = None) -> Any:
    """2c/m with `rounding`, for each agent's number of records: for which noise is calibrated.

    >>> print(f"{sensitivity(1.0, 1000, 30):.15f}")
    0.002000000000114
    """
    bound = 2.0 * np.asarray(clip, np.float64) / np.asarray(sizes, np.float64)
    return np.nextafter(bound * (1.0 + rounding(sizes, dim, kept)), np.inf)[()]
