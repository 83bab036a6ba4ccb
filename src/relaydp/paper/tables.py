"""The paper's two result tables, cell by cell: communication, seconds, relative error, accuracy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from relaydp.algorithm import ALGORITHMS
from relaydp.paper import runs
from relaydp.paper.experiment import (
    AS_PRINTED,
    LOSSES,
    REFUSED,
    USEFUL,
    Block,
    Effort,
    Experiment,
    Found,
    ResultTable,
    absent,
    seeds_of,
    title_of,
)
from relaydp.paper.printed import TABLES
from relaydp.paper.runs import EPSILON, L1, Run, Timing

STEADY = 1.0 + 1e-9  # a growth of MR-ADMM's penalty with no effect


class TableRow(NamedTuple):
    """A row of the paper's table, and our run for it."""

    title: str
    algorithm: str
    l1: bool
    walk: str = "random"  # of relays: as printed, a random walk
    decays: bool = False
    growth: float = 0.0
    private: bool = True
    tuned: bool = False
    per_record: bool = False


ROWS = {
    "huang, l1": TableRow("DP-ADMM (Huang 2020)", "huang-ring", True, decays=True),
    "nids, l1": TableRow("DP-NIDS", "nids", True),
    "extra, l1": TableRow("DP-EXTRA", "pg-extra", True),
    "admm, l1": TableRow("DP-ADMM (Zhang 2017)", "d-admm", True),
    "rwadmm, l1": TableRow("DP-RWADMM", "rw-admm", True),
    "recal, l1": TableRow("DP-RECAL", "recal", True),
    "mradmm, decaying": TableRow("DP-MRADMM, decaying", "mr-admm", False, decays=True),
    "mradmm": TableRow("DP-MRADMM", "mr-admm", False, growth=STEADY),
    "recal": TableRow("DP-RECAL", "recal", False),
}
# not in the paper, which prints a random walk and counts a round-robin's messages
OURS = {
    "recal, l1, round-robin": TableRow("DP-RECAL, round-robin", "recal", True, walk="cyclic"),
    "recal, l1, per record": TableRow(
        "DP-RECAL, round-robin, noise for 2c/m", "recal", True, walk="cyclic", per_record=True
    ),
    "recal, l1, no noise": TableRow("RECAL, round-robin", "recal", True, walk="cyclic", private=False),
    "recal, round-robin": TableRow("DP-RECAL, round-robin", "recal", False, walk="cyclic"),
    "recal, per record": TableRow(
        "DP-RECAL, round-robin, noise for 2c/m", "recal", False, walk="cyclic", per_record=True
    ),
    "recal, no noise": TableRow("RECAL, round-robin", "recal", False, walk="cyclic", private=False),
    "recal, no noise, tuned": TableRow(
        "RECAL, round-robin, tuned steps", "recal", False, walk="cyclic", private=False, tuned=True
    ),
    "recal, no noise, walk": TableRow("RECAL, random walk", "recal", False, private=False),
}
ALL_ROWS = ROWS | OURS
COORDINATED = {name for name, algorithm in ALGORITHMS.items() if algorithm.links == "star"}
# with l1, the replacement of each of the paper's methods by one that uses data through gradients only
SOUND_WITH_R = ("huang-ring", "nids", "pg-extra", "ic-admm", "rw-admm-linearised", "recal")


def printed_cell(loss: str, data: str, row: TableRow, effort: Effort) -> Run:
    plf = effort.decaying if row.decays else effort.fixed
    epsilon = EPSILON if row.private else 0.0
    walk = row.walk if ALGORITHMS[row.algorithm].kind == "relay" else ""
    seeds = seeds_of(row.algorithm, effort) if row.private or walk == "random" else 1
    return Run(
        loss=loss,
        data=data,
        setting=AS_PRINTED,
        algorithm=row.algorithm,
        walk=walk or "cyclic",
        l1=L1[AS_PRINTED] if row.l1 else 0.0,
        epsilon=epsilon,
        plf=plf,
        seeds=seeds,
        growth=row.growth,
        tuned=row.tuned,
        per_record=row.per_record,
    )


def _timing(run: Run) -> Timing:
    return Timing(replace(run, seeds=1))


def useful_cell(loss: str, data: str, algorithm: str, l1: bool, effort: Effort, epsilon: float = EPSILON) -> Run:
    return Run(loss, data, USEFUL, algorithm, "cyclic", L1[USEFUL] if l1 else 0.0, epsilon, 0, effort.seeds)


