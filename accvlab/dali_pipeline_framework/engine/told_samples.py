# SPDX-License-Identifier: Apache-2.0
"""Which samples a batch really holds, told by the worker that has loaded it."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, cast

from nvidia.dali import types

from ..ledgers.marks import DELIVERED, PADDING, REPLACED
from ..ledgers.packed_batch import UNKNOWN, PackedBatch, packed
from ..sources.input_adapter import InputAdapter

_sample_index_of, _is_padding_of = operator.attrgetter("sample_index"), operator.attrgetter("is_padding")


def samples_of(
    source: Any, infos: Sequence[types.SampleInfo], stand_ins: Mapping[int, int], index_bytes: int
) -> PackedBatch:
    """Get the samples of a batch, packed for a ledger.

    Args:
        source: The user's input.
        infos: Positions of the samples that were loaded, at least one.
        stand_ins: Indices of the samples that replace those that were planned, by the number of the sample in the
            batch.
        index_bytes: How to pack indices, see `packed`.
    """
    places_at = getattr(source, "places_at", None)
    if places_at is not None:  # a `PlannedInput`
        places: Sequence[Any] = places_at(infos)
    else:
        adapter = InputAdapter(source)
        places = [adapter.place(info) for info in infos]
        if None in places:
            indices = [adapter.sample_index(info) for info in infos]
            return UNKNOWN if None in indices else packed(cast(list[int], indices), index_bytes)
    due = list(map(_sample_index_of, places))
    if not stand_ins and True not in map(_is_padding_of, places):
        return packed(due, index_bytes)
    delivered, marks = [*due], [PADDING if place.is_padding else DELIVERED for place in places]
    for number, index in stand_ins.items():
        marks[number], delivered[number] = REPLACED, index
    return packed(delivered, index_bytes, marks, due)
