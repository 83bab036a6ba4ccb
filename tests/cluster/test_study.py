"""Studies: the file, the cases and blocks it means, tasks, the table, processes of this machine, and the command."""

import dataclasses
import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import study_losses

import relaydp as rd
from relaydp.cluster import Study, read_study, run_study
from relaydp.cluster.process_workers import Done
from relaydp.cluster.scheduler import AGAIN, Interrupted, run_tasks
from relaydp.cluster.study_folder import check_folder, make_part
from relaydp.cluster.study_tasks import failed, own_loss, run_task, tasks_of
from relaydp.errors import InputError
from relaydp.settings.config import read_config

ROOT = Path(__file__).parents[2]
SMALL = {
    "study": {"data": ["breast-cancer"], "budgets": [4.0, "none"], "seeds": 4, "block": 2},
    "problem": {"agents": 4, "l2": 0.01},
    "run": {"activations": 5, "walk": "cyclic"},
}
TEXT = """
[study]
name = "small"
data = ["breast-cancer"]
budgets = [4.0, "none"]
seeds = 4
block = 2

[problem]
agents = 4
l2 = 0.01

[run]
activations = 5
walk = "cyclic"
"""
# The command line with this command alone. Tests run in the background have Ctrl-C ignored, and what they start
# inherits that.
APP = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
APP += (
    "import typer; from relaydp.cli import main, sweep; app = typer.Typer(cls=main.Front); main.MAP = (('sweep', ''),);"
)
APP += "app.callback()(lambda: None); app.command('sweep')(sweep.sweep); app()"
# The same, and when one task has come back it waits for the next for ever, so that Ctrl-C meets it there.
HELD = """
import time
from relaydp.cluster import process_workers
wait, done = process_workers.LocalWorkers.wait, []
def wait_once(crew, seconds):
    time.sleep(3600 * bool(done))
    done.extend(found := wait(crew, seconds))
    return found
process_workers.LocalWorkers.wait = wait_once
"""


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory):
    """Workers share what they compile, as users' workers do; this process has its own setting already."""
    before = os.environ["RELAYDP_COMPILED"]
    os.environ["RELAYDP_COMPILED"] = str(tmp_path_factory.mktemp("compiled"))
    yield
    os.environ["RELAYDP_COMPILED"] = before


@pytest.fixture(scope="module")
def small():
    return Study.of(SMALL)


@pytest.fixture(scope="module")
def here(small):
    """Every task, done in this process."""
    return [run_task(task) for task in tasks_of(small)]


@pytest.fixture(scope="module")
def table(small):
    return run_study(small, jobs=1)


def numbers(table):
    """All that must not depend on where and when a study ran."""
    return table.drop(["seconds", "host"])


# The file


def test_every_combination_is_one_case_and_no_other():
    axes = {"agents": [2, 4], "graphs": ["ring", "complete"], "walks": ["random", "tour"], "activations": [3, 4]}
    study = Study.of({"study": {"data": ["breast-cancer", "digits"], "budgets": [1.0, "none"], "seeds": 3, **axes}})
    keys = ("data", "agents_asked", "graph", "walk", "activations_asked", "epsilon_asked")
    found = [tuple(case.coordinates[key] for key in keys) for case in study.cases]
    wanted = itertools.product(
        ["breast-cancer", "digits"], ["2", "4"], ["ring", "complete"], ["random", "tour"], [3, 4], [1.0, None]
    )
    assert found == list(wanted)
    assert study.runs == 3 * len(found)


def test_whom_a_budget_is_against_belongs_to_the_runs_that_have_one():
    runs = {"collusion": 1, "quorum": 3}
    study = Study.of({"study": {"data": ["breast-cancer"], "agents": [4], "budgets": [1.0, "none"]}, "run": runs})
    asked = [{name: case.tables["run"][name] for name in runs} for case in study.cases]
    assert asked == [runs, {"collusion": None, "quorum": None}]


