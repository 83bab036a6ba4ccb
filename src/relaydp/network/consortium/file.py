"""The consortium file: one TOML file that every party holds, read and checked in one place.

    version, name     of the file's form; of the consortium
    [problem]         what is minimised, and the public bounds that make it private
    [privacy]         epsilon and delta, the guarantee for every record of every party
    [run]             algorithm, walk, starting party, patience
    [network]         which parties are connected
    [[parties]]       name, address, number of records, fingerprint and certificate of each
    [plan]            the numbers that follow from all this, made once by `draw_up` and then agreed on

A mistake raises one InputError that names the file, the line, what was found and what is needed. Nothing in the file is
secret, and nothing in it may be learnt from a record.

The agreement as a value is in `agreement`, its plan in `agreed_plan`, and problems over a party's own records in
`records.own_records`.
"""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from relaydp._toml import line_of
from relaydp.errors import InputError, RelayError, choose, short
from relaydp.graph import Graph
from relaydp.network.consortium.agreed_plan import draw_up, epsilon_of, network_algorithms, plan_of
from relaydp.network.consortium.agreement import (
    VERSION,
    Agreed,
    Consortium,
    Count,
    Party,
    Positive,
    ProblemTable,
    TomlTable,
    facts_of,
)
from relaydp.network.consortium.identity import as_pem, fingerprint, name_in, pinned
from relaydp.network.consortium.toml import to_toml
from relaydp.network.records.own_records import local_problem, read_own_records, whole_problem

__all__ = [
    "Agreed",
    "Consortium",
    "Party",
    "ProblemTable",
    "draw_up",
    "epsilon_of",
    "facts_of",
    "local_problem",
    "make_consortium",
    "plan_of",
    "read_consortium",
    "read_own_records",
    "whole_problem",
    "write_consortium",
]

MOST_BYTES = 64 * 2**20  # a consortium file has kilobytes
LEAST_DELTA = 1e-10  # the least that dp-accounting, which checks each plan again, resolves
WALKS = ("random", "nonbacktracking", "cyclic", "tour")
NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
ADDRESS = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})")
FINGERPRINT = re.compile(r"sha256:[0-9a-f]{64}")

Where = Callable[[tuple[str, ...]], str]  # the place of a key, as errors name it


def as_name(value: str) -> str:
    if NAME.fullmatch(value) is None:
        raise InputError(
            f"name {short(value)} cannot be used; a name has up to 32 characters of a-z, 0-9 and -, with no - at "
            "either end, such as 'north'."
        )
    return value


def as_address(value: str) -> str:
    found = ADDRESS.fullmatch(value)
    if found is None or not 0 < int(found[1]) < 65536:
        raise InputError(
            f"address {short(value)} cannot be used; it must be host:port, such as 'relay.north.example:7443'."
        )
    return value


def as_fingerprint(value: str) -> str:
    if FINGERPRINT.fullmatch(value) is None:
        raise InputError(
            f"fingerprint {short(value)} cannot be used; it must be 'sha256:' and 64 digits of 0-9 and a-f."
        )
    return value


def as_version(value: int) -> int:
    if value != VERSION:
        raise InputError(f"the file has version {short(value)}; it must be {VERSION}. Update relaydp, or the file.")
    return value


def as_edges(value: object) -> tuple[tuple[str, str], ...]:
    rows = value if isinstance(value, list | tuple) else []
    for row in rows:
        pair = isinstance(row, list | tuple) and len(row) == 2 and all(isinstance(end, str) for end in row)
        if not pair or row[0] == row[1]:
            raise InputError(f"an edge is {short(row)}; it must be the names of two different parties.")
    if not rows:
        raise InputError(f'edges = {short(value)}; they must be pairs of names, such as [["north", "south"]].')
    return tuple((one, other) for one, other in rows)


def as_steps(value: object) -> dict[str, float | list[float]]:
    """The algorithm's steps by name: a number each, or one per party. The plan's check knows which names are needed."""

    def positive(part: object) -> bool:
        return isinstance(part, int | float) and not isinstance(part, bool) and 0 < part < float("inf")

    found: dict[str, float | list[float]] = {}
    for name, part in value.items() if isinstance(value, dict) else ():
        several = isinstance(part, list) and bool(part)
        if not all(map(positive, part if several else [part])) or not isinstance(name, str):
            raise InputError(f"step {name} = {short(part)}; it must be a finite number > 0, or one per party.")
        try:
            found[name] = [float(each) for each in part] if isinstance(part, list) else float(part)
        except OverflowError:
            raise InputError(f"step {name} = {short(part)}; the number is too large to be used.") from None
    if not found:
        raise InputError(f"steps = {short(value)}; it must be a table of the algorithm's steps, [plan.steps].")
    return found


Scale = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class PartyTable(TomlTable):
    name: Annotated[str, AfterValidator(as_name)]
    address: Annotated[str, AfterValidator(as_address)]
    records: Count
    fingerprint: Annotated[str, AfterValidator(as_fingerprint)]
    certificate: str


class PrivacyTable(TomlTable):
    epsilon: Positive
    delta: Annotated[float, Field(ge=LEAST_DELTA, lt=1, allow_inf_nan=False)]


