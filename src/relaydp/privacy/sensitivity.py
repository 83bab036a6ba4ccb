"""How far one record can move a clipped mean that was computed in float64.

    v = (1/m) sum_j t_j,       |t_j| <= c        for real numbers: replacing one record moves v by at most 2c/m

Float64 adds to that. Let u = 2^-53, m records, q coordinates, and let v be computed by any of the paths of `problem`
(XLA's products and sums on any device, `kernel`, `panels`), which sum in float64 in orders of their own.

    1.  Clipping. A record's norm, its factor min(1, c/norm) and its products are each rounded a few times, sums of q
        squares q times: the t_j that is added has |t_j| <= c (1 + (q + 16) u). It is a function of record j and its
        place alone, so that in the m - 1 others this rounding is the same on both of two neighbouring data sets.
    2.  The sum. Any order is a binary tree with m leaves. Adding two nodes is off by at most u times the sum's norm,
        which is at most c times the leaves under it, and over a tree the leaves under all nodes number at most
        m (m + 1)/2, one after the other being the worst. Multiplying and adding in one instruction rounds a leaf once
        more. Hence the sum is off by at most u c m (m + 3)/2.
    3.  What follows, the mean's weight 1/m, a feature's scale, the lattice's step (`secret`), rounds v four times at
        most, each time by u c at most: with 2c/m the unit, 4 u m on both data sets together.

        sensitivity = 2c/m (1 + rounding),      rounding = 1.01 u ( m (m + 3)/2 + 4 m + q + 16 )

where 1.01 pays for products of these small numbers while m + q < 2^40. The square of m is no oversight: a sum of m
terms is up to m times as long as one, and rounds accordingly, m times, while one record moves it by 2c only. What it
takes is sums that linger at a power of two: two that lie on either side of it round differently. A test does that, and
gets an eighth of the bound. For 60,000 records the rounding is 2e-7, for four millions it is 1e-3.

It counts on terms that are as short as they look. A path that adds up longer ones, whose excess cancels in the end
(bytes with an offset in `kernel` and `panels`; `digits`), has more rounding: `excess` is how many times longer than c a
term may be there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from relaydp.errors import PrivacyError

ROUND = 2.0**-53
MOST = 2.0**40  # records and dimensions together


def rounding(records: ArrayLike, dim: int, excess: float = 1.0) -> Any:
    """How much more than 2c/m, as a share of it, one of so many records can move their mean. Number or array.

    >>> print(f"{rounding(1000, 30):.1e} {rounding(60_000, 784):.1e}")
    5.7e-11 2.0e-07
    """
    m = np.asarray(records, np.float64)
    if not ((m >= 1).all() and dim >= 1 and (m + dim < MOST).all() and excess >= 1):
        raise PrivacyError(
            f"records={records!r}, dim={dim!r}, excess={excess!r} arrived; needed 1 or more of each, and below "
            f"{MOST:g}. Nothing is proven beyond."
        )
    return (1.01 * ROUND * (excess * (m * (m + 3) / 2 + 4 * m) + dim + 16))[()]


def sensitivity(clip: ArrayLike, sizes: ArrayLike, dim: int, excess: float = 1.0) -> Any:
    """2c/m with `rounding`, for each agent's number of records: what to calibrate noise to.

    >>> print(f"{sensitivity(1.0, 1000, 30):.15f}")
    0.002000000000113
    """
    bound = 2.0 * np.asarray(clip, np.float64) / np.asarray(sizes, np.float64)
    return np.nextafter(bound * (1.0 + rounding(sizes, dim, excess)), np.inf)[()]
