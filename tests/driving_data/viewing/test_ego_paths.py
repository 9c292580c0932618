"""History and future of the vehicle in pictures, also through the lenses of fisheye cameras."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.driving_data.viewing import FThetaLens, scene_view, show

LENS = {
    "image_wh": np.array([100.0, 80]),
    "center": np.array([50.0, 40]),
    "backward": np.array([0, 0.02, 0, 0, 0]),
    "forward": np.array([0, 50.0, 0, 0, 0]),
}
# Looks along x of the vehicle, from 1 m above the ground.
CAMERA_FROM_EGO = np.array([[0.0, -1, 0, 0], [0, 0, -1, 1], [1, 0, 0, 0], [0, 0, 0, 1]])
STRAIGHT = np.array([[1.0, 0, 0], [2, 0, 0], [4, 0, 0]])


def sample(**groups: Any) -> dict[str, Any]:
    """A batch of one sample with a camera that has a lens."""
    camera = {"image": np.zeros((80, 100, 3), np.uint8), "intrinsics": np.eye(3), "lens": LENS}
    return _in_batch({"cameras": {0: {**camera, "camera_from_reference": CAMERA_FROM_EGO}}, **groups})


def _in_batch(group: dict[Any, Any]) -> dict[Any, Any]:
    return {
        name: _in_batch(value) if isinstance(value, dict) else np.asarray(value)[np.newaxis]
        for name, value in group.items()
    }


@given(st.floats(-150, 150), st.floats(-150, 150))
def test_what_a_pixel_shows_is_seen_there(x: float, y: float) -> None:
    lens = FThetaLens(**LENS)
    pixel = np.array([50 + x, 40 + y])
    if np.hypot(x, y) < 50 * np.pi - 1e-6:
        np.testing.assert_allclose(lens.pixels(3 * lens.rays(pixel)), pixel, atol=1e-6)


def test_pixels_are_as_far_from_the_center_as_the_angle_says() -> None:
    lens = FThetaLens(**LENS)
    seen = lens.pixels([[0, 0, 5], [1, 0, 1], [0, -1, 0], [0, 1e-12, -1]])
    np.testing.assert_allclose(seen[:3], [[50, 40], [50 + 50 * np.pi / 4, 40], [50, 40 - 50 * np.pi / 2]])
    bent = FThetaLens(**{**LENS, "forward": np.array([0, 50, 0, -25.0, 0])})
    assert bent.widest_rad == pytest.approx(np.sqrt(2 / 3))
    assert np.isnan(bent.pixels([1.0, 0, 1.1])).tolist() == [False, False]
    assert np.isnan(bent.pixels([1.0, 0, 0.9])).tolist() == [True, True]


def test_a_lens_of_a_resized_image_shows_the_same() -> None:
    lens = FThetaLens(
        **{**LENS, "forward": np.array([0, 50, -3.0, 2, 0]), "backward": np.array([0, 0.02, 1e-5, 0, 0])}
    )
    half = lens.resized([50, 40])
    assert half is not None
    point, pixel = np.array([0.3, -0.2, 1]), np.array([70.0, 20])
    np.testing.assert_allclose(half.pixels(point), lens.pixels(point) / 2)
    np.testing.assert_allclose(half.rays(pixel / 2), lens.rays(pixel))
    assert lens.resized([100, 40]) is None  # it was squeezed


def test_ways_are_in_the_reference_frame() -> None:
    ego_from_reference = np.array([[0.0, -1, 0, 1], [1, 0, 0, 0], [0, 0, 1, 2], [0, 0, 0, 1]])
    groups = {
        "ego": {"ego_from_reference": ego_from_reference},
        "ego_future": {"positions": STRAIGHT[:, :2], "times": [1, 2, 3], "is_known": [True, True, False]},
    }
    view = scene_view(sample(**groups))
    assert view.history is None
    assert view.future is not None
    there = np.c_[view.future.positions, np.ones(2)] @ ego_from_reference.T
    np.testing.assert_allclose(there[:, :3], STRAIGHT[:2], atol=1e-12)
    assert np.asarray(view.future.times).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ({"ego": {"velocity": [3.0, 4.0], "command": 2}}, "5.0 m/s   command 2"),
        ({"ego": {"velocity": [3.0, 4.0, 0.0]}}, "5.0 m/s"),
        ({"ego": {"command": np.frombuffer(b"left", np.uint8)}}, "command left"),
        ({"ego_history": {"positions": STRAIGHT, "commands": [[0, 0, 1], [0, 0, 1], [0, 1, 0]]}}, "command 1"),
        ({"ego_history": {"positions": STRAIGHT, "velocities": [[9, 9], [9, 9], [0, 2]]}}, "2.0 m/s"),
        ({}, ""),
    ],
)
def test_speed_and_command_are_told(groups: dict[str, Any], text: str) -> None:
    view = scene_view(sample(**groups))
    assert view.motion == text
    heading = show(view).figure.texts[0].get_text()
    assert heading.endswith(text)


def test_ways_are_drawn_where_the_lens_shows_them_and_from_above() -> None:
    groups = {
        "ego_history": {"positions": -STRAIGHT[::-1], "times": [-2.0, -1, 0]},
        "ego_future": {"positions": STRAIGHT, "times": [0.5, 1, 2]},
    }
    figure = show(sample(**groups)).figure
    camera, above = figure.axes
    history, future = (line.get_xydata() for line in camera.lines)
    # 45 degrees down at 1 m; nearer to the axis with the distance.
    np.testing.assert_allclose(future[0], [50, 40 + 50 * np.pi / 4])
    np.testing.assert_allclose(future[-1], [50, 40 + 50 * np.arctan(1 / 4)])
    # Behind the camera: farther than a right angle from its axis, and below the image.
    assert (history[:, 1] > 40 + 50 * np.pi / 2).all()
    ways = [line.get_xydata() for line in above.lines if len(line.get_xydata()) == 8 * 3 + 1]
    np.testing.assert_allclose(ways[1][[0, -1]], [[0, 1], [0, 4]], atol=1e-9)
    marked = [collection.get_offsets().tolist() for collection in above.collections[-2:]]
    assert marked == [[[0, -4], [0, -2], [0, -1]], [[0, 2], [0, 4]]]  # whole seconds


def test_boxes_are_bent_by_a_lens() -> None:
    boxes = {"centers": [[5.0, 0, 1]], "sizes": [[2.0, 2, 2]], "yaws": [0.0]}
    camera = show(sample(boxes=boxes)).figure.axes[0]
    lines = camera.collections[0].get_segments()
    assert [len(line) for line in lines] == [33] * 14
    corner = [line for line in lines if np.allclose(line[0], FThetaLens(**LENS).pixels([-1, -1, 6]))]
    assert corner


def test_nothing_but_a_way_is_something_to_show() -> None:
    assert show(_in_batch({"ego_future": {"positions": STRAIGHT}})).pixels().any()
    with pytest.raises(SettingError, match="There is nothing to show"):
        show(_in_batch({"ego_future": {"speed": [1.0]}}))
