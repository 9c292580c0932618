# SPDX-License-Identifier: Apache-2.0
"""Batches of the recipes as pictures: what the model is given, drawn with the matrices that it is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import index_in, number_list
from accvlab.dali_pipeline_framework.errors import SettingError

from ..datasets.driving.array_types import Array, UInt8
from ..viewing.lenses import FThetaLens
from ..viewing.scene_views import CameraView, EgoPath, SceneView, bearing_of
from .alpamayo import AlpamayoSettings
from .bevformer import BEVFormerSettings
from .bevfusion import BEVFusionSettings
from .detection_2d import Detection2DSettings
from .recipe_parts import LAYOUTS, Batch
from .sparsedrive import SparseDriveSettings
from .streampetr import StreamPETRSettings

OfDetectors = (
    StreamPETRSettings | SparseDriveSettings | BEVFormerSettings | BEVFusionSettings | Detection2DSettings
)
Settings = OfDetectors | AlpamayoSettings


def batch_view(
    batch: Batch,
    settings: Settings,
    sample: int = 0,
    *,
    frame: int = -1,
    camera_names: Sequence[str] = (),
    ahead: Sequence[float] = (0.0, 1.0),
) -> SceneView:
    """Make a view of a sample in a batch of a recipe, for `show` or `save_recording`.

    Boxes are the labels of the model, drawn with the projection matrices of its input.

    Args:
        batch: A batch of the recipe's loader.
        settings: The settings of the recipe: they say which model it is, and how images were normalized.
        sample: Number of the sample in the batch.
        frame: Number of the frame of a queue. If the model learns the boxes of the last frame only, other frames
            are shown without boxes.
        camera_names: Names of the cameras, one for each. If empty, cameras are numbered.
        ahead: Direction of the vehicle, as x and y of the lidar; the default, along y, is that of nuScenes.

    Raises:
        SettingError: The batch is from another recipe, or has no such sample.
    """
    if not isinstance(settings, Settings):
        known = ", ".join(each.__name__ for each in get_args(Settings))
        raise SettingError(f"`settings` must be one of {known}, got {type(settings).__name__}.")
    images_key = settings.images_key
    if images_key not in batch or "token" not in batch:
        raise SettingError(
            f"The batch must be one of the recipe of {type(settings).__name__}: it has no {images_key!r}. There "
            f"are: {', '.join(map(repr, batch))}."
        )
    sample = index_in(sample, "sample", len(batch["token"]))
    if isinstance(settings, AlpamayoSettings):
        return _of_alpamayo(batch, settings, sample, frame)
    title = f"{_of_frame(batch['scene'][sample], frame)}   token {_of_frame(batch['token'][sample], frame)}"
    images, heatmaps = batch[images_key], batch.get("hm")
    if isinstance(settings, Detection2DSettings):  # (B * C, ...)
        shape = (len(batch["token"]), -1)
        images, heatmaps = (x if x is None else x.reshape(*shape, *x.shape[1:]) for x in (images, heatmaps))
    images = _array(_of_frame(images[sample], frame, num_axes=4))  # (C, 3, H, W)
    names = camera_names or [f"camera {number}" for number in range(len(images))]
    if len(names) != len(images):
        raise SettingError(f"`camera_names` must have a name for each of {len(images)} cameras, got {len(names)}.")
    cameras = [
        CameraView(name=name, image=_picture(image, settings)) for name, image in zip(names, images, strict=True)
    ]
    if isinstance(settings, Detection2DSettings):
        seen = [None] * len(cameras) if heatmaps is None else _array(heatmaps[sample]).max(axis=1)
        cameras = [attrs.evolve(each, heatmap=heatmap) for each, heatmap in zip(cameras, seen, strict=True)]
        return SceneView(title=title, cameras=cameras)
    ahead_xy = np.array(number_list(ahead, "ahead", "two numbers", count=2))
    cameras = [
        attrs.evolve(camera, image_from_reference=matrix[:3], bearing=bearing_of(matrix, ahead_xy))
        for camera, matrix in zip(cameras, _projections(batch, settings, sample, frame), strict=True)
    ]
    points = _array(batch["points"][sample])[:, :3] if "points" in batch else np.zeros((0, 3))
    num_frames = count_frames(batch, sample)
    is_last = frame in (-1, num_frames - 1) or not num_frames
    # Lists have the boxes of each frame.
    has_boxes = "gt_bboxes_3d" in batch and (is_last or isinstance(batch["gt_bboxes_3d"][sample], list))
    boxes = _boxes(batch, settings, sample, -1 if is_last else frame) if has_boxes else {}
    direction = ahead_xy / float(np.hypot(*ahead_xy))
    return SceneView(title=title, cameras=cameras, points=points, ahead=direction, **boxes)


def _of_alpamayo(batch: Batch, settings: AlpamayoSettings, sample: int, frame: int) -> SceneView:
    """One image of each camera, with the lens where the batch has calibrations; and the way of the vehicle."""
    names = {number: name for name, number in settings.camera_numbers.items()}
    numbers, images = _array(batch["camera_indices"][sample]).tolist(), batch["image_frames"][sample]
    cameras = []
    for place, number in enumerate(numbers):
        camera = CameraView(
            name=names[number], image=_array(_of_frame(images[place], frame, num_axes=3)).transpose(1, 2, 0)
        )
        if "extr" in batch:
            mounted = _array(batch["extr"][sample][place]).astype(np.float64)
            lens = np.split(_array(batch["intr"][sample][place]).astype(np.float64), [2, 4, 9])
            resized = FThetaLens(*lens).resized(camera.image.shape[1::-1])
            camera_from_ego = np.linalg.inv(mounted)[:3]
            camera = attrs.evolve(camera, lens=resized, camera_from_reference=camera_from_ego)
        cameras.append(camera)
    steps = settings.time_step * np.arange(1 - settings.num_history_steps, settings.num_future_steps + 1)
    history, future = (_array(batch[f"ego_{name}_xyz"][sample])[0] for name in ("history", "future"))
    return SceneView(
        title=f"{batch['clip_id'][sample]}   t0 {int(batch['t0_us'][sample]) / 1e6:g} s",
        cameras=cameras,
        history=EgoPath(positions=history, times=steps[: len(history)]),
        future=EgoPath(positions=future, times=steps[len(history) :]),
    )


def _boxes(batch: Batch, settings: OfDetectors, sample: int, frame: int) -> dict[str, Any]:
    boxes = _array(_of_frame(batch["gt_bboxes_3d"][sample], frame, num_axes=2)).astype(np.float64)
    labels = _array(_of_frame(batch["gt_labels_3d"][sample], frame, num_axes=1))
    centers, sizes, yaws = boxes[:, :3].copy(), boxes[:, 3:6], boxes[:, 6]
    if getattr(settings, "box_layout", LAYOUTS[0]) == LAYOUTS[1]:
        sizes, yaws = sizes[:, [1, 0, 2]], -yaws - np.pi / 2
    if settings.boxes_z == "bottom":
        centers[:, 2] += sizes[:, 2] / 2
    return {
        "centers": centers,
        "sizes": sizes,
        "yaws": yaws,
        "velocities": boxes[:, 7:9],
        "categories": labels.astype(np.int64),
        "class_names": tuple(settings.classes),
    }


def _projections(batch: Batch, settings: OfDetectors, sample: int, frame: int) -> Array:
    """From the scene as the boxes are in it to pixels times depth, ``(C, 4, 4)`` float64."""
    if isinstance(settings, BEVFusionSettings):
        image, lidar, scene = (
            _array(batch[name][sample]).astype(np.float64)
            for name in ("img_aug_matrix", "lidar2image", "lidar_aug_matrix")
        )
        # `img_aug_matrix` maps pixels; its translation is in the last column, not in that of the depth.
        change = np.tile(np.eye(4), (len(image), 1, 1))
        change[:, :2, :2], change[:, :2, 2] = image[:, :2, :2], image[:, :2, 3]
        return np.asarray(change @ lidar @ np.linalg.inv(scene))
    return _array(_of_frame(batch[settings.projections_key][sample], frame, num_axes=3)).astype(np.float64)


def count_frames(batch: Batch, sample: int = 0) -> int:
    """Count the frames of a sample of a batch of a recipe; 0 where images have no axis of frames."""
    if "img" not in batch:
        return 0
    images = batch["img"][index_in(sample, "sample", len(batch["token"]))]
    return len(images) if isinstance(images, list) or images.ndim == 5 else 0


def _of_frame(value: Any, frame: int, num_axes: int | None = None) -> Any:
    """Take the frame of a queue out of a list, or out of an array with one more axis."""
    if isinstance(value, list) or (num_axes is not None and value.ndim == num_axes + 1):
        return value[index_in(frame + len(value) if frame < 0 else frame, "frame", len(value))]
    return value


def _array(value: Any) -> Array:
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def _picture(image: Array, settings: OfDetectors) -> UInt8:
    pixels = image.transpose(1, 2, 0) * np.array(settings.std_dev) + np.array(settings.mean)
    return np.asarray(np.rint(pixels).clip(0, 255), np.uint8)
