"""The command line: what it prints, what it refuses, and that files and flags mean the same."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from relaydp import engine
from relaydp.cli.main import app
from relaydp.errors import InputError
from relaydp.privacy import epsilon_exact, rho_for
from relaydp.settings.config import Config, build, line_of, parse_toml, read_config

HERE = Path(__file__).resolve().parents[1]
COMMANDS = ("demo", "doctor", "run", "account", "compare", "plan", "audit", "attack", "show", "rerun", "ledger", "data")
KEYS = (
    "algorithm mechanism agents graph walk plf activations messages vectors epsilon epsilon_paper delta rho "
    "relative_error accuracy status seconds"
).split()
# Small and of one shape, so that all runs of a test process share their compiled loops.
SMALL = ["--data", "breast-cancer", "--agents", "3", "--l2", "0.01", "--activations", "3", "--walk", "cyclic"]
SMALL_TOML = """
[data]
source = "breast-cancer"
[problem]
agents = 3
l2 = 0.01
[run]
activations = 3
walk = "cyclic"
"""
SIX_ROWS = """age,dose,ward,label
41,0.1,north,1
67,0.9,south,0
29,0.3,north,1
88,0.7,south,0
35,0.2,east,1
71,0.8,east,0
"""


def call(*args: object):
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="relaydp")


def strict(text: str):
    """JSON as other languages read it: no NaN, no Infinity."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def command(*args: object, **options) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "relaydp", *map(str, args)]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, **options)


@pytest.fixture
def visits(tmp_path):
    file = tmp_path / "visits.csv"
    file.write_text(SIX_ROWS)
    return file


# ---------------------------------------------------------------- help and version


def test_help_is_a_map():
    result = call("--help")
    assert result.exit_code == 0
    for name in COMMANDS:
        assert f"\u2502 {name} " in result.stdout, name


@pytest.mark.parametrize("words", [(name,) for name in COMMANDS] + [("data", n) for n in ("list", "info", "fetch")])
def test_each_command_has_help(words):
    result = call(*words, "--help")
    assert result.exit_code == 0 and "Usage: relaydp" in result.stdout


