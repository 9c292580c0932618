# SPDX-License-Identifier: Apache-2.0
"""What a unit plays: one sample, the frames of a sequence, the frames of a clip, the clips of a sequence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.inputs.clips import Clips
from accvlab.dali_pipeline_framework.inputs.plans.planned_batch import BoolArray, Int64Array


@attrs.frozen(eq=False)
class Played:
    """What units play at given offsets, each field ``(n,)``.

    Attributes:
        indices: int64, sample indices in the data set.
        sequence: int64, sequence or clip, -1 where there is none.
        frame: int64, position in the sequence or clip, -1 where there is none.
        is_padding: bool, whether the sample repeats another one to fill up a clip.
        is_first: bool, whether something begins with the sample inside of what the unit plays.
        is_last: bool, whether something ends with it.
    """

    indices: Int64Array
    sequence: Int64Array
    frame: Int64Array
    is_padding: BoolArray
    is_first: BoolArray
    is_last: BoolArray


def _none(count: int) -> BoolArray:
    return np.zeros(count, np.bool_)


class Tracks(ABC):
    """Numbered units, each of which plays one or more samples.

    Attributes:
        num_units: How many units there are.
        uniform_length: Number of samples that each unit plays, or None where it differs.
        grain: A unit may be cut into segments at multiples of so many samples.
        num_sequences: How many numbers of sequences (or clips) there are, 0 where there are none.
    """

    num_units: int
    uniform_length: int | None
    grain: int = 1
    num_sequences: int = 0

    @abstractmethod
    def lengths(self, units: Int64Array) -> Int64Array:
        """Number of samples that each of ``(n,)`` units plays."""

    @abstractmethod
    def play(self, units: Int64Array, offsets: Int64Array, epoch_key: int) -> Played:
        """Get what ``(n,)`` units play at ``(n,)`` offsets, each below the unit's length.

        Args:
            units: The units.
            offsets: Position of the wanted sample in what the unit plays, from 0.
            epoch_key: Key of what is random within a unit and differs between epochs.
        """


class SampleTracks(Tracks):
    """Each unit is one sample of the data set."""

    uniform_length = 1

    def __init__(self, num_samples: int) -> None:
        """Set up for the samples ``0 .. num_samples - 1``."""
        self.num_units = num_samples

    def lengths(self, units: Int64Array) -> Int64Array:
        """1 for each."""
        return np.ones(len(units), np.int64)

    def play(self, units: Int64Array, offsets: Int64Array, epoch_key: int) -> Played:
        """The samples themselves."""
        unknown = np.full(len(units), -1, np.int64)
        none = _none(len(units))
        return Played(units, unknown, unknown, none, none, none)


class SequenceTracks(Tracks):
    """Each unit is a sequence and plays its frames from the first to the last."""

    uniform_length = None

    def __init__(self, sequence_lengths: Int64Array) -> None:
        """Set up for sequences whose frames lie one after the other in the data set."""
        self._lengths = sequence_lengths
        self._first_frames = np.cumsum(sequence_lengths) - sequence_lengths
        self.num_units = self.num_sequences = len(sequence_lengths)

    def lengths(self, units: Int64Array) -> Int64Array:
        """Number of frames."""
        return self._lengths[units]

    def play(self, units: Int64Array, offsets: Int64Array, epoch_key: int) -> Played:
        """The frames."""
        none = _none(len(units))
        return Played(self._first_frames[units] + offsets, units, offsets, none, none, none)


class ClipTracks(Tracks):
    """Each unit is a clip and plays its frames, or with ``as_one`` stands for itself with its first frame."""

    def __init__(self, clips: Clips, as_one: bool) -> None:
        """Set up for these clips."""
        self._clips = clips
        self._as_one = as_one
        self.num_units = self.num_sequences = clips.num_clips
        self.uniform_length = self._length = 1 if as_one else clips.sequence_length

    def lengths(self, units: Int64Array) -> Int64Array:
        """Number of frames, or 1."""
        return np.full(len(units), self._length, np.int64)

    def play(self, units: Int64Array, offsets: Int64Array, epoch_key: int) -> Played:
        """The frames of the clip, or its first frame."""
        return _play_clips(self._clips, self._as_one, units, offsets, epoch_key)


class ClipSequenceTracks(Tracks):
    """Each unit is a sequence and plays its clips one after the other."""

    uniform_length = None

    def __init__(self, clips: Clips, as_one: bool) -> None:
        """Set up for these clips; with ``as_one`` a clip is one sample: its first frame."""
        self._clips = clips
        self._as_one = as_one
        self.grain = self._per_clip = 1 if as_one else clips.sequence_length
        self._counts = clips.clips_per_sequence
        self._first_clips = np.cumsum(self._counts) - self._counts
        self._sequences = np.flatnonzero(self._counts)  # the others have no clip, and nothing to play
        self.num_units = len(self._sequences)
        self.num_sequences = clips.num_clips

    def lengths(self, units: Int64Array) -> Int64Array:
        """Number of samples of all clips of the sequence."""
        return self._counts[self._sequences[units]] * self._per_clip

    def play(self, units: Int64Array, offsets: Int64Array, epoch_key: int) -> Played:
        """The samples of the clips."""
        number, offset = np.divmod(offsets, self._per_clip)
        clips = self._first_clips[self._sequences[units]] + number
        return _play_clips(self._clips, self._as_one, clips, offset, epoch_key)


def _play_clips(clips: Clips, as_one: bool, numbers: Int64Array, offsets: Int64Array, epoch_key: int) -> Played:
    first_frames = clips.first_frames(numbers, epoch_key)
    if as_one:
        none = _none(len(numbers))
        return Played(first_frames, numbers, offsets, none, none, none)
    frames, is_padding = clips.frames(first_frames)  # (n, L)
    rows = np.arange(len(numbers))
    is_first, is_last = offsets == 0, offsets == clips.sequence_length - 1
    return Played(frames[rows, offsets], numbers, offsets, is_padding[rows, offsets], is_first, is_last)


class JoinedTracks(Tracks):
    """The units of several tracks, numbered one after the other."""

    def __init__(self, tracks: Sequence[Tracks], sample_offsets: Sequence[int] | None) -> None:
        """Join tracks of several data sets, whose sample indices are shifted by these offsets, or of one (None).

        The sequences of several data sets are numbered one after the other.
        """
        self._tracks = list(tracks)
        self._sample_offsets = [0] * len(tracks) if sample_offsets is None else list(sample_offsets)
        counts = [0 if sample_offsets is None else each.num_sequences for each in tracks]
        self._first_sequences = [sum(counts[:number]) for number in range(len(counts))]
        self.num_sequences = sum(each.num_sequences for each in tracks)
        self.first_units = np.cumsum([0, *(each.num_units for each in tracks)])
        self.num_units = int(self.first_units[-1])
        lengths = {each.uniform_length for each in tracks}
        self.uniform_length = lengths.pop() if len(lengths) == 1 else None
        self.grain = tracks[0].grain

    def _split(self, units: Int64Array) -> list[tuple[int, Int64Array, Int64Array]]:
        owners = np.searchsorted(self.first_units, units, side="right") - 1
        parts = []
        for owner in np.unique(owners).tolist():
            slots = np.flatnonzero(owners == owner)
            parts.append((owner, slots, units[slots] - self.first_units[owner]))
        return parts

    def lengths(self, units: Int64Array) -> Int64Array:
        """Number of samples of each unit."""
        lengths = np.empty(len(units), np.int64)
        for owner, slots, own in self._split(units):
            lengths[slots] = self._tracks[owner].lengths(own)
        return lengths

    def play(self, units: Int64Array, offsets: Int64Array, epoch_key: int) -> Played:
        """What each unit plays in its own tracks."""
        indices, sequence, frame = (np.empty(len(units), np.int64) for _ in range(3))
        is_padding, is_first, is_last = (np.empty(len(units), np.bool_) for _ in range(3))
        for owner, slots, own in self._split(units):
            played = self._tracks[owner].play(own, offsets[slots], epoch_key)
            indices[slots] = played.indices + self._sample_offsets[owner]
            first = self._first_sequences[owner]
            sequence[slots] = np.where(played.sequence < 0, -1, played.sequence + first)
            frame[slots] = played.frame
            is_padding[slots] = played.is_padding
            is_first[slots] = played.is_first
            is_last[slots] = played.is_last
        return Played(indices, sequence, frame, is_padding, is_first, is_last)
