"""What `relaydp doctor` looks at. Each check yields findings and may raise anything: the caller turns that into one.

ok       as it should be
note     works, but something is missing or switched off; what to do if it is wanted
problem  something will fail; what to do about it
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from relaydp.errors import InputError

OK, NOTE, PROBLEM = "ok", "note", "problem"
GIB = 2**30
LITTLE_MEMORY, LITTLE_DISK, NO_DISK = 2 * GIB, 1 * GIB, GIB // 20
# What relaydp needs, and what each extra adds: pyproject.toml once more, which an installed relaydp does not have.
NEEDED = {
    "dp-accounting": ">=0.6",
    "jax": ">=0.10,<0.12",
    "jaxlib": "",  # as jax says
    "jaxtyping": ">=0.3",
    "matplotlib": ">=3.9",
    "networkx": ">=3.3",
    "numba": ">=0.68",
    "numpy": ">=2.0",
    "pooch": ">=1.8",
    "pyarrow": ">=17",
    "pydantic": ">=2.7",
    "rich": ">=13.7",
    "scikit-learn": ">=1.8",
    "scipy": ">=1.13",
    "typer": ">=0.12",
}
EXTRAS = {
    "network": {
        "cryptography": ">=43",
        "grpcio": ">=1.70",
        "grpcio-health-checking": ">=1.70",
        "prometheus-client": ">=0.20",
        "protobuf": ">=7.35",
    },
    "cluster": {"ray": ">=2.55"},
}
# a package whose module is called otherwise
MODULES = {
    "grpcio": "grpc",
    "grpcio-health-checking": "grpc_health",
    "protobuf": "google.protobuf",
    "scikit-learn": "sklearn",
}


class Finding(NamedTuple):
    """One line of the report."""

    name: str
    state: str
    found: str
    do: str = ""  # what to do about a note or a problem


# ---------------------------------------------------------------- versions


def versions() -> Iterator[Finding]:
    """relaydp, Python, and every package that relaydp needs, imported; then what each extra adds."""
    from relaydp._version import __version__

    yield Finding("relaydp", OK, __version__)
    python = platform.python_version()
    known = (3, 11) <= sys.version_info[:2] <= (3, 13)
    yield Finding("python", OK if known else NOTE, python, "" if known else "relaydp is tested on Python 3.11 to 3.13.")
    for name, wanted in NEEDED.items():
        yield _package(name, wanted, f"pip install '{name}{wanted}'")


def extras() -> Iterator[Finding]:
    """One line for each extra: there, not installed, or broken."""
    for extra, packages in EXTRAS.items():
        install = f"pip install 'relaydp[{extra}]'"
        missing = [name for name in packages if not _installed(name)]
        if missing:
            there = "" if len(missing) == len(packages) else f" (missing: {', '.join(missing)})"
            yield Finding(extra, NOTE, f"not installed{there}", f"If it is wanted: {install}")
            continue
        found = [_package(name, wanted, install) for name, wanted in packages.items()]
        wrong = [finding for finding in found if finding.state == PROBLEM]
        yield from wrong
        if not wrong:
            yield Finding(extra, OK, ", ".join(f"{finding.name} {finding.found}" for finding in found))


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _package(name: str, wanted: str, install: str) -> Finding:
    """Whether a package is there, can be imported, and has a version within the bounds."""
    if not _installed(name):
        return Finding(name, PROBLEM, "not installed", install)
    version = importlib.metadata.version(name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(MODULES.get(name, name.replace("-", "_")))
    except Exception as error:  # a broken package may raise anything as it is imported
        words = f"{version}, but it cannot be imported ({brief(error)})"
        return Finding(name, PROBLEM, words, f"Install it again: {install} --force-reinstall")
    if not satisfies(version, wanted):
        return Finding(name, PROBLEM, f"{version}; needed {wanted}", install)
    return Finding(name, OK, version)


def satisfies(version: str, wanted: str) -> bool:
    """Whether a version is within bounds such as '>=0.10,<0.12'. Other signs are not checked.

    >>> satisfies("0.11.1", ">=0.10,<0.12"), satisfies("0.9", ">=0.10"), satisfies("2.0rc1", ">=2.0")
    (True, False, True)
    """

    def numbers(text: str) -> list[int]:
        return [int(part) for part in re.findall(r"\d+", re.match(r"[\d.]*", text)[0])]  # type: ignore[index]

    for sign, bound in re.findall(r"(>=|<)\s*([\d.]+)(?![\d.])", wanted):
        if (numbers(version) >= numbers(bound)) != (sign == ">="):
            return False
    return True


# ---------------------------------------------------------------- the machine


def machine() -> Iterator[Finding]:
    """Processor, cores, threads, memory, what JAX computes on, and the terminal."""
    yield Finding("processor", OK, _processor())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding("cores", OK, str(cores))
    yield Finding("threads", OK, _threads())
    memory = _memory()
    if memory is not None:
        little = memory < LITTLE_MEMORY
        yield Finding(
            "memory",
            NOTE if little else OK,
            f"{memory / GIB:.1f} GiB",
            "Large data sets and many agents will not fit; 2 GiB or more is comfortable." if little else "",
        )
    import jax

    yield Finding("devices", OK, ", ".join(f"{device.platform}:{device.id}" for device in jax.devices()))
    try:
        import relaydp._jax  # noqa: F401 (JAX's settings)
    except InputError:  # JAX_ENABLE_X64 is 0
        wide = False
    else:
        wide = jax.numpy.ones(1).dtype == "float64"
    yield Finding(
        "float64",
        OK if wide else PROBLEM,
        "on" if wide else "off",
        "" if wide else "Noise needs all its bits: unset JAX_ENABLE_X64, or set it to 1.",
    )
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    plain = encoding not in ("utf8", "utf16", "utf32")
    yield Finding(
        "terminal",
        NOTE if plain else OK,
        f"{sys.stdout.encoding}, {shutil.get_terminal_size().columns} columns",
        "Names that are not ASCII may not print: set LANG=C.UTF-8." if plain else "",
    )


# what compiled code differs by, as Linux calls it on x86 and on Arm
INSTRUCTIONS = "sse4_2 avx avx2 fma f16c avx512f avx512dq avx512bw avx512vl avx512_vnni avx512_bf16 avx_vnni amx_int8"
INSTRUCTIONS += " asimd asimddp fphp bf16 i8mm sve sve2"


def _processor() -> str:
    """Its name, and those of its instruction sets that numbers or kernels may depend on, as far as the system says."""
    facts: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file.read(8192).split("\n\n")[0].splitlines():
                name, _, value = line.partition(":")
                facts[name.strip().lower()] = value.strip()
    except OSError:  # not Linux
        pass
    name = facts.get("model name") or platform.processor() or "unknown"
    has = set((facts.get("flags") or facts.get("features") or "").split())
    sets = " ".join(each for each in INSTRUCTIONS.split() if each in has)
    return f"{name}, {platform.machine()}" + (f", {sets}" if sets else "")


THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "XLA_FLAGS")


def _threads() -> str:
    """As many as cores, unless the environment or a container says otherwise."""
    limits = [f"{name}={os.environ[name]}" for name in THREADS if os.environ.get(name)]
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        limits.append(f"the time of {int(quota) / int(period):g} cores")
    except (OSError, ValueError):  # no such file, or "max"
        pass
    return ", ".join(limits) or "as many as cores"


def _memory() -> int | None:
    """Bytes that this process may use: the machine's, or what a container allows; None if the system does not say."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
    try:
        return min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # no such file, or "max"
        return memory


