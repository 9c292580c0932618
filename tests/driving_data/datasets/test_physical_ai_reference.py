"""PhysicalAI-AV as Alpamayo's own code reads it: every run of the reference, in the published layout."""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np
import pytest
from support.laws import some
from support.shared_data import shared_data

from accvlab.dali_pipeline_framework import FaultPolicy, SequentialSampler
from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.driving_data.datasets import Moments, PhysicalAiProvider
from accvlab.driving_data.datasets.driving import poses
from accvlab.driving_data.recipes import ALPAMAYO, ALPAMAYO_RL, AlpamayoSettings, Recipe
from accvlab.driving_data.viewing import FThetaLens

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("av", reason="PyAV is not installed")

CLIP_A = "00000000-0000-4000-8000-00000000000a"
FRONT, RIGHT = "camera_front_wide_120fov", "camera_cross_right_120fov"
SOURCES = ["camera_cross_left_120fov", RIGHT, FRONT, "camera_front_tele_30fov"]  # of the code in the pictures
TOLERANCES = {"xyz": 5e-6, "rot": 1e-6}


@pytest.fixture(autouse=True)
def _index_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("ACCVLAB_INDEX_CACHE", str(tmp_path_factory.getbasetemp() / "alpamayo_indices"))


@functools.cache
def reference() -> tuple[dict[str, Any], Any, Any]:
    folder = shared_data("golden/alpamayo") / "expected"
    expected = json.loads((folder / "expected.json").read_text())
    return expected, np.load(folder / "samples.npz"), np.load(folder / "images.npz")


def root() -> Any:
    return shared_data("golden/alpamayo") / "PhysicalAI-like"


def codes(pictures: np.ndarray) -> list[list[int]]:
    """Source and number of the frame of each picture ``(n, 3, H, W)``."""
    bits = (pictures[:, :, 4:16, 4 : 4 + 144].reshape(len(pictures), 3, 12, 12, 12).mean((1, 2, 4)) > 127).astype(
        int
    )
    values = bits @ (1 << np.arange(11, -1, -1))
    return [[int(value) >> 10, int(value) & 1023] for value in values]


def assert_equal_to(key: str, sample: dict[str, Any], item: dict[str, Any]) -> None:
    """Compare a sample, by the names of the reference, with what it says."""
    _, samples, images = reference()
    for name, (shape, dtype) in item["types"].items():
        value = sample[name]
        assert (list(value.shape), f"torch.{value.dtype}") == (shape, dtype), name
        if name == "image_frames":
            continue
        expected, tolerance = samples[f"{key}.{name}"], TOLERANCES.get(name[-3:], 0)
        np.testing.assert_allclose(value, expected, rtol=0, atol=tolerance, err_msg=name)
    pictures = np.ascontiguousarray(sample["image_frames"]).reshape(-1, *sample["image_frames"].shape[-3:])
    assert codes(pictures) == item["image_codes_camera_framenumber"]
    blocks = pictures.reshape(len(pictures), 3, 18, 8, 32, 8).mean((3, 5))
    assert np.abs(blocks - samples[f"{key}.image_block8"]).max() <= 1
    for number, picture in enumerate(pictures):
        if f"{key}.image{number}" in images:
            np.testing.assert_array_equal(picture, images[f"{key}.image{number}"])


def loaded(recipe: Recipe, provider: PhysicalAiProvider, settings: AlpamayoSettings) -> list[dict[str, Any]]:
    """The samples that can be loaded, in order, of one batch of a loader."""
    sampler, faults = SequentialSampler(len(provider)), FaultPolicy(samples="skip")
    options: dict[str, Any] = {"num_workers": 0, "output_type": "numpy", "faults": faults, "sampler": sampler}
    with recipe.loader(provider, len(provider), settings, **options) as loader:
        (batch,) = loader
    fields = {name: value for name, value in batch.items() if name != "place"}
    return [{name: value[number] for name, value in fields.items()} for number in range(len(batch["t0_us"]))]


RUNS = {
    "all_chunks": (ALPAMAYO, {}, {}, {}),
    "chunk_range": (ALPAMAYO, {}, {}, {"chunks": "0-7"}),
    "chunk_list": (ALPAMAYO, {}, {}, {"chunks": [7]}),
    "rl": (ALPAMAYO_RL, {}, {}, {}),
    "default_keyframe": (ALPAMAYO, {}, {"at": "default keyframe"}, {}),
    "short": (ALPAMAYO, {"num_history_steps": 5, "num_future_steps": 10}, {}, {}),
}


