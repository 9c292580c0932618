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

TimeArray = npt.NDArray[np.int64] | npt.NDArray[np.float64] | npt.NDArray[np.object_]
CameraTimes: TypeAlias = TimeArray | tuple[npt.NDArray[np.int64], Fraction, Fraction]
"""``(n,)`` times; or ``(n,)`` numbers, their unit, and an offset that is added to the product."""
_MOST = 2**62  # so that differences do not overflow

TimestampRule: TypeAlias = str | Callable[[str], float]
"""How to read a time stamp off a file name: a regular expression with one group, or a function."""


class TimestampParser:
    """Reads time stamps off file names.

    Example:
        >>> TimestampParser(None)("1533151603.512.jpg"), TimestampParser(r"__(\\d+)\\.")("CAM__42.jpg")
        (1533151603.512, 42)
    """

    def __init__(self, rule: TimestampRule | None) -> None:
        """Set the rule.

        Args:
            rule: A regular expression that is searched in the file name and whose first group is a number; a
                function that takes the file name and returns a number; or None: the name without its extension
                is the number. Whole numbers stay whole.
        """
        self._rule = rule
        self._pattern: re.Pattern[str] | None = None
        given = shown(rule)
        if isinstance(rule, str):
            try:
                self._pattern = re.compile(str.__str__(rule))
            except (re.error, RecursionError, OverflowError) as error:
                raise SettingError(f"`timestamp` is no valid regular expression: {error} in {given}.") from error
            if self._pattern.groups < 1:
                raise SettingError(f"`timestamp` must have a group, as in r'_(\\d+)\\.', got {given}.")
        elif rule is not None and not callable(rule):
            raise setting_error("timestamp", "a regular expression, a function of the file name, or None", rule)

    def __call__(self, file_name: str) -> int | float:
        """Read a time stamp, or raise a `SettingError` where there is none, or it is not finite."""
        found: Any = os.path.splitext(file_name)[0]
        failure = None
        try:
            if callable(self._rule):
                found = self._rule(file_name)
            elif self._pattern is not None:
                match = self._pattern.search(file_name)
                found = None if match is None else match.group(1)
            if isinstance(found, str):
                found = int(found) if found.lstrip("+-").isdecimal() else float(found)
            value = int(found) if isinstance(found, numbers.Integral) else number(found, "timestamp")
            if abs(value) < (_MOST if isinstance(value, int) else math.inf):
                return value
        except Exception as error:
            failure = error
        rule = "`timestamp` must find a finite number of at most 64 bits"
        why = "" if failure is None or isinstance(failure, SettingError) else f" ({reason_of(failure)})"
        raise SettingError(f"{rule} in the file name {file_name!r}, got {found!r}{why}.") from failure


def as_times(values: Sequence[int | float]) -> TimeArray:
    """Make an array of time stamps: int64 if all are whole numbers, else float64."""
    is_whole = all(isinstance(value, int) for value in values)
    return np.array(values, np.int64) if is_whole else np.array(values, np.float64)


def match_times(reference: TimeArray, other: TimeArray, tolerance: float) -> Int64Array:
    """Find the frame of another camera for each time of a reference camera.

    Two frames belong together if each is the nearest to the other (of two that are equally near, the earlier)
    and they are not more than the tolerance apart. So no frame is used twice, and none out of order.

    Args:
        reference: ``(T,)`` times, strictly increasing.
        other: ``(U,)`` times, strictly increasing.
        tolerance: Largest difference, in the unit of the times.

    Returns:
        ``(T,)`` int64, positions in ``other``, -1 where there is none.
    """
    found = nearest(other, reference, tolerance)
    if not len(other):
        return found
    is_mutual = nearest(reference, other, np.inf)[found] == np.arange(len(reference))
    return np.where(is_mutual, found, -1)


def exact(value: float | Fraction) -> Fraction:
    """Convert a number exactly as written: a float by its shortest decimal, so 0.02 to 1/50."""
    return Fraction(repr(float(value))) if isinstance(value, float) else Fraction(value)


