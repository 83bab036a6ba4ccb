"""What a trusted curator, who has all records in one place, gets for the same budget: the mark the relay is held to.

    python benchmarks/curators.py              four data sets, five budgets, 8 seeds, into runs/curators: half an hour
    python benchmarks/curators.py --quick      one embedded data set, one budget, 2 seeds: half a minute

All are planned for the least F (`objective="loss"`); benchmarks/accuracy.py compares what is planned for accuracy.

Setting: 8 agents, rows of norm 1 at most, l2 = 0.01, delta = 1e-5, logistic loss and least squares. For each budget:

    no privacy                 the certified optimum, and its accuracy on the test records
    x = 0                      what needs no record and no budget: a method that ends above it did harm
    DP gradient descent        `solve_alone` with one agent that holds all m records: clipped mean gradient, Gaussian
                               noise for a sensitivity of 2c/m, exact accountant; steps and T from public facts alone
      best T (oracle)          the same with the best of that T and BEST_OF by the median objective. Choosing so looks
                               at the records and is not paid for: it shows what a better rule could bring, no more
    objective perturbation     diffprivlib's LogisticRegression, in an environment and process of its own. It promises
                               more: PURE epsilon-DP, delta = 0, whose noise grows like the dimension, not like its root
    AdaSSP                     for least squares: the moments A'A and A'b released once, then solved (below)
    each agent alone           no curator and no messages; per seed the mean over the agents
    relay                      `sweep` of recal on a ring, cyclic walk: nobody is trusted

For all of them a neighbour has one record replaced. "Relay" and "alone" protect it from the other agents too, the
curators' methods from everybody but the curator. A curator minimises the mean over all records, which is F where the
agents hold equally many; all are measured by the problem's own F.

To expect: n agents with m/n records each need n times the noise each, and averaging n of them leaves sqrt(n) times the
curator's. Where noise decides, and at the same T, the relay's excess is therefore n times the curator's, here 8.

Opacus would be the usual DP gradient descent. It needs torch, and with full batches it computes what ours does, so ours
stands in for it, with the same accountant as the relay; its sampled batches are not represented.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh, solve

import relaydp as rd
from relaydp.privacy import Ledger, gaussian_scale
from relaydp.problem.partition import Split
from relaydp.result import versions

ROOT = Path(__file__).parent.parent
DATASETS = ("ijcnn1", "mnist", "fashion", "cifar10")
EPSILONS, DELTA = (0.1, 0.5, 1.0, 2.0, 12.0), 1e-5
AGENTS, L2 = 8, 0.01
BEST_OF = (5, 20, 80)  # the T that the oracle looks through: few, some, many
PINS = ("diffprivlib==0.6.6", "scikit-learn==1.6.1", "scipy==1.15.3", "numpy==2.2.6")  # scikit-learn 1.8 breaks it
VARIABLE = "RELAYDP_DIFFPRIVLIB_PYTHON"

REPLACE_ONE = "(epsilon, delta)-DP, one record replaced"
PURE = "pure epsilon-DP (delta = 0), one record replaced"
PROPOSED, ORACLE = "DP gradient descent", "DP gradient descent, best T (oracle)"
PERTURBED, ADASSP = "objective perturbation (diffprivlib, pure epsilon)", "AdaSSP"
ALONE, RELAY = "each agent alone", "relay (recal, cyclic ring)"
OPTIMUM, NOTHING = "no privacy", "x = 0, no record used"


# -- the problems


def make_problem(name: str, loss: str) -> rd.Problem:
    """The setting of the table; a label of least squares is -1 or +1, so label_bound = 1 is public."""
    if loss == "logistic":
        return rd.logistic(name, agents=AGENTS, l2=L2, record_norm=1.0)
    return rd.least_squares(name, agents=AGENTS, l2=L2, record_norm=1.0, label_bound=1.0)


def gathered(problem: rd.Problem) -> rd.Problem:
    """The same problem with one agent, the curator, who holds everybody's records."""
    order = problem.split.order
    return replace(problem, split=Split(order, np.array([len(order)]), ("curator",)))


def all_records(curator: rd.Problem) -> tuple[np.ndarray, np.ndarray]:
    """Features as the loss sees them (scaled, shrunk to the record norm), and labels."""
    agent_records = curator.working_records.dense()
    return np.asarray(agent_records.X), np.asarray(agent_records.y)


# -- AdaSSP


FAILURE = 0.05  # Wang's chance, by his tail bound, that noise leaves the system without a solution


class Moments(NamedTuple):
    """What least squares needs of the records: exact, or as released."""

    smallest: float  # lambda_min(A'A)
    gram: np.ndarray  # A'A
    cross: np.ndarray  # A'b


