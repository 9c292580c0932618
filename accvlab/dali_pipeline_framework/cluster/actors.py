# SPDX-License-Identifier: Apache-2.0
"""What runs in an actor: the object that loads in a worker process, and what it reports of its work."""

from __future__ import annotations

import functools
import os
import pickle
import platform
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from importlib import metadata
from time import perf_counter_ns
from typing import Any, TypeAlias, TypeVar

import attrs
import numpy as np
import numpy.typing as npt

from ..engine.tolerant_loading import FaultRecord
from ..engine.worker_source import CallableSource
from ..workers.reports import ReportedFailure, WorkerReport
from ..workers.samples import LoadingBatch

Request: TypeAlias = tuple[int, int, tuple[int, ...] | None]
"""Epoch, batch, and slots of it; None: all."""

# What decodes, resizes or computes: with another version, other bits may come out.
_LIBRARIES = {
    "this package": ("accvlab.dali_pipeline_framework",),
    "DALI": ("nvidia-dali-cuda120", "nvidia-dali-cuda130"),
    "NumPy": ("numpy",),
    "OpenCV": ("opencv-python-headless", "opencv-python"),
    "simplejpeg": ("simplejpeg",),
    "PyAV": ("av",),
    "Pillow": ("pillow",),
}
_T = TypeVar("_T")
_SENT_AFTER_S = 1.0  # what was reported
_LOOKS = 10  # within the time after which it is blocked
_MOST_PLANS = 16
_MOST_KEPT = 16


def own_values() -> dict[str, str]:
    """What the bits of a batch depend on, besides the plan: architecture, and versions of libraries."""
    return {"architecture": platform.machine(), **{name: _version(names) for name, names in _LIBRARIES.items()}}


def _version(names: Sequence[str]) -> str:
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "not installed"


@attrs.frozen
class ActorFacts:
    """What an actor says of itself.

    Attributes:
        host: Its machine.
        node: Its node, by Ray's number.
        pid: Its process there.
        values: What the bits of a batch depend on.
    """

    host: str
    node: str
    pid: int
    values: Mapping[str, str]

    @property
    def place(self) -> str:
        """Where it runs, for people."""
        return f"{self.host} (process {self.pid})"


@attrs.frozen
class ActorUse:
    """What an actor has done for a loader since that was started.

    Attributes:
        number: Its number.
        host: Its machine; empty while it waits for one.
        pid: Its process there; 0 while it has none.
        num_samples: Samples that it has loaded.
        busy_s: Time in which it was loading.
        way_s: Time in which what it had loaded was awaited: on its way through the object store and the network.
        num_replaced: How often it was restarted, since it had died or did not answer.
    """

    number: int
    host: str = ""
    pid: int = 0
    num_samples: int = 0
    busy_s: float = 0.0
    way_s: float = 0.0
    num_replaced: int = 0


@attrs.frozen
class Answer:
    """What an actor sends for a request.

    Attributes:
        slots: The slots that were loaded, in order; fewer than were requested where the epoch ends, or samples
            were skipped.
        outputs: The outputs of the batch; of a part of a batch the arrays field by field.
        substitutes: Samples that take the place of others, by their number in ``slots``.
        faults: What has failed in it, though it is there.
        failure: Why it is not there; empty where it is.
        has_no_plan: Whether the actor does not know the plan.
        blocked: The sample (epoch, batch, slot) at which it is blocked, for ``seconds``; None where it is not.
        work_ns: Time of reading, of steps, of packing.
        num_bytes: Size of the outputs.
        cpu_ns: Processor time.
        seconds: Time of work for it.
    """

    slots: Sequence[int] = ()
    outputs: Sequence[Any] = ()
    substitutes: Mapping[int, int] = attrs.Factory(dict)
    faults: Sequence[FaultRecord] = ()
    failure: str = ""
    has_no_plan: bool = False
    blocked: tuple[int, int, int] | None = None
    work_ns: tuple[int, int, int] = (0, 0, 0)
    num_bytes: int = 0
    cpu_ns: int = 0
    seconds: float = 0.0


class _BlockedError(Exception):
    """The user's code is blocked: for how long, at which sample, in which stage of the set-up."""


