# SPDX-License-Identifier: Apache-2.0
"""Give the samples of a batch one shape."""

from __future__ import annotations

from collections.abc import Sequence

import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ...checks import did_you_mean, number
from ...engine.dali.graph_definition import branched
from ...operators.field_types import leaf_at
from ...sample_data import FieldPath, LeafFormat, SampleDataGroup
from ...sample_data.names import Name
from ..image_use import no_images
from ..named_fields import FieldSearch, as_names
from ..pipeline_step_base import PipelineStepBase


class PaddingToUniform(PipelineStepBase):
    """Pads data fields so that all samples of a batch have one shape: the largest extent of each axis.

    The content stays at the origin, the fill follows at the end of each axis. Samples without elements, and
    batches of them only, are fine; so are fields without axes, which stay as they are. Text is padded as UTF-8
    bytes; zeros at its end are dropped when it is read. The shape depends on the batch: two batches may differ.
    For a shape that is the same in all batches, see `PointsPadder`.

    Works for all types, on the CPU or the GPU; layouts stay. Fields with a
    declared number of dimensions (``ndim`` in the blueprint) take a third of the time.

    Example::

        PaddingToUniform()                                # all fields, with zeros
        PaddingToUniform(["boxes", "categories"], -1)     # these only
    """

    def __init__(self, field_names: Name | Sequence[Name] | None = None, fill_value: int | float = 0.0) -> None:
        """Create the step.

        Args:
            field_names: Name or names of the fields, anywhere in the sample. In a group of such a name, all data
                fields are padded. None for all data fields of the sample.
            fill_value: What to pad with; converted to float32, and then as DALI does to the type of the field.

        Raises:
            SettingError: The fill value is no number, or something else than names was given.
        """
        self._field_names = None if field_names is None else as_names(field_names, "field_names")
        self._fill_value = number(fill_value, "fill_value", may_be_nan=True)

    declare_images = no_images

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for path in self._paths(data):
            leaf = leaf_at(data, path)
            data.set_item_in_path(path, self._padded(data.get_item_in_path(path), leaf))
        return data

    def _padded(self, value: DataNode, leaf: LeafFormat) -> DataNode:
        if leaf.ndim == 0:
            return value
        if leaf.ndim is not None:
            return self._padded_axes(value, leaf.dtype)
        # DALI cannot pad what has no axes. All samples of a batch have the same number of axes.
        has_no_axes = fn.reshape(value.shape().shape(), shape=[]) == 0
        return branched(has_no_axes, [value], lambda same: same, lambda axes: self._padded_axes(axes, leaf.dtype))

    def _padded_axes(self, value: DataNode, dtype: types.DALIDataType) -> DataNode:
        if dtype != types.DALIDataType.FLOAT64:
            return fn.pad(value, fill_value=self._fill_value)
        # `fn.pad` refuses float64, so its bits are padded with those of 0.0.
        bits = fn.pad(fn.reinterpret(value, dtype=types.DALIDataType.INT64), fill_value=0)
        if self._fill_value != 0:
            zeros = fn.zeros_like(value, dtype=types.DALIDataType.FLOAT)
            fill = fn.cast(fn.pad(zeros, fill_value=self._fill_value), dtype=types.DALIDataType.FLOAT64)
            bits = bits + fn.reinterpret(fill, dtype=types.DALIDataType.INT64)
        return fn.reinterpret(bits, dtype=types.DALIDataType.FLOAT64)

    def _paths(self, data: SampleDataGroup) -> list[FieldPath]:
        if self._field_names is None:
            return list(data.format.flat_paths)
        roots = [path for name in self._field_names for path in data.find_all_occurrences(name)]
        # A field may lie below several roots, and must be padded once.
        return [path for path in data.format.flat_paths if any(path[: len(root)] == root for root in roots)]

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self, cannot="pad")
        for name in self._field_names or ():
            if not data_empty.find_all_occurrences(name):
                known = [part for path in data_empty.format.flat_paths for part in path]
                search.add(f"No fields to be padded with name '{name}' were found.{did_you_mean(name, known)}")
        return search.result()
