"""What files may have and claim: more is refused before memory is reserved for it, and the limit is named."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.clip_data import write_lerobot
from support.optional_packages import has
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework import DataLoader, SampleDataGroup, WebDatasetReader, limits
from accvlab.dali_pipeline_framework.datasets.arrow_logs.lidar_content import read_points
from accvlab.dali_pipeline_framework.datasets.clips.lerobot_files import LeRobotFiles
from accvlab.dali_pipeline_framework.datasets.driving.arrow_files import ArrowFile, read_columns
from accvlab.dali_pipeline_framework.datasets.driving.driving_index import _mapped
from accvlab.dali_pipeline_framework.datasets.driving.parquet_pages import _pages, parsed_page
from accvlab.dali_pipeline_framework.datasets.kitti.text_files import read_rows
from accvlab.dali_pipeline_framework.datasets.nuscenes import tables
from accvlab.dali_pipeline_framework.datasets.nuscenes.can_bus import _messages
from accvlab.dali_pipeline_framework.datasets.nuscenes.splits import _scenes_in_file
from accvlab.dali_pipeline_framework.errors import FileError, SettingError, VideoError
from accvlab.dali_pipeline_framework.limits import file_limits
from accvlab.dali_pipeline_framework.loader.states.state import _checkpoint
from accvlab.dali_pipeline_framework.providers.files.storage import Storage
from accvlab.dali_pipeline_framework.providers.videos.video_decoding import VideoDecoder

pytestmark = pytest.mark.timeout(60)

LARGE = (1 << 33) + 1
READERS: dict[str, Callable[[Path], Any]] = {
    "file": lambda path: Storage(path.parent).read_bytes(path.name),
    "table of nuScenes": lambda path: tables.read_table(path, {"token": tables.TOKEN}),
    "CAN messages": lambda path: _messages(path, {"pos": 3}),
    "split": _scenes_in_file,
    "KITTI": lambda path: read_rows(path, 12, "a pose"),
    "LeRobot": lambda path: LeRobotFiles(path.parents[1]).info,
    "Feather": lambda path: read_columns(path, {"x": "number"}),
    "Arrow": lambda path: ArrowFile(str(path)),
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(file_limits.UNPACKED_BYTES, "most", 1 << 20)
    return 1 << 20


def refusal(read: Callable[[], Any], error: type[Exception] = FileError) -> str:
    """What a reader says; it must be fast, and reserve little."""
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises(error) as caught:
            read()
        assert time.process_time() - began < 5
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    return str(caught.value)


@pytest.mark.parametrize("name", READERS)
def test_files_that_are_too_large(tmp_path: Path, name: str) -> None:
    path = tmp_path / "meta" / "info.json"
    path.parent.mkdir()
    with path.open("wb") as file:
        os.truncate(file.fileno(), LARGE)  # without a block on the disk
    message = refusal(lambda: READERS[name](path))
    assert repr(str(path)) in message
    assert f"it has {LARGE} bytes, more than the limit of {1 << 33}" in message
    assert "raise the limit: `limits.set_most_file_bytes`" in message


@pytest.mark.parametrize("name", [name for name in READERS if name != "file"])
def test_pipes_are_not_waited_for(tmp_path: Path, name: str) -> None:
    path = tmp_path / "meta" / "info.json"
    path.parent.mkdir()
    os.mkfifo(path)
    assert re.search("it is no (regular )?file", refusal(lambda: READERS[name](path)))


LIMITS = ("file_bytes", "unpacked_bytes", "video_frames", "image_pixels")


@pytest.fixture
def other_limits() -> Iterator[list[int]]:
    before = file_limits.all_limits()
    for number, name in enumerate(LIMITS):
        getattr(limits, f"set_most_{name}")(7000 + number)
    yield [7000, 7001, 7002, 7003]
    file_limits.set_all_limits(before)


def limits_now() -> list[int]:
    return [getattr(limits, f"most_{name}")() for name in LIMITS]


def test_limits_are_settings(request: pytest.FixtureRequest) -> None:
    assert limits_now() == [2**33, 2**31, 2**24, 2**28]
    request.getfixturevalue("other_limits")
    assert limits_now() == [7000, 7001, 7002, 7003]
    for name in LIMITS:
        for count in (0, "77"):
            with pytest.raises(SettingError, match="`count` must be a whole number"):
                getattr(limits, f"set_most_{name}")(count)
    assert limits_now() == [7000, 7001, 7002, 7003]


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
    subprocess.run(command, cwd=tmp_path, check=True, timeout=50)
    assert (tmp_path / "a.tar").stat().st_size < 1 << 20
    message = refusal(lambda: Storage(f"tar://::{tmp_path / 'a.tar'}").read_bytes("a.jpg"))
    assert f"it has {3 << 30} bytes, more than the limit of {2**31}" in message


def webdataset(size: bytes | None) -> bytes:
    """An archive of eight files; where a size is given, the first one claims it."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for number in range(8):
            info = tarfile.TarInfo(f"{number}.bin")
            info.size = 1000
            archive.addfile(info, io.BytesIO(bytes([number]) * 1000))
    header = bytearray(content.getvalue())
    if size is not None:
        header[124:136] = size
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header[:512])
    return bytes(header)


