"""The planner: check a request, and draw up the whole run from public facts before anybody touches a record.

request   what is asked for, checked          `check_request`, `resolve_mechanism`
noise     what the budget allows               `_budgeted`
steps     and the number of activations        `tuning.choose_steps`
route     who acts when                        `lay_out`
scales    the noise of every release           `_calibrate`
promise   the ledger, against the budget       `_check_promise`
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import jax
import numpy as np

from relaydp import defaults
from relaydp.algorithm import ALGORITHMS, Algorithm, algorithm_of_steps, find_algorithm
from relaydp.algorithm.base import OBJECTIVE
from relaydp.algorithm.relay_gradient import RELAY_GRADIENT
from relaydp.algorithm.sufficient_statistics import SUFFICIENT_STATISTICS
from relaydp.errors import InputError, PrivacyError, check_kind, choose
from relaydp.graph import RANDOM_WALKS, WALKS, Graph, Rounds, Route, check_size, lap_shape, rounds, route
from relaydp.oracle.randomness import WALK, check_seed, key_for
from relaydp.planning.accuracy import applies, rule_for
from relaydp.planning.calibration import (
    Calibrated,
    calibrate_gradient,
    calibrate_objective,
    calibrate_published,
    objective_noise,
    with_shares,
)
from relaydp.planning.directions import Directions, directions_of
from relaydp.planning.forecast import Forecast, Noise, ObjectiveNoise, Trial
from relaydp.planning.public_trials import try_out
from relaydp.planning.run_plan import Plan
from relaydp.planning.statistics import calibrate_statistics, check_statistics, forecast_statistics, pays
from relaydp.planning.tuning import Choice, choose_steps, placed_steps, with_laps
from relaydp.privacy import PRICED, Budget, Ledger, rho_for
from relaydp.privacy.budget import check_records
from relaydp.privacy.ledger import TOLERANCE
from relaydp.privacy.trust import CURATOR, Trust, trust_nobody, trust_of
from relaydp.problem import Facts, Problem
from relaydp.problem.loss import CLASSIFIERS

Limits = Sequence[float] | Mapping[int, float] | None  # epsilon of agents that allow less than the budget
MECHANISMS = ("gradient", "objective", "published")
AUTO = "auto"
ACCURACY, LOSS = "accuracy", "loss"
STEEPEST = 1e6  # of a ratio between the budgets of neighbouring activations


def plan(
    problem: Problem | Facts,
    graph: Graph,
    budget: Budget,
    *,
    algorithm: str = defaults.ALGORITHM,
    activations: int | None = None,
    walk: str = defaults.WALK,
    steps: Any = "tuned",
    objective: str | None = None,
    ratio: float | None = None,
    limits: Limits = None,
    prior: Problem | Directions | None = None,
    trust: str | None = None,
    collusion: int | None = None,
    quorum: int | None = None,
    seed: int | None = None,
    start: int = 0,
) -> Plan:
    """Choose the number of activations, the noise of each and the steps, and predict what comes of it.

    Uses public facts only, so it can be drawn up by anybody: from a problem's public bounds, or from
    `relaydp.public_facts(...)` without any data. `solve` with the same arguments makes and follows the same plan.

    The forecast rests on a guess of the problem's curvature and signal, or on other problems; the promise does not
    depend on how good it is.

    Args:
        problem: A problem with public bounds, or `relaydp.public_facts(...)`, which needs no data.
        graph: Who may send to whom. It has as many agents as the problem.
        budget: Budget(epsilon, delta) for every agent's records.
        algorithm: As in `solve`. Default: "auto".
        activations: How often each agent acts. Default: chosen from public facts.
        walk: As in `solve`. Default: "tour".
        steps: "tuned" (the default), "paper", or the algorithm's own numbers.
        objective: "accuracy" or "loss", as in `solve`. Default: None, "accuracy" where relay-gradient can be planned
            for it.
        ratio: rho_(t+1)/rho_t of the noise schedule. Default: the best spread for the final model.
        limits: epsilon of agents that allow less than the budget: {agent: epsilon}, or one number per agent.
        prior: A Problem over PUBLIC records, or Directions: it replaces the guess, and the best plans are tried on it
            before one is chosen. A plan with a prior is for the least F.
        trust: "nobody" or "curator", as in `solve`. Default: None, "nobody".
        collusion: The most parties that collude, as in `solve`. Default: None, all others.
        quorum: The fewest parties in a lap, as in `solve`. Default: None, all of them.
        seed: None (the default) for a private run's plan. With a number it is a simulation's plan, whose classes, split
            and prior may come from the records.
        start: The agent that holds the baton first. Default: 0.

    Returns:
        A Plan. `activations`, `steps` and `scales` are what was chosen; scales are (activations, agents). `expected` is
        the forecast of a plan for accuracy: the share of what a model without privacy gains over always answering the
        most frequent class. `predicted` is that of a plan for the least F, the excess of F, and `outlook` the same
        against the number of activations. Each is None in a plan of the other kind.

    Raises:
        InputError: A name is unknown, a number is out of range, the objective cannot be planned for, the graph and the
            problem have different numbers of agents, or the graph does not allow the walk.
        PrivacyError: A private run could not follow the plan: a public bound, the classes or the number of features are
            missing, delta is 1/m or more for an agent with m records, or a limit is above the budget; or `collusion` is
            0, or not less than `quorum`.

    Example:
        >>> import relaydp as rd
        >>> facts = rd.public_facts([1500] * 8, features=784, loss="logistic", record_norm=1.0)
        >>> plan = rd.plan(facts, rd.ring(8), rd.Budget(epsilon=1.0, delta=1e-5), walk="cyclic")
        >>> plan.scales.shape == (plan.activations, 8), plan.expected.low < plan.expected.middle
        (True, True)
    """
    if not isinstance(budget, Budget):
        raise PrivacyError(f"budget={budget!r}; needed Budget(epsilon=..., delta=...).")
    check_setting(problem, graph, facts=True)
    if isinstance(problem, Problem) and seed is None:  # with one it is a simulation's plan
        problem.check_declared(prior)
    whom = trust_of(trust, collusion, quorum, graph.agents)
    sizes = problem.sizes if isinstance(problem, Facts) else problem.split.sizes
    check_records(budget, held_together(sizes, whom))  # as a private run will
    seed = 0 if seed is None else seed  # a plan needs a walk to lay out, and no noise
    check_seed(seed)
    walk_key = key_for(seed, WALK)
    return make_plan(
        problem,
        graph,
        algorithm=algorithm,
        mechanism="gradient",
        budget=budget,
        activations=activations,
        walk=walk,
        steps=steps,
        key=walk_key,
        start=start,
        ratio=ratio,
        variant=None,
        noise=None,
        limits=limits,
        prior=prior,
        objective=objective,
        trust=whom,
    )


def held_together(sizes: np.ndarray, trust: Trust) -> np.ndarray:
    """The numbers of records that are in one hand, which a delta is compared with: a curator has all."""
    return np.asarray([int(np.sum(sizes))]) if trust.kind == CURATOR else sizes


def resolve_objective(objective: str | None, problem: Problem | Facts) -> str:
    """What a plan aims at: accuracy for classifiers, the objective F for everything else, unless the user says so."""
    facts_classify = problem.classifies if isinstance(problem, Facts) else problem.loss.name in CLASSIFIERS
    if objective is None:
        return ACCURACY if facts_classify else LOSS
    choose("objective", objective, (ACCURACY, LOSS))
    if objective == ACCURACY and not facts_classify:
        raise InputError(
            "objective='accuracy' is for logistic and softmax; this problem has no accuracy. Leave it out."
        )
    return objective


def check_setting(problem: object, graph: object, *, facts: bool = False) -> None:
    """Refuse what is no problem, or public facts of one where they will do, and what is no graph."""
    kinds = (Problem, Facts) if facts else Problem
    also = ", or public_facts(...)" if facts else ""
    check_kind("problem", problem, kinds, f"a Problem, such as rd.logistic(data, agents=8){also}")
    check_kind("graph", graph, Graph, "a Graph, such as rd.ring(8)")


def resolve_algorithm(
    algorithm: str,
    problem: Problem | Facts,
    *,
    budget: Budget | None,
    mechanism: str | None = AUTO,
    objective: str | None = None,
    walk: str = defaults.WALK,
    steps: Any = "tuned",
    prior: object = None,
    ratio: float | None = None,
    trust: Trust | None = None,
) -> str:
    """The algorithm that 'auto' stands for; every other name is itself.

    A private classifier is trained by relay gradient, planned by the rule of `planning.accuracy`. Private least squares
    with public bounds, few coefficients, many records and no clip of the user's release sufficient statistics
    (`statistics.pays`). RECAL does the rest: runs without privacy, under the published mechanism, for the objective F
    of classifiers, of other losses, on random walks, of classifiers with r or with a ridge that is large beside the
    noise, and with "paper" steps, a prior or a noise schedule of the user's. Steps given by the user are those of the
    algorithm that has their names. Where parties are seen in sums only, it is always relay gradient, which all of a lap
    answer at one point.
    """
    if algorithm != AUTO:
        return algorithm
    if trust is not None and trust.sums:
        return RELAY_GRADIENT.name
    if not isinstance(steps, str):
        return algorithm_of_steps(step_names(steps))
    planned = budget is not None and mechanism in (AUTO, "gradient") and walk not in RANDOM_WALKS
    planned = planned and steps == "tuned" and prior is None and ratio is None
    for_accuracy = resolve_objective(objective, problem) == ACCURACY
    if planned and not for_accuracy and _statistics_pay(problem, budget):
        return SUFFICIENT_STATISTICS.name
    return RELAY_GRADIENT.name if planned and for_accuracy and _rule_fits(problem, budget) else "recal"


def _statistics_pay(problem: Problem | Facts, budget: Budget | None) -> bool:
    """A problem without public bounds is refused later."""
    assert budget is not None
    try:
        facts = problem if isinstance(problem, Facts) else problem.public_facts()
    except PrivacyError:
        return False
    return pays(facts, np.full(facts.agents, budget.rho))


def _rule_fits(problem: Problem | Facts, budget: Budget | None) -> bool:
    """Whether the rule for accuracy is for this problem and budget. One without public bounds is refused later."""
    assert budget is not None
    if isinstance(problem, Problem) and problem.regulariser.kind != "none":
        return False
    try:
        facts = problem if isinstance(problem, Facts) else problem.public_facts()
    except PrivacyError:
        return True
    return applies(facts, np.full(facts.agents, budget.rho))


def step_names(steps: Any) -> list[str]:
    """By what names steps were given; none for "tuned" and "paper"."""
    return list(steps) if isinstance(steps, Mapping) else list(getattr(steps, "_fields", ()))


def resolve_mechanism(
    mechanism: str | None, budget: Budget | None, noise: float | None, method: Algorithm, asked: str | None = None
) -> str | None:
    """'auto' is noise on gradients, or in the objectives of methods that minimise exactly, when there is a budget, and
    none when there is not. `asked` is the algorithm as the user named it, for errors."""
    if mechanism == AUTO:
        return None if budget is None else "objective" if method.data == "argmin" else "gradient"
    if mechanism is None:
        if budget is not None:
            raise PrivacyError(
                f"budget={budget} with mechanism=None, which has no noise to keep a budget with. "
                "Leave mechanism out for the sound one, or leave the budget out."
            )
        return None
    choose("mechanism", mechanism, MECHANISMS)
    if budget is None and not (mechanism == "published" and noise is not None):
        extra = " or noise= (its first scale s_1)" if mechanism == "published" else ""
        raise PrivacyError(f"mechanism={mechanism!r} needs budget=Budget(epsilon, delta){extra}.")
    if mechanism not in method.mechanisms:
        why = ""
        if mechanism == "gradient":
            why = " Its data enters through an exact argmin, which noise on a gradient does not cover."
        if mechanism == "objective":
            why = " Its data enters through gradients, not through an argmin with an objective to perturb."
        use = f" Or use {method.instead!r}." if method.instead else ""
        has = ", ".join(method.mechanisms) or "none"
        name = method.name
        if asked == AUTO:
            name = "the default algorithm"
            use = f" Name one that has it: {', '.join(sorted(_with_mechanism(mechanism)))}."
        raise PrivacyError(f"mechanism={mechanism!r} is not defined for {name}; it has: {has}.{why}{use}")
    return mechanism


def _with_mechanism(mechanism: str) -> list[str]:
    return [name for name, method in ALGORITHMS.items() if mechanism in method.mechanisms]


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
    objective: str | None = None,
    trust: Trust | None = None,
) -> Plan:
    """Check every argument and draw up the whole run. Nothing here touches a record in a private run."""
    aim = resolve_objective(objective, problem)
    trust = trust_nobody(graph.agents) if trust is None else trust
    asked = dict(
        budget=budget,
        mechanism=mechanism,
        objective=objective,
        walk=walk,
        steps=steps,
        prior=prior,
        ratio=ratio,
        trust=trust,
    )
    method = find_algorithm(resolve_algorithm(algorithm, problem, **asked))  # type: ignore[arg-type]
    kind = resolve_mechanism(mechanism, budget, noise, method, algorithm)
    _check_trust(trust, method, kind)
    _check_fit(problem, graph, method, walk, trust)
    if method.data == "statistics":
        check_statistics(problem)
        activations = 1 if activations is None else activations
    where = _variant(method, kind, variant)
    ratio = _check_options(kind, activations, ratio, noise, limits, prior)
    facts = _facts(problem, kind)
    wanted = None
    if kind in PRICED and budget is not None:
        wanted = _budgeted(problem, facts, method, kind, budget, limits, ratio, prior)
    path = walk if method.kind == "relay" else "all"
    expected, first = None, None
    rho = None if wanted is None else wanted.rho
    if wanted is not None:
        wanted = wanted._replace(rho=with_shares(wanted.rho, facts, trust))  # what is planned for
    by_rule = wanted is not None and _by_rule(problem, method, kind, aim, steps, prior, ratio, facts, wanted.rho)
    if objective == ACCURACY and not by_rule:
        raise InputError(_no_accuracy(method, algorithm, kind, walk, steps, prior, ratio))
    if by_rule:
        assert wanted is not None
        rule = rule_for(facts, wanted.rho, activations)
        choice = Choice(with_laps(placed_steps(rule.steps), graph, walk, start), rule.laps, None)
        facts, expected, first = rule.facts, rule.expected, rule.first
    elif method.data == "statistics" and wanted is not None:
        known = choose_steps(method, steps, facts, graph, path, activations, None, start)
        choice = known._replace(outlook=forecast_statistics(wanted.rho, facts, known.activations, wanted.prior))
    else:
        choice = choose_steps(method, steps, facts, graph, path, activations, wanted, start)
    way = lay_out(method, choice.steps, choice.activations, graph, walk, key, start, kind in PRICED)
    if wanted is not None:
        assert rho is not None
        wanted = wanted._replace(rho=rho)  # what is promised
    priced = _calibrate(method, kind, where, facts, graph, choice, wanted, budget, noise, ratio, first, trust)
    plan = Plan(
        algorithm=method,
        mechanism=kind,
        variant=where,
        budget=budget,
        walk=walk if method.kind == "relay" else None,
        facts=facts,
        steps=choice.steps,
        activations=choice.activations,
        route=way,
        degree=np.asarray(graph.degree),
        start=start,
        ratio=ratio,
        outlook=choice.outlook,
        prior=_planned_for(wanted, choice.outlook),
        expected=expected,
        for_accuracy=by_rule,
        preparing=0 if first is None else lap_shape(graph, walk, start)[0],
        trust=trust if kind == "gradient" else None,
        **priced._asdict(),
    )
    if plan.ledger is not None:
        plan.charge(plan.ledger)  # refuses a plan beyond the budget before anything is computed
        if plan.private and budget is not None:
            _check_promise(plan.ledger, agent_epsilons(budget, limits, facts.agents), budget.delta)
    return plan


def _by_rule(
    problem: Problem | Facts,
    method: Algorithm,
    kind: str | None,
    aim: str,
    steps: Any,
    prior: object,
    ratio: float | None,
    facts: Facts,
    rho: np.ndarray,
) -> bool:
    """Whether the rule for accuracy decides: of the method it is for, where the user leaves it anything to decide. Its
    steps are for laps with the same noise each."""
    asked = method is RELAY_GRADIENT and kind == "gradient" and isinstance(steps, str) and steps == "tuned"
    penalised = isinstance(problem, Problem) and problem.regulariser.kind != "none"
    free = prior is None and ratio is None
    return asked and free and aim == ACCURACY and not penalised and applies(facts, rho)


def _no_accuracy(
    method: Algorithm, named: str, kind: str | None, walk: str, steps: Any, prior: object, ratio: float | None
) -> str:
    """Why objective="accuracy" cannot be planned for here. The walk matters to 'auto', which then is RECAL."""
    if kind is None:
        here = "there is no budget, and nothing to plan"
    elif kind != "gradient":
        here = f"the mechanism is {kind!r}"
    elif not (isinstance(steps, str) and steps == "tuned"):
        here = "steps were given"
    elif prior is not None:
        here = "a prior was given"
    elif ratio is not None:
        here = "ratio was given"
    elif named == AUTO and walk in RANDOM_WALKS:
        here = f"walk={walk!r} is random"
    elif named == AUTO or method is RELAY_GRADIENT:
        here = "there is an r, or l2 is large beside the noise, so that the least F is what serves accuracy"
    else:
        here = f"the algorithm is {method.name!r}"
    return (
        f"objective='accuracy': {here}; needed relay-gradient with a budget, mechanism 'gradient', tuned steps, no "
        "prior, no ratio, and a walk with laps ('tour' or 'cyclic'). Leave objective out, or what is in its way."
    )


def _check_fit(problem: Problem | Facts, graph: Graph, method: Algorithm, walk: str, trust: Trust) -> None:
    """Refuse a problem, a graph or a walk that this method cannot run on."""
    if isinstance(problem, Problem) and not method.takes_r and problem.regulariser.kind != "none":
        raise InputError(
            f"{method.name} has no theory for a nonsmooth r, and this problem has r = {problem.regulariser.kind}. Use "
            f"{method.instead!r}, or leave r out."
        )
    if graph.agents != problem.agents:
        raise InputError(
            f"the problem has {problem.agents} agents and the graph {graph.agents}; needed the same number. "
            f"Split the data with agents={graph.agents}, or take a graph of {problem.agents}."
        )
    check_size(graph, method.needs)
    choose("walk", walk, WALKS)
    if method.walks is not None and walk not in method.walks:
        other = "recal" if "gradient" in method.mechanisms else "walkman"  # the latter has no private runs
        raise InputError(
            f"{method.name} visits the agents in a fixed order, and walk={walk!r} is random; pass walk='tour', which "
            f"every connected graph has{'' if trust.sums else f', or use {other!r}'}."
        )


def _check_trust(trust: Trust, method: Algorithm, kind: str | None) -> None:
    """Refuse sums where this method or mechanism has none."""
    if not trust.sums:
        return
    asked = "trust='curator'" if trust.kind == CURATOR else f"collusion={trust.collusion}"
    if kind != "gradient":
        what = "there is no budget" if kind is None else f"the mechanism is {kind!r}"
        raise PrivacyError(
            f"{asked} says against whom a budget is kept, and {what}; needed a budget and mechanism 'gradient'. Pass "
            "budget=, or leave it out."
        )
    if not method.takes_sums:
        able = ", ".join(sorted(name for name, other in ALGORITHMS.items() if other.takes_sums))
        raise InputError(
            f"{asked} needs an algorithm whose agents are all asked at one point in a lap, and {method.name} is not "
            f"one; use {able}, or leave algorithm out."
        )


def _variant(method: Algorithm, kind: str | None, variant: str | None) -> str | None:
    """Where the mechanism puts its noise; None for noise on gradients, and for no noise."""
    if kind == "published":
        names = method.variants
        return names[0] if variant is None else choose(f"variant of {method.name}", variant, names)
    if variant is not None:
        raise InputError(f"variant={variant!r} belongs to mechanism 'published'; ask for that, or leave it out.")
    return OBJECTIVE if kind == "objective" else None


def _check_options(
    kind: str | None, activations: int | None, ratio: float | None, noise: float | None, limits: Limits, prior: Any
) -> float | None:
    """Refuse options that this mechanism does not have. The ratio, which powers are taken of, as a float."""
    check_count(activations)
    if noise is not None and kind != "published":
        raise PrivacyError("noise= sets the published mechanism's s_1; elsewhere noise follows from the budget.")
    if limits is not None and kind not in PRICED:
        raise PrivacyError("limits= holds some agents to less than the budget; it needs the sound mechanism.")
    if prior is not None and kind not in PRICED:
        raise PrivacyError("prior= says what to plan a budget for; it needs the sound mechanism and a budget.")
    if ratio is not None and not (isinstance(ratio, Real) and 1.0 / STEEPEST <= ratio <= STEEPEST):
        raise InputError(
            f"ratio={ratio!r}; needed a number from {1.0 / STEEPEST:g} to {STEEPEST:g}: rho_(t+1) / rho_t, 1 for equal "
            "shares."
        )
    return None if ratio is None else float(ratio)


def _facts(problem: Problem | Facts, kind: str | None) -> Facts:
    """What the plan is made from: public in a private run, measured on the records elsewhere."""
    if isinstance(problem, Facts):
        if not (kind == "gradient" and problem.public):
            raise PrivacyError("a plan from facts alone needs public facts, the sound mechanism and a budget.")
        return problem
    facts = problem.public_facts() if kind in PRICED else problem.measured_facts()
    if kind == "published" and not math.isfinite(facts.clip):
        raise PrivacyError("the published mechanism assumes a bound c on the gradient: pass clip= to the problem.")
    return facts


def _budgeted(
    problem: Problem | Facts,
    facts: Facts,
    method: Algorithm,
    kind: str | None,
    budget: Budget,
    limits: Limits,
    ratio: float | None,
    prior: Problem | Directions | None,
) -> Noise:
    """What the budget allows each agent, and what is known about the problem it is planned for."""
    epsilons = np.array(agent_epsilons(budget, limits, facts.agents))
    kinds, of = np.unique(epsilons, return_inverse=True)  # a million agents ask for few different promises
    rho = np.array([rho_for(each, budget.delta) for each in kinds.tolist()])[of]
    wanted = Noise(rho, ratio, as_prior(prior, facts, int(facts.sizes.sum())), trial_on(prior, facts))
    if kind == "objective":
        assert isinstance(problem, Problem)
        wanted = wanted._replace(objective=objective_noise(problem, method, epsilons, budget.delta, ratio))
    return wanted


def _calibrate(
    method: Algorithm,
    kind: str | None,
    where: str | None,
    facts: Facts,
    graph: Graph,
    choice: Choice,
    wanted: Noise | None,
    budget: Budget | None,
    noise: float | None,
    ratio: float | None,
    first: float | None,
    trust: Trust,
) -> Calibrated:
    """The noise of every release and what it costs, by the mechanism's own account."""
    steps, T = choice.steps, choice.activations
    if wanted is not None and wanted.objective is not None:
        return calibrate_objective(wanted.objective, facts, steps, graph, T)
    if wanted is not None and method.data == "statistics":
        return calibrate_statistics(wanted.rho, facts, T, ratio)
    if wanted is not None:
        return calibrate_gradient(wanted.rho, facts, T, ratio, choice.outlook, first, trust)
    if where == OBJECTIVE and noise is None:
        assert budget is not None and method.curvature is not None
        price = "zhang-zhu" if method.takes_r else "zhang-khalili-liu"
        K = float(facts.smoothness.max()) - facts.modulus
        even = np.full(facts.agents, budget.epsilon)
        noise_in = ObjectiveNoise(even, budget.delta, facts.clip, K, facts.modulus, method.curvature, price)
        return calibrate_objective(noise_in, facts, steps, graph, T)._replace(kappa=None)
    if where == OBJECTIVE:  # noise by hand, as large as the user says: it is not charged to any budget
        by_hand = calibrate_published(None, noise, facts, method, steps, graph, T, ratio)
        return Calibrated(by_hand.scales, 2.0 * facts.clip / facts.sizes, None)
    if kind == "published":
        return calibrate_published(budget, noise, facts, method, steps, graph, T, ratio)
    return Calibrated(np.zeros((T, facts.agents)), np.zeros(facts.agents), None)


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
    wanted = f"needed one per agent ({agents}), or a mapping from agent to epsilon."
    if isinstance(limits, str) or not hasattr(limits, "__len__"):
        raise PrivacyError(f"limits={limits!r}; {wanted}")
    if len(limits) != agents:
        raise PrivacyError(f"there are {len(limits)} limits; {wanted}")
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
                f"agent {agent}'s limit is epsilon {epsilon}, above the budget's {budget.epsilon:g}; needed that or "
                "less. Raise the budget, which everybody is promised, or lower the limit."
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

    def run(method: Algorithm, graph: Graph, walk: str, steps: Any, scales: list[np.ndarray]) -> np.ndarray:
        return try_out(prior, facts.clip, method, graph, walk, steps, scales)

    return Trial(directions_of(prior), run)


def _planned_for(wanted: Noise | None, outlook: Forecast | None) -> Directions | None:
    """With what came of the trials: a plan for these directions is this plan, records or not."""
    if wanted is None or wanted.prior is None:
        return None
    return wanted.prior._replace(tried=None if outlook is None else outlook.tried)
