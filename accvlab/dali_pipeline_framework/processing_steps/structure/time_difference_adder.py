# SPDX-License-Identifier: Apache-2.0
"""Add how much earlier or later something was recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
from nvidia.dali import types

from ...checks import choice, field_name, number
from ...errors import SettingError
from ...operators import functions
from ...operators.field_types import exact_constant_like, leaf_at, reinterpret
from ...sample_data import GroupFormat, SampleDataGroup
from ...sample_data.graph_mode import do_not_convert
from ...sample_data.names import Name, Path, format_path, normalized_path
from ..image_use import no_images
from ..named_fields import FieldSearch, Names, find_paths, put_beside, required_names
from ..pipeline_step_base import PipelineStepBase

_DT = types.DALIDataType
_TIME_TYPES = (_DT.INT64, _DT.UINT64, _DT.INT32, _DT.UINT32, _DT.FLOAT64)


class TimeDifferenceAdder(PipelineStepBase):
    """Adds next to every time stamp of a name, anywhere in the sample, its difference to a reference.

    Time stamps: any shape, int64, uint64, int32, uint32 or float64 (float32 cannot hold a time of day), e.g. one
    per camera, per sweep, or per point. The reference is one data field of the sample, of the same type, with a
    single element (or of the same shape). Added as the last field of the group, in the shape of the time stamp::

        difference = (time - reference) * unit

    Integers are subtracted exactly as int64, then multiplied as float64: nanoseconds since 1970 lose nothing.
    The result is negative for what was recorded before the reference.

    Example:
        >>> sample = SampleDataGroup()
        >>> sample.add_data_field("time_ns", types.DALIDataType.INT64)
        >>> sweep = SampleDataGroup()
        >>> sweep.add_data_field("sweep_time_ns", types.DALIDataType.INT64)
        >>> sample.add_data_group_field_array("sweeps", sweep, 2)
        >>> step = TimeDifferenceAdder(
        ...     "sweep_time_ns", reference_path="time_ns", difference_name="age_s", unit=-1e-9
        ... )
        >>> step.check_input_data_format_and_set_output_data_format(sample).field_names_flat[1:3]
        ('sweeps.[0].sweep_time_ns', 'sweeps.[0].age_s')
    """

    def __init__(
        self,
        timestamp_names: Names,
        *,
        reference_path: Path,
        difference_name: Name,
        unit: float = 1e-9,
        output_type: types.DALIDataType = types.DALIDataType.FLOAT,
    ) -> None:
        """Create the step.

        Args:
            timestamp_names: Name or names of the time stamps.
            reference_path: Name or path of the reference, from the group that the step is applied to.
            difference_name: Name of the field to add.
            unit: What a difference of 1 is in the wanted unit; 1e-9 for nanoseconds to seconds.
            output_type: ``FLOAT`` or ``FLOAT64``; or ``INT64`` for the difference of integers as it is, with a
                unit of 1.

        Raises:
            SettingError: The unit is 0 or not finite, or does not go with the type, which is none of these.
        """
        unit = number(unit, "unit")
        if unit == 0:
            raise SettingError("`unit` must be a number other than 0, got 0.")
        output_type = choice(output_type, "output_type", (_DT.FLOAT, _DT.FLOAT64, _DT.INT64))
        if output_type == _DT.INT64 and unit != 1:
            raise SettingError(f"`output_type` INT64 needs `unit` 1, got {unit!r}.")
        self._timestamp_names = required_names(timestamp_names, "timestamp_names")
        self._reference_path = normalized_path(reference_path)
        self._difference_name = field_name(difference_name, "difference_name")
        self._unit = unit
        self._output_type = output_type

    declare_images = no_images

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        reference = data.get_item_in_path(self._reference_path)
        is_integer = leaf_at(data, self._reference_path).dtype != _DT.FLOAT64
        for path in find_paths(data, self._timestamp_names):
            time = data.get_item_in_path(path)
            if is_integer:  # in uint64, the bits of the difference are right also where it is negative
                if leaf_at(data, path).dtype == _DT.UINT64:
                    difference = reinterpret(_difference(time, reference), _DT.INT64)
                else:
                    difference = _difference(functions.cast(time, _DT.INT64), functions.cast(reference, _DT.INT64))
            else:
                difference = _difference(time, reference)
            if self._output_type != _DT.INT64:
                unit = exact_constant_like(np.array(self._unit, np.float64), time)
                difference = functions.cast(functions.cast(difference, _DT.FLOAT64) * unit, self._output_type)
            put_beside(data, path, self._difference_name, self._output_type, difference)
        return data

    _process_arrays = _process

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self)
        reference = data_empty.format.get(self._reference_path)
        if reference is None or isinstance(reference, GroupFormat):
            search.add("there is no such data field for the reference", self._reference_path, KeyError)
        elif self._output_type == _DT.INT64 and reference.dtype == _DT.FLOAT64:
            search.add("must be of an integer type for an output of INT64, got FLOAT64", self._reference_path)
        paths = search.find(self._timestamp_names, "a time stamp", _TIME_TYPES, group_of="time stamps")
        for path in paths:
            dtype = leaf_at(data_empty, path).dtype
            if reference is not None and not isinstance(reference, GroupFormat) and dtype != reference.dtype:
                wanted = f"{format_path(self._reference_path)}, {reference.dtype.name}"
                search.add(f"must be of the type of the reference {wanted}, got {dtype.name}", path)
            search.add_beside(path, [(self._difference_name, self._output_type, None)], "the difference")
        return search.result()


@do_not_convert
def _difference(time: Any, reference: Any) -> Any:
    with np.errstate(over="ignore", invalid="ignore"):  # whole numbers wrap, also single ones
        return time - reference