@pytest.mark.parametrize("size", [None, b"77777777777\0"])  # 8 GiB
def test_archives_that_dali_reads(tmp_path: Path, size: bytes | None) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(webdataset(size)[: 5000 if size is None else None])
    reader = WebDatasetReader(paths=[str(path)], ext=["bin"])
    message = refusal(lambda: DataLoader(reader, 2, num_workers=0, output_type="numpy").start(), SettingError)
    assert str(path) in message
    assert "DALI reports" in message


# --- tables of Arrow ------------------------------------------------------------------------------------------


@pytest.mark.skipif(not has("pyarrow"), reason="needs pyarrow")
class TestArrow:
    def table(self, count: int = 1 << 20) -> Any:
        import pyarrow as pa

        return pa.table({"x": np.zeros(count), "name": pa.array(["n"]).take(pa.array(np.zeros(count, int)))})

    @pytest.mark.parametrize("columns", [{"x": "number"}, {"name": "text"}])
    def test_a_table_that_unpacks_to_more(self, tmp_path: Path, columns: Any, small: int) -> None:
        import pyarrow.feather as feather
        import pyarrow.parquet as pq

        pq.write_table(self.table(), tmp_path / "a.parquet", compression="zstd")
        feather.write_feather(self.table(), str(tmp_path / "a.feather"), compression="zstd")
        for path in (tmp_path / "a.parquet", tmp_path / "a.feather"):
            message = refusal(lambda path=path: read_columns(path, columns))
            assert repr(str(path)) in message
            assert f"more than the limit of {small}" in message

    def test_a_text_that_is_as_long_as_the_table(self, tmp_path: Path, small: int) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"name": ["n" * 10_000, *["n"] * 1000]}), tmp_path / "a.parquet")
        message = refusal(lambda: read_columns(tmp_path / "a.parquet", {"name": "text"}))
        assert f"as an array it needs {1001 * 40_000} bytes, more than the limit of {small}" in message

    def test_a_log_that_unpacks_to_more(self, tmp_path: Path, small: int) -> None:
        import pyarrow.feather as feather

        path = tmp_path / "a.arrow"
        feather.write_feather(self.table(), str(path), compression="lz4", chunksize=1 << 20)
        for read in (lambda: ArrowFile(str(path)).num_rows, lambda: ArrowFile(str(path)).column("x")):
            message = refusal(read)
            assert repr(str(path)) in message
            assert re.search(rf"unpacked it has \d+ bytes, more than the limit of {small}", message)

    def test_many_batches_that_unpack_to_more_together(self, tmp_path: Path, small: int) -> None:
        import pyarrow.feather as feather

        path = tmp_path / "a.arrow"
        feather.write_feather(self.table(), str(path), compression="zstd", chunksize=1 << 14)
        assert ArrowFile(str(path)).num_rows == 1 << 20
        message = refusal(lambda: ArrowFile(str(path)).column("x"))
        assert re.search(rf"the column 'x' has \d+ bytes, more than the limit of {small}", message)

    def test_points_that_unpack_to_more(self, tmp_path: Path, small: int) -> None:
        import pyarrow as pa
        import pyarrow.feather as feather

        batch = pa.record_batch({name: np.zeros(1 << 18, np.float32) for name in "xyz"})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
            stream.write_batch(batch)
        table = pa.table({"lidar": [sink.getvalue().to_pybytes()]})
        feather.write_feather(table, str(tmp_path / "a.arrow"), compression="uncompressed")
        file = ArrowFile(str(tmp_path / "a.arrow"))
        message = refusal(lambda: read_points(file, "lidar", 0, "xyz"))
        assert f"The points in row 0 of {str(tmp_path / 'a.arrow')!r}" in message
        assert f"unpacked it has {3 << 20} bytes, more than the limit of {small}" in message

    def test_a_buffer_that_claims_terabytes(self, tmp_path: Path) -> None:
        import pyarrow.feather as feather

        path = tmp_path / "a.arrow"
        feather.write_feather(self.table(1000), str(path), compression="zstd")
        content = path.read_bytes()
        claimed = struct.pack("<q", 8000)
        assert claimed in content
        path.write_bytes(content.replace(claimed, struct.pack("<q", 1 << 42)))
        message = refusal(lambda: ArrowFile(str(path)).column("x"))
        assert re.search(rf"unpacked it has \d{{13}} bytes, more than the limit of {2**31}", message)

    @pytest.mark.parametrize("claimed", [1001, 1 << 30, 1 << 60])
    def test_columns_that_are_shorter_than_they_claim(self, tmp_path: Path, claimed: int) -> None:
        import pyarrow as pa
        import pyarrow.feather as feather

        path = tmp_path / "a.arrow"
        table = pa.table({"cells": [b"content"] * 1000, "x": np.zeros(1000)})
        feather.write_feather(table, str(path), compression="uncompressed")
        path.write_bytes(path.read_bytes().replace(struct.pack("<q", 1000), struct.pack("<q", claimed)))
        reads = (
            lambda: ArrowFile(str(path)).num_rows,
            lambda: ArrowFile(str(path)).content("cells", 0),
            lambda: ArrowFile(str(path)).column("x"),
            lambda: read_columns(path, {"x": "number"}),
        )
        for read in reads:
            assert repr(str(path)) in refusal(read)


