# SPDX-License-Identifier: Apache-2.0
"""Several cameras: settings, matching of frames by name or time, and the report of missing frames."""

from __future__ import annotations

import collections
import logging
import math
import numbers
import os
import re
from abc import ABC
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ...checks import bullets, index_in, listed, number, one_of, setting_error, shown
from ...draws.keyed_draws import Int64Array
from ...errors import SettingError, reason_of
from ...sample_data import SampleDataGroup
from ...sample_data.names import Name
from ...sampling.arithmetic.times import nearest
from ..data_provider import BlueprintProvider

TimeArray = npt.NDArray[np.int64] | npt.NDArray[np.float64]

TimestampRule: TypeAlias = str | Callable[[str], float]
"""How to read a time stamp off a file name: a regular expression with one group, or a function."""


def timestamp_reader(rule: TimestampRule | None) -> Callable[[str], int | float]:
    """Make a function that reads time stamps off file names.

    It raises a `SettingError` where there is none, or it is not finite.

    Args:
        rule: A regular expression that is searched in the file name and whose first group is a number; a function
            that takes the file name and returns a number; or None: the name without its extension is the number.
            Whole numbers stay whole.

    Example:
        >>> timestamp_reader(None)("1533151603.512.jpg"), timestamp_reader(r"__(\\d+)\\.")("CAM__42.jpg")
        (1533151603.512, 42)
    """
    find: Callable[[str], Any]
    if rule is None:
        find = without_extension
    elif isinstance(rule, str):
        find = _search(rule)
    elif callable(rule):
        find = rule
    else:
        raise setting_error("timestamp", "a regular expression, a function of the file name, or None", rule)

    def read(file_name: str) -> int | float:
        found: Any = without_extension(file_name)
        failure = None
        try:
            found = find(file_name)
            if isinstance(found, str):
                found = int(found) if found.lstrip("+-").isdecimal() else float(found)
            value = int(found) if isinstance(found, numbers.Integral) else number(found, "timestamp")
            if abs(value) < 2**62:  # differences must not overflow
                return value
        except Exception as error:
            failure = error
        what = "`timestamp` must find a finite number of at most 64 bits"
        why = "" if failure is None or isinstance(failure, SettingError) else f" ({reason_of(failure)})"
        raise SettingError(f"{what} in the file name {file_name!r}, got {found!r}{why}.") from failure

    return read


def without_extension(file_name: str) -> str:
    """Get a file name without its extension."""
    return os.path.splitext(file_name)[0]


def _search(expression: str) -> Callable[[str], str | None]:
    try:
        pattern = re.compile(expression)
    except (re.error, RecursionError, OverflowError) as error:
        given = shown(expression)
        raise SettingError(f"`timestamp` is no valid regular expression: {error} in {given}.") from error
    if pattern.groups < 1:
        raise SettingError(f"`timestamp` must have a group, as in r'_(\\d+)\\.', got {shown(expression)}.")

    return lambda file_name: next((match[1] for match in pattern.finditer(file_name)), None)


def as_times(values: Sequence[int | float]) -> TimeArray:
    """Make an array of time stamps: int64 if all are whole numbers, else float64."""
    is_whole = all(isinstance(value, int) for value in values)
    return np.array(values, np.int64) if is_whole else np.array(values, np.float64)


def exact(value: float | Fraction) -> Fraction:
    """Convert a number exactly as written: a float by its shortest decimal, so 0.02 to 1/50."""
    return Fraction(repr(float(value))) if isinstance(value, float) else Fraction(value)


@attrs.frozen(eq=False)
class CameraTimes:
    """Times of the frames of a camera, in seconds: ``numbers * unit + offset``.

    Attributes:
        numbers: ``(n,)`` int64, strictly increasing.
        unit: Seconds per unit.
        offset: Seconds.
    """

    numbers: Int64Array
    unit: Fraction
    offset: Fraction = Fraction(0)

    @classmethod
    def of(cls, times: TimeArray, unit: Fraction = Fraction(1)) -> CameraTimes:
        """Take times, floats as the decimals that they have within the 15 digits of a float64."""
        if times.dtype.kind != "f":
            return cls(times.astype(np.int64), unit)
        digits = max(15 - math.ceil(math.log10(np.abs(times).max(initial=1))), 0)
        return cls(np.rint(times * 10.0**digits).astype(np.int64), unit / 10**digits)


def align_times(cameras: Sequence[CameraTimes], reference: int, tolerance_s: float | None) -> Int64Array:
    """Find the frames of several cameras for each time of a reference camera.

    Two frames belong together if each is the nearest to the other (of two that are equally near, the earlier)
    and they are not more than the tolerance apart. So no frame is used twice, and none out of order. Times are
    compared as whole numbers of a common unit: frames exactly as far apart as the tolerance match.

    Args:
        cameras: Times of each of ``C`` cameras.
        reference: Number of the reference camera, which has ``T`` times.
        tolerance_s: Largest difference in seconds; None for half the median interval of the reference.

    Returns:
        ``(T, C)`` int64, number of the frame of each camera, -1 where there is none.
    """
    parts = math.lcm(*(number.denominator for each in cameras for number in (each.unit, each.offset)))
    origin = _place(cameras[reference], parts)
    # Differences within each camera: times since 1970 in small units would need more than 64 bits.
    times = [
        (each.numbers - each.numbers[:1]) * int(each.unit * parts) + (_place(each, parts) - origin)
        for each in cameras
    ]
    if tolerance_s is None:
        within = float(np.median(np.diff(times[reference]))) / 2 if len(times[reference]) > 1 else 0.0
    else:
        within = math.floor(exact(tolerance_s) * parts)
    columns = []
    for of_camera in times:
        found = nearest(of_camera, times[reference], within)
        if len(of_camera):
            is_mutual = nearest(times[reference], of_camera, np.inf)[found] == np.arange(len(found))
            found = np.where(is_mutual, found, -1)
        columns.append(found)
    return np.stack(columns, axis=1)


