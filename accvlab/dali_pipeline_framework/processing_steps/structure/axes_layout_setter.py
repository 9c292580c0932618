# SPDX-License-Identifier: Apache-2.0
"""Tell DALI what the axes of a field mean."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import nvidia.dali.fn as fn

from ...checks import text
from ...errors import FieldValueError, SettingError
from ...operators.field_types import leaf_at
from ...sample_data import ImageContent, LeafFormat, SampleDataGroup
from ...sample_data.names import Name
from ..array_application import full_path
from ..image_use import ImageUse, known_ndim
from ..named_fields import FieldSearch, as_names
from ..pipeline_step_base import PipelineStepBase


class AxesLayoutSetter(PipelineStepBase):
    """Sets the layout of every data field of some names, anywhere in the sample: one letter per axis.

    Data, shape and type stay as they are, on the CPU or the GPU; nothing is copied. The layout stays with the
    field to the output of the pipeline. A layout that contradicts a known one (``CHW`` for ``HWC``), or the known
    number of dimensions, is refused. Otherwise, a sample that has another number of axes than the layout has
    letters makes the operator of DALI fail when the pipeline runs.

    Example::

        AxesLayoutSetter("image", "HWC")           # images that a provider delivers as arrays
        AxesLayoutSetter(["clip", "depth"], "FHWC")
    """

    treats_elements_alike = True

    def __init__(self, names_fields_to_set: Name | Sequence[Name], layout_to_set: str) -> None:
        """Create the step.

        Args:
            names_fields_to_set: Name or names of the fields.
            layout_to_set: The layout, e.g. ``"HWC"``; the empty text removes a layout.

        Raises:
            SettingError: No name, something else than a name, or a layout that is no text.
        """
        self._names_fields_to_set = as_names(names_fields_to_set, "names_fields_to_set")
        if not self._names_fields_to_set:
            raise SettingError(f"`names_fields_to_set` needs at least one name, got {names_fields_to_set!r}.")
        self._layout_to_set = text(layout_to_set, "layout_to_set", may_be_empty=True)

    def declare_images(self, data_empty: SampleDataGroup) -> Sequence[ImageUse]:
        """Declare the layout."""
        return [ImageUse(self._names_fields_to_set, leaves=self._with_layout)]

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for name in self._names_fields_to_set:
            for path in data.find_all_occurrences(name):
                data.set_item_in_path(path, fn.reshape(data.get_item_in_path(path), layout=self._layout_to_set))
        return data

    def _process_arrays(self, data: SampleDataGroup) -> SampleDataGroup:
        """Leave arrays as they are: only the format says what their axes mean."""
        layout = self._layout_to_set
        for name in self._names_fields_to_set if layout else ():
            for path in data.find_all_occurrences(name):
                shape = data.get_item_in_path(path).shape
                if len(shape) != len(layout):
                    raise FieldValueError(
                        f"{full_path(path)}: has the shape {shape}, so it cannot have the layout {layout}"
                    )
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self)
        for path in search.find(self._names_fields_to_set, "axes", group_of="fields to set the layout of"):
            problem = self._problem_of(leaf_at(data_empty, path))
            if problem:
                search.add(problem, path)
        return search.result()

    def _problem_of(self, leaf: LeafFormat) -> str | None:
        wanted, known, ndim = self._layout_to_set, leaf.content.layout, known_ndim(leaf)
        if not wanted:
            return None
        if leaf.content.is_encoded and len(wanted) != 1:
            return f"holds the bytes of a file, which cannot have the layout {wanted}"
        if ndim not in (None, len(wanted)):
            return f"has {ndim} dimension(s), so it cannot have the layout {wanted}"
        if known and (len(known) != len(wanted) or _has_moved_axes(known, wanted)):
            origin = leaf.content.origin_of("layout")
            since = f" since {origin}" if origin else ""
            return (
                f"has the layout {known}{since}, so it cannot be given {wanted}: this step moves no data. "
                f"Transpose it, e.g. by `output_layout` of ImageMeanStdDevNormalizer"
            )
        return None

    def _with_layout(self, leaf: LeafFormat) -> ImageContent:
        is_layout = bool(self._layout_to_set) and not leaf.content.is_encoded
        letters = self._layout_to_set if is_layout else ""
        is_image = len({*letters}) == len(letters) > 0
        return attrs.evolve(leaf.content, layout=letters) if is_image else leaf.content


def _has_moved_axes(layout: str, other: str) -> bool:
    return any(layout.find(axis) not in (-1, place) for place, axis in enumerate(other))
