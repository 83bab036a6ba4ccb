"""What secret noise costs: `python benchmarks/noise.py [--dim Q] [--times N] [--processes N] [--whole]`.

    activation   what an activation of a consortium waits for: `Sampler.__call__`, value and noise. At 3,072 coordinates
                 it shall be below 5 ms
    opendp       the same by OpenDP's exact sampler, on the same machine in the same run (where it is installed)

and the parts of the first:

    secret       `draw_lattice`: words from the operating system, the exact sampler, and nothing else
    sampler      its part without the words, which are handed over
    words        the operating system's part: as many bytes as the samples take
    release      `release_secret`, which makes float64 numbers of them

Each is the least of N times, after one that is not counted: other work on the machine only adds to it.

    start        making the first sampler of a process, machine code from the disk included; an agent does it when it
                 starts. And the memory that it brings

Then the demo's private rows, drawn secretly and simulated, each in processes of its own that take turns:

    process      a new process, until both models are there: programs come from the disk's cache
    first        the same without imports and data
    warm         the same once more in that process, the least of several

and with --whole all of `relaydp demo`, beside `relaydp demo --seed 0`. A private one shall take 1.5 times as long at
most.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ALLOWED_MS, ALLOWED_RATIO = 5.0, 1.5
AGAIN = 5  # warm runs in a process


def least(times: int, work: Callable[[], object]) -> float:
    """Seconds of the fastest call."""
    work()
    return min(timed(work) for _ in range(times))


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


# -- a release


def opendp_release(dim: int) -> Callable[[], object] | None:
    """OpenDP's discrete Gaussian on a lattice as fine as ours, or None where it is not installed."""
    try:
        from opendp.domains import atom_domain, vector_domain
        from opendp.measurements import make_gaussian
        from opendp.metrics import l2_distance
        from opendp.mod import enable_features
    except ImportError:
        return None
    from relaydp.privacy.secret import K

    enable_features("contrib")
    space = vector_domain(atom_domain(T=float, nan=False), size=dim), l2_distance(T=float)
    measurement, value = make_gaussian(*space, scale=1.0, k=-K), np.zeros(dim)
    return lambda: np.array(measurement(value))


