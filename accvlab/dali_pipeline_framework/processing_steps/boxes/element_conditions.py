# SPDX-License-Identifier: Apache-2.0
"""Steps that evaluate conditions on elements, and remove elements by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from nvidia.dali import types

from ...checks import field_name, flag, shown, text, whole_number
from ...errors import FieldValueError, SettingError
from ...operators.conditions import Parser, condition_of, variables_of
from ...operators.element_selection import selected
from ...operators.functions import Array
from ...sample_data import FieldPath, GroupFormat, LeafFormat, SampleDataGroup
from ...sample_data.dtypes import NUMPY_TYPES
from ...sample_data.names import Name, available_names_hint
from ...unknown_arguments import explains_unknown_arguments
from ..array_step import FieldUse
from ..field_steps import FieldStep
from ..named_fields import FieldSearch, as_names, find_paths
from ..pipeline_step_base import naming_field


class ConditionalElementRemover(FieldStep):
    """Keeps, of several fields of an annotation, the elements for which a mask is true.

    In every group with the given name, anywhere in the sample: the mask is ``(N,)`` bool; each processed field has
    N elements along its axis, and keeps those for which the mask is true, in order. Type and other axes stay as
    they are; values are copied bit by bit, so all types are exact. N may differ between samples and may be 0; all
    elements may be dropped, or none. A mask of another length than the axis is an error, which names the sample.

    The mask is removed, or stays as it is: it is not filtered itself, unless it is among the processed fields.

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

    _cannot = "remove elements"

    @explains_unknown_arguments
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
            fields_to_process_num_dims: For each of them, its number of axes; other data are an error.
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
        names, axes, counts = self._settings_of_fields()
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

    def _settings_of_fields(self) -> tuple[Sequence[Name], Sequence[int], Sequence[int]]:
        return self._field_names_to_process, self._field_dims_to_process, self._fields_to_process_num_dims

    def _names(self) -> Sequence[Name]:
        return (self._annotation_field_name,)

    def _change_field(self, data: SampleDataGroup, path: FieldPath) -> None:
        annotation = data.get_item_in_path(path)
        mask = annotation[self._mask_field_name]
        for name, axis, count in zip(*self._settings_of_fields(), strict=True):
            with naming_field((*path, name)):
                if annotation[name].ndim != count:
                    raise FieldValueError(_axes_differ(count, annotation[name].ndim))
                annotation[name] = selected(annotation[name], mask, axis % count)
        self._adjust_format(data, path)

    def fields_used(self, data_empty: SampleDataGroup) -> FieldUse:
        """The mask, and the fields that are processed."""
        groups = find_paths(data_empty, self._names())
        changed = [(*group, name) for group in groups for name in self._field_names_to_process]
        return FieldUse(changed, read=[(*group, self._mask_field_name) for group in groups])

    def _find(self, search: FieldSearch) -> list[FieldPath]:
        return search.find_groups(self._annotation_field_name)

    def _check_field(self, search: FieldSearch, path: FieldPath) -> None:
        for name in (self._mask_field_name, *self._field_names_to_process):
            search.find_at((*path, name), "elements")
        mask = search.format.get((*path, self._mask_field_name))
        if isinstance(mask, LeafFormat) and mask.dtype != types.DALIDataType.BOOL:
            search.add(f"must be BOOL (a mask), got {mask.dtype.name}", (*path, self._mask_field_name))
        for name, _, count in zip(*self._settings_of_fields(), strict=True):
            leaf = search.format.get((*path, name))
            if isinstance(leaf, LeafFormat) and leaf.ndim not in (None, count):
                search.add(_axes_differ(count, leaf.ndim), (*path, name))

    def _adjust_format(self, data: SampleDataGroup, path: FieldPath) -> None:
        if self._remove_mask_field:
            data.get_item_in_path(path).remove_field(self._mask_field_name)


def _axes_differ(count: int, found: int | None) -> str:
    return f"must have {count} axes, as `fields_to_process_num_dims` says, has {found}"


