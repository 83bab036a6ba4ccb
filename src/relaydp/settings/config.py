"""What a run is made of: a TOML file, flags over it, and one way from both to a problem, a graph and solve's arguments.

    read_config(file, flags)  ->  Config  ->  build(config)  ->  (problem, graph, keyword arguments of solve)

A mistake becomes one InputError that names the option, or the file, line and key; the value; and what is allowed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo

from relaydp import defaults
from relaydp._toml import line_of
from relaydp.errors import InputError, PrivacyError, choose, short
from relaydp.settings.values import (
    MECHANISMS,
    OBJECTIVES,
    REGULARISERS,
    TRUSTS,
    VARIANTS,
    all_algorithms,
    all_walks,
    as_agents,
    as_classes,
    as_delta,
    as_edges,
    as_epsilon,
    as_kind,
    as_limits,
    as_list,
    as_loss,
    as_names,
    as_one_hot,
    as_ranges,
    as_regulariser,
    as_source,
    as_steps,
    is_path,
    named,
)

if TYPE_CHECKING:
    from relaydp.data import Records
    from relaydp.graph import Graph
    from relaydp.problem import Facts, Problem, ProblemSpec

MOST_CLASSES = 20  # more different whole-number labels than this are numbers, not classes


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class Section(BaseModel):
    """A table of the file. Strict: "1" is not 1, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class DataSection(Section):
    source: Annotated[str, AfterValidator(as_source)] = defaults.DATA
    label: str | None = None
    groups: Annotated[list[str], BeforeValidator(as_names)] = []
    drop: Annotated[list[str], BeforeValidator(as_names)] = []
    features: Annotated[int, Field(ge=1, lt=2**31)] | None = None  # PUBLIC: their number, which LIBSVM files do not say


class ProblemSection(Section):
    loss: Annotated[str, AfterValidator(as_loss)] | None = None  # by the classes; without privacy by the labels
    classes: Annotated[Any, BeforeValidator(as_classes)] = None  # PUBLIC: every label there may be
    agents: Annotated[int | str | list[int] | None, BeforeValidator(as_agents)] = None  # 8, or as the graph has
    l1: Weight = defaults.L1
    l2: Weight = defaults.L2
    regulariser: Annotated[dict[str, Any] | None, BeforeValidator(as_regulariser)] = None
    intercept: bool = defaults.INTERCEPT
    record_norm: Positive | Literal["typical"] | None = None  # typical: guessed from ranges
    ranges: Annotated[Any, BeforeValidator(as_ranges)] = None
    one_hot: Annotated[Any, BeforeValidator(as_one_hot)] = None  # PUBLIC: at most one column of a group is not 0
    clip: Positive | None = None
    label_bound: Positive | None = None
    threshold: Positive | None = None


class GraphSection(Section):
    kind: Annotated[str, AfterValidator(as_kind)] | None = None
    edges: Annotated[Any, BeforeValidator(as_edges)] = None
    file: str | None = None
    seed: Seed = 0  # of random graphs; apart from the run's, so that seeds are compared on one graph


def _steps_of_algorithm(value: object, known: ValidationInfo) -> str | dict[str, Any]:
    """Steps by the names that this run's algorithm has; a wrong algorithm is reported by its own check."""
    algorithm = known.data.get("algorithm")
    return as_steps(value, defaults.ALGORITHM if algorithm is None else algorithm)


