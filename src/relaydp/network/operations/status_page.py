"""The status page of one agent: a small web server for users of its machine.

    /              a page that shows the state and updates itself
    /status.json   the same for programs
    /metrics       counters and gauges for Prometheus

It listens on 127.0.0.1 only, answers GET and HEAD, changes nothing and shows nothing private: budgets, counts and
names. Web pages from elsewhere cannot read it: no answer allows another origin, and a request whose Host is not a local
name is refused, so a foreign name that points at 127.0.0.1 (DNS rebinding) is useless. The page may run its own script
and style, identified by their hashes, and call this server; nothing else.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
import re
import socket
import socketserver
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from relaydp.errors import InputError
from relaydp.network.operations.log import Log

HOST = "127.0.0.1"
PATIENCE = 5.0  # seconds that a client may be silent in the middle of a request
MOST_CLIENTS = 32  # connections at a time; the next is closed at once, so threads cannot pile up in the agent

Status = Callable[[], dict[str, Any]]


class StatusServer:
    """Serves an agent's status on 127.0.0.1 from its own thread until `close`.

    port      0 takes a free one; `url` says which
    status    called for each request, from several threads at once
    log       receives the kind of error if `status` fails; the client learns only that it failed
    """

    def __init__(self, port: int, status: Status, registry: CollectorRegistry, log: Log | None = None) -> None:
        try:
            self._server = _Server(port, status, registry, log)
        except (OSError, OverflowError) as error:
            raise InputError(
                f"the status page cannot listen on {HOST}:{port} ({error}). Pass another --status-port: a free port "
                "from 1024 to 65535, or 0 for any."
            ) from error
        self.port: int = self._server.server_address[1]
        self.url = f"http://{HOST}:{self.port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, name="relaydp-status", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and close open connections, without waiting for clients; a second call does nothing."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> StatusServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # the process does not wait for a client either
    block_on_close = False
    request_queue_size = MOST_CLIENTS

    def __init__(self, port: int, status: Status, registry: CollectorRegistry, log: Log | None) -> None:
        self.status, self.registry, self.log = status, registry, log
        self.clients: set[socket.socket] = set()
        self.clients_lock = threading.Lock()
        super().__init__((HOST, port), _Handler)
        port = self.server_address[1]
        names = ("127.0.0.1", "localhost")
        self.hosts = {f"{name}:{port}" for name in names} | ({*names} if port == 80 else set())

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's own would ask DNS for this machine's name

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.clients_lock:
            welcome = len(self.clients) < MOST_CLIENTS
            if welcome:
                self.clients.add(request)
        if welcome:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        with self.clients_lock:
            self.clients.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        with self.clients_lock:
            for client in self.clients:
                try:
                    client.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it, which then closes it
                except OSError:  # closed already
                    pass

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that went away; the inherited method prints a traceback among the log's lines


class _Handler(BaseHTTPRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = PATIENCE

    def do_GET(self) -> None:
        if not self._asked_by_own_name():
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, f"ask for {' or '.join(sorted(self.server.hosts))}")
            return
        path = self.path.split("?")[0]
        try:
            if path == "/":
                self._answer(page().encode(), "text/html; charset=utf-8", {"Content-Security-Policy": page_policy()})
            elif path == "/status.json":
                body = json.dumps(_jsonable(self.server.status()), allow_nan=False)
                self._answer(body.encode(), "application/json")
            elif path == "/metrics":
                self._answer(generate_latest(self.server.registry), CONTENT_TYPE_LATEST)
            else:
                self.send_error(HTTPStatus.NOT_FOUND, "this server has /, /status.json and /metrics")
        except (BrokenPipeError, ConnectionError, TimeoutError):
            raise  # caused by the client: socketserver closes the connection
        except Exception as error:  # any error of `status`: its text could quote anything
            if self.server.log is not None:
                self.server.log.failed("status-failed", error)
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, "the error is in the agent's log")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        if self._asked_by_own_name():
            self.send_error(HTTPStatus.METHOD_NOT_ALLOWED, "nothing can be changed here")
        else:
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)

    do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = do_POST

    def _asked_by_own_name(self) -> bool:
        hosts = self.headers.get_all("Host", [])
        return len(hosts) == 1 and hosts[0].strip().lower() in self.server.hosts

    def _answer(self, body: bytes, kind: str, headers: dict[str, str] | None = None, code: int = HTTPStatus.OK) -> None:
        self.send_response(code)
        fixed = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
            "Connection": "close",
        }
        for name, value in {**fixed, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """One line of plain text; the inherited page quotes the request. Also called for what cannot be parsed."""
        status = HTTPStatus(code)
        tail = f": {message}" if message and status != HTTPStatus.BAD_REQUEST else ""
        allow = {"Allow": "GET, HEAD"} if status == HTTPStatus.METHOD_NOT_ALLOWED else None
        self.close_connection = True
        self._answer(f"{code} {status.phrase}{tail}\n".encode(), "text/plain; charset=utf-8", allow, code)

    def version_string(self) -> str:
        return "relaydp"  # does not reveal the Python version

    def log_message(self, format: str, *args: Any) -> None:
        pass  # the log is the agent's


@functools.cache
def page() -> str:
    """The page: one file with its style and script inside."""
    return resources.files("relaydp.network.operations").joinpath("status.html").read_text(encoding="utf-8")


@functools.cache
def page_policy() -> str:
    """What a browser may do with the page: run exactly its own style and script, and call this server.

    `img-src data:` is for the icon, which is part of the page.
    """
    return "; ".join(
        [
            "default-src 'none'",
            f"style-src {_hash('style')}",
            f"script-src {_hash('script')}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )


def _hash(tag: str) -> str:
    (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page(), re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'"


def _jsonable(value: Any) -> Any:
    """The same with null for numbers that are not finite, such as the limit of a run without a budget."""
    if isinstance(value, dict):
        return {name: _jsonable(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
