"""Inputs of the tests, as users write them themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from nvidia.dali import types

from accvlab.dali_pipeline_framework.inputs import CallableBase, IterableBase
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from support.array_samples import group_of


def number_blueprint() -> SampleDataGroup:
    return group_of(index=types.DALIDataType.INT64)


class NumberCallable(CallableBase):
    """Position ``p`` of epoch ``e`` is the number ``1000 * e + p``; each epoch has ``num_samples`` positions."""

    def __init__(self, num_samples: int = 10, has_epochs: bool = True) -> None:
        self.num_samples = num_samples
        self.has_epochs = has_epochs
        self.asked: list[int] = []

    def __call__(self, sample_info: Any) -> tuple[Any, ...]:
        if sample_info.idx_in_epoch >= self.num_samples and self.has_epochs:
            raise StopIteration
        self.asked.append(sample_info.idx_in_epoch)
        return (np.array(1000 * sample_info.epoch_idx + sample_info.idx_in_epoch),)

    @property
    def used_sample_data_structure(self) -> SampleDataGroup:
        return number_blueprint()

    @property
    def length(self) -> int | None:
        return self.num_samples if self.has_epochs else None


class CountedCallable(NumberCallable):
    """Tells how many full batches an epoch has, and its batch size."""

    batch_size = 4

    @property
    def num_batches_per_epoch(self) -> int:
        return self.num_samples // self.batch_size


class PartialCallable(NumberCallable):
    """Delivers a last batch that is smaller."""

    delivers_partial_batches = True


class NumberIterable(IterableBase):
    """Epoch ``e`` has the numbers ``1000 * e + p``; its last batch is smaller where they do not fill it."""

    def __init__(self, num_samples: int = 10, size: int = 4) -> None:
        self.num_samples = num_samples
        self.size = size
        self.epoch = -1

    def __iter__(self) -> NumberIterable:
        self.epoch += 1
        self.position = 0
        return self

    def __next__(self) -> list[list[Any]]:
        if self.position >= self.num_samples:
            raise StopIteration
        positions = range(self.position, min(self.position + self.size, self.num_samples))
        self.position += self.size
        self.current_sample_indices = list(positions)
        return [[np.array(1000 * self.epoch + position) for position in positions]]

    @property
    def used_sample_data_structure(self) -> SampleDataGroup:
        return number_blueprint()

    @property
    def length(self) -> int:
        return -(-self.num_samples // self.size)


class GivenBatch(IterableBase):
    """Some samples as a batch, twice per epoch, without anything that could supply draws."""

    length = 2

    def __init__(self, samples: Sequence[SampleDataGroup]) -> None:
        self.samples = samples
        self.batch_size = len(samples)
        self.rest = 0

    @property
    def used_sample_data_structure(self) -> SampleDataGroup:
        return self.samples[0].get_empty_like_self()

    def __iter__(self) -> GivenBatch:
        self.rest = 2
        return self

    def __next__(self) -> list[list[Any]]:
        if self.rest == 0:
            raise StopIteration
        self.rest -= 1
        return [list(values) for values in zip(*(sample.get_data() for sample in self.samples), strict=True)]
