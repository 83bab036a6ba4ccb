"""The graph and the baton's path, in a form that a page can play.

    Travels.x, y      the position of each agent, in [0, 1]
    Travels.frames    one per hop of a relay, or per round: who acted, who held the baton, and the hop

The path comes from the run's files: the transcript's senders and receivers; if there is none, or it does not give the
hop of a message, the ledger's releases. It is public and contains no records.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass, field
from typing import Any

import networkx as nx
import numpy as np

from relaydp.algorithm import ALGORITHMS
from relaydp.report.charts import agent_limits
from relaydp.report.sources import Run

MOST_AGENTS = 200  # larger graphs are unreadable; and an agent's number fits in a byte
MOST_EDGES = 3000
MOST_FRAMES = 20_000
STIFF = 60  # up to so many agents springs between all pairs are used; for more, forces between some


@dataclass(frozen=True, eq=False)
class Travels:
    agents: int
    edges: list[list[int]]
    x: list[float]
    y: list[float]
    rounds: bool  # all agents may act in a frame, and there is no baton
    hop: np.ndarray  # (frames,) the hop or round of each frame, from 1
    holder: np.ndarray  # (frames + 1,) the holder in each frame and at the end; empty for rounds
    acts: np.ndarray  # (frames, agents) for rounds, (frames,) for a relay: who used its records
    total: int  # hops of the run
    unit: str  # the name of a frame
    notes: list[str] = field(default_factory=list)
    spent: list[list[float]] | None = None  # different curves of epsilon after 0, 1, 2, ... activations
    curve_of: list[int] | None = None  # the curve of each agent
    limits: list[float] | None = None

    def counts(self) -> np.ndarray:
        """How often each agent acted in all the frames."""
        if self.rounds:
            return self.acts.sum(axis=0)
        return np.bincount(self.holder[:-1][self.acts], minlength=self.agents)

    def to_json(self) -> dict[str, Any]:
        numbered = bool((self.hop == np.arange(1, len(self.hop) + 1)).all())
        return {
            "agents": self.agents,
            "edges": self.edges,
            "x": [round(value, 4) for value in self.x],
            "y": [round(value, 4) for value in self.y],
            "rounds": self.rounds,
            "frames": len(self.hop),
            "total": self.total,
            "unit": self.unit,
            "hop": None if numbered else self.hop.tolist(),
            "holder": _base64(self.holder.astype(np.uint8)),
            "acts": None if self.acts.all() else _base64(np.packbits(self.acts.ravel(), bitorder="little")),
            "spent": self.spent,
            "curve_of": self.curve_of,
            "limits": self.limits,
        }


def _base64(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()


def travels(run: Run) -> Travels | str | None:
    """The run's path; a sentence if it cannot be shown; None if nothing was recorded."""
    result = run.result
    if result.agents > MOST_AGENTS:
        return f"The graph has {result.agents:,} agents. Up to {MOST_AGENTS} can be drawn, so it is not shown."
    edges = result.config["graph"]["edges"]
    found = _relay(run) if result.walk is not None else _rounds(run)
    if found is None:
        return None
    hop, holder, acts, notes = found
    if len(hop) > MOST_FRAMES:
        what = "hops" if result.walk is not None else "rounds"
        notes.append(f"Only the first {MOST_FRAMES:,} of {len(hop):,} {what} can be played.")
        hop, acts = hop[:MOST_FRAMES], acts[:MOST_FRAMES]
        holder = holder[: MOST_FRAMES + 1]
    if len(edges) > MOST_EDGES:
        notes.append(f"The graph has {len(edges):,} edges. They are too many to be drawn.")
    x, y = layout(result.agents, edges)
    spent, curve_of = _curves(run)
    return Travels(
        agents=result.agents,
        edges=edges if len(edges) <= MOST_EDGES else [],
        x=x,
        y=y,
        rounds=result.walk is None,
        hop=hop,
        holder=holder,
        acts=acts,
        total=result.hops,
        unit="hop" if result.walk is not None else "round",
        notes=notes,
        spent=spent,
        curve_of=curve_of,
        limits=None if spent is None else agent_limits(run),
    )


Found = tuple[np.ndarray, np.ndarray, np.ndarray, list[str]] | None  # hop, holder, acts, notes


def _releases(run: Run) -> tuple[np.ndarray, np.ndarray] | None:
    """(hop, agent) of every release; also of the published mechanism, whose ledger has no guarantee but exists."""
    if run.result.ledger is None or not len(run.result.ledger):
        return None
    releases = run.result.ledger.to_json()["releases"]
    return np.asarray(releases["hop"], np.int64), np.asarray(releases["agent"], np.int64)


