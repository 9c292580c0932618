# SPDX-License-Identifier: Apache-2.0
"""What inputs have in common that operators of DALI make in the graph, instead of Python in workers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from nvidia.dali.data_node import DataNode

from .input_base import InputBase
from .reader_epochs import ReaderEpochs

CODECS_ON_CPU = ("vp8", "vp9", "mjpeg")
"""What DALI decodes without a GPU."""


class NativeInput(InputBase):
    """An input whose samples are made by operators of DALI in the graph; there are no workers.

    Attributes:
        operator_name: Name of the operator within `nvidia.dali.fn`, e.g. ``"readers.file"``.
        is_resumable: Whether DALI's checkpoints know where the operators stand.
        is_joinable: Whether other inputs can stand beside it, which needs batches that are always full.
        ragged_advice: What to do where samples of a batch have different shapes, for the error that says so.
        place_advice: How to get to know where a sample stands, for the error where a context is asked for.
    """

    operator_name: str
    is_resumable: bool = False
    is_joinable: bool = True
    ragged_advice: str = ""
    place_advice: str = "Use a data provider with a sampler."

    @property
    def length(self) -> int | None:
        """None: the number of samples is known only to a pipeline that was built (`DataLoader` asks it)."""
        return None

    def advice(self, reason: str) -> str:
        """Say what can be done where DALI cannot set the operator up, given its reason; may be empty."""
        return ""

    def reading_one_ahead(self) -> NativeInput | None:
        """Get the same input, which reads no more than one batch ahead; None where it does so already."""
        return None

    @abstractmethod
    def define(self, name: str, seed: int) -> Sequence[DataNode]:
        """Define the operators in the current pipeline.

        Args:
            name: Name for the operator that reads.
            seed: Seed of the pipeline.

        Returns:
            The data fields, in the order of the blueprint.
        """

    @abstractmethod
    def begin(self, name: str, pipeline: Any) -> NativeRun:
        """Follow the operator of that name in a pipeline that was built."""


class NativeRun(ABC):
    """Where a native input stands in a pipeline.

    Attributes:
        epochs: How many batches its epochs have, or None where only the end tells.
        epoch: The running epoch, from 0.
        is_awaited: Whether batches may be long in coming, so that those that wait for delivery must not wait for
            the next one to be begun.
    """

    epochs: ReaderEpochs | None = None
    epoch: int = 0
    is_awaited: bool = False

    @abstractmethod
    def begin_batch(self) -> None:
        """Note that another batch is going to be made.

        Raises:
            StopIteration: The epoch has no more.
        """

    def is_ready(self) -> bool:
        """Whether a batch can be begun (or the end be told) without waiting."""
        return True

    def wait(self) -> None:
        """Wait until a batch can be begun; may be interrupted, and called again."""
        return

    def begin_epoch(self) -> None:
        """Note that the next epoch begins; a stream has none."""
        return

    def continue_at(self, epoch: int, num_begun: int) -> None:
        """Note that a checkpoint was restored, of an epoch of which so many batches were received."""
        return

    def num_valid(self, batch: int) -> int | None:
        """Count the samples to deliver of a batch of the running epoch.

        Returns:
            Their number, 0 for a batch that is thrown away; None for all.
        """
        return None

    def describe_batch(self, batch: int) -> str:
        """Say what one of the last batches holds, counted from the start; a sentence, or empty."""
        return ""

    def close(self) -> None:
        """Free what it holds; the pipeline was closed."""
        return
