"""Strict numbers for every test: float64, no silent dtype promotion, no silent rank promotion.

`make test` runs every law, those that are dear on some of their cases (`@pytest.mark.sample`), and lets XLA compile in
haste. RELAYDP_TESTS=shipped compiles as users have it, and RELAYDP_TESTS=all (`make test-all`) runs every case so.
"""

import gc
import os
import zlib
from pathlib import Path

import pytest
from effort import EVERY_CASE, IN_HASTE
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# Compiling is most of what tests do: without optimisation, and by the older emitters, it takes a third of the time.
HASTE = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)
if IN_HASTE:
    given = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = " ".join([*(flag for flag in HASTE if flag.split("=")[0] not in given), given]).strip()

# No law is about how long an example takes, which another program on the machine decides. `make test` draws the same
# examples every time, so that it fails on all machines or on none; `make test-all` draws new ones.
settings.register_profile(
    "laws",
    max_examples=100 if EVERY_CASE else 40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not EVERY_CASE,
)
settings.load_profile("laws")
# Hypothesis also tries constants from the sources of whatever is imported by then, which the tests before decide.
if not EVERY_CASE and hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = lambda: providers._local_constants  # none

# What tests compile is kept, apart from what the user's own runs keep, for the other worker, for processes that tests
# start, and for the next time.
os.environ.setdefault("RELAYDP_COMPILED", "0")
if os.environ["RELAYDP_COMPILED"] == "0" and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(home / "relaydp" / "tests")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"

# Ray reads these when it is imported, by whichever test that is: it reports to nobody, and keeps to 127.0.0.1.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"  # else it warns about its own default

import jax  # noqa: E402

import relaydp  # noqa: E402, F401

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_collection_finish():
    """What is imported by now stays: looking through it for garbage, again and again, is a twentieth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


@pytest.hookimpl(trylast=True)  # what `-m` and `-k` leave is sampled: else a law could be left with nothing
def pytest_collection_modifyitems(config, items):
    """Of a law with `sample(n)` keep n cases, chosen so that they show as many values of its parameters as they can."""
    if EVERY_CASE or config.option.keyword:
        return
    laws, chosen = {}, set()
    hasty = [item for item in items if not (IN_HASTE and item.get_closest_marker("shipped"))]
    for item in hasty or items:
        laws.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in laws.values():
        mark = cases[0].get_closest_marker("sample")
        chosen.update(_spread(cases, mark.args[0]) if mark else cases)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


def _spread(cases, count):
    """So many of the cases, each with the most values of parameters that none before it had."""
    # any order, but the same in every process, and for laws that share a fixture
    left = sorted(cases, key=lambda case: zlib.crc32(_name(case).encode()))
    kept, seen = [], set()
    while left and len(kept) < count:
        best = max(left, key=lambda case: len(_values(case) - seen))
        left.remove(best)
        kept.append(best)
        seen |= _values(best)
    return kept


def _name(case):
    return case.callspec.id if hasattr(case, "callspec") else ""


def _values(case):
    """The parts of a case's name, each with its place: "nids-ring" is nids in the first and ring in the second."""
    return set(enumerate(_name(case).split("-")))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter, config):
    """What we would ask first of whoever reports a failure: after everything but the last line, where it is read."""
    found = yield
    failed = terminalreporter.stats.get("failed", []) + terminalreporter.stats.get("error", [])
    if failed and not hasattr(config, "workerinput"):  # a worker of pytest-xdist reports to nobody
        from relaydp.cli.checks import in_brief

        terminalreporter.section("where this ran")
        for line in (*in_brief(), "To report this, paste these lines and the first failure into a new issue."):
            terminalreporter.line(line)
    return found
