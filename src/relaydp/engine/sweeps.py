"""sweep: many seeds and budgets in one compiled, batched call.

Where all runs visit the same agents in the same order (cyclic, tour, rounds), each activation reads an agent's records
once for the whole batch. Where every run has a walk of its own, an accelerator still takes them together; a CPU, for
which gathering a batch of agents' records costs more than it saves, takes them one after the other inside one call.

All runs have seeds: with a budget they are simulations, and no promise stands behind any of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from relaydp import defaults
from relaydp.algorithm import Algorithm, Turn
from relaydp.arrays import placed
from relaydp.engine.loop import (
    BLOCKS,
    GROWTH,
    World,
    begin,
    public_radius,
    scan_turns,
    stride_for,
    turns_of,
    unrolled,
    world_of,
)
from relaydp.engine.preparation import First, Prepared, first_of, paced, prepare, start_of
from relaydp.engine.progress import Progress, check_progress, shown
from relaydp.engine.trace import relative_errors
from relaydp.errors import InputError
from relaydp.graph import Graph
from relaydp.oracle.randomness import NOISE, WALK, as_seeds, key_for
from relaydp.planning.directions import Directions
from relaydp.planning.planner import AUTO, Limits, check_setting, lay_out, make_plan
from relaydp.planning.run_plan import Plan
from relaydp.privacy import PRICED, Budget
from relaydp.privacy.trust import trust_of
from relaydp.problem import AgentRecords, Problem
from relaydp.problem.coordinates import Coordinates
from relaydp.problem.kernels import int8_products
from relaydp.problem.reference import find_minimiser


@dataclass(frozen=True, eq=False)
class Sweep:
    """One row a run; `budget[k]` and `seed[k]` say which."""

    seed: np.ndarray
    budget: tuple[Budget | None, ...]
    x: np.ndarray  # (runs, dim); NaN where a run diverged
    status: tuple[str, ...]
    epsilon_planned: np.ndarray  # what the plan would cost; these runs are simulations and promise nothing
    rho: np.ndarray  # the same in zCDP
    plf: np.ndarray
    messages: np.ndarray
    objective: np.ndarray
    excess: np.ndarray  # F(x) - F(x*)
    relative_error: np.ndarray
    accuracy: np.ndarray

    def __len__(self) -> int:
        return len(self.seed)

    def of(self, budget: Budget | None) -> np.ndarray:
        """The rows of one budget."""
        return np.array([k for k, b in enumerate(self.budget) if b == budget], dtype=int)

    def medians(self) -> list[dict[str, Any]]:
        """One row a budget: medians over the seeds, and the accuracy's quartiles. With a budget they are simulations:
        `epsilon_planned` is what the budget asks for, and nothing is promised."""
        rows = []
        for budget in dict.fromkeys(self.budget):
            at = self.of(budget)
            low, high = np.percentile(self.accuracy[at], [25, 75])
            rows.append(
                {
                    "epsilon_planned": None if budget is None else budget.epsilon,
                    "delta": None if budget is None else budget.delta,
                    "runs": len(at),
                    "plf": int(np.median(self.plf[at])),
                    "messages": int(np.median(self.messages[at])),
                    "excess": float(np.median(self.excess[at])),
                    "relative_error": float(np.median(self.relative_error[at])),
                    "accuracy": float(np.median(self.accuracy[at])),
                    "accuracy_quartiles": (float(low), float(high)),
                    "diverged": sum(self.status[k] == "diverged" for k in at),
                }
            )
        return rows


def sweep(
    problem: Problem,
    graph: Graph,
    seeds: Iterable[int] = range(16),
    budgets: Sequence[Budget | None] | None = None,
    *,
    algorithm: str = defaults.ALGORITHM,
    mechanism: str | None = AUTO,
    activations: int | None = None,
    walk: str = defaults.WALK,
    steps: Any = "tuned",
    objective: str | None = None,
    start: int = 0,
    ratio: float | None = None,
    limits: Limits = None,
    prior: Problem | Directions | None = None,
    trust: str | None = None,
    collusion: int | None = None,
    quorum: int | None = None,
    variant: str | None = None,
    noise: float | None = None,
    reference: bool | None = None,
    progress: bool | Progress | None = None,
) -> Sweep:
    """Run every seed under every budget in one compiled call.

    Each row is what `solve` gives for that seed and budget: with a budget, a simulation without a promise.

    Args:
        problem: The loss, the weights and the records, split over the agents.
        graph: Who may send to whom. It has as many agents as the problem.
        seeds: The seeds of the runs, whole numbers, 0 or more. Default: 0 to 15.
        budgets: A list of budgets. Default: None, one sweep without noise. A list does not mix None with a Budget.
        algorithm: A name from `relaydp.algorithms()`, or "auto" (the default): as in `solve`.
        mechanism: As in `solve`. Default: "auto".
        activations: The PLF. Default: as in `solve`, for each budget.
        walk: "tour" (the default), "cyclic", "random", "lazy" or "nonbacktracking". Runs with "tour" or "cyclic" share
            a route, which is faster.
        steps: "tuned" (the default), "paper", or the algorithm's own numbers.
        objective: "accuracy" or "loss": what a budget is planned for, as in `solve`.
        start: The agent that holds the baton first. Default: 0.
        ratio: rho_(t+1)/rho_t of the noise schedule.
        limits: epsilon of agents that allow less than the budget: {agent: epsilon}, or a list with one number per
            agent.
        prior: A Problem over PUBLIC records, or Directions, that the budget is planned for.
        trust: "nobody" (the default) or "curator", as in `solve`.
        collusion: The most parties that collude, as in `solve`.
        quorum: The fewest parties in a lap, as in `solve`.
        variant: A variant of mechanism "published".
        noise: For "published" only: its first scale s_1, instead of a budget.
        reference: Whether to compute the minimiser. Without it, or where the problem has none, `excess` and
            `relative_error` are NaN. Default: None, as in `solve`.
        progress: None (the default) shows a bar when stderr is a terminal; True or False decides; a function is called
            with (hops done, hops in all).

    Returns:
        A Sweep, with one row per run: `seed`, `budget`, `x` (runs, dim; NaN where a run diverged), `status`,
        `epsilon_planned`, `rho`, `plf`, `messages`, `objective`, `excess`, `relative_error` and `accuracy`.
        `of(budget)` has the rows of one budget; `medians()` has one row per budget.

    Raises:
        InputError: There is no seed or no budget, budgets mix None with a Budget, or an argument cannot be used in
            `solve`.
        PrivacyError: A mechanism that needs a budget has none, the algorithm does not have it, or a limit is above the
            budget.

    Example:
        >>> import relaydp as rd
        >>> problem = rd.logistic(rd.load_data("breast-cancer"), agents=4, l2=1e-2)
        >>> runs = rd.sweep(problem, rd.ring(4), seeds=range(8), budgets=[rd.Budget(1.0, 1e-4)], walk="cyclic")
        >>> len(runs), runs.x.shape
        (8, (8, 30))
    """
    check_setting(problem, graph)
    check_progress(progress)
    numbers = as_seeds(seeds)
    if isinstance(budgets, Budget):
        raise InputError(f"budgets={budgets!r} is one budget; needed a list of them, budgets=[{budgets!r}].")
    asked = [None] if budgets is None else list(budgets)
    if not numbers or not asked:
        raise InputError(f"{len(numbers)} seeds and {len(asked)} budgets; a sweep needs at least one of each.")
    options = dict(algorithm=algorithm, activations=activations, walk=walk, steps=steps, start=start, ratio=ratio)
    options |= dict(variant=variant, noise=noise, limits=limits, prior=prior, objective=objective)
    options |= dict(trust=trust_of(trust, collusion, quorum, graph.agents))
    plans, keys = [], []
    for budget in asked:
        kind = None if budget is None and mechanism in PRICED else mechanism
        some, own = plan_seeds(problem, graph, numbers, mechanism=kind, budget=budget, **options)
        plans += some
        keys.append(own)
    _check_one_program(plans)
    with shown(progress, f"{len(plans)} runs of {plans[0].algorithm.name} on {graph.name}") as report:
        x = run_plans(problem, graph, plans, jnp.concatenate(keys), report)
    wanted = not plans[0].for_accuracy if reference is None else reference
    return _measure(problem, plans, numbers * len(asked), x, wanted)


def plan_seeds(problem: Problem, graph: Graph, seeds: Sequence[int], **options: Any) -> tuple[list[Plan], Array]:
    """One plan a seed, and the noise keys: `make_plan` once, then the same plan along each seed's own walk."""
    walks, noises = zip(*((key_for(seed, WALK), key_for(seed, NOISE)) for seed in seeds), strict=True)
    first = make_plan(problem, graph, key=walks[0], **options)
    return [first, *(_with_walk(first, graph, key) for key in walks[1:])], jnp.stack(noises)


