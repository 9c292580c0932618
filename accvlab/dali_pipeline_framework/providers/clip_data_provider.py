# SPDX-License-Identifier: Apache-2.0
"""A data set of clips, made of a data set of frames."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from nvidia.dali import types

from ..errors import SettingError
from ..sample_data import SampleDataGroup
from ..sample_data.names import Name
from ..sampling.plans.clips import BoolArray, Clips, Int64Array
from .data_provider import DataProvider, check_number_of_samples
from .sample_loading import SampleLoader, add_note

_MOST_DESCRIBED = 8


class ClipDataProvider(DataProvider):
    """Sample ``f`` is the clip that starts at frame ``f`` of another provider.

    So there are as many samples as frames, and a sampler that chooses the first frames of clips chooses the
    clips. With ``sequence_length=3`` and ``padding_name="is_padding"``::

        frame of the wrapped provider      clip
          image: UINT8                       frames
          pose: FLOAT                          [0], [1], [2]     in the order of play
                                                 image: UINT8
                                                 pose: FLOAT
                                             is_padding: BOOL    (3,)

    A frame that a clip repeats is loaded once, unless the wrapped provider loads batches; its places in the clip
    share their arrays. If it does, it is given the frames of all clips of a batch, position by position: those at
    one position of the clips are one batch to it.
    """

    def __init__(
        self,
        data_provider: DataProvider,
        clips: Clips,
        frames_name: Name = "frames",
        padding_name: Name | None = None,
    ) -> None:
        """Wrap a provider.

        Args:
            data_provider: The provider of the frames; all frames of a sequence lie one after the other.
            clips: Which frames belong together.
            frames_name: Name of the array of the frames.
            padding_name: Name of a field, ``(sequence_length,)`` bool, that says which frames are padding;
                there are some only with ``Clips(..., tail="mark")``. None for no such field.

        Raises:
            SettingError: The provider has another number of samples than the clips have frames.
            DuplicateFieldError: Both names are the same.
            NameTypeError: A name is neither ``str`` nor ``int``.
        """
        if not isinstance(clips, Clips):
            raise SettingError(f"`clips` must be Clips, got {type(clips).__name__}.")
        num_frames = check_number_of_samples(data_provider)
        if num_frames != clips.num_frames:
            raise SettingError(
                f"The sequences of `clips` must have as many frames as the data set has samples, got "
                f"{clips.num_frames} frames in {clips.num_sequences} sequence(s) for {num_frames} samples. The "
                f"lengths must be those of the sequences of this data set."
            )
        self._loader = SampleLoader(data_provider)
        self._clips = clips
        self._has_padding_field = padding_name is not None
        blueprint = SampleDataGroup()
        blueprint.add_data_group_field_array(
            frames_name, data_provider.sample_data_structure, clips.sequence_length
        )
        if padding_name is not None:
            blueprint.add_data_field(padding_name, types.DALIDataType.BOOL, ndim=1)
        self._blueprint = blueprint

    @property
    def data_provider(self) -> DataProvider:
        """The provider of the frames."""
        return self._loader.provider

    @property
    def clips(self) -> Clips:
        """Which frames belong together."""
        return self._clips

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of a clip: an array of blueprints of a frame, and the field for padding if there is one."""
        return self._blueprint.get_empty_like_self()

    def get_number_of_samples(self) -> int:
        """Get the number of frames: a clip can start at any of them."""
        return self._clips.num_frames

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Load the clip that starts at a frame; a `SettingError` where there is no such frame.

        What the provider raises for a frame is passed on with the index of the frame, as
        ``sample_index_in_data_set`` and as a note.
        """
        first_frame = operator.index(sample_index)
        frames, is_padding = self._clips.frames(np.array([first_frame]))
        loaded: dict[int, tuple[Any, ...]] = {}
        flat: list[Any] = []
        for position, frame in enumerate(frames[0].tolist()):
            if frame not in loaded:
                try:
                    loaded[frame] = self._loader.load(frame)
                except BaseException as error:
                    _name_clip(error, position, first_frame)
                    raise
            flat += loaded[frame]
        return self._clip(flat, is_padding[0])

    def describe_sample(self, sample_index: int) -> str:
        """Say where the frames of a clip come from, as the wrapped provider does; of many first and last."""
        frames, _ = self._clips.frames(np.array([operator.index(sample_index)]))
        describe = self._loader.provider.describe_sample
        told = [describe(frame) for frame in dict.fromkeys(frames[0].tolist())]
        return ", ".join(filter(None, told)) if len(told) <= _MOST_DESCRIBED else f"{told[0]} to {told[-1]}"

    @property
    def loads_batches(self) -> bool:
        """Whether the wrapped provider loads batches."""
        return bool(getattr(self._loader.provider, "loads_batches", False))

    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        """Load the clips of a batch that start at these frames, see the class and `get_data`."""
        if not self.loads_batches:
            yield from map(self.get_data, sample_indices)
            return
        first_frames = np.array([operator.index(index) for index in sample_indices], np.int64)
        frames, is_padding = self._clips.frames(first_frames)  # (n, L)
        columns = [
            self._load_column(frames[:, position], position, first_frames, slots)
            for position in range(self._clips.sequence_length)
        ]
        for parts, padding in zip(zip(*columns, strict=True), is_padding, strict=True):
            yield self._clip([value for part in parts for value in part], padding)

    def _load_column(
        self, frames: Int64Array, position: int, first_frames: Int64Array, slots: Sequence[int]
    ) -> list[tuple[Any, ...]]:
        try:
            return [*self._loader.load_batch(frames.tolist(), slots)]
        except BaseException as error:
            found = np.flatnonzero(frames == getattr(error, "sample_index_in_data_set", -1))
            if len(found):
                _name_clip(error, position, int(first_frames[found[0]]))
            raise

    def _clip(self, flat: list[Any], is_padding: BoolArray) -> SampleDataGroup:
        if self._has_padding_field:
            flat.append(is_padding)
        clip = self.sample_data_structure
        clip.set_data(flat)
        return clip


def _name_clip(error: BaseException, position: int, first_frame: int) -> None:
    add_note(error, f"which is frame {position} of the clip that starts at sample {first_frame}")
