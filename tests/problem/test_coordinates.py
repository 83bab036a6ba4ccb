"""Coordinates in which records are short: what is released for them, what they are, and gradients in them."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import relaydp as rd
from relaydp.arrays import placed
from relaydp.auditing.noise import clipped_means, mean_moments
from relaydp.problem.coordinates import (
    FARTHEST,
    KEPT,
    LONGER,
    NEAR,
    RAREST,
    SEEN,
    SHORTER,
    UNEVEN,
    Coordinates,
    _careful,
    classes_of,
    find_coordinates,
)

SIZES = (40, 25, 60)
LOSSES = {"logistic": (-1, 1), "softmax": (0, 1, 2)}


def toy(loss="logistic", features=7, intercept=False, pixels=False, seed=0, **options):
    draw = np.random.default_rng(seed)
    X = draw.uniform(0.0, 1.0, (sum(SIZES), features)) ** 2
    y = draw.choice(LOSSES[loss], len(X))
    if pixels:
        X, options = (255 * X).astype(np.uint8), {"ranges": (0, 255), **options}
    data = rd.Records(X, y, classes=LOSSES[loss])
    return getattr(rd, loss)(data, agents=list(SIZES), record_norm=1.3, intercept=intercept, **options)


def matrix(change):
    """P of (2), from its definition."""
    u = np.asarray(change.direction)
    return float(change.length) * (np.eye(len(u)) - (1 - KEPT) * np.outer(u, u))


def found_for(problem, variance=0.0):
    """The coordinates that all agents' moments give, without noise."""
    told = mean_moments(problem).mean(axis=0)
    bound, outputs = placed(problem.features_bound()), problem.loss.outputs
    return find_coordinates(placed(told), placed(variance), bound, problem.intercept, outputs)


def rows_of(problem):
    """Every record as the loss sees it, the intercept's 1 included, and its agent."""
    held = problem.agent_records.dense()
    A = np.asarray(held.X)[: sum(SIZES)]
    return np.column_stack([A, np.ones(len(A))]) if problem.intercept else A


# -- the change itself


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_change_is_its_matrix_and_can_be_undone(outputs):
    draw = np.random.default_rng(1)
    u = draw.normal(size=5)
    change = Coordinates(placed(u / np.linalg.norm(u)), placed(2.5), placed(np.zeros(5 * outputs)), placed(1.0))
    x = draw.normal(size=5 * outputs)
    expected = matrix(change) @ x.reshape(5, outputs)
    assert np.asarray(change(placed(x))).reshape(5, outputs) == pytest.approx(expected, rel=1e-12)
    assert np.asarray(change.undo(change(placed(x)))) == pytest.approx(x, rel=1e-12)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_records_have_the_length_that_plans_are_made_for_and_little_in_common(loss, intercept):
    problem = toy(loss, intercept=intercept)
    change, A = found_for(problem), rows_of(problem)
    sizes = np.repeat(SIZES, SIZES)
    weights = 1.0 / (len(SIZES) * sizes)  # every agent counts the same
    mean = weights @ A
    assert np.asarray(change.direction) == pytest.approx(mean / np.linalg.norm(mean), rel=1e-9)
    bound = math.hypot(problem.features_bound(), intercept)
    moved = A @ matrix(change)
    left = weights @ (A**2).sum(axis=1) - mean @ mean  # r^2
    assert float(change.length) == pytest.approx(bound / math.sqrt(left + (KEPT * np.linalg.norm(mean)) ** 2), rel=1e-9)
    # (2) takes the records' spread along u for that of their mean, so that they are a little shorter than planned
    assert 0.8 * bound**2 <= weights @ (moved**2).sum(axis=1) <= bound**2 * (1 + 1e-9)
    assert np.linalg.norm(weights @ moved) < np.linalg.norm(mean)


@pytest.mark.parametrize("intercept", [False, True])
def test_the_start_says_how_frequent_the_classes_are(intercept):
    X = np.full((30, 4), 0.5)
    y = np.where(np.arange(30) % 10 == 0, 1, -1)  # one in ten, for each of three agents
    problem = rd.logistic(rd.Records(X, y, classes=[-1, 1]), agents=3, record_norm=1.0, intercept=intercept)
    told = placed(mean_moments(problem).mean(axis=0))
    change = find_coordinates(told, placed(0.0), placed(1.0), intercept, 1)
    score = np.append(X[0], 1.0)[: 4 + intercept] @ np.asarray(change.start)
    assert score == pytest.approx(math.log(0.1 / 0.9), rel=1e-6)


