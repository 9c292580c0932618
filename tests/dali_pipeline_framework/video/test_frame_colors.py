"""Colors are those that the stream states, by formula and as FFmpeg converts them."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import av.filter
import numpy as np
import numpy.typing as npt
import pytest
from nvidia.dali import fn, types
from nvidia.dali.pipeline import pipeline_def
from support.laws import each_value, spread
from support.refusals import assert_refused
from support.videos import write_images
from video_kinds import VideoOf

from accvlab.dali_pipeline_framework import VideoFrameDataProvider, Videos
from accvlab.dali_pipeline_framework.errors import VideoError
from accvlab.dali_pipeline_framework.video import FrameReader, index_video
from accvlab.dali_pipeline_framework.video.frame_converter import Colors, FrameConverter
from accvlab.dali_pipeline_framework.video.video_decoding import VideoStreamDecoder

BT709, UNSPECIFIED, RESERVED, FCC, BT470BG, BT601, SMPTE240M, YCGCO, BT2020 = 1, 2, 3, 4, 5, 6, 7, 8, 9
LIMITED, FULL = 1, 2
# Shares of red and blue in the luma, as in the recommendations.
SHARES = {
    BT709: (0.2126, 0.0722),
    FCC: (0.30, 0.11),
    BT470BG: (0.299, 0.114),
    BT601: (0.299, 0.114),
    SMPTE240M: (0.212, 0.087),
    BT2020: (0.2627, 0.0593),
}
COLORS = np.array(
    [
        *([0, 0, 0], [255, 255, 255], [128, 128, 128], [255, 0, 0], [0, 255, 0], [0, 0, 255]),
        *([200, 100, 50], [20, 220, 130], [90, 40, 170], [250, 240, 10]),
    ]
)
RGB, GRAY = types.DALIImageType.RGB, types.DALIImageType.GRAY


def encoded(rgb: npt.ArrayLike, matrix: int, color_range: int, num_bits: int = 8) -> npt.NDArray[np.float64]:
    """Y'CbCr of R'G'B' in [0, 255] as numbers of so many bits, not rounded: ``(..., 3)``."""
    red, green, blue = np.moveaxis(np.asarray(rgb, np.float64) / 255, -1, 0)
    of_red, of_blue = SHARES[matrix]
    luma = of_red * red + (1 - of_red - of_blue) * green + of_blue * blue
    blueness, redness = (blue - luma) / (2 - 2 * of_blue), (red - luma) / (2 - 2 * of_red)
    if color_range == FULL:
        most, middle = 2**num_bits - 1, 2 ** (num_bits - 1)
        return np.stack([luma * most, blueness * most + middle, redness * most + middle], axis=-1)
    one = 2.0 ** (num_bits - 8)
    levels = [16 + 219 * luma, 128 + 224 * blueness, 128 + 224 * redness]
    return np.stack([one * level for level in levels], axis=-1)


def plain_frame(
    levels: npt.ArrayLike, pixel_format: str, matrix: int, color_range: int, size: tuple[int, int] = (64, 32)
) -> av.VideoFrame:
    """A frame of one color; levels of its planes."""
    frame = av.VideoFrame(*size, pixel_format)
    for plane, level in zip(frame.planes, np.atleast_1d(levels), strict=True):
        dtype, most = (np.uint16, 1023) if "10le" in pixel_format else (np.uint8, 255)
        np.frombuffer(plane, dtype)[:] = min(round(level), most)
    frame.colorspace, frame.color_range = matrix, color_range
    return frame


def middle_of(pixels: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return pixels[pixels.shape[0] // 2, pixels.shape[1] // 2].astype(np.float64)


@pytest.mark.parametrize("pixel_format", ["yuv420p", "yuvj420p", "yuv422p", "yuv444p", "yuv420p10le"])
@pytest.mark.parametrize("color_range", [LIMITED, FULL])
@pytest.mark.parametrize("matrix", SHARES)
def test_plain_colors(matrix: int, color_range: int, pixel_format: str) -> None:
    converter, luma = FrameConverter(), FrameConverter(GRAY)
    num_bits = 10 if "10le" in pixel_format else 8
    for rgb in COLORS:
        # "yuvj" says that the range is full, whatever else the stream says.
        stated = FULL if pixel_format.startswith("yuvj") else color_range
        levels = encoded(rgb, matrix, stated, num_bits)
        frame = plain_frame(levels, pixel_format, matrix, color_range)
        found = middle_of(converter.convert(frame))
        assert np.abs(found - rgb).max() <= 3, (rgb, found)
        # Gray is the luma itself, without a matrix.
        exact = (
            (levels[0] / (2.0 ** (num_bits - 8)) - 16) * 255 / 219
            if stated == LIMITED
            else levels[0] * 255 / (2**num_bits - 1)
        )
        assert abs(middle_of(luma.convert(frame))[0] - exact) <= 1.5, rgb


def by_ffmpeg(frame: av.VideoFrame) -> npt.NDArray[np.uint8]:
    """What ``ffmpeg -pix_fmt rgb24`` makes of a frame: the same filters."""
    graph = av.filter.Graph()
    source = graph.add_buffer(
        width=frame.width, height=frame.height, format=frame.format, time_base=Fraction(1, 25)
    )
    scaling, chosen, sink = (
        graph.add("scale", "flags=bicubic"),
        graph.add("format", "rgb24"),
        graph.add("buffersink"),
    )
    source.link_to(scaling)
    scaling.link_to(chosen)
    chosen.link_to(sink)
    graph.configure()
    frame.pts = 0
    graph.push(frame)
    plane = graph.pull().planes[0]
    rows = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[: frame.height, : 3 * frame.width]
    return rows.reshape(frame.height, frame.width, 3).copy()


def blocks(size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    width, height = size
    colors = np.random.default_rng(0).integers(0, 256, (height // 6 + 1, width // 6 + 1, 3))
    return np.kron(colors, np.ones((6, 6, 1)))[:height, :width].astype(np.uint8)


@spread("pixel_format", [
    *("yuv420p", "yuvj420p", "yuv422p", "yuv444p", "yuv420p10le", "yuv422p10le", "yuv444p10le", "yuv411p"),
    *("yuva420p", "nv12", "p010le", "gbrp", "gbrp10le", "bgr0"),
], 8)  # fmt: skip
@each_value(
    colors=[(BT709, LIMITED), (BT601, LIMITED), (BT709, FULL), (BT2020, LIMITED), (BT601, 0)],
    size=[(96, 64), (63, 47), (854, 480)],
)
def test_pixels_are_those_of_ffmpeg(pixel_format: str, colors: tuple[int, int], size: tuple[int, int]) -> None:
    frame = av.VideoFrame.from_ndarray(blocks(size), format="rgb24").reformat(format=pixel_format)
    frame.colorspace, frame.color_range = colors
    converter = FrameConverter()
    found = converter.convert(frame)
    np.testing.assert_array_equal(found, by_ffmpeg(frame))
    np.testing.assert_array_equal(converter.convert(frame, np.empty_like(found)), found)
    assert (frame.colorspace, frame.color_range) == colors


@pytest.mark.parametrize(
    ("size", "colors", "matrix"),
    [
        ((1278, 576), "stream", BT601),  # the size decides
        ((1280, 32), "stream", BT709),
        ((64, 578), "stream", BT709),
        ((64, 32), "bt601", BT601),
        ((1280, 32), "bt601", BT601),
    ],
)
def test_without_a_matrix(size: tuple[int, int], colors: Colors, matrix: int) -> None:
    converters = {each: FrameConverter(colors=each) for each in ("stream", colors)}  # as colors may change

    def converted(stated: int, color_range: int, colors: Colors) -> npt.NDArray[np.uint8]:
        levels = encoded([200, 100, 50], BT709, LIMITED)
        frame = plain_frame(levels, "yuv420p", stated, color_range, size)
        return converters[colors].convert(frame)

    for color_range in (0, LIMITED):  # without a range it is limited
        expected = converted(matrix, LIMITED, "stream")
        np.testing.assert_array_equal(converted(UNSPECIFIED, color_range, colors), expected)
    for stated in (BT601, BT709, BT2020):  # what the stream states counts
        expected = converted(stated, LIMITED, "stream")
        np.testing.assert_array_equal(converted(stated, LIMITED, colors), expected)


@pytest.mark.parametrize("image_type", [RGB, GRAY])
def test_gray_by_its_range(image_type: types.DALIImageType) -> None:
    levels = np.arange(256).reshape(16, 16)
    frame = av.VideoFrame(16, 16, "gray")
    plane = frame.planes[0]
    np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[:16, :16] = levels
    limited = np.clip(np.round((levels - 16) * 255 / 219), 0, 255)
    for color_range, expected in ((LIMITED, limited), (FULL, levels), (0, levels)):
        frame.color_range = color_range
        found = FrameConverter(image_type).convert(frame)
        np.testing.assert_array_equal(found, np.repeat(expected[..., None], found.shape[2], axis=2))
        found[:] = 7  # memory of its own
        assert frame.to_ndarray()[3, 3] == 51


@each_value(image_type=[RGB, types.DALIImageType.BGR, GRAY], colors=["stream", "bt601", "dali"])
def test_gray_of_more_than_8_bits_and_codes_of_anything_else_are_refused(image_type: Any, colors: Colors) -> None:
    for pixel_format, lost in (("gray10le", 2), ("gray16be", 8), ("ya16le", 8)):
        frame = av.VideoFrame(64, 32, pixel_format)
        words = (
            f"its pixels are gray of {8 + lost} bits ({pixel_format}), as those of depth, and 8 bits would lose "
            f"{lost} of them. Read its codes: FrameReader(..., as_codes=True); or encode it anew with 8 bits."
        )
        assert_refused(lambda frame=frame: FrameConverter(image_type, colors).convert(frame), words, VideoError)
    for pixel_format in ("yuv420p", "grayf32le"):
        frame = av.VideoFrame(64, 32, pixel_format)
        words = f"codes of depth must be gray of at most 16 bits, but its pixels are {pixel_format}."
        assert_refused(lambda frame=frame: FrameConverter(as_codes=True).convert(frame), words, VideoError)


@each_value(kind=[("gray", 8), ("gray9le", 9), ("gray12le", 12), ("gray16be", 16)], width=[64, 61])
def test_codes_are_those_of_the_stream(kind: tuple[str, int], width: int) -> None:
    pixel_format, num_bits = kind
    frame = av.VideoFrame(width, 32, pixel_format)
    frame.color_range = LIMITED  # does not count
    codes = np.random.default_rng(num_bits).integers(0, 1 << num_bits, (32, width)).astype(np.uint16)
    plane = frame.planes[0]
    dtype = np.dtype(np.uint8 if num_bits == 8 else ">u2" if pixel_format.endswith("be") else "<u2")
    np.frombuffer(plane, dtype).reshape(-1, plane.line_size // dtype.itemsize)[:32, :width] = codes
    found = FrameConverter(as_codes=True).convert(frame)
    assert found.dtype == np.uint16
    np.testing.assert_array_equal(found, codes[..., np.newaxis])


def test_codes_of_videos_are_read_in_any_order(tmp_path: Path) -> None:
    path, codes = tmp_path / "depth.mkv", [64, 66, 2048, 2050, 4040]
    images = [np.full((64, 96), code, np.uint16) for code in codes]
    frames = [av.VideoFrame.from_ndarray(image, format="gray12le") for image in images]
    write_images(path, frames, "ffv1", pixel_format="gray12le")
    reader = FrameReader(path, index_video(path), as_codes=True, num_kept=2)
    for numbers in ([4, 0, 1, 1], [2], [3, 2]):
        found = reader.frames(numbers)
        assert (found.dtype, found.shape) == (np.uint16, (len(numbers), 64, 96, 1))
        np.testing.assert_array_equal(
            found, np.broadcast_to(np.take(codes, numbers)[:, None, None, None], found.shape)
        )
    with pytest.raises(
        VideoError, match=r"Frame 0 of the video .* at 0\.000 s, cannot be converted: its pixels are"
    ):
        FrameReader(path, index_video(path)).frames([0])


@pytest.mark.parametrize("suffix", ["webm", "mp4"])
def test_colors_that_only_the_container_states_count(suffix: str, tmp_path: Path) -> None:
    plain, stated = tmp_path / f"plain.{suffix}", tmp_path / f"stated.{suffix}"
    write_images(plain, [np.full((64, 96, 3), (20, 220, 130), np.uint8)] * 3, "libvpx-vp9")
    with av.open(str(plain)) as source, av.open(str(stated), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        context = stream.codec_context
        context.colorspace = context.color_primaries = context.color_trc = BT709
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                target.mux(packet)
    found = {}
    for path, matrix in ((plain, UNSPECIFIED), (stated, BT709)):
        index = index_video(path)
        assert index.color_matrix == matrix
        for colors in ("stream", "bt601"):
            found[path, colors] = FrameReader(path, index, colors=colors).frames([2])[0, 30, 40].astype(int)
    assert np.abs(found[plain, "stream"] - (20, 220, 130)).max() <= 3
    assert (found[stated, "stream"] == found[stated, "bt601"]).all()
    as_bt709 = FrameConverter().convert(
        plain_frame(encoded((20, 220, 130), BT601, LIMITED), "yuv420p", BT709, LIMITED)
    )
    assert np.abs(found[stated, "stream"] - middle_of(as_bt709)).max() <= 3
    assert np.abs(found[stated, "stream"] - found[plain, "stream"]).max() > 15


# --- streams ----------------------------------------------------------------------------------------------


def colored_video(path: Path, matrix: int, color_range: int) -> Path:
    """Five frames of one color, (200, 60, 90), of 64 x 32 pixels."""
    levels = encoded([200, 60, 90], matrix if matrix in SHARES else BT601, color_range)
    frames = [plain_frame(levels, "yuv420p", matrix, color_range) for _ in range(5)]
    return write_images(path, frames, matrix=matrix, color_range=color_range)


def decoded(path: Path, colors: Colors = "stream", image_type: Any = RGB) -> npt.NDArray[np.uint8]:
    converter = FrameConverter(image_type, colors)
    with VideoStreamDecoder(path) as decoder:
        return np.stack([converter.convert(frame) for frame in decoder])


def dali_frames(path: Path) -> npt.NDArray[np.uint8]:
    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline() -> object:
        return fn.experimental.readers.video(filenames=[str(path)], sequence_length=4)

    return np.array(pipeline().run()[0][0])


@each_value(
    kind=[
        ("a.webm", "libvpx-vp9", "yuv420p", UNSPECIFIED, LIMITED),
        ("a.webm", "libvpx-vp9", "yuv420p", BT709, FULL),
        ("a.webm", "libvpx-vp9", "yuv420p", BT2020, LIMITED),
        ("a.webm", "libvpx-vp9", "yuv444p", UNSPECIFIED, LIMITED),
        ("a.webm", "libvpx-vp9", "gbrp", UNSPECIFIED, FULL),
        ("a.webm", "libvpx", "yuv420p", UNSPECIFIED, LIMITED),
        ("a.avi", "mjpeg", "yuvj420p", UNSPECIFIED, FULL),
        ("a.mp4", "mjpeg", "yuvj444p", UNSPECIFIED, FULL),
    ],
    size=[(96, 64), (63, 47)],
)
def test_pixels_can_be_those_of_dali(
    tmp_path: Path, kind: tuple[str, str, str, int, int], size: tuple[int, int]
) -> None:
    name, codec, pixel_format, matrix, color_range = kind
    images = [np.roll(blocks(size), 5 * number, axis=1) for number in range(4)]
    how = {"options": None if codec.startswith("libvpx") else {}, "matrix": matrix, "color_range": color_range}
    path = write_images(tmp_path / name, images, codec, pixel_format=pixel_format, **how)
    np.testing.assert_array_equal(decoded(path, "dali"), dali_frames(path))


def test_other_image_types(video: VideoOf) -> None:
    path = video("h264_b.mp4")
    rgb = decoded(path, "dali")
    np.testing.assert_array_equal(decoded(path, "dali", types.DALIImageType.BGR), rgb[..., ::-1])
    gray = decoded(path, "dali", GRAY)
    assert gray.shape == (*rgb.shape[:3], 1)
    assert np.abs(gray[..., 0] - rgb @ [0.299, 0.587, 0.114]).max() < 2
    assert_refused(lambda: FrameConverter(types.DALIImageType.YCbCr), "`image_type` must be RGB, BGR or GRAY")


@pytest.mark.parametrize(
    ("codec", "pixel_format", "size", "options", "colors"),
    [
        ("libx264", "yuv420p", (96, 64), {"x264-params": "interlaced=1:tff=1"}, (BT709, LIMITED)),
        # The decoder says that chroma samples lie on the left.
        ("libx264", "yuv420p10le", (96, 64), {}, (BT601, FULL)),
        ("libx264", "yuv422p10le", (98, 62), {}, (UNSPECIFIED, 0)),
        ("libx265", "yuv420p10le", (96, 64), {"x265-params": "log-level=none"}, (BT709, FULL)),
        ("libvpx-vp9", "yuv420p", (64, 48), {"chroma_sample_location": "topleft"}, (BT2020, LIMITED)),
        ("libsvtav1", "yuv420p", (96, 64), {}, (BT709, FULL)),
        ("ffv1", "yuv411p", (63, 47), {}, (BT2020, LIMITED)),
        ("mjpeg", "yuvj420p", (63, 47), {}, (BT470BG, FULL)),
    ],
)
def test_decoded_pixels_are_those_of_ffmpeg(
    tmp_path: Path,
    codec: str,
    pixel_format: str,
    size: tuple[int, int],
    options: dict[str, str],
    colors: tuple[int, int],
) -> None:
    images = [np.roll(blocks(size), 5 * number, axis=1) for number in range(3)]
    how: dict[str, Any] = {"options": options, "pixel_format": pixel_format}
    path = write_images(tmp_path / "a.mkv", images, codec, matrix=colors[0], color_range=colors[1], **how)
    with VideoStreamDecoder(path) as decoder:
        frames = [(FrameConverter().convert(frame), by_ffmpeg(frame)) for frame in decoder]
        assert decoder.color_matrix == colors[0]
    assert len(frames) == 3
    np.testing.assert_array_equal(*zip(*frames, strict=True))


def test_unknown_matrices(tmp_path: Path) -> None:
    path = colored_video(tmp_path / "a.mp4", YCGCO, LIMITED)
    rule = (
        r"Frame 2 of the video '.*a\.mp4', at 0\.080 s, cannot be converted: its color matrix must be one of "
        r"1, 4, 5, 6, 7, 9 of ISO/IEC 23091-2, got 8\. .* colors=\"dali\""
    )
    with pytest.raises(VideoError, match=rule):
        VideoFrameDataProvider(path).get_data(2)
    as_dali = VideoFrameDataProvider(Videos(path, colors="dali")).get_data(2)["image"]
    np.testing.assert_array_equal(as_dali, decoded(path, "dali")[2])


@each_value(properties=[(RESERVED, LIMITED), (0, LIMITED), (200, LIMITED), (BT709, 3)], image_type=[RGB, GRAY])
def test_values_that_are_none(properties: tuple[int, int], image_type: types.DALIImageType) -> None:
    frame = plain_frame([100, 128, 128], "yuv420p", *properties)
    wrong = properties[1] if properties[0] == BT709 else properties[0]
    with pytest.raises(VideoError, match=f"must be .*, got {wrong}. Correct what the stream states"):
        FrameConverter(image_type).convert(frame)
