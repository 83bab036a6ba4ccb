"""The trace: how a run went, measured afterwards by someone who sees everything.

Objective, relative error and accuracy are computed from the records without noise. They are the simulator's view, for
the person running the experiment on data of their own; epsilon does not cover publishing them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from relaydp.planning.run_plan import Plan
from relaydp.problem import Problem, Reference
from relaydp.problem.problem import POINTS_A_PASS
from relaydp.result import Trace

NUMBERS = 2**24  # a record and a model give one: as many are held at once, 128 MiB
LITTLE = 2**27  # a record's feature at a point is one: so many take some milliseconds
PASSES_A_POINT = 5  # over the records, that a run makes for each point at which a large trace is measured
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


def affordable(problem: Problem, plan: Plan, noted: int) -> int:
    """At how many of the points that a run has noted to measure it, so that this takes a twentieth of its time or less:
    whole blocks of them, half a block at least. Where all are little work, all.

    Points measured together cost a quarter of an activation's pass each, or less, for as many records.
    """
    trained = problem.data.X.size
    read = trained + (problem.held_out.X.size if problem.classifies else 0)
    if noted * read <= LITTLE:
        return noted
    most = plan.activations * trained // (PASSES_A_POINT * read)
    return min(noted, max(POINTS_A_PASS // 2, most // POINTS_A_PASS * POINTS_A_PASS))


def make_trace(
    problem: Problem,
    plan: Plan,
    x0: np.ndarray,
    at: np.ndarray,
    points: np.ndarray,
    reference: Reference | None,
    most: int | None = None,
) -> Trace:
    """The run at `most` points, evenly spread, the start and the end among them; by default as many as `affordable`."""
    most = affordable(problem, plan, len(at) + 1) if most is None else min(most, len(at) + 1)
    kept = np.linspace(0, len(at), most).round().astype(int)
    xs = np.concatenate([x0[None], points])[kept]
    hops = np.concatenate([[0], at])[kept]
    plf, messages, rho = (column[hops] for column in plan.tally)
    fine = np.isfinite(xs).all(axis=1)
    objective = np.full(len(xs), np.inf)
    block = POINTS_A_PASS // 2 if len(xs) <= POINTS_A_PASS // 2 else POINTS_A_PASS
    objective[fine] = in_blocks(problem.objectives, xs[fine], max(1, min(block, NUMBERS // len(problem.data))))
    accuracy = np.full(len(xs), np.nan)
    if problem.classifies:
        accuracy[fine] = problem.accuracies(xs[fine])
    return Trace(
        hop=hops,
        activations=plf,
        messages=messages,
        vectors=messages * plan.algorithm.vectors_of(plan.facts.dim),
        rho=rho,
        objective=objective,
        relative_error=relative_errors(xs, reference),
        accuracy=accuracy,
    )
