# SPDX-License-Identifier: Apache-2.0
"""Which encoded videos the graph can decode, and their colors there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ..checks import listed
from ..engine.dali.gpus import NO_VIDEO_LIBRARY, Capability, gpu_facts

_HOPPER = (9, 0)

# Source: NVIDIA Video Codec SDK 13.0, NVDEC Application Note, table "NVDEC Hardware Capabilities"
# (https://docs.nvidia.com/video-technologies/video-codec-sdk/13.0/nvdec-application-note/). What it has for select
# GPUs of a generation only begins with the next one here. DALI converts frames of 4:2:0 to RGB, so what Blackwell
# decodes of H.264 and HEVC in 4:2:2 is not here.
DECODED_ON_GPU: Final[Mapping[str, Callable[[Capability], bool]]] = {
    "h264 yuv420p": lambda gpu: gpu >= (5, 0),
    "h264 yuvj420p": lambda gpu: gpu >= (5, 0),
    "hevc yuv420p": lambda gpu: gpu >= (6, 0),
    "hevc yuvj420p": lambda gpu: gpu >= (6, 0),
    "hevc yuv420p10le": lambda gpu: gpu >= (6, 0),
    "vp9 yuv420p": lambda gpu: gpu >= (7, 0),
    "av1 yuv420p": lambda gpu: gpu >= (8, 6) and gpu != _HOPPER,
    "av1 yuv420p10le": lambda gpu: gpu >= (8, 6) and gpu != _HOPPER,
}
_DECODED_BY_DALI_ON_CPU: Final = ("vp8", "vp9", "mjpeg")
_HIDDEN: Final = "hidden"

# Shares of red and blue in the luma of each matrix (ISO/IEC 23091-2).
_SHARES: Final[Mapping[str, tuple[float, float]]] = {
    "bt709": (0.2126, 0.0722),
    "fcc": (0.3, 0.11),
    "smpte240m": (0.212, 0.087),
    "bt2020": (0.2627, 0.0593),
}
_SHARES_OF_BT601: Final = (0.299, 0.114)


def why_not_in_graph(
    codecs: Sequence[str], *, has_gpu: bool, must_use_gpu: bool, keeps_colors: bool = True
) -> str:
    """Explain why videos cannot be decoded in the graph; empty where they can.

    Args:
        codecs: Each codec with its format of pixels, see `ImageContent`.
        has_gpu: Whether the graph has a GPU. All GPUs of the machine count then, so that all ranks decide alike.
        must_use_gpu: Whether a GPU is to be used whatever the table says.
        keeps_colors: Whether colors are those that the streams state.
    """
    matrices = sorted({_matrix(codec) or "bt601" for codec in codecs})
    if keeps_colors and len(matrices) > 1:
        return f"its color matrices are {listed(matrices)}, and in the graph all are converted alike"
    if any(codec.endswith(_HIDDEN) for codec in codecs):
        return "it has hidden frames or is interlaced, and DALI would count other frames"
    if not has_gpu:
        lacking = [codec for codec in codecs if codec.partition(" ")[0] not in _DECODED_BY_DALI_ON_CPU]
        where = "without a GPU, DALI decodes only VP8, VP9 and MJPEG"
    elif not gpu_facts().has_video:
        return NO_VIDEO_LIBRARY
    elif must_use_gpu:
        return ""
    else:
        gpus = sorted({*gpu_facts().capabilities})
        lacking = [
            codec
            for codec in codecs
            if not (decodes := DECODED_ON_GPU.get(_format(codec))) or not all(map(decodes, gpus))
        ]
        names = ", ".join(f"{major}.{minor}" for major, minor in gpus)
        where = f"the GPU (compute capability {names}) does not decode it"
    if not codecs:
        return "the format of the field does not name its codec"
    return f"it is {listed(lacking)}, and {where}" if lacking else ""


def _format(codec: str) -> str:
    return " ".join(codec.split()[:2])


def _matrix(codec: str) -> str:
    return next((word for word in codec.split()[2:] if word != _HIDDEN), "")


def rgb_of_bt601(codecs: Sequence[str]) -> list[float]:
    """Get the ``3 x 3`` matrix that takes RGB of DALI, by BT.601, to that of the matrix of videos; none for it.

    It is exact within rounding, but for colors that BT.601 takes out of [0, 255].
    """
    shares = _SHARES.get(_matrix(codecs[0]) if codecs else "")
    if shares is None:
        return []
    changed: list[float] = (np.linalg.inv(_from_rgb(*shares)) @ _from_rgb(*_SHARES_OF_BT601)).ravel().tolist()
    return changed


def _from_rgb(red: float, blue: float) -> npt.NDArray[np.float64]:
    luma = np.array([red, 1 - red - blue, blue])
    return np.stack([luma, ([0, 0, 1] - luma) / (2 - 2 * blue), ([1, 0, 0] - luma) / (2 - 2 * red)])
