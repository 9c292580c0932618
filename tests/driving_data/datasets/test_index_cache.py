"""Indices of driving data in a cache: one of several processes makes them; errors of writing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from driving_support.driving_data import write_driving_data
from support.index_making import assert_a_full_disk_is_reported, assert_one_process_makes_it
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.driving_data.datasets.driving.driving_index import DrivingIndex, cached_index


def open_index(root: Path, note: Callable[[], None]) -> Path:
    def make() -> DrivingIndex:
        note()
        return write_driving_data(root / "drive")

    return cached_index(make, [Path(__file__)], {}, root / "cache")


def test_one_of_several_processes_makes_it(tmp_path: Path) -> None:
    assert_one_process_makes_it(open_index, tmp_path, is_deadly=False)


def test_a_full_disk(tmp_path: Path) -> None:
    assert_a_full_disk_is_reported(open_index, tmp_path, SettingError, "`index_cache` (or $ACCVLAB_INDEX_CACHE)")


def test_a_folder_that_cannot_be_made() -> None:
    try:
        os.mkdir("/sys/none")
    except OSError as error:
        words = f"`index_cache`...must be a folder, '/sys/none' is not...{error.strerror}"
    assert_refused(lambda: cached_index(lambda: write_driving_data(Path()), [], {}, "/sys/none"), words)
