"""Recipes that a user changes: fields and steps of one's own, other cameras and sizes, the format of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from driving_support.driving_data import write_driving_data
from driving_support.recipe_cases import WithField, batches_of
from nvidia.dali.types import DALIDataType
from support.arrays import encoded_image, gradient
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import ArrayStep, SampleDataGroup, Windows
from accvlab.dali_pipeline_framework.draws import Draws
from accvlab.dali_pipeline_framework.errors import FieldNotFoundError, SettingError
from accvlab.driving_data.datasets import DrivingIndex, DrivingProvider
from accvlab.driving_data.recipes import (
    BEVFORMER,
    BEVFUSION,
    DETECTION_2D,
    SPARSEDRIVE,
    STREAMPETR,
    BEVFormerSettings,
    BEVFusionSettings,
    Detection2DSettings,
    ExtraSteps,
    ImageAugmentation,
    Recipe,
    SparseDriveSettings,
    StreamPETRSettings,
)

CLASSES = ("car", "pedestrian", "barrier")
IMAGES = ImageAugmentation(output_hw=(8, 16), scale_range=(0.4, 0.6))
CASES: dict[str, tuple[Recipe, Any]] = {
    "streampetr": (STREAMPETR, StreamPETRSettings(images=IMAGES, classes=CLASSES)),
    "sparsedrive": (SPARSEDRIVE, SparseDriveSettings.sparse4d(images=IMAGES, classes=CLASSES)),
    "bevformer": (BEVFORMER, BEVFormerSettings(classes=CLASSES, queue_length=2)),
    "bevfusion": (BEVFUSION, BEVFusionSettings(images=IMAGES, classes=CLASSES, num_sweeps=0, num_loaded_sweeps=0)),
    "detection_2d": (DETECTION_2D, Detection2DSettings(output_hw=(8, 16), classes=CLASSES)),
}
WEATHER = [3, 1, 4, 1, 5]


class WeatherProvider(WithField, DrivingProvider):
    def number_of(self, sample_index: int) -> int:
        return WEATHER[sample_index]


class Blackener(ArrayStep):
    """Makes the images black."""

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        return data_empty

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        for path in data.find_all_occurrences("image"):
            data.set_item_in_path(path, np.zeros_like(data.get_item_in_path(path)))
        return data


class SceneNumberer(ArrayStep):
    """Adds the length of the name of the scene."""

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        data_empty.add_data_field("scene_length", DALIDataType.INT32, ndim=0)
        return data_empty

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        sample = self.new_output(data)
        for name in data.contained_top_level_field_names:
            sample[name] = data[name]
        sample["scene_length"] = np.int32(len(data["scene"]))
        return sample


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[DrivingIndex, Path]:
    root = tmp_path_factory.mktemp("driving") / "data"
    index = write_driving_data(root)
    names = [[f"images/{frame}_{camera}.jpg" for camera in range(2)] for frame in range(5)]
    for number, name in enumerate(np.ravel(names)):
        (root / name).write_bytes(bytes(encoded_image(gradient(24, 40, number), "JPEG")))
    return attrs.evolve(index, cameras=attrs.evolve(index.cameras, file=np.array(names, np.bytes_))), root


def provider_of(data: Any, settings: Any, is_training: bool = True, **arguments: Any) -> WeatherProvider:
    return WeatherProvider(*data, **settings.provider_fields(is_training), **arguments)


@pytest.mark.parametrize("name", CASES)
def test_ranks_evaluate_each_frame_once_without_chance(data: Any, name: str) -> None:
    recipe, settings = CASES[name]
    provider = provider_of(data, settings, is_training=False)
    first, other, again = (
        batches_of(recipe, provider, settings, is_training=False, shard=(rank, 2)) for rank in (0, 1, 0)
    )
    assert len(first) == len(other)
    places = [(batch["token"][0], batch["place"]["is_padding"][0]) for batch in (*first, *other)]
    assert sorted(token for token, is_padding in places if not is_padding) == [f"frame-{n}" for n in range(5)]
    for one, same in zip(first, again, strict=True):
        np.testing.assert_array_equal(one[settings.images_key], same[settings.images_key])


@pytest.mark.parametrize("name", CASES)
def test_a_run_goes_on_where_it_was(data: Any, name: str) -> None:
    recipe, settings = CASES[name]
    provider = provider_of(data, settings)

    def images(batches: Any) -> list[Any]:
        return [batch[settings.images_key] for batch in batches]

    options: dict[str, Any] = {"seed": 3, "num_workers": 0, "output_type": "numpy"}
    with recipe.loader(provider, 1, settings, **options) as loader:
        expected = images([*loader, *loader])
    with recipe.loader(provider, 1, settings, **options) as loader:
        iterator = iter(loader)
        begun = images([next(iterator), next(iterator)])
        state = loader.state_dict()
    with recipe.loader(provider, 1, settings, **options) as loader:
        loader.load_state_dict(state)
        for one, other in zip(begun + images([*loader, *loader]), expected, strict=True):
            np.testing.assert_array_equal(one, other)


def evaluated(data: Any, name: str, windows: Any = None, **options: Any) -> list[dict[str, Any]]:
    recipe, settings = CASES[name]
    provider: Any = provider_of(data, settings, is_training=False)
    if windows is not None:
        provider = Windows(provider, windows, tolerance_s=0.1, unit="s", edges="repeat")
    batches = batches_of(recipe, provider, settings, is_training=False, **options)
    return [batch for batch in batches if not batch["place"]["is_padding"][0]]


@pytest.mark.parametrize("name", CASES)
def test_extra_fields_are_in_the_batch(data: Any, name: str) -> None:
    assert [batch["weather"].tolist() for batch in evaluated(data, name, extra_fields=["weather"])] == [
        [value] for value in WEATHER
    ]
    assert "weather" not in evaluated(data, name)[0]


def test_extra_fields_of_windows_have_an_axis_of_frames(data: Any) -> None:
    settings = attrs.evolve(CASES["streampetr"][1], queue_length=2)
    options: dict[str, Any] = {"extra_fields": ["weather"], "last_batch": "drop"}
    batches = batches_of(STREAMPETR, provider_of(data, settings), settings, **options)
    found = {int(batch["place"]["sample_index"][0]): batch["weather"].tolist() for batch in batches}
    assert found == {0: [[3, 3]], 1: [[3, 1]], 2: [[1, 4]], 3: [[4, 1]], 4: [[1, 5]]}


@pytest.mark.parametrize("name", CASES)
def test_a_field_may_have_a_window(data: Any, name: str) -> None:
    pose = "ego_from_reference" if name == "bevformer" else "world_from_ego"
    windows = {"weather": [-0.5, 0], f"ego.{pose}": [0, 0.5]}
    fields = ["weather", "weather_is_pad", "ego"]
    batches = evaluated(data, name, windows, extra_fields=fields)
    # Scenes of three and of two frames, each 0.5 s after the one before.
    assert [batch["weather"].tolist() for batch in batches] == [[[3, 3]], [[3, 1]], [[1, 4]], [[1, 1]], [[1, 5]]]
    assert [batch["weather_is_pad"].tolist()[0][0] for batch in batches] == [True, False, False, True, False]
    assert [batch["ego"][pose].shape for batch in batches] == [(1, 2, 4, 4)] * 5
    assert np.array_equal(batches[0]["ego"][pose][0, 1], batches[1]["ego"][pose][0, 0])
    without = evaluated(data, name)
    for batch, other in zip(batches, without, strict=True):
        for key, value in other.items():
            if isinstance(value, np.ndarray):
                assert np.array_equal(batch[key], value), key


def test_a_window_of_what_the_model_takes_is_refused(data: Any) -> None:
    rule = r"StreamPETR takes others as they are at the frame, .* window of cameras\[0\.\.1\]\.image"
    with pytest.raises(SettingError, match=rule):
        evaluated(data, "streampetr", {"image": [-0.5, 0], "weather": [0]}, extra_fields=["weather"])
    with pytest.raises(SettingError, match=r"BEVFormer takes `ego\.world_from_ego` as it is at each frame"):
        evaluated(data, "bevformer", {"world_from_ego": [-0.5, 0]}, extra_fields=["ego"])


def test_a_setting_is_no_argument_of_the_loader(data: Any) -> None:
    message = r"`split` is a setting of the recipe, .* Use StreamPETRSettings\(split=\.\.\.\)\."
    with pytest.raises(SettingError, match=message):
        STREAMPETR.loader(DrivingProvider(*data), 2, split=1)


def test_an_extra_field_that_is_not_there(data: Any) -> None:
    recipe, settings = CASES["streampetr"]
    with pytest.raises(FieldNotFoundError, match="wether"):
        recipe.format(provider_of(data, settings), settings, extra_fields=["wether"])


@pytest.mark.parametrize("name", CASES)
def test_steps_behind_the_image_augmentation(data: Any, name: str) -> None:
    [batch, *_] = evaluated(data, name, extra_steps=ExtraSteps(after=[Blackener()]))
    images, settings = batch["input" if name == "detection_2d" else "img"], CASES[name][1]
    black = (-np.array(settings.mean) / np.array(settings.std_dev)).astype(np.float32)
    # BEVFormer fills images of 12 x 20 pixels up with zeros.
    shown = images[..., :12, :20] if name == "bevformer" else images
    np.testing.assert_allclose(shown, np.broadcast_to(black[:, None, None], shown.shape), rtol=1e-6)


def test_steps_before_the_image_augmentation_add_fields(data: Any) -> None:
    extra = ExtraSteps(before=[SceneNumberer()])
    for name in ("streampetr", "bevformer"):
        batches = evaluated(data, name, extra_steps=extra, **_passed(name))
        assert [batch["scene_length"].tolist() for batch in batches] == [[7]] * 5


def _passed(name: str) -> dict[str, Any]:
    """BEVFormer's steps are on its queues, which the batch has all other fields of."""
    return {} if name == "bevformer" else {"extra_fields": ["scene_length"]}


