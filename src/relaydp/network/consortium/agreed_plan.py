"""The plan of a consortium: made from public facts, agreed on as numbers, and checked by every party.

propose    simulate and choose activations, steps and noise; no record is read
draw_up    the consortium with the numbers of such a plan
plan_of    the plan that the agreed numbers describe, for agents and the simulator. Nothing is simulated: a party
           need not trust the author of the plan, it only checks what the plan costs
verified   the same plan, checked again by an accountant that is not ours
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_type_hints

import numpy as np

from relaydp.algorithm import ALGORITHMS, Algorithm, find_algorithm
from relaydp.engine.solver import check_promise
from relaydp.errors import InputError, PrivacyError
from relaydp.graph import Rounds
from relaydp.network.consortium.agreement import Agreed, Consortium, facts_of
from relaydp.oracle.randomness import WALK, key_for
from relaydp.planning.planner import lay_out
from relaydp.planning.planner import plan as make_plan
from relaydp.planning.run_plan import Plan
from relaydp.planning.tuning import choose_steps
from relaydp.privacy import Budget, Ledger, Verification, gaussian_rho, verify
from relaydp.privacy.budget import check_records
from relaydp.privacy.ledger import TOLERANCE
from relaydp.privacy.sensitivity import sensitivity as clipped_sensitivity
from relaydp.problem import Facts

ROUNDING = 1e-12  # how far, relatively, a sensitivity may be above the one computed here; below it nothing is proven


def network_algorithms() -> dict[str, Algorithm]:
    """The algorithms that can run between parties: noise on gradients, and one message along an edge per step.

    Read from what they declare, which costs nothing; `party.step.on_network` tries one out, and a test checks that both
    agree.
    """

    def fits(method: Algorithm) -> bool:
        if method.kind == "relay":  # one that works in laps stops when a party is lost, and parties are
            return method.links == "hop" and method.receive is not None and not method.menu.laps
        return (method.links, method.exchanges, method.vectors) == ("neighbours", 1, 1)

    return {name: each for name, each in sorted(ALGORITHMS.items()) if "gradient" in each.mechanisms and fits(each)}


def propose(
    consortium: Consortium, *, activations: int | None = None, steps: Any = "tuned", ratio: float | None = None
) -> Plan:
    """What `relaydp.plan` makes of the consortium's public facts; see there for the options."""
    return make_plan(
        facts_of(consortium),
        consortium.graph,
        Budget(consortium.epsilon, consortium.delta),
        algorithm=consortium.algorithm,
        activations=activations,
        walk=consortium.walk or "random",
        steps=steps,
        ratio=ratio,
        seed=consortium.walk_seed,
        start=consortium.start,
    )


def with_plan(consortium: Consortium, plan: Plan) -> Consortium:
    """The consortium with the plan's numbers, and so with another identity."""
    steps = {name: np.asarray(value).tolist() for name, value in plan.steps._asdict().items()}
    return replace(consortium, plan=Agreed(plan.activations, steps, plan.scales, plan.sensitivity))


def draw_up(
    consortium: Consortium, *, activations: int | None = None, steps: Any = "tuned", ratio: float | None = None
) -> Consortium:
    """The consortium with a plan: made from public facts alone, so any party may do it for all."""
    return with_plan(consortium, propose(consortium, activations=activations, steps=steps, ratio=ratio))


def plan_of(consortium: Consortium) -> Plan:
    """The plan that the agreed numbers make, with every release charged to a ledger.

    Refuses steps that the algorithm's theory forbids, sensitivities other than 2 clip / m_i with its rounding, numbers
    that do not fit the parties, a delta of 1/m or more for a party with m records, too little noise for (epsilon,
    delta), and an (epsilon, delta) that secret noise cannot guarantee over so many releases. Every party calls this
    before it reads a record.
    """
    agreed, facts = consortium.plan, facts_of(consortium)
    if agreed is None:
        raise InputError(f"{consortium.name} has no plan yet. Run `relaydp consortium plan` on its file.")
    method = find_algorithm(consortium.algorithm)
    budget = Budget(consortium.epsilon, consortium.delta)
    check_records(budget, facts.sizes)
    _check_numbers(consortium, agreed, facts)
    path = (consortium.walk or "random") if method.kind == "relay" else "all"
    # With steps by name and without noise to plan for, nothing is simulated: they are checked and made arrays. Absurd
    # ones overflow before they are refused.
    with np.errstate(all="ignore"):
        chosen = choose_steps(method, agreed.steps, facts, consortium.graph, path, agreed.activations, None).steps
    _check_shapes(chosen, facts)
    way = lay_out(
        method,
        chosen,
        agreed.activations,
        consortium.graph,
        consortium.walk or "random",
        key_for(consortium.walk_seed, WALK),
        consortium.start,
        private=True,
    )
    if isinstance(way, Rounds) and not way.acts.all():
        raise InputError(
            f"{method.name} lets parties skip rounds with these steps; in a consortium every party must act in every "
            "round."
        )
    plan = Plan(
        algorithm=method,
        mechanism="gradient",
        variant=None,
        budget=budget,
        walk=consortium.walk,
        facts=facts,
        steps=chosen,
        activations=agreed.activations,
        route=way,
        degree=np.asarray(consortium.graph.degree),
        scales=agreed.scales,
        sensitivity=agreed.sensitivity,
        start=consortium.start,
        ratio=None,
        ledger=Ledger(facts.agents, budget.rho),
        outlook=None,
        prior=None,
    )
    _check_promise(consortium, plan)
    return plan


