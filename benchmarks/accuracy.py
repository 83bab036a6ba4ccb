"""How good is the rule for accuracy (`relaydp.planning.accuracy`), and what does a budget buy with it?

    python benchmarks/accuracy.py search            93 problems, 10 budgets, 72 settings: two hours on two cores
    python benchmarks/accuracy.py search --held-back          the 29 problems that were held back alone
    python benchmarks/accuracy.py search --held-back --coarse     the same with 3 budgets and 36 settings
    python benchmarks/accuracy.py search --rule-alone         what the forecast is made of: a quarter of an hour
    python benchmarks/accuracy.py search --quick    five problems and few settings: a minute or two on two cores
    python benchmarks/accuracy.py bars              the tables of docs/measurements.md: minutes on two cores
    python benchmarks/accuracy.py bars --quick      one embedded data set and one small table, 2 seeds

`search` is where the rule's constants come from. On each of the problems of `accuracy_problems.py`, for every budget,
it runs the method of `algorithm.relay_gradient` with

    grid       with a first lap that prepares and without one, every number of laps, clip and product of step and noise
               of a grid; the best are run again with fresh seeds, and the best of those counts. It is chosen with the
               held-out records, which nobody could do
    rule       exactly what the rule plans

and prints the regret: accuracy of the grid's best minus the rule's, medians over the seeds. "Best elsewhere" is the
regret of the grid's setting that is best on average over the other problems at similar noise. The shares of what a
model without privacy gains over the most frequent class are the table `GAINS` of the rule's module. One party has the
records, or eight have them that trust nobody, which changes the noise and nothing else. The last line says by which
factor on the rule's models their log-loss would be least: 1 where the rule gets their length right.

`bars` reports on other data: the median and the range of test accuracies over seeds, with the default method, with
`objective="loss"`, and of each agent alone, beside the most frequent class, no privacy, and the range that was
forecast. No privacy is scikit-learn's logistic regression on the same features, with the ridge that does best on a
fifth of the training records.

Its small tables are divided among few and many parties. diabetes is a regression: its rows have R^2 instead, 1 - mean
squared error / variance of the held-out labels, for which the mean, 0, stands in place of the most frequent class, and
least squares is no privacy. Beside them is what a trusted curator gets who has all records in one place: diffprivlib's
models on the same features, made in an environment of their own (`curators.peer_python`; with --quick only where there
is one already). diffprivlib promises pure epsilon (delta = 0), which is more, by its own account.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import accuracy_problems
import jax
import jax.numpy as jnp
import numpy as np
from accuracy_problems import Development
from curators import all_records, peer_python
from jax import Array
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LogisticRegression

import relaydp as rd
from relaydp.errors import RelayError
from relaydp.planning.accuracy import GAINS, MOMENTUM, STRETCH, Rule, noise_of, rule_for
from relaydp.problem.coordinates import KEPT, find_coordinates
from relaydp.result import versions

DELTA = 1e-5
RIDGES = (1e-3, 1e-4, 1e-5, 1e-6)  # of models without privacy
TABLES, QUICK_TABLES = "fashion,mnist,cifar10,ijcnn1", "fashion-small"
SMALL, QUICK_SMALL = "breast-cancer,digits,diabetes,bank", "breast-cancer"
EPSILONS, SMALL_EPSILONS, PARTIES = (0.1, 0.5, 1.0), (0.1, 1.0, 10.0), (2, 8, 32)
# Public bounds of diabetes: age, sex, body mass index, blood pressure, six of blood serum; and of what is predicted.
DIABETES = ((18, 1, 15, 60, 90, 40, 20, 2, 3, 50), (80, 2, 50, 140, 310, 250, 100, 10, 6.5, 130))
PROGRESSION = (25.0, 346.0)


# -- the search


class Grid(NamedTuple):
    """What is tried."""

    epsilons: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0, 3.0)
    parties: tuple[int, ...] = (1, 8)
    laps: tuple[int, ...] = (50, 100)
    clips: tuple[float, ...] = (0.1, 0.2, 0.4)  # as shares of the largest gradient
    reaches: tuple[float, ...] = tuple(2.0**k for k in range(-7, -1))  # step x noise
    firsts: tuple[float, ...] = (
        0.0,
        0.05,
    )  # the share of the budget that a first lap spends on preparing; 0: none does
    seeds: int = 3
    again: int = 8  # so many of the best are run again
    fresh: int = 24  # with so many seeds, as the rule is


QUICK = Grid(
    (0.1, 1.0), (8,), (25, 100), (0.1, 0.3), (2.0**-6.5, 2.0**-4.5, 2.0**-3), (0.0, 0.05), seeds=3, again=3, fresh=8
)
COARSE = Grid((0.1, 0.5, 1.0), (8,), (100,), seeds=2, again=4, fresh=16)
QUICK_PROBLEMS = ("mnist23-few", "fashion24-wrong", "mnist1-rest7", "bank-y-few", "table0")
NUMBERS = 2**27  # float32 of one array (records, runs) at once
FRESH = 500  # added to a seed where the same settings are run once more
FORECAST = 0.03  # the gain that a problem of the forecast has at least: of less, noise makes any share
FACTORS = 2.0 ** np.arange(-3.0, 3.25, 0.25)


@dataclass
class Search:
    """What a search leaves: one row per problem, one column per budget."""

    names: np.ndarray
    kinds: np.ndarray
    budgets: np.ndarray  # (budgets, 2): epsilon, parties
    laps: np.ndarray
    clips: np.ndarray
    reaches: np.ndarray
    firsts: np.ndarray
    noise: np.ndarray  # (problems, budgets)
    grid: np.ndarray  # (problems, budgets, laps, firsts, clips, reaches): test accuracy, medians over the seeds
    best: np.ndarray  # (problems, budgets): of the grid, with fresh seeds
    rule: np.ndarray  # (problems, budgets)
    factor: np.ndarray  # (problems, budgets): by which the rule's models have the least log-loss
    majority: np.ndarray  # (problems,)
    without: np.ndarray  # (problems,): without privacy

    def save(self, file: Path) -> None:
        np.savez_compressed(file, **vars(self))

    @classmethod
    def load(cls, file: Path) -> Search:
        with np.load(file) as held:
            return cls(**{name: held[name] for name in cls.__dataclass_fields__})


class Settings(NamedTuple):
    """Runs that are made together, one entry each."""

    noise: np.ndarray  # (1) of the rule: of the mean gradient, if the budget were spent at once, as a share of the clip
    clip: np.ndarray
    stepsize: np.ndarray  # on a model that is asked at itself
    first: np.ndarray  # the share of the budget that a lap spends on preparing; 0 where none does

    def of(self, at: slice) -> Settings:
        return Settings(*(part[at] for part in self))


def search(
    problems: Iterable[Development], grid: Grid, earlier: Search | None = None, gridded: Container[str] | None = None
) -> Search:
    """The rule on all problems, and the grid on those that are named, or all; the grid's results of those that
    `earlier` has are taken from there."""
    budgets = [(epsilon, parties) for epsilon in grid.epsilons for parties in grid.parties]
    rows: list[dict[str, Any]] = []
    for problem in problems:
        began, records = time.perf_counter(), problem.load()
        rules = [_rule(records, *budget) for budget in budgets]
        noise = np.array([rule.noise for rule in rules])
        known = None if earlier is None else _known(earlier, problem.name)
        row: dict[str, Any] = {"names": problem.name, "kinds": problem.kind, "noise": noise}
        if known is None:
            wanted = gridded is None or problem.name in gridded
            known = _grid_accuracies(records, noise, grid) if wanted else _no_grid(grid, len(noise))
        row["grid"], row["best"] = known
        row["rule"], row["factor"] = _rule_accuracies(records, rules, grid.fresh)
        row["majority"] = majority_of(records.y_test)
        row["without"] = float(fitted(records.X, records.y).score(records.X_test, records.y_test))
        rows.append(row)
        short = row["best"] - row["rule"]
        regret = f"regret {short.mean():.4f}, worst {short.max():.4f}" if np.isfinite(short).all() else "the rule alone"
        print(f"{problem.name}: {regret}, {time.perf_counter() - began:.1f} s", flush=True)
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    axes = {name: np.array(getattr(grid, name)) for name in ("laps", "clips", "reaches", "firsts")}
    return Search(budgets=np.array(budgets), **axes, **columns)


def _known(earlier: Search, name: str) -> tuple[np.ndarray, np.ndarray] | None:
    at = np.flatnonzero(earlier.names == name)
    return (earlier.grid[at[0]], earlier.best[at[0]]) if len(at) else None


def _no_grid(grid: Grid, budgets: int) -> tuple[np.ndarray, np.ndarray]:
    shape = (budgets, len(grid.laps), len(grid.firsts), len(grid.clips), len(grid.reaches))
    return np.full(shape, np.nan), np.full(budgets, np.nan)


class Planned(NamedTuple):
    noise: float
    rule: Rule


def _rule(records: accuracy_problems.Records, epsilon: float, parties: int) -> Planned:
    sizes = [len(part) for part in np.array_split(records.y, parties)]
    facts = rd.public_facts(sizes, records.X.shape[1], record_norm=1.0)
    rho = np.full(parties, rd.Budget(epsilon, DELTA).rho)
    return Planned(noise_of(facts.sizes, rho), rule_for(facts, rho))


def _grid_accuracies(
    records: accuracy_problems.Records, noise: np.ndarray, grid: Grid
) -> tuple[np.ndarray, np.ndarray]:
    """All of the grid, (budgets, laps, firsts, clips, reaches); and the best with fresh seeds, (budgets,)."""
    axes = np.meshgrid(noise, grid.firsts, grid.clips, grid.reaches, np.arange(grid.seeds), indexing="ij")
    each, first, clip, reach = (axis.ravel() for axis in axes[:4])
    found = []
    for laps in grid.laps:
        models = train(records, laps, Settings(each, clip, reach / each, first), laps)
        found.append(np.median(accuracies(records, models).reshape(axes[0].shape), axis=-1))
    everything = np.stack(found, axis=1)
    order = np.argsort(-everything.reshape(len(noise), -1), axis=1)[:, : grid.again]
    laps, firsts, clips, reaches = np.unravel_index(order, everything.shape[1:])  # each (budgets, again)
    again = np.zeros(order.shape)
    for number in np.unique(laps):
        budget, rank = np.nonzero(laps == number)
        each, clip = noise[budget], np.array(grid.clips)[clips[budget, rank]]
        reach, first = np.array(grid.reaches)[reaches[budget, rank]], np.array(grid.firsts)[firsts[budget, rank]]
        some = Settings(*(np.repeat(part, grid.fresh) for part in (each, clip, reach / each, first)))
        models = train(records, grid.laps[number], some, grid.laps[number] + FRESH)
        again[budget, rank] = np.median(accuracies(records, models).reshape(-1, grid.fresh), axis=1)
    return everything, again.max(1)


def _rule_accuracies(
    records: accuracy_problems.Records, planned: Sequence[Planned], seeds: int
) -> tuple[np.ndarray, np.ndarray]:
    """Accuracy of the planned runs, and the factor on their models at which log-loss is least; both (budgets,)."""
    found, factors = [], []
    for noise, rule in planned:
        # Asked at a x with step t, x is 1/a of the model that is asked at itself with step a t.
        first = rule.first or 0.0
        each = (noise, rule.facts.clip, STRETCH * float(rule.steps.stepsize), first)
        laps = rule.laps - (rule.first is not None)
        models = np.asarray(train(records, laps, Settings(*(np.full(seeds, value) for value in each)), 1)) / STRETCH
        found.append(np.median(accuracies(records, models)))
        factors.append(np.median(best_factors(records, models)))
    return np.array(found), np.array(factors)


def train(records: accuracy_problems.Records, laps: int, settings: Settings, seed: int) -> Array:
    """Models (features, runs), float32: `algorithm.relay_gradient` with the whole graph's noise drawn at once."""
    signed = jnp.asarray(records.X * records.y[:, None].astype(np.float32))
    runs, most = len(settings.noise), max(1, NUMBERS // len(records.y))
    models = []
    for start in range(0, runs, most):
        some = settings.of(slice(start, start + most))
        more = 2 ** math.ceil(math.log2(len(some.noise))) - len(some.noise)  # so that few sizes are compiled
        filled = Settings(*(np.pad(part, (0, more), mode="edge").astype(np.float32) for part in some))
        key = jax.random.key(seed + 1000 * start, impl="rbg")  # drawn fast where there is a GPU
        *change, pace = _prepare(records, filled, seed + 1000 * start)
        filled = filled._replace(stepsize=filled.stepsize * pace)
        ends = _descend(signed, jnp.int32(laps), filled, key, *change)
        models.append(ends[:, : len(some.noise)])
    return jnp.concatenate(models, axis=1)


def _prepare(records: accuracy_problems.Records, settings: Settings, seed: int) -> tuple[Array, ...]:
    """`problem.coordinates` of every run: directions, how much is kept, lengths, starts and paces; (features, runs)."""
    X, y = records.X.astype(np.float64), records.y.astype(np.float64)
    own = np.column_stack([y < 0, y > 0]).astype(np.float64) / len(y)
    moments = np.concatenate([(own.T @ X).ravel(), [(X**2).sum(1).mean() / 2.0], own.sum(0)])
    first = np.maximum(settings.first.astype(np.float64), 1e-12)  # of runs that do not prepare nothing is used
    scale = settings.noise / np.sqrt(first)
    noise = np.random.default_rng(seed).normal(size=(len(scale), len(moments)))
    found = jax.vmap(lambda told, variance: find_coordinates(told, variance, jnp.ones(()), False, 1))(
        jnp.asarray(moments + scale[:, None] * noise), jnp.asarray(scale**2)
    )
    does = settings.first > 0.0
    kept, length = np.where(does, KEPT, 1.0), np.where(does, found.length, 1.0)
    start = np.where(does, np.asarray(jax.vmap(type(found).undo)(found, found.start)).T, 0.0)
    parts = (np.asarray(found.direction).T, kept, length, start, np.where(does, found.pace, 1.0))
    return tuple(jnp.asarray(part, jnp.float32) for part in parts)


@jax.jit
def _descend(
    signed: Array, laps: Array, settings: Settings, key: Array, u: Array, kept: Array, length: Array, start: Array
) -> Array:
    """The laps of `algorithm.relay_gradient` with stretch 1, for every run: rows of `signed` are y_j a_j.

    The gradient of log(1 + exp(-y a'P v)) is -y P a s with s = sigmoid(-y a'P v); clipped to c it has min(s, c/|P a|)
    for s, where P = length (I - (1 - kept) u u').
    """
    squares, along = jnp.sum(signed * signed, axis=1)[:, None], signed @ u
    kept, length = kept[None, :], length[None, :]
    norms = length * jnp.sqrt(jnp.maximum(squares - (1.0 - kept**2) * along**2, kept**2 * squares))
    norms = jnp.maximum(norms, 1e-9)
    left = settings.noise / jnp.sqrt(1.0 - settings.first)
    scale = left * settings.clip * jnp.sqrt(laps.astype(jnp.float32))

    def change(x: Array) -> Array:
        return length * (x + (kept - 1.0) * u * jnp.sum(u * x, axis=0, keepdims=True))

    def lap(k: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        x, last = state
        t = k.astype(jnp.float32)
        v = x + jnp.minimum((t - 1.0) / (t + 2.0), MOMENTUM) * (x - last)
        slopes = jnp.minimum(jax.nn.sigmoid(-(signed @ change(v))), settings.clip[None, :] / norms)
        noise = scale[None, :] * jax.random.normal(jax.random.fold_in(key, k), start.shape, jnp.float32)
        gradient = noise - change(signed.T @ slopes) / signed.shape[0]
        return v - settings.stepsize[None, :] * (1.0 - t / laps.astype(jnp.float32)) * gradient, x

    return change(jax.lax.fori_loop(jnp.int32(0), laps, lap, (start, start))[0])


def accuracies(records: accuracy_problems.Records, models: Array) -> np.ndarray:
    """Of each model, on the held-out records."""
    signed = jnp.asarray(records.X_test * records.y_test[:, None].astype(np.float32))
    most = max(1, NUMBERS // len(signed))
    parts = (models[:, start : start + most] for start in range(0, models.shape[1], most))
    return np.concatenate([np.asarray((signed @ part > 0.0).mean(0)) for part in parts])


def best_factors(records: accuracy_problems.Records, models: np.ndarray) -> np.ndarray:
    """Of each model, the factor on its length that makes the held-out log-loss least."""
    margins = (records.X_test * records.y_test[:, None]) @ models
    losses = [np.logaddexp(0.0, -factor * margins).mean(0) for factor in FACTORS]
    return FACTORS[np.argmin(losses, axis=0)]


def majority_of(y: np.ndarray) -> float:
    """The share of the most frequent class."""
    return float(np.unique(y, return_counts=True)[1].max() / len(y))


def fitted(X: np.ndarray, y: np.ndarray, exact: bool = False) -> LogisticRegression:
    """No privacy: logistic regression with the ridge that does best on a fifth of the training records. Where it is one
    problem of many, not to its last digit."""
    until: dict[str, Any] = {"tol": 1e-6, "max_iter": 2000} if exact else {"max_iter": 1000}

    def model(ridge: float, at: np.ndarray) -> LogisticRegression:
        some = LogisticRegression(C=1.0 / (ridge * len(at)), fit_intercept=False, **until)
        return some.fit(X[at], y[at])

    order = np.random.default_rng(0).permutation(len(y))
    kept, rest = np.split(order, [len(y) // 5])
    scores = [model(ridge, rest).score(X[kept], y[kept]) for ridge in RIDGES]
    return model(RIDGES[int(np.argmax(scores))], order)


# -- what a search says


def regret(found: Search) -> np.ndarray:
    """(problems, budgets): how far the rule is below the best of the grid."""
    return found.best - found.rule


def regret_elsewhere(found: Search) -> np.ndarray:
    """(problems, budgets): the same of the setting that is best on average over those cells of the other problems whose
    noise is within a factor 2 of this one's. NaN where there is no such cell."""
    short = found.best[..., None, None, None, None] - found.grid
    answer = np.full(found.noise.shape, np.nan)
    for p, b in np.argwhere(np.isfinite(found.best)):
        near = alike(found, math.log2(found.noise[p, b])) & np.isfinite(found.best)
        near[p] = False
        if near.any():
            answer[p, b] = short[p, b].ravel()[np.argmin(short[near].mean(0))]
    return answer


def alike(found: Search, log_noise: float) -> np.ndarray:
    """(problems, budgets): which cells have this noise, within a factor 2."""
    return np.abs(np.log2(found.noise) - log_noise) <= 1.0


def shares(found: Search, least: float = 0.01) -> np.ndarray:
    """(problems, budgets): what the rule's models have of the gain without privacy; NaN where that is under `least`.
    Below 0 where a model is worse than that class."""
    gain = (found.without - found.majority)[:, None]
    return (found.rule - found.majority[:, None]) / np.where(gain < least, np.nan, gain)


def gains(found: Search) -> dict[int, tuple[float, float, float]]:
    """`GAINS` anew: the 1 %, 50 % and 95 % quantiles of the shares, for noise within a factor 2 of
    2^k, of the problems with `FORECAST` to gain."""
    part, log = shares(found, FORECAST), np.log2(found.noise)
    table = {}
    for row in range(math.floor(log.min() + 0.5), math.floor(log.max() + 0.5) + 1):
        some = part[alike(found, row) & np.isfinite(part)]
        if some.size:
            low, middle, high = np.quantile(some, [0.01, 0.5, 0.95])
            table[row] = (float(low), float(middle), float(high))
    return table


def search_tables(found: Search) -> str:
    """What `search` prints, as Markdown."""
    mine, other = regret(found), regret_elsewhere(found)
    parts = ["### Regret of the rule against the best of the grid\n"]
    parts.append("| problems | cells | rule: mean | worst (where) | best elsewhere: mean | worst |\n|" + "---|" * 6)
    held = np.isin(found.names, list(accuracy_problems.HELD_BACK))
    for kind in [*dict.fromkeys(found.kinds), "all", "held back"]:
        at = np.flatnonzero((found.kinds == kind) | (kind == "all") | ((kind == "held back") & held))
        if not np.isfinite(mine[at]).any():
            continue
        p, b = np.unravel_index(np.nanargmax(mine[at]), mine[at].shape)
        where = f"{found.names[at[p]]}, epsilon {found.budgets[b][0]:g}, parties {found.budgets[b][1]:g}"
        cells = [str(kind), str(np.isfinite(mine[at]).sum())]
        cells += [f"{np.nanmean(mine[at]):.4f}", f"{np.nanmax(mine[at]):.4f} ({where})"]
        parts.append(_line([*cells, *(_or_dash(pick, other[at]) for pick in (np.mean, np.max))]))
    parts.append("\n### Regret and gain by noise\n")
    parts.append(
        "| log2 of the noise | cells | regret: mean | worst | share of the gain: 1 % | median | 95 % | `GAINS` |"
    )
    parts.append("|" + "---|" * 8)
    for row, quantiles in gains(found).items():
        near = alike(found, row)
        cells = [str(row), str(near.sum()), *(_or_dash(pick, mine[near]) for pick in (np.mean, np.max))]
        held = " / ".join(f"{value:g}" for value in GAINS[row]) if row in GAINS else "-"
        parts.append(_line([*cells, *(f"{value:.2f}" for value in quantiles), held]))
    low, middle, high = np.quantile(found.factor, [0.05, 0.5, 0.95])
    parts.append(
        f"\nLog-loss would be least with the rule's models times {middle:.2g} ({low:.2g} to {high:.2g}, 5 to 95 %)."
    )
    return "\n".join(parts)


def _or_dash(pick: Any, values: np.ndarray) -> str:
    known = values[np.isfinite(values)]
    return f"{pick(known):.4f}" if known.size else "-"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


# -- the bars


class Range(NamedTuple):
    """Median, least and most over the seeds."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        middle, low, high = (f"{value:.4f}" if abs(value) < 100.0 else f"{value:.0e}" for value in self)
        return f"{middle} ({low} to {high})"


def range_of(values: np.ndarray) -> Range:
    return Range(float(np.median(values)), float(values.min()), float(values.max()))


def load(name: str) -> rd.Records:
    """A data set of the catalogue; or bank or diabetes, with a fifth of its records for testing."""
    known: dict[str, Any]
    if name == "bank":
        X, y = accuracy_problems.bank()
        known = {"ranges": (0.0, 1.0), "classes": (-1, 1)}
    elif name == "diabetes":
        X, y = load_diabetes(return_X_y=True, scaled=False)
        low, high = PROGRESSION
        y, known = 2.0 * (y - low) / (high - low) - 1.0, {"ranges": DIABETES}
    else:
        return rd.load_data(name)
    order = np.random.default_rng(0).permutation(len(X))
    test, train = np.split(order, [len(X) // 5])
    return rd.Records(X[train], y[train], name=name, test=rd.Records(X[test], y[test], **known), **known)


def make_problem(records: rd.Records, agents: int) -> rd.Problem:
    if records.name == "diabetes":
        return rd.least_squares(records, agents=agents, intercept=True, record_norm="typical", label_bound=1.0)
    many = len(np.unique(records.y)) > 2
    return (rd.softmax if many else rd.logistic)(records, agents=agents, record_norm=1.0)


def scores(problem: rd.Problem, models: np.ndarray) -> np.ndarray:
    """Of each model on the held-out records: accuracy, or R^2 of a regression. NaN where a run diverged."""
    fine = np.isfinite(models).all(axis=1)
    found = np.full(len(models), np.nan)
    if problem.classifies:
        found[fine] = problem.accuracies(models[fine])
        return found
    test = problem.held_out
    errors = [np.mean((problem.predict(x, test.X) - test.y) ** 2) for x in models[fine]]
    found[fine] = 1.0 - np.array(errors) / test.y.var()
    return found


def bar_rows(
    records: rd.Records,
    epsilons: Sequence[float],
    seeds: Sequence[int],
    agents: int = 8,
    *,
    loss: bool = True,
    without: float | None = None,
) -> list[dict[str, Any]]:
    """One row per epsilon. `loss` runs objective="loss", too; `without` is the score without privacy, if known."""
    problem = make_problem(records, agents)
    graph = rd.ring(agents) if agents > 2 else rd.complete(agents)
    budgets = [rd.Budget(epsilon, DELTA) for epsilon in epsilons]
    if without is None:
        without = no_privacy(records)
    test = records.test
    assert test is not None
    most = majority_of(test.y) if problem.classifies else 0.0
    options: dict[str, Any] = {"reference": False, "progress": False}
    ours = rd.sweep(problem, graph, seeds, budgets, **options)
    plain = rd.sweep(problem, graph, seeds, budgets, objective="loss", **options) if loss else None
    rows = []
    for budget in budgets:
        plan = rd.plan(problem, graph, budget)
        alone = np.array([scores(problem, rd.solve_alone(problem, budget, seed=seed).x).mean() for seed in seeds])
        row = {"data": records.name, "agents": agents, "epsilon": budget.epsilon, "majority": most, "without": without}
        row["score"] = "accuracy" if problem.classifies else R_SQUARED
        row |= {"default": range_of(scores(problem, ours.x[ours.of(budget)])), "alone": range_of(alone)}
        row |= {"algorithm": plan.algorithm.name, "laps": plan.activations}
        if plain is not None:
            row["loss"] = range_of(scores(problem, plain.x[plain.of(budget)]))
        if plan.expected is not None:
            low, _, high = row["forecast"] = plan.expected.accuracy(most, without)
            row["within"] = bool(low <= row["default"].middle <= high)
        rows.append(row)
    return rows


def no_privacy(records: rd.Records) -> float:
    """Test accuracy of `fitted`, on the features as the loss sees them: scaled, and shrunk to the record norm. Of a
    regression, R^2 of least squares."""
    problem = make_problem(records, 1)
    x = fitted(*all_records(problem), True).coef_.T.ravel() if problem.classifies else rd.minimise(problem).x
    return float(scores(problem, x[None])[0])


def by_a_curator(
    records: rd.Records, epsilons: Sequence[float], seeds: Sequence[int], python: Path
) -> tuple[dict[float, Range], dict[str, str]]:
    """diffprivlib's scores on the same features, and versions; `python` is its interpreter."""
    problem = make_problem(records, 1)
    assert records.test is not None
    X, y = all_records(problem)
    X_test, y_test = all_records(make_problem(replace(records.test, name=records.name, **_known_of(records)), 1))
    found, about = {}, {}
    for epsilon in epsilons:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "problem.npz"
            kind = "logistic" if problem.classifies else "linear"
            np.savez(file, X=X, y=y, X_test=X_test, y_test=y_test, kind=kind, epsilon=epsilon, seeds=np.asarray(seeds))
            script = Path(__file__).parent / "diffprivlib_run.py"
            done = subprocess.run([python, script, file], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"diffprivlib failed in {python}:\n{done.stderr}")
        printed = json.loads(done.stdout.strip().splitlines()[-1])
        found[epsilon], about = range_of(np.array(printed["scores"])), printed["versions"]
    return found, about


def _known_of(records: rd.Records) -> dict[str, Any]:
    """What is public of training records holds for their test records."""
    return {"ranges": records.ranges, "classes": records.classes}


BAR_HEAD = (
    '| data | epsilon | most frequent class | no privacy | default | objective="loss" | each agent alone '
    "| forecast | median in it |\n|" + "---|" * 9
)
SMALL_HEAD = (
    "| data | parties | epsilon | most frequent class | no privacy | relay | each alone | a curator, diffprivlib |\n|"
    + "---|" * 8
)
R_SQUARED = "R^2"


def bar_line(row: dict[str, Any]) -> str:
    cells = [_data(row), f"{row['epsilon']:g}", f"{row['majority']:.4f}", f"{row['without']:.4f}"]
    cells += [str(row["default"]), str(row["loss"]), f"{row['alone'].middle:.4f}"]
    if "forecast" not in row:
        return _line([*cells, "-", "-"])
    low, _, high = row["forecast"]
    return _line([*cells, f"{low:.4f} to {high:.4f}", "yes" if row["within"] else "no"])


def small_line(row: dict[str, Any]) -> str:
    cells = [_data(row), str(row["agents"]), f"{row['epsilon']:g}", f"{row['majority']:.4f}", f"{row['without']:.4f}"]
    return _line([*cells, str(row["default"]), str(row["alone"]), str(row.get("curator", "-"))])


def _data(row: dict[str, Any]) -> str:
    return row["data"] if row["score"] == "accuracy" else f"{row['data']} ({row['score']})"


def bar_counts(rows: Sequence[dict[str, Any]]) -> str:
    """How many forecasts held, and where the relay is below each party alone."""
    forecasts = [row["within"] for row in rows if "within" in row]
    below = [row for row in rows if row["default"].middle < row["alone"].low]
    less = [row for row in rows if row["alone"].low <= row["default"].middle < row["alone"].middle]
    return (
        f"{sum(forecasts)} of {len(forecasts)} medians lie in the range that was forecast. In {len(below)} of "
        f"{len(rows)} rows the relay is below each alone by more than the spread of seeds, its median being below the "
        f"least of each alone over the seeds: {_where(below)}. In {len(less)} more its median is below that of each "
        f"alone, within the spread: {_where(less)}."
    )


def _where(rows: Sequence[dict[str, Any]]) -> str:
    return ", ".join(f"{row['data']} with {row['agents']} at epsilon {row['epsilon']:g}" for row in rows) or "nowhere"


def small_note(rows: Sequence[dict[str, Any]], peer: dict[str, str]) -> str:
    """What the columns of the small table are."""
    parts = ["Medians, with the least and the most over the seeds; each alone is the mean over the parties."]
    regressions = dict.fromkeys(row["data"] for row in rows if row["score"] == R_SQUARED)
    if regressions:
        parts.append(f"Rows of {', '.join(regressions)} are R^2 on the held-out records, the others accuracies.")
    made = "- where no environment for it could be made"
    if peer:
        made = "here " + ", ".join(f"{name} {version}" for name, version in peer.items())
    parts.append(
        f"Relay and each alone are planned for (epsilon, {DELTA:g}). A curator is trusted and has all records in one "
        f"place; diffprivlib promises pure epsilon (delta = 0), by its own account ({made})."
    )
    return " ".join(parts)


# -- the command


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    searching = commands.add_parser("search", help="the rule against a grid, on the development problems")
    searching.add_argument("--only", default="*", help="problems by a pattern with * and ?")
    searching.add_argument("--grid", type=Path, help="an earlier search: take its grid, run the rule anew")
    searching.add_argument("--held-back", action="store_true", help="the problems held back alone")
    searching.add_argument("--rule-alone", action="store_true", help="no grid: what the forecast is made of")
    searching.add_argument("--coarse", action="store_true", help="8 parties, 3 budgets, 100 laps, fewer seeds")
    searching.add_argument("--read", type=Path, help="print the tables of an earlier search, and run nothing")
    bars = commands.add_parser("bars", help="what a budget buys, on the reported data sets")
    bars.add_argument("--data", help=f"names with commas between; default {TABLES}")
    bars.add_argument("--small", help=f"the same, for few and many parties; default {SMALL}")
    bars.add_argument("--seeds", type=int, help="how many; default 16")
    for command, what in ((searching, "an .npz"), (bars, "JSON")):
        command.add_argument("--quick", action="store_true", help="little of everything, in a minute or two")
        command.add_argument("--out", type=Path, help=f"write {what} here")
    asked = parser.parse_args(arguments)
    about = {**versions(), "cores": os.cpu_count(), "system": platform.platform()}
    print(", ".join(f"{name} {value}" for name, value in about.items()) + "\n", flush=True)
    try:
        (run_search if asked.command == "search" else run_bars)(asked, about)
    except RelayError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        raise SystemExit(2) from None


def run_search(asked: argparse.Namespace, about: dict[str, Any]) -> None:
    if asked.read is not None:
        print(search_tables(Search.load(asked.read)))
        return
    problems = [each for each in accuracy_problems.development() if fnmatch.fnmatch(each.name, asked.only)]
    if asked.quick:
        problems = [each for each in problems if each.name in QUICK_PROBLEMS]
    if not problems:
        names = ", ".join(each.name for each in accuracy_problems.development())
        raise SystemExit(f"--only {asked.only!r} matches no problem; the names are {names}.")
    earlier = None if asked.grid is None else Search.load(asked.grid)
    if asked.held_back:
        problems = [each for each in problems if each.name in accuracy_problems.HELD_BACK]
    grid = QUICK if asked.quick else COARSE if asked.coarse else Grid()
    found = search(problems, grid, earlier, () if asked.rule_alone else None)
    if asked.out is not None:
        found.save(asked.out)
    print(f"\n{search_tables(found)}")


def run_bars(asked: argparse.Namespace, about: dict[str, Any]) -> None:
    data, small, count = (QUICK_TABLES, QUICK_SMALL, 2) if asked.quick else (TABLES, SMALL, 16)
    epsilons, few, parties = ((1.0,), (1.0,), (2,)) if asked.quick else (EPSILONS, SMALL_EPSILONS, PARTIES)
    large, tables = (
        [name for name in (default if given is None else given).split(",") if name]
        for given, default in ((asked.data, data), (asked.small, small))
    )
    seeds = range(count if asked.seeds is None else asked.seeds)
    rows: list[dict[str, Any]] = []
    if large:
        print(BAR_HEAD, flush=True)
    for name in large:
        rows += (new := bar_rows(load(name), epsilons, seeds))
        print("\n".join(map(bar_line, new)), flush=True)
    python = peer_python(make=not asked.quick) if tables else None
    if tables:
        print(f"\n{SMALL_HEAD}", flush=True)
    peer: dict[str, str] = {}
    for name in tables:
        records = load(name)
        without = no_privacy(records)
        curator, peer = ({}, peer) if python is None else by_a_curator(records, few, seeds, python)
        for agents in parties:
            new = bar_rows(records, few, seeds, agents, loss=False, without=without)
            new = [row | ({"curator": curator[row["epsilon"]]} if curator else {}) for row in new]
            rows += new
            print("\n".join(map(small_line, new)), flush=True)
    if tables:
        print(f"\n{small_note(rows, peer)}")
        about["diffprivlib"] = peer
    print(f"\n{bar_counts(rows)}")
    if asked.out is not None:
        asked.out.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
