"""Agreement with code nobody here wrote: decent-bench, in its own environment and process (`make test-slow`)."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest


@pytest.mark.slow
def test_nids_extra_and_admm_find_the_same_optimum_as_decent_bench():
    spec = importlib.util.spec_from_file_location("peers", Path(__file__).parents[2] / "benchmarks" / "peers.py")
    peers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peers)
    python = peers.peer_python()
    if python is None:
        pytest.skip("decent-bench needs Python 3.13 and a package registry")
    ours, theirs, best = peers.ours(), peers.theirs(python), peers.optimum()
    for name in peers.STEPS:
        assert np.abs(np.array(ours[name]["x"]) - best).max() < 1e-8
        assert np.abs(np.array(theirs[name]["x"]) - np.array(ours[name]["x"])).max() < 1e-8
        ratio = theirs[name]["seconds_an_iteration"] / ours[name]["seconds_an_iteration"]
        print(f"{name}: {ratio:.0f} times faster an iteration")
