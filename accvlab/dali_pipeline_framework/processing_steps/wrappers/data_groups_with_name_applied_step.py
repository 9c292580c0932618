# SPDX-License-Identifier: Apache-2.0
"""Apply a step to all groups of a name."""

from __future__ import annotations

from collections.abc import Sequence

from ...checks import flag, listed
from ...sample_data import FormatProblem, SampleDataGroup, format_error
from ...sample_data.names import Name, normalized_path
from ..pipeline_step_base import PipelineStepBase
from .group_to_apply_to_selected_step_base import GroupToApplyToSelectedStepBase, group_names_hint


class DataGroupsWithNameAppliedStep(GroupToApplyToSelectedStepBase):
    """Applies a step to each group, anywhere in the sample, that has one of the given names.

    No group of any of the names, or a data field of one of the names, is a format problem (`ValueError`).
    """

    def __init__(
        self,
        processing_step_to_apply: PipelineStepBase,
        names_of_groups_to_apply_to: Name | Sequence[Name],
        check_minimum_one_name_match: bool = True,
    ) -> None:
        """Wrap a step.

        Args:
            processing_step_to_apply: The step.
            names_of_groups_to_apply_to: One name or several.
            check_minimum_one_name_match: Whether it is a problem when no group has one of the names.
        """
        super().__init__(processing_step_to_apply)
        self._names_of_groups_to_apply_to = normalized_path(names_of_groups_to_apply_to)
        self._check_minimum_one_name_match = flag(check_minimum_one_name_match, "check_minimum_one_name_match")

    def _check_and_get_paths_to_apply_to(self, data: SampleDataGroup) -> list[tuple[Name, ...]]:
        names = self._names_of_groups_to_apply_to
        paths = [path for name in names for path in data.find_all_occurrences(name)]
        problems = [
            FormatProblem("must be a data group field to apply a step to, but is a data field", path)
            for path in paths
            if not data.path_exists_and_is_data_group_field(path)
        ]
        if not paths and self._check_minimum_one_name_match:
            sought = listed(map(repr, names))
            hint = group_names_hint(names, data)
            problems.append(FormatProblem(f"No group with one of the names {sought} exists.{hint}"))
        if problems:
            raise format_error(problems, f"{type(self).__name__} cannot select its groups:")
        return paths
