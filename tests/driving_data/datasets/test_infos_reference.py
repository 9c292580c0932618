"""Info pickles of ten converters over the same scenes: the same samples, as the tables have them."""

import json
import pickle

import numpy as np
import pytest
from driving_support.driving_data import files_of, index_of
from support.laws import spread
from support.shared_data import shared_data

from accvlab.driving_data.datasets import InfosProvider, NuScenesProvider
from accvlab.driving_data.datasets.driving import poses
from accvlab.driving_data.recipes import StreamPETRSettings

LENGTH_FIRST = ("streampetr", "mmdet3d_v1", "mmdet3d_v2", "sparsedrive", "sparsedrive_extra", "sparse4d")
LAYOUT_OF = {
    **dict.fromkeys(LENGTH_FIRST, "l,w,h,yaw"),
    **dict.fromkeys(("bevformer", "bevformer_can", "bevfusion"), "w,l,h,-yaw-pi/2"),
    "uniad": "w,l,h,yaw",
}
CLASSES = StreamPETRSettings().classes  # their order is not that of the converters
SIGNS = np.array(
    [(-1, -1, -1), (-1, -1, 1), (-1, 1, 1), (-1, 1, -1), (1, -1, -1), (1, -1, 1), (1, 1, 1), (1, 1, -1)]
)


def atol_of(name):
    """The form with ``data_list`` rounds poses to float32: 0.06 mm at 1200 m."""
    return 1e-4 if name == "mmdet3d_v2" else 1e-9


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    cache = tmp_path_factory.mktemp("index")
    known = {}

    def open_pickle(name, **settings):
        key = (name, *settings.items())
        if key not in known:
            (path,) = (shared_data("golden") / "infos" / name).glob("*.pkl")
            given = {"boxes_convention": LAYOUT_OF[name], **settings}
            known[key] = InfosProvider(path, shared_data("nuscenes_like"), index_cache=cache, **given)
        return known[key]

    return open_pickle


@pytest.fixture(scope="module")
def truth():
    scenes = json.loads((shared_data("golden") / "truth.json").read_text())["scenes"]
    return [sample for scene in scenes for sample in scene["samples"]]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return NuScenesProvider(
        shared_data("nuscenes_like"),
        "v1.0-mini",
        scenes=["scene-0061", "scene-0103"],
        classes="detection",
        lidar=True,
        num_sweeps=3,
        index_cache=tmp_path_factory.mktemp("index"),
    )


def raw_infos(name):
    (path,) = (shared_data("golden") / "infos" / name).glob("*.pkl")
    content = pickle.loads(path.read_bytes())
    return content.get("infos") or content["data_list"]


def corners_of(centers, sizes, yaws):
    """Corners ``(n, 8, 3)`` of boxes, float64."""
    turned = poses.rotation_of_quaternion(poses.quaternion_of_yaw(yaws))
    return np.asarray(centers, np.float64)[:, None] + np.einsum(
        "nij,nkj->nki", turned, SIGNS * (np.asarray(sizes, np.float64) / 2)[:, None]
    )


