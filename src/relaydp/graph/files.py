"""Graphs made elsewhere: by networkx, as a list of edges, in a file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from relaydp.errors import InputError
from relaydp.graph.graph import Graph

if TYPE_CHECKING:
    import networkx


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
