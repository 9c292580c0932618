# SPDX-License-Identifier: Apache-2.0
"""Base class of steps that transform images geometrically, with all that is given in their pixels."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import attrs
import numpy as np
from nvidia.dali import types

from ...checks import flag, number, shown, whole_number_list
from ...errors import SettingError
from ...operators import functions, image_arrays
from ...operators.image_pixels import pipeline_has_gpu
from ...operators.image_transform import (
    AxisScaling,
    Resampler,
    Resampling,
    boxes_matrix,
    image_hw,
    one_size_of_all,
    one_size_of_fields,
    projections_rows,
    sizes_of_encoded,
    transformed_boxes,
    transformed_points,
    transformed_projections,
)
from ...sample_data import FieldPath, SampleDataGroup
from ...sample_data.formats import DECODED_IMAGE, ENCODED_IMAGE
from ...sample_data.graph_mode import do_not_convert
from ...unknown_arguments import has_settings
from ..array_application import naming_field
from ..image_use import PIXELS, ImageUse, as_pixels, fill_problems
from ..named_fields import FieldSearch, Names, as_names, fields_of_elements, find_paths
from ..pipeline_step_base import PipelineStepBase

_DT = types.DALIDataType
_REALS = (_DT.FLOAT, _DT.FLOAT64, _DT.FLOAT16)
_INTEGERS = (_DT.INT32, _DT.INT64, _DT.INT16, _DT.INT8, _DT.UINT8, _DT.UINT16, _DT.UINT32, _DT.UINT64)
_PIXELS = (_DT.UINT8, _DT.INT16, _DT.FLOAT)


class PixelFields(TypedDict, total=False):
    """The settings that `ImageTransformStep` has for all of its steps."""

    hw_names: Names | None
    projection_names: Names | None
    point_names: Names | None
    box_names: Names | None
    mask_names: Names | None
    on_gpu: bool


# What fields of each kind hold, what they are called together, and their types.
_KINDS = {
    "image": ("an image", "images", _PIXELS),
    "encoded_image": ("the bytes of an image file", "images", (_DT.UINT8,)),
    "mask": ("a mask", "masks", _PIXELS),
    "hw": ("height and width of an image", "image sizes", _REALS + _INTEGERS),
    "projection": ("a projection matrix", "projection matrices", _REALS),
    "point": ("points", "points", _REALS + _INTEGERS),
    "box": ("boxes", "boxes", _REALS + _INTEGERS),
}


@attrs.frozen
class ImagePlaneChange:
    """What a step does to the images of a sample.

    Attributes:
        matrix: Transformation of pixel coordinates from the input to the output, ``(2, 3)`` float32 on the CPU.
        changed: Called with an image, the value to fill with, and whether it is a mask; gives the output image.
        output_hw: Height and width of the output; None where it is that of the input.
        decoded: Called with an encoded image and the device; gives the image for ``changed``. In a graph only.
        least_scale: Least scale of an axis, pixels of the output per pixel of the input. Of arrays only.
    """

    matrix: Any
    changed: Callable[..., Any]
    output_hw: tuple[int, int] | None
    decoded: Callable[[Any, str], Any] | None = None
    least_scale: float = 1.0


class ImageTransformStep(PipelineStepBase):
    """Applies one transformation per sample to images, and to all that is given in their pixels.

    A derived step says which transformation. All fields, found by name anywhere in the sample, get the same one.
    So all images and size fields of a sample must have one size, and the projection matrices of the elements of an
    array one shape; for cameras that differ, apply the step to each camera by a wrapper.
    """

    treats_elements_alike = True

    # Names of the arguments, for messages.
    _argument_of = {kind: f"{kind}_names" for kind in ("image", "mask", "hw", "projection", "point", "box")} | {
        "on_gpu": "on_gpu"
    }

    def __init__(
        self,
        image_names: Names | None,
        fill_value: float = 0,
        is_encoded: bool = False,
        reduced_decoding: bool = False,
        *,
        hw_names: Names | None = None,
        projection_names: Names | None = None,
        point_names: Names | None = None,
        box_names: Names | None = None,
        mask_names: Names | None = None,
        on_gpu: bool = True,
    ) -> None:
        """Set up with the names of the fields of each kind."""
        fields = {
            "image": image_names,
            "mask": mask_names,
            "hw": hw_names,
            "projection": projection_names,
            "point": point_names,
            "box": box_names,
        }
        self._is_encoded = flag(is_encoded, "is_encoded")
        self._reduced_decoding = flag(reduced_decoding, "reduced_decoding")
        if self._reduced_decoding and not self._is_encoded:
            raise SettingError("`reduced_decoding` is for encoded images: it needs `is_encoded=True`.")
        self._fields = {kind: as_names(names, self._argument_of[kind]) for kind, names in fields.items()}
        self._fill_value = number(fill_value, "fill_value")
        self._on_gpu = flag(on_gpu, self._argument_of["on_gpu"])
        images, sizes, masks = (f"`{self._argument_of[kind]}`" for kind in ("image", "hw", "mask"))
        if not self._fields["image"] and not self._fields["hw"]:
            raise SettingError(
                f"Give {images} or {sizes} (or both): the transformation depends on the size of the images, and "
                "neither names a field."
            )
        if self._fields["mask"] and not self._fields["image"]:
            raise SettingError(f"{masks} needs {images}: masks go with images.")
        several = [name for name, count in Counter(sum(self._fields.values(), ())).items() if count > 1]
        if several:
            raise SettingError(
                f"A field can be of one kind only, but these names are given twice: {shown(several)}."
            )

    @abstractmethod
    def _change_of(self, hw: Any) -> ImagePlaneChange:
        """Define the transformation of images of a height and width, ``(2,)``: a node, or float32 of arrays."""

    def _resized(self, scaling: AxisScaling, hw: Any, resampling: Resampling) -> ImagePlaneChange:
        """The change for a transformation without rotation and shearing."""
        resampler = Resampler.resizing(resampling, scaling, hw)
        matrix = scaling.matrix_after()
        if not functions.is_node(hw):
            least = float(np.abs(scaling.scale).min())
            return ImagePlaneChange(matrix, resampler, scaling.output_hw, least_scale=least)
        if not self._is_encoded:
            return ImagePlaneChange(matrix, resampler, scaling.output_hw)
        resampler = resampler.of_encoded(hw)
        return ImagePlaneChange(matrix, resampler, scaling.output_hw, resampler.decoded)

    @property
    def has_graph_form(self) -> bool:
        """Not with ``reduced_decoding``, which DALI cannot do."""
        return not self._reduced_decoding

    @property
    def array_form_needs(self) -> tuple[str, ...]:  # type: ignore[override]
        """OpenCV, and a decoder for encoded images."""
        return image_arrays.DECODING_NEEDS if self._is_encoded else image_arrays.RESAMPLING_NEEDS

    @property
    def image_tolerance(self) -> float:  # type: ignore[override]
        """One grey level of 255; nine where OpenCV is older than 5.0, and rounds coordinates to 1/32 pixel."""
        return image_arrays.resampling_tolerance()

    def declare_images(self, data_empty: SampleDataGroup) -> Sequence[ImageUse]:
        """Declare that images must be decoded with channels last, or encoded (``is_encoded``)."""
        return [self._use_of_images(), ImageUse(self._fields["mask"], PIXELS, as_pixels)]

    def _use_of_images(self) -> ImageUse:
        names = self._fields["image"]
        if self._is_encoded:
            advice = "Leave out `is_encoded=True`, or the step that decodes it"
            return ImageUse(names, ENCODED_IMAGE, DECODED_IMAGE, advice=advice)
        takes_files = "is_encoded" in inspect.signature(type(self)).parameters
        advice = f"Put ImageDecoder before {type(self).__name__}" + ", or give `is_encoded=True`" * takes_files
        return ImageUse(names, PIXELS, as_pixels, advice=advice)

    @do_not_convert
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        images, masks, sizes = (self._values(data, kind) for kind in ("image", "mask", "hw"))
        hw = self._size_of_all([*images.values()], [*masks.values()], [*sizes.values()])
        change = self._change_of(hw)
        is_on_gpu = self._on_gpu and pipeline_has_gpu()
        for path, image in (images | masks).items():
            is_mask = path in masks
            fill_value = 0.0 if is_mask else self._fill_value
            if change.decoded is not None and not is_mask:
                self._note_decoded(data, path)
                on_device = change.decoded(image, "mixed" if is_on_gpu else "cpu")
            else:
                on_device = image.gpu() if is_on_gpu else image
            data.set_item_in_path(path, change.changed(on_device, fill_value, is_mask))
        self._set_sizes(data, sizes, hw, change.output_hw)
        self._change_geometry(data, change.matrix)
        return data

    @np.errstate(all="ignore")  # which DALI does
    def _process_arrays(self, data: SampleDataGroup) -> SampleDataGroup:
        images, masks, sizes = (self._values(data, kind) for kind in ("image", "mask", "hw"))
        files = {}
        for path, image in images.items() if self._is_encoded else ():
            with naming_field(path):
                files[path] = image_arrays.ImageFile.opened(image)
        of_images = [files[path].hw if path in files else image_hw(image) for path, image in images.items()]
        of_images += [image_hw(mask) for mask in masks.values()]
        if sizes:
            hw = one_size_of_fields([*of_images, *sizes.values()])
        else:
            hw = one_size_of_all(functions.stack(*of_images), len(of_images))
        change = self._change_of(hw)
        for path, image in images.items():
            if path in files:
                self._note_decoded(data, path)
                least_scale = change.least_scale if self._reduced_decoding else 1.0
                with naming_field(path):
                    decoded = files[path].decoded(least_scale)
                data.set_item_in_path(path, change.changed(decoded.image, self._fill_value, False, decoded))
            else:
                data.set_item_in_path(path, change.changed(image, self._fill_value, False))
        for path, mask in masks.items():
            data.set_item_in_path(path, change.changed(mask, 0.0, True))
        self._set_sizes(data, sizes, hw, change.output_hw)
        self._change_geometry(data, change.matrix)
        return data

    def _size_of_all(self, images: list[Any], masks: list[Any], sizes: list[Any]) -> Any:
        """The one size of images, masks and size fields, ``(2,)`` float32, or int32."""
        decoded = masks if self._is_encoded else images + masks
        of_decoded = [image_hw(image) for image in decoded]
        if not sizes and (not self._is_encoded or not masks):
            num_sizes = len(images + masks)
            of_all = sizes_of_encoded(images) if self._is_encoded else of_decoded[0]
            if not self._is_encoded and num_sizes > 1:
                of_all = functions.stack(*of_decoded)
            return one_size_of_all(of_all, num_sizes)
        of_encoded = [sizes_of_encoded([image]) for image in images] if self._is_encoded else []
        return one_size_of_fields([*of_encoded, *of_decoded, *sizes])

    def _values(self, data: SampleDataGroup, kind: str) -> dict[FieldPath, Any]:
        return {path: data.get_item_in_path(path) for path in find_paths(data, self._fields[kind])}

    def _set_sizes(
        self, data: SampleDataGroup, sizes: dict[FieldPath, Any], hw: Any, output_hw: tuple[int, int] | None
    ) -> None:
        if output_hw is None or not sizes:
            return
        # Computed from the input size, so that its check is not optimized away.
        size = hw * np.float32(0) + np.array(output_hw, np.float32)
        for path in sizes:
            dtype: Any = data.get_type_of_item_in_path(path)
            data.set_item_in_path(path, size if dtype == _DT.FLOAT else functions.cast(size, dtype))

    def _change_geometry(self, data: SampleDataGroup, matrix: Any) -> None:
        changes: dict[str, tuple[Callable[[Any], Any], Callable[..., Any]]] = {
            "point": (lambda given: given, transformed_points),
            "box": (boxes_matrix, transformed_boxes),
        }
        for kind, (matrix_of, transformed) in changes.items():
            values = self._values(data, kind)
            matrix_of_kind = matrix_of(matrix) if values else matrix
            for path, value in values.items():
                dtype: Any = data.get_type_of_item_in_path(path)
                data.set_item_in_path(path, transformed(value, matrix_of_kind, dtype))
        self._change_projections(data, matrix)

    def _change_projections(self, data: SampleDataGroup, matrix: Any) -> None:
        values = self._values(data, "projection")
        if not values:
            return
        rows = projections_rows(matrix)
        # Only matrices of one type on one device can be stacked.
        kinds: dict[Any, list[FieldPath]] = {}
        for path, value in values.items():
            device = value.device if functions.is_node(value) else "cpu"
            kinds.setdefault((data.get_type_of_item_in_path(path), device), []).append(path)
        for (dtype, _), paths_of_kind in kinds.items():
            for paths in fields_of_elements(paths_of_kind):
                changed = _changed_projections([values[path] for path in paths], rows, dtype)
                for path, value in zip(paths, changed, strict=True):
                    data.set_item_in_path(path, value)

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self)
        for kind, names in self._fields.items():
            is_file = kind == "image" and self._is_encoded
            what, plural, dtypes = _KINDS["encoded_image" if is_file else kind]
            search.find(names, what, dtypes, group_of=plural)
        search.problems += fill_problems(data_empty, [self._use_of_images()], "fill_value", [self._fill_value])
        search.raise_problems()
        for path in find_paths(data_empty, self._fields["image"]) if self._is_encoded else ():
            self._note_decoded(data_empty, path)
        return data_empty

    @staticmethod
    def _note_decoded(data: SampleDataGroup, path: FieldPath) -> None:
        data.change_type_of_data_and_remove_data(path, _DT.UINT8, new_ndim=3)


with_pixel_fields = has_settings(PixelFields, ImageTransformStep.__init__)


def checked_hw(value: Any, argument: str) -> tuple[int, int]:
    """Return a height and a width of at least 1 pixel.

    Raises:
        SettingError: It is something else.
    """
    what = "[height, width] in whole pixels of at least 1"
    height, width = whole_number_list(value, argument, what, count=2, at_least=1)
    return height, width


def _changed_projections(
    projections: Sequence[Any], rows: tuple[Any, Any], dtype: types.DALIDataType
) -> list[Any]:
    if len(projections) == 1:
        return [transformed_projections(projections[0], rows, dtype)]
    # Stacked, since the overhead of an operator is larger than its work on one matrix. Fails where shapes differ.
    stacked = functions.failing_with("matrices of an array differ in shape", functions.stack, *projections)
    changed: Any = transformed_projections(stacked, rows, dtype)
    return [changed[number] for number in range(len(projections))]
