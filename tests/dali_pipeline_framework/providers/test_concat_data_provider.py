"""Several data sets as one: which sample comes from where, what must agree, batches, and errors of a part."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvidia.dali import types
from support.array_samples import group_of
from support.arrays import ArrayProvider
from support.laws import examples
from support.loaders import make_loader
from support.providers import CustomError, FaultyProvider, IndexProvider
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import FormatError, SettingError, SourceError
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.providers.wrapping_providers import ConcatDataProvider
from accvlab.dali_pipeline_framework.testing import Finding, check_provider

DT = types.DALIDataType


class Source(IndexProvider):
    """Sample ``i`` is ``first + i``, and the slot that it was loaded for (-1: alone); sample ``bad`` fails."""

    def __init__(self, num_samples: int, first: int = 0, bad: int | None = None, together: bool = True) -> None:
        super().__init__(num_samples)
        self.sequence_lengths: Any = [num_samples]
        self.first, self.bad, self.together = first, bad, together
        self.calls: list[list[int]] = []

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        return group_of(index=DT.INT64, slot=DT.INT64)

    def describe_sample(self, sample_index: int) -> str:
        return f"file {self.first + sample_index}"

    def get_data(self, sample_index: int) -> SampleDataGroup:
        return self._sample(sample_index, -1)

    def _sample(self, sample_index: int, slot: int) -> SampleDataGroup:
        if sample_index == self.bad:
            raise LookupError(f"file {self.first + sample_index} is gone")
        sample = self.sample_data_structure
        sample["index"], sample["slot"] = self.first + sample_index, slot
        return sample

    @property
    def loads_batches(self) -> bool:
        return self.together

    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        self.calls.append([*sample_indices])
        if self.bad in sample_indices:  # read ahead, as shared frames are
            error = LookupError(f"file {self.first + self.bad} is gone")
            error.sample_index_in_data_set = self.bad  # type: ignore[attr-defined]
            raise error
        yield from map(self._sample, sample_indices, slots)


class AtOnce(Source):
    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        return iter([*super().load_batch(sample_indices, slots)])


class LabelProvider(IndexProvider):
    """A field ``label`` with a mapping; sample ``i`` gets label ``i`` of a list."""

    def __init__(self, mapping: dict[Any, Any] | None, labels: tuple[Any, ...] = (0,), ndim: int | None = None):
        super().__init__(len(labels))
        self.mapping, self.labels, self.ndim = mapping, labels, ndim

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        box = group_of(label=(DT.FLOAT, {"mapping": self.mapping, "ndim": self.ndim}))
        return group_of(boxes=(box, 1))

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.sample_data_structure
        sample["boxes"][0]["label"] = self.labels[sample_index]
        return sample


def sources(*counts: int) -> list[Source]:
    """Provider ``p`` has the samples ``100 * p, 100 * p + 1, ...``."""
    return [Source(count, 100 * position) for position, count in enumerate(counts)]


# --- which sample comes from where ----------------------------------------------------------------------


@given(counts=st.lists(st.integers(1, 7), min_size=1, max_size=6), data=st.data())
@settings(deadline=None, max_examples=examples(20, 60))
def test_the_samples_are_those_of_one_provider_after_the_other(counts: list[int], data: st.DataObject) -> None:
    providers = sources(*counts)
    joined = ConcatDataProvider(providers)
    start = data.draw(st.integers(0, len(counts) - 1))
    stop = data.draw(st.integers(start + 1, len(counts)))
    nested = ConcatDataProvider([*providers[:start], ConcatDataProvider(providers[start:stop]), *providers[stop:]])
    expected = [(position, index) for position, count in enumerate(counts) for index in range(count)]
    assert [joined.locate(i) for i in range(joined.get_number_of_samples())] == expected
    for i, (position, index) in enumerate(expected):
        assert joined.offsets[position] + index == i
        assert joined.get_data(i) == providers[position].get_data(index) == nested.get_data(i)
        assert joined.describe_sample(i) == nested.describe_sample(i) == f"file {100 * position + index}"
    assert joined.sequence_lengths.tolist() == nested.sequence_lengths.tolist() == counts


def test_attributes() -> None:
    day, night = sources(3, 2)
    joined = ConcatDataProvider([day, night, day])
    assert [*map(id, joined.providers)] == [id(day), id(night), id(day)]
    for provider in (joined, pickle.loads(pickle.dumps(joined))):
        for values in (provider.offsets, provider.sequence_lengths):
            assert (values.dtype, values.flags.writeable) == (np.int64, False)
        assert provider.offsets.tolist() == [0, 3, 5]
        assert provider.loads_batches
    assert [*map(type, joined.locate(np.int64(4)))] == [int, int]
    assert joined.get_data(np.int32(4))["index"] == 101
    assert not ConcatDataProvider([Source(3, together=False)]).loads_batches


@pytest.mark.parametrize("index", [-1, 5, 1.0])
def test_there_is_no_sample_out_of_range(index: int) -> None:
    joined = ConcatDataProvider(sources(2, 3))
    for method in (joined.get_data, joined.locate):
        with pytest.raises(SettingError, match=rf"^`sample_index` must be in \[0, 4\], got {index}\.$") as caught:
            method(index)
        assert isinstance(caught.value, IndexError)


# --- what must agree ------------------------------------------------------------------------------------


INDEXED = ArrayProvider({"index": (DT.INT64, [0]), "gain": (DT.FLOAT, [0.5])})
OTHERS = ArrayProvider({"index": (DT.INT32, [0]), "pair": (DT.FLOAT, [1])})
REORDERED = ArrayProvider({"gain": (DT.FLOAT, [0.5]), "index": (DT.INT64, [0])})
REFUSED = [
    ([], SettingError, "`providers` must hold at least one data provider, got none."),
    (IndexProvider(3), SettingError, "must be a list of data providers, got IndexProvider. ... `[provider]`."),
    (
        [IndexProvider(3), IndexProvider],
        SettingError,
        "must be of the class DataProvider, got <class 'support.providers.IndexProvider'>. Create an",
    ),
    ("ab", SettingError, "`providers[0]` must be of the class DataProvider, got 'a'."),
    (
        [IndexProvider(3), IndexProvider(0)],
        SettingError,
        "`providers[1]`: The data set is empty: IndexProvider.get_number_of_samples() returned 0. Check",
    ),
    (
        [LabelProvider(None), LabelProvider({"car": 1, "bus": 2, None: -1}), LabelProvider({"bus": 3, None: 0})],
        FormatError,
        "The blueprints of the providers do not go together:\n"
        "  - boxes[0].label: the mappings must give a label the same number, got:\n"
        "      - label 'bus': 2 in providers[1] (LabelProvider), 3 in providers[2] (LabelProvider)\n"
        "      - unlisted labels (the key None): -1 in providers[1] (LabelProvider), "
        "0 in providers[2] (LabelProvider)",
    ),
    (
        [LabelProvider(dict(zip("abcdefghij", range(start, start + 10), strict=True))) for start in (0, 1)],
        FormatError,
        "'c': 2 in ..., 3 in ...\n      - and 7 more",
    ),
    (
        [ConcatDataProvider([LabelProvider({"car": 1}), LabelProvider({"bus": 2})]), LabelProvider({"bus": 5})],
        FormatError,
        "label 'bus': 2 in providers[0].providers[1] (LabelProvider), 5 in providers[1] (LabelP",
    ),
    (
        [INDEXED, OTHERS, INDEXED, REORDERED],
        FormatError,
        "The blueprints of the providers do not go together:\n"
        "  - providers[1] (ArrayProvider), compared with the blueprint of providers[0] (ArrayProvider):\n"
        "      - gain: missing\n"
        "      - pair: not in the blueprint\n"
        "      - index: must be INT64, got INT32\n"
        "  - providers[3] (ArrayProvider), compared with the blueprint of providers[0] (ArrayProvider):\n"
        "      - the order of the fields differs: expected index, gain; got gain, index",
    ),
    (
        [LabelProvider(None), LabelProvider(None, ndim=2), LabelProvider(None, ndim=1)],
        FormatError,
        "  - boxes[0].label: the numbers of dimensions must be the same, got 2 in providers[1] (LabelProvider), "
        "1 in providers[2] (LabelProvider)",
    ),
]


@pytest.mark.parametrize(("providers", "error", "words"), REFUSED)
def test_what_does_not_go_together_is_refused(providers: Any, error: type[Exception], words: str) -> None:
    assert_refused(lambda: ConcatDataProvider(providers), words, error)


def test_each_provider_maps_its_own_labels() -> None:
    first = LabelProvider({"car": 1, "bus": 2, None: -1}, ("bus", "tram"))
    joined = ConcatDataProvider(
        [
            first,
            LabelProvider({"vehicle.car": 1, "bus": 2.0, "void": np.nan}, ("vehicle.car", "bus")),
            LabelProvider({"void": float("nan"), "tram": 3}, ("tram",)),
            LabelProvider(None, (2,), ndim=0),
        ]
    )
    assert [float(joined.get_data(i)["boxes"][0]["label"]) for i in range(6)] == [2, -1, 1, 2, 3, 2]
    assert joined.sample_data_structure.format == first.sample_data_structure.format


def test_a_provider_without_sequences_is_named() -> None:
    joined = ConcatDataProvider([IndexProvider(3), IndexProvider(3)])
    message = (
        r"^All providers must have the attribute `sequence_lengths` .* but `providers\[0\]` \(IndexProvider\)"
    )
    with pytest.raises(SettingError, match=message):
        _ = joined.sequence_lengths
    assert not hasattr(joined, "sequence_lengths")
    with pytest.raises(SettingError, match=r"but `providers\[0\]` \(ConcatDataProvider\) has none: All providers"):
        _ = ConcatDataProvider([joined]).sequence_lengths


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([2, 1], r"`providers\[1\]` \(Source\) must cover .* add up to 3 and it has 4 samples"),
        ([4, 0], r"^Each of `providers\[1\]\.sequence_lengths` must be at least 1, but length 1 is 0"),
        ([[4]], r"^`providers\[1\]\.sequence_lengths` must be a flat list"),
        ([3.5, 0.5], r"^`providers\[1\]\.sequence_lengths` must hold whole numbers"),
    ],
)
def test_lengths_that_are_none_are_refused(lengths: Any, message: str) -> None:
    first, second = sources(2, 4)
    second.sequence_lengths = lengths
    with pytest.raises(SettingError, match=message):
        _ = ConcatDataProvider([first, second]).sequence_lengths


# --- batches, errors, rules -----------------------------------------------------------------------------


def nested(kind: type[Source] = Source, **settings: Any) -> ConcatDataProvider:
    """Twelve samples; the source that the arguments belong to has the samples 3 to 7 of them."""
    return ConcatDataProvider([ConcatDataProvider([Source(3), kind(5, 3, **settings)]), Source(4, 8)])


@settings(max_examples=examples(5, 10), deadline=None)
@given(indices=st.lists(st.integers(0, 11), min_size=1, max_size=9), first_slot=st.integers(0, 3))
def test_batches_hold_what_samples_hold(indices: list[int], first_slot: int) -> None:
    slots = [first_slot + 2 * number for number in range(len(indices))]
    loaded = [*nested(together=False).load_batch(indices, slots)]  # one part loads batches, another one does not
    assert [int(sample["index"]) for sample in loaded] == indices
    expected = [-1 if 3 <= index <= 7 else slot for index, slot in zip(indices, slots, strict=True)]
    assert [int(sample["slot"]) for sample in loaded] == expected


def test_one_call_for_each_part() -> None:
    parts = sources(3, 5)
    loaded = [*ConcatDataProvider(parts).load_batch([4, 0, 7, 1, 4], range(5))]
    assert [int(sample["index"]) for sample in loaded] == [101, 0, 104, 1, 101]
    assert [part.calls for part in parts] == [[[0, 1]], [[1, 4, 1]]]


class Short(Source):
    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        return iter([self.get_data(sample_indices[0])])


def test_too_few_samples_are_no_end_of_the_epoch() -> None:
    with pytest.raises(RuntimeError, match=r"Short.* must deliver as many samples as .* got none for .*4"):
        list(ConcatDataProvider([Short(5)]).load_batch([3, 4], [0, 1]))


def test_an_exception_of_a_provider_passes_unchanged_but_for_the_sample() -> None:
    joined = ConcatDataProvider([FaultyProvider("none", -1, num_samples=3), FaultyProvider("custom_error")])
    with pytest.raises(CustomError, match=r"^no luck$") as caught:
        joined.get_data(3 + 6)
    assert (caught.type, caught.value.code) == (CustomError, 42)
    assert caught.value.__cause__ is caught.value.__context__ is None
    for kind in (Source, AtOnce):
        with pytest.raises(LookupError, match="file 5 is gone") as lost:
            list(nested(kind, bad=2).load_batch([0, 3, 9, 5, 10, 5], range(6)))
        assert lost.value.sample_index_in_data_set == 5  # type: ignore[attr-defined]
    for together in (True, False):
        with make_loader(nested(bad=2, together=together), 4) as loader:
            with pytest.raises(SourceError, match="file 5 is gone") as caught_by_loader:
                list(loader)
            assert caught_by_loader.value.sample_index == 5


class SlotsLeftOut(Source):
    def _sample(self, sample_index: int, slot: int) -> SampleDataGroup:
        return super()._sample(sample_index, -1)


class RuleBreaker(IndexProvider):
    def contract_findings(self, samples, seed):
        yield Finding(
            "numbers are even", "", [f"sample {index} is {samples[index]['index']}" for index in samples]
        )


def test_the_rules_of_providers_are_checked_by_each_part() -> None:
    check_provider(ConcatDataProvider([SlotsLeftOut(3), SlotsLeftOut(2, 3)]), num_samples=5, num_workers=0)
    both = ConcatDataProvider([RuleBreaker(4), IndexProvider(2), RuleBreaker(3)])
    samples = {index: both.get_data(index) for index in (1, 3)}
    assert [finding.problems for finding in both.contract_findings(samples, 0)] == [
        ["sample 1 is 1", "sample 3 is 3"],
        ["sample 0 is 0"],  # of which none was chosen
    ]
