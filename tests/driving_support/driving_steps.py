"""Steps of driving data: a setting of each and samples, the fields that they need, and their settings."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.array_samples import sample_of
from support.arrays import DT
from support.format_cases import case
from support.public_steps import StepCase
from support.step_settings import StepSettings

from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup
from accvlab.driving_data import steps
from accvlab.driving_data.steps import (
    BEVMaskAdder,
    FutureTrajectoryAdder,
    LidarDepthMapAdder,
    LidarSweepAggregator,
    MapLineVectorizer,
    SceneTransformer,
)


def _drives() -> list[SampleDataGroup]:
    """Lidar points, cameras, lines, boxes and futures; the second sample has as little as there can be."""
    samples = []
    for n in (3, 0):
        points = np.linspace(-3, 3, 4 * (n + 1)).reshape(-1, 4).astype(np.float32)
        lidar = {"points": points, "reference_from_lidar": np.eye(4), "timestamp": np.float64(7)}
        sweep = {**lidar, "points": points[:n], "timestamp": np.float64(6.5)}
        centers = np.linspace(-4, 5, 3 * n).reshape(n, 3).astype(np.float32)
        samples.append(
            sample_of(
                {
                    "lidar": lidar,
                    "sweeps": [sweep, sweep],
                    "cameras": [{"matrix": np.eye(4)}, {"matrix": np.diag([2.0, 2, 1, 1])}],
                    "map_lines": {
                        "points": np.linspace(-5, 5, 6 * n).reshape(-1, 2).astype(np.float32),
                        "num_points": np.full(n, 3, np.int32),
                        "categories": np.arange(n, dtype=np.int32),
                    },
                    "boxes": {
                        "centers": centers,
                        "sizes": np.full((n, 3), 2, np.float32),
                        "yaws": np.arange(n, dtype=np.float32),
                        "categories": np.arange(n, dtype=np.int32),
                        "future_centers": centers[:, np.newaxis] + np.arange(6, dtype=np.float32).reshape(2, 3),
                        "is_future_known": np.tile([True, n > 1], (n, 1)),
                    },
                }
            )
        )
    return samples


DRIVING_STEPS = {
    "BEVMaskAdder": StepCase(
        BEVMaskAdder(
            "masks", x_range=(-8, 8), y_range=(-6, 6), cell_size=1.0, lines=[0], areas=[[0, 1]], boxes=[1]
        ),
        _drives(),
    ),
    "FutureTrajectoryAdder": StepCase(
        FutureTrajectoryAdder(
            "future_centers", known_name="is_future_known", present_name="centers", offset_name="offsets",
            mask_name="mask",
        ),
        _drives(),
    ),
    "LidarDepthMapAdder": StepCase(
        LidarDepthMapAdder(
            "matrix", point_path=("lidar", "points"), image_hw=[6, 8], strides={"depths": 2},
            matrix_path=("lidar", "reference_from_lidar"),
        ),
        _drives(),
    ),
    "LidarSweepAggregator": StepCase(
        LidarSweepAggregator("lidar", num_sweeps=1, selection="drawn"), _drives()
    ),
    "MapLineVectorizer": StepCase(
        MapLineVectorizer("points", count_name="num_points", vector_name="vectors", num_points=4),
        [sample["map_lines"].get_copy() for sample in _drives()],
    ),
    "SceneTransformer": StepCase(
        SceneTransformer(rotation_range=[-1, 1], scaling_range=[0.5, 2], flip_prob_x=0.5, flip_prob_y=0.5),
        [sample_of({name: each[name].to_dictionary() for name in ("boxes", "lidar")}) for each in _drives()],
    ),
}  # fmt: skip

DRIVING_FORMAT: dict[str, Any] = {
    "matrix": DT.FLOAT,
    "lidar": {"xyz": DT.FLOAT, "pose": DT.FLOAT64, "time": DT.FLOAT64},
    "sweeps": {0: {"xyz": DT.FLOAT, "pose": DT.FLOAT64, "time": DT.FLOAT64}},
    "ways": {"places": DT.FLOAT, "is_known": DT.BOOL},
    "lines": {"ends": DT.FLOAT, "num_points": DT.INT32},
    "things": {"centers": DT.FLOAT, "sizes": DT.FLOAT, "yaws": DT.FLOAT, "categories": DT.INT32},
}
_DEPTH_MAPS = LidarDepthMapAdder("matrix", point_path=("lidar", "xyz"), image_hw=[4, 5], strides={"d": 2})
_MASKS = BEVMaskAdder("masks", x_range=[0, 2], y_range=[0, 2], cell_size=1, boxes=[0], box_path="things")
_SWEEPS = LidarSweepAggregator("lidar", point_name="xyz", matrix_name="pose", timestamp_name="time")
_TRAJECTORIES = FutureTrajectoryAdder("places", known_name="is_known", offset_name="o", mask_name="m")
_VECTORS = MapLineVectorizer("ends", count_name="num_points", vector_name="v")
DRIVING_FORMAT_CASES = [
    case(_DEPTH_MAPS, "lidar.xyz", DT.INT32),
    case(_DEPTH_MAPS, "matrix", DT.INT32),
    case(_MASKS, "things.centers", DT.INT32),
    case(_MASKS, "things.categories", DT.FLOAT),
    case(_SWEEPS, "lidar.xyz", DT.FLOAT64),
    case(_SWEEPS, "lidar.pose", DT.FLOAT),
    case(_TRAJECTORIES, "ways.places", DT.INT32),
    case(_TRAJECTORIES, "ways.is_known", DT.INT32),
    case(_VECTORS, "lines.ends", DT.INT32),
    case(_VECTORS, "lines.num_points", DT.FLOAT),
]

DRIVING_SETTINGS = StepSettings(
    steps,
    {
        "BEVMaskAdder": {"mask_path": "m", "x_range": (-3, 3), "y_range": (-3, 3), "cell_size": 1.0, "lines": [0]},
        "FutureTrajectoryAdder": {"future_names": "f", "known_name": "k", "offset_name": "o", "mask_name": "m"},
        "LidarDepthMapAdder": {
            "projection_names": "p",
            "point_path": "q",
            "image_hw": [4, 5],
            "strides": {"d": 2},
        },
        "LidarSweepAggregator": {"num_sweeps": 2, "age_column": 4},
        "SceneTransformer": {"rotation_range": [0, 1], "scaling_range": [0.5, 1]},
        "MapLineVectorizer": {"point_names": "p", "count_name": "n", "vector_name": "v"},
    },
)
