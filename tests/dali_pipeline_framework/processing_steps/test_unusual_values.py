"""Images without pixels, degenerate boxes, and numbers that are not finite: what published steps make of them.

Values of boxes and categories for heatmaps and visibility are in the tests of these steps, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from step_runs import run_step
from support.arrays import gradient

from accvlab.dali_pipeline_framework.processing_steps import (
    AffineTransformer,
    BEVBBoxesTransformer3D,
    ImageToTileSizePadder,
    PhotoMetricDistorter,
)

A = AffineTransformer
NAN, INF = float("nan"), float("inf")
STRETCH = A.ResizingMode.STRETCH
# Finite in rows 0 and 4 only.
POINTS = np.array([[1, 2], [NAN, 1], [INF, 1], [-INF, NAN], [3, 0.5]], np.float32)
BOXES = np.array(
    [
        [1, 0, 4, 2],  # the two corners in each order
        [4, 2, 1, 0],
        [1, 2, 4, 0],
        [2, 1, 2, 1],  # a point
        [2, 0, 2, 2],  # a line
        [NAN, 0, 1, 1],
        [INF, 0, 1, 1],
        [-INF, -INF, INF, INF],
    ],
    np.float32,
)
FINITE = slice(0, 5)


EMPTY = [np.zeros((0, 5, 3), np.uint8), np.zeros((4, 0, 3), np.uint8)]
DISTORTION: Any = ("image", [-9, 9], [-5, 5], [0.5, 1.5], [0.5, 1.5])


class TestImagesWithoutPixels:
    @pytest.mark.parametrize("images", [EMPTY[:1], EMPTY[1:], [*EMPTY, gradient(4, 5)]])
    @pytest.mark.parametrize(
        "step",
        [PhotoMetricDistorter(*DISTORTION, 1, 1, 1, 1, 1), PhotoMetricDistorter(*DISTORTION, 1, 0, 1, 0, 0)],
    )
    def test_keep_their_shape(self, step: Any, images: list[np.ndarray]) -> None:
        for dtype in (np.uint8, np.float32):
            found = run_step(step, [{"image": image.astype(dtype)} for image in images])
            assert [one["image"].shape for one in found] == [image.shape for image in images]

    def test_are_padded_to_no_tile(self) -> None:
        found = run_step(ImageToTileSizePadder("image", [4, 3]), [{"image": image} for image in EMPTY])
        assert [one["image"].shape for one in found] == [(0, 8, 3), (6, 0, 3)]


class TestPointsThatAreNotFinite:
    def test_are_no_reason_to_change_others(self) -> None:
        steps = [A.Rotation(1, 30), A.UniformScaling(1, 0.5)]
        names = {"image_hw_field_names": "size", "point_field_names": "points"}
        step = A([8, 10], STRETCH, **names, transformation_steps=steps)
        size = np.array([4, 5], np.int32)
        found, alone = run_step(step, [{"size": size, "points": points} for points in (POINTS, POINTS[[0, 4]])])
        np.testing.assert_array_equal(found["points"][[0, 4]], alone["points"])
        assert not np.isfinite(found["points"][1:4]).any()

    def test_do_not_change_other_boxes_of_a_scene(self) -> None:
        step = BEVBBoxesTransformer3D(
            "points", "velocities", "sizes", "angles", "projection", None, None, [0.5, 0.5], 2, [2, 2], None
        )
        rows = np.array([[1, 2, 3], [NAN, 0, 0], [0, INF, 0], [4, 5, 6]], np.float32)
        fields = ("points", "velocities", "sizes")
        sample = {
            **dict.fromkeys(fields, rows),
            "angles": np.array([1, NAN, INF, -100], np.float32),
            "projection": np.full((3, 4), NAN, np.float32),
        }
        finite = {name: value[[0, 3]] for name, value in sample.items() if name != "projection"}
        finite["projection"] = np.eye(3, 4, dtype=np.float32)
        with_others, alone = run_step(step, [sample, finite])
        for name in (*fields, "angles"):
            np.testing.assert_array_equal(with_others[name][[0, 3]], alone[name])
            changed = with_others[name][1:3].reshape(2, -1)
            assert not np.isfinite(changed).all(axis=1).any()
        assert (np.abs(alone["angles"]) <= np.float32(np.pi)).all()
        assert np.isnan(with_others["projection"]).all()


class TestBoxes:
    def test_corners_keep_their_order_and_degenerate_boxes_stay_so(self) -> None:
        steps = [A.NonUniformScaling(1, [-1, 1]), A.Translation(1, [1, 0])]
        names = {"image_hw_field_names": "size", "box_names": "boxes"}
        step = A([4, 6], STRETCH, **names, transformation_steps=steps)
        [found] = run_step(step, [{"size": np.array([4, 6], np.int32), "boxes": BOXES}])
        expected = [[3, 0, 6, 2], [6, 2, 3, 0], [3, 2, 6, 0], [5, 1, 5, 1], [5, 0, 5, 2]]
        np.testing.assert_array_equal(found["boxes"][FINITE], expected)
        assert not np.isfinite(found["boxes"][5:]).all(axis=1).any()

    @pytest.mark.parametrize("dtype", [np.int32, np.uint8])
    def test_whole_numbers_stop_at_the_ends_of_their_type(self, dtype: Any) -> None:
        info = np.iinfo(dtype)
        names = {"image_hw_field_names": "size", "point_field_names": "points"}
        step = A([8, 10], STRETCH, **names, transformation_steps=[A.UniformScaling(1, 2)])
        points = np.array([[info.max, info.min], [3, 2]], dtype)
        [found] = run_step(step, [{"size": np.array([4, 5], np.int32), "points": points}])
        assert found["points"].dtype == dtype
        assert found["points"].tolist() == [[info.max, info.min], [7, 4]]
