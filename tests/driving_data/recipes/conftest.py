"""Data that the tests of recipes read."""

from __future__ import annotations

from pathlib import Path

import pytest
from driving_support.driving_data import write_drive
from driving_support.nuscenes_data import write_nuscenes

from accvlab.driving_data.datasets import DrivingIndex

Drive = tuple[DrivingIndex, Path]


@pytest.fixture(scope="session")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Drive:
    """Index and folder of five frames of two cameras, in scenes of three and of two."""
    root = tmp_path_factory.mktemp("drive")
    return write_drive(root), root


@pytest.fixture(scope="session")
def nuscenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_nuscenes(tmp_path_factory.mktemp("nuscenes") / "root")


@pytest.fixture(autouse=True)
def _index_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCVLAB_INDEX_CACHE", str(tmp_path_factory.getbasetemp() / "index_cache"))
