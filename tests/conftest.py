"""Strict numbers for every test: float64, no silent dtype promotion, no silent rank promotion."""

import gc
import os
from pathlib import Path

# kept programs are tested in test_scale.py, and warnings are errors here
os.environ.setdefault("RELAYDP_COMPILED", "0")

import jax  # noqa: E402

import relaydp  # noqa: E402, F401

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

TESTS_BETWEEN_LOOKS, MOST_MAPPINGS = 25, 25_000
_run = 0


def pytest_runtest_teardown() -> None:
    """Let compiled programs go in time: each takes mappings of memory, and Linux allows a process 65,530 of them, which
    a worker with two thousand tests behind it would pass."""
    global _run
    _run += 1
    maps = Path("/proc/self/maps")
    if _run % TESTS_BETWEEN_LOOKS or not maps.exists():
        return
    if maps.read_bytes().count(b"\n") > MOST_MAPPINGS:
        jax.clear_caches()
        gc.collect()
