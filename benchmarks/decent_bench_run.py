"""Run decent-bench's NIDS, EXTRA and ADMM on a problem given as a file; print what they find and how long they take.

Not imported by relaydp: it runs in an environment and process of its own (decent-bench is AGPL, needs Python 3.13),

    python3.13 -m venv peer && peer/bin/pip install decent-bench
    peer/bin/python benchmarks/decent_bench_run.py problem.npz

where problem.npz has X (agents, records, features), y (agents, records), edges (E, 2), iterations, stepsize, penalty.
"""

import json
import sys
import time

import networkx as nx
import numpy as np
from decent_array import interoperability as iop  # type: ignore[import-not-found]
from decent_bench.agents import Agent  # type: ignore[import-not-found]
from decent_bench.algorithms.p2p import ADMM, EXTRA, NIDS  # type: ignore[import-not-found]
from decent_bench.costs import LinearRegressionCost  # type: ignore[import-not-found]
from decent_bench.networks import P2PNetwork  # type: ignore[import-not-found]


def network(X, y, edges):
    """The same records and edges as decent-bench wants them."""
    data = [
        [(iop.from_numpy(a), iop.from_numpy(np.array([b]))) for a, b in zip(A, c, strict=True)]
        for A, c in zip(X, y, strict=True)
    ]
    graph = nx.Graph()
    graph.add_nodes_from(range(len(X)))
    graph.add_edges_from((int(i), int(j)) for i, j in edges)
    return P2PNetwork(graph, [Agent(LinearRegressionCost(records)) for records in data])


def main(path):
    iop.set_backend("numpy")
    given = np.load(path)
    iterations = int(given["iterations"])
    methods = {
        "nids": NIDS(step_size=float(given["stepsize"])),
        "pg-extra": EXTRA(step_size=float(given["stepsize"])),
        "d-admm": ADMM(penalty=float(given["penalty"])),
    }
    found = {}
    for name, method in methods.items():
        net = network(given["X"], given["y"], given["edges"])
        began = time.perf_counter()
        method.run(net, iterations)
        seconds = time.perf_counter() - began
        x = np.mean([np.asarray(iop.to_numpy(agent.x)).ravel() for agent in net.agents()], axis=0)
        found[name] = {"x": x.tolist(), "seconds_an_iteration": seconds / iterations}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
