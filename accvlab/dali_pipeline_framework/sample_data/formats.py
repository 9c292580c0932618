# SPDX-License-Identifier: Apache-2.0
"""The format of a sample as an immutable value: names, order, types; no data.

A format is a tree: `GroupFormat` is an inner node, `LeafFormat` a data field. Both are hashable, compare fast
(shared parts by identity) and pickle small, so every sample, step and worker can hold one::

    GroupFormat
      names     ("cameras",              "time")
      children  (GroupFormat             LeafFormat(FLOAT64))
                   names     (0, 1)
                   children  (GroupFormat, GroupFormat)     one object, shared
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias, cast

import attrs
import numpy as np
from nvidia.dali import types

from ..checks import bullets, setting_error
from ..errors import (
    DuplicateFieldError,
    FieldKindError,
    FieldNotFoundError,
    FieldValueError,
    FormatError,
    FormatProblem,
    SettingError,
    error_that_is_also,
)
from .conversion import FieldValue, Immutable, ValueMapping, read_text
from .dtypes import DTYPES_BY_CODE, NUMPY_TYPES, get_dali_type_for_numpy_type
from .graph_mode import graph_context
from .names import FieldPath, Name, available_names_hint, checked_name, described_together, flat_name, format_path


@attrs.frozen
class ImageContent:
    """Known properties of the image, clip or mask in a data field; None for unknown ones.

    Attributes:
        is_encoded: True: the bytes of a file, ``(num_bytes,)``. False: an array of pixels.
        layout: Axes of the array, one letter each, e.g. "HWC", "CHW" or "FHWC". This is a statement of the
            format; the data may lack the layout that DALI keeps with them.
        codecs: Kinds of the videos in the field, see `VideoIndex.kind`, e.g. ``("h264 yuv420p bt709",)``: codec,
            pixel format, and color matrix. BT.601 is left out, with one exception: ``bt601`` where streams state
            no matrix and are converted by it, although players would assume BT.709. Empty for images, and for
            unknown codecs.

    Raises:
        SettingError: A value is not valid, or a file is declared to have a layout.

    Example:
        >>> ImageContent(is_encoded=False, layout="HWC").describe()
        'decoded, HWC'
    """

    is_encoded: bool | None = None
    layout: str | None = None
    codecs: tuple[str, ...] = attrs.field(default=(), kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Check the values."""
        if not isinstance(self.is_encoded, bool | None):
            raise setting_error("is_encoded", "True, False or None", self.is_encoded)
        letters = self.layout
        if letters is not None and (not isinstance(letters, str) or not letters or len({*letters}) < len(letters)):
            raise setting_error("layout", "different letters, e.g. 'HWC', or None", letters)
        if self.is_encoded and letters is not None:
            raise SettingError("The bytes of an image file have no layout.")
        if not isinstance(self.codecs, tuple) or (self.codecs and not self.is_encoded):
            raise setting_error("codecs", "a tuple of names, for the bytes of videos only", self.codecs)

    @property
    def is_known(self) -> bool:
        """Whether anything is known."""
        return self.is_encoded is not None or self.layout is not None

    def describe(self) -> str:
        """Describe the known properties in a few words; empty without any."""
        states = {True: "encoded", False: "decoded", None: ""}
        parts = (states[self.is_encoded], *self.codecs, self.layout or "")
        return ", ".join(part for part in parts if part)


UNKNOWN_CONTENT = ImageContent()
ENCODED_IMAGE = ImageContent(is_encoded=True)
ENCODED_VIDEO = ImageContent(is_encoded=True, codecs=("any",))  # what steps need
DECODED_IMAGE = ImageContent(is_encoded=False, layout="HWC")
DECODED_CLIP = ImageContent(is_encoded=False, layout="FHWC")


def _code(dtype: types.DALIDataType) -> int:
    return int(dtype.value)


