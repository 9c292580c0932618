# SPDX-License-Identifier: Apache-2.0
"""A worker process: what it runs, and the memory by which it hands over batches.

A pipe leads to the main process. Batches are written into anonymous files (``memfd``), which ``/dev/shm`` does not
limit; the main process maps each once, and says when a batch was delivered, after which its memory is used again.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import mmap
import os
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any, NoReturn, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from ..errors import OutputError, WorkerStartError
from .loading import BatchLoader, begun_loader
from .loading_plan import LoadingPlan
from .messages import Answer, Ended, Loaded, Task
from .packing import Parts, copied_one_after_the_other
from .process_setup import open_again_what_is_read, prepare_worker_process
from .reports import ReportedFailure, WorkerReport
from .stacks import answer_requests

ALIGNMENT = 64
STARTING = -1
"""What a process is at, beside the stages of `loading` and numbers of samples: it has not begun yet."""
_MOST_IN_PIPE = 1 << 15  # bytes of a message; the buffer of a pipe takes several of these

Layout: TypeAlias = tuple[int, str, Any, Any]
"""Buffer, dtype, and shape and first byte of an array; of each array, where they are lists."""


@attrs.frozen
class Start:
    """What a worker gets when it is started; small, since the system copies it through a pipe.

    Attributes:
        number: Number of the worker.
        parent_pid: The main process.
        payload: Path of the file with what `LoadingPlan.pickled` has returned, and the environment.
        progress: Path of the file of three int64 words: what the worker is at, since when, and the number of the
            first task that is still wanted.
        stacks: Path of the file into which it writes its stacks on request.
        log_level: Level of the root logger, whose records are forwarded by processes that inherit no handlers.
    """

    number: int
    parent_pid: int
    payload: str
    progress: str
    stacks: str
    log_level: int


@attrs.frozen
class Ready:
    """The worker is set up."""

    pid: int


@attrs.frozen
class StartFailed:
    """The worker could not be set up."""

    report: WorkerReport


@attrs.frozen
class Map:
    """A file follows, which is to be mapped.

    Attributes:
        size: Its size in bytes.
    """

    size: int


@attrs.frozen
class Free:
    """Buffers may be used again."""

    buffers: Sequence[int]


@attrs.frozen
class InFile:
    """A message comes as a file."""


def send_to_worker(connection: Connection, message: object) -> None:
    """Send a message, a large one as a file: a worker that is busy takes none, and its pipe is soon full."""
    content = reduction.ForkingPickler.dumps(message)
    if len(content) <= _MOST_IN_PIPE:
        connection.send_bytes(content)
        return
    file = os.memfd_create("message")
    try:
        with open(file, "wb", closefd=False) as writer:
            writer.write(content)
        connection.send(InFile())
        reduction.send_handle(connection, file, None)
    finally:
        os.close(file)


def _received(connection: Connection) -> Any:
    message = connection.recv()
    if not isinstance(message, InFile):
        return message
    with open(reduction.recv_handle(connection), "rb") as file:
        file.seek(0)
        return reduction.ForkingPickler.loads(file.read())


def start_error(error: Exception) -> WorkerStartError:
    """Make the error if the system refuses what it takes to start a worker, or to hand over batches."""
    advice = "Load in this process with num_workers=0, or choose another `start_method`."
    if getattr(error, "errno", None) == errno.EMFILE:
        advice = "Allow more open files (`ulimit -n`): about ten per worker are needed. Or use fewer workers."
    return WorkerStartError(
        f"The worker processes could not be started: {error or type(error).__name__}. {advice}"
    )


class _ForwardedLog(logging.Handler):
    """Sends records to the main process, whose handlers and levels decide on them."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record, with its message formatted."""
        fields = {**record.__dict__, "msg": record.getMessage(), "args": None, "exc_info": None}
        if record.exc_info:
            fields["exc_text"] = logging.Formatter().formatException(record.exc_info)
        plain = {name: value for name, value in fields.items() if isinstance(value, str | int | float | None)}
        with contextlib.suppress(OSError, ValueError):
            self._connection.send(plain)


STOP = 2**62
"""In the third word of a worker: it ends before the next sample."""
NUM_WORDS = 3


