"""Studies on a real Ray cluster of several node processes, on loopback: the numbers of local processes."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import study_losses

from relaydp.cluster import Study, run_study
from relaydp.cluster.connection import PATIENCE, connect
from relaydp.errors import InputError

if importlib.util.find_spec("ray") is None:
    pytest.skip("Ray is not installed", allow_module_level=True)
# Ray starts its processes with subprocess, which JAX warns of wherever it has been imported; and it leaves sockets,
# files and processes to be closed when the interpreter gets to them.
pytestmark = [
    pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

TABLES = {
    "study": {"data": ["breast-cancer"], "budgets": [4.0, "none"], "seeds": 4, "block": 1},
    "problem": {"agents": 4},
    "run": {"activations": 5, "walk": "cyclic"},
}
COMMON = {"object_store_memory": 100 * 2**20, "include_dashboard": False, "node_ip_address": "127.0.0.1"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A head without CPUs and two nodes with one each: three raylets, as three machines would have."""
    before = dict(os.environ)
    os.environ["RELAYDP_COMPILED"] = str(tmp_path_factory.mktemp("compiled"))
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **COMMON})
    for _ in range(2):
        made.add_node(num_cpus=1, **COMMON)
    yield made
    made.shutdown()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def study():
    return Study.of(TABLES)


@pytest.fixture(scope="module")
def local(cluster, study):
    """After the cluster's, so that both share what they compile."""
    return run_study(study, on="local", jobs=1).drop(["seconds", "host"])


@pytest.mark.shipped
def test_a_cluster_gives_the_numbers_of_local_processes(cluster, study, local):
    table = run_study(study, on="ray", address=cluster.address)
    assert table["status"].to_pylist() == ["finished"] * study.runs
    assert table.drop(["seconds", "host"]).equals(local)


def workers():
    """Processes of this test's own cluster that run our actors: Ray writes ray::Hand over their command lines."""
    parents, words = {}, {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(place.name)] = int((place / "stat").read_text().rsplit(")", 1)[1].split()[1])
            words[int(place.name)] = (place / "cmdline").read_bytes()
        except OSError:
            continue

    def ours(pid):
        while pid in parents and pid != os.getpid():
            pid = parents[pid]
        return pid == os.getpid()

    return [pid for pid in words if words[pid].startswith(b"ray::Hand") and ours(pid)]


@pytest.mark.shipped
def test_a_worker_that_is_killed_and_a_node_that_is_lost_cost_no_run(cluster, study, local):
    """One worker by kill -9 in the middle of a task, then the whole node of another."""
    doomed = cluster.add_node(num_cpus=1, **COMMON)
    hurt = []

    def harm(pace):
        if pace.tasks == 1 and not hurt:
            busy = workers()
            assert busy
            hurt.append(busy[0])
            os.kill(busy[0], signal.SIGKILL)
        if pace.tasks == 3 and len(hurt) == 1:
            hurt.append("node")
            threading.Thread(target=cluster.remove_node, args=(doomed, False)).start()

    table = run_study(study, on="ray", address=cluster.address, progress=harm)
    assert len(hurt) == 2
    assert table["status"].to_pylist() == ["finished"] * study.runs, table["error"].to_pylist()
    assert table.drop(["seconds", "host"]).equals(local)


@pytest.mark.shipped
def test_a_task_that_kills_its_worker_is_failed_rows_and_the_study_goes_on(cluster, tmp_path):
    sources = []
    for features in (study_losses.KILLED, study_losses.FINE):
        path = tmp_path / f"{features}.csv"
        header = ",".join([*(f"c{k}" for k in range(features)), "label"])
        rows = [",".join(str((7 * row + 3 * k) % 10 / 10) for k in range(features + 1)) for row in range(24)]
        path.write_text("\n".join([header, *rows]) + "\n")
        sources.append(str(path))
    study = Study.of(
        {
            "study": {"data": sources, "seeds": 2},
            "problem": {"agents": 2, "ranges": [0, 1]},
            "run": {"activations": 3},
        }
    )
    options = {"loss": study_losses.moody, "loss_options": {"smoothness": 8.0}}
    table = run_study(study, on="ray", address=cluster.address, jobs=1, **options)
    assert table["status"].to_pylist() == ["failed"] * 2 + ["finished"] * 2
    assert "the worker was lost" in table["error"].to_pylist()[0]


@pytest.mark.parametrize("kind", ["closed", "silent", "web", "nowhere", "words"])
def test_a_bad_address_is_named_within_seconds(kind, study, monkeypatch):
    assert 2 * PATIENCE < 15  # to connect, and to be answered
    monkeypatch.setattr("relaydp.cluster.connection.PATIENCE", 0.5)
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    if kind == "closed":
        server.close()
    if kind == "web":

        def answer():
            with server.accept()[0] as line:
                line.recv(100)
                line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
    address = {"nowhere": "no-such-host.invalid:6379", "words": "the cluster"}.get(kind, f"127.0.0.1:{port}")
    with server, pytest.raises(InputError) as caught:
        run_study(study, on="ray", address=address)
    assert repr(address) in str(caught.value) and "ray status" in str(caught.value)


@pytest.mark.shipped
def test_other_versions_on_the_cluster_are_refused(cluster, monkeypatch):
    monkeypatch.setattr("relaydp.cluster.connection.__version__", "9.9")
    with pytest.raises(InputError, match=r"other versions.*this process has relaydp 9\.9"):
        with connect(cluster.address):
            pass


def test_without_the_extra_it_says_what_to_install():
    code = "import sys; sys.modules['ray'] = None; from relaydp.cluster.connection import connect\nwith connect(): pass"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 1
    assert "InputError: Ray cannot be imported" in found.stderr and 'pip install "relaydp[cluster]"' in found.stderr


@pytest.mark.shipped
def test_a_connection_that_is_there_is_used_and_left_alone(cluster):
    import ray

    with connect(cluster.address) as outer:
        with connect() as inner:
            assert inner is outer
        assert ray.is_initialized()
    assert not ray.is_initialized()
