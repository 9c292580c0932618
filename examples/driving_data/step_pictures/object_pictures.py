"""Pictures of steps that work on boxes and points."""

import math
from typing import Any

import numpy as np
from driving_scenes import CATEGORY_COLOURS
from numpy.typing import NDArray
from PIL import Image

from accvlab.dali_pipeline_framework import (
    AnnotationElementConditionEval,
    BEVBBoxesTransformer3D,
    BoundingBoxToHeatmapConverter,
    BoxAreaFilter,
    ConditionalElementRemover,
    CoordinateCropper,
    PointCloudRangeFilter,
    PointsInRangeCheck,
    VisibleBboxSelector,
)
from step_pictures.drawing import (
    GRAY,
    GREEN,
    RED,
    Tile,
    category_colours,
    enlarged,
    enlarged_boxes,
    from_above,
    side_by_side,
    with_boxes,
    with_wireframes,
)
from step_pictures.pipelines import decoded, draws_of, processed
from step_pictures.scene import IMAGE_HW, Scene, Tree

__all__ = [
    "area_filter",
    "bev",
    "condition",
    "coordinate_cropper",
    "element_remover",
    "heatmap",
    "point_cloud_filter",
    "points_check",
    "visible",
]

_RANGE_M = ([-10.0, -8.0, -1.0], [40.0, 8.0, 3.0])


def condition(scene: Scene) -> Image.Image:
    """What is true for each box."""
    step = AnnotationElementConditionEval("objects", "is_near_vehicle = depths < 30 and categories <= 1", False)
    return _masked(scene.camera(), step, "is_near_vehicle", "after: green is true", is_enlarged=False)


def visible(scene: Scene) -> Image.Image:
    """Hidden boxes."""
    step = VisibleBboxSelector(
        "boxes",
        ("objects", "is_visible"),
        image_field_name="image",
        depths_field_name="depths",
        minimum_bbox_size=8,
    )
    label = "after: green is visible and not too small"
    return _masked(scene.camera(min_visibility=0.0), step, "is_visible", label, is_enlarged=True)


def _masked(sample: Tree, step: Any, name: str, label: str, *, is_enlarged: bool) -> Image.Image:
    before, [after] = decoded(sample), draws_of(sample, step, 1)
    image, boxes, is_true = before["image"], after["objects"]["boxes"], after["objects"][name]
    if is_enlarged:
        image, boxes = enlarged(image), enlarged_boxes(boxes)
    colours = [GREEN if value else RED for value in is_true]
    return side_by_side(
        [Tile(with_boxes(image, boxes), "before: all boxes"), Tile(with_boxes(image, boxes, colours), label)]
    )


def element_remover(scene: Scene) -> Image.Image:
    """Boxes of vehicles only."""
    sample = scene.camera()
    sample["objects"]["is_vehicle"] = sample["objects"]["categories"] <= 1
    names = ["boxes", "categories"]
    step = ConditionalElementRemover("objects", "is_vehicle", names, [0, 0], [2, 1], True)
    return _filtered(sample, step)


def area_filter(scene: Scene) -> Image.Image:
    """Boxes of at least 600 square pixels."""
    return _filtered(
        scene.camera(), BoxAreaFilter("boxes", area_range=(600.0, math.inf), further_names="categories")
    )


def _filtered(sample: Tree, step: Any) -> Image.Image:
    before, [after] = decoded(sample), draws_of(sample, step, 1)
    return side_by_side(
        [
            Tile(
                with_boxes(tree["image"], tree["objects"]["boxes"], category_colours(tree["objects"])),
                f"{label}: {len(tree['objects']['boxes'])} boxes",
            )
            for label, tree in (("before", before), ("after", after))
        ]
    )


def coordinate_cropper(scene: Scene) -> Image.Image:
    """Boxes that reach beyond the image, with a margin around it."""
    margin_px = 40
    height, width = IMAGE_HW
    sample = scene.camera()
    step = CoordinateCropper("boxes", [0, 0, 0, 0], [width, height, width, height])
    before, [after] = decoded(sample), draws_of(sample, step, 1)
    crosses = (before["objects"]["boxes"] != after["objects"]["boxes"]).any(axis=1)
    tiles = []
    for label, tree in (("before: a box reaches beyond the image", before), ("after", after)):
        image = np.pad(tree["image"], ((margin_px, margin_px), (margin_px, margin_px), (0, 0)), constant_values=44)
        colours = [RED if is_cropped else GRAY for is_cropped in crosses]
        drawn = with_boxes(image, tree["objects"]["boxes"] + margin_px, colours)
        tiles.append(Tile(drawn, label))
    return side_by_side(tiles)