def test_other_cameras_and_sizes(data: Any) -> None:
    settings = StreamPETRSettings(images=IMAGES, classes=CLASSES, output_hw=(4, 8), split=1)
    assert settings.augmentation == attrs.evolve(IMAGES, output_hw=(4, 8), scale_range=(0.2, 0.3))
    provider = provider_of(data, settings, cameras=["LEFT"])
    batches = batches_of(STREAMPETR, provider, settings)
    assert [batch["img"].shape for batch in batches] == [(1, 1, 1, 3, 4, 8)] * 5
    assert StreamPETRSettings(output_hw=(128, 352)).augmentation.scale_range == (0.19, 0.275)


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"detection_2d"}))
def test_each_recipe_takes_another_set_of_cameras(data: Any, name: str) -> None:
    recipe, settings = CASES[name]
    provider = provider_of(data, settings, is_training=False, cameras=["LEFT"])
    of_one = batches_of(recipe, provider, settings, is_training=False)[0]["img"]
    of_two = evaluated(data, name)[0]["img"]
    assert (of_one.shape[-4], of_two.shape[-4]) == (1, 2)
    place = provider_of(data, settings, is_training=False).camera_names.index("LEFT")
    np.testing.assert_array_equal(of_one[..., 0, :, :, :], of_two[..., place, :, :, :])


