"""TransFuser and the baseline of states: what batches hold, how they are changed, and what is refused."""

import pickle
import re

import numpy as np
import pytest
from driving_support.navsim import SPEED, cloud_of, log_name, token, write_navsim
from driving_support.recipe_cases import WithField
from hypothesis import given, settings
from hypothesis import strategies as st
from support.arrays import decoded_by_pillow
from support.laws import examples
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import MapStep, SequentialSampler
from accvlab.dali_pipeline_framework.errors import FieldValueError, FileError
from accvlab.dali_pipeline_framework.testing import check_provider
from accvlab.driving_data.datasets import KittiTrackingProvider, NavsimProvider, SceneFilter
from accvlab.driving_data.recipes import (
    EGO_STATUS_MLP,
    TRANSFUSER,
    EgoStatusSamples,
    EgoStatusSettings,
    ExtraSteps,
    TransFuserFormatter,
    TransFuserSettings,
)
from accvlab.driving_data.recipes.navsim_models import lidar_histogram
from accvlab.driving_data.testing import made_drive

SCENES = SceneFilter(frame_interval=1)
# Images of 108 x 192: 96 rows are left, which become 24; 128 + 192 + 128 columns become 112.
CROPS = {"CAM_L0": (6, 6, 32, 32), "CAM_F0": (6, 6, 0, 0), "CAM_R0": (6, 6, 32, 32)}
SMALL = {"crops": CROPS, "output_hw": (24, 112)}
_ANY = st.floats(-33, 33, width=32)
LOADER = {"num_workers": 0, "output_type": "numpy"}


class OneLane:
    """A lane 4 m wide along the x axis of the world, where the vehicle starts, and its center line."""

    asked = ()

    def objects_near(self, map_name, layer, kind, center, radius):
        self.asked += ((map_name, layer, kind, radius),)
        if layer != "LANE":
            return []
        x, y = 300000.0, 4000000.0
        if kind == "line":
            return [[(x - 100, y), (x + 100, y)]]
        return [[(x - 100, y - 2), (x + 100, y - 2), (x + 100, y + 2), (x - 100, y + 2)]]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_navsim(tmp_path_factory.mktemp("navsim"))


def provider_of(root, settings=None, scenes=SCENES, **options):
    sensors = {} if settings is None else settings.sensors(scenes)
    return NavsimProvider(root, "mini", scenes, **{"sensors": sensors, **options})


def first_batch(recipe, provider, settings=None, batch_size=2, **options):
    options = {"is_training": True, "sampler": SequentialSampler(len(provider)), **LOADER, **options}
    with recipe.loader(provider, batch_size, settings, **options) as loader:
        return next(iter(loader))


