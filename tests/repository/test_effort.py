"""`make test` leaves no law out: of a dear one it tries some cases, of the others all."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from effort import EVERY_CASE
from hypothesis import HealthCheck, settings

HERE = Path(__file__).parents[1]  # tests/
LAWS = """
import pytest
from effort import EVERY_CASE
from hypothesis import HealthCheck, settings
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

@pytest.mark.sample(1)
@pytest.mark.parametrize("case", [pytest.param(k, marks=pytest.mark.slow) for k in range(9)] + [9])
def test_slow_but_for_one(case): pass

@pytest.mark.sample(3)
@pytest.mark.parametrize("one", "abc")
@pytest.mark.parametrize("two", "xyz")
def test_of_two_parameters(one, two): pass
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = -m 'not slow'\nmarkers =\n  sample(n): some\n  slow: not now\n"
    )
    for name in ("conftest.py", "effort.py"):
        shutil.copy(HERE / name, tmp_path / name)
    (tmp_path / "test_laws.py").write_text(LAWS)
    return tmp_path


def run(folder, *words, **settings):
    environment = {**os.environ, "RELAYDP_TESTS": "", **settings}
    command = [sys.executable, "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True).stdout


def test_a_dear_law_has_some_of_its_cases_and_no_law_has_none(folder):
    first = run(folder, "-vv")
    assert "14 passed, 22 deselected" in first
    kept = [line.split()[0] for line in first.splitlines() if "::test_dear" in line]
    assert len(set(kept)) == 3
    laws = ("test_with_few_cases[1]", "test_alone", "test_cheap[3]", "test_slow_but_for_one[9]")
    assert all(f"::{law}" in first for law in laws)
    pairs = [line.split("[")[1][:3] for line in first.splitlines() if "::test_of_two_parameters[" in line]
    assert sorted(pair[0] for pair in pairs) == [*"xyz"] and sorted(pair[2] for pair in pairs) == [*"abc"]
    left = next(k for k in range(10) if f"test_laws.py::test_dear[{k}]" not in kept)
    assert "1 passed" in run(folder, f"test_laws.py::test_dear[{left}]"), "a case that is asked for runs"
    assert "1 passed" in run(folder, "-k", f"test_dear and {left}")


def test_all_cases_run_when_all_are_asked_for(folder):
    done = run(folder, RELAYDP_TESTS="all")
    assert "10 failed, 17 passed" in done, "size() gives the larger one there"


def test_what_is_about_shipped_programs_is_run_by_its_own_command():
    """`make test` leaves it out, so that whoever marks a test must name it in the Makefile."""
    listed = re.findall(r"(tests/[\w/]*test_\w+\.py(?:::\w+)?)", (HERE.parent / "Makefile").read_text())
    marked, mentions = [], 0
    for path in HERE.rglob("test_*.py"):
        tree = ast.parse(path.read_text())
        tests = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        names = [test.name for test in tests if "pytest.mark.shipped" in map(ast.unparse, test.decorator_list)]
        marked += [f"tests/{path.relative_to(HERE)}::{name}" for name in names]
        whole = [node for node in tree.body if ast.unparse(node) == "pytestmark = pytest.mark.shipped"]
        marked += [f"tests/{path.relative_to(HERE)}" for _ in whole]
        mentions += sum(isinstance(node, ast.Attribute) and node.attr == "shipped" for node in ast.walk(tree))
    assert mentions == len(marked), "marked in another way, which this test would not find"
    assert marked and all(name in listed or name.partition("::")[0] in listed for name in marked)
    assert {name for name in listed if "::" in name or "test_bench" in name} <= set(marked)


def test_every_test_is_in_a_folder_that_make_test_all_names():
    """It takes the folders in two halves, by their first letters."""
    folders = {path.relative_to(HERE).parts[0] for path in HERE.rglob("test_*.py")}
    named = re.findall(r"pytest .* tests/\[(\w)-(\w)\]\*/$", (HERE.parent / "Makefile").read_text(), re.M)
    assert named and all(sum(low <= folder[0] <= high for low, high in named) == 1 for folder in folders)
    assert all((HERE / folder).is_dir() for folder in folders)


def test_no_drawn_example_is_too_slow_and_make_test_draws_the_same_ones_everywhere():
    assert settings.default.deadline is None
    assert HealthCheck.too_slow in settings.default.suppress_health_check
    assert settings.default.derandomize == (not EVERY_CASE)


DRAWS = """
import hashlib
import {imported}
from hypothesis import given, strategies as st

drawn = []

@given(st.lists(st.text(), max_size=20))
def test_draw(texts):
    drawn.append(texts)

def test_say():
    print("drawn", len(drawn), hashlib.sha256(repr(drawn).encode()).hexdigest())
"""


@pytest.mark.skipif(EVERY_CASE, reason="make test-all draws new examples every time")
def test_what_is_drawn_does_not_depend_on_what_else_is_imported(folder):
    """Which tests ran before, and so which modules are there, differs from run to run with several workers."""
    (folder / "constants.py").write_text(f"WORDS = {[f'word {k}' for k in range(400)]}\n")
    said = []
    for imported in ("string", "constants"):
        (folder / "test_laws.py").write_text(DRAWS.format(imported=imported))
        said += [line for line in run(folder, "-s").splitlines() if line.startswith(("drawn", ".drawn"))]
    assert len(said) == 2 and said[0] == said[1]
