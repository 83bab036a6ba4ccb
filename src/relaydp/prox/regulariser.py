"""Regularisers r: a value, a prox, and a name. Immutable; weights are arrays, so changing one does not recompile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from relaydp.arrays import placed
from relaydp.errors import InputError
from relaydp.prox.functions import (
    Scalar,
    Vector,
    clip_ball,
    clip_box,
    group_soft_threshold,
    shrink,
    soft_threshold,
)


class Regulariser(Protocol):
    """What a problem needs of r: its value at x (infinite outside its domain), and prox_{t r}(v).

    The functions of this module make regularisers; `custom` makes one from your own functions.
    """

    @property
    def kind(self) -> str: ...

    def value(self, x: Vector) -> Float[Array, ""]:
        """r(x)."""
        ...

    def prox(self, v: Vector, t: Scalar) -> Vector:
        """The x that minimises t r(x) + 1/2 ||x - v||^2."""
        ...

    def spec(self) -> dict[str, Any]:
        """The description from which a saved result builds this regulariser again."""
        ...


def _weight(name: str, value: float) -> float:
    if not (isinstance(value, Real) and np.isfinite(value) and value >= 0):
        raise InputError(f"{name}={value!r}; it must be a finite number >= 0. Pass 0 to leave the term out.")
    return float(value)


def _outside(inside: Array) -> Float[Array, ""]:
    """0 inside the set, inf outside; with a small tolerance, since prox outputs are on the edge up to rounding."""
    return jnp.where(inside, 0.0, jnp.inf)


EDGE = 1e-9  # relative rounding allowed on the edge of a constraint set


def _kind(name: str) -> Any:
    """The regulariser's name as part of its pytree structure, not only of its class.

    JAX treats the structures of two dataclasses as equal if their static fields are, and distinguishes them only by
    hash. On a hash collision, a program compiled for one would run for the other.
    """
    return field(default=name, kw_only=True, metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Nothing:
    """r = 0."""

    kind: str = _kind("none")

    def value(self, x: Vector) -> Float[Array, ""]:
        return jnp.zeros((), x.dtype)

    def prox(self, v: Vector, t: Scalar) -> Vector:
        return v

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class L1:
    """r = l1 ||x||_1: sparse models."""

    l1: float
    kind: str = _kind("l1")

    def value(self, x: Vector) -> Float[Array, ""]:
        return self.l1 * jnp.sum(jnp.abs(x))

    def prox(self, v: Vector, t: Scalar) -> Vector:
        return soft_threshold(v, t, self.l1)

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind, "l1": self.l1}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ElasticNet:
    """r = l1 ||x||_1 + l2/2 ||x||^2, both inside r (a problem's own `l2=` sits inside the f_i instead)."""

    l1: float
    l2: float
    kind: str = _kind("elastic-net")

    def value(self, x: Vector) -> Float[Array, ""]:
        return self.l1 * jnp.sum(jnp.abs(x)) + 0.5 * self.l2 * jnp.sum(x * x)

    def prox(self, v: Vector, t: Scalar) -> Vector:
        return shrink(soft_threshold(v, t, self.l1), t, self.l2)

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind, "l1": self.l1, "l2": self.l2}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GroupLasso:
    """r = weight sum_g sqrt(|g|) ||x_g||_2: whole groups of coefficients are zero or nonzero together."""

    weight: float
    groups: Int[Array, " dim"]
    sizes: Float[Array, " groups"]
    kind: str = _kind("group-lasso")

    def value(self, x: Vector) -> Float[Array, ""]:
        squares = jnp.zeros_like(self.sizes).at[self.groups].add(x * x)
        return self.weight * jnp.sum(jnp.sqrt(self.sizes) * jnp.sqrt(squares))

    def prox(self, v: Vector, t: Scalar) -> Vector:
        return group_soft_threshold(v, t, self.weight, self.groups, self.sizes)

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind, "weight": self.weight, "groups": np.asarray(self.groups).tolist()}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Box:
    """low <= x_k <= high for every coefficient; `Box(0, inf)` is non-negativity."""

    low: float
    high: float
    kind: str = _kind("box")

    def value(self, x: Vector) -> Float[Array, ""]:
        slack = EDGE * (1.0 + jnp.abs(x))
        return _outside(jnp.all((x >= self.low - slack) & (x <= self.high + slack)))

    def prox(self, v: Vector, t: Scalar) -> Vector:
        return clip_box(v, self.low, self.high)

    def spec(self) -> dict[str, Any]:
        # JSON has no infinity
        low, high = (bound if np.isfinite(bound) else None for bound in (self.low, self.high))
        return {"kind": self.kind, "low": low, "high": high}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class L2Ball:
    """||x||_2 <= radius."""

    radius: float
    kind: str = _kind("l2-ball")

    def value(self, x: Vector) -> Float[Array, ""]:
        return _outside(jnp.sqrt(jnp.sum(x * x)) <= self.radius * (1.0 + EDGE))

    def prox(self, v: Vector, t: Scalar) -> Vector:
        return clip_ball(v, self.radius)

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind, "radius": self.radius}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Custom:
    """Your own r: two JAX functions, `value_fn(x)` and `prox_fn(v, t)`. They must not look at private records."""

    value_fn: Callable[[Vector], Array] = field(metadata={"static": True})
    prox_fn: Callable[[Vector, Scalar], Vector] = field(metadata={"static": True})
    kind: str = _kind("custom")

    def value(self, x: Vector) -> Float[Array, ""]:
        return self.value_fn(x)

    def prox(self, v: Vector, t: Scalar) -> Vector:
        return self.prox_fn(v, t)

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind}


