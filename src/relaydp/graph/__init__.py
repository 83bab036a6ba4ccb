"""Graphs, walks of a baton over them, and the routes of whole runs."""

from relaydp.graph.files import from_edges, from_networkx, read_graph
from relaydp.graph.graph import Graph
from relaydp.graph.named import graph_named
from relaydp.graph.network import Network, check_size, metropolis, network_of
from relaydp.graph.random_graphs import erdos_renyi, random_regular, watts_strogatz
from relaydp.graph.routes import RULES, Rounds, Route, lap_shape, rounds, route
from relaydp.graph.topologies import complete, grid, hypercube, path, ring, star, torus
from relaydp.graph.walks import RANDOM_WALKS, WALKS, cycle, tour

__all__ = [
    "RANDOM_WALKS",
    "RULES",
    "WALKS",
    "Graph",
    "Network",
    "Rounds",
    "Route",
    "check_size",
    "complete",
    "cycle",
    "erdos_renyi",
    "from_edges",
    "from_networkx",
    "graph_named",
    "grid",
    "hypercube",
    "lap_shape",
    "metropolis",
    "network_of",
    "path",
    "random_regular",
    "read_graph",
    "ring",
    "rounds",
    "route",
    "star",
    "torus",
    "tour",
    "watts_strogatz",
]
