# SPDX-License-Identifier: Apache-2.0
"""Remove the elements of annotations that a mask does not keep."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from nvidia.dali import types

from ...checks import did_you_mean, field_name, flag, shown, whole_number
from ...errors import SettingError
from ...operators.element_selection import ElementSelection, with_length_of
from ...operators.field_types import leaf_at
from ...sample_data import FieldPath, GroupFormat, LeafFormat, SampleDataGroup
from ...sample_data.graph_mode import do_not_convert
from ...sample_data.names import Name
from ..image_use import no_images
from ..named_fields import FieldSearch, as_names
from ..pipeline_step_base import PipelineStepBase


class ConditionalElementRemover(PipelineStepBase):
    """Keeps, of several fields of an annotation, the elements for which a mask is true.

    In every group of a name, anywhere in the sample: the mask is ``(N,)`` bool; each processed field has N
    elements along its axis, and keeps those for which the mask is true, in order. Type and other axes stay as they
    are; values are copied bit by bit, so all types are exact. N may differ between samples and may be 0; all
    elements may be dropped, or none. A mask of another length than the axis makes the graph fail, and the error
    names the sample. A layout of the field is dropped.

    The mask is removed, or stays as it is: it is not filtered itself, unless it is among the processed fields.

    The fields may be on the CPU or the GPU.

    Example:
        >>> boxes = SampleDataGroup()
        >>> boxes.add_data_field("boxes", types.DALIDataType.FLOAT)
        >>> boxes.add_data_field("is_visible", types.DALIDataType.BOOL)
        >>> sample = SampleDataGroup()
        >>> sample.add_data_group_field("annotation", boxes)
        >>> step = ConditionalElementRemover("annotation", "is_visible", ["boxes"], [0], [2], True)
        >>> step.check_input_data_format_and_set_output_data_format(sample).field_names_flat
        ('annotation.boxes',)
    """

    treats_elements_alike = True

    def __init__(
        self,
        annotation_field_name: Name,
        mask_field_name: Name,
        field_names_to_process: Sequence[Name],
        field_dims_to_process: Sequence[int],
        fields_to_process_num_dims: Sequence[int],
        remove_mask_field: bool,
    ) -> None:
        """Create the step.

        Args:
            annotation_field_name: Name of the groups.
            mask_field_name: Name of the mask in the group.
            field_names_to_process: Names of the fields in the group, each once.
            field_dims_to_process: For each of them, the axis along which its elements lie; negative ones count
                from the last axis.
            fields_to_process_num_dims: For each of them, its number of axes.
            remove_mask_field: Whether to remove the mask afterwards.

        Raises:
            SettingError: The three lists differ in length, name a field twice, or an axis does not exist.
        """
        self._annotation_field_name = field_name(annotation_field_name, "annotation_field_name")
        self._mask_field_name = field_name(mask_field_name, "mask_field_name")
        self._field_names_to_process = as_names(field_names_to_process, "field_names_to_process")
        self._field_dims_to_process = _whole_numbers(field_dims_to_process, "field_dims_to_process")
        self._fields_to_process_num_dims = _whole_numbers(fields_to_process_num_dims, "fields_to_process_num_dims")
        self._remove_mask_field = flag(remove_mask_field, "remove_mask_field")
        self._check_settings()

    def _check_settings(self) -> None:
        names, axes, counts = (
            self._field_names_to_process,
            self._field_dims_to_process,
            self._fields_to_process_num_dims,
        )
        if not len(names) == len(axes) == len(counts):
            raise SettingError(
                "`field_names_to_process`, `field_dims_to_process` and `fields_to_process_num_dims` must have the "
                f"same length, got {len(names)}, {len(axes)} and {len(counts)} elements."
            )
        if len(set(names)) < len(names):
            raise SettingError(f"`field_names_to_process` must name each field once, got {list(names)}.")
        for name, axis, count in zip(names, axes, counts, strict=True):
            if not -count <= axis < count:
                raise SettingError(
                    f"Field {name!r} has no axis {axis!r}: each of `field_dims_to_process` must be an integer in "
                    f"[-n, n), where n is the number of axes ({count!r} in `fields_to_process_num_dims`)."
                )

    declare_images = no_images

    @do_not_convert
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        settings = (self._field_names_to_process, self._field_dims_to_process, self._fields_to_process_num_dims)
        fields = [(name, axis % count, count) for name, axis, count in zip(*settings, strict=True)]
        for path in data.find_all_occurrences(self._annotation_field_name):
            annotation = data.get_item_in_path(path)
            mask = annotation[self._mask_field_name]
            for name, axis, _ in fields:
                mask = with_length_of(mask, annotation[name], axis)
            selection = ElementSelection.by_mask(mask)
            for name, axis, count in fields:
                annotation[name] = selection.of(annotation[name], leaf_at(annotation, name).dtype, axis, count)
            if self._remove_mask_field:
                annotation.remove_field(self._mask_field_name)
        return data

    _process_arrays = _process

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self, cannot="remove elements")
        paths = search.find_groups(self._annotation_field_name)
        for path in paths:
            self._check_annotation(data_empty.get_item_in_path(path).format, path, search)
        search.raise_problems()
        if self._remove_mask_field:
            for path in paths:
                data_empty.get_item_in_path(path).remove_field(self._mask_field_name)
        return data_empty

    def _check_annotation(self, annotation: GroupFormat, path: FieldPath, search: FieldSearch) -> None:
        for name in (self._mask_field_name, *self._field_names_to_process):
            child = annotation.get((name,))
            if child is None:
                meant = did_you_mean(name, annotation.names)
                search.add(f"does not have the field {name!r}.{meant}".rstrip("."), path, KeyError)
            elif isinstance(child, GroupFormat):
                search.add("must be a data field, is a group", (*path, name))
        mask = annotation.get((self._mask_field_name,))
        if isinstance(mask, LeafFormat) and mask.dtype != types.DALIDataType.BOOL:
            search.add(f"must be BOOL (a mask), got {mask.dtype.name}", (*path, self._mask_field_name))


def _whole_numbers(values: object, argument: str) -> tuple[int, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        raise SettingError(f"`{argument}` must be a list of whole numbers, got {shown(values)}.")
    return tuple(whole_number(value, argument) for value in values)
