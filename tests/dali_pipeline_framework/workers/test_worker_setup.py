"""How worker processes begin: seeds of the global generators, and the user's `worker_init_fn`."""

from __future__ import annotations

import os
import random
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from random_provider import RandomProvider
from support.inputs import NumberCallable, NumberIterable
from support.loaders import make_loader
from support.pipelines import indices, make_iterator, shuffled
from support.providers import IndexProvider, PidProvider
from support.refusals import assert_refused
from support.start_methods import START_METHODS

from accvlab.dali_pipeline_framework.draws.keyed_draws import derive_key
from accvlab.dali_pipeline_framework.errors import SourceError, SourcePicklingError
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.workers import stacks
from accvlab.dali_pipeline_framework.workers.process_setup import is_running


def expected(seed: int, rank: int, worker: int) -> tuple[float, ...]:
    """What a worker draws first with each generator."""
    key = derive_key("worker", seed, rank, worker)
    numpy = np.random.RandomState([key & 0xFFFFFFFF, key >> 32])
    generator = torch.Generator().manual_seed(key)
    return random.Random(key).random(), numpy.random_sample(), torch.rand((), generator=generator).item()


def first_draws(num_workers: int = 2, **arguments: Any) -> set[tuple[float, ...]]:
    """What each worker draws for its first sample."""
    first: dict[int, tuple[float, ...]] = {}
    with make_loader(RandomProvider(12), 1, num_workers=num_workers, **arguments) as loader:
        for batch in loader:
            first.setdefault(batch["pid"].item(), tuple(batch["drawn"][0].tolist()))
    return set(first.values())


class OpenFileProvider(IndexProvider):
    """Has opened its file, of one byte per sample, in the constructor."""

    def __init__(self, path: Path) -> None:
        super().__init__(12)
        self.file = path.open("rb", buffering=0)
        self.file.seek(3)

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = super().get_data(sample_index)
        self.file.seek(sample_index)
        return sample


def test_forked_workers_have_their_own_positions_in_open_files(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(12)))
    provider = OpenFileProvider(path)
    with provider.file, make_loader(shuffled(provider, 1), num_workers=2, start_method="fork") as loader:
        assert len([*loader]) == 12
        assert provider.file.tell() == 3
        assert provider.file.read() == bytes(range(3, 12))


