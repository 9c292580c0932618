"""What the pictures are put together of."""

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from driving_scenes import CATEGORY_COLOURS, box_corners, draw_boxes
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from step_pictures.scene import IMAGE_HW, Tree

__all__ = [
    "GRAY",
    "GREEN",
    "RED",
    "WHITE",
    "Tile",
    "category_colours",
    "enlarged",
    "enlarged_boxes",
    "from_above",
    "histogram",
    "side_by_side",
    "with_boxes",
    "with_mask",
    "with_wireframes",
]

Colour = tuple[int, int, int]
Picture = NDArray[np.uint8]

GREEN, RED, GRAY, WHITE = (70, 230, 90), (255, 70, 70), (150, 155, 165), (250, 250, 250)

_BACKGROUND, _CELL, _TEXT = (22, 24, 29), (44, 47, 55), (236, 238, 242)
_GAP_PX, _LABEL_PX = 6, 24
_PX_PER_M = 5.0
_DETAIL_TOP_PX, _DETAIL_LEFT_PX = 104, 100  # of the part that is shown enlarged
_ENLARGEMENT = 3
_POINT_PX = 3
_SMOOTHING = 2  # the view from above is drawn larger, and made smaller


@attrs.frozen(eq=False)
class Tile:
    """An image (H, W, 3) or (H, W), uint8, with a line of text above it."""

    image: Picture
    label: str


