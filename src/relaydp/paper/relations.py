"""The paper's relations around PLF: PLF of a run, its cost, and the visits of a walk.

    (a)  PLF after K iterations   EXTRA: K; TriPD-Dist: max_i p_i K; a relay: the most visits of K
    (b)  theorem 4                epsilon from PLF at a given noise, and the noise that a given epsilon needs
    (c)  lemma 1                  g = (D^-1 L^2 D^-1 + 1 1')^-1 1, the share of hops that each agent holds the baton for

(a) and (c) are counted on the routes of runs; no records are needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from relaydp.graph import RANDOM_WALKS, Graph, complete, erdos_renyi, grid, ring, rounds, route, star
from relaydp.paper.experiment import Block, Cell, Effort, Experiment, Found, Picture, Progress, ResultTable
from relaydp.privacy import (
    Ledger,
    epsilon_exact,
    epsilon_paper,
    published_first_scale,
    published_rho,
    published_scales,
    rho_for,
)
from relaydp.report.curves import Line, Panel, draw_panels

AGENTS = 8
ITERATIONS = (80, 240, 800, 2400)  # K; the paper's tables have 2400 hops
TARGET = 300  # the PLF that the paper pairs with them
MORE = 25  # times as many walks as in the complexity tables: routes take little time
PROBABILITIES = (0.3, 0.5, 1.0)
DELTA, EPSILON = 1e-3, 12.0
RATIOS = (1.0, 1.001, 1.01)
MARKS = (1, 10, 100, 300, 1000, 2000)  # PLFs in tables
PLFS = tuple(int(t) for t in np.union1d(np.geomspace(1, 2000, 45).round(), MARKS))
UNITS = {"alpha": 1.0, "beta": 1.0, "c": 1.0}  # noise is in units of alpha beta c
HOPS = 20_000  # of lemma 1's walks
LEMMA_GRAPHS = ("ring", "star", "grid", "erdos-renyi")


@dataclass(frozen=True)
class Leakage(Cell):
    """PLF after each of ITERATIONS, on `walks` routes; walk "" means rounds."""

    graph: str
    walk: str
    probability: float  # of acting in a round
    walks: int


@dataclass(frozen=True)
class Price(Cell):
    """Theorem 4 at one R, for all PLFS."""

    ratio: float
    delta: float
    epsilon: float  # for the noise that it needs


@dataclass(frozen=True)
class Visits(Cell):
    """The visits of walks to each agent, compared with lemma 1."""

    graph: str
    hops: int
    walks: int


def graph_of(name: str) -> Graph:
    """Eight agents as in the paper's experiments; sixteen if eight show little."""
    return {
        "ring": lambda: ring(AGENTS),
        "complete": lambda: complete(AGENTS),
        "star": lambda: star(AGENTS),
        "grid": lambda: grid(4, 4),
        "erdos-renyi": lambda: erdos_renyi(16, 0.3),
    }[name]()


def leakages(effort: Effort) -> list[Leakage]:
    walks = MORE * effort.walks
    found = [Leakage("ring", "", p, walks if p < 1 else 1) for p in sorted(PROBABILITIES, reverse=True)]
    found += [Leakage(graph, "random", 1.0, walks) for graph in ("ring", "complete", "star")]
    return [*found, Leakage("ring", "cyclic", 1.0, 1)]


def prices() -> list[Price]:
    return [Price(ratio, DELTA, EPSILON) for ratio in RATIOS]


def visits(effort: Effort) -> list[Visits]:
    return [Visits(graph, HOPS, effort.walks) for graph in LEMMA_GRAPHS]


def _cells(effort: Effort) -> Iterator[Cell]:
    yield from leakages(effort)
    yield from prices()
    yield from visits(effort)


def measure(cell: Leakage | Price | Visits, progress: Progress | None = None) -> dict[str, Any]:
    if isinstance(cell, Leakage):
        return measure_leakage(cell, progress)
    return measure_price(cell) if isinstance(cell, Price) else measure_visits(cell, progress)


# -- (a) PLF after K iterations


