"""The input and output of a reconstruction attack, and the common parts of the attacks.

`Shared` is the attacker's whole input: a gradient inferred from messages, the model and its public parameters, and the
public facts about a record: its shape and the range of its values. It has no field for an image or a label, so an
attack cannot use them; the true records go to `relaydp.attack.score` only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from relaydp.attack.models import Linear, Model, Params
from relaydp.errors import InputError

Progress = Callable[[int, int], None]  # (iterations done, iterations in all)
SNAPSHOTS = 12  # iterates kept during a search, for the curve of the error over iterations
START_SPREAD = 0.2  # of the value range, around its middle: the starting points of every search
SCALES = (4.0, 0.3, 0.02, 1e-3)  # logarithms of the factors that a scale is fitted within, one after the other
GUESSES = 64  # random images used instead of the batch to estimate its mean prediction


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Shared:
    """One shared gradient and the public facts around it.

    gradient     (1/m) sum_j grad loss_j(params), exact or noisy; the same structure as params
    shape        of one record: (height, width, channels), or (features,) for a linear model
    low, high    public bounds of a record's values
    """

    gradient: Params
    params: Params
    model: Model = field(metadata={"static": True})
    shape: tuple[int, ...] = field(metadata={"static": True})
    low: float = field(default=0.0, metadata={"static": True})
    high: float = field(default=1.0, metadata={"static": True})


@dataclass(frozen=True)
class Reconstruction:
    """An attack's reconstruction of the batch.

    images    (batch, *shape), within the public range
    labels    (batch,)
    losses    (restarts, steps): the attack's own objective, the only quality it can measure
    restart   the best one: the smallest final distance between gradients
    at, path  iterations, and the winner's images after each: (snapshots, batch, *shape)
    note      what the gradient does and does not identify, if the attack knows it
    """

    images: np.ndarray
    labels: np.ndarray
    losses: np.ndarray
    restart: int
    at: np.ndarray
    path: np.ndarray
    note: str = ""


def check(shared: Shared, batch: int, steps: int, restarts: int) -> None:
    """Refuse unusable input before anything is compiled."""
    for name, value in (("batch", batch), ("steps", steps), ("restarts", restarts)):
        if value < 1:
            raise InputError(f"{name}={value}; it must be 1 or more. Leave it out for the default.")
    if not shared.low < shared.high:
        raise InputError(
            f"low={shared.low}, high={shared.high}; low must be less than high: they are the public range of values."
        )
    sizes, needed = ({k: jnp.shape(v) for k, v in tree.items()} for tree in (shared.gradient, shared.params))
    if sizes != needed:
        raise InputError(
            f"the gradient has shapes {sizes}, and the parameters have {needed}. Pass the gradient in the parameters "
            "of the model attacked; Linear.from_vector turns a vector of relaydp into them."
        )
    if not all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in shared.gradient.values()):
        raise InputError("the gradient has NaN or infinite entries; all must be finite. Attack another message.")


# -- distances between gradients, and priors on images


def squared_distance(found: Params, target: Params) -> Float[Array, ""]:
    """||found - target||^2 / ||target||^2, all parameters together; relative, so that one prior weight fits all
    models."""
    apart = sum(jnp.sum((found[k] - target[k]) ** 2) for k in target)
    return jnp.asarray(apart / sum(jnp.sum(target[k] ** 2) for k in target))


def cosine_distance(found: Params, target: Params) -> Float[Array, ""]:
    """1 - <found, target> / (||found|| ||target||): the direction alone, all parameters together."""
    along = sum(jnp.sum(found[k] * target[k]) for k in target)
    norms = [jnp.sqrt(jnp.asarray(sum(jnp.sum(tree[k] ** 2) for k in target))) for tree in (found, target)]
    return 1.0 - along / (norms[0] * norms[1])


def total_variation(images: Array) -> Float[Array, ""]:
    """Sum of |differences| of neighbouring pixels, mean over the images; 0 for records that are not images.

    A sum, where the literature often takes a mean: one weight then fits 8 x 8 digits and colour photographs.
    """
    if images.ndim != 4:
        return jnp.zeros((), images.dtype)
    down, across = (jnp.sum(jnp.abs(jnp.diff(images, axis=axis))) for axis in (1, 2))
    return (down + across) / images.shape[0]


# -- starting points and loop of the searches


def first_images(shared: Shared, key: PRNGKeyArray, restarts: int, batch: int) -> Float[Array, "restarts batch ..."]:
    """Noise around the middle of the public range."""
    size = (restarts, batch, *shared.shape)
    noise = jax.random.normal(key, size, shared.params["W"].dtype)
    return 0.5 * (shared.low + shared.high) + START_SPREAD * (shared.high - shared.low) * noise


class Adam(NamedTuple):
    """Kingma and Ba (2015, arXiv 1412.6980): running means of the gradient and of its square."""

    mean: Array
    square: Array

    @staticmethod
    def start(x: Array) -> Adam:
        return Adam(jnp.zeros_like(x), jnp.zeros_like(x))

    def step(self, x: Array, slope: Array, stepsize: Array, iteration: Array) -> tuple[Array, Adam]:
        """The new x; `iteration` counts from 0 and undoes the bias of means that start at 0."""
        count = iteration.astype(x.dtype) + 1.0
        mean, square = 0.9 * self.mean + 0.1 * slope, 0.999 * self.square + 0.001 * slope * slope
        unbiased, spread = mean / (1.0 - 0.9**count), jnp.sqrt(square / (1.0 - 0.999**count))
        return x - stepsize * unbiased / (spread + 1e-8), Adam(mean, square)


def descend(
    advance: Callable[[Any, int, int], Any],
    state: Any,
    images: Callable[[Any], Array],
    steps: int,
    progress: Progress | None,
) -> tuple[Any, np.ndarray, list[Array]]:
    """Run `advance(state, start, stop)` to the end, stopping at intervals to store the images and to report
    `progress`."""
    at = np.unique(np.linspace(0, steps, min(SNAPSHOTS, steps) + 1).round().astype(int))
    path = [images(state)]
    for start, stop in zip(at[:-1], at[1:], strict=True):
        state = advance(state, int(start), int(stop))
        path.append(images(state))
        if progress is not None:
            progress(int(stop), steps)
    return state, at, path


def finish(
    shared: Shared, scores: Array, labels: Array, losses: Array, at: np.ndarray, path: list[Array]
) -> Reconstruction:
    """Pick the restart whose gradient fits best (never a diverged one) and keep its images, within the public range."""
    final = np.asarray(scores, dtype=np.float64)
    winner = int(np.argmin(np.where(np.isfinite(final), final, np.inf)))
    kept = np.clip(np.stack([np.asarray(images[winner], dtype=np.float64) for images in path]), shared.low, shared.high)
    return Reconstruction(kept[-1], np.asarray(labels[winner]), np.asarray(losses), winner, at, kept)


# -- the search by Adam


@dataclass(frozen=True)
class Objective:
    """What a search by Adam minimises over one restart's images X, as fixed functions: compiled once.

        distance(grad(X, y), g) + w_k TV(X) + prior(shared, weights, y, X, centre, k / steps)

    with w_k = w_0 decay(k / steps), the factor that also shrinks the step, and centre the restarts' mean.
    """

    distance: Callable[[Params, Params], Array]
    decay: Callable[[Array], Array]
    prior: Callable[..., Array]
    scale_free: bool = False  # whether `distance` may ignore an image's brightness: its scale is then fitted at the end

    def match(self, shared: Shared, y: Array, X: Array) -> Array:
        return self.distance(shared.model.gradient(shared.params, X, y), shared.gradient)


class Weights(NamedTuple):
    stepsize: float  # Adam's first step, in units of the value range
    variation: float  # w_0
    signed: bool  # Adam uses only the signs of the slopes
    prior: tuple[float, ...] = ()


class Search(NamedTuple):
    images: Float[Array, "restarts batch ..."]
    adam: Adam
    losses: Float[Array, "restarts steps"]


def search(
    shared: Shared,
    key: PRNGKeyArray,
    objective: Objective,
    weights: Weights,
    batch: int,
    steps: int,
    restarts: int,
    progress: Progress | None,
    labels: Any,
) -> Reconstruction:
    """Minimise the objective from `restarts` starts at once, images kept within the public range, labels fixed."""
    check(shared, batch, steps, restarts)
    image_key, label_key = jax.random.split(key)
    y = known_or_restored(shared, labels, batch, label_key)
    X = first_images(shared, image_key, restarts, batch)
    state = Search(X, Adam.start(X), jnp.zeros((restarts, steps), X.dtype))
    advance = partial(_search_on, shared, objective, weights, y)

    def images(state: Search) -> Array:
        return _fit_scale(shared, y, state.images) if objective.scale_free else state.images

    state, at, path = descend(advance, state, images, steps, progress)
    hard = jnp.broadcast_to(shared.model.hardened(y), (restarts, batch))
    return finish(shared, _matches(shared, objective, y, state.images), hard, state.losses, at, path)


@jax.jit
def _fit_scale(shared: Shared, y: Array, images: Array) -> Array:
    """Each restart's images times the factor that brings their gradient's length closest to the shared one's."""

    def apart(X: Array, scale: Array) -> Array:
        found = shared.model.gradient(shared.params, jnp.clip(scale * X, shared.low, shared.high), y)
        return squared_distance(found, shared.gradient)

    def fit(X: Array) -> Array:
        scale = jnp.ones((), X.dtype)
        for widths in SCALES:  # in narrowing ranges around the best one
            tried = scale * jnp.exp(jnp.linspace(-widths, widths, 41, dtype=X.dtype))
            scale = tried[jnp.argmin(jax.lax.map(partial(apart, X), tried))]
        return jnp.clip(scale * X, shared.low, shared.high)

    return jax.vmap(fit)(images)


