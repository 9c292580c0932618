"""Parts of videos as files in memory: cut out without decoding, and decoded as the provider decodes them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvidia.dali.types import DALIImageType
from support.laws import examples, spread
from support.refusals import assert_refused
from support.videos import damage, make_video, read_numbers
from support.windows import video_clips
from video_kinds import KINDS, VideoOf, without_its_start

from accvlab.dali_pipeline_framework import VideoFrameDataProvider, Videos
from accvlab.dali_pipeline_framework.errors import FieldValueError, VideoError
from accvlab.dali_pipeline_framework.video import FrameReader, index_video
from accvlab.dali_pipeline_framework.video.decoded_clips import decoded_clip
from accvlab.dali_pipeline_framework.video.encoded_clips import EncodedClip


def decoded(clip: EncodedClip) -> np.ndarray:
    return decoded_clip(np.frombuffer(clip.file, np.uint8), clip.numbers, "dali")


@pytest.mark.filterwarnings("ignore:.*several video streams")
@pytest.mark.filterwarnings("ignore:Frames of the video")
@spread("kind", KINDS, 5)
def test_a_clip_that_was_cut_out_has_the_pixels_of_the_video(kind: str, video: VideoOf) -> None:
    path = video(kind)
    index = index_video(path)
    reader, cutter = FrameReader(path, index, colors="dali"), FrameReader(path, index)
    last = index.num_frames - 1

    @settings(max_examples=examples(8, 60), deadline=None)
    @given(st.lists(st.integers(0, last), min_size=1, max_size=5))
    def check(numbers: list[int]) -> None:
        clip = cutter.cut(numbers)
        assert np.array_equal(decoded(clip), reader.frames(numbers))
        if kind != "vp8_alt_ref.webm":  # some of its packets are only referred to
            with av.open(io.BytesIO(clip.file)) as file:
                num_packets = sum(1 for packet in file.demux(video=0) if packet.size)
            with av.open(io.BytesIO(clip.file)) as file:
                assert sum(1 for _ in file.decode(video=0)) == num_packets

    check()
    reader.close()
    cutter.close()


def test_settings_of_the_codec_that_change(tmp_path: Path) -> None:
    """In the stream they travel with it; in the container they cannot, and are refused."""
    first = {"preset": "ultrafast", "x264-params": "keyint=12:min-keyint=12:cabac=0:ref=1"}
    second = {"preset": "veryfast", "x264-params": "keyint=12:min-keyint=12:bframes=0:cabac=1:ref=3:scenecut=0"}
    for ending in ("ts", "flv"):
        times = [960 + 40 * number for number in range(24)]
        parts = [
            make_video(tmp_path / f"first.{ending}", 24, "libx264", options=first),
            make_video(tmp_path / f"second.{ending}", 24, "libx264", first_number=24, options=second, times=times),
        ]
        contents = [part.read_bytes() for part in parts]
        contents[1] = contents[1][13:] if ending == "flv" else contents[1]  # without the header of the file
        (tmp_path / f"joined.{ending}").write_bytes(b"".join(contents))
    index = index_video(tmp_path / "joined.ts")
    assert read_numbers(decoded(FrameReader(tmp_path / "joined.ts", index).cut([30, 33]))) == [30, 33]
    with pytest.raises(
        VideoError, match=r"the settings of the codec change at its packet 24\. Write it anew: ffmpeg"
    ):
        index_video(tmp_path / "joined.flv")


def test_the_provider_delivers_files_and_numbers(video: VideoOf) -> None:
    videos = Videos([str(video("vp9.webm")), str(video("h264_b.mp4"))])
    provider = video_clips(videos, 3, stride=2, images="encoded")
    blueprint = provider.sample_data_structure.format
    assert blueprint.at(("frames",)).content.codecs == ("h264 yuv420p", "vp9 yuv420p")
    assert provider.sample_data_structure.contained_top_level_field_names == ("frames", "frames_to_decode")
    sample = provider.get_data(8)  # frames 12, 14, 16 of the second video
    assert sample["frames_to_decode"].tolist() == [0, 1, 2]
    assert read_numbers(decoded_clip(sample["frames"].copy(), sample["frames_to_decode"])) == [12, 14, 16]
    single = VideoFrameDataProvider(videos, images="encoded").get_data(53)
    assert single["image_to_decode"].shape == ()
    assert read_numbers(decoded_clip(single["image"], single["image_to_decode"])) == [13]


def test_settings_that_do_not_go_with_files(video: VideoOf) -> None:
    path = video("vp9.webm")
    bgr = Videos(path, image_type=DALIImageType.BGR)
    assert_refused(lambda: video_clips(bgr, 3, images="encoded"), "RGB only, got BGR")
    unknown: Any = "jpeg"
    assert_refused(lambda: VideoFrameDataProvider(path, images=unknown), "`images` must be")


def test_frames_that_clips_of_a_batch_share_are_decoded_once(video: VideoOf) -> None:
    """Windows 16..19, 2..5, 14..17 and 0..3 of a video whose key frames are 0, 12, 24."""
    order = [8, 1, 7, 0]
    provider = video_clips(video("vp9.webm"), 4, step=2)
    samples = [*provider.load_batch(order, [0, 1, 2, 3])]
    assert [read_numbers(sample["frames"])[0] for sample in samples] == [16, 2, 14, 0]
    assert provider.statistics.num_decoded == 8 + 6  # 12..19 and 0..5


def test_a_video_that_fails_fails_only_its_samples(tmp_path: Path) -> None:
    paths = [make_video(tmp_path / f"{name}.mp4", 24, "libx264") for name in ("good", "bad")]
    provider = video_clips(paths, 4, step=2, images="encoded")
    paths[1].write_bytes(paths[1].read_bytes()[:-40])
    assert_refused(lambda: provider.get_data(13), "bad.mp4' was changed after it was indexed", VideoError)
    assert provider.get_data(3)["frames_to_decode"].tolist() == [6, 7, 8, 9]


def test_bad_files(tmp_path: Path) -> None:
    how = {"options": {"x265-params": "keyint=8:log-level=error"}}
    sources = [make_video(tmp_path / f"{number}.mp4", 12, "libx265", **how) for number in range(2)]
    one_key = make_video(tmp_path / "2.mp4", 12, "libx265")
    paths = [
        sources[0],
        without_its_start(one_key, tmp_path / "tail.mkv", 3),
        without_its_start(sources[0], tmp_path / "later.mkv", 3),
        damage(sources[1], 5),
    ]
    good, without_key, later_key, damaged = (np.frombuffer(path.read_bytes(), np.uint8) for path in paths)
    for file, numbers, expected in (
        (np.arange(200, dtype=np.uint8), [0], "as a video"),
        (good[:0], [0], "0 bytes"),
        (good[: len(good) // 2], [0, 3], "as a video|are numbered|cannot be decoded"),
        (without_key, [0], "no packet of it is a key frame"),
        (later_key, [0], "does not begin with a key frame on which all others rest. Cut"),
        (good, [0, 40], r"are numbered 0 to 11, got \[0, 40\]"),
        (good, [-1], r"are numbered 0 to 11, got \[-1\]"),
        (damaged, [6], "Frame 6 of the video the encoded video, .* cannot be decoded"),
    ):
        with pytest.raises((VideoError, FieldValueError), match=expected):
            decoded_clip(file, numbers)
