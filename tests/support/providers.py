"""Data providers of the tests."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import numpy as np
from nvidia.dali import types

from accvlab.dali_pipeline_framework.inputs import DataProvider
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from support.array_samples import group_of

DT = types.DALIDataType


class IndexProvider(DataProvider):
    """Sample ``i`` is the number ``i``."""

    def __init__(self, num_samples: int = 22) -> None:
        self.num_samples = num_samples

    def get_number_of_samples(self) -> int:
        return self.num_samples

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        return group_of(index=DT.INT64)

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.sample_data_structure
        sample["index"] = sample_index
        return sample


class NumberProvider(IndexProvider):
    """Sample ``i`` has a scalar ``i``, a vector ``(i, i + 1)``, a text, and two cameras with a label."""

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        labels = {"mapping": {"car": 1, "bus": 2, None: -1}}
        camera = group_of(label=(DT.INT32, labels), gain=DT.FLOAT)
        return group_of(index=DT.INT64, pair=DT.FLOAT, name=DT.STRING, cameras=(camera, 2))

    def get_data(self, sample_id: int) -> SampleDataGroup:
        sample = self.sample_data_structure
        sample["index"] = sample_id
        sample["pair"] = [sample_id, sample_id + 1]
        sample["name"] = "x" * (sample_id % 3)
        for camera, label in enumerate(("car", "tram")):
            sample["cameras"][camera]["label"] = label
            sample["cameras"][camera]["gain"] = sample_id + camera / 2
        return sample


class SlowIndexProvider(IndexProvider):
    """Takes a while for each sample."""

    def get_data(self, sample_index: int) -> SampleDataGroup:
        time.sleep(0.02)
        return super().get_data(sample_index)


class BlockedProvider(IndexProvider):
    """Never gets past its tenth sample."""

    def get_data(self, sample_index: int) -> SampleDataGroup:
        if sample_index >= 10:
            time.sleep(1000)
        return super().get_data(sample_index)


class BadSamples(IndexProvider):
    """Some samples cannot be loaded."""

    def __init__(self, num_samples: int, *bad: int) -> None:
        super().__init__(num_samples)
        self.bad = bad

    def get_data(self, sample_index: int) -> SampleDataGroup:
        if sample_index in self.bad:
            raise OSError("gone")
        return super().get_data(sample_index)


class PidProvider(IndexProvider):
    """Delivers the id of the process that loads, and a draw of NumPy's global generator."""

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        return group_of(pid=DT.INT64, draw=DT.INT64)

    def get_data(self, sample_index: int) -> SampleDataGroup:
        time.sleep(0.01)
        sample = self.sample_data_structure
        sample["pid"] = os.getpid()
        sample["draw"] = np.random.randint(2**40)
        return sample


class CustomError(Exception):
    """An exception with a constructor of its own."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Panic(BaseException):
    """Like the exception of an extension written in Rust, which is no `Exception`."""


class FaultyProvider(IndexProvider):
    """Does something wrong for one sample."""

    def __init__(self, fault: str, bad_sample: int = 6, num_samples: int = 16) -> None:
        super().__init__(num_samples)
        self.fault = fault
        self.bad_sample = bad_sample

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        camera = group_of(image=DT.UINT8, boxes=(DT.FLOAT, {"ndim": 2}))
        return group_of(cameras=(camera, 2), index=DT.INT64)

    def get_data(self, sample_index: int) -> SampleDataGroup | None:
        sample = self.sample_data_structure
        sample["index"] = sample_index
        for camera in range(2):
            sample["cameras"][camera]["image"] = np.zeros((4, 4), np.uint8)
            sample["cameras"][camera]["boxes"] = np.zeros((0, 4))
        if sample_index == self.bad_sample:
            return getattr(self, self.fault)(sample)
        return sample

    def none(self, sample):
        return None

    def no_group(self, sample):
        return {"index": 1}

    def missing_field(self, sample):
        sample["cameras"][1].remove_field("boxes")
        return sample

    def surplus_field(self, sample):
        sample.add_data_field("extra", DT.FLOAT)
        return sample

    def declared_dtype(self, sample):
        sample["cameras"][0].change_type_of_data_and_remove_data("image", DT.FLOAT)
        return sample

    def dtype(self, sample):
        sample.set_do_convert(False)
        sample["cameras"][0]["image"] = np.zeros((4, 4), np.float32)
        return sample

    def big_endian(self, sample):
        sample.set_do_convert(False)
        sample["index"] = np.array(3, ">i8")
        return sample

    def not_set(self, sample):
        sample["index"] = None
        return sample

    def declared_rank(self, sample):
        sample["cameras"][1]["boxes"] = np.zeros(4)
        return sample

    def rank(self, sample):
        sample["cameras"][1]["image"] = np.zeros((4, 4, 3), np.uint8)
        return sample

    def unknown_field(self, sample):
        sample["imdex"] = 1
        return sample

    def value_error(self, sample):
        raise ValueError("calibration is missing")

    def file_not_found(self, sample):
        with open("/does/not/exist.jpg"):
            pass

    def custom_error(self, sample):
        raise CustomError("no luck", 42)

    def stop_iteration(self, sample):
        next(iter(()))

    def die(self, sample):
        os.kill(os.getpid(), 9)

    def exit(self, sample):
        raise SystemExit(3)

    def cancelled(self, sample):
        raise asyncio.CancelledError("shut down")

    def panic(self, sample):
        raise Panic("index out of bounds")

    def generator_exit(self, sample):
        raise GeneratorExit

    def interrupt(self, sample):
        raise KeyboardInterrupt


class UnpicklableProvider(IndexProvider):
    """Holds a lock, two levels down."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = {"cache": [threading.Lock()]}
