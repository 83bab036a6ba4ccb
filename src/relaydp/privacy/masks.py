"""Masks that cancel in a sum: what a party adds to its contribution, so that only the sum over all members can be read.

The parties have numbers, i = 0, ..., n - 1. Two of them share a key k_ij that nobody else can compute, and in a lap one
adds a stream of random words that the other subtracts, modulo 2^64 (Bonawitz et al. 2017). Party i sends

    (1)  c_i = v_i + sum_{j in M, j > i} PRG(l_ij) - sum_{j in M, j < i} PRG(l_ij)      mod 2^64

where M is the list of members of this attempt at a lap, and v_i the integers to be added up, which contain the noise
(`secret`). Over all of M the masks cancel, in any order. The keys:

    (2)  k_ij = HKDF-SHA256(X25519(a_i, A_j); salt = the consortium's identity; info = a label, i, j, A_i, A_j), i < j
    (3)  l_ij = HMAC-SHA256(k_ij; a label, epoch, lap, attempt, count, SHA-256(M))
    (4)  PRG(l) = the key stream of ChaCha20 under l, with nonce 0, as little-endian words of 64 bits

A public key belongs to one party, at one place of one consortium: moved elsewhere it gives other k_ij. Every attempt
has an l_ij of its own, so no key stream is used twice, and none is longer than 2^32 words, far below the 2^35 after
which ChaCha20's counter would repeat. M is part of l_ij: if two parties are told of different members, all words of
their masks differ and nothing cancels, so that whoever lies about M learns nothing.

What this hides. Take all l_ij between honest parties for uniform, which needs X25519, HKDF and ChaCha20 to be secure.
Let the honest members be connected by edges with shared keys. Then their c_i are uniform, given their sum modulo 2^64:
on a spanning tree of the edges, the words can be chosen to give any c_i with that sum, each in the same number of ways.
Of the v_i of honest parties others learn the sum, and if one of them does not contribute, nothing.

That is said of one answer to each (epoch, lap, attempt). The difference of two answers under one number has no mask.
`Contributions` gives one.

Many parties. From a hundred on, each shares masks with k others instead of all (Bell et al. 2020): the parties stand in
a circle in a random order, and each has the k/2 nearest on both sides as neighbours. Let t parties collude, chosen
before the order is drawn, and let d honest ones be lost, chosen by whoever wants to do harm and sees everything. The
chance that the remaining honest parties are not connected, for some choice of those d, is at most

    (5)  n (n - k + 1)/2  P[H >= k - d],      H = colluders among k parties drawn at random, hypergeometric (n, t, k)

Proof. Go around the circle over the honest parties that remain. Two successive ones with fewer than k/2 others between
them are neighbours. If that fails once at most, all are on one path; so if they are not connected, it fails twice, and
there are two disjoint runs of k/2 places without any of them. There are n (n - k + 1)/2 pairs of disjoint runs. The k
places of such a pair have only colluders and lost parties, so k - d colluders or more; and the parties at k given
places are a random draw. For k > t + d that is impossible, and (5) is 0.

(5) holds for a run as a whole, whoever is lost in whichever lap: the graph stays, and masks go along its edges between
members. It is a chance of losing the promise, so that a plan adds it to delta. The order must be drawn when parties and
keys are fixed, from a seed that no t of them can choose: the sum of numbers to which all parties committed beforehand,
for example. Whoever may try s seeds multiplies (5) by s.

Not covered: a party that adds something else than it should, which spoils the sum; and an opponent who reads a party's
memory.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relaydp.errors import InputError, PrivacyError, short

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

PAIR, LAP, ORDER = b"relaydp masks, key of two, version 1", b"relaydp masks, lap, version 1", b"relaydp masks, order"
KEY_BYTES = 32  # of a public key, a key of two, a key of a lap, an identity
WORDS_MOST = 2**32  # in a key stream
ALL_PAIRS = 100  # with fewer parties than that, each has a mask with each

Number = tuple[int, int, int]  # epoch, lap, attempt
Graph = Sequence[Sequence[int]]  # each party's neighbours


# --- keys


def _cryptography() -> Any:
    """The parts of the package that are used here, imported when masks are first needed."""
    try:
        from cryptography.hazmat.primitives import ciphers, hashes
        from cryptography.hazmat.primitives.asymmetric import x25519
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    except ImportError as error:
        raise InputError(
            "masks need the package cryptography, which is not installed; it comes with an extra. Run: "
            'pip install "relaydp[network]"'
        ) from error
    return x25519, ciphers, hashes, HKDF


def new_key() -> X25519PrivateKey:
    """A private key for masks, from the operating system's randomness. It stays with its party."""
    x25519, *_ = _cryptography()
    return x25519.X25519PrivateKey.generate()


