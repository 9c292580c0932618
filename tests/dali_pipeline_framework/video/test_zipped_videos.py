"""Videos in ZIP files, local and remote: a ``.zip`` in a path is a folder."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.file_server import FileServer
from support.laws import each_value
from support.videos import read_numbers
from video_kinds import VideoOf

from accvlab.dali_pipeline_framework import RemoteReading
from accvlab.dali_pipeline_framework.errors import FileError, VideoError
from accvlab.dali_pipeline_framework.extension import StoredFile
from accvlab.dali_pipeline_framework.providers import Storage
from accvlab.dali_pipeline_framework.video import VideoFrameDataProvider, Videos, cached_video_index, index_video

FAST: dict[str, Any] = {"reading": RemoteReading(attempts=1, timeout_s=30)}
MEMBER = "clips/monday.mp4"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    with FileServer(tmp_path) as started:
        yield started


@pytest.fixture
def archive(tmp_path: Path, video: VideoOf) -> Path:
    """A ZIP file of a list, and of two videos, one of them compressed."""
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w") as opened:
        opened.write(video("h264_b.mp4"), MEMBER)
        opened.writestr("lists/names.txt", "Ä list\n", zipfile.ZIP_DEFLATED)
        opened.write(video("h264_b.mp4"), "small/monday.mp4", zipfile.ZIP_DEFLATED)
    return path


def frames_of(videos: Any) -> list[int]:
    provider = VideoFrameDataProvider(videos)
    try:
        return read_numbers(np.stack([provider.get_data(number)["image"] for number in (30, 2, 39)]))
    finally:
        provider.close()


@each_value(
    spelling=["{}/clips", "{}/clips/*.mp4", f"{{}}/{MEMBER}", f"zip://{MEMBER}::{{}}"], place=["folder", "server"]
)
def test_videos_are_found_and_read(archive: Path, server: FileServer, spelling: str, place: str) -> None:
    path = spelling.format(archive if place == "folder" else f"{server.url}/all.zip")
    videos = Videos(path, storage_options=FAST)
    assert frames_of(videos) == [30, 2, 39]
    provider = pickle.loads(pickle.dumps(VideoFrameDataProvider(videos)))
    assert provider.describe_sample(1).startswith(f"zip://{MEMBER}::")


def test_options_are_those_of_the_store(archive: Path, server: FileServer) -> None:
    own = {"client_kwargs": {"headers": {"X-Key": "1"}}}
    for options in (own, {"http": own}):
        storage = Storage(f"{server.url}/all.zip", {**options, **FAST})
        assert storage.read_bytes("lists/names.txt").tobytes().decode() == "Ä list\n"
        assert server.last_headers["X-Key"] == "1"


def test_other_files_are_read_and_asked_for(archive: Path, server: FileServer) -> None:
    for root in (archive, archive.parent, f"{server.url}", f"{server.url}/all.zip"):
        storage, folder = Storage(root, FAST), "" if str(root).endswith(".zip") else "all.zip/"
        name = f"{folder}lists/names.txt"
        assert storage.open_binary(name).read().decode() == "Ä list\n"
        assert storage.exists(name)
        assert not storage.exists(f"{folder}lists/others.txt")
        assert not storage.exists(f"{folder}others")
        state = storage.state(name)
        assert state[0] == len("Ä list\n".encode())
        assert os.fspath(StoredFile(storage, name)) == storage.path(name)
        assert not StoredFile(storage, name).is_local
        assert {entry.name for entry in storage.list_folder(folder)} == {"clips", "lists", "small"}
    os.utime(archive, ns=(1, 1))
    assert Storage(archive).state("lists/names.txt") != state


def test_a_folder_with_such_a_name_is_a_folder(tmp_path: Path, video: VideoOf) -> None:
    folder = tmp_path / "all.zip"
    folder.mkdir()
    (folder / "a.mp4").write_bytes(video("h264_b.mp4").read_bytes())
    assert frames_of(Videos(folder)) == frames_of(Videos(folder / "a.mp4")) == [30, 2, 39]
    assert StoredFile(Storage(folder), "a.mp4").is_local


@pytest.mark.parametrize("place", ["folder", "server"])
def test_what_cannot_be_read_is_named(archive: Path, server: FileServer, place: str) -> None:
    root = str(archive) if place == "folder" else f"{server.url}/all.zip"

    def refusal(member: str) -> str:
        with pytest.raises((FileError, VideoError)) as failed:
            index_video(f"{root}/{member}", storage_options=FAST)
        return str(failed.value)

    assert refusal("small/monday.mp4") == (
        f"The file 'zip://small/monday.mp4::{root}' cannot be read: it is compressed in its ZIP file, so that no "
        "part of it can be read by itself. Unpack it, or pack it without compression (zip -0): that makes a video "
        "hardly larger."
    )
    missing = refusal("clips/mondy.mp4")
    assert missing == f"The file 'zip://clips/mondy.mp4::{root}' cannot be read: there is none."
    archive.write_bytes(archive.read_bytes()[:-2000])
    assert "It is no ZIP file, or cut short; copy it again." in refusal(MEMBER)


def test_a_zip_file_that_was_changed_is_refused(archive: Path, tmp_path: Path) -> None:
    path = f"{archive}/{MEMBER}"
    provider = VideoFrameDataProvider(Videos(path, index_cache=tmp_path / "indices"))
    assert provider.get_data(1)["image"].shape
    index = cached_video_index(tmp_path / "indices", path)
    assert index == provider.video_index(0)
    os.utime(archive, ns=(1, 1))
    message = rf"The video 'zip://{MEMBER}::{archive}' was changed after it was indexed"
    with pytest.raises(VideoError, match=message):
        provider.get_data(39)  # its decoder is open, and goes elsewhere
    with pytest.raises(VideoError, match=message):
        provider.get_data(0)
    assert cached_video_index(tmp_path / "indices", path).file_state != index.file_state
