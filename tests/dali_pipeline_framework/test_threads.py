"""Calls in threads of their own."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from accvlab.dali_pipeline_framework.threads import called_in_thread


def test_results_and_errors_come_back() -> None:
    assert called_in_thread(lambda: threading.current_thread().name, "a name").result() == "a name"
    with pytest.raises(ZeroDivisionError):
        called_in_thread(lambda: 1 // 0, "fails", 1 << 20).result()


def test_calls_at_the_same_time_leave_the_size_of_other_stacks_as_it_was() -> None:
    before, interval = threading.stack_size(), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as callers:
            calls = [callers.submit(called_in_thread, int, "large stack", 1 << 26) for _ in range(400)]
        assert [call.result().result() for call in calls] == [0] * 400
        assert threading.stack_size() == before
    finally:
        sys.setswitchinterval(interval)
        threading.stack_size(before)