class RunSection(Section):
    algorithm: Annotated[str, named("algorithm", all_algorithms)] = defaults.ALGORITHM
    mechanism: Annotated[str, named("mechanism", MECHANISMS)] | None = None
    variant: Annotated[str, named("variant", VARIANTS)] | None = None
    epsilon: Annotated[float, AfterValidator(as_epsilon)] | None = None
    delta: Annotated[float, AfterValidator(as_delta)] | None = None
    activations: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    walk: Annotated[str, named("walk", all_walks)] = defaults.WALK
    steps: Annotated[Any, BeforeValidator(_steps_of_algorithm)] = defaults.STEPS
    objective: Annotated[str, named("objective", OBJECTIVES)] | None = None
    ratio: Positive | None = None
    limits: Annotated[dict[int, float] | None, BeforeValidator(as_limits)] = None  # epsilon of agents that allow less
    trust: Annotated[str, named("trust", TRUSTS)] | None = None  # whom the promise is against
    collusion: Annotated[int, Field(ge=1, lt=2**31)] | None = None  # the most parties that collude, instead of trust
    quorum: Annotated[int, Field(ge=2, lt=2**31)] | None = None  # the fewest parties in a lap
    prior: Annotated[str, AfterValidator(as_source)] | None = None  # public records to plan for
    seed: Seed | None = None  # a number makes the run a simulation
    start: Annotated[int, Field(ge=0)] = defaults.START
    account: str | None = None  # a file that private runs over the same records are charged to
    allow_large_delta: bool = False


class ApartSection(Section):
    """Of a run over files, one per agent, each read by a process of its own: `relaydp run --on ray`."""

    columns: Annotated[list[str] | None, BeforeValidator(as_names)] = None  # the features, in order
    checkpoint: str | None = None  # a folder that the state is saved in and continued from


class Config(Section):
    data: DataSection = DataSection()
    problem: ProblemSection = ProblemSection()
    graph: GraphSection = GraphSection()
    run: RunSection = RunSection()
    apart: ApartSection = ApartSection()


class AttackSection(Section):
    """`relaydp attack`: which runs are attacked, and how."""

    run: str | None = None  # a saved run's folder, instead of fresh runs
    data: Annotated[str, AfterValidator(as_source)] | None = None
    records: Annotated[int, Field(ge=2, lt=2**31)] | None = None
    mechanism: Annotated[list[str] | None, BeforeValidator(as_names)] = None
    epsilon: Annotated[list[Annotated[float, AfterValidator(as_epsilon)]] | None, BeforeValidator(as_list)] = None
    delta: Annotated[float, AfterValidator(as_delta)] | None = None
    variant: Annotated[str, named("variant", VARIANTS)] | None = None
    activations: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    l1: Weight | None = None
    l2: Weight | None = None
    intercept: bool | None = None
    record_norm: Positive | None = None
    method: Annotated[list[str] | None, BeforeValidator(as_names)] = None
    iterations: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    restarts: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    seed: Seed | None = None


class AttackConfig(Section):
    """A file of `relaydp attack`."""

    attack: AttackSection = AttackSection()


SECTIONS: dict[str, type[Section]] = {
    "data": DataSection,
    "problem": ProblemSection,
    "graph": GraphSection,
    "run": RunSection,
    "apart": ApartSection,
}
ATTACKED: dict[str, type[Section]] = {"attack": AttackSection}
TRUSTING = ("trust", "collusion", "quorum")  # whom the promise is against
ALWAYS_PATHS = ("file", "account", "checkpoint", "run")  # keys whose value is a path, whatever it looks like
# where each flag goes; --record-norm is record_norm here
FLAGS = {
    "data": ("data", "source"),
    "graph": ("graph", "kind"),
    **{name: ("data", name) for name in ("label", "groups", "drop", "features")},
    **{name: ("problem", name) for name in ("loss", "agents", "l2", "intercept", "record_norm", "ranges")},
    **{name: ("problem", name) for name in ("classes", "label_bound")},
    **{name: ("run", name) for name in ("algorithm", "mechanism", "epsilon", "delta", "activations", "walk", "steps")},
    **{name: ("run", name) for name in ("seed", "account", "collusion")},
}


