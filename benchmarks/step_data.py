# SPDX-License-Identifier: Apache-2.0
"""Samples for the benchmark of steps: six cameras with their geometry, 3D boxes around a vehicle, 2D boxes.

The contestants load the same samples by `DrivingSamples.load`; the images are JPEGs in files.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
from nvidia.dali.types import DALIDataType
from source_data import large_picture

from accvlab.dali_pipeline_framework.inputs import DataProvider
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup

Arrays = dict[str, npt.NDArray[Any]]

IMAGE_HW = (900, 1600)
NUM_CAMERAS = 6
NUM_SAMPLES = 1 << 40  # the runs never reach the end of an epoch
NUM_CATEGORIES = 6
_JPEG_QUALITY = 80  # about 250 kB per image
_MOST_BOXES = 60


def camera_picture(seed: int = 0) -> npt.NDArray[np.uint8]:
    """An image as cameras give them, as far as the size of its JPEG goes, (900, 1600, 3)."""
    picture = large_picture(seed)
    return np.ascontiguousarray(picture[: IMAGE_HW[0], : IMAGE_HW[1]])


def jpeg_of(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
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


def drawn_geometry(generator: np.random.Generator) -> Arrays:
    """All of a sample but its images."""
    count = int(generator.integers(10, _MOST_BOXES))
    corner = generator.uniform(0, 0.8, (count, 2)) * IMAGE_HW[::-1]
    size = generator.uniform(20, 300, (count, 2))
    arrays: Arrays = {
        "centers": generator.uniform(-50, 50, (count, 3)).astype(np.float32),
        "sizes": generator.uniform(1, 5, (count, 3)).astype(np.float32),
        "yaws": generator.uniform(-3, 3, count).astype(np.float32),
        "velocities": generator.normal(0, 3, (count, 3)).astype(np.float32),
        "categories": generator.integers(0, NUM_CATEGORIES, count).astype(np.int32),
        "boxes": np.concatenate([corner, corner + size], 1).astype(np.float32),
        "ego_to_world": np.eye(4, dtype=np.float32),
    }
    for camera in range(NUM_CAMERAS):
        intrinsics = intrinsics_of(1200 + 20 * camera)
        arrays[f"intrinsics_{camera}"] = intrinsics
        arrays[f"image_from_ego_{camera}"] = image_from_ego(intrinsics, camera * np.pi / 3)
    return arrays


MULTI_CAMERA_FIELDS = (
    *(f"{name}_{camera}" for camera in range(NUM_CAMERAS) for name in ("jpeg", "intrinsics", "image_from_ego")),
    *("centers", "sizes", "yaws", "velocities", "categories", "ego_to_world"),
)
DETECTION_FIELDS = ("jpeg_0", "boxes", "categories")
FRONT_CAMERA_FIELDS = ("jpeg_0",)


@attrs.frozen
class DrivingSamples:
    """Samples by number, again and again without end.

    Attributes:
        images: Files, six per sample.
        geometry: The arrays of each sample.
    """

    images: list[str]
    geometry: list[Arrays]

    @classmethod
    def generate(cls, folder: Path, num_samples: int) -> DrivingSamples:
        generator = np.random.default_rng(0)
        images = write_jpegs(folder, NUM_CAMERAS * num_samples)
        return cls(images, [drawn_geometry(generator) for _ in range(num_samples)])

    def load(self, index: int, names: tuple[str, ...]) -> list[npt.NDArray[Any]]:
        """The arrays of some names, in their order."""
        number = index % len(self.geometry)
        return [
            np.fromfile(self.images[NUM_CAMERAS * number + int(name[-1])], np.uint8)
            if name.startswith("jpeg")
            else self.geometry[number][name]
            for name in names
        ]


class MultiCameraProvider(DataProvider):
    """`MULTI_CAMERA_FIELDS`: ``cameras[0..5]`` with image and matrices, ``objects``, ``ego_to_world``."""

    def __init__(self, samples: DrivingSamples) -> None:
        self.samples = samples

    def get_number_of_samples(self) -> int:
        return NUM_SAMPLES

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        camera, objects, sample = SampleDataGroup(), SampleDataGroup(), SampleDataGroup()
        camera.add_data_field("image", DALIDataType.UINT8)
        camera.add_data_field("intrinsics", DALIDataType.FLOAT)
        camera.add_data_field("image_from_ego", DALIDataType.FLOAT)
        for name in ("centers", "sizes", "yaws", "velocities"):
            objects.add_data_field(name, DALIDataType.FLOAT)
        objects.add_data_field("categories", DALIDataType.INT32)
        sample.add_data_group_field_array("cameras", camera, NUM_CAMERAS)
        sample.add_data_group_field("objects", objects)
        sample.add_data_field("ego_to_world", DALIDataType.FLOAT)
        return sample

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.new_sample()
        sample.set_data(self.samples.load(sample_index, MULTI_CAMERA_FIELDS))
        return sample


class AnnotatedCamerasProvider(MultiCameraProvider):
    """The same, with a group ``annotation`` of 2D boxes for each camera. It can only say what there is."""

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        annotation, sample = SampleDataGroup(), super().sample_data_structure
        annotation.add_data_field("boxes", DALIDataType.FLOAT)
        annotation.add_data_field("categories", DALIDataType.INT32)
        for camera in range(NUM_CAMERAS):
            sample["cameras"][camera].add_data_group_field("annotation", annotation)
        return sample


class DetectionProvider(DataProvider):
    """`DETECTION_FIELDS`: ``image``, and the group ``annotation`` with ``boxes`` and ``categories``."""

    def __init__(self, samples: DrivingSamples) -> None:
        self.samples = samples

    def get_number_of_samples(self) -> int:
        return NUM_SAMPLES

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        annotation, sample = SampleDataGroup(), SampleDataGroup()
        annotation.add_data_field("boxes", DALIDataType.FLOAT)
        annotation.add_data_field("categories", DALIDataType.INT32)
        sample.add_data_field("image", DALIDataType.UINT8)
        sample.add_data_group_field("annotation", annotation)
        return sample

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.new_sample()
        sample.set_data(self.samples.load(sample_index, DETECTION_FIELDS))
        return sample


class FrontCameraProvider(DataProvider):
    """The image of the first camera."""

    def __init__(self, samples: DrivingSamples) -> None:
        self.samples = samples

    def get_number_of_samples(self) -> int:
        return NUM_SAMPLES

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        sample = SampleDataGroup()
        sample.add_data_field("image", DALIDataType.UINT8)
        return sample

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.new_sample()
        sample.set_data(self.samples.load(sample_index, FRONT_CAMERA_FIELDS))
        return sample


class ImageProvider(FrontCameraProvider):
    """One and the same image, or its JPEG."""

    def __init__(self, image: npt.NDArray[np.uint8]) -> None:
        self.image = image

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.new_sample()
        sample["image"] = self.image
        return sample
