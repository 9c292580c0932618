# SPDX-License-Identifier: Apache-2.0
"""Actors of a Ray cluster as the workers of a pool.

::

    this process   begin(payload) ─> actor ─> None, or why it cannot be set up
                   load(task) ─────> loads a batch ─> Loaded (read in the object store), Failed, Ended
                   report() ───────> where it is, and what it is at, each second, from another thread

A thread of Ray notes each answer; all else is done by the calls of the pool.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from ...errors import FrameworkError, OutputError, WorkerStartError
from ...forks import keep_forever, left_to_parent
from ..loading_plan import LoadingPlan
from ..local import Gone
from ..messages import Answer, Failed, Loaded, Task
from ..pickling import by_value_from_main_script
from ..process import Ready, StartFailed
from ..reports import WorkerReport
from .loading_actor import ActorReport, LoadingActor, own_values, take_progress
from .ray_cluster import connected_ray, connection_of, described_room, environment_to_send, refused_environment
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
        report: What it has said of itself last; None: it has not started.
        is_other: Whether it has other versions of libraries: it stays, so that no other one is started there.
        tasks: Numbers of the tasks that it has not answered, in order.
        polled_at: When it was asked last for a report.
        awaits_report: Whether it has not answered that.
        lost_at: When it was lost.
        how: Why; empty if it was not.
    """

    number: int
    handle: Any
    report: ActorReport | None = None
    is_other: bool = False
    tasks: list[int] = attrs.Factory(list)
    polled_at: float = 0.0
    awaits_report: bool = True
    lost_at: float = 0.0
    how: str = ""

    @property
    def place(self) -> str:
        """Where it runs, for people."""
        return f"actor {self.number}{f' on {self.report.place}' if self.report else ''}"


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
        self._connection: Any = None  # to the cluster, with all that follows
        self._remote: Any = None  # the class of actors
        self._reading: Any = None  # the function that reads what one was at
        self._payload: Any = None
        self._store_bytes = 0
        self._by_number: dict[int, _Actor] = {}
        # Answers, each with its reference, the actor, what takes it, and the number of the task.
        self._came: deque[tuple[Any, _Actor, Callable[..., None], int, Any]] = deque()
        self._wakes = threading.Lock()  # released by answers; the pool's thread waits for that
        self._waits_since = 0.0  # for the first actor; infinite once there was one
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
        settings = self._settings
        self._ray = ray = connected_ray(settings)
        self._connection = connection_of(ray)
        here = ray.get_runtime_context().get_node_id()
        resources = next(node["Resources"] for node in ray.nodes() if node["NodeID"] == here)
        self._store_bytes = store = int(resources["object_store_memory"])
        self.most_bytes = store / 2
        if len(payload) > store:
            advice = "have the data provider open files on first use, and leave them out in `__getstate__`"
            raise WorkerStartError(self._no_room("The input, when it is pickled,", len(payload), advice))
        for method in (LoadingActor.report, LoadingActor.stack, LoadingActor.forget_before):
            ray.method(concurrency_group="reports")(method)
        options = {"num_cpus": settings.num_cpus, **environment_to_send(settings, ray)}
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
        actor = _Actor(number, self._remote.remote(number))
        self._ask(actor, RayActors._take_report, actor.handle.report)
        self._ask(actor, RayActors._take_begun, actor.handle.begin, self._payload, own_values())
        self._by_number[number] = actor

    def _ask(self, actor: _Actor, take: Callable[..., None], method: Any, *arguments: Any, task: int = -1) -> None:
        """Have the answer to a call, or Ray's error, taken by a function."""
        came, wakes, ref = self._came, self._wakes, method.remote(*arguments)

        def note(answer: Any) -> None:  # in a thread of Ray
            came.append((ref, actor, take, task, answer))
            with contextlib.suppress(RuntimeError):  # it was released already
                wakes.release()

        ref._on_completed(note)

    def _take_begun(self, actor: _Actor, problem: WorkerReport | str | None) -> None:
        if problem is None:
            self.inbox.append((actor.number, Ready(self.pid(actor.number))))
            self._waits_since = math.inf
        elif isinstance(problem, str):
            actor.is_other = True
            if any(not each.is_other and not each.how for each in self._by_number.values()):
                _logger.warning("%s It is not used.", problem)
            else:
                self._refuse(actor, WorkerStartError(problem))
        else:
            report = problem.with_note(_LACKS_MODULE) if problem.is_of_missing_package else problem
            self._refuse(actor, StartFailed(report))

    def _refuse(self, actor: _Actor, why: FrameworkError | StartFailed) -> None:
        """Say that no actor can load this; the next try starts another one."""
        self.inbox.append((actor.number, why))
        self._end(actor)
        self._gone(actor, 0)

    # --- messages ---------------------------------------------------------------------------------

    def send(self, number: int, task: Task) -> None:
        """Send a task to an actor; that one is lost may be in the inbox, or found out later."""
        actor = self._by_number.get(number)
        if actor is not None:
            self._ask(actor, RayActors._take_answer, actor.handle.load, task, task=task.number)
            actor.tasks.append(task.number)

    def repair(self) -> None:
        """Nothing: what may have been sent is sent again by the pool, and two answers do no harm."""

    def recycle(self, loaded: Loaded) -> None:
        """Give the memory of a batch back to the object store."""
        loaded.outputs = ()

    def forget_before(self, number: int) -> None:
        """Have actors leave out tasks with smaller numbers."""
        for actor in self._by_number.values():
            actor.handle.forget_before.remote(number)

    def wait(self, timeout_s: float) -> None:
        """Wait until something has come, and put it into the inbox."""
        if self._by_number and connection_of(self._ray) != self._connection:
            self._lose_all()
        for actor in [*self._by_number.values()]:
            self._poll(actor, time.monotonic())
        if timeout_s and not self._came:
            self._wakes.acquire(timeout=timeout_s)
        self._wakes.acquire(blocking=False)  # for what has come by now
        while self._came:
            self._take(*self._came[0][1:])
            self._came.popleft()
        if self._by_number and self._waits_since < math.inf:
            self._refuse_if_late(time.monotonic())

    def _lose_all(self) -> None:
        """The program has ended the connection. The next try makes another one, if there is a cluster."""
        error = WorkerStartError(
            "The connection of this process to the Ray cluster was ended (`ray.shutdown()`) while a loader had "
            "actors there. Close loaders before; or connect again (`ray.init(...)`) and go on with the loop: the "
            "actors are started anew."
        )
        gone = [(number, Gone(actor.place, 0, was_killed=True)) for number, actor in self._by_number.items()]
        self.inbox.extend([(gone[0][0], error), *gone])
        self._payload, self._waits_since = None, 0.0
        self._by_number.clear()

    def _take(self, actor: _Actor, take: Callable[..., None], task: int, answer: Any) -> None:
        if self._by_number.get(actor.number) is not actor:
            return
        errors = self._ray.exceptions
        if isinstance(answer, errors.RayTaskError) and task >= 0:  # it lives, but could not send a batch
            report = WorkerReport.of_exception(answer.cause or answer, actor.place, None, "Sending a batch")
            answer = Failed(task, report)
        if isinstance(answer, errors.RayError) and take is not RayActors._take_progress:
            self._fail(actor, answer)
        else:
            take(self, actor, answer)

    def _take_answer(self, actor: _Actor, answer: Answer) -> None:
        if isinstance(answer, Loaded) and answer.work.num_bytes > self._store_bytes:
            text = self._no_room("A batch", answer.work.num_bytes, "load smaller batches")
            self._refuse(actor, OutputError(text))
            return
        self.inbox.append((actor.number, answer))
        actor.tasks = [number for number in actor.tasks if number != answer.number]

    def _no_room(self, what: str, num_bytes: int, advice: str) -> str:
        return (
            f"{what} takes {num_bytes / 1e6:.0f} MB, and the object store of this machine has "
            f"{self._store_bytes / 1e6:.0f} MB: there is no room for one. Give it more (`ray start "
            f"--object-store-memory`), or {advice}."
        )

    def _poll(self, actor: _Actor, now: float) -> None:
        """Have an actor say what it is at, each second; a lost one of which nothing comes is given up."""
        if actor.how:
            if now - actor.lost_at > _LONGEST_READING_S:
                self._gone(actor, 0)
        elif not actor.awaits_report and now - actor.polled_at > _POLL_EACH_S:
            self._ask(actor, RayActors._take_report, actor.handle.report)
            actor.polled_at, actor.awaits_report = now, True

    def _take_report(self, actor: _Actor, report: ActorReport) -> None:
        actor.report, actor.awaits_report = report, False

    def _refuse_if_late(self, now: float) -> None:
        """Raise an error if no actor starts."""
        self._waits_since = self._waits_since or now
        waited, limit = now - self._waits_since, self._settings.start_within_s
        if waited <= min(_ROOM_AGAIN_S, limit):  # also after an error, which the pool takes first
            return
        room, is_possible = described_room(self._ray, self._settings.num_cpus)
        if waited > limit or not is_possible:
            error = WorkerStartError(
                f"None of {self._settings.num_actors} actors has started within {waited:.0f} s: {room}. If that "
                f"is too little, give RayWorkers fewer CPUs per actor (num_cpus), end what holds them, or add "
                f"machines; if not, the logs of Ray may say why."
            )
            self.inbox.append((next(iter(self._by_number)), error))
            self._waits_since = 0.0

    # --- end --------------------------------------------------------------------------------------

    def kill(self, number: int, why: str) -> None:
        """End an actor; another one takes its place before its process has ended."""
        actor = self._by_number[number]
        self._lose(actor, f"was ended by the loader, since it {why}")
        self._end(actor)

    def _fail(self, actor: _Actor, error: Any) -> None:
        """An actor has died, or what it has loaded is lost."""
        text = " ".join(str(error).split())
        if actor.report is None and ("creation task" in text or "runtime env" in text):
            advice = "What it lacks can be named in RayWorkers(runtime_env=...)."
            self._refuse(actor, WorkerStartError(f"An actor could not be made: {text[-_LONGEST_TEXT:]}. {advice}"))
            return
        text = text.partition("The actor is dead because ")[2] or text
        text = text.partition(" Some common causes")[0][:_LONGEST_TEXT].rstrip(". ")
        self._lose(actor, f"was lost ({type(error).__name__}: {text})")
        self._end(actor)  # it may live, and only its answer be lost

    def _lose(self, actor: _Actor, how: str) -> None:
        """Find out what a lost actor was at. What it has sent before comes meanwhile; then it is gone."""
        if actor.how:
            return
        actor.lost_at, actor.how = time.monotonic(), how
        if actor.report is None:
            self._gone(actor, 0)
            return
        strategies = self._ray.util.scheduling_strategies
        there = strategies.NodeAffinitySchedulingStrategy(actor.report.node, soft=False)
        reading = self._reading.options(scheduling_strategy=there)
        self._ask(actor, RayActors._take_progress, reading, actor.report.progress)

    def _take_progress(self, actor: _Actor, progress: Any) -> None:
        number, stage = progress if isinstance(progress, tuple) else (0, 0)  # else an error: the machine is gone
        if stage > 0 and [number] != actor.tasks[:1]:  # the answer to another one before it is lost as well
            stage = 0
        self._gone(actor, stage)

    def _gone(self, actor: _Actor, stage: int) -> None:
        how = f"{actor.place} {actor.how or 'was refused'}"
        self.inbox.append((actor.number, Gone(how, stage, was_killed=True)))
        self._by_number.pop(actor.number, None)

    def _end(self, actor: _Actor) -> None:
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(actor.handle)

    def close(self) -> None:
        """End all actors; nothing in a process that was forked from this one."""
        if os.getpid() != self._pid:
            return
        actors, self._by_number = self._by_number, {}
        self._came.clear()
        if actors and connection_of(self._ray) == self._connection:
            for actor in actors.values():
                self._end(actor)

    # --- what they are at -------------------------------------------------------------------------

    @property
    def numbers(self) -> list[int]:
        """The workers that run, or that the cluster has no room for yet."""
        return [*self._by_number]

    def at_work(self, number: int) -> tuple[int, float]:
        """What an actor is at, and since when; one that does not answer is where it was, for as long."""
        actor, now = self._by_number[number], time.monotonic()
        if actor.report is None or actor.how:  # it waits for room, and for nothing of its own
            return 0, now
        silent_s = now - actor.polled_at if actor.awaits_report else 0.0
        stage, still_s = actor.report.stage, actor.report.still_s
        if stage == 0 and actor.tasks:
            return _HANDING_OVER, now - silent_s
        return stage, now - (silent_s + still_s if stage else 0.0)

    def is_stopped(self, number: int) -> bool:
        """Whether an actor was stopped by a signal: it is found by its silence."""
        return False

    def described(self, number: int) -> str:
        """Name an actor, with its stack."""
        actor = self._by_number[number]
        if actor.report is None:
            return f"({actor.place} has not started: {described_room(self._ray, self._settings.num_cpus)[0]})"
        stack = "  (no answer)"
        with contextlib.suppress(self._ray.exceptions.RayError):
            stack = self._ray.get(actor.handle.stack.remote(), timeout=_LONGEST_STACK_S)
        return f"({actor.place}):\n{stack}"

    def pid(self, number: int) -> int:
        """The process of an actor, on its machine; 0: it has none yet."""
        report = self._by_number[number].report
        return 0 if report is None else report.pid
