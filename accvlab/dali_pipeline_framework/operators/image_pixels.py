# SPDX-License-Identifier: Apache-2.0
"""Find out what images are, and refuse those that DALI's operators cannot cope with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import nvidia.dali.math as dali_math
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ..processing_steps.broken_rules import failing_with
from ..sample_data.graph_mode import do_not_convert
from .data_branches import branched

_INT32 = types.DALIDataType.INT32


@do_not_convert
def with_pixels(image: DataNode) -> DataNode:
    """Return an image, or a clip, as it is; one without pixels is an error of the graph.

    ``fn.gaussian_blur`` would end the process, others fail with an error that does not tell why.
    """
    shape = image.shape(dtype=_INT32)
    # More axes of one element each change nothing and cost nothing; axes of none do not fit.
    ones = fn.cat(dali_math.min(shape, 1), shape.shape(dtype=_INT32))
    # Fails where an image has no pixels.
    same = failing_with("an image of no pixels", fn.reshape, shape, shape=ones)
    checked: DataNode = fn.reshape(image, shape=fn.reshape(same, shape=[-1]))
    return checked


@do_not_convert
def with_layout(image: DataNode) -> DataNode:
    """Return an image, or a clip, as it is; one without a layout gets ``HWC``, or ``FHWC``.

    Another layout, as ``CHW``, is an error of the graph. Operators that need a layout guess a wrong one, or none
    at all, where it is missing. It costs a pass over the pixels on the GPU, and on the CPU where it is missing.
    """
    if image.device == "gpu":
        return _guessed_layout(image)
    letters: Any = fn.cat(np.zeros(1, np.uint8), fn.get_property(image, key="layout"))
    is_known = letters[-1] == ord("C")
    return branched(is_known, [image], lambda known: known, _guessed_layout)


def _guessed_layout(image: DataNode) -> DataNode:
    """The operator changes nothing but a missing layout, and refuses a layout in which channels are not last."""
    same: DataNode = fn.brightness_contrast(image, brightness=1.0, contrast=1.0, contrast_center=0.0)
    return same


@do_not_convert
def zero_where_channels_fit(images: Sequence[DataNode], num_channels: int) -> DataNode:
    """Get a zero, int32, for the arguments of what is done to images, or clips.

    If one of the images of a sample has another number of channels, it is an error of the graph. Of a batch in
    which some images have another number, ``fn.crop_mirror_normalize`` would leave work undone, and the pipeline
    would wait for it at its end, forever.
    """
    same: Any = types.Constant(np.zeros(num_channels, np.int32), device="cpu")
    for image in images:
        count = fn.reshape(image.shape(dtype=_INT32)[-1], shape=[1])
        # Fails where there are other channels.
        same = failing_with(
            "an image has another number of channels than there are means", fn.reshape, same, shape=count
        )
    zero: DataNode = same.shape(dtype=_INT32) - num_channels
    return zero
