"""The paper's complexity tables, measured: iterations, PLF and communication until an accuracy, as the network grows.

Least squares as in the paper's section, (1/n) sum_i 1/2 ||B_i y - b_i||^2. B_i is one of KINDS fixed matrices, each
used equally often, so that the sum's curvature, every agent's and their spread are the same at every n; only the number
of agents and the graph change. There is no noise. Each method's steps are tuned by the same rule, for each graph and
walk, from [mu, L] alone.

    iterations    the paper's "Comp.": rounds of a synchronous method, hops of a baton
    evaluations   gradients or argmins of all agents together: an iteration of one kind is not comparable to one of the
                  other, so both are shown
    PLF           activations of the agent that acts most
    link uses     messages over edges; "paper's rule" multiplies them as its result tables do

A count is the first iteration from which the error stays below the accuracy. The error of a method with one copy per
agent is over all copies, sqrt(mean_i ||x_i - x*||^2) / ||x_0 - x*||; RECAL's is the baton's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from relaydp.algorithm import ALGORITHMS, Algorithm, Turn
from relaydp.data import Records
from relaydp.engine.loop import World, begin, world_of
from relaydp.errors import RelayError
from relaydp.graph import Graph, Route, complete, erdos_renyi, ring, route
from relaydp.paper.experiment import Cell, Effort, Progress
from relaydp.planning.planner import make_plan
from relaydp.planning.quadratic import HOPS as LAB_HOPS
from relaydp.planning.quadratic import LARGE
from relaydp.planning.run_plan import Plan
from relaydp.problem import Problem, least_squares

ACCURACIES = (1e-3, 1e-6)  # relative errors; the last is the tables'
KINDS, RECORDS, DIM = 4, 3, 5  # fewer records than coefficients: the ridge is then exactly the least curvature
RIDGE = 0.1  # sqrt(RIDGE) I below B_i: mu, which is known when steps are tuned
DEGREE = 5  # mean number of neighbours in the general graph: a few draws give a connected graph of 256 agents
TUNED_FOR, MOST_TUNED = 500, 8_000  # activations that steps are tuned for, at first and at most
SWEEPS = 64  # of a relay, or four times as many rounds, between checks of the error
WATCH = 1.1  # a run continues for this many times its count, to check that the error stays below
MOST_ROUNDS, MOST_HOPS = 60_000, 2_000_000  # the limit of a run
DIVERGED = 1e6
GRAPHS = {"complete": "complete graph", "ring": "circular graph", "general": "general graph"}


@dataclass(frozen=True)
class Count(Cell):
    """One method on one graph of one size, with all its walks."""

    graph: str
    agents: int
    algorithm: str
    walk: str
    steps: str
    walks: int


class Method(NamedTuple):
    """A row: the paper's name of a method, and how we run it."""

    title: str
    label: str  # in legends
    printed: str  # its row in the paper's tables
    algorithm: str
    walk: str = ""  # "" for rounds
    steps: str = "tuned"


ROUND_ROBIN = "round-robin"
METHODS = (
    Method("D-ADMM", "D-ADMM", "admm", "d-admm"),
    Method("EXTRA", "EXTRA", "extra", "pg-extra"),
    Method("NIDS", "NIDS", "nids", "nids"),
    Method("RW-ADMM", "RW-ADMM", "rwadmm", "rw-admm", "random"),
    Method("RECAL, random walk", "RECAL walk", "recal", "recal", "random"),
    Method("RECAL, round-robin", "RECAL laps", "recal", "recal", ROUND_ROBIN),
    Method("RECAL, random walk, paper's steps", "walk, paper", "recal", "recal", "random", "paper"),
    Method("RECAL, round-robin, paper's steps", "laps, paper", "recal", "recal", ROUND_ROBIN, "paper"),
)


def cell_of(graph: str, agents: int, method: Method, effort: Effort) -> Count:
    walk = method.walk
    if walk == ROUND_ROBIN:  # a general graph may have no Hamiltonian cycle
        walk = "tour" if graph == "general" else "cyclic"
    return Count(graph, agents, method.algorithm, walk, method.steps, effort.walks if walk == "random" else 1)


def cells_of(effort: Effort) -> Iterator[Count]:
    for agents in effort.sizes:
        for graph in GRAPHS:
            yield from (cell_of(graph, agents, method, effort) for method in METHODS)


# -- the problem and the graphs


@lru_cache(maxsize=16)
def problem_of(agents: int) -> Problem:
    """KINDS matrices in equal numbers, shuffled; b_i = B_i 1 + N(0, I), so that the agents' minimisers differ."""
    kinds = np.random.default_rng(0).normal(size=(KINDS, RECORDS, DIM))
    draw = np.random.default_rng(agents)
    B = kinds[draw.permutation(np.arange(agents) % KINDS)].reshape(-1, DIM)
    return least_squares(Records(B, B.sum(axis=1) + draw.normal(size=len(B))), agents=agents, l2=RIDGE)


