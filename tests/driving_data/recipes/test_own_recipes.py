"""What all recipes do alike, and what a user changes: fields and steps of one's own, other cameras and sizes."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from driving_support.recipe_cases import OF_DRIVE, SMALL, WithField, batches_of
from nvidia.dali.types import DALIDataType
from support.laws import spread
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import MapStep, Windows, for_each
from accvlab.dali_pipeline_framework.errors import FieldNotFoundError, SettingError, SourceError
from accvlab.driving_data.datasets import DrivingProvider
from accvlab.driving_data.recipes import (
    BEVFUSION,
    SPARSEDRIVE,
    STREAMPETR,
    BEVFusionSettings,
    Detection2DSettings,
    ExtraSteps,
    ImageAugmentation,
    SparseDriveSettings,
    StreamPETRSettings,
)

WEATHER = [3, 1, 4, 1, 5]


class WeatherProvider(WithField, DrivingProvider):
    def number_of(self, sample_index: int) -> int:
        return WEATHER[sample_index]


def provider_of(drive: Any, settings: Any, is_training: bool = False, **arguments: Any) -> WeatherProvider:
    return WeatherProvider(*drive, **settings.provider_fields(is_training), **arguments)


def evaluated(drive: Any, name: str, windows: Any = None, **options: Any) -> list[dict[str, Any]]:
    recipe, settings = OF_DRIVE[name]
    provider: Any = provider_of(drive, settings)
    if windows is not None:
        provider = Windows(provider, windows, tolerance_s=0.1, unit="s", edges="repeat")
    batches = batches_of(recipe, provider, settings, is_training=False, **options)
    return [batch for batch in batches if not batch["place"]["is_padding"][0]]


# --- orders ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OF_DRIVE)
def test_ranks_evaluate_each_frame_once_in_order_without_chance(drive: Any, name: str) -> None:
    first, other, again = (evaluated(drive, name, shard=(rank, 2)) for rank in (0, 1, 0))
    tokens = [[batch["token"][0] for batch in of_rank] for of_rank in (first, other)]
    assert tokens == [sorted(of_rank) for of_rank in tokens]
    assert sorted([*tokens[0], *tokens[1]]) == [f"frame-{number}" for number in range(5)]
    for one, same in zip(first, again, strict=True):
        assert not {"gt_bboxes_3d", "prev_exists", "hm"} & one.keys()
        np.testing.assert_array_equal(one[OF_DRIVE[name][1].images_key], same[OF_DRIVE[name][1].images_key])


@spread("name", OF_DRIVE, 2)
def test_a_run_goes_on_where_it_was(drive: Any, name: str) -> None:
    recipe, settings = OF_DRIVE[name]
    provider = provider_of(drive, settings, is_training=True)

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


# --- fields and steps of one's own ----------------------------------------------------------------------


@spread("name", OF_DRIVE, 2)
def test_extra_fields_may_have_windows(drive: Any, name: str) -> None:
    plain = evaluated(drive, name, extra_fields=["weather"])
    assert [batch["weather"].tolist() for batch in plain] == [[value] for value in WEATHER]
    pose = "ego_from_reference" if name == "bevformer" else "world_from_ego"
    windows, fields = {"weather": [-0.5, 0], f"ego.{pose}": [0, 0.5]}, ["weather", "weather_is_pad", "ego"]
    batches = evaluated(drive, name, windows, extra_fields=fields)
    # Scenes of three and of two frames, each 0.5 s after the one before.
    assert [batch["weather"].tolist() for batch in batches] == [[[3, 3]], [[3, 1]], [[1, 4]], [[1, 1]], [[1, 5]]]
    assert [batch["weather_is_pad"].tolist()[0][0] for batch in batches] == [True, False, False, True, False]
    assert [batch["ego"][pose].shape for batch in batches] == [(1, 2, 4, 4)] * 5
    assert np.array_equal(batches[0]["ego"][pose][0, 1], batches[1]["ego"][pose][0, 0])
    for batch, other in zip(batches, plain, strict=True):
        for key, value in other.items():
            if isinstance(value, np.ndarray) and key != "weather":
                assert np.array_equal(batch[key], value), key


def test_extra_fields_of_queues_have_an_axis_of_frames(drive: Any) -> None:
    settings = attrs.evolve(OF_DRIVE["streampetr"][1], queue_length=2)
    options: dict[str, Any] = {"extra_fields": ["weather"], "last_batch": "drop"}
    batches = batches_of(STREAMPETR, provider_of(drive, settings, is_training=True), settings, **options)
    found = {int(batch["place"]["sample_index"][0]): batch["weather"].tolist() for batch in batches}
    assert found == {0: [[3, 3]], 1: [[3, 1]], 2: [[1, 4]], 3: [[4, 1]], 4: [[1, 5]]}


@pytest.mark.parametrize("name", OF_DRIVE)
def test_steps_behind_the_image_augmentation(drive: Any, name: str) -> None:
    blackener = for_each(
        "images" if name == "bevformer" else "cameras", MapStep(np.zeros_like, input_names="image")
    )
    [batch, *_] = evaluated(drive, name, extra_steps=ExtraSteps(after=[blackener]))
    settings = OF_DRIVE[name][1]
    black = (-np.array(settings.mean) / np.array(settings.std_dev)).astype(np.float32)
    # BEVFormer fills images of 15 x 22 pixels up with zeros.
    shown = batch[settings.images_key][..., :15, :22]
    np.testing.assert_allclose(shown, np.broadcast_to(black[:, None, None], shown.shape), rtol=1e-6)


def test_steps_before_the_image_augmentation_add_fields(drive: Any) -> None:
    counter = MapStep(len, input_names="scene", output_types={"scene_length": DALIDataType.INT32})
    # BEVFormer's steps are on its queues, which the batch has all other fields of.
    for name, fields in (("streampetr", {"extra_fields": ["scene_length"]}), ("bevformer", {})):
        batches = evaluated(drive, name, extra_steps=ExtraSteps(before=[counter]), **fields)
        assert [batch["scene_length"].tolist() for batch in batches] == [[7]] * 5


# --- other images ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(OF_DRIVE.keys() - {"detection_2d"}))
def test_each_recipe_takes_another_set_of_cameras(drive: Any, name: str) -> None:
    recipe, settings = OF_DRIVE[name]
    provider = provider_of(drive, settings, cameras=["LEFT"])
    of_one = batches_of(recipe, provider, settings, is_training=False)[0]["img"]
    of_two = evaluated(drive, name)[0]["img"]
    assert (of_one.shape[-4], of_two.shape[-4]) == (1, 2)
    place = provider_of(drive, settings).camera_names.index("LEFT")
    np.testing.assert_array_equal(of_one[..., 0, :, :, :], of_two[..., place, :, :, :])


def test_another_size(drive: Any) -> None:
    settings = attrs.evolve(OF_DRIVE["streampetr"][1], output_hw=(4, 8))
    assert settings.augmentation == attrs.evolve(SMALL, output_hw=(4, 8), scale_range=(0.2, 0.3))
    batches = batches_of(STREAMPETR, provider_of(drive, settings, is_training=True), settings)
    assert [batch["img"].shape for batch in batches] == [(1, 1, 2, 3, 4, 8)] * 5
    assert StreamPETRSettings(output_hw=(128, 352)).augmentation.scale_range == (0.19, 0.275)


# --- what is refused ------------------------------------------------------------------------------------

SWEPT = BEVFusionSettings(num_sweeps=1, num_loaded_sweeps=2)
BOTH = "can_bus: must be True, is False...boxes: must be True, is False"
SWEEPS = "num_sweeps: must be at least 2, is 0...Create the provider with: lidar=True, "
PLANNED = "ego_status...min_points...lidar...map_lines...no class 'barrier'. Did you mean 'barier'?"
LACKING: list[tuple[tuple[Any, Any], dict[str, Any], str]] = [
    (OF_DRIVE["bevformer"], {"boxes": False}, BOTH),
    (OF_DRIVE["bevformer"], {"can_bus": True, "cameras": ()}, "cameras: there must be at least one"),
    ((BEVFUSION, SWEPT), {"reference": "ego"}, "lidar: must be True...reference: must be 'lidar', is 'ego'"),
    ((BEVFUSION, SWEPT), {"lidar": True}, SWEEPS),
    (OF_DRIVE["streampetr"], {"reference": "ego"}, "reference: must be 'lidar', as in the data set, is 'ego'"),
    (OF_DRIVE["detection_2d"], {}, "boxes_2d: must be True, is False"),
    ((SPARSEDRIVE, SparseDriveSettings(classes=("car", "barier"))), {"classes": ["car", "barrier"]}, PLANNED),
    ((STREAMPETR, Detection2DSettings()), {}, "`settings` must be StreamPETRSettings, got Detection2DSettings"),
]


@pytest.mark.parametrize(("recipe", "fields", "words"), LACKING)
def test_all_that_a_provider_lacks_is_named(drive: Any, recipe: Any, fields: Any, words: str) -> None:
    assert_refused(lambda: recipe[0].loader(DrivingProvider(*drive, **fields), 1, recipe[1]), words)


def test_what_is_no_provider_of_frames_is_named() -> None:
    assert_refused(lambda: STREAMPETR.steps(object()), "takes a DrivingProvider")  # type: ignore[arg-type]


REFUSED: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("streampetr", {"extra_fields": ["wether"]}, FieldNotFoundError, "wether"),
    (
        "streampetr",
        {"windows": {"image": [-0.5, 0], "weather": [0]}, "extra_fields": ["weather"]},
        SettingError,
        "StreamPETR takes others as they are at the frame, ... window of cameras[0..1].image",
    ),
    (
        "bevformer",
        {"windows": {"world_from_ego": [-0.5, 0]}, "extra_fields": ["ego"]},
        SettingError,
        "BEVFormer takes `ego.world_from_ego` as it is at each frame",
    ),
    ("bevformer", {"reduced_decoding": True}, SettingError, "BEVFormer takes no `reduced_decoding`"),
    (
        "streampetr",
        {"split": 1},
        SettingError,
        "`split` is a setting of the recipe, ... Use StreamPETRSettings(split=",
    ),
]


@pytest.mark.parametrize(("name", "options", "error", "words"), REFUSED)
def test_arguments_that_are_refused(drive: Any, name: str, options: Any, error: Any, words: str) -> None:
    assert_refused(lambda: evaluated(drive, name, **options), words, error)


@pytest.mark.parametrize("name", ["streampetr", "sparsedrive", "bevfusion", "detection_2d"])
def test_images_that_leave_the_output_black_are_refused(drive: Any, name: str) -> None:
    recipe, settings = OF_DRIVE[name]
    images = ImageAugmentation(output_hw=(256, 352), scale_range=(2, 3))
    settings = attrs.evolve(settings, images=images, output_hw=None)
    words = "images of 44 x 30 pixels ... do not fill the output of ... is black. `scale_range=(...)` fits"
    provider = provider_of(drive, settings, is_training=True)
    assert_refused(lambda: batches_of(recipe, provider, settings), words, SourceError)
