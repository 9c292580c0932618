"""TransFuser and the baseline of states against the features and targets that NAVSIM itself makes."""

import json

import numpy as np
import pytest
from shapely.geometry import LineString, Point, Polygon
from support.shared_data import shared_data

from accvlab.driving_data.datasets import NavsimProvider, SceneFilter
from accvlab.driving_data.recipes import EGO_STATUS_MLP, TRANSFUSER, TransFuserSettings

SCENES = SceneFilter(frame_interval=1)


class PublishedMap:
    """What touches a circle, by Shapely."""

    def __init__(self, path):
        self.maps = json.loads(path.read_text())

    def objects_near(self, map_name, layer, kind, center, radius):
        circle, objects = Point(*center).buffer(radius), self.maps[map_name].get(layer, {})
        areas, lines = objects.get("polygons", []), objects.get("lines", [])
        shapes = [Polygon(area) for area in areas] or [LineString(line) for line in lines]
        for shape, points in zip(shapes, areas if kind == "polygon" else lines, strict=True):
            if shape.intersects(circle):
                yield points


@pytest.fixture(scope="module")
def folder():
    return shared_data("golden") / "navsim"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("index")


def batches_of(recipe, provider, settings=None):
    options = {"num_workers": 0, "is_training": False, "output_type": "numpy"}
    with recipe.loader(provider, 1, settings, **options) as loader:
        yield from loader


@pytest.mark.parametrize("uses_ground", [False, True])
def test_transfuser(folder, cache, uses_ground):
    maps = PublishedMap(folder / "expected" / "map_synthetic.json")
    settings = TransFuserSettings(maps=maps, uses_ground=uses_ground)
    sensors = settings.sensors(SCENES)
    provider = NavsimProvider(folder, "tiny", SCENES, sensors=sensors, index_cache=cache)
    arrays = np.load(folder / "expected" / "transfuser.npz")
    tokens = []
    for batch in batches_of(TRANSFUSER, provider, settings):
        (token,) = batch["token"]
        tokens.append(token)
        found = {name: value[0] for group in ("features", "targets") for name, value in batch[group].items()}
        camera = np.rint(found.pop("camera_feature") * 255).astype(int)
        raster = found.pop("bev_semantic_map")
        near = camera[:, ::8, ::8] - arrays[f"{token}.camera_feature_u8_every8"]
        assert np.sqrt((near**2).mean()) < 2.55  # 40 dB; 0 with the same decoder
        # Other versions of OpenCV paint some cells at edges otherwise.
        assert (raster != arrays[f"{token}.bev_semantic_map"]).mean() < 0.005
        lidar = found.pop("lidar_feature")
        assert np.array_equal(lidar, arrays[f"{token}.lidar_feature{'_with_ground' * uses_ground}"])
        np.testing.assert_allclose(found.pop("trajectory"), arrays[f"{token}.trajectory"], atol=1e-6, rtol=0)
        assert sorted(found) == ["agent_labels", "agent_states", "status_feature"]
        for name, value in found.items():
            assert value.dtype == arrays[f"{token}.{name}"].dtype
            assert np.array_equal(value, arrays[f"{token}.{name}"]), name
    assert len(tokens) == len({*tokens}) == 5


@pytest.mark.parametrize("name", ["default_navtrain", "no_route_filter", "short"])
def test_states(folder, cache, name):
    scenes = SceneFilter(**json.loads((folder / "expected" / "filters.json").read_text())[name]["config"])
    provider = NavsimProvider(folder, "tiny", scenes, sensors={}, boxes=False, index_cache=cache)
    arrays, count = np.load(folder / "expected" / f"ego_{name}.npz"), 0
    for batch in batches_of(EGO_STATUS_MLP, provider):
        (token,) = batch["token"]
        count += 1
        assert np.array_equal(batch["features"]["ego_status"][0], arrays[f"{token}.ego_mlp.ego_status"])
        if name == "short":
            assert batch["targets"] == {}
        else:
            expected = arrays[f"{token}.ego_mlp.trajectory"]
            np.testing.assert_allclose(batch["targets"]["trajectory"][0], expected, atol=1e-6, rtol=0)
    assert count == {"default_navtrain": 5, "no_route_filter": 7, "short": 7}[name]
