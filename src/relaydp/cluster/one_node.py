"""solve_on_ray: a run that fits one node, on another node of a Ray cluster."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

from relaydp.cluster.agent_actors import check_travels
from relaydp.cluster.connection import connect
from relaydp.cluster.solving_apart import check_patience, check_seeded
from relaydp.engine.solver import solve
from relaydp.errors import InputError
from relaydp.graph import Graph
from relaydp.problem import Problem, ProblemSpec, build_again, custom
from relaydp.problem.loss import CustomLoss
from relaydp.prox import from_spec
from relaydp.result import Result


def solve_on_ray(
    problem: Problem,
    graph: Graph,
    *arguments: Any,
    address: str | None = None,
    cores: int | None = None,
    cpus: float = 1.0,
    gpus: float = 0.0,
    patience: float = 24 * 3600.0,
    **options: Any,
) -> Result:
    """Run `relaydp.solve` as one task on a Ray cluster.

    The result is the same, bit for bit on one kind of machine. With a budget it is a simulation, and needs `seed=`.

    Args:
        problem: As in `solve`. It is sent to the node that runs the task.
        graph: As in `solve`.
        arguments: Further arguments of `solve`, by position.
        address: Of a Ray cluster: "auto", "host:port" or "ray://host:port". Default: None, one is started here.
        cores: How many CPUs a cluster on this machine has. Default: all.
        cpus: How many CPUs the task asks for. Default: 1.
        gpus: How many GPUs the task asks for. Default: 0.
        patience: The seconds that the run may take. Default: a day.
        options: Further arguments of `solve`, by name.

    Returns:
        The Result.

    Raises:
        InputError: The arguments are not those of `solve`, the run took longer than `patience`, or its process died.
        PrivacyError: There is a budget without a seed.
    """
    check_patience(patience)
    try:
        asked = inspect.signature(solve).bind(problem, graph, *arguments, **options).arguments
    except TypeError as error:
        raise InputError(f"{error}; the arguments must be those that relaydp.solve takes.") from None
    check_seeded(asked.get("budget") is not None, asked.get("seed"))
    options.pop("progress", None)  # it cannot be called from another process
    with connect(address, cores=cores) as ray:
        shape = (problem.spec, problem.loss.fn if isinstance(problem.loss, CustomLoss) else None)
        split = problem.split if problem.spec["agents"] is None else None
        if shape[1] is not None:
            check_travels(ray, ProblemSpec(shape[1]))
        task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=3)(_solve_there)
        reference = task.remote(ray.put(problem.data), shape, split, graph, arguments, options)
        try:
            return ray.get(reference, timeout=patience)
        except ray.exceptions.GetTimeoutError:
            ray.cancel(reference, force=True)
            raise InputError(
                f"the run did not finish within {patience:g} s, or no node has {cpus:g} CPUs and {gpus:g} GPUs free; "
                "look with `ray status`, or allow more time with patience=."
            ) from None
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
            raise InputError(
                f"the process that ran it died four times ({type(error).__name__}), most likely because it ran out of "
                "memory. Use a node that can hold all records, or relaydp.cluster.solve_apart if there is none."
            ) from None


def _solve_there(data: Any, shape: Any, split: Any, graph: Graph, arguments: Any, options: Any) -> Result:
    """Runs on the node: build the problem again, because compiled code is not found for a pickled one, and solve it."""
    spec, function = shape
    agents = spec["agents"] if split is None else [len(data)]
    if function is None:
        problem = build_again({**spec, "agents": agents}, data)
    else:
        given = {name: spec[name] for name in ("l2", "record_norm", "ranges", "clip", "smoothness", "dim")}
        problem = custom(function, data, agents, regulariser=from_spec(spec["regulariser"]), **given)
    if split is not None:
        problem = replace(problem, split=split, spec=spec)
    return solve(problem, graph, *arguments, progress=False, **options)