# --- text -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["[" * 100_000, '[{"token": ' + "9" * 5000 + "}]", '[{"token": ' + "[" * 100_000])
def test_values_of_json_without_end(tmp_path: Path, text: str) -> None:
    path = tmp_path / "meta" / "info.json"
    path.parent.mkdir()
    path.write_text(text)
    for name in ("table of nuScenes", "CAN messages", "split", "LeRobot"):
        assert repr(str(path)) in refusal(lambda name=name: READERS[name](path))


def test_a_record_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_PIECE", 1 << 10)
    monkeypatch.setattr(tables, "_LONGEST_RECORD", 1 << 12)
    (tmp_path / "a.json").write_text('[{"token": "' + "a" * 10_000 + '"}, {"token": "b"}]')
    message = refusal(lambda: READERS["table of nuScenes"](tmp_path / "a.json"))
    assert "no record ends within 5119 characters" in message


def test_a_token_that_is_as_long_as_the_table(tmp_path: Path, small: int) -> None:
    records = [{"token": "a" * 10_000}, *({"token": f"b{number}"} for number in range(1000))]
    (tmp_path / "a.json").write_text(json.dumps(records))
    message = refusal(lambda: READERS["table of nuScenes"](tmp_path / "a.json"))
    assert f"1001 texts, one of 10000 bytes, need 10010000 bytes, more than the limit of {small}" in message


@pytest.mark.parametrize(
    "pattern", ["{chunk_index:999999999999d}", "{video_key.__class__}", "{0}", "{chunk_index!r:>9}"]
)
def test_names_of_files_with_formats_of_their_own(tmp_path: Path, pattern: str) -> None:
    files = LeRobotFiles(write_lerobot(tmp_path / "data", data_path=pattern))
    assert "must be a name with {video_key}" in refusal(lambda: files.data_file(1, 2))


# --- arrays and states ----------------------------------------------------------------------------------------


