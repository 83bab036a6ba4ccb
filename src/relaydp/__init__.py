"""relaydp: train convex models together, without a server and without leaking anybody's records.

    import relaydp as rd

    problem = rd.logistic(rd.load_data("fashion-small"), agents=8, l2=1e-2)
    result = rd.solve(problem, rd.ring(8), budget=rd.Budget(epsilon=1.0, delta=1e-5))
    result.x, result.epsilon

Names are imported when first used, so that `relaydp --help` does not wait for JAX.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from relaydp._version import __version__

# Convex problems to 1e-12, and noise with enough bits to hide a value: float64 throughout.
# And one way to draw from a key, whatever the environment says: a simulation's seed is all that it depends on.
os.environ["JAX_ENABLE_X64"] = os.environ["JAX_THREEFRY_PARTITIONABLE"] = "1"
if "jax" in sys.modules:
    for _name in ("jax_enable_x64", "jax_threefry_partitionable"):
        sys.modules["jax"].config.update(_name, True)


def _keep_compiled() -> None:
    """Let JAX keep what it compiles in the user's cache folder: a second process starts some 3 s earlier.

    RELAYDP_COMPILED=0 turns it off, RELAYDP_COMPILED=FOLDER moves it; JAX's own settings, where there are any, stand.
    Compiled code is for one kind of processor, so each kind has a folder of its own, which must be the user's and
    nobody else's to write to. Where it cannot be, nothing is kept and nothing is said.
    """
    asked = os.environ.get("RELAYDP_COMPILED", "")
    given = any(name in os.environ for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE"))
    if asked == "0" or given or os.name != "posix":
        return
    import warnings
    import zlib

    try:
        with open("/proc/cpuinfo", "rb") as facts:  # the first processor's lines, without those that change
            lines = facts.read(8192).split(b"\n\n")[0].splitlines()
        kind = zlib.crc32(b"".join(line for line in lines if line.startswith((b"vendor", b"model", b"flags", b"Feat"))))
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        folder = os.path.join(asked or os.path.join(home, "relaydp", "compiled"), f"{os.uname().machine}-{kind:08x}")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        about = os.stat(folder)
        if about.st_uid != os.getuid() or about.st_mode & 0o022 or not os.access(folder, os.W_OK | os.X_OK):
            return
        entries = [entry.path for entry in os.scandir(folder)]
        if len(entries) > MOST_COMPILED:  # some 30 kB each; begin anew rather than keep account of their use
            for path in entries:
                os.unlink(path)
    except OSError:
        return
    # an entry cut short by a crash or a full disk is compiled anew: nothing the user need know
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache entry")
    settings = {"jax_compilation_cache_dir": folder, "jax_persistent_cache_min_compile_time_secs": 0.1}
    for name, value in settings.items():
        os.environ.setdefault(name.upper(), str(value))
        if "jax" in sys.modules:
            sys.modules["jax"].config.update(name, value)


MOST_COMPILED = 2000
_keep_compiled()

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
_ROOMS = {
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
    if name in _ROOMS:
        return importlib.import_module(_ROOMS[name])
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
