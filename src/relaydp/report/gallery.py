"""Pictures of an attack: true and reconstructed records, row by row, and the error of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from relaydp.errors import InputError
from relaydp.report.figures import INK, PALETTE, STYLES, _axes, _save

MOST_COLUMNS = 16  # images per row; more would be too small


Images = np.ndarray | Sequence[np.ndarray | None]  # (n, height, width, channels), or images of several sizes


def draw_attack(path: Path, rows: Sequence[tuple[str, Images]], heads: Sequence[str] = ()) -> None:
    """A grid of images: each row a label and its images (height, width, channels) in [0, 1], the original first.

    None among the images leaves a gap. `heads` are titles of the columns; "" for none.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    drawn = [image for label, images in rows for image in _checked(label, images)]
    across = min(max(len(images) for _, images in rows), MOST_COLUMNS)
    # Small images must not be scaled down: one pixel of a record takes at least one pixel of the figure.
    side = max(0.8, max((image.shape[0] for image in drawn), default=0) / 144)
    above = 0.25 if any(heads) else 0.0
    size = (1.9 + side * across, side * 1.08 * len(rows) + above)
    figure = Figure(figsize=size, layout="constrained", dpi=144)
    grid = figure.add_gridspec(len(rows), across + 1, width_ratios=[1.9] + [side] * across)
    for r, (label, images) in enumerate(rows):
        words = figure.add_subplot(grid[r, 0])
        words.set_axis_off()
        words.text(1.0, 0.5, label, ha="right", va="center", color=INK, fontsize=9, transform=words.transAxes)
        for c, image in enumerate(images[:across]):
            axes = figure.add_subplot(grid[r, c + 1])
            axes.set_axis_off()
            if r == 0 and c < len(heads) and heads[c]:
                axes.set_title(heads[c], loc="left", color=INK, fontsize=9)
            if image is None:
                continue
            shown = np.clip(image if image.shape[2] == 3 else image[:, :, 0], 0.0, 1.0)
            axes.imshow(shown, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
    _save(figure, path)


def _checked(label: str, images: Images) -> list[np.ndarray]:
    there = [image for image in images if image is not None]
    for image in there:
        if np.ndim(image) != 3 or np.shape(image)[2] not in (1, 3):
            raise InputError(
                f"row {label!r} has an image of shape {np.shape(image)}; it must be (height, width, 1 or 3). For "
                "records that are not images use draw_search, which shows their error."
            )
    return there


def draw_search(
    path: Path, curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, layered: bool = False
) -> None:
    """Draw the error of searches: label -> (iterations, mean squared errors).

    layered   each curve thinner than the one before, so that curves that coincide are all visible
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained", dpi=144)
    axes = _axes(figure, figure.add_gridspec(1, 1)[0], "What the search gets", "iterations", "mean squared error")
    for number, (label, (at, errors)) in enumerate(curves.items()):
        look: dict[str, Any] = {
            "color": PALETTE[number % len(PALETTE)],
            "linestyle": STYLES[number // len(PALETTE) % len(STYLES)],
        }
        if layered:
            look["linewidth"] = 1.2 + 1.2 * (len(curves) - 1 - number)
        axes.plot(at, np.maximum(errors, np.finfo(float).tiny), marker="o", markersize=3, label=label, **look)
    axes.set_yscale("log")
    axes.legend(frameon=False, fontsize=9)
    _save(figure, path)
