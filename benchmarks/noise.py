"""What noise costs a coordinate: `python benchmarks/noise.py [--dim Q] [--times N]`.

    secret     `draw_lattice`: words from the operating system, the exact sampler, and nothing else
    sampler    its part without the words, which are handed over
    words      the operating system's part: as many bytes as the samples take
    release    `release_secret`, which makes float64 numbers of them
    opendp     the consortium's sampler, value and noise, on the same machine in the same run

Each is the least of N times, after one that is not counted: other work on the machine only adds to it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np

from relaydp.privacy import lattice
from relaydp.privacy.secret import K, draw_lattice, release_secret
from relaydp.runtime.noise import Sampler


def least(times: int, work: Callable[[], object]) -> float:
    """Seconds of the fastest call."""
    work()
    found = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dim", type=int, default=3072, help="coordinates of a release")
    parser.add_argument(
        "--times", type=int, default=200, help="calls of which the fastest counts (OpenDP: a twentieth)"
    )
    options = parser.parse_args()
    dim, times = options.dim, options.times

    value, draws = np.zeros(dim), draw_lattice(dim)
    words, found = np.frombuffer(os.urandom(32 * dim + 4096), np.int64).copy(), np.empty(dim, np.int64)
    _, used = lattice.fill(words, found, K)
    opendp = Sampler()
    rows = {
        "secret": least(times, lambda: draw_lattice(dim)),
        "sampler": least(times, lambda: lattice.fill(words, found, K)),
        "words": least(times, lambda: os.urandom(8 * used)),
        "release": least(times, lambda: release_secret(value, 1.0, draws)),
        "opendp": least(max(1, times // 20), lambda: opendp(value, 1.0, 0.01, 0)),
    }
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores" if hasattr(os, "getloadavg") else "load unknown"
    print(f"{dim} coordinates, {used / dim:.2f} words each; {load}")
    for name, seconds in rows.items():
        print(f"{name:10} {1e9 * seconds / dim:10.0f} ns a coordinate {1e3 * seconds:10.3f} ms")
    print(f"opendp / secret {rows['opendp'] / (rows['secret'] + rows['release']):.0f}")


if __name__ == "__main__":
    main()
