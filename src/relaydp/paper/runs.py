"""One cell of the tables and convergence figures: many seeds of one algorithm on one problem of the paper.

There are two settings:

    as-printed   features in [0, 1], the paper's weights (1/2 ||x||^2 and 1/2 ||x||_1), its steps, its noise and its
                 accounting; the start is drawn once from N(0, I), because relative error divides by ||x0 - x*||
    useful       records of norm at most 1, weights that give a useful model, the sound mechanism with exact
                 accounting, steps and PLF planned for the directions of PUBLIC held-out records (`prior=`); the
                 start is 0
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np

from relaydp.algorithm import ALGORITHMS
from relaydp.data import Records, load_data
from relaydp.engine.loop import run
from relaydp.engine.sweeps import plan_seeds, run_plans
from relaydp.errors import RelayError
from relaydp.graph import Graph, ring
from relaydp.oracle.randomness import Simulated
from relaydp.paper.experiment import AS_PRINTED, DATA, USEFUL, Cell, Progress
from relaydp.planning.directions import directions_of
from relaydp.planning.run_plan import Plan
from relaydp.privacy import Budget
from relaydp.problem import Problem, Reference, least_squares, logistic, minimise
from relaydp.problem.bounds import as_ranges, unit_scale

AGENTS = 8
EPSILON = 12.0  # of the tables and of the figures that compare methods
DELTA = 1e-3
RATIO = 1.01  # the paper's R, which it does not print: noise falls 4.4-fold over 300 activations
CURVE = 40  # points of a convergence curve
RIDGE = {AS_PRINTED: 1.0, USEFUL: 0.01}
L1 = {AS_PRINTED: 0.5, USEFUL: 1e-4}  # if there is one
PUBLIC = 500  # records of the prior
TIMED_FOR = 4.0  # seconds, after which the rest of a run is extrapolated
ZERO = 1e-12  # a minimiser with a smaller norm counts as 0
ROWS = 64  # models whose objective is computed at once: one shape, so one compilation per problem


@dataclass(frozen=True)
class Run(Cell):
    """All seeds of one algorithm under one budget; epsilon 0 means no privacy, plf 0 the planner's choice."""

    loss: str
    data: str
    setting: str
    algorithm: str
    walk: str
    l1: float
    epsilon: float
    plf: int
    seeds: int
    growth: float = 0.0  # of MR-ADMM's penalty, if it is not the default
    tuned: bool = False  # tuned steps instead of the paper's
    per_record: bool = False  # noise for a sensitivity of 2c/m_i, as one record's, instead of the paper's 2c

    @property
    def long(self) -> int:
        """Exact methods read their records hundreds of times per activation; data sets are in order of size."""
        exact = ALGORITHMS[self.algorithm].data == "argmin"
        place = DATA.index(self.data) if self.data in DATA else 0
        return (1 + place) * max(self.plf, 1) * self.seeds if exact else 0


@lru_cache(maxsize=2)
def _records(name: str) -> Any:
    return load_data(name)


@lru_cache(maxsize=2)  # CIFAR-10 in float64 is 245 MB
def problem_of(loss: str, data: str, setting: str, l1: float) -> Problem:
    return _problem(_records(data), loss, data, setting, l1, AGENTS)


@lru_cache(maxsize=2)
def prior_of(loss: str, data: str, l1: float) -> Problem:
    """The useful problem over some of the held-out records, which are assumed to be public."""
    records = _records(data)
    held = records.test
    some = np.random.default_rng(0).permutation(len(held))[:PUBLIC]
    return _problem(Records(held.X[some], held.y[some], ranges=records.ranges), loss, data, USEFUL, l1, 1)


def _problem(records: Records, loss: str, data: str, setting: str, l1: float, agents: int) -> Problem:
    options: dict[str, Any] = {"agents": agents, "l2": RIDGE[setting], "l1": l1}
    if records.ranges is not None:  # "normalize all numerical features so that the range of each value is [0,1]"
        options["ranges"] = unit_scale(*as_ranges(records.ranges, records.features))
    if setting == USEFUL:
        options["record_norm"] = 1.0
        if loss == "linear":
            options["clip"] = 2.0  # a residual |a'x - b| of the rare class; with 1, ijcnn1 stops at an error of 4e-3
    elif data == "ijcnn1":
        options["ranges"] = "fit-public"  # its public ranges are wider than what its records hold
    if loss == "linear":
        return least_squares(records, label_bound=1.0, **options)
    return logistic(records, **options)


@lru_cache(maxsize=64)
def reference_of(loss: str, data: str, setting: str, l1: float) -> Reference:
    return minimise(problem_of(loss, data, setting, l1))


