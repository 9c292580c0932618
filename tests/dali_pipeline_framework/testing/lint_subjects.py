"""Data sets for the command that tries every sample."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
from nvidia.dali.types import DALIDataType
from support.arrays import encoded_image, gradient

from accvlab.dali_pipeline_framework import (
    DataLoader,
    DataProvider,
    FileReader,
    GridMasker,
    ImageDecoder,
    PipelineDefinition,
    SampleDataGroup,
    SamplerInputCallable,
    SequentialSampler,
)
from accvlab.dali_pipeline_framework.sample_data import ImageContent

IMAGE = b"P6 6 4 255\n" + bytes(72)
STEPS = [ImageDecoder("image", use_device_mixed=False), GridMasker("image", key="sequence")]


class Images(DataProvider):
    """Ten good images."""

    content = ImageContent(is_encoded=True)
    ndim: int | None = None

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        sample = SampleDataGroup()
        sample.add_data_field("image", DALIDataType.UINT8, ndim=self.ndim, content=self.content)
        return sample

    def get_number_of_samples(self) -> int:
        return 10

    def describe_sample(self, sample_index: int) -> str:
        return f"sample {sample_index}"

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.sample_data_structure
        sample.set_do_convert(False)
        sample["image"] = self.file(sample_index)
        return sample

    def file(self, sample_index: int) -> np.ndarray:
        return np.frombuffer(IMAGE, np.uint8)


class SomeBad(Images):
    """2 cannot be loaded, 3 is of another type, 5 is no image."""

    def file(self, sample_index: int) -> np.ndarray:
        if sample_index == 2:
            raise ValueError("no luck")
        return np.frombuffer(b"<html>" if sample_index == 5 else IMAGE, np.int8 if sample_index == 3 else np.uint8)


class Undeclared(SomeBad):
    """A field of bytes, without a word on images; of image 6 half is missing."""

    content = ImageContent()

    def file(self, sample_index: int) -> np.ndarray:
        return encoded_image(gradient(16, 24))[:200] if sample_index == 6 else super().file(sample_index)


class Vectors(Undeclared):
    """The same with a known number of axes."""

    ndim = 1


class Deadly(SomeBad):
    """7 ends its process, 8 does not end."""

    def file(self, sample_index: int) -> np.ndarray:
        if sample_index == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        if sample_index == 8:
            time.sleep(1000)
        return super().file(sample_index)


def definition() -> PipelineDefinition:
    return PipelineDefinition(SamplerInputCallable(SomeBad(), SequentialSampler(10, 2)), STEPS, run="workers")


def loader() -> DataLoader:
    return DataLoader(SomeBad(), 2, steps=STEPS[:1], num_workers=0)


class OpenedByWorkers(Images):
    """Images that only forked processes can load, after `open_handle`."""

    handle: int | None = None

    def __init__(self) -> None:
        self.unpicklable = threading.Lock()

    def file(self, sample_index: int) -> np.ndarray:
        if OpenedByWorkers.handle is None:
            raise RuntimeError("not opened")
        return super().file(sample_index)


def open_handle(worker: int) -> None:
    OpenedByWorkers.handle = worker


def loader_of_forked_workers() -> DataLoader:
    return DataLoader(OpenedByWorkers(), 2, num_workers=1, worker_init_fn=open_handle, start_method="fork")


def reader() -> PipelineDefinition:
    return PipelineDefinition(FileReader(files=[__file__]), [])
