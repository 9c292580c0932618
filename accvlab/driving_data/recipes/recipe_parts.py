# SPDX-License-Identifier: Apache-2.0
"""What the models of recipes have in common: settings, the format of samples, images, and boxes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from accvlab.dali_pipeline_framework import (
    ArrayStep,
    ImageMeanStdDevNormalizer,
    PipelineStepBase,
    SampleDataGroup,
    UniformDraw,
    checks,
)
from accvlab.dali_pipeline_framework.checks import instance, number_list, setting_error, shown, valid
from accvlab.dali_pipeline_framework.draws import DrawKey, Draws, RandomDraw
from accvlab.dali_pipeline_framework.errors import FieldValueError, SettingError
from accvlab.dali_pipeline_framework.extension import (
    decoded,
    fractions_problem,
    get_numpy_type_for_dali_type,
    image_size,
    needed_package,
    per_channel,
)
from accvlab.dali_pipeline_framework.sample_data import GroupFormat, LeafFormat
from accvlab.dali_pipeline_framework.unknown_arguments import explains_unknown_arguments

from ..datasets import DrivingProvider
from ..datasets.driving.array_types import Array, Bool, Float32, Float64, Int64
from ..datasets.driving.driving_fields import DrivingFieldSettings, checked_classes, checked_names
from ..datasets.infos.info_forms import CATEGORIES
from ..datasets.nuscenes.splits import DETECTION_CLASSES
from .image_augmentation import ImageAugmentation, ImagePlan, PlannedImageAugmenter, output_size
from .image_augmentation import setting as setting
from .scene_sampler import check_split

DT = types.DALIDataType

CAMERAS = ("CAM_FRONT", "CAM_FRONT_RIGHT", "CAM_FRONT_LEFT", "CAM_BACK", "CAM_BACK_LEFT", "CAM_BACK_RIGHT")
"""Cameras of nuScenes, in the order of the published code."""

CLASSES = tuple(DETECTION_CLASSES)
"""Classes of nuScenes, in the order of the published configurations."""

CLASSES_OF_CONVERTERS = CATEGORIES
"""The same in the order of the published converters, which 2D labels have."""

MEAN = (123.675, 116.28, 103.53)
STD_DEV = (58.395, 57.12, 57.375)
PLACE = "place"
"""Name of the group with the position of each sample."""
NAMES = ("token", "scene")


def _draw_key(value: Any, name: str) -> None:
    UniformDraw(name, key=value)


IS_KEY = valid(_draw_key)
"""Validator of a setting that is a scope of draws."""

IS_AUGMENTATION = valid(instance, cls=ImageAugmentation)
"""Validator of a setting that says how images are augmented."""


def angle_range(least: float, greatest: float) -> Any:
    """A field of settings that is a range of angles in radians: degrees are beyond a turn."""
    return setting((least, greatest), checks.number_range, at_least=-2 * np.pi, at_most=2 * np.pi)


def _without_proxy(given: Mapping[str, Any]) -> Mapping[str, Any]:
    return dict(given) if isinstance(given, Mapping) else given  # a read-only mapping has no pickle


def mapping_setting(default: Mapping[str, Any]) -> Any:
    """A field of settings that is a mapping, as a dict."""
    return attrs.field(default=default, converter=_without_proxy, validator=valid(instance, cls=Mapping))


def class_list(classes: Sequence[str], name: str = "classes") -> tuple[str, ...]:
    """Get names of classes, whose order is that of the labels; ``name`` is that of the setting.

    Raises:
        SettingError: They are no list of names, or one is there twice.
    """
    names = checked_classes(classes, name)
    if not isinstance(names, tuple) or not names:
        raise SettingError(f"`{name}` must be a list of names, got {shown(classes)}.")
    return names


def point_cloud_range(value: object, name: str) -> None:
    """Refuse what are not least and greatest x, y, z."""
    number_list(value, name, "least and greatest x, y, z: 6 numbers", count=6)


def _channels(settings: DetectorSettings, field: attrs.Attribute[Any], value: Any) -> None:
    if len(per_channel(value, field.name)) not in (1, 3):
        raise setting_error(field.name, "3 numbers, or one for all channels", value)


def _deviations(settings: DetectorSettings, field: attrs.Attribute[Any], value: Any) -> None:
    """Refuse deviations (which come after the means) of 0 or less, and for other images than in [0, 255]."""
    _channels(settings, field, value)
    if min(per_channel(value, field.name)) <= 0:
        raise setting_error(field.name, "above 0", value)
    unfit = fractions_problem(per_channel(settings.mean, "mean"), per_channel(value, field.name))
    if unfit:
        raise SettingError(f"{type(settings).__name__}: {unfit}.")


@attrs.frozen(kw_only=True)
class RecipeSettings(ABC):
    """Base of the settings of all recipes."""

    model: ClassVar[str]
    """Name of the model, for messages."""

    images_key: ClassVar[str] = "img"
    """Name of the images in a batch."""

    @abstractmethod
    def provider_fields(self, is_training: bool = True) -> DrivingFieldSettings:
        """Settings of a `DrivingProvider` for the fields that the model needs; choose ``cameras`` yourself."""


@attrs.frozen(kw_only=True)
class DetectorSettings(RecipeSettings):
    """Base of the settings of recipes with classes of objects, and normalized images.

    Attributes:
        classes: Names of the classes, in the order of the labels.
        mean: Means of red, green, blue.
        std_dev: Standard deviations of red, green, blue.
    """

    classes: Sequence[str] = attrs.field(default=CLASSES, converter=class_list)
    mean: Sequence[float] = attrs.field(default=MEAN, validator=_channels)
    std_dev: Sequence[float] = attrs.field(default=STD_DEV, validator=_deviations)

    projections_key: ClassVar[str] = "lidar2img"
    """Name of the matrices in a batch that lead from the scene to pixels."""

    boxes_z: ClassVar[str] = "bottom"
    """Place of z in boxes of a batch, ``"bottom"`` or ``"center"``."""

    def normalizer(self) -> ImageMeanStdDevNormalizer:
        """The step that normalizes images."""
        return ImageMeanStdDevNormalizer("image", self.mean, self.std_dev, output_layout="CHW")


@attrs.frozen(kw_only=True)
class AugmentedSettings(DetectorSettings):
    """Base of the settings of recipes that augment images as an `ImageAugmentation` says.

    Attributes:
        images: How images are augmented in training.
        output_hw: Height and width of the output, in place of the size in ``images``, see
            `ImageAugmentation.with_output`.
    """

    images: ImageAugmentation = attrs.field(validator=IS_AUGMENTATION)
    output_hw: Sequence[int] | None = setting(None, output_size)

    @property
    def augmentation(self) -> ImageAugmentation:
        """How images are augmented in training, with the size of the output."""
        return self.images if self.output_hw is None else self.images.with_output(self.output_hw)


@attrs.frozen(kw_only=True)
class StreamedSettings(AugmentedSettings):
    """Base of the settings of recipes that play scenes, one frame per slot and step.

    Attributes:
        split: In training, into how many pieces each scene is cut, or ``"all"``: each frame is one.
    """

    split: int | str = setting(2, check_split)


def size_of_camera(camera: SampleDataGroup) -> tuple[int, int]:
    """Height and width of the image of a camera, from the head of its file.

    Raises:
        FieldValueError: It is no image.
    """
    try:
        return image_size(camera["image"])
    except FieldValueError as error:
        raise FieldValueError(f"The image of the camera {decoded(camera['name'])!r}: {error}") from error


def four_by_four(matrix: npt.ArrayLike) -> Float64:
    """A matrix ``(3, 3)`` in the upper left corner of ``(4, 4)``."""
    result = np.eye(4)
    result[:3, :3] = matrix
    return result


def turn_about_z(angle_rad: float) -> Float64:
    """``(4, 4)``, counter-clockwise."""
    cos, sin = np.cos(angle_rad), np.sin(angle_rad)
    return four_by_four([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])


Fields: TypeAlias = Mapping[str, tuple[types.DALIDataType, int] | LeafFormat | GroupFormat]
"""Type and number of axes of data fields, by name; or the format of a field or group."""


Values: TypeAlias = tuple[dict[str, Any], Sequence[Mapping[str, Any]]]
"""Values of fields, of a sample and of each of its cameras."""

Batch: TypeAlias = dict[str, Any]


def add_fields(group: SampleDataGroup, fields: Fields) -> None:
    """Add fields to a format."""
    for name, field in fields.items():
        if isinstance(field, GroupFormat):
            group.add_data_group_field(name, SampleDataGroup.from_format(field))
        elif isinstance(field, LeafFormat):
            group.add_data_field(name, field.dtype, ndim=field.ndim, content=field.content)
        else:
            group.add_data_field(name, field[0], ndim=field[1])


def _put(group: SampleDataGroup, values: Mapping[str, Any]) -> None:
    """Set fields, in the types that they have; groups, and what is kept, as they are."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            _put(group[name], value)
        else:
            is_group = isinstance(value, SampleDataGroup)
            dtype: Any = DT.STRING if is_group else group.get_type_of_field(name)
            group[name] = value if dtype == DT.STRING else np.asarray(value, get_numpy_type_for_dali_type(dtype))


