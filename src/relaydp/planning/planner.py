"""plan: what a budget will buy on this graph, before anybody touches a record."""

from __future__ import annotations

from typing import Any

from relaydp.algorithm import Directions
from relaydp.engine.plan import Limits, Plan, make_plan
from relaydp.engine.randomness import WALK, check_seed, key_for
from relaydp.errors import PrivacyError
from relaydp.graph import Graph
from relaydp.privacy import Budget
from relaydp.privacy.budget import check_records
from relaydp.problem import Facts, Problem


def plan(
    problem: Problem | Facts,
    graph: Graph,
    budget: Budget,
    *,
    algorithm: str = "recal",
    activations: int | None = None,
    walk: str = "random",
    steps: Any = "tuned",
    ratio: float | None = None,
    limits: Limits = None,
    prior: Problem | Directions | None = None,
    seed: int | None = None,
    start: int = 0,
) -> Plan:
    """Choose the number of activations, the noise of each and the steps, and predict what comes of it.

    Uses public facts only, so it can be drawn up by anybody: from a problem's public bounds, or from
    `relaydp.public_facts(...)` without any data. `solve` with the same arguments makes and follows the same plan.

        plan.activations, plan.steps, plan.scales   what was chosen; scales are (activations, agents)
        plan.predicted                              the excess objective to expect
        plan.outlook                                the same against the number of activations

    The arguments are those of `solve`; with a `seed` it is a simulation's plan, whose classes, split and prior may come
    from the records. The prediction rests on a guess of the problem's curvature and signal; `prior`, a problem over
    public records, replaces the guess, and the best plans are tried on it before one is chosen. The promise does not
    depend on how good either is.

    >>> import relaydp as rd
    >>> facts = rd.public_facts([1500] * 8, features=784, loss="logistic", record_norm=1.0, l2=0.01)
    >>> plan = rd.plan(facts, rd.ring(8), rd.Budget(epsilon=1.0, delta=1e-5), walk="cyclic")
    >>> plan.scales.shape == (plan.activations, 8)
    True
    """
    if not isinstance(budget, Budget):
        raise PrivacyError(f"budget={budget!r}; needed Budget(epsilon=..., delta=...).")
    if isinstance(problem, Problem) and seed is None:  # with one it is a simulation's plan
        problem.check_declared(prior)
    check_records(budget, problem.sizes if isinstance(problem, Facts) else problem.split.sizes)  # as a private run will
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
    )