def side_by_side(tiles: Sequence[Tile], num_columns: int = 2) -> Image.Image:
    """Tiles in rows, all in the same scale: a pixel of a tile is a pixel of the picture."""
    cell_h = max(tile.image.shape[0] for tile in tiles)
    cell_w = max(tile.image.shape[1] for tile in tiles)
    num_rows = -(-len(tiles) // num_columns)
    size = (num_columns * (cell_w + _GAP_PX) + _GAP_PX, num_rows * (cell_h + _LABEL_PX + _GAP_PX) + _GAP_PX)
    canvas = Image.new("RGB", size, _BACKGROUND)
    pen = ImageDraw.Draw(canvas)
    for number, tile in enumerate(tiles):
        row, column = divmod(number, num_columns)
        left = _GAP_PX + column * (cell_w + _GAP_PX)
        top = _GAP_PX + row * (cell_h + _LABEL_PX + _GAP_PX)
        pen.text((left + 2, top + _LABEL_PX // 2), tile.label, font=_font(15), fill=_TEXT, anchor="lm")
        top += _LABEL_PX
        pen.rectangle((left, top, left + cell_w - 1, top + cell_h - 1), fill=_CELL)
        canvas.paste(Image.fromarray(tile.image).convert("RGB"), (left, top))
    return canvas


def category_colours(objects: Tree) -> list[Colour]:
    """A colour per object."""
    return [CATEGORY_COLOURS[category] for category in objects["categories"]]


def with_boxes(
    image: Picture, boxes: NDArray[Any], colours: Colour | Sequence[Colour] = WHITE, width_px: int = 2
) -> Picture:
    """Draw (N, 4) boxes, x1, y1, x2, y2 in pixels from the corner of the image."""
    canvas = Image.fromarray(np.ascontiguousarray(image))
    pen = ImageDraw.Draw(canvas)
    palette = colours if isinstance(colours, list) else [colours] * len(boxes)
    for box, colour in zip(boxes, palette, strict=True):
        low, high = np.minimum(box[:2], box[2:]) - 0.5, np.maximum(box[:2], box[2:]) - 0.5
        pen.rectangle((*low, *high), outline=colour, width=width_px)
    return np.asarray(canvas)


def enlarged(image: Picture) -> Picture:
    """A detail of an image of the scene, as large as the image."""
    height, width = (side // _ENLARGEMENT for side in IMAGE_HW)
    detail = image[_DETAIL_TOP_PX:, _DETAIL_LEFT_PX:][:height, :width]
    return detail.repeat(_ENLARGEMENT, axis=0).repeat(_ENLARGEMENT, axis=1)


def enlarged_boxes(boxes: NDArray[Any]) -> NDArray[Any]:
    """Boxes in the pixels of the enlarged detail."""
    return (boxes - np.tile([_DETAIL_LEFT_PX, _DETAIL_TOP_PX], 2)) * _ENLARGEMENT


def with_wireframes(image: Picture, objects: Tree, image_from_ego: NDArray[Any]) -> Picture:
    """Draw the 3D boxes of objects where a projection matrix puts them."""
    corners = box_corners(objects["centres"], objects["sizes"], objects["yaws"])
    return draw_boxes(image, corners, image_from_ego, colours=category_colours(objects))


def with_mask(image: Picture, mask: Picture, weight: float = 0.6) -> Picture:
    """Tint an image (H, W, 3) where a mask (H, W, 1) is not 0, by its value - 1."""
    tints = np.array(CATEGORY_COLOURS, np.float32)[np.maximum(mask[..., 0].astype(int), 1) - 1]
    share = weight * (mask > 0)
    return np.rint(image * (1.0 - share) + tints * share).astype(np.uint8)


def from_above(
    *,
    objects: Tree | None = None,
    points: NDArray[Any] | None = None,
    colours: NDArray[Any] | None = None,
    limits_m: tuple[float, float, float, float] | None = None,
) -> Picture:
    """The scene from above, x to the right and y upwards, with the ego vehicle in the middle.

    Args:
        objects: 3D boxes, each with a line to its front; drawn over the points.
        points: (P, 3), metres.
        colours: (P, 3), RGB of the points; by height if not given.
        limits_m: x1, y1, x2, y2 of a rectangle.
    """
    height, width = (side * _SMOOTHING for side in IMAGE_HW)
    scale = _PX_PER_M * _SMOOTHING
    middle = np.array([0.5 * width, 0.5 * height])

    def pixels(metres: NDArray[Any]) -> NDArray[Any]:
        return middle + np.asarray(metres)[..., :2] * np.array([scale, -scale])

    picture = np.full((height, width, 3), _BACKGROUND, np.uint8)
    if points is not None:
        places = np.floor(pixels(points)).astype(int)
        inside = ((places >= 0) & (places <= (width - _POINT_PX, height - _POINT_PX))).all(axis=1)
        shades = _height_colours(points[:, 2]) if colours is None else colours
        for place in range(_POINT_PX**2):
            dy, dx = divmod(place, _POINT_PX)
            picture[places[inside, 1] + dy, places[inside, 0] + dx] = shades[inside]
    canvas = Image.fromarray(picture)
    pen = ImageDraw.Draw(canvas)
    for radius_m in (20.0, 40.0):
        reach = radius_m * scale
        pen.ellipse((*(middle - reach), *(middle + reach)), outline=(58, 62, 72), width=2)
    if objects is not None:
        corners = pixels(box_corners(objects["centres"], objects["sizes"], objects["yaws"])[:, :4])
        for box, colour in zip(corners, category_colours(objects), strict=True):
            pen.polygon([tuple(corner) for corner in box], outline=colour, width=3)
            pen.line([tuple(box.mean(axis=0)), tuple(box[:2].mean(axis=0))], fill=colour, width=3)
    if limits_m is not None:
        (left, bottom), (right, top) = pixels(limits_m[:2]), pixels(limits_m[2:])
        pen.rectangle((left, top, right, bottom), outline=(255, 214, 0), width=3)
    ego = pixels(np.array([[3.7, 0.0], [-1.0, 0.95], [-1.0, -0.95]]))
    pen.polygon([tuple(corner) for corner in ego], fill=_TEXT)
    return np.asarray(canvas.resize((width // _SMOOTHING, height // _SMOOTHING), Image.Resampling.BOX))


def histogram(image: NDArray[Any], limits: tuple[float, float]) -> Picture:
    """How often the values of the three channels occur, between two limits which stand below the axis."""
    height, width = IMAGE_HW
    floor = height - 26
    canvas = Image.new("RGB", (width, height), _CELL)
    pen = ImageDraw.Draw(canvas)
    counts = [np.histogram(channel, bins=80, range=limits)[0] for channel in image.reshape(-1, image.shape[-1]).T]
    most = max(int(count.max()) for count in counts)
    for count, colour in zip(counts, (RED, GREEN, (90, 150, 255)), strict=True):
        line = [
            ((number + 0.5) / 80 * width, floor - value / most * (floor - 12))
            for number, value in enumerate(count)
        ]
        pen.line(line, fill=colour, width=2)
    pen.line((0, floor, width, floor), fill=_TEXT)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        value = limits[0] + share * (limits[1] - limits[0])
        anchor = "la" if share == 0 else "ra" if share == 1 else "ma"
        pen.text((share * width, floor + 5), f"{value:.4g}", font=_font(13), fill=_TEXT, anchor=anchor)
    return np.asarray(canvas)


def _height_colours(z_m: NDArray[Any]) -> NDArray[np.uint8]:
    """Gray on the ground, blue to yellow above it."""
    share = np.clip(z_m / 3.0, 0.0, 1.0)[:, None]
    low, high = np.array([70, 140, 255]), np.array([255, 214, 0])
    colours = np.where(z_m[:, None] < 0.1, np.array([95, 100, 112]), low + share * (high - low))
    return colours.astype(np.uint8)


def _font(size: int) -> Any:
    return ImageFont.load_default(size=size)
