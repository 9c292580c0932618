"""Windows of files of frames, decoded to clips: those of DALI's reader of sequences."""

from __future__ import annotations

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
from support.frame_trees import pixels_of, sequences, write_frame, write_frames
from support.gpu_definitions import checked_by_dali, counts_of, pretend_gpus
from support.laws import each_value, examples
from support.loaders import make_loader
from support.windows import frame_clips

from accvlab.dali_pipeline_framework.errors import FormatError, GraphError, SettingError, SourceError
from accvlab.dali_pipeline_framework.inputs import ShuffledShardedInputCallable
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition
from accvlab.dali_pipeline_framework.processing_steps import GridMasker, ImageDecoder
from accvlab.dali_pipeline_framework.providers import FrameFolders
from accvlab.dali_pipeline_framework.sampling import WeightedSampler

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


# --- samplers and rigs ------------------------------------------------------------------------------------


DECODE = ImageDecoder("frames", False)
PLACES = {"recording_name": "recording", "frame_number_name": "first"}


def assert_decoded(found, height=4, width=5):
    """Compare the frames of a sample, or of a camera of it, with the files that their paths name."""
    expected = [pixels_of(path, height, width) for path in found["paths"].values()]
    assert np.array_equal(found["frames"], np.stack(expected))


@settings(max_examples=examples(3, 12), deadline=None)
@given(
    st.integers(1, 5), st.integers(1, 3), st.integers(1, 4), st.integers(1, 9), st.integers(0, 3), st.booleans()
)
def test_streams_of_different_sizes_in_any_order(length, stride, step, batch_size, seed, repeats):
    sizes = {"a": (4, 5), "b": (7, 3), "c": (2, 9)}
    with tempfile.TemporaryDirectory() as folder:
        for (stream, size), number in zip(sizes.items(), (9, 6, 14), strict=True):
            write_frames(Path(folder), {stream: number}, *size)
        edges = "repeat" if repeats and length > 1 else "drop"
        provider = frame_clips(folder, length, stride=stride, step=step, edges=edges, **PLACES)
        # By weight, so that windows occur several times in a batch.
        sampler = WeightedSampler([1.0] * provider.get_number_of_samples(), num_per_epoch=20, seed=seed)
        samples = sequences(provider, batch_size, sampler=sampler)
        assert len(samples) == 20
        for sample in samples:
            assert_decoded(sample, *sizes[sample["recording"]])


@each_value(run=["workers", "graph"], num_workers=[1, 0])
def test_rigs(tmp_path, run, num_workers):
    write_frames(tmp_path, {"s/F": [f"{number}.png" for number in (1, 2, 3, 4, 6, 7, 8)]})
    write_frames(tmp_path, {"s/R": [f"{number}.png" for number in range(1, 9)]}, 3, 8)
    provider = frame_clips(FrameFolders(tmp_path, cameras={"front": "F", "rear": "R"}), 2, **PLACES)
    assert [(each.camera, each.time) for each in provider.missing_frames] == [("front", "5")]
    samples = sequences(provider, 3, run=run, num_workers=num_workers)
    assert [int(sample["first"]) for sample in samples] == [0, 1, 2, 5, 6]  # none over the gap
    for sample in samples:
        for camera, size in (("front", (4, 5)), ("rear", (3, 8))):
            assert_decoded(sample[camera], *size)
            names = [Path(path).stem for path in sample[camera]["paths"].values()]
            assert names == [str(sample["first"] + 1), str(sample["first"] + 2)]


# --- operators -------------------------------------------------------------------------------------------


def rig_of_frames(root, length=4):
    cameras = ["0", "1", "2"]
    for camera in cameras:
        write_frames(root, {f"s/{camera}": length + 1})
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
    rig = rig_of_frames(tmp_path / "rig", length=30)
    assert counts_of(defined(rig, [DECODE])).num_decoders == 2  # 63 and 27 of 90 frames
    write_frames(tmp_path / "long", {"a": 66})
    for length in (64, 65):  # up to 64 images, DALI puts on a canvas
        (sample, *_) = sequences(frame_clips(tmp_path / "long", length))
        assert_decoded(sample)


@pytest.mark.gpu
def test_with_a_gpu_as_without(tmp_path):
    steps = [ImageDecoder("frames", True)]
    for sample in sequences(rig_of_frames(tmp_path), steps=steps, device_id=0):
        for camera in "012":  # PNG files, which have the same pixels
            assert_decoded(sample[camera])


# --- bad input ----------------------------------------------------------------------------------------------


def loaded(provider, run="graph"):
    with make_loader(provider, 5, steps=[DECODE], last_batch="drop", run=run) as loader:
        return [*loader]


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "turned"])
def test_frames_of_different_sizes(tmp_path, kind):
    write_frames(tmp_path, {"a": 6})
    size, settings = (4, 6), {"format": kind}
    if kind == "turned":  # by the decoder
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = 6
        size, settings = (4, 5), {"format": "JPEG", "exif": exif}
    Image.fromarray(np.zeros((*size, 3), np.uint8)).save(tmp_path / "a/00003.png", **settings)
    provider = frame_clips(tmp_path, 2)
    with pytest.raises(
        GraphError, match=r"sample 2 \(.*00002.png.*\), field frames: the frames of a window"
    ) as caught:
        loaded(provider)
    assert caught.value.sample_indices == (2, 3)
    message = r"frames: the frames of a window must have the same size, and these have not: \(4, 5, 3\), \("
    with pytest.raises(SourceError, match=message) as caught:
        loaded(provider, "workers")
    assert caught.value.sample_index == 2


def test_unreadable_frames_are_named(tmp_path):
    write_frames(tmp_path, {"a": 7})
    bad, provider = tmp_path / "a" / "00004.png", frame_clips(tmp_path, 3)
    bad.write_bytes(b"no image")
    with pytest.raises(GraphError) as caught:
        loaded(provider)
    assert caught.value.sample_indices == (2, 3, 4)
    bad.write_bytes(b"")
    with pytest.raises(SourceError, match=r"00004.png' is empty"):
        loaded(provider)
    bad.unlink()
    with pytest.raises(SourceError, match=r"00004.png' cannot be read: there is none") as caught:
        loaded(provider)
    assert caught.value.sample_index == 2


# --- the format ---------------------------------------------------------------------------------------------


def test_the_field_stands_where_the_group_stood(tmp_path):
    write_frame(tmp_path / "s" / "F" / "1.png")
    provider = frame_clips(FrameFolders(tmp_path, cameras=["F"]), 1, **PLACES)
    output = DECODE.check_input_data_format_and_set_output_data_format(provider.sample_data_structure)
    assert output.field_names_flat == ("F.frames", "F.paths.[0]", "recording", "first")
    assert output.get_type_of_item_in_path(("F", "frames")) == DT.UINT8


def test_groups_are_refused_by_steps_on_images(tmp_path):
    write_frame(tmp_path / "s" / "1.png")
    blueprint = frame_clips(tmp_path, 1).sample_data_structure
    with pytest.raises(FormatError, match=r"frames: must be a data field .* is a group; .* by ImageDecoder"):
        GridMasker("frames").check_input_data_format_and_set_output_data_format(blueprint)

    blueprint = group_of(frames=group_of(encoded=DT.UINT8))  # no frames of a window
    with pytest.raises(FormatError, match=r"frames: must be a data field with an encoded image, is a group"):
        DECODE.check_input_data_format_and_set_output_data_format(blueprint)
