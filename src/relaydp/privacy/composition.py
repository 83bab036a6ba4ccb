"""The cost of other releases: checks with dp-accounting, sampled records, groups of records, conversions.

A release is given by its noise multiplier z = scale / sensitivity, where `sensitivity` is the most that REPLACING one
record changes, as everywhere in this package. One release of multiplier z costs rho = 1 / (2 z^2).

Sampled records. Each record takes part in an activation with probability p, independently and in secret, and the
agent releases sum(clipped gradients of those that do) / (p m) + N(0, s^2 I). One record adds at most c to the sum
(in units of 1/(p m)), so replacing one that takes part moves it by at most 2 c: z = s / (2 c). Write shift r = c / s.

    (1)  P = (1 - p) N(0, 1) + p N(r, 1)    against    Q = (1 - p) N(0, 1) + p N(-r, 1)

is the worst pair of neighbours: for every e^epsilon > 0 no pair has a larger P(E) - e^epsilon Q(E). Proof. Given who
else takes part the answers are, up to a translation, (1 - p) N(0, I) + p N(a, I) and (1 - p) N(0, I) + p N(b, I) with
|a|, |b| <= r, and mixing over the others does not raise the worst case (joint convexity). Take any event E and
t with Phi(-t) = N(0, I)(E). Neyman and Pearson: at that size no test of 0 against a has more power than
Phi(|a| - t), nor less against b than Phi(-|b| - t). Hence

    (2)  P(E) - e^epsilon Q(E) <= (1 - p)(1 - e^epsilon) Phi(-t) + p Phi(r - t) - p e^epsilon Phi(-r - t)

whose right side is what (1) gives on the half-line x > t. Since it is the worst for every epsilon, the pair also
composes adaptively (Zhu, Dong and Wang 2022, arXiv 2106.08567). It is symmetric, so one direction is enough. For
p < 1 it is not a pair of Gaussians, and add/remove accounting of the same sampling would promise too much (Lebeda,
Regehr, Kamath and Steinke 2024, arXiv 2405.20769). By convexity it is never worse than p = 1.

The privacy loss l(x) = ln P(x)/Q(x) grows with x, is odd, and is at least epsilon from x on where

    (3)  r x = epsilon/2 + arsinh( (1 - p)/p e^(r^2/2) sinh(epsilon/2) )

so that delta(epsilon) = P(X > x) - e^epsilon Q(X > x). Composition adds losses up. `epsilon_sampled` puts them on a
grid by "connect the dots" (Doroshenko et al. 2022, arXiv 2207.04380), which rounds upwards and errs by the square of
the grid's step, and convolves by FFT. Losses are first tilted by e^(tilt l), so that rounding is small compared with
delta and not only with 1:

    (4)  P(L = l) = M(tilt) e^(-tilt l) P_tilted(L = l),    M(tilt) = E e^(tilt L)

dp-accounting is imported inside functions, because the import takes a second.
"""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri

from relaydp.errors import PrivacyError
from relaydp.privacy.accountant import check_delta, check_epsilon, epsilon_exact, epsilon_paper, rho_for

# Grid points for the composed loss, coarse to fine. Each gives an upper bound; stop when the answer no longer changes.
_GRIDS = (2**13, 2**15, 2**17, 2**19, 2**21)
# Each grid errs by a sixteenth of the one before: a change of 1e-3 leaves an error of about 1e-4 of epsilon, upwards.
_SETTLED = 1e-3
# The probability that may be left out at the ends of a grid, relative to delta.
_END = 1e-9
# dp-accounting's grid step, as a part of one release's loss: errs by 1e-4 to 3e-4 of epsilon.
_FINENESS = 30


# --- conversions


def gdp_mu(rho: float) -> float:
    """mu of Gaussian releases that cost `rho` in all: sqrt(2 rho), the shift in units of the noise.

    Args:
        rho: 0 or more.

    Returns:
        mu: neighbouring data sets are as hard to tell apart as two unit Gaussians mu apart.

    Raises:
        PrivacyError: rho is not a number of 0 or more.

    Example:
        >>> import relaydp as rd
        >>> rd.privacy.gdp_mu(0.5)
        1.0
    """
    return math.sqrt(2 * _least("rho", rho, 0))