def none() -> Nothing:
    """No regulariser: r = 0. A problem without `regulariser=` has this one.

    Returns:
        A regulariser with the value 0, whose prox leaves every point where it is.

    Example:
        >>> import relaydp as rd
        >>> rd.prox.none().spec()
        {'kind': 'none'}
    """
    return Nothing()


def l1(weight: float) -> L1:
    """The l1 norm, r = weight ||x||_1: models with many coefficients that are exactly 0.

    Args:
        weight: A number of 0 or more. A larger one sets more coefficients to 0.

    Returns:
        A regulariser. Its prox moves each coordinate towards 0 by t * weight, but not past 0.

    Raises:
        InputError: The weight is not a finite number of 0 or more.

    Example:
        >>> import numpy as np
        >>> import relaydp as rd
        >>> rd.prox.l1(0.5).prox(np.array([2.0, 0.3]), 1.0).tolist()
        [1.5, 0.0]
        >>> problem = rd.logistic(rd.load_data("breast-cancer"), agents=4, regulariser=rd.prox.l1(1e-3))
        >>> problem.regulariser.kind
        'l1'
    """
    return L1(_weight("l1", weight))


def elastic_net(l1: float, l2: float) -> ElasticNet:
    """The elastic net, r = l1 ||x||_1 + l2/2 ||x||^2.

    Both terms are in r. The `l2=` of a problem is in each agent's f_i instead.

    Args:
        l1: The weight of the l1 norm, 0 or more.
        l2: The weight of the squared norm, 0 or more.

    Returns:
        A regulariser. Its prox moves each coordinate towards 0 by t * l1 and then divides it by 1 + t * l2.

    Raises:
        InputError: A weight is not a finite number of 0 or more.

    Example:
        >>> import numpy as np
        >>> import relaydp as rd
        >>> rd.prox.elastic_net(l1=0.5, l2=1.0).prox(np.array([2.5, 0.3]), 1.0).tolist()
        [1.0, 0.0]
    """
    return ElasticNet(_weight("l1", l1), _weight("l2", l2))


def group_lasso(weight: float, groups: Any) -> GroupLasso:
    """The group lasso, r = weight sum_g sqrt(|g|) ||x_g||: whole groups of coefficients are 0 together.

    Args:
        weight: A number of 0 or more.
        groups: The group number of each coefficient, from 0 upwards without gaps. It has as many entries as the model
            has coefficients.

    Returns:
        A regulariser. Its prox shortens each group by t * weight * sqrt(its size), to exactly 0 if it is shorter.

    Raises:
        InputError: The weight is not a finite number of 0 or more, or `groups` is not a list of whole numbers from 0
            without gaps.

    Example:
        >>> import numpy as np
        >>> import relaydp as rd
        >>> r = rd.prox.group_lasso(1.0, [0, 0, 1])
        >>> r.sizes.tolist()
        [2.0, 1.0]
        >>> r.prox(np.array([0.6, 0.8, 3.0]), 1.0).tolist()
        [0.0, 0.0, 2.0]
    """
    index = np.asarray(groups)
    if index.ndim != 1 or index.dtype.kind not in "iu" or index.size == 0:
        raise InputError(
            f"groups has shape {index.shape} and dtype {index.dtype}; it must be one whole number >= 0 per coefficient."
        )
    if index.min() < 0:
        raise InputError(f"groups has the number {index.min()}; groups are whole numbers >= 0, one per coefficient.")
    sizes = np.bincount(index)
    if (sizes == 0).any():
        raise InputError(f"group {int(np.argmin(sizes))} has no coefficient; number groups 0, 1, 2, ... without gaps.")
    weight = _weight("weight", weight)
    return GroupLasso(weight, placed(index, np.int32), placed(sizes, np.float64))


