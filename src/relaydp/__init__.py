"""relaydp: train convex models together, without a server and without leaking anybody's records.

    import relaydp as rd

    problem = rd.logistic(rd.load_data("fashion-small"), agents=8, l2=1e-2)
    result = rd.solve(problem, rd.ring(8), budget=rd.Budget(epsilon=1.0, delta=1e-5))
    result.x, result.epsilon

Names are imported when first used, so that `relaydp --help` does not wait for JAX. `import relaydp` changes no
setting. The first use of a name that computes switches on float64 in JAX, for the whole process; `relaydp/_jax.py` has
this and the other settings. An array of JAX that you make before is float32, unless you switch float64 on yourself;
where the environment has JAX_ENABLE_X64=0, that first use is an error.
"""

import importlib
from typing import TYPE_CHECKING, Any

from relaydp._version import __version__

# public name -> the module it lives in
_HOMES = {
    "Budget": "relaydp.privacy",
    "Graph": "relaydp.graph",
    "Ledger": "relaydp.privacy",
    "PrivacyAccount": "relaydp.privacy",
    "Problem": "relaydp.problem",
    "Records": "relaydp.data",
    "RelayLinearRegression": "relaydp.estimator",
    "RelayLogisticRegression": "relaydp.estimator",
    "Result": "relaydp.result",
    "algorithms": "relaydp.algorithm",
    "audit": "relaydp.auditing",
    "compare": "relaydp.engine",
    "complete": "relaydp.graph",
    "custom": "relaydp.problem",
    "erdos_renyi": "relaydp.graph",
    "from_edges": "relaydp.graph",
    "from_networkx": "relaydp.graph",
    "grid": "relaydp.graph",
    "huber": "relaydp.problem",
    "hypercube": "relaydp.graph",
    "least_squares": "relaydp.problem",
    "load_data": "relaydp.data",
    "load_result": "relaydp.result",
    "logistic": "relaydp.problem",
    "minimise": "relaydp.problem",
    "path": "relaydp.graph",
    "plan": "relaydp.planning",
    "public_facts": "relaydp.problem",
    "random_regular": "relaydp.graph",
    "read_graph": "relaydp.graph",
    "rerun": "relaydp.engine",
    "ring": "relaydp.graph",
    "softmax": "relaydp.problem",
    "solve": "relaydp.engine",
    "solve_alone": "relaydp.engine",
    "star": "relaydp.graph",
    "sweep": "relaydp.engine",
    "torus": "relaydp.graph",
    "watts_strogatz": "relaydp.graph",
}
_PACKAGES = {
    "attack": "relaydp.attack",
    "cluster": "relaydp.cluster",
    "errors": "relaydp.errors",
    "partition": "relaydp.problem.partition",
    "privacy": "relaydp.privacy",
    "prox": "relaydp.prox",
}

__all__ = [
    "Budget",
    "Graph",
    "Ledger",
    "PrivacyAccount",
    "Problem",
    "Records",
    "RelayLinearRegression",
    "RelayLogisticRegression",
    "Result",
    "__version__",
    "algorithms",
    "attack",
    "audit",
    "cluster",
    "compare",
    "complete",
    "custom",
    "erdos_renyi",
    "errors",
    "from_edges",
    "from_networkx",
    "grid",
    "huber",
    "hypercube",
    "least_squares",
    "load_data",
    "load_result",
    "logistic",
    "minimise",
    "partition",
    "path",
    "plan",
    "privacy",
    "prox",
    "public_facts",
    "random_regular",
    "read_graph",
    "rerun",
    "ring",
    "softmax",
    "solve",
    "solve_alone",
    "star",
    "sweep",
    "torus",
    "watts_strogatz",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(_PACKAGES[name])
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'relaydp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


if TYPE_CHECKING:  # the same names for readers and type checkers; a test holds the two lists together
    from relaydp import attack, cluster, errors, privacy, prox
    from relaydp.algorithm import algorithms
    from relaydp.auditing import audit
    from relaydp.data import Records, load_data
    from relaydp.engine import compare, rerun, solve, solve_alone, sweep
    from relaydp.estimator import RelayLinearRegression, RelayLogisticRegression
    from relaydp.graph import (
        Graph,
        complete,
        erdos_renyi,
        from_edges,
        from_networkx,
        grid,
        hypercube,
        path,
        random_regular,
        read_graph,
        ring,
        star,
        torus,
        watts_strogatz,
    )
    from relaydp.planning import plan
    from relaydp.privacy import Budget, Ledger, PrivacyAccount
    from relaydp.problem import (
        Problem,
        custom,
        huber,
        least_squares,
        logistic,
        minimise,
        partition,
        public_facts,
        softmax,
    )
    from relaydp.result import Result, load_result
