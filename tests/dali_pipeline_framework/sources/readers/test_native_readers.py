"""What native readers deliver: what DALI's operators deliver, with names, and all arguments reach them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import nvidia.dali.tfrecord as tfrec
import pytest
from nvidia.dali import types
from nvidia.dali.pipeline import Pipeline
from PIL import Image
from support.loaders import make_loader
from support.reader_data import (
    array_files,
    coco_data,
    frame,
    frame_folders,
    number_of,
    numbered_files,
    record_file,
    tar_archive,
    video,
)

from accvlab.dali_pipeline_framework.errors import DeviceError, GraphError, OutputError, SettingError
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition
from accvlab.dali_pipeline_framework.processing_steps import ImageDecoder
from accvlab.dali_pipeline_framework.sources import (
    CocoReader,
    FileReader,
    NumpyReader,
    ReaderInput,
    SequenceReader,
    TFRecordReader,
    VideoReader,
    WebDatasetReader,
)


def samples(reader: ReaderInput, **arguments: Any) -> list[dict[str, Any]]:
    """All samples of an epoch, one by one."""
    with make_loader(reader, 1, last_batch="partial", **arguments) as loader:
        return [{name: field[0] for name, field in batch.items()} for batch in loader]


@pytest.fixture(scope="module")
def vp9(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return video(tmp_path_factory.mktemp("video") / "numbers.webm", 20)


class TestWhatTheyDeliver:
    def test_files_of_folders(self, tmp_path: Path) -> None:
        root = numbered_files(tmp_path / "root", {"b": 2, "a": 3})
        got = [(number_of(each["data"]), each["label"].tolist()) for each in samples(FileReader(file_root=root))]
        assert got == [(2, [0]), (3, [0]), (4, [0]), (0, [1]), (1, [1])]

    def test_files_of_a_list_with_spaces(self, tmp_path: Path) -> None:
        root = numbered_files(tmp_path / "root", {"a b": 3})
        (tmp_path / "list.txt").write_text("a b/0002.jpg 7\na b/0000.jpg 0\n")
        got = samples(FileReader(file_list=tmp_path / "list.txt", file_root=root, label_name="class"))
        assert [(number_of(each["data"]), each["class"].tolist()) for each in got] == [(2, [7]), (0, [0])]

    def test_files_by_name(self, tmp_path: Path) -> None:
        root = numbered_files(tmp_path / "root", {"a": 3})
        files = [root / "a" / "0001.jpg", root / "a" / "0000.jpg"]
        got = samples(FileReader(files=files, labels=[5, -3], label_name=None))
        assert [[*each] for each in got] == [["data"], ["data"]]
        assert [number_of(each["data"]) for each in got] == [1, 0]

    def test_images_decoded_by_a_step(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        Image.fromarray(frame(9)).save(tmp_path / "a" / "x.png")
        (got,) = samples(FileReader(file_root=tmp_path), steps=[ImageDecoder("data", False)])
        assert np.array_equal(got["data"], frame(9))

    def test_sequences_of_frames(self, tmp_path: Path) -> None:
        root = frame_folders(tmp_path / "root", {"0": 6, "1": 2, "2": 3})
        got = samples(SequenceReader(file_root=root, sequence_length=3, step=2, stride=1))
        numbers = [[0, 1, 2], [2, 3, 4], [8, 9, 10]]
        assert [each["frames"].tolist() for each in got] == [[frame(n).tolist() for n in each] for each in numbers]

    def test_sequence_reader_does_not_warn(self, tmp_path: Path) -> None:
        root = frame_folders(tmp_path / "root", {"0": 2})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            samples(SequenceReader(file_root=root, sequence_length=2))
        assert [str(each.message) for each in caught if "readers.sequence" in str(each.message)] == []

    def test_clips_of_videos(self, vp9: Path) -> None:
        reader = VideoReader(
            filenames=[vp9], labels=[4], sequence_length=3, stride=2, step=6, enable_frame_num="sequence",
            enable_timestamps=True,
        )  # fmt: skip
        got = samples(reader)
        numbers = [[0, 2, 4], [6, 8, 10], [12, 14, 16]]
        assert [each["frame_num"].tolist() for each in got] == numbers
        assert [each["label"].tolist() for each in got] == [[4]] * 3
        for each, wanted in zip(got, numbers, strict=True):
            assert each["timestamps"] == pytest.approx([n / 25 for n in wanted], abs=1e-3)
            means = each["frames"].mean(axis=(1, 2, 3))
            assert each["frames"].shape == (3, 48, 64, 3)
            assert means == pytest.approx([8 * n for n in wanted], abs=3)

    @pytest.mark.parametrize("enable", ["scalar", True])
    def test_first_frame_of_clips(self, vp9: Path, enable: Any) -> None:
        got = samples(VideoReader(filenames=[vp9], sequence_length=7, enable_frame_num=enable))
        assert [each["frame_num"].tolist() for each in got] == [[0], [7]]

    @pytest.mark.parametrize("labels", [[3, 4], (3, 4), np.array([3, 4])])
    def test_labels_of_videos(self, vp9: Path, labels: Any) -> None:
        got = samples(VideoReader(filenames=[vp9, vp9], labels=labels, sequence_length=14))
        assert [each["label"].tolist() for each in got] == [[3], [4]]

    def test_an_empty_list_of_labels_is_left_to_dali(self, vp9: Path) -> None:
        with pytest.raises(SettingError, match="Provided 1 files and 0 labels"):
            samples(VideoReader(filenames=[vp9], labels=[], sequence_length=7))

    @pytest.mark.parametrize("dtype", [np.float32, np.int16, np.uint8])
    def test_arrays(self, tmp_path: Path, dtype: type) -> None:
        root = array_files(tmp_path / "root", 3, dtype)
        for reader in (NumpyReader(file_root=root), NumpyReader(file_root=root, dtype=dtype)):
            got = samples(reader)
            assert [each["data"].tolist() for each in got] == [[[n] * 3] * 2 for n in range(3)]
            assert {each["data"].dtype for each in got} == {np.dtype(dtype)}

    def test_arrays_by_name_and_region(self, tmp_path: Path) -> None:
        root = array_files(tmp_path / "root", 3)
        reader = NumpyReader(file_root=root, files=["002.npy", "000.npy"], roi_start=[0, 1], roi_shape=[1, 2])
        assert [each["data"].tolist() for each in samples(reader)] == [[[2, 2]], [[0, 0]]]

    @pytest.mark.parametrize(
        ("array", "what"),
        [
            (np.zeros(2, np.complex64), "of type complex64"),
            (np.zeros(2, [("a", np.int32), ("b", np.float32)]), "of a structured type with the fields 'a', 'b'"),
            (np.array([{}, 1], object), "of type object, which holds Python objects"),
            (np.array(["text"]), "of type str128"),
            (np.array(["2024-01-01"], "M8[s]"), r"of type datetime64\[s\]"),
            (np.zeros(2, np.longdouble), "of type float128"),
            (np.zeros(2, ">i4"), "of type int32 in big-endian order"),
        ],
    )
    def test_arrays_that_dali_cannot_read(self, tmp_path: Path, array: np.ndarray, what: str) -> None:
        np.save(tmp_path / "a.npy", array, allow_pickle=True)
        with pytest.raises(SettingError, match=rf"cannot read the array in '.*/a.npy', {what}\. DALI reads"):
            NumpyReader(file_root=tmp_path)

    @pytest.mark.parametrize("dtype", ["c8", object, "nonsense", "U3"])
    def test_types_that_dali_does_not_have(self, tmp_path: Path, dtype: object) -> None:
        with pytest.raises(SettingError, match="`dtype` must be a type of arrays that DALI reads, got"):
            NumpyReader(file_root=array_files(tmp_path / "root", 1), dtype=dtype)

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda content: b"", "EOF"),
            (lambda content: content[:-5], "is incomplete: it must have 152 bytes, has 147"),
            (lambda content: content.replace(b"NUMPY\1", b"NUMPY\2"), "it has version 2.0 of the format"),
            (lambda content: b"text" * 50, "the magic string is not correct"),
        ],
    )
    def test_files_without_a_whole_array(self, tmp_path: Path, damage: Any, message: str) -> None:
        path = array_files(tmp_path / "root", 1) / "000.npy"
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(SettingError, match=rf"The array file '.*/000.npy' .*{message}"):
            NumpyReader(files=[path])

    def test_arrays_of_another_type_later_on(self, tmp_path: Path) -> None:
        root = array_files(tmp_path / "root", 3)
        np.save(root / "002.npy", np.ones((2, 3), np.int32))
        with pytest.raises(OutputError, match=r"data: .* float32, but .* int32 .*, from '.*/002.npy'"):
            samples(NumpyReader(file_root=root))

    def test_arrays_of_a_list(self, tmp_path: Path) -> None:
        root = array_files(tmp_path / "root", 2, np.int32)
        (root / "list.txt").write_text("001.npy\n000.npy\n")
        got = samples(NumpyReader(file_list=root / "list.txt"))
        assert [each["data"].tolist() for each in got] == [[[1] * 3] * 2, [[0] * 3] * 2]

    def test_records(self, tmp_path: Path) -> None:
        records, index = record_file(tmp_path / "records", 3)
        features = {
            "number": tfrec.FixedLenFeature((), tfrec.int64, 0),
            "data": tfrec.FixedLenFeature((), tfrec.string, ""),
            "half": tfrec.FixedLenFeature([1], tfrec.float32, 0.0),
        }
        got = samples(TFRecordReader(path=records, index_path=index, features=features))
        assert [int(each["number"].item()) for each in got] == [0, 1, 2]
        assert [each["data"].tolist() for each in got] == [[0, 7], [1, 7], [2, 7]]
        assert [float(each["half"].item()) for each in got] == [0.0, 0.5, 1.0]

    def test_archives(self, tmp_path: Path) -> None:
        archive = tar_archive(tmp_path / "a.tar", 4)
        got = samples(WebDatasetReader(paths=archive, ext=["bin", "txt"], missing_component_behavior="empty"))
        assert [each["bin"].tolist() for each in got] == [[0], [1], [2], [3]]
        assert [each["txt"].tolist() for each in got] == [[0] * 3, [], [2] * 3, []]

    def test_archives_with_names_and_types(self, tmp_path: Path) -> None:
        archive = tar_archive(tmp_path / "a.tar", 2)
        reader = WebDatasetReader(
            paths=[archive], ext=["bin;raw", "txt"], names=["number", None], dtypes=[types.INT8, types.UINT8],
            missing_component_behavior="empty",
        )  # fmt: skip
        got = samples(reader)
        assert [[*each] for each in got] == [["number"], ["number"]]
        assert got[1]["number"].dtype == np.int8

    def test_boxes(self, tmp_path: Path) -> None:
        folder, annotations = coco_data(tmp_path, 3)
        reader = CocoReader(file_root=folder, annotations_file=annotations, image_ids=True, polygon_masks=True)
        got = samples(reader)
        assert [each["image_id"].tolist() for each in got] == [[0], [1], [2]]
        assert [each["boxes"].tolist() for each in got] == [
            [[box, 1, 2, 3] for box in range(number + 1)] for number in range(3)
        ]
        assert [each["labels"].tolist() for each in got] == [[1], [1, 1], [1, 1, 1]]
        assert [each["polygons"].shape for each in got] == [(1, 3), (2, 3), (3, 3)]
        assert [each["vertices"].shape for each in got] == [(3, 2), (6, 2), (9, 2)]
        assert bytes(got[1]["image"]) == (folder / "1.png").read_bytes()

    def test_masks(self, tmp_path: Path) -> None:
        folder, annotations = coco_data(tmp_path, 2)
        got = samples(CocoReader(file_root=folder, annotations_file=annotations, pixelwise_masks=True))
        assert [(each["masks"].shape, each["masks"].dtype) for each in got] == [((8, 6, 1), np.int32)] * 2


FILE_ARGUMENTS: dict[str, Any] = {
    "bytes_per_sample_hint": [123],
    "case_sensitive_filter": True,
    "dir_filters": ["a*"],
    "dont_use_mmap": True,
    "file_filters": ["*.jpg", "*.tif"],
    "initial_fill": 17,
    "lazy_init": True,
    "num_shards": 2,
    "pad_last_batch": True,
    "prefetch_queue_depth": 3,
    "preserve": True,
    "random_shuffle": True,
    "read_ahead": True,
    "seed": 1234,
    "shard_id": 1,
    "skip_cached_images": True,
    "stick_to_shard": True,
    "tensor_init_bytes": 4321,
}
SEQUENCE_ARGUMENTS: dict[str, Any] = {
    **{name: FILE_ARGUMENTS[name] for name in FILE_ARGUMENTS if "filter" not in name},
    "image_type": types.GRAY,
    "sequence_length": 2,
    "step": 3,
    "stride": 1,
}


class TestArguments:
    @pytest.mark.parametrize(
        ("operator", "arguments"),
        [
            (fn.readers.file, {**FILE_ARGUMENTS, "file_root": "ROOT"}),
            (fn.readers.file, {"files": ["a/0000.jpg"], "labels": [3], "file_root": "ROOT"}),
            (fn.readers.file, {"file_root": "ROOT", "shuffle_after_epoch": True, "shuffle_after_epoch_seed": 77}),
            (fn.readers.sequence, {**SEQUENCE_ARGUMENTS, "file_root": "FRAMES"}),
        ],
    )
    def test_each_argument_reaches_dali(self, tmp_path: Path, operator: Any, arguments: dict[str, Any]) -> None:
        root = numbered_files(tmp_path / "root", {"a": 4, "ab": 3})
        frames = frame_folders(tmp_path / "frames", {"0": 6, "1": 6})
        paths = {"ROOT": str(root), "FRAMES": str(frames)}
        arguments = {
            name: paths.get(value, value) if isinstance(value, str) else value for name, value in arguments.items()
        }
        reader = (FileReader if operator is fn.readers.file else SequenceReader)(**arguments)
        ours = PipelineDefinition(reader).get_dali_pipeline(batch_size=2, num_threads=1)
        theirs = Pipeline(batch_size=2, num_threads=1, device_id=None)
        defaults = {"pad_last_batch": False, "shard_id": 0, "num_shards": 1}
        with theirs, warnings.catch_warnings(record=True):  # of the deprecated reader
            made = operator(name="reader", **{"seed": 0, **defaults, **arguments})
            theirs.set_outputs(*(made if isinstance(made, list | tuple) else [made]))
        ours.serialize()
        theirs.serialize()
        got, wanted = _arguments_of_reader(ours), _arguments_of_reader(theirs)
        if "seed" not in arguments:
            del got["seed"], wanted["seed"]
        assert got == wanted
        assert {*arguments} - {"preserve"} <= {*got}

    def test_nobody_has_added_an_argument_that_is_not_listed(self) -> None:
        import inspect

        ours = {*FILE_ARGUMENTS, "file_root", "file_list", "files", "labels"}
        ours |= {"shuffle_after_epoch", "shuffle_after_epoch_seed"}
        assert {*inspect.signature(fn.readers.file).parameters} == ours | {"device", "name"}
        assert {*inspect.signature(fn.readers.sequence).parameters} == {
            *SEQUENCE_ARGUMENTS, "file_root", "device", "name",
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: FileReader(), "needs exactly one of `file_list`, `files`, or `file_root` alone, got none"),
            (lambda: FileReader(files=["a"], file_list="b"), "got `file_list`, `files`"),
            (lambda: FileReader(file_root="/does/not/exist"), "'/does/not/exist' does not exist"),
            (lambda: FileReader(file_root=__file__), "must be a folder, but .* is a file"),
            (lambda: FileReader(file_list="/does/not/exist"), "`file_list` .* does not exist"),
            (
                lambda: FileReader(files=["a"], lables=[1]),
                "`lables` is not an argument of fn.readers.file. Did you",
            ),
            (lambda: FileReader(files=["a"], name="x"), "the pipeline names its readers itself"),
            (lambda: FileReader(files=["a"], device="gpu"), "the pipeline's `device_id` chooses it"),
            (lambda: FileReader(files=["a"], shard_id=2, num_shards=2), "`shard_id` must be in"),
            (lambda: FileReader(files=["a"], data_name="x", label_name="x"), "x"),
            (lambda: SequenceReader(sequence_length=3), "needs `file_root`"),
            (lambda: SequenceReader(file_root="/", sequence_lenght=3), "Did you mean `sequence_length`"),
            (lambda: VideoReader(sequence_length=3), "`filenames`, `file_list`, `file_root`, got none"),
            (lambda: VideoReader(filenames=["/no.mp4"], sequence_length=3), "'/no.mp4' does not exist"),
            (
                lambda: VideoReader(filenames=["https://me:hidden@host/a.mp4?sig=hidden"], sequence_length=3),
                r"'https://\*\*\*@host/a.mp4\?sig=\*\*\*' does not exist. This operator of DALI reads local "
                r"files only. Use "
                r"VideoDataProvider\(Videos\(url, storage_options=...\)\), which reads remote videos in parts\.$",
            ),
            (
                lambda: VideoReader(file_root="s3://bucket/a", sequence_length=3),
                r"must be a folder, but 's3://bucket/a' does not exist. This operator .* Use VideoDataProvider",
            ),
            (lambda: NumpyReader(files=["/no.npy"]), "cannot read 1 of its files: '/no.npy' does not exist"),
            (lambda: TFRecordReader(path="a", index_path="b", features={}), "at least one feature"),
            (lambda: TFRecordReader(path="/no", index_path="b", features={"x": 3}), "'/no' does not exist"),
            (
                lambda: TFRecordReader(path=__file__, index_path=__file__, features={"x": 3}),
                "cannot read the first record: .*Expected `nvidia.dali.tfrecord.Feature`",
            ),
            (lambda: WebDatasetReader(paths=["/no.tar"], ext=["a"]), "'/no.tar' does not exist"),
            (lambda: WebDatasetReader(paths=[__file__], ext=["a"], names=["b", "c"]), "got 2 for 1"),
            (lambda: WebDatasetReader(paths=[__file__], ext=["a"], dtypes=[]), "got 0 for 1"),
            (lambda: CocoReader(file_root="/no", annotations_file=__file__), "'/no' does not exist"),
        ],
    )
    def test_what_is_wrong_is_told_at_once(self, make: Any, message: str) -> None:
        with pytest.raises(Exception, match=message) as raised:
            make()
        assert isinstance(raised.value, SettingError | KeyError)

    def test_repr_names_what_was_given(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("a").touch()
        assert repr(FileReader(files=["a", "a"], seed=3)) == "FileReader(files=['a', 'a'], seed=3)"
        assert len(repr(FileReader(files=["a"] * 10000))) < 100


class TestWhatDaliRefuses:
    def test_no_file_matches(self, tmp_path: Path) -> None:
        root = numbered_files(tmp_path / "root", {"a": 2})
        message = "cannot set up FileReader.*sub-folders of `file_root` are the labels.*No files found"
        with pytest.raises(SettingError, match=message):
            samples(FileReader(file_root=root, file_filters=["*.png"]))

    def test_fewer_samples_than_shards(self, tmp_path: Path) -> None:
        root = numbered_files(tmp_path / "root", {"a": 2})
        with pytest.raises(SettingError, match=r"at least as many samples as shards \(3\)"):
            samples(FileReader(file_root=root), shard=(0, 3))

    def test_streams_are_too_short(self, tmp_path: Path) -> None:
        root = frame_folders(tmp_path / "root", {"0": 2, "1": 3})
        message = r"A sequence needs 7 frames of one stream, and the longest of 2 stream\(s\) has 3"
        with pytest.raises(SettingError, match=message):
            samples(SequenceReader(file_root=root, sequence_length=4, stride=2))

    def test_flat_folder_of_frames(self, tmp_path: Path) -> None:
        root = frame_folders(tmp_path / "root", {"0": 2})
        with pytest.raises(SettingError, match="Expected are folders in `file_root`, one per stream"):
            samples(SequenceReader(file_root=root / "0", sequence_length=2))

    @pytest.mark.parametrize("content", [b"", b"this is not a video" * 100])
    def test_no_video(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "x.mp4").write_bytes(content)
        with pytest.raises(SettingError, match=r"cannot set up VideoReader.*x\.mp4' has none that is known"):
            samples(VideoReader(filenames=[tmp_path / "x.mp4"], sequence_length=2))

    def test_codec_that_only_a_gpu_decodes(self, tmp_path: Path) -> None:
        path = video(tmp_path / "x.mp4", 5, "libx264")
        with pytest.raises(SettingError, match=r"on the CPU VP8, VP9 and MJPEG.* Codecs: .*x\.mp4' has h264"):
            samples(VideoReader(filenames=[path], sequence_length=2))

    def test_what_dali_reads_from_s3_is_left_to_dali(self) -> None:
        root = "s3://bucket/train"
        assert FileReader(file_root=root).arguments["file_root"] == root
        assert NumpyReader(file_root=root, dtype=np.float32).arguments["file_root"] == root
        for arguments in ({"file_root": root}, {"files": [f"{root}/a.npy"]}):
            with pytest.raises(SettingError, match="give the `dtype` of the arrays"):
                NumpyReader(**arguments)
        with pytest.raises(SettingError, match=r"must be a folder, but 's3://.*' does not exist"):
            VideoReader(file_root=root, sequence_length=2)

    def test_operator_that_runs_on_a_gpu_only(self, vp9: Path) -> None:
        reader = VideoReader(filenames=[vp9], sequence_length=2, experimental=False)
        with pytest.raises(DeviceError, match=r"on a GPU only.* as `device_id`.* VideoDataProvider"):
            make_loader(reader, 1)

    def test_videos_that_dali_leaves_out_are_named(
        self, vp9: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        other = video(tmp_path / "x.mp4", 8, "libx264")
        got = samples(VideoReader(filenames=[vp9, other], sequence_length=5))
        assert len(got) == 4
        assert f"DALI leaves out 1 of 2 videos, which it cannot decode on the CPU: '{other}' (h264)" in caplog.text

    def test_file_that_vanished(self, tmp_path: Path) -> None:
        root = numbered_files(tmp_path / "root", {"a": 3})
        with make_loader(FileReader(file_root=root), 1) as loader:
            assert len(loader) == 3
            (root / "a" / "0001.jpg").unlink()
            with pytest.raises(GraphError, match=r"failed in FileReader\(.*0001.jpg"):
                list(loader)


def _arguments_of_reader(pipeline: Pipeline) -> dict[str, str]:
    """The arguments of the only reader of a pipeline, as DALI has got them."""
    (spec,) = (str(each.spec) for each in pipeline._ops if "readers__" in str(each.spec))
    lines = spec.partition("Arguments:")[2].splitlines()
    pairs = (line.strip().partition(": ") for line in lines if line.strip())
    return {name: value for name, _, value in pairs if not name.startswith("_")}
