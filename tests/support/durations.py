"""A plug-in of pytest that writes what each file of tests takes, by which `tests/conftest.py` orders them:

    python -m pytest -p support.durations

Seconds of processor time, of the test's process and of all below it: other work on the machine changes little.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

from support.child_processes import processor_seconds

LIST = Path(__file__).parents[1] / "durations.txt"
_NAME = "processor_s"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_START] = processor_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    now = processor_seconds()
    report.user_properties.append((_NAME, now - item.stash[_START]))
    item.stash[_START] = now
    return report


_START = pytest.StashKey[float]()


def pytest_configure(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(_Sums(config.rootpath))


class _Sums:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.partition("::")[0]
        self._seconds[name] += sum(value for key, value in report.user_properties if key == _NAME)

    def pytest_sessionfinish(self) -> None:
        lines = [f"{seconds:6.1f} {name}\n" for name, seconds in self._seconds.items()]
        LIST.write_text("".join(sorted(lines, reverse=True)))
