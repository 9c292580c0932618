# SPDX-License-Identifier: Apache-2.0
"""In which order frames of a pickle are, and where scenes begin."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.errors import FileError

from .raw_info import Float64Array, RawInfo

# A pause of more than this many usual intervals ends a scene, where nothing else says where scenes end.
_PAUSE = 5.0
# No vehicle is that fast: such neighbours are not of one scene.
_FASTEST_M_PER_S = 100.0


@attrs.frozen
class Sequences:
    """Frames, scene by scene, by time.

    Attributes:
        kind: What they are ordered by.
        order: Numbers of the frames as they are stored.
        names: Name of each scene.
        lengths: Number of frames of each scene.
        rule: What told where scenes begin.
    """

    kind: str
    order: list[int]
    names: list[str]
    lengths: list[int]
    rule: str


def sequences_of(infos: Sequence[RawInfo], positions: Float64Array, order: str, path: str) -> Sequences:
    """Order frames and find the scenes.

    Args:
        infos: The frames, as they are stored.
        positions: Of the vehicle in the world, ``(num_frames, 3)``.
        order: ``"time"``: all by time; ``"stored"``: as they are; ``"scene"``: scenes by their first frame, frames
            by time.
        path: Of the pickle.

    Raises:
        FileError: A frame is there twice, scenes are interleaved, or times go backwards in one.
    """
    _check_tokens(infos, path)
    numbers = list(range(len(infos)))
    if order != "stored":
        numbers.sort(key=lambda number: infos[number].time)
    rule, keys = _scene_keys(infos, numbers)
    if order == "scene":
        rank: dict[str, int] = {}
        for key in keys:
            rank.setdefault(key, len(rank))
        pairs = sorted(zip(numbers, keys, strict=True), key=lambda pair: rank[pair[1]])
        numbers, keys = [number for number, _ in pairs], [key for _, key in pairs]
    starts = [place for place in range(len(numbers)) if not place or keys[place] != keys[place - 1]]
    ends = [*starts[1:], len(numbers)]
    _check_interleaved(infos, numbers, keys, starts, path)
    for start, end in zip(starts, ends, strict=True):
        _check_times(infos, numbers[start:end], positions, path, checks_speed=rule.startswith("a scene begins"))
    names = [keys[start] for start in starts]
    lengths = [end - start for start, end in zip(starts, ends, strict=True)]
    return Sequences(order, numbers, names, lengths, rule)


def _scene_keys(infos: Sequence[RawInfo], numbers: Sequence[int]) -> tuple[str, list[str]]:
    """What tells where scenes begin, and the scene of each frame in order."""
    ordered = [infos[number] for number in numbers]
    scenes = [info.scene for info in ordered if info.scene is not None]
    if len(scenes) == len(ordered):
        return "the scene token of each frame", scenes
    if all(info.previous is not None for info in ordered):
        return "the token of the frame before each", _of_links(infos, ordered)
    if all(info.number is not None for info in ordered):
        is_first = [
            not place or (info.number or 0) <= (ordered[place - 1].number or 0)
            for place, info in enumerate(ordered)
        ]
        return "a scene begins where the number of the frame in its scene does not grow", _of_starts(
            ordered, is_first
        )
    steps = np.diff([info.time for info in ordered])
    usual = float(np.median(steps[steps > 0])) if (steps > 0).any() else 0.0
    is_pause = [True, *((steps > _PAUSE * usual) | (steps < -_PAUSE * usual)).tolist()]
    pause = f"after a pause of more than {_PAUSE * usual:g} s"
    if any(info.sweeps for info in ordered):
        is_first = [not info.sweeps or is_late for info, is_late in zip(ordered, is_pause, strict=True)]
        return f"a scene begins where a frame has no sweeps before it, or {pause}", _of_starts(ordered, is_first)
    return f"a scene begins {pause}", _of_starts(ordered, is_pause)


def _of_links(infos: Sequence[RawInfo], ordered: Sequence[RawInfo]) -> list[str]:
    """Token of the first frame that leads to each."""
    by_token = {info.token: info for info in infos}
    first_of: dict[str, str] = {}
    for info in ordered:
        chain: dict[str, None] = {}
        one = info
        while one.token not in first_of:
            chain[one.token] = None
            before = by_token.get(one.previous or "")
            if before is None or before.token in chain:
                first_of[one.token] = one.token
                break
            one = before
        for token in chain:
            first_of[token] = first_of[one.token]
    return [first_of[info.token] for info in ordered]


def _of_starts(ordered: Sequence[RawInfo], is_first: Sequence[bool]) -> list[str]:
    keys: list[str] = []
    for info, starts in zip(ordered, is_first, strict=True):
        keys.append(info.token if starts or not keys else keys[-1])
    return keys


def _check_tokens(infos: Sequence[RawInfo], path: str) -> None:
    seen: dict[str, int] = {}
    for number, info in enumerate(infos):
        if seen.setdefault(info.token, number) != number:
            raise FileError(
                f"{path!r}: the frames {seen[info.token]} and {number} have the same token {info.token!r}. Each "
                f"frame may be there once: remove one."
            )


def _check_interleaved(
    infos: Sequence[RawInfo], numbers: Sequence[int], keys: Sequence[str], starts: Sequence[int], path: str
) -> None:
    seen: dict[str, int] = {}
    for start in starts:
        if keys[start] in seen:
            before, again = infos[numbers[start - 1]], infos[numbers[start]]
            first = infos[numbers[seen[keys[start]]]]
            raise FileError(
                f"{path!r}: scenes are interleaved: the frame {again.token!r} (time {again.time:.6f}) belongs to "
                f"the scene {keys[start]!r}, which began with {first.token!r}, but follows {before.token!r} (time "
                f"{before.time:.6f}) of the scene {keys[start - 1]!r}. Models that go along sequences need the "
                f'frames of a scene together: `order="scene"` puts them together.'
            )
        seen[keys[start]] = start


def _check_times(
    infos: Sequence[RawInfo], numbers: Sequence[int], positions: Float64Array, path: str, *, checks_speed: bool
) -> None:
    for one, two in itertools.pairwise(numbers):
        before, after = infos[one], infos[two]
        step_s = after.time - before.time
        pair = f"{before.token!r} (time {before.time:.6f}) and {after.token!r} (time {after.time:.6f})"
        if step_s < 0:
            raise FileError(
                f'{path!r}: times go backwards between the frames {pair} of one scene. `order="time"` puts them '
                f"in order of time."
            )
        if step_s == 0:
            raise FileError(f"{path!r}: the frames {pair} of one scene have the same time. Correct or remove one.")
        is_back = before.number is not None and after.number is not None and after.number <= before.number
        if is_back or (before.previous == after.token):
            what = (
                f"are the numbers {before.number} and {after.number} of their scene"
                if is_back
                else "are linked the other way round (`prev`)"
            )
            raise FileError(
                f"{path!r}: times go backwards: the frames {pair} {what}. Either is wrong: correct the times, or "
                f"the numbers and links."
            )
        distance_m = float(np.linalg.norm(positions[two] - positions[one]))
        if checks_speed and distance_m > _FASTEST_M_PER_S * max(step_s, 0.1):
            raise FileError(
                f"{path!r}: the vehicle is at places {distance_m:.0f} m apart in the frames {pair}, which follow "
                f"each other: scenes are interleaved, or one begins there unnoticed. The pickle does not say to "
                f"which scene frames belong: add 'scene_token' to each, or store scenes one after the other and "
                f'open it with `order="stored"`.'
            )
