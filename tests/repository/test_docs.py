"""Every snippet of README and docs runs, every notebook, every example, every doctest; what is not run says why.

How a page is read and run is told in scripts/page_snippets.py.
"""

import doctest
import importlib
import inspect
import io
import json
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import relaydp
from relaydp.algorithm import ALGORITHMS

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import page_snippets  # noqa: E402
import update_errors  # noqa: E402
import update_readme  # noqa: E402
from page_snippets import SnippetError, blocks_of, calls_of, parse_command, run_page  # noqa: E402

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(relaydp.__path__, "relaydp.")
    if not module.name.endswith("__main__")
)
RUN = {"python", "console"}
SHELL = {"shell", "sh", "bash"}  # for blocks that are not run: a block that is has prompts
SHOWN = {"text", "toml", "csv", "json"}
# How many blocks of each page are marked as not run. One more needs a reason in the page and a number here.
NOT_RUN = {
    "README.md": 2,
    "cluster.md": 4,
    "consortium.md": 3,
    "performance.md": 1,
    "reproduction.md": 1,
    "tutorial.md": 1,
}


def named(path):
    return path.name


# ---------------------------------------------------------------- pages


def has_snippets(page):
    return any(block.language in RUN and block.reason is None for block in blocks_of(page.read_text()))


@pytest.mark.sample(2)
@pytest.mark.parametrize("page", [page for page in PAGES if has_snippets(page)], ids=named)
def test_snippets_run(page, tmp_path):
    run_page(page, tmp_path)


