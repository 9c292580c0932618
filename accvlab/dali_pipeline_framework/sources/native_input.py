# SPDX-License-Identifier: Apache-2.0
"""Inputs that operators of DALI read in the graph, and their position in a pipeline."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from nvidia.dali.data_node import DataNode

from .input_bases import InputBase

OPERATOR = "reader"
"""Name of the operator that reads; checkpoints know it by this name."""


class NativeInput(InputBase):
    """An input whose samples are made by operators of DALI in the graph; there are no workers.

    Attributes:
        operator_name: Name of the operator within `nvidia.dali.fn`, e.g. ``"readers.file"``.
        ragged_advice: Remedy in the error about samples of different shapes in a batch.
    """

    operator_name: str
    ragged_advice: str = ""

    @property
    def length(self) -> int | None:
        """None: the number of samples is known only to a pipeline that was built."""
        return None

    def advice(self, reason: str) -> str:
        """Advise on what to do where DALI cannot set the operator up, given its reason; may be empty."""
        return ""

    def why_not_decoded(self) -> str:
        """Look into the files for a reason why decoding them may have failed; a sentence, or empty."""
        return ""

    @abstractmethod
    def define(self, seed: int) -> Sequence[DataNode]:
        """Define the operators in the current pipeline; the one that reads must have the name ``"reader"``.

        Args:
            seed: Seed of the pipeline.

        Returns:
            The data fields, in the order of the blueprint.
        """

    @abstractmethod
    def begin(self, pipeline: Any) -> NativeRun:
        """Start to count the batches in a pipeline that was built."""


class NativeRun(ABC):
    """Position of a native input in a pipeline.

    Attributes:
        num_batches: Number of batches of an epoch; None if it is not known before the end.
        is_awaited: Whether a batch may take long to arrive, so that ready batches are delivered before the next
            one is begun.
    """

    num_batches: int | None = None
    is_awaited: bool = False

    @abstractmethod
    def begin_batch(self) -> None:
        """Count another batch, which is about to be made.

        Raises:
            StopIteration: The epoch has no more.
        """

    def is_ready(self) -> bool:
        """Whether a batch can be begun (or the end be known) without waiting."""
        return True

    def wait(self) -> None:
        """Wait until a batch can be begun; may be interrupted, and called again."""
        return

    def begin_epoch(self) -> None:
        """Begin the next epoch; a stream has none."""
        return

    def continue_at(self, num_begun: int) -> int:
        """Continue after a checkpoint in an epoch of which ``num_begun`` batches, perhaps all, were received.

        Returns:
            Number of received batches of the epoch that continues; 0 if the next epoch begins.
        """
        return num_begun

    def describe_batch(self, batch: int) -> str:
        """Describe the content of a recent batch, given by its number in the run; a sentence, or empty."""
        return ""

    def close(self) -> None:
        """Free resources; the pipeline was closed."""
        return
