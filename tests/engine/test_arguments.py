"""What is of the wrong kind is refused by its name, with what makes the right one; never by a traceback from inside."""

import numpy as np
import pytest

import relaydp as rd
from relaydp.errors import RelayError

X, Y = np.random.default_rng(0).normal(size=(40, 3)), np.tile([0, 1], 20)
DATA = rd.Records(X, Y, ranges=(-5, 5), classes=[0, 1])
BUDGET = rd.Budget(1.0, 1e-3)


@pytest.fixture(scope="module")
def problem():
    return rd.logistic(DATA, agents=4, l2=0.1)


WRONG = {
    "a graph's name": (lambda p: rd.solve(p, "ring"), r"graph='ring'; needed a Graph, such as rd\.ring\(8\)"),
    "a number of agents": (lambda p: rd.solve(p, 4), "graph=4; needed a Graph"),
    "records": (lambda p: rd.solve(DATA, rd.ring(4)), "problem=.*; needed a Problem, such as rd.logistic"),
    "records, swept": (lambda p: rd.sweep(DATA, rd.ring(4)), "needed a Problem"),
    "records, compared": (lambda p: rd.compare(DATA, rd.ring(4)), "needed a Problem"),
    "records, planned": (lambda p: rd.plan(DATA, rd.ring(4), BUDGET), r"needed a Problem.*or public_facts\(\.\.\.\)"),
    "records, alone": (lambda p: rd.solve_alone(DATA), "needed a Problem"),
    "no problem": (lambda p: rd.minimise(None), "problem=None; needed a Problem"),
    "a seed": (lambda p: rd.sweep(p, rd.ring(4), seeds=3), r"seeds=3; needed whole numbers, such as range\(16\)"),
    "half a seed": (lambda p: rd.sweep(p, rd.ring(4), seeds=[0.5]), "seed=0.5; needed a whole number"),
    "one budget": (
        lambda p: rd.sweep(p, rd.ring(4), seeds=[1], budgets=BUDGET),
        r"one budget; needed a list.*=\[Budget\(",
    ),
    "a model too short": (lambda p: p.predict(np.zeros(2), X), r"x has shape \(2,\); needed \(3,\)"),
    "no model": (lambda p: p.predict(None, X), r"x has shape \(\); needed \(3,\)"),
    "a seed, compared": (lambda p: rd.compare(p, rd.ring(4), "recal", seeds=3), "seeds=3; needed whole numbers"),
    "no seeds, compared": (lambda p: rd.compare(p, rd.ring(4), "recal", seeds=[]), "seeds is empty"),
    "progress": (lambda p: rd.solve(p, rd.ring(4), progress=3), "progress=3; needed True, False, None, or a function"),
    "a steep ratio": (lambda p: rd.plan(p, rd.ring(4), BUDGET, ratio=1e300), "ratio=1e.300; needed a number from"),
    "a ratio's name": (lambda p: rd.plan(p, rd.ring(4), BUDGET, ratio="2"), "ratio='2'; needed a number"),
    "a regulariser's name": (lambda p: rd.logistic(DATA, 4, regulariser="l1"), r"regulariser='l1'; .*relaydp\.prox"),
    "an intercept in words": (lambda p: rd.logistic(DATA, 4, intercept="no"), "intercept='no'; needed True or False"),
    "no threshold": (lambda p: rd.huber(DATA, 4, threshold=None), "threshold=None; needed the residual"),
    "an endless ridge": (lambda p: rd.logistic(DATA, 4, l2=1e300), "l2=1e.300; it must be a number from 0 to"),
    "no groups": (lambda p: rd.Records(X, Y, groups=None), "groups=None; needed a mapping"),
    "no folder": (lambda p: rd.load_result(None), "folder=None; needed the path of a result folder"),
    "a lap": (lambda p: rd.solve(p, rd.ring(4), steps={"stepsize": 0.1, "lap": 7}), "unknown step 'lap'"),
}


@pytest.mark.parametrize("call, said", WRONG.values(), ids=WRONG)
def test_a_wrong_argument_is_refused_by_its_name(problem, call, said):
    with pytest.raises(RelayError, match=said):
        call(problem)


def test_a_whole_ratio_is_a_ratio(problem):
    whole, number = (rd.plan(problem, rd.ring(4), BUDGET, ratio=ratio, activations=3) for ratio in (2, 2.0))
    assert np.array_equal(whole.scales, number.scales)