def in_common_unit(cameras: Sequence[CameraTimes]) -> tuple[list[TimeArray], Fraction]:
    """Make the times of cameras comparable without rounding: whole numbers of one unit.

    Args:
        cameras: Times of each camera; floats are taken for what `exact` has.

    Returns:
        For each camera ``(n,)`` times, int64, or Python's ``int`` where that is too small; and their unit, in that
        of what was given.
    """
    linear: list[tuple[npt.NDArray[Any], Fraction, Fraction]] = []
    for camera in cameras:
        times, unit, start = camera if isinstance(camera, tuple) else (camera, Fraction(1), Fraction(0))
        if times.dtype.kind == "f":
            times = np.array([exact(time) for time in times.tolist()], object)
        linear.append((times, unit, start))
    # Relative to one of them: times since 1970 in small units would need more than 64 bits.
    origin = next(
        (unit * times[:1].tolist()[0] + start for times, unit, start in linear if len(times)), Fraction(0)
    )
    fractions = [fraction for _, unit, start in linear for fraction in (unit, start - origin)]
    fractions += [time for times, _, _ in linear if times.dtype == object for time in times.tolist()]
    parts = math.lcm(*(fraction.denominator for fraction in fractions))
    common = [_scaled(times, int(unit * parts), int((start - origin) * parts)) for times, unit, start in linear]
    return common, Fraction(1, parts)


def _scaled(times: npt.NDArray[Any], factor: int, start: int) -> TimeArray:
    values = [int(time * factor) + start for time in times.tolist()]
    return np.array(values, np.int64 if max(map(abs, values), default=0) < _MOST else object)


