"""Reasons for refused TLS connections, in the agent's log.

gRPC refuses strangers before any of our code runs, and writes the reason to stderr only, in its own format. This module
reads those lines and logs them as events. It does so with everything on stderr: gRPC quotes what peers send, with line
breaks, and a peer could make an unchanged line look like one of our log.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import TextIO

from relaydp.network.operations.metrics import Log, Metrics

# what gRPC writes -> the word for it in log and metrics
REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "no-certificate",
    "certificate has expired": "expired-certificate",
    "certificate is not yet valid": "certificate-not-yet-valid",
    "NO_SHARED_CIPHER": "old-tls",
    "UNSUPPORTED_PROTOCOL": "old-tls",
    "self signed certificate": "unknown-certificate",
    "unable to get local issuer certificate": "unknown-certificate",
    "CERTIFICATE_VERIFY_FAILED": "bad-certificate",
    "BAD_SIGNATURE": "wrong-key",
    "WRONG_VERSION_NUMBER": "no-tls",
    "HTTP_REQUEST": "no-tls",
}
NOISE = ("Log level INFO is not suitable",)  # gRPC on its own log level


def ask_for_reasons() -> None:
    """Make gRPC write why handshakes fail. Call it before gRPC is imported."""
    os.environ.setdefault("GRPC_VERBOSITY", "INFO")


def own_stderr() -> TextIO:
    """A stream to the present stderr, for the log itself."""
    return os.fdopen(os.dup(2), "w", encoding="utf-8")


def listen(log: Log, metrics: Metrics, through: TextIO) -> Callable[[], None]:
    """Start a thread that reads what is written to file descriptor 2.

    Returns a function that ends it: stderr goes to `through` again, and all that was written before is in the log.
    """
    readable, writable = os.pipe()
    os.dup2(writable, 2)
    os.close(writable)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    reader = threading.Thread(target=_read, args=(readable, log, metrics), daemon=True)
    reader.start()

    def end() -> None:
        sys.stderr.flush()
        os.dup2(through.fileno(), 2)  # the pipe's last writer: its reader sees the end
        reader.join(timeout=5)

    return end


def _read(readable: int, log: Log, metrics: Metrics) -> None:
    with os.fdopen(readable, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if "Handshake failed" in line:
                reason = next((word for text, word in REASONS.items() if text in line), "tls")
                log.refused(reason, "unknown", detail=line.rsplit("] ", 1)[-1].strip())
                metrics.refuse(reason)
            elif not any(text in line for text in NOISE):
                log.warning("stderr", detail=line.rstrip("\n"))
