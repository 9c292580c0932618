# SPDX-License-Identifier: Apache-2.0
"""Start and end of the worker processes of a pipeline, with errors that name the cause."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Iterator

from ..errors import SourcePicklingError, WorkerStartError
from ..sources.shards import num_cores_of_rank
from ..user_warnings import warn_user
from .control_block import ControlBlock
from .dali.texts import NO_SHARED_MEMORY, WORKERS_NOT_STARTED
from .source_pickling import without_missing_main_script
from .watching.pool import REMEDY, told_of_pool
from .watching.start_watch import StartWatch
from .watching.worker_watch import WorkerWatch, describe_exit_code, first_ended
from .worker_process import forked_children_are_workers

_one_start_at_a_time = threading.Lock()  # the environment belongs to the whole process
_ADVICE = (
    "What it printed on stderr says why. Frequent causes: a module that cannot be imported in the worker, too "
    "little memory."
)
_REPORT_PATH_VARIABLE = "DALI_PIPELINE_FRAMEWORK_START_REPORT"


@contextlib.contextmanager
def starting_workers(
    num_workers: int,
    watch: WorkerWatch,
    control: ControlBlock,
    limits: tuple[float | None, float | None] = (None, None),
) -> Iterator[None]:
    """Around the code by which DALI starts its workers.

    Args:
        num_workers: How many there are to start.
        watch: Begins to watch as soon as they run.
        control: What they share with this process.
        limits: ``blocked_after`` and ``stacks_after`` of a `FaultPolicy`.

    Raises:
        WorkerStartError: They could not be started; says why as far as a worker could tell.
    """
    refuse_while_main_script_is_imported()
    start_watch, mark = StartWatch(), f"{_REPORT_PATH_VARIABLE}={control.start_report_path}"
    try:
        with (
            _one_start_at_a_time,
            forked_children_are_workers(),
            _environment(_REPORT_PATH_VARIABLE, control.start_report_path),
            start_watch.watching(num_workers, mark, *limits),
            without_missing_main_script(),
            told_of_pool(watch.begin),
        ):
            yield
    except SourcePicklingError:
        raise
    except (RuntimeError, EOFError, OSError) as error:
        reason = control.read_start_report()
        if start_watch.waited_s is not None:
            raise WorkerStartError(
                f"The worker processes had not started after {start_watch.waited_s:g} s, and were ended. Does the "
                f"main script, which a spawned worker imports first, wait for something when it is imported?"
            ) from error
        if NO_SHARED_MEMORY in str(error):
            raise WorkerStartError(
                f"The memory in which workers hand over batches could not be had: {error} A limit of the system "
                f"may be too small (`ulimit -f`, `ulimit -v`). {REMEDY}."
            ) from error
        if not reason and WORKERS_NOT_STARTED not in str(error) and isinstance(error, RuntimeError):
            raise  # not about a worker, e.g. DALI's refusal to fork after CUDA was initialised
        what = "The worker processes could not be started. "
        if reason:
            raise WorkerStartError(what + reason) from None
        codes = first_ended(watch)
        ended = [f"process {pid} {describe_exit_code(code, watch.kernel_kills)}" for pid, code in codes.items()]
        was_killed = any(code < 0 for code in codes.values())
        advice = "" if was_killed else f" {_ADVICE}"
        text = f"{what}A worker ended while it was set up: {'; '.join(ended) or error}.{advice}"
        explained = WorkerStartError(text)
        explained.was_killed = was_killed
        raise explained from error


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
            # All write the same. The parent may read what the first one wrote: it must not be cut off by the next.
            report = os.open(report_path, os.O_WRONLY | os.O_CLOEXEC)
            os.write(report, message.encode())
            os._exit(1)
    raise WorkerStartError(message)


def warn_of_many_workers(num_workers: int, name: str) -> None:
    """Warn of more worker processes, given as an argument of that name, than this rank has usable cores."""
    num_cores = num_cores_of_rank()
    if num_workers > num_cores:
        warn_user(
            f"`{name}={num_workers}` starts {num_workers} worker processes, and this rank has {num_cores} usable "
            f"core{'s' * (num_cores > 1)}. Unless workers mostly wait for files or a network, they only slow each "
            f"other down, and each takes time to start and memory. Give {num_cores} or fewer, or let a "
            f"DataLoader choose by num_workers='auto'."
        )


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


def _renew_lock() -> None:
    """In a forked worker, which is started while the lock is held: a data provider may use a loader itself."""
    global _one_start_at_a_time
    _one_start_at_a_time = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
