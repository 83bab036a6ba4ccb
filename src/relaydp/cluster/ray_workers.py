"""Workers on a Ray cluster: a few actors, each with one task at a time.

Actors, not Ray's tasks: JAX starts and data load once per worker, and blocks of one case go to the worker that has its
plan and its compiled program (`benchmarks/study.py --tasks` compares). An actor keeps no state that matters: Ray
restarts a lost one, on another node if necessary, and its task is given out again, with the same numbers.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

from relaydp.cluster.connection import connect
from relaydp.cluster.process_workers import Done, threads
from relaydp.cluster.study import ResourcesSection
from relaydp.cluster.study_tasks import StudyTask, failed
from relaydp.errors import InputError

PLACED = 60.0  # seconds that the first worker may take to be placed and to answer
FROM_HERE = ("RELAYDP_DATA", "RELAYDP_COMPILED", "XLA_FLAGS")  # settings that workers take over from the driver


class Hand:
    """One worker, on the node that Ray chooses."""

    def __init__(self, environment: dict[str, str], paths: list[str]) -> None:
        import sys

        os.environ.update(environment)  # before JAX is imported, which reads it
        sys.path += [path for path in paths if path not in sys.path]

    def ready(self) -> int:
        return os.getpid()

    def run(self, task: StudyTask) -> dict[str, list[Any]]:
        from relaydp.cluster.study_tasks import run_task

        return run_task(task)


@contextlib.contextmanager
def ray_workers(
    resources: ResourcesSection, jobs: int | None, most: int, address: str | None = None
) -> Iterator[RayWorkers]:
    """Actors on the cluster at `address`, or on one started here; all are ended at the end."""
    with connect(address) as ray:
        workers = RayWorkers(ray, resources, min(jobs or _capacity(ray, resources), most))
        try:
            yield workers
        finally:
            workers.close()


def _capacity(ray: Any, resources: ResourcesSection) -> int:
    """How many workers fit on the cluster, node by node."""
    fitting = 0
    for node in ray.nodes():
        if node["Alive"]:
            has = node["Resources"]
            fits = int(has.get("CPU", 0) // resources.cpus)
            if resources.gpus:
                fits = min(fits, int(has.get("GPU", 0) // resources.gpus))
            fitting += fits
    if not fitting:
        raise InputError(
            f"a task asks for {resources.cpus} CPUs and {resources.gpus} GPUs, and no node of the cluster has them; "
            "lower [resources] in the study, or add nodes (`ray status` shows what there is)."
        )
    return fitting


class RayWorkers:
    def __init__(self, ray: Any, resources: ResourcesSection, jobs: int) -> None:
        import sys

        self._ray = ray
        environment = {name: os.environ[name] for name in FROM_HERE if name in os.environ} | threads(resources.cpus)
        make = ray.remote(num_cpus=resources.cpus, num_gpus=resources.gpus, max_restarts=-1, max_task_retries=0)(Hand)
        self._actors = [make.remote(environment, list(sys.path)) for _ in range(jobs)]
        self._idle: set[int] = set()
        self._coming = {actor.ready.remote(): number for number, actor in enumerate(self._actors)}
        self._busy: dict[Any, tuple[int, StudyTask]] = {}
        self._since = time.monotonic()

    @property
    def pids(self) -> list[int]:
        return self._ray.get([actor.ready.remote() for actor in self._actors])

    def ready(self) -> list[int]:
        if not self._idle and not self._busy and time.monotonic() - self._since > PLACED:
            raise InputError(
                f"no worker could be started on the cluster within {PLACED:g} s; its CPUs may be taken by others. Look "
                "with `ray status`, or ask for fewer with --jobs."
            )
        return sorted(self._idle)

    def give(self, worker: int, task: StudyTask) -> None:
        self._idle.discard(worker)
        self._busy[self._actors[worker].run.remote(task)] = (worker, task)

    def wait(self, seconds: float) -> list[Done]:
        waiting = [*self._coming, *self._busy]
        arrived, _ = self._ray.wait(waiting, num_returns=1, timeout=seconds)
        done = []
        for ref in arrived:
            if ref in self._coming:
                self._arrived(ref)
                continue
            worker, task = self._busy.pop(ref)
            try:
                done.append(Done(worker, task, self._ray.get(ref)))
                self._idle.add(worker)
            except self._ray.exceptions.RayError as error:
                done.append(_lost(worker, task, error))
                # Ray is restarting it; it takes the next task when it answers
                self._coming[self._actors[worker].ready.remote()] = worker
                self._since = time.monotonic()
        return done

    def _arrived(self, ref: Any) -> None:
        worker = self._coming.pop(ref)
        try:
            self._ray.get(ref)
            self._idle.add(worker)
        except self._ray.exceptions.RayError:
            time.sleep(0.2)  # it died again as it started: let Ray try again, after a pause
            self._coming[self._actors[worker].ready.remote()] = worker

    def close(self) -> None:
        for actor in self._actors:
            with contextlib.suppress(Exception):  # the cluster may be gone, and its actors with it
                self._ray.kill(actor)


def _lost(worker: int, task: StudyTask, error: Exception) -> Done:
    """The result for a worker that died: because of its task's memory, where a retry would not help, or for another
    reason."""
    said = " ".join(str(error).split())
    if "memory" in said.lower() and ("oom" in said.lower() or "out of memory" in said.lower()):
        text = (
            "out of memory: Ray killed the worker during this task; lower [study] block, or ask for more [resources]."
        )
        return Done(worker, task, failed(task, text))
    text = f"the worker was lost during this task ({type(error).__name__}: {said[:500]})"
    return Done(worker, task, failed(task, text), again=True)
