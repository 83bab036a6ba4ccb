"""Tables as users bring them: one scaling for all ways in, sparse columns stay sparse, and a norm that holds."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import relaydp as rd
from relaydp.errors import InputError
from relaydp.problem.bounds import as_groups, norm_bound, scale_between, typical_norm
from relaydp.settings.config import build, build_unseen, read_config

COLUMNS = ("age", "job_a", "job_b", "job_c", "gain", "south", "north")
LOW, HIGH = [18.0, 0.0, 0.0, 0.0, -50.0, 0.0, -1.0], [98.0, 1.0, 1.0, 1.0, 200.0, 1.0, 0.0]
GROUPS = ["job", ["south", "north"]]
TABLE = """
[problem]
agents = 4
classes = [0, 1]
intercept = true
ranges = [[18, 0, 0, 0, -50, 0, -1], [98, 1, 1, 1, 200, 1, 0]]
one_hot = ["job", ["south", "north"]]
"""


def draw_table(records: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Records that keep to their groups, some of them outside the bounds of their numbers."""
    rng = np.random.default_rng(seed)
    X = np.zeros((records, len(COLUMNS)))
    X[:, 0], X[:, 4] = rng.integers(10, 110, records), rng.normal(0, 100, records).round()
    X[np.arange(records), 1 + rng.integers(0, 3, records)] = 1.0
    south = rng.random(records) < 0.5
    X[south, 5], X[~south, 6] = 1.0, -1.0
    return X, (np.arange(records) + (X[:, 0] > 50)) % 2


def features(problem: rd.Problem) -> np.ndarray:
    return np.asarray(problem.agent_records.dense().X)[: int(problem.split.sizes.sum())]


def by_hand(X: np.ndarray) -> np.ndarray:
    A = np.clip(X, LOW, HIGH)
    A[:, 0] = (A[:, 0] - 58) / 40  # never 0: its middle becomes 0
    A[:, 4] /= 200  # both signs: divided by the larger bound
    return A


@pytest.mark.parametrize("dtype", ["float64", "float32", "int16", "int64"])
def test_zero_stays_zero_where_the_bounds_allow_it_and_others_are_centred(dtype):
    X, y = draw_table()
    problem = rd.logistic(rd.Records(X.astype(dtype), y), 4, ranges=(LOW, HIGH))
    np.testing.assert_allclose(features(problem), by_hand(X), rtol=1e-14, atol=1e-16)
    assert ((features(problem) == 0) >= (np.array(LOW) <= 0) * (X == 0)).all()


ends = st.floats(-1e6, 1e6).map(lambda end: round(end, 3))


@given(st.lists(st.tuples(ends, ends).filter(lambda pair: pair[0] != pair[1]), min_size=1, max_size=6), st.data())
@settings(deadline=None, max_examples=100)
def test_every_column_lands_in_minus_one_to_one_and_reaches_an_end(pairs, data):
    low, high = np.array([sorted(pair) for pair in pairs]).T
    scale = scale_between(low, high)
    values = np.array(data.draw(st.lists(st.floats(-1e9, 1e9), min_size=len(pairs), max_size=len(pairs))))
    scaled = scale(values[None])[0]
    assert (np.abs(scaled) <= 1 + 1e-12).all()
    np.testing.assert_allclose(np.maximum(*np.abs(scale.ends)), 1, rtol=1e-12)
    has_zero = (low <= 0) & (high >= 0)
    assert (scale(np.zeros((1, len(pairs))))[0][has_zero] == 0).all()
    inside = (values >= low) & (values <= high)
    np.testing.assert_allclose(scale.undo(scaled)[inside], values[inside], rtol=1e-9, atol=1e-6)


# ---------------------------------------------------------------- one scaling for all ways in


def test_every_door_scales_alike(tmp_path):
    X, y = draw_table()
    options = {"l2": 0.01, "intercept": True, "ranges": (LOW, HIGH), "one_hot": GROUPS, "classes": [0, 1]}
    mine = rd.logistic(rd.Records(X, y, columns=COLUMNS), 4, **options)
    np.savetxt(tmp_path / "t.csv", np.column_stack([X, y]), "%g", ",", header=",".join((*COLUMNS, "y")), comments="")
    (tmp_path / "t.toml").write_text('[data]\nsource = "t.csv"\nlabel = "y"\n' + TABLE)
    theirs, *_ = build(read_config(tmp_path / "t.toml", {"l2": 0.01}))
    assert features(theirs).tobytes() == features(mine).tobytes()
    assert theirs.record_norm == mine.record_norm == math.sqrt(2 + 2)
    assert theirs.public_facts().clip == mine.public_facts().clip
    public = {"bounds": (LOW, HIGH), "classes": [0, 1], "one_hot": [[1, 2, 3], [5, 6]]}
    model = rd.RelayLogisticRegression(**public, agents=4, l2=0.01, activations=5, random_state=0).fit(X, y)
    bare = {"transcript": False, "trace": False, "reference": False}
    asked = {"budget": rd.Budget(1.0, 1e-5), "walk": "tour", "activations": 5, "seed": 0, "trust": "curator", **bare}
    found = rd.solve(mine, rd.ring(4), **asked).x
    assert found.tobytes() == model.result_.x.tobytes()
    assert (mine.predict(found, X) == model.predict(X)).all()
    z = features(mine) @ found[:-1] + found[-1]
    np.testing.assert_allclose(model.decision_function(X), z, rtol=1e-12, atol=1e-12)


