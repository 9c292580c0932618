"""Which frames there are, without decoding them: the same as decoding gives."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from support.gpu_definitions import pretend_gpus
from support.refusals import assert_refused
from support.videos import copy_packets, make_video, read_numbers, with_content, write_images
from video_kinds import ALT_REF, VideoOf, without_its_start

from accvlab.dali_pipeline_framework.errors import FileError, SettingError, VideoError
from accvlab.dali_pipeline_framework.operators.encoded_videos import why_not_in_graph
from accvlab.dali_pipeline_framework.video import VideoIndex, index_video
from accvlab.dali_pipeline_framework.video.frame_reader import FrameReader
from accvlab.dali_pipeline_framework.video.video_index import cached_video_index


def decoded_times(path: Path, stream: int = 0) -> list[int | None]:
    with av.open(str(path)) as container:
        return [frame.pts for frame in container.decode(video=stream)]


def test_facts(video: VideoOf) -> None:
    index = index_video(video("h264_b.mp4"))
    assert index.codec_name == "h264"
    assert index.average_rate == 25
    assert index.time_base == Fraction(1, 12800)
    assert index.pts.searchsorted(index.key_pts).tolist() == [0, 12, 24, 36]
    np.testing.assert_allclose(index.times_s, np.arange(40) / 25)
    assert index.key_before(23) == 12 * 512
    assert (index.num_reordered, index.hides_frames) == (2, False)
    assert index_video(video("h264_interlaced.mp4")).hides_frames
    assert len(index_video(video("mjpeg.avi")).key_pts) == 40


def test_times_begin_with_the_first_frame(tmp_path: Path) -> None:
    index = index_video(make_video(tmp_path / "late.webm", 3, times=[500, 540, 600]))
    assert index.pts.tolist() == [500, 540, 600]
    assert index.times_s.tolist() == pytest.approx([0, 0.04, 0.1])


def frames_in_any_order(path: Path) -> list[int]:
    """The numbers that all frames show, each read by itself."""
    index = index_video(path)
    found, reader = np.full(index.num_frames, -1), FrameReader(path, index)
    for number in np.random.default_rng(0).permutation(index.num_frames):
        found[number] = read_numbers(reader.frames([number]))[0]
    reader.close()
    return found.tolist()


def copied(source: Path, path: Path) -> None:
    """Do what ``ffmpeg -fflags +genpts -i source -c copy path`` does."""
    with av.open(str(source), options={"fflags": "+genpts"}) as original, av.open(str(path), "w") as copy:
        stream = original.streams.video[0]
        target = copy.add_stream_from_template(stream)
        for packet in original.demux(stream):
            if packet.size:
                packet.stream = target
                copy.mux(packet)


def encoded(source: Path, path: Path) -> None:
    """Do what ``ffmpeg -i source -c:v libx264 -crf 17 path`` does."""
    with av.open(str(source)) as original:
        images = [frame.to_ndarray(format="rgb24") for frame in original.decode(video=0)]
    write_images(path, images, options={"crf": "17"})


@pytest.mark.parametrize(
    ("kind", "why", "repair"),
    [
        ("h264_b.avi", r"the container \(avi\) does not keep the times of frames of h264", encoded),
        ("h264.h264", r"the container \(h264\) does not keep the times of frames of h264", encoded),
        ("h264_interlaced.ts", "it is interlaced, so that a packet may be half of a frame", encoded),
        ("mpeg1.mpg", r"the container \(mpeg\) does not keep the times of frames of mpeg1video", copied),
    ],
)
def test_what_cannot_be_searched_is_refused_with_what_repairs_it(
    video: VideoOf, tmp_path: Path, kind: str, why: str, repair: Callable[[Path, Path], None]
) -> None:
    how = {encoded: "-i IN -c:v libx264 -crf 17 OUT.mkv", copied: r"-fflags \+genpts -i IN -c copy OUT.mkv"}[
        repair
    ]
    with pytest.raises(VideoError, match=rf"{kind}' cannot be found by their times: {why}\. .*: ffmpeg {how}$"):
        index_video(video(kind))
    repair(video(kind), tmp_path / "a.mkv")
    assert frames_in_any_order(tmp_path / "a.mkv") == [*range(40)]


def test_two_frames_of_one_time_are_refused(video: VideoOf, tmp_path: Path) -> None:
    def same(number: int, packet: av.Packet) -> av.Packet:
        packet.pts = packet.dts = 40 * (number - (number == 7))
        return packet

    path = copy_packets(video("vp9.webm"), tmp_path / "a.mkv", same)
    with pytest.raises(
        VideoError, match=r"two of its packets have the same time, 0\.240 s\. Write it anew: ffmpeg"
    ):
        index_video(path)


def test_a_video_without_a_key_frame(video: VideoOf, tmp_path: Path) -> None:
    source = video("h264_refresh.mp4")
    path = without_its_start(source, tmp_path / "a.mkv", 1)  # no frame of the rest is whole by itself
    with pytest.raises(VideoError, match=r"There are no frames in the video .*: no packet of it is a key frame"):
        index_video(path)


@pytest.mark.parametrize(
    ("codec", "options", "hides"),
    [
        ("libsvtav1", {"g": "2"}, False),
        ("libsvtav1", {"g": "15"}, True),
        ("libvpx-vp9", ALT_REF, False),
        ("libvpx", None, False),
        ("libx264", None, False),
    ],
)
def test_hidden_frames(
    tmp_path: Path, codec: str, options: dict[str, str] | None, hides: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Packets that show an earlier picture again are frames; DALI would take each for a picture of its own.
    path = make_video(tmp_path / "a.mkv", 40, codec, options=options)
    index = index_video(path)
    assert index.pts.tolist() == decoded_times(path)
    assert index.num_frames == 40
    assert index.hides_frames == hides
    assert index.kind.endswith(" hidden") == hides
    assert frames_in_any_order(path) == [*range(40)]
    pretend_gpus(monkeypatch)
    assert bool(why_not_in_graph([index.kind], has_gpu=True, must_use_gpu=True)) == hides


def test_frames_that_are_only_referred_to_do_not_count(tmp_path: Path, video: VideoOf) -> None:
    def hidden(number: int, packet: av.Packet) -> av.Packet:
        content = bytearray(packet)
        if number in (3, 7, 13):
            content[0] &= ~0x10  # "show_frame"
        return with_content(packet, bytes(content))

    copy_packets(video("vp8.webm"), tmp_path / "a.webm", hidden)
    index = index_video(tmp_path / "a.webm")
    assert (index.num_frames, index.hides_frames) == (37, True)
    assert index.pts.tolist() == decoded_times(tmp_path / "a.webm")


class TestIncomplete:
    @pytest.mark.parametrize(
        ("name", "codec", "options", "of_all"),
        [
            ("a.webm", "libvpx-vp9", {}, ""),
            ("a.avi", "mjpeg", {}, " of 40"),
            ("a.mp4", "libx264", {"movflags": "faststart"}, " of 40"),
            ("b.mp4", "libx264", {"movflags": "frag_keyframe+empty_moov"}, r" of \d+"),
        ],
    )
    def test_tells_after_which_frame(
        self, tmp_path: Path, name: str, codec: str, options: dict[str, str], of_all: str
    ) -> None:
        path = make_video(tmp_path / name, 40, codec, container_options=options)
        os.truncate(path, path.stat().st_size * 6 // 10)
        readable = 0
        with av.open(str(path)) as container, contextlib.suppress(av.error.InvalidDataError):
            for _ in container.decode(video=0):
                readable += 1
        assert 15 < readable < 40
        with pytest.raises(
            VideoError,
            match=rf"{name}' is incomplete: it breaks off after {readable}{of_all} frames, "
            rf"up to {(readable - 1) / 25:.3f} s",
        ):
            index_video(path)

    def test_only_what_is_not_needed_is_missing(self, tmp_path: Path) -> None:
        path = make_video(tmp_path / "a.webm", 40)
        content = path.read_bytes()
        path.write_bytes(content[:-3])  # the table of contents is the last thing
        assert index_video(path).num_frames == 40


def without_tables(path: Path) -> None:
    make_video(path, 40, "libx264")
    os.truncate(path, path.stat().st_size * 6 // 10)


def only_sound(path: Path) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=48000)
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        sound.sample_rate = 48000
        container.mux(stream.encode(sound))
        container.mux(stream.encode(None))


def of_unknown_codec(path: Path) -> None:
    content = make_video(path, 5, "libx264").read_bytes()
    path.write_bytes(content.replace(b"avc1", b"zzzz"))


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda path: path.write_bytes(b"no video" * 99), VideoError, "Cannot open '...a.mp4' as a video: "),
        (without_tables, VideoError, "Cannot open '...a.mp4' as a video: ... Is it a video, and complete"),
        (Path.touch, VideoError, "The video '...a.mp4' is empty: it has 0 bytes."),
        (lambda path: None, FileNotFoundError, "Cannot open the video '...a.mp4': No such file"),
        (Path.mkdir, FileError, "Cannot open"),
        (os.mkfifo, FileError, "it is no regular file"),
        (only_sound, VideoError, "There is no video stream in ...; its streams are: audio"),
        (of_unknown_codec, VideoError, "PyAV ... does not know the codec of '...a.mp4'."),
    ],
)
def test_what_is_no_video(tmp_path: Path, make: Callable[[Path], Any], error: type[Exception], words: str) -> None:
    path = tmp_path / "a.mp4"
    make(path)
    assert isinstance(assert_refused(lambda: index_video(path), words, error), (FileError, VideoError))
    assert_refused(lambda: cached_video_index(tmp_path / "cache", path), words.split("...")[-1], error)


class TestCache:
    def test_is_used_until_the_video_changes(self, tmp_path: Path, video: VideoOf) -> None:
        path, cache = tmp_path / "a.mp4", tmp_path / "cache" / "videos"

        def cached() -> tuple[VideoIndex, int]:
            """The index, and when it was written."""
            index = cached_video_index(cache, path)
            (header,) = cache.glob("[!.]*/header.json")
            return index, header.stat().st_mtime_ns

        path.write_bytes(video("h264_b.mp4").read_bytes())
        first, written_ns = cached()
        assert first == index_video(path)
        assert cached() == (first, written_ns)
        assert not first.pts.flags.writeable
        os.utime(path, ns=(0, 12345))
        _, again_ns = cached()
        assert again_ns > written_ns
        path.write_bytes(video("h264_irregular.mp4").read_bytes())
        assert cached()[0].num_frames == 20

    def test_pickle_is_the_name_of_the_file_which_is_not_kept_open(self, tmp_path: Path, video: VideoOf) -> None:
        num_open = len(os.listdir("/proc/self/fd"))
        index = cached_video_index(tmp_path, video("h264_irregular.mp4"))
        pickled = pickle.dumps(index)
        assert len(pickled) < 150 + len(str(tmp_path))
        assert pickle.loads(pickled) == index
        assert len(os.listdir("/proc/self/fd")) <= num_open  # others may be closed meanwhile
        (folder,) = tmp_path.glob("[!.]*")
        shutil.rmtree(folder)
        words = "make it anew, and keep it while it is in use: No such file"
        assert isinstance(assert_refused(lambda: pickle.loads(pickled), words, FileError), FileNotFoundError)

    def test_a_changed_video_is_refused(self, tmp_path: Path, video: VideoOf) -> None:
        path = tmp_path / "a.mp4"
        path.write_bytes(video("h264_b.mp4").read_bytes())
        cache = tmp_path / "cache"
        pickled = pickle.dumps(cached_video_index(cache, path))
        os.utime(path, ns=(0, 12345))
        with pytest.raises(VideoError, match=r"'.*a.mp4' was changed after it was indexed"):
            FrameReader(path, pickle.loads(pickled))
        cached_video_index(cache, path)  # by another run
        with pytest.raises(
            FileError, match=r"'.*a.mp4' in '.*cache/.*' was made anew .* Make the provider .* anew"
        ):
            pickle.loads(pickled)

    @pytest.mark.parametrize(("name", "position"), [("header.json", 0), ("header.json", 60), ("*.npy", 3)])
    def test_damaged_file_is_made_anew(
        self, tmp_path: Path, video: VideoOf, name: str, position: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        index = cached_video_index(tmp_path, video("h264_b.mp4"))
        (file,) = tmp_path.glob(f"*/{name}")
        content = bytearray(file.read_bytes())
        content[position] ^= 0xFF
        for damaged in (content, b""):
            file.write_bytes(damaged)
            assert cached_video_index(tmp_path, video("h264_b.mp4")) == index
            assert "is made anew" in caplog.text

    def test_streams_have_files_of_their_own(self, tmp_path: Path, video: VideoOf) -> None:
        for stream in (0, 1):
            expected = index_video(video("two_streams.mkv"), stream)
            assert expected.pts.tolist() == decoded_times(video("two_streams.mkv"), stream)
            assert cached_video_index(tmp_path, video("two_streams.mkv"), stream) == expected
        assert len(list(tmp_path.glob("[!.]*"))) == 2

    def test_no_folder(self, tmp_path: Path, video: VideoOf) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(SettingError, match="`index_cache` must be a folder"):
            cached_video_index(tmp_path / "file", video("h264_b.mp4"))