def align_times(cameras: Sequence[CameraTimes], reference: int, tolerance: float | Fraction | None) -> Int64Array:
    """Find the frames of several cameras for each time of a reference camera, see `match_times`.

    Frames exactly as far apart as the tolerance match: nothing is rounded.

    Args:
        cameras: Times of each of ``C`` cameras, strictly increasing, see `in_common_unit`.
        reference: Number of the reference camera, which has ``T`` times.
        tolerance: Largest difference, in the unit of the times, see `exact`; None for half the median interval of
            the reference.

    Returns:
        ``(T, C)`` int64, number of the frame of each camera, -1 where there is none.
    """
    times, unit = in_common_unit(cameras)
    if tolerance is None:
        intervals = sorted(np.diff(times[reference]).tolist()) or [0]
        within = (intervals[(len(intervals) - 1) // 2] + intervals[len(intervals) // 2]) // 4
    else:
        within = math.floor(exact(tolerance) / unit)  # times are whole, so this is exact
    return np.stack([match_times(times[reference], of_camera, within) for of_camera in times], axis=1)


# --- cameras of a recording -------------------------------------------------------------------------------


@attrs.frozen
class RigTimes:
    """The points in time of a recording.

    Attributes:
        rows: For each, the file name of each camera's frame, or None where it has none.
        labels: For each, its name, see `MissingFrame`.
        num_unused: For each camera, the number of frames that belong to no point in time.
    """

    rows: list[tuple[str | None, ...]]
    labels: list[str]
    num_unused: list[int]


def align_by_name(files: Sequence[Sequence[str]], where: Sequence[str]) -> RigTimes:
    """Match frames by the file names without extension, sorted for each camera; its folder is for messages."""
    if len(files) == 1:
        return RigTimes([(name,) for name in files[0]], [*files[0]], [0])
    by_stem: list[dict[str, str]] = []
    first_names: dict[str, str] = {}
    for names, folder in zip(files, where, strict=True):
        of_camera: dict[str, str] = {}
        for name in names:
            stem = os.path.splitext(name)[0]
            if stem in of_camera:
                rule = "Frames are aligned by their names without extension, so they must differ in them"
                raise SettingError(f"{rule}, got {of_camera[stem]!r} and {name!r} in {folder!r}. Remove one.")
            of_camera[stem] = name
            first_names[stem] = min(name, first_names.get(stem, name), key=os.fsencode)
        by_stem.append(of_camera)
    stems = sorted(first_names, key=lambda stem: os.fsencode(first_names[stem]))
    return RigTimes([tuple(each.get(stem) for each in by_stem) for stem in stems], stems, [0] * len(files))


def align_by_time(
    files: Sequence[Sequence[str]],
    where: Sequence[str],
    parser: TimestampParser,
    reference: int,
    tolerance: Fraction | None,
) -> RigTimes:
    """Match frames by nearest time stamp, see `match_times`; in the order of time.

    Args:
        files: The file names of each camera.
        where: The folder of each camera, for messages.
        parser: Reads time stamps off file names.
        reference: The camera whose frames are the points in time.
        tolerance: See `align_times`.
    """
    ordered: list[list[str]] = []
    times: list[TimeArray] = []
    for names, folder in zip(files, where, strict=True):
        stamps = as_times([stamp_of(name, folder, parser) for name in names])
        order = np.argsort(stamps, kind="stable")
        stamps = stamps[order]
        same = np.flatnonzero(stamps[1:] == stamps[:-1])
        ordered.append([names[position] for position in order.tolist()])
        times.append(stamps)
        if same.size:
            raise SettingError(
                f"The time stamps of a camera must differ, got {stamps[same[0]]} for both "
                f"{ordered[-1][same[0]]!r} and {ordered[-1][same[0] + 1]!r} in {folder!r}."
            )
    matched = align_times(times, reference, tolerance)
    rows = [
        tuple(names[place] if place >= 0 else None for names, place in zip(ordered, row, strict=True))
        for row in matched.tolist()
    ]
    num_used = np.count_nonzero(matched >= 0, axis=0).tolist()
    num_unused = [len(names) - used for names, used in zip(ordered, num_used, strict=True)]
    return RigTimes(rows, ordered[reference], num_unused)


def stamp_of(name: str, folder: str, parser: TimestampParser) -> int | float:
    """Read a time stamp off a file name, or raise a `SettingError` that names the folder, too."""
    try:
        return parser(name)
    except SettingError as error:
        raise SettingError(f"{error} The folder is {folder!r}.") from error


MissingPolicy: TypeAlias = Literal["drop", "bridge", "raise"]

_logger = logging.getLogger(__name__)


class MissingFrame(NamedTuple):
    """A missing frame of a camera.

    Attributes:
        recording: Name of the recording's folder; of videos, the number of the recording.
        camera: Name of the camera.
        frame_number: Number of the point in time in its recording; by time, of the reference camera's frame.
        time: The point in time: of videos in seconds; of folders the file name of the reference camera's frame,
            without extension if cameras are aligned by name.
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
    """Missing frames of the cameras.

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
        """Warn of missing frames; or raise a `SettingError`, if `missing` is ``"raise"`` or no frame is left.

        Args:
            rig: The cameras.
            is_empty: Whether no point in time is left.
            where: Where the recordings are, e.g. ``" in 'train'"``.
            advice: What to check if none is left.
        """
        if not (self.missing or self.notes):
            return
        lines = bullets(self._recordings(), 10)
        num_dropped = len({(frame.recording, frame.frame_number) for frame in self.missing})
        text = f"Not all cameras have a frame at {num_dropped} of {self.num_times} points in time{where}"
        if rig.missing == "raise" and (self.missing or self.lacks_folders):
            raise SettingError(f"{text}:\n{lines}\nUse `missing='drop'` to leave these points in time out.")
        if is_empty and self.missing:
            who = f"all of the cameras {list(rig.camera_names)!r}"
            raise SettingError(f"At no point in time {who} have a frame{where}:\n{lines}{advice}")
        _logger.warning("%s; they are left out:\n%s", text, lines)

    def _recordings(self) -> list[str]:
        counts = collections.Counter((frame.recording, frame.camera) for frame in self.missing)
        parts: dict[str | int, list[str]] = {}
        for (recording, camera), count in counts.items():
            parts.setdefault(recording, []).append(f"{count} frame(s) of {camera} missing")
        for recording, notes in self.notes.items():
            parts.setdefault(recording, []).extend(notes)
        return [
            f"{'recording ' * isinstance(each, int)}{each}: {', '.join(texts)}" for each, texts in parts.items()
        ]


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