def exact_moments(A: np.ndarray, b: np.ndarray, label_bound: float) -> Moments:
    gram = A.T @ A
    smallest = eigh(gram, eigvals_only=True, subset_by_index=[0, 0])[0]
    return Moments(float(smallest), gram, A.T @ np.clip(b, -label_bound, label_bound))


def moment_scales(record_norm: float, label_bound: float, budget: rd.Budget) -> np.ndarray:
    """Standard deviations of the noise on the three moments, a third of rho each.

    Replace record (a, b) by (c, d), norms at most B and labels at most Y:

        lambda_min   B^2           removing aa' lowers it by at most B^2, adding cc' raises it by at most B^2
        A'A          sqrt(2) B^2   ||cc' - aa'||_F^2 = ||c||^4 + ||a||^4 - 2 (a'c)^2
        A'b          2 B Y

    Wang's paper adds or removes a record instead: B^2, B^2 and B Y. Ours is the promise every other line here makes.
    """
    B, Y = record_norm, label_bound
    sensitivity = np.array([B**2, math.sqrt(2.0) * B**2, 2.0 * B * Y])
    scales = gaussian_scale(sensitivity, budget.rho / 3.0)
    Ledger(1, budget.rho).charge_many(0, np.arange(3), sensitivity, scales)  # refuses what the budget does not cover
    return scales


def release_moments(exact: Moments, scales: np.ndarray, draw: np.random.Generator) -> Moments:
    """The three moments with their noise; A'A's is drawn on and above the diagonal and mirrored."""
    q = len(exact.cross)
    upper = np.triu(draw.normal(size=(q, q)))
    return Moments(
        exact.smallest + scales[0] * draw.normal(),
        exact.gram + scales[1] * (upper + np.triu(upper, 1).T),
        exact.cross + scales[2] * draw.normal(size=q),
    )


def solve_moments(noisy: Moments, scales: np.ndarray, ridge: float, delta: float) -> np.ndarray:
    """AdaSSP's answer from released moments: post-processing.

        (1)  l~   = max(0, lambda_min + noise - s_1 sqrt(ln(6/delta)))          with high probability below lambda_min
        (2)  more = max(0, s_2 sqrt(q ln(2 q^2/p)) - l~ - ridge)                what the noise on A'A might take away
        (3)  x    = (A'A + noise + (ridge + more) I)^-1 (A'b + noise)

    Wang 2018, arXiv 1803.02596, algorithm 2, has ridge = 0. Ours is m l2, which F wants anyway; it is public and lifts
    the smallest eigenvalue, so (2) counts it.
    """
    q = len(noisy.cross)
    least = max(0.0, noisy.smallest - scales[0] * math.sqrt(math.log(6.0 / delta)))  # (1)
    more = max(0.0, scales[1] * math.sqrt(q * math.log(2.0 * q**2 / FAILURE)) - least - ridge)  # (2)
    return solve(noisy.gram + (ridge + more) * np.eye(q), noisy.cross, assume_a="sym")  # (3)


def adassp(curator: rd.Problem, budget: rd.Budget, seeds: Iterable[int]) -> np.ndarray:
    """(seeds, dim): AdaSSP's models of least squares on the curator's records. (epsilon, delta)-DP, replace one."""
    assert curator.record_norm is not None and curator.label_bound is not None
    A, b = all_records(curator)
    exact = exact_moments(A, b, curator.label_bound)
    scales = moment_scales(curator.record_norm, curator.label_bound, budget)
    draws = (np.random.default_rng(seed) for seed in seeds)
    ridge = len(A) * curator.l2
    return np.stack([solve_moments(release_moments(exact, scales, d), scales, ridge, budget.delta) for d in draws])


# -- the other curators


def descend(
    curator: rd.Problem, budget: rd.Budget, seeds: Iterable[int], activations: int | None = None
) -> tuple[np.ndarray, int]:
    """(seeds, dim) and T: DP gradient descent on the curator's records, tuned from public facts."""
    runs = [rd.solve_alone(curator, budget, activations=activations, objective="loss", seed=seed) for seed in seeds]
    return np.concatenate([run.x for run in runs]), runs[0].plf


