# SPDX-License-Identifier: Apache-2.0
"""CAN messages at the times of frames, in the form that the info files of BEVFormer and SparseDrive have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import shown
from accvlab.dali_pipeline_framework.errors import FileError, error_that_is_also
from accvlab.dali_pipeline_framework.extension import parse_json, read_table

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

_POSE = {"pos": 3, "orientation": 4, "accel": 3, "rotation_rate": 3, "vel": 3}


def can_files(folder: Path) -> list[Path]:
    """The files of a folder that are read."""
    return sorted(file for kind in ("pose", "steeranglefeedback") for file in folder.glob(f"*_{kind}.json"))


def can_columns(
    folder: Path, scenes: Sequence[str], first_of_scene: Int64, microseconds: Int64
) -> tuple[Float64, Float64]:
    """``can_bus (F, 18)`` and ``ego_status (F, 10)`` of all frames; zeros in scenes without messages.

    Raises:
        FileError: A file is damaged.
    """
    can_bus, ego_status = np.zeros((len(microseconds), 18)), np.zeros((len(microseconds), 10))
    for number, scene in enumerate(scenes):
        frames = slice(int(first_of_scene[number]), int(first_of_scene[number + 1]))
        path = folder / f"{scene}_pose.json"
        if not path.is_file():
            continue
        time, values = _messages(path, _POSE)
        can_bus[frames] = _can_bus(time, values, microseconds[frames])
        path = folder / f"{scene}_steeranglefeedback.json"
        if path.is_file():
            steering_time, steering = _messages(path, {"value": 1})
            at, steering_at = (_nearest(times, microseconds[frames]) for times in (time, steering_time))
            columns = (
                values["accel"][at],
                values["rotation_rate"][at],
                values["vel"][at],
                steering["value"][steering_at],
            )
            ego_status[frames] = np.column_stack(columns).astype(np.float32)  # as SparseDrive stores it
    return can_bus, ego_status


def _can_bus(time: Int64, values: dict[str, Float64], wanted: Int64) -> Float64:
    """Position and orientation of the last message before, the rest of the first message behind it."""
    after = np.searchsorted(time, wanted, side="right")
    before, after = np.maximum(after - 1, 0), np.minimum(after, len(time) - 1)
    measured = (values[name][after] for name in ("accel", "rotation_rate", "vel"))
    return np.column_stack(
        [values["pos"][before], values["orientation"][before], *measured, np.zeros((len(wanted), 2))]
    )


def _nearest(time: Int64, wanted: Int64) -> Int64:
    """Numbers of the messages nearest in time; the later one of two."""
    after = np.searchsorted(time, wanted)
    before, behind = np.maximum(after - 1, 0), np.minimum(after, len(time) - 1)
    is_before = (after == len(time)) | ((after > 0) & (wanted - time[before] < time[behind] - wanted))
    return np.where(is_before, before, behind)


def _messages(path: Path, fields: dict[str, int]) -> tuple[Int64, dict[str, Float64]]:
    """Times, and the values of fields, of all messages of a file."""
    try:
        messages: list[dict[str, Any]] = parse_json(read_table(path))
        if not messages:
            raise ValueError("it has no messages")
        time = np.array([message["utime"] for message in messages], np.int64)
        values = {
            name: np.array([message[name] for message in messages], np.float64).reshape(len(messages), length)
            for name, length in fields.items()
        }
    except (OSError, ValueError, TypeError, KeyError, OverflowError) as error:
        also = [type(error)] if isinstance(error, OSError) else []
        what = f"a message lacks {shown(error.args[0])}" if isinstance(error, KeyError) else error
        message = (
            f"The CAN messages {str(path)!r} cannot be used: {what}. Unpack the expansion again, or remove it."
        )
        raise error_that_is_also(FileError, also, message) from error
    if (np.diff(time) < 0).any():
        row = int(np.flatnonzero(np.diff(time) < 0)[0]) + 1
        raise FileError(f"The CAN messages {str(path)!r} must be in the order of time: message {row} goes back.")
    return time, values
