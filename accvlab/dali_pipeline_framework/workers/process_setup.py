# SPDX-License-Identifier: Apache-2.0
"""Set-up of a worker process, with any start method: signals, end with the parent, random generators."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import os
import random
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np

from ..draws.keyed_draws import derive_key
from ..errors import FrameworkError

# Options of `mallopt`, from malloc.h of the GNU C library.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

_PR_SET_PDEATHSIG = 1  # from linux/prctl.h
# Looked up here: in a process that was just forked, another thread might have held the lock of the dynamic loader.
_prctl: Any = getattr(ctypes.CDLL(None), "prctl", None)

_prepared_pid: int | None = None


def prepare_worker_process(parent_pid: int) -> None:
    """Make this process a well-behaved worker of ``parent_pid``.

    - Ctrl-C reaches the whole process group. The parent decides what happens then and ends its workers; a worker
      that died on its own would look like a fault.
    - When the parent is killed, the kernel ends the worker, also while it is stopped, or native code keeps the
      GIL. Those of the fork server end with it, and it ends with the parent.
    """
    ignore_interrupts()
    if threading.current_thread() is threading.main_thread():
        # What the parent does then, e.g. save a checkpoint, is none of a worker's business; and it must end.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # What the parent has left for its garbage collector, e.g. an old pipeline with its threads, must not be
    # destroyed in a forked process. It also keeps the collector from touching, and so copying, inherited memory.
    gc.freeze()
    gc.enable()
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if not is_running(parent_pid):  # it has ended before that
        os._exit(1)


def ignore_interrupts() -> None:
    """Have Ctrl-C, which reaches the whole process group, be the business of the main process alone."""
    global _prepared_pid
    _prepared_pid = os.getpid()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


class DeathSignal(str):
    """The name of a process that the kernel ends with its parent, from before it imports the main script.

    `multiprocessing` sends the name first, and a process that unpickles this one asks the kernel for that.
    """

    def __reduce__(self) -> tuple[object, ...]:
        """Unpickle by what Python has, since the path of modules is not set yet."""
        call = f"__import__('ctypes').CDLL(None).prctl({_PR_SET_PDEATHSIG}, {int(signal.SIGKILL)})"
        return eval, (f"({call}, {str(self)!r})[1]",)


def pass_on_interrupt(error: BaseException) -> None:
    """Raise again what is about no sample: a `KeyboardInterrupt`, or what a signal handler of the program raised.

    All others are about what was being done, also those that are no `Exception`: `SystemExit`,
    `asyncio.CancelledError`, panics of extensions written in Rust. A worker ignores SIGINT, so there the user's
    code has raised a `KeyboardInterrupt` itself.
    """
    if _prepared_pid == os.getpid():
        return
    if isinstance(error, KeyboardInterrupt):
        raise error
    raised: BaseException | None = error
    while raised is not None:
        if comes_from_signal_handler(raised):
            raise raised
        raised = raised.__cause__ if isinstance(raised, FrameworkError) else None  # what a step has raised


def raised_by_signal_handler(error: BaseException, handled: BaseException | None = None) -> BaseException | None:
    """Find what a signal handler of the program has raised, whatever was made of it; None: it was none.

    Args:
        error: What has come out.
        handled: What was being handled before, which Python has put into the chain of the error.
    """
    inner: BaseException | None = error
    seen: set[int] = set()  # an error may be its own cause
    while inner is not None and inner is not handled and id(inner) not in seen:
        seen.add(id(inner))
        if comes_from_signal_handler(inner):
            return inner
        inner = inner.__context__ if inner.__cause__ is None else inner.__cause__
    return None


def comes_from_signal_handler(error: BaseException) -> bool:
    """Whether an exception was raised by a signal handler of the program, wherever it has come out."""
    handlers = map(signal.getsignal, signal.valid_signals())
    codes = {getattr(getattr(handler, "__func__", handler), "__code__", None) for handler in handlers} - {None}
    trace = error.__traceback__
    while codes and trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


@contextlib.contextmanager
def decorating() -> Iterator[None]:
    """Around what only decorates an error, and may fail."""
    try:
        yield
    except BaseException as error:
        pass_on_interrupt(error)


def is_running(pid: int) -> bool:
    """Whether a process runs; not one that has ended and was not waited for."""
    # One that was killed stays as a zombie while who started it reads what its workers may still print.
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in b"XZ"
    except OSError:
        return False


def open_again_what_is_read() -> None:
    """Give this process its own positions in the files that its parent has open for reading.

    Forked processes share them: between moving to a sample and reading it, another worker would move elsewhere.
    """
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # it was the list, or may not be opened again
            descriptor = int(name)
            flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
            is_read = flags & os.O_ACCMODE == os.O_RDONLY and not flags & os.O_PATH
            if is_read and stat.S_ISREG(os.fstat(descriptor).st_mode):
                own = os.open(f"/proc/self/fd/{name}", os.O_RDONLY | os.O_CLOEXEC | flags & os.O_DIRECT)
                try:
                    os.lseek(own, os.lseek(descriptor, 0, os.SEEK_CUR), os.SEEK_SET)
                    os.dup2(own, descriptor, os.get_inheritable(descriptor))
                finally:
                    os.close(own)


@attrs.frozen
class WorkerSetup:
    """What makes the worker processes of a pipeline different from each other.

    Attributes:
        seed: Seed of the pipeline.
        rank: Rank of this process among those that train together.
        init_fn: The user's function, called once in each worker with the number of the worker.
    """

    seed: int = 0
    rank: int = 0
    init_fn: Callable[[int], object] | None = None

    def seed_generators(self, worker: int) -> None:
        """Seed the global generators of Python, NumPy and (where it was imported) PyTorch in a worker process.

        Forked workers would otherwise begin with copies of the parent's generators, and spawned ones with the
        fixed default seed of PyTorch: all would draw the same numbers.
        """
        key = derive_key("worker", self.seed, self.rank, worker)
        random.seed(key)
        np.random.seed([key & 0xFFFFFFFF, key >> 32])
        self.seed_torch(worker)

    def seed_torch(self, worker: int) -> bool:
        """Seed PyTorch's global generator, and have PyTorch use one thread; return whether it was imported."""
        torch = sys.modules.get("torch")
        if torch is None:
            return False
        torch.manual_seed(derive_key("worker", self.seed, self.rank, worker))
        torch.set_num_threads(1)  # as PyTorch's own loader does
        return True


@contextlib.contextmanager
def noting_imports(note: Callable[[], None]) -> Iterator[None]:
    """Have a function called whenever Python begins to import a module: large ones take seconds, step by step."""
    finder: Any = SimpleNamespace(find_spec=lambda *_: note())  # it finds none
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def keep_freed_memory() -> None:
    """Have the C library keep freed memory for the next array, instead of giving it back to the system.

    Memory from the system comes in pages that are cleared when they are touched first, which for images costs as
    much as computing them. A process keeps as much as it has used at most.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        set_option = ctypes.CDLL(None).mallopt
        set_option(_M_MMAP_THRESHOLD, 32 * 2**20)  # the most that is allowed
        set_option(_M_TRIM_THRESHOLD, 2**31 - 1)


def use_one_thread_of_opencv() -> None:
    """Have OpenCV compute in the calling thread: there are as many workers as are to compute at a time."""
    os.environ["OPENCV_FOR_THREADS_NUM"] = "1"  # where it is imported later
    opencv = sys.modules.get("cv2")
    if opencv is not None:
        opencv.setNumThreads(0)  # 1 would wait for threads that a forked process does not have