def test_an_array_that_claims_terabytes(tmp_path: Path) -> None:
    header = io.BytesIO()
    shape = {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    np.lib.format.write_array_header_1_0(header, shape)
    (tmp_path / "a.npy").write_bytes(header.getvalue())
    assert "mmap" in refusal(lambda: _mapped(tmp_path / "a.npy"), ValueError)  # which the index translates


def test_a_checkpoint_that_unpacks_to_more(small: int) -> None:
    text = base64.b85encode(zlib.compress(bytes(2 * small))).decode()
    assert f"more than {small} bytes" in refusal(lambda: _checkpoint(text), ValueError)


# --- videos ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not has("av"), reason="needs PyAV")
class TestVideos:
    @pytest.fixture
    def video(self, tmp_path: Path) -> Path:
        from support.videos import make_video

        return make_video(tmp_path / "a.mp4", 14, "libx264")

    def patched(self, video: Path, box: bytes, at: int, put: bytes) -> Path:
        content = bytearray(video.read_bytes())
        start = content.index(box) + 4 + at
        content[start : start + len(put)] = put
        video.write_bytes(content)
        return video

    def message(self, video: Path) -> str:
        message = refusal(lambda: VideoDecoder(video).next_frame(), VideoError)
        assert repr(str(video)) in message
        return message

    def test_more_frames_than_the_limit(self, video: Path) -> None:
        self.patched(video, b"stsz", 4, struct.pack(">II", 1, 2**31 - 1))
        message = self.message(video)
        assert f"it claims {2**31 - 1} frames, more than the limit of {2**24}" in message
        assert "`limits.set_most_video_frames`" in message

    def test_more_frames_than_the_file_holds(self, video: Path) -> None:
        self.patched(video, b"stsz", 4, struct.pack(">II", 7, 2**20))
        size = video.stat().st_size
        assert f"it claims {2**20} frames of 7 bytes each, but the file has {size} bytes" in self.message(video)

    def test_a_fragment_of_more_frames(self, tmp_path: Path) -> None:
        from support.videos import make_video

        video = make_video(
            tmp_path / "a.mp4", 14, "libx264", container_options={"movflags": "frag_keyframe+empty_moov"}
        )
        VideoDecoder(video).close()
        self.patched(video, b"trun", 0, struct.pack(">II", 0, 2**31 - 1))
        assert f"it claims {2**31 - 1} frames, more than the limit" in self.message(video)

    def test_frames_of_gigapixels(self, video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with VideoDecoder(video) as decoder:
            assert decoder.width * decoder.height == 96 * 64
        monkeypatch.setattr(file_limits.IMAGE_PIXELS, "most", 96 * 64 - 1)
        assert "it claims frames of 96 x 64 pixels, more than the limit of 6143" in self.message(video)


def whole(number: int, length: int = 0) -> bytes:
    """A whole number as Parquet writes it, with bytes that add nothing where it is to be longer."""
    number *= 2
    parts = [number >> shift & 127 for shift in range(0, max(number.bit_length(), 7 * length), 7)]
    return bytes([part | 128 for part in parts[:-1]] + parts[-1:])


@pytest.mark.skipif(not has("pyarrow"), reason="needs pyarrow")
@pytest.mark.parametrize(("in_page", "in_footer"), [(None, 100), (2**31 - 1, 100), (2**31 - 1, None)])
def test_pages_that_claim_other_sizes_than_the_footer(
    tmp_path: Path, in_page: int | None, in_footer: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    table = pa.table({"x": np.zeros(2**24, np.int64)})
    one_page = {"data_page_size": 1 << 30, "row_group_size": 1 << 30, "max_rows_per_page": 1 << 30}
    pq.write_table(table, path, compression="zstd", use_dictionary=False, write_statistics=False, **one_page)
    size = pq.ParquetFile(path).metadata.row_group(0).column(0).total_uncompressed_size
    content = path.read_bytes()
    assert content[4:7] == b"\x15\0\x15"  # the header of the page; its second number is the size
    in_header = content[7:12]
    assert in_header[-1] < 128 <= min(in_header[:-1])
    if in_footer is not None:
        content = content.replace(whole(size), whole(in_footer, len(whole(size))))
    if in_page is not None:
        content = content.replace(in_header, whole(in_page, 5))
    path.write_bytes(content)
    limit = 2**31 - 1 if in_footer is None else 64 << 20
    monkeypatch.setattr(file_limits.UNPACKED_BYTES, "most", limit)
    pool, before = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        message = refusal(lambda: read_columns(path, {"x": "number"}))
    finally:
        pa.set_memory_pool(before)
    claimed = in_page or sum((byte & 127) << 7 * place for place, byte in enumerate(in_header)) // 2
    assert f"a column has pages of {claimed + 1024} bytes, unpacked, more than the limit of" in message
    assert pool.max_memory() < 1 << 20


@pytest.mark.skipif(not has("pyarrow"), reason="needs pyarrow")
def test_pages_are_read_as_they_are_written(tmp_path: Path) -> None:
    import pyarrow.parquet as pq
    from pyarrow import table

    values = {"x": np.arange(3000) % 7, "text": ["a", "b", "c"] * 1000, "list": [[1.0, 2.0]] * 3000}
    for version, compression, has_statistics in (("1.0", "none", True), ("2.0", "snappy", False)):
        path = tmp_path / f"{version}.parquet"
        settings = {"data_page_version": version, "compression": compression, "write_statistics": has_statistics}
        pq.write_table(table(values), path, data_page_size=512, row_group_size=2000, **settings)
        file, content = pq.ParquetFile(path), path.read_bytes()
        for group in range(2):
            for place in range(3):
                column = file.metadata.row_group(group).column(place)
                pages = list(_pages(lambda start, count, content=content: content[start : start + count], column))
                assert sum(page.header_bytes + page.packed_bytes for page in pages) == column.total_compressed_size
                assert (
                    sum(page.header_bytes + page.unpacked_bytes for page in pages)
                    == column.total_uncompressed_size
                )
        read = read_columns(path, {"x": "whole", "text": "text", "list": "numbers"})
        assert all(np.array_equal(read[name], each) for name, each in values.items())


DAMAGED_HEADERS = [b"", b"\x15", b"\xff" * 40, b"\x00", b"\x15\x01\x15\x01\x15\x01\x00", b"\x1c" * 99]


@pytest.mark.parametrize("content", DAMAGED_HEADERS)
def test_damaged_headers_of_pages(content: bytes) -> None:
    with pytest.raises((OSError, IndexError)):
        parsed_page(content)


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
    ended = subprocess.run(
        [sys.executable, "-c", TAR_BOMBS, *names],
        cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
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
