"""An agent among hostile peers: an attack is refused, with a reason in the log, and the run ends as if it had not been.

One consortium is besieged. Party p1 is attacked before the run begins (it is alone), in the middle of it (it holds the
baton, its neighbours are stopped) and after the end (it has the model and lingers). The attacks of one siege are made
once; every test looks at what came of one of them.
"""

import functools
import resource
import socket
import ssl
import struct
import sys
import time
import zlib
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import numpy as np
import pytest
from consortium_lab import faults, make_lab, rows_of, run_agent, start, wait_all, wait_for
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from fuzz_agent import fuzz
from hostile_peer import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PREFACE,
    RELAY,
    RESET,
    SETTINGS,
    FalseNeighbour,
    Peak,
    Wire,
    channel,
    frame,
    greeted,
    header_block,
    let_in,
    lines,
    memory,
    open_files,
    prefixed,
    raw_call,
    reply,
    request,
    stopped_at,
    tls_context,
    with_another_key,
    write_pair,
)
from test_identity import DAY, certify, key_text, new_key

from relaydp.errors import InputError
from relaydp.network.consortium import identity
from relaydp.network.consortium.identity import CERTIFICATE, KEY
from relaydp.network.messages import relay_pb2 as pb
from relaydp.network.messages.journal import NOTED, SENT, Journal
from relaydp.network.messages.wire import BATON, ENDING, ROUND, Message, pack, parse
from relaydp.network.records.process import RecordsProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

MEGABYTE = 2**20
SILENT = 60.0  # seconds after which an answer to one attack does not come any more; less than STUCK, for there are many
VALUES = 2 * 6  # of a baton in this lab


def vectors(*first):
    """A body that begins with these numbers."""
    return pack(np.array([*first, *[0.25] * (VALUES - len(first))]))


@dataclass(frozen=True)
class Raw:
    """A change to a message's bytes."""

    change: object


# -- the messages: changes to one that would be right, or to its bytes; the status and the reason that they meet