def test_run_help_documents_the_exit_codes():
    text = call("run", "--help").stdout
    assert "Exit codes" in text and "diverged" in text and "interrupted" in text


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["--version"]])
def test_help_waits_for_nothing_heavy(words):
    code = (
        "import sys; from relaydp.cli.main import main; sys.argv = ['relaydp', *sys.argv[1:]]\n"
        "try: main()\nexcept SystemExit as stop: assert not stop.code\n"
        "heavy = {'jax', 'numpy', 'scipy', 'sklearn', 'matplotlib', 'networkx'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_version():
    import relaydp

    assert call("--version").stdout.strip() == f"relaydp {relaydp.__version__}"


def test_unknown_flag_is_a_usage_error():
    result = call("run", "--epsilom", "1")
    assert result.exit_code == 2 and "Traceback" not in result.output


# ---------------------------------------------------------------- run


def test_json_is_one_strict_object_with_every_key():
    done = command("run", *SMALL, "--epsilon", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = strict(done.stdout)
    assert set(KEYS) <= found.keys()
    assert found["mechanism"] == "gradient" and found["status"] == "finished"
    assert (found["agents"], found["plf"], found["delta"]) == (3, 3, 1e-5)
    assert found["epsilon"] == pytest.approx(1.0) and found["epsilon_paper"] > 1.0
    assert found["private"] is True and found["simulation"] is False


def test_a_seed_makes_a_simulation_that_says_so_everywhere(tmp_path):
    words = [*SMALL, "--epsilon", "1", "--seed", "3"]
    found = strict(call("run", *words, "--json", "--out", tmp_path / "kept").stdout)
    assert found["private"] is False and found["simulation"] is True and found["epsilon"] is None
    assert found["epsilon_planned"] == pytest.approx(1.0) and found["guarantee"].startswith("simulation: no promise")
    assert "simulation: no promise" in call("show", tmp_path / "kept").stdout
    again = strict(call("run", *words, "--json").stdout)
    same = {key: value for key, value in found.items() if key != "seconds"}
    assert {key: value for key, value in again.items() if key != "seconds"} == same


def test_without_epsilon_there_is_no_guarantee():
    found = strict(call("run", *SMALL, "--json").stdout)
    assert found["mechanism"] is None and found["epsilon"] is None and found["guarantee"].startswith("none")


def test_the_table_says_what_it_cost():
    result = call("run", *SMALL, "--epsilon", "1")
    assert result.exit_code == 0, result.output
    for word in ("accuracy", "objective", "relative error", "exact", "paper's formula", "PLF", "vectors", "guarantee"):
        assert word in result.stdout, word


def test_quiet_prints_nothing():
    assert call("run", *SMALL, "--quiet").output == ""


def test_published_says_that_its_claim_is_unproven(tmp_path):
    file = tmp_path / "carried.toml"
    file.write_text('[run]\nmechanism = "published"\nvariant = "carried"\nepsilon = 5.0\nsteps = "paper"\n')
    result = call("run", file, *SMALL)
    assert result.exit_code == 0, result.output
    assert "without a proof" in result.stdout and "carried" in result.stdout


def test_a_file_and_flags_mean_the_same(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(SMALL_TOML + "epsilon = 1.0\nseed = 0\n")
    flags = [*SMALL, "--epsilon", "1", "--seed", "0"]
    timeless = [strict(call("run", *words, "--json").stdout) for words in ([file], flags)]
    for found in timeless:
        found.pop("seconds")
    assert timeless[0] == timeless[1]
    assert read_config(file) == read_config(
        None,
        {
            "data": "breast-cancer",
            "agents": "3",
            "l2": 0.01,
            "activations": 3,
            "walk": "cyclic",
            "epsilon": 1.0,
            "seed": 0,
        },
    )


def test_flags_win_over_the_file(tmp_path):
    file = tmp_path / "run.toml"
    text = "ratio = 0.9\nepsilon = 1.0\ndelta = 1e-4\n[graph]\nedges = [[0, 1], [1, 2]]\nseed = 3\n"
    file.write_text(SMALL_TOML + text)
    assert read_config(file).run.epsilon == 1.0
    config = read_config(file, {"epsilon": 2.0, "graph": "star", "seed": 5})
    assert (config.run.epsilon, config.run.delta, config.run.seed) == (2.0, 1e-4, 5)
    assert (config.graph.kind, config.graph.edges, config.graph.seed) == ("star", None, 3)
    bare = read_config(file, {"mechanism": "none"}).run
    assert (bare.epsilon, bare.delta, bare.ratio) == (None, None, None)


def test_a_files_paths_start_at_its_folder(tmp_path, visits):
    (tmp_path / "ring.txt").write_text("0 1\n1 2\n2 0\n")
    file = tmp_path / "run.toml"
    file.write_text('[data]\nsource = "visits.csv"\n[problem]\nagents = "ward"\n[graph]\nfile = "ring.txt"\n')
    problem, graph, _ = build(read_config(file))
    assert problem.split.names == ("east", "north", "south") and graph.agents == 3
    assert problem.data.columns == ("age", "dose")


@pytest.mark.parametrize(
    "flags, agents",
    [({}, 8), ({"graph": "grid:2x3"}, 6), ({"agents": "100,200,156"}, 3), ({"agents": "4", "graph": "complete"}, 4)],
)
def test_agents_and_graph_agree_on_their_number(flags, agents):
    problem, graph, _ = build(read_config(None, {"data": "breast-cancer", **flags}))
    assert problem.agents == graph.agents == agents


@pytest.mark.parametrize(
    "table",
    [
        'kind = "elastic-net", l1 = 0.01, l2 = 1',
        'kind = "box", low = 0, high = inf',
        'kind = "nonnegative"',
        'kind = "l2-ball", radius = 2',
        f'kind = "group-lasso", weight = 0.1, groups = {[k % 3 for k in range(30)]}',
    ],
)
def test_regularisers_by_name(table):
    config = Config.model_validate(
        parse_toml(f"{SMALL_TOML}\n[problem.regulariser]\n{table.replace(', ', chr(10), 2)}", "f")
    )
    assert config.problem.regulariser is not None
    assert build(config)[0].regulariser.kind != "none"


def test_the_example_file_is_good():
    config = read_config(HERE.parent / "examples" / "run.toml")
    problem, graph, asked = build(config)
    assert problem.agents == graph.agents == 4 and asked["budget"].epsilon == 2.0


def test_each_commented_key_of_the_example_is_known():
    """Every `# key = value` of the example works when it is uncommented, one at a time."""
    text = (HERE.parent / "examples" / "run.toml").read_text()
    lines = text.split("\n")
    optional = [k for k, line in enumerate(lines) if line.startswith("# ") and line[2:].split(" = ")[0].isidentifier()]
    assert len(optional) >= 14
    for k in optional:
        parse_toml("\n".join([*lines[:k], lines[k][2:], *lines[k + 1 :]]), "run.toml")


# ---------------------------------------------------------------- saving


def test_out_show_rerun(tmp_path):
    folder = tmp_path / "kept" / "first"
    made = call("run", *SMALL, "--epsilon", "1", "--seed", "3", "--out", folder, "--json")
    assert made.exit_code == 0, made.output
    assert strict(call("show", folder, "--json").stdout) == strict(made.stdout)
    assert "saved in" in call("show", folder).stdout
    again = call("rerun", folder, "--json")
    assert again.exit_code == 0 and strict(again.stdout)["identical"] is True
    assert sorted(path.name for path in folder.parent.iterdir()) == ["first"]

    refused = call("run", *SMALL, "--out", folder)
    assert refused.exit_code == 2 and "--overwrite" in refused.stderr
    replaced = call("run", *SMALL, "--out", folder, "--overwrite", "--json")
    assert replaced.exit_code == 0 and strict(call("show", folder, "--json").stdout)["mechanism"] is None


def test_a_private_run_is_shown_but_not_repeated(tmp_path):
    made = call("run", *SMALL, "--epsilon", "1", "--out", tmp_path / "first", "--json")
    assert made.exit_code == 0 and strict(made.stdout)["private"] is True, made.output
    assert strict(call("show", tmp_path / "first", "--json").stdout) == strict(made.stdout)
    assert strict(call("show", tmp_path / "first" / "publish", "--json").stdout)["accuracy"] is None
    refused = call("rerun", tmp_path / "first")
    assert refused.exit_code == 2 and "private run, which cannot be repeated" in refused.stderr
    simulated = call("rerun", tmp_path / "first", "--seed", "1", "--json")
    assert simulated.exit_code == 0 and strict(simulated.stdout)["simulation"] is True
    assert "identical" not in strict(simulated.stdout)


def test_a_private_run_cannot_be_repeated(tmp_path):
    folder = tmp_path / "kept"
    made = strict(call("run", *SMALL, "--epsilon", "1", "--out", folder, "--json").stdout)
    assert made["private"] is True and strict(call("show", folder, "--json").stdout) == made
    refused = call("rerun", folder)
    assert refused.exit_code == 2 and "kept nowhere" in refused.stderr and refused.stdout == ""


# ---------------------------------------------------------------- accounts


def test_two_runs_add_up_and_the_third_is_refused_before_a_record_is_used(tmp_path, monkeypatch):
    file = tmp_path / "cancer.account"
    made = strict(call("account", "new", file, "--epsilon", "1.5", "--json").stdout)
    assert (made["spent"], made["runs"]) == (0.0, [])
    words = ["run", *SMALL, "--epsilon", "1", "--account", file]
    first, second = (strict(call(*words, "--json").stdout) for _ in range(2))
    assert first["private"] and first["account"]["spent"] == pytest.approx(1.0)
    both = epsilon_exact(2 * rho_for(1.0, 1e-5), 1e-5)
    assert second["account"]["spent"] == pytest.approx(both) and 1.0 < both < 1.5
    place = sys.modules["relaydp.engine.solver"]
    monkeypatch.setattr(place, "run", lambda *a, **k: pytest.fail("records were used"))
    monkeypatch.setattr(place, "minimise", lambda *a, **k: pytest.fail("records were used"))
    refused = call(*words)
    assert refused.exit_code == 2 and "did not run" in refused.stderr and refused.stdout == ""
    shown = strict(call("show", file, "--json").stdout)
    assert len(shown["runs"]) == 2 and shown["spent"] == second["account"]["spent"]
    told = call("show", file).stdout
    assert "2 runs charged" in told
    left = float(told.rstrip().rstrip(".").rpartition(" ")[2])  # what it says may be spent, may be spent
    assert f"where {left:g} is left" in refused.stderr and "folds" not in refused.stderr
    monkeypatch.undo()
    assert call("run", *SMALL, "--epsilon", left, "--account", file).exit_code == 0


def test_a_simulation_is_not_charged(tmp_path):
    file, config = tmp_path / "cancer.account", tmp_path / "run.toml"
    assert call("account", "new", file, "--epsilon", "1").exit_code == 0
    both = call("run", *SMALL, "--epsilon", "1", "--seed", "0", "--account", file)
    assert both.exit_code == 2 and "promises nothing" in both.stderr
    assert f"--account={file} with --seed=0" in " ".join(both.stderr.split())
    bare = call("run", *SMALL, "--account", file)
    assert bare.exit_code == 2 and "belongs to a budget" in bare.stderr
    # a flag takes the file's account away, as it does with the file's budget
    config.write_text(SMALL_TOML + 'epsilon = 1.0\naccount = "cancer.account"\n')
    assert read_config(config).run.account == str(file)
    assert strict(call("run", config, "--seed", "0", "--json").stdout)["simulation"] is True
    assert strict(call("run", config, "--mechanism", "none", "--json").stdout)["mechanism"] is None
    assert strict(call("show", file, "--json").stdout)["runs"] == []
    assert strict(call("run", config, "--json").stdout)["account"]["spent"] == pytest.approx(1.0)


def test_an_account_is_never_begun_anew(tmp_path):
    file = tmp_path / "cancer.account"
    lost = call("run", *SMALL, "--epsilon", "1", "--account", file)
    assert lost.exit_code == 2 and "relaydp account new" in lost.stderr and not file.exists()
    assert call("account", "new", file, "--epsilon", "1").exit_code == 0
    again = call("account", "new", file, "--epsilon", "9")
    assert again.exit_code == 2 and "exists already" in again.stderr
    (tmp_path / "note.txt").write_text("no account")
    assert call("show", tmp_path / "note.txt").exit_code == 2
    assert call("account", "new", tmp_path / "b", "--epsilon", "1", "--delta", "1e-300").exit_code == 2


def test_rerun_with_data_that_moved(tmp_path, visits):
    folder = tmp_path / "result"
    words = ["--data", visits, "--agents", "ward", "--activations", "3", "--ranges", "0,100", "--epsilon", "1"]
    made = call("run", *words, "--seed", "0", "--out", folder)
    assert made.exit_code == 0, made.output
    moved = visits.rename(tmp_path / "moved.csv")
    lost = call("rerun", folder)
    assert lost.exit_code == 2 and "visits.csv" in lost.stderr
    found = call("rerun", folder, "--data", moved)
    assert found.exit_code == 0 and "bit for bit" in found.stdout, found.output
    moved.write_text(SIX_ROWS.replace("41", "42"))
    assert call("rerun", folder, "--data", moved).exit_code == 2


def test_rerun_to_other_bits_is_exit_1(tmp_path, monkeypatch):
    folder = tmp_path / "result"
    assert call("run", *SMALL, "--out", folder).exit_code == 0
    real = engine.rerun
    monkeypatch.setattr(engine, "rerun", lambda *a, **k: dataclasses.replace(r := real(*a, **k), x=r.x + 1e-9))
    result = call("rerun", folder)
    assert result.exit_code == 1 and "different" in result.stdout and "1e-09" in result.stdout


def test_show_of_something_else(tmp_path):
    result = call("show", tmp_path)
    assert result.exit_code == 2 and result.stderr.startswith("error: ")


@pytest.mark.parametrize("status, code", [("diverged", 3), ("interrupted", 130)])
def test_status_becomes_the_exit_code(status, code, tmp_path, monkeypatch):
    real = engine.solve
    monkeypatch.setattr(
        engine, "solve", lambda *a, **k: dataclasses.replace(real(*a, **k), status=status, message="Why.")
    )
    result = call("run", *SMALL, "--json", "--out", tmp_path / "kept")
    assert result.exit_code == code
    assert strict(result.stdout)["status"] == status
    assert result.stderr.strip() == f"{status}: Why."
    assert strict(call("show", tmp_path / "kept", "--json").stdout)["status"] == status


def test_an_interrupt_before_there_is_anything_to_keep(tmp_path, monkeypatch):
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "solve", stop)
    result = call("run", *SMALL, "--out", tmp_path / "kept")
    assert result.exit_code == 130 and "interrupted" in result.stderr
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- what is refused

CSV = ["--data", "visits.csv", "--agents", "3"]
BC = ["--data", "breast-cancer", "--agents", "3"]
# name: (files to write, arguments of run, what the error must say)
BAD = {
    "disconnected graph": ({"g.txt": "0 1\n2 3\n"}, ["--agents", 4, "--graph", "g.txt"], ["connect"]),
    "agents and graph differ": ({}, [*BC, "--graph", "grid:2x2"], ["4 agents", "agents=3"]),
    "agents and graph file differ": ({"g.txt": "0 1\n1 2\n"}, ["--agents", 4, "--graph", "g.txt"], ["3 agents"]),
    "agents and edges differ": (
        {"r.toml": "[problem]\nagents=4\n[graph]\nedges=[[0,1],[1,2]]"},
        ["r.toml"],
        ["graph 3"],
    ),
    "NaN in the data": ({"visits.csv": SIX_ROWS.replace("0.9", "nan")}, [*CSV, "--drop", "ward"], ["'dose'", "row 2"]),
    "gap in the data": ({"visits.csv": SIX_ROWS.replace("0.9", "")}, [*CSV, "--drop", "ward"], ["'dose'", "row 2"]),
    "text in the data": ({}, CSV, ["'ward'", "'north'", "drop"]),
    "one class": ({"visits.csv": SIX_ROWS.replace(",0\n", ",1\n")}, [*CSV, "--drop", "ward"], ["one class"]),
    "missing classes": ({}, [*CSV, "--drop", "ward", "--epsilon", 1], ["--classes a,b", "--loss least-squares"]),
    "missing bounds": (
        {},
        [*CSV, "--drop", "ward", "--classes", "0,1", "--epsilon", 1],
        ["--record-norm=NUMBER", "--ranges=LOW,HIGH"],
    ),
    "fitted bounds": ({}, [*CSV, "--drop", "ward", "--classes", "0,1", "--epsilon", 1, "--ranges", "fit"], ["fit"]),
    "epsilon 0": ({}, [*BC, "--epsilon", 0], ["--epsilon", "above 0"]),
    "epsilon below 0": ({}, [*BC, "--epsilon", "-1"], ["--epsilon", "above 0"]),
    "epsilon nan": ({}, [*BC, "--epsilon", "nan"], ["--epsilon"]),
    "delta 0": ({}, [*BC, "--epsilon", 1, "--delta", 0], ["--delta", "between 0 and 1"]),
    "delta 1": ({}, [*BC, "--epsilon", 1, "--delta", 1], ["--delta", "between 0 and 1"]),
    "delta of 1/m": ({}, [*BC, "--epsilon", 1, "--delta", 0.01], ["152 records", "1e-05", "allow_large_delta = true"]),
    "delta below the noise": ({}, [*BC, "--epsilon", 1, "--delta", 1e-300], ["1e-30 to 0.5"]),
    "budget on Ray without a seed": ({}, [*BC, "--epsilon", 1, "--on", "ray"], ["--seed=0", "consortium"]),
    "delta alone": ({}, [*BC, "--delta", 0.1], ["without epsilon"]),
    "none with epsilon": ({}, [*BC, "--epsilon", 1, "--mechanism", "none"], ["mechanism 'none'", "epsilon=1"]),
    "published without epsilon": ({}, [*BC, "--mechanism", "published"], ["'published'", "without epsilon"]),
    "variant without published": ({"r.toml": '[run]\nvariant = "carried"'}, ["r.toml", *BC], ["published"]),
    "ratio without noise": ({"r.toml": "[run]\nratio = 0.9"}, ["r.toml", *BC], ["ratio"]),
    "unstable steps": ({}, [*BC, "--steps", "alpha=1,beta=9,gamma=1"], ["stable set"]),
    "steps without gamma": ({}, [*BC, "--steps", "alpha=1,beta=9"], ["--steps", "gamma"]),
    "steps in words": ({}, [*BC, "--steps", "tund"], ["Did you mean 'tuned'?"]),
    "unknown algorithm": ({}, [*BC, "--algorithm", "recla"], ["Did you mean 'recal'?"]),
    "unknown walk": ({}, [*BC, "--walk", "cylic"], ["Did you mean 'cyclic'?"]),
    "unknown graph": ({}, [*BC, "--graph", "rign"], ["Did you mean 'ring'?"]),
    "unknown loss": ({}, [*BC, "--loss", "logstic"], ["Did you mean 'logistic'?"]),
    "unknown data": ({}, ["--data", "digit"], ["Did you mean 'digits'?"]),
    "unknown column": ({}, ["--data", "visits.csv", "--agents", "wards"], ["Did you mean 'ward'?"]),
    "no such file": ({}, ["--data", "nowhere.csv"], ["nowhere.csv", "does not exist"]),
    "garbled file": ({"x.parquet": "no"}, ["--data", "x.parquet"], ["x.parquet", "Parquet"]),
    "no such graph file": ({}, [*BC, "--graph", "nowhere.txt"], ["nowhere.txt"]),
    "empty agent": ({}, ["--data", "visits.csv", "--drop", "ward", "--agents", 7], ["no record"]),
    "fewer than no agents": ({}, ["--data", "visits.csv", "--drop", "ward", "--agents=-1"], ["count of 1 or more"]),
    "half an agent": ({}, ["--data", "visits.csv", "--drop", "ward", "--agents", "1.5"], ["count of 1 or more"]),
    "sizes with a slip": ({}, ["--data", "visits.csv", "--drop", "ward", "--agents", "6,-6"], ["count of 1 or more"]),
    "empty agent by sizes": ({}, ["--data", "visits.csv", "--drop", "ward", "--agents", "6,0"], ["no record"]),
    "no agent": ({}, ["--agents", 0], ["--agents", "1 or more"]),
    "start beyond the graph": ({"r.toml": "[run]\nstart = 3"}, ["r.toml", *BC], ["start"]),
    "negative seed": ({}, [*BC, "--seed", "-1"], ["--seed"]),
    "ranges upside down": ({}, [*BC, "--ranges", "1,0"], ["low must be less than high"]),
    "ranges in words": ({}, [*BC, "--ranges", "fitt"], ["--ranges", "Did you mean 'fit'?"]),
    "label bound with logistic": ({}, [*BC, "--loss", "logistic", "--label-bound", 1], ["least-squares"]),
    "numbers for classes": ({}, ["--data", "digits", "--loss", "logistic"], ["10 different labels"]),
    "one process per agent, here": ({"r.toml": '[apart]\ncolumns = ["age"]'}, ["r.toml", *BC], ["columns", "--on ray"]),
    "overwrite without out": (None, ["--overwrite"], ["--out"]),
    "no such TOML": ({}, ["nowhere.toml"], ["nowhere.toml"]),
    "TOML that is no text": ({"r.toml": b"\xff\xfe\x00"}, ["r.toml"], ["r.toml"]),
    "TOML syntax": ({"r.toml": "[run]\nseed = 1\nwalk = cyclic\n"}, ["r.toml"], ["r.toml, line 3", "not TOML"]),
    "TOML syntax at the end": ({"r.toml": '[run]\nwalk = "cyc'}, ["r.toml"], ["r.toml", "not TOML"]),
    "TOML key as in a flag": (
        {"r.toml": "[problem]\nrecord-norm = 2.0\n"},
        ["r.toml"],
        ["r.toml, line 2", "'record-norm' in [problem]", "Did you mean 'record_norm'?"],
    ),
    "TOML key as in a flag, in another table": (
        {"r.toml": "[run]\nrecord-norm = 2.0\n"},
        ["r.toml"],
        ["r.toml, line 2", "put it in [problem]"],
    ),
    "TOML unknown table with a dash": ({"r.toml": "[my-run]\nseed = 1\n"}, ["r.toml"], ["line 1", "table 'my-run'"]),
    "TOML unknown key": (
        {"r.toml": "[run]\nseed = 1\n\nepsilom = 1.0\n"},
        ["r.toml"],
        ["r.toml, line 4", "'epsilom'", "Did you mean 'epsilon'?", "activations"],
    ),
    "TOML unknown table": ({"r.toml": "[data]\n[problm]\nl2 = 1"}, ["r.toml"], ["line 2", "Did you mean 'problem'?"]),
    "TOML key in the wrong table": ({"r.toml": "[run]\nl2 = 1"}, ["r.toml"], ["line 2", "put it in [problem]"]),
    "TOML key outside a table": ({"r.toml": "epsilon = 1"}, ["r.toml"], ["line 1", "put it in [run]"]),
    "TOML no table": ({"r.toml": "run = 3"}, ["r.toml"], ["line 1", "needed a table, [run]"]),
    "TOML bad value": ({"r.toml": "[run]\n# why\nepsilon = -1.0\n"}, ["r.toml"], ["r.toml, line 3", "-1.0", "above 0"]),
    "TOML bad type": ({"r.toml": '[problem]\nl2 = "much"\n'}, ["r.toml"], ["line 2", "problem.l2", "'much'", "number"]),
    "TOML bad name": ({"r.toml": '[run]\nwalk = "cylic"\n'}, ["r.toml"], ["line 2", "Did you mean 'cyclic'?"]),
    "TOML bad graph": ({"r.toml": '[graph]\nkind = "rign"\n'}, ["r.toml"], ["line 2", "Did you mean 'ring'?"]),
    "TOML bad data": ({"r.toml": '[data]\nsource = "digit"\n'}, ["r.toml"], ["line 2", "Did you mean 'digits'?"]),
    "TOML bad regulariser": (
        {"r.toml": '[problem]\nregulariser = {kind = "grouplasso"}\n'},
        ["r.toml"],
        ["line 2", "Did you mean 'group-lasso'?"],
    ),
    "TOML two graphs": (
        {"r.toml": '[graph]\nkind = "ring"\nfile = "g.txt"'},
        ["r.toml"],
        ["one of kind, edges or file"],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_paragraph_and_exit_2(name, tmp_path, monkeypatch, visits):
    files, args, needles = BAD[name]
    monkeypatch.chdir(tmp_path)
    for file, content in (files or {}).items():
        Path(file).write_bytes(content if isinstance(content, bytes) else content.encode())
    before = sorted(tmp_path.iterdir())
    result = call("run", *args, *([] if files is None else ["--out", "kept/result"]))
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    text = result.stderr.strip()
    assert text.startswith("error: ") and "\n" not in text and "Traceback" not in text
    for needle in needles:
        assert needle in text, text
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["unknown algorithm", "TOML unknown key"])
def test_bad_input_of_the_real_command(name, tmp_path):
    files, args, needles = BAD[name]
    for file, content in files.items():
        (tmp_path / file).write_text(content)
    done = command("run", *args, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: ") and all(needle in done.stderr for needle in needles)


def test_out_is_checked_before_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "solve", lambda *a, **k: pytest.fail("the run was started"))
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "thesis.tex").write_text("years of work")
    for words in (["--out", kept], ["--out", kept, "--overwrite"], ["--out", kept / "thesis.tex" / "deeper"]):
        result = call("run", *SMALL, *words)
        assert result.exit_code == 2 and result.stderr.startswith("error: "), result.output
    assert (kept / "thesis.tex").read_text() == "years of work"


# ---------------------------------------------------------------- the TOML reader

KNOWN = ["data", "problem", "graph", "run", "source", "agents", "epsilon", "steps", "ranges", "regulariser", "edges"]
SCALARS = st.one_of(
    st.integers(),
    st.just(10**400),
    st.floats(),
    st.booleans(),
    st.text(max_size=8),
    st.sampled_from(["ring", "tuned", "fit", "1,2", "alpha=1", "group-lasso", "none"]),
)


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, str) else repr(value)


NAMES = st.sampled_from(KNOWN + ["kind", "alpha", "groups", "activations", "seed", "l1"]) | st.text(max_size=4)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
TABLES = st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES, max_size=4) | VALUES, max_size=4)
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def read_or_refuse(text: str) -> None:
    try:
        Config.model_validate(parse_toml(text, "fuzz.toml"))
    except InputError as error:
        assert str(error).startswith("fuzz.toml")


