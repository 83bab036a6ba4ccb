"""Messages, their hash, and the checks that everything from outside has to pass.

A message is a fixed header and float64 vectors. Its hash is over our own layout, not over protobuf's bytes, which are
not unique. `check` refuses what an honest agent never sends, with a reason for the log.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from google.protobuf.message import DecodeError

from relaydp.errors import RelayError
from relaydp.network.messages import relay_pb2 as pb

BATON, ROUND, ENDING = 1, 2, 3
KINDS = {BATON: "baton", ROUND: "round", ENDING: "ending"}
HASH = 32
MOST_SEQ = 2**53
OVERHEAD = 16_384  # bytes of an envelope without its vectors and counts: an upper bound
_HEADER = struct.Struct("<32sIIQQ32sI")


class Refusal(RelayError):
    """A message or a caller that is refused; `code` is a short reason for logs and metrics."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, eq=False)
class Message:
    """One message, either checked or made here."""

    consortium: bytes
    epoch: int
    kind: int
    seq: int
    made: tuple[int, ...]
    idle: int
    previous: bytes
    body: bytes

    def hash(self) -> bytes:
        """SHA-256 of the whole message, which does not depend on sender and receiver."""
        return self._hash

    @cached_property
    def _hash(self) -> bytes:
        previous = self.previous or bytes(HASH)
        head = _HEADER.pack(
            self.consortium, self.epoch, self.kind, self.seq, self.idle, previous, len(self.made)
        ) + struct.pack(f"<{len(self.made)}I", *self.made)
        return hashlib.sha256(head + self.body).digest()

    def vectors(self, count: int) -> np.ndarray:
        """The body as (count, dim)."""
        return unpack(self.body, count)

    def to_bytes(self) -> bytes:
        return pb.Envelope(
            consortium=self.consortium,
            epoch=self.epoch,
            kind=self.kind,
            seq=self.seq,
            made=self.made,
            idle=self.idle,
            previous=self.previous,
            body=self.body,
        ).SerializeToString()


def pack(vectors: np.ndarray) -> bytes:
    return np.ascontiguousarray(vectors, dtype="<f8").tobytes()


def unpack(body: bytes, count: int) -> np.ndarray:
    """The bytes of `pack` as (count, dim)."""
    return np.frombuffer(body, dtype="<f8").astype(np.float64).reshape(count, -1)


def parse(data: bytes) -> Message:
    """An envelope's fields; refuses bytes that are not an envelope."""
    try:
        got = pb.Envelope.FromString(data)
    except (DecodeError, ValueError) as error:
        raise Refusal("garbage", "these bytes are not a relaydp.v1.Envelope.") from error
    return Message(
        bytes(got.consortium), got.epoch, got.kind, got.seq, tuple(got.made), got.idle, bytes(got.previous), got.body
    )


@dataclass(frozen=True)
class Rules:
    """What every message of one consortium must look like. All of it is public."""

    consortium: bytes
    parties: int
    activations: int
    relay: bool
    vectors: int
    dim: int
    largest: float  # no entry of a vector may be larger than this, which is far beyond any useful model

    @property
    def most_bytes(self) -> int:
        return self.vectors * self.dim * 8 + 5 * self.parties + OVERHEAD

    def size_of(self, kind: int) -> int:
        """Bytes of a body: the final model of rounds comes in parts of one vector each."""
        return (1 if kind == ENDING and not self.relay else self.vectors) * self.dim * 8

    def check_greeting(self, consortium: bytes) -> None:
        if consortium != self.consortium:
            raise Refusal(
                "other-consortium",
                f"the caller's consortium is {consortium.hex()[:16] or 'empty'}, ours is {self.consortium.hex()[:16]}; "
                "both must use the same file.",
            )

    def check(self, message: Message, epoch: int) -> None:
        """Raise Refusal unless an honest agent of this consortium could have sent it."""
        self.check_greeting(message.consortium)
        if message.epoch != epoch:
            raise Refusal("epoch", f"the message is of epoch {message.epoch}, this agent of {epoch}.")
        expected = (BATON, ENDING) if self.relay else (ROUND, ENDING)
        if message.kind not in expected:
            raise Refusal("kind", f"the kind is {message.kind}; it must be one of {expected}.")
        if len(message.previous) not in (0, HASH):
            raise Refusal("header", f"the previous hash has {len(message.previous)} bytes; it must have {HASH}.")
        self._check_counts(message)
        if len(message.body) != self.size_of(message.kind):
            raise Refusal("size", f"the body has {len(message.body)} bytes; it must have {self.size_of(message.kind)}.")
        values = np.frombuffer(message.body, dtype="<f8")
        if not np.isfinite(values).all():
            raise Refusal("not-finite", "the vectors hold NaN or infinity; all numbers must be finite.")
        if values.size and np.abs(values).max() > self.largest:
            raise Refusal(
                "too-large",
                f"an entry is larger than {self.largest:.3g}, and no useful model has such an entry.",
            )

    def _check_counts(self, message: Message) -> None:
        parts = 1 if self.relay else self.parties
        limit = {BATON: MOST_SEQ, ROUND: self.activations, ENDING: parts}[message.kind]
        if message.seq >= limit:
            raise Refusal("seq", f"seq is {message.seq}; it must be less than {limit}.")
        wanted = 0 if message.kind == ROUND else self.parties
        if len(message.made) != wanted:
            raise Refusal(
                "counts",
                f"the message has {len(message.made)} counts of activations; it must have {wanted}.",
            )
        if any(count > self.activations for count in message.made):
            raise Refusal("counts", f"the message claims more than the planned {self.activations} activations.")
        # after a rerouting, a party that was charged twice is done after fewer activations
        claims = 0 if message.epoch else sum(message.made)
        if message.kind == BATON and (claims > message.seq or message.idle > message.seq):
            raise Refusal("counts", "the baton claims more activations, or more idle hops, than it has made hops.")
