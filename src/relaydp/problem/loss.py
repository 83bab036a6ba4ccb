"""Losses of one record. Linear models share one shape, so that clipping has a closed form.

For a linear model the loss of record (a, b) is phi(z, b) with scores z = a'W. Its gradient in W is the outer product
a (dphi/dz)', of norm ||a|| ||dphi/dz||: known without ever forming it. Each loss states two public constants,

    curvature   the largest eigenvalue of d2phi/dz2, so that L <= curvature * B^2 when ||a|| <= B
    slope       the largest ||dphi/dz|| (inf where there is none), so that a record's gradient is at most slope * B
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Labels = Literal["number", "two classes", "classes"]


@jax.custom_jvp
def softplus(a: Float[Array, " *any"]) -> Float[Array, " *any"]:
    """log(1 + e^a), on a CPU faster than by jnp.logaddexp.

    Its derivative is stated: attacks differentiate losses twice, and kinks that cancel have none at 0.
    """
    return jnp.maximum(a, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(a)))


@softplus.defjvp
def _softplus_slope(at: tuple[Array], along: tuple[Array]) -> tuple[Array, Array]:
    return softplus(at[0]), jax.nn.sigmoid(at[0]) * along[0]


@dataclass(frozen=True)
class LinearLoss:
    """phi(z, b) and dphi/dz for a batch: scores (records, outputs), labels (records,)."""

    name: str
    labels: Labels
    curvature: float
    slope: float
    outputs: int = 1
    threshold: float = math.inf  # Huber's: where the parabola becomes a line

    def values(self, scores: Float[Array, "records outputs"], y: Array) -> Float[Array, " records"]:
        if self.name == "softmax":
            picked = jnp.take_along_axis(scores, y[:, None], axis=1)[:, 0]
            return jax.nn.logsumexp(scores, axis=1) - picked
        z = scores[:, 0]
        if self.name == "logistic":
            return softplus(-y * z)
        distance = jnp.abs(z - y)
        inner = jnp.minimum(distance, self.threshold)
        # the parabola inside the threshold; outside, the line that continues it. With threshold inf: least squares.
        line = jnp.where(distance > inner, inner * (distance - inner), 0.0)
        return 0.5 * inner * inner + line

    def slopes(self, scores: Float[Array, "records outputs"], y: Array) -> Float[Array, "records outputs"]:
        """dphi/dz for each record."""
        if self.name == "softmax":
            return jax.nn.softmax(scores, axis=1) - jax.nn.one_hot(y, self.outputs, dtype=scores.dtype)
        z = scores[:, 0]
        if self.name == "logistic":
            slope = -y * jax.nn.sigmoid(-y * z)
        else:
            slope = jnp.clip(z - y, -self.threshold, self.threshold)
        return slope[:, None]


LEAST_SQUARES = LinearLoss("least-squares", "number", curvature=1.0, slope=math.inf)
LOGISTIC = LinearLoss("logistic", "two classes", curvature=0.25, slope=1.0)


def softmax_loss(classes: int) -> LinearLoss:
    """-log softmax(z)_b. Its Hessian diag(p) - pp' is at most 1/2; ||p - e_b|| is at most sqrt 2."""
    return LinearLoss("softmax", "classes", curvature=0.5, slope=math.sqrt(2.0), outputs=classes)


def huber_loss(threshold: float) -> LinearLoss:
    """(z - b)^2/2 up to |z - b| = threshold, a line beyond: least squares whose records cannot pull without limit."""
    return LinearLoss("huber", "number", curvature=1.0, slope=threshold, threshold=threshold)


@dataclass(frozen=True)
class CustomLoss:
    """Any JAX function fn(x, a, b) -> loss of one record, convex and smooth in x. Clipped by vmap."""

    fn: Callable[[Array, Array, Array], Array]
    dim: int
    labels: Labels = "number"
    name: str = "custom"


Loss = LinearLoss | CustomLoss
CLASSIFIERS = ("logistic", "softmax")  # losses of models whose users look at accuracy
