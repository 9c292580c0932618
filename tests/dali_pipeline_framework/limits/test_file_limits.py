"""What files may have and claim: more is refused before memory is reserved for it, and the limit is named."""

from __future__ import annotations

import io
import os
import shutil
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.child_processes import run_process
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


TAR_BOMBS = """
import resource, sys
from accvlab.dali_pipeline_framework import limits
from accvlab.dali_pipeline_framework.errors import FileError
from accvlab.dali_pipeline_framework.providers.files.storage import Storage
most = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (256 << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
limits.set_most_unpacked_bytes(16 << 20)
for name in sys.argv[1:]:
    try:
        Storage(f"tar://::{name}").read_bytes("a")
    except FileError as error:
        print(name, error)
print("end")
"""


@pytest.mark.skipif(not has("fsspec"), reason="needs fsspec")
@pytest.mark.timeout(120)
def test_compressed_tar_archives_are_not_unpacked_without_end(tmp_path: Path) -> None:
    """16 GB of zeros, a header of 4 GB, a million files; each in 17 MB at most, in a process of 256 MB more."""

    def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
        member = tarfile.TarInfo(name)
        member.size, member.type = size, kind
        return member.tobuf(tarfile.GNU_FORMAT)

    zeros = zlib_member(bytes(1 << 24))
    files = zlib_member(b"".join(header(f"{number}", 0) for number in range(1 << 10)))
    bombs = {
        "zeros": [zlib_member(header("a", 16 << 30)), *[zeros] * 1024],
        "name": [zlib_member(header("a", 4 << 30, tarfile.GNUTYPE_LONGNAME)), *[zeros] * 256],
        "rest": [zlib_member(header("b", 1)), *[zeros] * 1024],
        "files": [files] * (1 << 10),
    }
    for name, members in bombs.items():
        (tmp_path / f"{name}.tar.gz").write_bytes(b"".join(members))
    names = [f"{name}.tar.gz" for name in bombs]
    ended = run_process(
        [sys.executable, "-c", TAR_BOMBS, *names],
        cwd=tmp_path, timeout=100,
    )  # fmt: skip
    assert ended.stdout.splitlines()[-1:] == ["end"], ended.stderr
    told = dict(line.split(" ", 1) for line in ended.stdout.splitlines()[:-1])
    unpacked = (16 << 30) + 511
    assert f"unpacked it has at least {unpacked} bytes, more than the limit of {1 << 33}" in told["zeros.tar.gz"]
    assert f"a header in it claims {4 << 30} bytes" in told["name.tar.gz"]
    assert told["rest.tar.gz"] == "The file 'tar://a::rest.tar.gz' cannot be read: there is none."
    assert f"its headers take {(16 << 20) + 2048} bytes of memory, more than the limit of" in told["files.tar.gz"]


def zlib_member(content: bytes) -> bytes:
    """A part of a gzip file: these can be put behind each other."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return packer.compress(content) + packer.flush()


@pytest.mark.skipif(not has("fsspec"), reason="needs fsspec")
@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz"])
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
