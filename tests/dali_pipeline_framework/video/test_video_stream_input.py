"""The stream of fed videos, against DALI's operator, and while others feed, wait, interrupt and close."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import pickle
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import av
import numpy as np
import nvidia.dali.fn as fn
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvidia.dali import types
from nvidia.dali.pipeline import Pipeline, pipeline_def
from support.gpu_definitions import pretend_gpus
from support.laws import examples
from support.refusals import assert_refused
from support.steps import KeepsFormat
from support.videos import HEIGHT, WIDTH, make_video, read_numbers, write_images

from accvlab.dali_pipeline_framework.errors import (
    ClosedError,
    DeviceError,
    FieldValueError,
    FileError,
    GraphError,
    NothingFedError,
    OutputError,
    SettingError,
    SourcePicklingError,
    VideoError,
)
from accvlab.dali_pipeline_framework.pipeline import DALIStructuredOutputIterator, PipelineDefinition
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup
from accvlab.dali_pipeline_framework.video import VideoStreamInput
from accvlab.dali_pipeline_framework.video.video_index import make_index
from accvlab.dali_pipeline_framework.video.video_stream_input import FedVideo, SequenceDecoder, SequenceSettings

SUFFIXES = {"libvpx-vp9": "webm", "libvpx": "webm", "mjpeg": "avi", "libx264": "mp4", "libx265": "mp4"}


@pytest.fixture(scope="module")
def video_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a video of a number of frames, once."""
    folder = tmp_path_factory.mktemp("videos")

    @functools.cache
    def make(num_frames: int, codec: str = "libvpx-vp9", **arguments: Any) -> Path:
        name = "_".join(map(str, (num_frames, codec, *arguments.values()))).replace(" ", "")
        return make_video(folder / f"{name}.{SUFFIXES[codec]}", num_frames, codec, **arguments)

    return make


def iterating(
    stream: VideoStreamInput,
    batch_size: int = 3,
    steps: Sequence[Any] = (),
    pipeline_arguments: Mapping[str, Any] = MappingProxyType({}),
    **arguments: Any,
) -> DALIStructuredOutputIterator:
    definition = PipelineDefinition(stream, [*steps])
    pipeline = definition.get_dali_pipeline(batch_size=batch_size, num_threads=1, **pipeline_arguments)
    how = {"output_type": "numpy", "ragged": {"frames": "list"}, **arguments}
    return DALIStructuredOutputIterator(pipeline=pipeline, **how)


def numbers(batch: Any) -> list[list[int]]:
    """The numbers that the frames of a batch show, sequence by sequence."""
    return [read_numbers(np.asarray(frames)) for frames in batch["frames"]]


def expected_batches(num_frames: int, length: int, batch_size: int, first: int = 0) -> list[list[list[int]]]:
    frames = range(first, first + num_frames)
    sequences = [[*frames[start : start + length]] for start in range(0, num_frames, length)]
    return [sequences[start : start + batch_size] for start in range(0, len(sequences), batch_size)]


def by_operator(path: Path, length: int, batch_size: int, policy: str) -> list[list[np.ndarray]]:
    """What DALI's operator makes of a video, with as many runs as the numbers of frames say."""

    @pipeline_def(batch_size=batch_size, num_threads=1, device_id=None, prefetch_queue_depth=1)
    def pipeline() -> Any:
        return fn.experimental.inputs.video(name="v", sequence_length=length, last_sequence_policy=policy)

    made = pipeline()
    made.build()
    made.feed_input("v", np.fromfile(path, np.uint8)[None])
    batches: list[list[np.ndarray]] = []
    num_frames = int(path.name.split("_")[0])
    for _ in expected_batches(num_frames, length, batch_size):
        (frames,) = made.run()
        batches.append([np.array(frames[index]) for index in range(len(frames))])
    return batches


