"""The contract of providers that wrap others: they lose nothing of what the wrapped ones can do."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvidia.dali import types
from support.frame_trees import write_frames
from support.laws import examples
from support.loaders import make_loader
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework.errors import GraphError, SourceError
from accvlab.dali_pipeline_framework.inputs import DataProvider, SamplerInputCallable
from accvlab.dali_pipeline_framework.processing_steps import ImageDecoder
from accvlab.dali_pipeline_framework.providers import (
    ConcatDataProvider,
    FileDataProvider,
)
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup
from accvlab.dali_pipeline_framework.sample_data.formats import nested_dictionary
from accvlab.dali_pipeline_framework.sampling import ShuffledSampler
from accvlab.dali_pipeline_framework.testing import check_provider


class Source(IndexProvider):
    """Sample ``i`` is ``first + i``, and the slot that it was loaded for (-1: alone); sample ``bad`` fails."""

    tells_slots = True

    def __init__(self, num_samples: int, first: int = 0, bad: int | None = None, together: bool = True) -> None:
        super().__init__(num_samples)
        self.first = first
        self.bad = bad
        self.together = together
        self.calls: list[list[int]] = []

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        blueprint = super().sample_data_structure
        blueprint.add_data_field("slot", types.DALIDataType.INT64)
        return blueprint

    def describe_sample(self, sample_index: int) -> str:
        return f"file {self.first + sample_index}"

    def get_data(self, sample_index: int) -> SampleDataGroup:
        if not 0 <= sample_index < self.num_samples:
            raise IndexError(sample_index)
        if sample_index == self.bad:
            raise LookupError(f"file {self.first + sample_index} is gone")
        sample = self.sample_data_structure
        sample["index"], sample["slot"] = self.first + sample_index, -1
        return sample

    @property
    def loads_batches(self) -> bool:
        return self.together

    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        self.calls.append([*sample_indices])
        read_at = min((n for n, index in enumerate(sample_indices) if index == self.bad), default=0)
        for number, (index, slot) in enumerate(zip(sample_indices, slots, strict=True)):
            if number == 0 and self.bad in sample_indices:  # read ahead, as shared frames are
                error = LookupError(f"file {self.first + self.bad} is gone")
                error.sample_index_in_data_set = sample_indices[read_at]  # type: ignore[attr-defined]
                raise error
            sample = self.get_data(index)
            sample["slot"] = slot if self.tells_slots else -1
            yield sample


def _concat(**settings: Any) -> ConcatDataProvider:
    return ConcatDataProvider([Source(3), Source(5, 3, **settings), Source(4, 8)])


# Wrappers of twelve samples in all; the `Source` that the settings belong to has the samples 3 to 7 of them.
WRAPPERS: dict[str, Callable[..., DataProvider]] = {
    "concat": _concat,
    "concat in concat": lambda **settings: ConcatDataProvider(
        [ConcatDataProvider([Source(3), Source(5, 3, **settings)]), Source(4, 8)]
    ),
}
every_wrapper = pytest.mark.parametrize("name", WRAPPERS)


def values_of(sample: SampleDataGroup) -> str:
    found = nested_dictionary(sample.format, [np.asarray(value).tolist() for value in sample.get_data()])
    return str(found)


@every_wrapper
class TestEveryWrapper:
    def test_fulfils_the_contract_of_providers(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Source, "tells_slots", False)
        check_provider(WRAPPERS[name](), num_samples=12, num_workers=0)

    def test_describes_samples(self, name: str) -> None:
        wrapper = WRAPPERS[name]()
        for index in range(12):
            described = wrapper.describe_sample(index)
            frame = int(wrapper.get_data(index)["index"])
            assert described == f"file {frame}"

    def test_loads_batches_where_the_wrapped_one_does(self, name: str) -> None:
        assert WRAPPERS[name]().loads_batches
        assert pickle.loads(pickle.dumps(WRAPPERS[name]())).loads_batches

    @settings(max_examples=examples(5, 10), deadline=None)
    @given(indices=st.lists(st.integers(0, 11), min_size=1, max_size=9), first_slot=st.integers(0, 3))
    def test_batches_hold_what_samples_hold(self, name: str, indices: list[int], first_slot: int) -> None:
        wrapper = WRAPPERS[name](together=False)  # one part loads batches, another one does not
        slots = [first_slot + 2 * number for number in range(len(indices))]
        loaded = [*wrapper.load_batch(indices, slots)]
        for index, slot, sample in zip(indices, slots, loaded, strict=True):
            alone = wrapper.get_data(index)
            assert sample["index"] == alone["index"]
            assert sample.format == alone.format
            assert sample["slot"] == (-1 if 3 <= sample["index"] <= 7 else slot)

    def test_an_error_is_put_down_to_its_sample(self, name: str) -> None:
        wrapper = WRAPPERS[name](bad=2)  # file 5
        indices = [0, 3, 9, 5, 10, 5]
        with pytest.raises(LookupError, match="file 5 is gone") as caught:
            list(wrapper.load_batch(indices, range(6)))
        assert caught.value.sample_index_in_data_set == 5  # type: ignore[attr-defined]

    def test_the_loader_names_the_sample_and_what_it_is(self, name: str) -> None:
        wrapper = WRAPPERS[name](bad=2)
        loader = make_loader(SamplerInputCallable(wrapper, ShuffledSampler(12, shuffle=False)), 4)
        with loader, pytest.raises(SourceError, match="file 5 is gone") as caught:
            list(loader)
        assert caught.value.sample_index == 5

    def test_nothing_is_loaded_in_batches_where_the_wrapped_one_does_not(self, name: str) -> None:
        wrapper = ConcatDataProvider([Source(12, together=False)])
        assert not wrapper.loads_batches
        assert [int(sample["slot"]) for sample in wrapper.load_batch([3, 0], [0, 1])] == [-1, -1]


def test_one_call_for_each_part() -> None:
    parts = [Source(3), Source(5, 3)]
    loaded = [*ConcatDataProvider(parts).load_batch([4, 0, 7, 1, 4], range(5))]
    assert [int(sample["index"]) for sample in loaded] == [4, 0, 7, 1, 4]
    assert [part.calls for part in parts] == [[[0, 1]], [[1, 4, 1]]]


class _Short(Source):
    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        return iter([self.get_data(sample_indices[0])])


def test_too_few_samples_are_no_end_of_the_epoch() -> None:
    with pytest.raises(RuntimeError, match=r"_Short.* must deliver as many samples as .* got none for .*4"):
        list(ConcatDataProvider([_Short(5)]).load_batch([3, 4], [0, 1]))


def test_a_file_that_cannot_be_decoded_is_named(tmp_path: Any) -> None:
    write_frames(tmp_path, {"a/s": 3, "b/s": 3})
    bad = tmp_path / "b" / "s" / "00001.png"
    bad.write_bytes(b"no image")
    provider: DataProvider = ConcatDataProvider([FileDataProvider(tmp_path / name) for name in "ab"])
    loader = make_loader(
        SamplerInputCallable(provider, ShuffledSampler(6, shuffle=False)), 6, steps=[ImageDecoder("data", False)]
    )
    with loader, pytest.raises(GraphError) as caught:
        list(loader)
    assert caught.value.sample_indices == (4,)
    assert str(bad) in str(caught.value)
