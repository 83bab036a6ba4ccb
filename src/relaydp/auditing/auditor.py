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

import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaydp import defaults
from relaydp.algorithm import find_algorithm
from relaydp.arrays import placed
from relaydp.auditing.bounds import epsilon_limit, mu_limit
from relaydp.auditing.canary import Neighbours, built_in, every_canary, neighbours
from relaydp.auditing.noise import Check, check_noise, check_price, check_values, look, runs_needed
from relaydp.auditing.trials import Evidence, check_memory, collect, public_part
from relaydp.certificate import plain
from relaydp.engine.progress import Progress, shown
from relaydp.engine.solver import check_promise
from relaydp.errors import InputError, PrivacyError, choose
from relaydp.graph import Graph, ring
from relaydp.oracle.randomness import SEED_BITS, Secret, Source, check_seed, choose_source
from relaydp.planning.planner import MECHANISMS, make_plan
from relaydp.planning.run_plan import Plan
from relaydp.privacy import SOUND, Budget, epsilon_exact
from relaydp.problem import Problem

RELEASES = 60  # of all agents together, at least: enough to test their composition, and rare events
ACTIVATIONS = 6  # of each agent, at least
NOISE = 0.1  # share of the error probability for all tests of the noise
RUNS = {"gradient": 100_000, "objective": 10_000, "published": 100_000}  # an exact minimiser takes long
HELD_OUT = 0.25  # share of the runs that fit the learnt score and choose thresholds
LEAST_RUNS = 400  # below this even a perfect attack proves little
THRESHOLDS = 200  # tried on the held-out runs
FLOOR = 1e-9  # least variance in the learnt score, in units of each residual's spread, which may be 0


@dataclass(frozen=True)
class Bound:
    """One lower bound on epsilon, valid together with the report's others at the report's confidence."""

    score: str  # "ratio" or "learnt"
    kind: str  # "any": for any mechanism; "gaussian": refutes a claim of mu-GDP only
    epsilon: float
    mu: float | None  # of a gaussian bound
    threshold: float
    false_alarms: int  # runs under D that were called D'
    misses: int  # runs under D' that were called D
    runs: int  # counted, on each side


