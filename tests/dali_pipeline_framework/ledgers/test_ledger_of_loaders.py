"""Ledgers of real loaders, and of ranks that are killed and started again."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from support.inputs import NumberCallable, NumberIterable
from support.killed_ranks import TRAINING
from support.loaders import by_sampler, make_loader
from support.providers import BadSamples, IndexProvider
from support.samplers import EndlessSampler
from support.scripts import run_script

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.ledgers import certify, ledger_lines
from accvlab.dali_pipeline_framework.sampling import ShuffledSampler


def noted(folder: Path) -> list[list[int]]:
    """Samples of each batch in the ledgers of a folder."""
    return [[*line.samples] for line in ledger_lines([folder]) if line.samples is not None]


@pytest.mark.parametrize("settings", [{"num_workers": 0}, {"num_workers": 2, "start_method": "fork"}], ids=str)
def test_a_ledger_tells_what_was_delivered(tmp_path: Path, settings: dict[str, Any]) -> None:
    settings = {"batch_size": 4, "shuffle": True, "last_batch": "partial", "output_type": "numpy", **settings}
    delivered = []
    with DataLoader(IndexProvider(203), ledger=tmp_path, **settings) as loader:
        for _ in range(2):
            delivered += [batch["index"].tolist() for batch in loader]
        delivered += [batch["index"].tolist() for batch in itertools.islice(loader, 3)]
        loader.set_epoch(7)
        delivered += [batch["index"].tolist() for batch in itertools.islice(loader, 3)]
    assert noted(tmp_path) == delivered
    assert certify([tmp_path], epochs=[0, 1]).is_exact
    assert not certify([tmp_path]).is_exact


def test_all_inputs_that_know_their_samples(tmp_path: Path) -> None:
    with make_loader(NumberCallable(10), 2, ledger=tmp_path / "callable") as loader:
        list(loader)
    lines = ledger_lines([tmp_path / "callable"])
    assert [(line.num_samples, line.samples) for line in lines] == [(-1, None)] * 5  # it does not tell
    with make_loader(by_sampler(EndlessSampler()), steps_per_epoch=2, ledger=tmp_path / "endless") as loader:
        delivered = [batch["index"].tolist() for _ in range(3) for batch in loader]
    assert noted(tmp_path / "endless") == delivered
    with make_loader(NumberIterable(10, 2), 2, ledger=tmp_path / "iterable") as loader:
        for _ in range(2):
            list(loader)
    assert len(noted(tmp_path / "iterable")) == 10


def test_a_loader_that_goes_on_within_a_process(tmp_path: Path) -> None:
    with make_loader(by_sampler(ShuffledSampler(22, last_batch="pad")), 4, ledger=tmp_path) as loader:
        states = [loader.state_dict() for _ in loader]
        loader.load_state_dict(states[1])
        list(loader)
    assert certify([tmp_path]).is_exact
    with make_loader(by_sampler(ShuffledSampler(22, last_batch="pad")), 2, ledger=tmp_path) as loader:
        loader.load_state_dict(states[2])  # another batch size
        for _ in range(2):
            list(loader)
    certificate = certify([tmp_path])
    assert certificate.is_exact, str(certificate)


def test_a_folder_that_cannot_be_made_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with make_loader(by_sampler(ShuffledSampler(22)), 4, ledger=tmp_path / "file" / "ledger") as loader:
        assert len([*loader]) == 5
    assert caplog.text.count("What follows will be found missing.") == 1


def test_a_full_disk_ends_the_ledger_and_not_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write = os.write
    with make_loader(by_sampler(ShuffledSampler(22)), 4, ledger=tmp_path) as loader:
        batches = iter(loader)
        next(batches)
        with monkeypatch.context() as patch:  # of what is written, only a part gets into the file
            patch.setattr(os, "write", lambda file, content: write(file, content[:10]))
            next(batches)
        assert len([*batches]) == 3
    assert len(noted(tmp_path)) == 1
    (path,) = tmp_path.iterdir()
    assert caplog.messages == [
        f"The ledger {str(path)!r} ends, it cannot be written: [Errno 28] No space left on device. Make room, "
        f"or name another folder: `ledger`. What follows will be found missing."
    ]
    assert not certify([tmp_path]).is_exact


def test_a_rank_that_is_killed_and_started_again_delivers_each_sample_once(tmp_path: Path) -> None:
    env = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "1234"}
    ends = [run_script(TRAINING, str(tmp_path), str(at), env=env, timeout=100) for at in (10, 17, -1)]
    codes = [end.returncode for end in ends]
    assert codes == [-signal.SIGKILL, -signal.SIGKILL, 0]
    certificate = certify([tmp_path / "ledger"])
    assert certificate.is_exact, str(certificate)
    assert certificate.notes[0].startswith("3 ledgers: 52 batches count, ")
    assert " 0 were superseded" not in certificate.notes[0]


@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_samples_that_failed_are_told_and_padding_is_left_out(tmp_path: Path, policy: Any) -> None:
    # The last batch can be padded, with its last sample, which is one of those that failed.
    settings: dict[str, Any] = {"num_workers": 0, "output_type": "numpy"}
    settings["last_batch"] = "pad" if policy == "replace" else "partial"
    with DataLoader(BadSamples(22, 3, 21), 4, faults=policy, ledger=tmp_path, **settings) as loader:
        batches = [batch["index"].tolist() for batch in loader]
    problems = certify([tmp_path]).problems
    if policy == "skip":
        assert problems == ("epoch 0: missing: 3, 21",)
        return
    first, last = batches[0][3], batches[5][1]
    assert noted(tmp_path) == [*batches[:5], batches[5][:2]]
    assert problems == (
        f"epoch 0: missing: 3 (sample {first} in its place), 21 (sample {last} in its place)",
        f"epoch 0: delivered twice: {min(first, last)}, {max(first, last)}",
    )
