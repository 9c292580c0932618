# SPDX-License-Identifier: Apache-2.0
"""Change brightness, contrast, saturation, hue and the order of channels as published models do, unclipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ..checks import number, number_range, probability
from ..draws.random_draws import IntegerDraw, RandomDraw, UniformDraw
from ..errors import FieldValueError
from ..operators.array_packages import needed_package
from ..processing_steps.array_application import naming_field
from ..processing_steps.array_step import ArrayStep
from ..processing_steps.image_use import ImageUse
from ..processing_steps.named_fields import FieldSearch, Key, Names, find_paths, required_names
from ..sample_data import SampleDataGroup
from ..sample_data.image_content import DECODED_IMAGE, ImageContent

_DT = types.DALIDataType
_FloatImage = npt.NDArray[np.float32]

PARTS = ("brightness", "contrast", "saturation", "hue", "swap")
"""What may be done, each by a draw ``<part>_decision`` below ``prob``."""

PERMUTATIONS = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
"""Of the channels blue, green, red, by the number that is drawn: channel k of the output was permutation[k]."""


class HSVDistorter(ArrayStep):
    """Distorts colors as ``PhotoMetricDistortionMultiViewImage`` of BEVFormer, SparseDrive and others does.

    Input: ``(height, width, 3)`` uint8 or float32, RGB, in [0, 255]. Output: float32, of any range: *nothing* is
    clipped, neither the result, nor what goes into the conversion to HSV. In this order, each with ``prob``:

    1. brightness: a number is added;
    2. contrast: times a number; here or after 4, with equal probability;
    3. saturation, in HSV (OpenCV's of float: H in degrees, S of 1, V as the channels): times a number;
    4. hue: degrees are added, and wrapped once;
    5. swap: the channels are permuted.

    An image is converted to HSV and back in any case: that changes those with values below 0. All images of the
    group that the step is applied to are changed alike; wrap it in `DataGroupArrayWithNameElementsAppliedStep` for
    draws of each camera. `PhotoMetricDistorter` serves the same purpose: quicker, with a form for the graph, and
    clamped.
    """

    array_form_needs = ("cv2",)

    def __init__(
        self,
        image_names: Names,
        *,
        brightness: float = 32.0,
        contrast_range: tuple[float, float] = (0.5, 1.5),
        saturation_range: tuple[float, float] = (0.5, 1.5),
        hue_deg: float = 18.0,
        prob: float = 0.5,
        key: Key = "sample",
    ) -> None:
        """Create the step.

        Args:
            image_names: Name or names of the images.
            brightness: Most that is added or subtracted, gray levels.
            contrast_range: Least and greatest factor.
            saturation_range: Least and greatest factor.
            hue_deg: Most that is added or subtracted, degrees.
            prob: Probability of each part.
            key: What the draws are held constant over.

        Raises:
            SettingError: A setting is not of this form.
        """
        self._image_names = required_names(image_names, "image_names")
        brightness = number(brightness, "brightness", at_least=0)
        hue = number(hue_deg, "hue_deg", at_least=0, at_most=360)
        self._prob = probability(prob, "prob")
        self._draws: tuple[RandomDraw, ...] = (
            *(UniformDraw(f"{part}_decision", 0.0, 1.0, key=key) for part in PARTS),
            IntegerDraw("contrast_is_first", 0, 2, key=key),
            UniformDraw("brightness", -brightness, brightness, key=key),
            UniformDraw("contrast", *number_range(contrast_range, "contrast_range", at_least=0), key=key),
            UniformDraw("saturation", *number_range(saturation_range, "saturation_range", at_least=0), key=key),
            UniformDraw("hue", -hue, hue, key=key),
            IntegerDraw("permutation", 0, len(PERMUTATIONS), key=key),
        )

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        """Declare decisions and numbers."""
        return self._draws

    def declare_images(self, data_empty: SampleDataGroup) -> Sequence[ImageUse]:
        """Declare that images must be decoded, and lose their range."""
        return [ImageUse(self._image_names, DECODED_IMAGE, ImageContent(is_encoded=False, layout="HWC"))]

    def _process_arrays(self, data: SampleDataGroup) -> SampleDataGroup:
        drawn = {draw.name: self.draw(draw.name) for draw in self._draws}
        for path in find_paths(data, self._image_names):
            image = data.get_item_in_path(path)
            with naming_field(path):
                if image.ndim != 3 or image.shape[-1] != 3:
                    raise FieldValueError(f"An image must be (height, width, 3), got the shape {image.shape}.")
            data.change_type_of_data_and_remove_data(path, _DT.FLOAT, new_ndim=3)
            data.set_item_in_path(path, self._distorted(image, drawn))
        return data

    def _distorted(self, image: npt.NDArray[Any], drawn: dict[str, Any]) -> _FloatImage:
        cv2 = needed_package("cv2")
        done = {part: bool(drawn[f"{part}_decision"] < self._prob) for part in PARTS}
        changed = image.astype(np.float32)
        if done["brightness"]:
            changed += drawn["brightness"]
        if done["contrast"] and drawn["contrast_is_first"]:
            changed *= drawn["contrast"]
        hsv = cv2.cvtColor(changed, cv2.COLOR_RGB2HSV)
        if done["saturation"]:
            hsv[..., 1] *= drawn["saturation"]
        if done["hue"]:
            hue = hsv[..., 0]
            hue += drawn["hue"]
            hue[hue > 360] -= 360
            hue[hue < 0] += 360
        changed = cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)
        if done["contrast"] and not drawn["contrast_is_first"]:
            changed *= drawn["contrast"]
        if done["swap"]:
            of_bgr = PERMUTATIONS[int(drawn["permutation"])]
            changed = np.ascontiguousarray(changed[..., [2 - of_bgr[2 - channel] for channel in range(3)]])
        return np.asarray(changed)

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self)
        for path in search.find(self._image_names, "an image", (_DT.UINT8, _DT.FLOAT), group_of="images"):
            data_empty.change_type_of_data_and_remove_data(path, _DT.FLOAT, new_ndim=3)
        search.raise_problems()
        return data_empty