def test_the_start_of_several_classes_has_their_shares():
    X = np.full((60, 4), 0.5)
    y = np.repeat([0, 1, 2], [30, 20, 10])
    problem = rd.softmax(rd.Records(X, y, classes=[0, 1, 2]), agents=1, record_norm=1.0)
    told = placed(mean_moments(problem)[0])
    change = find_coordinates(told, placed(0.0), placed(1.0), False, 3)
    scores = X[0] @ np.asarray(change.start).reshape(4, 3)
    assert np.exp(scores) / np.exp(scores).sum() == pytest.approx([1 / 2, 1 / 3, 1 / 6], rel=1e-6)


def test_of_much_noise_nothing_is_believed():
    """No class is taken for rarer than the others, and the direction is that of equal features."""
    draw = np.random.default_rng(0)
    told = 100.0 * draw.normal(size=403)
    change = find_coordinates(placed(told), placed(100.0**2), placed(1.0), False, 1)
    assert float(change.pace) == pytest.approx(1.0, abs=1e-3)
    u = np.asarray(change.direction)
    assert abs(u.sum()) / math.sqrt(len(u)) > 0.5


@given(
    st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=8),
    st.floats(0.0, 1e6),
    st.floats(1e-3, 1e3),
    st.booleans(),
    st.sampled_from([1, 3]),
)
def test_whatever_is_released_gives_a_change_that_can_be_used(told, variance, bound, intercept, outputs):
    classes = classes_of(outputs)
    told = np.array([*np.resize(told, classes * len(told)), 0.3, *([0.1] * classes)])
    change = find_coordinates(placed(told), placed(variance), placed(bound), intercept, outputs)
    assert all(np.isfinite(part).all() for part in change) and float(change.length) > 0
    longest = (4.0 * RAREST * (1.0 - RAREST)) ** -LONGER
    # however large the noise: the last factor is a third or more
    assert FARTHEST**-SHORTER / 3.3 <= float(change.pace) <= longest * (1 + 1e-12)
    size = np.linalg.norm(change.direction)
    assert size == pytest.approx(1.0) or size == 0.0


# -- what is released


@pytest.mark.parametrize("pixels", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_moments_are_means_over_each_agents_records(loss, intercept, pixels):
    problem = toy(loss, intercept=intercept, pixels=pixels)
    bound = problem.features_bound()
    expected = mean_moments(problem)
    for records in (problem.agent_records, problem.working_records, problem.records_for(100, True)):
        assert np.asarray(records.moments(placed(bound))) == pytest.approx(expected, rel=1e-12)
    assert expected.shape == (3, classes_of(problem.loss.outputs) * (problem.data.features + 1) + 1)


def told_of(a, label, bound, classes):
    """One record's part of a release, without the mean."""
    own = np.arange(classes) == label
    return np.concatenate([np.outer(own, a).ravel(), [a @ a / (2 * bound)], bound * own])


@given(st.data(), st.sampled_from([2, 4]), st.floats(0.01, 100.0))
def test_no_record_moves_a_release_by_more_than_twice_the_bound(data, classes, bound):
    """Any two records within the bound, whatever their labels."""
    pair = []
    for _ in range(2):
        a = np.array(data.draw(st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=3)))
        length = data.draw(st.floats(0.0, 1.0))
        a = bound * length * a / max(np.linalg.norm(a), 1e-9)
        pair.append(told_of(a, data.draw(st.integers(0, classes - 1)), bound, classes))
    assert np.linalg.norm(pair[0] - pair[1]) <= 2 * bound * (1 + 1e-12)


@pytest.mark.parametrize("other", [0, 1])
def test_the_worst_pairs_move_it_by_all_of_that(other):
    a = np.array([3.0, 0.0])
    assert np.linalg.norm(told_of(a, 0, 3.0, 2) - told_of(-a, other, 3.0, 2)) == pytest.approx(6.0, rel=1e-12)


# -- the pace


def classes_apart(distance, every=2, seed=0):
    """The moments of two classes whose means are this far apart; the second has one of `every` records."""
    draw = np.random.default_rng(seed)
    second = np.arange(4000) % every == 0
    X = 0.2 * draw.normal(size=(4000, 10)) + distance * np.outer(second - 0.5, np.eye(10)[3])
    problem = rd.logistic(rd.Records(X, np.where(second, 1, -1), classes=[-1, 1]), agents=1, record_norm=5.0)
    return mean_moments(problem)[0]


def pace_of(told, variance=0.0):
    return float(find_coordinates(placed(told), placed(variance), placed(5.0), False, 1).pace)