def peer_python(make: bool = False) -> Path | None:
    """diffprivlib's own environment: $RELAYDP_DIFFPRIVLIB_PYTHON, or .peers/diffprivlib; None where there is none."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given)
    home = ROOT / ".peers" / "diffprivlib"
    python = home / "bin" / "python"
    if make and not python.exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        if subprocess.run([python, "-m", "pip", "install", "-q", *PINS]).returncode:
            shutil.rmtree(home)
    return python if python.exists() else None


def takes_diffprivlib(problem: rd.Problem) -> bool:
    """Whether F is what diffprivlib minimises: two classes, a ridge, no r, no intercept, a bound on the norm."""
    plain = problem.loss.name == "logistic" and problem.regulariser.kind == "none" and not problem.intercept
    return plain and problem.l2 > 0 and problem.record_norm is not None


def takes_adassp(problem: rd.Problem) -> bool:
    """Whether F is what AdaSSP solves: least squares, no r, no intercept, bounds on norm and label."""
    plain = problem.loss.name == "least-squares" and problem.regulariser.kind == "none" and not problem.intercept
    return plain and problem.record_norm is not None and problem.label_bound is not None


def perturb_objective(
    curator: rd.Problem, epsilon: float, seeds: Sequence[int], python: Path
) -> tuple[np.ndarray, dict[str, str]]:
    """(seeds, dim) and versions: diffprivlib's models of the curator's records. Pure epsilon-DP."""
    assert curator.record_norm is not None
    A, y = all_records(curator)
    # Rows of norm 1, by a change of variable: for other norms q diffprivlib counts a curvature of q/4 instead of q^2/4.
    B = curator.record_norm
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "problem.npz"
        np.savez(file, X=A / B, y=y, l2=curator.l2 / B**2, epsilon=epsilon, seeds=np.asarray(seeds))
        script = ROOT / "benchmarks" / "diffprivlib_run.py"
        done = subprocess.run([python, script, file], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"diffprivlib failed in {python}:\n{done.stderr}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return np.asarray(found["x"]) / B, found["versions"]


# -- rows


def curator_rows(
    problem: rd.Problem,
    budget: rd.Budget,
    seeds: Iterable[int] = range(8),
    *,
    best_of: Sequence[int] = (),
    python: Path | None = None,
) -> list[dict[str, Any]]:
    """One row a baseline, for one budget: medians and quartiles of test accuracy and excess objective over the seeds.

    best_of    the T that the oracle may choose from beside the rule's; none, and its row is left out
    python     diffprivlib's interpreter; default: `peer_python()`. Where there is none its row is left out

    >>> rows = curator_rows(make_problem("fashion-small", "logistic"), rd.Budget(1.0, 1e-5), seeds=range(2))
    >>> [row["method"] for row in rows][:2]
    ['no privacy', 'x = 0, no record used']
    """
    numbers, curator = [int(seed) for seed in seeds], gathered(problem)
    began = time.perf_counter()
    rows = [_row(problem, OPTIMUM, None, [rd.minimise(problem).x], "none", began)]
    rows.append(_row(problem, NOTHING, None, np.zeros((1, problem.dim)), "nothing is released", time.perf_counter()))

    began = time.perf_counter()
    x, T = descend(curator, budget, numbers)
    rows.append(_row(problem, PROPOSED, budget, x, REPLACE_ONE, began, T=T))
    if best_of:
        began = time.perf_counter()
        tried = [(x, T), *(descend(curator, budget, numbers, other) for other in best_of if other != T)]
        x, T = min(tried, key=lambda run: float(np.median(problem.objectives(run[0]))))
        rows.append(_row(problem, ORACLE, budget, x, f"{REPLACE_ONE}, for each T alone: choosing it leaks", began, T=T))
    python = python or peer_python()
    if takes_diffprivlib(problem) and python is not None:
        began = time.perf_counter()
        x, peer = perturb_objective(curator, budget.epsilon, numbers, python)
        rows.append(_row(problem, PERTURBED, budget, x, PURE, began, versions=peer))
    if takes_adassp(problem):
        began = time.perf_counter()
        rows.append(_row(problem, ADASSP, budget, adassp(curator, budget, numbers), REPLACE_ONE, began))

    began = time.perf_counter()
    runs = [rd.solve_alone(problem, budget, objective="loss", seed=seed) for seed in numbers]
    x = np.stack([run.x for run in runs])
    rows.append(_row(problem, ALONE, budget, x, REPLACE_ONE, began, T=runs[0].plf))
    return rows


def relay_row(problem: rd.Problem, budget: rd.Budget, seeds: Iterable[int]) -> dict[str, Any]:
    """The decentralised run that the curators stand beside."""
    began = time.perf_counter()
    graph = rd.ring(problem.agents)
    runs = rd.sweep(problem, graph, seeds, [budget], walk="cyclic", objective="loss", progress=False)
    return _row(problem, RELAY, budget, runs.x, REPLACE_ONE, began, T=int(runs.plf[0]))


def _row(
    problem: rd.Problem, method: str, budget: rd.Budget | None, x: Any, guarantee: str, began: float, **more: Any
) -> dict[str, Any]:
    """Measure models (seeds, dim), or (seeds, agents, dim) to be averaged over the agents."""
    models = np.asarray(x)
    flat = models.reshape(-1, models.shape[-1])
    excess = problem.objectives(flat) - rd.minimise(problem).value
    accuracy = np.full(len(flat), np.nan)
    if problem.classifies:
        accuracy = np.where(np.isfinite(flat).all(axis=1), problem.accuracies(flat), np.nan)  # NaN: it diverged
    row: dict[str, Any] = {
        "data": problem.data.name,
        "loss": problem.loss.name,
        "method": method,
        "epsilon": None if budget is None else budget.epsilon,
        "delta": None if budget is None else 0.0 if guarantee == PURE else budget.delta,
        "guarantee": guarantee,
        "runs": len(models),
    }
    for name, values in (("accuracy", accuracy), ("excess", excess)):
        low, middle, high = np.percentile(values.reshape(len(models), -1).mean(axis=1), [25, 50, 75])
        row |= {name: _number(middle), f"{name}_quartiles": [_number(low), _number(high)]}
    return row | more | {"seconds": time.perf_counter() - began}


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None  # JSON has no NaN


# -- the table


def markdown(rows: list[dict[str, Any]]) -> str:
    """A table of accuracies and one of excess objectives for every data set and loss: methods by budgets."""
    parts = []
    for data, loss in dict.fromkeys((row["data"], row["loss"]) for row in rows):
        mine = [row for row in rows if (row["data"], row["loss"]) == (data, loss)]
        budgets = [e for e in dict.fromkeys(row["epsilon"] for row in mine) if e is not None]
        for name, what in (("accuracy", "test accuracy"), ("excess", "excess objective F(x) - F(x*)")):
            parts.append(f"### {data}, {loss}: {what}, median (quartiles)\n")
            parts.append("| | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in budgets) + " |")
            parts.append("|---" * (len(budgets) + 1) + "|")
            for method in dict.fromkeys(row["method"] for row in mine):
                at = {row["epsilon"]: row for row in mine if row["method"] == method}
                cells = [_cell(at.get(epsilon, at.get(None)), name) for epsilon in budgets]
                parts.append(f"| {method} | " + " | ".join(cells) + " |")
            parts.append("")
    return "\n".join(parts)


def _cell(row: dict[str, Any] | None, name: str) -> str:
    if row is None or row[name] is None:
        return "-"
    form = "{:.4f}" if name == "accuracy" else "{:.1e}"
    if row["epsilon"] is None:
        return form.format(row[name])
    low, high = row[f"{name}_quartiles"]
    return form.format(row[name]) + f" ({form.format(low)} to {form.format(high)})"


def machine() -> dict[str, Any]:
    return {**versions(), "cores": os.cpu_count(), "system": platform.platform()}


def main() -> None:
    parser = argparse.ArgumentParser(description="What a trusted curator gets for the same budget.")
    parser.add_argument("--datasets", nargs="+", default=DATASETS)
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=8, help="how many")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "runs" / "curators", help="folder for the JSON and the table"
    )
    parser.add_argument("--quick", action="store_true", help="fashion-small, epsilon 1, 2 seeds, no oracle")
    asked = parser.parse_args()
    if asked.quick:
        asked.datasets, asked.epsilons, asked.seeds = ("fashion-small",), (1.0,), 2
    best_of = () if asked.quick else BEST_OF
    python = peer_python(make=True)
    if python is None:
        print("no environment for diffprivlib could be made (no registry, or a Python too new): its rows are left out.")
    about = {"agents": AGENTS, "l2": L2, "record_norm": 1.0, "delta": DELTA, "seeds": asked.seeds, "machine": machine()}
    print(", ".join(f"{name} {value}" for name, value in about["machine"].items()), flush=True)
    asked.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for data in asked.datasets:
        for loss in ("logistic", "least-squares"):
            problem = make_problem(data, loss)
            for epsilon in asked.epsilons:
                budget = rd.Budget(epsilon, DELTA)
                new = curator_rows(problem, budget, range(asked.seeds), best_of=best_of, python=python)
                new.append(relay_row(problem, budget, range(asked.seeds)))
                if epsilon != asked.epsilons[0]:
                    new = [row for row in new if row["epsilon"] is not None]  # those once
                rows += new
                for row in new:
                    spent = "" if row["epsilon"] is None else f" epsilon {row['epsilon']:g}"
                    print(f"{data}, {loss},{spent} {row['method']}: {_cell(row, 'accuracy')}, {_cell(row, 'excess')}")
                print(end="", flush=True)
            # after every problem, so that a run cut short leaves what it has
            (asked.out / "curators.json").write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")
            (asked.out / "curators.md").write_text(markdown(rows))
    print(markdown(rows))


if __name__ == "__main__":
    main()
