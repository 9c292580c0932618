# SPDX-License-Identifier: Apache-2.0
"""Where the clips of a data set start."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from .clip_windows import ClipWindows, Float64Array, Int64Array

_CLIPS_AT_A_TIME = 1 << 15  # bounds the size of temporary arrays


class ClipStarts(ABC):
    """Numbers the clips of all sequences, in the order of their first frames.

    Attributes:
        first_clips: First clip of each sequence, and the number of all clips; shape ``(S + 1,)``.
    """

    first_clips: Int64Array

    def sequence_of(self, clips: Int64Array) -> Int64Array:
        """Get the ``(n,)`` sequences of ``(n,)`` clips."""
        return self.first_clips.searchsorted(clips, side="right") - 1

    @abstractmethod
    def first_frames(self, clips: Int64Array, sequences: Int64Array) -> Int64Array:
        """Get the ``(n,)`` sample indices where ``(n,)`` clips of ``(n,)`` sequences start."""

    @abstractmethod
    def room(self, clips: Int64Array, sequences: Int64Array, first_frames: Int64Array) -> Int64Array:
        """Get by how many frames each clip can start later and still be complete; 0 for incomplete ones."""


class RegularStarts(ClipStarts):
    """A clip every ``step`` frames, with ``stride`` frames from one of its frames to the next."""

    def __init__(
        self, edges: Int64Array, sequence_length: int, stride: int, step: int, keeps_incomplete: bool
    ) -> None:
        """Count the clips.

        Args:
            edges: First frame of each sequence, and the number of all frames; shape ``(S + 1,)``.
            sequence_length: Frames per clip.
            stride: Frames from one frame of a clip to the next.
            step: Frames from the start of a clip to the start of the next.
            keeps_incomplete: See `ListedStarts`.
        """
        self._edges = edges
        self._step = step
        self._span = _span(sequence_length, stride, edges)
        last = np.diff(edges) - 1  # (S,), last frame as counted in its sequence
        if keeps_incomplete:
            # Frame j of clip k is frame j + later of clip k - earlier, if that clip and that frame exist;
            # otherwise no earlier clip has it. So an incomplete clip of n existing frames has a frame of its own
            # if k < earlier, or n + later > sequence_length.
            common = math.gcd(step, stride)
            earlier, later = stride // common, step // common
            reach = _span(max(sequence_length - later, 0) + 1, stride, edges)
            counts = np.maximum((last - reach) // step + 1, earlier)
            counts = np.minimum(counts, last // step + 1)
        else:
            counts = np.maximum((last - self._span) // step + 1, 0)
        self.first_clips = np.concatenate(([0], np.cumsum(counts)))

    def first_frames(self, clips: Int64Array, sequences: Int64Array) -> Int64Array:
        """Get where clips start."""
        first_frames: Int64Array = self._edges[sequences] + (clips - self.first_clips[sequences]) * self._step
        return first_frames

    def room(self, clips: Int64Array, sequences: Int64Array, first_frames: Int64Array) -> Int64Array:
        """Get by how much clips can start later."""
        ends = self._edges[sequences + 1]
        room: Int64Array = np.maximum(ends - 1 - self._span - first_frames, 0)
        return room


class ListedStarts(ClipStarts):
    """Clips that start at some of given frames."""

    def __init__(
        self,
        edges: Int64Array,
        candidates: Int64Array,
        windows: ClipWindows,
        sequence_length: int,
        keeps_incomplete: bool,
        needs_room: bool,
    ) -> None:
        """Choose the frames at which clips start.

        Args:
            edges: First frame of each sequence, and the number ``N`` of all frames; shape ``(S + 1,)``.
            candidates: Frames at which clips can start, ascending.
            windows: Frames of a clip.
            sequence_length: Frames per clip.
            keeps_incomplete: Whether there are incomplete clips, where they have a frame of their own.
            needs_room: Whether `room` is asked for.
        """
        if keeps_incomplete:
            is_clip = _has_own_frames_or_all(candidates, windows, sequence_length, int(edges[-1]))
        else:
            is_clip = _is_complete(candidates, windows, sequence_length)
        self._first_frames = candidates[is_clip]
        self.first_clips = self._first_frames.searchsorted(edges)
        self._room = _room(self._first_frames, edges, windows, sequence_length) if needs_room else None

    def first_frames(self, clips: Int64Array, sequences: Int64Array) -> Int64Array:
        """Get where clips start."""
        return self._first_frames[clips]

    def room(self, clips: Int64Array, sequences: Int64Array, first_frames: Int64Array) -> Int64Array:
        """Get by how much clips can start later; 0 where ``needs_room`` was False."""
        return np.zeros(len(clips), np.int64) if self._room is None else self._room[clips]


def starts_every(step: int, edges: Int64Array) -> Int64Array:
    """List every ``step``-th frame of each sequence, from its first one on; ascending, int64."""
    position = np.arange(edges[-1]) - np.repeat(edges[:-1], np.diff(edges))
    return np.flatnonzero(position % step == 0)


def starts_in_time(step_interval: float, times: Float64Array, rounding: float, edges: Int64Array) -> Int64Array:
    """List the first frame at or after each multiple of ``step_interval``, in each sequence.

    Args:
        step_interval: Distance of the points in time.
        times: Time of each frame since the start of its sequence, shape ``(N,)``.
        rounding: By how much a comparison of times may be off.
        edges: First frame of each sequence, and ``N``; shape ``(S + 1,)``.

    Returns:
        Sample indices, ascending, each once; int64.
    """
    interval = np.floor_divide(times + rounding, step_interval)  # (N,), changes where a multiple was passed
    is_start = np.empty(len(times), np.bool_)
    is_start[1:] = interval[1:] != interval[:-1]
    is_start[edges[:-1]] = True
    return np.flatnonzero(is_start)


def _span(sequence_length: int, stride: int, edges: Int64Array) -> int:
    # Distance from the first to the last frame of a clip, limited so that it cannot overflow int64.
    return min((sequence_length - 1) * stride, int(edges[-1]))


def _chunks(array: Int64Array) -> list[slice]:
    return [slice(start, start + _CLIPS_AT_A_TIME) for start in range(0, len(array), _CLIPS_AT_A_TIME)]


def _is_complete(first_frames: Int64Array, windows: ClipWindows, sequence_length: int) -> npt.NDArray[np.bool_]:
    num_existing = [windows.frames(first_frames[chunk], None)[1] for chunk in _chunks(first_frames)]
    is_complete: npt.NDArray[np.bool_] = np.concatenate([np.zeros(0, np.int64), *num_existing]) == sequence_length
    return is_complete


def _has_own_frames_or_all(
    first_frames: Int64Array, windows: ClipWindows, sequence_length: int, num_frames: int
) -> npt.NDArray[np.bool_]:
    is_clip = np.empty(len(first_frames), np.bool_)
    first_owner = np.full(num_frames, len(first_frames))  # per frame: the first clip that has it
    for chunk in _chunks(first_frames):
        frames, num_existing = windows.frames(first_frames[chunk], None)
        exists = np.arange(sequence_length) < num_existing[:, None]
        frames = np.where(exists, frames, frames[:, :1])  # numbers of missing frames can be out of range
        clips = np.broadcast_to(np.arange(chunk.start, chunk.start + len(frames))[:, None], frames.shape)
        np.minimum.at(first_owner, frames, clips)
        is_clip[chunk] = (first_owner[frames] == clips).any(axis=1) | (num_existing == sequence_length)
    return is_clip


def _room(first_frames: Int64Array, edges: Int64Array, windows: ClipWindows, sequence_length: int) -> Int64Array:
    # A clip can start at each later frame of its sequence, up to the first at which no complete clip starts.
    is_complete = _is_complete(np.arange(edges[-1]), windows, sequence_length)
    stops = np.append(np.flatnonzero(~is_complete), edges[-1])
    ends = np.minimum(
        stops[stops.searchsorted(first_frames)], edges[edges.searchsorted(first_frames, side="right")]
    )
    room: Int64Array = np.maximum(ends - 1 - first_frames, 0)
    return room
