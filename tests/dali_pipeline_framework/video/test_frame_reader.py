"""Any frame, exactly, and no more decoded than is needed."""

from __future__ import annotations

import os
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import av
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.child_processes import run_process
from support.laws import each_value, examples
from support.refusals import assert_refused
from support.videos import damage, make_video, read_numbers
from support.windows import video_clips
from video_kinds import KINDS, VideoOf

from accvlab.dali_pipeline_framework.errors import FileError, SettingError, VideoError
from accvlab.dali_pipeline_framework.video import index_video
from accvlab.dali_pipeline_framework.video.frame_converter import FrameConverter
from accvlab.dali_pipeline_framework.video.frame_reader import FrameReader, FrameReaderPool
from accvlab.dali_pipeline_framework.video.video_decoding import VideoStreamDecoder


def all_frames(path: Path, stream: int = 0) -> npt.NDArray[np.uint8]:
    converter = FrameConverter()
    with VideoStreamDecoder(path, stream=stream) as decoder:
        return np.stack([converter.convert(frame) for frame in decoder])


@pytest.mark.filterwarnings("ignore:.*several video streams")
@each_value(kind=sorted(KINDS), num_threads=[1, 2])
def test_frames_and_times_are_those_of_decoding_from_the_start(
    video: VideoOf, kind: str, num_threads: int
) -> None:
    path = video(kind)
    index, expected = index_video(path), all_frames(path)
    with av.open(str(path)) as container:
        assert index.pts.tolist() == [frame.pts for frame in container.decode(video=0)]
    assert (len(index.pts), index.height, index.width, 3) == expected.shape
    reader = FrameReader(path, index, num_threads=num_threads)
    order = np.random.default_rng(0).permutation(len(expected))
    for number in order[:: examples(3, 1)]:
        np.testing.assert_array_equal(reader.frames([number]), expected[[number]], err_msg=f"frame {number}")
    np.testing.assert_array_equal(reader.frames(np.arange(len(expected))), expected)
    reader.close()


