"""The trace: how a run went, measured afterwards by someone who sees everything.

Objective, relative error and accuracy are computed from the records without noise. They are the simulator's view, for
the person running the experiment on data of their own; epsilon does not cover publishing them.
"""

from __future__ import annotations

import numpy as np

from relaydp.engine.plan import Plan
from relaydp.problem import Problem, Reference
from relaydp.result import Trace

TINY = 1e-12  # a minimiser shorter than this is 0: relative error has no meaning then


def relative_errors(points: np.ndarray, reference: Reference | None) -> np.ndarray:
    if reference is None or np.linalg.norm(reference.x) <= TINY:
        return np.full(len(points), np.nan)
    return np.linalg.norm(points - reference.x, axis=1) / np.linalg.norm(reference.x)


def counters(plan: Plan) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """After each hop (index 0: before the first): the PLF, link uses, and the most rho any agent has spent."""
    way, agents, hops = plan.route, plan.facts.agents, len(plan.route)
    if plan.algorithm.kind == "rounds":
        plf = np.arange(hops + 1)
        # every agent to the coordinator and back
        messages = 2 * agents * plf
    else:
        made = np.where(way.acts, way.activation + 1, 0)
        plf = np.concatenate([[0], np.maximum.accumulate(made)])
        messages = np.concatenate([[0], np.cumsum(way.holder != way.receiver)])
    if plan.ledger is None:
        return plf, messages, np.where(plf > 0, np.inf, 0.0)
    with np.errstate(divide="ignore"):
        each = plan.sensitivity[None, :] ** 2 / (2.0 * plan.scales**2)
    spent = np.concatenate([[0.0], np.cumsum(each, axis=0).max(axis=1)])
    return plf, messages, spent[plf]


def make_trace(
    problem: Problem, plan: Plan, x0: np.ndarray, at: np.ndarray, points: np.ndarray, reference: Reference | None
) -> Trace:
    xs = np.concatenate([x0[None], points])
    hops = np.concatenate([[0], at])
    plf, messages, rho = (column[hops] for column in counters(plan))
    fine = np.isfinite(xs).all(axis=1)
    objective = np.full(len(xs), np.inf)
    objective[fine] = problem.objectives(xs[fine])
    accuracy = np.full(len(xs), np.nan)
    if problem.classifies:
        accuracy[fine] = problem.accuracies(xs[fine])
    return Trace(
        hop=hops,
        activations=plf,
        messages=messages,
        vectors=messages * plan.algorithm.vectors,
        rho=rho,
        objective=objective,
        relative_error=relative_errors(xs, reference),
        accuracy=accuracy,
    )
