# SPDX-License-Identifier: Apache-2.0
"""What recipes have in common: what they need of a provider, the format of samples, boxes, and loaders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import attrs
import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from accvlab.dali_pipeline_framework import (
    ArrayStep,
    DataLoader,
    DataProvider,
    ImageMeanStdDevNormalizer,
    PipelineDefinition,
    PipelineStepBase,
    RandomAccessSampler,
    SampleDataGroup,
    SamplerInputCallable,
)
from accvlab.dali_pipeline_framework.checks import bullets, did_you_mean, listed, number_list, shown, valid
from accvlab.dali_pipeline_framework.draws import DrawKey, RandomDraw
from accvlab.dali_pipeline_framework.errors import FieldValueError, FrameworkError, SettingError
from accvlab.dali_pipeline_framework.extension import (
    DECODED_IMAGE,
    fractions_problem,
    get_numpy_type_for_dali_type,
    image_size,
    no_images,
    per_channel,
)
from accvlab.dali_pipeline_framework.sample_data import ENCODED_IMAGE

from ..datasets import DrivingProvider
from ..datasets.infos.info_forms import CATEGORIES
from ..datasets.nuscenes.splits import DETECTION_CLASSES
from .image_augmentation import ImageAugmentation, ImagePlan, PlannedImageAugmenter

DT = types.DALIDataType
Float64Array = npt.NDArray[np.float64]

_Settings = TypeVar("_Settings", bound="RecipeSettings")

CAMERAS = ("CAM_FRONT", "CAM_FRONT_RIGHT", "CAM_FRONT_LEFT", "CAM_BACK", "CAM_BACK_LEFT", "CAM_BACK_RIGHT")
"""Cameras of nuScenes, in the order of the published code."""

CLASSES = tuple(DETECTION_CLASSES)
"""Classes of nuScenes, in the order of the published configurations."""

CLASSES_OF_CONVERTERS = CATEGORIES
"""The same in the order of the published converters, which 2D labels have."""

MEAN = (123.675, 116.28, 103.53)
STD_DEV = (58.395, 57.12, 57.375)
PLACE = "place"
"""Name of the group that tells where a sample stands."""
NAMES = ("token", "scene")


def setting(default: Any, check: Callable[..., object], **limits: Any) -> Any:
    """A field of settings, with its default and the check of its values."""
    return attrs.field(default=default, validator=valid(check, **limits))


def point_cloud_range(value: object, name: str) -> None:
    """Refuse what are not least and greatest x, y, z."""
    number_list(value, name, "least and greatest x, y, z: 6 numbers", count=6)


@attrs.frozen(kw_only=True)
class RecipeSettings(ABC):
    """Base of the settings of all recipes.

    Attributes:
        classes: Names of the classes, in the order of the labels.
        mean: Of red, green, blue.
        std_dev: Of red, green, blue.
    """

    classes: Sequence[str] = CLASSES
    mean: Sequence[float] = MEAN
    std_dev: Sequence[float] = STD_DEV

    @abstractmethod
    def provider_fields(self, is_training: bool = True) -> dict[str, Any]:
        """Settings of a `DrivingProvider` that make it deliver what is needed, but its ``cameras``."""

    def normalizer(self) -> ImageMeanStdDevNormalizer:
        """The step that normalizes images."""
        return ImageMeanStdDevNormalizer("image", self.mean, self.std_dev, output_layout="CHW")


def driving_provider(provider: DataProvider) -> DrivingProvider:
    """The `DrivingProvider` that a recipe was given.

    Raises:
        SettingError: It is none.
    """
    if not isinstance(provider, DrivingProvider):
        raise SettingError(
            f"A recipe takes a DrivingProvider, got {type(provider).__name__}. Open the data with one, or write a "
            "reader that makes a DrivingIndex."
        )
    return provider


def checked_settings(settings: _Settings | None, of_recipe: type[_Settings]) -> _Settings:
    """The settings of a recipe, or their defaults.

    Raises:
        SettingError: They are those of another recipe, or mean and deviation are not for images in [0, 255].
    """
    if settings is None:
        return of_recipe()
    if not isinstance(settings, of_recipe):
        raise SettingError(f"`settings` must be {of_recipe.__name__}, got {type(settings).__name__}.")
    mean, std_dev = (per_channel(getattr(settings, name), name) for name in ("mean", "std_dev"))
    unfit = fractions_problem(mean, std_dev, DECODED_IMAGE.value_range)
    if unfit:
        raise SettingError(f"{of_recipe.__name__}: {unfit}.")
    return settings


def provider_for(
    given: DataProvider, model: str, wanted: Mapping[str, Any], classes: Sequence[str] = ()
) -> DrivingProvider:
    """The `DrivingProvider` that a recipe was given, if its samples hold what a model needs.

    Args:
        given: The provider.
        model: Name of the model, for the message.
        wanted: Settings of `DrivingFields` that must be so: False for what is not needed; ``min_points`` and
            ``num_sweeps`` at least.
        classes: Classes that the labels are numbered by.

    Raises:
        SettingError: It is another provider, or something is missing; all of it is told.
    """
    provider, problems = driving_provider(given), []
    for name, value in wanted.items():
        has = getattr(provider.fields, name)
        if name in ("min_points", "num_sweeps"):
            if has < value:
                problems.append(f"{name}: must be at least {value}, is {has}")
        elif name != "classes" and value is not False and has != value:
            problems.append(f"{name}: must be {value!r}, is {has!r}")
    if not provider.camera_names:
        problems.append("cameras: there must be at least one")
    unknown = [name for name in provider.class_names if name not in classes] if classes else []
    problems += [
        f"classes: {model} has no class {shown(name)}.{did_you_mean(name, classes)} It has: {listed(classes)}. "
        "Give the provider `classes`, or the recipe its own"
        for name in unknown
    ]
    if problems:
        settings = ", ".join(f"{name}={value!r}" for name, value in wanted.items())
        raise SettingError(
            f"{model} needs other samples than {provider!r} delivers:\n{bullets(problems)}\n"
            f"Create the provider with: {settings}"
        )
    return provider


def one_image_size(cameras: Iterable[SampleDataGroup]) -> tuple[int, int]:
    """Height and width that the images of all cameras have, from the heads of their files.

    Raises:
        FieldValueError: They differ.
    """
    sizes = {}
    for camera in cameras:
        name = text_of(camera["name"])
        try:
            sizes[name] = image_size(camera["image"])
        except FieldValueError as error:
            raise FieldValueError(f"The image of the camera {name!r}: {error}") from error
    return one_of_sizes(sizes, "cameras", "one crop is drawn for all of them")


def one_of_sizes(sizes: Mapping[str, tuple[int, int]], of: str, reason: str) -> tuple[int, int]:
    """Height and width that all images have.

    Raises:
        FieldValueError: They differ.
    """
    first, *others = {*sizes.values()}
    if others:
        written = ", ".join(f"{name} {height} x {width}" for name, (height, width) in sizes.items())
        raise FieldValueError(
            f"The images of all {of} must have one size, since {reason}. Height and width: {written}. Leave "
            "cameras out (`cameras` of the provider), or bring the files to one size."
        )
    return first


def require_filled_output(provider: DrivingProvider, images: ImageAugmentation) -> None:
    """Refuse, before anything runs, images that leave much of the output black, by the first image.

    Others are checked when they are loaded, and so is a first one that cannot be read.

    Raises:
        SettingError: The first image is of such a size.
    """
    try:
        file = provider.first_image_file()
        misfit = None if file is None else images.misfit(image_size(file))
    except (FrameworkError, OSError):
        return
    if misfit:
        raise SettingError(f"With these settings, {misfit}.")


def four_by_four(matrix: npt.NDArray[Any]) -> Float64Array:
    """A matrix ``(3, 3)`` in the upper left corner of ``(4, 4)``."""
    result = np.eye(4)
    result[:3, :3] = matrix
    return result


def turn_about_z(angle_rad: float) -> Float64Array:
    """``(4, 4)``, counter-clockwise."""
    cos, sin = np.cos(angle_rad), np.sin(angle_rad)
    turn = np.eye(4)
    turn[:2, :2] = [[cos, -sin], [sin, cos]]
    return turn


Fields = Mapping[str, tuple[types.DALIDataType, int]]
"""Type and number of axes of data fields, by name."""


def add_fields(group: SampleDataGroup, fields: Fields) -> None:
    """Add data fields to a format."""
    for name, (dtype, ndim) in fields.items():
        group.add_data_field(name, dtype, ndim=ndim)


def has_place(sample: SampleDataGroup) -> bool:
    """Whether a sample tells where it stands."""
    return PLACE in sample.contained_top_level_field_names


def frame_format(given: SampleDataGroup, fields: Fields, camera: SampleDataGroup) -> SampleDataGroup:
    """Format of a frame: names, fields, the format of each camera, and where it stands."""
    sample = SampleDataGroup()
    for name in NAMES:
        sample.add_data_field(name, DT.STRING)
    add_fields(sample, fields)
    sample.add_data_group_field_array("cameras", camera, len(given["cameras"].contained_top_level_field_names))
    if has_place(given):
        sample.add_data_group_field(PLACE, given[PLACE])
    return sample


def sample_format(given: SampleDataGroup, fields: Fields, of_camera: Fields) -> SampleDataGroup:
    """Format of a frame whose cameras have a file, what is done to it, and further fields."""
    camera = SampleDataGroup()
    camera.add_data_field("image", DT.UINT8, ndim=1, content=ENCODED_IMAGE)
    add_fields(camera, {"image_plan": (DT.FLOAT, 1), **of_camera})
    return frame_format(given, fields, camera)


def sample_of(
    given: SampleDataGroup,
    format: SampleDataGroup,
    values: Mapping[str, Any],
    cameras: Sequence[Mapping[str, Any]],
    plan: ImagePlan,
) -> SampleDataGroup:
    """Fill a format of `sample_format`, in the types that its fields have."""
    _put(format, {**{name: given[name] for name in NAMES}, **values})
    for number, camera in enumerate(cameras):
        file = {"image": given["cameras"][number]["image"], "image_plan": plan.values}
        _put(format["cameras"][number], {**file, **camera})
    if has_place(given):
        format[PLACE] = given[PLACE]
    return format


def _put(group: SampleDataGroup, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        dtype: Any = group.get_type_of_field(name)
        is_text = dtype == DT.STRING
        group[name] = value if is_text else np.asarray(value, get_numpy_type_for_dali_type(dtype))


def text_of(value: str | npt.NDArray[np.uint8]) -> str:
    """Text, of a sample or of an array step."""
    return value if isinstance(value, str) else bytes(value).decode(errors="replace")


class FrameFormatter(ArrayStep):
    """Base of the steps that make what a model takes of a frame of a `DrivingProvider`; images stay files.

    Attributes:
        images: How images are augmented.
    """

    draws_for_each_camera = False
    _settings: Any

    def __init__(self, settings: Any, class_names: Sequence[str], is_training: bool) -> None:
        """Create the step.

        Args:
            settings: The settings of the recipe.
            class_names: Names of the categories of the provider.
            is_training: Whether there are labels and random changes.
        """
        self._settings = settings
        self._is_training = is_training
        self.images: ImageAugmentation = settings.images if is_training else self._without_chance(settings.images)
        self._label_of = labels_of(class_names, settings.classes)

    declare_images = no_images
    _without_chance = staticmethod(ImageAugmentation.for_evaluation)

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        """Declare the change of the images, and in training that of the scene."""
        key = self._settings.key
        shape = (len(data_empty["cameras"]),) if self.draws_for_each_camera else ()
        draws = [attrs.evolve(draw, shape=shape) for draw in self.images.draws(key)]
        return [*draws, *(self._draws_of_scene(key) if self._is_training else [])]

    @abstractmethod
    def _draws_of_scene(self, key: DrawKey) -> list[RandomDraw]:
        """Draws of the change of the scene, in training."""

    def image_steps(self, reduced_decoding: bool, *changes: PipelineStepBase) -> list[PipelineStepBase]:
        """Steps that follow: from the files to normalized images, with further changes of the pixels before."""
        images = self.images
        augmenter = PlannedImageAugmenter(
            "image", "image_plan", images.output_hw, rotates=images.rotates, reduced_decoding=reduced_decoding
        )
        return [augmenter, *changes, self._settings.normalizer()]


def recipe_loader(
    settings: RecipeSettings,
    provider: DataProvider,
    sampler: RandomAccessSampler,
    steps: Sequence[PipelineStepBase],
    batch_size: int,
    of_batch: Callable[[dict[str, Any]], dict[str, Any]],
    listed_fields: Sequence[str] = (),
    /,
    **arguments: Any,
) -> DataLoader:
    """Make a loader of a recipe; ``of_batch`` gives a batch its names, with stacked cameras.

    ``listed_fields`` come as lists, since samples differ in shape.
    """
    given = {"run": "auto", "ragged": dict.fromkeys(listed_fields, "list") or "raise", **arguments}
    definition = PipelineDefinition(
        SamplerInputCallable(provider, sampler, context_name=PLACE), steps, run=given.pop("run")
    )
    loader = DataLoader(definition, batch_size, stack_arrays=True, post_process_func=of_batch, **given)
    loader.recipe_settings = settings
    return loader


Boxes: TypeAlias = SampleDataGroup | Mapping[str, npt.NDArray[Any]]

LAYOUTS = ("l,w,h,yaw", "w,l,h,-yaw-pi/2")
"""Columns 3 to 6: that of mmdetection3d from 1.0, and that of before."""


def scene_boxes(
    boxes: Boxes,
    kept: npt.NDArray[np.bool_],
    scene: Float64Array,
    angle: float = 0.0,
    *,
    scale: float = 1.0,
    z: str,
) -> Float64Array:
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
    boxes: Boxes, label_of: npt.NDArray[np.int64], *, layout: str, z: str, point_cloud_range: Sequence[float]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
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


def is_in_range(centers: npt.ArrayLike, point_cloud_range: Sequence[float]) -> npt.NDArray[np.bool_]:
    """Which centers ``(n, 3)`` lie within least and greatest x, y, z, not on the border; z does not count."""
    xy, (low, high) = np.asarray(centers, np.float64)[:, :2], np.reshape(point_cloud_range, (2, 3))[:, :2]
    return np.asarray(((xy > low) & (xy < high)).all(axis=1))


def labels_of(class_names: Sequence[str], classes: Sequence[str]) -> npt.NDArray[np.int64]:
    """Label of each category of a provider; all of them are among ``classes``."""
    return np.array([classes.index(name) for name in class_names], np.int64)
