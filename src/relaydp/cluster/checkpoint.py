"""Where a run stands, and the one file that survives the process that drives it.

    position    hops or rounds done
    baton       a relay's, as it travels, or in rounds everybody's share of the model
    rows        what each agent has of the state
    charged     (agent, seq) of every release so far: each once, however often a call was repeated

A driver that dies loses what it did since the last checkpoint. It does that work again with the same noise, so that the
same bytes are released a second time and nothing is charged twice. For the same reason a checkpoint belongs to one run:
other arguments, or other records, are refused.
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
SHARE = 20  # or this many times what a checkpoint costs, where that is more: it then takes 5 % of the time at most


@dataclass
class Standing:
    """How far a run has come. Changed only between two calls, so that it can be written at any time."""

    agents: int
    position: int = 0
    baton: np.ndarray | None = None  # None before the first activation
    rows: list[bytes] = field(default_factory=list)  # empty ones before an agent's first activation
    charged: dict[tuple[int, int], None] = field(default_factory=dict)  # in order
    peak: float = 0.0  # the largest coefficient that was noted since the last look at it

    def __post_init__(self) -> None:
        self.rows = self.rows or [b""] * self.agents

    def charge(self, agent: int, seq: int) -> None:
        """Enter a release. A second one under the same number would be a second look at the records."""
        if (agent, seq) in self.charged:
            raise PrivacyError(f"agent {agent} has released at hop {seq} already; a second release there is refused.")
        self.charged[agent, seq] = None


class Keeper:
    """Writes checkpoints into a folder when they are due; without a folder it keeps nothing.

    every   activations (of a relay) or rounds between two of them; default: as often as WORK and SHARE say
    """

    def __init__(self, folder: str | os.PathLike[str] | None, identity: str, every: int | None = None) -> None:
        if every is not None and (not isinstance(every, int) or isinstance(every, bool) or every < 1):
            raise InputError(f"every={every!r}; it must be a whole number of activations or rounds, 1 or more.")
        self.file = None if folder is None else Path(folder).expanduser() / NAME
        self.identity, self.every = identity, every
        self._cost, self._last, self._made = 0.0, time.monotonic(), 0

    def load(self, agents: int) -> Standing:
        """Where the run stood, or its beginning. Refuses what another run has left."""
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
        except Exception as error:  # broad, for damaged bytes raise nearly anything
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
        """Write all of it or nothing: to the disk first, then under its name."""
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
    """A new name is on the disk once its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
