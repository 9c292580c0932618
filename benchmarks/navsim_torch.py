# SPDX-License-Identifier: Apache-2.0
"""What NAVSIM's feature builders compute, in a data set of PyTorch, in the way in which they compute it.

NAVSIM itself needs nuPlan's devkit and older versions of most packages, so it cannot be installed next to this
package. This is written anew after what it computes, and delivers the same arrays: per sample, the frames of the
scene become objects with poses by pyquaternion; images are decoded as a whole by Pillow, joined, and resized by
OpenCV; a point cloud becomes six rows of float32, and a histogram by ``np.histogramdd``; boxes are looked at one
by one. The map seen from above is left out, here and there.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import cv2
import numpy as np
import torch
from PIL import Image
from pyquaternion import Quaternion
from torch.utils.data import Dataset

HISTORY, FUTURE, POSES = 4, 10, 8
CAMERAS = ("cam_l0", "cam_f0", "cam_r0")
RANGE_M, CELLS_PER_METER, MAX_POINTS, SPLIT_HEIGHT, MAX_HEIGHT, NUM_AGENTS = 32.0, 4, 5, 0.2, 100.0, 30
_FIELDS = ("x", "y", "z", "intensity", "ring", "lidar_info")


@attrs.define
class EgoStatus:
    pose: np.ndarray
    velocity: np.ndarray
    acceleration: np.ndarray
    command: np.ndarray


@attrs.define
class Frame:
    token: str
    time: int
    ego: EgoStatus
    boxes: np.ndarray
    names: list[str]
    velocities: np.ndarray
    track_tokens: list[str]
    images: dict[str, np.ndarray]
    points: np.ndarray | None


def ego_status(frame: dict[str, Any]) -> EgoStatus:
    place, turn = frame["ego2global_translation"], Quaternion(*frame["ego2global_rotation"])
    state = frame["ego_dynamic_state"]
    return EgoStatus(
        np.array([place[0], place[1], turn.yaw_pitch_roll[0]], dtype=np.float64),
        np.array(state[:2], dtype=np.float32),
        np.array(state[2:], dtype=np.float32),
        frame["driving_command"],
    )


def points_of(path: Path) -> np.ndarray:
    """Rows ``(6, n)`` float32."""
    buffer, header = io.BytesIO(path.read_bytes()), {}
    while "DATA" not in header:
        words = buffer.readline().decode().split()
        header[words[0]] = words[1:]
    kinds = [f"{kind.lower()}{size}" for kind, size in zip(header["TYPE"], header["SIZE"], strict=True)]
    rows = np.frombuffer(buffer.read(), np.dtype(list(zip(header["FIELDS"], kinds, strict=True))))
    return np.array([np.array(rows[name], dtype=np.float32) for name in _FIELDS])


def seen_from(origin: np.ndarray, poses: np.ndarray) -> np.ndarray:
    turn = -origin[2]
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    relative = poses - origin
    relative[..., :2] = relative[..., :2] @ rotation.T
    relative[:, 2] = np.arctan2(np.sin(relative[:, 2]), np.cos(relative[:, 2]))
    return relative


class Scenes(Dataset[Any]):
    """Scenes of logs, as ``SceneLoader`` and ``Scene``; derived classes make features and targets."""

    sensors: Sequence[str] = ()

    def __init__(self, root: Path) -> None:
        self.root = root
        self.scenes: list[list[dict[str, Any]]] = []
        for path in sorted((root / "navsim_logs" / "mini").glob("*.pkl")):
            frames = pickle.loads(path.read_bytes())
            windows = [frames[first : first + HISTORY + FUTURE] for first in range(len(frames))]
            self.scenes += [
                window
                for window in windows
                if len(window) == HISTORY + FUTURE and window[HISTORY - 1]["roadblock_ids"]
            ]

    def __len__(self) -> int:
        return len(self.scenes)

    def frame(self, stored: dict[str, Any], is_current: bool) -> Frame:
        blobs, boxes = self.root / "sensor_blobs" / "mini", stored["anns"]
        images = {
            name: np.array(Image.open(blobs / stored["cams"][name.upper()]["data_path"]))
            for name in self.sensors
            if is_current and name.startswith("cam")
        }
        points = points_of(blobs / stored["lidar_path"]) if is_current and "lidar_pc" in self.sensors else None
        return Frame(
            stored["token"],
            stored["timestamp"],
            ego_status(stored),
            boxes["gt_boxes"],
            boxes["gt_names"],
            boxes["gt_velocity_3d"],
            boxes["track_tokens"],
            images,
            points,
        )

    def __getitem__(self, number: int) -> Any:
        stored = self.scenes[number]
        frames = [self.frame(frame, place == HISTORY - 1) for place, frame in enumerate(stored)]
        poses = np.array([frame.ego.pose for frame in frames], dtype=np.float64)
        local = seen_from(poses[HISTORY - 1], poses[:HISTORY])
        history = [
            EgoStatus(
                np.array(pose, dtype=np.float32), frame.ego.velocity, frame.ego.acceleration, frame.ego.command
            )
            for pose, frame in zip(local, frames, strict=False)
        ]
        future = seen_from(poses[HISTORY - 1], poses[HISTORY : HISTORY + POSES])
        features, targets = self.of(frames[HISTORY - 1], history)
        return features, {"trajectory": torch.tensor(future), **targets}, frames[HISTORY - 1].token

    def of(self, current: Frame, history: Sequence[EgoStatus]) -> tuple[dict[str, Any], dict[str, Any]]:
        raise NotImplementedError


class EgoStatusScenes(Scenes):
    """Of ``EgoStatusMLPAgent``."""

    def of(self, current: Frame, history: Sequence[EgoStatus]) -> tuple[dict[str, Any], dict[str, Any]]:
        state = history[-1]
        status = (torch.tensor(each) for each in (state.velocity, state.acceleration, state.command))
        return {"ego_status": torch.cat([*status], dim=-1).to(torch.float32)}, {}


class TransFuserScenes(Scenes):
    """Of ``TransfuserAgent``, without the map."""

    sensors = (*CAMERAS, "lidar_pc")

    def of(self, current: Frame, history: Sequence[EgoStatus]) -> tuple[dict[str, Any], dict[str, Any]]:
        state = history[-1]
        status = [
            torch.tensor(each, dtype=torch.float32) for each in (state.command, state.velocity, state.acceleration)
        ]
        features = {
            "camera_feature": panorama(current.images),
            "lidar_feature": histogram(current.points),
            "status_feature": torch.concatenate(status),
        }
        states, labels = agents(current)
        return features, {"agent_states": torch.tensor(states), "agent_labels": torch.tensor(labels)}


def panorama(images: dict[str, np.ndarray]) -> torch.Tensor:
    left, front, right = (images[name] for name in CAMERAS)
    joined = np.concatenate([left[28:-28, 416:-416], front[28:-28], right[28:-28, 416:-416]], axis=1)
    resized = cv2.resize(joined, (1024, 256))
    return torch.from_numpy(resized).permute(2, 0, 1).contiguous().to(torch.float32).div(255)


def histogram(rows: np.ndarray | None) -> torch.Tensor:
    assert rows is not None
    points = rows[:3].T
    points = points[points[..., 2] < MAX_HEIGHT]
    above = points[points[..., 2] > SPLIT_HEIGHT]
    edges = np.linspace(-RANGE_M, RANGE_M, int(2 * RANGE_M) * CELLS_PER_METER + 1)
    counts = np.histogramdd(above[:, :2], bins=(edges, edges))[0]
    counts[counts > MAX_POINTS] = MAX_POINTS
    features = np.stack([counts / MAX_POINTS], axis=-1)
    return torch.tensor(np.transpose(features, (2, 0, 1)).astype(np.float32))


def agents(current: Frame) -> tuple[np.ndarray, np.ndarray]:
    found = []
    for box, name in zip(current.boxes, current.names, strict=True):
        x, y, heading, length, width = box[0], box[1], box[6], box[3], box[4]
        if name == "vehicle" and -RANGE_M <= x <= RANGE_M and -RANGE_M <= y <= RANGE_M:
            found.append(np.array([x, y, heading, length, width], dtype=np.float32))
    states, labels = np.zeros((NUM_AGENTS, 5), dtype=np.float32), np.zeros(NUM_AGENTS, dtype=bool)
    if found:
        stacked = np.array(found)
        nearest = np.argsort(np.linalg.norm(stacked[..., :2], axis=-1))[:NUM_AGENTS]
        states[: len(nearest)], labels[: len(nearest)] = stacked[nearest], True
    return states, labels
