"""Inverting gradients (Geiping et al. 2020, arXiv 2003.14053): match the gradient's direction, with a smooth image.

    (1)  min over images X in [low, high]:   1 - cos(grad(X, y), g) + w_k TV(X)

by Adam with a box projection; the labels y are known or restored from the last layer's gradient. The step falls at 3/8,
5/8 and 7/8 of the run, as the authors' does. The direction of a linear model's gradient does not depend on the image's
brightness, so TV would reduce it: at the end the images are multiplied by the factor that fits the gradient's length.

Two settings differ from the authors', both measured on CIFAR-10 images with the sigmoid LeNet, 2,000 iterations. The
weight of TV falls with the step: 5 dB better than with a constant weight (27 and 30 dB instead of 22 and 25, two
images). And Adam uses the gradient of (1) itself, not its sign: `signed=True`, as theirs, was made for deep ReLU
networks; here it reaches 15 to 30 dB, depending on the random network, where the gradient reaches 23 to 30 (five
networks).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from relaydp.attack.shared import Objective, Progress, Reconstruction, Shared, Weights, cosine_distance, search

DECAY = 0.3  # of the step and of TV's weight, each time; the authors' 0.1 stops short runs too early
DECAY_AT = (3 / 8, 5 / 8, 7 / 8)  # of the run


def reconstruct(
    shared: Shared,
    key: PRNGKeyArray,
    *,
    batch: int = 1,
    steps: int = 2400,
    restarts: int = 4,
    progress: Progress | None = None,
    labels: Any = None,
    stepsize: float = 0.05,
    variation: float = 3e-6,
    signed: bool = False,
) -> Reconstruction:
    """Search for `batch` images from `restarts` random starts at once; the one with the best direction of the gradient
    is returned.

    labels      those the attacker knows; None restores them from the gradient
    stepsize    Adam's first step, in units of the value range
    variation   w_0, the first weight of the total variation, for values in units of the range
    """
    weights = Weights(stepsize, variation, signed)
    return search(shared, key, OBJECTIVE, weights, batch, steps, restarts, progress, labels)  # (1)


def _falling(done: Array) -> Array:
    factor = jnp.ones_like(done)
    for mark in DECAY_AT:
        factor = jnp.where(done >= mark, DECAY * factor, factor)
    return factor


def _no_prior(shared: Shared, weights: tuple[float, ...], y: Array, X: Array, centre: Array, done: Array) -> Array:
    return jnp.zeros((), X.dtype)


OBJECTIVE = Objective(cosine_distance, _falling, _no_prior, scale_free=True)