@pytest.mark.parametrize("name", LAYOUT_OF)
class TestAgainstTheTables:
    def test_frames(self, opened, truth, name):
        provider = opened(name)
        assert provider.sequence_lengths == (8, 5)
        tokens = [str(provider.get_data(number)["token"]) for number in range(13)]
        assert tokens == [sample["token"] for sample in truth]
        np.testing.assert_array_equal(provider.timestamps, [sample["timestamp"] / 1e6 for sample in truth])

    def test_boxes_in_the_world(self, opened, truth, name):
        boxes, frames = index_of(opened(name)).boxes, index_of(opened(name)).frames
        world_from_base = poses.joined(frames.world_from_ego, frames.ego_from_base)
        for frame, sample in enumerate(truth):
            rows = slice(*boxes.first[frame : frame + 2])
            known = sample["boxes"]
            turn = poses.quaternion_of_rotation(world_from_base[frame, :, :3])
            rotation = poses.rotation_of_quaternion(poses.product_of_quaternions(turn, boxes.rotation[rows]))
            velocities = [box["velocity_global"] or [np.nan] * 3 for box in known]
            for found, expected in (
                (poses.moved(world_from_base[frame], boxes.center[rows]), [box["translation"] for box in known]),
                (boxes.size[rows], np.array([box["size_wlh"] for box in known])[:, [1, 0, 2]]),
                (rotation, poses.rotation_of_quaternion([box["rotation"] for box in known])),
                (poses.turned(world_from_base[frame], boxes.velocity[rows]), np.array(velocities, np.float64)),
                (boxes.num_lidar_points[rows], [box["num_lidar_pts"] for box in known]),
                (boxes.num_radar_points[rows], [box["num_radar_pts"] for box in known]),
            ):
                np.testing.assert_allclose(found, expected, rtol=0, atol=atol_of(name))
            categories = [index_of(opened(name)).categories[number] for number in boxes.category[rows]]
            assert categories == [box["name"] for box in known]
            if boxes.instance is not None:
                assert boxes.instance[rows].tolist() == [box["instance_index"] for box in known]
            if boxes.visibility is not None:
                levels = boxes.visibility[rows]
                expected = [int(box["visibility"]) for box in known]
                np.testing.assert_array_equal(levels[levels > 0], np.array(expected)[levels > 0])


class TestAgainstTheReferenceDataSets:
    """What ``get_ann_info`` and ``parse_ann_info`` make of their own pickles, float32."""

    @pytest.mark.parametrize("name", ["mmdet3d_v1", "mmdet3d_v2", "bevfusion", "uniad"])
    def test_boxes(self, opened, name):
        provider = opened(name, classes=CLASSES, min_lidar_points=1)
        reference = np.load(shared_data("golden") / "golden" / "boxes" / f"{name}.npz")
        for frame in range(13):
            boxes = provider.get_data(frame)["boxes"]
            centers, sizes, yaws = (np.float64(boxes[key]) for key in ("centers", "sizes", "yaws"))
            velocities = np.nan_to_num(boxes["velocities"][:, :2])
            bottoms = centers - sizes * [0, 0, 0.5]
            # What the documentation says of each convention.
            if name in ("mmdet3d_v1", "mmdet3d_v2"):
                layout, lift, x_size, turn = (bottoms, sizes, yaws), 0, sizes, yaws
            elif name == "bevfusion":
                wlh = sizes[:, [1, 0, 2]]
                layout, lift, x_size, turn = (centers, wlh, -yaws - np.pi / 2), 0.5, wlh, yaws + np.pi / 2
            else:
                wlh = sizes[:, [1, 0, 2]]
                layout, lift, x_size, turn = (bottoms, wlh, yaws), 0, wlh, yaws
            known = reference[f"{frame:02}.gt_bboxes_3d"]
            expected = np.column_stack([*layout, velocities])
            off = expected - known
            off[:, 6] = (off[:, 6] + np.pi) % (2 * np.pi) - np.pi
            np.testing.assert_allclose(off, np.zeros_like(off), atol=1e-5)
            middle = centers + sizes * [0, 0, lift]
            np.testing.assert_allclose(middle, reference[f"{frame:02}.gravity_center"], rtol=1e-6, atol=1e-5)
            corners = corners_of(middle, x_size, turn)
            np.testing.assert_allclose(corners, reference[f"{frame:02}.corners"], rtol=1e-6, atol=1e-5)
            np.testing.assert_array_equal(boxes["categories"], reference[f"{frame:02}.gt_labels_3d"])

    def test_files_of_names_without_folders(self, opened):
        provider = opened("mmdet3d_v2")
        reference = np.load(shared_data("golden") / "golden" / "boxes" / "mmdet3d_v2.npz")
        for frame in range(13):
            assert files_of(provider, frame) == reference[f"{frame:02}.img_path"].tolist()

    @pytest.mark.parametrize("name", ["sparsedrive", "sparsedrive_extra"])
    def test_places_in_following_frames(self, opened, name):
        provider = opened(name, num_future_frames=12, num_ego_future_frames=6)
        for frame, info in enumerate(raw_infos(name)):
            sample = provider.get_data(frame)
            boxes = sample["boxes"]
            is_known = boxes["is_future_known"]
            np.testing.assert_array_equal(is_known, info["gt_agent_fut_masks"] > 0)
            places = np.concatenate([boxes["centers"][:, None], boxes["future_centers"]], axis=1)[..., :2]
            steps = np.diff(np.float64(places), axis=1)
            np.testing.assert_allclose(steps[is_known], info["gt_agent_fut_trajs"][is_known], atol=2e-5)
            ego = sample["ego"]
            is_known = ego["is_future_known"]
            np.testing.assert_array_equal(is_known, info["gt_ego_fut_masks"] > 0)
            steps = np.diff(np.vstack([np.zeros(2), ego["future_positions"][:, :2]]), axis=0)
            np.testing.assert_allclose(steps[is_known], info["gt_ego_fut_trajs"][is_known], atol=2e-5)

    def test_map_lines_and_status(self, opened):
        provider = opened("sparsedrive_extra", map_lines=True, ego_status=True)
        for frame, info in enumerate(raw_infos("sparsedrive_extra")):
            sample = provider.get_data(frame)
            lines = [(label, line) for label, lines in info["map_annos"].items() for line in lines]
            assert sample["map_lines"]["categories"].tolist() == [label for label, _ in lines]
            assert sample["map_lines"]["num_points"].tolist() == [len(line) for _, line in lines]
            expected = np.concatenate([np.zeros((0, 2)), *(line for _, line in lines)])
            np.testing.assert_array_equal(sample["map_lines"]["points"], expected.astype(np.float32))
            np.testing.assert_array_equal(sample["ego"]["status"], info["ego_status"])

    def test_can_bus(self, opened):
        provider = opened("bevformer_can", can_bus=True)
        for frame, info in enumerate(raw_infos("bevformer_can")):
            np.testing.assert_array_equal(provider.get_data(frame)["ego"]["can_bus"], info["can_bus"])

    def test_2d_boxes(self, opened):
        """Both pickles that have them: the same boxes, of the same objects."""
        one, other = (opened(name, boxes_2d=True, classes=CLASSES) for name in ("streampetr", "mmdet3d_v2"))
        for frame in range(13):
            cameras, others = one.get_data(frame)["cameras"], other.get_data(frame)["cameras"]
            info = raw_infos("streampetr")[frame]
            for number in range(6):
                found, same = cameras[number]["boxes_2d"], others[number]["boxes_2d"]
                np.testing.assert_array_equal(
                    found["boxes"].reshape(-1, 4), info["bboxes2d"][number].reshape(-1, 4)
                )
                assert (found["box_rows"] >= 0).all()
                for key in ("boxes", "centers", "depths"):
                    np.testing.assert_allclose(found[key], same[key], rtol=1e-5, err_msg=key)
                for key in ("categories", "box_rows"):
                    np.testing.assert_array_equal(found[key], same[key])


