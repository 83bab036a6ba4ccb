"""Agents as actors on a real Ray cluster of three node processes: the simulator's model, whoever dies on the way."""

import os
import signal
import threading
from importlib.util import find_spec

import numpy as np
import pytest

import relaydp as rd
from relaydp.errors import InputError

if find_spec("ray") is None:
    pytest.skip("Ray is not installed", allow_module_level=True)

import ray  # noqa: E402

from relaydp.cluster import (  # noqa: E402
    agent_actors,  # noqa: E402
    solve_apart,
    solve_on_ray,
)

# Ray starts its processes with subprocess, which JAX warns of wherever it has been imported; and it leaves sockets and
# processes to be closed when the interpreter gets to them.
pytestmark = [
    pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.*"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray.*"),
]
AGENTS, FEATURES = 4, 12
NODE = {"include_dashboard": False, "object_store_memory": 80 * 2**20, "node_ip_address": "127.0.0.1"}
QUICK = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_failure_threshold": 4}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A head without agents and two nodes with a CPU each; the nodes are called "one" and "two"."""
    with pytest.MonkeyPatch.context() as patch:
        # processes compile the same programs
        patch.setenv("RELAYDP_COMPILED", str(tmp_path_factory.mktemp("compiled")))
        from ray.cluster_utils import Cluster

        made = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0, "_system_config": QUICK})
        try:
            made.nodes = {name: made.add_node(**NODE, num_cpus=1, resources={name: 100}) for name in ("one", "two")}
            ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
            made.wait_for_nodes()
            yield made
        finally:
            ray.shutdown()
            made.shutdown()


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Four files, and everybody's records in one problem."""
    folder, draw = tmp_path_factory.mktemp("parts"), np.random.default_rng(5)
    X = draw.normal(size=(AGENTS * 30, FEATURES))
    y = np.where(X @ draw.normal(size=FEATURES) > 0, 1, 0)
    paths = [folder / f"{i}.npz" for i in range(AGENTS)]
    for path, rows in zip(paths, np.split(np.arange(len(X)), AGENTS), strict=True):
        np.savez(path, X=X[rows], y=y[rows])
    return paths, rd.logistic(rd.Records(X, y), agents=AGENTS, **PROBLEM, classes=[0, 1])


PROBLEM = {"l2": 0.05, "l1": 0.01, "record_norm": 2.0}
FILES = {"features": FEATURES, "classes": [0, 1], "patience": 600.0, **PROBLEM}
BUDGET = rd.Budget(2.0, 1e-5)
STEPS = {"alpha": 1.0, "beta": 0.05, "gamma": 1.0}
BARE = {"trace": False, "reference": False, "transcript": False}


def processes_of_agents() -> dict[int, int]:
    """Processes that run an agent of ours -> the raylet that started them."""
    found = {}
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and open(f"/proc/{entry}/cmdline").read().startswith("ray::Agent"):
                found[int(entry)] = int(open(f"/proc/{entry}/stat").read().rsplit(") ", 1)[1].split()[1])
        except OSError:  # it has ended meanwhile
            continue
    return found


def same(got, wanted) -> bool:
    return got.x.tobytes() == wanted.x.tobytes() and got.ledger == wanted.ledger and got.hops == wanted.hops


@pytest.mark.shipped
def test_an_actor_and_a_raylet_die_and_the_model_is_the_simulators(cluster, parts, tmp_path):
    paths, whole = parts
    how = {"budget": BUDGET, "walk": "cyclic", "activations": 48, "steps": STEPS, "seed": 3}
    wanted = rd.solve(whole, rd.ring(AGENTS), **how, **BARE)
    killed, nodes = [], cluster.nodes

    def strike(done: int, total: int) -> None:
        if done >= 40 and not killed:
            raylet = nodes["one"].all_processes["raylet"][0].process.pid
            victim = next(pid for pid, parent in processes_of_agents().items() if parent == raylet)
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)
        if done >= 110 and len(killed) == 1:
            killed.append("raylet")
            cluster.remove_node(nodes["two"], allow_graceful=False)

    try:
        got = solve_apart(paths, rd.ring(AGENTS), **FILES, **how, checkpoint=tmp_path, progress=strike)
    finally:
        if len(killed) == 2:
            nodes["two"] = cluster.add_node(**NODE, num_cpus=1, resources={"two": 100})
    assert len(killed) == 2 and wanted.status == got.status == "finished"
    assert len(got.ledger) == 192 and same(got, wanted)
    assert got.epsilon_planned == wanted.epsilon_planned <= BUDGET.epsilon * (1 + 1e-9) and got.simulation


@pytest.mark.shipped
def test_rounds_over_files_and_objects_placed_by_hand(cluster, parts):
    paths, whole = parts
    few = rd.logistic(rd.Records(whole.data.X[:90], whole.data.y[:90]), agents=3, **PROBLEM, classes=[0, 1])
    how = {"algorithm": "nids", "budget": BUDGET, "activations": 10, "steps": "paper", "seed": 2}

    @ray.remote(num_cpus=0, resources={"one": 1})
    def read_there() -> tuple[np.ndarray, np.ndarray]:
        with np.load(paths[1]) as kept:
            return kept["X"], kept["y"]

    mixed = [paths[0], read_there.remote(), paths[2]]
    placement = {"north": {"resources": {"two": 1}}, 1: {"resources": {"one": 1}}}
    names = ["north", "south", "east"]
    got = solve_apart(mixed, rd.path(3), **FILES, **how, names=names, placement=placement, progress=False)
    assert same(got, rd.solve(few, rd.path(3), **how, **BARE))


