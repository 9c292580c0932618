# SPDX-License-Identifier: Apache-2.0
"""Steps that resize, crop, mirror and pad images, and change all fields in their pixel coordinates."""

from __future__ import annotations

import copy
import inspect
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias, TypedDict

import attrs
import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ...checks import choice, field_name, flag, listed, number, number_range, probability, shown, whole_number_list
from ...draws.draw_scope import Draws
from ...draws.random_draws import RandomDraw, UniformDraw
from ...errors import FieldValueError, SettingError
from ...operators import functions, image_arrays, image_transform
from ...operators.deferred_images import DeferredImage
from ...operators.element_selection import leaf_at
from ...operators.functions import Array, Value
from ...operators.image_pixels import pipeline_has_gpu
from ...operators.image_transform import (
    AxisScaling,
    Resampler,
    Resampling,
    ResizingAnchor,
    ResizingMode,
    resampled_in_graph,
    resizing,
)
from ...sample_data import FieldPath, ImageContent, LeafFormat, SampleDataGroup
from ...sample_data.formats import DECODED_IMAGE, ENCODED_IMAGE
from ...sample_data.names import Name
from ...unknown_arguments import has_settings
from ...user_warnings import warn_user
from ..array_step import ArrayStep, FieldUse
from ..field_steps import Parameters, PixelStep
from ..image_use import PIXELS, ImageUse, as_array, as_pixels, axis_of_height, with_height_and_width
from ..named_fields import FieldSearch, Key, Names, as_names, check_given_once, find_paths
from ..pipeline_step_base import PixelChanges, naming_field

if TYPE_CHECKING:
    from typing_extensions import Unpack

_DT = types.DALIDataType
_REALS = (_DT.FLOAT, _DT.FLOAT64, _DT.FLOAT16)
_INTEGERS = (_DT.INT32, _DT.INT64, _DT.INT16, _DT.INT8, _DT.UINT8, _DT.UINT16, _DT.UINT32, _DT.UINT64)
_PIXELS = (_DT.UINT8, _DT.INT16, _DT.FLOAT)

# Names of matrices that map to pixels.
_TO_PIXELS = re.compile(r"intrinsic|camera_matrix|projection|(?:2|_to_)(?:img|image)|(?:img|image)_from_")

_Values: TypeAlias = dict[FieldPath, Value]
_Nodes: TypeAlias = Mapping[str, DataNode]


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
    """Change of the images of a sample by a step.

    Attributes:
        matrix: Transformation of pixel coordinates from the input to the output, ``(2, 3)`` float32 on the CPU.
        parameters: Numbers on which the change of the pixels depends, by name.
        changed: Called with an array, the value to fill with, and whether it is a mask; gives the output image. Of
            arrays only.
        output_hw: Height and width of the output; None for the size of the input.
        least_scale: Least scale of an axis, pixels of the output per pixel of the input. Of arrays only.
    """

    matrix: Value
    parameters: Mapping[str, Value]
    changed: Callable[..., Array]
    output_hw: tuple[int, int] | None
    least_scale: float = 1.0