class TestTransFuser:
    def test_features_and_targets(self, root):
        settings = TransFuserSettings(num_agents=3, num_poses=6, **SMALL)
        provider = provider_of(root, settings)
        batch = first_batch(TRANSFUSER, provider, settings)
        assert batch["token"] == [token(0, 3), token(0, 4)]
        images = {
            camera["name"]: decoded_by_pillow(camera["image"])
            for camera in provider.get_data(0)["cameras"].values()
        }
        cut = [images["CAM_L0"][6:102, 32:160], images["CAM_F0"][6:102], images["CAM_R0"][6:102, 32:160]]
        blocks = np.concatenate(cut, axis=1).reshape(24, 4, 112, 4, 3)[:, 1:3, :, 1:3]
        mean = np.floor(blocks.mean((1, 3)) + 0.5).transpose(2, 0, 1)
        assert np.abs(batch["features"]["camera_feature"][0] * 255 - mean).max() <= 1 + 1e-4
        assert batch["features"]["camera_feature"].dtype == np.float32
        for row, frame in enumerate((3, 4)):
            histogram = lidar_histogram(cloud_of(frame), settings)
            assert np.array_equal(batch["features"]["lidar_feature"][row], histogram)
            command = np.eye(4)[frame % 4]
            expected = [*command, SPEED, 0.1, 0.2 + frame, -0.3]
            assert np.array_equal(batch["features"]["status_feature"][row], np.float32(expected))
        targets = batch["targets"]
        assert sorted(targets) == ["agent_labels", "agent_states", "trajectory"]
        for row in range(2):
            poses = provider.get_data(row)["ego_future"]["poses"]
            assert np.array_equal(targets["trajectory"][row], poses[:6])
        # of two vehicles, one is 40 m ahead
        assert targets["agent_labels"].tolist() == [[True, False, False]] * 2
        assert np.array_equal(targets["agent_states"][0, 0], np.float32([12, 2, 0.1, 4.5, 1.9]))
        assert not targets["agent_states"][:, 1:].any()

    @settings(max_examples=examples(40, 400), deadline=None)
    @given(points=st.lists(st.tuples(*[st.integers(-136, 136).map(lambda it: it / 4) | _ANY] * 3), max_size=60))
    def test_histogram_is_that_of_numpy(self, points):
        cloud = np.float32(points).reshape(-1, 3)
        edges = np.linspace(-32, 32, 257)
        is_above = cloud[:, 2] > np.float32(0.2)
        found = lidar_histogram(cloud, TransFuserSettings(uses_ground=True))
        for channel, is_in in zip(found, (~is_above, is_above), strict=True):
            counts = np.histogramdd(cloud[is_in, :2], bins=(edges, edges))[0]
            assert np.array_equal(channel, np.float32(np.minimum(counts, 5) / 5))

    def test_map_seen_from_above(self, root):
        maps = OneLane()
        settings = TransFuserSettings(maps=maps, **SMALL)
        provider = provider_of(root, settings)
        assert isinstance(pickle.loads(pickle.dumps(TRANSFUSER.steps(provider, settings)))[0], TransFuserFormatter)
        raster = first_batch(TRANSFUSER, provider, settings)["targets"]["bev_semantic_map"][0]
        assert raster.shape == (128, 256)
        assert set(np.unique(raster)) == {0, 1, 3, 4, 5, 6}  # no walkways
        polygons = [(layer, "polygon") for layer in ("LANE", "INTERSECTION", "WALKWAYS")]
        assert [(layer, kind) for _, layer, kind, _ in maps.asked[:4]] == [*polygons, ("LANE", "line")]
        assert {(name, radius) for name, _, _, radius in maps.asked} == {("us-nv-las-vegas-strip", 32.0)}
        assert raster[48, 128 + 8] == 5  # the vehicle at (12, 2)
        assert raster[32, 128 - 24] == 6  # the pedestrian at (8, -6)
        assert raster[20, 128 + 12] == 4  # the cone at (5, 3)

    def test_evaluation_has_the_targets_that_there_are(self, root):
        settings = TransFuserSettings(**SMALL)
        scenes = SceneFilter(frame_interval=1, num_future_frames=2, has_route=False)
        provider = provider_of(root, settings, scenes, boxes=False)
        batch = first_batch(TRANSFUSER, provider, settings, is_training=False, batch_size=3)
        assert batch["targets"] == {}
        assert batch["token"] == [token(0, 3), token(0, 4), token(0, 5)]

    def test_reduced_decoding_is_nearly_the_same(self, root):
        settings = TransFuserSettings(crops={"CAM_F0": (4, 4, 0, 0)}, output_hw=(25, 48))
        provider = provider_of(root, settings)
        exact, reduced = (
            first_batch(TRANSFUSER, provider, settings, reduced_decoding=one)["features"]["camera_feature"]
            for one in (False, True)
        )
        difference = np.sqrt(((exact - reduced) ** 2).mean())
        assert 0 < difference < 0.05

    def test_widths_that_do_not_divide(self, root):
        settings = TransFuserSettings(crops={"CAM_L0": (0, 0, 1, 0), "CAM_F0": (0, 0, 0, 0)}, output_hw=(30, 70))
        feature = first_batch(TRANSFUSER, provider_of(root, settings), settings)["features"]["camera_feature"]
        assert feature.shape == (2, 3, 30, 70)


class Weather(WithField, NavsimProvider):
    pass


