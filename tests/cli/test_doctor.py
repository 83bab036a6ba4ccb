"""`relaydp doctor`: a healthy machine is called so, a broken one too, and nothing that is broken stops the rest."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from relaydp.cli import checks
from relaydp.cli.checks import CHECKS, NOTE, OK, PROBLEM, Finding, findings
from relaydp.cli.main import app

ROOT = Path(__file__).parents[2]


def call(*args):
    return CliRunner().invoke(app, ["doctor", *args], prog_name="relaydp")


def real(*args, **env):
    words = [sys.executable, "-m", "relaydp", "doctor", *args]
    return subprocess.run(words, env={**os.environ, **env}, capture_output=True, text=True, timeout=600)


def by_name(found):
    return {finding.name: finding for finding in found}


# ---------------------------------------------------------------- the command


def test_the_real_command_goes_on_past_what_is_broken(tmp_path):
    """A package that fails as it is imported, and a data folder that is not there: two problems, all else looked at."""
    (tmp_path / "prometheus_client").mkdir()
    (tmp_path / "prometheus_client" / "__init__.py").write_text("raise RuntimeError('broken on purpose')\n")
    done = real("--json", PYTHONPATH=str(tmp_path), RELAYDP_DATA=str(tmp_path / "nowhere"))
    assert done.returncode == 1 and "Traceback" not in done.stdout + done.stderr
    found = json.loads(done.stdout)
    rows = {row["name"]: row for row in found["checks"]}
    assert not found["healthy"]
    broken = rows["prometheus-client"]
    assert broken["state"] == PROBLEM and "broken on purpose" in broken["found"] and "relaydp[network]" in broken["do"]
    assert rows["RELAYDP_DATA"]["state"] == PROBLEM and "nowhere" in rows["RELAYDP_DATA"]["found"]
    fine = ("relaydp", "jax", "cores", "float64", "training", "privacy", "secret noise")
    assert all(rows[name]["state"] == OK for name in fine)
    assert {row["panel"] for row in found["checks"]} == {panel for panel, _ in CHECKS}
    assert all(row["do"] for row in found["checks"] if row["state"] == PROBLEM)


@pytest.fixture
def two_checks(monkeypatch):
    """Nothing but one line of each kind, to look at how they are shown."""
    lines = [
        Finding("a", OK, "fine"),
        Finding("b", NOTE, "missing", "Get it."),
        Finding("c", PROBLEM, "bad", "Mend it."),
    ]

    def use(count):
        monkeypatch.setattr(checks, "CHECKS", (("Panel", lambda: iter(lines[:count])),))

    return use


@pytest.mark.parametrize(("count", "code"), [(1, 0), (2, 0), (3, 1)])
def test_only_a_problem_is_exit_1(two_checks, count, code):
    two_checks(count)
    for words in ([], ["--json"], ["--quiet"]):
        assert call(*words).exit_code == code


def test_each_line_is_shown_with_what_to_do(two_checks):
    two_checks(3)
    text = call().stdout
    for words in (
        r"ok +a +fine",
        r"note +b +missing",
        r"Get it\.",
        r"problem +c +bad",
        r"Mend it\.",
        r"1 to put right",
    ):
        assert re.search(words, text), words
    done = call("--quiet")
    assert done.stdout == "" and done.stderr == "problem: c: bad. Mend it.\n"
    done = call("--json")
    assert done.stderr == "" and [row["state"] for row in json.loads(done.stdout)["checks"]] == [OK, NOTE, PROBLEM]


# ---------------------------------------------------------------- the checks


def test_this_machine_is_healthy():
    for check in (check for _, check in CHECKS if check is not checks.self_test):  # it ran in the process above
        for finding in findings(check):
            assert finding.state in (OK, NOTE), finding
            assert (finding.state == OK) == (not finding.do), finding


def test_packages_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def table(lines):
        others = [line for line in lines if not line.startswith("relaydp[")]  # an extra that needs another
        parts = [re.fullmatch(r"([A-Za-z0-9-]+)(?:\[\w+\])?(.*)", line) for line in others]
        return {part[1]: part[2] for part in parts}

    assert table(project["dependencies"]) == {k: v for k, v in checks.NEEDED.items() if k != "jaxlib"}
    extras = {k: table(v) for k, v in project["optional-dependencies"].items() if k not in ("dev", "docs")}
    assert extras == checks.EXTRAS


def test_a_check_that_raises_is_a_problem_and_keeps_what_it_found():
    def broken():
        yield Finding("first", OK, "fine")
        raise ZeroDivisionError("by accident")

    first, last = findings(broken)
    assert first.state == OK and last.state == PROBLEM and "ZeroDivisionError: by accident" in last.found


def test_a_package_that_is_missing_or_too_old(monkeypatch):
    monkeypatch.setattr(checks, "NEEDED", {"numpy": ">=999", "no-such-package": ">=1", "scipy": ">=1,<999"})
    found = by_name(findings(checks.versions))
    assert found["numpy"].state == PROBLEM and "pip install 'numpy>=999'" in found["numpy"].do
    assert found["no-such-package"].state == PROBLEM and found["scipy"].state == OK
    monkeypatch.setattr(checks, "EXTRAS", {"none": {"no-such-package": ">=1"}, "half": {"numpy": "", "nor-this": ""}})
    found = by_name(findings(checks.extras))
    assert found["none"].state == NOTE and found["none"].do.endswith("pip install 'relaydp[none]'")
    assert found["half"].state == NOTE and "missing: nor-this" in found["half"].found


@pytest.mark.parametrize(
    ("version", "wanted", "holds"),
    [("0.10", ">=0.10,<0.12", True), ("0.12.0", ">=0.10,<0.12", False), ("0.9.9", ">=0.10", False), ("3", "", True)],
)
def test_bounds_on_versions(version, wanted, holds):
    assert checks.satisfies(version, wanted) is holds


def test_folders(tmp_path, monkeypatch):
    assert checks._folder("x", tmp_path / "not" / "there" / "yet").state == OK
    assert list(tmp_path.iterdir()) == []
    usage = type("usage", (), {"free": 10})
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda _: usage)
    assert checks._folder("x", tmp_path).state == PROBLEM

    def refuse(**_):
        raise PermissionError("not yours")

    monkeypatch.setattr(checks.tempfile, "NamedTemporaryFile", refuse)
    assert "not yours" in checks._folder("x", tmp_path).found


def test_a_wrong_answer_is_a_problem(monkeypatch):
    """The self-test can fail: another model, another epsilon, another spread of the noise."""
    import numpy as np

    draw = np.random.default_rng(1)
    X, y = draw.uniform(size=(40, 3)), draw.choice([-1, 1], size=40)
    assert checks._against_scipy(X, y, np.ones(3)).state == PROBLEM

    import relaydp as rd

    problem = rd.logistic(rd.load_data("breast-cancer"), agents=3, l2=0.1, record_norm=1.0)
    made = rd.plan(problem, rd.ring(3), rd.Budget(1.0, checks.DELTA), walk="cyclic", activations=3, steps="paper")
    result = type("result", (), {"ledger": made.ledger, "epsilon": made.epsilon})
    assert checks._against_dp_accounting(result).state == OK
    result.epsilon = 0.99
    assert checks._against_dp_accounting(result).state == PROBLEM

    from relaydp.privacy import secret

    honest = secret.draw_lattice
    monkeypatch.setattr(secret, "draw_lattice", lambda count: honest(count) * 2 // 3)
    assert [finding.state for finding in checks.sampler()] == [PROBLEM]
