"""Which gradients and losses take one fused pass over the records, and the calls that take it.

On a CPU the gradient of one agent costs what reading its records costs, and XLA reads them twice: for the scores, and
for the sum. `gradient` reads them once, in their compact dtype, `gradient_batch` and `losses` once for many points;
compiled code calls them as foreign functions, with no way back through Python. They know losses with one output:
logistic, least squares, Huber. Softmax, custom losses, other dtypes, other devices, and machines without Numba take
XLA's way and get the same numbers, to rounding.
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
    from relaydp.problem.agent_records import AgentRecords

ONE, AT_MANY, VALUES = "relaydp_gradient", "relaydp_gradients", "relaydp_values"  # what XLA knows them by
DTYPES = ("uint8", "float32", "float64")
MANY = 2**22  # numbers of all agents' records: 32 MB in float64
SLOPES = {"logistic": 0, "least-squares": 1, "huber": 1}  # loss -> what `native` calls its slope
RIGHT = 2  # and what it calls a right sign
FEW = 8  # points at once, fewer than which leave most of a panel empty
SOME = 2**20  # numbers of all agents' records: fewer do not repay compiling `gradient_batch`
WORTH = 256  # records an agent that are worth a pass of their own
CROWD, WIDE = 64, 2048  # points; features, beyond which a crowd of points is rather XLA's: panels share no tile there


def serves(agent_records: AgentRecords, points: int = 1) -> bool:
    """Whether the gradients of these records can be fused: decided by types alone."""
    return _can(agent_records, AT_MANY if points > 1 else ONE)


def _can(agent_records: AgentRecords, target: str) -> bool:
    dtype = str(agent_records.X.dtype)
    suits = agent_records.loss.name in SLOPES and agent_records.y.dtype == jnp.float64 and dtype in DTYPES
    return suits and jax.default_backend() == "cpu" and _is_ready(dtype, target)


def pays(numbers: int) -> bool:
    """Whether all agents' gradients, of so many numbers together, are rather a fused pass for each than one product.

    While they fit into a processor's cache as float64, a product is faster; beyond, it waits for memory, twice.
    """
    return numbers >= MANY


def pays_at_many(points: int, numbers: int, features: int) -> bool:
    """Whether gradients at so many points are rather a pass that they share than two products."""
    return points >= FEW and numbers >= SOME and (points <= CROWD or features <= WIDE)


def measures(agent_records: AgentRecords, points: int, numbers: int) -> bool:
    """Whether losses at so many points are rather passes, one for each agent, than products.

    Agents need records enough for a pass, and these must not be wide: there scores are all the work, and XLA's product
    of them is faster.
    """
    agents, features = agent_records.size.shape[0], agent_records.X.shape[1]
    suits = features <= WIDE and numbers >= agents * WORTH * features
    return suits and pays_at_many(points, numbers, features) and _can(agent_records, VALUES)


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
    agent_records: AgentRecords, i: Int[Array, ""], x: Float[Array, "*points dim"], clip: Float[Array, ""] | None
) -> Float[Array, "*points dim"]:
    """`AgentRecords.gradient`, fused, at one point or at one a row, where `serves` says so.

    Asked here too: it makes the kernel ready for these records, and a call to one that is not would end the process.
    """
    target = AT_MANY if x.ndim == 2 else ONE
    if not _can(agent_records, target):
        raise TypeError(
            f"no fused gradient of {agent_records.loss.name} for {agent_records.X.dtype} records on this machine."
        )
    return _call(target, SLOPES[agent_records.loss.name], agent_records, i, x, clip, x.shape)


def values(agent_records: AgentRecords, xs: Float[Array, "points dim"]) -> Float[Array, " points"]:
    """`AgentRecords.mean_value` at each row of xs, where `measures` says so: one pass for each agent.

    A record's loss is exact to rounding beside 1, not beside itself.
    """
    return _means(SLOPES[agent_records.loss.name], agent_records, xs)


def shares_right(agent_records: AgentRecords, xs: Float[Array, "points dim"]) -> Float[Array, " points"]:
    """The mean over agents of the share of labels, -1 or +1, whose sign the score has; where `measures` says so."""
    return _means(RIGHT, agent_records, xs)


def _means(what: int, agent_records: AgentRecords, xs: Array) -> Array:
    if not _can(agent_records, VALUES):
        raise TypeError(
            f"no fused losses of {agent_records.loss.name} for {agent_records.X.dtype} records on this machine."
        )
    agents = jnp.arange(agent_records.size.shape[0], dtype=jnp.int32)
    return jnp.mean(
        jax.lax.map(lambda i: _call(VALUES, what, agent_records, i, xs, None, xs.shape[:1]), agents), axis=0
    )


def _call(
    target: str, what: int, agent_records: AgentRecords, i: Array, x: Array, clip: Array | None, shape: tuple[int, ...]
) -> Array:
    loss = agent_records.loss
    assert isinstance(loss, LinearLoss)
    choices = jnp.asarray([what, agent_records.intercept, agent_records.is_dense], jnp.int64)
    numbers = agent_records.X, agent_records.y, agent_records.shrink, agent_records.norm, agent_records.scale
    bounds = jnp.asarray(jnp.inf if clip is None else clip, jnp.float64), jnp.asarray(loss.threshold, jnp.float64)
    call = jax.ffi.ffi_call(target, jax.ShapeDtypeStruct(shape, x.dtype))
    return call(*numbers, agent_records.start, agent_records.size, jnp.asarray(i, jnp.int32), x, *bounds, choices)
