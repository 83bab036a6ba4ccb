"""The experiments by name, in the paper's order."""

from __future__ import annotations

from collections.abc import Sequence

from relaydp.errors import choose
from relaydp.paper.attacks import ATTACKS
from relaydp.paper.complexity_page import COMPLEXITY
from relaydp.paper.convergence import figure
from relaydp.paper.experiment import Experiment
from relaydp.paper.relations import RELATIONS
from relaydp.paper.tables import table

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        RELATIONS,
        COMPLEXITY,
        figure("linear", budgets=True),
        figure("linear", budgets=False),
        table("linear"),
        figure("logistic", budgets=True),
        figure("logistic", budgets=False),
        table("logistic"),
        ATTACKS,
    )
}


def find_experiments(names: Sequence[str]) -> list[Experiment]:
    """The named experiments, in the given order; "all" means every one."""
    if list(names) == ["all"]:
        return list(EXPERIMENTS.values())
    return [EXPERIMENTS[choose("experiment", name, EXPERIMENTS)] for name in names]
