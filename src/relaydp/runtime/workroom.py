"""The way to the process with the records: started when there is work, let go when there is none for long."""

from __future__ import annotations

import multiprocessing
import threading
from typing import Any

from relaydp.errors import RelayError
from relaydp.runtime.brief import Brief, Settings

STOP_SECONDS = 5.0
TRIES = 2  # a question whose process died is asked once more: nothing that was not answered has left


class Workroom:
    """Ask the vault, in another process; one question at a time, from any thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._lock = settings, threading.Lock()
        # spawn: nothing of this process, neither keys nor sockets, is in the other's memory
        self._context = multiprocessing.get_context("spawn")
        self._process: Any = None
        self._pipe: Any = None
        self.brief: Brief = self._start()

    def _start(self) -> Brief:
        self._pipe, theirs = self._context.Pipe()
        self._process = self._context.Process(target=_launch, args=(self._settings, theirs), daemon=True)
        self._process.start()
        theirs.close()
        try:
            return self._answer()
        except EOFError:
            self._process.join(STOP_SECONDS)
            raise RelayError(
                f"the process that holds the records ended as it started (exit code {self._process.exitcode}); out of "
                "memory? Nothing was released. Start the agent again with more."
            ) from None

    def _answer(self) -> Any:
        well, answer = self._pipe.recv()
        if not well:
            raise answer
        return answer

    def ask(self, method: str, *arguments: Any) -> Any:
        """The vault's answer; its errors are raised here."""
        with self._lock:
            for _ in range(TRIES):
                try:
                    if not self._process.is_alive():
                        self._start()
                    self._pipe.send((method, arguments))
                    return self._answer()
                except (EOFError, BrokenPipeError, ConnectionResetError):  # it rested just now, or was killed
                    self._process.join(STOP_SECONDS)
            raise RelayError(
                f"the process that holds the records ended twice while it worked on {method!r} (exit code "
                f"{self._process.exitcode}); out of memory? Nothing was released. Start the agent again with more."
            )

    def close(self) -> None:
        with self._lock:
            self._pipe.close()
            self._process.join(STOP_SECONDS)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()


def _launch(settings: Settings, pipe: Any) -> None:
    from relaydp.runtime.vault import work  # heavy: for that process alone

    work(settings, pipe)


class Inside:
    """The same in this process, for tests that start agents by the hundred."""

    def __init__(self, settings: Settings) -> None:
        from relaydp.runtime.vault import Vault

        self._vault, self._lock = Vault(settings), threading.Lock()
        self.brief = self._vault.brief

    def ask(self, method: str, *arguments: Any) -> Any:
        with self._lock:
            return getattr(self._vault, method)(*arguments)

    def close(self) -> None:
        pass
