# SPDX-License-Identifier: Apache-2.0
"""Start and end of the worker processes of a pipeline, with errors that name the cause."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..errors import SourcePicklingError, WorkerStartError
from .control_block import ControlBlock
from .dali.texts import WORKERS_NOT_STARTED
from .worker_process import forked_children_are_workers

_one_start_at_a_time = threading.Lock()  # the environment belongs to the whole process
_REPORT_PATH_VARIABLE = "DALI_PIPELINE_FRAMEWORK_START_REPORT"

_LONGEST_HOLD_S = 1.0  # workers hold the locks of the queues for micro- to milliseconds
_MOST_TRIES = 4

_SIGNAL_HINTS = {
    "SIGKILL": "often because memory ran out: use fewer workers or a smaller prefetch_queue_depth",
    "SIGBUS": "usually because /dev/shm is too small, as in a container: raise it (docker: --shm-size)",
    "SIGSEGV": "a crash in native code that the data provider uses",
}


@contextlib.contextmanager
def starting_workers(control: ControlBlock) -> Iterator[None]:
    """Around the code by which DALI starts its workers.

    Raises:
        WorkerStartError: They could not be started; says why as far as a worker could tell.
    """
    refuse_while_main_script_is_imported()
    try:
        with (
            _one_start_at_a_time,
            forked_children_are_workers(),
            _environment(_REPORT_PATH_VARIABLE, control.start_report_path),
        ):
            yield
    except SourcePicklingError:
        raise
    except (RuntimeError, EOFError, OSError) as error:
        reason = control.read_start_report()
        if not reason and WORKERS_NOT_STARTED not in str(error) and isinstance(error, RuntimeError):
            raise  # not about a worker, e.g. DALI's refusal to fork after CUDA was initialised
        what = "The worker processes could not be started. "
        if reason:
            raise WorkerStartError(what + reason) from None
        raise WorkerStartError(
            f"{what}A worker ended while it was set up ({error}); what it printed on stderr says why. Frequent "
            f"causes: a module that cannot be imported in the worker, too little memory."
        ) from error


def refuse_while_main_script_is_imported() -> None:
    """Refuse to start workers in a process that is itself a worker and only imports the main script yet.

    A worker of a pipeline reports it to its parent, which raises the error, and ends at once: a traceback of each
    worker would bury the message, and code of the main script might catch an exception and go on.
    """
    if not getattr(multiprocessing.current_process(), "_inheriting", False):
        return
    message = (
        "The main script starts worker processes when it is imported. A spawned worker imports the main script "
        "first, so each worker would start workers of its own. Put the part of the script that runs things "
        'under a guard:\n\n    if __name__ == "__main__":\n        main()\n'
    )
    report_path = os.environ.get(_REPORT_PATH_VARIABLE)
    if report_path is not None:
        with contextlib.suppress(OSError):
            with open(report_path, "w") as report:
                report.write(message)
            os._exit(1)
    raise WorkerStartError(message)


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    previous = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if previous is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = previous


# --- workers that die ---------------------------------------------------------------------------------


def watch_workers(pool: Any) -> None:
    """Watch the workers of a pool, and release the locks of one that is killed.

    Results and tasks travel through queues in shared memory with a lock each. A worker that is killed while
    it holds one never gives it back, and whoever waits for it, in DALI and in the main thread, waits for ever.

    Args:
        pool: DALI's pool of worker processes (``WorkerPool.pool``), started.
    """
    threading.Thread(target=_watch, args=(pool,), daemon=True, name="worker watch").start()


def queues_of(pool: Any) -> list[Any]:
    """The queues between a pool's workers and the main process."""
    dedicated = [worker.dedicated_task_queue for worker in pool._workers_contexts]
    return [queue for queue in (pool._result_queue, pool._general_task_queue, *dedicated) if queue is not None]


def _watch(pool: Any) -> None:
    processes, queues = list(pool._processes), queues_of(pool)
    del pool
    from multiprocessing import connection

    connection.wait([process.sentinel for process in processes])
    for queue in queues:
        for _ in range(_MOST_TRIES):
            if queue.lock.acquire(timeout=_LONGEST_HOLD_S):
                queue.lock.release()
                break
            _free(queue)


def _free(queue: Any) -> None:
    woken: Any = queue.cv_not_empty._woken_count
    if queue.lock._semlock._count() > 0:
        # This process holds the lock, and waits for the one that it has woken to say so: for a dead worker.
        woken.release()
        return
    # A dead worker holds it; most probably it waited for the main thread, which it had woken, to say so. The main
    # thread has said so by now, and what nobody has heard would confuse the next one who wakes somebody.
    while woken.acquire(False):
        pass
    # Python's own `release` would count as one of this process, which has not acquired it.
    ctypes.CDLL(None).sem_post(ctypes.c_void_p(queue.lock._semlock.handle))


def describe_dead_workers(exit_codes: Mapping[int, int], describe_work: Callable[[int], str]) -> str:
    """Say which workers ended how.

    Args:
        exit_codes: Exit codes by process id; a negative one stands for a signal.
        describe_work: Says what a process was at when it ended (empty: not known).
    """
    # As soon as one worker is gone, the others are terminated.
    suspects = {pid: code for pid, code in exit_codes.items() if code != -signal.SIGTERM} or exit_codes
    dead = "; ".join(
        f"process {pid} {_describe_exit_code(code)}{describe_work(pid)}" for pid, code in suspects.items()
    )
    return f"A worker process that loads data ended unexpectedly: {dead or 'the cause is not known'}."


def _describe_exit_code(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        return f"was ended by signal {-code}"
    hint = f" ({_SIGNAL_HINTS[name]})" if name in _SIGNAL_HINTS else ""
    return f"was ended by {name}{hint}"