def start_of(cell: Run, dim: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=dim) if cell.setting == AS_PRINTED else np.zeros(dim)


def _options(cell: Run) -> dict[str, Any]:
    """The arguments of `make_plan`, without the seeds."""
    printed = cell.setting == AS_PRINTED
    budget = Budget(cell.epsilon, DELTA) if cell.epsilon else None
    mechanism = None if budget is None else "published" if printed else "auto"
    return {
        "algorithm": cell.algorithm,
        "mechanism": mechanism,
        "budget": budget,
        "activations": cell.plf or None,
        "walk": cell.walk,
        "steps": {"growth": cell.growth} if cell.growth else "paper" if printed and not cell.tuned else "tuned",
        "ratio": RATIO if mechanism == "published" else None,
        "start": 0,
        "variant": None,
        "noise": None,
        "prior": directions_of(prior_of(cell.loss, cell.data, cell.l1)) if mechanism == "auto" else None,
    }


def measure(cell: Run, progress: Progress | None = None) -> dict[str, Any]:
    """Medians and quartiles over the seeds, a curve, the messages, and the seconds of one run."""
    graph = ring(AGENTS)
    problem = problem_of(cell.loss, cell.data, cell.setting, cell.l1)  # data that is not here is not an outcome to keep
    try:
        plans, keys = plan_seeds(problem, graph, range(cell.seeds), **_options(cell))
        if cell.per_record:
            plans = [replace(plan, scales=plan.scales / plan.facts.sizes) for plan in plans]
    except RelayError as error:
        return {"error": str(error)}
    best = reference_of(cell.loss, cell.data, cell.setting, cell.l1)
    x0 = start_of(cell, problem.dim)
    plan = plans[0]
    hops, models = [np.zeros(1, int)], [np.repeat(x0[None, None], cell.seeds, axis=0)]

    def note(at: np.ndarray, points: np.ndarray) -> None:
        hops.append(at)
        models.append(points)

    ends = run_plans(problem, graph, plans, keys, progress, note, x0)
    at, points = _thinned(np.concatenate(hops), np.concatenate(models, axis=1), max(len(p.route) for p in plans))
    far = float(np.linalg.norm(x0 - best.x))
    apart = np.linalg.norm(ends - best.x, axis=1)
    objectives = partial(_objectives, problem)
    excess = _at_finite(objectives, ends) - best.value
    first = float(objectives(x0[None])[0]) - best.value
    plf = np.median([p.tally.plf[np.minimum(at, len(p.route))] for p in plans], axis=0)
    flat = points.reshape(-1, problem.dim)
    return {
        "relative_error": _spread(apart / far) if far > ZERO else None,
        "distance": _spread(apart),
        "excess": _spread(excess),
        "excess_share": _spread(excess / first) if first > 0 else None,
        "accuracy": _spread(_at_finite(problem.accuracies, ends)),
        "solution": {
            "norm": float(np.linalg.norm(best.x)),
            "nonzero": int((best.x != 0.0).sum()),
            "zero": bool(np.linalg.norm(best.x) <= ZERO),
            "accuracy": problem.accuracy(best.x),
            "objective": best.value,
        },
        "curve": {
            "plf": plf.tolist(),
            "error": _band(np.linalg.norm(points - best.x, axis=2) / far) if far > ZERO else None,
            "excess": _band((_at_finite(objectives, flat) - best.value).reshape(points.shape[:2])),
            "accuracy": _band(_at_finite(problem.accuracies, flat).reshape(points.shape[:2])),
        },
        "diverged": int((~np.isfinite(ends).all(axis=1) | ~(apart < 1e6 * max(far, 1.0))).sum()),
        "plf": int(np.median([p.route.plf for p in plans])),
        "hops": int(np.median([len(p.route) for p in plans])),
        "messages": (messages := int(np.median([int(p.tally.messages[-1]) for p in plans]))),
        "vectors": messages * plan.algorithm.vectors,
        "messages_paper": messages * plan.algorithm.paper_factor,
        "epsilon": _plain(plan.epsilon),
        "epsilon_paper": _plain(plan.epsilon_paper),
        "mechanism": plan.mechanism,
        "steps": {name: float(np.max(np.asarray(value))) for name, value in plan.steps._asdict().items()},
        "smoothness": float(plan.facts.smoothness.max()),
        "noise": [float(plan.scales[0].max()), float(plan.scales[-1].max())],
    }


