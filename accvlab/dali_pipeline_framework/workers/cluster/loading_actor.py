# SPDX-License-Identifier: Apache-2.0
"""What runs in an actor of a Ray cluster: a `BatchLoader`, and what it says of itself."""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import threading
import time
from collections.abc import Mapping
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..loading import BatchLoader, begun_loader
from ..messages import Answer, Ended, Task
from ..process_setup import ignore_interrupts
from ..reports import ReportedFailure, WorkerReport
from ..stacks import stack_of_thread

# What decodes, resizes or computes: with another version, other bits may come out.
_LIBRARIES = (
    *("accvlab.dali_pipeline_framework", "nvidia-dali-cuda120 nvidia-dali-cuda130", "numpy"),
    *("opencv-python-headless opencv-python", "simplejpeg", "av", "pillow"),
)


def own_values() -> dict[str, str]:
    """What the bits of a batch depend on, besides the plan: architecture, and versions of libraries."""
    return {"architecture": platform.machine(), **{names: _version(names) for names in _LIBRARIES}}


def _version(names: str) -> str:
    for name in names.split():
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return "not installed"


class ActorReport(NamedTuple):
    """What an actor says of itself.

    Attributes:
        place: Its machine and process, for people.
        node: Its node, by Ray's number.
        pid: Its process there.
        progress: The file there that says what it is at, also after it has died.
        stage: What it is at (see `LocalWorkers.at_work`).
        still_s: For how many seconds.
    """

    place: str
    node: str
    pid: int
    progress: str
    stage: int = 0
    still_s: float = 0.0


class LoadingActor:
    """Loads batches; a second thread answers `report`, `stack` and `forget_before` meanwhile."""

    def __init__(self, number: int) -> None:
        """Set the number of the worker."""
        import ray

        ignore_interrupts()
        context = ray.get_runtime_context()
        folder = os.path.join(context.get_temp_dir(), context.get_session_name())  # with the logs of this actor
        path = os.path.join(folder, f"loading_actor_{context.get_actor_id()}.progress")
        self._words: Any = np.memmap(path, np.int64, "w+", shape=(3,))  # stage, since when, task
        place = f"{socket.gethostname()} (process {os.getpid()})"
        self._report = ActorReport(place, str(context.get_node_id()), os.getpid(), path)
        self._number = number
        self._thread = self._first = 0
        self._loader: BatchLoader | None = None

    def begin(self, payload: npt.NDArray[np.uint8], wanted: Mapping[str, str]) -> WorkerReport | str | None:
        """Get set up, with what `LoadingPlan.pickled` has returned, where `own_values` are as wanted.

        Returns:
            Why that has failed, if it has, or in words which values are others.
        """
        self._thread = threading.get_ident()
        own = own_values()
        others = [f"{name}: {own[name]} there, {here} here" for name, here in wanted.items() if own[name] != here]
        if others:
            return (
                f"The actor on {self._report.place} cannot deliver the same bits as this process: "
                f"{'; '.join(others)}. Install the same versions there, or have the actors run elsewhere."
            )
        try:
            place = f"actor {self._number} on {self._report.place}"
            self._loader = begun_loader(payload.tobytes(), self._number, place, self._note)
        except ReportedFailure as failure:
            return failure.report
        return None

    def load(self, task: Task) -> Answer:
        """Load a batch."""
        if self._loader is None or task.number < self._first:  # nobody waits for it any more
            return Ended(task.number)
        self._words[2] = task.number
        return self._loader.load(task)

    def _note(self, stage: int) -> None:
        self._words[1] = time.monotonic_ns()
        self._words[0] = stage

    def report(self) -> ActorReport:
        """Say what this is, and what it is at."""
        still_s = (time.monotonic_ns() - int(self._words[1])) * 1e-9
        return self._report._replace(stage=int(self._words[0]), still_s=still_s)

    def stack(self) -> str:
        """What the thread that loads executes."""
        return stack_of_thread(self._thread)

    def forget_before(self, number: int) -> None:
        """Leave out tasks with smaller numbers."""
        self._first = number


def take_progress(path: str) -> tuple[int, int]:
    """Get what an actor of this machine was at when it died: the number of the task, and the stage."""
    words = np.fromfile(path, np.int64)
    os.unlink(path)
    return int(words[2]), int(words[0])
