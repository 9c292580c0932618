"""What cannot be loaded in a Ray cluster is refused before anything is started."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from support.optional_packages import has
from support.providers import IndexProvider, UnpicklableProvider

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.cluster import RayWorkers
from accvlab.dali_pipeline_framework.errors import SettingError, SourcePicklingError, WorkerStartError
from accvlab.dali_pipeline_framework.loader.data_loader import run_of

pytestmark = pytest.mark.skipif(not has("ray"), reason="ray is not installed")


def test_an_address_without_a_cluster_is_named_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    made = DataLoader(IndexProvider(8), 4, output_type="numpy", workers=RayWorkers(address=address))
    with made as loader, pytest.raises(WorkerStartError) as caught:
        next(iter(loader))
    assert f"RayWorkers has found no Ray cluster at '{address}' (ConnectionRefusedError: " in str(caught.value)
    assert "Start one (`ray start --head`, " in str(caught.value)


def test_the_part_of_a_provider_that_cannot_be_pickled_is_named() -> None:
    made = DataLoader(UnpicklableProvider(), 4, output_type="numpy", workers=RayWorkers())
    with made as loader, pytest.raises(SourcePicklingError) as caught:
        next(iter(loader))
    assert "reader['cache'][0]` " in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"address": "10.0.0.1"}, "`address` must be HOST:PORT of a Ray cluster, or None, got '10.0.0.1'."),
        ({"address": 6379}, "`address` must be HOST:PORT of a Ray cluster, or None, got 6379."),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingError) as caught:
        RayWorkers(**arguments)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"num_workers": 0}, "`workers` and `num_workers=0` exclude each other"),
        ({"num_workers": 2}, "`workers` and `num_workers=2` exclude each other"),
        ({"prefetch_queue_depth": 9}, "`prefetch_queue_depth=9` and `batches_ahead=20` of RayWorkers both limit"),
    ],
)
def test_what_does_not_go_with_actors_is_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingError, match=text):
        DataLoader(IndexProvider(8), 4, workers=RayWorkers(batches_ahead=20), **arguments)


@pytest.mark.parametrize(
    ("batches_ahead", "prefetch_queue_depth", "expected"),
    [(None, None, 12), (20, None, 20), (1, None, 1), (None, 5, 5), (None, 1, 3)],
)
def test_how_far_ahead_actors_load(
    batches_ahead: int | None, prefetch_queue_depth: int | None, expected: int
) -> None:
    workers = RayWorkers(num_actors=3, batches_ahead=batches_ahead)
    settings: dict[str, Any] = {"workers": workers, "prefetch_queue_depth": prefetch_queue_depth}
    with DataLoader(IndexProvider(64), 32, output_type="numpy", **settings) as loader:
        assert run_of(loader).pipelines.pool.settings.window == expected
