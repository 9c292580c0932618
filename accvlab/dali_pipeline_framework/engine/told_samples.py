# SPDX-License-Identifier: Apache-2.0
"""Which samples a batch really holds, told by the worker that has loaded it."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, cast

from nvidia.dali import types

from ..ledgers import samples_text
from ..sources.input_adapter import InputAdapter

_sample_index_of, _is_padding_of = operator.attrgetter("sample_index"), operator.attrgetter("is_padding")


def samples_of(source: Any, infos: Sequence[types.SampleInfo], stand_ins: Mapping[int, int]) -> bytes:
    """Get the samples of a batch, as in a ledger; empty where they are not known.

    Args:
        source: The user's input.
        infos: Positions of the samples that were loaded, at least one.
        stand_ins: Indices of the samples that replace those that were planned, by the number of the sample in the
            batch.
    """
    places_at = getattr(source, "places_at", None)
    if places_at is not None:  # a `PlannedInput`
        places: Sequence[Any] = places_at(infos)
    else:
        adapter = InputAdapter(source)
        places = [adapter.place(info) for info in infos]
        if None in places:
            indices = [adapter.sample_index(info) for info in infos]
            return b"" if None in indices else samples_text(cast(list[int], indices))
    if not stand_ins and True not in map(_is_padding_of, places):
        return samples_text(list(map(_sample_index_of, places)))
    delivered: list[int] = []
    replaced: list[int] = []
    for number, place in enumerate(places):
        if number in stand_ins:
            replaced += [place.sample_index, stand_ins[number]]
        if number in stand_ins or not place.is_padding:
            delivered.append(stand_ins.get(number, place.sample_index))
    return samples_text(delivered, replaced)
