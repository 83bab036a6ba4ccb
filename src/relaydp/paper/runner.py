"""Run experiments cell by cell, store every cell, and write the page of all that exist."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from relaydp.errors import InputError
from relaydp.paper.experiment import Cell, Effort, Experiment, Found, Progress
from relaydp.paper.page import Section, write_page
from relaydp.result import versions

LOT = 4  # successive cells of a process
# XLA's options with an NVIDIA GPU: run loops on it without the host (an exact argmin is one), use cuBLAS for float64
# products instead of trying Triton kernels, and do not fuse normalised noise with later operations, which takes 20 s to
# compile for MR-ADMM on ijcnn1. Numbers change by rounding only. Measured: docs/measurements.md.
GPU = "/dev/nvidiactl"
GPU_FLAGS = (
    "--xla_gpu_enable_command_buffer=+WHILE",
    "--xla_gpu_enable_triton_gemm=false",
    "--xla_disable_hlo_passes=triton-softmax-rewriter",
)
Report = Callable[[str, str, int, int], None]  # (experiment, cell, cells done, cells in all)


def run_experiments(
    experiments: Sequence[Experiment],
    folder: str | os.PathLike[str],
    effort: Effort,
    report: Report | None = None,
    progress: Progress | None = None,
    fresh: bool = False,
    jobs: int = 1,
) -> Path:
    """Compute missing cells and write folder/paper.md and paper.html; returns the page.

    Every cell is a file in folder/cells, written atomically. An interrupt loses only the current cell; the page is then
    written from the others. `fresh` computes everything again. `jobs` processes share the work; cells that measure time
    run afterwards, one by one.
    """
    home = Path(folder)
    if home.exists() and not home.is_dir():
        raise InputError(f"{home} is a file; cells, figures and the page need a folder. Choose another path.")
    (home / "cells").mkdir(parents=True, exist_ok=True)
    work = _work(experiments, effort)
    todo = [(experiment, cell) for experiment, cell in work if fresh or read_cell(home, cell) is None]
    done = len(work) - len(todo)

    def tell(name: str, cell: str) -> None:
        if report is not None:
            report(name, cell, done, len(work))

    try:
        shared = [pair for pair in todo if not pair[1].alone] if jobs > 1 else []
        for count in _together(home, shared, jobs):
            done += count
            tell("", "")
        for experiment, cell in todo if jobs == 1 else (pair for pair in todo if pair[1].alone):
            tell(experiment.name, cell.key)
            compute(home, experiment, cell, progress)
            done += 1
        tell("", "")
    finally:
        _write(home, experiments, effort)
    return home / "paper.md"


def compute(home: Path, experiment: Experiment, cell: Cell, progress: Progress | None = None) -> None:
    """Measure one cell and store it."""
    began = time.perf_counter()
    outcome = experiment.measure(cell, progress)
    _keep(home, cell, outcome, time.perf_counter() - began)


def _together(home: Path, work: list[tuple[Experiment, Cell]], jobs: int) -> Iterator[int]:
    """Compute cells in several processes; yields the number of finished ones, a few at a time.

    Neighbouring cells share data and compiled code, so each process takes several in a row.
    """
    if not work:
        return
    lots = in_lots(work)
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    before = dict(os.environ)
    try:
        os.environ.update(_shared_out(jobs) | before)  # for the processes started below; user settings win
        running = [pool.submit(_lot, home, [(each.name, cell) for each, cell in lot]) for lot in lots]
        for finished in as_completed(running):
            yield finished.result()
    except BaseException:
        for process in list(
            (pool._processes or {}).values()
        ):  # a cell may take minutes, and an interrupt must not wait
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for name in _shared_out(jobs).keys() - before.keys():
            os.environ.pop(name, None)


def in_lots(work: Sequence[tuple[Experiment, Cell]]) -> list[list[tuple[Experiment, Cell]]]:
    """The work in lots for processes: long cells one by one, the longest first; then the others, neighbours together.

    A long cell started last would leave every other process idle.
    """
    long = sorted((pair for pair in work if pair[1].long), key=lambda pair: -pair[1].long)
    others = [pair for pair in work if not pair[1].long]
    return [[pair] for pair in long] + [others[at : at + LOT] for at in range(0, len(others), LOT)]


def _shared_out(jobs: int) -> dict[str, str]:
    """The environment of parallel processes: they share one accelerator, and each has its share of the cores."""
    cores = str(max(1, (os.cpu_count() or 1) // jobs))
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    if os.path.exists(GPU):
        more = {"XLA_FLAGS": " ".join(GPU_FLAGS)}
    else:  # XLA's threads: with more threads than cores, they wait for each other
        more = {"NPROC": cores}
    return {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **dict.fromkeys(names, cores), **more}


def _lot(home: Path, cells: list[tuple[str, Cell]]) -> int:
    """The work of one process: it finds experiments by name, because their functions cannot be pickled."""
    from relaydp.paper.registry import EXPERIMENTS

    for name, cell in cells:
        compute(home, EXPERIMENTS[name], cell)
    return len(cells)


def _work(experiments: Sequence[Experiment], effort: Effort) -> list[tuple[Experiment, Cell]]:
    """Every cell once, in the order of the experiments."""
    cells: dict[str, tuple[Experiment, Cell]] = {}
    for experiment in experiments:
        for cell in experiment.cells(effort):
            cells.setdefault(cell.key, (experiment, cell))
    return list(cells.values())


def _path(home: Path, cell: Cell) -> Path:
    return home / "cells" / f"{cell.key}.json"


def read_cell(home: Path, cell: Cell) -> dict[str, Any] | None:
    """A cell's outcome, or None if it has not been computed (or its file is damaged: then it is computed again)."""
    kept = _kept(home, cell)
    return None if kept is None else kept["outcome"]