PRECONDITION, ARGUMENT = "FAILED_PRECONDITION", "INVALID_ARGUMENT"
MESSAGES = {
    "another consortium": (dict(consortium=bytes(range(32))), PRECONDITION, "other-consortium"),
    "no identity": (dict(consortium=b""), PRECONDITION, "other-consortium"),
    "an identity cut short": (lambda m: dict(consortium=m.consortium[:31]), PRECONDITION, "other-consortium"),
    "an old epoch": (dict(epoch=0), PRECONDITION, "epoch"),
    "a future epoch": (dict(epoch=2), PRECONDITION, "epoch"),
    "the last epoch there can be": (dict(epoch=2**32 - 1), PRECONDITION, "epoch"),
    "no kind": (dict(kind=0), ARGUMENT, "kind"),
    "an unknown kind": (dict(kind=2**32 - 1), ARGUMENT, "kind"),
    "a round's message to a relay": (dict(kind=ROUND, seq=0, made=()), ARGUMENT, "kind"),
    "an ending before the end": (dict(kind=ENDING, seq=0), ARGUMENT, "early-ending"),
    "a second part of an ending": (dict(kind=ENDING, seq=1), ARGUMENT, "seq"),
    "seq beyond what floats count": (dict(seq=2**53), ARGUMENT, "seq"),
    "seq as large as can be": (dict(seq=2**64 - 1), ARGUMENT, "seq"),
    "seq far beyond the agreed patience": (dict(seq=2**40), ARGUMENT, "counts"),
    "more idle hops than hops": (lambda m: dict(idle=m.seq + 1), ARGUMENT, "counts"),
    "idle as large as can be": (dict(idle=2**64 - 1), ARGUMENT, "counts"),
    "more idle hops than the agreed patience": (dict(seq=10**6, idle=10**6), ARGUMENT, "counts"),
    "too many counts": (lambda m: dict(made=(*m.made, 0)), ARGUMENT, "counts"),
    "thousands of counts": (dict(made=(0,) * 3000), ARGUMENT, "counts"),
    "too few counts": (lambda m: dict(made=m.made[:-1]), ARGUMENT, "counts"),
    "no counts": (dict(made=()), ARGUMENT, "counts"),
    "more activations than planned": (lambda m: dict(made=(4, *m.made[1:]), seq=12), ARGUMENT, "counts"),
    "our own count too high": (lambda m: dict(made=(m.made[0], m.made[1] + 1, *m.made[2:]), seq=8), ARGUMENT, "counts"),
    "a value too few": (dict(body=bytes(8 * VALUES - 8)), ARGUMENT, "size"),
    "a value too many": (dict(body=bytes(8 * VALUES + 8)), ARGUMENT, "size"),
    "half a value": (dict(body=bytes(8 * VALUES - 3)), ARGUMENT, "size"),
    "no body": (dict(body=b""), ARGUMENT, "size"),
    "NaN": (dict(body=vectors(float("nan"))), ARGUMENT, "not-finite"),
    "a signalling NaN": (dict(body=struct.pack("<Q", 0x7FF0000000000001) + vectors()[8:]), ARGUMENT, "not-finite"),
    "infinity": (dict(body=vectors(0.0, float("inf"))), ARGUMENT, "not-finite"),
    "minus infinity": (dict(body=vectors(float("-inf"))), ARGUMENT, "not-finite"),
    "1e300": (dict(body=vectors(0.0, 0.0, 1e300)), ARGUMENT, "too-large"),
    "-1e300": (dict(body=vectors(-1e300)), ARGUMENT, "too-large"),
    "a hash of 31 bytes": (dict(previous=bytes(31)), ARGUMENT, "header"),
    "a hash of 1,000 bytes": (dict(previous=bytes(1000)), ARGUMENT, "header"),
    "protobuf cut off": (Raw(lambda b: b[:-1]), ARGUMENT, "garbage"),
    "protobuf cut off early": (Raw(lambda b: b[:10]), ARGUMENT, "garbage"),
    "no protobuf": (Raw(lambda b: b"\xff" * 200), ARGUMENT, "garbage"),
    "an endless number": (Raw(lambda b: b + b"\x10" + b"\xff" * 11), ARGUMENT, "garbage"),
    "nothing": (Raw(lambda b: b""), PRECONDITION, "other-consortium"),
}
# ... while a baton is held: what follows on it, or stands in its place
HELD = {
    "the same again": (Raw(lambda b: b), "known", None),
    "the same with unknown fields": (Raw(lambda b: b + b"\xfa\x3f\x03abc\xf8\x3f\x01"), "known", None),
    "one bit of the body changed": (lambda m: dict(body=bytes([m.body[0] ^ 1]) + m.body[1:]), ARGUMENT, "equivocation"),
    "another hash before it": (dict(previous=bytes(32)), ARGUMENT, "equivocation"),
    "numbers next to zero": (dict(body=vectors(*[5e-324] * VALUES)), ARGUMENT, "equivocation"),  # finite: fit to send
    "a seq that is gone by": (dict(seq=3, made=(1, 1, 1, 0)), ARGUMENT, "behind"),
    "a second baton": (lambda m: dict(seq=m.seq + 1), ARGUMENT, "second-baton"),
    "a second baton, a lap later": (lambda m: dict(seq=m.seq + 4), ARGUMENT, "second-baton"),
    "another party's count going back": (lambda m: dict(made=(0, *m.made[1:]), seq=9), ARGUMENT, "counts"),
    "our own count too low": (lambda m: dict(made=(m.made[0], m.made[1] - 1, *m.made[2:]), seq=9), ARGUMENT, "counts"),
    "an ending for want of patience": (dict(kind=ENDING, seq=0, idle=401), ARGUMENT, "early-ending"),
}
# ... after the end; the message to change is the ending
ENDED = {
    "the ending again": (Raw(lambda b: b), "known", None),
    "another model": (lambda m: dict(body=bytes([m.body[0] ^ 1]) + m.body[1:]), ARGUMENT, "equivocation"),
    "a model of nothing": (dict(body=bytes(8 * VALUES)), ARGUMENT, "equivocation"),
    "one more baton": (dict(kind=BATON, seq=99, idle=0), ARGUMENT, "ended"),
}
PHASES = {"before": MESSAGES, "middle": MESSAGES | HELD, "after": ENDED}


def altered(message, change):
    """The bytes of a message after a change: of fields, of fields that depend on it, or of its bytes."""
    if isinstance(change, Raw):
        return change.change(message.to_bytes())
    return replace(message, **(change(message) if callable(change) else change)).to_bytes()


# -- connections, and calls that are wrong whatever they bring


def stranger(siege, name, key=None, **flaws):
    """A folder with a certificate that nobody agreed on."""
    folder = siege.lab.folder / f"stranger-{name}-{len(siege.outcomes)}"
    key = key or new_key()
    return write_pair(folder, key_text(key), certify(name, key, **flaws))


def own_key(siege, party):
    return serialization.load_pem_private_key((siege.home(party) / KEY).read_bytes(), None)


def greet_as(siege, home, greeting=None):
    with closing(channel(home, siege.home(1), siege.address, "p1")) as calls:
        return call_status(calls.unary_unary(f"{RELAY}/Greet"), siege.greeting() if greeting is None else greeting)


def half_open(siege):
    context = tls_context(siege.home(0))
    context.set_alpn_protocols(["http/1.1"])
    return let_in(siege.port, None, context)