class ImageTransformStep(ArrayStep):
    """Applies one transformation per sample to images, and to all fields in their pixel coordinates.

    A derived step says which transformation. All fields, found by name anywhere in the sample, get the same one.
    So all images and size fields of a sample must have one size, and the projection matrices of the elements of an
    array one shape; for cameras that differ, apply the step to each camera by a wrapper.
    """

    only_in_workers = False
    treats_elements_alike = True

    # Names of projection matrices that follow without being named, where the sample has them.
    _usual_projections: ClassVar[tuple[str, ...]] = ("intrinsics",)
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
            "projection": self._usual_projections if projection_names is None else projection_names,
            "point": point_names,
            "box": box_names,
        }
        self._is_encoded = flag(is_encoded, "is_encoded")
        self._reduced_decoding = flag(reduced_decoding, "reduced_decoding")
        if self._reduced_decoding and not self._is_encoded:
            raise SettingError("`reduced_decoding` is for encoded images: it needs `is_encoded=True`.")
        self._fields = {kind: as_names(names, self._argument_of[kind]) for kind, names in fields.items()}
        self._are_projections_left_out = projection_names is None
        self._matrices_told: set[str] = set()  # of which was warned: formats are asked for several times
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
        check_given_once(sum(self._fields.values(), ()))

    @abstractmethod
    def _change_of(self, hw: Value, draws: Draws) -> ImagePlaneChange:
        """Define the transformation of images with a height and width, ``(2,)``: a node, or float32 of arrays."""

    @abstractmethod
    def _parameter_types(self) -> Mapping[str, types.DALIDataType]:
        """Get names and types of the parameters of the change of pixels."""

    @abstractmethod
    def _in_graph(self, image: Value, device: str, fill_value: float, is_mask: bool, parameters: _Nodes) -> Value:
        """Change an image, or a mask, in the graph; ``device`` is where an image file is decoded."""

    def _needs_size(self, data: SampleDataGroup) -> bool:
        """Whether what the step does depends on the size of the images."""
        return True

    @property
    def has_graph_form(self) -> bool:
        """Whether DALI can do it: not with ``reduced_decoding``."""
        return not self._reduced_decoding

    @property
    def array_form_needs(self) -> tuple[str, ...]:  # type: ignore[override]
        """OpenCV, and a decoder for encoded images."""
        return image_arrays.DECODING_NEEDS if self._is_encoded else image_arrays.RESAMPLING_NEEDS

    @property
    def image_tolerance(self) -> float:  # type: ignore[override]
        """One gray level of 255; nine where OpenCV is older than 5.0, and rounds coordinates to 1/32 pixel."""
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

    def declare_pixel_changes(self, data_empty: SampleDataGroup) -> PixelChanges | None:
        """Declare the parameters of the change of each image and mask."""
        images = [path for kind in ("image", "mask") for path in find_paths(data_empty, self._fields[kind])]
        return dict.fromkeys(images, self._parameter_types()) if self.has_graph_form else None

    def graph(self, image: DataNode, leaf: LeafFormat, name: Name, **parameters: DataNode) -> DataNode:
        """See `PipelineStepBase.graph`."""
        is_mask, is_on_gpu = name in self._fields["mask"], self._on_gpu and pipeline_has_gpu()
        if is_on_gpu and (is_mask or not self._is_encoded):
            image = image.gpu()
        fill_value = 0.0 if is_mask else self._fill_value
        changed: DataNode = self._in_graph(image, "mixed" if is_on_gpu else "cpu", fill_value, is_mask, parameters)
        return changed

    def fields_used(self, data_empty: SampleDataGroup) -> FieldUse:
        """Sizes and geometry; of image files the bytes, of other images the shape, where sizes matter."""
        paths = {kind: find_paths(data_empty, names) for kind, names in self._fields.items()}
        geometry = [path for kind in ("hw", "projection", "point", "box") for path in paths[kind]]
        files = paths["image"] if self._is_encoded else []
        images = [*paths["mask"], *([] if self._is_encoded else paths["image"])]
        return FieldUse(geometry, read=files, shapes=images if self._needs_size(data_empty) else [])

    @np.errstate(all="ignore")  # which DALI does
    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        """See `ArrayStep.arrays`."""
        images, masks, sizes = (self._values(data, kind) for kind in ("image", "mask", "hw"))
        hw = self._size_of_images(images, masks, sizes, self._needs_size(data))
        change = self._change_of(hw, draws)
        for path, image in (images | masks).items():
            if self._is_encoded and path in images:
                self._note_decoded(data, path)
            with naming_field(path):
                data.set_item_in_path(path, self._changed(image, change, path[-1]))
        self._set_sizes(data, sizes, change.output_hw)
        self._change_geometry(data, change.matrix)
        return data

    def _size_of_images(self, images: _Values, masks: _Values, sizes: _Values, needs_size: bool) -> Value:
        """Get the size of all images, ``(2,)``; replace the bytes of files by opened files."""
        of_images = []
        for path, image in images.items() if self._is_encoded else ():
            with naming_field(path):
                if isinstance(image, DeferredImage):
                    of_images.append(image.hw_of_file)
                else:
                    images[path] = image_arrays.ImageFile.opened(image)
                    of_images.append(images[path].hw)
        arrays = [*(() if self._is_encoded else images.values()), *masks.values()]
        if not needs_size:
            arrays = [each for each in arrays if not isinstance(each, DeferredImage)]
        of_images += map(image_transform.image_hw, arrays)
        if not needs_size:
            return np.ones(2, np.float32)
        return image_transform.one_size([*of_images, *sizes.values()], are_of_images=not sizes)

    def _changed(self, image: Value, change: ImagePlaneChange, name: Name) -> Value:
        if isinstance(image, DeferredImage):
            parameters = change.parameters.values()
            if change.output_hw is None:
                return image.changed(*parameters)
            frames, channels = ((), 3) if image.ndim == 1 else (image.shape[:-3], image.shape[-1])
            return image.changed(*parameters, shape=(*frames, *change.output_hw, channels))
        if isinstance(image, image_arrays.ImageFile):
            decoded = image.decoded(change.least_scale if self._reduced_decoding else 1.0)
            return change.changed(decoded.image, self._fill_value, False, decoded)
        is_mask = name in self._fields["mask"]
        return change.changed(image, 0.0 if is_mask else self._fill_value, is_mask)

    def _values(self, data: SampleDataGroup, kind: str) -> _Values:
        return {path: data.get_item_in_path(path) for path in find_paths(data, self._fields[kind])}

    def _set_sizes(self, data: SampleDataGroup, sizes: _Values, output_hw: tuple[int, int] | None) -> None:
        for path in sizes if output_hw is not None else ():
            size = np.array(output_hw, np.float32)
            data.set_item_in_path(path, functions.cast(size, leaf_at(data, path).dtype))

    def _change_geometry(self, data: SampleDataGroup, matrix: Value) -> None:
        for kind, transformed in (
            ("point", image_transform.transformed_points),
            ("box", image_transform.transformed_boxes),
        ):
            values = self._values(data, kind)
            matrix_of_kind = image_transform.boxes_matrix(matrix) if values and kind == "box" else matrix
            for path, value in values.items():
                data.set_item_in_path(path, transformed(value, matrix_of_kind, leaf_at(data, path).dtype))
        for path, value in self._values(data, "projection").items():
            with naming_field(path):
                dtype = leaf_at(data, path).dtype
                data.set_item_in_path(path, image_transform.transformed_projections(value, matrix, dtype))

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        """See `ArrayStep.format_after`."""
        search = FieldSearch(data_empty, self)
        for kind, names in self._fields.items():
            is_file = kind == "image" and self._is_encoded
            what, plural, dtypes = _KINDS["encoded_image" if is_file else kind]
            if kind == "projection" and self._are_projections_left_out:
                names = tuple(name for name in names if search.format.find(name))
            search.find(names, what, dtypes, group_of=plural)
        search.raise_problems()
        self._warn_of_forgotten_matrices(data_empty)
        for path in find_paths(data_empty, self._fields["image"]) if self._is_encoded else ():
            self._note_decoded(data_empty, path)
        return data_empty

    def _warn_of_forgotten_matrices(self, data_empty: SampleDataGroup) -> None:
        """Warn of matrices beside images that seem to map to their pixels, and are not named."""
        given = self._fields["projection"]
        if not (given or self._are_projections_left_out):
            return  # they are to stay
        known, forgotten = {name for names in self._fields.values() for name in names}, dict[str, None]()
        for path in find_paths(data_empty, self._fields["image"]):
            beside = data_empty.get_parent_of_path(path).format
            for name in beside.names:
                leaf = beside.get((name,))
                is_matrix = isinstance(leaf, LeafFormat) and leaf.dtype in _REALS and leaf.ndim in (None, 2)
                if is_matrix and name not in known and _TO_PIXELS.search(str(name)):
                    forgotten[str(name)] = None
        if not forgotten.keys() <= self._matrices_told:
            self._matrices_told |= forgotten.keys()
            argument = self._argument_of["projection"]
            wanted = [*(name for name in given if data_empty.format.find(name)), *forgotten]
            stay = f", or `{argument}=()` if they are to stay" * self._are_projections_left_out
            warn_user(
                f"{type(self).__name__} moves the pixels of {shown(list(self._fields['image']))}, but not "
                f"{listed(map(repr, forgotten))} beside them, which seem to map to these pixels: boxes that are "
                f"projected with them would no longer lie on their objects. Pass `{argument}={wanted!r}`{stay}."
            )

    @staticmethod
    def _note_decoded(data: SampleDataGroup, path: FieldPath) -> None:
        data.change_type_of_data_and_remove_data(path, _DT.UINT8, new_ndim=3)


