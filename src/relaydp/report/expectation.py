"""What to expect of a private classifier, and what came of it, in words. Command line and reports say the same."""

from __future__ import annotations

import math

import numpy as np

from relaydp.planning.accuracy import GAINS, Expectation, expectation, noise_of
from relaydp.planning.calibration import with_shares
from relaydp.planning.directions import guess
from relaydp.planning.run_plan import Plan
from relaydp.privacy import epsilon_exact
from relaydp.result import Baselines

LOW_GAIN = 0.6  # below it a run is likely to end nearer to the most frequent class than to a model without privacy
BOUND = "a bound on how many agents collude (collusion=)"
MOST_EPSILON = 50.0  # a larger one is not advice


def tell_expected(gain: Expectation | dict[str, float] | None) -> str:
    """One sentence; empty where accuracy was not planned for.

    >>> tell_expected(Expectation(0.05, 0.92, 1.0))
    'Of what a model without privacy gains over always answering the most frequent class, expect 92 % (5 % to 100 %).'
    """
    if gain is None:
        return ""
    given = gain if isinstance(gain, Expectation) else Expectation(**gain)
    return f"Of what a model without privacy gains over always answering the most frequent class, expect {given}."


def warn_of(plan: Plan) -> list[str]:
    """Why this plan is hardly worth its budget, and what would help; empty where it is. All of it is public."""
    if plan.ledger is None or plan.budget is None:
        return []
    if plan.expected is None:
        left = left_of_zero(plan)
        if left is None or plan.outlook is None or len(plan.outlook.activations) < 2:
            return []  # with activations of the user's, they may be what is too few, and not the budget
        return [_much_left(plan, left)] if left > 1.0 - LOW_GAIN else []
    found = [_low(plan, plan.expected)] if plan.expected.middle < LOW_GAIN else []
    own = 2.0 / (plan.facts.sizes * np.sqrt(2.0 * plan.ledger.limit))  # the noise of each agent alone
    best = int(np.argmin(own))
    if own[best] < noise_of(plan.facts.sizes, with_shares(plan.ledger.limit, plan.facts, plan.trust)):
        found.append(
            f"Agent {best} alone, with {plan.facts.sizes[best]:,} records, has less noise than all together: expect "
            f"{expectation(float(own[best]))} of it. Every agent counts the same, and those with few records bring "
            "most of the noise: leave them out, or join them to others."
        )
    return found


def left_of_zero(plan: Plan) -> float | None:
    """Of the excess that a model of zeros has, the share that a plan for the least F expects to leave; None where
    nothing was predicted. Both are for the same guess of the problem, or for the same prior."""
    if plan.outlook is None:
        return None
    known = guess(plan.facts) if plan.prior is None else plan.prior
    return plan.outlook.predicted / (0.5 * float((known.curvature * known.distance).sum()))


def _much_left(plan: Plan, left: float) -> str:
    told = f"{100 * left:.0f} % of" if left < 1.0 else "no less than"
    grounds = "a guess from public bounds, and rather too hopeful" if plan.prior is None else "what the prior says"
    help_ = ["More records", "a larger epsilon", "fewer columns"]
    if plan.facts.agents > 1:
        help_.append("fewer agents with more records each")
    if _could_bound_colluders(plan):
        help_.append(BOUND)
    return (
        f"This budget is too small for these records: the plan expects to leave {told} the excess that a model of "
        f"zeros has, and the model may be worse than that. It is {grounds}. {', '.join(help_[:-1])}, or {help_[-1]} "
        "would help."
    )


def _could_bound_colluders(plan: Plan) -> bool:
    return plan.trust is not None and not plan.trust.sums and plan.facts.agents > 2


def _low(plan: Plan, expected: Expectation) -> str:
    assert plan.ledger is not None and plan.budget is not None
    sizes, rho = plan.facts.sizes, plan.ledger.limit
    more = noise_of(sizes, with_shares(rho, plan.facts, plan.trust)) / _noise_at(LOW_GAIN)
    help_ = [f"{more:.2g} times as many records"]
    epsilon = epsilon_exact(float(rho.max()) * more**2, plan.budget.delta)
    if rho.min() == rho.max() and epsilon <= MOST_EPSILON:
        help_.append(f"an epsilon of {math.ceil(10 * epsilon) / 10:g}")
    help_.append("fewer agents with more records each")
    if _could_bound_colluders(plan):
        help_.append(BOUND)
    return (
        f"This budget is too small for these records: expect {100 * expected.middle:.0f} % of the gain of a model "
        f"without privacy, and perhaps none of it, which is the most frequent class for every record. For "
        f"{100 * LOW_GAIN:.0f} %: {', '.join(help_[:-1])}, or {help_[-1]}. Fewer columns do not change this forecast."
    )


def _noise_at(gain: float) -> float:
    """The noise at which the middle of `GAINS` is this much."""
    at = np.array(list(GAINS))
    middle = np.array([row[1] for row in GAINS.values()])
    return float(2.0 ** np.interp(-gain, -middle, at))


def tell_baselines(baselines: Baselines | None) -> str:
    """What the accuracy is to be compared with; empty where it was not measured."""
    if baselines is None:
        return ""
    text = f"Always answering the most frequent class has an accuracy of {100 * baselines.majority:.1f} %"
    if baselines.without_privacy is not None:
        text += f", and a model without privacy one of {100 * baselines.without_privacy:.1f} %"
    return f"{text}.{'' if baselines.answers is None else ' ' + tell_answers(baselines)}"


def tell_answers(baselines: Baselines) -> str:
    """What is wrong with a model that tells no two records apart.

    >>> tell_answers(Baselines(0.6, None, "no"))
    'The model answers no for every record that its accuracy was measured on.'
    """
    return f"The model answers {baselines.answers} for every record that its accuracy was measured on."
