# SPDX-License-Identifier: Apache-2.0
"""Steps that resize, crop, mirror and pad images, and change all fields in their pixel coordinates."""

from __future__ import annotations

import copy
import inspect
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, TypedDict

import attrs
import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ... import checks
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
from ...unknown_arguments import explains_unknown_arguments, has_settings
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
        parameters: Numbers on which the change of the pixels depends, in the order in which they are declared.
        changed: Called with an array, the value to fill with, and whether it is a mask; gives the output image. Of
            arrays only.
        output_hw: Height and width of the output; None for the size of the input.
    """

    matrix: Value
    parameters: Sequence[Value]
    changed: Callable[..., Array]
    output_hw: tuple[int, int] | None


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

    @explains_unknown_arguments
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
        self._is_encoded = checks.flag(is_encoded, "is_encoded")
        self._reduced_decoding = checks.flag(reduced_decoding, "reduced_decoding")
        if self._reduced_decoding and not self._is_encoded:
            raise SettingError("`reduced_decoding` is for encoded images: it needs `is_encoded=True`.")
        self._fields = {kind: as_names(names, self._argument_of[kind]) for kind, names in fields.items()}
        self._are_projections_left_out = projection_names is None
        self._matrices_told: set[str] = set()  # of which was warned: formats are asked for several times
        self._fill_value = checks.number(fill_value, "fill_value")
        self._on_gpu = checks.flag(on_gpu, self._argument_of["on_gpu"])
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
        images, masks = self._fields["image"], ImageUse(self._fields["mask"], PIXELS, as_pixels)
        if self._is_encoded:
            advice = "Leave out `is_encoded=True`, or the step that decodes it"
            return [ImageUse(images, ENCODED_IMAGE, DECODED_IMAGE, advice=advice), masks]
        takes_files = "is_encoded" in inspect.signature(type(self)).parameters
        advice = f"Put ImageDecoder before {type(self).__name__}" + ", or give `is_encoded=True`" * takes_files
        return [ImageUse(images, PIXELS, as_pixels, advice=advice), masks]

    def declare_pixel_changes(self, data_empty: SampleDataGroup) -> PixelChanges | None:
        """Declare the parameters of the change of each image and mask."""
        images = self._paths(data_empty, "image", "mask")
        return dict.fromkeys(images, self._parameter_types()) if self.has_graph_form else None

    @property
    def _runs_on_gpu(self) -> bool:
        return self._on_gpu and pipeline_has_gpu()

    def _paths(self, data: SampleDataGroup, *kinds: str) -> list[FieldPath]:
        return [path for kind in kinds for path in find_paths(data, self._fields[kind])]

    def _is_file(self, name: Name) -> bool:
        return self._is_encoded and name in self._fields["image"]

    def fields_used(self, data_empty: SampleDataGroup) -> FieldUse:
        """Sizes and geometry; of image files the bytes, of other images the shape, where sizes matter."""
        images = self._paths(data_empty, "image", "mask")
        return FieldUse(
            self._paths(data_empty, "hw", "projection", "point", "box"),
            read=[path for path in images if self._is_file(path[-1])],
            shapes=[path for path in images if not self._is_file(path[-1]) and self._needs_size(data_empty)],
        )

    @np.errstate(all="ignore")  # which DALI does
    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        """See `ArrayStep.arrays`."""
        images = {path: self._opened(data, path) for path in self._paths(data, "image", "mask")}
        change = self._change_of(self._size_of_images(data, images), draws)
        for path, image in images.items():
            with naming_field(path):
                changed = self._changed(image, change, path[-1])
            self._adjust_format(data, path)
            data.set_item_in_path(path, changed)
        for path in self._paths(data, "hw") if change.output_hw is not None else ():
            size = np.array(change.output_hw, np.float32)
            data.set_item_in_path(path, functions.cast(size, leaf_at(data, path).dtype))
        of_boxes = image_transform.boxes_matrix(change.matrix) if self._fields["box"] else None
        for kind, transformed, matrix in (
            ("point", image_transform.transformed_points, change.matrix),
            ("box", image_transform.transformed_boxes, of_boxes),
            ("projection", image_transform.transformed_projections, change.matrix),
        ):
            for path in self._paths(data, kind):
                with naming_field(path):
                    value = transformed(data.get_item_in_path(path), matrix, leaf_at(data, path).dtype)
                data.set_item_in_path(path, value)
        return data

    def _opened(self, data: SampleDataGroup, path: FieldPath) -> Value:
        """Get an image or a mask; in place of the bytes of a file, the opened file."""
        image = data.get_item_in_path(path)
        if isinstance(image, DeferredImage) or not self._is_file(path[-1]):
            return image
        with naming_field(path):
            return image_arrays.ImageFile.opened(image)

    def _size_of_images(self, data: SampleDataGroup, images: Mapping[FieldPath, Value]) -> Value:
        """Get the size that all images and size fields have, ``(2,)``."""
        needs_size, found = self._needs_size(data), []
        for path, image in images.items():
            if isinstance(image, image_arrays.ImageFile):
                found.append(image.hw)
            elif self._is_file(path[-1]):
                found.append(image.hw_of_file)
            elif needs_size or not isinstance(image, DeferredImage):
                found.append(image_transform.image_hw(image))
        if not needs_size:
            return np.ones(2, np.float32)
        sizes = [data.get_item_in_path(path) for path in self._paths(data, "hw")]
        return image_transform.one_size([*found, *sizes], are_of_images=not sizes)

    def _changed(self, image: Value, change: ImagePlaneChange, name: Name) -> Value:
        if isinstance(image, DeferredImage):
            if change.output_hw is None:
                return image.changed(*change.parameters)
            frames, channels = ((), 3) if image.ndim == 1 else (image.shape[:-3], image.shape[-1])
            return image.changed(*change.parameters, shape=(*frames, *change.output_hw, channels))
        if isinstance(image, image_arrays.ImageFile):
            least_scale = float(np.abs(change.matrix[:, :2]).sum(axis=1).min()) if self._reduced_decoding else 1.0
            decoded = image.decoded(least_scale)
            return change.changed(decoded.image, self._fill_value, False, decoded)
        is_mask = name in self._fields["mask"]
        return change.changed(image, 0.0 if is_mask else self._fill_value, is_mask)

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
        for path in self._paths(data_empty, "image"):
            self._adjust_format(data_empty, path)
        return data_empty

    def _warn_of_forgotten_matrices(self, data_empty: SampleDataGroup) -> None:
        """Warn of matrices beside images that seem to map to their pixels, and are not named."""
        given = self._fields["projection"]
        if not (given or self._are_projections_left_out):
            return  # they are to stay
        known = {name for names in self._fields.values() for name in names}
        groups, format = {path[:-1] for path in self._paths(data_empty, "image")}, data_empty.format
        forgotten = {
            str(path[-1]): None
            for path, leaf in format.leaves.items()
            if leaf.dtype in _REALS and leaf.ndim in (None, 2)
            if path[:-1] in groups and path[-1] not in known and _TO_PIXELS.search(str(path[-1]))
        }
        if not forgotten.keys() <= self._matrices_told:
            self._matrices_told |= forgotten.keys()
            argument = self._argument_of["projection"]
            wanted = [*(name for name in given if format.find(name)), *forgotten]
            stay = f", or `{argument}=()` if they are to stay" * self._are_projections_left_out
            shown, missing = checks.shown(list(self._fields["image"])), checks.listed(map(repr, forgotten))
            warn_user(
                f"{type(self).__name__} moves the pixels of {shown}, but not {missing} beside them, which seem to "
                f"map to these pixels: boxes that are projected with them would no longer lie on their objects. "
                f"Pass `{argument}={wanted!r}`{stay}."
            )

    def _adjust_format(self, data: SampleDataGroup, path: FieldPath) -> None:
        """Adjust the format of an image or a mask that is changed."""
        if self._is_file(path[-1]):
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

    def graph(self, image: DataNode, leaf: LeafFormat, name: Name, **parameters: DataNode) -> DataNode:
        """See `PipelineStepBase.graph`."""
        is_mask = name in self._fields["mask"]
        if self._runs_on_gpu and not self._is_file(name):
            image = image.gpu()
        changed: DataNode = resampled_in_graph(
            image,
            self._output_hw,
            parameters,
            device="mixed" if self._runs_on_gpu else "cpu",
            fill_value=0.0 if is_mask else _fill(self._fill_value, leaf.dtype),
            is_mask=is_mask,
        )
        return changed

    def _change_by(self, resampler: Resampler, matrix: Value, hw: Value) -> ImagePlaneChange:
        """Make the change by a resampler, which works on decoded images of a size."""
        parameters = resampler.parameters(hw, is_encoded=self._is_encoded)
        return ImagePlaneChange(matrix, [*parameters.values()], resampler, self._output_hw)

    def _resized(self, scaling: AxisScaling, hw: Value) -> ImagePlaneChange:
        """Make the change for a transformation without rotation and shearing."""
        resampler = Resampler.resizing(self._resampling(), scaling, hw)
        return self._change_by(resampler, scaling.matrix_after(), hw)


def _fill(value: float, dtype: types.DALIDataType) -> float:
    """Round and limit a fill value to a type, as for arrays: DALI cuts off fractions and higher bits."""
    return float(functions.cast(np.float32(value), dtype))


def checked_hw(value: object, argument: str) -> tuple[int, int]:
    """Check a height and a width of at least 1 pixel.

    Raises:
        SettingError: It is something else.
    """
    what = "[height, width] in whole pixels of at least 1"
    height, width = checks.whole_number_list(value, argument, what, count=2, at_least=1)
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

    @explains_unknown_arguments
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
        self._is_kept_inside = checks.flag(is_kept_inside, "is_kept_inside")
        self._flip_prob = checks.probability(flip_prob, "flip_prob")
        scales = {} if scale_range is None else {"scale": checks.number_range(scale_range, "scale_range", above=0)}
        ranges = scales | {
            "bottom": checks.number_range(bottom_crop_range, "bottom_crop_range", at_least=0, at_most=1),
            "share": checks.number_range(crop_x_range, "crop_x_range", at_least=0, at_most=1),
            # Mirrored if it is below the probability; nothing is drawn if it cannot vary.
            "is_flipped": (0.0, 1.0 if 0 < self._flip_prob < 1 else 0.0),
        }
        self._draws = {name: UniformDraw(name, *limits, key=key) for name, limits in ranges.items()}

    def for_evaluation(self) -> ImageResizeCropFlipper:
        """Get the same step without randomness, as StreamPETR and BEVDet evaluate.

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
        filling = (output_hw / hw).max()
        scale: Value = draws.get("scale", filling)
        bottom, share, drawn = (draws[name] for name in ("bottom", "share", "is_flipped"))
        if self._is_kept_inside:
            scale = functions.maximum(scale, filling)
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

    @explains_unknown_arguments
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
            **fields: Other fields that follow the pixels, by their names: ``hw_names``, ``projection_names``,
                ``point_names``, ``box_names`` and ``mask_names``. Without ``projection_names``, ``intrinsics``
                follow, if there are any; a warning names other matrices next to the images. And ``on_gpu``: a
                pipeline that has a GPU changes images there (True, the default), or where they are (False).

        Raises:
            SettingError: There are neither images nor sizes, or an argument is not of its form.
        """
        super().__init__(image_names, fill_value, is_encoded, reduced_decoding, **fields)
        self._output_hw = checked_hw(output_hw, "output_hw")
        self._mode = checks.choice(mode, "mode", _MODES)
        self._anchor = checks.choice(anchor, "anchor", _ANCHORS)

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

    Fields, shapes, types and refusals are as for `AffineTransformer`; pixels are copied. If there are other
    fields besides images, the images and size fields of a sample must have one size; for cameras of different
    sizes, apply the step to each camera by a wrapper.

    Example:
        >>> step = HorizontalFlipper("image", point_names="keypoints", box_names="boxes", key="rig")
    """

    image_tolerance = 0.0

    @explains_unknown_arguments
    @with_pixel_fields
    def __init__(
        self, image_names: Names | None, *, prob: float = 0.5, key: Key = "sample", **fields: Unpack[PixelFields]
    ) -> None:
        """Create the step.

        Args:
            image_names: Name or names of the images; None where there are only size fields.
            prob: Probability that a sample is mirrored, in [0, 1].
            key: Scope in which the draws are constant, see `UniformDraw`.
            **fields: Other fields that follow the pixels, by their names: ``hw_names``, ``projection_names``,
                ``point_names``, ``box_names`` and ``mask_names``. Without ``projection_names``, ``intrinsics``
                follow, if there are any; a warning names other matrices next to the images. And ``on_gpu``: a
                pipeline that has a GPU changes images there (True, the default), or where they are (False).

        Raises:
            SettingError: There are neither images nor sizes, or an argument is not of its form.
        """
        super().__init__(image_names, **fields)
        self._prob = checks.probability(prob, "prob")
        self.draws = (UniformDraw("is_flipped", key=key),)

    def _needs_size(self, data: SampleDataGroup) -> bool:
        """Whether projections, points or boxes are changed, too."""
        return bool(self._paths(data, "projection", "point", "box"))

    def _change_of(self, hw: Value, draws: Draws) -> ImagePlaneChange:
        width: Value = hw[1]
        is_flipped: Value = draws["is_flipped"] < np.float32(self._prob)
        scale = np.array([-1 if is_flipped else 1, 1], np.float32)
        offset = np.array([width if is_flipped else 0, 0], np.float32)
        matrix = functions.combined(functions.scaling(scale), functions.translation(offset))

        def flipped(image: Array, fill_value: float, is_mask: bool) -> Array:
            return image_arrays.flipped(image) if is_flipped else image

        return ImagePlaneChange(matrix, [np.int32(is_flipped)], flipped, None)

    def _parameter_types(self) -> Mapping[str, types.DALIDataType]:
        return {"is_flipped": _DT.INT32}

    def graph(self, image: DataNode, leaf: LeafFormat, name: Name, **parameters: DataNode) -> DataNode:
        """See `PipelineStepBase.graph`."""
        flipped: DataNode = fn.flip(
            image.gpu() if self._runs_on_gpu else image, horizontal=parameters["is_flipped"]
        )
        return flipped


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

    @explains_unknown_arguments
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
        self._image_name = checks.field_name(image_name, "image_name")
        self._tile_size_xy = _checked_tile(tile_size_to_pad_to)
        self._hw_names = as_names(hw_names, "hw_names")
        self._fill_value = checks.number(fill_value, "fill_value")

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
            fill_values=[_fill(self._fill_value, _DT.UINT8 if is_bool else leaf.dtype)],
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
    rule = "a whole number of at least 1, or two of them, (x, y)"
    sizes = checks.number_list(tile, "tile_size_to_pad_to", rule, may_be_one=True)
    if len(sizes) > 2 or not all(size.is_integer() and 1 <= size <= 2**20 for size in sizes):
        raise checks.setting_error("tile_size_to_pad_to", rule, tile)
    width, height = np.broadcast_to(sizes, 2).tolist()
    return int(width), int(height)