CONNECTIONS = {
    "no certificate": (lambda s: let_in(s.port, None), "closed", "no-certificate"),
    "an unknown certificate with the right name": (
        lambda s: let_in(s.port, stranger(s, "p0")),
        "closed",
        "unknown-certificate",
    ),
    "an expired one": (
        lambda s: let_in(s.port, stranger(s, "p0", begin=-2 * DAY, end=-DAY)),
        "closed",
        "unknown-certificate",
    ),
    "one that is not valid yet": (
        lambda s: let_in(s.port, stranger(s, "p0", begin=DAY, end=2 * DAY)),
        "closed",
        "unknown-certificate",
    ),
    "a party's key with a certificate nobody agreed on": (
        lambda s: let_in(s.port, stranger(s, "p0", own_key(s, 0))),
        "closed",
        "unknown-certificate",
    ),
    "a certificate signed by a party": (
        lambda s: let_in(s.port, stranger(s, "friend", issuer=("p0", own_key(s, 0)))),
        "closed",
        "unknown-certificate",
    ),
    "a party's certificate with another key": (
        lambda s: let_in(s.port, with_another_key(s.home(0), s.lab.folder / f"thief-{len(s.outcomes)}")),
        "closed",
        "wrong-key",
    ),
    "a party that is no neighbour": (lambda s: greet_as(s, s.home(3)), "PERMISSION_DENIED", "not-a-neighbour"),
    "the agent's own certificate": (lambda s: greet_as(s, s.home(1)), "PERMISSION_DENIED", "not-a-neighbour"),
    "HTTP/2 in plain text": (lambda s: greeted(s.port, PREFACE + frame(SETTINGS, 0, 0)), "closed", "no-tls"),
    "HTTP/1.1 in plain text": (lambda s: greeted(s.port, b"GET / HTTP/1.1\r\n\r\n"), "closed", "no-tls"),
    "noise": (lambda s: greeted(s.port, bytes(range(256)) * 4), "closed", "no-tls"),
    "TLS 1.2": (
        lambda s: let_in(s.port, None, tls_context(s.home(0), ssl.TLSVersion.TLSv1_2)),
        "closed",
        "old-tls",
    ),
    "TLS for another protocol": (half_open, "closed", None),
}


