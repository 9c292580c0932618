"""Small data sets of LeRobot, in the layouts v3.0 and v2.1."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from support.videos import make_video

from accvlab.driving_data.testing.written_files import write_files

LENGTHS = (4, 3, 5)
FPS = 25
FEATURE = "observation.images.front"
REAR = "observation.images.rear"
REAR_NUMBERS = 100  # what frames of the rear camera show more than those in front
TASKS = ("follow the road", "turn left, über die Brücke")


def write_lerobot(
    root: Path,
    version: str = "v3.0",
    *,
    left_out: Sequence[str] = (),
    columns: Mapping[str, Any] = {},
    cameras: Sequence[str] = (FEATURE, REAR),
    options: Mapping[str, str] | None = None,
    images: Sequence[bytes] = (),
    stats: Mapping[str, Any] = {},
    **info: Any,
) -> Path:
    """Write episodes of 4, 3 and 5 rows; v3.0 has two of them in one video, and one in another.

    Frames in front show the number of their row, those behind 100 more. ``state`` is ``(row, episode)``.

    Args:
        root: The folder.
        version: ``"v3.0"`` or ``"v2.1"``.
        left_out: Columns that are left out.
        columns: Columns of rows that are others, or more.
        cameras: Names of the features that are videos.
        options: Of the encoder of the videos.
        images: Files of pictures of a further feature, ``observation.images.top``, one per row.
        stats: Statistics that are others.
        info: What is other in ``info.json``.
    """
    number = np.concatenate([np.full(length, place) for place, length in enumerate(LENGTHS)])
    frame = np.concatenate([np.arange(length) for length in LENGTHS])
    rows: dict[str, Any] = {
        "observation.state": np.stack([np.arange(len(frame)), number], axis=1).astype(np.float32),
        "action": np.stack([frame, -frame, number], axis=1).astype(np.float32),
        "timestamp": (frame / FPS).astype(np.float32),
        "frame_index": frame,
        "episode_index": number,
        "index": np.arange(len(frame)),
        "task_index": number % 2,
        **columns,
    }
    features: dict[str, Any] = {name: {"dtype": "video", "shape": [64, 96, 3]} for name in cameras}
    for name, values in rows.items():
        dtype = "string" if values.dtype.kind == "U" else values.dtype.name
        features[name] = {"dtype": dtype, "shape": list(values.shape[1:]) or [1]}
    if images:
        features["observation.images.top"] = {"dtype": "image", "shape": [64, 96, 3]}
        rows["observation.images.top"] = [{"bytes": content, "path": None} for content in images]
    rows = {name: values.tolist() if not isinstance(values, list) else values for name, values in rows.items()}
    rows = _typed({name: values for name, values in rows.items() if name not in left_out}, features)
    is_v3 = version == "v3.0"
    data_path, video_path = _PATHS[version]
    head = {
        "codebase_version": version,
        "fps": FPS,
        "chunks_size": 1000,
        "features": features,
        "data_path": data_path,
        "video_path": video_path,
        **info,
    }
    files: dict[str, Any] = {"meta/info.json": {key: value for key, value in head.items() if key not in left_out}}
    file_of = np.array([0, 0, 1] if is_v3 else [0, 1, 2])  # of each episode
    for file in np.unique(file_of).tolist():
        place = {"chunk_index": 0, "file_index": file, "episode_chunk": 0, "episode_index": file}
        of_file = np.flatnonzero(file_of[number] == file)
        files[data_path.format(**place)] = {name: column.take(of_file) for name, column in rows.items()}
        for camera in cameras:
            path = root / video_path.format(video_key=camera, **place)
            path.parent.mkdir(parents=True, exist_ok=True)
            first = int(of_file[0]) + REAR_NUMBERS * (camera == REAR)
            make_video(path, len(of_file), "libx264", options=options, first_number=first)
    values = {name: np.array(rows[name].to_pylist()) for name in ("observation.state", "action") if name in rows}
    if is_v3:
        files |= _meta_of_v3(file_of, cameras, left_out)
        whole = {name: statistics_of(of_name) for name, of_name in values.items()}
        files["meta/stats.json"] = {**whole, **stats}
    else:
        episodes = range(len(LENGTHS))
        of_episodes = [{name: statistics_of(each[number == k]) for name, each in values.items()} for k in episodes]
        lines: dict[str, list[dict[str, Any]]] = {
            "episodes": [{"episode_index": k, "length": LENGTHS[k], "tasks": []} for k in episodes],
            "tasks": [{"task_index": place, "task": task} for place, task in enumerate(TASKS)],
            "episodes_stats": [{"episode_index": k, "stats": {**of_episodes[k], **stats}} for k in episodes],
        }
        for name, of_name in lines.items():
            kept = [{key: value for key, value in line.items() if key not in left_out} for line in of_name]
            files[f"meta/{name}.jsonl"] = "".join(f"{json.dumps(line)}\n" for line in kept)
    return write_files(root, files)


_PATHS = {
    "v3.0": (
        "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    ),
    "v2.1": (
        "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
    ),
}


def _typed(rows: dict[str, Any], features: Mapping[str, Any]) -> dict[str, Any]:
    """As columns of the types that the features say."""
    import pyarrow as pa

    typed = {}
    for name, values in rows.items():
        dtype, shape = features[name]["dtype"], features[name]["shape"]
        if dtype == "image":
            typed[name] = pa.array(values)
            continue
        kind = pa.string() if dtype == "string" else pa.from_numpy_dtype(np.dtype(dtype))
        for size in reversed([] if shape == [1] else shape):
            kind = pa.list_(kind, size)
        typed[name] = pa.array(values, kind)
    return typed


def statistics_of(values: np.ndarray) -> dict[str, Any]:
    """Statistics of rows, as LeRobot writes them."""
    of_rows = {what: getattr(values, what)(axis=0).tolist() for what in ("mean", "std", "min", "max")}
    return {**of_rows, "count": [len(values)]}


def _meta_of_v3(file_of: np.ndarray, cameras: Sequence[str], left_out: Sequence[str]) -> dict[str, Any]:
    """Tables of episodes and tasks; those of episodes, too, are several."""
    ends, starts = np.cumsum(LENGTHS), np.array([0, 4, 0]) / FPS
    episodes: dict[str, Any] = {
        "episode_index": np.arange(3),
        "length": np.array(LENGTHS),
        "dataset_from_index": ends - LENGTHS,
        "dataset_to_index": ends,
        "data/chunk_index": 0 * file_of,
        "data/file_index": file_of,
    }
    for camera in cameras:
        episodes[f"videos/{camera}/chunk_index"] = 0 * file_of
        episodes[f"videos/{camera}/file_index"] = file_of
        episodes[f"videos/{camera}/from_timestamp"] = starts
        episodes[f"videos/{camera}/to_timestamp"] = starts + np.array(LENGTHS) / FPS
    kept = {name: column for name, column in episodes.items() if name not in left_out}
    return {"meta/tasks.parquet": {"task_index": [0, 1], "task": [*TASKS]}} | {
        f"meta/episodes/chunk-000/file-{part:03d}.parquet": {
            name: column[file_of == part] for name, column in kept.items()
        }
        for part in (0, 1)
    }


def pack(root: Path, target: Path, method: int = zipfile.ZIP_STORED) -> Path:
    """Pack a folder as a ZIP file, tables compressed."""
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(root.rglob("*")):
            is_video = path.suffix == ".mp4"
            archive.write(path, str(path.relative_to(root)), method if is_video else zipfile.ZIP_DEFLATED)
    return target
