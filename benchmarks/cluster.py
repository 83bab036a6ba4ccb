"""What agents apart cost on Ray: `python benchmarks/cluster.py [--hops N] [--dim Q]`.

    bare call    an actor that gives back what it was given: the rows and the baton of an activation, one call at a time
    hop          an activation as `solve_apart` makes it, its gradient left out by giving the agents one record each
    in one       process: the same hop in the simulator
    gradient     of one agent, for a record and coefficient, beside that
    load         reading a part, for a record and feature (NPZ, on a local disk)
    start        of two agents' processes, until each has acted once, everything compiled beforehand
    checkpoint   writing one: of one agent, and for each byte of more
    memory       of an agent's process with one record

Hops and bare calls take turns in the same run, twenty of each, each over two actors of its own, so that whatever else
the machine does, it does to both; the ratio of their medians is what counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from relaydp.cluster.connection import connect

AGENTS, LAP = 2, 20  # agents, and hops between two changes from hop to bare call
RECORDS = 4000  # of the agent whose gradient is measured
STEPS = {"alpha": 1.0, "beta": 0.05, "gamma": 1.0}


def seconds(call: Any, repeats: int) -> float:
    """The median of several."""
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def write_parts(folder: Path, records: int, dim: int) -> list[str]:
    draw = np.random.default_rng(0)
    paths = [str(folder / f"{records}-{i}.npz") for i in range(AGENTS)]
    for path in paths:
        np.savez(path, X=draw.random((records, dim)), y=np.arange(records) % 2)
    return paths


class Echo:
    """A bare actor."""

    def give_back(self, rows: bytes, baton: np.ndarray) -> tuple[bytes, np.ndarray]:
        return rows, baton


def solve(paths: list[str], dim: int, activations: int, progress: Any = False) -> None:
    import relaydp as rd
    from relaydp.cluster.solving_apart import solve_apart

    solve_apart(
        paths,
        rd.path(AGENTS),
        budget=rd.Budget(1e6, 1e-5),  # one record has no privacy; what is measured does not depend on it
        features=dim,
        classes=[0, 1],
        l2=0.01,
        record_norm=1.0,
        walk="tour",
        activations=activations,
        steps=STEPS,
        progress=progress,
    )


def hops(ray: Any, folder: Path, dim: int, count: int) -> dict[str, float]:
    """Medians of a hop and of a bare call, in turns, in milliseconds."""
    echoes = [ray.remote(Echo).remote() for _ in range(AGENTS)]
    rows, baton = os.urandom(2 * 8 * dim), np.random.default_rng(0).normal(size=(2, dim))
    bare, whole = [], []
    last = [time.perf_counter()]

    def call_bare() -> None:
        for k in range(LAP):
            began = time.perf_counter()
            ray.get(echoes[k % AGENTS].give_back.remote(rows, baton))
            bare.append(time.perf_counter() - began)

    def between(done: int, total: int) -> None:
        whole.append(time.perf_counter() - last[0])
        if done % LAP == 0:
            call_bare()
        last[0] = time.perf_counter()

    call_bare()
    bare.clear()
    paths = write_parts(folder, 1, dim)
    solve(paths, dim, count // AGENTS, between)
    began = time.perf_counter()
    solve(paths, dim, 1)
    started = time.perf_counter() - began
    quiet = whole[LAP:]  # the first hops start processes and compile
    return {
        "bare_call_ms": 1e3 * statistics.median(bare),
        "hop_ms": 1e3 * statistics.median(quiet),
        "hop_over_bare": statistics.median(quiet) / statistics.median(bare),
        "start_s": started,
    }


def in_one_process(dim: int) -> dict[str, float]:
    """The same hop in the simulator: two runs of different length, their difference."""
    import relaydp as rd

    data = rd.Records(np.random.default_rng(0).random((AGENTS, dim)), np.arange(AGENTS) % 2)
    problem = rd.logistic(data, agents=AGENTS, l2=0.01, record_norm=1.0, classes=[0, 1])
    options: Any = dict(budget=rd.Budget(1e6, 1e-5), walk="tour", steps=STEPS, transcript=False, trace=False)

    def run(activations: int) -> float:
        call = lambda: rd.solve(problem, rd.path(AGENTS), activations=activations, reference=False, **options)  # noqa: E731
        call()
        return seconds(call, 3)

    return {"hop_in_one_process_ms": 1e3 * (run(2000) - run(1000)) / (1000 * AGENTS)}


def one_agent(path: str, records: int, dim: int) -> dict[str, float]:
    """What an agent does by itself; run in a process of its own."""
    import relaydp as rd
    from relaydp.cluster import partitions, solving_apart
    from relaydp.cluster.agent_actors import Agent, PartySetup

    options = dict(columns=None, features=dim, label=None, classes=[0, 1], ranges=None, l2=0.01, record_norm=1.0)
    task = partitions.make_task("logistic", **options)
    part = partitions.Part(0, "agent 0", path)
    agent, graph = Agent(part, task, ""), rd.path(AGENTS)
    about = agent.about()
    budget = rd.Budget(1e6, 1e-5)
    asked = solving_apart.Asked("recal", "auto", budget, 50, "tour", STEPS, 0, 0, None, None, None)
    plan = solving_apart._plan(task.outline([records] * AGENTS), graph, asked)
    short = solving_apart._without_route(plan)
    setup = [PartySetup(short, graph, 0, about.raw, about.kept, (about.fingerprint,) * AGENTS)]
    rows, baton = agent.act(setup, b"", None, 0, 0)
    act = seconds(lambda: agent.act(setup, rows, baton, 2, 1), 30)
    with open("/proc/self/status") as status:
        taken = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    load = seconds(lambda: partitions.read_part(part, task, lambda value: value), 3)
    return {"load": load, "act": act, "mb": taken / 1024}


def by_itself(ray: Any, folder: Path, dim: int) -> dict[str, float]:
    alone = ray.remote(max_calls=1)(one_agent)
    many = ray.get(alone.remote(write_parts(folder, RECORDS, dim)[0], RECORDS, dim))
    few = ray.get(alone.remote(write_parts(folder, 1, dim)[0], 1, dim))
    return {
        "gradient_ns_a_value": 1e9 * (many["act"] - few["act"]) / (RECORDS * dim),
        "step_and_noise_ms": 1e3 * few["act"],
        "load_ns_a_value": 1e9 * (many["load"] - few["load"]) / (RECORDS * dim),
        "process_mb": few["mb"],
    }


def checkpoints(folder: Path, dim: int) -> dict[str, float]:
    from relaydp.cluster.checkpoint import Keeper, Standing

    def save(agents: int) -> float:
        rows = [os.urandom(2 * 8 * dim) for _ in range(agents)]
        standing = Standing(agents, baton=np.zeros((2, dim)), rows=rows)
        keeper = Keeper(folder / "kept", "bench")
        return seconds(lambda: keeper.save(standing), 5)

    few, many = save(1), save(401)
    return {"checkpoint_ms": 1e3 * few, "checkpoint_ns_a_byte": 1e9 * (many - few) / (400 * 2 * 8 * dim)}


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--hops", type=int, default=400)
    options.add_argument("--dim", type=int, default=3072)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="relaydp-bench-") as name, connect(cores=2) as ray:
        folder = Path(name)
        found = {"dim": asked.dim, "hops": asked.hops}
        found |= hops(ray, folder, asked.dim, asked.hops)
        found |= in_one_process(asked.dim)
        found |= by_itself(ray, folder, asked.dim)
        found |= checkpoints(folder, asked.dim)
    json.dump({name: round(value, 3) for name, value in found.items()}, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
