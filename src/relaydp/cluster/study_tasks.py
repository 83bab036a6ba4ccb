"""One task: a case with a block of seeds, run as one batched, compiled call. And what a worker keeps between tasks.

A task is plain data of a few hundred bytes, and so is its result, a few numbers per run. Records are never sent: each
worker loads its data sets once, by name or path, and keeps the last few problems with their reference minimisers and
compiled programs.
"""

from __future__ import annotations

import hashlib
import json
import math
import pickle
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from relaydp.cluster.study import Study
from relaydp.errors import InputError, RelayError

KEPT = 4  # problems a worker keeps: neighbouring tasks share theirs
# one number per run; null if there is none (no privacy, no classes)
MEASURES = ("epsilon_planned", "rho", "objective", "excess", "relative_error", "accuracy")


@dataclass(frozen=True)
class OwnLoss:
    """A loss of the user's own, as `relaydp.custom` takes it: fn(x, a, b), and what is publicly known about it."""

    pickled: bytes
    dim: int | None = None
    smoothness: float | None = None


@dataclass(frozen=True)
class StudyTask:
    id: str
    case: int
    tables: Mapping[str, Mapping[str, Any]]
    seeds: tuple[int, ...]
    shards: int = 1
    loss: OwnLoss | None = None


def tasks_of(study: Study, loss: OwnLoss | None = None) -> list[StudyTask]:
    """All tasks in study order, which is the order of the table's rows and of the ids' letters."""
    blocks = study.blocks()
    return [
        StudyTask(f"{number:06d}-{part:05d}", number, case.tables, seeds, study.resources.shards, loss)
        for number, case in enumerate(study.cases)
        for part, seeds in enumerate(blocks)
    ]


def own_loss(fn: Callable[..., Any], options: Mapping[str, Any] | None = None) -> OwnLoss:
    """Pickle a loss, or refuse one that cannot be pickled."""
    name = getattr(fn, "__qualname__", repr(fn))
    try:
        packed = pickle.dumps(fn)
    except Exception as error:
        raise InputError(
            f"loss {name!r} cannot be pickled, so it cannot be sent to a worker ({error}); it must be a function at "
            "the top level of a module, not a lambda or a function inside another function."
        ) from None
    if getattr(fn, "__module__", None) == "__main__":
        raise InputError(
            f"loss {name!r} is defined in the script that is being run, which workers do not import; move it to a "
            "module of its own."
        )
    return OwnLoss(packed, **dict(options or {}))


def run_task(task: StudyTask) -> dict[str, list[Any]]:
    """Run it: one list per column, one entry per seed. An error of the task does not raise; its rows say it."""
    began = time.perf_counter()
    try:
        columns = _measured(task)
        columns["error"] = [None] * len(task.seeds)
    except RelayError as error:
        columns = failed(task, str(error))
    except MemoryError as error:
        columns = failed(task, _memory(str(error)))
    except Exception as error:
        said = str(error)
        short = _memory(said) if "RESOURCE_EXHAUSTED" in said else f"{type(error).__name__}: {said}"[:2000]
        columns = failed(task, short)
    columns["seconds"] = [time.perf_counter() - began] * len(task.seeds)
    columns["host"] = [socket.gethostname()] * len(task.seeds)
    return columns


def failed(task: StudyTask, error: str) -> dict[str, list[Any]]:
    """The rows of a failed task."""
    empty: list[Any] = [None] * len(task.seeds)
    names = ("loss_used", "agents", "delta", "plf", "messages", "model_sha256", *MEASURES, "seconds", "host")
    rows = {name: list(empty) for name in names}
    return rows | {"seed": list(task.seeds), "status": ["failed"] * len(empty), "error": [error] * len(empty)}


def _memory(said: str) -> str:
    return f"out of memory ({said or 'MemoryError'}); lower [study] block, or run fewer workers."


