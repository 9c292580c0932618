# SPDX-License-Identifier: Apache-2.0
"""SparseDrive and Sparse4D: samples as their training and evaluation code takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework import (
    DataGroupInPathAppliedStep,
    PipelineStepBase,
    SampleDataGroup,
    UniformDraw,
    UnneededFieldRemover,
    checks,
    for_each,
)
from accvlab.dali_pipeline_framework.draws import DrawKey, Draws, RandomDraw
from accvlab.dali_pipeline_framework.sample_data import GroupFormat

from ..datasets.driving.array_types import Float64
from ..datasets.driving.driving_fields import DrivingFieldSettings
from ..steps.lidar import LidarDepthMapAdder
from ..steps.vectors import FutureTrajectoryAdder, MapLineVectorizer
from . import recipe_parts as parts
from .image_augmentation import ImageAugmentation, UnclippedPhotometricDistorter
from .recipe import Recipe, scene_order, streaming_order
from .recipe_parts import DT

_IMAGES = ImageAugmentation(scale_range=(0.40, 0.47), rotation_range_deg=(-5.4, 5.4))


@attrs.frozen(kw_only=True)
class SparseDriveSettings(parts.StreamedSettings):
    """The configuration of SparseDrive, by default of ``sparsedrive_small_stage2``.

    Batches in training have the keys that ``forward_train`` takes, and the keys of its ``img_metas``
    (``T_global``, ``T_global_inv``, ``instance_id``). `as_mmdet` makes the arguments of ``forward`` from a batch.

    Attributes:
        images: Augmentation of the images, from ``data_aug_conf``.
        output_hw: Height and width in place of the ones of ``images``, see `ImageAugmentation.with_output`.
        rotation_3d_range: Least and greatest angle of the scene about z, radians: ``rot3d_range`` of
            ``data_aug_conf``.
        has_planning: Whether there are map lines, futures and the state of the vehicle; Sparse4D has none.
        has_map: Whether the data set has map lines; if False, samples have zero map lines.
        zero_ego_status: Whether the state of the vehicle counts as 0, for data sets without messages of the CAN
            bus.
        depth_strides: Strides of the depth maps (``strides``), as many as ``num_depth_layers``; () for no depth
            maps.
        circle_range: Boxes whose center is farther from the origin in the x-y plane are left out, meters:
            ``class_dist_thred``.
        classes: Names of the classes, in the order of the labels: ``class_names``.
        num_line_points: Points per map line: ``num_sample``.
        num_future_frames: Future frames of objects: ``fut_ts``.
        num_ego_future_frames: Future frames of the vehicle: ``ego_fut_ts``.
        distorts: Whether the colors of images are changed at random.
        mean: Means of red, green, blue, from ``img_norm_cfg``.
        std_dev: Standard deviations of red, green, blue, from ``img_norm_cfg``.
        key: Scope in which all draws but the colors are constant; ``"sequence"`` as in the published code
            (``keep_consistent_seq_aug``).
        split: In training, number of pieces into which each scene is cut, or ``"all"`` for single frames:
            ``sequences_split_num``.
    """

    projections_key = "projection_mat"
    boxes_z = "center"
    images: ImageAugmentation = attrs.field(default=_IMAGES, validator=parts.IS_AUGMENTATION)
    rotation_3d_range: Sequence[float] = parts.angle_range(0.0, 0.0)
    has_planning: bool = parts.setting(True, checks.flag)
    has_map: bool = parts.setting(True, checks.flag)
    zero_ego_status: bool = parts.setting(False, checks.flag)
    depth_strides: Sequence[int] = parts.setting(
        (4, 8, 16),
        checks.whole_number_list,
        what="a list of whole numbers of at least 1, or () for none",
        at_least=1,
    )
    circle_range: float = parts.setting(55.0, checks.number, above=0)
    num_line_points: int = parts.setting(20, checks.whole_number, at_least=2)
    num_future_frames: int = parts.setting(12, checks.whole_number, at_least=1)
    num_ego_future_frames: int = parts.setting(6, checks.whole_number, at_least=1)
    distorts: bool = parts.setting(True, checks.flag)
    key: DrawKey = attrs.field(default="sequence", validator=parts.IS_KEY)

    @classmethod
    def sparse4d(cls, **changes: Any) -> SparseDriveSettings:
        """Settings of Sparse4D (``sparse4dv3_temporal_r50_1x8_bs6_256x704``), with changes."""
        of_model = {"rotation_3d_range": (-0.3925, 0.3925), "has_planning": False}
        return cls(**{**of_model, **changes})

    @property
    def model(self) -> str:  # type: ignore[override]
        """Name of the model, for messages."""
        return "SparseDrive" if self.has_planning else "Sparse4D"

    def provider_fields(self, is_training: bool = True) -> DrivingFieldSettings:
        """Settings of a `DrivingProvider` for the fields that the model needs; choose ``cameras`` yourself."""
        fields: DrivingFieldSettings = {"boxes": is_training}
        if self.has_planning:
            fields |= {"ego_status": not self.zero_ego_status, "num_ego_future_frames": self.num_ego_future_frames}
        if is_training:
            fields |= {"classes": tuple(self.classes), "min_points": 1}
            if self.depth_strides:
                fields["lidar"] = True
            if self.has_planning:
                fields |= {"num_future_frames": self.num_future_frames, "map_lines": self.has_map}
        return fields


class SparseDriveFormatter(parts.AugmentedFrameFormatter):
    """Turns a frame of a `DrivingProvider` into inputs of SparseDrive and Sparse4D: all but images and depth maps.

    In training it draws the augmentation of the images, and the rotation of the scene. It runs after the steps
    that make trajectories and map lines, see `Recipe.steps`.
    """

    _settings: SparseDriveSettings

    @property
    def _has_depth(self) -> bool:
        return self._is_training and bool(self._settings.depth_strides)

    def _draws_of_scene(self, key: DrawKey) -> list[RandomDraw]:
        return [UniformDraw("rotation_3d", *self._settings.rotation_3d_range, key=key)]

    def _scene_fields(self, given: GroupFormat) -> tuple[parts.Fields, parts.Fields]:
        fields: dict[str, Any] = {**_FIELDS, **(_FIELDS_OF_EGO if self._settings.has_planning else {})}
        if self._is_training:
            fields |= {**_FIELDS_OF_TRAINING, **(_FIELDS_OF_PLANNING if self._settings.has_planning else {})}
        if not self._has_depth:
            return fields, {}
        return {**fields, "lidar": given.at(("lidar",))}, {"depth_projection": (DT.FLOAT64, 2)}

    def _scene(self, data: SampleDataGroup, cameras: parts.Augmented, draws: Draws) -> parts.Values:
        settings, ego = self._settings, data["ego"]
        angle = float(draws["rotation_3d"]) if self._is_training else 0.0
        scene = parts.turn_about_z(angle)
        reference_from_scene = np.linalg.inv(scene)
        projections = [
            parts.four_by_four(plan.matrix @ camera["intrinsics"]) @ camera["camera_from_reference"]
            for camera, plan in cameras
        ]
        world_from_scene = ego["world_from_reference"] @ reference_from_scene
        height, width = self.images.output_hw
        values: dict[str, Any] = {
            "timestamp": data["timestamp"],
            "projection_mat": np.stack(projections) @ reference_from_scene,
            "image_wh": np.tile([width, height], (len(cameras), 1)),
            "T_global": world_from_scene,
            "T_global_inv": np.linalg.inv(world_from_scene),
        }
        if settings.has_planning:
            values["ego_status"] = np.zeros(10, np.float32) if settings.zero_ego_status else ego["status"]
            values["gt_ego_fut_cmd"] = ego["command"]
        if self._is_training:
            values["focal"] = [camera["intrinsics"][0, 0] * plan.scale for camera, plan in cameras]
            values |= self._boxes(data["boxes"], scene, angle)
            if settings.has_planning:
                values |= {"gt_ego_fut_trajs": ego["offsets"], "gt_ego_fut_masks": ego["mask"]}
                values |= self._lines(data)
        if not self._has_depth:
            return values, ()
        return {**values, "lidar": data["lidar"]}, [{"depth_projection": matrix} for matrix in projections]

    def _lines(self, data: SampleDataGroup) -> dict[str, Any]:
        if self._settings.has_map:
            lines = data["map_lines"]
            return {"gt_map_labels": lines["categories"], "gt_map_pts": lines["vectors"]}
        num_points = self._settings.num_line_points
        shape_of_none = (0, 2 * (num_points - 1), num_points, 2)
        return {"gt_map_labels": np.zeros(0, np.int64), "gt_map_pts": np.zeros(shape_of_none, np.float32)}

    def _boxes(self, boxes: SampleDataGroup, scene: Float64, angle: float) -> dict[str, Any]:
        """Boxes in range: z of the center, yaw in [-pi, pi); and what belongs to them. Futures are not turned."""
        distances = np.linalg.norm(np.asarray(boxes["centers"], np.float64)[:, :2], axis=1)
        kept = (distances <= self._settings.circle_range) & (boxes["categories"] >= 0)
        columns = parts.scene_boxes(boxes, kept, scene, angle, z=self._settings.boxes_z)
        columns[:, 6] -= np.floor(columns[:, 6] / (2 * np.pi) + 0.5) * 2 * np.pi
        values = {
            "gt_bboxes_3d": columns,
            "gt_labels_3d": self._label_of[boxes["categories"][kept]],
            "instance_id": boxes["instances"][kept],
        }
        if self._settings.has_planning:
            values["gt_agent_fut_trajs"] = boxes["offsets"][kept]
            values["gt_agent_fut_masks"] = boxes["mask"][kept]
        return values


_FIELDS = {
    "timestamp": (DT.FLOAT64, 0),
    "projection_mat": (DT.FLOAT, 3),
    "image_wh": (DT.FLOAT, 2),
    "T_global": (DT.FLOAT64, 2),
    "T_global_inv": (DT.FLOAT64, 2),
}
_FIELDS_OF_EGO = {"ego_status": (DT.FLOAT, 1), "gt_ego_fut_cmd": (DT.FLOAT, 1)}
_FIELDS_OF_TRAINING = {
    "focal": (DT.FLOAT, 1),
    "gt_bboxes_3d": (DT.FLOAT, 2),
    "gt_labels_3d": (DT.INT64, 1),
    "instance_id": (DT.INT64, 1),
}
_FIELDS_OF_PLANNING = {
    "gt_agent_fut_trajs": (DT.FLOAT, 3),
    "gt_agent_fut_masks": (DT.FLOAT, 2),
    "gt_ego_fut_trajs": (DT.FLOAT, 2),
    "gt_ego_fut_masks": (DT.FLOAT, 1),
    "gt_map_labels": (DT.INT64, 1),
    "gt_map_pts": (DT.FLOAT, 4),
}


def _chain(request: parts.Request) -> parts.Chain:
    settings, is_training = request.settings, request.is_training
    added: dict[str, Any] = {"known_name": "is_future_known", "offset_name": "offsets", "mask_name": "mask"}
    before: list[PipelineStepBase] = []
    if settings.has_planning:
        of_vehicle = {**added, "command_name": "command", "right": request.frames.right_axis}
        before.append(FutureTrajectoryAdder("future_positions", **of_vehicle))
        if is_training:
            before.append(FutureTrajectoryAdder("future_centers", present_name="centers", **added))
        if is_training and settings.has_map:
            vectorizer = MapLineVectorizer(
                "points", count_name="num_points", vector_name="vectors", num_points=settings.num_line_points
            )
            before.append(DataGroupInPathAppliedStep(vectorizer, "map_lines"))
    after: list[PipelineStepBase] = []
    if is_training and settings.depth_strides:
        depth_maps = LidarDepthMapAdder(
            "depth_projection",
            point_path=("lidar", "points"),
            matrix_path=("lidar", "reference_from_lidar"),
            image_hw=settings.augmentation.output_hw,
            strides={f"depth_{place}": size for place, size in enumerate(settings.depth_strides)},
        )
        after = [depth_maps, UnneededFieldRemover(["depth_projection", "lidar"])]
    distorters = [UnclippedPhotometricDistorter("image")] if is_training and settings.distorts else []
    changes = [for_each("cameras", step) for step in distorters]
    return SparseDriveFormatter.chain(request, before=before, after=after, changes=changes)


def _as_published(batch: parts.Batch) -> parts.Batch:
    """Give a batch the names of the published code."""
    result = parts.flattened(batch)
    depths = [result.pop(name) for name in batch["cameras"] if name.startswith("depth_")]
    return {**result, **({"gt_depth": depths} if depths else {})}


SPARSEDRIVE = Recipe(
    settings=SparseDriveSettings,
    chain=_chain,
    as_batch=_as_published,
    listed=(
        *("gt_bboxes_3d", "gt_labels_3d", "instance_id"),
        *("gt_agent_fut_trajs", "gt_agent_fut_masks", "gt_map_labels", "gt_map_pts"),
    ),
    training_order=streaming_order,
    evaluation_order=scene_order,
)
"""The recipe of SparseDrive and Sparse4D."""
