"""Whom a party trusts with its records, and how much of the noise it then adds itself.

    nobody    every other party may collude: each hides its records by its own noise
    masked    at most t of the n parties collude. A sum over a lap is all that anybody sees (pairwise masks cancel in
              it), and at least h parties are in a lap: k = h - t of them, at least, keep their noise secret
    curator   one organisation has all records and publishes what comes out: k = n, and no party is hidden from another

Noise adds up. Let s_i be what the budget demands of any sum that party i's records are in, and sigma_i what party i
adds. Whatever t colluders take off, k honest parties are left, party i among them. So the promise asks for

    (1)  sigma_i^2 + (the k - 1 smallest sigma_j^2 of the others)  >=  s_i^2            for every party i

and less noise is better. For parties alike that is sigma_i = s_i / sqrt(k). In general, for any number a > 0,

    (2)  sigma_i^2 = max(a, s_i^2 - (k - 1) a)

satisfies (1): each of the k - 1 others has a at least. The sum over i of (2) is convex and piecewise linear in a, with
its kinks at s_i^2 / k, so that the best a is one of these. With k = 1 it is sigma_i = s_i, whatever the others add.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaydp.errors import InputError, PrivacyError, choose

NOBODY, MASKED, CURATOR = "nobody", "masked", "curator"
RATIO = 512.0  # between the largest noise and the least: their lattice has steps fine enough for both


@dataclass(frozen=True)
class Trust:
    """Whom the promise of a run is against.

    Attributes:
        kind: "nobody", "masked" or "curator".
        parties: n, the number of parties.
        collusion: t, the most parties that collude. n - 1 where nobody is trusted, 0 for a curator.
        quorum: h, the fewest parties in a lap.
        honest: k, the fewest parties of a lap whose noise stays secret.

    Example:
        >>> Trust(MASKED, parties=8, collusion=1, quorum=8).honest
        7
    """

    kind: str
    parties: int
    collusion: int
    quorum: int

    @property
    def honest(self) -> int:
        return 1 if self.kind == NOBODY else self.quorum - self.collusion

    @property
    def sums(self) -> bool:
        """Whether parties are seen in sums only, to which each adds a share of the noise."""
        return self.kind != NOBODY

    @property
    def against(self) -> str:
        """Whom the promise is against, in words that follow "against"."""
        if self.kind == CURATOR or self.parties == 1:
            return "everybody who sees what is published, but not whoever has all records and trains"
        if self.kind == NOBODY:
            return "everybody who sees all batons, the other agents included"
        some = "any one" if self.collusion == 1 else f"any {self.collusion}"
        return (
            f"{some} of the {self.parties} agents together with everybody who sees all messages, while at least "
            f"{self.quorum} take part in a lap"
        )

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "parties": self.parties, "collusion": self.collusion, "quorum": self.quorum}


def trust_nobody(parties: int) -> Trust:
    return Trust(NOBODY, parties, parties - 1, parties)


def trust_of(trust: str | None, collusion: int | None, quorum: int | None, parties: int) -> Trust:
    """What a user asked for, checked.

    Where only one honest party need be left (h - t = 1) every party's own noise is enough, masks change nothing, and
    this is trust in nobody.

    >>> trust_of(None, 1, None, 8)
    Trust(kind='masked', parties=8, collusion=1, quorum=8)
    >>> trust_of(None, 7, None, 8).kind, trust_of("curator", None, None, 8).honest
    ('nobody', 8)
    """
    if trust is not None:
        choose("trust", trust, (NOBODY, CURATOR))
    if collusion is None:
        if quorum is not None:
            raise InputError(
                f"quorum={quorum!r} without collusion=; needed both: of at least `quorum` parties in a lap at most "
                "`collusion` may collude. Pass collusion=, or leave quorum out."
            )
        return Trust(CURATOR, parties, 0, parties) if trust == CURATOR else trust_nobody(parties)
    if trust is not None:
        raise InputError(
            f"trust={trust!r} and collusion={collusion!r}; needed one of the two. collusion={parties - 1} is trust in "
            "nobody."
        )
    t, h = _whole("collusion", collusion), parties if quorum is None else _whole("quorum", quorum)
    if t < 1:
        raise PrivacyError(
            f"collusion={t}; needed 1 or more, because a curious party always knows its own noise. 1 means that nobody "
            "colludes; trust='curator' is for one organisation that has all records."
        )
    if h > parties:
        raise InputError(f"quorum={h} of {parties} parties; needed {parties} or less: the fewest in a lap.")
    if t >= h:
        most = f"quorum={h}" if quorum is not None else f"{parties} parties"
        raise PrivacyError(
            f"collusion={t} with {most}; needed less than {h}, so that a party's records have somebody's noise besides "
            "that of the parties that collude."
        )
    return trust_nobody(parties) if h - t == 1 else Trust(MASKED, parties, t, h)


def trust_from(saved: Any) -> Trust:
    """What `to_json` wrote; a ValueError where it cannot have."""
    kind, numbers = saved["kind"], [saved[name] for name in ("parties", "collusion", "quorum")]
    n, t, h = numbers
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
    fits = {NOBODY: lambda: (t, h) == (n - 1, n), MASKED: lambda: 1 <= t < h <= n, CURATOR: lambda: (t, h) == (0, n)}
    if not (whole and kind in fits and n >= 1 and fits[kind]()):
        raise ValueError(f"trust {saved!r}")
    return Trust(kind, n, t, h)


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputError(f"{name}={value!r}; needed a whole number of parties.")
    return int(value)


def shares(demanded: NDArray[np.float64], honest: int) -> NDArray[np.float64]:
    """sigma_i of (2), with the best a, for the s_i of one sum, (parties,).

    >>> shares(np.array([3.0, 3.0, 3.0, 3.0]), honest=4).round(9)
    array([1.5, 1.5, 1.5, 1.5])
    >>> shares(np.array([3.0, 1.0]), honest=1)
    array([3., 1.])
    """
    squares = np.asarray(demanded, np.float64) ** 2
    if honest == 1:
        return np.sqrt(squares)
    ordered = np.sort(squares)
    kinks = np.maximum(ordered / honest, ordered[-1] / RATIO**2)
    below = np.searchsorted(ordered, honest * kinks, side="right")  # how many add a, and not more
    above = ordered.sum() - np.concatenate([[0.0], np.cumsum(ordered)])[below]
    total = below * kinks + above - (len(ordered) - below) * (honest - 1) * kinks
    a = kinks[np.argmin(total)]
    # a hair more, so that rounding here leaves (1) true
    return np.sqrt(np.maximum(a, squares - (honest - 1) * a)) * (1.0 + 2.0**-45)


def hidden(added: NDArray[np.float64], honest: int) -> NDArray[np.float64]:
    """The left side of (1), as a scale: the noise that is left beside each party's records, whoever colludes. Of one
    sum, (parties,), or of many, (..., parties).

    >>> hidden(np.array([1.5, 1.5, 1.5, 1.5]), honest=4)
    array([3., 3., 3., 3.])
    >>> hidden(np.array([3.0, 1.0, 2.0]), honest=2)
    array([3.16227766, 2.23606798, 2.23606798])
    """
    squares = np.asarray(added, np.float64) ** 2
    ordered = np.sort(squares, axis=-1)
    least = ordered[..., : honest - 1].sum(axis=-1, keepdims=True)
    if honest == 1:
        return np.sqrt(squares)
    # one that is among the k - 1 smallest is not its own neighbour: the k-th smallest takes its place
    last = ordered[..., honest - 1 : honest]
    mine = squares <= ordered[..., honest - 2 : honest - 1]
    return np.sqrt(np.where(mine, least + last, least + squares))
