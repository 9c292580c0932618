# SPDX-License-Identifier: Apache-2.0
"""Alpamayo: samples of PhysicalAI-AV, and of other driving data, as its training code takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework import ImageResizer, PipelineStepBase, SampleDataGroup, checks, for_each
from accvlab.dali_pipeline_framework.draws import Draws
from accvlab.dali_pipeline_framework.errors import FieldValueError, SettingError
from accvlab.dali_pipeline_framework.extension import decoded
from accvlab.dali_pipeline_framework.sample_data import GroupFormat
from accvlab.dali_pipeline_framework.unknown_arguments import explains_unknown_arguments

from ..datasets.driving.driving_fields import DrivingFieldSettings
from . import recipe_parts as parts
from .image_augmentation import output_size
from .recipe import Recipe
from .recipe_parts import DT

ALPAMAYO_CAMERAS: Mapping[str, int] = MappingProxyType(
    {
        "camera_cross_left_120fov": 0,
        "camera_front_wide_120fov": 1,
        "camera_cross_right_120fov": 2,
        "camera_rear_left_70fov": 3,
        "camera_rear_tele_30fov": 4,
        "camera_rear_right_70fov": 5,
        "camera_front_tele_30fov": 6,
    }
)
"""Numbers of the cameras of PhysicalAI-AV in Alpamayo."""


@attrs.frozen(kw_only=True)
class AlpamayoSettings(parts.RecipeSettings):
    """The arguments of Alpamayo's ``PAIDataset``; the defaults are its own.

    Batches, of B samples at times t0, C cameras in the order of their numbers, T images of each::

        image_frames          (B, C, T, 3, H, W) uint8    RGB, not resized unless by `output_hw`
        camera_indices        (B, C) int64
        absolute_timestamps   (B, C, T) int64             microseconds, times of these images
        relative_timestamps   (B, C, T) float32           seconds after the first image of all
        ego_history_xyz       (B, 1, history, 3) float32  in the vehicle's frame at t0, meters; the last is t0
        ego_history_rot       (B, 1, history, 3, 3) float32
        ego_future_xyz        (B, 1, future, 3) float32
        ego_future_rot        (B, 1, future, 3, 3) float32
        t0_us                 (B,) int64
        clip_id               B texts

    With ``calibration``, also ``extr`` (B, C, 4, 4) float32, camera to vehicle; ``intr`` (B, C, 14) float32:
    width, height, center, ``bw_poly`` and ``fw_poly``; ``ego_lwh`` (B, 3) float32, meters, and
    ``ego_length_offset`` (B,) float32, from the rear axle to the center as a share of the length.

    Attributes:
        num_history_steps: Number of places of the vehicle up to t0.
        num_future_steps: Number of places of the vehicle after t0.
        time_step: Seconds between two places.
        image_times: Times of the images, seconds from t0, ascending.
        camera_numbers: Numbers of the cameras, by name; samples have the cameras of the provider.
        output_hw: Height and width to which images are resized, each axis separately; None: not at all.
        calibration: Whether batches have the calibrations.
    """

    model = "Alpamayo"
    images_key = "image_frames"
    num_history_steps: int = parts.setting(16, checks.whole_number, at_least=1)
    num_future_steps: int = parts.setting(64, checks.whole_number, at_least=1)
    time_step: float = parts.setting(0.1, checks.number, above=0)
    image_times: Sequence[float] = parts.setting(
        (-0.3, -0.2, -0.1, 0.0), checks.number_list, what="a list of seconds, ascending, at least one"
    )
    camera_numbers: Mapping[str, int] = parts.mapping_setting(ALPAMAYO_CAMERAS)
    output_hw: Sequence[int] | None = parts.setting(None, output_size)
    calibration: bool = parts.setting(False, checks.flag)

    def provider_fields(self, is_training: bool = True) -> DrivingFieldSettings:
        """Settings of a `DrivingProvider` for the fields that the model needs; choose ``cameras`` yourself."""
        first = 1 - self.num_history_steps
        fields: DrivingFieldSettings = {
            "boxes": False,
            "image_times": tuple(self.image_times),
            "ego_history": tuple(self.time_step * step for step in range(first, 1)),
            "ego_future": tuple(self.time_step * step for step in range(1, self.num_future_steps + 1)),
        }
        return {**fields, "lenses": True, "vehicle_size": True} if self.calibration else fields


class AlpamayoFormatter(parts.FrameFormatter):
    """Turns a sample of a `DrivingProvider` into the inputs of Alpamayo."""

    _settings: AlpamayoSettings

    @explains_unknown_arguments
    def __init__(self, request: parts.Request) -> None:
        """Create the step for the settings and data of a recipe.

        Raises:
            SettingError: A camera has no number.
        """
        super().__init__(request)
        numbers, names = request.settings.camera_numbers, request.frames.camera_names
        for name in names:
            if name not in numbers:
                hint = f"{checks.did_you_mean(name, numbers)} There are: {checks.listed(numbers)}."
                raise SettingError(f"`camera_numbers` must have all cameras of the provider, not {name!r}.{hint}")
        self._numbers = sorted(numbers[name] for name in names)
        self._order = sorted(range(len(names)), key=lambda place: numbers[names[place]])

    def _fields(self, given: GroupFormat) -> tuple[parts.Fields, parts.Fields]:
        if self._settings.calibration:
            return {**_FIELDS, **_FIELDS_OF_CALIBRATION}, {"extr": (DT.FLOAT, 2), "intr": (DT.FLOAT, 1)}
        return _FIELDS, {}

    def _values(self, data: SampleDataGroup, cameras: Sequence[SampleDataGroup], draws: Draws) -> parts.Values:
        settings, t0_us = self._settings, round(float(data["timestamp"]) * 1e6)
        history_us = round(settings.num_history_steps * settings.time_step * 1e6)
        if t0_us <= history_us:
            raise FieldValueError(
                f"t0 of Alpamayo must be after num_history_steps * time_step, {history_us / 1e6:g} s, as there; "
                f"got {t0_us / 1e6:g} s of {decoded(data['scene'])!r}. Ask for a later moment."
            )
        absolute = np.stack([np.rint(camera["timestamp"] * 1e6).astype(np.int64) for camera in cameras])
        values: dict[str, Any] = {
            "camera_indices": self._numbers,
            "absolute_timestamps": absolute,
            "relative_timestamps": (absolute - absolute.min()).astype(np.float32) * np.float32(1e-6),
            "t0_us": t0_us,
        }
        for name in ("ego_history", "ego_future"):
            places = data[name]
            values |= {f"{name}_xyz": places["positions"][None], f"{name}_rot": places["rotations"][None]}
        if not settings.calibration:
            return values, [{} for _ in cameras]
        size = data["ego"]["vehicle_size"]
        values |= {"ego_lwh": size[:3], "ego_length_offset": size[3] / size[0]}
        return values, [
            {"extr": camera["ego_from_camera"], "intr": np.concatenate([*camera["lens"].values()])}
            for camera in cameras
        ]

    def _in_order(self, cameras: Sequence[SampleDataGroup]) -> list[SampleDataGroup]:
        return [cameras[place] for place in self._order]


_FIELDS: parts.Fields = {
    "camera_indices": (DT.INT64, 1),
    "absolute_timestamps": (DT.INT64, 2),
    "relative_timestamps": (DT.FLOAT, 2),
    "ego_history_xyz": (DT.FLOAT, 3),
    "ego_history_rot": (DT.FLOAT, 4),
    "ego_future_xyz": (DT.FLOAT, 3),
    "ego_future_rot": (DT.FLOAT, 4),
    "t0_us": (DT.INT64, 0),
}
_FIELDS_OF_CALIBRATION: parts.Fields = {"ego_lwh": (DT.FLOAT, 1), "ego_length_offset": (DT.FLOAT, 0)}


def _chain(request: parts.Request) -> parts.Chain:
    images: list[PipelineStepBase] = []
    if request.settings.output_hw is not None:
        images = [for_each("cameras", ImageResizer("image", output_hw=request.settings.output_hw))]
    return parts.Chain([AlpamayoFormatter(request)], images, [])


def _batch(batch: parts.Batch) -> parts.Batch:
    """Bring a batch into the form that `AlpamayoSettings` describes."""
    result = parts.flattened(batch, "image_frames")
    images = result["image_frames"]  # (B, C, T, H, W, 3)
    axes = (0, 1, 2, 5, 3, 4)
    result["image_frames"] = images.permute(axes) if hasattr(images, "permute") else images.transpose(axes)
    return {**result, "clip_id": batch["scene"]}


def _rl_batch(batch: parts.Batch) -> parts.Batch:
    """As `_batch`, with one axis of images, camera after camera, each with an axis of one time."""
    result = _batch(batch)
    num_samples, num_cameras, num_times, *image = result["image_frames"].shape
    result["image_frames"] = result["image_frames"].reshape(num_samples, num_cameras * num_times, 1, *image)
    # The number of a camera for each of its times.
    times, numbers = result["absolute_timestamps"], result["camera_indices"][:, :, None]
    result["camera_indices"] = (numbers + times * 0).reshape(num_samples, -1)
    for name in ("absolute_timestamps", "relative_timestamps"):
        result[name] = result[name].reshape(num_samples, -1)
    return result


ALPAMAYO = Recipe(settings=AlpamayoSettings, chain=_chain, as_batch=_batch, can_reduce=False)
"""The recipe of Alpamayo."""

ALPAMAYO_RL = attrs.evolve(ALPAMAYO, as_batch=_rl_batch)
"""The same in the form that its reinforcement learning takes (``reshape_tensors_for_rl``)."""