@some("run", RUNS, {0, 3, 5})
def test_a_run_is_that_of_the_reference(run: str) -> None:
    recipe, of_settings, of_moments, of_provider = RUNS[run]
    expected, settings = reference()[0][run], AlpamayoSettings(**of_settings)
    provider = PhysicalAiProvider(
        root(), moments=Moments(**of_moments), **of_provider, **settings.provider_fields()
    )
    assert (len(provider), list(provider.scene_names)) == (expected["len"], expected["clip_ids"])
    events = PhysicalAiProvider(root(), moments=Moments(at="events"), cameras=[FRONT], **of_provider)
    found: dict[str, list[int]] = {}
    for token in (
        events.describe_sample(sample).split("token '")[1].split("'")[0] for sample in range(len(events))
    ):
        found.setdefault(token.split("/")[0], []).append(int(token.split("/")[1]))
    assert found == expected["event_t0s"]
    if not expected["items"]:
        return
    right = [item for item in expected["items"] if "error" not in item]
    for number, (sample, item) in enumerate(zip(loaded(recipe, provider, settings), right, strict=True)):
        assert (sample["clip_id"], int(sample["t0_us"])) == (item["clip_id"], item["t0_us"])
        assert_equal_to(f"{run}.{number}", sample, item)
    for number, item in enumerate(expected["items"]):
        if "error" in item:
            with pytest.raises(FieldValueError, match=r"needs .* to 11\.5 s, but the motion is known from"):
                provider.get_data(number)


@pytest.mark.parametrize("is_front", [False, True])
def test_any_time_of_a_clip_is_that_of_the_reference(is_front: bool) -> None:
    """Ten times of one clip; two of them fail there, and here."""
    settings = AlpamayoSettings()
    items = [item for item in reference()[0]["by_t0"] if item["key"].endswith("front") == is_front]
    fields: dict[str, Any] = {**settings.provider_fields(), **({"cameras": [FRONT]} if is_front else {})}
    times = [item["t0_us"] / 1e6 for item in items]
    provider = PhysicalAiProvider(root(), moments=Moments(at={CLIP_A: times}), **fields)
    right = [item for item in items if "error" not in item]
    found = {int(sample["t0_us"]): sample for sample in loaded(ALPAMAYO, provider, settings)}
    assert sorted(found) == [item["t0_us"] for item in right]
    for item in right:
        # The function of the reference has one more axis.
        sample = {
            name: value[None] if name.startswith("ego_") else value for name, value in found[item["t0_us"]].items()
        }
        assert_equal_to(item["key"], sample, item)


def test_motion_between_its_poses_is_that_of_the_reference() -> None:
    samples = reference()[1]
    times = samples["ego_interp.t"] / 1e6
    provider = PhysicalAiProvider(root(), moments=Moments(at={CLIP_A: times}), cameras=())
    found = np.stack([provider.get_data(number)["ego"]["world_from_ego"][:3] for number in range(len(times))])
    np.testing.assert_allclose(found[..., 3], samples["ego_interp.xyz"], atol=1e-9)
    expected = poses.rotation_of_quaternion(samples["ego_interp.quat_xyzw"][:, [3, 0, 1, 2]])
    np.testing.assert_allclose(found[..., :3], expected, atol=1e-12)


def test_calibrations_are_those_of_the_reference() -> None:
    expected, samples, _ = reference()
    for clip, sizes in expected["vehicle_dimensions"].items():
        provider = PhysicalAiProvider(
            root(), moments=Moments(), scenes=[clip], cameras=SOURCES, lenses=True, vehicle_size=True
        )
        sample = provider.get_data(0)
        np.testing.assert_array_equal(sample["ego"]["vehicle_size"], [*sizes.values()])
        for name, camera in zip(SOURCES, sample["cameras"].values(), strict=True):
            of = {
                key: samples[f"calib.{clip}.{name}.{key}"] for key in ("pixels", "pixel2ray", "rays", "ray2pixel")
            }
            lens = FThetaLens(**{key: camera["lens"][key] for key in camera["lens"]})
            np.testing.assert_allclose(lens.rays(of["pixels"]), of["pixel2ray"], atol=1e-12)
            np.testing.assert_allclose(lens.pixels(of["rays"]), of["ray2pixel"], atol=1e-9)
            sensor2ego = samples[f"calib.{clip}.{name}.sensor2ego"]
            np.testing.assert_allclose(camera["ego_from_camera"], sensor2ego, atol=1e-12)


def test_the_frame_taken_is_that_of_the_reference() -> None:
    """Also where the time stamps have a gap that the video does not have."""
    choice = reference()[0]["frame_choice"]
    assert choice["camera"] == RIGHT
    times = [time / 1e6 for time in choice["asked"]]
    provider = PhysicalAiProvider(root(), moments=Moments(at={CLIP_A: times}), cameras=[RIGHT])
    for number, (frame, time) in enumerate(zip(choice["frame"], choice["timestamp"], strict=True)):
        camera = provider.get_data(number)["cameras"][0]
        assert codes(camera["image"].transpose(2, 0, 1)[None]) == [[1, frame]]
        assert round(float(camera["timestamp"]) * 1e6) == time
