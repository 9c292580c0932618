# SPDX-License-Identifier: Apache-2.0
"""A published module path."""

from ..operators.published.helpers import get_as_data_node, get_mapped

__all__ = ["get_as_data_node", "get_mapped"]
