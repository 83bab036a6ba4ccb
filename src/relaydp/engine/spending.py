"""What a run had spent, along the way: each agent's epsilon after each of its releases."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from relaydp.privacy import Ledger, epsilon_exact, epsilon_paper
from relaydp.result import Result


class Spending(NamedTuple):
    """One agent's releases: the hop of each, and the epsilon of all up to and with it."""

    hop: np.ndarray
    epsilon: np.ndarray


KINDS = ("gaussian", "pure")  # releases that have a price of their own while an agent makes no others
MOST_SUMS = 5000  # different sums of rho that are turned into epsilon one by one; 80 microseconds each


def agents_spending(ledger: Ledger, delta: float) -> list[Spending]:
    """How every agent's epsilon grew, from the ledger of a sound run.

    Gaussian releases are priced exactly. Where others are among them the exact formula would promise too much (see
    privacy/ledger.py): those are priced by zCDP, or by adding up epsilon_0 where all are pure and that is less.
    """
    releases = ledger.to_json()["releases"]
    columns = {name: np.asarray(releases[name]) for name in ("agent", "hop", "rho", "epsilon", "kind")}
    order = np.argsort(columns["agent"], kind="stable")
    ends = np.cumsum(np.bincount(columns["agent"].astype(np.int64), minlength=ledger.agents))[:-1]
    parts = {name: np.split(column[order], ends) for name, column in columns.items()}
    sums = [np.cumsum(mine) for mine in parts["rho"]]
    gaussian, pure = ([np.logical_and.accumulate(kinds == name) for kinds in parts["kind"]] for name in KINDS)
    exact = _priced([mine[so_far] for mine, so_far in zip(sums, gaussian, strict=True)], delta, epsilon_exact)
    other = _priced([mine[~so_far] for mine, so_far in zip(sums, gaussian, strict=True)], delta, epsilon_paper)
    found = []
    for agent, each in enumerate(parts["epsilon"]):
        basic = np.where(pure[agent], np.cumsum(each), np.inf)[~gaussian[agent]]
        found.append(np.concatenate([exact[agent], np.minimum(other[agent], basic)]))
    return [Spending(hop, epsilon) for hop, epsilon in zip(parts["hop"], found, strict=True)]


def _priced(sums: list[np.ndarray], delta: float, price: Callable[[float, float], float]) -> list[np.ndarray]:
    """The epsilon of every sum of rho. Of very many, some are priced and the others take the next larger one's."""
    known = np.unique(np.concatenate(sums)) if sums else np.zeros(0)
    if not len(known):
        return [np.zeros(0) for _ in sums]
    if len(known) > MOST_SUMS:
        known = known[np.linspace(0, len(known) - 1, MOST_SUMS).round().astype(int)]
    worth = np.array([price(rho, delta) for rho in known.tolist()])
    return [worth[np.searchsorted(known, mine)] for mine in sums]


def epsilon_spent(result: Result, planned: bool = False) -> list[float] | None:
    """The epsilon spent at each of the trace's points, the most of any agent; None where no guarantee stands behind.

    planned   also of a simulation, which spends nothing: what a private run of its plan would have spent
    """
    stands = result.private or (planned and result.simulation)
    if not stands or result.ledger is None or result.delta is None or result.trace is None:
        return None
    most = np.zeros(len(result.trace))
    for mine in agents_spending(result.ledger, result.delta):
        grown = np.concatenate([[0.0], mine.epsilon])
        most = np.maximum(most, grown[np.searchsorted(mine.hop, result.trace.hop, side="left")])
    return most.tolist()
