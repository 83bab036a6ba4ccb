"""Neighbours: two problems that differ in one record of one agent, chosen to make the difference visible in a run.

    worst        a record of the largest norm with an extreme label, on one side under D and on the other under D': its
                 clipped gradient is -c v and +c v at every point of the run, so that the mean moves by 2c/m
    mislabelled  one record with the opposite label: the effect of a wrong entry in a real data set
    stranger     one record replaced by another agent's: the effect of one ordinary person
    turned       the same label, the opposite features
    long         the opposite features, a thousand times as long: beyond what the public bounds allow, so that it is
                 shrunk

The first one tests a claim. The others show how much less an ordinary record reveals, and give the first layer of an
audit records of many kinds.
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
FAR = 1e6  # a label far from every score, in units of the gradient's slope
LONG = 1e3  # how much longer the long record is
# The built-in problem is small, so that many runs of it take seconds. Its records have norms on both sides of the
# bound, and most have gradients above the clip: code that does not clip, or clips to another norm, computes another
# mean. The number of records is two whole blocks of the fused kernel and a remainder.
DIM, RECORDS = 3, 21
NORM = 2.0  # public bound on records
STEEP = 10.0  # of the built-in problem's loss, in units of the clip: without clipping a record would count ten times
BEND = 64  # records per agent with noise in the objective: with fewer, `bend` is too large for sixty releases
RIDGE = 2.0  # and the ridge for that


class Neighbours(NamedTuple):
    """D and D', and the place where they differ."""

    first: Problem
    second: Problem
    agent: int


def built_in(agents: int, mechanism: str, seed: int, classes: bool = False) -> Problem:
    """A very small problem: a few records of three features per agent, with Huber's loss, or with the logistic one: for
    noise in the objective, which has a proof for no other, and with `classes` for a run that is planned for accuracy.

    The published mechanism assumes a bound c on the whole of an agent's gradient instead of clipping each record's. So
    there the loss has at most that slope, and an agent has one record, which can have the whole effect that the paper
    allows: the test concerns its claim, not its assumption.
    """
    draw = np.random.default_rng(seed)
    records = {"published": 1, "objective": BEND}.get(mechanism, RECORDS)
    X = draw.normal(size=(agents * records, DIM))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    if mechanism == "published":
        data = Records(X, draw.uniform(-1.0, 1.0, len(X)), name="audit")
        return huber(data, agents, l2=0.1, record_norm=1.0, clip=1.0, threshold=1.0)
    X *= draw.uniform(0.2, 1.5 * NORM, len(X))[:, None]
    if classes:
        data = Records(X, np.where(np.arange(len(X)) % 3, 1, -1), classes=(-1, 1), name="audit")
        return logistic(data, agents, record_norm=NORM)
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
        except InputError:  # some kinds do not exist for some problems
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
    if problem.scale is not None:
        long = problem.scale.longest  # every feature at the end of its range that is farther from 0
    else:
        long = np.eye(features)[0] * (problem.record_norm or 1.0)
    if problem.classes is None:
        scale = FAR * max(1.0, problem.gradient_bound() or 1.0)
        return (long, scale), (long, -scale)
    # with classes no label is extreme, so the largest effect is the difference of two opposite labels
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
