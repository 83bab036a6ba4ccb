"""public_facts: what a private run decides by, for a problem whose records nobody has seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from relaydp import defaults
from relaydp.errors import InputError, PrivacyError, choose
from relaydp.problem.bounds import Facts, check_bound, check_weight
from relaydp.problem.loss import CLASSIFIERS, LEAST_SQUARES, LOGISTIC, LinearLoss, huber_loss, softmax_loss


def public_facts(
    sizes: Sequence[int],
    features: int,
    *,
    loss: str = "logistic",
    record_norm: float | None = None,
    l2: float = defaults.L2,
    clip: float | None = None,
    label_bound: float | None = None,
    intercept: bool = defaults.INTERCEPT,
    classes: int = 2,
    threshold: float = defaults.THRESHOLD,
) -> Facts:
    """What a private run decides by, said without any data: for planning before anybody shares anything.

    A problem built with the same options over such records has the same facts.

    Args:
        sizes: m_i, how many records each agent has.
        features: How many features a record has.
        loss: "logistic" (the default), "softmax", "least-squares" or "huber".
        record_norm: PUBLIC bound on the norm of a record's features. Default: sqrt(features), as for features scaled
            from ranges.
        l2: Weight of the ridge (l2/2) ||x||^2. Default: 0.
        clip: Bound on the norm of one record's gradient. Default: chosen by the plan, at most what the bounds allow.
        label_bound: PUBLIC bound on the size of the labels, for "least-squares". Default: None.
        intercept: Whether there is a constant feature, which nothing penalises. Default: False.
        classes: How many classes there are, for "softmax". Default: 2.
        threshold: The residual at which "huber" turns into a line. Default: 1.

    Returns:
        Facts, which `plan` takes instead of a problem.

    Raises:
        InputError: A size, a number or the loss cannot be used.
        PrivacyError: The loss has no bounded gradient, and there is neither `clip` nor `label_bound`.

    Example:
        >>> import relaydp as rd
        >>> facts = rd.public_facts([100, 200], features=9, record_norm=1.0, l2=0.01)
        >>> facts.agents, facts.dim, facts.smoothness.tolist(), facts.clip
        (2, 9, [0.26, 0.26], 1.0)
    """
    counts = np.asarray(sizes)
    if counts.ndim != 1 or counts.size == 0 or counts.dtype.kind not in "iu" or (counts < 1).any():
        raise InputError(
            f"sizes={sizes!r}; it must have one whole number per agent, 1 or more: how many records it has."
        )
    for name, value, least in (("features", features, 1), ("classes", classes, 2)):
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            raise InputError(f"{name}={value!r}; it must be a whole number, {least} or more.")
    check_bound("threshold", threshold)
    kinds: dict[str, Callable[[], LinearLoss]] = {
        "logistic": lambda: LOGISTIC,
        "least-squares": lambda: LEAST_SQUARES,
        "softmax": lambda: softmax_loss(classes),
        "huber": lambda: huber_loss(threshold),
    }
    chosen = kinds[choose("loss", loss, kinds)]()
    bound = check_bound("record_norm", record_norm) or float(np.sqrt(features))
    bound = math.sqrt(bound * bound + 1.0) if intercept else bound  # as Problem has it, to the last digit
    most = chosen.slope * bound if np.isfinite(chosen.slope) else None
    reach = check_bound("label_bound", label_bound)
    if most is None and reach is not None:
        most = reach * bound
    limit = check_bound("clip", clip) or most
    if limit is None:
        raise PrivacyError(f"the {loss} loss has no bounded gradient, and a private run needs one. Pass clip=.")
    weight = check_weight("l2", l2)
    smoothness = np.full(counts.size, chosen.curvature * bound**2 + weight)
    dim = (int(features) + intercept) * chosen.outputs
    return Facts(
        agents=counts.size,
        sizes=counts.astype(np.int64),
        dim=dim,
        smoothness=smoothness,
        modulus=weight,
        clip=float(limit),
        public=True,
        bound=most,
        clip_given=clip is not None,
        classifies=loss in CLASSIFIERS,
        squares=(bound, reach) if chosen is LEAST_SQUARES and reach is not None else None,
    )
