"""Data sets for the command that tries every sample."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Collection

import numpy as np
from nvidia.dali.types import DALIDataType
from support.providers import Panic

from accvlab.dali_pipeline_framework import (
    DataProvider,
    FileReader,
    ImageDecoder,
    PipelineDefinition,
    SampleDataGroup,
    SamplerInputCallable,
    SequentialSampler,
    limits,
)


class Images(DataProvider):
    """Ten images: 2 cannot be loaded, 3 is of another type, 5 is no image; some end or block their process."""

    panicking: Collection[int] = ()

    def __init__(self, bad: bool = True, deadly: Collection[int] = (), blocked: Collection[int] = ()) -> None:
        self.bad, self.deadly, self.blocked = bad, deadly, blocked

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        sample = SampleDataGroup()
        sample.add_data_field("image", DALIDataType.UINT8)
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


def limited_provider() -> Images:
    raise ValueError(f"at most {limits.most_image_pixels()} pixels")


class LateImages(Images):
    """The first two are no images."""

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = super().get_data(sample_index)
        if sample_index < 2:
            sample["image"] = np.frombuffer(b"<html>", np.uint8)
        return sample


def late_provider() -> Images:
    return LateImages(bad=False)


def deadly_provider() -> Images:
    return Images(deadly=[7], blocked=[8])


def blocked_provider() -> Images:
    return Images(bad=False, blocked=[0, 3, 4])


def unopened_provider() -> Images:
    if multiprocessing.parent_process() is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), signal.SIGSEGV)
    return Images()


def definition() -> PipelineDefinition:
    data_input = SamplerInputCallable(Images(), SequentialSampler(10, 2))
    return PipelineDefinition(data_input, [ImageDecoder("image", use_device_mixed=False)], run="workers")


def reader() -> PipelineDefinition:
    return PipelineDefinition(FileReader(files=[__file__]), [])