def test_the_format_of_a_model(data: Any) -> None:
    recipe, settings = CASES["streampetr"]
    format = recipe.format(provider_of(data, settings, False), settings, is_training=False).format
    assert format.names == (
        *("lidar2img", "intrinsics", "extrinsics", "timestamp", "img_timestamp", "ego_pose", "ego_pose_inv"),
        *("cameras", "token", "scene"),
    )
    image = format.at(("cameras", 1, "image"))
    assert (image.dtype, image.ndim, image.content.layout) == (DALIDataType.FLOAT, 3, "CHW")


def test_reduced_decoding_is_refused_where_there_is_none(data: Any) -> None:
    recipe, settings = CASES["bevformer"]
    with pytest.raises(SettingError, match="BEVFormer takes no `reduced_decoding`"):
        recipe.loader(provider_of(data, settings), 1, settings, reduced_decoding=True)


def trained(data: Any, recipe: Recipe, settings: Any) -> dict[int, Any]:
    """Batches of one sample, by its number."""
    batches = batches_of(recipe, provider_of(data, settings), settings, last_batch="drop")
    return {int(batch["place"]["sample_index"][0]): batch for batch in batches}


def test_another_horizon_of_sparsedrive(data: Any) -> None:
    settings = SparseDriveSettings(images=IMAGES, classes=CLASSES, split=1)
    short = attrs.evolve(settings, num_future_frames=1, num_ego_future_frames=2)
    of_long, of_short = trained(data, SPARSEDRIVE, settings), trained(data, SPARSEDRIVE, short)
    assert (of_long[0]["gt_ego_fut_trajs"].shape, of_short[0]["gt_ego_fut_trajs"].shape) == ((1, 6, 2), (1, 2, 2))
    num_agents = 0
    for number, batch in of_short.items():
        for what in ("trajs", "masks"):
            of_ego = of_long[number][f"gt_ego_fut_{what}"][:, :2]
            np.testing.assert_array_equal(batch[f"gt_ego_fut_{what}"], of_ego)
            agents, of_long_agents = (each[f"gt_agent_fut_{what}"][0] for each in (batch, of_long[number]))
            assert (agents.shape[1], of_long_agents.shape[1]) == (1, 12)
            np.testing.assert_array_equal(agents, of_long_agents[:, :1])
            num_agents += len(agents)
    assert num_agents > 0


