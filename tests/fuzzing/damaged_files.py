"""Reads damaged files of a kind, in a process of its own with little memory, see `test_damaged_files.py`.

``python damaged_files.py FOLDER KIND``: the file that is read is kept in the folder, so that one that ends the
process is there afterwards.
"""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import json
import resource
import shutil
import struct
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from driving_support.kitti import write_tracking
from driving_support.lerobot import write_lerobot
from driving_support.physical_ai import write_features
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.videos import make_video

from accvlab.dali_pipeline_framework.errors import FrameworkError
from accvlab.dali_pipeline_framework.providers import Columns, Storage
from accvlab.dali_pipeline_framework.providers.files.remote_reading import RemoteReading
from accvlab.dali_pipeline_framework.video.video_decoding import VideoStreamDecoder
from accvlab.dali_pipeline_framework.video.video_index import index_video
from accvlab.driving_data.datasets.arrow_logs import point_columns_of, read_points
from accvlab.driving_data.datasets.driving.arrow_files import ArrowFile, ListsOf, read_columns
from accvlab.driving_data.datasets.driving.requested_parts import RequestedParts
from accvlab.driving_data.datasets.kitti import tracking_index
from accvlab.driving_data.datasets.lerobot.lerobot_files import LeRobotFiles
from accvlab.driving_data.datasets.nuscenes import tables
from accvlab.driving_data.datasets.nuscenes.nuscenes_provider import _messages
from accvlab.driving_data.datasets.nuscenes.splits import chosen_by_split
from accvlab.driving_data.datasets.physical_ai.layout import published_layout

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
feather = pytest.importorskip("pyarrow.feather")
pq = pytest.importorskip("pyarrow.parquet")

MOST_NEW_BYTES = 3 << 30  # address space beyond what the process has when it begins
LONGEST_S = 10.0  # of a file
NUM_EXAMPLES = 1000


class Kind(NamedTuple):
    """A kind of file: what writes a good one and returns its path, and what reads all of it."""

    write: Callable[[Path], Path]
    read: Callable[[Path], Any]


# --- tables ---------------------------------------------------------------------------------------------------

COLUMNS = {"time": "whole", "name": "text", "x": "number"}


TABLE = pa.table(
    {
        "time": np.arange(40),
        "name": pa.array([f"name-{number % 3}" for number in range(40)]),
        "x": np.linspace(0, 1, 40),
        "times": pa.array([[1, 2, 3]] * 40),
        "image": pa.array([b"image" * number for number in range(40)]),
    }
)


def _parquet(folder: Path) -> Path:
    pq.write_table(TABLE, folder / "a.parquet", compression="zstd", row_group_size=16)
    return folder / "a.parquet"


