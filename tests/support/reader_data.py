"""Small data sets in the formats that DALI's readers read."""

from __future__ import annotations

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


def array_files(root: Path, count: int, dtype: type = np.float32) -> Path:
    """Arrays ``(2, 3)`` that hold their number."""
    root.mkdir(parents=True)
    for number in range(count):
        np.save(root / f"{number:03d}.npy", np.full((2, 3), number, dtype))
    return root
