"""The contract of data providers, and providers that break one rule each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
from support.array_samples import group_of
from support.providers import DT, IndexProvider, NumberProvider
from support.start_methods import START_METHODS

from accvlab.dali_pipeline_framework.errors import ContractError
from accvlab.dali_pipeline_framework.inputs import DataProvider
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.testing import check_provider


def same(sample: SampleDataGroup) -> SampleDataGroup:
    return sample


class Frames(DataProvider):
    """Keeps all rules, unless what it does to each sample breaks one."""

    def __init__(self, change: Callable[[SampleDataGroup], SampleDataGroup] = same, num_samples: Any = 30) -> None:
        self.change, self.num_samples = change, num_samples

    def get_number_of_samples(self) -> int:
        return self.num_samples  # type: ignore[no-any-return]

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
        sample = self.sample_data_structure
        sample["index"] = sample_index
        sample["points"] = np.arange(2 * sample_index).reshape(-1, 2)
        sample["name"] = f"frame {sample_index}"
        return self.change(sample)


class KeepsItsBlueprint(Frames):
    sample_data_structure = Frames().sample_data_structure


class NoBlueprint(Frames):
    sample_data_structure: ClassVar[Any] = {"index": DT.INT64}


class LoadsOtherBatches(Frames):
    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        return map(self.get_data, sorted(sample_indices))


class ForgetsWhenPickled(Frames):
    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "change": as_ten}


def without_the_last_name(sample: SampleDataGroup) -> SampleDataGroup:
    if sample["index"] == 29:
        sample.remove_field("name")
    return sample


def fails(sample: SampleDataGroup) -> SampleDataGroup:
    raise OSError("the disk is gone")


def as_ten(sample: SampleDataGroup) -> SampleDataGroup:
    sample["index"] = 10
    return sample


def of_process(sample: SampleDataGroup) -> SampleDataGroup:
    sample["index"] = os.getpid()
    return sample


KEPT: dict[int, SampleDataGroup] = {}


def kept(sample: SampleDataGroup) -> SampleDataGroup:
    return KEPT.setdefault(int(sample["index"]), sample)


COUNT = "`get_number_of_samples()` must be a whole number of at least 1, got "
AGAIN = "a sample that is loaded again must be equal and a new object: sample 0\n      index: "
BREAKERS: dict[str, tuple[Frames, str]] = {
    "no samples": (Frames(num_samples=0), f"{COUNT}0"),
    "counts in floats": (Frames(num_samples=30.0), f"{COUNT}30.0"),
    "keeps its blueprint": (
        KeepsItsBlueprint(),
        "the blueprint must be the same each time, a new object: - index: missing",
    ),
    "no blueprint": (NoBlueprint(), "NoBlueprint.sample_data_structure must be a SampleDataGroup, got dict"),
    "other format": (
        Frames(without_the_last_name),
        "a sample must fit the blueprint: sample 29\n        - name: missing",
    ),
    "fails": (Frames(fails), "sample 0 must be loaded: OSError: the disk is gone"),
    "keeps its samples": (Frames(kept), f"{AGAIN}is set"),
    "other batches": (LoadsOtherBatches(), "load_batch must deliver what get_data delivers: sample"),
    "no pickle": (Frames(lambda sample: sample), "the provider must be picklable: "),
    "forgets": (ForgetsWhenPickled(), "a pickled copy must deliver the same: sample 0"),
    "knows its process": (
        Frames(of_process),
        "worker processes must deliver the same: sample 0\n      index: expected",
    ),
}


def test_good_providers_pass() -> None:
    check_provider(Frames(), num_workers=0)
    check_provider(IndexProvider(1), num_samples=9, num_workers=0)


@pytest.mark.parametrize("start_method", START_METHODS)
def test_good_providers_pass_in_workers(start_method: str) -> None:
    check_provider(NumberProvider(5), start_method=start_method)


@pytest.mark.parametrize("name", BREAKERS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    provider, rule = BREAKERS[name]
    with pytest.raises(ContractError) as caught:
        check_provider(provider, start_method="fork", num_workers=2 * (name == "knows its process"))
    text = str(caught.value)
    assert text.startswith(f"{type(provider).__name__} breaks the contract of data providers:\n  - ")
    assert rule in text
    rules = {line.split(":")[0] for line in text.splitlines() if line.startswith("  - ")}
    # Where samples fail or change, other rules do not hold either.
    assert len(rules) == 1 or name in ("fails", "keeps its samples")


class LeavesOutCameras(Frames):
    @property
    def sample_data_structure(self) -> SampleDataGroup:
        return group_of(cameras=(group_of(image=DT.UINT8), 6))

    def get_data(self, sample_index: int) -> SampleDataGroup:
        return self.sample_data_structure


def test_problems_of_array_elements_and_samples_are_reported_together() -> None:
    with pytest.raises(ContractError) as caught:
        check_provider(LeavesOutCameras(num_samples=3), num_workers=0)
    assert str(caught.value).splitlines() == [
        "LeavesOutCameras breaks the contract of data providers:",
        "  - a sample must fit the blueprint: sample 0",
        "      cameras[0..5].image: is not set",
        "      and likewise sample(s) 2, 1",
    ]
