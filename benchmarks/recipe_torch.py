# SPDX-License-Identifier: Apache-2.0
"""What the recipe for StreamPETR does, in a data set of PyTorch with OpenCV and NumPy.

The steps are those of the published code, in ways that are quick: images are cropped before they are mirrored and
normalized, by OpenCV, and become float once. Frames are read by the same provider.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import torch
from step_torch import normalize
from torch.utils.data import Dataset, default_collate

from accvlab.driving_data.datasets import DrivingProvider
from accvlab.driving_data.recipes import StreamPETRSettings

LISTED = ("gt_bboxes_3d", "gt_labels_3d", "gt_bboxes", "gt_labels", "centers2d", "depths")


class StreamPETRSamples(Dataset[dict[str, Any]]):
    """Frames for training, as StreamPETR takes them."""

    def __init__(self, provider: DrivingProvider, settings: StreamPETRSettings) -> None:
        self.provider = provider
        self.settings = settings
        self.labels = np.array([settings.classes.index(name) for name in provider.class_names])
        self.image_labels = np.array([settings.image_classes.index(name) for name in provider.class_names])

    def __len__(self) -> int:
        return self.provider.get_number_of_samples()

    def __getitem__(self, index: int) -> dict[str, Any]:
        settings, images = self.settings, self.settings.images
        frame = self.provider.get_data(index).to_dictionary()
        cameras = [frame["cameras"][number] for number in range(len(frame["cameras"]))]
        decoded = [cv2.imdecode(camera["image"], cv2.IMREAD_COLOR) for camera in cameras]
        draw = np.random.default_rng().uniform
        scale = draw(*images.scale_range)
        size = int(decoded[0].shape[1] * scale), int(decoded[0].shape[0] * scale)
        height, width = images.output_hw
        left, top = int(draw(*images.crop_x_range) * max(0, size[0] - width)), size[1] - height
        is_flipped = draw() < images.flip_prob
        plane = np.array([[scale, 0, -left], [0, scale, -top], [0, 0, 1.0]])
        if is_flipped:
            plane = np.array([[-1, 0, width], [0, 1, 0], [0, 0, 1.0]]) @ plane
        pictures = np.empty((1, len(cameras), 3, height, width), np.float32)
        for number, image in enumerate(decoded):
            normalized = normalize(augmented(image, size, (left, top), images.output_hw, is_flipped))
            pictures[0, number] = normalized.transpose(2, 0, 1)
        angle, factor = -draw(*settings.bev_rotation_range), draw(*settings.bev_scale_range)
        motion = np.eye(4)
        motion[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        motion[:3] *= factor
        inverse = np.linalg.inv(motion)
        intrinsics = np.tile(np.eye(4), (len(cameras), 1, 1))
        intrinsics[:, :3, :3] = [plane @ camera["intrinsics"] for camera in cameras]
        extrinsics = np.stack([camera["camera_from_reference"] for camera in cameras])
        ego_pose = frame["ego"]["world_from_reference"] @ inverse
        result = {
            "img": pictures,
            "lidar2img": np.float32(intrinsics @ extrinsics @ inverse)[None],
            "intrinsics": np.float32(intrinsics)[None],
            "extrinsics": np.float32(extrinsics)[None],
            "timestamp": np.float64(frame["timestamp"])[None],
            "img_timestamp": np.stack([camera["timestamp"] for camera in cameras])[None],
            "ego_pose": np.float32(ego_pose)[None],
            "ego_pose_inv": np.float32(np.linalg.inv(ego_pose))[None],
            "prev_exists": np.float32(not frame["is_first"])[None],
            **self.boxes(frame["boxes"], motion, angle, factor),
        }
        labels = [self.labels_2d(camera["boxes_2d"], scale, (left, top), is_flipped) for camera in cameras]
        of_cameras = {name: [[torch.from_numpy(each[name]) for each in labels]] for name in labels[0]}
        return {**{name: torch.from_numpy(value) for name, value in result.items()}, **of_cameras}

    def boxes(self, boxes: Any, motion: Any, angle: float, factor: float) -> dict[str, Any]:
        limits = self.settings.point_cloud_range
        centers = boxes["centers"].astype(np.float64)
        x, y = centers[:, :2].T
        kept = (x > limits[0]) & (y > limits[1]) & (x < limits[3]) & (y < limits[4]) & (boxes["categories"] >= 0)
        centers, sizes = centers[kept], boxes["sizes"][kept].astype(np.float64)
        centers[:, 2] -= sizes[:, 2] / 2
        velocities = np.nan_to_num(boxes["velocities"][kept, :2].astype(np.float64), nan=0.0)
        columns = [
            centers @ motion[:3, :3].T,
            sizes * factor,
            boxes["yaws"][kept].astype(np.float64)[:, None] + angle,
            velocities @ motion[:2, :2].T,
        ]
        labels = self.labels[boxes["categories"][kept]]
        return {"gt_bboxes_3d": np.float32(np.concatenate(columns, axis=1)), "gt_labels_3d": labels}

    def labels_2d(self, given: Any, scale: float, corner: tuple[int, int], is_flipped: bool) -> dict[str, Any]:
        """As the published code: the boxes are painted, far to near, and what is left is kept."""
        height, width = self.settings.images.output_hw
        limits, offset = np.array([width, height] * 2), np.array([*corner] * 2)
        boxes = np.clip(given["boxes"].astype(np.float64) * scale - offset, 0, limits)
        centers = np.clip(given["centers"].astype(np.float64) * scale - offset[:2], 0, limits[:2])
        large = ((boxes[:, 2:] - boxes[:, :2]) >= self.settings.min_box_size_px).all(axis=1)
        rows = np.flatnonzero(large & (given["categories"] >= 0))
        boxes, centers, depths = boxes[rows], centers[rows], given["depths"][rows]
        if is_flipped:
            boxes[:, [0, 2]] = width - boxes[:, [2, 0]]
            centers[:, 0] = width - centers[:, 0]
        order = np.argsort(-depths, kind="stable")
        if len(order):
            painted = np.zeros((height, width), np.int32)
            corners = np.concatenate([np.ceil(boxes[order, :2]), np.floor(boxes[order, 2:])], axis=1).astype(int)
            for number, (first_x, first_y, end_x, end_y) in enumerate(corners.tolist()):
                painted[first_y:end_y, first_x:end_x] = number
            order = order[np.flatnonzero(np.bincount(painted.ravel(), minlength=len(order)))]
        return {
            "gt_bboxes": np.float32(boxes[order]),
            "gt_labels": self.image_labels[given["categories"][rows[order]]],
            "centers2d": np.float32(centers[order]),
            "depths": depths[order],
        }


def augmented(
    image: npt.NDArray[np.uint8],
    size: tuple[int, int],
    corner: tuple[int, int],
    output_hw: tuple[int, int],
    is_flipped: bool,
) -> npt.NDArray[np.uint8]:
    """Resize all of a BGR image, crop, and mirror: RGB.

    Means of 2 x 2 pixels where they fit, a blur, then a cubic filter: close to Pillow's, which the published code
    has, and quick.
    """
    (left, top), (height, width) = corner, output_hw
    if 2 * size[0] <= image.shape[1]:
        image = cv2.resize(image, (image.shape[1] // 2, image.shape[0] // 2), interpolation=cv2.INTER_AREA)
    share = 0.022 + 0.55 * max(1 - size[0] / image.shape[1], 0) ** 1.5
    weights = np.array([share, 1 - 2 * share, share])
    resized = cv2.resize(cv2.sepFilter2D(image, -1, weights, weights), size, interpolation=cv2.INTER_CUBIC)
    resized = resized[max(top, 0) : top + height, left : left + width]
    if resized.shape[:2] != output_hw:  # beyond the image: black
        below, beside = height - resized.shape[0], width - resized.shape[1]
        resized = cv2.copyMakeBorder(resized, below, 0, 0, beside, cv2.BORDER_CONSTANT)
    resized = cv2.cvtColor(resized, cv2.COLOR_BGR2RGB)
    return np.asarray(cv2.flip(resized, 1) if is_flipped else resized)


def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Stack what has one shape; the rest stays a list."""
    return {
        name: [sample[name] for sample in samples]
        if name in LISTED
        else default_collate([sample[name] for sample in samples])
        for name in samples[0]
    }
