"""Tests of the noise: the first layer of an audit.

An auditor who knows the records can compute every release without its noise, and so the noise itself, exactly.
Distinguishing two data sets takes a hundred thousand runs to show that noise is a tenth too small; testing the noise
takes a few dozen. The runs are those of `solve` (`engine.loop.run`: its scan, its oracle, its kernels, and its noise,
secret or from seeds), on several data sets with other canaries. The part of each release that the messages reveal is
compared with a clipped mean that is computed here, in NumPy, record by record:

    z = (released - clipped mean) / scale                 standard normal, if the claim holds, in every coordinate

For noise in the objective, of density exp(-|e|/scale), the length is mapped to a Gaussian vector's: z is normal again.
Where a run prepares, its first release is compared with the moments of `problem.coordinates`, and the others with
clipped means in the coordinates that came of it, both computed here.

The tests of the z, for each release as well as for all together, each with a part of the error probability
(Bonferroni):

    price      the scales, charged with 2c/m as in the proof, cost at most the claim           (no noise: exact)
    values     what the engine computes before noise is the clipped mean, and no canary moves it further than was
               charged
    size       every release has the variance that is charged for; and so have all together
    centre     every release has mean 0; and so has every agent's, on every data set
    releases   no two releases of a run are correlated, nor releases at a distance of k
    runs       no two runs have correlated noise, and no noise vector occurs twice anywhere
    shape      coordinates are uncorrelated, and normal (Kolmogorov and Smirnov)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special, stats

from relaydp.algorithm.base import OBJECTIVE
from relaydp.arrays import placed
from relaydp.attack.inference import inference_for, read_messages
from relaydp.attack.threat import Guess, Known
from relaydp.auditing.coalition import addition, closing_hops, honest_first, honest_laps, honest_of, left_behind
from relaydp.engine.loop import run, world_of
from relaydp.engine.preparation import paced, start_of
from relaydp.engine.progress import Progress
from relaydp.graph import Graph, Rounds
from relaydp.oracle.randomness import Secret, Simulated, Source
from relaydp.planning.run_plan import Plan
from relaydp.privacy import epsilon_exact
from relaydp.privacy.objective import bend
from relaydp.problem import Problem
from relaydp.problem.coordinates import KEPT, Coordinates
from relaydp.problem.loss import CustomLoss

NUMBERS = 40_000  # coordinates of noise to test, all runs together
FEWEST, MOST = 32, 256  # runs
POINTS = 24  # points at which the engine's clipped mean is compared with ours
ROUNDING = 1e-8  # between two computations of one mean, relative to the clip
AT_ONCE = 2**20  # gradients of records computed at a time
COORDINATES = 64  # coordinates whose correlations are tested
SAME = 1e-6  # noise vectors that agree to this, in units of their scale, count as equal


@dataclass(frozen=True)
class Check:
    """One test of the noise, or of the value that it is added to."""

    name: str
    doubt: float  # the probability that a sound mechanism does as badly, for all tests of the check
    passed: bool
    finding: str  # the worst result


class Seen(NamedTuple):
    """Noise of many runs in units of its scale. A row of `z` is a run; all releases have as many numbers."""

    z: np.ndarray  # (runs, releases, dim)
    data: np.ndarray  # (runs,) which data set
    agent: np.ndarray  # (releases,)
    hop: np.ndarray  # (releases,)


# -- clipped means, computed without the engine


def clipped_means(
    problem: Problem, agents: np.ndarray, points: np.ndarray, clip: float | None, change: Coordinates | None = None
) -> np.ndarray:
    """(1/m_i) sum_j clip_c(grad loss_ij(y)) for each row's agent i and point y: every record's gradient separately.

    `change` asks in other coordinates: for the same of records P a_j, each computed by itself.
    """
    agent_records = problem.agent_records.dense()
    X, y, start = np.asarray(agent_records.X), np.asarray(agent_records.y), np.asarray(agent_records.start)
    found = np.zeros(points.shape)
    for i in np.unique(agents):
        m = int(problem.split.sizes[i])
        rows, own = np.flatnonzero(agents == i), slice(int(start[i]), int(start[i]) + m)
        for some in np.array_split(rows, -(-len(rows) * m // AT_ONCE)):
            found[some] = _means(problem, X[own], y[own], points[some], clip, change)
    return found


def mean_moments(problem: Problem) -> np.ndarray:
    """(1) of `problem.coordinates` without noise, for every agent: record by record."""
    bound, agent_records = problem.features_bound(), problem.agent_records.dense()
    assert bound is not None and not isinstance(problem.loss, CustomLoss)
    X, y = np.asarray(agent_records.X), np.asarray(agent_records.y)
    kinds, found = (-1, 1) if problem.loss.outputs == 1 else range(problem.loss.outputs), []
    for first, m in zip(np.asarray(agent_records.start), problem.split.sizes, strict=True):
        A, b = X[first : first + m], y[first : first + m]
        sums = [A[b == kind].sum(axis=0) / m for kind in kinds]
        shares = [bound * (b == kind).mean() for kind in kinds]
        found.append(np.concatenate([*sums, [(A**2).sum() / (2.0 * bound * m)], shares]))
    return np.array(found)


def _matrix(change: Coordinates, width: int) -> np.ndarray:
    """P, from its definition."""
    u = np.asarray(change.direction)
    return float(change.length) * (np.eye(width) - (1.0 - KEPT) * np.outer(u, u))


def _means(
    problem: Problem, X: np.ndarray, y: np.ndarray, points: np.ndarray, clip: float | None, change: Coordinates | None
) -> np.ndarray:
    loss = problem.loss
    if isinstance(loss, CustomLoss):
        each = np.asarray(jax.jit(jax.vmap(jax.vmap(jax.grad(loss.fn), (None, 0, 0)), (0, None, None)))(points, X, y))
        return (each * _factor(np.sqrt((each**2).sum(axis=2)), clip)[:, :, None]).mean(axis=1)
    A = np.column_stack([X, np.ones(len(X))]) if problem.intercept else X
    A = A if change is None else A @ _matrix(change, A.shape[1])
    z = np.einsum("jk,pko->pjo", A, points.reshape(len(points), A.shape[1], loss.outputs))
    slope = np.asarray(jax.vmap(lambda row: loss.slopes(row, placed(y)))(placed(z)))
    norms = np.sqrt((A**2).sum(axis=1))[None, :] * np.sqrt((slope**2).sum(axis=2))
    pull = slope * _factor(norms, clip)[:, :, None] / len(X)
    return np.einsum("jk,pjo->pko", A, pull).reshape(len(points), -1)


def _factor(norms: np.ndarray, clip: float | None) -> np.ndarray:
    return np.ones_like(norms) if clip is None else np.minimum(1.0, clip / np.maximum(norms, np.finfo(float).tiny))


# -- runs


def runs_needed(releases: int, dim: int) -> int:
    """The number of runs to test, all data sets together: enough for power, and few enough to take seconds."""
    return int(np.clip(-(-NUMBERS // max(1, releases * dim)), FEWEST, MOST))


def look(
    problems: Sequence[Problem],
    graph: Graph,
    plan: Plan,
    known: Known,
    source: Source,
    progress: Progress | None = None,
) -> tuple[list[Seen], Guess, Coordinates | None]:
    """The noise of many runs of `solve`'s own loop, what one of them shows, and its coordinates; no noise if a prox
    hides some of it."""
    x0, inference = np.zeros(plan.facts.dim), inference_for(plan.algorithm.name, known.noisy)
    read = jax.jit(lambda start, steps, sent: read_messages(known._replace(x0=start, steps=steps), sent, inference))
    count = runs_needed(int(plan.route.acts.sum()), plan.facts.dim)
    guesses, outcomes, data = [], [], np.arange(count) % len(problems)
    for number, which in enumerate(data.tolist()):
        outcome = run(problems[which], graph, plan, x0, _source(source, number), True)
        start = known.x0 if outcome.coordinates is None else start_of(plan, outcome.coordinates, known.x0)
        sent = {name: placed(part) for name, part in outcome.sent._asdict().items()}
        guesses.append(jax.tree.map(np.asarray, read(start, paced(known.steps, outcome.coordinates), sent)))
        outcomes.append(outcome._replace(sent=None))
        if progress is not None:
            progress((number + 1) * len(plan.route), count * len(plan.route))
    first, change = guesses[0], outcomes[0].coordinates
    rows = np.flatnonzero(first.read)
    agent, hop = first.agent[rows], first.hop[rows] + plan.preparing
    if not all(guess.exact[rows].all() for guess in guesses):
        return [], first, change
    own = plan.lattice_scales() if _on_lattice(plan, source) else plan.scales
    scales = plan.hop_scales(own)
    s = scales[hop] if scales.ndim == 1 else scales[hop, agent]
    z = np.stack([guess.gradient[rows] for guess in guesses])
    points = np.stack([guess.point[rows] for guess in guesses])
    alike = [[number] for number in range(count)]  # runs with the same data and coordinates
    if change is None:
        alike = [np.flatnonzero(data == which).tolist() for which in range(len(problems))]
    for runs in alike:
        where, others = points[runs].reshape(-1, points.shape[2]), outcomes[runs[0]].coordinates
        means = clipped_means(problems[data[runs[0]]], np.tile(agent, len(runs)), where, plan.clip, others)
        z[runs] -= means.reshape(z[runs].shape)
    z /= s[None, :, None]
    seen = [Seen(_as_normal(z) if plan.variant == OBJECTIVE else z, data, agent, hop)]
    if change is not None:
        unit = plan.facts.clip / _features_bound(problems[0])
        means = [unit * mean_moments(problem) for problem in problems]
        early = np.stack([outcome.released - means[which] for outcome, which in zip(outcomes, data, strict=True)])
        early, who = early / own[0][None, :, None], np.arange(plan.facts.agents)
        then = np.zeros_like(who)
        # the first release by itself, with all its numbers; and with the others, as many as they have, since noise that
        # was used in both would show in neither
        both = np.concatenate([early[:, :, : z.shape[2]], z], axis=1)
        seen = [
            Seen(early, data, who, then),
            Seen(both, data, np.concatenate([who, agent]), np.concatenate([then, hop])),
        ]
    return seen, first, change


def look_at_sums(
    problems: Sequence[Problem],
    graph: Graph,
    plan: Plan,
    known: Known,
    source: Source,
    victim: int,
    progress: Progress | None = None,
) -> tuple[list[Seen], np.ndarray, Coordinates | None]:
    """The same where agents are seen in sums only: the noise that the worst coalition with an eye on `victim` is left
    with, a release a lap, and the points where one run asked."""
    honest = honest_of(plan, victim)
    who, behind = np.flatnonzero(honest), left_behind(plan, honest)
    x0, count = np.zeros(plan.facts.dim), runs_needed(plan.activations, plan.facts.dim)
    read = jax.jit(
        lambda start, steps, sent, added: honest_laps(
            plan, problems[0].terms, jax.tree.map(jnp.asarray, steps), start, sent, added, honest
        )
    )
    data, rows, early, points, change = np.arange(count) % len(problems), [], [], np.zeros((0, plan.facts.dim)), None
    for number, which in enumerate(data.tolist()):
        problem = problems[which]
        outcome = run(problem, graph, plan, x0, _source(source, number), True, None, addition)
        change = outcome.coordinates
        start = known.x0 if change is None else start_of(plan, change, known.x0)
        laps = read(start, paced(known.steps, change), outcome.sent, outcome.inside)
        points = np.asarray(laps.point)
        where = np.repeat(points, len(who), axis=0)
        means = clipped_means(problem, np.tile(who, len(points)), where, plan.clip, change)
        rows.append(np.asarray(laps.total) - means.reshape(len(points), len(who), -1).sum(axis=1))
        if outcome.added is not None:
            assert outcome.released is not None
            summed = honest_first(plan, outcome.released[0], outcome.added, honest)
            unit = plan.facts.clip / _features_bound(problem)
            early.append(summed - unit * mean_moments(problem)[who].sum(axis=0))
        if progress is not None:
            progress((number + 1) * len(plan.route), count * len(plan.route))
    first_lap = int(plan.preparing > 0)
    z = np.stack(rows) / behind[first_lap:, None]
    hop, agent = closing_hops(plan) + plan.preparing, np.full(len(points), victim)
    if not early:
        return [Seen(z, data, agent, hop)], points, change
    before = np.stack(early)[:, None, :] / behind[0]
    both = np.concatenate([before[:, :, : z.shape[2]], z], axis=1)
    at, whose = np.array([plan.preparing - 1]), np.array([victim])
    return (
        [Seen(before, data, whose, at), Seen(both, data, np.append(whose, agent), np.append(at, hop))],
        points,
        change,
    )


def _features_bound(problem: Problem) -> float:
    bound = problem.features_bound()
    assert bound is not None
    return bound


def _source(source: Source, number: int) -> Source:
    """A seed for every run of a simulation; the same public walk for all private runs, whose noise must differ."""
    if isinstance(source, Secret):
        return source
    return Simulated(int(np.random.SeedSequence([source.seed, number]).generate_state(1, np.uint64)[0] >> 1))


def _on_lattice(plan: Plan, source: Source) -> bool:
    return isinstance(source, Secret) and plan.mechanism == "gradient"


def _as_normal(e: np.ndarray) -> np.ndarray:
    """Vectors of density exp(-|e|), length Gamma(dim), as Gaussian ones: lengths with the same probability below."""
    dim, length = e.shape[-1], np.sqrt((e**2).sum(axis=-1))
    below, above = special.gammainc(dim, length), special.gammaincc(dim, length)
    half = np.where(below < 0.5, special.gammaincinv(dim / 2, below), special.gammainccinv(dim / 2, above))
    wanted = np.sqrt(2.0 * half)  # |z|^2 / 2 is Gamma(dim / 2)
    return e * np.where(length > 0, wanted / np.maximum(length, np.finfo(float).tiny), 0.0)[..., None]


# -- tests without noise


def check_price(plan: Plan, problem: Problem, graph: Graph, claimed: float, delta: float) -> Check:
    """The cost of the plan's scales by the formulas of the proof: with 2c/m, not with the plan's sensitivity."""
    if plan.mechanism == "objective":
        G, K, modulus = problem.objective_bounds()
        kappa = plan.algorithm.curvature(plan.steps, graph, plan.activations)  # type: ignore[misc]
        moved = 2.0 * G / (plan.facts.sizes[None, :] * plan.scales)
        pure = moved + np.log1p(bend(K, plan.facts.sizes[None, :].astype(float), modulus + np.asarray(kappa)))
        rho = (pure**2 / 2.0).sum(axis=0)
        cost = float(np.minimum(pure.sum(axis=0), rho + 2.0 * np.sqrt(rho * math.log(1.0 / delta))).max())
    else:
        moved = 2.0 * plan.facts.clip / (plan.facts.sizes[None, :] * _worst_noise(plan))
        cost = epsilon_exact(float((moved**2 / 2.0).sum(axis=0).max()), delta)
    fine = cost <= claimed * (1.0 + 1e-6)
    return Check("price", 0.0 if not fine else 1.0, fine, f"scales that cost epsilon {cost:.4g}, {claimed:.4g} claimed")


def _worst_noise(plan: Plan) -> np.ndarray:
    """The noise beside each agent's records: its own, or what the worst coalition is left with of a lap with as few
    agents as there may be."""
    if not plan.sums:
        return plan.scales
    assert plan.trust is not None
    squares, others = plan.scales**2, plan.trust.quorum - plan.trust.collusion - 1
    left = [
        squares[:, i] + np.sort(np.delete(squares, i, axis=1), axis=1)[:, :others].sum(axis=1)
        for i in range(plan.facts.agents)
    ]
    return np.sqrt(np.stack(left, axis=1))


def check_values(
    problems: Sequence[Problem], graph: Graph, plan: Plan, asked: np.ndarray, change: Coordinates | None = None
) -> Check:
    """The engine's values before noise, at points where a run asked and far from them, on every data set, and in the
    coordinates of this run."""
    clip, dim, agents = plan.clip, plan.facts.dim, plan.facts.agents
    seen = asked[np.linspace(0, len(asked) - 1, min(POINTS // 2, len(asked))).astype(int)]
    far = np.random.default_rng(0).normal(size=(POINTS // 2, dim)) * np.logspace(-1, 2, POINTS // 2)[:, None]
    points = np.concatenate([np.zeros((1, dim)), seen, far])
    who = np.tile(np.arange(agents), len(points))
    where = np.repeat(points, agents, axis=0)
    rounds = isinstance(plan.route, Rounds)
    found, worst, moved = [], 0.0, 0.0
    for problem in problems:
        agent_records = world_of(problem, graph, plan).agent_records
        if change is not None:
            agent_records = agent_records.in_coordinates(jax.tree.map(placed, change))
        ours = clipped_means(problem, who, where, clip, change)
        theirs = np.asarray(_values(agent_records, placed(points), None if clip is None else placed(clip), rounds))
        unit = clip if clip is not None else max(1.0, float(np.abs(ours).max()))
        worst = max(worst, _largest(np.abs(theirs.reshape(ours.shape) - ours).max() / unit))
        found.append(theirs.reshape(len(points), agents, dim))
    for one in range(len(found)):
        for two in range(one):
            apart = np.sqrt(((found[one] - found[two]) ** 2).sum(axis=2))
            moved = max(moved, _largest((apart / plan.sensitivity[None, :]).max()))
    if change is not None:
        off, far_off = _moments_apart(problems, graph, plan)
        worst, moved = max(worst, off), max(moved, far_off)
    fine = worst <= ROUNDING and moved <= 1.0 + ROUNDING
    what = (
        f"{worst:.2g} clips between the engine's mean and a clipped one; a record moves it by {moved:.4g} of the charge"
    )
    return Check("values", 1.0 if fine else 0.0, fine, what)


def _moments_apart(problems: Sequence[Problem], graph: Graph, plan: Plan) -> tuple[float, float]:
    """The same two numbers of the first release."""
    bound = _features_bound(problems[0])
    theirs = [np.asarray(world_of(each, graph, plan).agent_records.moments(placed(bound))) for each in problems]
    worst = max(np.abs(mine - mean_moments(each)).max() for mine, each in zip(theirs, problems, strict=True)) / bound
    unit = plan.facts.clip / bound
    apart = [unit * np.sqrt(((one - two) ** 2).sum(axis=1)) for k, one in enumerate(theirs) for two in theirs[:k]]
    return _largest(worst), _largest(max((each / plan.sensitivity).max() for each in apart)) if apart else 0.0


def _largest(number: Any) -> float:
    return float(number) if np.isfinite(number) else math.inf


@partial(jax.jit, static_argnums=3)
def _values(agent_records: Any, points: jax.Array, clip: jax.Array | None, rounds: bool) -> jax.Array:
    agents = jnp.arange(agent_records.size.shape[0], dtype=jnp.int32)
    if rounds:
        return jax.lax.map(lambda y: agent_records.gradients(jnp.broadcast_to(y, (len(agents), y.size)), clip), points)
    return jax.lax.map(lambda y: jax.lax.map(lambda i: agent_records.gradient(i, y, clip), agents), points)


# -- tests of the noise


def check_noise(seen: Seen, doubt: float) -> list[Check]:
    """All tests, with error probability `doubt` together: a sound mechanism fails with at most that probability."""
    share = doubt / len(QUESTIONS)
    checks = []
    for name, ask in QUESTIONS.items():
        chance, finding = ask(seen) if np.isfinite(seen.z).all() else (0.0, "a release that is not a number")
        checks.append(Check(name, min(1.0, chance), chance > share, finding))
    return checks


def _worst(chances: np.ndarray) -> tuple[float, int]:
    """Bonferroni over tests: the smallest p-value times their number, and its test."""
    at = int(np.argmin(chances))
    return float(chances.flat[at]) * chances.size, at


def _two_sided(squares: np.ndarray, count: int) -> np.ndarray:
    return 2.0 * np.minimum(stats.chi2.cdf(squares, count), stats.chi2.sf(squares, count))


def _size(seen: Seen) -> tuple[float, str]:
    runs, _, dim = seen.z.shape
    squares = (seen.z**2).sum(axis=(0, 2))
    each, at = _worst(_two_sided(squares, runs * dim))
    pooled = float(_two_sided(squares.sum(), seen.z.size))
    ratio = math.sqrt(squares[at] / (runs * dim))
    every = math.sqrt(squares.sum() / seen.z.size)
    text = f"agent {seen.agent[at]}'s release at hop {seen.hop[at]} has {ratio:.4g} of its scale; all have {every:.4g}"
    return 2.0 * min(each, pooled), text


def _centre(seen: Seen) -> tuple[float, str]:
    runs, _, dim = seen.z.shape
    at_release = seen.z.mean(axis=0)
    each, at = _worst(stats.chi2.sf(runs * (at_release**2).sum(axis=1), dim))
    groups = [(k, i) for k in np.unique(seen.data) for i in np.unique(seen.agent)]
    means, chances = [], []
    for k, i in groups:
        mine = seen.z[seen.data == k][:, seen.agent == i].reshape(-1, dim)
        means.append(np.linalg.norm(mine.mean(axis=0)))
        chances.append(stats.chi2.sf(len(mine) * means[-1] ** 2, dim))
    grouped, worst = _worst(np.array(chances))
    text = f"a mean of {np.linalg.norm(at_release[at]):.3g} scales at hop {seen.hop[at]}, and of {means[worst]:.3g} in "
    return 2.0 * min(each, grouped), text + f"all of agent {groups[worst][1]}'s"


def _correlations(rows: np.ndarray) -> tuple[float, float, tuple[int, int]]:
    """(p-value, largest correlation, and its two rows) between any two rows of independent normal numbers."""
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(float).tiny)
    one, two = np.triu_indices(len(rows), 1)
    if not len(one):
        return 1.0, 0.0, (0, 0)
    squares = np.minimum((unit @ unit.T)[one, two] ** 2, 1.0)
    # 1 - r^2 is Beta((n - 1)/2, 1/2)
    chances = special.betainc((rows.shape[1] - 1) / 2, 0.5, 1.0 - squares)
    chance, at = _worst(chances)
    return chance, math.sqrt(squares[at]), (int(one[at]), int(two[at]))


def _releases(seen: Seen) -> tuple[float, str]:
    z = seen.z
    pairs, r, (one, two) = _correlations(z.transpose(1, 0, 2).reshape(z.shape[1], -1))
    lags = np.arange(1, z.shape[1] // 2 + 1)
    sums = [(z[:, k:] * z[:, :-k]).sum() / math.sqrt(z[:, k:].size) for k in lags]
    apart, at = _worst(2.0 * stats.norm.sf(np.abs(sums))) if len(lags) else (1.0, 0)
    text = f"a correlation of {r:.3g} between hops {seen.hop[one]} and {seen.hop[two]}"
    return 2.0 * min(pairs, apart), text + (f"; {sums[at]:+.3g} deviations {lags[at]} apart" if len(lags) else "")


def _runs(seen: Seen) -> tuple[float, str]:
    chance, r, (one, two) = _correlations(seen.z.reshape(len(seen.z), -1))
    rows = np.abs(seen.z.reshape(-1, seen.z.shape[2]))
    repeated = 0
    if rows.shape[1] > 1:  # single numbers can agree by chance
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        repeated = int((np.abs(np.diff(rows, axis=0)).max(axis=1) < SAME).sum())
    text = f"a correlation of {r:.3g} between runs {one} and {two}; {repeated} vectors that occur twice"
    return 0.0 if repeated else chance, text


def _shape(seen: Seen) -> tuple[float, str]:
    rows = seen.z.reshape(-1, seen.z.shape[2])
    fit = stats.kstest(rows.ravel(), "norm", method="asymp")
    between, r, _ = _correlations(rows[:, :COORDINATES].T)
    text = f"a distance of {fit.statistic:.3g} from normal; a correlation of {r:.3g} between coordinates"
    return 2.0 * min(float(fit.pvalue), between), text


QUESTIONS = {"size": _size, "centre": _centre, "releases": _releases, "runs": _runs, "shape": _shape}
