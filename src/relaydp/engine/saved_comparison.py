"""A comparison in a file: the table and one traced run of each algorithm; no model and no record."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from relaydp.errors import InputError
from relaydp.privacy import Budget
from relaydp.result import Trace, plain

COMPARISON = "comparison.json"
VERSION = 1


@dataclass(frozen=True, eq=False)
class SavedComparison:
    """A comparison as it was kept: no models, no records."""

    about: dict[str, Any]
    budget: Budget | None
    best_value: float
    rows: list[dict[str, Any]]
    traces: dict[str, Trace]  # by algorithm, of one run each
    spent: dict[str, list[float] | None]  # epsilon planned up to the trace's points; None where no proof covers it
    versions: dict[str, str]

    @property
    def ranked_by(self) -> str:
        """The column that the rows are sorted by; earlier versions had one alone."""
        return self.about.get("ranked_by", "excess")

    def to_json(self) -> dict[str, Any]:
        """Numbers that do not exist are null."""
        return {
            "comparison": "relaydp",
            "version": VERSION,
            "simulation": self.budget is not None,  # all runs have seeds: no promise stands behind any of them
            **self.about,
            "budget": None if self.budget is None else {"epsilon": self.budget.epsilon, "delta": self.budget.delta},
            "best_value": plain(self.best_value),
            "rows": self.rows,
            "traces": {
                name: {
                    **{part.name: _plain_list(getattr(trace, part.name)) for part in fields(Trace)},
                    "epsilon_planned": self.spent[name],
                }
                for name, trace in self.traces.items()
            },
            "versions": self.versions,
        }


def load_comparison(folder: str | os.PathLike[str]) -> SavedComparison:
    """Read back what `relaydp compare --out` or `Comparison.save` wrote."""
    path = Path(folder)
    try:
        saved = json.loads((path / COMPARISON).read_text())
        if saved["comparison"] != "relaydp" or saved["version"] != VERSION:
            raise ValueError(f"version {saved['version']!r} of {saved['comparison']!r}, not {VERSION} of 'relaydp'")
        known = ("comparison", "version", "simulation", "budget", "best_value", "rows", "traces", "versions")
        return SavedComparison(
            about={name: value for name, value in saved.items() if name not in known},
            budget=None if saved["budget"] is None else Budget(**saved["budget"]),
            best_value=math.nan if saved["best_value"] is None else float(saved["best_value"]),
            rows=[dict(row) for row in saved["rows"]],
            traces={name: _read_trace(trace) for name, trace in saved["traces"].items()},
            # earlier versions called it epsilon
            spent={
                name: trace["epsilon_planned" if "epsilon_planned" in trace else "epsilon"]
                for name, trace in saved["traces"].items()
            },
            versions=dict(saved["versions"]),
        )
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} is not a comparison we can read ({error}); needed a folder written by `relaydp compare --out`."
        ) from error


def _plain_list(values: np.ndarray) -> list[Any]:
    return values.tolist() if values.dtype.kind in "iu" else [plain(value) for value in values.tolist()]


def _read_trace(saved: dict[str, list[Any]]) -> Trace:
    whole = ("hop", "activations", "messages", "vectors")
    columns = {}
    for part in fields(Trace):
        values = [math.nan if value is None else value for value in saved[part.name]]
        columns[part.name] = np.array(values, np.int64 if part.name in whole else np.float64)
    return Trace(**columns)