def _thinned(at: np.ndarray, points: np.ndarray, hops: int) -> tuple[np.ndarray, np.ndarray]:
    """About CURVE points, the first and the last real one among them."""
    real = int(np.searchsorted(at, hops)) + 1  # nothing changes after the end
    kept = np.unique(np.linspace(0, min(real, len(at)) - 1, CURVE + 1).round().astype(int))
    return at[kept], points[:, kept]


def _at_finite(value: Any, xs: np.ndarray) -> np.ndarray:
    """value(xs), row by row, with infinity if a model is not finite."""
    fine = np.isfinite(xs).all(axis=1)
    out = np.full(len(xs), np.inf)
    if fine.any():
        out[fine] = value(xs[fine])
    return out


def _objectives(problem: Problem, xs: np.ndarray) -> np.ndarray:
    """F at each row of xs, ROWS at a time."""
    filled = np.concatenate([xs, np.zeros((-len(xs) % ROWS, problem.dim))])
    return np.concatenate([problem.objectives(part) for part in np.split(filled, len(filled) // ROWS)])[: len(xs)]


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _spread(values: np.ndarray) -> dict[str, float | None]:
    """Median, quartiles, and the standard error of the mean; null if a run diverged."""
    if not np.isfinite(values).all():
        return {"median": None, "low": None, "high": None, "error": None}
    low, middle, high = np.percentile(values, [25, 50, 75])
    error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
    return {"median": float(middle), "low": float(low), "high": float(high), "error": error}


def _band(values: np.ndarray) -> list[list[float | None]]:
    """Quartiles and median over the seeds at every point: [low, median, high]."""
    with np.errstate(invalid="ignore"):
        rows = np.percentile(values, [25, 50, 75], axis=0)
    return [[_plain(float(v)) for v in row] for row in rows]


@dataclass(frozen=True)
class Timing(Cell):
    """The time of one run, alone and after compilation."""

    alone = True
    run: Run


class _Enough(Exception):
    """Raised when the timing is long enough."""


def seconds(cell: Timing, progress: Progress | None = None) -> dict[str, Any]:
    """The seconds of one run: the first chunk, which compiles, is replaced by an estimate; so is the part after
    TIMED_FOR.

    Exact methods are timed on their first hops.
    """
    asked, graph = cell.run, ring(AGENTS)
    problem = problem_of(asked.loss, asked.data, asked.setting, asked.l1)
    try:
        (plan,), _ = plan_seeds(problem, graph, [0], **_options(asked))
    except RelayError as error:
        return {"error": str(error)}
    x0 = start_of(asked, problem.dim)
    device = jax.devices()[0].device_kind
    if plan.algorithm.data == "argmin":
        spent, hops = _first_hops(problem, graph, plan, x0)
        return {"seconds": spent * len(plan.route) / hops, "whole": hops == len(plan.route), "device": device}
    marks: list[tuple[float, int]] = []

    def mark(done: int, total: int) -> None:
        marks.append((time.perf_counter(), done))
        if len(marks) > 2 and marks[-1][0] - marks[1][0] > TIMED_FOR:
            raise _Enough

    for _ in range(2):  # a short run has one chunk, which is compiled the second time
        marks[:] = [(time.perf_counter(), 0)]
        with suppress(_Enough):
            run(problem, graph, plan, x0, Simulated(0), False, mark)
        if len(marks) > 2:
            break
    (first, before), (last, after) = marks[1 if len(marks) > 2 else 0], marks[-1]
    whole = (last - first) * len(plan.route) / (after - before)
    return {"seconds": whole, "whole": after == len(plan.route), "device": device}


def _first_hops(problem: Problem, graph: Graph, plan: Plan, x0: np.ndarray) -> tuple[float, int]:
    """Seconds of a plan's first hops, and how many: twice as many each time, until TIMED_FOR or the end of the plan.

    A chunk of an exact method may take a minute or more; it is compiled with hops at which no agent acts.
    """
    hops = 1
    while True:
        parts = {part.name: getattr(plan.route, part.name)[:hops] for part in fields(plan.route)}
        idle = replace(plan.route, **parts | {"acts": np.zeros_like(parts["acts"])})
        for route in (idle, replace(plan.route, **parts)):
            began = time.perf_counter()
            run(problem, graph, replace(plan, route=route), x0, Simulated(0), False)
            spent = time.perf_counter() - began
        if spent > TIMED_FOR or hops == len(plan.route):
            return spent, hops
        hops = min(2 * hops, len(plan.route))


def measure_any(cell: Run | Timing, progress: Progress | None = None) -> dict[str, Any]:
    return seconds(cell, progress) if isinstance(cell, Timing) else measure(cell, progress)