@partial(jax.jit, static_argnums=1)
def _matches(shared: Shared, objective: Objective, y: Array, images: Array) -> Float[Array, " restarts"]:
    return jax.vmap(partial(objective.match, shared, y))(images)


@partial(jax.jit, static_argnums=1)
def _search_on(
    shared: Shared, objective: Objective, weights: Weights, y: Array, state: Search, start: int, stop: int
) -> Search:
    width, steps = shared.high - shared.low, state.losses.shape[1]

    def value(X: Array, centre: Array, done: Array) -> Array:
        smooth = weights.variation * objective.decay(done) * total_variation(X) / width
        return objective.match(shared, y, X) + smooth + objective.prior(shared, weights.prior, y, X, centre, done)

    def iteration(k: Array, state: Search) -> Search:
        done = (k / steps).astype(state.images.dtype)
        pull = jax.vmap(jax.value_and_grad(value), in_axes=(0, None, None))
        values, slopes = pull(state.images, jnp.mean(state.images, axis=0), done)
        slopes = jnp.where(weights.signed, jnp.sign(slopes), slopes)
        images, adam = state.adam.step(state.images, slopes, weights.stepsize * width * objective.decay(done), k)
        return Search(jnp.clip(images, shared.low, shared.high), adam, state.losses.at[:, k].set(values))

    return jax.lax.fori_loop(start, stop, iteration, state)