def read_config(file: Path | None = None, flags: Mapping[str, Any] | None = None) -> Config:
    """The settings of a file, with flags put over them."""
    table = {} if file is None else read_toml(file)
    given = {} if flags is None else dict(flags)
    if "data" in given:
        table["data"] = {}  # columns are named for the data they belong to
    if "graph" in given:
        table["graph"] = {key: value for key, value in table.get("graph", {}).items() if key == "seed"}
    if given.get("mechanism") == "none" and "epsilon" not in given:
        # the file's privacy is what the flag takes away
        asked_for = ("epsilon", "delta", "ratio", "variant", "limits", "prior", "account", "allow_large_delta")
        asked_for += TRUSTING
        table["run"] = {key: value for key, value in table.get("run", {}).items() if key not in asked_for}
    if "seed" in given:  # a simulation, which the file's account is not charged for
        table["run"] = {key: value for key, value in table.get("run", {}).items() if key != "account"}
    for flag, value in given.items():
        section, key = FLAGS[flag]
        table[section] = {**table.get(section, {}), key: value}
    try:
        return _with_norm(Config.model_validate(table))
    except ValidationError as error:
        # The file was checked before the flags went over it, so a flag is at fault.
        names = {".".join(place): "--" + flag.replace("_", "-") for flag, place in FLAGS.items()}
        raise InputError(_fault(error, table, lambda at: names.get(".".join(at[:2]), "flags"))) from None


def _with_norm(config: Config) -> Config:
    """With a budget and ranges, records are shrunk to what is typical, as the estimators do: noise pays for the norm.

    Not where `one_hot` says more, nor where every agent has a file of its own, whose columns nobody has seen.
    """
    wanted, run = config.problem, config.run
    noisy = run.epsilon is not None and run.mechanism in (None, "gradient")
    said = wanted.record_norm is not None or wanted.one_hot is not None
    bounded = wanted.ranges is not None and not isinstance(wanted.ranges, str)
    if said or not noisy or not bounded or set("*?[") & {*config.data.source}:
        return config
    return config.model_copy(update={"problem": wanted.model_copy(update={"record_norm": "typical"})})


def read_toml(file: Path, model: type[Section] = Config) -> dict[str, dict[str, Any]]:
    """A TOML file's tables, checked. Paths in it are made relative to the file's own folder."""
    if file.suffix.lower() != ".toml" and is_path("data", file.name):
        raise InputError(f"{file} is not a TOML file of settings; records are given by --data {file}.")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read ({error}); needed a TOML file. Check the path.") from error
    table = parse_toml(text, str(file), model)
    places = (("data", "source"), ("graph", "file"), ("graph", "kind"), ("run", "prior"), ("run", "account"))
    for section, key in (*places, ("apart", "checkpoint"), ("attack", "data"), ("attack", "run")):
        value = table.get(section, {}).get(key)
        if isinstance(value, str) and (key in ALWAYS_PATHS or is_path(section, value)):
            table[section][key] = str(file.parent / Path(value).expanduser())
    return table


def read_attack(file: Path) -> AttackSection:
    """The [attack] table of a file."""
    return AttackConfig.model_validate(read_toml(file, AttackConfig)).attack


def parse_toml(text: str, name: str, model: type[Section] = Config) -> dict[str, dict[str, Any]]:
    """Read and check TOML text; `name` is what errors call it."""
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise InputError(f"{name} nests its values too deeply to be read; needed four plain tables.") from None
    except ValueError as error:  # TOMLDecodeError, and numbers beyond what Python reads
        at = re.search(r"\(at line (\d+)", str(error))
        spot = f"{name}, line {at[1]}" if at else name
        raise InputError(f"{spot}: this is not TOML: {error}. Texts need quotes, tables look like [run].") from None
    try:
        model.model_validate(table)
    except ValidationError as error:

        def where(at: tuple[str, ...]) -> str:
            line = line_of(text, at)
            return name if line is None else f"{name}, line {line}"

        raise InputError(_fault(error, table, where, ATTACKED if model is AttackConfig else SECTIONS)) from None
    return table


