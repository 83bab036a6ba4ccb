"""RECAL's steps: the set the proof allows, the paper's point of it, and the candidates that are tuned over.

With L_i of f_i/n, all agents acting at once converge iff

    alpha_i < 2/L_i    and    beta ( gamma n + alpha_i / (1 - alpha_i L_i / 2) ) < 1    for every i.

For the relay this is necessary in practice, not sufficient: a slow walk needs a smaller gamma. Planning finds one.
Candidates are fractions (a, b, g) in (0, 2) x (0, 1) x (0, 1) of that set, for the largest L_i:

    alpha = a / L          beta = b L (1 - a/2) / a          gamma = g (1 - b) / (beta n)

(then beta (gamma n + alpha/(1 - alpha L/2)) = g (1 - b) + b < 1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm.menu import Menu, product
from relaydp.errors import InputError
from relaydp.graph import Graph
from relaydp.problem import Facts


class RecalSteps(NamedTuple):
    """Steps for the f_i/n, r/n form."""

    alpha: Float[Array, " agents"]  # each agent's own step on y_i, from public bounds in a private run
    beta: Float[Array, ""]  # on the prices l_i
    gamma: Float[Array, ""]  # on the baton's x


PAPER_FACTOR = 1.9  # the paper allows alpha_i in (0, 2/(L_i + 1)); this is close to its edge, as its speed wants
CANDIDATES = product(
    a=(0.3, 0.5, 0.75, 1.0, 1.2, 1.4, 1.6, 1.8),
    b=(0.2, 0.35, 0.5, 0.65, 0.8, 0.9),
    g=(0.98, 0.5, 0.25, 0.1, 0.05, 0.025, 0.01, 0.003),
)


def paper_steps(facts: Facts, graph: Graph) -> RecalSteps:
    """gamma = 1, beta = 1/(2(n + 1)), alpha_i = 1.9/(L_i/n + 1): the paper's, for the f_i/n form."""
    n = facts.agents
    return RecalSteps(PAPER_FACTOR / (facts.smoothness / n + 1.0), 1.0 / (2.0 * (n + 1.0)), 1.0)  # type: ignore[arg-type]


def fractions(facts: Facts, a: float, b: float, g: float) -> RecalSteps:
    """The candidate (a, b, g)."""
    n, L = facts.agents, float(facts.smoothness.max()) / facts.agents
    beta = b * L * (1.0 - a / 2.0) / a
    return RecalSteps(a / L, beta, g * (1.0 - b) / (beta * n))  # type: ignore[arg-type]


def candidates(facts: Facts, graph: Graph) -> list[RecalSteps]:
    return [fractions(facts, **row) for row in CANDIDATES]


def check_stable(steps: RecalSteps, facts: Facts, graph: Graph) -> None:
    """Refuse steps outside the set above, naming the agent and the number that would do."""
    alpha, beta, gamma = (np.asarray(part) for part in steps)
    scaled = facts.smoothness / facts.agents
    too_long = np.flatnonzero(alpha >= 2.0 / scaled)
    if too_long.size:
        i = int(too_long[0])
        raise InputError(
            f"alpha={alpha[i]:.4g} for agent {i} is not below 2/L_i={2.0 / scaled[i]:.4g} (L_i={scaled[i]:.4g} of "
            f"f_i/n); lower it, or use steps='tuned'."
        )
    load = beta * (gamma * facts.agents + alpha / (1.0 - alpha * scaled / 2.0))
    worst = int(np.argmax(load))
    if load[worst] >= 1.0:
        raise InputError(
            f"steps are outside the stable set: beta (gamma n + alpha_i/(1 - alpha_i L_i/2)) = {load[worst]:.4g} for "
            f"agent {worst}, needed below 1. Divide beta by {load[worst] * 1.05:.3g}, or use steps='tuned'."
        )


def cautious(facts: Facts, graph: Graph) -> RecalSteps:
    """For networks too large to simulate: on a cycle the stable gamma shrinks like 1/n."""
    return fractions(facts, 0.5, 0.8, min(0.05, 4.0 / facts.agents))


RECAL_MENU = Menu(RecalSteps, paper_steps, candidates, check_stable, per_agent=("alpha",), cautious=cautious)
