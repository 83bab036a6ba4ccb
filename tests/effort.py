"""How much of a law's size a run of the tests can afford, and how its programs were compiled."""

import os
from importlib.metadata import version
from typing import TypeVar

import numpy as np

T = TypeVar("T")

EVERY_CASE = os.environ.get("RELAYDP_TESTS") == "all"
# XLA ends the process at a flag that it does not know, so only versions that were tried are given some.
IN_HASTE = os.environ.get("RELAYDP_TESTS") not in ("all", "shipped") and version("jaxlib").startswith("0.10.")


def size(all_: T, quick: T) -> T:
    """`all_` in `make test-all`, and what `make test` has time for otherwise."""
    return all_ if EVERY_CASE else quick


def same_bits(one: np.ndarray, two: np.ndarray) -> bool:
    """Whether two programs gave the same bits. With fewer optimisations sums may round in two ways: then, nearly."""
    if IN_HASTE:
        return one.shape == two.shape and bool(np.allclose(one, two, rtol=1e-9, atol=1e-12))
    return one.tobytes() == two.tobytes()
