# SPDX-License-Identifier: Apache-2.0
"""Images in the graph: decoded; and checks of layouts, numbers of channels, images without pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import nvidia.dali.math as dali_math
from nvidia.dali import types
from nvidia.dali.data_node import DataNode
from nvidia.dali.pipeline import Pipeline

from ..engine.dali.graph_definition import branched
from ..engine.dali.texts import failing_with
from ..sample_data.graph_mode import do_not_convert
from .element_selection import with_row_before

_INT32 = types.DALIDataType.INT32


@do_not_convert
def pipeline_has_gpu() -> bool:
    """Whether the pipeline that is being defined, if there is one, has a GPU."""
    return Pipeline.current() is None or Pipeline.current().device_id is not None


@do_not_convert
def decoded_in_graph(
    encoded: DataNode, on_gpu: bool, image_type: types.DALIImageType, hw_decoder_load: float
) -> DataNode:
    """Decode an image file on the GPU, in a pipeline that has one, or on the CPU; see `ImageDecoder`."""
    if on_gpu and pipeline_has_gpu():
        return fn.decoders.image(encoded, device="mixed", output_type=image_type, hw_decoder_load=hw_decoder_load)
    return fn.decoders.image(encoded, device="cpu", output_type=image_type)


@do_not_convert
def with_pixels(image: DataNode) -> DataNode:
    """Return an image or clip unchanged; make the graph fail where it has no pixels.

    ``fn.gaussian_blur`` would end the process; other operators fail with an error that does not say why.
    """
    # Where an axis has no length, one of length 1 does not fit the data.
    shape = dali_math.max(image.shape(dtype=_INT32), 1)
    return failing_with("an image of no pixels", fn.reshape, image, shape=shape)


@do_not_convert
def with_layout(image: DataNode) -> DataNode:
    """Return an image or clip unchanged, with the layout ``HWC`` or ``FHWC`` where it has none.

    Another layout, e.g. ``CHW``, makes the graph fail. Operators that need a layout assume a wrong one, or fail,
    where it is missing. Costs a pass over the pixels: always on the GPU, on the CPU only if the layout is missing.
    """
    if image.device == "gpu":
        return _guessed_layout(image)
    letters: Any = with_row_before(fn.get_property(image, key="layout"))
    is_known = letters[-1] == ord("C")
    return branched(is_known, [image], lambda known: known, _guessed_layout)


def _guessed_layout(image: DataNode) -> DataNode:
    """An identity that sets a missing layout and refuses a layout in which channels are not last."""
    same: DataNode = fn.brightness_contrast(image, brightness=1.0, contrast=1.0, contrast_center=0.0)
    return same


@do_not_convert
def zero_where_channels_fit(images: Sequence[DataNode], num_channels: int) -> DataNode:
    """Return a zero, int32, whose computation fails where an image has another number of channels.

    Passed as an argument to the operator on the images, it makes the graph fail before the operator runs:
    ``fn.crop_mirror_normalize`` never finishes a batch in which only some images have another number of channels,
    and the pipeline would wait for it forever.
    """
    same: Any = types.Constant(np.zeros(num_channels, np.int32), device="cpu")
    for image in images:
        count = fn.reshape(image.shape(dtype=_INT32)[-1], shape=[1])
        same = failing_with(
            "an image has another number of channels than there are means", fn.reshape, same, shape=count
        )
    zero: DataNode = same.shape(dtype=_INT32) - num_channels
    return zero
