# SPDX-License-Identifier: Apache-2.0
"""Random draws as a group of a sample: recorded draws in the output, draws to be replayed in the input."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import SettingError
from ..sample_data import FieldPath, Name, SampleDataGroup, format_path
from .random_draws import PlannedDraw


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
