"""solve_alone: what each agent gets from its own records only, under the same budget. The relay must beat it.

Proximal gradient descent on f_i + r through the same oracle: the same clipping, noise and accountant, no messages.

    v_i  = x_i + m_k (x_i - x_i-),   x_i+ = prox_{t_i r}( v_i - t_i g~_i(a v_i) )

For the least F, m_k = 0, a = 1 and t_i = a'/L; the number of steps and a' come from public facts, by the closed form of
planning's model. A private classifier is planned for accuracy, like a relay: m_k = min((k - 1)/(k + 2), b), and the
rule of `planning.accuracy` gives clip, steps, which shrink to 0, their number, and a.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from relaydp.algorithm import Turn
from relaydp.algorithm.relay_gradient import NEVER
from relaydp.arrays import placed
from relaydp.engine.preparation import First, numbers_of, prepare
from relaydp.engine.solver import check_account, check_budget
from relaydp.errors import InputError, check_kind
from relaydp.oracle.oracle import make_oracle
from relaydp.oracle.randomness import ALONE, Secret, Simulated, Source, choose_source, draw_gradient_noise, key_for
from relaydp.planning.accuracy import applies, rule_alone
from relaydp.planning.calibration import spread_over
from relaydp.planning.directions import Directions, guess
from relaydp.planning.forecast import LONGEST
from relaydp.planning.planner import ACCURACY, as_prior, check_count, resolve_objective
from relaydp.planning.quadratic import DEFAULT_ACTIVATIONS
from relaydp.privacy import MARGIN, Budget, Ledger, PrivacyAccount, gaussian_scale
from relaydp.privacy.budget import check_records
from relaydp.privacy.secret import check_promise, stretch
from relaydp.privacy.sensitivity import sensitivity as clipped_sensitivity
from relaydp.problem import AgentRecords, Facts, Problem
from relaydp.problem.coordinates import KEPT, Coordinates
from relaydp.problem.problem import Terms

STEPSIZES = (0.3, 0.5, 0.75, 1.0, 1.2, 1.4, 1.6, 1.8)  # a, of which t = a/L


@dataclass(frozen=True, eq=False)
class Alone:
    """One model an agent."""

    x: np.ndarray  # (agents, dim)
    accuracy: np.ndarray  # (agents,) on the held-out records; NaN where the loss does not classify
    objective: np.ndarray  # (agents,) F, over everybody's records
    plf: int
    epsilon: float  # inf when no guarantee stands behind: without a budget, or where a seed makes it a simulation
    epsilon_planned: float  # what a private run of this plan costs
    epsilon_paper: float
    ledger: Ledger | None
    private: bool  # the noise came from the operating system


def solve_alone(
    problem: Problem,
    budget: Budget | None = None,
    *,
    activations: int | None = None,
    objective: str | None = None,
    prior: Problem | Directions | None = None,
    seed: int | None = None,
    account: PrivacyAccount | None = None,
) -> Alone:
    """Let every agent train by itself, privately under `budget`, and measure each model on everybody's data.

    It is the baseline for `solve`: the same clipping, noise and accounting, and no messages. Each agent runs proximal
    gradient descent on its own records.

    Args:
        problem: The loss, the weights and the records, split over the agents.
        budget: Budget(epsilon, delta) for every agent's records. Default: None, without privacy.
        activations: How many steps each agent makes. Default: chosen from public facts when there is a budget, else
            300.
        objective: "accuracy" (the default for logistic and softmax) or "loss": what a budget is planned for, as in
            `solve`.
        prior: A Problem over PUBLIC records like the private ones, or Directions: the budget is planned for it instead
            of for a guess from the bounds. Without a budget it changes nothing.
        seed: None (the default): a run with a budget is private. A number: a simulation without a promise, as in
            `solve`.
        account: A PrivacyAccount that a private run is charged to, before it uses a record.

    Returns:
        An Alone, with one row per agent: `x` (agents, dim), `accuracy` on the held-out records (NaN where the loss does
        not classify) and `objective` over everybody's records. `plf` is the number of steps; `epsilon` is what was
        spent (inf without a budget, or for a simulation), `epsilon_planned` what a private run of this plan costs,
        `epsilon_paper` the same by the paper's conversion; `ledger` has every release (None without a budget);
        `private` says whether a guarantee stands behind it.

    Raises:
        InputError: `activations`, `seed` or `prior` cannot be used.
        PrivacyError: `budget` is not a Budget; classes, features or the split were found in the records; delta is 1/m
            or more for an agent with m records; there is an account for a run without a promise, or it would be
            overspent.

    Example:
        >>> import relaydp as rd
        >>> problem = rd.logistic(rd.load_data("breast-cancer"), agents=4, l2=1e-2)
        >>> alone = rd.solve_alone(problem, rd.Budget(epsilon=2.0, delta=1e-4))
        >>> alone.x.shape, round(alone.epsilon, 6)
        ((4, 30), 2.0)
    """
    check_kind("problem", problem, Problem, "a Problem, such as rd.logistic(data, agents=8)")
    check_budget(budget)
    check_count(activations)
    source = choose_source(seed, None if budget is None else "gradient")
    if isinstance(source, Secret):
        problem.check_declared(prior)
    if account is not None:
        check_account(account, source)
    plan = _plan(problem, budget, activations, objective, prior)
    ledger, scales = _price(plan, budget)
    if isinstance(source, Secret) and budget is not None:
        check_records(budget, plan.facts.sizes)
        check_promise(budget.epsilon, budget.delta, plan.numbers, plan.releases)
        if account is not None and ledger is not None:
            records = int(plan.facts.sizes.sum())
            account.charge(
                ledger,
                f"each alone, {problem.data.name}, {records} records, {plan.facts.agents} agents",
                plan.facts.sizes,
            )
    x = _train(problem, plan, scales, budget is not None, source)
    planned = np.inf if ledger is None or budget is None else ledger.epsilon(budget.delta)
    private = isinstance(source, Secret)
    return Alone(
        x=x,
        accuracy=problem.accuracies(x) if problem.classifies else np.full(len(x), np.nan),
        objective=problem.objectives(x),
        plf=plan.releases,
        epsilon=planned if private else np.inf,
        epsilon_planned=planned,
        epsilon_paper=np.inf if ledger is None or budget is None else ledger.epsilon_paper(budget.delta),
        ledger=ledger,
        private=private,
    )


class Steps(NamedTuple):
    """Of every agent, (agents,)."""

    stepsize: Array  # t_i
    momentum: Array  # b_i
    stretch: Array  # a_i
    settled: Array  # the step at which t_i would be 0


class _Planned(NamedTuple):
    """What all agents do, from public facts."""

    facts: Facts  # with the clip
    steps: Steps
    shares: np.ndarray  # (releases,) of the budget
    prepares: bool

    @property
    def releases(self) -> int:
        return len(self.shares)

    @property
    def numbers(self) -> int:
        """How many numbers a release has at most."""
        return 2 * self.facts.dim + 3 if self.prepares else self.facts.dim


def _plan(
    problem: Problem,
    budget: Budget | None,
    activations: int | None,
    objective: str | None,
    prior: Problem | Directions | None,
) -> _Planned:
    """For accuracy by its rule, and else for the least F."""
    facts = problem.measured_facts() if budget is None else problem.public_facts()
    public = as_prior(prior, facts, int(facts.sizes.min()))
    if objective == ACCURACY and (budget is None or public is not None):
        raise InputError(
            f"objective='accuracy': {'there is no budget' if budget is None else 'a prior was given'}; it needs a "
            "budget and no prior. Leave objective out, or what is in its way."
        )
    plain = public is None and problem.regulariser.kind == "none"
    if budget is not None and plain and resolve_objective(objective, problem) == ACCURACY:
        if applies(facts, np.full(facts.agents, budget.rho)):
            rules = rule_alone(facts, budget.rho, activations)
            one, steps = rules[0], [rule.steps for rule in rules]
            named = {name: jnp.asarray([getattr(step, name) for step in steps]) for name in Steps._fields}
            return _Planned(one.facts, Steps(**named), spread_over(one.laps, one.first), one.first is not None)
    a, shares = _choose(facts, None if budget is None else budget.rho, activations, public)
    each = (a / float(facts.smoothness.max()), 0.0, 1.0, NEVER)
    return _Planned(facts, Steps(*(np.full(facts.agents, value) for value in each)), shares, False)  # type: ignore[arg-type]


def _price(plan: _Planned, budget: Budget | None) -> tuple[Ledger | None, np.ndarray]:
    """A ledger with every release, and their noise, (releases, agents); without a budget there is none."""
    facts, T = plan.facts, plan.releases
    if budget is None:
        return None, np.zeros((T, facts.agents))
    sensitivity = _sensitivity(plan)
    scales = gaussian_scale(sensitivity[None, :], budget.rho * (1.0 - MARGIN) * plan.shares[:, None])
    ledger = Ledger(facts.agents, budget.rho)
    who, when = np.tile(np.arange(facts.agents), T), np.repeat(np.arange(T), facts.agents)
    ledger.charge_many(who, when, sensitivity[who], scales.ravel())
    return ledger, scales


def _sensitivity(plan: _Planned) -> np.ndarray:
    return clipped_sensitivity(plan.facts.clip, plan.facts.sizes, plan.facts.dim, KEPT if plan.prepares else None)


def _train(problem: Problem, plan: _Planned, scales: np.ndarray, noisy: bool, source: Source) -> np.ndarray:
    """Every agent's model, (agents, dim)."""
    facts, steps = plan.facts, Steps(*map(placed, plan.steps))
    key = key_for(source.seed, ALONE) if isinstance(source, Simulated) else None
    hidden = key is None and noisy
    if hidden:
        scales = scales * stretch(plan.numbers, _sensitivity(plan) / scales)
    clip = placed(facts.clip) if noisy else None
    start = placed(np.zeros((facts.agents, facts.dim)))
    agent_records, change = problem.records_for(plan.releases, noisy, rounds=True), None
    if plan.prepares:
        drawn = draw_gradient_noise(np.ones(facts.agents, bool), numbers_of(problem)) if hidden else None
        asked = First(placed(problem.features_bound(), np.float64), placed(facts.clip), placed(scales[0]))
        prepared = prepare(agent_records, asked, key, drawn, True)
        agent_records, change, scales = prepared.of(agent_records), prepared.coordinates, scales[1:]
        start = jax.vmap(Coordinates.undo)(change, change.start / steps.stretch[:, None])
        steps = steps._replace(stepsize=steps.stepsize * change.pace)
    draws = jax.device_put(draw_gradient_noise(np.ones(scales.shape, bool), facts.dim)) if hidden else None
    x = _descend(agent_records, problem.terms, clip, steps, placed(scales), key, draws, start)
    return np.asarray(x if change is None else jax.vmap(Coordinates.__call__)(change, x))


