"""The paper's attack figures: what an eavesdropper reconstructs from RECAL and DP-RECAL, image by image.

The paper attacks RECAL, and DP-RECAL through u. Three more runs are compared: the same DP-RECAL read through x, and the
sound one under two budgets. For data sets that are not images DLG's error over its iterations is shown.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from relaydp.auditing.campaigns import ACTIVATIONS, IMAGES, RECOVERED, Target, campaign, few, fresh_runs
from relaydp.certificate import plain
from relaydp.data import load_data
from relaydp.errors import RelayError
from relaydp.paper.experiment import Block, Cell, Effort, Experiment, Found, Picture, Progress, ResultTable, title_of
from relaydp.problem import logistic
from relaydp.report import draw_attack, draw_search

METHODS = {
    "dlg": "DLG (Zhu 2019)",
    "inverting": "Inverting gradients (Geiping 2020)",
    "gradinversion": "GradInversion (Yin 2021)",
    "closed-form": "Closed form",
}
SEED = 0
L2 = 1e-2  # as docs/attacks.md has it
SHOWN = 4  # images per data set in a figure, and stored in a cell
GIVEN_AWAY, KEPT = 0.95, 0.2  # SSIM: above, the image looks the same; below, nothing of it is visible


@dataclass(frozen=True)
class Attack(Cell):
    """One method against every run on one data set. 0 steps or restarts: the method's own."""

    data: str
    method: str
    intercept: bool
    images: int
    steps: int
    restarts: int
    seed: int = SEED


def cell_of(data: str, method: str, effort: Effort) -> Attack:
    steps = 0 if method == "closed-form" else effort.search
    restarts = 1 if steps else 0
    # records that are not images get an intercept: the gradient then reveals the label too, and DLG searches for both
    return Attack(data, method, data not in IMAGES, effort.images, steps, restarts)


def _cells(effort: Effort) -> Iterator[Attack]:
    for data in effort.data:
        for method in METHODS if data in IMAGES else ("dlg",):
            yield cell_of(data, method, effort)


# ---------------------------------------------------------------- measured


_records = lru_cache(maxsize=1)(load_data)


@lru_cache(maxsize=1)  # successive cells of a data set attack the same runs
def _targets(data: str, images: int, intercept: bool, seed: int) -> list[Target]:
    problem = logistic(few(_records(data), images), agents=images, l2=L2, intercept=intercept)
    return fresh_runs(problem, seed=seed)


def measure(cell: Attack, progress: Progress | None = None) -> dict[str, Any]:
    """The scores of each run, for every image and their medians, the error over a search's iterations, and some
    images."""
    began = time.perf_counter()
    report = None if progress is None else lambda _, done, total: progress(done, total)
    _records(cell.data)  # missing data raises here: it is not an outcome to store
    try:
        targets = _targets(cell.data, cell.images, cell.intercept, cell.seed)
        options = {"iterations": cell.steps or None, "restarts": cell.restarts or None}
        found = campaign(targets, [cell.method], seed=cell.seed, report=report, **options)
    except RelayError as error:
        return {"error": str(error)}
    outcome = found.summary()
    for row, facts in zip(found.rows, outcome["rows"], strict=True):
        facts["each"] = {name: [plain(mark) for mark in getattr(row, name)] for name in ("mse", "psnr", "ssim")}
        facts["images"] = pack(row.images[:SHOWN]) if row.target.about.is_image else None
    original = found.original
    outcome["original"] = None if original is None or original.ndim != 4 else pack(original[:SHOWN])
    return {**outcome, "wall": time.perf_counter() - began, "device": jax.devices()[0].device_kind}


def pack(images: np.ndarray) -> dict[str, Any]:
    """Images in [0, 1] as JSON: their shape, and one byte per value in base64."""
    levels = np.round(np.clip(images, 0.0, 1.0) * 255.0).astype(np.uint8)
    return {"shape": list(levels.shape), "levels": base64.b64encode(levels.tobytes()).decode()}


def unpack(packed: dict[str, Any]) -> np.ndarray:
    levels = np.frombuffer(base64.b64decode(packed["levels"]), np.uint8)
    return levels.reshape(packed["shape"]) / 255.0


# ---------------------------------------------------------------- shown


def _who(row: dict[str, Any]) -> str:
    """The name of a run in a sentence."""
    match row["mechanism"]:
        case None:
            return "RECAL"
        case "published":
            return f"published DP-RECAL through {row['channel']}"
        case _:
            return f"sound DP-RECAL at epsilon {row['epsilon']:g}"


PRINTED = ("RECAL", "published DP-RECAL through u")  # what the paper attacks


@dataclass(frozen=True)
class Side:
    """The outcomes of several data sets, as tables and figures need them."""

    of: dict[str, dict[str, Any]]  # data set -> outcome; {} if there is none yet

    @property
    def runs(self) -> list[str]:
        """Every run of any data set, in order."""
        return list(dict.fromkeys(row["run"] for outcome in self.of.values() for row in outcome.get("rows", ())))

    def row(self, data: str, run: str) -> dict[str, Any]:
        return next((row for row in self.of[data].get("rows", ()) if row["run"] == run), {})

    def entry(self, data: str, run: str, write: Callable[[dict[str, Any]], str]) -> str:
        """One entry of a table: `write(row)`, or the reason why it is missing."""
        row = self.row(data, run)
        return write(row) if row else "refused" if "error" in self.of[data] else "-"

    def columns(self, data: str) -> int:
        packed = self.of[data].get("original")
        return 1 if packed is None else packed["shape"][0]

    def images(self, data: str, run: str | None) -> list[np.ndarray | None]:
        """The images of a run, or the true ones (None); None for missing ones."""
        packed = self.of[data].get("original") if run is None else self.row(data, run).get("images")
        got = [] if packed is None else list(unpack(packed))
        return [*got, *[None] * (self.columns(data) - len(got))]