def bomb(size):
    """gzip of so many zeros, made of the same block again and again."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
    begin = squeeze.compress(bytes(MEGABYTE)) + squeeze.flush(zlib.Z_FULL_FLUSH)
    block = squeeze.compress(bytes(MEGABYTE)) + squeeze.flush(zlib.Z_FULL_FLUSH)
    return begin + block * (size // MEGABYTE - 1)


GZIP, GRPC = (b"grpc-encoding", b"gzip"), (b"content-type", b"application/grpc")


def pass_raw(*body, headers=()):
    return lambda s: raw_call(s.port, s.home(0), f"{RELAY}/Pass", body, *headers)


def after_tls(data, begin, seconds=SILENT):
    """Bytes instead of HTTP/2, or after its beginning."""

    def attack(siege):
        with closing(Wire(siege.port, siege.home(0), begin=begin)) as wire:
            wire.send(data)
            return wire.ending(1, seconds)

    return attack


def with_metadata(siege, *metadata):
    with closing(channel(siege.home(0), siege.home(1), siege.address, "p1")) as calls:
        method = calls.unary_unary(f"{RELAY}/Greet")
        return call_status(functools.partial(method, metadata=metadata), siege.greeting())


FORGED = b'\n{"time": "2026-01-01T00:00:00.000+00:00", "level": "info", "event": "forged", "party": "p1"}\n'
WATCHED = pb.Greeting(consortium=b"relaydp.v1.Relay").SerializeToString()  # in its place: the name of a service
CALLS = {
    "a greeting of another consortium": (
        lambda s: greet_as(s, s.home(0), pb.Greeting(consortium=bytes(32)).SerializeToString()),
        PRECONDITION,
        "other-consortium",
    ),
    "an empty greeting": (lambda s: greet_as(s, s.home(0), b""), PRECONDITION, "other-consortium"),
    "a greeting that is none": (lambda s: greet_as(s, s.home(0), b"\xff" * 40), ARGUMENT, "garbage"),
    "an unknown method": (
        lambda s: raw_call(s.port, s.home(0), f"{RELAY}/Stop", [prefixed(b"")]),
        "UNIMPLEMENTED",
        "unknown-method",
    ),
    "an unknown service": (
        lambda s: raw_call(s.port, s.home(0), "/" + "x" * 2000, [prefixed(b"")]),
        "UNIMPLEMENTED",
        "unknown-method",
    ),
    "waiting for news of its health": (
        lambda s: raw_call(s.port, s.home(0), "/grpc.health.v1.Health/Watch", [prefixed(WATCHED)]),
        "UNIMPLEMENTED",
        "unknown-method",
    ),
    "1 GB": (
        pass_raw(b"\0" + struct.pack(">I", 2**30), *[bytes(MEGABYTE)] * 1024),
        "RESOURCE_EXHAUSTED",
        "no-message",
    ),
    "a byte more than the longest message": (pass_raw(prefixed(bytes(20_000))), "RESOURCE_EXHAUSTED", "no-message"),
    "1 GB, squeezed to one": (
        pass_raw(prefixed(bomb(2**30), compressed=True), headers=[GZIP]),
        "RESOURCE_EXHAUSTED",
        "no-message",
    ),
    "15 MB, squeezed to a message's length": (
        pass_raw(prefixed(bomb(15 * MEGABYTE), compressed=True), headers=[GZIP]),
        "RESOURCE_EXHAUSTED",
        "no-message",
    ),
    "gzip that is none": (pass_raw(prefixed(b"abc", compressed=True), headers=[GZIP]), "INTERNAL", "no-message"),
    "squeezed, and not said how": (pass_raw(prefixed(b"abc", compressed=True)), "INTERNAL", "no-message"),
    "no message": (pass_raw(), ARGUMENT, "no-message"),
    "half a message": (pass_raw(prefixed(bytes(100))[:50]), ARGUMENT, "no-message"),
    # what follows is turned away by gRPC before any of our code, and without a word
    "1,000 headers": (
        lambda s: with_metadata(s, *((f"x-{k}", "v" * 100) for k in range(1000))),
        "RESOURCE_EXHAUSTED",
        None,
    ),
    "a header of 1 MB": (lambda s: with_metadata(s, ("x", "v" * MEGABYTE)), "RESOURCE_EXHAUSTED", None),
    "noise after the handshake": (after_tls(bytes(range(256)) * 10, begin=False), "closed", None),
    "noise for headers": (after_tls(frame(HEADERS, END_HEADERS, 1, b"\xff" * 50), begin=True), "INTERNAL", None),
    "a goodbye like a line of the log": (
        # nothing answers it, so there is nothing to wait for: the log is looked at when the siege is over
        after_tls(frame(GOAWAY, 0, 0, struct.pack(">II", 0, 11) + FORGED), begin=True, seconds=0.5),
        "silence",
        None,
    ),
}


def call_status(method, data):
    try:
        method(data, timeout=SILENT)
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


def pass_status(method, data):
    """How a Pass ends; "known" if it is acknowledged as a message that was there."""
    try:
        receipt = pb.Receipt.FromString(method(data, timeout=SILENT))
    except grpc.RpcError as error:
        return error.code().name
    assert receipt.hash == parse(data).hash()
    return "known" if receipt.again else "accepted"


# -- crowds


def crowd_of_sockets(siege, stack):
    for _ in range(CROWD):
        stack.enter_context(socket.create_connection(("127.0.0.1", siege.port)))


def crowd_of_neighbours(siege, stack):
    context = tls_context(siege.home(0))
    for _ in range(CROWD):
        stack.enter_context(closing(Wire(siege.port, None, context)))


def crowd_of_greetings(siege, stack):
    calls = stack.enter_context(closing(channel(siege.home(0), siege.home(1), siege.address, "p1")))
    method, greeting, waiting = calls.unary_unary(f"{RELAY}/Greet"), siege.greeting(), []
    for _ in range(FLOOD):
        waiting.append(method.future(greeting, timeout=SILENT))
        if len(waiting) == 50:
            waiting.pop(0).code()
    for each in waiting:
        each.code()


FILES = 4096 if (hard := resource.getrlimit(resource.RLIMIT_NOFILE)[1]) < 0 else min(hard, 4096)  # that we may open
CROWD, FLOOD = min(1000, FILES // 2 - 200), 5000
CROWDS = {
    "1,000 connections without a word": crowd_of_sockets,
    "1,000 connections of a neighbour": crowd_of_neighbours,
    "5,000 greetings": crowd_of_greetings,
}


def crowded(siege, gather):
    """Whether another neighbour is answered in the middle of a crowd, and what the crowd leaves behind."""
    before = open_files(siege.process.pid)
    with Peak(siege.process.pid) as peak, ExitStack() as stack:
        gather(siege, stack)
        status = greet_as(siege, siege.home(2))
    wait_for(lambda: open_files(siege.process.pid) <= before + 5)
    return Outcome(status, [], False, peak.growth)


# -- connections that are held open and say nothing, from the first attack to the end

HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(20)  # the beginning of a handshake
SLOW = {
    "a socket without a word": lambda s: socket.create_connection(("127.0.0.1", s.port)),
    "half a handshake": lambda s: say(socket.create_connection(("127.0.0.1", s.port)), HELLO),
    "TLS without a word": lambda s: Wire(s.port, s.home(0), begin=False).socket,
    "HTTP/2 without a call": lambda s: Wire(s.port, s.home(0)).socket,
    "a call without a message": lambda s: slow_call(s, b""),
    "a message that drips": lambda s: slow_call(s, prefixed(bytes(100))[:20]),
}
CUT = ("a socket without a word", "half a handshake")  # by the agent, in ten seconds


def say(connection, data):
    connection.sendall(data)
    return connection


def slow_call(siege, begin):
    wire = Wire(siege.port, siege.home(0))
    wire.send(frame(HEADERS, END_HEADERS, 1, request(f"{RELAY}/Pass")))
    wire.send(frame(DATA, 0, 1, begin))
    return wire.socket


# -- the siege


@dataclass
class Outcome:
    status: str
    reasons: list[str]  # of refusals in the log, since the attack began
    is_changed: bool  # whether the journal is
    growth: int = 0  # of the agent's memory, in bytes


@dataclass
class Siege:
    lab: object
    log: Path
    process: object = None
    outcomes: dict = field(default_factory=dict)
    codes: list = field(default_factory=list)

    def __post_init__(self):
        self.address, self.identity = self.lab.consortium.parties[1].address, self.lab.consortium.identity
        self.port = int(self.address.split(":")[1])

    def home(self, party):
        return self.lab.homes[party]

    def greeting(self):
        return pb.Greeting(consortium=self.identity, epoch=1).SerializeToString()

    def journal(self):
        """Everything in p1's journal."""
        return [rows_of(self.lab, 1, f"SELECT * FROM {table}") for table in ("meta", "inbox", "outbox", "ledger")]

    def attempt(self, phase, name, attack, reason):
        """Make an attack, wait for its reason in the log, and keep what came of it. A failure is its test's."""
        begin, before = self.log.stat().st_size, self.journal()

        def refusals():
            # connections that send slowly are open all the while, and are given up whenever their time is over
            found = [line["reason"] for line in lines(self.log, begin) if line["event"] == "refused"]
            return [reason for reason in found if reason != "too-slow"]

        try:
            with Peak(self.process.pid) as peak:
                status = attack()
            outcome = status if isinstance(status, Outcome) else Outcome(status, [], False, peak.growth)
            if reason is not None:
                wait_for(lambda: reason in refusals(), SILENT)
            outcome.reasons, outcome.is_changed = refusals(), self.journal() != before
        except Exception as error:
            outcome = error
        self.outcomes[phase, name] = outcome

    def outcome(self, phase, name):
        found = self.outcomes[phase, name]
        if isinstance(found, Exception):
            raise found
        return found

    def attack(self, phase, message):
        """All that can be done to p1 in this phase; `message` is the one that would be right, or that it has."""
        with closing(channel(self.home(0), self.home(1), self.address, "p1")) as calls:
            method = calls.unary_unary(f"{RELAY}/Pass")
            if phase == "after":  # whoever brought the ending first: from now on p1 knows that p0 has it
                assert pass_status(method, message.to_bytes()) == "known"
            for name, (change, _, reason) in PHASES[phase].items():
                self.attempt(phase, name, lambda c=change: pass_status(method, altered(message, c)), reason)
        if phase != "after":
            for name, (attack, _, reason) in (CONNECTIONS | CALLS).items():
                self.attempt(phase, name, lambda a=attack: a(self), reason)
        if phase == "middle":
            for name, gather in CROWDS.items():
                self.attempt(phase, name, lambda g=gather: crowded(self, g), None)