@attrs.frozen(repr=False, cache_hash=True)
class LeafFormat(Immutable):
    """Format of one data field. Make it with `leaf_format`, which hands out shared objects.

    Attributes:
        dtype: Type of the elements; ``STRING`` for text.
        mapping: Label -> number, or None.
        ndim: Number of dimensions of its arrays, or None for any.
        content: Known properties of the image that it holds.

    Example:
        >>> from nvidia.dali.types import DALIDataType
        >>> leaf_format(DALIDataType.FLOAT, ndim=2)
        LeafFormat(FLOAT, ndim=2)
        >>> leaf_format(DALIDataType.FLOAT, ndim=2) is leaf_format(DALIDataType.FLOAT, ndim=2)
        True
    """

    dtype: types.DALIDataType = attrs.field(eq=_code)
    mapping: ValueMapping | None = None
    ndim: int | None = None
    content: ImageContent = UNKNOWN_CONTENT

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.dtype, types.DALIDataType) or self.dtype.value not in DTYPES_BY_CODE:
            raise FieldValueError(
                "the type of a data field must be one of DALIDataType."
                f"{{{', '.join(dtype.name for dtype in DTYPES_BY_CODE.values())}}}, got {self.dtype!r}"
                f"{_dtype_advice(self.dtype)}"
            )
        if self.is_string and self.mapping is not None:
            raise SettingError(
                "a STRING field cannot have a mapping: its text is stored as it is. Use a numeric type to "
                "store the numbers that the text maps to"
            )
        if self.ndim is not None and (type(self.ndim) is not int or self.ndim < 0):
            raise SettingError(f"ndim must be None or an int >= 0, got {self.ndim!r}")
        if self.is_string and self.ndim not in (None, 1):
            raise SettingError(f"a STRING field always has one dimension (its bytes), got ndim={self.ndim}")
        if not isinstance(self.content, ImageContent):
            raise SettingError(f"content must be an ImageContent, got {self.content!r}")
        if self.is_string and self.content.is_known:
            raise SettingError("a STRING field cannot hold an image")

    @cached_property
    def code(self) -> int:
        """DALI's integer code of ``dtype``."""
        return _code(self.dtype)

    @cached_property
    def is_string(self) -> bool:
        """Whether the field holds text."""
        return bool(self.dtype == types.DALIDataType.STRING)

    @cached_property
    def numpy_dtype(self) -> np.dtype[Any]:
        """Type in which the field is stored and travels; uint8 for text."""
        return np.dtype(np.uint8 if self.is_string else NUMPY_TYPES[self.dtype])

    @property
    def transport_dtype(self) -> types.DALIDataType:
        """Type in which the field travels through DALI (``UINT8`` for text)."""
        return types.DALIDataType.UINT8 if self.is_string else self.dtype

    @property
    def skeleton(self) -> object:
        """The value that `matches` compares."""
        return self.code

    def with_content(self, content: ImageContent) -> LeafFormat:
        """Return this format with something else known of the image."""
        if content is self.content:
            return self
        return _leaf_from_code(self.code, self.mapping, self.ndim, content)

    def __repr__(self) -> str:
        details = "" if self.mapping is None else f", mapping={dict(self.mapping)!r}"
        details += "" if self.ndim is None else f", ndim={self.ndim}"
        details += f", content={self.content.describe()!r}" if self.content.is_known else ""
        return f"LeafFormat({self.dtype.name}{details})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Equal leaves become one object.
        plain = (self.code, self.mapping, self.ndim)
        content = self.content
        return _leaf_from_code, plain if content == UNKNOWN_CONTENT else (*plain, content)


def _dtype_advice(dtype: object) -> str:
    if dtype is None:  # which NumPy takes for float64
        return ""
    library = "PyTorch" if type(dtype).__module__ == "torch" else "NumPy"
    try:
        known = get_dali_type_for_numpy_type(str(dtype).removeprefix("torch.") if library == "PyTorch" else dtype)
    except (TypeError, ValueError):
        return ""
    return f". For this {library} type use DALIDataType.{known.name}"