def _place(camera: CameraTimes, parts: int) -> int:
    first = camera.numbers[:1].tolist() or [0]
    return int((first[0] * camera.unit + camera.offset) * parts)


MissingPolicy: TypeAlias = Literal["drop", "bridge", "raise"]

_logger = logging.getLogger(__name__)


class MissingFrame(NamedTuple):
    """A missing frame of a camera.

    Attributes:
        recording: Name of the recording's folder; of videos, the number of the recording.
        camera: Name of the camera.
        frame_number: Number of the point in time in its recording; with cameras aligned by time, the number of the
            reference camera's frame.
        time: The point in time: of videos in seconds; of folders aligned by time the file name of the
            reference camera's frame; of folders aligned by name the common file name without extension.
    """

    recording: str | int
    camera: str
    frame_number: int
    time: str | float


def _tolerance_s(value: float | None) -> float | None:
    return None if value is None else number(value, "tolerance_s", at_least=0)


@attrs.frozen(kw_only=True)
class CameraRig(ABC):
    """Settings for matching the frames of several cameras; for the attributes see `Videos` and `FrameFolders`."""

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

    def sequences(
        self, recording: str | int, matched: Int64Array, times: Sequence[str | float]
    ) -> tuple[list[Int64Array], list[MissingFrame]]:
        """Get the points in time of each sequence of a recording, and its missing frames.

        Args:
            recording: Its name or number, see `MissingFrame`.
            matched: ``(T, C)``, the number of each camera's frame at each point in time, -1 where it has none.
            times: The ``T`` points in time, see `MissingFrame`.
        """
        missing = [
            MissingFrame(recording, self.camera_names[camera], place, times[place])
            for place, camera in np.argwhere(matched < 0).tolist()
        ]
        places = np.flatnonzero(np.all(matched >= 0, axis=1))
        gaps = np.flatnonzero(np.diff(places) > 1) + 1
        runs = [places] if self.missing == "bridge" else np.split(places, gaps)
        return [run for run in runs if len(run)], missing


def report_missing(
    rig: CameraRig,
    missing: Sequence[MissingFrame],
    num_times: int,
    *,
    is_empty: bool,
    where: str = "",
    advice: str = "",
) -> None:
    """Warn of missing frames; or raise a `SettingError`, if `missing` is ``"raise"`` or no frame is left.

    Args:
        rig: The cameras.
        missing: The missing frames.
        num_times: Number of points in time of all recordings.
        is_empty: Whether no point in time is left.
        where: Where the recordings are, e.g. ``" in 'train'"``.
        advice: What to check if none is left.
    """
    if not missing:
        return
    counts = collections.Counter((frame.recording, frame.camera) for frame in missing)
    lines = bullets(
        [f"recording {recording}: {count} frame(s) of {camera}" for (recording, camera), count in counts.items()],
        10,
    )
    num_dropped = len({(frame.recording, frame.frame_number) for frame in missing})
    text = f"Not all cameras have a frame at {num_dropped} of {num_times} points in time{where}"
    if rig.missing == "raise":
        raise SettingError(
            f"{text}. Missing are:\n{lines}\nUse `missing='drop'` to leave these points in time out."
        )
    if is_empty:
        who = f"all of the cameras {list(rig.camera_names)!r}"
        raise SettingError(f"At no point in time {who} have a frame{where}. Missing are:\n{lines}{advice}")
    _logger.warning("%s; they are left out. Missing are:\n%s", text, lines)


OptionalField: TypeAlias = tuple[Name | None, types.DALIDataType, int | None]
"""Name (None for no field), type, and number of dimensions."""


class RigProviderBase(BlueprintProvider):
    """A data set of recordings, by one camera or several.

    Attributes:
        camera_names: Names of the cameras; none for a single one without a name.
        missing_frames: Missing frames of cameras.
    """

    camera_names: tuple[str, ...]
    missing_frames: tuple[MissingFrame, ...]

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
            camera_names: Names of the cameras; none for a single one, whose fields are fields of the sample.
            of_camera: First fields of each camera.
            of_frames: Further fields of each camera.
            of_sample: Fields that a sample has once.
            missing: Missing frames.
        """
        self.camera_names, self.missing_frames = tuple(camera_names), tuple(missing)
        _add_fields(of_camera, of_frames)
        self._blueprint = of_camera
        if camera_names:
            self._blueprint = SampleDataGroup()
            for camera in camera_names:
                self._blueprint.add_data_group_field(camera, of_camera)
        _add_fields(self._blueprint, of_sample)

    def _checked(self, sample_index: int) -> int:
        return index_in(sample_index, "sample_index", self.get_number_of_samples())


def _add_fields(group: SampleDataGroup, fields: Iterable[OptionalField]) -> None:
    for name, dtype, num_dimensions in fields:
        if name is not None:
            group.add_data_field(name, dtype, ndim=num_dimensions)
