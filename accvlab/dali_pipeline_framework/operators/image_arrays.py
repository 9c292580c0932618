# SPDX-License-Identifier: Apache-2.0
"""Images as arrays: decoding and resampling as DALI's operators do it.

JPEG files are decoded by libjpeg-turbo, others by OpenCV, which also resamples. OpenCV decodes JPEG files to the
same pixels, but takes 9 to 22 % more processor time (1600 x 900, qualities of 50 to 95, one thread), and has no
unused fourth channel.
"""

from __future__ import annotations

import functools
import math
import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import attrs
import numpy as np
import numpy.typing as npt

from ..errors import FieldValueError
from ..limits.image_limits import claimed_size, no_image_file, pillow_mode, too_large, too_many_pixels
from .array_packages import needed_package
from .functions import Array, cast_array

_Bytes = npt.NDArray[np.uint8]

DECODING_NEEDS = ("cv2", "simplejpeg")
RESAMPLING_NEEDS = ("cv2",)

_JPEG = b"\xff\xd8\xff"
_PNG = b"\x89PNG\r\n\x1a\n"
_TIFF = (b"II*\0", b"MM\0*")
_OTHERS = (
    *(_PNG, b"BM", b"RIFF", *_TIFF, b"\0\0\0\x0cjP  ", b"\xff\x4f\xff\x51"),
    *(b"P1", b"P2", b"P3", b"P4", b"P5", b"P6"),
)
_ORIENTATION_TAG = 0x0112
_EXIF = re.compile(rb"\xff\xe1..Exif\0\0", re.DOTALL)
_MOST_HEAD = 1 << 17  # bytes; Exif data come first, and are at most half of it
_TILE = 256  # in which DALI warps
_COST_OF_ROWS = 1.1  # of a resizing pass along rows, compared to one along columns, in DALI
# Least extent of an image that is decoded at a reduced size: the extent of smaller ones is ambiguous.
_LEAST_REDUCED = 64
# OpenCV rounds coordinates to 1/32 pixel for other numbers of channels, and for int16.
_CHANNELS_AT_ONCE = (4, 3, 1)
_LEAST_FOR_FOURTH = 3 * 64 * 64  # numbers of the output


# --- decoding -------------------------------------------------------------------------------------------


def decoded_image(
    encoded: _Bytes, as_bgr: bool = False, reduction: int = 1, may_have_unused: bool = False
) -> Array:
    """Decode an image file as ``fn.decoders.image`` does.

    Args:
        encoded: ``(num_bytes,)``, the bytes of the file.
        as_bgr: Whether the channels are blue, green, red instead of red, green, blue.
        reduction: 1, 2, 4 or 8, for JPEG only: each axis gets ``ceil(length / reduction)`` pixels.
        may_have_unused: Whether there may be a fourth channel without meaning, which makes resampling cheaper.

    Returns:
        ``(H, W, 3)``, or ``(H, W, 4)``, uint8, turned as its EXIF data say; gray as three equal channels, without
        alpha channel.

    Raises:
        FieldValueError: It is no image, a broken one, or one that claims too many pixels.
        SettingError: A package is not installed.
    """
    problem = no_image_file(encoded)
    if problem:
        raise FieldValueError(f"{problem[0].upper()}{problem[1:]}.")
    problem = too_large(encoded)
    if problem:
        raise FieldValueError(f"No image that may be decoded: {problem}.")
    head = encoded[:12].tobytes()
    if head.startswith(_JPEG):
        return _decoded_jpeg(encoded, as_bgr, reduction, may_have_unused)
    if not head.startswith(_OTHERS):
        raise FieldValueError(f"No image file that can be decoded: shape {encoded.shape}, begins with {head!r}.")
    cv2 = needed_package("cv2")
    is_tiff = head.startswith(_TIFF)
    # OpenCV exchanges the channels of some TIFF files otherwise.
    flags = cv2.IMREAD_UNCHANGED if is_tiff else (cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH)
    image = cv2.imdecode(encoded, flags)
    if image is None:
        raise FieldValueError(f"The image file ({encoded.size} bytes) is broken, or of an unknown kind.")
    if image.ndim == 3 and image.shape[2] == 4:
        raise FieldValueError("TIFF files with an alpha channel cannot be decoded on arrays.")
    if image.dtype == np.uint16:
        image = cv2.convertScaleAbs(image, alpha=1 / 257)
    elif image.dtype != np.uint8:
        image = cast_array(image * np.float32(255), np.uint8)
    if image.ndim == 2:
        return np.asarray(cv2.cvtColor(image, cv2.COLOR_GRAY2BGR))
    return np.asarray(image if as_bgr else cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=image))


