"""A private run's loss and classes are declared, never read off the records: one label could change them."""

import json
import math

import numpy as np
import pytest
from entrances import BUDGET, ENTRANCES, PRIVATE, alone, call, planned, solve

import relaydp as rd
from relaydp.errors import InputError, PrivacyError
from relaydp.estimator import RelayLinearRegression, RelayLogisticRegression
from relaydp.problem import build_again
from relaydp.settings.config import build, parse_toml, read_config
from relaydp.settings.values import as_classes

SECRET = 0.8125  # a label that no message may quote
draw = np.random.default_rng(0)
X = draw.uniform(size=(60, 3))
Y = np.arange(60) % 2
RUN = ["--agents", 3, "--ranges", "0,1", "--walk", "cyclic", "--activations", 2, "--steps", "paper"]


def problem(loss="logistic", y=Y, **options):
    return getattr(rd, loss)(rd.Records(X, y), agents=3, l2=1e-2, ranges=(0, 1), **options)


@pytest.fixture
def visits(tmp_path):
    """Files that differ in one record's label."""

    def write(name, label):
        rows = [f"{a},{b},{c},{y}" for (a, b, c), y in zip(X, Y, strict=True)]
        rows[7] = rows[7].rpartition(",")[0] + f",{label}"
        (tmp_path / name).write_text("\n".join(["a,b,c,label", *rows]) + "\n")
        return tmp_path / name

    files = {"two": write("visits.csv", 1), "three": write("third.csv", 2), "fraction": write("part.csv", SECRET)}
    return files | {"number": write("many.csv", 1e6)}


# -- Python


@pytest.mark.sample(5)
@pytest.mark.parametrize("loss", ["logistic", "softmax"])
@ENTRANCES
def test_classes_found_in_the_records_are_refused_in_a_private_run(entrance, loss):
    y = np.where(Y == 1, SECRET, 0.25)
    found = problem(loss, y)
    assert found.found and "classes" not in found.spec
    with pytest.raises(
        PrivacyError, match=r"found in the records.*classes=\[\.\.\.\].*--classes a,b.*\[problem\]"
    ) as refused:
        entrance(found)
    assert str(SECRET) not in str(refused.value)
    entrance(found, seed=0)  # a simulation promises nothing
    declared = problem(loss, y, classes=[0.25, SECRET])
    assert not declared.found
    assert entrance(declared) is not None


def test_it_is_refused_before_anything_is_computed_or_charged(tmp_path):
    account = rd.PrivacyAccount(3.0, 1e-4, path=tmp_path / "account.db")
    made = problem()
    for entrance in (solve, alone):
        with pytest.raises(PrivacyError, match="one record could add one"):
            entrance(made, account=account)
    assert account.spent == 0.0
    assert "agent_records" not in vars(made)  # the records were not even laid out


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_runs_without_a_promise_may_look(loss):
    made = problem(loss)
    options = {"activations": 2, "walk": "cyclic", "steps": "paper"}
    assert rd.solve(made, rd.ring(3), **options).status == "finished"
    published = rd.solve(made, rd.ring(3), mechanism="published", budget=BUDGET, **options)
    assert not published.private
    assert math.isinf(rd.solve_alone(made, activations=2).epsilon)


def test_numbers_need_no_classes():
    for y in (Y, Y + 0.5, np.where(Y, 1, -1)):
        made = problem("least_squares", y, label_bound=2.0)
        assert solve(made).private and not made.found
        assert not made.classifies  # whatever the labels are: nobody said that they are signs
    signs = rd.Records(X, np.where(Y, 1, -1), classes=[-1, 1])
    assert rd.least_squares(signs, agents=3).classifies
    assert rd.least_squares(rd.load_data("breast-cancer"), agents=3).classifies


def test_data_sets_of_the_catalogue_bring_their_classes():
    cancer, digits = rd.load_data("breast-cancer"), rd.load_data("digits")
    assert cancer.classes == (-1, 1) and digits.classes == tuple(range(10))
    made = rd.logistic(cancer, agents=3)
    assert not made.found and made.spec["classes"] == [-1, 1]
    many = rd.softmax(digits, agents=3)
    assert not many.found and many.spec["classes"] == list(range(10))
    with pytest.raises(InputError, match="10 different labels"):
        rd.logistic(digits, agents=3)


