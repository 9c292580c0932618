# SPDX-License-Identifier: Apache-2.0
"""A thread that watches the workers of a pipeline: those that die, that are blocked, and that do not end.

It runs from the moment on at which the processes do: one may be killed before it has reported that it has started.
DALI notices that a worker has ended, and then ends the others. It does not notice that one is blocked; and it
waits indefinitely for locks that dead workers held, and for workers that do not end on request::

    watching ──── a worker ends ────> no more tasks; locks are released ──┐
       │  │                                                               ├─> those that live after 2 s are killed
       │  └────── the pipeline is closed ─────────────────────────────────┘
       └─ every second: a worker stands still ──> it is killed;    no batch comes ──> stacks are logged
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Mapping
from multiprocessing import connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nvidia.dali import types

from ...errors import WorkerDiedError
from ...sources.input_adapter import InputAdapter
from .pool import (
    LONGEST_HOLD_S,
    MOST_TRIES,
    TaskQueue,
    WorkerPool,
    describe_shared_memory,
    queues_of,
    release_locks,
)

if TYPE_CHECKING:
    from ..control_block import ControlBlock

_LESS_MEMORY = "use fewer workers or a smaller prefetch_queue_depth"


def counts_of_kernel() -> dict[str, int]:
    """How many processes were ended because memory ran out: in the control group of this one, and in all."""
    files = [("/proc/vmstat", "oom_kill in /proc/vmstat")]
    try:
        groups = os.fsdecode(Path("/proc/self/cgroup").read_bytes()).split("\n")[:-1]
    except OSError:
        groups = []
    for group in groups:
        number, controllers, path = group.split(":", 2)
        if number == "0":
            files.append((f"/sys/fs/cgroup{path}/memory.events", "oom_kill of its control group"))
        elif "memory" in controllers.split(","):
            files.append((f"/sys/fs/cgroup/memory{path}/memory.oom_control", "oom_kill of its control group"))
    counts: dict[str, int] = {}
    for file, name in reversed(files):
        try:
            lines = Path(file).read_text().splitlines()
        except OSError:
            continue
        counts.update((name, int(line.split()[1])) for line in lines if line.startswith("oom_kill "))
    return counts


def _describe_kills(before: Mapping[str, int]) -> str:
    """Say, for messages about a worker that got SIGKILL, what the kernel has counted since."""
    now = counts_of_kernel()
    grown = [name for name, count in now.items() if count > before.get(name, count)]
    if grown:
        return f"because memory ran out, which the kernel has counted in {grown[0]}: {_LESS_MEMORY}"
    doubt = "; but the kernel has not counted that, so somebody may have sent the signal" if now else ""
    return f"often because memory ran out: {_LESS_MEMORY}{doubt}"


_SIGNAL = signal.SIGRTMAX - 4  # neither PyTorch, nor OpenMP, nor any debugger uses it
_LONGEST_WAIT_S = 1.0
_POLL_S = 0.02

_STATES = {
    "R": "it computes",
    "S": "it sleeps",
    "D": "it waits for a disk or a network file system",
    "T": "it was stopped by a signal",
    "t": "it was stopped by a debugger",
    "Z": "it has ended",
}

_answering_pid: int | None = None


def answer_requests(path: str) -> None:
    """Have this worker process write its stacks to a file on request, whatever it does then.

    The signal is handled without Python, so it works while C code holds the interpreter's lock.

    Args:
        path: The file; several processes may write to it.
    """
    global _answering_pid
    if _answering_pid == os.getpid():
        return
    _answering_pid = os.getpid()
    with contextlib.suppress(OSError, RuntimeError):  # it only helps people
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        faulthandler.register(_SIGNAL, file=file, all_threads=True)


def _stack_of(pid: int, path: str) -> str:
    if not _answers(pid):
        return ""
    try:
        os.truncate(path, 0)
        os.kill(pid, _SIGNAL)
        deadline, last = time.monotonic() + _LONGEST_WAIT_S, b""
        while time.monotonic() < deadline:
            time.sleep(_POLL_S)
            text = Path(path).read_bytes()
            if text and text == last:
                break
            last = text
    except OSError:  # it has ended, or the pipeline was closed
        return ""
    return last.decode(errors="replace").rstrip()


def _answers(pid: int) -> bool:
    """Whether a process handles the signal: one that does not would be ended by it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_bytes().splitlines()
    except OSError:
        return False
    caught = next((line.split()[1] for line in lines if line.startswith(b"SigCgt:")), b"0")
    return bool(int(caught, 16) >> (_SIGNAL - 1) & 1)


