"""The sources of a report: folders of runs, comparisons and attacks, recognised by their files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from relaydp._atomic import PUBLISH, find_saved
from relaydp.auditing.campaigns import SavedAttack, load_attack
from relaydp.engine.saved_comparison import SavedComparison, load_comparison
from relaydp.engine.spending import Spending as Spending
from relaydp.engine.spending import agents_spending, epsilon_spent
from relaydp.errors import InputError, PrivacyError
from relaydp.result import Result, Trace, load_result

# The file that identifies a kind of folder, and the command that writes it.
MARKS = {
    "comparison.json": "relaydp compare --out",
    "attack.json": "relaydp attack --out",
    "summary.json": "relaydp run --out",
}


class Run(NamedTuple):
    """One saved run, with the values that the page uses in several places."""

    label: str
    result: Result
    trace: Trace | None  # None for a publish/ alone, which has no measurements
    spent: list[float] | None  # epsilon at the trace's points; None if the run has no guarantee
    spending: list[Spending] | None  # by agent; None if the run has no guarantee
    certificate: dict[str, Any]


@dataclass(frozen=True)
class Sources:
    runs: list[Run] = field(default_factory=list)
    comparisons: list[tuple[str, SavedComparison]] = field(default_factory=list)
    attacks: list[tuple[str, SavedAttack]] = field(default_factory=list)

    @property
    def measured(self) -> bool:
        """Whether anything in it was measured on records without noise."""
        return bool(self.comparisons or self.attacks) or any(run.trace is not None for run in self.runs)

    @property
    def shows_records(self) -> bool:
        return any(attack.images for _, attack in self.attacks)


def read_sources(folders: Sequence[Path], public: bool = False) -> Sources:
    """Read every folder; its label is its name, with a number if two have the same name.

    public   read only what may be published of private runs, and refuse everything else
    """
    found, used = Sources(), set()
    for folder in folders:
        place = folder.resolve()
        name = place.parent.name if place.name == PUBLISH else place.name
        label, k = name, 2
        while label in used:
            label, k = f"{name} ({k})", k + 1
        used.add(label)
        kind = _kind(folder)
        if public and kind != "summary.json":
            raise PrivacyError(
                f"{folder} was made by `{MARKS[kind]}`, all of which is measured on records without noise; a public "
                "page needs private runs. Leave it out, or leave --public out."
            )
        if kind == "comparison.json":
            found.comparisons.append((label, load_comparison(folder)))
        elif kind == "attack.json":
            found.attacks.append((label, load_attack(folder)))
        else:
            found.runs.append(_run(label, _public_half(folder) if public else folder))
    return found


def _kind(folder: Path) -> str:
    writers = ", ".join(f"`{command}`" for command in MARKS.values())
    if not folder.exists():
        raise InputError(f"{folder} does not exist; it must be a folder written by one of {writers}. Check the path.")
    if not folder.is_dir():
        raise InputError(f"{folder} is a file; it must be the folder that one of {writers} wrote.")
    for mark in MARKS:
        if find_saved(folder, mark) is not None:
            return mark
    raise InputError(
        f"{folder} has none of {', '.join(MARKS)}; it must be a folder written by one of {writers}. Pass that one."
    )


def _public_half(folder: Path) -> Path:
    """The folder that may be published; refuses a run without a promise."""
    result = load_result(folder)
    if not result.private:
        raise PrivacyError(
            f"{folder} is not a private run ({result.guarantee.partition('.')[0]}); a public page needs a promise. "
            "Leave it out, or leave --public out."
        )
    if (folder / PUBLISH).is_dir():
        return folder / PUBLISH
    if find_saved(folder, "trace.csv") is not None:
        raise PrivacyError(
            f"{folder} holds measurements beside what may be published; it must have them apart, in a folder with "
            "publish/. Use such a run."
        )
    return folder


def _run(label: str, folder: Path) -> Run:
    result = load_result(folder)
    if result.trace is None and (folder / PUBLISH).is_dir():
        raise InputError(
            f"{folder} has no trace.csv, so there is no history to draw. Run it again with trace=True, which `relaydp "
            "run` always does."
        )
    try:  # the certificate as it was written, because others rely on it
        certificate = json.loads((find_saved(folder, "certificate.json") or folder / "certificate.json").read_text())
    except (OSError, ValueError) as error:
        raise InputError(
            f"{folder}/certificate.json cannot be read ({error}); it must be the file that the run wrote. Use the "
            "folder as it was saved."
        ) from error
    if isinstance(certificate, dict) and "private" in certificate and "simulation" not in certificate:
        certificate = result.certificate()  # of an earlier version, which called noise from a seed private
    _check_certificate(folder, certificate, result)
    defended = result.private and result.ledger is not None and result.delta is not None
    spending = agents_spending(result.ledger, result.delta) if defended else None  # type: ignore[arg-type]
    return Run(label, result, result.trace, epsilon_spent(result), spending, certificate)


def _check_certificate(folder: Path, certificate: Any, result: Result) -> None:
    """A certificate that promises something else than the run's own ledger is not shown."""
    again = json.loads(json.dumps(result.certificate()))
    saved = certificate if isinstance(certificate, dict) else {}
    for name in ("private", "simulation", "promise", "epsilon", "epsilon_planned", "delta", "agents"):
        if name not in saved or not _same(saved[name], again[name]):
            raise InputError(
                f"{folder}/certificate.json says {name}={str(saved.get(name))[:60]!r}, and the run's ledger and "
                "summary say something else: a file was edited. Use an unedited copy."
            )


def _same(a: Any, b: Any) -> bool:
    """Equal, but for the last bits of numbers, which another machine may round differently."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-9 * max(abs(a), abs(b))
    return a == b
