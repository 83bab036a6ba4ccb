"""Where the tests' time goes: processor seconds by file, and how much of them is compilation. For `make test-times`."""

import os
from collections import defaultdict

import jax
import pytest

compiled = {"seconds": 0.0, "programs": 0}


def _note(name, seconds, **_):
    if name.endswith("backend_compile_duration"):
        compiled["seconds"] += seconds
        compiled["programs"] += 1


jax.monitoring.register_event_duration_secs_listener(_note)


def _now():
    """Processor seconds of this process and of those it has waited for; seconds and programs that XLA has compiled."""
    times = os.times()
    return (times.user + times.system + times.children_user + times.children_system, *compiled.values())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    item.began = _now()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "teardown":
        spent = [after - before for after, before in zip(_now(), item.began, strict=True)]
        report.user_properties.append(("spent", spent))
    return report


class Table:
    """On the controller: adds up what the workers report."""

    def __init__(self):
        self.files = defaultdict(lambda: [0, 0.0, 0.0, 0])

    def pytest_runtest_logreport(self, report):
        spent = dict(report.user_properties).get("spent")
        if report.when == "teardown" and spent is not None:
            row = self.files[report.nodeid.partition("::")[0]]
            for k, part in enumerate([1, *spent]):
                row[k] += part

    def pytest_terminal_summary(self, terminalreporter):
        terminalreporter.section("where the time went")
        terminalreporter.line("| file | tests | CPU s | XLA compiling, s | programs |")
        terminalreporter.line("|---|---|---|---|---|")
        total = [sum(column) for column in zip(*self.files.values(), strict=True)]
        for name, row in [*sorted(self.files.items(), key=lambda pair: -pair[1][1]), ("all", total)]:
            terminalreporter.line(f"| {name} | {row[0]} | {row[1]:.1f} | {row[2]:.1f} | {row[3]} |")


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Table())