def holders_of(graph: Graph, walk: str, hops: int, seed: int) -> np.ndarray:
    """The holder, which acts, at each of the first `hops` hops of a route."""
    key = jax.random.key(seed)
    share = float(graph.stationary().max()) if walk in RANDOM_WALKS else 1.0 / graph.agents
    activations = math.ceil(hops * share)
    while len(way := route(graph, walk, activations, key=key)) < hops:
        activations = math.ceil(1.2 * activations) + 1  # the busiest agent is ahead of its share: ask for more
    return way.holder[:hops]


def plf_curve(holders: np.ndarray, agents: int) -> np.ndarray:
    """PLF after 1, 2, ... hops at which the holder acts.

    >>> plf_curve(np.array([0, 1, 0, 1, 1]), 2).tolist()
    [1, 1, 2, 2, 3]
    """
    return (holders[:, None] == np.arange(agents)[None, :]).cumsum(axis=0).max(axis=1)


def measure_leakage(cell: Leakage, progress: Progress | None = None) -> dict[str, Any]:
    """PLF of every walk after each number of iterations; for relays also the hop at which TARGET is reached, and the
    ledger's sum."""
    graph, K = graph_of(cell.graph), max(ITERATIONS)
    at, hit, gap = [], [], 0.0
    for seed in range(cell.walks):
        if cell.walk:
            holders = holders_of(graph, cell.walk, K, seed)
            curve = plf_curve(holders, graph.agents)
            gap = max(gap, _theorem_gap(holders, graph.agents, RATIOS[-1]))
            hit.append(int(np.searchsorted(curve, TARGET)) + 1 if curve[-1] >= TARGET else None)
        else:
            acts = rounds(graph.agents, K, probability=cell.probability, key=jax.random.key(seed)).acts[:K]
            curve = acts.cumsum(axis=0).max(axis=1)
        at.append([int(curve[k - 1]) for k in ITERATIONS])
        if progress is not None:
            progress(seed + 1, cell.walks)
    return {"agents": graph.agents, "plf": at, "hit": hit, "theorem_gap": gap if cell.walk else None}


def _theorem_gap(holders: np.ndarray, agents: int, ratio: float) -> float:
    """Theorem 1 on one route: the largest sum of any agent in a ledger, compared with the sum over j = 1..PLF of
    rho_j."""
    before = _visits_before(holders)
    scales = published_scales(1.0, int(before.max()) + 1, ratio)
    ledger = Ledger(agents, math.inf)
    ledger.charge_many(holders, np.arange(len(holders)), 4.0, scales[before])  # 4 alpha beta c, as in theorem 4
    claimed = published_rho(1.0, ledger.plf, ratio, **UNITS)
    return abs(ledger.rho / claimed - 1.0)


def _visits_before(holders: np.ndarray) -> np.ndarray:
    """The number of earlier hops with the same holder: tau_i(k) - 1."""
    order = np.argsort(holders, kind="stable")
    ranked = holders[order]
    first = np.searchsorted(ranked, ranked)  # the first visit of each holder
    out = np.empty(len(holders), int)
    out[order] = np.arange(len(holders)) - first
    return out


def tripd_bound(probability: float, iterations: int, agents: int) -> float:
    """The approximate value of the largest of n binomials: p K + sqrt(2 p (1 - p) K ln n)."""
    p = probability
    return p * iterations + math.sqrt(2.0 * p * (1.0 - p) * iterations * math.log(agents))


# -- (b) budget and noise


def first_scale(delta: float, epsilon: float) -> float:
    """s_1 with which theorem 4 gives `epsilon` at PLF TARGET and R = 1: the noise at which budgets are compared."""
    return published_first_scale(rho_for(epsilon, delta, "paper"), TARGET, 1.0, **UNITS)


