"""Workers on this machine: processes, each with one task at a time.

A worker is started by name, not forked (JAX has threads) and not through multiprocessing (which would import the user's
script again). It ends when its pipe closes, so none outlives the study, however that ends. If one dies, killed by the
kernel for its memory or otherwise, only its task is lost: its rows give the reason, and another worker replaces it.
"""

from __future__ import annotations

import contextlib
import glob
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import IO, Any, NamedTuple, Protocol

from relaydp.cluster.study import ResourcesSection
from relaydp.cluster.study_tasks import StudyTask, failed
from relaydp.errors import InputError

Columns = dict[str, list[Any]]


class Done(NamedTuple):
    """The result of a task; `again` if the worker was lost and the task was not the cause."""

    worker: int
    task: StudyTask
    columns: Columns
    again: bool = False


class Workers(Protocol):
    """Workers, here or on a cluster, that take one task each."""

    def ready(self) -> list[int]: ...

    def give(self, worker: int, task: StudyTask) -> None: ...

    def wait(self, seconds: float) -> list[Done]: ...


def threads(cpus: int) -> dict[str, str]:
    """A worker's environment: as many threads as it has cores, because workers run side by side."""
    names = ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    return dict.fromkeys(names, str(cpus))  # NPROC: XLA's


@dataclass
class _Hand:
    process: subprocess.Popen[bytes]
    line: Connection
    words: IO[bytes]  # its stderr, for the error message
    task: StudyTask | None = None


@contextlib.contextmanager
def local_workers(resources: ResourcesSection, jobs: int | None, most: int) -> Iterator[LocalWorkers]:
    """Processes on this machine's cores; all are ended at the end."""
    workers = LocalWorkers(resources, min(jobs or default_jobs(resources), most))
    try:
        yield workers
    finally:
        workers.close()


def default_jobs(resources: ResourcesSection) -> int:
    """As many workers as the cores allow, or the GPUs if a task asks for some."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not resources.gpus:
        return max(1, cores // resources.cpus)
    found = len(_gpus())
    if found < resources.gpus:
        raise InputError(
            f"[resources] gpus = {resources.gpus}, and this machine has {found}; lower it, or use --on ray with a "
            "cluster that has them."
        )
    return found // resources.gpus


def _gpus() -> list[str]:
    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    if asked is not None:
        return [name for name in asked.split(",") if name.strip()]
    return [path.removeprefix("/dev/nvidia") for path in sorted(glob.glob("/dev/nvidia[0-9]*"))]


class LocalWorkers:
    def __init__(self, resources: ResourcesSection, jobs: int) -> None:
        self._resources = resources
        self._hands: dict[int, _Hand] = {}
        for number in range(jobs):
            self._hands[number] = self._hire(number)

    @property
    def pids(self) -> list[int]:
        return [hand.process.pid for hand in self._hands.values()]

    def ready(self) -> list[int]:
        return [number for number, hand in self._hands.items() if hand.task is None]

    def give(self, worker: int, task: StudyTask) -> None:
        hand = self._hands[worker]
        hand.task = task
        with contextlib.suppress(OSError):  # it has died; `wait` detects and reports that
            hand.line.send(task)

    def wait(self, seconds: float) -> list[Done]:
        busy = {hand.line: (number, hand.task) for number, hand in self._hands.items() if hand.task is not None}
        done = []
        for line in wait(list(busy), seconds):
            number, task = busy[line]  # type: ignore[index]
            hand = self._hands[number]
            try:
                done.append(Done(number, task, hand.line.recv()))
                hand.task = None
            except (EOFError, OSError):
                done.append(Done(number, task, failed(task, self._last_words(hand))))
                self._hands[number] = self._hire(number)
        return done

    def close(self) -> None:
        for hand in self._hands.values():
            hand.line.close()
            hand.process.kill()  # a kill cannot damage anything: only the driver writes files
        for hand in self._hands.values():
            hand.process.wait()
            hand.words.close()

    def _hire(self, number: int) -> _Hand:
        ours, theirs = Pipe()
        words = tempfile.TemporaryFile()
        environment = {**os.environ, **threads(self._resources.cpus)}
        if self._resources.gpus:
            each = self._resources.gpus
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(_gpus()[number * each : (number + 1) * each])
        code = f"from relaydp.cluster.process_workers import serve; serve({theirs.fileno()})"
        # Ctrl-C reaches the whole process group: a worker ignores it from its start and the driver ends it, a few
        # milliseconds later.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=words,
                env=environment,
                pass_fds=[theirs.fileno()],
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        hand = _Hand(process, ours, words)
        with contextlib.suppress(OSError):
            ours.send(sys.path)  # a user's loss may be in a module that only this process can find
        return hand

    def _last_words(self, hand: _Hand) -> str:
        hand.line.close()
        code = hand.process.wait()
        with hand.words:
            hand.words.seek(0)
            lines = hand.words.read()[-4000:].decode(errors="replace").strip().splitlines()
        if code == -signal.SIGKILL:
            return (
                "the worker was killed (SIGKILL) during this task, most likely because the machine ran out of memory; "
                "lower [study] block, or run fewer workers with --jobs."
            )
        said = f": {lines[-1][:500]}" if lines else ""
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"the worker ended during this task ({how}){said}"


def serve(descriptor: int) -> None:
    """The main loop of a worker: take tasks from the pipe and send their columns back, until the pipe closes."""
    from relaydp.cluster.study_tasks import run_task

    line = Connection(descriptor)
    with contextlib.suppress(EOFError, OSError):
        sys.path[:] = line.recv()
        while True:
            line.send(run_task(line.recv()))
