# SPDX-License-Identifier: Apache-2.0
"""Batches of recipes as arguments of ``forward`` of models of the mmdetection3d family, without that package."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from accvlab.dali_pipeline_framework.checks import listed
from accvlab.dali_pipeline_framework.errors import SettingError

from .recipe_parts import PLACE, Batch

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch


def _columns(columns: slice | int | list[int], doc: str) -> property:
    """A property: some columns of the numbers of boxes."""

    def read(boxes: LidarBoxes) -> torch.Tensor:
        return boxes.tensor[:, columns]

    return property(read, doc=doc)


class LidarBoxes:
    """3D boxes with the columns of ``LiDARInstance3DBoxes``, and those of its methods that models use.

    Attributes:
        tensor: ``(n, 9)``: x, y, z of the bottom, length, width, height, yaw, velocity x, y. Columns 3 to 6 of
            BEVFormer's boxes are as `BEVFormerSettings.box_layout` says; ``dims``, ``bev``, ``yaw`` and
            ``corners`` are right for "l,w,h,yaw" only.
    """

    YAW_AXIS = 2
    with_yaw = True

    def __init__(self, tensor: torch.Tensor, box_dim: int = 9, with_yaw: bool = True, **_: object) -> None:
        """Hold boxes; other arguments of the replaced class are ignored."""
        self.tensor = tensor.reshape(-1, box_dim)
        self.box_dim = box_dim

    center = bottom_center = _columns(slice(3), "Centers of the bottom faces, ``(n, 3)``.")
    dims = _columns(slice(3, 6), "Length, width, height, ``(n, 3)``.")
    bev = _columns([0, 1, 3, 4, 6], "x, y, length, width, yaw, ``(n, 5)``.")
    bottom_height = _columns(2, "z of the bottom, ``(n,)``.")
    height = _columns(5, "Heights, ``(n,)``.")
    yaw = _columns(6, "Yaws, ``(n,)``, radians.")

    @property
    def gravity_center(self) -> torch.Tensor:
        """Centers, ``(n, 3)``."""
        centers = self.tensor[:, :3].clone()
        centers[:, 2] += self.tensor[:, 5] * 0.5
        return centers

    @property
    def volume(self) -> torch.Tensor:
        """Volumes, ``(n,)``."""
        return self.tensor[:, 3] * self.tensor[:, 4] * self.tensor[:, 5]

    @property
    def top_height(self) -> torch.Tensor:
        """z of the top, ``(n,)``."""
        return self.tensor[:, 2] + self.tensor[:, 5]

    @property
    def corners(self) -> torch.Tensor:
        """Corners, ``(n, 8, 3)``; the first four have the lower x in the frame of the box."""
        import torch

        steps = torch.tensor(
            [[0, 0, 0], [0, 0, 1], [0, 1, 1], [0, 1, 0], [1, 0, 0], [1, 0, 1], [1, 1, 1], [1, 1, 0]]
        ).to(self.tensor)
        corners = self.dims[:, None] * (steps - self.tensor.new_tensor([0.5, 0.5, 0.0]))
        cos, sin = torch.cos(self.yaw)[:, None], torch.sin(self.yaw)[:, None]
        x, y, z = corners.unbind(-1)
        return torch.stack([cos * x - sin * y, sin * x + cos * y, z], dim=-1) + self.tensor[:, None, :3]

    @property
    def device(self) -> torch.device:
        """Where the boxes are."""
        return self.tensor.device

    def to(self, device: Any, *arguments: Any, **settings: Any) -> LidarBoxes:
        """Get them on another device."""
        return LidarBoxes(self.tensor.to(device, *arguments, **settings), self.box_dim)

    def clone(self) -> LidarBoxes:
        """Get a copy."""
        return LidarBoxes(self.tensor.clone(), self.box_dim)

    def new_box(self, data: npt.ArrayLike | torch.Tensor) -> LidarBoxes:
        """Make boxes of ``data``, ``(n, 9)``, on the same device."""
        import torch

        return LidarBoxes(torch.as_tensor(data, dtype=self.tensor.dtype, device=self.device), self.box_dim)

    def limit_yaw(self, offset: float = 0.5, period: float = 2 * math.pi) -> None:
        """Bring yaw into a period, ``[-offset * period, (1 - offset) * period)``."""
        self.tensor[:, 6] -= (self.tensor[:, 6] / period + offset).floor() * period

    def in_range_bev(self, box_range: Sequence[float] | torch.Tensor) -> torch.Tensor:
        """Which boxes have their center in x1, y1, x2, y2, ``(n,)`` bool."""
        x, y = self.tensor[:, 0], self.tensor[:, 1]
        return (x > box_range[0]) & (y > box_range[1]) & (x < box_range[2]) & (y < box_range[3])

    def __len__(self) -> int:
        return len(self.tensor)

    def __getitem__(self, rows: Any) -> LidarBoxes:
        """Get some boxes; of a number, one."""
        return LidarBoxes(self.tensor[rows], self.box_dim)

    def __repr__(self) -> str:
        return f"LidarBoxes(\n{self.tensor})"


class _Held:
    """What StreamPETR looks into as into a ``DataContainer``."""

    def __init__(self, data: LidarBoxes | torch.Tensor) -> None:
        self._data = self.data = data


def as_mmdet(batch: Batch, device: torch.device | str | None = None) -> Batch:
    """Make the arguments of ``forward`` from a batch of a recipe, as mmcv's ``scatter`` passes them.

    Training: ``model(return_loss=True, **as_mmdet(batch))``; evaluation: ``return_loss=False``. Boxes of
    StreamPETR and BEVFormer are `LidarBoxes`. ``img_metas`` hold the entries that the models use, and
    ``sample_token`` and ``is_padding``, to gather results; they lack ``filename`` and ``ori_shape``.

    A camera without labels has ``gt_bboxes`` of shape (0, 4), where the published code can also have (0,).

    Args:
        batch: The batch, of a loader with ``output_type="torch"``.
        device: Where tensors are moved to; None leaves them.

    Raises:
        SettingError: The batch is of another recipe.
    """
    moved = _moved({name: value for name, value in batch.items() if name not in _BESIDE}, device)
    if "ego_pose" in moved:
        return _of_streampetr(batch, moved) if "prev_exists" in moved else _of_evaluation(batch, moved)
    if "projection_mat" in moved:
        return _of_sparsedrive(batch, moved)
    if "prev_bev_exists" in moved:
        return _of_bevformer(batch, moved)
    raise SettingError(
        f"This is no batch of StreamPETR, SparseDrive, Sparse4D or BEVFormer: it has {listed(batch)}. Give what "
        "the loader of their recipe delivers."
    )


_BESIDE = ("token", "scene", PLACE)
_METAS_OF_SPARSEDRIVE = ("T_global", "T_global_inv", "timestamp", "instance_id")


def _moved(value: Any, device: torch.device | str | None) -> Any:
    if isinstance(value, Mapping):
        return {name: _moved(each, device) for name, each in value.items()}
    if isinstance(value, list):
        return [_moved(each, device) for each in value]
    return value if device is None or isinstance(value, str) else value.to(device, non_blocking=True)


def _meta(batch: Batch, sample: int, images: torch.Tensor, frame: int | None = None) -> Batch:
    """What models of mmdetection3d look up of a sample, or a frame of it; ``images``: ``(cameras, 3, H, W)``."""
    names = [batch[name][sample] for name in ("scene", "token")]
    scene, token = (name if frame is None or isinstance(name, str) else str(name[frame]) for name in names)
    shapes = [(*images.shape[-2:], images.shape[-3])] * len(images)
    return {
        "scene_token": scene,
        "sample_token": token,
        "is_padding": bool(batch[PLACE]["is_padding"][sample]),
        "img_shape": shapes,
        "pad_shape": shapes,
        "scale_factor": 1.0,
        "box_type_3d": LidarBoxes,
        "box_mode_3d": 0,
    }


def _of_streampetr(batch: Batch, moved: Batch) -> Batch:
    boxes = [[LidarBoxes(tensor) for tensor in frames] for frames in moved["gt_bboxes_3d"]]
    metas = [
        [
            {
                **_meta(batch, sample, image, frame),
                "gt_bboxes_3d": _Held(boxes[sample][frame]),
                "gt_labels_3d": _Held(moved["gt_labels_3d"][sample][frame]),
            }
            for frame, image in enumerate(images)
        ]
        for sample, images in enumerate(moved["img"])
    ]
    return {**moved, "gt_bboxes_3d": boxes, "img_metas": metas}


def _of_evaluation(batch: Batch, moved: Batch) -> Batch:
    metas = [_meta(batch, sample, images) for sample, images in enumerate(moved["img"])]
    others = {name: [list(value)] for name, value in moved.items() if name != "img"}
    return {"img": [moved["img"]], "img_metas": [metas], **others}


def _of_sparsedrive(batch: Batch, moved: Batch) -> Batch:
    metas = []
    for sample, images in enumerate(moved["img"]):
        meta = _meta(batch, sample, images)
        meta = {name: meta[name] for name in ("scene_token", "sample_token", "is_padding")}
        for name in _METAS_OF_SPARSEDRIVE:
            if name in batch:
                value = batch[name][sample].cpu().numpy()
                meta[name] = value if value.ndim else float(value)
        metas.append(meta)
    only_in_metas = ("T_global", "T_global_inv", "instance_id")
    return {**{name: moved[name] for name in moved if name not in only_in_metas}, "img_metas": metas}


_METAS_OF_BEVFORMER = ("can_bus", "prev_bev_exists", "lidar2img", "lidar2cam")


def _of_bevformer(batch: Batch, moved: Batch) -> Batch:
    """Training: a dict of the frames of the queue for each sample; evaluation: a list of one list."""
    arrays = {name: batch[name].cpu().numpy() for name in _METAS_OF_BEVFORMER}
    if "gt_bboxes_3d" not in batch:
        metas = [
            {**_meta(batch, sample, images), **{name: value[sample] for name, value in arrays.items()}}
            for sample, images in enumerate(moved["img"])
        ]
        return {"img": [moved["img"]], "img_metas": [metas]}
    queues = [
        {
            frame: {**_meta(batch, sample, image), **{name: each[sample][frame] for name, each in arrays.items()}}
            for frame, image in enumerate(images)
        }
        for sample, images in enumerate(moved["img"])
    ]
    boxes = [LidarBoxes(tensor) for tensor in moved["gt_bboxes_3d"]]
    return {"img": moved["img"], "gt_bboxes_3d": boxes, "gt_labels_3d": moved["gt_labels_3d"], "img_metas": queues}
