"""Samplers of the tests, with the published stateful interface."""

from __future__ import annotations

import threading

from accvlab.dali_pipeline_framework.inputs import SamplerBase


class EpochSampler(SamplerBase):
    """Epoch ``e`` delivers the samples ``0 .. n-1``, rotated by ``e``, in full batches."""

    def __init__(self, num_samples: int = 10, batch_size: int = 4) -> None:
        self.num_samples = num_samples
        self.total_batch_size = batch_size
        self.epoch = 0
        self.position = 0

    def get_next_batch_indices(self) -> list[int]:
        if self.position + self.total_batch_size > self.num_samples:
            raise StopIteration
        start = self.position + self.epoch
        self.position += self.total_batch_size
        return [(start + slot) % self.num_samples for slot in range(self.total_batch_size)]

    @property
    def is_epoch_based(self) -> bool:
        return True

    def reset(self) -> None:
        self.epoch += 1
        self.position = 0

    @property
    def length(self) -> int:
        return self.num_samples // self.total_batch_size


class ShortEndSampler(EpochSampler):
    """Its last batch has what is left."""

    def get_next_batch_indices(self) -> list[int]:
        if self.position >= self.num_samples:
            raise StopIteration
        size = min(self.total_batch_size, self.num_samples - self.position)
        start = self.position + self.epoch
        self.position += size
        return [(start + slot) % self.num_samples for slot in range(size)]


class EndlessSampler(SamplerBase):
    """Counts up for ever and refuses to be reset."""

    def __init__(self, num_samples: int = 10, batch_size: int = 4) -> None:
        self.num_samples = num_samples
        self.batch_size_ = batch_size
        self.next = 0

    def get_next_batch_indices(self) -> list[int]:
        start = self.next
        self.next += self.batch_size_
        return [(start + slot) % self.num_samples for slot in range(self.batch_size_)]

    @property
    def is_epoch_based(self) -> bool:
        return False

    def reset(self) -> None:
        raise AssertionError("an endless sampler must not be reset")

    @property
    def length(self) -> None:
        return None


class GeneratorSampler(EndlessSampler):
    """Holds a generator and a lock from the start: it can be neither copied nor pickled."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = iter(range(100))
        self.live = (index for index in range(100))
        self.lock = threading.Lock()


class LockedSampler(EpochSampler):
    """Can be copied, but not pickled."""

    def __init__(self) -> None:
        super().__init__()
        self.callback = lambda: None
