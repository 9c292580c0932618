# SPDX-License-Identifier: Apache-2.0
"""Samples of some cameras, one JPEG in a file for each, and of many small fields: all contestants load these.

The fields of a sample in their order are, for each camera, its image and its small fields, then the other ones.
"""

from __future__ import annotations

import functools
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
from nvidia.dali.types import DALIDataType, SampleInfo

from accvlab.dali_pipeline_framework.inputs import DataProvider
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup

Array = npt.NDArray[Any]

NUM_SAMPLES = 1 << 40  # the runs never reach the end of an epoch
_NUM_DIFFERENT = 64


@functools.cache
def _small_fields(num_fields: int) -> npt.NDArray[np.float32]:
    """Made once in each process: what is measured is the way of the arrays, ``(samples, num_fields, 4)``."""
    values = np.arange(_NUM_DIFFERENT * num_fields * 4, dtype=np.float32)
    return values.reshape(_NUM_DIFFERENT, num_fields, 4)


@attrs.frozen
class RigSamples:
    """Samples by number, again and again without end.

    Attributes:
        images: Files, for the cameras of each sample in turn.
        num_cameras: Cameras of a sample; none: there are only the other fields.
        num_per_camera: Small fields of each camera.
        num_others: Small fields that belong to no camera.
    """

    images: list[str]
    num_cameras: int
    num_per_camera: int = 0
    num_others: int = 0

    @property
    def num_small(self) -> int:
        return self.num_cameras * self.num_per_camera + self.num_others

    @property
    def small_names(self) -> list[str]:
        return [f"field_{number}" for number in range(self.num_small)]

    @property
    def names(self) -> list[str]:
        """Of all fields, in their order."""
        small = iter(self.small_names)
        names = []
        for camera in range(self.num_cameras):
            names += [f"image_{camera}", *[next(small) for _ in range(self.num_per_camera)]]
        return [*names, *small]

    def jpeg(self, index: int, camera: int) -> Array:
        number = (index * self.num_cameras + camera) % len(self.images)
        return np.fromfile(self.images[number], np.uint8)

    def small(self, index: int) -> Array:
        """All small fields, ``(num_small, 4)``."""
        fields: Array = _small_fields(self.num_small)[index % _NUM_DIFFERENT]
        return fields

    def load(self, index: int) -> list[Array]:
        """All fields, in their order."""
        small = iter(self.small(index))
        arrays: list[Array] = []
        for camera in range(self.num_cameras):
            arrays += [self.jpeg(index, camera), *[next(small) for _ in range(self.num_per_camera)]]
        return [*arrays, *small]


class RigProvider(DataProvider):
    """``cameras[c]`` with ``image`` and ``field_0``, ``field_1``, ..; ``field_0``, .. of the sample."""

    def __init__(self, samples: RigSamples) -> None:
        self.samples = samples
        self._blueprint = self._format()

    def _format(self) -> SampleDataGroup:
        camera, sample = SampleDataGroup(), SampleDataGroup()
        camera.add_data_field("image", DALIDataType.UINT8)
        for number in range(self.samples.num_per_camera):
            camera.add_data_field(f"field_{number}", DALIDataType.FLOAT)
        if self.samples.num_cameras:
            sample.add_data_group_field_array("cameras", camera, self.samples.num_cameras)
        for number in range(self.samples.num_others):
            sample.add_data_field(f"field_{number}", DALIDataType.FLOAT)
        return sample

    def get_number_of_samples(self) -> int:
        return NUM_SAMPLES

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        return self._blueprint.get_empty_like_self()

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self._blueprint.get_empty_like_self()
        sample.set_data(self.samples.load(sample_index))
        return sample


@attrs.frozen
class EachField:
    """Source of a pipeline written by hand: all fields of a sample."""

    samples: RigSamples

    def __call__(self, info: SampleInfo) -> tuple[Array, ...]:
        return tuple(self.samples.load(info.idx_in_epoch))


@attrs.frozen
class EachImage:
    """Source of a pipeline written by hand whose batch is made of single images, sample by sample."""

    samples: RigSamples

    def __call__(self, info: SampleInfo) -> Array:
        return self.samples.jpeg(*divmod(info.idx_in_epoch, self.samples.num_cameras))


@attrs.frozen
class EachImageWithFields:
    """The same, and with each image an equal share of the small fields of its sample, ``(share, 4)``."""

    samples: RigSamples

    def __call__(self, info: SampleInfo) -> tuple[Array, Array]:
        index, camera = divmod(info.idx_in_epoch, self.samples.num_cameras)
        shares = np.split(self.samples.small(index), self.samples.num_cameras)
        return self.samples.jpeg(index, camera), shares[camera]
