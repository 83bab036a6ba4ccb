"""Neighbours: two problems that differ in one record of one agent, chosen so that a run may show the difference.

    worst        a record of the largest norm whose label is out of reach, on one side under D and on the other under
                 D': its clipped gradient is -c v and +c v wherever the run goes, so that the mean moves by 2c/m
    mislabelled  one record with the opposite label: what a wrong entry in a real data set does
    stranger     one record replaced by another agent's: what one ordinary person more or less does
    turned       the same label, the opposite features
    long         the opposite features, a thousand times as long: beyond what the public bounds allow, so that it is
                 shrunk

The first decides about a claim. The others show how much less an ordinary record gives away, and give an audit's first
layer records of many kinds to look at.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from relaydp.data import Records
from relaydp.errors import InputError, choose
from relaydp.problem import Problem, huber, logistic
from relaydp.problem.loss import CustomLoss

CANARIES = ("worst", "mislabelled", "stranger", "turned", "long")
FAR = 1e6  # a label no score comes near, in units of the gradient's slope
LONG = 1e3  # how much longer the long record is
# The built-in problem is small, so that many runs of it take seconds. Its records have norms on both sides of the
# bound, and most have gradients beyond the clip: whoever forgets to clip, or clips to something else, computes another
# mean. So many records are two whole blocks of the fused kernel and a rest.
DIM, RECORDS = 3, 21
NORM = 2.0  # public bound on records
STEEP = 10.0  # of the built-in problem's loss, in units of the clip: without clipping a record would count tenfold
BEND = 64  # records an agent where noise is in the objective: fewer bend too much for sixty minimisers
RIDGE = 2.0  # and the ridge for that


class Neighbours(NamedTuple):
    """D and D', and where they differ."""

    first: Problem
    second: Problem
    agent: int


def built_in(agents: int, mechanism: str, seed: int) -> Problem:
    """A problem as small as can be: a few records of three features an agent; Huber's loss, or the logistic one, for
    which alone noise in the objective is proved.

    The published mechanism assumes a bound c on the whole of an agent's gradient instead of clipping each record's. So
    there the loss is no steeper than that, and an agent holds one record, which can then do all that the paper allows:
    its claim is put to the test, not its assumption.
    """
    draw = np.random.default_rng(seed)
    records = {"published": 1, "objective": BEND}.get(mechanism, RECORDS)
    X = draw.normal(size=(agents * records, DIM))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    if mechanism == "published":
        data = Records(X, draw.uniform(-1.0, 1.0, len(X)), name="audit")
        return huber(data, agents, l2=0.1, record_norm=1.0, clip=1.0, threshold=1.0)
    X *= draw.uniform(0.2, 1.5 * NORM, len(X))[:, None]
    if mechanism == "objective":
        data = Records(X, np.where(np.arange(len(X)) % 2, 1.0, -1.0), name="audit")
        return logistic(data, agents, l2=RIDGE, record_norm=NORM)
    data = Records(X, draw.choice([-1.0, 1.0], len(X)) * draw.uniform(0.1, 20.0, len(X)), name="audit")
    return huber(data, agents, l2=0.1, record_norm=NORM, clip=1.0, threshold=STEEP)


def neighbours(problem: Problem | tuple[Problem, Problem], canary: str, agent: int = 0, place: int = 0) -> Neighbours:
    """The pair (D, D') for a canary in this place of an agent's records, or the caller's own pair if it is one."""
    if isinstance(problem, tuple):
        return _checked(*problem)
    choose("canary", canary, CANARIES)
    before = np.concatenate([[0], np.cumsum(problem.split.sizes)])
    row = int(problem.split.order[before[agent] + place])
    X, y = problem.data.X.astype(np.float64), problem.data.y
    first = (X[row], y[row])
    if canary == "worst":
        first, second = _extreme(problem)
    elif canary == "mislabelled":
        second = (X[row], _opposite(problem, y[row]))
    elif canary == "turned":
        second = (_mirrored(problem, X[row]), y[row])
    elif canary == "long":
        second = (_mirrored(problem, X[row]) * LONG, y[row])
    else:
        other = int(problem.split.order[before[(agent + 1) % problem.agents]])
        second = (X[other], y[other])
    return _checked(*(_with_record(problem, row, *record) for record in (first, second)))


def every_canary(problem: Problem, agent: int, place: int) -> list[Problem]:
    """The problem with every kind of record in that place: any two of them are neighbours."""
    found = []
    for canary in CANARIES:
        try:
            found.append(neighbours(problem, canary, agent, place).second)
        except InputError:  # not every problem has every kind
            continue
    return found


def _mirrored(problem: Problem, features: np.ndarray) -> np.ndarray:
    if problem.ranges is None:
        return -features
    return np.asarray(problem.ranges[0]) + np.asarray(problem.ranges[1]) - features


def _extreme(problem: Problem) -> tuple[tuple[np.ndarray, object], tuple[np.ndarray, object]]:
    if isinstance(problem.loss, CustomLoss):
        raise InputError(
            "the worst record of a custom loss is unknown; pass problem=(D, D') with records of yours, or "
            "canary='mislabelled' or 'stranger'."
        )
    features = problem.data.features
    if problem.ranges is not None:
        long = np.asarray(problem.ranges[1])  # every feature at its upper end
    else:
        long = np.eye(features)[0] * (problem.record_norm or 1.0)
    if problem.classes is None:
        scale = FAR * max(1.0, problem.gradient_bound() or 1.0)
        return (long, scale), (long, -scale)
    # two classes or more: no label is out of reach, so that the most is what two opposite labels differ by
    return (long, problem.classes[0]), (long, problem.classes[-1])


def _opposite(problem: Problem, label: object) -> object:
    if problem.classes is None:
        return -label  # type: ignore[operator]
    return problem.classes[0] if label != problem.classes[0] else problem.classes[-1]


def _with_record(problem: Problem, row: int, features: np.ndarray, label: object) -> Problem:
    X, y = problem.data.X.astype(np.float64), problem.data.y.copy()
    X[row], y[row] = features, label
    return replace(problem, data=replace(problem.data, X=X, y=y))


def _checked(first: Problem, second: Problem) -> Neighbours:
    """Refuse a pair that differs in more than one record, or in anything public."""
    same = (
        np.array_equal(first.split.sizes, second.split.sizes)
        and np.array_equal(first.split.order, second.split.order)
        and first.data.X.shape == second.data.X.shape
        and first.spec == second.spec
    )
    if not same:
        raise InputError(
            "problem=(D, D') differ in more than records; neighbours have the same loss, weights, bounds, sizes and "
            "order. Make D' from D with one record replaced."
        )
    differ = (first.data.X != second.data.X).any(axis=1) | (first.data.y != second.data.y)
    if differ.sum() != 1:
        raise InputError(
            f"D and D' differ in {int(differ.sum())} records; neighbours differ in exactly one, of one agent. Another "
            "canary, or other records, may do."
        )
    place = int(np.flatnonzero(first.split.order == int(np.flatnonzero(differ)[0]))[0])
    agent = int(np.searchsorted(np.cumsum(first.split.sizes), place, side="right"))
    return Neighbours(first, second, agent)
