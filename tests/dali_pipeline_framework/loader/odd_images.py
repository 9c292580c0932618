"""Image files that are odd or broken, with what is to be expected of them."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
from support.array_samples import group_of
from support.arrays import DT

from accvlab.dali_pipeline_framework import DataLoader, DataProvider, ImageDecoder, SampleDataGroup


class OddImages(DataProvider):
    """The files of a folder that its ``index.csv`` lists, as far as they are there."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        with open(self.folder / "index.csv", newline="") as file:
            self.rows = [row for row in csv.DictReader(file) if (self.folder / row["file"]).exists()]

    def is_decodable(self, sample_index: int) -> bool:
        """Whether DALI decodes it on the CPU."""
        return self.rows[sample_index]["dali_cpu_ok"].startswith("yes")

    def shape(self, sample_index: int) -> tuple[int, ...]:
        """The shape that DALI decodes."""
        return tuple(map(int, self.rows[sample_index]["dali_cpu_ok"].split()[1].split("x")))

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


def provider() -> OddImages:
    """The files of ``$ODD_IMAGES``, for the command line."""
    return OddImages(os.environ["ODD_IMAGES"])


def loader_on_arrays() -> DataLoader:
    """The same, decoded on arrays."""
    return DataLoader(provider(), 4, steps=[ImageDecoder("image", False)], run="workers")