def _fault(
    error: ValidationError,
    given: object,
    where: Callable[[tuple[str, ...]], str],
    sections: Mapping[str, type[Section]] = SECTIONS,
) -> str:
    """The first of pydantic's errors about what was given, in our words."""
    faults = error.errors(include_url=False)
    first = faults[0]
    at = _place(given, first["loc"])
    cause = first.get("ctx", {}).get("error")
    if first["type"] == "extra_forbidden":
        said = _unknown(at, sections)
    elif isinstance(cause, ValueError):
        said = str(cause)
    elif first["type"] in ("model_type", "model_attributes_type", "dict_type"):
        said = f"{at[0]} = {short(first['input'])}; needed a table, [{at[0]}]."
    else:
        needed = re.sub(r"^Input should be (an? )?(valid )?", "", first["msg"])
        article = "a number " if needed.startswith(("greater", "less")) else "a "
        article = "" if needed.startswith(("a ", "one ")) else "an " if needed[:1] in "aeiou" else article
        said = f"{'.'.join(at)} = {short(first['input'])}; needed {article}{needed}."
    more = f" ({len(faults) - 1} more such after it.)" if len(faults) > 1 else ""
    return f"{where(at)}: {said}{more}"


def _place(given: object, parts: tuple[str | int, ...]) -> tuple[str, ...]:
    """Where a fault is: the keys that lead there in what was given.

    Of a value that may be of several kinds, pydantic adds which kind it was tried as, which is no key.

    >>> _place({"run": {"steps": {"alpha": "x"}}}, ("run", "steps", "dict[str,float]", "alpha", "float"))
    ('run', 'steps', 'alpha')
    """
    at = []
    for part in parts:
        if isinstance(given, dict) and part in given:
            given = given[part]
        elif isinstance(given, list) and isinstance(part, int) and part < len(given):
            given = given[part]
        else:
            continue
        at.append(str(part))
    return tuple(at)


def _unknown(at: tuple[str, ...], sections: Mapping[str, type[Section]]) -> str:
    """An unknown section, or an unknown key of one; a key of another section is sent there."""
    key = at[-1]
    homes = [name for name, model in sections.items() if key.replace("-", "_") in model.model_fields]  # as in a flag
    if homes and homes != [at[0]]:
        here = f"in [{at[0]}]" if len(at) > 1 else "outside a table"
        return f"key {key!r} does not belong {here}; put it in [{homes[0]}]."
    try:
        choose(
            "table" if len(at) == 1 else f"key in [{at[0]}]",
            key,
            sections[at[0]].model_fields if len(at) > 1 else sections,
        )
    except InputError as error:
        return str(error)
    raise AssertionError("pydantic refuses only keys that no model has")


def build(config: Config, simulated: bool = False) -> tuple[Problem, Graph, dict[str, Any]]:
    """What a Config means: the problem, the graph, and the other arguments of solve.

    A private run's loss and classes are declared, never read off the records. `simulated` is for who draws the noise
    from seeds of its own, and promises nothing.
    """
    asked = solve_arguments(config.run)  # first, because it costs nothing
    for key, value in config.apart:
        if value is not None:
            raise InputError(
                f"{key} = {short(value)} in [apart] is for one process per agent; run it with --on ray and a pattern "
                "of files, source = 'PATTERN' in [data], or leave it out."
            )
    size = config.problem.agents
    graph = None if size is not None else make_graph(config.graph, None)
    split = graph.agents if size is None and graph is not None else size
    problem = make_problem(config, split, private=is_private(config.run) and not simulated)
    if problem.agents < 2 and isinstance(size, str):
        raise InputError(
            f"column {size!r} holds one value only, {problem.split.names[0]!r}, which makes one agent; needed two. "
            f"Name another column by --agents, or pass a count such as --agents 4 --drop {size} to deal out the rows."
        )
    if config.run.prior is not None:
        loss = problem.spec["loss"].replace("_", "-")
        asked["prior"] = make_prior(config, config.run.prior, loss, problem.data.features, problem.scale)
    return problem, graph or make_graph(config.graph, problem.agents), asked


