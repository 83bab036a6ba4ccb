"""The engine: plan, compiled loop, trace, and the calls users make."""

from relaydp.engine.alone import Alone, solve_alone
from relaydp.engine.compare import Comparison, compare
from relaydp.engine.plan import Plan
from relaydp.engine.planner import plan
from relaydp.engine.rerun import rerun
from relaydp.engine.saved import SavedComparison, load_comparison
from relaydp.engine.solve import solve
from relaydp.engine.sweep import Sweep, sweep

__all__ = [
    "Alone",
    "Comparison",
    "Plan",
    "SavedComparison",
    "Sweep",
    "compare",
    "load_comparison",
    "plan",
    "rerun",
    "solve",
    "solve_alone",
    "sweep",
]
