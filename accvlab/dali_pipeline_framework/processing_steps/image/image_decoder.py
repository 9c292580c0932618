# SPDX-License-Identifier: Apache-2.0
"""Decode encoded images."""

from __future__ import annotations

from collections.abc import Sequence

from nvidia.dali import types

from ...checks import field_name, flag, probability
from ...operators import image_arrays
from ...operators.image_pixels import decoded_in_graph
from ...sample_data import SampleDataGroup
from ...sample_data.formats import DECODED_IMAGE, ENCODED_IMAGE
from ...sample_data.names import Name
from ..array_application import naming_field
from ..image_use import ImageUse
from ..named_fields import FieldSearch
from ..pipeline_step_base import PipelineStepBase


class ImageDecoder(PipelineStepBase):
    """Decodes every image field of a name, anywhere in the sample.

    Input: the bytes of an image file, ``(num_bytes,)`` uint8 (JPEG, PNG, WebP, BMP, TIFF, JPEG 2000, ...). A field
    that is known to hold a decoded image is refused. Output, in the same field: ``(height, width, 3)`` uint8 in
    [0, 255], layout ``HWC``, on the GPU or on the CPU. Gray images get three equal channels, an alpha channel is
    dropped.

    Where a region is resized afterwards, `ImageResizer` and `ImageResizeCropFlipper` with ``is_encoded`` decode
    only that in a graph.
    """

    treats_elements_alike = True
    array_form_needs = image_arrays.DECODING_NEEDS

    def __init__(
        self, image_name: Name, use_device_mixed: bool, hw_decoder_load: float = 0.65, as_bgr: bool = False
    ) -> None:
        """Create the step.

        Args:
            image_name: Name of the fields to decode.
            use_device_mixed: Whether to decode on the GPU, in a pipeline that has one. In a pipeline
                without one (``device_id=None``) the CPU decodes in any case.
            hw_decoder_load: Share of the images, in [0, 1], for the hardware JPEG decoder of GPUs that
                have one; the rest is decoded by CUDA kernels.
            as_bgr: Whether the channels are blue, green, red instead of red, green, blue. On the CPU this
                takes about three times as long to decode.

        Raises:
            SettingError: ``hw_decoder_load`` is not in [0, 1].
        """
        self._image_name = field_name(image_name, "image_name")
        self._use_device_mixed = flag(use_device_mixed, "use_device_mixed")
        self._hw_decoder_load = probability(hw_decoder_load, "hw_decoder_load")
        self._as_bgr = flag(as_bgr, "as_bgr")

    def declare_images(self, data_empty: SampleDataGroup) -> Sequence[ImageUse]:
        """Declare that image files become images."""
        return [ImageUse(self._image_name, ENCODED_IMAGE, DECODED_IMAGE)]

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        output_type = types.DALIImageType.BGR if self._as_bgr else types.DALIImageType.RGB
        for path in data.find_all_occurrences(self._image_name):
            decoded = decoded_in_graph(
                data.get_item_in_path(path), self._use_device_mixed, output_type, self._hw_decoder_load
            )
            data.change_type_of_data_and_remove_data(path, types.DALIDataType.UINT8, new_ndim=3)
            data.set_item_in_path(path, decoded)
        return data

    def _process_arrays(self, data: SampleDataGroup) -> SampleDataGroup:
        for path in data.find_all_occurrences(self._image_name):
            encoded = data.get_item_in_path(path)
            data.change_type_of_data_and_remove_data(path, types.DALIDataType.UINT8, new_ndim=3)
            with naming_field(path):
                data.set_item_in_path(path, image_arrays.decoded_image(encoded, as_bgr=self._as_bgr))
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self, cannot="decode")
        paths = search.find(
            self._image_name,
            "an encoded image",
            [types.DALIDataType.UINT8],
            group_of="images",
            holds="the bytes of an image file",
        )
        search.raise_problems()
        for path in paths:
            data_empty.change_type_of_data_and_remove_data(path, types.DALIDataType.UINT8, new_ndim=3)
        return data_empty
