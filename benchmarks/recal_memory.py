"""When does RECAL's memory beat plain gradients on the baton, per released gradient and per message?

    python benchmarks/recal_memory.py             two minutes on two cores
    python benchmarks/recal_memory.py --quick     one budget, 2 seeds

Setting: fashion-small, 8 agents on a ring, `walk="cyclic"`, records of norm 1 at most, delta = 1e-5. Both methods
release one gradient and send one message of two vectors per hop, so that as many laps are as many gradients per agent
and as many messages. First without noise: F(x) - F(x*) after so many laps, with l2 = 0.01 so that there is a minimiser.
Then with a budget, l2 = 0: medians over seeds of test accuracy and F, with ranges of the accuracy.

    RECAL, for F                 planned for the least objective
    RECAL, for F, small clip     the same, with the clip that the rule for accuracy takes
    relay gradient, for F        planned for the least objective by the same planner
    relay gradient               the default: planned for accuracy by the rule of planning/accuracy.py
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

import relaydp as rd
from relaydp.planning.accuracy import rule_for

AGENTS, DELTA, RIDGE = 8, 1e-5, 1e-2
LAPS = (1, 3, 10, 30, 100)
EPSILONS = (0.1, 0.5, 1.0, 4.0)


def without_noise() -> None:
    """The gap after so many laps, steps tuned for that number of laps."""
    problem = rd.logistic(rd.load_data("fashion-small"), agents=AGENTS, l2=RIDGE, record_norm=1.0)
    print(f"| laps | messages | {' | '.join(('recal', 'relay-gradient'))} |\n|---|---|---|---|")
    for laps in LAPS:
        cells = []
        for name in ("recal", "relay-gradient"):
            result = rd.solve(
                problem, rd.ring(AGENTS), algorithm=name, activations=laps, walk="cyclic", trace=2, reference=True
            )
            assert result.reference is not None
            cells.append(f"{result.objective - result.reference.value:.2e}")
        print(f"| {laps} | {result.messages} | {' | '.join(cells)} |", flush=True)


def private(epsilons: tuple[float, ...], seeds: int) -> None:
    data = rd.load_data("fashion-small")
    problem = rd.logistic(data, agents=AGENTS, record_norm=1.0)
    print("| epsilon | method | accuracy | F | laps, messages |\n|---|---|---|---|---|")
    for epsilon in epsilons:
        budget = rd.Budget(epsilon, DELTA)
        clip = rule_for(problem.public_facts(), np.full(AGENTS, budget.rho)).facts.clip
        clipped = rd.logistic(data, agents=AGENTS, record_norm=1.0, clip=clip)
        methods: list[tuple[str, Any, dict[str, Any]]] = [
            ("RECAL, for F", problem, {"algorithm": "recal", "objective": "loss"}),
            (f"RECAL, for F, clip {clip:.3g}", clipped, {"algorithm": "recal", "objective": "loss"}),
            ("relay gradient, for F", problem, {"algorithm": "relay-gradient", "objective": "loss"}),
            ("relay gradient", problem, {"algorithm": "relay-gradient"}),
        ]
        for name, asked, options in methods:
            runs = rd.sweep(
                asked,
                rd.ring(AGENTS),
                range(seeds),
                [budget],
                walk="cyclic",
                reference=False,
                progress=False,
                **options,
            )
            low, middle, high = np.percentile(runs.accuracy, [0, 50, 100])
            cells = (
                f"{epsilon:g}",
                name,
                f"{middle:.4f} ({low:.4f} to {high:.4f})",
                f"{np.median(runs.objective):.4f}",
                f"{runs.plf[0]}, {runs.messages[0]}",
            )
            print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one budget and 2 seeds")
    quick = parser.parse_args().quick
    without_noise()
    print()
    private(EPSILONS[2:3] if quick else EPSILONS, 2 if quick else 16)


if __name__ == "__main__":
    sys.exit(main())
