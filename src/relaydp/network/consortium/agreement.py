"""What the parties of a consortium have agreed on, as one immutable value, and the hash that names it.

    Party         who takes part: name, address, number of records, certificate
    ProblemTable  what is minimised, as known without any record: loss, classes, columns, weights, bounds
    Agreed        the plan in numbers: activations, steps, noise, sensitivities
    Consortium    all of it; `identity` is the SHA-256 of everything that was agreed, in one canonical form

Two parties with the same identity have the same agreement, to the last digit, whatever their files look like.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from relaydp import defaults
from relaydp.errors import InputError, choose, short
from relaydp.graph import Graph
from relaydp.problem import Facts, ProblemSpec
from relaydp.problem.build import LOSSES
from relaydp.problem.loss import CLASSIFIERS
from relaydp.problem.spec import LEAST, MOST, by_end, misplaced, ranges_by_feature

VERSION = 1
MOST_COUNTED = 2**31  # records and features are counted in 32 bits

Positive = Annotated[float, Field(ge=LEAST, le=MOST, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=0, le=MOST, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, lt=MOST_COUNTED)]


class TomlTable(BaseModel):
    """A table of the file. Strict: "1" is not 1, and an unknown key is a mistake, not a comment."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def as_names(value: object) -> tuple[str, ...]:
    """Names of columns: texts, each once."""
    names: list[Any] = list(value) if isinstance(value, list | tuple) else []
    if not names or not all(isinstance(name, str) and name for name in names) or len(set(names)) != len(names):
        raise InputError(
            f"columns are {short(value)}; they must be names of columns, each once, in the order of the model."
        )
    return tuple(names)


def as_classes(value: object) -> tuple[int | str | bool, ...]:
    """Labels of one kind, each once; kept in sorted order, which is the order of the model."""
    given = list(value) if isinstance(value, list | tuple) else []
    kinds = {type(label) for label in given}
    small = all(not isinstance(label, int) or abs(label) < 2**53 for label in given)
    if len(kinds) != 1 or not kinds <= {int, str, bool} or not small or len(set(given)) != len(given):
        raise InputError(
            f"classes = {short(value)}; they must be different labels, all whole numbers below 2^53 or all texts."
        )
    return tuple(sorted(given))


class ProblemTable(TomlTable):
    """What is minimised, described without any record: the [problem] table. Its numbers are public."""

    loss: Annotated[str, AfterValidator(lambda name: choose("loss", name, LOSSES))]
    classes: Annotated[tuple[int | str | bool, ...] | None, BeforeValidator(as_classes)] = None
    columns: Annotated[tuple[str, ...] | None, BeforeValidator(as_names)] = None
    features: Count | None = None
    label: Annotated[str, Field(min_length=1)] | None = None
    l1: Weight = defaults.L1
    l2: Weight = defaults.L2
    intercept: bool = defaults.INTERCEPT
    record_norm: Positive | None = None
    ranges: Annotated[Any, BeforeValidator(ranges_by_feature)] = None
    clip: Positive | None = None
    label_bound: Positive | None = None
    threshold: Positive | None = None

    @property
    def spec(self) -> ProblemSpec:
        """The same as other packages have it."""
        named: dict[str, Any] = {**dict(self), "ranges": by_end(self.ranges)}
        return ProblemSpec(**named)

    @property
    def width(self) -> int:
        """How many features a record has."""
        return self.spec.width

    @model_validator(mode="after")
    def _fits_together(self) -> ProblemTable:
        self._check_columns()
        self._check_loss()
        if self.record_norm is None and self.ranges is None:
            raise InputError(
                "[problem] has neither record_norm nor ranges; a private run needs a public bound on the records. Add "
                "the largest norm a record may have, or the range of the features."
            )
        if self.loss == "least-squares" and self.clip is None and self.label_bound is None:
            raise InputError(
                "[problem] has neither clip nor label_bound; least squares has no bounded gradient, and a private run "
                "needs one. Add the norm that a record's gradient is clipped to, or the largest |label|."
            )
        return self

    def _check_columns(self) -> None:
        if (self.columns is None) == (self.features is None):
            raise InputError(
                "[problem] must have either columns (the features' names in order) or features (their number, for "
                "files without names)."
            )
        if self.columns is not None and (self.label is None or self.label in self.columns):
            raise InputError(
                f"[problem] has label = {self.label!r} beside named columns; the label must be the name of another "
                "column."
            )
        if self.ranges is not None and isinstance(self.ranges[0], tuple) and len(self.ranges) != self.width:
            raise InputError(
                f"[problem] has {len(self.ranges)} ranges for {self.width} features; there must be one for all, or one "
                "for each."
            )

    def _check_loss(self) -> None:
        classes = len(self.classes or ())
        if self.loss in CLASSIFIERS:
            if classes < 2 or (self.loss == "logistic" and classes > 2):
                needed = "two, such as classes = [0, 1]" if self.loss == "logistic" else "two or more"
                raise InputError(f"[problem] lists {classes} classes for the {self.loss} loss; it needs {needed}.")
        elif classes:
            raise InputError(f"[problem] lists classes for the {self.loss} loss, which predicts numbers. Remove them.")
        if other := misplaced(self.loss, dict(self)):
            name, loss = other
            raise InputError(f"[problem] has {name} with the {self.loss} loss; it belongs to {loss}. Remove it.")
        if self.loss == "huber" and self.threshold is None:
            raise InputError(
                "[problem] has no threshold, and the huber loss needs one: the residual at which it becomes linear. "
                "Add it."
            )


