# SPDX-License-Identifier: Apache-2.0
"""A published module path."""

from ..sources.iterable_base import IterableBase

__all__ = ["IterableBase"]