# ---------------------------------------------------------------- folders and data


def cache() -> Iterator[Finding]:
    """Where JAX keeps what it compiles, and whether it can."""
    import jax

    from relaydp._jax import keep_compiled

    keep_compiled()
    folder = getattr(jax.config, "jax_compilation_cache_dir", None)
    if os.environ.get("RELAYDP_COMPILED") == "0":
        yield Finding("compiled", NOTE, "kept nowhere: RELAYDP_COMPILED=0", "Unset it to start seconds earlier.")
    elif not folder:
        yield Finding(
            "compiled",
            NOTE,
            "kept nowhere: the cache folder is not ours to write to",
            "Set RELAYDP_COMPILED=FOLDER, a folder that is yours alone, to start seconds earlier.",
        )
    else:
        yield _folder("compiled", Path(folder))


def data() -> Iterator[Finding]:
    """What of the catalogue is on disk, and where more would go."""
    from relaydp.data import catalogue_names, describe
    from relaydp.data.fetch import VARIABLE, cache_folder

    chosen = os.environ.get(VARIABLE)
    if chosen and not Path(chosen).expanduser().is_dir():
        yield Finding(VARIABLE, PROBLEM, f"{chosen}, which is not a folder", "Correct it, or unset it.")
        return
    yield Finding(VARIABLE, OK, chosen or "not set")
    found: dict[bool, list[str]] = {True: [], False: []}
    for name in catalogue_names():
        found[describe(name)["available"] != "needs download"].append(name)
    yield Finding("here", OK, ", ".join(found[True]))
    if found[False]:
        yield Finding(
            "not here", NOTE, ", ".join(found[False]), f"If wanted: relaydp data fetch {' '.join(found[False])}"
        )
    yield _folder("downloads", cache_folder())


