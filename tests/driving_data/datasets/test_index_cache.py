"""Indices of driving data in caches: one of several processes makes them; and errors of writing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from driving_support.driving_data import write_driving_data
from support.index_making import (
    assert_a_full_disk_is_reported,
    assert_one_process_makes_it,
    assert_the_error_of_making_is_the_only_one,
)

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.driving_data.datasets.driving.driving_index import DrivingIndex, cached_index


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "table.json").write_bytes(b"[]")
    return tmp_path


def open_index(folder: Path, note: Callable[[], None]) -> Any:
    def make() -> DrivingIndex:
        note()
        return write_driving_data(folder / "drive")

    return cached_index(make, [folder / "table.json"], {}, folder / "cache")


@pytest.mark.parametrize("is_deadly", [False, True])
def test_one_of_several_processes_makes_it(source: Path, is_deadly: bool) -> None:
    assert_one_process_makes_it(open_index, source, is_deadly)


def test_a_full_disk(source: Path) -> None:
    assert_a_full_disk_is_reported(open_index, source, SettingError, "`index_cache` (or $ACCVLAB_INDEX_CACHE)")


def test_a_folder_that_cannot_be_made(source: Path) -> None:
    try:
        os.mkdir("/sys/none")
    except OSError as error:
        reason = error.strerror
    with pytest.raises(SettingError, match=rf"`index_cache`.* must be a folder, '/sys/none' is not.*{reason}"):
        cached_index(lambda: write_driving_data(source), [source / "table.json"], {}, "/sys/none")


def test_the_error_of_making_is_the_only_one(source: Path) -> None:
    assert_the_error_of_making_is_the_only_one(open_index, source)