@spread("name", LAYOUT_OF, 4)
def test_the_tables_deliver_the_same(opened, tables, name):
    """Boxes to float32, matrices to 1e-9; 1e-4 of rounded poses."""
    infos = opened(name, classes=tables.class_names, lidar=True, num_sweeps=3)
    for frame in range(13):
        one, other = infos.get_data(frame), tables.get_data(frame)
        _assert_same(one, other, 2 * atol_of(name), skipped=("scene", "instances", "visibilities", "attributes"))


def _assert_same(one, other, atol, skipped):
    assert one.field_names_flat == other.field_names_flat
    for name, first, second in zip(one.field_names_flat, one.get_data(), other.get_data(), strict=True):
        if name.rpartition(".")[2] in skipped:
            continue
        first, second = np.asarray(first), np.asarray(second)
        if np.issubdtype(first.dtype, np.floating):
            if name.endswith("yaws"):
                first, second = np.exp(1j * first), np.exp(1j * second)
            np.testing.assert_array_equal(np.isnan(first), np.isnan(second))
            near = 0 if first.dtype == np.float64 else 1e-6 * (1 + np.abs(second))
            off = np.nan_to_num(np.abs(first - second))
            np.testing.assert_array_less(off, np.nan_to_num(atol + near, nan=1), name)
        else:
            np.testing.assert_array_equal(first, second, name)
