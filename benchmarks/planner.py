"""How good are planned budgets? The planner's choice against a dense grid that is allowed to look at the outcome.

    python benchmarks/planner.py --out planner.json    a table of docs/measurements.md; minutes on a GPU, hours without
    python benchmarks/planner.py --data mnist --epsilon 1 --quick

Setting: logistic loss, l2 = 0.01, records of norm at most 1, 8 agents, cyclic relay, delta 1e-5, RECAL, the sound
mechanism. For each data set and epsilon:

  - grid: all (PLF, R, steps) of a grid are run with one seed on the private records, the 48 best again with fresh
    seeds, and the least median excess objective counts. Nobody could run this: it looks at some 15,000 outcomes.
  - planned: what `rd.plan` chooses from public facts alone.
  - with a prior: the same, planned for 500 public records of the same kind (taken from the held-out part), for each of
    five draws of such records: the median draw, and the worst.

Each line has the median excess over fresh seeds, its ratio to the grid's, the prediction made before, and accuracy.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import relaydp as rd
from relaydp.algorithm.recal_steps import RecalSteps, fractions
from relaydp.engine.sweeps import run_plans
from relaydp.privacy import gaussian_scale, geometric

DATA = ("ijcnn1", "mnist", "fashion", "cifar10")
EPSILONS = (0.1, 0.5, 1.0, 2.0, 12.0)
DELTA = 1e-5
PLFS = (1, 2, 3, 5, 7, 10, 14, 20, 28, 40, 57, 80, 113, 160)
RATIOS = (1.0, 1.05, 1.15, 1.4)
STEPS = tuple(
    itertools.product(
        (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.3, 1.6, 1.8),  # a
        (0.2, 0.5, 0.8, 0.9),  # b
        (0.98, 0.5, 0.25, 0.1, 0.03, 0.01),  # g
    )
)
QUICK = {"plfs": (1, 3, 10, 40), "ratios": (1.0, 1.15), "steps": STEPS[::5], "again": 8}
FULL = {"plfs": PLFS, "ratios": RATIOS, "steps": STEPS, "again": 48}
NEAR, FACTOR = 1.25, 2  # what counts as near the best, and as a right prediction
PUBLIC, DRAWS = 500, 5  # records of a prior, and how many priors


def make_problems(name: str) -> tuple[rd.Problem, list[rd.Problem]]:
    """The private problem, and some over public records like it."""
    records = rd.load_data(name)
    test = records.test
    assert test is not None
    options: dict[str, Any] = {"l2": 0.01, "record_norm": 1.0, "ranges": records.ranges}
    public = []
    for draw in range(DRAWS):
        some = np.random.default_rng(draw).permutation(len(test.y))[:PUBLIC]
        public.append(rd.logistic(rd.Records(test.X[some], test.y[some]), agents=1, **options))
    return rd.logistic(records, agents=8, **options), public


def excesses(problem: rd.Problem, graph: rd.Graph, plans: list[Any], seed: int, best: float) -> np.ndarray:
    """F(x) - F(x*) of each plan; infinite where a run diverged."""
    x = run_plans(problem, graph, plans, jax.random.split(jax.random.key(seed), len(plans)))
    fine = np.isfinite(x).all(axis=1)
    found = np.full(len(plans), np.inf)
    found[fine] = problem.objectives(x[fine]) - best
    return found


def best_of_grid(
    problem: rd.Problem, graph: rd.Graph, budget: rd.Budget, best: float, grid: dict[str, Any], seeds: int
) -> dict[str, Any]:
    facts = problem.public_facts()
    rows, plans, found = [], [], []
    for plf in grid["plfs"]:  # runs of one length together
        base = rd.plan(
            problem, graph, budget, walk="cyclic", activations=plf, steps=fractions(facts, *grid["steps"][0])
        )
        some = []
        for ratio, row in itertools.product(grid["ratios"], grid["steps"]):
            alpha, beta, gamma = fractions(facts, *row)
            steps = RecalSteps(np.full(facts.agents, alpha), np.asarray(beta), np.asarray(gamma))
            shares = geometric(budget.rho, plf, ratio)[:, None]
            scales = gaussian_scale(base.sensitivity[None, :], shares)
            some.append(dataclasses.replace(base, steps=steps, scales=scales))
            rows.append((plf, ratio, *row))
        found.append(excesses(problem, graph, some, 7, best))
        plans += some
    order = np.argsort(np.concatenate(found))[: grid["again"]]
    again = [np.median(excesses(problem, graph, [plans[k]] * seeds, 99, best)) for k in order]
    winner = int(np.argmin(again))
    row = rows[order[winner]]
    return {"runs": len(plans), "excess": float(again[winner]), "plf": row[0], "ratio": row[1], "steps": row[2:]}


def planned(
    problem: rd.Problem, graph: rd.Graph, budget: rd.Budget, best: float, seeds: int, prior: rd.Problem | None
) -> dict[str, Any]:
    plan = rd.plan(problem, graph, budget, walk="cyclic", objective="loss", prior=prior)
    x = run_plans(problem, graph, [plan] * seeds, jax.random.split(jax.random.key(5), seeds))
    excess = problem.objectives(x) - best
    return {
        "plf": plan.activations,
        "predicted": plan.predicted,
        "excess": float(np.median(excess)),
        "excess_quartiles": np.percentile(excess, [25, 75]).tolist(),
        "accuracy": float(np.median(problem.accuracies(x))),
    }


def measure(
    name: str, epsilons: list[float], grid: dict[str, Any], seeds: int, known: dict[tuple[str, float], Any]
) -> list[dict[str, Any]]:
    problem, public = make_problems(name)
    graph, reference = rd.ring(8), rd.minimise(problem)
    rows = []
    for epsilon in epsilons:
        began, budget = time.perf_counter(), rd.Budget(epsilon, DELTA)
        row: dict[str, Any] = {"data": name, "epsilon": epsilon}
        row["start"] = problem.objective(np.zeros(problem.dim)) - reference.value
        row["accuracy_without_privacy"] = problem.accuracy(reference.x)
        found = known.get((name, epsilon))
        row["grid"] = found or best_of_grid(problem, graph, budget, reference.value, grid, seeds)
        row["planned"] = planned(problem, graph, budget, reference.value, seeds, None)
        row["priors"] = [planned(problem, graph, budget, reference.value, seeds, each) for each in public]
        row["seconds"] = round(time.perf_counter() - began, 1)
        rows.append(row)
        print(line(row), flush=True)
    return rows


HEAD = (
    "| data | epsilon | F(0) - F* | best of grid (PLF) | planned (PLF) | ratio | predicted / real | with a prior (PLF) "
    "| ratio (worst draw) | predicted / real (all draws) | accuracy planned / prior / no privacy |\n|" + "---|" * 11
)


def line(row: dict[str, Any]) -> str:
    best, guessed = row["grid"]["excess"], row["planned"]
    cells = [row["data"], f"{row['epsilon']:g}", f"{row['start']:.3g}", f"{best:.3g} ({row['grid']['plf']})"]
    cells += [f"{guessed['excess']:.3g} ({guessed['plf']})", f"{guessed['excess'] / best:.2f}"]
    cells.append(f"{guessed['predicted'] / guessed['excess']:.2f}")
    draws = sorted(row["priors"], key=lambda part: part["excess"])
    middle, worst = draws[len(draws) // 2], draws[-1]
    right = sorted(part["predicted"] / part["excess"] for part in draws)
    cells.append(f"{middle['excess']:.3g} ({middle['plf']})")
    cells.append(f"{middle['excess'] / best:.2f} ({worst['excess'] / best:.2f})")
    cells.append(f"{right[len(right) // 2]:.2f} ({right[0]:.2f} to {right[-1]:.2f})")
    accuracies = (guessed["accuracy"], middle["accuracy"], row["accuracy_without_privacy"])
    cells.append(" / ".join(f"{value:.4f}" for value in accuracies))
    return "| " + " | ".join(cells) + " |"


def counts(rows: list[dict[str, Any]]) -> str:
    """How many plans are within NEAR of the grid's best, and how many predictions within FACTOR of what came."""

    def near(row: dict[str, Any], part: dict[str, Any]) -> bool:
        return part["excess"] <= NEAR * row["grid"]["excess"]

    def right(part: dict[str, Any]) -> bool:
        return 1 / FACTOR <= part["predicted"] / part["excess"] <= FACTOR

    pairs = [(row, part) for row in rows for part in row["priors"]]
    of_plans = [statistics.median(part["excess"] / row["grid"]["excess"] for part in row["priors"]) for row in rows]
    of_guesses = [statistics.median(part["predicted"] / part["excess"] for part in row["priors"]) for row in rows]
    found = [
        ("from public facts", [near(row, row["planned"]) for row in rows], [right(row["planned"]) for row in rows]),
        (
            "with a prior, median draw",
            [ratio <= NEAR for ratio in of_plans],
            [1 / FACTOR <= ratio <= FACTOR for ratio in of_guesses],
        ),
        ("with a prior, every draw", [near(*pair) for pair in pairs], [right(part) for _, part in pairs]),
    ]
    text = "{}: {} of {} plans within {} of the grid's best, {} predictions within a factor {}"
    return "\n".join(text.format(who, sum(a), len(a), NEAR, sum(b), FACTOR) for who, a, b in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=",".join(DATA), help="names with commas between")
    parser.add_argument("--epsilon", default=",".join(map(str, EPSILONS)), help="numbers with commas between")
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--quick", action="store_true", help="a coarse grid")
    parser.add_argument("--grid", type=Path, nargs="*", default=[], help="take the grid's results from earlier JSON")
    parser.add_argument("--out", type=Path, help="write JSON here")
    asked = parser.parse_args()
    grid = QUICK if asked.quick else FULL
    machine = {"device": str(jax.devices()[0]), "jax": jax.__version__, "python": platform.python_version()}
    print(f"{machine}\n\n{HEAD}", flush=True)
    earlier = [row for file in asked.grid for row in json.loads(file.read_text())["rows"]]
    known = {(row["data"], row["epsilon"]): row["grid"] for row in earlier}
    rows = []
    for name in asked.data.split(","):
        rows += measure(name, [float(value) for value in asked.epsilon.split(",")], grid, asked.seeds, known)
        if asked.out is not None:  # after each data set, so that an interrupted run keeps what it has
            asked.out.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")
    print(f"\n{counts(rows)}")


if __name__ == "__main__":
    main()
