"""Windows of files of frames, decoded to clips: those of DALI's reader of sequences."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvidia.dali import fn, pipeline_def, types
from PIL import ExifTags, Image
from support.array_samples import group_of
from support.frame_trees import pixels_of, samples_of, sequences, write_frame, write_frames
from support.gpu_definitions import checked_by_dali, counts_of, pretend_gpus
from support.laws import each_value, examples
from support.loaders import make_loader
from support.windows import frame_clips

from accvlab.dali_pipeline_framework.errors import FormatError, GraphError, SettingError, SourceError
from accvlab.dali_pipeline_framework.inputs import (
    SamplerInputCallable,
    ShuffledShardedInputCallable,
)
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition, SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import (
    DataGroupArrayInPathElementsAppliedStep,
    GridMasker,
    ImageDecoder,
    PipelineStepBase,
)
from accvlab.dali_pipeline_framework.providers import (
    ConcatDataProvider,
    DataProvider,
    FrameFolders,
)
from accvlab.dali_pipeline_framework.sampling import StreamingSequenceSampler, WeightedSampler

DT = types.DALIDataType


def by_dali(root, sequence_length, **arguments):
    """All sequences of DALI's reader; none where it refuses since there are none."""

    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def reader():
        return fn.readers.sequence(
            file_root=str(root), sequence_length=sequence_length, name="reader", **arguments
        )

    with warnings.catch_warnings(record=True):  # DALI shows that the reader is deprecated whatever the filters
        pipeline = reader()
    try:
        pipeline.build()
    except RuntimeError as error:
        if "number of input samples: 0" not in str(error):
            raise
        return []
    size = pipeline.epoch_size("reader")
    return [np.array(pipeline.run()[0][0]) for _ in range(size)]


names = st.one_of(
    st.from_regex(r"[0-9]{1,3}\.png", fullmatch=True),
    st.from_regex(r"[aB_. -]{1,2}[0-9]\.(png|PNG)", fullmatch=True),
).filter(lambda name: not name.startswith("."))
folders = st.from_regex(r"[aB0-9_-]{1,3}", fullmatch=True)
trees = st.dictionaries(folders, st.sets(names, max_size=9), min_size=1, max_size=4).filter(
    lambda tree: any(tree.values())
)


@settings(max_examples=examples(7, 40), deadline=None)
@given(trees, st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(1, 5))
def test_sequences_are_those_of_dali(tree, length, step, stride, batch_size):
    with tempfile.TemporaryDirectory() as folder:
        root = write_frames(Path(folder), tree)
        expected = by_dali(root, length, step=step, stride=stride)
        if not expected:
            with pytest.raises(SettingError, match=r"would repeat the frame|No moment has a full window"):
                frame_clips(root, length, step=step, stride=stride)
            return
        provider = frame_clips(root, length, step=step, stride=stride)
        assert provider.get_number_of_samples() == len(expected)
        found = sequences(provider, batch_size)
    assert len(found) == len(expected)
    for sample, sequence in zip(found, expected, strict=True):
        assert np.array_equal(sample["frames"], sequence)


def test_the_output_has_a_layout(tmp_path):
    provider = frame_clips(write_frames(tmp_path, {"a": 5}), 3)
    data_input = ShuffledShardedInputCallable(provider, 3, shuffle=False)
    pipeline = PipelineDefinition(data_input, [DECODE]).get_dali_pipeline(
        batch_size=3, num_threads=1, py_num_workers=0
    )
    output, *_ = pipeline.run()
    assert output.layout() == "FHWC"
    assert output.shape() == [(3, 4, 5, 3)] * 3


# --- samplers, wrappers and rigs --------------------------------------------------------------------------


DECODE = ImageDecoder("frames", False)
PLACES = {"recording_name": "recording", "frame_number_name": "first"}


def check(samples, length, sizes=None):
    for sample in samples:
        paths = [sample["paths"][position] for position in range(length)]
        size = (sizes or {}).get(sample["recording"], (4, 5))
        assert np.array_equal(sample["frames"], np.stack([pixels_of(path, *size) for path in paths]))
    return samples


def mixed_tree(root):
    sizes = {"a": (4, 5), "b": (7, 3), "c": (2, 9)}
    for (stream, size), number in zip(sizes.items(), (9, 6, 14), strict=True):
        write_frames(root, {stream: number}, *size)
    return sizes


