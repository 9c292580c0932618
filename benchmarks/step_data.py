# SPDX-License-Identifier: Apache-2.0
"""Images and cameras of the benchmarks, which are generated."""

from __future__ import annotations

import functools
import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
from nvidia.dali.types import DALIDataType

from accvlab.dali_pipeline_framework import DataProvider, SampleDataGroup

UInt8Array = npt.NDArray[np.uint8]

IMAGE_HW = (900, 1600)
NUM_CAMERAS = 6
NUM_SAMPLES = 1 << 40  # the runs never reach the end of an epoch
_PICTURE_HW = (1024, 2048)
_JPEG_QUALITY = 80  # about 250 kB per image


@functools.cache
def large_picture() -> UInt8Array:
    """Noise whose amplitude falls with frequency as in photographs, (1024, 2048, 3); not to be changed."""
    generator = np.random.default_rng(0)
    height, width = _PICTURE_HW
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    amplitude = 1 / np.maximum(frequency, 1 / width) ** 1.3
    layers = []
    for _ in range(2):  # brightness, and tint
        spectrum = amplitude * np.exp(2j * np.pi * generator.random(amplitude.shape))
        layer = np.fft.irfft2(spectrum, s=_PICTURE_HW)
        layers.append((layer - layer.mean()) / layer.std())
    brightness, tint = layers
    channels = [118 + 48 * brightness + part * tint for part in (14, 0, -14)]
    picture: UInt8Array = np.clip(np.stack(channels, axis=-1), 0, 255).astype(np.uint8)
    picture.flags.writeable = False
    return picture


def camera_picture() -> UInt8Array:
    """An image whose JPEG is as large as those of cameras, (900, 1600, 3)."""
    return np.ascontiguousarray(large_picture()[: IMAGE_HW[0], : IMAGE_HW[1]])


def jpeg_of(image: UInt8Array) -> UInt8Array:
    """The bytes of a JPEG, (num_bytes,)."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=_JPEG_QUALITY)
    return np.frombuffer(file.getvalue(), np.uint8)


def write_jpegs(folder: Path, num_images: int) -> list[str]:
    """Images that differ in where they begin in one picture."""
    folder.mkdir(parents=True, exist_ok=True)
    picture = large_picture()
    paths = []
    for number in range(num_images):
        shifted = np.roll(picture, (37 * number, 101 * number), (0, 1))[: IMAGE_HW[0], : IMAGE_HW[1]]
        paths.append(str(folder / f"{number:04d}.jpg"))
        jpeg_of(shifted).tofile(paths[-1])
    return paths


def intrinsics_of(focal_px: float) -> npt.NDArray[np.float32]:
    """Of a camera whose axis goes through the middle of its image, (3, 3)."""
    height, width = IMAGE_HW
    return np.array([[focal_px, 0, width / 2], [0, focal_px, height / 2], [0, 0, 1]], np.float32)


def image_from_ego(intrinsics: npt.NDArray[np.float32], heading_rad: float) -> npt.NDArray[np.float32]:
    """Projection of a camera that looks into a direction of the horizon, (4, 4); ego: x ahead, y left, z up."""
    ahead = np.array([np.cos(heading_rad), np.sin(heading_rad), 0])
    left, up = np.array([-ahead[1], ahead[0], 0]), np.array([0, 0, 1.0])
    projection = np.eye(4, dtype=np.float32)
    projection[:3, :3] = intrinsics @ np.stack([-left, -up, ahead])
    projection[:3, 3] = intrinsics @ np.array([0, 1.5, -1.0])
    return projection


class ImageProvider(DataProvider):
    """One and the same image, or its JPEG."""

    def __init__(self, image: UInt8Array) -> None:
        self.image = image

    def get_number_of_samples(self) -> int:
        return NUM_SAMPLES

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        sample = SampleDataGroup()
        sample.add_data_field("image", DALIDataType.UINT8)
        return sample

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.new_sample()
        sample["image"] = self.image
        return sample