def test_classes_that_are_far_apart_take_shorter_steps():
    paces = [pace_of(classes_apart(distance)) for distance in (0.01, 0.1, 0.3, 1.0, 3.0)]
    assert (np.diff(paces) <= 0).all() and paces[:2] == pytest.approx([1.0, 1.0], rel=1e-6) and paces[-1] < 0.4
    # by hand: half of the classes' distance, squared, as a share of the records' mean square
    distance, told = 0.3, classes_apart(0.3)
    d = (distance / 2) ** 2 / (2 * 5.0 * told[20])
    assert d > NEAR and paces[2] == pytest.approx((NEAR / d) ** SHORTER, rel=0.1)


def test_a_rare_class_takes_longer_steps():
    """By hand: with shares p and 1 - p, v is 4 p (1 - p)."""
    paces = {every: pace_of(classes_apart(0.01, every)) for every in (2, 4, 20)}
    for every, pace in paces.items():
        assert pace == pytest.approx((4 / every * (1 - 1 / every)) ** -LONGER, rel=1e-3)


def test_a_frequent_class_takes_shorter_steps_under_much_noise():
    """By hand; and with classes of the same size no noise shortens them."""
    for every, shortens in ((20, True), (2, False)):
        told = classes_apart(0.01, every)
        quiet = pace_of(told)
        for spread in (2.0**-8, 2.0**-6, 2.0**-4, 2.0**-3):
            pace = careful(told, spread)
            odds = math.log(every - 1)
            square = max(odds**2 - 32 * spread**2, 0)
            power = SHORTER * square / (square + UNEVEN**2)
            assert pace == pytest.approx(min(1.0, SEEN / spread) ** power, rel=0.02)
            assert (pace < 0.999) == (shortens and spread > SEEN) and quiet >= 1.0


def careful(told, spread):
    """The last factor of the pace, for these shares and this noise of theirs."""
    return float(_careful(placed(told[-2:] / 5.0), placed(spread)))


def test_a_pace_that_noise_would_decide_is_1():
    draw, told = np.random.default_rng(0), classes_apart(1.0)
    for scale, near in ((1e-3, 0.1), (30.0, 0.99)):
        noisy = told + scale * draw.normal(size=told.shape)
        assert (abs(math.log(pace_of(noisy, scale**2))) < 0.01) == (near == 0.99)


# -- gradients


@pytest.mark.parametrize("own", [False, True], ids=["shared", "each its own"])
@pytest.mark.parametrize("pixels", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_are_those_of_the_records_in_these_coordinates(loss, intercept, pixels, own):
    """Each record's own gradient, clipped by its own length: by one program, by fused passes, and for all agents."""
    problem = toy(loss, intercept=intercept, pixels=pixels)
    draw, width = np.random.default_rng(3), problem.data.features + intercept
    us = draw.normal(size=(3, width))
    us /= np.linalg.norm(us, axis=1, keepdims=True)
    lengths = np.array([1.5, 2.0, 0.7])
    each = [
        Coordinates(placed(us[i * own]), placed(lengths[i * own]), placed(np.zeros(1)), placed(1.0)) for i in range(3)
    ]
    change = each[0]
    if own:
        change = Coordinates(placed(us), placed(lengths), placed(np.zeros((3, 1))), placed(np.ones(3)))
    clip, points = 0.2, draw.normal(size=(3, problem.dim))
    expected = np.concatenate(
        [clipped_means(problem, np.array([i]), points[i : i + 1], clip, each[i]) for i in range(3)]
    )
    for records in (problem.agent_records, problem.working_records, problem.records_for(100, True)):
        there = jax.jit(type(records).in_coordinates)(records, change)
        assert np.asarray(there.gradients(placed(points), placed(clip))) == pytest.approx(expected, abs=1e-8)
        if not own:
            for i in range(3):
                mine = there.gradient(jnp.asarray(i, jnp.int32), placed(points[i]), placed(clip))
                assert np.asarray(mine) == pytest.approx(expected[i], abs=1e-8)


def test_norms_are_rounded_up():
    """Records along the direction itself, whose norm is a difference of nearly equal numbers."""
    draw = np.random.default_rng(0)
    u = np.abs(draw.normal(size=300))
    u /= np.linalg.norm(u)
    X = np.outer(draw.uniform(0.5, 1.0, 50), u) + 1e-9 * draw.normal(size=(50, 300))
    problem = rd.logistic(rd.Records(X, np.where(np.arange(50) % 2, 1, -1)), agents=1, record_norm=2.0)
    change = Coordinates(placed(u), placed(1.0), placed(np.zeros(300)), placed(1.0))
    there = problem.agent_records.in_coordinates(change)
    true = np.linalg.norm(X.astype(np.longdouble) @ matrix(change).astype(np.longdouble), axis=1)
    assert (np.asarray(there.norm)[:50] >= true).all()
    assert np.asarray(there.norm)[:50] == pytest.approx(true.astype(float), rel=1e-9)