def extra_names(extra_fields: Sequence[str]) -> tuple[str, ...]:
    """Names of the fields of the frames that batches have as well.

    Raises:
        SettingError: They are no list of names.
    """
    names = checked_names([*extra_fields] if isinstance(extra_fields, Set) else extra_fields, "extra_fields")
    if names is None:
        raise setting_error("extra_fields", "a list of names", names, "Leave it out for none.")
    return names


def with_type(values: Any, name: str) -> Any:
    """Arrays, of any library, in a type."""
    if hasattr(values, "astype"):
        return values.astype(name)
    return values.to(getattr(needed_package("torch"), name))


def flattened(batch: Batch, images: str = "img") -> Batch:
    """A batch with the fields of the cameras next to the others, their image as ``images``."""
    cameras = dict(batch["cameras"])
    own = {images: cameras.pop("image"), **cameras}
    return own | {name: value for name, value in batch.items() if name != "cameras"}


@attrs.frozen
class Request:
    """The settings and the data for which the steps of a recipe are made.

    Attributes:
        settings: The settings of the recipe.
        frames: The frames that the samples are made of.
        class_names: Names of the categories of the frames' boxes; empty where boxes are not used.
        is_training: Whether there are labels and random changes.
        extra_fields: Fields of the frames that batches have as well.
        reduced_decoding: As for `PlannedImageAugmenter`.
    """

    settings: Any
    frames: DrivingProvider
    class_names: Sequence[str]
    is_training: bool
    extra_fields: Sequence[str] = attrs.field(converter=extra_names)
    reduced_decoding: bool