@pytest.mark.shipped
def test_the_readmes_snippets_run(tmp_path):
    """What everybody reads first is in no sample."""
    run_page(ROOT / "README.md", tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_block_is_run_or_says_why_not(page):
    """A block is run, or shows something, or is marked: nothing that looks like a command escapes."""
    for block in blocks_of(page.read_text()):
        where = f"{page.name}, line {block.line}"
        if block.reason is not None:
            assert block.language in RUN | SHELL and block.title is None, f"{where}: nothing here could have been run"
        else:
            assert block.language in RUN | SHOWN, f"{where}: ```{block.language} is neither run nor marked as not run"


def test_the_blocks_that_are_not_run_are_these():
    found = {page.name: sum(block.reason is not None for block in blocks_of(page.read_text())) for page in PAGES}
    assert {name: count for name, count in found.items() if count} == NOT_RUN


@pytest.mark.parametrize("page", [page for page in PAGES if page.name in NOT_RUN], ids=named)
def test_commands_that_are_not_run_exist_with_their_flags(page):
    for block in blocks_of(page.read_text()):
        if block.reason is None or block.language == "python":
            continue
        prompted = block.language == "console"
        lines = [call.command for call in calls_of(block.text)] if prompted else joined(block.text)
        for line in lines:
            words = shlex.split(line, comments=True)
            if words[:1] == ["relaydp"]:
                parse_command(words[1:])


def joined(text):
    return text.replace("\\\n", " ").splitlines()


WORDS = re.compile(r"\b(baton|PLF|activations?|published mechanism|RECAL|the paper|hops?)\b")


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_words_of_ours_are_explained_a_click_away(page):
    """Somebody may arrive at any page first."""
    text = page.read_text()
    if page.name != "notation.md" and (found := WORDS.search(text)):
        assert re.search(r"\]\((docs/)?notation\.md(#[\w-]+)?\)", text), f"{found[0]!r}, and no link to notation"


def test_no_fence_is_indented():
    """Blocks inside lists or notes would not be found, and so not be run."""
    for page in PAGES:
        assert not re.search(r"^ +```", page.read_text(), re.M), page.name


def test_the_page_of_algorithms_has_the_names_of_their_steps():
    rows = re.findall(r"^\| (`[^|]+`) \| (`[^|]*) \|$", (DOCS / "algorithms.md").read_text(), re.M)
    told = {name: steps for names, steps in rows for name in re.findall(r"`([^`]+)`", names)}
    assert told.keys() == ALGORITHMS.keys()
    for name, algorithm in ALGORITHMS.items():
        menu = algorithm.menu
        assert re.findall(r"`([^`]+)`", told[name]) == list(menu.names), name
        assert set(re.findall(r"`([^`]+)`\*", told[name])) == set(menu.per_agent), name


def test_every_algorithm_is_described():
    page = (DOCS / "algorithms.md").read_text()
    for name in relaydp.algorithms():
        assert f"`{name}`" in page


def test_the_table_of_algorithms_says_what_the_code_says():
    page = (DOCS / "algorithms.md").read_text()
    rows = [[cell.strip() for cell in row.split("|")] for row in re.findall(r"^\| (`.*) \|$", page, re.M)]
    rows = [row for row in rows if len(row) == 6]  # the table of steps has two columns
    told = {name: cells for names, *cells in rows for name in re.findall(r"`([a-z-]+)`", names)}
    assert told.keys() == ALGORITHMS.keys() and f"relaydp has {len(told)} algorithms" in page
    for name, (kind, _, nonsmooth, private, published) in told.items():
        method, words = ALGORITHMS[name], kind.split(", ")
        assert words[0] == method.kind, name
        assert ("coordinator" in words) == (method.links == "star"), name
        assert ("laps" in words) == (method.walks is not None), name
        assert ("exact argmin" in words) == (method.data == "argmin"), name
        assert (nonsmooth == "no") == (not method.takes_r), name
        assert (private == "`gradient`") == ("gradient" in method.mechanisms), name
        assert bool(published) == ("published" in method.mechanisms), name


@pytest.mark.parametrize("name", ["attack", "cluster", "errors", "partition", "privacy", "prox"])
def test_public_modules_say_what_is_public(name):
    """So that help(rd.errors), and a star, show no name that the module itself has imported."""
    module = getattr(relaydp, name)
    values = [getattr(module, public) for public in module.__all__]
    homes = {value.__module__.split(".")[0] for value in values if inspect.isclass(value) or inspect.isroutine(value)}
    assert homes == {"relaydp"}


def test_every_public_name_is_in_the_reference():
    listed = re.findall(r"^::: (\S+)$", (DOCS / "api.md").read_text(), re.M)
    found = [resolved(path) for path in listed]
    assert len(listed) == len(set(listed))
    for name in relaydp.__all__:
        value = getattr(relaydp, name)
        assert any(value is other for other in found), f"docs/api.md lacks {name}"


def public_functions():
    """Functions that users call as rd.x or rd.x.y, by that name."""
    modules = {f"rd.{name}": getattr(relaydp, name) for name in ("attack", "cluster", "partition", "privacy", "prox")}
    spaces = {"rd": relaydp, **modules}
    every = {f"{space}.{name}": getattr(module, name) for space, module in spaces.items() for name in module.__all__}
    return {name: value for name, value in every.items() if inspect.isfunction(value)}


@pytest.mark.parametrize("name", sorted(public_functions()))
def test_public_functions_say_what_they_take_and_return(name):
    """help(rd.solve) is enough: each argument is under Args, and what comes back under Returns."""
    function = public_functions()[name]
    text = inspect.getdoc(function) or ""
    sections = dict(re.findall(r"^(Args|Returns|Raises|Example):\n((?:(?: +.*)?\n?)*)", text, re.M))
    told = re.findall(r"^    \*{0,2}(\w+): ", sections.get("Args", ""), re.M)
    assert told == list(inspect.signature(function).parameters), f"{name} explains {told}"
    assert inspect.signature(function).return_annotation in (None, "None") or sections.get("Returns"), name


def resolved(path):
    """What a dotted path means: a module, or something in one."""
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            value = getattr(value, part)
        return value
    raise AssertionError(f"{path} is nothing that can be imported")


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_tests_that_pages_point_to_exist():
    """The answers for data-protection officers name their tests."""
    tests = "\n".join(path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py"))
    for page in PAGES:
        for name in re.findall(r"`(test_\w+)`", page.read_text()):
            assert f"def {name}(" in tests, f"{page.name} points to {name}"


@pytest.mark.shipped
def test_the_readmes_table_is_what_the_demo_prints():
    """Cell by cell, as the same script renders them; the private run's own accuracy is in none of them."""
    from relaydp.cli.demo import demo

    def rendered(text):
        rows = re.findall(r"^\| (relay.*|alone.*) \|$", text, re.M)
        return [[cell.strip() for cell in row.split("|")] for row in rows]

    page, measured = (ROOT / "README.md").read_text(), demo(quiet=True)
    shown = page.split(update_readme.START)[1].split(update_readme.END)[0]
    again = update_readme.table(measured)
    assert len(rendered(shown)) == 3
    for cells, new in zip(rendered(shown), rendered(again), strict=True):
        who, *numbers = zip(cells, new, strict=True)
        assert who[0] == who[1]
        for here, there in numbers[:2]:  # accuracy with its range, loss: other machines round differently
            assert len(here.split()) == len(there.split())
            pairs = zip(re.findall(r"[\d.]+", here), re.findall(r"[\d.]+", there), strict=True)
            assert all(abs(float(a) - float(b)) < 0.003 for a, b in pairs)
        assert all(here == there for here, there in numbers[2:])  # epsilon, by the paper's formula, PLF, messages
    assert shown.splitlines()[0] == again.splitlines()[0] and shown.splitlines()[-1] == again.splitlines()[-1]
    assert min(measured["rows"][1][name] for name in ("accuracy", "accuracy_median")) >= 0.93


def test_the_demos_table_fits_eighty_columns():
    """Every cell whole, with the longest that it prints."""
    from rich.console import Console

    from relaydp.cli.demo import _print

    numbers = {"objective": 0.17367, "plf": 300, "messages": 2400}
    private = {"accuracy": 0.9535, "accuracy_median": 0.95025, "accuracy_min": 0.9435, "accuracy_max": 0.956}
    rows = [
        {"who": "relay, no privacy", "accuracy": 0.964, "epsilon": None, "epsilon_paper": None, **numbers},
        {"who": "relay, epsilon 1", **private, "epsilon": 1.0, "epsilon_paper": 1.322, **numbers},
        {"who": "masked, t = 4", **private, "epsilon": 1.0, "epsilon_paper": 1.322, **numbers},
        {"who": "alone, epsilon 1", **private, "epsilon": 1.0, "epsilon_paper": 1.322, **numbers},
    ]
    console = Console(width=80, record=True, quiet=False, file=io.StringIO())
    summary = {"data": "fashion-small", "graph": "ring(8)", "delta": 1e-5, "rows": rows, "seconds": 9.7}
    summary["expected_gain"] = {"low": 0.05, "middle": 0.92, "high": 1.0}
    _print(console, summary)
    text = console.export_text()
    assert "…" not in text and max(map(len, text.splitlines())) <= 80
    for cell in ("accuracy", "messages", "relay, no privacy", "relay, epsilon 1", "0.9535", "0.1737", "2400", "1.322"):
        assert cell in text


# ---------------------------------------------------------------- the machinery can fail


@pytest.mark.parametrize(
    "text, says",
    [
        ("```console\n$ echo 3 agents\n4 agents\n```\n", "is shown with"),
        ("```console\n$ echo epsilon 1.5\nepsilon 1.0\n```\n", "is shown with"),
        ("```console\n$ false\n```\n", "exit code 1, not 0"),
        ("```console\n$ true\n# exit code 2\n```\n", "exit code 0, not 2"),
        ("```console\n$ relaydp data info nothing.csv\n```\n", "exit code 2, not 0"),
        ("```console\nls\n```\n", "needed a command"),
        ("```python\nprint('a')\n```\n\n```text\nb\n```\n", "is shown with"),
    ],
)
def test_a_page_that_is_wrong_is_found_out(tmp_path, text, says):
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(SnippetError, match=re.escape(says)):
        run_page(page, tmp_path)


def test_a_page_that_is_right_passes_and_files_are_written(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        '```csv title="two.csv"\na,label\n1,0\n2,1\n```\n\n```console\n$ relaydp data info two.csv\n'
        "...\n records 2\n...\n$ cat two.csv | head -1\na,label\n```\n\n"
        "<!-- not run: on purpose -->\n```python\nraise SystemExit\n```\n\n"
        "```python\nx = 1\n```\n\n```python\nprint(x + 1.001)\n```\n\n```text\n2.0\n```\n"
    )
    run_page(page, tmp_path)
    assert (tmp_path / "two.csv").read_text() == "a,label\n1,0\n2,1\n"


def test_an_updated_page_shows_what_is_printed_and_keeps_what_agrees(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n$ echo a \\\n    b\nc\n$ false\n$ echo one two\none ...\n```\n\n"
        "```python\nprint(2)\n```\n\n```text\n3\n```\n"
    )
    new = update_errors.updated(page, tmp_path)
    assert new == (
        "```console\n$ echo a \\\n    b\na b\n$ false\n# exit code 1\n$ echo one two\none ...\n```\n\n"
        "```python\nprint(2)\n```\n\n```text\n2\n```\n"
    )
    page.write_text(new)
    run_page(page, tmp_path)


# ---------------------------------------------------------------- code beside the pages


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", MODULES)
def test_doctests(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0


def test_doctests_of_the_scripts():
    for module in (page_snippets, importlib.import_module("site_hooks"), importlib.import_module("site_doctests")):
        found = doctest.testmod(module)
        assert found.failed == 0 and found.attempted > 0


@pytest.mark.shipped
@pytest.mark.sample(1)
@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=named)
def test_examples_run(example, tmp_path):
    done = subprocess.run([sys.executable, example], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=named)
def test_notebooks_are_kept_without_outputs(notebook):
    content = json.loads(notebook.read_text())
    code = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert content["nbformat"] == 4 and code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


# In a process of its own: the machinery of notebooks has event loops and warnings that are none of ours.
RUN_NOTEBOOK = """
import sys, nbclient, nbformat
content = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(content, timeout=600, kernel_name="python3").execute()
outputs = [out for cell in content.cells for out in cell.get("outputs", [])]
sys.exit("".join(out.text for out in outputs if out.get("name") == "stderr") or 0)
"""


@pytest.mark.shipped
@pytest.mark.sample(1)
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=named)
def test_notebooks_run_without_a_warning(notebook, tmp_path):
    command = [sys.executable, "-c", RUN_NOTEBOOK, notebook]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