def test_algorithms_that_work_in_rounds_have_no_walks():
    study = Study.of({"study": {"algorithms": ["recal", "nids"], "walks": ["random", "cyclic", "tour"]}})
    assert [(case.coordinates["algorithm"], case.coordinates["walk"]) for case in study.cases] == [
        ("recal", "random"),
        ("recal", "cyclic"),
        ("recal", "tour"),
        ("nids", None),
    ]


def test_a_case_is_what_the_file_of_a_run_would_be(small, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(
        '[data]\nsource = "breast-cancer"\n[problem]\nagents = 4\nl2 = 0.01\n[run]\nepsilon = 4.0\nactivations = 5\n'
    )
    wanted = read_config(file, {"walk": "cyclic"}).model_dump(mode="json")
    assert small.cases[0].tables == wanted
    assert small.cases[1].tables["run"]["epsilon"] is None


def test_the_example_says_what_its_comments_say():
    study = read_study(ROOT / "examples" / "study.toml")
    assert study.runs == 8 * len(study.cases)
    assert {case.coordinates["epsilon_asked"] for case in study.cases} == {1.0, 4.0, None}
    assert {case.coordinates["delta_asked"] for case in study.cases} == {1e-5, 1e-4, None}


@pytest.mark.parametrize("seeds", [1, 7, 64, 65, 100, [5, 3, 9]])
@pytest.mark.parametrize("block", [1, 3, 64, 1000])
def test_blocks_share_the_seeds_out_evenly(seeds, block):
    study = Study.of({"study": {"data": ["breast-cancer"], "seeds": seeds, "block": block}})
    sizes = [len(part) for part in study.blocks()]
    assert tuple(itertools.chain(*study.blocks())) == study.seeds
    assert max(sizes) <= block and max(sizes) - min(sizes) <= 1
    assert len(sizes) == -(-len(study.seeds) // block)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[study]\nseeds = 0", "line 2: seeds = 0; it must be a count"),
        ("[study]\nseeds = [1, 1]", "different numbers"),
        ("[study]\nseeds = true", "seeds = True; it must be"),
        ('[study]\ndata = ["brest-cancer"]', "Did you mean 'breast-cancer'?"),
        ('[study]\nalgorithms = ["recall"]', "Did you mean 'recal'?"),
        ('[study]\ngraphs = ["rng"]', "Did you mean 'ring'?"),
        ("[study]\ngraphs = []", "must have at least one value"),
        ("[study]\nbudgets = [-1.0]", "epsilon"),
        ('[study]\nbudgets = ["lots"]', "must be an epsilon such as 1.0"),
        ("[study]\nbudgets = [{ epsilon = 1.0, rho = 2 }]", "must be an epsilon such as 1.0"),
        ("[study]\nblock = 0", "study.block = 0; it must be greater than or equal to 1"),
        ("[study]\nalgorithm = ['recal']", "Did you mean 'algorithms'?"),
        ("[studies]\nseeds = 2", "Did you mean 'study'?"),
        ("study = 3", "must be a table, [study]"),
        ("[study]\nagents = [0]", "needed a count of 1 or more"),
        (
            '[study]\nwalks = ["tour"]\n[run]\nwalk = "cyclic"',
            "line 4: run.walk is fixed here and varied by study.walks",
        ),
        ('[run]\naccount = "a"', "line 2: the runs of a study are simulations"),
        ("[run]\nseed = 3", "line 2: a study has many seeds; put seeds = ... in [study]"),
        ('[study]\ngraphs = ["ring"]\n[graph]\nfile = "a.txt"', "graph.file is fixed"),
        ("[study]\nbudgets = [{ epsilon = 1.0, delta = 1e-6 }]\n[run]\ndelta = 1e-5", "leave one out"),
        ("[study\nseeds = 2", "line 1: this is not TOML"),
        ("[resources]\ncpus = 0", "resources.cpus = 0; it must be"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path, text, said):
    file = tmp_path / "study.toml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_study(file)
    assert said in str(caught.value)
    assert str(file) in str(caught.value)


def test_the_digest_names_what_is_computed_and_nothing_else(small):
    def digest(**changes):
        tables = {name: dict(table) for name, table in SMALL.items()}
        for name, table in changes.items():
            tables[name] = {**tables.get(name, {}), **table}
        return Study.of(tables).digest

    assert digest(study={"name": "other"}) == digest(resources={"cpus": 2}) == small.digest
    others = [digest(study={"seeds": 5}), digest(study={"block": 4}), digest(resources={"shards": 2})]
    others += [digest(problem={"l2": 0.1}), digest(run={"activations": 6}), digest(study={"budgets": [4.0]})]
    assert len({small.digest, *others}) == 7


# Tasks


def test_a_task_gives_what_sweep_gives_bit_for_bit_and_solve_to_rounding(small, here):
    task, rows = tasks_of(small)[0], here[0]
    problem, graph = rd.logistic(rd.load_data("breast-cancer"), agents=4, l2=1e-2), rd.ring(4)
    options = {"walk": "cyclic", "activations": 5}
    runs = rd.sweep(problem, graph, task.seeds, [rd.Budget(4.0, 1e-5)], progress=False, **options)
    for name in ("epsilon_planned", "rho", "plf", "messages", "objective", "accuracy"):
        assert rows[name] == getattr(runs, name).tolist(), name
    for name in ("excess", "relative_error"):  # planned for accuracy: there is nothing to measure them against
        assert rows[name] == [None] * len(rows["seed"]) and np.isnan(getattr(runs, name)).all()
    for k, seed in enumerate(task.seeds):
        alone = rd.solve(problem, graph, budget=rd.Budget(4.0, 1e-5), seed=seed, progress=False, **options)
        np.testing.assert_allclose(runs.x[k], alone.x, rtol=0, atol=1e-13)
        assert rows["epsilon_planned"][k] == alone.epsilon_planned and rows["messages"][k] == alone.messages


def test_a_task_planned_for_the_loss_is_measured_against_the_minimiser():
    study = Study.of({**SMALL, "run": {**SMALL["run"], "objective": "loss"}})
    task = tasks_of(study)[0]
    problem, graph = rd.logistic(rd.load_data("breast-cancer"), agents=4, l2=1e-2), rd.ring(4)
    options = {"walk": "cyclic", "activations": 5, "objective": "loss"}
    runs = rd.sweep(problem, graph, task.seeds, [rd.Budget(4.0, 1e-5)], progress=False, **options)
    rows = run_task(task)
    for name in ("objective", "excess", "relative_error", "accuracy"):
        assert rows[name] == getattr(runs, name).tolist(), name


def test_a_run_without_privacy_claims_no_epsilon(here):
    rows = here[2]
    assert rows["status"] == ["finished"] * 2
    assert rows["epsilon_planned"] == rows["rho"] == rows["delta"] == [None] * 2


def test_shards_give_the_same_numbers_on_any_number_of_devices(small, here):
    task = dataclasses.replace(tasks_of(small)[0], seeds=(0, 1, 2, 3), shards=2)
    code = "import json, pickle, sys, jax; from relaydp.cluster.study_tasks import run_task;"
    code += "assert len(jax.devices()) == 2;"
    code += "print(json.dumps(run_task(pickle.load(sys.stdin.buffer))))"
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    environment = {**os.environ, "XLA_FLAGS": flags}
    found = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(task), env=environment, capture_output=True)
    there, mine = json.loads(found.stdout), run_task(task)
    assert mine["status"] == ["finished"] * 4
    for name in ("seed", "status", "objective", "accuracy", "model_sha256", "epsilon_planned", "messages"):
        assert there[name] == mine[name], name
    # each shard is the batch that it would be by itself
    assert mine["model_sha256"] == here[0]["model_sha256"] + here[1]["model_sha256"]


def test_a_task_that_cannot_be_done_is_rows_with_the_reason():
    study = Study.of({"study": {"data": ["breast-cancer"], "graphs": ["hypercube"], "agents": [5], "seeds": 3}})
    rows = run_task(tasks_of(study)[0])
    assert rows["status"] == ["failed"] * 3 and rows["seed"] == [0, 1, 2]
    assert rows["objective"] == [None] * 3 and "hypercube" in rows["error"][0]


@pytest.mark.parametrize(
    ("loss", "name"), [(lambda x, a, b: 0.0, "<lambda>"), (type("Odd", (), {"__call__": print})(), "Odd")]
)
def test_a_loss_that_cannot_travel_is_named(small, loss, name):
    with pytest.raises(InputError, match="cannot be pickled") as caught:
        run_study(small, loss=loss)
    assert name in str(caught.value)


# Sharing out


class Pretend:
    """Workers that answer at once; `breaks` says whose task is lost, and how often."""

    def __init__(self, workers, breaks=None, stop_after=None):
        self.free, self.breaks, self.stop_after = list(range(workers)), dict(breaks or {}), stop_after
        self.given, self.held = [], []

    def ready(self):
        return list(self.free)

    def give(self, worker, task):
        self.free.remove(worker)
        self.given.append((worker, task))
        self.held.append((worker, task))

    def wait(self, seconds):
        if self.stop_after is not None and len(self.given) > self.stop_after:
            raise KeyboardInterrupt
        worker, task = self.held.pop()
        self.free.append(worker)
        if self.breaks.get(task.id, 0) > 0:
            self.breaks[task.id] -= 1
            return [Done(worker, task, failed(task, "lost"), again=True)]
        return [Done(worker, task, failed(task, "") | {"status": ["finished"] * len(task.seeds)})]


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("times", [0, AGAIN, AGAIN + 1])
def test_every_task_is_kept_once_and_a_lost_one_is_tried_again(small, workers, times):
    tasks = tasks_of(dataclasses.replace(small, block=1))
    crew, kept, told = Pretend(workers, {tasks[3].id: times}), [], []
    run_tasks(
        crew, tasks, len(tasks), small.runs, lambda task, rows: kept.append((task.id, rows["status"][0])), told.append
    )
    assert sorted(name for name, _ in kept) == [task.id for task in tasks]
    assert [name for name, status in kept if status == "failed"] == ([tasks[3].id] if times > AGAIN else [])
    assert [pace.tasks for pace in told] == list(range(len(tasks) + 1))
    assert told[-1].runs == small.runs and told[-1].failed == (times > AGAIN)


def test_blocks_of_a_case_stay_with_the_worker_that_has_its_program(small):
    crew = Pretend(2)
    tasks = tasks_of(dataclasses.replace(small, block=1))
    run_tasks(crew, tasks, len(tasks), small.runs, lambda task, rows: None)
    moves = {worker: [task.case for by, task in crew.given if by == worker] for worker in (0, 1)}
    for cases in moves.values():
        assert len(cases) - len(list(itertools.groupby(cases))) >= len(cases) // 2


def test_an_interrupt_says_how_far_it_got(small):
    tasks, kept = tasks_of(small), []
    with pytest.raises(Interrupted) as caught:
        run_tasks(Pretend(1, stop_after=3), tasks, len(tasks), small.runs, lambda task, rows: kept.append(task))
    assert caught.value.pace.tasks == len(kept) == 3


# The table


def test_the_table_does_not_depend_on_the_order_in_which_tasks_finish(small, tmp_path):
    tasks = tasks_of(small)
    tables = []
    for name, order in (("a", tasks), ("b", [*reversed(tasks)])):
        folder = check_folder(tmp_path / name, small)
        folder.begin()
        for task in order:
            folder.keep(task, failed(task, f"reason of {task.id}"))
        tables.append(folder.merge(tasks))
    assert tables[0].equals(tables[1])
    assert tables[0]["task"].to_pylist() == sorted(tables[0]["task"].to_pylist())
    assert pq.read_table(tmp_path / "a" / "results.parquet").equals(tables[0])


def test_resume_does_what_is_missing_failed_or_damaged(small, tmp_path):
    study = dataclasses.replace(small, block=1)
    tasks = tasks_of(study)
    folder = check_folder(tmp_path / "out", study)
    folder.begin()
    good = {"status": ["finished"]}
    for task in tasks[:4]:
        folder.keep(task, failed(task, "") | good)
    folder.keep(tasks[4], failed(tasks[4], "no"))
    folder.part(tasks[3]).write_bytes(b"PAR1 cut short")
    again = check_folder(tmp_path / "out", study, resume=True)
    assert [again.is_done(task) for task in tasks] == [True] * 3 + [False] * 5


def test_folders_that_hold_something_else_are_left_alone(small, tmp_path):
    other = Study.of({**SMALL, "problem": {"agents": 2}})
    folder = tmp_path / "out"
    check_folder(folder, small).begin()
    for study, options, said in (
        (small, {}, "holds a study already"),
        (other, {"resume": True}, "asks for other runs"),
    ):
        with pytest.raises(InputError, match=said):
            check_folder(folder, study, **options)
    check_folder(folder, other, overwrite=True)
    about = json.loads((folder / "study.json").read_text())
    (folder / "study.json").write_text(json.dumps({**about, "versions": {**about["versions"], "jax": "0.1"}}))
    with pytest.raises(InputError, match=r"jax 0\.1 ->"):
        check_folder(folder, small, resume=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    for options in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(InputError, match="holds other files"):
            check_folder(tmp_path / "mine", small, **options)
    with pytest.raises(InputError, match="holds no study"):
        check_folder(tmp_path / "new", small, resume=True)


def test_resume_refuses_files_and_losses_that_have_changed(tmp_path):
    rows = "a,b,label\n" + "".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(40))
    (tmp_path / "own.csv").write_text(rows)
    (tmp_path / "study.toml").write_text('[study]\ndata = ["own.csv"]\nseeds = 2\n')
    study = read_study(tmp_path / "study.toml")
    own = own_loss(study_losses.moody, {"smoothness": 8.0})
    check_folder(tmp_path / "out", study, own).begin()
    check_folder(tmp_path / "out", study, own, resume=True)
    with pytest.raises(InputError, match="the loss is not the one"):
        check_folder(tmp_path / "out", study, resume=True)
    (tmp_path / "own.csv").write_text(rows + "1,1,1\n")
    with pytest.raises(InputError, match="own.csv is not the file"):
        check_folder(tmp_path / "out", study, own, resume=True)


# Processes


def test_processes_give_the_numbers_of_this_process(small, here, table):
    parts = [make_part(small, task, rows) for task, rows in zip(tasks_of(small), here, strict=True)]
    assert table.num_rows == small.runs
    exact = [
        "task",
        "seed",
        "status",
        "objective",
        "accuracy",
        "epsilon_planned",
        "rho",
        "plf",
        "messages",
        "model_sha256",
    ]
    for name in exact:
        assert table[name].to_pylist() == [value for part in parts for value in part[name].to_pylist()], name
    # x* is found by a threaded solver, so what is measured against it agrees to rounding
    wanted, found = [value for part in parts for value in part["excess"].to_pylist()], table["excess"].to_pylist()
    assert [value is None for value in found] == [value is None for value in wanted] and any(wanted)
    pairs = [(one, other) for one, other in zip(found, wanted, strict=True) if one is not None]
    np.testing.assert_allclose(*zip(*pairs, strict=True), rtol=1e-9, atol=1e-14)


def test_whatever_happens_to_a_worker_costs_its_task_alone(tmp_path):
    rng = np.random.default_rng(0)
    sources = []
    for features in (
        study_losses.KILLED,
        study_losses.STARVED,
        study_losses.HUNGRY,
        study_losses.WRONG,
        study_losses.FINE,
    ):
        rows = rng.uniform(0, 1, (24, features + 1))
        names = [*(f"c{k}" for k in range(features)), "label"]
        path = tmp_path / f"{features}.csv"
        np.savetxt(path, rows, delimiter=",", header=",".join(names), comments="")
        sources.append(str(path))
    study = Study.of(
        {
            "study": {"data": sources, "seeds": 2},
            "problem": {"agents": 2, "ranges": [0, 1]},
            "run": {"activations": 3, "steps": "tuned"},
        }
    )
    options = {"smoothness": 8.0}
    table = run_study(study, jobs=1, folder=tmp_path / "out", loss=study_losses.moody, loss_options=options)
    errors = table["error"].to_pylist()[::2]
    assert table["status"].to_pylist() == ["failed"] * 8 + ["finished"] * 2
    assert "SIGKILL" in errors[0] and "out of memory" in errors[0]
    assert errors[1].startswith("out of memory") and errors[2].startswith("out of memory")
    assert errors[3] == "ZeroDivisionError: a mistake of the user's"
    assert errors[4] is None
    # only what failed is tried again
    parts = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out" / "parts").iterdir()}
    own = own_loss(study_losses.moody, options)
    assert [check_folder(tmp_path / "out", study, own, resume=True).is_done(task) for task in tasks_of(study, own)] == [
        *[False] * 4,
        True,
    ]
    assert len(parts) == 5


# The command


@pytest.fixture
def command():
    """`relaydp sweep` in a session of its own; whatever is left of it at the end is ended."""
    started = []

    def start(*words, app=APP):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
        started.append(subprocess.Popen([sys.executable, "-c", app, "sweep", *map(str, words)], **options))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.communicate()


def in_session(leader):
    """Processes of a session that are still there: fields 1, 3 and 6 of /proc/PID/stat."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            name, rest = (place / "stat").read_text().rsplit(")", 1)
        except OSError:
            continue
        state, session = rest.split()[0], int(rest.split()[3])
        if session == leader and state != "Z":
            found.append(int(name.split()[0]))
    return found


def test_an_interrupted_study_keeps_what_is_done_leaves_nobody_behind_and_resumes(tmp_path, command, table):
    file, out = tmp_path / "study.toml", tmp_path / "out"
    file.write_text(TEXT)
    first = command(file, "--out", out, "--jobs", 1, app=HELD + APP)
    deadline = time.monotonic() + 300
    while not list(out.glob("parts/*.parquet")) and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(first.pid, signal.SIGINT)  # what Ctrl-C does: everybody in the foreground hears it
    said = first.communicate(timeout=300)[1]
    assert first.returncode == 130, said
    assert "--resume" in said and "Traceback" not in said
    assert in_session(first.pid) == []
    kept = pq.read_table(out / "results.parquet")
    assert kept.num_rows == 2
    second = command(file, "--out", out, "--jobs", 1, "--resume", "--json")
    printed, said = second.communicate(timeout=300)
    assert second.returncode == 0, said
    assert json.loads(printed)["finished"] == 8
    assert numbers(pq.read_table(out / "results.parquet")).equals(numbers(table))


def test_failures_are_the_exit_code_and_the_way_to_try_again(tmp_path, command):
    file = tmp_path / "study.toml"
    file.write_text(
        '[study]\ndata = ["breast-cancer"]\nseeds = 2\n[graph]\nkind = "hypercube"\n[problem]\nagents = 5\n'
    )
    run = command(file, "--out", tmp_path / "out")
    said = run.communicate(timeout=300)[1]
    assert run.returncode == 1
    assert "2 of 2 runs failed" in said and "hypercube" in said and "--resume" in said


def test_the_command_says_what_to_put_right_and_makes_nothing(tmp_path):
    import typer
    from typer.testing import CliRunner

    from relaydp.cli import main, sweep

    app = typer.Typer(cls=main.Front)
    app.callback()(lambda: None)
    app.command("sweep")(sweep.sweep)
    file, out = tmp_path / "study.toml", tmp_path / "out"
    file.write_text(TEXT)
    for words, said in (
        (["--on", "mars"], "needed local, ray or ray:ADDRESS"),
        (["--jobs", "0"], "needed 1 or more"),
        (["--on", "local:head"], "needed local, ray or ray:ADDRESS"),
        (["--resume", "--overwrite"], "exclude each other"),
        (["--resume"], "holds no study"),
    ):
        found = CliRunner().invoke(app, ["sweep", str(file), "--out", str(out), *words])
        assert found.exit_code == 2 and said in found.output, found.output
    found = CliRunner().invoke(app, ["sweep", str(file), "--dry-run", "--json"])
    plan = json.loads(found.output)
    assert (plan["cases"], plan["runs"], plan["tasks"]) == (2, 8, 4)
    assert not out.exists()
