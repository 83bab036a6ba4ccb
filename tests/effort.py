"""How much of a law's size a run of the tests can afford."""

import os
from typing import TypeVar

T = TypeVar("T")


def size(all_: T, quick: T) -> T:
    """`all_` in `make test-all`, and what `make test` has time for otherwise."""
    return all_ if os.environ.get("RELAYDP_TESTS") == "all" else quick