@FUZZ
@given(st.text())
def test_any_text_is_read_or_refused(text):
    read_or_refuse(text)


@FUZZ
@given(TABLES)
@example({"-": {}})
@example({"problem": {"record-norm": 2.0, "[x]": 1}})
def test_any_toml_is_read_or_refused(tables):
    read_or_refuse("\n".join(f"{json.dumps(key)} = {toml(value)}" for key, value in tables.items()))


@FUZZ
@given(st.sampled_from(["agents", "steps", "ranges", "graph", "loss", "data"]), st.text(max_size=20))
def test_any_flag_is_read_or_refused(flag, text):
    try:
        read_config(None, {flag: text})
    except InputError as error:
        assert str(error).startswith(f"--{flag}")


def test_deep_nesting_is_refused():
    read_or_refuse("a = " + "[" * 5000 + "]" * 5000)


@pytest.mark.parametrize(
    "text, place, line",
    [
        ("[run]\nseed = 1", ("run", "seed"), 2),
        ("[ run ] # the run\n'seed' = 1", ("run", "seed"), 2),
        ("run.seed = 1", ("run", "seed"), 1),
        ("\nrun = {seed = 1}", ("run", "seed"), 2),
        ("[data]\nseed = 1\n[run]\nseed = 2", ("run", "seed"), 4),
        ("[graph]\nedges = [\n  [0, 1], # ]\n  [1, 2],\n]\nseed = 1", ("graph", "seed"), 6),
        ("[graph]\nedges = [\n  [0, 1],\n]", ("graph", "edges", "0"), 2),
        ('[data]\nlabel = """\n[run]\nseed = 1\n"""\n[run]\nseed = 2', ("run", "seed"), 7),
        ("[problem.regulariser]\nkind = 1", ("problem", "regulariser"), 1),
        ("[run]", ("run", "seed"), 1),
        ("", ("run",), None),
    ],
)
def test_line_of(text, place, line):
    assert line_of(text, place) == line


