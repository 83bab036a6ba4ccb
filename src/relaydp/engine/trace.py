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


def make_trace(
    problem: Problem, plan: Plan, x0: np.ndarray, at: np.ndarray, points: np.ndarray, reference: Reference | None
) -> Trace:
    xs = np.concatenate([x0[None], points])
    hops = np.concatenate([[0], at])
    plf, messages, rho = (column[hops] for column in plan.tally)
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