def _sound(loss: str, effort: Effort) -> list[str]:
    """Every algorithm whose noise has a proved cost for the loss, without r; or only those that the paper compares."""
    if not effort.every:
        return list(SOUND_WITH_R)
    return [
        name
        for name, algorithm in ALGORITHMS.items()
        if algorithm.data == "gradient" or (loss == "logistic" and "objective" in algorithm.mechanisms)
    ]


def _cells(loss: str, effort: Effort) -> Iterator[Run | Timing]:
    for data in effort.data:
        for row in ALL_ROWS.values():
            yield printed_cell(loss, data, row, effort)
        for row in ROWS.values():
            yield _timing(printed_cell(loss, data, row, effort))
        for name in SOUND_WITH_R:
            yield useful_cell(loss, data, name, True, effort)
        for name in _sound(loss, effort):
            yield useful_cell(loss, data, name, False, effort)


def _middle(outcome: dict[str, Any], measure: str, form: str = ".1e") -> str:
    spread = outcome.get(measure)
    if spread is None:
        return "-"
    return "diverged" if spread["median"] is None else format(spread["median"], form)


def _pair(ours: str, printed: str) -> str:
    return f"{ours} ({printed})"


def _printed_table(loss: str, found: Found) -> ResultTable:
    effort = found.effort
    columns = ["r", "PLF", "algorithm", "communication, paper's rule", "link uses", "vectors"]
    for data in effort.data:
        columns += [f"{title_of(data)} s", "RE", "accuracy"]
    rows = []
    for name, row in ALL_ROWS.items():
        outcomes = {data: found.of(printed_cell(loss, data, row, effort)) for data in effort.data}
        printed = TABLES[loss].get(name)
        some = next((o for o in outcomes.values() if "error" not in o), None)
        cells = ["l1" if row.l1 else "-"]
        if some is None:
            cells += ["-", row.title, "-", "-", "-"]
        else:
            count = str(some["messages_paper"])
            cells += [str(some["plf"]), row.title]
            cells += [_pair(count, str(printed.communication)) if printed else count]
            cells += [str(some["messages"]), str(some["vectors"])]
        for data, outcome in outcomes.items():
            if "error" in outcome:
                cells += [absent(outcome), "-", "-"]
                continue
            seconds, error = "-", _middle(outcome, "relative_error")
            if printed is not None:
                timed = found.of(_timing(printed_cell(loss, data, row, effort))).get("seconds")
                theirs = getattr(printed, data, None)
                seconds = "-" if timed is None else f"{float(f'{timed:.2g}'):g}"
                if theirs is not None:
                    seconds, error = _pair(seconds, f"{theirs[0]:g}"), _pair(error, f"{theirs[1]:.1e}")
            cells += [seconds, error, _middle(outcome, "accuracy", ".3f")]
        rows.append(tuple(cells))
    note = (
        f"Ours, then the paper's in brackets. epsilon {EPSILON:g} by each paper's own accounting, delta "
        f"{runs.DELTA:g}, R = {runs.RATIO:g}; medians of {effort.seeds} seeds (DP-RWADMM: {effort.slow_seeds}). PLF "
        f"{effort.fixed} for fixed steps, {effort.decaying} for decaying ones. No proof supports any epsilon in this "
        "table (docs/privacy.md)."
    )
    return ResultTable(f"As printed: {LOSSES[loss]}", tuple(columns), rows, note)


def _solutions(loss: str, found: Found) -> ResultTable:
    """The solution x* of the printed problem."""
    rows = []
    for l1 in (True, False):
        row = ROWS["recal, l1" if l1 else "recal"]
        for data in found.effort.data:
            outcome = found.of(printed_cell(loss, data, row, found.effort))
            if "error" in outcome:
                continue
            best = outcome["solution"]
            rows.append(
                (
                    "l1" if l1 else "-",
                    title_of(data),
                    "0" if best["zero"] else f"{best['norm']:.3g}",
                    str(best["nonzero"]),
                    f"{best['accuracy']:.3f}",
                    f"{outcome['smoothness']:.3g}",
                    f"{outcome['noise'][1]:.2g}",
                )
            )
    columns = ("r", "data", "norm of x*", "nonzero", "accuracy of x*", "L", "noise of the last release")
    return ResultTable(
        "Solutions of the printed problems", columns, rows, "x* = 0 predicts the same class for every record."
    )


