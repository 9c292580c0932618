"""Data sets of different origin in one loader."""

from pathlib import Path

import numpy as np
import pytest
from driving_support.driving_data import write_driving_data
from driving_support.nuscenes_data import write_nuscenes

from accvlab.dali_pipeline_framework import (
    ConcatDataProvider,
    DataLoader,
    ImageDecoder,
    MixedSampler,
    ShuffledSampler,
)
from accvlab.driving_data.datasets import DrivingProvider, NuScenesProvider, PhysicalAiProvider
from accvlab.driving_data.testing import made_drive

STEPS = [ImageDecoder("image", use_device_mixed=True)]


@pytest.fixture(scope="module")
def providers(tmp_path_factory: pytest.TempPathFactory) -> list[DrivingProvider]:
    """nuScenes, whose base is the lidar, and data without a lidar, whose base is the vehicle."""
    root: Path = tmp_path_factory.mktemp("nuscenes") / "root"
    write_nuscenes(root)
    other = tmp_path_factory.mktemp("other")
    index = write_driving_data(other, base="ego")
    shared = {"reference": "ego", "num_ego_future_frames": 2}
    return [
        NuScenesProvider(
            root,
            "v1.0-mini",
            cameras=["CAM_FRONT", "CAM_BACK"],
            classes={"car": "vehicle", "truck": "vehicle", "pedestrian": "person"},
            index_cache=root.parent / "cache",
            **shared,
        ),
        DrivingProvider(index, other, classes={"car": "vehicle", "pedestrian": "person"}, **shared),
    ]


@pytest.mark.wide
def test_they_have_one_format_and_one_numbering(providers: list[DrivingProvider]) -> None:
    one, other = providers
    assert one.sample_data_structure.format == other.sample_data_structure.format
    assert one.class_names == other.class_names == ("vehicle", "person")
    for provider in providers:
        for number in range(len(provider)):
            sample = provider.get_data(number)
            np.testing.assert_allclose(sample["ego"]["ego_from_reference"], np.eye(4), atol=1e-9)
            assert set(sample["boxes"]["categories"]) <= {0, 1}


def test_they_are_mixed(providers: list[DrivingProvider]) -> None:
    joined = ConcatDataProvider(providers)
    first = len(providers[0])
    parts = [ShuffledSampler(len(provider), seed=number) for number, provider in enumerate(providers)]
    sampler = MixedSampler(parts, [0.5, 0.5], offsets=joined.offsets)
    arguments = {"num_workers": 0, "output_type": "numpy", "ragged": "list", "context_name": "place"}
    names = set()
    with DataLoader(joined, 2, sampler=sampler, steps=STEPS, **arguments) as loader:
        for batch in loader:
            for sample in range(2):
                number = int(batch["place"]["sample_index"][sample])
                which = int(number >= first)
                expected = providers[which].get_data(number - first * which)
                assert batch["token"][sample] == expected["token"]
                np.testing.assert_array_equal(batch["boxes"]["centers"][sample], expected["boxes"]["centers"])
                names.add(batch["cameras"][0]["name"][sample])
    assert names == {"CAM_FRONT", "FRONT"}


def test_a_data_set_of_videos_that_is_joined_with_itself(tmp_path: Path) -> None:
    root = made_drive(tmp_path / "clips", "physical_ai")
    videos = PhysicalAiProvider(root, cameras=["camera_front_wide_120fov"], index_cache=tmp_path / "cache")
    both = ConcatDataProvider([videos, videos])
    batch = [1, len(videos) + 3, 0, len(videos) + 2]  # of each part, not in the order of the video
    loaded = [np.array(sample["cameras"][0]["image"]) for sample in both.load_batch(batch, range(4))]
    for index, image in zip(batch, loaded, strict=True):
        np.testing.assert_array_equal(image, both.get_data(index)["cameras"][0]["image"])