def measure_price(cell: Price) -> dict[str, Any]:
    """epsilon at a fixed s_1, the paper's and the exact one, and the first and last noise that an epsilon needs."""
    sigma = first_scale(cell.delta, cell.epsilon)
    out: dict[str, list[float | None]] = {name: [] for name in ("paper", "exact", "first", "first_exact", "last")}
    for plf in PLFS:
        rho = published_rho(sigma, plf, cell.ratio, **UNITS)
        needed = {
            rule: published_first_scale(rho_for(cell.epsilon, cell.delta, rule), plf, cell.ratio, **UNITS)
            for rule in ("paper", "exact")
        }
        row = {
            "paper": epsilon_paper(rho, cell.delta),
            "exact": epsilon_exact(rho, cell.delta),
            "first": needed["paper"],
            "first_exact": needed["exact"],
            "last": needed["paper"] * cell.ratio ** (-(plf - 1) / 2),
        }
        for name, value in row.items():
            out[name].append(value if math.isfinite(value) else None)
    return {"plf": list(PLFS), "scale": sigma, **out}


# -- (c) lemma 1


def visit_spread(graph: Graph) -> np.ndarray:
    """Standard deviation of each agent's share of visits, times sqrt(hops), for a long walk.

    g_i (2 Z_ii - 1 - g_i) with the fundamental matrix Z = (I - P + 1 g')^-1 (Kemeny and Snell 1960): successive visits
    are not independent, and on a star the hub's are deterministic.
    """
    g, P = graph.stationary(), graph.transition().toarray()
    Z = np.linalg.inv(np.eye(graph.agents) - P + g[None, :])
    return np.sqrt(np.maximum(g * (2.0 * np.diag(Z) - 1.0 - g), 0.0))


def measure_visits(cell: Visits, progress: Progress | None = None) -> dict[str, Any]:
    """Lemma 1's g, d / sum(d), and the visits on the routes."""
    graph = graph_of(cell.graph)
    lemma, g = graph.stationary_of_paper(), graph.stationary()
    shares = []
    for seed in range(cell.walks):
        holders = holders_of(graph, "random", cell.hops, seed)
        shares.append(np.bincount(holders, minlength=graph.agents) / cell.hops)
        if progress is not None:
            progress(seed + 1, cell.walks)
    spread = visit_spread(graph) / math.sqrt(cell.hops)
    random = spread > 1e-6 * g  # the others are deterministic
    z = (np.array(shares) - g)[:, random] / spread[random]
    return {
        "agents": graph.agents,
        "lemma": lemma.tolist(),
        "degrees": g.tolist(),
        "shares": [share.tolist() for share in shares],
        "sampling": (spread / g).tolist(),
        "z_square": float(np.mean(z**2)),
    }


# -- the page


def _leakage_table(found: Found) -> ResultTable:
    rows = []
    for cell in leakages(found.effort):
        outcome = found.of(cell)
        if cell.walk:
            title = f"RECAL, {'round-robin' if cell.walk == 'cyclic' else 'random walk'}, {cell.graph}({AGENTS})"
            says = "K/n"
        else:
            title = f"{'EXTRA; ' if cell.probability == 1 else ''}TriPD-Dist, p = {cell.probability:g}"
            says = "K" if cell.probability == 1 else "p K"
        if "error" in outcome:
            rows.append((title, says, *("-" for _ in ITERATIONS)))
            continue
        texts = []
        for column, K in zip(np.array(outcome["plf"]).T, ITERATIONS, strict=True):
            middle, low, high = np.median(column), column.min(), column.max()
            expected = K / outcome["agents"] if cell.walk else cell.probability * K
            text = f"{middle:g}" if low == high else f"{middle:g} ({low} to {high})"
            text += f"; {expected:g}"
            if not cell.walk and cell.probability < 1:
                text += f"; {tripd_bound(cell.probability, K, outcome['agents']):.0f}"
            texts.append(text)
        rows.append((title, says, *texts))
    note = (
        f"Median and range of PLF over {MORE * found.effort.walks} routes; then the paper's. For TriPD-Dist also "
        "p K + sqrt(2 p (1 - p) K ln n), where the largest of n counts lies: max_i p_i K is the mean of one agent, and "
        "PLF is the maximum over agents. A star's hub holds the baton every other hop, so K/n is not even the mean "
        "there."
    )
    columns = ("", "paper", *(f"K = {K}" for K in ITERATIONS))
    return ResultTable(f"PLF after K iterations, {AGENTS} agents", columns, rows, note)


