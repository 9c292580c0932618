# SPDX-License-Identifier: Apache-2.0
"""Refuse images that DALI's operators cannot cope with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from accvlab.dali_pipeline_framework.sample_data.graph_mode import do_not_convert

_INT32 = types.DALIDataType.INT32
# Added to an index that must not be there: DALI refuses it.
_FAR_OUTSIDE = 1 << 24


@do_not_convert
def with_pixels(image: DataNode) -> DataNode:
    """Return an image, or a clip, as it is; one without pixels is an error of the graph.

    ``fn.gaussian_blur`` would end the process, others fail with an error that does not tell why.
    """
    shapes: Any = fn.stack(image.shape(dtype=_INT32))  # (1, number of axes)
    is_empty = fn.cast(fn.reductions.min(shapes) < 1, dtype=_INT32) * _FAR_OUTSIDE
    # DALI shows the next line where an image has no pixels.
    shape = shapes[is_empty]  # ERROR: an image of no pixels
    checked: DataNode = fn.reshape(image, shape=shape)
    return checked


@do_not_convert
def zero_where_channels_fit(images: Sequence[DataNode], num_channels: int) -> DataNode:
    """Get a zero, int32, for the arguments of what is done to images, or clips.

    If one of the images of a sample has another number of channels, it is an error of the graph. Of a batch in
    which some images have another number, ``fn.crop_mirror_normalize`` would leave work undone, and the pipeline
    would wait for it at its end, forever.
    """
    extents: Any = fn.stack(*[image.shape(dtype=_INT32)[-1] for image in images])
    differ = fn.reductions.max(fn.cast(extents != num_channels, dtype=_INT32)) * _FAR_OUTSIDE
    # DALI shows the next line where there are other channels.
    any_extent = extents[differ]  # ERROR: an image has another number of channels than there are means
    zero: DataNode = any_extent * 0
    return zero