@dataclass(frozen=True, eq=False)
class AuditReport:
    """The claim, what the experiment proves, and the verdict."""

    algorithm: str
    mechanism: str
    variant: str | None
    agents: int
    graph: str
    walk: str | None
    activations: int
    canary: str
    claimed: float  # epsilon, by the mechanism's own account (published: its paper's)
    delta: float
    epsilon: float  # the best lower bound that applies to the claim
    confidence: float
    runs: int  # in all: half under D, half under D'; 0 if the first layer refuted the claim
    reach: float | None  # about the largest epsilon that this canary can show; None if the noise is not Gaussian
    bounds: tuple[Bound, ...]
    checks: tuple[Check, ...]  # of the first layer; empty for the published mechanism, whose noise is elsewhere
    noise: str  # the source of the noise of the runs: "secret", as in a private run, or "seed"
    agent: int  # whose record differs
    verdict: str  # "consistent" or "refuted"
    sentence: str
    seconds: float
    scores: dict[str, tuple[np.ndarray, np.ndarray]] = field(repr=False)  # (under D, under D'), of the counted runs

    @property
    def refuted(self) -> bool:
        """Whether the verdict is "refuted"."""
        return self.verdict == "refuted"

    def best(self, kind: str) -> Bound | None:
        """The largest bound of a kind, or None if no run was counted."""
        return max((bound for bound in self.bounds if bound.kind == kind), key=lambda b: b.epsilon, default=None)

    def summary(self) -> dict[str, Any]:
        """The report in one JSON object. An infinite bound is null; its sentence says why."""
        names = (
            "algorithm",
            "mechanism",
            "variant",
            "agents",
            "graph",
            "walk",
            "activations",
            "canary",
            "agent",
            "noise",
        )
        return {
            **{name: getattr(self, name) for name in names},
            "claimed_epsilon": self.claimed,
            "delta": self.delta,
            "epsilon_lower_bound": plain(self.epsilon),
            "confidence": self.confidence,
            "runs": self.runs,
            "reach": plain(self.reach),
            "checks": [vars(check) for check in self.checks],
            "bounds": [vars(bound) for bound in self.bounds],
            "verdict": self.verdict,
            "sentence": self.sentence,
            "seconds": round(self.seconds, 3),
        }

    def __str__(self) -> str:
        return self.sentence


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
    if isinstance(problem, Problem):
        agents = problem.agents
    elif problem is not None:
        agents = problem[0].agents
    network = ring(agents) if graph is None else graph
    # only simulations have noise in the objective, and an audit of it needs no secret noise, only a new seed
    drawn = secrets.randbits(SEED_BITS) if seed is None and mechanism == "objective" else seed
    source = choose_source(drawn, mechanism)
    draw = np.random.default_rng(secrets.randbits(64) if seed is None else seed)  # for the public choices of an audit
    given = built_in(network.agents, mechanism, int(draw.integers(2**31))) if problem is None else problem
    pair, others = _neighbours(given, canary, draw)
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
        )
        for side in (pair.first, pair.second, *others)  # all public facts are the same, and so the plan
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
        "noise": "secret" if isinstance(source, Secret) else "seed",
        "claimed": plan.epsilon if plan.private else plan.epsilon_paper,
        "delta": budget.delta,
        "confidence": confidence,
    }
    leaks = sorted({name for other in plans[1:] for name in plan_differences(plan, other)}) if plan.private else []
    if leaks:
        return _refuted_by_its_plan(facts, leaks, time.perf_counter() - began)
    checks, doubt = [], 1.0 - confidence
    each = (RUNS[mechanism] if runs is None else runs) // 2
    check_memory(plan, each)
    if plan.private and first_layer:
        checks = _look_at_noise(
            [pair.first, pair.second, *others], network, plan, source, facts, NOISE * doubt, progress
        )
        doubt *= 1.0 - NOISE
        failed = [check for check in checks if not check.passed]
        if failed:
            return _refuted_by_its_noise(facts, checks, failed, time.perf_counter() - began)
    with shown(progress, f"{2 * each} runs of {algorithm}") as report:
        under_d, under_other = collect(pair, network, plan, source, each, report)
    scores, held_out = _scores(under_d, under_other, int(HELD_OUT * each))
    bounds = tuple(
        bound
        for name, (first, second) in scores.items()
        for bound in _bounds(name, first, second, held_out[name], budget.delta, doubt / 4.0)
    )
    gaussian = mechanism == "gradient"
    counted = [bound for bound in bounds if gaussian or bound.kind == "any"]
    best = max(counted, key=lambda bound: bound.epsilon)
    verdict = "refuted" if best.epsilon > facts["claimed"] else "consistent"
    reach = None
    if gaussian:
        reach = epsilon_exact(float(np.mean([*under_d.reach, *under_other.reach])) / 2.0, budget.delta)
    return AuditReport(
        **facts,
        epsilon=best.epsilon,
        runs=2 * each,
        reach=reach,
        bounds=bounds,
        checks=tuple(checks),
        verdict=verdict,
        sentence=_sentence(facts, best, verdict, 2 * each),
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
    progress: bool | Progress | None,
) -> list[Check]:
    """The first layer: cost and values, without noise; then the noise."""
    known = public_part(plan, problems[0], network, placed(np.zeros(problems[0].dim)))
    count = runs_needed(int(plan.route.acts.sum()), plan.facts.dim)
    with shown(progress, f"the noise of {count} runs of {facts['algorithm']}") as report:
        seen, guess = look(problems, network, plan, known, source, report)
    return [
        check_price(plan, problems[0], network, facts["claimed"], facts["delta"]),
        check_values(problems, network, plan, guess),
        *([] if seen is None else check_noise(seen, doubt)),
    ]


def _check(
    algorithm: str, mechanism: str, budget: Budget, walk: str, runs: int | None, confidence: float, seed: int | None
) -> None:
    choose("mechanism", mechanism, MECHANISMS)
    find_algorithm(algorithm)
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


def _refuted_by_its_plan(facts: dict[str, Any], leaks: list[str], seconds: float) -> AuditReport:
    sentence = (
        f"refuted: the plan itself depends on the record. {', '.join(leaks)} differ between two neighbouring data "
        f"sets, and a plan is public; no epsilon covers that, so nothing was run.{_what(facts)}"
    )
    return _refuted(facts, (), sentence, seconds)


def _refuted_by_its_noise(
    facts: dict[str, Any], checks: list[Check], failed: list[Check], seconds: float
) -> AuditReport:
    worst = "; ".join(f"{check.name}: {check.finding}" for check in failed)
    sentence = (
        f"refuted: the {facts['mechanism']} mechanism of {facts['algorithm']} claims epsilon {facts['claimed']:.4g} at "
        f"delta {facts['delta']:g}, and its noise, or what it is added to, is not what that charges for. {worst}. No "
        f"epsilon covers that.{_what(facts)}"
    )
    return _refuted(facts, tuple(checks), sentence, seconds)


def _refuted(facts: dict[str, Any], checks: tuple[Check, ...], sentence: str, seconds: float) -> AuditReport:
    """The report of a claim that was refuted before the second layer."""
    return AuditReport(
        **facts,
        epsilon=math.inf,
        runs=0,
        reach=None,
        bounds=(),
        checks=checks,
        verdict="refuted",
        sentence=sentence,
        seconds=seconds,
        scores={},
    )


# -- scores: larger under D


