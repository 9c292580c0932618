"""`Windows`: samples with the values of fields at several times around a moment."""

from __future__ import annotations

import functools
import itertools
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvidia.dali import types
from support.array_samples import group_of
from support.arrays import ArrayProvider, encoded_image
from support.frame_trees import write_frames
from support.laws import each_value, examples
from support.loaders import LENGTHS, make_loader
from support.providers import FaultyProvider, IndexProvider
from support.refusals import assert_refused
from support.videos import make_video, read_numbers

from accvlab.dali_pipeline_framework import (
    ConcatDataProvider,
    DataGroupArrayInPathElementsAppliedStep,
    DataProvider,
    FrameDataProvider,
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    ImageResizer,
    PipelineDefinition,
    SampleDataGroup,
    SamplerInputCallable,
    SequentialSampler,
    VideoFrameDataProvider,
    Videos,
    Windows,
)
from accvlab.dali_pipeline_framework.errors import (
    ContractError,
    DuplicateFieldError,
    FieldValueError,
    SettingError,
)
from accvlab.dali_pipeline_framework.sample_data import ImageContent
from accvlab.dali_pipeline_framework.testing import check_provider

DT = types.DALIDataType


@functools.cache
def picture(number: int) -> np.ndarray:
    """A PNG file of one color."""
    return encoded_image(np.full((4, 6, 3), number % 256, np.uint8), "PNG")


class Drive(DataProvider):
    """Row ``i`` has the number ``i`` in each field; times are given, or a frame comes every 0.1 s."""

    def __init__(self, lengths=(5, 3), times_s=None, camera_times_s=None) -> None:
        self.sequence_lengths = [*lengths]
        self.times_s = times_s if times_s is not None else np.concatenate([np.arange(n) * 0.1 for n in lengths])
        self.camera_times_s = camera_times_s or {}
        self.loaded: Counter[int] = Counter()

    def get_number_of_samples(self) -> int:
        return sum(self.sequence_lengths)

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        image, scalar = {"ndim": 1, "content": ImageContent(is_encoded=True)}, {"ndim": 0}
        return group_of(
            number=(DT.INT64, scalar),
            state=(DT.FLOAT, {"ndim": 1}),
            task=DT.STRING,
            kind=(DT.INT32, {"mapping": {"car": 3, None: -1}, "ndim": 0}),
            points=(DT.FLOAT, {"ndim": 2}),
            cameras=(group_of(image=(DT.UINT8, image), gain=(DT.FLOAT, scalar)), 2),
        )

    def get_data(self, sample_index: int) -> SampleDataGroup:
        self.loaded[sample_index] += 1
        sample = self.new_sample()
        sample["number"] = sample_index
        sample["state"] = [sample_index, -sample_index]
        sample["task"] = "go" * sample_index
        sample["kind"] = "car" if sample_index % 2 else "bus"
        sample["points"] = np.zeros((sample_index % 3, 4))
        for number, camera in sample["cameras"].items():
            camera["image"] = picture(10 * sample_index + number)
            camera["gain"] = sample_index + number / 2
        return sample

    def frame_times_s(self, path=()):
        if path[:1] == ("cameras",):
            return self.camera_times_s.get(path[1])
        return None if path else self.times_s


def by_time(source, windows, **how):
    return Windows(source, windows, **{"unit": "s", "edges": "repeat", **how})


def by_frame(source, windows, **how):
    return Windows(source, windows, **{"unit": "frames", "edges": "repeat", **how})


# --- what comes out -----------------------------------------------------------------------------------------


def test_the_values_are_those_of_the_frames_in_the_order_asked_for():
    provider = by_time(Drive((5, 3)), {"number": [0.1, -0.2, 0], "state": [0, 0.1], "kind": [-0.1]})
    sample = provider.get_data(1)
    assert sample["number"].tolist() == [2, 0, 1]
    assert sample["number_is_pad"].tolist() == [False, True, False]  # -0.2 is before the start
    assert sample["state"].tolist() == [[1, -1], [2, -2]]
    assert (sample["kind"].tolist(), sample["task"]) == ([-1], "go")
    assert provider.get_data(5)["number"].tolist() == [6, 5, 5]  # never a frame of the sequence before
    assert provider.get_data(7)["state_is_pad"].tolist() == [False, True]