class Chain(NamedTuple):
    """The steps of a recipe, in this order.

    Attributes:
        frames: Steps on each frame.
        images: Steps that decode and augment images.
        last: Steps after those.
    """

    frames: Sequence[PipelineStepBase]
    images: Sequence[PipelineStepBase]
    last: Sequence[PipelineStepBase]


def kept_names(given: SampleDataGroup, extra_fields: Sequence[str]) -> list[str]:
    """Fields of a frame that batches have as they are."""
    place = [PLACE] if PLACE in given.contained_top_level_field_names else []
    return [*NAMES, *place, *extra_fields]


class FrameFormatter(ArrayStep):
    """Base of the steps that make what a model takes of a frame of a `DrivingProvider`, but its images."""

    _settings: Any
    changes_images = False

    @explains_unknown_arguments
    def __init__(self, request: Request) -> None:
        """Create the step for the settings and data of a recipe; its extra fields stay as they are."""
        self._settings = request.settings
        self._is_training = request.is_training
        self._label_of = labels_of(request.class_names, getattr(request.settings, "classes", ()))
        self._extra_fields = tuple(request.extra_fields)

    @abstractmethod
    def _fields(self, given: GroupFormat) -> tuple[Fields, Fields | None]:
        """Fields that are made of a frame, and of each of its cameras; None if there are no cameras any more."""

    @abstractmethod
    def _values(self, data: SampleDataGroup, cameras: Sequence[SampleDataGroup], draws: Draws) -> Values:
        """Values of these fields, of the frame and of each camera."""

    def _in_order(self, cameras: Sequence[SampleDataGroup]) -> Sequence[SampleDataGroup]:
        """The cameras in the order of the output."""
        return cameras

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        """See `ArrayStep.format_after`."""
        given, sample = data_empty.format, SampleDataGroup()
        fields, of_camera = self._fields(given)
        add_fields(sample, fields)
        if of_camera is not None:
            camera = SampleDataGroup()
            add_fields(camera, {"image": given.at(("cameras", 0, "image")), **of_camera})
            sample.add_data_group_field_array("cameras", camera, len(data_empty["cameras"]))
        add_fields(sample, {name: given.at((name,)) for name in kept_names(data_empty, self._extra_fields)})
        return sample

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        """See `ArrayStep.arrays`."""
        cameras = self._in_order([*data["cameras"].values()])
        values, of_cameras = self._values(data, cameras, draws)
        sample = self.new_output(data)
        _put(sample, {**values, **{name: data[name] for name in kept_names(data, self._extra_fields)}})
        for number, of_camera in enumerate(of_cameras):
            _put(sample["cameras"][number], {"image": cameras[number]["image"], **of_camera})
        return sample


