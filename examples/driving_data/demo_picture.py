"""A picture of a batch: all cameras of its samples, with their boxes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from driving_scenes import BOX_FACES, CATEGORY_COLOURS, box_corners, draw_boxes, project_points
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

__all__ = ["save_batch_picture", "visible_shares"]

GAP_PX = 6
HEADING_PX = 30
MAX_SAMPLES = 6
NUM_COLUMNS = 3

_BACKGROUND = (22, 24, 29)
_LABEL_BACKGROUND = (22, 24, 29, 170)
_BRIGHT, _DIM = (236, 238, 242), (150, 156, 168)
# Where less of an object is seen, a box shows what hides it rather than the object.
_HIDDEN_LEVEL = 1  # up to 40 % visible in all images together
_MIN_VISIBILITY = 0.5  # in one image, among the other objects

# Of classes beyond those of driving_scenes.
_COLOURS = (
    *CATEGORY_COLOURS,
    *((233, 70, 255), (255, 255, 120), (120, 220, 255), (180, 120, 60), (200, 200, 200), (120, 255, 60)),
)
# As one would see it from above, looking forward; other rigs are shown in their own order.
_SURROUND_ORDER = ("FRONT_LEFT", "FRONT", "FRONT_RIGHT", "BACK_LEFT", "BACK", "BACK_RIGHT")


@attrs.frozen
class _Tile:
    image: NDArray[np.uint8]
    label: str


@attrs.frozen
class _Block:
    """Tiles below a heading; `legend` holds names with their colours."""

    heading: str
    detail: str
    legend: Sequence[tuple[str, tuple[int, int, int]]]
    tiles: Sequence[_Tile]


def save_batch_picture(path: Path, batch: Mapping[Any, Any], category_names: Sequence[str]) -> None:
    """Write a picture of the first samples of a batch.

    With several cameras each sample has a block of its own: a grid of its cameras, with the projected boxes where
    there are any.
    With one camera there is one grid with a tile per sample.

    Args:
        path: Where to write the PNG file.
        batch: As delivered by the loader: (B, 3, H, W) images in [0, 1].
        category_names: By category number; unused without boxes.
    """
    sequences = _sequences(batch)
    samples = range(min(MAX_SAMPLES, len(sequences)))
    if len(batch["cameras"]) > 1:
        blocks = [_block_of_sample(batch, sample, category_names) for sample in samples]
    else:
        tiles = [
            _Tile(_image(batch["cameras"][0], sample), f"{sequence}   {_frame(batch, sample)}")
            for sample, sequence in zip(samples, sequences, strict=False)
        ]
        blocks = [_Block("A batch", f"{len(tiles)} of {len(sequences)} samples", (), tiles)]
    _drawn(blocks).save(path)


def _block_of_sample(batch: Mapping[Any, Any], sample: int, category_names: Sequence[str]) -> _Block:
    cameras = batch["cameras"]
    names = {index: camera["name"][sample].removeprefix("CAM_") for index, camera in cameras.items()}
    position = {name: place for place, name in enumerate(_SURROUND_ORDER)}
    order = sorted(cameras, key=lambda index: position.get(names[index], len(position)))
    tiles = [_Tile(_image_with_boxes(batch, sample, index), names[index].replace("_", " ")) for index in order]
    legend = [(name, _colour(number)) for number, name in enumerate(category_names)]
    if len(legend) > len(CATEGORY_COLOURS):  # only what there is
        there = set(batch["boxes"]["categories"][sample].tolist()) if "boxes" in batch else ()
        legend = [entry for number, entry in enumerate(legend) if number in there]
    detail = _frame(batch, sample)
    if "boxes" in batch:
        detail += f"   {len(batch['boxes']['categories'][sample])} objects"
    return _Block(_sequences(batch)[sample], detail, legend, tiles)


def _sequences(batch: Mapping[Any, Any]) -> Sequence[str]:
    """The sequence of each sample; driving data sets call it scene."""
    return batch["sequence"] if "sequence" in batch else batch["scene"]


def _colour(category: int) -> tuple[int, int, int]:
    return _COLOURS[category % len(_COLOURS)]


def _frame(batch: Mapping[Any, Any], sample: int) -> str:
    return f"frame {int(batch['frame'][sample])}"


def _image(camera: Mapping[str, Any], sample: int) -> NDArray[np.uint8]:
    """(H, W, 3)."""
    picture = camera["image"][sample].permute(1, 2, 0).cpu().numpy()
    return np.ascontiguousarray(np.rint(picture * 255.0).clip(0, 255).astype(np.uint8))


def _image_with_boxes(batch: Mapping[Any, Any], sample: int, camera_index: int) -> NDArray[np.uint8]:
    if "boxes" not in batch:
        return _image(batch["cameras"][camera_index], sample)
    boxes, camera = batch["boxes"], batch["cameras"][camera_index]
    values = {name: of_samples[sample].cpu().numpy() for name, of_samples in boxes.items()}
    camera_from_boxes = camera["camera_from_reference"][sample].cpu().numpy()
    image_from_boxes = camera["intrinsics"][sample].cpu().numpy() @ camera_from_boxes[:3]
    image = _image(camera, sample)
    corners = box_corners(values["centers"], values["sizes"], values["yaws"])
    levels = values["visibilities"]  # 0 where that is not known
    is_shown = (levels == 0) | (levels > _HIDDEN_LEVEL)
    is_shown &= visible_shares(corners, image_from_boxes, (image.shape[1], image.shape[0])) >= _MIN_VISIBILITY
    colours = [_colour(category) for category in values["categories"][is_shown]]
    return draw_boxes(image, corners[is_shown], image_from_boxes, colours=colours)


def visible_shares(
    corners: NDArray[np.float64], image_from_boxes: NDArray[np.float64], size_wh: tuple[int, int]
) -> NDArray[np.float64]:
    """Share of each solid box (N, 8, 3) that no nearer one hides in an image; 1 if partly behind the camera."""
    pixels, depths = project_points(corners, image_from_boxes)
    pictures = {}
    for row in np.argsort(-depths.mean(axis=1)):
        if np.isfinite(pixels[row]).all():
            pictures[int(row)] = picture = Image.new("1", size_wh)
            for face in BOX_FACES:
                ImageDraw.Draw(picture).polygon([tuple(pixels[row, corner] - 0.5) for corner in face], fill=1)
    nearest = np.full((size_wh[1], size_wh[0]), -1)
    for row, picture in pictures.items():  # from the farthest
        nearest[np.asarray(picture)] = row
    shares = np.ones(len(corners))
    for row, picture in pictures.items():
        shares[row] = (nearest == row).sum() / max(1, np.asarray(picture).sum())
    return shares


def _drawn(blocks: Sequence[_Block]) -> Image.Image:
    tile_height, tile_width = blocks[0].tiles[0].image.shape[:2]
    num_columns = min(NUM_COLUMNS, len(blocks[0].tiles))
    num_rows = -(-len(blocks[0].tiles) // num_columns)
    block_height = HEADING_PX + num_rows * (tile_height + GAP_PX)
    size = (GAP_PX + num_columns * (tile_width + GAP_PX), len(blocks) * block_height + GAP_PX)
    canvas = Image.new("RGB", size, _BACKGROUND)
    pen = ImageDraw.Draw(canvas, "RGBA")
    for number, block in enumerate(blocks):
        top = number * block_height
        _draw_heading(pen, block, top, size[0])
        for place, tile in enumerate(block.tiles):
            row, column = divmod(place, num_columns)
            corner = (GAP_PX + column * (tile_width + GAP_PX), top + HEADING_PX + row * (tile_height + GAP_PX))
            canvas.paste(Image.fromarray(tile.image), corner)
            _draw_label(pen, tile.label, corner, tile_width)
    return canvas


def _draw_heading(pen: ImageDraw.ImageDraw, block: _Block, top: int, width: int) -> None:
    middle = top + HEADING_PX // 2 + 1
    bold, plain = ImageFont.load_default(size=15), ImageFont.load_default(size=13)
    pen.text((GAP_PX + 2, middle), block.heading, font=bold, fill=_BRIGHT, anchor="lm")
    left = GAP_PX + 18 + pen.textlength(block.heading, font=bold)
    pen.text((left, middle), block.detail, font=plain, fill=_DIM, anchor="lm")
    left += pen.textlength(block.detail, font=plain)
    right = width - GAP_PX - 2
    if right - sum(pen.textlength(name, font=plain) + 34 for name, _ in block.legend) < left:
        return  # small pictures have no room for a legend
    for name, colour in reversed(block.legend):
        pen.text((right, middle), name, font=plain, fill=_DIM, anchor="rm")
        right -= pen.textlength(name, font=plain) + 18
        pen.rectangle((right, middle - 5, right + 10, middle + 5), fill=colour)
        right -= 16


def _draw_label(pen: ImageDraw.ImageDraw, label: str, corner: tuple[int, int], max_width: int) -> None:
    font = ImageFont.load_default(size=12)
    left, top = corner
    if pen.textlength(label, font=font) + 12 > max_width:
        while label and pen.textlength("..." + label, font=font) + 12 > max_width:
            label = label[1:]  # the end, with the number of the frame, tells more
        label = "..." + label
    right = left + pen.textlength(label, font=font) + 12
    pen.rectangle((left, top, min(right, left + max_width - 1), top + 19), fill=_LABEL_BACKGROUND)
    pen.text((left + 6, top + 10), label, font=font, fill=_BRIGHT, anchor="lm")
