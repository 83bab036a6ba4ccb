"""`make test` leaves no law out: of a dear one it tries some cases, of the others all."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LAWS = """
import pytest
from effort import size

@pytest.mark.sample(3)
@pytest.mark.parametrize("case", range(10))
def test_dear(case):
    assert size(1, 2) == 2

@pytest.mark.sample(5)
@pytest.mark.parametrize("case", range(2))
def test_with_few_cases(case): pass

@pytest.mark.sample(1)
def test_alone(): pass

@pytest.mark.parametrize("case", range(4))
def test_cheap(case): pass
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = sample(n): some\n")
    for name in ("conftest.py", "effort.py"):
        shutil.copy(HERE / name, tmp_path / name)
    (tmp_path / "test_laws.py").write_text(LAWS)
    return tmp_path


def run(folder, *words, **settings):
    environment = {**os.environ, "RELAYDP_TESTS": "", **settings}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True).stdout


def test_a_dear_law_has_some_of_its_cases_and_no_law_has_none(folder):
    first = run(folder, "-vv")
    assert "10 passed, 7 deselected" in first
    kept = [line.split()[0] for line in first.splitlines() if "::test_dear" in line]
    assert len(set(kept)) == 3
    assert all(f"::{law}" in first for law in ("test_with_few_cases[1]", "test_alone", "test_cheap[3]"))
    left = next(k for k in range(10) if f"test_laws.py::test_dear[{k}]" not in kept)
    assert "1 passed" in run(folder, f"test_laws.py::test_dear[{left}]"), "a case that is asked for runs"


def test_all_cases_run_when_all_are_asked_for(folder):
    done = run(folder, RELAYDP_TESTS="all")
    assert "10 failed, 7 passed" in done, "size() gives the larger one there"
