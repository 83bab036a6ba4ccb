"""The cost of releases of sampled records, each given by its noise multiplier z (`releases.py`).

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
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri

from relaydp.errors import PrivacyError
from relaydp.privacy.accountant import check_delta, check_epsilon, epsilon_exact, epsilon_paper, rho_for
from relaydp.privacy.releases import grouped, numbers, total_rho, whole_number

# Grid points for the composed loss, coarse to fine. Each gives an upper bound; stop when the answer no longer changes.
_GRIDS = (2**13, 2**15, 2**17, 2**19, 2**21)
# Each grid errs by a sixteenth of the one before: a change of 1e-3 leaves an error of about 1e-4 of epsilon, upwards.
_SETTLED = 1e-3
# The probability that may be left out at the ends of a grid, relative to delta.
_END = 1e-9


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
    further, times = np.unique(numbers("pure", pure), return_counts=True)
    # For a smaller probability rounding of delta(epsilon) would matter; a larger one only costs more.
    p = np.maximum(p, np.minimum(1e-12 * np.sqrt(k) * 2 * z, 1))
    rho = total_rho(z, k, further, times)
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
    epsilon, delta, times = check_epsilon(epsilon), check_delta(delta), whole_number("count", count)
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
