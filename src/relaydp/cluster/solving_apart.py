"""solve_apart: one model over agents whose records do not fit one node.

Each agent is a Ray actor that reads its own part on its own node. The process that calls `solve_apart` plans from
public facts, holds the baton and writes the checkpoint; about the records it learns how many there are, how many
features they have, their number type and a fingerprint, and in a run without privacy the curvature of each agent's
loss.

The model is the simulator's, bit for bit on one kind of machine, for the same arguments and seed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax
import numpy as np

from relaydp import defaults
from relaydp.algorithm import find_algorithm
from relaydp.cluster.agent_actors import PartySetup, Placement, RayAgents
from relaydp.cluster.checkpoint import Keeper, Standing
from relaydp.cluster.connection import connect
from relaydp.cluster.partitions import Part, PartReport, list_parts, make_task
from relaydp.cluster.relay import Agents, RelayEnd, Watch, walk
from relaydp.cluster.rounds import go_round
from relaydp.engine.loop import GROWTH, Outcome, public_radius
from relaydp.engine.progress import Progress, shown
from relaydp.engine.solver import _verdict, facts_config, make_result
from relaydp.errors import InputError, PrivacyError
from relaydp.graph import Graph, Rounds
from relaydp.oracle.randomness import Simulated, check_seed
from relaydp.party.step import model, on_network, step_inputs
from relaydp.planning.directions import Directions
from relaydp.planning.planner import AUTO, Limits, agent_epsilons, make_plan
from relaydp.planning.run_plan import Plan
from relaydp.privacy import PRICED, Budget
from relaydp.problem import Problem, ProblemSpec
from relaydp.problem.spec import misplaced
from relaydp.prox import Regulariser
from relaydp.result import Result, versions

PATIENCE = 600.0  # seconds that one answer may take


class AgentsAndPlaces(Agents, Protocol):
    """Agents as `solve_apart` needs them."""

    async def ask_all(self, method: str, *arguments: Any) -> list[Any]: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Asked:
    """The arguments of the run, as stored in the result."""

    algorithm: str
    mechanism: str | None
    budget: Budget | None
    activations: int | None
    walk: str
    steps: Any
    seed: int
    start: int
    ratio: float | None
    limits: Limits
    prior: Problem | Directions | None


def solve_apart(
    parts: Any,
    graph: Graph,
    algorithm: str = "recal",
    budget: Budget | None = None,
    *,
    loss: str | Callable[..., Any] = "logistic",
    columns: Sequence[str] | None = None,
    features: int | None = None,
    label: str | None = None,
    classes: Sequence[Any] | None = None,
    l1: float = defaults.L1,
    l2: float = defaults.L2,
    regulariser: Regulariser | None = None,
    intercept: bool = defaults.INTERCEPT,
    record_norm: float | None = None,
    ranges: Any = None,
    clip: float | None = None,
    label_bound: float | None = None,
    threshold: float | None = None,
    smoothness: float | None = None,
    dim: int | None = None,
    mechanism: str | None = AUTO,
    walk: str = defaults.WALK,
    activations: int | None = None,
    steps: Any = "tuned",
    seed: int | None = None,
    start: int = 0,
    ratio: float | None = None,
    limits: Limits = None,
    prior: Problem | Directions | None = None,
    names: Sequence[str] | None = None,
    checkpoint: Any = None,
    every: int | None = None,
    address: str | None = None,
    cores: int | None = None,
    placement: Placement | None = None,
    gpus_per_agent: float = 0.0,
    patience: float = PATIENCE,
    progress: bool | Progress | None = None,
) -> Result:
    """Train one model over agents that each have their own process and their own part of the records.

    Each agent's process reads its part on its own node; no record is sent to the process that calls this. The model is
    what `relaydp.solve` gives for all parts in one, bit for bit on one kind of machine. Trace, reference and transcript
    are left out: they would need the records, or all batons, in one place.

    An agent that dies repeats its release, to the last bit, so its noise is drawn from a seed: with a budget this is
    always a simulation. Only a consortium gives a guarantee.

    Args:
        parts: One part per agent: a pattern ("parts/*.parquet", in sorted order), or a list of paths and of Ray object
            references to (X, y).
        graph: Who may send to whom. It has as many agents as there are parts.
        algorithm: "recal" (the default), "walkman-gradient", or a method that works in rounds on gradients.
        budget: Budget(epsilon, delta) of the plan. It needs a seed. Default: None, no privacy.
        loss: "logistic" (the default), "softmax", "least-squares", "huber", or a JAX function (x, a, b), with
            `smoothness` and `dim`.
        columns: The names of the features, in order, with `label`. PUBLIC, like `classes`, `ranges` and `record_norm`:
            they are not taken from the records.
        features: The number of features, instead of `columns`, for files without names.
        label: The column to predict.
        classes: Every label there may be.
        l1: The weight of the l1 norm. Default: 0.
        l2: The weight of the ridge. Default: 0.
        regulariser: A function of `relaydp.prox`, instead of `l1`. Default: None.
        intercept: Whether the model has an intercept. Default: False.
        record_norm: The largest norm of a record; longer ones are shrunk to it. Default: None.
        ranges: A range per feature, or one for all, that features are clipped to and scaled from. Default: None.
        clip: The largest norm of one record's gradient; longer ones are shortened. Default: from the bounds.
        label_bound: The largest |label|, for least squares. Default: None.
        threshold: Where the Huber loss becomes linear. Default: that of `relaydp.huber`.
        smoothness: The largest curvature of one record's loss, for a loss of your own.
        dim: The number of coefficients, for a loss of your own.
        mechanism: As in `solve`; "gradient" or None.
        walk: As in `solve`. Default: "tour".
        activations: As in `solve`. Default: chosen from public facts when there is a budget, else 300.
        steps: As in `solve`. Default: "tuned".
        seed: The seed of the noise and of the walk. With a budget it is required; otherwise None means 0.
        start: The agent that holds the baton first. Default: 0.
        ratio: As in `solve`.
        limits: As in `solve`.
        prior: As in `solve`.
        names: The agents' names. Default: "agent 0", "agent 1" and so on.
        checkpoint: A folder. A run that finds its own checkpoint there continues from it. Default: None, no checkpoint.
        every: Activations, or rounds, between two checkpoints. Default: one after 2 seconds of work, or later where
            writing takes long.
        address: Of a Ray cluster: "auto", "host:port" or "ray://host:port". Default: None, one is started here.
        cores: How many CPUs a cluster on this machine has. Default: all.
        placement: Where agents run: {agent's name or number: {"resources": {...}} or {"labels": {...}}}. Others go to
            any node.
        gpus_per_agent: How many GPUs each agent asks for. Default: 0.
        patience: The seconds that an agent may take for one answer. Default: 600.
        progress: As in `solve`.

    Returns:
        A Result without trace, reference and transcript.

    Raises:
        InputError: A part is missing or does not fit the columns, a name or number is out of range, the algorithm does
            not run with distributed agents, or an agent did not answer in time.
        PrivacyError: There is a budget without a seed, or the plan would not be private as asked.

    Example:
        A run needs Ray, so this only shows the refusal of a budget without a seed:

        >>> import relaydp as rd
        >>> try:
        ...     rd.cluster.solve_apart(["north.npz", "south.npz"], rd.path(2), budget=rd.Budget(1.0, 1e-5), features=3)
        ... except rd.errors.PrivacyError as error:
        ...     print(str(error).split(",")[0])
        a budget needs a seed here
    """
    began = time.perf_counter()
    if budget is not None and not isinstance(budget, Budget):
        raise PrivacyError(f"budget={budget!r}; it must be Budget(epsilon=..., delta=...).")
    check_seeded(budget is not None, seed)
    seed = 0 if seed is None else seed
    check_seed(seed)
    check_patience(patience)
    options = dict(l1=l1, l2=l2, regulariser=regulariser, record_norm=record_norm, clip=clip)
    options |= dict(label_bound=label_bound, threshold=threshold, smoothness=smoothness, dim=dim)
    given = {name: value for name, value in options.items() if value is not None}
    if intercept:
        given["intercept"] = True
    task = make_task(
        loss, columns=columns, features=features, label=label, classes=classes, ranges=ranges, **_fitting(loss, given)
    )
    listed = list_parts(parts, graph.agents, names)
    task.outline([1] * graph.agents)  # refuses wrong weights and bounds before anything is started
    asked = Asked(algorithm, mechanism, budget, activations, walk, steps, int(seed), start, ratio, limits, prior)
    with connect(address, cores=cores) as ray:
        crew = RayAgents(
            ray,
            listed,
            task,
            prints_key(asked),
            relays=find_algorithm(algorithm).kind == "relay",
            placement=placement,
            gpus_per_agent=gpus_per_agent,
            patience=patience,
        )
        try:
            return solve_with(crew, listed, task, graph, asked, checkpoint, every, progress, began)
        finally:
            crew.close()


def check_seeded(budget: bool, seed: object) -> None:
    """Refuse a budget without a seed: on Ray a run with a budget is a simulation, and the user must ask for it."""
    if budget and seed is None:
        raise PrivacyError(
            "a budget needs a seed here, because agents on Ray draw their noise from a seed, and such a run is a "
            "simulation without a promise. Pass seed=0, say, for a simulation; for a promise use relaydp.solve, "
            "or run it between parties as a consortium (`relaydp consortium --help`)."
        )


def _fitting(loss: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The options, if all of them belong to this loss."""
    if other := misplaced(loss, given):
        name, owner = other
        raise InputError(f"{name}= is for the {owner!r} loss, and loss={loss!r}. Leave it out.")
    for name in ("smoothness", "dim"):
        if name in given and isinstance(loss, str):
            raise InputError(f"{name}= is for a loss of your own, and loss={loss!r}. Leave it out.")
    if not isinstance(loss, str) and given.pop("intercept", False):
        raise InputError("intercept= cannot be used with a loss of your own; add the constant in the function.")
    return given


def check_patience(patience: object) -> None:
    if not (isinstance(patience, int | float) and math.isfinite(patience) and patience > 0):
        raise InputError(f"patience={patience!r}; it must be a finite number of seconds above 0.")


def prints_key(asked: Asked) -> str:
    """The key of fingerprints: the same for a resumed run, and different for another seed."""
    return f"relaydp {asked.seed}"


def solve_with(
    crew: AgentsAndPlaces,
    parts: Sequence[Part],
    task: ProblemSpec,
    graph: Graph,
    asked: Asked,
    checkpoint: Any = None,
    every: int | None = None,
    progress: bool | Progress | None = None,
    began: float | None = None,
) -> Result:
    """`solve_apart` with existing agents: ask for the public facts, plan, follow the plan, report."""
    began = time.perf_counter() if began is None else began
    abouts, curvatures = _wait(_introduce(crew, task, asked))
    problem = task.outline([each.records for each in abouts], [part.name for part in parts])
    if curvatures is not None:
        problem = problem.with_measured_smoothness(np.array(curvatures))
    plan = _plan(problem, graph, asked)
    identity = _identity(problem, graph, plan, asked, abouts)
    keeper = Keeper(checkpoint, identity, every)
    standing = keeper.load(graph.agents)
    kept = max((each.kept for each in abouts), key=_width)
    prints = tuple(each.fingerprint for each in abouts)
    told = PartySetup(_without_route(plan), graph, asked.seed, abouts[0].raw, kept, prints)
    setup = [crew.put(told)]
    inputs = step_inputs(
        plan.algorithm, graph, 0, plan.facts.sizes, plan.steps, problem.terms, problem.dim, plan.mechanism is None
    )

    def answer(parts: np.ndarray) -> np.ndarray:
        return np.array(model(plan.algorithm, inputs, parts))

    watch = Watch(plan, standing, GROWTH * public_radius(problem))
    try:
        with shown(progress, f"{plan.algorithm.name} on {graph.name}") as report:
            if isinstance(plan.route, Rounds):
                way = go_round(plan, graph, crew, setup, standing, keeper, watch, answer, report)
            else:
                way = walk(plan, crew, setup, standing, keeper, watch, answer, report)
            ending = _wait(way)
    except KeyboardInterrupt:
        ending = RelayEnd("interrupted", standing.position)
    keeper.save(standing)
    _check_charged(plan, standing)
    x = np.zeros(problem.dim) if standing.baton is None else answer(standing.baton)
    return _result(problem, graph, plan, asked, abouts, ending, x, began)


async def _introduce(
    crew: AgentsAndPlaces, task: ProblemSpec, asked: Asked
) -> tuple[list[PartReport], list[float] | None]:
    """Each agent's report on its part, with one number type for all, as in one array."""
    abouts = await crew.ask_all("about")
    raw = str(np.result_type(*{each.raw for each in abouts}))
    if any(each.raw != raw for each in abouts):
        abouts = await crew.ask_all("about", raw)
    private = asked.mechanism in PRICED or (asked.mechanism == AUTO and asked.budget is not None)
    return abouts, None if private else await crew.ask_all("curvature", raw, len(abouts))


def _width(kept: str) -> tuple[int, int]:
    """The order of number types: the widest is used by all, as in one process."""
    order = ("uint8", "float32", "float64")
    return (order.index(kept), 0) if kept in order else (len(order), np.dtype(kept).itemsize)


def _plan(problem: Problem, graph: Graph, asked: Asked) -> Plan:
    """The plan of `relaydp.solve`, from the outline of a problem."""
    plan = make_plan(
        problem,
        graph,
        algorithm=asked.algorithm,
        mechanism=asked.mechanism,
        budget=asked.budget,
        activations=asked.activations,
        walk=asked.walk,
        steps=asked.steps,
        key=Simulated(asked.seed).walk_key,
        start=asked.start,
        ratio=asked.ratio,
        variant=None,
        noise=None,
        limits=asked.limits,
        prior=asked.prior,
    )
    on_network(plan.algorithm)
    if plan.mechanism not in (None, "gradient"):
        raise PrivacyError(
            f"mechanism {plan.mechanism!r} cannot be used; distributed agents support 'gradient' or no mechanism. "
            "Leave it out."
        )
    if isinstance(plan.route, Rounds) and not plan.route.acts.all():
        raise InputError(
            f"{plan.algorithm.name} lets agents skip rounds with these steps; distributed agents must all act in every "
            "round."
        )
    return plan


def _without_route(plan: Plan) -> Plan:
    """The plan as agents need it: without the route, which may have millions of hops, and without the trials."""
    empty = np.zeros((0, plan.facts.agents))
    return replace(
        plan, route=Rounds(empty.astype(bool), empty.astype(np.int32)), ledger=None, outlook=None, prior=None
    )


def _identity(problem: Problem, graph: Graph, plan: Plan, asked: Asked, abouts: Sequence[PartReport]) -> str:
    """SHA-256 of everything that determines the run's numbers: a checkpoint belongs to one such run."""
    way = plan.route
    route = [way.acts] if isinstance(way, Rounds) else [way.holder, way.acts]
    sha = hashlib.sha256()
    facts = [plan.algorithm.name, plan.mechanism, asked.seed, graph.agents, graph.edges.tolist(), problem.spec]
    facts += [facts_config(plan.facts), [tuple(each) for each in abouts], versions()["relaydp"]]
    sha.update(json.dumps(facts, sort_keys=True, default=str).encode())
    for array in (*map(np.asarray, jax.tree.leaves(plan.steps)), plan.scales, plan.sensitivity, *route):
        sha.update(f"{array.dtype.str}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def _check_charged(plan: Plan, standing: Standing) -> None:
    """Check that the releases are each (agent, hop) of the plan up to the current position, once, and no others."""
    who, when, _, _ = plan.releases(standing.position)
    if set(standing.charged) != set(zip(who.tolist(), when.tolist(), strict=True)):
        raise PrivacyError(
            f"the checkpoint records {len(standing.charged)} releases up to hop {standing.position}, and the plan has "
            f"{len(who)}; they do not agree. No result is given, because the checkpoint was edited. Remove it and run "
            "again."
        )


def _result(
    problem: Problem,
    graph: Graph,
    plan: Plan,
    asked: Asked,
    abouts: Sequence[PartReport],
    ending: RelayEnd,
    x: np.ndarray,
    began: float,
) -> Result:
    outcome = Outcome(x, ending.hops, np.empty(0, np.int64), np.empty((0, problem.dim)), None, ending.status)
    status, sentence = _verdict(plan, outcome, None)
    prints = "".join(each.fingerprint for each in abouts)
    budget, limits = asked.budget, asked.limits
    steps = asked.steps if isinstance(asked.steps, str) else plan.summary()["steps"]
    told = {
        "algorithm": asked.algorithm,
        "mechanism": plan.mechanism,
        "budget": None if budget is None else {"epsilon": budget.epsilon, "delta": budget.delta},
        "activations": asked.activations,
        "walk": asked.walk,
        "steps": steps,
        "seed": asked.seed,
        "x0": None,
        "start": asked.start,
        "ratio": asked.ratio,
        "variant": None,
        "noise": None,
        "limits": None if limits is None or budget is None else agent_epsilons(budget, limits, graph.agents),
        "prior": None if plan.prior is None else plan.prior.as_lists(),
    }
    about = {
        **problem.spec,
        "data": problem.data.name,
        "source": None,
        "data_sha256": hashlib.sha256(prints.encode()).hexdigest(),
        "sizes": problem.split.sizes.tolist(),
        "order_sha256": None,
    }
    return make_result(  # noise is keyed by a seed, so that a restarted agent can repeat its release: a simulation
        graph,
        plan,
        told,
        about,
        x=x,
        hops=ending.hops,
        status=status,
        message=sentence,
        budget=budget,
        secret=False,
        began=began,
    )


def _wait(coroutine: Any) -> Any:
    """Run the loop to its end. A notebook already runs a loop in this thread: then ours gets another thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    found: list[Any] = []

    def body() -> None:
        try:
            found.append((True, asyncio.run(coroutine)))
        except BaseException as error:
            found.append((False, error))

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join()
    fine, value = found[0]
    if fine:
        return value
    raise value
