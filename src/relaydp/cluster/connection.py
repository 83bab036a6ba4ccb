"""The connection to a Ray cluster: one that is started here while it is needed, or an existing one.

For a wrong address Ray itself waits a minute and a half and then prints a page of text. So the address is tried first,
with a plain connection, and every later error is told in one sentence.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import os
import platform
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from relaydp._version import __version__
from relaydp.errors import InputError

PORT, CLIENT_PORT = 6379, 10001  # of `ray start --head`: for programs on the cluster, and for ray:// from outside
PATIENCE = 5.0  # seconds that an address may take to answer; a round trip takes milliseconds
FIRST_TASK = 60.0  # seconds; a node may have to start a worker for it
STORE = 256 * 2**20  # bytes of shared memory of a cluster started here; what does not fit is spilled to disk
LOOPBACK = ("127.0.0.1", "localhost", "::1")
# The first bytes of HTTP/2 on either side: Ray uses gRPC, and a gRPC server answers them with its settings at once.
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
SETTINGS = 4  # the type of that answer, its fourth byte


@contextmanager
def connect(address: str | None = None, *, cores: int | None = None) -> Iterator[Any]:
    """The `ray` module, connected; use it inside `with`.

        address    None starts a cluster of this machine, on loopback, and stops it afterwards; "auto", "host:port" or
                   "ray://host:port" joins one, and disconnects afterwards
        cores      how many CPUs a cluster that is started here offers; default: all

    If Ray has been initialised already, that connection is used and kept.
    """
    ray = _import_ray(address)
    if ray.is_initialized():
        yield ray
        return
    with warnings.catch_warnings():
        # Ray starts programs: a fork that becomes another program at once. JAX warns of every fork.
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
        if address is None:
            _start(ray, cores)
        else:
            _join(ray, address)
    try:
        if address is not None:
            _check_versions(ray, address)
        yield ray
    finally:
        ray.shutdown()


def _import_ray(address: str | None) -> Any:
    """Import Ray, configured to report nothing, and not to replace loopback addresses."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # otherwise it warns about its own default
    # Ray replaces 127.0.0.1 by the machine's address on the network unless this setting says, before it is imported,
    # that there is none. Most clusters need the replacement; one that listens on loopback only cannot be joined with
    # it.
    port = None if address is None else _port(address)
    if address is None or (_host(address) in LOOPBACK and port is not None and not _listens(_own_address(), port)):
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise InputError(
            f'Ray cannot be imported ({error}), and --on ray needs it; run pip install "relaydp[cluster]", or use '
            "--on local."
        ) from None


def _start(ray: Any, cores: int | None) -> None:
    try:
        ray.init(
            address="local",  # whatever RAY_ADDRESS says
            num_cpus=cores,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=STORE,
            _node_ip_address="127.0.0.1",
        )
    except (Exception, SystemExit) as error:  # Ray exits if a part of it does not start
        raise InputError(
            f"Ray could not be started on this machine ({_first_line(error)}); its logs are in /tmp/ray. Try --on "
            "local, or join a cluster with --on ray:HOST:6379."
        ) from None


def _join(ray: Any, address: str) -> None:
    try:
        # "auto" is what RAY_ADDRESS says, else the machine's last cluster, which may have died since
        found = ray._private.services.get_ray_address_from_environment(address, None) if address == "auto" else address
        _check_answers(ray, found)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        said = _first_line(error)
        if "ersion mismatch" in str(error):
            raise InputError(f"{_mismatch(address)} Ray says: {' '.join(str(error).split())}") from None
        raise InputError(
            f"no Ray cluster could be joined at address {address!r} ({said}); look with `ray status`, start one with "
            f"`ray start --head --port {PORT}`, or leave the address out to start one for this study."
        ) from None


