"""A study of 2,000 runs on digits: over processes, and over Ray, in the same hour on the same cores.

    python benchmarks/study.py                    # both, each from an empty cache of compiled programs
    python benchmarks/study.py --rounds 3         # local, ray, local, ray, ...: medians
    python benchmarks/study.py --tasks            # Ray's plain tasks beside the actors that relaydp uses
    python benchmarks/study.py --threads 2        # workers with two threads each instead of one

Printed: wall time; how busy the cores were (user + system time of the workers over wall time x cores, JAX's start and
compilation included); Ray's time over local's; and whether both tables are the same to the last bit.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STUDY = {
    "study": {
        "name": "digits",
        "data": ["digits"],
        "graphs": ["ring", "complete"],
        "algorithms": ["recal", "nids"],
        "budgets": [0.5, 1.0, 2.0, 4.0, "none"],
        "seeds": 100,
    },
    "problem": {"agents": 8},
    "run": {"walk": "tour"},
}
TICKS = os.sysconf("SC_CLK_TCK")
CORES = len(os.sched_getaffinity(0))
WORKERS = ("ray::", "relaydp.cluster.process_workers")  # in their command lines; the rest is Ray's own


class Meter:
    """CPU seconds of everything this process has started, read from /proc every quarter of a second."""

    def __init__(self) -> None:
        self.spent: dict[int, float] = {}
        self.worker: dict[int, bool] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Meter:
        self.before, self.began = time.process_time(), time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall, self.driver = time.perf_counter() - self.began, time.process_time() - self.before
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.25):
            parents, spent = {}, {}
            for place in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError, ValueError):
                    fields = (place / "stat").read_text().rsplit(")", 1)[1].split()
                    parents[int(place.name)] = int(fields[1])
                    spent[int(place.name)] = (int(fields[11]) + int(fields[12])) / TICKS
            for pid in parents:
                if self._is_ours(pid, parents):
                    self.spent[pid] = spent[pid]
                    with contextlib.suppress(OSError):
                        words = (Path("/proc") / str(pid) / "cmdline").read_bytes().decode(errors="replace")
                        self.worker[pid] = self.worker.get(pid, False) or any(word in words for word in WORKERS)

    def _is_ours(self, pid: int, parents: dict[int, int]) -> bool:
        while pid in parents:
            pid = parents[pid]
            if pid == os.getpid():
                return True
        return False

    @property
    def workers(self) -> float:
        return sum(seconds for pid, seconds in self.spent.items() if self.worker.get(pid))

    @property
    def others(self) -> float:
        return sum(seconds for pid, seconds in self.spent.items() if not self.worker.get(pid))


@contextlib.contextmanager
def fresh_cache() -> Iterator[None]:
    """No program compiled by the run before: each pays for its own."""
    before = os.environ.get("RELAYDP_COMPILED")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RELAYDP_COMPILED"] = folder
        try:
            yield
        finally:
            os.environ.pop("RELAYDP_COMPILED") if before is None else os.environ.update(RELAYDP_COMPILED=before)


def as_tasks(study: Any) -> Any:
    """The same over Ray's plain tasks, which find a warm worker by luck: only to be compared with."""
    import pyarrow as pa

    from relaydp.cluster.connection import connect
    from relaydp.cluster.process_workers import threads
    from relaydp.cluster.study_folder import make_part
    from relaydp.cluster.study_tasks import run_task, tasks_of

    tasks = tasks_of(study)
    with connect() as ray:
        environment = {**threads(study.resources.cpus), "RELAYDP_COMPILED": os.environ["RELAYDP_COMPILED"]}
        ask = ray.remote(num_cpus=study.resources.cpus, runtime_env={"env_vars": environment})(run_task)
        found = ray.get([ask.remote(task) for task in tasks])
        return pa.concat_tables([make_part(study, task, rows) for task, rows in zip(tasks, found, strict=True)])


def measure(study: Any, kind: str) -> tuple[Meter, Any]:
    from relaydp.cluster import run_study

    with fresh_cache(), Meter() as meter:
        table = as_tasks(study) if kind == "ray tasks" else run_study(study, on=kind)
    failures = [error for error in table["error"].to_pylist() if error is not None]
    if failures:
        sys.exit(f"{kind}: {len(failures)} runs failed: {failures[0]}")
    return meter, table.drop(["seconds", "host"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--tasks", action="store_true", help="Ray's plain tasks, too")
    parser.add_argument("--local", action="store_true", help="processes only")
    parser.add_argument("--threads", type=int, default=1, help="threads a worker")
    parser.add_argument("--block", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=100, help="20 cases with as many seeds each")
    asked = parser.parse_args()
    from relaydp.cluster import Study

    tables = {**STUDY, "study": {**STUDY["study"], "seeds": asked.seeds, "block": asked.block}}
    study = Study.of(tables | {"resources": {"cpus": asked.threads}})
    kinds = ["local"] if asked.local else ["local", "ray", *(["ray tasks"] if asked.tasks else [])]
    found: dict[str, list[Meter]] = {kind: [] for kind in kinds}
    first = None
    same = True
    print(f"{study.runs:,} runs, {len(study.cases)} cases, {CORES} cores, load before {os.getloadavg()[0]:.1f}")
    for _ in range(asked.rounds):
        for kind in kinds:
            meter, table = measure(study, kind)
            first = table if first is None else first
            same = same and table.equals(first)
            found[kind].append(meter)
            busy = meter.workers / (meter.wall * CORES)
            print(
                f"{kind:10}  {meter.wall:7.1f} s  workers {busy:6.1%} of {CORES} cores  ({meter.workers:.1f} s CPU; "
                f"driver {meter.driver:.1f} s, Ray's own {meter.others:.1f} s)  {study.runs / meter.wall:.1f} runs/s",
                flush=True,
            )
    local = statistics.median(meter.wall for meter in found["local"])
    for kind in kinds[1:]:
        print(f"{kind} / local: {statistics.median(meter.wall for meter in found[kind]) / local:.2f} of the time")
    print(f"tables the same, bit for bit: {'yes' if same else 'NO'}")


if __name__ == "__main__":
    main()
