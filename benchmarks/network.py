"""What a hop over the network costs, and an agent that waits: `python benchmarks/network.py [--hops N] [--dim Q]`.

    hop        receive to receive, on loopback with mutual TLS: accept (one fsync), ask the next party, commit (one
               fsync), send. The gradient and its noise are left out: a stand-in passes the baton on as it came
    floor      two fsyncs of a baton's bytes on the same disk, measured in the same run
    noise      which an activation adds to a hop; `benchmarks/noise.py` says more
    idle       memory and processor time of an agent's processes after the end, while it lingers, with the half that
               holds the records and once that has been let go

The agents run the code of `relaydp agent serve`, each in its own process; only `RecordsProcess.relay` is replaced.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

PARTIES = 4


def stage(folder: Path, dim: int, hops: int) -> Any:
    """Four parties on a ring with a few records of `dim` features, planned for so many hops."""
    from relaydp.network.consortium.file import draw_up, make_consortium, write_consortium
    from relaydp.network.consortium.identity import CERTIFICATE, keygen
    from relaydp.network.operations.rehearsal import Stage, free_ports

    names, homes, tables, parties = [f"p{i}" for i in range(PARTIES)], [], [], []
    draw = np.random.default_rng(0)
    for name, port in zip(names, free_ports(PARTIES), strict=True):
        homes.append(folder / name)
        tables.append(folder / f"{name}.npz")
        np.savez(tables[-1], X=draw.random((20, dim)), y=draw.integers(0, 2, 20))
        pinned = keygen(homes[-1], name).fingerprint
        pem = (homes[-1] / CERTIFICATE).read_text()
        parties.append(dict(name=name, address=f"127.0.0.1:{port}", records=20, fingerprint=pinned, certificate=pem))
    problem = dict(loss="logistic", classes=[0, 1], features=dim, l2=0.01, ranges=[0, 1], record_norm=1.0)
    agreed = make_consortium(
        dict(
            version=1,
            name="bench",
            problem=problem,
            privacy=dict(epsilon=1.0, delta=1e-5),
            run=dict(algorithm="recal", walk="cyclic", start="p0", patience=100),
            network=dict(edges=[[names[k], names[k - 1]] for k in range(PARTIES)]),
            parties=parties,
        )
    )
    file = folder / "consortium.toml"
    steps = {"alpha": 1.0, "beta": 0.05, "gamma": 1.0}
    write_consortium(file, draw_up(agreed, activations=hops // PARTIES, steps=steps))
    return Stage(file, tuple(homes), tuple(tables))


class Stamp:
    """Notes when a message is on this agent's disk."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "w", buffering=1)  # noqa: SIM115

    def __call__(self, point: str) -> None:
        if point.startswith("accept: committed"):
            self._file.write(f"{time.time_ns()}\n")


def launch_stand_in(settings: Any, pipe: Any) -> None:
    """What the half with the records runs instead: an activation gives the baton back as it came."""
    from relaydp.network.records.process import RecordsProcess, work

    RecordsProcess.relay = lambda self, rows, baton, hop, activation: (rows or self.local.begin(), baton)  # type: ignore[method-assign]
    work(settings, pipe)


def agent(settings: Any, stamps: str | None, log: str) -> None:
    os.dup2(os.open(log, os.O_WRONLY), 2)
    from relaydp.network.operations.serve import serve
    from relaydp.network.records import pipe

    if stamps is not None:
        pipe._launch = launch_stand_in
    serve(settings, None if stamps is None else Stamp(stamps))


def run(place: Any, folder: Path, linger: float, stand_in: bool, rest: float = 60.0) -> list[Any]:
    from relaydp.network.records.public_plan import Settings

    context = multiprocessing.get_context("spawn")
    running = []
    for k, (home, table) in enumerate(zip(place.homes, place.tables, strict=True)):
        settings = Settings(home, place.file, table, 1e6, linger=linger, rest=rest)
        stamps = str(folder / f"{k}.stamps") if stand_in else None
        (folder / f"{k}.log").touch()
        running.append(context.Process(target=agent, args=(settings, stamps, str(folder / f"{k}.log"))))
        running[-1].start()
    return running


def hop_times(folder: Path) -> list[float]:
    """Milliseconds between one party's having the baton and the next one's."""
    stamps = sorted(int(line) for path in folder.glob("*.stamps") for line in path.read_text().split())
    ours = stamps[PARTIES : -2 * PARTIES]  # the first lap compiles and connects, the last messages are the ending
    return [(after - before) / 1e6 for before, after in zip(ours, ours[1:], strict=False)]


def fsync_floor(folder: Path, size: int) -> float:
    """Milliseconds for two writes of a baton's size, each on the disk before the next."""
    found = []
    with (folder / "floor").open("wb", buffering=0) as file:
        for _ in range(60):
            began = time.perf_counter()
            for _ in range(2):
                file.write(b"x" * size)
                os.fsync(file.fileno())
            found.append((time.perf_counter() - began) * 1e3)
    return statistics.median(found)


def noise_cost(dim: int) -> float:
    """Microseconds a coefficient of one draw of the noise that agents add."""
    from relaydp.party.noise import Sampler

    draw, found = Sampler(), []
    for _ in range(6):
        began = time.perf_counter()
        draw(np.zeros(dim), 1.0, 0.1, 0)
        found.append((time.perf_counter() - began) / dim * 1e6)
    return statistics.median(found)


def family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in family(int(child)))]


def memory(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def ticks(pids: list[int]) -> int:
    fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split() for pid in pids]
    return sum(int(each[11]) + int(each[12]) for each in fields)


def idle(folder: Path, dim: int) -> dict[str, float]:
    """An agent after its run: right after, and once its other half is gone."""
    folder.mkdir()
    place = stage(folder, dim, 2 * PARTIES)
    running = run(place, folder, linger=30.0, stand_in=False, rest=8.0)
    while not all('"finished"' in (folder / f"{k}.log").read_text() for k in range(PARTIES)):
        time.sleep(0.2)
        assert all(each.is_alive() for each in running), (folder / "0.log").read_text()[-2000:]
    pid = running[0].pid
    both = sum(memory(each) for each in family(pid))
    time.sleep(12)
    alone = family(pid)
    before, began = ticks(alone), time.monotonic()
    time.sleep(8)
    busy = (ticks(alone) - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)
    found = {"resting_mb": memory(pid), "with_records_mb": both, "idle_cpu_percent": 100 * busy}
    for each in running:
        each.terminate()
    for each in running:
        each.join()
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--hops", type=int, default=400)
    options.add_argument("--dim", type=int, default=3072)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="relaydp-bench-") as name:
        folder = Path(name)
        (folder / "hop").mkdir()
        running = run(stage(folder / "hop", asked.dim, asked.hops), folder / "hop", linger=0.5, stand_in=True)
        for each in running:
            each.join()
        assert all(each.exitcode == 0 for each in running), (folder / "hop" / "0.log").read_text()[-2000:]
        hops = hop_times(folder / "hop")
        floor = fsync_floor(folder, 2 * 8 * asked.dim)
        quarters = statistics.quantiles(hops, n=20)
        found = {
            "dim": asked.dim,
            "hops": len(hops),
            "hop_ms_median": statistics.median(hops),
            "hop_ms_p95": quarters[-1],
            "two_fsyncs_ms": floor,
            "noise_us_a_coefficient": noise_cost(asked.dim),
            **idle(folder / "idle", 30),
        }
    json.dump({name: round(value, 3) for name, value in found.items()}, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