def _kept(home: Path, cell: Cell) -> dict[str, Any] | None:
    """A cell's file: the cell, its outcome, the seconds it took, and the machine."""
    try:
        kept = json.loads(_path(home, cell).read_text())
        whole = kept["cell"] == asdict(cell) and {"outcome", "seconds", "versions"} <= kept.keys()
        return kept if whole else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(home: Path, cell: Cell, outcome: dict[str, Any], seconds: float) -> None:
    path = _path(home, cell)
    draft = path.with_suffix(".draft")
    content = {"cell": asdict(cell), "outcome": outcome, "seconds": seconds, "versions": versions()}
    draft.write_text(json.dumps(content, allow_nan=False) + "\n")
    draft.replace(path)


def _write(home: Path, experiments: Sequence[Experiment], effort: Effort) -> None:
    """Write the page of all existing cells."""
    sections = []
    spent, machines = 0.0, set()
    for experiment in experiments:
        cells = list(experiment.cells(effort))
        files = {cell.key: kept for cell in cells if (kept := _kept(home, cell)) is not None}
        if not files:
            continue
        spent += sum(kept["seconds"] for kept in files.values())
        machines |= {kept["versions"]["device"] for kept in files.values()}
        outcomes = {key: kept["outcome"] for key, kept in files.items()}
        missing = len({cell.key for cell in cells}) - len(outcomes)
        blocks = experiment.show(Found(effort, outcomes), home)
        if missing:
            blocks = [f"{missing} cells are missing: run the command again to compute them.", *blocks]
        command = f"relaydp paper run {experiment.name}{' --quick' if effort.name == 'quick' else ''}"
        sections.append(Section(experiment.name, experiment.title, experiment.printed, command, blocks))
    found = versions()
    head = [
        f"Effort: {effort.name} ({effort.seeds} seeds, PLF {effort.fixed} and {effort.decaying} in tables, "
        f"{effort.figure} in figures). relaydp {found['relaydp']}, JAX {found['jax']}, Python {found['python']}, on "
        f"{', '.join(sorted(machines)) or 'nothing yet'}; {spent:.0f} s of computing, compilation included."
    ]
    write_page(home, head, sections)
