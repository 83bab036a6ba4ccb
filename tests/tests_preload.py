"""Imported once by the process that agents are forked from: everything slow, nothing that starts threads."""

import importlib
import os

os.environ["GRPC_VERBOSITY"] = "INFO"
os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-PSK-AES128-CBC-SHA"  # as identity.require_tls13 does
import consortium_lab  # noqa: F401, E402
import jax  # noqa: F401, E402
import pyarrow.csv  # noqa: F401, E402

import relaydp.runtime.agent  # noqa: F401, E402
import relaydp.runtime.page  # noqa: F401, E402
import relaydp.runtime.serve  # noqa: F401, E402
import relaydp.runtime.vault  # noqa: F401, E402
import relaydp.runtime.watch  # noqa: F401, E402

try:
    importlib.import_module("pandas")  # pyarrow brings it in where it is installed
except ImportError:
    pass
try:
    from relaydp.problem import kernel

    kernel.handler_for("float64")
except ImportError:  # no Numba here: the agents do without, too
    pass