@functools.lru_cache(maxsize=4096)
def _leaf_from_code(
    code: int,
    mapping: ValueMapping | None,
    ndim: int | None,
    content: ImageContent = UNKNOWN_CONTENT,
) -> LeafFormat:
    return LeafFormat(DTYPES_BY_CODE[code], mapping, ndim, content)


def leaf_format(
    dtype: types.DALIDataType,
    mapping: ValueMapping | None = None,
    ndim: int | None = None,
    content: ImageContent = UNKNOWN_CONTENT,
) -> LeafFormat:
    """Return the format of a data field; equal arguments give the same object.

    Raises:
        FieldValueError: If ``dtype`` is not a DALI type that a field can have.
        SettingError: If ``ndim`` is not a number of dimensions, ``content`` is something else or does not fit it,
            or text is to be mapped.
    """
    if isinstance(content, ImageContent) and content.is_known:
        of_content = 1 if content.is_encoded else len(content.layout or "") or None
        if None not in (ndim, of_content) and ndim != of_content:
            raise SettingError(f"ndim must fit the content ({content.describe()}): {of_content}, got {ndim}")
    make, arguments = LeafFormat(dtype, mapping, ndim, content).__reduce__()
    leaf: LeafFormat = make(*arguments)
    return leaf


@attrs.frozen(repr=False, cache_hash=True)
class GroupFormat(Immutable):
    """Format of a group: its children in order, and what follows from them.

    All edits return a new format and share what did not change.

    Attributes:
        names: Names of the direct children.
        children: Formats of the direct children, parallel to ``names``.
        index: Name of a direct child -> its position. Do not modify.
        group_positions: Positions of the children that are groups.
        num_leaves: Number of data fields in the whole tree.

    Raises:
        DuplicateFieldError: If a name occurs twice.
        NameTypeError: If a name is neither ``str`` nor ``int``.
        SettingError: If a name is empty.

    Example:
        >>> from nvidia.dali.types import DALIDataType
        >>> camera = GroupFormat().with_field("image", leaf_format(DALIDataType.UINT8, ndim=3))
        >>> sample = GroupFormat(("cameras",), (GroupFormat((0, 1), (camera, camera)),))
        >>> sample.flat_names
        ('cameras.[0].image', 'cameras.[1].image')
        >>> sample.at(("cameras", 1)) is camera
        True
    """

    names: tuple[Name, ...] = ()
    children: tuple[ChildFormat, ...] = ()
    index: dict[Name, int] = attrs.field(init=False, eq=False)
    group_positions: tuple[int, ...] = attrs.field(init=False, eq=False)
    num_leaves: int = attrs.field(init=False, eq=False)

    def __attrs_post_init__(self) -> None:
        if len(self.names) != len(self.children):
            raise SettingError(f"got {len(self.names)} names for {len(self.children)} children")
        if not set(map(type, self.names)) <= {str, int}:
            _set(self, "names", tuple(map(checked_name, self.names)))
        if "" in self.names:
            raise SettingError("a field name must have at least one character, got ''")
        index = dict(zip(self.names, range(len(self.names)), strict=True))
        if len(index) != len(self.names):
            twice = next(name for position, name in enumerate(self.names) if index[name] != position)
            raise DuplicateFieldError(f"the field name {twice!r} is used more than once")
        groups = {i: child for i, child in enumerate(self.children) if isinstance(child, GroupFormat)}
        num_leaves = len(self.children) - len(groups) + sum(group.num_leaves for group in groups.values())
        _set(self, "index", index)
        _set(self, "group_positions", tuple(groups))
        _set(self, "num_leaves", num_leaves)

    # --- the whole tree, flat ---------------------------------------------------------------------------

    @cached_property
    def leaves(self) -> Mapping[FieldPath, LeafFormat]:
        """Formats of all data fields by path: depth first, children in order. Empty groups do not appear."""
        leaves: dict[FieldPath, LeafFormat] = {}
        for name, child in zip(self.names, self.children, strict=True):
            below = {(): child} if isinstance(child, LeafFormat) else child.leaves
            leaves |= {(name, *path): leaf for path, leaf in below.items()}
        return leaves

    @cached_property
    def flat_paths(self) -> tuple[FieldPath, ...]:
        """Paths of all data fields, in the order of `leaves`."""
        return tuple(self.leaves)

    @cached_property
    def flat_leaves(self) -> tuple[LeafFormat, ...]:
        """Formats of all data fields, parallel to `flat_paths`."""
        return tuple(self.leaves.values())

    @cached_property
    def flat_dtypes(self) -> tuple[types.DALIDataType, ...]:
        """Types in which the data fields travel, parallel to `flat_paths`; ``UINT8`` for text."""
        return tuple([leaf.transport_dtype for leaf in self.flat_leaves])

    @cached_property
    def flat_names(self) -> tuple[str, ...]:
        """Names of the data fields as pipeline outputs, parallel to `flat_paths`: ``cameras.[0].image``.

        Raises:
            FormatError: If two data fields have the same flat name (e.g. ``"a.b"`` and ``b`` in group ``a``).
        """
        by_name: dict[str, list[FieldPath]] = {}
        for path in self.flat_paths:
            by_name.setdefault(flat_name(path), []).append(path)
        problems = [
            f"{name}: is the flat name of {' and of '.join(map(repr, paths))}"
            for name, paths in by_name.items()
            if len(paths) > 1
        ]
        if problems:
            raise FormatError(
                "several data fields share one flat name, so their outputs could not be distinguished; rename all "
                "but one of them:\n  " + "\n  ".join(problems)
            )
        return tuple(by_name)

    # --- look-ups ---------------------------------------------------------------------------------------

    def at(self, path: FieldPath) -> ChildFormat:
        """Return the format at ``path`` (a tuple of names); ``()`` is this format.

        Raises:
            FieldNotFoundError: If there is none.
            FieldKindError: If the path leads through a data field.
        """
        node: ChildFormat = self
        for depth, name in enumerate(path):
            if not isinstance(node, GroupFormat):
                raise nothing_below_leaf(path[:depth])
            if name not in node.index:
                raise field_not_found(name, node, path[:depth])
            node = node.children[node.index[name]]
        return node

    def get(self, path: FieldPath) -> ChildFormat | None:
        """Return the format at ``path``, or None if there is none."""
        node: ChildFormat = self
        for name in path:
            if not isinstance(node, GroupFormat) or name not in node.index:
                return None
            node = node.children[node.index[name]]
        return node

    def find(self, name: Name) -> list[FieldPath]:
        """Return the paths of all fields and groups of this name.

        A group's own child of that name comes before those further down, which follow in field order.

        Raises:
            FieldNotFoundError: If the name is a number, and each field represents all elements of an array.
        """
        if not isinstance(name, str) and graph_context.get().is_folded:
            raise FieldNotFoundError(
                f"{name!r} names one of the elements of an array, which are folded to one here"
            )
        found: list[FieldPath] = [(name,)] if name in self.index else []
        for group_name, child in zip(self.names, self.children, strict=True):
            if isinstance(child, GroupFormat):
                found += [(group_name, *below) for below in child.find(name)]
        return found

    def is_array(self) -> bool:
        """Whether the names are ``0, 1, 2, …`` in this order; true for an empty group."""
        return self.names == tuple(range(len(self.names)))

    # --- comparison -------------------------------------------------------------------------------------

    @cached_property
    def skeleton(self) -> object:
        """The value that `matches` compares: names, order and types of the whole tree as plain tuples."""
        return self.names, tuple([child.skeleton for child in self.children])

    def matches(self, other: object) -> bool:
        """Whether ``other`` is a group with the same names in the same order and the same leaf types.

        Mappings, numbers of dimensions and contents do not count. Never raises.
        """
        if self is other:
            return True
        return isinstance(other, GroupFormat) and self.skeleton == other.skeleton

    def first_difference(self, other: GroupFormat) -> int:
        """Return the first flat position where path or type differ; -1 if none does.

        If one is a prefix of the other, this is the number of data fields of the shorter one. Empty groups
        are not seen.
        """
        mine, theirs = ([(path, leaf.code) for path, leaf in each.leaves.items()] for each in (self, other))
        shorter = min(len(mine), len(theirs))
        end = -1 if len(mine) == len(theirs) else shorter
        return next((position for position in range(shorter) if mine[position] != theirs[position]), end)

    # --- edits ------------------------------------------------------------------------------------------

    def with_field(self, name: Name, child: ChildFormat) -> GroupFormat:
        """Return this format with one more child at the end.

        Raises:
            DuplicateFieldError: If the name is taken.
            NameTypeError: If the name is neither ``str`` nor ``int``.
            SettingError: If the name is empty.
        """
        if name in self.index:
            raise DuplicateFieldError(
                f"a field with name {name!r} exists already; remove it first, or choose another name"
            )
        return GroupFormat((*self.names, name), (*self.children, child))

    def without(self, name: Name) -> GroupFormat:
        """Return this format without the child ``name``.

        Raises:
            FieldNotFoundError: If there is none.
        """
        if name not in self.index:
            raise FieldNotFoundError(
                f"Cannot delete field '{name}': no such field.{available_names_hint(name, self.names)}"
            )
        position = self.index[name]
        return GroupFormat(
            self.names[:position] + self.names[position + 1 :],
            self.children[:position] + self.children[position + 1 :],
        )

    def with_children(self, children: Sequence[ChildFormat]) -> GroupFormat:
        """Return this format with all children replaced; the names stay."""
        return GroupFormat(self.names, tuple(children))

    def with_contents(self, contents: Mapping[FieldPath, ImageContent]) -> GroupFormat:
        """Return this format with other contents of some data fields."""
        known = {path: content for path, content in contents.items() if path in self.leaves}
        return self.with_replaced({path: self.leaves[path].with_content(each) for path, each in known.items()})

    def with_replaced(self, replaced: Mapping[FieldPath, ChildFormat]) -> GroupFormat:
        """Return this format with other formats at the given paths, below itself."""
        return cast(GroupFormat, rebuilt(self, lambda path, child: replaced.get(path, child)))

    # --- the rest ---------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        inner = ", ".join(f"{name!r}: {child!r}" for name, child in zip(self.names, self.children, strict=True))
        return f"GroupFormat({{{inner}}})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickles stay small: the look-up tables are derived again.
        return GroupFormat, (self.names, self.children)