# ---------------------------------------------------------------- data


def test_data_list():
    facts = strict(call("data", "list", "--json").stdout)
    assert facts[0]["name"] == "fashion-small" and len(facts) >= 7
    text = call("data", "list").stdout
    assert all(fact["name"] in text for fact in facts)


def test_data_info_of_a_name():
    assert strict(call("data", "info", "digits", "--json").stdout)["features"] == 64
    assert "scikit-learn" in call("data", "info", "digits").stdout
    unknown = call("data", "info", "digit")
    assert unknown.exit_code == 2 and "Did you mean 'digits'?" in unknown.stderr


def test_data_info_of_a_file(visits):
    facts = strict(call("data", "info", visits, "--groups", "ward", "--json").stdout)
    assert (facts["records"], facts["features"], facts["dtype"]) == (6, 2, "float64")
    assert facts["labels"] == {"0": 3, "1": 3} and facts["groups"] == {"ward": 3}
    assert "label" in call("data", "info", visits, "--drop", "ward").stdout


def test_data_fetch(tmp_path, monkeypatch):
    facts = strict(call("data", "fetch", "fashion-small", "digits", "--json").stdout)
    assert [fact["files"] for fact in facts] == [[], []]
    assert "nothing to download" in call("data", "fetch", "fashion-small").stdout
    assert call("data", "fetch").exit_code == 2
    assert call("data", "fetch", "digits", "--all").exit_code == 2
    assert "Did you mean 'mnist'?" in call("data", "fetch", "mnis").stderr

    from relaydp.data import fetch

    def offline(*_: object) -> None:
        raise OSError("no network")

    monkeypatch.setenv("RELAYDP_DATA", str(tmp_path))
    monkeypatch.setattr(fetch, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(fetch, "_retrieve", offline)
    failed = call("data", "fetch", "mnist", "digits")
    assert failed.exit_code == 2 and "digits" in failed.stdout
    assert "no network" in failed.stderr and "train-images-idx3-ubyte.gz" in failed.stderr


def test_a_closed_pipe_is_quiet():
    read, write = os.pipe()
    os.close(read)
    words = [sys.executable, "-m", "relaydp", "data", "list"]
    done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, text=True, timeout=300)
    os.close(write)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("labels", "loss"),
    [
        (["yes", "no"] * 6, "logistic"),
        ([0, 1, 2] * 4, "softmax"),
        (["a", "b", "c"] * 4, "softmax"),
        ([0.5 * k for k in range(12)], "least_squares"),
    ],
    ids=["two", "three", "text", "numbers"],
)
def test_without_a_loss_the_labels_choose_it(tmp_path, labels, loss):
    rows = "\n".join(f"{k / 12},{(k * 7 % 12) / 12},{label}" for k, label in enumerate(labels))
    (tmp_path / "d.csv").write_text(f"a,b,label\n{rows}\n")
    problem, _, _ = build(read_config(None, {"data": str(tmp_path / "d.csv"), "agents": "2"}))
    assert problem.spec["loss"] == loss
