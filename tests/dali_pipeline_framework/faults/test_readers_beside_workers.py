"""DALI's own readers beside workers that are killed or stand still: both go on at their exact place."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from disturbed_loaders import stream
from support.fault_providers import DeadlyProvider, ImageProvider
from support.loaders import frozen
from support.pipelines import worker_pids

from accvlab.dali_pipeline_framework import (
    DataLoader,
    FaultPolicy,
    FileReader,
    JoinedInput,
    SamplerInputCallable,
    ShuffledSampler,
)
from accvlab.dali_pipeline_framework.errors import SourceError, WorkerDiedError

pytestmark = pytest.mark.timeout(120)

NUM_EPOCHS = 3


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Files of one byte; as many as do not fit the other input, so that both get out of step."""
    folder = tmp_path_factory.mktemp("files")
    for number in range(37):
        (folder / f"{number:02}").write_bytes(bytes([number]) * (number + 1))
    return [str(path) for path in sorted(folder.iterdir())]


def joined_loader(files: list[str], provider: ImageProvider, **arguments: Any) -> DataLoader:
    index = SamplerInputCallable(provider, ShuffledSampler(provider.num_samples, 4, seed=3))
    reader = FileReader(files=files, random_shuffle=True, initial_fill=8, seed=11)
    settings = {"num_workers": 2, "start_method": "fork", "num_threads": 1, "output_type": "numpy", **arguments}
    return DataLoader(JoinedInput({"files": reader, "index": index}), 4, ragged="list", **settings)


@pytest.fixture(scope="module")
def undisturbed(files: list[str]) -> list[Any]:
    received = stream(joined_loader(files, ImageProvider()), NUM_EPOCHS)
    assert len(received) == 10 * NUM_EPOCHS
    return received


@pytest.mark.parametrize("fault", ["kill", "block", pytest.param("exit", marks=pytest.mark.wide)])
def test_the_stream_goes_on(tmp_path: Path, files: list[str], undisturbed: list[Any], fault: str) -> None:
    provider = DeadlyProvider(tmp_path, fault, {17: 1, 30: 1})
    received = stream(
        joined_loader(files, provider, faults=FaultPolicy(restarts=6, blocked_after=0.5)), NUM_EPOCHS
    )
    assert len([*tmp_path.iterdir()]) == 2
    assert received == undisturbed


def test_without_restarts_the_loop_goes_on_behind_the_error(
    tmp_path: Path, files: list[str], undisturbed: list[Any]
) -> None:
    received = []
    with joined_loader(files, DeadlyProvider(tmp_path, "kill", {17: 1})) as loader:
        loop = iter(loader)
        with pytest.raises(WorkerDiedError, match="sample 17"):
            received += map(frozen, loop)
        received += map(frozen, loop)
        received += map(frozen, loader)
    assert received == undisturbed[: len(received)]
    assert len(received) == 20


def test_a_batch_with_a_sample_that_ends_each_worker_is_tried_again(
    tmp_path: Path, files: list[str], undisturbed: list[Any]
) -> None:
    received, messages = [], []
    with joined_loader(files, DeadlyProvider(tmp_path, "kill", {17: 3}), faults=FaultPolicy(restarts=9)) as loader:
        loop = iter(loader)
        while True:
            try:
                received += map(frozen, loop)
                break
            except WorkerDiedError as error:
                messages.append(str(error))
    advice = "Native readers cannot step over its batch, so the next call tries it again."
    assert [advice in message for message in messages] == [True, True]  # the first time it was started again
    assert received == undisturbed[:10]


@pytest.mark.wide
@pytest.mark.parametrize("seed", range(12))
def test_kills_at_random_moments(files: list[str], undisturbed: list[Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    received: list[Any] = []
    with joined_loader(files, ImageProvider(), faults=FaultPolicy(restarts=100)) as loader:
        for _ in range(NUM_EPOCHS):
            for batch in loader:
                received.append(frozen(batch))
                if rng.random() < 0.3:
                    time.sleep(rng.random() * 0.05)
                    for pid in worker_pids()[: rng.integers(1, 3)]:
                        with contextlib.suppress(ProcessLookupError):  # DALI has ended it already
                            os.kill(pid, signal.SIGKILL if rng.random() < 0.7 else signal.SIGTERM)
    assert received == undisturbed


@pytest.mark.wide
def test_a_run_that_is_continued_is_disturbed(tmp_path: Path, files: list[str], undisturbed: list[Any]) -> None:
    with joined_loader(files, ImageProvider()) as loader:
        loop = iter(loader)
        for _ in range(13 - 10):
            next(loop)
        state = loader.state_dict()
    provider = DeadlyProvider(tmp_path, "kill", dict.fromkeys(range(0, 40, 13), 1))
    with joined_loader(files, provider, faults=FaultPolicy(restarts=10)) as loader:
        loader.load_state_dict(state)
        received = [frozen(batch) for _ in range(NUM_EPOCHS) for batch in loader]
    assert received == undisturbed[3:]


def test_a_sample_that_fails_ends_the_loop(tmp_path: Path, files: list[str]) -> None:
    """Readers cannot step over a batch, so there is nothing to go on with."""
    with joined_loader(files, DeadlyProvider(tmp_path, "fail", {17: 9})) as loader:
        loop = iter(loader)
        for _ in range(2):
            with pytest.raises(SourceError, match="sample 17"):
                list(loop)
