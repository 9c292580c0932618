# SPDX-License-Identifier: Apache-2.0
"""A data set in the layout v3.0 of LeRobot: three cameras, a video for each, of about 0.3 bits per pixel."""

from __future__ import annotations

import json
from pathlib import Path

import av
import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet

CAMERAS = tuple(f"observation.images.{name}" for name in ("front", "left", "right"))
FPS = 10


def write_lerobot(root: Path, *, num_episodes: int, num_frames: int, hw: tuple[int, int]) -> Path:
    """Write episodes of ``num_frames`` each."""
    total, path = num_episodes * num_frames, "chunk-{chunk_index:03d}/file-{file_index:03d}"
    frame = np.tile(np.arange(num_frames), num_episodes)
    episode = np.repeat(np.arange(num_episodes), num_frames)
    for seed, camera in enumerate(CAMERAS):
        _write_video(root / f"videos/{camera}/chunk-000/file-000.mp4", total, hw, seed)
    generator = np.random.default_rng(0)
    rows = {
        name: generator.random((total, size), np.float32)
        for name, size in (("observation.state", 8), ("action", 3))
    }
    columns = {
        **{
            name: pa.array(values.tolist(), pa.list_(pa.float32(), values.shape[1]))
            for name, values in rows.items()
        },
        "timestamp": (frame / FPS).astype(np.float32),
        "frame_index": frame,
        "episode_index": episode,
        "index": np.arange(total),
        "task_index": np.zeros(total, np.int64),
    }
    starts = np.arange(num_episodes) * num_frames
    zeros = np.zeros(num_episodes, np.int64)
    episodes = {
        "episode_index": np.arange(num_episodes),
        "tasks": [["follow the road"]] * num_episodes,
        "length": np.full(num_episodes, num_frames),
        "dataset_from_index": starts,
        "dataset_to_index": starts + num_frames,
        "data/chunk_index": zeros,
        "data/file_index": zeros,
        "meta/episodes/chunk_index": zeros,
        "meta/episodes/file_index": zeros,
    }
    for camera in CAMERAS:
        episodes |= {f"videos/{camera}/chunk_index": zeros, f"videos/{camera}/file_index": zeros}
        episodes[f"videos/{camera}/from_timestamp"] = starts / FPS
        episodes[f"videos/{camera}/to_timestamp"] = (starts + num_frames) / FPS
    tasks = pa.table({"task_index": [0], "task": ["follow the road"]})
    kinds = {"task_index": ("int64", "int64"), "task": ("unicode", "object")}
    known = [
        {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": dtype, "metadata": None}
        for name, (kind, dtype) in kinds.items()
    ]
    index = {"index_columns": ["task"], "columns": known, "column_indexes": [], "pandas_version": "2.2"}
    tables = {
        "data/chunk-000/file-000.parquet": pa.table(columns),
        "meta/episodes/chunk-000/file-000.parquet": pa.table(episodes),
        "meta/tasks.parquet": tasks.replace_schema_metadata({"pandas": json.dumps(index)}),
    }
    for name, table in tables.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        pa.parquet.write_table(table, root / name)
    number = {"dtype": "int64", "shape": [1], "names": None}
    features = {
        **{
            name: {"dtype": "video", "shape": [*hw, 3], "names": ["height", "width", "channels"]}
            for name in CAMERAS
        },
        **{name: {"dtype": "float32", "shape": [values.shape[1]], "names": None} for name, values in rows.items()},
        "timestamp": {"dtype": "float32", "shape": [1], "names": None},
        **dict.fromkeys(["frame_index", "episode_index", "index", "task_index"], number),
    }
    info = {
        "codebase_version": "v3.0",
        "robot_type": "car",
        "fps": FPS,
        "total_episodes": num_episodes,
        "total_frames": total,
        "total_tasks": 1,
        "chunks_size": 1000,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "splits": {"train": f"0:{num_episodes}"},
        "features": features,
        "data_path": f"data/{path}.parquet",
        "video_path": f"videos/{{video_key}}/{path}.mp4",
    }
    (root / "meta/info.json").write_text(json.dumps(info))
    stats = {name: _statistics(values) for name, values in rows.items()}
    (root / "meta/stats.json").write_text(json.dumps(stats))
    return root


def _statistics(values: np.ndarray) -> dict[str, list[float]]:
    of_rows = {what: getattr(values, what)(axis=0).tolist() for what in ("mean", "std", "min", "max")}
    return {**of_rows, "count": [len(values)]}


def _write_video(path: Path, num_frames: int, hw: tuple[int, int], seed: int) -> None:
    """Write a video of a moving picture, a key frame every second frame, as LeRobot does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    generator, (height, width) = np.random.default_rng(seed), hw
    coarse = generator.integers(0, 256, (height // 24, width // 12, 3), np.uint8)
    fine = generator.integers(0, 40, (height, 2 * width, 3), np.uint8)
    scene = cv2.resize(coarse, (2 * width, height), interpolation=cv2.INTER_CUBIC)
    scene = cv2.add(scene // 2 + 40, cv2.GaussianBlur(fine, (0, 0), 1.5))
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS, options={"g": "2", "crf": "23", "preset": "veryfast"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for number in range(num_frames):
            first = 4 * number % width
            image = np.ascontiguousarray(scene[:, first : first + width])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))