def state_of(pid: int) -> str:
    """What the kernel says about a process, in words."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return _STATES["Z"]
    return _STATES.get(state, f"its state is {state}")


def stack_of_main_thread() -> str:
    """What the main thread of this process executes."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return "" if frame is None else "".join(traceback.format_stack(frame)).rstrip()


_logger = logging.getLogger(__name__)

_SHORT_S = 0.05  # the main thread needs that to wake up
_GRACE_S = 2.0  # for workers that were requested to end
_LONGEST_TICK_S = 1.0
_TICKS = 10  # within the shortest time that is watched for
_CLOSE, _LIMIT = b"c", b"l"


class WorkerWatch:
    """Watches the workers of a pipeline, from their start to their end, in a thread of its own.

    Attributes:
        waiting_since: Since when the loop waits for a batch (`time.monotonic`); None where it does not.
        kernel_counts: What the kernel had counted at the start.
        killed: Processes that were ended here because they were blocked: for how long, in seconds.
    """

    def __init__(self, control: ControlBlock, describe_work: Callable[[int], str]) -> None:
        """Watch for nothing yet.

        Args:
            control: What workers report.
            describe_work: Says what a process is at (empty: nothing that is known). A method of an object that may
                be gone before the workers are.
        """
        self.waiting_since: float | None = None
        self.killed: dict[int, float] = {}
        self._processes: list[Any] = []
        self._contexts: list[weakref.ref[Any]] = []
        self._queues: list[TaskQueue] = []
        self._not_ended: set[int] = set()  # when that was requested
        self._control = control
        self._describe_work = weakref.WeakMethod(describe_work)
        self._blocked_after: float | None = None
        self._stacks_after: float | None = None
        self.kernel_counts = counts_of_kernel()
        self._idle_since: float | None = None  # since when no worker loads, though the loop waits
        self._reported = (0.0, 0.0)  # the wait that was reported last, and how long it had lasted
        self._looked_at = self._awake_since = time.monotonic()
        self._wake = self._waker = -1
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def begin(self, pool: WorkerPool) -> None:
        """Begin to watch.

        Args:
            pool: DALI's pool of processes (`ProcPool`), which run, but may not have reported yet.
        """
        self._processes, self._queues = list(pool._processes), queues_of(pool)
        self._start()

    def count_batches(self, contexts: list[Any]) -> None:
        """Count the batches that are requested from workers.

        Args:
            contexts: What DALI keeps of each input (`WorkerPool.contexts`).
        """
        self._contexts = [weakref.ref(context) for context in contexts]

    def exit_codes(self, within_s: float) -> dict[int, int]:
        """How the processes have ended that were not killed when others had: once all have, or after a time."""
        deadline = time.monotonic() + within_s
        while any(process.exitcode is None for process in self._processes) and time.monotonic() < deadline:
            time.sleep(0.01)
        codes = {process.pid: process.exitcode for process in self._processes if process.exitcode is not None}
        return {pid: code for pid, code in codes.items() if pid not in self._not_ended}

    def _start(self) -> None:
        self._wake, self._waker = os.pipe()
        threading.Thread(target=self._watch, daemon=True, name="worker watch").start()

    def limit(self, blocked_after: float | None, stacks_after: float | None) -> None:
        """Watch for workers that are blocked.

        Args:
            blocked_after: Seconds after which a worker that loads one sample, or is in one stage of its set-up, is
                killed; None: never.
            stacks_after: Seconds of waiting for a batch after which the stacks are logged; None: never.
        """
        self._blocked_after, self._stacks_after = blocked_after, stacks_after
        if self._processes:
            self._wake_up(_LIMIT)
        elif stacks_after is not None:
            self._start()

    def close(self) -> None:
        """Note that the workers are requested to end: those that do not do so soon are killed."""
        if os.getpid() == self._pid:
            self._wake_up(_CLOSE)

    def _wake_up(self, what: bytes) -> None:
        with self._lock:
            if self._waker >= 0:
                os.write(self._waker, what)

    # --- the thread -------------------------------------------------------------------------------

    def _watch(self) -> None:
        try:
            is_fault = self._await_end()
            if is_fault:
                # To put a task into a queue, the main thread wakes a worker, and waits for it to say so:
                # indefinitely, where that was asleep when it died. So it may put no more.
                for queue in self._queues[1:]:
                    queue.is_closed = True
            self._await_workers()
            release_locks(self._queues)
            if is_fault:
                _wake_reader(self._queues[0])
        finally:
            with self._lock:
                os.close(self._waker)
                os.close(self._wake)
                self._waker = -1

    def _await_end(self) -> bool:
        """Watch until the pipeline is closed (returns False) or a worker has ended (returns True)."""
        sentinels = [process.sentinel for process in self._processes]
        while True:
            ready = connection.wait([*sentinels, self._wake], self._tick)
            if self._wake in ready:
                told = os.read(self._wake, 64)
                if _CLOSE in told:
                    return False
            elif ready:
                return True
            else:
                with contextlib.suppress(ValueError):  # the memory of the control block was given back
                    self._look()

    @property
    def _tick(self) -> float | None:
        limits = [limit for limit in (self._blocked_after, self._stacks_after) if limit is not None]
        return min(_LONGEST_TICK_S, min(limits) / _TICKS) if limits else None

    def _await_workers(self) -> None:
        """Wait until all workers have ended, and kill those that do not."""
        deadline = time.monotonic() + _GRACE_S
        left = {process.sentinel: process for process in self._processes}
        while left and time.monotonic() < deadline:
            for sentinel in connection.wait([*left], max(0.0, deadline - time.monotonic())):
                del left[sentinel]
        for process in left.values():
            self._not_ended.add(process.pid)
            process.kill()

    # --- standing still ---------------------------------------------------------------------------

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked_at > 2 * _LONGEST_TICK_S + 1.0:  # this process was stopped itself, and all with it
            self._awake_since = now
        self._looked_at = now
        waiting_since = self.waiting_since
        waited = 0.0 if waiting_since is None else self._age(waiting_since, now)
        if self._stacks_after is not None and waiting_since is not None:
            reported_of, reported_at = self._reported
            if waited >= (2 * reported_at if reported_of == waiting_since else self._stacks_after):
                self._reported = waiting_since, waited
                _logger.warning("%s", self.describe(waited))
        if self._blocked_after is not None:
            ages = self._ages(now)
            still = {pid: age for pid, age in ages.items() if age >= self._blocked_after}
            if ages or waiting_since is None:
                self._idle_since = None
            elif self._idle_since is None:
                self._idle_since = now
            idle = 0.0 if self._idle_since is None else self._age(self._idle_since, now)
            if min(idle, waited) >= self._blocked_after and (
                self._is_task_queue_held() or self._has_idle_workers_with_work()
            ):
                still = {process.pid: waited for process in self._processes}
            self.killed.update(still)
            for process in self._processes:
                if process.pid in still:
                    process.kill()

    def _age(self, since: float, now: float) -> float:
        return now - max(since, self._awake_since)

    def _ages(self, now: float) -> dict[int, float]:
        """For how long each process has been loading what it loads."""
        since = self._control.loading_since()
        own = {process.pid for process in self._processes}
        return {pid: self._age(start / 1e9, now) for pid, start in since.items() if pid in own}

    def _is_task_queue_held(self) -> bool:
        """Whether a queue of tasks is locked for long: by a worker, or by the main thread, which waits for one.

        To put a task, the main thread wakes a worker, and waits for its answer: indefinitely, where it is stopped.
        Results that came before are not taken meanwhile.
        """
        for queue in self._queues[1:]:
            if not queue.lock.acquire(timeout=LONGEST_HOLD_S):
                return True
            queue.lock.release()
        return False

    def _has_idle_workers_with_work(self) -> bool:
        """Whether batches are with the workers, though none of them loads anything, and none has arrived."""
        missing = sum(self._num_batches()[:1])
        if not missing:
            return False
        results = self._queues[0]
        if not results.lock.acquire(timeout=LONGEST_HOLD_S):
            return True
        try:
            results._read_meta()
            return bool(results.meta.size == 0)
        finally:
            results.lock.release()

    def _num_batches(self) -> tuple[int, int]:
        """How many batches requested from workers have not come, and how many have come and wait."""
        contexts = [context for context in (reference() for reference in self._contexts) if context is not None]
        asked = [(context, batch) for context in contexts for batch in list(context.scheduled_minibatches)]
        missing = 0
        for context, batch in asked:
            with contextlib.suppress(KeyError):  # it was handed on meanwhile
                missing += context.is_not_received(batch)
        return missing, len(asked) - missing

    def describe(self, waited: float) -> str:
        """Say what all processes are at."""
        lines = [f"No batch has come for {waited:.0f} s."]
        if self._processes:
            lines.append(
                "{} batches are with the workers, {} have come from them and wait.".format(*self._num_batches())
            )
        pids = [process.pid for process in self._processes]
        ages, describe_work = self._ages(time.monotonic()), self._describe_work()
        # One after the other: while a process writes its stacks, the file is its own.
        path = self._control.stacks_path
        stacks = {pid: _stack_of(pid, path) or f"  (no answer; {state_of(pid)})" for pid in pids}
        for pid in pids:
            work = "" if describe_work is None else describe_work(pid)
            told = (
                f"has been {work or 'loading a batch'} for {ages[pid]:.0f} s" if pid in ages else "loads nothing"
            )
            lines.append(f"Worker process {pid} {told} ({state_of(pid)}):\n{stacks[pid]}")
        lines.append(f"Main thread of process {os.getpid()}:\n{stack_of_main_thread()}")
        return "\n".join(lines)


