"""compare: which method gives the best model for this budget on this graph?

Every algorithm gets the same problem, graph, budget and seeds, and its steps (and, under a budget, its number of
activations) from the same simulation by the same rule. An algorithm that cannot run as asked is a row with the reason.

All runs have seeds, so that with a budget they are simulations: no promise stands behind any of them, and
`epsilon_planned` is what the proof gives the same plan: the cost of a private run, or, where noise is in the objective
and there are no private runs, of real numbers.

`Comparison.save(folder)` keeps the table and one traced run of each algorithm in comparison.json; no record is in it.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from relaydp import defaults
from relaydp._atomic import new_folder
from relaydp.algorithm import ALGORITHMS, find_algorithm
from relaydp.algorithm.relay_gradient import RELAY_GRADIENT
from relaydp.engine.saved_comparison import COMPARISON, SavedComparison
from relaydp.engine.solver import solve
from relaydp.engine.spending import epsilon_spent
from relaydp.engine.sweeps import Sweep, sweep
from relaydp.engine.trace import TINY
from relaydp.errors import InputError, RelayError
from relaydp.graph import Graph
from relaydp.oracle.randomness import as_seeds
from relaydp.planning.planner import ACCURACY, AUTO, check_setting, resolve_algorithm, resolve_objective
from relaydp.privacy import Budget
from relaydp.problem import Problem, Reference
from relaydp.problem.reference import find_minimiser
from relaydp.result import Result, plain, versions

MEASURES = ("objective", "excess", "relative_error", "accuracy")


@dataclass(frozen=True, eq=False)
class Comparison:
    """One row an algorithm, best first; `results` holds one traced run of each."""

    rows: list[dict[str, Any]]
    results: dict[str, Result]
    budget: Budget | None
    best_value: float  # F(x*); NaN where the problem has no minimiser
    about: dict[str, Any] = field(default_factory=dict)  # what was compared on: data, loss, agents, graph, seeds, ...

    def row(self, algorithm: str) -> dict[str, Any]:
        """The row of one algorithm."""
        return next(row for row in self.rows if row["algorithm"] == algorithm)

    def summary(self) -> dict[str, Any]:
        """The table in one JSON object; numbers that do not exist are null, with the reason in `note`."""
        budget = None if self.budget is None else {"epsilon": self.budget.epsilon, "delta": self.budget.delta}
        return {
            "budget": budget,
            "private": False,
            "guarantee": self.guarantee,
            "ranked_by": self.ranked_by,
            "rows": self.rows,
        }

    @property
    def ranked_by(self) -> str:
        """The column that the rows are sorted by: "accuracy", "excess" or "objective"."""
        return self.about["ranked_by"]

    @property
    def guarantee(self) -> str:
        """One sentence: that nothing is promised."""
        if self.budget is None:
            return "none: no noise was added."
        return (
            "simulation: no promise. Noise comes from seeds; planned is the epsilon that the proof gives the same plan."
        )

    def saved(self) -> SavedComparison:
        """What is kept of it: the table, and the history of each traced run with the epsilon planned up to there."""
        traces = {name: result.trace for name, result in self.results.items() if result.trace is not None}
        spent = {name: epsilon_spent(self.results[name], planned=True) for name in traces}
        return SavedComparison(self.about, self.budget, self.best_value, self.rows, traces, spent, versions())

    def save(self, folder: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Write the folder that `load_comparison` reads; all of it or nothing."""
        with new_folder(Path(folder), COMPARISON, overwrite) as work:
            (work / COMPARISON).write_text(json.dumps(self.saved().to_json(), allow_nan=False) + "\n")
        return Path(folder)


