# SPDX-License-Identifier: Apache-2.0
"""Change the colors of images as mmdetection3d's published multi-camera pipelines do: in float, without limits."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework import ArrayStep, ImageContent, SampleDataGroup, UniformDraw
from accvlab.dali_pipeline_framework.checks import field_name, number_range
from accvlab.dali_pipeline_framework.draws import DrawKey, IntegerDraw, RandomDraw
from accvlab.dali_pipeline_framework.extension import (
    PIXELS,
    FieldSearch,
    Name,
    as_pixels,
    naming_field,
    needed_package,
)
from accvlab.dali_pipeline_framework.processing_steps import ImageUse
from accvlab.dali_pipeline_framework.sample_data import LeafFormat

from .recipe_parts import DT

_PARTS = ("brightness", "contrast_first", "contrast", "saturation", "hue", "permutation")
_PERMUTATIONS = tuple(itertools.permutations(range(3)))


def _unlimited(leaf: LeafFormat) -> ImageContent:
    return attrs.evolve(as_pixels(leaf), value_range=None)


class UnclippedPhotometricDistorter(ArrayStep):
    """Changes brightness, contrast, saturation, hue and the order of channels, as ``PhotoMetricDistortion``.

    That is ``PhotoMetricDistortionMultiViewImage`` of BEVFormer, SparseDrive and Sparse4D. Each part happens with
    a probability of one half, in this order: brightness is added; contrast is multiplied (or at the end, with a
    probability of one half); saturation (of HSV) is multiplied, hue is turned; channels are permuted. Nothing is
    clipped: values below 0 and above 255, and saturations above 1, go on. `PhotoMetricDistorter` is quicker, but
    clips; it has forms for graph and arrays.

    Input: ``(height, width, 3)``, RGB, uint8 or float32. Output: the same as float32. On arrays only.
    """

    array_form_needs = ("cv2",)

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
            image_name: Name of the images of what the step is applied to. They share their draws: wrap the step to
                draw for each camera.
            brightness_range: Least and greatest number that is added.
            contrast_range: Least and greatest factor.
            saturation_range: Least and greatest factor of the saturation.
            hue_range_deg: Least and greatest angle of the hue, degrees.
            key: What the draws are held constant over.

        Raises:
            SettingError: A range is not of this form.
        """
        self._image_name = field_name(image_name, "image_name")
        ranges = {
            "brightness": number_range(brightness_range, "brightness_range"),
            "contrast": number_range(contrast_range, "contrast_range"),
            "saturation": number_range(saturation_range, "saturation_range"),
            "hue": number_range(hue_range_deg, "hue_range_deg"),
        }
        self._draws: list[RandomDraw] = [
            UniformDraw("decisions", 0.0, 1.0, shape=(len(_PARTS),), key=key),
            *(UniformDraw(name, *limits, key=key) for name, limits in ranges.items()),
            IntegerDraw("permutation", 0, len(_PERMUTATIONS), key=key),
        ]

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        """Declare which parts happen (numbers below one half), and how much they change.

        ``decisions`` are for brightness, contrast first, contrast, saturation, hue and permutation;
        ``permutation`` is the number of an order of blue, green, red, as `itertools.permutations` counts them.
        """
        return self._draws

    def declare_images(self, data_empty: SampleDataGroup) -> Sequence[ImageUse]:
        """Declare that images must have channels last, and are without limits then."""
        return [ImageUse(self._image_name, PIXELS, _unlimited)]

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self)
        paths = search.find(self._image_name, "an image", (DT.UINT8, DT.FLOAT), group_of="images")
        search.raise_problems()
        for path in paths:
            data_empty.change_type_of_data_and_remove_data(path, DT.FLOAT, new_ndim=3)
        return data_empty

    def _process_arrays(self, data: SampleDataGroup) -> SampleDataGroup:
        happens = dict(zip(_PARTS, (self.draw("decisions") < np.float32(0.5)).tolist(), strict=True))
        numbers = {name: self.draw(name) for name in ("brightness", "contrast", "saturation", "hue")}
        order = _PERMUTATIONS[int(self.draw("permutation"))] if happens["permutation"] else None
        for path in data.find_all_occurrences(self._image_name):
            image = data.get_item_in_path(path)
            with naming_field(path):
                changed = distorted(image, happens, numbers, order)
            data.change_type_of_data_and_remove_data(path, DT.FLOAT, new_ndim=3)
            data.set_item_in_path(path, changed)
        return data


def distorted(
    image: npt.NDArray[Any], happens: dict[str, bool], numbers: dict[str, Any], order: Sequence[int] | None
) -> npt.NDArray[np.float32]:
    """Change an image, ``(H, W, 3)`` RGB. ``order``: which channel of BGR becomes the first, second, third one."""
    cv2 = needed_package("cv2")
    alpha = float(numbers["contrast"]) if happens["contrast"] else 1.0
    first, last = (alpha, 1.0) if happens["contrast_first"] else (1.0, alpha)
    delta = float(numbers["brightness"]) if happens["brightness"] else 0.0
    changed = np.asarray(image, np.float32) if not delta else image + np.float32(delta)
    if first != 1.0:
        changed = changed * np.float32(first)
    # To HSV and back also without a change: pixels below 0 do not come back as they were.
    if happens["saturation"] or happens["hue"] or (delta < 0 and changed.min() < 0):
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