ChildFormat: TypeAlias = LeafFormat | GroupFormat
"""Format of a child: a data field or a group."""


def rebuilt(
    format: ChildFormat, change: Callable[[FieldPath, ChildFormat], ChildFormat], path: FieldPath = ()
) -> ChildFormat:
    """Get a format with what ``change(path, format)`` makes of each of its parts, from the data fields up."""
    if isinstance(format, GroupFormat):
        parts = zip(format.names, format.children, strict=True)
        children = [rebuilt(child, change, (*path, name)) for name, child in parts]
        if not all(map(operator.is_, children, format.children)):
            format = format.with_children(children)
    return change(path, format)


def nested_dictionary(
    sample_format: GroupFormat, values: Iterable[FieldValue], prefix: FieldPath = ()
) -> dict[Name, FieldValue]:
    """Arrange values in flat order as nested plain dicts, like `SampleDataGroup.to_dictionary`.

    Args:
        sample_format: Names and types.
        values: As many values as the format has data fields.
        prefix: Path of the group, for messages.
    """
    values = iter(values)
    result: dict[Name, FieldValue] = {}
    for name, child in zip(sample_format.names, sample_format.children, strict=True):
        if isinstance(child, GroupFormat):
            result[name] = nested_dictionary(child, values, (*prefix, name))
        elif child.is_string:
            result[name] = read_text(next(values), (*prefix, name))
        else:
            result[name] = next(values)
    return result


