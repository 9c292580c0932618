# SPDX-License-Identifier: Apache-2.0
"""Which samples a batch really holds: told by the worker that loaded it, read when it is delivered."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, cast

import attrs
import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ..ledgers.marks import DELIVERED, PADDING
from ..sources.input_adapter import InputAdapter
from .control_block import ControlBlock

_sample_index_of = operator.attrgetter("sample_index")
_is_padding_of = operator.attrgetter("is_padding")
_NOTHING: Final[Mapping[int, tuple[int, int]]] = MappingProxyType({})


@attrs.frozen(eq=False)
class ToldSamples:
    """The samples of a batch.

    Attributes:
        indices: ``(n,)`` int64, indices in the data set; None where they are not known.
        marks: ``(n,)`` int64, how each was delivered (see `ledgers.marks`); None where all are plainly delivered.
        planned: ``(n,)`` int64, indices of the samples that were due; with ``marks``.
    """

    indices: npt.NDArray[np.int64] | None
    marks: npt.NDArray[np.int64] | None = None
    planned: npt.NDArray[np.int64] | None = None


def tell_samples(
    control: ControlBlock,
    source: Any,
    infos: Sequence[types.SampleInfo],
    stand_ins: Mapping[int, tuple[int, int]] = _NOTHING,
) -> None:
    """Tell, in a worker, which samples it has loaded.

    Args:
        control: Memory shared with the pipeline.
        source: The user's input.
        infos: Positions of the samples that were loaded, at least one.
        stand_ins: Where something else than planned was delivered, by the number of the sample in the batch: the
            mark, and the index of the sample.
    """
    epoch, batch = infos[0].epoch_idx, infos[0].iteration
    adapter = InputAdapter(source)
    if adapter.planned is not None:
        places: Sequence[Any] = adapter.planned.places_at(infos)
    else:
        places = [adapter.place(info) for info in infos]
    if None in places:
        indices = [adapter.sample_index(info) for info in infos]
        if None in indices:
            control.tell_samples(epoch, batch, ())
            return
        due, marks = cast(list[int], indices), None
    else:
        due = list(map(_sample_index_of, places))
        is_padding = list(map(_is_padding_of, places))
        marks = [PADDING if each else DELIVERED for each in is_padding] if True in is_padding else None
    if marks is None and not stand_ins:
        control.tell_samples(epoch, batch, due)
        return
    delivered, marks = [*due], marks or [DELIVERED] * len(due)
    for number, (mark, index) in stand_ins.items():
        marks[number], delivered[number] = mark, index
    control.tell_samples(epoch, batch, due, marks, delivered)


def told_samples(
    control: ControlBlock, source: Any, epoch: int, batch: int, batch_in_all: int
) -> ToldSamples | None:
    """Get what was told of a batch; None where nothing was.

    Args:
        control: Memory shared with the workers.
        source: The user's input.
        epoch: Epoch of the batch.
        batch: Its number in the epoch.
        batch_in_all: Its number since the pipeline was started.
    """
    if not callable(source):
        recorded = control.recorded_batch(batch_in_all)
        return None if recorded is None else ToldSamples(np.array(recorded, np.int64))
    told = control.told_samples(epoch, batch)
    if told is None:
        return None
    num_columns, words = told
    columns = np.frombuffer(words, np.int64)
    if num_columns == 1:
        return ToldSamples(columns if len(columns) else None)
    due, marks, delivered = columns.reshape(3, -1)
    return ToldSamples(delivered, marks, due)
