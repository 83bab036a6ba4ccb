"""A study: data sets x agents x graphs x walks x algorithms x activations x budgets, each with many seeds.

    [study]                       lists: what is varied
    [data] [problem] [graph] [run]   what is fixed, as in the file of `relaydp run`
    [resources]                   what one task may use

One combination is a `Case`: the input of one `relaydp run`, where only the seed varies. Runs with a seed are
simulations: a study guarantees nothing, and reports what its plans would cost.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from relaydp import defaults
from relaydp._toml import line_of
from relaydp.errors import InputError, choose, short
from relaydp.settings.config import (
    TRUSTING,
    Config,
    DataSection,
    GraphSection,
    ProblemSection,
    RunSection,
    Section,
)
from relaydp.settings.values import all_algorithms, all_walks, as_agents, as_kind, as_source, is_path, named

# The first block of a case pays for its plan and its program, some seconds; later ones stay with the worker that has
# both. Then 64 private runs on digits take one or two seconds: short enough to distribute evenly, and to repeat if
# lost. It is a constant, not a function of the cores, because a batch's length is part of the program and so of the
# last digits: the same study gives the same table on every machine of one type.
BLOCK = 64
MOST_SEEDS, MOST_RUNS = 10**6, 10**7
# the axes, in the order of the table's rows; each puts its value at this place of a run's file
AXES = {
    "data": ("data", "source"),
    "agents": ("problem", "agents"),
    "graphs": ("graph", "kind"),
    "algorithms": ("run", "algorithm"),
    "walks": ("run", "walk"),
    "activations": ("run", "activations"),
    "budgets": ("run", "epsilon"),
}
NONE = "none"  # the budget of a run without privacy
# settings of a budget, which are left out of runs without one
OF_A_BUDGET = ("epsilon", "delta", "mechanism", "variant", "ratio", "limits", "prior", "account", "allow_large_delta")
OF_A_BUDGET += TRUSTING


def _filled(value: Any) -> Any:
    if isinstance(value, list) and not value:
        raise InputError("a list to vary is empty; it must have at least one value. Add one, or leave the key out.")
    return value


def as_budget(value: Any) -> Any:
    """A number (an epsilon), a table of epsilon and delta, or "none"."""
    if value == NONE:
        return NONE
    table = value if isinstance(value, dict) else {"epsilon": value}
    good = "epsilon" in table and all(_number(part) for part in table.values())
    if not good or not table.keys() <= {"epsilon", "delta"}:
        raise InputError(
            f"budget {short(value)} cannot be used; it must be an epsilon such as 1.0, {{ epsilon = 1.0, delta = 1e-5 "
            "}, or "
            '"none".'
        )
    try:
        RunSection.model_validate({name: float(part) for name, part in table.items()})
    except ValidationError as error:
        raise InputError(_said(error.errors(include_url=False)[0])) from None
    return {name: float(part) for name, part in table.items()}


def as_seeds(value: Any) -> list[int]:
    """A count n, for 0 to n - 1, or a list of different numbers."""
    if type(value) is int and 1 <= value <= MOST_SEEDS:
        return list(range(value))
    listed: list[Any] = value if isinstance(value, list) and len(value) <= MOST_SEEDS else []
    if listed and all(type(seed) is int and 0 <= seed < 2**63 for seed in listed) and len(set(listed)) == len(listed):
        return list(listed)
    raise InputError(
        f"seeds = {short(value)}; it must be a count from 1 to {MOST_SEEDS:,}, or a list of different numbers."
    )


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


Filled = BeforeValidator(_filled)


class StudySection(Section):
    """[study]: what is varied. Everything else is fixed, by its table or by its default."""

    name: Annotated[str, Field(min_length=1, max_length=200)] = "study"
    data: Annotated[list[Annotated[str, AfterValidator(as_source)]] | None, Filled] = None
    agents: Annotated[list[Annotated[Any, BeforeValidator(as_agents)]] | None, Filled] = None
    graphs: Annotated[list[Annotated[str, AfterValidator(as_kind)]] | None, Filled] = None
    algorithms: Annotated[list[Annotated[str, named("algorithm", all_algorithms)]] | None, Filled] = None
    walks: Annotated[list[Annotated[str, named("walk", all_walks)]] | None, Filled] = None
    activations: Annotated[list[Annotated[int, Field(ge=1, lt=2**31)]] | None, Filled] = None
    budgets: Annotated[list[Annotated[Any, BeforeValidator(as_budget)]] | None, Filled] = None
    seeds: Annotated[list[int], BeforeValidator(as_seeds)] = list(range(16))
    block: Annotated[int, Field(ge=1, le=MOST_SEEDS)] = BLOCK  # seeds per task, at most


class ResourcesSection(Section):
    """[resources]: what one task gets. It changes the numbers by rounding only.

    `shards` in the models, since each is a batch of its own; `cpus` in what is measured against x* (excess, relative
    error), since the solver that finds x* sums in the order of its threads.
    """

    cpus: Annotated[int, Field(ge=1)] = 1  # cores, and threads, of a worker
    gpus: Annotated[int, Field(ge=0)] = 0
    shards: Annotated[int, Field(ge=1)] = 1  # parts of a block, each a batch of its own, spread over the devices


class StudyFile(Section):
    study: StudySection = StudySection()
    data: DataSection = DataSection()
    problem: ProblemSection = ProblemSection()
    graph: GraphSection = GraphSection()
    run: RunSection = RunSection()
    resources: ResourcesSection = ResourcesSection()


@dataclass(frozen=True)
class Case:
    """One combination: the tables of a run's file, and the coordinates that the results' rows show."""

    tables: Mapping[str, Mapping[str, Any]]
    coordinates: Mapping[str, Any]


@dataclass(frozen=True)
class Study:
    """What a study is to run. `Study.of({...})` makes one from tables, `read_study` from a file.

    Attributes:
        name: The study's name.
        cases: Its combinations, in the order of the results' rows. `coordinates` of a case says which one it is.
        seeds: The seeds that each case is run with.
        block: How many seeds one task has, at most.
        resources: What one task may use.
        runs: The number of runs: cases times seeds.

    Example:
        >>> from relaydp.cluster import Study
        >>> study = Study.of({"study": {"data": ["breast-cancer"], "budgets": [1.0, "none"], "seeds": 4}})
        >>> study.runs
        8
        >>> [(case.coordinates["algorithm"], case.coordinates["epsilon_asked"]) for case in study.cases]
        [('auto', 1.0), ('auto', None)]
    """

    name: str
    cases: tuple[Case, ...]
    seeds: tuple[int, ...]
    block: int = BLOCK
    resources: ResourcesSection = ResourcesSection()

    @classmethod
    def of(cls, tables: Mapping[str, Any], name: str = "the study", text: str = "") -> Study:
        """Make a study from tables, as read from TOML.

        Args:
            tables: The tables [study], [data], [problem], [graph], [run] and [resources], each a dict.
            name: What errors call the study. Default: "the study".
            text: The TOML text, so that errors can name the line. Default: none.

        Returns:
            The Study.

        Raises:
            InputError: A key or a value is not one that a study has, or the study has too many runs.
        """
        try:
            file = StudyFile.model_validate(dict(tables))
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            at = tuple(str(part) for part in fault["loc"])
            raise InputError(f"{_spot(name, text, at)}: {_said(fault)}") from None
        _check_given_once(tables, name, text)
        cases = tuple(_cases(file, tables))
        if len(cases) * len(file.study.seeds) > MOST_RUNS:
            raise InputError(
                f"{name} asks for {len(cases):,} combinations of {len(file.study.seeds):,} seeds; a study has at most "
                f"{MOST_RUNS:,} runs. Shorten a list."
            )
        return cls(file.study.name, cases, tuple(file.study.seeds), file.study.block, file.resources)

    @property
    def runs(self) -> int:
        """The number of runs: cases times seeds."""
        return len(self.cases) * len(self.seeds)

    def blocks(self) -> list[tuple[int, ...]]:
        """The seeds in blocks of nearly equal length: at most two lengths, so at most two programs per case."""
        count = -(-len(self.seeds) // self.block)
        each, over = divmod(len(self.seeds), count)
        ends = list(itertools.accumulate([each + 1] * over + [each] * (count - over), initial=0))
        return [self.seeds[low:high] for low, high in itertools.pairwise(ends)]

    @cached_property
    def digest(self) -> str:
        """A hash of what is computed: cases, seeds, and how they are split. It does not cover the study's name and
        resources."""
        tables = [case.tables for case in self.cases]
        content = {"cases": tables, "blocks": self.blocks(), "shards": self.resources.shards}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_study(path: str | Path) -> Study:
    """Read a study from a TOML file. Paths in it are relative to its own folder.

    Args:
        path: The file. examples/study.toml shows all keys.

    Returns:
        The Study.

    Raises:
        InputError: The file cannot be read, is not TOML, or has a key or a value that a study does not have.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read ({error}); it must be a TOML file. Check the path.") from error
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        at = re.search(r"\(at line (\d+)", str(error))
        spot = f"{file}, line {at[1]}" if at else str(file)
        raise InputError(
            f"{spot}: this is not TOML: {error}. Texts need quotes, and tables look like [study]."
        ) from None
    return Study.of(_placed(tables, file.parent.absolute()), str(file), text)


