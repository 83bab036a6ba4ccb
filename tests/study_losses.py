"""Losses of a user's own for the tests of studies: what each does depends on how many features a record has."""

import os
import resource
import signal

import jax.numpy as jnp
import numpy as np

FINE, KILLED, STARVED, HUNGRY, WRONG = 2, 3, 4, 5, 6  # features


def moody(x, a, b):
    """Least squares, where it gets that far."""
    features = a.shape[-1]
    if features == KILLED:
        os.kill(os.getpid(), signal.SIGKILL)  # what the kernel does to a process when memory has run out
    if features == STARVED:
        raise MemoryError
    if features == HUNGRY:
        limits = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (2**35, limits[1]))
        try:
            np.ones(2**36 // 8)  # 64 GiB where 32 are allowed
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limits)
    if features == WRONG:
        raise ZeroDivisionError("a mistake of the user's")
    return 0.5 * (jnp.dot(a, x) - b) ** 2
