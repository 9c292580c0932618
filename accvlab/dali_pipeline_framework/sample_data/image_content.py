# SPDX-License-Identifier: Apache-2.0
"""What a format knows of the image, clip or mask in a data field."""

from __future__ import annotations

import math
from typing import Any

import attrs

from ..errors import SettingError

_ASPECTS = ("is_encoded", "layout", "value_range")


def _as_range(value: Any) -> Any:
    try:
        low, high = map(float, value)
    except (TypeError, ValueError):
        return value
    return low, high


def _is_range(value: Any) -> bool:
    is_pair = isinstance(value, tuple) and len(value) == 2 and all(isinstance(each, float) for each in value)
    return is_pair and all(map(math.isfinite, value)) and value[0] < value[1]


@attrs.frozen
class ImageContent:
    """What is known of the image, clip or mask in a data field; None for what is not known.

    Attributes:
        is_encoded: True: the bytes of a file, ``(num_bytes,)``. False: an array of pixels.
        layout: Axes of the array, one letter each, e.g. "HWC", "CHW" or "FHWC". They hold for the format only;
            DALI's own layout of the data may be missing.
        value_range: Values of black and white, (0, 255) or (0, 1), or what they became since. Values may lie
            beyond.
        may_have_changed: Whether a step that declares nothing stands before, so that the number of dimensions
            of the field may be out of date.
        origins: For encoding, layout and range the step that left it so; empty for the input. Does not count in
            comparisons.

    Raises:
        SettingError: A value is none of these, or a file is said to have a layout or a range.

    Example:
        >>> ImageContent(is_encoded=False, layout="HWC", value_range=(0, 255)).describe()
        'decoded, HWC, 0..255'
    """

    is_encoded: bool | None = None
    layout: str | None = None
    value_range: tuple[float, float] | None = attrs.field(default=None, converter=_as_range)
    may_have_changed: bool = attrs.field(default=False, kw_only=True)
    origins: tuple[str, str, str] = attrs.field(default=("", "", ""), kw_only=True, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Refuse what no image can have."""
        if not isinstance(self.is_encoded, bool | None):
            raise SettingError(f"`is_encoded` must be True, False or None, got {self.is_encoded!r}.")
        letters = self.layout
        if letters is not None and (not isinstance(letters, str) or not letters or len({*letters}) < len(letters)):
            raise SettingError(f"`layout` must be different letters, e.g. 'HWC', or None, got {letters!r}.")
        if self.value_range is not None and not _is_range(self.value_range):
            raise SettingError(
                "`value_range` must be two finite numbers, those of black and white, the first one less than the "
                f"second one, or None, got {self.value_range!r}."
            )
        if self.is_encoded and (letters is not None or self.value_range is not None):
            raise SettingError("The bytes of an image file have neither a layout nor a range of values.")

    @property
    def is_known(self) -> bool:
        """Whether anything is known."""
        return any(getattr(self, aspect) is not None for aspect in _ASPECTS)

    def origin_of(self, aspect: str) -> str:
        """Get the step that left an attribute as it is; empty for the input."""
        return self.origins[_ASPECTS.index(aspect)]

    def left_by(self, step: str, before: ImageContent) -> ImageContent:
        """Get the same with the step as the origin of what was different before."""
        origins = [
            origin if getattr(self, aspect) == getattr(before, aspect) else step
            for aspect, origin in zip(_ASPECTS, before.origins, strict=True)
        ]
        return attrs.evolve(self, origins=(origins[0], origins[1], origins[2]))

    def with_origin(self, step: str) -> ImageContent:
        """Get the same with the step as the origin of what is known, unless it has origins already."""
        return self if any(self.origins) else self.left_by(step, UNKNOWN_CONTENT)

    def describe(self) -> str:
        """Say what is known in a few words; empty for nothing."""
        states = {True: "encoded", False: "decoded", None: ""}
        parts = (states[self.is_encoded], self.layout or "", describe_range(self.value_range))
        return ", ".join(part for part in parts if part)


UNKNOWN_CONTENT = ImageContent()
ENCODED_IMAGE = ImageContent(is_encoded=True)
DECODED_IMAGE = ImageContent(is_encoded=False, layout="HWC", value_range=(0, 255))
DECODED_CLIP = ImageContent(is_encoded=False, layout="FHWC", value_range=(0, 255))


def describe_range(value_range: tuple[float, float] | None) -> str:
    """Write a range as ``0..255``; empty for None."""
    return "" if value_range is None else f"{value_range[0]:.3g}..{value_range[1]:.3g}"
