# SPDX-License-Identifier: Apache-2.0
"""Orders of samples: scene by scene for evaluation, and those of published training code to compare runs.

The samplers of this package (`StreamingSequenceSampler` and others) have true epochs, and deliver every frame
once, and so has the `SceneSampler`. Those of the published code are endless, or repeat or lose samples; here they
are, with random access::

    split_lengths              seq_split_num of StreamPETR, SparseDrive, Sparse4D
    EndlessGroupSampler        InfiniteGroupEachSampleInBatchSampler; GroupInBatchSampler without skips and flips
    SkippingGroupSampler       GroupInBatchSampler
    ShuffledGroupSampler       DistributedGroupSampler
    ChunkSampler               DistributedSampler of the evaluation

Where they use PyTorch's generator, PyTorch is needed.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework import PlannedBatch, RandomAccessSampler, checks
from accvlab.dali_pipeline_framework.checks import valid
from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.extension import (
    Description,
    checked_lengths,
    digest,
)

from ..datasets.driving.array_types import Bool, Int64

_A_SIZE = valid(checks.whole_number_list, what="height and width", count=2, at_least=1)

Order = Literal["epochs", "published"]
"""True epochs, or the order of the published code."""

_Drawn: TypeAlias = dict[str, Any]
_PlayedBatch: TypeAlias = tuple[PlannedBatch, list[_Drawn | None]]  # with what was drawn for each slot

Lengths: TypeAlias = Sequence[int] | npt.NDArray[np.integer]
"""Numbers of samples."""


def split_lengths(sequence_lengths: Lengths, split: int | str, *, may_be_uneven: bool = False) -> list[int]:
    """Lengths of the pieces of sequences that are cut, as by ``seq_split_num``.

    A sequence of ``n`` frames is cut into pieces of ``ceil(n / split)``, the last one is what is left.

    Args:
        sequence_lengths: ``(S,)``, number of frames of each sequence.
        split: Number of pieces of each; ``"all"`` or -1: each frame is one.
        may_be_uneven: Whether a sequence may give fewer pieces, which the published code refuses.

    Raises:
        SettingError: ``split`` is none of these, or a sequence does not give so many pieces.
    """
    lengths = checked_lengths(sequence_lengths).tolist()
    if split in ("all", -1):
        return [1] * sum(lengths)
    if isinstance(split, str):
        checks.choice(split, "split", ("all",))
    num_pieces = checks.whole_number(split, "split", at_least=1)
    pieces: list[int] = []
    for number, length in enumerate(lengths):
        size = math.ceil(length / num_pieces)
        own = [min(size, length - first) for first in range(0, length, size)]
        if len(own) != num_pieces and not may_be_uneven:
            raise SettingError(
                f"`split` cuts each sequence into {num_pieces} pieces of ceil(frames / {num_pieces}), but "
                f"sequence {number} of {length} frames gives {len(own)}. Use another number, or 'all'."
            )
        pieces += own
    return pieces


def _permutation_source(seed: int) -> Callable[[int], Int64]:
    """Permutations of ``n`` numbers, one after the other, of PyTorch's generator.

    Raises:
        SettingError: PyTorch is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise SettingError(
            "This order is that of PyTorch's generator, and PyTorch is not installed: "
            'pip install "accvlab.dali_pipeline_framework[torch]". Other samplers of this package do not need it.'
        ) from error
    generator = torch.Generator().manual_seed(seed)
    return lambda count: np.asarray(torch.randperm(count, generator=generator).numpy(), np.int64)


class _GroupSampler(RandomAccessSampler):
    """Samplers of groups of consecutive samples."""

    has_slots = knows_sequences = True

    def __init__(
        self, lengths: Lengths, total_batch_size: int | None, seed: int = 0, name: str = "group_lengths"
    ) -> None:
        super().__init__(total_batch_size)
        self._lengths = checked_lengths(lengths, name)
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._seed = checks.whole_number(seed, "seed", at_least=0)
        self._require_groups()

    def with_settings(self, **settings: Any) -> Any:
        """Get a copy with other settings, see `RandomAccessSampler.with_settings`."""
        changed = super().with_settings(**settings)
        changed._require_groups()
        return changed

    def _require_groups(self) -> None:
        """Refuse what cannot be played; nothing here."""

    @property
    def num_samples(self) -> int:
        """Number of samples of all groups together."""
        return int(self._lengths.sum())

    def describe(self) -> Description:
        """What the order depends on."""
        return {
            "sampler": type(self).__name__,
            "num_groups": len(self._lengths),
            "num_samples": self.num_samples,
            "group_lengths": digest(self._lengths),
            "seed": self._seed,
        }


