# SPDX-License-Identifier: Apache-2.0
"""Has the batches of one pipeline loaded by actors, and hands them over in order.

::

    this process                                                        actors
    ────────────────────────────────────────────────────────────       ──────────────────────────────
    DALI asks for a batch ─> `RayLoading` ─> `Dispatch`: whom to ask ─> `LoadingActor`: `CallableSource`
    DALI copies its arrays <─ answers of all parts <─ receiver thread <─ object store
"""

from __future__ import annotations

import atexit
import collections
import hashlib
import logging
import math
import pickle
import threading
import time
import weakref
from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any

import attrs
import numpy as np
from nvidia.dali import types

from ..engine.control_block import Work
from ..engine.structured_pipeline import StructuredPipeline
from ..engine.watching.worker_watch import describe_place, sample_index_at
from ..engine.worker_source import CallableSource, samples_of
from ..errors import FrameworkError, NotSupportedError, OutputError, WorkerDiedError, WorkerStartError
from ..sources.given_order import EpochIndices, GivenOrderSampler
from ..sources.planned_input import PlannedInput
from ..workers.reports import ReportedFailure, WorkerReport
from ..workers.samples import Array, OddSampleError
from .actors import ActorFacts, ActorUse, Answer
from .dispatch import BYTES_PER_CALL, LEAST_PATIENCE_S, Call, Dispatch, Part, Position, joined_slots
from .ray_actors import Actor, Actors, difference_of

_logger = logging.getLogger(__name__)

_POLL_S = 0.05
_LATE_EACH_S = 0.1
_ROOM_AGAIN_S = 1.0
_MEMBERS_EACH_S = 1.0
_KEEPER = -1
_CALLS_IN_STORE = 8
_FREED_WITHIN_S = 1.2  # after it was received, by Ray
_CROWDED_FROM, _WARN_FROM = 0.4, 0.5  # of a store
_CROWDED_PATIENCE_S = 10.0  # where there is no room, Ray looks for some for seconds, and then takes the disk
_LONGEST_TEXT = 500


@attrs.define(eq=False)
class _Asked:
    """What was asked of an actor: a call, or to get ready (no call)."""

    number: int
    call: Call | None = None


