"""RECAL's steps: the set the proof allows, the paper's point of it, and steps given by hand.

With L_i of f_i/n, all agents acting at once converge iff

    alpha_i < 2/L_i    and    beta ( gamma n + alpha_i / (1 - alpha_i L_i / 2) ) < 1    for every i.

For the relay this is necessary in practice, not sufficient: a slow walk needs a smaller gamma. `tune` finds one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm.tune import Noise, Tuned, tune
from relaydp.errors import InputError, choose
from relaydp.graph import Graph
from relaydp.problem import Facts


class RecalSteps(NamedTuple):
    """Steps for the f_i/n, r/n form."""

    alpha: Float[Array, " agents"]  # each agent's own step on y_i, from public bounds in a private run
    beta: Float[Array, ""]  # on the prices l_i
    gamma: Float[Array, ""]  # on the baton's x


PAPER_FACTOR = 1.9  # the paper allows alpha_i in (0, 2/(L_i + 1)); this is close to its edge, as its speed wants


def paper_steps(facts: Facts) -> RecalSteps:
    """gamma = 1, beta = 1/(2(n + 1)), alpha_i = 1.9/(L_i/n + 1): the paper's, for the f_i/n form."""
    scaled = facts.smoothness / facts.agents
    return _as_steps(PAPER_FACTOR / (scaled + 1.0), 1.0 / (2.0 * (facts.agents + 1.0)), 1.0)


def _as_steps(alpha: Any, beta: Any, gamma: Any) -> RecalSteps:
    return RecalSteps(jnp.asarray(alpha, jnp.float64), jnp.asarray(beta, jnp.float64), jnp.asarray(gamma, jnp.float64))


def check_stable(steps: RecalSteps, facts: Facts) -> RecalSteps:
    """Refuse steps outside the set above, naming the agent and the number that would do."""
    alpha, beta, gamma = (np.asarray(part) for part in steps)
    scaled = facts.smoothness / facts.agents
    for name, value in (("alpha", alpha), ("beta", beta), ("gamma", gamma)):
        if not (np.isfinite(value).all() and (value > 0).all()):
            raise InputError(f"steps have {name}={value.tolist()}; needed finite numbers > 0.")
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
    return steps


def given_steps(asked: Any, facts: Facts) -> RecalSteps:
    """Steps by hand: a mapping or an object with alpha (one number, or one an agent), beta and gamma."""
    if isinstance(asked, RecalSteps):
        parts = asked._asdict()
    elif isinstance(asked, Mapping):
        parts = dict(asked)
    else:
        raise InputError(f"steps={asked!r}; needed 'tuned', 'paper', or numbers {{alpha, beta, gamma}}.")
    for name in parts:
        choose("step", name, RecalSteps._fields)
    missing = [name for name in RecalSteps._fields if name not in parts]
    if missing:
        raise InputError(f"steps lack {', '.join(missing)}; needed alpha, beta and gamma, or steps='tuned'.")
    try:
        alpha = np.broadcast_to(np.asarray(parts["alpha"], dtype=np.float64), (facts.agents,))
        beta, gamma = float(parts["beta"]), float(parts["gamma"])
    except (TypeError, ValueError) as error:
        raise InputError(
            f"steps={asked!r}; needed alpha (one number, or {facts.agents}), beta and gamma as numbers."
        ) from error
    return _as_steps(alpha, beta, gamma)


def choose_steps(
    asked: Any, facts: Facts, graph: Graph, walk: str, activations: int | None, noise: Noise | None
) -> tuple[RecalSteps, int]:
    """What `steps=` means, and the PLF where none was asked for."""
    if isinstance(asked, str):
        choose("steps", asked, ("paper", "tuned"))
    if activations is None or asked == "tuned":
        tuned: Tuned = tune(facts, graph, walk, activations, noise)
        activations = tuned.activations
        if asked == "tuned":
            steps = _as_steps(np.full(facts.agents, tuned.alpha), tuned.beta, tuned.gamma)
            return check_stable(steps, facts), activations
    steps = paper_steps(facts) if asked == "paper" else given_steps(asked, facts)
    return check_stable(steps, facts), activations
