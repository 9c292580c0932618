"""Videos in remote storage: read by ranges, from servers that fail, and changed meanwhile."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import fsspec
import numpy as np
import pytest
from support.file_server import FileServer
from support.refusals import assert_refused
from support.videos import copy_packets, make_video, read_numbers, write_images
from support.windows import video_clips
from video_kinds import VideoOf

from accvlab.dali_pipeline_framework import DataLoader, RemoteReading, VideoDecoder
from accvlab.dali_pipeline_framework.errors import FileError, SettingError, VideoError
from accvlab.dali_pipeline_framework.providers.files import remote_file
from accvlab.dali_pipeline_framework.video import VideoFrameDataProvider, Videos, index_video
from accvlab.dali_pipeline_framework.video.files.stored_videos import located
from accvlab.dali_pipeline_framework.video.frame_reader import FrameReader

FAST: dict[str, Any] = {"reading": RemoteReading(attempts=3, first_wait_s=0.001, most_wait_s=0.002, timeout_s=30)}
PADDED = {
    "preset": "ultrafast",
    "x264-params": "keyint=12:min-keyint=12:bframes=3:b-adapt=0:scenecut=0:nal-hrd=cbr:filler=1:bitrate=8000:"
    "vbv-maxrate=8000:vbv-bufsize=4000",
}  # 40 kB per frame
MIB = 1 << 20


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    folder = tmp_path / "served"
    folder.mkdir()
    with FileServer(folder) as started:
        yield started


@pytest.fixture(scope="module")
def long_videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of videos of 150 frames and 6 MB; frame ``n`` shows ``n``."""
    folder = tmp_path_factory.mktemp("long")
    make_video(folder / "a.mp4", 150, "libx264", options=PADDED, with_audio=True)
    make_video(folder / "a.mkv", 150, "libx264", options=PADDED)
    return folder


def remote(url: str, *, storage_options: Any = FAST, **settings: Any) -> Videos:
    return Videos(url, storage_options=storage_options, **settings)


def frames_of(videos: Videos) -> list[Any]:
    provider = video_clips(videos, 7, step=5)
    try:
        return [provider.get_data(sample)["frames"] for sample in range(provider.get_number_of_samples())]
    finally:
        provider.close()


def assert_same(frames: list[Any], expected: list[Any]) -> None:
    assert len(frames) == len(expected) > 1
    for one, other in zip(frames, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def served(server: FileServer, path: Path, name: str = "") -> str:
    shutil.copyfile(path, server.folder / (name or path.name))
    return f"{server.url}/{name or path.name}"


def pack(server: FileServer, path: Path, name: str, kind: str) -> Path:
    packed = server.folder / "all.pack"
    if kind == "zip":
        with zipfile.ZipFile(packed, "w") as archive:
            archive.write(path, name)
    else:
        with tarfile.open(packed, "w") as tar:
            tar.add(path, name)
    return packed


# --- the same pixels ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["h264_b.mp4", "h264_b.ts", "h264_open.mkv", "vp9.webm", "mjpeg.avi", "h264_fragments.mp4"]
)
def test_pixels_are_those_of_the_local_file(server: FileServer, video: VideoOf, kind: str) -> None:
    url = served(server, video(kind))
    assert_same(frames_of(remote(url)), frames_of(Videos(video(kind))))
    assert index_video(url, storage_options=FAST) == index_video(video(kind))


@pytest.mark.parametrize("store", ["memory", "tar", "file"])
def test_stores(server: FileServer, video: VideoOf, store: str) -> None:
    """ZIP files are in `test_zipped_videos.py`."""
    path, name = video("h264_b.mp4"), "clips/a.mp4"
    packed = pack(server, path, name, "tar")
    fsspec.filesystem("memory").pipe_file(f"/remote/{name}", path.read_bytes())
    urls = {"memory": f"memory://remote/{name}", "tar": f"tar://{name}::{packed}", "file": f"file://{path}"}
    assert_same(frames_of(remote(urls[store], num_batch_threads=2)), frames_of(Videos(path)))
    if store == "tar":
        os.utime(packed, ns=(1, 1))
        provider = VideoFrameDataProvider(remote(urls[store]))
        os.utime(packed, ns=(2, 2))
        with pytest.raises(VideoError, match=r"all.pack' was changed after it was indexed \(it was written again"):
            provider.get_data(0)


