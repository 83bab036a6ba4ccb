"""Plans for sufficient statistics: when to take them, what their noise costs, and what to expect of the model.

Every agent releases its sums once (`oracle.statistics`), with all of its budget. The forecast supposes the same
directions as that of gradients (`planning.directions`): along one with curvature h and squared distance d to the
minimiser, of q in all, the model shrinks by h^2/(h^2 + e) what it sees with noise of variance z,

    (1)  bias  = 1/2 sum h (e / (h^2 + e))^2 d
    (2)  noise = 1/2 sum h (h / (h^2 + e))^2 z,       z = s_b^2 + s_H^2 (1 + 1/q) (sum d) / 2

and takes the e with the least sum, which `algorithm.sufficient_statistics` looks for in what was released.
"""

from __future__ import annotations

import math

import numpy as np

from relaydp.algorithm.sufficient_statistics import MOST_COEFFICIENTS
from relaydp.errors import InputError
from relaydp.oracle.statistics import units_from
from relaydp.planning.calibration import Calibrated
from relaydp.planning.directions import Directions, guess
from relaydp.planning.forecast import Forecast
from relaydp.privacy import MARGIN, Ledger, gaussian_scale, geometric
from relaydp.privacy.statistics import sensitivity
from relaydp.problem import Facts, Problem
from relaydp.problem.loss import LEAST_SQUARES

LITTLE = 1e-3  # of noise on the matrix beside R^2
SHRINKING = np.geomspace(1e-8, 1e8, 161)  # the e that (1) and (2) are tried with, beside h^2 of the largest curvature


def pays(facts: Facts, rho: np.ndarray) -> bool:
    """Whether a private plan for F should release statistics instead of gradients, by public facts.

    So it is for least squares with public bounds on records and labels, few coefficients and `noise_on_matrix` of
    LITTLE at most. A clip of the user's is for gradients.
    """
    if facts.squares is None or facts.dim > MOST_COEFFICIENTS or facts.clip_given:
        return False
    return noise_on_matrix(facts, rho) <= LITTLE


def noise_on_matrix(facts: Facts, rho: np.ndarray) -> float:
    """The largest eigenvalue of the noise on the mean of all H_i, about s_H sqrt(2 q), beside R^2, the largest that H
    has by its bounds.

    Of curvatures that are much larger the model is exact, and gradients take many laps to settle. Of smaller ones the
    noise on H, times the model's length, is more than gradients would have: they are asked for at the model itself.
    `benchmarks/least_squares.py` compares the two on generated problems.
    """
    assert facts.squares is not None
    return math.sqrt(2.0 * facts.dim * _noise_of_means(facts, rho)[0]) / facts.squares[0] ** 2


def _noise_of_means(facts: Facts, rho: np.ndarray) -> tuple[float, float]:
    """s_H^2 and s_b^2: of the noise on the mean of all agents' H_i and b_i, in one release each."""
    units = units_from(facts)
    scale = gaussian_scale(sensitivity(facts.clip, facts.sizes, facts.dim), rho)
    mean = float((np.asarray(scale) ** 2).sum()) / facts.agents**2
    return mean / units.matrix**2, mean / units.vector**2


def check_statistics(problem: Problem | Facts) -> None:
    """Refuse a problem that has no sufficient statistics, or too many."""
    if isinstance(problem, Problem) and problem.loss is not LEAST_SQUARES:
        raise InputError(
            f"sufficient-statistics is for least squares, and this problem has the {problem.loss.name} loss. Use 'auto'"
            ", 'recal' or 'relay-gradient'."
        )
    dim = problem.dim
    if dim > MOST_COEFFICIENTS:
        raise InputError(
            f"sufficient-statistics with {dim} coefficients would put {dim * (dim + 3) // 2} numbers on the baton; it "
            f"takes {MOST_COEFFICIENTS} coefficients at most. Use 'recal', whose baton has two numbers per coefficient."
        )


def calibrate_statistics(rho: np.ndarray, facts: Facts, T: int, ratio: float | None) -> Calibrated:
    """Gaussian noise on statistics: equal shares for each lap, or by `ratio`."""
    units_from(facts)  # refuses where a bound is missing
    moved = sensitivity(facts.clip, facts.sizes, facts.dim)
    parts = geometric(1.0, T, 1.0 if ratio is None else ratio)[:, None]
    scales = gaussian_scale(moved[None, :], rho[None, :] * (1.0 - MARGIN) * parts)
    return Calibrated(scales, moved, Ledger(facts.agents, rho))


def forecast_statistics(rho: np.ndarray, facts: Facts, T: int, prior: Directions | None) -> Forecast:
    """What to expect of T laps: as much as of one."""
    directions = guess(facts) if prior is None else prior
    on_matrix, on_vector = _noise_of_means(facts, rho)
    h, number, distance = directions.curvature, directions.number, directions.distance
    z = on_vector + on_matrix * (1.0 + 1.0 / facts.dim) * float(distance.sum()) / 2.0
    e = SHRINKING[:, None] * h.max() ** 2
    bias = 0.5 * (h * (e / (h**2 + e)) ** 2 * distance).sum(axis=1)
    noise = 0.5 * (h * (h / (h**2 + e)) ** 2 * z * number).sum(axis=1)
    best = int(np.argmin(bias + noise))
    shares = np.full((T, facts.agents), 1.0 / T)
    return Forecast(np.array([T]), bias[[best]], noise[[best]], 0, shares)
