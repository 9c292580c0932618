# SPDX-License-Identifier: Apache-2.0
"""Files that samples of driving data need: which of them a data set has no name for, and which are not there."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from accvlab.dali_pipeline_framework.checks import bullets, shown
from accvlab.dali_pipeline_framework.errors import FileError, SettingError, error_that_is_also
from accvlab.dali_pipeline_framework.extension import is_url
from accvlab.dali_pipeline_framework.user_warnings import warn_user

from .array_types import Int64, Names
from .driving_index import DrivingIndex

LIDAR = "the lidar"
"""What the lidar is called among the sensors that have files."""
LEAVE_OUT = "Leave the camera (`cameras`) or the scene (`scenes`) out."

WantedFiles: TypeAlias = Mapping[str, tuple[Int64, Names]]
"""By sensor: frames that need files, and the names of these in the index, ``(n,)`` each; empty for none."""

_MOST_LISTED = 16  # folders at once, since each may be on another machine
_logger = logging.getLogger(__name__)


def refuse_missing_names(
    index: DrivingIndex, wanted: WantedFiles, place: str, *, also_images: bool, also_points: bool
) -> None:
    """Refuse frames for which no file is named, see `DrivingProvider._refuse_missing_files`."""
    problems: list[str] = []
    for sensor, (frames, names) in wanted.items():
        tokens = [os.fsdecode(token) for token in index.frames.token[frames[names == b""]].tolist()]
        if also_points if sensor == LIDAR else also_images:
            what = "the points" if sensor == LIDAR else sensor
            problems += [f"{token!r} has none of {what}" for token in tokens]
        elif tokens:
            what = "no points" if sensor == LIDAR else f"no image of {sensor}"
            follows = "they are empty" if sensor == LIDAR else "their samples cannot be loaded"
            count = f"{len(tokens)} of {len(frames)} frames"
            _logger.warning("%s, e.g. %r have %s in %s: %s.", count, tokens[0], what, place, follows)
    if problems:
        rule = f"Each frame must have what is requested of it in {place}, but:\n{bullets(problems, 5)}"
        raise SettingError(f"{rule}\n{LEAVE_OUT} Or get what is missing.")


def check_files(
    index: DrivingIndex,
    scenes: Sequence[int],
    wanted: WantedFiles,
    path_of: Callable[[bytes, str], str],
    place: str,
    advice: str,
) -> None:
    """Compare the files that are requested with those in the folders, see `DrivingProvider._check_files`."""
    files = {
        sensor: [
            (frame, *name.rpartition(b"/")[::2])
            for frame, name in zip(frames.tolist(), names.tolist(), strict=True)
        ]
        for sensor, (frames, names) in wanted.items()
    }
    paths = {
        (sensor, folder): os.path.dirname(path_of(os.path.join(folder, b"name"), sensor))
        for sensor, of_sensor in files.items()
        for folder in {folder for _, folder, _ in of_sensor}
    }
    with ThreadPoolExecutor(_MOST_LISTED) as threads:
        there = dict(zip(paths, threads.map(_names_in, paths.values()), strict=True))
    missing: list[tuple[int, str]] = []
    for sensor, of_sensor in files.items():
        lacking = [
            (frame, os.path.join(paths[sensor, folder], os.fsdecode(name)))
            for frame, folder, name in of_sensor
            if (known := there[sensor, folder]) is not None and name not in known
        ]
        if lacking and len(lacking) == len(of_sensor):
            raise error_that_is_also(
                FileError,
                [FileNotFoundError],
                f"None of the {len(of_sensor)} files of {sensor} that {place} names is there, e.g. "
                f"{lacking[0][1]!r}. Get them, or leave the sensor out (`cameras`, `lidar`).{advice}",
            )
        missing += lacking
    if missing:
        incomplete = {index.scene_of(frame) for frame in {frame for frame, _ in missing}}
        whole = [os.fsdecode(index.frames.scene[scene]) for scene in scenes if scene not in incomplete]
        others = f" {len(whole)} of {len(scenes)} scenes have all of theirs: `scenes={shown(whole[:3])}`."
        total = sum(map(len, files.values()))
        warn_user(
            f"{len(missing)} of {total} files that {place} names are not there, e.g. {missing[0][1]!r}. Samples "
            f"that need them cannot be loaded: get them, leave their scenes or sensors out, or skip samples that "
            f"fail (`FaultPolicy`).{others if whole else ''}"
        )


def _names_in(folder: str) -> frozenset[bytes] | None:
    """Names of what is in a folder, none where there is no folder; None where it cannot be read."""
    if is_url(folder):  # in an archive
        return None
    try:
        return frozenset(map(os.fsencode, os.listdir(folder)))
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
    except OSError:
        return None
