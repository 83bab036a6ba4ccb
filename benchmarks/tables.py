"""What the scaling of a table is worth: accuracy and AUC of private models over one-hot encoded tables.

    python benchmarks/tables.py                     both tables, three budgets, 8 seeds: about ten minutes on 2 cores
    python benchmarks/tables.py --data census --seeds 2
    python benchmarks/tables.py --constants         also: how large the constant that an intercept adds should be

Tables: `bank` (RELAYDP_DATA/bank-full.csv.gz: will a client subscribe; without the call's duration, which is known only
afterwards; a fifth of the records, drawn once, for testing) and `census`, which is generated here: 24,000 records and
8,000 for testing, 5 numbers and 7 categories in 82 columns, of which most are 0 for nearly everybody. Bounds and
categories are those below, written down without the records. 8 sites of equal size, logistic loss, intercept, l2 = 0,
delta 1e-5, walk "tour".

Scalings (`relaydp.problem.bounds` has the new one, which is all that relaydp does now):

    centred   every column from its bounds to [-1, 1], its middle at 0; record norm sqrt(q). The estimators' until 0.1
    unit      every column from its bounds to [0, 1]; record norm sqrt(q). That of `ranges` until 0.1
    bare      0 stays 0, columns that are never 0 are centred; record norm sqrt(q). `ranges` alone
    typical   the same with the norm guessed from the bounds: the estimators' default, record_norm="typical" elsewhere
    groups    the same with the one-hot columns declared (`one_hot`): record norm sqrt(numbers + categories)

One row is `typical` planned for the least F (`objective="loss"`), where AUC matters more than accuracy. An estimator is
against readers of what is published; other rows are against all other sites together (nobody), or against any one of
them (collusion=1). The last is diffprivlib, a trusted curator's, on `typical` features: accuracy alone, of pure epsilon
(delta 0), where its environment is (`--peer` makes it; benchmarks/curators.py).
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import statistics
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from curators import peer_python
from sklearn.metrics import roc_auc_score

import relaydp as rd

EPSILONS, DELTA, SITES = (0.1, 0.5, 1.0), 1e-5, 8
CONSTANTS = (0.25, 1.0, 2.0, 4.0)  # 1 is what an intercept adds

BANK_NUMBERS = {
    "age": (18, 100),
    "balance": (-5000, 20000),
    "day": (1, 31),
    "campaign": (1, 20),
    "pdays": (-1, 900),
    "previous": (0, 20),
}
BANK_CATEGORIES = {
    "job": "admin. blue-collar entrepreneur housemaid management retired self-employed services student technician "
    "unemployed unknown",
    "marital": "divorced married single",
    "education": "primary secondary tertiary unknown",
    "default": "no yes",
    "housing": "no yes",
    "loan": "no yes",
    "contact": "cellular telephone unknown",
    "month": "jan feb mar apr may jun jul aug sep oct nov dec",
    "poutcome": "failure other success unknown",
}
CENSUS_NUMBERS = {"age": (17, 90), "schooling": (1, 16), "gain": (0, 100_000), "loss": (0, 5000), "hours": (1, 99)}
CENSUS_SIZES = {"work": 8, "marital": 7, "job": 14, "family": 6, "origin": 5, "sex": 2, "country": 40}


class Table(NamedTuple):
    """Records with one-hot columns, split into those that are trained on and those that are tested on."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    columns: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray
    groups: list[str]  # the first part of their columns' names


class Scaled(NamedTuple):
    """What one scaling gives the estimators and the problems: records, bounds and declared groups."""

    X: np.ndarray
    X_test: np.ndarray
    bounds: tuple[Any, Any]
    groups: list[str] | None
    norm: float | str


def make_table(frame: pd.DataFrame, y: np.ndarray, numbers: dict[str, Any], categories: dict[str, list[str]]) -> Table:
    """One-hot columns for public lists of categories: nothing is looked up in the records."""
    parts, columns = [frame[list(numbers)].to_numpy(float)], list(numbers)
    for name, values in categories.items():
        parts.append((frame[name].to_numpy()[:, None] == np.array(values)).astype(float))
        columns += [f"{name}_{value}" for value in values]
    X, count = np.hstack(parts), len(columns) - len(numbers)
    low = np.array([low for low, _ in numbers.values()] + [0.0] * count)
    high = np.array([high for _, high in numbers.values()] + [1.0] * count)
    order = np.random.default_rng(0).permutation(len(X))
    train = len(X) * 3 // 4 if len(X) == 32_000 else len(X) * 4 // 5
    train -= train % SITES
    kept, held = order[:train], order[train:]
    return Table(X[kept], y[kept], X[held], y[held], tuple(columns), low, high, list(categories))


