"""The door: the one place where an algorithm's question meets the records, and where the noise is added.

    g~_i(y) = (1/m_i) sum_j clip_c( grad loss_ij(y) ) + N(0, s^2 I) + l2 y

Everything an algorithm does with g~ is post-processing. Without a mechanism nothing is clipped and s = 0.

The exact door, argmin f_i(x) + [r(x)] + <p + e, x> + kappa/2 ||x - v||^2, is private by the noise e in the objective
(`privacy.objective`), has e = 0 in runs without privacy, and stays shut under noise on gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from relaydp.algorithm import Setting
from relaydp.algorithm.base import OBJECTIVE
from relaydp.engine.inner import find_minimiser
from relaydp.errors import PrivacyError
from relaydp.graph import Network
from relaydp.privacy.mechanism import perturbation, release
from relaydp.problem import Silos
from relaydp.problem.problem import Terms


class Spectra(NamedTuple):
    """Least squares solved once for every kappa: H_i = Q_i diag(h_i) Q_i' + l2 (I - Q_i Q_i'), and b_i = A_i'y / m_i.

    Where there are fewer records than coefficients Q_i spans the records, and all the rest has the ridge's curvature.
    """

    values: Float[Array, "agents rank"]  # h_i, with the ridge
    vectors: Float[Array, "agents dim rank"]  # Q_i
    moments: Float[Array, "agents dim"]  # b_i
    rest: Float[Array, ""]  # l2

    def solve(self, i: Any, p: Array, kappa: Array, v: Array) -> Array:
        """argmin 1/2 x'H_i x - b_i'x + <p, x> + kappa/2 ||x - v||^2 for agent i, or for all with i = slice(None)."""
        h, Q = self.values[i], self.vectors[i]
        right = self.moments[i] - p + kappa[..., None] * v
        turned = jnp.einsum("...kj,...k->...j", Q, right)
        if Q.shape[-1] == Q.shape[-2]:
            return jnp.einsum("...kj,...j->...k", Q, turned / (h + kappa[..., None]))
        beside = self.rest + kappa[..., None]
        bent = turned / (h + kappa[..., None]) - turned / beside
        return right / beside + jnp.einsum("...kj,...j->...k", Q, bent)


class Exact(NamedTuple):
    """What opens the exact door: the L_i for an iterative argmin, and for least squares the spectra."""

    smoothness: Float[Array, " agents"]
    spectra: Spectra | None


NO_NETWORK = Network()
DEAR = 2**14  # numbers that a gradient reads


def _both(acts: Array, act: Callable[[], Any], relay: Callable[[], Any]) -> Any:
    # lax.cond with a batched predicate would copy all records for every run of the batch
    return jax.tree.map(lambda a, b: jnp.where(acts, a, b), act(), relay())


def open_door(
    silos: Silos,
    terms: Terms,
    clip: Float[Array, ""] | None,
    network: Network = NO_NETWORK,
    variant: str | None = None,
    batched: bool = False,
    exact: Exact | None = None,
) -> Setting:
    """All that a step may use: the doors and the prox, nothing else of the problem. `exact` opens the exact door."""
    agents = silos.size.shape[0]
    ridge = 0.0 if terms.free else terms.l2  # what it adds to the least curvature: nothing along a free intercept

    def privatise(value: Array, scale: Array, key: PRNGKeyArray) -> Array:
        # clip and noise belong together: without a clip there is nothing to protect, and no draw to pay for
        return value if clip is None else release(value, scale, key)

    def gradient(
        i: Int[Array, ""], y: Float[Array, " dim"], scale: Float[Array, ""], key: PRNGKeyArray
    ) -> Float[Array, " dim"]:
        return privatise(silos.gradient(i, y, clip), scale, key) + terms.ridge_gradient(y)

    def gradients(
        ys: Float[Array, "agents dim"], scales: Float[Array, " agents"], key: PRNGKeyArray
    ) -> Float[Array, "agents dim"]:
        return privatise(silos.gradients(ys, clip), scales[:, None], key) + jax.vmap(terms.ridge_gradient)(ys)

    def search(i: Array, p: Array, kappa: Array, v: Array, with_r: bool) -> Array:
        def slope(x: Array) -> Array:
            return silos.gradient(i, x, None) + terms.ridge_gradient(x) + p + kappa * (x - v)

        L = _open(exact).smoothness[i]
        return find_minimiser(slope, terms.prox if with_r else None, v, L + kappa, ridge + kappa, _dear(silos))

    def argmin(
        i: Int[Array, ""],
        p: Float[Array, " dim"],
        kappa: Float[Array, ""],
        v: Float[Array, " dim"],
        with_r: bool,
        scale: Float[Array, ""],
        key: PRNGKeyArray,
    ) -> Float[Array, " dim"]:
        spectra = _open(exact).spectra
        p = p + perturbation(p.shape, scale, key) if variant == OBJECTIVE else p
        return search(i, p, kappa, v, with_r) if spectra is None else spectra.solve(i, p, kappa, v)

    def argmins(
        p: Float[Array, "agents dim"],
        kappa: Float[Array, " agents"],
        v: Float[Array, "agents dim"],
        with_r: bool,
        scales: Float[Array, " agents"],
        key: PRNGKeyArray,
    ) -> Float[Array, "agents dim"]:
        L, spectra = _open(exact)
        p = p + perturbation(p.shape, scales, key) if variant == OBJECTIVE else p
        if spectra is not None:
            return spectra.solve(slice(None), p, kappa, v)

        if silos.by_passes:  # each agent's search takes the passes that it needs, and stays in cache
            each = jnp.arange(agents, dtype=jnp.int32)
            return jax.lax.map(lambda i: search(i, p[i], kappa[i], v[i], with_r), each)

        def slope(xs: Array) -> Array:
            own = jax.vmap(terms.ridge_gradient)(xs)
            return silos.gradients(xs, None) + own + p + kappa[:, None] * (xs - v)

        prox = jax.vmap(terms.prox) if with_r else None
        return find_minimiser(slope, prox, v, L + kappa, ridge + kappa, _dear(silos))

    # on an accelerator a branch waits for the host; a gradient costs less, an exact minimiser more
    together = batched or (exact is None and jax.default_backend() != "cpu")
    when = _both if together else jax.lax.cond
    return Setting(agents, gradient, gradients, argmin, argmins, terms.prox, when, network, variant)


def _dear(silos: Silos) -> bool:
    """Whether a gradient costs more than all that the exact argmin may do to save one."""
    numbers = silos.rows * silos.X.shape[1] if silos.gram is None else silos.gram.hessian.shape[-1] ** 2
    return numbers >= DEAR


def _open(exact: Exact | None) -> Exact:
    if exact is None:
        raise PrivacyError("the exact door is closed in a private run; use the algorithm's linearised form.")
    return exact