def delivered(stream: VideoStreamInput, *videos: Any, batch_size: int = 3, **arguments: Any) -> list[Any]:
    with iterating(stream, batch_size, **arguments) as iterator:
        for video in videos:
            stream.feed(video)
        stream.close()
        return list(iterator)


@pytest.fixture(autouse=True)
def _threads_end() -> Iterator[None]:
    yield
    deadline = time.monotonic() + 30
    while any(thread.name == "video stream" for thread in threading.enumerate()):
        gc.collect()
        assert time.monotonic() < deadline, "a thread is left behind"
        time.sleep(0.01)


def later(action: Callable[[], Any], seconds: float = 0.2) -> threading.Timer:
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer


class TestFrames:
    def test_the_example_of_the_reference(self, video_of: Any) -> None:
        # 67 frames, 5 per sequence, 3 sequences per batch: 3, 3, 3, 3, 2; the last has 2 frames.
        path = video_of(67)
        partial = delivered(VideoStreamInput(5), path)
        assert [numbers(batch) for batch in partial] == expected_batches(67, 5, 3)
        padded = delivered(VideoStreamInput(5, last_sequence_policy="pad"), path, ragged="raise")
        assert [batch["frames"].shape for batch in padded] == [
            (size, 5, HEIGHT, WIDTH, 3) for size in (3, 3, 3, 3, 2)
        ]
        assert not padded[-1]["frames"][1, 2:].any()
        np.testing.assert_array_equal(padded[-1]["frames"][1, :2], partial[-1]["frames"][1])

    @settings(max_examples=examples(10, 25), deadline=None)
    @given(
        num_frames=st.integers(1, 30),
        length=st.integers(1, 12),
        batch_size=st.integers(1, 4),
        policy=st.sampled_from(["partial", "pad"]),
    )
    def test_are_those_of_the_operator(
        self, video_of: Any, num_frames: int, length: int, batch_size: int, policy: Any
    ) -> None:
        path = video_of(num_frames)
        expected = by_operator(path, length, batch_size, policy)
        stream = VideoStreamInput(length, last_sequence_policy=policy, num_frames_name="count", colors="dali")
        batches = delivered(stream, path, batch_size=batch_size)
        # As on a GPU.
        decoder = SequenceDecoder(SequenceSettings(policy, types.RGB, length, 0, 1), batch_size, None)
        own = list(decoder.by_dali(FedVideo(0, str(path), "a", make_index(path))))
        counts = [[len(each) for each in batch] for batch in expected_batches(num_frames, length, batch_size)]
        assert [batch["count"].tolist() for batch in batches] == counts
        assert [batch.lengths for batch in own] == counts
        for got in ([batch["frames"] for batch in batches], [batch.frames for batch in own]):
            assert [len(frames) for frames in got] == [len(batch) for batch in expected]
            for frames, sequences in zip(got, expected, strict=True):
                for index, sequence in enumerate(sequences):
                    np.testing.assert_array_equal(np.array(frames[index]), sequence)

    @pytest.mark.parametrize(("matrix", "colors"), [(1, "stream"), (5, "stream"), (1, "dali")])
    def test_colors_of_the_operator_are_those_of_the_stream(
        self, tmp_path: Path, matrix: int, colors: Any
    ) -> None:
        # As on a GPU; DALI itself converts all videos by BT.601.
        planes = np.repeat(np.array([[120], [90], [160]], np.uint8), [4096, 1024, 1024]).reshape(96, 64)
        frames = [av.VideoFrame.from_ndarray(planes, format="yuv420p") for _ in range(6)]
        for frame in frames:
            frame.colorspace, frame.color_range = matrix, 1
        options = {"deadline": "realtime", "crf": "4"}
        path = write_images(
            tmp_path / "a.webm", frames, "libvpx-vp9", options=options, matrix=matrix, color_range=1
        )
        video = FedVideo(0, str(path), "a", make_index(path))
        assert video.index.color_matrix == matrix
        decoder = SequenceDecoder(SequenceSettings("pad", types.RGB, 3, 0, 1, colors), 2, None)
        by_dali, by_pyav = (next(iter(way(video))).frames for way in (decoder.by_dali, decoder.batches))
        difference = np.asarray(by_dali.as_tensor()).astype(int) - by_pyav
        assert np.abs(difference).max() <= 3

    def test_what_a_gpu_does_not_decode_is_decoded_on_the_cpu_and_said(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = make_video(tmp_path / "a.mp4", 12, "libsvtav1", options={})  # with hidden frames
        decoder = SequenceDecoder(SequenceSettings("pad", types.RGB, 5, None, 1), 3, 0)
        with caplog.at_level("INFO"):
            (batch,) = decoder.batches(FedVideo(0, str(path), "'a'", make_index(path)))
        assert read_numbers(batch.frames.reshape(-1, HEIGHT, WIDTH, 3)[:12]) == [*range(12)]
        assert batch.lengths == [5, 5, 2]
        assert "The video 'a' is decoded on the CPU: it has hidden frames or is interlaced" in caplog.text

    @pytest.mark.parametrize(
        ("text", "at_first", "later"),
        [
            ("CUDA driver API error CUDA_ERROR_NOT_SUPPORTED (801)", None, DeviceError),
            ("CUDA runtime API error cudaErrorIllegalAddress (700)", DeviceError, DeviceError),
            ("an odd packet", None, VideoError),
        ],
    )
    @pytest.mark.parametrize("fails_in", ["build", "run"])
    def test_a_gpu_that_fails_is_not_blamed_on_the_video(
        self,
        fails_in: str,
        text: str,
        at_first: type[Exception] | None,
        later: type[Exception],
        video_of: Any,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        num_good = 0

        def build(pipeline: Pipeline) -> None:
            if fails_in == "build" and not num_good:
                raise RuntimeError(text)

        def run(pipeline: Pipeline) -> Any:
            nonlocal num_good
            num_good -= 1
            if num_good < 0:
                raise RuntimeError(text)
            return "frames", SimpleNamespace(as_tensor=lambda: np.array([5]))

        pretend_gpus(monkeypatch)
        for name, function in (("build", build), ("run", run), ("feed_input", lambda *arguments: None)):
            monkeypatch.setattr(Pipeline, name, function)
        decoder = SequenceDecoder(SequenceSettings("pad", types.RGB, 5, 0, 1), 3, 0)
        video = FedVideo(0, str(video_of(12)), "'a'", make_index(video_of(12)))
        if at_first is None:  # the CPU decodes it
            assert [batch.lengths for batch in decoder.batches(video)] == [[5, 5, 2]]
            (warned,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
            assert warned.startswith("The video 'a' is decoded on the CPU: ")
            assert text in warned
        else:
            words = "Decoding the video 'a' failed because of the GPU"
            assert_refused(lambda: next(decoder.batches(video)), words, at_first)
        num_good = 1
        batches = decoder.batches(video)
        assert next(batches).frames == "frames"
        with pytest.raises(later, match=r"Decoding the video 'a' failed|after 5 of its 12 frames: an odd packet"):
            next(batches)

    def test_several_videos_are_never_mixed(self, video_of: Any) -> None:
        first = video_of(7)
        second = video_of(4, "libx264", first_number=100, size=(128, 96))
        third = video_of(9, "mjpeg", first_number=200)
        names = {"video_name": "video", "first_frame_name": "first", "num_frames_name": "count"}
        stream = VideoStreamInput(2, last_sequence_policy="pad", **names)  # type: ignore[arg-type]
        got = delivered(stream, first, second.read_bytes(), np.fromfile(third, np.uint8))
        columns = [[*itertools.chain(*(batch[name] for batch in got))] for name in ("first", "count", "frames")]
        assert [read_numbers(frames[:count]) for _, count, frames in zip(*columns, strict=True)] == [
            sequence
            for num_frames, start in ((7, 0), (4, 100), (9, 200))
            for batch in expected_batches(num_frames, 2, 3, start)
            for sequence in batch
        ]
        assert columns[0] == [0, 2, 4, 6, 0, 2, 0, 2, 4, 6, 8]
        assert [batch["video"].tolist() for batch in got] == [[0] * 3, [0], [1] * 2, [2] * 3, [2] * 2]
        assert got[2]["frames"][0].shape[1:] == (96, 128, 3)
        assert got[0]["video"].dtype == np.int32

    def test_other_channels_and_streams(self, video_of: Any) -> None:
        path = video_of(5, "libx264", num_streams=2)
        [rgb] = delivered(VideoStreamInput(5, stream=1), path)[0]["frames"]
        [bgr] = delivered(VideoStreamInput(5, stream=1, image_type=types.BGR, num_threads=2), path)[0]["frames"]
        np.testing.assert_array_equal(bgr, rgb[..., ::-1])
        assert read_numbers(bgr) == [*range(1000, 1005)]


class TestPipelines:
    def test_a_failing_step_names_the_video(self, video_of: Any) -> None:
        class Crop(KeepsFormat):
            def _process(self, data: SampleDataGroup) -> SampleDataGroup:
                data["frames"] = fn.crop(data["frames"], crop=(HEIGHT + 1, WIDTH + 1))
                return data

        stream = VideoStreamInput(2)
        with iterating(stream, 2, [Crop()]) as iterator:
            stream.feed(video_of(4, "libx264", first_number=100, size=(128, 96)))
            small = stream.feed(video_of(7))
            stream.close()
            batches = iter(iterator)
            assert numbers(next(batches)) is not None
            with pytest.raises(
                GraphError, match=rf"frames 0 to 3 of the video '.*7_libvpx-vp9\.webm' \(video {small}\)"
            ):
                next(batches)

    def test_of_ones_own(self, video_of: Any) -> None:
        stream = VideoStreamInput(5, last_sequence_policy="pad")
        pipeline = PipelineDefinition(stream).get_dali_pipeline(batch_size=3, num_threads=1)
        stream.feed(video_of(67))
        with DALIStructuredOutputIterator(pipeline=pipeline) as iterator:
            sizes = [tuple(batch["frames"].shape) for batch in itertools.islice(iterator, 2)]
            stream.close()
            sizes += [tuple(batch["frames"].shape) for batch in iterator]  # goes on where the first loop stopped
            assert sizes == [(size, 5, HEIGHT, WIDTH, 3) for size in (3, 3, 3, 3, 2)]
            assert list(iterator) == []
            assert_refused(lambda: len(iterator), "not known", TypeError)


class TestFeeding:
    def test_what_is_there_is_delivered_without_waiting_for_more(self, video_of: Any) -> None:
        stream = VideoStreamInput(5)
        with iterating(stream, 2) as iterator:
            batches = iter(iterator)
            timer = later(stream.close, 20)  # instead of hanging
            for num_frames in (10, 1, 30, 12):
                stream.feed(video_of(num_frames))
                for expected in expected_batches(num_frames, 5, 2):
                    assert numbers(next(batches)) == expected
            assert timer.is_alive()
            timer.cancel()
            assert not stream.is_closed
            stream.close()
            stream.close()
            assert stream.is_closed
            assert list(batches) == list(iterator) == []
            assert_refused(lambda: stream.feed(video_of(10)), "no more videos can be fed", ClosedError)

    def test_from_threads_while_the_loop_runs(self, video_of: Any) -> None:
        stream = VideoStreamInput(4, video_name="video")
        paths = {n: video_of(n, first_number=100 * n) for n in (3, 9, 13)}
        fed: dict[int, int] = {}

        def feed() -> None:
            for n, path in paths.items():
                fed[stream.feed(path)] = n

        with iterating(stream) as iterator, ThreadPoolExecutor(4) as pool:
            feeding = [pool.submit(feed) for _ in range(3)]
            pool.submit(lambda: (wait(feeding), stream.close()))
            got: dict[int, list[int]] = {}
            for batch in iterator:
                for video, shown in zip(batch["video"], numbers(batch), strict=True):
                    got.setdefault(int(video), []).extend(shown)
        assert list(got) == [*range(9)]
        assert got == {video: [*range(100 * n, 101 * n)] for video, n in fed.items()}
        assert stream.num_fed == 9

    def test_without_waiting(self, video_of: Any) -> None:
        stream = VideoStreamInput(5, blocking=False)
        with iterating(stream) as iterator:
            with pytest.raises(NothingFedError, match="no video to decode: all 0 that were fed"):
                next(iter(iterator))
            for num_fed in (1, 2):
                stream.feed(video_of(67))
                batches = iter(iterator)
                for expected in expected_batches(67, 5, 3):
                    assert numbers(next(batches)) == expected
                with pytest.raises(NothingFedError, match=f"all {num_fed} that were fed are used up"):
                    next(batches)
            stream.close()
            assert list(iterator) == []

    def test_waits_for_a_video_and_can_be_interrupted(self, video_of: Any) -> None:
        previous = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in the background
        stream, path = VideoStreamInput(5), video_of(7)
        try:
            with iterating(stream) as iterator:
                batches = iter(iterator)
                timer = later(stream.close, 10)  # instead of hanging
                later(lambda: os.kill(os.getpid(), signal.SIGINT))
                with pytest.raises(KeyboardInterrupt):
                    next(batches)
                timer.cancel()
                later(lambda: stream.feed(path))
                assert numbers(next(batches)) == [[0, 1, 2, 3, 4], [5, 6]]
                later(stream.close)
                with pytest.raises(StopIteration):
                    next(batches)
        finally:
            signal.signal(signal.SIGINT, previous)

    def test_a_loader_that_is_closed_while_it_waits(self) -> None:
        stream = VideoStreamInput(5)
        iterator = iterating(stream)
        later(iterator.close)
        timer = later(stream.close, 10)  # instead of hanging
        with pytest.raises(ClosedError):
            next(iter(iterator))
        timer.cancel()

    def test_decodes_only_so_far_ahead(self, video_of: Any) -> None:
        stream = VideoStreamInput(5, num_batches_ahead=2)
        for _ in range(20):
            stream.feed(video_of(5))
        assert stream.num_waiting == 20
        with iterating(stream) as iterator:
            deadline = time.monotonic() + 20
            while stream.num_waiting > 17 and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.2)
            assert stream.num_waiting == 17  # two are decoded, a third one waits for room
            stream.close()
            assert len(list(iterator)) == 20

    def test_goes_on_in_another_loader(self, video_of: Any) -> None:
        stream = VideoStreamInput(5, num_batches_ahead=1)
        for number in range(6):
            stream.feed(video_of(5, first_number=10 * number))
        with iterating(stream) as iterator:
            next(iter(iterator))
            assert_refused(lambda: iterating(stream), "by one pipeline at a time")
        stream.close()
        with iterating(stream) as iterator:
            got = [numbers(batch)[0][0] for batch in iterator]
        assert got == [10 * number for number in range(6 - len(got), 6)]
        assert got

    def test_short_sequences_say_what_to_do(self, video_of: Any) -> None:
        stream = VideoStreamInput(5)
        with iterating(stream, ragged="raise") as iterator:
            stream.feed(video_of(7))
            stream.feed(video_of(10))
            stream.close()
            batches = iter(iterator)
            with pytest.raises(OutputError, match="ragged='list' to the iterator, or last_sequence_policy='pad'"):
                next(batches)
            assert numbers(next(batches)) == expected_batches(10, 5, 3)[0]


class TestBadVideos:
    def test_are_refused_when_they_are_fed(self, video_of: Any, tmp_path: Path) -> None:
        stream = VideoStreamInput(5)
        empty = tmp_path / "empty.mp4"
        empty.touch()
        pipe = tmp_path / "pipe.mp4"
        os.mkfifo(pipe)
        whole = video_of(30).read_bytes()
        cases: list[tuple[Any, type[Exception], str]] = [
            (b"", VideoError, "is empty: it has 0 bytes"),
            (empty, VideoError, r"'.*empty\.mp4' is empty"),
            (tmp_path / "missing.mp4", FileNotFoundError, r"Cannot read the video '.*missing\.mp4'"),
            (tmp_path, FileError, "Cannot read the video"),
            ("s3://drives/a.mp4", FileNotFoundError, "download it, or mount .* bytes can be fed"),
            (pipe, FileError, "it is no regular file"),
            ("a\0b", FileError, "Cannot read the video"),
            (b"no video" * 100, VideoError, "'<800 bytes>' as a video"),
            (whole[: len(whole) * 2 // 3], VideoError, "is incomplete"),
            (None, FieldValueError, "got NoneType"),
            (np.zeros((1, 8), np.uint8), FieldValueError, r"shape \(1, 8\)"),
            (np.zeros(8, np.int8), FieldValueError, "int8"),
        ]
        for video, error, message in cases:
            with pytest.raises(error, match=message):
                stream.feed(video)
        assert stream.num_fed == 0
        assert_refused(lambda: stream.feed(b"no video", name="camera 4"), "'camera 4'", VideoError)
        assert [numbers(batch) for batch in delivered(stream, video_of(5))] == expected_batches(5, 5, 3)

    @pytest.mark.parametrize("is_cut", [False, True])
    def test_end_the_loop_with_their_name(self, video_of: Any, tmp_path: Path, is_cut: bool) -> None:
        stream = VideoStreamInput(5, num_batches_ahead=1)
        path = tmp_path / "later.webm"
        shutil.copy(video_of(30), path)
        stream.feed(video_of(30))
        stream.feed(path)
        stream.feed(video_of(7))
        path.write_bytes(path.read_bytes()[:-500])
        if not is_cut:
            path.unlink()
        with iterating(stream) as iterator:
            batches = iter(iterator)
            assert [numbers(next(batches)) for _ in range(2)] == expected_batches(30, 5, 3)
            for _ in range(2):
                with pytest.raises((VideoError, FileError), match=r"'.*later\.webm' \(video 1\)"):
                    next(batches)
        stream.close()
        with iterating(stream) as iterator:  # the rest, for who wants to go on
            assert [numbers(batch) for batch in iterator] == expected_batches(7, 5, 3)

    def test_that_dali_cannot_decode(self, video_of: Any) -> None:
        decoder = SequenceDecoder(SequenceSettings("partial", types.RGB, 5, 0, 1), 3, None)
        with pytest.raises(VideoError, match="DALI cannot decode the video the text after 0 of its 5 frames"):
            next(decoder.by_dali(FedVideo(0, b"no video" * 100, "the text", make_index(video_of(5)))))


class TestSettings:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"sequence_length": 0}, "`sequence_length` must be a whole number of at least 1, got 0"),
            (
                {"last_sequence_policy": "drop"},
                "`last_sequence_policy` must be one of 'partial', 'pad', got 'drop'",
            ),
            ({"blocking": "no"}, "`blocking` must be True or False, got 'no'"),
            ({"stream": -1}, "`stream`"),
            ({"num_threads": 0}, "`num_threads`"),
            ({"num_batches_ahead": 0}, "`num_batches_ahead`"),
            ({"image_type": types.YCbCr}, "`image_type`"),
            ({"colors": "bt709"}, "`colors` must be one of 'stream', 'bt601', 'dali', got 'bt709'"),
        ],
    )
    def test_that_break_a_rule(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(SettingError, match=message):
            VideoStreamInput(**{"sequence_length": 5, **arguments})

    def test_cannot_be_pickled(self) -> None:
        assert_refused(lambda: pickle.dumps(VideoStreamInput(5)), "cannot be pickled", SourcePicklingError)
