# SPDX-License-Identifier: Apache-2.0
"""Matching of the frames of several cameras, by file name or by time."""

from __future__ import annotations

import os
from collections.abc import Sequence

import attrs
import numpy as np

from ...errors import SettingError
from .frame_times import TimeArray, TimestampParser, align_times, as_times


@attrs.frozen
class RigTimes:
    """The points in time of a recording.

    Attributes:
        rows: For each, the file name of each camera's frame, or None where it has none.
        labels: For each, what it is called, see `MissingFrame`.
        num_unused: For each camera, the number of frames that belong to no point in time.
    """

    rows: list[tuple[str | None, ...]]
    labels: list[str]
    num_unused: list[int]


def align_by_name(files: Sequence[Sequence[str]], where: Sequence[str]) -> RigTimes:
    """Match frames by file name without extension.

    Args:
        files: The sorted file names of each camera.
        where: The folder of each camera, for messages.

    Raises:
        SettingError: A camera has two frames of the same name.
    """
    if len(files) == 1:
        return RigTimes([(name,) for name in files[0]], [*files[0]], [0])
    by_stem: list[dict[str, str]] = []
    first_names: dict[str, str] = {}
    for names, folder in zip(files, where, strict=True):
        of_camera: dict[str, str] = {}
        for name in names:
            stem = os.path.splitext(name)[0]
            if stem in of_camera:
                raise SettingError(
                    f"Frames are aligned by their names without extension, so they must differ in them, got "
                    f"{of_camera[stem]!r} and {name!r} in {folder!r}. Remove one."
                )
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
    tolerance: float | None,
) -> RigTimes:
    """Match frames by nearest time stamp, see `match_times`; in the order of time.

    Args:
        files: The file names of each camera.
        where: The folder of each camera, for messages.
        parser: Reads time stamps off file names.
        reference: The camera whose frames are the points in time.
        tolerance: How far a frame may be from its point in time, in the unit of the time stamps; None for half the
            usual interval.

    Raises:
        SettingError: A time stamp cannot be read, or two frames of a camera have the same.
    """
    ordered: list[list[str]] = []
    times: list[TimeArray] = []
    for names, folder in zip(files, where, strict=True):
        stamps = _stamps(names, folder, parser)
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


def _stamps(names: Sequence[str], folder: str, parser: TimestampParser) -> TimeArray:
    try:
        return as_times([parser(name) for name in names])
    except SettingError as error:
        raise SettingError(f"{error} The folder is {folder!r}.") from error
