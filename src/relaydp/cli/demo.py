"""`relaydp demo`: a private model over 8 agents on a ring, on embedded data, compared with training alone."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from relaydp.cli.options import OUTPUT, RUN, AsJson, Quiet, flag
from relaydp.cli.progress import Report, step_bar

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console

    import relaydp as rd
    from relaydp.engine.solving_alone import Alone
    from relaydp.report import Curve

AGENTS, EPSILON, DELTA = 8, 1.0, 1e-5
MASKED = (4, 1)  # how many agents may collude in the rows with masks
SEEDS, ALONE_SEEDS = 16, 4  # runs of the relay, and of all agents alone, that medians are taken over
BARE = 300  # laps without privacy
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
# Where each stage begins in the whole, as measured once on two busy cores, rounded: for the bar only.
STAGES = (0.1, 0.5, 0.9, 1.0)


def demo(
    figure: Annotated[
        Path | None, flag(OUTPUT, "Draw the comparison into this file (.png, .svg, .pdf).", "FILE")
    ] = None,
    seed: Annotated[int, flag(RUN, "Of the first of the simulations that medians are taken over; default 0.")] = 0,
    json_: AsJson = False,
    quiet: Quiet = False,
) -> dict[str, Any]:
    """Train a private model over 8 agents in a ring, and compare it with no privacy and with training alone.

    \b
    relaydp demo
    relaydp demo --figure demo.png

    It takes some 15 s on two idle cores the first time, and needs no data: 12,000 small pictures come with relaydp.
    The figure takes longer: it shows five budgets.
    """
    from rich.console import Console

    if figure is not None:
        from relaydp.report.figures import check_figure

        check_figure(figure)
    began = time.perf_counter()
    console = Console(quiet=quiet or json_)
    with step_bar(quiet or json_, "reading the data") as report:
        summary = _train(figure, seed, console, report)
    summary["seconds"] = round(time.perf_counter() - began, 2)
    if json_:
        typer.echo(json.dumps(summary, indent=2, allow_nan=False))
    else:
        _print(console, summary)
    return summary


def _train(figure: Path | None, seed: int, console: Console, report: Report) -> dict[str, Any]:
    """Without privacy, with it, and alone; then the figure if one is asked for."""
    import relaydp as rd

    data = rd.load_data("fashion-small")
    # every bound is public: pixels lie in 0..255, and a record longer than 1 is shrunk to 1
    problem = rd.logistic(data, agents=AGENTS, record_norm=1.0)
    # machine code for reading the records takes longer to compile than it would save here
    problem = replace(problem, kernels=False)
    graph, budget = rd.ring(AGENTS), rd.Budget(epsilon=EPSILON, delta=DELTA)
    console.print(
        f"{len(data):,} T-shirts and trousers (Fashion-MNIST, 14 x 14 pixels), {AGENTS} agents on a ring with "
        f"{problem.split.sizes[0]:,} each. One baton goes round; only its holder computes."
    )
    told = (
        f"relay at epsilon {EPSILON:g}",
        f"{SEEDS} seeds of it" if figure is None else f"{SEEDS} seeds, epsilon {EPSILONS[0]:g} to {EPSILONS[-1]:g}",
        f"relay without privacy, and each agent alone at epsilon {EPSILON:g}",
    )
    one, two, three = (report.hops(f"{k + 1}/3  {text}", STAGES[k], STAGES[k + 1]) for k, text in enumerate(told))
    # the table says nothing of the way or of the minimiser; the figure shows the way
    options: dict[str, Any] = dict(transcript=False, reference=False)
    options["trace"] = 2 if figure is None else True

    def compared() -> tuple[rd.Result, Alone, list[Alone]]:
        # the method of the private rows; by default a run without privacy takes RECAL, which is not there yet after 300
        bare = rd.solve(problem, graph, "relay-gradient", activations=BARE, progress=False, **options)
        apart = [rd.solve_alone(problem, budget, seed=seed + k) for k in range(ALONE_SEEDS)]
        return bare, rd.solve_alone(problem, budget), apart

    budgets = [budget] if figure is None else [rd.Budget(epsilon=epsilon, delta=DELTA) for epsilon in EPSILONS]
    seeds = range(seed, seed + SEEDS)

    def masked() -> list[tuple[int, rd.Result, list[rd.Sweep]]]:
        quiet: dict[str, Any] = {"progress": False}
        return [
            (
                t,
                rd.solve(problem, graph, budget=budget, collusion=t, **quiet, **options),
                [rd.sweep(problem, graph, seeds, [each], reference=False, collusion=t, **quiet) for each in budgets],
            )
            for t in MASKED
        ]

    with ThreadPoolExecutor(2) as beside:  # most of it is compilation, which leaves a second core idle
        others, summed = beside.submit(compared), beside.submit(masked)
        one(0, 1)
        private = rd.solve(problem, graph, budget=budget, progress=one, **options)
        two(0, 1)
        runs = [rd.sweep(problem, graph, seeds, [each], reference=False, progress=two) for each in budgets]
        three(0, 1)
        (bare, alone, apart), shared = others.result(), summed.result()
    here = budgets.index(budget)
    with_masks = [(t, result, several[here]) for t, result, several in shared]
    summary = _summary(problem, bare, private, alone, runs[here], with_masks, apart, seed)
    if figure is not None:
        from relaydp.report import draw_demo

        report("drawing")
        summary["medians"] = [row for one in runs for row in one.medians()]
        curves = {
            **{f"masked, t = {t}": _curve(budgets, several) for t, _, several in reversed(shared)},
            "relay, trust in nobody": _curve(budgets, runs),
        }
        curves["each agent alone"] = _curve(budgets, [Accuracies(_alone_accuracies(problem, b)) for b in budgets])
        assert bare.trace is not None and private.trace is not None
        traces = {
            "without privacy": (bare.trace.activations, bare.trace.accuracy),
            f"epsilon {EPSILON:g}": (private.trace.activations, private.trace.accuracy),
        }
        draw_demo(figure, curves, bare.accuracy, traces)
        summary["figure"] = str(figure)
    return summary


def _alone_accuracies(problem: rd.Problem, budget: rd.Budget) -> np.ndarray:
    import numpy as np

    import relaydp as rd

    return np.concatenate([rd.solve_alone(problem, budget, seed=seed).accuracy for seed in range(ALONE_SEEDS)])


class Accuracies(NamedTuple):
    accuracy: np.ndarray


def _curve(budgets: list[rd.Budget], runs: Sequence[Accuracies | rd.Sweep]) -> Curve:
    """Percentiles over the runs of each budget."""
    import numpy as np

    from relaydp.report import Curve

    values = [one.accuracy for one in runs]
    low, middle, high = ([float(np.percentile(v, p)) for v in values] for p in (10, 50, 90))
    return Curve([budget.epsilon for budget in budgets], middle, low, high)


def _summary(
    problem: rd.Problem,
    bare: rd.Result,
    private: rd.Result,
    alone: Alone,
    runs: rd.Sweep,
    shared: list[tuple[int, rd.Result, rd.Sweep]],
    apart: list[Alone],
    seed: int,
) -> dict[str, Any]:
    """`private`, `alone` and the results in `shared` had secret noise and carry a promise; `runs`, `apart` and the
    sweeps in `shared` are simulations of their plans."""
    import numpy as np

    apart_accuracy = np.concatenate([one.accuracy for one in apart])

    def simulated(accuracy: np.ndarray, objective: np.ndarray) -> dict[str, Any]:
        return {
            "accuracy_median": float(np.median(accuracy)),
            "accuracy_min": float(accuracy.min()),
            "accuracy_max": float(accuracy.max()),
            "objective": float(np.median(objective)),
        }

    def private_row(who: str, result: rd.Result, several: rd.Sweep) -> dict[str, Any]:
        return {
            "who": who,
            "accuracy": result.accuracy,
            **simulated(several.accuracy, several.objective),
            "epsilon": result.epsilon,
            "epsilon_paper": result.epsilon_paper,
            "plf": result.plf,
            "messages": result.messages,
        }

    return {
        "data": problem.data.name,
        "agents": AGENTS,
        "graph": private.graph,
        "walk": private.walk,
        "algorithm": private.algorithm,
        "expected_gain": private.plan["expected_gain"],
        "delta": DELTA,
        "seed": seed,
        "rows": [
            {
                "who": "relay, no privacy",
                "accuracy": bare.accuracy,
                "objective": bare.objective,
                "epsilon": None,
                "epsilon_paper": None,
                "plf": bare.plf,
                "messages": bare.messages,
            },
            private_row(f"relay, epsilon {EPSILON:g}", private, runs),
            *(private_row(f"masked, t = {t}", result, several) for t, result, several in shared),
            {
                "who": f"alone, epsilon {EPSILON:g}",
                "accuracy": float(np.median(alone.accuracy)),
                **simulated(apart_accuracy, np.concatenate([one.objective for one in apart])),
                "epsilon": alone.epsilon,
                "epsilon_paper": alone.epsilon_paper,
                "plf": alone.plf,
                "messages": 0,
            },
        ],
        "seeds": SEEDS,
        "alone_seeds": ALONE_SEEDS,
    }


def _print(console: Console, summary: dict[str, Any]) -> None:
    from rich.table import Table

    from relaydp.report import expectation

    table = Table(title=f"{summary['data']}, {summary['graph']}, delta {summary['delta']:g}", title_justify="left")
    for name in ("", "accuracy", "median", "loss F", "epsilon", "PLF", "messages"):  # 80 columns have room for these
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    for row in summary["rows"]:
        table.add_row(
            row["who"],
            f"{row['accuracy']:.4f}",
            f"{row['accuracy_median']:.4f}" if "accuracy_median" in row else "",
            f"{row['objective']:.4f}",
            "none" if row["epsilon"] is None else f"{row['epsilon']:.3f}",
            str(row["plf"]),
            str(row["messages"]),
        )
    console.print(table)
    relay, alone = summary["rows"][1], summary["rows"][-1]
    console.print(
        f"accuracy is this run's: private, with secret noise, another one each time (alone: the median of {AGENTS} "
        f"agents). median, and loss, are of simulations: the relay's over {SEEDS} seeds "
        f"({relay['accuracy_min']:.4f} to {relay['accuracy_max']:.4f}), alone over {AGENTS} agents and {ALONE_SEEDS} "
        f"seeds ({alone['accuracy_min']:.4f} to {alone['accuracy_max']:.4f})."
    )
    console.print(
        f"epsilon is exact; by the paper's formula the same noise costs {relay['epsilon_paper']:.3f} (relay) and "
        f"{alone['epsilon_paper']:.3f} (alone). It covers every record of every agent against all who see the batons, "
        "the other agents included, and in the rows called masked against any t of them. Each private row is a release "
        "of its own: on records of yours their costs would add up. Accuracy (test records) and loss are the demo's own "
        "measurement and not covered."
    )
    console.print(f"Before the run: {expectation.tell_expected(summary['expected_gain'])}")
    if "figure" in summary:
        console.print(f"Figure: {summary['figure']}")
    console.print(f"{summary['seconds']:.1f} s on this machine.", style="dim")
