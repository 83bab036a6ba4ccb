"""Which gradients take one fused pass over the records, and the call that takes it.

On a CPU the gradient of one agent costs what reading its records costs, and XLA reads them twice: for the scores, and
for the sum. `kernel` reads them once, in their compact dtype; compiled code calls it as a foreign function, with no way
back through Python. It knows losses with one output: logistic, least squares, Huber. Softmax, custom losses, other
dtypes, other devices, and machines without Numba take XLA's way and get the same numbers, to rounding.
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

TARGET = "relaydp_gradient"
DTYPES = ("uint8", "float32", "float64")
MANY = 2**22  # numbers of all agents' records: 32 MB in float64
SLOPES = {"logistic": 0, "least-squares": 1, "huber": 1}  # loss -> what `kernel` calls its slope


def serves(silos: Silos) -> bool:
    """Whether these silos' gradients can be fused: decided by types alone."""
    dtype = str(silos.X.dtype)
    suits = silos.loss.name in SLOPES and silos.y.dtype == jnp.float64 and dtype in DTYPES
    return suits and jax.default_backend() == "cpu" and _is_ready(dtype)


def pays(numbers: int) -> bool:
    """Whether all agents' gradients, of so many numbers together, are rather a fused pass for each than one product.

    While they fit into a processor's cache as float64, a product is faster; beyond, it waits for memory, twice.
    """
    return numbers >= MANY


@cache
def _is_ready(dtype: str) -> bool:
    """Compile and register; False where that cannot be done. Numba is imported here, by the first run that gains."""
    try:
        from relaydp.problem import kernel

        _register(kernel.handler_for(dtype))
    except (ImportError, RuntimeError):  # no Numba, or an XLA that speaks another version
        return False
    return True


@cache
def _register(address: int) -> None:
    capsule = jax.ffi.pycapsule(ctypes.CFUNCTYPE(ctypes.c_void_p)(address))
    jax.ffi.register_ffi_target(TARGET, capsule, platform="cpu")


def gradient(
    silos: Silos, i: Int[Array, ""], x: Float[Array, " dim"], clip: Float[Array, ""] | None
) -> Float[Array, " dim"]:
    """`Silos.gradient`, fused, where `serves` says so. Asked here too: it makes the kernel ready for these records, and
    a call to one that is not ready would end the process."""
    loss = silos.loss
    if not serves(silos):
        raise TypeError(f"no fused gradient of {loss.name} for {silos.X.dtype} records on this machine.")
    assert isinstance(loss, LinearLoss)
    choices = jnp.asarray([SLOPES[loss.name], silos.intercept, silos.is_dense], jnp.int64)
    numbers = silos.X, silos.y, silos.shrink, silos.norm, silos.offset, silos.scale
    bounds = jnp.asarray(jnp.inf if clip is None else clip, jnp.float64), jnp.asarray(loss.threshold, jnp.float64)
    call = jax.ffi.ffi_call(TARGET, jax.ShapeDtypeStruct(x.shape, x.dtype))
    return call(*numbers, silos.start, silos.size, jnp.asarray(i, jnp.int32), x, *bounds, choices)
