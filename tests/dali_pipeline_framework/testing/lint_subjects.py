"""Data sets for the command that tries every sample."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Collection

import numpy as np
from nvidia.dali.types import DALIDataType
from support.arrays import encoded_image, gradient
from support.providers import Panic

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


class Images(DataProvider):
    """Ten images: 2 cannot be loaded, 3 is of another type, 5 is no image; some end or block their process."""

    panicking: Collection[int] = ()

    def __init__(self, bad: bool = True, deadly: Collection[int] = (), blocked: Collection[int] = ()) -> None:
        self.bad, self.deadly, self.blocked = bad, deadly, blocked

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        sample = SampleDataGroup()
        sample.add_data_field("image", DALIDataType.UINT8, content=ImageContent(is_encoded=True))
        return sample

    def get_number_of_samples(self) -> int:
        return 10

    def describe_sample(self, sample_index: int) -> str:
        return f"sample {sample_index}"

    def get_data(self, sample_index: int) -> SampleDataGroup:
        if sample_index in self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        if sample_index in self.blocked:
            time.sleep(1000)
        if self.bad and sample_index == 2:
            raise ValueError("no luck")
        if sample_index in self.panicking:
            raise Panic("out of bounds")
        sample = self.sample_data_structure
        sample.set_do_convert(False)
        content = b"<html>" if self.bad and sample_index == 5 else b"P6 6 4 255\n" + bytes(72)
        dtype = np.int8 if self.bad and sample_index == 3 else np.uint8
        sample["image"] = np.frombuffer(content, dtype)
        return sample


def provider() -> Images:
    return Images()


def panicking_provider() -> Images:
    images = Images(bad=False)
    images.panicking = (4,)
    return images


def good_provider() -> Images:
    return Images(bad=False)


class Undeclared(Images):
    """A field of bytes, without a word on images; of one image half is missing."""

    cut: Collection[int] = ()

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        sample = SampleDataGroup()
        sample.add_data_field("image", DALIDataType.UINT8)
        return sample

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = super().get_data(sample_index)
        if sample_index in self.cut:
            sample["image"] = encoded_image(gradient(16, 24), "JPEG")[:200]
        return sample


def undeclared_provider() -> Undeclared:
    return Undeclared()


def cut_provider() -> Undeclared:
    provider = Undeclared(bad=False)
    provider.cut = (6,)
    return provider


class Hopeless(Images):
    def get_data(self, sample_index: int) -> SampleDataGroup:
        raise ValueError("hopeless")


def hopeless_provider() -> Hopeless:
    return Hopeless()


def deadly_provider() -> Images:
    return Images(deadly=[7], blocked=[8])


def definition() -> PipelineDefinition:
    data_input = SamplerInputCallable(Images(), SequentialSampler(10, 2))
    return PipelineDefinition(data_input, [ImageDecoder("image", use_device_mixed=False)], run="workers")


def drawing_definition() -> PipelineDefinition:
    steps = [ImageDecoder("image", use_device_mixed=False), GridMasker("image", key="sequence")]
    return PipelineDefinition(SamplerInputCallable(Images(), SequentialSampler(10, 2)), steps, run="workers")


def loader() -> DataLoader:
    return DataLoader(Images(), 2, steps=[ImageDecoder("image", use_device_mixed=False)], num_workers=0)


class OpenedByWorkers(Images):
    """Ten good images that only forked processes can load, after `open_handle`."""

    handle: int | None = None

    def __init__(self) -> None:
        super().__init__(bad=False)
        self.unpicklable = threading.Lock()

    def get_data(self, sample_index: int) -> SampleDataGroup:
        if OpenedByWorkers.handle is None:
            raise RuntimeError("not opened")
        return super().get_data(sample_index)


def open_handle(worker: int) -> None:
    OpenedByWorkers.handle = worker


def loader_of_forked_workers() -> DataLoader:
    provider = OpenedByWorkers()
    return DataLoader(provider, 2, num_workers=1, worker_init_fn=open_handle, start_method="fork")


def reader() -> PipelineDefinition:
    return PipelineDefinition(FileReader(files=[__file__]), [])
