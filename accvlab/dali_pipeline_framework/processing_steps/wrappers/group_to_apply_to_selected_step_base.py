# SPDX-License-Identifier: Apache-2.0
"""Base class of steps that apply another step to parts of the sample."""

from __future__ import annotations

import difflib
from abc import abstractmethod
from collections.abc import Sequence

import attrs

from ...checks import listed
from ...draws.draw_scope import ApplyingToGroup
from ...errors import FormatError, SettingError
from ...sample_data import FieldPath, FormatProblem, SampleDataGroup, format_error
from ...sample_data.graph_mode import do_not_convert
from ...sample_data.names import Name
from ..image_use import no_images
from ..pipeline_step_base import PipelineStepBase


class GroupToApplyToSelectedStepBase(PipelineStepBase):
    """Applies a step to each of the selected groups, as if the group were the whole sample.

    The groups are processed one by one: random draws of the step differ between them, unless their key says that
    groups share them. A group below another selected group is part of that one and is not processed a second time.
    """

    def __init__(self, processing_step_to_apply: PipelineStepBase) -> None:
        """Wrap a step.

        Raises:
            SettingError: It is not a `PipelineStepBase`.
        """
        if not isinstance(processing_step_to_apply, PipelineStepBase):
            raise SettingError(
                f"`processing_step_to_apply` must be a PipelineStepBase, got {processing_step_to_apply!r}."
            )
        self._processing_step_to_apply = processing_step_to_apply

    @property
    def treats_elements_alike(self) -> bool:  # type: ignore[override]
        """Whether the step that it applies does. A class that selects single elements by number must say no."""
        return self._processing_step_to_apply.treats_elements_alike

    @property
    def has_array_form(self) -> bool:
        """Whether the step that it applies has one."""
        return super().has_array_form and self._processing_step_to_apply.has_array_form

    @property
    def has_graph_form(self) -> bool:
        """Whether the step that it applies has one."""
        return self._processing_step_to_apply.has_graph_form

    @property
    def array_form_needs(self) -> tuple[str, ...]:  # type: ignore[override]
        """What the step that it applies needs."""
        return self._processing_step_to_apply.array_form_needs

    @property
    def image_tolerance(self) -> float:  # type: ignore[override]
        """That of the step that it applies."""
        return self._processing_step_to_apply.image_tolerance

    @abstractmethod
    def _check_and_get_paths_to_apply_to(self, data: SampleDataGroup) -> Sequence[FieldPath]:
        """Get the paths of the selected groups.

        Raises:
            ValueError: The selection does not fit the format.
        """

    @do_not_convert
    def _selected_paths(self, data: SampleDataGroup) -> list[FieldPath]:
        paths = dict.fromkeys(self._check_and_get_paths_to_apply_to(data))
        return [path for path in paths if not any(path[:end] in paths for end in range(len(path)))]

    declare_images = no_images

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for path in self._selected_paths(data):
            with ApplyingToGroup(path):
                processed = self._processing_step_to_apply(data.get_item_in_path(path))
            if not path:
                return processed
            data.change_type_of_data_and_remove_data(path, processed)
            data.set_item_in_path(path, processed)
        return data

    _process_arrays = _process

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        problems: list[FormatProblem] = []
        for path in self._selected_paths(data_empty):
            selected = data_empty.get_item_in_path(path)
            try:
                with ApplyingToGroup(path):
                    processed = self._processing_step_to_apply.check_input_data_format_and_set_output_data_format(
                        selected
                    )
            except Exception as error:
                problems += _problems_below(path, error)
                continue
            if not path:
                return processed
            data_empty.change_type_of_data_and_remove_data(path, processed)
        if problems:
            step = type(self._processing_step_to_apply).__name__
            raise format_error(problems, f"{step} cannot be applied to the selected groups:")
        return data_empty


def _problems_below(path: FieldPath, error: Exception) -> list[FormatProblem]:
    if isinstance(error, FormatError) and error.problems:
        return [
            attrs.evolve(problem, path=(*path, *(problem.path or ())), step=None) for problem in error.problems
        ]
    return [FormatProblem(str(error), path, error_type=type(error))]


def group_names_hint(sought: Sequence[Name], data: SampleDataGroup) -> str:
    """Say which groups of a sample may have been meant by names that do not occur; starts with a blank."""
    known = sorted({name for path in data.format.flat_paths for name in path[:-1] if isinstance(name, str)})
    close = [match for name in sought for match in difflib.get_close_matches(str(name), known, 1)]
    meant = f" Did you mean {', '.join(map(repr, close))}?" if close else ""
    return f"{meant} Groups: {listed(map(repr, known))}."