def run_worker(connection: Connection, start: Start, inherited: LoadingPlan | None = None) -> None:
    """Load batches until the main process says that this is the end, or has ended.

    Args:
        connection: The pipe to it.
        start: What it says.
        inherited: The plan, where this process was forked from it.
    """
    prepare_worker_process(start.parent_pid)
    answer_requests(start.stacks)
    try:
        file = os.open(start.progress, os.O_RDWR | os.O_CLOEXEC)
        words: Any = memoryview(mmap.mmap(file, 8 * NUM_WORDS)).cast("q")
    except OSError as error:
        connection.send(start_error(error))
        return
    os.close(file)

    def note(stage: int) -> None:
        words[1] = time.monotonic_ns()
        words[0] = stage
        if words[2] == STOP:
            _end()

    note(STARTING)
    place = f"worker: {start.number} (process {os.getpid()})"
    try:
        if inherited is not None:
            open_again_what_is_read()
            loader = begun_loader(inherited, start.number, place, note)
        else:
            variables, pickled = reduction.ForkingPickler.loads(_read(start.payload))
            _use_environment(variables)  # not that of a fork server
            logging.root.handlers[:] = [_ForwardedLog(connection)]
            logging.root.setLevel(start.log_level)
            loader = begun_loader(pickled, start.number, place, note)
    except ReportedFailure as failure:
        connection.send(StartFailed(failure.report))
        return
    say_ready(connection)
    buffers = loader.memory = Buffers(connection, start.parent_pid)
    note(0)
    with contextlib.suppress(EOFError, ConnectionError):
        while isinstance(message := _received(connection), Free | Task):
            if isinstance(message, Free):
                buffers.free(message.buffers)
            elif message.number < words[2]:  # nobody waits for it any more
                connection.send(Ended(message.number))
            else:
                connection.send(_answer(loader, buffers, message))


def _answer(loader: BatchLoader, buffers: Buffers, task: Task) -> Answer:
    buffers.begin()
    answer = loader.load(task)
    if isinstance(answer, Loaded):
        try:
            answer.outputs = buffers.written(answer.outputs)
        except OutputError as error:
            return loader.failure(task, error)
    return answer


def say_ready(connection: Connection) -> None:
    """Report to the main process that this one is set up."""
    connection.send(Ready(os.getpid()))


def _end() -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(0)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _use_environment(variables: Mapping[str, str]) -> None:
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)


class Buffers:
    """The anonymous files into which a worker writes batches."""

    def __init__(self, connection: Connection, parent_pid: int) -> None:
        """Begin without any."""
        self._connection, self._parent_pid = connection, parent_pid
        self._maps: list[npt.NDArray[np.uint8]] = []
        self._free: list[int] = []
        self._filled: dict[int, tuple[int, int]] = {}  # by address: buffer and first byte

    def begin(self) -> None:
        """Begin a batch: what was filled for one that failed is free again."""
        self._free += [number for number, _ in self._filled.values()]
        self._filled = {}

    def free(self, buffers: Sequence[int]) -> None:
        """Use buffers again."""
        self._free += buffers

    def filled(self, parts: Parts, size: int) -> npt.NDArray[np.uint8]:
        """Put bytes and arrays one after the other into memory that `written` need not copy."""
        number = self._taken(size)
        memory = self._maps[number][:size]
        copied_one_after_the_other(parts, memory)
        self._filled[memory.__array_interface__["data"][0]] = number, 0
        return memory

    def written(self, outputs: Sequence[Any]) -> list[Layout]:
        """Write the outputs of a batch; get where they are.

        Raises:
            OutputError: There is no memory, or no more files may be open.
        """
        filled, self._filled = self._filled, {}
        arrays = [array for out in outputs for array in (out if isinstance(out, list) else (out,))]
        rest = [array for array in arrays if array.__array_interface__["data"][0] not in filled]
        starts = [0, *itertools.accumulate(-(-array.nbytes // ALIGNMENT) * ALIGNMENT for array in rest)]
        number = self._taken(starts[-1]) if rest else -1
        memory = self._maps[number]
        places: dict[int, tuple[int, int]] = {}
        for array, start in zip(rest, starts, strict=False):
            flat = np.ascontiguousarray(array).reshape(-1)
            memory[start : start + flat.nbytes] = flat.view(np.uint8)
            places[id(array)] = number, start
        layouts: list[Layout] = []
        for output in outputs:
            if not isinstance(output, list):
                of, start = filled.get(output.__array_interface__["data"][0]) or places[id(output)]
                layouts.append((of, output.dtype.str, output.shape, start))
            else:
                shapes = [array.shape for array in output]
                layouts.append((number, output[0].dtype.str, shapes, [places[id(array)][1] for array in output]))
        return layouts

    def _taken(self, size: int) -> int:
        """Take a buffer of at least a size."""
        for number in self._free:
            if len(self._maps[number]) >= size:
                self._free.remove(number)
                return number
        room = max(mmap.PAGESIZE, size + size // 4)
        try:
            file = os.memfd_create("batches", os.MFD_CLOEXEC)
            try:
                os.ftruncate(file, room)
                mapped = mmap.mmap(file, room)
                self._connection.send(Map(room))
                reduction.send_handle(self._connection, file, self._parent_pid)
            finally:
                os.close(file)
        except OSError as error:
            raise OutputError(
                f"There is no memory of {room / 1e6:.1f} MB to hand a batch over: {error.strerror}. Is a limit of "
                f"the system too small (`ulimit -f`, `-n`, `-v`), or a batch too large?"
            ) from error
        self._maps.append(np.frombuffer(mapped, np.uint8))
        return len(self._maps) - 1
