# SPDX-License-Identifier: Apache-2.0
"""How a sample was delivered."""

from __future__ import annotations

from typing import Final

DELIVERED: Final = 0
"""As it is."""

PADDING: Final = 1
"""Only to fill a slot: it repeats another one, and does not count."""

REPLACED: Final = 2
"""In the place of another one, which could not be delivered."""