def test_one_range_for_all_columns_is_the_flag(tmp_path):
    X, y = draw_table()
    np.savetxt(tmp_path / "t.csv", np.column_stack([X, y]), "%g", ",", header=",".join((*COLUMNS, "y")), comments="")
    flags = {"data": str(tmp_path / "t.csv"), "label": "y", "classes": [0, 1], "agents": 4, "ranges": "-50,200"}
    problem, *_ = build(read_config(None, flags))
    np.testing.assert_array_equal(features(problem), np.clip(X, -50, 200) / 200)


def test_a_problem_that_is_planned_before_it_is_built_has_the_same_bound(tmp_path):
    (tmp_path / "t.toml").write_text(TABLE.replace('["job", ["south", "north"]]', "[[1, 2, 3], [5, 6]]"))
    facts, *_ = build_unseen(read_config(tmp_path / "t.toml", {"epsilon": 1.0}), [15] * 4, len(COLUMNS))
    X, y = draw_table()
    options = {"intercept": True, "ranges": (LOW, HIGH), "one_hot": [[1, 2, 3], [5, 6]]}
    here = rd.logistic(rd.Records(X, y), 4, **options).public_facts()
    assert (facts.clip, facts.smoothness.tolist()) == (here.clip, here.smoothness.tolist())


def test_a_saved_problem_is_built_again_with_its_groups():
    X, y = draw_table()
    problem = rd.logistic(rd.Records(X, y), 4, ranges=(LOW, HIGH), one_hot=[(1, 2, 3)])
    from relaydp.problem.build import build_again

    again = build_again(problem.spec, rd.Records(X, y))
    assert again.spec == problem.spec and problem.spec["one_hot"] == [[1, 2, 3]]
    assert features(again).tobytes() == features(problem).tobytes()


# ---------------------------------------------------------------- the norm


