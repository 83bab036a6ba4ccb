"""Walks of the baton: random walks drawn hop by hop, and closed tours planned in advance.

    random           to each neighbour with probability 1/d_i: P = I - D^-1 L, the paper's walk
    lazy             stays with probability 1/2, else as random
    nonbacktracking  as random, but never straight back, unless there is no other neighbour
    cyclic           along a Hamiltonian cycle: every agent once per lap
    tour             along a short closed walk that visits every agent, on any connected graph

No walk uses data, so the sequence of holders reveals nothing but public random numbers to an eavesdropper.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Iterator

import numpy as np
from scipy.sparse import csgraph

from relaydp.errors import InputError
from relaydp.graph.graph import Graph

RANDOM_WALKS = ("random", "lazy", "nonbacktracking")
WALKS = (*RANDOM_WALKS, "cyclic", "tour")

# The searches below store agents x agents distances or permute whole paths; larger graphs use the O(n) tour.
MOST_AGENTS_SEARCHED = 2000
# Budgets of the Hamiltonian search, in agents moved within the path: about 2 s when the user asks for a
# cycle, a tenth of that when a tour is asked for, where a cycle is only the best case.
PATIENT, HASTY = 60_000_000, 6_000_000

# A stepper turns uniforms in [0, 1) into the agents visited, given the baton's holder and the one before.
Stepper = Callable[[list[float], int, int], list[int]]


def stepper(graph: Graph, walk: str) -> Stepper:
    """The hops of a random walk: `(uniforms, at, before) -> next holders`, one per uniform, O(1) each.

    `before` is the agent that `at` had the baton from, or -1 at the start; only nonbacktracking uses it.
    Plain lists, because indexing a NumPy array for one number costs ten times as much.
    """
    flat, first, degree = graph.flat.tolist(), graph.first.tolist(), graph.degree.tolist()

    def go_random(uniforms: list[float], at: int, before: int) -> list[int]:
        visits = []
        for u in uniforms:
            at = flat[first[at] + int(u * degree[at])]
            visits.append(at)
        return visits

    def go_lazy(uniforms: list[float], at: int, before: int) -> list[int]:
        visits = []
        for u in uniforms:
            if u >= 0.5:  # then 2u - 1 is uniform again
                at = flat[first[at] + int((2.0 * u - 1.0) * degree[at])]
            visits.append(at)
        return visits

    def go_nonbacktracking(uniforms: list[float], at: int, before: int) -> list[int]:
        visits = []
        for u in uniforms:
            start, d = first[at], degree[at]
            if before < 0 or d == 1:
                to = flat[start + int(u * d)]
            else:  # one of the first d - 1 neighbours; the last replaces the one it came from
                to = flat[start + int(u * (d - 1))]
                if to == before:
                    to = flat[start + d - 1]
            before, at = at, to
            visits.append(at)
        return visits

    return {"random": go_random, "lazy": go_lazy, "nonbacktracking": go_nonbacktracking}[walk]


def _is_cycle(graph: Graph, order: np.ndarray) -> bool:
    return bool(graph.has_edges(order, np.roll(order, -1)).all())


def _turning(rows: int, columns: int) -> np.ndarray:
    """A torus, row after row: each starts a column left or right of the last, and the shifts cancel.

    With an odd number of rows they cancel only by one turn through all columns, whose number must then be odd and at
    most that of the rows; other shapes give an order that is not a cycle, and are found column by column.
    """
    rights = rows // 2 if rows % 2 == 0 else (rows + columns) // 2
    sign = np.where(np.arange(rows) < rights, 1, -1)
    begin = np.concatenate([[0], np.cumsum(sign)[:-1]])
    # A row that begins at b and runs leftwards ends at b + 1, where the next one begins, and vice versa.
    column = (begin[:, None] - sign[:, None] * np.arange(columns)) % columns
    return (np.arange(rows)[:, None] * columns + column).ravel()


def _comb(rows: int, columns: int) -> np.ndarray:
    """A grid with an even number of rows: down in a zigzag through all columns but the first, and back up in that
    one."""
    at = np.arange(rows * columns).reshape(rows, columns)
    snake = at[:, 1:].copy()
    snake[1::2] = snake[1::2, ::-1]
    return np.concatenate([snake.ravel(), at[::-1, 0]])


def _known_orders(graph: Graph) -> Iterator[np.ndarray]:
    """Orders that are Hamiltonian cycles of well-known graphs as we number them. Each is checked before use."""
    n = graph.agents
    yield np.arange(n)  # ring, complete
    if n & (n - 1) == 0:
        yield np.arange(n) ^ (np.arange(n) >> 1)  # hypercube: the Gray code
    for columns in graph.neighbours(0).tolist():  # agent 0 of a lattice is above agent `columns`
        rows = n // columns
        if rows * columns == n and min(rows, columns) > 1:
            yield _turning(rows, columns)
            yield _comb(rows, columns)
            upright = np.arange(n).reshape(rows, columns).T.ravel()  # the same lattice, column by column
            yield upright[_turning(columns, rows)]
            yield upright[_comb(columns, rows)]


def _has_none(graph: Graph) -> bool:
    """Whether an agent with one neighbour, or a bipartition with unequal sides, excludes a cycle."""
    if graph.agents > 2 and graph.degree.min() < 2:
        return True
    order, come_from = csgraph.breadth_first_order(graph.adjacency(), 0, directed=False)
    parent = come_from.tolist()
    side = [0] * graph.agents
    for agent in order[1:].tolist():
        side[agent] = 1 - side[parent[agent]]
    sides = np.array(side)
    two_sided = bool((sides[graph.edges[:, 0]] != sides[graph.edges[:, 1]]).all())
    return two_sided and 2 * int(sides.sum()) != graph.agents


def _rotate_until_closed(graph: Graph, budget: int) -> np.ndarray | None:
    """Posa's search (1976): extend a path; if it cannot be extended, reverse its tail and continue from there."""
    n, rng = graph.agents, random.Random(0)  # a fixed seed: the cycle depends on the graph only
    around = [graph.neighbours(i).tolist() for i in range(n)]
    budget = min(budget, 100_000 * n)  # less time for a small graph without a cycle
    patience = int(20 * n * (1 + math.log(n)))  # rotations before a fresh start
    while budget > 0:
        path = [rng.randrange(n)]
        place = [-1] * n  # each agent's place in the path
        place[path[0]] = 0
        for _ in range(patience):
            end = path[-1]
            fresh = [i for i in around[end] if place[i] < 0]
            if fresh:  # prefer the agent with the fewest free neighbours
                path.append(min(fresh, key=lambda i: (len(around[i]), rng.random())))
                place[path[-1]] = len(path) - 1
                continue
            if len(path) == n and path[0] in around[end]:
                return np.array(path)
            pivot = place[rng.choice(around[end])]
            path[pivot + 1 :] = path[:pivot:-1]
            for k in range(pivot + 1, len(path)):
                place[path[k]] = k
            budget -= len(path) - pivot + 20
            if budget <= 0:
                break
    return None


