# SPDX-License-Identifier: Apache-2.0
"""Decoding only a part of a JPEG file, by nvImageCodec, a package that comes with DALI."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

_Bytes: TypeAlias = npt.NDArray[np.uint8]
_Decode: TypeAlias = Callable[[_Bytes, "ImagePart"], Any]

_END = b"\xff\xd9"
# Where less is left out, nvImageCodec needs more time than simplejpeg, which gives four channels at once.
_MOST_SHARE = 0.75
_LEAST_LEFT_OUT = 1 << 15  # pixels


class ImagePart(NamedTuple):
    """Rows ``[top, bottom)`` and columns ``[left, right)`` of an image, at least one pixel."""

    top: int
    left: int
    bottom: int
    right: int

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width."""
        return self.bottom - self.top, self.right - self.left

    def saves_time(self, hw: tuple[int, int]) -> bool:
        """Whether decoding only this costs less than decoding all of an image of a height and width."""
        height, width = self.shape
        all_pixels = hw[0] * hw[1]
        return height * width <= min(_MOST_SHARE * all_pixels, all_pixels - _LEAST_LEFT_OUT)


def decoded_part(jpeg: _Bytes, part: ImagePart) -> npt.NDArray[np.uint8] | None:
    """Decode a part of a JPEG file to the pixels that libjpeg-turbo gives for it.

    What lies behind the part is not looked at, so damages there are not noticed; a file without an end is refused.

    Args:
        jpeg: ``(num_bytes,)``, the bytes of the file, contiguous; not CMYK.
        part: Within the image as it is stored; its EXIF orientation is ignored.

    Returns:
        ``(h, w, 3)``, red, green, blue; None where that cannot be done, for whatever reason.
    """
    decode = _decoder_of_thread() if jpeg[-2:].tobytes() == _END else None
    if decode is None:
        return None
    try:
        decoded = decode(jpeg, part)
    except Exception:  # the caller decodes all of the file, and tells what is wrong with it
        return None
    if decoded is None:
        return None
    image = np.asarray(decoded)
    return image if image.dtype == np.uint8 and image.shape == (*part.shape, 3) else None


class _OfThread(threading.local):
    """The decoder of a thread, in each process: one that is forked inherits decoders, but no threads of theirs."""

    def __init__(self) -> None:
        self.by_process: dict[int, _Decode | None] = {}


_of_thread = _OfThread()


def _decoder_of_thread() -> _Decode | None:
    decoders, process = _of_thread.by_process, os.getpid()
    if process not in decoders:
        try:
            decoders[process] = _new_decoder()
        except Exception:  # not installed, another version, a library that cannot be loaded
            decoders[process] = None
    return decoders[process]


def _new_decoder() -> _Decode:
    # No context of CUDA is made by this, also where there is a GPU. Imported where a file is decoded, so that
    # processes that decode none do not load its libraries.
    nvimgcodec = importlib.import_module("nvidia.nvimgcodec")
    decoder = nvimgcodec.Decoder(
        device_id=nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY,
        max_num_cpu_threads=1,
        backends=[nvimgcodec.Backend(nvimgcodec.BackendKind.CPU_ONLY)],
    )
    params = nvimgcodec.DecodeParams(color_spec=nvimgcodec.ColorSpec.SRGB, apply_exif_orientation=False)
    stream_of, region_of = nvimgcodec.CodeStream, nvimgcodec.Region

    def decode(jpeg: _Bytes, part: ImagePart) -> Any:
        return decoder.decode(stream_of(jpeg).get_sub_code_stream(region=region_of(*part)), params=params)

    return decode
