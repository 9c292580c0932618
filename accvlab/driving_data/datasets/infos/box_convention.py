# SPDX-License-Identifier: Apache-2.0
"""What the columns of boxes mean: stated, or said by the form of the file. What contradicts the data is refused.

Pickles do not say which convention they follow. Three are in use: ``x, y, z`` and then ::

    "l,w,h,yaw"          length, width, height, yaw
    "w,l,h,-yaw-pi/2"    width, length, height, -yaw - pi/2
    "w,l,h,yaw"          width, length, height, yaw

and z is that of the center or of the bottom. Yaw is 0 along x, counter-clockwise seen from above.
"""

from __future__ import annotations

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import bullets
from accvlab.dali_pipeline_framework.errors import SettingError

from ..driving.array_types import Bool, Float64, Int64

# By layout: whether the length comes before the width, and the sign of yaw.
_MEANINGS = {"l,w,h,yaw": (True, 1), "w,l,h,-yaw-pi/2": (False, -1), "w,l,h,yaw": (False, 1)}
LAYOUTS = tuple(_MEANINGS)
Z_PLACES = ("center", "bottom")

# Names of objects that are longer than wide, and drive along their length.
_OF_VEHICLES = ("car", "truck", "bus", "trailer", "vehicle", "van", "cycl", "motor", "tram", "train")
_FEWEST = 10  # boxes that show something
_SLOWEST_M_PER_S = 1.0
_LARGEST_ANGLE = np.deg2rad(20)
_FARTHEST_M = 30.0


@attrs.frozen(eq=False, kw_only=True)
class RawBoxColumns:
    """Boxes of all frames as they are in a pickle.

    Attributes:
        values: ``(N, 7)``.
        frame: Frame of each, ``(N,)``.
        is_vehicle: Whether it is of a category of vehicles, ``(N,)``.
        velocity: In the base, ``(N, 2)``, NaN where unknown.
        ego_from_base: Of each frame.
    """

    values: Float64
    frame: Int64
    is_vehicle: Bool
    velocity: Float64
    ego_from_base: Float64


def is_name_of_vehicle(name: str | None) -> bool:
    """Whether objects of a category are longer than wide and drive along their length."""
    return name is not None and any(part in name.lower() for part in _OF_VEHICLES)


def decoded(values: Float64, layout: str, z: str) -> tuple[Float64, Float64, Float64]:
    """Centers ``(N, 3)``, sizes (length, width, height) ``(N, 3)`` and yaws ``(N,)`` of boxes ``(N, 7)``."""
    is_length_first, sign = _MEANINGS[layout]
    center, size, yaw = values[:, :3].copy(), values[:, 3:6], values[:, 6]
    if not is_length_first:
        size = size[:, [1, 0, 2]]
    if sign < 0:
        yaw = -yaw - np.pi / 2
    if z == "bottom":
        center[:, 2] += size[:, 2] / 2
    return center, np.ascontiguousarray(size), np.arctan2(np.sin(yaw), np.cos(yaw))


