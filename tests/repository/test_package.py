"""The package as a whole: public names, import order of the packages, versions that agree."""

import ast
import os
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import jax
import pytest

import relaydp as rd

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "relaydp"

# Each package may import those before it and no other; some are one file. A package's own modules are free.
ORDER = "_version defaults errors _jax arrays _atomic _toml prox graph privacy data problem algorithm oracle".split()
ORDER += "certificate planning result engine estimator attack auditing report paper".split()
ORDER += "settings party network cluster cli".split()
SIDE = {
    **{name: {"errors"} for name in ("_toml", "data")},
    **{name: {"errors", "_jax"} for name in ("graph", "privacy")},
    "prox": {"arrays", "errors"},
    # an attack sees messages and public facts: neither the engine that made them nor anybody's records
    "attack": {"arrays", "errors", "prox", "graph", "problem", "algorithm", "result"},
    # Ray's agents share the party with the network's, and nothing else: the `cluster` extra has no gRPC
    "cluster": set(ORDER[: ORDER.index("network")]),
}


def imported_names(path):
    """Every name of ours that a file imports, wherever in the file, with the names taken `from` it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "relaydp")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.relative_to(SOURCE)}: a relative import hides which package it is from"
            if (node.module or "").split(".")[0] == "relaydp":
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


# Ways to import what no `import` names, so that the test above could not see it; and the files that need one, with why.
HIDDEN_WAYS = {"importlib", "__import__", "pkgutil", "runpy", "sys.modules", "imp", "zipimport"}
MAY_IMPORT_BY_NAME = {
    "__init__.py": "public names are loaded when first used, from a list of ours",
    "cluster/__init__.py": "public names are loaded when first used, from a list of ours",
    "cluster/connection.py": "Ray is an extra; the versions of packages on all machines are compared",
    "cluster/study_folder.py": "versions of packages are kept with a study",
    "cli/checks.py": "`relaydp doctor` tries every dependency and says its version",
    "data/loaders.py": "whether scikit-learn is installed",
    "network/__init__.py": "whether the extra is installed",
    "network/consortium/identity.py": "whether gRPC was imported before TLS 1.3 was required",
    "network/operations/status_page.py": "reads a file of the package",
    "report/page.py": "reads a file of the package",
    "result.py": "versions of packages are kept with a result",
}


def hidden_ways(text):
    """The ways to import by name that a source text mentions, under whatever name it calls them afterwards."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found = {alias.name.split(".")[0] for alias in node.names}
            if "sys" in found and any(alias.name == "sys" and alias.asname for alias in node.names):
                yield "sys.modules"  # under another name nothing below would find it
        elif isinstance(node, ast.ImportFrom):
            found = {(node.module or "").split(".")[0]}
            if found == {"relaydp"}:  # a name that another module of ours has bound
                taken = {alias.name for alias in node.names}
                found |= taken & HIDDEN_WAYS
                if taken & {"relaydp", "sys", "builtins", "*"}:
                    yield "relaydp."
            if node.module == "sys" and any(alias.name in ("modules", "*") for alias in node.names):
                yield "sys.modules"
        elif isinstance(node, ast.Name):
            found = {node.id}
            if node.id == "relaydp":  # `import relaydp._jax` binds it, and everything of ours can be reached from it
                yield "relaydp."
        elif isinstance(node, ast.Attribute):
            found = {node.attr, "sys.modules" if ast.unparse(node) == "sys.modules" else ""}
            if node.attr == "relaydp":  # from a module that has the name
                yield "relaydp."
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = {node.value} & {"__import__", "import_module"}
            found = {"__import__"} if found else set()  # such as getattr(builtins, "__import__")
        else:
            continue
        if found & {"exec", "eval", "builtins"} and not isinstance(node, ast.Attribute):
            yield "__import__"
        yield from found & HIDDEN_WAYS