def _pairing(found: Found) -> str:
    """The paper's pairing of a PLF of 300 with 2400 hops."""
    said = []
    for cell in leakages(found.effort):
        outcome = found.of(cell)
        if not cell.walk or "error" in outcome:
            continue
        hits = [k for k in outcome["hit"] if k is not None]
        last = np.array(outcome["plf"])[:, -1]
        how = "round-robin" if cell.walk == "cyclic" else "random walk"
        when = f"PLF {TARGET} after {np.mean(hits):,.0f} hops" if hits else f"PLF {TARGET} not hit"
        if hits and min(hits) < max(hits):
            when += f" on average ({min(hits):,} to {max(hits):,})"
        if len(hits) < len(outcome["hit"]):
            when += f" in {len(hits)} of {len(outcome['hit'])} walks"
        said.append(f"{how} on {cell.graph}({AGENTS}): {when}, PLF {np.mean(last):.0f} after {ITERATIONS[-1]:,}")
    if not said:
        return ""
    pairing = f"The paper pairs PLF {TARGET} with {ITERATIONS[-1]:,} hops, which is round-robin's pairing."
    return f"{pairing} Counted: {'; '.join(said)}."


def _theorem(found: Found) -> str:
    gaps = [found.of(cell).get("theorem_gap") for cell in leakages(found.effort)]
    known = [gap for gap in gaps if gap is not None]
    if not known:
        return ""
    return (
        "Theorem 1: what a ledger charged along those routes finds for the agent that spent most, and the sum over "
        f"j = 1..PLF of rho_j, differ by {max(known):.0e} of it at most. So the rule for adding up holds. It does "
        "not show that each rho_j is right (docs/privacy.md)."
    )


def _at(outcome: dict[str, Any], name: str, plf: int, form: str = ".3g") -> str:
    if "error" in outcome:
        return "-"
    value = outcome[name][outcome["plf"].index(plf)]
    return "beyond a float" if value is None else format(value, form)


def _budget_table(found: Found) -> ResultTable:
    outcomes = {cell.ratio: found.of(cell) for cell in prices()}
    columns = ["PLF"]
    for ratio in RATIOS:
        columns += [f"R = {ratio:g}: theorem 4", "exact"]
    rows = []
    for plf in MARKS:
        cells = [str(plf)]
        for outcome in outcomes.values():
            cells += [_at(outcome, "paper", plf), _at(outcome, "exact", plf)]
        rows.append(tuple(cells))
    note = (
        f"epsilon at delta {DELTA:g} of the same noise, s_1 = {first_scale(DELTA, EPSILON):.3g} alpha beta c: with it "
        f"theorem 4 gives {EPSILON:g} at PLF {TARGET} and R = 1. Growth is exponential in PLF because R > 1 takes the "
        "noise away exponentially; at R = 1 rho is proportional to PLF. Exact: Gaussian differential privacy."
    )
    return ResultTable("Budget against PLF at fixed first noise", tuple(columns), rows, note)


def _noise_table(found: Found) -> ResultTable:
    outcomes = {cell.ratio: found.of(cell) for cell in prices()}
    columns = ["PLF"]
    for ratio in RATIOS:
        columns += [f"R = {ratio:g}: s_1", "s_1, exact", "last s"]
    rows = []
    for plf in MARKS:
        cells = [str(plf)]
        for outcome in outcomes.values():
            cells += [_at(outcome, "first", plf), _at(outcome, "first_exact", plf), _at(outcome, "last", plf)]
        rows.append(tuple(cells))
    floor = 4.0 / math.sqrt(2.0 * rho_for(EPSILON, DELTA, "paper"))
    note = (
        f"In units of alpha beta c, for epsilon {EPSILON:g} at delta {DELTA:g} by theorem 4; the first noise by exact "
        f"accounting too. Whatever R, no release has noise below 4 / sqrt(2 rho) = {floor:.3g}."
    )
    return ResultTable(f"Noise that epsilon {EPSILON:g} needs as PLF grows", tuple(columns), rows, note)


