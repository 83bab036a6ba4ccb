"""The forecast: what a budget will buy, before any record is touched.

On quadratics the final model is linear in the noise of every release, so one noise-free run and one pass backwards
through it give, for candidate steps and a number of activations T,

    (1)  bias    = 1/2 sum_k h_k b_k^2                  b_k what T activations leave of direction k's distance
    (2)  w_{i,t} = sum_k h_k (d x_k / d e_{i,t})^2      what the end feels of noise e in i's t-th release
    (3)  noise   = 1/2 sum_{i,t} w_{i,t} s_{i,t}^2      s^2 = D_i^2 / (2 rho_{i,t}),  D_i = 2c/m_i

Agent i has rho_i to spend. Noise is least at rho_{i,t} proportional to sqrt(w_{i,t}) (`privacy.schedule.optimal`):

    (4)  noise   = 1/2 sum_i D_i^2 / (2 rho_i) ( sum_t sqrt(w_{i,t}) )^2

The candidate and T with the least bias + noise win: few activations mean less noise each, many less bias. All of it
comes from n, the graph, the walk, m_i, q, L, mu, c and the budget; and, where there are some, from public records, on
which the best few are tried (`planning.public_trials`):

    (5)  predicted = (bias + noise) x (what the trial gave) / (bias + noise as foreseen for the trial)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm import Algorithm, Turn
from relaydp.graph import RANDOM_WALKS, Graph, Network, network_of
from relaydp.planning.directions import Directions, guess
from relaydp.planning.quadratic import HOPS, Columns, Frozen, make_turns, quadratic_oracle
from relaydp.privacy import MARGIN
from relaydp.privacy.objective import bend, objective_scale, pure_share
from relaydp.problem import Facts

LONGEST = 160  # the most activations that a private run chooses by itself
LENGTHS = (4, 8, 16, 32, 64, LONGEST)  # runs that are simulated where a shorter one is a part of a longer
SPARSE = (1, 2, 4, 7, 12, 20, 35, 60)  # the same where each number needs a simulation of its own
SPREAD = 0.5  # how far agents' own optima lie from the common one, relative to it
TOGETHER = 64  # candidates in one batch: what a backward pass keeps in memory
TRIED_LENGTHS, TRIED_EACH = 15, 3  # numbers of activations that are tried on public records, and candidates of each
HOPELESS = 5.0  # times worse than the best: not worth a trial
LEAST_SHARE = 1e-3  # of an agent's mean share: noise that the end does not feel still needs a finite scale


class Forecast(NamedTuple):
    """The predicted excess objective against the number of activations, with the best steps for each."""

    activations: np.ndarray
    bias: np.ndarray
    noise: np.ndarray
    chosen: int  # index of the winner
    shares: np.ndarray  # (T, agents): the part of its rho that each agent spends on each activation
    tried: np.ndarray | None = None  # `Directions.tried`, where there were trials

    @property
    def total(self) -> np.ndarray:
        return self.bias + self.noise

    @property
    def predicted(self) -> float:
        """The excess objective to expect of the plan."""
        return float(self.total[self.chosen])


class ObjectiveNoise(NamedTuple):
    """Noise in the objective instead of on gradients: what its price rests on (`privacy.objective`)."""

    epsilon: np.ndarray  # (agents,)
    delta: float
    slope: float  # G
    bend: float  # K
    modulus: float  # l2, where it reaches every coefficient
    curvature: Callable[[Any, Graph, int], np.ndarray]  # (steps, graph, activations) -> kappa, (activations, agents)
    price: str = "sound"

    def shares(self, activations: int) -> np.ndarray:
        """epsilon_0 of each release, (activations, agents). The published prices are only ever added up."""
        basic = self.price != "sound"
        each = [pure_share(epsilon, self.delta, activations, basic) for epsilon in self.epsilon]
        return np.tile(np.array(each) * (1.0 - MARGIN), (activations, 1))

    def scales(self, facts: Facts, steps: Any, graph: Graph, activations: int) -> np.ndarray:
        """(activations, agents); inf where no noise is enough."""
        return self.scales_with(self.curvature(steps, graph, activations), facts)

    def scales_with(self, kappa: np.ndarray, facts: Facts) -> np.ndarray:
        """The same for these kappa, (activations, agents)."""
        activations, strength = len(kappa), self.modulus + kappa
        bent = bend(self.bend, facts.sizes[None, :].astype(np.float64), strength)
        return objective_scale(self.shares(activations), self.slope, facts.sizes[None, :], bent, self.price)


class Trial(NamedTuple):
    """Public records to try plans on."""

    here: Directions  # of these very records, by which a trial is foreseen
    run: Callable[[Algorithm, Graph, str, Any, list[np.ndarray]], np.ndarray]  # `public_trials.try_out`


class Noise(NamedTuple):
    """What of the budget matters to a plan: each agent's total zCDP, and how it is spread over activations."""

    rho: np.ndarray  # (agents,)
    ratio: float | None = None  # rho_(t+1) / rho_t; None for the best spread, (4)
    prior: Directions | None = None  # None to guess from the public bounds
    trial: Trial | None = None
    objective: ObjectiveNoise | None = None


