# SPDX-License-Identifier: Apache-2.0
"""Requirements of steps on images, and the contents that they leave; checked when formats are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import attrs
import numpy as np
from nvidia.dali import types

from ..operators import functions
from ..operators.element_selection import leaf_at
from ..operators.functions import Array
from ..sample_data import FieldPath, FormatProblem, GroupFormat, ImageContent, LeafFormat, SampleDataGroup
from ..sample_data.formats import UNKNOWN_CONTENT, leaf_format
from ..sample_data.names import Name
from .named_fields import as_names

if TYPE_CHECKING:
    from .pipeline_step_base import PipelineStepBase

_DT = types.DALIDataType
_LAYOUT_OF_NDIM = {3: "HWC", 4: "FHWC"}

ContentRule: TypeAlias = ImageContent | Callable[[LeafFormat], ImageContent]
"""A content, or a function that gives it for the format of a field before the step."""


def _names(names: Name | Sequence[Name]) -> tuple[Name, ...]:
    return as_names(names, "names")


@attrs.frozen
class ImageUse:
    """Requirements of a step on the images of some names, and the contents that it leaves.

    Attributes:
        names: Name or names of the fields, anywhere in the group that the step is applied to.
        needs: Required content, as far as the content is known. A layout is the layout of the last axes: a clip
            "FHWC" has the layout "HWC".
        leaves: Known content of the images after the step; None if it stays.
        advice: Remedy for an image that is encoded and must not be, or the reverse.
        path: Path of a single field, in place of ``names``, which are then ignored.

    Example:
        >>> ImageUse("image", needs=ImageContent(is_encoded=False, layout="HWC")).needs.layout
        'HWC'
    """

    names: tuple[Name, ...] = attrs.field(converter=_names, default=())
    needs: ContentRule = UNKNOWN_CONTENT
    leaves: ContentRule | None = None
    advice: str = attrs.field(default="", kw_only=True)
    path: FieldPath | None = attrs.field(default=None, kw_only=True)

    def paths(self, group: GroupFormat) -> list[FieldPath]:
        """Get the paths of the data fields."""
        if self.path is not None:
            return [self.path] if self.path in group.leaves else []
        return [path for name in self.names for path in group.find(name) if path in group.leaves]


# --- what image steps need and leave -----------------------------------------------------------------------

ARRAY = ImageContent(is_encoded=False)
PIXELS = ImageContent(is_encoded=False, layout="HWC")


def as_pixels(leaf: LeafFormat) -> ImageContent:
    """Get the known content, and that it is ``HWC`` or ``FHWC``, which a step has relied on."""
    layout = leaf.content.layout or _LAYOUT_OF_NDIM.get(leaf.ndim or 0)
    return attrs.evolve(leaf.content, is_encoded=False, layout=layout)


def as_array(leaf: LeafFormat) -> ImageContent:
    """Get the known content, and that it is decoded, which a step has relied on."""
    return attrs.evolve(leaf.content, is_encoded=False)


def axis_of_height(leaf: LeafFormat) -> int:
    """Get the axis of the height, counted from the end; the width follows. -3 for an unknown layout."""
    layout = leaf.content.layout
    return -3 if layout is None or "HW" not in layout else layout.index("HW") - len(layout)


def height_and_width(data: SampleDataGroup, path: FieldPath) -> Array:
    """Get height and width of the image at a path, ``(2,)``.

    Raises:
        FieldValueError: It has too few axes.
    """
    shape, first = data.get_item_in_path(path).shape, axis_of_height(leaf_at(data, path))
    # The range is cut where there are fewer axes.
    rule = "an image is (..., height, width, channels)"
    return np.asarray(functions.failing_with(rule, np.reshape, shape[first : first + 2 or None], 2))


def with_height_and_width(leaf: LeafFormat) -> ImageContent:
    """Get the content of an array of any layout in which the width follows the height."""
    return ARRAY if "HW" in (leaf.content.layout or "HW") else PIXELS


def image_problems(
    step: PipelineStepBase, uses: Sequence[ImageUse] | None, before: GroupFormat
) -> list[FormatProblem]:
    """Get the problems of the images that a step is given."""
    problems: dict[FieldPath, FormatProblem] = {}
    for use in uses or ():
        for path in use.paths(before):
            message = _problem(type(step).__name__, before.leaves[path], use)
            if message:
                problems.setdefault(path, FormatProblem(message, path))
    return [*problems.values()]


def contents_after(
    step: PipelineStepBase, uses: Sequence[ImageUse] | None, before: GroupFormat, after: GroupFormat
) -> GroupFormat:
    """Get the format after a step, with the known contents of its images."""
    if uses is None:
        return after.with_replaced(
            {
                path: _leaf_of_unknown_image(step, leaf, before.leaves.get(path))
                for path, leaf in after.leaves.items()
            }
        )
    contents: dict[FieldPath, ImageContent] = {}
    for use in uses:
        for path in use.paths(after):
            leaf = before.leaves.get(path) or after.leaves[path].with_content(UNKNOWN_CONTENT)
            contents[path] = leaf.content if use.leaves is None else _content(use.leaves, leaf)
    return after.with_contents(contents)


def _content(rule: ContentRule, leaf: LeafFormat) -> ImageContent:
    return rule(leaf) if callable(rule) else rule


def _leaf_of_unknown_image(step: PipelineStepBase, leaf: LeafFormat, given: LeafFormat | None) -> LeafFormat:
    # Operators may decode or encode an image, which changes its number of dimensions; so that of a field which the
    # step has not declared anew is not known.
    is_old = leaf.dtype == _DT.UINT8 and given is not None and given.ndim == leaf.ndim and not step.has_array_form
    return leaf_format(leaf.dtype, leaf.mapping, None if is_old else leaf.ndim)


def _problem(here: str, leaf: LeafFormat, use: ImageUse) -> str | None:
    needs, content, is_encoded = _content(use.needs, leaf), leaf.content, _is_encoded(leaf)
    if None not in (is_encoded, needs.is_encoded) and is_encoded != needs.is_encoded:
        return _encoding_problem(here, leaf, use)
    if needs.is_encoded and content.codecs and not needs.codecs:
        return f"is an encoded video ({', '.join(content.codecs)}). VideoDecoder decodes it, before {here}"
    if needs.layout is not None and content.layout is not None and not content.layout.endswith(needs.layout):
        return (
            f"must have the layout {needs.layout} (clips: F{needs.layout}), but has {content.layout}. Put {here} "
            f"before the step that changes it"
        )
    return None


def _encoding_problem(here: str, leaf: LeafFormat, use: ImageUse) -> str:
    shown = "" if leaf.content.is_encoded is not None else f", as its type and ndim={leaf.ndim} show"
    if _is_encoded(leaf):
        advice = use.advice or f"Put ImageDecoder before {here}"
        if leaf.content.codecs:
            advice = f"It is an encoded video: put VideoDecoder before {here}"
        advice += "; or declare `content=ImageContent(is_encoded=False)` where it holds no file" if shown else ""
        return f"must be a decoded image, but holds the bytes of a file{shown}. {advice}"
    advice = use.advice or "Images are decoded once, before anything is done to their pixels"
    found = "looks decoded already" if shown else "is a decoded image"
    return f"must hold the bytes of an image file, but {found}{shown}. {advice}"


def _is_encoded(leaf: LeafFormat) -> bool | None:
    if leaf.content.is_encoded is not None or leaf.dtype != _DT.UINT8 or not leaf.ndim:
        return leaf.content.is_encoded
    return leaf.ndim == 1
