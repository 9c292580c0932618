# SPDX-License-Identifier: Apache-2.0
"""Sliding windows of frames, as StreamPETR trains on without streaming."""

from __future__ import annotations

import random
from typing import Any

from accvlab.dali_pipeline_framework import DataProvider, SampleDataGroup
from accvlab.dali_pipeline_framework.checks import index_in, whole_number

from ..datasets import DrivingProvider

FRAMES = "frames"
"""Name of the array of the frames of a window."""


class QueueProvider(DataProvider):
    """Sample ``i`` is the window of frames that ends at frame ``i`` of a `DrivingProvider`, as in StreamPETR.

    A window has ``length`` of the last ``length + num_random_frames`` frames: always the last one, and the others
    without ``num_random_frames`` that are chosen at random. Windows go over the borders of scenes; ``is_first`` of
    a frame says whether its scene differs from that of the frame before. Before the first frame of the data set,
    this one is repeated.

    The choice for window ``i`` is that of Python's generator with the seed ``seed + i``, in each epoch the same.
    """

    def __init__(
        self, provider: DrivingProvider, length: int, *, num_random_frames: int = 0, seed: int = 0
    ) -> None:
        """Wrap a provider.

        Args:
            provider: The frames.
            length: Number of frames of a window, ``queue_length``.
            num_random_frames: How many frames are left out of it at random, ``random_length``.
            seed: Seed of the choice.

        Raises:
            SettingError: An argument is out of its range.
        """
        self._provider = provider
        self._length = whole_number(length, "length", at_least=1)
        self._num_random = whole_number(num_random_frames, "num_random_frames", at_least=0)
        self._seed = whole_number(seed, "seed", at_least=0)

    @property
    def provider(self) -> DrivingProvider:
        """The frames."""
        return self._provider

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of a window: an array of frames."""
        blueprint = SampleDataGroup()
        blueprint.add_data_group_field_array(FRAMES, self._provider.sample_data_structure, self._length)
        return blueprint

    def get_number_of_samples(self) -> int:
        """Get the number of frames: a window ends at each of them."""
        return self._provider.get_number_of_samples()

    def frames_of(self, sample_index: int) -> list[int]:
        """Numbers of the frames of a window, ``length`` of them."""
        last = index_in(sample_index, "sample_index", self.get_number_of_samples())
        before = list(range(last - self._length - self._num_random + 1, last))
        random.Random(self._seed + last).shuffle(before)
        return [max(0, frame) for frame in [*sorted(before[self._num_random :]), last]]

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Load a window; each frame once, also where it is repeated."""
        window = self.sample_data_structure
        loaded: dict[int, SampleDataGroup] = {}
        scene_before: Any = None
        for position, frame in enumerate(self.frames_of(sample_index)):
            if frame not in loaded:
                loaded[frame] = self._provider.get_data(frame)
            sample = loaded[frame].get_copy()
            scene = str(sample["scene"])
            sample["is_first"] = scene != scene_before
            scene_before = scene
            window[FRAMES][position] = sample
        return window

    def describe_sample(self, sample_index: int) -> str:
        """Say where the frames of a window come from."""
        return ", ".join(self._provider.describe_sample(frame) for frame in self.frames_of(sample_index))
