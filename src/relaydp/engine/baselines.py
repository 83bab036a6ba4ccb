"""What an accuracy is measured against: the most frequent class, and a model without privacy."""

from __future__ import annotations

import numpy as np

from relaydp.problem import Problem, Reference
from relaydp.result import Baselines

BLOCK = 2**10  # held-out records scored at a time: the first block nearly always has two answers


def measure_baselines(problem: Problem, x: np.ndarray, best: Reference | None) -> Baselines | None:
    """Measured on the held-out records without noise, as accuracy is; None where there is no accuracy."""
    if not problem.classifies or not np.isfinite(x).all():
        return None
    counts = np.unique(problem.encode_labels(problem.held_out.y), return_counts=True)[1]
    return Baselines(
        majority=float(counts.max() / counts.sum()),
        without_privacy=None if best is None else problem.accuracy(best.x),
        answers=_only_answer(problem, x),
    )


def _only_answer(problem: Problem, x: np.ndarray) -> str | None:
    """The class that the model answers for every held-out record; None where it answers more than one."""
    if problem.classes is None:
        return None
    X, found = problem.held_out.X, None
    for at in range(0, len(X), BLOCK):
        given = np.unique(problem.predict(x, X[at : at + BLOCK]))
        if len(given) > 1 or (found is not None and given[0] != found):
            return None
        found = given[0]
    return str(found)
