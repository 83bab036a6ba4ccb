"""The state of a run, and the file that keeps it if the driver fails.

    position    hops or rounds done
    baton       the baton of a relay, or in rounds each agent's share of the model
    rows        each agent's part of the state
    charged     (agent, seq) of every release so far: each once, even if a call was repeated

A driver that fails loses its work since the last checkpoint. A new one repeats that work with the same noise, so the
same bytes are released again and nothing is charged twice. For the same reason a checkpoint belongs to one run: other
arguments, or other records, are refused.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from relaydp.errors import InputError, PrivacyError

NAME = "checkpoint.npz"
VERSION = 1
WORK = 2.0  # seconds of work that a crash of the driver may cost,
SHARE = 20  # or this many times the cost of a checkpoint if that is more: so they take 5 % of the time at most


@dataclass
class Standing:
    """The progress of a run. It changes only between two calls, so it can be written at any time."""

    agents: int
    position: int = 0
    baton: np.ndarray | None = None  # None before the first activation
    rows: list[bytes] = field(default_factory=list)  # empty ones before an agent's first activation
    charged: dict[tuple[int, int], None] = field(default_factory=dict)  # in order
    peak: float = 0.0  # the largest coefficient since the last check

    def __post_init__(self) -> None:
        self.rows = self.rows or [b""] * self.agents

    def charge(self, agent: int, seq: int) -> None:
        """Record a release. A second one under the same number would be a second use of the records."""
        if (agent, seq) in self.charged:
            raise PrivacyError(f"agent {agent} has released at hop {seq} already; a second release there is refused.")
        self.charged[agent, seq] = None


class Keeper:
    """Writes checkpoints into a folder when they are due; without a folder it keeps nothing.

    every   activations (of a relay) or rounds between two of them; default: as WORK and SHARE determine
    """

    def __init__(self, folder: str | os.PathLike[str] | None, identity: str, every: int | None = None) -> None:
        if every is not None and (not isinstance(every, int) or isinstance(every, bool) or every < 1):
            raise InputError(f"every={every!r}; it must be a whole number of activations or rounds, 1 or more.")
        self.file = None if folder is None else Path(folder).expanduser() / NAME
        self.identity, self.every = identity, every
        self._cost, self._last, self._made = 0.0, time.monotonic(), 0

    def load(self, agents: int) -> Standing:
        """The saved state, or the initial one. Refuses the checkpoint of another run."""
        if self.file is None or not self.file.exists():
            return Standing(agents)
        try:
            with self.file.open("rb") as stream:
                kept = dict(np.load(stream, allow_pickle=False))
            version, identity = int(kept["version"]), str(kept["identity"])
            ends = np.cumsum(kept["lengths"]).tolist()
            whole = kept["rows"].tobytes()
            found = Standing(
                agents,
                position=int(kept["position"]),
                baton=kept["baton"] if kept["baton"].size else None,
                rows=[whole[a:b] for a, b in zip([0, *ends], ends, strict=False)],
                charged=dict.fromkeys(map(tuple, kept["charged"].tolist())),
                peak=float(kept["peak"]),
            )
        except Exception as error:  # broad, because damaged files raise many kinds of error
            raise InputError(
                f"{self.file} cannot be read ({type(error).__name__}); it must be a checkpoint of this run. Remove it "
                "to start again, which gives the same model."
            ) from None
        if version != VERSION or identity != self.identity:
            raise InputError(
                f"{self.file} was written by another run: other arguments, other records or another version. Use the "
                "same arguments to continue, or another checkpoint folder."
            )
        return found

    def due(self, made: int = 1) -> bool:
        """Whether it is time to write, asked after so many activations or rounds more."""
        self._made += made
        if self.file is None:
            return False
        if self.every is not None:
            return self._made >= self.every
        return time.monotonic() - self._last >= max(WORK, SHARE * self._cost)

    def save(self, standing: Standing) -> None:
        """Write atomically: to the disk first, then under its name."""
        if self.file is None:
            return
        began = time.monotonic()
        baton = np.empty(0) if standing.baton is None else standing.baton
        content = {
            "version": np.array(VERSION),
            "identity": np.array(self.identity),
            "position": np.array(standing.position),
            "baton": baton,
            "rows": np.frombuffer(b"".join(standing.rows), np.uint8),
            "lengths": np.array([len(each) for each in standing.rows], np.int64),
            "charged": np.array(list(standing.charged), np.int64).reshape(-1, 2),
            "peak": np.array(standing.peak),
        }
        work = self.file.with_name(f".{NAME}-{os.getpid()}")
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with work.open("wb") as stream:
                np.savez(stream, allow_pickle=False, **content)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(work, self.file)
            _sync_folder(self.file.parent)
        except OSError as error:
            work.unlink(missing_ok=True)
            raise InputError(
                f"the checkpoint {self.file} cannot be written ({error.strerror or error}); the last one, if any, is "
                "complete. Free space on the disk and run again with the same arguments."
            ) from None
        self._last, self._made = time.monotonic(), 0
        self._cost = self._last - began


def _sync_folder(folder: Path) -> None:
    """A new name is on disk once its folder is written."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