class RayLoading:
    """Loads the batches of a pipeline in a Ray cluster.

    Attributes:
        window: How many batches are requested ahead at most.
    """

    def __init__(self, pipeline: StructuredPipeline, actors: Actors, reports_samples: bool) -> None:
        """Set a pipeline up, which is not started yet.

        Raises:
            NotSupportedError: Actors cannot load its input.
        """
        source = pipeline.worker_source
        if not isinstance(source, CallableSource):
            kind = type(pipeline.data_input).__name__
            raise NotSupportedError(
                f"`workers` loads what is a function of the position: a data provider with a sampler, or a "
                f"callable, got {kind}. Load it in worker processes (`num_workers`)."
            )
        self._source, self._actors, self._reports_samples = source, actors, reports_samples
        self._pipeline: StructuredPipeline = weakref.proxy(pipeline)
        self._lock = threading.Condition()
        self._asked: dict[Any, _Asked] = {}  # by reference
        self._fatal: FrameworkError | None = None
        self._num_batches: dict[int, int | None] = {}
        self._work: dict[int, list[int]] = {}
        self._cpu_ns: collections.Counter[int] = collections.Counter()
        self._is_closed = self._has_warned = False
        self._crowded_at = -math.inf
        self._late_at = 0.0
        self._members_at = time.monotonic()
        self._most_bytes = 0  # of an answer
        self._batch_bytes = 0
        self._store_bytes = self._least_store_bytes = 0
        self._received: collections.deque[tuple[float, int]] = collections.deque()  # lately: when, and bytes
        self._plan = ""
        self._payload: Any = None
        data_input = source.data_input
        self._planned = data_input if isinstance(data_input, PlannedInput) else None
        if self._planned is not None and self._planned.sampler.must_be_played:
            self._planned = None
        sampler = None if self._planned is None else self._planned.sampler
        self._given = sampler.indices if isinstance(sampler, GivenOrderSampler) else None
        self._order: Any = None  # of the user, as it was shared last
        self._order_ref: Any = None
        has_slots = self._planned is not None and self._planned.sampler.has_slots
        self.window = actors.workers.most_ahead(1)
        num_slots = source.batch_size if has_slots else 0
        is_shared = actors.workers.shared_by > 1
        self._dispatch = Dispatch(self.window, self._following, num_slots, is_shared, source.batch_size)
        self._blocked_after = pipeline.limits[0]
        self._dispatch.suspects, self._dispatch.slowest_s = actors.suspects, self._blocked_after or 0.0
        source.elsewhere = self.outputs
        source.reuse_memory()

    # --- start and end ----------------------------------------------------------------------------

    def start(self) -> None:
        """Have actors started, and wait for the first one.

        Raises:
            WorkerStartError: There is no cluster, or none of its actors can load this.
            SourcePicklingError: The input cannot be pickled.
        """
        payload = pickle.dumps(self._source.state_for_actors())
        actors = self._actors
        actors.start()
        atexit.register(self.close)  # before Ray ends: after that, its functions would start a new cluster
        sizes = actors.store_sizes()
        self._store_bytes, self._least_store_bytes = sizes.get(actors.node(), 0), min(sizes.values(), default=0)
        # There is room for an object only where there is that much in one piece; Ray waits for it for seconds.
        self._dispatch.call_bytes = min(BYTES_PER_CALL, self._store_bytes / _CALLS_IN_STORE)
        if len(payload) > self._store_bytes:
            raise WorkerStartError(
                f"The input takes {len(payload) / 1e6:.0f} MB when it is pickled, and the object store of this "
                f"machine has {self._store_bytes / 1e6:.0f} MB. Have the data provider open its files on "
                f"first use, and leave what it has read out in `__getstate__`; or give the store more (`ray start "
                f"--object-store-memory`)."
            )
        self._fit_window()
        self._plan = hashlib.blake2b(payload, digest_size=16).hexdigest()
        self._payload = actors.ray.put(np.frombuffer(payload, np.uint8))
        with self._lock:
            for number in actors.by_number:
                self._prepare(number)
        target = _receive, (weakref.ref(self),)
        threading.Thread(target=target[0], args=target[1], daemon=True, name="answers of actors").start()
        self._await_first()

    def _await_first(self) -> None:
        workers, began = self._actors.workers, time.monotonic()
        with self._lock:
            while not self._dispatch.num_ready and self._fatal is None:
                waited = time.monotonic() - began
                if waited > workers.start_within_s or (waited > _ROOM_AGAIN_S and self._actors.is_impossible()):
                    reason = (
                        self._actors.waits_for() or "none has answered, for a reason that the logs of Ray may say"
                    )
                    num_actors = len(self._actors.by_number)
                    self._fatal = WorkerStartError(
                        f"None of {num_actors} actors has started within {waited:.0f} s: {reason}. Give "
                        f"RayWorkers fewer CPUs per actor (num_cpus), end what holds them, or add machines."
                    )
                self._lock.wait(_POLL_S)
            if self._fatal is not None:
                fatal = self._fatal
                self._is_closed = True
                raise fatal

    def close(self) -> None:
        """Ask for nothing more."""
        with self._lock:
            self._is_closed = True
            self._asked.clear()
            self._lock.notify_all()
        atexit.unregister(self.close)

    # --- batches, for DALI ------------------------------------------------------------------------

    def outputs(self, asked: types.BatchInfo, epoch: int, batch: int) -> list[Array]:
        """Get the outputs of a batch.

        Raises:
            StopIteration: The epoch has no such batch.
            ReportedFailure: A sample of it has failed.
            WorkerDiedError: It has cost several actors their life.
        """
        if self._given is not None and self._order is not self._given.shared:
            self._use_order(self._given)
        num_batches = self._known_size(epoch)
        if num_batches is not None and batch >= num_batches:
            raise StopIteration
        position = epoch, batch
        began = perf_counter_ns()
        with self._lock:
            parts = self._awaited(position)
            outputs = self._joined(position, parts)
            while outputs is None:  # its parts do not go together: one actor finds out why, with all samples
                self._dispatch.ask_whole(position)
                parts = self._awaited(position)
                outputs = self._joined(position, parts)
            if self._dispatch.delivered(position):
                self._send()
        self._pipeline.times.workers_ns += perf_counter_ns() - began
        self._take_reports(asked, position, parts)
        return outputs

    def _use_order(self, given: EpochIndices) -> None:
        """Have batches loaded by the order that was shared last, which is that of one epoch."""
        words = given.shared.copy()
        words[0] = int.from_bytes(hashlib.blake2b(words[1:].tobytes(), digest_size=7).digest(), "little")
        epoch = int(words[1])
        size = self._planned.num_batches_in_epoch(epoch) if self._planned is not None and epoch >= 0 else None
        with self._lock:
            self._order, self._order_ref = given.shared, self._actors.ray.put(words)
            self._num_batches = {epoch: size}
            self._dispatch.forget()

    def _awaited(self, position: Position) -> list[Part]:
        """Wait until all parts of a batch are there; called with the lock."""
        if self._dispatch.begin(position) or not self._dispatch.is_complete(position):
            self._send()
        while self._fatal is None:
            if self._dispatch.is_complete(position):
                return self._dispatch.parts(position)
            if self._is_closed:
                raise WorkerDiedError("The loader was closed while it waited for a batch.")
            self._lock.wait(_POLL_S)
        raise self._fatal

    def _joined(self, position: Position, parts: Sequence[Part]) -> list[Array] | None:
        answers: list[Answer] = [part.answer for part in parts]
        for answer in answers:
            if isinstance(answer, WorkerDiedError):
                raise answer
            if answer.failure:
                raise ReportedFailure(answer.failure)
        are_there = [bool(answer.slots) for answer in answers]
        if not any(are_there) or not (all(are_there) or self._source.data_input.delivers_partial_batches):
            self._num_batches[position[0]] = position[1]
            raise StopIteration
        if any(part.is_alone and part.answer.faults for part in parts):  # alone, a slot is not left out
            return None
        if len(parts) == 1 and parts[0].slots is None:
            return [*parts[0].answer.outputs]
        samples = [
            [
                column[number, ...] if isinstance(column, np.ndarray) else column[number]
                for column in part.answer.outputs
            ]
            for _, part, number in joined_slots(parts)
        ]
        try:
            return self._source.outputs_of_batch(samples, [], lambda slot: None)
        except OddSampleError:
            return None

    def _take_reports(self, asked: types.BatchInfo, position: Position, parts: Sequence[Part]) -> None:
        """Pass on what was said about a batch to what asks for it where worker processes load."""
        source = self._source
        for part in parts:
            for record in part.answer.faults:
                mine: Any = {**record, "epoch_idx": asked.epoch_idx, "iteration": asked.iteration}
                source.tolerance.journal.write(mine)  # type: ignore[union-attr]
        if not self._reports_samples:
            return
        epoch, batch = position
        infos, substitutes = [], {}
        for place, (slot, part, number) in enumerate(joined_slots(parts)):
            infos.append(types.SampleInfo(batch * source.batch_size + slot, slot, batch, epoch))
            if number in part.answer.substitutes:
                substitutes[place] = part.answer.substitutes[number]
        self._pipeline.control.report_samples(epoch, batch, samples_of(source.data_input, infos, substitutes))

    def _known_size(self, epoch: int) -> int | None:
        if self._planned is not None and epoch not in self._num_batches:
            if self._given is not None:
                return 0
            self._num_batches[epoch] = self._planned.num_batches_in_epoch(epoch)
        return self._num_batches.get(epoch)

    def _following(self, position: Position) -> Position | None:
        epoch, batch = position
        held_back = self._pipeline.held_back
        if held_back is not None and (epoch, batch + 1) >= held_back[0]:
            return None
        size = self._known_size(epoch)
        if size is None or batch + 1 < size:
            return epoch, batch + 1
        if self._given is not None:  # which says nothing of other epochs yet
            return None
        return (epoch + 1, 0) if self._planned is not None and self._known_size(epoch + 1) else None

    # --- requests; all are called with the lock ---------------------------------------------------

    def _prepare(self, number: int) -> None:
        actor = self._actors.by_number[number]
        ref = actor.handle.prepare.remote(self._plan, self._payload, self._blocked_after)
        self._asked[ref] = _Asked(number)

    def _send(self) -> None:
        if self._is_closed or self._fatal is not None:
            return
        for call in self._dispatch.due_calls(time.monotonic()):
            requests = [(*part.position, part.slots) for part in call.parts]
            handle = self._actors.by_number[call.member].handle
            ref = handle.load.remote(self._plan, requests, self._actors.workers.shared_by, self._order_ref)
            self._asked[ref] = _Asked(call.member, call)

    @property
    def num_loaded(self) -> int:
        """How many batches are loaded, and not handed over."""
        return self._dispatch.num_loaded  # without the lock: requests are sent with it

    def work(self) -> list[Work]:
        """What each actor has loaded; in place of a process it has the number of the actor, as -1, -2, ..."""
        with self._lock:
            return [Work(-1 - number, *counts) for number, counts in self._work.items()]

    def cpu_ns(self) -> dict[int, int]:
        """Processor time of each actor for what it has loaded, by its number as in `work`."""
        with self._lock:
            return {-1 - number: spent for number, spent in self._cpu_ns.items()}

    def uses(self) -> list[ActorUse]:
        """What each actor has done."""
        with self._lock:
            return [self._use(number, actor) for number, actor in sorted(self._actors.by_number.items())]

    def _use(self, number: int, actor: Actor) -> ActorUse:
        host, pid = ("", 0) if actor.facts is None else (actor.facts.host, actor.facts.pid)
        counts, (busy_s, way_s) = self._work.get(number, [0] * 6), self._dispatch.spent(number)
        return ActorUse(number, host, pid, counts[3], busy_s, way_s, actor.num_replaced)

    # --- answers, in the receiver thread ----------------------------------------------------------

    def receive(self) -> bool:
        """Take what has come, wait a moment for it; return whether to go on."""
        ray = self._actors.ray
        with self._lock:
            if self._is_closed or not ray.is_initialized():
                return False
            self._ask_for_members(time.monotonic())
            refs = [*self._asked]
            if not refs:
                self._lock.wait(_POLL_S)
                self._send()  # e.g. since nothing is held back any more
                return True
        ready, rest = ray.wait(refs, num_returns=1, timeout=_POLL_S)
        if ready and rest:
            ready += ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        came = _values(ray, ready)
        with self._lock:
            if self._is_closed:
                return False
            now = time.monotonic()
            for ref, (value, error) in zip(ready, came, strict=True):
                asked = self._asked.pop(ref, None)
                if asked is not None:
                    self._take(asked, value, error, now)
            if now - self._late_at > _LATE_EACH_S:
                self._late_at = now
                self._look_for_room(now)
                for number in self._dispatch.find_late(now):
                    self._replace(number)
            self._send()
            self._lock.notify_all()
        return True

    def _look_for_room(self, now: float) -> None:
        """Have patience with actors whose answers may have to wait for room in an object store."""
        while self._received and now - self._received[0][0] > _FREED_WITHIN_S:
            self._received.popleft()
        lately = sum(num_bytes for _, num_bytes in self._received)
        if lately + self.window * self._batch_bytes > _CROWDED_FROM * self._least_store_bytes:
            self._crowded_at = now
        is_crowded = now - self._crowded_at < _CROWDED_PATIENCE_S
        self._dispatch.least_patience_s = _CROWDED_PATIENCE_S if is_crowded else LEAST_PATIENCE_S
        if lately > _WARN_FROM * self._least_store_bytes and not self._has_warned:
            self._has_warned = True
            _logger.warning(
                "The actors send %.0f MB/s, and the smallest object store of the cluster has %.0f MB. Ray frees "
                "what was received up to a second later, and actors may have to wait for room. Give it more "
                "(`ray start --object-store-memory`).",
                lately / _FREED_WITHIN_S / 1e6,
                self._least_store_bytes / 1e6,
            )

    def _ask_for_members(self, now: float) -> None:
        pool = self._actors.workers.pool
        if pool is not None and now - self._members_at > _MEMBERS_EACH_S:
            self._members_at = now
            ref = pool.members()
            self._asked[ref] = _Asked(_KEEPER)

    def fail(self, error: Exception) -> None:
        """Have an error raised where the next batch is due."""
        with self._lock:
            self._fatal = (
                error if isinstance(error, FrameworkError) else WorkerDiedError(f"Ray has failed: {error}")
            )
            self._lock.notify_all()

    def _take(self, asked: _Asked, value: Any, error: Exception | None, now: float) -> None:
        number = asked.number
        if number == _KEEPER:
            if error is not None:
                self._fatal = WorkerDiedError(f"The pool of actors was closed, or its machine is gone: {error}")
                return
            new, gone = self._actors.set_members(value)
            for each in gone:
                self._forget(each)
                del self._actors.by_number[each]
            for each in new:
                self._prepare(each)
            if new or gone:
                self._fit_window()
        elif error is not None:
            self._lost(number, error)
        elif asked.call is None:
            self._is_ready(number, value, now)
        elif value[0].blocked is not None:
            self._count_loss(number, f"stood still for {value[0].seconds:.1f} s, and is ended", value[0].blocked)
            self._forget(number, value[0].blocked)
            self._prepare(number)  # it ends then
        elif value[0].has_no_plan:  # Ray has started it anew
            self._lost(number, None)
        else:
            self._received.append((now, sum(answer.num_bytes for answer in value)))
            self._add_work(number, value)
            self._dispatch.answered(asked.call, value, sum(answer.seconds for answer in value), now)

    def _add_work(self, number: int, answers: Sequence[Answer]) -> None:
        counts = self._work.setdefault(number, [0] * 6)
        for answer in answers:
            spent = (*answer.work_ns, len(answer.slots), answer.num_bytes, 1)
            counts[:] = map(sum, zip(counts, spent, strict=True))
            self._cpu_ns[number] += answer.cpu_ns
            if answer.num_bytes > self._most_bytes:
                self._dispatch.part_bytes = self._most_bytes = answer.num_bytes
                share = max(1, len(answer.slots)) / self._source.batch_size
                self._batch_bytes = int(answer.num_bytes / min(1.0, share))
                if self._batch_bytes > self._store_bytes:
                    self._fatal = OutputError(
                        f"A batch takes {self._batch_bytes / 1e6:.0f} MB, and the object store of this machine "
                        f"has {self._store_bytes / 1e6:.0f} MB: there is no room for one. Give it more (`ray "
                        f"start --object-store-memory`), or load smaller batches."
                    )
                self._fit_window()

    def _fit_window(self) -> None:
        """Request what keeps all actors at work, and no more than half of the object store has room for."""
        wanted = self._actors.workers.most_ahead(len(self._actors.by_number), self._batch_bytes)
        most = self._store_bytes // 2 // self._batch_bytes if self._batch_bytes else wanted
        self.window = self._dispatch.window = max(1, min(wanted, most))

    def _is_ready(self, number: int, facts: ActorFacts | str, now: float) -> None:
        if isinstance(facts, str):
            report = WorkerReport.find(RuntimeError(facts))
            if report is not None and report.is_of_missing_package:
                advice = (
                    "The machines of the cluster lack a module that this process has. Have it sent: "
                    'RayWorkers(runtime_env={"py_modules": ["path/of/my_package"]}), or {"pip": [...]}.'
                )
                report = report.with_note(advice)
            self._fatal = WorkerStartError(facts) if report is None else report.to_error()
            return
        difference = difference_of(facts)
        if difference:
            message = (
                f"The actor on {facts.host} cannot deliver the same bits as this process: {difference}. Install "
                f"the same versions there, or have the actors run elsewhere."
            )
            if self._dispatch.num_ready or self._num_pending(number):
                _logger.warning("%s It is not used.", message)
            else:
                self._fatal = WorkerStartError(message)
            return
        self._actors.by_number[number].facts = facts
        self._dispatch.join(number, now)

    def _num_pending(self, but: int) -> int:
        return sum(asked.call is None and asked.number != but for asked in self._asked.values())

    def _lost(self, number: int, error: Exception | None) -> None:
        """An actor has died, or its answer was lost: others are asked, and it is to get ready again."""
        actor = self._actors.by_number[number]
        is_dead = isinstance(error, self._actors.ray.exceptions.ActorDiedError)  # else it is started anew
        if is_dead and actor.facts is None and self._actors.workers.pool is None:
            lacks = "ModuleNotFoundError" in str(error)
            advice = "Install it there, or name it in RayWorkers(runtime_env=...)." if lacks else ""
            text = " ".join(str(error).split())[-_LONGEST_TEXT:]
            self._fatal = WorkerStartError(f"An actor could not be made: {text}. {advice}".strip())
            return
        if is_dead and self._actors.workers.pool is not None:
            _logger.info("Actor %d was ended by its pool.", number)
        elif actor.facts is not None:
            kind = "it does not know its plan" if error is None else type(error).__name__
            self._count_loss(number, f"was lost ({kind})", None)
        self._forget(number)
        if not is_dead:
            self._prepare(number)
            return
        del self._actors.by_number[number]
        self._fit_window()
        if not self._actors.by_number and self._actors.workers.pool is None:
            self._fatal = WorkerDiedError("All actors were ended from outside, and are not started anew.")

    def _replace(self, number: int) -> None:
        self._count_loss(number, "did not answer, and is ended", None)
        self._actors.replace(number)
        self._forget(number)
        self._prepare(number)

    def _count_loss(self, number: int, what: str, place: tuple[int, int, int] | None) -> None:
        """An actor is lost: note it, and end the run where that may not be."""
        actors, actor = self._actors, self._actors.by_number[number]
        actor.num_replaced += 1
        actors.num_lost += 1
        where = "" if actor.facts is None else f" on {actor.facts.place}"
        positions, loading = self._dispatch.at_work(number), {}
        work = ", ".join(f"batch {batch} of epoch {epoch}" for epoch, batch in positions[:1])
        work += f" or one of {len(positions) - 1} after it" * (len(positions) > 1)
        if place is not None:
            loading[place] = self._index_at(place)
            work = describe_place(loading[place], place)
        text = f"Actor {number}{where} {what}{f', while it loaded {work}' if work else ''}."
        _logger.warning("%s Others load in its place.", text)
        if actors.most_lost is not None and actors.num_lost > actors.most_lost:
            self._fatal = WorkerDiedError(
                f"{text} More actors were lost than may be: restarts={actors.most_lost}."
            )
            self._fatal.loading = loading

    def _index_at(self, place: tuple[int, int, int]) -> int | None:
        return sample_index_at(self._source.data_input, place, self._source.batch_size)

    def _forget(self, number: int, stood_at: tuple[int, int, int] | None = None) -> None:
        for ref in [ref for ref, asked in self._asked.items() if asked.number == number]:
            del self._asked[ref]
        actor = self._actors.by_number[number]
        where = "" if actor.facts is None else f", at last actor {number} on {actor.facts.place}"
        actor.facts = None
        for part in self._dispatch.leave(number, stood_at):
            slot = part.slots[0] if part.slots else 0
            place = (*part.position, slot)
            index = self._index_at(place)
            error = WorkerDiedError(
                f"Several actors were lost while they loaded {describe_place(index, place)}{where}. Has it more "
                f"than their memory, does it crash a library, or stand still? Load it here, with num_workers=0."
            )
            error.loading, error.is_repeated = {place: index}, True
            self._dispatch.answer(part, error)


def _values(ray: Any, refs: Sequence[Any]) -> list[tuple[Any, Exception | None]]:
    """Get the values of references, or why they are not there; together, which costs less than one by one."""
    try:
        return [(value, None) for value in ray.get(refs)]
    except Exception as error:
        if len(refs) == 1:
            return [(None, error)]
        return [pair for ref in refs for pair in _values(ray, [ref])]


def _receive(reference: weakref.ref[RayLoading]) -> None:
    """Body of the receiver thread; it ends with the loading."""
    while True:
        loading = reference()
        try:
            if loading is None or not loading.receive():
                return
        except Exception as error:
            if loading is not None:
                loading.fail(error)
            return
        del loading
