# SPDX-License-Identifier: Apache-2.0
"""A published module path."""

from ...operators.conditions import Parser

__all__ = ["Parser"]
