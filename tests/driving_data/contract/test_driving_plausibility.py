"""What `check_provider` measures of driving data, and which mistakes it finds, without false alarms."""

from __future__ import annotations

import re

import attrs
import numpy as np
import pytest
from driving_support.driving_data import index_of
from driving_support.driving_faults import FAULTS
from driving_support.kinds_of_drives import ARGOVERSE, KITTI, NUSCENES, make_drive
from driving_support.nuscenes_data import write_nuscenes
from support.laws import spread
from support.shared_data import shared_data

from accvlab.dali_pipeline_framework.errors import ContractError
from accvlab.dali_pipeline_framework.testing import check_provider
from accvlab.driving_data.contract.driving_contract import plausibility, time_findings
from accvlab.driving_data.datasets import DrivingProvider, InfosProvider, NuScenesProvider

KINDS = {"nuscenes": NUSCENES, "kitti": KITTI, "argoverse": ARGOVERSE}
# A pair of cameras that look ahead is the same mirrored, or by another order of their quaternion.
AHEAD_ONLY = {"camera quaternions", "names of cameras exchanged"}
# In the tenth of a second between two frames, a vehicle drives nearly straight, and as fast as before.
NOT_TO_BE_SEEN = {(kind, "boxes one frame late") for kind in ("kitti", "argoverse")}
NOT_TO_BE_SEEN |= {("kitti", fault) for fault in AHEAD_ONLY}
NOT_TO_BE_SEEN |= {(kind, fault) for kind in ("kitti", "argoverse") for fault in FAULTS if "velocities" in fault}


@pytest.fixture(scope="module")
def drives(tmp_path_factory):
    """Index and folder of each kind; the demo's scenes are read as nuScenes."""
    found = {}
    for name, kind in KINDS.items():
        root = tmp_path_factory.mktemp(name)
        found[name] = make_drive(root, kind, seed=1), root  # its vehicles turn, so that quaternions matter
    root = write_nuscenes(tmp_path_factory.mktemp("demo") / "nuscenes")
    provider = NuScenesProvider(root, version="v1.0-mini", index_cache=tmp_path_factory.mktemp("indices"))
    found["demo"] = index_of(provider), root
    return found


def problems_of(provider, seed=0):
    found = [*plausibility(provider, seed), *time_findings(provider)]
    return [f"{each.rule}: {problem}" for each in found for problem in each.problems]


CASES = [(kind, fault) for kind in (*KINDS, "demo") for fault in FAULTS if (kind, fault) not in NOT_TO_BE_SEEN]


@spread(("kind", "fault"), CASES, 16)
def test_mistakes_are_named(drives, kind, fault):
    index, root = drives[kind]
    change, message = FAULTS[fault]
    found = "\n".join(problems_of(DrivingProvider(change(index), root)))
    assert re.search(message, found), found


@pytest.mark.parametrize("reference", ["lidar", "ego"])
@spread("fault", [name for name in FAULTS if "lidar" not in name and name != "yaw of the width"], 3)
def test_mistakes_are_found_in_any_frame_of_reference(drives, fault, reference):
    index, root = drives["nuscenes"]
    assert problems_of(DrivingProvider(FAULTS[fault][0](index), root, reference=reference))


FISHEYE = {
    name: (yaw, 50, x, y, z, 192, 128, 110)
    for name, yaw, x, y, z in (("front", 0, 3.5, 0, 0.6), ("left", 90, 2, 1, 1), ("rear", 180, -1, 0, 0.8))
}
ODD_KINDS = {
    **KINDS,
    "noisy": attrs.evolve(NUSCENES, noise_m=0.3),
    "noisy, often": attrs.evolve(ARGOVERSE, noise_m=0.1, period_s=1 / 30, has_velocities=True),
    "all move": attrs.evolve(NUSCENES, num_moving=40, turn=0.01, speed=25.0),
    "all move, few seen": attrs.evolve(KITTI, num_moving=40, turn=0.01, speed=25.0),
    "all parked": attrs.evolve(KITTI, num_moving=0),
    "stands": attrs.evolve(NUSCENES, speed=1e-4, turn=1e-5),
    "no poses": attrs.evolve(NUSCENES, speed=0.0, turn=0.0),
    "slow": attrs.evolve(ARGOVERSE, speed=1.0, turn=0.02),
    "drives back": attrs.evolve(NUSCENES, speed=-2.0),
    "few boxes": attrs.evolve(NUSCENES, num_objects=4, num_moving=2),
    "one frame": attrs.evolve(NUSCENES, num_frames=1),
    "two frames": attrs.evolve(ARGOVERSE, num_frames=2, num_scenes=1),
    "one camera": attrs.evolve(NUSCENES, cameras={"CAM_BACK_LEFT": NUSCENES.cameras["CAM_BACK_LEFT"]}),
    "fisheye": attrs.evolve(NUSCENES, cameras=FISHEYE, base="ego"),
    "looks down": attrs.evolve(ARGOVERSE, cameras={"top": (0, 89, 1, 0, 2.5, 200, 200, 120)}),
    "lorry": attrs.evolve(
        ARGOVERSE, cameras={"l": (100, 9, -9, 1, 3, 99, 80, 80), "r": (-99, 9, -9, -1, 3, 99, 80, 80)}
    ),
    "a pair": attrs.evolve(KITTI, cameras={"left": KITTI.cameras["image_02"], "right": KITTI.cameras["image_03"]}),
}


