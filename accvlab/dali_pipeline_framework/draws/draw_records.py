# SPDX-License-Identifier: Apache-2.0
"""The random numbers that were drawn for a sample, as data to keep and to replay, and as a group of a sample.

A record is a plain dict: for each draw its name (`PlannedDraw.record_name`) and its numbers, an array of the shape
and type that the step declared::

    {"ImageGaussianBlurrer[0]/cameras[1]/sigma": array(1.25, float32), ...}
     step, and its number     group          draw
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import FieldValueError, SettingError
from ..sample_data import FieldPath, SampleDataGroup
from ..sample_data.conversion import as_numpy
from ..sample_data.dtypes import get_numpy_type_for_dali_type
from ..sample_data.names import Name, format_path
from .random_draws import IntegerDraw, NormalDraw, PlannedDraw

DrawRecord: TypeAlias = dict[str, npt.NDArray[Any]]
"""The draws of one sample, by name: arrays of float32 or int32."""


def records_of_batch(draws: Mapping[Any, Any]) -> list[DrawRecord]:
    """Split the recorded draws of a batch into one record per sample.

    Args:
        draws: The group of draws of a batch, as an iterator delivers it: for each draw an array
            ``(batch, *shape)`` of any library.

    Returns:
        A record for each sample; the arrays are copies.

    Raises:
        FieldValueError: If an entry is no array, or the entries have different numbers of samples.

    Example:
        >>> batch = {"Jitter[0]/gain": np.array([0.5, 2.0], np.float32)}
        >>> [record["Jitter[0]/gain"].item() for record in records_of_batch(batch)]
        [0.5, 2.0]
    """
    columns = {str(name): as_numpy(value) for name, value in draws.items()}
    for name, column in columns.items():
        if column is None or column.ndim == 0:
            raise FieldValueError(
                f"{name}: the draws of a batch must be an array with the samples as first axis, got "
                f"{draws[name]!r}"
            )
    arrays = {name: column for name, column in columns.items() if column is not None}
    sizes = {name: len(array) for name, array in arrays.items()}
    if len({*sizes.values()}) > 1:
        raise FieldValueError(f"All draws of a batch must be of the same number of samples, got {sizes}")
    count = next(iter(sizes.values()), 0)
    return [{name: np.array(array[slot]) for name, array in arrays.items()} for slot in range(count)]


def problem_of_draw(planned: PlannedDraw, value: npt.NDArray[Any]) -> str | None:
    """Return why recorded numbers cannot be those of a draw; None if they can."""
    draw = planned.draw
    dtype = np.dtype(get_numpy_type_for_dali_type(draw.dtype))
    if value.dtype != dtype or value.shape != draw.shape:
        return (
            f"the {planned} has shape {draw.shape} and dtype {dtype}, the record holds shape {value.shape} and "
            f"dtype {value.dtype}"
        )
    if isinstance(draw, NormalDraw):
        return None if np.isfinite(value).all() else f"the {planned} must be finite, the record holds {value}"
    if isinstance(draw, IntegerDraw):
        is_inside = (draw.low <= value) & (value < draw.high)
    else:  # DALI's generators may round up to the limit
        is_inside = (np.float32(draw.low) <= value) & (value <= np.float32(draw.high))
    if is_inside.all():
        return None
    return f"the {planned} lies in [{draw.low}, {draw.high}), the record holds {value}"


# --- as a group of a sample -------------------------------------------------------------------------------


def record_blueprint(draws: Sequence[PlannedDraw]) -> SampleDataGroup:
    """Make the group of the recorded draws of a chain.

    Raises:
        SettingError: Two draws have the same name in a record.
    """
    group = SampleDataGroup()
    for planned in draws:
        if group.has_child(planned.record_name):
            raise SettingError(
                f"Two random draws would have the name {planned.record_name!r} in a record. Give one of their "
                f"steps another `random_name`, or rename the draw."
            )
        group.add_data_field(planned.record_name, planned.draw.dtype, ndim=len(planned.draw.shape))
    return group


def with_record(output: SampleDataGroup, name: Name, draws: Sequence[PlannedDraw]) -> SampleDataGroup:
    """Add the group of the recorded draws to the format of an output.

    Raises:
        SettingError: The name is taken.
    """
    if output.has_child(name):
        raise SettingError(
            f"The draws cannot be recorded as {name!r}: the output has a field of this name already. Pass another "
            f"name as `record_draws`."
        )
    extended = output.get_empty_like_self()
    extended.add_data_group_field(name, record_blueprint(draws))
    return extended


def take_group(sample: SampleDataGroup, path: FieldPath) -> SampleDataGroup:
    """Remove a group from a sample and return it.

    Raises:
        SettingError: There is no group at this path.
    """
    if not path or not sample.path_exists_and_is_data_group_field(path):
        fields = ", ".join(map(repr, sample.contained_top_level_field_names))
        raise SettingError(
            f"`replay_draws` must be the path of a group of the input sample, with recorded draws; there is none "
            f"at {format_path(path)!r}. Fields of the sample: {fields}. `ReplayedDrawsProvider` adds such a group."
        )
    group: SampleDataGroup = sample.get_item_in_path(path)
    sample.get_parent_of_path(path).remove_field(path[-1])
    return group