def test_lists_folders_and_patterns(server: FileServer, video: VideoOf) -> None:
    content = video("h264_b.mp4").read_bytes()
    memory = fsspec.filesystem("memory")
    for name in ("bus/10.mp4", "bus/9.mp4", "car/1.MKV", "car/notes.txt"):
        memory.pipe_file(f"/drives/{name}", content)

    def found(root: str = "memory://drives", **settings: Any) -> list[str]:
        provider = VideoFrameDataProvider(Videos(**settings, storage_options=FAST), path_name="path")
        paths = [provider.get_data(first)["path"] for first in range(0, len(provider), 40)]
        return [path.removeprefix(f"{root}/") for path in paths]

    every = ["bus/10.mp4", "bus/9.mp4", "car/1.MKV"]
    assert found(file_root="memory://drives") == found(filenames="memory://drives/*/*.[mM]*") == every
    assert found(filenames="memory://drives/bus") == every[:2]
    for name, words, error in (
        ("/*.mp4", "No file matches the pattern 'memory://drives/*.mp4'", FileNotFoundError),
        ("", "There is no video in the folder 'memory://drives'", SettingError),
        ("/none.mp4", "memory://drives/none.mp4' cannot be read: there is none", FileError),
    ):
        assert_refused(lambda name=name: found(filenames=f"memory://drives{name}"), words, error)
    (server.folder / "9.mp4").write_bytes(content)
    for each in (server.url, f"{server.url}/*.mp4"):
        assert found(server.url, filenames=each) == ["9.mp4"]


# --- how much is read -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv"])
def test_what_is_read_of_a_long_video(long_videos: Path, server: FileServer, tmp_path: Path, name: str) -> None:
    url = served(server, long_videos / name)
    size = (server.folder / name).stat().st_size
    assert size > 5 * MIB
    videos = remote(url, index_cache=tmp_path / "indices")
    provider = video_clips(videos, 8)
    assert server.num_bytes < (1.8 * MIB if name == "a.mp4" else 1.1 * size)  # its tables; else all, once
    assert server.num_reads <= (6 if name == "a.mp4" else 9)
    assert len(server.requests) == server.num_reads + 2
    assert provider.video_index(0) == index_video(long_videos / name)
    server.forget()
    provider = video_clips(videos, 8)
    assert server.requests == [("HEAD", f"/{name}")]  # the index is there
    server.forget()
    assert read_numbers(provider.get_data(9)["frames"]) == [*range(72, 80)]
    # What the 20 frames from a key frame on have; of Matroska also the table at its end.
    assert server.num_bytes < (0.9 if name == "a.mp4" else 1.2) * MIB
    assert server.num_reads <= (1 if name == "a.mp4" else 3)
    assert len(server.requests) == server.num_reads + 1  # one for the version
    num_bytes = server.num_bytes
    server.forget()
    assert read_numbers(provider.get_data(9)["frames"]) == [*range(72, 80)]
    assert server.num_reads == 0  # the bytes are kept
    provider.close()
    provider = pickle.loads(pickle.dumps(provider))  # as in a worker
    server.forget()
    assert read_numbers(provider.get_data(9)["frames"]) == [*range(72, 80)]
    assert server.num_bytes == num_bytes
    provider.close()
    server.forget()
    for sample in range(provider.get_number_of_samples()):
        provider.get_data(sample)
    assert server.num_bytes < 1.2 * size
    assert server.num_reads <= 9


@pytest.mark.parametrize(
    ("kind", "options", "is_read_whole"),
    [
        ("open", "open-gop=1:bframes=3", False),
        ("refresh", "intra-refresh=1:bframes=0", True),  # key frames from which no frame is whole
        ("fragments", "bframes=2", True),
        pytest.param("hevc", "bframes=3:log-level=none", False, marks=pytest.mark.wide),
    ],
)
def test_an_index_from_tables_is_that_of_the_whole_file(
    server: FileServer, tmp_path: Path, kind: str, options: str, is_read_whole: bool
) -> None:
    path, codec = tmp_path / f"{kind}.mp4", "libx265" if kind == "hevc" else "libx264"
    how = {"preset": "ultrafast", f"{codec[3:]}-params": f"keyint=12:qp=20:{options}"}
    # 2 to 3 MB, as noise needs many bytes.
    images = np.random.default_rng(0).integers(0, 256, (64, 192, 256, 3), np.uint8)
    write_images(path, [*images], codec, options=how)
    if kind == "fragments":
        path = copy_packets(path, tmp_path / "parts.mp4", options={"movflags": "frag_keyframe"})
    url = served(server, path)
    assert index_video(url, storage_options=FAST) == index_video(path)
    size = path.stat().st_size
    assert size > 2 * MIB
    assert (server.num_bytes >= size) if is_read_whole else (server.num_bytes < 0.9 * size), server.num_bytes