class RunTable(TomlTable):
    algorithm: str
    walk: str | None = None
    walk_seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    start: str
    patience: Count


class NetworkTable(TomlTable):
    edges: Annotated[tuple[tuple[str, str], ...], BeforeValidator(as_edges)]


class PlanTable(TomlTable):
    activations: Count
    sensitivity: list[Scale]
    scales: list[list[Scale]]
    steps: Annotated[dict[str, Any], BeforeValidator(as_steps)]


class File(TomlTable):
    version: Annotated[int, AfterValidator(as_version)]
    name: Annotated[str, AfterValidator(as_name)]
    problem: ProblemTable
    privacy: PrivacyTable
    run: RunTable
    network: NetworkTable
    parties: Annotated[list[PartyTable], Field(min_length=2)]
    plan: PlanTable | None = None


TABLES: dict[str, type[TomlTable]] = {
    "problem": ProblemTable,
    "privacy": PrivacyTable,
    "run": RunTable,
    "network": NetworkTable,
    "parties": PartyTable,
    "plan": PlanTable,
}


def read_consortium(path: str | Path) -> Consortium:
    """Read a consortium file and check everything but the cost of its plan, which `plan_of` checks."""
    file = Path(path)
    try:
        if file.stat().st_size > MOST_BYTES:
            raise InputError(
                f"{file} has over {MOST_BYTES // 2**20} MiB, which is too large for a consortium file. Check the path."
            )
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{file} cannot be read ({error}); it must be a consortium file, in TOML. Check the path."
        ) from error
    return _parse(text, str(file))


def make_consortium(tables: dict[str, Any], source: str = "consortium") -> Consortium:
    """The same from tables in memory, in the shape of the file; `source` is what errors call them."""
    return _checked(tables, lambda at: source)


def write_consortium(path: str | Path, consortium: Consortium) -> None:
    """Write the file, with comments, atomically: a reader finds the old file or the new one, never a part of one."""
    target = Path(path).resolve()
    text = to_toml(consortium)
    if _parse(text, str(path)).identity != consortium.identity:
        raise InputError(
            f"{consortium!r} does not read back as it was written to {path}; make it with read_consortium."
        )
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with fresh.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, fresh)
        os.replace(fresh, target)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise InputError(f"{path} cannot be written ({error}). Check the folder.") from error


def _parse(text: str, name: str) -> Consortium:
    def where(at: tuple[str, ...]) -> str:
        line = line_of(text, at)
        return name if line is None else f"{name}, line {line}"

    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise InputError(f"{name} nests its values too deeply to be read; use plain tables.") from None
    except ValueError as error:  # TOMLDecodeError, and numbers beyond what Python reads
        raise InputError(f"{name} is not TOML: {error}. Texts need quotes, and tables look like [run].") from None
    return _checked(tables, where)


def _checked(tables: dict[str, Any], where: Where) -> Consortium:
    try:
        file = File.model_validate(tables)
    except ValidationError as error:
        raise InputError(_fault(error, where)) from None
    names = [party.name for party in file.parties]
    _check_parties(file, where)
    plan = None if file.plan is None else _agreed(file.plan, len(names), where)
    walk = _check_run(file.run, file.problem, names, where)
    return Consortium(
        name=file.name,
        version=VERSION,
        parties=tuple(Party(**_certified(party, where(("parties", str(i))))) for i, party in enumerate(file.parties)),
        graph=_graph(file.name, names, file.network.edges, where),
        problem=file.problem,
        algorithm=file.run.algorithm,
        walk=walk,
        walk_seed=file.run.walk_seed,
        start=names.index(file.run.start),
        epsilon=file.privacy.epsilon,
        delta=file.privacy.delta,
        patience=file.run.patience,
        plan=plan,
    )


def _fault(error: ValidationError, where: Where) -> str:
    """The first error, as a sentence with the place and the cure."""
    first = error.errors(include_url=False)[0]
    at = [str(part) for part in first["loc"]]
    table = "the file" if len(at) < 2 else f"party {int(at[1]) + 1}" if at[0] == "parties" else f"[{at[0]}]"
    cause = first.get("ctx", {}).get("error")
    if first["type"] == "missing":
        said = f"{table} has no {at[-1]!r}, which is required. Add it."
    elif first["type"] == "extra_forbidden":
        said = _unknown(*at)
    elif isinstance(cause, ValueError):
        said = str(cause)
    else:
        plain = {"model_type": "a table", "list_type": "a list", "too_short": "a list of two or more"}
        needed = plain.get(first["type"]) or first["msg"].removeprefix("Input should be ")
        number = "a number " if needed.startswith(("greater", "less")) else ""
        said = f"{at[-1]} = {short(first['input'])} in {table}; it must be {number}{needed}."
    return f"{where(tuple(at))}: {said}"


def _unknown(table: str, *at: str) -> str:
    """An unknown key, with the nearest known one."""
    model, key = (TABLES[table], at[-1]) if at else (File, table)
    try:
        choose(f"key in [{table}]" if at else "key", key, model.model_fields)
    except InputError as error:
        return str(error)
    raise AssertionError("only keys that no table has are refused")


