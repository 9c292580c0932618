"""Providers that load the samples of a batch together."""

from __future__ import annotations

import numpy as np
import pytest
from nvidia.dali.types import SampleInfo
from support.array_samples import group_of
from support.arrays import DT
from support.loaders import make_loader
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework.errors import SourceError
from accvlab.dali_pipeline_framework.inputs import (
    SamplerInputCallable,
    SamplerInputIterable,
    ShuffledShardedInputCallable,
)
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.sampling import ShuffledSampler


class BatchProvider(IndexProvider):
    """Loads batches: a sample is its index, its slot, and the size of the batch that it was loaded in."""

    def __init__(self, num_samples: int = 10, fails: str = "") -> None:
        super().__init__(num_samples)
        self.fails = fails

    @property
    def loads_batches(self) -> bool:
        return True

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        return group_of(**dict.fromkeys(("index", "slot", "size"), DT.INT64))

    def _sample(self, index: int, slot: int, size: int) -> SampleDataGroup:
        sample = self.sample_data_structure
        sample["index"], sample["slot"], sample["size"] = index, slot, size
        return sample

    def get_data(self, sample_index: int) -> SampleDataGroup:
        return self._sample(sample_index, -1, -1)

    def load_batch(self, sample_indices, slots):
        for number, (index, slot) in enumerate(zip(sample_indices, slots, strict=True)):
            if number == 2 and self.fails == "None":
                yield None
            if number == 2 and self.fails == "short":
                return
            if number == 2 and self.fails:
                error = LookupError("no such thing")
                if self.fails == "other sample":
                    error.sample_index_in_data_set = 7
                raise error
            yield self._sample(index, slot, len(sample_indices))


def rows(batches):
    return [np.stack([batch[name] for name in ("index", "slot", "size")], axis=1).tolist() for batch in batches]


def callable_of(provider):
    sampler = ShuffledSampler(provider.num_samples, shuffle=False, last_batch="partial")
    return SamplerInputCallable(provider, sampler)


EXPECTED = [[[4 * batch + slot, slot, 4] for slot in range(4)] for batch in range(2)]


@pytest.mark.parametrize("arguments", [{}, {"num_workers": 2, "start_method": "forkserver"}])
def test_batches_are_loaded_as_a_whole(arguments):
    with make_loader(callable_of(BatchProvider()), 4, **arguments) as loader:
        assert rows(loader) == [*EXPECTED, [[8, 0, 2], [9, 1, 2]]]


@pytest.mark.parametrize(
    "make",
    [
        lambda provider: ShuffledShardedInputCallable(provider, 4),
        lambda provider: SamplerInputIterable(provider, ShuffledSampler(8, 4, shuffle=False)),
    ],
)
def test_other_inputs(make):
    with make_loader(make(BatchProvider(8))) as loader:
        assert rows(loader) == EXPECTED


def test_a_sample_alone_is_asked_for_with_get_data():
    data_input = callable_of(BatchProvider()).with_settings(batch_size=4)
    assert [int(value) for value in data_input(SampleInfo(5, 1, 1, 0))] == [5, -1, -1]


@pytest.mark.parametrize(
    ("fails", "index", "message"),
    [
        ("raises", 2, "LookupError: no such thing"),
        ("other sample", 7, "LookupError: no such thing"),
        ("short", 2, r"BatchProvider.load_batch of 4 samples, for sample 2, raised StopIteration"),
        ("None", 2, "must return a filled SampleDataGroup, got None"),
    ],
)
def test_failures_name_the_sample(fails, index, message):
    with make_loader(callable_of(BatchProvider(fails=fails)), 4) as loader:
        with pytest.raises(SourceError, match=message) as caught:
            next(iter(loader))
        assert caught.value.sample_index == index
