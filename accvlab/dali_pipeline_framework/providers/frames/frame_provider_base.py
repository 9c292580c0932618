# SPDX-License-Identifier: Apache-2.0
"""Base class of the providers of extracted streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ...sample_data import SampleDataGroup
from ..data_provider import DataProvider
from ..optional_fields import OptionalField, with_fields
from ..rigs.rig_times import MissingFrame
from .frame_index import FrameIndex


class FrameProviderBase(DataProvider):
    """A data set of extracted streams."""

    def __init__(self, index: FrameIndex, of_camera: SampleDataGroup, of_sample: Iterable[OptionalField]) -> None:
        """Keep the index, and make the blueprint.

        Args:
            index: The frames.
            of_camera: Blueprint of what a sample has for each camera.
            of_sample: Fields that it has once.

        Raises:
            DuplicateFieldError: Two fields have the same name.
            NameTypeError: A name is neither ``str`` nor ``int``.
        """
        self._index = index
        blueprint = of_camera
        if index.camera_names:
            blueprint = SampleDataGroup()
            for camera in index.camera_names:
                blueprint.add_data_group_field(camera, of_camera)
        self._blueprint = with_fields(blueprint, of_sample)

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of a sample, see the class."""
        return self._blueprint.get_empty_like_self()

    @property
    def stream_names(self) -> tuple[str, ...]:
        """Folder names of the streams that have frames."""
        return self._index.stream_names

    @property
    def camera_names(self) -> tuple[str, ...]:
        """Names of the cameras; none where streams have no folders for cameras."""
        return self._index.camera_names

    @property
    def missing_frames(self) -> tuple[MissingFrame, ...]:
        """Missing frames of cameras: stream, camera, and point in time."""
        return self._index.missing

    @property
    def num_unused_frames(self) -> Mapping[tuple[str, str], int]:
        """With ``align="time"``, number of unmatched frames, by stream and camera."""
        return MappingProxyType(self._index.unused)
