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


PALETTE = ("#0b6e69", "#c2603b", "#3c5a99", "#8a6d1b", "#7a3e78", "#5a6472", "#2f7d32", "#b23a5a", "#1f8ab0", "#6b4f3a")
STYLES = ("-", "--", ":", "-.")


def draw_comparison(path: Path, comparison: Any, title: str) -> None:
    """Relative error, objective gap and accuracy of one traced run each, against PLF, messages and epsilon spent."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    from relaydp.engine.compare import gap
    from relaydp.privacy import epsilon_exact

    figure = Figure(figsize=(13, 10), layout="constrained", dpi=120)
    figure.suptitle(title, x=0.01, ha="left", color=INK)
    private = comparison.budget is not None
    across = ("activations an agent (PLF)", "messages (link uses)", *(["epsilon spent"] if private else []))
    down = ("relative error", "objective gap", "accuracy")
    grid = figure.add_gridspec(len(down), len(across))
    plots = [[_axes(figure, grid[r, c], "", x, y) for c, x in enumerate(across)] for r, y in enumerate(down)]
    for number, (name, result) in enumerate(comparison.results.items()):
        trace, look = result.trace, {"color": PALETTE[number % len(PALETTE)], "linewidth": 1.4}
        look["linestyle"] = STYLES[number // len(PALETTE) % len(STYLES)]
        at = [trace.activations, trace.messages]
        if private:
            delta = comparison.budget.delta
            finite = np.isfinite(trace.rho)
            at.append(
                np.array([epsilon_exact(r, delta) if ok else np.nan for r, ok in zip(trace.rho, finite, strict=True)])
            )
        for row, values in enumerate((trace.relative_error, gap(result, comparison.best_value), trace.accuracy)):
            for column, x in enumerate(at):
                plots[row][column].plot(x, values, label=name if (row, column) == (0, 0) else None, **look)
    for row, axes in enumerate(plots):
        for spot in axes:
            if row < 2 and spot.lines and any(np.nanmax(line.get_ydata(), initial=0.0) > 0 for line in spot.lines):
                spot.set_yscale("log")
    figure.legend(loc="outside lower center", ncols=6, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None} if path.suffix == ".png" else None)