def field_not_found(name: Name, group: GroupFormat, group_path: FieldPath, advice: str = "") -> FieldNotFoundError:
    """Make the error for a name that ``group`` (at ``group_path``) does not have."""
    where = f" in {format_path(group_path)}" if group_path else ""
    hint = available_names_hint(name, group.names)
    return FieldNotFoundError(f"No field with name '{name}'{where}.{hint}{advice}")


def nothing_below_leaf(leaf_path: FieldPath) -> FieldKindError:
    """Make the error for a path that continues below the data field at ``leaf_path``."""
    return FieldKindError(
        f"{format_path(leaf_path)}: is a data field, so there is nothing below it; the path may lead through "
        "data group fields only"
    )


def _set(frozen: object, attribute: str, value: object) -> None:
    object.__setattr__(frozen, attribute, value)


ENCODED_NAME = "encoded"
"""An array of ``F`` image files, ``(num_bytes,)`` uint8 each."""


def numbers_name(name: Name) -> str:
    """Get the name of the field with the frames to decode, next to a field with the bytes of a video file."""
    return f"{name}_to_decode"


def holds_encoded_frames(found: GroupFormat | LeafFormat) -> bool:
    """Whether a field is a group of encoded frames, as windows have."""
    encoded = found.get((ENCODED_NAME,)) if isinstance(found, GroupFormat) else None
    if not isinstance(encoded, GroupFormat) or not encoded.is_array() or not encoded.names:
        return False
    return all(
        isinstance(child, LeafFormat)
        and child.dtype == types.DALIDataType.UINT8
        and child.content.is_encoded is not False
        for child in encoded.children
    )


