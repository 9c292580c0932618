"""A small drive with photographs that can be decoded, in a folder of real files."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np
from support.arrays import encoded_image, gradient

from accvlab.driving_data.datasets.driving.driving_index import DrivingIndex
from driving_support.driving_data import CAMERAS, write_driving_data

HW = (30, 44)


def write_drive(root: Path, seed: int = 0, base: str = "lidar") -> DrivingIndex:
    """As `write_driving_data`, with JPEGs of `HW`, calibrated so that something is seen."""
    index = write_driving_data(root, seed, base)
    assert index.cameras is not None
    num_frames = len(index.frames.token)
    for frame in range(num_frames):
        for camera in range(len(CAMERAS)):
            name = bytes(index.cameras.file[frame, camera]).decode()
            (root / name).write_bytes(bytes(encoded_image(gradient(*HW, 10 * frame + camera), "JPEG")))
    intrinsics = np.tile([[20.0, 0, 22], [0, 20, 15], [0, 0, 1]], (num_frames, len(CAMERAS), 1, 1))
    return attrs.evolve(index, cameras=attrs.evolve(index.cameras, intrinsics=intrinsics))