def public_bytes(key: X25519PrivateKey) -> bytes:
    """The public key that belongs to it: 32 bytes, for all parties."""
    return key.public_key().public_bytes_raw()


@dataclass(frozen=True)
class MaskKeys:
    """What a party needs to make its masks: its number, how many parties there are, and the keys it shares."""

    me: int
    parties: int
    pairs: Mapping[int, bytes] = field(repr=False)  # neighbour -> k_ij


def agree(
    key: X25519PrivateKey, me: int, public: Sequence[bytes], consortium: bytes, graph: Graph | None = None
) -> MaskKeys:
    """The keys that party `me` shares with others, by (2).

        public       the public keys of all parties, in the order of their numbers
        consortium   its identity, 32 bytes
        graph        who shares a mask with whom, from `mask_graph`; None for all pairs

    >>> keys = [new_key() for _ in range(3)]
    >>> public = [public_bytes(key) for key in keys]
    >>> agree(keys[0], 0, public, bytes(32)).pairs[2] == agree(keys[2], 2, public, bytes(32)).pairs[0]
    True
    """
    _check_public(key, me, public, consortium)
    parties = range(len(public))
    graph = [[j for j in parties if j != i] for i in parties] if graph is None else graph
    fits = len(graph) == len(public) and all(j in parties and j != me and me in graph[j] for j in graph[me])
    if not fits:
        raise PrivacyError(
            f"the graph of masks does not fit {len(public)} parties, or says something else to each of two neighbours; "
            "nothing would cancel. Make it with mask_graph."
        )
    return MaskKeys(me, len(public), {j: _pair_key(key, me, j, public, consortium) for j in graph[me]})


def _check_public(key: X25519PrivateKey, me: int, public: Sequence[bytes], consortium: bytes) -> None:
    if not isinstance(consortium, bytes) or len(consortium) != KEY_BYTES:
        raise PrivacyError(
            f"consortium={short(consortium)}; needed its identity, {KEY_BYTES} bytes, so that a key is good for one "
            "consortium only."
        )
    if any(not isinstance(each, bytes) or len(each) != KEY_BYTES for each in public) or len(public) < 2:
        raise PrivacyError(
            f"{len(public)} public keys; needed those of all parties, two or more, {KEY_BYTES} bytes each. Take them "
            "from public_bytes."
        )
    if not 0 <= me < len(public) or public[me] != public_bytes(key):
        raise PrivacyError(
            f"party {me} has another public key in the list than its own, so that the others would use a wrong one. "
            "Give the list in the order of the parties' numbers, and this party's present key."
        )
    if len(set(public)) < len(public):
        twice = next(j for j in range(len(public)) if public[j] in public[:j])
        raise PrivacyError(
            f"parties {public.index(public[twice])} and {twice} have the same public key; every party needs its own. "
            "Ask them to make new ones with new_key."
        )


def _pair_key(key: X25519PrivateKey, me: int, other: int, public: Sequence[bytes], consortium: bytes) -> bytes:
    """k_ij of (2)."""
    x25519, _, hashes, hkdf = _cryptography()
    low, high = sorted((me, other))
    info = PAIR + struct.pack(">II", low, high) + public[low] + public[high]
    try:
        shared = key.exchange(x25519.X25519PublicKey.from_public_bytes(public[other]))
    except ValueError as error:  # a shared secret of zeros
        raise PrivacyError(
            f"the public key of party {other} gives a secret that everybody knows; no honest program makes such a key. "
            "Ask that party for a new one, made with new_key."
        ) from error
    return hkdf(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=consortium, info=info).derive(shared)


# --- masks


def mask(keys: MaskKeys, members: Iterable[int], epoch: int, lap: int, attempt: int, count: int) -> NDArray[np.uint64]:
    """This party's mask for one attempt at a lap, `count` words: (1) without v_i.

    Those of all members add up to 0 modulo 2^64. Use it for one vector only: `Contributions` sees to that.
    """
    chosen = check_members(keys, members)
    _check_number((epoch, lap, attempt))
    if not _is_whole(count) or not 0 <= count <= WORDS_MOST:
        raise PrivacyError(f"count={short(count)}; a mask has 0 to {WORDS_MOST:,} words. Send longer vectors in parts.")
    listed = hashlib.sha256(struct.pack(f">{len(chosen)}I", *chosen)).digest()
    info = LAP + struct.pack(">QQQQ", epoch, lap, attempt, count) + listed
    total, zeros = np.zeros(count, np.uint64), bytes(8 * count)
    for other in chosen:
        if other in keys.pairs:
            words = _key_stream(hmac.digest(keys.pairs[other], info, "sha256"), zeros)
            if other > keys.me:
                total += words
            else:
                total -= words
    return total


