"""expose: from messages to the records themselves.

    transcript  ->  gradients (`infer`)  ->  for each agent the most informative  ->  its record (a reconstruction)

The input is a `View` and the public facts about a record: the loss, the shape, the bounds. Nothing here takes the true
records; `relaydp.attack.score` compares them.

An agent with one record reveals that record. One with m_i > 1 shares a mean of gradients: the result is the mean of its
records, weighted by their slopes, and the note says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from relaydp.attack import closed_form, dlg, gradinversion, inverting
from relaydp.attack.inference import infer
from relaydp.attack.models import Linear, LossName
from relaydp.attack.shared import Reconstruction, Shared
from relaydp.attack.threat import Inferred, View
from relaydp.errors import InputError, choose
from relaydp.problem.bounds import Scale, scale_between
from relaydp.result import Result

SEARCHES = {"dlg": dlg.reconstruct, "inverting": inverting.reconstruct, "gradinversion": gradinversion.reconstruct}
METHODS = ("closed-form", "pooled", *SEARCHES)
SLACK = 1e-6  # of the range: records that exceed it by less are equally plausible
OUTSIDE = "The record that a gradient gives lies outside the public bounds: it is noisy, and was clipped to them."

Progress = Callable[[int, int], None]  # (agents done, agents in all)


@dataclass(frozen=True)
class About:
    """The public facts about a record. `About.of(result)` takes them from a result.

    Args:
        loss: The loss's name.
        intercept: Whether the model has an intercept.
        shape: The shape of one record: (height, width, channels), or (features,).
        outputs: The number of outputs: that of the classes for softmax, else 1. Default: 1.
        low: The least value of a feature as the model sees it, after scaling. Default: 0.
        high: The largest value of a feature, after scaling. Default: 1.
        scale: How features were scaled from public bounds of the stored values. Default: None, not scaled.
        record_norm: The norm that longer records were shrunk to. The features of such records are then too small, by an
            unknown factor. Default: None.
        planes: Whether channels lie one after the other, as CIFAR-10's do. Default: False.

    Raises:
        InputError: The bounds are not finite, low is not below high, or the shape and the scale do not agree.
    """

    loss: LossName
    intercept: bool
    shape: tuple[int, ...]
    outputs: int = 1
    low: float = 0.0
    high: float = 1.0
    scale: Scale | None = None
    record_norm: float | None = None
    planes: bool = False

    @classmethod
    def of(cls, result: Result, *, shape: tuple[int, ...] | None = None, planes: bool = False) -> About:
        """The public part of a result's configuration.

        Args:
            result: The result of a run with ranges or a record norm.
            shape: The shape of one record, if it is an image: it is not in the configuration. Default: (features,).
            planes: As in About. Default: False.

        Returns:
            The About.

        Raises:
            InputError: The loss cannot be attacked, no bound on a feature is known, or softmax needs a shape.
        """
        known, dim = result.config["problem"], result.x.size
        loss = choose("loss to attack", known["loss"].replace("_", "-"), get_args(LossName))
        scale = None
        if isinstance(known["ranges"], list):
            scale = scale_between(*(np.asarray(bound, dtype=np.float64) for bound in known["ranges"]))
        norm = known["record_norm"]
        if known["ranges"] is None and norm is None:
            raise InputError(
                "this run had neither ranges nor record_norm, so the largest value that a record may have is unknown. "
                "Make an About with the low and high that you know."
            )
        if scale is not None:
            features = len(scale.low)
        elif shape is not None:
            features = math.prod(shape)
        elif loss != "softmax":
            features = dim - int(known["intercept"])
        else:
            raise InputError("softmax without ranges does not tell features from classes; pass shape=.")
        least, most = _ends(scale, fitted=known["ranges"] is not None)
        reach = norm or math.inf
        return cls(
            loss=loss,  # type: ignore[arg-type]  # chosen from these names
            intercept=known["intercept"],
            shape=(features,) if shape is None else shape,
            outputs=dim // (features + known["intercept"]),
            low=max(least, -reach),
            high=min(most, reach),
            scale=scale,
            record_norm=norm,
            planes=planes,
        )

    def __post_init__(self) -> None:
        choose("loss to attack", self.loss, get_args(LossName))
        if not self.low < self.high or not math.isfinite(self.high - self.low):
            raise InputError(
                f"low={self.low}, high={self.high}; low must be less than high, and both finite and public."
            )
        if self.scale is not None and len(self.scale.low) != self.features:
            raise InputError(
                f"shape={self.shape} has {self.features} values, and the ranges have {len(self.scale.low)}. Make them "
                "agree."
            )

    @property
    def features(self) -> int:
        return math.prod(self.shape)

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 3

    @property
    def model(self) -> Linear:
        return Linear(self.loss, self.intercept)

    @property
    def order(self) -> np.ndarray:
        """Which feature is the k-th value of the image read row by row, all channels of a pixel together."""
        if not self.planes:
            return np.arange(self.features)
        height, width, channels = self.shape
        return np.arange(self.features).reshape(channels, height, width).transpose(1, 2, 0).ravel()

    def images(self, records: np.ndarray) -> np.ndarray:
        """Records (n, features) as (n, *shape)."""
        return np.asarray(records)[:, self.order].reshape(-1, *self.shape)

    def stored(self, records: np.ndarray) -> np.ndarray:
        """Features (n, features) in the units the records came in: the public ranges undone."""
        return np.asarray(records) if self.scale is None else self.scale.undo(records)


def _ends(scale: Scale | None, fitted: bool) -> tuple[float, float]:
    """The least and the most that any feature can be, but for the norm; ranges fitted to records make it [0, 1]."""
    if scale is not None:
        least, most = scale.ends
        return float(least.min()), float(most.max())
    return (0.0, 1.0) if fitted else (-math.inf, math.inf)


@dataclass(frozen=True, eq=False)
class Exposure:
    """An eavesdropper's reconstruction of the agents' records, one row per agent that revealed a gradient.

    Attributes:
        agent: Whose record each row is, (rows,).
        activation: Whose gradient was used, from 1; 0 if all were, (rows,).
        records: The records as the model sees them, within the public bounds, (rows, features).
        labels: The labels; NaN where the gradient does not determine one, (rows,).
        gradient: The gradient that was used, (rows, dim).
        point: Where it was taken, (rows, dim).
        exact: The share of the gradient's coordinates that the attack knows to be exact, (rows,).
        at: The iterations of a search at which its path was kept, (snapshots,).
        path: The records during the search, (rows, snapshots, features).
        channel: RECAL's "u" or "x"; None for other algorithms.
        method: The method that was used.
        notes: What limits the result, in sentences.
    """

    agent: np.ndarray  # (rows,)
    activation: np.ndarray  # (rows,) t, from 1: whose gradient was used; 0 if all were
    records: np.ndarray  # (rows, features) as the model sees them, within the public bounds
    labels: np.ndarray  # (rows,) NaN if the gradient does not determine it
    gradient: np.ndarray  # (rows, dim) used
    point: np.ndarray  # (rows, dim) where it was taken
    exact: np.ndarray  # (rows,) share of the gradient's coordinates that the attack knows to be exact
    at: np.ndarray  # (snapshots,) iterations of a search
    path: np.ndarray  # (rows, snapshots, features) records during the search
    channel: str | None  # recal's: u or x
    method: str
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.agent)


class _Found(NamedTuple):
    row: int  # of the inferred gradients
    activation: int
    record: Reconstruction


def expose(
    view: View,
    about: About,
    *,
    channel: str | None = None,
    method: str = "closed-form",
    agents: Iterable[int] | None = None,
    key: PRNGKeyArray | None = None,
    steps: int | None = None,
    restarts: int | None = None,
    progress: Progress | None = None,
) -> Exposure:
    """Reconstruct records from one run's messages.

    An agent with one record reveals that record. For an agent with several the result is a weighted mean of them.

    Args:
        view: What the eavesdropper sees and knows.
        about: The public facts about a record.
        channel: For RECAL only: which part of the baton (u, x) is read, "u" (the paper's attack) or "x" (see
            docs/privacy.md). Default: "x" if u is noisy, else "u".
        method: "closed-form" (the default: algebra, from one gradient), "pooled" (the common direction of all gradients
            of an agent: the best method under noise), or a search: "dlg", "inverting" or "gradinversion".
        agents: Whose records. Default: the agents with one record, or all if there are none.
        key: A JAX key for the random images that a search starts from. A search needs it.
        steps: The steps of a search. Default: the method's own.
        restarts: How often a search starts again. Default: the method's own.
        progress: A function that is called with (agents done, agents in all). Default: None.

    Returns:
        An Exposure, with one row per agent that revealed a gradient.

    Raises:
        InputError: The method or an agent does not exist, `about` does not fit the view, no agent revealed a gradient,
            or a search has no key.

    Example:
        >>> import relaydp as rd
        >>> from relaydp.attack import About, View, expose
        >>> data = rd.Records([[0.0, 0.75], [1.0, 0.25]], [0, 1], ranges=(0, 1))
        >>> run = rd.solve(rd.logistic(data, agents=2, l2=0.1), rd.path(2), activations=3)
        >>> expose(View.of(run), About.of(run)).records.round(6).tolist()
        [[0.0, 0.75], [1.0, 0.25]]
    """
    choose("method", method, METHODS)
    _check_fits(view, about)
    found = infer(view, channel)
    rows, notes = [], []
    wanted = _wanted(view, agents, notes)
    for k, agent in enumerate(wanted):
        mine = found.of(agent)
        mine = mine[found.read[mine]]
        if len(mine) == 0:
            notes.append(f"Agent {agent} revealed no gradient: it acted too seldom.")
            continue
        rows.append(_reconstruct(found, mine, about, method, key, agent, steps, restarts))
        if progress is not None:
            progress(k + 1, len(wanted))
    if not rows:
        raise InputError(
            "no agent revealed a gradient, because no agent acted twice. Attack a run with more activations."
        )
    at = np.array([one.row for one in rows])
    hidden = 1.0 - found.exact[at].mean(axis=1)
    notes += _what_is_guessed(view, found.exact[at], hidden)
    notes += sorted({one.record.note for one in rows if one.record.note})
    back = np.argsort(about.order)

    def flat(images: np.ndarray) -> np.ndarray:
        return images.reshape(-1, about.features)[:, back]

    if view.algorithm == "recal" and channel is None:
        channel = "x" if view.noisy else "u"
    return Exposure(
        agent=found.agent[at],
        activation=np.array([one.activation for one in rows]),
        records=np.concatenate([flat(one.record.images) for one in rows]),
        labels=np.array([float(one.record.labels[0]) for one in rows]),
        gradient=found.gradient[at],
        point=found.point[at],
        exact=1.0 - hidden,
        at=rows[0].record.at,
        path=np.stack([flat(one.record.path) for one in rows]),
        channel=channel,
        method=method,
        notes=tuple(notes),
    )


def _what_is_guessed(view: View, exact: np.ndarray, hidden: np.ndarray) -> list[str]:
    if view.noisy and not exact.any():
        return ["Noise on the messages reaches every gradient through this channel: none is exact."]
    if hidden.any():
        return [f"Kinks of r hide {hidden.mean():.1%} of the gradients' coordinates; those are guesses."]
    return []


def _check_fits(view: View, about: About) -> None:
    needed = (about.features + about.intercept) * about.outputs
    if needed != view.x0.size:
        raise InputError(
            f"shape={about.shape}, outputs={about.outputs}, intercept={about.intercept} make {needed} coefficients; "
            f"the model has {view.x0.size}. Correct them, or use About.of(result)."
        )
    free = about.outputs if about.intercept else 0
    if view.intercepts != free:
        raise InputError(
            f"the view has intercepts={view.intercepts}; it must be {free}. Pass View.of(result, intercepts={free})."
        )


def _wanted(view: View, agents: Iterable[int] | None, notes: list[str]) -> list[int]:
    sizes = np.ones(view.agents, int) if view.sizes is None else view.sizes
    if agents is not None:
        wanted = [int(i) for i in agents]
        for i in wanted:
            if not 0 <= i < view.agents:
                raise InputError(f"agent {i} does not exist; the agents are numbered 0 to {view.agents - 1}.")
    else:
        wanted = np.flatnonzero(sizes == 1).tolist() or list(range(view.agents))
    many = [i for i in wanted if sizes[i] > 1]
    if many:
        held = f"agent {many[0]} holds {sizes[many[0]]} records" if len(many) == 1 else f"{len(many)} agents hold more"
        notes.append(f"Only agents with one record reveal it; {held}, and the attack finds a weighted mean of them.")
    return wanted


# -- one agent


def _reconstruct(
    found: Inferred,
    mine: np.ndarray,
    about: About,
    method: str,
    key: PRNGKeyArray | None,
    agent: int,
    steps: int | None,
    restarts: int | None,
) -> _Found:
    row, plausible = best_row(found, mine, about)
    if method == "pooled":
        return _Found(row, 0, _pooled(found, mine, about))
    shared = shared_gradient(found, row, about)
    solved = closed_form.reconstruct(shared, record_norm=about.record_norm)
    if method == "closed-form":
        return _Found(row, int(found.activation[row]), solved if plausible else replace(solved, note=OUTSIDE))
    if key is None:
        raise InputError(f"method {method!r} starts from random images; pass key=jax.random.key(...).")
    options: dict[str, Any] = {"steps": steps, "restarts": restarts}
    options = {name: value for name, value in options.items() if value is not None}
    # A search uses the label from the closed form; DLG searches for the label itself if there is an intercept.
    if not (method == "dlg" and about.intercept) and np.isfinite(solved.labels).all():
        options["labels"] = solved.labels
    got = SEARCHES[method](shared, jax.random.fold_in(key, agent), **options)
    return _Found(row, int(found.activation[row]), _finite(got, about))


def _finite(got: Reconstruction, about: About) -> Reconstruction:
    """A failed search (a slope of 0 has no direction) returns mid-grey images, and a note."""
    if np.isfinite(got.path).all():
        return got
    middle = 0.5 * (about.low + about.high)
    images, path = (np.where(np.isfinite(part), part, middle) for part in (got.images, got.path))
    note = "The search has no gradient to follow: a mid-grey image is returned."
    return replace(got, images=images, path=path, note=note)


def shared_gradient(found: Inferred, row: int, about: About) -> Shared:
    """One inferred gradient as input of the reconstruction attacks, features in the image's order."""
    model = about.model

    def params(vector: np.ndarray) -> dict[str, Any]:
        parts = model.from_vector(jnp.asarray(vector), about.outputs)
        return {**parts, "W": parts["W"][about.order]}

    gradient, point = params(found.gradient[row]), params(found.point[row])
    return Shared(gradient, point, model, about.shape, about.low, about.high)


