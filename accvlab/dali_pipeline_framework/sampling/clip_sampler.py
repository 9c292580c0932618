# SPDX-License-Identifier: Apache-2.0
"""Clips of sequences, in any order, frame by frame or as a whole."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal

import numpy as np

from ..checks import choice, flag, whole_number
from ..draws.keyed_draws import digest
from ..errors import SettingError
from .arithmetic.last_batch import LastBatch
from .clips.clips import Clips
from .planned_sampler import PlannedSampler
from .plans.tracks import ClipSequenceUnits, ClipUnits
from .random_access_sampler import Description
from .weighted_sampler import Weights, units_order


class ClipSampler(PlannedSampler):
    """Each clip of `Clips` once per epoch (or drawn by weight).

    ``deliver`` says what a slot gets:

    - ``"frames"``: a clip is played frame by frame, in as many batches as it has frames;
    - ``"clips"``: a clip is one sample, for a `ClipDataProvider`, which loads the frames of the clip that
      starts at the sample's index. With ``step < sequence_length`` the clips overlap: a queue.

    ``arrange`` says which clips follow each other:

    - ``"shuffled"``: any; each epoch in an order of its own (``shuffle=False``: in the order of the data set);
    - ``"streamed"``: a slot plays the clips of a sequence in their order, then those of another sequence; the
      sequences are dealt to the slots as by `StreamingSequenceSampler`.

    Example::

        >>> clips = Clips([5, 4], sequence_length=2, step=2)
        >>> sampler = ClipSampler(clips, 2, shuffle=False)
        >>> [sampler.get_next_batch_indices() for _ in range(sampler.num_batches(epoch=0))]
        [[0, 2], [1, 3], [5, 7], [6, 8]]
    """

    def __init__(
        self,
        clips: Clips,
        total_batch_size: int | None = None,
        *,
        deliver: Literal["frames", "clips"] = "frames",
        arrange: Literal["shuffled", "streamed"] = "shuffled",
        seed: int = 0,
        shuffle: bool = True,
        cut_sequences: bool = False,
        weights: Weights | None = None,
        num_per_epoch: int | None = None,
        last_batch: LastBatch | None = None,
    ) -> None:
        """Create the sampler.

        Args:
            clips: The clips.
            total_batch_size: Number of slots, all shards together. None: set later, by the loader.
            deliver: ``"frames"`` or ``"clips"``.
            arrange: ``"shuffled"`` or ``"streamed"``.
            seed: Seed of the orders and of the clips' jitter, at least 0.
            shuffle: Whether the order differs between epochs; with weights it always does.
            cut_sequences: With ``"streamed"``, whether a sequence may go on in another slot, between two of its
                clips, to make the slots equally long.
            weights: One per clip, or with ``"streamed"`` one per sequence that has a clip, to draw them by weight.
            num_per_epoch: With weights, number of clips or sequences drawn per epoch; None for as many as there
                are.
            last_batch: What becomes of clips that do not fill the last batches; None for ``"drop"``, with
                ``"streamed"`` for ``"pad"``.

        Raises:
            SettingError: An argument is out of its range.
        """
        choice(deliver, "deliver", ("frames", "clips"))
        choice(arrange, "arrange", ("shuffled", "streamed"))
        if not isinstance(clips, Clips):
            raise SettingError(f"`clips` must be of the class Clips, got {type(clips).__name__}.")
        self.is_streamed = arrange == "streamed"
        self.cuts = flag(cut_sequences, "cut_sequences")
        if self.cuts and not self.is_streamed:
            raise SettingError("`cut_sequences` goes with arrange='streamed', got arrange='shuffled'.")
        if last_batch is None:
            last_batch = "pad" if self.is_streamed else "drop"
        super().__init__(total_batch_size, last_batch)
        self.clips = clips
        self._num_samples = clips.num_frames
        self.seed = whole_number(seed, "seed", at_least=0)
        self.shuffles = flag(shuffle, "shuffle")
        self._deliver = deliver
        unit_table = ClipSequenceUnits if self.is_streamed else ClipUnits
        self.unit_table = unit_table(clips, as_one=deliver == "clips")
        self.order = units_order(self.unit_table.num_units, weights, num_per_epoch, self.seed, self.shuffles)
        self._weights_digest = None if weights is None else digest(np.asarray(weights, dtype=np.float64))

    def check_provider(self, provider: Any) -> None:
        """Raise a `SettingError` where the provider delivers clips, and others than this sampler chooses."""
        clips = getattr(provider, "clips", None)
        if not isinstance(clips, Clips):
            return
        if self._deliver == "frames":
            raise SettingError(
                f"{type(provider).__name__} delivers a clip as one sample, but the ClipSampler plays clips frame "
                f"by frame (deliver='frames'). Pass deliver='clips', or use the provider of the frames."
            )
        own, other = _window(self.clips), _window(clips)
        if own != other:
            differing = ", ".join(
                f"{name}: {other[name]!r} and {own[name]!r}" for name in own if other[name] != own[name]
            )
            raise SettingError(
                f"{type(provider).__name__} and the ClipSampler must have the same clips. In provider and sampler "
                f"differ {differing}. Give both the same Clips object."
            )

    def _exact_settings(self) -> tuple[Hashable, ...]:
        return (*super()._exact_settings(), self.clips)

    def describe(self) -> Description:
        """What the order depends on."""
        return {
            **super().describe(),
            **{f"clips.{name}": value for name, value in self.clips.describe().items()},
            "deliver": self._deliver,
            "arrange": "streamed" if self.is_streamed else "shuffled",
            "weights": self._weights_digest,
            "num_per_epoch": self.order.num_positions,
            "seed": self.seed,
            "shuffle": self.shuffles,
            "cut_sequences": self.cuts,
        }


def _window(clips: Clips) -> Description:
    """What decides which frames the clip has that starts at a given frame."""
    of_starts = ("step", "step_interval", "jitter", "num_clips")
    return {name: value for name, value in clips.describe().items() if name not in of_starts}