def test_files_bring_none(visits, tmp_path):
    np.savez(tmp_path / "held.npz", X=X, y=Y)
    for file in (visits["two"], tmp_path / "held.npz"):
        data = rd.load_data(file)
        assert data.classes is None
        with pytest.raises(PrivacyError, match="classes="):
            solve(rd.logistic(data, agents=3, ranges=(0, 1)))


def test_records_may_declare_them():
    made = rd.softmax(rd.Records(X, Y, classes=[0, 1, 2]), agents=3)
    assert made.classes.tolist() == [0, 1, 2] and not made.found and made.dim == 9
    assert rd.softmax(made.data, agents=3, classes=[0, 1]).dim == 6  # what is passed wins
    with pytest.raises(InputError, match="not one of the classes"):
        rd.softmax(rd.Records(X, Y, classes=[1, 2, 3]), agents=3)


def test_a_declared_class_that_nobody_has_is_in_the_model_and_one_label_moves_nothing():
    """One record more or less of a class changes neither the dimension nor the plan."""
    labels = [np.zeros(60, int), np.where(np.arange(60) == 7, 1, 0), np.where(np.arange(60) == 7, 2, 0)]
    made = [problem("softmax", y, classes=[0, 1, 2]) for y in labels]
    assert {each.dim for each in made} == {9}
    plans = [planned(each) for each in made]
    assert len({plan.scales.tobytes() for plan in plans}) == len({repr(plan.steps) for plan in plans}) == 1
    assert len({(each.agent_records.y.dtype, each.agent_records.y.shape, each.loss) for each in made}) == 1


def test_a_saved_run_carries_them(tmp_path):
    made = problem("softmax", classes=[0, 1, 2])
    folder = solve(made).save(tmp_path / "run")
    spec = json.loads((folder / "publish" / "config.json").read_text())["problem"]
    assert spec["classes"] == [0, 1, 2]
    again = build_again(spec, made.data)
    assert again.dim == 9 and not again.found and again.spec == made.spec
    assert rd.rerun(folder, made.data, seed=0).x.shape == (9,)
    found = problem("softmax")
    assert build_again(found.spec, found.data).found  # nobody declares them by saving


# -- the command line, and files of settings


def refused(*args):
    result = call(*args)
    assert result.exit_code == 2 and result.stderr.startswith("error: ") and "Traceback" not in result.output
    assert str(SECRET) not in result.stderr
    return result.stderr


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize("loss", [[], ["--loss", "logistic"], ["--loss", "softmax"]], ids=["by itself", "two", "many"])
def test_the_command_line_refuses_whatever_the_labels_are(command, loss, visits):
    said = {refused(command, "--data", file, *RUN, *PRIVATE, *loss) for file in visits.values()}
    assert len(said) == 1 and "--classes a,b" in (text := said.pop()) and "[problem]" in text
    assert loss or "--loss least-squares or --loss huber" in text


def test_the_same_with_a_seed_or_without_a_budget_goes_on(visits, tmp_path):
    for words in ([*PRIVATE, "--seed", 0], [], [*PRIVATE, "--mechanism", "published"]):
        found = call("run", "--data", visits["two"], *RUN, *words, "--json")
        assert found.exit_code == 0, found.output
    assert call("plan", "--data", visits["three"], *RUN, *PRIVATE, "--seed", 0).exit_code == 0
    file = tmp_path / "walk.toml"
    file.write_text('[run]\nwalk = "cyclic"\nactivations = 2\n')
    words = [file, "--data", visits["two"], *RUN[:4], *PRIVATE, "--algorithms", "recal", "--seeds", 1, "--quiet"]
    fit = call("compare", *words)
    assert fit.exit_code == 0, fit.output


@pytest.mark.parametrize(("words", "loss"), [("0,1", "logistic"), ("0,1,2", "softmax")])
def test_declared_classes_imply_the_loss(words, loss, visits, tmp_path):
    out = tmp_path / "out"
    found = call("run", "--data", visits["two"], *RUN, *PRIVATE, "--classes", words, "--out", out)
    assert found.exit_code == 0, found.output
    result = rd.load_result(out)
    spec = result.config["problem"]
    assert result.private and spec["loss"] == loss and spec["classes"] == [int(word) for word in words.split(",")]
    again = call("rerun", out, "--seed", 3, "--json")
    assert again.exit_code == 0 and json.loads(again.stdout)["epsilon_planned"] == pytest.approx(2.0)