@pytest.mark.shipped
def test_a_run_that_fits_one_node_is_one_task_with_the_same_result(cluster, parts):
    _, whole = parts
    how = {"budget": BUDGET, "walk": "cyclic", "activations": 6, "steps": STEPS, "seed": 0}
    wanted, got = rd.solve(whole, rd.ring(AGENTS), **how), solve_on_ray(whole, rd.ring(AGENTS), **how)
    assert same(got, wanted) and got.config == wanted.config and got.guarantee == wanted.guarantee
    assert got.trace.objective.tobytes() == wanted.trace.objective.tobytes()
    with pytest.raises(InputError, match="unknown walk 'sideways'"):
        solve_on_ray(whole, rd.ring(AGENTS), walk="sideways")


def only_here(x, a, b):
    """A loss that travels by the name of this module, which no node has."""


@pytest.mark.shipped
def test_what_goes_wrong_is_said_with_agent_and_path(cluster, parts, monkeypatch):
    paths, lock = parts[0], threading.Lock()
    pair, graph = [str(paths[0]), str(paths[1])], rd.path(2)

    def locked(x, a, b):
        with lock:
            return (x @ a - b) ** 2

    def deadly(x, a, b):  # its process is killed, as one that takes too much memory is
        os.kill(os.getpid(), signal.SIGKILL)

    own = {"features": FEATURES, "smoothness": 8.0, "clip": 1.0, "record_norm": 2.0, "activations": 3, "steps": "paper"}
    monkeypatch.setattr(agent_actors, "RETRIES", 1)
    with pytest.raises(InputError, match="the loss '.*locked' cannot be sent to the agents"):
        solve_apart(pair, graph, loss=locked, **own, progress=False)
    with pytest.raises(InputError, match=r"process of agent 0 \(.*0.npz\) died 2 times in one call \(act\).*memory"):
        solve_apart(pair, graph, loss=deadly, **own, patience=600.0, progress=False)
    with pytest.raises(InputError, match="agent [01] .* could not be started on its node .*No module named"):
        solve_apart(pair, graph, loss=only_here, **own, patience=600.0, progress=False)
    gone = [pair[0], "/nowhere/1.npz"]
    with pytest.raises(InputError, match=r"agent 1 \(/nowhere/1.npz\) on .*: /nowhere/1.npz does not exist"):
        solve_apart(gone, graph, **FILES, progress=False)
    nowhere = {0: {"resources": {"nowhere": 1}}}
    with pytest.raises(InputError, match=r"agent 0 \(.*0.npz\) has not answered for 4 s \(about\).*ray status"):
        solve_apart(pair, graph, **(FILES | {"patience": 4}), placement=nowhere, progress=False)


@pytest.mark.shipped
def test_the_command_runs_apart_or_in_one_task_as_the_data_is(cluster, tmp_path):
    from typer.testing import CliRunner

    from relaydp.cli.main import app

    draw = np.random.default_rng(8)
    X = draw.uniform(size=(60, 2)).round(3)
    y = (X.sum(axis=1) > 1).astype(int)
    for name, rows in (("a", slice(0, 30)), ("b", slice(30, 60)), ("whole", slice(0, 60))):
        lines = [f"{a},{b},{label}" for (a, b), label in zip(X[rows].tolist(), y[rows].tolist(), strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,dose,ill", *lines]) + "\n")
    common = "--label ill --ranges 0,1 --graph path --walk tour --epsilon 2 --activations 6 --seed 0".split()
    file = tmp_path / "apart.toml"
    file.write_text('[apart]\ncolumns = ["age", "dose"]\ncheckpoint = "state"\n')
    names = [str(file), "--classes", "0,1"]
    recal = ["--algorithm", "recal"]  # what one process per agent runs where nothing is said
    ways = {
        "local": [*recal, "--data", str(tmp_path / "whole.csv"), "--agents", "30,30"],
        "one": [*recal, "--data", str(tmp_path / "whole.csv"), "--agents", "30,30", "--on", "ray"],
        "apart": ["--data", str(tmp_path / "[ab].csv"), "--on", "ray", *names],
    }
    models = {}
    for way, flags in ways.items():
        done = CliRunner().invoke(app, ["run", *common, *flags, "--out", str(tmp_path / way), "--json"])
        assert done.exit_code == 0, done.output
        models[way] = rd.load_result(tmp_path / way).x.tobytes()
    assert len(set(models.values())) == 1 and any((tmp_path / "state").iterdir())
    bare = CliRunner().invoke(app, ["run", *common[:-2], *ways["apart"]])
    assert bare.exit_code == 2 and "--seed" in bare.output and "consortium" in bare.output
    lost = CliRunner().invoke(app, ["run", *common, *ways["local"], *names])
    assert lost.exit_code == 2 and "--on ray" in lost.output