@settings(max_examples=examples(3, 12), deadline=None)
@given(
    st.integers(1, 5), st.integers(1, 3), st.integers(1, 4), st.integers(1, 9), st.integers(0, 3), st.booleans()
)
def test_streams_of_different_sizes_in_any_order(length, stride, step, batch_size, seed, repeats):
    with tempfile.TemporaryDirectory() as folder:
        sizes = mixed_tree(Path(folder))
        edges = "repeat" if repeats and length > 1 else "drop"
        provider = frame_clips(folder, length, stride=stride, step=step, edges=edges, **PLACES)
        # By weight, so that windows occur several times in a batch.
        sampler = WeightedSampler([1.0] * provider.get_number_of_samples(), num_per_epoch=20, seed=seed)
        how = {"steps": [DECODE], "last_batch": "partial", "ragged": "list"}
        with make_loader(provider, batch_size, sampler=sampler, **how) as loader:
            samples = [sample for batch in loader for sample in samples_of(batch)]
        assert len(check(samples, length, sizes)) == 20


def test_samples_of_get_data_are_good_in_any_batch(tmp_path):
    sizes = mixed_tree(tmp_path)
    parts = [frame_clips(tmp_path, 3, **PLACES) for _ in range(2)]
    whole = ConcatDataProvider(parts)
    samples = check(sequences(whole, 5, shuffle=True, seed=2), 3, sizes)
    assert len(samples) == 2 * parts[0].get_number_of_samples()


def test_conditionals_and_one_sample_per_batch(tmp_path):
    write_frames(tmp_path, {"a": 6})
    provider = frame_clips(tmp_path, 3, edges="repeat", **PLACES)
    assert provider.get_number_of_samples() == 6
    for arguments in ({"enable_conditionals": True}, {}):
        for batch_size in (1, 4):
            data_input = ShuffledShardedInputCallable(provider, batch_size, shuffle=False)
            pipeline = PipelineDefinition(data_input, [DECODE]).get_dali_pipeline(
                batch_size=batch_size, num_threads=1, py_num_workers=0, **arguments
            )
            first = np.array(pipeline.run()[0][0])
            assert np.array_equal(
                first, np.stack([pixels_of(tmp_path / "a" / f"{number:05}.png") for number in range(3)])
            )


def test_long_sequences(tmp_path):
    write_frames(tmp_path, {"a": 70})
    for length in (64, 65):
        provider = frame_clips(tmp_path, length, **PLACES)
        assert len(check(sequences(provider), length)) == 70 - length + 1


def test_rigs(tmp_path):
    write_frames(tmp_path, {"s/F": [f"{number}.png" for number in (1, 2, 3, 4, 6, 7, 8)]})
    write_frames(tmp_path, {"s/R": [f"{number}.png" for number in range(1, 9)]}, 3, 8)
    cameras = {"front": "F", "rear": "R"}
    provider = frame_clips(FrameFolders(tmp_path, cameras=cameras), 2, **PLACES)
    assert [(each.camera, each.time) for each in provider.missing_frames] == [("front", "5")]
    samples = sequences(provider, 3)
    assert [int(sample["first"]) for sample in samples] == [0, 1, 2, 5, 6]  # none over the gap
    for sample in samples:
        for camera, size in (("front", (4, 5)), ("rear", (3, 8))):
            paths = [sample[camera]["paths"][position] for position in range(2)]
            expected = np.stack([pixels_of(path, *size) for path in paths])
            assert np.array_equal(sample[camera]["frames"], expected)
            assert [Path(path).stem for path in paths] == [str(sample["first"] + 1), str(sample["first"] + 2)]


# --- operators -------------------------------------------------------------------------------------------


def rig_of_frames(root, num_cameras=3, length=4):
    cameras = [f"{number}" for number in range(num_cameras)]
    for camera in cameras:
        write_frames(root, {f"s/{camera}": length + 3})
    return frame_clips(FrameFolders(root, cameras=cameras), length, **PLACES)


def defined(provider, steps, device_id=None):
    data_input = ShuffledShardedInputCallable(provider, 2, shuffle=False)
    definition = PipelineDefinition(data_input, steps)
    return definition.get_dali_pipeline(num_threads=1, py_num_workers=0, device_id=device_id)


