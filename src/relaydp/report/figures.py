"""Figures. Matplotlib is imported when the first one is drawn, with a backend that needs no display."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from relaydp.errors import InputError

KINDS = (".png", ".svg", ".pdf")
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


def draw_demo(path: Path, curves: dict[str, Curve], best: float, traces: dict[str, tuple[Any, Any]]) -> None:
    """Left: accuracy against epsilon, of relays and of each agent alone, which comes last. Right: the relay's accuracy
    during runs, with and without noise."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.9), layout="constrained", dpi=144)
    grid = figure.add_gridspec(1, 2)
    left = _axes(figure, grid[0], "What a budget buys", "epsilon (delta 1e-5), log scale", "test accuracy")
    left.axhline(best, color=OPEN, linestyle="--", linewidth=1.2)
    at = next(iter(curves.values())).at
    left.text(max(at), best, "no privacy ", color=OPEN, ha="right", va="bottom", fontsize=9)
    for (label, curve), colour in zip(curves.items(), (*PALETTE[2:], RELAY, ALONE)[-len(curves) :], strict=True):
        left.fill_between(curve.at, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
        left.plot(curve.at, curve.middle, color=colour, marker="o", markersize=4, label=label)
    left.set_xscale("log")
    left.set_xticks(list(at), [f"{value:g}" for value in at])
    left.minorticks_off()
    left.legend(frameon=False, loc="lower right")

    right = _axes(figure, grid[1], "On the way there", "activations per agent (PLF)", "test accuracy")
    for (label, (at, accuracy)), colour in zip(traces.items(), (OPEN, RELAY), strict=True):
        right.plot(at, accuracy, color=colour, label=label, linewidth=1.8)
    settled = np.concatenate([np.asarray(accuracy)[len(accuracy) // 10 :] for _, accuracy in traces.values()])
    right.set_ylim(max(0.0, float(settled.min()) - 0.03), min(1.0, float(settled.max()) + 0.015))
    right.legend(frameon=False, loc="lower right")
    _save(figure, path)


PALETTE = ("#0b6e69", "#c2603b", "#3c5a99", "#8a6d1b", "#7a3e78", "#5a6472", "#2f7d32", "#b23a5a", "#1f8ab0", "#6b4f3a")
STYLES = ("-", "--", ":", "-.")


def draw_comparison(path: Path, comparison: Any, title: str) -> None:
    """Relative error, objective gap and accuracy of one traced run each, against PLF, messages and epsilon planned."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    from relaydp.engine.comparison import gap
    from relaydp.engine.spending import epsilon_spent

    figure = Figure(figsize=(13, 10), layout="constrained", dpi=120)
    figure.suptitle(title, x=0.01, ha="left", color=INK)
    private = comparison.budget is not None
    across = ("activations per agent (PLF)", "messages (link uses)", *(["epsilon planned"] if private else []))
    down = ("relative error", "objective gap", "accuracy")
    grid = figure.add_gridspec(len(down), len(across))
    plots = [[_axes(figure, grid[r, c], "", x, y) for c, x in enumerate(across)] for r, y in enumerate(down)]
    for number, (name, result) in enumerate(comparison.results.items()):
        trace, look = result.trace, {"color": PALETTE[number % len(PALETTE)], "linewidth": 1.4}
        look["linestyle"] = STYLES[number // len(PALETTE) % len(STYLES)]
        at = [trace.activations, trace.messages]
        if private:  # a mechanism without a proof has no epsilon axis
            spent = epsilon_spent(result, planned=True)
            at.append(np.full(len(trace), np.nan) if spent is None else np.array(spent))
        for row, values in enumerate((trace.relative_error, gap(result, comparison.best_value), trace.accuracy)):
            for column, x in enumerate(at):
                plots[row][column].plot(x, values, label=name if (row, column) == (0, 0) else None, **look)
    for row, axes in enumerate(plots):
        for spot in axes:
            if row < 2 and spot.lines and any(np.nanmax(line.get_ydata(), initial=0.0) > 0 for line in spot.lines):
                spot.set_yscale("log")
    figure.legend(loc="outside lower center", ncols=6, frameon=False)
    _save(figure, path)


FEW = 8  # agents whose noise is drawn one by one; more are drawn as a band


def draw_plan(path: Path, plan: Any) -> None:
    """Left: the predicted error against PLF, and the chosen plan. Right: the noise of every activation."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, NullFormatter

    figure = Figure(figsize=(10, 3.9), layout="constrained", dpi=144)
    grid = figure.add_gridspec(1, 2)
    left = _axes(figure, grid[0], "What to expect", "activations per agent (PLF)", "predicted excess objective")
    look = plan.outlook
    if look is None:
        left.text(0.5, 0.5, "too many agents to predict", ha="center", color=OPEN, transform=left.transAxes)
    else:
        known = np.isfinite(look.total)
        for values, colour, style, label in (
            (look.bias, OPEN, "--", "bias: not yet learnt"),
            (look.noise, ALONE, ":", "noise"),
            (look.total, RELAY, "-", "total"),
        ):
            mark = "o" if known.sum() == 1 else None  # a line with one point is invisible
            left.plot(look.activations[known], values[known], style, color=colour, marker=mark, label=label)
        left.plot([plan.activations], [look.predicted], "o", color=RELAY, markersize=8)
        text = f"{plan.activations} activations,\nexcess {look.predicted:.2g}"
        left.annotate(text, (plan.activations, look.predicted), (0, 12), textcoords="offset points", color=INK)
        left.set_xscale("log")
        left.set_yscale("log")
        left.xaxis.set_major_formatter("{x:g}")
        left.xaxis.set_minor_formatter(NullFormatter())
        left.margins(y=0.15)
        left.legend(frameon=False, fontsize=9)

    right = _axes(figure, grid[1], "Noise", "activation", "scale of the noise on a mean gradient")
    at = np.arange(1, plan.activations + 1)
    alike: dict[bytes, list[int]] = {}  # agents by their schedule, up to visible differences
    for agent, scales in enumerate(plan.scales.T):
        alike.setdefault(np.round(np.log(scales), 3).tobytes(), []).append(agent)
    if len(alike) <= FEW:
        for agents, colour in zip(alike.values(), PALETTE, strict=False):
            label = "every agent" if len(alike) == 1 else _agents(agents)
            right.plot(at, plan.scales[:, agents[0]], color=colour, marker="o", markersize=3, label=label)
    else:
        right.fill_between(at, plan.scales.min(axis=1), plan.scales.max(axis=1), color=RELAY, alpha=0.15, linewidth=0)
        right.plot(at, np.median(plan.scales, axis=1), color=RELAY, marker="o", markersize=3, label="median agent")
    right.set_yscale("log")
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.legend(frameon=False, fontsize=9)
    _save(figure, path)


def _agents(numbers: list[int]) -> str:
    """Agents in a legend: by number, or their count."""
    if len(numbers) > 3:
        return f"{len(numbers)} agents"
    return f"agent{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def check_figure(path: Path | None) -> None:
    """Refuse a file name that cannot be drawn: ask before anything runs."""
    if path is not None and path.suffix.lower() not in KINDS:
        raise InputError(f"{path.name!r} is not a figure that can be drawn; its name must end in {', '.join(KINDS)}.")


def _save(figure: Any, path: Path) -> None:
    """Write a figure; without Matplotlib's version in it, so that the same data gives the same file."""
    check_figure(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None} if path.suffix.lower() == ".png" else None)
