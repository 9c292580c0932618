"""Numbers that no sample can use are named by their frame; those that are not requested are not looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driving_support.driving_data import with_column, write_driving_data
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import FileError
from accvlab.driving_data.datasets import (
    DrivingIndex,
)
from accvlab.driving_data.datasets.driving.index_checks import require_usable


def put(table: str, column: str, place: Any, value: Any) -> Callable[[DrivingIndex], DrivingIndex]:
    def changed(values: Any) -> Any:
        values[place] = value
        return values

    return with_column(table, column, changed)


def scaled(table: str, column: str, factor: Any) -> Callable[[DrivingIndex], DrivingIndex]:
    return with_column(table, column, lambda values: values * factor)


A, B = "The frame 'frame-1' in the scene 'scene-a': ", "The frame 'frame-4' in the scene 'scene-b': "
RIGID = "must be a rotation and a finite translation, got "
INTRINSICS = (
    "intrinsics of 'LEFT' must be a matrix of finite numbers with focal lengths above 0, whose last row is"
)
# What is said, the part that it is of, and what is wrong.
CASES: dict[str, tuple[str, Callable[[DrivingIndex], DrivingIndex]]] = {
    f"{A}the pose of the vehicle {RIGID}": ("", put("frames", "world_from_ego", (1, 0, 0), 5.0)),
    f"{A}the pose of the vehicle {RIGID}[[0.0, 0.0": ("", put("frames", "world_from_ego", 1, 0.0)),
    f"{A}the pose of the vehicle {RIGID}[[nan": ("", put("frames", "world_from_ego", 1, np.nan)),
    f"{A}the pose of the lidar {RIGID}": ("", put("frames", "ego_from_base", (1, 2, 3), np.inf)),
    "'frame-0'...the pose of the lidar...(and 4 more frames like it)": ("", scaled("frames", "ego_from_base", -1)),
    f"{A}can_bus must be finite numbers, got [": ("can_bus", put("frames", "can_bus", (1, 17), np.nan)),
    f"{A}ego_status must be finite": ("ego_status", put("frames", "ego_status", (1, 0), np.inf)),
    f"{A}camera_from_base of 'LEFT' {RIGID}": ("cameras/LEFT", put("cameras", "camera_from_base", (1, 1), 0.0)),
    f"{A}ego_from_camera of 'LEFT' {RIGID}": ("cameras/LEFT", put("cameras", "ego_from_camera", (1, 1), np.nan)),
    f"{A}{INTRINSICS} 0, 0, 1, got [[0.0, ": ("cameras/LEFT", put("cameras", "intrinsics", (1, 1, 0, 0), 0.0)),
    f"{A}{INTRINSICS}": ("cameras/LEFT", put("cameras", "intrinsics", (1, 1, 1, 1), -1.0)),
    f"{A}{INTRINSICS} 0, 0, 1": ("cameras/LEFT", put("cameras", "intrinsics", (1, 1, 2, 0), 0.5)),
    f"{A}the pose of its lidar record {RIGID}": ("lidar", put("lidar", "world_from_lidar", 1, 0.0)),
    f"{A}a box must be finite numbers with sizes of at least 0 (center, size, quaternion), got [nan, ": (
        "boxes",
        put("boxes", "center", ([3, 4], 0), [np.nan, np.inf]),  # the first of several
    ),
    f"{A}a box must be finite": ("boxes", put("boxes", "size", (4, 2), -2.0)),
    "The frame 'frame-0' in the scene 'scene-a': its token is that of an earlier": (
        "",
        put("frames", "token", 1, b"frame-0"),
    ),
    f"{A}times must ascend in its scene, got 1500000000.0 and then 1500000000.0": (
        "",
        put("frames", "time", 1, 1.5e9),
    ),
    f"{B}times must": ("", put("frames", "time", 3, np.nan)),
    "frames must be 0.001 to 1000 seconds apart, the usual distance is 5e-07 seconds...another unit": (
        "",
        with_column("frames", "time", lambda time: (time - 1.5e9) / 1e6),
    ),
}


@pytest.mark.parametrize("words", CASES)
def test_are_named_by_their_frame(tmp_path: Path, words: str) -> None:
    part, change = CASES[words]
    index = change(write_driving_data(tmp_path))
    assert_refused(lambda: require_usable(index, lambda wanted: wanted == part), words, FileError)
    other = ["scene-a" if "frame-4" in words else "scene-b"]
    if part:
        require_usable(index, lambda wanted: wanted != part)
    elif "4 more" not in words and "apart" not in words:
        require_usable(index, lambda wanted: True, other)
