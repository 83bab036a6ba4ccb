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
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy import stats

from relaydp.algorithm import ALGORITHMS, Algorithm, Turn
from relaydp.data import Records
from relaydp.engine.loop import World, begin, world_of
from relaydp.errors import RelayError
from relaydp.graph import Graph, Route, complete, erdos_renyi, ring, route
from relaydp.paper.experiment import MISSING, Block, Cell, Effort, Experiment, Found, Picture, Progress, ResultTable
from relaydp.paper.printed import CIRCULAR, COMPLETE, GENERAL
from relaydp.planning.planner import make_plan
from relaydp.planning.quadratic import HOPS as LAB_HOPS
from relaydp.planning.quadratic import LARGE
from relaydp.planning.run_plan import Plan
from relaydp.problem import Problem, least_squares
from relaydp.report.curves import Line, Panel, draw_panels

ACCURACIES = (1e-3, 1e-6)  # relative errors; the last is the tables'
KINDS, RECORDS, DIM = 4, 3, 5  # fewer records than coefficients: the ridge is then exactly the least curvature
RIDGE = 0.1  # sqrt(RIDGE) I below B_i: mu, which is known when steps are tuned
DEGREE = 5  # mean number of neighbours in the general graph: a few draws give a connected graph of 256 agents
TUNED_FOR, MOST_TUNED = 500, 8_000  # activations that steps are tuned for, at first and at most
SWEEPS = 64  # of a relay, or four times as many rounds, between checks of the error
WATCH = 1.1  # a run continues for this many times its count, to check that the error stays below
MOST_ROUNDS, MOST_HOPS = 60_000, 2_000_000  # the limit of a run
DIVERGED = 1e6
LEVEL = 0.15  # powers of n closer than this count as equal: constants and logarithms change a slope by that much
CONFIDENCE = 0.95
GRAPHS = {"complete": "complete graph", "ring": "circular graph", "general": "general graph"}
TABLES = {"complete": "Table I", "ring": "Table II", "general": "Table III"}
MEASURES = {"iterations": "computation", "plf": "plf", "messages": "communication"}  # ours -> printed


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


def _cells(effort: Effort) -> Iterator[Count]:
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
        plf = _quantile(counts[_key()]["plf"], 0.5)
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


# -- powers of n


class Fit(NamedTuple):
    """count = a size^power, by least squares of logarithms; the ends are NaN if two sizes give no interval."""

    power: float
    low: float
    high: float
    sizes: int

    def __str__(self) -> str:
        ends = "" if math.isnan(self.low) else f" ({self.low:.2f} to {self.high:.2f})"
        return f"{self.power:.2f}{ends}"


def fit_power(sizes: Sequence[float], counts: Sequence[float | None]) -> Fit | None:
    """The power of size with which counts grow, and its interval by Student's t; None without two different sizes.

    >>> print(fit_power([4, 8, 16, 32], [3 * 4**2, 3 * 8**2, 3 * 16**2, None]))
    2.00 (2.00 to 2.00)
    """
    known = [(size, count) for size, count in zip(sizes, counts, strict=True) if count is not None]
    if len({size for size, _ in known}) < 2:
        return None
    x, y = np.log(np.array(known, dtype=float)).T
    wide = x - x.mean()
    power = float(wide @ y / (wide @ wide))
    left, freedom = y - y.mean() - power * wide, len(x) - 2
    if not freedom:
        return Fit(power, math.nan, math.nan, len(x))
    spread = math.sqrt(float(left @ left) / freedom / float(wide @ wide))
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * spread
    return Fit(power, power - reach, power + reach, len(x))


def form_value(form: str | int, agents: int, edges: int, chi: float) -> float:
    """A printed order at one graph: a power of n, or a formula of the general table."""
    if isinstance(form, int):
        return float(agents**form)
    return {
        "1": 1.0,
        "n": float(agents),
        "1/chi": 1.0 / chi,
        "m/chi": edges / chi,
        "m^2/(n^2 chi)": edges**2 / (agents**2 * chi),
        "m^2/(n chi)": edges**2 / (agents * chi),
    }[form]


SAME, FASTER, SLOWER = "as printed", "grows faster than printed", "grows more slowly than printed"


def verdict(fit: Fit | None, printed: float) -> str:
    """The comparison of a measured power with the printed one."""
    if fit is None:
        return "too few sizes arrive"
    if abs(fit.power - printed) <= LEVEL:
        return SAME
    if math.isnan(fit.low) or fit.low <= printed <= fit.high:
        return "not decided by these sizes"
    return FASTER if fit.power > printed else SLOWER


