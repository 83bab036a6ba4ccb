"""Graphs by name, by recipe, from networkx and from files."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from relaydp.errors import InputError, choose
from relaydp.graph.graph import Graph, share, whole

if TYPE_CHECKING:
    import networkx

# Above this an edge array alone passes a gigabyte; a denser graph than this is hardly a network.
MOST_EDGES = 50_000_000
# Past this many agents random recipes are drawn here, in whole arrays; below, by networkx, as they always were.
MANY_AGENTS = 20_000
# Random recipes can give a disconnected graph; each try has its own seed, derived from the user's.
TRIES = 100


def _few_enough(name: str, edges: float) -> None:
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
        n: The number of agents, 2 or more.

    Returns:
        The `Graph`, with n (n - 1) / 2 edges.

    Raises:
        InputError: If `n` is not a whole number of 2 or more, or there would be more than 50,000,000 edges.

    >>> import relaydp as rd
    >>> rd.complete(4)
    Graph(complete(4): 4 agents, 6 edges)
    """
    n = whole("n", n, 2)
    _few_enough(f"complete({n})", n * (n - 1) / 2)
    return Graph(f"complete({n})", n, np.stack(np.triu_indices(n, 1), axis=1))


def _lattice(name: str, rows: int, columns: int, wraps: bool) -> Graph:
    rows, columns = whole("rows", rows, 1), whole("columns", columns, 1)
    n = rows * columns
    _few_enough(f"{name}({rows}x{columns})", 2 * n)
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
    return _lattice("grid", rows, columns, wraps=False)


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
    return _lattice("torus", rows, columns, wraps=True)


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
    _few_enough(f"hypercube({dimension})", dimension * 2.0 ** (dimension - 1))
    agents = np.arange(2**dimension)
    pairs = [np.stack([agents, agents ^ (1 << bit)], axis=1) for bit in range(dimension)]
    return Graph(f"hypercube({dimension})", 2**dimension, np.concatenate(pairs))


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
    _few_enough(name, p * pairs)
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
    if degree >= n or n * degree % 2:
        raise InputError(
            f"degree={degree} for n={n}; degree must be less than n, and n * degree even. Change either by one."
        )

    def draw(derived: int) -> Any:
        if n > MANY_AGENTS:
            return _paired(n, degree, np.random.default_rng(derived))
        import networkx as nx

        return list(nx.random_regular_graph(degree, n, seed=derived).edges)

    return _first_connected(f"random-regular({n}, {degree})", n, seed, draw, "use degree=3 or more")


def from_networkx(g: networkx.Graph, name: str | None = None) -> Graph:
    """Convert a networkx graph.

    Nodes numbered 0..n-1, even as text, keep their numbers; others are numbered in networkx's order.

    Args:
        g: An undirected, connected `networkx.Graph`.
        name: The graph's name. Default: its own name, or "networkx(n)".

    Returns:
        The `Graph`.

    Raises:
        InputError: If the graph is directed, disconnected, has fewer than 2 nodes, or joins a node to itself.

    >>> import networkx
    >>> import relaydp as rd
    >>> rd.from_networkx(networkx.petersen_graph())
    Graph(Petersen Graph: 10 agents, 15 edges)
    """
    if g.is_directed():
        raise InputError("the graph is directed, and batons pass in both directions. Pass g.to_undirected().")
    nodes = list(g.nodes)
    number = {node: place for place, node in enumerate(nodes)}
    if {str(node) for node in nodes} == {str(i) for i in range(len(nodes))}:
        number = {node: int(node) for node in nodes}
    pairs = np.array([(number[a], number[b]) for a, b in g.edges()], np.int64).reshape(-1, 2)
    return Graph(name or str(g.graph.get("name") or f"networkx({len(nodes)})"), len(nodes), pairs)


def from_edges(edges: Iterable[Any], agents: int | None = None, name: str | None = None) -> Graph:
    """Make a graph from pairs of agents, numbered from 0.

    Args:
        edges: Pairs of whole numbers, or an array of shape (E, 2), in any order and direction.
        agents: The number of agents. Default: the highest number plus one.
        name: The graph's name. Default "edges(n)".

    Returns:
        The `Graph`.

    Raises:
        InputError: If the agents are numbered from 1, an edge is not a pair of two different agents in range, or the
            graph is disconnected.

    >>> import relaydp as rd
    >>> rd.from_edges([(0, 1), (1, 2)])
    Graph(edges(3): 3 agents, 2 edges)
    """
    pairs = np.asarray(edges if isinstance(edges, np.ndarray) else list(edges))
    numbered = pairs.size > 0 and pairs.dtype.kind in "iu"
    if numbered and pairs.min() == 1 and agents in (None, int(pairs.max())):
        raise InputError("the edges number the agents from 1; they must be numbered from 0. Subtract 1 from each.")
    count = agents if agents is not None else int(pairs.max()) + 1 if numbered else 2
    return Graph(name or f"edges({count})", count, pairs)