def test_the_format_has_an_axis_more_and_masks_next_to_the_fields():
    provider = by_time(Drive(), {"number": [-0.1, 0], "image": [-0.1, 0], "task": [0, 0.1], "gain": [0]})
    described = PipelineDefinition(SamplerInputCallable(provider, SequentialSampler(8, 1))).describe()
    assert described.partition("\noutput\n")[0].splitlines() == [
        "input",
        "    number: INT64, 1D",
        "    state: FLOAT, 1D",
        "    task[0..1]: STRING",
        "    kind: INT32, scalar, of labels",
        "    points: FLOAT, 2D",
        "    cameras[0..1].image.encoded[0..1]: UINT8, 1D, image: encoded",
        "    cameras[0..1].gain: FLOAT, 1D",
        "    cameras[0..1].image_is_pad: BOOL, 1D",
        "    cameras[0..1].gain_is_pad: BOOL, 1D",
        "    number_is_pad: BOOL, 1D",
        "    task_is_pad: BOOL, 1D",
    ]
    sample = provider.get_data(2)
    assert [*sample["task"].values()] == ["gogo", "gogogo"]
    assert sample["cameras"][1]["image"]["encoded"][0].tobytes() == picture(11).tobytes()
    assert sample["cameras"][1]["gain"].tolist() == [2.5]


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ({"cameras.gain": [-0.1, 0]}, [2, 2]),
        ({"gain": [0], "cameras[1].gain": [-0.1, 0, 0.1]}, [1, 3]),
        ({("cameras", 0, "gain"): [0, 0.1], "cameras.gain": [0]}, [2, 1]),
    ],
)
def test_fields_are_named_as_elsewhere_and_the_most_exact_name_counts(windows, expected):
    sample = by_time(Drive(), windows).get_data(1)
    assert [camera["gain"].shape[0] for camera in sample["cameras"].values()] == expected


# --- which frames -------------------------------------------------------------------------------------------


def test_cameras_are_searched_by_their_own_times():
    # The second camera is 40 ms behind the moments, and has no frame at the third.
    times = {1: [0.04, 0.14, np.nan, 0.34, 0.44]}
    provider = by_time(Drive((5,), camera_times_s=times), {"gain": [-0.1, 0]}, tolerance_s=0.05)
    gains = [[camera["gain"].tolist() for camera in provider.get_data(i)["cameras"].values()] for i in (1, 4)]
    assert gains == [[[0, 1], [0.5, 1.5]], [[3, 4], [3.5, 4.5]]]
    with pytest.raises(FieldValueError) as caught:
        provider.get_data(2)
    assert str(caught.value) == (
        "cameras[1].gain: no frame near 0.2 s of sequence 0 (frame 2): the nearest, frame 1, is 0.06 s away; "
        "`tolerance_s` is 0.05. Raise it, or use edges='drop', which leaves such moments out."
    )
    in_time = by_frame(Drive((5,), camera_times_s=times), {"gain": [0]})
    assert in_time.get_data(2)["cameras"][1]["gain"].tolist() == [2.5]


@pytest.mark.parametrize("take", ["nearest", "last"])
def test_cameras_that_lack_sequences_or_are_slow(take):
    times = {1: [0, 0.1, 0.2, *[np.nan] * 3, 0, 0.1]}
    source = Drive((3, 3, 2), [0, 0.1, 0.2, 10, 10.1, 10.2, 0, 0.1], camera_times_s=times)
    provider = by_time(source, {"gain": [-0.1, 0]}, take=take)
    assert provider.get_data(6)["cameras"][1]["gain"].tolist() == [6.5, 6.5]
    for sample in (3, 5):
        with pytest.raises(FieldValueError, match=r"cameras\[1\].gain: no frame near .* Leave the sequence out"):
            provider.get_data(sample)
    assert Windows(source, {"gain": [-0.1, 0]}, unit="s", take=take).rows.tolist() == [1, 2, 7]
    slow = Drive((7,), camera_times_s={1: [0, 0, 0, 0.3, 0.3, 0.3, 0.6]})  # a frame at several moments
    provider = by_time(slow, {"cameras[1].gain": [-0.3, 0]}, take=take)
    gains = [provider.get_data(index)["cameras"][1]["gain"].tolist() for index in (4, 5)]
    assert gains == [[2.5, 5.5], [3.5, 6.5] if take == "nearest" else [2.5, 5.5]]


