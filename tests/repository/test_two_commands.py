"""README's two commands on a new machine: what `make demo` needs, and what a failed `make test` says."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
TOOLS = {"ray", "grpc", "cvxpy", "opendp", "cryptography", "playwright", "mkdocs", "hypothesis", "pytest", "polars"}


# ---------------------------------------------------------------- make demo


def core_packages():
    """What `pip install .` brings, as the installed packages say."""
    found, left = set(), tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    left = [(Requirement(line), "") for line in left]
    while left:
        asked, extra = left.pop()
        name = re.sub(r"[-_.]+", "-", asked.name).lower()
        if (asked.marker and not asked.marker.evaluate({"extra": extra})) or (name, extra) in found:
            continue
        found.add((name, extra))
        lines = [Requirement(line) for line in importlib.metadata.requires(name) or ()]
        left += [(line, each) for line in lines for each in ("", *asked.extras)]
    return {name for name, _ in found}


def modules_of_others(core):
    """Modules that are here, and would not be after `pip install .`"""
    homes = importlib.metadata.packages_distributions()
    return sorted(
        module
        for module, packages in homes.items()
        if not {re.sub(r"[-_.]+", "-", name).lower() for name in packages} & {*core, "relaydp", "pip", "setuptools"}
    )


DEMO = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in set(sys.argv[1].split()):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())

import relaydp as rd
from relaydp.cli import demo, main

real = rd.load_data
rd.load_data = lambda name: real("breast-cancer")  # everything the demo does, on fewer records
demo.SEEDS, demo.ALONE_SEEDS = 2, 1
print([row["who"] for row in demo.demo(quiet=True)["rows"]])
print([name for name in ("matplotlib", "sklearn.linear_model") if name in sys.modules])
"""


@pytest.mark.shipped
def test_the_demo_needs_the_core_packages_alone():
    """And leaves those alone that take seconds to compile or import and would give its table nothing."""
    core = core_packages()
    refused = modules_of_others(core)
    assert {"jax", "numpy", "typer", "rich", "scipy"} <= core
    assert TOOLS <= set(refused)
    words = [sys.executable, "-c", DEMO, " ".join(refused)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "['relay, no privacy', 'relay, epsilon 1', 'masked, t = 4', 'masked, t = 1', 'alone, epsilon 1']",
        "[]",
    ]


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(("target", "installs"), [("demo", "-e ."), ("test", '-e ".[dev]"'), ("setup", '-e ".[dev]"')])
def test_each_command_installs_what_it_needs(tmp_path, target, installs):
    words = ["make", "-n", "-C", str(ROOT), target, f"VENV={tmp_path / 'none'}"]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    (line,) = [line for line in lines if "pip install" in line]
    assert line.endswith(f"-c constraints.txt {installs}")


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_docs_runs_the_snippets_of_all_pages(tmp_path):
    """`make test` runs those of some pages."""
    words = ["make", "-n", "-C", str(ROOT), "docs", f"VENV={tmp_path / 'none'}"]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    (line,) = [line for line in lines if "test_docs.py" in line]
    assert line.startswith("RELAYDP_TESTS=all ")


# ---------------------------------------------------------------- make test

SAYS = "paste these lines and the first failure into a new issue"


def outcome(folder, body, *args):
    """What pytest prints of one test with the conftest of these tests."""
    for name in ("conftest.py", "effort.py"):
        shutil.copy(ROOT / "tests" / name, folder)
    (folder / "test_it.py").write_text(f"def test_it():\n    {body}\n")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no", *args, str(folder)]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "CI"))}
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=300).stdout


@pytest.mark.sample(1)
@pytest.mark.parametrize("args", [(), ("-n", "1")], ids=["one-process", "xdist"])
def test_a_failure_ends_with_where_it_ran_and_how_to_report_it(tmp_path, args):
    text = outcome(tmp_path, "assert 1 == 2", *args)
    assert "1 failed" in text
    last = text[text.index("where this ran") :]
    assert text.index("FAILED") < text.index("where this ran")  # nothing but the count comes after
    assert text.count("where this ran") == 1 and SAYS in last
    for words in (
        r"^relaydp 0\..*Python 3\.",
        r"\bjax \d",
        r"\bnumpy \d",
        "^processor: .",
        r"^cores: \d",
        "^threads: .",
    ):
        assert re.search(words, last, re.M), words


def test_a_pass_says_nothing_of_it(tmp_path):
    text = outcome(tmp_path, "pass")
    assert "1 passed" in text and SAYS not in text and "processor" not in text