with_pixel_fields = has_settings(PixelFields, ImageTransformStep.__init__)


class ResamplingStep(ImageTransformStep):
    """Resamples images, and all fields in their pixel coordinates; a derived step says by which transformation."""

    _output_hw: tuple[int, int]

    @abstractmethod
    def _resampling(self) -> Resampling:
        """Get the method of resampling."""

    def _parameter_types(self) -> Mapping[str, types.DALIDataType]:
        return Resampler.parameter_types(self._resampling(), self._is_encoded)

    def _in_graph(self, image: Value, device: str, fill_value: float, is_mask: bool, parameters: _Nodes) -> Value:
        return resampled_in_graph(
            image, self._output_hw, parameters, device=device, fill_value=fill_value, is_mask=is_mask
        )

    def _change_by(
        self, resampler: Resampler, matrix: Value, hw: Value, least_scale: float = 1.0
    ) -> ImagePlaneChange:
        """Make the change by a resampler, which works on decoded images of a size."""
        parameters = resampler.parameters(hw, is_encoded=self._is_encoded)
        return ImagePlaneChange(matrix, parameters, resampler, self._output_hw, least_scale)

    def _resized(self, scaling: AxisScaling, hw: Value) -> ImagePlaneChange:
        """Make the change for a transformation without rotation and shearing."""
        resampler = Resampler.resizing(self._resampling(), scaling, hw)
        least_scale = float(np.abs(scaling.scale).min())
        return self._change_by(resampler, scaling.matrix_after(), hw, least_scale)


