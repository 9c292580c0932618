# SPDX-License-Identifier: Apache-2.0
"""Remove fields that nobody needs any more."""

from __future__ import annotations

from collections.abc import Sequence

from ...checks import did_you_mean
from ...errors import SettingError
from ...sample_data import SampleDataGroup
from ...sample_data.names import Name
from ..image_use import no_images
from ..named_fields import FieldSearch, as_names
from ..pipeline_step_base import PipelineStepBase

_SIMILARITY_OF_MISSPELT = 0.8  # as `difflib` measures it: one letter of five swapped, or one of ten wrong


class UnneededFieldRemover(PipelineStepBase):
    """Removes all data fields and groups of some names, anywhere in the sample.

    A removed group takes everything below it along. What only a removed field needs is not computed either: DALI
    leaves out operators whose results nobody uses. The step itself costs nothing, it adds no operator.

    Names that do not occur are passed over, so that one list serves several data sets. Refused are only those that
    look like a misspelt name of a field: ``"imgae"`` where there is an ``"image"``. Names that differ in digits
    only, as ``"boxes_2d"`` and ``"boxes_3d"``, are different names.

    Example:
        >>> from nvidia.dali.types import DALIDataType
        >>> sample = SampleDataGroup()
        >>> sample.add_data_field("image", DALIDataType.UINT8)
        >>> sample.add_data_field("path", DALIDataType.STRING)
        >>> step = UnneededFieldRemover(["path", "comment"])
        >>> step.check_input_data_format_and_set_output_data_format(sample).field_names_flat
        ('image',)
    """

    treats_elements_alike = True

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
        for name in self._unneeded_field_names:
            data.remove_all_occurrences(name)
        return data

    _process_arrays = _process

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self, cannot="remove fields")
        known = {part for path in data_empty.format.flat_paths for part in path if isinstance(part, str)}
        for name in self._unneeded_field_names:
            if not data_empty.find_all_occurrences(name):
                # Names that differ by digits only are other fields.
                others = [other for other in known if _without_digits(other) != _without_digits(str(name))]
                meant = did_you_mean(name, others, _SIMILARITY_OF_MISSPELT)
                if meant:
                    search.add(
                        f"No field has the name {name!r}, which looks misspelt.{meant}", error_type=KeyError
                    )
        search.raise_problems()
        return self._process(data_empty)


def _without_digits(name: str) -> str:
    return "".join(letter for letter in name if not letter.isdigit())
