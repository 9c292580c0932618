"""Calls in threads of their own."""

from __future__ import annotations

import os
import threading

import pytest

from accvlab.dali_pipeline_framework.threads import called_in_thread, give_lock


def test_results_and_errors_come_back() -> None:
    assert called_in_thread(lambda: threading.current_thread().name, "a name").result() == "a name"
    with pytest.raises(ZeroDivisionError):
        called_in_thread(lambda: 1 // 0, "fails").result()


class Owner:
    """An object with a lock."""

    lock: threading.Lock


def test_a_forked_process_does_not_wait_for_a_thread_that_it_does_not_have() -> None:
    owner = Owner()
    give_lock(owner)
    is_held, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with owner.lock:
            is_held.set()
            may_end.wait()

    holding = called_in_thread(hold, "holds")
    is_held.wait()
    child = os.fork()
    if not child:
        os._exit(0 if owner.lock.acquire(blocking=False) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert not owner.lock.acquire(blocking=False)
    may_end.set()
    holding.result()
    assert owner.lock.acquire(blocking=False)
