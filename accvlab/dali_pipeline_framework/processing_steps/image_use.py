# SPDX-License-Identifier: Apache-2.0
"""Requirements of steps on images, and the contents that they leave; checked when formats are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import numpy as np
from nvidia.dali import types

from ..operators import functions
from ..operators.element_selection import leaf_at
from ..operators.functions import Array
from ..sample_data import FieldPath, FormatProblem, GroupFormat, ImageContent, LeafFormat, SampleDataGroup
from ..sample_data.formats import UNKNOWN_CONTENT
from ..sample_data.names import Name
from .named_fields import as_names

if TYPE_CHECKING:
    from .pipeline_step_base import PipelineStepBase

_DT = types.DALIDataType
_LAYOUT_OF_NDIM = {3: "HWC", 4: "FHWC"}
_CHANGED_BYTES = ImageContent(may_have_changed=True)

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
        path: Path of the only such field, if there is one; then ``names`` does not count.

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
        paths = [path for name in self.names for path in group.find(name)] if self.path is None else [self.path]
        return [path for path in paths if isinstance(group.get(path), LeafFormat)]


# --- what image steps need and leave -----------------------------------------------------------------------

ARRAY = ImageContent(is_encoded=False)
PIXELS = ImageContent(is_encoded=False, layout="HWC")


def as_pixels(leaf: LeafFormat) -> ImageContent:
    """Get the known content, and that it is ``HWC`` or ``FHWC``, which a step has relied on."""
    layout = leaf.content.layout or _LAYOUT_OF_NDIM.get(known_ndim(leaf) or 0)
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
            message = _problem(type(step).__name__, before.at(path), use)
            if message:
                problems.setdefault(path, FormatProblem(message, path))
    return [*problems.values()]


def contents_after(
    step: PipelineStepBase, uses: Sequence[ImageUse] | None, before: GroupFormat, after: GroupFormat
) -> GroupFormat:
    """Get the format after a step, with the known contents of its images."""
    contents: dict[FieldPath, ImageContent] = {}
    for use in uses or ():
        for path in use.paths(after):
            given: Any = before.get(path)
            if not isinstance(given, LeafFormat):  # a new field
                leaf: Any = after.at(path)
                given = leaf.with_content(UNKNOWN_CONTENT)
            contents[path] = given.content if use.leaves is None else _content(use.leaves, given)
    if uses is None:  # An outdated number of dimensions misleads only for the bytes of a file.
        contents = {
            path: _CHANGED_BYTES if leaf.ndim is not None and leaf.dtype == _DT.UINT8 else UNKNOWN_CONTENT
            for path, leaf in zip(after.flat_paths, after.flat_leaves, strict=True)
        }
    return after.with_contents(contents)


def _content(rule: ContentRule, leaf: LeafFormat) -> ImageContent:
    return rule(leaf) if callable(rule) else rule


def _problem(here: str, leaf: Any, use: ImageUse) -> str | None:
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


def known_ndim(leaf: LeafFormat) -> int | None:
    """Get the declared number of dimensions, unless a step may have changed it without declaring it."""
    return None if leaf.content.may_have_changed else leaf.ndim


def _is_encoded(leaf: LeafFormat) -> bool | None:
    ndim = known_ndim(leaf)
    if leaf.content.is_encoded is not None or leaf.dtype != _DT.UINT8 or not ndim:
        return leaf.content.is_encoded
    return ndim == 1