def _relay(run: Run) -> Found:
    result, sent, releases = run.result, run.result.transcript, _releases(run)
    method = ALGORITHMS.get(result.algorithm)
    # Only with one message per hop does a message's place give its hop. Lazy walks may send none, and pushes send
    # several.
    if sent is not None and len(sent) == result.hops and len(sent) and (method is None or method.links == "hop"):
        holder = np.append(sent.sender, sent.receiver[-1])
        acts = np.zeros(len(sent), bool)
        if releases is not None:
            acts[releases[0]] = True
        else:
            acts[_acting(run, holder[:-1])] = True
        return np.arange(1, len(sent) + 1), holder, acts, []
    if releases is None:
        return None
    order = np.argsort(releases[0], kind="stable")
    hop, agent = releases[0][order], releases[1][order]
    notes = []
    if len(hop) < result.hops:
        notes.append(f"Shown are the {len(hop):,} of {result.hops:,} hops at which the holder used its records.")
    return hop + 1, np.append(agent, agent[-1]), np.ones(len(hop), bool), notes


def _acting(run: Run, holder: np.ndarray) -> np.ndarray:
    """At which hops of a run without a ledger the holder acted: at every visit, or the first in each lap."""
    result = run.result
    if result.walk not in ("cyclic", "tour"):
        return np.arange(len(holder))
    lap = max(1, round(result.plan["hops"] / result.plan["activations"]))
    key = (np.arange(len(holder)) // lap) * result.agents + holder
    return np.unique(key, return_index=True)[1]


def _rounds(run: Run) -> Found:
    result, releases, sent = run.result, _releases(run), run.result.transcript
    empty = np.zeros(0, np.int64)
    if releases is None and (sent is None or not len(sent)):
        return None
    acts = np.zeros((result.hops, result.agents), bool)
    if releases is not None:
        acts[releases] = True
        return np.arange(1, result.hops + 1), empty, acts, []
    assert sent is not None
    # Within a round senders are listed in order, so a new round starts where their numbers decrease.
    started = np.cumsum(np.append(0, np.diff(sent.sender) < 0))
    if started[-1] + 1 != result.hops:
        return None  # rounds in which few or none sent: the list does not separate them
    acts[started, sent.sender] = True
    return np.arange(1, result.hops + 1), empty, acts, []


def _curves(run: Run) -> tuple[list[list[float]] | None, list[int] | None]:
    """The agents' spending by activation, each different curve once."""
    if run.spending is None:
        return None, None
    known: dict[tuple[float, ...], int] = {}
    of = []
    for mine in run.spending:
        # The page prints four digits, so agents that differ in the eighth share a curve.
        curve = tuple(float(f"{value:.4g}") for value in [0.0, *mine.epsilon[:MOST_FRAMES].tolist()])
        of.append(known.setdefault(curve, len(known)))
    return [list(curve) for curve in known], of


def layout(agents: int, edges: list[list[int]]) -> tuple[list[float], list[float]]:
    """The position of each agent, in [0, 1] x [0, 1]: the same graph gives the same picture.

    >>> x, y = layout(4, [[0, 1], [1, 2], [2, 3], [0, 3]])
    >>> round(x[0], 2), round(y[0], 2)
    (0.5, 0.0)
    """
    graph = nx.Graph()
    graph.add_nodes_from(range(agents))
    graph.add_edges_from((i, j) for i, j in edges)
    around = {i: (math.sin(math.tau * i / agents), -math.cos(math.tau * i / agents)) for i in range(agents)}
    ring = len(edges) == agents and all(graph.has_edge(i, (i + 1) % agents) for i in range(agents))
    if agents <= 3 or ring or len(edges) == agents * (agents - 1) // 2:
        at = around
    elif agents <= STIFF:
        at = nx.kamada_kawai_layout(graph, pos=around)
    else:
        at = nx.spring_layout(graph, seed=0, iterations=100)
    points = np.array([at[i] for i in range(agents)], dtype=float)
    low, span = points.min(axis=0), np.ptp(points, axis=0)
    span = np.where(span < 1e-9, 1.0, span)
    shares = np.where(np.ptp(points, axis=0) < 1e-9, 0.5, (points - low) / span)
    return shares[:, 0].tolist(), shares[:, 1].tolist()
