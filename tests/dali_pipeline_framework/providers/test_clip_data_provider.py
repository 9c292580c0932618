"""`ClipDataProvider`: a data set of clips, made of a data set of frames."""

from __future__ import annotations

import collections
import pickle
from typing import Any

import numpy as np
import pytest
from nvidia.dali.types import DALIDataType
from support.pipelines import make_iterator, shuffled
from support.providers import FaultyProvider, IndexProvider, NumberProvider

from accvlab.dali_pipeline_framework.errors import (
    DuplicateFieldError,
    FieldValueError,
    NameTypeError,
    SettingError,
    SourceError,
)
from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.providers import ConcatDataProvider
from accvlab.dali_pipeline_framework.providers.wrapping_providers import ClipDataProvider
from accvlab.dali_pipeline_framework.sampling import ClipSampler, MixedSampler, ShuffledSampler
from accvlab.dali_pipeline_framework.sampling.plans.clips import Clips


class CountingProvider(NumberProvider):
    """Counts how often each sample is loaded."""

    def __init__(self, num_samples: int) -> None:
        super().__init__(num_samples)
        self.loads: collections.Counter[int] = collections.Counter()

    def get_data(self, sample_id: int) -> SampleDataGroup:
        self.loads[sample_id] += 1
        return super().get_data(sample_id)


def test_the_blueprint_has_an_array_of_frames() -> None:
    frames = NumberProvider(10)
    provider = ClipDataProvider(frames, Clips([6, 4], 3, tail="mark"), "steps", "is_padding")
    blueprint = provider.sample_data_structure
    assert blueprint.keys() == ("steps", "is_padding")
    assert blueprint["steps"].keys() == (0, 1, 2)
    for frame in blueprint["steps"].values():
        # Mappings included, which only this comparison looks at.
        assert frame.format == frames.sample_data_structure.format
    assert blueprint.format.at(("is_padding",)).dtype == DALIDataType.BOOL
    assert blueprint.format.at(("is_padding",)).ndim == 1
    assert provider.get_number_of_samples() == 10
    assert provider.data_provider is frames
    assert ClipDataProvider(frames, Clips([10], 2)).sample_data_structure.keys() == ("frames",)


def test_handed_out_blueprints_are_independent() -> None:
    provider = ClipDataProvider(IndexProvider(4), Clips([4], 2))
    provider.sample_data_structure.remove_field("frames")
    provider.sample_data_structure.set_apply_mapping(False)
    blueprint = provider.sample_data_structure
    assert blueprint.keys() == ("frames",)
    assert blueprint.apply_mapping


def test_a_sample_is_the_clip_that_starts_at_a_frame() -> None:
    frames = NumberProvider(10)
    provider = ClipDataProvider(frames, Clips([6, 4], 3, stride=2, tail="mark"), padding_name="is_padding")
    for first, expected, padding in (
        (1, [1, 3, 5], [0, 0, 0]),
        (2, [2, 4, 4], [0, 0, 1]),
        (9, [9] * 3, [0, 1, 1]),
    ):
        clip = provider.get_data(first)
        assert clip.format is provider.get_data(first).format
        assert clip.format == provider.sample_data_structure.format
        for got, frame in zip(clip["frames"].values(), expected, strict=True):
            assert got == frames.get_data(frame)
        assert got["cameras"][1]["label"].tolist() == -1  # mapped once
        assert clip["is_padding"].dtype == np.bool_
        assert clip["is_padding"].tolist() == padding


def test_without_marks_nothing_is_padding() -> None:
    provider = ClipDataProvider(IndexProvider(5), Clips([5], 3, tail="repeat"), padding_name="is_padding")
    clip = provider.get_data(4)
    assert [int(frame["index"]) for frame in clip["frames"].values()] == [4, 4, 4]
    assert clip["is_padding"].tolist() == [False, False, False]


def test_clips_play_backward() -> None:
    provider = ClipDataProvider(IndexProvider(5), Clips([5], 3, tail="mark", backward=True), padding_name=7)
    clip = provider.get_data(3)
    assert [int(frame["index"]) for frame in clip["frames"].values()] == [4, 3, 3]
    assert clip[7].tolist() == [False, False, True]


def test_a_repeated_frame_is_loaded_once() -> None:
    frames = CountingProvider(10)
    provider = ClipDataProvider(frames, Clips([10], 4, tail="mark"))
    provider.get_data(8)
    assert frames.loads == {8: 1, 9: 1}


def test_survives_pickling() -> None:
    provider = ClipDataProvider(NumberProvider(10), Clips([6, 4], 3, tail="mark"), "steps", "is_padding")
    provider.get_data(0)
    copy = pickle.loads(pickle.dumps(provider))
    assert copy.get_data(5) == provider.get_data(5)
    assert copy.clips.describe() == provider.clips.describe()


