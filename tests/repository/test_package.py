"""The package as a whole: public names, import order of the rooms, versions that agree."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import relaydp as rd

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "relaydp"

# Each room may import those before it and no other; `result` is one file. A room's own modules are free.
ORDER = "arrays errors folders lines prox graph privacy data problem algorithm certificate result".split()
ORDER += "engine estimator attack auditing report paper settings runtime cluster cli".split()
SIDE = {
    **{name: {"errors"} for name in ("lines", "graph", "privacy", "data")},
    "prox": {"arrays", "errors"},
    # an attack sees messages and public facts: neither the engine that made them nor anybody's records
    "attack": {"arrays", "errors", "prox", "graph", "problem", "algorithm", "result"},
}


def room(path):
    part = path.relative_to(SOURCE).parts[0]
    return part.removesuffix(".py")


def test_imports_flow_one_way():
    for path in SOURCE.rglob("*.py"):
        here = room(path)
        if here in ("__init__", "__main__"):
            continue
        allowed = SIDE.get(here, set(ORDER[: ORDER.index(here)])) | {here}
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom) and node.module == "relaydp":
                names = [f"relaydp.{alias.name}" for alias in node.names]
            for name in names:
                target = name.split(".")[1] if name.startswith("relaydp.") else None
                if target and target in ORDER:
                    assert target in allowed, f"{path.relative_to(SOURCE)} imports {name}"


def test_public_names_are_what_is_there():
    assert rd.__all__ == sorted(rd.__all__)
    assert set(rd.__all__) == {*rd._HOMES, *rd._ROOMS, "__version__"}
    for name in rd.__all__:
        assert getattr(rd, name) is not None
    promised = (
        "load_data Records logistic least_squares softmax huber custom ring solve Budget algorithms privacy sweep"
    )
    assert set(promised.split()) <= set(rd.__all__)


def test_type_checkers_see_the_same_names():
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    guard = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    seen = {alias.name for node in guard.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == set(rd.__all__) - {"__version__"}


def test_versions_agree():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert rd.__version__ == version
    assert re.search(rf"^version: {re.escape(version)}$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert re.search(rf"^## {re.escape(version)}\b", (ROOT / "CHANGELOG.md").read_text(), re.M)


def test_every_dependency_has_its_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    reasons = (ROOT / "docs" / "dependencies.md").read_text()
    pins = (ROOT / "constraints.txt").read_text().lower()
    extras = project["optional-dependencies"]
    for requirement in project["dependencies"] + [name for extra in extras.values() for name in extra]:
        if requirement.startswith("relaydp["):  # an extra of ours inside another
            continue
        name = re.match(r"[A-Za-z0-9-]+", requirement)[0].lower()
        assert f"`{name}`" in reasons, f"{name} has no line in docs/dependencies.md"
        assert re.search(rf"^{name}==", pins, re.M), f"{name} is not pinned in constraints.txt"


def test_importing_the_package_is_cheap():
    """`relaydp --help` must not wait for JAX: the bare import loads none of the heavy packages."""
    code = "import sys, relaydp; print([m for m in ('jax', 'scipy', 'sklearn', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.parametrize("first", ["import jax; import relaydp", "import relaydp; import jax"])
def test_float64_is_on_whoever_is_imported_first(first):
    code = f"{first}; print(jax.numpy.ones(1).dtype)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "float64"


def test_what_a_script_left_open_is_written_when_it_ends(tmp_path):
    """An exit that spares itself a last look for garbage would lose it."""
    code = "import relaydp.engine.solve\nfile = open('left.txt', 'w')\ndef use(): return file\nfile.write('hello')"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path, check=True)
    assert (tmp_path / "left.txt").read_text() == "hello"
