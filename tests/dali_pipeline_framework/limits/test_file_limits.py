"""What files may have and claim: more is refused before memory is reserved for it, and the limit is named."""

from __future__ import annotations

import io
import os
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.child_processes import run_process
from support.laws import some
from support.optional_packages import has
from support.providers import IndexProvider
from support.refusals import assert_too_large_a_file_is_refused, refusal

from accvlab.dali_pipeline_framework import DataLoader, SampleDataGroup, limits
from accvlab.dali_pipeline_framework.errors import SettingError, VideoError
from accvlab.dali_pipeline_framework.limits import file_limits
from accvlab.dali_pipeline_framework.providers.files.storage import Storage
from accvlab.dali_pipeline_framework.video.video_decoding import VideoStreamDecoder


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(file_limits.UNPACKED_BYTES, "most", 1 << 20)
    return 1 << 20


def test_files_that_are_too_large(tmp_path: Path) -> None:
    assert_too_large_a_file_is_refused(tmp_path, lambda path: Storage(path.parent).read_bytes(path.name))


LIMITS = ("file_bytes", "unpacked_bytes", "image_pixels")


@pytest.fixture
def other_limits() -> Iterator[list[int]]:
    before = file_limits.all_limits()
    for number, name in enumerate(LIMITS):
        getattr(limits, f"set_most_{name}")(7000 + number)
    yield [7000, 7001, 7002]
    file_limits.set_all_limits(before)


def limits_now() -> list[int]:
    return [getattr(limits, f"most_{name}")() for name in LIMITS]


def test_limits_are_settings(request: pytest.FixtureRequest) -> None:
    assert limits_now() == [2**33, 2**31, 2**28]
    request.getfixturevalue("other_limits")
    assert limits_now() == [7000, 7001, 7002]
    for name in LIMITS:
        for count in (0, "77"):
            with pytest.raises(SettingError, match="`count` must be a whole number"):
                getattr(limits, f"set_most_{name}")(count)
    assert limits_now() == [7000, 7001, 7002]


class LimitsOfWorker(IndexProvider):
    """Each sample is the limits of the process that loads it."""

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.sample_data_structure
        sample["index"] = limits_now()
        return sample


@pytest.mark.parametrize("start_method", ["fork", "forkserver", pytest.param("spawn", marks=pytest.mark.wide)])
def test_workers_have_the_limits_of_their_loader(start_method: Any, other_limits: list[int]) -> None:
    settings: dict[str, Any] = {"num_workers": 1, "start_method": start_method, "output_type": "numpy"}
    with DataLoader(LimitsOfWorker(1), 1, **settings) as loader:
        assert next(iter(loader))["index"].tolist() == [other_limits]


# --- archives -------------------------------------------------------------------------------------------------


def test_a_file_in_an_archive_that_unpacks_to_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train/a.jpg", bytes(1000))
    content = bytearray(path.read_bytes())
    entry = content.index(b"PK\1\2")
    content[entry + 24 : entry + 28] = struct.pack("<I", 2**32 - 16)  # its size, in the index
    path.write_bytes(content)
    message = refusal(lambda: Storage(f"zip://train::{path}").read_bytes("a.jpg"))
    assert f"it has {2**32 - 16} bytes, more than the limit of {2**31}" in message
    assert "a.jpg" in message


def test_a_file_with_holes_in_an_archive(tmp_path: Path) -> None:
    with (tmp_path / "a.jpg").open("wb") as file:
        os.truncate(file.fileno(), 3 << 30)
    if shutil.which("tar") is None:
        pytest.skip("needs tar")
    command = ["tar", "-cSf", "a.tar", "--format=gnu", "a.jpg"]
    run_process(command, cwd=tmp_path, check=True, timeout=100)
    assert (tmp_path / "a.tar").stat().st_size < 1 << 20
    message = refusal(lambda: Storage(f"tar://::{tmp_path / 'a.tar'}").read_bytes("a.jpg"))
    assert f"it has {3 << 30} bytes, more than the limit of {2**31}" in message


# --- videos ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not has("av"), reason="needs PyAV")
class TestVideos:
    @pytest.fixture
    def video(self, tmp_path: Path) -> Path:
        from support.videos import make_video

        return make_video(tmp_path / "a.mp4", 14, "libx264")

    def test_frames_of_gigapixels(self, video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with VideoStreamDecoder(video) as decoder:
            assert decoder.width * decoder.height == 96 * 64
        monkeypatch.setattr(file_limits.IMAGE_PIXELS, "most", 96 * 64 - 1)
        message = refusal(lambda: VideoStreamDecoder(video).next_frame(), VideoError)
        assert f"{str(video)!r} is not decoded: it claims frames of 96 x 64 pixels, more than the" in message


@pytest.mark.skipif(not has("fsspec"), reason="needs fsspec")
@some("suffix", ["gz", "bz2", "xz"], {0})
def test_compressed_tar_archives_are_read(tmp_path: Path, suffix: Any) -> None:
    contents = {f"{number}/{'long' * number}.bin": bytes([number]) * 1000 * number for number in range(1, 60)}
    with tarfile.open(tmp_path / f"all.tar.{suffix}", f"w:{suffix}") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    storage = Storage(f"tar://::{tmp_path}/all.tar.{suffix}")
    for name, content in reversed(contents.items()):
        assert storage.read_bytes(name).tobytes() == content
        assert storage.open_binary(name).read() == content
