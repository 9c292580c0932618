"""A pipeline of existing code, for detection in 3D with several cameras: its steps, their order and settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from marker_scenes import make_scene, projected
from support.arrays import DT, ArrayProvider, encoded_image, gradient
from support.pipelines import make_iterator

from accvlab.dali_pipeline_framework.inputs import SamplerInputIterable, SequenceSampler
from accvlab.dali_pipeline_framework.processing_steps import AffineTransformer as A
from accvlab.dali_pipeline_framework.processing_steps import (
    AnnotationElementConditionEval,
    AxesLayoutSetter,
    BEVBBoxesTransformer3D,
    ConditionalElementRemover,
    CoordinateCropper,
    DataGroupArrayWithNameElementsAppliedStep,
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    ImageToTileSizePadder,
    PaddingToUniform,
    PhotoMetricDistorter,
    PointsInRangeCheck,
    UnneededFieldRemover,
    VisibleBboxSelector,
)

INPUT_HW, OUTPUT_HW, TILED_HW = (90, 160), (56, 150), (64, 160)


def scene(seed: int) -> dict[str, Any]:
    """One sample as a tree of (type, value): markers in space that two cameras see, as boxes."""
    random, made = np.random.default_rng(seed), make_scene(seed, [INPUT_HW] * 2)
    count = [0, 1, len(made.points)][seed % 3]
    centers, categories = made.points[:count], random.integers(-1, 3, count)
    cameras = {}
    for number, camera in enumerate(made.cameras):
        matrix, seen = camera.intrinsics @ camera.camera_from_ego[:3], camera.seen[camera.seen < count]
        pixels, depths = projected(matrix, centers[seen])
        half = (60 / depths)[:, None]
        cameras[number] = {
            "image": (DT.UINT8, encoded_image(gradient(*INPUT_HW, number))),
            "lidar2img": (DT.FLOAT, matrix),
            "extrinsics": (DT.FLOAT, np.eye(4)),
            "gt_boxes_2d": {
                "bboxes": (DT.FLOAT, np.c_[pixels - half, pixels + half]),
                "centers": (DT.FLOAT, pixels),
                "depths": (DT.FLOAT, depths),
                "categories": (DT.INT64, categories[seen]),
                "number": (DT.INT32, seen),
            },
        }
    points = random.integers(0, 2, (2, count))
    return {
        "cams": cameras,
        "pose": {"ego_to_world": (DT.FLOAT, np.eye(4)), "world_to_ego": (DT.FLOAT, np.eye(4))},
        "gt_boxes": {
            "categories": (DT.INT64, categories),
            "translations": (DT.FLOAT, centers),
            "sizes": (DT.FLOAT, random.uniform(1, 5, (count, 3))),
            "velocities": (DT.FLOAT, random.uniform(-9, 9, (count, 3))),
            "orientations": (DT.FLOAT, random.uniform(-4, 4, count)),
            "num_lidar_points": (DT.INT32, points[0]),
            "num_radar_points": (DT.INT32, points[1]),
            "number": (DT.INT32, np.arange(count)),
        },
    }


def joined(samples: list[Any]) -> Any:
    """A tree of (type, one value per sample)."""
    if isinstance(samples[0], tuple):
        return samples[0][0], [value for _, value in samples]
    return {name: joined([sample[name] for sample in samples]) for name in samples[0]}


def steps_in_3d() -> list[Any]:
    transformer = A(
        OUTPUT_HW,
        A.ResizingMode.CROP,
        A.ResizingAnchor.BOTTOM_OR_RIGHT,
        image_field_names="image",
        projection_matrix_field_names=["lidar2img"],
        point_field_names=["centers", "bboxes"],
        transformation_steps=[
            A.NonUniformScaling(0.5, [-1.0, 1.0]),
            A.UniformScaling(1.0, 0.86, 1.25),
            A.ShiftToAlignWithOriginalImageBorder(1.0, A.ShiftToAlignWithOriginalImageBorder.Border.BOTTOM),
        ],
        transform_image_on_gpu=True,
    )
    selector = VisibleBboxSelector(
        bboxes_field_name="bboxes",
        resulting_mask_field_path=("gt_boxes_2d", "is_visible"),
        image_field_name="image",
        depths_field_name="depths",
        minimum_bbox_size=2,
    )
    infinity = float("inf")
    return [
        ImageDecoder("image", use_device_mixed=True, as_bgr=True),
        PhotoMetricDistorter("image", [-32, 32], [-18, 18], [0.5, 1.5], [0.5, 1.5], is_bgr=True),
        transformer,
        ImageToTileSizePadder("image", 32),
        ImageMeanStdDevNormalizer("image", mean=[103.53, 116.28, 123.675], std_dev=[57.375, 57.12, 58.395]),
        AxesLayoutSetter("image", "HWC"),
        DataGroupArrayWithNameElementsAppliedStep(selector, "cams"),
        PointsInRangeCheck("translations", "is_in_range", [-51.2, -51.2, -infinity], [51.2, 51.2, infinity]),
        AnnotationElementConditionEval(
            "gt_boxes",
            "is_active = (num_lidar_points >= 1 or num_radar_points >= 1) and categories >= 0 and is_in_range",
            True,
        ),
        AnnotationElementConditionEval("gt_boxes_2d", "is_active = categories >= 0 and is_visible", False),
        ConditionalElementRemover(
            *("gt_boxes", "is_active", ["translations", "sizes", "velocities", "orientations", "number"]),
            *([0] * 5, [2, 2, 2, 1, 1], True),
        ),
        ConditionalElementRemover(
            "gt_boxes_2d", "is_active", ["bboxes", "centers", "number"], [0] * 3, [2, 2, 1], True
        ),
        UnneededFieldRemover(["is_visible", "depths"]),
        CoordinateCropper("bboxes", [0.0] * 4, [TILED_HW[1], TILED_HW[0]] * 2),
        CoordinateCropper("centers", [0.0, 0.0], [TILED_HW[1], TILED_HW[0]]),
        BEVBBoxesTransformer3D(
            *("translations", "velocities", "sizes", "orientations"),
            *(["lidar2img", "extrinsics"], "ego_to_world", "world_to_ego"),
            *([-0.3925, 0.3925], 2, [0.95, 1.05], [0.0, 0.0, 0.0]),
        ),
        PaddingToUniform(["gt_boxes", "gt_boxes_2d"], -1),
    ]


@pytest.mark.filterwarnings("ignore:These fields are not used:Warning")  # they are removed
def test_detection_in_3d() -> None:
    provider = ArrayProvider(joined([scene(seed) for seed in range(9)]))
    source = SamplerInputIterable(provider, SequenceSampler(3, [3, 3, 3], 21, randomize=False))
    with make_iterator(source, steps_in_3d(), py_num_workers=0, batch_size=3) as iterator:
        epoch = iter(iterator)
        batches = [next(epoch) for _ in range(3)]
    num_compared = 0
    for batch in batches:
        for camera in batch["cams"].values():
            assert camera["image"].shape == (3, *TILED_HW, 3)
            for sample in range(3):
                num_compared += compare_projections(batch["gt_boxes"], camera, sample)
    assert num_compared > 12


def compare_projections(boxes: dict[str, np.ndarray], camera: dict[str, Any], sample: int) -> int:
    """What stands at a pixel before still does so after flips, resizing and motion of the scene."""
    row_of = {number: row for row, number in enumerate(boxes["number"][sample].tolist()) if number >= 0}
    seen = zip(camera["gt_boxes_2d"]["number"][sample], camera["gt_boxes_2d"]["centers"][sample], strict=True)
    found = [(row_of[number], pixel) for number, pixel in seen if number in row_of]
    if found:
        rows, pixels = zip(*found, strict=True)
        expected, _ = projected(camera["lidar2img"][sample], boxes["translations"][sample][list(rows)])
        np.testing.assert_allclose(pixels, np.clip(expected, 0, TILED_HW[::-1]), atol=2e-2)  # as they were cropped
    return len(found)
