"""Damage that FFmpeg passes over: no frame is wrong, and none is missing, without an error or a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pytest
from damaged_videos import without_packets, zeroed
from support.laws import examples, spread
from support.videos import B_FRAMES, OPTIONS, make_video, read_numbers
from support.warnings_of_product import of_product
from support.windows import video_clips

from accvlab.dali_pipeline_framework.errors import VideoError
from accvlab.dali_pipeline_framework.video import VideoFrameDataProvider, Videos, index_video
from accvlab.dali_pipeline_framework.video.frame_reader import FrameReader, KeptFrames
from accvlab.dali_pipeline_framework.video.video_index import cached_video_index, find_gaps

NUM_FRAMES = 60


class TestZeroedBytes:
    """200 zeroed bytes, anywhere behind the header."""

    @spread(
        ("name", "codec", "options"),
        [
            ("a.mkv", "libx264", None),
            ("b.mkv", "libx264", B_FRAMES["libx264"]),
            ("c.mkv", "libx265", None),
            ("d.mkv", "mjpeg", None),
            ("a.mp4", "libx264", B_FRAMES["libx264"]),
            ("b.mp4", "libx265", None),
            ("a.avi", "mjpeg", None),
            ("b.avi", "libx264", B_FRAMES["libx264"]),
            ("a.h264", "libx264", B_FRAMES["libx264"]),
            ("b.h264", "libx264", None),
        ],
        4,
    )
    def test_are_right_frames_or_an_error_or_a_warning(
        self, tmp_path: Path, name: str, codec: str, options: dict[str, str] | None
    ) -> None:
        path = make_video(tmp_path / name, NUM_FRAMES, codec, size=(192, 128), options=options)
        expected = FrameReader(path, index_video(path)).frames(np.arange(NUM_FRAMES))
        size = path.stat().st_size
        silent = []
        for position in range(size // 10, size - 200, size // examples(16, 80)):
            broken = zeroed(path, tmp_path / f"broken{path.suffix}", position)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    index = index_video(broken)
                    frames = FrameReader(broken, index).frames(np.arange(index.num_frames))
                except VideoError:
                    continue
            # That a raw stream ends early, or a part of it between key frames does, nothing tells.
            is_complete = len(frames) == NUM_FRAMES or path.suffix in (".h264", ".hevc")
            are_right = all((frame == expected).all(axis=(1, 2, 3)).any() for frame in frames)
            if not caught and not (is_complete and are_right):
                silent.append((position, index.num_frames))
        assert not silent

    @pytest.mark.parametrize("codec", ["libvpx", "libvpx-vp9"])
    def test_no_frame_of_webm_is_missing(self, tmp_path: Path, codec: str) -> None:
        # Whether the pixels of VP8 and VP9 are right cannot be told: any bits are a picture.
        path = make_video(tmp_path / "a.webm", NUM_FRAMES, codec, size=(192, 128))
        size = path.stat().st_size
        for position in range(size // 10, size - 200, size // examples(16, 80)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                index = index_video(zeroed(path, tmp_path / "broken.webm", position))
            assert caught or index.num_frames >= NUM_FRAMES - 1  # as a camera can leave one out

    @pytest.mark.parametrize(("name", "options"), [("a.mkv", None), ("b.mp4", B_FRAMES["libx264"])])
    def test_frames_by_random_access(self, tmp_path: Path, name: str, options: dict[str, str] | None) -> None:
        # Frames up to the next key frame can refer to the damaged one, also those that are not marked themselves.
        path = make_video(tmp_path / name, 24, "libx264", size=(192, 128), options=options)
        index = index_video(path)
        expected = FrameReader(path, index).frames(np.arange(24))
        size = path.stat().st_size
        num_refused = 0
        for position in range(size // 5, size // 2, size // 8):
            broken = zeroed(path, tmp_path / f"broken{path.suffix}", position, 40)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                index = index_video(broken)
            if index.doubts:
                continue
            for number in range(24):
                reader = FrameReader(broken, index, kept=KeptFrames(8))
                for wanted in (number, max(number - 1, 0)):
                    try:
                        np.testing.assert_array_equal(reader.frames([wanted])[0], expected[wanted])
                    except VideoError as error:
                        named = f"Frame {wanted} of the video {str(broken)!r}, at {wanted / 25:.3f} s,"
                        num_refused += str(error).startswith(named)
                reader.close()
        assert num_refused > 10


def test_a_gap_in_time_is_a_warning_with_its_place(tmp_path: Path) -> None:
    path = make_video(tmp_path / "whole.mkv", NUM_FRAMES, options={**OPTIONS["libvpx-vp9"], "g": "1"})
    cut = without_packets(path, tmp_path / "a.mkv", range(20, 46))
    message = (
        r"Frames of the video '.*a.mkv' seem to be missing: 1.080 s between the frames 19 and 20, at 0.760 s, "
        r"where the neighbours are 0.040 s apart: about 26 frame\(s\) are missing. Either the file is damaged"
    )
    with pytest.warns(UserWarning, match=message):
        assert index_video(cut).num_frames == 34
    for arguments in ({}, {"index_cache": tmp_path / "cache"}, {"index_cache": tmp_path / "cache"}):
        with pytest.warns(UserWarning, match=message) as caught:
            VideoFrameDataProvider(Videos([cut], **arguments))
        assert [warning.filename for warning in of_product(caught)] == [__file__]
    assert cached_video_index(tmp_path / "cache", cut).doubts


def test_several_gaps(tmp_path: Path) -> None:
    path = make_video(tmp_path / "whole.mkv", 200, options={**OPTIONS["libvpx-vp9"], "g": "1"}, size=(32, 32))
    dropped = [n for start in range(20, 180, 40) for n in range(start, start + 3)]
    with pytest.warns(UserWarning, match=r"19 and 20, .*; .* 56 and 57, .*; .* 93 and 94, .*; 1 more such gaps\."):
        index_video(without_packets(path, tmp_path / "a.mkv", dropped))


def test_an_end_before_the_one_that_is_stated(tmp_path: Path) -> None:
    path = make_video(tmp_path / "a.mkv", NUM_FRAMES, "libx265", size=(192, 128))
    broken = zeroed(path, tmp_path / "b.mkv", path.stat().st_size * 8 // 10)
    with pytest.warns(
        UserWarning, match=r"the last frame is at .*, and ends at 2.400 s as the container states it: about"
    ):
        assert index_video(broken).num_frames < NUM_FRAMES


def test_frames_that_a_table_lists(tmp_path: Path) -> None:
    path = make_video(tmp_path / "a.avi", NUM_FRAMES, "mjpeg")
    content = path.read_bytes()
    place = content.index(b"00dc", len(content) // 2)
    path.write_bytes(content[:place] + b"JUNK" + content[place + 4 :])
    with pytest.warns(UserWarning, match=r"its container lists 1 frame\(s\) that cannot be found in it"):
        assert index_video(path).num_frames == NUM_FRAMES - 1


@pytest.mark.parametrize("suffix", [".mkv", ".mp4", ".h264", ".avi"])
@pytest.mark.parametrize("dropped", [17, 18, 19, 20])  # reference pictures, and those that none refers to
def test_one_picture_of_h264(tmp_path: Path, suffix: str, dropped: int) -> None:
    path = make_video(tmp_path / f"whole{suffix}", NUM_FRAMES, "libx264", options=B_FRAMES["libx264"])
    with pytest.warns(UserWarning, match=r"counts its pictures \(H.264\), and some numbers are not there"):
        index_video(without_packets(path, tmp_path / f"a{suffix}", [dropped]))


class TestVariableRates:
    def intervals(self, kind: str, generator: np.random.Generator) -> np.ndarray:
        number = 120
        return {
            "uniform": generator.integers(10, 100, number),
            "exponential": generator.exponential(40, number).astype(np.int64) + 1,
            "of two": generator.choice([33, 67], number),
            "frames left out by the camera": generator.choice([40, 80], number, p=[0.97, 0.03]),
            "with repeated frames left out": generator.choice([40, 80, 120, 400], number, p=[0.6, 0.2, 0.1, 0.1]),
            "slower at night": np.repeat([33, 66, 133], number // 3),
            "jittered": 100 + np.diff(generator.integers(-20, 21, number + 1)),
            "rounded": np.diff(np.round(np.arange(number + 1) * 1001 / 30).astype(np.int64)),
        }[kind]

    @pytest.mark.parametrize(
        "kind",
        [
            "uniform",
            "exponential",
            "of two",
            "frames left out by the camera",
            "with repeated frames left out",
            "slower at night",
            "jittered",
            "rounded",
        ],
    )
    def test_are_no_gaps(self, kind: str) -> None:
        for seed in range(50):
            assert find_gaps(self.intervals(kind, np.random.default_rng(seed))) == []

    @pytest.mark.parametrize("kind", ["of two", "slower at night", "jittered", "rounded"])
    @pytest.mark.parametrize("place", [0, 1, 50, 119])
    def test_can_have_gaps(self, kind: str, place: int) -> None:
        intervals = self.intervals(kind, np.random.default_rng(0))
        intervals[place] += 1000
        assert [found for found, _ in find_gaps(intervals)] == [place]

    def test_gaps_close_together(self) -> None:
        intervals = np.full(100, 40)
        intervals[[50, 52]] = 1000
        assert find_gaps(intervals) == [(50, 40), (52, 40)]


def test_whole_videos_have_no_doubts(video: Callable[[str], Path]) -> None:
    # All other tests of these videos would fail on a warning, too.
    assert index_video(video("h264_irregular.mp4")).doubts == ()


class TestSizes:
    def with_other_header(self, tmp_path: Path, header: tuple[int, int], frames: tuple[int, int]) -> Path:
        options = {"preset": "veryfast", "x264-params": "keyint=12:bframes=0:repeat-headers=1"}
        sources = [
            make_video(tmp_path / f"{place}.mp4", 30, "libx264", size=size, options=options)
            for place, size in enumerate((header, frames))
        ]
        path = tmp_path / "both.mp4"
        with (
            av.open(str(sources[0])) as first,
            av.open(str(sources[1])) as second,
            av.open(str(path), "w") as copy,
        ):
            target = copy.add_stream_from_template(first.streams.video[0])
            for packet in second.demux(video=0):
                if packet.dts is not None:
                    packet.stream = target
                    copy.mux(packet)
        return path

    @pytest.mark.parametrize("frames", [(96, 60), (90, 64), (192, 128)])
    def test_are_those_of_the_frames_whatever_the_header_says(
        self, tmp_path: Path, frames: tuple[int, int]
    ) -> None:
        path = self.with_other_header(tmp_path, (96, 64), frames)
        index = index_video(path)
        assert (index.width, index.height) == frames
        reader = FrameReader(path, index)
        for wanted in ([25], [3], [*range(30)]):
            assert read_numbers(reader.frames(wanted)) == wanted
        provider = video_clips([path], 10)
        assert provider.get_data(2)["frames"].shape == (10, frames[1], frames[0], 3)

    def test_that_change_are_refused_from_where_they_change(self, tmp_path: Path) -> None:
        path = tmp_path / "both.mkv"
        parts = [make_video(tmp_path / f"{width}.mkv", 5, "mjpeg", size=(width, 64)) for width in (96, 128)]
        with av.open(str(path), "w") as copy:
            target = None
            for position, part in enumerate(parts):
                with av.open(str(part)) as source:
                    target = target or copy.add_stream_from_template(source.streams.video[0])
                    for packet in source.demux(video=0):
                        if packet.dts is not None:
                            packet.pts = packet.dts = packet.pts + 200 * position
                            packet.stream = target
                            copy.mux(packet)
        index = index_video(path)
        reader = FrameReader(path, index)
        assert read_numbers(reader.frames([4])) == [4]
        for number in (5, 8):
            with pytest.raises(
                VideoError, match=r"All frames of a video must have one size, .* from 96 x 64 to 128 x 64"
            ):
                FrameReader(path, index).frames([number])
