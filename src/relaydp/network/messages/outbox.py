"""Sending: one channel to each neighbour, and messages resent until acknowledged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from relaydp.network.messages import relay_pb2 as pb
from relaydp.network.messages.journal import Journal
from relaydp.network.messages.wire import KINDS, Message
from relaydp.network.operations.metrics import Log, Metrics

SERVICE = "relaydp.v1.Relay"
GREET_SECONDS, PASS_SECONDS = 5.0, 20.0
FIRST_WAIT, LONGEST_WAIT = 0.05, 2.0  # between two tries at one neighbour
# Errors that another try may solve; any other is a refusal that an operator has to look at.
PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED)


TURNS = 2  # of the loop, from a task that calls to gRPC's own, in which the call's bytes leave


async def under_way() -> None:
    """Let a call that was just started leave before this task does something slow. It affects time only."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


class Unreachable(Exception):
    """No answer, or a refusal; the text says which."""


class Peer:
    """A neighbour that can be called."""

    def __init__(self, name: str, address: str, credentials: grpc.ChannelCredentials, most_bytes: int) -> None:
        self.name, self.address = name, address
        self.up = False
        self.seen: float | None = None
        options = [
            ("grpc.ssl_target_name_override", name),  # certificates have names, not addresses
            ("grpc.max_receive_message_length", most_bytes),
            ("grpc.max_send_message_length", most_bytes),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 500),
            ("grpc.max_reconnect_backoff_ms", int(LONGEST_WAIT * 1000)),
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 10_000),
        ]
        self.channel = grpc.aio.secure_channel(address, credentials, options=options)
        self._greet = self.channel.unary_unary(f"/{SERVICE}/Greet")
        self._pass = self.channel.unary_unary(f"/{SERVICE}/Pass")

    async def _call(self, method: Callable[..., Any], data: bytes, seconds: float) -> bytes:
        try:
            answer = await method(data, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            self.up = error.code() not in PASSING
            text = error.details() or error.code().name
            raise Unreachable(text if self.up else f"no answer from {self.address} ({error.code().name})") from None
        self.up, self.seen = True, time.monotonic()
        if not isinstance(answer, bytes):  # gRPC does not treat an end without a message as an error
            raise Unreachable("its answer is empty")
        return answer

    async def greet(self, consortium: bytes, epoch: int) -> pb.Standing:
        greeting = pb.Greeting(consortium=consortium, epoch=epoch).SerializeToString()
        answer = await self._call(self._greet, greeting, GREET_SECONDS)
        try:
            return pb.Standing.FromString(answer)
        except DecodeError:
            raise Unreachable("its answer is not a relaydp.v1.Standing") from None

    async def pass_on(self, message: Message) -> None:
        """Return when the neighbour has the message on its disk."""
        answer = await self._call(self._pass, message.to_bytes(), PASS_SECONDS)
        try:
            receipt = pb.Receipt.FromString(answer)
        except DecodeError:
            raise Unreachable("its answer is not a relaydp.v1.Receipt") from None
        if receipt.hash != message.hash():
            raise Unreachable("its receipt is for another message")


async def deliver(peer: Peer, journal: Journal, wake: asyncio.Event, log: Log, metrics: Metrics) -> None:
    """Send this neighbour what is committed for it, for ever; the same bytes until it acknowledges them."""
    wait = 0.0
    while True:
        wake.clear()
        mine = [message for _, message in journal.undelivered(peer.name)]
        if not mine:
            wait = 0.0
            await wake.wait()
            continue
        if wait:
            metrics.resends.inc()
        try:
            for message in mine:
                await peer.pass_on(message)
                journal.acknowledge(peer.name, message)
                log.info("delivered", peer=peer.name, kind=KINDS[message.kind], seq=message.seq)
            wait = 0.0
        except Unreachable as error:
            wait = min(LONGEST_WAIT, max(FIRST_WAIT, 2 * wait))
            log.warning("not-delivered", peer=peer.name, seq=mine[0].seq, reason=str(error))
            await asyncio.sleep(wait)