@spread("kind", ODD_KINDS, 3)
def test_what_is_right_is_no_mistake(tmp_path, kind):
    for seed in range(2):
        index = make_drive(tmp_path, ODD_KINDS[kind], seed)
        for fields in ({}, {"reference": "ego"}, {"boxes": False}, {"cameras": ()}):
            assert not problems_of(DrivingProvider(index, tmp_path, **fields), seed)


@pytest.mark.wide
def test_data_sets_are_right(drives, tmp_path):
    index, root = drives["demo"]
    assert not problems_of(DrivingProvider(index, root))
    folder = shared_data("nuscenes_like")
    providers = [NuScenesProvider(folder, version="v1.0-mini", index_cache=tmp_path, lidar=True, boxes_2d=True)]
    pickles = sorted(shared_data("golden/infos").glob("*/*.pkl"))
    layouts = {"bevfusion": "w,l,h,-yaw-pi/2", "uniad": "w,l,h,yaw"} | dict.fromkeys(
        ("bevformer", "bevformer_can"), "w,l,h,-yaw-pi/2"
    )
    providers += [
        InfosProvider(path, folder, index_cache=tmp_path, boxes_convention=layouts.get(path.parent.name))
        for path in pickles
    ]
    assert [problems_of(provider) for provider in providers] == [[]] * len(providers)
    assert len(providers) > 8


def test_cameras_without_calibration_are_left_out(drives):
    index, root = drives["kitti"]
    mounted = np.zeros_like(index.cameras.ego_from_camera)
    mounted[..., :3] = np.eye(3)
    intrinsics = np.zeros_like(index.cameras.intrinsics) + np.eye(3)
    cameras = attrs.evolve(index.cameras, intrinsics=intrinsics, ego_from_camera=mounted, camera_from_base=mounted)
    provider = DrivingProvider(attrs.evolve(index, cameras=cameras), root)
    assert not problems_of(provider)
    assert not any("camera" in found.figure for found in plausibility(provider, 0))


def test_figures_are_returned(drives):
    index, root = drives["argoverse"]
    figures = check_provider(DrivingProvider(index, root), num_workers=0).splitlines()
    assert figures[1] == "cameras: 1.8 to 2.1 m from the vehicle's origin, 1.2 to 1.4 m above it"
    assert figures[3].startswith(
        "cameras: look to ring_front_center 0, ring_front_left 45, ring_front_right -45, "
    )
    assert figures[8] == "ego vehicle: 6.6 to 8.5 m/s, 1 deg off its heading (median)"
    kinds = "samples,cameras,cameras,cameras,images,views,boxes,vehicles,ego vehicle,objects,headings"
    assert [line.split(":")[0] for line in figures] == kinds.split(",")


def test_figures_come_before_what_is_wrong(drives):
    index, root = drives["nuscenes"]
    with pytest.raises(ContractError) as raised:
        check_provider(DrivingProvider(FAULTS["names of cameras exchanged"][0](index), root), num_workers=0)
    lines = str(raised.value).splitlines()
    assert lines[:2] == [
        "DrivingProvider breaks the contract of data providers. Measured:",
        "    samples: 18 of 3 scene(s), 0.5 s apart",
    ]
    assert lines[lines.index("What is wrong:") + 1 :] == [
        "  - cameras must look where their names say: sample 1, camera 1 'CAM_FRONT_LEFT': looks to the right "
        "(yaw -55 deg)",
        "      sample 1, camera 2 'CAM_FRONT_RIGHT': looks to the left (yaw 55 deg)",
        "      sample 1, camera 4 'CAM_BACK_RIGHT': looks to the left (yaw 110 deg)",
        "      sample 1, camera 5 'CAM_BACK_LEFT': looks to the right (yaw -110 deg)",
        "      Are left and right exchanged (names, images, or the sign of y), or the rotations inverses?",
    ]
