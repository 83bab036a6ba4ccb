"""run_study: give every task to a worker, store the results, and merge them into one table."""

from __future__ import annotations

import contextlib
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from relaydp.cluster.process_workers import Workers, local_workers
from relaydp.cluster.study import Study
from relaydp.cluster.study_folder import check_folder
from relaydp.cluster.study_tasks import StudyTask, own_loss, tasks_of
from relaydp.errors import InputError, choose

if TYPE_CHECKING:
    import pyarrow as pa

AGAIN = 2  # retries of a task whose worker was lost: first a worker may be killed, and then a node lost
BEAT = 0.5  # seconds between two checks of idle workers


class Pace(NamedTuple):
    """The progress of a study."""

    tasks: int
    tasks_in_all: int
    runs: int
    runs_in_all: int
    failed: int  # tasks


Report = Callable[[Pace], None]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a study; finished tasks are kept, and `pace` says how many."""

    def __init__(self, pace: Pace) -> None:
        super().__init__(f"interrupted after {pace.tasks} of {pace.tasks_in_all} tasks")
        self.pace = pace


def run_study(
    study: Study,
    on: str = "local",
    *,
    folder: str | Path | None = None,
    jobs: int | None = None,
    address: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    loss: Callable[..., Any] | None = None,
    loss_options: Mapping[str, Any] | None = None,
    progress: Report | None = None,
) -> pa.Table:
    """Run a study and return its table, one row per run, in the order of the study.

    The numbers do not depend on `on`, `jobs` or the order in which tasks finish. A failed task has rows with status
    "failed" and the reason.

    Args:
        study: What to run.
        on: "local" (the default: processes of this machine), or "ray" (the cluster at `address`, or one started here).
        folder: Where parts and results.parquet are kept. Default: None, nothing is kept.
        jobs: How many workers. Default: as many as fit on the cores, or on the cluster.
        address: The address of a Ray cluster. Default: None.
        resume: Whether to run only what is missing in the folder, or failed. Default: False.
        overwrite: Whether to replace what is in the folder. Default: False.
        loss: A loss of your own for all problems, as `relaydp.custom` takes it. Workers must be able to import it.
            Default: None.
        loss_options: `dim` and `smoothness` of that loss. Default: None.
        progress: A function that is told how far the study is. Default: None.

    Returns:
        A PyArrow table.

    Raises:
        InputError: A place or number is out of range, or the folder has results of another study.

    Example:
        >>> from relaydp.cluster import Study, run_study
        >>> study = Study.of({"study": {"data": ["breast-cancer"], "seeds": 2}, "run": {"activations": 20}})
        >>> run_study(study, jobs=1)["status"].to_pylist()
        ['finished', 'finished']
    """
    choose("place to run on", on, ("local", "ray"))
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs={jobs}; it must be 1 or more.")
    if address is not None and on != "ray":
        raise InputError(f"address {address!r} is for a Ray cluster, and on='local'. Add --on ray.")
    own = None if loss is None else own_loss(loss, loss_options)
    tasks = tasks_of(study, own)
    with _place(folder) as path:
        kept = check_folder(path, study, own, resume=resume, overwrite=overwrite)
        todo = [task for task in tasks if not kept.is_done(task)] if resume else tasks
        if not todo:
            return kept.merge(tasks)
        with _crew(on, study, jobs, len(todo), address) as workers:
            kept.begin(overwrite)  # only now, so that a failed connection leaves no folder
            try:
                run_tasks(workers, todo, len(tasks), study.runs, kept.keep, progress)
            finally:
                table = kept.merge(tasks)
        return table


@contextlib.contextmanager
def _place(folder: str | Path | None) -> Iterator[Path]:
    if folder is not None:
        yield Path(folder)
        return
    with tempfile.TemporaryDirectory(prefix="relaydp-study-") as name:
        yield Path(name)


def _crew(on: str, study: Study, jobs: int | None, most: int, address: str | None) -> AbstractContextManager[Any]:
    """Workers, but never more than there are tasks."""
    if on == "local":
        return local_workers(study.resources, jobs, most)
    from relaydp.cluster.ray_workers import ray_workers

    return ray_workers(study.resources, jobs, most, address)


def run_tasks(
    workers: Workers,
    todo: Sequence[StudyTask],
    tasks_in_all: int,
    runs_in_all: int,
    keep: Callable[[StudyTask, dict[str, list[Any]]], None],
    progress: Report | None = None,
) -> None:
    """Keep every worker busy until all tasks are done; each result is stored when it comes."""
    queues: dict[int, deque[StudyTask]] = {}  # by case
    for task in todo:
        queues.setdefault(task.case, deque()).append(task)
    last: dict[int, int] = {}  # worker -> the case it did last
    lost: dict[str, int] = {}
    busy = done = failures = runs = 0
    before = tasks_in_all - len(todo)
    runs_before = runs_in_all - sum(len(task.seeds) for task in todo)

    def pace() -> Pace:
        return Pace(before + done, tasks_in_all, runs_before + runs, runs_in_all, failures)

    if progress is not None:
        progress(pace())
    try:
        while done < len(todo):
            for worker in workers.ready():
                case = _choose(queues, last, worker)
                if case is None:
                    break
                workers.give(worker, queues[case].popleft())
                last[worker] = case
                busy += 1
            for result in workers.wait(BEAT):
                busy -= 1
                if result.again and lost.get(result.task.id, 0) < AGAIN:
                    lost[result.task.id] = lost.get(result.task.id, 0) + 1
                    queues[result.task.case].appendleft(result.task)
                    last.pop(result.worker, None)
                    continue
                keep(result.task, result.columns)
                done += 1
                runs += len(result.task.seeds)
                failures += "failed" in result.columns["status"]
                if progress is not None:
                    progress(pace())
    except KeyboardInterrupt:
        raise Interrupted(pace()) from None


def _choose(queues: dict[int, deque[StudyTask]], last: dict[int, int], worker: int) -> int | None:
    """The case that a free worker continues with: its own, whose program it has; else a new one; else the longest
    queue."""
    own = last.get(worker)
    if own is not None and queues.get(own):
        return own
    taken = set(last.values())
    waiting = [case for case, queue in queues.items() if queue]
    fresh = [case for case in waiting if case not in taken]
    if fresh:
        return fresh[0]
    return max(waiting, key=lambda case: len(queues[case]), default=None)