def _measured(task: StudyTask) -> dict[str, list[Any]]:
    import numpy as np

    from relaydp.engine import sweep
    from relaydp.problem.reference import find_minimiser
    from relaydp.settings.config import Config, solve_arguments

    config = Config.model_validate(_strict(task.tables))
    asked = solve_arguments(config.run)
    budget = asked.pop("budget", None)
    del asked["seed"]
    problem, graph, prior = _built(json.dumps(_strict(task.tables), sort_keys=True), task.loss)
    if prior is not None:
        asked["prior"] = prior
    find_minimiser(problem)  # once, before the shards need it in parallel

    def shard(seeds: list[int]) -> Any:
        return sweep(problem, graph, seeds, [budget], progress=False, **asked)

    parts = [part.tolist() for part in np.array_split(np.array(task.seeds), min(task.shards, len(task.seeds)))]
    done = _over_devices(shard, parts)
    columns: dict[str, list[Any]] = {"seed": list(task.seeds)}
    columns["status"] = [status for runs in done for status in runs.status]
    for name in MEASURES:
        values = np.concatenate([getattr(runs, name) for runs in done])
        columns[name] = [float(value) if math.isfinite(value) else None for value in values]
    for name in ("plf", "messages"):
        columns[name] = np.concatenate([getattr(runs, name) for runs in done]).astype(int).tolist()
    # an epsilon comes with its delta; both are null if no proof covers the mechanism
    columns["delta"] = [None if e is None or budget is None else budget.delta for e in columns["epsilon_planned"]]
    columns["model_sha256"] = [hashlib.sha256(x.tobytes()).hexdigest() for runs in done for x in runs.x]
    columns["loss_used"] = [problem.loss.name] * len(task.seeds)
    columns["agents"] = [problem.agents] * len(task.seeds)
    return columns


def _over_devices(shard: Callable[[list[int]], Any], parts: list[list[int]]) -> list[Any]:
    """Run the shards, in turn over the devices that this process sees: one after the other where there is only one.

    The study decides how a block is split, not the machine, so the numbers are the same on any number of devices.
    """
    from concurrent.futures import ThreadPoolExecutor

    import jax

    devices = jax.local_devices()
    if len(parts) == 1 or len(devices) == 1:
        return [shard(part) for part in parts]

    def there(number: int) -> Any:
        with jax.default_device(devices[number % len(devices)]):
            return shard(parts[number])

    with ThreadPoolExecutor(min(len(parts), len(devices))) as pool:
        return list(pool.map(there, range(len(parts))))


def _strict(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Tables as `Config` takes them: pairs and agents' numbers that went through JSON are read as from a file."""
    return {name: {key: value for key, value in table.items() if value is not None} for name, table in tables.items()}


@lru_cache(maxsize=KEPT)
def _built(tables: str, loss: OwnLoss | None) -> tuple[Any, Any, Any]:
    """(problem, graph, prior) of a case; cases that differ in the graph or the run alone share the problem."""
    from relaydp.settings.config import Config, make_graph, make_prior

    config = Config.model_validate(json.loads(tables))
    size = config.problem.agents
    graph = None if size is not None else make_graph(config.graph, None)
    agents = graph.agents if graph is not None else size
    key = {name: json.loads(tables).get(name, {}) for name in ("data", "problem")}
    problem = _problem(json.dumps(key, sort_keys=True), json.dumps(agents), loss)
    graph = graph or make_graph(config.graph, problem.agents)
    prior = None
    if config.run.prior is not None:
        name = problem.spec["loss"].replace("_", "-")
        prior = make_prior(config, config.run.prior, name, problem.data.features, problem.scale)
    return problem, graph, prior


@lru_cache(maxsize=KEPT)
def _problem(tables: str, agents: str, loss: OwnLoss | None) -> Any:
    import relaydp.settings.config as files
    from relaydp.problem import custom

    config = files.Config.model_validate(json.loads(tables))
    split = json.loads(agents)
    if loss is None:
        return files.make_problem(config, split)
    wanted = config.problem
    options = {name: getattr(wanted, name) for name in ("l1", "l2", "record_norm", "ranges", "one_hot", "clip")}
    records = files.load_records(config.data, split)
    return custom(pickle.loads(loss.pickled), records, split, dim=loss.dim, smoothness=loss.smoothness, **options)
