"""Small data sets in the formats that DALI's readers read."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image


def number_of(data: np.ndarray) -> int:
    """The number of a file of `numbered_files`, from its bytes ``(2,)`` or more."""
    return int(data[0]) * 256 + int(data[1])


def numbered_files(root: Path, sizes: Mapping[str, int]) -> Path:
    """One folder per label, with so many files; the bytes of each tell its number over all folders."""
    number = 0
    for label, size in sizes.items():
        (root / label).mkdir(parents=True)
        for file in range(size):
            (root / label / f"{file:04d}.jpg").write_bytes(bytes([number // 256, number % 256]))
            number += 1
    return root


def frame(number: int, height: int = 8, width: int = 6) -> np.ndarray:
    """An image of one colour that tells its number, ``(height, width, 3)`` uint8."""
    return np.full((height, width, 3), [number, 255 - number, number // 2], np.uint8)


def frame_folders(root: Path, lengths: Mapping[str, int]) -> Path:
    """One folder per stream, with so many frames as PNG, numbered over all streams."""
    number = 0
    for stream, length in lengths.items():
        (root / stream).mkdir(parents=True)
        for position in range(length):
            Image.fromarray(frame(number)).save(root / stream / f"{position:05d}.png")
            number += 1
    return root


def video(path: Path, num_frames: int, codec: str = "libvpx-vp9") -> Path:
    """A video of frames of 64 x 48 whose brightness grows with their number."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(num_frames):
            pixels = np.full((48, 64, 3), 8 * number, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    return path


def array_files(root: Path, count: int, dtype: type = np.float32) -> Path:
    """Arrays ``(2, 3)`` that hold their number."""
    root.mkdir(parents=True)
    for number in range(count):
        np.save(root / f"{number:03d}.npy", np.full((2, 3), number, dtype))
    return root


def tar_archive(path: Path, count: int) -> Path:
    """Samples with a component ``bin`` of their number, and for even numbers a component ``txt``."""
    with tarfile.open(path, "w") as archive:
        for number in range(count):
            for extension in ("bin", "txt") if number % 2 == 0 else ("bin",):
                content = bytes([number]) * (1 if extension == "bin" else 3)
                entry = tarfile.TarInfo(f"{number:03d}.{extension}")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return path


def coco_data(root: Path, count: int) -> tuple[Path, Path]:
    """Images with number + 1 boxes each: the folder, and the file with the annotations."""
    folder = root / "images"
    folder.mkdir(parents=True)
    images, annotations = [], []
    for number in range(count):
        Image.fromarray(frame(number)).save(folder / f"{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "height": 8, "width": 6})
        for box in range(number + 1):
            annotations.append(
                {
                    "id": len(annotations),
                    "image_id": number,
                    "category_id": 5,
                    "bbox": [box, 1, 2, 3],
                    "area": 6,
                    "iscrowd": 0,
                    "segmentation": [[0, 0, 1, 0, 1, 1]],
                }
            )
    path = root / "annotations.json"
    categories = [{"id": 5, "name": "car"}]
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return folder, path


def record_file(root: Path, count: int) -> tuple[Path, Path]:
    """Records of TensorFlow's format with the features ``data`` (bytes), ``number`` (int64) and ``half`` (float):
    the file, and its index."""
    root.mkdir(parents=True)
    records, index = root / "data.tfrecord", root / "data.idx"
    lines = []
    with records.open("wb") as file:
        for number in range(count):
            features = {
                "data": _field(1, _field(1, bytes([number, 7]))),
                "number": _field(3, _field(1, _varint(number))),
                "half": _field(2, _field(1, struct.pack("<f", number / 2))),
            }
            entries = b"".join(
                _field(1, _field(1, name.encode()) + _field(2, value)) for name, value in features.items()
            )
            payload = _field(1, entries)
            begin = file.tell()
            length = struct.pack("<Q", len(payload))
            file.write(length + _checksum(length) + payload + _checksum(payload))
            lines.append(f"{begin} {file.tell() - begin}\n")
    index.write_text("".join(lines))
    return records, index


def _varint(value: int) -> bytes:
    parts = []
    while value >= 128:
        parts.append(value % 128 + 128)
        value //= 128
    return bytes([*parts, value])


def _field(number: int, content: bytes) -> bytes:
    """A field of a protocol buffer that has a length."""
    return bytes([number * 8 + 2]) + _varint(len(content)) + content


def _checksum(content: bytes) -> bytes:
    return struct.pack("<I", zlib.crc32(content))  # the reader does not check it
