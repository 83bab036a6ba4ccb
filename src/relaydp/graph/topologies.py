"""Graphs by recipe: ring, path, star, complete graph, grid, torus, hypercube."""

from __future__ import annotations

import numpy as np

from relaydp.errors import InputError
from relaydp.graph.graph import Graph, whole

# Above this an edge array alone passes a gigabyte; a denser graph than this is hardly a network.
MOST_EDGES = 50_000_000


def few_enough(name: str, edges: float) -> None:
    if edges > MOST_EDGES:
        raise InputError(f"{name} would have about {edges:.3g} edges; the limit is {MOST_EDGES}. Use a sparser graph.")


def _line(n: int) -> np.ndarray:
    """Edges 0-1, 1-2, ..., (n-2)-(n-1)."""
    return np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)


def ring(n: int) -> Graph:
    """Make a ring: each agent has two neighbours, in a circle. ring(2) is one edge.

    Args:
        n: The number of agents, 2 or more.

    Returns:
        The `Graph`, with edges 0-1, 1-2, ..., (n-1)-0.

    Raises:
        InputError: If `n` is not a whole number of 2 or more.

    >>> import relaydp as rd
    >>> rd.ring(4).edges.tolist()
    [[0, 1], [0, 3], [1, 2], [2, 3]]
    """
    n = whole("n", n, 2)
    return Graph(f"ring({n})", n, np.concatenate([_line(n), [[0, n - 1]]]))


def path(n: int) -> Graph:
    """Make a path: a ring with one edge cut.

    Args:
        n: The number of agents, 2 or more.

    Returns:
        The `Graph`, with edges 0-1, 1-2, ..., (n-2)-(n-1).

    Raises:
        InputError: If `n` is not a whole number of 2 or more.

    >>> import relaydp as rd
    >>> rd.path(4).edges.tolist()
    [[0, 1], [1, 2], [2, 3]]
    """
    n = whole("n", n, 2)
    return Graph(f"path({n})", n, _line(n))


def star(n: int) -> Graph:
    """Make a star: agent 0 is the hub, joined to every other agent.

    Args:
        n: The number of agents, the hub included, 2 or more.

    Returns:
        The `Graph`, with n - 1 edges.

    Raises:
        InputError: If `n` is not a whole number of 2 or more.

    >>> import relaydp as rd
    >>> rd.star(4).edges.tolist()
    [[0, 1], [0, 2], [0, 3]]
    """
    n = whole("n", n, 2)
    return Graph(f"star({n})", n, np.stack([np.zeros(n - 1, np.int64), np.arange(1, n)], axis=1))


def complete(n: int) -> Graph:
    """Make a complete graph: every agent is joined to every other.

    Args:
        n: The number of agents, 1 or more.

    Returns:
        The `Graph`, with n (n - 1) / 2 edges.

    Raises:
        InputError: If `n` is not a whole number of 1 or more, or there would be more than 50,000,000 edges.

    >>> import relaydp as rd
    >>> rd.complete(4)
    Graph(complete(4): 4 agents, 6 edges)
    """
    n = whole("n", n, 1)
    few_enough(f"complete({n})", n * (n - 1) / 2)
    return Graph(f"complete({n})", n, np.stack(np.triu_indices(n, 1), axis=1))


def lattice(name: str, rows: int, columns: int, wraps: bool) -> Graph:
    rows, columns = whole("rows", rows, 1), whole("columns", columns, 1)
    n = rows * columns
    few_enough(f"{name}({rows}x{columns})", 2 * n)
    at = np.arange(n).reshape(rows, columns)  # agent row * columns + column is at (row, column)
    joined = [(at[:, :-1], at[:, 1:]), (at[:-1], at[1:])]
    if wraps:  # a side of length 1 would wrap onto itself
        joined += [(at[:, -1], at[:, 0])] * (columns > 1) + [(at[-1], at[0])] * (rows > 1)
    pairs = [np.stack([one.ravel(), other.ravel()], axis=1) for one, other in joined]
    return Graph(f"{name}({rows}x{columns})", n, np.concatenate(pairs))


def grid(rows: int, columns: int) -> Graph:
    """Make a rectangular grid: neighbours are above, below, left and right.

    Agents are numbered row by row: agent row * columns + column is at (row, column).

    Args:
        rows: The number of rows, 1 or more.
        columns: The number of columns, 1 or more.

    Returns:
        The `Graph`, of rows * columns agents.

    Raises:
        InputError: If a side is not a whole number of 1 or more, there are fewer than 2 agents, or there would be more
            than about 50,000,000 edges.

    >>> import relaydp as rd
    >>> rd.grid(2, 3)
    Graph(grid(2x3): 6 agents, 7 edges)
    """
    return lattice("grid", rows, columns, wraps=False)


def torus(rows: int, columns: int) -> Graph:
    """Make a torus: a grid whose opposite sides are joined.

    Agents are numbered row by row, as in `grid`.

    Args:
        rows: The number of rows, 1 or more.
        columns: The number of columns, 1 or more.

    Returns:
        The `Graph`, of rows * columns agents; each has four neighbours where both sides are 3 or more.

    Raises:
        InputError: If a side is not a whole number of 1 or more, there are fewer than 2 agents, or there would be more
            than about 50,000,000 edges.

    >>> import relaydp as rd
    >>> rd.torus(3, 4)
    Graph(torus(3x4): 12 agents, 24 edges)
    """
    return lattice("torus", rows, columns, wraps=True)


def hypercube(dimension: int) -> Graph:
    """Make a hypercube of 2^dimension agents; neighbours differ in one binary digit of their number.

    Args:
        dimension: The number of binary digits, 1 or more; also the number of neighbours of each agent.

    Returns:
        The `Graph`.

    Raises:
        InputError: If `dimension` is not a whole number of 1 or more, or there would be more than 50,000,000 edges.

    >>> import relaydp as rd
    >>> rd.hypercube(3)
    Graph(hypercube(3): 8 agents, 12 edges)
    """
    dimension = whole("dimension", dimension, 1)
    few_enough(f"hypercube({dimension})", dimension * 2.0 ** (dimension - 1))
    agents = np.arange(2**dimension)
    pairs = [np.stack([agents, agents ^ (1 << bit)], axis=1) for bit in range(dimension)]
    return Graph(f"hypercube({dimension})", 2**dimension, np.concatenate(pairs))
