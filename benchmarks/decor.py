"""DECOR beside the relay: gossip whose neighbours add noise that cancels between them.

    python benchmarks/decor.py              Fashion-MNIST 0/1, three budgets, ring and complete graph, 8 seeds: a minute
    python benchmarks/decor.py --quick      the embedded small images, one budget, 2 seeds
    python benchmarks/decor.py search       where the settings below come from: five minutes on two cores

Allouah, Koloskova, El Firdoussi, Jaggi and Guerraoui 2024, "The Privacy Power of Correlated Noise in Decentralized
Learning", arXiv 2405.01031. n parties on a graph; neighbours i and j share a secret seed. In every round, party i

    (1)  g_i      = mean over its records of clip_c( grad loss(x_i) )
    (2)  noise_i  = v_i + sum_j v_ij                    j: its neighbours. v_i ~ N(0, s_own^2 I) is its own,
                                                        v_ij = -v_ji ~ N(0, s_shared^2 I) from the seed
    (3)  sends y_i = x_i - step (g_i + l2 x_i + noise_i)  to its neighbours
    (4)  x_i     <- sum_j W_ij y_j                      W: Metropolis weights, doubly stochastic

s_own and s_shared are the paper's sigma_cdp and sigma_cor. The v_ij cancel in the mean of all parties, not in any
single message. All start at x = 0, with full batches. The answer is the mean of the x_i over the parties, of the last
round or of all rounds of the second half. Everybody sees the messages, so that this last mean costs no privacy; on a
sparse graph it costs messages, which nobody counts here. Reported beside it is what a party has without it.

What is seen, and what it costs
-------------------------------
An adversary sees every message of every round. Before a round it knows all x_i, by (4), so that the round shows it
g_i + noise_i for all i, and no more. The noise of one coordinate has covariance, over the parties,

    (5)  Sigma = s_own^2 I + s_shared^2 L               L = D - A: the graph's Laplacian

because noise = v + B e and L = B B', with the incidence matrix B (a row a party; a column an edge, +1 and -1 at its
ends). A coalition C also knows the v_c of its members and the v_cj of every edge at one of them. It subtracts them.
Left is the noise of the honest parties H, on the edges among them:

    (6)  Sigma_H = s_own^2 I + s_shared^2 L_H           L_H: the Laplacian of the graph without C

Replacing one of the m_i records of honest party i moves g_i by at most Delta_i = 2 c / m_i, and no other g_j. The mean
of a Gaussian vector moves by a vector with one entry, in units of the noise by at most mu:

    (7)  mu^2 = Delta_i^2 [Sigma_H^-1]_ii               attained where a record moves g_i by Delta_i

T rounds, in which queries depend on all earlier messages, have T mu^2 in all (Dong, Roth and Su 2019), and with it
(epsilon, delta) by `relaydp.privacy`. Counted is the largest (7) over i and over every coalition of t parties. More
members never see less, so that smaller coalitions need not be tried; t = 0 is an eavesdropper alone. Beyond what can be
tried nothing is assumed: with more than MOST_COALITIONS coalitions `exposures` refuses. Members of C may send anything:
Delta_i holds at every x_i. The authors' program computes (7) for an eavesdropper, composes Renyi divergences and
converts them by an upper bound. For the same promise ours needs less noise.

Limits: s_shared = 0 is local DP, mu^2 = Delta^2 / s_own^2. As s_shared grows, an honest party hides among the h honest
parties that it reaches past C (itself counted), mu^2 -> Delta^2 / (h s_own^2): a curator's noise times sqrt(n / h). On
a ring, two members of C may have one party between them, and its own noise is all that hides it.

Which pair
----------
Among the pairs that spend the budget, `choose_noise` takes the one that leaves the least noise in a party's model after
T rounds: in the mean plus in what the parties disagree by. Both follow from (3) and (4) without any record
(`accumulated`). Shared noise is free in the mean and costs disagreement, which gossip removes slowly on a sparse graph.
On a complete graph W = 1 1' / n removes it at once.

Clip, step and mean of late rounds are chosen on three other pairs of classes (`search`), by test accuracy there, for
several noises; `chosen_setting` takes the nearest. Nothing is chosen on the data that is reported. There are 400
rounds: 100 did less well on the three pairs, and 1,600, tried on one of them, no better.

DECOR's promise holds as long as the seeds are secret, and rests on Gaussian noise that stays in every message, here in
float64; the masked relay's masks are uniform modulo 2^64, and its promise rests on a cipher. DECOR is described for
parties that stay: where one leaves during a run, what its neighbours share with it no longer cancels.

These runs are simulations from a seed, with gradients in float32. They promise nothing themselves.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import accuracy_problems
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

import relaydp as rd
from relaydp.errors import InputError, PrivacyError
from relaydp.graph.network import metropolis
from relaydp.privacy import MARGIN, epsilon_exact
from relaydp.result import versions

ROOT = Path(__file__).parent.parent
AGENTS, DELTA, EPSILONS, COLLUSION = 8, 1e-5, (0.1, 0.5, 1.0), 1
MOST_COALITIONS = 20_000
# s_shared^2 / s_own^2. The largest is within 1e-6 of the limit and leaves float64 ten digits where it cancels.
RATIOS = (0.0, *np.geomspace(1e-2, 1e6, 161))
ROUNDING = 1e-9  # eigenvalues of a Laplacian below it are zeros that were not computed exactly
LOCAL = (0.0,)  # no shared noise at all
DEVELOPMENT = ("fashion24", "fashion57", "mnist23")


class Setting(NamedTuple):
    """What is chosen before a run."""

    rounds: int
    clip: float  # as a share of the largest gradient
    travel: float  # rounds x step x clip: the farthest that gradients can carry a model
    late: bool  # whether the answer is the mean over the second half of the rounds


class Noise(NamedTuple):
    """Standard deviations per coordinate of a gradient."""

    own: float  # s_own: every party's alone
    shared: float  # s_shared: of an edge, + at one end and - at the other


# -- what it costs


def honest_laplacian(graph: rd.Graph, coalition: Iterable[int] = ()) -> np.ndarray:
    """L_H of (6): the Laplacian of the graph without the coalition and its edges."""
    A = graph.adjacency().toarray()
    honest = np.setdiff1d(np.arange(graph.agents), list(coalition))
    among = A[np.ix_(honest, honest)]
    return np.diag(among.sum(axis=1)) - among


def covariance(graph: rd.Graph, noise: Noise, coalition: Iterable[int] = ()) -> np.ndarray:
    """Sigma_H of (6), for the honest parties in increasing order; without a coalition, (5)."""
    L = honest_laplacian(graph, coalition)
    return noise.own**2 * np.eye(len(L)) + noise.shared**2 * L


def exposures(graph: rd.Graph, collusion: int, sensitivity: np.ndarray, ratios: Sequence[float]) -> np.ndarray:
    """(ratios,): the largest mu^2 of one round, over parties and coalitions, at s_own = 1 and s_shared^2 = ratio.

    From the eigenvectors u_k of L_H:  [ (I + ratio L_H)^-1 ]_ii = sum_k u_ik^2 / (1 + ratio lambda_k).
    """
    n, ratio = graph.agents, np.asarray(ratios, float)
    if len(sensitivity) != n:
        raise InputError(
            f"graph {graph.name} has {n} parties and there are {len(sensitivity)} sensitivities, one a party; make "
            "graph and problem for the same number of parties."
        )
    if not 0 <= collusion < n:
        raise PrivacyError(
            f"collusion={collusion} of {n} parties; it must be from 0 (an eavesdropper) to {n - 1}. Say how many may "
            "reveal their seeds."
        )
    coalitions = math.comb(n, collusion)
    if coalitions > MOST_COALITIONS:
        raise PrivacyError(
            f"{collusion} of {n} parties make {coalitions} coalitions; at most {MOST_COALITIONS} are tried, and "
            "nothing is promised about others. Use fewer parties or a smaller collusion."
        )
    worst = np.zeros(len(ratio))
    for coalition in itertools.combinations(range(n), collusion):
        values, vectors = np.linalg.eigh(honest_laplacian(graph, coalition))
        values[values < ROUNDING] = 0.0  # rounded down, the cost is rounded up
        inverse = vectors**2 @ (1.0 / (1.0 + values[:, None] * ratio))  # (honest, ratios)
        moved = np.delete(sensitivity, coalition)[:, None]
        worst = np.maximum(worst, (moved**2 * inverse).max(axis=0))
    return worst


def round_cost(graph: rd.Graph, noise: Noise, collusion: int, sensitivity: np.ndarray) -> float:
    """The largest mu^2 of one round, (7), over honest parties and all coalitions of `collusion` parties."""
    if not noise.own > 0:
        raise PrivacyError(f"own noise {noise.own}; it must be above 0: shared noise alone cancels in the mean.")
    return float(exposures(graph, collusion, sensitivity, [(noise.shared / noise.own) ** 2])[0]) / noise.own**2


def epsilon_of(
    graph: rd.Graph, noise: Noise, rounds: int, collusion: int, sensitivity: np.ndarray, delta: float
) -> float:
    """What all rounds cost together."""
    return epsilon_exact(rounds * round_cost(graph, noise, collusion, sensitivity) / 2.0, delta)


# -- what it leaves in the models


def accumulated(W: np.ndarray, Sigma: np.ndarray, rounds: int, keep: float = 1.0) -> tuple[float, float]:
    """Noise per coordinate after so many rounds with step 1: variance of the mean of all x_i, and the disagreement.

        V <- W (keep^2 V + Sigma) W',   mean 1'V1 / n^2,   disagreement tr(V)/n - 1'V1 / n^2

    The disagreement is the mean over parties of E (x_i - mean)^2. `keep` is what a round leaves of x: 1 - step l2.
    """
    V = np.zeros_like(Sigma)
    for _ in range(rounds):
        V = W @ (keep**2 * V + Sigma) @ W.T
    mean = V.sum() / len(V) ** 2
    return float(mean), float(np.trace(V) / len(V) - mean)


def choose_noise(
    graph: rd.Graph,
    rounds: int,
    budget: rd.Budget,
    collusion: int,
    sensitivity: np.ndarray,
    *,
    keep: float = 1.0,
    ratios: Sequence[float] = RATIOS,
) -> Noise:
    """The pair that meets the budget with the least noise in a party's model; by public facts alone.

    >>> noise = choose_noise(rd.complete(8), 10, rd.Budget(1.0, 1e-5), 1, np.full(8, 0.01))
    >>> local = choose_noise(rd.complete(8), 10, rd.Budget(1.0, 1e-5), 1, np.full(8, 0.01), ratios=LOCAL)
    >>> round(local.own / noise.own, 3) == round(7**0.5, 3)
    True
    """
    ratio, W = np.asarray(ratios, float), metropolis(graph)
    allowed = 2.0 * budget.rho * (1.0 - MARGIN) / rounds  # mu^2 a round
    own = exposures(graph, collusion, sensitivity, ratios) / allowed  # s_own^2
    from_own = accumulated(W, np.eye(graph.agents), rounds, keep)
    _, apart = accumulated(W, honest_laplacian(graph), rounds, keep)  # 1'L = 0: nothing of it is in the mean
    left = own * (sum(from_own) + ratio * apart)
    best = int(np.argmin(left))
    return Noise(math.sqrt(own[best]), math.sqrt(own[best] * ratio[best]))


# -- a run


class Models(NamedTuple):
    """What a batch of runs ends with, each (runs, agents, dim). Their mean over the parties is the answer."""

    last: np.ndarray  # what each party has after the last round
    late: np.ndarray  # the mean of what it had after the rounds of the second half


def incidence(graph: rd.Graph) -> np.ndarray:
    """B: (agents, edges), +1 at the first end of an edge and -1 at the other."""
    B, columns = np.zeros((graph.agents, len(graph.edges))), np.arange(len(graph.edges))
    B[graph.edges[:, 0], columns], B[graph.edges[:, 1], columns] = 1.0, -1.0
    return B


def draw(key: Array, agents: int, edges: int, dim: int) -> tuple[Float[Array, "agents dim"], Float[Array, "edges dim"]]:
    """Normal numbers of one round: every party's own, and every edge's, which both ends make from their seed."""
    mine, ours = jax.random.split(key)
    return jax.random.normal(mine, (agents, dim)), jax.random.normal(ours, (edges, dim))


def messages(
    x: Float[Array, "agents *runs dim"],
    slopes: Float[Array, "agents *runs dim"],
    draws: tuple[Array, Array],
    B: Float[Array, "agents edges"],
    step: Any,
    noise: Any,
) -> Float[Array, "agents *runs dim"]:
    """(2) and (3): what all parties send in a round; `noise` is a pair (own, shared)."""
    own, shared = noise
    total = own * draws[0] + shared * jnp.tensordot(B, draws[1], axes=1)
    return x - step * (slopes + total)


@jax.jit
def _clipped_gradients(
    A: Float[Array, "agents rows dim"],
    norms: Float[Array, "agents rows"],
    sizes: Float[Array, " agents"],
    x: Float[Array, "agents runs dim"],
    clip: Float[Array, " runs"],
) -> Float[Array, "agents runs dim"]:
    """(1) in the records' float32. A row is label x features: the gradient is -sigmoid(-score) times the row."""
    means = []
    for rows, norm, size, point in zip(A, norms, sizes, x.astype(A.dtype), strict=True):
        pull = jax.nn.sigmoid(-(rows @ point.T))  # (rows, runs)
        kept = jnp.minimum(pull, clip.astype(A.dtype)[None, :] / norm[:, None])  # |gradient| = pull x norm <= clip
        means.append(-(kept.T @ rows) / size)
    return jnp.stack(means).astype(x.dtype)


