"""What is known of a problem without its records: a consortium's table, arguments and settings mean the same."""

import numpy as np
import pytest

import relaydp as rd
from relaydp.cluster.partitions import make_task
from relaydp.errors import InputError
from relaydp.network.consortium.agreement import ProblemTable
from relaydp.problem import ProblemSpec
from relaydp.problem.build import LOSSES
from relaydp.problem.spec import OPTIONS_OF, by_end, misplaced, ranges_by_end, ranges_by_feature
from relaydp.settings.config import ProblemSection, _spec_of

SIZES = [6, 9, 5]
SHARED = {"l1": 0.0, "l2": 0.25, "intercept": True, "record_norm": 2.0, "clip": 0.5}
OF_LOSS = {
    "logistic": {"classes": [0, 1]},
    "softmax": {"classes": [0, 1, 2]},
    "least-squares": {"label_bound": 3.0},
    "huber": {"threshold": 0.75},
}
BY_FEATURE, BY_END = [[-1.0, 1.0], [0.0, 4.0]], [[-1.0, 0.0], [1.0, 4.0]]


def records_of(loss):
    draw = np.random.default_rng(0)
    count = sum(SIZES)
    y = np.resize(OF_LOSS[loss]["classes"], count) if "classes" in OF_LOSS[loss] else draw.normal(size=count)
    return rd.Records(draw.normal(size=(count, 2)), y)


def all_specs(loss):
    given = SHARED | OF_LOSS[loss]
    absent = {"columns": None, "label": None, "classes": None}
    yield ProblemTable(loss=loss, features=2, ranges=BY_FEATURE, **given).spec
    yield make_task(loss, **absent | {"features": 2, "ranges": BY_END} | given)
    section = ProblemSection(loss=loss, ranges=BY_END, **given)
    yield _spec_of(section, loss, section.ranges, 2)


@pytest.mark.parametrize("loss", LOSSES)
def test_all_three_are_one_problem(loss):
    options = SHARED | OF_LOSS[loss] | {"ranges": BY_END}
    expected = LOSSES[loss](records_of(loss), SIZES, **options)
    for spec in all_specs(loss):
        built, outline = spec.build_as_agreed(records_of(loss), SIZES), spec.outline(SIZES)
        for made in (built, outline):
            assert {**made.spec, "agents": SIZES} == {**expected.spec, "agents": SIZES}
            np.testing.assert_equal(vars(made.public_facts()), vars(expected.public_facts()))
        np.testing.assert_equal(spec.facts(SIZES).sizes, expected.public_facts().sizes)
        assert (spec.facts(SIZES).clip, spec.facts(SIZES).dim) == (0.5, expected.dim)
        np.testing.assert_array_equal(built.agent_records.X, expected.agent_records.X)


def test_what_records_bring_counts_only_where_nothing_was_agreed():
    bare = rd.Records([[0.0], [8.0]], [0, 1])
    brings = rd.Records(bare.X, bare.y, ranges=(0, 8), classes=[0, 1], test=bare, groups={"site": [1, 2]})
    spec = ProblemSpec("logistic", features=1)
    built, agreed = spec.build(brings, 2), spec.build_as_agreed(brings, [1, 1])
    assert built.ranges is not None and not built.found and built.data.test is bare
    assert agreed.ranges is None and agreed.found and agreed.data.test is None and not agreed.data.groups


def test_a_function_has_its_own_options():
    spec = ProblemSpec(lambda x, a, b: (a @ x - b) ** 2, features=2, smoothness=2.0, clip=1.0)
    assert spec.outline(SIZES).public_facts().smoothness.tolist() == [2.0] * 3
    assert "lambda" in spec.name and spec.width == 2


def test_options_of_another_loss_are_found():
    for name, owner in OPTIONS_OF.items():
        for loss in (*LOSSES, sum):
            assert misplaced(loss, {name: 1.0}) == (None if loss == owner else (name, owner))
    assert misplaced("logistic", dict.fromkeys(OPTIONS_OF)) is None


def test_ranges_of_files():
    assert by_end(ranges_by_feature(BY_FEATURE)) == ranges_by_end(BY_END) == tuple(BY_END)
    assert by_end(ranges_by_feature([0, 255])) == (0.0, 255.0) and by_end(None) is None
    for read in (ranges_by_end, ranges_by_feature):
        for wrong in (3, [1], ["a", "b"], [True, False], []):
            with pytest.raises(InputError):
                read(wrong)
