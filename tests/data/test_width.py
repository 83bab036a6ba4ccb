"""A private run's number of features is declared: a LIBSVM file does not say it, and one record could change it."""

import json

import numpy as np
import pytest
from entrances import BUDGET, ENTRANCES, PRIVATE, alone, call, planned, solve

import relaydp as rd
from relaydp.errors import InputError, PrivacyError

RUN = ["--agents", 3, "--ranges", "0,1", "--walk", "cyclic", "--activations", 2, "--steps", "paper", "--classes", "0,1"]


@pytest.fixture
def files(tmp_path):
    """Files that differ in one record's indices."""

    def write(name, row):
        rows = [f"{i % 2} 1:0.{i % 10} 2:0.{i % 7}" for i in range(59)]
        (tmp_path / name).write_text("\n".join([*rows, row]) + "\n")
        return tmp_path / name

    return {"narrow": write("narrow.svm", "1 1:0.4"), "wide": write("wide.svm", "1 1:0.4 5:0.5")}


def problem(file, features=None, loss="logistic", **options):
    declared = {"classes": [0, 1]} if loss == "logistic" else {"label_bound": 1.0}
    return getattr(rd, loss)(rd.load_data(file, features=features), agents=3, ranges=(0, 1), **declared, **options)


@pytest.mark.parametrize("loss", ["logistic", "least_squares"])
@ENTRANCES
def test_a_width_found_in_the_records_is_refused_in_a_private_run(entrance, loss, files):
    for file, width in ((files["narrow"], 2), (files["wide"], 5)):
        found = problem(file, loss=loss)
        assert found.dim == width
        with pytest.raises(PrivacyError, match=r"largest index.*features=N.*--features N.*\[data\]"):
            entrance(found)
        entrance(found, seed=0)  # a simulation promises nothing
        declared = problem(file, 6, loss)
        assert declared.dim == 6 and entrance(declared) is not None


def test_it_is_refused_before_anything_is_charged(files, tmp_path):
    account = rd.PrivacyAccount(3.0, 1e-4, path=tmp_path / "account.db")
    made = problem(files["narrow"])
    for entrance in (solve, alone):
        with pytest.raises(PrivacyError, match="largest index"):
            entrance(made, account=account)
    assert account.spent == 0.0 and "agent_records" not in vars(made)
    with pytest.raises(PrivacyError, match="largest index"):  # a file by its name
        solve(rd.logistic(str(files["narrow"]), agents=3, ranges=(0, 1), classes=[0, 1]))


def test_runs_without_a_promise_may_look(files):
    made = problem(files["wide"])
    options = {"activations": 2, "walk": "cyclic", "steps": "paper"}
    assert rd.solve(made, rd.ring(3), **options).status == "finished"
    assert not rd.solve(made, rd.ring(3), mechanism="published", budget=BUDGET, **options).private


def test_one_record_moves_nothing_where_the_number_is_declared(files):
    plans = [planned(problem(file, 5)) for file in files.values()]
    assert len({plan.scales.tobytes() for plan in plans}) == len({repr(plan.steps) for plan in plans}) == 1
    with pytest.raises(InputError, match="index 5 in line 60; indices must be from 1 to 4"):
        problem(files["wide"], 4)


@pytest.mark.parametrize("command", ["run", "plan"])
def test_the_command_line(command, files):
    said = set()
    for file in files.values():
        refused = call(command, "--data", file, *RUN, *PRIVATE)
        assert refused.exit_code == 2 and "--features N" in refused.stderr and "Traceback" not in refused.output
        said.add(refused.stderr)
        done = call(command, "--data", file, *RUN, *PRIVATE, "--features", 5)
        assert done.exit_code == 0, done.output
        assert call(command, "--data", file, *RUN, *PRIVATE, "--seed", 0).exit_code == 0
    assert len(said) == 1  # whatever the records are
    late = call(command, "--data", files["wide"], *RUN, *PRIVATE, "--features", 3)
    assert late.exit_code == 2 and "index 5 in line 60" in late.stderr
    for wrong in (0, -2):
        found = call(command, "--data", files["wide"], *RUN, *PRIVATE, "--features", wrong)
        assert found.exit_code == 2 and "--features" in found.stderr


def test_a_file_of_settings_and_a_saved_run(files, tmp_path):
    file, out = tmp_path / "run.toml", tmp_path / "out"
    tables = '[data]\nsource = "narrow.svm"\n{}\n[problem]\nagents = 3\nranges = [0, 1]\nclasses = [0, 1]\n'
    run = '[run]\nepsilon = 2.0\ndelta = 1e-4\nactivations = 2\nwalk = "cyclic"\nsteps = "paper"\n'
    file.write_text(tables.format("") + run)
    assert "features = N in [data]" in " ".join(call("run", file).stderr.split())
    file.write_text(tables.format("features = 4") + run)
    done = call("run", file, "--out", out, "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["epsilon"] == pytest.approx(2.0), done.output
    assert rd.load_result(out).x.shape == (4,)
    assert rd.rerun(out, seed=0).x.shape == (4,)  # read as it was
    assert call("plan", file, "--features", 5).exit_code == 0  # flags win


def test_a_prior_has_the_width_of_the_run(files, tmp_path):
    wide, held = tmp_path / "wide.toml", tmp_path / "held.toml"
    wide.write_text('[run]\nprior = "wide.svm"\n')
    held.write_text('[run]\nprior = "held.npz"\n')
    for features, code in ((5, 0), (6, 0), (4, 2)):  # what the prior leaves out is 0
        words = [wide, *RUN, *PRIVATE, "--features", features]
        found = call("plan", "--data", files["narrow"], *words)
        assert found.exit_code == code, found.output
    unseen = [wide, "--sizes", "20,20,20", "--features", 6, *RUN[2:], *PRIVATE]
    assert call("plan", *unseen).exit_code == 0
    np.savez(tmp_path / "held.npz", X=np.ones((4, 5)), y=np.array([0, 1, 0, 1]))
    found = call("plan", held, "--data", files["narrow"], *RUN, *PRIVATE, "--features", 6)
    assert found.exit_code == 2 and "has 5 features and the data 6" in " ".join(found.stderr.split())
