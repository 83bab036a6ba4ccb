"""What is each part of the rule for accuracy (`relaydp.planning.accuracy`) worth?

    python benchmarks/accuracy_parts.py             five data sets, three budgets, 16 seeds: five minutes on two cores
    python benchmarks/accuracy_parts.py --quick     one embedded data set, one budget, 2 seeds: half a minute

Every row of the table is the default with one part changed and everything else as the rule then says:

    no lap that prepares                     the first lap is one of gradients, with the records as they are
    prepares, starts at 0                    coordinates and pace as found, and the model starts at 0
    prepares, without a pace                 coordinates and start as found, and steps as planned
    clip at the bound                        c = G; the step follows, by (5) of the rule
    steps that stay                          every step is as long as the first; the last model counts
    Nesterov's momentum, no momentum         b = 1, and b = 0
    25 laps, 400 laps                        a quarter of them, and four times as many; the step follows
    RECAL, planned for F                     objective="loss": another algorithm, steps and number of laps

The plans are made and run by relaydp itself, from the same seeds; numbers are medians over the seeds, on the held-out
records. A row's numbers are its medians minus the default's, in points (hundredths) of accuracy: below 0, the part is
worth that much. "-" is where nothing was changed, because the default does not prepare there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import accuracy
import jax.numpy as jnp
import numpy as np

import relaydp as rd
from relaydp.algorithm.relay_gradient import NEVER
from relaydp.engine import sweeps
from relaydp.engine.sweeps import run_plans
from relaydp.errors import RelayError
from relaydp.graph import Graph
from relaydp.oracle.randomness import NOISE, key_for
from relaydp.planning import accuracy as the_rule
from relaydp.planning.run_plan import Plan
from relaydp.problem import Facts
from relaydp.result import versions

DATA, QUICK_DATA = "fashion,mnist,cifar10,ijcnn1,bank", "fashion-small"
AGENTS = 8


# -- the plans


def default(facts: Facts, graph: Graph, budget: rd.Budget) -> Plan:
    return rd.plan(facts, graph, budget)


def no_lap_that_prepares(facts: Facts, graph: Graph, budget: rd.Budget) -> Plan:
    with mock.patch.object(the_rule, "prepares", lambda *_: False):
        return rd.plan(facts, graph, budget)


def clip_at_the_bound(facts: Facts, graph: Graph, budget: rd.Budget) -> Plan:
    """As if the user had given this clip."""
    assert facts.bound is not None
    return rd.plan(replace(facts, clip=facts.bound, clip_given=True), graph, budget)


def with_steps(**changed: float) -> Callable[[Facts, Graph, rd.Budget], Plan]:
    def plan(facts: Facts, graph: Graph, budget: rd.Budget) -> Plan:
        made = rd.plan(facts, graph, budget)
        return replace(made, steps=made.steps._replace(**{name: np.float64(value) for name, value in changed.items()}))

    return plan


def with_laps(laps: int) -> Callable[[Facts, Graph, rd.Budget], Plan]:
    """So many laps of gradients, and the one that prepares where the default has one."""

    def plan(facts: Facts, graph: Graph, budget: rd.Budget) -> Plan:
        prepares = rd.plan(facts, graph, budget).preparing > 0
        return rd.plan(facts, graph, budget, activations=laps + prepares)

    return plan


# -- what runs do with what the first lap found


@contextmanager
def start_at_0() -> Iterator[None]:
    """0 is the same model in all coordinates."""
    with mock.patch.object(sweeps, "start_of", lambda plan, coordinates, x0: coordinates.undo(x0)):
        yield


@contextmanager
def without_a_pace() -> Iterator[None]:
    with mock.patch.object(sweeps, "paced", lambda steps, coordinates: steps):
        yield


class Part(NamedTuple):
    plan: Callable[[Facts, Graph, rd.Budget], Plan]
    running: Callable[[], Any] = nullcontext
    of_preparing: bool = False  # nothing is changed where the default does not prepare


PARTS = {
    "default": Part(default),
    "no lap that prepares": Part(no_lap_that_prepares, of_preparing=True),
    "prepares, starts at 0": Part(default, start_at_0, of_preparing=True),
    "prepares, without a pace": Part(default, without_a_pace, of_preparing=True),
    "clip at the bound": Part(clip_at_the_bound),
    "steps that stay": Part(with_steps(settled=NEVER)),
    "Nesterov's momentum": Part(with_steps(momentum=1.0)),
    "no momentum": Part(with_steps(momentum=0.0)),
    "25 laps": Part(with_laps(25)),
    "400 laps": Part(with_laps(400)),
}
RECAL = "RECAL, planned for F"


# -- the runs


def models_of(
    part: Part, problem: rd.Problem, graph: Graph, budgets: Sequence[rd.Budget], seeds: Sequence[int]
) -> np.ndarray:
    """(budgets, seeds, dim), with the noise that `rd.sweep` has for these seeds."""
    facts = problem.public_facts()
    plans = [plan for budget in budgets for plan in [part.plan(facts, graph, budget)] * len(seeds)]
    keys = jnp.stack([key_for(seed, NOISE) for seed in seeds] * len(budgets))
    with part.running():
        return run_plans(problem, graph, plans, keys).reshape(len(budgets), len(seeds), -1)


def part_rows(name: str, epsilons: Sequence[float], seeds: Sequence[int]) -> Iterator[dict[str, Any]]:
    """One row per part and epsilon: the median over the seeds; None where the part changes nothing."""
    problem = accuracy.make_problem(accuracy.load(name), AGENTS)
    graph, facts = rd.ring(AGENTS), problem.public_facts()
    budgets = [rd.Budget(epsilon, accuracy.DELTA) for epsilon in epsilons]
    prepared = [rd.plan(facts, graph, budget).preparing > 0 for budget in budgets]
    for title, part in PARTS.items():
        asked = [b for b, does in zip(budgets, prepared, strict=True) if does or not part.of_preparing]
        found = dict.fromkeys(budgets)
        if asked:
            models = models_of(part, problem, graph, asked, seeds)
            found |= {b: float(np.median(problem.accuracies(x))) for b, x in zip(asked, models, strict=True)}
        for budget, median in found.items():
            yield {"data": name, "epsilon": budget.epsilon, "part": title, "accuracy": median}
    runs = rd.sweep(problem, graph, seeds, budgets, objective="loss", reference=False, progress=False)
    for budget in budgets:
        median = float(np.median(runs.accuracy[runs.of(budget)]))
        yield {"data": name, "epsilon": budget.epsilon, "part": RECAL, "accuracy": median}


# -- the table


def markdown(rows: Iterable[dict[str, Any]]) -> str:
    """Parts by data sets and budgets: the default's accuracies, and how many points more the others have."""
    held = {(row["data"], row["epsilon"], row["part"]): row["accuracy"] for row in rows}
    columns = list(dict.fromkeys((data, epsilon) for data, epsilon, _ in held))
    lines = [accuracy._line(["part", *(f"{data}, {epsilon:g}" for data, epsilon in columns), "mean"])]
    lines.append("|" + "---|" * (len(columns) + 2))
    base = np.array([held[*column, "default"] for column in columns])
    lines.append(accuracy._line(["default", *(f"{value:.4f}" for value in base), f"{base.mean():.4f}"]))
    for part in dict.fromkeys(part for *_, part in held):
        if part == "default":
            continue
        own = [held[*column, part] for column in columns]
        points = [None if value is None else 100.0 * (value - at) for value, at in zip(own, base, strict=True)]
        known = [value for value in points if value is not None]
        cells = ["-" if value is None else f"{value:+.2f}" for value in points]
        lines.append(accuracy._line([part, *cells, f"{np.mean(known):+.2f}" if known else "-"]))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help=f"names with commas between; default {DATA}")
    parser.add_argument("--seeds", type=int, help="how many; default 16")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_DATA}, epsilon 1, 2 seeds")
    parser.add_argument("--out", type=Path, help="write JSON here")
    asked = parser.parse_args(arguments)
    data, count = (QUICK_DATA, 2) if asked.quick else (DATA, 16)
    epsilons = (1.0,) if asked.quick else accuracy.EPSILONS
    names = (data if asked.data is None else asked.data).split(",")
    seeds = range(count if asked.seeds is None else asked.seeds)
    about = {**versions(), "cores": os.cpu_count(), "system": platform.platform()}
    about |= {"agents": AGENTS, "delta": accuracy.DELTA, "seeds": len(seeds)}
    print(", ".join(f"{name} {value}" for name, value in about.items()) + "\n", flush=True)
    rows: list[dict[str, Any]] = []
    try:
        for name in names:
            for row in part_rows(name, epsilons, seeds):
                rows.append(row)
                shown = "-" if row["accuracy"] is None else f"{row['accuracy']:.4f}"
                print(f"{name}, epsilon {row['epsilon']:g}, {row['part']}: {shown}", file=sys.stderr, flush=True)
            if asked.out is not None:  # after every data set, so that a run cut short leaves what it has
                asked.out.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")
    except RelayError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        raise SystemExit(2) from None
    print(markdown(rows))


if __name__ == "__main__":
    main()
