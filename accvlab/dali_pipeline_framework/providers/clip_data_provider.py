# SPDX-License-Identifier: Apache-2.0
"""A data set of clips, made of a data set of frames."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from nvidia.dali import types

from ..errors import SettingError
from ..sample_data import Name, SampleDataGroup
from ..sampling.clips.clips import Clips
from .data_provider import DataProvider
from .data_set_checks import check_number_of_samples
from .sample_loading import SampleLoader


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

    A frame that a clip repeats is loaded once; its places in the clip share their arrays.
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
        """Load the clip that starts at a frame.

        What the provider raises for a frame is passed on with the index of the frame, as
        ``sample_index_in_data_set`` and as a note.

        Raises:
            SettingError: There is no such frame.
        """
        first_frame = operator.index(sample_index)
        frames, is_padding = self._clips.frames(np.array([first_frame]))
        loaded: dict[int, tuple[Any, ...]] = {}
        flat: list[Any] = []
        for position, frame in enumerate(frames[0].tolist()):
            if frame not in loaded:
                loaded[frame] = self._load(frame, position, first_frame)
            flat += loaded[frame]
        if self._has_padding_field:
            flat.append(is_padding[0])
        clip = self.sample_data_structure
        clip.set_data(flat)
        return clip

    def _load(self, frame: int, position: int, first_frame: int) -> tuple[Any, ...]:
        try:
            return self._loader.load(frame)
        except Exception as error:
            if hasattr(error, "add_note"):  # Python >= 3.11
                error.add_note(f"which is frame {position} of the clip that starts at sample {first_frame}")
            raise