def _lemma_table(found: Found) -> ResultTable:
    rows = []
    for cell in visits(found.effort):
        outcome = found.of(cell)
        if "error" in outcome:
            rows.append((cell.graph, *("-" for _ in range(6))))
            continue
        g = np.array(outcome["degrees"])
        gap = np.abs(np.array(outcome["lemma"]) - g).max()
        apart = np.abs(np.array(outcome["shares"]) / g - 1.0).max(axis=1)
        rows.append(
            (
                cell.graph,
                str(outcome["agents"]),
                f"{g.min():.4f} to {g.max():.4f}",
                f"{gap:.0e}",
                f"{np.median(apart):.3f} ({apart.min():.3f} to {apart.max():.3f})",
                f"{max(outcome['sampling']):.3f}",
                f"{outcome['z_square']:.2f}",
            )
        )
    columns = (
        "graph",
        "agents",
        "g",
        "lemma 1 less d / sum(d)",
        "largest relative deviation of visits",
        "expected: one standard deviation",
        "mean z^2",
    )
    note = (
        f"{HOPS:,} hops, {found.effort.walks} walks: median and range. The standard deviation is the largest of any "
        "agent's, successive visits being dependent; the largest of many deviations lies one to three of them out. "
        "Mean z^2 is 1 where visits have lemma 1's shares."
    )
    return ResultTable("Lemma 1: how often an agent holds the baton", columns, rows, note)


def _flat(label: str, at: Sequence[float], values: Sequence[float | None]) -> Line:
    return Line(label, at, values, values, values)


def _budget_panels(found: Found) -> list[Panel]:
    panels: list[Panel] = []
    noise: list[Line] = []
    for cell in prices():
        outcome = found.of(cell)
        lines = []
        if "error" not in outcome:
            at = outcome["plf"]
            lines = [_flat("theorem 4", at, outcome["paper"]), _flat("exact", at, outcome["exact"])]
            # the figure shows the largest R only; the others are in the table
            noise = [_flat("first noise", at, outcome["first"]), _flat("last noise", at, outcome["last"])]
        panels.append(Panel(f"R = {cell.ratio:g}", "PLF", "epsilon", lines, "epsilon", log_x=True))
    title = f"R = {RATIOS[-1]:g}, epsilon {EPSILON:g}"
    return [*panels, Panel(title, "PLF", "noise / (alpha beta c)", noise, "noise", log_x=True)]


def _visit_panels(found: Found) -> list[Panel]:
    panels = []
    for cell in visits(found.effort):
        outcome = found.of(cell)
        lines = []
        if "error" not in outcome:
            order = np.argsort(outcome["degrees"], kind="stable")
            places = list(range(1, len(order) + 1))
            shares = np.array(outcome["shares"])[:, order]
            low, middle, high = (band.tolist() for band in np.quantile(shares, [0.0, 0.5, 1.0], axis=0))
            lines = [Line("visits", places, low, middle, high)]
            lines.append(_flat("g of lemma 1", places, np.array(outcome["lemma"])[order].tolist()))
        panels.append(Panel(cell.graph, "agent, by degree", "share of hops", lines, "accuracy"))  # a linear axis
    return panels


def _show(found: Found, folder: Path) -> list[Block]:
    blocks: list[Block] = [_leakage_table(found), _pairing(found), _theorem(found)]
    panels = [_budget_panels(found), _visit_panels(found)]
    if any(panel.lines for row in panels for panel in row):
        draw_panels(folder / "figures" / "plf", panels)
        caption = (
            "Above: the budget that a PLF costs, and the noise that a budget needs. Below: visits, and lemma 1's g."
        )
        blocks.append(Picture("plf", caption))
    blocks += [_budget_table(found), _noise_table(found), _lemma_table(found)]
    return [block for block in blocks if block != ""]


RELATIONS = Experiment(
    name="plf",
    title="PLF, what it costs, and how often the walk comes by",
    printed="Definition of PLF, Theorem 1, Theorem 4, Lemma 1",
    cells=_cells,
    measure=measure,
    show=_show,
)