def build_unseen(config: Config, sizes: list[int], features: int) -> tuple[Facts, Graph, dict[str, Any]]:
    """The same without any records: public facts stand for the problem."""
    asked, wanted = solve_arguments(config.run), config.problem
    if isinstance(wanted.ranges, str):
        raise InputError(f"ranges={wanted.ranges!r} needs records, and there are none; pass LOW,HIGH, or leave it out.")
    chosen = wanted.loss or _loss_asked(wanted) or "logistic"
    spec = _spec_of(wanted, chosen, wanted.ranges, features)
    spec = replace(spec, record_norm=_norm_asked(wanted, features, None), one_hot=None)
    if chosen == "softmax" and spec.classes is None:
        raise InputError("loss 'softmax' needs classes, every label there may be: --classes a,b,c.")
    if chosen == "logistic" and len(spec.classes or (0, 1)) != 2:
        raise InputError(f"{len(spec.classes or ())} classes with loss 'logistic', which has two; softmax takes more.")
    facts = spec.facts(sizes)
    if config.run.prior is not None:
        asked["prior"] = make_prior(config, config.run.prior, chosen, features, wanted.ranges)
    return facts, make_graph(config.graph, len(sizes)), asked


def build_apart(config: Config) -> tuple[list[str], Graph, dict[str, Any]]:
    """What a Config means where the data is a pattern, one file per agent: files, graph, arguments of solve_apart."""
    import glob

    asked, wanted = solve_arguments(config.run), config.problem
    if refused := next((name for name in TRUSTING if name in asked), None):
        raise InputError(
            f"{refused} = {asked[refused]} is not for one process per agent yet, where every agent hides its records "
            "by its own noise; leave it out, or run all agents in one process, without --on ray."
        )
    if asked["algorithm"] == defaults.ALGORITHM:
        asked["algorithm"] = "recal"  # distributed agents cannot go by laps, which relay-gradient does
    files = sorted(glob.glob(str(Path(config.data.source).expanduser())))
    if len(files) < 2:
        raise InputError(f"--data {config.data.source!r} matches {len(files)} files; needed one per agent, 2 or more.")
    if wanted.agents not in (None, len(files)) or config.data.groups or config.data.drop:
        raise InputError(
            f"--agents, --groups and --drop do not apply to {len(files)} files with one agent each; leave them out. "
            "columns in [apart] of a TOML file says which columns are used."
        )
    if asked.pop("variant", None) is not None:
        raise InputError("distributed agents support mechanism 'gradient' or none, without a variant; leave it out.")
    loss = wanted.loss or _loss_asked(wanted) or "logistic"
    asked |= {name: getattr(wanted, name) for name in ("l1", "l2", "intercept", "record_norm", "ranges", "clip")}
    asked |= _options_of(wanted, loss) | {"loss": loss, "features": config.data.features}
    names = config.apart.columns
    asked |= {"label": config.data.label, "columns": names, "checkpoint": config.apart.checkpoint}
    asked["record_norm"] = _norm_asked(wanted, len(names or ()) or config.data.features or 0, names)
    if wanted.regulariser is not None:
        asked["regulariser"] = _make_regulariser(wanted.regulariser)
    if config.run.prior is not None:
        width = len(asked["columns"] or ()) or config.data.features or 0
        asked["prior"] = make_prior(config, config.run.prior, loss, width, wanted.ranges)
    return files, make_graph(config.graph, len(files)), asked


def _norm_asked(wanted: ProblemSection, features: int, columns: list[str] | None) -> float | None:
    """record_norm, given or as ranges and one_hot make it: for problems that are planned before they are built."""
    if isinstance(wanted.record_norm, float) or (wanted.one_hot is None and wanted.record_norm is None):
        return wanted.record_norm
    from relaydp.problem import bounds

    asked = wanted.ranges
    scale = None if asked is None else bounds.scale_between(*bounds.as_ranges(asked, features))
    if wanted.record_norm is not None:
        return bounds.typical_norm(scale)
    return bounds.norm_bound(features, bounds.as_groups(wanted.one_hot, features, columns), scale)


def is_private(run: RunSection) -> bool:
    """Whether this is a run with a promise: a budget, a sound mechanism, and noise without a seed."""
    return run.epsilon is not None and run.seed is None and run.mechanism not in ("published", "none")