def checked_hw(value: object, argument: str) -> tuple[int, int]:
    """Check a height and a width of at least 1 pixel.

    Raises:
        SettingError: It is something else.
    """
    what = "[height, width] in whole pixels of at least 1"
    height, width = whole_number_list(value, argument, what, count=2, at_least=1)
    return height, width


class ImageResizeCropFlipper(ResamplingStep):
    """Scales images at random, crops a region of fixed size, and mirrors it at random, all in one resize.

    It is the usual augmentation of multi-camera detectors (``ResizeCropFlipRotImage`` of StreamPETR and BEVDet,
    without the rotation). With ``W, H`` for the input, ``w, h`` for the output, and the random numbers ``scale``,
    ``bottom``, ``share`` and ``is_flipped``::

        crop_y = (1 - bottom) * scale * H - h              the lowest part `bottom` of the image is cut off
        crop_x = share * max(scale * W - w, 0)             at a random place; 0.5: in the middle
        x_out = scale * x - crop_x, mirrored: w - x_out    y_out = scale * y - crop_y

    Nothing is rounded to whole pixels, so that matrices are exact (the originals round the crop down). Pixels
    beyond the image are ``fill_value``. With ``is_kept_inside``, ``scale`` is large enough to fill the output, and
    ``crop_y`` at least 0, so that nothing beyond the image is shown.

    For evaluation, `for_evaluation` gives the deterministic step that these detectors use: the scale fills the
    output, the mean of ``bottom`` is cut off, the crop is in the middle in x, and nothing is mirrored. What cannot
    vary is not drawn.

    Fields, shapes and types are as for `AffineTransformer`, pixels and ``is_encoded`` as for `ImageResizer`.
    All images and size fields of a sample must have one size and get the same change; for a change of their own,
    apply the step to each camera by a wrapper.

    Example:
        >>> step = ImageResizeCropFlipper(
        ...     output_hw=[256, 704], scale_range=(0.44, 0.55), key="rig"
        ... )
        >>> in_evaluation = step.for_evaluation()
        >>> [draw.constant for draw in in_evaluation.declare_draws(SampleDataGroup())]  # nothing is drawn
        [0.0, 0.5, 0.0]
    """

    @with_pixel_fields
    def __init__(
        self,
        image_names: Names | None = "image",
        *,
        output_hw: Sequence[int],
        scale_range: tuple[float, float] | None,
        bottom_crop_range: tuple[float, float] = (0.0, 0.0),
        crop_x_range: tuple[float, float] = (0.0, 1.0),
        flip_prob: float = 0.5,
        is_kept_inside: bool = False,
        fill_value: float = 0,
        is_encoded: bool = False,
        reduced_decoding: bool = False,
        key: Key = "sample",
        **fields: Unpack[PixelFields],
    ) -> None:
        """Create the step.

        Args:
            image_names: Name or names of the images; None where there are only size fields.
            output_hw: Height and width of the output.
            scale_range: Least and greatest scale: pixels of the output per pixel of the input, greater than 0.
                None: always the least scale that fills the output, ``max(h / H, w / W)``.
            bottom_crop_range: Least and greatest part of the height, in [0, 1], that is cut off at the bottom.
            crop_x_range: Least and greatest place of the crop in x, ``share``, in [0, 1]: 0 is the left end of the
                image, 1 the right end. (0.5, 0.5) crops the middle.
            flip_prob: Probability that a sample is mirrored, in [0, 1].
            is_kept_inside: Whether nothing beyond the image may be shown.
            fill_value: Value of pixels beyond the image.
            is_encoded: As for `ImageResizer`.
            reduced_decoding: As for `ImageResizer`.
            key: Scope in which the draws are constant, see `UniformDraw`.
            **fields: As for `ImageResizer`.

        Raises:
            SettingError: There are neither images nor sizes, or an argument is not of its form.
        """
        super().__init__(image_names, fill_value, is_encoded, reduced_decoding, **fields)
        self._output_hw = checked_hw(output_hw, "output_hw")
        self._is_kept_inside = flag(is_kept_inside, "is_kept_inside")
        self._flip_prob = probability(flip_prob, "flip_prob")
        draws = [
            UniformDraw(
                "bottom", *number_range(bottom_crop_range, "bottom_crop_range", at_least=0, at_most=1), key=key
            ),
            UniformDraw("share", *number_range(crop_x_range, "crop_x_range", at_least=0, at_most=1), key=key),
            # Mirrored if it is below the probability; nothing is drawn if it cannot vary.
            UniformDraw("is_flipped", 0.0, 1.0 if 0 < self._flip_prob < 1 else 0.0, key=key),
        ]
        if scale_range is not None:
            draws.insert(0, UniformDraw("scale", *number_range(scale_range, "scale_range", above=0), key=key))
        self._draws = {draw.name: draw for draw in draws}

    def for_evaluation(self) -> ImageResizeCropFlipper:
        """Get the same step without chance, as StreamPETR and BEVDet evaluate.

        ``scale`` fills the output, ``bottom`` is the mean of its range, ``crop_x`` the middle; not mirrored.
        """
        step = copy.copy(self)
        bottom = self._draws["bottom"]
        mean = (bottom.low + bottom.high) / 2
        fixed = {"bottom": mean, "share": 0.5, "is_flipped": 0.0}
        step._flip_prob = 0.0
        step._draws = {name: UniformDraw(name, value, value, key=bottom.key) for name, value in fixed.items()}
        return step

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        """Declare scale, part at the bottom, place of the crop, and whether it is mirrored."""
        return tuple(self._draws.values())

    def _change_of(self, hw: Value, draws: Draws) -> ImagePlaneChange:
        # All in pixels of the input, row and column.
        output_hw, one = np.array(self._output_hw, np.float32), np.float32(1)
        scale: Value = draws.get("scale")
        bottom, share, drawn = (draws[name] for name in ("bottom", "share", "is_flipped"))
        if scale is None or self._is_kept_inside:
            filling = (output_hw / hw).max()
            scale = filling if scale is None else functions.maximum(scale, filling)
        size = output_hw / scale
        least = np.array([0 if self._is_kept_inside else -np.inf, 0], np.float32)
        corner: Value = functions.maximum(hw - size, least) * np.array([one, share])
        if self._draws["bottom"].constant != 0:
            corner = functions.maximum(corner - hw * np.array([bottom, 0], np.float32), least)
        is_flipped = drawn < np.float32(self._flip_prob)
        mirrored = size * np.array([False, is_flipped])
        start, end = corner + mirrored, corner + size - mirrored
        scales = np.array([scale, -scale if is_flipped else scale], np.float32)
        scaling = AxisScaling(scales, -start * scales, start, end, self._output_hw)
        return self._resized(scaling, hw)

    def _resampling(self) -> Resampling:
        return Resampling.REGION if self._is_kept_inside else Resampling.PASTED_REGION