def _wake_reader(queue: TaskQueue) -> None:
    """Wake the main thread, where it waits for results of a queue that DALI has closed.

    A worker that died after it had taken note of the one who waits, and before it woke it, has left nobody to be
    woken for DALI.
    """
    condition = queue.cv_not_empty
    for _ in range(MOST_TRIES):
        if queue.lock.acquire(timeout=LONGEST_HOLD_S):
            try:
                if queue.is_closed:
                    while condition._woken_count.acquire(False):
                        pass
                    condition._wait_semaphore.release()
                    if condition._woken_count.acquire(timeout=_SHORT_S):
                        return
                    condition._wait_semaphore.acquire(False)  # nobody waits, or not yet
            finally:
                queue.lock.release()
        time.sleep(_SHORT_S)


_LONGEST_END_S = 5.0

_SIGNAL_HINTS = {
    "SIGBUS": "usually because /dev/shm is too small, as in a container",
    "SIGSEGV": "a crash in native code that the data provider uses",
}


def worker_died_error(
    pool: WorkerPool, watch: WorkerWatch, control: ControlBlock, data_input: object, batch_size: int
) -> WorkerDiedError:
    """Make the error for workers that have ended.

    Args:
        pool: DALI's pool of workers (`WorkerPool`); None where there is none any more.
        watch: What has watched them.
        control: What they have reported.
        data_input: The user's input.
        batch_size: Samples per batch.
    """
    suspects = first_ended(watch)
    texts, all_loading = [], {}
    for pid, code in suspects.items():
        loading = control.find_loading(pid) if callable(data_input) else None
        stage = control.setups().get(pid)
        work = "" if stage is None else f", while it was {stage[0]} ({_name_of(data_input)})"
        if loading is not None and code != -signal.SIGBUS:  # that is not about a sample
            index = sample_index_at(data_input, loading, batch_size)
            work = f", while it loaded {describe_place(index, loading)}"
            all_loading[loading] = index
        if pid in watch.killed:
            how = f"was ended by the loader, since it stood still for {watch.killed[pid]:.1f} s"
        else:
            how = describe_exit_code(code, watch.kernel_counts, pool)
        texts.append(f"process {pid} {how}{work}")
    error = WorkerDiedError(
        f"A worker process that loads data ended unexpectedly: {'; '.join(texts) or 'the cause is not known'}."
    )
    error.loading = all_loading
    return error