@pytest.mark.parametrize("take", ["nearest", "last"])
def test_float32_times_and_times_since_1970_are_no_obstacle(take):
    for times in (np.float32(np.arange(2000) / 10), 1.7e9 + np.arange(2000) / 10):
        provider = by_time(Drive((2000,), times), {"number": [-0.2, -0.1, 0, 0.1]}, take=take)
        assert provider.get_data(1997)["number"].tolist() == [1995, 1996, 1997, 1998]


def test_frames_are_equally_spaced_only_where_no_difference_adds_up():
    # 30 and 29.97 frames per second: 0.03 ms from frame to frame, 2 ms in two seconds.
    times = np.concatenate([np.arange(90) / 30, np.arange(90) / 29.97])
    provider = by_time(Drive((90, 90), times), {"number": [-2, 0]})
    assert provider.get_data(175)["number"].tolist() == [115, 175]
    assert "(within 0.0166" in repr(provider)
    for rate, offset, period in ((29.97, -2, "0.0333667"), (4000, -0.001125, "0.00025")):
        with pytest.raises(SettingError, match=f"must be multiples of the {period} s from frame to frame"):
            by_time(Drive((90,), np.arange(90) / rate), {"number": [offset, 0]})
    by_time(Drive((90,), np.arange(90) / 8000), {"number": [-0.001125, 0]})  # nearer than times are told apart


@st.composite
def drives(draw: Any) -> tuple[list[int], np.ndarray]:
    """Lengths of sequences, and times of their frames in milliseconds, at least 20 apart, with jitter and gaps."""
    lengths = draw(st.lists(st.integers(1, 7), min_size=1, max_size=5))
    times = [
        np.cumsum(draw(st.lists(st.sampled_from([20, 50, 100, 101, 350]), min_size=n, max_size=n)))
        for n in lengths
    ]
    return lengths, np.concatenate(times)


OFFSETS_MS = st.lists(st.integers(-8, 8).map(lambda step: 25 * step), min_size=1, max_size=4, unique=True)


def expected_frames(times: np.ndarray, t0: int, offset: int, tolerance: int, take: str) -> tuple[int, bool, bool]:
    """Frame, padding, and whether it is missing, in whole milliseconds, by looking at each frame."""
    wanted = t0 + offset
    distances = [abs(time - wanted) for time in times.tolist()]
    if take == "nearest":
        frame = distances.index(min(distances))
        is_pad = wanted < times[0] - tolerance or wanted > times[-1] + tolerance
    else:
        frame = max([k for k, time in enumerate(times.tolist()) if time <= wanted], default=0)
        is_pad = wanted < times[0] or wanted > times[-1] + tolerance
    return frame, is_pad, not is_pad and distances[frame] > tolerance


def repeats_one_frame(of_moments: list[list[tuple[int, bool, bool]]], own: list[int], offsets: list[int]) -> bool:
    """Whether no offset but 0 has another frame at any moment; ``own`` has the frames at the offset 0."""
    others = [place for place, offset in enumerate(offsets) if offset]
    is_other = [
        is_missing or (not is_pad and (len({*offsets}) == 1 or frame != own[moment]))
        for moment, expected in enumerate(of_moments)
        for frame, is_pad, is_missing in (expected[place] for place in others)
    ]
    return bool(others) and not any(is_other)


