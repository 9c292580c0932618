# SPDX-License-Identifier: Apache-2.0
"""Add the height and width of images as fields."""

from __future__ import annotations

from collections.abc import Sequence

from nvidia.dali import types

from ...checks import choice
from ...errors import SettingError
from ...operators import functions
from ...operators.field_types import NUMBER_TYPES, leaf_at
from ...sample_data import SampleDataGroup
from ...sample_data.names import Name
from ..image_use import ImageUse, axis_of_height, with_height_and_width
from ..named_fields import FieldSearch, put_beside
from ..pipeline_step_base import PipelineStepBase


class TensorSizeAdder(PipelineStepBase):
    """Adds next to every data field of a name its height and width: the third and second last extent of its shape.

    For images, ``(height, width, channels)`` or ``(num_frames, height, width, channels)``, that is ``[height,
    width]``, ``(2,)``, on the CPU, wherever the image is. Where the format knows another layout, as ``CHW`` behind
    a normalizer with this ``output_layout``, its height and width are taken. Only the shape is read. A field that
    is known to hold an encoded image is refused.

    The new field has the name ``tensor_name + size_postfix`` and is the last of its group. A tensor of fewer than
    three axes makes the operator of DALI fail when the pipeline runs.

    Example:
        >>> sample = SampleDataGroup()
        >>> sample.add_data_field("image", types.DALIDataType.UINT8)
        >>> step = TensorSizeAdder("image", "_hw")
        >>> step.check_input_data_format_and_set_output_data_format(sample).field_names_flat
        ('image', 'image_hw')
    """

    treats_elements_alike = True

    def __init__(
        self,
        tensor_name: Name,
        size_postfix: str,
        store_size_as_type: types.DALIDataType = types.DALIDataType.INT32,
    ) -> None:
        """Create the step.

        Args:
            tensor_name: Name of the fields whose size is added.
            size_postfix: What follows the name in the name of the new field; not empty.
            store_size_as_type: Type of the new field, a number type.

        Raises:
            SettingError: The name or postfix is no text, the postfix is empty, or the type is no number type.
        """
        if not isinstance(tensor_name, str) or not isinstance(size_postfix, str) or not size_postfix:
            raise SettingError(
                "`tensor_name` and `size_postfix` must be texts, the latter not empty, since they form the name "
                f"of the new field; got {tensor_name!r} and {size_postfix!r}."
            )
        self._tensor_name = tensor_name
        self._size_postfix = size_postfix
        self._store_size_as_type = choice(store_size_as_type, "store_size_as_type", NUMBER_TYPES)

    def declare_images(self, data_empty: SampleDataGroup) -> Sequence[ImageUse]:
        """Declare that images must be decoded, of whatever layout."""
        return [ImageUse(self._tensor_name, with_height_and_width)]

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for path in data.find_all_occurrences(self._tensor_name):
            shape = functions.shape_of(data.get_item_in_path(path))
            first = axis_of_height(leaf_at(data, path))
            # The range is cut where there are fewer axes; then there are no two numbers, and the graph fails.
            height_width = shape[first : first + 2 or None]
            rule = "an image is (..., height, width, channels)"
            size = functions.failing_with(rule, functions.reshape, height_width, shape=[2])
            size = functions.cast(size, self._store_size_as_type)
            put_beside(data, path, self._tensor_name + self._size_postfix, self._store_size_as_type, size)
        return data

    _process_arrays = _process

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self)
        new_name = self._tensor_name + self._size_postfix
        for path in search.find(self._tensor_name, "a tensor", group_of="tensors"):
            search.add_beside(path, [(new_name, self._store_size_as_type, None)], "the size", KeyError)
        return search.result()