def _check_answers(ray: Any, address: str) -> None:
    """Refuse within seconds an address that Ray would wait for: nothing listens there, or not a gRPC server."""
    host, port = _host(address), _port(address)
    if host is None or port is None:
        raise InputError(
            f"address {address!r} cannot be used; it must be HOST:PORT (the port is {PORT} unless the cluster says "
            f"otherwise), ray://HOST:{CLIENT_PORT}, or auto. `ray status` shows a running cluster."
        )
    used = host
    if not address.startswith("ray://"):
        used = ray._private.services.resolve_ip_for_localhost(host)  # the address that Ray uses instead of loopback
    named = f"address {address!r}" if used == host else f"address {address!r} (for Ray: {used}:{port})"
    cure = (
        f"check it with `ray status` on the cluster's head, whose port is {PORT} unless it was told otherwise "
        f"(ray://: {CLIENT_PORT}); `ray start --head` starts one."
    )
    try:
        with socket.create_connection((used, port), timeout=PATIENCE) as line:
            if os.environ.get("RAY_USE_TLS", "0") in ("0", ""):  # under TLS the first bytes are encrypted
                line.settimeout(PATIENCE)
                line.sendall(HELLO)
                answer = line.recv(9)
                if len(answer) < 4 or answer[3] != SETTINGS:
                    raise InputError(f"{named} answers, but not as Ray does; {cure}")
    except TimeoutError:
        raise InputError(f"{named} did not answer within {PATIENCE:g} s; {cure}") from None
    except OSError as error:
        raise InputError(f"{named} cannot be reached ({error.strerror or error}); {cure}") from None


def _check_versions(ray: Any, address: str) -> None:
    """Every node must have our versions: only then are the numbers the same bit for bit."""

    def there() -> dict[str, str]:  # sent by value, so that it also runs where relaydp is missing
        import importlib.metadata
        import platform

        found = {"python": platform.python_version()}
        for name in ("ray", "relaydp", "jax"):
            try:
                found[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                found[name] = "none"
        return found

    here = {"python": platform.python_version(), "relaydp": __version__, "ray": ray.__version__}
    here["jax"] = importlib.metadata.version("jax")
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ask = ray.remote(num_cpus=0, max_retries=0)(there)
    asked = {}
    for node in ray.nodes():
        if node["Alive"]:
            place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            asked[node["NodeID"]] = ask.options(scheduling_strategy=place).remote()
    _, silent = ray.wait(list(asked.values()), num_returns=len(asked), timeout=FIRST_TASK)
    if silent:
        raise InputError(
            f"the cluster at {address!r} was joined, but {len(silent)} of its {len(asked)} nodes did not run their "
            f"first task within {FIRST_TASK:g} s; look with `ray status` for nodes that are down or overloaded."
        )
    for node, answer in asked.items():
        try:
            found = ray.get(answer)
        except ray.exceptions.RayError:
            continue  # it has left since; Ray notices late, and gives it no more tasks
        wrong = {name: version for name, version in found.items() if version != here[name]}
        if wrong:
            theirs = ", ".join(f"{name} {version}" for name, version in wrong.items())
            ours = ", ".join(f"{name} {here[name]}" for name in wrong)
            raise InputError(f"{_mismatch(address)} Node {node[:8]} has {theirs}; this process has {ours}.")


def _mismatch(address: str) -> str:
    return (
        f"the cluster at {address!r} has other versions than this process; install the same Python, Ray, JAX and "
        "relaydp on every node, and start it again."
    )


def _host(address: str) -> str | None:
    name, _, port = address.removeprefix("ray://").rpartition(":")
    return name.strip("[]") if name and port.isdigit() else None


def _port(address: str) -> int | None:
    port = address.rpartition(":")[2]
    return int(port) if port.isdigit() and 0 < int(port) < 2**16 else None


def _own_address() -> str:
    """This machine's address on its network, found as Ray finds it; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        try:
            line.connect(("8.8.8.8", 80))
            return line.getsockname()[0]
        except OSError:
            return "127.0.0.1"


def _listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(error).__name__
