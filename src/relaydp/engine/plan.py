"""Everything that is decided before the first activation, from public facts: steps, route, noise, and what it costs.

A private plan is made from `Problem.public_facts()` alone and checked against the budget by charging a ledger with all
of its releases; a run can then only follow it or stop early.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from relaydp.algorithm import Algorithm, Noise, find_algorithm
from relaydp.errors import InputError, PrivacyError, choose
from relaydp.graph import WALKS, Graph, Route, route
from relaydp.privacy import (
    Budget,
    Ledger,
    gaussian_scale,
    geometric,
    published_first_scale,
    published_scales,
)
from relaydp.problem import Facts, Problem

MECHANISMS = ("gradient", "published")
VARIANTS = ("memoryless", "carried", "replace")
AUTO = "auto"
MARGIN = 1e-11  # of rho left unspent, so that rounding never carries epsilon past the budget


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
    route: Route
    scales: np.ndarray  # (activations, agents): noise of each agent's t-th release, on the mean gradient (or on u)
    sensitivity: np.ndarray  # (agents,) what one record can move of what is noised, by this mechanism's own account
    start: int
    ratio: float
    ledger: Ledger | None  # with every planned release charged; None where nothing is noised

    @property
    def private(self) -> bool:
        return self.mechanism == "gradient"

    @property
    def clip(self) -> float | None:
        """What gradients are clipped to. The published mechanism assumes its bound instead of enforcing it."""
        return self.facts.clip if self.private else None

    def hop_scales(self) -> np.ndarray:
        """The noise of every hop: (hops,) for a relay, (rounds, agents) for rounds."""
        if self.algorithm.kind == "rounds":
            return self.scales
        t = np.minimum(self.route.activation, self.activations - 1)
        return np.where(self.route.acts, self.scales[t, self.route.holder], 0.0)

    def releases(self, hops: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(agent, hop, sensitivity, scale) of the releases in the first `hops` hops."""
        until = len(self.route) if hops is None else min(hops, len(self.route))
        if self.algorithm.kind == "rounds":
            agents = self.facts.agents
            who, when = np.tile(np.arange(agents), until), np.repeat(np.arange(until), agents)
            return who, when, self.sensitivity[who], self.scales[:until].ravel()
        when = np.flatnonzero(self.route.acts[:until])
        who = self.route.holder[when]
        return who, when, self.sensitivity[who], self.hop_scales()[when]

    def charged(self, hops: int) -> Ledger | None:
        """The ledger after the first `hops` hops."""
        if self.ledger is None:
            return None
        ledger = Ledger(self.facts.agents, self.ledger.limit)
        ledger.charge_many(*self.releases(hops))
        return ledger


def resolve_mechanism(mechanism: str | None, budget: Budget | None, noise: float | None) -> str | None:
    """'auto' is the sound mechanism when there is a budget, and none when there is not."""
    if mechanism == AUTO:
        return "gradient" if budget is not None else None
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
    return mechanism


def make_plan(
    problem: Problem,
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
    variant: str,
    noise: float | None,
) -> Plan:
    """Check every argument and draw the whole run up. Nothing here touches a record in a private run."""
    method = find_algorithm(algorithm)
    kind = resolve_mechanism(mechanism, budget, noise)
    if kind is not None and kind not in method.mechanisms:
        raise PrivacyError(
            f"mechanism={kind!r} is not defined for {algorithm}; it has: {', '.join(method.mechanisms)}."
        )
    if graph.agents != problem.agents:
        raise InputError(
            f"the problem has {problem.agents} agents and the graph {graph.agents}; needed the same number. "
            f"Split the data with agents={graph.agents}, or take a graph of {problem.agents}."
        )
    choose("walk", walk, WALKS)
    choose("variant", variant, VARIANTS)
    _check_count(activations)
    if noise is not None and kind != "published":
        raise PrivacyError("noise= sets the published mechanism's s_1; elsewhere noise follows from the budget.")
    public = kind == "gradient"
    facts = problem.public_facts() if public else problem.measured_facts()
    if kind == "published" and not math.isfinite(facts.clip):
        raise PrivacyError("the published mechanism assumes a bound c on the gradient: pass clip= to the problem.")
    wanted = Noise(budget.rho) if public and budget is not None else None
    path = walk if method.kind == "relay" else "all"
    chosen, T = method.choose_steps(steps, facts, graph, path, activations, wanted)
    if method.kind == "rounds":
        way = _rounds(T)
    else:
        way = route(graph, walk, T, key=key, start=start, rule="plan" if public else "plf")
    R = 1.0 if ratio is None else float(ratio)
    scales, sensitivity, ledger = _price(kind, budget, noise, facts, chosen, T, R)
    plan = Plan(
        algorithm=method,
        mechanism=kind,
        variant=variant if kind == "published" else None,
        budget=budget,
        walk=walk if method.kind == "relay" else None,
        facts=facts,
        steps=chosen,
        activations=T,
        route=way,
        scales=scales,
        sensitivity=sensitivity,
        start=start,
        ratio=R,
        ledger=ledger,
    )
    if ledger is not None:
        ledger.charge_many(*plan.releases())  # refuses a plan beyond the budget before anything is computed
    return plan


def _check_count(activations: int | None) -> None:
    if activations is None:
        return
    whole = isinstance(activations, int | np.integer) and not isinstance(activations, bool)
    if not (whole and activations >= 1):
        raise InputError(f"activations={activations!r}; needed a whole number, 1 or more: the PLF.")


def _rounds(activations: int) -> Route:
    """A synchronous method's itinerary: one row a round, everybody acts."""
    rows = np.arange(activations, dtype=np.int32)
    nobody = np.full(activations, -1, np.int32)
    return Route(nobody, nobody.copy(), np.ones(activations, bool), rows)


def _price(
    kind: str | None, budget: Budget | None, noise: float | None, facts: Facts, steps: Any, T: int, R: float
) -> tuple[np.ndarray, np.ndarray, Ledger | None]:
    """Noise scales (activations, agents), sensitivities (agents,), and an empty ledger with the limit."""
    agents = facts.agents
    if not (math.isfinite(R) and R > 0):
        raise InputError(f"ratio={R!r}; needed a finite number > 0: rho_(t+1) / rho_t, 1 for equal shares.")
    if kind is None:
        return np.zeros((T, agents)), np.zeros(agents), None
    if kind == "gradient":
        assert budget is not None
        sensitivity = 2.0 * facts.clip / facts.sizes
        shares = geometric(budget.rho * (1.0 - MARGIN), T, R)
        return gaussian_scale(sensitivity[None, :], shares[:, None]), sensitivity, Ledger(agents, budget.rho)
    # published: theorem 4 with alpha = max_i alpha_i and c of f_i/n, the paper's one-step sensitivity 4 alpha beta c
    alpha, beta, c = float(np.max(steps.alpha)), float(steps.beta), facts.clip / agents
    if noise is None:
        assert budget is not None
        first = published_first_scale(budget.rho_paper, T, R, alpha=alpha, beta=beta, c=c)
    else:
        if not (math.isfinite(noise) and noise >= 0):
            raise InputError(f"noise={noise!r}; needed a finite number >= 0: the published mechanism's s_1.")
        first = float(noise)
    sensitivity = np.full(agents, 4.0 * alpha * beta * c)
    if first == 0.0:
        return np.zeros((T, agents)), sensitivity, None
    scales = np.tile(published_scales(first, T, R)[:, None], (1, agents))
    limit = math.inf if budget is None else budget.rho_paper
    return scales, sensitivity, Ledger(agents, limit)