def gdp_rho(mu: float) -> float:
    """rho of a mu-GDP release: mu^2 / 2. It holds for every mu-GDP mechanism (Dong, Roth and Su 2019).

    Args:
        mu: 0 or more.

    Returns:
        rho.

    Raises:
        PrivacyError: mu is not a number of 0 or more.

    Example:
        >>> import relaydp as rd
        >>> rd.privacy.gdp_rho(1.0)
        0.5
    """
    return _least("mu", mu, 0) ** 2 / 2


def renyi(rho: float, alpha: float) -> float:
    """The Renyi divergence that rho-zCDP allows at one order: rho alpha, which is its definition.

    Args:
        rho: 0 or more.
        alpha: The order, above 1.

    Returns:
        The divergence.

    Raises:
        PrivacyError: rho or alpha is out of range.

    Example:
        >>> import relaydp as rd
        >>> rd.privacy.renyi(0.25, 8.0)
        2.0
    """
    return _least("rho", rho, 0) * _least("alpha", alpha, 1, above=True)


def pure_rho(epsilon: ArrayLike) -> NDArray[np.float64]:
    """rho of an epsilon-DP release, for numbers or arrays: epsilon^2 / 2 (Bun and Steinke 2016, proposition 1.4).

    Args:
        epsilon: 0 or more.

    Returns:
        rho.

    Raises:
        PrivacyError: A number is out of range.

    Example:
        >>> import relaydp as rd
        >>> float(rd.privacy.pure_rho(0.5))
        0.125
    """
    return (_numbers("epsilon", epsilon, above=False) ** 2 / 2)[()]


def epsilon_group(rho: float, delta: float, records: int) -> float:
    """epsilon for several records of one agent together, from the rho of its Gaussian releases.

    Each answer moves by up to `records` times the sensitivity: mu becomes k mu, and rho becomes k^2 rho, exactly.

    Args:
        rho: The cost of all releases for one record.
        delta: Between 0 and 1.
        records: k, how many records are replaced at once: the records of one person, for example.

    Returns:
        epsilon for k records, at the same delta.

    Raises:
        PrivacyError: A number is out of range.

    Example:
        >>> import relaydp as rd
        >>> round(rd.privacy.epsilon_group(0.02, 1e-5, 5), 4)
        4.3772
        >>> rd.privacy.epsilon_group(0.02, 1e-5, 1) == rd.privacy.epsilon_exact(0.02, 1e-5)
        True
    """
    return epsilon_exact(_least("rho", rho, 0) * _count("records", records) ** 2, delta)


def group_privacy(epsilon: float, delta: float, records: int) -> tuple[float, float]:
    """(epsilon, delta) for k records from that for one: (k epsilon, delta (e^(k epsilon) - 1)/(e^epsilon - 1)).

    It holds for every mechanism. For Gaussian releases `epsilon_group` gives a smaller epsilon.

    Args:
        epsilon: That of one record.
        delta: That of one record; 0 for a pure release.
        records: k, how many records are replaced at once.

    Returns:
        The pair (epsilon, delta) for k records.

    Raises:
        PrivacyError: A number is out of range.

    Example:
        >>> import relaydp as rd
        >>> rd.privacy.group_privacy(0.5, 0.0, 3)
        (1.5, 0.0)
    """
    epsilon, delta, k = check_epsilon(epsilon), _least("delta", delta, 0), _count("records", records)
    # The triangle inequality over k - 1 intermediate data sets gives a geometric series; infinite means no guarantee.
    with np.errstate(over="ignore"):
        grown = float(delta * (np.expm1(k * epsilon) / np.expm1(epsilon))) if delta else 0.0
    return k * epsilon, min(1.0, grown)


# --- checks with dp-accounting


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
    further, times = np.unique(_numbers("pure", pure), return_counts=True)
    rho = _total(z, k, further, times)
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
    further, times = np.unique(_numbers("pure", pure), return_counts=True)
    rho = _total(z, k, further, times)
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
        if before - found <= _SETTLED / 2 * found:
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


# --- sampled records


