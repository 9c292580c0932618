"""What cannot be loaded in a Ray cluster is refused before anything is started."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from support.providers import IndexProvider, UnpicklableProvider

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.cluster import RayWorkers
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