def checked_layout(boxes: RawBoxColumns, layout: str | None, z: str, path: str, *, is_data_list: bool) -> str:
    """Get the layout: that which was stated, else ``"l,w,h,yaw"`` of a ``data_list`` or lengths first.

    Raises:
        SettingError: It contradicts the boxes, as may ``z``, or was not stated and the form does not say it.
    """
    is_length_first, of_sizes = _longer_column(boxes)
    sign, of_directions = _sign_of_yaw(boxes)
    is_contradicted, of_z = _contradiction_of_z(boxes, z)
    fitting = [
        name
        for name, (first, of_yaw) in _MEANINGS.items()
        if is_length_first in (None, first) and sign in (None, of_yaw)
    ]
    figures = bullets((of_sizes, of_directions, of_z))
    fits = f"What fits the boxes: {', '.join(map(repr, fitting)) or 'none'}."
    if layout is None and not is_data_list and not is_length_first:
        raise SettingError(
            f"{path!r} does not say what columns 3 to 6 of its boxes are:\n{figures}\nState it: "
            f"`boxes_convention` is one of {', '.join(map(repr, LAYOUTS))}. The converters of StreamPETR, "
            f"SparseDrive, Sparse4D and mmdetection3d from 1.0 write 'l,w,h,yaw'; those of BEVFormer, VAD, "
            f"DETR3D, BEVFusion and mmdetection3d before 1.0 'w,l,h,-yaw-pi/2'; that of UniAD 'w,l,h,yaw'. {fits}"
        )
    layout = layout or LAYOUTS[0]
    if layout not in fitting:
        rule = f"{path!r}: `boxes_convention={layout!r}` contradicts the boxes"
        raise SettingError(f"{rule}:\n{figures}\n{fits}")
    if is_contradicted:
        raise SettingError(f"{path!r}: `z={z!r}` contradicts the boxes:\n{bullets([of_z])}")
    return layout


def _longer_column(boxes: RawBoxColumns) -> tuple[bool | None, str]:
    """Whether column 3 is the length; None where that is not known."""
    first, second = (boxes.values[:, column][boxes.is_vehicle] for column in (3, 4))
    ratio = float(np.median(first / np.where(second > 0, second, np.nan))) if len(first) else np.nan
    line = f"sizes: column 3 is {ratio:.2f} times column 4 (median of {len(first)} boxes of vehicles)"
    is_known = len(first) >= _FEWEST and abs(np.log(ratio)) > np.log(1.2)
    return (ratio > 1 if is_known else None), line


def _sign_of_yaw(boxes: RawBoxColumns) -> tuple[int | None, str]:
    """1 if moving objects go along yaw = column 6, -1 if along -(column 6) - pi/2; None if that is not known."""
    with np.errstate(invalid="ignore"):
        is_moving = np.hypot(*boxes.velocity.T) > _SLOWEST_M_PER_S
    if (is_moving & boxes.is_vehicle).sum() >= _FEWEST:
        is_moving &= boxes.is_vehicle
    x, y, column = (each[is_moving] for each in (*boxes.velocity.T, boxes.values[:, 6]))
    heading = np.arctan2(y, x)
    # Angles between lines without direction: a car may back up.
    off = np.abs((heading - np.stack([column, -column - np.pi / 2]) + np.pi / 2) % np.pi - np.pi / 2)
    plus, minus = (int(each) for each in (off < _LARGEST_ANGLE).sum(axis=1))
    line = (
        f"directions: of {len(heading)} moving objects, {plus} go along yaw = column 6, {minus} along "
        f"-(column 6) - pi/2"
    )
    is_known = abs(plus - minus) >= max(_FEWEST, 0.3 * len(heading))
    return (1 if plus > minus else -1) if is_known else None, line


def _contradiction_of_z(boxes: RawBoxColumns, z: str) -> tuple[bool, str]:
    """Whether objects stand on the ground, at 0 in coordinates of the vehicle, only with another ``z``."""
    is_near = np.hypot(*boxes.values[:, :2].T) < _FARTHEST_M
    near, up = boxes.values[is_near], np.ascontiguousarray(boxes.ego_from_base[:, 2])[boxes.frame[is_near]]
    height = np.einsum("ij,ij->i", up[:, :3], near[:, :3]) + up[:, 3]
    if len(height) < _FEWEST or np.median(up[:, 3]) < 0.5:
        return False, "ground: too few boxes, or the lidar has no height"
    bottoms = {
        "center": float(np.median(height - near[:, 5] / 2)),
        "bottom": float(np.median(height)),
    }
    other = abs(bottoms["bottom" if z == "center" else "center"])
    line = (
        f"ground: objects stand {bottoms['center']:.2f} m high if z is that of the center, "
        f"{bottoms['bottom']:.2f} m if that of the bottom"
    )
    return other < 0.3 and abs(bottoms[z]) > other + 0.3, line
