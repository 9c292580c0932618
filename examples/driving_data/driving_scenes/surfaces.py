"""What the faces of the boxes look like: windows, wheels and lamps of cars, clothes of people.

A point on a box is given in the box frame; colours are RGB in [0, 255]. A texture never leaves a part of a
face blank: the pixels of an object are exactly the pixels of its box.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["paint_object"]

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Ints = NDArray[np.intp]

_CAR_PAINTS = (
    *((178, 34, 38), (36, 74, 142), (232, 232, 234), (58, 62, 68), (150, 156, 162)),
    *((206, 172, 60), (40, 104, 76), (110, 36, 52), (88, 134, 180), (222, 116, 44)),
)
_CLOTHES = (
    (196, 62, 58),
    (60, 96, 168),
    (232, 196, 70),
    (92, 150, 92),
    (230, 228, 222),
    (120, 72, 140),
    (40, 42, 50),
)
_TROUSERS = ((44, 52, 78), (60, 56, 52), (96, 84, 70), (36, 36, 40))
_SKINS = ((232, 190, 160), (198, 150, 116), (142, 98, 72), (98, 66, 50))
_GLASS, _RUBBER, _TRIM = (48, 60, 74), (24, 24, 26), (62, 62, 66)


def paint_object(
    points: Floats32,
    face_axes: Ints,
    size: Floats,
    category_id: int,
    track_id: int,
    sun_local: Floats,
    sun_share: float,
) -> Floats32:
    """Shaded colours of points on one box.

    Args:
        points: (N, 3), box frame, metres from the centre.
        face_axes: (N,), 0, 1, 2 for points on a front or back, side, top face.
        size: (3,), length, width, height.
        category_id: what to paint.
        track_id: chooses the colours.
        sun_local: (3,), unit vector towards the sun, box frame.
        sun_share: how much of the light comes from there, in [0, 1].

    Returns:
        (N, 3), before haze.
    """
    relative = np.asarray(points / (0.5 * size), dtype=np.float32)  # in [-1, 1]
    height = points[:, 2] + np.float32(0.5 * size[2])  # above the ground
    paint = _PAINTERS[category_id](points, relative, height, face_axes, size, track_id)
    # One brightness per face: lit by the sun where it faces the sun, by the sky everywhere.
    signs = np.sign(relative[np.arange(len(points)), face_axes])
    facing = signs * np.asarray(sun_local, np.float32)[face_axes]
    sky = np.array([0.84, 0.72, 1.0], np.float32)[face_axes]
    light = sky * (1.15 - 0.4 * sun_share) + 0.6 * sun_share * np.maximum(facing, 0.0)
    return np.asarray(paint * light[:, None], dtype=np.float32)


def _pick(choices: tuple[tuple[int, int, int], ...], track_id: int, salt: int) -> tuple[int, int, int]:
    # A fixed scramble: neighbouring track ids must not get neighbouring colours.
    return choices[((track_id + 1) * 2654435761 + salt * 40503) % 4294967296 * len(choices) >> 32]


def _plain(count: int, rgb: tuple[int, int, int]) -> Floats32:
    colours = np.empty((count, 3), np.float32)
    colours[:] = rgb
    return colours


def _paint_wheels(
    colours: Floats32,
    x_m: Floats32,
    height: Floats32,
    on_side: NDArray[np.bool_],
    axles_m: list[float],
    radius: float,
) -> None:
    for axle_m in axles_m:
        distance = np.hypot(x_m - np.float32(axle_m), height - np.float32(radius))
        colours[on_side & (distance < 1.25 * radius) & (height > radius)] *= np.float32(0.6)  # wheel arch
        colours[on_side & (distance < radius)] = _RUBBER
        colours[on_side & (distance < 0.5 * radius)] = (150, 150, 152)


def _paint_car(
    points: Floats32, relative: Floats32, height: Floats32, face_axes: Ints, size: Floats, track_id: int
) -> Floats32:
    x, y, z = relative.T
    colours = _plain(len(points), _pick(_CAR_PAINTS, track_id, 0))
    on_end, on_side, on_top = face_axes == 0, face_axes == 1, face_axes == 2
    is_glass_height = (z > 0.16) & (z < 0.82)
    colours[~on_top & (z < -0.8)] = _TRIM
    slope = (z - 0.16) * 0.22  # the cabin narrows upwards
    colours[on_end & is_glass_height & (np.abs(y) < 0.86 - slope)] = _GLASS
    is_cabin = on_side & is_glass_height & (x < 0.62 - 1.4 * slope) & (x > -0.86 + slope)
    colours[is_cabin & (np.abs(x + 0.12) > 0.03)] = _GLASS
    colours[on_side & (np.abs(z + 0.1) < 0.03)] *= np.float32(0.8)
    is_lamp = on_end & (np.abs(z + 0.18) < 0.15) & (np.abs(y) > 0.62) & (np.abs(y) < 0.94)
    colours[is_lamp & (x > 0.0)] = (255, 250, 222)
    colours[is_lamp & (x < 0.0)] = (214, 26, 30)
    is_plate = on_end & (np.abs(y) < 0.26) & (np.abs(z + 0.5) < 0.1)
    colours[is_plate] = (236, 236, 228)
    colours[on_end & (x > 0.0) & (np.abs(y) < 0.5) & (np.abs(z + 0.18) < 0.12)] = _TRIM
    colours[on_top & (x > 0.62)] *= np.float32(0.9)
    colours[on_top & (np.abs(x - 0.45) < 0.13) & (np.abs(y) < 0.85)] = _GLASS
    axles_m = [0.31 * float(size[0]), -0.30 * float(size[0])]
    _paint_wheels(colours, points[:, 0], height, on_side, axles_m, 0.34)
    return colours


def _paint_truck(
    points: Floats32, relative: Floats32, height: Floats32, face_axes: Ints, size: Floats, track_id: int
) -> Floats32:
    x, y, z = relative.T
    length = float(size[0])
    cab = _pick(_CAR_PAINTS, track_id, 1)
    colours = _plain(len(points), (226, 226, 222))
    on_end, on_side = face_axes == 0, face_axes == 1
    is_cab = points[:, 0] > 0.5 * length - 2.0
    colours[~is_cab & on_side & (np.abs(z - 0.1) < 0.14)] = _pick(_CAR_PAINTS, track_id, 2)
    colours[is_cab] = cab
    colours[on_side & (np.abs(points[:, 0] - 0.5 * length + 2.0) < 0.08)] = _RUBBER
    colours[on_side & is_cab & (np.abs(z - 0.15) < 0.22) & (points[:, 0] > 0.5 * length - 1.3)] = _GLASS
    is_front, is_back = on_end & (x > 0.0), on_end & (x < 0.0)
    colours[is_front & (np.abs(z - 0.1) < 0.27) & (np.abs(y) < 0.88)] = _GLASS
    colours[is_front & (np.abs(z + 0.45) < 0.12) & (np.abs(y) < 0.5)] = _TRIM
    colours[is_front & (np.abs(z + 0.62) < 0.08) & (np.abs(y) > 0.62)] = (255, 250, 222)
    colours[is_back & (np.abs(y) < 0.02)] = (120, 120, 120)
    colours[(face_axes != 2) & (height < 0.75)] = _TRIM
    colours[is_back & (np.abs(height - 0.85) < 0.1) & (np.abs(y) > 0.7)] = (214, 26, 30)
    axles_m = [0.5 * length - 1.2, -0.5 * length + 1.3, -0.5 * length + 2.4]
    _paint_wheels(colours, points[:, 0], height, on_side, axles_m, 0.48)
    return colours


def _paint_pedestrian(
    points: Floats32, relative: Floats32, height: Floats32, face_axes: Ints, size: Floats, track_id: int
) -> Floats32:
    across = np.where(face_axes == 0, relative[:, 1], relative[:, 0])
    z = relative[:, 2]
    colours = _plain(len(points), _pick(_CLOTHES, track_id, 0))
    on_upright = face_axes != 2
    colours[on_upright & (z < -0.08)] = _pick(_TROUSERS, track_id, 1)
    colours[on_upright & (z < -0.08) & (np.abs(across) < 0.08)] *= np.float32(0.6)  # between the legs
    colours[on_upright & (z < -0.9)] = _RUBBER
    colours[on_upright & (np.abs(across) > 0.72) & (z > -0.1) & (z < 0.6)] *= np.float32(0.8)  # arms
    colours[z > 0.68] = _pick(_SKINS, track_id, 2)
    hair = _pick(((50, 36, 28), (22, 20, 20), (150, 112, 64), (120, 120, 122)), track_id, 3)
    is_back_of_head = (z > 0.68) & ((relative[:, 0] < -0.3) | (face_axes == 2))
    colours[is_back_of_head | (z > 0.9)] = hair
    return colours


def _paint_cyclist(
    points: Floats32, relative: Floats32, height: Floats32, face_axes: Ints, size: Floats, track_id: int
) -> Floats32:
    x, z = relative[:, 0], relative[:, 2]
    on_side = face_axes == 1
    colours = _plain(len(points), _pick(_CLOTHES, track_id, 4))
    colours[(z < 0.2)] = _pick(_TROUSERS, track_id, 1)
    colours[on_side & (height < 0.68)] = (118, 120, 124)
    for axle_m in (0.5 * float(size[0]) - 0.34, -0.5 * float(size[0]) + 0.34):
        distance = np.hypot(points[:, 0] - np.float32(axle_m), height - np.float32(0.34))
        colours[on_side & (distance < 0.34)] = (150, 152, 156)
        colours[on_side & (np.abs(distance - 0.31) < 0.05)] = _RUBBER
    colours[on_side & (np.abs(height - 0.6 - 0.12 * x) < 0.05) & (np.abs(x) < 0.6)] = _pick(
        _CAR_PAINTS, track_id, 5
    )
    colours[~on_side & (face_axes == 0) & (height < 0.68) & (np.abs(relative[:, 1]) < 0.15)] = _RUBBER
    colours[z > 0.72] = _pick(_SKINS, track_id, 2)
    colours[z > 0.86] = _pick(_CAR_PAINTS, track_id, 6)  # helmet
    return colours


_Painter = Callable[[Floats32, Floats32, Floats32, Ints, Floats, int], Floats32]

_PAINTERS: tuple[_Painter, ...] = (_paint_car, _paint_truck, _paint_pedestrian, _paint_cyclist)
"""By category id, see `driving_scenes.traffic.CATEGORY_NAMES`."""
