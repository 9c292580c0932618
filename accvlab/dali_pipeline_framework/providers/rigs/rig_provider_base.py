# SPDX-License-Identifier: Apache-2.0
"""Base class of the providers of one camera or several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from nvidia.dali import types

from ...checks import index_in
from ...sample_data import SampleDataGroup
from ...sample_data.names import Name
from ..data_provider import DataProvider
from .camera_rig import MissingFrame

OptionalField: TypeAlias = tuple[Name | None, types.DALIDataType, int | None]
"""Name (None for a field that is not there), type, and number of dimensions."""


class RigProviderBase(DataProvider):
    """A data set of recordings, by one camera or several."""

    def _set_format(
        self,
        camera_names: Sequence[str],
        of_camera: SampleDataGroup,
        of_frames: Iterable[OptionalField],
        of_sample: Iterable[OptionalField],
        missing: Iterable[MissingFrame],
    ) -> None:
        """Make the blueprint.

        Args:
            camera_names: Names of the cameras; none for a single one, whose fields are those of the sample.
            of_camera: First fields of each camera.
            of_frames: Further fields of each camera.
            of_sample: Fields that a sample has once.
            missing: Missing frames.
        """
        self._camera_names = tuple(camera_names)
        self._missing = tuple(missing)
        _add_fields(of_camera, of_frames)
        self._blueprint = of_camera
        if camera_names:
            self._blueprint = SampleDataGroup()
            for camera in camera_names:
                self._blueprint.add_data_group_field(camera, of_camera)
        _add_fields(self._blueprint, of_sample)

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of a sample, see the class."""
        return self._blueprint.get_empty_like_self()

    @property
    def camera_names(self) -> tuple[str, ...]:
        """Names of the cameras; none for a single one without a name."""
        return self._camera_names

    @property
    def missing_frames(self) -> tuple[MissingFrame, ...]:
        """Missing frames of cameras."""
        return self._missing

    def _checked(self, sample_index: int) -> int:
        return index_in(sample_index, "sample_index", self.get_number_of_samples())


def _add_fields(group: SampleDataGroup, fields: Iterable[OptionalField]) -> None:
    for name, dtype, num_dimensions in fields:
        if name is not None:
            group.add_data_field(name, dtype, ndim=num_dimensions)
