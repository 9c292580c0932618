# SPDX-License-Identifier: Apache-2.0
"""Files of small drives: contents by name, which are written in the form that the ending of the name says."""

from __future__ import annotations

import csv
import io
import json
import pickle
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np

from accvlab.dali_pipeline_framework.extension import needed_package

from ..datasets.driving.driving_index import DrivingIndex

Files = dict[str, Any]
"""Contents by name: bytes and text, columns of tables by name (single values are those of all rows), values of
``.json`` and ``.pkl``, rows of ``.csv``, points of ``.bin`` and ``.pcd``, files in a ``.zip``, or an index."""


def write_files(root: Path, files: Mapping[str, Any]) -> Path:
    """Write files below a folder, and return it."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, DrivingIndex):
            content.save(path)
        else:
            path.write_bytes(bytes_of(name, content))
    return root


def bytes_of(name: str, content: Any) -> bytes:
    """Content of a file, in the form that the ending of its name says."""
    if isinstance(content, bytes | str):
        return content if isinstance(content, bytes) else content.encode()
    return _FORMS[PurePosixPath(name).suffix](content)


def _rows(rows: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def _archive(files: Mapping[str, Any]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, bytes_of(name, content))
    return stream.getvalue()


def _point_cloud(points: Any) -> bytes:
    """Point cloud of NAVSIM; the columns are x, y, z, intensity, ring, lidar_info."""
    rows = np.asarray(points)
    header = (
        "# .PCD v0.7 - Point Cloud Data file format\nVERSION 0.7\nFIELDS x y z intensity ring lidar_info\n"
        "SIZE 4 4 4 1 1 1\nTYPE F F F U U U\nCOUNT 1 1 1 1 1 1\n"
        f"WIDTH {len(rows)}\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {len(rows)}\nDATA binary\n"
    )
    return header.encode() + np.rec.fromarrays(rows.T, "<f4,<f4,<f4,u1,u1,u1").tobytes()


def _table(write: Callable[[Any, io.BytesIO], None]) -> Callable[[Mapping[str, Any]], bytes]:
    def written(columns: Mapping[str, Any]) -> bytes:
        stream, is_single = io.BytesIO(), {name: np.isscalar(column) for name, column in columns.items()}
        length = max(len(column) for name, column in columns.items() if not is_single[name])
        full = {name: [column] * length if is_single[name] else column for name, column in columns.items()}
        write(needed_package("pyarrow").table(full), stream)
        return stream.getvalue()

    return written


def _feather(table: Any, stream: io.BytesIO) -> None:
    needed_package("pyarrow.feather").write_feather(table, stream, compression="zstd")


def _parquet(table: Any, stream: io.BytesIO) -> None:
    needed_package("pyarrow.parquet").write_table(table, stream)


_FORMS: Final[dict[str, Callable[[Any], bytes]]] = {
    ".bin": lambda points: np.asarray(points, np.float32).tobytes(),
    ".csv": _rows,
    ".feather": _table(_feather),
    ".json": lambda content: json.dumps(content, indent=0).encode(),
    ".parquet": _table(_parquet),
    ".pcd": _point_cloud,
    ".pkl": pickle.dumps,
    ".zip": _archive,
}


def arrow_file(metadata: Mapping[str, Any], columns: Mapping[str, tuple[Sequence[Any], Any]]) -> bytes:
    """Arrow file of py123d; columns are values with their type."""
    arrow, stream = needed_package("pyarrow"), io.BytesIO()
    schema = arrow.schema([(name, kind) for name, (_, kind) in columns.items()])
    schema = schema.with_metadata({b"metadata": needed_package("msgpack").packb(metadata)})
    with arrow.ipc.new_file(stream, schema) as file:
        file.write_batch(arrow.record_batch([arrow.array(*each) for each in columns.values()], schema=schema))
    return stream.getvalue()


def picture(hw: Sequence[int], number: int, box: Sequence[float] | None = None, suffix: str = ".jpg") -> bytes:
    """Image of sky, a road that grows lighter from number to number, and a car in a 2D box."""
    image = np.full((*hw, 3), (230, 190, 150), np.uint8)
    image[hw[0] // 2 :] = 70 + 10 * (number % 16)
    if box is not None:
        x1, y1, x2, y2 = (int(value) for value in box)
        image[y1:y2, x1:x2] = 40, 40, 200
    return bytes(needed_package("cv2").imencode(suffix, image)[1])


def video(numbers: Sequence[int], **options: str) -> bytes:
    """Video of 96 x 64 pixels, ten frames per second; frame k is of the grey level ``5 * numbers[k]``."""
    av, stream = needed_package("av"), io.BytesIO()
    with av.open(stream, "w", format="mp4") as container:
        track = container.add_stream("libx264", rate=10, options=options)
        track.width, track.height, track.pix_fmt = 96, 64, "yuv420p"
        for number in numbers:
            image = np.full((64, 96, 3), 5 * number % 256, np.uint8)
            container.mux(track.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(track.encode(None))
    return stream.getvalue()