def _check_parties(file: File, where: Where) -> None:
    """Names, addresses and certificates must differ between parties."""
    for key in ("name", "address", "fingerprint"):
        seen: dict[str, str] = {}
        for i, party in enumerate(file.parties):
            value = getattr(party, key)
            if value in seen:
                raise InputError(
                    f"{where(('parties', str(i), key))}: parties {seen[value]!r} and {party.name!r} have the same "
                    f"{key}, {short(value)}; each party must have its own."
                )
            seen[value] = party.name


def _certified(party: PartyTable, place: str) -> dict[str, Any]:
    """A party whose certificate is its own, is valid today and matches its fingerprint."""
    who = f"{place}: the certificate of {party.name!r}"
    try:
        certificate = pinned(party.certificate, who)
        name, pem = name_in(certificate, who), as_pem(certificate).decode("ascii")
    except RelayError:
        raise
    except Exception as error:  # broad, because damaged certificates raise many kinds of error
        raise InputError(
            f"{who} cannot be read ({short(str(error))}); it must be in PEM form. Ask for it again."
        ) from error
    if fingerprint(pem) != party.fingerprint:
        raise InputError(
            f"{who} has fingerprint {fingerprint(pem)}, and the file says {party.fingerprint}; they must be the same. "
            f"Ask {party.name} which one is theirs, by another way than this file."
        )
    if name != party.name:
        raise InputError(f"{who} is issued to {short(name)}; it must be their own. Ask {party.name} for theirs.")
    begins, now, ends = certificate.not_valid_before_utc, datetime.now(UTC), certificate.not_valid_after_utc
    if not begins <= now <= ends:
        raise InputError(
            f"{who} is valid from {begins:%Y-%m-%d %H:%M} to {ends:%Y-%m-%d %H:%M} UTC; it must be valid now, "
            f"{now:%Y-%m-%d %H:%M}. Make a new one with `relaydp agent keygen` and agree on it again."
        )
    return party.model_dump() | {"certificate": pem}


def _check_run(run: RunTable, task: ProblemTable, names: list[str], where: Where) -> str | None:
    """The walk, after checking that algorithm, walk and start fit together."""
    able = network_algorithms()
    if run.algorithm not in able:
        raise InputError(
            f"{where(('run', 'algorithm'))}: algorithm {short(run.algorithm)} cannot run in a consortium, which needs "
            f"noise on gradients and one message along edges per step. Use one of: {', '.join(able)}."
        )
    method = able[run.algorithm]
    if task.l1 > 0 and not method.takes_r:
        raise InputError(f"{where(('problem', 'l1'))}: {run.algorithm} has no theory for l1 > 0. Use recal, or l1 = 0.")
    if run.start not in names:
        raise InputError(
            f"{where(('run', 'start'))}: start = {short(run.start)} is not a party; it must be one of: "
            f"{', '.join(names)}."
        )
    place = where(("run", "walk"))
    if method.kind == "rounds":
        if run.walk is not None:
            raise InputError(
                f"{place}: walk = {short(run.walk)} is set for {run.algorithm}, which has no walk. Remove it."
            )
        return None
    if run.walk not in WALKS:
        lazy = " A lazy walk may stay where it is, and that counts as a hop." if run.walk == "lazy" else ""
        raise InputError(
            f"{place}: walk = {short(run.walk)} cannot be used; it must be one of: {', '.join(WALKS)}.{lazy}"
        )
    return run.walk


def _graph(name: str, names: list[str], edges: tuple[tuple[str, str], ...], where: Where) -> Graph:
    place = where(("network", "edges"))
    number = {party: i for i, party in enumerate(names)}
    for one, other in edges:
        for end in (one, other):
            if end not in number:
                raise InputError(
                    f"{place}: edge {short([one, other])} names {short(end)}, which is not a party; the parties are: "
                    f"{', '.join(names)}."
                )
    reached = {names[0]}
    while more := {end for edge in edges if reached & set(edge) for end in edge} - reached:
        reached |= more
    if apart := [party for party in names if party not in reached]:
        raise InputError(
            f"{place}: no path leads from {names[0]} to {', '.join(apart)}; the network must be connected. Add edges."
        )
    return Graph(name, len(names), [(number[one], number[other]) for one, other in edges])  # type: ignore[arg-type]


def _agreed(plan: PlanTable, parties: int, where: Where) -> Agreed:
    """The plan's numbers, if there is one for each party and activation."""
    widths = {len(row) for row in plan.scales}
    if len(plan.scales) != plan.activations or widths != {parties} or len(plan.sensitivity) != parties:
        raise InputError(
            f"{where(('plan', 'scales'))}: the plan has {len(plan.scales)} rows of "
            f"{' or '.join(map(str, sorted(widths)))} scales and {len(plan.sensitivity)} sensitivities; it must have "
            f"{plan.activations} rows, one per activation, and {parties} numbers, one per party. Make the plan again."
        )
    return Agreed(plan.activations, plan.steps, plan.scales, plan.sensitivity)  # type: ignore[arg-type]