# -- the page


def _key(accuracy: float = ACCURACIES[-1]) -> str:
    return f"{accuracy:.0e}"


def _quantile(values: Sequence[int | None], share: float) -> float | None:
    """A quantile in which a walk without an end counts as infinite; None if the quantile is infinite."""
    if not values:
        return None
    known = np.array([math.inf if value is None else value for value in values])
    with np.errstate(invalid="ignore"):
        found = float(np.quantile(known, share))
    return found if math.isfinite(found) else None


def _all(outcome: dict[str, Any], measure: str, accuracy: float = ACCURACIES[-1]) -> list[int | None]:
    return outcome.get("counts", {}).get(_key(accuracy), {}).get(measure, [])


def _median(outcome: dict[str, Any], measure: str, accuracy: float = ACCURACIES[-1]) -> float | None:
    return _quantile(_all(outcome, measure, accuracy), 0.5)


def _why_none(outcome: dict[str, Any], rounds: bool) -> str:
    if "error" in outcome:
        return "-" if outcome["error"] == MISSING else "refused"
    if 2 * outcome["diverged"] >= len(_all(outcome, "plf")):
        return "diverged"
    return f"not in {outcome['watched']:,} {'rounds' if rounds else 'hops'}{_badly_tuned(outcome, math.inf)}"


def _count_text(outcome: dict[str, Any], rounds: bool) -> str:
    """PLF / link uses, or why they are missing."""
    plf, uses = _median(outcome, "plf"), _median(outcome, "messages")
    if plf is None or uses is None:
        return _why_none(outcome, rounds)
    missed = sum(value is None for value in _all(outcome, "plf"))
    text = f"{plf:,.0f} / {uses:,.0f}{_badly_tuned(outcome, plf)}"
    return f"{text} ({missed} walks did not arrive)" if missed else text


def _badly_tuned(outcome: dict[str, Any], plf: float) -> str:
    """A mark if the run took more activations than its steps were tried for."""
    ahead = outcome["tuned_for"]
    return "*" if ahead is not None and ahead < plf else ""


Outcomes = dict[Method, dict[int, dict[str, Any]]]  # of one graph


def _outcomes(found: Found, graph: str) -> Outcomes:
    return {
        method: {n: found.of(cell_of(graph, n, method, found.effort)) for n in found.effort.sizes} for method in METHODS
    }


def _counts_table(graph: str, outcomes: Outcomes, effort: Effort) -> ResultTable:
    rows = [
        (method.title, *(_count_text(outcome, not method.walk) for outcome in mine.values()))
        for method, mine in outcomes.items()
    ]
    columns = ("PLF / link uses", *(f"n = {n}" for n in effort.sizes))
    factors = [m.title for m in METHODS if m.steps == "tuned" and ALGORITHMS[m.algorithm].paper_factor == 2]
    note = (
        f"Until the relative error stays below {ACCURACIES[-1]:g}. Medians of {effort.walks} walks, where there is a "
        f"walk to draw. Iterations are the PLF of {', '.join(m.title for m in METHODS if not m.walk)} and RECAL's link "
        f"uses. The paper's own rule counts every link use of {', '.join(factors)} twice."
    )
    return ResultTable(f"{GRAPHS[graph].capitalize()}: PLF and link uses to reach the error", columns, rows, note)


def _printed(graph: str, method: Method, measure: str) -> str | int:
    rows = {"complete": COMPLETE, "ring": CIRCULAR, "general": GENERAL}[graph]
    return rows[method.printed][MEASURES[measure]]


class ComplexityRow(NamedTuple):
    """One method and measure: the printed and the measured growth."""

    method: Method
    measure: str
    form: str  # as printed
    fit: Fit | None  # against n
    late: Fit | None  # against n, the larger half of the sizes
    against: Fit | None  # against the printed form, if that is not a power of n
    verdict: str


