"""The comparison of gradients with statistics: its problems can be made again, and its sentence says what was found."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import least_squares

from relaydp.planning.statistics import LITTLE


def test_a_problem_is_made_of_its_seed_and_within_its_bounds():
    (name, problem, budget), (again, same, _) = (least_squares.make_problem(5003) for _ in range(2))
    assert name == again and np.array_equal(problem.data.X, same.data.X) and np.array_equal(problem.data.y, same.data.y)
    assert np.abs(problem.data.y).max() <= problem.label_bound
    assert f"{len(problem.data)} records, {problem.agents} agents, epsilon {budget.epsilon:g}" in name


def test_those_held_back_are_others():
    assert not set(least_squares.SEEN) & set(least_squares.HELD_BACK)


def test_the_sentence_counts_and_averages():
    rows = [
        least_squares.Row("a", LITTLE / 2, True, 4.0, 1.0),
        least_squares.Row("b", LITTLE / 2, True, 1.0, 4.0),
        least_squares.Row("c", LITTLE / 2, True, 2.0, 1.0),
    ]
    said = least_squares.counts(rows)
    assert said.startswith("3 problems: statistics have the smaller excess in 2")
    ratio = float(said.split("geometric mean ")[1].split(",")[0])
    assert ratio == pytest.approx(0.5 ** (1 / 3), abs=0.01)
    assert "from 0.25 to 4.00" in said and "2.3 by gradients, 2 by statistics" in said
