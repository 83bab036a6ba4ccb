"""Lower bounds on epsilon from counts of right and wrong guesses, exact at a given confidence.

An attacker who has to distinguish D from D' and guesses "D'" above a threshold errs with probabilities FPR (under D)
and FNR (under D'). Two claims limit that pair:

    (epsilon, delta)-DP   1 - FNR <= e^epsilon FPR + delta   and   1 - FPR <= e^epsilon FNR + delta
    mu-GDP                1 - FNR <= Phi( Phi^-1(FPR) + mu ),  so that  (1 - FPR + 1 - FNR)/2 <= Phi(mu/2)

Each is inverted: counts give an upper bound on the errors (Clopper and Pearson 1934, exact for every sample size),
and that a lower bound on epsilon or mu. The threshold must not have been chosen on the same runs.

The two serve different purposes. The first assumes nothing about the mechanism, and with N runs per side never exceeds
about ln(N/9). The second refutes a claim of mu-GDP, which is the claim of a composition of Gaussian releases; for a
mechanism that claims (epsilon, delta)-DP at a single delta and nothing else, it proves nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import beta


def upper_limit(successes: Any, trials: int, doubt: float) -> Any:
    """The largest probability that `successes` or fewer out of `trials` are compatible with, except with probability
    `doubt`.

    A number, or an array of them.

    >>> round(float(upper_limit(0, 10_000, 0.001)) * 10_000, 2)
    6.91
    """
    k = np.asarray(successes)
    return np.where(k < trials, beta.ppf(1.0 - doubt, k + 1, np.maximum(trials - k, 1)), 1.0)[()]


def lower_limit(successes: Any, trials: int, doubt: float) -> Any:
    """The smallest probability that `successes` or more out of `trials` are compatible with, except with probability
    `doubt`."""
    return 1.0 - upper_limit(trials - np.asarray(successes), trials, doubt)


def epsilon_limit(false_alarms: Any, first: int, misses: Any, second: int, delta: float, doubt: float) -> Any:
    """The largest epsilon that is refuted, in either direction, for any mechanism.

    `false_alarms` of `first` runs under D were called D', `misses` of `second` runs under D' were called D; each error
    has half of `doubt`.

    >>> round(float(epsilon_limit(0, 10_000, 0, 10_000, 1e-5, 0.001)), 2)
    7.18
    """
    fpr, fnr = upper_limit(false_alarms, first, doubt / 2), upper_limit(misses, second, doubt / 2)
    ratio = np.maximum((1.0 - fnr - delta) / fpr, (1.0 - fpr - delta) / fnr)
    return np.log(np.maximum(ratio, 1.0))


def mu_limit(right: int, runs: int, doubt: float) -> float:
    """The largest mu for which mu-GDP is refuted by `right` guesses out of `runs`, as many under D as under D'.

    The count is a sum of two binomials; far above its mean its upper tail is at most that of one binomial with their
    mean probability (Hoeffding 1956), so one Clopper-Pearson limit serves both.

    >>> round(mu_limit(11_000, 20_000, 0.001), 2)
    0.2
    """
    return max(0.0, 2.0 * float(ndtri(lower_limit(right, runs, doubt))))
