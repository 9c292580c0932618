# SPDX-License-Identifier: Apache-2.0
"""Formats in which one element represents all elements of an array, e.g. one camera all cameras.

An array (a group whose names are ``0, 1, …``) is *folded* where its elements have the same format. The field of
the one element then holds the values of all of them::

    cameras                    cameras
      0: image, intrinsics       0: image, intrinsics       values of the cameras 0, 1, 2
      1: image, intrinsics
      2: image, intrinsics
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import cast

import attrs

from .formats import ChildFormat, GroupFormat, rebuilt
from .names import FieldPath, format_path


@attrs.frozen
class Level:
    """The elements that a folded field represents: those of the arrays around it.

    Attributes:
        arrays: Paths of these arrays in the folded format, outermost first; none for a field that is in no array.
        lengths: Their numbers of elements.
    """

    arrays: tuple[FieldPath, ...] = ()
    lengths: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """Number of elements, over all the arrays."""
        return math.prod(self.lengths)

    def path_of(self, path: FieldPath, element: int) -> FieldPath:
        """Get the path that a path of the folded format has for one of the elements.

        Args:
            path: The path; one that is not within an array of this level is the same for all elements.
            element: Number of the element. With arrays in arrays, the innermost index counts first.
        """
        names = [*path]
        for array, length in zip(reversed(self.arrays), reversed(self.lengths), strict=True):
            element, index = divmod(element, length)
            if path[: len(array)] == array and len(path) > len(array):
                names[len(array)] = index
        return tuple(names)

    def __str__(self) -> str:
        return " x ".join(
            f"{format_path(path)} ({length})" for path, length in zip(self.arrays, self.lengths, strict=True)
        )


WHOLE_SAMPLE = Level()


@attrs.frozen
class FoldedLeaf:
    """A data field of a folded format.

    Attributes:
        path: Its path there.
        level: The elements that it represents.
        members: Flat positions of the fields of these elements in the format that was folded.
    """

    path: FieldPath
    level: Level
    members: tuple[int, ...]


@attrs.frozen
class FoldedFormat:
    """A format and how it is folded.

    Attributes:
        full: The format.
        folded: The folded one.
        leaves: Its data fields, in flat order.
        lengths: For the path of each array in it, the number of its elements.
    """

    full: GroupFormat
    folded: GroupFormat
    leaves: tuple[FoldedLeaf, ...]
    lengths: Mapping[FieldPath, int]

    @staticmethod
    def of(
        full: GroupFormat, most: int, least: int = 2, only: Mapping[FieldPath, int] | None = None
    ) -> FoldedFormat:
        """Fold all arrays whose elements have the same format, but those of fewer elements than ``least``.

        Arrays in arrays are folded as long as a field does not represent more than ``most`` elements.
        With ``only``, no arrays are folded but those at its paths.
        """
        return _Fold(most, least, only).apply(full)

    @staticmethod
    def of_folded(folded: GroupFormat, lengths: Mapping[FieldPath, int]) -> FoldedFormat | None:
        """Make a folded format of one in which the arrays at the given paths are folded, as far as they exist.

        Returns:
            None where there is something else than one element at such a path.
        """
        found = map(folded.get, lengths)
        if any(isinstance(group, GroupFormat) and group.names != (0,) for group in found):
            return None

        def unfolded(path: FieldPath, child: ChildFormat) -> ChildFormat:
            if path not in lengths or not isinstance(child, GroupFormat):
                return child
            return GroupFormat(tuple(range(lengths[path])), child.children * lengths[path])

        full = cast(GroupFormat, rebuilt(folded, unfolded))
        return _Fold(math.prod(lengths.values()), 1, lengths).apply(full)

    def stacked(self) -> GroupFormat:
        """Get the folded format without the groups of the arrays: with their elements in their place."""

        def element(path: FieldPath, child: ChildFormat) -> ChildFormat:
            return child.children[0] if path in self.lengths and isinstance(child, GroupFormat) else child

        stacked = rebuilt(self.folded, element)
        return stacked if isinstance(stacked, GroupFormat) else self.folded

    @property
    def levels(self) -> list[Level]:
        """The levels of the data fields, those with arrays only, the ones with most fields first."""
        counts = Counter(leaf.level for leaf in self.leaves if leaf.level.arrays)
        return [level for level, _ in counts.most_common()]


@attrs.define
class _Fold:
    """Folds a format, and collects its fields and arrays.

    Attributes:
        most: As for `FoldedFormat.of`.
        least: As for `FoldedFormat.of`.
        only: Paths of the arrays to fold; None for all.
    """

    most: int
    least: int
    only: Mapping[FieldPath, int] | None = None
    _lengths: dict[FieldPath, int] = attrs.field(factory=dict, init=False)
    _leaves: list[FoldedLeaf] = attrs.field(factory=list, init=False)

    def apply(self, full: GroupFormat) -> FoldedFormat:
        folded = self._group(full, (), WHOLE_SAMPLE, (0,))
        return FoldedFormat(full, folded, tuple(self._leaves), self._lengths)

    def _group(self, group: GroupFormat, path: FieldPath, level: Level, starts: tuple[int, ...]) -> GroupFormat:
        """Fold a group that begins at these flat positions, one for each element that it represents."""
        if self._is_folded(group, path, level):
            num_elements = len(group.names)
            self._lengths[path] = num_elements
            level = Level((*level.arrays, path), (*level.lengths, num_elements))
            size = group.num_leaves // num_elements
            starts = tuple([start + index * size for start in starts for index in range(num_elements)])
            group = GroupFormat((0,), group.children[:1])
        children: list[ChildFormat] = []
        offset = 0
        for name, child in zip(group.names, group.children, strict=True):
            below = tuple([start + offset for start in starts])
            if isinstance(child, GroupFormat):
                offset += child.num_leaves
                child = self._group(child, (*path, name), level, below)
            else:
                offset += 1
                self._leaves.append(FoldedLeaf((*path, name), level, below))
            children.append(child)
        if all(new is old for new, old in zip(children, group.children, strict=True)):
            return group
        return group.with_children(children)

    def _is_folded(self, group: GroupFormat, path: FieldPath, level: Level) -> bool:
        return (
            len(group.names) >= self.least
            and len(group.names) * level.count <= self.most
            and group.is_array()
            and group.num_leaves > 0
            and (self.only is None or path in self.only)
            and all(child is group.children[0] or child == group.children[0] for child in group.children)
        )