def box(low: float | None, high: float | None) -> Box:
    """Bounds on every coefficient: low <= x_k <= high.

    Args:
        low: The least value of a coefficient; None for no lower bound.
        high: The largest value of a coefficient; None for no upper bound.

    Returns:
        A regulariser that is 0 inside the box and infinite outside. Its prox moves a point to the nearest point of the
        box.

    Raises:
        InputError: A bound is not a number, or low is above high.

    Example:
        >>> import numpy as np
        >>> import relaydp as rd
        >>> rd.prox.box(-1.0, 1.0).prox(np.array([2.0, -3.0, 0.5]), 1.0).tolist()
        [1.0, -1.0, 0.5]
    """
    low, high = -np.inf if low is None else low, np.inf if high is None else high
    if not (isinstance(low, Real) and isinstance(high, Real) and low <= high):
        raise InputError(f"box(low={low!r}, high={high!r}) is not a box; both must be numbers, with low <= high.")
    return Box(float(low), float(high))


def nonnegative() -> Box:
    """No negative coefficient: x_k >= 0. The same as `box(0, None)`.

    Returns:
        A regulariser that is 0 where no coefficient is negative, and infinite elsewhere. Its prox sets negative
        coefficients to 0.

    Example:
        >>> import numpy as np
        >>> import relaydp as rd
        >>> rd.prox.nonnegative().prox(np.array([2.0, -3.0]), 1.0).tolist()
        [2.0, 0.0]
    """
    return Box(0.0, float("inf"))


def l2_ball(radius: float) -> L2Ball:
    """A bound on the length of the model: ||x||_2 <= radius.

    Args:
        radius: The largest length, a number above 0.

    Returns:
        A regulariser that is 0 inside the ball and infinite outside. Its prox shortens a point that is longer to the
        radius.

    Raises:
        InputError: The radius is not a finite number above 0.

    Example:
        >>> import numpy as np
        >>> import relaydp as rd
        >>> rd.prox.l2_ball(1.0).prox(np.array([4.0, 0.0]), 1.0).tolist()
        [1.0, 0.0]
    """
    if not (isinstance(radius, Real) and np.isfinite(radius) and radius > 0):
        raise InputError(f"radius={radius!r}; it must be a finite number > 0.")
    return L2Ball(float(radius))


def custom(value: Callable[[Vector], Array], prox: Callable[[Vector, Scalar], Vector]) -> Custom:
    """A regulariser of your own, from two JAX functions. They must not look at private records.

    Args:
        value: value(x), the number r(x); infinite outside r's domain.
        prox: prox(v, t), the x that minimises t r(x) + 1/2 ||x - v||^2, for any t > 0.

    Returns:
        A regulariser. A saved result cannot build it again: `rerun` needs the problem, and an attack the regulariser.

    Example:
        >>> import jax.numpy as jnp
        >>> import relaydp as rd
        >>> ridge = rd.prox.custom(lambda x: 0.5 * jnp.sum(x * x), lambda v, t: v / (1.0 + t))
        >>> ridge.prox(jnp.array([2.0, 4.0]), 1.0).tolist()
        [1.0, 2.0]
    """
    return Custom(value, prox)


def from_spec(spec: dict[str, Any]) -> Regulariser:
    """Build a regulariser from its description, `spec()`, as a saved result has it.

    Args:
        spec: A dict with `kind` and the numbers of that kind.

    Returns:
        The regulariser.

    Raises:
        InputError: The kind is "custom", whose functions are not in the file, or unknown.

    Example:
        >>> import relaydp as rd
        >>> rd.prox.from_spec({"kind": "l1", "l1": 0.5}) == rd.prox.l1(0.5)
        True
    """
    makers: dict[str, Callable[..., Regulariser]] = {
        "none": none,
        "l1": lambda l1: L1(_weight("l1", l1)),
        "elastic-net": elastic_net,
        "group-lasso": group_lasso,
        "box": box,
        "l2-ball": l2_ball,
    }
    kind = spec["kind"]
    if kind not in makers:
        raise InputError(f"a saved result cannot rebuild a {kind!r} regulariser; pass the problem itself to rerun().")
    return makers[kind](**{key: value for key, value in spec.items() if key != "kind"})
