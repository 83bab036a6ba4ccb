"""What a hostile peer is made of: chosen certificates, raw TLS, raw HTTP/2, raw bytes in a call, a false neighbour.

HTTP/2 is written by hand, because gRPC's own client is too well-behaved: it sends no half messages, no compressed
bombs and no 1 GB without having it. Everything stays on 127.0.0.1.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
from consortium_lab import STUCK, Lab
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from relaydp.network.consortium.identity import CERTIFICATE, KEY

RELAY = "/relaydp.v1.Relay"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
STATUS = {code.value[0]: code.name for code in grpc.StatusCode}


def lines(log: Path, begin: int = 0) -> list[dict[str, Any]]:
    """An agent's log from a byte on, one event a line; what is no JSON comes as {"event": "raw"}."""
    if not log.exists():
        return []
    with log.open("rb") as file:
        file.seek(begin)
        text = file.read()
    found = []
    for line in text[: text.rfind(b"\n") + 1].decode().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            found.append({"event": "raw", "detail": line})
    return found


def stopped_at(point: str, count: int, go: Path) -> Callable[[str], None]:
    """A checkpoint that stops its agent at the count-th passing of a point, until the file `go` is there.

    That it stands there is told by a file `go.stopped`.
    """
    passed = 0

    def checkpoint(at: str) -> None:
        nonlocal passed
        passed += at == point
        if at == point and passed == count:
            go.with_name(f"{go.name}.stopped").touch()
            while not go.exists():
                time.sleep(0.01)

    return checkpoint


# -- identities


def write_pair(folder: Path, key: bytes, certificate: bytes) -> Path:
    folder.mkdir()
    (folder / KEY).write_bytes(key)
    (folder / CERTIFICATE).write_bytes(certificate)
    return folder


def with_another_key(home: Path, folder: Path) -> Path:
    """A party's certificate and a key that does not fit, written so that OpenSSL does not notice before it signs."""
    pem = (home / CERTIFICATE).read_bytes()
    key = ec.generate_private_key(ec.SECP256R1())
    own, theirs = (
        each.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
        for each in (key.public_key(), x509.load_pem_x509_certificate(pem).public_key())
    )
    plain = serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    text = base64.encodebytes(key.private_bytes(serialization.Encoding.DER, *plain).replace(own, theirs))
    return write_pair(folder, b"-----BEGIN EC PRIVATE KEY-----\n" + text + b"-----END EC PRIVATE KEY-----\n", pem)


def channel(home: Path, server: Path, address: str, name: str) -> grpc.Channel:
    """gRPC's own client with the identity in `home`."""
    pair = (home / KEY).read_bytes(), (home / CERTIFICATE).read_bytes()
    credentials = grpc.ssl_channel_credentials((server / CERTIFICATE).read_bytes(), *pair)
    options = [("grpc.ssl_target_name_override", name), ("grpc.use_local_subchannel_pool", 1)]
    options += [(f"grpc.{which}_reconnect_backoff_ms", 100) for which in ("initial", "min", "max")]
    return grpc.secure_channel(address, credentials, options=options)