def _whole_numbers(values: object, argument: str) -> tuple[int, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        raise SettingError(f"`{argument}` must be a list of whole numbers, got {shown(values)}.")
    return tuple(whole_number(value, argument) for value in values)


class AnnotationElementConditionEval(FieldStep):
    """Evaluates a condition for each element of every group with the given name, and adds the result to the group.

    A condition is ``"<result> = <expression>"``::

        is_kept = is_visible and not (category == -1 or area < 4)

    Its variables are data fields of the group: ``(N,)``, ``(N, 1)`` or ``(1, N)`` of any number type or
    bool, with any N in each sample, also 0. The result is ``(N,)``
    bool.

    - Comparisons ``== != < <= > >=`` of numbers. They are exact between integers of any type, and between integers
      and literals. A literal is rounded to the type of the floating-point field that it is compared with. 64-bit
      integers are compared with floating-point fields as float64. NaN is unequal to everything.
    - ``and``, ``or``, ``not``: numbers other than 0 (also NaN) are true. A field alone is a condition, too.
    - ``-`` for the negative of a number; values beyond int64 wrap or saturate.
    - Precedence, the lowest first: ``or``, ``and``, ``not``, comparisons, ``-``, as in Python; but comparisons
      are evaluated from left to right, so ``a < b < c`` is ``(a < b) < c``.

    Variables of different lengths are an error, which names the sample.

    Example:
        >>> boxes = SampleDataGroup()
        >>> boxes.add_data_field("category", types.DALIDataType.INT32)
        >>> boxes.add_data_field("area", types.DALIDataType.FLOAT)
        >>> sample = SampleDataGroup()
        >>> sample.add_data_group_field("annotation", boxes)
        >>> step = AnnotationElementConditionEval("annotation", "is_kept = category != -1 and area >= 4", False)
        >>> step.check_input_data_format_and_set_output_data_format(sample).field_names_flat
        ('annotation.category', 'annotation.area', 'annotation.is_kept')
    """

    _cannot = "evaluate the condition"

    @explains_unknown_arguments
    def __init__(
        self, annotation_field_name: Name, condition: str, remove_data_fields_used_in_condition: bool
    ) -> None:
        """Create the step.

        Args:
            annotation_field_name: Name of the groups. Groups of this name within another one are processed too,
                each by itself.
            condition: The condition.
            remove_data_fields_used_in_condition: Whether to remove all variables from the groups afterwards.

        Raises:
            SettingError: The condition cannot be parsed (the message shows where), or has no variable.
        """
        self._annotation_field_name = field_name(annotation_field_name, "annotation_field_name")
        self._condition = text(condition, "condition")
        self._remove_data_fields_used_in_condition = flag(
            remove_data_fields_used_in_condition, "remove_data_fields_used_in_condition"
        )
        self._statement = Parser(self._condition).parse()
        if not variables_of(self._statement):
            raise SettingError(f"`condition` needs at least one field, got {condition!r}.")

    def _names(self) -> Sequence[Name]:
        return (self._annotation_field_name,)

    def _change_field(self, data: SampleDataGroup, path: FieldPath) -> None:
        annotation, names = data.get_item_in_path(path), variables_of(self._statement)
        variables = {name: _vector(annotation[name], name) for name in names}
        if len({*map(len, variables.values())}) > 1:
            lengths = {name: len(values) for name, values in variables.items()}
            raise FieldValueError(f"Each variable has one value for each element; got the lengths {lengths}.")
        result = condition_of(self._statement.expression, variables)
        self._adjust_format(data, path)
        annotation[self._statement.variable] = result

    def fields_used(self, data_empty: SampleDataGroup) -> FieldUse:
        """The variables."""
        groups, names = find_paths(data_empty, self._names()), variables_of(self._statement)
        return FieldUse(read=[(*group, name) for group in groups for name in names])

    def __repr__(self) -> str:
        """Class name and settings."""
        settings = self._annotation_field_name, self._condition, self._remove_data_fields_used_in_condition
        names = "annotation_field_name", "condition", "remove_data_fields_used_in_condition"
        return f"{type(self).__name__}({', '.join(map('{}={!r}'.format, names, settings))})"

    def _find(self, search: FieldSearch) -> list[FieldPath]:
        return search.find_groups(self._annotation_field_name, error_type=ValueError)

    def _check_field(self, search: FieldSearch, path: FieldPath) -> None:
        statement = self._statement
        annotation: Any = search.format.at(path)
        if statement.variable in annotation.index:
            search.add("exists already, so the result cannot be added", (*path, statement.variable), KeyError)
        for name in variables_of(statement):
            child = annotation.get((name,))
            if child is None:
                hint = available_names_hint(name, annotation.names)
                search.add(f"does not have child `{name}`, which the condition uses.{hint}", path)
            elif isinstance(child, GroupFormat):
                search.add("is not a data field, but the condition uses it", (*path, name))
            elif child.dtype not in NUMPY_TYPES:
                search.add(f"must be a number or bool for the condition, got {child.dtype.name}", (*path, name))

    def _adjust_format(self, data: SampleDataGroup, path: FieldPath) -> None:
        statement = self._statement
        annotation = data.get_item_in_path(path)
        annotation.add_data_field(statement.variable, types.DALIDataType.BOOL)
        for name in variables_of(statement) if self._remove_data_fields_used_in_condition else ():
            annotation.remove_field(name)


def _vector(values: Array, name: str) -> Array:
    """Get ``(N,)``, ``(N, 1)`` or ``(1, N)`` as ``(N,)``."""
    if values.size != max(values.shape, default=0) * (min(values.shape, default=1) > 0):
        raise FieldValueError(f"The variable {name!r} must have one value for each element, got {values.shape}.")
    return values.ravel()
