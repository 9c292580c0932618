# SPDX-License-Identifier: Apache-2.0
"""Settings of several cameras, and the account of what they lack."""

from __future__ import annotations

import collections
import logging
from abc import ABC
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import attrs
import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ...checks import bullets, choice, index_in, listed, number, shown, valid
from ...errors import SettingError
from ...sample_data import SampleDataGroup
from ...sample_data.names import Name
from ..data_provider import DataProvider
from .frame_times import Int64Array

MissingPolicy: TypeAlias = Literal["drop", "bridge", "raise"]

_logger = logging.getLogger(__name__)


class MissingFrame(NamedTuple):
    """A missing frame of a camera.

    Attributes:
        recording: Name of the recording's folder; of videos, the number of the recording.
        camera: Name of the camera.
        frame_number: Number of the point in time in its recording; by time, of the reference camera's frame.
        time: The point in time: of videos in seconds; of folders the file name, without extension if cameras are
            aligned by name, else that of the reference camera's frame.
    """

    recording: str | int
    camera: str
    frame_number: int
    time: str | float


def _tolerance_s(value: float | None) -> float | None:
    return None if value is None else number(value, "tolerance_s", at_least=0)


def one_of(alternatives: Any) -> Any:
    """Make a validator of attrs for one of the values of a ``Literal``."""
    return valid(choice, allowed=get_args(alternatives))


@attrs.frozen(kw_only=True)
class CameraRig(ABC):
    """How the frames of several cameras belong together; for the attributes see `Videos` and `FrameFolders`."""

    cameras: Mapping[str, Any] | None
    reference_camera: str | None = None
    tolerance_s: float | None = attrs.field(default=None, converter=_tolerance_s)
    missing: MissingPolicy = attrs.field(default="drop", validator=one_of(MissingPolicy))

    def __attrs_post_init__(self) -> None:
        if self.reference_camera is not None:
            self._check_camera(self.reference_camera, "reference_camera")

    def _check_camera(self, name: str, argument: str) -> None:
        if not isinstance(name, str) or name not in (self.cameras or ()):
            known = listed(map(repr, self.cameras or ()))
            raise SettingError(f"`{argument}` must name one of `cameras` ({known}), got {shown(name)}.")

    @property
    def camera_names(self) -> tuple[str, ...]:
        """Names of the cameras; empty for a single one without a name."""
        return tuple(self.cameras or ())

    @property
    def reference(self) -> int:
        """Number of the reference camera."""
        return self.camera_names.index(self.reference_camera) if self.reference_camera is not None else 0

    def runs(self, is_complete: npt.NDArray[np.bool_]) -> list[Int64Array]:
        """Get the points in time of each sequence of a recording, given ``(T,)`` which of all are complete."""
        places = np.flatnonzero(is_complete)
        if not len(places):
            return []
        if self.missing == "bridge":
            return [places]
        return np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)


@attrs.define
class RigAccount:
    """What cameras lack.

    Attributes:
        missing: The missing frames.
        notes: Further remarks on recordings, by their name or number.
        lacks_folders: Whether a camera has nothing at all in a recording.
        num_times: Number of points in time of all recordings.
    """

    missing: list[MissingFrame] = attrs.field(factory=list)
    notes: dict[str | int, list[str]] = attrs.field(factory=dict)
    lacks_folders: bool = False
    num_times: int = 0

    def note(self, recording: str | int, text: str) -> None:
        """Add a remark on a recording."""
        self.notes.setdefault(recording, []).append(text)

    def report(self, rig: CameraRig, is_empty: bool, where: str = "", advice: str = "") -> None:
        """Warn of what is missing; or raise a `SettingError`, if `missing` is ``"raise"`` or nothing is left.

        Args:
            rig: The cameras.
            is_empty: Whether no point in time is left.
            where: Where the recordings are, e.g. ``" in 'train'"``.
            advice: What to look at if none is left.
        """
        if not (self.missing or self.notes):
            return
        lines = bullets(self._recordings(), 10)
        num_dropped = len({(frame.recording, frame.frame_number) for frame in self.missing})
        text = f"Not all cameras have a frame at {num_dropped} of {self.num_times} points in time{where}"
        if rig.missing == "raise" and (self.missing or self.lacks_folders):
            raise SettingError(f"{text}:\n{lines}\nUse `missing='drop'` to leave these points in time out.")
        if is_empty and self.missing:
            raise SettingError(
                f"At no point in time all of the cameras {list(rig.camera_names)!r} have a frame{where}:\n{lines}"
                f"{advice}"
            )
        _logger.warning("%s; they are left out:\n%s", text, lines)

    def _recordings(self) -> list[str]:
        counts = collections.Counter((frame.recording, frame.camera) for frame in self.missing)
        parts: dict[str | int, list[str]] = {}
        for (recording, camera), count in counts.items():
            parts.setdefault(recording, []).append(f"{count} frame(s) of {camera} missing")
        for recording, notes in self.notes.items():
            parts.setdefault(recording, []).extend(notes)
        names = [each if isinstance(each, str) else f"recording {each}" for each in parts]
        return [f"{name}: {', '.join(texts)}" for name, texts in zip(names, parts.values(), strict=True)]


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