class LoadingActor:
    """Loads parts of batches, by any of the plans that it was given."""

    def __init__(self, number: int) -> None:
        """Set the number of the actor."""
        self._number = number
        self._sources: dict[str, tuple[CallableSource, float | None]] = {}
        self._executor = ThreadPoolExecutor(1)
        self._is_blocked = False
        self._kept: dict[tuple[Any, ...], tuple[Answer, int]] = {}  # answers, and for how many more loaders

    def prepare(self, plan: str, payload: npt.NDArray[np.uint8], blocked_after: float | None) -> ActorFacts | str:
        """Get ready for a plan.

        Args:
            plan: Fingerprint of the plan.
            payload: What `CallableSource.state_for_actors` has returned, pickled.
            blocked_after: As in a `FaultPolicy`.

        Returns:
            What it is, or the report of a failure.
        """
        import ray

        if self._is_blocked:  # which was reported; Ray starts another one
            time.sleep(_SENT_AFTER_S)
            os._exit(1)
        node = str(ray.get_runtime_context().get_node_id())
        facts = ActorFacts(socket.gethostname(), node, os.getpid(), own_values())
        if plan not in self._sources:
            while len(self._sources) >= _MOST_PLANS:
                del self._sources[next(iter(self._sources))]
            try:
                state = pickle.loads(payload.data)
                source = CallableSource.__new__(CallableSource)
                place = f"actor {self._number} on {facts.place}"
                begin = functools.partial(source.begin_in_actor, state, self._number, place)
                self._watched(source, blocked_after, begin)
            except _BlockedError as blocked:
                seconds, _, stage = blocked.args
                return (
                    f"Actor {self._number} on {facts.place} stood still for {seconds:.1f} s, {stage or 'loading'}."
                )
            except ReportedFailure as failure:
                return str(failure)
            except BaseException as error:
                what = "Unpickling what an actor needs"
                return WorkerReport.of_exception(error, f"actor on {facts.place}", None, what).encode()
            self._sources[plan] = source, blocked_after
        return facts

    def _watched(self, source: CallableSource, limit_s: float | None, work: Callable[[], _T]) -> _T:
        """Run the user's code; with a limit in a thread, so that this one can report where it is blocked."""
        if limit_s is None:
            return work()
        future = self._executor.submit(work)
        while True:
            done, _ = wait([future], limit_s / _LOOKS)
            if done:
                return future.result()
            now_at = source.at_work()
            if now_at[0] >= limit_s:
                raise _BlockedError(*now_at)

    def load(
        self, plan: str, requests: Sequence[Request], shared_by: int, order: npt.NDArray[np.int64] | None = None
    ) -> list[Answer]:
        """Load parts of batches, each once where several loaders request it.

        Args:
            plan: Fingerprint of the plan.
            requests: What to load.
            shared_by: How many loaders request the same.
            order: The order of the running epoch, where the user gives it.

        Returns:
            An answer for each. They travel as one object of Ray, whose cost is that of a batch of some megabytes.
        """
        if self._is_blocked:  # it ends where it is to get ready again: what was said of that has come by then
            return [Answer(has_no_plan=True)] * len(requests)
        try:
            answers = [self._answer(plan, each, shared_by, order) for each in requests]
        except _BlockedError as blocked:
            self._is_blocked = True
            answers = [Answer(blocked=blocked.args[1], seconds=blocked.args[0])] * len(requests)
        return answers

    def _answer(self, plan: str, request: Request, shared_by: int, order: npt.NDArray[np.int64] | None) -> Answer:
        if plan not in self._sources:
            return Answer(has_no_plan=True)
        source, blocked_after = self._sources[plan]
        key: tuple[Any, ...] = (plan, *request)
        if order is not None:
            source.use_order(order)
            key = (*key, int(order[0]))
        if key in self._kept:
            answer, num_left = self._kept.pop(key)
            answer = attrs.evolve(answer, work_ns=(0, 0, 0), cpu_ns=0, seconds=0.0)
        else:
            load = functools.partial(_loaded, source, *request)
            answer, num_left = self._watched(source, blocked_after, load), shared_by
        if num_left > 1:
            self._kept[key] = answer, num_left - 1
            if len(self._kept) > _MOST_KEPT:  # others are slower, or do not come
                del self._kept[next(iter(self._kept))]
        return answer


def _loaded(source: CallableSource, epoch: int, batch: int, slots: tuple[int, ...] | None) -> Answer:
    began, cpu_ns = time.perf_counter(), time.process_time_ns()

    def spent() -> dict[str, Any]:
        return {"cpu_ns": time.process_time_ns() - cpu_ns, "seconds": time.perf_counter() - began}

    try:
        outputs, made = source.load_slots(epoch, batch, slots)
    except StopIteration:
        return Answer(**spent())
    except ReportedFailure as failure:
        return Answer(failure=str(failure), **spent())
    except BaseException as error:
        return Answer(failure=source.report(error, f"epoch {epoch}, batch {batch}", None).encode(), **spent())
    return Answer(
        slots=[info.idx_in_batch for info in made.infos],
        outputs=outputs,
        substitutes=dict(made.substitutes),
        faults=source.take_fault_records(),
        work_ns=_work_of(made),
        num_bytes=num_bytes_of(outputs),
        **spent(),
    )


def _work_of(batch: LoadingBatch) -> tuple[int, int, int]:
    return (
        batch.read_ns - batch.began_ns,
        batch.stepped_ns - batch.read_ns,
        perf_counter_ns() - batch.stepped_ns,
    )


def num_bytes_of(outputs: Sequence[Any]) -> int:
    """Size of the outputs of a batch."""
    return sum(sum(each.nbytes for each in out) if isinstance(out, list) else out.nbytes for out in outputs)


def end_process(pid: int) -> None:
    """Kill an actor on the machine where this runs: one that is stopped does not end by itself."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as command:
            if LoadingActor.__name__.encode() in command.read():  # its number is not yet that of another process
                os.kill(pid, signal.SIGKILL)
    except OSError:  # it has ended
        return