def begin_epoch(lab, party, epoch):
    """A journal in which agreed reroutings have begun an epoch, so that there is an older one."""
    public_plan = RecordsProcess(lab.settings(party)).public_plan
    journal = Journal(
        lab.journal(party), public_plan.identity, f"p{party}", public_plan.limit_rho, tolerance=public_plan.tolerance
    )
    journal.commit(facts={"epoch": epoch})
    journal.close()


@pytest.fixture(scope="module")
def siege(tmp_path_factory):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES), hard))
    try:
        began = time.monotonic()
        lab = make_lab(tmp_path_factory.mktemp("siege"), 4)
        yield besieged(lab, time.monotonic() - began)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def run_with_files(settings, log, hook):
    """An agent that may open as many files as there can be: half of them are for connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES), hard))
    run_agent(settings, log, hook)


def besieged(lab, took):
    siege = Siege(lab, lab.folder / "p1.log")
    for party in range(4):
        begin_epoch(lab, party, 1)
    go = lab.folder / "go"

    def begin(party, **settings):
        stop = {0: (SENT, 2), 2: (NOTED, 1)}.get(party)  # both neighbours of p1, when it has its second baton
        hook = stop and functools.partial(stopped_at, *stop, go)
        return start(lab.settings(party, **settings), lab.folder / f"p{party}.log", hook, run_with_files)

    siege.process = begin(1, linger=3600.0)
    running = [siege.process]
    try:
        with ExitStack() as stack:
            wait_for(lambda: logged(siege.log, "serving"))
            waning = serving_with_waning_certificate(lab.folder / "waning", WANING + 5 * took)
            running.append(waning.process)
            waning.attempt("before", "more activations than hops", lambda: claim_too_much(waning), "counts")
            slow = {name: stack.enter_context(closing(open_slow(siege))) for name, open_slow in SLOW.items()}
            first = Message(siege.identity, 1, BATON, 1, (1, 0, 0, 0), 0, bytes(range(32)), vectors())
            siege.attack("before", first)
            running += [begin(party) for party in (0, 2, 3)]
            wait_for(lambda: logged(siege.log, "accepted", seq=5))
            wait_for(lambda: not rows_of(lab, 1, "SELECT 1 FROM outbox WHERE acknowledged=0"))
            held = parse(rows_of(lab, 1, "SELECT message FROM inbox WHERE done=0")[0][0])
            siege.attack("middle", held)
            go.touch()
            wait_for(lambda: logged(siege.log, "finished"))
            wait_for(lambda: not rows_of(lab, 1, "SELECT 1 FROM outbox WHERE acknowledged=0"))
            wait_for(lambda: not any(process.is_alive() for process in running[2:]))  # they may bring the ending, too
            (ending,) = rows_of(lab, 1, "SELECT message FROM inbox WHERE kind=3 AND message NOTNULL")[0]
            siege.attack("after", parse(ending))
            wait_for(lambda: len(logged(siege.log, "refused", reason="too-slow")) == 2)
            for name, connection in slow.items():
                connection.settimeout(SILENT if name in CUT else 0.5)
                try:
                    siege.outcomes["slow", name] = "closed" if not connection.recv(100) else "open"
                except TimeoutError:
                    siege.outcomes["slow", name] = "open"
                except OSError:
                    siege.outcomes["slow", name] = "closed"
        siege.attempt("after", "no text", lambda: call_without_text(siege), "bad-call")
        certificate = x509.load_pem_x509_certificate((waning.home(0) / CERTIFICATE).read_bytes())
        wait_for(lambda: datetime.now(UTC) > certificate.not_valid_after_utc + timedelta(seconds=1))
        let_in_late = functools.partial(let_in, waning.port, waning.home(0))
        waning.attempt("after", "an ended certificate", let_in_late, "expired-certificate")
        siege.outcomes |= {("waning", name): outcome for (_, name), outcome in waning.outcomes.items()}
        siege.process.terminate()
        waning.process.terminate()
        siege.codes = wait_all(running)
    finally:
        wait_all(running, 0)
    return siege


# Seconds that a certificate lasts, and five times what it took to make a lab: another one has to be made and its agent
# started within. No clock can be set for that: TLS asks the machine's own.
WANING = 15


def serving_with_waning_certificate(folder, seconds):
    """`with_waning_certificate`, when it serves. On a machine that became slow it may have ended before: then another
    lasts longer."""
    for longer in (1, 4, 16):
        try:
            waning = with_waning_certificate(folder / str(longer), longer * seconds)
        except InputError as error:
            assert "needed one that is valid now" in str(error)
            continue
        wait_for(lambda siege=waning: logged(siege.log, "serving") or not siege.process.is_alive())
        if logged(waning.log, "serving"):
            return waning
    raise AssertionError(f"no certificate of {16 * seconds:.0f} s lasted until its agent served")


def with_waning_certificate(folder, seconds):
    """An agent one of whose neighbours, p0, has a certificate that ends while it runs."""
    make = identity._self_signed

    def self_signed(key, name, days):
        if name != "p0":
            return make(key, name, days)
        return x509.load_pem_x509_certificate(certify(name, key, end=timedelta(seconds=seconds)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(identity, "_self_signed", self_signed)
        lab = make_lab(folder, 3, graph="path", walk="tour")
    siege = Siege(lab, folder / "p1.log")
    siege.process = start(lab.settings(1), siege.log)
    return siege


def claim_too_much(siege):
    """More activations than hops; only a rerouting, which begins an epoch, can make that of an honest baton."""
    with closing(channel(siege.home(2), siege.home(1), siege.address, "p1")) as calls:
        baton = Message(siege.identity, 0, BATON, 1, (2, 0, 0), 0, b"", vectors())
        return pass_status(calls.unary_unary(f"{RELAY}/Pass"), baton.to_bytes())


def call_without_text(siege):
    """gRPC's server ends for good at such a call; the agent opens another, and answers there."""
    status = raw_call(siege.port, siege.home(3), f"{RELAY}/\xff")
    wait_for(lambda: greet_as(siege, siege.home(2)) == "OK")
    return status