def _scores(
    first: Evidence, second: Evidence, cut: int
) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Every score of the counted runs, and of the held-out ones."""
    learnt = _learn(first.residuals[:cut], second.residuals[:cut])
    every = {
        "ratio": (first.ratio, second.ratio),
        "learnt": (learnt(first.residuals), learnt(second.residuals)),
    }
    counted = {name: (a[cut:], b[cut:]) for name, (a, b) in every.items()}
    held_out = {name: (a[:cut], b[:cut]) for name, (a, b) in every.items()}
    return counted, held_out


def _learn(first: np.ndarray, second: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The log-likelihood ratio of two Gaussians fitted to the residuals of held-out runs.

    It does not depend on the mechanism. Repeated noise gives a direction of (almost) no variance, and noise or steps
    that depend on the record give other means or covariances: the fit detects both.
    """
    both = np.concatenate([first, second])
    centre, spread = both.mean(axis=0), both.std(axis=0)
    spread = np.maximum(spread, np.finfo(float).tiny ** 0.5)

    def standard(x: np.ndarray) -> np.ndarray:
        return (x - centre) / spread

    fits = []
    for part in (standard(first), standard(second)):
        variance, axes = np.linalg.eigh(np.atleast_2d(np.cov(part, rowvar=False)))
        width = np.sqrt(np.maximum(variance, FLOOR))
        fits.append((part.mean(axis=0), axes / width, np.log(width).sum()))

    def score(x: np.ndarray) -> np.ndarray:
        rows = standard(x)
        distance = [0.5 * (((rows - mean) @ factor) ** 2).sum(axis=1) + logs for mean, factor, logs in fits]
        return distance[1] - distance[0]

    return score


# -- bounds


def _bounds(
    score: str,
    first: np.ndarray,
    second: np.ndarray,
    held_out: tuple[np.ndarray, np.ndarray],
    delta: float,
    doubt: float,
) -> list[Bound]:
    """Both kinds of bound for one score, thresholds from the held-out runs, counts from the others."""
    found = []
    for kind in ("any", "gaussian"):
        at = _best_threshold(*held_out, delta, doubt) if kind == "any" else _middle(*held_out)
        alarms, misses, runs = *_errors(first, second, at), len(first)
        mu = None
        if kind == "any":
            epsilon = float(epsilon_limit(alarms, runs, misses, runs, delta, doubt))
        else:
            mu = mu_limit(2 * runs - alarms - misses, 2 * runs, doubt)
            epsilon = epsilon_exact(mu * mu / 2.0, delta)
        found.append(Bound(score, kind, epsilon, mu, at, alarms, misses, runs))
    return found


def _errors(first: np.ndarray, second: np.ndarray, threshold: float) -> tuple[int, int]:
    """Runs under D that are called D', and the other way round."""
    return int((first < threshold).sum()), int((second >= threshold).sum())


def _middle(first: np.ndarray, second: np.ndarray) -> float:
    """Half-way between the medians: the best threshold between two normal distributions of equal variance."""
    return float((np.median(first) + np.median(second)) / 2.0)


def _best_threshold(first: np.ndarray, second: np.ndarray, delta: float, doubt: float) -> float:
    candidates = np.unique(np.quantile(np.concatenate([first, second]), np.linspace(0.0, 1.0, THRESHOLDS)))
    candidates = np.append(candidates, _middle(first, second))
    alarms = np.searchsorted(np.sort(first), candidates, side="left")
    misses = len(second) - np.searchsorted(np.sort(second), candidates, side="left")
    return float(candidates[np.argmax(epsilon_limit(alarms, len(first), misses, len(second), delta, doubt))])


def _sentence(facts: dict[str, Any], best: Bound, verdict: str, runs: int) -> str:
    claim = f"epsilon {facts['claimed']:.4g} at delta {facts['delta']:g}"
    sure = f"{100 * facts['confidence']:.12g} % confidence"  # never rounded up to 100
    basis = "a bound for any mechanism" if best.kind == "any" else "a bound against claims of mu-GDP, such as this"
    who = f"{facts['mechanism']} mechanism of {facts['algorithm']}"
    if verdict == "refuted":
        return (
            f"refuted: the {who} claims {claim}, and {runs} runs show at least {best.epsilon:.4g} ({basis}), at {sure}."
            f"{_what(facts)}"
        )
    return (
        f"consistent: the {who} claims {claim}; {runs} runs with the {facts['canary']} canary show at least "
        f"{best.epsilon:.4g} ({basis}), at {sure}.{_what(facts)}"
    )


def _what(facts: dict[str, Any]) -> str:
    """A note if the audited noise is not that of a private run."""
    if facts["mechanism"] == "objective":
        return (
            " A simulation was audited: no other runs have noise in the objective, whose claim is about real numbers."
        )
    return " A simulation was audited." if facts["mechanism"] in SOUND and facts["noise"] == "seed" else ""
