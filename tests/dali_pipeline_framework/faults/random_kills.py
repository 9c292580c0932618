"""Workers that are killed at random moments, by seeds."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from disturbed_loaders import Sample, loader_of, samples_of, undisturbed
from support.fault_providers import DeadlyProvider, ImageProvider
from support.pipelines import worker_pids

from accvlab.dali_pipeline_framework import FaultPolicy
from accvlab.dali_pipeline_framework.errors import WorkerDiedError

NUM_SAMPLES = 60
BATCH_SIZE = 4


class Killer:
    """Kills or stops workers at random moments: most while batches are loaded, some while workers start.

    Attributes:
        left: The signals that are to be sent.
        num_received: Batches that the loop has received; it counts them.
    """

    def __init__(self, seed: int, signals: Sequence[signal.Signals], longest_rest_s: float) -> None:
        self._random = random.Random(seed)
        self.left = self._random.sample(signals, len(signals))
        self.num_received = 0
        self._longest_rest_s = longest_rest_s
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._has_ended.set()
        self._thread.join()

    def _run(self) -> None:
        number_at_kill = -1
        while self.left:
            # Two in a row may hit workers that start; the next one waits until these have delivered.
            while len(self.left) % 3 and self.num_received == number_at_kill:
                if self._has_ended.wait(0.005):
                    return
            if self._has_ended.wait(self._random.uniform(0, self._longest_rest_s)):
                return
            pids = worker_pids()
            number_at_kill = self.num_received
            if pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._random.choice(pids), self.left[-1])
                    self.left.pop()


def run_with_kills(
    folder: Path,
    seed: int,
    start_method: str,
    num_workers: int,
    num_kills: int,
    num_stops: int = 0,
    samples: str = "raise",
    longest_rest_s: float = 0.3,
) -> None:
    """Compare as many epochs as it takes with the undisturbed ones.

    Two signals may hit the same sample by chance: it has ended two workers then, and fails. So does one that seems
    to stand still, in a worker that the machine lets wait; these are not counted.
    """
    provider = DeadlyProvider(folder, "kill", {}, NUM_SAMPLES, pace_s=0.01)
    blocked_after = 0.4 if num_stops else None
    faults = FaultPolicy(samples=samples, restarts=10 * (num_kills + num_stops), blocked_after=blocked_after)
    num_allowed = (num_kills + num_stops) // 4  # by chance
    signals = [signal.SIGKILL] * num_kills + [signal.SIGSTOP] * num_stops
    epoch, per_epoch = 0, NUM_SAMPLES // BATCH_SIZE
    with (
        loader_of(provider, num_workers=num_workers, start_method=start_method, faults=faults) as loader,
        contextlib.ExitStack() as stack,
    ):
        loader.start()
        killer = stack.enter_context(Killer(seed, signals, longest_rest_s))
        while epoch < 2 or killer.left:
            loader.set_epoch(epoch % 2)
            received: list[Sample] = []
            is_complete = False
            while not is_complete:
                try:
                    for batch in loader:
                        received += samples_of(batch)
                        killer.num_received += 1
                    is_complete = True
                except WorkerDiedError as error:
                    if "has ended two workers" not in str(error):
                        raise
                    loader.load_state_dict(loader.state_dict())
            failed = {each.sample_index: each.reason for each in loader.failed_samples}
            due = undisturbed(ImageProvider, NUM_SAMPLES)[epoch % 2 * per_epoch :][:per_epoch]
            for got, expected in zip(received, itertools.chain(*due), strict=True):
                assert got == expected or expected[0] in failed
            assert sum("stood still" not in reason for reason in failed.values()) <= num_allowed
            epoch += 1
