"""Frames of videos, and clips of them: those of DALI's reader, in its order, with its pixels."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nvidia.dali import fn, types
from nvidia.dali.pipeline import pipeline_def
from support.laws import examples
from support.recordings import video_provider
from support.refusals import assert_refused
from support.videos import make_video, read_numbers
from support.windows import video_clips

from accvlab.dali_pipeline_framework.errors import DuplicateFieldError, FileError, SettingError, VideoError
from accvlab.dali_pipeline_framework.video import VideoFrameDataProvider, Videos

LENGTHS = {"a.webm": 10, "b.webm": 7, "irregular.webm": 8, "late.webm": 8, "thirds.webm": 12, "c.avi": 9}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("short")
    make_video(folder / "a.webm", 10)
    make_video(folder / "b.webm", 7, first_number=100)
    make_video(folder / "irregular.webm", 8, first_number=200, times=[0, 10, 50, 55, 90, 200, 240, 260])
    make_video(folder / "late.webm", 8, first_number=300, times=[500, 540, 580, 620, 660, 700, 740, 780])
    make_video(folder / "thirds.webm", 12, first_number=400, times=[round(n * 100 / 3) for n in range(12)])
    make_video(folder / "c.avi", 9, "mjpeg", first_number=500, size=(64, 48))
    return folder


def from_dali(**arguments: Any) -> list[list[np.ndarray]]:
    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline() -> Any:
        outputs = fn.experimental.readers.video(name="reader", **arguments)
        return tuple(outputs) if isinstance(outputs, (list, tuple)) else outputs

    made = pipeline()
    made.build()
    return [[np.array(output[0]) for output in made.run()] for _ in range(made.epoch_size("reader"))]


def from_clips(
    sequence_length: int,
    stride: int = 1,
    step: int | None = None,
    pad_mode: str = "none",
    enable_frame_num: Any = False,
    enable_timestamps: bool = False,
    **videos: Any,
) -> list[list[np.ndarray]]:
    """The outputs of the reader, made of clips; of those that are not complete it has one per video, or none."""
    step, span = step or sequence_length * stride, sequence_length * stride
    provider = video_clips(
        Videos(**videos),
        sequence_length,
        stride=stride,
        step=step,
        edges="drop" if pad_mode == "none" else "repeat",
        frame_number_name="frame_num",
        timestamp_name="timestamps",
    )
    lengths = provider.data_provider.sequence_lengths
    ends = np.cumsum(lengths)
    samples = []
    for number, row in enumerate(provider.rows.tolist()):
        sequence = ends.searchsorted(row, side="right")
        frame = row - (ends - lengths)[sequence]
        is_first_padded = pad_mode != "none" and (frame < step or frame - step + span <= lengths[sequence])
        if frame + span > lengths[sequence] and not is_first_padded:
            continue
        sample = provider.get_data(number)
        outputs = [sample["frames"]]
        outputs += [sample["label"]] if "label" in provider.sample_data_structure.field_names_flat else []
        outputs += [sample["frame_num"][:1]] if enable_frame_num in (True, "scalar") else []
        outputs += [sample["frame_num"]] if enable_frame_num == "sequence" else []
        outputs += [sample["timestamps"]] * enable_timestamps
        samples.append(outputs)
    return samples


def check_equal(file_list: str | None = None, **arguments: Any) -> int:
    """Compare with DALI, which may have the files in a list; returns the number of samples."""
    of_dali = arguments
    if file_list is not None:
        of_dali = {
            name: value for name, value in arguments.items() if name not in ("filenames", "labels", "ranges")
        }
        of_dali |= {"file_list": file_list, "file_list_format": "frames"}
    expected, got = from_dali(**of_dali), from_clips(**arguments, colors="dali")
    assert len(got) == len(expected)
    for sample, (own, outputs) in enumerate(zip(got, expected, strict=True)):
        assert [array.shape for array in own] == [array.shape for array in outputs], sample
        assert [array.dtype for array in own] == [array.dtype for array in outputs], sample
        for our, their in zip(own, outputs, strict=True):
            if our.dtype == np.float64:
                np.testing.assert_allclose(our, their, rtol=0, atol=1e-12)
            else:
                np.testing.assert_array_equal(our, their)
    return len(got)


@st.composite
def windows(draw: st.DrawFn) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "sequence_length": draw(st.integers(1, 7)),
        "stride": draw(st.integers(1, 3)),
        "pad_mode": draw(st.sampled_from(["none", "edge", "repeat"])),
        "enable_frame_num": draw(st.sampled_from(["none", "scalar", "sequence", True, False])),
        "enable_timestamps": draw(st.booleans()),
    }
    if draw(st.booleans()):
        arguments["step"] = draw(st.integers(1, 6))
    return arguments


DALI_ORACLE = settings(
    max_examples=examples(12, 30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@given(arguments=windows(), data=st.data())
@DALI_ORACLE
def test_given_files(folder: Path, arguments: dict[str, Any], data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from([*LENGTHS]), min_size=1, max_size=4))
    # Otherwise DALI fails on having no sequence.
    names.append("thirds.webm" if arguments["sequence_length"] * arguments["stride"] <= 12 else "a.webm")
    if arguments["sequence_length"] * arguments["stride"] > 12 and arguments["pad_mode"] == "none":
        arguments["pad_mode"] = "edge"
    arguments["filenames"] = [str(folder / name) for name in names]
    if data.draw(st.booleans()):
        arguments["labels"] = data.draw(st.lists(st.integers(-9, 9), min_size=len(names), max_size=len(names)))
    assert check_equal(**arguments)


@given(arguments=windows(), data=st.data())
@DALI_ORACLE
def test_ranges(folder: Path, tmp_path: Path, arguments: dict[str, Any], data: st.DataObject) -> None:
    arguments["pad_mode"] = "edge" if arguments["pad_mode"] == "none" else arguments["pad_mode"]
    names, labels, ranges = [str(folder / "a.webm")], [0], [(0, 10)]  # whole: DALI fails on having no sequence
    for name in data.draw(st.lists(st.sampled_from([*LENGTHS]), min_size=1, max_size=4)):
        start, end = 0, LENGTHS[name]
        if data.draw(st.booleans()):
            start = data.draw(st.integers(-6, 5).filter(lambda start: start != -1))
            end = -1 if start < 0 else start + data.draw(st.integers(1, 8))
        names.append(str(folder / name))
        labels.append(data.draw(st.integers(0, 9)))
        ranges.append((start, end))
    lines = [
        f"{name} {label} {start} {end}" for name, label, (start, end) in zip(names, labels, ranges, strict=True)
    ]
    (tmp_path / "list.txt").write_text("\n".join(lines) + "\n")
    arguments |= {"filenames": names, "labels": labels, "ranges": ranges}
    assert check_equal(file_list=str(tmp_path / "list.txt"), **arguments)


def test_label_folders(folder: Path, tmp_path: Path) -> None:
    for number, name in enumerate(["B/2.webm", "B/10.webm", "a/x.WEBM", "a/inner/z.webm", "c/a.avi", "top.webm"]):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(
            folder / ("c.avi" if name.endswith("avi") else ["a.webm", "b.webm"][number % 2]), tmp_path / name
        )
    assert check_equal(file_root=str(tmp_path), sequence_length=3, enable_frame_num=True) == 3 + 2 + 3 + 3
    (tmp_path / "a" / "notes.txt").write_text("not a video")
    provider = video_clips(Videos(file_root=tmp_path), 3, path_name="path")
    paths = [provider.get_data(n)["path"] for n in range(provider.get_number_of_samples())]
    assert list(dict.fromkeys(Path(path).name for path in paths)) == ["10.webm", "2.webm", "x.WEBM", "a.avi"]


def test_fields(folder: Path) -> None:
    names = {"image": "picture", "label": "class", "frame_number": "n", "timestamp": "t", "path": "path"}
    names["recording_number"] = "video"
    settings: Any = {f"{field}_name": name for field, name in names.items()}
    provider = VideoFrameDataProvider(
        Videos([folder / "b.webm", folder / "c.avi"], labels=map(int, "56")), **settings
    )
    assert provider.sample_data_structure.contained_top_level_field_names == (*names.values(),)
    sample = provider.get_data(10)
    assert sample["picture"].shape == (48, 64, 3)
    assert (sample["class"].tolist(), sample["n"], sample["video"]) == ([6], 3, 1)
    assert sample["t"] == pytest.approx(0.12)
    assert sample["path"] == str(folder / "c.avi")
    assert provider.sequence_lengths.tolist() == [7, 9]
    assert provider.video_index(1).codec_name == "mjpeg"


def test_folders_and_patterns(folder: Path, tmp_path: Path) -> None:
    for name in ("10.webm", "9.WEBM", "[1].webm", "sub/x.webm"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(folder / "b.webm", tmp_path / name)
    for name in ("notes.txt", "._a.webm", ".DS_Store", "Thumbs.db"):  # no videos, and what other systems leave
        (tmp_path / name).touch()
    for source, names in (
        (tmp_path, ["10.webm", "9.WEBM", "[1].webm"]),
        (tmp_path / "*.webm", ["10.webm", "[1].webm"]),
        (tmp_path / "[1].webm", ["[1].webm"]),  # is there under this very name
        ([tmp_path / "sub", tmp_path / "9*"], ["sub/x.webm", "9.WEBM"]),
        (tmp_path / "**" / "*.webm", ["10.webm", "[1].webm", "sub/x.webm"]),
    ):
        provider = video_clips(source, 7, path_name="path")
        paths = [provider.get_data(n)["path"] for n in range(provider.get_number_of_samples())]
        assert paths == [str(tmp_path / name) for name in names]
    rig = Videos(cameras={"front": tmp_path / "[19]*", "left": [folder / "a.webm"] * 2}, labels=[4, 5])
    assert VideoFrameDataProvider(rig).get_data(7)["label"].tolist() == [5]


def test_ends_of_ranges_are_not_part_of_them(folder: Path) -> None:
    samples = from_clips(1, filenames=[folder / "a.webm"] * 4, ranges=[(2, 5), (7, 9), (8, None), (-2, 99)])
    assert [read_numbers(sample[0])[0] for sample in samples] == [2, 3, 4, 7, 8, 8, 9, 8, 9]


def test_names(folder: Path, tmp_path: Path) -> None:
    names = ["fährt 走る.webm", "with space.webm", f"{'long' * 50}.webm", "%d:x.webm", "http:a.webm", "-.webm"]
    names += [os.fsdecode(b"\xff\xfe.webm")]  # no UTF-8
    paths = [shutil.copy(folder / "b.webm", tmp_path / name) for name in names]
    for _ in range(2):  # with indices that are made, and that are there
        videos = Videos(paths, labels=range(len(names)), index_cache=tmp_path / "i")
        provider = video_clips(videos, 7, path_name="path")
        assert len([*(tmp_path / "i").glob("[!.]*")]) == len(names)
        for number, name in enumerate([*names[:-1], r"\xff\xfe.webm"]):
            sample = provider.get_data(number)
            assert (sample["path"], sample["label"].tolist()) == (f"{tmp_path}/{name}", [number])
            assert read_numbers(sample["frames"]) == [*range(100, 107)]


def test_whole_batches_in_threads(folder: Path) -> None:
    files = [folder / name for name in LENGTHS]
    alone = video_clips(files, 2)
    together = video_clips(Videos(files, num_batch_threads=3), 2)
    assert (alone.num_batch_threads, together.num_batch_threads) == (1, 3)
    order = [3, 0, 3, 11, 7, 1, 14]
    for sample, loaded in zip(order, together.load_batch(order, range(7)), strict=True):
        np.testing.assert_array_equal(loaded["frames"], alone.get_data(sample)["frames"])


def test_samples_are_described_by_file_and_frames(folder: Path) -> None:
    files = [folder / name for name in LENGTHS]
    assert video_clips(files, 3, stride=2).describe_sample(0) == f"{files[0]}, frame 0"
    frames = VideoFrameDataProvider(files)
    assert frames.describe_sample(11) == f"{files[1]}, frame 1"
    assert_refused(lambda: frames.describe_sample(-1), "got -1", IndexError)


class TestRefused:
    @pytest.mark.parametrize(
        ("arguments", "rule"),
        [
            ({"image_type": types.DALIImageType.YCbCr}, "`image_type` must be RGB, BGR or GRAY"),
            ({"stream": 1}, "`stream` must be the number of a video stream, 0 to 0"),
            ({"labels": [1, 2]}, r"as many `labels` as `filenames`, got 2 label\(s\) for 1"),
            ({"labels": [1.5]}, "`labels` must be a whole number .* got 1.5. Labels are whole numbers of 32 bits"),
            ({"labels": [2**31]}, "`labels` must be at most 2147483647, got 2147483648"),
            ({"file_root": "x"}, "exactly one way.* Got `filenames` and `file_root`"),
            ({"filenames": None}, "exactly one way.* Got none of them"),
            ({"filenames": []}, "`filenames` must name at least one video"),
            ({"filenames": [b"x"]}, "`filenames` must be the path of a file or folder .*, got b'x'"),
            ({"filenames": 3}, "`filenames` must be paths of videos, got 3"),
            ({"ranges": [(1.5, 2)]}, "`ranges` must be a whole number, got 1.5"),
            ({"ranges": [(1,)]}, r"`ranges` must be pairs of numbers of frames, .* got \[\(1,\)\]"),
            ({"ranges": [(0, 2), (0, 3)]}, "as many `ranges` as videos, got 2 for 1"),
            ({"ranges": [(5, 2)]}, r"at least one frame, got \(5, 2\) of '.*a.webm', which has 10 frames"),
            ({"ranges": [(3, 3)]}, "at least one frame"),
            (
                {"filenames": None, "file_root": "x", "ranges": [(0, 1)]},
                "`ranges` go with `filenames`, got `file_root`",
            ),
            ({"filenames": None, "file_root": "x", "labels": [1]}, "with `file_root`, folders are labels"),
            ({"colors": "bt709"}, "`colors` must be one of 'stream', 'bt601', 'dali', got 'bt709'"),
            ({"storage_options": "key"}, "`storage_options` must be a dict, got str"),
            ({"num_decoder_threads": 0}, "`num_decoder_threads` must be"),
            ({"num_batch_threads": 0}, "`num_batch_threads` must be"),
            ({"max_open_decoders": 0}, "`max_open_decoders` must be"),
        ],
    )
    def test_setting(self, folder: Path, arguments: dict[str, Any], rule: str) -> None:
        with pytest.raises(SettingError, match=rule):
            video_provider(**{"filenames": folder / "a.webm", "sequence_length": 2, **arguments})

    def test_folders_and_patterns(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").touch()
        for source, words, error in (
            (tmp_path, "no video in the folder '...': no name in it ends as one of a video", SettingError),
            (tmp_path / "*.mp4", "No file matches the pattern '.../*.mp4'.", FileNotFoundError),
            (Videos(file_root=tmp_path / "none"), "none", FileError),
            (Videos(file_root=tmp_path), "", SettingError),
        ):
            assert_refused(lambda source=source: video_clips(source, 1), words, error)

    def test_all_bad_files_are_named(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "text.mp4").write_text("no video")
        files = [folder / "a.webm", tmp_path / "text.mp4", tmp_path / "none.mp4"]
        with pytest.raises(VideoError, match=r"(?s)2 of 3 videos cannot be used:.*text.mp4.*none.mp4"):
            video_clips(files, 1)
        with pytest.raises(FileNotFoundError, match="2 of 2 videos cannot be used"):
            video_clips([tmp_path / "none.mp4", tmp_path / "no.mp4"], 1)
        with pytest.raises(FileNotFoundError, match=r"none\.mp4"):
            video_clips([folder / "a.webm", tmp_path / "none.mp4"], 1)

    def test_samples(self, folder: Path, tmp_path: Path) -> None:
        provider = video_clips(shutil.copy(folder / "a.webm", tmp_path / "a.webm"), 2)
        for sample in (-1, 5):
            with pytest.raises(IndexError, match=rf"`sample_index` must be in \[0, 4\], got {sample}"):
                provider.get_data(sample)
        (tmp_path / "a.webm").unlink()
        assert_refused(lambda: provider.get_data(0), "a.webm", FileNotFoundError)

    def test_names(self, folder: Path) -> None:
        with pytest.raises(DuplicateFieldError):
            VideoFrameDataProvider(folder / "a.webm", timestamp_name="image")
