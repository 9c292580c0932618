# SPDX-License-Identifier: Apache-2.0
"""Steps that add, pad, label or remove fields."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import attrs
import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ..checks import choice, did_you_mean, number, text
from ..draws.draw_scope import Draws
from ..engine.dali.graph_definition import branched
from ..errors import FieldValueError, SettingError
from ..operators import functions
from ..operators.element_selection import NUMBER_TYPES, leaf_at
from ..operators.functions import Array, Value
from ..sample_data import FieldPath, ImageContent, LeafFormat, SampleDataGroup
from ..sample_data.formats import UNKNOWN_CONTENT
from ..sample_data.names import Name
from ..unknown_arguments import explains_unknown_arguments
from .array_step import ArrayStep, FieldUse
from .field_steps import FieldStep, Parameters, PixelStep
from .image_use import ImageUse, height_and_width, with_height_and_width
from .named_fields import FieldSearch, as_names, find_paths, put_beside, required_names
from .pipeline_step_base import PipelineStepBase

_DT = types.DALIDataType
_logger = logging.getLogger(__name__)


class TensorSizeAdder(FieldStep):
    """Adds next to every field with the given name its height and width: its third-last and second-last extents.

    For images, ``(height, width, channels)`` or ``(num_frames, height, width, channels)``, that is ``[height,
    width]``, ``(2,)``, on the CPU, wherever the image is. Where the format knows another layout, as ``CHW`` after
    a normalizer with this ``output_layout``, its height and width are taken. Only the shape is read. A field that
    is known to hold an encoded image is refused.

    The new field has the name ``tensor_name + size_postfix`` and is the last of its group. A tensor of fewer than
    three axes is an error when the pipeline runs.

    Example:
        >>> sample = SampleDataGroup()
        >>> sample.add_data_field("image", types.DALIDataType.UINT8)
        >>> step = TensorSizeAdder("image", "_hw")
        >>> step.check_input_data_format_and_set_output_data_format(sample).field_names_flat
        ('image', 'image_hw')
    """

    changes_images = False

    _what, _plural = "a tensor", "tensors"
    _dtypes = None

    @explains_unknown_arguments
    def __init__(
        self, tensor_name: Name, size_postfix: str, store_size_as_type: types.DALIDataType = _DT.INT32
    ) -> None:
        """Create the step.

        Args:
            tensor_name: Name of the fields whose size is added.
            size_postfix: Postfix of the name of the new field; not empty.
            store_size_as_type: Type of the new field, a number type.

        Raises:
            SettingError: The name or postfix is not a text, the postfix is empty, or the type is not a number
                type.
        """
        # They form the name of the new field, so a number is no name here.
        self._tensor_name = text(tensor_name, "tensor_name", may_be_empty=True)
        self._size_postfix = text(size_postfix, "size_postfix")
        self._store_size_as_type = choice(store_size_as_type, "store_size_as_type", NUMBER_TYPES)

    def declare_images(self, data_empty: SampleDataGroup) -> Sequence[ImageUse]:
        """Declare that images must be decoded, of whatever layout."""
        return [ImageUse(self._tensor_name, with_height_and_width)]

    def fields_used(self, data_empty: SampleDataGroup) -> FieldUse:
        """The shapes of the tensors."""
        return FieldUse(shapes=find_paths(data_empty, self._names()))

    def _names(self) -> Sequence[Name]:
        return (self._tensor_name,)

    def _change_field(self, data: SampleDataGroup, path: FieldPath) -> None:
        size = functions.cast(height_and_width(data, path), self._store_size_as_type)
        put_beside(data, path, self._tensor_name + self._size_postfix, self._store_size_as_type, size)

    def _check_field(self, search: FieldSearch, path: FieldPath) -> None:
        new_name = self._tensor_name + self._size_postfix
        search.add_beside(path, [(new_name, self._store_size_as_type, None)], "the size", KeyError)


class AxesLayoutSetter(PixelStep):
    """Sets the layout of every data field with a given name, anywhere in the sample: one letter per axis.

    Data, shape and type stay as they are, on the CPU or the GPU; nothing is copied. The layout stays with the
    field to the output of the pipeline. A layout that contradicts a known one (``CHW`` for ``HWC``), or the known
    number of dimensions, is refused. Otherwise, a batch fails at run time if the number of axes of a sample is not
    the number of letters.

    Example::

        AxesLayoutSetter("image", "HWC")           # images that a provider delivers as arrays
        AxesLayoutSetter(["clip", "depth"], "FHWC")
    """

    _what, _plural = "axes", "fields to set the layout of"
    _dtypes = None
    _needs = UNKNOWN_CONTENT

    @explains_unknown_arguments
    def __init__(self, names_fields_to_set: Name | Sequence[Name], layout_to_set: str) -> None:
        """Create the step.

        Args:
            names_fields_to_set: Name or names of the fields.
            layout_to_set: The layout, e.g. ``"HWC"``; the empty text removes a layout.

        Raises:
            SettingError: There is no name, or something other than a name, or the layout is not a text.
        """
        self._names_fields_to_set = required_names(names_fields_to_set, "names_fields_to_set")
        self._layout_to_set = text(layout_to_set, "layout_to_set", may_be_empty=True)

    def _names(self) -> Sequence[Name]:
        return self._names_fields_to_set

    def graph(self, image: DataNode, leaf: LeafFormat, name: Name) -> DataNode:
        """See `PipelineStepBase.graph`."""
        return fn.reshape(image, layout=self._layout_to_set)

    def _on_array(self, image: Array, leaf: LeafFormat) -> Array:
        """Leave arrays as they are: only the format says what their axes mean."""
        return image

    def _changed(self, image: Value, leaf: LeafFormat, parameters: Parameters) -> Value:
        layout = self._layout_to_set
        if layout and image.ndim != len(layout):
            raise FieldValueError(f"has the shape {image.shape}, so it cannot have the layout {layout}")
        return super()._changed(image, leaf, parameters)

    def _check_field(self, search: FieldSearch, path: FieldPath) -> None:
        leaf, wanted = search.leaf(path), self._layout_to_set
        known = leaf.content.layout
        if not wanted:
            return
        if leaf.content.is_encoded and len(wanted) != 1:
            search.add(f"holds the bytes of a file, which cannot have the layout {wanted}", path)
        elif leaf.ndim not in (None, len(wanted)):
            search.add(f"has {leaf.ndim} dimension(s), so it cannot have the layout {wanted}", path)
        elif known and (len(known) != len(wanted) or _has_moved_axes(known, wanted)):
            rule = f"has the layout {known}, so it cannot be given {wanted}: this step moves no data"
            search.add(f"{rule}. Transpose it, e.g. by `output_layout` of ImageMeanStdDevNormalizer", path)

    def _content_after(self, leaf: LeafFormat) -> ImageContent:
        is_layout = bool(self._layout_to_set) and not leaf.content.is_encoded
        letters = self._layout_to_set if is_layout else ""
        is_image = len({*letters}) == len(letters) > 0
        return attrs.evolve(leaf.content, layout=letters) if is_image else leaf.content


def _has_moved_axes(layout: str, other: str) -> bool:
    return any(layout.find(axis) not in (-1, place) for place, axis in enumerate(other))


class PaddingToUniform(PipelineStepBase):
    """Pads data fields so that all samples of a batch have one shape: the largest extent of each axis.

    The content stays at the origin, the fill follows at the end of each axis. Samples without elements, and
    batches of them only, are fine; so are fields without axes, which stay as they are. Text is padded as UTF-8
    bytes; zeros at its end are dropped when it is read. The shape depends on the batch: two batches may differ.
    For a shape that is the same in all batches, see `PointsPadder`.

    Works for all types, on the CPU or the GPU; layouts stay. Fields with a
    declared number of dimensions (``ndim`` in the blueprint) take a third of the time.

    Example::

        PaddingToUniform()                                # all fields, with zeros
        PaddingToUniform(["boxes", "categories"], -1)     # these only
    """

    @explains_unknown_arguments
    def __init__(self, field_names: Name | Sequence[Name] | None = None, fill_value: int | float = 0.0) -> None:
        """Create the step.

        Args:
            field_names: Name or names of the fields, anywhere in the sample. In a group of such a name, all data
                fields are padded. None for all data fields of the sample.
            fill_value: Value to pad with. It is converted to float32, and then to the type of the field, as DALI
                converts.

        Raises:
            SettingError: The fill value is not a number, or something other than names was given.
        """
        self._field_names = None if field_names is None else as_names(field_names, "field_names")
        self._fill_value = number(fill_value, "fill_value", may_be_nan=True)

    changes_images = False

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for path in self._paths(data):
            leaf = leaf_at(data, path)
            data.set_item_in_path(path, self._padded(data.get_item_in_path(path), leaf))
        return data

    def _padded(self, value: DataNode, leaf: LeafFormat) -> DataNode:
        if leaf.ndim == 0:
            return value
        if leaf.ndim is not None:
            return self._padded_axes(value, leaf.dtype)
        # DALI cannot pad what has no axes. All samples of a batch have the same number of axes.
        has_no_axes = fn.reshape(value.shape().shape(), shape=[]) == 0
        return branched(has_no_axes, [value], lambda same: same, lambda axes: self._padded_axes(axes, leaf.dtype))

    def _padded_axes(self, value: DataNode, dtype: types.DALIDataType) -> DataNode:
        if dtype != _DT.FLOAT64:
            return fn.pad(value, fill_value=self._fill_value)
        # `fn.pad` refuses float64, so its bits are padded with the bits of 0.0.
        bits = fn.pad(fn.reinterpret(value, dtype=_DT.INT64), fill_value=0)
        if self._fill_value != 0:
            zeros = fn.zeros_like(value, dtype=_DT.FLOAT)
            fill = fn.cast(fn.pad(zeros, fill_value=self._fill_value), dtype=_DT.FLOAT64)
            bits = bits + fn.reinterpret(fill, dtype=_DT.INT64)
        return fn.reinterpret(bits, dtype=_DT.FLOAT64)

    def _paths(self, data: SampleDataGroup) -> list[FieldPath]:
        if self._field_names is None:
            return list(data.format.flat_paths)
        roots = find_paths(data, self._field_names)
        # A field may lie below several roots, and must be padded once.
        return [path for path in data.format.flat_paths if any(path[: len(root)] == root for root in roots)]

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self, cannot="pad")
        for name in self._field_names or ():
            if not data_empty.find_all_occurrences(name):
                known = [part for path in data_empty.format.flat_paths for part in path]
                search.add(f"No fields to be padded with name '{name}' were found.{did_you_mean(name, known)}")
        return search.result()


_SIMILARITY_OF_MISSPELT = 0.8  # as `difflib` measures it: one letter of five swapped, or one of ten wrong


class UnneededFieldRemover(ArrayStep):
    """Removes all data fields and groups with the given names, anywhere in the sample.

    A removed group takes everything below it along. What only a removed field needs is not computed either: DALI
    leaves out operators whose results are not used. The step itself costs nothing: it adds no operator.

    Names that do not occur are passed over, so that one list serves several data sets. A name that looks like
    a misspelt field is logged: ``"imgae"`` if there is an ``"image"``. Names that differ in digits only, such as
    ``"boxes_2d"`` and ``"boxes_3d"``, are different names.

    Example:
        >>> from nvidia.dali.types import DALIDataType
        >>> sample = SampleDataGroup()
        >>> sample.add_data_field("image", DALIDataType.UINT8)
        >>> sample.add_data_field("path", DALIDataType.STRING)
        >>> step = UnneededFieldRemover(["path", "comment"])
        >>> step.check_input_data_format_and_set_output_data_format(sample).field_names_flat
        ('image',)
    """

    only_in_workers = False
    treats_elements_alike = True

    @explains_unknown_arguments
    def __init__(self, unneeded_field_names: Sequence[Name]) -> None:
        """Create the step.

        Args:
            unneeded_field_names: Names to remove, as a list or tuple. A single ``str`` is refused.

        Raises:
            SettingError: It is not a list or tuple of names.
        """
        if not isinstance(unneeded_field_names, list | tuple):
            raise SettingError(
                f"`unneeded_field_names` must be a list or tuple of names, got {unneeded_field_names!r}."
            )
        self._unneeded_field_names = as_names(unneeded_field_names, "unneeded_field_names")

    reads_pixels = False

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        """See `ArrayStep.arrays`."""
        for name in self._unneeded_field_names:
            data.remove_all_occurrences(name)
        return data

    def fields_used(self, data_empty: SampleDataGroup) -> FieldUse:
        """None: what is removed is not read."""
        return FieldUse()

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        """See `ArrayStep.format_after`."""
        known = {part for path in data_empty.format.flat_paths for part in path if isinstance(part, str)}
        for name in self._unneeded_field_names:
            if not data_empty.find_all_occurrences(name):
                # Names that differ by digits only are other fields.
                others = [other for other in known if _without_digits(other) != _without_digits(str(name))]
                meant = did_you_mean(name, others, _SIMILARITY_OF_MISSPELT)
                if meant:
                    _logger.warning(
                        "UnneededFieldRemover: no field has the name %r, which looks misspelt.%s", name, meant
                    )
        return self.arrays(data_empty, {})


def _without_digits(name: str) -> str:
    return "".join(letter for letter in name if not letter.isdigit())