def find_cycle(graph: Graph, budget: int = PATIENT) -> np.ndarray | None:
    """A Hamiltonian cycle as the order of the agents, or None if none is found within the budget."""
    n = graph.agents
    if graph.degree.max() == 2 and graph.degree.min() == 2:  # a ring with any numbering
        return np.array(stepper(graph, "nonbacktracking")([0.0] * n, 0, -1))
    if _has_none(graph):
        return None
    for order in _known_orders(graph):
        if _is_cycle(graph, order):
            return order
    return _rotate_until_closed(graph, budget) if n <= MOST_AGENTS_SEARCHED else None


@functools.lru_cache(maxsize=8)  # one search for many runs over one graph
def cycle(graph: Graph) -> np.ndarray:
    """A Hamiltonian cycle: every agent once, each a neighbour of the next and the last of the first."""
    order = find_cycle(graph)
    if order is None:
        raise InputError(
            f"walk='cyclic' needs a Hamiltonian cycle, and graph {graph.name} has none that could be found; use "
            "walk='tour', which visits every agent on any connected graph."
        )
    return order


def _doubled_tree(graph: Graph) -> list[int]:
    """Depth first through the graph and back: 2 (n - 1) hops, each edge of a spanning tree twice. O(n)."""
    flat, following, last = graph.flat.tolist(), graph.first[:-1].tolist(), graph.first[1:].tolist()
    parent = [-1] * graph.agents
    parent[0] = 0
    at, walk = 0, [0]
    while True:
        k = following[at]
        while k < last[at] and parent[flat[k]] >= 0:
            k += 1
        following[at] = k
        if k < last[at]:
            parent[flat[k]] = at
            at = flat[k]
        elif at == 0:
            return walk[:-1]  # closed: the last hop leads back to the first agent
        else:
            at = parent[at]
        walk.append(at)


def _nearest_first(far: np.ndarray, start: int) -> np.ndarray:
    """An order that always goes to the nearest agent not yet visited."""
    left, order = far.astype(float), [start]
    left[:, start] = np.inf
    for _ in range(len(far) - 1):
        order.append(int(left[order[-1]].argmin()))
        left[:, order[-1]] = np.inf
    return np.array(order)


def _two_opt(order: np.ndarray, far: np.ndarray, sweeps: int = 40) -> np.ndarray:
    """Reverse parts of the order while that shortens it: 2-opt, with the best reversal for each starting agent."""
    n = len(order)
    for _ in range(sweeps):
        better = False
        for i in range(n - 2):
            ahead = np.arange(i + 2, n)
            a, b, c, d = order[i], order[i + 1], order[ahead], order[(ahead + 1) % n]
            gain = far[a, b] + far[c, d] - far[a, c] - far[b, d]
            best = int(gain.argmax())
            if gain[best] > 0:
                order[i + 1 : ahead[best] + 1] = order[i + 1 : ahead[best] + 1][::-1].copy()
                better = True
        if not better:
            break
    return order


@functools.lru_cache(maxsize=8)
def tour(graph: Graph) -> np.ndarray:
    """A short closed walk that visits every agent: 2 (n - 1) hops at most, n if a cycle is easily found.

    Optimal on trees, where each edge must be crossed twice. Up to 2000 agents, the best of a few orders
    (depth first; nearest first), improved by 2-opt over shortest-path lengths; above, depth first and back.
    """
    doubled = _doubled_tree(graph)
    if len(graph.edges) == graph.agents - 1:
        return np.array(doubled)
    order = find_cycle(graph, HASTY)
    if order is not None or graph.agents > MOST_AGENTS_SEARCHED:
        return np.array(doubled) if order is None else order

    far = csgraph.shortest_path(graph.adjacency(), method="D", unweighted=True).astype(np.int32)
    depth_first = np.array(list(dict.fromkeys(doubled)))  # leaving out repeats can only shorten it
    starts = range(graph.agents) if graph.agents <= 40 else (0,)  # all of them, if there are few
    orders = [_two_opt(each, far) for each in (depth_first, *(_nearest_first(far, i) for i in starts))]
    order = min(orders, key=lambda each: far[each, np.roll(each, -1)].sum())
    walk = []
    for at, to in zip(order.tolist(), np.roll(order, -1).tolist(), strict=True):
        while at != to:
            walk.append(at)
            around = graph.neighbours(at)
            at = int(around[far[around, to].argmin()])
    return np.array(walk)