class TestGenerators:
    @pytest.mark.parametrize("method", START_METHODS)
    def test_of_each_worker_are_seeded(self, method: str) -> None:
        np.random.seed(5)  # forked workers inherit the state
        assert first_draws(start_method=method, seed=7) == {expected(7, 0, worker) for worker in range(2)}

    def test_ranks_differ(self) -> None:
        assert first_draws(1, start_method="fork", shard=(1, 2)) == {expected(0, 1, 0)}

    def test_the_rank_is_found_where_the_input_does_not_tell_a_shard(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RANK", "2")
        monkeypatch.setenv("WORLD_SIZE", "3")
        assert first_draws(1, start_method="fork", shard=(0, 1)) == {expected(0, 2, 0)}

    def test_of_this_process_are_left_alone(self) -> None:
        def states() -> Any:
            return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

        before = states()
        for num_workers in (0, 1):
            with make_loader(shuffled(IndexProvider(4)), num_workers=num_workers) as loader:
                list(loader)
        assert states() == before

    def test_of_a_forked_process_that_loads_itself_are_left_alone(self) -> None:
        """It is no worker, though it is not the process in which the loader was made."""
        with make_loader(shuffled(IndexProvider(4)), num_workers=0, worker_init_fn=fail) as loader:
            child = os.fork()
            if child == 0:
                torch.set_num_threads(3)
                random.seed(5)
                num_batches = len(list(loader))
                is_alone = torch.get_num_threads() == 3 and random.random() == random.Random(5).random()
                os._exit(0 if is_alone and num_batches else 1)
            assert os.waitpid(child, 0)[1] == 0


class Marker:
    """Writes one line per call: the worker number, the process, and whether it is called in the main thread."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, worker: int) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        with self.path.open("a") as file:
            file.write(f"{worker} {os.getpid()} {is_main}\n")

    def lines(self) -> list[list[str]]:
        return sorted(line.split() for line in self.path.read_text().splitlines()) if self.path.exists() else []


def fail(worker: int) -> None:
    raise LookupError(f"no data base for worker {worker}")


def leave(worker: int) -> None:
    raise SystemExit(3)


def test_processes_whose_names_are_cut_within_a_letter() -> None:
    """The kernel keeps 15 bytes of the name of a program: of Cyrillic letters, 7 and a half."""
    name = Path("/proc/self/comm")
    before = name.read_bytes()
    name.write_bytes("тренировка_модели".encode()[:15])
    try:
        assert is_running(os.getpid())
        assert stacks.state_of(os.getpid()) == "it computes"
    finally:
        name.write_bytes(before)


class TestInitFunction:
    @pytest.mark.parametrize("method", START_METHODS)
    def test_is_called_once_in_each_worker(self, method: str, tmp_path: Path) -> None:
        marker = Marker(tmp_path / "calls")
        source = shuffled(PidProvider(16), 1)
        with make_loader(source, num_workers=2, start_method=method, worker_init_fn=marker) as loader:
            pids = {batch["pid"].item() for _ in range(2) for batch in loader}
        assert len(pids) == 2
        assert [number for number, _, _ in marker.lines()] == ["0", "1"]
        assert {int(pid) for _, pid, _ in marker.lines()} == pids
        assert {is_main for _, _, is_main in marker.lines()} == {"True"}

    def test_may_seed_generators_itself(self) -> None:
        found = first_draws(1, start_method="fork", worker_init_fn=np.random.seed)
        assert [each[1] for each in found] == [np.random.RandomState(0).random_sample()]

    @pytest.mark.parametrize("source", [NumberCallable(8), NumberIterable(8)], ids=["callable", "iterable"])
    def test_for_inputs_of_ones_own_in_a_pipeline_of_ones_own(self, source: Any, tmp_path: Path) -> None:
        marker = Marker(tmp_path / "calls")
        with make_iterator(source, batch_size=4, py_num_workers=1, worker_init_fn=marker) as iterator:
            assert indices(iterator) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert [number for number, _, _ in marker.lines()] == ["0"]

    def test_is_not_called_without_workers(self, tmp_path: Path) -> None:
        marker = Marker(tmp_path / "calls")
        with make_loader(shuffled(IndexProvider(8)), num_workers=0, worker_init_fn=marker) as loader:
            list(loader)
        assert marker.lines() == []

    def test_a_lambda_can_be_sent_to_workers(self) -> None:
        arguments = {"start_method": "forkserver", "worker_init_fn": lambda _: None}
        with make_loader(shuffled(IndexProvider(4)), num_workers=1, **arguments) as loader:
            assert indices(loader) == [[0, 1, 2, 3]]

    @pytest.mark.parametrize(
        ("function", "message", "original"),
        [
            (
                fail,
                "`worker_init_fn` failed with LookupError: no data base for worker 0\n  where: worker:? 0 ",
                LookupError,
            ),
            (leave, "`worker_init_fn` failed with SystemExit: 3\n  where: worker:? 0 ", SourceError),
        ],
    )
    def test_a_failure_is_reported(self, function: Any, message: str, original: type[Exception]) -> None:
        source = shuffled(IndexProvider(8))
        with make_loader(source, num_workers=1, worker_init_fn=function) as loader:
            with pytest.raises(SourceError) as caught:
                list(loader)
            assert re.match(message, str(caught.value))
            assert isinstance(caught.value, original)
            assert "def" not in str(caught.value).split("where")[0]
            assert f"in {function.__name__}\n" in str(caught.value)

    def test_one_that_cannot_be_pickled(self) -> None:
        marker = Marker(Path("calls"))
        marker.lock = threading.Lock()  # type: ignore[attr-defined]
        how = {"num_workers": 1, "start_method": "spawn", "worker_init_fn": marker}
        words = (
            "`worker_init_fn` cannot be sent to a spawned worker process, because `worker_init_fn.lock` "
            "(_thread.lock) cannot be pickled"
        )
        with make_loader(shuffled(IndexProvider(8)), **how) as loader:
            assert_refused(lambda: list(loader), words, SourcePicklingError)
