# SPDX-License-Identifier: Apache-2.0
"""Remove fields that nobody needs any more."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import SettingError
from ..sample_data import Name, SampleDataGroup
from .image_use import no_images
from .named_fields import as_names
from .pipeline_step_base import PipelineStepBase


class UnneededFieldRemover(PipelineStepBase):
    """Removes all data fields and groups of some names, anywhere in the sample.

    A removed group takes everything below it along. What only a removed field needs is not computed either: DALI
    leaves out operators whose results nobody uses. The step itself costs nothing, it adds no operator.

    Names that do not occur are passed over, so that one list serves several data sets.

    Example:
        >>> from nvidia.dali.types import DALIDataType
        >>> sample = SampleDataGroup()
        >>> sample.add_data_field("image", DALIDataType.UINT8)
        >>> sample.add_data_field("path", DALIDataType.STRING)
        >>> step = UnneededFieldRemover(["path", "comment"])
        >>> step.check_input_data_format_and_set_output_data_format(sample).field_names_flat
        ('image',)
    """

    def __init__(self, unneeded_field_names: Sequence[Name]) -> None:
        """Create the step.

        Args:
            unneeded_field_names: Names to remove, as a list or tuple. A single ``str`` is refused.

        Raises:
            SettingError: It is no list or tuple of names.
        """
        if not isinstance(unneeded_field_names, list | tuple):
            raise SettingError(
                f"`unneeded_field_names` must be a list or tuple of names, got {unneeded_field_names!r}."
            )
        self._unneeded_field_names = as_names(unneeded_field_names, "unneeded_field_names")

    declare_images = no_images

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        return self._check_and_adjust_data_format_input_to_output(data)

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        for name in self._unneeded_field_names:
            data_empty.remove_all_occurrences(name)
        return data_empty
