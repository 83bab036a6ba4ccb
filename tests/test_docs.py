"""Every Python snippet of README and docs runs, every doctest holds, every linked file exists, every example works."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import relaydp

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(relaydp.__path__, "relaydp.")
    if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_snippets_run(page, tmp_path, monkeypatch):
    snippets = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
    if not snippets:
        return
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "snippet"}
    for snippet in snippets:
        exec(compile(snippet, str(page), "exec"), names)


def test_the_readmes_table_is_what_the_demo_prints():
    from relaydp.cli.demo import demo

    rows = re.findall(r"^\| (relay.*|alone.*) \|$", (ROOT / "README.md").read_text(), re.M)
    printed = [[cell.strip() for cell in row.split("|")] for row in rows]
    measured = demo(quiet=True)
    assert len(printed) == len(measured["rows"]) == 3
    for cells, row in zip(printed, measured["rows"], strict=True):
        assert cells[0] == row["who"]
        assert abs(float(cells[1].split()[0]) - row["accuracy"]) < 0.003  # other machines round differently
        assert cells[3] == ("none" if row["epsilon"] is None else f"{row['epsilon']:.3f}")
        assert [int(cell) for cell in cells[5:]] == [row["plf"], row["messages"]]
    assert measured["rows"][1]["accuracy"] >= 0.94


def test_every_algorithm_is_described():
    page = (ROOT / "docs" / "algorithms.md").read_text()
    for name in relaydp.algorithms():
        assert f"`{name}`" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(example, tmp_path):
    done = subprocess.run([sys.executable, example], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