def logged(log, event, **fields):
    return [line for line in lines(log) if line["event"] == event and fields.items() <= line.items()]


# -- the laws


@pytest.mark.parametrize(("phase", "name"), [(phase, name) for phase, cases in PHASES.items() for name in cases])
def test_a_wrong_message_is_refused_for_what_it_is_and_changes_nothing(siege, phase, name):
    _, status, reason = PHASES[phase][name]
    outcome = siege.outcome(phase, name)
    assert (outcome.status, outcome.reasons) == (status, [] if reason is None else [reason])
    assert not outcome.is_changed


@pytest.mark.parametrize("phase", ["before", "middle"])
@pytest.mark.parametrize("name", CONNECTIONS | CALLS)
def test_whoever_is_no_neighbour_or_calls_wrongly_is_turned_away(siege, phase, name):
    _, status, reason = (CONNECTIONS | CALLS)[name]
    outcome = siege.outcome(phase, name)
    assert outcome.status == status
    assert outcome.reasons in ([[reason]] if reason else [[], ["no-message"]])  # gRPC may begin a call that it refuses
    assert not outcome.is_changed
    assert outcome.growth < 8 * MEGABYTE


@pytest.mark.parametrize("name", CROWDS)
def test_a_crowd_takes_neither_the_answer_nor_the_memory_nor_the_files_of_others(siege, name):
    outcome = siege.outcome("middle", name)
    assert outcome.status == "OK"
    assert not outcome.is_changed
    assert outcome.growth < 150 * MEGABYTE


