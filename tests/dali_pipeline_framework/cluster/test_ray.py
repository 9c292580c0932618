"""Loading in a Ray cluster: the same stream, whatever happens to actors. All tests share one cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

HERE = Path(__file__).parent
LIMIT_S = 280.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class RayRuns:
    """The process with the cluster: it runs what it is asked for, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "home").mkdir()
        self._results, self._log = folder / "results", folder / "log"
        self._results.touch()
        path = [str(HERE), str(HERE.parents[1]), str(HERE.parents[2]), *sys.path]
        environment = {
            **os.environ,
            "HOME": str(folder / "home"),
            "RAY_TMPDIR": str(folder),
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
        }
        command = [sys.executable, str(HERE / "ray_runs.py"), str(folder / "ray"), str(self._results)]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        self._num_read = 0

    def __call__(self, name: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, arguments]).encode() + b"\n")
        self._process.stdin.flush()
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            lines = self._results.read_text().splitlines(keepends=True)[self._num_read :]
            if lines and lines[0].endswith("\n"):
                self._num_read += 1
                answer = json.loads(lines[0])
                assert answer["name"] == name
                assert "error" not in answer, answer["error"]
                return answer["result"]
            time.sleep(0.02)
        raise AssertionError(f"{name} has no result. {self._log.read_text()[-4000:]}")

    def close(self) -> None:
        """Kill the process, and all that belongs to it: what has the folder in its environment or command line."""
        mark = str(self._folder)
        for _ in range(100):
            found = [process for process in psutil.process_iter() if _has(process, mark)]
            if not found:
                break
            for process in found:
                process.kill()
            psutil.wait_procs(found, timeout=1)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


def _has(process: psutil.Process, mark: str) -> bool:
    try:
        known = [*process.cmdline(), *process.environ().values()]
        return any(mark in text for text in known) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


@pytest.fixture(scope="module")
def ray_runs() -> Iterator[RayRuns]:
    pytest.importorskip("ray")
    # Paths of sockets have at most 107 bytes; folders of pytest are too deep where tests run in parallel.
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        runs = RayRuns(Path(folder))
        try:
            yield runs
        finally:
            runs.close()


@pytest.mark.parametrize("num_actors", [3, *(pytest.param(count, marks=pytest.mark.wide) for count in (1, 2))])
def test_stream_is_that_of_worker_processes_in_all_orders(ray_runs: RayRuns, num_actors: int) -> None:
    assert ray_runs("same_stream_in_all_orders", num_actors=num_actors) == []


def test_state_goes_from_processes_to_actors_and_back(ray_runs: RayRuns) -> None:
    assert ray_runs("state_from_here_to_there_and_back")


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.wide)])
def test_actors_that_are_killed_or_stopped_lose_nothing(ray_runs: RayRuns, how: signal.Signals) -> None:
    result = ray_runs("killed_again_and_again", num_actors=3, every=40, how=int(how))
    assert result["same"]
    assert result["killed"] == result["replaced"] == 3