def _with_walk(plan: Plan, graph: Graph, key: Array) -> Plan:
    """The same plan along another walk; on laps there is only one."""
    if plan.walk in ("cyclic", "tour"):
        return plan
    walk = plan.walk or "random"
    way = lay_out(plan.algorithm, plan.steps, plan.activations, graph, walk, key, plan.start, plan.private)
    return dataclasses.replace(plan, route=way)


def _check_one_program(plans: list[Plan]) -> None:
    kinds = {(plan.variant, plan.mechanism is None, plan.clip is None) for plan in plans}
    if len(kinds) > 1:
        raise InputError("budgets mix None with a Budget; those are two programs. Sweep them one after the other.")


def _batch(plans: list[Plan], hops: int) -> tuple[Turn, Turn]:
    """Turns of all runs, and the axis of each part: None where all runs share it."""
    laid_out = {id(plan): turns_of(plan, hops) for plan in {id(plan): plan for plan in plans}.values()}
    each = [laid_out[id(plan)] for plan in plans]  # runs that differ in their noise alone share a plan
    length = max(range(len(plans)), key=lambda k: len(plans[k].route))
    shared = each[length]

    def part(name: str) -> tuple[np.ndarray, int | None]:
        rows = [getattr(turn, name) for turn in each]
        if name in ("holder", "receiver"):
            # a shorter run's fill-up turns have no holder of their own: let them follow the longest run's
            common = all(
                np.array_equal(row[: plan.training], getattr(shared, name)[: plan.training])
                for row, plan in zip(rows, plans, strict=True)
            )
            return (getattr(shared, name), None) if common else (np.stack(rows), 0)
        same = all(row is rows[0] or np.array_equal(row, rows[0]) for row in rows)
        return (rows[0], None) if same else (np.stack(rows), 0)

    names = [name for name, value in shared._asdict().items() if value is not None]
    parts = {name: part(name) for name in names}
    turns = Turn(**{"key": None} | {name: value for name, (value, _) in parts.items()})  # type: ignore[arg-type]
    axes = Turn(**{"key": None} | {name: axis for name, (_, axis) in parts.items()})  # type: ignore[arg-type]
    return turns, axes


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4, 5), donate_argnums=(9,))
def _advance_all(
    algorithm: Algorithm,
    variant: str | None,
    axes: Turn,
    together: bool,
    noted: bool,
    unroll: int,
    world: World,
    steps: Any,
    keys: Array,
    states: Any,
    turns: Turn,
    prepared: Prepared | None,
) -> Any:
    def one(steps: Any, key: Array, state: Any, turns: Turn, prepared: Prepared | None) -> Any:
        batched = together and axes.acts is not None
        here = world
        if prepared is not None:
            here = world._replace(agent_records=prepared.of(world.agent_records))
        state, (points, _) = scan_turns(algorithm, variant, False, here, steps, key, state, turns, batched, unroll)
        return state, points if noted else None

    if together:
        return jax.vmap(one, in_axes=(0, 0, 0, axes, 0))(steps, keys, states, turns, prepared)
    own = {name: getattr(turns, name) for name, axis in axes._asdict().items() if axis == 0}

    def single(row: Any) -> Any:
        steps, key, state, mine, prepared = row
        return one(steps, key, state, turns._replace(**mine), prepared)

    return jax.lax.map(single, (steps, keys, states, own, prepared))


