"""A plug-in of pytest that writes what each file of tests takes, by which `tests/conftest.py` orders them:

    python -m pytest --wide -p support.durations

Seconds from the start to the end of each test, with its set-up.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import pytest

LIST = Path(__file__).parents[1] / "durations.txt"


def pytest_configure(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(_Sums())


class _Sums:
    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        lines = [f"{seconds:6.1f} {name}\n" for name, seconds in self._seconds.items()]
        LIST.write_text("".join(sorted(lines, reverse=True)))
