# SPDX-License-Identifier: Apache-2.0
"""Parts of a data set that are not requested may be missing or damaged.

An index has all that can be read, whatever is requested: it is made once. What cannot be read, and is not
requested, is left out, with a note; requested later, it is read again, which raises the error, or else replaces
the index.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs

from accvlab.dali_pipeline_framework.checks import bullets, did_you_mean, listed, setting_error, shown
from accvlab.dali_pipeline_framework.errors import FileError, SettingError

from .driving_fields import checked_names
from .driving_index import DrivingIndex, opened_index, states_of
from .index_checks import require_usable

_LEFT_OUT, _ONLY_SCENES = "left_out", "only_scenes"
_T = TypeVar("_T")

# Fields that need a part which is not called like them; boxes are there where the data set has them.
_NEEDED_BY: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "boxes": lambda given: given.get("boxes") is not False or bool(given.get("boxes_2d")),
    "can_bus": lambda given: bool(given.get("can_bus") or given.get("ego_status")),
    "lidar": lambda given: bool(given.get("lidar")) or given.get("reference") == "lidar",
    "sweeps": lambda given: bool(given.get("num_sweeps")),
}


def numbers_of_scenes(known: Sequence[str], names: Sequence[str] | None) -> tuple[int, ...]:
    """Numbers of the scenes that are requested; None for all.

    Raises:
        SettingError: Some are not known, or named several times; or it is no list, or an empty one.
    """
    if names is None:
        return tuple(range(len(known)))
    names = require_scenes(names)
    number_of, given, there = {name: number for number, name in enumerate(known)}, Counter(names), Counter(known)
    missing = [name for name in given if name not in there]
    if missing:
        raise SettingError(
            "`scenes` must be scenes of the data set, these are not:\n"
            + bullets(f"{shown(name)}.{did_you_mean(name, known)}" for name in missing)
            + f"\nThere are {len(known)}: {listed(known)}."
        )
    repeated = sorted(name for name, count in given.items() if count > 1)
    if repeated:
        raise SettingError(f"`scenes` may name a scene once only, got several times: {listed(repeated)}.")
    ambiguous = sorted(name for name in given if there[name] > 1)
    if ambiguous:
        raise SettingError(f"`scenes` names {listed(ambiguous)}, of which the data set has several.")
    return tuple(number_of[name] for name in names)


def require_scenes(names: object) -> tuple[str, ...]:
    """Get names of scenes as a tuple.

    Raises:
        SettingError: It is no list of names, or an empty one; see `checked_names`.
    """
    rule = "a list of names, or None for all"
    found = checked_names(names, "scenes", rule)
    if not found:
        raise setting_error("scenes", rule, names)
    return found


def requested_scenes(known: Sequence[str], settings: Mapping[str, Any]) -> list[str]:
    """Get the names that ``scenes`` requests, in the order of those that are known: others need not be read.

    Raises:
        SettingError: Some are not known, or named several times.
    """
    wanted = {known[number] for number in numbers_of_scenes(known, settings.get("scenes"))}
    return [name for name in known if name in wanted]


class _NoScenesError(SettingError):
    """A data set has no scene of a split."""


class _NotMadeError(Exception):
    """There is no index yet."""


@attrs.define(eq=False)
class RequestedParts:
    """Knows which parts are requested, and notes which others cannot be read.

    A part is a camera, ``cameras/NAME``, or has the name of a setting of `DrivingFields`, such as ``lidar``.

    Attributes:
        settings: The settings of the provider.
        left_out: The first error of each part that was left out.
        scenes: Names of the only scenes to read, where something is wrong with others; None for all scenes.
    """

    settings: Mapping[str, Any]
    left_out: dict[str, str] = attrs.field(factory=dict)
    scenes: frozenset[str] | None = None

    def of_scenes(self, known: Sequence[str]) -> list[int]:
        """Get the places of the scenes to read among all.

        Raises:
            SettingError: There are none, or ``scenes`` names others; see `numbers_of_scenes`.
        """
        names = [*dict.fromkeys(known)]  # also those of all frames
        if self.scenes is not None and self.settings.get("scenes") is not None:
            numbers_of_scenes(names, sorted(self.scenes))
        found = [place for place, name in enumerate(known) if self.scenes is None or name in self.scenes]
        if not found:
            raise _NoScenesError(f"None of the requested scenes is in the data set, which has {listed(names)}.")
        return found

    def wants(self, part: str) -> bool:
        """Whether a part is requested."""
        kind, _, name = part.partition("/")
        if kind == "cameras":
            cameras = self.settings.get("cameras")
            return cameras is None or name in cameras
        needed_by = _NEEDED_BY.get(kind)
        return bool(self.settings.get(kind)) if needed_by is None else needed_by(self.settings)

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
    *,
    of_split: Sequence[str] | None = None,
) -> DrivingIndex:
    """Open an index that leaves out what cannot be read and is not requested, see `cached_index`.

    An index has all scenes. If files are damaged, and scenes are named, it is made of these alone, in a folder of
    its own: the index of all, or of others, may be open elsewhere.

    Args:
        make: Makes the index.
        sources: The files that it is made of. Those that are not there are left to ``make``.
        key: What else it depends on: anything that JSON holds.
        settings: The settings of the provider.
        of_split: Names of the requested scenes in place of ``scenes``; the data set may lack some.

    Raises:
        FileError, SettingError: What is requested cannot be read, or used, see `require_usable`.
    """
    scenes: Any = settings.get("scenes") if of_split is None else of_split
    names = frozenset(map(str, scenes)) if scenes else None
    states, wants = states_of(path for path in map(Path, sources) if path.exists()), RequestedParts(settings).wants

    def index_of(only: frozenset[str] | None, *, is_made: bool) -> DrivingIndex:
        note = None if only is None else sorted(only)

        def make_it() -> DrivingIndex:
            if not is_made:
                raise _NotMadeError
            requested = RequestedParts(settings, scenes=only)
            index = make(requested)
            notes = {_LEFT_OUT: requested.left_out, _ONLY_SCENES: note}
            return attrs.evolve(index, origin={**index.origin, **{name: of for name, of in notes.items() if of}})

        def has_requested(index: DrivingIndex) -> bool:
            origin = index.origin
            return origin.get(_ONLY_SCENES) == note and not any(map(wants, origin.get(_LEFT_OUT, ())))

        whole_key = key if only is None else {**key, _ONLY_SCENES: note}
        return opened_index(make_it, states, whole_key, settings.get("index_cache"), is_current=has_requested)

    def found() -> DrivingIndex:
        # An index of the named scenes says that not all can be read, which takes long to find out.
        for only in (None,) if names is None else (None, names):
            with contextlib.suppress(_NotMadeError):
                return index_of(only, is_made=False)
        try:
            return index_of(None, is_made=True)
        except FileError as error:
            if names is None:
                raise
            try:
                return index_of(names, is_made=True)
            except _NoScenesError:
                raise error from None

    index = found()
    require_usable(index, wants, scenes)
    return index
