"""Files with several video streams, and videos that players turn."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from support.refusals import assert_refused
from support.videos import write_images
from support.warnings_of_product import of_product

from accvlab.dali_pipeline_framework import DALIStructuredOutputIterator, PipelineDefinition
from accvlab.dali_pipeline_framework.errors import SettingError, VideoError
from accvlab.dali_pipeline_framework.video import (
    FrameReader,
    VideoFrameDataProvider,
    Videos,
    VideoStreamInput,
    cached_video_index,
    index_video,
)

HEIGHT, WIDTH = 48, 96
# Of `tkhd` in MP4: what players do to the frames, by degrees clockwise.
MATRICES = {0: (1, 0, 0, 1), 90: (0, 1, -1, 0), 180: (-1, 0, 0, -1), 270: (0, -1, 1, 0)}


def pictures(number: int) -> np.ndarray[Any, Any]:
    """A picture with a bright quarter at its upper left, brighter with each frame."""
    pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    pixels[: HEIGHT // 2, : WIDTH // 2] = 100 + 10 * number
    return pixels


def write(path: Path, streams: Sequence[tuple[int, int, int]], dispositions: Sequence[int] | None = None) -> Path:
    """Write a video with streams of MJPEG, each with a height, a width, and a gray level of all its frames."""
    with av.open(str(path), "w") as file:
        opened = []
        for number, (height, width, _) in enumerate(streams):
            stream = file.add_stream("mjpeg", rate=10)
            stream.width, stream.height, stream.pix_fmt = width, height, "yuvj420p"
            if dispositions is not None:
                stream.disposition = dispositions[number]
            opened.append(stream)
        for stream, (height, width, level) in zip(opened, streams, strict=True):
            for _ in range(1 if stream.disposition & av.stream.Disposition.attached_pic else 4):
                frame = av.VideoFrame.from_ndarray(np.full((height, width, 3), level, np.uint8), format="rgb24")
                file.mux(stream.encode(frame))
            file.mux(stream.encode(None))
    return path


def turned(path: Path, degrees: int | tuple[int, ...]) -> Path:
    """Write an MP4 of 4 frames that players turn."""
    write_images(path, [*map(pictures, range(4))], rate=10, options={"crf": "5"})
    content = bytearray(path.read_bytes())
    a, b, c, d = (value << 16 for value in (MATRICES[degrees] if isinstance(degrees, int) else degrees))
    start = content.index(b"tkhd") + 4 + 40
    content[start : start + 36] = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    path.write_bytes(content)
    return path


def level(pixels: Any) -> int:
    return int(round(float(np.mean(pixels)), -1))  # MJPEG is not exact


SMALL, LARGE, SAME = (32, 32, 10), (HEIGHT, WIDTH, 200), (HEIGHT, WIDTH, 90)
COVER, DEFAULT = int(av.stream.Disposition.attached_pic), int(av.stream.Disposition.default)


class TestStreams:
    def test_the_largest_is_read_and_named(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.mkv", [SMALL, LARGE])
        message = r"several video streams \(0: mjpeg 32 x 32, 1: mjpeg 96 x 48; 1 is read.*Name .* with `stream`"
        with pytest.warns(UserWarning, match=message):
            provider = VideoFrameDataProvider([path])
        assert len(provider) == 4
        assert provider.get_data(2)["image"].shape == (HEIGHT, WIDTH, 3)
        assert level(provider.get_data(2)["image"]) == 200

    def test_the_one_that_is_named_is_read_without_a_warning(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.mkv", [SMALL, LARGE])
        for stream, expected in enumerate((SMALL, LARGE)):
            index = index_video(path, stream)
            assert (index.height, index.width) == expected[:2]
            assert level(VideoFrameDataProvider(Videos([path], stream=stream)).get_data(0)["image"]) == expected[2]
        assert_refused(lambda: index_video(path, 2), "0 to 1 in")

    @pytest.mark.parametrize("dispositions", [(0, DEFAULT), (DEFAULT, 0)])
    def test_of_equal_ones_it_is_the_default(self, tmp_path: Path, dispositions: tuple[int, int]) -> None:
        path = write(tmp_path / "a.mkv", [LARGE, SAME], dispositions)
        with pytest.warns(UserWarning, match=f"{dispositions.index(DEFAULT)} is read"):
            provider = VideoFrameDataProvider([path])
        assert level(provider.get_data(1)["image"]) == (LARGE, SAME)[dispositions.index(DEFAULT)][2]

    def test_covers_are_left_out_whatever_their_size(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = write(tmp_path / "a.mp4", [LARGE, SMALL], [COVER, DEFAULT])
        with caplog.at_level("INFO"):
            index = index_video(path)
        assert (index.num_frames, index.height) == (4, 32)
        assert "mjpeg 96 x 48, a cover picture" in caplog.text

    def test_a_cover_alone_is_no_video(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.mp4", [SMALL], [COVER])
        assert_refused(lambda: index_video(path), "its streams are: 0: mjpeg 32 x 32, a cover picture", VideoError)

    def test_the_choice_is_in_the_cache(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.mkv", [SMALL, LARGE])
        for _ in range(2):
            index = cached_video_index(tmp_path / "cache", path)
            assert (index.num_candidates, index.height) == (2, HEIGHT)
            assert "1 is read" in index.other_streams
        assert cached_video_index(tmp_path / "cache", path, 0).height == 32


class TestRotation:
    @pytest.mark.parametrize("degrees", MATRICES)
    def test_is_noticed_and_done(self, tmp_path: Path, degrees: int) -> None:
        path = turned(tmp_path / "a.mp4", degrees)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            provider = VideoFrameDataProvider([path])
        text = "".join(str(each.message) for each in caught)
        advice = f"players turn them by {degrees} degrees clockwise. Turn them with `upright=True`"
        assert (advice in text) == (degrees > 0)
        stored = provider.get_data(1)["image"]
        assert stored.shape == (HEIGHT, WIDTH, 3)
        assert index_video_quietly(path).rotation_deg == degrees
        upright = VideoFrameDataProvider(Videos([path], upright=True)).get_data(1)["image"]
        np.testing.assert_array_equal(upright, np.rot90(stored, -degrees // 90))
        # The bright quarter goes round clockwise.
        height, width = upright.shape[:2]
        quarters = upright.reshape(2, height // 2, 2, width // 2, 3).mean((1, 3, 4))
        brightest = {0: (0, 0), 90: (0, 1), 180: (1, 1), 270: (1, 0)}[degrees]
        assert np.unravel_index(quarters.argmax(), (2, 2)) == brightest
        assert VideoFrameDataProvider(Videos([path], upright=False)).get_data(1)["image"].shape[0] == HEIGHT

    @pytest.mark.parametrize(
        ("matrix", "change"),
        [
            ((-1, 0, 0, 1), lambda pixels: pixels[:, ::-1]),
            ((1, 0, 0, -1), lambda pixels: pixels[::-1]),
            ((0, -1, -1, 0), lambda pixels: np.rot90(pixels.swapaxes(0, 1), 2)),
        ],
    )
    def test_mirrored_videos(self, tmp_path: Path, matrix: tuple[int, ...], change: Any) -> None:
        path = turned(tmp_path / "a.mp4", matrix)
        with pytest.warns(UserWarning, match="players mirror them, and turn them by"):
            stored = VideoFrameDataProvider([path]).get_data(1)["image"]
        upright = VideoFrameDataProvider(Videos([path], upright=True)).get_data(1)["image"]
        np.testing.assert_array_equal(upright, change(stored))

    def test_by_other_angles_cannot_be_done_and_is_not_advised(self, tmp_path: Path) -> None:
        path = turned(tmp_path / "a.mp4", (1, 1, -1, 1))
        with pytest.warns(UserWarning, match=r"by 45 degrees clockwise\. `upright=False` says") as caught:
            VideoFrameDataProvider([path])
        assert "`upright=True`" not in str(of_product(caught)[0].message)
        with pytest.raises(VideoError, match="multiples of 90 degrees"):
            VideoFrameDataProvider(Videos([path], upright=True)).get_data(0)

    def test_of_a_fed_video(self, tmp_path: Path) -> None:
        path = turned(tmp_path / "a.mp4", 270)
        stored = FrameReader(path, index_video_quietly(path)).frames(range(4))
        stream = VideoStreamInput(4, upright=True)
        stream.feed(path)
        with pytest.warns(UserWarning, match="several video streams"):
            stream.feed(write(tmp_path / "a.mkv", [SMALL, LARGE]))
        stream.close()
        pipeline = PipelineDefinition(stream).get_dali_pipeline(batch_size=1)
        upright, largest = DALIStructuredOutputIterator(pipeline=pipeline, output_type="numpy")
        assert largest["frames"].shape == (1, 4, HEIGHT, WIDTH, 3)
        np.testing.assert_array_equal(upright["frames"][0], np.rot90(stored, 1, axes=(1, 2)))

    def test_is_told_once_for_all_videos_and_needs_decoded_images(self, tmp_path: Path) -> None:
        paths = [turned(tmp_path / f"{number}.mp4", 90) for number in range(3)]
        with pytest.warns(UserWarning, match="players turn them") as caught:
            VideoFrameDataProvider(paths)
        assert len(of_product(caught)) == 1
        with pytest.raises(SettingError, match=r"`upright=True` turns decoded frames"):
            VideoFrameDataProvider(Videos(paths, upright=True), images="encoded")


def index_video_quietly(path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return index_video(path)
