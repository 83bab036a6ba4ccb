"""The oracle's other question: the mean of an agent's records by class, with noise. A run asks it once, before anything
else.

    m~_i = (c/B) (1) + N(0, s_i^2 I)                      (1) of `problem.coordinates`

One record moves (1) by at most 2B/m_i, and c/B brings it to the units of a clipped gradient.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from relaydp.errors import PrivacyError
from relaydp.privacy.mechanism import release
from relaydp.privacy.secret import release_secret_traced, share_secret_traced, share_simulated
from relaydp.problem import AgentRecords

NO_NOISE = "the mean record needs noise: a simulation's key, or secret draws, and not both."


def release_moments(
    agent_records: AgentRecords,
    bound: Float[Array, ""],
    unit: Float[Array, ""],
    scale: Float[Array, " agents"],
    key: Array | None,
    draws: Int[Array, "agents numbers"] | None,
) -> Float[Array, "agents numbers"]:
    """Every agent's m~_i. One call is one release of each agent: charge it before.

    `draws` is secret noise in units of its lattice, `key` a simulation's; with neither nothing is released.
    """
    value = unit * agent_records.moments(bound)
    spread = scale[:, None]
    if key is not None and draws is None:
        return release(value, jnp.broadcast_to(spread, value.shape), key)
    if draws is not None and key is None:
        return release_secret_traced(value, spread, draws)
    raise PrivacyError(NO_NOISE)


def share_moments(
    agent_records: AgentRecords,
    bound: Float[Array, ""],
    unit: Float[Array, ""],
    scale: Float[Array, " agents"],
    step: Float[Array, ""],
    key: Array | None,
    draws: Int[Array, "agents numbers"] | None,
) -> Int[Array, "agents numbers"]:
    """What every agent adds to the sum of the m~_i, in whole numbers modulo 2^64: its own, and a share of the noise.

    `step` is that of their lattice. One call is one release of each agent: charge it before.
    """
    mean = unit * agent_records.moments(bound)
    if key is not None and draws is None:
        return share_simulated(mean, step, scale[:, None], key, len(mean))
    if draws is not None and key is None:
        return share_secret_traced(mean, step, draws, len(mean))
    raise PrivacyError(NO_NOISE)


def mean_of_shares(added: Int[Array, "agents numbers"], step: Float[Array, ""]) -> Float[Array, " numbers"]:
    """The mean of all m~_i: what the sum says, and all that is seen of it."""
    return jnp.sum(added, axis=0).astype(step.dtype) * (step / len(added))
