# SPDX-License-Identifier: Apache-2.0
"""What DALI's external source calls: the user's input, in DALI's workers or here; or what a pool has loaded."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
from nvidia.dali import types

from ..faults.fault_policy import FailedSamples
from ..workers.loading import BatchLoader, begun_loader
from ..workers.loading_plan import LoadingPlan
from ..workers.messages import Ended, Failed, Position, Task, Work
from ..workers.plans import BatchPlan
from ..workers.pool.failures import Refused
from ..workers.pool.pool import Batch, Pool
from ..workers.process_setup import ignore_interrupts
from ..workers.reports import ReportedFailure
from ..workers.samples import Array


class InputSource(ABC):
    """Base of what DALI calls.

    Attributes:
        plan: What is loaded.
        is_parallel: Whether worker processes of DALI call it.
    """

    is_parallel = False

    def __init__(self, plan: LoadingPlan) -> None:
        """Set what is loaded."""
        self.plan = plan

    @abstractmethod
    def arguments(self, num_ahead: int) -> dict[str, Any]:
        """Arguments for ``fn.external_source``, where workers load so many batches ahead."""


def _without_notes(stage: int) -> None:
    """DALI's workers report nothing while they load."""


class _Numbers:
    """Numbers for the workers of DALI, which do not know theirs: a file that they share."""

    def __init__(self) -> None:
        self._file = os.memfd_create("worker_numbers", os.MFD_CLOEXEC)
        self._path = f"/proc/{os.getpid()}/fd/{self._file}"
        weakref.finalize(self, _close, self._file, os.getpid())

    def __getstate__(self) -> dict[str, Any]:
        return {"_path": self._path}

    def take(self) -> int:
        """Get the next number, from 0."""
        with open(self._path, "a+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)  # closing the file ends it
            number = os.fstat(file.fileno()).st_size
            file.write(b".")
        return number


def _close(file: int, pid: int) -> None:
    if os.getpid() == pid:
        os.close(file)


class _OwnSource(InputSource):
    """An input that DALI calls for batches, in its own workers or in this process."""

    def __init__(self, plan: LoadingPlan, is_parallel: bool) -> None:
        """Set the input, and whether workers of DALI call it."""
        super().__init__(plan)
        self.is_parallel = is_parallel
        self._name = plan.name
        self._pid = os.getpid()
        self._numbers = _Numbers()
        self._pickled: bytes | None = None
        self._loader: BatchLoader | None = None
        self._called: deque[Batch] = deque(maxlen=1)

    def __repr__(self) -> str:  # DALI shows it
        return self._name

    def __getstate__(self) -> dict[str, Any]:
        # In parts: a failure to unpickle one is then an ordinary failure with a message, instead of a worker that
        # dies while it starts.
        return {**self.__dict__, "plan": None, "_pickled": self.plan.pickled(), "_loader": None, "_called": ()}

    def arguments(self, num_ahead: int) -> dict[str, Any]:
        """Arguments for ``fn.external_source``, where workers load so many batches ahead."""
        if not self.is_parallel:
            self._called = deque(maxlen=num_ahead + 2)
        return {
            "source": self,
            "batch": True,
            "parallel": self.is_parallel,
            "prefetch_queue_depth": num_ahead if self.is_parallel else None,
            **self._arguments_of_kind(),
        }

    @abstractmethod
    def _arguments_of_kind(self) -> dict[str, Any]:
        """What else it takes to call, or to iterate, the input."""

    def _loaded(self, task: Task) -> Any:
        loader = self._loader
        if loader is None:
            loader = self._loader = self._begun()
        answer = loader.load(task)
        if isinstance(answer, Ended):
            raise StopIteration
        if isinstance(answer, Failed):
            raise ReportedFailure(answer.report) from answer.cause
        if not self.is_parallel:
            self._called.append(Batch(task.position, answer, task))
        return answer.outputs

    def called(self, position: Position) -> list[Batch]:
        """Get a batch that was loaded in this process a short time ago, and others; without it, nothing."""
        due = [batch for batch in self._called if batch.position == position]
        for batch in due:
            with contextlib.suppress(Exception):  # of a sampler of the user; it only adds the samples
                plan = BatchPlan(self.plan.source, self.plan.batch_size)
                batch.task = plan.task(position) or batch.task
                if batch.task.places is None and batch.loaded.indices is None:
                    indices = [plan.sample_index(batch.task, number) for number in batch.loaded.numbers]
                    batch.loaded.indices = None if None in indices else cast(list[int], indices)
        return [*due, *(batch for batch in self._called if batch.position != position)] if due else []

    def _begun(self) -> BatchLoader:
        if not self.is_parallel or os.getpid() == self._pid:
            return BatchLoader(self.plan)
        ignore_interrupts()
        number = self._numbers.take()
        place = f"worker: {number} (process {os.getpid()})"
        loader = begun_loader(self._pickled or self.plan, number, place, _without_notes)
        self.plan, self._pickled = loader.plan, None
        return loader


class CallableSource(_OwnSource):
    """A callable that DALI calls for batches."""

    def _arguments_of_kind(self) -> dict[str, Any]:
        return {"batch_info": True}

    def __call__(self, batch_info: types.BatchInfo) -> list[Array]:
        """Load and check a batch."""
        outputs: list[Array] = self._loaded(Task((batch_info.epoch_idx, batch_info.iteration)))
        return outputs


class IterableSource(_OwnSource):
    """An iterable that DALI iterates batch by batch."""

    _epoch = -1

    def _arguments_of_kind(self) -> dict[str, Any]:
        return {"cycle": "raise"}

    def __iter__(self) -> Iterator[list[Array]]:
        # DALI calls this once in the parent and may call it ahead of an epoch. The user's iterable is started by
        # the first `next`, so it sees one `iter` per epoch, in the process that loads.
        return self._batches()

    def _batches(self) -> Iterator[list[Array]]:
        self._epoch += 1
        epoch = self._epoch
        for number in itertools.count():
            try:
                batch = self._loaded(Task((epoch, number)))
            except StopIteration:
                return
            yield batch


class FedSource(InputSource):
    """Hands over the batches of a pool, in order, from a position on.

    The pipeline ends its epoch before a batch that cannot be handed over: all that comes before it is delivered
    first, whatever the pipeline reads ahead.

    Attributes:
        handed: What the pipeline has got, and has not delivered.
        end: Why it gets nothing more: the epoch has ended, or a batch cannot be loaded; None while it does.
        position: The batch that is handed over next.
        failed: What is noted of the batches that are delivered.
        received: The batch that has left the graph last.
    """

    def __init__(self, plan: LoadingPlan) -> None:
        """Set what is loaded, by a pool that is set later."""
        super().__init__(plan)
        self.pool: Pool | None = None
        self.handed: deque[Batch] = deque()
        self.end: Ended | Refused | None = None
        self.position: Position = (0, 0)
        self.failed: FailedSamples | None = None
        self.received: Batch | None = None

    def __repr__(self) -> str:  # DALI shows it
        return self.plan.name

    def arguments(self, num_ahead: int) -> dict[str, Any]:
        """Arguments for ``fn.external_source``."""
        return {"source": self, "batch": True, "batch_info": True, "parallel": False}

    def begin(self, position: Position) -> None:
        """Go on at another batch; what was handed over before is forgotten."""
        self.handed.clear()
        self.position, self.end = position, None

    def stop(self) -> None:
        """Hand over nothing more, so that the epoch of the pipeline ends."""
        self.end = self.end or Ended(-1)

    def __call__(self, batch_info: types.BatchInfo) -> list[Array]:
        """Hand over the next batch."""
        if self.end is None:
            epoch, number = self.position
            got = self.pool.get(self.position)  # type: ignore[union-attr]
            if type(got) is Batch:
                self.handed.append(got)
                self.position = epoch, number + 1
                outputs: list[Array] = got.loaded.outputs
                if self.plan.layout.packed:  # goes around the graph
                    return [np.zeros((len(outputs[0]), 1), np.uint8), *outputs[1:]]
                return outputs
            self.end = got  # type: ignore[assignment]
        raise StopIteration

    def receive(self, outputs: Sequence[Any]) -> Sequence[Any]:
        """Note that a batch has left the graph; returns its outputs and the packed fields, which go around."""
        self.received = received = self.handed.popleft()
        return [received.loaded.outputs[0], *outputs[1:]] if self.plan.layout.packed else outputs

    def note_delivered(self, num_samples: int) -> Work:
        """Note that so many samples of the batch received are delivered; returns what loading it has taken.

        Raises:
            TooManyFailedError: More samples have failed than may.
        """
        received, failed = cast(Batch, self.received), self.failed
        if failed is not None:
            failed.num_delivered += num_samples
            if received.failures or failed.num_failed:
                failed.delivered(received.failures)
        return received.loaded.work