_MODES = {mode.name.lower(): mode for mode in ResizingMode}
_ANCHORS = {anchor.name.lower(): anchor for anchor in ResizingAnchor}


class ImageResizer(ResamplingStep):
    """Brings images, anywhere in the sample, to one size, and changes all fields in their pixel coordinates
    accordingly.

    ========  =========================================================================================
    mode      shown part
    ========  =========================================================================================
    stretch   all of the image; each axis is scaled separately
    pad       all of the image at its aspect ratio; the rest is ``fill_value``
    crop      as much of the image as fills the output, at its aspect ratio; the rest is cut off
    ========  =========================================================================================

    Fields, shapes and types are as for `AffineTransformer`. The images and size fields of a sample must have one
    size; for cameras of different sizes, apply the step to each camera by a wrapper.

    Pixels are interpolated bilinearly, without antialiasing, by ``fn.resize`` of the region that is shown. With
    ``is_encoded``, a graph decodes only this region of a file (the pixels are the same to 1 grey level): where a
    third of a JPEG is cut off, decoding and resizing take 0.87 times as long as with `ImageDecoder`. With
    ``is_encoded``, images that are known to be decoded are refused; without it, images are refused that are known
    to be encoded, or to have a layout other than ``HWC`` and ``FHWC``.

    Example:
        >>> step = ImageResizer("image", output_hw=[256, 704], mode="crop", projection_names="intrinsics")
    """

    @with_pixel_fields
    def __init__(
        self,
        image_names: Names | None = "image",
        *,
        output_hw: Sequence[int],
        mode: str = "stretch",
        anchor: str = "center",
        fill_value: float = 0,
        is_encoded: bool = False,
        reduced_decoding: bool = False,
        **fields: Unpack[PixelFields],
    ) -> None:
        """Create the step.

        Args:
            image_names: Name or names of the images; None where there are only size fields.
            output_hw: Height and width of the output.
            mode: "stretch", "pad" or "crop".
            anchor: Part of the image that stays in place with "pad" and "crop": "center", "top_or_left" or
                "bottom_or_right".
            fill_value: Value of pixels beyond the image.
            is_encoded: Whether the fields hold image files, ``(num_bytes,)`` uint8, as for `ImageDecoder`. Only
                the part that is shown is decoded, to RGB.
            reduced_decoding: Whether JPEG files may be decoded at a half, a quarter or an eighth of their size, as
                long as the decoded image has at least one pixel for each pixel of the output: cheaper, and
                smoother where images are made much smaller. Such a step runs on arrays only, not in a graph.
            **fields: `PixelFields`: ``hw_names``, ``projection_names`` (by default ``intrinsics``, if the sample
                has such fields; a warning names other projection matrices next to the images), ``point_names``,
                ``box_names`` and ``mask_names``, name or names of other fields to change; ``on_gpu``, whether
                images are changed on the GPU, in a pipeline that has one (by default; otherwise they stay on their
                device).

        Raises:
            SettingError: There are neither images nor sizes, or an argument is not of its form.
        """
        super().__init__(image_names, fill_value, is_encoded, reduced_decoding, **fields)
        self._output_hw = checked_hw(output_hw, "output_hw")
        self._mode = choice(mode, "mode", _MODES)
        self._anchor = choice(anchor, "anchor", _ANCHORS)

    def _change_of(self, hw: Value, draws: Draws) -> ImagePlaneChange:
        return self._resized(resizing(hw, self._output_hw, _MODES[self._mode], _ANCHORS[self._anchor]), hw)

    def _resampling(self) -> Resampling:
        return Resampling.PASTED_REGION if _MODES[self._mode] == ResizingMode.PAD else Resampling.REGION


