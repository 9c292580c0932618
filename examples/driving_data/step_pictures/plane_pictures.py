"""Pictures of steps that move the content of images, with all that is given in their pixels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from accvlab.dali_pipeline_framework import (
    AffineTransformer,
    HorizontalFlipper,
    ImageResizeCropFlipper,
    ImageResizer,
    ImageToTileSizePadder,
    PaddingToUniform,
    PipelineStepBase,
)
from step_pictures.drawing import Tile, side_by_side, with_boxes, with_mask, with_wireframes
from step_pictures.pipelines import decoded, draws_of, processed
from step_pictures.scene import IMAGE_HW, Scene, Tree

__all__ = ["affine", "flip", "padding_to_uniform", "resize", "resize_crop_flip", "tile_padding"]

_PLACES = {"projection_names": "image_from_ego", "box_names": "boxes"}
_FILL = 90
_MAX_DEPTH_M = 40.0


def _near_objects(scene: Scene) -> Tree:
    sample = scene.camera(min_visibility=0.3)
    is_near = sample["objects"]["depths"] < _MAX_DEPTH_M
    sample["objects"] = {name: values[is_near] for name, values in sample["objects"].items()}
    return sample


def _with_all(tree: Tree) -> NDArray[np.uint8]:
    """2D boxes as they come out, and 3D boxes through the projection that comes out."""
    image = with_boxes(tree["image"], tree["objects"]["boxes"], width_px=1)
    return with_wireframes(image, tree["objects"], tree["image_from_ego"])


def _compared(scene: Scene, steps: Sequence[tuple[str, PipelineStepBase]], seed: int = 0) -> Image.Image:
    sample = _near_objects(scene)
    tiles = [Tile(_with_all(decoded(sample)), "before")]
    for label, step in steps:
        [tree] = draws_of(sample, step, 1, seed)
        tiles.append(Tile(_with_all(tree), label))
    return side_by_side(tiles)


def affine(scene: Scene) -> Image.Image:
    """Each kind of transformation alone, and a chain of some."""
    kinds = AffineTransformer
    chain = [kinds.UniformScaling(1.0, 1.4), kinds.Rotation(1.0, -8.0), kinds.Translation(1.0, [-60, 20])]
    cases: list[tuple[str, list[Any]]] = [
        ("after: Rotation(1.0, 10)", [kinds.Rotation(1.0, 10.0)]),
        ("after: UniformScaling(1.0, 1.5)", [kinds.UniformScaling(1.0, 1.5)]),
        ("after: NonUniformScaling(1.0, [-1, 1])", [kinds.NonUniformScaling(1.0, [-1, 1])]),
        ("after: Shearing(1.0, [15, 0])", [kinds.Shearing(1.0, [15.0, 0.0])]),
        ("after: scaling, rotation, translation", chain),
    ]
    return _compared(
        scene,
        [
            (
                label,
                kinds(
                    IMAGE_HW,
                    kinds.ResizingMode.STRETCH,
                    image_field_names="image",
                    transformation_steps=steps,
                    fill_value=_FILL,
                    projection_matrix_field_names=_PLACES["projection_names"],
                    box_names=_PLACES["box_names"],
                ),
            )
            for label, steps in cases
        ],
    )


def resize(scene: Scene) -> Image.Image:
    """The three modes."""
    return _compared(
        scene,
        [
            (
                f'after: "{mode}"',
                ImageResizer("image", output_hw=[240, 240], mode=mode, fill_value=_FILL, **_PLACES),
            )
            for mode in ("stretch", "pad", "crop")
        ],
    )


def resize_crop_flip(scene: Scene) -> Image.Image:
    """Three draws."""
    step = ImageResizeCropFlipper(
        "image",
        output_hw=[180, 400],
        scale_range=(0.85, 1.2),
        bottom_crop_range=(0.0, 0.2),
        fill_value=_FILL,
        **_PLACES,
    )
    sample = _near_objects(scene)
    drawn = draws_of(sample, step, 3, seed=0)
    tiles = [Tile(_with_all(tree), f"after, draw {number}") for number, tree in enumerate(drawn, start=1)]
    return side_by_side([Tile(_with_all(decoded(sample)), "before"), *tiles])


def flip(scene: Scene) -> Image.Image:
    """Image, boxes, matrices and mask."""
    sample = _near_objects(scene)
    step = HorizontalFlipper("image", prob=1.0, mask_names="mask", **_PLACES)
    before, [after] = decoded(sample), draws_of(sample, step, 1)
    tiles = []
    for label, tree in (("before", before), ("after", after)):
        tiles += [
            Tile(_with_all(tree), f"{label}: image, boxes, projection"),
            Tile(with_mask(tree["image"], tree["mask"]), f"{label}: mask"),
        ]
    return side_by_side([tiles[0], tiles[2], tiles[1], tiles[3]])


def tile_padding(scene: Scene) -> Image.Image:
    """Tiles of 128 pixels."""
    tile_px = 128
    step = ImageToTileSizePadder("image", tile_px, fill_value=_FILL)
    sample = _near_objects(scene)
    before, [after] = decoded(sample), draws_of(sample, step, 1)
    drawn = [_with_grid(with_boxes(tree["image"], tree["objects"]["boxes"]), tile_px) for tree in (before, after)]
    return side_by_side(
        [
            Tile(drawn[0], f"before: {_size(before)}"),
            Tile(drawn[1], f"after: {_size(after)}, tiles of {tile_px} x {tile_px}"),
        ]
    )


def padding_to_uniform(scene: Scene) -> Image.Image:
    """Two samples of a batch."""
    sample = scene.camera()
    large, small = (
        {"image": decoded(sample)["image"][:height, :width]} for height, width in ((200, 480), (270, 300))
    )
    after = processed([large, small], [PaddingToUniform("image", _FILL)])
    return side_by_side(
        [
            *(
                Tile(tree["image"], f"before, sample {place}: {_size(tree)}")
                for place, tree in enumerate((large, small))
            ),
            *(Tile(tree["image"], f"after, sample {place}: {_size(tree)}") for place, tree in enumerate(after)),
        ]
    )


def _size(tree: Tree) -> str:
    height, width = tree["image"].shape[:2]
    return f"{height} x {width}"


def _with_grid(image: NDArray[np.uint8], tile_px: int) -> NDArray[np.uint8]:
    canvas = Image.fromarray(image)
    pen = ImageDraw.Draw(canvas)
    for x in range(0, canvas.width + 1, tile_px):
        pen.line((x, 0, x, canvas.height), fill=(255, 255, 255))
    for y in range(0, canvas.height + 1, tile_px):
        pen.line((0, y, canvas.width, y), fill=(255, 255, 255))
    return np.asarray(canvas)