class TestChanges:
    def test_own_field_augmentation_horizon_and_cameras(self, root):
        crops = {"CAM_F0": (6, 6, 0, 0)}
        settings = TransFuserSettings(crops=crops, output_hw=(24, 48), num_poses=4)
        assert settings.sensors(SceneFilter(num_history_frames=2))["LIDAR_PC"] == [1]
        provider = Weather(root, "mini", SCENES, sensors=settings.sensors(SCENES))
        plain = first_batch(TRANSFUSER, provider, settings)
        darker = ExtraSteps(after=[MapStep(lambda image: image // 2, input_names="camera_feature")])
        changed = first_batch(TRANSFUSER, provider, settings, extra_fields=["weather"], extra_steps=darker)
        assert changed["weather"].tolist() == [10, 11]
        assert changed["features"]["camera_feature"].shape == (2, 3, 24, 48)
        levels = np.rint(plain["features"]["camera_feature"] * 255)
        assert np.array_equal(np.rint(changed["features"]["camera_feature"] * 255), levels // 2)
        assert changed["targets"]["trajectory"].shape == (2, 4, 3)

    def test_own_field_of_the_baseline(self, root):
        provider = Weather(root, "mini", SCENES, sensors={})
        batch = first_batch(EGO_STATUS_MLP, provider, extra_fields=["weather", "ego_future"])
        assert batch["weather"].tolist() == [10, 11]
        assert batch["ego_future"]["poses"].shape == (2, 10, 3)


class TestEgoStatus:
    def test_batches(self, root):
        provider = provider_of(root)
        batch = first_batch(EGO_STATUS_MLP, provider)
        assert batch["token"] == [token(0, 3), token(0, 4)]
        assert batch["scene"] == [log_name(0)] * 2
        expected = [[SPEED, 0.1, 0.2 + frame, -0.3, *np.eye(4)[frame % 4]] for frame in (3, 4)]
        assert np.array_equal(batch["features"]["ego_status"], np.float32(expected))
        poses = [provider.get_data(row)["ego_future"]["poses"] for row in range(2)]
        assert np.array_equal(batch["targets"]["trajectory"], np.stack(poses)[:, :8])
        assert batch["place"]["sample_index"].tolist() == [0, 1]
        provider = provider_of(root, scenes=SceneFilter(num_future_frames=0, frame_interval=1))
        assert first_batch(EGO_STATUS_MLP, provider, is_training=False)["targets"] == {}

    def test_contract(self, root):
        check_provider(EgoStatusSamples(provider_of(root), EgoStatusSettings()), num_workers=0)


class Flat(OneLane):
    def objects_near(self, *asked):
        return [[1.0, 2.0]]


SENSORS = "`sensors={'CAM_L0': [3], 'CAM_F0': [3], 'CAM_R0': [3], 'LIDAR_PC': [3]}`."
CUT = "image of CAM_F0: nothing is left of 108 x 192 pixels by `crops` (28, 80, 0, 0); the default is for images"
HEIGHTS = "images must have one height when they are cut by `crops`, got CAM_L0 (96, 192), CAM_F0 (102, 192)"
SHAPES = (
    "Flat.objects_near('us-nv-las-vegas-strip', 'LANE', 'polygon', ...) must give points (n, 2), finite, for each"
)
OF_LOADING = [
    ({"crops": {"CAM_F0": (28, 80, 0, 0)}}, CUT),
    ({"crops": {"CAM_L0": (6, 6, 0, 0), "CAM_F0": (0, 6, 0, 0)}}, HEIGHTS),
    ({"maps": Flat(), **SMALL}, f"{SHAPES} shape, got [1.0, 2.0]"),
]


@pytest.mark.parametrize(("given", "words"), OF_LOADING)
def test_what_no_sample_can_be_made_of_is_named(root, given, words):
    settings = TransFuserSettings(**given)
    provider = provider_of(root, settings)
    with pytest.raises(FieldValueError, match=re.escape(words)):
        first_batch(TRANSFUSER, provider, settings)


class TestRefused:
    def test_other_providers(self, root, tmp_path):
        other = KittiTrackingProvider(made_drive(tmp_path, "kitti") / "training")
        short = provider_of(root, scenes=SceneFilter(num_future_frames=5))
        few = provider_of(root, sensors={"cam_f0": [3], "cam_l0": [3]})
        no_boxes = provider_of(root, TransFuserSettings(), boxes=False)
        is_other = "takes a NavsimProvider, got KittiTrackingProvider: frames of other data have no"
        lacks = f"TransFuser needs sensors that {few!r} does not load: CAM_R0, LIDAR_PC. Give it {SENSORS}"
        is_short = (
            "EgoStatusMLP learns 8 poses, but scenes have 5 future frames: give the provider "
            "`SceneFilter(num_future_frames=8)`, or the recipe `EgoStatusSettings(num_poses=5)`."
        )
        for recipe, provider, words in (
            (TRANSFUSER, no_boxes, "boxes: must be True, is False...boxes=True"),
            (TRANSFUSER, other, f"TransFuser {is_other} `ego_history` with"),
            (EGO_STATUS_MLP, other, f"EgoStatusMLP {is_other} `ego_history` with"),
            (TRANSFUSER, few, lacks),
            (EGO_STATUS_MLP, short, is_short),
        ):
            assert_refused(lambda make=recipe, of=provider: make.steps(of), words)

    def test_sensors_whose_current_frame_is_not_loaded(self, root):
        settings = TransFuserSettings(**SMALL)
        sensors = settings.sensors(SCENES)
        provider = provider_of(root, sensors={**sensors, "CAM_F0": [0, 2], "CAM_L0": [1, 3]})
        words = f"that {provider!r} does not load: CAM_F0 at the current frame. Give it {SENSORS}"
        assert_refused(lambda: TRANSFUSER.loader(provider, 2, settings, **LOADER), words)

    def test_broken_and_missing_images_are_named(self, tmp_path):
        root = write_navsim(tmp_path)
        settings = TransFuserSettings(**SMALL)
        provider = provider_of(root, settings)
        path = root / "sensor_blobs/mini" / log_name(0) / "CAM_L0" / f"{token(0, 3)}.jpg"
        path.write_bytes(path.read_bytes()[:700])
        with pytest.raises(FieldValueError, match=rf"image of CAM_L0: .*(?s:.*)token '{token(0, 3)}'"):
            first_batch(TRANSFUSER, provider, settings)
        path.unlink()
        with pytest.raises(FileError, match=re.escape(str(path))):
            first_batch(TRANSFUSER, provider, settings)
        batch = first_batch(TRANSFUSER, provider, settings, faults="replace")
        assert batch["token"] == [token(0, 4), token(0, 4)]
