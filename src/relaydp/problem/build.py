"""The problems a user asks for by name. All take the same options:

agents        a count (even split, in row order), a list of sizes, a group column's name, or a split from
              `relaydp.partition`. A function of your own may look at the records (no private run then), and gives
              every record to one agent, once
l2, l1        weights of the ridge (l2/2)||x||^2 and of ||x||_1
regulariser   another r from `relaydp.prox`, instead of l1
intercept     add a constant feature that is not penalised
record_norm   PUBLIC bound on a record's norm; longer records are shrunk to it. 'typical' guesses it from `ranges`, for
              tables of many columns that are mostly 0 (`bounds.typical_norm`); it is the estimators' default
ranges        PUBLIC (low, high) of the features; they are clipped to it and scaled into [-1, 1]: where 0 lies between,
              it stays 0 and the larger end becomes 1 or -1; elsewhere the middle becomes 0. The catalogue's data sets
              bring theirs. 'fit' looks at the records (no private run then); 'fit-public' says they are public. Both
              make each feature's minimum 0 and its maximum 1
one_hot       PUBLIC groups of columns of which a record has one at most that is not 0: lists of names or positions, or
              texts ("job": all columns called job_...). Records are then shrunk to the norm sqrt(a + b) for a columns
              outside and b groups, where no record_norm is given; without groups their norm is sqrt(features) at most
clip          bound on one record's gradient in private runs; default: chosen by the plan, at most what the bounds allow

Losses with classes also take
classes       PUBLIC list of the labels there may be, known without the records. A private run needs it: one record
              could add a class to those found in the data, which simulations and runs without privacy take. The
              catalogue's data sets bring theirs. A party that holds records of one class only can take part with it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from relaydp import defaults
from relaydp.data import Records, load_data
from relaydp.data.records import frozen
from relaydp.errors import InputError, check_kind, choose
from relaydp.problem.bounds import (
    FITTED,
    TYPICAL,
    Scale,
    as_groups,
    as_ranges,
    check_bound,
    check_weight,
    fit_scale,
    norm_bound,
    scale_between,
    typical_norm,
)
from relaydp.problem.classes import declared_classes, find_classes
from relaydp.problem.loss import (
    LEAST_SQUARES,
    LOGISTIC,
    CustomLoss,
    Loss,
    huber_loss,
    softmax_loss,
)
from relaydp.problem.partition import (
    Splitter,
    check_split,
    is_declared,
    splitter,
    splitter_from_spec,
    splitter_spec,
)
from relaydp.problem.problem import Problem
from relaydp.prox import Regulariser, from_spec
from relaydp.prox import l1 as l1_regulariser
from relaydp.prox import none as no_regulariser

Agents = int | str | Sequence[int] | Splitter


def _choose_regulariser(l1: float, regulariser: Regulariser | None) -> Regulariser:
    weight = check_weight("l1", l1)
    if regulariser is not None and not hasattr(regulariser, "prox"):
        raise InputError(f"regulariser={regulariser!r}; needed one from relaydp.prox, such as relaydp.prox.l1(0.01).")
    if regulariser is None:
        return l1_regulariser(weight) if weight else no_regulariser()
    if weight:
        raise InputError(
            f"both l1={l1} and regulariser={regulariser.kind!r} were given; pass one. For both an l1 and a quadratic "
            "term in r use relaydp.prox.elastic_net."
        )
    return regulariser


def _build(
    data: Records | str,
    loss: Callable[[Records, Sequence[Any] | None], tuple[Loss, np.ndarray | None]],
    name: str,
    agents: Agents,
    l2: float,
    l1: float,
    regulariser: Regulariser | None,
    intercept: bool,
    record_norm: Any,
    ranges: Any,
    one_hot: Any,
    clip: float | None,
    smoothness: float | None = None,
    label_bound: float | None = None,
    options: dict[str, Any] | None = None,
    labels: tuple[int | None, Sequence[Any] | None] = (None, None),  # how many classes the loss needs, and those given
) -> Problem:
    records = data if isinstance(data, Records) else load_data(data)
    check_kind("intercept", intercept, bool | np.bool_, "True or False")
    if isinstance(agents, str):
        records = records.with_group(agents)
    declared = declared_classes(records, *labels)
    chosen, classes = loss(records, declared)
    if classes is None and records.y.dtype.kind not in "buif":
        raise InputError(
            f"labels have type {records.y.dtype} and are not numbers; the {name} loss needs numbers. Use softmax."
        )
    asked = ranges if ranges is not None else records.ranges
    fitted = False
    if isinstance(asked, str):
        choose("way to get ranges", asked, FITTED)
        scale = fit_scale(records.X)
        fitted = asked == "fit"
    elif isinstance(asked, Scale):  # another problem's, for records that are compared with its own
        scale = asked
    else:
        scale = scale_between(*as_ranges(asked, records.features)) if asked is not None else None
    norm, groups = _norm(record_norm, scale), None
    if one_hot is not None:
        groups = as_groups(one_hot, records.features, records.columns)
        allowed = norm_bound(records.features, groups, scale)
        # set, so that records are shrunk to it: the promise does not rest on what was declared
        norm = allowed if norm is None else min(norm, allowed)
    penalty = _choose_regulariser(l1, regulariser)
    spec = {
        "loss": name,
        "agents": splitter_spec(agents),
        "l2": check_weight("l2", l2),
        "regulariser": penalty.spec(),
        "intercept": bool(intercept),
        "record_norm": norm,
        "ranges": asked if isinstance(asked, str) or scale is None else [scale.low.tolist(), scale.high.tolist()],
        "clip": check_bound("clip", clip),
        **({} if groups is None else {"one_hot": [list(group) for group in groups]}),
        **(options or {}),
        # those found in the records are found again: a problem made of this has declared ones or none
        **({"classes": classes.tolist()} if declared is not None and classes is not None else {}),
    }
    problem = Problem(
        data=records,
        loss=chosen,
        split=check_split(splitter(agents)(records), len(records)),
        regulariser=penalty,
        l2=spec["l2"],
        intercept=spec["intercept"],
        record_norm=spec["record_norm"],
        scale=scale,
        fitted=fitted,
        clip=spec["clip"],
        smoothness=check_bound("smoothness", smoothness),
        label_bound=check_bound("label_bound", label_bound),
        classes=None if classes is None else frozen(classes),
        found=classes is not None and declared is None,
        dealt=not is_declared(agents),
        spec=spec,
    )
    _check_regulariser(problem)
    return problem


def _norm(asked: Any, scale: Scale | None) -> float | None:
    """record_norm as a number: given, or guessed from public bounds."""
    if isinstance(asked, str):
        choose("way to get record_norm", asked, (TYPICAL,))
        return typical_norm(scale)
    return check_bound("record_norm", asked)


def _check_regulariser(problem: Problem) -> None:
    """A prox that does not fit x would fail deep inside a compiled step: try it here."""
    penalised = problem.dim - problem.terms.free
    groups = getattr(problem.regulariser, "groups", None)
    fits = groups is None or len(groups) == penalised
    if fits:
        try:
            start = jax.ShapeDtypeStruct((problem.dim,), np.float64)
            fits = jax.eval_shape(problem.terms.prox, start, 1.0).shape == start.shape
        except (TypeError, ValueError) as error:
            raise InputError(f"the {problem.regulariser.kind} regulariser failed at x = 0: {error}") from error
    if not fits:
        raise InputError(
            f"the {problem.regulariser.kind} regulariser does not fit the {penalised} penalised coefficients; "
            "it needs a value (for group lasso, a group number) for each of them."
        )


def logistic(
    data: Records | str,
    agents: Agents,
    l2: float = defaults.L2,
    l1: float = defaults.L1,
    *,
    regulariser: Regulariser | None = None,
    intercept: bool = defaults.INTERCEPT,
    record_norm: float | str | None = None,
    ranges: Any = None,
    one_hot: Any = None,
    clip: float | None = None,
    classes: Sequence[Any] | None = None,
) -> Problem:
    """Two classes: loss log(1 + exp(-b a'x)) with b = -1 for the first class in sorted order, +1 for the second.

    Args:
        data: The records: `Records`, or what `load_data` takes.
        agents: Who holds which record: a count (even split, in row order), a list of sizes, a group column's name, or a
            split from `relaydp.partition`. A function of your own may look at the records (no private run then).
        l2: Weight of the ridge (l2/2) ||x||^2. Default: 0.
        l1: Weight of ||x||_1. Default: 0.
        regulariser: Another r from `relaydp.prox`, instead of l1. Default: None.
        intercept: Whether to add a constant feature, which nothing penalises. Default: False.
        record_norm: PUBLIC bound on the norm of a record's features; longer records are shrunk to it. "typical" guesses
            it from `ranges`. Default: None, what `one_hot` or `ranges` allow.
        ranges: PUBLIC (low, high) of the features, two numbers or two lists; they are clipped to it and scaled into
            [-1, 1]: 0 stays 0 where it lies between, elsewhere the middle becomes 0. "fit" looks at the records (no
            private run then), "fit-public" says that they are public. Default: None, those of the data, if any.
        one_hot: PUBLIC groups of columns of which a record has one at most that is not 0: lists of names or positions,
            or texts ("job": all columns called job_...). Needs `ranges`. Default: None, no groups.
        clip: Bound on the norm of one record's gradient in private runs. Default: chosen by the plan, at most what the
            bounds allow.
        classes: PUBLIC list of the labels there may be, two of them. Private runs need it; without it
            the labels in the records count. Default: None, those of the data, if any.

    Returns:
        A Problem, which `solve`, `plan` and `minimise` take. What only private runs need is checked by them.

    Raises:
        InputError: A weight, a bound, the ranges or the split cannot be used, or the labels are not two classes.

    Example:
        >>> import relaydp as rd
        >>> rd.logistic(rd.load_data("breast-cancer"), agents=4, l2=1e-2).dim
        30
    """
    return _build(
        data,
        lambda records, declared: (LOGISTIC, find_classes(records.y, "logistic", 2, declared)),
        "logistic",
        agents,
        l2,
        l1,
        regulariser,
        intercept,
        record_norm,
        ranges,
        one_hot,
        clip,
        labels=(2, classes),
    )


def softmax(
    data: Records | str,
    agents: Agents,
    l2: float = defaults.L2,
    l1: float = defaults.L1,
    *,
    regulariser: Regulariser | None = None,
    intercept: bool = defaults.INTERCEPT,
    record_norm: float | str | None = None,
    ranges: Any = None,
    one_hot: Any = None,
    clip: float | None = None,
    classes: Sequence[Any] | None = None,
) -> Problem:
    """Several classes: loss -log softmax(W'a)_b. x holds W (features, classes) row by row, intercepts last.

    Args:
        data: The records: `Records`, or what `load_data` takes.
        agents: Who holds which record: a count (even split, in row order), a list of sizes, a group column's name, or a
            split from `relaydp.partition`. A function of your own may look at the records (no private run then).
        l2: Weight of the ridge (l2/2) ||x||^2. Default: 0.
        l1: Weight of ||x||_1. Default: 0.
        regulariser: Another r from `relaydp.prox`, instead of l1. Default: None.
        intercept: Whether to add a constant feature, which nothing penalises. Default: False.
        record_norm: PUBLIC bound on the norm of a record's features; longer records are shrunk to it. "typical" guesses
            it from `ranges`. Default: None, what `one_hot` or `ranges` allow.
        ranges: PUBLIC (low, high) of the features, two numbers or two lists; they are clipped to it and scaled into
            [-1, 1]: 0 stays 0 where it lies between, elsewhere the middle becomes 0. "fit" looks at the records (no
            private run then), "fit-public" says that they are public. Default: None, those of the data, if any.
        one_hot: PUBLIC groups of columns of which a record has one at most that is not 0: lists of names or positions,
            or texts ("job": all columns called job_...). Needs `ranges`. Default: None, no groups.
        clip: Bound on the norm of one record's gradient in private runs. Default: chosen by the plan, at most what the
            bounds allow.
        classes: PUBLIC list of the labels there may be, two or more. Private runs need it; without it
            the labels in the records count. Default: None, those of the data, if any.

    Returns:
        A Problem, which `solve`, `plan` and `minimise` take. What only private runs need is checked by them.

    Raises:
        InputError: A weight, a bound, the ranges or the split cannot be used, or a label is not one of the classes.

    Example:
        >>> import relaydp as rd
        >>> rd.softmax(rd.load_data("digits"), agents=4).dim  # 64 pixels, 10 classes
        640
    """

    def make(records: Records, declared: Sequence[Any] | None) -> tuple[Loss, np.ndarray]:
        listed = find_classes(records.y, "softmax", None, declared)
        return softmax_loss(len(listed)), listed

    return _build(
        data,
        make,
        "softmax",
        agents,
        l2,
        l1,
        regulariser,
        intercept,
        record_norm,
        ranges,
        one_hot,
        clip,
        labels=(None, classes),
    )


def least_squares(
    data: Records | str,
    agents: Agents,
    l2: float = defaults.L2,
    l1: float = defaults.L1,
    *,
    regulariser: Regulariser | None = None,
    intercept: bool = defaults.INTERCEPT,
    record_norm: float | str | None = None,
    ranges: Any = None,
    one_hot: Any = None,
    clip: float | None = None,
    label_bound: float | None = None,
) -> Problem:
    """Numbers: loss (a'x - b)^2 / 2. A private run clips gradients to `clip`, or to record_norm * `label_bound`.

    Args:
        data: The records: `Records`, or what `load_data` takes.
        agents: Who holds which record: a count (even split, in row order), a list of sizes, a group column's name, or a
            split from `relaydp.partition`. A function of your own may look at the records (no private run then).
        l2: Weight of the ridge (l2/2) ||x||^2. Default: 0.
        l1: Weight of ||x||_1. Default: 0.
        regulariser: Another r from `relaydp.prox`, instead of l1. Default: None.
        intercept: Whether to add a constant feature, which nothing penalises. Default: False.
        record_norm: PUBLIC bound on the norm of a record's features; longer records are shrunk to it. "typical" guesses
            it from `ranges`. Default: None, what `one_hot` or `ranges` allow.
        ranges: PUBLIC (low, high) of the features, two numbers or two lists; they are clipped to it and scaled into
            [-1, 1]: 0 stays 0 where it lies between, elsewhere the middle becomes 0. "fit" looks at the records (no
            private run then), "fit-public" says that they are public. Default: None, those of the data, if any.
        one_hot: PUBLIC groups of columns of which a record has one at most that is not 0: lists of names or positions,
            or texts ("job": all columns called job_...). Needs `ranges`. Default: None, no groups.
        clip: Bound on the norm of one record's gradient in private runs, which need it or `label_bound`. Default: None,
            the largest norm of a record's features times `label_bound`.
        label_bound: PUBLIC bound on the size of the labels. Default: None.

    Returns:
        A Problem, which `solve`, `plan` and `minimise` take. What only private runs need is checked by them.

    Raises:
        InputError: A weight, a bound, the ranges or the split cannot be used, or the labels are not numbers.

    Example:
        >>> import numpy as np
        >>> import relaydp as rd
        >>> data = rd.Records(np.eye(4), np.array([0.5, 1.0, 1.5, 2.0]))
        >>> rd.least_squares(data, agents=2, record_norm=1.0, label_bound=2.0).public_facts().clip
        2.0
    """
    return _build(
        data,
        lambda *_: (LEAST_SQUARES, None),
        "least_squares",
        agents,
        l2,
        l1,
        regulariser,
        intercept,
        record_norm,
        ranges,
        one_hot,
        clip,
        label_bound=label_bound,
        options={"label_bound": label_bound},
    )


def huber(
    data: Records | str,
    agents: Agents,
    l2: float = defaults.L2,
    l1: float = defaults.L1,
    *,
    threshold: float = defaults.THRESHOLD,
    regulariser: Regulariser | None = None,
    intercept: bool = defaults.INTERCEPT,
    record_norm: float | str | None = None,
    ranges: Any = None,
    one_hot: Any = None,
    clip: float | None = None,
) -> Problem:
    """Numbers with outliers: (a'x - b)^2 / 2 up to a residual of `threshold`, a line beyond.

    Args:
        data: The records: `Records`, or what `load_data` takes.
        agents: Who holds which record: a count (even split, in row order), a list of sizes, a group column's name, or a
            split from `relaydp.partition`. A function of your own may look at the records (no private run then).
        l2: Weight of the ridge (l2/2) ||x||^2. Default: 0.
        l1: Weight of ||x||_1. Default: 0.
        threshold: The residual at which the square turns into a line. Default: 1.
        regulariser: Another r from `relaydp.prox`, instead of l1. Default: None.
        intercept: Whether to add a constant feature, which nothing penalises. Default: False.
        record_norm: PUBLIC bound on the norm of a record's features; longer records are shrunk to it. "typical" guesses
            it from `ranges`. Default: None, what `one_hot` or `ranges` allow.
        ranges: PUBLIC (low, high) of the features, two numbers or two lists; they are clipped to it and scaled into
            [-1, 1]: 0 stays 0 where it lies between, elsewhere the middle becomes 0. "fit" looks at the records (no
            private run then), "fit-public" says that they are public. Default: None, those of the data, if any.
        one_hot: PUBLIC groups of columns of which a record has one at most that is not 0: lists of names or positions,
            or texts ("job": all columns called job_...). Needs `ranges`. Default: None, no groups.
        clip: Bound on the norm of one record's gradient in private runs. Default: chosen by the plan, at most what the
            bounds allow.

    Returns:
        A Problem, which `solve`, `plan` and `minimise` take. What only private runs need is checked by them.

    Raises:
        InputError: A weight, a bound, the ranges or the split cannot be used, or the labels are not numbers.

    Example:
        >>> import numpy as np
        >>> import relaydp as rd
        >>> data = rd.Records(np.eye(4), np.array([0.5, 1.0, 1.5, 90.0]))
        >>> rd.huber(data, agents=2, threshold=0.5, record_norm=1.0).public_facts().clip
        0.5
    """
    bend = check_bound("threshold", threshold)
    if bend is None:
        raise InputError("threshold=None; needed the residual at which the square turns into a line, a number above 0.")
    return _build(
        data,
        lambda *_: (huber_loss(bend), None),
        "huber",
        agents,
        l2,
        l1,
        regulariser,
        intercept,
        record_norm,
        ranges,
        one_hot,
        clip,
        options={"threshold": bend},
    )


def custom(
    loss_fn: Callable[[Array, Array, Array], Array],
    data: Records | str,
    agents: Agents,
    l2: float = defaults.L2,
    l1: float = defaults.L1,
    *,
    dim: int | None = None,
    smoothness: float | None = None,
    regulariser: Regulariser | None = None,
    record_norm: float | str | None = None,
    ranges: Any = None,
    one_hot: Any = None,
    clip: float | None = None,
) -> Problem:
    """Any convex smooth loss: a JAX function loss_fn(x, a, b) of coefficients, one record's features and label.

    Args:
        loss_fn: The function. It returns a number, and JAX must be able to differentiate and compile it. Make arrays
            that it uses with NumPy: one that JAX makes before relaydp is first used is float32.
        data: The records: `Records`, or what `load_data` takes.
        agents: Who holds which record: a count (even split, in row order), a list of sizes, a group column's name, or a
            split from `relaydp.partition`. A function of your own may look at the records (no private run then).
        l2: Weight of the ridge (l2/2) ||x||^2. Default: 0.
        l1: Weight of ||x||_1. Default: 0.
        dim: The length of x. Default: the number of features.
        smoothness: PUBLIC bound on the curvature of one record's loss. A private run needs it and `clip`, since nothing
            else about the function is known. Default: None.
        regulariser: Another r from `relaydp.prox`, instead of l1. Default: None.
        record_norm: PUBLIC bound on the norm of a record's features; longer records are shrunk to it. "typical" guesses
            it from `ranges`. Default: None, what `one_hot` or `ranges` allow.
        ranges: PUBLIC (low, high) of the features, two numbers or two lists; they are clipped to it and scaled into
            [-1, 1]: 0 stays 0 where it lies between, elsewhere the middle becomes 0. "fit" looks at the records (no
            private run then), "fit-public" says that they are public. Default: None, those of the data, if any.
        one_hot: PUBLIC groups of columns of which a record has one at most that is not 0: lists of names or positions,
            or texts ("job": all columns called job_...). Needs `ranges`. Default: None, no groups.
        clip: Bound on the norm of one record's gradient; longer ones are shrunk to it in private runs, which need it.
            Default: None.

    Returns:
        A Problem, which `solve`, `plan` and `minimise` take. What only private runs need is checked by them.

    Raises:
        InputError: A weight, a bound, the ranges or the split cannot be used, `loss_fn` is not a function, or the
            labels are not numbers.

    Example:
        >>> import jax.numpy as jnp
        >>> import relaydp as rd
        >>> def loss(x, a, b):
        ...     return jnp.log(jnp.cosh(a @ x - b))
        >>> rd.custom(loss, rd.load_data("breast-cancer"), agents=4, smoothness=30.0, clip=1.0).dim
        30
    """
    if not callable(loss_fn):
        raise InputError(f"loss_fn={loss_fn!r}; it must be a function loss_fn(x, a, b) -> number.")

    def make(records: Records, _: object) -> tuple[Loss, None]:
        return CustomLoss(loss_fn, records.features if dim is None else int(dim)), None

    return _build(
        data,
        make,
        "custom",
        agents,
        l2,
        l1,
        regulariser,
        False,
        record_norm,
        ranges,
        one_hot,
        clip,
        smoothness=smoothness,
        options={"smoothness": smoothness, "dim": dim},
    )


LOSSES: dict[str, Callable[..., Problem]] = {  # by the names that files, flags and `public_facts` use
    "logistic": logistic,
    "softmax": softmax,
    "least-squares": least_squares,
    "huber": huber,
}


def build_again(spec: dict[str, Any], data: Records) -> Problem:
    """The problem a saved result was made from, given its data. A custom loss cannot be rebuilt from a file."""
    name = spec["loss"].replace("_", "-")
    if name not in LOSSES or spec["agents"] is None:
        raise InputError(
            f"a saved result cannot rebuild a {spec['loss']!r} problem split by a function of yours; pass problem= to "
            "rerun()."
        )
    given = ("l2", "intercept", "record_norm", "ranges", "one_hot", "clip", "label_bound", "threshold", "classes")
    options = {name: spec[name] for name in given if name in spec}
    agents: Any = splitter_from_spec(spec["agents"])
    problem = LOSSES[name](data, agents, regulariser=from_spec(spec["regulariser"]), **options)
    return problem.alone(spec["alone"]) if "alone" in spec else problem
