# SPDX-License-Identifier: Apache-2.0
"""Actors of a Ray cluster as the workers of a pool.

::

    this process   begin ──────────> actor ─> None, or why it cannot be set up
                   load(task) ─────> loads a batch ─> Loaded (read in the object store), Failed, Ended
                   at_work() ──────> what it is at, each second, from another thread
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np

from ...errors import FrameworkError, OutputError, WorkerStartError
from ...forks import keep_forever, left_to_parent
from ..loading_plan import LoadingPlan
from ..local import Gone
from ..messages import Failed, Loaded, Task
from ..pickling import by_value_from_main_script
from ..process import Ready, StartFailed
from ..process_setup import comes_from_signal_handler
from ..reports import WorkerReport
from .loading_actor import ActorFacts, LoadingActor, own_values, take_progress
from .ray_cluster import connected_ray, missing_room, refused_environment, sent_by_job, store_sizes
from .ray_settings import RayWorkers

_logger = logging.getLogger(__name__)

_POLL_EACH_S = 1.0
_ROOM_AGAIN_S = 1.0
_LONGEST_READING_S = 10.0  # of what a dead actor was at
_LONGEST_STACK_S = 1.0
_LONGEST_TEXT = 300
_HANDING_OVER = -5
"""What an actor is at that has loaded a batch, which has not come."""

_LACKS_MODULE = (
    "The machines of the cluster lack a module that this process has. Have it sent: "
    'RayWorkers(runtime_env={"py_modules": ["path/of/my_package"]}), or {"pip": [...]}.'
)


@attrs.define(eq=False)
class _Actor:
    """An actor, as this process sees it.

    Attributes:
        number: Number of the worker.
        handle: Ray's handle.
        facts: What it says of itself; None: it has not started.
        is_ready: Whether it is set up.
        tasks: Numbers of the tasks that it has not answered, in order.
        stage: What it was at by its last report.
        still_s: For how long, then.
        polled_at: When it was asked last what it is at.
        awaits_report: Whether it has not answered that.
        lost_at: When it was lost.
        how: Why; empty where it was not.
    """

    number: int
    handle: Any
    facts: ActorFacts | None = None
    is_ready: bool = False
    tasks: list[int] = attrs.Factory(list)
    stage: int = 0
    still_s: float = 0.0
    polled_at: float = 0.0
    awaits_report: bool = False
    lost_at: float = 0.0
    how: str = ""


@attrs.define(eq=False)
class _Asked:
    """What was asked for: of which actor, what takes the answer or Ray's error, and the number of the task."""

    actor: _Actor
    take: Callable[[_Asked, Any, Any], None]
    task: int = -1


@contextlib.contextmanager
def _signals_passed_on() -> Iterator[None]:
    """Raise what a signal handler has raised; Ray makes other errors of it."""
    try:
        yield
    except SystemError as error:  # a function has returned a result as well
        raise error.__cause__ or error from None
    except Exception as error:
        inner: Any = error
        while inner is not None and not comes_from_signal_handler(inner):
            inner = getattr(inner, "client_exc", None) or inner.__cause__ or inner.__context__
        raise inner or error from None


