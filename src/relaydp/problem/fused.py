"""Which gradients take one fused pass over the records, and the calls that take it.

On a CPU the gradient of one agent costs what reading its records costs, and XLA reads them twice: for the scores, and
for the sum. `kernel` reads them once, in their compact dtype, and `panels` once for many points; compiled code calls
them as foreign functions, with no way back through Python. They know losses with one output: logistic, least squares,
Huber. Softmax, custom losses, other dtypes, other devices, and machines without Numba take XLA's way and get the same
numbers, to rounding.
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
    from relaydp.problem.silos import Silos

ONE, AT_MANY = "relaydp_gradient", "relaydp_gradients"
DTYPES = ("uint8", "float32", "float64")
MANY = 2**22  # numbers of all agents' records: 32 MB in float64
SLOPES = {"logistic": 0, "least-squares": 1, "huber": 1}  # loss -> what `machine` calls its slope
FEW = 8  # points at once, fewer than which leave most of a panel empty
SOME = 2**20  # numbers of all agents' records: fewer do not repay compiling `panels`
CROWD, WIDE = 64, 2048  # points; features, beyond which a crowd of points is rather XLA's: panels share no tile there


def serves(silos: Silos, points: int = 1) -> bool:
    """Whether these silos' gradients can be fused: decided by types alone."""
    dtype = str(silos.X.dtype)
    suits = silos.loss.name in SLOPES and silos.y.dtype == jnp.float64 and dtype in DTYPES
    return suits and jax.default_backend() == "cpu" and _is_ready(dtype, points > 1)


def pays(numbers: int) -> bool:
    """Whether all agents' gradients, of so many numbers together, are rather a fused pass for each than one product.

    While they fit into a processor's cache as float64, a product is faster; beyond, it waits for memory, twice.
    """
    return numbers >= MANY


def pays_at_many(points: int, numbers: int, features: int) -> bool:
    """Whether gradients at so many points are rather a pass that they share than two products."""
    return points >= FEW and numbers >= SOME and (points <= CROWD or features <= WIDE)


@cache
def _is_ready(dtype: str, many: bool) -> bool:
    """Compile and register; False where that cannot be done. Numba is imported here, by the first run that gains."""
    try:
        if many:
            from relaydp.problem.panels import handler_for
        else:
            from relaydp.problem.kernel import handler_for

        register(AT_MANY if many else ONE, handler_for(dtype))
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
    loss, many = silos.loss, x.ndim == 2
    if not serves(silos, 1 + many):
        raise TypeError(f"no fused gradient of {loss.name} for {silos.X.dtype} records on this machine.")
    assert isinstance(loss, LinearLoss)
    choices = jnp.asarray([SLOPES[loss.name], silos.intercept, silos.is_dense], jnp.int64)
    numbers = silos.X, silos.y, silos.shrink, silos.norm, silos.offset, silos.scale
    bounds = jnp.asarray(jnp.inf if clip is None else clip, jnp.float64), jnp.asarray(loss.threshold, jnp.float64)
    call = jax.ffi.ffi_call(AT_MANY if many else ONE, jax.ShapeDtypeStruct(x.shape, x.dtype))
    return call(*numbers, silos.start, silos.size, jnp.asarray(i, jnp.int32), x, *bounds, choices)
