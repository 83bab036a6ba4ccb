"""Who holds what, in a private run, is known without the records; and in every run each record has one holder, once."""

import dataclasses
import functools
import math

import numpy as np
import pytest
from entrances import BUDGET, ENTRANCES, PRIVATE, alone, call, solve

import relaydp as rd
from relaydp import partition
from relaydp.errors import InputError, PrivacyError
from relaydp.estimator import RelayLogisticRegression
from relaydp.problem import build_again
from relaydp.problem.partition import Split

draw = np.random.default_rng(0)
X = draw.uniform(size=(60, 3))
Y = np.arange(60) % 2
WHERE = np.repeat(["a", "b", "c"], 20)
DATA = rd.Records(X, Y, ranges=(0, 1), classes=(0, 1), groups={"site": WHERE})
NAMES = ("a", "b", "c")
RUN = ["--agents", 3, "--ranges", "0,1", "--classes", "0,1", "--walk", "cyclic", "--activations", 2, "--steps", "paper"]


def problem(agents=3, data=DATA):
    return rd.logistic(data, agents, l2=1e-2)


def split(order, sizes=(20, 20, 20), names=NAMES):
    return lambda data: Split(order, sizes, names)


@functools.wraps(partition.even(3))
def wrapped(data):
    return partition.even(3)(data)


MAY_LOOK = {
    "by labels": partition.dirichlet(3, 50.0),
    "a function of one's own": lambda data: Split(np.argsort(data.y, kind="stable"), np.full(3, 20), NAMES),
    "one that passes for ours": wrapped,
}
KNOWN = {
    "a count": 3,
    "sizes": [30, 20, 10],
    "a column": "site",
    "even": partition.even(3),
    "by_sizes": partition.by_sizes([30, 20, 10]),
    "by_column": partition.by_column("site"),
}


# -- known without the records


@ENTRANCES
@pytest.mark.parametrize("agents", MAY_LOOK.values(), ids=list(MAY_LOOK))
def test_a_split_that_may_look_at_the_records_is_refused_in_a_private_run(entrance, agents):
    made = problem(agents)
    assert made.dealt and not isinstance(made.spec["agents"], int)
    with pytest.raises(PrivacyError, match=r"agents=COUNT, a list of sizes .*, or the name of a group column.*seed="):
        entrance(made)
    entrance(made, seed=0)  # a simulation promises nothing


def test_one_label_moves_others_by_dirichlet():
    """Why it is refused."""
    other = Y.copy()
    other[17] = 1 - other[17]
    orders = [
        problem(partition.dirichlet(3, 50.0), rd.Records(X, y, ranges=(0, 1), classes=(0, 1))).split for y in (Y, other)
    ]
    held = [np.split(order, np.cumsum(sizes)[:-1]) for order, sizes, _ in orders]
    assert sum(len(set(one) - set(two)) for one, two in zip(*held, strict=True)) > 1


@ENTRANCES
@pytest.mark.parametrize("agents", KNOWN.values(), ids=list(KNOWN))
def test_splits_that_are_known_without_the_records_are_taken(entrance, agents):
    made = problem(agents)
    assert not made.dealt
    assert entrance(made) is not None
    again = build_again(made.spec, DATA)  # a saved result says them
    assert not again.dealt and again.split.sizes.tolist() == made.split.sizes.tolist()


def test_it_stays_refused_in_parts_copies_and_what_is_built_again(tmp_path):
    made = problem(partition.dirichlet(3, 50.0))
    for other in (made.alone(0), dataclasses.replace(made, kernels=False), build_again(made.spec, DATA)):
        assert other.dealt
    with pytest.raises(PrivacyError, match="may look at the records"):
        rd.solve_alone(made.alone(0), BUDGET, activations=2)
    folder = solve(made, seed=1).save(tmp_path / "run")
    assert rd.rerun(folder, DATA).epsilon == math.inf


def test_it_is_refused_before_anything_is_computed_or_charged(tmp_path):
    account = rd.PrivacyAccount(3.0, 1e-4, path=tmp_path / "account.db")
    made = problem(partition.dirichlet(3, 50.0))
    for entrance in (solve, alone):
        with pytest.raises(PrivacyError, match="may look at the records"):
            entrance(made, account=account)
    assert account.spent == 0.0 and "agent_records" not in vars(made)


def test_runs_without_a_promise_take_any():
    made = problem(partition.dirichlet(3, 50.0))
    options = {"activations": 2, "walk": "cyclic", "steps": "paper"}
    assert rd.solve(made, rd.ring(3), **options).status == "finished"
    assert not rd.solve(made, rd.ring(3), mechanism="published", budget=BUDGET, **options).private


