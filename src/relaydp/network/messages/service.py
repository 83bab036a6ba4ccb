"""The calls that an agent answers, and how it refuses others.

    Greet   who are you, are you ready, what was the last message you received from me
    Pass    here is a message; the answer means that it is on your disk

Every caller has shown a certificate that the consortium file pins; only neighbours are answered.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health_pb2

from relaydp.errors import PrivacyError, RelayError
from relaydp.network.consortium import identity as tls
from relaydp.network.messages import relay_pb2 as pb
from relaydp.network.messages.journal import JournalError
from relaydp.network.messages.outbox import PASS_SECONDS, SERVICE
from relaydp.network.messages.wire import BATON, KINDS, Refusal, parse

if TYPE_CHECKING:
    from relaydp.network.operations.agent import Agent

GRACE_SECONDS = 2.0
REOPEN_SECONDS = 0.3  # between two checks that gRPC's server still runs
MOST_CALLS = 8  # open at once per party; an honest neighbour needs three
MOST_CONNECTIONS = 1024
CODES = {
    "stranger": grpc.StatusCode.PERMISSION_DENIED,
    "not-a-neighbour": grpc.StatusCode.PERMISSION_DENIED,
    "lost": grpc.StatusCode.PERMISSION_DENIED,
    "busy": grpc.StatusCode.UNAVAILABLE,
    "stopping": grpc.StatusCode.UNAVAILABLE,
    "too-many-calls": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "too-slow": grpc.StatusCode.DEADLINE_EXCEEDED,
    "unknown-method": grpc.StatusCode.UNIMPLEMENTED,
    "epoch": grpc.StatusCode.FAILED_PRECONDITION,
    "other-consortium": grpc.StatusCode.FAILED_PRECONDITION,
}
GREET, PASS, HEALTH = f"/{SERVICE}/Greet", f"/{SERVICE}/Pass", "/grpc.health.v1.Health/Check"
OPTIONS = (
    ("grpc.so_reuseport", 0),  # a second agent on the same port is an error, not a share of the traffic
    ("grpc.max_concurrent_streams", 16),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.max_connection_idle_ms", 60_000),  # honest neighbours greet every few seconds
)


class _Methods(grpc.GenericRpcHandler):
    """Passes every call on before its message is read; on the wire it is a call with one message and one answer."""

    def __init__(self, answer: Callable[[str, grpc.aio.ServicerContext], Awaitable[bytes]]) -> None:
        self._answer = answer

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        method = handler_call_details.method

        async def behaviour(_: Any, context: grpc.aio.ServicerContext) -> bytes:
            return await self._answer(method, context)

        return grpc.stream_unary_rpc_method_handler(behaviour)


class Service:
    """The agent's gRPC server."""

    def __init__(self, agent: Agent, listen: str) -> None:
        self.agent, self.listen = agent, listen
        self._calls = [0] * agent.parties
        self._taking_in = asyncio.Lock()
        self._oracle: Any = None  # gRPC's server, while it runs

    async def open(self) -> None:
        """Listen; afterwards `listen` has the port in use."""
        self._oracle = self._server()
        await self._oracle.start()

    async def close(self) -> None:
        if self._oracle is not None:
            await self._oracle.stop(GRACE_SECONDS)

    def _server(self) -> grpc.aio.Server:
        # every connection is an open file, and the journal needs some as well
        connections = min(MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        options = [
            *OPTIONS,
            ("grpc.max_receive_message_length", self.agent.rules.most_bytes),
            ("grpc.max_allowed_incoming_connections", connections),
        ]
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MOST_CALLS * (self.agent.parties + 8))
        server.add_generic_rpc_handlers((_Methods(self._answer),))
        try:
            port = server.add_secure_port(
                self.listen, tls.server_credentials(self.agent.identity, self.agent.public_plan.certificates)
            )
        except RuntimeError as error:
            raise RelayError(f"cannot listen on {self.listen}: {error}. Choose another --listen HOST:PORT.") from None
        self.listen = f"{self.listen.rsplit(':', 1)[0]}:{port}"
        return server

    async def keep_serving(self) -> None:
        """Open another server when gRPC's has ended by itself: it does so at a call whose method is not UTF-8 text,
        which every party can make."""
        while True:
            try:
                await self._oracle.wait_for_termination(REOPEN_SECONDS)
            except Exception as error:
                self.agent.log.refused(
                    "bad-call", "unknown", detail=f"gRPC's server ended ({type(error).__name__}); reopened."
                )
                self.agent.metrics.refuse("bad-call")
                await self._oracle.stop(None)
                await self.open()

    async def _answer(self, method: str, context: grpc.aio.ServicerContext) -> bytes:
        """Answer a call, or refuse it with a status, a log line and a count.

        The caller is identified first: not one byte of a message is read unless it is a neighbour's.
        """
        who = "unknown"
        try:
            sender = self._caller(context)
            who = self.agent.names[sender]
            if method == HEALTH:
                return self._health()
            self._check_neighbour(sender)
            handle = {GREET: self._on_greet, PASS: self._on_pass}.get(method)
            if handle is None:
                raise Refusal("unknown-method", f"{method[:100]} was called; there are only {GREET} and {PASS}.")
            return await handle(sender, await self._read(sender, context))
        except Refusal as refusal:
            self.agent.log.refused(refusal.code, who, detail=str(refusal))
            self.agent.metrics.refuse(refusal.code)
            code = CODES.get(refusal.code, grpc.StatusCode.INVALID_ARGUMENT)
            await context.abort(code, f"{refusal.code}: {refusal}")
        except JournalError as error:
            self.agent.fail(error)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this agent cannot write its journal.")
        raise AssertionError("abort raises")

    async def _read(self, sender: int, context: grpc.aio.ServicerContext) -> bytes:
        """The call's message. A slow one must not keep others waiting: it has a time limit, and a party few open
        calls."""
        if self._calls[sender] >= MOST_CALLS:
            raise Refusal("too-many-calls", f"this party has {MOST_CALLS} open calls already.")
        self._calls[sender] += 1
        try:
            async with asyncio.timeout(PASS_SECONDS):
                request = await context.read()
        except TimeoutError:
            raise Refusal("too-slow", f"no complete message came within {PASS_SECONDS:g} seconds.") from None
        finally:
            self._calls[sender] -= 1
        if not isinstance(request, bytes):  # gRPC's sign for a stream that ended
            raise Refusal("no-message", f"no complete message of at most {self.agent.rules.most_bytes} bytes came.")
        return request

    def _caller(self, context: grpc.aio.ServicerContext) -> int:
        try:
            fingerprint = tls.party_of(context.auth_context())
        except PrivacyError as error:  # no certificate, or an older TLS: the handshake should have refused it
            raise Refusal("stranger", str(error)) from None
        if fingerprint not in self.agent.public_plan.fingerprints:
            raise Refusal("stranger", f"{fingerprint} is not the certificate of a party.")
        return self.agent.public_plan.fingerprints.index(fingerprint)

    def _check_neighbour(self, sender: int) -> None:
        if sender in self.agent.lost:
            raise Refusal("lost", f"{self.agent.names[sender]} was declared lost by an agreed rerouting.")
        if sender not in self.agent.neighbours:
            raise Refusal(
                "not-a-neighbour", f"{self.agent.names[sender]} is a party but not a neighbour of {self.agent.name}."
            )

    def _health(self) -> bytes:
        """The answer of gRPC's health service, for load balancers and probes with a party's certificate.

        One answer per call. The service's other method, which watches for changes, is not offered: a caller that does
        not read could block the agent.
        """
        answer = health_pb2.HealthCheckResponse
        return answer(status=answer.SERVING if self.agent.serving else answer.NOT_SERVING).SerializeToString()

    async def _on_greet(self, sender: int, request: bytes) -> bytes:
        try:
            greeting = pb.Greeting.FromString(request)
        except Exception as error:  # protobuf's own classes differ between its implementations
            raise Refusal("garbage", "these bytes are not a relaydp.v1.Greeting.") from error
        self.agent.rules.check_greeting(greeting.consortium)
        standing = pb.Standing(consortium=self.agent.public_plan.identity, epoch=self.agent.journal.epoch)
        standing.ready, standing.why = self._readiness(greeting.epoch)
        accepted = self.agent.journal.last("inbox", self.agent.names[sender])
        if accepted is not None:
            standing.has_accepted, (standing.accepted_seq, standing.accepted_hash) = True, accepted
        sent = self.agent.journal.last("outbox", self.agent.names[sender])
        if sent is not None:
            standing.has_sent, (standing.sent_seq, standing.sent_hash) = True, sent
        return standing.SerializeToString()

    def _readiness(self, epoch: int) -> tuple[bool, str]:
        if epoch != self.agent.journal.epoch:
            return False, f"epoch {self.agent.journal.epoch} here, {epoch} there"
        if self.agent.state == "stopped":
            return False, "stopping"
        if self.agent.rules.relay and self.agent.journal.waiting(BATON) is not None:
            return False, "holding a baton"
        return True, ""

    async def _on_pass(self, sender: int, request: bytes) -> bytes:
        if self.agent.state == "stopped":
            raise Refusal("stopping", "this agent is stopping.")
        message = parse(request)
        self.agent.rules.check(message, self.agent.journal.epoch)
        name = self.agent.names[sender]
        async with self._taking_in:  # no other message may come between the check and the commit
            if not self.agent.journal.has(name, message):
                self.agent.role.admit(message)
                await self.agent.role.look_ahead(name, message)
            again = not self.agent.journal.accept(name, message)
        if not again:
            self.agent.log.info("accepted", peer=name, kind=KINDS[message.kind], seq=message.seq)
            self.agent.arrived.set()
        return pb.Receipt(hash=message.hash(), again=again).SerializeToString()
