"""Workers and shared memory of pipelines go when they are not needed any more."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from support.child_processes import communicate
from support.pipelines import indices, make_iterator, shuffled, worker_pids
from support.providers import FaultyProvider, IndexProvider, NumberProvider
from support.refusals import assert_refused
from support.scripts import Script, start_script
from support.start_methods import START_METHODS

from accvlab.dali_pipeline_framework.errors import ClosedError
from accvlab.dali_pipeline_framework.pipeline import DALIStructuredOutputIterator, PipelineDefinition


def shared_memory_kib() -> int:
    """Size of the shared memory for data that this process maps; semaphores go with the objects."""
    total = 0
    for line in Path(f"/proc/{os.getpid()}/maps").read_text().splitlines():
        if "/dev/shm/nvidia_dali" in line or "memfd:" in line:
            start, end = (int(address, 16) for address in line.split()[0].split("-"))
            total += (end - start) // 1024
    return total


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not (is_met := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return is_met


@pytest.mark.parametrize("method", START_METHODS)
def test_close_ends_workers_and_leaves_nothing_behind(method: str) -> None:
    def once(memory_before: int) -> None:
        iterator = make_iterator(shuffled(NumberProvider()), py_num_workers=2, py_start_method=method)
        held = next(iter(iterator))
        assert len(worker_pids()) == 2
        assert shared_memory_kib() > memory_before + 1000
        iterator.close()
        assert worker_pids() == []
        assert held["index"].tolist() == [0, 1, 2, 3]  # what was delivered stays
        assert held["cameras"][1]["gain"].tolist() == [0.5, 1.5, 2.5, 3.5]
        iterator.close()

    once(0)  # the fork server has open files of its own
    gc.collect()
    files, memory = psutil.Process().num_fds(), shared_memory_kib()
    for _ in range(3):
        once(memory)
    gc.collect()
    assert shared_memory_kib() <= memory
    assert psutil.Process().num_fds() <= files + 1


def test_deleting_the_iterator_ends_the_workers_though_the_pipeline_is_held() -> None:
    pipeline = PipelineDefinition(shuffled(IndexProvider())).get_dali_pipeline(py_num_workers=2)
    first, second = (DALIStructuredOutputIterator(None, pipeline, output_type="numpy") for _ in range(2))
    next(iter(first))
    del first
    gc.collect()
    assert len(worker_pids()) == 2  # there is another iterator over the pipeline
    del second
    gc.collect()
    assert worker_pids() == []
    assert_refused(pipeline.run, "together with the last iterator over it", ClosedError)


def test_what_is_closed_says_so() -> None:
    pipeline = PipelineDefinition(shuffled(IndexProvider())).get_dali_pipeline(py_num_workers=0)
    pipeline.run()
    pipeline.build()  # again, which does nothing
    pipeline.close()
    for use in (pipeline.build, pipeline.run, pipeline.schedule_run):
        assert_refused(use, "The pipeline was closed", ClosedError)
    iterator = make_iterator(shuffled(IndexProvider()), py_num_workers=2)
    epoch = iter(iterator)
    iterator.close()
    for use in (lambda: next(epoch), lambda: iter(iterator), iterator.reset):
        assert_refused(use, "was closed", ClosedError)


def test_after_a_failure_the_workers_are_gone_though_the_error_is_held() -> None:
    iterator = make_iterator(shuffled(FaultyProvider("value_error")), py_num_workers=2)
    with pytest.raises(ValueError, match="calibration") as caught:
        indices(iterator)
    assert wait_until(lambda: worker_pids() == [])
    assert caught.value is not None


@contextlib.contextmanager
def running(tmp_path: Path, body: str) -> Iterator[Script]:
    """A script as the leader of a process group of its own; nothing of it is left behind."""
    path = tmp_path / "script.py"
    path.write_text(
        "import sys, time\nfrom support.pipelines import *\nfrom support.providers import *\n"
        "from support.samplers import EpochSampler\n"
        "from accvlab.dali_pipeline_framework.inputs import SamplerInputIterable\n"
        'if __name__ == "__main__":\n' + textwrap.indent(textwrap.dedent(body), "    ")
    )
    script = start_script(path, start_new_session=True)
    try:
        yield script
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(script.pid, signal.SIGKILL)
        script.communicate()


CALLABLE = "shuffled(SlowIndexProvider(10_000)), py_num_workers=2"
ITERABLE = "SamplerInputIterable(SlowIndexProvider(10_000), EpochSampler(10_000, 4))"
WAITS, READS = "while True: time.sleep(1)", "while True: next(epoch)"


@pytest.mark.parametrize(
    ("source", "method", "does", "ending"),
    [
        pytest.param(CALLABLE, "fork", "", 0, marks=pytest.mark.wide),
        pytest.param(CALLABLE, "fork", "raise RuntimeError", 1, marks=pytest.mark.wide),
        pytest.param(CALLABLE, "forkserver", "sys.exit(3)", 3, marks=pytest.mark.wide),
        pytest.param(CALLABLE, "spawn", "import torch", 0, marks=pytest.mark.wide),
        (CALLABLE, "fork", WAITS, -signal.SIGKILL),
        (ITERABLE, "fork", READS, -signal.SIGTERM),
        pytest.param(ITERABLE, "forkserver", WAITS, -signal.SIGKILL, marks=pytest.mark.wide),
        pytest.param(CALLABLE, "spawn", READS, -signal.SIGTERM, marks=pytest.mark.wide),
    ],
)
def test_workers_end_with_a_process_that_closes_nothing(
    source: str, method: str, does: str, ending: int, tmp_path: Path
) -> None:
    body = f"""
        epoch = iter(make_iterator({source}, py_start_method={method!r}))
        next(epoch)
        print(*worker_pids(), flush=True)
        {does}
    """
    with running(tmp_path, body) as script:
        pids = [int(pid) for pid in script.stdout.readline().split()]
        assert len(pids) == (1 if source is ITERABLE else 2)
        if ending < 0:
            script.send_signal(-ending)
        communicate(script, 100)
        assert script.returncode == ending
        assert wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids))


def test_ctrl_c_can_be_caught_and_the_iterator_closed(tmp_path: Path) -> None:
    body = f"""
        iterator = make_iterator({CALLABLE})
        try:
            for number, batch in enumerate(iterator):
                if number == 0:
                    print("started", flush=True)
        except KeyboardInterrupt:
            pass
        iterator.close()
        print("left:", worker_pids())
    """
    with running(tmp_path, body) as script:
        assert script.stdout.readline() == "started\n"
        time.sleep(0.3)
        os.killpg(script.pid, signal.SIGINT)
        stdout, stderr = communicate(script, 100)
        assert stdout == "left: []\n", stderr
        assert script.returncode == 0


def test_close_ends_workers_that_are_stopped() -> None:
    iterator = make_iterator(shuffled(IndexProvider(400)), py_num_workers=2)
    next(iter(iterator))
    for pid in worker_pids():
        os.kill(pid, signal.SIGSTOP)
    iterator.close()
    assert wait_until(lambda: worker_pids() == [])


def test_workers_outlive_the_thread_that_has_started_them() -> None:
    iterators = []
    thread = threading.Thread(
        target=lambda: iterators.append(make_iterator(shuffled(IndexProvider()), py_num_workers=2))
    )
    thread.start()
    thread.join()
    time.sleep(0.1)
    with iterators[0] as iterator:
        assert np.concatenate(indices(iterator)).tolist() == [*range(20)]
