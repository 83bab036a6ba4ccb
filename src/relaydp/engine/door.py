"""The door: the one place where an algorithm's question meets the records, and where the noise is added.

    g~ = [ (1/m_i) sum_j clip_c( grad loss_ij(y) ) + N(0, s^2 I) + l2 y ] / n

in the f_i/n form. Everything an algorithm does with g~ is post-processing. Without a mechanism nothing is clipped and
s = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from relaydp.algorithm import Setting
from relaydp.privacy.mechanism import release
from relaydp.problem import Silos
from relaydp.problem.problem import Terms


def _both(acts: Array, act: Callable[[], Any], relay: Callable[[], Any]) -> Any:
    # lax.cond with a batched predicate would copy all records for every run of the batch
    return jax.tree.map(lambda a, b: jnp.where(acts, a, b), act(), relay())


def open_door(
    silos: Silos, terms: Terms, clip: Float[Array, ""] | None, variant: str | None, batched: bool = False
) -> Setting:
    """All that a step may use: the privatised gradient and the prox, and nothing else of the problem."""
    agents = silos.size.shape[0]

    def gradient(
        i: Int[Array, ""], y: Float[Array, " dim"], scale: Float[Array, ""], key: PRNGKeyArray
    ) -> Float[Array, " dim"]:
        noisy = release(silos.gradient(i, y, clip), scale, key)
        return (noisy + terms.ridge_gradient(y)) / agents

    def prox(v: Float[Array, " dim"], t: Float[Array, ""]) -> Float[Array, " dim"]:
        return terms.prox(v, t)  # gamma n (r/n) = gamma r

    return Setting(agents, gradient, prox, _both if batched else jax.lax.cond, variant)
