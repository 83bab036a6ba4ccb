"""Pictures of an attack: what was taken and what was got, row by row, and how a search came near."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from relaydp.errors import InputError
from relaydp.report.figures import INK, PALETTE, STYLES, _axes, _save

MOST_COLUMNS = 16  # images a row; more would be stamps


def draw_attack(path: Path, rows: Sequence[tuple[str, np.ndarray]]) -> None:
    """A grid of images: each row a label and its images (n, height, width, channels) in [0, 1], the original first."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    for label, images in rows:
        if np.ndim(images) != 4 or np.shape(images)[3] not in (1, 3):
            raise InputError(
                f"row {label!r} has shape {np.shape(images)}; needed (n, height, width, 1 or 3). Records that are no "
                "images are shown by their error: use draw_search."
            )
    across = min(max(len(images) for _, images in rows), MOST_COLUMNS)
    # Small prints may not be scaled down: one pixel of a record takes at least one of the figure's.
    side = max(0.8, max(images.shape[1] for _, images in rows) / 144)
    figure = Figure(figsize=(1.9 + side * across, side * 1.08 * len(rows)), layout="constrained", dpi=144)
    grid = figure.add_gridspec(len(rows), across + 1, width_ratios=[1.9] + [side] * across)
    for r, (label, images) in enumerate(rows):
        words = figure.add_subplot(grid[r, 0])
        words.set_axis_off()
        words.text(1.0, 0.5, label, ha="right", va="center", color=INK, fontsize=9, transform=words.transAxes)
        for c, image in enumerate(images[:across]):
            axes = figure.add_subplot(grid[r, c + 1])
            axes.set_axis_off()
            shown = np.clip(image if image.shape[2] == 3 else image[:, :, 0], 0.0, 1.0)
            axes.imshow(shown, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
    _save(figure, path)


def draw_search(path: Path, curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
    """How far a search's records are from the true ones: label -> (iterations, mean squared errors)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained", dpi=144)
    axes = _axes(figure, figure.add_gridspec(1, 1)[0], "What the search gets", "iterations", "mean squared error")
    for number, (label, (at, errors)) in enumerate(curves.items()):
        look = {"color": PALETTE[number % len(PALETTE)], "linestyle": STYLES[number // len(PALETTE) % len(STYLES)]}
        axes.plot(at, np.maximum(errors, np.finfo(float).tiny), marker="o", markersize=3, label=label, **look)
    axes.set_yscale("log")
    axes.legend(frameon=False, fontsize=9)
    _save(figure, path)
