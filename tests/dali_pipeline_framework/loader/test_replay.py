"""Batches that are replayed, and the bar of the progress."""

from __future__ import annotations

import functools
import io
import json
import sys
import time
from itertools import islice
from typing import Any

import pytest
from support.loaders import make_loader
from support.providers import IndexProvider
from support.slow_stages import Disk

from accvlab.dali_pipeline_framework.errors import ClosedError, SettingError
from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable
from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.dali_pipeline_framework.sampling import ShuffledSampler


def make(num_samples: int = 20, batch_size: int = 4, **arguments: Any) -> DataLoader:
    source = SamplerInputCallable(IndexProvider(num_samples), ShuffledSampler(num_samples, seed=5))
    return make_loader(source, batch_size, **arguments)


def ids(batches: Any) -> list[list[int]]:
    return [batch["index"].reshape(-1).tolist() for batch in batches]


@functools.cache
def epochs() -> list[list[list[int]]]:
    """Three epochs that nothing disturbs."""
    with make() as loader:
        return [ids(loader) for _ in range(3)]


@pytest.mark.parametrize("num_kept", [1, 2, 50])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_replayed_batches_leave_the_loader_where_it_was(num_kept: int, num_workers: int) -> None:
    with make(num_workers=num_workers) as loader:
        first, second, third = epochs()
        state = json.dumps(loader.state_dict())
        kept = first[:num_kept]
        assert ids(loader.replayed(7, num_kept)) == [kept[number % len(kept)] for number in range(7)]
        assert json.dumps(loader.state_dict()) == state
        assert ids(loader) == first
        assert ids(loader.replayed(1)) == second[:1]
        assert ids(islice(loader, 2)) == second[:2]
        assert ids(loader.replayed(1)) == third[:1]  # the loop above was left
        assert loader.epoch == 1
        assert ids(loader) == third


def test_replaying_leaves_an_epoch_that_goes_on_with_another_batch_size() -> None:
    with make() as loader:
        list(islice(loader, 2))
        state = loader.state_dict()
    with make(batch_size=2) as undisturbed:
        undisturbed.load_state_dict(state)
        expected = ids(undisturbed)
    with make(batch_size=2) as loader:
        loader.load_state_dict(state)
        before = json.dumps(loader.state_dict())
        assert ids(loader.replayed(9, num_kept=9))[:6] == expected
        assert json.dumps(loader.state_dict()) == before
        assert ids(loader) == expected


def test_the_rate_of_the_loop_alone_is_reported() -> None:
    with DataLoader(Disk(0.005), 4, num_workers=0, output_type="numpy") as loader:
        for _ in islice(loader, 5):
            time.sleep(0.01)
        slow = loader.report()
        for _ in loader.replayed(10):
            time.sleep(0.01)
        report = loader.report()
    assert slow.replayed_per_s is None
    assert report.num_batches == slow.num_batches
    assert report.replayed_per_s is not None
    assert report.replayed_per_s > 1.4 * report.samples_per_s
    assert "Without loading, the loop makes" in report.verdict


def test_nothing_is_replayed_while_a_loop_runs() -> None:
    with make() as loader:
        loop = iter(loader)
        next(loop)
        with pytest.raises(ClosedError, match="A loop over the loader is running"):
            loader.replayed(3)
        assert ids(loop) == epochs()[0][1:]


@pytest.mark.parametrize(("arguments", "message"), [((0,), "`num_batches`"), ((1, 0), "`num_kept`")])
def test_numbers_must_be_at_least_one(arguments: tuple[int, ...], message: str) -> None:
    with make() as loader, pytest.raises(SettingError, match=message):
        loader.replayed(*arguments)


def test_a_bar_shows_the_rate_and_the_wait() -> None:
    shown = io.StringIO()
    with DataLoader(Disk(0.01, 400), 4, num_workers=0, output_type="numpy") as loader:
        received = [*islice(loader.progress(file=shown, mininterval=0, desc="epoch 0"), 30)]
    assert len(received) == 30
    last = shown.getvalue().split("\r")[-1]
    assert last.startswith("epoch 0: ")
    assert "/100 [" in last
    assert "samples/s, waits 9" in last


def test_a_bar_needs_no_length() -> None:
    from support.inputs import NumberCallable

    with make_loader(NumberCallable(6), 2) as loader:
        assert len([*loader.progress(file=io.StringIO())]) == 3


def test_a_bar_names_the_package_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with make() as loader, pytest.raises(SettingError, match="Install the extra `progress`"):
        loader.progress()