def test_one_operator_decodes_the_frames_of_all_cameras(tmp_path, monkeypatch):
    provider = rig_of_frames(tmp_path)
    on_the_cpu = counts_of(defined(provider, [ImageDecoder("frames", True)]))
    assert on_the_cpu.num_decoders == 1
    pretend_gpus(monkeypatch)
    counts = checked_by_dali(defined(provider, [ImageDecoder("frames", True)], device_id=0))
    assert counts.num_decoders == 1
    assert counts.names["mixed", "decoders__Image"] == 1
    assert (counts.computing_on_cpu, counts.on("gpu", "mixed")) == (6, 8)
    # Cut by frame, joined for all cameras at once, and then by camera: 3 + 2 times, not 4 * 3 - 1 times.
    assert counts.names["gpu", "_conditional__Split"] == 3 + 2
    assert counts.names["gpu", "Stack"] == 1


def test_more_frames_than_entries_of_the_batch_are_decoded_in_parts(tmp_path):
    provider = rig_of_frames(tmp_path, num_cameras=3, length=30)
    pipeline = defined(provider, [DECODE])
    assert counts_of(pipeline).num_decoders == 2  # 63 and 27 of 90 frames
    batch = sequences(provider)[1]
    for camera in range(3):
        paths = [batch[f"{camera}"]["paths"][position] for position in range(30)]
        assert np.array_equal(batch[f"{camera}"]["frames"], np.stack([pixels_of(path) for path in paths]))


class FirstCameraCopied(PipelineStepBase):
    """Changes the frames of one camera, but for their values."""

    def _process(self, data):
        encoded = data["0"]["frames"]["encoded"]
        for position in range(4):
            encoded[position] = fn.copy(encoded[position])
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty):
        return data_empty


def test_frames_that_a_step_has_changed_are_decoded_one_by_one(tmp_path):
    provider = rig_of_frames(tmp_path)
    steps = [FirstCameraCopied(), DECODE]
    assert counts_of(defined(provider, steps)).num_decoders == 4 + 1
    for sample in sequences(provider, steps=steps):
        for camera in range(3):
            paths = [sample[f"{camera}"]["paths"][position] for position in range(4)]
            assert np.array_equal(sample[f"{camera}"]["frames"], np.stack([pixels_of(path) for path in paths]))


class InArray(DataProvider):
    """The cameras of a rig as an array."""

    def __init__(self, rig):
        self._rig = rig

    @property
    def sample_data_structure(self):
        sample = SampleDataGroup()
        sample.add_data_group_field_array("cameras", self._rig.sample_data_structure["0"], 3)
        return sample

    def get_number_of_samples(self):
        return self._rig.get_number_of_samples()

    def get_data(self, sample_index):
        loaded, sample = self._rig.get_data(sample_index), self.sample_data_structure
        for camera in range(3):
            sample["cameras"][camera] = loaded[f"{camera}"]
        return sample


def test_cameras_in_an_array_in_a_wrapper(tmp_path):
    provider = InArray(rig_of_frames(tmp_path))
    steps = [DataGroupArrayInPathElementsAppliedStep(DECODE, "cameras")]
    # One for each frame, of all cameras.
    assert counts_of(defined(provider, steps)).num_decoders == 4
    plain = [DECODE]
    assert counts_of(defined(provider, plain)).num_decoders == 1
    for sample, other in zip(sequences(provider, steps=steps), sequences(provider, steps=plain), strict=True):
        for camera in range(3):
            of_camera = sample["cameras"][camera]
            paths = [of_camera["paths"][position] for position in range(4)]
            assert np.array_equal(of_camera["frames"], np.stack([pixels_of(path) for path in paths]))
            assert np.array_equal(other["cameras"][camera]["frames"], of_camera["frames"])


@pytest.mark.gpu
def test_with_a_gpu_as_without(tmp_path):
    provider = rig_of_frames(tmp_path)
    steps = [ImageDecoder("frames", True)]
    found, expected = (sequences(provider, steps=steps, device_id=device_id) for device_id in (0, None))
    for sample, other in zip(found, expected, strict=True):
        for camera in range(3):  # PNG files, which have the same pixels
            assert np.array_equal(sample[f"{camera}"]["frames"], other[f"{camera}"]["frames"])


# --- with samplers and loaders -----------------------------------------------------------------------------


