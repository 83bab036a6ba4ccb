"""solve_alone: what each agent gets from its own records only, under the same budget. The relay must beat it.

Proximal gradient descent on f_i + r through the same door: the same clipping, noise and accountant, no messages.

    x_i+ = prox_{t r}( x_i - t g~_i(x_i) )          t = a / L

The number of steps and a come from public facts, by the closed form of the same model that the lab simulates.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from relaydp.algorithm.lab import ACTIVATIONS, CONDITION, DEFAULT_ACTIVATIONS, Noise, directions
from relaydp.engine.door import open_door
from relaydp.engine.plan import MARGIN
from relaydp.privacy import Budget, Ledger, gaussian_scale, geometric
from relaydp.problem import Facts, Problem, Silos
from relaydp.problem.problem import Terms

STEPSIZES = (0.3, 0.5, 0.75, 1.0, 1.2, 1.4, 1.6, 1.8)  # a, of which t = a/L


@dataclass(frozen=True, eq=False)
class Alone:
    """One model an agent."""

    x: np.ndarray  # (agents, dim)
    accuracy: np.ndarray  # (agents,) on the held-out records; NaN where the loss does not classify
    objective: np.ndarray  # (agents,) F, over everybody's records
    plf: int
    epsilon: float
    epsilon_paper: float
    ledger: Ledger | None


def solve_alone(
    problem: Problem, budget: Budget | None = None, *, activations: int | None = None, seed: int = 0
) -> Alone:
    """Let every agent train by itself, privately under `budget`, and measure each model on everybody's data.

    >>> import relaydp as rd
    >>> problem = rd.logistic(rd.load_data("breast-cancer"), agents=4, l2=1e-2)
    >>> rd.solve_alone(problem, rd.Budget(epsilon=2.0, delta=1e-4)).x.shape
    (4, 30)
    """
    facts = problem.measured_facts() if budget is None else problem.public_facts()
    a, T = _choose(facts, None if budget is None else Noise(budget.rho), activations)
    L = float(facts.smoothness.max())
    ledger, scales, clip = None, np.zeros((T, facts.agents)), None
    if budget is not None:
        sensitivity = 2.0 * facts.clip / facts.sizes
        scales = gaussian_scale(sensitivity[None, :], geometric(budget.rho * (1.0 - MARGIN), T)[:, None])
        clip = jnp.asarray(facts.clip)
        ledger = Ledger(facts.agents, budget.rho)
        who, when = np.tile(np.arange(facts.agents), T), np.repeat(np.arange(T), facts.agents)
        ledger.charge_many(who, when, sensitivity[who], scales.ravel())
    key = jax.random.fold_in(jax.random.key(seed), 1)
    start = jnp.zeros((facts.agents, facts.dim))
    t, noise = jnp.asarray(a / L), jnp.asarray(scales)
    x = np.asarray(_descend(problem.working_silos, problem.terms, clip, t, noise, key, start))
    return Alone(
        x=x,
        accuracy=problem.accuracies(x) if problem.classifies else np.full(len(x), np.nan),
        objective=problem.objectives(x),
        plf=T,
        epsilon=np.inf if ledger is None or budget is None else ledger.epsilon(budget.delta),
        epsilon_paper=np.inf if ledger is None or budget is None else ledger.epsilon_paper(budget.delta),
        ledger=ledger,
    )


def _choose(facts: Facts, noise: Noise | None, activations: int | None) -> tuple[float, int]:
    """(a, T): the least predicted excess over the public model. One number follows (1 - a h)^T in closed form."""
    if noise is None:
        return 1.0, DEFAULT_ACTIVATIONS if activations is None else activations
    L = float(facts.smoothness.max())
    h, count, distance = directions(facts.dim, max(facts.modulus / L, CONDITION), facts.clip, L)
    variance = (2.0 * facts.clip / facts.sizes.min()) ** 2 / (2.0 * noise.rho)
    best = (np.inf, 1.0, 1)
    for T in ACTIVATIONS if activations is None else (activations,):
        for a in STEPSIZES:
            shrink = (1.0 - a * h) ** 2
            noisy = a**2 * (1.0 - shrink**T) / (1.0 - shrink)
            excess = 0.5 * L * np.sum(h * (distance * shrink**T + count * noisy * variance * T / L**2))
            best = min(best, (float(excess), a, T))
    return best[1], best[2]


@jax.jit
def _descend(
    silos: Silos, terms: Terms, clip: Array | None, t: Array, scales: Array, key: Array, start: Array
) -> Array:
    setting = open_door(silos, terms, clip)

    def one(xs: Array, inputs: tuple[Array, Array]) -> tuple[Array, None]:
        number, scale = inputs
        slopes = setting.gradients(xs, scale, jax.random.fold_in(key, number))
        return jax.vmap(setting.prox, in_axes=(0, None))(xs - t * slopes, t), None

    return jax.lax.scan(one, start, (jnp.arange(scales.shape[0]), scales))[0]
