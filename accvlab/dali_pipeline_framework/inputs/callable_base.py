# SPDX-License-Identifier: Apache-2.0
"""A published module path."""

from ..sources.callable_base import CallableBase

__all__ = ["CallableBase"]