Augmented: TypeAlias = Sequence[tuple[SampleDataGroup, ImagePlan]]
"""The cameras of a frame, and what is done to the images of each."""


class AugmentedFrameFormatter(FrameFormatter):
    """Base of those that also draw how images, files, are augmented."""

    draws_for_each_camera = False
    _without_chance = staticmethod(ImageAugmentation.for_evaluation)

    @cached_property
    def images(self) -> ImageAugmentation:
        """How images are augmented."""
        images: ImageAugmentation = self._settings.augmentation
        return images if self._is_training else self._without_chance(images)

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        """Declare the change of the images, and in training that of the scene."""
        key = self._settings.key
        shape = (len(data_empty["cameras"]),) if self.draws_for_each_camera else ()
        draws = [attrs.evolve(draw, shape=shape) for draw in self.images.draws(key)]
        return [*draws, *(self._draws_of_scene(key) if self._is_training else [])]

    @abstractmethod
    def _draws_of_scene(self, key: DrawKey) -> list[RandomDraw]:
        """Draws of the change of the scene, in training."""

    @abstractmethod
    def _scene_fields(self, given: GroupFormat) -> tuple[Fields, Fields]:
        """Fields that are made of a frame, and of each of its cameras."""

    @abstractmethod
    def _scene(self, data: SampleDataGroup, cameras: Augmented, draws: Draws) -> Values:
        """Values of these fields, of the frame and of each camera."""

    def _fields(self, given: GroupFormat) -> tuple[Fields, Fields | None]:
        fields, of_camera = self._scene_fields(given)
        return fields, {"image_plan": (DT.FLOAT, 1), **of_camera}

    def _values(self, data: SampleDataGroup, cameras: Sequence[SampleDataGroup], draws: Draws) -> Values:
        augmented = [*zip(cameras, self._plans(cameras, draws), strict=True)]
        values, of_cameras = self._scene(data, augmented, draws)
        plans = [{"image_plan": plan.values} for _, plan in augmented]
        return values, [
            {**own, **other} for own, other in zip(plans, of_cameras or [{}] * len(plans), strict=True)
        ]

    def _plans(self, cameras: Sequence[SampleDataGroup], draws: Draws) -> list[ImagePlan]:
        """What is done to the images of each camera; factors are for images of the size of the first one."""
        sizes = [size_of_camera(camera) for camera in cameras]
        if not self.draws_for_each_camera:
            of_size = {hw: self.images.plan(hw, draws.__getitem__, sizes[0]) for hw in dict.fromkeys(sizes)}
            return [of_size[hw] for hw in sizes]
        return [
            self.images.plan(hw, lambda name, own=number: draws[name][own], sizes[0])  # type: ignore[misc]
            for number, hw in enumerate(sizes)
        ]

    @classmethod
    def chain(
        cls,
        request: Request,
        *,
        before: Sequence[PipelineStepBase] = (),
        after: Sequence[PipelineStepBase] = (),
        changes: Sequence[PipelineStepBase] = (),
    ) -> Chain:
        """Create the step, and those before and after it; images get the changes before they are normalized."""
        formatter = cls(request)
        images = formatter.images
        options = {"rotates": images.rotates, "reduced_decoding": request.reduced_decoding}
        augmenter = PlannedImageAugmenter("image", "image_plan", images.output_hw, **options)
        return Chain([*before, formatter, *after], [augmenter, *changes], [request.settings.normalizer()])


