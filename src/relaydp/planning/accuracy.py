"""What to run for the accuracy of a private classifier, from public facts alone.

Users of a classifier look at its accuracy, which depends on the angle of x and not on its length. A plan for the least
objective F (`forecast`) stops early, because noise in x is expensive in F; for accuracy more laps and longer steps pay.
The rule below is for accelerated gradient descent (`algorithm.relay_gradient`). All of it follows from one number, the
noise of the mean gradient if the whole budget were spent on one release, as a share of the clip c:

    (1)  noise    = (1/n) sqrt( sum_i (2 / (m_i mu_i))^2 ),    mu_i = sqrt(2 rho_i), per coordinate
    (2)  first    = 1/20 of the budget on a lap that prepares (`problem.coordinates`), where there is something to see
    (3)  clip c   = G / 5                                       G: the most that a record's gradient can be
    (4)  laps     = 100                                         every lap spends the same
    (5)  step     = 2^-4.7 (784/q)^0.2 (G / 5 c) / (noise G^2)  on a model that is asked at a times itself; from a noise
                                                                of 2^-9.5 on less, by its 0.15th power
    (6)  momentum = 0.85 at most, and steps shrink to nothing, in equal parts, until the last lap

(2) In coordinates in which records are short and have little in common, problems of many kinds are alike, which is why
so few constants serve them all. (3) Below the largest gradient the noise is smaller, and a record pulls with the same
force until it is classified with some margin. Much further below G a model answers the most frequent class where labels
are uncertain, however little noise there is. (4) Laps cost noise and buy movement; what decides is step and laps
together, and any number of laps with its own step does nearly as well. (5) Noise in x grows like step x noise, and
their product is nearly the same for all problems. What it adds to a score grows with the number of columns q, so that
fewer allow longer steps. (6) Momentum carries noise along, and steps that shrink take the noise of earlier laps out of
the model, which is then about 1.7 times as long as the one of least log-loss. Gradients are asked for at 1.7 x, so that
x itself has the right length.

The constants were chosen on 64 of the 93 problems of `benchmarks/accuracy_problems.py`; none of these is among the data
sets that docs/measurements.md reports. `benchmarks/accuracy.py` has the search, and the regret on the other 29.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from relaydp.algorithm.relay_gradient import MOST, RelayGradientSteps
from relaydp.errors import InputError
from relaydp.problem import Facts

CLIP = 0.2  # c / G
LAPS, TRAVEL, FEWEST = 100, 1.5, 25  # with other laps, from 25 on, the step is (100 / laps)^1.5 times as long
REACH = 2.0**-4.7  # step x noise, for
NUMBERS, FEWER = 784, 0.2  # so many numbers in the model; and the power by which it grows as they are fewer
FALL, MUCH = 0.15, 2.0**-9.5  # the power by which it falls with the noise, from which noise on
LEAST = 2.0**-13  # of the noise that a step is made for
MOMENTUM = 0.85  # at most
STRETCH = 1.7
FIRST = 0.05  # the share of the budget that a lap which prepares spends
WORTH = 10  # laps that are worth one that prepares
BLURRED = 64.0  # how many times longer than the bound on a record the noise of the mean record is at most
RIDGE = 5.0  # how many times l2 / G^2 the noise is at least
# Of what a model without privacy gains over the most frequent class, the share that private models had: the first
# percentile, the median and the 95th over the problems with three points of accuracy to gain or more, against log2 of
# the noise (1). Rounded outwards: a problem may be unlike all of these. Below 0 a model is worse than that class.
GAINS = {
    -14: (0.95, 0.998, 1.0),
    -13: (0.9, 0.99, 1.0),
    -12: (0.8, 0.99, 1.0),
    -11: (0.7, 0.98, 1.0),
    -10: (0.5, 0.96, 1.0),
    -9: (0.3, 0.93, 1.0),
    -8: (0.1, 0.9, 1.0),
    -7: (0.0, 0.86, 1.0),
    -6: (-0.1, 0.75, 1.0),
    -5: (-0.3, 0.58, 1.0),
    -4: (-1.0, 0.3, 0.9),
    -3: (-1.2, 0.1, 0.6),
    -2: (-1.7, 0.0, 0.2),
    -1: (-2.2, 0.0, 0.2),
}


class Rule(NamedTuple):
    """What the rule says of a problem and a budget."""

    facts: Facts  # with the clip of (2)
    laps: int  # the one that prepares included
    first: float | None  # the share of the budget that the first lap spends, where it prepares; else None
    steps: RelayGradientSteps
    expected: Expectation | None  # None where the user chose laps or clip: of such plans nothing is known


class Expectation(NamedTuple):
    """What to expect of a private classifier: a share of what a model without privacy gains over always answering the
    most frequent class. 0 is that class, 1 is no loss; nine problems in ten lie between `low` and `high`."""

    low: float
    middle: float
    high: float

    def accuracy(self, majority: float, without_privacy: float) -> tuple[float, float, float]:
        """The same as accuracies, where those of the most frequent class and without privacy are known.

        No accuracy is below 0 or above 1. Where a model without privacy is no better than the most frequent class, a
        share of what it gains says nothing, and is refused.

        >>> Expectation(0.5, 0.75, 1.0).accuracy(0.5, 0.9)
        (0.7, 0.8, 0.9)
        """
        if not 0.0 <= majority <= without_privacy <= 1.0:
            raise InputError(
                f"majority={majority!r}, without_privacy={without_privacy!r}; needed accuracies from 0 to 1, the "
                "second not below the first. A forecast is a share of what the second gains over the first."
            )
        gain = without_privacy - majority
        low, middle, high = (round(min(max(majority + share * gain, 0.0), 1.0), 12) for share in self)
        return low, middle, high

    def __str__(self) -> str:
        return f"{100 * self.middle:.0f} % ({100 * self.low:.0f} % to {100 * self.high:.0f} %)"


def expectation(noise: float) -> Expectation:
    """Between the rows of `GAINS`; beyond its ends, the ends."""
    at, rows = list(GAINS), np.array(list(GAINS.values()))
    return Expectation(*(float(np.interp(math.log2(noise), at, column)) for column in rows.T))


def noise_of(sizes: np.ndarray, rho: np.ndarray) -> float:
    """(1)."""
    return float(np.sqrt(((2.0 / (sizes * np.sqrt(2.0 * rho))) ** 2).sum()) / len(sizes))


def rule_for(facts: Facts, rho: np.ndarray, laps: int | None = None) -> Rule:
    """The rule, for agents with these total zCDP budgets. A clip that the user gave stays."""
    noise = noise_of(facts.sizes, rho)
    return _rule(facts, noise, laps, prepares(facts, noise, laps))


def rule_alone(facts: Facts, rho: float, laps: int | None = None) -> list[Rule]:
    """The same for agents that train by themselves, each with its own noise. Laps and clip are all agents' alike, and
    they all prepare or none does."""
    noises = 2.0 / (facts.sizes * math.sqrt(2.0 * rho))
    prepare = prepares(facts, float(noises.max()), laps)
    return [_rule(facts, float(noise), laps, prepare) for noise in noises]


def _rule(facts: Facts, noise: float, laps: int | None, prepare: bool) -> Rule:
    most = _most(facts)
    clip = min(facts.clip, most) if facts.clip_given else CLIP * most
    first = FIRST if prepare else None
    before = 0 if first is None else 1
    count = LAPS if laps is None else laps - before
    left = noise if first is None else noise / math.sqrt(1.0 - first)
    longer = (LAPS / max(count, FEWEST)) ** TRAVEL
    reach = REACH * (NUMBERS / facts.dim) ** FEWER * min(1.0, (MUCH / noise) ** FALL)
    step = reach * longer * (CLIP * most / clip) / (max(left, LEAST) * most**2) / STRETCH
    if facts.modulus > 0.0:  # a ridge is not clipped: with it a step has a limit
        step = min(step, 0.75 * MOST / (STRETCH * facts.modulus))
    steps = RelayGradientSteps(*map(np.float64, (step, STRETCH, MOMENTUM, count)))  # type: ignore[arg-type]
    known = laps is None and not facts.clip_given
    return Rule(replace(facts, clip=clip), count + before, first, steps, expectation(noise) if known else None)


def prepares(facts: Facts, noise: float, laps: int | None) -> bool:
    """Whether the first lap looks for better coordinates: where their noise leaves something to see, and no ridge says
    which coordinates are meant."""
    possible = facts.bound is not None and facts.modulus == 0.0 and (laps is None or laps >= WORTH)
    return possible and noise**2 * facts.dim <= FIRST * BLURRED


def _most(facts: Facts) -> float:
    """G; where the bounds do not give it, the clip."""
    return facts.clip if facts.bound is None else facts.bound


def applies(facts: Facts, rho: np.ndarray) -> bool:
    """Whether the rule is for this problem: a classifier of bounded gradient, whose ridge is small beside the noise.

    Clipping makes the records' pull up to 5 times weaker, and the ridge's not. Where the ridge decides the model, it
    is the minimiser of F that is wanted, and a plan for F serves accuracy too.
    """
    if not (facts.classifies and math.isfinite(facts.clip)):
        return False
    return RIDGE * facts.modulus <= noise_of(facts.sizes, rho) * _most(facts) ** 2
