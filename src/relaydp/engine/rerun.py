"""rerun: repeat a saved simulation, or a run without privacy, to the same bits on the same machine."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from relaydp.algorithm import Directions
from relaydp.data import Records, load_data
from relaydp.engine.solve import problem_config, solve
from relaydp.errors import InputError
from relaydp.graph import Graph
from relaydp.privacy import Budget
from relaydp.problem import Problem, build_again
from relaydp.result import Result, load_result


def rerun(
    folder: str | os.PathLike[str],
    data: Records | str | os.PathLike[str] | None = None,
    *,
    problem: Problem | None = None,
    progress: Any = None,
) -> Result:
    """Run a saved result again from its own configuration: a simulation, or a run without privacy.

    The noise of a private run was kept nowhere, so that it cannot be repeated, and is refused.

    The data is found as it was then; pass `data` (records, a name or a path) if it was made in memory or has moved, or
    the whole `problem` if it has a custom loss or regulariser. Data with another checksum is refused.
    """
    saved = load_result(folder)
    if saved.private:
        raise InputError(
            f"the run in {folder} was private: its noise was drawn from the operating system and kept nowhere, so that "
            "nobody can repeat it. Needed a simulation or a run without privacy. A new private run costs its epsilon "
            "once more; `relaydp ledger verify` checks what this one cost."
        )
    config = saved.config
    if problem is None:
        problem = build_again(config["problem"], find_records(config["problem"], data))
    _check_same(config["problem"], problem)
    asked = dict(config["solve"])
    budget = asked.pop("budget")
    prior = asked.pop("prior", None)
    shape = config["graph"]
    return solve(
        problem,
        Graph(shape["name"], shape["agents"], np.array(shape["edges"])),
        budget=None if budget is None else Budget(**budget),
        prior=None if prior is None else Directions(**{name: np.array(part) for name, part in prior.items()}),
        transcript=saved.transcript is not None,
        trace=saved.trace is not None and max(2, len(saved.trace)),
        reference=saved.reference is not None,
        progress=progress,
        **asked,
    )


def find_records(
    spec: dict[str, Any],
    data: Records | str | os.PathLike[str] | None = None,
    *,
    cure: str = "pass data= or problem=",
) -> Records:
    """The records behind a saved result's problem: `data` where it is given, else found as they were then.

    cure   what a message tells the caller to do where they are in no file
    """
    if isinstance(data, Records):
        return data
    known = spec["source"] or {}
    if data is None and not known:
        raise InputError(f"the records ({spec['data']}) were made in memory and are in no file; {cure}.")
    columns = {name: known[name] for name in ("label", "groups", "drop") if name in known}
    return load_data(known["source"] if data is None else data, **columns)


def _check_same(spec: dict[str, Any], problem: Problem) -> None:
    now = problem_config(problem)
    for key in ("data_sha256", "sizes", "order_sha256"):
        if now[key] != spec[key]:
            raise InputError(
                f"the data or its split is not what this result was made from ({key} differs); a rerun would not "
                "repeat it. Pass the original data=."
            )
