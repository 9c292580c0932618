"""Files, tables of files, and videos in S3, by s3fs itself, from a server that fails."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.videos import make_video

from accvlab.dali_pipeline_framework import DataLoader, RemoteReading
from accvlab.dali_pipeline_framework.errors import FileError, SourceError
from accvlab.dali_pipeline_framework.providers import FileDataProvider
from accvlab.dali_pipeline_framework.providers.files import remote_file
from accvlab.dali_pipeline_framework.providers.files.storage import Storage
from accvlab.dali_pipeline_framework.video import VideoFrameDataProvider, Videos

pytest.importorskip("s3fs")
pytest.importorskip("moto.server")

from s3_server import SECRET, S3Server

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore"),  # of packages that this project does not choose
]

FAST = RemoteReading(attempts=3, first_wait_s=0.001, most_wait_s=0.002, timeout_s=30)
CONTENT = bytes(range(256)) * 8192  # 2 MiB


@pytest.fixture
def server() -> Iterator[S3Server]:
    with S3Server() as started:
        yield started


@pytest.fixture
def options(server: S3Server) -> dict[str, Any]:
    return {**server.options, "reading": FAST}


def refusal(read: Callable[[], Any], error: Any = FileError) -> str:
    """What is said, which has no secrets in it, nor have the errors behind it."""
    with pytest.raises(error) as caught:
        read()
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    return str(caught.value)


def test_files_are_read_listed_and_found(server: S3Server, options: dict[str, Any]) -> None:
    for name in ("train/bus/10.jpg", "train/bus/9.jpg", "train/car/1.jpg"):
        server.put(name, name.encode())
    server.put("list.txt", b"bus/9.jpg 1\ncar/1.jpg 0\n")
    provider = FileDataProvider("s3://bucket/train", storage_options=options)
    assert list(provider.file_table) == ["bus/10.jpg", "bus/9.jpg", "car/1.jpg"]
    assert bytes(provider.get_data(1)["data"]) == b"train/bus/9.jpg"
    listed = FileDataProvider("s3://bucket/train", file_list="s3://bucket/list.txt", storage_options=options)
    assert [int(listed.get_data(index)["label"][0]) for index in range(2)] == [1, 0]
    storage = Storage("s3://bucket/train", options)
    assert sorted(entry.name for entry in storage.list_folder("bus")) == ["10.jpg", "9.jpg"]
    assert sorted(storage.find("*/1*.jpg")) == ["bus/10.jpg", "car/1.jpg"]


@pytest.mark.parametrize("fault", ["503", "cut"])
def test_what_may_pass_is_tried_again(server: S3Server, options: dict[str, Any], fault: str) -> None:
    server.put("a.bin", CONTENT)
    storage = Storage("s3://bucket", options)
    server.faults = [fault, fault]
    assert storage.read_bytes("a.bin").tobytes() == CONTENT
    server.faults = [fault] * 40
    assert "'s3://bucket/a.bin' cannot be read: " in refusal(lambda: storage.read_bytes("a.bin"))


def test_what_is_not_there_or_not_allowed(server: S3Server, options: dict[str, Any]) -> None:
    server.put("a.bin", CONTENT)
    missing = refusal(lambda: Storage("s3://bucket", options).read_bytes("b.bin"), FileNotFoundError)
    assert missing == "The file 's3://bucket/b.bin' cannot be read: there is none."
    assert "there is none" in refusal(lambda: Storage("s3://other-bucket", options).read_bytes("b.bin"))
    server.needs_credentials = True
    wrong = {**options, "key": "AKIAOTHEROTHEROTHERA"}
    assert "'s3://bucket/a.bin' cannot be read: " in refusal(
        lambda: Storage("s3://bucket", wrong).read_bytes("a.bin"), PermissionError
    )
    assert Storage("s3://bucket", options).read_bytes("a.bin").tobytes() == CONTENT


def test_an_object_that_is_replaced_while_it_is_read(
    server: S3Server, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_file, "CHECK_EACH_S", 0.0)
    storage = Storage("s3://bucket", options)
    for other in (CONTENT[::-1], CONTENT[:-1]):
        server.put("a.bin", CONTENT)
        with storage.open_blocks("a.bin") as file:
            assert file.read(1000) == CONTENT[:1000]
            server.put("a.bin", other)
            file.seek(1 << 20)
            with pytest.raises(OSError, match="it was changed while it was read"):
                file.read(1000)


def test_videos_are_those_of_the_local_files(server: S3Server, options: dict[str, Any], tmp_path: Path) -> None:
    path = make_video(tmp_path / "a.mp4", 30, "libx264")
    server.put("drives/a.mp4", path.read_bytes())
    server.faults = ["cut", "503"]
    videos = Videos("s3://bucket/drives/*.mp4", storage_options=options, index_cache=tmp_path / "indices")
    for images in ("decoded", "encoded"):
        remote, local = (VideoFrameDataProvider(each, images=images) for each in (videos, path))
        assert remote.get_data(17) == local.get_data(17)
    assert not server.faults


def test_secrets_are_not_shown(
    server: S3Server, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    server.put("train/a/1.bin", b"1")
    provider = FileDataProvider("s3://bucket/train", file_filters="*.bin", storage_options=options)
    server.client.delete_object(Bucket="bucket", Key="train/a/1.bin")
    with caplog.at_level(logging.INFO, "accvlab"), DataLoader(provider, 1, num_workers=0) as loader:
        assert "train/a/1.bin" in refusal(lambda: next(iter(loader)), SourceError)
        assert SECRET not in repr(loader) + repr(provider) + caplog.text