def assert_windows_follow_the_rule(lengths, times, offsets, tolerance, take, step, make):
    """Compare with whole milliseconds, or whole frames; ``make`` makes the windows with the rule for edges."""
    edges = np.concatenate([[0], np.cumsum(lengths)])
    rows, of_moments, own = [], [], []
    for start, end in itertools.pairwise(edges.tolist()):
        for row in range(start, end, step):
            rows.append(row)
            args = times[start:end], times[row]
            of_moments.append([expected_frames(*args, offset, tolerance, take) for offset in offsets])
            own.append(expected_frames(*args, 0, tolerance, take)[0])
    if repeats_one_frame(of_moments, own, offsets):
        for rule in ("repeat", "drop"):
            with pytest.raises(SettingError, match="would repeat the frame of the moment"):
                make(rule)
        return
    provider, full, found = make("repeat"), [], {}
    assert provider.rows.tolist() == rows
    assert provider.sequence_lengths.tolist() == [-(-length // step) for length in lengths]
    for number, (row, expected) in enumerate(zip(rows, of_moments, strict=True)):
        start = edges[edges.searchsorted(row, side="right") - 1]
        if any(is_missing for _, _, is_missing in expected):
            with pytest.raises(FieldValueError, match="no frame near"):
                provider.get_data(number)
            continue
        found[row] = sample = provider.get_data(number)
        assert sample["number"].tolist() == [start + frame for frame, _, _ in expected]
        assert sample["number_is_pad"].tolist() == [is_pad for _, is_pad, _ in expected]
        full += [row] * (not sample["number_is_pad"].any())
    if not full:
        with pytest.raises(SettingError, match="No moment has a full window"):
            make("drop")
        return
    # Where windows are complete, both rules for edges agree.
    dropped = make("drop")
    assert dropped.rows.tolist() == full
    for sample, row in zip(dropped.load_batch(range(len(full)), range(len(full))), full, strict=True):
        assert sample["number"].tolist() == found[row]["number"].tolist()
        assert "number_is_pad" not in sample.keys()  # noqa: SIM118 - iterating gives the names, too
    begins = [
        place
        for place, (before, row) in enumerate(itertools.pairwise([-1, *full]))
        if row != before + step or edges.searchsorted(row, "right") != edges.searchsorted(before, "right")
    ]
    assert dropped.sequence_lengths.tolist() == np.diff([*begins, len(full)]).tolist()


@settings(max_examples=examples(35, 500), deadline=None)
@given(
    drives(),
    OFFSETS_MS,
    st.sampled_from([0, 25, 60, 400]),
    st.sampled_from(["nearest", "last"]),
    st.integers(1, 3),
)
def test_each_frame_is_the_one_that_the_rule_says_and_of_the_same_sequence(drive, offsets, tolerance, take, step):
    lengths, times = drive
    edges = np.concatenate([[0], np.cumsum(lengths)])

    def make(rule: Any) -> Windows:
        windows, how = {"number": [offset / 1000 for offset in offsets]}, {"edges": rule, "step": step}
        how |= {"tolerance_s": tolerance / 1000, "take": take}
        return Windows(Drive(lengths, times / 1000), windows, unit="s", **how)

    intervals = np.concatenate([np.diff(times[start:end]) for start, end in itertools.pairwise(edges)])
    if len(set(intervals.tolist())) == 1:  # equally spaced
        period = int(intervals[0])
        off = [offset % period if take == "last" else min(offset % period, -offset % period) for offset in offsets]
        if max(off) > tolerance:
            with pytest.raises(SettingError, match="must be multiples of"):
                make("repeat")
            return
    assert_windows_follow_the_rule(lengths, times, offsets, tolerance, take, step, make)


@settings(max_examples=examples(35, 500), deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.lists(st.integers(-5, 5), min_size=1, max_size=4, unique=True),
    st.integers(1, 6),
)
def test_windows_in_frames_never_leave_their_sequence(lengths, offsets, step):
    def make(rule: Any) -> Windows:
        return Windows(Drive(lengths), {"number": offsets}, unit="frames", step=step, edges=rule)

    positions = np.concatenate([np.arange(length) for length in lengths])
    assert_windows_follow_the_rule(lengths, positions, offsets, 0, "nearest", step, make)


def test_sequences_end_where_moments_are_left_out_and_names_and_times_go_with_them(caplog):
    source = Drive((5, 1, 4), [0, 0.1, 0.2, 0.4, 0.5, 0, 0, 0.1, 0.2, 0.3])
    source.scene_names, source.timestamps, source.class_names = ("a", "b", "c"), np.arange(10.0), ("car",)
    provider = Windows(source, {"number": [-0.1, 0]}, edges="drop", tolerance_s=0.01, unit="s")
    assert provider.rows.tolist() == [1, 2, 4, 7, 8, 9]
    gaps = "1 of 10 moments have a time without a frame within the tolerance, and are left out."
    assert [record.getMessage() for record in caplog.records] == [f"Windows: {gaps}"]
    assert provider.sequence_lengths.tolist() == [2, 1, 3]
    assert provider.scene_names == ("a", "a", "c")
    assert provider.timestamps.tolist() == [1, 2, 4, 7, 8, 9]
    assert provider.frame_times_s().tolist() == [0.1, 0.2, 0.5, 0.1, 0.2, 0.3]
    assert provider.class_names == ("car",)
    assert not hasattr(provider, "timestamps_s")
    assert pickle.loads(pickle.dumps(provider)).get_data(3)["number"].tolist() == [6, 7]


# --- orders and batches --------------------------------------------------------------------------------


@settings(max_examples=examples(10, 100), deadline=None)
@given(st.lists(st.integers(0, sum(LENGTHS) - 1), min_size=1, max_size=9))
def test_a_batch_has_what_its_samples_have(indices):
    provider = by_frame(Drive(LENGTHS), {"number": [1, -2, 0], "state": [-3, 0, 3, 1], "image": [0, -1]})
    for index, sample in zip(indices, provider.load_batch(indices, range(len(indices))), strict=True):
        assert sample == provider.get_data(index)


def test_frames_that_samples_of_a_batch_share_are_loaded_once():
    source = Drive(LENGTHS)
    provider = by_time(source, {"number": [-0.2, -0.1, 0]})
    samples = [*provider.load_batch([3, 8, 2, 4, 3], range(5))]
    assert [sample["number"][-1] for sample in samples] == [3, 8, 2, 4, 3]
    assert source.loaded == dict.fromkeys([0, 1, 2, 3, 4, 7, 8], 1)
    samples[0]["number"][:] = -1
    assert samples[4]["number"].tolist() == [1, 2, 3]


def test_several_data_sets_are_searched_by_their_own_times_and_load_by_their_own_way():
    sources = Drive((5,), camera_times_s={1: np.arange(5) * 0.1 + 0.03}), Drive((4,), np.arange(4) * 0.2)
    joined = ConcatDataProvider(sources)
    assert joined.frame_times_s().tolist() == [*sources[0].times_s, *sources[1].times_s]
    assert joined.frame_times_s(("state",)) is None
    own = Windows(joined, {"state": [0]}, unit="s", times_s=np.arange(len(joined)) / 5)
    assert own.frame_times_s().tolist() == (np.arange(len(joined)) / 5).tolist()
    assert own.frame_times_s(("cameras", 1, "gain")) is None
    assert joined.frame_times_s(("cameras", 1, "gain")).tolist() == [
        *sources[0].camera_times_s[1],
        *sources[1].times_s,
    ]
    provider = by_time(joined, {"state": [-0.2, 0], "gain": [0]}, tolerance_s=0.05)
    sample = provider.get_data(7)
    assert sample["state"].tolist() == [[1, -1], [2, -2]]
    assert (sources[0].loaded, sources[1].loaded) == ({}, {1: 1, 2: 1})
    own = by_frame(ConcatDataProvider([Own(), Changed()]), {"index": [-1, 0]})
    assert own.get_data(3)["index"].tolist() == [102, 103]
    assert own.get_data(25)["index"].tolist() == [3, 4]
    assert ConcatDataProvider([Own(), Own()]).frame_times_s() is None


def test_windows_of_windows():
    of_numbers = by_frame(ConcatDataProvider([Drive((5,)), Drive((4,))]), {"number": [-1, 0]})
    sample = by_time(of_numbers, {"state": [0, 0.1]}).get_data(5)  # of the second data set
    assert (sample["number"].tolist(), sample["state"].tolist()) == ([0, 0], [[0, 0], [1, -1]])


# --- only what is needed ------------------------------------------------------------------------------------


def test_numbers_need_no_pictures_and_a_window_of_a_video_one_pass(tmp_path):
    make_video(tmp_path / "a.mp4", 30, "libx264")
    videos = VideoFrameDataProvider(Videos(str(tmp_path)), timestamp_name="time", frame_number_name="frame")
    numbers = by_time(videos, {"time": [-0.4, -0.08, 0], "frame": [-0.04, 0]})
    sample = numbers.get_data(20)
    assert (sample["time"] * 25).round().tolist() == [10, 18, 20]
    assert sample["frame"].tolist() == [19, 20]
    assert videos.statistics.num_delivered == 1  # the picture of the moment
    videos.close()
    pictures = by_time(videos, {"image": [0, -0.12, -0.04]})
    leaf = pictures.sample_data_structure.format.at(("image",))
    assert (leaf.ndim, leaf.content.layout) == (4, "FHWC")
    assert read_numbers(pictures.get_data(20)["image"]) == [20, 17, 19]
    assert videos.statistics.num_delivered == 4
    assert videos.statistics.num_seeks <= 2  # to the key frame 12, once in each of the two decoders
    videos.close()
    before = videos.statistics
    batch = [*pictures.load_batch([6, 5, 4, 3], range(4))]
    assert [read_numbers(sample["image"]) for sample in batch] == [[k, k - 3, k - 1] for k in (6, 5, 4, 3)]
    assert videos.statistics.num_decoded - before.num_decoded <= 7 + 2  # 0 to 6, and what the decoder reads ahead
    assert pictures.get_data(1)["image_is_pad"].tolist() == [False, True, False]


def test_files_are_read_only_for_the_moments_that_need_them(tmp_path, monkeypatch):
    write_frames(tmp_path, {"a": 6, "b": 3})
    frames = FrameDataProvider(tmp_path, recording_name="recording", frame_number_name="frame")
    provider = by_frame(frames, {"image": [-2, 0], "frame": [-1, 0, 1], "recording": [0]})
    read = []
    monkeypatch.setattr(
        "accvlab.dali_pipeline_framework.providers.files.storage.Storage.read_bytes",
        lambda self, name: read.append(name) or np.zeros(3, np.uint8),
    )
    sample = provider.get_data(6)
    assert sample["frame"].tolist() == [0, 0, 1]
    assert sample["recording"][0] == "b"
    assert read == ["b/00000.png"]
    provider.get_data(3)
    assert read[1:] == ["a/00001.png", "a/00003.png"]


class Own(IndexProvider):
    """Loads fields by itself; what derives from it may not."""

    sequence_lengths = (22,)

    def load_fields(self, wanted):
        return {path: 100 + np.array(indices) for path, indices in wanted.items()}


class Changed(Own):
    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = super().get_data(sample_index)
        sample["index"] += 1
        return sample


def test_a_class_that_overrides_get_data_alone_has_whole_samples_loaded():
    windows = {"index": [-1, 0]}
    assert by_frame(Own(), windows).get_data(2)["index"].tolist() == [101, 102]
    assert by_frame(Changed(), windows).get_data(2)["index"].tolist() == [2, 3]
    with pytest.raises(ContractError, match="load_fields must deliver what get_data delivers"):
        check_provider(Own(), num_workers=0)


# --- pictures of files --------------------------------------------------------------------------------------


DECODE = ImageDecoder("image", False)


@each_value(run=["workers", "graph"], decode=[DECODE, DataGroupArrayInPathElementsAppliedStep(DECODE, "cameras")])
def test_steps_on_images_work_on_the_windows_of_all_cameras(run, decode):
    provider = by_time(Drive((6,)), {"image": [-0.1, 0], "number": [0]})
    steps = [
        decode,
        ImageResizer("image", output_hw=(2, 3)),
        ImageMeanStdDevNormalizer("image", [0.0] * 3, [1.0] * 3, output_layout="FCHW"),
    ]
    with make_loader(provider, 3, steps=steps, run=run, ragged="list") as loader:
        last = [*loader][1]
    definition = PipelineDefinition(SamplerInputCallable(provider, SequentialSampler(6, 3)), steps)
    leaf = definition.check_and_get_output_data_structure().format.at(("cameras", 0, "image"))
    assert leaf.content.layout == "FCHW"
    for slot, frame in enumerate((3, 4, 5)):
        for number in (0, 1):
            clip = np.asarray(last["cameras"][number]["image"][slot])
            assert clip.shape == (2, 3, 2, 3)
            assert [np.unique(each).tolist() for each in clip] == [[10.0 * k + number] for k in (frame - 1, frame)]


# --- what is wrong ------------------------------------------------------------------------------------------


MULTIPLES = "The offsets of number must be multiples of the 0.1 s from frame to frame, got "
BEYOND = "would repeat the frame of the moment: each other offset is beyond the ends of every sequence. The "
FIELDS = "Fields: number, state, task, kind, points, cameras[0..1].image, cameras[0..1].gain."
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"windows": {}}, "`windows` must be a mapping of fields to offsets in seconds, ... got {}."),
    ({"windows": {"nmber": [0]}}, f"'nmber', which is no field. Did you mean 'number'? {FIELDS}"),
    (
        {"windows": {"camera.image": [0]}},
        f"'camera.image', which is no field. Did you mean 'cameras.image'? {FIELDS}",
    ),
    (
        {"windows": {"cameras": [0]}},
        "and 'cameras' is a group. Name its fields: cameras[0..1].image, cameras[0..1].gain.",
    ),
    *(
        ({"windows": {"number": offsets}}, f"must be a list of offsets in seconds, finite numbers, got {offsets}.")
        for offsets in ([], 0.1)
    ),
    (
        {"windows": {"number": [-0.1, 0, -0.1]}},
        "`windows['number']` must be offsets that differ, got [-0.1, 0, -0.1]. -0.1 is there twice.",
    ),
    (
        {"windows": {"number": [0.25]}},
        f"{MULTIPLES}0.25 s: the frame is 0.05 s off, and `tolerance_s` is 0.0001. Use 0.2 or 0.3, or a larger",
    ),
    ({"windows": {"number": [-0.25]}, "take": "last"}, f"{MULTIPLES}-0.25 s: ... Use -0.3 or -0.2, or a larger"),
    ({"take": "next"}, "`take` must be one of 'nearest', 'last', got 'next'."),
    ({"tolerance_s": -1}, "`tolerance_s` must be a number of at least 0, got -1."),
    (
        {"windows": {"number": [0.5]}, "unit": "frames"},
        "must be a list of offsets in frames, whole numbers, got [0.5]. Offsets in seconds need unit='s'.",
    ),
    (
        {"unit": "frames", "tolerance_s": 0.1, "take": "last"},
        "`take`, `tolerance_s` goes with unit='s', got unit='frames'. Leave it out.",
    ),
    ({"unit": "ms"}, "`unit` must be 'frames' or 's', got 'ms'. Milliseconds are seconds * 1000: divide them."),
    ({"step": 0}, "`step` must be a whole number of at least 1, got 0."),
    ({"listed": ["points"]}, "`listed` must name fields that have windows, got points."),
    (
        {"windows": {"cameras.image": [-100, 0]}, "edges": "drop"},  # milliseconds
        f"of cameras[0..1].image at -100, 0 s {BEYOND}longest ... lasts 0.4 s. Offsets are in seconds",
    ),
    *(
        (
            {"windows": {"number": [0, offset]}, "unit": "frames"},
            f"of number at 0, {offset:g} frames {BEYOND}longest ... has 5 frame(s). Offsets are in frames",
        )
        for offset in (10**12, -5)
    ),
    ({"times_s": [0.0, 1, 2]}, "`times_s` must be 8 finite numbers, one per sample, got shape (3,)."),
    (
        {"times_s": [0, 1, 2, 1.5, 4, 0, 1, 2]},
        "must ascend in each sequence, but sample 3 at 1.5 s follows sample 2 at 2 s in sequence 0. Sort",
    ),
    ({"times_s": [0, 1, np.nan, 3, 4, 0, 1, 2]}, "`times_s` must be finite, got nan for sample 2."),
    (
        {"windows": {"number": [-5, -0.1, 0]}, "edges": "drop"},
        "No moment has a full window, as edges='drop' needs. The longest ... lasts 0.4 s. The windows: "
        "number at -5, -0.1, 0 s. Use shorter ones, a larger `tolerance_s`, or edges='repeat'.",
    ),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_wrong_settings_are_refused_with_the_rule(arguments, words):
    settings = {"windows": {"number": [0]}, **arguments}
    assert_refused(lambda: by_time(Drive(), **settings), words)