# -- labels


def restore_labels(shared: Shared, batch: int, key: PRNGKeyArray) -> Array:
    """The labels of a batch, in ascending order, from the last layer's gradient alone.

    With p_jk the model's probability of class k for record j, and h_j >= 0 its features (pixels, or after a sigmoid;
    for a linear model of values that may be negative, the intercept's 1 alone),

        (1)  g_W[:, k] = (1/m) sum_j (p_jk - [y_j = k]) h_j,    g_b[k] = (1/m) sum_j p_jk - m_k / m

    so a column of g_W has a negative entry only if class k is in the batch. If there are `batch` such classes, no label
    repeats, and they are the answer (Yin et al. 2021, arXiv 2104.07586; one record: Zhao et al. 2020, arXiv
    2001.02610). Otherwise labels may repeat, and their numbers are estimated from the mean prediction on random images:

        (2)  m_k ~ m (mean p_k - g_b[k]), rounded to whole numbers with sum m    (Wainakh et al. 2021, arXiv 2105.09369)

    (1) is exact for a noise-free gradient; (2) is an estimate, good if predictions differ little between images.
    """
    model, gradient = shared.model, shared.gradient
    if model.loss == "least-squares" or (model.loss == "logistic" and "b" not in gradient):
        raise InputError(
            f"labels= is missing, and a gradient of {model.loss} {'with' if 'b' in gradient else 'without'} intercept "
            "does not reveal them. Pass labels=, or use relaydp.attack.closed_form."
        )
    scores = _scores(model, shared.params, first_images(shared, key, 1, GUESSES)[0])
    if model.loss == "logistic":
        positive = batch * float(jnp.mean(jax.nn.sigmoid(scores)) - gradient["b"][0])  # (2) with two classes
        count = min(max(round(positive), 0), batch)
        if batch == 1:
            count = int(gradient["b"][0] < 0.0)  # (1): one record's slope has the sign of -y, whatever the prediction
        return jnp.array([-1] * (batch - count) + [1] * count)
    signed = isinstance(model, Linear) and shared.low < 0.0 and "b" in gradient
    lowest = np.asarray(gradient["b"] if signed else jnp.min(gradient["W"], axis=0))
    present = np.flatnonzero(lowest < 0.0)
    if len(present) >= batch or "b" not in gradient:
        return jnp.sort(jnp.argsort(jnp.asarray(lowest))[:batch])  # (1), Yin's rule
    expected = batch * np.asarray(jnp.mean(jax.nn.softmax(scores), axis=0) - gradient["b"])  # (2)
    counts = np.zeros(len(lowest), dtype=int)
    counts[present] = 1  # by (1) each of them occurs; the rest goes to the largest deficits, one by one
    while counts.sum() < batch:
        counts[int(np.argmax(expected - counts))] += 1
    return jnp.asarray(np.repeat(np.arange(len(counts)), counts))


@partial(jax.jit, static_argnums=0)
def _scores(model: Model, params: Params, images: Array) -> Float[Array, "batch outputs"]:
    return model.logits(params, images)


def known_or_restored(shared: Shared, labels: Any, batch: int, key: PRNGKeyArray) -> Float[Array, "batch outputs"]:
    """The labels an attack works with, in the relaxed form: the given ones, or else those from the gradient."""
    if labels is None:
        found = restore_labels(shared, batch, key)
    else:
        found = jnp.asarray(labels)
        if found.shape != (batch,):
            raise InputError(
                f"the labels have shape {found.shape} for batch={batch}; there must be one per record. Omit them to "
                "restore them."
            )
    outputs = jnp.zeros((batch, shared.params["W"].shape[1]), shared.params["W"].dtype)
    return shared.model.encoded(found, outputs)
