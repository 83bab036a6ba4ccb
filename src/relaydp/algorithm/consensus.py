"""What the methods with one copy of x per agent share: what they send, how they mix, and whom they answer to.

Noise of the `published` mechanism may enter only through differences between neighbours, an agent using its own *noisy*
value there: x - (I - W)(x + e), never W(x + e). With its own clean value the limit is biased for good.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm.base import MESSAGES, Setting, Turn
from relaydp.graph import Graph, metropolis

Everyone = Float[Array, "agents dim"]


class Copies(NamedTuple):
    """Each agent's vector, sent to all its neighbours."""

    x: Everyone


def masked(setting: Setting, turn: Turn, value: Everyone) -> Everyone:
    """What is heard of `value`: with noise under the `published` mechanism and as it is otherwise.

    All that an agent learns of the others comes through here, so `setting.exchange` is the one place that a network
    has to fill.
    """
    if setting.variant != MESSAGES:
        return setting.exchange(value)
    return setting.exchange(value + turn.scale[:, None] * jax.random.normal(turn.key, value.shape, value.dtype))


def apart(setting: Setting, value: Everyone) -> Everyone:
    """(I - W) value: how each agent differs from its neighbours."""
    return value - setting.network.mixing @ value


def spread(x0: Float[Array, " dim"], agents: int) -> Everyone:
    """Everybody starts at the public x0."""
    return jnp.broadcast_to(x0, (agents, x0.size))


def smallest_eigenvalue(graph: Graph) -> float:
    """lambda_min(W) of the Metropolis weights; public."""
    return float(np.linalg.eigvalsh(metropolis(graph))[0])