@pytest.mark.parametrize("name", ["streampetr", "bevformer"])
def test_another_length_of_queues(data: Any, name: str) -> None:
    recipe, settings = CASES[name]
    for length in (1, 3):
        batches = trained(data, recipe, attrs.evolve(settings, queue_length=length))
        assert len(batches) == 5
        for batch in batches.values():
            assert (batch["img"].shape[:3], batch["timestamp"].shape) == ((1, length, 2), (1, length))


def test_another_number_of_sweeps(data: Any) -> None:
    wide = (-1e6, -1e6, -1e6, 1e6, 1e6, 1e6)
    few, more = (
        trained(data, BEVFUSION, attrs.evolve(CASES["bevfusion"][1], num_sweeps=count, point_cloud_range=wide))
        for count in (0, 1)
    )
    counts = [[len(batch["points"][0]) for _, batch in sorted(batches.items())] for batches in (few, more)]
    assert all(own > one for one, own in zip(*counts, strict=True)), counts


BOTH = "can_bus: must be True, is False...boxes: must be True, is False"
SWEEPS = "num_sweeps: must be at least 2, is 0...Create the provider with: lidar=True, "
PLANNED = "ego_status...min_points...lidar...map_lines...no class 'barrier'. Did you mean 'barier'?"
LACKING: list[tuple[str, dict[str, Any], str]] = [
    ("bevformer", {"boxes": False}, BOTH),
    ("bevformer", {"can_bus": True, "cameras": ()}, "cameras: there must be at least one"),
    ("bevfusion", {"reference": "ego"}, "lidar: must be True...reference: must be 'lidar', is 'ego'"),
    ("bevfusion", {"lidar": True}, SWEEPS),
    ("detection_2d", {}, "boxes_2d: must be True, is False"),
    ("planning", {"classes": ["car", "barrier"]}, PLANNED),
]


@pytest.mark.parametrize(("name", "fields", "words"), LACKING)
def test_all_that_a_provider_lacks_is_named(data: Any, name: str, fields: dict[str, Any], words: str) -> None:
    of_sweeps = attrs.evolve(CASES["bevfusion"][1], num_sweeps=1, num_loaded_sweeps=2)
    planning = (SPARSEDRIVE, SparseDriveSettings(classes=("car", "barier")))
    recipe, settings = {**CASES, "bevfusion": (BEVFUSION, of_sweeps), "planning": planning}[name]
    assert_refused(lambda: recipe.loader(DrivingProvider(*data, **fields), 1, settings), words)


def test_what_is_no_provider_of_frames_is_named() -> None:
    assert_refused(lambda: STREAMPETR.steps(object()), "takes a DrivingProvider")  # type: ignore[arg-type]