def epsilon_sampled(
    noise_multiplier: ArrayLike, sampling: ArrayLike, count: ArrayLike, delta: float, pure: ArrayLike = ()
) -> float:
    """epsilon of Gaussian releases in which each record takes part with a probability.

    Formal guarantee. An upper bound on the composition of (1), with a relative error of about 1e-4, for replacing one
    record, if records take part independently of each other, of earlier activations and of everything published; if it
    stays secret which records took part; and if the sum is divided by a public number such as p m, not by how many took
    part.

    Args:
        noise_multiplier: z of the releases: the noise's standard deviation over the sensitivity. A number or an array.
        sampling: p, the probability with which each record takes part. A number or an array.
        count: How many releases there are of each kind. A number or an array.
        delta: Between 0 and 1.
        pure: epsilon_0 of each further pure release. Default: none.

    Returns:
        epsilon.

    Raises:
        PrivacyError: A number is out of range, or arrays have different lengths.

    Example:
        >>> import relaydp as rd
        >>> whole = rd.privacy.epsilon_sampled(5.0, 1.0, 100, 1e-5)
        >>> round(whole, 3), round(rd.privacy.epsilon_sampled(5.0, 0.1, 100, 1e-5), 3)
        (9.997, 0.725)
    """
    delta = check_delta(delta)
    z, p, k = grouped(noise_multiplier, sampling, count)
    further, times = np.unique(_numbers("pure", pure), return_counts=True)
    # For a smaller probability rounding of delta(epsilon) would matter; a larger one only costs more.
    p = np.maximum(p, np.minimum(1e-12 * np.sqrt(k) * 2 * z, 1))
    rho = _total(z, k, further, times)
    if rho in (0.0, math.inf):
        return rho
    # At most the value for p = 1, which the grid's rounding could exceed.
    most = epsilon_paper(rho, delta) if further.size else epsilon_exact(rho, delta)
    if not further.size and (p == 1).all():
        return most
    sampled: list[_Part] = [
        _Sampled(1 / (2 * one), share, many) for one, share, many in zip(z[p < 1], p[p < 1], k[p < 1], strict=True)
    ]
    whole = float(k[p == 1] @ z[p == 1] ** -2.0)  # Gaussians compose into one, of shift sqrt(sum 1/z^2)
    rest: list[_Part] = [_Sampled(math.sqrt(whole) / 2, 1.0, 1)] if whole else []
    rest += [_Pure(one, many) for one, many in zip(further, times, strict=True)]
    return min(most, _compose([*sampled, *rest], delta))


def noise_for_sampled(epsilon: float, delta: float, sampling: float, count: int) -> float:
    """The noise multiplier at which releases of sampled records cost epsilon: the inverse of `epsilon_sampled`.

    It is found to within 1e-4, and is never too small. The standard deviation is multiplier * 2 c / (p m): a smaller p
    needs a smaller multiplier, but of a larger sensitivity.

    Args:
        epsilon: What all releases together may cost.
        delta: Between 0 and 1.
        sampling: p, the probability with which each record takes part.
        count: The number of releases.

    Returns:
        z, the noise's standard deviation over the sensitivity.

    Raises:
        PrivacyError: A number is out of range, or a record takes part so seldom that this delta would allow publishing
            it.

    Example:
        >>> import relaydp as rd
        >>> z = rd.privacy.noise_for_sampled(1.0, 1e-5, sampling=0.1, count=100)
        >>> 0 <= 1 - rd.privacy.epsilon_sampled(z, 0.1, 100, 1e-5) < 1e-3
        True
    """
    epsilon, delta, times = check_epsilon(epsilon), check_delta(delta), _count("count", count)
    grouped(1.0, sampling, times)  # refuses anything but a probability
    if sampling < 1 and -math.expm1(times * math.log1p(-sampling)) <= delta:
        raise PrivacyError(
            f"sampling={sampling} and count={times} with delta={delta}: a record takes part so seldom that this delta "
            "allows publishing it without noise. Choose a delta well below sampling * count."
        )
    high = math.sqrt(times / (2 * rho_for(epsilon, delta)))  # enough for p = 1, hence for any p

    def excess(log_z: float) -> float:
        return math.log(max(epsilon_sampled(math.exp(log_z), sampling, times, delta), 1e-300) / epsilon)

    if excess(math.log(high)) >= 0:  # p = 1, up to rounding
        return high * (1 + 1e-11)
    low = high / 2
    while excess(math.log(low)) <= 0:
        low, high = low / 2, low
    root: Any = brentq(excess, math.log(low), math.log(high), xtol=1e-5)
    found = math.exp(root)
    while epsilon_sampled(found, sampling, times, delta) > epsilon:  # brentq may stop on the wrong side
        found *= 1 + 2e-5
    return found


