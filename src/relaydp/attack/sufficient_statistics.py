"""What a baton of sufficient statistics gives away: each agent's H_i and b_i, as they were released,

    (1)  S+ = S + (H~_i, b~_i) / n

and with them its gradient at every point. The one that is stated here is at the model that the agent received.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from relaydp.algorithm.sufficient_statistics import unpack
from relaydp.attack.threat import Guess, Known, Sent, by_visit


def sufficient_statistics(known: Known, sent: Sent) -> Guess:
    """Every activation's H~_i x - b~_i: the difference of the S that an agent received and the S that it sent."""
    x, _ = known.visits(sent["x"], known.x0)
    numbers = sent["total"].shape[1]
    total, new_total = known.visits(sent["total"], jnp.zeros(numbers, known.x0.dtype))
    hessian, moment = jax.vmap(lambda row: unpack(row, known.x0.size))(known.agents * (new_total - total))  # (1)
    gradient = jnp.einsum("hjk,hk->hj", hessian, x) - moment
    return by_visit(known, x, gradient, known.trusted(jnp.ones(x.shape, bool)))