class TestFailures:
    @pytest.mark.parametrize(
        ("fault", "error", "message"),
        [
            ("value_error", ValueError, "calibration is missing"),
            ("stop_iteration", RuntimeError, r"FaultyProvider\.get_data\(6\) raised StopIteration"),
            ("none", FieldValueError, r"FaultyProvider\.get_data\(6\) must return a filled SampleDataGroup"),
            ("missing_field", FieldValueError, r"FaultyProvider\.get_data.6. returned a sample of another"),
        ],
    )
    def test_the_frame_is_named(self, fault: str, error: type[Exception], message: str) -> None:
        provider = ClipDataProvider(FaultyProvider(fault), Clips([16], 3))
        provider.get_data(3)
        with pytest.raises(error, match=message) as caught:
            provider.get_data(4)
        assert caught.value.sample_index_in_data_set == 6
        if hasattr(caught.value, "__notes__"):  # Python >= 3.11
            assert caught.value.__notes__ == [
                "raised while sample 6 of the data set was loaded",
                "which is frame 2 of the clip that starts at sample 4",
            ]

    @pytest.mark.parametrize("index", [-1, 16])
    def test_there_is_no_such_clip(self, index: int) -> None:
        with pytest.raises(SettingError, match=f"There is no frame {index}: frames are numbered 0 to 15"):
            ClipDataProvider(IndexProvider(16), Clips([16], 3)).get_data(index)

    @pytest.mark.parametrize(
        ("clips", "names", "error", "message"),
        [
            (Clips([10, 5], 2), (), SettingError, r"got 15 frames in 2 sequence\(s\) for 16 samples"),
            ([16], (), SettingError, "`clips` must be of the class Clips, got"),
            (Clips([16], 2), ("frames", "frames"), DuplicateFieldError, "'frames'"),
            (Clips([16], 2), (1.5,), NameTypeError, r"1\.5"),
            (Clips([16], 2), ("frames", b"padding"), NameTypeError, "padding"),
        ],
    )
    def test_bad_settings_are_refused(
        self, clips: Any, names: tuple[Any, ...], error: type[Exception], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            ClipDataProvider(IndexProvider(16), clips, *names)

    def test_an_empty_data_set_is_refused(self) -> None:
        with pytest.raises(SettingError, match="The data set is empty"):
            ClipDataProvider(IndexProvider(0), Clips([16], 2))


class TestInAPipeline:
    def test_workers_load_clips(self) -> None:
        frames = NumberProvider(10)
        provider = ClipDataProvider(frames, Clips([6, 4], 3, tail="mark"), padding_name="is_padding")
        with make_iterator(shuffled(provider, 5), py_start_method="forkserver") as iterator:
            batches = [*iterator]
        assert len(batches) == 2
        for number, batch in enumerate(batches):
            expected = [provider.get_data(5 * number + slot) for slot in range(5)]
            for position in range(3):
                played = [clip["frames"][position] for clip in expected]
                got = batch["frames"][position]
                assert got["index"].tolist() == [int(frame["index"]) for frame in played]
                assert got["pair"].tolist() == [frame["pair"].tolist() for frame in played]
                assert got["name"] == [frame["name"] for frame in played]
                assert got["cameras"][0]["label"].tolist() == [1] * 5
            assert batch["is_padding"].tolist() == [clip["is_padding"].tolist() for clip in expected]
        assert batches[1]["frames"][2]["index"].tolist() == [5, 8, 9, 9, 9]

    def test_the_failing_frame_is_reported(self) -> None:
        provider = ClipDataProvider(FaultyProvider("value_error"), Clips([16], 3))
        with (
            make_iterator(shuffled(provider, 4), py_num_workers=1) as iterator,
            pytest.raises(SourceError, match="calibration is missing") as caught,
        ):
            collections.deque(iterator, maxlen=0)
        assert caught.value.sample_index == 6


class TestWithSamplers:
    CLIPS = Clips([4, 6], 3)

    def test_the_clips_of_provider_and_sampler_must_be_the_same(self) -> None:
        provider = ClipDataProvider(IndexProvider(10), self.CLIPS)
        SamplerInputCallable(provider, ClipSampler(Clips([4, 6], 3, step=2, jitter=1), 2, deliver="clips"))
        with pytest.raises(SettingError, match=r"must have the same clips.*sequence_length: 3 and 2\. Give"):
            SamplerInputCallable(provider, ClipSampler(Clips([4, 6], 2), 2, deliver="clips"))
        with pytest.raises(SettingError, match=r"plays clips frame by frame.*Pass deliver='clips'"):
            SamplerInputCallable(provider, ClipSampler(self.CLIPS, 2))

    def test_mixtures_lie_on_the_joined_data_sets(self) -> None:
        joined = ConcatDataProvider([IndexProvider(10), IndexProvider(5)])
        parts = [ShuffledSampler(10), ShuffledSampler(5)]
        SamplerInputCallable(joined, MixedSampler(parts, [0.5, 0.5], 2, offsets=joined.offsets))
        with pytest.raises(SettingError, match=r"data set 1 of .*, which begins at 10, is never reached"):
            SamplerInputCallable(joined, MixedSampler(parts, [0.5, 0.5], 2))
        with pytest.raises(SettingError, match=r"which are \[0, 10\]; that of sampler 1 is 7"):
            SamplerInputCallable(joined, MixedSampler(parts, [0.5, 0.5], 2, offsets=[0, 7]))

    def test_what_is_never_chosen_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        SamplerInputCallable(IndexProvider(10), ShuffledSampler(7, 2))
        assert [record.getMessage() for record in caplog.records] == [
            "ShuffledSampler is set up for 7 samples: the other 3 of the data set are never delivered."
        ]