def package_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_flow_one_way(path):
    here = package_of(path)
    if here in ("__init__", "__main__"):
        return
    assert here in ORDER, f"{here} is not in the list of packages"
    allowed = SIDE.get(here, set(ORDER[: ORDER.index(here)])) | {here, "_version", "defaults"}
    for name in imported_names(path):
        target = name.split(".")[1] if "." in name else "the top"
        # commands call what users call, so that the command line alone may import the top of the package
        assert target in allowed or (target, here) == ("the top", "cli"), f"{path.relative_to(SOURCE)} imports {name}"


def test_what_is_imported_by_name_is_imported_in_listed_files():
    """Elsewhere every import is a statement, which the test above reads."""
    users = {str(path.relative_to(SOURCE)): set(hidden_ways(path.read_text())) for path in SOURCE.rglob("*.py")}
    assert {name: ways for name, ways in users.items() if ways and name not in MAY_IMPORT_BY_NAME} == {}
    assert {name for name in MAY_IMPORT_BY_NAME if not users[name]} == set(), "these need no exception any more"
    for path in (SOURCE / name for name in MAY_IMPORT_BY_NAME):  # and what they import is theirs to import
        nodes = list(ast.walk(ast.parse(path.read_text())))
        called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        for node in nodes:
            if isinstance(node, ast.Attribute) and node.attr in ("import_module", "__import__"):
                assert id(node) in called, f"{path.relative_to(SOURCE)}: {ast.unparse(node)} gets another name"
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
                wanted = ast.unparse(node.args[0])
                ours = wanted in ("_HOMES[name]", "_PACKAGES[name]") and path.name == "__init__.py"
                third = wanted == "'ray'" or wanted.startswith("MODULES.get(name")
                assert len(node.args) == 1 and (ours or third), f"{path.relative_to(SOURCE)}: import_module({wanted})"


@pytest.mark.parametrize(
    "code",
    [
        "from importlib import import_module as load\nload('relaydp.network')",
        "import importlib as il\nil.import_module('relaydp.network')",
        "import importlib.util",
        "__import__('relaydp.network')",
        "import builtins\nbuiltins.__import__('relaydp.network')",
        "getattr(tool, '__import__')('relaydp.network')",
        "import importlib\nimportlib.import_module('.network', package='relaydp')",
        "import importlib\nimportlib.import_module(f'{here}.network')",
        "import pkgutil\npkgutil.resolve_name('relaydp.network')",
        "from pkgutil import resolve_name",
        "import runpy",
        "import sys\nsys.modules['relaydp.network']",
        "from sys import modules",
        "import sys as system\nsystem.modules['relaydp.network']",
        "exec('import relaydp.network')",
        "import relaydp._jax\nrelaydp.solve",
        "import relaydp._jax\nrelaydp.network.operations.agent.main()",
        "import relaydp._jax\neverything = relaydp",
        "from relaydp.graph import routes\nroutes.relaydp.solve",
        "from relaydp.graph.routes import relaydp as top\nproblem = top.Problem",
        "from relaydp.cluster.connection import importlib as il\nil.import_module('relaydp.network')",
        "from relaydp.cli.main import sys as system\nsystem.modules['relaydp.network']",
        "from relaydp.graph.routes import *",
    ],
)
def test_no_way_to_import_by_name_is_missed(code):
    assert set(hidden_ways(code))


# The modules of `problem` that an attack may use: bounds, losses and coordinates are public, and no record is in them.
ATTACK_MAY = ("relaydp.problem.bounds.", "relaydp.problem.coordinates.", "relaydp.problem.loss.")


def test_an_attack_reaches_no_record():
    for path in sorted((SOURCE / "attack").rglob("*.py")):
        used = [name for name in imported_names(path) if name.split(".")[1:2] == ["problem"]]
        assert all(name.startswith(ATTACK_MAY) for name in used), f"{path.relative_to(SOURCE)}: {used}"


# What the process with the records takes from the packages that talk to others, and no more.
RECORDS_TAKE = {
    "final_result.py": {"relaydp.network.messages.wire.pack", "relaydp.network.operations.paths.RESULT"},
    "process.py": {
        "relaydp.network.messages.next_hop.NextHop",
        "relaydp.network.messages.wire.pack",
        "relaydp.network.messages.wire.unpack",
    },
}