class RayActors:
    """The actors of a pool in a Ray cluster.

    They belong to this process: when it ends, however it does, Ray ends them.

    Attributes:
        most_tasks: How many tasks an actor has at a time: one is worked on, the others wait, or are on their way.
        starts_late: An actor waits for room in the cluster before it starts.
        last_sent: Not counted.
        most_bytes: Half of the object store of this machine.
        inbox: What has come, by number of the worker.
    """

    most_tasks, last_sent = 3, -1  # a task that was sent twice does no harm
    starts_late = True

    def __init__(self, plan: LoadingPlan, settings: RayWorkers) -> None:
        """Set up; nothing is started."""
        self._plan, self._settings, self._pid = plan, settings, os.getpid()
        self._ray: Any = None
        self._remote: Any = None  # the class of actors
        self._reading: Any = None  # the function that reads what one was at
        self._payload: Any = None
        self._store_bytes = 0
        self._by_number: dict[int, _Actor] = {}
        self._asked: dict[Any, _Asked] = {}  # by reference, in the order in which it was sent
        self._sending: tuple[int, Task] | None = None
        self._starting: _Actor | None = None
        self._num_started = 0
        self._waits_since: float | None = None  # for the first actor
        self._was_ready = False
        self.most_bytes = math.inf
        self.inbox: deque[tuple[int, Any]] = deque()
        left_to_parent(self, keep_forever)  # with references, which Ray counts

    # --- start ------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Connect to the cluster, and put what actors need into its object store.

        Raises:
            SourcePicklingError: The plan cannot be pickled.
            SettingError: Ray refuses the runtime environment.
            WorkerStartError: There is no cluster, or its object store has no room for the input.
        """
        if self._payload is not None:
            return
        pickler = by_value_from_main_script(self._plan.pickler)  # actors do not import the main script
        payload = attrs.evolve(self._plan, pickler=pickler).pickled()
        settings, ray = self._settings, connected_ray(self._settings)
        self._ray = ray
        self._store_bytes = store = store_sizes(ray).get(str(ray.get_runtime_context().get_node_id()), 0)
        self.most_bytes = store / 2
        if len(payload) > store:
            raise WorkerStartError(
                f"The input takes {len(payload) / 1e6:.0f} MB when it is pickled, and the object store of this "
                f"machine has {store / 1e6:.0f} MB. Have the data provider open its files on first use, and leave "
                f"what it has read out in `__getstate__`; or give the store more (`ray start "
                f"--object-store-memory`)."
            )
        options: dict[str, Any] = {"num_cpus": settings.num_cpus, "max_restarts": 0}
        sent = sent_by_job(settings)
        of_actors = {name: value for name, value in (settings.runtime_env or {}).items() if name not in sent}
        if of_actors:
            options["runtime_env"] = of_actors
        try:
            remote = ray.remote(concurrency_groups={"reports": 1})(LoadingActor)
            self._remote = remote.options(scheduling_strategy="SPREAD", **options)
        except (TypeError, ValueError) as error:
            raise refused_environment(settings, error) from error
        self._reading = ray.remote(num_cpus=0, max_retries=0)(take_progress)
        self._payload = ray.put(np.frombuffer(payload, np.uint8))

    def start(self, number: int) -> None:
        """Have an actor started, once the cluster has room for it."""
        self.prepare()
        self._by_number.pop(number, None)  # one that was lost
        try:
            actor = self._starting = _Actor(number, self._remote.remote(number))
        except (TypeError, ValueError) as error:
            raise refused_environment(self._settings, error) from error
        self._asked[self._of_reports(actor.handle.facts).remote()] = _Asked(actor, self._take_facts)
        self._asked[actor.handle.begin.remote(self._payload)] = _Asked(actor, self._take_begun)
        self._by_number[number] = actor
        self._starting = None

    def _of_reports(self, method: Any) -> Any:
        return method.options(concurrency_group="reports")

    def _take_facts(self, asked: _Asked, facts: ActorFacts, error: Any) -> None:
        actor = asked.actor
        if error is not None:
            self._fail(actor, error)
            return
        actor.facts = facts
        values = [(name, facts.values.get(name), value) for name, value in own_values().items()]
        different = "; ".join(
            f"{name}: {there} there, {here} here" for name, there, here in values if there != here
        )
        if not different:
            return
        message = (
            f"The actor on {facts.host} cannot deliver the same bits as this process: {different}. Install the "
            f"same versions there, or have the actors run elsewhere."
        )
        others = [each for each in self._by_number.values() if each is not actor and not each.how]
        self._drop(actor)  # it stays, so that no other one is started there
        if any(each.is_ready or each.facts is None for each in others):
            _logger.warning("%s It is not used.", message)
        else:
            self._refuse(actor, WorkerStartError(message))

    def _take_begun(self, asked: _Asked, report: WorkerReport | None, error: Any) -> None:
        actor = asked.actor
        if error is not None:
            self._fail(actor, error)
        elif report is not None:
            if report.is_of_missing_package:
                report = report.with_note(_LACKS_MODULE)
            self._refuse(actor, StartFailed(report))
        else:
            self._num_started += 1
            # Its process is one of another machine, where numbers of processes are others.
            self.inbox.append((actor.number, Ready(-self._num_started)))
            actor.is_ready = self._was_ready = True
            _logger.info("Actor %d loads on %s.", actor.number, actor.facts.place if actor.facts else "?")

    def _refuse(self, actor: _Actor, why: FrameworkError | StartFailed) -> None:
        """Say that no actor can load this; the next try starts another one."""
        self.inbox.append((actor.number, why))
        self._end(actor)
        self._gone(actor, 0)

    # --- messages ---------------------------------------------------------------------------------

    def send(self, number: int, task: Task) -> None:
        """Send a task to an actor; one that is lost is found to be."""
        actor = self._by_number[number]
        if actor.how:
            return
        self._sending = number, task
        actor.tasks.append(task.number)
        self._asked[actor.handle.load.remote(task)] = _Asked(actor, self._take_answer, task.number)
        self._sending = None

    def repair(self) -> None:
        """After an exception in the middle: undo a start, and send again what may have been sent.

        Two answers do no harm.
        """
        starting, self._starting = self._starting, None
        if starting is not None and self._by_number.get(starting.number) is not starting:
            self._drop(starting)
            self._end(starting)
        sending, self._sending = self._sending, None
        if sending is not None and sending[0] in self._by_number:
            self.send(*sending)

    def recycle(self, loaded: Loaded) -> None:
        """Give the memory of a batch back to the object store."""
        loaded.outputs = ()

    def forget_before(self, number: int) -> None:
        """Have actors leave out tasks with smaller numbers."""
        for actor in self._by_number.values():
            if actor.is_ready and not actor.how:
                self._of_reports(actor.handle.forget_before).remote(number)

    def wait(self, timeout_s: float) -> None:
        """Wait until something has come, and put it into the inbox."""
        ray, now = self._ray, time.monotonic()
        for actor in [*self._by_number.values()]:
            self._poll(actor, now)
        refs = [*self._asked]
        if refs:
            with _signals_passed_on():
                ready, _ = ray.wait(refs, num_returns=1 if timeout_s else len(refs), timeout=timeout_s)
            for ref in ready:
                self._take(ref)
        if not self._was_ready:
            self._refuse_if_late(time.monotonic())

    def _take(self, ref: Any) -> None:
        asked = self._asked.get(ref)
        if asked is not None and self._by_number.get(asked.actor.number) is asked.actor:
            value = error = None
            try:
                with _signals_passed_on():
                    value = self._ray.get(ref)
            except self._ray.exceptions.RayError as caught:
                error = caught
            asked.take(asked, value, error)
        self._asked.pop(ref, None)

    def _take_answer(self, asked: _Asked, answer: Any, error: Any) -> None:
        actor = asked.actor
        if isinstance(error, self._ray.exceptions.RayTaskError):  # it lives, but could not send what it has loaded
            report = WorkerReport.of_exception(error.cause or error, self._place(actor), None, "Sending a batch")
            answer = Failed(asked.task, report)
        elif error is not None:
            self._fail(actor, error)
            return
        if isinstance(answer, Loaded):
            num_bytes, store = answer.work.num_bytes, self._store_bytes
            if num_bytes > store:
                error = OutputError(
                    f"A batch takes {num_bytes / 1e6:.0f} MB, and the object store of this machine has "
                    f"{store / 1e6:.0f} MB: there is no room for one. Give it more (`ray start "
                    f"--object-store-memory`), or load smaller batches."
                )
                self._refuse(actor, error)
                return
        self.inbox.append((actor.number, answer))
        if asked.task in actor.tasks:
            actor.tasks.remove(asked.task)

    def _poll(self, actor: _Actor, now: float) -> None:
        """Have an actor say what it is at, each second; a lost one of which nothing comes is given up."""
        if actor.how:
            if actor.lost_at and now - actor.lost_at > _LONGEST_READING_S:
                self._gone(actor, 0)
        elif actor.facts is not None and not actor.awaits_report and now - actor.polled_at > _POLL_EACH_S:
            actor.polled_at, actor.awaits_report = now, True
            self._asked[self._of_reports(actor.handle.at_work).remote()] = _Asked(actor, self._take_report)

    def _take_report(self, asked: _Asked, report: tuple[int, float], error: Any) -> None:
        if error is not None:
            self._fail(asked.actor, error)
        else:
            asked.actor.awaits_report = False
            asked.actor.stage, asked.actor.still_s = report

    def _refuse_if_late(self, now: float) -> None:
        """Raise an error where no actor starts."""
        self._waits_since = self._waits_since or now
        waited = now - self._waits_since
        limit, actor = self._settings.start_within_s, next(iter(self._by_number.values()), None)
        if actor is None or waited <= min(_ROOM_AGAIN_S, limit):
            return
        reason, is_impossible = missing_room(self._ray, self._settings.num_cpus)
        if waited > limit or is_impossible:
            reason = reason or "none has answered, for a reason that the logs of Ray may say"
            error = WorkerStartError(
                f"None of {self._settings.num_actors} actors has started within {waited:.0f} s: {reason}. Give "
                f"RayWorkers fewer CPUs per actor (num_cpus), end what holds them, or add machines."
            )
            self.inbox.append((actor.number, error))
            self._waits_since = None

    # --- end --------------------------------------------------------------------------------------

    def kill(self, number: int, why: str) -> None:
        """End an actor; another one takes its place before its process has ended."""
        actor = self._by_number[number]
        self._lose(actor, f"was ended by the loader, since it {why}")
        self._end(actor)

    def _fail(self, actor: _Actor, error: Any) -> None:
        """An actor has died, or what it has loaded is lost."""
        text = " ".join(str(error).split())
        if actor.facts is None and ("creation task" in text or "runtime env" in text):
            advice = "Install it there, or name it in RayWorkers(runtime_env=...)." * (
                "ModuleNotFoundError" in text
            )
            message = f"An actor could not be made: {text[-_LONGEST_TEXT:]}. {advice}".strip()
            self._refuse(actor, WorkerStartError(message))
            return
        text = text.partition("The actor is dead because ")[2] or text
        text = text.partition(" Some common causes")[0][:_LONGEST_TEXT].rstrip(". ")
        self._lose(actor, f"was lost ({type(error).__name__}: {text})")
        self._end(actor)  # it may live, and only its answer be lost

    def _lose(self, actor: _Actor, how: str) -> None:
        """Find out what a lost actor was at. What it has sent before comes meanwhile; then it is gone."""
        if actor.how:
            return
        actor.how, actor.lost_at = how, time.monotonic()
        if actor.facts is None:
            self._gone(actor, 0)
            return
        strategies = self._ray.util.scheduling_strategies
        there = strategies.NodeAffinitySchedulingStrategy(actor.facts.node, soft=False)
        ref = self._reading.options(scheduling_strategy=there).remote(actor.facts.progress)
        self._asked[ref] = _Asked(actor, self._take_progress)

    def _take_progress(self, asked: _Asked, progress: tuple[int, int], error: Any) -> None:
        number, stage = (0, 0) if error is not None else progress
        if stage > 0 and [number] != asked.actor.tasks[:1]:  # the answer to another one before it is lost as well
            stage = 0
        self._gone(asked.actor, stage)

    def _gone(self, actor: _Actor, stage: int) -> None:
        actor.how, actor.lost_at = actor.how or "was refused", 0.0
        self.inbox.append((actor.number, Gone(f"{self._place(actor)} {actor.how}", stage, was_killed=True)))
        self._drop(actor)

    def _drop(self, actor: _Actor) -> None:
        for ref in [ref for ref, asked in self._asked.items() if asked.actor is actor]:
            del self._asked[ref]

    def _end(self, actor: _Actor) -> None:
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(actor.handle)

    def close(self) -> None:
        """End all actors; nothing in a process that was forked from this one."""
        if os.getpid() != self._pid:
            return
        actors, self._by_number = self._by_number, {}
        self._asked.clear()
        if self._ray is not None and self._ray.is_initialized():  # else its functions would start a cluster
            for actor in actors.values():
                with contextlib.suppress(Exception):
                    self._ray.kill(actor.handle)

    # --- what they are at -------------------------------------------------------------------------

    @property
    def numbers(self) -> list[int]:
        """The workers that run, or that the cluster has no room for yet."""
        return [*self._by_number]

    def at_work(self, number: int) -> tuple[int, float]:
        """What an actor is at, and since when; one that does not answer is where it was, for as long."""
        actor, now = self._by_number[number], time.monotonic()
        if actor.facts is None or actor.how:  # it waits for room, and for nothing of its own
            return 0, now
        silent_s = now - actor.polled_at if actor.awaits_report else 0.0
        if actor.stage == 0 and actor.tasks:
            return _HANDING_OVER, now - silent_s
        return actor.stage, now - (silent_s + actor.still_s if actor.stage else 0.0)

    def is_stopped(self, number: int) -> bool:
        """Whether an actor was stopped by a signal: it is found by its silence."""
        return False

    def described(self, number: int) -> str:
        """Name an actor, with its stack."""
        actor = self._by_number[number]
        if actor.facts is None:
            return f"({self._place(actor)}: {missing_room(self._ray, self._settings.num_cpus)[0] or 'it starts'})"
        try:
            stack = self._ray.get(self._of_reports(actor.handle.stack).remote(), timeout=_LONGEST_STACK_S)
        except self._ray.exceptions.RayError:
            stack = "  (no answer)"
        return f"({self._place(actor)}):\n{stack}"

    def pid(self, number: int) -> int:
        """The process of an actor, on its machine; 0: it has none yet."""
        facts = self._by_number[number].facts
        return 0 if facts is None else facts.pid

    def _place(self, actor: _Actor) -> str:
        return f"actor {actor.number}{f' on {actor.facts.place}' if actor.facts else ''}"