def test_files_of_settings_and_estimators_have_no_such_split(tmp_path):
    file = tmp_path / "run.toml"
    for line in ("agents = {dirichlet = {agents = 3, concentration = 50.0}}", 'agents = "label"'):
        file.write_text(f'[data]\nsource = "breast-cancer"\n[problem]\n{line}\n[run]\nepsilon = 2.0\ndelta = 1e-4\n')
        for command in ("run", "plan"):
            found = call(command, file)
            assert found.exit_code == 2 and found.stderr.startswith("error: "), found.output
            assert "agents" in found.stderr
    fit = RelayLogisticRegression(bounds=(0, 1), classes=[0, 1], agents=partition.dirichlet(3, 50.0))
    with pytest.raises(InputError, match="must be a whole number, 1 or more. Or pass sites="):
        fit.fit(X, Y)


# -- each record with one agent, once

ROWS = np.arange(60)
WRONG = {
    "a record many times": (split(np.r_[np.zeros(20, int), ROWS[:40]]), "row 0 21 times"),
    "one record twice": (split(np.r_[ROWS[:59], 0]), "row 0 2 times"),
    "agents with the same records": (split(np.tile(ROWS[:20], 3)), "row 0 3 times"),
    "rows from the end": (split(ROWS - 60), "row -60"),
    "rows that there are not": (split(ROWS + 1), "row 60"),
    "too few rows": (split(ROWS[:40], (20, 20), NAMES[:2]), "40 rows for 60 records"),
    "too many rows": (split(np.r_[ROWS, ROWS]), "120 rows for 60 records"),
    "rows that are no numbers": (split(ROWS.astype(float)), "type float64"),
    "rows by truth": (split(np.ones(60, bool)), "type bool"),
    "a table of rows": (split(ROWS.reshape(3, 20)), r"shape \(3, 20\)"),
    "more than there are": (split(ROWS, (60, 60, 60)), "add up to 180"),
    "fewer than there are": (split(ROWS, (10, 10, 10)), "add up to 30"),
    "sizes that run over": (split(ROWS, np.array([2**63, 2**63, 60], np.uint64)), f"add up to {2**64 + 60}"),
    "fractions": (split(ROWS, (20.0, 20.0, 20.0)), "sizes of type float64"),
    "an agent without records": (split(ROWS, (60, 0, 0)), "an agent of size 0"),
    "less than none": (split(ROWS, (70, -5, -5)), "an agent of size -5"),
    "nobody": (split(ROWS, np.empty(0, int), ()), "no agent"),
    "names": (split(ROWS, names=("a", "b")), "2 names for 3 agents"),
    "nothing": (lambda data: None, "returned None"),
    "two parts": (lambda data: (ROWS, [20, 20, 20]), r"must return partition\.Split"),
}  # fmt: skip


@pytest.mark.parametrize(("agents", "named"), WRONG.values(), ids=list(WRONG))
def test_a_split_that_is_none_is_refused_in_every_run(agents, named):
    with pytest.raises(InputError, match=named) as refused:
        problem(agents)
    assert "must" in str(refused.value)


def test_a_split_of_ones_own_is_taken_in_a_simulation():
    order = np.random.default_rng(1).permutation(60)
    made = problem(split(order.tolist(), [10, 20, 30]))
    assert made.split.order.tolist() == order.tolist() and made.split.sizes.tolist() == [10, 20, 30]
    assert solve(made, seed=0).status == "finished"


# -- what was given is copied


def test_nobody_changes_a_split_afterwards():
    order, sizes = np.arange(60), np.array([20, 20, 20])
    made = problem(split(order, sizes))
    order[:], sizes[:] = 0, 1
    assert made.split.order.tolist() == list(range(60)) and made.split.sizes.tolist() == [20, 20, 20]
    for agents in (3, "site", np.array([20, 20, 20])):
        for part in problem(agents).split[:2]:
            with pytest.raises(ValueError, match="read-only"):
                part[:] = 1
    sizes = np.array([20, 20, 20])
    later = partition.by_sizes(sizes)
    sizes[:] = [58, 1, 1]
    assert problem(later).split.sizes.tolist() == [20, 20, 20]


@pytest.mark.parametrize("whose", ["records", "problem"])
def test_nobody_changes_ranges_or_classes_afterwards(whose):
    low, high, classes = np.zeros(3), np.ones(3), np.array([0, 1])
    given = {"ranges": (low, high), "classes": classes}
    data = rd.Records(X, Y, **(given if whose == "records" else {}))
    made = rd.logistic(data, 3, **(given if whose == "problem" else {}))
    low[:], high[:], classes[:] = -5.0, 5.0, 7
    assert [bound.tolist() for bound in made.ranges] == made.spec["ranges"] == [[0.0] * 3, [1.0] * 3]
    assert made.classes.tolist() == made.spec["classes"] == [0, 1]
    kept = [*made.ranges, made.classes]
    if whose == "records":
        assert [bound.tolist() for bound in data.ranges] == [[0.0] * 3, [1.0] * 3] and data.classes == (0, 1)
        kept += data.ranges
    for part in kept:
        with pytest.raises(ValueError, match="read-only"):
            part[:] = 1