class HorizontalFlipper(ImageTransformStep):
    """Mirrors images, anywhere in the sample, left to right at random, with all fields in their pixel coordinates.

    The images of a sample, of width ``W``, are mirrored all or not at all::

        x_out = W - x        points; boxes: x1_out = W - x2, x2_out = W - x1
        P_out = [[-1, 0, W], [0, 1, 0], [0, 0, 1]] @ P        projection matrices and intrinsics

    So a point in space is projected to where its mirrored picture is. (It is the picture that is mirrored, not the
    scene: the focal length along x becomes negative.) Size fields stay as they are.

    Fields, shapes, types and refusals are as for `AffineTransformer`; pixels are copied. If there are any such
    fields, the images and size fields of a sample must have one size; for cameras of different sizes, apply the
    step to each camera by a wrapper.

    Example:
        >>> step = HorizontalFlipper("image", point_names="keypoints", box_names="boxes", key="rig")
    """

    image_tolerance = 0.0

    @with_pixel_fields
    def __init__(
        self, image_names: Names | None, *, prob: float = 0.5, key: Key = "sample", **fields: Unpack[PixelFields]
    ) -> None:
        """Create the step.

        Args:
            image_names: Name or names of the images; None where there are only size fields.
            prob: Probability that a sample is mirrored, in [0, 1].
            key: Scope in which the draws are constant, see `UniformDraw`.
            **fields: `PixelFields`: ``hw_names``, ``projection_names`` (by default ``intrinsics``, if the sample
                has such fields; a warning names other projection matrices next to the images), ``point_names``,
                ``box_names`` and ``mask_names``, name or names of other fields to change; ``on_gpu``, whether
                images are changed on the GPU, in a pipeline that has one (by default; otherwise they stay on their
                device).

        Raises:
            SettingError: There are neither images nor sizes, or an argument is not of its form.
        """
        super().__init__(image_names, **fields)
        self._prob = probability(prob, "prob")
        self.draws = (UniformDraw("is_flipped", key=key),)

    def _needs_size(self, data: SampleDataGroup) -> bool:
        """Whether projections, points or boxes are changed, too."""
        return any(find_paths(data, self._fields[kind]) for kind in ("projection", "point", "box"))

    def _change_of(self, hw: Value, draws: Draws) -> ImagePlaneChange:
        width: Value = hw[1]
        is_flipped: Value = draws["is_flipped"] < np.float32(self._prob)
        scale = np.array([-1 if is_flipped else 1, 1], np.float32)
        offset = np.array([width if is_flipped else 0, 0], np.float32)
        matrix = functions.combined(functions.scaling(scale), functions.translation(offset))

        def flipped(image: Array, fill_value: float, is_mask: bool) -> Array:
            return image_arrays.flipped(image) if is_flipped else image

        return ImagePlaneChange(matrix, {"is_flipped": np.int32(is_flipped)}, flipped, None)

    def _parameter_types(self) -> Mapping[str, types.DALIDataType]:
        return {"is_flipped": _DT.INT32}

    def _in_graph(self, image: Value, device: str, fill_value: float, is_mask: bool, parameters: _Nodes) -> Value:
        return fn.flip(image, horizontal=parameters["is_flipped"])