def test_sequences_of_streams_are_played_in_order(tmp_path):
    write_frames(tmp_path, {"a": 9, "b": 5, "c": 8})
    provider = frame_clips(tmp_path, 3, step=2, **PLACES)
    assert provider.sequence_lengths.tolist() == [4, 2, 3]
    sampler = StreamingSequenceSampler(provider.sequence_lengths, seed=1)
    data_input = SamplerInputCallable(provider, sampler, context_name="place")
    with make_loader(data_input, 2, steps=[DECODE]) as loader:
        samples = check([sample for batch in loader for sample in samples_of(batch)], 3)
    for stream, number in zip("abc", (4, 2, 3), strict=True):
        firsts = [
            int(sample["first"])
            for sample in samples
            if sample["recording"] == stream and not sample["place"]["is_padding"]
        ]
        assert firsts == [0, 2, 4, 6][:number]


# --- bad input ----------------------------------------------------------------------------------------------


def loaded(provider, batch_size=4):
    with make_loader(provider, batch_size, steps=[DECODE], last_batch="drop") as loader:
        return [*loader]


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_frames_of_different_sizes(tmp_path, kind):
    write_frames(tmp_path, {"a": 6})
    for number in range(6):
        image = Image.fromarray(np.zeros((4, 5 + (number == 3), 3), np.uint8))
        image.save(tmp_path / "a" / f"{number:05}.png", kind)
    provider = frame_clips(tmp_path, 2)
    with pytest.raises(
        GraphError, match=r"sample 2 \(.*00002.png.*\), field frames: the frames of a window"
    ) as caught:
        loaded(provider, 5)
    assert caught.value.sample_indices == (2, 3)


@each_value(orientation=[5, 6, 7, 8])
def test_frames_of_different_sizes_that_only_the_decoder_knows(tmp_path, orientation):
    write_frames(tmp_path, {"a": 6})
    for number in range(6):
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = orientation if number == 3 else 1  # the decoder turns it by 90 degrees
        image = Image.fromarray(np.zeros((4, 5, 3), np.uint8))
        image.save(tmp_path / "a" / f"{number:05}.png", "JPEG", exif=exif)
    provider = frame_clips(tmp_path, 2)
    with pytest.raises(GraphError, match=r"sample 2 \(.*\), field frames") as caught:
        loaded(provider, 5)
    assert caught.value.sample_indices == (2, 3)


def test_unreadable_frames_are_named(tmp_path):
    write_frames(tmp_path, {"a": 9})
    (tmp_path / "a" / "00004.png").write_bytes(b"no image")
    provider = frame_clips(tmp_path, 3)
    with pytest.raises(GraphError) as caught:
        loaded(provider, 7)
    assert caught.value.sample_indices == (2, 3, 4)
    (tmp_path / "a" / "00004.png").write_bytes(b"")
    with pytest.raises(SourceError, match=r"00004.png' is empty"):
        loaded(provider, 7)
    os.unlink(tmp_path / "a" / "00004.png")
    with pytest.raises(SourceError, match=r"00004.png' cannot be read: there is none") as caught:
        loaded(provider, 7)
    assert caught.value.sample_index == 2


def test_sample_indices(tmp_path):
    provider = frame_clips(write_frames(tmp_path, {"s": 4}), 2)
    for index in (-1, 3):
        with pytest.raises(SettingError, match=rf"must be in \[0, 2\], got {index}"):
            provider.get_data(index)


# --- the format ---------------------------------------------------------------------------------------------


def test_the_field_stands_where_the_group_stood(tmp_path):
    write_frame(tmp_path / "s" / "F" / "1.png")
    provider = frame_clips(FrameFolders(tmp_path, cameras=["F"]), 1, **PLACES)
    output = DECODE.check_input_data_format_and_set_output_data_format(provider.sample_data_structure)
    assert output.field_names_flat == ("F.frames", "F.paths.[0]", "recording", "first")
    assert output.get_type_of_item_in_path(("F", "frames")) == DT.UINT8


def test_steps_on_images_name_the_decoder_of_sequences(tmp_path):
    write_frame(tmp_path / "s" / "1.png")
    blueprint = frame_clips(tmp_path, 1).sample_data_structure
    with pytest.raises(FormatError, match=r"frames: must be a data field .* is a group; .* by ImageDecoder"):
        GridMasker("frames").check_input_data_format_and_set_output_data_format(blueprint)


def test_a_group_that_is_no_sequence_of_frames_is_just_a_group():
    blueprint = group_of(frames=group_of(encoded=DT.UINT8))
    with pytest.raises(FormatError) as caught:
        ImageDecoder("frames", False).check_input_data_format_and_set_output_data_format(blueprint)
    assert "frames: must be a data field with an encoded image, is a group" in str(caught.value)
