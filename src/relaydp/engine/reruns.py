"""rerun: repeat a saved run that has a seed, to the same bits on the same machine."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from relaydp.data import Records, load_data
from relaydp.engine.solver import problem_config, solve
from relaydp.errors import InputError, PrivacyError
from relaydp.graph import Graph
from relaydp.oracle.randomness import check_seed
from relaydp.planning.directions import Directions
from relaydp.privacy import Budget
from relaydp.problem import Problem, build_again
from relaydp.result import Result, load_result


def rerun(
    folder: str | os.PathLike[str],
    data: Records | str | os.PathLike[str] | None = None,
    *,
    problem: Problem | None = None,
    seed: int | None = None,
    progress: Any = None,
) -> Result:
    """Run a saved result again from its own configuration: a simulation, or a run without noise.

    On the same machine the result is the same bit for bit. A private run cannot be repeated, because its noise was kept
    nowhere. With `seed` its plan is simulated instead, and that has no promise.

    Args:
        folder: A folder that `Result.save` or `relaydp run --out` wrote.
        data: The records, a name or a path, if they were made in memory or have moved. Default: found as they were
            then.
        problem: The whole problem, if it has a custom loss or regulariser, or was split by a function. Default: built
            again from the folder and the data.
        seed: Another seed: it makes another simulation. Default: None, the seed that the folder holds.
        progress: As in `solve`. Default: None, a bar when stderr is a terminal.

    Returns:
        A new Result. It has a trace, a transcript and a reference where the saved one has them.

    Raises:
        InputError: The folder is not a result folder or holds no seed, the records cannot be found, the problem cannot
            be built again, or the data or its split has another checksum.
        PrivacyError: The saved run is private, and no `seed` was passed.

    Example:
        >>> import tempfile
        >>> import relaydp as rd
        >>> problem = rd.logistic(rd.load_data("breast-cancer"), agents=4, l2=1e-2)
        >>> first = rd.solve(problem, rd.ring(4), walk="cyclic", activations=20)
        >>> with tempfile.TemporaryDirectory() as home:
        ...     again = rd.rerun(first.save(f"{home}/run"))
        >>> bool((again.x == first.x).all())
        True
    """
    saved = load_result(folder)
    config = saved.config
    asked = dict(config["solve"])
    if seed is not None:
        check_seed(seed)
        asked["seed"] = int(seed)
    elif saved.secret:
        raise PrivacyError(
            f"{folder} is a private run, which cannot be repeated: its noise came from the operating system and was "
            "kept nowhere. Pass seed=0, or any other, to simulate the same plan, without a promise; or run it "
            "anew, for another model that costs its epsilon again."
        )
    elif asked.get("seed") is None:
        raise InputError(f"{folder} holds no seed, so that it cannot be repeated; needed the whole folder, with keep/.")
    asked.pop("walk_seed", None)
    if problem is None:
        problem = build_again(config["problem"], find_records(config["problem"], data))
    _check_same(config["problem"], problem)
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
    known = spec.get("source") or {}
    if data is None and "source" not in spec:
        raise InputError(f"only keep/ says where the records ({spec['data']}) are, and it is not here; {cure}.")
    if data is None and not known:
        raise InputError(f"the records ({spec['data']}) were made in memory and are in no file; {cure}.")
    columns = {name: known[name] for name in ("label", "groups", "drop", "features") if name in known}
    return load_data(known["source"] if data is None else data, **columns)


def _check_same(spec: dict[str, Any], problem: Problem) -> None:
    now = problem_config(problem)
    for key in ("data_sha256", "sizes", "order_sha256"):
        if key in spec and now[key] != spec[key]:  # checksums are in keep/, which may not be here
            raise InputError(
                f"the data or its split is not what this result was made from ({key} differs); a rerun would not "
                "repeat it. Pass the original data=."
            )