def tls_context(home: Path | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2"])
    if home is not None:
        context.load_cert_chain(home / CERTIFICATE, home / KEY)
    return context


# -- HTTP/2


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def header_block(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """HPACK's plainest form: every name and value spelt out."""

    def text(value: bytes) -> bytes:
        size, left = (bytes([len(value)]), 0) if len(value) < 127 else (b"\x7f", len(value) - 127)
        while size[0] == 0x7F and left >= 128:
            size, left = size + bytes([left % 128 + 128]), left // 128
        return size + (bytes([left]) if size[0] == 0x7F else b"") + value

    return b"".join(b"\0" + text(name) + text(value) for name, value in headers)


def request(method: str, *more: tuple[bytes, bytes]) -> bytes:
    """The headers that begin a call."""
    begin = [
        (b":method", b"POST"),
        (b":scheme", b"https"),
        (b":path", method.encode("latin-1")),
        (b":authority", b"agent"),
    ]
    return header_block([*begin, (b"te", b"trailers"), (b"content-type", b"application/grpc"), *more])


def prefixed(message: bytes, compressed: bool = False) -> bytes:
    """A message as gRPC frames it."""
    return bytes([compressed]) + struct.pack(">I", len(message)) + message


def frames_of(buffer: bytearray) -> Iterable[tuple[int, int, int, bytes]]:
    """Take the whole frames off a buffer's front: (kind, flags, stream, payload)."""
    while len(buffer) >= 9 and len(buffer) >= 9 + (size := int.from_bytes(buffer[:3], "big")):
        kind, flags, stream = buffer[3], buffer[4], int.from_bytes(buffer[5:9], "big") & 0x7FFFFFFF
        payload = bytes(buffer[9 : 9 + size])
        del buffer[: 9 + size]
        yield kind, flags, stream, payload


class Wire:
    """A TLS connection that speaks HTTP/2 as told. `status` of a stream is its grpc-status, by name."""

    def __init__(self, port: int, home: Path | None, context: ssl.SSLContext | None = None, begin: bool = True) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=STUCK)
        try:
            self.socket = (context or tls_context(home)).wrap_socket(plain, server_hostname="p1")
        except BaseException:
            plain.close()
            raise
        self.status: dict[int, str] = {}
        self.is_closed = False
        self._window, self._windows, self._initial = 65535, {}, 65535
        self._buffer = bytearray()
        if begin:
            self.send(PREFACE + frame(SETTINGS, 0, 0))

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError:
            self.is_closed = True

    def look(self, seconds: float = 0.0) -> None:
        """Take in what has arrived, or arrives within that time."""
        self.socket.settimeout(max(seconds, 0.001))
        try:
            data = self.socket.recv(65536)
            self.is_closed |= not data
            self._buffer += data
        except (TimeoutError, ssl.SSLWantReadError):
            pass
        except OSError:
            self.is_closed = True
        self.socket.settimeout(STUCK)
        for kind, flags, stream, payload in frames_of(self._buffer):
            self._take(kind, flags, stream, payload)

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == WINDOW and stream:
            self._windows[stream] = self._windows.get(stream, 0) + int.from_bytes(payload, "big")
        elif kind == WINDOW:
            self._window += int.from_bytes(payload, "big")
        elif kind == SETTINGS and not flags & ACK:
            values = dict(struct.iter_unpack(">HI", payload))
            self._initial = values.get(4, self._initial)
            self.send(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.send(frame(PING, ACK, 0, payload))
        elif kind == HEADERS and b"grpc-status" in payload:
            at = payload.index(b"grpc-status") + len(b"grpc-status")
            self.status[stream] = STATUS[int(payload[at + 1 : at + 1 + payload[at]])]
        elif kind == RESET:
            self.status.setdefault(stream, "reset")

    def pour(self, stream: int, chunks: Iterable[bytes], seconds: float = STUCK) -> int:
        """Send data as fast as the other side lets us, until it has enough of it; how many bytes it took."""
        sent, until = 0, time.monotonic() + seconds
        for chunk in chunks:
            left = memoryview(chunk)
            while left:
                if stream in self.status or self.is_closed or time.monotonic() > until:
                    return sent
                room = min(self._window, self._initial + self._windows.get(stream, 0) - sent, 16384, len(left))
                self.look(0.0 if room > 0 else 0.05)
                if room > 0:
                    self.send(frame(DATA, 0, stream, bytes(left[:room])))
                    self._window, sent, left = self._window - room, sent + room, left[room:]
        return sent

    def ending(self, stream: int, seconds: float = STUCK) -> str:
        """The stream's status; "closed" if the connection ends without one, "silence" if nothing happens."""
        until = time.monotonic() + seconds
        while stream not in self.status and not self.is_closed and time.monotonic() < until:
            self.look(0.05)
        return self.status.get(stream, "closed" if self.is_closed else "silence")

    def close(self) -> None:
        self.socket.close()


def raw_call(port: int, home: Path, method: str, body: Iterable[bytes] = (), *headers: tuple[bytes, bytes]) -> str:
    """One call with any bytes for a body; its status by name."""
    with closing(Wire(port, home)) as wire:
        wire.send(frame(HEADERS, END_HEADERS, 1, request(method, *headers)))
        wire.pour(1, body)
        if 1 not in wire.status:
            wire.send(frame(DATA, END_STREAM, 1))
        return wire.ending(1)


def greeted(port: int, say: bytes) -> str:
    """What becomes of a connection without TLS."""
    with socket.create_connection(("127.0.0.1", port), timeout=STUCK) as plain:
        plain.sendall(say)
        try:
            return "open" if plain.recv(100) else "closed"
        except OSError:
            return "closed"


def let_in(port: int, home: Path | None, context: ssl.SSLContext | None = None) -> str:
    """Whether a handshake leads anywhere: in TLS 1.3 a client hears that it is turned away when it first reads."""
    try:
        with closing(Wire(port, home, context)) as wire:
            return "open" if wire.socket.recv(100) else "closed"
    except OSError:
        return "closed"


# -- a false neighbour


class FalseNeighbour:
    """A server with a party's own certificate that answers calls with whatever frames it is told to."""

    def __init__(self, lab: Lab, party: int, answer: Callable[[int, bytes], bytes]) -> None:
        self.answer = answer  # (stream, message) -> frames
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(lab.homes[party] / CERTIFICATE, lab.homes[party] / KEY)
        self._context.set_alpn_protocols(["h2"])
        host, port = lab.consortium.parties[party].address.split(":")
        self._listener = socket.create_server((host, int(port)))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(plain)
            self._threads.append(threading.Thread(target=self._serve, args=(plain,), daemon=True))
            self._threads[-1].start()

    def _serve(self, plain: socket.socket) -> None:
        buffer, bodies, begun = bytearray(), {}, False
        try:
            with self._context.wrap_socket(plain, server_side=True) as connection:
                self._open.append(connection)
                connection.sendall(frame(SETTINGS, 0, 0))
                while data := connection.recv(65536):
                    buffer += data
                    if not begun and len(buffer) >= len(PREFACE):
                        begun = True
                        del buffer[: len(PREFACE)]
                    for kind, flags, stream, payload in frames_of(buffer) if begun else ():
                        if kind in (SETTINGS, PING) and not flags & ACK:
                            connection.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
                        if kind == DATA:
                            bodies[stream] = bodies.get(stream, b"") + payload
                            if flags & END_STREAM:
                                connection.sendall(self.answer(stream, bodies.pop(stream)[5:]))
        except OSError:
            pass

    def close(self) -> None:
        """End, and leave the port to the real one."""
        _shut(self._listener)
        for each in self._open:
            _shut(each)
        for thread in self._threads:
            thread.join(STUCK)


def _shut(open_socket: socket.socket) -> None:
    try:
        open_socket.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    open_socket.close()


REPLY = [(b":status", b"200"), (b"content-type", b"application/grpc")]


def reply(message: bytes, status: bytes = b"0", *, compressed: bool = False, why: bytes = b"") -> Callable[..., bytes]:
    """An answer with this message and status."""
    head = [*REPLY, (b"grpc-encoding", b"gzip")] if compressed else REPLY

    def answer(stream: int, _: bytes) -> bytes:
        trailer = header_block([(b"grpc-status", status), (b"grpc-message", why)])
        return (
            frame(HEADERS, END_HEADERS, stream, header_block(head))
            + frame(DATA, 0, stream, prefixed(message, compressed))
            + frame(HEADERS, END_HEADERS | END_STREAM, stream, trailer)
        )

    return answer


# -- what a process has


def memory(pid: int) -> int:
    """Bytes of anonymous memory that a process holds."""
    text = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("RssAnon")) * 1024


class Peak:
    """How far a process's memory grows while something is done to it, looked at every few milliseconds."""

    def __init__(self, pid: int) -> None:
        self._pid, self._begin, self._done = pid, memory(pid), threading.Event()
        self.growth = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._done.wait(0.005):
            self.growth = max(self.growth, memory(self._pid) - self._begin)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
