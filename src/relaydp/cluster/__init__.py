"""More than one machine: studies of many runs over processes or a Ray cluster, and distributed agents.

    study = read_study("study.toml")
    table = run_study(study, on="ray")     # one row per run

Names are imported when first used: Ray, JAX and Arrow are not loaded before they are needed.
"""

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Study": "relaydp.cluster.study",
    "read_study": "relaydp.cluster.study",
    "run_study": "relaydp.cluster.scheduler",
    "solve_apart": "relaydp.cluster.solving_apart",
    "solve_on_ray": "relaydp.cluster.one_node",
}

__all__ = ["Study", "read_study", "run_study", "solve_apart", "solve_on_ray"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'relaydp.cluster' has no attribute {name!r}")


if TYPE_CHECKING:
    from relaydp.cluster.one_node import solve_on_ray
    from relaydp.cluster.scheduler import run_study
    from relaydp.cluster.solving_apart import solve_apart
    from relaydp.cluster.study import Study, read_study