_SIZE_TYPES = [_DT.INT32, _DT.INT64, _DT.UINT32, _DT.UINT64, _DT.INT16, _DT.UINT16, _DT.FLOAT, _DT.FLOAT64]


class ImageToTileSizePadder(PixelStep):
    """Pads every image with the given name at the bottom and on the right, to multiples of a tile.

    Input: decoded, ``(height, width, channels)`` or a clip ``(frames, height, width, channels)``, of any numbers,
    on the CPU or the GPU. Where the format knows another layout, as ``CHW`` after a normalizer with this
    ``output_layout``, its height and width are padded. Output, in the same field: the same with ``ceil(height /
    tile_height) * tile_height`` rows and ``ceil(width / tile_width) * tile_width`` columns. Content does not move,
    so points, boxes and projection matrices stay valid. Images of a batch may differ in size.

    Fields that hold the size of an image are adjusted if they are named (``hw_names``).

    Example:
        >>> ImageToTileSizePadder("image", (64, 32))
        ImageToTileSizePadder(image_name='image', tile_size_xy=(64, 32), hw_names=(), fill_value=0.0)
    """

    _needs = staticmethod(with_height_and_width)
    _parameter_types: ClassVar = {"padded_hw": _DT.INT32}

    def __init__(
        self,
        image_name: Name,
        tile_size_to_pad_to: int | Sequence[int],
        *,
        hw_names: Name | Sequence[Name] | None = None,
        fill_value: float = 0.0,
    ) -> None:
        """Create the step.

        Args:
            image_name: Name of the images.
            tile_size_to_pad_to: Width and height of a tile, in this order (x, y), pixels; or one number for both.
            hw_names: Names of fields that hold height and width of an image, ``(2,)``, in pixels: they
                are rounded up as the images are.
            fill_value: Value of the pixels that are added, on the scale of the images at this place of the chain.

        Raises:
            SettingError: The tile is not one or two whole numbers of at least 1, or a name is not valid.
        """
        self._image_name = field_name(image_name, "image_name")
        self._tile_size_xy = _checked_tile(tile_size_to_pad_to)
        self._hw_names = as_names(hw_names, "hw_names")
        self._fill_value = number(fill_value, "fill_value")

    def _content_after(self, leaf: LeafFormat) -> ImageContent:
        return as_array(leaf)

    def _parameters(self, draws: Draws) -> Parameters:
        return self._padded_hw

    def _padded_hw(self, image: Value, leaf: LeafFormat) -> list[Value]:
        if image.ndim < 3:
            raise FieldValueError(f"An image has height, width, channels; got {image.shape}.")
        height = axis_of_height(leaf)
        return [self._padded(np.array(image.shape[height : height + 2 or None], np.int32))]

    def graph(self, image: DataNode, leaf: LeafFormat, name: Name, padded_hw: DataNode) -> DataNode:
        """See `PipelineStepBase.graph`."""
        is_bool, height = leaf.dtype == _DT.BOOL, axis_of_height(leaf)
        padded: DataNode = fn.slice(
            fn.reinterpret(image, dtype=_DT.UINT8) if is_bool else image,  # `fn.slice` refuses bool
            start=[0, 0],
            shape=padded_hw,
            axes=[height, height + 1],
            out_of_bounds_policy="pad",
            fill_values=[self._fill_value],
        )
        return fn.reinterpret(padded, dtype=_DT.BOOL) if is_bool else padded

    def _on_array(self, image: Array, leaf: LeafFormat, padded_hw: Array) -> Array:
        return image_arrays.padded(image, image.ndim + axis_of_height(leaf), padded_hw.tolist(), self._fill_value)

    def _shape_after(self, shape: tuple[int, ...], leaf: LeafFormat, padded_hw: Array) -> tuple[int, ...]:
        height = len(shape) + axis_of_height(leaf)
        return (*shape[:height], *padded_hw.tolist(), *shape[height + 2 :])

    def _change_others(self, data: SampleDataGroup) -> None:
        for path in find_paths(data, self._hw_names):
            size_hw = data.get_item_in_path(path)
            with naming_field(path):
                padded_hw = self._padded(functions.cast(size_hw, _DT.INT32))
            data.set_item_in_path(path, functions.cast_array(padded_hw, size_hw.dtype))

    def fields_used(self, data_empty: SampleDataGroup) -> FieldUse:
        """The shapes of the images, and the sizes to round up."""
        return FieldUse(find_paths(data_empty, self._hw_names), shapes=self._image_paths(data_empty))

    def _padded(self, size_hw: Value) -> Value:
        """Round height and width, ``(..., 2)`` int32, up to tiles."""
        if size_hw.shape[-1:] != (2,):
            raise FieldValueError(f"A size must be height and width, (2,), got the shape {size_hw.shape}.")
        width, height = self._tile_size_xy
        tile_hw = np.array([height, width], np.int32)
        return (size_hw + (tile_hw - 1)) // tile_hw * tile_hw

    def _find(self, search: FieldSearch) -> list[FieldPath]:
        images = super()._find(search)
        search.find(self._hw_names, "a height and a width", _SIZE_TYPES, group_of="image sizes")
        return images


def _checked_tile(tile: object) -> tuple[int, int]:
    try:
        sizes = np.asarray(tile)
    except ValueError:
        sizes = np.empty(0)
    is_whole = sizes.dtype.kind in "iu" or (sizes.dtype.kind == "f" and (sizes == np.floor(sizes)).all())
    if sizes.shape not in ((), (1,), (2,)) or not is_whole or (sizes < 1).any() or (sizes > 2**20).any():
        raise SettingError(
            f"`tile_size_to_pad_to` must be a whole number of at least 1, or two of them, (x, y), got {tile!r}."
        )
    width, height = np.broadcast_to(sizes, 2).tolist()
    return int(width), int(height)
