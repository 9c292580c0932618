# SPDX-License-Identifier: Apache-2.0
"""Base classes of steps that change each field of some names, and of steps that change pixels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ..draws.draw_scope import Draws
from ..operators.deferred_images import DeferredImage
from ..operators.element_selection import leaf_at
from ..operators.functions import Array, Value
from ..sample_data import FieldPath, ImageContent, LeafFormat, SampleDataGroup
from ..sample_data.dtypes import NUMPY_TYPES
from ..sample_data.names import Name
from .array_step import ArrayStep, FieldUse
from .image_use import PIXELS, ContentRule, ImageUse, as_pixels
from .named_fields import FieldSearch, change_type, find_paths, with_fields_beside
from .pipeline_step_base import PixelChanges, naming_field

Parameters: TypeAlias = Callable[[Value, LeafFormat], Sequence[Value]]
"""Function that gives the parameters of the change of an image: a node, an array or a `DeferredImage`."""


class FieldStep(ArrayStep):
    """Does the same to each field of some names, anywhere in the sample, in a graph or on arrays."""

    treats_elements_alike = True
    only_in_workers = False
    reads_pixels = False

    _cannot = "be applied"
    _what = ""
    _plural = ""  # for `_what`, if that is another one
    _holds = ""
    _dtypes: Sequence[types.DALIDataType] | None = (*NUMPY_TYPES,)
    _further_names: Sequence[Name] = ()  # of fields next to each, with a row for each of its rows

    @abstractmethod
    def _names(self) -> Sequence[Name]:
        """Get the names of the fields."""

    def _change_field(self, data: SampleDataGroup, path: FieldPath) -> None:
        """Change one of the fields."""
        raise NotImplementedError

    def _find(self, search: FieldSearch) -> list[FieldPath]:
        """Find the fields; add a problem for each field of another kind."""
        group_of = self._plural or self._what
        return search.find(self._names(), self._what, self._dtypes, group_of=group_of, holds=self._holds)

    def _check_field(self, search: FieldSearch, path: FieldPath) -> None:
        """Add problems of a field, and fields next to it."""
        search.check_rows_beside(path, self._further_names)

    def _adjust_format(self, data: SampleDataGroup, path: FieldPath) -> None:
        """Adjust the format of a field; called where there are no problems."""

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        """See `ArrayStep.arrays`."""
        for path in find_paths(data, self._names()):
            self._change_field(data, path)
        return data

    def fields_used(self, data_empty: SampleDataGroup) -> FieldUse:
        """The fields of these names, and those next to them; a derived class may use others."""
        return FieldUse(with_fields_beside(find_paths(data_empty, self._names()), self._further_names))

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        """See `ArrayStep.format_after`."""
        search = FieldSearch(data_empty, self, self._cannot)
        paths = self._find(search)
        for path in paths:
            self._check_field(search, path)
        search.raise_problems()
        for path in paths:
            self._adjust_format(data_empty, path)
        return data_empty


class PixelStep(FieldStep):
    """Changes each image of some names, anywhere in the sample, by parameters that are computed first.

    The parameters are nodes or arrays. By them an image is changed as a node (`graph`), or as an array
    (``_on_array``), or its change is noted for the graph (``_deferred``). A derived class sets
    ``_image_name`` or ``_image_names``, and the attributes below that differ.
    """

    _image_name: Name | None = None
    _image_names: Sequence[Name] = ()
    _what, _plural = "an image", "images"
    _needs: ContentRule = PIXELS
    _output_type: types.DALIDataType | None = None
    _reads_shapes = False

    @property
    def _parameter_types(self) -> Mapping[str, types.DALIDataType]:
        """Names and types of the parameters, see `_parameters`."""
        return {}

    def _parameters(self, draws: Draws) -> Parameters:
        """Compute what all images of a sample share; return a function that gives the parameters of an image."""
        return lambda image, leaf: ()

    @abstractmethod
    def graph(self, image: DataNode, leaf: LeafFormat, name: Name, *args: Any, **parameters: Any) -> DataNode:
        """See `PipelineStepBase.graph`."""

    @abstractmethod
    def _on_array(self, image: Array, leaf: LeafFormat, *args: Any, **kwargs: Any) -> Array:
        """Change an array by its parameters."""

    def _shape_after(self, shape: tuple[int, ...], leaf: LeafFormat, *args: Any, **kwargs: Any) -> tuple[int, ...]:
        """Get the shape of an image after its change by its parameters."""
        return shape

    def _content_after(self, leaf: LeafFormat) -> ImageContent:
        """Get the known content of an image after its change."""
        return as_pixels(leaf)

    def _adjust_format(self, data: SampleDataGroup, path: FieldPath) -> None:
        if self._output_type is not None:
            change_type(data, path, self._output_type)

    def _change_others(self, data: SampleDataGroup) -> None:
        """Change other fields."""

    def _names(self) -> Sequence[Name]:
        return self._image_names if self._image_name is None else (self._image_name,)

    def _image_paths(self, data: SampleDataGroup) -> list[FieldPath]:
        """Get the paths of the images that are changed."""
        return find_paths(data, self._names())

    def declare_images(self, data_empty: SampleDataGroup) -> Sequence[ImageUse]:
        """Declare what the images must be, and what they are after the step."""
        return [ImageUse(self._names(), self._needs, self._content_after)]

    def declare_pixel_changes(self, data_empty: SampleDataGroup) -> PixelChanges | None:
        """Declare the parameters of the change of each image; none without a form in the graph."""
        images = self._image_paths(data_empty)
        return dict.fromkeys(images, self._parameter_types) if self.has_graph_form else None

    def fields_used(self, data_empty: SampleDataGroup) -> FieldUse:
        """The shapes of the images, if the parameters depend on them."""
        return FieldUse(shapes=self._image_paths(data_empty) if self._reads_shapes else ())

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        """See `ArrayStep.arrays`."""
        paths = self._image_paths(data)
        if not paths:
            return data
        parameters = self._parameters(draws)
        for path in paths:
            with naming_field(path):
                changed = self._changed(data.get_item_in_path(path), leaf_at(data, path), parameters)
            self._adjust_format(data, path)
            data.set_item_in_path(path, changed)
        self._change_others(data)
        return data

    def _changed(self, image: Value, leaf: LeafFormat, parameters: Parameters) -> Value:
        change = self._deferred if isinstance(image, DeferredImage) else self._on_array
        return change(image, leaf, *parameters(image, leaf))

    def _deferred(self, image: DeferredImage, leaf: LeafFormat, *parameters: Value) -> DeferredImage:
        """Record the change of an image whose pixels the graph changes."""
        dtype = None if self._output_type is None else NUMPY_TYPES[self._output_type]
        return image.changed(
            *parameters, find_shape=lambda: self._shape_after(image.shape, leaf, *parameters), dtype=dtype
        )
