"""Data sets of different origin in one loader."""

from pathlib import Path

import numpy as np
import pytest
from driving_support.driving_data import write_driving_data

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
    folder = tmp_path_factory.mktemp("drives")
    root, shared = made_drive(folder / "nuscenes", "nuscenes"), {"reference": "ego", "num_ego_future_frames": 2}
    classes = {"car": "vehicle", "pedestrian": "person"}
    index = write_driving_data(folder / "other", base="ego")
    cache = folder / "cache"
    return [
        NuScenesProvider(root, "v1.0-mini", classes={**classes, "truck": "vehicle"}, index_cache=cache, **shared),
        DrivingProvider(index, folder / "other", classes=classes, **shared),
    ]


def test_they_are_mixed(providers: list[DrivingProvider]) -> None:
    one, other = providers
    assert one.sample_data_structure.format == other.sample_data_structure.format
    assert one.class_names == other.class_names == ("vehicle", "person")
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