class Rig(Drive):
    missing_frames = ("front 3", "rear 4")


def test_what_a_provider_lacks_is_named(tmp_path):
    make_video(tmp_path / "a.mp4", 5, "libx264")
    short = IndexProvider()
    short.sequence_lengths = [4]
    texts = by_time(Drive(), {"task": [0, 0.1]})
    once = by_time(Drive(), {"number": [0]})
    pictures = Windows(VideoFrameDataProvider(tmp_path / "a.mp4"), {"image": [0]}, edges="drop", unit="s")
    index = {"index": [0]}
    for source, windows, how, words in [
        (
            Rig(),
            {"number": [0, 1, 7]},
            {"unit": "frames", "edges": "drop"},
            "The longest of 2 sequence(s) has 5 frame(s); 2 frames of cameras are missing, and end sequences "
            "unless `missing` is 'bridge' (with another `reference_camera` it may be fewer). The windows",
        ),
        (
            IndexProvider(),
            index,
            {"unit": "frames"},
            "IndexProvider has no attribute `sequence_lengths` (the number of frames of each). Give it one",
        ),
        (
            Own(),
            index,
            {},
            "need the times of the samples, which Own does not know. Give `times_s`, or offsets in frames "
            "(unit='frames'); a provider of your own defines `frame_times_s`.",
        ),
        (short, index, {"unit": "frames"}, "add up to 4 and there are 22 samples"),
        (texts, {("task", 0): [0]}, {"edges": "drop"}, "An array of data fields can have no windows"),
        (
            pictures,
            {"image": [0]},
            {},
            "needs single frames, and image holds several already. Leave it out of `windows`, or have the",
        ),
    ]:
        assert_refused(functools.partial(by_time, source, windows, **how), words)
    assert_refused(lambda: by_time(once, {"number": [0]}), "number_is_pad", DuplicateFieldError)