def minimiser(problem: Problem) -> np.ndarray:
    """x*: from the normal equations, since all agents have equally many records."""
    B, b = problem.data.X, problem.data.y
    return np.linalg.solve(B.T @ B + len(b) * RIDGE * np.eye(DIM), B.T @ b)


@lru_cache(maxsize=32)
def graph_of(name: str, agents: int) -> Graph:
    if name == "general":
        return erdos_renyi(agents, min(1.0, DEGREE / (agents - 1)))
    return {"complete": complete, "ring": ring}[name](agents)


def chi_of(graph: Graph) -> float:
    """chi = 1 - sigma_m(P), computed as the least eigenvalue above 0 of I - P = D^-1 L.

    The paper calls sigma_m the minimum nonzero eigenvalue of P. On an even ring that is -1 and chi would be 2; only the
    second largest eigenvalue gives its O(1/n^2).
    """
    root = 1.0 / np.sqrt(graph.degree)
    return float(np.linalg.eigvalsh(root[:, None] * graph.laplacian().toarray() * root[None, :])[1])


# -- counting


@partial(jax.jit, static_argnums=0)
def _advance(
    algorithm: Algorithm, world: World, steps: Any, best: Array, states: Any, hops: Array, holders: Array, acts: Array
) -> tuple[Any, Array]:
    """Run every walk through the hops; returns the error after each of them, (walks, hops)."""
    oracle = world.oracle(None)
    scale = jnp.zeros(acts.shape[1:])

    def one(state: Any, holders: Array) -> tuple[Any, Array]:
        def hop(state: Any, now: tuple[Array, Array, Array]) -> tuple[Any, Array]:
            number, holder, acting = now
            turn = Turn(number, holder, holder, acting, scale, None)  # without a mechanism there is no noise
            state, _ = algorithm.step(oracle(turn), steps, state, turn)
            copies = state.baton.x[None] if algorithm.name == "recal" else state.x
            return state, jnp.sqrt(jnp.mean(jnp.sum((copies - best[None]) ** 2, axis=1)))

        return jax.lax.scan(hop, state, (hops, holders, acts))

    return jax.vmap(one)(states, holders)


class Walks:
    """The routes of several walks, computed only as far as needed."""

    def __init__(self, graph: Graph, walk: str, count: int) -> None:
        self.graph, self.walk = graph, walk
        self.keys = [jax.random.split(jax.random.key(seed))[0] for seed in range(count)]  # as `solve` draws them
        self.activations, self.routes, self.length = 64, [], 0

    def reach(self, hops: int) -> list[Route]:
        """The routes, at least this long."""
        while self.length < hops:
            self.activations *= 2
            self.routes = [route(self.graph, self.walk, self.activations, key=key) for key in self.keys]
            self.length = min(len(way) for way in self.routes)
        return self.routes


def first_below(errors: Sequence[float] | np.ndarray, accuracy: float) -> int:
    """The number of iterations until the error stays at or below the accuracy; errors[k] is that after k + 1 of them.

    >>> first_below([0.5, 0.05, 0.2, 0.05, 0.01], 0.1)
    4
    """
    above = np.flatnonzero(~(np.asarray(errors) <= accuracy))
    return int(above[-1]) + 2 if len(above) else 1


def _run(problem: Problem, graph: Graph, plan: Plan, walks: Walks | None, progress: Progress | None) -> dict[str, Any]:
    """The iterations that each walk needs for each accuracy, None if it does not reach it, and why the run ended."""
    world, best = world_of(problem, graph, plan, batched=True), minimiser(problem)
    rows, most = (1, MOST_ROUNDS) if walks is None else (len(walks.keys), MOST_HOPS)
    chunk = 4 * SWEEPS if walks is None else SWEEPS * graph.agents
    state = begin(plan.algorithm, None, world, plan.steps, jnp.zeros(problem.dim))
    states = jax.tree.map(lambda part: jnp.repeat(part[None], rows, axis=0), state)
    everyone = np.ones((chunk, graph.agents), bool)
    last = np.zeros((len(ACCURACIES), rows), int)  # the last iteration above each accuracy
    lost, arrived, done = np.zeros(rows, bool), np.zeros(last.shape, bool), 0
    while done < most:
        hops = np.arange(done, done + chunk, dtype=np.int32)
        holders, acts = np.zeros((rows, chunk), np.int32), everyone
        if walks is not None:
            ways = walks.reach(done + chunk)
            holders = np.stack([way.holder[done : done + chunk] for way in ways])
            acts = ways[0].acts[done : done + chunk]  # on a random walk every holder acts, on a tour there is one route
        states, errors = _advance(plan.algorithm, world, plan.steps, jnp.asarray(best), states, hops, holders, acts)
        errors = np.asarray(errors) / np.linalg.norm(best)
        for row, accuracy in zip(last, ACCURACIES, strict=True):
            found = np.array([first_below(each, accuracy) - 1 for each in errors])
            row[:] = np.where(found > 0, done + found, row)
        done += chunk
        lost = ~(errors[:, -1] < DIVERGED)
        arrived = (done >= WATCH * (last + 1)) & ~lost[None, :]
        if progress is not None:
            progress(min(done, most), most)
        if (arrived[-1] | lost).all():
            break
    counts = [
        [int(k) + 1 if fine else None for k, fine in zip(*row, strict=True)] for row in zip(last, arrived, strict=True)
    ]
    return {"iterations": counts, "diverged": int(lost.sum()), "watched": done}


