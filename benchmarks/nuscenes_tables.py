"""Tables of any size in the format of nuScenes, without images and points: what reading them costs.

Numbers are drawn, but sizes are as in nuScenes: per scene 20 s of six cameras at 12 Hz, a lidar at 20 Hz and five
radars at 13 Hz, a pose for each record, keyframes at 2 Hz, and some 42 boxes on each.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from accvlab.driving_data.datasets.nuscenes.splits import CATEGORIES, scenes_of_split

VERSION = "v1.0-trainval"
# Of "v1.0-trainval".
FULL = (850, 28_130, 1_200_000)

_CAMERAS = ("CAM_FRONT", "CAM_FRONT_RIGHT", "CAM_BACK_RIGHT", "CAM_BACK", "CAM_BACK_LEFT", "CAM_FRONT_LEFT")
_RADARS = ("RADAR_FRONT", "RADAR_FRONT_LEFT", "RADAR_FRONT_RIGHT", "RADAR_BACK_LEFT", "RADAR_BACK_RIGHT")
# Records between two keyframes, the second of them included.
_PER_KEYFRAME = {**dict.fromkeys(_CAMERAS, 6), "LIDAR_TOP": 10, **dict.fromkeys(_RADARS, 7)}
_LEVELS = ("v0-40", "v40-60", "v60-80", "v80-100")
_ATTRIBUTES = ("vehicle.moving", "vehicle.parked", "pedestrian.moving")
_START_US, _KEYFRAME_US = 1_532_402_927_000_000, 500_000
_FRAMES_PER_TRACK = 18


@attrs.frozen
class TableSizes:
    """How large the tables became."""

    scenes: int
    keyframes: int
    boxes: int
    sensor_records: int
    megabytes: float


def write_tables(root: Path, num_scenes: int, num_keyframes: int, num_boxes: int, seed: int = 0) -> TableSizes:
    """Write the tables; the folder is made."""
    folder = root / VERSION
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    names = sorted((*scenes_of_split("train"), *scenes_of_split("val")))[:num_scenes]
    lengths = np.diff(np.linspace(0, num_keyframes, num_scenes + 1).astype(int))
    first = np.concatenate([[0], np.cumsum(lengths)])
    _write_small(folder, names, lengths, first)
    num_records = _write_records(folder, lengths, first, rng)
    num_annotations = _write_annotations(folder, lengths, first, num_boxes, rng)
    size = sum(path.stat().st_size for path in folder.iterdir())
    return TableSizes(num_scenes, num_keyframes, num_annotations, num_records, size / 1e6)


def _token(kind: int, number: int) -> str:
    return f"{((kind << 40) + number + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC835 & (1 << 128) - 1:032x}"


def _write(folder: Path, name: str, records: Iterable[str]) -> None:
    with (folder / f"{name}.json").open("w") as file:
        separator = "[\n"
        for record in records:
            file.write(separator)
            file.write(record)
            separator = ",\n"
        file.write("\n]" if separator != "[\n" else "[]")


def _write_small(folder: Path, names: list[str], lengths: Any, first: Any) -> None:
    small: dict[str, list[dict[str, Any]]] = {
        "category": [
            {"token": _token(1, n), "name": name, "description": ""} for n, name in enumerate(CATEGORIES)
        ],
        "attribute": [{"token": _token(2, n), "name": name} for n, name in enumerate(_ATTRIBUTES)],
        "visibility": [{"token": str(n), "level": level} for n, level in enumerate(_LEVELS, start=1)],
        "sensor": [
            {
                "token": _token(3, n),
                "channel": channel,
                "modality": {"C": "camera", "L": "lidar", "R": "radar"}[channel[0]],
            }
            for n, channel in enumerate(_PER_KEYFRAME)
        ],
        "log": [
            {
                **{"token": _token(4, n), "logfile": f"n{n:03d}-2018-07-24", "vehicle": "n008"},
                **{"date_captured": "2018-07-24", "location": "boston-seaport"},
            }
            for n in range(len(names))
        ],
        "scene": [
            {
                **{"token": _token(5, n), "log_token": _token(4, n), "nbr_samples": int(lengths[n])},
                "first_sample_token": _token(6, int(first[n])),
                "last_sample_token": _token(6, int(first[n + 1]) - 1),
                **{"name": name, "description": "Turn right, parked cars, pedestrians"},
            }
            for n, name in enumerate(names)
        ],
        "calibrated_sensor": [
            {
                "token": _token(7, scene * len(_PER_KEYFRAME) + n),
                **{"sensor_token": _token(3, n), "translation": [1.7, 0.01 * n, 1.5]},
                "rotation": [0.5, -0.5, 0.5 + 0.001 * n, -0.5],
                "camera_intrinsic": [[1266.4, 0.0, 816.3], [0.0, 1266.4, 491.5], [0.0, 0.0, 1.0]]
                if channel in _CAMERAS
                else [],
            }
            for scene in range(len(names))
            for n, channel in enumerate(_PER_KEYFRAME)
        ],
        "sample": [
            {
                "token": _token(6, number),
                "timestamp": _START_US + number * _KEYFRAME_US,
                "prev": _token(6, number - 1) if number > first[scene] else "",
                "next": _token(6, number + 1) if number + 1 < first[scene + 1] else "",
                "scene_token": _token(5, scene),
            }
            for scene in range(len(names))
            for number in range(int(first[scene]), int(first[scene + 1]))
        ],
    }
    for name, records in small.items():
        (folder / f"{name}.json").write_text(json.dumps(records, indent=0))


def _places(lengths: Any, first: Any) -> Iterator[tuple[int, int, int, bool, bool, bool]]:
    """Scene, channel, time, and whether first, last and key of each record; also the keyframe, by its time."""
    for scene, length in enumerate(lengths.tolist()):
        for channel, rate in enumerate(_PER_KEYFRAME.values()):
            num = (length - 1) * rate + 1
            start = _START_US + int(first[scene]) * _KEYFRAME_US
            for place in range(num):
                time = start + place * _KEYFRAME_US // rate
                yield scene, channel, time, place == 0, place == num - 1, place % rate == 0


def _write_records(folder: Path, lengths: Any, first: Any, rng: np.random.Generator) -> int:
    channels = tuple(_PER_KEYFRAME)
    noise = rng.normal(size=1 << 12).tolist()
    num_records = 0

    def records() -> Iterator[str]:
        nonlocal num_records
        for number, (scene, channel, time, is_first, is_last, is_key) in enumerate(_places(lengths, first)):
            token, name = _token(8, number), channels[channel]
            sample = _token(6, -(-(time - _START_US) // _KEYFRAME_US))
            is_camera = channel < len(_CAMERAS)
            size = ("900", "1600") if is_camera else ("0", "0")
            suffix = "jpg" if is_camera else "pcd.bin" if name == "LIDAR_TOP" else "pcd"
            folder_name = "samples" if is_key else "sweeps"
            file = f"{folder_name}/{name}/n015-2018-07-24-11-22-45+0800__{name}__{time}.{suffix}"
            calibration = _token(7, scene * len(channels) + channel)
            yield (
                f'{{\n"token": "{token}",\n"sample_token": "{sample}",\n"ego_pose_token": "{token}",\n'
                f'"calibrated_sensor_token": "{calibration}",\n"timestamp": {time},\n'
                f'"fileformat": "{suffix[:3]}",\n"is_key_frame": {"true" if is_key else "false"},\n'
                f'"height": {size[0]},\n"width": {size[1]},\n"filename": "{file}",\n'
                f'"prev": "{"" if is_first else _token(8, number - 1)}",\n'
                f'"next": "{"" if is_last else _token(8, number + 1)}"\n}}'
            )
            num_records += 1

    def poses() -> Iterator[str]:
        for number, (scene, _, time, *_rest) in enumerate(_places(lengths, first)):
            along = (time - _START_US) * 5e-6
            yaw = noise[scene & 4095]
            yield (
                f'{{\n"token": "{_token(8, number)}",\n"timestamp": {time},\n"rotation": [\n{0.5 + yaw * 0.1},\n'
                f"{noise[number & 4095] * 1e-3},\n{noise[number >> 12 & 4095] * 1e-3},\n0.8197\n],\n"
                f'"translation": [\n{along % 1000},\n{1000 + yaw * 100},\n0.0\n]\n}}'
            )

    _write(folder, "sample_data", records())
    _write(folder, "ego_pose", poses())
    return num_records


def _write_annotations(folder: Path, lengths: Any, first: Any, num_boxes: int, rng: np.random.Generator) -> int:
    """Tracks of up to 18 keyframes, spread over the scenes by their lengths."""
    tracks: list[tuple[int, int]] = []  # first keyframe, length
    for scene, length in enumerate(lengths.tolist()):
        wanted = round(num_boxes * length / lengths.sum())
        while wanted > 0:
            most = min(length, _FRAMES_PER_TRACK, wanted)
            start = int(first[scene]) + int(rng.integers(0, length - most + 1))
            tracks.append((start, most))
            wanted -= most
    category = rng.choice(len(CATEGORIES), size=len(tracks)).tolist()
    offsets = np.concatenate([[0], np.cumsum([length for _, length in tracks])]).tolist()

    def instances() -> Iterator[str]:
        for number, (_, length) in enumerate(tracks):
            yield (
                f'{{\n"token": "{_token(9, number)}",\n"category_token": "{_token(1, category[number])}",\n'
                f'"nbr_annotations": {length},\n"first_annotation_token": "{_token(10, offsets[number])}",\n'
                f'"last_annotation_token": "{_token(10, offsets[number] + length - 1)}"\n}}'
            )

    def annotations() -> Iterator[str]:
        for number, (start, length) in enumerate(tracks):
            at = rng.uniform(-60, 60, size=2).tolist()
            size = rng.uniform(0.6, 5, size=3).tolist()
            for step in range(length):
                row = offsets[number] + step
                along = (start + step) * 2.5 % 1000
                yield (
                    f'{{\n"token": "{_token(10, row)}",\n"sample_token": "{_token(6, start + step)}",\n'
                    f'"instance_token": "{_token(9, number)}",\n"visibility_token": "{1 + row % 4}",\n'
                    f'"attribute_tokens": [\n"{_token(2, row % 3)}"\n],\n'
                    f'"translation": [\n{along + at[0]},\n{1000 + at[1]},\n1.0\n],\n'
                    f'"size": [\n{size[0]},\n{size[1]},\n{size[2]}\n],\n"rotation": [\n0.8,\n0.0,\n0.0,\n0.6\n],\n'
                    f'"prev": "{_token(10, row - 1) if step else ""}",\n'
                    f'"next": "{_token(10, row + 1) if step + 1 < length else ""}",\n'
                    f'"num_lidar_pts": {row % 90},\n"num_radar_pts": {row % 3}\n}}'
                )

    _write(folder, "instance", instances())
    _write(folder, "sample_annotation", annotations())
    return int(offsets[-1])