Boxes: TypeAlias = SampleDataGroup | Mapping[str, Array]

LAYOUTS = ("l,w,h,yaw", "w,l,h,-yaw-pi/2")
"""Columns 3 to 6: that of mmdetection3d from 1.0, and that of before."""


def scene_boxes(
    boxes: Boxes,
    kept: Bool,
    scene: Float64,
    angle: float = 0.0,
    *,
    scale: float = 1.0,
    z: str,
) -> Float64:
    """Some boxes in a scene that is turned by an angle, scaled and moved, ``(K, 9)``.

    Columns: x, y, z, length, width, height, yaw, not wrapped, and the velocity along x and y, 0 where it is not
    known; ``z`` is that of the ``"bottom"`` or of the ``"center"``.
    """
    centers, sizes, velocities, yaws = (
        np.asarray(boxes[name], np.float64)[kept] for name in ("centers", "sizes", "velocities", "yaws")
    )
    if z == "bottom":
        centers[:, 2] -= sizes[:, 2] / 2
    centers = centers @ scene[:3, :3].T + scene[:3, 3]
    velocities = np.nan_to_num(velocities[:, :2], nan=0.0) @ scene[:2, :2].T
    return np.column_stack([centers, sizes * scale, yaws + angle, velocities])


def mmdet_boxes(
    boxes: Boxes, label_of: Int64, *, layout: str, z: str, point_cloud_range: Sequence[float]
) -> tuple[Float32, Int64]:
    """Make ``gt_bboxes_3d``, ``(n, 9)`` float32, and ``gt_labels_3d``, ``(n,)`` int64.

    As `scene_boxes`, with sizes and the angle in [-pi, pi) as the layout says. Boxes of no class, and those whose
    center is not in the range, are left out.

    Args:
        boxes: The group of boxes of a sample of `DrivingProvider`.
        label_of: Label of each category.
        layout: One of `LAYOUTS`.
        z: ``"bottom"`` or ``"center"``.
        point_cloud_range: See `is_in_range`.
    """
    kept = (boxes["categories"] >= 0) & is_in_range(boxes["centers"], point_cloud_range)
    columns = scene_boxes(boxes, kept, np.eye(4), z=z)
    if layout == LAYOUTS[1]:
        columns[:, [3, 4]], columns[:, 6] = columns[:, [4, 3]], -columns[:, 6] - np.pi / 2
    columns[:, 6] = (columns[:, 6] + np.pi) % (2 * np.pi) - np.pi
    return columns.astype(np.float32), label_of[boxes["categories"][kept]]


def is_in_range(centers: npt.ArrayLike, point_cloud_range: Sequence[float]) -> Bool:
    """Which centers ``(n, 3)`` lie within least and greatest x, y, z, not on the border; z does not count."""
    xy, (low, high) = np.asarray(centers, np.float64)[:, :2], np.reshape(point_cloud_range, (2, 3))[:, :2]
    return np.asarray(((xy > low) & (xy < high)).all(axis=1))


def labels_of(class_names: Sequence[str], classes: Sequence[str]) -> Int64:
    """Label of each category of a provider; all of them are among ``classes``."""
    return np.array([classes.index(name) for name in class_names], np.int64)
