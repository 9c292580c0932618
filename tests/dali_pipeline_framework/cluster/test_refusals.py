"""What cannot be loaded in a Ray cluster is refused before anything is started."""

from __future__ import annotations

import socket

import pytest
from support.providers import IndexProvider, UnpicklableProvider

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.cluster import RayPool, RayWorkers
from accvlab.dali_pipeline_framework.errors import SettingError, SourcePicklingError, WorkerStartError

pytest.importorskip("ray")


def test_an_address_without_a_cluster_is_named_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    made = DataLoader(IndexProvider(8), 4, output_type="numpy", workers=RayWorkers(address=address))
    with made as loader, pytest.raises(WorkerStartError) as caught:
        next(iter(loader))
    assert f"RayWorkers has found no Ray cluster at '{address}' (ConnectionRefusedError: " in str(caught.value)
    assert "Start one (`ray start --head`, " in str(caught.value)


@pytest.mark.parametrize("workers", [4, None, RayWorkers])
def test_a_pool_is_made_of_settings(workers: object) -> None:
    with pytest.raises(SettingError, match="`workers` must be a RayWorkers without a pool, got "):
        RayPool(workers)


def test_the_part_of_a_provider_that_cannot_be_pickled_is_named() -> None:
    made = DataLoader(UnpicklableProvider(), 4, output_type="numpy", workers=RayWorkers())
    with made as loader, pytest.raises(SourcePicklingError) as caught:
        next(iter(loader))
    assert "reader['cache'][0]` " in str(caught.value)