def test_a_label_that_is_none_of_them_is_told_to_the_owner(visits):
    for name, label in (("three", "2"), ("fraction", str(SECRET))):
        result = call("run", "--data", visits[name], *RUN, *PRIVATE, "--classes", "0,1")
        assert result.exit_code == 2 and f"label {label}" in result.stderr and "not one of the classes" in result.stderr


def test_numbers_have_one_plan_whatever_the_labels_are(visits):
    words = ["--loss", "least-squares", "--label-bound", 2, *PRIVATE, "--json"]
    plans = [call("plan", "--data", file, *RUN, *words) for file in visits.values()]
    assert len({plan.stdout for plan in plans}) == 1 and plans[0].exit_code == 0
    models = [
        read_config(None, {"data": str(file), "agents": "3", "epsilon": 2.0, "loss": "huber"})
        for file in visits.values()
    ]
    assert {build(each)[0].spec["loss"] for each in models} == {"huber"}


TOML = """
[data]
source = "visits.csv"
[problem]
agents = 3
ranges = [0, 1]
CLASSES
[run]
epsilon = 2.0
delta = 1e-4
activations = 2
walk = "cyclic"
steps = "paper"
"""


def test_files_of_settings(visits, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(TOML.replace("CLASSES", ""))
    for command in ("run", "plan"):
        assert "classes or loss in [problem]" in refused(command, file)
    file.write_text(TOML.replace("CLASSES", "classes = [0, 1]"))
    assert call("plan", file).exit_code == 0
    done = call("run", file, "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["epsilon"] == pytest.approx(2.0), done.output
    assert call("run", file, "--classes", "0,1,2").exit_code == 0  # flags win
    assert "leave one of them out" in refused("run", file, "--loss", "huber")


WRITTEN = ["True,False", "0.5,1.5", "12:00,13:30:15", "2020-01-01,2020-01-02 10:00", "no,yes", "1.0,2", "3e2,1"]


@pytest.mark.parametrize("words", WRITTEN)
def test_labels_are_matched_as_they_are_written(words, tmp_path):
    """Also truth values, fractions, and what the reader of the file takes for times and dates."""
    file, (first, second) = tmp_path / "visits.csv", words.split(",")
    rows = [f"{a},{b},{c},{second if y else first}" for (a, b, c), y in zip(X, Y, strict=True)]
    file.write_text("\n".join(["a,b,c,label", *rows]) + "\n")
    found = call("plan", "--data", file, *RUN, *PRIVATE, "--classes", words)
    assert found.exit_code == 0, found.output
    made = build(read_config(None, {"data": str(file), "agents": "3", "classes": words, "epsilon": 2.0}))[0]
    _, counts = np.unique(made.encode_labels(made.data.y), return_counts=True)
    assert counts.tolist() == [30, 30]


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_labels_that_lack_digits_are_refused(loss, tmp_path):
    """One label with a point makes floats of all, and floats of 2^53 and more are no longer told apart."""
    classes, file = [2**53, 2**53 + 1], tmp_path / "visits.csv"
    labels = [str(classes[y]) for y in Y]
    for k, text in ((0, labels[0]), (0, labels[0] + ".0"), (1, "1.5"), (1, str(2**64))):
        rows = [f"{row[0]},{text if i == k else labels[i]}" for i, row in enumerate(X)]
        file.write_text("\n".join(["a,label", *rows]) + "\n")
        data = rd.load_data(file)
        if text == labels[k]:
            made = getattr(rd, loss)(data, agents=3, classes=classes)
            assert np.unique(made.encode_labels(data.y), return_counts=True)[1].tolist() == [30, 30]
            continue
        for declared in (classes, None):
            with pytest.raises(InputError, match=r"label 9\S* is a float of 2\^53 or more.*as texts"):
                getattr(rd, loss)(data, agents=3, classes=declared)
        rd.least_squares(data, agents=3)  # numbers, which need not be told apart


@pytest.mark.parametrize(
    ("y", "classes", "said"),
    [
        (Y, [0.0, 2.0**53], "class 9007199254740992.0"),
        (Y.astype(np.uint64) + 2**53, [2**53, 2**53 + 1], "label 9007199254740992.0"),  # compared as floats
        (Y + 2**53, [2**63, 2**63 + 1], "label 9007199254740992.0"),
    ],
)
def test_classes_that_lack_digits_are_refused(y, classes, said):
    with pytest.raises(InputError, match=f"{said} is a float of 2.53 or more"):
        problem(y=y, classes=classes)


def test_large_labels_of_one_type_are_told_apart():
    made = problem(y=Y.astype(np.uint64) + 2**63, classes=[2**63, 2**63 + 1])
    assert np.array_equal(made.encode_labels(made.data.y), 2.0 * Y - 1.0)


def test_data_sets_of_the_catalogue_need_no_flag():
    words = [*RUN, *PRIVATE]
    assert call("plan", "--data", "breast-cancer", *words).exit_code == 0
    settings = read_config(None, {"data": "digits", "epsilon": 2.0, "agents": "3"})
    assert build(settings)[0].spec["loss"] == "softmax"


def test_a_prior_has_the_classes_of_the_run(visits, tmp_path):
    public = tmp_path / "public.csv"
    public.write_text("a,b,c,label\n" + "".join(f"{a},{b},{c},{k % 2}\n" for k, (a, b, c) in enumerate(X[:20])))
    file = tmp_path / "prior.toml"
    file.write_text('[run]\nprior = "public.csv"\n')
    words = [file, *RUN, *PRIVATE, "--classes", "0,1,2", "--json"]
    found = call("plan", "--data", visits["two"], *words)
    assert found.exit_code == 0, found.output


@pytest.mark.parametrize(
    "value", ["", "1", "0,0", "a,", 5, [], [0], [0, "1"], [True, 2], [0, 0], ["a", ""], [[0], [1]], None]
)
def test_classes_that_are_none(value):
    with pytest.raises(InputError, match=r"classes=.*; needed every label there may be"):
        as_classes(value)


def test_classes_as_files_have_them():
    assert as_classes("0, 1") == [0, 1] and as_classes("-1,+1") == [-1, 1]
    assert as_classes("no,yes") == ["no", "yes"] and as_classes("true,false") == [True, False]
    assert as_classes([0.5, 2]) == [0.5, 2] and as_classes("0.5, 1.5") == [0.5, 1.5] and as_classes("0,.5") == [0, 0.5]
    assert as_classes("True,False") == as_classes("TRUE,FALSE") == [True, False]
    assert as_classes("12:00,13:00") == ["12:00", "13:00"] and as_classes("1.2.3,4") == ["1.2.3", "4"]
    assert as_classes(f"{2**53},{2**53 + 1}") == [2**53, 2**53 + 1]  # to the last digit
    assert parse_toml('[problem]\nclasses = ["no", "yes"]', "a.toml")["problem"]["classes"] == ["no", "yes"]
    with pytest.raises(InputError, match="a.toml, line 2"):
        parse_toml("[problem]\nclasses = [1]", "a.toml")


# -- estimators


def test_a_private_fit_needs_them():
    labels = np.where(Y == 1, SECRET, 0.25).astype(str)
    options = {"epsilon": 2.0, "delta": 1e-4, "bounds": (0, 1), "agents": 3, "activations": 2}
    with pytest.raises(PrivacyError, match=r"classes=None .*; a private fit needs classes=\[") as said:
        RelayLogisticRegression(**options).fit(X, labels)
    assert str(SECRET) not in str(said.value)
    third = labels.copy()
    third[7] = "other"
    with pytest.raises(PrivacyError) as again:
        RelayLogisticRegression(**options).fit(X, third)
    assert str(again.value) == str(said.value)
    declared = RelayLogisticRegression(**options, classes=["0.25", str(SECRET)])
    assert declared.fit(X, labels).epsilon_ == pytest.approx(2.0)
    with pytest.raises(InputError, match="none of classes"):
        declared.fit(X, third)
    simulated = RelayLogisticRegression(**options, random_state=0).fit(X, third)
    assert len(simulated.classes_) == 3 and math.isinf(simulated.epsilon_)
    RelayLogisticRegression(**{**options, "epsilon": math.inf}).fit(X, third)
    RelayLinearRegression(**options, target_bound=(0, 1)).fit(X, Y)  # numbers have none