def best_row(found: Inferred, rows: np.ndarray, about: About) -> tuple[int, bool]:
    """The activation that is most informative about an agent's record, chosen by public facts.

    The most exact coordinates; then, with an intercept, the record a = g_W g_b / ||g_b||^2 that exceeds the public
    range least; then the earliest, since errors add up and at x0 = 0 the slope itself is known. Also returns whether
    that record is within the range, as that of a noise-free gradient is (without an intercept the closed form decides).
    """
    exact = found.exact[rows].sum(axis=1)
    beyond = np.zeros(len(rows))
    if about.intercept:
        G = found.gradient[rows].reshape(len(rows), -1, about.outputs)
        s = G[:, -1, :]
        size = np.maximum(np.sum(s * s, axis=1), np.finfo(float).tiny)
        a = np.einsum("tfk,tk->tf", G[:, :-1, :], s) / size[:, None]
        width = about.high - about.low
        excess = np.maximum(np.maximum(about.low - a, a - about.high), 0.0)
        beyond = np.maximum(np.linalg.norm(excess, axis=1) / width - SLACK, 0.0)
    best = np.lexsort((np.arange(len(rows)), beyond, -exact))[0]
    return int(rows[best]), bool(beyond[best] == 0.0)


def _pooled(found: Inferred, rows: np.ndarray, about: About) -> Reconstruction:
    """The record from all gradients at once. Each is (a, 1) s_t' for the same a, plus noise: the first singular vector
    of the matrix of all of them is the least-squares estimate of (a, 1)'s direction.

    Without an intercept the length is unknown, and the longest that the public bounds allow is used.
    """
    G = found.gradient[rows].reshape(len(rows), -1, about.outputs)
    side = G.transpose(1, 0, 2).reshape(G.shape[1], -1)
    direction = np.linalg.svd(side, full_matrices=False)[0][:, 0]
    if about.intercept:
        a, last = direction[:-1], float(direction[-1])
        a = a / (last if abs(last) > np.finfo(float).tiny else 1.0)
        note = "All gradients of an agent pooled: the record up to their noise."
    else:
        a = direction * (1.0 if direction.sum() * (about.low + about.high) >= 0.0 else -1.0)
        a = a * min(about.high / max(float(np.abs(a).max()), np.finfo(float).tiny), about.record_norm or math.inf)
        note = "All gradients of an agent pooled: the record's direction; its length is the longest public one."
    images = np.clip(about.images(a[None]), about.low, about.high)
    blank = np.zeros((1, 1))
    return Reconstruction(images, np.array([math.nan]), blank, 0, np.array([1]), images[None], note)