def compare(
    problem: Problem,
    graph: Graph,
    algorithms: str | Sequence[str] = "all",
    budget: Budget | None = None,
    *,
    mechanism: str | None = AUTO,
    objective: str | None = None,
    seeds: Iterable[int] = range(16),
    activations: int | None = None,
    walk: str = defaults.WALK,
    ratio: float | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Comparison:
    """Run every algorithm over all seeds and rank them by the median accuracy or the median excess objective.

    Classifiers with a budget are planned for accuracy and ranked by it, unless `objective` says otherwise. Everything
    else is ranked by the excess objective, or by the objective where the problem has no minimiser (separable classes
    without l2).

    Every algorithm gets the same problem, graph, budget and seeds, and its steps (under a budget also its number of
    activations) by the same rule. All runs have seeds, so that with a budget they are simulations without a promise.

    Args:
        problem: The loss, the weights and the records, split over the agents.
        graph: Who may send to whom. It has as many agents as the problem.
        algorithms: "all" (the default), one name, or a list of names from `relaydp.algorithms()`. "auto" is the one
            that `solve` would take.
        budget: Budget(epsilon, delta) that every run is planned for. Default: None, without noise.
        mechanism: As in `solve`. The default, "auto", takes the one that each algorithm has.
        objective: "accuracy" or "loss": what a budget is planned for and what the rows are ranked by. Only
            relay-gradient can be planned for accuracy. Default: None, which is "accuracy" for logistic and softmax
            problems with a budget, and "loss" for everything else.
        seeds: The seeds of the runs. Default: 0 to 15.
        activations: The PLF of every run. Default: as in `solve`, for each algorithm.
        walk: What the relays follow. Default: "tour".
        ratio: rho_(t+1)/rho_t of the noise schedule, as in `solve`.
        progress: A function `progress(name, done, total)` that is told of each algorithm as it starts. Default: None.

    Returns:
        A Comparison. `rows` has one dict per algorithm, best first by `ranked_by`: medians over the seeds, and a
            `note`. An algorithm
        that cannot run as asked is a row with status "refused" and the reason in its note. `results` has one traced run
        of each; `row(name)` finds a row, `summary()` is one JSON object, and `save(folder)` writes comparison.json.

    Raises:
        InputError: There is no algorithm, a name is unknown, or "accuracy" was asked for of a problem that does not
            classify or without a budget.

    Example:
        >>> import relaydp as rd
        >>> problem = rd.logistic(rd.load_data("breast-cancer"), agents=4, l2=1e-2)
        >>> table = rd.compare(problem, rd.ring(4), ["recal", "pg-extra"], seeds=range(2), activations=50)
        >>> sorted(row["algorithm"] for row in table.rows)
        ['pg-extra', 'recal']
    """
    check_setting(problem, graph)
    names = sorted(ALGORITHMS) if isinstance(algorithms, str) and algorithms == "all" else algorithms
    names = [names] if isinstance(names, str) else list(names)
    if not names:
        raise InputError("algorithms is empty; it must have at least one name, or be 'all'.")
    aim = resolve_objective(objective, problem)
    if objective == ACCURACY and budget is None:
        raise InputError("objective='accuracy' says what a budget is planned for, and there is none. Leave it out.")
    known = dict(budget=budget, mechanism=mechanism, objective=objective, walk=walk, ratio=ratio)
    names = [resolve_algorithm(name, problem, **known) for name in names]  # type: ignore[arg-type]
    names = list(dict.fromkeys(find_algorithm(name).name for name in names))
    numbers = as_seeds(seeds)
    if not numbers:
        raise InputError("seeds is empty; a comparison needs one at least, such as range(16).")
    best = find_minimiser(problem)  # kept with the problem, so that all runs below are measured against this one
    rows, results = [], {}
    options: dict[str, Any] = {"mechanism": mechanism, "activations": activations, "walk": walk, "ratio": ratio}
    options |= {"progress": False, "reference": True}
    for done, name in enumerate(names):
        if progress is not None:
            progress(name, done, len(names))
        began = time.perf_counter()
        # the other algorithms are planned for the least F either way, and refuse to be asked for accuracy
        options["objective"] = objective if objective != ACCURACY or name == RELAY_GRADIENT.name else None
        try:
            runs = sweep(problem, graph, numbers, [budget], algorithm=name, **options)
            traced = solve(problem, graph, name, budget=budget, seed=numbers[0], transcript=False, **options)
        except RelayError as error:
            rows.append(_refused(name, str(error)))
            continue
        rows.append(_row(name, runs, traced, best, time.perf_counter() - began))
        results[name] = traced
    ranked_by = "accuracy" if aim == ACCURACY and budget is not None else "objective" if best is None else "excess"
    sign = -1.0 if ranked_by == "accuracy" else 1.0
    rows.sort(key=lambda row: (row[ranked_by] is None, sign * (row[ranked_by] or 0.0)))
    about = {
        "data": problem.data.name,
        "loss": problem.loss.name,
        "agents": graph.agents,
        "records": len(problem.data),
        "graph": graph.name,
        "walk": walk,
        "mechanism": mechanism,
        "objective": objective,
        "ranked_by": ranked_by,
        "activations": activations,
        "ratio": ratio,
        "seeds": numbers,
    }
    return Comparison(rows, results, budget, math.nan if best is None else best.value, about)


def _refused(name: str, reason: str) -> dict[str, Any]:
    empty = dict.fromkeys(
        (
            "mechanism",
            "plf",
            "messages",
            "vectors",
            "messages_paper",
            "epsilon_planned",
            "epsilon_paper",
            *MEASURES,
            "seconds",
        )
    )
    return {"algorithm": name, "title": ALGORITHMS[name].title, **empty, "status": "refused", "note": reason}


def _row(name: str, runs: Sweep, traced: Result, best: Reference | None, seconds: float) -> dict[str, Any]:
    diverged = sum(status == "diverged" for status in runs.status)
    row: dict[str, Any] = {
        "algorithm": name,
        "title": ALGORITHMS[name].title,
        "mechanism": traced.mechanism,
        "plf": int(np.median(runs.plf)),
        "messages": int(np.median(runs.messages)),
        "vectors": int(np.median(runs.messages)) * ALGORITHMS[name].vectors_of(len(traced.x)),
        "messages_paper": int(np.median(runs.messages)) * ALGORITHMS[name].paper_factor,
        "epsilon_planned": plain(traced.epsilon_planned),
        "epsilon_paper": plain(traced.epsilon_paper),
    }
    for measure in MEASURES:
        values = getattr(runs, measure)
        known = values[np.isfinite(values)]
        row[measure] = float(np.median(known)) if len(known) > len(values) // 2 else None
        row[f"{measure}_quartiles"] = [float(q) for q in np.percentile(known, [25, 75])] if len(known) else None
    row["seconds"] = round(seconds, 3)
    row["status"] = "diverged" if diverged > len(runs) // 2 else "finished"
    row["note"] = _note(row, runs, diverged, best)
    return row


def _note(row: dict[str, Any], runs: Sweep, diverged: int, best: Reference | None) -> str:
    """Why a cell is empty, or ''."""
    if diverged:
        return f"{diverged} of {len(runs)} runs diverged."
    notes = []
    if best is None:
        notes.append("The problem has no minimiser to measure against. A ridge (l2) gives it one.")
    elif np.linalg.norm(best.x) <= TINY:
        notes.append("x* = 0, so relative error has no meaning.")
    if row["accuracy"] is None:
        notes.append("The loss does not classify.")
    if row["mechanism"] is None:
        notes.append("No noise, no epsilon.")
    elif row["epsilon_planned"] is None:
        notes.append("The published mechanism has no defensible epsilon.")
    return " ".join(notes)


def gap(result: Result, best_value: float) -> np.ndarray:
    """F(x) - F(x*) along a traced run, never below rounding."""
    assert result.trace is not None
    return np.maximum(result.trace.objective - best_value, math.ulp(best_value))