def _useful_table(loss: str, l1: bool, found: Found) -> ResultTable:
    effort = found.effort
    names = SOUND_WITH_R if l1 else _sound(loss, effort)
    columns = ["algorithm"]
    for data in effort.data:
        columns += [f"{title_of(data)} excess", "accuracy", "PLF", "messages"]
    outcomes = {n: {d: found.of(useful_cell(loss, d, n, l1, effort)) for d in effort.data} for n in names}

    def place(name: str) -> float:
        ranks = [_rank(outcomes, name, data) for data in effort.data]
        return sum(ranks) / len(ranks)

    rows = []
    for name in sorted(names, key=place):
        cells = [ALGORITHMS[name].title]
        for data in effort.data:
            outcome = outcomes[name][data]
            if "error" in outcome:
                cells += [absent(outcome), "-", "-", "-"]
            else:
                cells += [_middle(outcome, "excess"), _middle(outcome, "accuracy", ".3f")]
                cells += [str(outcome["plf"]), str(outcome["messages"])]
        rows.append(tuple(cells))
    r = "l1" if l1 else "0"
    note = (
        f"({EPSILON:g}, {runs.DELTA:g})-differential privacy for every record, exact accounting; PLF, noise and steps "
        f"planned for {runs.PUBLIC} public records; medians of {effort.seeds} seeds; sorted by mean rank. "
        f"{_verdict(outcomes, effort)}"
    )
    return ResultTable(f"Useful: {LOSSES[loss]}, r = {r}", tuple(columns), rows, note)


def excess_of(outcome: dict[str, Any]) -> tuple[float, float] | None:
    """Median excess objective and its standard error; None if there is none."""
    spread = outcome.get("excess")
    if spread is None or spread["median"] is None:
        return None
    return spread["median"], spread["error"]


def _rank(outcomes: dict[str, Any], name: str, data: str) -> float:
    mine = excess_of(outcomes[name][data])
    if mine is None:
        return len(outcomes)
    others = [excess_of(outcome[data]) for outcome in outcomes.values()]
    return sum(other is not None and other[0] < mine[0] for other in others)


def level(outcomes: dict[str, Any], data: str, name: str = "recal", coordinators: bool = False) -> bool:
    """Whether no method (without a coordinator, unless asked) is better than `name` by more than one standard error."""
    mine = excess_of(outcomes[name][data])
    if mine is None:
        return False
    for rival, outcome in outcomes.items():
        if not coordinators and rival in COORDINATED:
            continue
        other = excess_of(outcome[data])
        if other is not None and other[0] + (other[1] ** 2 + mine[1] ** 2) ** 0.5 < mine[0]:
            return False
    return True


def _verdict(outcomes: dict[str, Any], effort: Effort) -> str:
    def places(coordinators: bool) -> str:
        ahead = [title_of(data) for data in effort.data if level(outcomes, data, coordinators=coordinators)]
        return ", ".join(ahead) or "no data set"

    verdict = f"First or level (within one standard error) without a server is DP-RECAL on {places(False)}"
    if COORDINATED & outcomes.keys():
        verdict += f"; also counting AFBS and Huang's star, which have a coordinator, on {places(True)}"
    return verdict + "."


def _show(loss: str, found: Found, folder: Path) -> list[Block]:
    blocks: list[Block] = [_printed_table(loss, found), _solutions(loss, found)]
    blocks += [_useful_table(loss, True, found), _useful_table(loss, False, found)]
    refused = {}
    for data in found.effort.data:
        for cell in _cells(loss, found.effort._replace(data=(data,))):
            if isinstance(cell, Run) and "error" in (outcome := found.of(cell)) and absent(outcome) == REFUSED:
                refused.setdefault(f"{cell.algorithm}, {cell.setting}: {outcome['error']}", None)
    if refused:
        blocks.append("Refused: " + " ".join(refused))
    return blocks


def table(loss: str) -> Experiment:
    return Experiment(
        name=f"table-{loss}",
        title=f"All algorithms at epsilon 12, {LOSSES[loss]}",
        printed="Table IV" if loss == "linear" else "supplement, Table V",
        cells=lambda effort: _cells(loss, effort),
        measure=runs.measure_any,
        show=lambda found, folder: _show(loss, found, folder),
    )
