# SPDX-License-Identifier: Apache-2.0
"""The data of a detector of objects in images by heatmaps of their centers, as CenterNet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework import (
    BoundingBoxToHeatmapConverter,
    ImageResizeCropFlipper,
    ImageResizer,
    PhotoMetricDistorter,
    PipelineStepBase,
    PointsPadder,
    SampleDataGroup,
    UnneededFieldRemover,
    VisibleBboxSelector,
    checks,
    for_each,
)
from accvlab.dali_pipeline_framework.draws import DrawKey, Draws
from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.extension import image_size, leaf_at
from accvlab.dali_pipeline_framework.sample_data import GroupFormat

from ..datasets.driving.driving_fields import DrivingFieldSettings
from . import recipe_parts as parts
from .image_augmentation import ImageAugmentation
from .recipe import Recipe
from .recipe_parts import DT

_OBJECTS = "objects"
_OF_OBJECTS = ("center", "offset", "height_width", "is_active")


@attrs.frozen(kw_only=True)
class Detection2DSettings(parts.AugmentedSettings):
    """Settings for images and training targets of a detector in images.

    The image of each camera is its own sample: frame b has the samples ``b * C ... b * C + C - 1``. Batches with
    the keys of CenterNet, of B frames, C cameras and at most M objects::

        input              (B * C, 3, H, W) float32
        hm                 (B * C, classes, H / stride, W / stride) float32
        wh                 (B * C, M, 2) float32    width and height of boxes, pixels of the heatmap
        reg                (B * C, M, 2) float32    x, y of centers, less the whole pixel
        ind                (B * C, M) int64         pixel of the center: y * (W / stride) + x
        reg_mask           (B * C, M) uint8         1 where there is an object
        output_from_image  (B * C, 3, 3) float32    from pixels of the file to those delivered
        token, scene       B texts
        place              position of the frames

    In evaluation there are no labels, and images show all of the file; the inverse of ``output_from_image`` leads
    boxes back to its pixels.

    Attributes:
        images: How images are augmented in training. A rotation or a changed ``crop_x_range`` is
            refused.
        output_hw: Height and width in place of the ones of ``images``; multiples of ``stride``.
        stride: Pixels of the image per pixel of the heatmap.
        classes: Names of the classes, in the order of the heatmaps.
        max_objects: M above: rows for the first M 2D boxes of an image, in the order of the data set, also for
            those left out (``reg_mask`` 0). The heatmap has all objects.
        min_box_size_px: Least width and height of a box in the output; objects with smaller boxes are left out.
        leaves_out_hidden: Whether objects that nearer ones hide are left out.
        distorts_colors: Whether colors are distorted in training (`PhotoMetricDistorter`).
        mean: Means of red, green, blue.
        std_dev: Standard deviations of red, green, blue.
        key: Scope in which the draws are constant; ``"rig"``: all cameras of a frame are changed alike.
    """

    model = "2D detection"
    images_key = "input"
    images: ImageAugmentation = attrs.field(factory=ImageAugmentation, validator=parts.IS_AUGMENTATION)
    stride: int = parts.setting(4, checks.whole_number, at_least=1)
    max_objects: int = parts.setting(128, checks.whole_number, at_least=1)
    min_box_size_px: float = parts.setting(4.0, checks.number, at_least=0)
    leaves_out_hidden: bool = parts.setting(True, checks.flag)
    distorts_colors: bool = parts.setting(True, checks.flag)
    key: DrawKey = attrs.field(default="sample", validator=parts.IS_KEY)

    def __attrs_post_init__(self) -> None:
        """Refuse sizes that the heatmap does not divide, and augmentations that there are none of."""
        output_hw = self.augmentation.output_hw
        if any(size % self.stride for size in output_hw):
            raise SettingError(f"`output_hw` must be multiples of `stride` {self.stride}, got {list(output_hw)}.")
        if self.images.rotates or tuple(self.images.crop_x_range) != (0.0, 1.0):
            raise SettingError(f"`images` must have no rotation and no `crop_x_range`, got {self.images}.")

    @property
    def heatmap_hw(self) -> tuple[int, int]:
        """Height and width of the heatmaps."""
        height, width = self.augmentation.output_hw
        return height // self.stride, width // self.stride

    def provider_fields(self, is_training: bool = True) -> DrivingFieldSettings:
        """Settings of a `DrivingProvider` for the fields that the model needs; choose ``cameras`` yourself."""
        if not is_training:
            return {"boxes": False}
        return {"boxes_2d": True, "classes": tuple(self.classes)}


class Detection2DFormatter(parts.FrameFormatter):
    """Turns a frame of a `DrivingProvider` into the inputs of a detector in images: images, and their objects.

    Each camera has ``image``, ``output_from_image`` ``(3, 3)``, an identity that later steps change, and in
    training ``objects`` with ``boxes``, ``depths`` and ``labels``, -1 for objects of no class.
    """

    _settings: Detection2DSettings

    def _fields(self, given: GroupFormat) -> tuple[parts.Fields, parts.Fields]:
        of_camera: dict[str, Any] = {"output_from_image": (DT.FLOAT, 2)}
        if self._is_training:
            objects = SampleDataGroup()
            parts.add_fields(objects, {"boxes": (DT.FLOAT, 2), "depths": (DT.FLOAT, 1), "labels": (DT.INT32, 1)})
            of_camera[_OBJECTS] = objects.format
        return {}, of_camera

    def _values(self, data: SampleDataGroup, cameras: Sequence[SampleDataGroup], draws: Draws) -> parts.Values:
        of_cameras: list[dict[str, Any]] = [{"output_from_image": np.eye(3)} for _ in cameras]
        for camera, values in zip(cameras, of_cameras if self._is_training else (), strict=False):
            image, boxes = camera["image"], camera["boxes_2d"]
            self._settings.augmentation.require_fit(image_size(image) if image.ndim == 1 else image.shape[-3:-1])
            labels = np.append(self._label_of, -1)[boxes["categories"]].astype(np.int32)
            values[_OBJECTS] = {"boxes": boxes["boxes"], "depths": boxes["depths"], "labels": labels}
        return {}, of_cameras


def _chain(request: parts.Request) -> parts.Chain:
    settings, is_training, images_of = request.settings, request.is_training, request.settings.augmentation
    image = leaf_at(request.frames.sample_data_structure, ("cameras", 0, "image"))
    pixels: dict[str, Any] = {
        "output_hw": images_of.output_hw,
        "is_encoded": image.content.is_encoded is not False,
    }
    images: list[PipelineStepBase]
    labels: list[PipelineStepBase] = []
    if is_training:
        images = [
            ImageResizeCropFlipper(
                "image",
                scale_range=images_of.scale_range,
                bottom_crop_range=images_of.bottom_crop_range,
                flip_prob=images_of.flip_prob,
                box_names="boxes",
                projection_names="output_from_image",
                key=settings.key,
                **pixels,
            )
        ]
        if settings.distorts_colors:
            ranges = ([-32, 32], [-18, 18], [0.5, 1.5], [0.5, 1.5])
            images.append(PhotoMetricDistorter("image", *ranges, key=settings.key))
        labels = _label_steps(settings)
    else:
        images = [ImageResizer("image", mode="pad", projection_names="output_from_image", **pixels)]
    of_images, last = (
        [for_each("cameras", step) for step in steps] for steps in (images, [*labels, settings.normalizer()])
    )
    return parts.Chain([Detection2DFormatter(request)], of_images, last)


def _label_steps(settings: Detection2DSettings) -> list[PipelineStepBase]:
    """What makes heatmaps of the objects that are seen."""
    return [
        VisibleBboxSelector(
            "boxes",
            (_OBJECTS, "is_visible"),
            image_hw=settings.augmentation.output_hw,
            check_for_bbox_occlusion=settings.leaves_out_hidden,
            depths_field_name="depths",
            minimum_bbox_size=settings.min_box_size_px,
        ),
        UnneededFieldRemover(["depths"]),
        BoundingBoxToHeatmapConverter(
            _OBJECTS,
            "boxes",
            "heatmap",
            settings.heatmap_hw,
            image_field_name="image",
            categories_in_name="labels",
            num_categories=len(settings.classes),
            is_valid_opt_in_name="is_visible",
            is_active_opt_out_name="is_active",
            center_opt_out_name="center",
            center_offset_opt_out_name="offset",
            height_width_bboxes_heatmap_opt_out_name="height_width",
        ),
        PointsPadder(_OF_OBJECTS, num_points=settings.max_objects),
        UnneededFieldRemover(["boxes", "labels", "is_visible"]),
    ]


def _batch(batch: parts.Batch) -> parts.Batch:
    """Bring a batch into the form that `Detection2DSettings` describes."""
    result = parts.flattened(batch, "input")
    objects = {name: _flat(value) for name, value in result.pop(_OBJECTS, {}).items()}
    result |= {name: _flat(result[name]) for name in ("input", "output_from_image")}
    if objects:
        heatmaps, (x, y) = objects["heatmap"], (objects["center"][..., axis] for axis in (0, 1))
        result |= {
            "hm": heatmaps,
            "wh": objects["height_width"][..., [1, 0]],
            "reg": objects["offset"],
            "ind": parts.with_type(y * heatmaps.shape[-1] + x, "int64"),
            "reg_mask": parts.with_type(objects["is_active"], "uint8"),
        }
    return result


def _flat(values: Any) -> Any:
    """``(B, C, ...)`` as ``(B * C, ...)``."""
    return values.reshape(-1, *values.shape[2:])


DETECTION_2D = Recipe(
    settings=Detection2DSettings, chain=_chain, as_batch=_batch, unchecked=("classes",), can_reduce=False
)
"""The recipe of a detector of objects in images."""
