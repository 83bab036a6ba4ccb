"""What the network process knows: public numbers of the agreement, and nothing about the records.

An agent is two processes. One has the sockets, the keys and the journal (`agent`); the other has the records, and does
all arithmetic (`process`). The first receives this public plan and released vectors; it never has a record in memory.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LONGEST_PAUSE = 1.0  # seconds between two hops of a baton while no party can act
FIRST_PAUSE = 0.01


@dataclass(frozen=True)
class Settings:
    """What one party decides for itself; it never leaves the party's machine."""

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
    rest: float = 60.0  # idle seconds after which the records process is stopped, to be started again when needed
    isolated: bool = True  # the records in their own process


@dataclass(frozen=True)
class Pace:
    """When a party acts and when a relay ends, from the counts that the baton carries.

    acts     agent i acts at hop k if it has planned activations left and has not acted in this lap (k // lap) yet
    ended    no party has activations left, or no party has acted for `patience` hops because one is absent
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
        """Seconds to wait before a hop: zero while a party acts in each lap, then increasing."""
        laps = (idle - self.lap) / self.lap
        return 0.0 if laps < 0 else min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(laps, 50.0))


@dataclass(frozen=True)
class Way:
    """The parties that one party asks to take the baton, in order: the walk's own choice first, then the others.

    lap   for periodic walks: every party's place in it. The party itself then knows the walk's choice;
          for a random walk, the process with the random numbers has to compute it
    """

    party: int
    parties: int
    neighbours: tuple[int, ...]
    lap: tuple[int, ...] | None

    def on_lap(self, hop: int, came_from: int) -> tuple[int, bool]:
        """The next on the lap, and whether the baton is where the planned route has it."""
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
        # straight back only if there is no other way: on a ring the baton would move back and forth beside a gap for
        # ever
        others.sort(key=lambda j: j == came_from)
        if first == came_from and not on_track:
            first = others[0]  # a lap that meets a gap continues in the other direction
        return [j for j in dict.fromkeys((first, *others)) if j not in lost]


@dataclass(frozen=True)
class JournalSummary:
    """What the result needs from the journal."""

    folder: Path  # of the journal
    made: tuple[int, ...]  # activations of each party
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
    largest: float  # no entry of a message may be larger
    start: int
    pace: Pace
    lap: tuple[int, ...] | None  # of a relay with a periodic walk
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
        """The exact epsilon of so much rho; between two planned sums, the value at the larger."""
        # sums only grow
        place = bisect_left(self.spending, rho, key=lambda planned: planned[0] * (1 + self.tolerance))
        return self.spending[place][1] if place < len(self.spending) else self.epsilon
