"""The paper's convergence figures: DP-RECAL under several budgets, and DP-RECAL and other methods at one budget."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from relaydp.algorithm import ALGORITHMS
from relaydp.paper import runs
from relaydp.paper.experiment import (
    AS_PRINTED,
    LOSSES,
    USEFUL,
    Block,
    Effort,
    Experiment,
    Found,
    Picture,
    ResultTable,
    absent,
    seeds_of,
    title_of,
)
from relaydp.paper.runs import EPSILON, L1, Run
from relaydp.report.curves import Line, Panel, draw_panels

BUDGETS = (0.0, 10.0, 5.0, 1.0)  # 0: RECAL without noise
PRINTED = {  # the figure's methods, as printed and in the form with a sound mechanism
    "DP-RECAL": ("recal", "recal"),
    "DP-ADMM (Zhang)": ("d-admm", "ic-admm"),
    "DP-NIDS": ("nids", "nids"),
    "DP-EXTRA": ("pg-extra", "pg-extra"),
    "DP-RWADMM": ("rw-admm", "rw-admm-linearised"),
}


def budget_cell(loss: str, data: str, setting: str, epsilon: float, effort: Effort) -> Run:
    walk = "random" if setting == AS_PRINTED else "cyclic"
    plf = effort.figure if setting == AS_PRINTED or not epsilon else 0
    seeds = effort.seeds if epsilon or walk == "random" else 1
    return Run(loss, data, setting, "recal", walk, L1[setting], epsilon, plf, seeds)


def method_cell(loss: str, data: str, setting: str, title: str, effort: Effort) -> Run:
    algorithm = PRINTED[title][setting == USEFUL]
    relay = ALGORITHMS[algorithm].kind == "relay"
    walk = "random" if setting == AS_PRINTED and relay else "cyclic"
    plf = effort.figure if setting == AS_PRINTED else 0
    seeds = seeds_of(algorithm, effort)
    return Run(loss, data, setting, algorithm, walk, L1[setting], EPSILON, plf, seeds)


def _cells(loss: str, effort: Effort, budgets: bool) -> Iterator[Run]:
    for data in effort.data:
        for setting in (AS_PRINTED, USEFUL):
            if budgets:
                yield from (budget_cell(loss, data, setting, epsilon, effort) for epsilon in BUDGETS)
            else:
                yield from (method_cell(loss, data, setting, title, effort) for title in PRINTED)


def _line(label: str, outcome: dict[str, Any], measure: str) -> Line | None:
    band = outcome.get("curve", {}).get(measure)
    return None if band is None else Line(label, outcome["curve"]["plf"], *band)


def _panels(found: Found, cells: dict[str, dict[str, Run]], measures: dict[str, str]) -> list[list[Panel]]:
    """One row per measure, one column per data set."""
    rows = []
    for measure, title in measures.items():
        row = []
        for data, mine in cells.items():
            lines = [_line(label, found.of(cell), measure) for label, cell in mine.items()]
            row.append(Panel(title_of(data), "PLF", title, [line for line in lines if line is not None], measure))
        rows.append(row)
    return rows


def _end(outcome: dict[str, Any], measure: str, form: str) -> str:
    if "error" in outcome:
        return absent(outcome)
    spread = outcome.get(measure)
    if spread is None:
        return "-"
    if spread["median"] is None:
        return "diverged"
    return f"{spread['median']:{form}} ({spread['low']:{form}} to {spread['high']:{form}})"


def _ends(found: Found, cells: dict[str, dict[str, Run]], measure: str, title: str, form: str = ".1e") -> ResultTable:
    """The final values of the curves: medians and quartiles."""
    labels = list(next(iter(cells.values())))
    rows = [(label, *(_end(found.of(mine[label]), measure, form) for mine in cells.values())) for label in labels]
    return ResultTable(title, ("", *(title_of(data) for data in cells)), rows)


def _zeros(found: Found, cells: dict[str, dict[str, Run]]) -> str:
    names = [
        title_of(data)
        for data, mine in cells.items()
        if any(found.of(cell).get("solution", {}).get("zero") for cell in mine.values())
    ]
    if not names:
        return ""
    return (
        f"x* = 0 on {', '.join(names)}: the error falls because the prox sets every coordinate to 0, not because "
        "the method learns."
    )


def _show(loss: str, budgets: bool, found: Found, folder: Path) -> list[Block]:
    blocks: list[Block] = []
    for setting in (AS_PRINTED, USEFUL):
        cells: dict[str, dict[str, Run]] = {}
        for data in found.effort.data:
            if budgets:
                mine = {
                    f"epsilon {e:g}" if e else "RECAL": budget_cell(loss, data, setting, e, found.effort)
                    for e in BUDGETS
                }
            else:
                mine = {title: method_cell(loss, data, setting, title, found.effort) for title in PRINTED}
            cells[data] = mine
        measure = {"error": "relative error"} if setting == AS_PRINTED else {"excess": "F(x) - F*"}
        name = f"{'budgets' if budgets else 'methods'}-{loss}-{setting}"
        draw_panels(folder / "figures" / name, _panels(found, cells, {**measure, "accuracy": "test accuracy"}))
        single = f" DP-RWADMM: {found.effort.slow_seeds} walk." if setting == AS_PRINTED and not budgets else ""
        caption = f"{setting}: medians over {found.effort.seeds} seeds, quartiles shaded.{single}"
        blocks.append(Picture(name, caption))
        if setting == AS_PRINTED:
            blocks.append(_ends(found, cells, "relative_error", f"{setting}: relative error at the end"))
            blocks.append(_zeros(found, cells))
        else:
            blocks.append(_ends(found, cells, "excess", f"{setting}: F(x) - F* at the end"))
        blocks.append(_ends(found, cells, "accuracy", f"{setting}: test accuracy at the end", ".3f"))
    return [block for block in blocks if block != ""]


def figure(loss: str, budgets: bool) -> Experiment:
    what = "DP-RECAL under epsilon 1, 5, 10" if budgets else "DP-RECAL, ADMM, NIDS, EXTRA, RWADMM at epsilon 12"
    where = {("linear", True): "Fig. 2", ("linear", False): "Fig. 3"}.get((loss, budgets), "supplement")
    return Experiment(
        name=f"{'budgets' if budgets else 'methods'}-{loss}",
        title=f"{what}, {LOSSES[loss]}",
        printed=where,
        cells=lambda effort: _cells(loss, effort, budgets),
        measure=runs.measure_any,
        show=lambda found, folder: _show(loss, budgets, found, folder),
    )
