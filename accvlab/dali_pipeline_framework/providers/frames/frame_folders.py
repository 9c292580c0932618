# SPDX-License-Identifier: Apache-2.0
"""Where folders of frames lie, and how their cameras are aligned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import attrs

from ...checks import number, shown, valid
from ...errors import SettingError
from ...unknown_arguments import explains_unknown_arguments
from ...url_secrets import repr_without_secrets
from ..files.storage import StoragePath
from ..rigs.camera_rig import CameraRig, one_of
from ..rigs.frame_times import TimestampParser, TimestampRule, exact

Alignment: TypeAlias = Literal["name", "time"]
RigLayout: TypeAlias = Literal["recording/camera", "camera/recording"]


def _cameras(cameras: Mapping[str, str] | Sequence[str] | None) -> dict[str, str] | None:
    if cameras is None:
        return None
    if isinstance(cameras, str) or not isinstance(cameras, Mapping | Sequence):
        raise SettingError(
            f"`cameras` must be a dict such as {{'front': 'CAM_FRONT'}} (name and folder), or a list of folders, "
            f"got {shown(cameras)}."
        )
    pairs = [*cameras.items()] if isinstance(cameras, Mapping) else [(folder, folder) for folder in cameras]
    for pair in pairs:
        if not all(isinstance(part, str) and part for part in pair) or pair[1].strip("/") != pair[1]:
            raise SettingError(
                f"`cameras` must be names and folders, both texts, the folders without a '/' at their ends, got "
                f"{shown(pair)}."
            )
    folders = [folder for _, folder in pairs]
    if not folders or len(set(folders)) != len(folders):
        raise SettingError(f"`cameras` must be at least one, each with a folder of its own, got {shown(folders)}.")
    return dict(pairs)


@explains_unknown_arguments()
@attrs.frozen
class FrameFolders(CameraRig):
    r"""Folders of frames, one for each recording, or one for each recording and camera.

    Frames are files in these folders, in the order of the bytes of their names; those that DALI's
    ``fn.readers.sequence`` finds, in its order. Files without the extension of an image, and names that begin
    with a dot, are left out::

        one camera                cameras={"front": "F", "rear": "R"}    layout="camera/recording"
        root/<recording>/1.jpg    root/<recording>/F/1.jpg               root/F/<recording>/1.jpg
        root/<recording>/2.jpg    root/<recording>/R/1.jpg               root/R/<recording>/1.jpg

    Frames of different cameras belong together by their file names without extension (``align="name"``), or by
    time stamps in the file names (``"time"``): each camera's frame that is nearest to the reference camera's, and
    to no other one of it, if it is within the tolerance. So no frame is used twice. Points in time at which a
    camera has no frame are left out, counted in the log, and listed in the provider's ``missing_frames``.

    Attributes:
        file_root: Folder of the recordings, a local path or a URL (see `FileDataProvider`).
        cameras: Name and folder of each camera, or the folders alone; their order is that of the groups. None: the
            frames lie directly in the folders of the recordings.
        layout: Which folder is in which.
        align: By what frames of different cameras belong together. By time, frames are also in the order of their
            time stamps.
        timestamp: How to read a time stamp off a file name: a regular expression with one group, a function of the
            file name, or None where the name without its extension is the number.
        timestamp_unit_s: Seconds per unit of the time stamps, e.g. ``1e-6`` for microseconds.
        tolerance_s: By time, how far a frame may be from the reference camera's, at most, in seconds; None for
            half the usual interval of the reference camera. Compared exactly: this, the unit, and time stamps
            are taken as written in decimals.
        reference_camera: By time, name of the camera whose frames are the points in time; None for the first.
        missing: At points in time at which a camera has no frame, ``"drop"`` ends a sequence, and the next one
            begins behind it, so that neighbours in a sequence are neighbours in time; ``"bridge"`` goes on;
            ``"raise"`` refuses the data set.
        storage_options: Arguments of a remote file system, see `FileDataProvider`.

    Raises:
        SettingError: An argument is not what it must be, or does not go with another.

    Example:
        >>> FrameFolders("train", cameras={"front": "CAM_FRONT", "rear": "CAM_BACK"}).camera_names
        ('front', 'rear')
    """

    file_root: StoragePath = attrs.field(kw_only=False, repr=repr_without_secrets)
    cameras: dict[str, str] | None = attrs.field(default=None, converter=_cameras, kw_only=True)
    layout: RigLayout = attrs.field(default="recording/camera", validator=one_of(RigLayout), kw_only=True)
    align: Alignment = attrs.field(default="name", validator=one_of(Alignment), kw_only=True)
    timestamp: TimestampRule | None = attrs.field(default=None, kw_only=True)
    timestamp_unit_s: float = attrs.field(default=1.0, validator=valid(number, above=0), kw_only=True)
    storage_options: Mapping[str, Any] | None = attrs.field(default=None, kw_only=True, repr=False)

    def __attrs_post_init__(self) -> None:
        TimestampParser(self.timestamp)
        CameraRig.__attrs_post_init__(self)
        if (self.tolerance_s is not None or self.reference_camera is not None) and self.align != "time":
            raise SettingError(
                "`tolerance_s` and `reference_camera` are for `align='time'`; names match or do not."
            )

    @property
    def tolerance(self) -> Fraction | None:
        """The tolerance in units of the time stamps."""
        if self.tolerance_s is None:
            return None
        return exact(self.tolerance_s) / exact(self.timestamp_unit_s)


def frame_folders(source: FrameFolders | StoragePath) -> FrameFolders:
    """Take a root alone for folders of frames of one camera."""
    return source if isinstance(source, FrameFolders) else FrameFolders(source)
