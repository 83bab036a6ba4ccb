"""Numbers for compiled code, without a program to bring them there."""

from typing import Any

import jax
import numpy as np
from jax.typing import DTypeLike

from relaydp._jax import keep_compiled


def placed(value: Any, dtype: DTypeLike | None = None) -> jax.Array:
    """`value` as an array of JAX, copied by NumPy.

    `jnp.asarray`, `jnp.zeros` and the like compile a program for every shape they meet, which takes longer than a small
    problem's whole run. Not for use inside compiled code, which sees a constant either way.

    >>> placed([1.0, 2.0]).dtype.name
    'float64'
    """
    keep_compiled()
    return jax.device_put(np.array(value, dtype))
