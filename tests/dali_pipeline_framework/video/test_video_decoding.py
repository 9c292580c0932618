"""Pixels are DALI's, and what cannot be decoded is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
import pytest
from nvidia.dali import fn, types
from nvidia.dali.pipeline import pipeline_def
from support.laws import each_value
from support.videos import copy_packets, damage, make_video, read_numbers, write_images

from accvlab.dali_pipeline_framework.errors import FileError, SettingError, VideoError, error_that_is_also
from accvlab.dali_pipeline_framework.video.frame_converter import Colors, FrameConverter
from accvlab.dali_pipeline_framework.video.video_decoding import VideoStreamDecoder


def dali_frames(path: Path, num_frames: int) -> npt.NDArray[np.uint8]:
    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline() -> object:
        return fn.experimental.readers.video(filenames=[str(path)], sequence_length=num_frames)

    return np.array(pipeline().run()[0][0])


def decoded(
    path: Path,
    image_type: types.DALIImageType = types.DALIImageType.RGB,
    colors: Colors = "stream",
    **settings: int,
) -> npt.NDArray[np.uint8]:
    converter = FrameConverter(image_type, colors)
    with VideoStreamDecoder(path, **settings) as decoder:
        return np.stack([converter.convert(frame) for frame in decoder])


def noise_video(
    path: Path,
    codec: str,
    size: tuple[int, int],
    pixel_format: str,
    colorspace: int,
    color_range: int,
    options: dict[str, str] | None = None,
) -> Path:
    """Sharp colored blocks, which show every difference in the conversion of colors."""
    width, height = size
    generator = np.random.default_rng(0)
    images = []
    for _ in range(4):
        blocks = generator.integers(0, 256, (height // 6 + 1, width // 6 + 1, 3))
        images.append(np.kron(blocks, np.ones((6, 6, 1)))[:height, :width].astype(np.uint8))
    how = {"options": {} if options is None and not codec.startswith("libvpx") else options}
    return write_images(
        path, images, codec, pixel_format=pixel_format, matrix=colorspace, color_range=color_range, **how
    )


BT709, UNKNOWN, BT601, BT2020 = 1, 2, 6, 9
LIMITED, FULL = 1, 2


@each_value(
    kind=[
        ("a.webm", "libvpx-vp9", "yuv420p", UNKNOWN, LIMITED),
        ("a.webm", "libvpx-vp9", "yuv420p", BT709, LIMITED),
        ("a.webm", "libvpx-vp9", "yuv420p", BT709, FULL),
        ("a.webm", "libvpx-vp9", "yuv420p", BT601, LIMITED),
        ("a.webm", "libvpx-vp9", "yuv420p", BT2020, LIMITED),
        ("a.webm", "libvpx-vp9", "yuv444p", UNKNOWN, LIMITED),
        ("a.webm", "libvpx-vp9", "gbrp", UNKNOWN, FULL),
        ("a.webm", "libvpx", "yuv420p", UNKNOWN, LIMITED),
        ("a.avi", "mjpeg", "yuvj420p", UNKNOWN, FULL),
        ("a.avi", "mjpeg", "yuvj422p", UNKNOWN, FULL),
        ("a.mp4", "mjpeg", "yuvj444p", UNKNOWN, FULL),
    ],
    size=[(96, 64), (63, 47), (854, 480)],
)
def test_pixels_are_those_of_dali(
    tmp_path: Path, kind: tuple[str, str, str, int, int], size: tuple[int, int]
) -> None:
    name, codec, pixel_format, colorspace, color_range = kind
    path = noise_video(tmp_path / name, codec, size, pixel_format, colorspace, color_range)
    np.testing.assert_array_equal(decoded(path, colors="dali"), dali_frames(path, 4))


@pytest.mark.parametrize("location", ["left", "topleft"])
def test_location_of_chroma_samples_does_not_count(tmp_path: Path, location: str) -> None:
    options = {"chroma_sample_location": location}
    path = noise_video(tmp_path / "a.webm", "libvpx-vp9", (96, 64), "yuv420p", BT601, LIMITED, options)
    assert b"\x55\xb7" in path.read_bytes()  # ChromaSitingHorz: the file tells it
    np.testing.assert_array_equal(decoded(path, colors="dali"), dali_frames(path, 4))


def test_other_image_types(video: Callable[[str], Path]) -> None:
    path = video("h264_b.mp4")
    rgb = decoded(path, colors="dali")
    np.testing.assert_array_equal(decoded(path, types.DALIImageType.BGR, "dali"), rgb[..., ::-1])
    gray = decoded(path, types.DALIImageType.GRAY, "dali")
    assert gray.shape == (*rgb.shape[:3], 1)
    assert np.abs(gray[..., 0] - rgb @ [0.299, 0.587, 0.114]).max() < 2
    with pytest.raises(SettingError, match="`image_type` must be RGB, BGR or GRAY"):
        FrameConverter(types.DALIImageType.YCbCr)


@pytest.mark.parametrize("kind", ["vp9.webm", "h264_open.mp4", "hevc_open.mkv", "mjpeg.avi"])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_order_is_that_of_presentation(video: Callable[[str], Path], kind: str, num_threads: int) -> None:
    assert read_numbers(decoded(video(kind), num_threads=num_threads)) == [*range(40)]


def test_sources(video: Callable[[str], Path]) -> None:
    path = video("h264_b.mp4")
    frames = decoded(path)
    content = path.read_bytes()
    np.testing.assert_array_equal(decoded(content), frames)  # type: ignore[arg-type]
    with open(path, "rb") as file:
        np.testing.assert_array_equal(decoded(file), frames)  # type: ignore[arg-type]


def test_streams_of_one_container(video: Callable[[str], Path]) -> None:
    path = video("two_streams.mkv")
    assert read_numbers(decoded(path, stream=0)) == [*range(40)]
    assert read_numbers(decoded(path, stream=1)) == [*range(1000, 1040)]


def test_writes_where_it_is_told(video: Callable[[str], Path]) -> None:
    converter = FrameConverter()
    out = np.zeros((2, 64, 96, 3), np.uint8)
    with VideoStreamDecoder(video("vp9.webm")) as decoder:
        frame = decoder.next_frame()
        assert frame is not None
        assert converter.convert(frame, out[1]).base is out
    assert not out[0].any()
    np.testing.assert_array_equal(out[1], decoded(video("vp9.webm"))[0])


def test_sizes_that_change(tmp_path: Path) -> None:
    parts = [make_video(tmp_path / f"{width}.mkv", 5, "mjpeg", size=(width, 64)) for width in (96, 128)]

    def later(number: int, packet: av.Packet) -> av.Packet:
        packet.pts = packet.dts = packet.pts + (1000 if number > 5 else 0)  # the last of a file is empty
        return packet

    path = copy_packets(parts, tmp_path / "both.mkv", later)
    with pytest.raises(
        VideoError, match=r"both.mkv' changes from 96 x 64 to 128 x 64 pixels after 5 decoded frames, at 1.000 s"
    ):
        decoded(path)


@each_value(
    kind=[("a.avi", "mjpeg"), ("a.mp4", "libx264"), ("a.webm", "libvpx-vp9"), ("a.mp4", "libx265")],
    frame=[3, 12, 20],
)
def test_damage_is_named(tmp_path: Path, kind: tuple[str, str], frame: int) -> None:
    name, codec = kind
    path = damage(make_video(tmp_path / name, 30, codec, size=(192, 128)), frame)
    with pytest.raises(
        VideoError, match=rf"Cannot decode '.*{name}' after {frame} decoded frames: .* damaged or incomplete"
    ):
        decoded(path)


def test_after_a_damaged_packet_the_next_ones_are_decoded(tmp_path: Path) -> None:
    path = damage(make_video(tmp_path / "a.avi", 10, "mjpeg", size=(192, 128)), 3)
    found: list[int | None] = []
    with VideoStreamDecoder(path, num_threads=1) as decoder:
        while not found or found[-1] is not None:
            try:
                frame = decoder.next_frame()
                found.append(None if frame is None else int(frame.pts or 0))
            except VideoError:
                found.append(-1)
    assert found == [0, 1, 2, -1, 4, 5, 6, 7, 8, 9, None]


@pytest.mark.parametrize("setting", [{"stream": -1}, {"num_threads": 0}, {"stream": 1.5}])
def test_settings(video: Callable[[str], Path], setting: dict[str, int]) -> None:
    with pytest.raises(SettingError, match=f"`{next(iter(setting))}` must be a whole number"):
        VideoStreamDecoder(video("vp9.webm"), **setting)


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.flv"])
def test_metadata_need_not_be_utf_8(tmp_path: Path, name: str) -> None:
    source = make_video(tmp_path / "source.mp4", 3, "libx264")
    path = copy_packets(source, tmp_path / name, metadata={"title": "Zuerich"})
    path.write_bytes(path.read_bytes().replace(b"Zuerich", b"Z\xfcrich "))
    with VideoStreamDecoder(path) as decoder:
        assert len([*decoder]) == 3


def test_an_error_of_the_system_that_pyav_raises_is_a_file_error() -> None:
    cause = av.error.OSError(5, "Input/output error", "a.mkv")
    error = error_that_is_also(FileError, [cause], "Cannot read the video")
    assert isinstance(error, FileError)
    assert isinstance(error, av.error.OSError)
    assert (str(error), error.errno, error.strerror) == ("Cannot read the video", 5, "Input/output error")