@pytest.mark.parametrize("name", SLOW)
def test_who_keeps_the_agent_waiting_waits_himself(siege, name):
    """Handshakes have ten seconds and messages twenty; an idle connection may stay. Nobody else waits for them."""
    assert siege.outcomes["slow", name] == ("closed" if name in CUT else "open")


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [("an ended certificate", "closed", "expired-certificate"), ("more activations than hops", ARGUMENT, "counts")],
)
def test_a_certificate_that_ends_and_counts_that_cannot_be_are_refused(siege, name, status, reason):
    outcome = siege.outcome("waning", name)
    assert (outcome.status, outcome.reasons, outcome.is_changed) == (status, [reason], False)


def test_a_call_that_ends_grpc_s_server_does_not_end_the_agent(siege):
    assert siege.outcome("after", "no text").status != "OK"
    assert not siege.outcome("after", "no text").is_changed


def test_the_run_ends_right_after_all_that(siege):
    assert siege.codes == [0] * 5
    assert faults(siege.lab) == []


def test_the_log_has_one_line_an_event_and_nothing_else(siege):
    found = lines(siege.log)
    assert {line.get("party") for line in found} == {"p1"}
    assert not any(line["event"] in ("raw", "forged") or "Traceback" in str(line) for line in found)


# -- rounds

SHARE = dict(kind=ENDING, seq=0, made=(3,) * 4, body=bytes(8 * 6))
ROUNDS = {
    "a baton": (dict(kind=BATON, seq=1, made=(0,) * 4), "kind"),
    "a round that a neighbour cannot have reached": (dict(seq=1), "seq"),
    "a round beyond the plan": (dict(seq=3), "seq"),
    "a round with counts": (dict(made=(1, 1, 1, 1)), "counts"),
    "a round with NaN": (lambda m: dict(body=b"\xff" * len(m.body)), "not-finite"),
    "a neighbour's part of the ending, before the end": (SHARE, "early-ending"),
    "our own part of the ending": (SHARE | dict(seq=1), "counts"),
    "a part with rounds left": (SHARE | dict(made=(3, 3, 3, 2)), "counts"),
    "a part of nobody": (SHARE | dict(seq=4), "seq"),
    "a part that is too long": (SHARE | dict(body=bytes(8 * 12)), "size"),
}


def test_rounds_refuse_what_cannot_be_and_end_right(tmp_path):
    lab = make_lab(tmp_path, 4, algorithm="nids")
    siege = Siege(lab, tmp_path / "p1.log")
    siege.process = start(lab.settings(1), siege.log)
    running = [siege.process]
    try:
        wait_for(lambda: logged(siege.log, "serving"))
        public_plan = RecordsProcess(lab.settings(0)).public_plan
        right = Message(siege.identity, 0, ROUND, 0, (), 0, b"", bytes(8 * public_plan.vectors * public_plan.dim))
        with closing(channel(siege.home(0), siege.home(1), siege.address, "p1")) as calls:
            method = calls.unary_unary(f"{RELAY}/Pass")
            for name, (change, reason) in ROUNDS.items():
                siege.attempt("before", name, lambda c=change: pass_status(method, altered(right, c)), reason)
        running += [start(lab.settings(party), tmp_path / f"p{party}.log") for party in (0, 2, 3)]
        codes = wait_all(running)
    finally:
        wait_all(running, 0)
    for name, (_, reason) in ROUNDS.items():
        outcome = siege.outcome("before", name)
        assert (name, outcome.status, outcome.reasons, outcome.is_changed) == (name, ARGUMENT, [reason], False)
    assert codes == [0] * 4
    assert faults(lab) == []


# -- a neighbour that is false

