# SPDX-License-Identifier: Apache-2.0
"""Number of batches per epoch, and counts of delivered, dropped and repeated samples."""

from __future__ import annotations

from typing import Any

from ..sampling.arithmetic.last_batch import SampleCounts
from ..sources.input_adapter import InputAdapter
from ..sources.reader_epochs import ReaderEpochs
from .input_binding import LoaderInput
from .pipeline_owner import LoaderPipeline


class LoaderEpochs:
    """Counts the batches of the present pipeline of a loader, by its input or its native readers."""

    def __init__(self, bound: LoaderInput, run: LoaderPipeline, steps: int | None) -> None:
        """Count nothing yet.

        Args:
            bound: The input as the loader has it.
            run: Its pipeline.
            steps: Batches per loop where they were asked for.
        """
        self._bound = bound
        self._run = run
        self._steps = steps
        self._counted: Any = None  # the input of which the numbers are
        self._numbers: dict[int, int | None] = {}

    def num_batches(self, epoch: int) -> int | None:
        """Number of batches of an epoch on all shards; None where it is not known.

        Raises:
            ClosedError: Only the readers could tell, and the loader was closed.
        """
        if self._steps is not None:
            return self._steps
        if self._bound.is_read_natively:
            epochs = self._reader_epochs
            return None if epochs is None else epochs.num_batches(epoch)
        running = self._run.data_input
        if running is not self._counted:
            self._counted, self._numbers = running, {}
        if epoch not in self._numbers:  # to find out, a stateful sampler is played to its end
            self._numbers[epoch] = InputAdapter(running).num_batches(epoch)
        return self._numbers[epoch]

    def num_batches_here(self, epoch: int) -> int | None:
        """Number of batches of an epoch on this shard; None where it is not known.

        Raises:
            ClosedError: Only the readers could tell, and the loader was closed.
        """
        if self._steps is not None or self._bound.is_read_natively:
            return self.num_batches(epoch)
        return InputAdapter(self._run.data_input).num_batches_here(epoch)

    def sample_counts(self, epoch: int) -> SampleCounts | None:
        """Counts of delivered, dropped and repeated samples of an epoch, over all shards; None where not known.

        Raises:
            ClosedError: Only the readers could tell, and the loader was closed.
        """
        if self._bound.is_read_natively:
            epochs = self._reader_epochs
            return None if epochs is None else epochs.sample_counts
        return InputAdapter(self._run.data_input).sample_counts(epoch)

    @property
    def _reader_epochs(self) -> ReaderEpochs | None:
        """Of native readers, which count their samples when the pipeline is built; None for a stream."""
        if self._bound.is_endless:
            return None
        self._run.require_open()
        return self._run.pipeline.reader_epochs

    def describe_drift(self) -> str:
        """Say why native readers get out of step with the other input of the pipeline; empty where they do not."""
        readers = self._run.pipeline.joined_reader_epochs
        if not readers or self._bound.is_endless:
            return ""
        num_batches = self.num_batches(0)
        reasons = [
            f"{name} has {epochs.num_made} batches per epoch"
            for name, epochs in readers.items()
            if num_batches is not None and epochs.num_made != num_batches
        ]
        if self._bound.shard.num_shards > 1:
            reasons.append("on several shards, readers and samplers deal the samples in different ways")
        if not reasons:
            return ""
        return (
            f"Samples of the native readers do not stay beside the same samples of the other input, which has "
            f"{num_batches} batches per epoch: {'; '.join(reasons)}. If they belong together, load both by one "
            f"data provider, or use equal numbers of samples with last_batch='pad'."
        )
