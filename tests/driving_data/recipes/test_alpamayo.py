"""The recipe of Alpamayo: names, shapes and numbers, what a user changes, and where it continues."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from driving_support.physical_ai import CAMERAS, FRONT, LEFT, LENS, TELE, VEHICLE, mounted, write_published
from driving_support.recipe_cases import WithField, batches_of
from support.videos import read_numbers

from accvlab.dali_pipeline_framework import FaultPolicy, MapStep, for_each
from accvlab.dali_pipeline_framework.errors import SettingError, SourceError
from accvlab.driving_data.datasets import Moments, PhysicalAiProvider
from accvlab.driving_data.recipes import ALPAMAYO, ALPAMAYO_RL, AlpamayoSettings, ExtraSteps, batch_view
from accvlab.driving_data.viewing import FThetaLens, show

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("av", reason="PyAV is not installed")

SETTINGS: dict[str, Any] = {"num_history_steps": 3, "num_future_steps": 4, "image_times": (-0.1, 0.0)}
MOMENTS = Moments(every_s=0.2, history_s=0.4, future_s=0.5)
NUMPY: dict[str, Any] = {"num_workers": 0, "output_type": "numpy"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return write_published(tmp_path_factory.mktemp("alpamayo") / "data")


class WeatherProvider(WithField, PhysicalAiProvider):
    pass


def first_batch(root: Any, recipe: Any = ALPAMAYO, options: dict[str, Any] | None = None, **settings: Any) -> Any:
    of_recipe = AlpamayoSettings(**{**SETTINGS, **settings})
    provider = WeatherProvider(root, moments=MOMENTS, scenes=["clip-a", "clip-b"], **of_recipe.provider_fields())
    return batches_of(recipe, provider, of_recipe, 2, is_training=False, **(options or {}))[0]


def test_cameras_are_in_the_order_of_their_numbers(root: Any) -> None:
    settings = AlpamayoSettings(**SETTINGS)
    provider = PhysicalAiProvider(
        root,
        moments=Moments(at=[0.8687, 0.8767, 0.8917]),
        chunks=[0],
        cameras=[TELE, LEFT, FRONT],
        **settings.provider_fields(),
    )
    [batch] = batches_of(ALPAMAYO, provider, settings, len(provider), is_training=False)
    assert batch["camera_indices"].tolist() == [[0, 1, 6]] * len(provider)
    sample, names = provider.get_data(1), [LEFT, FRONT, TELE]
    of_name = dict(zip(provider.camera_names, sample["cameras"].values(), strict=True))
    for place, name in enumerate(names):
        pictures = batch["image_frames"][1, place].transpose(0, 2, 3, 1)
        assert read_numbers(pictures) == read_numbers(of_name[name]["image"])
        times = np.rint(of_name[name]["timestamp"] * 1e6)
        np.testing.assert_array_equal(batch["absolute_timestamps"][1, place], times)
    absolute = batch["absolute_timestamps"]
    first = absolute.min(axis=(1, 2), keepdims=True)
    assert {int(camera) for camera in absolute[:, :, 0].argmin(axis=1)} == {0, 1, 2}  # each is the first at times
    np.testing.assert_allclose(batch["relative_timestamps"], (absolute - first) / 1e6, atol=1e-7)
    np.testing.assert_array_equal(batch["ego_future_xyz"][1, 0], sample["ego_future"]["positions"])


def test_of_reinforcement_learning_has_one_axis_of_images(root: Any) -> None:
    plain, batch = first_batch(root), first_batch(root, ALPAMAYO_RL)
    assert batch["image_frames"].shape == (2, 6, 1, 3, 64, 96)
    assert batch["camera_indices"].tolist() == [[0, 0, 1, 1, 6, 6]] * 2
    assert batch["absolute_timestamps"].tolist() == plain["absolute_timestamps"].reshape(2, 6).tolist()
    np.testing.assert_array_equal(batch["image_frames"][:, 3, 0], plain["image_frames"][:, 1, 1])


def test_calibrations_are_those_of_the_cameras(root: Any) -> None:
    batch = first_batch(root, calibration=True)
    for place, name in enumerate((LEFT, FRONT, TELE)):
        np.testing.assert_allclose(batch["extr"][1, place, :3], mounted(name), atol=1e-6)
    np.testing.assert_allclose(batch["intr"], np.broadcast_to(np.float32(LENS), (2, 3, 14)))
    np.testing.assert_allclose(batch["ego_lwh"], [VEHICLE[:3]] * 2)
    np.testing.assert_allclose(batch["ego_length_offset"], [VEHICLE[3] / VEHICLE[0]] * 2)


def test_a_view_shows_the_way_through_the_lenses(root: Any) -> None:
    settings = AlpamayoSettings(**SETTINGS, calibration=True, output_hw=(32, 48))
    batch = first_batch(root, calibration=True, output_hw=(32, 48))
    view = batch_view(batch, settings, 1)
    assert [camera.name for camera in view.cameras] == [LEFT, FRONT, TELE]
    front = view.cameras[1]
    # Of half the size, the center, and the pixels per radian, are half as far away.
    assert isinstance(front.lens, FThetaLens)
    np.testing.assert_allclose([*front.lens.center, front.lens.forward[1]], [24, 16, 25], rtol=1e-6)
    np.testing.assert_allclose(front.camera_from_reference @ [1.7, 0, 1.4, 1], 0, atol=1e-6)
    assert view.future is not None
    np.testing.assert_array_equal(view.future.positions, batch["ego_future_xyz"][1, 0])
    np.testing.assert_allclose(view.future.times, [0.1, 0.2, 0.3, 0.4])
    assert show(view).pixels().shape[2] == 3


def test_size_horizon_fields_and_steps_are_changed_by_an_argument_each(root: Any) -> None:
    darker = ExtraSteps(after=[for_each("cameras", MapStep(lambda image: image // 2, input_names="image"))])
    batch = first_batch(
        root,
        options={"extra_fields": ["weather"], "extra_steps": darker},
        num_future_steps=2,
        time_step=0.2,
        image_times=(0,),
        output_hw=(32, 48),
    )
    assert batch["image_frames"].shape == (2, 3, 1, 3, 32, 48)
    assert batch["ego_future_xyz"].shape == (2, 1, 2, 3)
    assert batch["weather"].tolist() == [10, 11]
    plain = first_batch(root, image_times=(0,), output_hw=(32, 48))["image_frames"]
    np.testing.assert_array_equal(batch["image_frames"], plain // 2)


def test_a_moment_that_is_too_early_is_named(root: Any) -> None:
    settings = AlpamayoSettings(num_history_steps=2, num_future_steps=4, time_step=0.3, image_times=(0,))
    provider = PhysicalAiProvider(
        root, moments=Moments(at={"clip-a": [0.6, 0.6 + 1e-6]}), cameras=[FRONT], **settings.provider_fields()
    )
    assert len(provider) == 2
    options: dict[str, Any] = {"is_training": False, **NUMPY}
    message = r"must be after num_history_steps \* time_step, 0\.6 s.* got 0\.6 s of 'clip-a'"
    with ALPAMAYO.loader(provider, 1, settings, **options) as loader, pytest.raises(SourceError, match=message):
        next(iter(loader))
    with ALPAMAYO.loader(provider, 2, settings, faults=FaultPolicy(samples="replace"), **options) as loader:
        assert next(iter(loader))["t0_us"].tolist() == [600_001] * 2


def test_what_is_missing_is_named(root: Any) -> None:
    settings = AlpamayoSettings(**SETTINGS)
    plain = PhysicalAiProvider(root, moments=MOMENTS, cameras=[FRONT])
    with pytest.raises(SettingError) as raised:
        ALPAMAYO.steps(plain, settings)
    assert "image_times: must be (-0.1, 0.0), is ()" in str(raised.value)
    assert "ego_future: must be (0.1, 0.2," in str(raised.value)
    provider = PhysicalAiProvider(root, moments=MOMENTS, **settings.provider_fields())
    assert pickle.loads(pickle.dumps(ALPAMAYO.steps(provider, settings)))
    numbers = {name: number for number, name in enumerate(CAMERAS) if name != TELE}
    with pytest.raises(SettingError, match=f"must have all cameras of the provider, not '{TELE}'"):
        ALPAMAYO.steps(provider, AlpamayoSettings(**SETTINGS, camera_numbers=numbers))