ODD = {
    "garbage": (reply(b"\xff" * 50), "not a relaydp.v1.Standing"),
    "no message": (
        lambda stream, _: (
            frame(HEADERS, END_HEADERS, stream, header_block([(b":status", b"200"), GRPC]))
            + frame(HEADERS, END_HEADERS | END_STREAM, stream, header_block([(b"grpc-status", b"0")]))
        ),
        "empty",
    ),
    "an unknown status": (reply(b"", b"99"), "UNKNOWN"),
    "a status that is no number": (reply(b"", b"soon"), "grpc-status"),
    "no gRPC": (
        lambda stream, _: frame(HEADERS, END_HEADERS | END_STREAM, stream, header_block([(b":status", b"500")])),
        "500",
    ),
    "a long refusal": (reply(b"", b"3", why=b"%0A%1B%00%FF" + b"no " * 1500), "no no no"),
    "15 MB, squeezed": (reply(bomb(15 * MEGABYTE), compressed=True), "RESOURCE_EXHAUSTED"),
    "a name that is no text": (reply(b"\x22\x02\xff\xfe"), "not a relaydp.v1.Standing"),
    "the call cut off": (lambda stream, _: frame(RESET, 0, stream, struct.pack(">I", 8)), "RST_STREAM"),
}
LIES = {
    "it had a message from us": dict(has_accepted=True, accepted_seq=7, accepted_hash=bytes(32)),
    "it had one beyond counting": dict(has_accepted=True, accepted_seq=2**64 - 1, accepted_hash=b"x"),
    "it sent us a message": dict(has_sent=True, sent_seq=0, sent_hash=b""),
}
RECEIPTS = {
    "for another message": (reply(pb.Receipt(hash=bytes(32)).SerializeToString()), "for another message"),
    "garbage": (reply(b"\xff" * 40), "not a relaydp.v1.Receipt"),
    "never": (lambda stream, _: b"", ""),
}


class Scene:
    """A path of three: p0, p1, and a false p2."""

    def __init__(self, folder):
        self.lab, self.log, self.running = make_lab(folder, 3, graph="path", walk="tour"), folder / "p1.log", {}
        self.passed = []  # messages that came to the false neighbour
        self.false = FalseNeighbour(self.lab, 2, ODD["garbage"][0])

    def begin(self, party):
        self.running[party] = start(self.lab.settings(party), self.lab.folder / f"p{party}.log")

    def standing(self, **claims):
        return reply(pb.Standing(consortium=self.lab.consortium.identity, ready=True, **claims).SerializeToString())

    def play(self, answer, event, text):
        """Let the false neighbour answer so, until p1 logs of it what it should."""
        since = self.log.stat().st_size
        self.false.answer = answer
        wait_for(lambda: any(line["event"] == event and text in line["reason"] for line in lines(self.log, since)))

    def taking(self, answer):
        """Greet as one should, and answer messages so."""

        def choose(stream, message):
            if len(message) < 60:
                return self.standing()(stream, message)
            self.passed.append(message)
            return answer(stream, message)

        return choose

    def close(self):
        self.false.close()
        wait_all(list(self.running.values()), 0)


@pytest.fixture
def scene(tmp_path):
    with closing(Scene(tmp_path)) as made:
        yield made


def test_a_false_neighbour_delays_a_run_and_nothing_else(scene):
    """A lie about the past stops p1: an agent cannot tell a liar from a journal that was set back. It says why, and
    nothing is released by that."""
    scene.begin(1)
    wait_for(lambda: logged(scene.log, "waiting-for"))
    before = memory(scene.running[1].pid)
    for answer, text in ODD.values():
        scene.play(answer, "waiting-for", text)
    assert memory(scene.running[1].pid) - before < 8 * MEGABYTE
    for claims in LIES.values():
        scene.false.answer = scene.standing(**claims)
        assert wait_all([scene.running[1]]) == [2]
        assert "it is not in this journal" in lines(scene.log)[-1]["detail"]
        scene.false.answer = ODD["garbage"][0]
        scene.begin(1)
    scene.begin(0)
    for answer, text in RECEIPTS.values():
        count = len(scene.passed)
        if text:
            scene.play(scene.taking(answer), "not-delivered", text)
        scene.false.answer = scene.taking(answer)
        wait_for(lambda c=count: len(scene.passed) > c)
        assert rows_of(scene.lab, 1, "SELECT acknowledged FROM outbox WHERE receiver='p2'") == [(0,)]
    assert len(set(scene.passed)) == 1  # the same bytes, however often
    scene.false.close()
    scene.begin(2)
    assert wait_all(list(scene.running.values())) == [0] * 3
    assert faults(scene.lab) == []


# -- fuzzing: `python tests/fuzz_agent.py --seconds 600` is the long form


def test_four_hundred_pieces_of_noise_change_nothing(tmp_path):
    report = fuzz(tmp_path, seed=1, shots=400)
    assert report["faults"] == []
    assert sum(report["sent"].values()) == 400