def look_ahead(
    method: Algorithm, candidates: Any, facts: Facts, graph: Graph, walk: str, activations: int | None, noise: Noise
) -> tuple[int, Forecast]:
    """The best of `candidates` (steps stacked along a first axis) and what to expect of it."""
    model = guess(facts) if noise.prior is None else noise.prior
    per_round = graph.agents if method.kind == "relay" else 1
    most = max(1, min(LONGEST, HOPS // per_round))
    if activations is not None:
        options = (activations,)
    else:
        one_run = method.steady and not _drawn(method, candidates, walk)
        options = tuple(range(1, most + 1)) if one_run else tuple(T for T in SPARSE if T <= most)
    simulated = tuple(min(T, max(1, HOPS // per_round)) for T in options)

    def foresee(model: Directions) -> tuple[np.ndarray, list[np.ndarray]]:
        parts = (model.curvature, model.curvature * model.number, model.curvature * model.distance)
        frozen = (tuple(part.tolist()) for part in parts)
        return _responses(method, Frozen(candidates), graph, walk, simulated, *frozen)

    left, felt = foresee(model)
    bias = 0.5 * left  # (1): (candidates, options)
    variance = (2.0 * facts.clip / facts.sizes) ** 2 / (2.0 * np.asarray(noise.rho))  # s^2 at rho_{i,t} = rho_i
    if noise.objective is None:
        noisy = 0.5 * _noise_of_all(felt, noise.ratio, variance)  # (3) or (4)
    else:
        each = [_objective_noise(noise.objective, w, candidates, facts, graph) for w in felt]
        noisy = 0.5 * np.stack(each, axis=1)  # (3)
    columns, tried = np.arange(len(options)), _known(model.tried, bias.shape[0], options)
    if tried is None and noise.trial is not None and noise.objective is None:
        foreseen = 0.5 * foresee(noise.trial.here)[0] + noisy
        picks = _shortlist(np.nan_to_num(bias + noisy, nan=np.inf), options, simulated)
        scales = [np.sqrt(variance / _shares(felt[k][at], noise.ratio)) for at, k in picks]
        tried = _try(noise.trial, method, graph, walk, candidates, options, picks, scales, foreseen)
    if tried is not None:
        at, k = tried[:, 0].astype(int), np.searchsorted(options, tried[:, 1])
        bias, noisy = (_corrected(part, at, k, tried[:, 2]) for part in (bias, noisy))
        columns = np.unique(k)
    total = np.nan_to_num(bias + noisy, nan=np.inf)
    at, k = np.unravel_index(int(np.argmin(total)), total.shape)
    best = np.argmin(total, axis=0)[columns]
    shares = _shares(felt[k][at], noise.ratio)
    if simulated[k] < options[k]:  # more activations than were simulated: spend evenly
        shares = np.full((options[k], graph.agents), 1.0 / options[k])
    look = Forecast(
        activations=np.asarray(options)[columns],
        bias=bias[best, columns],
        noise=noisy[best, columns],
        chosen=int(np.searchsorted(columns, k)),
        shares=shares,
        tried=tried,
    )
    return int(at), look


def _known(tried: np.ndarray | None, candidates: int, options: tuple[int, ...]) -> np.ndarray | None:
    """Earlier trials, as far as they are of what is to be chosen from."""
    if tried is None:
        return None
    fitting = tried[(tried[:, 0] < candidates) & np.isin(tried[:, 1], options)]
    return fitting if np.isfinite(fitting[:, 2]).any() else None


def _corrected(part: np.ndarray, at: np.ndarray, k: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Bias or noise by (5); inf for plans that were not tried or went wrong there.

    Those are set and not multiplied by inf: a part may be exactly 0, and 0 times infinity says nothing.
    """
    found, fine = np.full(part.shape, np.inf), np.isfinite(factor)
    at, k = at[fine], k[fine]
    found[at, k] = part[at, k] * factor[fine]
    return found


def _try(
    trial: Trial,
    method: Algorithm,
    graph: Graph,
    walk: str,
    candidates: Any,
    options: tuple[int, ...],
    picks: np.ndarray,
    scales: list[np.ndarray],
    foreseen: np.ndarray,
) -> np.ndarray | None:
    """`Directions.tried`; None where there is nothing to choose from. inf where nothing was foreseen, or no end."""
    if len(picks) < 2:
        return None
    steps = type(candidates)(*(np.asarray(part)[picks[:, 0]] for part in candidates))
    gave, foreseen = trial.run(method, graph, walk, steps, scales), foreseen[tuple(picks.T)]
    factor = np.full(len(picks), np.inf)
    np.divide(gave, foreseen, out=factor, where=(foreseen > 0.0) & np.isfinite(foreseen))
    tried = np.column_stack([picks[:, 0], np.asarray(options)[picks[:, 1]], factor])
    return tried if np.isfinite(factor).any() else None


def _shortlist(total: np.ndarray, options: tuple[int, ...], simulated: tuple[int, ...]) -> np.ndarray:
    """Which plans to try, (picks, 2): for numbers of activations over the whole range, the best few candidates that are
    not hopeless. Nothing to try gives no rows."""
    spread = np.unique(np.round(np.geomspace(1, max(options), TRIED_LENGTHS)))
    few = TRIED_EACH if len(options) > 1 else TRIED_LENGTHS
    picks = []
    for k, T in enumerate(options):
        if (T in spread or len(options) <= TRIED_LENGTHS) and simulated[k] == T:
            order = np.argsort(total[:, k], kind="stable")[:few]
            picks += [(at, k) for at in order if np.isfinite(total[at, k]) and total[at, k] <= HOPELESS * total.min()]
    return np.array(picks, dtype=int).reshape(-1, 2)


def _drawn(method: Algorithm, candidates: Any, walk: str) -> bool:
    """Whether it is drawn who acts when."""
    if method.kind == "relay":
        return walk in RANDOM_WALKS
    return bool((np.asarray(getattr(candidates, "probability", 1.0)) < 1.0).any())


def _shares(w: np.ndarray, ratio: float | None) -> np.ndarray:
    """How each agent spreads its rho: (T, agents), each column adding up to 1."""
    if ratio is None:
        parts = np.sqrt(w)
        parts = np.maximum(parts, LEAST_SHARE * np.maximum(parts.mean(axis=-2, keepdims=True), 1e-300))
    else:
        t = np.arange(w.shape[-2])
        parts = np.broadcast_to((ratio ** (t - (t[-1] if ratio > 1 else 0.0)))[:, None], w.shape)
    return parts / parts.sum(axis=-2, keepdims=True)


def _noise(w: np.ndarray, ratio: float | None, variance: np.ndarray) -> np.ndarray:
    """sum_{i,t} w_{i,t} s_{i,t}^2 for every candidate; w is (candidates, T, agents)."""
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        return ((w / _shares(w, ratio)).sum(axis=1) * variance).sum(axis=-1)


def _noise_of_all(felt: list[np.ndarray], ratio: float | None, variance: np.ndarray) -> np.ndarray:
    """`_noise` of every number of activations, (candidates, options).

    Mostly each is the end of the longest. Then both sums of (4) are running sums, and only the few shares that are
    raised to the least one need a correction for each number.
    """
    longest = felt[-1]
    ends = ratio is None and longest.base is not None and all(w.base is longest.base for w in felt)
    if not ends or len(felt) == 1:
        return np.stack([_noise(w, ratio, variance) for w in felt], axis=1)
    roots = np.sqrt(longest[:, ::-1])  # (candidates, T, agents), the last activation first
    with np.errstate(invalid="ignore", over="ignore"):
        sums = np.cumsum(roots, axis=1)
        means = sums / np.arange(1, longest.shape[1] + 1)[:, None]
        least = LEAST_SHARE * np.maximum(means, 1e-300)
        highest = np.fmax.accumulate(least[:, ::-1], axis=1)[:, ::-1]  # over this number of activations and all above
        at, when, who = np.nonzero(roots < highest)
        low, row = roots[at, when, who], at * len(variance) + who
        noise = np.empty((len(longest), len(felt)))
        for k, T in enumerate(w.shape[1] for w in felt):
            total, floor = sums[:, T - 1].ravel(), least[:, T - 1].ravel()
            raised = (when < T) & (low < floor[row])
            of, root, part = row[raised], low[raised], floor[row[raised]]
            parts = total + np.bincount(of, part - root, total.size)
            inverse = total + np.bincount(of, root * (root / part - 1.0), total.size)  # sum_t w_{i,t} / part_{i,t}
            each = np.where(np.isfinite(total), parts * inverse, np.nan)
            noise[:, k] = each.reshape(-1, len(variance)) @ variance
    return noise


def _objective_noise(noise: ObjectiveNoise, w: np.ndarray, candidates: Any, facts: Facts, graph: Graph) -> np.ndarray:
    """(3) for noise in the objective, whose scale depends on the candidate: E |e|^2 = q (q + 1) scale^2."""
    rows = [type(candidates)(*parts) for parts in zip(*candidates, strict=True)]
    scales = np.stack([noise.scales(facts, row, graph, w.shape[1]) for row in rows])
    with np.errstate(invalid="ignore", over="ignore"):
        return np.nan_to_num((w * (facts.dim + 1.0) * scales**2).sum(axis=(1, 2)), nan=np.inf)


@partial(jax.jit, static_argnums=0)
def _respond(
    method: Algorithm,
    network: Network,
    candidates: Any,
    columns: Columns,
    turns: Turn,
    weights: Float[Array, " bins"],
    distances: Float[Array, " bins"],
) -> tuple[Float[Array, "candidates stretches"], Float[Array, "candidates stretches hops ..."]]:
    """For every candidate: what is left after each stretch, and what the last model feels of each gradient's noise."""
    agents, width = columns.curvature.shape
    oracle = quadratic_oracle(agents, network, columns)

    def one(steps: Any) -> tuple[Array, Array]:
        def hop(state: Any, turn: Turn) -> tuple[Any, None]:
            return method.step(oracle(turn), steps, state, turn)[0], None

        @jax.checkpoint  # keep one state a stretch, and run the stretch again on the way back
        def stretch(state: Any, turns: Turn) -> tuple[Any, Array]:
            state, _ = jax.lax.scan(hop, state, turns)
            return state, method.answer(state)

        def models(bumps: Array) -> tuple[Array, Array]:
            first = method.init(oracle(None), steps, jnp.zeros(width))
            xs = jax.lax.scan(stretch, first, turns._replace(scale=bumps))[1]
            return xs[-1], xs

        _, back, xs = jax.vjp(models, turns.scale, has_aux=True)
        (answers,) = back(jnp.ones(width))
        return ((xs - 1.0) ** 2) @ distances, (answers**2) @ weights

    return jax.lax.map(one, candidates, batch_size=TOGETHER)


def _responses(
    method: Algorithm,
    candidates: Frozen,
    graph: Graph,
    walk: str,
    options: tuple[int, ...],
    *model: tuple[float, ...],  # h, weights, distances
) -> tuple[np.ndarray, list[np.ndarray]]:
    """(1) without its constants, (candidates, options); and w for each number of activations, (candidates, T, agents).

    On laps and in equal rounds a run of T activations is the beginning of a longer one, and its answer to noise the end
    of the longer one's. A random walk with a plan for every agent ends in a tail of its own, and so do steps that
    change along the run: there each T is simulated by itself. What one draw happens to feel is averaged over agents.
    """
    longest, drawn = max(options), _drawn(method, candidates.value, walk)
    if drawn or not method.steady:
        hops = make_turns(method, candidates, graph, walk, longest, "plan", 0, longest).acts.shape[1]
        left, felt = [], []
        for T in options:
            remaining, each = _simulated(method, candidates, graph, walk, T, longest, hops, *model)
            if drawn:
                each = np.broadcast_to(each.mean(axis=2, keepdims=True), each.shape)
            left.append(remaining[:, -1])
            felt.append(each)
        return np.stack(left, axis=1), felt
    # a few lengths for all: what is compiled and simulated for one number of activations then serves its neighbours
    per_lap = graph.agents if method.kind == "relay" else 1
    length = next((some for some in LENGTHS if longest <= some <= HOPS // per_lap), longest)
    remaining, each = _simulated(method, candidates, graph, walk, length, length, 0, *model)
    return remaining[:, [T - 1 for T in options]], [each[:, length - T :] for T in options]


@lru_cache(maxsize=64)
def _simulated(
    method: Algorithm,
    candidates: Frozen,
    graph: Graph,
    walk: str,
    activations: int,
    stretches: int,
    hops: int,
    h: tuple[float, ...],
    weights: tuple[float, ...],
    distances: tuple[float, ...],
) -> tuple[np.ndarray, np.ndarray]:
    """`_respond` to one run: what is left after each stretch, (candidates, stretches), and (candidates, T, agents)."""
    agents = graph.agents
    drift = np.random.default_rng(0).normal(size=(agents, 1))
    target = np.tile(1.0 + SPREAD * (drift - drift.mean()), (1, len(h)))
    columns = Columns(np.tile(np.asarray(h), (agents, 1)), target)
    turns = make_turns(method, candidates, graph, walk, activations, "plan", 0, stretches, hops)
    bumped = turns._replace(scale=np.zeros(turns.acts.shape + (len(h),)))
    args = (network_of(graph, method.needs), candidates.value, columns, bumped, np.array(weights), np.array(distances))
    left, felt = map(np.asarray, _respond(method, *args))
    return left, _per_agent(felt, turns, activations, agents)


def _per_agent(felt: np.ndarray, turns: Turn, T: int, agents: int) -> np.ndarray:
    """What was felt of every hop, sorted by agent and activation: (candidates, T, agents)."""
    acts = np.asarray(turns.acts)
    if acts.ndim == 3:  # rounds: one hop a stretch, all agents in it
        count = np.cumsum(acts[:, 0], axis=0) - 1
        when, who = np.nonzero(acts[:, 0])
        values = felt[:, when, 0, who]
    else:
        flat, holder = acts.ravel(), np.asarray(turns.holder).ravel()
        when, who = np.flatnonzero(flat), holder[flat]
        count = np.zeros((flat.size, agents), dtype=int)
        count[when, who] = 1
        count = np.cumsum(count, axis=0) - 1
        values = felt.reshape(len(felt), -1)[:, when]
    sorted_ = np.zeros((len(felt), T, agents))
    sorted_[:, count[when, who], who] = values
    return sorted_