def test_the_process_with_the_records_takes_nothing_that_talks_to_others():
    """Formats and the order of the walk are all that it shares with the process that has the network."""
    talking = ("relaydp.network.messages", "relaydp.network.operations")
    for path in sorted((SOURCE / "network" / "records").glob("*.py")):
        used = {name for name in imported_names(path) if name.startswith(talking)}
        assert used == RECORDS_TAKE.get(path.name, set()), path.name


# What talks to others, or could: neither the process with the records nor anything below the network may import it.
TALKING = {"ftplib", "grpc", "http", "requests", "smtplib", "socket", "socketserver", "ssl", "urllib", "xmlrpc"}
MAY_TALK = {"data/fetch.py": {"urllib"}}  # downloads public data


def test_what_talks_to_others_is_imported_by_the_network_alone():
    """No package below `network` opens a connection, Ray's apart; nor does the process with the records."""
    packages = [SOURCE / name for name in ORDER[: ORDER.index("network")]] + [SOURCE / "network" / "records"]
    for path in (path for package in packages for path in sorted(package.rglob("*.py"))):
        names = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add((node.module or "").split(".")[0])
        here = str(path.relative_to(SOURCE))
        assert not (names & TALKING) - MAY_TALK.get(here, set()), f"{here}: {names & TALKING}"


