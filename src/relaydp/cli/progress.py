"""Progress on a terminal: the current step, how far it is, the time so far and the time left.

    with step_bar(quiet or json_, "reading the data") as report:
        report("planning")                        length unknown: a spinner and the time so far
        report("recal on ring(8)", 300, 2400)     a bar, 300/2400, the time so far and the time left
        solve(..., progress=report.hops("recal on ring(8)"))

It writes to stderr, and nothing at all where that is not a terminal. It is gone when the work is done. The bar that
Python users see is in `relaydp.engine.progress`; this one stands before JAX is imported, which takes seconds itself.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Report:
    """Shows the current step; called by the code that does the work."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar, self._task = bar, task

    def __call__(self, name: str, done: int = 0, total: int | None = None) -> None:
        self._bar.update(self._task, description=name, completed=done, total=total)

    def hops(self, name: str, start: float = 0.0, stop: float = 1.0) -> Callable[[int, int], None]:
        """As `solve` tells it, (done, total); scaled to the part from `start` to `stop` of a longer job."""
        if (start, stop) == (0.0, 1.0):
            return lambda done, total: self(name, done, total)
        return lambda done, total: self(name, round(100 * (start + (stop - start) * done / max(total, 1))), 100)


class step_bar:
    """A bar for as long as the block lasts."""

    def __init__(self, silent: bool, name: str = "") -> None:
        self.silent, self.name = silent, name

    def __enter__(self) -> Report:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.table import Column
        from rich.text import Text

        class Count(ProgressColumn):
            def render(self, task) -> Text:
                return Text("" if task.total is None else f"{int(task.completed)}/{int(task.total)}")

        class Left(ProgressColumn):
            max_refresh = 0.5

            def render(self, task) -> Text:
                seconds = None if task.total is None else task.time_remaining
                if seconds is None:
                    return Text("")
                minutes, seconds = divmod(int(seconds), 60)
                hours, minutes = divmod(minutes, 60)
                return Text(f"{f'{hours}:{minutes:02d}' if hours else minutes}:{seconds:02d} left")

        console = Console(stderr=True)
        self.bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
            BarColumn(20),
            Count(),
            TimeElapsedColumn(),
            Left(),
            console=console,
            transient=True,
            expand=True,
            disable=self.silent or not console.is_terminal,
        )
        self.bar.start()
        return Report(self.bar, self.bar.add_task(self.name, total=None))

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.bar.stop()