def test_a_gap_is_named_when_a_sample_needs_it_and_check_finds_all():
    source = Drive((4, 3), [0, 0.1, 0.5, 0.6, 3, 3.1, 3.2])
    provider = by_time(source, {"state": [-0.1, 0]}, tolerance_s=0.02)
    assert provider.get_data(1)["state"].tolist() == [[0, 0], [1, -1]]
    with pytest.raises(FieldValueError) as caught:
        provider.get_data(2)
    assert str(caught.value) == (
        "state: no frame near 0.4 s of sequence 0 (frame 2 - 0.1 s): the nearest, frame 2, is "
        "0.1 s away; `tolerance_s` is 0.02. Raise it, or use edges='drop', which leaves such "
        "moments out."
    )
    assert caught.value.sample_index_in_data_set == 2
    with pytest.raises(ContractError) as broken:
        check_provider(provider, num_workers=0)
    lines = str(broken.value).splitlines()
    assert lines[1] == "    windows: 14 times, 2 padded, 1 without a frame; frames are at most 0 s off"
    assert f"there must be a frame for each time of a window: {caught.value}" in str(broken.value)
    report = check_provider(by_time(Drive(), {"state": [-0.1, 0]}), num_workers=0)
    assert report == "windows: 16 times, 2 padded, 0 without a frame; frames are at most 0 s off"


