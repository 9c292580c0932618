# SPDX-License-Identifier: Apache-2.0
"""The data of BEVFusion: lidar sweeps and cameras, and the matrices of their augmentations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from attrs.validators import optional

from accvlab.dali_pipeline_framework import (
    SampleDataGroup,
    UniformDraw,
    UnneededFieldRemover,
    checks,
)
from accvlab.dali_pipeline_framework.checks import valid
from accvlab.dali_pipeline_framework.draws import DrawKey, Draws, IntegerDraw, NormalDraw, RandomDraw
from accvlab.dali_pipeline_framework.extension import moved
from accvlab.dali_pipeline_framework.sample_data import GroupFormat

from ..datasets.driving.array_types import Float32, Float64
from ..datasets.driving.driving_fields import DrivingFieldSettings
from ..steps.lidar import LidarSweepAggregator
from ..steps.vectors import BEVMaskAdder, Classes
from . import recipe_parts as parts
from .image_augmentation import ImageAugmentation
from .recipe import Recipe
from .recipe_parts import DT

_IMAGES = ImageAugmentation(scale_range=(0.38, 0.55), rotation_range_deg=(-5.4, 5.4))
_OF_CAMERAS = ("camera_intrinsics", "camera2ego", "lidar2camera", "camera2lidar", "lidar2image", "img_aug_matrix")


@attrs.frozen(kw_only=True)
class BEVMasks:
    """Masks of the map and of boxes, seen from above: ``gt_masks_bev``, see `BEVMaskAdder`.

    Attributes:
        x_range: Least and greatest x, meters: ``xbound``.
        y_range: Least and greatest y, meters: ``ybound``.
        cell_size: Length of a side of a cell, meters.
        lines: Categories of map lines drawn as lines, a mask each.
        areas: Categories of map lines drawn as areas, a mask each.
        boxes: Labels of boxes, a mask each.
        line_width: Width of drawn lines, meters.
    """

    x_range: tuple[float, float] = (-50.0, 50.0)
    y_range: tuple[float, float] = (-50.0, 50.0)
    cell_size: float = 0.5
    lines: Classes = ()
    areas: Classes = ()
    boxes: Classes = ()
    line_width: float = 1.0

    def step(self) -> BEVMaskAdder:
        """Make the step that adds the masks."""
        return BEVMaskAdder("gt_masks_bev", box_path="boxes", line_path="map_lines", **attrs.asdict(self))


@attrs.frozen(kw_only=True)
class BEVFusionSettings(parts.AugmentedSettings):
    """The configuration of BEVFusion, by default of its camera and lidar detector.

    Batches, of B frames and C cameras; all matrices float32::

        img                (B, C, 3, H, W) float32
        points             B tensors (P, K) float32   with the age of their sweep
        gt_bboxes_3d       B tensors (n, 9) float32   (evaluation: if the provider has them)
        gt_labels_3d       B tensors (n,) int64
        gt_masks_bev       (B, masks, cells in x, cells in y) int64     with `masks`
        camera_intrinsics, camera2ego, lidar2camera, camera2lidar, lidar2image, img_aug_matrix    (B, C, 4, 4)
        lidar2ego, lidar_aug_matrix                                                               (B, 4, 4)
        token, scene       B texts
        place              position of the sample

    ``img_aug_matrix`` moves pixels (x, y in the first two columns, the shift in the last one), and
    ``lidar_aug_matrix`` points and boxes; the other matrices are those before the augmentations.

    For rare classes, use a `WeightedSampler` of `class_balanced_weights` (``CBGSDataset`` in the published code).

    Attributes:
        images: Augmentation of the images, drawn for each (``augment2d``); in evaluation, the mean factor and
            bottom crop, in the middle of the width, without mirroring and rotation.
        output_hw: Height and width in place of the ones of ``images``, see `ImageAugmentation.with_output`.
        num_sweeps: Number of earlier lidar sweeps whose points are added: ``sweeps_num``.
        num_loaded_sweeps: In training, ``num_sweeps`` of this number of newest sweeps are drawn; in evaluation,
            the newest ones are taken.
        age_column: Number of the column of points that becomes the age of the sweep; None for a new column.
        close_distance: Points of sweeps nearer than this in x and in y are left out, meters.
        fills_up: Whether copies of the frame's points replace the sweeps if there are none: ``pad_empty_sweeps``.
        shuffles_points: Whether points come in random order in training.
        rotation_range: Least and greatest angle of the scene, radians, clockwise as in the published code:
            ``augment3d.rotate``.
        scale_range: Least and greatest factor of the scene: ``augment3d.scale``.
        translation_std: ``augment3d.translate``: standard deviation of the shift along each axis, before
            the scaling, meters.
        flip_prob: Probability that the scene is mirrored in x, and in y.
        point_cloud_range: Least and greatest x, y, z, meters. Points on these limits or beyond are left out, and
            boxes with such a center; z of centers is not checked.
        masks: Map lines, areas and boxes that are drawn as masks; None for no masks.
        classes: Names of the classes, in the order of ``gt_labels_3d``: ``object_classes``.
        box_layout: Columns 3 to 6 of boxes: "w,l,h,-yaw-pi/2" (as in the published code) or "l,w,h,yaw".
        mean: Means of red, green, blue.
        std_dev: Standard deviations of red, green, blue.
        emulates_reference: Whether z of boxes is the center's, as in the published code, whose box class takes it
            for the bottom: so its boxes are half their height too high. Otherwise z is at the bottom.
        key: Scope in which the draws are constant.
    """

    model = "BEVFusion"
    images: ImageAugmentation = attrs.field(default=_IMAGES, validator=parts.IS_AUGMENTATION)
    num_sweeps: int = parts.setting(9, checks.whole_number, at_least=0)
    num_loaded_sweeps: int = parts.setting(10, checks.whole_number, at_least=0)
    age_column: int | None = parts.setting(4, checks.whole_number, may_be_none=True, at_least=3)
    close_distance: float = parts.setting(1.0, checks.number, at_least=0)
    fills_up: bool = parts.setting(True, checks.flag)
    shuffles_points: bool = parts.setting(True, checks.flag)
    rotation_range: tuple[float, float] = parts.angle_range(-0.78539816, 0.78539816)
    scale_range: tuple[float, float] = parts.setting((0.9, 1.1), checks.number_range, above=0)
    translation_std: float = parts.setting(0.5, checks.number, at_least=0)
    flip_prob: float = parts.setting(0.5, checks.probability)
    point_cloud_range: Sequence[float] = parts.setting(
        (-54.0, -54.0, -5.0, 54.0, 54.0, 3.0), parts.point_cloud_range
    )
    masks: BEVMasks | None = attrs.field(default=None, validator=optional(valid(checks.instance, cls=BEVMasks)))
    box_layout: str = parts.setting(parts.LAYOUTS[1], checks.choice, allowed=parts.LAYOUTS)
    emulates_reference: bool = parts.setting(False, checks.flag)
    key: DrawKey = attrs.field(default="sample", validator=parts.IS_KEY)

    @property
    def boxes_z(self) -> str:  # type: ignore[override]
        """What z of boxes in a batch is: ``"bottom"`` or ``"center"``."""
        return "center" if self.emulates_reference else "bottom"

    def provider_fields(self, is_training: bool = True) -> DrivingFieldSettings:
        """Settings of a `DrivingProvider` for the fields that the model needs; choose ``cameras`` yourself."""
        num_sweeps = max(self.num_sweeps, self.num_loaded_sweeps) if is_training else self.num_sweeps
        fields: DrivingFieldSettings = {"lidar": True, "reference": "lidar"}
        if self.num_sweeps:
            fields["num_sweeps"] = num_sweeps
        has_lines = self.masks is not None and bool(self.masks.lines or self.masks.areas)
        if has_lines:
            fields["map_lines"] = True
        if is_training or (self.masks is not None and self.masks.boxes):
            return {**fields, "boxes": True, "classes": tuple(self.classes), "min_points": 1}
        return {**fields, "boxes": False}


class BEVFusionFormatter(parts.AugmentedFrameFormatter):
    """Turns a frame of a `DrivingProvider` into the inputs of BEVFusion; images stay files.

    In training it draws the augmentation of each image, and the augmentation of the scene, which rotates, shifts,
    scales and mirrors points, boxes, and lines.
    """

    draws_for_each_camera = True
    _settings: BEVFusionSettings

    @staticmethod
    def _without_chance(images: ImageAugmentation) -> ImageAugmentation:
        """As ``ImageAug3D`` in evaluation: the mean factor and the mean crop."""
        scale = None if images.scale_range is None else (sum(images.scale_range) / 2,) * 2
        return attrs.evolve(images.for_evaluation(), scale_range=scale)

    def _draws_of_scene(self, key: DrawKey) -> list[RandomDraw]:
        settings = self._settings
        return [
            UniformDraw("angle", *settings.rotation_range, key=key),
            UniformDraw("size", *settings.scale_range, key=key),
            NormalDraw("shift", 0.0, settings.translation_std, shape=(3,), key=key),
            UniformDraw("mirrors", shape=(2,), key=key),
            IntegerDraw("point_order", 0, 2**31 - 1, key=key),
        ]

    def _scene_change(self, draws: Draws) -> Float64:
        """``lidar_aug_matrix``, ``(4, 4)``."""
        scene = np.eye(4)
        if self._is_training:
            scene = parts.turn_about_z(-float(draws["angle"]))
            scene[:3, 3] = draws["shift"]
            scene[:3] *= float(draws["size"])
            # First the y axis, then the x axis.
            for axis, drawn in zip((1, 0), draws["mirrors"], strict=True):
                if drawn < self._settings.flip_prob:
                    scene[axis] *= -1
        return scene

    def _scene_fields(self, given: GroupFormat) -> tuple[parts.Fields, parts.Fields]:
        fields: dict[str, Any] = dict.fromkeys(("points", "lidar2ego", "lidar_aug_matrix"), (DT.FLOAT, 2))
        if "boxes" in given.index:
            fields |= {"gt_bboxes_3d": (DT.FLOAT, 2), "gt_labels_3d": (DT.INT64, 1)}
        fields |= {name: given.at((name,)) for name in self._masked(given)}
        return fields, dict.fromkeys(_OF_CAMERAS, (DT.FLOAT, 2))

    def _masked(self, given: GroupFormat) -> list[str]:
        """Names of the groups that masks are made of."""
        has_masks = self._settings.masks is not None
        return [name for name in ("boxes", "map_lines") if has_masks and name in given.index]

    def _scene(self, data: SampleDataGroup, cameras: parts.Augmented, draws: Draws) -> parts.Values:
        of_cameras = []
        for camera, plan in cameras:
            matrix = np.eye(4)
            matrix[:2, :2], matrix[:2, 3] = plan.matrix[:2, :2], plan.matrix[:2, 2]
            intrinsics = parts.four_by_four(camera["intrinsics"])
            lidar2camera = camera["camera_from_reference"]
            inverse, image = np.linalg.inv(lidar2camera), intrinsics @ lidar2camera
            matrices = (intrinsics, camera["ego_from_camera"], lidar2camera, inverse, image, matrix)
            of_cameras.append(dict(zip(_OF_CAMERAS, matrices, strict=True)))
        scene = self._scene_change(draws)
        values: dict[str, Any] = {
            "points": self._points(data["lidar"]["points"], scene, draws),
            "lidar2ego": data["ego"]["ego_from_reference"],
            "lidar_aug_matrix": scene,
        }
        masked = self._masked(data.format)
        if "boxes" in data.contained_top_level_field_names:
            boxes = _moved_boxes(data["boxes"], scene)
            values["gt_bboxes_3d"], values["gt_labels_3d"] = parts.mmdet_boxes(
                boxes,
                self._label_of,
                layout=self._settings.box_layout,
                z=self._settings.boxes_z,
                point_cloud_range=self._settings.point_cloud_range,
            )
            if "boxes" in masked:
                boxes["categories"] = np.append(self._label_of, -1)[boxes["categories"]].astype(np.int32)
                values["boxes"] = boxes
        if "map_lines" in masked:
            values["map_lines"] = _moved_lines(data["map_lines"], scene)
        return values, of_cameras

    def _points(self, points: Float32, scene: Float64, draws: Draws) -> Float32:
        """Move points, keep those in range, and shuffle them; without sweeps, all have an age of 0."""
        xyz = moved(scene, np.asarray(points[:, :3], np.float64)).astype(np.float32)
        limits = np.asarray(self._settings.point_cloud_range, np.float32)
        rows = np.flatnonzero(((xyz > limits[:3]) & (xyz < limits[3:])).all(axis=1))
        if self._is_training and self._settings.shuffles_points:
            rows = np.random.default_rng(int(draws["point_order"])).permutation(rows)
        joined = np.concatenate([xyz[rows], points[rows, 3:]], axis=1)
        if self._settings.num_sweeps:
            return joined
        column = self._settings.age_column
        if column is None:
            return np.pad(joined, ((0, 0), (0, 1)))
        joined[:, column : column + 1] = 0  # where points have such a column
        return joined


def _moved_boxes(boxes: SampleDataGroup, scene: Float64) -> SampleDataGroup:
    """Boxes in the scene as it is turned, shifted, scaled and mirrored."""
    changed, yaws = boxes.get_copy(), np.asarray(boxes["yaws"], np.float64)
    ahead = np.stack([np.cos(yaws), np.sin(yaws)], axis=-1) @ scene[:2, :2].T
    values = {
        "centers": moved(scene, np.asarray(boxes["centers"], np.float64)),
        "sizes": boxes["sizes"] * np.cbrt(abs(np.linalg.det(scene[:3, :3]))),
        "yaws": np.arctan2(ahead[:, 1], ahead[:, 0]),
        "velocities": boxes["velocities"] @ scene[:3, :3].T,
    }
    for name, value in values.items():
        changed[name] = value.astype(np.float32)
    return changed


def _moved_lines(lines: SampleDataGroup, scene: Float64) -> SampleDataGroup:
    changed = lines.get_copy()
    flat = np.column_stack([lines["points"], np.zeros(len(lines["points"]))])
    changed["points"] = moved(scene, flat)[:, :2].astype(np.float32)
    return changed


def _chain(request: parts.Request) -> parts.Chain:
    settings = request.settings
    before, after = [], []
    if settings.num_sweeps:
        sweeps = LidarSweepAggregator(
            "lidar",
            num_sweeps=settings.num_sweeps,
            age_column=settings.age_column,
            close_distance=settings.close_distance,
            fills_up=settings.fills_up,
            selection="drawn" if request.is_training else "newest",
            num_candidates=settings.provider_fields(request.is_training)["num_sweeps"],
            key=settings.key,
        )
        before = [sweeps]
    if settings.masks is not None:
        after = [settings.masks.step(), UnneededFieldRemover(["boxes", "map_lines"]).with_run("workers")]
    return BEVFusionFormatter.chain(request, before=before, after=after)


def _batch(batch: parts.Batch) -> parts.Batch:
    """Bring a batch into the form that `BEVFusionSettings` describes."""
    result = parts.flattened(batch)
    if "gt_masks_bev" in result:
        result["gt_masks_bev"] = parts.with_type(result["gt_masks_bev"], "int64")
    return result


BEVFUSION = Recipe(
    settings=BEVFusionSettings,
    chain=_chain,
    as_batch=_batch,
    listed=("points", "gt_bboxes_3d", "gt_labels_3d"),
    unchecked=("classes", "min_points"),
    labels_any_boxes=True,
)
"""The recipe of BEVFusion."""
