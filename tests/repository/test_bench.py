"""The benchmark's machinery on its smallest cases; nothing here asserts a time."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.shipped  # a benchmark measures what users have

BENCH = Path(__file__).parents[2] / "benchmarks" / "bench.py"
sys.path.insert(0, str(BENCH.parent))


def bench(*arguments):
    return subprocess.run([sys.executable, BENCH, *map(str, arguments)], capture_output=True, text=True)


@pytest.fixture
def here(monkeypatch, capsys):
    """The same in this process: the exit code, and what was printed. For what measures nothing."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["bench.py", *map(str, arguments)])
        try:
            code = importlib.import_module("bench").main()
        except SystemExit as stop:
            code = stop.code
        return code, capsys.readouterr().out

    return call


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench")
    done = bench("--quick", "--only", "network/ring-100", "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_a_case_leaves_both_files_with_the_machine_they_were_made_on(folder):
    report = json.loads((folder / "bench.json").read_text())
    assert {"cpu", "cores", "memory_gb", "python", "jax", "numpy", "blas", "device", "commit"} <= report[
        "machine"
    ].keys()
    (case,) = report["cases"]
    assert case["case"] == "network/ring-100" and case["peak_mb"] > 0
    (row,) = case["figures"]
    assert row["ratio"] == pytest.approx(row["ours"] / row["beside"])
    text = (folder / "bench.md").read_text()
    assert "## Large networks" in text and row["figure"] in text


def test_what_was_measured_is_not_measured_again_unless_asked(folder, here):
    file = folder / "cases" / "network--ring-100.json"
    before = file.read_bytes()
    assert "measured before" in here("--quick", "--only", "network/ring-100", "--out", folder)[1]
    assert file.read_bytes() == before
    held = json.loads(before)
    file.write_text(json.dumps({**held, "failed": "as if"}))
    assert "measured before" not in bench("--quick", "--only", "network/ring-100", "--out", folder).stdout


def test_a_case_that_cannot_be_measured_here_says_why(tmp_path):
    done = bench("--quick", "--only", "gpu/*", "--out", tmp_path)
    if "no accelerator" in done.stdout:
        assert done.returncode == 0
        assert "gpu/cifar10: skipped: no accelerator" in (tmp_path / "bench.md").read_text()


def test_every_algorithm_and_data_set_has_a_case(here):
    listed = here("--list")[1].split()
    import relaydp as rd

    assert {f"algorithm/{name}-{method}" for name in ("ijcnn1", "cifar10") for method in rd.algorithms()} <= set(listed)
    assert len(here("--list", "--quick")[1].split()) < len(listed)
    assert here("--only", "nothing/*")[0] == 2


@pytest.mark.parametrize("loss", ["logistic", "least_squares"])
def test_the_numpy_loop_is_the_same_algorithm(loss):
    import cases

    import relaydp as rd

    draw = np.random.default_rng(0)
    X = draw.normal(size=(80, 5))
    problem = getattr(rd, loss)(rd.Records(X, np.sign(X[:, 0])), agents=8, l2=cases.L2)
    plan = cases.make_plan(problem, rd.ring(8), 25)
    ours = cases.runner(problem, rd.ring(8), plan)().x
    assert cases.numpy_recal(*cases.records_of(problem), loss, plan.steps, 25) == pytest.approx(ours, abs=1e-10)


def test_records_come_from_a_folder_where_there_are_no_downloads(tmp_path):
    import cases

    X = np.arange(24, dtype=np.uint8).reshape(6, 4)
    np.savez(tmp_path / "tiny.npz", X=X, y=np.array([-1, 1] * 3), X_test=X[:2], y_test=np.array([-1, 1]))
    data = cases.load("tiny", cases.Options(True, False, str(tmp_path)))
    assert len(data) == 6 and data.ranges == (0, 255) and len(data.test) == 2
