"""One record from a linear model's gradient, by algebra and without a search.

The gradient of one record a with slope s = dphi/dz, at the public weights W, is

    (1)  g_W = a s',    g_b = s                     so, with an intercept,   (2)  a = g_W s / ||s||^2

exactly, for any loss; (2) is also the least-squares estimate where noise was added to g_W. Without an intercept a is
known up to its scale, which solves one equation in one unknown, since s depends on a through z = W'a alone. With g for
g_W and d = -<g, W>:

    (3)  logistic        v / (1 + e^v) = d for v = y z, so v = d - LambertW(-d e^d);   a = -y g (1 + e^v)
    (4)  least squares   s^2 + y s + d = 0;   a = g / s
    (5)  softmax         t (softmax(t W'u)_y - 1) = (g'u)_y with u the direction of g's columns;   a = t u

(3) and (4) may have two roots, and the label gives two signs. Those outside the public range, or longer than the public
record norm, are excluded; of several that remain the one nearest to the bounds is taken, and the note says so.

A batch of m records shares g_W = (1/m) sum_j a_j s_j': only one weighted mean of the records for each output.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import PRNGKeyArray
from scipy.optimize import root_scalar
from scipy.special import expit, lambertw, softmax

from relaydp.attack.models import Linear
from relaydp.attack.shared import Progress, Reconstruction, Shared, check
from relaydp.errors import InputError

SCALES = 2000  # trial scales between which a root of (5) is looked for
SLACK = 1e-6  # of the range: rounding can move a true record this far outside


class Candidate(NamedTuple):
    record: np.ndarray
    label: float


def reconstruct(
    shared: Shared,
    key: PRNGKeyArray | None = None,
    *,
    batch: int = 1,
    steps: int = 1,
    restarts: int = 1,
    progress: Progress | None = None,
    labels: Sequence[float] = (-1.0, 1.0),
    record_norm: float | None = None,
) -> Reconstruction:
    """Solve for the record and its label. It takes the arguments of every attack; nothing is random or repeated.

    labels        the values a label may have, public; used for least squares without intercept only
    record_norm   the public bound of a record's norm, if there is one
    """
    check(shared, batch, steps, restarts)
    model = shared.model
    if not isinstance(model, Linear):
        raise InputError(
            f"the model is a {type(model).__name__}; a closed form needs a Linear model. Use dlg, inverting or "
            "gradinversion."
        )
    g = np.asarray(shared.gradient["W"], dtype=np.float64)
    W = np.asarray(shared.params["W"], dtype=np.float64)
    if not g.any():
        found, note = [Candidate(np.zeros(len(g)), math.nan)] * batch, "The gradient is 0 and reveals nothing."
    elif model.intercept:
        s, b = (np.asarray(tree["b"], dtype=np.float64) for tree in (shared.gradient, shared.params))
        found, note = _with_intercept(model, g, s, W, b, batch)
    else:
        found, note = _without_intercept(shared, model, g, W, batch, labels, record_norm)
    images = np.stack([one.record for one in found]).reshape(batch, *shared.shape)
    kept = np.clip(images, shared.low, shared.high)
    answers = np.array([one.label for one in found])
    if (
        model.loss != "least-squares" and np.isfinite(answers).all()
    ):  # NaN: a label that the gradient does not determine
        answers = answers.astype(int)
    if progress is not None:
        progress(steps, steps)
    return Reconstruction(kept, answers, np.zeros((1, 1)), 0, np.array([steps]), kept[None], note)


# -- with an intercept: (2)


def _with_intercept(
    model: Linear, g: np.ndarray, s: np.ndarray, W: np.ndarray, b: np.ndarray, batch: int
) -> tuple[list[Candidate], str]:
    record = g @ s / (s @ s)  # (2)
    if batch == 1:
        match model.loss:
            case "softmax":
                label = float(np.argmin(s))  # s = p - e_y: negative at y alone
            case "logistic":
                label = -math.copysign(1.0, s[0])  # s = -y sigma(-y z)
            case _:
                label = float((record @ W + b - s)[0])  # s = z - y
        return [Candidate(record, label)], "One record: the image and its label are identified exactly."
    if model.loss != "softmax":
        note = f"{batch} records: only their weighted mean (by the slopes) is identified; every image is that mean."
        return [Candidate(record, -math.copysign(1.0, s[0]) if model.loss == "logistic" else math.nan)] * batch, note
    # each class's own column: the records of that class have the largest weight in it
    classes = np.argsort(s)[: min(batch, len(s))]
    columns = [Candidate(g[:, k] / s[k], float(k)) for k in classes]
    note = (
        f"{batch} records and {len(s)} outputs: for each class a weighted mean of the records is identified, in which "
        "that of its own records prevails; not the records themselves."
    )
    return [columns[j % len(columns)] for j in range(batch)], note


# -- without: (3), (4), (5)


def _without_intercept(
    shared: Shared, model: Linear, g: np.ndarray, W: np.ndarray, batch: int, labels: Iterable[float], norm: float | None
) -> tuple[list[Candidate], str]:
    if batch > 1:
        direction = _towards_range(shared, np.linalg.svd(g, full_matrices=False)[0][:, 0])
        largest = min(_scale_limit(shared, direction), norm or math.inf)
        note = (
            f"{batch} records without an intercept: only the direction of their weighted mean is identified; every "
            "image is that direction, as long as the public bounds allow."
        )
        return [Candidate(largest * direction, math.nan)] * batch, note
    match model.loss:
        case "logistic":
            candidates = _logistic(g[:, 0], W[:, 0])
        case "least-squares":
            candidates = _least_squares(g[:, 0], W[:, 0], labels)
        case _:
            candidates = _softmax(shared, g, W)
    return _choose(shared, candidates, norm)


def _logistic(g: np.ndarray, w: np.ndarray) -> list[Candidate]:
    """(3), for both labels; two roots v where 0 < d <= 0.278, the largest value of v / (1 + e^v)."""
    d = -float(g @ w)
    inner = -d * math.exp(min(d, 1.0))
    roots = [d - lambertw(inner, branch) for branch in ((0, -1) if d > 0.0 else (0,))]
    # noise may move d beyond it: the roots become complex, and their real part is the nearest real number
    return [Candidate(-y * g / expit(-root.real), y) for root in roots for y in (1.0, -1.0)]


def _least_squares(g: np.ndarray, w: np.ndarray, labels: Iterable[float]) -> list[Candidate]:
    """(4) for every label there may be."""
    d = -float(g @ w)
    found = []
    for y in labels:
        root = math.sqrt(max(y * y - 4.0 * d, 0.0))
        for s in (0.5 * (-y + root), 0.5 * (-y - root)):
            if abs(s) > 1e-12 * max(abs(y), 1.0):  # s = 0 would be a record without a gradient
                found.append(Candidate(g / s, float(y)))
    return found


def _softmax(shared: Shared, g: np.ndarray, W: np.ndarray) -> list[Candidate]:
    """(5): the columns of g are one direction (the first singular vector where there is noise); then its scale."""
    u = _towards_range(shared, np.linalg.svd(g, full_matrices=False)[0][:, 0])
    found = []
    for sign in (1.0, -1.0) if shared.low < 0.0 < shared.high else (1.0,):
        pull, scores = g.T @ (sign * u), W.T @ (sign * u)
        y = int(np.argmin(pull))

        def excess(t: float, pull: np.ndarray = pull, scores: np.ndarray = scores, y: int = y) -> float:
            return t * (softmax(t * scores)[y] - 1.0) - pull[y]

        grid = _scale_limit(shared, u) * np.linspace(0.0, 1.0 + SLACK, SCALES)
        values = np.array([excess(t) for t in grid])
        crossings = np.flatnonzero(np.sign(values[:-1]) != np.sign(values[1:]))
        scales = [root_scalar(excess, bracket=(grid[i], grid[i + 1])).root for i in crossings] or [grid[-1]]
        # the other classes' equations are not solved: they identify the true root
        errors = [np.linalg.norm(t * softmax(t * scores) - pull - t * np.eye(len(pull))[y]) for t in scales]
        found.append((min(errors), Candidate(scales[int(np.argmin(errors))] * sign * u, float(y))))
    return [min(found, key=lambda pair: pair[0])[1]]


# -- the public bounds


def _towards_range(shared: Shared, direction: np.ndarray) -> np.ndarray:
    """The one of +-direction that public values can have: with values >= 0, the one that is more positive."""
    middle = 0.5 * (shared.low + shared.high)
    return direction if middle * direction.sum() >= 0.0 else -direction


def _scale_limit(shared: Shared, direction: np.ndarray) -> float:
    """The largest t for which every entry of t direction is within the public range in size."""
    return max(abs(shared.low), abs(shared.high)) / float(np.abs(direction).max())


def _choose(shared: Shared, candidates: list[Candidate], norm: float | None) -> tuple[list[Candidate], str]:
    width = shared.high - shared.low

    def outside(one: Candidate) -> float:
        beyond = np.maximum(np.maximum(shared.low - one.record, one.record - shared.high), 0.0)
        longer = max(float(np.linalg.norm(one.record)) - norm, 0.0) if norm is not None else 0.0
        return float(np.linalg.norm(beyond)) + longer

    def slack(one: Candidate) -> float:
        if norm is not None:
            return norm - float(np.linalg.norm(one.record))
        return shared.high - float(one.record.max())

    fitting = [one for one in candidates if outside(one) <= SLACK * width]
    if not fitting:
        best = min(candidates, key=outside)
        return [best], "No root lies within the public bounds (noise, or wrong bounds): the nearest one is returned."
    if len(fitting) == 1:
        return fitting, "One record: one root lies within the public bounds, and it is identified exactly."
    note = f"{len(fitting)} multiples of one vector lie within the public bounds: the one nearest to them is returned."
    return [min(fitting, key=slack)], note
