"""Figures. Matplotlib is imported when one is drawn, with a backend that needs no screen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

RELAY, ALONE, OPEN, INK, RULE = "#0b6e69", "#c2603b", "#5a6472", "#22272e", "#d9dde2"


class Curve(NamedTuple):
    """Medians over seeds with a band."""

    at: Sequence[float]
    middle: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def _axes(figure: Any, spot: Any, title: str, x: str, y: str) -> Any:
    axes = figure.add_subplot(spot)
    axes.set_title(title, loc="left", fontsize=11, color=INK, pad=10)
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK)
    axes.grid(axis="y", color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return axes


def draw_demo(path: Path, relay: Curve, alone: Curve, best: float, traces: dict[str, tuple[Any, Any]]) -> None:
    """Left: accuracy against epsilon, together and alone. Right: how the relay gets there, with noise and without."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.9), layout="constrained", dpi=144)
    grid = figure.add_gridspec(1, 2)
    left = _axes(figure, grid[0], "What a budget buys", "epsilon (delta 1e-5), log scale", "test accuracy")
    left.axhline(best, color=OPEN, linestyle="--", linewidth=1.2)
    left.text(max(relay.at), best, "no privacy ", color=OPEN, ha="right", va="bottom", fontsize=9)
    for curve, colour, label, marker in ((relay, RELAY, "relay of 8", "o"), (alone, ALONE, "each agent alone", "s")):
        left.fill_between(curve.at, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
        left.plot(curve.at, curve.middle, color=colour, marker=marker, markersize=5, label=label)
    left.set_xscale("log")
    left.set_xticks(list(relay.at), [f"{value:g}" for value in relay.at])
    left.minorticks_off()
    left.legend(frameon=False, loc="lower right")

    right = _axes(figure, grid[1], "On the way there", "activations an agent (PLF)", "test accuracy")
    for (label, (at, accuracy)), colour in zip(traces.items(), (OPEN, RELAY), strict=True):
        right.plot(at, accuracy, color=colour, label=label, linewidth=1.8)
    settled = np.concatenate([np.asarray(accuracy)[len(accuracy) // 10 :] for _, accuracy in traces.values()])
    right.set_ylim(max(0.0, float(settled.min()) - 0.03), min(1.0, float(settled.max()) + 0.015))
    right.legend(frameon=False, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