def test_ranges_in_lists_are_copied_too():
    ends = [[0.0] * 3, [1.0] * 3]
    data = rd.Records(X, Y, ranges=ends)
    ends[1][0] = 9.0
    assert data.ranges == ((0.0,) * 3, (1.0,) * 3)
    for number in (0, np.float64(0.0)):
        assert rd.Records(X, Y, ranges=[number, 255]).ranges == (0, 255)


def test_fitted_ranges_are_read_only_too():
    for bound in rd.logistic(rd.Records(X, Y), 3, ranges="fit").ranges:
        assert not bound.flags.writeable


@pytest.mark.parametrize("classes", [[0, 1, 1], [0], [], "01", [0, "1"], [0, None], [0, math.nan], [[0, 1], [2, 3]], 2])
def test_records_refuse_classes_that_are_none(classes):
    with pytest.raises(InputError, match=r"classes=.*; it must be two or more different labels"):
        rd.Records(X, Y, classes=classes)


# -- the prior is public


@ENTRANCES
def test_a_prior_of_the_private_records_is_refused(entrance):
    made = problem()
    flipped = Y.copy()
    flipped[0] = 1
    for data in (DATA, rd.Records(X, Y, ranges=(0, 1)), rd.Records(X.copy(), flipped, ranges=(0, 1))):
        prior = problem(1, data)
        with pytest.raises(PrivacyError, match="the prior must be public records; these are the private ones"):
            entrance(made, prior=prior)
    entrance(made, prior=problem(1), seed=0)
    entrance(made, prior=problem(1, rd.Records(X[::-1] ** 2, Y, ranges=(0, 1))))


@pytest.fixture
def files(tmp_path):
    def write(name, features):
        rows = [f"{a},{b},{c},{y}" for (a, b, c), y in zip(features, Y, strict=True)]
        (tmp_path / name).write_text("\n".join(["a,b,c,label", *rows]) + "\n")
        return tmp_path / name

    own = write("visits.csv", X)
    (tmp_path / "link.csv").symlink_to(own)
    return {"own": own, "linked": tmp_path / "link.csv", "copied": write("copy.csv", X), "public": write("p.csv", X**2)}


@pytest.mark.parametrize("command", ["run", "plan"])
def test_the_command_line_refuses_it_too(command, files):
    words = ["--data", files["own"], *RUN, *PRIVATE]

    def asked(name):
        """A file with that prior, which has no option."""
        file = files[name].with_suffix(".toml")
        file.write_text(f'[run]\nprior = "{files[name].name}"\n')
        return [command, file, *words]

    for name in ("own", "linked", "copied"):
        found = call(*asked(name))
        assert found.exit_code == 2 and found.stderr.startswith("error: the prior must be public"), found.output
    assert call(*asked("own"), "--seed", 0).exit_code == 0
    assert call(*asked("public")).exit_code == 0


def test_other_columns_of_the_private_file_are_the_private_records(files):
    data = rd.load_data(files["own"])
    prior = rd.logistic(rd.load_data(files["linked"]), 1, ranges=(0, 1))
    turned = rd.Records(data.X[:, ::-1], data.y, source=data.source)
    assert data.same_as(prior.data) and data.same_as(turned) and not data.same_as(rd.load_data(files["public"]))


def test_records_that_gave_a_column_away_are_the_same_records():
    """Whose a record is, is no feature of the private problem; its prior may still have it as one."""
    site = np.repeat([0.0, 1.0, 2.0], 20)
    data = rd.Records(np.column_stack([X, site]), Y, ranges=(0, 2), classes=(0, 1), columns=("a", "b", "c", "site"))
    made = rd.logistic(data, "site", l2=1e-2, intercept=True)
    with pytest.raises(PrivacyError, match="the prior must be public records"):
        solve(made, prior=rd.logistic(data, 1, l2=1e-2))
    other = rd.Records(np.column_stack([X**2, site]), Y, ranges=(0, 2), classes=(0, 1), columns=data.columns)
    solve(made, prior=rd.logistic(other, 1, l2=1e-2))


@pytest.mark.parametrize(
    ("split", "said"),
    [
        (lambda: partition.even("3"), "agents='3'; it must be a whole number"),
        (lambda: partition.even(2.5), "agents=2.5; it must be a whole number"),
        (lambda: partition.even(0), "agents=0; it must be a whole number"),
        (lambda: partition.by_column(3), "name=3; needed the name of a column"),
    ],
)
def test_what_is_no_count_or_name_is_refused_at_once(split, said):
    with pytest.raises(InputError, match=said):
        split()
