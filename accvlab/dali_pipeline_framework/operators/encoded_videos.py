# SPDX-License-Identifier: Apache-2.0
"""Decoding of encoded videos in the graph, and which codecs can be decoded there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import nvidia.dali.fn as fn
from nvidia.dali.data_node import DataNode

from ..checks import listed
from ..engine.dali.graph_definition import gpu_capabilities
from ..sample_data.graph_mode import do_not_convert
from .image_pixels import pipeline_has_gpu

Capability: TypeAlias = tuple[int, int]
"""CUDA's compute capability of a GPU, which tells its generation: (8, 0) is an A100, (9, 0) an H100 or H200."""

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
# DALI also decodes VP8 there, but counts packets that show no frame.
_DECODED_BY_DALI_ON_CPU: Final = ("vp9", "mjpeg")


def why_not_in_graph(codecs: Sequence[str], *, has_gpu: bool, must_use_gpu: bool) -> str:
    """Explain why videos cannot be decoded in the graph; empty where they can.

    Args:
        codecs: Each codec with its format of pixels, see `ImageContent`.
        has_gpu: Whether the graph has a GPU. All GPUs of the machine count then, so that all ranks decide alike.
        must_use_gpu: Whether a GPU is to be used whatever the table says.
    """
    if not has_gpu:
        lacking = [codec for codec in codecs if codec.partition(" ")[0] not in _DECODED_BY_DALI_ON_CPU]
        where = "without a GPU, DALI decodes only VP9 and MJPEG"
    elif must_use_gpu:
        return ""
    else:
        gpus = sorted({*gpu_capabilities()})
        lacking = [
            codec for codec in codecs if codec not in DECODED_ON_GPU or not all(map(DECODED_ON_GPU[codec], gpus))
        ]
        names = ", ".join(f"{major}.{minor}" for major, minor in gpus)
        where = f"the GPU (compute capability {names}) does not decode it"
    if not codecs:
        return "the format of the field does not tell its codec"
    return f"it is {listed(lacking)}, and {where}" if lacking else ""


@do_not_convert
def video_decoded_in_graph(encoded: DataNode, numbers: DataNode, *, is_clip: bool, on_gpu: bool) -> DataNode:
    """Decode frames of video files, on the GPU in a pipeline that has one.

    Args:
        encoded: Bytes of the files.
        numbers: ``(F,)`` int32, numbers of the frames; of a single one ``()``.
        is_clip: Whether there is an axis of frames.
        on_gpu: Whether a GPU may decode.
    """
    device = "mixed" if on_gpu and pipeline_has_gpu() else "cpu"
    if not is_clip:
        numbers = fn.reshape(numbers, shape=[1])
    frames = fn.decoders.video(encoded, device=device, frames=numbers, pad_mode="none")
    return frames if is_clip else fn.squeeze(frames, axes=[0])
