# SPDX-License-Identifier: Apache-2.0
"""A published module path."""

from ..operators.published.helpers import check_type

__all__ = ["check_type"]
