"""What the process that talks to the network is told: public numbers of the agreement, and nothing of the records.

An agent is two processes. One has the sockets, the keys and the journal (`agent`); the other has the records, and does
all arithmetic (`process`). The first is given this public plan and released vectors; no record is ever in its memory.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LONGEST_PAUSE = 1.0  # seconds between two hops of a baton that nobody can act on
FIRST_PAUSE = 0.01


@dataclass(frozen=True)
class Settings:
    """What one party decides for itself; nothing of it leaves its machine."""

    home: Path
    consortium: Path
    data: Path
    max_epsilon: float  # at max_delta, whatever delta the file has
    max_delta: float = 1e-5
    listen: str | None = None  # default: the agreed address
    status_port: int = 0  # 0: any free one
    mark: Path | None = None
    seed: int | None = None  # for development: noise from a seed is not private
    linger: float = 60.0
    rest: float = 60.0  # seconds without work after which the process with the records is let go, to be started again
    isolated: bool = True  # the records in a process of their own


@dataclass(frozen=True)
class Pace:
    """When a party acts and when a relay ends, from the counts that the baton carries.

    acts     agent i acts at hop k if it has planned activations left and has not acted in this lap (k // lap) yet
    ended    nobody has activations left; or nothing has happened for `patience` hops, because somebody stays away
    """

    lap: int
    activations: int
    patience: int

    def acts(self, hop: int, made: int) -> bool:
        """Whether an agent that has acted `made` times acts at this hop."""
        return made < self.activations and made <= hop // self.lap

    def ended(self, made: tuple[int, ...], idle: int, lost: frozenset[int] = frozenset()) -> bool:
        spent = all(count >= self.activations for i, count in enumerate(made) if i not in lost)
        return spent or idle > self.patience

    def pause(self, idle: int) -> float:
        """Seconds to wait before a hop: none while somebody acts each lap, then longer and longer."""
        laps = (idle - self.lap) / self.lap
        return 0.0 if laps < 0 else min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(laps, 50.0))


@dataclass(frozen=True)
class Way:
    """Whom one party asks to take the baton, in order: the walk's own choice first, then the others.

    lap   of walks that go round and round: everybody's place on it. The party itself then knows the walk's choice;
          of a walk that is drawn, the process with the random numbers has to say it
    """

    party: int
    parties: int
    neighbours: tuple[int, ...]
    lap: tuple[int, ...] | None

    def on_lap(self, hop: int, came_from: int) -> tuple[int, bool]:
        """The next on the lap, and whether the baton is where the laid-out route has it."""
        assert self.lap is not None
        length = len(self.lap)
        here = hop % length
        on_track = self.lap[here] == self.party and (hop == 0 or self.lap[here - 1] == came_from)
        here = here if on_track else self.lap.index(self.party)
        return self.lap[(here + 1) % length], on_track

    def choices(
        self, first: int, on_track: bool, came_from: int, made: tuple[int, ...], lost: frozenset[int]
    ) -> list[int]:
        """`first`, then those who acted least."""
        others = sorted(self.neighbours, key=lambda j: (made[j], (j - self.party) % self.parties))
        # straight back only as a last resort: on a ring it would swing to and fro beside a gap for ever
        others.sort(key=lambda j: j == came_from)
        if first == came_from and not on_track:
            first = others[0]  # a lap that met a gap goes round the other way
        return [j for j in dict.fromkeys((first, *others)) if j not in lost]


@dataclass(frozen=True)
class JournalSummary:
    """What the journal has to say for the result."""

    folder: Path  # of the journal
    made: tuple[int, ...]  # activations of everybody
    releases: tuple[tuple[int, float, float], ...]  # (seq, sensitivity, scale) of this party's, in order
    activations: int
    epoch: int
    lost: tuple[str, ...]
    transcript: list[dict[str, Any]]


@dataclass(frozen=True)
class PublicPlan:
    """All plain values; lists go by party, in the file's order."""

    name: str  # of the consortium
    identity: bytes
    epsilon: float
    delta: float
    party: int  # this one
    names: tuple[str, ...]
    addresses: tuple[str, ...]
    certificates: tuple[str, ...]
    fingerprints: tuple[str, ...]
    neighbours: tuple[int, ...]
    algorithm: str
    relay: bool
    vectors: int
    dim: int
    largest: float  # no entry of a message may be longer
    start: int
    pace: Pace
    lap: tuple[int, ...] | None  # of a relay whose walk goes round and round
    scales: tuple[float, ...]  # of this party's releases
    sensitivity: float
    limit_rho: float
    tolerance: float  # relative, for rounding
    spending: tuple[tuple[float, float], ...]  # (rho, epsilon) after each planned release
    private: bool

    @property
    def way(self) -> Way:
        return Way(self.party, len(self.names), self.neighbours, self.lap)

    def epsilon_at(self, rho: float) -> float:
        """The exact epsilon of so much rho; between two planned sums, that of the larger."""
        # sums only grow
        place = bisect_left(self.spending, rho, key=lambda planned: planned[0] * (1 + self.tolerance))
        return self.spending[place][1] if place < len(self.spending) else self.epsilon
