# SPDX-License-Identifier: Apache-2.0
"""Parts of a data set that are not requested may be missing or damaged.

An index has all that can be read, whatever is requested: it is made once. What cannot be read, and is not requested,
is left out, with a note; requested later, it is read again, which raises the error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs

from accvlab.dali_pipeline_framework.errors import FileError, SettingError

from .driving_index import DrivingIndex, cached_index

_LEFT_OUT = "left_out"
_T = TypeVar("_T")

# Fields that need a part which is not called like them; boxes are there where the data set has them.
_NEEDED_BY: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "boxes": lambda given: given.get("boxes") is not False or bool(given.get("boxes_2d")),
    "can_bus": lambda given: bool(given.get("can_bus") or given.get("ego_status")),
    "lidar": lambda given: bool(given.get("lidar")) or given.get("reference") == "lidar",
}


def chosen_names(names: Sequence[str], settings: Mapping[str, Any]) -> list[str]:
    """Get those of all scenes that `scenes` requests: others need not be read. Wrong ones are refused later."""
    scenes = settings.get("scenes")
    is_right = isinstance(scenes, Iterable) and not isinstance(scenes, str) and {*scenes} <= {*names}
    return [name for name in names if not is_right or name in scenes]


@attrs.define(eq=False)
class RequestedParts:
    """Knows which parts are requested, and notes which others cannot be read.

    A part is a camera, ``cameras/NAME``, or has the name of a setting of `DrivingFields`: ``lidar``, ``boxes``, ...

    Attributes:
        settings: The settings of the provider.
        left_out: The first error of each part that was left out.
    """

    settings: Mapping[str, Any]
    left_out: dict[str, str] = attrs.field(factory=dict)

    def wants(self, part: str) -> bool:
        """Whether a part is requested."""
        kind, _, name = part.partition("/")
        if kind == "cameras":
            cameras = self.settings.get("cameras")
            return not isinstance(cameras, Iterable) or name in cameras  # what is no list is refused later
        return _NEEDED_BY.get(kind, lambda given: bool(given.get(kind)))(self.settings)

    @contextlib.contextmanager
    def reading(self, part: str) -> Iterator[None]:
        """Read a part meanwhile; an error of one that is not requested ends the block, and is noted.

        Raises:
            FileError, SettingError: The part cannot be read, and is requested.
        """
        try:
            yield
        except (FileError, SettingError) as error:
            if self.wants(part):
                raise
            self.left_out.setdefault(part, str(error))

    def read(self, part: str, function: Callable[[], _T]) -> _T | None:
        """Call a function that reads a part; None where that is left out, see `reading`."""
        with self.reading(part):
            return function()
        return None


def index_of_parts(
    make: Callable[[RequestedParts], DrivingIndex],
    sources: Iterable[Path | str],
    key: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> Path:
    """Get the folder of an index that leaves out what cannot be read and is not requested, see `cached_index`.

    Args:
        make: Makes the index.
        sources: The files that it is made of. Those that are not there are left to ``make``.
        key: What else it depends on: anything that JSON holds.
        settings: The settings of the provider.

    Raises:
        FileError, SettingError: What is requested cannot be read.
    """

    def made() -> DrivingIndex:
        parts = RequestedParts(settings)
        index = make(parts)
        notes = {_LEFT_OUT: parts.left_out} if parts.left_out else {}
        return attrs.evolve(index, origin={**index.origin, **notes})

    there = [path for path in map(Path, sources) if path.exists()]
    folder = cached_index(made, there, key, settings.get("index_cache"))
    requested = RequestedParts(settings)
    if any(map(requested.wants, DrivingIndex.open(folder).origin.get(_LEFT_OUT, ()))):
        make(requested)
    return folder
