"""audit: test a privacy claim by experiment, in two layers.

First the noise is tested (`relaydp.auditing.noise`): in runs of `solve`'s own loop, on records that the auditor knows,
it computes the noise of every release exactly, and checks that it is the noise that the claim charges for. A failure
refutes the claim, because its epsilon is computed for other noise.

Then two neighbouring problems, D and D', run thousands of times each with fresh noise. An attacker that sees a
transcript guesses which of the two it was; the rate of its errors bounds epsilon from below
(`relaydp.auditing.bounds`). A bound above the claim refutes it, at the stated confidence. A bound below the claim
proves nothing more than that this canary and these attacks found nothing; a bound close to it shows that the accounting
is tight.

No run is used twice: a quarter of them is used to fit the learnt score and choose the thresholds, the rest is counted.
"""

from __future__ import annotations

import secrets
import time
from typing import Any

import numpy as np

from relaydp import defaults
from relaydp.algorithm import find_algorithm
from relaydp.algorithm.relay_gradient import RELAY_GRADIENT
from relaydp.arrays import placed
from relaydp.auditing.canary import Neighbours, built_in, every_canary, neighbours
from relaydp.auditing.noise import Check, check_noise, check_price, check_values, look, look_at_sums, runs_needed
from relaydp.auditing.report import AuditReport, refuted_by_its_noise, refuted_by_its_plan, sentence_of
from relaydp.auditing.scores import bound_epsilon, score_runs
from relaydp.auditing.trials import Evidence, check_memory, collect, public_part
from relaydp.engine.progress import Progress, shown
from relaydp.engine.solver import check_promise
from relaydp.errors import InputError, PrivacyError, choose
from relaydp.graph import Graph, ring
from relaydp.oracle.randomness import SEED_BITS, Secret, Source, check_seed, choose_source
from relaydp.planning.planner import MECHANISMS, make_plan
from relaydp.planning.run_plan import Plan
from relaydp.privacy import Budget, epsilon_exact
from relaydp.privacy.trust import trust_of
from relaydp.problem import Problem

RELEASES = 60  # of all agents together, at least: enough to test their composition, and rare events
ACTIVATIONS = 6  # of each agent, at least
NOISE = 0.1  # share of the error probability for all tests of the noise
HELD_OUT = 0.25  # share of the runs that fit the learnt score and choose thresholds
RUNS = {"gradient": 100_000, "objective": 10_000, "published": 100_000}  # an exact minimiser takes long
LEAST_RUNS = 400  # below this even a perfect attack proves little