def _name_of(data_input: object) -> str:
    planned = InputAdapter(data_input).planned
    return type(data_input if planned is None else planned.provider).__name__


def sample_index_at(data_input: object, place: tuple[int, int, int], batch_size: int) -> int | None:
    """Index in the data set of the sample at an epoch, batch and slot, as far as the input knows it."""
    epoch, batch, slot = place
    try:
        return InputAdapter(data_input).sample_index(
            types.SampleInfo(batch * batch_size + slot, slot, batch, epoch)
        )
    except Exception:  # only decorates another error
        return None


def describe_place(index: int | None, place: tuple[int, int, int]) -> str:
    """Name the sample at an epoch, batch and slot."""
    sample = "a sample" if index is None else f"sample {index}"
    return "{} (epoch {}, batch {}, slot {})".format(sample, *place)


def first_ended(watch: WorkerWatch) -> dict[int, int]:
    """Exit codes of the worker processes that have ended by themselves, or were killed by others than DALI.

    As soon as one worker is gone, DALI terminates the others, if they do not end by themselves before.
    """
    codes = watch.exit_codes(_LONGEST_END_S)
    not_first = ({-signal.SIGTERM, 0}, {-signal.SIGTERM}, set[int]())
    suspects = {pid: codes[pid] for pid in watch.killed if pid in codes}
    for ignored in not_first:
        suspects = suspects or {pid: code for pid, code in codes.items() if code not in ignored}
    return suspects


def describe_exit_code(code: int, kernel_counts: Mapping[str, int], pool: WorkerPool = None) -> str:
    """Say how a process ended: a negative code is a signal."""
    if code >= 0:
        hint = "" if code else " (it could not hand over what it has loaded; what it printed on stderr says why)"
        return f"exited with code {code}{hint}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        return f"was ended by signal {-code}"
    hint = _describe_kills(kernel_counts) if name == "SIGKILL" else _SIGNAL_HINTS.get(name, "")
    if name == "SIGBUS" and pool is not None:
        hint += describe_shared_memory(pool)
    return f"was ended by {name}{f' ({hint})' if hint else ''}"
