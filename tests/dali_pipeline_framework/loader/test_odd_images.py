"""Odd and broken image files: each is delivered or treated as failed, as it is to be expected of it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.array_samples import group_of
from support.arrays import DT
from support.shared_data import shared_data

from accvlab.dali_pipeline_framework import DataLoader, DataProvider, ImageDecoder, SampleDataGroup

# Where decoding on arrays (libjpeg-turbo, OpenCV) differs from DALI.
ONLY_BY_DALI = {
    "broken_35_corrupt.jpg",
    "broken_13_rgb_1bit.tiff",
    "TIFF-RGBA_02_tiff_16bit_RGBa.tiff",
    "TIFF-RGBA_03_tiff_strip_planar_16bit_RGBa.tiff",
    "TIFF-CMYK_03_tiff_tiled_cmyk_jpeg.tif",
    "TIFF-RGBA_05_tiff_wrong_bits_per_sample.tiff",
}
ONLY_ON_ARRAYS = {
    "TIFF-L_05_8bit.s.tif",
    "TIFF-I_01_16_bit_binary_pgm.tiff",
    "TIFF-P_05_multipage_multiple_frame_loop.tiff",
}
OTHER_SHAPE_ON_ARRAYS = {"TIFF-1_04_crash-74d2a78403a5a59db1fb0a2b8735ac068a75f6e3.tif"}
BATCH_SIZE = 25


class OddImages(DataProvider):
    """The files of a folder that its ``index.csv`` lists, as far as they are there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with open(self.folder / "index.csv", newline="") as file:
            self.rows = [row for row in csv.DictReader(file) if (self.folder / row["file"]).exists()]

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        return group_of(index=DT.INT64, image=DT.UINT8)

    def get_number_of_samples(self) -> int:
        return len(self.rows)

    def describe_sample(self, sample_index: int) -> str:
        return self.rows[sample_index]["file"]

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.sample_data_structure
        sample["index"] = np.array(sample_index)
        sample["image"] = np.fromfile(self.folder / self.rows[sample_index]["file"], np.uint8)
        return sample


@pytest.mark.parametrize(
    ("policy", "run"),
    [
        ("replace", "workers"),
        *(pytest.param(policy, "graph", marks=pytest.mark.wide) for policy in ("skip", "replace")),
    ],
)
def test_each_file_is_delivered_or_has_failed_as_expected(run: Any, policy: Any) -> None:
    provider = OddImages(shared_data("odd"))
    # What DALI decodes on the CPU, with the shape.
    decoded = {row["file"]: row["dali_cpu_ok"] for row in provider.rows}
    expected = {name for name, found in decoded.items() if not found.startswith("yes")}
    if run == "workers":
        expected = (expected - ONLY_ON_ARRAYS) | (ONLY_BY_DALI & decoded.keys())
    num_samples = 0
    outputs: dict[str, Any] = {"output_type": "numpy", "ragged": "list", "context_name": "place"}
    steps = [ImageDecoder("image", use_device_mixed=False)]
    with DataLoader(provider, BATCH_SIZE, steps=steps, run=run, num_workers=0, faults=policy, **outputs) as loader:
        for batch in loader:
            numbers, slots = batch["place"]["batch"], batch["place"]["slot"]
            for number, slot, index, image in zip(numbers, slots, batch["index"], batch["image"], strict=True):
                num_samples += 1
                place = int(BATCH_SIZE * number + slot)
                name = provider.describe_sample(place)
                if name in expected:
                    assert policy != "skip"
                    assert provider.describe_sample(int(index)) not in expected
                    continue
                assert index == place
                if name not in ONLY_ON_ARRAYS | OTHER_SHAPE_ON_ARRAYS:
                    assert image.shape == tuple(map(int, decoded[name].split()[1].split("x")))
        assert {sample.file for sample in loader.failed_samples} == expected
    assert num_samples == len(provider.rows) - (len(expected) if policy == "skip" else 0)
