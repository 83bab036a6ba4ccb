"""What an operator sees of an agent: its log, its metrics, its status page and `relaydp agent status`.

Nothing here may reveal a private value. Metrics and status hold counts, times, names and budgets, all of which the
other parties know or may know; the log checks every field (`relaydp.network.operations.log`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from relaydp.network.operations.log import WORD, Log
from relaydp.network.operations.status_page import StatusServer

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Log", "Metrics", "StatusServer", "print_status"]

# seconds of a hop: from a small problem on one machine to many records and a slow link
BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, float("inf"))
MOST_REASONS = 40  # different reasons that have their own count


class Metrics:
    """An agent's counters and gauges, in their own registry, so that two agents in one process stay separate.

    >>> metrics = Metrics(["south"])
    >>> metrics.hops.labels(kind="activation").inc()
    >>> metrics.registry.get_sample_value("relaydp_hops_total", {"kind": "activation"})
    1.0
    """

    def __init__(self, peers: Iterable[str] = ()) -> None:
        self.registry = registry = CollectorRegistry()
        self.hops = Counter("relaydp_hops_total", "Hops or rounds seen, by what was done", ["kind"], registry=registry)
        self.activations = Counter(
            "relaydp_activations_total", "Releases of this party: each spends budget", registry=registry
        )
        self.rho_spent = Gauge("relaydp_rho_spent", "zCDP spent by this party's releases", registry=registry)
        self.rho_limit = Gauge("relaydp_rho_limit", "zCDP that this party's releases may spend", registry=registry)
        self.epsilon_spent = Gauge(
            "relaydp_epsilon_spent", "Exact epsilon of this party's releases at the agreed delta", registry=registry
        )
        self.messages_refused = Counter(
            "relaydp_messages_refused_total", "Messages that were not accepted", ["reason"], registry=registry
        )
        self.resends = Counter(
            "relaydp_resends_total", "Messages sent again, the same bytes to the same party", registry=registry
        )
        self.hop_seconds = Histogram(
            "relaydp_hop_seconds",
            "From accepting a message to the commit of the answer",
            buckets=BUCKETS,
            registry=registry,
        )
        self.last_baton_seq = Gauge("relaydp_last_baton_seq", "Sequence number of the last message", registry=registry)
        self.peer_up = Gauge("relaydp_peer_up", "1 if the peer answered lately, else 0", ["peer"], registry=registry)
        for peer in peers:  # a peer that was never seen is shown as down, not missing
            self.peer_up.labels(peer=peer).set(0)
        self._reasons: set[str] = set()

    def refuse(self, reason: str) -> None:
        """Count a refused message under its reason.

        Each reason is a time series that is never removed, and strangers can cause refusals: so a reason that is not a
        short word in kebab-case, and every new one after MOST_REASONS, is counted as "other".
        """
        if not WORD.fullmatch(reason) or (reason not in self._reasons and len(self._reasons) >= MOST_REASONS):
            reason = "other"
        self._reasons.add(reason)
        self.messages_refused.labels(reason=reason).inc()


def print_status(status: dict[str, Any], console: Console | None = None) -> None:
    """Print an agent's status as two tables: the agent, then its peers. Plain text if the output is not a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if console is None:
        console = Console(highlight=False)
        if not console.is_terminal:
            console = Console(highlight=False, width=110)  # a file or a pipe has room for a hash and an address
    box = {"box": None, "pad_edge": False, "header_style": "bold"}
    facts = Table(**box, show_header=False)
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in _facts(status):
        facts.add_row(name, Text(_printable(value), style="bold red" if name == "privacy" else ""))
    peers = Table(**box)
    for name in ("peer", "address", "state", "last seen"):
        peers.add_column(name, overflow="fold")
    for peer in status.get("peers") or []:
        state = Text("up", style="green") if peer.get("up") else Text("down", style="red")
        seen = _ago(peer.get("last_seen_seconds_ago"))
        peers.add_row(Text(_printable(peer.get("name"))), Text(_printable(peer.get("address"))), state, seen)
    console.print(facts)
    if peers.row_count:
        console.print()
        console.print(peers)


def _facts(status: dict[str, Any]) -> list[tuple[str, str]]:
    """Rows of (name, text), those without a value left out."""
    rows = [
        ("party", status.get("party")),
        ("consortium", status.get("consortium")),
        ("identity", status.get("identity")),
        ("state", status.get("state")),
        (
            "privacy",
            "NONE: the noise can be repeated; for development only" if status.get("private") is False else None,
        ),
        ("algorithm", status.get("algorithm")),
        ("activations", _of(status.get("activations"))),
        ("epsilon", _of(status.get("epsilon"), status.get("delta"))),
        ("rho", _of(status.get("rho"))),
        ("epoch", status.get("epoch")),
        ("hops seen", status.get("hops_seen")),
        ("last baton", _baton(status.get("last_baton"))),
        ("unacknowledged", status.get("unacknowledged")),
        ("model sha256", status.get("model_sha256")),
        ("uptime", _span(status.get("uptime_seconds"))),
    ]
    return [(name, str(value)) for name, value in rows if value is not None]


def _of(pair: Any, delta: float | None = None) -> str | None:
    """How much of how much, where there is a limit and it is known.

    >>> _of([0.25, 1.0], 1e-5), _of([0.25, None])
    ('0.25 of 1 (25%) at delta 1e-05', '0.25')
    """
    if not pair:
        return None
    spent, limit = pair
    if limit is None or math.isinf(limit):
        text = _number(spent)
    else:
        share = f" ({min(100, math.floor(100 * spent / limit))}%)" if limit > 0 else ""
        text = f"{_number(spent)} of {_number(limit)}{share}"
    return text if delta is None else f"{text} at delta {delta:g}"


def _baton(baton: dict[str, Any] | None) -> str | None:
    """The last message; of an agent that does not run only its number is known.

    >>> _baton({"seq": 7, "from": "east", "to": "north", "seconds_ago": 3}), _baton({"seq": 7})
    ('number 7, from east, to north, 3 s ago', 'number 7')
    """
    if not baton:
        return None
    parts = [f"number {baton['seq']}", *(f"{way} {baton[way]}" for way in ("from", "to") if baton.get(way))]
    return ", ".join(parts if baton.get("seconds_ago") is None else [*parts, _ago(baton["seconds_ago"])])


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def _span(seconds: float | None) -> str | None:
    """A duration in its two largest units.

    >>> [_span(seconds) for seconds in (0.4, 59.9, 61, 7260, 200_000)]
    ['0 s', '59 s', '1 min 1 s', '2 h 1 min', '2 d 7 h']
    """
    if seconds is None:
        return None
    left, parts = int(seconds), []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        parts.append((count, unit))
    first = next((at for at, (count, _) in enumerate(parts) if count), len(parts))
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count) or "0 s"


def _ago(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    return "just now" if seconds < 1 else f"{_span(seconds)} ago"


def _printable(value: Any) -> str:
    """Names come from a file that others wrote: an escape sequence in one must not reach a terminal."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in str(value))
