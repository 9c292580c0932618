# SPDX-License-Identifier: Apache-2.0
"""What the workers send of a sample: its flat fields and, behind them, its random draws, called items."""

from __future__ import annotations

from typing import TypeAlias

Items: TypeAlias = tuple[int, ...]
"""What makes up a folded field, element by element: positions among the flat fields of a sample and, after them,
its random draws."""

# Of one array. Operators of DALI count elements with 32 bits in places.
MOST_BYTES = 2**31 - 1