def test_encoded_clips_are_requested_once(long_videos: Path, server: FileServer, tmp_path: Path) -> None:
    videos = remote(served(server, long_videos / "a.mp4"), index_cache=tmp_path / "indices")
    provider = video_clips(videos, 4, step=30, images="encoded")
    server.forget()
    steps = [VideoDecoder("frames")]
    with DataLoader(provider, 1, steps=steps, shuffle=False, num_workers=0, output_type="numpy") as loader:
        found = [read_numbers(batch["frames"][0]) for batch in loader]
    assert found == [[*range(start, start + 4)] for start in range(0, 121, 30)]
    assert server.num_reads == len(server.requests) - 1 == 5  # one for the version
    assert server.num_bytes < 5 * 0.6 * MIB


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_members_of_archives_are_read_in_parts(
    long_videos: Path, server: FileServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = pack(server, long_videos / "a.mkv", "clips/a.mkv", kind)
    url = f"{kind}://clips/a.mkv::{server.url}/all.pack"
    provider = video_clips(remote(url), 8)
    provider.get_data(0)  # the list of members
    provider.close()
    server.forget()
    assert read_numbers(provider.get_data(9)["frames"]) == [*range(72, 80)]
    assert server.num_bytes < 1.3 * MIB
    assert (server.num_reads, len(server.requests)) == (2, 2)
    reader = FrameReader(located(url, FAST), provider.video_index(0))
    reader.frames([2])
    os.utime(packed, ns=(1, 1))
    monkeypatch.setattr(remote_file, "CHECK_EACH_S", 0.0)
    with pytest.raises(VideoError, match=r"all.pack' was changed after it was indexed: it was changed while"):
        reader.frames([140])
    reader.close()


# --- changed meanwhile ----------------------------------------------------------------------------------


@pytest.mark.parametrize("has_versions", [True, False])
def test_a_video_that_was_replaced_after_it_was_indexed(
    server: FileServer, video: VideoOf, tmp_path: Path, has_versions: bool
) -> None:
    url = served(server, video("h264_b.mp4"))
    index = index_video(url)
    served(server, video("h264_b.mp4"))  # of the same size
    with pytest.raises(VideoError, match=r"was changed after it was indexed \(it was written again\)"):
        FrameReader(url, index)
    server.has_versions = has_versions  # if not, its size is all that tells
    videos = remote(url, index_cache=tmp_path / "indices")
    provider = VideoFrameDataProvider(videos)
    kept = pickle.dumps(provider)
    served(server, video("h264_irregular.mp4"), "h264_b.mp4")
    with pytest.raises(VideoError, match=rf"'{url}' was changed after it was indexed \(\d+ bytes then, \d+ now\)"):
        provider.get_data(3)
    assert VideoFrameDataProvider(videos).get_number_of_samples() == 20
    with pytest.raises(FileError, match=rf"index of the video '{url}' in '.*indices/.*' was made anew after this"):
        pickle.loads(kept)


def test_a_video_that_is_replaced_while_it_is_read(
    long_videos: Path, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_file, "CHECK_EACH_S", 0.0)
    url = served(server, long_videos / "a.mkv")
    reader = FrameReader(located(url, FAST), index_video(url))
    reader.frames([2])
    served(server, long_videos / "a.mkv")  # the same bytes, which nobody knows before they are read
    server.forget()
    with pytest.raises(
        VideoError, match=rf"'{url}' was changed after it was indexed: it was changed while it was"
    ):
        reader.frames([140])
    assert server.num_reads <= 1  # it is not asked again: it would not change back
    reader.close()


# --- servers that fail ----------------------------------------------------------------------------------


def test_what_passes_is_tried_again(server: FileServer, video: VideoOf) -> None:
    url = served(server, video("h264_b.mp4"))
    expected = frames_of(Videos(video("h264_b.mp4")))
    server.faults[:] = ["500", "cut", "", "429", "503"]
    assert_same(frames_of(remote(url)), expected)
    assert not server.faults


@pytest.mark.parametrize(
    ("fault", "error_type", "reason"),
    [
        ("500", OSError, "500, message='Internal Server Error'"),
        ("cut", OSError, "Response payload is not completed|cut short"),
        ("403", OSError, "403, message='Forbidden'"),
        ("404", FileNotFoundError, "h264"),
        ("stall", TimeoutError, r"there was no answer within 0\.3 s"),
    ],
)
def test_what_does_not_pass_is_the_error_that_it_was(
    server: FileServer, video: VideoOf, fault: str, error_type: type[Exception], reason: str
) -> None:
    url = served(server, video("h264_open.mkv"))
    hasty = {"reading": attrs.evolve(FAST["reading"], attempts=2, timeout_s=0.3 if fault == "stall" else 30)}
    provider = video_clips(remote(url, storage_options=hasty), 5)
    server.lasting_fault = fault
    with pytest.raises(FileError, match=rf"Cannot read '{url}' after 0 decoded frames: .*({reason})") as failed:
        provider.get_data(6)
    assert isinstance(failed.value, error_type)
    assert not isinstance(failed.value, VideoError)
    assert failed.value.__cause__ is not None
    server.lasting_fault = ""
    assert read_numbers(provider.get_data(6)["frames"]) == [30, 31, 32, 33, 34]


@pytest.mark.parametrize(("name", "num_good"), [("a.mp4", 0), ("a.mkv", 1)])
def test_the_frame_is_named_where_reading_breaks_off(
    long_videos: Path, server: FileServer, name: str, num_good: int
) -> None:
    url = served(server, long_videos / name)
    reader = FrameReader(located(url, FAST), index_video(url))
    reader.frames([0])
    server.faults[:] = [""] * num_good
    server.lasting_fault = "500"
    told = rf"Frame \d+ of the video '{url}', at \d\.\d+ s, cannot be read: .*500"
    with pytest.raises(FileError, match=told) as failed:
        reader.frames([*range(80, 140)])
    assert not isinstance(failed.value, VideoError)
    reader.close()


def test_servers_that_do_not_send_parts(server: FileServer, long_videos: Path, video: VideoOf) -> None:
    server.serves_ranges = False
    url = served(server, long_videos / "a.mp4")
    with pytest.raises(io.UnsupportedOperation, match=rf"'{url}' .* it can only be read as a whole") as failed:
        index_video(url)
    assert isinstance(failed.value, FileError)
    url = served(server, video("h264_b.mp4"))
    server.serves_ranges = True
    server.refused = ("HEAD",)  # as URLs that were signed for one method
    assert index_video(url) == index_video(video("h264_b.mp4"))


def test_credentials_are_not_shown(server: FileServer, video: VideoOf) -> None:
    served(server, video("h264_b.mp4"))
    url = f"{server.url.replace('://', '://me:hidden@')}/h264_b.mp4?X-Amz-Signature=hidden&part=1"
    videos = remote(url, storage_options={**FAST, "headers": {"X-Key": "hidden"}})
    provider = VideoFrameDataProvider(videos)
    server.lasting_fault = "500"
    message = str(assert_refused(lambda: provider.get_data(3), "***", FileError))
    assert "hidden" not in message + repr(provider)
    assert "X-Key" not in repr(videos)
    shown = f"{server.url.replace('://', '://***@')}/h264_b.mp4?X-Amz-Signature=***&part=1"
    assert provider.describe_sample(3) == f"{shown}, frame 3"


def test_an_open_file_is_read_from_its_start(video: VideoOf) -> None:
    for kind in ("h264_b.mp4", "h264_b.ts"):
        with video(kind).open("rb") as file:
            file.seek(100)
            assert index_video(file) == index_video(video(kind))


# --- workers --------------------------------------------------------------------------------------------


def test_workers_open_videos_themselves(server: FileServer, video: VideoOf, tmp_path: Path) -> None:
    urls = [served(server, video(kind)) for kind in ("h264_b.mp4", "vp9.webm")]
    server.faults[:] = ["500"] * 2
    videos = Videos(urls, storage_options=FAST, index_cache=tmp_path / "indices", num_batch_threads=2)
    provider = VideoFrameDataProvider(videos)
    provider.get_data(0)  # a connection of this process
    server.faults[:] = ["cut", "", "500"]
    with DataLoader(provider, 8, num_workers=2, start_method="fork", output_type="numpy") as loader:
        numbers = [read_numbers(batch["image"]) for batch in loader]
    assert numbers == [[number % 40 for number in range(first, first + 8)] for first in range(0, 80, 8)]
    assert not server.faults
