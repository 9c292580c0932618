"""Indices in caches: one of several processes makes them, also after another was killed; and errors of writing."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.index_making import assert_a_full_disk_is_reported, assert_one_process_makes_it
from support.laws import some
from support.videos import make_video

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.providers.files import columns
from accvlab.dali_pipeline_framework.providers.files.columns import locked
from accvlab.dali_pipeline_framework.video import video_index
from accvlab.dali_pipeline_framework.video.video_index import cached_video_index


@pytest.fixture
def source(tmp_path: Path) -> Path:
    make_video(tmp_path / "a.mp4", 5)
    return tmp_path


def open_videos(folder: Path, note: Callable[[], None]) -> Any:
    make_index = video_index.make_index

    def noted(*arguments: Any) -> Any:
        note()
        return make_index(*arguments)

    video_index.make_index = noted
    try:
        return cached_video_index(folder / "cache", folder / "a.mp4").num_frames
    finally:
        video_index.make_index = make_index


@some("is_deadly", [False, True], {1})
def test_one_of_several_processes_makes_it(source: Path, is_deadly: bool) -> None:
    assert_one_process_makes_it(open_videos, source, is_deadly)


def test_another_thread_waits_but_not_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    order: list[str] = []

    def second() -> None:
        with locked(str(tmp_path / "index")):
            order.append("second")

    thread = threading.Thread(target=second)
    with locked(str(tmp_path / "index")):
        thread.start()
        time.sleep(0.2)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]
    monkeypatch.setattr(columns, "_MOST_S", 0.1)
    thread = threading.Thread(target=second)
    with locked(str(tmp_path / "index")):
        thread.start()
        thread.join(10)
        assert order == ["first", "second", "second"]
    assert "is made although another process" in caplog.text


def test_without_locks_it_is_made_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(95, "Operation not supported")

    with locked("/sys/none/b") as is_alone:
        assert not is_alone
    monkeypatch.setattr(columns.FileLock, "acquire", refuse)
    with locked(str(tmp_path / "a")) as is_alone:
        assert not is_alone


# --- disks that are full or read-only ---------------------------------------------------------------------


def test_a_full_disk(source: Path) -> None:
    assert_a_full_disk_is_reported(open_videos, source, SettingError, "`index_cache`")


def test_a_folder_that_cannot_be_made(source: Path, tmp_path: Path) -> None:
    try:
        os.mkdir("/sys/none")
    except OSError as error:
        reason = error.strerror
    message = rf"`index_cache`.* must be a folder, '/sys/none' is not.*{reason}"
    with pytest.raises(SettingError, match=message):
        cached_video_index("/sys/none", source / "a.mp4")
