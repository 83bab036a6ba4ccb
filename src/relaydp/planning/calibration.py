"""What a plan's noise costs: scales for every activation, what one record can move, and a ledger with the limits."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from relaydp.algorithm import Algorithm
from relaydp.errors import InputError, PrivacyError
from relaydp.graph import Graph
from relaydp.oracle.argmin import INNER_STEPS
from relaydp.planning.forecast import Forecast, ObjectiveNoise
from relaydp.privacy import MARGIN, Budget, Ledger, gaussian_scale, geometric, published_scales
from relaydp.privacy.proven import K
from relaydp.privacy.secret import sum_edge
from relaydp.privacy.sensitivity import sensitivity as clipped_sensitivity
from relaydp.privacy.trust import Trust, hidden, shares
from relaydp.problem import Facts, Problem
from relaydp.problem.coordinates import KEPT

STEPS_PER_ROOT = 36.0  # inner steps to rounding, over the root of the condition number


class Calibrated(NamedTuple):
    """The noise of a plan, and an empty ledger that holds it to the budget."""

    scales: np.ndarray  # (activations, agents): of each agent's t-th release; where there are sums, its share
    sensitivity: np.ndarray  # (agents,): what one record can move of what is noised
    ledger: Ledger | None  # None where nothing is noised, or nothing is charged
    pure: np.ndarray | None = None  # (activations, agents): epsilon_0 of each release, where noise is in the objective
    kappa: np.ndarray | None = None  # (activations, agents): what each minimiser was priced with, where noise is there
    behind: np.ndarray | None = None  # (activations, agents): the noise that is left of a lap's sum, whoever colludes


def with_shares(rho: np.ndarray, facts: Facts, trust: Trust | None) -> np.ndarray:
    """The zCDP budgets of which noise on each agent's own gradient would be its share (`privacy.trust`).

    What is planned for them is planned for the shares. The promise is still about `rho`.
    """
    if trust is None or not trust.sums:
        return rho
    demanded = 1.0 / (facts.sizes * np.sqrt(2.0 * rho))  # s_i, in units of 2c
    return rho * (demanded / shares(demanded, trust.honest)) ** 2


def spread_over(T: int, first: float | None) -> np.ndarray:
    """Each release's share of the budget: equal ones, but for a first that prepares."""
    if first is None:
        return np.full(T, 1.0 / T)
    return np.concatenate([[first], np.full(T - 1, (1.0 - first) / (T - 1))])


def calibrate_gradient(
    rho: np.ndarray,
    facts: Facts,
    T: int,
    ratio: float | None,
    outlook: Forecast | None,
    first: float | None = None,
    trust: Trust | None = None,
) -> Calibrated:
    """Gaussian noise on gradients: each agent spends its rho along the forecast's shares, or by `ratio`.

    `first` is the share of the first release, where that prepares, and the others have equal shares; in the units of a
    gradient it has a gradient's sensitivity.
    """
    sensitivity = clipped_sensitivity(facts.clip, facts.sizes, facts.dim, None if first is None else KEPT)
    if first is not None:
        parts = np.tile(spread_over(T, first)[:, None], (1, facts.agents))
    elif ratio is None and outlook is not None:
        parts = outlook.shares
    else:
        parts = np.tile(geometric(1.0, T, 1.0 if ratio is None else ratio)[:, None], (1, facts.agents))
    if trust is None or not trust.sums:
        scales = gaussian_scale(sensitivity[None, :], rho[None, :] * (1.0 - MARGIN) * parts)
        return Calibrated(scales, sensitivity, Ledger(facts.agents, rho))
    parts = parts.mean(axis=1, keepdims=True)  # a lap is one sum: all agents spend alike on it
    demanded = gaussian_scale(sensitivity, rho * (1.0 - MARGIN))
    scales = shares(demanded, trust.honest) / np.sqrt(parts)
    check_sums(facts, scales)
    ledger = Ledger(facts.agents, rho, trust=trust)
    return Calibrated(scales, sensitivity, ledger, behind=hidden(scales, trust.honest))