@jax.jit
def _prepare_all(agent_records: AgentRecords, firsts: First, keys: Array) -> Prepared:
    return jax.vmap(prepare, in_axes=(None, 0, 0, None))(agent_records, firsts, keys, None)


Note = Callable[[np.ndarray, np.ndarray], None]  # (hops, models (runs, points, dim) after each of them)


def run_plans(
    problem: Problem,
    graph: Graph,
    plans: list[Plan],
    keys: Array,
    progress: Progress | None = None,
    note: Note | None = None,
    x0: np.ndarray | None = None,
) -> np.ndarray:
    """The models that plans of one algorithm and mechanism lead to, one row a plan; each with its own noise key.

    `note` is told the models on the way, as often as a trace notes them. `x0` is the common start, else 0.

    Gradients are clipped alike in everything that runs together, and all of it prepares or nothing: plans of different
    clips are run one clip after the other, each with the clip that its noise was calibrated for.
    """
    kinds = [(plan.clip, plan.preparing) for plan in plans]
    if len(set(kinds)) == 1:
        return _run_together(problem, graph, plans, keys, progress, note, x0)
    assert note is None, "notes are taken of plans of one kind"
    found = np.empty((len(plans), problem.dim))
    for kind in dict.fromkeys(kinds):
        rows = [k for k, own in enumerate(kinds) if own == kind]
        some = [plans[k] for k in rows]
        found[rows] = _run_together(problem, graph, some, keys[np.array(rows)], progress, None, x0)
    return found


