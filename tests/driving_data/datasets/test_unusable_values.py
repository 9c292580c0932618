"""Numbers that no sample can use are named by their frame; those that are not requested are not looked at."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driving_support.argoverse import ArgoverseData
from driving_support.arrow_logs import ArrowLog
from driving_support.info_pickles import driving_scenes, pickle_content, write_files, write_pickle
from driving_support.kitti import odometry_poses, text_of, write_odometry
from driving_support.navsim import write_navsim
from driving_support.nuscenes_data import changed_table, write_nuscenes
from driving_support.physical_ai import FRONT, write_published

from accvlab.dali_pipeline_framework.errors import FileError
from accvlab.driving_data.datasets import (
    ArgoverseProvider,
    ArrowLogProvider,
    DrivingProvider,
    InfosProvider,
    KittiOdometryProvider,
    NavsimProvider,
    NuScenesProvider,
    PhysicalAiProvider,
    SceneFilter,
)

SCENES = driving_scenes()


@pytest.fixture(autouse=True)
def _index_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCVLAB_INDEX_CACHE", str(tmp_path / "cache"))


def infos(root: Path, change: Callable[[list[dict[str, Any]]], object], **settings: Any) -> DrivingProvider:
    content = copy.deepcopy(pickle_content(SCENES, "mmdet3d_v1"))
    change(content["infos"])
    path = write_pickle(write_files(root, SCENES) / "infos.pkl", content)
    return InfosProvider(path, root, **settings)


def of_cameras(make: Callable[[Any], Any], name: str = "CAM_FRONT") -> Callable[[list[dict[str, Any]]], None]:
    """Change the intrinsics of a camera from the third frame on."""

    def change(frames: list[dict[str, Any]]) -> None:
        for frame in frames[2:]:
            frame["cams"][name]["cam_intrinsic"] = make(np.array(frame["cams"][name]["cam_intrinsic"]))

    return change


def navsim(root: Path, change: Callable[[list[dict[str, Any]]], object], **settings: Any) -> DrivingProvider:
    def changed(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
        change(frames)
        return frames

    write_navsim(root, change=changed)
    return NavsimProvider(root, "mini", SceneFilter(frame_interval=1), sensors={"cam_f0": [3]}, **settings)


def of_boxes(column: int, value: float) -> Callable[[list[dict[str, Any]]], None]:
    def change(frames: list[dict[str, Any]]) -> None:
        frames[4]["anns"]["gt_boxes"][1, column] = value

    return change


def odometry(root: Path, scale: float) -> DrivingProvider:
    write_odometry(root)
    (root / "poses/00.txt").write_text("\n".join(text_of(scale * pose) for pose in odometry_poses()))
    return KittiOdometryProvider(root)


def py123d(root: Path, change: Callable[[ArrowLog], object]) -> DrivingProvider:
    log = ArrowLog()
    change(log)
    log.write(root)
    return ArrowLogProvider(root)


def nuscenes(root: Path, change: Callable[[list[dict[str, Any]]], object], **settings: Any) -> DrivingProvider:
    write_nuscenes(root)
    with changed_table(root, "sample") as samples:
        change(samples)
    return NuScenesProvider(root, "v1.0-mini", **settings)


def without_links(samples: list[dict[str, Any]]) -> None:
    for sample in samples:
        sample |= {"prev": "", "next": "", "timestamp": 1_600_000_000_000_000}


def two_splits(root: Path) -> DrivingProvider:
    for split in ("train", "val"):
        ArgoverseData().write(root / split)
    return ArgoverseProvider(root)


def listed_twice(root: Path) -> DrivingProvider:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = write_published(root) / "clip_index.parquet"
    table = pq.read_table(path)
    pq.write_table(pa.concat_tables([table, table]), path)
    return PhysicalAiProvider(root, cameras=[FRONT])


CASES: dict[str, tuple[Callable[[Path], DrivingProvider], str]] = {
    "no focal length": (
        lambda root: infos(root, of_cameras(lambda matrix: 0 * matrix)),
        r"frame 'token-002' in the scene .* of '.*infos.pkl': intrinsics of 'CAM_FRONT' must be a matrix of "
        r"finite numbers with focal lengths above 0, .*, got \[\[0.0, .*\(and 4 more frames like it\)",
    ),
    "transposed intrinsics": (
        lambda root: infos(root, of_cameras(lambda matrix: matrix.T)),
        "'token-002' .* whose last row is 0, 0, 1, got",
    ),
    "negative intrinsics": (
        lambda root: infos(root, of_cameras(lambda matrix: -matrix)),
        "'token-002' .*intrinsics",
    ),
    "seconds as microseconds": (
        lambda root: infos(
            root, lambda frames: [each.update(timestamp=each["timestamp"] / 1e6) for each in frames]
        ),
        r"frames must be 0.001 to 1000 seconds apart, the usual distance is [0-9.]+e-07 seconds. .*another unit",
    ),
    "a box that is nowhere": (
        lambda root: navsim(root, of_boxes(0, np.nan)),
        "frame '0000000000000004' .*: a box must be finite numbers with sizes of at least 0 .*got \\[nan, ",
    ),
    "a negative size": (lambda root: navsim(root, of_boxes(4, -2)), "frame '0000000000000004' .*: a box must"),
    "an unknown motion": (
        lambda root: navsim(root, lambda frames: frames[3].update(ego_dynamic_state=[np.nan, 0, 0, 0])),
        r"frame '0000000000000003' .*: motion must be finite numbers, got \[nan, 0.0, 0.0, 0.0\]",
    ),
    "scaled poses": (
        lambda root: odometry(root, 5),
        r"frame '00/000000' in the scene '00' of .*: the pose of the vehicle must be a rotation",
    ),
    "empty poses": (lambda root: odometry(root, 0), "'00/000000' .*: the pose of the vehicle must be a rotation"),
    "a camera nowhere": (
        lambda root: py123d(
            root, lambda log: log.camera_metadata["pcam_f0"].update(camera_to_imu_se3=[np.nan] * 7)
        ),
        "in the scene 'made_train/log-a': .*of 'pcam_f0' must be a rotation",
    ),
    "a time for all": (
        lambda root: py123d(root, lambda log: log.times.fill(log.times[0])),
        "in the scene 'made_train/log-a': times must ascend in its scene, got 1600000000.0 and then 1600000000.0",
    ),
    "keyframes of one time": (lambda root: nuscenes(root, without_links), "times must ascend in its scene"),
    "a log in two splits": (
        two_splits,
        "frame 'log-1/315966265000000000' .*its token is that of an earlier frame",
    ),
    "a clip that is listed twice": (listed_twice, "frame 'clip-a/0' in the scene 'clip-a' .*token is that of an"),
}


@pytest.mark.parametrize("name", CASES)
def test_are_named_by_their_frame(tmp_path: Path, name: str) -> None:
    make, message = CASES[name]
    with pytest.raises(FileError, match=message):
        make(tmp_path / "data")


@pytest.mark.parametrize(
    "make",
    [
        lambda root: infos(root, of_cameras(lambda matrix: 0 * matrix), cameras=["CAM_BACK"]),
        lambda root: navsim(root, of_boxes(0, np.nan), boxes=False),
        lambda root: nuscenes(
            root,
            lambda samples: without_links(
                [each for each in samples if each["scene_token"] == samples[0]["scene_token"]]
            ),
            scenes=["scene-0002"],
        ),
    ],
)
def test_of_what_is_not_requested_are_not_looked_at(tmp_path: Path, make: Any) -> None:
    assert len(make(tmp_path / "data"))
