# SPDX-License-Identifier: Apache-2.0
"""The order of the frames of an info pickle, and its scenes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.errors import FileError

from ..driving.array_types import Bool, Float64, Int64

# A pause of more than this many usual intervals ends a scene, where nothing else says where scenes end.
_PAUSE = 5.0
# No vehicle is that fast: such neighbours are not of one scene.
_FASTEST_M_PER_S = 100.0
GAPS = "gaps"
"""In the origin of an index: by scene, where frames are missing, by what the others say."""


@attrs.frozen(eq=False, kw_only=True)
class StoredFrames:
    """What the n frames of a pickle say of their order, as they are stored.

    Attributes:
        path: The pickle.
        token: Name of each.
        time: ``(n,)``, seconds.
        position: Of the vehicle in the world, ``(n, 3)``.
        scene: Name of the scene of each; None where it is not known.
        number: Place of each in its scene, ``(n,)``; NaN where it is not known.
        previous: Token of the frame before each, empty for none; or None.
        has_sweeps: Whether lidar records before each are known, ``(n,)``.
    """

    path: str
    token: Sequence[str]
    time: Float64
    position: Float64
    scene: Sequence[str | None]
    number: Float64
    previous: Sequence[str | None]
    has_sweeps: Bool

    def pair(self, one: int, two: int) -> str:
        """Name two frames, for errors."""
        return " and ".join(f"{self.token[each]!r} (time {self.time[each]:.6f})" for each in (one, two))


@attrs.frozen
class Sequences:
    """Frames, scene by scene, by time.

    Attributes:
        kind: What they are ordered by.
        order: Numbers of the frames as they are stored.
        names: Name of each scene.
        lengths: Number of frames of each scene.
        rule: By what scenes were found.
        gaps: By scene, where its first gap is.
    """

    kind: str
    order: list[int]
    names: list[str]
    lengths: list[int]
    rule: str
    gaps: dict[str, str]

    def taken(self, scenes: Sequence[int]) -> Sequences:
        """Some of the scenes."""
        ends = [*itertools.accumulate(self.lengths)]
        order = [
            number for scene in scenes for number in self.order[ends[scene] - self.lengths[scene] : ends[scene]]
        ]
        names, lengths = [self.names[scene] for scene in scenes], [self.lengths[scene] for scene in scenes]
        gaps = {name: self.gaps[name] for name in names if name in self.gaps}
        return Sequences(self.kind, order, names, lengths, self.rule, gaps)


def sequences_of(frames: StoredFrames, order: str) -> Sequences:
    """Order frames and find the scenes.

    Args:
        frames: The frames.
        order: ``"time"``: all by time; ``"stored"``: as they are; ``"scene"``: scenes by their first frame, frames
            by time.

    Raises:
        FileError: A frame is there twice, scenes are interleaved, or times go backwards in one.
    """
    seen: dict[str, int] = {}
    for number, token in enumerate(frames.token):
        if seen.setdefault(token, number) != number:
            raise FileError(
                f"{frames.path!r}: the frames {seen[token]} and {number} have the same token {token!r}. Each "
                f"frame may be there once: remove one."
            )
    numbers = list(range(len(seen)))
    if order != "stored":
        numbers.sort(key=frames.time.tolist().__getitem__)
    previous = np.array([seen.get(token or "", -1) for token in frames.previous])
    rule, keys = _scene_keys(frames, numbers, previous)
    pairs = list(zip(keys, numbers, strict=True))
    if order == "scene":
        rank = {key: place for place, key in enumerate(dict.fromkeys(keys))}
        pairs.sort(key=lambda pair: rank[pair[0]])
    groups = itertools.groupby(pairs, key=lambda pair: pair[0])
    scenes = [(key, [number for _, number in group]) for key, group in groups]
    _check_interleaved(frames, scenes)
    pairs_in_scenes = [pair for _, of_scene in scenes for pair in itertools.pairwise(of_scene)]
    _check_times(frames, previous, pairs_in_scenes, checks_speed=rule.startswith("a scene begins"))
    lengths = [len(of_scene) for _, of_scene in scenes]
    gaps = _gaps(frames, previous, dict(scenes))
    return Sequences(order, [number for _, number in pairs], [key for key, _ in scenes], lengths, rule, gaps)


def _usual_step(steps: Float64) -> float:
    """The most frequent step by which places in a scene grow, of several the least; 1 where none is known."""
    values, counts = np.unique(steps[np.isfinite(steps)], return_counts=True)
    return float(values[np.argmax(counts)]) if len(values) else 1.0


def _gaps(frames: StoredFrames, previous: Int64, scenes: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """Describe, by scene, the first place at which its frames say that others are missing.

    The usual step is that of all scenes; a scene of three frames or more has its own.
    """
    knows_previous, gaps = None not in frames.previous, dict[str, str]()
    steps = [np.diff(frames.number[numbers]) for numbers in scenes.values()]
    usual_of_all = _usual_step(np.concatenate(steps))
    for (name, numbers), own in zip(scenes.items(), steps, strict=True):
        is_known = np.isfinite(own)
        usual = _usual_step(own) if is_known.sum() > 1 else usual_of_all
        is_apart = previous[numbers[1:]] != numbers[:-1]
        is_gap = np.where(is_known, own != usual, knows_previous & is_apart)
        if is_gap.any():
            place = int(np.argmax(is_gap))
            one, two = (frames.token[number] for number in numbers[place : place + 2])
            gaps[name] = f"between its frames {one!r} and {two!r}"
    return gaps


def _scene_keys(frames: StoredFrames, numbers: Sequence[int], previous: Int64) -> tuple[str, list[str]]:
    """By what scenes are found, and the scene of each frame in order."""
    scenes = [scene for number in numbers if (scene := frames.scene[number]) is not None]
    if len(scenes) == len(numbers):
        return "the scene token of each frame", scenes
    if None not in frames.previous:
        return "the token of the frame before each", _of_links(frames, numbers, previous)
    rule, is_first = _scene_starts(frames, numbers)
    keys: list[str] = []
    for number, starts in zip(numbers, is_first, strict=True):
        keys.append(frames.token[number] if starts or not keys else keys[-1])
    return rule, keys


def _scene_starts(frames: StoredFrames, numbers: Sequence[int]) -> tuple[str, list[bool]]:
    """By what scenes are found, and whether one begins with each frame."""
    known = frames.number[numbers]
    if np.isfinite(known).all():
        is_first = np.append(True, np.diff(known) <= 0).tolist()
        return "a scene begins where the number of the frame in its scene does not grow", is_first
    steps = np.diff(frames.time[numbers])
    usual = float(np.median(steps[steps > 0])) if (steps > 0).any() else 0.0
    is_pause = np.append(True, np.abs(steps) > _PAUSE * usual)
    pause = f"after a pause of more than {_PAUSE * usual:g} s"
    if frames.has_sweeps.any():
        is_first = (is_pause | ~frames.has_sweeps[numbers]).tolist()
        return f"a scene begins where a frame has no sweeps before it, or {pause}", is_first
    return f"a scene begins {pause}", is_pause.tolist()


def _of_links(frames: StoredFrames, numbers: Sequence[int], previous: Int64) -> list[str]:
    """Token of the first frame that leads to each."""
    first = np.where(previous < 0, np.arange(len(previous)), previous)
    for _ in range(len(first).bit_length()):  # each time, twice as far back
        first = first[first]
    return [frames.token[number] for number in first[numbers]]


def _check_interleaved(frames: StoredFrames, scenes: Sequence[tuple[str, list[int]]]) -> None:
    first_of = {scenes[0][0]: scenes[0][1][0]}
    for (scene_before, numbers_before), (scene, numbers) in itertools.pairwise(scenes):
        before, again = numbers_before[-1], numbers[0]
        first = first_of.setdefault(scene, again)
        if first != again:
            raise FileError(
                f"{frames.path!r}: scenes are interleaved: the frame {frames.token[again]!r} (time "
                f"{frames.time[again]:.6f}) belongs to the scene {scene!r}, which began with "
                f"{frames.token[first]!r}, but follows {frames.token[before]!r} (time {frames.time[before]:.6f}) "
                f"of the scene {scene_before!r}. Models that go along sequences need the frames of a scene "
                f'together: `order="scene"` puts them together.'
            )


def _check_times(
    frames: StoredFrames, previous: Int64, pairs: Sequence[tuple[int, int]], *, checks_speed: bool
) -> None:
    """Refuse neighbours in scenes whose times, numbers, links or places contradict their order."""
    before, after = np.array(pairs, np.int64).reshape(-1, 2).T
    step_s = frames.time[after] - frames.time[before]
    distance_m = np.linalg.norm(frames.position[after] - frames.position[before], axis=-1)
    is_far = checks_speed & (distance_m > _FASTEST_M_PER_S * np.maximum(step_s, 0.1))
    is_back = frames.number[after] <= frames.number[before]
    is_wrong = (step_s <= 0) | is_back | (previous[before] == after) | is_far
    if not is_wrong.any():
        return
    place = int(np.argmax(is_wrong))
    one, two = int(before[place]), int(after[place])
    pair = frames.pair(one, two)
    if step_s[place] < 0:
        raise FileError(
            f"{frames.path!r}: times go backwards between the frames {pair} of one scene. "
            f'`order="time"` puts them in order of time.'
        )
    if step_s[place] == 0:
        rule = f"the frames {pair} of one scene have the same time"
        raise FileError(f"{frames.path!r}: {rule}. Correct or remove one.")
    if is_back[place] or previous[one] == two:
        what = "are linked the other way round (`prev`)"
        if is_back[place]:
            what = f"are the numbers {frames.number[one]:.0f} and {frames.number[two]:.0f} of their scene"
        raise FileError(
            f"{frames.path!r}: times go backwards: the frames {pair} {what}. Either is wrong: correct the times, "
            f"or the numbers and links."
        )
    raise FileError(
        f"{frames.path!r}: the vehicle is at places {distance_m[place]:.0f} m apart in the frames {pair}, which "
        f"follow each other: scenes are interleaved, or one begins there unnoticed. The pickle does not say to "
        f"which scene frames belong: add 'scene_token' to each, or store scenes one after the other and open it "
        f'with `order="stored"`.'
    )