def _placed(tables: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The same with paths made absolute: workers may start elsewhere."""

    def place(section: str, value: Any) -> Any:
        if isinstance(value, list):
            return [place(section, part) for part in value]
        if isinstance(value, str) and (section == "file" or is_path(section, value)):
            return str(folder / Path(value).expanduser())
        return value

    spots = (("study", "data", "data"), ("study", "graphs", "graph"), ("data", "source", "data"))
    spots += (("graph", "kind", "graph"), ("graph", "file", "file"), ("run", "prior", "data"))
    placed = dict(tables)
    for table, key, section in spots:
        if isinstance(placed.get(table), dict) and key in placed[table]:
            placed[table] = {**placed[table], key: place(section, placed[table][key])}
    return placed


def _check_given_once(tables: Mapping[str, Any], name: str, text: str) -> None:
    """A key is varied or fixed, never both; a study has `seeds` instead of a run's `seed`."""
    varied = tables.get("study", {})
    for axis, (section, key) in AXES.items():
        if axis in varied and key in tables.get(section, {}):
            raise InputError(
                f"{_spot(name, text, (section, key))}: {section}.{key} is fixed here and varied by study.{axis}; leave "
                "one out."
            )
    if "graphs" in varied and (twice := tables.get("graph", {}).keys() & {"edges", "file"}):
        raise InputError(f"{name}: graph.{min(twice)} is fixed and study.graphs varies it; leave one out.")
    if "seed" in tables.get("run", {}):
        raise InputError(f"{_spot(name, text, ('run', 'seed'))}: a study has many seeds; put seeds = ... in [study].")
    if "account" in tables.get("run", {}):
        raise InputError(
            f"{_spot(name, text, ('run', 'account'))}: the runs of a study are simulations, which guarantee nothing "
            "and are not charged to an account; leave the account out."
        )
    if "budgets" in varied and "delta" in tables.get("run", {}):
        for budget in varied["budgets"]:
            if isinstance(budget, dict) and "delta" in budget:
                raise InputError(
                    f"{name}: run.delta is fixed and a budget of study.budgets has its own; leave one out."
                )


def _cases(file: StudyFile, tables: Mapping[str, Any]) -> Iterator[Case]:
    from relaydp.algorithm import ALGORITHMS

    fixed = {name: dict(tables.get(name, {})) for name in ("data", "problem", "graph", "run")}
    lists: list[list[Any]] = []
    for axis, (section, key) in AXES.items():
        default = getattr(getattr(file, section), key)
        lists.append(getattr(file.study, axis) or [{"epsilon": default} if axis == "budgets" and default else default])
    seen: set[str] = set()
    for values in itertools.product(*lists):
        spot = dict(zip(AXES, values, strict=True))
        name = spot["algorithms"]
        if name != "auto" and ALGORITHMS[name].kind != "relay":  # whatever auto stands for is a relay
            spot["walks"] = None  # no walk is used, so several walks make one case
        budget = spot["budgets"] if isinstance(spot["budgets"], dict) else None
        made = Config.model_validate(_tables_at(fixed, spot, budget)).model_dump(mode="json")
        identity = json.dumps(made, sort_keys=True)
        if identity in seen:
            continue
        seen.add(identity)
        yield Case(made, _coordinates(made, spot, budget))


def _tables_at(
    fixed: dict[str, dict[str, Any]], spot: dict[str, Any], budget: dict[str, float] | None
) -> dict[str, dict[str, Any]]:
    """The tables of one case: those of the study, with the values of this spot on the axes."""
    made = {name: dict(table) for name, table in fixed.items()}
    for axis, value in spot.items():
        section, key = AXES[axis]
        if axis != "budgets" and value is not None:
            made[section][key] = value
    if spot["walks"] is None:
        made["run"].pop("walk", None)
    if budget is None:
        made["run"] = {key: value for key, value in made["run"].items() if key not in OF_A_BUDGET}
    else:
        made["run"] |= budget
    return made


def _coordinates(made: dict[str, Any], spot: dict[str, Any], budget: dict[str, float] | None) -> dict[str, Any]:
    agents, graph = made["problem"]["agents"], made["graph"]
    run = made["run"]
    return {
        "data": made["data"]["source"],
        "loss": made["problem"]["loss"],  # None: chosen by the classes
        "agents_asked": str(defaults.AGENTS if agents is None and not graph["file"] and not graph["edges"] else agents),
        "graph": graph["kind"] or graph["file"] or ("edges" if graph["edges"] else "ring"),
        "algorithm": run["algorithm"],
        "walk": spot["walks"],
        "activations_asked": run["activations"],
        "mechanism": run["mechanism"] if budget is not None else NONE,
        "epsilon_asked": None if budget is None else budget["epsilon"],
        "delta_asked": None if budget is None else budget.get("delta", run["delta"] or defaults.DELTA),
    }


def _spot(name: str, text: str, at: tuple[str, ...]) -> str:
    line = line_of(text, at) if text else None
    return name if line is None else f"{name}, line {line}"


def _said(fault: Any) -> str:
    """One of pydantic's errors in our words."""
    at = [str(part) for part in fault["loc"]]
    cause = fault.get("ctx", {}).get("error")
    if fault["type"] == "extra_forbidden":
        known = StudyFile.model_fields if len(at) == 1 else StudyFile.model_fields[at[0]].annotation.model_fields  # type: ignore[union-attr]
        try:
            choose("table" if len(at) == 1 else f"key in [{at[0]}]", at[-1], known)
        except InputError as error:
            return str(error)
    if isinstance(cause, ValueError):
        return str(cause)
    if fault["type"] in ("model_type", "model_attributes_type"):
        return f"{at[0]} = {short(fault['input'])}; it must be a table, [{at[0]}]."
    needed = re.sub(r"^Input should be ", "", fault["msg"])
    return f"{'.'.join(at)} = {short(fault['input'])}; it must be {needed}."
