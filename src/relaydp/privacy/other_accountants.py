"""Checks of our accounting with dp-accounting, which computes in other ways.

dp-accounting is imported inside functions, because the import takes a second.
"""

import math
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from relaydp.privacy.accountant import check_delta
from relaydp.privacy.releases import grouped, numbers, total_rho

# dp-accounting's grid step, as a part of one release's loss: errs by 1e-4 to 3e-4 of epsilon.
_FINENESS = 30
# The step is halved until epsilon changes by less than this part of it.
_SETTLED = 5e-4


def epsilon_rdp(noise_multiplier: ArrayLike, count: ArrayLike, delta: float, *, pure: ArrayLike = ()) -> float:
    """epsilon of Gaussian releases by dp-accounting's RDP accountant: an upper bound, computed independently of ours.

    Args:
        noise_multiplier: z of the releases: the noise's standard deviation over the sensitivity. A number or an array.
        count: How many releases there are of each z. A number or an array.
        delta: Between 0 and 1.
        pure: epsilon_0 of each further pure release. Default: none.

    Returns:
        epsilon.

    Raises:
        PrivacyError: A number is out of range, or arrays have different lengths.

    Example:
        >>> import relaydp as rd
        >>> round(rd.privacy.epsilon_rdp(20.0, 400, 1e-5), 3)  # exact: 4.377
        4.729
    """
    delta = check_delta(delta)
    z, _, k = grouped(noise_multiplier, 1.0, count)
    further, times = np.unique(numbers("pure", pure), return_counts=True)
    rho = total_rho(z, k, further, times)
    if rho in (0.0, math.inf):
        return rho
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    # The best order is about 1 + sqrt(ln(1/delta) / rho); dp-accounting's own list ends at 1024.
    best = math.sqrt(-math.log(delta) / rho)
    accountant = RdpAccountant(np.maximum(1 + best * np.geomspace(0.1, 10, 101), 1.02).tolist())
    for one, many in zip(z.tolist(), k.tolist(), strict=True):
        accountant.compose(dp_accounting.GaussianDpEvent(one), many)
    for one, many in zip(further.tolist(), times.tolist(), strict=True):
        accountant.compose(dp_accounting.ZCDpEvent(one**2 / 2), many)
    return float(accountant.get_epsilon(delta))


def epsilon_pld(
    noise_multiplier: ArrayLike, count: ArrayLike, delta: float, *, sampling: ArrayLike = 1.0, pure: ArrayLike = ()
) -> float:
    """epsilon of a list of releases by dp-accounting's privacy loss distributions.

    It rounds up, by 1e-4 to 3e-4 of epsilon. 2,000 different releases take about three seconds. It is reliable for
    delta down to 1e-10: dp-accounting drops about 1e-15 per release.

    Args:
        noise_multiplier: z of the releases: the noise's standard deviation over the sensitivity. A number or an array.
        count: How many releases there are of each z. A number or an array.
        delta: Between 0 and 1.
        sampling: p, the probability with which each record takes part. Default: 1, every record always.
        pure: epsilon_0 of each further pure release. Default: none.

    Returns:
        epsilon.

    Raises:
        PrivacyError: A number is out of range, or arrays have different lengths.

    Example:
        >>> import relaydp as rd
        >>> round(rd.privacy.epsilon_pld(20.0, 400, 1e-5), 2)
        4.38
    """
    delta = check_delta(delta)
    z, p, k = grouped(noise_multiplier, sampling, count)
    further, times = np.unique(numbers("pure", pure), return_counts=True)
    rho = total_rho(z, k, further, times)
    if rho in (0.0, math.inf):
        return rho
    # dp-accounting also merges equal Gaussians without sampling and discretises them once; all others once per release.
    r = 1 / (2 * z)
    # The loss's standard deviation: 2 r for p = 1, and to first order in p the root of 4 p^2 sinh(r^2).
    loss = np.minimum(2 * r, 2 * p * np.sqrt(np.sinh(np.minimum(r**2, 700))))
    total = float(k @ loss**2) + float(times @ further**2)
    pieces = int(np.where(p == 1, 1, k).sum() + times.sum())
    step = min(math.sqrt(total / pieces) / _FINENESS, 100.0)  # dp-accounting needs e^step
    if further.size:  # losses of +-epsilon_0 are rounded up: put the smallest exactly on the grid
        step = float(further[0]) / 2.0 ** math.ceil(math.log2(further[0] / step))
    found = _compose_elsewhere(z, p, k, further, times, step, delta)
    if (p == 1).all() and not further.size:
        return found
    for _ in range(4):  # the step above is an estimate; every step gives an upper bound
        step, before = step / 2, found
        found = min(before, _compose_elsewhere(z, p, k, further, times, step, delta))
        if before - found <= _SETTLED * found:
            break
    return found


def _compose_elsewhere(z: Any, p: Any, k: Any, further: Any, times: Any, step: float, delta: float) -> float:
    """The same on one grid. dp-accounting's PLDAccountant forgets the count of some events, so we call its parts."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import common, privacy_loss_distribution

    parts = []
    for one, share, many in zip(z.tolist(), p.tolist(), k.tolist(), strict=True):
        if share == 1:
            scale = one / math.sqrt(many)
            parts.append(privacy_loss_distribution.from_gaussian_mechanism(scale, value_discretization_interval=step))
        else:  # there replacing a record moves the answer by twice the sensitivity, so the multiplier is 2 z
            single = privacy_loss_distribution.from_gaussian_mechanism(
                2 * one,
                value_discretization_interval=step,
                sampling_prob=share,
                neighboring_relation=NeighboringRelation.REPLACE_ONE,
            )
            parts.append(single.self_compose(many))
    for one, many in zip(further.tolist(), times.tolist(), strict=True):
        promise = common.DifferentialPrivacyParameters(one)
        parts.append(privacy_loss_distribution.from_privacy_parameters(promise, step).self_compose(many))
    while len(parts) > 1:  # in pairs, so that most convolutions are short
        pairs = zip_longest(parts[::2], parts[1::2])
        parts = [left if right is None else left.compose(right) for left, right in pairs]
    with np.errstate(over="ignore"):  # it divides by e^-loss
        return float(parts[0].get_epsilon_for_delta(delta))