@given(
    st.lists(st.lists(st.floats(-1e3, 1e3), min_size=7, max_size=7), min_size=4, max_size=8),
    st.sampled_from([None, GROUPS, ["job"], [[1, 2]]]),
    st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_no_record_is_longer_than_the_public_bound(rows, groups, intercept):
    """Whether it keeps to its groups or not: the promise rests on the shrinking, not on the declaration."""
    X, y = np.array(rows), np.arange(len(rows)) % 2
    data = rd.Records(X, y, columns=COLUMNS)
    problem = rd.logistic(data, 2, ranges=(LOW, HIGH), one_hot=groups, intercept=intercept, classes=[0, 1])
    bound = problem.public_facts().clip  # the logistic slope is at most 1
    bare = math.sqrt(bound**2 - intercept)
    norms = np.linalg.norm(features(problem), axis=1)
    assert (norms <= bare * (1 + 1e-12)).all()
    assert (np.asarray(problem.agent_records.norm)[: len(X)] <= bound * (1 + 1e-12)).all()
    expected = {None: 7, "job": 5, "both": 4, "pair": 6}
    key = None if groups is None else "both" if groups == GROUPS else "job" if groups == ["job"] else "pair"
    assert bare == pytest.approx(math.sqrt(expected[key]))


def test_records_that_keep_to_their_groups_are_left_as_they_are():
    X, y = draw_table()
    data = rd.Records(X, y, columns=COLUMNS)
    plain, grouped = (rd.logistic(data, 4, ranges=(LOW, HIGH), one_hot=groups) for groups in (None, GROUPS))
    assert features(plain).tobytes() == features(grouped).tobytes()
    assert grouped.public_facts().clip == 2 < plain.public_facts().clip == math.sqrt(7)


def test_a_record_that_breaks_its_groups_is_shrunk():
    X, y = draw_table()
    X[3] = HIGH
    X[3, 6] = -1
    problem = rd.logistic(rd.Records(X, y, columns=COLUMNS), 4, ranges=(LOW, HIGH), one_hot=GROUPS)
    np.testing.assert_allclose(features(problem)[3], by_hand(X)[3] * 2 / math.sqrt(7), rtol=1e-14)


def test_a_given_norm_comes_before_the_groups():
    X, y = draw_table()
    data = rd.Records(X, y, columns=COLUMNS)
    problem = rd.logistic(data, 4, ranges=(LOW, HIGH), one_hot=GROUPS, record_norm=0.5)
    assert problem.record_norm == 0.5


def test_plans_do_not_look_at_what_the_groups_hold():
    X, y = draw_table()
    other = np.ones_like(X)
    options = {"ranges": (LOW, HIGH), "one_hot": GROUPS, "classes": [0, 1], "l2": 0.01}
    plans = [
        rd.plan(rd.logistic(rd.Records(A, y, columns=COLUMNS), 4, **options), rd.ring(4), rd.Budget(1.0, 1e-5))
        for A in (X, other)
    ]
    assert plans[0].scales.tolist() == plans[1].scales.tolist()


# ---------------------------------------------------------------- groups


def test_a_text_stands_for_the_columns_that_begin_with_it():
    assert as_groups(["job"], 3, ["job_a", "jobless", "job_b"]) == ((0, 2),)
    assert as_groups([["jobless", 0]], 3, ["job_a", "jobless", "job_b"]) == ((1, 0),)


WRONG_GROUPS = {
    "a text": ("job", "must be a list of groups"),
    "unknown prefix": (["jub"], "no column is called jub_"),
    "unknown name": ([["job_a", "job_d"]], "Did you mean 'job_"),
    "past the end": ([[0, 7]], "0 to 6"),
    "negative": ([[-1]], "0 to 6"),
    "truth value": ([[True]], "0 to 6"),
    "empty": ([[]], "a list of columns"),
    "twice": (["job", ["job_b"]], "'job_b' is twice"),
    "never 0": ([["age", "gain"]], r"\[18, 98\], which leave out 0"),
}


@pytest.mark.parametrize("case", WRONG_GROUPS)
def test_wrong_groups_are_refused(case):
    groups, said = WRONG_GROUPS[case]
    X, y = draw_table()
    with pytest.raises(InputError, match=said):
        rd.logistic(rd.Records(X, y, columns=COLUMNS), 4, ranges=(LOW, HIGH), one_hot=groups)


def test_groups_need_ranges():
    X, y = draw_table()
    with pytest.raises(InputError, match="one_hot was given without ranges"):
        rd.logistic(rd.Records(X, y, columns=COLUMNS), 4, one_hot=GROUPS)
    with pytest.raises(InputError, match="have no names here"):
        rd.logistic(rd.Records(X, y), 4, ranges=(LOW, HIGH), one_hot=[["job_a"]])


def test_the_bound_counts_columns_outside_and_groups():
    scale = scale_between(np.zeros(9), np.ones(9))
    assert norm_bound(9, [(0, 1, 2), (3, 4)], scale) == math.sqrt(4 + 2)
    assert norm_bound(9, [], scale) == 3.0


# ---------------------------------------------------------------- a guessed norm


def test_the_typical_norm_is_that_of_even_spread_and_of_one_in_eight():
    numbers, indicators = scale_between(np.full(30, 1.0), np.full(30, 3.0)), scale_between(np.zeros(80), np.ones(80))
    assert typical_norm(numbers) == pytest.approx(math.sqrt(10)) == typical_norm(indicators)
    for few in (1, 2, 4):
        assert typical_norm(scale_between(np.zeros(few), np.ones(few))) == math.sqrt(few)


@given(st.integers(5, 60), st.floats(0, 1), st.integers(0, 100))
@settings(deadline=None, max_examples=20)
def test_no_record_is_longer_than_the_typical_norm(columns, share, seed):
    X = (np.random.default_rng(seed).random((12, columns)) < share).astype(float)
    problem = rd.logistic(rd.Records(X, np.arange(12) % 2), 3, ranges=(0, 1), record_norm="typical")
    norms = np.linalg.norm(features(problem), axis=1)
    assert (norms <= problem.public_facts().clip * (1 + 1e-12)).all()
    assert problem.public_facts().clip == problem.record_norm == typical_norm(problem.scale)


def test_the_estimators_norm_is_typical_with_privacy_and_free_without(tmp_path):
    X, y = draw_table()
    public = {"bounds": (LOW, HIGH), "classes": [0, 1], "agents": 4, "activations": 3}
    private = rd.RelayLogisticRegression(**public, random_state=0).fit(X, y)
    assert private.result_.config["problem"]["record_norm"] == typical_norm(
        scale_between(np.array(LOW), np.array(HIGH))
    )
    free = rd.RelayLogisticRegression(**public, epsilon=math.inf).fit(X, y)
    assert free.result_.config["problem"]["record_norm"] is None
    text = TABLE.replace('one_hot = ["job", ["south", "north"]]', 'record_norm = "typical"')
    (tmp_path / "t.toml").write_text(text)
    facts, *_ = build_unseen(read_config(tmp_path / "t.toml", {"epsilon": 1.0}), [15] * 4, len(COLUMNS))
    known = rd.logistic(rd.Records(X, y), 4, ranges=(LOW, HIGH), intercept=True, record_norm="typical")
    assert facts.clip == known.public_facts().clip


def test_a_typical_norm_needs_ranges_and_its_name():
    X, y = draw_table()
    with pytest.raises(InputError, match="'typical' was given without ranges"):
        rd.logistic(rd.Records(X, y), 4, record_norm="typical")
    with pytest.raises(InputError, match="Did you mean 'typical'"):
        rd.logistic(rd.Records(X, y), 4, ranges=(LOW, HIGH), record_norm="typicl")