def heatmap(scene: Scene) -> Image.Image:
    """A map per category, all of them over the image."""
    sample = scene.camera()
    step = BoundingBoxToHeatmapConverter(
        *("objects", "boxes", "heatmap", [side // 2 for side in IMAGE_HW]),
        image_field_name=None,
        image_hw_field_name="image_hw",
        categories_in_name="categories",
        num_categories=4,
        max_radius=16.0,
    )
    sample["image_hw"] = np.array(IMAGE_HW, np.int32)
    before, [after] = decoded(sample), draws_of(sample, step, 1)
    maps = after["objects"]["heatmap"].repeat(2, axis=1).repeat(2, axis=2)  # (4, H, W)
    colours = category_colours(sample["objects"])
    return side_by_side(
        [
            Tile(with_boxes(before["image"], before["objects"]["boxes"], colours), "before: boxes"),
            Tile(_glowing(before["image"], maps), "after: heatmaps, a color per category"),
        ]
    )


def _glowing(image: NDArray[np.uint8], maps: NDArray[np.float32]) -> NDArray[np.uint8]:
    dark = 0.35 * image.astype(np.float32)
    for values, colour in zip(maps, CATEGORY_COLOURS, strict=True):
        share = values[..., None]
        dark = dark * (1.0 - share) + np.array(colour, np.float32) * share
    return dark.astype(np.uint8)


def bev(scene: Scene) -> Image.Image:
    """From above, and through a camera: the boxes stay where they are in the image."""
    sample = scene.camera(min_visibility=0.3)
    everywhere = scene.objects()
    sample["surround"] = {name: everywhere[name] for name in ("centres", "sizes", "yaws", "categories")}
    angle_rad = math.radians(25.0)
    step = BEVBBoxesTransformer3D(
        *("centres", None, "sizes", "yaws", "image_from_ego", None, None),
        *([angle_rad, angle_rad], 2, [1.15, 1.15], None),
    )
    before, [after] = decoded(sample), draws_of(sample, step, 1)
    tiles = [
        Tile(from_above(objects=tree["surround"]), f"{label}, from above")
        for label, tree in (("before", before), ("after", after))
    ]
    tiles += [
        Tile(
            with_wireframes(tree["image"], tree["objects"], tree["image_from_ego"]),
            f"{label}: boxes through the projection matrix",
        )
        for label, tree in (("before", before), ("after", after))
    ]
    return side_by_side(tiles)


def point_cloud_filter(scene: Scene) -> Image.Image:
    """Points in a box."""
    cloud: Tree = {"points": scene.points()}
    low, high = _RANGE_M
    [after] = processed([cloud], [PointCloudRangeFilter("points", point_range=(low, high))])
    limits = (low[0], low[1], high[0], high[1])
    return side_by_side(
        [
            Tile(
                from_above(points=tree["points"], limits_m=limits),
                f"{label}: {len(tree['points'])} points, from above",
            )
            for label, tree in (("before", cloud), ("after", after))
        ]
    )


def points_check(scene: Scene) -> Image.Image:
    """Which points are in a box."""
    cloud: Tree = {"points": scene.points()}
    low, high = _RANGE_M
    [after] = processed([cloud], [PointsInRangeCheck("points", "is_inside", low, high)])
    colours = np.where(after["is_inside"][:, None], GREEN, (120, 60, 66)).astype(np.uint8)
    limits = (low[0], low[1], high[0], high[1])
    return side_by_side(
        [
            Tile(
                from_above(points=cloud["points"], limits_m=limits),
                f"before: {len(cloud['points'])} points, from above",
            ),
            Tile(from_above(points=cloud["points"], colours=colours, limits_m=limits), "after: green is inside"),
        ]
    )
