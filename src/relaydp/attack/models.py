"""Models whose gradients are attacked: linear ones, as relaydp trains, and the small network of the literature.

A model is a few pure functions of its public parameters, a dictionary of arrays:

    init(key, shape, classes)          parameters for records of `shape`
    logits(params, images)             scores z, one row per record
    gradient(params, images, labels)   (1/m) sum_j grad loss_j: the shared gradient of a batch of m records

Every model ends in a dense layer z = h'W + b, h being the record itself or a network's features; label restoration and
the closed forms use its gradient. Labels are as in the data (0..classes-1, -1/+1, numbers) or, if an attack searches
for them too, relaxed: one row per record, every entry free.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from relaydp.errors import InputError
from relaydp.problem.loss import LEAST_SQUARES, LOGISTIC

Params = dict[str, Array]
LossName = Literal["least-squares", "logistic", "softmax"]


class Model(ABC):
    """The common part of the models: the loss is a mean over the batch, and its gradient is shared."""

    loss: LossName

    @abstractmethod
    def logits(self, params: Params, images: Array) -> Float[Array, "batch outputs"]:
        """Scores z, one row per record."""

    @partial(jax.jit, static_argnums=0)
    def gradient(self, params: Params, images: Array, labels: Array) -> Params:
        """The gradient of the batch's mean loss; `labels` are hard (batch,) or relaxed (batch, outputs)."""

        def mean_loss(params: Params) -> Float[Array, ""]:
            scores = self.logits(params, images)
            return jnp.mean(self.losses(scores, labels if labels.ndim == 2 else self.encoded(labels, scores)))

        return jax.grad(mean_loss)(params)

    def losses(self, scores: Float[Array, "batch outputs"], labels: Float[Array, "batch outputs"]) -> Array:
        """The loss of each record, for relaxed labels: linear in them if they are probabilities."""
        match self.loss:
            case "softmax":
                return -jnp.sum(labels * jax.nn.log_softmax(scores), axis=1)
            case "logistic":  # label 2p - 1: +1 with probability p, else -1
                one = jnp.ones_like(labels[:, 0])
                plus, minus = LOGISTIC.values(scores, one), LOGISTIC.values(scores, -one)
                return 0.5 * (1.0 + labels[:, 0]) * plus + 0.5 * (1.0 - labels[:, 0]) * minus
            case _:
                return LEAST_SQUARES.values(scores, labels[:, 0])

    def encoded(self, labels: Array, scores: Float[Array, "batch outputs"]) -> Float[Array, "batch outputs"]:
        """Hard labels in the relaxed form: unit vectors for classes, one column otherwise."""
        if self.loss == "softmax":
            return jax.nn.one_hot(labels, scores.shape[1], dtype=scores.dtype)
        return labels.astype(scores.dtype)[:, None]

    def relaxed(self, free: Float[Array, "batch outputs"]) -> Float[Array, "batch outputs"]:
        """Labels from unconstrained numbers: probabilities, (-1, 1), or the numbers themselves."""
        match self.loss:
            case "softmax":
                return jax.nn.softmax(free)
            case "logistic":
                return jnp.tanh(free)
            case _:
                return free

    def hardened(self, labels: Float[Array, "batch outputs"]) -> Array:
        """The nearest hard labels."""
        match self.loss:
            case "softmax":
                return jnp.argmax(labels, axis=1)
            case "logistic":
                return jnp.where(labels[:, 0] < 0.0, -1, 1)
            case _:
                return labels[:, 0]