def bank() -> Table:
    path = Path(os.environ.get("RELAYDP_DATA", "data")) / "bank-full.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        frame = pd.read_csv(file)
    categories = {name: values.split() for name, values in BANK_CATEGORIES.items()}
    return make_table(frame, (frame["y"] == "yes").to_numpy(int), BANK_NUMBERS, categories)


def census(records: int = 32_000) -> Table:
    """A table like a census: an income above a line, by a known model of all columns; a quarter are above."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "age": rng.gamma(8, 2.7, records) + 17,
            "schooling": rng.normal(10, 2.5, records).round(),
            "gain": np.where(rng.random(records) < 0.08, rng.lognormal(8.8, 0.9, records), 0.0),
            "loss": np.where(rng.random(records) < 0.05, rng.normal(1900, 300, records), 0.0),
            "hours": rng.normal(40, 12, records).round(),
        }
    )
    score = 0.03 * (frame["age"] - 38) + 0.3 * (frame["schooling"] - 10) + 0.03 * (frame["hours"] - 40)
    score += 0.00015 * frame["gain"] + 0.0006 * frame["loss"]
    categories = {name: [str(k) for k in range(size)] for name, size in CENSUS_SIZES.items()}
    for name, size in CENSUS_SIZES.items():
        share = 1.0 / np.arange(1, size + 1) ** (3.0 if name == "country" else 1.0)  # most are of one country
        drawn = rng.choice(size, records, p=share / share.sum())
        frame[name] = drawn.astype(str)
        weight = {"country": 0.3, "family": 1.5, "marital": 1.2}.get(name, 0.7)
        score += (weight * rng.normal(size=size))[drawn]
    line = np.quantile(score, 0.8)
    y = (1.3 * (score - line) + rng.logistic(size=records) > 0).astype(int)
    return make_table(frame, y, CENSUS_NUMBERS, categories)


TABLES: dict[str, Callable[[], Table]] = {"bank": bank, "census": census}


def scaled(table: Table, name: str) -> Scaled:
    low, high, longest = table.low, table.high, math.sqrt(len(table.columns))
    if name == "groups":
        norm = math.sqrt(sum("_" not in column for column in table.columns) + len(table.groups))
        return Scaled(table.X, table.X_test, (low, high), table.groups, norm)
    if name in ("bare", "typical"):
        return Scaled(table.X, table.X_test, (low, high), None, longest if name == "bare" else "typical")
    centre, half = ((low + high) / 2, (high - low) / 2) if name == "centred" else (low, high - low)
    X, X_test = ((np.clip(part, low, high) - centre) / half for part in (table.X, table.X_test))
    return Scaled(X, X_test, (-1.0 if name == "centred" else 0.0, 1.0), None, longest)


def by_estimator(table: Table, form: Scaled, epsilon: float, seed: int, **whom: Any) -> np.ndarray:
    """Scores of the test records: above 0 for the second class."""
    model = rd.RelayLogisticRegression(
        epsilon=epsilon, delta=DELTA, agents=SITES, bounds=form.bounds, one_hot=form.groups, record_norm=form.norm,
        classes=[0, 1], l2=0.0, random_state=seed, **whom,
    )  # fmt: skip
    train, test = (pd.DataFrame(part, columns=list(table.columns)) for part in (form.X, form.X_test))
    return model.fit(train, table.y).decision_function(test)


def by_diffprivlib(table: Table, epsilon: float, seeds: int, python: Path) -> float:
    """The median accuracy of its logistic regression, which needs features of norm 1 at most."""
    form = scaled(table, "typical")
    problem = rd.logistic(rd.Records(form.X, table.y), 1, ranges=form.bounds, record_norm=form.norm)
    norm = problem.record_norm or 1.0
    X, X_test = (problem._features(rd.Records(part, np.zeros(len(part)))) / norm for part in (form.X, form.X_test))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "problem.npz"
        known = {"kind": "logistic", "epsilon": epsilon, "seeds": np.arange(seeds)}
        np.savez(file, X=X, y=table.y, X_test=X_test, y_test=table.y_test, **known)
        script = Path(__file__).parent / "diffprivlib_run.py"
        done = subprocess.run([python, script, file], capture_output=True, text=True, check=True)
    return statistics.median(json.loads(done.stdout.strip().splitlines()[-1])["scores"])


def by_solve(table: Table, form: Scaled, epsilon: float, seed: int, objective: str | None = None) -> np.ndarray:
    data = rd.Records(form.X, table.y, columns=table.columns, classes=(0, 1))
    problem = rd.logistic(data, SITES, intercept=True, ranges=form.bounds, one_hot=form.groups, record_norm=form.norm)
    asked = {"walk": "tour", "transcript": False, "trace": False, "reference": False, "progress": False}
    budget = rd.Budget(epsilon, DELTA)
    result = rd.solve(problem, rd.ring(SITES), budget=budget, seed=seed, objective=objective, **asked)
    return scores(problem, result.x, form.X_test)


def scores(problem: rd.Problem, x: np.ndarray, X: np.ndarray) -> np.ndarray:
    A = problem._features(rd.Records(X, np.zeros(len(X))))
    return A @ x[: A.shape[1]] + (x[A.shape[1]] if problem.intercept else 0.0)


def without_privacy(table: Table) -> np.ndarray:
    form = scaled(table, "bare")
    problem = rd.logistic(rd.Records(form.X, table.y), SITES, l2=1e-4, intercept=True, ranges=form.bounds)
    return scores(problem, rd.minimise(problem).x, form.X_test)


def with_constant(table: Table, constant: float, epsilon: float, seed: int) -> np.ndarray:
    """As `typical`, with a column of this size instead of the intercept's 1."""
    form = scaled(table, "typical")
    bare = rd.logistic(rd.Records(form.X, table.y), SITES, ranges=form.bounds, record_norm=form.norm)
    norm = bare.record_norm or 0.0
    columns = [
        np.column_stack([bare._features(rd.Records(X, np.zeros(len(X)))), np.full(len(X), constant)])
        for X in (table.X, table.X_test)
    ]
    data = rd.Records(columns[0], table.y, classes=(0, 1))
    problem = rd.logistic(data, SITES, record_norm=math.sqrt(norm**2 + constant**2))
    asked = {"walk": "tour", "transcript": False, "trace": False, "reference": False, "progress": False}
    result = rd.solve(problem, rd.ring(SITES), budget=rd.Budget(epsilon, DELTA), seed=seed, **asked)
    return columns[1] @ result.x