def format_error(problems: Sequence[FormatProblem], heading: str) -> FormatError:
    """Make one `FormatError` of all problems; it is also of the exception class of each problem.

    The message lists equal problems of several fields together.
    """
    lines = [heading]
    for step, of_step in itertools.groupby(problems, operator.attrgetter("step")):
        indent = "  "
        if step is not None:
            lines.append(f"  {step}:")
            indent = "    "
        described = described_together((problem.path, problem.message) for problem in of_step)
        lines += [f"{indent}- " + text.replace("\n", f"\n{indent}  ") for text in described]
    error = cast(
        FormatError,
        error_that_is_also(FormatError, [problem.error_type for problem in problems], "\n".join(lines)),
    )
    error.problems = tuple(problems)
    return error


def describe_difference(expected: GroupFormat, found: GroupFormat) -> str:
    """List the fields in which two formats differ, in at most ten lines."""
    leaves, found_leaves = expected.leaves, found.leaves
    texts: list[tuple[FieldPath | None, str]]
    texts = [(path, "missing") for path in leaves if path not in found_leaves]
    texts += [(path, "not in the blueprint") for path in found_leaves if path not in leaves]
    texts += [
        (path, f"must be {leaf.dtype.name}, got {found_leaves[path].dtype.name}")
        for path, leaf in leaves.items()
        if path in found_leaves and found_leaves[path].dtype != leaf.dtype
    ]
    if not texts and expected.flat_paths == found.flat_paths:
        texts = [(None, "they differ in groups without data fields only")]
    elif not texts:
        orders = [", ".join(map(format_path, each)) for each in (leaves, found_leaves)]
        texts = [(None, f"the order of the fields differs: expected {orders[0]}; got {orders[1]}")]
    return bullets(described_together(texts), 9)