@given(data=st.data())
@settings(
    max_examples=examples(12, 120), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_numbers_in_any_order(video: VideoOf, data: st.DataObject) -> None:
    path = video(data.draw(st.sampled_from(["h264_open.mp4", "hevc_open.mkv", "h264_edit_list.mp4", "vp9.webm"])))
    expected = all_frames(path)
    numbers = st.lists(st.integers(0, len(expected) - 1), min_size=1, max_size=6)
    reader = FrameReader(path, index_video(path), num_kept=data.draw(st.integers(0, 5)))
    for wanted in data.draw(st.lists(numbers, min_size=1, max_size=5)):
        np.testing.assert_array_equal(reader.frames(wanted), expected[wanted])
    reader.close()


@pytest.mark.parametrize(
    ("kind", "num_kept", "requests", "num_decoded", "num_seeks"),
    [
        ("vp9.webm", 0, [[*range(start, start + 5)] for start in range(0, 40, 5)], 40, 0),  # goes on
        ("vp9.webm", 0, [[1], [11]], 12, 0),  # also over a gap without a key frame
        ("vp9.webm", 0, [[1], [26], [12]], 2 + 3 + 1, 2),  # else from the last key frame
        ("h264_b.mp4", 0, [[11], [13]], 14, 0),  # frame 11 refers to the key frame 12, which is decoded already
        ("mjpeg.avi", 0, [[30], [3], [17], [19]], 4, 4),  # key frames only
        ("vp9.webm", 3, [[*range(start, start + 4)] for start in range(37)], 40, 0),
        ("vp9.webm", 4, [[0, 4], [1, 3, 5]], 6, 0),  # kept are also those that were passed
        ("vp9.webm", 0, [[9], [9]], 10, 0),
        ("vp9.webm", 1, [[9], [9]], 10, 0),
        ("vp9.webm", 9, [[1, 5, 9], [1, 5, 9]], 10, 0),
        ("vp9.webm", 0, [[3, 1, 3, 1]], 4, 0),
    ],
)
def test_no_more_is_decoded_than_is_needed(
    video: VideoOf, kind: str, num_kept: int, requests: list[list[int]], num_decoded: int, num_seeks: int
) -> None:
    """Key frames of these videos are 0, 12, 24, 36; of MJPEG all."""
    reader = FrameReader(video(kind), index_video(video(kind)), num_kept=num_kept)
    for wanted in requests:
        frames = reader.frames(wanted)
        assert read_numbers(frames) == wanted
        frames[:] = 0  # what was delivered is the caller's
    assert (reader.num_decoded, reader.num_seeks) == (num_decoded, num_seeks)
    assert reader.num_delivered == sum(len({*wanted}) for wanted in requests)


class TestErrors:
    @pytest.mark.parametrize(
        ("numbers", "words"),
        [
            ([3, -1], "vp9.webm' are numbered 0 to 39, got -1"),
            ([3, 40], "vp9.webm' are numbered 0 to 39, got 40"),
            ([0.4, 1.0], "must be whole numbers, at least one, got [0.4, 1.0]."),
            ([], "must be whole numbers, at least one, got []."),
            (None, "must be whole numbers, at least one, got None."),
        ],
    )
    def test_what_are_no_numbers_of_frames(self, video: VideoOf, numbers: Any, words: str) -> None:
        reader = FrameReader(video("vp9.webm"), index_video(video("vp9.webm")))
        for read in (reader.frames, reader.cut):
            assert_refused(lambda read=read: read(numbers), words)

    def test_changed_file(self, tmp_path: Path) -> None:
        path = make_video(tmp_path / "a.avi", 40, "mjpeg")
        index = index_video(path)
        reader = FrameReader(path, index)
        assert read_numbers(reader.frames([0, 7])) == [0, 7]
        os.utime(path, ns=(0, 12345))  # another video with the same times
        for again in (index, pickle.loads(pickle.dumps(index))):
            words = "a.avi' was changed ... (it was written again)...provider"
            assert_refused(lambda again=again: FrameReader(path, again), words, VideoError)
        # By a seek in the decoder that is open.
        assert_refused(lambda: reader.frames([3]), "was changed after it was indexed", VideoError)
        make_video(path, 20, "mjpeg")
        words = "'...a.avi' was changed after it was indexed (... bytes then, ... now"
        assert_refused(lambda: FrameReader(path, index), words, VideoError)
        unaware = FrameReader(path, attrs.evolve(index, file_state=None))
        words = "Frame 30 of the video '...a.avi', at 1.200 s, cannot be decoded: ... changed after"
        assert_refused(lambda: unaware.frames([30]), words, VideoError)
        path.unlink()
        words = "Cannot open the video '...a.avi': No such file"
        assert_refused(lambda: FrameReader(path, index), words, FileError)

    def test_damage_concerns_the_frames_up_to_the_next_key_frame(self, tmp_path: Path) -> None:
        path = damage(make_video(tmp_path / "a.mp4", 40, "libx264", size=(192, 128)), 15)
        reader = FrameReader(path, index_video(path))
        assert read_numbers(reader.frames([0, 14, 24, 39])) == [0, 14, 24, 39]
        for number in (15, 20):
            with pytest.raises(VideoError, match=rf"Frame {number} of the video '.*', at .* s, cannot be decoded"):
                reader.frames([number])
        assert read_numbers(reader.frames([14, 24])) == [14, 24]

    def test_bytes_have_no_file_that_could_change(self, video: VideoOf) -> None:
        content = video("vp9.webm").read_bytes()
        index = index_video(content)
        assert index.file_state is None
        assert read_numbers(FrameReader(content, index).frames([5])) == [5]


class TestPool:
    def pool(self, paths: list[Path], max_open: int) -> FrameReaderPool:
        indices = [index_video(path) for path in paths]
        return FrameReaderPool(lambda video: FrameReader(paths[video], indices[video]), max_open)

    def read(self, pool: FrameReaderPool, video: int, start: int, count: int = 2) -> None:
        frames = pool.read(video, np.arange(start, start + count))
        assert read_numbers(frames) == [*range(start, start + count)]

    def test_each_of_two_streams_goes_on(self, video: VideoOf) -> None:
        pool = self.pool([video("vp9.webm"), video("h264_b.mp4")], 4)
        for step in range(0, 16, 2):
            self.read(pool, 0, step)
            self.read(pool, 0, 24 + step)
            self.read(pool, 1, step)
        statistics = pool.statistics
        assert (statistics.num_delivered, statistics.num_decoded) == (48, 48)
        assert (statistics.num_opened, statistics.num_seeks) == (3, 1)
        pool.close()
        assert pool.statistics == statistics
        assert pool.num_open == 0

    def test_the_closest_decoder_goes_on(self, video: VideoOf) -> None:
        pool = self.pool([video("vp9.webm")], 4)
        for start in (0, 6, 2, 8, 4, 10):
            self.read(pool, 0, start)
        # The first decoder goes on from 2 to 6; so a second one begins anew to get 2.
        assert (pool.statistics.num_decoded, pool.statistics.num_opened) == (2 + 6 + 4 + 2 + 2 + 2, 2)

    def test_number_of_open_decoders(self, video: VideoOf) -> None:
        pool = self.pool([video("vp9.webm"), video("h264_b.mp4"), video("mjpeg.avi")], 2)
        for number in (0, 1, 2, 0, 1, 2):
            self.read(pool, number, 0)
            assert pool.num_open <= 2
        assert pool.statistics.num_opened == 6
        for start in np.random.default_rng(0).integers(0, 38, 30).tolist():  # in one video
            self.read(pool, 0, start)
        assert pool.statistics.num_opened == 6 + 2

    def test_decoders_that_fail_or_cannot_be_opened_do_not_count(self, video: VideoOf) -> None:
        pool = self.pool([video("vp9.webm")], 2)
        for number, error in ((0, SettingError), (1, IndexError), (0, SettingError)):  # there is no video 1
            with pytest.raises(error):
                pool.read(number, np.array([100]))
            assert pool.num_open == 0
        self.read(pool, 0, 0)

    def test_threads(self, video: VideoOf) -> None:
        pool = self.pool([video("vp9.webm"), video("h264_b.mp4")], 4)

        def read_all(number: int) -> None:
            for start in range(0, 40, 2):
                self.read(pool, number % 2, start)

        with ThreadPoolExecutor(4) as threads:
            assert [*threads.map(read_all, range(4))] == [None] * 4
        assert pool.num_open <= 4
        assert pool.statistics.num_delivered == 160

    def test_pickle_has_no_decoders(self, video: VideoOf) -> None:
        provider = video_clips(video("h264_b.mp4"), 4)
        provider.new_sample()  # keeps its blueprint
        size = len(pickle.dumps(provider))
        frames = provider.get_data(3)["frames"]
        assert len(pickle.dumps(provider)) == size < 4000
        copy = pickle.loads(pickle.dumps(provider))
        assert copy.statistics.num_opened == 0
        np.testing.assert_array_equal(copy.get_data(3)["frames"], frames)


# In a process of its own: a child of this one would have the threads' locks and the garbage of all other tests.


_FORKING = """
import gc, os, signal, sys, warnings
import numpy as np
from nvidia.dali import types
from accvlab.dali_pipeline_framework import DALIStructuredOutputIterator, PipelineDefinition
from accvlab.dali_pipeline_framework import VideoFrameDataProvider, Videos, VideoStreamInput, Windows
from accvlab.dali_pipeline_framework.video.video_index import make_index
from accvlab.dali_pipeline_framework.video.video_stream_input import FedVideo, SequenceDecoder, SequenceSettings

warnings.simplefilter("ignore")  # of Python 3.12, about forks where there are threads
path = sys.argv[1]
videos = VideoFrameDataProvider(Videos(path, num_decoder_threads=2), image_name="frames")
provider = Windows(videos, {"frames": range(4)}, unit="frames", step=4)
expected = [provider.get_data(sample)["frames"] for sample in range(10)]
provider.get_data(0)
stream = VideoStreamInput(5, num_threads=2, num_batches_ahead=1)
pipeline = PipelineDefinition(stream).get_dali_pipeline(batch_size=1, num_threads=1)
iterator = DALIStructuredOutputIterator(pipeline=pipeline, output_type="numpy")
stream.feed(path)
batches = iter(iterator)
next(batches)
decoder = SequenceDecoder(SequenceSettings("partial", types.RGB, 5, 0, 1), 2, None)
decoded = decoder.by_dali(FedVideo(0, path, "it", make_index(path)))
next(decoded)
for case in ("reads", "drops", "ends"):
    if not (child := os.fork()):
        signal.alarm(30)
        if case == "reads":
            assert all(np.array_equal(provider.get_data(n)["frames"], expected[n]) for n in (1, 5, 2))
            provider.close()
            os._exit(7)
        if case == "drops":
            del provider, videos, stream, pipeline, iterator, batches, decoded
            gc.collect()
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7, case
assert np.array_equal(provider.get_data(1)["frames"], expected[1])
stream.close()
print(1 + len(list(batches)), 1 + len(list(decoded)))
"""


def test_children_that_are_forked_while_frames_are_decoded(video: VideoOf) -> None:
    done = run_process([sys.executable, "-c", _FORKING, str(video("vp9.webm"))], timeout=100)
    assert (done.returncode, done.stdout) == (0, "8 4\n"), done.stderr