def _key_stream(key: bytes, zeros: bytes) -> NDArray[np.uint64]:
    """PRG of (4), as long as `zeros`."""
    _, ciphers, *_ = _cryptography()
    cipher = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, bytes(16)), mode=None)
    return np.frombuffer(cipher.encryptor().update(zeros), "<u8").astype(np.uint64, copy=False)


def check_members(keys: MaskKeys, members: Iterable[int]) -> tuple[int, ...]:
    """The members in order, or an error: they are parties, this one and one it shares a mask with among them."""
    listed = list(members)
    chosen = sorted(set(listed)) if all(_is_whole(each) for each in listed) else []
    if len(chosen) < len(listed) or not chosen or chosen[0] < 0 or chosen[-1] >= keys.parties:
        raise PrivacyError(
            f"members={short(listed)}; needed different parties of the consortium, numbers from 0 to "
            f"{keys.parties - 1}. Nothing was sent."
        )
    if keys.me not in chosen:
        raise PrivacyError(
            f"members={short(listed)} do not include party {keys.me}, which is asked; its contribution would not be "
            "masked like theirs. Nothing was sent."
        )
    if not any(other in keys.pairs for other in chosen):
        raise PrivacyError(
            f"party {keys.me} shares a mask with none of members={short(listed)}; its contribution would be bare. "
            "Nothing was sent. Wait for more members."
        )
    return tuple(int(each) for each in chosen)


def _check_number(number: Number) -> None:
    if len(number) != 3 or not all(_is_whole(each) and 0 <= each < 2**64 for each in number):
        raise PrivacyError(
            f"(epoch, lap, attempt) = {short(number)}; needed three whole numbers from 0 to 2^64 - 1. Nothing was sent."
        )


def _is_whole(number: object) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


# --- one contribution


class Contribution(NamedTuple):
    """What a party answered last, to be kept on its disk."""

    number: Number
    question: bytes  # a digest of x and the members
    words: NDArray[np.uint64]


class Contributions:
    """A party's memory of what it gave away: one contribution to each (epoch, lap, attempt).

        keys     from `agree`
        quorum   the fewest members of an attempt
        keep     stores a contribution, in the transaction that charges for it. It is called before every answer, so it
                 may be called again with one that it has stored
        last     what `keep` stored last, after a restart

    Numbers only rise. The same question (number, x and members) gets the same words again; another question under the
    last number, and any question under an earlier one, is refused. So one contribution is all there is to remember.
    """

    def __init__(
        self,
        keys: MaskKeys,
        quorum: int,
        keep: Callable[[Contribution], object],
        last: Contribution | None = None,
    ) -> None:
        if not _is_whole(quorum) or not 2 <= quorum <= keys.parties:
            raise PrivacyError(
                f"quorum={short(quorum)}; needed a whole number from 2 to {keys.parties}, the parties: a sum over one "
                "party would be that party's own."
            )
        self._keys, self._quorum, self._keep, self._last = keys, quorum, keep, last
        self._one_at_a_time = threading.Lock()

    def contribute(
        self, number: Number, members: Iterable[int], x: bytes, vector: Callable[[], NDArray[np.int64]]
    ) -> NDArray[np.uint64]:
        """c_i of (1): what is added to the sum, modulo 2^64.

        number    (epoch, lap, attempt)
        members   who is in this attempt
        x         the bytes of the model at which the sum is asked for, and of all else that v_i depends on
        vector    makes v_i, noise included; it is called once for a number
        """
        _check_number(number)
        epoch, lap, attempt = (int(each) for each in number)
        chosen, number = check_members(self._keys, members), (epoch, lap, attempt)
        if len(chosen) < self._quorum:
            raise PrivacyError(
                f"{len(chosen)} members; the parties agreed on {self._quorum} or more, as a sum over fewer has too "
                "little noise. Nothing was sent. Wait for more members, or end the run."
            )
        question = hashlib.sha256(struct.pack(f">I{len(chosen)}I", len(chosen), *chosen) + x).digest()
        with self._one_at_a_time:
            if self._last is None or number > self._last.number:
                own = _checked(vector())
                words = own.view(np.uint64) + mask(self._keys, chosen, *number, own.size)
                words.setflags(write=False)
                self._last = Contribution(number, question, words)
            elif number < self._last.number:
                raise PrivacyError(
                    f"(epoch, lap, attempt) = {number} comes after {self._last.number}, which was answered; earlier "
                    "numbers are over. Nothing was sent. Ask under a new number."
                )
            elif question != self._last.question:
                raise PrivacyError(
                    f"(epoch, lap, attempt) = {number} was answered, for another model or other members; a second "
                    "answer would take the mask off both. Nothing was sent. Ask under a new number."
                )
            self._keep(self._last)
            return self._last.words


