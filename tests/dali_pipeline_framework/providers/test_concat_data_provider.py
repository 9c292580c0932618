"""Several data sets as one: which sample comes from where, what must agree, and the way through a pipeline."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvidia.dali import types
from support.arrays import ArrayProvider
from support.laws import examples
from support.pipelines import make_iterator, shuffled
from support.providers import CustomError, FaultyProvider, IndexProvider
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import FieldValueError, FormatError, SettingError, SourceError
from accvlab.dali_pipeline_framework.inputs import DataProvider
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.providers.wrapping_providers import ConcatDataProvider
from accvlab.dali_pipeline_framework.testing import Finding

DT = types.DALIDataType


class LabelProvider(IndexProvider):
    """A field ``label`` with a mapping; sample ``i`` gets label ``i`` of a list."""

    def __init__(self, mapping: dict[Any, Any] | None, labels: tuple[Any, ...] = (0,), ndim: int | None = None):
        super().__init__(len(labels))
        self.mapping, self.labels, self.ndim = mapping, labels, ndim

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        box = SampleDataGroup()
        box.add_data_field("label", DT.FLOAT, self.mapping, ndim=self.ndim)
        blueprint = SampleDataGroup()
        blueprint.add_data_group_field_array("boxes", box, 1)
        return blueprint

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.sample_data_structure
        sample["boxes"][0]["label"] = self.labels[sample_index]
        return sample


class SequenceProvider(IndexProvider):
    """Has sequences."""

    def __init__(self, sequence_lengths: Any, num_samples: int | None = None) -> None:
        super().__init__(sum(sequence_lengths) if num_samples is None else num_samples)
        self.sequence_lengths = sequence_lengths


def numbered(*counts: int) -> list[DataProvider]:
    """Provider ``p`` has the samples ``100 * p, 100 * p + 1, ...``."""
    return [
        ArrayProvider({"index": (DT.INT64, [100 * position + i for i in range(count)])})
        for position, count in enumerate(counts)
    ]


def samples_of(provider: DataProvider) -> list[int]:
    return [int(provider.get_data(i)["index"]) for i in range(provider.get_number_of_samples())]


# --- which sample comes from where ----------------------------------------------------------------------


@given(counts=st.lists(st.integers(1, 7), min_size=1, max_size=6))
@settings(deadline=None, max_examples=examples(20, 60))
def test_the_samples_are_those_of_the_providers_one_after_the_other(counts: list[int]) -> None:
    providers = numbered(*counts)
    joined = ConcatDataProvider(providers)
    expected = [
        (position, index) for position, count in enumerate(counts) for index in range(count)
    ]  # by sample index
    assert joined.get_number_of_samples() == len(expected)
    assert [joined.locate(i) for i in range(len(expected))] == expected
    for i, (position, index) in enumerate(expected):
        assert joined.offsets[position] + index == i
        assert joined.get_data(i) == providers[position].get_data(index)


@given(counts=st.lists(st.integers(1, 4), min_size=2, max_size=6), data=st.data())
@settings(deadline=None, max_examples=examples(15, 40))
def test_a_nested_concatenation_has_the_samples_of_the_flat_one(counts: list[int], data: st.DataObject) -> None:
    providers = numbered(*counts)
    start = data.draw(st.integers(0, len(counts) - 1))
    stop = data.draw(st.integers(start + 1, len(counts)))
    inner = ConcatDataProvider(providers[start:stop])
    nested = ConcatDataProvider([*providers[:start], inner, *providers[stop:]])
    assert samples_of(nested) == samples_of(ConcatDataProvider(providers))


def test_offsets_are_the_first_sample_of_each_provider() -> None:
    joined = ConcatDataProvider(numbered(4, 2, 3))
    for provider in (joined, pickle.loads(pickle.dumps(joined))):
        assert provider.offsets.dtype == np.int64
        assert provider.offsets.tolist() == [0, 4, 6]
        assert not provider.offsets.flags.writeable
        assert samples_of(provider) == [0, 1, 2, 3, 100, 101, 200, 201, 202]


def test_the_providers_are_kept_as_they_are() -> None:
    day, night = numbered(2, 1)
    joined = ConcatDataProvider([day, night, day])
    assert [*map(id, joined.providers)] == [id(day), id(night), id(day)]
    assert samples_of(joined) == [0, 1, 100, 0, 1]


def test_the_position_and_the_index_are_plain_ints() -> None:
    joined = ConcatDataProvider(numbered(3, 3))
    assert joined.locate(np.int64(4)) == (1, 1)
    assert {type(number) for number in joined.locate(np.int64(4))} == {int}
    assert joined.get_data(np.int32(4))["index"] == 101


@pytest.mark.parametrize("index", [-1, 5, 10**12])
def test_there_is_no_sample_out_of_range(index: int) -> None:
    joined = ConcatDataProvider(numbered(2, 3))
    message = rf"^`sample_index` must be in \[0, 4\], got {index}\.$"
    for method in (joined.get_data, joined.locate):
        with pytest.raises(SettingError, match=message) as caught:
            method(index)
        assert isinstance(caught.value, IndexError)


def test_a_sample_index_is_a_whole_number() -> None:
    with pytest.raises(SettingError, match=r"^`sample_index` must be in \[0, 2\], got 1\.0\.$"):
        ConcatDataProvider(numbered(3)).get_data(1.0)


def test_the_pickle_does_not_grow_with_the_data_set() -> None:
    small, large = (ConcatDataProvider([IndexProvider(count) for _ in range(5)]) for count in (100, 10**8))
    assert len(pickle.dumps(large)) - len(pickle.dumps(small)) < 60
    assert len(pickle.dumps(large)) < 600


def test_an_exception_of_a_provider_passes_unchanged() -> None:
    joined = ConcatDataProvider(
        [FaultyProvider("none", bad_sample=-1, num_samples=3), FaultyProvider("custom_error")]
    )
    with pytest.raises(CustomError, match=r"^no luck$") as caught:
        joined.get_data(3 + 6)
    assert caught.type is CustomError
    assert caught.value.code == 42
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


# --- what must agree ------------------------------------------------------------------------------------


class NoBlueprint(IndexProvider):
    @property
    def sample_data_structure(self) -> Any:
        return {"index": DT.INT64}


REFUSED = [
    ([], SettingError, "`providers` must hold at least one data provider, got none."),
    (
        IndexProvider(3),
        SettingError,
        "must be a list of data providers, got IndexProvider. ... `[provider]`.",
    ),
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
        [IndexProvider(), NoBlueprint()],
        FieldValueError,
        "`providers[1]`: NoBlueprint.sample_data_structure must be a SampleDataGroup, got dict.",
    ),
]


@pytest.mark.parametrize(("providers", "error", "words"), REFUSED)
def test_what_is_no_list_of_data_sets_is_refused(providers: Any, error: type[Exception], words: str) -> None:
    assert_refused(lambda: ConcatDataProvider(providers), words, error)


def test_all_that_differs_between_the_blueprints_is_listed_in_one_error() -> None:
    first = ArrayProvider({"index": (DT.INT64, [0]), "gain": (DT.FLOAT, [0.5])})
    reordered = ArrayProvider({"gain": (DT.FLOAT, [0.5]), "index": (DT.INT64, [0])})
    with pytest.raises(FormatError) as caught:
        ConcatDataProvider(
            [first, ArrayProvider({"index": (DT.INT32, [0]), "pair": (DT.FLOAT, [1])}), first, reordered]
        )
    assert str(caught.value) == (
        "The blueprints of the providers do not go together:\n"
        "  - providers[1] (ArrayProvider), compared with the blueprint of providers[0] (ArrayProvider):\n"
        "      - gain: missing\n"
        "      - pair: not in the blueprint\n"
        "      - index: must be INT64, got INT32\n"
        "  - providers[3] (ArrayProvider), compared with the blueprint of providers[0] (ArrayProvider):\n"
        "      - the order of the fields differs: expected index, gain; got gain, index"
    )
    assert len(caught.value.problems) == 2


def test_each_provider_maps_its_own_labels() -> None:
    first = LabelProvider({"car": 1, "bus": 2, None: -1}, ("bus", "tram"))
    joined = ConcatDataProvider(
        [
            first,
            LabelProvider({"vehicle.car": 1, "bus": 2.0, "void": np.nan}, ("vehicle.car", "bus")),
            LabelProvider({"void": float("nan"), "tram": 3}, ("tram",)),
            LabelProvider(None, (2,)),
        ]
    )
    assert [float(joined.get_data(i)["boxes"][0]["label"]) for i in range(6)] == [2, -1, 1, 2, 3, 2]
    assert joined.sample_data_structure.format == first.sample_data_structure.format


def test_a_label_has_the_same_number_everywhere() -> None:
    unmapped, first = LabelProvider(None), LabelProvider({"car": 1, "bus": 2, None: -1})
    with pytest.raises(FormatError) as caught:
        ConcatDataProvider([unmapped, first, LabelProvider({"bus": 3, "car": 1, None: 0})])
    assert str(caught.value) == (
        "The blueprints of the providers do not go together:\n"
        "  - boxes[0].label: the mappings must give a label the same number, got:\n"
        "      - label 'bus': 2 in providers[1] (LabelProvider), 3 in providers[2] (LabelProvider)\n"
        "      - unlisted labels (the key None): -1 in providers[1] (LabelProvider), "
        "0 in providers[2] (LabelProvider)"
    )


def test_a_long_list_of_labels_is_cut() -> None:
    counted = {f"class {i}": i for i in range(10)}
    with pytest.raises(FormatError, match=r"'class 2': 2 in .*, 3 in .*\n      - and 7 more$"):
        ConcatDataProvider([LabelProvider(counted), LabelProvider({label: i + 1 for label, i in counted.items()})])


def test_mappings_inside_a_nested_concatenation_count() -> None:
    inner = ConcatDataProvider([LabelProvider({"car": 1}), LabelProvider({"bus": 2})])
    message = r"label 'bus': 2 in providers\[0\]\.providers\[1\] \(LabelProvider\), 5 in providers\[1\] \(LabelP"
    with pytest.raises(FormatError, match=message):
        ConcatDataProvider([inner, LabelProvider({"bus": 5})])


def test_declared_numbers_of_dimensions_are_the_same() -> None:
    one, two, any_number = (LabelProvider(None, ndim=ndim) for ndim in (1, 2, None))
    assert ConcatDataProvider([any_number, two, any_number, two]).get_number_of_samples() == 4
    with pytest.raises(FormatError) as caught:
        ConcatDataProvider([any_number, two, one])
    assert str(caught.value) == (
        "The blueprints of the providers do not go together:\n"
        "  - boxes[0].label: the numbers of dimensions must be the same, got 2 in providers[1] (LabelProvider), "
        "1 in providers[2] (LabelProvider)"
    )


# --- sequences ------------------------------------------------------------------------------------------


def test_the_sequences_are_those_of_all_providers() -> None:
    inner = ConcatDataProvider([SequenceProvider([2, 3]), SequenceProvider(np.array([4], np.uint8))])
    joined = ConcatDataProvider([SequenceProvider((1,)), inner])
    assert joined.sequence_lengths.tolist() == [1, 2, 3, 4]
    assert joined.sequence_lengths.dtype == np.int64
    assert not joined.sequence_lengths.flags.writeable


def test_a_provider_without_sequences_is_named() -> None:
    joined = ConcatDataProvider([SequenceProvider([2]), IndexProvider(3)])
    message = (
        r"^All providers must have the attribute `sequence_lengths` .*, but `providers\[1\]` \(IndexProvider\)"
    )
    with pytest.raises(SettingError, match=message):
        _ = joined.sequence_lengths
    assert not hasattr(joined, "sequence_lengths")
    with pytest.raises(SettingError, match=r"but `providers\[0\]` \(ConcatDataProvider\) has none: All providers"):
        _ = ConcatDataProvider([joined]).sequence_lengths


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([2, 1], r"`providers\[1\]` \(SequenceProvider\) must cover .* add up to 3 and it has 4 samples"),
        ([4, 0], r"^Each of `providers\[1\]\.sequence_lengths` must be at least 1, but length 1 is 0"),
        ([[4]], r"^`providers\[1\]\.sequence_lengths` must be a flat list"),
        ([3.5, 0.5], r"^`providers\[1\]\.sequence_lengths` must hold whole numbers"),
    ],
)
def test_lengths_that_are_none_are_refused(lengths: Any, message: str) -> None:
    joined = ConcatDataProvider([SequenceProvider([2]), SequenceProvider(lengths, num_samples=4)])
    with pytest.raises(SettingError, match=message):
        _ = joined.sequence_lengths


# --- through a pipeline ---------------------------------------------------------------------------------


def test_the_error_of_a_worker_tells_the_index_in_the_whole() -> None:
    joined = ConcatDataProvider([FaultyProvider("none", -1, num_samples=4), FaultyProvider("file_not_found")])
    with pytest.raises(SourceError, match=r"Loading sample 10 failed with FileNotFoundError") as caught:
        for _ in make_iterator(shuffled(joined)):
            pass
    assert isinstance(caught.value, FileNotFoundError)
    assert caught.value.sample_index == 10
    assert joined.locate(10) == (1, 6)


class RuleBreaker(IndexProvider):
    def contract_findings(self, samples, seed):
        yield Finding(
            "numbers are even", "", [f"sample {index} is {samples[index]['index']}" for index in samples]
        )


def test_the_rules_of_each_provider_are_checked() -> None:
    both = ConcatDataProvider([RuleBreaker(4), IndexProvider(2), RuleBreaker(3)])
    samples = {index: both.get_data(index) for index in (1, 3)}
    assert [finding.problems for finding in both.contract_findings(samples, 0)] == [
        ["sample 1 is 1", "sample 3 is 3"],
        ["sample 0 is 0"],  # of which none was chosen
    ]