@dataclass(frozen=True)
class Party:
    """One organisation that takes part."""

    name: str
    address: str  # host:port, where its agent listens
    records: int  # m_i, public
    certificate: str  # PEM
    fingerprint: str  # "sha256:" and 64 hexadecimal digits of the certificate's DER


@dataclass(frozen=True, eq=False)
class Agreed:
    """The [plan] table: all numbers, so that a party can check its cost without any simulation."""

    activations: int  # of each party
    steps: dict[str, float | list[float]]  # by the algorithm's own names; a list has one per party
    scales: np.ndarray  # (activations, parties): noise of each party's t-th release
    sensitivity: np.ndarray  # (parties,): how far replacing one record can move a release

    def __post_init__(self) -> None:
        for name in ("scales", "sensitivity"):
            array = np.array(getattr(self, name), dtype=np.float64)
            array.flags.writeable = False
            object.__setattr__(self, name, array)


@dataclass(frozen=True, eq=False)
class Consortium:
    """An agreement. Made by `read_consortium`, which checks it; immutable."""

    name: str
    version: Literal[1]
    parties: tuple[Party, ...]
    graph: Graph  # its agents are the parties, in order
    problem: ProblemTable
    algorithm: str
    walk: str | None  # None for rounds, which have no walk
    walk_seed: int
    start: int  # the party that makes the first baton
    epsilon: float
    delta: float
    patience: int  # hops without an activation after which a relay ends
    plan: Agreed | None = None

    def __post_init__(self) -> None:
        if self.graph.agents != len(self.parties) or not 0 <= self.start < len(self.parties):
            raise InputError(
                f"the consortium has {len(self.parties)} parties, a network of {self.graph.agents} and start "
                f"{self.start}; the network must have as many parties, and one of them must start."
            )

    def tables(self) -> dict[str, Any]:
        """Everything that was agreed, in the shape of the file; `identity` is the hash of this."""
        names = [party.name for party in self.parties]
        run = {"algorithm": self.algorithm, "walk": self.walk, "walk_seed": self.walk_seed}
        tables: dict[str, Any] = {
            "version": self.version,
            "name": self.name,
            "problem": _given(self.problem.model_dump(mode="json")),
            "privacy": {"epsilon": self.epsilon, "delta": self.delta},
            "run": _given(run) | {"start": names[self.start], "patience": self.patience},
            "network": {"edges": [[names[i], names[j]] for i, j in self.graph.edges.tolist()]},
            "parties": [
                {key: getattr(party, key) for key in ("name", "address", "records", "fingerprint", "certificate")}
                for party in self.parties
            ],
        }
        if self.plan is not None:
            tables["plan"] = {
                "activations": self.plan.activations,
                "sensitivity": self.plan.sensitivity.tolist(),
                "scales": self.plan.scales.tolist(),
                "steps": self.plan.steps,
            }
        return tables

    @cached_property
    def identity(self) -> bytes:
        """SHA-256 of `tables` as JSON: keys sorted, no spaces, ASCII, floats as Python's repr. 32 bytes."""
        text = json.dumps(self.tables(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode("ascii")).digest()

    def __repr__(self) -> str:
        planned = "no plan" if self.plan is None else f"{self.plan.activations} activations"
        return f"Consortium({self.name!r}: {len(self.parties)} parties, {self.algorithm}, {planned})"


def _given(table: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value is not None}


def facts_of(consortium: Consortium) -> Facts:
    """The public facts that determine steps, noise and plan; no record is needed."""
    return consortium.problem.spec.facts([party.records for party in consortium.parties])