def _folder(name: str, folder: Path) -> Finding:
    """Whether a folder can be written to, and how much room it has. Folders that are not there yet are not made."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    room = shutil.disk_usage(there).free
    words = f"{folder}, {room / GIB:.1f} GiB free"
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".relaydp-doctor-"):
            pass
    except OSError as error:
        return Finding(name, PROBLEM, f"{folder} cannot be written to ({brief(error)})", "Make it yours to write to.")
    if room < LITTLE_DISK:
        return Finding(name, PROBLEM if room < NO_DISK else NOTE, words, "Make room on that disk.")
    return Finding(name, OK, words)


# ---------------------------------------------------------------- the self-test


def self_test() -> Iterator[Finding]:
    """Two tiny runs, each beside an answer found by other means."""
    import numpy as np

    import relaydp as rd

    draw = np.random.default_rng(0)
    X = draw.uniform(size=(64, 3))
    y = np.where(X @ [2.0, -3.0, 1.0] + 0.3 * draw.normal(size=64) > 0, 1, -1)
    problem = rd.logistic(rd.Records(X, y), agents=4, l2=L2, ranges=(0.0, 1.0), classes=[-1, 1])
    options: dict[str, Any] = {"walk": "cyclic", "progress": False, "transcript": False}
    bare = rd.solve(problem, rd.ring(4), activations=ACTIVATIONS, **options)
    yield _against_scipy(X, y, bare.x)
    private = rd.solve(problem, rd.ring(4), budget=rd.Budget(1.0, DELTA), activations=5, **options)
    yield _against_dp_accounting(private)


L2, DELTA, ACTIVATIONS = 0.1, 1e-5, 60
TOLERANCE = 1e-6  # of the objective: what 60 activations leave on this problem is far below
PLD_TOLERANCE = 1e-3  # dp-accounting rounds losses to a grid


def _against_scipy(X: Any, y: Any, x: Any) -> Finding:
    """The relay's model beside the minimiser that SciPy finds for the same sum, written out here again."""
    import numpy as np
    from scipy.optimize import minimize

    def objective(x: Any) -> float:
        return float(np.logaddexp(0.0, -y * (X @ x)).mean() + L2 / 2 * x @ x)

    excess = objective(x) - objective(minimize(objective, np.zeros(3), tol=1e-12).x)
    if abs(excess) <= TOLERANCE:
        return Finding("training", OK, f"the relay's model has SciPy's loss to {max(abs(excess), 1e-16):.0e}")
    return Finding("training", PROBLEM, f"the relay's loss differs from SciPy's by {excess:.1e}", REPORT_IT)


def _against_dp_accounting(result: Any) -> Finding:
    """The epsilon we print beside that of dp-accounting for the busiest agent's releases."""
    from dp_accounting import GaussianDpEvent
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant()
    for release in result.ledger.events(0):
        accountant.compose(GaussianDpEvent(release.scale / release.sensitivity))
    second = accountant.get_epsilon(DELTA)
    words = f"epsilon {result.epsilon:.6g}, by dp-accounting {second:.6g}"
    if abs(second - result.epsilon) <= PLD_TOLERANCE:
        return Finding("privacy", OK, words)
    return Finding("privacy", PROBLEM, words, REPORT_IT)


def sampler() -> Iterator[Finding]:
    """Secret noise: 2,000 draws have the mean and the spread that they should have."""
    from relaydp.privacy.secret import K, draw_lattice

    count = 2000
    draws = draw_lattice(count) * 2.0**-K
    mean, spread = float(draws.mean()) * count**0.5, (float(draws.var()) - 1.0) * (count / 2) ** 0.5
    # both are standard normal, so that 6 is passed once in a hundred million
    fine = abs(mean) < 6 and abs(spread) < 6 and len(set(draws.tolist())) == count
    words = f"{count:,} draws: mean {draws.mean():.3f}, standard deviation {draws.std():.3f}"
    yield Finding("secret noise", OK if fine else PROBLEM, words, "" if fine else REPORT_IT)


REPORT_IT = "Do not rely on this installation. Install relaydp with the versions in constraints.txt, and report this."

# (panel, check), in the order they are shown
CHECKS: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
    ("Versions", versions),
    ("Extras", extras),
    ("Machine", machine),
    ("Folders", cache),
    ("Data", data),
    ("Self-test", self_test),
    ("Self-test", sampler),
)


def brief(error: BaseException) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def in_brief() -> list[str]:
    """What a report of a failure should begin with: versions, without importing them, and the machine."""
    from relaydp._version import __version__

    packages = [*NEEDED, *(name for extra in EXTRAS.values() for name in extra)]
    there = [f"{name} {importlib.metadata.version(name)}" for name in packages if _installed(name)]
    return [
        f"relaydp {__version__}, Python {platform.python_version()}, {platform.platform()}",
        ", ".join(there),
        *(f"{finding.name}: {finding.found}" for finding in findings(machine)),
    ]


def findings(check: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """What a check found; if it failed, a problem that says how."""
    found: list[Finding] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for finding in check():
                found.append(finding)
    except Exception as error:  # whatever it is, the other checks go on
        name = check.__name__.replace("_", "-")
        found.append(
            Finding(
                name,
                PROBLEM,
                f"broke off ({brief(error)})",
                "Put the problems above right first; if there are none, report this.",
            )
        )
    return found