def begins_like_image(values: Array) -> bool:
    """Whether an array, of any type and shape, has bytes that begin like an image file."""
    is_bytes = values.ndim == 1 and values.dtype == np.uint8
    return is_bytes and values[:12].tobytes().startswith((_JPEG, *_OTHERS))


def _decoded_jpeg(encoded: _Bytes, as_bgr: bool, reduction: int, may_have_unused: bool) -> Array:
    encoded = np.ascontiguousarray(encoded)
    orientation = image_orientation(encoded)
    height, width, is_cmyk = _header_of_jpeg(encoded)
    least = (0, 0) if reduction == 1 else (-(-height // reduction), -(-width // reduction))
    colors = "CMYK" if is_cmyk else "BGR" if as_bgr else "RGBX" if may_have_unused else "RGB"
    decode = needed_package("simplejpeg").decode_jpeg
    try:
        image = decode(encoded, colors, min_height=least[0], min_width=least[1])
    except ValueError as error:
        raise _broken_jpeg(encoded, error) from error
    image = _rgb_of_cmyk(image, as_bgr) if is_cmyk else np.asarray(image)
    return _turned(image, orientation) if orientation > 1 else image


def _header_of_jpeg(encoded: _Bytes) -> tuple[int, int, bool]:
    """Get height and width as the decoder reads them, and whether the colors are CMYK.

    Raises:
        FieldValueError: It is broken, or claims too many pixels.
    """
    try:
        height, width, colors, _ = needed_package("simplejpeg").decode_jpeg_header(np.ascontiguousarray(encoded))
    except ValueError as error:
        raise _broken_jpeg(encoded, error) from error
    excess = too_many_pixels(height, width)
    if excess:
        raise _broken_jpeg(encoded, f"it claims {excess}")
    return height, width, colors in ("CMYK", "YCCK")


def _rgb_of_cmyk(cmyk: Array, as_bgr: bool) -> Array:
    rgb: Array = (cmyk[..., :3].astype(np.uint16) * cmyk[..., 3:] + 127) // 255
    return np.ascontiguousarray(rgb[..., ::-1] if as_bgr else rgb, np.uint8)


def image_size(encoded: _Bytes) -> tuple[int, int]:
    """Get height and width of the image in a file, ``(num_bytes,)``, turned as its EXIF data say.

    They are read from the header; files whose header does not contain them are decoded.

    Raises:
        FieldValueError: It is no image, a broken one, or one that claims too many pixels.
        SettingError: It has to be decoded, and a package for that is not installed.
    """
    head = encoded[:_MOST_HEAD].tobytes()
    is_jpeg, is_png = head.startswith(_JPEG), head.startswith(_PNG)
    size = claimed_size(encoded)
    if (is_jpeg or is_png) and (size is None or 0 in size):
        raise FieldValueError(f"The image file ({encoded.size} bytes) is broken: its header has no size.")
    may_be_turned = head.startswith(_TIFF) or (is_png and b"eXIf" in head.partition(b"IDAT")[0])
    if size is None or may_be_turned or too_many_pixels(*size):
        height, width = decoded_image(encoded).shape[:2]
        return height, width
    return size[::-1] if is_jpeg and image_orientation(encoded) > 4 else size


@attrs.frozen
class ImageFile:
    """An image file whose size is known.

    Attributes:
        hw: Height and width of the image, ``(2,)`` float32.
        encoded: The bytes of the file, if it is still to be decoded.
        image: The image, if it is decoded; maybe with an unused fourth channel.
    """

    hw: npt.NDArray[np.float32]
    encoded: _Bytes
    image: Array | None

    @classmethod
    def opened(cls, encoded: _Bytes) -> ImageFile:
        """Read the size; decode the image if its header does not contain it."""
        if encoded.ndim == 1 and encoded[:3].tobytes() == _JPEG:
            height, width, is_cmyk = _header_of_jpeg(encoded)
            # A turned image would begin with the pixels at its end, which may be cut off by the reduction.
            if not is_cmyk and image_orientation(encoded) == 1:
                return cls(np.array([height, width], np.float32), encoded, None)
        image = decoded_image(encoded, may_have_unused=True)
        return cls(np.array(image.shape[:2], np.float32), encoded, image)

    def decoded(self, least_scale: float = 1.0) -> DecodedFile:
        """Decode the file, at a reduced size if it will be scaled down enough.

        Raises:
            FieldValueError: It is no image, or a broken one.
        """
        if self.image is not None:
            return DecodedFile(self.image)
        is_large = float(self.hw.min()) >= _LEAST_REDUCED
        reduction = next(each for each in (8, 4, 2, 1) if each == 1 or (is_large and least_scale * each <= 1))
        return DecodedFile(decoded_image(self.encoded, reduction=reduction, may_have_unused=True), reduction)


class DecodedFile(NamedTuple):
    """Decoded image of a file.

    Attributes:
        image: The image; maybe with an unused fourth channel.
        reduction: By how much it is smaller than the file says.
    """

    image: Array
    reduction: int = 1


def _broken_jpeg(encoded: _Bytes, error: object) -> FieldValueError:
    return FieldValueError(f"The JPEG file ({encoded.size} bytes) cannot be decoded: {error}.")


def is_gray_of_16_bits(encoded: _Bytes) -> bool:
    """Whether a file, ``(num_bytes,)``, is an image of one channel of more than 8 bits, as those of depth.

    PNG; with Pillow also TIFF, PNM and JPEG 2000.
    """
    head = encoded[:26].tobytes()  # up to the bit depth and the type of colors
    if head.startswith(_PNG):
        return head[24:] == b"\x10\0"
    return pillow_mode(encoded).startswith(("I", "F"))


def image_orientation(jpeg: _Bytes) -> int:
    """Get the orientation in the EXIF data of a JPEG file, 1 to 8; 1 without EXIF data."""
    head = jpeg[:_MOST_HEAD].tobytes().partition(b"\xff\xda")[0]  # up to the pixels
    for found in _EXIF.finditer(head):
        exif = head[found.end() :]
        order = {b"II": "<", b"MM": ">"}.get(exif[:2])
        if order is None:
            continue
        try:
            (position,) = struct.unpack_from(f"{order}I", exif, 4)
            (count,) = struct.unpack_from(f"{order}H", exif, position)
            for entry in range(count):
                tag, kind, _, value = struct.unpack_from(f"{order}HHIH", exif, position + 2 + 12 * entry)
                if tag == _ORIENTATION_TAG:
                    return value if kind == 3 and 1 <= value <= 8 else 1
        except struct.error:
            continue
    return 1


def _turned(image: Array, orientation: int) -> Array:
    """Turn an image upright that is stored with an EXIF orientation."""
    cv2 = needed_package("cv2")
    if orientation > 4:
        image = cv2.transpose(image)
    mirrored = {2: 1, 3: -1, 4: 0, 6: 1, 7: -1, 8: 0}.get(orientation)
    return np.asarray(image if mirrored is None else cv2.flip(image, mirrored))


# --- resampling -----------------------------------------------------------------------------------------


def resampling_tolerance() -> float:
    """Get the largest difference to DALI of an interpolated pixel, as a share of the range from black to white."""
    is_exact = int(needed_package("cv2").__version__.split(".")[0]) >= 5
    return 1.001 / 255 if is_exact else 9 / 255  # 1 / 255, and the rounding of float32


def flipped(image: Array) -> Array:
    """Mirror ``(..., H, W, C)`` left to right."""
    if image.ndim != 3 or image.shape[2] > 4 or image.size == 0:
        return np.ascontiguousarray(image[..., ::-1, :])
    return np.asarray(needed_package("cv2").flip(image, 1)).reshape(image.shape)


def padded(image: Array, axis: int, hw: list[int], fill_value: float) -> Array:
    """Pad an image at the bottom and on the right.

    Args:
        image: The image, of any layout.
        axis: Axis of the height; the axis of the width follows.
        hw: Height and width of the output, at least the size of the image.
        fill_value: Value of the pixels that are added.
    """
    height, width = image.shape[axis : axis + 2]
    if [height, width] == hw:
        return image
    values = image.view(np.uint8) if image.dtype == np.bool_ else image
    added = np.zeros((image.ndim, 2), int)
    added[axis : axis + 2, 1] = hw[0] - height, hw[1] - width
    fill = _fill_of_type(fill_value, values.dtype)
    return np.pad(values, added, constant_values=fill).view(image.dtype)


def with_fill(shape: tuple[int, ...], dtype: np.dtype[Any], fill_value: float) -> Array:
    """Make an image of one value, which is rounded and limited to the type."""
    return np.full(shape, _fill_of_type(fill_value, dtype), dtype)


@functools.lru_cache
def _fill_of_type(fill_value: float, dtype: np.dtype[Any]) -> Any:
    return cast_array(np.float32(fill_value), dtype)


def warped(image: Array, matrix: Array, output_hw: tuple[int, int], fill_value: float, is_mask: bool) -> Array:
    """Warp ``(..., H, W, C)`` by a transformation from the input to the output, ``(2, 3)``.

    Args:
        image: The image.
        matrix: In the coordinates of `image_transform`.
        output_hw: Height and width of the output.
        fill_value: Value of pixels that are outside of the input.
        is_mask: Whether the nearest neighbor is taken.
    """
    output = with_fill((*image.shape[:-3], *output_hw, image.shape[-1]), image.dtype, fill_value)
    inverse = inverse_matrix(matrix)
    if inverse is not None and is_mask:
        _warp_nearest(image, inverse, output)
    elif inverse is not None:
        shifted = inverse.astype(np.float64)  # the center of the first pixel becomes the origin
        shifted[:, 2] += 0.5 * (shifted[:, 0] + shifted[:, 1]) - 0.5
        fill = output.reshape(-1)[:1].tolist() * 4 if output.size else []
        for given, result in _parts(image, output):
            _warp(given, result, shifted, needed_package("cv2").BORDER_CONSTANT, fill)
    return output


def _warp(image: Array, output: Array, matrix: Array, border: int, fill: Sequence[float] = ()) -> None:
    """Interpolate an output at the places in the image that a matrix gives, from center to center of pixels."""
    cv2 = needed_package("cv2")
    how = {"flags": cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, "borderMode": border, "borderValue": fill}
    cv2.warpAffine(image, matrix, output.shape[1::-1], dst=output, **how)


def inverse_matrix(matrix: Array) -> npt.NDArray[np.float32] | None:
    """Invert a transformation, ``(2, 3)`` float32; None if it has no inverse."""
    (a, b, x), (c, d, y) = matrix
    determinant = a * d - b * c
    if determinant == 0:
        return None
    e, f, g, h = d / determinant, -b / determinant, -c / determinant, a / determinant
    return np.array([[e, f, -(e * x + f * y)], [g, h, -(g * x + h * y)]], np.float32)


def _warp_nearest(image: Array, inverse: Array, output: Array) -> None:
    from_x, from_y = (np.floor(_places(row, output.shape[-3:-1])) for row in inverse)
    height, width = image.shape[-3:-1]
    is_inside = (from_x >= 0) & (from_y >= 0) & (from_x < width) & (from_y < height)
    columns, rows = from_x[is_inside].astype(np.intp), from_y[is_inside].astype(np.intp)
    output[..., is_inside, :] = image[..., rows, columns, :]


def _places(row: Array, hw: Sequence[int]) -> npt.NDArray[np.float32]:
    """Compute a coordinate in the input for the center of each pixel of the output, ``(height, width)``.

    It is computed from the coordinate of the previous pixel, and anew for each tile, as DALI does: centers of
    pixels often lie on edges of pixels.
    """
    along_x, along_y, offset = row
    half = np.float32(0.5)
    steps = np.full(hw, along_x, np.float32)
    of_rows = along_y * (np.arange(hw[0], dtype=np.float32) + half)
    for first in range(0, hw[1], _TILE):
        tile = steps[:, first : first + _TILE]
        tile[:, 0] = of_rows + (along_x * (np.float32(first) + half) + offset)
        np.add.accumulate(tile, axis=1, out=tile)
    return steps


def resample_region(image: Array, start: Array, end: Array, output: Array, is_mask: bool) -> None:
    """Resample a region of ``(..., H, W, C)`` to all of an output, as ``fn.resize`` does without antialiasing.

    Args:
        image: The image. Beyond its edge, the pixels at the edge are repeated. It may have an unused channel more
            than the output.
        start: Row and column, in pixels of the image, ``(2,)`` float32, that the first corner shows.
        end: The same for the last corner; less than ``start`` where an axis is mirrored.
        output: ``(..., h, w, C)``, which is written to.
        is_mask: Whether the nearest neighbor is taken.
    """
    if is_mask:
        rows, columns = _nearest(start, end, output.shape[-3:-1], image.shape[-3:-1])
        np.take(np.take(image, rows, axis=-3), columns, axis=-2, out=output)
        return
    cv2 = needed_package("cv2")
    (top, left), (bottom, right) = start.tolist(), end.tolist()
    height, width = output.shape[-3:-1]
    is_all = (top, left, bottom, right) == (0, 0, *image.shape[-3:-1])
    scale_y, scale_x = (bottom - top) / height, (right - left) / width
    needed_rows, needed_columns = map(_needed, start.tolist(), end.tolist(), image.shape[-3:-1])
    if not is_all:
        image = image[..., needed_rows, needed_columns, :]
    matrix = np.array(
        [
            [scale_x, 0, left - needed_columns.start + 0.5 * scale_x - 0.5],
            [0, scale_y, top - needed_rows.start + 0.5 * scale_y - 0.5],
        ]
    )
    for given, result in _parts(image, output):
        if is_all:
            cv2.resize(given, (width, height), dst=result, interpolation=cv2.INTER_LINEAR)
        else:
            _warp(given, result, matrix, cv2.BORDER_REPLICATE)


def _needed(start: float, end: float, length: int) -> slice:
    """Get the pixels along an axis that interpolation in a region needs."""
    first = max(0, min(length - 1, math.floor(min(start, end)) - 2))
    return slice(first, min(length, max(1, math.ceil(max(start, end)) + 2)))


def _nearest(
    start: Array, end: Array, hw: Sequence[int], image_hw: Sequence[int]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Get the nearest row and column of the input for each row and column of the output.

    Centers of pixels often lie on edges of pixels. So values are rounded as in DALI, which makes a pass along each
    axis, and the second one in the part that the first one has left: along rows, each place is computed by itself;
    along columns, from the one before. Only where the center of a pixel lies on the edge of the image, DALI may
    take a label of another row.
    """
    scale = (end - start) / np.array(hw, np.float32)
    half = np.float32(0.5)
    first = np.maximum(np.floor(np.minimum(start, end)), 0)
    last = np.minimum(np.ceil(np.maximum(start, end) + 1), np.array(image_hw, np.float32))
    height, width = (last - first).tolist()
    # What DALI takes for the cost of both orders.
    is_row_first = _COST_OF_ROWS * (height * hw[1] - hw[0] * hw[1]) < hw[0] * width - hw[0] * hw[1]
    row_origin, column_origin = (first[0], 0) if is_row_first else (0, first[1])
    columns = (start[1] - column_origin) + (np.arange(hw[1], dtype=np.float32) + half) * scale[1]
    rows = np.full(hw[0], scale[0], np.float32)
    rows[0] = (start[0] - row_origin) + half * scale[0]
    np.add.accumulate(rows, out=rows)
    places = zip((np.floor(rows) + row_origin, np.floor(columns) + column_origin), image_hw, strict=True)
    nearest_row, nearest_column = (np.clip(each, 0, length - 1).astype(np.intp) for each, length in places)
    return nearest_row, nearest_column


def _gains_by_fourth(image: Array, output: Array) -> bool:
    """Whether adding a channel costs less than OpenCV needs more for pixels of three channels: twice the time."""
    return image.shape[2] == 3 and output.size >= max(_LEAST_FOR_FOURTH, image.size // 16)


def _parts(image: Array, output: Array) -> Iterator[tuple[Array, Array]]:
    """Get images of types and numbers of channels that OpenCV resamples exactly, and the outputs to write to."""
    if output.size == 0 or image.size == 0:
        return
    if image.ndim > 3:
        for given, result in zip(image, output, strict=True):
            yield from _parts(given, result)
        return
    num_channels = image.shape[2]
    if image.dtype == np.uint8 and output.shape[2] == 3 and (num_channels == 4 or _gains_by_fourth(image, output)):
        cv2 = needed_package("cv2")
        result = np.empty((*output.shape[:2], 4), np.uint8)
        yield image if num_channels == 4 else cv2.cvtColor(image, cv2.COLOR_RGB2RGBA), result
        if output.flags.c_contiguous:
            cv2.cvtColor(result, cv2.COLOR_RGBA2RGB, dst=output)
        else:
            output[...] = cv2.cvtColor(result, cv2.COLOR_RGBA2RGB)
        return
    is_whole = image.dtype.kind == "i"
    if num_channels in _CHANNELS_AT_ONCE and not is_whole:
        yield image, output
        return
    first = 0
    while first < num_channels:
        count = next(count for count in _CHANNELS_AT_ONCE if count <= num_channels - first)
        part = np.s_[..., first : first + count]
        given = np.ascontiguousarray(image[part], np.float32 if is_whole else image.dtype)
        result = np.array(output[part], given.dtype)
        yield given, result
        output[part] = np.rint(result) if is_whole else result
        first += count