def test_every_package_is_listed_and_explained():
    """CONTRIBUTING's table is the order that the test above holds, and names every package."""
    packages = {package_of(path) for path in SOURCE.rglob("*.py")} - {"__init__", "__main__"}
    assert packages == set(ORDER)
    table = re.findall(r"^\| `([a-z_]+)(?:\.py)?/?` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
    told = [name for name in table if name in ORDER]
    assert told == [name for name in ORDER if name in told], "the table is in another order"
    assert {name for name in ORDER if (SOURCE / name).is_dir()} <= set(told)


def test_no_module_is_hidden_by_a_function():
    """`import relaydp.engine.solver as m` must give the module: no package exports something of a module's name."""
    code = (
        "import importlib, pkgutil, types, relaydp\n"
        "for found in pkgutil.walk_packages(relaydp.__path__, 'relaydp.'):\n"
        "    if found.name.endswith('__main__'): continue\n"
        "    importlib.import_module(found.name)\n"
        "    parent, _, leaf = found.name.rpartition('.')\n"
        "    if not isinstance(getattr(importlib.import_module(parent), leaf), types.ModuleType): print(found.name)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.stdout, ended.returncode) == ("", 0), ended.stderr


def test_the_cluster_needs_nothing_of_the_network():
    code = "import sys\nfor name in ('grpc', 'cryptography', 'google.protobuf', 'prometheus_client'):\n"
    code += "    sys.modules[name] = None\n"
    code += "import relaydp.cluster.solving_apart, relaydp.cluster.agent_actors, relaydp.cluster.scheduler\n"
    code += "print([name for name in sys.modules if name.startswith('relaydp.network')])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stdout.strip() == "[]", ended.stderr
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [name.split(">")[0] for name in extras["cluster"]] == ["ray"]


def test_nobody_writes_into_another_objects_dict():
    """What is computed once for a problem has a place there: `Problem.remembered`."""
    for path in sorted([*SOURCE.rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            reached = isinstance(node, ast.Attribute) and node.attr == "__dict__"
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Call):
                reached |= ast.unparse(node.value.func) == "vars"
            assert not reached, f"{path.relative_to(ROOT)}, line {node.lineno}: {ast.unparse(node)}"


def test_public_names_are_what_is_there():
    assert rd.__all__ == sorted(rd.__all__)
    assert set(rd.__all__) == {*rd._HOMES, *rd._PACKAGES, "__version__"}
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


def outside(*without):
    """This process's environment without variables that begin so, for a process that starts as a user's does."""
    return {name: value for name, value in os.environ.items() if not name.startswith(without)}


@pytest.mark.parametrize("before", ["", "import jax"])
@pytest.mark.parametrize("given", [{}, {"JAX_ENABLE_X64": "0"}, {"JAX_ENABLE_X64": "1"}], ids=["unset", "off", "on"])
def test_importing_the_package_changes_nothing(before, given, tmp_path):
    """The environment, the filters of warnings, JAX's settings and the disk are the user's."""
    code = f"import os, sys, warnings\n{before}\nenvironment, filters = dict(os.environ), list(warnings.filters)\n"
    code += "seen = lambda: dict(sys.modules['jax'].config.values) if 'jax' in sys.modules else None\n"
    code += "settings = seen()\nimport relaydp\n"
    code += "assert warnings.filters == filters and os.environ == environment and seen() == settings\n"
    code += "import jax; print(jax.config.jax_enable_x64)"
    where = {"XDG_CACHE_HOME": str(tmp_path)}
    kept = outside("JAX_", "RELAYDP_COMPILED") | where | given
    ended = subprocess.run([sys.executable, "-c", code], env=kept, capture_output=True, text=True)
    assert ended.stdout.strip() == str(given.get("JAX_ENABLE_X64") == "1"), ended.stderr
    assert not list(tmp_path.iterdir())


SOLVES = """
import os, subprocess, sys
import jax  # which writes to the environment itself
import relaydp as rd
environment = dict(os.environ)
records = rd.Records([[0.0, 1.0], [1.0, 0.5]] * 12, [-1, 1] * 12)
problem = rd.logistic(records, agents=3, l2=0.1, ranges=(0.0, 1.0), classes=[-1, 1])
result = rd.solve(problem, rd.ring(3), "recal", activations=6, walk="cyclic", progress=False)
assert result.x.dtype == "float64" and jax.numpy.ones(1).dtype == "float64"
assert os.environ == environment
child = "import os, jax; print('JAX_ENABLE_X64' in os.environ, jax.numpy.ones(1).dtype)"
print(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True).stdout.strip())
"""


def test_a_solve_writes_nothing_to_the_environment_and_a_child_inherits_nothing():
    """Processes started from this one make their own settings."""
    ended = subprocess.run([sys.executable, "-c", SOLVES], env=outside("JAX_"), capture_output=True, text=True)
    assert ended.stdout.strip() == "False float32", ended.stderr


TASK = """
from relaydp.cluster.study_tasks import StudyTask, run_task
tables = {"data": {"source": "breast-cancer"}, "problem": {"loss": "logistic", "l2": 0.1, "agents": 2}}
tables |= {"graph": {"kind": "complete"}, "run": {"algorithm": "recal", "activations": 2}}
columns = run_task(StudyTask("000000-00000", 0, tables, (0,)))
assert columns["objective"][0] < 0.7, columns
"""
# What the processes that relaydp starts are told to run; each makes its own settings before it computes.
ENTRIES = {
    "a worker of a study": f"from relaydp.cluster.process_workers import serve\n{TASK}",
    "a worker on Ray": f"from relaydp.cluster.ray_workers import Hand\n{TASK}",
    "an agent on Ray": "from relaydp.cluster.agent_actors import AgentProcess",
    "a run on a node": "from relaydp.cluster.one_node import _solve_there",
    "the process with the records": "from relaydp.network.records.pipe import _launch\n"
    "from relaydp.network.records.process import work",
    "a cell of the paper": "from relaydp.paper.runner import _lot\nfrom relaydp.paper.registry import EXPERIMENTS",
}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_every_process_that_relaydp_starts_switches_on_float64_itself(entry):
    code = f"{entry}\nimport jax; print(jax.numpy.ones(1).dtype)"
    ended = subprocess.run([sys.executable, "-c", code], env=outside("JAX_"), capture_output=True, text=True)
    assert ended.stdout.strip() == "float64", ended.stderr


def test_float64_switched_off_in_the_environment_is_an_error_that_names_it():
    code = "import relaydp as rd\ntry: rd.solve\nexcept rd.errors.InputError as error: print(error)"
    kept = outside("JAX_") | {"JAX_ENABLE_X64": "0"}
    ended = subprocess.run([sys.executable, "-c", code], env=kept, capture_output=True, text=True)
    assert "JAX_ENABLE_X64=0" in ended.stdout and "Unset" in ended.stdout, ended.stderr
    first = "import jax; jax.config.update('jax_enable_x64', True); import relaydp; print(relaydp.solve.__name__)"
    ended = subprocess.run([sys.executable, "-c", first], env=kept, capture_output=True, text=True)
    assert ended.stdout.strip() == "solve", ended.stderr  # the program has decided otherwise


@pytest.mark.parametrize("seed", [None, 0])
def test_noise_is_refused_where_a_program_has_switched_float64_off(seed):
    facts = {"l2": 0.1, "ranges": (0.0, 1.0), "classes": [-1, 1]}
    with jax.enable_x64(False), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX's, about types that it cannot give
        problem = rd.logistic(rd.Records([[0.0, 1.0], [1.0, 0.5]] * 12, [-1, 1] * 12), agents=3, **facts)
        with pytest.raises(rd.errors.PrivacyError, match="jax_enable_x64"):
            options = {"activations": 6, "walk": "cyclic", "progress": False, "seed": seed}
            rd.solve(problem, rd.ring(3), "recal", budget=rd.Budget(1.0, 1e-5), **options)


def test_importing_packages_touches_no_file_and_no_filter(tmp_path):
    code = "import warnings, jax, numpy, scipy.sparse, sklearn.base\nbefore = list(warnings.filters)\n"
    code += "import relaydp.graph, relaydp.prox, relaydp.estimator, relaydp.auditing, relaydp.network.records.process\n"
    code += "assert warnings.filters == before, warnings.filters"
    kept = outside("JAX_", "RELAYDP_COMPILED") | {"XDG_CACHE_HOME": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", code], env=kept, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert not list(tmp_path.rglob("*relaydp*"))


def test_programs_are_kept_even_where_jax_was_used_before(tmp_path):
    code = "import relaydp, jax\njax.jit(lambda x: x + 1)(1.0)\n"
    code += "import relaydp.engine\nrelaydp.engine.loop.placed(1.0)\n"
    code += "jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)\n"
    code += "jax.jit(lambda x: x + 2)(1.0)"
    subprocess.run([sys.executable, "-c", code], env=outside("JAX_") | {"RELAYDP_COMPILED": str(tmp_path)}, check=True)
    assert list(tmp_path.rglob("*-cache"))


def modules_and_imports():
    """Every module of ours, and what it imports when it is imported itself."""

    def outside_functions(node):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                yield from (f"{child.module}.{alias.name}" for alias in child.names)
            elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                types_only = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
                yield from () if types_only else outside_functions(child)

    for path in SOURCE.rglob("*.py"):
        name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        yield name, set(outside_functions(ast.parse(path.read_text())))


def test_whatever_imports_jax_imports_its_settings():
    imports = dict(modules_and_imports())

    def reach(name, seen):
        parts = name.split(".")
        for count in range(2, len(parts) + 1):  # importing a module imports the packages that it is in
            here = ".".join(parts[:count])
            if here in imports and here not in seen:
                seen.add(here)
                for found in imports[here]:
                    reach(found, seen)
        return seen

    users = {name for name, found in imports.items() if any(each.split(".")[0] == "jax" for each in found)}
    assert len(users) > 50
    assert [name for name in sorted(users) if "relaydp._jax" not in reach(name, set())] == []


@pytest.mark.parametrize("first", ["import jax; import relaydp", "import relaydp; import jax", "import relaydp, jax"])
def test_float64_is_on_after_the_first_use_whoever_is_imported_first(first):
    code = f"{first}; relaydp.ring(3); relaydp.Problem; print(jax.numpy.ones(1).dtype)"
    ended = subprocess.run([sys.executable, "-c", code], env=outside("JAX_"), capture_output=True, text=True)
    assert ended.stdout.strip() == "float64", ended.stderr


def test_what_a_script_left_open_is_written_when_it_ends(tmp_path):
    """An exit that spares itself a last look for garbage would lose it."""
    code = "import relaydp.engine.solver\nfile = open('left.txt', 'w')\ndef use(): return file\nfile.write('hello')"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path, check=True)
    assert (tmp_path / "left.txt").read_text() == "hello"
