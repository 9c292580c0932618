"""Damage that FFmpeg passes over: no frame is wrong without an error."""

from __future__ import annotations

import re
from pathlib import Path

import av
import numpy as np
import pytest
from support.laws import examples, spread
from support.videos import B_FRAMES, copy_packets, make_video, read_numbers, write_images
from support.windows import video_clips
from video_kinds import zeroed

from accvlab.dali_pipeline_framework.errors import VideoError
from accvlab.dali_pipeline_framework.video import VideoFrameDataProvider, index_video
from accvlab.dali_pipeline_framework.video.frame_reader import FrameReader
from accvlab.dali_pipeline_framework.video.video_decoding import VideoStreamDecoder

NUM_FRAMES = 60


@pytest.mark.filterwarnings("ignore:Frames of the video")
class TestZeroedBytes:
    """200 zeroed bytes, anywhere behind the header."""

    @spread(
        ("name", "codec", "options"),
        [
            ("a.mkv", "libx264", None),
            ("b.mkv", "libx264", B_FRAMES["libx264"]),
            ("d.mkv", "mjpeg", None),
            ("a.mp4", "libx264", B_FRAMES["libx264"]),
            ("b.mp4", "libx265", None),
            ("a.avi", "mjpeg", None),
        ],
        4,
    )
    def test_are_right_frames_or_an_error(
        self, tmp_path: Path, name: str, codec: str, options: dict[str, str] | None
    ) -> None:
        path = make_video(tmp_path / name, NUM_FRAMES, codec, size=(192, 128), options=options)
        expected = FrameReader(path, index_video(path)).frames(np.arange(NUM_FRAMES))
        size = path.stat().st_size
        silent = []
        for position in range(size // 10, size - 200, size // examples(16, 80)):
            broken = zeroed(path, tmp_path / f"broken{path.suffix}", position)
            try:
                index = index_video(broken)
                frames = FrameReader(broken, index).frames(np.arange(index.num_frames))
            except VideoError:
                continue
            if not all((frame == expected).all(axis=(1, 2, 3)).any() for frame in frames):
                silent.append((position, index.num_frames))
        assert not silent

    def test_frames_by_random_access(self, tmp_path: Path) -> None:
        # Frames up to the next key frame can refer to the damaged one, also those that are not marked themselves.
        path = make_video(tmp_path / "a.mkv", 24, "libx264", size=(192, 128))
        index = index_video(path)
        expected = FrameReader(path, index).frames(np.arange(24))
        size = path.stat().st_size
        num_refused = 0
        for position in range(size // 5, size // 2, size // 8):
            broken = zeroed(path, tmp_path / "broken.mkv", position, 40)
            index = index_video(broken)
            for number in range(24 if index.num_frames == 24 else 0):
                reader = FrameReader(broken, index, num_kept=8)
                for wanted in (number, max(number - 1, 0)):
                    try:
                        np.testing.assert_array_equal(reader.frames([wanted])[0], expected[wanted])
                    except VideoError as error:
                        named = f"Frame {wanted} of the video {str(broken)!r}, at {wanted / 25:.3f} s,"
                        num_refused += str(error).startswith(named)
                reader.close()
        assert num_refused > 10


@pytest.mark.parametrize("is_seeking", [False, True])
def test_frames_after_one_that_the_decoder_drops_in_silence_are_refused(tmp_path: Path, is_seeking: bool) -> None:
    grays = [np.full((64, 96, 3), 8 * number, np.uint8) for number in range(30)]
    path = write_images(tmp_path / "a.mp4", grays, options={"x264-params": "keyint=10:bframes=0"})
    with av.open(str(path)) as container:
        begin, size = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size][13]
    content = np.fromfile(path, np.uint8)
    content[begin + 5 : begin + size] ^= 0xFF
    content.tofile(tmp_path / "broken.mp4")
    reader = FrameReader(tmp_path / "broken.mp4", index_video(tmp_path / "broken.mp4"))
    for number in (12, 14, 13, 19, 20, 15) if is_seeking else (12, 13, 14, 15, 19, 20):
        if 13 <= number < 20:
            with pytest.raises(VideoError, match=f"Frame {number} of the video"):
                reader.frames([number])
        else:
            assert abs(int(reader.frames([number])[0].mean()) - 8 * number) < 4


def test_h264_that_does_not_state_its_reordering_has_all_its_frames(tmp_path: Path) -> None:
    images = [np.full((64, 96, 3), 4 * number, np.uint8) for number in range(60)]
    frames = [av.VideoFrame.from_ndarray(image, format="rgb24").reformat(format="yuv420p") for image in images]
    for frame in frames[1:30]:  # so the decoder learns late that frames are reordered
        frame.pict_type = av.video.frame.PictureType.P
    params = "keyint=250:bframes=7:b-adapt=0:b-pyramid=normal:scenecut=0:repeat-headers=1"
    stated = write_images(tmp_path / "stated.ts", frames, options={"x264-params": params})

    def unstated(number: int, packet: av.Packet) -> av.Packet:
        """Without the last fields of the header, ``bitstream_restriction``."""
        before, mark, rest = bytes(packet).partition(b"\0\0\0\1\x67")
        header, next_mark, behind = rest.partition(b"\0\0\0\1")
        bits = "".join(f"{byte:08b}" for byte in header).rstrip("0")
        bits, count = re.subn(r"1111(0001...){2}(1|01.|001..|0001...){2}1$", "01", bits)
        assert count == bool(mark)
        bits += "0" * (-len(bits) % 8)
        header = bytes(int(bits[place : place + 8], 2) for place in range(0, len(bits), 8))
        written = av.Packet(before + mark + header + next_mark + behind)
        written.pts, written.dts, written.time_base = packet.pts, packet.dts, packet.time_base
        written.is_keyframe = packet.is_keyframe
        return written

    path = copy_packets(stated, tmp_path / "unstated.ts", unstated)
    expected = FrameReader(stated, index_video(stated)).frames(np.arange(60))
    np.testing.assert_array_equal(FrameReader(path, index_video(path)).frames(np.arange(60)), expected)


class TestSizes:
    def with_other_header(self, tmp_path: Path, header: tuple[int, int], frames: tuple[int, int]) -> Path:
        options = {"preset": "veryfast", "x264-params": "keyint=12:bframes=0:repeat-headers=1"}
        sources = [
            make_video(tmp_path / f"{place}.mp4", 30, "libx264", size=size, options=options)
            for place, size in enumerate((header, frames))
        ]
        return copy_packets(sources[1], tmp_path / "both.mp4", header=sources[0])

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
        parts = [make_video(tmp_path / f"{width}.mkv", 5, "mjpeg", size=(width, 64)) for width in (96, 128)]

        def later(number: int, packet: av.Packet) -> av.Packet:
            packet.pts = packet.dts = packet.pts + (200 if number > 5 else 0)  # the last of a file is empty
            return packet

        path = copy_packets(parts, tmp_path / "both.mkv", later)
        index = index_video(path)
        assert read_numbers(FrameReader(path, index).frames([4])) == [4]
        message = r"All frames of a video must have one size, .* from 96 x 64 to 128 x 64"
        for number in (5, 8):
            with pytest.raises(VideoError, match=message):
                FrameReader(path, index).frames([number])
        message = r"both.mkv' changes from 96 x 64 to 128 x 64 pixels after 5 decoded frames, at 0.200 s"
        with VideoStreamDecoder(path) as decoder, pytest.raises(VideoError, match=message):
            list(decoder)


@pytest.mark.parametrize(("lost", "length_s"), [([30], 0.08), ([20, 21, 22, 40], 0.16)])
def test_a_gap_in_regular_times_is_a_warning_with_its_place(
    tmp_path: Path, lost: list[int], length_s: float
) -> None:
    path, first = tmp_path / "a.webm", lost[0]
    make_video(path, 60 - len(lost), times=[40 * frame for frame in range(60) if frame not in lost])
    message = (
        rf"Frames of the video '.*a\.webm' seem to be missing: {length_s:.3f} s between the frames {first - 1} "
        rf"and {first}, at {0.04 * (first - 1):.3f} s, where others are 0.040 s apart\. Or its camera has left "
        r"some out\."
    )
    with pytest.warns(UserWarning, match=message):
        assert index_video(path).num_frames == 60 - len(lost)
    with pytest.warns(UserWarning, match=message):
        VideoFrameDataProvider([path])


def test_times_that_vary_and_cameras_that_leave_frames_out_have_no_gaps(tmp_path: Path) -> None:
    varying = np.cumsum(np.random.default_rng(0).integers(20, 60, 40)).tolist()
    regular = [40 * frame for frame in range(60) if frame not in (10, 20, 30)]
    for times in (varying, regular):
        assert index_video(make_video(tmp_path / "a.webm", len(times), times=times)).num_frames == len(times)