def _feather(compression: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        feather.write_feather(TABLE, str(folder / "a.feather"), compression=compression, chunksize=16)
        return folder / "a.feather"

    return write


def _read_columns(path: Path) -> None:
    columns = read_columns(path, {**COLUMNS, "times": ListsOf("whole")})
    times = columns.pop("times")
    assert {len(times.counts), *map(len, columns.values())} == {len(columns["time"])}
    assert len(times.values) == times.counts.sum()


def _read_arrow_file(path: Path) -> None:
    file = ArrowFile(str(path))
    for name in file.names:
        with contextlib.suppress(FrameworkError, OverflowError):  # of dates, by pyarrow
            file.column(name).to_pylist()
    for row in range(min(file.num_rows, 100)):
        content = file.content("image", row)
        assert content is None or content.sum() >= 0


def _arrow_log(folder: Path) -> Path:
    points = pa.record_batch({name: np.linspace(0, 1, 50, dtype=np.float32) for name in ("x", "y", "z")})
    cells = []
    for _ in range(2):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, points.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
            stream.write_batch(points)
        cells.append(sink.getvalue().to_pybytes())
    with pa.OSFile(str(folder / "a.arrow"), "wb") as sink:
        table = pa.table({"lidar": cells})
        with pa.ipc.new_file(sink, table.schema) as file:
            file.write_table(table)
    return folder / "a.arrow"


def _read_arrow_log(path: Path) -> None:
    file = ArrowFile(str(path))
    names = point_columns_of(file, "lidar")
    for row in range(min(file.num_rows, 10)):
        read_points(file, "lidar", row, names).sum()


def _json(name: str, value: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_text(json.dumps(value, indent=0))
        return folder / name

    return write


SAMPLES = [
    {"token": f"t{number}", "next": "", "timestamp": number, "translation": [1.5, 2, 3], "is_key_frame": True}
    for number in range(20)
]
MESSAGES = [{"utime": number, "pos": [1, 2.5, 3]} for number in range(20)]


def _read_nuscenes(path: Path) -> None:
    tables._PIECE = 256
    table = tables.read_table(path, "token", "timestamp", "translation", "is_key_frame")
    table.rows_of(table, "token")


def _read_lerobot(path: Path) -> None:
    files = LeRobotFiles(path.parent.parent)
    videos = [name for name in files.feature_names if files.feature(name).dtype == "video"]
    assert files.episodes(videos, None).video.keys() == {*videos}


def _features(folder: Path) -> Path:
    write_features(folder)
    return folder / "features.csv"


def _kitti(part: str) -> Kind:
    return Kind(
        lambda folder: write_tracking(folder / "kitti") / part / "0000.txt",
        lambda path: tracking_index(path.parents[1], ["0000"], True, 10, RequestedParts({"boxes": True})),
    )


# --- archives and arrays --------------------------------------------------------------------------------------


def _zip(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train/a.jpg", bytes(range(256)) * 4)
        archive.writestr("train/b.jpg", bytes(5000))
    return folder / "a.zip"


def _tar(folder: Path) -> Path:
    (folder / "a.jpg").write_bytes(bytes(range(256)) * 4)
    with tarfile.open(folder / "a.tar", "w") as archive:
        archive.add(folder / "a.jpg", "train/a.jpg")
        archive.add(folder / "a.jpg", "train/" + "b" * 150 + ".jpg")
    return folder / "a.tar"


def _read_archive(path: Path) -> None:
    protocol = path.suffix[1:]
    storage = Storage(
        f"{protocol}://train::{path}", {"reading": RemoteReading(attempts=1), "skip_instance_cache": True}
    )
    for entry in storage.list_folder():
        with contextlib.suppress(FrameworkError):
            storage.read_bytes(entry.name)


def _index(pattern: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        arrays = {"a": np.arange(12.0).reshape(4, 3), "b": np.array([b"x", b"yz"])}
        Columns("index", arrays, {"names": ["x"]}).save(folder / "index")
        return next((folder / "index").glob(pattern))

    return write


def _read_index(path: Path) -> None:
    for array in Columns.open(path.parent, "index").arrays.values():
        array.tobytes()


# --- videos ---------------------------------------------------------------------------------------------------


def _video(name: str, codec: str) -> Callable[[Path], Path]:
    return lambda folder: make_video(folder / name, 14, codec)


def _read_video(path: Path) -> None:
    with VideoStreamDecoder(path) as decoder:
        for _ in itertools.islice(decoder, 20):
            pass
    index_video(path)


KINDS = {
    "parquet": Kind(_parquet, _read_columns),
    "feather": Kind(_feather("zstd"), _read_columns),
    "arrow": Kind(_feather("zstd"), _read_arrow_file),
    "arrow, not compressed": Kind(_feather("uncompressed"), _read_arrow_file),
    "arrow log": Kind(_arrow_log, _read_arrow_log),
    "table of nuscenes": Kind(_json("sample.json", SAMPLES), _read_nuscenes),
    "can bus": Kind(_json("scene_pose.json", MESSAGES), lambda path: _messages(path, {"pos": 3})),
    "split": Kind(_json("split.json", ["scene-0001", "scene-0002"]), lambda path: chosen_by_split(path, [])),
    "lerobot": Kind(lambda folder: write_lerobot(folder / "lerobot") / "meta" / "info.json", _read_lerobot),
    "physical_ai": Kind(_features, lambda path: published_layout(Storage(path.parent))),
    "kitti labels": _kitti("label_02"),
    "kitti calibration": _kitti("calib"),
    "kitti poses": _kitti("oxts"),
    "zip": Kind(_zip, _read_archive),
    "tar": Kind(_tar, _read_archive),
    "header of an index": Kind(_index("header.json"), _read_index),
    "column of an index": Kind(_index("a.*.npy"), _read_index),
    "mp4": Kind(_video("a.mp4", "libx264"), _read_video),
    "mkv": Kind(_video("a.mkv", "libx264"), _read_video),
    "webm": Kind(_video("a.webm", "libvpx-vp9"), _read_video),
    "avi": Kind(_video("a.avi", "mjpeg"), _read_video),
}


def _numbers() -> list[bytes]:
    """What is written over parts of a file: numbers that claim much, texts, and what ends things."""
    values = (0, 1, -1, 2**31 - 1, -(2**31), 2**24)
    numbers = [struct.pack(form, value) for value in values for form in ("<i", ">i", "<q", ">q")]
    texts = [b"1e999", b"nan", b"9" * 5000, b"[" * 5000, b"{}", b"null", b'"', b"\n", b" ", b"-", b"\xff\xfe"]
    return [*numbers, *texts, b"\0" * 64]


def main() -> None:
    folder, kind = Path(sys.argv[1]), KINDS[sys.argv[2]]
    path = kind.write(folder)
    content = path.read_bytes()
    kind.read(path)  # all is imported
    shutil.copy(path, folder / "good")
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + MOST_NEW_BYTES,) * 2)
    size = len(content)
    place = (
        st.integers(0, size - 1) | st.integers(0, min(size, 200) - 1) | st.integers(max(0, size - 200), size - 1)
    )
    part = st.binary(min_size=1, max_size=8) | st.sampled_from(_numbers())
    edit = st.tuples(place, st.sampled_from([True, True, True, False]), part)
    edits = st.tuples(st.lists(edit, min_size=1, max_size=3), st.none())
    damage = edits | edits | edits | st.tuples(st.just([]), st.integers(0, size))
    counts = {"read": 0, "refused": 0}

    @settings(
        max_examples=NUM_EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(damage)
    def each(damage: Any) -> None:
        edits, end = damage
        damaged = bytearray(content)
        for at, is_put_over, put in edits:
            damaged[at : at + (len(put) if is_put_over else 0)] = put
        path.write_bytes(damaged[:end])
        faulthandler.dump_traceback_later(LONGEST_S, exit=True)
        try:
            kind.read(path)
            counts["read"] += 1
        except FrameworkError:
            counts["refused"] += 1
        finally:
            faulthandler.cancel_dump_traceback_later()

    each()
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
