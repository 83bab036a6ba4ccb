"""A graph as arrays, for synchronous and edge-based algorithms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from relaydp.errors import InputError
from relaydp.graph.graph import Graph

DENSE = 5000  # the largest number of agents for an n x n matrix


class Network(NamedTuple):
    """Each part is made only for algorithms that ask for it; the rest is None.

    mixing      (agents, agents)  Metropolis weights W_ij = 1/(1 + max(d_i, d_j)), rows summing to 1
    laplacian   (agents, agents)  D - A
    degree      (agents,)
    neighbours  (agents, slots)   agent i's neighbours, filled up with i itself
    real        (agents, slots)   whether a slot is a neighbour
    back        (agents, slots)   the slot of agent i at that neighbour
    """

    mixing: Any = None
    laplacian: Any = None
    degree: Any = None
    neighbours: Any = None
    real: Any = None
    back: Any = None


def metropolis(graph: Graph) -> np.ndarray:
    """W_ij = 1/(1 + max(d_i, d_j)) on edges, and the rest of 1 on the diagonal: symmetric, doubly stochastic."""
    i, j = graph.edges.T
    W = np.zeros((graph.agents, graph.agents))
    W[i, j] = W[j, i] = 1.0 / (1.0 + np.maximum(graph.degree[i], graph.degree[j]))
    W[np.diag_indices(graph.agents)] = 1.0 - W.sum(axis=1)
    return W


def _slots(graph: Graph) -> dict[str, np.ndarray]:
    most = int(graph.degree.max())
    own = np.arange(graph.agents)
    neighbours = np.tile(own[:, None], (1, most)).astype(np.int32)
    real = np.arange(most)[None, :] < graph.degree[:, None]
    neighbours[real] = graph.flat
    # Edge k of the compressed rows goes from row[k] to flat[k]. Sorted by (flat, row) they are in the order of their
    # reverses, because the adjacency matrix is symmetric. So the sort gives the place of each reverse edge.
    row = np.repeat(own, graph.degree)
    way_back = np.lexsort((row, graph.flat))
    back = np.zeros(real.shape, np.int32)
    back[real] = way_back - graph.first[graph.flat]
    return {"neighbours": neighbours, "real": real, "back": back}


def check_size(graph: Graph, needs: Iterable[str]) -> None:
    """Refuse a graph whose n x n matrices would not fit."""
    if {"mixing", "laplacian"} & set(needs) and graph.agents > DENSE:
        raise InputError(
            f"{graph.name} has {graph.agents} agents; synchronous algorithms allow at most {DENSE}. Use recal."
        )


def network_of(graph: Graph, needs: Iterable[str]) -> Network:
    """The parts of the network that an algorithm needs."""
    wanted = set(needs)
    check_size(graph, wanted)
    parts: dict[str, Any] = {}
    if "mixing" in wanted:
        parts["mixing"] = metropolis(graph)
    if "laplacian" in wanted:
        parts["laplacian"] = np.asarray(graph.laplacian().toarray(), dtype=np.float64)
    if "degree" in wanted:
        parts["degree"] = graph.degree.astype(np.float64)
    if wanted & {"neighbours", "real", "back"}:
        parts |= _slots(graph)
    return Network(**parts)
