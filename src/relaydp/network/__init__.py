"""relaydp over a real network: one agent process per party, mutual TLS between them, and a journal in each."""

from importlib.util import find_spec

from relaydp.errors import InputError

NEEDED = ("cryptography", "grpc", "grpc_health", "prometheus_client", "google.protobuf")


def _is_missing(name: str) -> bool:
    try:
        return find_spec(name) is None
    except ModuleNotFoundError:  # a parent package is not installed
        return True


if missing := [name for name in NEEDED if _is_missing(name)]:
    raise InputError(
        f"a network run needs packages that are not installed ({', '.join(missing)}); they come with an extra. "
        'Run: pip install "relaydp[network]"'
    )