def measure_release(dim: int, times: int) -> None:
    from relaydp.party.noise import Sampler
    from relaydp.privacy import lattice
    from relaydp.privacy.secret import K, draw_lattice, release_secret

    sampler, value, draws = Sampler(), np.zeros(dim), draw_lattice(dim)
    words, found = np.frombuffer(os.urandom(32 * dim + 4096), np.int64).copy(), np.empty(dim, np.int64)
    _, used = lattice.fill(words, found, 1, K)
    rows = {"activation": least(times, lambda: sampler(value, 1.0, 0.01, 0))}
    peer = opendp_release(dim)
    if peer is not None:
        rows["opendp"] = least(max(1, times // 20), peer)
    rows |= {
        "secret": least(times, lambda: draw_lattice(dim)),
        "sampler": least(times, lambda: lattice.fill(words, found, 1, K)),
        "words": least(times, lambda: os.urandom(8 * used)),
        "release": least(times, lambda: release_secret(value, 1.0, draws)),
    }
    print(f"a release of {dim:,} coordinates, {used / dim:.2f} words each")
    for name, seconds in rows.items():
        print(f"  {name:12} {1e9 * seconds / dim:10.0f} ns a coordinate {1e3 * seconds:10.3f} ms")
    took = 1e3 * rows["activation"]
    print(f"  an activation spends {took:.2f} ms on noise; allowed at 3,072 coordinates: {ALLOWED_MS:g} ms")
    if peer is not None:
        print(f"  opendp / activation: {rows['opendp'] / rows['activation']:.0f}")


def start() -> dict[str, float]:
    """In a new process: what the first sampler of a process costs."""
    from relaydp.party import noise

    before = resident()
    seconds = timed(noise.Sampler)
    return {"seconds": seconds, "before": before, "after": resident()}


def resident() -> float:
    """This process's memory in MB, on Linux."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


# -- the demo


def demo_rows(seed: int | None) -> dict[str, float]:
    """In a new process: the demo's private relay and its agents alone, first and warm."""
    import relaydp as rd
    from relaydp.cli.demo import AGENTS, DELTA, EPSILON

    problem = rd.logistic(rd.load_data("fashion-small"), agents=AGENTS, l2=3e-4, record_norm=1.0)
    graph, budget = rd.ring(AGENTS), rd.Budget(EPSILON, DELTA)

    def rows() -> None:
        relay = rd.solve(problem, graph, walk="cyclic", budget=budget, seed=seed)
        rd.solve_alone(problem, budget, seed=seed)
        assert relay.private == (seed is None)

    first = timed(rows)
    again = [timed(rows) for _ in range(AGAIN)]
    return {"first": first, "warm": min(again), "again": sum(again)}


def in_a_process(*words: str) -> tuple[Any, float]:
    """What this file prints with these arguments, and the seconds that its process took."""
    began = time.perf_counter()
    ended = subprocess.run([sys.executable, __file__, *words], stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(ended.stdout), time.perf_counter() - began


def measure_demo(processes: int) -> None:
    took: dict[str, dict[str, list[float]]] = {}
    for turn in range(processes + 1):
        for kind in ("secret", "seeded"):
            found, whole = in_a_process("--child", kind)
            if turn:  # the first fills the caches
                for name, seconds in {"process": whole - found.pop("again"), **found}.items():
                    took.setdefault(name, {}).setdefault(kind, []).append(seconds)
    print(f"the demo's private rows, least of {processes} processes each, seconds")
    show_ratios({name: {kind: min(each) for kind, each in kinds.items()} for name, kinds in took.items()})


def measure_whole(processes: int) -> None:
    commands = {"secret": [], "seeded": ["--seed", "0"]}
    took: dict[str, list[float]] = {kind: [] for kind in commands}
    for turn in range(processes + 1):
        for kind, options in commands.items():
            words = [sys.executable, "-m", "relaydp", "demo", "--json", *options]
            began = time.perf_counter()
            subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
            if turn:
                took[kind].append(time.perf_counter() - began)
    print(f"all of `relaydp demo`, least of {processes} each, seconds")
    show_ratios({"demo": {kind: min(each) for kind, each in took.items()}})


def show_ratios(rows: dict[str, dict[str, float]]) -> None:
    for name, each in rows.items():
        ratio = each["secret"] / each["seeded"]
        print(f"  {name:12} secret {each['secret']:8.3f}   seeded {each['seeded']:8.3f}   ratio {ratio:.2f}")
    print(f"  allowed: {ALLOWED_RATIO:g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dim", type=int, default=3072, help="coordinates of a release")
    parser.add_argument(
        "--times", type=int, default=200, help="calls of which the fastest counts (OpenDP: a twentieth)"
    )
    parser.add_argument("--processes", type=int, default=3, help="processes of each kind of which the fastest counts")
    parser.add_argument("--whole", action="store_true", help="measure all of `relaydp demo` too: minutes")
    parser.add_argument("--child", choices=("start", "secret", "seeded"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child == "start":
        print(json.dumps(start()))
        return
    if options.child is not None:
        print(json.dumps(demo_rows(None if options.child == "secret" else 0)))
        return
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores" if hasattr(os, "getloadavg") else "load unknown")
    measure_release(options.dim, options.times)
    in_a_process("--child", "start")  # fills the cache
    starts = [in_a_process("--child", "start")[0] for _ in range(options.processes)]
    first = min(starts, key=lambda each: each["seconds"])
    grown = f"{first['before']:.0f} to {first['after']:.0f} MB"
    print(f"a process's first sampler: {first['seconds']:.2f} s, {grown}; an agent makes it as it starts")
    measure_demo(options.processes)
    if options.whole:
        measure_whole(options.processes)


if __name__ == "__main__":
    main()
