# SPDX-License-Identifier: Apache-2.0
"""A batch that a worker makes, and how far that has come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter_ns
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import attrs
from nvidia.dali import types

Phase: TypeAlias = Literal["loading", "draws", "steps", "packing"]

NOTHING_ELSE: Final[Mapping[int, int]] = MappingProxyType({})
_NO_MORE: Final[Iterator[Any]] = iter(())


@attrs.define(eq=False)
class LoadingBatch:
    """A batch that is made: how far that has come tells what has failed, and where to go on behind it.

    Attributes:
        asked: The batch as DALI asks for it.
        infos: Positions of its samples; fewer once it is known that the epoch ends within it.
        row: Where the control block notes what is loaded.
        phase: What is being done.
        rest: Loads what is not loaded yet.
        samples: The arrays of what was loaded and checked.
        draws: Per draw one array with the samples as first axis.
        sent: The arrays of what has gone through the steps.
        stand_ins: Indices of the samples that replace those that were planned, by the number of the sample.
        began_ns: When it was begun.
        read_ns: When all samples were loaded.
        stepped_ns: When all had gone through the steps.
    """

    asked: types.BatchInfo
    infos: Sequence[types.SampleInfo]
    row: int
    phase: Phase = "loading"
    rest: Iterator[Any] = _NO_MORE
    samples: list[Sequence[Any]] = attrs.Factory(list)
    draws: list[Any] = attrs.Factory(list)
    sent: list[Sequence[Any]] = attrs.Factory(list)
    stand_ins: Mapping[int, int] = NOTHING_ELSE
    began_ns: int = attrs.Factory(perf_counter_ns)
    read_ns: int = 0
    stepped_ns: int = 0

    @property
    def where(self) -> str:
        """Which batch it is, for messages."""
        return f"epoch {self.infos[0].epoch_idx}, batch {self.infos[0].iteration}"