def _run_together(
    problem: Problem,
    graph: Graph,
    plans: list[Plan],
    keys: Array,
    progress: Progress | None,
    note: Note | None,
    x0: np.ndarray | None,
) -> np.ndarray:
    """`run_plans` of plans of one kind, in one compiled call."""
    first = plans[0]
    assert note is None or not first.preparing, "what is noted would be in coordinates of the run's own"
    longest = max(plan.training for plan in plans)
    stride = max(stride_for(plan) for plan in plans)
    chunk = BLOCKS * stride
    chunks = -(-longest // chunk)
    turns, axes = _batch(plans, chunks * chunk)
    one_route = axes.holder is None
    together = one_route or jax.default_backend() != "cpu"
    shared = len(plans) if one_route else 1
    world = world_of(problem, graph, first, together, shared, first.preparing > 0)
    unroll = unrolled() if shared >= int8_products.RUNS else 1  # a smaller one keeps the program that compiles sooner
    own = {id(plan): plan.steps for plan in plans}
    place = {name: k for k, name in enumerate(own)}
    which = np.array([place[id(plan)] for plan in plans])
    steps = jax.tree.map(lambda *parts: placed(np.stack(parts)[which]), *own.values())
    origin = placed(np.zeros(problem.dim) if x0 is None else x0)
    prepared = None
    if first.preparing:
        firsts = jax.tree.map(lambda *parts: placed(np.stack(parts)), *(first_of(problem, plan) for plan in plans))
        prepared = _prepare_all(world.agent_records, firsts, keys)
        origins = jax.vmap(partial(start_of, first), in_axes=(0, None))(prepared.coordinates, origin)
        states = jax.vmap(lambda x: begin(first.algorithm, first.variant, world, first.steps, x))(origins)
        steps = paced(steps, prepared.coordinates)
    else:
        state = begin(first.algorithm, first.variant, world, first.steps, origin)
        states = jax.tree.map(lambda part: placed(np.repeat(np.asarray(part)[None], len(plans), axis=0)), state)

    def cut(c: int) -> Turn:
        def piece(part: Any, axis: Any) -> Any:
            if part is None:
                return None
            lead = part.shape[:1] if axis == 0 else ()
            rest = part.shape[len(lead) + 1 :]
            shaped = part.reshape(*lead, chunks, BLOCKS, stride, *rest)
            return shaped[:, c] if axis == 0 else shaped[c]

        return Turn(*(piece(part, axis) for part, axis in zip(turns, axes, strict=True)))

    for c in range(chunks):
        states, points = _advance_all(
            first.algorithm,
            first.variant,
            axes,
            together,
            note is not None,
            unroll,
            world,
            steps,
            keys,
            states,
            cut(c),
            prepared,
        )
        if note is not None:
            note(c * chunk + stride * np.arange(1, BLOCKS + 1), np.asarray(points))
        if progress is not None:
            jax.block_until_ready(states)
            progress(min((c + 1) * chunk, longest), longest)
    answers = jax.vmap(first.algorithm.answer)(states)
    return np.asarray(answers if prepared is None else jax.vmap(Coordinates.__call__)(prepared.coordinates, answers))


def _measure(problem: Problem, plans: list[Plan], seeds: list[int], x: np.ndarray, reference: bool) -> Sweep:
    limit = GROWTH * public_radius(problem)
    fine = np.isfinite(x).all(axis=1) & (np.abs(np.nan_to_num(x)).max(axis=1) <= limit)
    best = find_minimiser(problem) if reference else None
    objective, accuracy, error = (np.full(len(x), np.nan) for _ in range(3))
    if fine.any():
        objective[fine] = problem.objectives(x[fine])
        error[fine] = relative_errors(x[fine], best)
        if problem.classifies:
            accuracy[fine] = problem.accuracies(x[fine])
    rho = np.array([plan.ledger.rho if plan.private and plan.ledger else math.inf for plan in plans])
    return Sweep(
        seed=np.array(seeds),
        budget=tuple(plan.budget for plan in plans),
        x=np.where(fine[:, None], x, np.nan),
        status=tuple("finished" if good else "diverged" for good in fine),
        epsilon_planned=np.array([plan.epsilon for plan in plans]),
        rho=rho,
        plf=np.array([plan.route.plf for plan in plans]),
        messages=np.array([int(plan.tally.messages[-1]) for plan in plans]),
        objective=objective,
        excess=objective - (best.value if best is not None else np.nan),
        relative_error=error,
        accuracy=accuracy,
    )