def _choose(
    facts: Facts, rho: float | None, activations: int | None, prior: Directions | None
) -> tuple[float, np.ndarray]:
    """a, and each activation's part of rho: the least predicted excess over the public model.

    Noise of the k-th activation is multiplied by t (1 - t h)^(T-k) on its way to the end; the rest is as in
    `planning.forecast`.
    """
    if rho is None:
        return 1.0, np.ones(DEFAULT_ACTIVATIONS if activations is None else activations)
    h, number, distance = (guess(facts) if prior is None else prior)[:3]
    variance = (2.0 * facts.clip / facts.sizes.min()) ** 2 / (2.0 * rho)
    best = (np.inf, 1.0, np.ones(1))
    for T in range(1, LONGEST + 1) if activations is None else (activations,):
        for a in STEPSIZES:
            t = a / float(facts.smoothness.max())
            shrink = (1.0 - t * h) ** 2
            root = np.sqrt((h * number * t**2 * shrink ** np.arange(T - 1, -1, -1)[:, None]).sum(axis=1))
            excess = 0.5 * (float((h * distance * shrink**T).sum()) + variance * root.sum() ** 2)
            if excess < best[0]:
                best = (excess, a, root / root.sum())
    return best[1], best[2]


@jax.jit
def _descend(
    agent_records: AgentRecords,
    terms: Terms,
    clip: Array | None,
    steps: Steps,
    scales: Array,
    key: Array | None,  # of a simulation; None where there are draws
    draws: Array | None,
    start: Array,
) -> Array:
    oracle = make_oracle(agent_records, terms, clip)
    everyone, nobody = jnp.ones(scales.shape[1], bool), jnp.zeros((), jnp.int32)

    def one(state: tuple[Array, Array], inputs: tuple[Array, Array, Array | None]) -> tuple[Any, None]:
        (xs, last), (number, scale, drawn) = state, inputs
        k = number.astype(xs.dtype)
        vs = xs + jnp.minimum((k - 1.0) / (k + 2.0), steps.momentum)[:, None] * (xs - last)
        now = None if key is None else jax.random.fold_in(key, number)
        setting = oracle(Turn(number, nobody, nobody, everyone, scale, now, drawn))
        lengths = steps.stepsize * jnp.maximum(1.0 - k / steps.settled, 0.0)
        ahead = vs - lengths[:, None] * setting.gradients(steps.stretch[:, None] * vs)
        return (jax.vmap(setting.prox)(ahead, lengths), xs), None

    return jax.lax.scan(one, (start, start), (jnp.arange(scales.shape[0]), scales, draws))[0][0]