def solve_arguments(run: RunSection) -> dict[str, Any]:
    """[run] as keyword arguments of solve, but for the account, which is opened where a run is charged."""
    from relaydp.privacy import Budget

    asked = run.model_dump(include={"algorithm", "activations", "walk", "steps", "seed", "start"})
    if run.epsilon is not None:
        delta = defaults.DELTA if run.delta is None else run.delta
        asked["budget"] = Budget(run.epsilon, delta, allow_large_delta=run.allow_large_delta)
    elif run.delta is not None:
        raise InputError(f"delta={run.delta:g} without epsilon; a private run needs both. Add epsilon.")
    if run.mechanism == "none" and run.epsilon is not None:
        raise InputError(f"mechanism 'none' with epsilon={run.epsilon:g}; leave one out. 'gradient' is sound.")
    if run.mechanism not in (None, "none") and run.epsilon is None:
        raise InputError(f"mechanism {run.mechanism!r} without epsilon; add the budget, or leave both out.")
    if run.mechanism is not None:
        asked["mechanism"] = None if run.mechanism == "none" else run.mechanism
    if run.variant is not None:
        if run.mechanism != "published":
            raise InputError(
                f"variant={run.variant!r} belongs to mechanism 'published'; ask for that, or leave it out."
            )
        asked["variant"] = run.variant
    if run.objective is not None:
        asked["objective"] = run.objective
    if run.ratio is not None:
        if run.epsilon is None:
            raise InputError(
                f"ratio={run.ratio:g} shapes the noise, and this run has none; add epsilon, or leave it out."
            )
        asked["ratio"] = run.ratio
    if run.limits:
        asked["limits"] = run.limits
    whom = {name: getattr(run, name) for name in TRUSTING if getattr(run, name) is not None}
    for name, value in (("limits", run.limits), ("prior", run.prior), ("account", run.account), *whom.items()):
        if value and run.epsilon is None:
            raise InputError(f"{name} = {value} belongs to a budget, and this run has none; add epsilon.")
    return asked | whom


def load_records(section: DataSection, agents: object = None) -> Records:
    """The data; a file's column that `agents` names is kept apart from the features."""
    from relaydp.data import load_data
    from relaydp.data.formats import file_kind

    groups = list(section.groups)
    if isinstance(agents, str) and agents not in groups:
        if file_kind(Path(section.source)) in ("CSV", "TSV", "Parquet"):
            groups.append(agents)
    return load_data(section.source, label=section.label, groups=groups, drop=section.drop, features=section.features)


def make_problem(config: Config, agents: int | str | list[int] | None, private: bool = False) -> Problem:
    records = load_records(config.data, agents)
    if private and records.classes is None:
        _check_declared(config.problem)
    chosen = config.problem.loss or loss_for(config.problem, records)
    return assemble(config.problem, chosen, records, agents, config.problem.ranges)


def _check_declared(wanted: ProblemSection) -> None:
    """Refuse a private run whose loss or classes the records would decide: one label could change them."""
    from relaydp.problem.loss import CLASSIFIERS

    chosen = wanted.loss or _loss_asked(wanted)
    if chosen is None:
        raise PrivacyError(
            "a private run on a file needs its classes or its loss stated, not looked up in the records, where one "
            "label could decide them. Pass --classes a,b for classes (every label there may be), or --loss "
            "least-squares or --loss huber for numbers; in a TOML file classes or loss in [problem]. A seed (--seed "
            "0, say) makes the run a simulation, which may look."
        )
    if chosen in CLASSIFIERS and wanted.classes is None:
        raise PrivacyError(
            f"loss {chosen!r} on a file needs its classes stated in a private run, not looked up in the records, where "
            "one record could add one. Pass --classes a,b (every label there may be), or classes in "
            "[problem] of a TOML file. A seed (--seed 0, say) makes the run a simulation, which may look."
        )


def make_prior(config: Config, source: str, loss: str, features: int, ranges: Any) -> Problem:
    """The same problem over public records, which are not split; scaled by the private ones' bounds."""
    from relaydp.data.formats import file_kind

    width = {"features": (features or None) if file_kind(Path(source)) == "LIBSVM" else None}  # others say theirs
    records = load_records(config.data.model_copy(update={"source": source} | width), config.problem.agents)
    if records.features != features:
        raise InputError(
            f"the prior {source} has {records.features} features and the data {features}; needed the same columns."
        )
    if records.classes is not None:  # its own are as public as it is
        config = config.model_copy(update={"problem": config.problem.model_copy(update={"classes": None})})
    return assemble(config.problem, loss, records, 1, ranges)


