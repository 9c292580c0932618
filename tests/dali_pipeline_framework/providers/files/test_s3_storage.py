"""Files, tables of files, and videos in S3, by s3fs itself, from a server that fails."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.videos import make_video
from support.windows import video_clips

from accvlab.dali_pipeline_framework import DataLoader, RemoteReading
from accvlab.dali_pipeline_framework.errors import FileError, SourceError, VideoError
from accvlab.dali_pipeline_framework.providers import FileDataProvider
from accvlab.dali_pipeline_framework.providers.files import remote_file
from accvlab.dali_pipeline_framework.providers.files.storage import Storage
from accvlab.dali_pipeline_framework.video import Videos

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


def test_workers_read_what_this_process_reads(server: S3Server, options: dict[str, Any]) -> None:
    for number in range(6):
        server.put(f"train/a/{number}.bin", bytes([number]) * 100)
    provider = FileDataProvider("s3://bucket/train", file_filters="*.bin", storage_options=options)
    with DataLoader(provider, 2, num_workers=2, start_method="forkserver", output_type="numpy") as loader:
        read = [batch["data"][:, 0].tolist() for batch in loader]
    assert read == [[0, 1], [2, 3], [4, 5]]


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


def lengths_of(ranges: list[str]) -> list[int]:
    parts = [[*map(int, each.removeprefix("bytes=").split("-"))] for each in ranges]
    return [end + 1 - begin for begin, end in parts]


def test_videos_are_read_by_parts(server: S3Server, options: dict[str, Any], tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.mp4" for name in ("front", "left")}
    for name, path in files.items():
        bitrate = "keyint=10:nal-hrd=cbr:filler=1:bitrate=8000:vbv-maxrate=8000:vbv-bufsize=4000"
        make_video(path, 150, "libx264", options={"preset": "ultrafast", "x264-params": bitrate})
        server.put(f"drives/{name}.mp4", path.read_bytes())
    size = sum(path.stat().st_size for path in files.values())
    cameras = {name: f"s3://bucket/drives/{name}.mp4" for name in files}
    rig = Videos(cameras=cameras, storage_options=options, index_cache=tmp_path / "indices")
    remote, local = (video_clips(each, 4, step=10) for each in (rig, Videos(cameras=files)))
    for sample in (0, 9, 14):
        server.faults = ["cut", "503"] if sample == 14 else []
        for name in files:
            found, expected = (provider.get_data(sample)[name]["frames"] for provider in (remote, local))
            assert np.array_equal(found, expected)
        assert not server.faults
    provider = pickle.loads(pickle.dumps(video_clips(rig, 4, step=10, images="encoded")))  # with the indices
    for sample in range(15):
        server.ranges = []
        provider.get_data(sample)
        lengths = lengths_of(server.ranges)
        assert len(lengths) == len(cameras)
        assert sum(lengths) < size / 12  # ten frames of 150, and what a request reads ahead
    server.put("drives/front.mp4", files["front"].read_bytes()[::-1])
    message = refusal(lambda: video_clips(rig, 8).get_data(0), (FileError, VideoError))
    assert "s3://bucket/drives/front.mp4" in message


def test_secrets_are_not_shown(
    server: S3Server, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    server.put("train/a/1.bin", b"1")
    provider = FileDataProvider("s3://bucket/train", file_filters="*.bin", storage_options=options)
    server.client.delete_object(Bucket="bucket", Key="train/a/1.bin")
    with caplog.at_level(logging.INFO, "accvlab"), DataLoader(provider, 1, num_workers=0) as loader:
        assert "train/a/1.bin" in refusal(lambda: next(iter(loader)), SourceError)
        assert SECRET not in repr(loader) + repr(provider) + caplog.text
