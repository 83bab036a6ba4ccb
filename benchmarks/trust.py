"""What trust buys: accuracy with a curator, masked for several t, and with trust in nobody; and what sums cost.

    python benchmarks/trust.py                          every table: ten minutes on two cores
    python benchmarks/trust.py accuracy --data fashion  one of them
    python benchmarks/trust.py --quick                  one embedded data set, two seeds
    python benchmarks/trust.py figure docs/trust.png    the figure of docs/masked-relay.md: some minutes

accuracy   median test accuracy, with its range, of `rd.sweep` with 8 agents on a ring, records of norm 1, delta 1e-5
           and no other argument. None of these data sets was used to make the rule (benchmarks/accuracy.py)
lap        the time of a run in which agents are seen in sums, beside the same run with trust in nobody: as many laps of
           as many activations. The ratio is the median of rounds in which both are timed
parties    the same records among more and more parties, t = 1, and t = half of them
figure     accuracy against epsilon: a curator, masked for several t, DECOR (benchmarks/decor.py), trust in nobody, and
           each agent alone, on the Fashion-MNIST pair
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import relaydp as rd

AGENTS, DELTA = 8, 1e-5
DATA = ("fashion", "mnist", "cifar10", "ijcnn1")
EPSILONS = (0.1, 0.5, 1.0)
WHOM: dict[str, dict[str, Any]] = {
    "a curator": {"trust": "curator"},
    "masked, t = 1": {"collusion": 1},
    "masked, t = 2": {"collusion": 2},
    "masked, t = 4": {"collusion": 4},
    "masked, t = 6": {"collusion": 6},
    "nobody (t = 7)": {},
}
FIGURE_EPSILONS = (0.03, 0.1, 0.3, 1.0, 3.0)
ROUNDS = 5  # of timing


def problem_of(name: str, agents: int = AGENTS) -> rd.Problem:
    return rd.logistic(rd.load_data(name), agents=agents, record_norm=1.0)


def told(values: np.ndarray) -> str:
    return f"{np.median(values):.4f} ({values.min():.4f} to {values.max():.4f})"


def accuracies(problem: rd.Problem, epsilons: Sequence[float], seeds: int, whom: dict[str, Any]) -> list[np.ndarray]:
    budgets = [rd.Budget(epsilon, DELTA) for epsilon in epsilons]
    runs = rd.sweep(problem, rd.ring(problem.agents), range(seeds), budgets, reference=False, progress=False, **whom)
    return [runs.accuracy[runs.of(budget)] for budget in budgets]


def accuracy_table(names: Sequence[str], seeds: int) -> None:
    print(f"| data | against | {' | '.join(f'epsilon {epsilon:g}' for epsilon in EPSILONS)} |\n|---|---|---|---|---|")
    for name in names:
        problem = problem_of(name)
        for title, whom in WHOM.items():
            found = accuracies(problem, EPSILONS, seeds, whom)
            print(f"| {name} | {title} | {' | '.join(map(told, found))} |", flush=True)


def parties_table(name: str, counts: Sequence[int], seeds: int) -> None:
    print("| parties | t = 1 | t = half | nobody |\n|---|---|---|---|")
    for agents in counts:
        problem = problem_of(name, agents)
        asked: list[dict[str, Any]] = [{"collusion": 1}, {"collusion": agents // 2}, {}]
        cells = [told(accuracies(problem, (1.0,), seeds, whom)[0]) for whom in asked]
        print(f"| {agents} | {' | '.join(cells)} |", flush=True)


def lap_table(names: Sequence[str], rounds: int) -> None:
    print("| data | a run with sums | with trust in nobody | ratio, median of rounds |\n|---|---|---|---|")
    for name in names:
        problem, graph, budget = problem_of(name), rd.ring(AGENTS), rd.Budget(1.0, DELTA)

        def seconds(whom: dict[str, Any], problem: Any = problem, graph: Any = graph, budget: Any = budget) -> float:
            began = time.perf_counter()
            rd.solve(problem, graph, budget=budget, trace=False, transcript=False, progress=False, **whom)
            return time.perf_counter() - began

        both: list[dict[str, Any]] = [{"collusion": 1}, {}]
        for whom in both:
            seconds(whom)  # compile
        pairs = np.array([[seconds(whom) for whom in both] for _ in range(rounds)])
        ratio = np.median(pairs[:, 0] / pairs[:, 1])
        ours, theirs = np.median(pairs, axis=0)
        print(f"| {name} | {ours:.3f} s | {theirs:.3f} s | {ratio:.2f} |", flush=True)


def draw_figure(file: Path, name: str, epsilons: Sequence[float], seeds: int) -> None:
    import decor
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    problem = problem_of(name)
    lines = {title: accuracies(problem, epsilons, seeds, whom) for title, whom in WHOM.items() if "6" not in title}
    budgets = [rd.Budget(epsilon, DELTA) for epsilon in epsilons]
    few = range(min(seeds, 8))
    lines["DECOR, complete graph, t = 1"] = [
        decor.decor_accuracy(problem, rd.complete(AGENTS), budget, 1, few) for budget in budgets
    ]
    lines["each agent alone"] = [
        np.concatenate([rd.solve_alone(problem, budget, seed=seed).accuracy for seed in few]) for budget in budgets
    ]
    figure, axis = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
    styles = {"a curator": "k-", "DECOR, complete graph, t = 1": "C4--", "each agent alone": "C7:"}
    for title, found in lines.items():
        middle = [float(np.median(values)) for values in found]
        axis.plot(epsilons, middle, styles.get(title, "-"), marker="o", markersize=3, label=title)
        print(f"{title:30} {' '.join(f'{value:.4f}' for value in middle)}", flush=True)
    axis.set(xscale="log", xlabel="epsilon", ylabel="test accuracy, median over seeds")
    axis.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axis.minorticks_off()
    axis.set_ylim(bottom=0.9)  # alone with the least budget lies far below
    axis.legend(fontsize=8, frameon=False)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    figure.savefig(file, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("accuracy", "lap", "parties", "figure"))
    parser.add_argument("file", nargs="?", type=Path, help="of the figure")
    parser.add_argument("--data", nargs="*", default=DATA)
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--quick", action="store_true", help="fashion-small, two seeds")
    asked = parser.parse_args()
    names = ("fashion-small",) if asked.quick else asked.data
    seeds = 2 if asked.quick else asked.seeds
    if asked.what == "figure":
        if asked.file is None:
            parser.error("figure needs a file to draw into, such as docs/trust.png")
        draw_figure(asked.file, names[0], (0.1, 1.0) if asked.quick else FIGURE_EPSILONS, seeds)
        return
    if asked.what in (None, "accuracy"):
        accuracy_table(names, seeds)
    if asked.what in (None, "lap"):
        lap_table(names, 2 if asked.quick else ROUNDS)
    if asked.what in (None, "parties"):
        parties_table(names[0], (8, 32) if asked.quick else (2, 8, 32, 128), seeds)


if __name__ == "__main__":
    main()
