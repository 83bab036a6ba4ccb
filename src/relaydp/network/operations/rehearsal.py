"""A whole consortium on one machine: real agent processes and certificates, on the loopback interface instead of a
network.

For `relaydp consortium demo`, and for parties that want to rehearse before they connect. With a seed the result is
compared with the simulator's, bit for bit.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from relaydp.algorithm import ALGORITHMS
from relaydp.data import Records, load_data
from relaydp.engine.loop import run as simulate
from relaydp.errors import InputError
from relaydp.graph import Route
from relaydp.network.consortium.file import (
    Consortium,
    draw_up,
    make_consortium,
    plan_of,
    read_consortium,
    read_own_records,
    whole_problem,
    write_consortium,
)
from relaydp.network.consortium.identity import CERTIFICATE, keygen
from relaydp.network.messages.next_hop import route_of
from relaydp.network.operations.paths import RESULT, RUNNING, journal_folder
from relaydp.oracle.randomness import Simulated

NAMES = ("aberdeen", "bergen", "cuxhaven", "dover", "esbjerg", "grimsby", "hull", "ijmuiden")
RECORDS = 1500
POLL_SECONDS = 0.4
# Below the ports that the system assigns to outgoing connections: no other program may get an agent's port while it is
# down.
PORTS = range(15_000, 32_000)


@dataclass(frozen=True)
class Stage:
    """Everything a rehearsal needs on disk; `homes` and `tables` have one entry per party, in the file's order."""

    file: Path
    homes: tuple[Path, ...]
    tables: tuple[Path, ...]


def free_ports(count: int) -> list[int]:
    """Free ports, at random so that two rehearsals at a time do not collide."""
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
        found += [port] * (port not in found)
    return found


def set_stage(folder: Path, algorithm: str, epsilon: float, activations: int) -> Stage:
    """Eight parties on a ring with the embedded Fashion-MNIST records: keys, files of records, an agreed plan."""
    data = load_data("fashion-small")
    parties, homes, tables = [], [], []
    for k, (name, port) in enumerate(zip(NAMES, free_ports(len(NAMES)), strict=True)):
        home, table, rows = folder / name, folder / f"{name}.npz", slice(k * RECORDS, (k + 1) * RECORDS)
        pinned = keygen(home, name).fingerprint
        np.savez(table, X=data.X[rows], y=data.y[rows])
        pem = (home / CERTIFICATE).read_text()
        address = f"127.0.0.1:{port}"
        parties.append(dict(name=name, address=address, records=RECORDS, fingerprint=pinned, certificate=pem))
        homes.append(home)
        tables.append(table)
    run: dict[str, Any] = {"algorithm": algorithm, "start": NAMES[0], "patience": 50 * len(NAMES)}
    if ALGORITHMS[algorithm].kind == "relay":
        run["walk"] = "cyclic"
    ring = [[name, NAMES[k - 1]] for k, name in enumerate(NAMES)]
    agreed = make_consortium(
        {
            "version": 1,
            "name": "rehearsal",
            # every bound is public: pixels are in 0..255, and a record with norm above 1 is scaled to 1
            "problem": {
                "loss": "logistic",
                "classes": np.unique(data.y).tolist(),
                "features": data.features,
                "l2": 3e-4,
                "ranges": [0, 255],
                "record_norm": 1.0,
            },
            "privacy": {"epsilon": epsilon, "delta": 1e-5},
            "run": run,
            "network": {"edges": ring},
            "parties": parties,
        }
    )
    file = folder / "consortium.toml"
    write_consortium(file, draw_up(agreed, activations=activations))
    return Stage(file, tuple(homes), tuple(tables))


def rehearse(stage: Stage, seed: int | None, show: Callable[[list[dict[str, Any]]], None], seconds: float) -> None:
    """Run all agents to their end, showing their statuses as they come. Raises if one fails or time runs out."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    agents: list[subprocess.Popen[bytes]] = []
    try:
        for home, table in zip(stage.homes, stage.tables, strict=True):
            command = [sys.executable, "-m", "relaydp", "agent", "serve", str(stage.file), "--home", str(home)]
            command += ["--data", str(table), "--max-epsilon", "1e6", "--linger", "0.5"]
            command += [] if seed is None else ["--development-seed", str(seed)]
            with (home / "log.jsonl").open("wb") as log:
                agents.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, env=environment))
        folders = [journal_folder(home, read_consortium(stage.file).identity) for home in stage.homes]
        until = time.monotonic() + seconds
        while any(agent.poll() is None for agent in agents):
            failed = [k for k, agent in enumerate(agents) if agent.poll() not in (None, 0)]
            if failed or time.monotonic() > until:
                where = stage.homes[failed[0] if failed else 0] / "log.jsonl"
                what = "an agent stopped" if failed else f"the rehearsal did not end within {seconds:g} s"
                raise InputError(f"{what}; its log ends: {_last_line(where)} ({where})")
            show([_status(folder) for folder in folders])
            time.sleep(POLL_SECONDS)
    finally:
        _stop(agents)


def _stop(agents: list[subprocess.Popen[bytes]]) -> None:
    """Ask those that still run to end, and kill what does not."""
    for agent in agents:
        if agent.poll() is None:
            agent.send_signal(signal.SIGTERM)
    for agent in agents:
        try:
            agent.wait(10)
        except subprocess.TimeoutExpired:
            agent.kill()
            agent.wait()


def _status(folder: Path) -> dict[str, Any]:
    """A running agent's status, or an empty one."""
    try:
        port = int(json.loads((folder / RUNNING).read_text())["status_port"])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status.json", timeout=2) as answer:
            return json.load(answer)
    except (OSError, ValueError, KeyError):  # not yet written, or already removed
        done = folder / "result" / "summary.json"
        return {"state": "finished"} if done.is_file() else {}


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines()
    return lines[-1][:300] if lines else "(empty)"


def simulated(consortium: Consortium, everyone: list[Records], seed: int, route: Route | None = None) -> np.ndarray:
    """The simulator's model for the same agreement, the same seeded noise and, if given, the route that was taken."""
    plan = plan_of(consortium)
    if route is not None:
        plan = replace(plan, route=route)
    problem = whole_problem(consortium, everyone)
    return simulate(problem, consortium.graph, plan, np.zeros(problem.dim), Simulated(seed), keep=False).x


def compare(stage: Stage, seed: int, hops: list[tuple[int, int, bool]] | None = None) -> bool:
    """Whether every party's model is the simulator's, bit for bit."""
    consortium = read_consortium(stage.file)
    everyone = [read_own_records(consortium, table) for table in stage.tables]
    route = None if hops is None else Route(*route_of(hops, len(stage.homes)))
    expected = simulated(consortium, everyone, seed, route)
    return all(np.array_equal(x, expected) for x in models(stage))


def results(stage: Stage) -> list[Path]:
    """The result folder of each party."""
    identity = read_consortium(stage.file).identity
    return [journal_folder(home, identity) / RESULT for home in stage.homes]


def models(stage: Stage) -> list[np.ndarray]:
    """Each party's model, read from its own disk."""
    return [np.load(folder / "model.npz")["x"] for folder in results(stage)]
