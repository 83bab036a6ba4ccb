"""Everything that is decided before the first activation, from public facts: steps, route, noise, and what it costs.

A private plan is made from `Problem.public_facts()` alone and checked against the budget by charging a ledger with all
of its releases; a run can then only follow it or stop early.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, NamedTuple

import jax
import numpy as np

from relaydp.algorithm import (
    Algorithm,
    Directions,
    Noise,
    ObjectiveNoise,
    Outlook,
    Trial,
    directions_of,
    find_algorithm,
)
from relaydp.algorithm.base import OBJECTIVE
from relaydp.algorithm.lab import Kernel
from relaydp.certificate import plain
from relaydp.engine.price import objective_noise, price_gradient, price_objective, price_published
from relaydp.engine.trial import try_out
from relaydp.errors import InputError, PrivacyError, choose
from relaydp.graph import WALKS, Graph, Rounds, Route, check_size, rounds, route
from relaydp.privacy import PRICED, Budget, Ledger, rho_for
from relaydp.privacy.ledger import TOLERANCE
from relaydp.privacy.secret import stretch
from relaydp.problem import Facts, Problem

Limits = Sequence[float] | Mapping[int, float] | None  # epsilon of agents that allow less than the budget
MECHANISMS = ("gradient", "objective", "published")
AUTO = "auto"


class Tally(NamedTuple):
    """Index k: after k hops."""

    plf: np.ndarray
    messages: np.ndarray  # link uses
    rho: np.ndarray  # the most that any agent has spent, by the mechanism's own account


@dataclass(frozen=True, eq=False)
class Plan:
    """A run, drawn up and paid for."""

    algorithm: Algorithm
    mechanism: str | None
    variant: str | None
    budget: Budget | None
    walk: str | None  # None for synchronous methods
    facts: Facts
    steps: Any
    activations: int
    route: Route | Rounds
    degree: np.ndarray  # (agents,) number of neighbours
    scales: np.ndarray  # (activations, agents): noise of each agent's t-th release, on the mean gradient (or on u)
    sensitivity: np.ndarray  # (agents,) what one record can move of what is noised, by this mechanism's own account
    start: int
    ratio: float | None  # of the schedule; None where it follows the outlook
    ledger: Ledger | None  # with every planned release charged; None where nothing is noised
    outlook: Outlook | None  # what to expect; None without the sound mechanism
    prior: Directions | None  # what it was planned for; None for the guess from public bounds
    pure: np.ndarray | None = None  # (activations, agents): epsilon_0 of each release, where noise is in the objective
    kappa: np.ndarray | None = None  # (activations, agents): what each minimiser was priced with, where noise is there

    @property
    def private(self) -> bool:
        """Whether it was made from public facts, and has a price. What a run of it promises, its result says."""
        return self.mechanism in PRICED

    @property
    def epsilon(self) -> float:
        """The exact epsilon of the whole plan at the budget's delta, for noise in the objective that of real numbers;
        inf when no proof stands behind it."""
        sound = self.private and self.ledger is not None and self.budget is not None
        return self.ledger.epsilon(self.budget.delta) if sound else math.inf  # type: ignore[union-attr]

    @property
    def epsilon_paper(self) -> float:
        """By the paper's conversion; for noise in the objective, which is pure, the sum over activations."""
        if self.ledger is None or self.budget is None:
            return math.inf
        if self.pure is not None:
            return float(self.pure.sum(axis=0).max())
        return self.ledger.epsilon_paper(self.budget.delta)

    @property
    def predicted(self) -> float | None:
        """The excess objective F(x) - F(x*) to expect; None where nothing was simulated."""
        return None if self.outlook is None else self.outlook.predicted

    def summary(self) -> dict[str, Any]:
        """The plan in one JSON object: all of it public."""
        budget, look = self.budget, self.outlook
        curve = (
            None
            if look is None
            else [
                {"activations": int(T), "bias": float(b), "noise": float(e), "total": float(b + e)}
                for T, b, e in zip(look.activations, look.bias, look.noise, strict=True)
                if math.isfinite(b + e)
            ]
        )
        return {
            "algorithm": self.algorithm.name,
            "mechanism": self.mechanism,
            "budget": None if budget is None else {"epsilon": budget.epsilon, "delta": budget.delta},
            "epsilon": plain(self.epsilon),
            "epsilon_paper": plain(self.epsilon_paper),
            "activations": self.activations,
            "hops": len(self.route),
            "messages": int(self.tally.messages[-1]),
            "walk": self.walk,
            "steps": {name: np.asarray(value).tolist() for name, value in self.steps._asdict().items()},
            "noise_scales": _rows(self.scales),
            "sensitivity": self.sensitivity.tolist(),
            "predicted_excess": self.predicted,
            "planned_for": "guess from public bounds" if self.prior is None else "prior",
            "curve": curve,
        }

    def __repr__(self) -> str:
        expected = "" if self.predicted is None else f", predicted excess {self.predicted:.3g}"
        return f"Plan({self.algorithm.name}, {self.activations} activations, {len(self.route)} hops{expected})"

    @property
    def clip(self) -> float | None:
        """What gradients are clipped to. The published mechanism assumes its bound instead of enforcing it, and a
        minimiser cannot be clipped: there the records' norm bounds the gradient."""
        return self.facts.clip if self.mechanism == "gradient" else None

    def hop_scales(self, scales: np.ndarray | None = None) -> np.ndarray:
        """The noise of every hop: (hops,) for a relay, (rounds, agents) for rounds."""
        each = self.scales if scales is None else scales
        t = np.minimum(self.route.activation, self.activations - 1)
        if isinstance(self.route, Rounds):
            return np.where(self.route.acts, np.take_along_axis(each, t, axis=0), 0.0)
        return np.where(self.route.acts, each[t, self.route.holder], 0.0)

    def lattice_scales(self) -> np.ndarray:
        """The scales of secret noise, (activations, agents): as planned, and a hair more for its lattice."""
        return self.scales * stretch(self.facts.dim, self.sensitivity / self.scales)

    def releases(self, hops: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(agent, hop, sensitivity, scale) of the releases in the first `hops` hops."""
        until = len(self.route) if hops is None else min(hops, len(self.route))
        scales = self.hop_scales()
        if isinstance(self.route, Rounds):
            when, who = np.nonzero(self.route.acts[:until])
            return who, when, self.sensitivity[who], scales[when, who]
        when = np.flatnonzero(self.route.acts[:until])
        who = self.route.holder[when]
        return who, when, self.sensitivity[who], scales[when]

    @cached_property
    def tally(self) -> Tally:
        """What had happened after each number of hops."""
        way, kind = self.route, self.algorithm
        if isinstance(way, Rounds):
            plf = np.cumsum(way.acts, axis=0).max(axis=1)
            weight = np.full(len(self.degree), 2) if kind.links == "star" else self.degree  # up and down; each edge
            uses = way.acts @ weight * kind.exchanges
        else:
            plf = np.maximum.accumulate(np.where(way.acts, way.activation + 1, 0))
            moves = (way.holder != way.receiver).astype(np.int64)
            uses = np.where(way.acts, self.degree[way.holder], moves) if kind.links == "pushes" else moves
        plf, uses = (np.concatenate([[0], column]) for column in (plf, np.cumsum(uses)))
        if self.ledger is None:
            return Tally(plf, uses, np.where(plf > 0, np.inf, 0.0))
        each = (self.pure if self.pure is not None else self.sensitivity / self.scales) ** 2 / 2.0
        spent = np.concatenate([[0.0], np.cumsum(each, axis=0).max(axis=1)])
        return Tally(plf, uses, spent[plf])

    def charged(self, hops: int) -> Ledger | None:
        """The ledger after the first `hops` hops."""
        if self.ledger is None:
            return None
        ledger = Ledger(self.facts.agents, self.ledger.limit)
        self.charge(ledger, hops)
        return ledger

    def charge(self, ledger: Ledger, hops: int | None = None) -> None:
        """Enter the releases of the first `hops` hops."""
        releases = self.releases(hops)
        if self.pure is None:
            ledger.charge_many(*releases)
            return
        who, when = releases[:2]
        t = self.route.activation[when, who] if isinstance(self.route, Rounds) else self.route.activation[when]
        ledger.charge_many(*releases, kind="pure", epsilon=self.pure[t, who])


def _rows(scales: np.ndarray) -> list[list[float]]:
    """As lists; where nothing is noised one row serves every activation, however many agents there are."""
    return scales.tolist() if scales.any() else [[0.0] * scales.shape[1]] * len(scales)


def resolve_mechanism(
    mechanism: str | None, budget: Budget | None, noise: float | None, method: Algorithm
) -> str | None:
    """'auto' is noise on gradients, or in the objectives of methods that minimise exactly, when there is a budget, and
    none when there is not."""
    if mechanism == AUTO:
        return None if budget is None else "objective" if method.data == "argmin" else "gradient"
    if mechanism is None:
        if budget is not None:
            raise PrivacyError(
                f"budget={budget} arrived with mechanism=None, which spends without limit. "
                "Leave mechanism out for the sound one, or leave the budget out."
            )
        return None
    choose("mechanism", mechanism, MECHANISMS)
    if budget is None and not (mechanism == "published" and noise is not None):
        extra = " or noise= (its first scale s_1)" if mechanism == "published" else ""
        raise PrivacyError(f"mechanism={mechanism!r} needs budget=Budget(epsilon, delta){extra}; none arrived.")
    if mechanism not in method.mechanisms:
        why = ""
        if mechanism == "gradient":
            why = " Its data enters through an exact argmin, which noise on a gradient does not cover."
        if mechanism == "objective":
            why = " Its data enters through gradients, not through an argmin with an objective to perturb."
        use = f" Or use {method.instead!r}." if method.instead else ""
        has = ", ".join(method.mechanisms) or "none"
        raise PrivacyError(f"mechanism={mechanism!r} is not defined for {method.name}; it has: {has}.{why}{use}")
    return mechanism


def make_plan(
    problem: Problem | Facts,
    graph: Graph,
    *,
    algorithm: str,
    mechanism: str | None,
    budget: Budget | None,
    activations: int | None,
    walk: str,
    steps: Any,
    key: jax.Array,
    start: int,
    ratio: float | None,
    variant: str | None,
    noise: float | None,
    limits: Limits = None,
    prior: Problem | Directions | None = None,
) -> Plan:
    """Check every argument and draw the whole run up. Nothing here touches a record in a private run."""
    method = find_algorithm(algorithm)
    kind = resolve_mechanism(mechanism, budget, noise, method)
    if isinstance(problem, Problem) and not method.takes_r and problem.regulariser.kind != "none":
        raise InputError(
            f"{algorithm} has no theory for a nonsmooth r, and this problem has r = {problem.regulariser.kind}. Use "
            f"{method.instead!r}, or leave r out."
        )
    if graph.agents != problem.agents:
        raise InputError(
            f"the problem has {problem.agents} agents and the graph {graph.agents}; needed the same number. "
            f"Split the data with agents={graph.agents}, or take a graph of {problem.agents}."
        )
    check_size(graph, method.needs)
    choose("walk", walk, WALKS)
    where = OBJECTIVE if kind == "objective" else None
    if kind == "published":
        where = method.variants[0] if variant is None else choose(f"variant of {algorithm}", variant, method.variants)
    elif variant is not None:
        raise InputError(f"variant={variant!r} belongs to mechanism 'published'; ask for that, or leave it out.")
    check_count(activations)
    if noise is not None and kind != "published":
        raise PrivacyError("noise= sets the published mechanism's s_1; elsewhere noise follows from the budget.")
    public = kind in PRICED
    if limits is not None and not public:
        raise PrivacyError("limits= holds some agents to less than the budget; it needs the sound mechanism.")
    if prior is not None and not public:
        raise PrivacyError("prior= says what to plan a budget for; it needs the sound mechanism and a budget.")
    if ratio is not None and not (math.isfinite(ratio) and ratio > 0):
        raise InputError(f"ratio={ratio!r}; needed a finite number > 0: rho_(t+1) / rho_t, 1 for equal shares.")
    if isinstance(problem, Facts):
        if not (kind == "gradient" and problem.public):
            raise PrivacyError("a plan from facts alone needs public facts, the sound mechanism and a budget.")
        facts = problem
    else:
        facts = problem.public_facts() if public else problem.measured_facts()
    if kind == "published" and not math.isfinite(facts.clip):
        raise PrivacyError("the published mechanism assumes a bound c on the gradient: pass clip= to the problem.")
    path = walk if method.kind == "relay" else "all"
    wanted = None
    if public and budget is not None:
        epsilons = np.array(agent_epsilons(budget, limits, facts.agents))
        kinds, of = np.unique(epsilons, return_inverse=True)  # a million agents ask for few different promises
        rho = np.array([rho_for(each, budget.delta) for each in kinds.tolist()])[of]
        wanted = Noise(rho, ratio, as_prior(prior, facts, int(facts.sizes.sum())), trial_on(prior, facts))
        if kind == "objective":
            assert isinstance(problem, Problem)
            wanted = wanted._replace(objective=objective_noise(problem, method, epsilons, budget.delta, ratio))
    chosen, T, outlook = method.choose_steps(steps, facts, graph, path, activations, wanted)
    way = lay_out(method, chosen, T, graph, walk, key, start, public)
    pure = kappa = None
    if wanted is not None and wanted.objective is not None:
        scales, sensitivity, ledger, pure, kappa = price_objective(wanted.objective, facts, chosen, graph, T)
    elif wanted is not None:
        scales, sensitivity, ledger = price_gradient(wanted.rho, facts, T, ratio, outlook)
    elif where == OBJECTIVE and noise is None:
        assert budget is not None and method.curvature is not None
        price = "zhang-zhu" if method.takes_r else "zhang-khalili-liu"
        K = float(facts.smoothness.max()) - facts.modulus
        even = np.full(facts.agents, budget.epsilon)
        noise_in = ObjectiveNoise(even, budget.delta, facts.clip, K, facts.modulus, method.curvature, price)
        scales, sensitivity, ledger, pure, _ = price_objective(noise_in, facts, chosen, graph, T)
    elif where == OBJECTIVE:  # noise by hand, as long as the user says: it is priced by nobody
        scales, _, _ = price_published(None, noise, facts, method, chosen, graph, T, ratio)
        sensitivity, ledger = 2.0 * facts.clip / facts.sizes, None
    elif kind == "published":
        scales, sensitivity, ledger = price_published(budget, noise, facts, method, chosen, graph, T, ratio)
    else:
        scales, sensitivity, ledger = np.zeros((T, facts.agents)), np.zeros(facts.agents), None
    plan = Plan(
        algorithm=method,
        mechanism=kind,
        variant=where,
        budget=budget,
        walk=walk if method.kind == "relay" else None,
        facts=facts,
        steps=chosen,
        activations=T,
        route=way,
        degree=np.asarray(graph.degree),
        scales=scales,
        sensitivity=sensitivity,
        start=start,
        ratio=ratio,
        ledger=ledger,
        outlook=outlook,
        prior=_planned_for(wanted, outlook),
        pure=pure,
        kappa=kappa,
    )
    if ledger is not None:
        plan.charge(ledger)  # refuses a plan beyond the budget before anything is computed
        if plan.private and budget is not None:
            _check_promise(ledger, agent_epsilons(budget, limits, facts.agents), budget.delta)
    return plan


def _check_promise(ledger: Ledger, epsilons: list[float], delta: float) -> None:
    """What the ledger will have spent, against what was promised: once more, and not in rho."""
    over = ledger.overspender(np.asarray(epsilons) * (1.0 + TOLERANCE), delta)
    if over is not None:
        agent, spent = over
        allowed = epsilons[agent]
        raise PrivacyError(f"agent {agent} would spend epsilon {spent:.6g} of {allowed:.6g}: this plan is refused.")


def check_count(activations: int | None) -> None:
    """Refuse a number of activations that is none."""
    if activations is None:
        return
    whole = isinstance(activations, int | np.integer) and not isinstance(activations, bool)
    if not (whole and activations >= 1):
        raise InputError(f"activations={activations!r}; needed a whole number, 1 or more: the PLF.")


def lay_out(
    method: Algorithm, steps: Any, T: int, graph: Graph, walk: str, key: jax.Array, start: int, private: bool
) -> Route | Rounds:
    """Who acts when: a walk, or rounds."""
    if method.kind == "rounds":
        return rounds(graph.agents, T, probability=getattr(steps, "probability", 1.0), key=key)
    return route(graph, walk, T, key=key, start=start, rule="plan" if private else "plf")


def _by_agent(limits: Any, agents: int) -> Mapping[int, float]:
    if limits is None or isinstance(limits, Mapping):
        return limits or {}
    wanted = f"needed one an agent ({agents}), or a mapping from agent to epsilon."
    if isinstance(limits, str) or not hasattr(limits, "__len__"):
        raise PrivacyError(f"limits={limits!r} arrived; {wanted}")
    if len(limits) != agents:
        raise PrivacyError(f"{len(limits)} limits arrived; {wanted}")
    return dict(enumerate(limits))


def agent_epsilons(budget: Budget, limits: Limits, agents: int) -> list[float]:
    """Each agent's epsilon: the budget's, or less where an agent has a limit of its own."""
    epsilons = [budget.epsilon] * agents
    for agent, epsilon in _by_agent(limits, agents).items():
        if not (isinstance(agent, int | np.integer) and 0 <= agent < agents):
            raise PrivacyError(f"limits name agent {agent!r}; the agents are numbered 0 to {agents - 1}.")
        if not (isinstance(epsilon, Real) and epsilon > 0):
            raise PrivacyError(f"agent {agent}'s limit is epsilon {epsilon!r}; needed a finite number above 0.")
        if not epsilon <= budget.epsilon:
            raise PrivacyError(
                f"agent {agent}'s limit is epsilon {epsilon}, above the budget's {budget.epsilon:g}; needed no more. "
                "Raise the budget, which everybody is promised, or lower the limit."
            )
        epsilons[agent] = float(epsilon)
    return epsilons


def as_prior(prior: Problem | Directions | None, facts: Facts, records: int) -> Directions | None:
    """The directions to plan `records` private records for: as given, or measured on a problem over public ones."""
    if prior is None or isinstance(prior, Directions):
        return prior
    if not isinstance(prior, Problem):
        raise InputError(f"prior={prior!r}; needed a Problem over public records, or Directions.")
    if prior.dim != facts.dim:
        raise InputError(f"prior has {prior.dim} coefficients and the problem {facts.dim}; needed the same columns.")
    return directions_of(prior, records)


def trial_on(prior: Problem | Directions | None, facts: Facts) -> Trial | None:
    """Plans are tried on public records, where there are some."""
    if not isinstance(prior, Problem):
        return None

    def run(kernel: Kernel, graph: Graph, walk: str, steps: Any, scales: list[np.ndarray]) -> np.ndarray:
        return try_out(prior, facts.clip, kernel, graph, walk, steps, scales)

    return Trial(directions_of(prior), run)


def _planned_for(wanted: Noise | None, outlook: Outlook | None) -> Directions | None:
    """With what came of the trials: a plan for these directions is this plan, records or not."""
    if wanted is None or wanted.prior is None:
        return None
    return wanted.prior._replace(tried=None if outlook is None else outlook.tried)