def check_sums(facts: Facts, scales: np.ndarray) -> None:
    """Refuse noise beside which a gradient would not fit into the whole numbers that are added up."""
    longest = 2.0 * facts.clip / (scales.min() * 2.0**-K)  # the first release is at most 1.5 times as long as a clip
    if not longest <= sum_edge(facts.agents):
        raise PrivacyError(
            f"the noise is {scales.min() / facts.clip:.3g} of the clip, too little for sums of {facts.agents} parties "
            "in 64 bits. Lower the budget, leave collusion= or trust= out, or lower the number of parties."
        )


def objective_noise(
    problem: Problem, method: Algorithm, epsilons: np.ndarray, delta: float, ratio: float | None
) -> ObjectiveNoise:
    """What noise in the objective rests on, from public bounds."""
    if ratio is not None:
        raise InputError(f"ratio={ratio:g} shapes Gaussian noise; objective perturbation spends evenly. Leave it out.")
    assert method.curvature is not None
    try:
        bounds = problem.objective_bounds()
    except PrivacyError as error:
        raise PrivacyError(f"{error} Use {method.instead!r}, whose gradients can be made private.") from error
    return ObjectiveNoise(epsilons, delta, *bounds, method.curvature)


def calibrate_objective(noise: ObjectiveNoise, facts: Facts, steps: Any, graph: Graph, T: int) -> Calibrated:
    """Noise in the objective. The price rests on kappa, which the oracle holds the run to."""
    pure = noise.shares(T)
    kappa = np.array(noise.curvature(steps, graph, T), dtype=np.float64)
    if kappa.shape != (T, facts.agents) or not (np.isfinite(kappa) & (kappa > 0)).all():
        raise PrivacyError(
            f"an algorithm's curvature gave kappa of shape {kappa.shape}, the least {kappa.min(initial=np.inf):.3g}; "
            f"needed ({T}, {facts.agents}) finite numbers > 0, one for each minimiser. The price rests on them."
        )
    scales = noise.scales_with(kappa, facts)
    condition = float(((facts.smoothness + kappa) / (noise.modulus + kappa)).max())
    if STEPS_PER_ROOT * math.sqrt(condition) > INNER_STEPS:
        raise PrivacyError(
            f"the argmin has condition number {condition:.3g}, too large to be solved exactly in {INNER_STEPS} steps; "
            "objective perturbation covers exact minimisers only. Raise l2 or the penalty."
        )
    if not np.isfinite(scales).all():
        t, i = np.argwhere(~np.isfinite(scales))[0]
        raise PrivacyError(
            f"agent {i}'s minimiser number {t + 1} bends too much with a record for epsilon {pure[t, i]:.3g}: no noise "
            "in the objective is enough. Raise l2 or the penalty, ask for fewer activations, or raise the budget."
        )
    sensitivity = 2.0 * noise.slope / facts.sizes
    ledger = Ledger(facts.agents, (pure**2 / 2.0).sum(axis=0) * (1.0 + 1e-12))
    return Calibrated(scales, sensitivity, ledger, pure, kappa)


def calibrate_published(
    budget: Budget | None,
    noise: float | None,
    facts: Facts,
    method: Algorithm,
    steps: Any,
    graph: Graph,
    T: int,
    ratio: float | None,
) -> Calibrated:
    """The same by the paper's own account: rho_t = D^2 / (2 s_t^2) with its one-step sensitivity D, s_t^2 = s_1^2 /
    R^(t-1); for RECAL's D = 4 alpha beta c that is theorem 4. One s_1 for all agents, as the largest D wants it.
    """
    agents, R = facts.agents, 1.0 if ratio is None else ratio
    one = method.claim(facts, steps, graph) if method.claim is not None else np.zeros(agents)
    sensitivity = np.asarray(one, dtype=np.float64)
    if noise is None:
        assert budget is not None
        shares = geometric(budget.rho_paper, T, R)
        first = float(gaussian_scale(sensitivity.max(), shares[0]))
    else:
        if not (math.isfinite(noise) and noise >= 0):
            raise InputError(f"noise={noise!r}; needed a finite number >= 0: the published mechanism's s_1.")
        first = float(noise)
    if first == 0.0:
        return Calibrated(np.zeros((T, agents)), sensitivity, None)
    scales = np.tile(published_scales(first, T, R)[:, None], (1, agents))
    limit = math.inf if budget is None else budget.rho_paper
    return Calibrated(scales, sensitivity, Ledger(agents, limit))
