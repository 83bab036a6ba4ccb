"""GradInversion (Yin et al. 2021, arXiv 2104.07586): match the gradient, with priors and agreement between seeds.

Every seed s searches for the whole batch, all of them together:

    (1)  min over X_s in [low, high]:   ||grad(X_s, y) - g||^2 / ||g||^2 + w_k TV(X_s)
    (2)                                 + w_norm ||X_s||^2 / size + w_group ||X_s - mean_s X_s||^2 / size

by Adam with a cosine step. The labels y come from the last layer's gradient (`restore_labels`, Yin's rule where no
label repeats). They also fix the order of the batch, so seeds can be compared image by image; images with the same
label may have another order in another seed, and are left out of the group term.

Left out: the BatchNorm term, since no model here has BatchNorm; the image registration before the mean (records are
centred alike); the noise on pixels. TV's weight falls with the step, as in `relaydp.attack.inverting`.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from relaydp.attack.shared import Objective, Progress, Reconstruction, Shared, Weights, search, squared_distance

AGREE_FROM = 0.5  # of the run: seeds first search independently, then with the group term


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
    norm: float = 1e-6,
    group: float = 0.01,
) -> Reconstruction:
    """Search for `batch` images from `restarts` seeds that agree with each other; the best fitting seed is returned.

    labels                   those the attacker knows; None restores them from the gradient
    stepsize                 Adam's first step, in units of the value range
    variation, norm, group   the weights of (1) and (2), for values in units of the range
    """
    weights = Weights(stepsize, variation, False, (norm, group))
    return search(shared, key, OBJECTIVE, weights, batch, steps, restarts, progress, labels)


def _cosine(done: Array) -> Array:
    return 0.5 * (1.0 + jnp.cos(jnp.pi * done))


def _prior(shared: Shared, weights: tuple[float, ...], y: Array, X: Array, centre: Array, done: Array) -> Array:
    """(2), with the group term from half-way on and only for labels that occur once."""
    norm, group = weights
    width = shared.high - shared.low
    same = jnp.all(y[:, None, :] == y[None, :, :], axis=2)
    alone = (jnp.sum(same, axis=1) == 1).astype(X.dtype)
    apart = jnp.mean(((X - centre) / width) ** 2, axis=tuple(range(1, X.ndim)))
    return norm * jnp.mean((X / width) ** 2) + jnp.where(done >= AGREE_FROM, group, 0.0) * jnp.mean(alone * apart)


OBJECTIVE = Objective(squared_distance, _cosine, _prior)
