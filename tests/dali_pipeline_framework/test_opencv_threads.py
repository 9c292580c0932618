"""OpenCV computes in one thread while steps work on arrays, also in the main process."""

import os
import sys
import textwrap
import threading

import cv2
import numpy as np
import pytest
from support.arrays import DT, ArrayProvider
from support.child_processes import run_process

from accvlab.dali_pipeline_framework import DataLoader, MapStep
from accvlab.dali_pipeline_framework.threads import OneThreadOfOpenCv

MANY = 8


@pytest.fixture(autouse=True)
def _many_threads():
    before = cv2.getNumThreads()
    cv2.setNumThreads(MANY)
    yield
    cv2.setNumThreads(before)


def with_count(data: np.ndarray) -> np.ndarray:
    return data + np.int32(cv2.getNumThreads())


@pytest.mark.parametrize("num_workers", [0, 1])
def test_steps_have_one_wherever_they_run(num_workers):
    provider = ArrayProvider({"data": (DT.INT32, [np.full((3,), 10 * number, np.int32) for number in range(4)])})
    step = MapStep(with_count, input_names="data")
    with DataLoader(
        provider, 2, steps=[step], num_workers=num_workers, start_method="fork", output_type="numpy"
    ) as loader:
        values = [batch["data"].tolist() for batch in loader]
    assert values == [[[1] * 3, [11] * 3], [[21] * 3, [31] * 3]]
    assert cv2.getNumThreads() == MANY


def test_the_others_are_back_after_an_error():
    with pytest.raises(ZeroDivisionError), OneThreadOfOpenCv():
        1 / (cv2.getNumThreads() - 1)  # 1 / 0
    assert cv2.getNumThreads() == MANY


def test_one_within_another_and_from_several_threads():
    seen, is_in, may_end = [], threading.Event(), threading.Event()

    def other():
        with OneThreadOfOpenCv():
            is_in.set()
            may_end.wait(30)
            seen.append(cv2.getNumThreads())

    thread = threading.Thread(target=other)
    with OneThreadOfOpenCv():
        thread.start()
        is_in.wait(30)
        with OneThreadOfOpenCv():
            pass
        seen.append(cv2.getNumThreads())
    seen.append(cv2.getNumThreads())  # the other one is not done
    may_end.set()
    thread.join(30)
    assert [*seen, cv2.getNumThreads()] == [1, 1, 1, MANY]


def test_a_process_forked_meanwhile_begins_anew():
    with OneThreadOfOpenCv():
        if not (child := os.fork()):
            cv2.setNumThreads(0)
            with OneThreadOfOpenCv():
                pass
            os._exit(cv2.getNumThreads())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_opencv_that_is_imported_by_a_step_has_one_too():
    script = """
        import sys
        from accvlab.dali_pipeline_framework.threads import OneThreadOfOpenCv
        from accvlab.dali_pipeline_framework.operators.array_packages import needed_package

        assert "cv2" not in sys.modules
        with OneThreadOfOpenCv():
            inside = needed_package("cv2").getNumThreads()
        sys.exit(10 * inside + (sys.modules["cv2"].getNumThreads() > 1))
    """
    environment = {**os.environ, "OPENCV_FOR_THREADS_NUM": "4"}
    run = run_process([sys.executable, "-c", textwrap.dedent(script)], timeout=60, env=environment)
    assert run.returncode == 11
