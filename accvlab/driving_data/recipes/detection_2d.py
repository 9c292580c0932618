# SPDX-License-Identifier: Apache-2.0
"""The data of a detector of objects in images by heatmaps of their centers, as CenterNet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework import (
    ArrayStep,
    BoundingBoxToHeatmapConverter,
    DataLoader,
    DataProvider,
    ImageResizeCropFlipper,
    ImageResizer,
    PhotoMetricDistorter,
    PipelineStepBase,
    PointsPadder,
    RandomAccessSampler,
    SampleDataGroup,
    SequentialSampler,
    ShuffledSampler,
    UnneededFieldRemover,
    VisibleBboxSelector,
    checks,
    for_each,
)
from accvlab.dali_pipeline_framework.draws import DrawKey
from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.extension import image_size, leaf_at, no_images

from . import recipe_parts as parts
from .image_augmentation import ImageAugmentation
from .recipe_parts import DT, NAMES, PLACE

_OBJECTS = "objects"
_OF_OBJECTS = ("center", "offset", "height_width", "is_active")


@attrs.frozen(kw_only=True)
class Detection2DSettings(parts.RecipeSettings):
    """How images and what is learned of them are made.

    Attributes:
        output_hw: Height and width of the images, pixels; multiples of ``stride``.
        stride: Pixels of the image per pixel of the heatmap.
        classes: The order of the heatmaps.
        max_objects: Objects of an image, at most; the first ones, in the order of the data set. Shape of what is
            learned of single objects.
        min_box_size_px: Least width and height of a box in an image that an object is drawn for.
        leaves_out_hidden: Whether objects that nearer ones hide are left out.
        scale_range: In training, least and greatest pixels of the output per pixel of the file; None: what
            fills the output. Images that leave more than 15 % of it black on average are refused.
        bottom_crop_range: In training, least and greatest part of the height that is left out at the bottom.
        flip_prob: In training, probability that an image is mirrored.
        allows_black: Whether images may leave any part of the output black in training.
        distorts_colors: Whether colors are distorted in training (`PhotoMetricDistorter`).
        mean: Of red, green, blue.
        std_dev: Of red, green, blue.
        key: What the draws are held constant over; ``"rig"``: all cameras of a frame are changed alike.
    """

    output_hw: Sequence[int] = parts.setting(
        (256, 704), checks.whole_number_list, what="[height, width]", count=2, at_least=1
    )
    stride: int = parts.setting(4, checks.whole_number, at_least=1)
    max_objects: int = parts.setting(128, checks.whole_number, at_least=1)
    min_box_size_px: float = parts.setting(4.0, checks.number, at_least=0)
    leaves_out_hidden: bool = parts.setting(True, checks.flag)
    scale_range: tuple[float, float] | None = None
    bottom_crop_range: tuple[float, float] = (0.0, 0.0)
    flip_prob: float = parts.setting(0.5, checks.probability)
    distorts_colors: bool = parts.setting(True, checks.flag)
    allows_black: bool = parts.setting(False, checks.flag)
    key: DrawKey = "sample"

    def __attrs_post_init__(self) -> None:
        """Refuse sizes that the heatmap does not divide."""
        if any(size % self.stride for size in self.output_hw):
            raise SettingError(
                f"`output_hw` must be multiples of `stride` {self.stride}, got {list(self.output_hw)}."
            )

    @property
    def images(self) -> ImageAugmentation:
        """How images are augmented in training."""
        return ImageAugmentation(
            output_hw=self.output_hw,
            scale_range=self.scale_range,
            bottom_crop_range=self.bottom_crop_range,
            flip_prob=self.flip_prob,
            allows_black=self.allows_black,
        )

    @property
    def heatmap_hw(self) -> tuple[int, int]:
        """Height and width of the heatmaps."""
        height, width = self.output_hw
        return height // self.stride, width // self.stride

    def provider_fields(self, is_training: bool = True) -> dict[str, Any]:
        """Settings of a `DrivingProvider` that make it deliver what is needed, but its ``cameras``."""
        if not is_training:
            return {"boxes": False}
        return {"boxes_2d": True, "classes": tuple(self.classes)}


class Detection2DFormatter(ArrayStep):
    """Keeps of a frame of a `DrivingProvider` what a detector in images takes: images, and their objects.

    Each camera has ``image``, ``output_from_image`` ``(3, 3)``, an identity that later steps change, and in
    training ``objects`` with ``boxes``, ``depths`` and ``labels``, -1 for objects of no class.
    """

    def __init__(
        self,
        class_names: Sequence[str],
        classes: Sequence[str],
        is_training: bool,
        images: ImageAugmentation | None = None,
    ) -> None:
        """Create the step.

        Args:
            class_names: Names of the categories of the provider.
            classes: The order of labels.
            is_training: Whether there are objects.
            images: How images are augmented later: those that do not fit are refused in training.
        """
        self._label_of: npt.NDArray[np.int64] = np.append(parts.labels_of(class_names, classes), -1)
        self._images = images if is_training else None
        self._is_training = is_training

    declare_images = no_images

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        image = leaf_at(data_empty, ("cameras", 0, "image"))
        camera = SampleDataGroup()
        camera.add_data_field("image", DT.UINT8, ndim=image.ndim, content=image.content)
        camera.add_data_field("output_from_image", DT.FLOAT, ndim=2)
        if self._is_training:
            objects = SampleDataGroup()
            parts.add_fields(objects, {"boxes": (DT.FLOAT, 2), "depths": (DT.FLOAT, 1), "labels": (DT.INT32, 1)})
            camera.add_data_group_field(_OBJECTS, objects)
        return parts.frame_format(data_empty, {}, camera)

    def _process_arrays(self, data: SampleDataGroup) -> SampleDataGroup:
        sample = self._check_and_adjust_data_format_input_to_output(data.get_empty_like_self())
        for name in (*NAMES, *([PLACE] if parts.has_place(data) else [])):
            sample[name] = data[name]
        for number_of_camera, given in data["cameras"].items():
            camera = sample["cameras"][number_of_camera]
            camera["output_from_image"] = np.eye(3, dtype=np.float32)
            camera["image"] = image = given["image"]
            if self._images is not None:
                self._images.require_fit(image_size(image) if image.ndim == 1 else image.shape[-3:-1])
            if self._is_training:
                boxes = given["boxes_2d"]
                camera[_OBJECTS]["boxes"] = boxes["boxes"]
                camera[_OBJECTS]["depths"] = boxes["depths"]
                camera[_OBJECTS]["labels"] = self._label_of[boxes["categories"]].astype(np.int32)
        return sample


def detection_2d_steps(
    provider: DataProvider, settings: Detection2DSettings | None = None, *, is_training: bool = True
) -> list[PipelineStepBase]:
    """Steps for samples of a `DrivingProvider`.

    Args:
        provider: The provider.
        settings: The settings; None for the defaults.
        is_training: Whether there are heatmaps and random changes.

    Raises:
        SettingError: The provider lacks what is needed; all of it is told.
    """
    settings = parts.checked_settings(settings, Detection2DSettings)
    needed = {"boxes_2d": True} if is_training else {}
    driving = parts.provider_for(provider, "2D detection", needed, settings.classes if is_training else ())
    names = driving.class_names if is_training else ()
    image = leaf_at(driving.sample_data_structure, ("cameras", 0, "image"))
    pixels: dict[str, Any] = {"output_hw": settings.output_hw, "is_encoded": image.content.is_encoded is not False}
    if is_training:
        parts.require_filled_output(driving, settings.images)
        of_camera = _steps_of_training(settings, pixels)
    else:
        of_camera = [ImageResizer("image", mode="pad", projection_names="output_from_image", **pixels)]
    of_camera.append(settings.normalizer())
    return [
        Detection2DFormatter(names, settings.classes, is_training, settings.images),
        *(for_each("cameras", step) for step in of_camera),
    ]


def _steps_of_training(settings: Detection2DSettings, pixels: Mapping[str, Any]) -> list[PipelineStepBase]:
    steps: list[PipelineStepBase] = [
        ImageResizeCropFlipper(
            "image",
            scale_range=settings.scale_range,
            bottom_crop_range=settings.bottom_crop_range,
            flip_prob=settings.flip_prob,
            box_names="boxes",
            projection_names="output_from_image",
            key=settings.key,
            **pixels,
        )
    ]
    if settings.distorts_colors:
        steps.append(PhotoMetricDistorter("image", [-32, 32], [-18, 18], [0.5, 1.5], [0.5, 1.5], key=settings.key))
    return [
        *steps,
        VisibleBboxSelector(
            "boxes",
            (_OBJECTS, "is_visible"),
            image_hw=settings.output_hw,
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


def detection_2d_training(
    provider: DataProvider,
    batch_size: int,
    settings: Detection2DSettings | None = None,
    *,
    sampler: RandomAccessSampler | None = None,
    seed: int = 0,
    **loader_arguments: Any,
) -> DataLoader:
    """Make the loader for training a detector of objects in images.

    The images of all cameras are samples of their own: those of frame b are at ``b * C ... b * C + C - 1``.
    Batches, of B frames, C cameras, M objects at most, as of CenterNet::

        input              (B * C, 3, H, W) float32
        hm                 (B * C, classes, H / stride, W / stride) float32
        wh                 (B * C, M, 2) float32    width and height of boxes, pixels of the heatmap
        reg                (B * C, M, 2) float32    x, y of centers, less the whole pixel
        ind                (B * C, M) int64         pixel of the center: y * (W / stride) + x
        reg_mask           (B * C, M) uint8         1 where there is an object
        output_from_image  (B * C, 3, 3) float32    from pixels of the file to those delivered
        token, scene       B texts
        place              where the frames stand

    Args:
        provider: A `DrivingProvider` with ``boxes_2d=True``.
        batch_size: Frames per batch, on this rank.
        settings: The settings; None for the defaults.
        sampler: Another order than each frame once per epoch, shuffled.
        seed: Seed of the order and the draws.
        **loader_arguments: Other arguments of `DataLoader`.

    Raises:
        SettingError: The provider lacks what is needed, or an argument is out of its range.
    """
    settings = parts.checked_settings(settings, Detection2DSettings)
    sampler = sampler or ShuffledSampler(provider.get_number_of_samples(), seed=seed)
    steps = detection_2d_steps(provider, settings)
    arguments = {"seed": seed, **loader_arguments}
    return parts.recipe_loader(settings, provider, sampler, steps, batch_size, _batch, **arguments)


def detection_2d_evaluation(
    provider: DataProvider,
    batch_size: int = 1,
    settings: Detection2DSettings | None = None,
    **loader_arguments: Any,
) -> DataLoader:
    """Make the loader for evaluating a detector of objects in images: each frame once, in order, without chance.

    Batches are as those of `detection_2d_training`, with ``input``, ``output_from_image``, ``token``,
    ``scene`` and ``place``. Images show all of the file; the inverse of ``output_from_image`` leads boxes back
    to its pixels. ``place`` tells by ``is_padding`` which frames only fill the last batch, so that all ranks
    have the same number of batches, and by ``sample_index`` to which frame a result belongs.

    Args:
        provider: A `DrivingProvider` with cameras.
        batch_size: Frames per batch, on this rank.
        settings: The settings; None for the defaults.
        **loader_arguments: Other arguments of `DataLoader`.

    Raises:
        SettingError: The provider lacks what is needed, or an argument is out of its range.
    """
    settings = parts.checked_settings(settings, Detection2DSettings)
    sampler = SequentialSampler(provider.get_number_of_samples(), last_batch="pad")
    steps = detection_2d_steps(provider, settings, is_training=False)
    return parts.recipe_loader(settings, provider, sampler, steps, batch_size, _batch, **loader_arguments)


def _batch(batch: dict[str, Any]) -> dict[str, Any]:
    """Bring a batch into the form of `detection_2d_training`."""
    cameras = batch["cameras"]
    result = {"input": _flat(cameras["image"]), "output_from_image": _flat(cameras["output_from_image"])}
    if _OBJECTS in cameras:
        objects = {name: _flat(value) for name, value in cameras[_OBJECTS].items()}
        center = objects["center"]
        is_numpy = isinstance(center, np.ndarray)
        index = center[..., 1] * objects["heatmap"].shape[-1] + center[..., 0]
        is_active = objects["is_active"]
        result |= {
            "hm": objects["heatmap"],
            "wh": objects["height_width"][..., [1, 0]],
            "reg": objects["offset"],
            "ind": index.astype(np.int64) if is_numpy else index.long(),
            "reg_mask": is_active.astype(np.uint8) if is_numpy else is_active.byte(),
        }
    return {**result, **{name: value for name, value in batch.items() if name != "cameras"}}


def _flat(values: Any) -> Any:
    """``(B, C, ...)`` as ``(B * C, ...)``."""
    return values.reshape(-1, *values.shape[2:])
