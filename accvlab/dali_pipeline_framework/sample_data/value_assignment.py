# SPDX-License-Identifier: Apache-2.0
"""Assignment of values to the fields of a sample: labels are mapped, numbers converted, text encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from nvidia.dali.data_node import DataNode

from ..errors import FieldKindError, FieldNotFoundError, FieldValueError
from .conversion import FieldValue, converted
from .format_problems import group_mismatch_error, wrong_count_error
from .formats import LeafFormat
from .graph_mode import methods_not_converted
from .mappings import encoded, mapped
from .names import FieldPath, Name, Path, available_names_hint, format_path, normalized_path
from .value_queries import ValueQueries, not_empty

_DECLARE = (
    " A new field must first be declared in `sample_data_structure` of the data provider (in a step: with "
    "add_data_field)."
)


@methods_not_converted
class ValueAssignment(ValueQueries):
    """Base of `SampleDataGroup`: the methods that set values, and the switches that say how."""

    __slots__ = ("_apply_mapping", "_do_check_type", "_do_convert")

    _apply_mapping: bool
    _do_check_type: bool
    _do_convert: bool

    # --- switches ---------------------------------------------------------------------------------------

    def set_apply_mapping(self, apply: bool) -> None:
        """Set whether labels are mapped on assignment, here and in all groups below."""
        self._apply_mapping = bool(apply)
        for group in self._groups():
            group.set_apply_mapping(apply)

    def set_do_convert(self, convert: bool) -> None:
        """Set whether values are converted to the field's type on assignment, here and in all groups below.

        When it is off, values other than text for STRING fields are stored as they are, by reference.
        """
        self._do_convert = bool(convert)
        for group in self._groups():
            group.set_do_convert(convert)

    def set_do_check_type(self, check_type: bool) -> None:
        """Set whether types inside the graph are to be checked, here and in all groups below.

        Nothing is checked on assignment inside the graph; the pipeline asks for this switch (`do_check_type`)
        and checks the types of the first batch.
        """
        self._do_check_type = bool(check_type)
        for group in self._groups():
            group.set_do_check_type(check_type)

    @property
    def apply_mapping(self) -> bool:
        """Whether labels are mapped on assignment."""
        return self._apply_mapping

    @property
    def do_convert(self) -> bool:
        """Whether values are converted on assignment."""
        return self._do_convert

    @property
    def do_check_type(self) -> bool:
        """Whether types inside the graph are to be checked."""
        return self._do_check_type

    # --- bulk transfer ----------------------------------------------------------------------------------

    def set_data(self, data: Sequence[FieldValue]) -> None:
        """Store one value per data field, in flat order, without mapping, conversion or check.

        Args:
            data: As many values as there are data fields (see `field_names_flat`).

        Raises:
            FieldValueError: If there are more or fewer values; with fewer it is also an IndexError. Nothing
                is stored then.
        """
        if not isinstance(data, list | tuple):
            data = _as_list(data)
        expected = self.format.num_leaves
        if len(data) != expected:
            raise wrong_count_error(self.format, len(data))
        self._fill(data, 0)

    def _fill(self, data: Sequence[FieldValue], start: int) -> int:
        values = self._values
        filled = 0
        for position in self._format.group_positions:
            end = start + position - filled
            values[filled:position] = data[start:end]
            start = values[position]._fill(data, end)
            filled = position + 1
        end = start + len(values) - filled
        values[filled:] = data[start:end]
        return end

    def set_data_from_dali_generic_iterator_output(
        self, data: Sequence[Mapping[str, FieldValue]], index: int
    ) -> None:
        """Store what a DALI framework iterator returned for one of its pipelines.

        Args:
            data: One dict per pipeline, with the names of `field_names_flat` as keys. Further keys are ignored.
            index: Position of the dict to use.

        Raises:
            FieldNotFoundError: If a data field is missing in the dict. Nothing is stored then.
            IndexError: If there is no dict of this index.
        """
        outputs = data[index]
        names = self.format.flat_names
        missing = [name for name in names if name not in outputs]
        if missing:
            raise FieldNotFoundError(
                f"the iterator's output has no entry for {', '.join(missing)}."
                f"{available_names_hint(missing[0], list(outputs))}"
            )
        self._fill([outputs[name] for name in names], 0)

    # --- assignment -------------------------------------------------------------------------------------

    def __setitem__(self, name: Name, value: FieldValue) -> None:
        """Set a data field, or replace a group by another one of the same format (by reference).

        For a data field: None unsets it. A ``DataNode`` is stored untouched. Labels are mapped if the field
        has a mapping; then the value is converted (see `conversion.converted`).

        Raises:
            FieldNotFoundError: If there is no such child.
            NameTypeError: If the name is neither ``str`` nor ``int``.
            FieldValueError: If the value does not fit the data field.
            FieldKindError: If the child is a group and the value is none.
            GroupFormatMismatchError: If the child is a group of another format than the value.
        """
        position = self._format.index.get(name) if type(name) is str else None
        if position is None:
            position = self._position(name, (), _DECLARE)
        if type(value) is np.ndarray and self._do_convert:
            child = self._format.children[position]
            if type(child) is LeafFormat and child.numpy_dtype is value.dtype and child.is_plain:
                # The usual case in a data provider, without the detours for all the others.
                self._values[position] = value.copy()
                return
        self._assign(position, value, (name,))

    def set_item_in_path(self, path: Path, value: FieldValue) -> None:
        """Set the data field or group at ``path``; otherwise like ``self[name] = value``.

        Raises:
            SettingError: If the path is empty.
            FieldKindError: If the path leads through a data field, or a group is set to something else.
            NameTypeError: If the path is not valid.
            FieldNotFoundError: If there is no such field.
        """
        names = not_empty(normalized_path(path))
        group = self._group_at(names[:-1])
        group._assign(group._position(names[-1], names[:-1], _DECLARE), value, names)

    def _assign(self, position: int, value: FieldValue, path: FieldPath) -> None:
        child = self._format.children[position]
        if not isinstance(child, LeafFormat):
            _check_group(self._values[position], value, path)
        elif value is not None:
            if isinstance(value, DataNode):
                if self._apply_mapping and child.mapping is not None:
                    raise _node_for_mapped_field(path)
            elif child.is_string:
                if self._do_convert or isinstance(value, str):
                    value = encoded(value, path)
            else:
                if self._apply_mapping and child.mapping is not None:
                    value = mapped(value, child.mapping, path)
                if self._do_convert:
                    value = converted(value, child.numpy_dtype, path)
        self._values[position] = value


def _check_group(current: ValueAssignment, value: FieldValue, path: FieldPath) -> None:
    if not isinstance(value, ValueAssignment):
        raise FieldKindError(
            f"{format_path(path)}: is a data group field, so it can only be set to a SampleDataGroup of the "
            f"same format, got a value of type {type(value).__name__}. To set its data fields, name them in "
            "the path"
        )
    wanted, got = current.format, value.format
    if not wanted.matches(got):
        raise group_mismatch_error(wanted, got, path)


def _node_for_mapped_field(path: FieldPath) -> FieldValueError:
    return FieldValueError(
        f"{format_path(path)}: has a mapping, which cannot be applied to a DataNode: inside the graph there "
        "are no labels, only numbers. Map the labels in the data provider, and switch mapping off inside the "
        "graph with set_apply_mapping(False)"
    )


def _as_list(data: FieldValue) -> list[FieldValue]:
    if isinstance(data, str | bytes | Mapping | set | frozenset | DataNode) or not hasattr(data, "__iter__"):
        raise FieldValueError(
            "the data must be a list or tuple with one value per data field, got a value of type "
            f"{type(data).__name__}"
        )
    return list(data)
