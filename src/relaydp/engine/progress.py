"""Progress: a bar on a terminal, a callback, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from relaydp.errors import InputError, short

Progress = Callable[[int, int], None]  # (hops done, hops in all)


def check_progress(progress: object) -> None:
    """Refuse what is neither a choice nor a function, before a run begins."""
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise InputError(f"progress={short(progress)}; needed True, False, None, or a function of (done, in all).")


@contextmanager
def shown(progress: bool | Progress | None, title: str) -> Iterator[Progress | None]:
    """`progress` as the user gave it: None shows a bar when stderr is a terminal."""
    wanted = sys.stderr.isatty() if progress is None else progress
    if not isinstance(wanted, bool):
        yield wanted
        return
    if not wanted:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("hops"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
