# SPDX-License-Identifier: Apache-2.0
"""A published module path."""

from ..providers.data_provider import DataProvider

__all__ = ["DataProvider"]