class _EndlessSampler(_GroupSampler):
    _played: Any = None  # how far the order is known, in this process

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_played": None}

    def _copy(self) -> Any:
        changed = super()._copy()
        changed._played = None
        return changed

    def num_batches(self, epoch: int) -> None:
        """None: the sampler is endless; give a loader ``steps_per_epoch``."""
        return None

    def _require_groups(self) -> None:
        if self.has_batch_size and len(self._lengths) < self.total_batch_size:
            raise SettingError(
                f"Each slot plays a group of its own: {len(self._lengths)} group(s) are too few for a batch of "
                f"{self.total_batch_size} (all shards together). Use a smaller batch, or cut sequences (`split`)."
            )

    def _require_batch(self, epoch: int, batch: int) -> None:
        if epoch != 0 or batch < 0:
            raise SettingError(
                f"The {type(self).__name__} is endless: it has the batches 0, 1, 2, ... of epoch 0, asked for was "
                f"batch {batch} of epoch {epoch}."
            )


class EndlessGroupSampler(_EndlessSampler):
    """Each slot plays groups from their first to their last sample, without end.

    The groups come in random orders, one after the other: a chain. Slot ``s`` of ``B`` slots (all shards together)
    plays those at places ``s, s + B, s + 2 B, ...`` of it. There are no epochs: after as many batches as an
    epoch would have, some samples were delivered twice, and others never.

    It is ``InfiniteGroupEachSampleInBatchSampler`` of StreamPETR, and ``GroupInBatchSampler`` of SparseDrive.

    Example::

        EndlessGroupSampler(split_lengths(provider.sequence_lengths, 2), seed=0)
    """

    def __init__(self, group_lengths: Lengths, total_batch_size: int | None = None, *, seed: int = 0) -> None:
        """Create the sampler.

        Args:
            group_lengths: ``(G,)``, number of samples of each group; groups lie one after the other.
            total_batch_size: Number of slots, all shards together. None: set later, by the loader.
            seed: Seed of the orders.

        Raises:
            SettingError: An argument is out of its range, or there are fewer groups than slots.
        """
        super().__init__(group_lengths, total_batch_size, seed)

    def plan_batch(self, epoch: int, batch: int) -> PlannedBatch:
        """Get the samples of a batch of epoch 0."""
        self._require_batch(epoch, batch)
        if self._played is None:
            self._played = _Chain(self._lengths, self.total_batch_size, _permutation_source(self._seed))
        groups, frames, visits = self._played.find(batch)
        return PlannedBatch(
            self._starts[groups] + frames,
            sequence=groups,
            frame=frames,
            is_first=frames == 0,
            is_last=frames == self._lengths[groups] - 1,
            visit=visits,
        )