def _check_numbers(consortium: Consortium, agreed: Agreed, facts: Facts) -> None:
    shape = (agreed.activations, facts.agents)
    if agreed.scales.shape != shape or agreed.sensitivity.shape != shape[1:]:
        raise InputError(
            f"the plan has scales of shape {agreed.scales.shape} and sensitivities of shape "
            f"{agreed.sensitivity.shape}; they must be {shape} and {shape[1:]}. Make the plan again."
        )
    if not (np.isfinite(agreed.scales).all() and (agreed.scales > 0).all()):
        raise PrivacyError("the plan has noise scales that are not finite numbers > 0. Make the plan again.")
    needed = clipped_sensitivity(facts.clip, facts.sizes, facts.dim)
    off = np.flatnonzero(~((agreed.sensitivity >= needed) & (agreed.sensitivity <= needed * (1.0 + ROUNDING))))
    if off.size:
        i = int(off[0])
        raise PrivacyError(
            f"the plan says that {consortium.parties[i].name} has sensitivity {float(agreed.sensitivity[i])!r}; it "
            f"must be 2 clip / records, which is {float(needed[i])!r} with rounding. Make the plan again."
        )


def _check_shapes(steps: Any, facts: Facts) -> None:
    """One number, or one per party, as the algorithm declares its steps: a compiled step would broadcast any other
    shape."""
    for name, kind in get_type_hints(type(steps)).items():
        needed, shape = (facts.agents,) if kind.dim_str == "agents" else (), np.shape(getattr(steps, name))
        if shape != needed:
            raise InputError(f"step {name} has shape {shape}; it must be {needed}. Make the plan again.")


def _check_promise(consortium: Consortium, plan: Plan) -> None:
    """Charge every release; refuse a plan that spends more than was agreed, and name the party whose records it would
    expose."""
    assert plan.ledger is not None and plan.budget is not None
    check_promise(plan)  # what secret noise can promise at all
    with np.errstate(over="ignore"):
        spent = gaussian_rho(plan.sensitivity[None, :], plan.scales).sum(axis=0)
    worst = int(np.argmax(spent))
    if not spent[worst] <= plan.budget.rho * (1.0 + TOLERANCE):
        raise PrivacyError(
            f"the plan has too little noise for {consortium.parties[worst].name}: rho {spent[worst]:.6g}, and epsilon "
            f"{consortium.epsilon:g} at delta {consortium.delta:g} allows {plan.budget.rho:.6g}. The plan is refused. "
            "Make it again."
        )
    plan.charge(plan.ledger)  # again, release by release
    over = plan.ledger.overspender(consortium.epsilon * (1.0 + TOLERANCE), consortium.delta)
    if over is not None:  # and again, in epsilon instead of rho
        name, epsilon = consortium.parties[over[0]].name, over[1]
        raise PrivacyError(f"{name} would spend epsilon {epsilon:.6g} of {consortium.epsilon:g}: the plan is refused.")
    plan.lattice_scales()  # refuses noise so large that its lattice is coarse compared with the sensitivity


def epsilon_of(consortium: Consortium, party: int) -> float:
    """The exact epsilon of all that a party will release, at the agreed delta."""
    ledger = plan_of(consortium).ledger
    assert ledger is not None
    return ledger.epsilon_of(party, consortium.delta)


def verified(consortium: Consortium, plan: Plan) -> Verification:
    """The plan's ledger, checked from its raw columns with dp-accounting; refuses one that fails the check."""
    assert plan.ledger is not None
    found = verify(plan.ledger.to_json(), consortium.delta)
    if not found.holds:
        reasons = " ".join(found.reasons)
        raise PrivacyError(f"the second accountant does not agree with the plan of {consortium.name}: {reasons}")
    return found


def longest_wait(plan: Plan) -> int:
    """The largest number of successive hops on the planned walk at which no party may act; 0 for rounds."""
    if isinstance(plan.route, Rounds):
        return 0
    acting = np.flatnonzero(plan.route.acts)
    return int(np.diff(acting, prepend=-1).max()) - 1