def _checked(vector: NDArray[np.int64]) -> NDArray[np.int64]:
    """One row of int64, or an error: converted from another type it might not be what the noise was planned for."""
    if not isinstance(vector, np.ndarray) or vector.dtype != np.int64 or vector.ndim != 1:
        raise PrivacyError(
            f"the vector is {short(vector)}; needed an array of int64 with one axis, a lattice point and its noise. "
            "Nothing was sent."
        )
    return np.ascontiguousarray(vector)


# --- many parties


class Degree(NamedTuple):
    """How many others each party shares a mask with, and the chance that this is too few: a plan adds it to delta."""

    degree: int
    probability: float


def degree_for(parties: int, colluders: int, lost: int, probability: float) -> Degree:
    """The least degree with which the honest parties stay connected but for a chance of at most `probability`, by (5).

        colluders   t, the most parties that collude
        lost        the most honest parties that are missing from an attempt: parties - quorum

    Below a hundred parties it is all pairs, for which nothing is left to chance.

    >>> degree_for(8, 4, 2, 1e-30)
    Degree(degree=7, probability=0.0)
    >>> degree_for(1000, 100, 20, 1e-12).degree
    50
    """
    _check_counts(parties, colluders, lost)
    if not 0 <= probability < 1:
        raise PrivacyError(
            f"probability={short(probability)}; needed a number from 0 up to 1: a small part of delta, such as delta / "
            "1000."
        )
    if parties < ALL_PAIRS:
        return Degree(parties - 1, 0.0)
    for degree in range(2, parties - 1, 2):
        chance = chance_apart(parties, degree, colluders, lost)
        if chance <= probability:
            return Degree(degree, chance)
    return Degree(parties - 1, 0.0)


def chance_apart(parties: int, degree: int, colluders: int, lost: int) -> float:
    """(5): a bound of the chance that the honest parties are not connected. It is rounded up."""
    _check_counts(parties, colluders, lost)
    _check_degree(parties, degree)
    n, t, k = parties, colluders, degree
    if k >= n - 1:
        return 0.0
    ways = sum(math.comb(t, c) * math.comb(n - t, k - c) for c in range(max(0, k - lost), min(k, t) + 1))
    chance = Fraction(n * (n - k + 1), 2) * Fraction(ways, math.comb(n, k))
    return min(1.0, math.nextafter(float(chance), 1.0)) if 0 < chance < 1 else float(min(chance, 1))


def mask_graph(parties: int, degree: int, seed: bytes) -> tuple[tuple[int, ...], ...]:
    """Each party's neighbours: the nearest on a circle in random order, or all others where that is the degree.

        seed   32 public random bytes that no t parties can choose, drawn when parties and keys are fixed

    >>> [len(each) for each in mask_graph(6, 2, bytes(32))]
    [2, 2, 2, 2, 2, 2]
    """
    _check_degree(parties, degree)
    if not isinstance(seed, bytes) or len(seed) != KEY_BYTES:
        raise PrivacyError(
            f"seed={short(seed)}; needed {KEY_BYTES} random bytes on which the parties agreed when their keys were "
            "fixed."
        )
    order = sorted(range(parties), key=lambda i: hashlib.sha256(ORDER + seed + struct.pack(">I", i)).digest())
    if degree >= parties - 1:
        return tuple(tuple(j for j in range(parties) if j != i) for i in range(parties))
    steps = [step for step in range(-(degree // 2), degree // 2 + 1) if step]
    near = {i: tuple(sorted(order[(at + step) % parties] for step in steps)) for at, i in enumerate(order)}
    return tuple(near[i] for i in range(parties))


def _check_counts(parties: int, colluders: int, lost: int) -> None:
    whole = all(_is_whole(each) for each in (parties, colluders, lost))
    if not (whole and colluders >= 0 and lost >= 0 and parties - colluders - lost >= 2):
        raise PrivacyError(
            f"parties={short(parties)}, colluders={short(colluders)}, lost={short(lost)}; needed whole numbers that "
            "leave two honest parties or more, or nobody is hidden in a sum. Plan for fewer colluders or lost parties."
        )


def _check_degree(parties: int, degree: int) -> None:
    whole = _is_whole(parties) and _is_whole(degree)
    if not (whole and parties >= 2 and (degree == parties - 1 or (2 <= degree < parties and degree % 2 == 0))):
        raise PrivacyError(
            f"degree={short(degree)} for parties={short(parties)}; needed an even number from 2, or the parties less "
            "one, for all pairs. Take it from degree_for."
        )
