"""Imported once by the process that agents are forked from: everything slow, nothing that starts threads."""

import importlib
import os

os.environ["GRPC_VERBOSITY"] = "INFO"
os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-PSK-AES128-CBC-SHA"  # as identity.require_tls13 does
import consortium_lab  # noqa: F401, E402
import jax  # noqa: F401, E402
import pyarrow.csv  # noqa: F401, E402

import relaydp.network.operations.agent  # noqa: F401, E402
import relaydp.network.operations.metrics  # noqa: F401, E402
import relaydp.network.operations.serve  # noqa: F401, E402
import relaydp.network.operations.status_page  # noqa: F401, E402
import relaydp.network.records.process  # noqa: F401, E402

try:
    importlib.import_module("pandas")  # pyarrow brings it in where it is installed
except ImportError:
    pass
try:
    from relaydp.problem.kernels import gradient

    gradient.handler_for("float64")
except ImportError:  # no Numba here: the agents do without, too
    pass
