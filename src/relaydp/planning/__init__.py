"""Planning: everything that is decided before a run, from public facts alone.

The reading order is that of the decisions:

    directions     what is supposed of the problem: curvature and distance in each direction
    quadratic      simulates an algorithm on quadratics, without records
    forecast       predicts what a budget buys, for every number of activations
    public_trials  tries the best plans on public records, where there are any
    tuning         chooses steps and the number of activations
    calibration    turns a budget into noise scales and a ledger
    run_plan       the result: `Plan`, a run drawn up and paid for
    planner        checks a request, and makes the plan
"""

from relaydp.planning.directions import Directions, directions_of
from relaydp.planning.forecast import Forecast
from relaydp.planning.planner import plan
from relaydp.planning.run_plan import Plan

__all__ = ["Directions", "Forecast", "Plan", "directions_of", "plan"]
