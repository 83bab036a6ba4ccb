"""Every plot as PNG and SVG, every table as CSV, in one folder: for papers, slides and spreadsheets."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from relaydp._atomic import new_folder
from relaydp.errors import InputError
from relaydp.report import charts, markup
from relaydp.report.baton_path import Travels, travels
from relaydp.report.curves import Line, Panel, draw_panels
from relaydp.report.figures import INK, OPEN, RELAY, _save
from relaydp.report.gallery import draw_attack
from relaydp.report.sources import Sources

MARK = "relaydp-files.csv"  # lists the folder's files, and marks it as made by relaydp


def check_files(folder: Path, overwrite: bool) -> None:
    """Refuse a --files that cannot be written, before anything is read."""
    if folder.exists() and not overwrite:
        raise InputError(f"--files {folder} exists already; choose another folder, or pass --overwrite to replace it.")
    if folder.exists() and not (folder.is_dir() and ((folder / MARK).is_file() or not any(folder.iterdir()))):
        raise InputError(f"--files {folder} has no {MARK} in it, so --overwrite does not replace it; choose another.")
    parent = next((place for place in folder.absolute().parents if place.exists()), None)
    if parent is None or not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(
            f"--files {folder} cannot be made: {parent} is not a folder with write permission. Choose another."
        )


def write_files(
    folder: Path, sources: Sources, overwrite: bool = False, tell: Callable[[str], None] = lambda name: None
) -> list[str]:
    """Write the folder atomically. Returns the names of its files."""
    with new_folder(folder, MARK, overwrite) as work:
        said = _write(work, sources, tell)
        _csv(work / MARK, ["file", "shows"], list(said.items()))
        return [MARK, *said]


def _write(work: Path, sources: Sources, tell: Callable[[str], None]) -> dict[str, str]:
    """Name of each file -> what it shows."""
    said: dict[str, str] = {}

    def chart(stem: str, found: charts.Chart | None) -> None:
        if found is None:
            return
        tell(f"drawing {stem}")
        draw_chart(work / stem, found)
        _csv(work / f"{stem}.csv", *chart_rows(found))
        said.update({f"{stem}.{ending}": found.title for ending in ("png", "svg", "csv")})

    def table(stem: str, found: markup.Table) -> None:
        rows = [[row.get(column.key) for column in found.columns] for row in found.rows]
        _csv(work / f"{stem}.csv", [column.key for column in found.columns], rows)
        said[f"{stem}.csv"] = found.caption

    if sources.runs:
        chart("convergence", charts.convergence(sources.runs))
        chart("accuracy-epsilon", charts.accuracy_by_epsilon(sources.runs))
    for k, run in enumerate(sources.runs):
        end = _ending(k, len(sources.runs))
        chart(f"spending{end}", charts.spending(run))
        limits = None if run.spending is None else charts.agent_limits(run)
        if run.certificate["agents"]:
            table(f"agents{end}", markup.spending_table(run.certificate, limits))
        if isinstance(path := travels(run), Travels):
            tell(f"drawing path{end}")
            for ending in (".png", ".svg"):
                draw_path(work / f"path{end}{ending}", path)
                said[f"path{end}{ending}"] = "The graph, and what each agent had spent at the end"
            _csv(work / f"path{end}.csv", *path_rows(path))
            said[f"path{end}.csv"] = "Who held the baton, or sent, when"
    for k, (label, compared) in enumerate(sources.comparisons):
        end = _ending(k, len(sources.comparisons))
        table(f"comparison{end}", markup.comparison_table(compared.rows, compared.ranked_by))
        chart(f"comparison-curves{end}", charts.comparison_curves(label, compared))
    for k, (label, attack) in enumerate(sources.attacks):
        end = _ending(k, len(sources.attacks))
        table(f"attack{end}", markup.attack_table(attack))
        chart(f"attack-search{end}", charts.search_curves(label, attack))
        if attack.images:
            for ending in (".png", ".svg"):
                draw_attack(work / f"attack-records{end}{ending}", attack.images)
                said[f"attack-records{end}{ending}"] = "TRAINING RECORDS, and the attacks' reconstructions"
    return said


def _ending(k: int, of: int) -> str:
    return "" if of == 1 else f"-{k + 1}"


def draw_chart(stem: Path, chart: charts.Chart) -> None:
    """STEM.png and STEM.svg: one panel for each pair of axes that the page offers."""
    rows = []
    for y in chart.y:
        row = []
        for x in chart.x:
            lines = [_line(one.label, at, values) for one, at, values in chart.drawn(x, y)]
            ends = [min(line.at) for line in lines if line.at], [max(line.at) for line in lines if line.at]
            for rule in chart.rules_of(y):
                span = [min(ends[0], default=0.0), max(ends[1], default=1.0)]
                lines.append(Line(rule.label, span, [rule.y] * 2, [rule.y] * 2, [rule.y] * 2))
            title = chart.title if not rows and not row else ""
            row.append(Panel(title, x.label, y.label, lines, "log" if y.log else "linear", step=chart.step))
        rows.append(row)
    draw_panels(stem, rows)


def _line(label: str, at: charts.Values, values: charts.Values) -> Line:
    known = [(x, y) for x, y in zip(at, values, strict=True) if x is not None]
    places, heights = [x for x, _ in known], [y for _, y in known]
    return Line(label, places, heights, heights, heights)


def chart_rows(chart: charts.Chart) -> tuple[list[str], list[list[Any]]]:
    """Every series, one point per row, with all columns that any of them has."""
    names = [axis.key for axis in (*chart.x, *chart.y)]
    rows = []
    for one in chart.series:
        length = max(len(values) for values in one.columns.values())
        empty: charts.Values = [None] * length
        columns = [one.columns.get(name, empty) for name in names]
        rows += [[one.label, *point] for point in zip(*columns, strict=True)]
    for rule in chart.rules:
        of = [axis.key for axis in chart.y if rule in chart.rules_of(axis)]
        rows.append([rule.label, *(rule.y if name in of else None for name in names)])
    return ["series", *names], rows


def path_rows(path: Travels) -> tuple[list[str], list[list[Any]]]:
    if path.rounds:
        sent = [" ".join(map(str, np.flatnonzero(row))) for row in path.acts]
        return ["round", "agents_that_acted"], [[hop, who] for hop, who in zip(path.hop.tolist(), sent, strict=True)]
    columns = zip(path.hop, path.holder[:-1], path.holder[1:], path.acts, strict=True)
    return ["hop", "holder", "next_holder", "acted"], [[int(value) for value in row] for row in columns]


def draw_path(path: Path, found: Travels) -> None:
    """The graph at the end of the run: darker agents have spent more of their budget."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), layout="constrained", dpi=144)
    axes = figure.add_subplot()
    axes.set_axis_off()
    x, y = np.array(found.x), 1.0 - np.array(found.y)  # the page's y axis points down
    for i, j in found.edges:
        axes.plot(x[[i, j]], y[[i, j]], color=OPEN, linewidth=1.0, alpha=0.6, zorder=1)
    counts = found.counts()
    values, what = counts.astype(float), "uses of its records"
    if found.spent is not None and found.curve_of is not None:
        ends = [found.spent[k] for k in found.curve_of]
        pairs = zip(ends, counts, strict=True)
        values, what = np.array([curve[min(int(n), len(curve) - 1)] for curve, n in pairs]), "epsilon spent"
    size = 900 if found.agents <= 24 else 250 if found.agents <= 60 else 60
    shades = LinearSegmentedColormap.from_list("tank", ["#ffffff", RELAY])
    dots = axes.scatter(x, y, s=size, c=values, cmap=shades, vmin=0.0, edgecolors=INK, linewidths=1.0, zorder=2)
    if found.agents <= 60:
        middle = values.max() / 2
        for i in range(found.agents):
            ink = "white" if values[i] > middle else INK
            axes.text(x[i], y[i], str(i), ha="center", va="center", fontsize=9, color=ink, zorder=3)
    axes.margins(0.12)
    figure.colorbar(dots, ax=axes, label=what, shrink=0.7)
    _save(figure, path)


def _csv(path: Path, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Write a CSV file. Cells that a spreadsheet would read as a formula become text."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows([[_safe(value) for value in row] for row in rows])


def _safe(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in tuple("=+-@\t\r") else value
