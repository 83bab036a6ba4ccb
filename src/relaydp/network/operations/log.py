"""The agent's log: JSON lines on stderr that cannot hold a private value.

    {"time": "2026-03-01T09:30:00.125+00:00", "level": "info", "event": "baton-sent", "party": "north", "seq": 41}

An agent's records, gradients and rows of the state must never reach a log, which is copied, sent and kept by people who
must not see them. So a line is made of named fields only, each of a kind fixed in FIELDS: a name that is not there, an
array, bytes, a NumPy scalar (it may come from an array) or any other object raises TypeError where the line is written.
What remains are counts, measured times, budgets and short texts.

A text is cut after LONGEST characters. Everything outside printable ASCII is escaped, so a line break, a terminal's
escape sequence or any other control character in a peer's name stays inside its string: one event is one line.

A peer that is refused again and again cannot fill the disk: at most OFTEN of its refusals for one reason are written
per minute, and the next line says how many were left out. The metrics count all of them.
"""

from __future__ import annotations

import json
import math
import re
import sys
import threading
import time
from datetime import UTC, datetime
from typing import Any, TextIO

from relaydp.errors import RelayError

LONGEST = 500  # characters of a text: an error's sentences fit, a printed array does not
WHOLE = 2**63  # counts stay below it: every JSON reader can hold them, and bytes cannot be hidden in one number
WORD = re.compile(r"[a-z0-9]{1,40}(-[a-z0-9]{1,40}){0,5}")  # kebab-case: what events and reasons of refusal look like

OFTEN, MINUTE = 60, 60.0  # written refusals of one peer for one reason, in so many seconds
MOST_PEERS = 1000  # peers counted at once; strangers share one name, so more peers are an attack, and counting restarts

# the fields of a line besides time, level, event and party, with their types
_TEXTS = """
    address algorithm consortium detail error fingerprint identity kind model_sha256 path peer reason receiver sender
    sha256 signal state version
"""
_COUNTS = """
    activation activations attempt bytes epoch hop hops last_seq left_out parties pid planned port records seq
    unacknowledged
"""
_MEASURES = "delta epsilon epsilon_limit rho rho_limit seconds"
_ANSWERS = "private resumed up"
FIELDS: dict[str, type] = {
    **dict.fromkeys(_TEXTS.split(), str),
    **dict.fromkeys(_COUNTS.split(), int),
    **dict.fromkeys(_MEASURES.split(), float),
    **dict.fromkeys(_ANSWERS.split(), bool),
}
REQUIRED = {"refused": ("peer", "reason")}  # events that are useless without these fields


class Log:
    """Writes events of one party as JSON lines; safe to call from any thread and from a signal handler.

    A wrong field is a mistake in the program and raises. A closed or full stream does not stop the agent: the line is
    lost.

    >>> Log("north", sys.stdout).info("baton-sent", seq=41)  # doctest: +ELLIPSIS
    {"time": "...", "level": "info", "event": "baton-sent", "party": "north", "seq": 41}
    """

    def __init__(self, party: str, stream: TextIO | None = None) -> None:
        self._party = _text("party", party)
        self._stream = stream  # None: sys.stderr at the time of writing
        self._lock = threading.RLock()  # a signal handler may log while its own thread is writing
        self._refusals: dict[tuple[str, str], list[float]] = {}  # (reason, peer) -> [since when, how many]

    def info(self, event: str, **fields: str | int | float | bool | None) -> None:
        """A normal event of a run."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: str | int | float | bool | None) -> None:
        """A problem that was handled, such as a refused message."""
        self._write("warning", event, fields)

    def error(self, event: str, **fields: str | int | float | bool | None) -> None:
        """A problem that an operator should look at."""
        self._write("error", event, fields)

    def failed(self, event: str, exception: BaseException, **fields: str | int | float | bool | None) -> None:
        """An error by the name of its class, with its text only if that was written for users.

        The text of any other exception may quote values (NumPy's print arrays).
        """
        detail = None
        if isinstance(exception, RelayError):
            detail = str(exception)
        elif isinstance(exception, OSError):
            detail = exception.strerror
        self._write("error", event, {**fields, "error": type(exception).__name__, "detail": detail})

    def refused(self, reason: str, peer: str, **fields: str | int | float | bool | None) -> None:
        """A message that was refused: the reason, as the metrics count it, and the peer."""
        left_out = self._left_out(reason, peer)
        if left_out is not None:
            self._write("warning", "refused", {"peer": peer, "reason": reason, "left_out": left_out or None, **fields})

    def _left_out(self, reason: str, peer: str) -> int | None:
        """How many refusals like this one were left out since the last written one; None if this one is left out,
        too."""
        now = time.monotonic()
        with self._lock:
            if len(self._refusals) > MOST_PEERS:
                self._refusals.clear()
            since, many = self._refusals.get((reason, peer), (-MINUTE, 0))
            fresh = now - since >= MINUTE
            self._refusals[reason, peer] = [now, 1] if fresh else [since, many + 1]
        if fresh:
            return max(0, int(many) - OFTEN)
        return 0 if many < OFTEN else None

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if not isinstance(event, str) or not WORD.fullmatch(event):
            raise TypeError(
                f"event {event!r:.80} is not a name; it must be a few words in kebab-case, such as 'baton-sent'."
            )
        for name in REQUIRED.get(event, ()):
            if fields.get(name) is None:
                raise TypeError(f"event {event!r} lacks {name!r}; it must have: {', '.join(REQUIRED[event])}.")
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "level": level, "event": event, "party": self._party}
        line |= {name: _checked(name, value) for name, value in fields.items() if value is not None}
        text = json.dumps(line, ensure_ascii=True, allow_nan=False) + "\n"
        with self._lock:
            try:
                stream = sys.stderr if self._stream is None else self._stream
                if stream is not None:  # a process may have been started without a stderr
                    stream.write(text)
                    stream.flush()
            except (OSError, ValueError, RuntimeError):  # full, closed, or interrupted by a signal handler that logs
                pass


def _checked(name: str, value: Any) -> str | int | float | bool | None:
    """A field as JSON can hold it, or TypeError. Types are compared exactly: a NumPy float64 is a float's subclass."""
    if name not in FIELDS:
        raise TypeError(f"a log has no field {name!r}; the fields are: {', '.join(sorted(FIELDS))}.")
    kind = FIELDS[name]
    if kind is str:
        return _text(name, value)
    if kind is float and type(value) is float:
        return value if math.isfinite(value) else None  # JSON has no infinity
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise _wrong(name, value, kind)
    if type(value) is int and not -WHOLE <= value < WHOLE:
        raise TypeError(f"the log's {name} is a number of {value.bit_length()} bits; it must be one of at most 63.")
    return value


def _text(name: str, value: Any) -> str:
    if type(value) is not str:
        raise _wrong(name, value, str)
    return value if len(value) <= LONGEST else value[: LONGEST - 1] + "…"


def _wrong(name: str, value: Any, kind: type) -> TypeError:
    """Names the type, never the value, which may be private."""
    came = type(value)
    return TypeError(
        f"the log's {name} is a {came.__module__}.{came.__qualname__}; it must be a plain {kind.__name__}. If it is "
        f"public, convert it with {kind.__name__}(); if it is private, leave it out."
    )
