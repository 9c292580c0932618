# SPDX-License-Identifier: Apache-2.0
"""Images as the published multi-camera models change them: sizes, crops, rotations, and colors.

They resize an image to a size that is rounded down to whole pixels, crop at whole pixels, mirror, and rotate with
the nearest neighbor; matrices contain the factor that was drawn, which is not rounded. So what is done to the
pixels, and to the matrices, are two things: an `ImagePlan` holds both.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import attrs
import numpy as np
import nvidia.dali.fn as fn
import nvidia.dali.math as dali_math
from attrs.validators import optional
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from accvlab.dali_pipeline_framework import ImageContent, SampleDataGroup, UniformDraw, checks
from accvlab.dali_pipeline_framework.checks import valid
from accvlab.dali_pipeline_framework.draws import DrawKey, Draws, IntegerDraw, RandomDraw
from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.extension import (
    DECODED_IMAGE,
    AxisScaling,
    DeferredImage,
    FieldSearch,
    FieldUse,
    Name,
    PixelStep,
    Resampler,
    Resampling,
    functions,
    image_arrays,
    leaf_at,
    naming_field,
    needed_package,
    pipeline_has_gpu,
    resampled_in_graph,
)
from accvlab.dali_pipeline_framework.sample_data import ENCODED_IMAGE, FieldPath, LeafFormat
from accvlab.dali_pipeline_framework.unknown_arguments import explains_unknown_arguments

from ..datasets.driving.array_types import Array, Float32, Float64, UInt8

_DT = types.DALIDataType

_FILTERS_DIFFER_BY = 0.25
_NEIGHBORS_PX = 4  # on each side of a pixel that its value depends on
_LEEWAY_PX = 48
_LARGEST_SHIFT_PX = 0.03
# The published settings leave 3 % black on average, and 14 % at most: images of 1600 x 900, scaled by 0.38.
_MOST_BLACK = 0.15
_SCALES = 21  # of which the average is taken
_PUBLISHED_HW = (900, 1600)


def output_size(value: object, name: str = "output_hw") -> tuple[int, int]:
    """Check the height and the width of an output.

    Raises:
        SettingError: It is none.
    """
    height, width = checks.whole_number_list(value, name, "[height, width] of at least 1", count=2, at_least=1)
    return height, width


def setting(default: Any, check: Callable[..., object], *, may_be_none: bool = False, **limits: Any) -> Any:
    """A field of settings, with its default and the check of its values; the default may be None."""
    validator = valid(check, **limits)
    is_optional = may_be_none or default is None
    return attrs.field(default=default, validator=optional(validator) if is_optional else validator)


@attrs.frozen
class ImagePlan:
    """Changes of the images of a camera.

    Attributes:
        scaled_hw: Height and width that the whole image is resized to, whole pixels.
        corner: Row and column of the resized image where the output begins; beyond the image, the output is black.
        is_flipped: Whether the crop is mirrored.
        rotation_deg: Angle by which the crop is rotated after that, counter-clockwise, about its middle.
        scale: The drawn factor, as in the matrix.
        output_hw: Height and width of the output.
    """

    scaled_hw: tuple[int, int]
    corner: tuple[int, int]
    is_flipped: bool
    rotation_deg: float
    scale: float
    output_hw: tuple[int, int]

    @property
    def values(self) -> Float32:
        """Height, width, row, column, is_flipped and rotation for `PlannedImageAugmenter`, ``(6,)`` float32."""
        return np.array([*self.scaled_hw, *self.corner, self.is_flipped, self.rotation_deg], np.float32)

    @property
    def matrix(self) -> Float64:
        """``output_from_image``, ``(3, 3)``: from pixels of the file to the output, as in the published code."""
        height, width = self.output_hw
        top, left = self.corner
        matrix = np.array([[self.scale, 0, -left], [0, self.scale, -top], [0, 0, 1.0]])
        if self.is_flipped:
            matrix = np.array([[-1, 0, width], [0, 1, 0], [0, 0, 1.0]]) @ matrix
        angle_rad, middle = self.rotation_deg / 180 * np.pi, np.array([width, height]) / 2
        rotation = np.eye(3)
        rotation[:2, :2] = [[np.cos(angle_rad), np.sin(angle_rad)], [-np.sin(angle_rad), np.cos(angle_rad)]]
        rotation[:2, 2] = middle - rotation[:2, :2] @ middle
        return np.asarray(rotation @ matrix)


@attrs.frozen(kw_only=True)
class ImageAugmentation:
    """How images are augmented: ``ida_aug_conf`` of StreamPETR, ``data_aug_conf`` of SparseDrive and Sparse4D.

    Attributes:
        output_hw: ``final_dim``: height and width of the output.
        scale_range: ``resize_lim``: least and greatest factor, pixels of the output per pixel of the file. None:
            the factor that fills the output, as `for_evaluation` has it. The defaults of recipes (StreamPETR,
            SparseDrive, Sparse4D, BEVFusion) come from the published configurations, for images of 1600 x 900:
            for 800 x 450, double them. Images that leave more than 15 % of the output black on average are
            refused.
        bottom_crop_range: ``bot_pct_lim``: least and greatest part of the height that is left out at the bottom.
        crop_x_range: Least and greatest place of the crop in x; 0 is the left end, 1 the right end.
        flip_prob: Probability that an image is mirrored.
        rotation_range_deg: ``rot_lim``: least and greatest angle, degrees.
        allows_black: Whether images may leave more than 15 % of the output black on average.
    """

    output_hw: Sequence[int] = attrs.field(default=(256, 704), converter=output_size)
    scale_range: Sequence[float] | None = setting(None, checks.number_range, above=0)
    bottom_crop_range: Sequence[float] = setting((0.0, 0.0), checks.number_range, at_least=0, at_most=1)
    crop_x_range: Sequence[float] = setting((0.0, 1.0), checks.number_range, at_least=0, at_most=1)
    flip_prob: float = setting(0.5, checks.probability)
    rotation_range_deg: Sequence[float] = setting((0.0, 0.0), checks.number_range)
    allows_black: bool = setting(False, checks.flag)

    @property
    def rotates(self) -> bool:
        """Whether images are rotated."""
        return tuple(self.rotation_range_deg) != (0.0, 0.0)

    def for_evaluation(self) -> ImageAugmentation:
        """Get the same without randomness, neither mirrored nor rotated.

        Images are scaled to fill the output, which is then cut from the middle of the width; the mean of
        ``bottom_crop_range`` is left out at the bottom.
        """
        mean = sum(self.bottom_crop_range) / 2
        return ImageAugmentation(
            output_hw=self.output_hw,
            bottom_crop_range=(mean, mean),
            crop_x_range=(0.5, 0.5),
            flip_prob=0.0,
            allows_black=self.allows_black,
        )

    def with_output(self, output_hw: Sequence[int]) -> ImageAugmentation:
        """Get the same for another size of the output.

        With the same aspect ratio, the output shows the same part of the images. The factors of ``scale_range``
        grow like the width or the height of the output, whichever grows more.
        """
        height, width = output_size(output_hw)
        factor = max(height / self.output_hw[0], width / self.output_hw[1])
        scales = None if self.scale_range is None else tuple(scale * factor for scale in self.scale_range)
        return attrs.evolve(self, output_hw=(height, width), scale_range=scales)

    def misfit(self, hw: tuple[int, int]) -> str | None:
        """Describe how much of the output stays black with images of a size, and a remedy; None if they fit."""
        share = self._black_share(hw)
        if self.allows_black or share <= _MOST_BLACK:
            return None
        (height, width), (output_height, output_width), (least, most) = hw, self.output_hw, self._scales(hw)
        fits = "`bottom_crop_range=(0.0, 0.0)` fits"
        if self.scale_range is not None:
            kept = max(1 - sum(self.bottom_crop_range) / 2, 1e-3)
            factor = max(output_height / (kept * height), output_width / width) / least
            if self._black_share(_PUBLISHED_HW) <= _MOST_BLACK:
                factor = min(factor, max(_PUBLISHED_HW[0] / height, _PUBLISHED_HW[1] / width))
            fits = f"`scale_range=({least * factor:.4g}, {most * factor:.4g})` fits, {factor:.4g} times as much"
        sizes = dict.fromkeys(f"{int(width * scale)} x {int(height * scale)}" for scale in (least, most))
        return (
            f"images of {width} x {height} pixels (width x height), scaled by {least:.4g} to {most:.4g}, have "
            f"{' to '.join(sizes)} pixels and do not fill the output of {output_width} x {output_height}: on "
            f"average {share:.0%} of it is black. {fits}; `allows_black=True` takes it as it is"
        )

    def require_fit(self, hw: tuple[int, int]) -> None:
        """Check that images of a size fill most of the output.

        Raises:
            FieldValueError: They leave too much of it black, and ``allows_black`` is False.
        """
        misfit = self.misfit(hw)
        if misfit:
            raise FieldValueError(f"With these settings, {misfit}.")

    def _scales(self, hw: tuple[int, int]) -> tuple[float, float]:
        """Least and greatest factor for images of a size."""
        if self.scale_range is None:
            return (max(self.output_hw[0] / hw[0], self.output_hw[1] / hw[1]),) * 2
        least, most = self.scale_range
        return least, most

    def _black_share(self, hw: tuple[int, int]) -> float:
        """Share of the output that is black on average, but for rotations."""
        sizes = np.floor(np.outer(np.linspace(*self._scales(hw), _SCALES), hw))
        sizes[:, 0] = np.floor(sizes[:, 0] * (1 - sum(self.bottom_crop_range) / 2))
        return float(1 - np.minimum(1, sizes / self.output_hw).prod(axis=1).mean())

    def draws(self, key: DrawKey) -> list[RandomDraw]:
        """Draws that `plan` needs."""
        ranges = {
            "scale": self.scale_range,
            "bottom": self.bottom_crop_range,
            "share": self.crop_x_range,
            "is_flipped": (0.0, 1.0 if 0 < self.flip_prob < 1 else 0.0),
            "rotation_deg": self.rotation_range_deg,
        }
        return [UniformDraw(name, *limits, key=key) for name, limits in ranges.items() if limits is not None]

    def plan(
        self, hw: tuple[int, int], draw: Callable[[str], Any], scaled_hw: tuple[int, int] | None = None
    ) -> ImagePlan:
        """Make the plan for images of a size.

        Args:
            hw: Height and width of the images.
            draw: Function from the name of a draw to its number.
            scaled_hw: Height and width of the images for which ``scale_range`` was chosen (not
                `ImagePlan.scaled_hw`); None for ``hw``. Images of another size are first scaled to fill this
                size, so that all cameras of a rig fill the output.

        Raises:
            FieldValueError: Images of this size leave much of the output black.
        """
        relative = max(one / other for one, other in zip(scaled_hw or hw, hw, strict=True))
        self.require_fit(hw if relative == 1 else (round(hw[0] * relative), round(hw[1] * relative)))
        height, width = self.output_hw

        def number(name: str, limits: Sequence[float]) -> float:
            # A draw is float32: a number that cannot vary is taken as it is, since its product is rounded down.
            low, high = limits
            return float(low) if low == high else float(draw(name))

        is_given = self.scale_range is not None
        scale = number("scale", self._scales(hw)) * (relative if is_given else 1.0)
        scaled = int(hw[0] * scale), int(hw[1] * scale)
        top = int((1 - number("bottom", self.bottom_crop_range)) * scaled[0]) - height
        left = int(number("share", self.crop_x_range) * max(0, scaled[1] - width))
        is_flipped = bool(float(draw("is_flipped")) < self.flip_prob)
        rotation_deg = number("rotation_deg", self.rotation_range_deg)
        return ImagePlan(scaled, (top, left), is_flipped, rotation_deg, scale, (height, width))


class PlannedImageAugmenter(PixelStep):
    """Decodes, resizes, crops, mirrors and rotates image files by the `ImagePlan` in a field next to each.

    Input: the bytes of an image file, and ``(6,)`` float32, which is removed. Output: ``(height, width, 3)``
    uint8, RGB; black where nothing is shown. Rotation takes the nearest pixel of the resized image.

    The published code resizes by Pillow's bicubic filter, which averages where images are made smaller. In a graph
    the filter is the same (PSNR 57 dB for frames of cameras; 44 dB or more, median 54 dB, for rotated ones, since
    a pixel half-way between two neighbors may take either). On arrays it is a faster one: the image is halved
    (means of 2 x 2 pixels) as often as it stays at least as large as the result, slightly blurred, and resized by
    OpenCV's cubic interpolation (50 dB or more for camera frames).
    """

    _what, _dtypes, _needs = "the bytes of an image file", (_DT.UINT8,), ENCODED_IMAGE

    @explains_unknown_arguments
    def __init__(
        self,
        image_name: Name,
        plan_name: Name,
        output_hw: Sequence[int],
        *,
        rotates: bool = False,
        reduced_decoding: bool = False,
    ) -> None:
        """Create the step.

        Args:
            image_name: Name of the images, anywhere in the sample.
            plan_name: Name of the field next to each of them.
            output_hw: Height and width of the output.
            rotates: Whether an image may be rotated.
            reduced_decoding: Whether JPEGs are decoded at a half of their size, or less, where the output is no
                larger: faster, but the pixels differ. On arrays only.

        Raises:
            SettingError: An argument is not of its form.
        """
        self._image_name = checks.field_name(image_name, "image_name")
        self._plan_name = checks.field_name(plan_name, "plan_name")
        self._output_hw = output_size(output_hw)
        self._rotates = checks.flag(rotates, "rotates")
        self._reduced_decoding = checks.flag(reduced_decoding, "reduced_decoding")

    @property
    def array_form_needs(self) -> tuple[str, ...]:  # type: ignore[override]
        """A decoder and OpenCV; Pillow, to rotate."""
        return (*image_arrays.DECODING_NEEDS, *["PIL"] * self._rotates)

    @property
    def has_graph_form(self) -> bool:
        """Not with ``reduced_decoding``, which DALI cannot do."""
        return not self._reduced_decoding

    @property
    def image_tolerance(self) -> float:  # type: ignore[override]
        """The two forms have different filters; of rotated images, a pixel may be that of the neighbor."""
        return 1.0 if self._rotates else _FILTERS_DIFFER_BY

    def _content_after(self, leaf: LeafFormat) -> ImageContent:
        return DECODED_IMAGE

    def _check_field(self, search: FieldSearch, path: FieldPath) -> None:
        search.find_at((*path[:-1], self._plan_name), "what is done to the image", (_DT.FLOAT,))

    def _adjust_format(self, data: SampleDataGroup, path: FieldPath) -> None:
        data.change_type_of_data_and_remove_data(path, _DT.UINT8, new_ndim=3)
        data.get_parent_of_path(path).remove_field(self._plan_name)

    @property
    def _parameter_types(self) -> Mapping[str, types.DALIDataType]:
        rotation = {"rotation": _DT.FLOAT} if self._rotates else {}
        return {**Resampler.parameter_types(Resampling.PASTED_REGION, is_encoded=True), **rotation}

    def _numbers(self, plan: Any, hw: Any) -> list[Any]:
        """The parameters of the change of an image, in the order in which they are declared."""
        (top, left), (scale_y, scale_x), is_flipped = plan[2:4], plan[0:2] / hw, plan[4]
        sign = is_flipped * np.float32(-2) + np.float32(1)
        offset_x = is_flipped * np.float32(self._output_hw[1]) - left * sign
        matrix = np.array([[scale_x * sign, 0, offset_x], [0, scale_y, -top]], np.float32)
        scaling = AxisScaling.of_matrix(matrix, self._output_hw)
        resampler = Resampler.resizing(Resampling.PASTED_REGION, scaling, hw)
        parameters = [*resampler.parameters(hw, is_encoded=True, is_antialiased=True).values()]
        if self._rotates:
            center = np.array(self._output_hw[::-1], np.float32) / np.float32(2)
            parameters.append(functions.rotation(-plan[5], center))
        return parameters

    def graph(self, image: DataNode, leaf: LeafFormat, name: Name, **parameters: DataNode) -> DataNode:
        """See `PipelineStepBase.graph`."""
        rotation = parameters.pop("rotation", None)
        device = "mixed" if pipeline_has_gpu() else "cpu"
        changed: DataNode = resampled_in_graph(
            image, self._output_hw, parameters, device=device, is_antialiased=True
        )
        if rotation is None:
            return changed
        nearest = types.DALIInterpType.INTERP_NN
        rotated: DataNode = fn.warp_affine(
            changed, matrix=rotation, interp_type=nearest, fill_value=0, inverse_map=False
        )
        return rotated

    def fields_used(self, data_empty: SampleDataGroup) -> FieldUse:
        """The files, and what is done to their images."""
        paths = self._image_paths(data_empty)
        return FieldUse(read=[*paths, *((*path[:-1], self._plan_name) for path in paths)])

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        """See `ArrayStep.arrays`."""
        paths = self._image_paths(data)
        changed = [self._from_file(data, path) for path in paths]
        for path in paths:  # together: a format is made anew for the first value after a change
            self._adjust_format(data, path)
        for path, image in zip(paths, changed, strict=True):
            data.set_item_in_path(path, image)
        return data

    def _from_file(self, data: SampleDataGroup, path: FieldPath) -> Any:
        parent = data.get_parent_of_path(path)
        image, plan = parent[path[-1]], parent[self._plan_name]
        with naming_field(path):
            if not isinstance(image, DeferredImage):
                return self._on_array(image, leaf_at(data, path), plan)
            return image.changed(*self._numbers(plan, image.hw_of_file), shape=(*self._output_hw, 3))

    def _on_array(self, image: Any, leaf: LeafFormat, *args: Any, **_: Any) -> Any:
        (plan,) = args
        changed = self._resized(image_arrays.ImageFile.opened(image), plan)
        if not self._rotates or not plan[5]:
            return changed
        return np.asarray(needed_package("PIL.Image").fromarray(changed).rotate(float(plan[5])))

    def _resized(self, file: image_arrays.ImageFile, plan: Float32) -> UInt8:
        """Decode what is shown of a file, resize, crop and mirror it.

        Pillow's cubic filter as OpenCV's, which has another shape and does not widen where an image is made
        smaller. Means of 2 x 2 pixels, as often as they fit, and a blur of three pixels make up for it.
        """
        cv2 = needed_package("cv2")
        place = [int(each) for each in plan[:4]]
        scale = float((plan[:2] / file.hw).min())
        decoded = file.decoded(scale if self._reduced_decoding and scale <= 0.5 else 1.0)
        image, reduction = decoded.image, decoded.reduction
        while scale * reduction <= 0.5:
            image, reduction = _halved(image), reduction * 2
        lengths = [float(length) / reduction for length in file.hw]
        rows, columns = map(_Window.around, lengths, place[:2], place[2:], self._output_hw)
        if rows.shown.start == rows.shown.stop or columns.shown.start == columns.shown.stop:
            return np.zeros((*self._output_hw, 3), np.uint8)
        image = image[rows.given, columns.given]
        factor_y, factor_x = (scaled / length for scaled, length in zip(place, lengths, strict=False))
        weights = _blur(factor_x), _blur(factor_y)
        image = cv2.sepFilter2D(image, -1, *weights, dst=image, borderType=cv2.BORDER_REPLICATE)
        resized = cv2.resize(image, None, fx=factor_x, fy=factor_y, interpolation=cv2.INTER_CUBIC)
        return _pasted(resized[rows.shown, columns.shown], (place[2], place[3]), bool(plan[4]), self._output_hw)


def _halved(image: UInt8) -> UInt8:
    """The means of four pixels each; of an odd row or column at the end, of two."""
    cv2 = needed_package("cv2")
    height, width = image.shape[0] + image.shape[0] % 2, image.shape[1] + image.shape[1] % 2
    if (height, width) != image.shape[:2]:
        below, right = height - image.shape[0], width - image.shape[1]
        image = cv2.copyMakeBorder(image, 0, below, 0, right, cv2.BORDER_REPLICATE)
    return np.asarray(cv2.resize(image, (width // 2, height // 2), interpolation=cv2.INTER_AREA))


def _pasted(crop: UInt8, corner: tuple[int, int], is_flipped: bool, output_hw: tuple[int, int]) -> UInt8:
    """Put the visible part of a resized image where it belongs in the output, which is mirrored then."""
    cv2 = needed_package("cv2")
    if crop.shape[2] == 4 and crop.size:
        crop = cv2.cvtColor(crop, cv2.COLOR_RGBA2RGB)
    result, (row, column) = crop, (max(-each, 0) for each in corner)
    if crop.shape[:2] != output_hw:
        result = np.zeros((*output_hw, 3), np.uint8)
        result[row : row + crop.shape[0], column : column + crop.shape[1]] = crop[..., :3]
    return np.asarray(cv2.flip(result, 1) if is_flipped else np.ascontiguousarray(result))


class _Window(NamedTuple):
    """Along one axis: the pixels of the file that are resized, and where the visible ones are then."""

    given: slice
    shown: slice

    @classmethod
    def around(cls, length: float, scaled: int, first: int, size: int) -> _Window:
        """The window for pixels ``[first, first + size)`` of an axis that is resized to ``scaled``."""
        begin, end = min(max(first, 0), scaled), max(min(first + size, scaled), 0)
        step = length / scaled
        # Windows of `cv2.resize` begin on whole pixels: of those before, the one that does so most nearly.
        latest = max(begin - math.ceil(_NEIGHBORS_PX / step), 0)
        places = range(latest, max(latest - _LEEWAY_PX, -1), -1)
        shift_px, start = min((abs(at * step - round(at * step)), latest - at) for at in places)
        start = latest - start if shift_px < _LARGEST_SHIFT_PX else 0
        given = slice(round(start * step), min(math.ceil(end * step) + _NEIGHBORS_PX, math.ceil(length)))
        return cls(given, slice(begin - start, max(end - start, begin - start)))


def _blur(factor: float) -> Float64:
    """The weights of three pixels, fitted to photographs."""
    share = 0.0 if factor == 1 else 0.022 + 0.55 * max(1 - factor, 0) ** 1.5
    return np.array([share, 1 - 2 * share, share])


_DISTORTION_PARAMETERS = ("greatest", "one", "other", "range")
_PARTS = ("brightness", "contrast_first", "contrast", "saturation", "hue", "permutation")
_NO_CHANGE = (0.0, 1.0, 1.0, 1.0, 0.0, 0.0)
_PERMUTATIONS = tuple(itertools.permutations(range(3)))
_DEGREES_PER_SEXTANT = 60
_EPSILON = 2.0**-23  # that of float32, which OpenCV adds to the greatest channel before it divides by it


class UnclippedPhotometricDistorter(PixelStep):
    """Changes brightness, contrast, saturation, hue and the order of channels, as ``PhotoMetricDistortion``.

    That is ``PhotoMetricDistortionMultiViewImage`` of BEVFormer, SparseDrive and Sparse4D. Each part happens with
    a probability of one half, in this order: brightness is added; contrast is multiplied (or at the end, with a
    probability of one half); saturation (of HSV) is multiplied, hue is rotated; channels are permuted. Nothing is
    clipped: values below 0 and above 255, and saturations above 1, are kept. `PhotoMetricDistorter` is faster, but
    clips. This step has forms for graph and arrays.

    Input: ``(height, width, 3)``, RGB, uint8 or float32. Output: the same as float32.

    In a graph, the step is twelve operators, five of them on one channel. It has no form for the graph with
    factors below 0 or hues turned by more than 60 degrees. The form for the graph is for GPUs: on a CPU, it
    takes eight times as long as the form for arrays.
    """

    array_form_needs = ("cv2",)
    image_tolerance = 1e-5
    prefers_arrays = True

    _dtypes = (_DT.UINT8, _DT.FLOAT)
    _output_type = _DT.FLOAT
    _parameter_types: ClassVar = dict.fromkeys(_DISTORTION_PARAMETERS, _DT.FLOAT)

    @explains_unknown_arguments
    def __init__(
        self,
        image_name: Name,
        *,
        brightness_range: tuple[float, float] = (-32.0, 32.0),
        contrast_range: tuple[float, float] = (0.5, 1.5),
        saturation_range: tuple[float, float] = (0.5, 1.5),
        hue_range_deg: tuple[float, float] = (-18.0, 18.0),
        key: DrawKey = "sample",
    ) -> None:
        """Create the step.

        Args:
            image_name: Name of the images. All images that the step is applied to share its draws: wrap the step
                to draw for each camera.
            brightness_range: Least and greatest number that is added.
            contrast_range: Least and greatest factor.
            saturation_range: Least and greatest factor of the saturation.
            hue_range_deg: Least and greatest angle of the hue, degrees.
            key: Scope in which the draws are constant.

        Raises:
            SettingError: A range is not of this form.
        """
        self._image_name = checks.field_name(image_name, "image_name")
        ranges = {
            "brightness": checks.number_range(brightness_range, "brightness_range"),
            "contrast": checks.number_range(contrast_range, "contrast_range"),
            "saturation": checks.number_range(saturation_range, "saturation_range"),
            "hue": checks.number_range(hue_range_deg, "hue_range_deg"),
        }
        is_positive = min(*ranges["contrast"], *ranges["saturation"]) >= 0
        self._has_graph_form = is_positive and max(map(abs, ranges["hue"])) <= _DEGREES_PER_SEXTANT
        self.draws: list[RandomDraw] = [
            UniformDraw("decisions", 0.0, 1.0, shape=(len(_PARTS),), key=key),
            *(UniformDraw(name, *limits, key=key) for name, limits in ranges.items()),
            IntegerDraw("permutation", 0, len(_PERMUTATIONS), key=key),
        ]

    @property
    def has_graph_form(self) -> bool:
        """Not with factors that may be below 0, nor with turns of the hue by more than 60 degrees."""
        return self._has_graph_form

    def _parameters(self, draws: Draws) -> Callable[[Any, LeafFormat], Sequence[Any]]:
        of_graph = functools.cache(lambda: [*distortion_parameters(draws.__getitem__).values()])
        return lambda image, leaf: [draws] if isinstance(image, np.ndarray) else of_graph()

    def graph(self, image: Any, leaf: LeafFormat, name: Name, **parameters: Any) -> Any:
        """See `PipelineStepBase.graph`."""
        return distorted_in_graph(on_gpu_if_any(image), parameters)

    def _on_array(self, image: Any, leaf: LeafFormat, draws: Draws) -> Any:
        happens = dict(zip(_PARTS, (draws["decisions"] < np.float32(0.5)).tolist(), strict=True))
        numbers = {name: draws[name] for name in ("brightness", "contrast", "saturation", "hue")}
        order = _PERMUTATIONS[int(draws["permutation"])] if happens["permutation"] else None
        return distorted(image, happens, numbers, order)


def distorted(
    image: Array, happens: dict[str, bool], numbers: Mapping[str, float], order: Sequence[int] | None
) -> Float32:
    """Change an image, ``(H, W, 3)`` RGB. ``order``: which channel of BGR becomes the first, second, third one."""
    cv2 = needed_package("cv2")
    alpha = float(numbers["contrast"]) if happens["contrast"] else 1.0
    first, last = (alpha, 1.0) if happens["contrast_first"] else (1.0, alpha)
    delta = float(numbers["brightness"]) if happens["brightness"] else 0.0
    changed = np.asarray(image, np.float32) if not delta else image + np.float32(delta)
    if first != 1.0:
        changed = changed * np.float32(first)
    # To HSV and back also without a change: pixels below 0 do not come back as they were.
    may_be_below_0 = delta < 0 or first < 0 or image.dtype != np.uint8
    if happens["saturation"] or happens["hue"] or (may_be_below_0 and changed.min() < 0):
        hsv = cv2.cvtColor(changed, cv2.COLOR_RGB2HSV)
        if happens["saturation"]:
            hsv[..., 1] *= np.float32(numbers["saturation"])
        if happens["hue"]:
            hue = hsv[..., 0]
            hue += np.float32(numbers["hue"])
            hue[hue > 360] -= 360
            hue[hue < 0] += 360
        changed = cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)
    if last != 1.0:
        changed = changed * np.float32(last)
    if order is not None:
        changed = changed[..., [2 - order[2 - channel] for channel in range(3)]]
    return np.ascontiguousarray(changed)


def on_gpu_if_any(image: DataNode) -> DataNode:
    """Move an image to the GPU, in a pipeline that has one."""
    return image.gpu() if pipeline_has_gpu() else image


def distortion_parameters(draw: Callable[[str], Any]) -> dict[str, Any]:
    """What `distorted_in_graph` needs, float32. What does not happen changes nothing.

    Args:
        draw: Gives the numbers of a draw of `UnclippedPhotometricDistorter`.

    Returns:
        ``greatest``, ``(1, 2)``: factor and offset of the greatest channel; ``one`` and ``other``, ``(3, 5)``, and
        ``range``, ``(1, 5)``: weights of red, green, blue, the greatest and the least channel.
    """
    contrast, number = draw("contrast"), draw("permutation")
    drawn = draw("brightness"), contrast, contrast, draw("saturation"), draw("hue"), number
    values, no_change = np.array(drawn, np.float32), np.array(_NO_CHANGE, np.float32)
    done = (values - no_change) * (draw("decisions") < np.float32(0.5)) + no_change
    # HSV scales with the image, so contrast is the same before and after.
    offset, contrast, turn = done[0], done[2], done[4] / np.float32(_DEGREES_PER_SEXTANT)
    rows = _turning_weights()[int(done[5]) + (len(_PERMUTATIONS) if turn < 0 else 0)]
    weights = (rows[0] + rows[1] * np.abs(turn)) * (contrast * done[3] / np.float32(_EPSILON))
    greatest = np.array([[contrast, contrast * offset]])
    numbers = (greatest, weights[0:3], weights[3:6], weights[6:7])
    return dict(zip(_DISTORTION_PARAMETERS, numbers, strict=True))


@functools.cache
def _turning_weights() -> Float32:
    """Weights of red, green, blue, the greatest (v) and the least (m) channel, ``(12, 2, 7, 5)``.

    With ``x = (c - m) / (v - m)`` of each channel c, turning the hue by t sextants, 0 <= t <= 1, makes of x0,
    which is followed by x1 and x2 in the circle of red, green and blue::

        clamp(min(1 + x0 - x1 - x2 + t, 1 + x0 - x1 - t + t * x2), 0, 1)

    The first term is right where x2 > x1, and the second one where x1 > x2; elsewhere they are not the lesser one,
    or out of [0, 1]. So the distances to v, ``clamp(max(one, other), 0, v - m)``, are of linear functions. Turning
    by -t is the same in the reverse circle.

    Axes: six permutations, and six for turns below 0; what is fixed, and what grows with t; three rows for
    ``one``, three for ``other`` and one for ``v - m``; the five channels.
    """
    weights = np.zeros((2, len(_PERMUTATIONS), 2, 7, 5), np.float32)
    v, m = 3, 4
    for reverse, (number, order), channel in itertools.product((0, 1), enumerate(_PERMUTATIONS), range(3)):
        x0 = 2 - order[2 - channel]
        x1, x2 = ((x0 + step) % 3 for step in ((2, 1) if reverse else (1, 2)))
        fixed, growing = weights[reverse, number]
        fixed[channel, [x0, x1, x2, m]] = -1, 1, 1, -1
        growing[channel, [v, m]] = -1, 1
        fixed[3 + channel, [x0, x1]] = -1, 1
        growing[3 + channel, [v, x2]] = 1, -1
        fixed[6, [v, m]] = 1, -1
    return weights.reshape(-1, *weights.shape[2:])


def distorted_in_graph(image: DataNode, parameters: Mapping[str, Any]) -> DataNode:
    """Change an image, ``(H, W, 3)`` RGB, by `distortion_parameters`."""
    greatest: Any = fn.reductions.max(image, axes=[-1], keep_dims=True)
    channels = fn.cat(image, greatest, fn.reductions.min(image, axes=[-1], keep_dims=True), axis=-1)
    one, other, limit = (fn.coord_transform(channels, M=parameters[name]) for name in ("one", "other", "range"))
    greatest = fn.coord_transform(greatest, MT=parameters["greatest"])
    # OpenCV divides by the amount of the greatest channel: below 0, channels come to lie above it.
    sign = dali_math.clamp(greatest, -_EPSILON, _EPSILON)
    changed: DataNode = greatest - dali_math.clamp(dali_math.max(one, other), 0.0, limit) * sign
    return changed
