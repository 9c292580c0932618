"""Workers of a pool that do what a test says."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Any

from support.providers import IndexProvider

from accvlab.dali_pipeline_framework.faults.fault_policy import FailedSamples, FaultPolicy
from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable
from accvlab.dali_pipeline_framework.sampling import SequentialSampler
from accvlab.dali_pipeline_framework.workers.local import Gone
from accvlab.dali_pipeline_framework.workers.messages import Loaded, Task, Work
from accvlab.dali_pipeline_framework.workers.plans import BatchPlan
from accvlab.dali_pipeline_framework.workers.pool.pool import Pool, PoolSettings
from accvlab.dali_pipeline_framework.workers.process import Ready


class ScriptedWorkers:
    """With each wait, a batch is loaded, or ends its worker: in the order of a script, then as it comes.

    Attributes:
        inbox: Messages of workers, by their numbers.
        sent: Positions of the batches that were requested.
        num_starts: How often a worker was started.
        num_repairs: How often an interrupted call was mended.
    """

    most_tasks, starts_late, most_bytes, last_sent = 2, False, math.inf, -1

    def __init__(self, script: Iterable[tuple[str, int]] = (), batch_bytes: int = 1000) -> None:
        self.inbox: deque[tuple[int, Any]] = deque()
        self.sent: list[tuple[int, int]] = []
        self.num_starts = self.num_repairs = self._num_idle_waits = 0
        self._script = deque(script)
        self._work = Work(num_bytes=batch_bytes)
        self._tasks: dict[int, list[Task]] = {}

    @property
    def numbers(self) -> list[int]:
        return [*self._tasks]

    def start(self, number: int) -> None:
        self._tasks[number] = []
        self.num_starts += 1
        self.inbox.append((number, Ready(0)))

    def send(self, number: int, task: Task) -> None:
        self.sent.append(task.position)
        self._tasks[number].append(task)
        self.last_sent = task.number

    def wait(self, timeout_s: float) -> None:
        due = {tasks[0].position: (number, tasks[0]) for number, tasks in self._tasks.items() if tasks}
        if not timeout_s or not due:
            self._num_idle_waits += bool(timeout_s)
            assert self._num_idle_waits < 1000, "the pool waits for a batch that no worker has"
            return
        what, batch = self._script.popleft() if self._script else ("loads", None)
        number, task = due[min(due) if batch is None else (0, batch)]
        if what == "loads":
            self.inbox.append((number, Loaded(task.number, [], range(1), self._work)))
            self._tasks[number].remove(task)
        else:
            self.inbox.append((number, Gone("was killed", 1, was_killed=True)))
            del self._tasks[number]

    def _nothing(self, *arguments: Any) -> None: ...

    def repair(self) -> None:
        self.num_repairs += 1

    prepare = recycle = forget_before = kill = close = is_stopped = described = pid = at_work = _nothing


def pool_of(num_batches: int, workers: Any, settings: PoolSettings, failed: FailedSamples | None = None) -> Pool:
    """A pool that has started, of batches of one sample; by default samples that fail raise."""
    plan = BatchPlan(SamplerInputCallable(IndexProvider(num_batches), SequentialSampler(num_batches, 1)), 1)
    pool = Pool(plan, workers, settings, failed or FailedSamples(FaultPolicy()))
    pool.start()
    return pool
