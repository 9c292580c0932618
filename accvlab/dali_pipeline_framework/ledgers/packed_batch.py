# SPDX-License-Identifier: Apache-2.0
"""The samples of a batch, packed as they stand in a ledger: by the worker that has loaded them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, TypeAlias

BATCH: Final = 2
"""Kind of a record that tells of a batch."""

HAS_MARKS, IS_UNKNOWN = 1, 2
"""Flags of such a record."""

_TYPE_CODES: Final = {1: "B", 2: "H", 4: "I", 8: "q"}

AS_NEEDED: Final = -1
"""In place of the bytes of an index: as few as the largest one needs."""


def bytes_per_index(num_samples: int) -> int:
    """How many bytes an index of a data set takes."""
    most = num_samples - 1
    return 1 if most < 1 << 8 else 2 if most < 1 << 16 else 4 if most < 1 << 32 else 8


PackedBatch: TypeAlias = tuple[int, bytes]
"""The samples of a batch, as they stand in a ledger.

First a number, the first eight bytes of the record: kind, bytes per index, flags, 0, and in 32 bits the number of
samples. Then their indices; where something else than planned was delivered, behind them a byte for each that
tells how, and the indices of those that were due.
"""

UNKNOWN: Final[PackedBatch] = BATCH | 1 << 8 | IS_UNKNOWN << 16, b""
"""A batch whose samples are not known."""


def packed(
    indices: Sequence[int],
    index_bytes: int = AS_NEEDED,
    marks: Sequence[int] | None = None,
    planned: Sequence[int] = (),
) -> PackedBatch:
    """Pack the samples of a batch.

    Args:
        indices: Their indices in the data set. Negative ones are not known, which makes the batch unknown.
        index_bytes: How many bytes an index takes: 1, 2, 4, 8 or `AS_NEEDED`.
        marks: How each was delivered, see `marks`; None: all plainly.
        planned: Indices of those that were due; with ``marks``.
    """
    if index_bytes == AS_NEEDED:
        if min(indices, default=0) < 0:
            return UNKNOWN
        index_bytes = bytes_per_index(max(*indices, *planned, 0, 0) + 1)
    code = _TYPE_CODES[index_bytes]
    head = BATCH | index_bytes << 8 | len(indices) << 32
    samples = array(code, indices).tobytes()
    if marks is None:
        return head, samples
    return head | HAS_MARKS << 16, samples + bytes(marks) + array(code, planned).tobytes()