def test_frames_of_other_shapes_are_named():
    provider = by_time(Drive(), {"points": [-0.1, 0]})
    with pytest.raises(FieldValueError) as caught:
        provider.get_data(2)
    assert str(caught.value) == (
        "points: the frames of a window must have one shape, to be stacked, got (1, 4), (2, "
        "4). Name it in `listed`, to have a field for each frame (points[0], ...)."
    )
    listed = Windows(Drive(), {"points": [-0.1, 0]}, unit="s", listed=["points"])
    assert [points.shape for points in listed.get_data(1)["points"].values()] == [(1, 4), (2, 4)]
    with make_loader(listed, 2, ragged="list") as loader:
        points = next(iter(loader))["points"]
    assert [[each.shape[0] for each in points[frame]] for frame in range(2)] == [[0, 1], [1, 2]]


def test_files_that_are_not_declared_as_such_are_named():
    source = ArrayProvider({"image": (DT.UINT8, [picture(0), picture(1)[:-1]])})
    source.sequence_lengths = [2]
    with pytest.raises(
        FieldValueError, match=r"Declare image files as such: .*content=ImageContent\(is_encoded=True"
    ):
        by_frame(source, {"image": [-1, 0]}).get_data(1)


def test_an_error_of_the_provider_names_the_sample_whose_window_needs_the_frame():
    source = FaultyProvider("missing_field", bad_sample=6)
    source.sequence_lengths = [16]
    for provider, first in ((source, 0), (ConcatDataProvider([source, source]), 16)):
        provider = by_frame(provider, {"index": [-2, 0]})
        for indices, expected in (([8], 8), ([3, 8, 6], 8), ([6, 8], 6)):
            with pytest.raises(ValueError, match="another format") as caught:
                [*provider.load_batch([first + index for index in indices], range(len(indices)))]
            assert caught.value.sample_index_in_data_set == first + expected
    with pytest.raises(SettingError, match="`sample_index` must be in"):
        provider.get_data(32)