def _rows(graph: str, outcomes: Outcomes) -> list[ComplexityRow]:
    out = []
    for method, mine in outcomes.items():
        for measure in MEASURES:
            counts = {n: _median(outcome, measure) for n, outcome in mine.items()}
            form = _printed(graph, method, measure)
            late = list(counts)[len(counts) // 2 :]
            fit = fit_power(list(counts), list(counts.values()))
            later = fit_power(late, [counts[n] for n in late])
            against, power = None, {"1": 0, "n": 1}.get(str(form), form) if isinstance(form, str) else form
            if isinstance(power, str):  # a formula: its power should be 1
                known = {n: outcome for n, outcome in mine.items() if "error" not in outcome}
                sizes = [form_value(form, n, outcome["edges"], outcome["chi"]) for n, outcome in known.items()]
                against = fit_power(sizes, [counts[n] for n in known])
            words = verdict(fit, power) if isinstance(power, int) else verdict(against, 1)
            shown = f"n^{form}" if isinstance(form, int) else form
            out.append(ComplexityRow(method, measure, shown, fit, later, against, words))
    return out


def _orders_table(graph: str, rows: list[ComplexityRow], effort: Effort) -> ResultTable:
    sizes = effort.sizes
    columns = ["", "", "printed, times ln 1/epsilon", "measured power of n", f"from n = {sizes[len(sizes) // 2]}"]
    general = graph == "general"
    columns += (["power of the printed form"] if general else []) + ["verdict"]

    def text(fit: Fit | None) -> str:
        return "-" if fit is None else str(fit)

    lines = []
    for row in rows:
        cells = [row.method.title, _word(row.measure), row.form, text(row.fit), text(row.late)]
        lines.append((*cells, *([text(row.against)] if general else []), row.verdict))
    note = (
        f"Least squares of log(count) on log(n); {CONFIDENCE:.0%} intervals by Student's t over the sizes that reach "
        f"the error. Powers within {LEVEL:g} of each other are called the same. Computation is iterations, as the "
        "paper counts: rounds of all agents for D-ADMM, EXTRA and NIDS, hops for the relays. A round is n evaluations "
        "and a hop is one: in evaluations, add 1 to the first three."
    )
    if general:
        note += f" Erdos-Renyi graphs of mean degree {DEGREE}; chi is the spectral gap of P; 1 is as printed."
    return ResultTable(f"{TABLES[graph]}, measured: {GRAPHS[graph]}", tuple(columns), lines, note)


def _differences(graph: str, rows: list[ComplexityRow], outcomes: Outcomes) -> str:
    """The differences between the paper and the runs, in a few sentences."""
    recal = [row for row in rows if row.measure == "plf" and row.method.printed == "recal"]
    growing = [f"{row.method.title} (n^{row.fit})" for row in recal if row.verdict == FASTER]
    flat = [row.method.title for row in recal if row.verdict in (SAME, SLOWER)]
    unclear = [row.method.title for row in recal if row.verdict not in (SAME, SLOWER, FASTER)]
    claim = f"On the {GRAPHS[graph]}, a PLF independent of n is"
    parts = [f"{claim} not observed for {'; '.join(growing)}."] if growing else []
    parts += [f"{claim} observed for {'; '.join(flat)}."] if flat else []
    parts += [f"{claim} neither observed nor excluded by these sizes for {'; '.join(unclear)}."] if unclear else []
    for method, mine in outcomes.items():
        sizes = [str(n) for n, outcome in mine.items() if _median(outcome, "plf") is None and outcome.get("diverged")]
        if sizes:
            parts.append(f"{method.title} diverges at n = {', '.join(sizes)}.")
    for words in (FASTER, SLOWER):
        others: dict[str, list[str]] = {}
        for row in rows:
            if row.verdict == words and row.method.printed != "recal":
                others.setdefault(row.method.title, []).append(_word(row.measure))
        if others:
            named = "; ".join(f"{title} ({', '.join(measures)})" for title, measures in others.items())
            parts.append(f"{words.capitalize()}: {named}.")
    return " ".join(parts + _leaders(outcomes))


def _word(measure: str) -> str:
    return MEASURES[measure].replace("plf", "PLF")


def _leaders(outcomes: Outcomes) -> list[str]:
    """The best methods at the largest size."""
    n = max((n for mine in outcomes.values() for n, o in mine.items() if _median(o, "plf") is not None), default=None)
    if n is None:
        return []
    said = []
    for measure, title in (("plf", "PLF"), ("messages", "link uses"), ("evaluations", "evaluations")):
        known = {m.title: value for m, mine in outcomes.items() if (value := _median(mine[n], measure)) is not None}
        first, second = sorted(known, key=lambda name: known[name])[:2] if len(known) > 1 else (*known, *known)[:2]
        said.append(f"least {title}: {first} ({known[first]:,.0f}), then {second} ({known[second]:,.0f})")
    return [f"At n = {n}, {'; '.join(said)}."]


def _lines(outcomes: Outcomes, measure: str) -> list[Line]:
    out = []
    for method, mine in outcomes.items():
        bands = [[_quantile(_all(o, measure), share) for o in mine.values()] for share in (0.25, 0.5, 0.75)]
        if any(value is not None for value in bands[1]):
            out.append(Line(method.label, list(mine), *bands))
    return out


def _accuracy_note(all_outcomes: dict[str, Outcomes]) -> str:
    """Whether counts are proportional to ln 1/epsilon: from the ratio of PLFs at the two accuracies."""
    ratios = []
    for outcomes in all_outcomes.values():
        for mine in outcomes.values():
            pairs = [(_median(o, "plf", ACCURACIES[0]), _median(o, "plf")) for o in mine.values()]
            ratios += [late / early for early, late in pairs if early and late]
    if not ratios:
        return ""
    low, middle, high = np.quantile(ratios, [0.1, 0.5, 0.9])
    wanted = math.log(ACCURACIES[-1]) / math.log(ACCURACIES[0])
    return (
        f"Going from {ACCURACIES[0]:g} to {ACCURACIES[-1]:g} multiplies the PLF by {middle:.2f} (median over methods, "
        f"graphs and sizes; eight in ten between {low:.2f} and {high:.2f}); ln 1/epsilon grows by {wanted:.2f}."
    )


def _tuning_note(sizes: Sequence[int]) -> str:
    """The rule for tuning steps, and its limit."""
    ends = {n: LAB_HOPS // n for n in sizes if LAB_HOPS // n < TUNED_FOR}
    words = (
        f"Tuned steps leave the least worst-case error after {TUNED_FOR:,} activations per agent (more where the run "
        f"takes more, to {MOST_TUNED:,}), on quadratics with curvature in [mu, L], L/mu about {_condition():.0f}, on "
        "the same graph and walk law."
    )
    if ends:
        named = ", ".join(f"{ahead} at n = {n}" for n, ahead in ends.items())
        words += (
            f" The rule changes for large relays: the planner simulates {LAB_HOPS:,} hops, which is {named}. Counts "
            "beyond what their steps were tuned for are marked *: better steps may exist."
        )
    return words


def _condition() -> float:
    return float(problem_of(KINDS).measured_facts().smoothness.max()) / RIDGE


def _show(found: Found, folder: Path) -> list[Block]:
    everything = {graph: _outcomes(found, graph) for graph in GRAPHS}
    intro = (
        f"Least squares, {DIM} coefficients, {RECORDS} records per agent, the same curvatures at every n, no noise. "
        "The error is that of D-ADMM, EXTRA, NIDS and RW-ADMM over all agents' copies, and of RECAL at the baton. "
    )
    blocks: list[Block] = [intro + _tuning_note(found.effort.sizes)]
    panels = []
    for measure, title in (("plf", "PLF"), ("messages", "link uses")):
        panels.append(
            [Panel(GRAPHS[g], "agents", title, _lines(o, measure), measure, log_x=True) for g, o in everything.items()]
        )
    if any(panel.lines for row in panels for panel in row):
        draw_panels(folder / "figures" / "complexity", panels)
        caption = f"What a relative error of {ACCURACIES[-1]:g} takes as the network grows: medians, quartiles shaded. "
        caption += '"Laps" is round-robin; "paper" is RECAL with the paper\'s steps.'
        blocks.append(Picture("complexity", caption))
    for graph, outcomes in everything.items():
        rows = _rows(graph, outcomes)
        blocks += [_orders_table(graph, rows, found.effort), _differences(graph, rows, outcomes)]
        blocks.append(_counts_table(graph, outcomes, found.effort))
    blocks.append(_accuracy_note(everything))
    each = [outcome for graph in everything.values() for mine in graph.values() for outcome in mine.values()]
    refused = dict.fromkeys(outcome["error"] for outcome in each if outcome.get("error", MISSING) != MISSING)
    if refused:
        blocks.append("Refused: " + " ".join(refused))
    return [block for block in blocks if block != ""]


COMPLEXITY = Experiment(
    name="complexity",
    title="Computation, PLF and communication against the number of agents",
    printed="Tables I to III",
    cells=_cells,
    measure=measure,
    show=_show,
)