@dataclass(frozen=True)
class _Sampled:
    """The pair (1), `count` times."""

    shift: float  # r
    sampling: float  # p
    count: int

    def reach(self, tail: float) -> float:
        """A loss that is exceeded with probability at most `tail`: l(x) at x = r + the Gaussian quantile."""
        out, took = self._logs()
        x = self.shift - float(ndtri(tail))
        near, far = (np.logaddexp(out, took + way * self.shift * x - self.shift**2 / 2) for way in (1, -1))
        return float(near - far)

    def masses(self, step: float, points: int) -> tuple[NDArray[np.float64], float]:
        """P(loss = step, 2 step, ..., points step) and P(loss = infinity) on the grid, by connecting the dots."""
        delta = self._delta(step * np.arange(points + 1))
        fall = -np.diff(delta)
        mass = (fall - math.exp(-step) * np.append(fall[1:], 0)) / -math.expm1(-step)
        return np.maximum(mass, 0), max(0.0, float(delta[-1]))

    def _delta(self, epsilon: np.ndarray) -> NDArray[np.float64]:
        """delta at each epsilon >= 0, with (3) in logarithms where sinh would overflow."""
        out, took = self._logs()
        with np.errstate(divide="ignore"):
            log_sinh = epsilon / 2 + np.log(-np.expm1(-epsilon)) - math.log(2)
        inner = out - took + self.shift**2 / 2 + log_sinh
        turn = np.where(inner < 20, np.arcsinh(np.exp(np.minimum(inner, 20))), inner + math.log(2))
        x = (epsilon / 2 + turn) / self.shift
        middle = out + log_ndtr(-x)
        upper = np.logaddexp(middle, took + log_ndtr(self.shift - x))
        lower = np.logaddexp(middle, took + log_ndtr(-self.shift - x))
        return np.exp(upper) - np.exp(epsilon + lower)

    def _logs(self) -> tuple[float, float]:
        """ln(1 - p) and ln p."""
        return (math.log1p(-self.sampling) if self.sampling < 1 else -math.inf), math.log(self.sampling)


@dataclass(frozen=True)
class _Pure:
    """The worst epsilon-DP pair, `count` times: randomised response, true e^epsilon times as often as false."""

    epsilon: float
    count: int

    def reach(self, tail: float) -> float:
        return self.epsilon

    def masses(self, step: float, points: int) -> tuple[NDArray[np.float64], float]:
        """The loss +epsilon lies between two grid points, and is divided so that both coins keep their masses."""
        mass, whole = np.zeros(points + 1), 1 / (1 + math.exp(-self.epsilon))
        upper = min(max(math.expm1((points - 1) * step - self.epsilon) / math.expm1(-step), 0.0), 1.0)
        mass[points - 1], mass[points] = whole * (1 - upper), whole * upper
        return mass[1:], 0.0


_Part = _Sampled | _Pure


def _spread(part: _Part, step: float, tail: float) -> tuple[NDArray[np.int64], NDArray[np.float64], float]:
    """(grid positions, their masses, mass at infinity) of one release's loss.

    The pair is symmetric, so P(loss = -l) = e^-l P(loss = l). Losses below the grid are moved to 0.
    """
    points = max(1, math.ceil(part.reach(tail) / step))
    up, infinite = part.masses(step, points)
    down = up * np.exp(-step * np.arange(1, points + 1))
    middle = max(0.0, 1 - infinite - up.sum() - down.sum())
    return np.arange(-points, points + 1), np.concatenate([down[::-1], [middle], up]), infinite


