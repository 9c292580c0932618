"""Indices in caches: one of several processes makes them, also after another was killed; and errors of writing."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from driving_support.driving_data import write_driving_data
from support.videos import make_video

from accvlab.dali_pipeline_framework.errors import FileError, QuarantineError, SettingError
from accvlab.dali_pipeline_framework.faults.failed_samples import Quarantine
from accvlab.dali_pipeline_framework.providers import FileDataProvider
from accvlab.dali_pipeline_framework.providers.files import file_finding, file_lock
from accvlab.dali_pipeline_framework.providers.files.file_lock import making
from accvlab.dali_pipeline_framework.video import video_index_cache
from accvlab.dali_pipeline_framework.video.video_index_cache import VideoIndexCache
from accvlab.driving_data.datasets.driving import index_cache
from accvlab.driving_data.datasets.driving.driving_index import DrivingIndex

pytestmark = pytest.mark.timeout(60)
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    make_video(tmp_path / "a.mp4", 5)
    (tmp_path / "train" / "x").mkdir(parents=True)
    (tmp_path / "train" / "x" / "a.jpg").write_bytes(b"a")
    os.utime(tmp_path / "train", (1, 1))
    os.utime(tmp_path / "train" / "x", (1, 1))
    return tmp_path


Opener = Callable[[Path, Callable[[], None]], Any]


def open_driving(folder: Path, note: Callable[[], None]) -> Any:
    def make() -> DrivingIndex:
        note()
        return write_driving_data(folder / "drive")

    return index_cache.cached_index(make, [folder / "a.mp4"], {}, folder / "cache")


def open_videos(folder: Path, note: Callable[[], None]) -> Any:
    make_index = video_index_cache.make_index

    def noted(*arguments: Any) -> Any:
        note()
        return make_index(*arguments)

    video_index_cache.make_index = noted
    try:
        return VideoIndexCache(folder / "cache").index(folder / "a.mp4").num_frames
    finally:
        video_index_cache.make_index = make_index


def open_files(folder: Path, note: Callable[[], None]) -> Any:
    scan = file_finding.scan_folders

    def noted(*arguments: Any) -> Any:
        note()
        return scan(*arguments)

    file_finding.scan_folders = noted
    try:
        (folder / "cache").mkdir(exist_ok=True)
        return len(FileDataProvider(folder / "train", cache_file=folder / "cache" / "names"))
    finally:
        file_finding.scan_folders = scan


OPENERS = {"driving": open_driving, "videos": open_videos, "files": open_files}


def opened_in_child(opener: Opener, folder: Path, is_deadly: bool, results: Any) -> None:
    """Open an index, whose making takes a while and is noted; the first maker may be killed."""

    def note() -> None:
        (folder / f"made_{os.getpid()}").touch()
        time.sleep(0.3)
        if is_deadly and len([*folder.glob("made_*")]) == 1:
            if os.fork() == 0:  # a child of the maker must not keep the lock
                time.sleep(2)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)

    results.put(opener(folder, note))


@pytest.mark.parametrize("is_deadly", [False, True])
@pytest.mark.parametrize("name", OPENERS)
def test_one_of_several_processes_makes_it(source: Path, name: str, is_deadly: bool) -> None:
    results = FORK.Queue()
    arguments = (OPENERS[name], source, is_deadly, results)
    processes = [FORK.Process(target=opened_in_child, args=arguments) for _ in range(4)]
    for process in processes:
        process.start()
    found = [results.get(timeout=30) for _ in range(3 if is_deadly else 4)]
    for process in processes:
        process.join(10)
    assert len(set(map(str, found))) == 1
    assert sorted(process.exitcode for process in processes) == [-9 if is_deadly else 0, 0, 0, 0]
    assert len([*source.glob("made_*")]) == 1 + is_deadly
    assert not [*(source / "cache").glob(".*")]  # neither locks nor parts


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    with making(tmp_path / "index"):
        yield tmp_path / "index"


def test_the_same_thread_and_forked_children_do_not_wait_for_themselves(locked: Path) -> None:
    with making(locked):
        assert locked.with_name(".index.lock").exists()
    child = os.fork()
    if child == 0:
        os._exit(0 if not file_lock._held else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_another_thread_waits(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: Any) -> None:
    monkeypatch.setattr(file_lock, "_TOLD_AFTER_S", 0.1)
    order: list[str] = []

    def second() -> None:
        with making(tmp_path / "index"):
            order.append("second")

    thread = threading.Thread(target=second)
    with caplog.at_level("INFO"), making(tmp_path / "index"):
        thread.start()
        time.sleep(0.4)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]
    assert caplog.messages == [f"Waiting for another process, which makes {tmp_path / 'index'}."]


def test_waiting_has_an_end(tmp_path: Path, monkeypatch: Any, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(file_lock, "_MOST_S", 0.2)

    def other() -> None:
        with making(tmp_path / "index"):
            has_begun.set()
            may_end.wait(10)

    has_begun, may_end = threading.Event(), threading.Event()
    thread = threading.Thread(target=other)
    thread.start()
    has_begun.wait(10)
    with making(tmp_path / "index"):
        assert "is made although another process" in caplog.text
    may_end.set()
    thread.join(10)


def test_without_locks_it_is_made_all_the_same(tmp_path: Path, monkeypatch: Any) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(file_lock.fcntl, "flock", refuse)
    with making(tmp_path / "a"), making("/sys/none/b"):
        pass


# --- disks that are full or read-only ---------------------------------------------------------------------


@pytest.fixture
def full_disk() -> Iterator[None]:
    """No file can become larger than some bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (250, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


SETTINGS = {
    "driving": (FileError, "index_cache`, or $ACCVLAB_INDEX_CACHE"),
    "videos": (SettingError, "index_cache`"),
    "files": (SettingError, "cache_file`"),
}


@pytest.mark.parametrize("name", OPENERS)
def test_a_full_disk(source: Path, name: str, full_disk: None) -> None:
    error_class, setting = SETTINGS[name]
    with pytest.raises(error_class) as caught:
        OPENERS[name](source, lambda: None)
    assert "File too large" in str(caught.value)
    assert str(source / "cache") in str(caught.value)
    assert f"`{setting}" in str(caught.value)
    assert not [*(source / "cache").glob(".*")]


def test_a_folder_that_cannot_be_made(source: Path, tmp_path: Path) -> None:
    try:
        os.mkdir("/sys/none")
    except OSError as error:
        reason = error.strerror
    with pytest.raises(FileError, match=rf"'/sys/none' of indices.*{reason}.*`index_cache`"):
        index_cache.cached_index(lambda: write_driving_data(source), [source / "a.mp4"], {}, "/sys/none")
    with pytest.raises(SettingError, match=rf"`index_cache` must be a folder, '/sys/none' is not.*{reason}"):
        VideoIndexCache("/sys/none")
    with pytest.raises(SettingError, match=r"'/sys/none/names' cannot be written.*`cache_file`"):
        FileDataProvider(source / "train", cache_file="/sys/none/names")
    with pytest.raises(QuarantineError, match=r"'/sys/none' cannot be written: .*`FaultPolicy\(quarantine=...\)`"):
        Quarantine("/sys/none")


@pytest.mark.parametrize("name", OPENERS)
def test_the_error_of_making_is_the_only_one(source: Path, name: str) -> None:
    def fail() -> None:
        raise ValueError("no such scene")

    with pytest.raises(ValueError, match="no such scene") as caught:
        OPENERS[name](source, fail)
    assert caught.value.__context__ is None
    assert "During handling" not in "".join(traceback.format_exception(caught.value))
