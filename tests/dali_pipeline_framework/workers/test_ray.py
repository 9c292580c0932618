"""Loading in a Ray cluster: the same stream, whatever happens to actors. All tests share one cluster."""

from __future__ import annotations

import contextlib
import json
import os
import re
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

    def __call__(self, name: str, limit_s: float = LIMIT_S, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, arguments]).encode() + b"\n")
        self._process.stdin.flush()
        end = time.monotonic() + limit_s
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
                with contextlib.suppress(psutil.NoSuchProcess):
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


# Each actor takes two seconds of processor time.
FEW = ["streams, cut"]


@pytest.mark.wide
@pytest.mark.parametrize(("num_actors", "names"), [(2, FEW), (1, None), (3, FEW)])
def test_stream_is_that_of_worker_processes_in_all_orders(
    ray_runs: RayRuns, num_actors: int, names: list[str] | None
) -> None:
    assert ray_runs("same_stream_in_orders", num_actors=num_actors, names=names) == []


@pytest.mark.wide
def test_state_goes_from_processes_to_actors_and_back(ray_runs: RayRuns) -> None:
    assert ray_runs("state_from_here_to_there_and_back")


@pytest.mark.wide
@pytest.mark.timeout(400)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_actors_that_are_killed_or_stopped_lose_nothing(ray_runs: RayRuns, how: signal.Signals) -> None:
    settings = {"num_actors": 3, "every": 50, "how": int(how), "num_samples": 4000}
    result = ray_runs("killed_again_and_again", 380.0, **settings)
    assert result["same"]
    assert result["killed"] >= 11
    assert result["lost"] >= result["killed"] - 1  # one that was hit near the end may not be needed any more


SENT_TOO_LATE = (
    "Files are sent only when a process connects: give them to `ray.init(runtime_env=...)`, or to the first "
    "RayWorkers."
)


@pytest.mark.wide
def test_wrong_clusters_are_named(ray_runs: RayRuns) -> None:
    said = ray_runs("wrong_clusters")
    assert said["another address"].startswith("WorkerStartError soon: RayWorkers has the address '127.0.0.1:1'")
    assert said["another name"] == "nothing"
    assert said["sent too late"].startswith(
        "SettingError soon: Ray refuses `runtime_env={'py_modules': ['a_folder']}`: "
    )
    assert said["sent too late"].endswith(SENT_TOO_LATE)
    assert said["no environment"].startswith("SettingError soon: Ray refuses `runtime_env={'env_vars': 3}`: ")
    assert "num_cpus=64, and there are 1 machine(s) with 4 CPUs, of which 0 are free" in said["too few"]
    assert said["too few"].startswith("WorkerStartError soon: None of 1 actors has started within ")
    assert "num_cpus=1, and there are 1 machine(s) with 4 CPUs, of which 0 are free" in said["all held"]


@pytest.mark.wide
def test_what_cannot_be_sent_to_actors_is_named(ray_runs: RayRuns, tmp_path: Path) -> None:
    said = ray_runs("what_cannot_be_sent", folder=str(tmp_path))
    assert said["unpicklable"].startswith("SourcePicklingError soon: The input cannot be sent")
    assert "lock" in said["unpicklable"]
    assert "lack a module that this process has" in said["lacking"]
    assert "No module named 'only_here'" in said["lacking"]
    assert "runtime_env" in said["lacking"]
    assert said["given"] == "nothing"
    assert said["iterable"].startswith(
        "NotSupportedError soon: `workers` loads what is a function of the position"
    )


@pytest.mark.wide
def test_actors_with_other_versions_are_refused(ray_runs: RayRuns, tmp_path: Path) -> None:
    said = ray_runs("other_versions", folder=str(tmp_path))
    assert said.startswith("WorkerStartError soon: The actor on ")
    assert "cannot deliver the same bits as this process: simplejpeg: 0.0.1 there, " in said


@pytest.mark.wide
def test_a_store_without_room_is_named_and_one_that_others_fill_is_used(ray_runs: RayRuns) -> None:
    said = ray_runs("no_room_in_the_store")
    assert "OutputError soon: A batch takes " in said["batch"]
    assert "and the object store of this machine has 94 MB: there is no room for one." in said["batch"]
    assert said["input"].startswith("WorkerStartError soon: The input, when it is pickled, takes 94 MB, and the ")
    assert said["others"] == [[4 * batch + slot for slot in range(4)] for batch in range(10)]