def _side(found: Found, method: str, names: Sequence[str]) -> Side:
    return Side({data: found.cells.get(cell_of(data, method, found.effort).key, {}) for data in names})


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _similar(row: dict[str, Any]) -> str:
    return f"{_number(row['ssim'], '.3f')} ({_number(row['ssim_best'], '.3f')})"


def _error(row: dict[str, Any]) -> str:
    return _number(row["mse"], ".1e")


def _share(row: dict[str, Any]) -> str:
    return f"{row['recovered']} of {row['gradients']}"


def _gallery(found: Found, method: str, names: Sequence[str], folder: Path) -> list[Block]:
    """The figure of one method, and its table."""
    side = _side(found, method, names)
    if not side.runs:
        return []
    grid = [
        (label.replace(", through", "\nthrough"), [image for data in names for image in side.images(data, run)])
        for label, run in [("original", None), *((run, run) for run in side.runs)]
    ]
    heads = [head for data in names for head in (title_of(data), *[""] * (side.columns(data) - 1))]
    name = f"attack-{method}"
    for ending in (".png", ".svg"):
        draw_attack(folder / "figures" / f"{name}{ending}", grid, heads)
    columns = ("run", *(column for data in names for column in (f"{title_of(data)} SSIM (best)", "MSE")))
    rows = [
        (run, *(side.entry(data, run, write) for data in names for write in (_similar, _error))) for run in side.runs
    ]
    note = f"Medians of {found.effort.images} images; in brackets the best of them."
    return [
        Picture(name, f"{METHODS[method]}: what was taken, and what was got from each run."),
        ResultTable(METHODS[method], columns, rows, note),
    ]


def _curve(found: Found, data: str, folder: Path) -> list[Block]:
    """DLG's error over its iterations, and its final value."""
    rows = [row for row in _side(found, "dlg", [data]).of[data].get("rows", ()) if row["mse_curve"]]
    if not rows:
        return []
    name, title = f"attack-{data}", title_of(data)
    for ending in (".png", ".svg"):
        lines = {row["run"]: (row["iterations"], row["mse_curve"]) for row in rows}
        draw_search(folder / "figures" / f"{name}{ending}", lines, layered=True)
    table = [(row["run"], *(f"{row['mse_curve'][k]:.1e}" for k in (0, -1))) for row in rows]
    ends = [f"{row['mse_curve'][-1]:.1e} for {_who(row)}" for row in rows]
    return [
        Picture(name, f"{title}, DLG: mean squared error of the records over the iterations, median of the agents."),
        ResultTable(f"{title}, DLG", ("run", "MSE at the start", "at the end"), table),
        f"{title}: DLG's mean squared error ends at {', '.join(ends)}.",
    ]


def _gradients(found: Found) -> list[Block]:
    """The number of gradients that each run revealed. It does not depend on the method, so any method's cell is
    used."""
    names = found.effort.data
    sides = [_side(found, method, names) for method in METHODS]
    side = Side({data: max((one.of[data] for one in sides), key=_worth) for data in names})
    if not side.runs:
        return []
    rows = [(run, *(side.entry(data, run, _share) for data in names)) for run in side.runs]
    note = f"Recovered to a relative error of {RECOVERED:g}, of all that were asked for."
    return [ResultTable("Gradients read from the messages", ("run", *map(title_of, names)), rows, note)]


def _worth(outcome: dict[str, Any]) -> int:
    """The order of outcomes: an answer, then a refusal, then none."""
    return 2 if "rows" in outcome else int("error" in outcome)


def verdicts(found: Found) -> list[str]:
    """Counts of what the paper shows and does not show: a cell is a data set and a method, its score the median."""
    marks: dict[str, list[float]] = {}
    for cell in _cells(found.effort):
        for row in found.of(cell).get("rows", ()):
            if row["ssim"] is not None:
                marks.setdefault(_who(row), []).append(row["ssim"])
    told = []
    for head, runs in (
        ("What the paper shows", [who for who in marks if who in PRINTED]),
        ("What it does not show", [who for who in marks if who not in PRINTED]),
    ):
        if runs:
            told.append(f"{head}: {'; '.join(_counted(who, marks[who]) for who in runs)}.")
    return told


def _counted(who: str, marks: list[float]) -> str:
    away, kept = sum(mark > GIVEN_AWAY for mark in marks), sum(mark < KEPT for mark in marks)
    return (
        f"{who} gives the image away (SSIM above {GIVEN_AWAY:g}) in {away} of {len(marks)} cells and hides it (below "
        f"{KEPT:g}) in {kept}"
    )


def _show(found: Found, folder: Path) -> list[Block]:
    effort = found.effort
    pictures = [data for data in effort.data if data in IMAGES]
    blocks: list[Block] = [
        f"{effort.images} agents on a ring with one record each, logistic regression; every agent acts {ACTIVATIONS} "
        "times. The attacks see messages and public facts.",
        *verdicts(found),
        *_gradients(found),
    ]
    for method in METHODS:
        blocks += _gallery(found, method, pictures, folder)
    for data in effort.data:
        if data not in IMAGES:
            blocks += _curve(found, data, folder)
    refused = [
        f"{title_of(cell.data)}, {METHODS[cell.method]}: {found.cells[cell.key]['error']}"
        for cell in _cells(effort)
        if "error" in found.cells.get(cell.key, {})
    ]
    if refused:
        blocks.append("Refused: " + " ".join(refused))
    return blocks


ATTACKS = Experiment(
    name="attacks",
    title="Attacks on RECAL and DP-RECAL",
    printed="Fig. 4; supplement, attack figures",
    cells=_cells,
    measure=measure,
    show=_show,
)
