"""Rows of panels with curves and bands, as in the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from relaydp.report.figures import INK, PALETTE, RULE, STYLES

FLOOR = 1e-17  # the value shown for 0 on a logarithmic axis


class Line(NamedTuple):
    """A median with its quartiles; None if a run has no answer."""

    label: str
    at: Sequence[float]
    low: Sequence[float | None]
    middle: Sequence[float | None]
    high: Sequence[float | None]


class Panel(NamedTuple):
    title: str
    x: str
    y: str
    lines: list[Line]
    scale: str  # "accuracy" and "linear" are linear, everything else logarithmic
    log_x: bool = False
    step: bool = False  # values hold until the next point


def draw_panels(stem: Path, rows: list[list[Panel]]) -> None:
    """Write STEM.png and STEM.svg."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    wide = max(len(row) for row in rows)
    figure = Figure(figsize=(max(3.4 * wide, 7.0), 2.8 * len(rows) + 0.7), layout="constrained", dpi=110)
    spots = figure.subplots(len(rows), wide, squeeze=False)
    styles: dict[str, tuple[str, str]] = {}
    handles: dict[str, Any] = {}
    for spot_row, row in zip(spots, rows, strict=True):
        for spot, panel in zip(spot_row, row, strict=False):
            _draw(spot, panel, styles, handles)
        for spot in spot_row[len(row) :]:
            spot.set_axis_off()
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=min(len(handles), 2 * wide + 2),
        frameon=False,
    )
    stem.parent.mkdir(parents=True, exist_ok=True)
    for ending in (".png", ".svg"):
        figure.savefig(stem.with_suffix(stem.suffix + ending), metadata={"Date": None} if ending == ".svg" else None)


def _draw(spot: Any, panel: Panel, styles: dict[str, tuple[str, str]], handles: dict[str, Any]) -> None:
    logarithmic = panel.scale not in ("accuracy", "linear")
    drawn_as: Any = {"drawstyle": "steps-post"} if panel.step else {}
    for line in panel.lines:
        known = len(styles)
        look = (PALETTE[known % len(PALETTE)], STYLES[known // len(PALETTE) % len(STYLES)])
        colour, style = styles.setdefault(line.label, look)
        low, middle, high = (_numbers(part, logarithmic) for part in (line.low, line.middle, line.high))
        spot.fill_between(line.at, low, high, color=colour, alpha=0.18, linewidth=0)
        (drawn,) = spot.plot(line.at, middle, color=colour, linestyle=style, linewidth=1.6, **drawn_as)
        handles.setdefault(line.label, drawn)
    spot.set_title(panel.title, loc="left", fontsize=10, color=INK)
    spot.set_xlabel(panel.x, fontsize=9)
    spot.set_ylabel(panel.y, fontsize=9)
    if logarithmic:
        spot.set_yscale("log")
    if panel.log_x:
        spot.set_xscale("log")
        spot.xaxis.set_minor_formatter("")
    spot.grid(axis="y", color=RULE, linewidth=0.7)
    spot.tick_params(labelsize=8)
    for side in ("top", "right"):
        spot.spines[side].set_visible(False)


def _numbers(values: Sequence[float | None], logarithmic: bool) -> np.ndarray:
    out = np.array([np.nan if value is None else value for value in values], dtype=float)
    return np.maximum(out, FLOOR) if logarithmic else out
