"""The engine: the compiled loop, the trace, and the calls that users make."""

from relaydp.engine.comparison import Comparison, compare
from relaydp.engine.reruns import rerun
from relaydp.engine.saved_comparison import SavedComparison, load_comparison
from relaydp.engine.solver import solve
from relaydp.engine.solving_alone import Alone, solve_alone
from relaydp.engine.sweeps import Sweep, sweep

__all__ = [
    "Alone",
    "Comparison",
    "SavedComparison",
    "Sweep",
    "compare",
    "load_comparison",
    "rerun",
    "solve",
    "solve_alone",
    "sweep",
]
