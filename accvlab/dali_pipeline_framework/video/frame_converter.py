# SPDX-License-Identifier: Apache-2.0
"""Conversion of decoded video frames to arrays of pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ..checks import choice, shown
from ..errors import SettingError, VideoError
from .frame_memory import let_malloc_keep_frames
from .video_decoding import UInt8Array, import_av

if TYPE_CHECKING:
    import av

PixelArray: TypeAlias = npt.NDArray[Any]  # uint8; codes uint16
Colors: TypeAlias = Literal["stream", "bt601", "dali"]

_PIXEL_FORMATS = {
    types.DALIImageType.RGB: ("rgb24", 3),
    types.DALIImageType.BGR: ("bgr24", 3),
    types.DALIImageType.GRAY: ("gray", 1),
}
# SWS_BICUBIC, as `ffmpeg -pix_fmt rgb24` has it. PyAV's default, SWS_BILINEAR, gives other colors where libswscale
# interpolates: with 10 bits, or an odd height.
_SCALER_FLAGS = 0x4
# What DALI 2.4 passes to libswscale: SWS_BILINEAR | SWS_FULL_CHR_H_INT | SWS_ACCURATE_RND, and BT.601
# (SWS_CS_ITU601) whatever the stream says. Another value changes the pixels.
_DALI_SCALER_FLAGS = 0x2 | 0x2000 | 0x40000

# Formats that libswscale converts pixel by pixel, where the height is even.
_DIRECT_FORMATS = ("yuv420p", "yuvj420p", "yuva420p", "yuv422p", "yuvj422p")

_BT709, _UNSPECIFIED, _BT601 = 1, 2, 5
# Color matrices by their numbers in streams (ISO/IEC 23091-2), and libswscale's numbers (SWS_CS_...) for them.
_MATRICES = {_BT709: 1, 4: 4, _BT601: 5, 6: 5, 7: 7, 9: 9}
_NAMES = {_BT709: "bt709", 4: "fcc", 7: "smpte240m", 9: "bt2020"}
_LIMITED, _FULL = 1, 2
_RANGES = (0, _LIMITED, _FULL)  # 0: unspecified
_LARGEST_BT601 = 1279, 576  # width and height, where the stream has no matrix: the rule of mpv

_FULL_OF_LIMITED: UInt8Array = np.clip((np.arange(256) - 16) * (255 / 219), 0, 255).round().astype(np.uint8)


class FrameConverter:
    """Makes arrays of decoded frames.

    With ``colors="stream"`` each frame is converted by the color matrix and the range of values that its stream
    states: BT.601, BT.709, BT.2020 (not of constant luminance), FCC or SMPTE 240M; limited or full. A missing
    matrix counts as BT.709 from a width of 1280 or a height of 577 pixels on, else as BT.601; a missing range
    counts as limited (of gray and RGB as full). The pixels equal ``ffmpeg -pix_fmt rgb24``, except that FFmpeg
    takes BT.601 if the stream states no matrix, and always a full range for gray.

    ``colors="bt601"`` is the same but for streams without a matrix: these are converted by BT.601 whatever their
    size, as PyAV, OpenCV and FFmpeg write and read them. Many recordings of robots and vehicles state no matrix.

    With ``colors="dali"`` the pixels equal DALI's decoding on the CPU: BT.601 coefficients, the value range of the
    stream, and chroma samples in the middle of their pixels, whatever else the stream says. RGB frames are
    bit-equal to those of ``fn.experimental.readers.video``, which on the CPU delivers RGB only. The conversion
    takes more than ten times as long.

    Gray videos of more than 8 bits, such as depth, are refused: as 8 bits they would lose their precision.
    ``as_codes`` gives the values of gray videos as they are coded.

    Attributes:
        quarter_turns: How many times frames are turned clockwise by 90 degrees.
        is_mirrored: Whether frames are mirrored left to right before they are turned.
    """

    def __init__(
        self,
        image_type: types.DALIImageType = types.DALIImageType.RGB,
        colors: Colors = "stream",
        *,
        as_codes: bool = False,
    ) -> None:
        """Choose type and colors of the converted frames.

        Args:
            image_type: ``RGB``, ``BGR``, or ``GRAY`` (the luma, in [0, 255]).
            colors: How colors are converted, see the class.
            as_codes: In place of type and colors, the values of gray videos as they are coded, uint16 of one
                channel, whatever range of values the stream states.

        Raises:
            SettingError: There is no such choice.
        """
        if not isinstance(image_type, types.DALIImageType) or image_type not in _PIXEL_FORMATS:
            raise SettingError(f"`image_type` must be RGB, BGR or GRAY of DALIImageType, got {shown(image_type)}.")
        self._pixel_format, self.num_channels = _PIXEL_FORMATS[image_type]
        self._colors: Colors = choice(colors, "colors", ("stream", "bt601", "dali"))
        self._as_codes = as_codes
        self.dtype = np.dtype(np.uint16 if as_codes else np.uint8)
        if as_codes:
            self.num_channels = 1
        self.quarter_turns, self.is_mirrored = 0, False
        self._reformatter: Any = None
        self._copy: av.VideoFrame | None = None

    def convert(self, frame: av.VideoFrame, out: PixelArray | None = None) -> PixelArray:
        """Convert a frame to ``(height, width, C)`` uint8; ``C`` is 3, or 1 with ``GRAY``. Codes are uint16.

        The result is written to ``out``, an array of the shape of the result, with contiguous pixels. Without
        ``out``, the result is a new array, which can have padding between its rows.

        Raises:
            VideoError: The stream states a color matrix or range that is not known, or is gray of more than 8
                bits, or is not gray where codes are requested.
        """
        if self._reformatter is None:
            let_malloc_keep_frames()
            self._reformatter = import_av().video.reformatter.VideoReformatter()
        pixels: PixelArray = _codes(frame) if self._as_codes else self._colored(frame)
        if self.is_mirrored:
            pixels = pixels[:, ::-1]
        if self.quarter_turns:
            pixels = np.rot90(pixels, -self.quarter_turns)
        if out is None:
            return pixels
        np.copyto(out, pixels)
        return out

    def _colored(self, frame: av.VideoFrame) -> UInt8Array:
        _require_8_bits(frame)
        name, is_as_dali = frame.format.name, self._colors == "dali"
        matrix = _matrix_of(frame, self._colors)
        if matrix is not None and self.num_channels == 1:
            # The luma as it is. With another matrix libswscale computes that of BT.601 from RGB.
            matrix = _MATRICES[_BT601]
        is_direct = name in _DIRECT_FORMATS and frame.height % 2 == 0 and not frame.interlaced_frame
        is_limited_gray = name.startswith(("gray", "ya")) and frame.color_range == _LIMITED
        if is_as_dali or not is_direct:
            frame = self._without_chroma_location(frame)
        converted = self._reformatter.reformat(
            frame,
            format=self._pixel_format,
            interpolation=_DALI_SCALER_FLAGS if is_as_dali else _SCALER_FLAGS,
            src_colorspace=matrix,
            dst_colorspace=matrix,
            threads=0 if is_as_dali else 1,  # 0: as many as there are processors
        )
        width, depth = converted.width, self.num_channels
        pixels = _rows(converted.planes[0])[: converted.height, : width * depth].reshape(-1, width, depth)
        # libswscale takes the range of gray for a full one, whatever the stream says.
        if is_limited_gray and not is_as_dali:
            return _FULL_OF_LIMITED[pixels]
        # Gray that needs no conversion lies in the decoder's own frame, to which others may refer.
        return pixels.copy() if converted is frame else pixels

    def _without_chroma_location(self, frame: av.VideoFrame) -> av.VideoFrame:
        width, height, name = frame.width, frame.height, frame.format.name
        if all((part.width, part.height) == (width, height) for part in frame.format.components):
            return frame
        # PyAV passes on to libswscale where the chroma samples lie, and that a frame is interlaced. DALI and
        # FFmpeg's programs do not, and PyAV has no setting for it: a frame of our own has neither.
        copy = self._copy
        if copy is None or (copy.width, copy.height, copy.format.name) != (width, height, name):
            copy = self._copy = type(frame)(width, height, name)
        copy.color_range = frame.color_range
        for source, target in zip(frame.planes, copy.planes, strict=True):
            from_rows, to_rows = _rows(source), _rows(target)
            num_rows = min(len(from_rows), len(to_rows))
            num_bytes = min(from_rows.shape[1], to_rows.shape[1])
            np.copyto(to_rows[:num_rows, :num_bytes], from_rows[:num_rows, :num_bytes])
        return copy


def _codes(frame: av.VideoFrame) -> PixelArray:
    name, bits = frame.format.name, frame.format.components[0].bits
    if not name.startswith("gray") or not bits <= 16:
        raise VideoError(
            f"codes of depth must be gray of at most 16 bits, but its pixels are {name}. Correct what declares it "
            f"as depth, or encode it anew, e.g. as gray12le."
        )
    rows = _rows(frame.planes[0])
    if bits > 8:
        rows = rows.view(">u2" if frame.format.is_big_endian else "<u2")
    return rows[: frame.height, : frame.width, np.newaxis].astype(np.uint16)


def _require_8_bits(frame: av.VideoFrame) -> None:
    name, bits = frame.format.name, frame.format.components[0].bits
    if name.startswith(("gray", "ya")) and bits > 8:
        raise VideoError(
            f"its pixels are gray of {bits} bits ({name}), as those of depth, and 8 bits would lose {bits - 8} of "
            f"them. Read its codes: FrameReader(..., as_codes=True); or encode it anew with 8 bits."
        )


def matrix_name(number: int, pixel_format: str, width: int, height: int, colors: Colors = "stream") -> str:
    """Name the color matrix by which frames are converted; empty for BT.601, where it is not known, and of RGB.

    It is ``"bt601"`` where only ``colors`` decides that, so that who decodes the frames elsewhere knows it.

    Args:
        number: What the stream states.
        pixel_format: FFmpeg's name for the format of the pixels.
        width: Width of the frames.
        height: Height of the frames.
        colors: How colors are converted, see `FrameConverter`.
    """
    if not pixel_format.startswith(("yuv", "nv", "p0")):
        return ""
    name = _NAMES.get(_assumed(number, width, height, "stream"), "")
    return "bt601" if name and colors == "bt601" and number == _UNSPECIFIED else name


def _assumed(matrix: int, width: int, height: int, colors: Colors) -> int:
    if matrix != _UNSPECIFIED:
        return matrix
    is_small = width <= _LARGEST_BT601[0] and height <= _LARGEST_BT601[1]
    return _BT601 if colors == "bt601" or is_small else _BT709


def _matrix_of(frame: av.VideoFrame, colors: Colors) -> int | None:
    """Get libswscale's number of the color matrix by which a frame is converted; None if its pixels are RGB."""
    if colors == "dali":
        return _MATRICES[_BT601]
    matrix, color_range = frame.colorspace, frame.color_range
    advice = 'Correct what the stream states, or pass colors="dali", which converts all by BT.601.'
    if color_range not in _RANGES:
        raise VideoError(f"its range of values must be limited (1) or full (2), got {color_range}. {advice}")
    if frame.format.is_rgb or frame.format.has_palette:
        return None
    matrix = _assumed(matrix, frame.width, frame.height, colors)
    if matrix not in _MATRICES:
        known = ", ".join(map(str, _MATRICES))
        raise VideoError(f"its color matrix must be one of {known} of ISO/IEC 23091-2, got {matrix}. {advice}")
    return _MATRICES[matrix]


def _rows(plane: Any) -> UInt8Array:
    """View a plane as ``(rows, bytes per row)``; rows end with padding."""
    return np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
