"""Time per iteration beside decent-bench, in one run: NIDS, EXTRA and ADMM on 20 agents x 50 records x 10 features.

    python benchmarks/peers.py            makes an environment for decent-bench under .peers if there is none

Both sides find the same optimum from the same records, graph and steps, and keep the history of every iteration. Ours
is timed after compilation (a second run); the first run's time is printed beside it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

import relaydp as rd

ROOT = Path(__file__).parent.parent
HOME = ROOT / ".peers" / "decent-bench"
AGENTS, RECORDS, FEATURES, ITERATIONS = 20, 50, 10, 400
STEPS = {"nids": {"stepsize": 0.2, "mixing": 1.0}, "pg-extra": {"stepsize": 0.2}, "d-admm": {"penalty": 0.5}}


def find_python() -> str | None:
    """A Python 3.13, which decent-bench needs."""
    found = [shutil.which("python3.13"), *map(str, Path.home().glob(".pyenv/versions/3.13*/bin/python3.13"))]
    for path in filter(None, found):
        if subprocess.run([path, "--version"], capture_output=True).returncode == 0:
            return path
    return None


def peer_python() -> Path | None:
    """The peer's own environment, made if need be; None where there is no Python 3.13 or no registry."""
    given = os.environ.get("RELAYDP_PEER_PYTHON")
    if given:
        return Path(given)
    python = HOME / "bin" / "python"
    if not python.exists():
        base = find_python()
        if base is None:
            return None
        subprocess.run([base, "-m", "venv", HOME], check=True)
        if subprocess.run([python, "-m", "pip", "install", "-q", "decent-bench==0.3.0"]).returncode:
            shutil.rmtree(HOME)
            return None
    return python


def problem_arrays() -> tuple[np.ndarray, np.ndarray, list[tuple[int, int]]]:
    draw = np.random.default_rng(0)
    X = draw.normal(size=(AGENTS, RECORDS, FEATURES))
    y = X @ draw.normal(size=FEATURES) + 0.1 * draw.normal(size=(AGENTS, RECORDS))
    edges = [(i, (i + 1) % AGENTS) for i in range(AGENTS)] + [(i, (i + 5) % AGENTS) for i in range(0, AGENTS, 2)]
    return X, y, edges


def ours() -> dict[str, dict]:
    X, y, edges = problem_arrays()
    problem = rd.least_squares(rd.Records(X.reshape(-1, FEATURES), y.ravel()), agents=AGENTS)
    graph = rd.from_edges(edges)
    found = {}
    for name, steps in STEPS.items():
        options = {"activations": ITERATIONS, "steps": steps, "progress": False, "reference": False, "trace": False}
        times = []
        for _ in range(3):
            began = time.perf_counter()
            result = rd.solve(problem, graph, name, **options)
            times.append(time.perf_counter() - began)
        found[name] = {
            "x": result.x.tolist(),
            "seconds_an_iteration": min(times[1:]) / ITERATIONS,
            "first_run_seconds": times[0],
        }
    return found


def theirs(python: Path) -> dict[str, dict]:
    X, y, edges = problem_arrays()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "problem.npz"
        np.savez(file, X=X, y=y, edges=edges, iterations=ITERATIONS, stepsize=0.2, penalty=1.0)
        script = ROOT / "benchmarks" / "decent_bench_run.py"
        done = subprocess.run([python, script, file], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def optimum() -> np.ndarray:
    X, y, _ = problem_arrays()
    return np.linalg.lstsq(X.reshape(-1, FEATURES), y.ravel(), rcond=None)[0]


def main() -> None:
    python = peer_python()
    if python is None:
        raise SystemExit("decent-bench needs Python 3.13 and a package registry; neither is a must for relaydp.")
    mine, peer, best = ours(), theirs(python), optimum()
    print("| algorithm | decent-bench, ms an iteration | relaydp, ms an iteration | ratio | distance of the optima |")
    print("|---|---|---|---|---|")
    for name in STEPS:
        a, b = peer[name]["seconds_an_iteration"], mine[name]["seconds_an_iteration"]
        apart = max(np.abs(np.array(found[name]["x"]) - best).max() for found in (mine, peer))
        print(f"| {name} | {1e3 * a:.3f} | {1e3 * b:.4f} | {a / b:.0f} | {apart:.0e} |")


if __name__ == "__main__":
    main()
