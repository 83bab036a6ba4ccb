"""The trace: how a run went, measured afterwards by someone who sees everything.

Objective, relative error and accuracy are computed from the records without noise. They are the simulator's view, for
the person running the experiment on data of their own; epsilon does not cover publishing them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from relaydp.engine.plan import Plan
from relaydp.problem import Problem, Reference
from relaydp.problem.problem import POINTS_A_PASS
from relaydp.result import Trace

NUMBERS = 2**24  # a record and a model give one: as many are held at once, 128 MiB
TINY = 1e-12  # a minimiser shorter than this is 0: relative error has no meaning then


def relative_errors(points: np.ndarray, reference: Reference | None) -> np.ndarray:
    if reference is None or np.linalg.norm(reference.x) <= TINY:
        return np.full(len(points), np.nan)
    return np.linalg.norm(points - reference.x, axis=1) / np.linalg.norm(reference.x)


def in_blocks(measure: Callable[[np.ndarray], np.ndarray], xs: np.ndarray, block: int) -> np.ndarray:
    """`measure` of every row of xs, `block` rows at a time. The last block is filled up, so that runs of every length
    share one compiled program."""
    full = np.concatenate([xs, np.zeros((-len(xs) % block, xs.shape[1]))])
    parts = [measure(full[at : at + block]) for at in range(0, len(full), block)]
    return np.concatenate(parts)[: len(xs)] if parts else np.empty(0)


def make_trace(
    problem: Problem, plan: Plan, x0: np.ndarray, at: np.ndarray, points: np.ndarray, reference: Reference | None
) -> Trace:
    xs = np.concatenate([x0[None], points])
    hops = np.concatenate([[0], at])
    plf, messages, rho = (column[hops] for column in plan.tally)
    fine = np.isfinite(xs).all(axis=1)
    objective = np.full(len(xs), np.inf)
    most = NUMBERS // len(problem.data)
    objective[fine] = in_blocks(problem.objectives, xs[fine], max(1, min(POINTS_A_PASS, most)))
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