def measure(cell: Count, progress: Progress | None = None) -> dict[str, Any]:
    """Counts of every walk at each accuracy, with steps, chi and edges.

    Steps are tuned for TUNED_FOR activations; if the run takes more, for four times as many, and so on up to the limit.
    Otherwise methods on a slow network would be tuned for the beginning of a run, and measured at its end.
    """
    problem, graph, method = problem_of(cell.agents), graph_of(cell.graph, cell.agents), ALGORITHMS[cell.algorithm]
    walks = Walks(graph, cell.walk, cell.walks) if method.kind == "relay" else None
    ahead = _looks_ahead(cell, TUNED_FOR)
    while True:
        try:
            plan = _plan(problem, graph, cell, ahead or TUNED_FOR)
        except RelayError as error:
            return {"error": str(error)}
        found = _run(problem, graph, plan, walks, progress)
        counts = {
            f"{accuracy:.0e}": _counts(graph, method, walks, row)
            for accuracy, row in zip(ACCURACIES, found.pop("iterations"), strict=True)
        }
        plf = quantile(counts[key_of()]["plf"], 0.5)
        longer = _looks_ahead(cell, 4 * (ahead or 0))
        if ahead is None or longer is None or longer <= ahead or (plf is not None and plf <= ahead):
            break
        ahead = longer
    return {
        **found,
        "counts": counts,
        "edges": len(graph.edges),
        "chi": chi_of(graph),
        "tuned_for": ahead,
        "steps": {name: float(np.max(np.asarray(value))) for name, value in plan.steps._asdict().items()},
    }


def _plan(problem: Problem, graph: Graph, cell: Count, activations: int) -> Plan:
    return make_plan(
        problem,
        graph,
        algorithm=cell.algorithm,
        mechanism=None,
        budget=None,
        activations=activations,
        walk=cell.walk or "random",
        steps=cell.steps,
        key=jax.random.key(0),
        start=0,
        ratio=None,
        variant=None,
        noise=None,
    )


def _looks_ahead(cell: Count, activations: int) -> int | None:
    """The number of activations that steps are tried for, of those asked for; None if none are tried."""
    if cell.steps != "tuned" or cell.agents > LARGE:
        return None
    return min(activations, LAB_HOPS // cell.agents if cell.walk else MOST_TUNED)


def _counts(graph: Graph, method: Algorithm, walks: Walks | None, iterations: list[int | None]) -> dict[str, Any]:
    """One number per walk for each measure; None if it did not reach the accuracy."""
    out: dict[str, list[int | None]] = {"iterations": iterations, "evaluations": [], "plf": [], "messages": []}
    for row, k in enumerate(iterations):
        if k is None:
            found = None, None, None
        elif walks is None:
            found = k * graph.agents, k, k * 2 * len(graph.edges) * method.exchanges
        else:
            way = walks.routes[row]
            holder, acts = way.holder[:k], way.acts[:k]
            tau = np.bincount(holder[acts], minlength=graph.agents)
            uses = graph.degree[holder[acts]].sum() if method.links == "pushes" else k
            found = int(acts.sum()), int(tau.max()), int(uses)
        for name, value in zip(("evaluations", "plf", "messages"), found, strict=True):
            out[name].append(value)
    return out


def key_of(accuracy: float = ACCURACIES[-1]) -> str:
    return f"{accuracy:.0e}"


def quantile(values: Sequence[int | None], share: float) -> float | None:
    """A quantile in which a walk without an end counts as infinite; None if the quantile is infinite."""
    if not values:
        return None
    known = np.array([math.inf if value is None else value for value in values])
    with np.errstate(invalid="ignore"):
        found = float(np.quantile(known, share))
    return found if math.isfinite(found) else None
