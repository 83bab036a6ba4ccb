"""solve: train one model over the graph, under a budget or without."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from relaydp import defaults
from relaydp.algorithm import find_algorithm
from relaydp.algorithm.relay_gradient import RELAY_GRADIENT
from relaydp.engine.baselines import measure_baselines
from relaydp.engine.loop import Outcome, run
from relaydp.engine.preparation import with_first
from relaydp.engine.progress import Progress, check_progress, shown
from relaydp.engine.trace import TINY, make_trace
from relaydp.errors import InputError, PrivacyError, RelayError, short
from relaydp.graph import Graph, Route
from relaydp.oracle.randomness import Secret, Source, choose_source
from relaydp.planning.directions import Directions
from relaydp.planning.planner import (
    AUTO,
    Limits,
    agent_epsilons,
    check_setting,
    held_together,
    make_plan,
    resolve_algorithm,
    resolve_mechanism,
)
from relaydp.planning.run_plan import Plan
from relaydp.privacy import SOUND, Budget, PrivacyAccount, proven
from relaydp.privacy.budget import check_records
from relaydp.privacy.trust import CURATOR, trust_of
from relaydp.problem import Facts, Problem, Reference, minimise
from relaydp.problem.coordinates import Coordinates
from relaydp.result import Baselines, Result, Trace, Transcript, versions

TRANSCRIPT_BYTES = 2**31  # a transcript larger than 2 GiB is refused rather than swapped
SMALL = 10**6  # values: with fewer, a minimiser takes no longer than what is compiled for it


def solve(
    problem: Problem,
    graph: Graph,
    algorithm: str = defaults.ALGORITHM,
    mechanism: str | None = AUTO,
    budget: Budget | None = None,
    *,
    activations: int | None = None,
    walk: str = defaults.WALK,
    steps: Any = "tuned",
    objective: str | None = None,
    seed: int | None = None,
    account: PrivacyAccount | None = None,
    x0: Any = None,
    start: int = 0,
    ratio: float | None = None,
    limits: Limits = None,
    prior: Problem | Directions | None = None,
    trust: str | None = None,
    collusion: int | None = None,
    quorum: int | None = None,
    variant: str | None = None,
    noise: float | None = None,
    transcript: bool = True,
    trace: bool | int = True,
    reference: bool | None = None,
    progress: bool | Progress | None = None,
) -> Result:
    """Train one model over the graph, within a privacy budget or without privacy.

    Every agent keeps its records. A relay passes a baton along the edges of the graph; a synchronous method sends to
    neighbours in rounds. A run with a budget, a sound mechanism and no seed is private; with a seed it is a simulation.

    Args:
        problem: The loss, the weights and the records, split over the agents.
        graph: Who may send to whom. It has as many agents as the problem.
        algorithm: A name from `relaydp.algorithms()`. Default: "auto", which is "relay-gradient" for a logistic or
            softmax problem with a budget; "sufficient-statistics" for least squares with a budget, label_bound and many
            records beside the budget's noise (docs/planning-for-loss.md); and "recal" without a budget, for other
            losses, on a random walk, for classifiers with objective="loss", and with steps="paper", a prior, or
            mechanism "published". With steps of your own it is the one of the three that has their names. With
            `collusion`, or trust="curator", it is always "relay-gradient".
        mechanism: "gradient" (sound; the default when there is a budget), "objective" (the default of methods that
            minimise exactly; in simulations alone, see `seed`), "published" (the paper's: see docs/privacy.md), or
            None, without noise. The default, "auto", is None when there is no budget.
        budget: Budget(epsilon, delta) for every agent's records; the whole run stays within it. Default: None, no
            privacy.
        activations: The PLF. Without privacy (and under "published") the run ends when some agent has acted this often;
            under "gradient" every agent acts exactly this often and then only relays. Default: chosen from public facts
            when there is a budget, else 300; 1 for "sufficient-statistics".
        walk: "tour" (the default: possible on every connected graph, and each lap visits every agent), "cyclic",
            "random", "lazy" or "nonbacktracking". Synchronous methods have no walk.
        steps: "tuned" (the default: for this graph and walk, from public facts in a private run), "paper", or the
            algorithm's own numbers; for recal {"alpha": ..., "beta": ..., "gamma": ...} for the f_i/n, r/n form.
        objective: What a budget is planned for. "accuracy": relay-gradient clips far below the largest gradient, which
            costs objective and gains accuracy. "loss": the least F. Default: None, which is "accuracy" for
            relay-gradient on logistic and softmax problems with tuned steps and no prior, and "loss" for everything
            else, where "accuracy" is refused.
        seed: None (the default): a run with a budget is private, its noise is drawn from the operating system and kept
            nowhere, and no two runs are alike. A number: a simulation, the same result bit for bit on one machine, with
            no promise, since whoever knows the seed knows the noise. "objective" needs one: its proof is about real
            numbers, and float64 keeps no promise of it. Runs without a budget have no noise; there it is the walk's
            seed, and None is 0.
        account: A PrivacyAccount that a private run is charged to, before it uses a record: it adds up what all runs
            over the same records cost, and refuses the one that would overspend.
        x0: The model to start from; it must not depend on the records. Default: zeros.
        start: The agent that holds the baton first. Default: 0.
        ratio: rho_(t+1)/rho_t of the noise schedule (the paper's R). Default: the best spread for the final model
            ("published": 1).
        limits: epsilon of agents that allow less than the budget: {agent: epsilon}, or a list with one number per
            agent.
        prior: A Problem over PUBLIC records like the private ones: the budget is then planned for its curvature and
            signal instead of a guess from the bounds, and the best plans are tried on it. Directions are accepted too.
        trust: "nobody" (the default): all other agents may collude, and each hides its records by its own noise.
            "curator": one organisation has all records and publishes what comes out; the noise is the least there can
            be, and no agent is hidden from another.
        collusion: Instead of trust: the most parties that collude, 1 or more. Parties are seen in sums only, and share
            the noise: with 8 parties and collusion=1 there is 1.07 times a curator's, with trust in nobody 2.83 times.
            See docs/masked-relay.md.
        quorum: With collusion: the fewest parties in a lap. Default: all of them.
        variant: A variant of "published": for recal "memoryless", "carried" or "replace", for d-admm "messages" or
            "objective".
        noise: For "published" only: its first scale s_1, instead of a budget.
        transcript: Whether to keep everything that was sent. Default: True.
        trace: Whether to measure the run (not covered by epsilon). There are up to 201 points, and fewer where
            measuring would take more than a twentieth of the run's time. A number, 2 or more, asks for so many points.
            Default: True.
        reference: Whether to compute the minimiser, which relative errors are measured against (not covered by
            epsilon). Default: None, which is True except for classifiers planned for accuracy.
        progress: None (the default) shows a bar when stderr is a terminal; True or False decides; a function is called
            with (hops done, hops in all).

    Returns:
        A Result: the model `x`, what the run cost (`epsilon`, `ledger`), what it sent (`messages`, `transcript`) and
        how it went (`status`, `message`, `trace`). A run that diverged or was interrupted says so in `status`.

    Raises:
        InputError: A name is unknown, a number is out of range, "accuracy" cannot be planned for, the graph and the
            problem have different numbers of agents, the graph does not allow the walk, the transcript would take more
            than 2 GiB, or a held-out label is not one of the classes.
        PrivacyError: The run would not be private as asked: a mechanism that needs a budget has none, or the algorithm
            does not have it; "objective" has no seed; classes, features or the split were found in the records; delta
            is 1/m or more for an agent with m records; a limit is above the budget; `collusion` is 0, or not less than
            `quorum`; or the account would be overspent.

    Example:
        >>> import relaydp as rd
        >>> problem = rd.logistic(rd.load_data("breast-cancer"), agents=4, l2=1e-2)
        >>> result = rd.solve(problem, rd.ring(4), budget=rd.Budget(epsilon=2.0, delta=1e-4), walk="cyclic")
        >>> result.status, round(result.epsilon, 6)
        ('finished', 2.0)
    """
    began = time.perf_counter()
    check_setting(problem, graph)
    check_budget(budget)
    check_progress(progress)
    _check_trace(trace)
    whom = trust_of(trust, collusion, quorum, graph.agents)
    named = resolve_algorithm(
        algorithm,
        problem,
        budget=budget,
        mechanism=mechanism,
        objective=objective,
        walk=walk,
        steps=steps,
        prior=prior,
        ratio=ratio,
        trust=whom,
    )
    method = find_algorithm(named)
    source = choose_source(seed, resolve_mechanism(mechanism, budget, noise, method, algorithm), method)
    if isinstance(source, Secret):
        problem.check_declared(prior)
    if account is not None:
        check_account(account, source)
    plan = make_plan(
        problem,
        graph,
        algorithm=algorithm,
        mechanism=mechanism,
        budget=budget,
        activations=activations,
        walk=walk,
        steps=steps,
        key=source.walk_key,
        start=start,
        ratio=ratio,
        variant=variant,
        noise=noise,
        limits=limits,
        prior=prior,
        objective=objective,
        trust=whom,
    )
    wanted = not plan.for_accuracy if reference is None else reference
    found = _find_reference(problem) if wanted and account is None else None  # an account is asked before
    if isinstance(source, Secret):
        check_promise(plan)
        _check_shares(plan)
    first = _start(problem, x0)
    _check_memory(plan, problem.dim, transcript)
    if trace:
        _check_held_out(problem)
    if account is not None and plan.ledger is not None:
        records = int(plan.facts.sizes.sum())
        what = f"{named}, {problem.data.name}, {records} records, {graph.agents} agents"
        if whom.sums:  # all runs of an account are promised together against those alone whom each is against
            what += ", trusted curator" if whom.kind == CURATOR else f", at most {whom.collusion} collude"
        account.charge(plan.ledger, what, held_together(plan.facts.sizes, whom))
        found = _find_reference(problem) if wanted else None
    with shown(progress, f"{plan.algorithm.name} on {graph.name}") as report:
        outcome = run(problem, graph, plan, first, source, transcript, report)
    best, lacking = _best(found, isinstance(source, Secret))
    history = None
    if trace:
        most = None if isinstance(trace, bool | np.bool_) else int(trace)
        history = make_trace(problem, plan, first, outcome.at, outcome.points, best, most)
    status, sentence = _verdict(plan, outcome, history)
    if lacking:
        sentence += f" There is no relative error: {lacking}"
    if best is not None and not plan.private and np.linalg.norm(best.x) <= TINY:
        sentence += " The minimiser is x* = 0 here, so relative error has no meaning: lower l1."
    asked = {
        "algorithm": named,
        "mechanism": plan.mechanism,
        "budget": None if budget is None else {"epsilon": budget.epsilon, "delta": budget.delta},
        "activations": activations,
        "walk": walk,
        "steps": steps if isinstance(steps, str) else {k: np.asarray(v).tolist() for k, v in _mapping(steps).items()},
        **({"walk_seed": source.walk_seed} if isinstance(source, Secret) else {"seed": source.seed}),
        "objective": objective,
        "x0": None if x0 is None else np.asarray(x0).tolist(),
        "start": start,
        "ratio": ratio,
        "variant": variant,
        "noise": noise,
        "limits": None if limits is None or budget is None else agent_epsilons(budget, limits, graph.agents),
        "prior": None if plan.prior is None else plan.prior.as_lists(),
        "trust": trust,
        "collusion": collusion,
        "quorum": quorum,
    }
    return make_result(
        graph,
        plan,
        asked,
        problem_config(problem),
        x=outcome.x,
        hops=outcome.hops,
        status=status,
        message=sentence,
        budget=budget,
        secret=isinstance(source, Secret),
        began=began,
        trace=history,
        transcript=_transcript(graph, plan, outcome) if transcript else None,
        reference=best,
        baselines=measure_baselines(problem, outcome.x, best) if trace else None,
        coordinates=outcome.coordinates,
    )


def make_result(
    graph: Graph,
    plan: Plan,
    asked: dict[str, Any],
    problem: dict[str, Any],
    *,
    x: np.ndarray,
    hops: int,
    status: str,
    message: str,
    budget: Budget | None,
    secret: bool,
    began: float,
    trace: Trace | None = None,
    transcript: Transcript | None = None,
    reference: Reference | None = None,
    baselines: Baselines | None = None,
    coordinates: Coordinates | None = None,
) -> Result:
    """The result of a plan that was followed for so many hops; `asked` and `problem` are what its folder remembers.

    secret   whether the noise came from the operating system: no other run has a promise, whatever its plan would cost
    """
    kept = secret and plan.mechanism in SOUND and plan.ledger is not None
    messages = int(plan.tally.messages[hops])
    return Result(
        x=x if status != "diverged" else np.full_like(x, np.nan),
        status=status,
        message=message,
        algorithm=asked["algorithm"],
        mechanism=plan.mechanism,
        variant=plan.variant,
        agents=graph.agents,
        graph=graph.name,
        walk=plan.walk,
        budget=budget,
        secret=secret,
        rho=plan.ledger.rho if kept and plan.ledger is not None else math.inf,
        epsilon=plan.epsilon if kept else math.inf,
        epsilon_planned=plan.epsilon,
        epsilon_paper=plan.epsilon_paper,
        plf=int(plan.tally.plf[hops]),
        activations=plan.activations,
        hops=hops,
        messages=messages,
        vectors=messages * plan.algorithm.vectors_of(plan.facts.dim),
        messages_paper=messages * plan.algorithm.paper_factor,
        ledger=plan.charged(hops),
        steps=plan.steps,
        plan=plan.summary(),
        trace=trace,
        transcript=transcript,
        reference=reference,
        seconds=time.perf_counter() - began,
        config={
            "problem": problem,
            "graph": graph_config(graph),
            "facts": facts_config(plan.facts),
            "solve": asked,
        },
        versions=versions(),
        baselines=baselines,
        coordinates=coordinates,
    )


def check_budget(budget: object) -> None:
    """Refuse what is neither a Budget nor None."""
    if budget is not None and not isinstance(budget, Budget):
        raise PrivacyError(f"budget={budget!r}; needed Budget(epsilon=..., delta=...).")


def check_promise(plan: Plan) -> None:
    """Refuse a promise that says nothing, or that secret noise cannot keep: a delta as large as 1/m or smaller than its
    floor, more releases than it is proven for."""
    if plan.budget is None:
        return
    budget = plan.budget
    check_records(budget, plan.facts.sizes if plan.trust is None else held_together(plan.facts.sizes, plan.trust))
    proven.check_promise(budget.epsilon, budget.delta, plan.released, plan.activations)


def _check_shares(plan: Plan) -> None:
    """Refuse a promise about sums to an algorithm that is not relaydp's own. Its step sees each agent's share before
    the lap is closed, with too little noise for one agent, and nothing keeps a step from sending it."""
    if plan.sums and plan.algorithm.step is not RELAY_GRADIENT.step:
        raise PrivacyError(
            f"{plan.algorithm.name} is an algorithm of your own, and in a run with collusion= or trust='curator' it "
            "would see what one agent adds to a sum, which has too little noise of its own; needed relay-gradient. "
            "Leave collusion= or trust= out, or pass seed= for a simulation."
        )


def check_account(account: object, source: Source) -> None:
    """An account is for promises: refuse to lay one beside a run that makes none."""
    if not isinstance(account, PrivacyAccount):
        raise PrivacyError(f"account={short(account)}; it must be a relaydp.PrivacyAccount, or None.")
    if not isinstance(source, Secret):
        raise PrivacyError(
            f"account={short(account)} for a run without a promise; needed a budget, a sound mechanism and no "
            "seed. A simulation or a run without privacy is not charged, and whoever gives its model away tells more "
            "than any account allows: leave the seed out, or the account."
        )


def problem_config(problem: Problem) -> dict[str, Any]:
    """What a result folder remembers of its problem: never a record, only names, weights and a checksum."""
    return {
        **problem.spec,
        "data": problem.data.name,
        "source": None if problem.data.source is None else dict(problem.data.source),
        "data_sha256": problem.data.digest(),
        "sizes": problem.split.sizes.tolist(),
        "order_sha256": order_digest(problem),
    }


def order_digest(problem: Problem) -> str:
    return hashlib.sha256(np.ascontiguousarray(problem.split.order, dtype=np.int64).tobytes()).hexdigest()


def graph_config(graph: Graph) -> dict[str, Any]:
    return {"name": graph.name, "agents": graph.agents, "edges": graph.edges.tolist()}


def facts_config(facts: Facts) -> dict[str, Any]:
    """What the plan was made from; `public` says whether it was known without the records."""
    return {
        "agents": facts.agents,
        "sizes": facts.sizes.tolist(),
        "dim": facts.dim,
        "smoothness": facts.smoothness.tolist(),
        "modulus": facts.modulus,
        "clip": facts.clip if math.isfinite(facts.clip) else None,
        "public": facts.public,
    }


def _mapping(steps: Any) -> dict[str, Any]:
    return dict(steps._asdict()) if hasattr(steps, "_asdict") else dict(steps)


def _find_reference(problem: Problem) -> Callable[[], Reference]:
    """Where the minimiser can be had. A small problem's is mostly compilation, and made beside the plan and the run.

    A large problem's waits its turn: it would take cores from the run, and hold up the end of a run that is refused.
    """
    device = getattr(jax.config, "jax_default_device", None)  # set for this thread alone, perhaps
    if len(problem.data) * problem.dim > SMALL or device is not None:
        return lambda: minimise(problem)
    pool = ThreadPoolExecutor(1)
    found = pool.submit(minimise, problem)
    pool.shutdown(wait=False)
    return found.result


def _best(found: Callable[[], Reference] | None, secret: bool) -> tuple[Reference | None, str]:
    """The minimiser, where it was asked for, or the reason why there is none.

    That there is none (separable classes without a ridge), or that it is hard to find, is no reason to lose the model:
    the run then has no reference. It is a fact about the records, so that a private run does not say it.
    """
    try:
        return (None if found is None else found()), ""
    except RelayError as error:
        return None, "" if secret else str(error)


def _check_trace(trace: object) -> None:
    if not (isinstance(trace, bool | np.bool_) or (isinstance(trace, int | np.integer) and trace >= 2)):
        raise InputError(f"trace={trace!r}; needed True, False, or at how many points to measure the run, 2 or more.")


def _check_held_out(problem: Problem) -> None:
    """Refuse held-out labels that no accuracy can be measured on before the run, which would be paid for and lost."""
    if problem.data.test is None or not problem.classifies:
        return
    try:
        problem.encode_labels(problem.data.test.y)
    except InputError:  # which quotes the label
        known = short(np.asarray(problem.classes).tolist())
        raise InputError(
            f"a held-out record's label is none of the classes {known}, so that accuracy cannot be measured; nothing "
            "ran. Correct the label, leave the record out, or pass trace=False."
        ) from None


def _start(problem: Problem, x0: Any) -> np.ndarray:
    if x0 is None:
        return np.zeros(problem.dim)
    try:
        first = np.asarray(x0, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"x0={x0!r}; needed {problem.dim} numbers that do not depend on the records.") from error
    if first.shape != (problem.dim,) or not np.isfinite(first).all():
        raise InputError(f"x0 has shape {first.shape}; needed ({problem.dim},), finite, independent of the records.")
    return first


def _check_memory(plan: Plan, dim: int, transcript: bool) -> None:
    numbers = dim * plan.algorithm.vectors_of(dim) + (plan.released if plan.preparing else 0)  # the last: `with_first`
    size = int(plan.tally.messages[-1]) * numbers * 8
    if transcript and size > TRANSCRIPT_BYTES:
        raise InputError(
            f"the transcript of {len(plan.route)} hops would take {size / 2**30:.1f} GiB; pass transcript=False, or "
            "ask for fewer activations."
        )


def _transcript(graph: Graph, plan: Plan, outcome: Outcome) -> Transcript | None:
    """What an eavesdropper sees: the messages that left their agent, as sent, one row each."""
    if outcome.sent is None:
        return None
    way, until, links = plan.route, outcome.hops, plan.algorithm.links
    payload = with_first(outcome.first, outcome.sent._asdict())
    if isinstance(way, Route) and links == "hop":
        left = np.flatnonzero(way.holder[:until] != way.receiver[:until])
        rows = {name: part[left] for name, part in payload.items()}
        return Transcript(way.holder[left], way.receiver[left], rows)
    if isinstance(way, Route):  # pushes: the acting holder's slots, one a neighbour
        hop, slot = _occupied(graph, way.holder[:until], way.acts[:until])
        sender = way.holder[hop]
    elif links == "star":
        hop, sender = np.nonzero(way.acts[:until])
        rows = {name: part[hop, sender] for name, part in payload.items()}
        return Transcript(sender.astype(np.int32), np.full(len(sender), -1, np.int32), rows)
    else:
        hop, agent = np.nonzero(way.acts[:until])
        order, slot = _occupied(graph, agent, np.ones(len(agent), bool))
        hop, sender = hop[order], agent[order]
    receiver = graph.flat[graph.first[sender] + slot]
    at = (hop, slot) if isinstance(way, Route) else (hop, sender) if links == "neighbours" else (hop, sender, slot)
    rows = {name: part[at] for name, part in payload.items()}
    return Transcript(sender.astype(np.int32), receiver.astype(np.int32), rows)


def _occupied(graph: Graph, agents: np.ndarray, acts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(row, slot) for every neighbour of every acting agent in a list of them."""
    rows = np.flatnonzero(acts)
    degrees = graph.degree[agents[rows]]
    repeated = np.repeat(rows, degrees)
    slot = np.arange(len(repeated)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    return repeated, slot


def _verdict(plan: Plan, outcome: Outcome, trace: Trace | None) -> tuple[str, str]:
    """The status, and the sentence that goes with it."""
    status = outcome.status
    # Without privacy we may look: a model worse than the start is no answer. A private run only looks at the baton.
    if status == "finished" and not plan.private and plan.mechanism is None and trace is not None:
        if not trace.objective[-1] <= trace.objective[0] * (1 + 1e-9) + 1e-12 and trace.activations[-1] > 2:
            status = "diverged"
    if status == "diverged":
        return status, (
            f"The run grew instead of settling and was stopped after {outcome.hops} hops; there is no answer. The "
            "steps are too long for this graph and walk: use steps='tuned', walk='tour', or a smaller gamma."
        )
    if status == "interrupted":
        return status, (
            f"Interrupted after {outcome.hops} of {len(plan.route)} hops; x is the model of that moment. The guarantee "
            "is still that of the whole plan."
        )
    return status, f"All {plan.activations} activations were made in {outcome.hops} hops."