def measured(table: Table, found: Sequence[np.ndarray]) -> tuple[float, float]:
    """Accuracy and AUC: medians over runs."""
    right = [float(((z > 0) == (table.y_test > 0)).mean()) for z in found]
    return statistics.median(right), statistics.median(float(roc_auc_score(table.y_test, z)) for z in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--epsilon", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--constants", action="store_true")
    parser.add_argument("--peer", action="store_true", help="make diffprivlib's environment, if there is none")
    parser.add_argument("--trust", action="store_true", help="the estimator's rows alone, against whom")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    ways: list[tuple[str, Callable[..., np.ndarray], tuple[Any, ...]]] = []
    for way, run, names in (
        ("estimator", by_estimator, ("centred", "bare", "typical", "groups")),
        ("solve", by_solve, ("unit", "typical", "groups")),
    ):
        ways += [
            (f"{way}, {name}", lambda t, e, s, run=run, name=name: run(t, scaled(t, name), e, s), ()) for name in names
        ]
    for title, whom in (("nobody", {"trust": "nobody"}), ("collusion=1", {"collusion": 1})):
        ways.append((f"typical, {title}", lambda t, e, s, w=whom: by_estimator(t, scaled(t, "typical"), e, s, **w), ()))
    if asked.trust:
        ways = [way for way in ways if way[0] in ("estimator, typical", "typical, nobody", "typical, collusion=1")]
    ways.append(("solve, typical, for F", lambda t, e, s: by_solve(t, scaled(t, "typical"), e, s, "loss"), ()))
    if asked.constants:
        ways += [
            (f"typical, constant {size:g}", lambda t, e, s, size=size: with_constant(t, size, e, s), ())
            for size in CONSTANTS
        ]
    for name in asked.data:
        table = TABLES[name]()
        m, q = table.X.shape
        print(f"\n{name}: {m:,} records, {q} columns, {len(table.y_test):,} for testing; accuracy / AUC", flush=True)
        most = max(table.y_test.mean(), 1 - table.y_test.mean())
        right, area = measured(table, [without_privacy(table)])
        print(f"  majority class {most:.4f} / 0.5; no privacy {right:.4f} / {area:.4f}", flush=True)
        for way, run, rest in ways:
            cells, began = [], time.perf_counter()
            for epsilon in asked.epsilon:
                right, area = measured(table, [run(table, epsilon, seed, *rest) for seed in range(asked.seeds)])
                cells.append(f"{right:.4f} / {area:.4f}")
            print(f"  {way:22} {'   '.join(cells)}   ({time.perf_counter() - began:.0f} s)", flush=True)
        if (python := peer_python(asked.peer)) is not None:
            found = [by_diffprivlib(table, epsilon, asked.seeds, python) for epsilon in asked.epsilon]
            print(f"  {'diffprivlib':22} {'            '.join(f'{one:.4f}' for one in found)}", flush=True)


if __name__ == "__main__":
    main()
