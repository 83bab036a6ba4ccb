"""The graph of agents that can pass the baton to each other: undirected, connected, stored by its edges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from relaydp.errors import InputError

if TYPE_CHECKING:
    import networkx

# The paper's formula for the stationary law needs a dense agents x agents solve: 200 MB at this size.
MOST_AGENTS_DENSE = 5000
# Far beyond any network; refuses a wrong number in a file before it needs terabytes.
MOST_AGENTS = 100_000_000


def whole(name: str, value: Any, least: int) -> int:
    """The value as an int, or an error that names it."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InputError(f"{name}={value!r}; it must be a whole number, at least {least}.")
    return int(value)


def share(name: str, value: Any) -> float:
    """The value as a probability, or an error that names it."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0 <= value <= 1:
        raise InputError(f"{name}={value!r}; it must be a probability, a number between 0 and 1.")
    return float(value)


def _checked_pairs(edges: Any, agents: int) -> np.ndarray:
    """The pairs as int64 (E, 2), or an error that names the first pair that cannot be an edge."""
    pairs = np.asarray(edges)
    if pairs.size == 0:
        pairs = np.zeros((0, 2), np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise InputError(f"edges have shape {pairs.shape}; it must be (edges, 2), one pair of agents per row.")
    if pairs.dtype.kind not in "iu":
        raise InputError(
            f"edges have type {pairs.dtype}; they must be whole numbers. Number the agents 0..{agents - 1}."
        )
    outside = (pairs < 0) | (pairs >= agents)
    if outside.any():
        i, j = pairs[outside.any(axis=1)][0]
        raise InputError(
            f"edge ({i}, {j}) has an agent outside 0..{agents - 1}; agents are numbered from 0. Renumber them, or pass "
            f"agents={pairs.max() + 1}."
        )
    loops = pairs[:, 0] == pairs[:, 1]
    if loops.any():
        i = pairs[loops][0, 0]
        raise InputError(
            f"edge ({i}, {i}) joins agent {i} to itself; an edge joins two different agents. Remove it (walk='lazy' "
            "lets the baton stay where it is)."
        )
    return pairs.astype(np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """A connected undirected graph over the agents 0..n-1; neighbours can pass the baton to each other.

    Two graphs are equal when their agents and edges are. Everything is sparse: a ring of a million agents takes tens of
    megabytes. Nothing here uses data.

    Args:
        name: The graph's name in messages and results.
        agents: The number of agents, from 1 to 100,000,000.
        edges: Whole numbers of shape (E, 2): one pair of agents per row, in any order, direction and multiplicity.

    Attributes:
        name: As given.
        agents: As given.
        edges: Shape (E, 2), with i < j in each row, sorted, each edge once, read-only.
        degree: Shape (agents,), the number of neighbours of each agent, read-only.
        first: Shape (agents + 1,); agent i's neighbours are flat[first[i] : first[i + 1]].
        flat: Shape (2 E,), the neighbours of all agents, agent after agent, in increasing order.

    Raises:
        InputError: If the number of agents is out of range, an edge names an agent outside 0..n-1 or joins an agent to
            itself, the edges have another shape or type, or the graph is disconnected.

    >>> import relaydp as rd
    >>> graph = rd.Graph("triangle", 3, [[0, 1], [2, 1], [0, 2]])
    >>> graph
    Graph(triangle: 3 agents, 3 edges)
    >>> graph.neighbours(1).tolist(), graph.has_edge(2, 0)
    ([0, 2], True)
    """

    name: str
    agents: int
    edges: np.ndarray
    degree: np.ndarray = field(init=False)
    # Compressed rows: agent i's neighbours are flat[first[i] : first[i + 1]], in increasing order.
    first: np.ndarray = field(init=False)
    flat: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        n = whole("agents", self.agents, 1)
        if n > MOST_AGENTS:
            raise InputError(f"agents={n}; it must be at most {MOST_AGENTS}. Look for a wrong number in the edges.")
        pairs = _checked_pairs(self.edges, n)
        low, high = pairs.min(axis=1), pairs.max(axis=1)
        code = np.unique(low * n + high)  # one number per edge: sorts and merges duplicates at once
        low, high = code // n, code % n

        both = np.sort(np.concatenate([code, high * n + low]))  # each edge seen from both ends, by row
        degree = np.bincount(both // n, minlength=n)
        arrays = {
            "edges": np.stack([low, high], axis=1),
            "degree": degree,
            "first": np.concatenate([[0], np.cumsum(degree)]),
            "flat": both % n,
        }
        object.__setattr__(self, "agents", n)
        for name, array in arrays.items():
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        self._check_connected()

    def _check_connected(self) -> None:
        components, label = csgraph.connected_components(self.adjacency(), directed=False)
        if components == 1:
            return
        _, members = np.unique(label, return_index=True)  # the lowest-numbered agent of each component
        shown = ", ".join(str(agent) for agent in members[:5]) + (", ..." if components > 5 else "")
        raise InputError(
            f"graph {self.name} is disconnected: {components} components (one agent of each: {shown}); a graph must be "
            "connected for the baton to reach every agent. Add edges between those agents, or run each component on "
            "its own."
        )

    def _agent(self, i: int) -> int:
        if not 0 <= i < self.agents:
            raise InputError(f"agent {i} is not in graph {self.name}; it must be a number in 0..{self.agents - 1}.")
        return int(i)

    def neighbours(self, i: int) -> np.ndarray:
        """The agents that agent i can pass the baton to, in increasing order."""
        i = self._agent(i)
        return self.flat[self.first[i] : self.first[i + 1]]

    def has_edge(self, i: int, j: int) -> bool:
        """Whether agents i and j are neighbours. No agent is its own neighbour."""
        around, j = self.neighbours(i), self._agent(j)
        place = int(np.searchsorted(around, j))
        return place < len(around) and int(around[place]) == j

    def has_edges(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """`has_edge` for many pairs at once: one bool per pair."""
        i, j = np.asarray(i, np.int64), np.asarray(j, np.int64)
        code = self.edges[:, 0] * self.agents + self.edges[:, 1]
        wanted = np.minimum(i, j) * self.agents + np.maximum(i, j)
        place = np.minimum(np.searchsorted(code, wanted), len(code) - 1)
        return code[place] == wanted

    def adjacency(self) -> sparse.csr_array:
        """A, with A[i, j] = 1 on each edge."""
        ones = np.ones(len(self.flat))
        return sparse.csr_array((ones, self.flat, self.first), shape=(self.agents, self.agents))

    def laplacian(self) -> sparse.csr_array:
        """L = D - A, with D the degrees on the diagonal."""
        return sparse.csr_array(sparse.diags_array(self.degree.astype(float)) - self.adjacency())

    def transition(self) -> sparse.csr_array:
        """P = I - D^-1 L: the holder i passes the baton to each neighbour with probability 1/d_i."""
        chances = np.repeat(1.0 / self.degree, self.degree)
        return sparse.csr_array((chances, self.flat, self.first), shape=(self.agents, self.agents))

    def stationary(self) -> np.ndarray:
        """g = d / sum(d): the share of the hops each agent holds the baton for, in a long random walk.

        >>> import relaydp as rd
        >>> rd.star(4).stationary().round(3).tolist()
        [0.5, 0.167, 0.167, 0.167]
        """
        return self.degree / self.degree.sum()

    def stationary_of_paper(self) -> np.ndarray:
        """g = (D^-1 L^2 D^-1 + 1 1^T)^-1 1, as lemma 1 of the paper writes it.

        The same vector as `stationary`: L D^-1 d = L 1 = 0 and 1^T d = sum(d), so d / sum(d) solves it.
        """
        if self.agents > MOST_AGENTS_DENSE:
            raise InputError(
                f"stationary_of_paper solves a dense {self.agents} x {self.agents} system, and takes at most "
                f"{MOST_AGENTS_DENSE} agents. Use stationary(), which is the same vector."
            )
        scaled = self.laplacian().toarray() / self.degree  # L D^-1
        return np.linalg.solve(scaled.T @ scaled + 1.0, np.ones(self.agents))

    def relabel(self, permutation: Any) -> Graph:
        """The same graph with agent i renamed permutation[i].

        >>> import relaydp as rd
        >>> rd.path(3).relabel([1, 0, 2]).edges.tolist()
        [[0, 1], [0, 2]]
        """
        new = np.asarray(permutation)
        if new.shape != (self.agents,) or not np.array_equal(np.sort(new), np.arange(self.agents)):
            raise InputError(
                f"permutation has shape {new.shape} or repeats an agent; it must have each of 0..{self.agents - 1} "
                "once."
            )
        return Graph(f"{self.name} relabelled", self.agents, new.astype(np.int64)[self.edges])

    def to_networkx(self) -> networkx.Graph:
        """The graph as a networkx graph, with the agents 0..n-1 as nodes."""
        import networkx as nx

        graph = nx.Graph(name=self.name)
        graph.add_nodes_from(range(self.agents))
        graph.add_edges_from(self.edges.tolist())
        return graph

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        return self.agents == other.agents and np.array_equal(self.edges, other.edges)

    def __hash__(self) -> int:
        return hash((self.agents, self.edges.tobytes()))

    def __repr__(self) -> str:
        return f"Graph({self.name}: {self.agents} agents, {len(self.edges)} edges)"
