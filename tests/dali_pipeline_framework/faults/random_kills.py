"""Workers that are killed at random moments, by seeds."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import signal
import threading
from pathlib import Path
from typing import Any

from support.fault_providers import DeadlyProvider, ImageProvider
from support.loaders import frozen
from support.pipelines import worker_pids

from accvlab.dali_pipeline_framework import DataLoader, FaultPolicy, ImageDecoder
from accvlab.dali_pipeline_framework.errors import WorkerDiedError
from accvlab.dali_pipeline_framework.processing_steps import HorizontalFlipper, ImageBrightnessContrastJitter

NUM_SAMPLES = 60
BATCH_SIZE = 4


def loader_of(provider: Any, **arguments: Any) -> DataLoader:
    steps = [
        ImageDecoder("image", use_device_mixed=True),
        HorizontalFlipper("image", prob=0.5),
        ImageBrightnessContrastJitter("image", brightness_range=(0.5, 1.5), contrast_range=(0.5, 1.5)),
    ]
    return DataLoader(
        provider, BATCH_SIZE, steps=steps, shuffle=True, seed=11, num_threads=1, output_type="numpy", **arguments
    )


@functools.cache
def undisturbed() -> tuple[Any, ...]:
    with loader_of(ImageProvider(NUM_SAMPLES), num_workers=0) as loader:
        return tuple(frozen(batch) for _ in range(2) for batch in loader)


class Killer:
    """Kills workers at random moments: most while batches are loaded or delivered, some while workers start.

    Attributes:
        num_left: How many are left to be killed.
        num_received: Batches that the loop has received; it counts them.
    """

    def __init__(self, seed: int, num_kills: int) -> None:
        self._random = random.Random(seed)
        self.num_left = num_kills
        self.num_received = 0
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
        while self.num_left:
            # Two in a row may hit workers that start; the next one waits until these have delivered.
            while self.num_left % 3 and self.num_received == number_at_kill:
                if self._has_ended.wait(0.005):
                    return
            if self._has_ended.wait(self._random.uniform(0, 0.3)):
                return
            pids = worker_pids()
            number_at_kill = self.num_received
            if pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._random.choice(pids), signal.SIGKILL)
                    self.num_left -= 1


def run_with_kills(folder: Path, seed: int, start_method: str, num_workers: int, num_kills: int) -> int:
    """Compare as many epochs as it takes with the undisturbed ones. Returns the number of batches."""
    provider = DeadlyProvider(folder, "kill", {}, NUM_SAMPLES, pace_s=0.02)
    faults = FaultPolicy(restarts=10 * num_kills)
    received, epoch = [], 0
    with (
        loader_of(provider, num_workers=num_workers, start_method=start_method, faults=faults) as loader,
        contextlib.ExitStack() as stack,
    ):
        loader.start()
        killer = stack.enter_context(Killer(seed, num_kills))
        # As many epochs as it takes; all have to be right.
        while epoch < 2 or (killer.num_left and epoch < 200):
            loader.set_epoch(epoch % 2)
            is_complete = False
            while not is_complete:
                try:
                    for batch in loader:
                        received.append(frozen(batch))
                        killer.num_received += 1
                    is_complete = True
                except WorkerDiedError as error:  # two kills have hit the same sample by chance
                    if "has ended two workers" not in str(error):
                        raise
                    loader.load_state_dict(loader.state_dict())
            epoch += 1
        assert killer.num_left == 0
    num_batches = NUM_SAMPLES // BATCH_SIZE
    expected = [undisturbed()[(epoch_of * num_batches) : (epoch_of + 1) * num_batches] for epoch_of in (0, 1)]
    for number in range(epoch):
        assert tuple(received[number * num_batches : (number + 1) * num_batches]) == expected[number % 2]
    assert len(received) == epoch * num_batches
    return len(received)
