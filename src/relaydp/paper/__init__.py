"""The paper's experiments on the paper's data, compared with its printed numbers: `relaydp paper`."""

from relaydp.paper.experiment import FULL, QUICK, Effort
from relaydp.paper.registry import EXPERIMENTS, find_experiments
from relaydp.paper.runner import run_experiments

__all__ = ["EXPERIMENTS", "FULL", "QUICK", "Effort", "find_experiments", "run_experiments"]
