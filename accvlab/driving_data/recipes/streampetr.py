# SPDX-License-Identifier: Apache-2.0
"""StreamPETR: samples as its training and evaluation code takes them."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework import (
    DataProvider,
    PipelineStepBase,
    RandomAccessSampler,
    SampleDataGroup,
    ShuffledSampler,
    UniformDraw,
    checks,
    for_each,
)
from accvlab.dali_pipeline_framework.draws import DrawKey, Draws, NormalDraw, RandomDraw
from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.sample_data import GroupFormat
from accvlab.dali_pipeline_framework.unknown_arguments import explains_unknown_arguments

from ..datasets import DrivingProvider
from ..datasets.driving.array_types import Array, Float64, Int64
from ..datasets.driving.driving_fields import DrivingFieldSettings
from . import recipe_parts as parts
from .image_augmentation import ImageAugmentation, ImagePlan
from .recipe import FrameQueues, Recipe, scene_order, streaming_order
from .recipe_parts import DT, NAMES, PLACE


def visible_boxes(
    boxes: Array, centers: Array, depths: Array, plan: ImagePlan, min_size: float
) -> tuple[Float64, Float64, Int64]:
    """Bring the boxes of an image to its augmented form, and find those that can be seen.

    Scaled, moved and limited to the output; kept where width and height are at least ``min_size``; mirrored; then
    sorted by depth, the farthest first, and painted one over the other: kept is what is not painted over. The
    farthest box also stays as long as some pixel of the image is not painted. Rotation is left out, as there.

    Args:
        boxes: ``(M, 4)``, x1, y1, x2, y2, pixels of the file.
        centers: ``(M, 2)``, pixels of the file; limited to the output, too.
        depths: ``(M,)``.
        plan: Changes of the image.
        min_size: Least width and height, pixels of the output.

    Returns:
        Boxes ``(K, 4)``, centers ``(K, 2)``, and their rows ``(K,)`` in what was given.
    """
    height, width = plan.output_hw
    top, left = plan.corner
    offset, limit = np.array([left, top, left, top]), np.array([width, height, width, height])
    moved = np.clip(np.asarray(boxes, np.float64) * plan.scale - offset, 0, limit)
    points = np.clip(np.asarray(centers, np.float64) * plan.scale - offset[:2], 0, limit[:2])
    sizes = moved[:, 2:] - moved[:, :2]
    rows = np.flatnonzero((sizes >= min_size).all(axis=1))
    moved, points = moved[rows], points[rows]
    if plan.is_flipped:
        moved[:, [0, 2]] = width - moved[:, [2, 0]]
        points[:, 0] = width - points[:, 0]
    far_to_near = np.argsort(-np.asarray(depths)[rows], kind="stable")
    order = far_to_near[_seen(moved[far_to_near], plan.output_hw)]
    return moved[order], points[order], rows[order]


def _seen(boxes: Float64, hw: tuple[int, int]) -> Int64:
    """Numbers of the boxes that are left of those painted one after the other over a map of zeros."""
    if not len(boxes):
        return np.zeros(0, np.int64)
    corners = np.concatenate([np.ceil(boxes[:, :2]), np.floor(boxes[:, 2:])], axis=1).astype(np.int64)
    # Painted on the cells between all edges: the same without the pixels inside.
    edges_x = np.unique(np.concatenate([[0, hw[1]], corners[:, 0], corners[:, 2]]))
    edges_y = np.unique(np.concatenate([[0, hw[0]], corners[:, 1], corners[:, 3]]))
    first_x, end_x = np.searchsorted(edges_x, corners[:, 0]), np.searchsorted(edges_x, corners[:, 2])
    first_y, end_y = np.searchsorted(edges_y, corners[:, 1]), np.searchsorted(edges_y, corners[:, 3])
    painted = np.zeros((len(edges_y) - 1, len(edges_x) - 1), np.int64)
    for row in range(len(boxes)):
        painted[first_y[row] : end_y[row], first_x[row] : end_x[row]] = row
    return np.unique(painted)


FRAMES = "frames"
"""Name of the array of the frames of a window."""


class QueueProvider(FrameQueues):
    """Sample ``i`` is the window of frames that ends at frame ``i`` of a `DrivingProvider`, as in StreamPETR.

    A window has ``length`` of the last ``length + num_random_frames`` frames: of all but the last one,
    ``num_random_frames`` are chosen at random and left out. Windows go over the borders of scenes; ``is_first`` is
    true for the first frame of a window, and where the scene differs from that of the frame before. In place of
    frames before the start of the data set, its first frame is repeated.

    For window ``i``, Python's generator with the seed ``seed + i`` chooses, so the choice is the same in each
    epoch.
    """

    @explains_unknown_arguments
    def __init__(
        self, provider: DrivingProvider, length: int, *, num_random_frames: int = 0, seed: int = 0
    ) -> None:
        """Wrap a provider.

        Args:
            provider: The frames.
            length: Number of frames of a window, ``queue_length``.
            num_random_frames: Number of frames that are left out of a longer window at random, ``random_length``.
            seed: Seed of the choice.

        Raises:
            SettingError: An argument is out of its range.
        """
        super().__init__(provider)
        self._length = checks.whole_number(length, "length", at_least=1)
        self._num_random = checks.whole_number(num_random_frames, "num_random_frames", at_least=0)
        self._seed = checks.whole_number(seed, "seed", at_least=0)

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of a window: an array of frames."""
        blueprint = SampleDataGroup()
        blueprint.add_data_group_field_array(FRAMES, self._provider.sample_data_structure, self._length)
        return blueprint

    def frames_of(self, sample_index: int) -> list[int]:
        """Numbers of the frames of a window, ``length`` of them."""
        last = checks.index_in(sample_index, "sample_index", self.get_number_of_samples())
        before = list(range(last - self._length - self._num_random + 1, last))
        random.Random(self._seed + last).shuffle(before)
        return [max(0, frame) for frame in [*sorted(before[self._num_random :]), last]]

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Load a window; each frame once, also where it is repeated."""
        window, frames = self.new_sample(), self.frames_of(sample_index)
        loaded = self._loaded(frames)
        scenes = [str(loaded[frame]["scene"]) for frame in frames]
        for position, frame in enumerate(frames):
            sample = loaded[frame].get_copy()
            sample["is_first"] = position == 0 or scenes[position] != scenes[position - 1]
            window[FRAMES][position] = sample
        return window

    def for_frames(self, step: PipelineStepBase) -> PipelineStepBase:
        """Apply a step to each frame."""
        return for_each(FRAMES, step)


_IMAGES = ImageAugmentation(scale_range=(0.38, 0.55))


def _image_classes(classes: Sequence[str]) -> tuple[str, ...]:
    return parts.class_list(classes, "image_classes")


@attrs.frozen(kw_only=True)
class StreamPETRSettings(parts.StreamedSettings):
    """The configuration of StreamPETR, by default of ``stream_petr_r50_flash_704``.

    Batches in training have the keys that ``forward_train`` takes, with an axis of frames after the axis of
    samples. `as_mmdet` makes the arguments of ``forward`` from a batch.

    Attributes:
        images: Augmentation of the images, from ``ida_aug_conf``.
        output_hw: Height and width in place of the ones of ``images``, see `ImageAugmentation.with_output`.
        bev_rotation_range: Least and greatest angle of the scene about z, radians: ``rot_range`` of
            ``GlobalRotScaleTransImage``.
        bev_scale_range: Least and greatest factor of the scene: ``scale_ratio_range``.
        bev_translation_std: Standard deviations of the shift of the scene along x, y, z, meters:
            ``translation_std``.
        point_cloud_range: Least and greatest x, y, z, meters; boxes with centers beyond it in x or y are left out.
        classes: Names of the classes, in the order of ``gt_labels_3d`` (published: ``class_names``).
        image_classes: Names of the classes in the order of ``gt_labels``, the labels of 2D boxes; the default is
            that of the published converter.
        min_box_size_px: Least width and height of a 2D box in the output; smaller boxes are left out.
        mean: Means of red, green, blue, from ``img_norm_cfg``.
        std_dev: Standard deviations of red, green, blue, from ``img_norm_cfg``.
        key: Scope in which the draws are constant; ``"sample"``, as in the published code, draws for each
            frame.
        queue_length: In training, None: one frame per slot and step, in the order of time (``seq_mode``). A
            number (published: ``queue_length``): for each frame a window of so many frames that ends at it; the
            windows are shuffled, and ``split`` has no effect.
        num_random_frames: ``random_length``: so many frames are left out of a longer window at random.
        split: ``seq_split_num``, see `SparseDriveSettings`.
    """

    model = "StreamPETR"
    images: ImageAugmentation = attrs.field(default=_IMAGES, validator=parts.IS_AUGMENTATION)
    bev_rotation_range: Sequence[float] = parts.angle_range(-0.3925, 0.3925)
    bev_scale_range: Sequence[float] = parts.setting((0.95, 1.05), checks.number_range, above=0)
    bev_translation_std: Sequence[float] = parts.setting(
        (0.0, 0.0, 0.0), checks.number_list, what="three numbers", count=3
    )
    point_cloud_range: Sequence[float] = parts.setting(
        (-51.2, -51.2, -5.0, 51.2, 51.2, 3.0), parts.point_cloud_range
    )
    image_classes: Sequence[str] = attrs.field(default=parts.CLASSES_OF_CONVERTERS, converter=_image_classes)
    min_box_size_px: float = parts.setting(2.0, checks.number, at_least=0)
    key: DrawKey = attrs.field(default="sample", validator=parts.IS_KEY)
    queue_length: int | None = parts.setting(None, checks.whole_number, at_least=1)
    num_random_frames: int = parts.setting(0, checks.whole_number, at_least=0)

    def __attrs_post_init__(self) -> None:
        """Refuse classes that one of the two orders lacks, and settings of windows that do not go together."""
        missing = sorted({*self.classes} - {*self.image_classes})
        if missing:
            raise SettingError(f"`image_classes` must have all `classes`, it lacks {', '.join(missing)}.")
        if self.queue_length is None and self.num_random_frames:
            raise SettingError(
                f"`num_random_frames` is for windows of frames, and without `queue_length` there are none, got "
                f"{self.num_random_frames!r}. Pass `queue_length`, the number of frames of a window, as well."
            )

    def provider_fields(self, is_training: bool = True) -> DrivingFieldSettings:
        """Settings of a `DrivingProvider` for the fields that the model needs; choose ``cameras`` yourself."""
        fields: DrivingFieldSettings = {"boxes": is_training}
        if is_training:
            fields |= {"boxes_2d": True, "classes": tuple(self.classes), "min_points": 1}
        return fields


class StreamPETRFormatter(parts.AugmentedFrameFormatter):
    """Turns a frame of a `DrivingProvider` into the inputs of StreamPETR; images stay files.

    In training it draws the augmentation of the images, and the augmentation of the scene, which rotates, scales
    and moves boxes, matrices and poses.
    """

    _settings: StreamPETRSettings

    def _draws_of_scene(self, key: DrawKey) -> list[RandomDraw]:
        settings = self._settings
        shifts = zip("xyz", settings.bev_translation_std, strict=True)
        return [
            UniformDraw("bev_angle", *settings.bev_rotation_range, key=key),
            UniformDraw("bev_scale", *settings.bev_scale_range, key=key),
            *(NormalDraw(f"bev_translation_{axis}", 0.0, std_dev, key=key) for axis, std_dev in shifts),
        ]

    def _scene_fields(self, given: GroupFormat) -> tuple[parts.Fields, parts.Fields]:
        return ({**_FIELDS, **_FIELDS_OF_TRAINING}, _FIELDS_OF_CAMERAS) if self._is_training else (_FIELDS, {})

    def _scene(self, data: SampleDataGroup, cameras: parts.Augmented, draws: Draws) -> parts.Values:
        scene, angle, scale = np.eye(4), 0.0, 1.0
        if self._is_training:
            # The published code turns by the negative angle (``reverse_angle=True``).
            angle, scale = -float(draws["bev_angle"]), float(draws["bev_scale"])
            scene = parts.turn_about_z(angle)
            scene[:3] *= scale
            scene[:3, 3] = [float(draws[f"bev_translation_{axis}"]) for axis in "xyz"]
        reference_from_scene = np.linalg.inv(scene)
        intrinsics = np.stack([parts.four_by_four(plan.matrix @ camera["intrinsics"]) for camera, plan in cameras])
        extrinsics = np.stack([camera["camera_from_reference"] for camera, _ in cameras])
        ego_pose = data["ego"]["world_from_reference"] @ reference_from_scene
        values: dict[str, Any] = {
            "lidar2img": intrinsics @ extrinsics @ reference_from_scene,
            "intrinsics": intrinsics,
            "extrinsics": extrinsics,
            "timestamp": data["timestamp"],
            "img_timestamp": np.stack([camera["timestamp"] for camera, _ in cameras]),
            "ego_pose": ego_pose,
            "ego_pose_inv": np.linalg.inv(ego_pose),
        }
        if not self._is_training:
            return values, ()
        is_first = (data[PLACE] if PLACE in data.contained_top_level_field_names else data)["is_first"]
        values["prev_exists"] = 1.0 - np.float32(is_first)
        boxes, limits = data["boxes"], self._settings.point_cloud_range
        kept = parts.is_in_range(boxes["centers"], limits) & (boxes["categories"] >= 0)
        values["gt_bboxes_3d"] = parts.scene_boxes(boxes, kept, scene, angle, scale=scale, z="bottom")
        values["gt_labels_3d"] = self._label_of[boxes["categories"][kept]]
        return values, [self._labels(camera["boxes_2d"], plan) for camera, plan in cameras]

    @functools.cached_property
    def _image_label_of(self) -> Int64:
        return parts.labels_of(self._settings.classes, self._settings.image_classes)[self._label_of]

    def _labels(self, given: SampleDataGroup, plan: ImagePlan) -> dict[str, Any]:
        known = np.flatnonzero(given["categories"] >= 0)
        boxes, centers, depths = (given[name][known] for name in ("boxes", "centers", "depths"))
        boxes, centers, rows = visible_boxes(boxes, centers, depths, plan, self._settings.min_box_size_px)
        labels = self._image_label_of[given["categories"][known][rows]]
        return {"gt_bboxes": boxes, "gt_labels": labels, "centers2d": centers, "depths": depths[rows]}


_FIELDS = {
    "lidar2img": (DT.FLOAT, 3),
    "intrinsics": (DT.FLOAT, 3),
    "extrinsics": (DT.FLOAT, 3),
    "timestamp": (DT.FLOAT64, 0),
    "img_timestamp": (DT.FLOAT64, 1),
    "ego_pose": (DT.FLOAT, 2),
    "ego_pose_inv": (DT.FLOAT, 2),
}
_FIELDS_OF_TRAINING = {"prev_exists": (DT.FLOAT, 0), "gt_bboxes_3d": (DT.FLOAT, 2), "gt_labels_3d": (DT.INT64, 1)}
_FIELDS_OF_CAMERAS = {
    "gt_bboxes": (DT.FLOAT, 2),
    "gt_labels": (DT.INT64, 1),
    "centers2d": (DT.FLOAT, 2),
    "depths": (DT.FLOAT, 1),
}


def _windows(
    frames: DrivingProvider, settings: StreamPETRSettings, *, is_training: bool, seed: int, **_: Any
) -> DataProvider:
    if settings.queue_length is None or not is_training:
        return frames
    return QueueProvider(frames, settings.queue_length, num_random_frames=settings.num_random_frames, seed=seed)


def _training_order(
    settings: StreamPETRSettings, source: DrivingProvider | QueueProvider, seed: int
) -> RandomAccessSampler:
    if isinstance(source, QueueProvider):
        return ShuffledSampler(source.get_number_of_samples(), seed=seed)
    return streaming_order(settings, source, seed)


def _as_published(batch: parts.Batch) -> parts.Batch:
    """Give a batch the names and axes of the published code: in training, an axis of frames."""
    frames = parts.flattened(batch.get(FRAMES, batch))
    names = {name: frames.pop(name) for name in NAMES}
    frames.pop(PLACE, None)
    if "prev_exists" in frames and FRAMES not in batch:
        frames = {name: _with_frames(value) for name, value in frames.items()}
    return {**frames, **names, PLACE: batch[PLACE]}


def _with_frames(value: Any) -> Any:
    """Put an axis of one frame after the axis of samples."""
    return [[each] for each in value] if isinstance(value, list) else value[:, None]


STREAMPETR = Recipe(
    settings=StreamPETRSettings,
    chain=StreamPETRFormatter.chain,
    as_batch=_as_published,
    listed=("gt_bboxes_3d", "gt_labels_3d", *_FIELDS_OF_CAMERAS),
    source=_windows,
    training_order=_training_order,
    evaluation_order=scene_order,
)
"""The recipe of StreamPETR."""