def _compose(parts: Sequence[_Part], delta: float) -> float:
    """epsilon at delta of all parts together."""
    releases = sum(part.count for part in parts)
    tail = max(_END * delta / releases, 1e-300)
    window = _window(parts, delta, tail)
    found = math.inf
    for size in _GRIDS:
        before, found = found, _on_grid(parts, delta, tail, window, size)
        if before - found <= _SETTLED * found:
            break
    return found


class _Window(NamedTuple):
    tilt: float  # of (4), to suit delta
    further: float  # P_tilted(L > l) <= M(tilt + further) / M(tilt) e^(-further l), by Markov
    low: float  # the tilted sum is below with probability 1e-13
    high: float  # and above with the same probability


def _window(parts: Sequence[_Part], delta: float, tail: float) -> _Window:
    """The tilt, and the range of losses that a grid must cover, estimated on grids of a hundred points."""
    steps = np.array([part.reach(tail) for part in parts]) / 100
    grids = [_spread(part, step, tail) for part, step in zip(parts, steps, strict=True)]
    width = max(len(mass) for _, mass, _ in grids)
    losses, masses = (np.zeros((len(parts), width)) for _ in range(2))
    for row, (places, mass, _) in enumerate(grids):
        losses[row, : len(places)], masses[row, : len(places)] = places * steps[row], mass
    count = np.array([part.count for part in parts], dtype=np.float64)
    with np.errstate(divide="ignore"):
        logs = np.log(masses)

    def log_moment(t: float) -> float:
        return float(count @ _log_sum(logs + t * losses))

    def deviation(t: float) -> float:
        tilted = logs + t * losses
        weights = np.exp(tilted - _log_sum(tilted)[:, None])
        mean = (weights * losses).sum(axis=1, keepdims=True)
        return math.sqrt(float(count @ (weights * (losses - mean) ** 2).sum(axis=1)))

    # Markov: P(L > l) <= M(t) e^(-t l). The t with the least l at this delta tilts L to about the epsilon sought. The
    # smallest t that is nearly as good is used: for bounded losses the best one keeps only the largest loss.
    spread = deviation(0.0)
    tilts = np.geomspace(1e-3, 1e3, 61) / spread
    bounds = np.array([(log_moment(t) - math.log(delta)) / t for t in tilts])
    tilt = float(tilts[np.flatnonzero(bounds <= 1.05 * bounds.min())[0]])
    base, extra = log_moment(tilt), math.log(1e13)
    ways = np.geomspace(0.25, 16, 7) / max(deviation(tilt), 1e-3 * spread)
    high, further = min(((log_moment(tilt + t) - base + extra) / t, float(t)) for t in ways)
    low = max((log_moment(tilt - t) - base + extra) / -t for t in ways)
    # Other grids spread losses a little further; and a grid must be at least as wide as a single release.
    return _Window(tilt, further, low, max(high + 0.05 * (high - low), low + float(steps.max()) * 100))