def _read_edge_list(file: Path) -> Graph:
    pairs = []
    for number, line in enumerate(file.read_text(encoding="utf-8-sig").splitlines(), start=1):
        words = re.split(r"[,;\s]+", line.split("#")[0].strip(" \t,;"))
        if words == [""]:
            continue
        if len(words) != 2 or not all(re.fullmatch(r"\d{1,18}", word) for word in words):
            what = f"{file.name}, line {number}: {line.strip()[:60]!r}"
            raise InputError(
                f"{what} is not an edge; a line must be two numbers, such as '0 1' or '0,1'. Start headings with #."
            )
        pairs.append((int(words[0]), int(words[1])))
    if not pairs:
        raise InputError(f"{file.name} has no edges; it must have one pair of agents per line, such as '0 1'.")
    return from_edges(pairs, name=file.name)


def _read_graphml(file: Path) -> Graph:
    import networkx as nx

    try:
        read = nx.read_graphml(file)
    except (nx.NetworkXException, SyntaxError, ValueError, LookupError, TypeError, AttributeError) as error:
        what = f"{file.name} is not GraphML ({error})"
        raise InputError(f"{what}; export it again, or list its edges in a .txt, one pair per line.") from error
    return from_networkx(read, name=file.name)


READERS = {".graphml": _read_graphml, **dict.fromkeys((".txt", ".csv", ".edges"), _read_edge_list)}


def read_graph(path: str | Path) -> Graph:
    """Read a graph from a file: `.graphml`, or an edge list (`.txt`, `.csv`, `.edges`) with one pair per line.

    An edge list numbers the agents from 0. Spaces, tabs, commas or semicolons separate the two numbers; what follows
    a # is a comment.

    Args:
        path: The file; its suffix gives the format.

    Returns:
        The `Graph`, named after the file.

    Raises:
        InputError: If the suffix is unknown, the file cannot be read, a line is not a pair of numbers, or the edges do
            not make a connected graph.

    >>> import pathlib, tempfile
    >>> import relaydp as rd
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "sites.txt")
    ...     _ = file.write_text("# three sites\\n0 1\\n1 2\\n")
    ...     rd.read_graph(file)
    Graph(sites.txt: 3 agents, 2 edges)
    """
    file = Path(path)
    if file.suffix.lower() not in READERS:
        raise InputError(f"graph file {file.name!r} has an unknown suffix; it must be one of: {', '.join(READERS)}.")
    try:
        return READERS[file.suffix.lower()](file)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"graph file {file} cannot be read ({error}); check the path, and that it is text.") from error


PLAIN = {"ring": ring, "path": path, "star": star, "complete": complete}
# The parameters after each name and a colon, and an example for the error.
NAMED = {
    **{name: ("", name) for name in PLAIN},
    "grid": (r"(\d+)x(\d+)", "grid:4x8"),
    "torus": (r"(\d+)x(\d+)", "torus:4x8"),
    "hypercube": (r"(\d+)", "hypercube:5"),
    "erdos-renyi": (r"(\d*\.?\d+)", "erdos-renyi:0.3"),
    "watts-strogatz": (r"(\d+)(?:,(\d*\.?\d+))?", "watts-strogatz:4,0.1"),
    "random-regular": (r"(\d+)", "random-regular:4"),
}


def _build_named(kind: str, given: list[str], n: int, seed: int) -> Graph:
    if kind in ("grid", "torus"):
        # The most square shape; a prime number of agents leaves 1 x n, a path or a ring.
        rows = int(given[0]) if given else max(r for r in range(1, math.isqrt(n) + 1) if n % r == 0)
        return _lattice(kind, rows, int(given[1]) if given else n // rows, wraps=kind == "torus")
    if kind == "hypercube":
        return hypercube(int(given[0]) if given else max(1, n.bit_length() - 1))
    if kind == "erdos-renyi":  # by default twice the density at which such graphs become connected
        return erdos_renyi(n, float(given[0]) if given else min(1.0, 2 * math.log(n) / n), seed)
    if kind == "watts-strogatz":
        near, rewire = (*given, *["4", "0.1"][len(given) :])
        return watts_strogatz(n, int(near), float(rewire), seed)
    if kind == "random-regular":
        return random_regular(n, *map(int, given), seed=seed)
    return PLAIN[kind](n)


def graph_named(text: str, agents: int | None = None, seed: int = 0) -> Graph:
    """The graph of a command line's argument: a name, a name with parameters, or a path to a graph file.

    >>> graph_named("grid:2x3", 6), graph_named("torus", 12).name
    (Graph(grid(2x3): 6 agents, 7 edges), 'torus(3x4)')
    """
    kind, colon, parameters = text.strip().partition(":")
    if kind not in NAMED and Path(text).suffix.lower() in READERS:
        graph = read_graph(text)
    else:
        known = choose(f"graph (and no file with suffix {', '.join(READERS)})", kind, NAMED)
        pattern, example = NAMED[known]
        match = re.fullmatch(pattern, parameters)
        if colon and not (match and parameters):
            raise InputError(f"graph {text!r} cannot be read; it must look like {example!r}.")
        sized = bool(colon) and kind in ("grid", "torus", "hypercube")
        if agents is None and not sized:
            raise InputError(f"graph {text!r} does not say how many agents there are; pass agents, such as agents=8.")
        given = [word for word in match.groups() if word is not None] if colon and match else []
        graph = _build_named(kind, given, whole("agents", 2 if agents is None else agents, 2), seed)
    if agents is not None and graph.agents != agents:
        what = f"graph {graph.name} has {graph.agents} agents, but agents={agents} was asked for"
        raise InputError(f"{what}; pass agents={graph.agents}, or a graph of {agents}.")
    return graph