@dataclass(frozen=True)
class Linear(Model):
    """z = a'W (+ b) of the flattened record a: least squares, logistic or softmax regression.

    >>> Linear("softmax").init(jax.random.key(0), (28, 28, 1), 10)["W"].shape
    (784, 10)
    """

    loss: LossName
    intercept: bool = True

    def init(self, key: PRNGKeyArray, shape: tuple[int, ...], classes: int) -> Params:
        """Normal weights of variance 1/features, so that scores are of order 1; one output unless softmax."""
        features, outputs = math.prod(shape), classes if self.loss == "softmax" else 1
        weights_key, intercept_key = jax.random.split(key)
        params = {"W": jax.random.normal(weights_key, (features, outputs)) / features**0.5}
        if self.intercept:
            params["b"] = 0.1 * jax.random.normal(intercept_key, (outputs,))
        return params

    def from_vector(self, vector: Float[Array, " dim"], outputs: int = 1) -> Params:
        """A model or gradient of relaydp, one vector (W row by row, the intercepts last), as parameters."""
        W = jnp.asarray(vector).reshape(-1, outputs)
        return {"W": W[:-1], "b": W[-1]} if self.intercept else {"W": W}

    def logits(self, params: Params, images: Array) -> Float[Array, "batch outputs"]:
        scores = images.reshape(images.shape[0], -1) @ params["W"]
        return scores + params["b"][None, :] if self.intercept else scores


@dataclass(frozen=True)
class LeNet(Model):
    """The network attacked by Zhu et al. (2019, arXiv 1906.08935): three 5 x 5 convolutions, then one dense layer.

    12 channels each, strides 2, 2, 1, padding 2; sigmoids, because the attack differentiates twice. All weights and
    intercepts are uniform in (-1/2, 1/2), as theirs are. Images are (height, width, channels).
    """

    loss: LossName = "softmax"
    channels: int = 12

    STRIDES = (2, 2, 1)
    KERNEL = 5

    @partial(jax.jit, static_argnums=(0, 2, 3))  # eight small draws: one program instead of eight
    def init(self, key: PRNGKeyArray, shape: tuple[int, ...], classes: int) -> Params:
        if len(shape) != 3:
            raise InputError(
                f"the images have shape {shape}; the network needs (height, width, channels). Reshape them, or attack "
                "a Linear model."
            )
        height, width, channels = shape
        shapes: dict[str, tuple[int, ...]] = {}
        for layer, stride in enumerate(self.STRIDES, start=1):
            shapes[f"W{layer}"] = (self.KERNEL * self.KERNEL * channels, self.channels)
            shapes[f"b{layer}"] = (self.channels,)
            height, width, channels = -(-height // stride), -(-width // stride), self.channels
        shapes |= {"W": (height * width * channels, classes), "b": (classes,)}
        keys = jax.random.split(key, len(shapes))
        draws = zip(keys, shapes.items(), strict=True)
        return {name: jax.random.uniform(k, size, minval=-0.5, maxval=0.5) for k, (name, size) in draws}

    def logits(self, params: Params, images: Float[Array, "batch height width channels"]) -> Array:
        h = images
        for layer, stride in enumerate(self.STRIDES, start=1):
            scores = _patches(h, self.KERNEL, stride) @ params[f"W{layer}"]
            h = jax.nn.sigmoid(scores + params[f"b{layer}"].reshape(1, 1, 1, -1))
        return h.reshape(h.shape[0], -1) @ params["W"] + params["b"][None, :]


def _patches(images: Array, kernel: int, stride: int) -> Float[Array, "batch rows columns patch"]:
    """Every kernel x kernel window of the zero-padded images, flattened: a convolution is then a matrix product.

    Restarts are batched by vmap, and each needs its own weight gradient: grouped convolutions took 2.6 times as long on
    a CPU as these batched matrix products.
    """
    for axis in (1, 2):
        size = images.shape[axis]
        pad = [(0, 0)] * 4
        pad[axis] = (kernel // 2, kernel // 2)
        padded, last = jnp.pad(images, pad), stride * (-(-size // stride) - 1) + 1
        shifts = [jax.lax.slice_in_dim(padded, at, at + last, stride, axis) for at in range(kernel)]
        images = jnp.concatenate(shifts, axis=3)
    return images