@pytest.mark.wide
def test_batches_take_at_most_half_of_the_store(ray_runs: RayRuns) -> None:
    for found in ray_runs("large_batches", num_mb=4, batches_ahead=45):
        assert found["ahead"] <= 90 // 2 // 4
        assert found["in store"] <= 90 * 2**20 / 2
        assert found["lost"] == 0


def test_faults_are_handled_and_noted_as_with_worker_processes(ray_runs: RayRuns, tmp_path: Path) -> None:
    found = ray_runs("faults", folder=str(tmp_path))
    assert "Loading sample 2 failed with ValueError: calibration is missing" in found["raised"]
    assert f"actor 0 on {found['host']} (process " in found["raised"]
    stream, failed, samples = found["here"]
    assert failed
    assert found["there"] == [stream, failed, samples]


WANT = [list(range(first, first + 4)) for first in range(0, 80, 4)]
NAMED = "while it loaded sample 9 (epoch 0, batch 2, slot 1)."


@pytest.mark.wide
@pytest.mark.parametrize("blocks", [False, True])
def test_a_sample_that_ends_or_blocks_actors_is_replaced_as_with_worker_processes(
    ray_runs: RayRuns, blocks: bool
) -> None:
    found = ray_runs("a_sample_that_ends_actors", blocks=blocks, samples="replace", restarts=None)
    assert found["raised"] == []
    assert found["failed"] == [[9, 2, 1]]
    assert found["indices"][2].pop(1) != 9
    assert found["indices"] == [*WANT[:2], [8, 10, 11], *WANT[3:]]
    if blocks:
        (said, *_) = [text for text in found["stacks"] if "loading sample 9 (epoch 0, batch 2, slot 1)" in text]
        assert re.search(r"\(actor \d on \S+ \(process \d+\)\):\n(.*\n)*.*in get_data\n", said)


@pytest.mark.wide
@pytest.mark.parametrize("blocks", [False, True])
def test_a_sample_that_ends_or_blocks_actors_is_named_where_nothing_takes_its_place(
    ray_runs: RayRuns, blocks: bool
) -> None:
    found = ray_runs("a_sample_that_ends_actors", blocks=blocks, samples="raise", restarts=0)
    assert found["indices"] == [*WANT[:2], *WANT[3:]]
    first, second = found["raised"]
    assert ("stood still for " in first) == blocks
    assert first.endswith(NAMED)
    assert second.startswith("Sample 9 (epoch 0, batch 2, slot 1) has ended two workers that loaded it.")
    assert found["named"] == [[9], [9]]


@pytest.mark.wide
def test_machines_join_and_leave_within_an_epoch(ray_runs: RayRuns) -> None:
    found = ray_runs("a_machine_joins_and_leaves", num_samples=2400)
    assert found["same"]
    alone, joined, left = found["pids"]
    assert [len(alone), len(joined), len(left)] == [2, 4, 2]
    of_begin, of_middle, of_end = found["used"]
    assert set(of_begin) <= set(alone)
    assert of_middle == joined  # all of them load
    assert of_end == left == alone
    assert found["lost"] in (1, 2)  # actors that are lost together count once


@pytest.mark.wide
def test_a_connection_that_the_program_ends_is_named_and_the_loop_goes_on_with_another_one(
    ray_runs: RayRuns,
) -> None:
    found = ray_runs("a_connection_that_is_ended")
    ((num_batches, seconds, was_connected, said),) = found["said"]
    assert 3 <= num_batches <= 3 + 8
    assert seconds < 5
    assert not was_connected
    assert said.startswith("The connection of this process to the Ray cluster was ended (`ray.shutdown()`) ")
    assert "connect again" in said
    assert found["same"]
    assert found["lost"] == 0
    assert not found["connected"]


@pytest.mark.wide
@pytest.mark.timeout(400)
def test_workers_of_ray_train_stop_and_continue(ray_runs: RayRuns, tmp_path: Path) -> None:
    pytest.importorskip("pandas")  # which Ray Train needs
    assert ray_runs("ray_train", 380.0, folder=str(tmp_path)) == {"same": True, "batches": 8}
