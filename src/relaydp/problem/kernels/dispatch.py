"""Which gradients and losses take one fused pass over the records, and the calls that take it.

On a CPU the gradient of one agent costs what reading its records costs, and XLA reads them twice: for the scores, and
for the sum. `kernel` reads them once, in their compact dtype, `panels` and `values` once for many points; compiled code
calls them as foreign functions, with no way back through Python. They know losses with one output: logistic, least
squares, Huber. Softmax, custom losses, other dtypes, other devices, and machines without Numba take XLA's way and get
the same numbers, to rounding.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from relaydp.problem.loss import LinearLoss

if TYPE_CHECKING:
    from relaydp.problem.agent_records import Silos

ONE, AT_MANY, VALUES = "relaydp_gradient", "relaydp_gradients", "relaydp_values"  # what XLA knows them by
DTYPES = ("uint8", "float32", "float64")
MANY = 2**22  # numbers of all agents' records: 32 MB in float64
SLOPES = {"logistic": 0, "least-squares": 1, "huber": 1}  # loss -> what `machine` calls its slope
RIGHT = 2  # and what it calls a right sign
FEW = 8  # points at once, fewer than which leave most of a panel empty
SOME = 2**20  # numbers of all agents' records: fewer do not repay compiling `panels`
WORTH = 256  # records an agent that are worth a pass of their own
CROWD, WIDE = 64, 2048  # points; features, beyond which a crowd of points is rather XLA's: panels share no tile there


def serves(silos: Silos, points: int = 1) -> bool:
    """Whether these silos' gradients can be fused: decided by types alone."""
    return _can(silos, AT_MANY if points > 1 else ONE)


def _can(silos: Silos, target: str) -> bool:
    dtype = str(silos.X.dtype)
    suits = silos.loss.name in SLOPES and silos.y.dtype == jnp.float64 and dtype in DTYPES
    return suits and jax.default_backend() == "cpu" and _is_ready(dtype, target)


def pays(numbers: int) -> bool:
    """Whether all agents' gradients, of so many numbers together, are rather a fused pass for each than one product.

    While they fit into a processor's cache as float64, a product is faster; beyond, it waits for memory, twice.
    """
    return numbers >= MANY


def pays_at_many(points: int, numbers: int, features: int) -> bool:
    """Whether gradients at so many points are rather a pass that they share than two products."""
    return points >= FEW and numbers >= SOME and (points <= CROWD or features <= WIDE)


def measures(silos: Silos, points: int, numbers: int) -> bool:
    """Whether losses at so many points are rather passes, one for each agent, than products.

    Agents need records enough for a pass, and these must not be wide: there scores are all the work, and XLA's product
    of them is faster.
    """
    agents, features = silos.size.shape[0], silos.X.shape[1]
    suits = features <= WIDE and numbers >= agents * WORTH * features
    return suits and pays_at_many(points, numbers, features) and _can(silos, VALUES)


@cache
def _is_ready(dtype: str, target: str) -> bool:
    """Compile and register; False where that cannot be done. Numba is imported here, by the first run that gains."""
    try:
        if target == ONE:
            from relaydp.problem.kernels.gradient import handler_for as prepare
        elif target == AT_MANY:
            from relaydp.problem.kernels.gradient_batch import handler_for as prepare
        else:
            from relaydp.problem.kernels.losses import handler_for as prepare

        register(target, prepare(dtype))
    except (ImportError, RuntimeError):  # no Numba, or an XLA that speaks another version
        return False
    return True


@cache
def register(target: str, address: int) -> None:
    """Let compiled code call the function at this address by a name."""
    capsule = jax.ffi.pycapsule(ctypes.CFUNCTYPE(ctypes.c_void_p)(address))
    jax.ffi.register_ffi_target(target, capsule, platform="cpu")


def gradient(
    silos: Silos, i: Int[Array, ""], x: Float[Array, "*points dim"], clip: Float[Array, ""] | None
) -> Float[Array, "*points dim"]:
    """`Silos.gradient`, fused, at one point or at one a row, where `serves` says so.

    Asked here too: it makes the kernel ready for these records, and a call to one that is not would end the process.
    """
    target = AT_MANY if x.ndim == 2 else ONE
    if not _can(silos, target):
        raise TypeError(f"no fused gradient of {silos.loss.name} for {silos.X.dtype} records on this machine.")
    return _call(target, SLOPES[silos.loss.name], silos, i, x, clip, x.shape)


def values(silos: Silos, xs: Float[Array, "points dim"]) -> Float[Array, " points"]:
    """`Silos.mean_value` at each row of xs, where `measures` says so: one pass for each agent.

    A record's loss is exact to rounding beside 1, not beside itself.
    """
    return _means(SLOPES[silos.loss.name], silos, xs)


def shares_right(silos: Silos, xs: Float[Array, "points dim"]) -> Float[Array, " points"]:
    """The mean over agents of the share of labels, -1 or +1, whose sign the score has; where `measures` says so."""
    return _means(RIGHT, silos, xs)


def _means(what: int, silos: Silos, xs: Array) -> Array:
    if not _can(silos, VALUES):
        raise TypeError(f"no fused losses of {silos.loss.name} for {silos.X.dtype} records on this machine.")
    agents = jnp.arange(silos.size.shape[0], dtype=jnp.int32)
    return jnp.mean(jax.lax.map(lambda i: _call(VALUES, what, silos, i, xs, None, xs.shape[:1]), agents), axis=0)


def _call(
    target: str, what: int, silos: Silos, i: Array, x: Array, clip: Array | None, shape: tuple[int, ...]
) -> Array:
    loss = silos.loss
    assert isinstance(loss, LinearLoss)
    choices = jnp.asarray([what, silos.intercept, silos.is_dense], jnp.int64)
    numbers = silos.X, silos.y, silos.shrink, silos.norm, silos.scale
    bounds = jnp.asarray(jnp.inf if clip is None else clip, jnp.float64), jnp.asarray(loss.threshold, jnp.float64)
    call = jax.ffi.ffi_call(target, jax.ShapeDtypeStruct(shape, x.dtype))
    return call(*numbers, silos.start, silos.size, jnp.asarray(i, jnp.int32), x, *bounds, choices)
