"""Scores that tell runs under D from runs under D', and the bounds on epsilon that their errors give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relaydp.auditing.bounds import epsilon_limit, mu_limit
from relaydp.auditing.trials import Evidence
from relaydp.privacy import epsilon_exact

THRESHOLDS = 200  # tried on the held-out runs
FLOOR = 1e-9  # least variance in the learnt score, in units of each residual's spread, which may be 0


@dataclass(frozen=True)
class Bound:
    """One lower bound on epsilon, valid together with the report's others at the report's confidence."""

    score: str  # "ratio" or "learnt"
    kind: str  # "any": for any mechanism; "gaussian": refutes a claim of mu-GDP only
    epsilon: float
    mu: float | None  # of a gaussian bound
    threshold: float
    false_alarms: int  # runs under D that were called D'
    misses: int  # runs under D' that were called D
    runs: int  # counted, on each side


# -- scores: larger under D


def score_runs(
    first: Evidence, second: Evidence, cut: int
) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Every score of the counted runs, and of the held-out ones."""
    learnt = _learn(first.residuals[:cut], second.residuals[:cut])
    every = {
        "ratio": (first.ratio, second.ratio),
        "learnt": (learnt(first.residuals), learnt(second.residuals)),
    }
    counted = {name: (a[cut:], b[cut:]) for name, (a, b) in every.items()}
    held_out = {name: (a[:cut], b[:cut]) for name, (a, b) in every.items()}
    return counted, held_out


def _learn(first: np.ndarray, second: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The log-likelihood ratio of two Gaussians fitted to the residuals of held-out runs.

    It does not depend on the mechanism. Repeated noise gives a direction of (almost) no variance, and noise or steps
    that depend on the record give other means or covariances: the fit detects both.
    """
    both = np.concatenate([first, second])
    centre, spread = both.mean(axis=0), both.std(axis=0)
    spread = np.maximum(spread, np.finfo(float).tiny ** 0.5)

    def standard(x: np.ndarray) -> np.ndarray:
        return (x - centre) / spread

    fits = []
    for part in (standard(first), standard(second)):
        variance, axes = np.linalg.eigh(np.atleast_2d(np.cov(part, rowvar=False)))
        width = np.sqrt(np.maximum(variance, FLOOR))
        fits.append((part.mean(axis=0), axes / width, np.log(width).sum()))

    def score(x: np.ndarray) -> np.ndarray:
        rows = standard(x)
        distance = [0.5 * (((rows - mean) @ factor) ** 2).sum(axis=1) + logs for mean, factor, logs in fits]
        return distance[1] - distance[0]

    return score


# -- bounds


def bound_epsilon(
    score: str,
    first: np.ndarray,
    second: np.ndarray,
    held_out: tuple[np.ndarray, np.ndarray],
    delta: float,
    doubt: float,
) -> list[Bound]:
    """Both kinds of bound for one score, thresholds from the held-out runs, counts from the others."""
    found = []
    for kind in ("any", "gaussian"):
        at = _best_threshold(*held_out, delta, doubt) if kind == "any" else _middle(*held_out)
        alarms, misses, runs = *_errors(first, second, at), len(first)
        mu = None
        if kind == "any":
            epsilon = float(epsilon_limit(alarms, runs, misses, runs, delta, doubt))
        else:
            mu = mu_limit(2 * runs - alarms - misses, 2 * runs, doubt)
            epsilon = epsilon_exact(mu * mu / 2.0, delta)
        found.append(Bound(score, kind, epsilon, mu, at, alarms, misses, runs))
    return found


def _errors(first: np.ndarray, second: np.ndarray, threshold: float) -> tuple[int, int]:
    """Runs under D that are called D', and the other way round."""
    return int((first < threshold).sum()), int((second >= threshold).sum())


def _middle(first: np.ndarray, second: np.ndarray) -> float:
    """Half-way between the medians: the best threshold between two normal distributions of equal variance."""
    return float((np.median(first) + np.median(second)) / 2.0)


def _best_threshold(first: np.ndarray, second: np.ndarray, delta: float, doubt: float) -> float:
    candidates = np.unique(np.quantile(np.concatenate([first, second]), np.linspace(0.0, 1.0, THRESHOLDS)))
    candidates = np.append(candidates, _middle(first, second))
    alarms = np.searchsorted(np.sort(first), candidates, side="left")
    misses = len(second) - np.searchsorted(np.sort(second), candidates, side="left")
    return float(candidates[np.argmax(epsilon_limit(alarms, len(first), misses, len(second), delta, doubt))])
