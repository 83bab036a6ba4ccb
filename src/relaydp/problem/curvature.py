"""The curvature of each agent's loss, measured on its records: L_i for runs without a guarantee, rounded up."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np
from scipy.linalg import eigh

from relaydp.problem.agent_records import AgentRecords

MANY_AGENTS, LARGE_SIDE = 2000, 4096  # past these, L_i from the longest record's norm: an upper bound, and one pass


def features_by_agent(agent_records: AgentRecords) -> Iterator[np.ndarray]:
    """Each agent's features, the intercept's column of ones included."""
    here: AgentRecords = jax.tree.map(
        np.asarray, agent_records
    )  # to take rows apart in JAX is a program for every number of them
    for start, size in zip(here.start.tolist(), here.size.tolist(), strict=True):
        rows = slice(start, start + size)
        A = np.asarray(here._features(here.X[rows], here.shrink[rows]))
        yield np.column_stack([A, np.ones(size)]) if agent_records.intercept else A


def _rounding(terms: int) -> float:
    """What rounding may take from a sum of `terms` squares or products, relative to the sum of their sizes.

    With the unit u = eps/2 a sum of k rounded products is off by k u / (1 - k u) at most, in whatever order a processor
    adds it up; a dozen u more for scaling the features, roots and the last division. Less than k eps while k < 1/eps.
    """
    return (terms + 12) * float(np.finfo(np.float64).eps)


def longest_curvatures(agent_records: AgentRecords) -> np.ndarray:
    """The square of each agent's longest record, rounded up: lambda_max(A_i'A_i / m_i) is no larger."""
    starts, sizes, norms = (
        np.asarray(agent_records.start),
        np.asarray(agent_records.size),
        np.asarray(agent_records.norm),
    )
    return np.maximum.reduceat(norms[: sizes.sum()] ** 2, starts) * (1.0 + _rounding(agent_records.X.shape[1]))


def largest_curvatures(agent_records: AgentRecords) -> np.ndarray:
    """lambda_max(A_i'A_i / m_i) for every agent, the intercept's column of ones included; rounded up, never down.

    Steps rest on L_i from above. The product's error has norm rounding(k) ||A||_F^2 at most, k the length of its sums
    and ||A||_F^2 its trace; the eigenvalue's own is a small multiple of u, and side * eps by a wide margin.
    """
    bounds = longest_curvatures(agent_records)
    if len(bounds) > MANY_AGENTS:
        return bounds
    for i, A in enumerate(features_by_agent(agent_records)):
        side, inner = min(A.shape), max(A.shape)
        if side <= LARGE_SIDE:
            gram = A @ A.T if side == A.shape[0] else A.T @ A
            top = eigh(gram, eigvals_only=True, subset_by_index=[side - 1, side - 1])[0]
            bounds[i] = (top * (1.0 + _rounding(side)) + _rounding(inner) * np.trace(gram)) / len(A)
    return bounds
