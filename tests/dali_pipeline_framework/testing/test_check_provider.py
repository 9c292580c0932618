"""The contract of data providers, and providers that break one rule each."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from support.providers import DT, IndexProvider, NumberProvider
from support.start_methods import START_METHODS

from accvlab.dali_pipeline_framework.errors import ContractError
from accvlab.dali_pipeline_framework.inputs import DataProvider
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.testing import check_provider


class Frames(DataProvider):
    """Keeps all rules."""

    def get_number_of_samples(self) -> int:
        return 30

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        blueprint = SampleDataGroup()
        blueprint.add_data_field("index", DT.INT64)
        blueprint.add_data_field("points", DT.FLOAT, ndim=2)
        blueprint.add_data_field("name", DT.STRING)
        return blueprint

    def get_data(self, sample_index: int) -> SampleDataGroup:
        if not 0 <= sample_index < self.get_number_of_samples():
            raise IndexError(sample_index)
        return self.load(sample_index)

    def load(self, sample_index: int) -> SampleDataGroup:
        sample = self.sample_data_structure
        sample["index"] = sample_index
        sample["points"] = np.arange(2 * sample_index).reshape(-1, 2)
        sample["name"] = f"frame {sample_index}"
        return sample


class NoSamples(Frames):
    def get_number_of_samples(self) -> int:
        return 0


class CountsInFloats(Frames):
    def get_number_of_samples(self) -> Any:
        return 30.0


class KeepsItsBlueprint(Frames):
    def __init__(self) -> None:
        self.blueprint = super().sample_data_structure

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        return self.blueprint


class NoBlueprint(Frames):
    @property
    def sample_data_structure(self) -> Any:
        return {"index": DT.INT64}


class OtherFormat(Frames):
    def load(self, sample_index: int) -> SampleDataGroup:
        sample = super().load(sample_index)
        if sample_index == 29:
            sample.remove_field("name")
        return sample


class LeavesOut(Frames):
    def load(self, sample_index: int) -> SampleDataGroup:
        sample = super().load(sample_index)
        sample["name"] = None
        return sample


class OtherNumberOfDimensions(Frames):
    def load(self, sample_index: int) -> SampleDataGroup:
        sample = super().load(sample_index)
        sample["points"] = [1.0]
        return sample


class OtherType(Frames):
    def load(self, sample_index: int) -> SampleDataGroup:
        sample = super().load(sample_index)
        sample.set_do_convert(False)
        sample["index"] = np.array(sample_index, np.int32)
        return sample


class Fails(Frames):
    def load(self, sample_index: int) -> SampleDataGroup:
        raise OSError("the disk is gone")


class IsRandom(Frames):
    def load(self, sample_index: int) -> SampleDataGroup:
        sample = super().load(sample_index)
        sample["index"] = np.random.default_rng().integers(10**12)
        return sample


class KeepsItsSamples(Frames):
    def __init__(self) -> None:
        self.kept: dict[int, SampleDataGroup] = {}

    def load(self, sample_index: int) -> SampleDataGroup:
        if sample_index not in self.kept:
            self.kept[sample_index] = super().load(sample_index)
        return self.kept[sample_index]


class LoadsOtherBatches(Frames):
    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        return map(self.get_data, sorted(sample_indices))


class LoadsShortBatches(Frames):
    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        return map(self.get_data, set(sample_indices))


class CannotBePickled(Frames):
    def __init__(self) -> None:
        self.lock = threading.Lock()


class ForgetsWhenPickled(Frames):
    offset = 0

    def __init__(self) -> None:
        self.offset = 5

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def load(self, sample_index: int) -> SampleDataGroup:
        sample = super().load(sample_index)
        sample["index"] = sample_index + self.offset
        return sample


class KnowsItsProcess(Frames):
    def load(self, sample_index: int) -> SampleDataGroup:
        sample = super().load(sample_index)
        sample["index"] = os.getpid()
        return sample


BREAKERS: dict[type[DataProvider], str] = {
    NoSamples: "`get_number_of_samples()` must be a whole number of at least 1, got 0",
    CountsInFloats: "`get_number_of_samples()` must be a whole number of at least 1, got 30.0",
    KeepsItsBlueprint: "the blueprint must be the same each time, a new object: - index: missing",
    NoBlueprint: "NoBlueprint.sample_data_structure must be a SampleDataGroup, got dict",
    OtherFormat: "a sample must fit the blueprint: sample 29\n        - name: missing",
    LeavesOut: "a sample must fit the blueprint: sample 0\n      name: is not set",
    OtherNumberOfDimensions: "points: expected 2 dimension(s) as declared, got 1 (shape (1,))",
    OtherType: "index: expected dtype int64, got int32",
    Fails: "sample 0 must be loaded: OSError: the disk is gone",
    IsRandom: "a sample that is loaded again must be equal and a new object: sample 0\n      index: expected",
    KeepsItsSamples: "a sample that is loaded again must be equal and a new object: sample 0\n      index: is set",
    LoadsOtherBatches: "load_batch must deliver what get_data delivers: sample",
    LoadsShortBatches: "load_batch must deliver what get_data delivers: got 5 samples for 6 indices",
    CannotBePickled: "the provider must be picklable: TypeError",
    ForgetsWhenPickled: "a pickled copy must deliver the same: sample 0",
    KnowsItsProcess: "worker processes must deliver the same: sample 0\n      index: expected",
}


def test_good_providers_pass() -> None:
    check_provider(Frames(), num_workers=0)
    check_provider(IndexProvider(1), num_samples=9, num_workers=0)


@pytest.mark.parametrize("start_method", START_METHODS)
def test_good_providers_pass_in_workers(start_method: str) -> None:
    check_provider(NumberProvider(5), start_method=start_method)


class LeavesOutCameras(DataProvider):
    def get_number_of_samples(self) -> int:
        return 3

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        camera = SampleDataGroup()
        camera.add_data_field("image", DT.UINT8)
        blueprint = SampleDataGroup()
        blueprint.add_data_group_field_array("cameras", camera, 6)
        return blueprint

    def get_data(self, sample_index: int) -> SampleDataGroup:
        return self.sample_data_structure


def test_problems_of_array_elements_and_samples_are_reported_together() -> None:
    with pytest.raises(ContractError) as caught:
        check_provider(LeavesOutCameras(), num_workers=0)
    assert str(caught.value).splitlines() == [
        "LeavesOutCameras breaks the contract of data providers:",
        "  - a sample must fit the blueprint: sample 0",
        "      cameras[0..5].image: is not set",
        "      and likewise sample(s) 2, 1",
    ]


@pytest.mark.parametrize("provider", BREAKERS, ids=lambda provider: provider.__name__)
def test_a_broken_rule_is_noticed(provider: type[DataProvider]) -> None:
    with pytest.raises(ContractError) as caught:
        check_provider(provider(), start_method="fork", num_workers=2 * (provider is KnowsItsProcess))
    text = str(caught.value)
    assert text.startswith(f"{provider.__name__} breaks the contract of data providers:\n  - ")
    assert BREAKERS[provider] in text
    rules = {line.split(":")[0] for line in text.splitlines() if line.startswith("  - ")}
    # Where samples fail or change, other rules do not hold either.
    assert len(rules) == 1 or provider in (Fails, IsRandom, KeepsItsSamples)
