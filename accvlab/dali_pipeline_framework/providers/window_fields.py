# SPDX-License-Identifier: Apache-2.0
"""The fields of windows: which offsets each has, and the format of the samples."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

import attrs
import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ..checks import did_you_mean, listed, number_list, setting_error, shown
from ..errors import FieldValueError, SettingError
from ..sample_data import FieldPath, FieldValue, GroupFormat, LeafFormat
from ..sample_data.conversion import as_numpy
from ..sample_data.formats import ENCODED_NAME, ChildFormat, leaf_format, numbers_name
from ..sample_data.names import Path, format_path, format_paths, normalized_path
from .data_provider import FieldColumn, FieldColumns

Unit: TypeAlias = Literal["frames", "s"]
Offsets: TypeAlias = dict[FieldPath, tuple[float, ...]]

_WRITTEN: dict[Unit, tuple[str, str, str]] = {
    "frames": ("offsets in frames", "whole numbers", "[-2, -1, 0]"),
    "s": ("offsets in seconds", "finite numbers", "[-0.2, 0]"),
}


def offsets_by_path(windows: Mapping[Path, Sequence[float]], unit: Unit, format: GroupFormat) -> Offsets:
    """Find the fields of the windows; the most specific key that names a field gives its offsets."""
    if not isinstance(windows, Mapping) or not windows:
        offsets, _, example = _WRITTEN[unit]
        raise setting_error("windows", f"a mapping of fields to {offsets}, e.g. {{'image': {example}}}", windows)
    checked = {key: _checked_offsets(key, given, unit) for key, given in windows.items()}
    found = {path: checked[key] for path, key in _keys_by_path(checked, "windows", format).items()}
    in_arrays = [path for path in found if isinstance(path[-1], int)]
    if in_arrays:
        rule = "An array of data fields can have no windows, since its masks would have no place"
        raise SettingError(f"{rule}, got {format_paths(in_arrays)}. Give it another form in the provider.")
    leaves = format.leaves
    several = [path for path in found if (leaves[path].content.layout or "").startswith("F")]
    if several:
        rule = f"A window needs single frames, and {format_paths(several)} holds several already"
        raise SettingError(f"{rule}. Leave it out of `windows`, or have the provider deliver single frames.")
    for path in videos_of(format.flat_paths, format):
        if numbers_path(path) in found:
            own = format_paths([numbers_path(path)])
            raise SettingError(f"{own} has the windows of {format_paths([path])}: name that in `windows`.")
    return found


def listed_paths(names: Collection[Path], offsets: Offsets, format: GroupFormat) -> set[FieldPath]:
    """Find the fields whose frames are not stacked, all of which must have windows."""
    found = {*_keys_by_path(names, "listed", format)}
    others = found - {*offsets}
    if others:
        raise SettingError(f"`listed` must name fields that have windows, got {format_paths(sorted(others))}.")
    return found


def _checked_offsets(key: Path, given: Sequence[float], unit: Unit) -> tuple[float, ...]:
    name, rule = f"windows[{key!r}]", "a list of {}, {}".format(*_WRITTEN[unit])
    offsets = number_list(given, name, rule)
    if len({*offsets}) < len(offsets):
        twice = next(offset for offset in offsets if offsets.count(offset) > 1)
        raise setting_error(name, "offsets that differ", given, f"{twice:g} is there twice.")
    if unit == "s":
        return offsets
    if not all(offset.is_integer() for offset in offsets):
        raise setting_error(name, rule, given, "Offsets in seconds need unit='s'.")
    return tuple(map(int, offsets))


def _keys_by_path(keys: Iterable[Path], argument: str, format: GroupFormat) -> dict[FieldPath, Path]:
    """Find the fields that keys name, in the order of the format, each with its most specific key."""
    found: dict[FieldPath, tuple[int, Path]] = {}
    for key in keys:
        ranks = {path: _specificity(path, key) for path in format.flat_paths}
        if not any(ranks.values()):
            raise _no_field(key, argument, format)
        found |= {path: (rank, key) for path, rank in ranks.items() if rank > found.get(path, (0,))[0]}
    return {path: found[path][1] for path in format.flat_paths if path in found}


def _specificity(path: FieldPath, key: Path) -> int:
    """Rank how a key names a field: 3 by its path, 2 by its path without indices, 1 by its name, 0 not at all."""
    if not isinstance(key, str):
        return 3 * (path == normalized_path(key))
    if len(path) > 1 and format_path(path) == key:
        return 3
    names = _without_indices(path)
    return 2 if len(names) > 1 and format_path(names) == key else int(path[-1] == key)


def _without_indices(path: FieldPath) -> FieldPath:
    return tuple(name for name in path if isinstance(name, str))


def _no_field(key: Path, argument: str, format: GroupFormat) -> SettingError:
    group = format.get(normalized_path(key))
    if isinstance(group, GroupFormat):
        below = [path for path in format.flat_paths if path[: len(normalized_path(key))] == normalized_path(key)]
        rule = f"`{argument}` must name data fields, and {shown(key)} is a group"
        return SettingError(f"{rule}. Name its fields: {format_paths(below)}.")
    names = dict.fromkeys(
        name
        for path in format.flat_paths
        for name in (path[-1], format_path(_without_indices(path)), format_path(path))
    )
    meant, fields = did_you_mean(key, names), format_paths(format.flat_paths)
    return SettingError(f"`{argument}` names {shown(key)}, which is no field.{meant} Fields: {fields}.")


def is_small(leaf: LeafFormat) -> bool:
    """Whether a field is numbers or a text, not pictures or points."""
    return leaf.is_string or (leaf.dtype != types.DALIDataType.UINT8 and leaf.ndim in (0, 1))


def numbers_path(path: FieldPath) -> FieldPath:
    """Get the path of the field with the numbers of the frames in an encoded video."""
    return (*path[:-1], numbers_name(path[-1]))


def videos_of(paths: Iterable[FieldPath], format: GroupFormat) -> list[FieldPath]:
    """Get the paths that are those of encoded videos."""
    leaves = format.leaves
    return [path for path in paths if leaves[path].content.codecs or numbers_path(path) in leaves]


def mask_path(path: FieldPath) -> FieldPath:
    """Get the path of the mask of a field."""
    return (*path[:-1], f"{path[-1]}_is_pad")


# --- format -----------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class WindowFormat:
    """The format of samples with windows, and how their values are put together.

    Attributes:
        counts: Number of frames of each field that has a window, by its path.
        listed: Which of these have a field for each frame, instead of one array, whatever they hold.
        videos: Which of these are encoded videos, a file each.
        has_masks: Whether masks say which frames are padding.
    """

    counts: Mapping[FieldPath, int]
    listed: Collection[FieldPath]
    videos: Collection[FieldPath]
    has_masks: bool

    def of(self, format: GroupFormat) -> GroupFormat:
        """Get the format of samples with windows."""
        leaves, mask = format.leaves, leaf_format(types.DALIDataType.BOOL, ndim=1)
        changed: dict[FieldPath, ChildFormat] = {
            path: attrs.evolve(leaves[path], ndim=1) for path in map(numbers_path, self.videos) if path in leaves
        }
        changed |= {path: self._of_frames(leaves[path], path) for path in self.counts if path not in self.videos}
        format = format.with_replaced(changed)
        for path in self.counts if self.has_masks else ():
            group = cast(GroupFormat, format.at(path[:-1])).with_field(mask_path(path)[-1], mask)
            format = format.with_replaced({path[:-1]: group}) if len(path) > 1 else group
        return format

    def _of_frames(self, leaf: LeafFormat, path: FieldPath) -> ChildFormat:
        """Get the format of several frames of a field; the bytes of files, and texts, have no common shape."""
        content, array = leaf.content, GroupFormat(tuple(range(self.counts[path])), (leaf,) * self.counts[path])
        is_bytes = leaf.dtype == types.DALIDataType.UINT8 and leaf.ndim == 1
        if content.is_encoded or (content.is_encoded is None and is_bytes):
            return GroupFormat((ENCODED_NAME,), (array,))
        if leaf.is_string or path in self.listed:
            return array
        if content.layout is not None:
            content = attrs.evolve(content, layout=f"F{content.layout}")
        return leaf_format(leaf.dtype, leaf.mapping, None if leaf.ndim is None else leaf.ndim + 1, content)

    def values(self, columns: FieldColumns, moment: int, format: GroupFormat) -> dict[FieldPath, FieldValue]:
        """Get the values of a moment by the paths of the format, of columns with all frames of some moments."""
        values: dict[FieldPath, FieldValue] = {}
        for path, column in columns.items():
            count = self.counts.get(path)
            if count is None or path in self.videos:
                values[path] = column[moment]
                continue
            frames = column[moment * count : (moment + 1) * count]
            child = format.at(path)
            if isinstance(child, GroupFormat):
                place = (*path, ENCODED_NAME) if child.names == (ENCODED_NAME,) else path
                values |= {(*place, number): frame for number, frame in enumerate(frames)}
            else:
                values[path] = _stacked(path, frames)
        return values


def _stacked(path: FieldPath, frames: FieldColumn) -> npt.NDArray[Any]:
    if isinstance(frames, np.ndarray):
        return frames
    arrays = [np.asarray(as_numpy(frame)) for frame in frames]
    shapes = dict.fromkeys(array.shape for array in arrays)
    if len(shapes) > 1:
        advice = f"Name it in `listed`, to have a field for each frame ({format_path((*path, 0))}, ...)"
        if arrays[0].dtype == np.uint8 and arrays[0].ndim == 1:
            advice = "Declare image files as such: `add_data_field(..., content=ImageContent(is_encoded=True))`"
        raise FieldValueError(
            f"{format_path(path)}: the frames of a window must have one shape, to be stacked, got "
            f"{listed(shapes)}. {advice}."
        )
    return np.stack(arrays)
