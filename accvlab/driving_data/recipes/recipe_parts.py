# SPDX-License-Identifier: Apache-2.0
"""What recipes have in common: what they need of a provider, the format of samples, boxes, and loaders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from accvlab.dali_pipeline_framework import (
    DataLoader,
    DataProvider,
    PipelineDefinition,
    PipelineStepBase,
    RandomAccessSampler,
    SampleDataGroup,
    SamplerInputCallable,
)
from accvlab.dali_pipeline_framework.checks import bullets, did_you_mean, listed, shown
from accvlab.dali_pipeline_framework.errors import FieldValueError, FrameworkError, SettingError
from accvlab.dali_pipeline_framework.extension import (
    DECODED_IMAGE,
    fractions_problem,
    get_numpy_type_for_dali_type,
    per_channel,
)
from accvlab.dali_pipeline_framework.sample_data import ENCODED_IMAGE

from ..datasets import DrivingProvider
from ..datasets.infos.info_forms import CATEGORIES
from ..datasets.nuscenes.splits import DETECTION_CLASSES
from .image_augmentation import ImageAugmentation, ImagePlan, image_size

DT = types.DALIDataType
Float64Array = npt.NDArray[np.float64]

_Settings = TypeVar("_Settings")

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
_NAMES = ("token", "scene")


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
    sizes = []
    for camera in cameras:
        name = text_of(camera["name"])
        try:
            sizes.append((image_size(camera["image"]), name))
        except FieldValueError as error:
            raise FieldValueError(f"The image of the camera {name!r}: {error}") from error
    if len({size for size, _ in sizes}) > 1:
        told = ", ".join(f"{name} {size[0]} x {size[1]}" for size, name in sizes)
        raise FieldValueError(
            f"The images of all cameras must have one size, since one crop is drawn for all of them. Height and "
            f"width: {told}. Leave cameras out (`cameras` of the provider), or bring the files to one size."
        )
    return sizes[0][0]


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


def has_place(sample: SampleDataGroup) -> bool:
    """Whether a sample tells where it stands."""
    return PLACE in sample.contained_top_level_field_names


def sample_format(given: SampleDataGroup, fields: Fields, of_camera: Fields) -> SampleDataGroup:
    """Format of a sample of a recipe: names, fields, fields of each camera with its file, and where it stands."""
    sample, camera = SampleDataGroup(), SampleDataGroup()
    for name in _NAMES:
        sample.add_data_field(name, DT.STRING)
    for name, (dtype, ndim) in fields.items():
        sample.add_data_field(name, dtype, ndim=ndim)
    camera.add_data_field("image", DT.UINT8, ndim=1, content=ENCODED_IMAGE)
    camera.add_data_field("image_plan", DT.FLOAT, ndim=1)
    for name, (dtype, ndim) in of_camera.items():
        camera.add_data_field(name, dtype, ndim=ndim)
    sample.add_data_group_field_array("cameras", camera, len(given["cameras"].contained_top_level_field_names))
    if has_place(given):
        sample.add_data_group_field(PLACE, given[PLACE])
    return sample


def sample_of(
    given: SampleDataGroup,
    format: SampleDataGroup,
    values: Mapping[str, Any],
    cameras: Sequence[Mapping[str, Any]],
    plan: ImagePlan,
) -> SampleDataGroup:
    """Fill a format of `sample_format`, in the types that its fields have."""
    _put(format, {**{name: given[name] for name in _NAMES}, **values})
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


def recipe_loader(
    provider: DataProvider,
    sampler: RandomAccessSampler,
    steps: Sequence[PipelineStepBase],
    batch_size: int,
    of_batch: Callable[[dict[str, Any]], dict[str, Any]],
    listed_fields: Sequence[str],
    arguments: Mapping[str, Any],
    settings: Any,
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


def mmdet_boxes(
    boxes: Boxes,
    *,
    layout: str,
    z: str,
    bev_range: tuple[float, float, float, float] | None,
    label_of: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Make ``gt_bboxes_3d``, ``(n, 9)`` float32, and ``gt_labels_3d``, ``(n,)`` int64.

    Columns: x, y, z, three sizes and the angle in [-pi, pi) as the layout says, and the velocity along x and y, 0
    where it is not known. Boxes of no class are left out.

    Args:
        boxes: The group of boxes of a sample of `DrivingProvider`.
        layout: One of `LAYOUTS`.
        z: ``"bottom"`` or ``"center"``.
        bev_range: Least x and y, greatest x and y of centers; what lies on it or beyond is left out. None for all.
        label_of: Label of each category.
    """
    sizes = np.asarray(boxes["sizes"], np.float64)
    centers = np.array(boxes["centers"], np.float64)
    angles = np.asarray(boxes["yaws"], np.float64)
    if z == "bottom":
        centers[:, 2] -= sizes[:, 2] / 2
    if layout == LAYOUTS[1]:
        sizes, angles = sizes[:, [1, 0, 2]], -angles - np.pi / 2
    angles = (angles + np.pi) % (2 * np.pi) - np.pi
    velocities = np.nan_to_num(np.asarray(boxes["velocities"], np.float64)[:, :2], nan=0.0)
    is_kept = boxes["categories"] >= 0
    if bev_range is not None:
        is_kept &= is_in_range(centers, bev_range)
    columns = np.column_stack([centers, sizes, angles, velocities]).astype(np.float32)
    return columns[is_kept], label_of[boxes["categories"][is_kept]]


def is_in_range(centers: npt.NDArray[Any], bev_range: tuple[float, float, float, float]) -> npt.NDArray[np.bool_]:
    """Which centers ``(n, 3)`` lie within a range of x and y, not on its border."""
    xy = centers[:, :2]
    return np.asarray(((xy > bev_range[:2]) & (xy < bev_range[2:])).all(axis=1))


def bev_range_of(point_cloud_range: Sequence[float]) -> tuple[float, float, float, float]:
    """Least x and y, greatest x and y of least and greatest x, y, z."""
    low_x, low_y, _, high_x, high_y, _ = point_cloud_range
    return low_x, low_y, high_x, high_y


def labels_of(class_names: Sequence[str], classes: Sequence[str]) -> npt.NDArray[np.int64]:
    """Label of each category of a provider; all of them are among ``classes``."""
    return np.array([classes.index(name) for name in class_names], np.int64)
