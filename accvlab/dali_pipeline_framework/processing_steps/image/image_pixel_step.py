# SPDX-License-Identifier: Apache-2.0
"""Base class of steps that change the pixels of images, and leave their size."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ...checks import number_range, probability
from ...draws.random_draws import RandomDraw, UniformDraw
from ...errors import SettingError
from ...operators.element_selection import leaf_at
from ...operators.image_pixels import Image, checked_image
from ...sample_data import FieldPath, SampleDataGroup
from ...sample_data.graph_mode import do_not_convert
from ..array_application import naming_field
from ..image_use import PIXELS, ContentRule, ImageUse, as_pixels
from ..named_fields import FieldSearch, Key, Names, find_paths, required_names
from ..pipeline_step_base import PipelineStepBase

_DT = types.DALIDataType

PixelChange: TypeAlias = Callable[[DataNode, types.DALIDataType], DataNode]
"""Gives the output image for an image and its type."""

ArrayChange: TypeAlias = Callable[[Image], Image]
"""Gives the output image for an image."""


class ImagePixelStep(PipelineStepBase):
    """Changes all images of some names, anywhere in the sample, and all frames of clips, in the same way."""

    treats_elements_alike = True
    array_form_needs: tuple[str, ...] = ("cv2",)

    _dtypes: Sequence[types.DALIDataType] = (_DT.UINT8, _DT.FLOAT)
    _needs: ContentRule = PIXELS
    _needs_pixels = False
    _num_channels: Sequence[int] = ()

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Let a class that changes images in another way have no array form, unless it has its own one."""
        super().__init_subclass__(**arguments)
        if "_change" in vars(cls) and "_process_arrays" not in vars(cls):
            has_array_form = "_array_change" in vars(cls)
            of_class = ImagePixelStep if has_array_form else PipelineStepBase
            cls._process_arrays = of_class._process_arrays  # type: ignore[method-assign]

    def __init__(self, image_names: Names, prob: float = 1.0, key: Key = "sample") -> None:
        """Set up with the names of the images, and the probability that a sample is changed."""
        self._image_names = required_names(image_names, "image_names")
        self._prob = probability(prob, "prob")
        # Nothing is drawn where it cannot vary.
        decision = UniformDraw("decision", 0.0, 1.0 if 0 < self._prob < 1 else 0.0, key=key)
        self._draws: tuple[RandomDraw, ...] = (decision,)

    @abstractmethod
    def _change(self) -> PixelChange:
        """Define what all images of a sample share, and return the change of an image."""

    def _array_change(self) -> ArrayChange | None:
        """Define what all images of a sample of arrays share, and return the change of an image; None for none."""
        raise NotImplementedError

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        """Declare whether a sample is changed, and how."""
        return self._draws

    def declare_images(self, data_empty: SampleDataGroup) -> Sequence[ImageUse]:
        """Declare that images must have channels last, and for some steps their full range."""
        return [ImageUse(self._image_names, self._needs, as_pixels)]

    def _is_changed(self) -> Any:
        return self.draw("decision") < np.float32(self._prob)

    @do_not_convert
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        change = self._change()
        for path in find_paths(data, self._image_names):
            dtype: Any = data.get_type_of_item_in_path(path)
            data.set_item_in_path(path, change(data.get_item_in_path(path), dtype))
        return data

    def _process_arrays(self, data: SampleDataGroup) -> SampleDataGroup:
        change = self._array_change()

        def changed(image: Image) -> Image:
            checked_image(image, needs_pixels=self._needs_pixels, num_channels=self._num_channels)
            return image if change is None else change(image)

        change_images(data, find_paths(data, self._image_names), changed)
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self)
        search.find(self._image_names, "an image", self._dtypes, group_of="images")
        self._check_images(data_empty, search)
        return search.result()

    def _check_images(self, data_empty: SampleDataGroup, search: FieldSearch) -> None:
        """Add problems of the images."""


def change_images(
    data: SampleDataGroup,
    paths: Iterable[FieldPath],
    change: Callable[[Image], npt.NDArray[Any]],
    dtype: types.DALIDataType | None = None,
) -> None:
    """Set images, arrays, to what a function makes of them, and their type if it changes.

    Raises:
        FieldValueError: The function raised it; this one names the image.
    """
    for path in paths:
        with naming_field(path):
            changed = change(data.get_item_in_path(path))
        if dtype is not None:
            data.change_type_of_data_and_remove_data(path, dtype, new_ndim=leaf_at(data, path).ndim)
        data.set_item_in_path(path, changed)


def whole_range(value: object, name: str, *, at_least: int, at_most: float = math.inf) -> tuple[int, int]:
    """Check two whole numbers, the first at most the second.

    Raises:
        SettingError: It is something else.
    """
    least, most = number_range(value, name, at_least=at_least, at_most=at_most)
    if least != int(least) or most != int(most):
        raise SettingError(f"`{name}` must be two whole numbers, got {value!r}.")
    return int(least), int(most)
