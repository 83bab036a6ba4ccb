"""Graphs drawn at random: Erdos-Renyi, Watts-Strogatz, regular ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relaydp.errors import InputError
from relaydp.graph.graph import Graph, share, whole
from relaydp.graph.topologies import few_enough

# Past this many agents random recipes are drawn here, in whole arrays; below, by networkx, as they always were.
MANY_AGENTS = 20_000
# Random recipes can give a disconnected graph; each try has its own seed, derived from the user's.
TRIES = 100


def _first_connected(name: str, n: int, seed: int, draw: Callable[[int], Any], cure: str) -> Graph:
    """The first connected graph that `draw(derived seed)` gives; the same one each time for the same seed."""
    seed = whole("seed", seed, 0)
    for attempt in range(TRIES):
        derived = int(np.random.SeedSequence([seed, attempt]).generate_state(1)[0])
        pairs = np.asarray(draw(derived))
        if len(pairs) < n - 1:
            continue
        try:
            return Graph(f"{name[:-1]}, seed={seed})", n, pairs)
        except InputError:  # the pairs are edges by construction: only the check of connectivity can fail
            continue
    raise InputError(f"{name} was disconnected in {TRIES} draws from seed={seed}; {cure}, or try another seed.")


def erdos_renyi(n: int, probability: float, seed: int = 0) -> Graph:
    """Draw an Erdos-Renyi graph: each pair of agents is joined with the same probability, independently.

    Graphs are drawn until one is connected, 100 times at most. The same arguments give the same graph.

    Args:
        n: The number of agents, 2 or more.
        probability: The probability of each edge, from 0 to 1. Graphs are connected from about ln(n)/n.
        seed: Whole number of 0 or more that decides the draw. Default 0.

    Returns:
        The first connected `Graph` drawn.

    Raises:
        InputError: If an argument is out of range, about 50,000,000 edges are exceeded, or no draw is connected.

    >>> import relaydp as rd
    >>> rd.erdos_renyi(20, 0.3, seed=1)
    Graph(erdos-renyi(20, 0.3, seed=1): 20 agents, 56 edges)
    """
    n, p = whole("n", n, 2), share("probability", probability)
    name, pairs = f"erdos-renyi({n}, {p:g})", n * (n - 1) // 2
    few_enough(name, p * pairs)
    # A graph of n agents is connected about when p passes ln(n)/n.
    cure = f"raise the probability above ln(n)/n = {np.log(n) / n:.2g}"

    def draw(derived: int) -> np.ndarray:
        if p == 0:
            return np.zeros((0, 2), np.int64)
        # Gaps between joined pairs are geometric: draw those instead of a coin for every pair.
        rng = np.random.default_rng(derived)
        gaps = rng.geometric(p, size=int(p * pairs + 10 * np.sqrt(p * pairs) + 20))  # ten sigma: enough
        chosen = np.cumsum(np.minimum(gaps, pairs + 1)) - 1
        chosen = chosen[chosen < pairs]
        high = ((1 + np.sqrt(1 + 8.0 * chosen)) / 2).astype(np.int64)  # pair k is (k - h(h-1)/2, h)
        high -= high * (high - 1) // 2 > chosen  # a rounded square root is off by one at most
        high += high * (high + 1) // 2 <= chosen
        return np.stack([chosen - high * (high - 1) // 2, high], axis=1)

    return _first_connected(name, n, seed, draw, cure)


def _simple(low: np.ndarray, high: np.ndarray, n: int) -> np.ndarray:
    """Which pairs are edges of a simple graph: no loop, and the first of its kind."""
    code = np.minimum(low, high) * n + np.maximum(low, high)
    first = np.zeros(len(code), bool)
    first[np.unique(code, return_index=True)[1]] = True
    return first & (low != high)


def _rewired(n: int, k: int, chance: float, rng: np.random.Generator) -> np.ndarray:
    """Watts and Strogatz's graph (1998): a ring lattice, where each edge's second end is moved elsewhere with this
    probability."""
    low = np.tile(np.arange(n), k // 2)
    lattice = (low + np.repeat(np.arange(1, k // 2 + 1), n)) % n
    moved = np.flatnonzero(rng.random(len(low)) < chance)
    high = lattice.copy()
    high[moved] = rng.integers(n, size=len(moved))
    order = np.concatenate([np.setdiff1d(np.arange(len(low)), moved, assume_unique=True), moved])  # lattice edges first
    for _ in range(TRIES):
        bad = order[~_simple(low[order], high[order], n)]
        if not bad.size:
            return np.stack([low, high], axis=1)
        high[bad] = rng.integers(n, size=len(bad))
    raise InputError(f"neighbours={k} is too many to rewire among {n} agents; pass fewer.")


def _paired(n: int, degree: int, rng: np.random.Generator) -> np.ndarray:
    """A regular graph by the pairing model (Bollobas 1980): every agent's `degree` ends are joined at random.

    A pair that is not an edge swaps partners with another random pair, until all are edges.
    """
    ends = rng.permutation(np.repeat(np.arange(n), degree)).reshape(-1, 2)
    for _ in range(TRIES):
        bad = np.flatnonzero(~_simple(ends[:, 0], ends[:, 1], n))
        if not bad.size:
            return ends
        # one after the other, because two of them may draw the same partner; there are about degree^2 / 4
        for one, other in zip(bad.tolist(), rng.integers(len(ends), size=len(bad)).tolist(), strict=True):
            ends[[one, other], 1] = ends[[other, one], 1]
    raise InputError(f"degree={degree} is too large to pair {n} agents; pass a smaller one.")


def watts_strogatz(n: int, neighbours: int = 4, rewire: float = 0.1, seed: int = 0) -> Graph:
    """Draw a small world: a ring where each agent is joined to its nearest `neighbours`, some edges rewired at random.

    Graphs are drawn until one is connected, 100 times at most. The same arguments give the same graph.

    Args:
        n: The number of agents, 3 or more.
        neighbours: The neighbours per agent before rewiring: an even number below n, half on either side. Default 4.
        rewire: The probability that an edge is rewired, from 0 to 1. Default 0.1.
        seed: Whole number of 0 or more that decides the draw. Default 0.

    Returns:
        The first connected `Graph` drawn.

    Raises:
        InputError: If an argument is out of range, or no draw is connected.

    >>> import relaydp as rd
    >>> rd.watts_strogatz(20, neighbours=4, rewire=0.1, seed=1)
    Graph(watts-strogatz(20, 4, 0.1, seed=1): 20 agents, 40 edges)
    """
    n, k, chance = whole("n", n, 3), whole("neighbours", neighbours, 2), share("rewire", rewire)
    if k % 2 or k >= n:
        raise InputError(f"neighbours={k} for n={n}; it must be an even number below n: half of them on either side.")
    name, cure = f"watts-strogatz({n}, {k}, {chance:g})", "raise neighbours or lower rewire"

    def draw(derived: int) -> Any:
        if n > MANY_AGENTS:
            return _rewired(n, k, chance, np.random.default_rng(derived))
        import networkx as nx

        return list(nx.watts_strogatz_graph(n, k, chance, seed=derived).edges)

    return _first_connected(name, n, seed, draw, cure)


def random_regular(n: int, degree: int = 3, seed: int = 0) -> Graph:
    """Draw a random graph in which every agent has the same number of neighbours.

    Graphs are drawn until one is connected, 100 times at most. The same arguments give the same graph.

    Args:
        n: The number of agents, 2 or more.
        degree: The number of neighbours per agent, from 1 to n - 1; n * degree must be even. Default 3.
        seed: Whole number of 0 or more that decides the draw. Default 0.

    Returns:
        The first connected `Graph` drawn.

    Raises:
        InputError: If an argument is out of range, or no draw is connected (use a degree of 3 or more).

    >>> import relaydp as rd
    >>> rd.random_regular(10, degree=3, seed=1).degree.tolist()
    [3, 3, 3, 3, 3, 3, 3, 3, 3, 3]
    """
    n, degree = whole("n", n, 2), whole("degree", degree, 1)
    if degree >= n:
        raise InputError(
            f"degree={degree} for n={n}; an agent has {n - 1} others as neighbours at most. Lower degree or raise n."
        )
    if n * degree % 2:
        raise InputError(f"degree={degree} for n={n}; n * degree must be even. Change either by one.")

    def draw(derived: int) -> Any:
        if n > MANY_AGENTS:
            return _paired(n, degree, np.random.default_rng(derived))
        import networkx as nx

        return list(nx.random_regular_graph(degree, n, seed=derived).edges)

    return _first_connected(f"random-regular({n}, {degree})", n, seed, draw, "use degree=3 or more")
