# SPDX-License-Identifier: Apache-2.0
"""A few kilobytes of memory that a pipeline shares with its worker processes."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import operator
import os
import struct
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from ..providers import frame_counts
from .worker_process import is_main_thread

_REPORT = struct.Struct("=qqq")
_REPORT_WORDS_PER_SAMPLE = 8  # up to three numbers of 19 digits
_MORE_REPORT_WORDS = 4
_nbytes_of = operator.attrgetter("nbytes")


class Work(NamedTuple):
    """What a worker has done since it started.

    Attributes:
        pid: Its process.
        reading_ns: Time in which it has read samples.
        steps_ns: Time in steps on arrays, and in random draws for steps of the graph.
        packing_ns: Time in which it has made batches of samples.
        num_samples: Samples.
        num_bytes: Bytes that it has sent to the graph.
        num_batches: Batches.
        num_frames: Frames of videos in these samples.
        num_decoded: Frames that were decoded for them, or will be in the graph.
    """

    pid: int
    reading_ns: int = 0
    steps_ns: int = 0
    packing_ns: int = 0
    num_samples: int = 0
    num_bytes: int = 0
    num_batches: int = 0
    num_frames: int = 0
    num_decoded: int = 0


UNPICKLING_INPUT, UNPICKLING_STEPS, RUNNING_INIT_FN = 1, 2, 3
_SETUP_STAGES: Final = ("", "unpickling the input", "unpickling the steps", "running `worker_init_fn`")


class LoadingSample(NamedTuple):
    """A sample that a worker loads, and since when."""

    epoch: int
    batch: int
    slot: int
    since_ns: int


class ControlBlock:
    """Shared words by which a pipeline steers its workers, and workers report what they do.

    DALI offers no way to reach a worker in the middle of an epoch. The block is an anonymous file: it has no
    name in any file system, so nothing remains whichever process is killed. Forked workers inherit
    the mapping; spawned ones open it through the parent's ``/proc`` entry::

        int64 words  0  abandoned_before  callables: epochs with a smaller index are abandoned
                     1  generation        iterables: grows when the running epoch is abandoned
                     2  num_workers       how many worker processes have taken a number
                     3  reports_samples     whether workers report the samples of each batch
                     4..27                ring of 8 rows, one per epoch that was begun elsewhere: its index
                                          plus 1, the epoch that is meant, the first batch of it
                     28, 29               iterables: process that loads a batch (0: none), and since when
                     30, 31               callables: epoch plus 1 (0: none) and batch from which on nothing of
                                          that epoch is loaded
                     32..                 ring of rows, one per batch in flight: its epoch (for iterables 0,
                                          since they count over all), its number plus 1 (0: no batch), since
                                          when its sample is loaded, then for iterables the sample indices of
                                          the batch, for callables the process and the slot that it loads
                                          (0: none)
                     behind               ring of rows, one per batch in flight, where samples are reported: its
                                          epoch (for iterables 0), its number plus 1, and number of bytes of its
                                          samples as in a ledger; then these bytes
                     behind them          a row per worker: what it has done, see `Work`
                     at the end           a row per worker: its process, the stage of its set-up (0: none), and
                                          since when

    Times are nanoseconds of the clock that `time.monotonic_ns` reads, which all processes share.

    Attributes:
        parent_pid: The process that made the block.
        is_sent_by_main_thread: In a worker that got it pickled, whether the main thread there has sent it.
        reports_samples: Whether workers report which samples they load; up to date once a batch is begun.
        stacks_path: File into which workers write their stacks on request.
    """

    _EPOCH_RING = 8
    _EPOCHS_AT = 4
    _ITERABLE_AT = _EPOCHS_AT + 3 * _EPOCH_RING
    _HELD_BACK_AT = _ITERABLE_AT + 2
    _HEADER = _HELD_BACK_AT + 2
    _ROW_HEADER = 3
    _WORK_WORDS = 9
    _SETUP_WORDS = 3

    reports_samples = 0
    is_sent_by_main_thread = False

    def __init__(self, batch_size: int, num_in_flight: int = 64, num_workers: int = 1) -> None:
        """Create a block.

        Args:
            batch_size: Samples per batch, at most.
            num_in_flight: Batches that can be loaded or wait for delivery at a time, at most; two batches whose
                numbers differ by this many share a row.
            num_workers: Worker processes; 0 where this process loads.
        """
        self._row_words = self._ROW_HEADER + batch_size
        self._num_rows = num_in_flight
        self._report_words = _REPORT.size // 8 + _MORE_REPORT_WORDS + _REPORT_WORDS_PER_SAMPLE * batch_size
        self._reports_at = self._HEADER + self._num_rows * self._row_words
        self._work_at = self._reports_at + self._num_rows * self._report_words
        self._num_work_rows = max(1, num_workers)
        self._final_work: list[Work] = []
        self.parent_pid = os.getpid()
        self._path = ""  # of the file, in spawned workers
        self._fd = os.memfd_create("dali_pipeline_framework", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, self._size)
        self._map_file(self._fd)
        self._start_report_fd = os.memfd_create("dali_pipeline_framework_report", os.MFD_CLOEXEC)
        self._stacks_fd = os.memfd_create("dali_pipeline_framework_stacks", os.MFD_CLOEXEC)
        files = (self._fd, self._start_report_fd, self._stacks_fd)
        self.stacks_path = f"/proc/{self.parent_pid}/fd/{self._stacks_fd}"
        self._close_files = weakref.finalize(self, close_files, self.parent_pid, *files)

    @property
    def _size(self) -> int:
        return 8 * (self._setup_at + self._num_work_rows * self._SETUP_WORDS)

    @property
    def _setup_at(self) -> int:
        return self._work_at + self._num_work_rows * self._WORK_WORDS

    def _map_file(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, self._size)
        self._words = memoryview(self._memory).cast("q")

    def __getstate__(self) -> dict[str, Any]:
        state = {
            **self.__dict__,
            "is_sent_by_main_thread": is_main_thread(),
            "_fd": -1,
            "_start_report_fd": -1,
            "_stacks_fd": -1,
            "_path": f"/proc/{self.parent_pid}/fd/{self._fd}",
        }
        for name in ("_memory", "_words", "_close_files"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        with self._open_file() as fd:
            self._map_file(fd)

    @contextlib.contextmanager
    def _open_file(self) -> Iterator[int]:
        if self._fd >= 0:
            yield self._fd
            return
        fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)

    def close(self) -> None:
        """Give files and memory back, in the process that made the block. It cannot be used after that."""
        if self._fd < 0 or os.getpid() != self.parent_pid:
            return
        self._final_work = self.work()
        self._close_files()
        self._fd = self._start_report_fd = self._stacks_fd = -1
        self._words.release()
        self._memory.close()

    @property
    def start_report_path(self) -> str:
        """File into which a worker that cannot start writes why."""
        return f"/proc/{self.parent_pid}/fd/{self._start_report_fd}"

    def read_start_report(self) -> str:
        """What workers that could not start have written; all write the same."""
        return os.pread(self._start_report_fd, 65536, 0).decode(errors="replace")

    def take_worker_number(self) -> int:
        """Get the next worker number, from 0; each worker process takes one."""
        with self._open_file() as fd:
            fcntl.lockf(fd, fcntl.LOCK_EX)
            try:
                number = self._words[2]
                self._words[2] = number + 1
            finally:
                fcntl.lockf(fd, fcntl.LOCK_UN)
        return number

    def note_setup(self, worker: int, stage: int) -> None:
        """Record that a worker begins, or is still alive in, a stage of its set-up; 0 once it is set up."""
        at = self._setup_at + (worker % self._num_work_rows) * self._SETUP_WORDS
        self._words[at] = os.getpid()
        self._words[at + 2] = time.monotonic_ns()
        self._words[at + 1] = stage

    def setups(self) -> dict[int, tuple[str, int]]:
        """The processes that are set up at the moment: what they are at, and since when."""
        words = self._words[self._setup_at :].tolist()
        rows = (words[at : at + self._SETUP_WORDS] for at in range(0, len(words), self._SETUP_WORDS))
        return {pid: (_SETUP_STAGES[stage], since) for pid, stage, since in rows if stage}

    def abandon_epoch(self, epoch_idx: int) -> None:
        """Tell all workers to end the epoch with this index at once."""
        self._words[0] = epoch_idx + 1
        self._words[1] += 1

    def map_epoch(self, epoch_idx: int, epoch: int, first_batch: int) -> None:
        """Map an epoch of the pipeline to an epoch of the input, and the batch of it where it begins."""
        row = self._EPOCHS_AT + 3 * (epoch_idx % self._EPOCH_RING)
        self._words[row + 1] = epoch
        self._words[row + 2] = first_batch
        self._words[row] = epoch_idx + 1

    def locate(self, epoch_idx: int, iteration: int) -> tuple[int, int]:
        """Epoch and batch of the input that are meant by an epoch and a batch in it of the pipeline."""
        row = self._EPOCHS_AT + 3 * (epoch_idx % self._EPOCH_RING)
        if self._words[row] != epoch_idx + 1:
            return epoch_idx, iteration
        return self._words[row + 1], self._words[row + 2] + iteration

    def hold_back(self, epoch: int, batch: int) -> None:
        """Have workers load nothing of an epoch of the input from a batch on."""
        self._words[self._HELD_BACK_AT + 1] = batch
        self._words[self._HELD_BACK_AT] = epoch + 1

    def place_to_load(self, epoch_idx: int, iteration: int) -> tuple[int, int] | None:
        """Epoch and batch of the input to load for an epoch and a batch in it of the pipeline.

        Returns:
            None where the epoch is to be ended.

        Raises:
            RuntimeError: The batch is held back.
        """
        if epoch_idx < self._words[0]:  # it is abandoned
            return None
        epoch, batch = self.locate(epoch_idx, iteration)
        held_epoch, held_batch = self._words[self._HELD_BACK_AT : self._HELD_BACK_AT + 2]
        if epoch == held_epoch - 1 and batch >= held_batch:
            raise RuntimeError("The pipeline knows the error of this batch.")
        return epoch, batch

    @property
    def generation(self) -> int:
        """A number that grows whenever an epoch is abandoned."""
        return self._words[1]

    def note_loading(self, row: int, slot: int) -> None:
        """Record that this process now loads the sample in a slot of the batch of a row."""
        self._words[row + 2] = time.monotonic_ns()
        self._words[row + self._ROW_HEADER] = (os.getpid() << 24) + slot + 1

    def note_iterating(self) -> None:
        """Record that this process now loads a batch of an iterable."""
        self._words[self._ITERABLE_AT + 1] = time.monotonic_ns()
        self._words[self._ITERABLE_AT] = os.getpid()

    def note_iterated(self) -> None:
        """Record that the batch of an iterable is loaded."""
        self._words[self._ITERABLE_AT] = 0

    def find_loading(self, pid: int) -> tuple[int, int, int] | None:
        """Epoch, batch and slot of the sample that a process loads, or None where it loads none."""
        found = self.loading().get(pid)
        return None if found is None else found[:3]

    def loading(self) -> dict[int, LoadingSample]:
        """What each process loads, for inputs that are callables."""
        found = {}
        for batch in range(self._num_rows):
            row = self._row_of(batch)
            epoch, number, since, loading = self._words[row : row + self._ROW_HEADER + 1]
            if loading:
                found[loading >> 24] = LoadingSample(epoch, number - 1, (loading & 0xFFFFFF) - 1, since)
        return found

    def loading_since(self) -> dict[int, int]:
        """The processes that load something, or are set up, and since when."""
        found = {pid: since for pid, (_, since) in self.setups().items()}
        pid, since = self._words[self._ITERABLE_AT : self._ITERABLE_AT + 2]
        if since:  # it is an iterable, whose rows hold something else
            return found | ({pid: since} if pid else {})
        return found | {pid: sample.since_ns for pid, sample in self.loading().items()}

    def _row_of(self, batch: int) -> int:
        return self._HEADER + (batch % self._num_rows) * self._row_words

    def begin_batch(self, epoch: int, batch: int) -> int:
        """Record that a batch is going to be loaded; get its row."""
        row = self._HEADER + (batch % self._num_rows) * self._row_words
        self._words[row] = epoch
        self._words[row + 1] = batch + 1
        self.reports_samples = self._words[3]
        if frame_counts.pending is not frame_counts.NO_FRAMES:
            frame_counts.take_frames()  # of other uses of the data set in this process
        return row

    def end_batch(self, batch: int) -> None:
        """Record that nothing is loaded for a batch any more, whether it is complete or not."""
        row = self._HEADER + (batch % self._num_rows) * self._row_words
        self._words[row + self._ROW_HEADER] = 0

    def record_batch(self, batch: int, sample_indices: Sequence[int]) -> None:
        """Record which samples form a batch, for error messages about it."""
        num_words = self._row_words - self._ROW_HEADER
        indices = [*sample_indices[:num_words]]
        indices += [-1] * (num_words - len(indices))
        row = self._row_of(batch)
        for slot, index in enumerate(indices, row + self._ROW_HEADER):
            self._words[slot] = index
        self.begin_batch(0, batch)

    def recorded_batch(self, batch: int) -> list[int] | None:
        """Sample indices noted for a batch, or None where there are none (any more)."""
        row = self._row_of(batch)
        if self._words[row + 1] != batch + 1:
            return None
        return [index for index in self._words[row + self._ROW_HEADER : row + self._row_words] if index >= 0]

    # --- what was loaded ----------------------------------------------------------------------------

    def request_samples(self) -> None:
        """Have all workers report which samples they have loaded."""
        self._words[3] = 1

    def report_samples(self, epoch: int, batch: int, samples: bytes) -> None:
        """Tell which samples a batch holds."""
        row = 8 * (self._reports_at + batch % self._num_rows * self._report_words)
        begin = row + _REPORT.size
        self._memory[begin : begin + len(samples)] = samples
        _REPORT.pack_into(self._memory, row, epoch, batch + 1, len(samples))

    def reported_samples(self, epoch: int, batch: int) -> bytes:
        """Get the samples that a worker has reported for a batch; empty for none."""
        row = 8 * (self._reports_at + batch % self._num_rows * self._report_words)
        reported_epoch, reported_batch, num_bytes = _REPORT.unpack_from(self._memory, row)
        if reported_batch != batch + 1 or reported_epoch != epoch:
            return b""
        begin = row + _REPORT.size
        return self._memory[begin : begin + num_bytes]

    # --- what workers have done -----------------------------------------------------------------------

    def add_work(
        self,
        worker: int,
        times_ns: tuple[int, int, int, int],
        num_samples: int,
        outputs: Sequence[Any],
    ) -> None:
        """Count a batch that this process has loaded, and the frames of videos in it.

        Args:
            worker: Number of the worker; 0 in a process that loads for itself.
            times_ns: When it began, and when the samples were read, had gone through the steps, and were packed.
            num_samples: Samples of the batch.
            outputs: The arrays, and lists of arrays, that are sent.
        """
        began, read, stepped, packed = times_ns
        num_bytes = 0
        for output in outputs:
            num_bytes += sum(map(_nbytes_of, output)) if isinstance(output, list) else output.nbytes
        words = self._words
        at = self._work_at + (worker % self._num_work_rows) * self._WORK_WORDS
        words[at] = os.getpid()
        words[at + 1] += read - began
        words[at + 2] += stepped - read
        words[at + 3] += packed - stepped
        words[at + 4] += num_samples
        words[at + 5] += num_bytes
        words[at + 6] += 1
        if frame_counts.pending is not frame_counts.NO_FRAMES:
            frames = frame_counts.take_frames()
            words[at + 7] += frames.num_delivered
            words[at + 8] += frames.num_decoded

    def work(self) -> list[Work]:
        """What each worker has done since it started; none of those that have not delivered a batch yet."""
        if self._fd < 0 and not self._path:
            return self._final_work
        words = self._words[self._work_at : self._setup_at].tolist()
        rows = (words[at : at + self._WORK_WORDS] for at in range(0, len(words), self._WORK_WORDS))
        return [Work(*row) for row in rows if row[0]]

    @property
    def num_loaded(self) -> int:
        """How many batches all workers have loaded."""
        return sum(self._words[self._work_at + 6 : self._setup_at : self._WORK_WORDS])


def close_files(pid: int, *files: int) -> None:
    """Close files in the process that has opened them."""
    if os.getpid() == pid:  # a forked child must not close what has its number there
        for file in files:
            os.close(file)