@jax.jit
def _run(
    A: Any, norms: Any, sizes: Any, W: Any, B: Any, keys: Array, rounds: Any, l2: Any, each: dict[str, Any]
) -> tuple[Array, Array]:
    """All runs at once; `each` has step, clip, own and shared of every run."""
    (n, _, q), runs = A.shape, len(keys)
    step, own, shared = (each[name][None, :, None] for name in ("step", "own", "shared"))
    drawn = jax.vmap(lambda key: draw(key, n, B.shape[1], q), out_axes=1)

    def one_round(k: Array, carried: tuple[Array, Array]) -> tuple[Array, Array]:
        x, late = carried
        slopes = _clipped_gradients(A, norms, sizes, x, each["clip"]) + l2 * x
        draws = drawn(jax.vmap(lambda key: jax.random.fold_in(key, k))(keys))
        sent = messages(x, slopes, draws, B, step, (own, shared))
        x = jnp.tensordot(W, sent, axes=1)  # (4)
        return x, late + jnp.where(2 * k + 1 >= rounds, x, 0.0)

    nothing = jnp.zeros((n, runs, q))
    x, late = jax.lax.fori_loop(0, rounds, one_round, (nothing, nothing))
    return x.swapaxes(0, 1), late.swapaxes(0, 1) / (rounds - rounds // 2)


def party_records(problem: rd.Problem) -> tuple[np.ndarray, np.ndarray]:
    """(agents, rows, dim) label x features, filled up with zeros, and each party's number of records."""
    return problem.remembered(_party_records)


def _party_records(problem: rd.Problem) -> tuple[np.ndarray, np.ndarray]:
    if problem.loss.name != "logistic" or problem.intercept or problem.regulariser.kind != "none":
        raise InputError(
            f"a problem with loss {problem.loss.name!r}, intercept={problem.intercept} and regulariser "
            f"{problem.regulariser.kind!r}; DECOR is measured on rd.logistic without an intercept and without l1."
        )
    dense = problem.working_records.dense()
    X, y, start = np.asarray(dense.X), np.asarray(dense.y), np.asarray(dense.start)
    sizes = np.asarray(problem.split.sizes)
    A = np.zeros((problem.agents, int(sizes.max()), X.shape[1]), np.float32)
    for rows, first, size in zip(A, start, sizes, strict=True):
        rows[:size] = y[first : first + size, None] * X[first : first + size]
    return A, sizes


class Job(NamedTuple):
    """One run of a batch."""

    seed: int
    clip: float
    step: float
    noise: Noise


def train(problem: rd.Problem, graph: rd.Graph, rounds: int, jobs: Sequence[Job]) -> Models:
    """Runs of the same number of rounds, all at once."""
    A, sizes = party_records(problem)
    each = {
        "step": np.array([job.step for job in jobs]),
        "clip": np.array([job.clip for job in jobs]),
        "own": np.array([job.noise.own for job in jobs]),
        "shared": np.array([job.noise.shared for job in jobs]),
    }
    keys = jnp.stack([jax.random.key(job.seed) for job in jobs])
    norms = np.linalg.norm(A, axis=2)
    B = incidence(graph)
    done = _run(A, norms, sizes.astype(np.float32), metropolis(graph), B, keys, rounds, float(problem.l2), each)
    return Models(*map(np.asarray, done))


# -- what is planned, and measured


# For the noise (`noise_of`) at which they were chosen: settings where one round of gossip averages exactly, and others.
CHOSEN = {
    "gossip": {
        0.0218: Setting(400, 0.1, 100.0, False),
        0.00731: Setting(400, 0.3, 300.0, False),
        0.00316: Setting(400, 0.1, 1000.0, False),
        0.00167: Setting(400, 0.3, 1000.0, False),
        0.000886: Setting(400, 0.3, 3000.0, False),
    },
    "exact": {
        0.0218: Setting(400, 0.3, 100.0, False),
        0.00731: Setting(400, 0.3, 300.0, False),
        0.00316: Setting(400, 0.1, 1000.0, False),
        0.00167: Setting(400, 0.1, 3000.0, True),
        0.000886: Setting(400, 0.3, 3000.0, False),
    },
}


def noise_of(
    problem: rd.Problem, graph: rd.Graph, budget: rd.Budget, collusion: int, ratios: Sequence[float] = RATIOS
) -> float:
    """Noise of the mean gradient as a share of the clip, with the whole budget in one round and s_shared at its most.

    Settings are looked up by it: it says how hard a problem is, and no record can change it.
    """
    sensitivity = 2.0 / np.asarray(problem.split.sizes)
    own = exposures(graph, collusion, sensitivity, ratios[-1:])[0] / (2.0 * budget.rho)
    return math.sqrt(own / graph.agents)


def family(graph: rd.Graph) -> str:
    """ "exact" where one round of gossip makes all parties agree, else "gossip"."""
    return "exact" if np.allclose(metropolis(graph), 1.0 / graph.agents) else "gossip"


def chosen_setting(
    problem: rd.Problem, graph: rd.Graph, budget: rd.Budget, collusion: int, ratios: Sequence[float] = RATIOS
) -> Setting:
    """The one that was chosen at the nearest noise."""
    known, noise = CHOSEN[family(graph)], noise_of(problem, graph, budget, collusion, ratios)
    return known[min(known, key=lambda at: abs(math.log(at / noise)))]


def plan(
    problem: rd.Problem,
    graph: rd.Graph,
    budget: rd.Budget,
    collusion: int,
    setting: Setting,
    ratios: Sequence[float] = RATIOS,
) -> tuple[float, float, Noise]:
    """Clip, step and noise of a setting, from public facts."""
    largest = problem.largest_gradient()
    if largest is None:
        raise PrivacyError("nothing bounds the gradients; pass record_norm= or ranges= where the problem is made.")
    clip = setting.clip * largest
    step = setting.travel / (setting.rounds * clip)
    keep = 1.0 - step * problem.l2
    sensitivity = 2.0 * clip / np.asarray(problem.split.sizes)
    noise = choose_noise(graph, setting.rounds, budget, collusion, sensitivity, keep=keep, ratios=ratios)
    spent = epsilon_of(graph, noise, setting.rounds, collusion, sensitivity, budget.delta)
    if spent > budget.epsilon:
        raise PrivacyError(f"the plan costs epsilon {spent}; the budget is {budget.epsilon}. Raise MARGIN.")
    return clip, step, noise


def decor_models(
    problem: rd.Problem,
    graph: rd.Graph,
    budget: rd.Budget,
    collusion: int,
    seeds: Iterable[int],
    *,
    setting: Setting | None = None,
    ratios: Sequence[float] = RATIOS,
) -> np.ndarray:
    """(seeds, agents, dim): what each party ends with. `ratios=LOCAL` shares no noise: local DP by the same method."""
    setting = setting or chosen_setting(problem, graph, budget, collusion, ratios)
    planned = plan(problem, graph, budget, collusion, setting, ratios)
    models = train(problem, graph, setting.rounds, [Job(int(seed), *planned) for seed in seeds])
    return models.late if setting.late else models.last


def decor_accuracy(
    problem: rd.Problem,
    graph: rd.Graph,
    budget: rd.Budget,
    collusion: int,
    seeds: Iterable[int],
    *,
    setting: Setting | None = None,
    ratios: Sequence[float] = RATIOS,
) -> np.ndarray:
    """(seeds,): test accuracy of the parties' mean model, by the budget against every coalition of `collusion` parties.

    >>> problem = rd.logistic("fashion-small", agents=8, record_norm=1.0)
    >>> found = decor_accuracy(problem, rd.complete(8), rd.Budget(1.0, 1e-5), 1, range(2))
    >>> found.shape, bool(found.min() > 0.9)
    ((2,), True)
    """
    models = decor_models(problem, graph, budget, collusion, seeds, setting=setting, ratios=ratios)
    return problem.accuracies(models.mean(axis=1))


# -- the search


ROUNDS, CLIPS, TRAVELS = 400, (0.1, 0.3, 1.0), (100.0, 300.0, 1000.0, 3000.0, 10000.0)
SEARCH_EPSILONS, SEARCH_SEEDS = (0.03, 0.1, 0.25, 0.5, 1.0), (100, 101)


def development_problem(name: str) -> rd.Problem:
    """A pair of classes, all from a training file; none is reported."""
    X, y, X_test, y_test = next(each for each in accuracy_problems.development() if each.name == name).load()
    test = rd.Records(X_test, y_test, classes=(-1, 1))
    return rd.logistic(rd.Records(X, y, name=name, classes=(-1, 1), test=test), agents=AGENTS, record_norm=1.0)


def tried(problem: rd.Problem, graph: rd.Graph, budget: rd.Budget, seeds: Sequence[int]) -> dict[Setting, float]:
    """Median test accuracy of every setting of the grid."""
    grid = [Setting(ROUNDS, *rest) for rest in itertools.product(CLIPS, TRAVELS, (False,))]
    planned = [plan(problem, graph, budget, COLLUSION, setting) for setting in grid]
    models = train(problem, graph, ROUNDS, [Job(seed, *each) for each in planned for seed in seeds])
    found: dict[Setting, float] = {}
    for late, of_parties in ((False, models.last), (True, models.late)):
        right = problem.accuracies(of_parties.mean(axis=1)).reshape(len(grid), len(seeds))
        settings = [setting._replace(late=late) for setting in grid]
        found |= zip(settings, np.median(right, axis=1).tolist(), strict=True)
    return found


def search(epsilons: Sequence[float] = SEARCH_EPSILONS) -> None:
    """Print, for both graphs and every budget, the settings with the best mean accuracy on the development problems."""
    problems = [development_problem(name) for name in DEVELOPMENT]
    for graph in (rd.ring(AGENTS), rd.complete(AGENTS)):
        for epsilon in epsilons:
            budget = rd.Budget(epsilon, DELTA)
            noise = noise_of(problems[0], graph, budget, COLLUSION)
            found = [tried(problem, graph, budget, SEARCH_SEEDS) for problem in problems]
            mean = {setting: float(np.mean([each[setting] for each in found])) for setting in found[0]}
            print(f"{family(graph)}, epsilon {epsilon:g}, noise {noise:.3g}")
            for setting in sorted(mean, key=mean.__getitem__, reverse=True)[:5]:
                each = ", ".join(f"{name} {one[setting]:.4f}" for name, one in zip(DEVELOPMENT, found, strict=True))
                print(f"    {mean[setting]:.4f} ({each})  {setting}", flush=True)


# -- the table


def rows_of(problem: rd.Problem, graph: rd.Graph, budget: rd.Budget, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """DECOR, what one of its parties has, and the same method without shared noise."""
    rows = []
    for shares, ratios in (("DECOR", RATIOS), ("no shared noise", LOCAL)):
        began = time.perf_counter()
        setting = chosen_setting(problem, graph, budget, COLLUSION, ratios)
        clip, step, noise = plan(problem, graph, budget, COLLUSION, setting, ratios)
        models = decor_models(problem, graph, budget, COLLUSION, seeds, setting=setting, ratios=ratios)
        sensitivity = 2.0 * clip / np.asarray(problem.split.sizes)
        about = {
            "data": problem.data.name,
            "graph": graph.name,
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "collusion": COLLUSION,
            "spent": epsilon_of(graph, noise, setting.rounds, COLLUSION, sensitivity, budget.delta),
            **setting._asdict(),
            "step": step,
            "messages": setting.rounds * int(graph.degree.sum()),
            "own": noise.own,
            "shared": noise.shared,
            "seconds": time.perf_counter() - began,
        }
        answers = {shares: problem.accuracies(models.mean(axis=1))}
        if ratios is not LOCAL:
            each = problem.accuracies(models.reshape(-1, problem.dim)).reshape(models.shape[:2])
            answers[f"{shares}, a party's own model"] = each.mean(axis=1)
        rows += [{"method": method, **about, "accuracies": found.tolist()} for method, found in answers.items()]
    return rows


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Test accuracy: medians of the seeds with their range, graphs and methods by budgets."""
    epsilons = list(dict.fromkeys(row["epsilon"] for row in rows))
    lines = ["| graph | method | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in epsilons) + " |"]
    lines.append("|---" * (len(epsilons) + 2) + "|")
    for graph, method in dict.fromkeys((row["graph"], row["method"]) for row in rows):
        found = [row["accuracies"] for row in rows if (row["graph"], row["method"]) == (graph, method)]
        cells = [f"{np.median(each):.4f} ({min(each):.4f} to {max(each):.4f})" for each in found]
        lines.append(f"| {graph} | {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="DECOR: gossip with noise that cancels between neighbours.")
    parser.add_argument("command", nargs="?", choices=["table", "search"], default="table")
    parser.add_argument("--data", default="fashion")
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=8, help="how many")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "decor", help="folder for the JSON and the table")
    parser.add_argument("--quick", action="store_true", help="fashion-small, epsilon 1, 2 seeds")
    asked = parser.parse_args()
    if asked.command == "search":
        search()
        return
    if asked.quick:
        asked.data, asked.epsilons, asked.seeds = "fashion-small", (1.0,), 2
    problem = rd.logistic(asked.data, agents=AGENTS, record_norm=1.0)
    rows: list[dict[str, Any]] = []
    for graph in (rd.ring(AGENTS), rd.complete(AGENTS)):
        for epsilon in asked.epsilons:
            rows += rows_of(problem, graph, rd.Budget(epsilon, DELTA), range(asked.seeds))
    about = {"agents": AGENTS, "seeds": asked.seeds, "cores": os.cpu_count(), **versions()}
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "decor.json").write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")
    (asked.out / "decor.md").write_text(markdown(rows) + "\n")
    print(markdown(rows))


if __name__ == "__main__":
    main()
