# SPDX-License-Identifier: Apache-2.0
"""A published module path."""

from ..sources.input_bases import CallableBase

__all__ = ["CallableBase"]
