"""What masks cost: `python benchmarks/masks.py [--times N]`.

For some numbers of parties and coordinates, the time in which one party makes its masks for a lap, beside two that are
measured in the same run over as many random words, so that the ratio means something on any machine:

    mask       `masks.mask`: a key, a key stream and an addition for each of the others
    urandom    as many words from the operating system
    pass       one sum over as many float64 numbers

Each is the least of N times, after one that is not counted. And once for all laps:

    agree      the keys with all others, of which X25519 takes most
    degree     how many others that is, from a hundred parties on: t = n/10 collude, n/20 are lost, with 1e-12 to spare
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np

from relaydp.privacy.masks import agree, degree_for, mask, mask_graph, new_key, public_bytes

SIZES = [(8, 784), (32, 3072), (99, 784), (100, 784), (1000, 784), (3000, 784)]  # parties, coordinates
CHANCE = 1e-12


def least(times: int, work: Callable[[], object]) -> float:
    """Seconds of the fastest call."""
    work()
    took = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return min(took)


def measure(parties: int, count: int, times: int) -> str:
    degree, _ = degree_for(parties, parties // 10, parties // 20, CHANCE)
    graph = mask_graph(parties, degree, bytes(32))
    key = new_key()
    public = [public_bytes(key), *(public_bytes(new_key()) for _ in range(parties - 1))]
    keys, everybody, numbers = agree(key, 0, public, bytes(32), graph), range(parties), np.ones(degree * count)
    once = least(3, lambda: agree(key, 0, public, bytes(32), graph))
    laps = iter(range(times + 1))
    took = least(times, lambda: mask(keys, everybody, 0, next(laps), 0, count))
    random, whole = least(times, lambda: os.urandom(8 * degree * count)), least(times, numbers.sum)
    return (
        f"{parties:8,} {count:7,} {degree:7} {1e3 * took:9.3f} ms {took / random:9.2f} {took / whole:9.1f} "
        f"{1e3 * once:9.1f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=200, help="calls of which the fastest counts")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores" if hasattr(os, "getloadavg") else "load unknown")
    print(" parties  numbers  degree    mask a lap  / urandom    / pass      agree")
    for parties, count in SIZES:
        print(measure(parties, count, options.times), flush=True)


if __name__ == "__main__":
    main()
