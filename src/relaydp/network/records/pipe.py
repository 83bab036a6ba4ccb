"""The connection to the process with the records, which is started when there is work and stopped when idle."""

from __future__ import annotations

import asyncio
import multiprocessing
from typing import Any

from relaydp.errors import RelayError
from relaydp.network.records.public_plan import PublicPlan, Settings

STOP_SECONDS = 5.0
TRIES = 2  # a question whose process died is asked once more: no part of a missing answer was released


class RecordsPipe:
    """Ask the process with the records; one question at a time."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._turn = settings, asyncio.Lock()
        # spawn: the other process inherits neither keys nor sockets
        self._context = multiprocessing.get_context("spawn")
        self._process: Any = None
        self._pipe: Any = None
        self.public_plan: PublicPlan = self._start()

    def _start(self) -> PublicPlan:
        self._pipe, theirs = self._context.Pipe()
        self._process = self._context.Process(target=_launch, args=(self._settings, theirs), daemon=True)
        self._process.start()
        theirs.close()
        try:
            return self._answer()
        except EOFError:
            self._process.join(STOP_SECONDS)
            raise RelayError(
                f"the process that holds the records ended as it started (exit code {self._process.exitcode}), perhaps "
                "because memory ran out. Nothing was released. Start the agent again with more memory."
            ) from None

    def _answer(self) -> Any:
        well, answer = self._pipe.recv()
        if not well:
            raise answer
        return answer

    async def ask(self, method: str, *arguments: Any) -> Any:
        """The other process's answer; its errors are raised here."""
        # a caller that stops waiting must not leave an answer in the pipe, which the next question would read
        return await asyncio.shield(self._ask(method, arguments))

    async def _ask(self, method: str, arguments: tuple[Any, ...]) -> Any:
        async with self._turn:
            for _ in range(TRIES):
                try:
                    if not self._process.is_alive():
                        await asyncio.to_thread(self._start)
                    self._pipe.send((method, arguments))
                    await _readable(self._pipe.fileno())
                    return self._answer()
                except (EOFError, BrokenPipeError, ConnectionResetError):  # it was idle and stopped, or was killed
                    self._process.join(STOP_SECONDS)
            raise RelayError(
                f"the process that holds the records ended twice while it worked on {method!r} (exit code "
                f"{self._process.exitcode}), perhaps because memory ran out. Nothing was released. Start the agent "
                "again with more memory."
            )

    def close(self) -> None:
        """Close it, after the loop that asks has ended."""
        self._pipe.close()
        self._process.join(STOP_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


async def _readable(file: int) -> None:
    """Wait until there is something to read, or the other end is closed. A waiting thread would cost more time."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(file, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(file)


def _launch(settings: Settings, pipe: Any) -> None:
    from relaydp.network.records.process import work  # a slow import, needed in that process only

    work(settings, pipe)


class InProcess:
    """The same in this process, for tests that start hundreds of agents."""

    def __init__(self, settings: Settings) -> None:
        from relaydp.network.records.process import RecordsProcess

        self._process, self._turn = RecordsProcess(settings), asyncio.Lock()
        self.public_plan = self._process.public_plan

    async def ask(self, method: str, *arguments: Any) -> Any:
        async with self._turn:
            return await asyncio.to_thread(getattr(self._process, method), *arguments)

    def close(self) -> None:
        pass