class _Chain:
    """What each slot plays: random orders of the groups, dealt to the slots in turn, as far as was needed."""

    def __init__(self, lengths: Int64, num_slots: int, permutation: Callable[[int], Int64]) -> None:
        self.num_slots = num_slots
        self._lengths = lengths
        self._permutation = permutation
        self._left = np.zeros(0, np.int64)  # of the last order, not dealt yet
        self._groups = np.zeros((num_slots, 0), np.int64)
        self._ends = np.zeros((num_slots, 0), np.int64)  # the batch after each group

    def group(self, slot: int, turn: int) -> tuple[int, int]:
        """Group that a slot plays in its turn, and number of the order that it comes from."""
        while self._groups.shape[1] <= turn:
            self._grow()
        return int(self._groups[slot, turn]), (turn * self.num_slots + slot) // len(self._lengths)

    def find(self, batch: int) -> tuple[Int64, Int64, Int64]:
        """Group, place in it, and number of the order that it comes from; each ``(num_slots,)``."""
        while not self._ends.shape[1] or self._ends[:, -1].min() <= batch:
            self._grow()
        turns = np.array([int(ends.searchsorted(batch, side="right")) for ends in self._ends])
        slots = np.arange(self.num_slots)
        groups = self._groups[slots, turns]
        frames = batch - self._ends[slots, turns] + self._lengths[groups]
        return groups, frames, (turns * self.num_slots + slots) // len(self._lengths)

    def _grow(self) -> None:
        """Deal as many orders as there were before, so that few copies are made."""
        num_orders = max(1, self._groups.size // len(self._lengths))
        orders = [self._permutation(len(self._lengths)) for _ in range(num_orders)]
        dealt = np.concatenate([self._left, *orders])
        num_turns = len(dealt) // self.num_slots
        self._left = dealt[num_turns * self.num_slots :]
        groups = dealt[: num_turns * self.num_slots].reshape(num_turns, self.num_slots).T
        before = self._ends[:, -1:] if self._ends.shape[1] else np.zeros((self.num_slots, 1), np.int64)
        self._groups = np.concatenate([self._groups, groups], axis=1)
        self._ends = np.concatenate([self._ends, before + np.cumsum(self._lengths[groups], axis=1)], axis=1)


@attrs.frozen(kw_only=True)
class AugmentationRanges:
    """What ``data_aug_conf`` of SparseDrive and Sparse4D says.

    Attributes:
        image_hw: ``H``, ``W``: of the images of the data set.
        output_hw: ``final_dim``.
        scale_range: ``resize_lim``.
        bottom_crop_range: ``bot_pct_lim``.
        rotation_range_deg: ``rot_lim``, degrees.
        is_flipped_at_random: ``rand_flip``.
        rotation_3d_range: ``rot3d_range``, radians.
    """

    image_hw: Sequence[int] = attrs.field(default=(900, 1600), validator=_A_SIZE)
    output_hw: Sequence[int] = attrs.field(default=(256, 704), validator=_A_SIZE)
    scale_range: Sequence[float] = attrs.field(default=(0.4, 0.47), validator=valid(checks.number_range))
    bottom_crop_range: Sequence[float] = attrs.field(default=(0.0, 0.0), validator=valid(checks.number_range))
    rotation_range_deg: Sequence[float] = attrs.field(default=(-5.4, 5.4), validator=valid(checks.number_range))
    is_flipped_at_random: bool = attrs.field(default=True, validator=valid(checks.flag))
    rotation_3d_range: Sequence[float] = attrs.field(
        default=(-0.3925, 0.3925), validator=valid(checks.number_range)
    )

    def drawn(self, generator: np.random.RandomState) -> _Drawn:
        """Draw as ``get_augmentation`` does: ``resize``, ``crop``, ``flip``, ``rotate``, ``rotate_3d``."""
        height, width = self.output_hw

        def uniform(limits: Sequence[float]) -> float:
            low, high = limits
            return generator.uniform(low, high)

        scale = uniform(self.scale_range)
        scaled_width, scaled_height = int(self.image_hw[1] * scale), int(self.image_hw[0] * scale)
        top = int((1 - uniform(self.bottom_crop_range)) * scaled_height) - height
        left = int(generator.uniform(0, max(0, scaled_width - width)))
        is_flipped = bool(self.is_flipped_at_random and generator.choice([0, 1]))
        return {
            "resize": scale,
            "crop": (left, top, left + width, top + height),
            "flip": is_flipped,
            "rotate": uniform(self.rotation_range_deg),
            "rotate_3d": uniform(self.rotation_3d_range),
        }


class SkippingGroupSampler(_EndlessSampler):
    """As `EndlessGroupSampler`, but samples are skipped, and groups played backward, at random.

    It is ``GroupInBatchSampler`` of Sparse4D and SparseDrive, with the random numbers of NumPy's generator of each
    rank. They are drawn in the main process together with those of the augmentation, so the order depends on the
    ranges of the augmentation, and on the number of shards; and a batch is found by playing all before it.

    Samples of one shard are those of one rank, with ``numpy_seed + rank`` as the seed of its generator.
    """

    depends_on_shards = True
    must_be_played = True

    def __init__(
        self,
        group_lengths: Lengths,
        total_batch_size: int | None = None,
        *,
        seed: int = 0,
        numpy_seed: int = 0,
        skip_prob: float = 0.5,
        flip_prob: float = 0.1,
        augmentation: AugmentationRanges | None = None,
    ) -> None:
        """Create the sampler.

        Args:
            group_lengths: ``(G,)``, number of samples of each group; groups lie one after the other.
            total_batch_size: Number of slots, all shards together. None: set later, by the loader.
            seed: Seed of the orders of the groups.
            numpy_seed: Seed of NumPy's generator of rank 0; that of rank ``r`` is greater by ``r``.
            skip_prob: Probability that a sample is skipped, unless it is the first or last one of its group.
            flip_prob: Probability that a group is played backward.
            augmentation: What is drawn once for each group that a slot plays. None: nothing
                (``keep_consistent_seq_aug=False`` is another order, which is not offered).

        Raises:
            SettingError: An argument is out of its range, or there are fewer groups than slots.
        """
        super().__init__(group_lengths, total_batch_size, seed)
        self._numpy_seed = checks.whole_number(numpy_seed, "numpy_seed", at_least=0)
        self._skip_prob = checks.probability(skip_prob, "skip_prob")
        self._flip_prob = checks.probability(flip_prob, "flip_prob")
        self._augmentation = augmentation

    def describe(self) -> Description:
        """What the order depends on."""
        return {
            **super().describe(),
            "numpy_seed": self._numpy_seed,
            "skip_prob": self._skip_prob,
            "flip_prob": self._flip_prob,
            "augmentation": repr(self._augmentation),
        }

    def plan_batch(self, epoch: int, batch: int) -> PlannedBatch:
        """Get the samples of a batch of epoch 0."""
        return self._at(epoch, batch)[0]

    def augmentation_of(self, batch: int) -> list[_Drawn | None]:
        """What was drawn for each slot of a batch, see `AugmentationRanges.drawn`."""
        return self._at(0, batch)[1]

    def _at(self, epoch: int, batch: int) -> _PlayedBatch:
        self._require_batch(epoch, batch)
        if self._played is None or batch < self._played.first_kept:
            self._played = _Play(self._batches())
        found: _PlayedBatch = self._played.at(batch)
        return found

    def _batches(self) -> Iterator[_PlayedBatch]:
        num_slots, num_shards = self.total_batch_size, self._num_shards
        generators = [np.random.RandomState(self._numpy_seed + rank) for rank in range(num_shards)]
        chain = _Chain(self._lengths, num_slots, _permutation_source(self._seed))
        playing = [_Playing() for _ in range(num_slots)]
        while True:
            rows, drawn = [], []
            for slot in range(num_slots):
                one, generator = playing[slot], generators[slot * num_shards // num_slots]
                is_skipped = generator.uniform() < self._skip_prob and len(one.left) > 1
                is_first = not one.left
                if is_first:
                    one.group, one.visit = chain.group(slot, one.num_played)
                    one.num_played += 1
                    one.left = deque(range(self._lengths[one.group]))
                    if generator.uniform() < self._flip_prob:
                        one.left.reverse()
                    one.drawn = None if self._augmentation is None else self._augmentation.drawn(generator)
                if is_skipped:
                    one.left.popleft()
                frame = one.left.popleft()
                index = int(self._starts[one.group]) + frame
                rows.append((index, False, one.group, frame, is_first, not one.left, one.visit))
                drawn.append(one.drawn)
            yield PlannedBatch(*map(list, zip(*rows, strict=True))), drawn


@attrs.define
class _Playing:
    """What a slot plays: the samples of its group that are left, and what was drawn for it."""

    left: deque[int] = attrs.field(factory=deque)
    group: int = 0
    visit: int = 0
    num_played: int = 0
    drawn: _Drawn | None = None


class _Play:
    """Batches played one after the other; the last ones are kept."""

    def __init__(self, batches: Iterator[_PlayedBatch]) -> None:
        self._batches = batches
        self._kept: deque[_PlayedBatch] = deque(maxlen=256)
        self._num_played = 0

    @property
    def first_kept(self) -> int:
        """The first batch that needs no new play."""
        return self._num_played - len(self._kept)

    def at(self, batch: int) -> _PlayedBatch:
        """Get a batch that is not before `first_kept`."""
        while self._num_played <= batch:
            self._kept.append(next(self._batches))
            self._num_played += 1
        return self._kept[batch - self._num_played]


class _DealtSampler(_GroupSampler):
    """Samplers with epochs that deal samples: to each rank, or to each slot, a list of them."""

    def num_batches(self, epoch: int) -> int:
        """Number of batches of an epoch."""
        dealt = self._dealt(epoch)
        size = self.total_batch_size // len(dealt)
        return max(-(-len(own) // size) for own in dealt)

    def plan_batch(self, epoch: int, batch: int) -> PlannedBatch:
        """Get the samples of a batch; lists that have no more are padded with their last one."""
        dealt = self._dealt(epoch)
        size = self.total_batch_size // len(dealt)
        places = np.arange(batch * size, (batch + 1) * size)
        given = [own[np.minimum(places, len(own) - 1)] if len(own) else np.zeros(size, np.int64) for own in dealt]
        is_over = np.concatenate([places >= len(own) for own in dealt])
        samples = np.concatenate(given)
        groups = np.searchsorted(self._starts, samples, side="right") - 1
        frames = samples - self._starts[groups]
        is_first, is_last = self._ends_of(frames, groups)
        return PlannedBatch(samples, is_over, groups, frames, is_first=is_first, is_last=is_last)

    def _ends_of(self, frames: Int64, groups: Int64) -> tuple[Bool | bool, Bool | bool]:
        return frames == 0, frames == self._lengths[groups] - 1

    @abstractmethod
    def _dealt(self, epoch: int) -> list[Int64]:
        """The samples of each rank or slot in an epoch."""


class ShuffledGroupSampler(_DealtSampler):
    """Samples in random order, such that those of a batch of a rank are of one group; some come twice.

    It is ``DistributedGroupSampler``: groups are images that are higher than wide, and others (one group for most
    data sets). Each group is filled up with its first samples to whole batches of all ranks.
    """

    has_slots = False
    depends_on_shards = True

    def _ends_of(self, frames: Int64, groups: Int64) -> tuple[Bool | bool, Bool | bool]:
        return True, True

    def __init__(
        self,
        groups: Sequence[int] | npt.NDArray[np.integer],
        total_batch_size: int | None = None,
        *,
        seed: int = 0,
    ) -> None:
        """Create the sampler.

        Args:
            groups: ``(N,)``, number of the group of each sample, from 0 (``dataset.flag``).
            total_batch_size: Samples per batch, all shards together. None: set later, by the loader.
            seed: Seed of the orders.

        Raises:
            SettingError: An argument is out of its range.
        """
        self._groups = np.asarray(groups)
        is_of_numbers = self._groups.ndim == 1 and self._groups.size and self._groups.dtype.kind in "iu"
        if not is_of_numbers or self._groups.min() < 0:
            raise SettingError(f"`groups` must be the number of the group of each sample, from 0, got {groups!r}.")
        super().__init__([len(self._groups)], total_batch_size, seed)
        self._found: tuple[Any, list[Int64]] | None = None

    def describe(self) -> Description:
        """What the order depends on."""
        return {**super().describe(), "groups": digest(self._groups)}

    def _dealt(self, epoch: int) -> list[Int64]:
        key = (epoch, self.total_batch_size, self._num_shards)
        if self._found is None or self._found[0] != key:
            self._found = (key, self._shuffled(epoch))
        return self._found[1]

    def _shuffled(self, epoch: int) -> list[Int64]:
        permutation = _permutation_source(self._seed + epoch)
        size = self.total_batch_size // self._num_shards
        parts = []
        for group in range(int(self._groups.max()) + 1):
            own = np.flatnonzero(self._groups == group)
            if len(own):
                own = own[permutation(len(own))]
                parts.append(np.resize(own, -(-len(own) // self.total_batch_size) * self.total_batch_size))
        samples = np.concatenate(parts).reshape(-1, size)
        samples = samples[permutation(len(samples))]
        return np.split(samples.ravel(), self._num_shards)


class ChunkSampler(_DealtSampler):
    """Each rank evaluates a chunk of the data set, sample by sample.

    - ``whole_sequences=False``: chunks of ``ceil(N / ranks)`` samples, the last ones filled up with the first
      samples of the data set, which then come twice (``DistributedSampler`` of StreamPETR and BEVFormer).
      Sequences are cut where a chunk ends.
    - ``whole_sequences=True``: a rank gets the sequences that begin in its chunk of ``floor(N / ranks)`` samples.
      Those that begin after the last chunk *no rank* gets (``DistributedSampler`` of SparseDrive and Sparse4D).
    """

    depends_on_shards = True

    def __init__(
        self, sequence_lengths: Lengths, total_batch_size: int | None = None, *, whole_sequences: bool = False
    ) -> None:
        """Create the sampler.

        Args:
            sequence_lengths: ``(S,)``, number of frames of each sequence.
            total_batch_size: Samples per batch, all shards together. None: set later, by the loader.
            whole_sequences: How samples are divided among ranks.

        Raises:
            SettingError: An argument is out of its range.
        """
        super().__init__(sequence_lengths, total_batch_size, 0)
        self._is_whole = checks.flag(whole_sequences, "whole_sequences")

    def describe(self) -> Description:
        """What the order depends on."""
        return {**super().describe(), "whole_sequences": self._is_whole}

    def _dealt(self, epoch: int) -> list[Int64]:
        count, num_ranks = self.num_samples, self._num_shards
        if not self._is_whole:
            size = -(-count // num_ranks)
            return np.split(np.resize(np.arange(count), size * num_ranks), num_ranks)
        rank_of = self._starts // max(count // num_ranks, 1)
        ranks = np.repeat(rank_of, self._lengths)
        return [np.flatnonzero(ranks == rank) for rank in range(num_ranks)]


class SceneSampler(_DealtSampler):
    """Slots play scenes in the order of time, and no scene is cut, whatever the number of slots.

    Scenes are assigned in their order, each to the slot that is ready first. What fills a slot without a scene, or
    after its last one, is marked as padding: it repeats the slot's last frame, or the first of the data set.
    `StreamingSequenceSampler` does the same, but cuts scenes where there are more slots than scenes.
    """

    knows_sequences = False  # nothing is drawn

    def __init__(self, sequence_lengths: Sequence[int], total_batch_size: int | None = None) -> None:
        """Create the sampler.

        Args:
            sequence_lengths: Number of frames of each scene, above 0.
            total_batch_size: Number of slots, all shards together. None: set later, by the loader.

        Raises:
            SettingError: An argument is out of its range.
        """
        super().__init__(sequence_lengths, total_batch_size, name="sequence_lengths")
        self._slots: dict[int, list[Int64]] = {}  # the samples of each slot, by number of slots

    def describe(self) -> Description:
        """What the order depends on."""
        return {**RandomAccessSampler.describe(self), "sequence_lengths": self._lengths.tolist()}

    def _dealt(self, epoch: int) -> list[Int64]:
        num_slots = self.total_batch_size
        if num_slots not in self._slots:
            scenes_of: list[list[Int64]] = [[np.zeros(0, np.int64)] for _ in range(num_slots)]
            lengths = np.zeros(num_slots, np.int64)
            for start, length in zip(self._starts, self._lengths, strict=True):
                slot = int(np.argmin(lengths))
                scenes_of[slot].append(np.arange(start, start + length))
                lengths[slot] += length
            self._slots[num_slots] = [np.concatenate(scenes) for scenes in scenes_of]
        return self._slots[num_slots]


def is_published(order: Order) -> bool:
    """Whether the order of a recipe is that of the published code.

    Raises:
        SettingError: There is no such order.
    """
    return checks.choice(order, "order", ("epochs", "published")) == "published"
