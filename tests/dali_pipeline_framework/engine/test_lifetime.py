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
from support.laws import each_value
from support.pipelines import indices, make_iterator, shuffled, worker_pids
from support.providers import FaultyProvider, IndexProvider, NumberProvider
from support.refusals import assert_refused
from support.scripts import Script, start_script
from support.start_methods import FORKED, START_METHODS

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
def test_close_ends_workers(method: str) -> None:
    if method == "forkserver":
        make_iterator(shuffled(NumberProvider()), py_start_method=method).close()  # it has open files of its own
    gc.collect()
    memory_before = shared_memory_kib()
    num_files_before = psutil.Process().num_fds()
    iterator = make_iterator(shuffled(NumberProvider()), py_num_workers=2, py_start_method=method)
    held = next(iter(iterator))
    assert len(worker_pids()) == 2
    assert shared_memory_kib() > memory_before + 1000
    iterator.close()
    assert worker_pids() == []
    assert held["index"].tolist() == [0, 1, 2, 3]  # what was delivered stays
    assert held["cameras"][1]["gain"].tolist() == [0.5, 1.5, 2.5, 3.5]
    iterator.close()
    del iterator, held
    gc.collect()
    assert shared_memory_kib() <= memory_before
    assert psutil.Process().num_fds() <= num_files_before + 1


def test_many_pipelines_leave_nothing_behind() -> None:
    def once() -> None:
        with make_iterator(shuffled(IndexProvider()), py_num_workers=2, py_start_method="fork") as iterator:
            indices(iterator, 2)

    once()
    gc.collect()
    files, memory = psutil.Process().num_fds(), shared_memory_kib()
    for _ in range(5):
        once()
    gc.collect()
    assert psutil.Process().num_fds() <= files
    assert shared_memory_kib() <= memory


@pytest.mark.parametrize("method", FORKED)
def test_deleting_the_iterator_ends_the_workers_though_the_pipeline_is_held(method: str) -> None:
    pipeline = PipelineDefinition(shuffled(IndexProvider())).get_dali_pipeline(
        py_num_workers=2, py_start_method=method
    )
    first = DALIStructuredOutputIterator(None, pipeline, output_type="numpy")
    second = DALIStructuredOutputIterator(None, pipeline, output_type="numpy")
    next(iter(first))
    del first
    gc.collect()
    assert len(worker_pids()) == 2  # there is another iterator over the pipeline
    del second
    gc.collect()
    assert worker_pids() == []
    with pytest.raises(ClosedError, match="together with the last iterator over it"):
        pipeline.run()


def test_a_closed_pipeline_says_so() -> None:
    pipeline = PipelineDefinition(shuffled(IndexProvider())).get_dali_pipeline(py_num_workers=0)
    pipeline.run()
    pipeline.build()  # again, which does nothing
    pipeline.close()
    for use in (pipeline.build, pipeline.run, pipeline.schedule_run):
        assert_refused(use, "The pipeline was closed", ClosedError)


def test_a_closed_iterator_says_so() -> None:
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


@pytest.fixture
def run_script(tmp_path: Path) -> Iterator[Callable[[str], Script]]:
    """Starts a script as the leader of a process group of its own; nothing of it is left after the test."""
    scripts: list[Script] = []

    def run(body: str) -> Script:
        scripts.append(started(tmp_path, body))
        return scripts[-1]

    yield run
    for script in scripts:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(script.pid, signal.SIGKILL)
        script.communicate()


def started(tmp_path: Path, body: str) -> Script:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom support.pipelines import *\nfrom support.providers import *\n"
        'if __name__ == "__main__":\n' + textwrap.indent(textwrap.dedent(body), "    ")
    )
    return start_script(script, start_new_session=True)


ENDINGS = {"": 0, "raise RuntimeError": 1, "sys.exit(3)": 3, "import torch": 0}
QUICK = {("fork", ""), ("fork", "raise RuntimeError"), ("forkserver", "sys.exit(3)")}


@pytest.mark.parametrize(
    ("method", "what"),
    [
        pytest.param(method, what, marks=() if (method, what) in QUICK else pytest.mark.wide)
        for method in ("fork", "spawn", "forkserver")
        for what in ENDINGS
    ],
)
def test_a_script_that_closes_nothing_ends(method: str, what: str, run_script: Callable[[str], Script]) -> None:
    script = run_script(
        f"""
        iterator = make_iterator(shuffled(IndexProvider()), py_num_workers=2, py_start_method={method!r})
        for batch in iterator:
            break
        print(*worker_pids())
        {what}
        """
    )
    stdout, _ = communicate(script, 100)
    assert script.returncode == ENDINGS[what]
    pids = [int(pid) for pid in stdout.split()]
    assert len(pids) == 2
    assert wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids))


@pytest.mark.parametrize("method", FORKED)
def test_close_ends_workers_that_are_stopped(method: str) -> None:
    iterator = make_iterator(shuffled(IndexProvider(400)), py_num_workers=2, py_start_method=method)
    next(iter(iterator))
    for pid in worker_pids():
        os.kill(pid, signal.SIGSTOP)
    iterator.close()
    assert wait_until(lambda: worker_pids() == [])


SOURCES = {
    "callable": "shuffled(SlowIndexProvider(10_000)), py_num_workers=2",
    "iterable": "SamplerInputIterable(SlowIndexProvider(10_000), EpochSampler(10_000, 4))",
}


@each_value(method=FORKED, kind=SOURCES, does=["time.sleep(1)", "next(epoch)"], number=["SIGKILL", "SIGTERM"])
def test_workers_end_with_a_process_that_is_killed(
    method: str, kind: str, does: str, number: str, run_script: Callable[[str], Script]
) -> None:
    script = run_script(
        f"""
        from support.samplers import EpochSampler
        from accvlab.dali_pipeline_framework.inputs import SamplerInputIterable
        epoch = iter(make_iterator({SOURCES[kind]}, py_start_method={method!r}))
        next(epoch)
        print(*worker_pids())
        while True:
            {does}
        """
    )
    pids = [int(pid) for pid in script.stdout.readline().split()]
    assert pids
    script.send_signal(getattr(signal, number))
    communicate(script, 100)
    assert wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids))


@pytest.mark.parametrize("method", FORKED)
def test_workers_outlive_the_thread_that_has_started_them(method: str) -> None:
    iterators = []

    def start() -> None:
        iterators.append(make_iterator(shuffled(IndexProvider()), py_num_workers=2, py_start_method=method))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    time.sleep(0.1)
    with iterators[0] as iterator:
        assert np.concatenate(indices(iterator)).tolist() == [*range(20)]


def test_ctrl_c_can_be_caught_and_the_iterator_closed(run_script: Callable[[str], Script]) -> None:
    script = run_script(
        """
        iterator = make_iterator(shuffled(SlowIndexProvider(10_000)), py_num_workers=2)
        try:
            for number, batch in enumerate(iterator):
                if number == 0:
                    print("started")
        except KeyboardInterrupt:
            pass
        try:
            next(iter(iterator))
        except Exception as error:
            print(type(error).__name__)
        else:
            print("goes on")
        iterator.close()
        print("left:", worker_pids())
        """
    )
    assert script.stdout.readline() == "started\n"
    time.sleep(0.3)
    os.killpg(script.pid, signal.SIGINT)
    stdout, stderr = communicate(script, 100)
    assert stdout in ("ClosedError\nleft: []\n", "goes on\nleft: []\n"), stderr
    assert script.returncode == 0