def audit(
    algorithm: str = "recal",
    mechanism: str = "gradient",
    budget: Budget = Budget(1.0, 1e-5),  # noqa: B008  (immutable)
    *,
    agents: int = 3,
    graph: Graph | None = None,
    walk: str = defaults.WALK,
    runs: int | None = None,
    activations: int | None = None,
    canary: str = "worst",
    confidence: float = 0.999,
    seed: int | None = None,
    problem: Problem | tuple[Problem, Problem] | None = None,
    variant: str | None = None,
    steps: Any = "tuned",
    ratio: float | None = None,
    trust: str | None = None,
    collusion: int | None = None,
    quorum: int | None = None,
    first_layer: bool = True,
    progress: bool | Progress | None = None,
) -> AuditReport:
    """Test a mechanism's privacy claim by experiment, and report what that proves.

    The first layer tests the noise of every release. The second layer runs two neighbouring problems, D and D', many
    times each, and bounds epsilon from below by how well an attacker distinguishes them. A bound above the claim
    refutes it. A bound below the claim proves nothing more than that this canary and these attacks found nothing.

    A method that sends its copies at the beginning of a round ends with a release that is in no message: `reach` says
    how much of the claim the messages can show.

    The learnt score and all thresholds come from a quarter of the runs, the counts from the others. Four bounds are
    computed (two scores, two kinds), each with a quarter of the error probability, after the tenth of it for the first
    layer: all hold together at `confidence`. A gaussian bound counts for "gradient" only, since only it claims mu-GDP.

    Args:
        algorithm: A name from `relaydp.algorithms()`. Default: "recal".
        mechanism: "gradient" (the default; claims mu-GDP with the budget's mu), "objective" (claims, in real numbers,
            its exact epsilon), or "published" (claims the paper's epsilon).
        budget: The claim to test. Default: Budget(1, 1e-5).
        agents: The number of agents, if neither a graph nor a problem is given. Default: 3.
        graph: Who may send to whom. Default: a ring of `agents`.
        walk: As in `solve`, except "lazy". Default: "tour".
        runs: Runs of the second layer in all, 400 or more, half under D and half under D'; the bound's width falls like
            1/sqrt(runs). Default: 100,000 (10,000 for "objective").
        activations: Releases per agent. Default: enough for 60 of all agents together, and at least 6.
        canary: The record that differs. "worst" (the default) attains the sensitivity; "mislabelled", "stranger",
            "turned" and "long" are more ordinary records. The first layer tests all of them.
        confidence: The probability with which all bounds hold together, between 0.5 and 1. Default: 0.999.
        seed: None (the default): noise is drawn as a private run draws it, from the operating system, or for
            "objective" and "published", which no private run has, as a simulation draws it. A number: as a simulation
            with that seed, so that the audit can be repeated. The agent whose record differs is random, too.
        problem: A Problem one of whose records is replaced by the canary, or your own neighbours (D, D'). Default: a
            small problem in which the worst canary has its full effect.
        variant: As in `solve`.
        steps: As in `solve`. Default: "tuned".
        ratio: As in `solve`.
        trust: As in `solve`. What is tested is then what the worst coalition sees, or a reader of what is published.
        collusion: As in `solve`. The algorithm must be "relay-gradient".
        quorum: As in `solve`. All agents take part in the runs of an audit.
        first_layer: False: do not test the noise, only distinguish D from D'. Default: True.
        progress: As in `solve`. Default: None, a bar when stderr is a terminal.

    Returns:
        An AuditReport. `verdict` is "consistent" or "refuted", and `sentence` says why. `claimed` is the claim's
        epsilon, `epsilon` the best lower bound, `reach` about the largest epsilon that this canary can show (None if
        the noise is not Gaussian). `checks` has the first layer, `bounds` every bound, and `summary()` is one JSON
        object.

    Raises:
        InputError: A name is unknown; `walk`, `runs`, `confidence`, `seed` or `activations` is out of range; D and D'
            are not neighbours, or have the same gradient at the start; or the runs would take too much memory.
        PrivacyError: `budget` is not a Budget, the algorithm does not have the mechanism, or secret noise cannot
            guarantee the claim.

    Example:
        >>> import relaydp as rd
        >>> report = rd.audit(budget=rd.Budget(4.0, 1e-5), runs=8000, seed=0)
        >>> report.verdict, report.epsilon < report.claimed
        ('consistent', True)
    """
    began = time.perf_counter()
    _check(algorithm, mechanism, budget, walk, runs, confidence, seed)
    if problem is not None:
        agents = (problem if isinstance(problem, Problem) else problem[0]).agents
    network = ring(agents) if graph is None else graph
    # only simulations have noise in the objective, and an audit of it needs no secret noise, only a new seed
    drawn = secrets.randbits(SEED_BITS) if seed is None and mechanism == "objective" else seed
    source = choose_source(drawn, mechanism)
    draw = np.random.default_rng(secrets.randbits(64) if seed is None else seed)  # for the public choices of an audit
    by_rule = isinstance(steps, str) and steps == "tuned" and ratio is None  # what plans for accuracy need
    ruled = by_rule and mechanism == "gradient" and find_algorithm(algorithm) is RELAY_GRADIENT
    given = built_in(network.agents, mechanism, int(draw.integers(2**31)), ruled) if problem is None else problem
    whom = trust_of(trust, collusion, quorum, network.agents)
    pair, others = _neighbours(given, canary, draw)
    sides = [pair.first, pair.second, *others]
    plans = [
        make_plan(
            side,
            network,
            algorithm=algorithm,
            mechanism=mechanism,
            budget=budget,
            activations=max(ACTIVATIONS, -(-RELEASES // network.agents)) if activations is None else activations,
            walk=walk,
            steps=steps,
            key=source.walk_key,
            start=0,
            ratio=ratio,
            variant=variant,
            noise=None,
            trust=whom,
        )
        for side in sides  # all public facts are the same, and so the plan
    ]
    plan = plans[0]
    if isinstance(source, Secret):
        check_promise(plan)
    facts: dict[str, Any] = {
        "algorithm": algorithm,
        "mechanism": mechanism,
        "variant": plan.variant,
        "agents": network.agents,
        "graph": network.name,
        "walk": plan.walk,
        "activations": plan.activations,
        "canary": "given" if isinstance(problem, tuple) else canary,
        "agent": pair.agent,
        "trust": None if plan.trust is None else plan.trust.to_json(),
        "noise": "secret" if isinstance(source, Secret) else "seed",
        "claimed": plan.epsilon if plan.private else plan.epsilon_paper,
        "delta": budget.delta,
        "confidence": confidence,
    }
    if leaks := _leaks(plans):
        return refuted_by_its_plan(facts, leaks, time.perf_counter() - began)
    each = (RUNS[mechanism] if runs is None else runs) // 2
    check_memory(plan, each)
    checks, doubt = [], 1.0 - confidence
    if plan.private and first_layer:
        checks = _look_at_noise(sides, network, plan, source, facts, NOISE * doubt, pair.agent, progress)
        doubt *= 1.0 - NOISE
        failed = [check for check in checks if not check.passed]
        if failed:
            return refuted_by_its_noise(facts, checks, failed, time.perf_counter() - began)
    with shown(progress, f"{2 * each} runs of {algorithm}") as report:
        under_d, under_other = collect(pair, network, plan, source, each, report)
    return _distinguish(facts, under_d, under_other, checks, doubt, began)


def _leaks(plans: list[Plan]) -> list[str]:
    """The public decisions that the record changes; in a plan without a guarantee they may differ."""
    if not plans[0].private:
        return []
    return sorted({name for other in plans[1:] for name in plan_differences(plans[0], other)})


def _distinguish(
    facts: dict[str, Any], under_d: Evidence, under_other: Evidence, checks: list[Check], doubt: float, began: float
) -> AuditReport:
    """The second layer's verdict: the best bound that applies to the claim, beside the claim."""
    each, delta = len(under_d.ratio), facts["delta"]
    scores, held_out = score_runs(under_d, under_other, int(HELD_OUT * each))
    bounds = tuple(
        bound
        for name, (first, second) in scores.items()
        for bound in bound_epsilon(name, first, second, held_out[name], delta, doubt / 4.0)
    )
    gaussian = facts["mechanism"] == "gradient"
    counted = [bound for bound in bounds if gaussian or bound.kind == "any"]
    best = max(counted, key=lambda bound: bound.epsilon)
    verdict = "refuted" if best.epsilon > facts["claimed"] else "consistent"
    reach = None
    if gaussian:
        reach = epsilon_exact(float(np.mean([*under_d.reach, *under_other.reach])) / 2.0, delta)
    return AuditReport(
        **facts,
        epsilon=best.epsilon,
        runs=2 * each,
        reach=reach,
        bounds=bounds,
        checks=tuple(checks),
        verdict=verdict,
        sentence=sentence_of(facts, best, verdict, 2 * each),
        seconds=time.perf_counter() - began,
        scores=scores,
    )


def _neighbours(
    given: Problem | tuple[Problem, Problem], canary: str, draw: np.random.Generator
) -> tuple[Neighbours, list[Problem]]:
    """D and D', and the same problem with other kinds of record in that place, which is random."""
    if isinstance(given, tuple):
        return neighbours(given, canary), []
    agent = int(draw.integers(given.agents))
    place = int(draw.integers(given.split.sizes[agent]))
    pair = neighbours(given, canary, agent, place)
    return pair, every_canary(given, agent, place)


def _look_at_noise(
    problems: list[Problem],
    network: Graph,
    plan: Plan,
    source: Source,
    facts: dict[str, Any],
    doubt: float,
    victim: int,
    progress: bool | Progress | None,
) -> list[Check]:
    """The first layer: cost and values, without noise; then the noise."""
    known = public_part(plan, problems[0], network, placed(np.zeros(problems[0].dim)))
    count = runs_needed(int(plan.route.acts.sum()), plan.facts.dim)
    with shown(progress, f"the noise of {count} runs of {facts['algorithm']}") as report:
        if plan.sums:
            seen, asked, change = look_at_sums(problems, network, plan, known, source, victim, report)
        else:
            seen, guess, change = look(problems, network, plan, known, source, report)
            asked = np.asarray(guess.point)[np.flatnonzero(guess.read)]
    noise = [check for part in seen for check in check_noise(part, doubt / len(seen))]
    return [
        check_price(plan, problems[0], network, facts["claimed"], facts["delta"]),
        check_values(problems, network, plan, asked, change),
        *noise,
    ]


def _check(
    algorithm: str, mechanism: str, budget: Budget, walk: str, runs: int | None, confidence: float, seed: int | None
) -> None:
    choose("mechanism", mechanism, MECHANISMS)
    if find_algorithm(algorithm).data == "statistics":
        raise InputError(
            f"{algorithm} releases sums of squares, and an audit tests the noise on gradients. Audit another algorithm "
            "('recal'); tests/oracle/test_statistics.py measures this one's noise."
        )
    if walk == "lazy":
        raise InputError("walk='lazy' lets a holder act unseen, so that messages show less; audit another walk.")
    if not isinstance(budget, Budget):
        raise PrivacyError(f"budget={budget!r}; it must be Budget(epsilon=..., delta=...), the claim to test.")
    whole = isinstance(runs, int | np.integer) and not isinstance(runs, bool)
    if runs is not None and not (whole and runs >= LEAST_RUNS):
        raise InputError(f"runs={runs!r}; it must be a whole number, at least {LEAST_RUNS}: fewer prove nothing.")
    if not 0.5 < confidence < 1.0:
        raise InputError(f"confidence={confidence!r}; it must be a number between 0.5 and 1, such as 0.999.")
    if seed is not None:
        check_seed(seed)


def plan_differences(one: Plan, two: Plan) -> list[str]:
    """Which public decisions differ between the plans for D and D'. In a private run there must be none."""
    parts: dict[str, tuple[Any, Any]] = {
        **{f"steps.{name}": (getattr(one.steps, name), getattr(two.steps, name)) for name in one.steps._fields},
        "activations": (one.activations, two.activations),
        "scales": (one.scales, two.scales),
        "sensitivity": (one.sensitivity, two.sensitivity),
        "clip": (one.facts.clip, two.facts.clip),
        "route": (one.route.acts, two.route.acts),
    }
    return [name for name, (a, b) in parts.items() if not np.array_equal(np.asarray(a), np.asarray(b))]