def assemble(
    wanted: ProblemSection, loss: str, records: Records, agents: int | str | list[int] | None, ranges: Any
) -> Problem:
    return _spec_of(wanted, loss, ranges).build(records, agents)  # type: ignore[arg-type]


def _spec_of(wanted: ProblemSection, loss: str, ranges: Any, features: int | None = None) -> ProblemSpec:
    """What is wanted, with this loss; what belongs to another is refused."""
    from relaydp.problem import ProblemSpec

    own = _options_of(wanted, loss)
    shared = {name: getattr(wanted, name) for name in ("l1", "l2", "intercept", "record_norm", "one_hot", "clip")}
    penalty = None if wanted.regulariser is None else _make_regulariser(wanted.regulariser)
    return ProblemSpec(loss, features=features, ranges=ranges, regulariser=penalty, **shared, **own)


def _options_of(wanted: ProblemSection, chosen: str) -> dict[str, Any]:
    """What belongs to this loss only; what belongs to another is refused."""
    from relaydp.problem.loss import CLASSIFIERS
    from relaydp.problem.spec import OPTIONS_OF, misplaced

    if other := misplaced(chosen, dict(wanted)):
        name, loss = other
        raise InputError(
            f"{name}={getattr(wanted, name):g} is for loss {loss!r}, and the loss is {chosen!r}. Leave it out."
        )
    if wanted.classes is not None and chosen not in CLASSIFIERS:
        raise InputError(
            f"classes={short(wanted.classes)} with loss {chosen!r}, which is for numbers; leave one of them out."
        )
    return {name: getattr(wanted, name) for name in (*OPTIONS_OF, "classes") if getattr(wanted, name) is not None}


def _loss_asked(wanted: ProblemSection) -> str | None:
    """The loss whose option was given: classes are one, too."""
    from relaydp.problem.spec import OPTIONS_OF

    owner = next((loss for name, loss in OPTIONS_OF.items() if getattr(wanted, name) is not None), None)
    return owner if owner is not None or wanted.classes is None else _loss_of(len(wanted.classes))


def _loss_of(classes: int) -> str:
    return "logistic" if classes <= 2 else "softmax"


def loss_for(wanted: ProblemSection, records: Records) -> str:
    """The loss that fits the classes where none is named: those asked for, those that the data set declares, else
    those that are found in the labels, which `_check_declared` keeps from private runs."""
    import numpy as np

    if asked := _loss_asked(wanted):
        return asked
    if records.classes is not None:
        return _loss_of(len(records.classes))
    whole = records.y.dtype.kind != "f" or bool((records.y == np.round(records.y)).all())
    classes = len(np.unique(records.y)) if whole else MOST_CLASSES + 1
    if records.y.dtype.kind in "biuf" and classes > MOST_CLASSES:
        return "least-squares"
    return _loss_of(classes)


def _make_regulariser(table: dict[str, Any]) -> Any:
    from relaydp import prox

    maker = getattr(prox, table["kind"].replace("-", "_"))
    return maker(*(table[name] for name in REGULARISERS[table["kind"]]))


def make_graph(section: GraphSection, agents: int | None) -> Graph:
    from relaydp.graph import from_edges, graph_named, read_graph

    given = [name for name in ("kind", "edges", "file") if getattr(section, name) is not None]
    if len(given) > 1:
        raise InputError(f"[graph] has {' and '.join(given)}; needed one of kind, edges or file. Leave the others out.")
    if section.edges is not None:
        return from_edges(section.edges)
    if section.file is not None:
        return read_graph(section.file)
    kind = section.kind or defaults.GRAPH
    if agents is not None:
        return graph_named(kind, agents, section.seed)
    try:  # a file, or a name such as grid:4x8, says how many there are
        return graph_named(kind, None, section.seed)
    except InputError:
        return graph_named(kind, defaults.AGENTS, section.seed)
