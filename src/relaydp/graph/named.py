"""A graph by its name, as commands and TOML files have it."""

from __future__ import annotations

import math
import re
from pathlib import Path

from relaydp.errors import InputError, choose
from relaydp.graph.files import READERS, read_graph
from relaydp.graph.graph import Graph, whole
from relaydp.graph.random_graphs import erdos_renyi, random_regular, watts_strogatz
from relaydp.graph.topologies import complete, hypercube, lattice, path, ring, star

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
        return lattice(kind, rows, int(given[1]) if given else n // rows, wraps=kind == "torus")
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
        n = whole("agents", 2 if agents is None else agents, 1)
        graph = complete(1) if n == 1 else _build_named(kind, given, n, seed)  # one agent has one graph
    if agents is not None and graph.agents != agents:
        what = f"graph {graph.name} has {graph.agents} agents, but agents={agents} was asked for"
        raise InputError(f"{what}; pass agents={graph.agents}, or a graph of {agents}.")
    return graph