def _on_grid(parts: Sequence[_Part], delta: float, tail: float, window: _Window, size: int) -> float:
    """epsilon at delta on a grid of `size` losses."""
    tilt, step = window.tilt, (window.high - window.low) / size
    spectrum, log_moment, further, infinite = np.ones(size // 2 + 1, dtype=np.complex128), 0.0, 0.0, 0.0
    for part in parts:
        places, mass, beyond = _spread(part, step, tail)
        with np.errstate(divide="ignore"):
            logs = np.log(mass) + tilt * step * places
        moment = float(_log_sum(logs))
        tilted = np.bincount(places % size, np.exp(logs - moment), size)
        spectrum *= np.fft.rfft(tilted) ** part.count
        log_moment += part.count * moment
        further += part.count * (float(_log_sum(logs + window.further * step * places)) - moment)
        infinite += part.count * beyond
    places = math.ceil(window.low / step) + np.arange(size)
    log_weight = log_moment - tilt * step * places  # equation (4)
    # Only losses above 0 count, and where delta is already far exceeded they would overflow.
    use = (places >= 0) & (log_weight < math.log(delta) + 600)
    losses, weight = step * places[use], np.exp(log_weight[use])
    mass = np.maximum(np.fft.irfft(spectrum, size)[places[use] % size], 0) * weight
    # At losses[j]: P(L >= losses[j]), and the sum of P(L = l) e^(losses[j] - l) over the same l.
    upper = infinite + np.cumsum(mass[::-1])[::-1]
    from scipy.signal import lfilter  # imported here, because scipy.signal takes 0.4 s and few runs need it

    lower = lfilter([1.0], [1.0, -math.exp(-step)], mass[::-1])[::-1]
    # Sums above the grid wrap around to its lower end and are missed here: add their P_tilted, and some rounding,
    # before the weight. (Those below wrap around to its upper end, and count too much.)
    missed = math.exp(min(0.0, further - window.further * step * (int(places[-1]) + 1)))
    missed += 1e-12 + 1e-15 * sum(part.count for part in parts)
    upper += missed * weight * math.exp(tilt * step)
    inside = np.flatnonzero(upper - lower <= delta)
    if inside.size == 0:
        return math.inf
    j = int(inside[0])
    if j == 0:
        return max(0.0, float(losses[0]))
    # Between two grid points delta(epsilon) = upper - e^(epsilon - losses[j]) lower.
    return max(0.0, float(losses[j] + math.log((upper[j] - delta) / lower[j])))


def _log_sum(logs: np.ndarray) -> NDArray[np.float64]:
    """ln of the sum of e^logs along the last axis."""
    most = logs.max(axis=-1)
    return most + np.log(np.exp(logs - most[..., None]).sum(axis=-1))


# --- arguments


def grouped(
    noise_multiplier: ArrayLike, sampling: ArrayLike, count: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """The different pairs (multiplier, sampling), and the number of each.

    Multipliers that agree to 1e-12 are merged into the smaller, as those of agents of different sizes may.
    """
    z, p = _numbers("noise_multiplier", noise_multiplier), _numbers("sampling", sampling)
    if (p > 1).any():
        raise PrivacyError(f"sampling={p.max()}; it must be a probability above 0, at most 1. 1 takes all records.")
    k = np.atleast_1d(np.asarray(count))
    if k.dtype.kind not in "iu" or (k < 1).any():
        raise PrivacyError(f"count={count!r}; it must be whole numbers, 1 or more: how many releases of each.")
    try:
        z, p, k = np.broadcast_arrays(z, p, k)
    except ValueError:
        raise PrivacyError(
            f"the arrays have lengths {z.size}, {p.size} and {k.size}; all must have the same length."
        ) from None
    rows = np.stack([np.floor(np.log(z) * 1e12), p], axis=1)
    kinds, place = np.unique(rows, axis=0, return_inverse=True)
    many = np.bincount(place.ravel(), k, len(kinds)).astype(np.int64)
    return np.exp(kinds[:, 0] / 1e12), kinds[:, 1], many


def _total(z: NDArray[np.float64], k: NDArray[np.int64], further: NDArray[np.float64], times: Any) -> float:
    """rho of all: sum k / (2 z^2) + sum epsilon_0^2 / 2."""
    with np.errstate(over="ignore"):
        return float(k @ z**-2.0 + times @ further**2) / 2


def _numbers(name: str, value: ArrayLike, above: bool = True) -> NDArray[np.float64]:
    """`value` as finite float64 numbers above 0 (or from 0 on): an array of one axis, or the number itself."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise PrivacyError(f"{name}={value!r}; it must hold numbers. Pass {name} as floats.") from None
    bad = ~((array > 0 if above else array >= 0) & np.isfinite(array))
    if bad.any() or array.ndim > 1:
        shown = array[bad].flat[0] if bad.any() else f"an array of shape {array.shape}"
        needed = "a finite number above 0" if above else "a finite number, 0 or more"
        raise PrivacyError(f"{name}={shown}; it must be {needed}, or an array of such numbers along one axis.")
    return np.atleast_1d(array) if above else array


def _least(name: str, value: float, least: float, above: bool = False) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (number > least if above else number >= least):
        raise PrivacyError(f"{name}={value!r}; it must be a number {'above' if above else 'of at least'} {least}.")
    return number


def _count(name: str, value: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise PrivacyError(f"{name}={value!r}; it must be a whole number, 1 or more.")
    return number
